//! Node matchers of client status requests (row A198).
//!
//! Anyone who may ask can send matchers, so their number, their depth and what they compile to are limited before
//! anything is compiled.

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::r#type::matcher::v3 as proto;
use envoy_types::pb::envoy::r#type::matcher::v3::double_matcher::MatchPattern as DoublePattern;
use envoy_types::pb::envoy::r#type::matcher::v3::list_matcher::MatchPattern as ListPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern as StringPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::struct_matcher::path_segment::Segment;
use envoy_types::pb::envoy::r#type::matcher::v3::value_matcher::MatchPattern as ValuePattern;
use envoy_types::pb::google::protobuf::Value;
use envoy_types::pb::google::protobuf::value::Kind;
use regex::{Regex, RegexBuilder};

/// Matchers that select nodes. Without a matcher, all nodes are selected.
#[derive(Debug)]
pub(crate) struct NodeMatchers(Vec<NodeMatcher>);

/// A matcher that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MatcherError {
    /// It has no condition.
    #[error("a {0} has no pattern")]
    Empty(&'static str),
    /// The kind is not known.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The regular expression is wrong.
    #[error("invalid regular expression {regex:?}: {reason}")]
    Regex { regex: String, reason: String },
    /// It passes a limit.
    #[error("more than {limit} {what}")]
    Limit {
        /// The name of the limited thing.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// The budget that is left for the matchers of a request.
#[derive(Debug)]
struct Allowance {
    n_parts: usize,
    n_regexes: usize,
}

impl Allowance {
    fn take_part(&mut self) -> Result<(), MatcherError> {
        let limit = MatcherError::Limit { what: "parts of matchers", limit: MAX_PARTS };
        self.n_parts = self.n_parts.checked_sub(1).ok_or(limit)?;
        Ok(())
    }

    fn take_regex(&mut self, regex: &str) -> Result<(), MatcherError> {
        if regex.len() > MAX_REGEX_LENGTH {
            let what = "bytes in a regular expression";
            return Err(MatcherError::Limit { what, limit: MAX_REGEX_LENGTH });
        }
        let limit = MatcherError::Limit { what: "regular expressions", limit: MAX_REGEXES };
        self.n_regexes = self.n_regexes.checked_sub(1).ok_or(limit)?;
        Ok(())
    }
}

#[derive(Debug)]
struct NodeMatcher {
    id: Option<StringMatch>,
    metadata: Vec<StructMatch>,
}

#[derive(Debug)]
struct StructMatch {
    path: Vec<String>,
    value: ValueMatch,
}

#[derive(Debug)]
enum ValueMatch {
    Null,
    Present(bool),
    Bool(bool),
    Exactly(f64),
    Range { start: f64, end: f64 },
    String(StringMatch),
    AnyOfList(Box<Self>),
    Or(Vec<Self>),
}

#[derive(Debug)]
enum StringMatch {
    Exact { text: String, ignore_case: bool },
    Prefix { text: String, ignore_case: bool },
    Suffix { text: String, ignore_case: bool },
    Contains { text: String, ignore_case: bool },
    Regex(Regex),
}

impl NodeMatchers {
    /// Returns `true` if one of the matchers takes `node`.
    pub(crate) fn matches(&self, node: &Node) -> bool {
        self.0.is_empty() || self.0.iter().any(|matcher| matcher.matches(node))
    }
}

impl TryFrom<Vec<proto::NodeMatcher>> for NodeMatchers {
    type Error = MatcherError;

    fn try_from(matchers: Vec<proto::NodeMatcher>) -> Result<Self, MatcherError> {
        let mut allowance = Allowance { n_parts: MAX_PARTS, n_regexes: MAX_REGEXES };
        let matchers = matchers.into_iter().map(|matcher| NodeMatcher::read(matcher, &mut allowance));
        matchers.collect::<Result<_, _>>().map(Self)
    }
}

impl NodeMatcher {
    fn matches(&self, node: &Node) -> bool {
        self.id.as_ref().is_none_or(|id| id.matches(&node.id))
            && self.metadata.iter().all(|metadata| metadata.matches(node))
    }

    fn read(matcher: proto::NodeMatcher, allowance: &mut Allowance) -> Result<Self, MatcherError> {
        allowance.take_part()?;
        let id = matcher.node_id.map(|id| StringMatch::read(id, allowance)).transpose()?;
        let metadata = matcher.node_metadatas.into_iter();
        let metadata = metadata.map(|metadata| StructMatch::read(metadata, allowance));
        Ok(Self { id, metadata: metadata.collect::<Result<_, _>>()? })
    }
}

impl StructMatch {
    fn matches(&self, node: &Node) -> bool {
        let mut fields = node.metadata.as_ref().map(|metadata| &metadata.fields);
        let mut found: Option<&Value> = None;
        for key in &self.path {
            found = fields.and_then(|fields| fields.get(key));
            fields = match found.and_then(|value| value.kind.as_ref()) {
                Some(Kind::StructValue(inner)) => Some(&inner.fields),
                Some(
                    Kind::NullValue(_)
                    | Kind::NumberValue(_)
                    | Kind::StringValue(_)
                    | Kind::BoolValue(_)
                    | Kind::ListValue(_),
                )
                | None => None,
            };
        }
        self.value.matches(found.and_then(|value| value.kind.as_ref()))
    }

    fn read(matcher: proto::StructMatcher, allowance: &mut Allowance) -> Result<Self, MatcherError> {
        let keys = matcher.path.into_iter().map(|segment| {
            allowance.take_part()?;
            match segment.segment {
                Some(Segment::Key(key)) => Ok(key),
                None => Err(MatcherError::Empty("path segment")),
            }
        });
        let path = keys.collect::<Result<_, _>>()?;
        let value = matcher.value.ok_or(MatcherError::Empty("StructMatcher"))?;
        Ok(Self { path, value: ValueMatch::read(value, MAX_DEPTH, allowance)? })
    }
}

impl ValueMatch {
    fn matches(&self, value: Option<&Kind>) -> bool {
        match (self, value) {
            (Self::Present(wanted), value) => value.is_some() == *wanted,
            (Self::Or(matchers), value) => matchers.iter().any(|matcher| matcher.matches(value)),
            (Self::Null, Some(Kind::NullValue(_))) => true,
            (Self::Bool(wanted), Some(Kind::BoolValue(value))) => value == wanted,
            (Self::Exactly(wanted), Some(Kind::NumberValue(value))) => value == wanted,
            (Self::Range { start, end }, Some(Kind::NumberValue(value))) => start <= value && value < end,
            (Self::String(matcher), Some(Kind::StringValue(value))) => matcher.matches(value),
            (Self::AnyOfList(matcher), Some(Kind::ListValue(list))) => {
                list.values.iter().any(|value| matcher.matches(value.kind.as_ref()))
            }
            (
                Self::Null
                | Self::Bool(_)
                | Self::Exactly(_)
                | Self::Range { .. }
                | Self::String(_)
                | Self::AnyOfList(_),
                _,
            ) => false,
        }
    }

    fn read(
        matcher: proto::ValueMatcher,
        depth: usize,
        allowance: &mut Allowance,
    ) -> Result<Self, MatcherError> {
        allowance.take_part()?;
        let limit = MatcherError::Limit { what: "matchers within each other", limit: MAX_DEPTH };
        let depth = depth.checked_sub(1).ok_or(limit)?;
        Ok(match matcher.match_pattern.ok_or(MatcherError::Empty("ValueMatcher"))? {
            ValuePattern::NullMatch(_) => Self::Null,
            ValuePattern::PresentMatch(wanted) => Self::Present(wanted),
            ValuePattern::BoolMatch(wanted) => Self::Bool(wanted),
            ValuePattern::StringMatch(matcher) => Self::String(StringMatch::read(matcher, allowance)?),
            ValuePattern::DoubleMatch(matcher) => match matcher.match_pattern {
                Some(DoublePattern::Exact(value)) => Self::Exactly(value),
                Some(DoublePattern::Range(range)) => Self::Range { start: range.start, end: range.end },
                None => return Err(MatcherError::Empty("DoubleMatcher")),
            },
            ValuePattern::ListMatch(matcher) => match matcher.match_pattern {
                Some(ListPattern::OneOf(matcher)) => {
                    Self::AnyOfList(Box::new(Self::read(*matcher, depth, allowance)?))
                }
                None => return Err(MatcherError::Empty("ListMatcher")),
            },
            ValuePattern::OrMatch(matcher) => {
                let matchers = matcher.value_matchers.into_iter();
                let matchers = matchers.map(|matcher| Self::read(matcher, depth, allowance));
                Self::Or(matchers.collect::<Result<_, _>>()?)
            }
        })
    }
}

impl StringMatch {
    fn matches(&self, value: &str) -> bool {
        let fold = |text: &str, ignore_case: &bool| {
            if *ignore_case { text.to_ascii_lowercase() } else { text.to_owned() }
        };
        match self {
            Self::Exact { text, ignore_case } => fold(value, ignore_case) == *text,
            Self::Prefix { text, ignore_case } => fold(value, ignore_case).starts_with(text),
            Self::Suffix { text, ignore_case } => fold(value, ignore_case).ends_with(text),
            Self::Contains { text, ignore_case } => fold(value, ignore_case).contains(text),
            Self::Regex(regex) => regex.is_match(value),
        }
    }

    /// `ignore_case` has no effect on a regular expression, which has its own syntax for it.
    fn read(matcher: proto::StringMatcher, allowance: &mut Allowance) -> Result<Self, MatcherError> {
        allowance.take_part()?;
        let ignore_case = matcher.ignore_case;
        let fold = |text: String| if ignore_case { text.to_ascii_lowercase() } else { text };
        Ok(match matcher.match_pattern.ok_or(MatcherError::Empty("StringMatcher"))? {
            StringPattern::Exact(text) => Self::Exact { text: fold(text), ignore_case },
            StringPattern::Prefix(text) => Self::Prefix { text: fold(text), ignore_case },
            StringPattern::Suffix(text) => Self::Suffix { text: fold(text), ignore_case },
            StringPattern::Contains(text) => Self::Contains { text: fold(text), ignore_case },
            StringPattern::SafeRegex(matcher) => {
                allowance.take_regex(&matcher.regex)?;
                Self::Regex(whole(&matcher.regex)?)
            }
            StringPattern::Custom(_) => return Err(MatcherError::Unsupported("a custom StringMatcher")),
        })
    }
}

/// A regular expression that must match the whole text.
fn whole(regex: &str) -> Result<Regex, MatcherError> {
    let mut builder = RegexBuilder::new(&format!("^(?:{regex})$"));
    let built = builder.size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => MatcherError::Limit {
            what: "bytes in a compiled regular expression; [0-9A-Za-z_] takes less than \\w, and .* less than .{1,100}",
            limit,
        },
        error @ (regex::Error::Syntax(_) | _) => MatcherError::Regex { regex: regex.to_owned(), reason: error.to_string() },
    })
}

/// The most matchers, path segments and values of a request.
const MAX_PARTS: usize = 500;
/// The deepest nesting of lists and alternatives.
const MAX_DEPTH: usize = 8;
/// The most regular expressions of a request.
const MAX_REGEXES: usize = 16;
/// The longest regular expression, in bytes.
const MAX_REGEX_LENGTH: usize = 1024;
/// The largest compiled expression, and the most memory of one while it matches: 2 MiB each for all of them.
const MAX_REGEX_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::r#type::v3::DoubleRange;
    use envoy_types::pb::google::protobuf::{ListValue, Struct};

    use super::*;

    fn string(pattern: StringPattern, ignore_case: bool) -> proto::StringMatcher {
        proto::StringMatcher { ignore_case, match_pattern: Some(pattern) }
    }

    fn by_id(pattern: StringPattern, ignore_case: bool) -> proto::NodeMatcher {
        proto::NodeMatcher { node_id: Some(string(pattern, ignore_case)), node_metadatas: vec![] }
    }

    fn by_metadata(path: &[&str], pattern: ValuePattern) -> proto::NodeMatcher {
        let segment =
            |key: &&str| proto::struct_matcher::PathSegment { segment: Some(Segment::Key((*key).into())) };
        let matcher = proto::StructMatcher {
            path: path.iter().map(segment).collect(),
            value: Some(proto::ValueMatcher { match_pattern: Some(pattern) }),
        };
        proto::NodeMatcher { node_id: None, node_metadatas: vec![matcher] }
    }

    fn regex(regex: &str) -> StringPattern {
        StringPattern::SafeRegex(proto::RegexMatcher { regex: regex.into(), engine_type: None })
    }

    fn node(id: &str) -> Node {
        let value = |kind| Value { kind: Some(kind) };
        let list = vec![value(Kind::NumberValue(1.0)), value(Kind::StringValue("x".into()))];
        let inner = [
            ("text".to_owned(), value(Kind::StringValue("Blue".into()))),
            ("number".to_owned(), value(Kind::NumberValue(5.0))),
            ("flag".to_owned(), value(Kind::BoolValue(true))),
            ("null".to_owned(), value(Kind::NullValue(0))),
            ("list".to_owned(), value(Kind::ListValue(ListValue { values: list }))),
        ];
        let inner = Struct { fields: inner.into() };
        let fields = [("a".to_owned(), value(Kind::StructValue(inner)))];
        Node { id: id.into(), metadata: Some(Struct { fields: fields.into() }), ..Default::default() }
    }

    fn matches(matchers: Vec<proto::NodeMatcher>, id: &str) -> bool {
        NodeMatchers::try_from(matchers).unwrap().matches(&node(id))
    }

    #[test]
    fn a_node_is_matched_by_its_id() {
        for (pattern, ignore_case, expected) in [
            (StringPattern::Exact("edge-1".into()), false, true),
            (StringPattern::Exact("EDGE-1".into()), false, false),
            (StringPattern::Exact("EDGE-1".into()), true, true),
            (StringPattern::Prefix("edge".into()), false, true),
            (StringPattern::Prefix("dge".into()), false, false),
            (StringPattern::Suffix("-1".into()), false, true),
            (StringPattern::Suffix("edge".into()), false, false),
            (StringPattern::Contains("GE-".into()), true, true),
            (StringPattern::Contains("GE-".into()), false, false),
            (regex("edge-[0-9]"), false, true),
            (regex("edge-|x"), false, false),
            (regex("EDGE-1"), true, false),
        ] {
            let text = format!("{pattern:?} {ignore_case}");
            assert_eq!(matches(vec![by_id(pattern, ignore_case)], "edge-1"), expected, "{text}");
        }
    }

    #[test]
    fn a_node_is_matched_by_its_metadata() {
        let blue = || ValuePattern::StringMatch(string(StringPattern::Prefix("Bl".into()), false));
        let number =
            |pattern| ValuePattern::DoubleMatch(proto::DoubleMatcher { match_pattern: Some(pattern) });
        let range = |start, end| number(DoublePattern::Range(DoubleRange { start, end }));
        let value = |pattern| proto::ValueMatcher { match_pattern: Some(pattern) };
        let one_of = |pattern| {
            let one_of = ListPattern::OneOf(Box::new(value(pattern)));
            ValuePattern::ListMatch(Box::new(proto::ListMatcher { match_pattern: Some(one_of) }))
        };
        let or = |patterns: Vec<ValuePattern>| {
            ValuePattern::OrMatch(proto::OrMatcher {
                value_matchers: patterns.into_iter().map(value).collect(),
            })
        };
        for (path, pattern, expected) in [
            (["a", "text"], blue(), true),
            (["b", "text"], blue(), false),
            (["a", "number"], blue(), false),
            (["a", "number"], number(DoublePattern::Exact(5.0)), true),
            (["a", "number"], range(5.0, 6.0), true),
            (["a", "number"], range(4.0, 5.0), false),
            (["a", "flag"], ValuePattern::BoolMatch(true), true),
            (["a", "flag"], ValuePattern::BoolMatch(false), false),
            (["a", "null"], ValuePattern::NullMatch(Default::default()), true),
            (["a", "none"], ValuePattern::NullMatch(Default::default()), false),
            (["a", "none"], ValuePattern::PresentMatch(true), false),
            (["a", "none"], ValuePattern::PresentMatch(false), true),
            (["a", "text"], ValuePattern::PresentMatch(true), true),
            (["a", "list"], one_of(number(DoublePattern::Exact(1.0))), true),
            (["a", "list"], one_of(number(DoublePattern::Exact(2.0))), false),
            (["a", "text"], or(vec![ValuePattern::BoolMatch(true), blue()]), true),
            (["a", "text"], or(vec![]), false),
        ] {
            let text = format!("{path:?} {pattern:?}");
            assert_eq!(matches(vec![by_metadata(&path, pattern)], "n"), expected, "{text}");
        }
    }

    #[test]
    fn row_a198_matchers_are_alternatives_and_their_parts_are_not() {
        let id = |id: &str| by_id(StringPattern::Exact(id.into()), false);
        assert!(matches(vec![], "a"));
        assert!(matches(vec![id("b"), id("a")], "a"));
        let flag = |wanted| by_metadata(&["a", "flag"], ValuePattern::BoolMatch(wanted)).node_metadatas;
        let both = |name: &str, wanted| proto::NodeMatcher { node_metadatas: flag(wanted), ..id(name) };
        assert!(matches(vec![both("a", true)], "a"));
        assert!(!matches(vec![both("a", false)], "a"));
        assert!(!matches(vec![both("b", true)], "a"));
    }

    #[test]
    fn a_matcher_that_says_nothing_is_refused() {
        let refused = |matcher| NodeMatchers::try_from(vec![matcher]).is_err();
        assert!(refused(by_id(regex("("), false)));
        assert!(refused(by_id(regex("((a{99}){99}){99}"), false)));
        assert!(refused(proto::NodeMatcher { node_id: Some(Default::default()), node_metadatas: vec![] }));
        assert!(refused(proto::NodeMatcher { node_id: None, node_metadatas: vec![Default::default()] }));
    }

    #[test]
    fn there_are_limits_on_all_that_matchers_have() {
        let told = |matchers: Vec<proto::NodeMatcher>| {
            NodeMatchers::try_from(matchers).map(|_| ()).map_err(|error| error.to_string())
        };
        let regexes = |n| vec![by_id(regex("edge-[0-9]{1,5}"), false); n];
        assert_eq!(told(regexes(MAX_REGEXES)), Ok(()));
        assert_eq!(told(regexes(MAX_REGEXES + 1)).unwrap_err(), "more than 16 regular expressions");
        let exact = |n| vec![by_id(StringPattern::Exact("a".into()), false); n];
        assert_eq!(told(exact(MAX_PARTS / 2)), Ok(()));
        assert_eq!(told(exact(20_000)).unwrap_err(), "more than 500 parts of matchers");
        let long = "a".repeat(MAX_REGEX_LENGTH + 1);
        assert!(told(vec![by_id(regex(&long), false)]).unwrap_err().contains("1024 bytes in a regular"));
        let large = told(vec![by_id(regex(r"\w{1,20}a"), false)]).unwrap_err();
        assert!(large.contains("bytes in a compiled regular expression"), "{large}");
        let nested = |depth| {
            let value = |pattern| proto::ValueMatcher { match_pattern: Some(pattern) };
            (1..depth).fold(ValuePattern::PresentMatch(true), |inner, _| {
                ValuePattern::OrMatch(proto::OrMatcher { value_matchers: vec![value(inner)] })
            })
        };
        assert_eq!(told(vec![by_metadata(&["a"], nested(MAX_DEPTH))]), Ok(()));
        let deep = told(vec![by_metadata(&["a"], nested(MAX_DEPTH + 1))]).unwrap_err();
        assert_eq!(deep, "more than 8 matchers within each other");
    }
}
