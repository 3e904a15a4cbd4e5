//! Patterns of subjects.

use std::fmt;

use super::{DnsName, SpiffeId, Subject, Token, shown, spiffe};
use crate::node::Scalar;

/// Matches subjects of one kind, and no others.
#[derive(Clone, Debug, PartialEq)]
pub enum SubjectPattern {
    /// A SPIFFE ID.
    Spiffe(SpiffePattern),
    /// A DNS name of a certificate.
    Dns(DnsPattern),
    /// Exactly this common name of a certificate without other names.
    CommonName(Box<str>),
    /// A token.
    Token(TokenPattern),
}

/// A SPIFFE ID of which `*` is one segment of the path and `/**` at the end any rest of at least one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpiffePattern {
    text: Box<str>,
    trust_domain: Box<str>,
    segments: Segments,
    has_any_rest: bool,
}

/// A DNS name of which `*` is one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsPattern {
    text: Box<str>,
    labels: Segments,
}

/// What a token must have. What is absent is no condition, but the issuer always is one.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenPattern {
    /// The name that the access policy gives the issuer.
    pub issuer: Box<str>,
    /// The `sub` claim, exactly.
    pub subject: Option<Box<str>>,
    /// Claims by JSON pointer.
    pub claims: Vec<(Box<str>, ClaimPattern)>,
}

/// The value that a claim must have; a list must contain it.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimPattern {
    /// Exactly this value, of the same type.
    Exactly(Scalar),
    /// The ID that the node claims; written `{node}`.
    NodeId,
}

/// The texts that the `*` of a pattern stood for, in order.
pub type Captures = Vec<Box<str>>;

/// A text that is no pattern; the message says what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(pub(super) String);

/// Segments, of which `None` is any one.
type Segments = Vec<Option<Box<str>>>;

/// Bytes of a pattern: as many as a SPIFFE ID may have.
pub const MAX_PATTERN_BYTES: usize = 2048;

impl SpiffePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`InvalidPattern`] if no SPIFFE ID could match it, or a `*` is a part of a segment or of the trust domain.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = |error: &dyn fmt::Display| {
            InvalidPattern(format!(
                "{:?}: {error}; write such as spiffe://example.org/ns/edge/sa/*, where * is one segment and /** at the end any \
                 rest",
                shown(text)
            ))
        };
        check_length(text)?;
        let (trust_domain, path) = spiffe::split(text).map_err(|error| invalid(&error))?;
        spiffe::check_trust_domain(trust_domain).map_err(|error| invalid(&error))?;
        let (path, has_any_rest) = match path {
            Some("**") => (None, true),
            Some(path) => path.strip_suffix("/**").map_or((Some(path), false), |path| (Some(path), true)),
            None => (None, false),
        };
        let mut segments = Segments::new();
        for segment in path.into_iter().flat_map(|path| path.split('/')) {
            if segment == "*" {
                segments.push(None);
                continue;
            }
            if segment.contains('*') {
                return Err(invalid(&"`*` must be a whole segment, and `**` the last one"));
            }
            spiffe::check_segment(segment).map_err(|error| invalid(&error))?;
            segments.push(Some(segment.into()));
        }
        Ok(Self { text: text.into(), trust_domain: trust_domain.into(), segments, has_any_rest })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The texts of its `*`, if the ID matches.
    #[must_use]
    pub fn captures(&self, id: &SpiffeId) -> Option<Captures> {
        if id.trust_domain() != &*self.trust_domain {
            return None;
        }
        let mut found = id.segments();
        let captures = capture(&self.segments, &mut found)?;
        (found.next().is_some() == self.has_any_rest).then_some(captures)
    }

    /// The trust domain, which is always exact.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// Returns `true` if every ID that matches `other` matches this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (this, that) = (self.segments.len(), other.segments.len());
        let has_all_lengths = match (self.has_any_rest, other.has_any_rest) {
            (true, true) => that >= this,
            (true, false) => that > this,
            (false, false) => that == this,
            (false, true) => false,
        };
        has_all_lengths && self.trust_domain == other.trust_domain && covers(&self.segments, &other.segments)
    }

    /// Returns `true` if an ID may match both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let (this, that) = (self.segments.len(), other.segments.len());
        let has_common_length = match (self.has_any_rest, other.has_any_rest) {
            (true, true) => true,
            (true, false) => that > this,
            (false, true) => this > that,
            (false, false) => that == this,
        };
        has_common_length && self.trust_domain == other.trust_domain && meets(&self.segments, &other.segments)
    }
}

impl DnsPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`InvalidPattern`] if no DNS name could match it, or a `*` is a part of a label.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        check_length(text)?;
        let plain: Vec<&str> =
            text.split('.').map(|label| if label == "*" { "any" } else { label }).collect();
        if let Err(error) = DnsName::new(&plain.join(".")) {
            return Err(InvalidPattern(format!(
                "{:?}: {error}; write such as *.edge.example.com, where * is one label",
                shown(text)
            )));
        }
        let labels = text.split('.').map(|label| (label != "*").then(|| label.into())).collect();
        Ok(Self { text: text.into(), labels })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if every name that matches `other` matches this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.labels.len() == other.labels.len() && covers(&self.labels, &other.labels)
    }

    /// Returns `true` if a name may match both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.labels.len() == other.labels.len() && meets(&self.labels, &other.labels)
    }

    /// The texts of its `*`, if the name matches.
    #[must_use]
    pub fn captures(&self, name: &DnsName) -> Option<Captures> {
        let mut found = name.as_str().split('.');
        let captures = capture(&self.labels, &mut found)?;
        found.next().is_none().then_some(captures)
    }
}

impl TokenPattern {
    /// Returns `true` if the token has all that is asked for. `{node}` is `node_id`, and matches nothing without one.
    #[must_use]
    pub fn matches(&self, token: &Token, node_id: Option<&str>) -> bool {
        let has = |(pointer, pattern): &(Box<str>, ClaimPattern)| {
            let values = token.claims.at(pointer);
            match pattern {
                ClaimPattern::Exactly(value) => values.contains(value),
                ClaimPattern::NodeId => node_id.is_some_and(|id| {
                    values.iter().any(|value| matches!(value, Scalar::String(text) if text == id))
                }),
            }
        };
        self.issuer == token.issuer
            && self.subject.as_ref().is_none_or(|subject| *subject == token.subject)
            && self.claims.iter().all(has)
    }

    /// Returns `true` if every token that matches `other` matches this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.issuer == other.issuer
            && (self.subject.is_none() || self.subject == other.subject)
            && self.claims.iter().all(|claim| other.claims.contains(claim))
    }

    /// Returns `true` if a token may match both: the value of a claim may be a list that has several.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.issuer == other.issuer
            && (self.subject.is_none() || other.subject.is_none() || self.subject == other.subject)
    }

    /// Returns `true` if a claim must be the ID of the node.
    #[must_use]
    pub fn names_node(&self) -> bool {
        self.claims.iter().any(|(_, pattern)| matches!(pattern, ClaimPattern::NodeId))
    }

    /// The pattern without what it asks of the node's ID.
    #[must_use]
    pub fn without_node(&self) -> Self {
        let is_other = |(_, pattern): &&(Box<str>, ClaimPattern)| !matches!(pattern, ClaimPattern::NodeId);
        Self { claims: self.claims.iter().filter(is_other).cloned().collect(), ..self.clone() }
    }
}

impl SubjectPattern {
    /// The texts of its `*`, if the subject matches. `{node}` in claims is `node_id`.
    #[must_use]
    pub fn captures(&self, subject: &Subject, node_id: Option<&str>) -> Option<Captures> {
        match (self, subject) {
            (Self::Spiffe(pattern), Subject::Spiffe(id)) => pattern.captures(id),
            (Self::Dns(pattern), Subject::Dns(name)) => pattern.captures(name),
            (Self::CommonName(pattern), Subject::CommonName(name)) => {
                (pattern == name).then(Captures::default)
            }
            (Self::Token(pattern), Subject::Token(token)) => {
                pattern.matches(token, node_id).then(Captures::default)
            }
            (Self::Spiffe(_) | Self::Dns(_) | Self::CommonName(_) | Self::Token(_), _) => None,
        }
    }

    /// Returns `true` if every subject that matches `other` matches this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Spiffe(this), Self::Spiffe(other)) => this.covers(other),
            (Self::Dns(this), Self::Dns(other)) => this.covers(other),
            (Self::CommonName(this), Self::CommonName(other)) => this == other,
            (Self::Token(this), Self::Token(other)) => this.covers(other),
            (Self::Spiffe(_) | Self::Dns(_) | Self::CommonName(_) | Self::Token(_), _) => false,
        }
    }

    /// Returns `true` if a subject may match both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Spiffe(this), Self::Spiffe(other)) => this.meets(other),
            (Self::Dns(this), Self::Dns(other)) => this.meets(other),
            (Self::CommonName(this), Self::CommonName(other)) => this == other,
            (Self::Token(this), Self::Token(other)) => this.meets(other),
            (Self::Spiffe(_) | Self::Dns(_) | Self::CommonName(_) | Self::Token(_), _) => false,
        }
    }

    /// Returns `true` if only one name matches.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        match self {
            Self::Spiffe(pattern) => !pattern.has_any_rest && pattern.segments.iter().all(Option::is_some),
            Self::Dns(pattern) => pattern.labels.iter().all(Option::is_some),
            Self::CommonName(_) => true,
            Self::Token(_) => false,
        }
    }

    /// The number of `*` in it.
    #[must_use]
    pub fn n_captures(&self) -> usize {
        let count = |segments: &Segments| segments.iter().filter(|segment| segment.is_none()).count();
        match self {
            Self::Spiffe(pattern) => count(&pattern.segments),
            Self::Dns(pattern) => count(&pattern.labels),
            Self::CommonName(_) | Self::Token(_) => 0,
        }
    }
}

/// As subjects are shown, with the patterns in place of the names.
impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spiffe(pattern) => f.write_str(pattern.as_str()),
            Self::Dns(pattern) => write!(f, "dns:{}", pattern.as_str()),
            Self::CommonName(name) => write!(f, "cn:{}", shown(name)),
            Self::Token(TokenPattern { issuer, subject, claims }) => {
                write!(f, "jwt:{}", shown(issuer))?;
                if let Some(subject) = subject {
                    write!(f, ":{}", shown(subject))?;
                }
                for (pointer, pattern) in claims {
                    match pattern {
                        ClaimPattern::Exactly(value) => {
                            write!(f, " {}={}", shown(pointer), shown(&value.to_string()))?;
                        }
                        ClaimPattern::NodeId => write!(f, " {}={{node}}", shown(pointer))?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns `true` if each segment of `these` matches everything that the one of `others` in its place matches.
fn covers(these: &[Option<Box<str>>], others: &[Option<Box<str>>]) -> bool {
    these.iter().zip(others).all(|(this, other)| this.is_none() || this == other)
}

/// Returns `true` if there is a text for each pair of segments that matches both.
fn meets(these: &[Option<Box<str>>], others: &[Option<Box<str>>]) -> bool {
    these.iter().zip(others).all(|(this, other)| this.is_none() || other.is_none() || this == other)
}

/// Takes one text of `found` for each segment.
fn capture<'a>(segments: &Segments, found: &mut impl Iterator<Item = &'a str>) -> Option<Captures> {
    let mut captures = Captures::new();
    for segment in segments {
        let text = found.next()?;
        match segment {
            None => captures.push(text.into()),
            Some(expected) if **expected == *text => {}
            Some(_) => return None,
        }
    }
    Some(captures)
}

fn check_length(text: &str) -> Result<(), InvalidPattern> {
    if text.len() > MAX_PATTERN_BYTES {
        return Err(InvalidPattern(format!("a pattern has at most {MAX_PATTERN_BYTES} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_segment_of_a_spiffe_id() {
        let table: [(&str, &str, Option<&[&str]>); 12] = [
            ("spiffe://a.org/ns/*/sa/*", "spiffe://a.org/ns/x/sa/y", Some(&["x", "y"])),
            ("spiffe://a.org/ns/*/sa/*", "spiffe://a.org/ns/x/sa/y/z", None),
            ("spiffe://a.org/ns/*", "spiffe://a.org/ns", None),
            ("spiffe://a.org/ns/*", "spiffe://b.org/ns/x", None),
            ("spiffe://a.org/ns/x", "spiffe://a.org/ns/x", Some(&[])),
            ("spiffe://a.org/ns/x", "spiffe://a.org/ns/X", None),
            ("spiffe://a.org/ns/**", "spiffe://a.org/ns/x/y", Some(&[])),
            ("spiffe://a.org/ns/**", "spiffe://a.org/ns", None),
            ("spiffe://a.org/**", "spiffe://a.org/x", Some(&[])),
            ("spiffe://a.org/**", "spiffe://a.org", None),
            ("spiffe://a.org", "spiffe://a.org", Some(&[])),
            ("spiffe://a.org", "spiffe://a.org/x", None),
        ];
        for (pattern, id, expected) in table {
            let found = SpiffePattern::new(pattern).unwrap().captures(&SpiffeId::new(id).unwrap());
            let expected = expected.map(|texts| texts.iter().map(|text| (*text).into()).collect());
            assert_eq!(found, expected, "{pattern} {id}");
        }
        for wrong in [
            "spiffe://*/x",
            "spiffe://a.org/x*",
            "spiffe://a.org/**/x",
            "spiffe://a.org/",
            "spiffe://A.org/x",
            "a",
        ] {
            let error = SpiffePattern::new(wrong).unwrap_err().to_string();
            assert!(error.contains("write such as spiffe://example.org/"), "{error}");
        }
    }

    #[test]
    fn a_star_is_one_label_of_a_dns_name() {
        let captures = |pattern: &str, name: &str| {
            DnsPattern::new(pattern).unwrap().captures(&DnsName::new(name).unwrap())
        };
        assert_eq!(captures("*.edge.com", "e7.edge.com"), Some(vec!["e7".into()]));
        assert_eq!(captures("*.edge.com", "x.e7.edge.com"), None);
        assert_eq!(captures("*.edge.com", "edge.com"), None);
        assert_eq!(captures("a.edge.com", "A.edge.com"), None);
        for wrong in ["", "a*.b", "**.b", "a.", "\u{fc}.b"] {
            assert!(DnsPattern::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_are_compared_by_what_they_match() {
        let spiffe = |path: &str| {
            SubjectPattern::Spiffe(SpiffePattern::new(&format!("spiffe://a.org{path}")).unwrap())
        };
        let dns = |text: &str| SubjectPattern::Dns(DnsPattern::new(text).unwrap());
        let token = |subject: Option<&str>, claims: &[&str]| {
            let claim =
                |value: &&str| ("/groups".into(), ClaimPattern::Exactly(Scalar::String((*value).to_owned())));
            let claims = claims.iter().map(claim).collect();
            SubjectPattern::Token(TokenPattern {
                issuer: "corp".into(),
                subject: subject.map(Into::into),
                claims,
            })
        };
        let table = [
            // The first covers the second, the second covers the first, a subject may match both.
            (spiffe("/ns/*"), spiffe("/ns/x"), (true, false, true)),
            (spiffe("/ns/x"), spiffe("/ns/y"), (false, false, false)),
            (spiffe("/*/x"), spiffe("/ns/*"), (false, false, true)),
            (spiffe("/**"), spiffe("/ns/*"), (true, false, true)),
            (spiffe("/**"), spiffe(""), (false, false, false)),
            (spiffe("/ns/**"), spiffe("/ns"), (false, false, false)),
            (spiffe("/ns/**"), spiffe("/*/x"), (false, false, true)),
            (spiffe("/ns/**"), spiffe("/ns/a/**"), (true, false, true)),
            (spiffe("/ns/**"), spiffe("/other/**"), (false, false, false)),
            (spiffe("/*/**"), spiffe("/x/y/z"), (true, false, true)),
            (spiffe("/x"), spiffe("/x"), (true, true, true)),
            (dns("*.a.com"), dns("x.a.com"), (true, false, true)),
            (dns("*.a.com"), dns("x.*.com"), (false, false, true)),
            (dns("*.a.com"), dns("a.com"), (false, false, false)),
            (token(None, &["a"]), token(None, &["a", "b"]), (true, false, true)),
            (token(None, &["a"]), token(Some("ada"), &["b"]), (false, false, true)),
            (token(Some("ada"), &[]), token(Some("bob"), &[]), (false, false, false)),
            (dns("*.a.com"), spiffe("/x"), (false, false, false)),
        ];
        for (one, other, expected) in table {
            let found = (one.covers(&other), other.covers(&one), one.meets(&other));
            assert_eq!(found, expected, "{one} {other}");
            assert_eq!(one.meets(&other), other.meets(&one), "{one} {other}");
        }
        assert_eq!(token(Some("ada"), &["a"]).to_string(), "jwt:corp:ada /groups=a");
        assert_eq!(dns("*.a.com").to_string(), "dns:*.a.com");
    }

    #[test]
    fn a_token_matches_if_it_has_every_claim() {
        let mut token = Token { issuer: "cluster".into(), subject: "sa".into(), ..Token::default() };
        token.claims.insert("/pod/name", Scalar::String("n1".to_owned()));
        token.claims.insert("/groups", Scalar::String("a".to_owned()));
        token.claims.insert("/groups", Scalar::String("b".to_owned()));
        let pattern = |subject: Option<&str>, claims: Vec<(&str, ClaimPattern)>| TokenPattern {
            issuer: "cluster".into(),
            subject: subject.map(Into::into),
            claims: claims.into_iter().map(|(pointer, pattern)| (pointer.into(), pattern)).collect(),
        };
        let text = |text: &str| ClaimPattern::Exactly(Scalar::String(text.to_owned()));
        for (pattern, is_match) in [
            (pattern(None, vec![]), true),
            (pattern(Some("sa"), vec![("/groups", text("b"))]), true),
            (pattern(Some("sa"), vec![("/groups", text("b")), ("/groups", text("c"))]), false),
            (pattern(Some("sb"), vec![]), false),
            (pattern(None, vec![("/absent", text(""))]), false),
            (pattern(None, vec![("/pod/name", ClaimPattern::NodeId)]), true),
            (pattern(None, vec![("/absent", ClaimPattern::NodeId)]), false),
            (TokenPattern { issuer: "other".into(), ..pattern(None, vec![]) }, false),
        ] {
            assert_eq!(pattern.matches(&token, Some("n1")), is_match, "{pattern:?}");
        }
        let node = pattern(None, vec![("/pod/name", ClaimPattern::NodeId)]);
        assert!(!node.matches(&token, Some("n2")) && !node.matches(&token, None));
        assert!(node.without_node().matches(&token, None));
    }
}
