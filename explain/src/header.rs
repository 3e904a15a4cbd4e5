//! Conditions on headers (XR7–XR13).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::HeaderMatcher;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;

use crate::request::Request;
use crate::semantics::{Difference, Semantics};
use crate::text::{Fold, Text};
use crate::truth::Truth;

/// The headers of a request as a client's conditions see them (XR7).
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// By name in lower case.
    values: BTreeMap<String, Vec<String>>,
}

impl Seen {
    pub(crate) fn of(request: &Request, semantics: Semantics) -> Self {
        let mut seen = Self::default();
        let is_proxy = semantics.has(Difference::SeesPseudoHeaders);
        for (name, value) in &request.headers {
            let name = name.to_ascii_lowercase();
            let is_seen = match &*name {
                "host" if is_proxy => false,
                "content-type" => semantics.has(Difference::SeesContentType),
                "grpc-timeout" => semantics.has(Difference::SeesTimeoutHeader),
                "user-agent" | "te" | "host" => is_proxy,
                name if name.ends_with("-bin") => semantics.has(Difference::SeesBinaryHeaders),
                _ => true,
            };
            if is_seen {
                seen.values.entry(name).or_default().push(value.trim_matches([' ', '\t']).to_owned());
            }
        }
        if is_proxy {
            let pseudo = [
                (":authority", &request.authority),
                (":method", &request.method),
                (":path", &request.path),
                (":scheme", &request.scheme),
            ];
            for (name, value) in pseudo {
                seen.set(name, value);
            }
        } else {
            if semantics.has(Difference::SeesContentType) {
                seen.set("content-type", "application/grpc");
            }
            if semantics.has(Difference::SeesPathHeader) {
                seen.set(":path", &request.path);
            }
        }
        seen
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), vec![value.to_owned()]);
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.values.remove(name).is_some()
    }

    /// All headers, by name in lower case.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        self.values.iter()
    }

    /// The headers of these names and values, as they are.
    pub(crate) fn of_all(values: BTreeMap<String, Vec<String>>) -> Self {
        Self { values }
    }

    /// The values of a header; none if it is absent. The name is in lower case.
    pub(crate) fn get(&self, name: &str) -> &[String] {
        let name = if name == "host" { ":authority" } else { name };
        self.values.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A condition on a header.
#[derive(Debug)]
pub(crate) struct HeaderCondition {
    /// As written.
    name: String,
    /// In lower case.
    key: String,
    kind: Kind,
    inverts: bool,
    missing_is_empty: bool,
    semantics: Semantics,
}

#[derive(Debug)]
enum Kind {
    Text(Text),
    Range { start: i64, end: i64 },
    Present(bool),
}

impl HeaderCondition {
    #[expect(deprecated, reason = "clients take the old fields all the same")]
    pub(crate) fn of(matcher: &HeaderMatcher, semantics: Semantics) -> Self {
        let kind = match &matcher.header_match_specifier {
            Some(HeaderMatchSpecifier::ExactMatch(text)) if text.is_empty() => {
                match semantics.has(Difference::EmptyExactTakesAll) {
                    true => Kind::Text(Text::prefix("", Fold::Nothing)),
                    false => Kind::Text(Text::exact("", Fold::Nothing)),
                }
            }
            Some(HeaderMatchSpecifier::ExactMatch(text)) => Kind::Text(Text::exact(text, Fold::Nothing)),
            Some(HeaderMatchSpecifier::PrefixMatch(text)) => Kind::Text(Text::prefix(text, Fold::Nothing)),
            Some(HeaderMatchSpecifier::SuffixMatch(text)) => Kind::Text(Text::suffix(text)),
            Some(HeaderMatchSpecifier::ContainsMatch(text)) => Kind::Text(Text::contains(text)),
            Some(HeaderMatchSpecifier::SafeRegexMatch(regex)) => {
                Kind::Text(Text::regex(&regex.regex, semantics))
            }
            Some(HeaderMatchSpecifier::StringMatch(matcher)) => Kind::Text(Text::of(matcher, semantics)),
            Some(HeaderMatchSpecifier::RangeMatch(range)) => {
                Kind::Range { start: range.start, end: range.end }
            }
            Some(HeaderMatchSpecifier::PresentMatch(present)) => Kind::Present(*present),
            None => Kind::Present(true),
        };
        Self {
            name: matcher.name.clone(),
            key: matcher.name.to_ascii_lowercase(),
            kind,
            inverts: matcher.invert_match,
            missing_is_empty: matcher.treat_missing_header_as_empty
                && semantics.has(Difference::MissingCountsAsEmpty),
            semantics,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name in lower case.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The condition on a text, if it is one.
    pub(crate) fn text(&self) -> Option<&Text> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Range { .. } | Kind::Present(_) => None,
        }
    }

    /// The limits of a range, if it is one.
    pub(crate) fn range(&self) -> Option<(i64, i64)> {
        match self.kind {
            Kind::Range { start, end } => Some((start, end)),
            Kind::Text(_) | Kind::Present(_) => None,
        }
    }

    pub(crate) fn matches(&self, seen: &Seen) -> Truth {
        let cannot = self.key != self.name && self.semantics.has(Difference::CapitalsNeverMatch);
        let values = if cannot { &[] } else { seen.get(&self.key) };
        if let Kind::Present(wanted) = self.kind {
            return Truth::from(self.is_present(values, wanted)).not_if(self.inverts);
        }
        if values.is_empty() {
            if self.missing_is_empty {
                return self.matches_value("").not_if(self.inverts);
            }
            return (self.inverts && self.semantics.has(Difference::AbsentMatchesInverted)).into();
        }
        let outcome = if self.semantics.has(Difference::ValuesMatchSingly) {
            Truth::any(values.iter().map(|value| self.matches_value(value)))
        } else {
            self.matches_value(&joined(values))
        };
        outcome.not_if(self.inverts)
    }

    fn is_present(&self, values: &[String], wanted: bool) -> bool {
        let is_present = match values {
            [] => self.missing_is_empty,
            values => !self.semantics.has(Difference::PresentNeedsValue) || !joined(values).is_empty(),
        };
        match self.semantics.has(Difference::PresentIgnoresValue) {
            true => is_present,
            false => is_present == wanted,
        }
    }

    /// If one value fits, inversion apart.
    pub(crate) fn matches_value(&self, value: &str) -> Truth {
        match &self.kind {
            Kind::Text(text) => text.matches(value),
            Kind::Range { start, end } => {
                let number = integer(value, self.semantics);
                number.is_some_and(|number| (*start..*end).contains(&number)).into()
            }
            Kind::Present(wanted) => (*wanted).into(),
        }
    }

    /// The condition in words: `"on"`, `not prefix "a"`, `present`.
    pub(crate) fn wanted(&self) -> String {
        let text = match &self.kind {
            Kind::Text(text) => text.describe(),
            Kind::Range { start, end } => format!("a number from {start} to below {end}"),
            Kind::Present(true) => "present".to_owned(),
            Kind::Present(false) => "absent".to_owned(),
        };
        if self.inverts { format!("not {text}") } else { text }
    }

    /// The rule that a failure is most likely about.
    pub(crate) fn rule(&self, seen: &Seen) -> &'static str {
        match self.kind {
            _ if self.key != self.name && self.semantics.has(Difference::CapitalsNeverMatch) => "XR8",
            Kind::Present(_) => "XR11",
            Kind::Text(_) | Kind::Range { .. } if seen.get(&self.key).is_empty() => "XR10",
            Kind::Range { .. } => "XR12",
            Kind::Text(_) => "XR9",
        }
    }

    /// What the client sees of the header; `None` if it is absent. Credentials are not shown.
    pub(crate) fn got(&self, seen: &Seen) -> Option<String> {
        let values = seen.get(&self.key);
        match values {
            [] => None,
            _ if is_secret(&self.key) => Some("…".to_owned()),
            values => Some(joined(values).into_owned()),
        }
    }
}

/// A condition of a tree of matchers on a header (XR18). An absent header fulfils only an inverted one.
#[derive(Debug)]
pub(crate) struct Joined {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) text: Arc<Text>,
    pub(crate) inverts: bool,
}

impl Joined {
    pub(crate) fn matches(&self, seen: &Seen) -> Truth {
        let truth = match seen.get(&self.name) {
            [] => Truth::No,
            values => self.text.matches(&joined(values)),
        };
        truth.not_if(self.inverts)
    }

    /// The condition in words, by which it is told from others.
    pub(crate) fn wanted(&self) -> String {
        if self.inverts { format!("not {}", self.text.describe()) } else { self.text.describe() }
    }
}

/// Several values as one (XR9).
fn joined(values: &[String]) -> Cow<'_, str> {
    match values {
        [one] => Cow::Borrowed(one),
        values => Cow::Owned(values.join(",")),
    }
}

/// A whole value as a number of 64 bits (XR12).
fn integer(value: &str, semantics: Semantics) -> Option<i64> {
    let value = match semantics.has(Difference::RangeTakesBlanks) {
        true => value.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']),
        false => value,
    };
    if value.starts_with('+') && !semantics.has(Difference::RangeTakesPlus) {
        return None;
    }
    value.parse().ok()
}

/// Returns `true` for headers with credentials, of which no answer shows a value.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"].contains(&&*name)
        || ["token", "secret", "password"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher;
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
    use envoy_types::pb::envoy::r#type::v3::Int64Range;

    use super::*;
    use crate::client::{Client, Language};

    const ALL: [Language; 4] = [Language::Envoy, Language::CCore, Language::Go, Language::Js];

    /// Which of Envoy, C-core, Go and JS take the request.
    fn takers(matcher: &HeaderMatcher, headers: &[(&str, &str)]) -> [bool; 4] {
        ALL.map(|language| takes(Client::newest(language), matcher, headers))
    }

    fn takes(client: Client, matcher: &HeaderMatcher, headers: &[(&str, &str)]) -> bool {
        let semantics = Semantics::of(client);
        let request =
            headers.iter().fold(Request::get("a.test", "/s/m"), |all, (name, value)| all.with(name, value));
        HeaderCondition::of(matcher, semantics).matches(&Seen::of(&request, semantics)) == Truth::Yes
    }

    fn header(name: &str, kind: HeaderMatchSpecifier) -> HeaderMatcher {
        HeaderMatcher {
            name: name.to_owned(),
            header_match_specifier: Some(kind),
            ..HeaderMatcher::default()
        }
    }

    fn exact(name: &str, text: &str) -> HeaderMatcher {
        let match_pattern = Some(MatchPattern::Exact(text.to_owned()));
        header(name, HeaderMatchSpecifier::StringMatch(StringMatcher { match_pattern, ignore_case: false }))
    }

    fn present(name: &str, wanted: bool) -> HeaderMatcher {
        header(name, HeaderMatchSpecifier::PresentMatch(wanted))
    }

    fn not(matcher: HeaderMatcher) -> HeaderMatcher {
        HeaderMatcher { invert_match: true, ..matcher }
    }

    fn or_empty(matcher: HeaderMatcher) -> HeaderMatcher {
        HeaderMatcher { treat_missing_header_as_empty: true, ..matcher }
    }

    #[test]
    fn r7_each_client_sees_other_headers() {
        let of = |name: &str, value: &str, sent: &[(&str, &str)]| takers(&exact(name, value), sent);
        assert_eq!(of(":path", "/s/m", &[]), [true, true, false, false]);
        assert_eq!(of(":method", "GET", &[]), [true, false, false, false]);
        assert_eq!(of(":authority", "a.test", &[]), [true, false, false, false]);
        assert_eq!(of("host", "a.test", &[]), [true, false, false, false]);
        assert_eq!(of("content-type", "application/grpc", &[]), [false, true, false, true]);
        assert_eq!(of("content-type", "text/a", &[("content-type", "text/a")]), [true, false, false, false]);
        assert_eq!(of("user-agent", "a", &[("user-agent", "a")]), [true, false, false, false]);
        assert_eq!(of("a-bin", "AA", &[("a-bin", "AA")]), [true, false, true, false]);
        assert_eq!(of("grpc-timeout", "1S", &[("grpc-timeout", "1S")]), [true, true, false, false]);
        assert_eq!(of("x", "1", &[("x", "1")]), [true; 4]);
    }

    #[test]
    fn r8_capitals_in_a_matcher_are_folded_or_match_nothing() {
        assert_eq!(takers(&exact("X-A", "1"), &[("x-a", "1")]), [true, false, true, true]);
        assert_eq!(takers(&exact("x-a", "1"), &[("X-A", "1")]), [true; 4]);
    }

    #[test]
    fn r9_several_values_are_joined_or_match_singly() {
        let sent = [("x", "1"), ("x", "2")];
        assert_eq!(takers(&exact("x", "2"), &sent), [true, false, false, false]);
        assert_eq!(takers(&exact("x", "1,2"), &sent), [false, true, true, true]);
        assert_eq!(takers(&not(exact("x", "2")), &sent), [false, true, true, true]);
        let older = Client { language: Language::Envoy, version: (1, 38) };
        assert!(!takes(older, &exact("x", "2"), &sent) && takes(older, &exact("x", "1,2"), &sent));
    }

    #[test]
    fn r10_an_absent_header_matches_nothing() {
        assert_eq!(takers(&exact("x", "1"), &[]), [false; 4]);
        assert_eq!(takers(&not(exact("x", "1")), &[]), [false, false, false, true]);
        assert_eq!(takers(&or_empty(exact("x", "")), &[]), [true, false, false, false]);
        assert_eq!(takers(&or_empty(not(exact("x", "1"))), &[]), [true, false, false, true]);
    }

    #[test]
    fn r11_presence() {
        assert_eq!(takers(&present("x", true), &[("x", "")]), [true, true, false, true]);
        assert_eq!(takers(&present("x", true), &[("x", "1")]), [true; 4]);
        assert_eq!(takers(&present("x", false), &[("x", "1")]), [false, false, false, true]);
        assert_eq!(takers(&present("x", false), &[]), [true, true, true, false]);
        assert_eq!(takers(&not(present("x", true)), &[]), [true; 4]);
        assert_eq!(takers(&or_empty(present("x", true)), &[]), [true, false, false, false]);
        let bare = HeaderMatcher { name: "x".to_owned(), ..HeaderMatcher::default() };
        assert!(takes(Client::newest(Language::Envoy), &bare, &[("x", "1")]));
    }

    #[test]
    fn r12_ranges_take_whole_numbers() {
        let range = header("x", HeaderMatchSpecifier::RangeMatch(Int64Range { start: -1, end: 10 }));
        for (value, expected) in [
            ("5", [true; 4]),
            ("-1", [true; 4]),
            ("10", [false; 4]),
            ("5a", [false; 4]),
            ("5.0", [false; 4]),
            ("99999999999999999999", [false; 4]),
            ("+5", [true, true, true, false]),
        ] {
            assert_eq!(takers(&range, &[("x", value)]), expected, "{value}");
        }
    }

    #[test]
    #[expect(deprecated, reason = "clients take the old fields all the same")]
    fn r13_an_old_empty_exact_match_takes_any_value() {
        let empty = header("x", HeaderMatchSpecifier::ExactMatch(String::new()));
        assert_eq!(takers(&empty, &[("x", "1")]), [true, false, false, false]);
        assert_eq!(takers(&empty, &[("x", "")]), [true; 4]);
    }

    #[test]
    fn values_of_credentials_are_not_shown() {
        let request = Request::get("a", "/").with("Authorization", "Bearer x").with("x", "1");
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let seen = Seen::of(&request, semantics);
        let got = |name: &str| HeaderCondition::of(&exact(name, "2"), semantics).got(&seen);
        assert_eq!(got("authorization").as_deref(), Some("…"));
        assert_eq!((got("x").as_deref(), got("y")), (Some("1"), None));
    }

    #[test]
    fn r16_a_grpc_request_is_known_by_its_content_type() {
        let is_grpc = |value: &str| {
            let request = Request::get("a", "/").with("content-type", value);
            crate::route::is_grpc(&Seen::of(&request, Semantics::of(Client::newest(Language::Envoy))))
        };
        let values =
            ["application/grpc", "application/grpc+proto", "application/grpc-web", "application/grpcx"];
        assert_eq!(values.map(is_grpc), [true, true, false, false]);
    }
}
