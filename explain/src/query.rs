//! Conditions on the query of a path (XR14).

use envoy_types::pb::envoy::config::route::v3::QueryParameterMatcher;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;

use crate::semantics::Semantics;
use crate::text::Text;
use crate::truth::Truth;

/// A condition on a parameter of the query.
#[derive(Debug)]
pub(crate) struct QueryCondition {
    pub(crate) name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text(Text),
    Present(bool),
}

impl QueryCondition {
    pub(crate) fn of(matcher: &QueryParameterMatcher, semantics: Semantics) -> Self {
        let kind = match &matcher.query_parameter_match_specifier {
            Some(QueryParameterMatchSpecifier::StringMatch(text)) => Kind::Text(Text::of(text, semantics)),
            Some(QueryParameterMatchSpecifier::PresentMatch(present)) => Kind::Present(*present),
            None => Kind::Present(true),
        };
        Self { name: matcher.name.clone(), kind }
    }

    pub(crate) fn matches(&self, path: &str) -> Truth {
        let value = value(path, &self.name);
        match &self.kind {
            Kind::Text(text) => value.map_or(Truth::No, |value| text.matches(value)),
            Kind::Present(wanted) => (value.is_some() == *wanted).into(),
        }
    }

    /// The condition on a text, if it is one.
    pub(crate) fn text(&self) -> Option<&Text> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Present(_) => None,
        }
    }

    pub(crate) fn wanted(&self) -> String {
        match &self.kind {
            Kind::Text(text) => text.describe(),
            Kind::Present(true) => "present".to_owned(),
            Kind::Present(false) => "absent".to_owned(),
        }
    }
}

/// The first value of a parameter, as it is written.
pub(crate) fn value<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let (_, query) = path.split_once('?')?;
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r14_the_first_of_equal_names_counts_and_nothing_is_decoded() {
        for (path, expected) in [
            ("/", None),
            ("/?a=1", Some("1")),
            ("/?a=1&a=2", Some("1")),
            ("/?b=1;a=2", None),
            ("/?a", Some("")),
            ("/?a=1=2", Some("1=2")),
            ("/?a=%41", Some("%41")),
            ("/?A=1", None),
            ("/?b?a=1", None),
            ("/?x=1?&a=3", Some("3")),
        ] {
            assert_eq!(value(path, "a"), expected, "{path}");
        }
    }
}
