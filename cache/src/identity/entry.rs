//! Entries of `identities`: proofs that grant a group, and the node IDs that they may claim.

use std::fmt::{self, Write as _};

use super::{Captures, InvalidPattern, Proof, SubjectPattern, shown};
use crate::glob::Glob;

/// An entry of `identities`: every pattern must match a proof, and the node's ID must match one of `nodeIds`, if there are any.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    subjects: Vec<SubjectPattern>,
    node_ids: Vec<NodeIdPattern>,
}

/// A glob of node IDs in which `{1}` is the text that the first `*` of the entry stood for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdPattern {
    text: Box<str>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A piece of the glob.
    Glob(Box<str>),
    /// A captured text, counted from 0.
    Capture(usize),
}

/// How an entry and a client stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdentityMatch {
    /// The client did not prove what the entry asks for.
    Other,
    /// The client proved it, but must not claim this node ID.
    OtherNodeId,
    /// The entry grants.
    Granted,
}

/// An entry that could not grant what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentity {
    /// It has no pattern.
    #[error("an entry needs at least one of `spiffe`, `dns`, `cn` and `jwt`")]
    Nothing,
    /// A node ID refers to a `*` that is not there.
    #[error("{node_id:?} refers to `*` number {index}, and the patterns of the entry have {n_captures}")]
    NoCapture {
        /// The pattern of node IDs.
        node_id: String,
        /// The number in braces.
        index: usize,
        /// The number of `*` in the patterns.
        n_captures: usize,
    },
}

impl NodeIdPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// [`InvalidPattern`] if something else than a number from 1 on is in braces.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = || {
            InvalidPattern(format!(
                "{:?}: in braces is the number of a `*` of the entry, such as {{1}}; write \\{{ for a brace",
                shown(text)
            ))
        };
        let (mut parts, mut glob) = (Vec::new(), String::new());
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => {
                    glob.push(character);
                    glob.extend(characters.next());
                }
                '{' => {
                    let (number, rest) = characters.as_str().split_once('}').ok_or_else(invalid)?;
                    let is_number =
                        (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
                    let number = number.parse::<usize>().ok().filter(|number| is_number && *number > 0);
                    parts.push(Part::Glob(std::mem::take(&mut glob).into()));
                    parts.push(Part::Capture(number.ok_or_else(invalid)? - 1));
                    characters = rest.chars();
                }
                other => glob.push(other),
            }
        }
        parts.push(Part::Glob(glob.into()));
        Ok(Self { text: text.into(), parts })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn matches(&self, captures: &Captures, node_id: &str) -> bool {
        let mut glob = String::new();
        for part in &self.parts {
            match part {
                Part::Glob(piece) => glob.push_str(piece),
                Part::Capture(index) => {
                    let Some(text) = captures.get(*index) else { return false };
                    // An escape for each character: none of them is a pattern.
                    text.chars().try_for_each(|character| write!(glob, "\\{character}")).unwrap_or_default();
                }
            }
        }
        Glob::new(&glob).matches(node_id)
    }

    fn last_capture(&self) -> Option<usize> {
        let capture = |part: &Part| if let Part::Capture(index) = part { Some(*index) } else { None };
        self.parts.iter().filter_map(capture).max()
    }
}

impl Identity {
    /// Puts an entry together. `{1}` counts the `*` of all `subjects` in order.
    ///
    /// # Errors
    ///
    /// [`InvalidIdentity`] if it has no subject, or a node ID refers to a `*` that is not there.
    pub fn new(subjects: Vec<SubjectPattern>, node_ids: Vec<NodeIdPattern>) -> Result<Self, InvalidIdentity> {
        if subjects.is_empty() {
            return Err(InvalidIdentity::Nothing);
        }
        let n_captures = subjects.iter().map(SubjectPattern::n_captures).sum();
        for node_id in &node_ids {
            if let Some(index) = node_id.last_capture().filter(|index| *index >= n_captures) {
                let node_id = shown(&node_id.text);
                return Err(InvalidIdentity::NoCapture { node_id, index: index + 1, n_captures });
            }
        }
        Ok(Self { subjects, node_ids })
    }

    /// The patterns of subjects, at least one.
    #[must_use]
    pub fn subjects(&self) -> &[SubjectPattern] {
        &self.subjects
    }

    /// The node IDs that may be claimed; any, if it is empty.
    #[must_use]
    pub fn node_ids(&self) -> &[NodeIdPattern] {
        &self.node_ids
    }

    /// Compares the entry with what a client proved and the node ID that it claims.
    #[must_use]
    pub fn judge(&self, proofs: &[Proof], node_id: &str) -> IdentityMatch {
        // The texts that `*` may stand for: names of one certificate can match in several ways.
        let mut ways = vec![Captures::new()];
        let mut is_of_node = true;
        for subject in &self.subjects {
            let (found, is_of_this) = captures(subject, proofs, node_id);
            is_of_node &= is_of_this;
            let pairs = ways.iter().flat_map(|before| found.iter().map(move |after| (before, after)));
            ways = pairs.map(|(before, after)| [&**before, &**after].concat()).take(MAX_WAYS).collect();
        }
        if ways.is_empty() {
            return IdentityMatch::Other;
        }
        let is_allowed = |captures: &Captures| {
            self.node_ids.is_empty() || self.node_ids.iter().any(|pattern| pattern.matches(captures, node_id))
        };
        if is_of_node && ways.iter().any(is_allowed) {
            IdentityMatch::Granted
        } else {
            IdentityMatch::OtherNodeId
        }
    }
}

/// The patterns, and the node IDs if there are any: `dns:*.a.com with the node id {1}`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, subject) in self.subjects.iter().enumerate() {
            write!(f, "{}{subject}", if index == 0 { "" } else { " and " })?;
        }
        for (index, node_id) in self.node_ids.iter().enumerate() {
            let before = if index == 0 { " with the node id " } else { " or " };
            write!(f, "{before}{}", shown(&node_id.text))?;
        }
        Ok(())
    }
}

/// The ways in which proofs match `subject`, and `false` if none of them is for this node ID.
fn captures(subject: &SubjectPattern, proofs: &[Proof], node_id: &str) -> (Vec<Captures>, bool) {
    let all = |subject: &SubjectPattern| -> Vec<Captures> {
        proofs.iter().filter_map(|proof| subject.captures(&proof.subject, Some(node_id))).collect()
    };
    let found = all(subject);
    if let (SubjectPattern::Token(pattern), true) = (subject, found.is_empty()) {
        return (all(&SubjectPattern::Token(pattern.without_node())), false);
    }
    (found, true)
}

/// A certificate with more matching names than this proves the first ones only.
const MAX_WAYS: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::identity::{
        ClaimPattern, DnsName, DnsPattern, SpiffeId, SpiffePattern, Subject, Token, TokenPattern,
    };
    use crate::node::Scalar;

    fn proof(subject: Subject) -> Proof {
        Proof { subject, expires: None, certificate: None }
    }

    fn spiffe(id: &str) -> Proof {
        proof(Subject::Spiffe(SpiffeId::new(id).unwrap()))
    }

    fn dns(name: &str) -> Proof {
        proof(Subject::Dns(DnsName::new(name).unwrap()))
    }

    fn entry(subjects: Vec<SubjectPattern>, node_ids: &[&str]) -> Identity {
        let node_ids = node_ids.iter().map(|text| NodeIdPattern::new(text).unwrap()).collect();
        Identity::new(subjects, node_ids).unwrap()
    }

    fn spiffe_pattern(text: &str) -> SubjectPattern {
        SubjectPattern::Spiffe(SpiffePattern::new(text).unwrap())
    }

    fn dns_pattern(text: &str) -> SubjectPattern {
        SubjectPattern::Dns(DnsPattern::new(text).unwrap())
    }

    #[test]
    fn the_node_id_must_be_that_of_the_identity() {
        use IdentityMatch::{Granted, Other, OtherNodeId};
        let bound = entry(vec![spiffe_pattern("spiffe://a.org/node/*")], &["{1}", "{1}-*"]);
        for (id, node_id, expected) in [
            ("spiffe://a.org/node/e7", "e7", Granted),
            ("spiffe://a.org/node/e7", "e7-x", Granted),
            ("spiffe://a.org/node/e7", "e8", OtherNodeId),
            ("spiffe://a.org/node/e7", "e77", OtherNodeId),
            ("spiffe://a.org/node/e7", "", OtherNodeId),
            ("spiffe://a.org/other/e7", "e7", Other),
        ] {
            assert_eq!(bound.judge(&[spiffe(id)], node_id), expected, "{id} {node_id}");
        }
        assert_eq!(bound.judge(&[], "e7"), Other);
        let unbound = entry(vec![spiffe_pattern("spiffe://a.org/node/*")], &[]);
        assert_eq!(unbound.judge(&[spiffe("spiffe://a.org/node/e7")], "any"), Granted);
    }

    #[test]
    fn any_name_of_the_certificate_may_match() {
        let entry = entry(vec![dns_pattern("*.edge.com")], &["{1}"]);
        let proofs = [dns("e1.edge.com"), dns("other.com"), dns("e2.edge.com")];
        assert_eq!(entry.judge(&proofs, "e2"), IdentityMatch::Granted);
        assert_eq!(entry.judge(&proofs, "other"), IdentityMatch::OtherNodeId);
    }

    #[test]
    fn the_patterns_of_an_entry_are_anded() {
        let both = entry(vec![spiffe_pattern("spiffe://a.org/*"), dns_pattern("*.com")], &["{1}.{2}"]);
        let (one, two) = (spiffe("spiffe://a.org/x"), dns("y.com"));
        assert_eq!(both.judge(&[one.clone(), two.clone()], "x.y"), IdentityMatch::Granted);
        assert_eq!(both.judge(&[one.clone(), two.clone()], "x.z"), IdentityMatch::OtherNodeId);
        assert_eq!(both.judge(&[one], "x.y"), IdentityMatch::Other);
        assert_eq!(both.judge(&[two], "x.y"), IdentityMatch::Other);
    }

    #[test]
    fn a_claim_may_have_to_be_the_node_id() {
        let pattern = TokenPattern {
            issuer: "cluster".into(),
            subject: None,
            claims: vec![("/pod".into(), ClaimPattern::NodeId)],
        };
        let entry = entry(vec![SubjectPattern::Token(pattern)], &[]);
        let mut token = Token { issuer: "cluster".into(), ..Token::default() };
        token.claims.insert("/pod", Scalar::String("n1".to_owned()));
        let proofs = [proof(Subject::Token(Arc::new(token)))];
        assert_eq!(entry.judge(&proofs, "n1"), IdentityMatch::Granted);
        assert_eq!(entry.judge(&proofs, "n2"), IdentityMatch::OtherNodeId);
    }

    #[test]
    fn braces_refer_to_stars_that_exist() {
        for wrong in ["{", "{}", "{0}", "{a}", "{-1}", "{+1}", "{100}"] {
            let error = NodeIdPattern::new(wrong).unwrap_err().to_string();
            assert!(error.contains("such as {1}"), "{error}");
        }
        let ids = |text: &str| vec![NodeIdPattern::new(text).unwrap()];
        let error = Identity::new(vec![spiffe_pattern("spiffe://a.org/*")], ids("{2}")).unwrap_err();
        assert_eq!(error.to_string(), "\"{2}\" refers to `*` number 2, and the patterns of the entry have 1");
        assert_eq!(Identity::new(vec![], vec![]), Err(InvalidIdentity::Nothing));
        let literal = entry(vec![spiffe_pattern("spiffe://a.org/*")], &["\\{1}"]);
        assert_eq!(literal.judge(&[spiffe("spiffe://a.org/x")], "{1}"), IdentityMatch::Granted);
    }

    #[test]
    fn a_captured_text_is_no_pattern() {
        let captures: Captures = vec!["*".into()];
        assert!(!NodeIdPattern::new("{1}").unwrap().matches(&captures, "anything"));
        assert!(NodeIdPattern::new("{1}").unwrap().matches(&captures, "*"));
    }
}
