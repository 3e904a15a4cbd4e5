//! Conditions on what filters know of a request: dynamic metadata and filter state (XR17).

use std::fmt;

use envoy_types::pb::envoy::r#type::matcher::v3::double_matcher::MatchPattern as DoublePattern;
use envoy_types::pb::envoy::r#type::matcher::v3::filter_state_matcher::Matcher;
use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use envoy_types::pb::envoy::r#type::matcher::v3::value_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{FilterStateMatcher, MetadataMatcher, ValueMatcher};

use crate::request::Request;
use crate::semantics::Semantics;
use crate::text::Text;
use crate::truth::Truth;

/// A condition on dynamic metadata or filter state. It is unknown unless the request says what is there.
#[derive(Debug)]
pub(crate) struct Context {
    source: Source,
    /// `FILTER.KEY.KEY`, or the key of the filter state.
    key: String,
    /// `None` for a matcher that is not modelled.
    wanted: Option<Wanted>,
    inverts: bool,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Metadata,
    FilterState,
}

/// A condition on a value that is written as a text.
#[derive(Debug)]
enum Wanted {
    Text(Text),
    Number { from: f64, to: f64 },
    Exactly(f64),
    Flag(bool),
    Present(bool),
    Null,
    Any(Vec<Self>),
}

impl Context {
    pub(crate) fn of_metadata(matcher: &MetadataMatcher, semantics: Semantics) -> Self {
        let keys = matcher.path.iter().filter_map(|step| step.segment.as_ref());
        let keys = keys.map(|Segment::Key(key)| key.as_str());
        let path: Vec<&str> = [&*matcher.filter].into_iter().chain(keys).collect();
        let wanted = matcher.value.as_ref().and_then(|value| Wanted::of(value, semantics));
        Self { source: Source::Metadata, key: path.join("."), wanted, inverts: matcher.invert }
    }

    pub(crate) fn of_filter_state(matcher: &FilterStateMatcher, semantics: Semantics) -> Self {
        let wanted = match &matcher.matcher {
            Some(Matcher::StringMatch(text)) => Some(Wanted::Text(Text::of(text, semantics))),
            Some(Matcher::AddressMatch(_)) | None => None,
        };
        Self { source: Source::FilterState, key: matcher.key.clone(), wanted, inverts: false }
    }

    pub(crate) fn matches(&self, request: &Request) -> Truth {
        let truth = match (self.value(request), &self.wanted) {
            (Some(value), Some(wanted)) => wanted.takes(value),
            (None, Some(wanted)) if request.router_check.is_some() && !self.is_object(request) => {
                wanted.takes_nothing().into()
            }
            (None, _) | (_, None) => return Truth::Unknown,
        };
        truth.not_if(self.inverts)
    }

    /// True if the request says something below the key.
    fn is_object(&self, request: &Request) -> bool {
        let below = format!("{}.", self.key);
        request.metadata.range(below.clone()..).next().is_some_and(|(key, _)| key.starts_with(&below))
    }

    /// What the request says of it.
    pub(crate) fn value<'r>(&self, request: &'r Request) -> Option<&'r str> {
        let values = match self.source {
            Source::Metadata => &request.metadata,
            Source::FilterState => &request.filter_state,
        };
        values.get(&self.key).map(String::as_str)
    }

    /// What it wants, in words.
    pub(crate) fn wanted(&self) -> String {
        let wanted = self.wanted.as_ref().map_or_else(|| "a match".to_owned(), Wanted::describe);
        if self.inverts { format!("not {wanted}") } else { wanted }
    }
}

impl fmt::Display for Context {
    /// `dynamic metadata envoy.filters.http.jwt_authn.sub`, `filter state k`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Source::Metadata => write!(f, "dynamic metadata {}", self.key),
            Source::FilterState => write!(f, "filter state {}", self.key),
        }
    }
}

impl Wanted {
    /// Values in lists are not modelled.
    fn of(matcher: &ValueMatcher, semantics: Semantics) -> Option<Self> {
        match matcher.match_pattern.as_ref()? {
            MatchPattern::NullMatch(_) => Some(Self::Null),
            MatchPattern::DoubleMatch(double) => match double.match_pattern.as_ref()? {
                DoublePattern::Range(range) => Some(Self::Number { from: range.start, to: range.end }),
                DoublePattern::Exact(number) => Some(Self::Exactly(*number)),
            },
            MatchPattern::StringMatch(text) => Some(Self::Text(Text::of(text, semantics))),
            MatchPattern::BoolMatch(flag) => Some(Self::Flag(*flag)),
            MatchPattern::PresentMatch(present) => Some(Self::Present(*present)),
            MatchPattern::ListMatch(_) => None,
            MatchPattern::OrMatch(any) => {
                let all = any.value_matchers.iter().map(|one| match one.match_pattern {
                    // One level is enough to be of use, and a deeper one could be as deep as a message.
                    Some(MatchPattern::OrMatch(_)) => None,
                    _ => Self::of(one, semantics),
                });
                all.collect::<Option<Vec<Self>>>().map(Self::Any)
            }
        }
    }

    fn takes(&self, value: &str) -> Truth {
        let number = || value.parse::<f64>().ok();
        match self {
            Self::Text(text) => text.matches(value),
            Self::Number { from, to } => {
                number().is_some_and(|number| *from <= number && number < *to).into()
            }
            Self::Exactly(wanted) => number().is_some_and(|number| number.total_cmp(wanted).is_eq()).into(),
            Self::Flag(flag) => (value == if *flag { "true" } else { "false" }).into(),
            Self::Present(present) => (*present).into(),
            Self::Null => Truth::No,
            Self::Any(all) => {
                let truths: Vec<Truth> = all.iter().map(|one| one.takes(value)).collect();
                match (truths.contains(&Truth::Yes), truths.contains(&Truth::Unknown)) {
                    (true, _) => Truth::Yes,
                    (false, true) => Truth::Unknown,
                    (false, false) => Truth::No,
                }
            }
        }
    }

    /// If it takes an absent value.
    fn takes_nothing(&self) -> bool {
        match self {
            Self::Present(present) => !present,
            Self::Any(all) => all.iter().any(Self::takes_nothing),
            Self::Text(_) | Self::Number { .. } | Self::Exactly(_) | Self::Flag(_) | Self::Null => false,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Text(text) => text.describe(),
            Self::Number { from, to } => format!("a number in [{from},{to})"),
            Self::Exactly(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Present(true) => "present".to_owned(),
            Self::Present(false) => "absent".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Any(all) => all.iter().map(Self::describe).collect::<Vec<_>>().join(" or "),
        }
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::r#type::matcher::v3::metadata_matcher::PathSegment;
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern as StringPattern;
    use envoy_types::pb::envoy::r#type::matcher::v3::{OrMatcher, StringMatcher};

    use super::*;
    use crate::client::{Client, Language};

    #[test]
    fn r17_metadata_and_filter_state_count_if_the_request_says_them() {
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let exact = |text: &str| StringMatcher {
            match_pattern: Some(StringPattern::Exact(text.to_owned())),
            ..StringMatcher::default()
        };
        let value = |pattern| ValueMatcher { match_pattern: Some(pattern) };
        let metadata = |pattern: MatchPattern, invert: bool| {
            let path = vec![PathSegment { segment: Some(Segment::Key("sub".to_owned())) }];
            let matcher =
                MetadataMatcher { filter: "jwt".to_owned(), path, value: Some(value(pattern)), invert };
            Context::of_metadata(&matcher, semantics)
        };
        let state =
            FilterStateMatcher { key: "tier".to_owned(), matcher: Some(Matcher::StringMatch(exact("gold"))) };
        let state = Context::of_filter_state(&state, semantics);
        let silent = Request::get("a", "/");
        let mut request = silent.clone();
        request.metadata.insert("jwt.sub".to_owned(), "7".to_owned());
        request.filter_state.insert("tier".to_owned(), "gold".to_owned());
        let either = OrMatcher {
            value_matchers: vec![
                value(MatchPattern::StringMatch(exact("8"))),
                value(MatchPattern::PresentMatch(true)),
            ],
        };
        let is_exactly = |number| {
            let pattern = Some(DoublePattern::Exact(number));
            MatchPattern::DoubleMatch(envoy_types::pb::envoy::r#type::matcher::v3::DoubleMatcher {
                match_pattern: pattern,
            })
        };
        for (context, expected) in [
            (metadata(MatchPattern::StringMatch(exact("7")), false), Truth::Yes),
            (metadata(MatchPattern::StringMatch(exact("7")), true), Truth::No),
            (metadata(MatchPattern::StringMatch(exact("8")), false), Truth::No),
            (metadata(is_exactly(7.0), false), Truth::Yes),
            (metadata(MatchPattern::BoolMatch(true), false), Truth::No),
            (metadata(MatchPattern::OrMatch(either), false), Truth::Yes),
            (metadata(MatchPattern::ListMatch(Default::default()), false), Truth::Unknown),
            (state, Truth::Yes),
        ] {
            assert_eq!(context.matches(&request), expected, "{context}: {}", context.wanted());
            assert_eq!(context.matches(&silent), Truth::Unknown, "{context}");
        }
    }
}
