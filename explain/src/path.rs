//! Conditions on the path (XR1–XR6).

use std::borrow::Cow;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::RouteMatch;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use prost::Message as _;

use crate::regex::Pattern;
use crate::semantics::{Difference, Semantics};
use crate::shape::{Shape, escaped};
use crate::text::{Fold, Text};
use crate::truth::Truth;

/// A condition on the path.
#[derive(Debug)]
pub(crate) enum PathCondition {
    Prefix(Text),
    Exact(Text),
    Regex(Pattern),
    /// The prefix, without a slash at its end, and how letters are compared.
    SeparatedPrefix(String, bool),
    Template(String, Option<Vec<Segment>>),
    Connect,
    /// An extension.
    Custom(String),
    /// The message says nothing.
    Nothing,
}

impl PathCondition {
    pub(crate) fn of(matches: &RouteMatch, semantics: Semantics) -> Self {
        let folds = match &matches.case_sensitive {
            Some(is_sensitive) => !is_sensitive.value,
            None => semantics.has(Difference::CaseFoldsByDefault),
        };
        let fold = Fold::if_ignored(folds, semantics);
        match &matches.path_specifier {
            Some(PathSpecifier::Prefix(prefix)) => Self::Prefix(Text::prefix(prefix, fold)),
            Some(PathSpecifier::Path(path)) => Self::Exact(Text::exact(path, fold)),
            Some(PathSpecifier::SafeRegex(regex)) => Self::Regex(Pattern::new(&regex.regex, semantics)),
            Some(PathSpecifier::PathSeparatedPrefix(prefix)) => Self::SeparatedPrefix(prefix.clone(), folds),
            Some(PathSpecifier::ConnectMatcher(_)) => Self::Connect,
            Some(PathSpecifier::PathMatchPolicy(policy)) => template(policy),
            None => Self::Nothing,
        }
    }

    /// `path` is as it is compared (XR1).
    pub(crate) fn matches(&self, path: &str, method: &str) -> Truth {
        match self {
            Self::Prefix(text) | Self::Exact(text) => text.matches(path),
            Self::Regex(pattern) => pattern.matches(path.as_bytes()),
            Self::SeparatedPrefix(prefix, folds) => {
                let Some(head) = path.as_bytes().get(..prefix.len()) else { return Truth::No };
                let is_equal = match folds {
                    true => head.eq_ignore_ascii_case(prefix.as_bytes()),
                    false => head == prefix.as_bytes(),
                };
                let next = path.as_bytes().get(prefix.len());
                (is_equal && next.is_none_or(|byte| *byte == b'/')).into()
            }
            Self::Template(_, Some(segments)) => takes(segments, path).into(),
            Self::Connect => (method == "CONNECT" || method == "CONNECT-UDP").into(),
            Self::Template(_, None) | Self::Custom(_) => Truth::Unknown,
            Self::Nothing => Truth::No,
        }
    }

    /// The paths that it takes, as they are compared; `None` if that is not known. A CONNECT request may have any.
    pub(crate) fn shapes(&self) -> Option<Vec<Shape<'_>>> {
        match self {
            Self::Prefix(text) | Self::Exact(text) => text.shapes(),
            Self::Regex(pattern) => Some(vec![Shape::Regex(pattern)]),
            Self::SeparatedPrefix(prefix, folds) => {
                let text = if *folds { prefix.to_ascii_lowercase() } else { prefix.clone() };
                let below = Shape::Prefix { text: format!("{text}/"), folds: *folds };
                Some(vec![Shape::Exact { text, folds: *folds }, below])
            }
            Self::Template(_, Some(segments)) => Some(vec![Shape::Expression(expression(segments))]),
            Self::Template(_, None) | Self::Custom(_) => None,
            Self::Connect => Some(vec![Shape::Prefix { text: String::new(), folds: false }]),
            Self::Nothing => Some(Vec::new()),
        }
    }

    /// True if it takes CONNECT requests alone.
    pub(crate) fn is_connect(&self) -> bool {
        matches!(self, Self::Connect)
    }

    /// True if it takes one path, its case apart.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    pub(crate) fn wanted(&self) -> String {
        match self {
            Self::Prefix(text) | Self::Exact(text) => text.describe(),
            Self::Regex(pattern) => format!("regex {:?}", pattern.text()),
            Self::SeparatedPrefix(prefix, _) => format!("separated prefix {prefix:?}"),
            Self::Template(text, _) => format!("template {text:?}"),
            Self::Connect => "a CONNECT request".to_owned(),
            Self::Custom(name) => format!("the extension {name}"),
            Self::Nothing => "nothing".to_owned(),
        }
    }

    pub(crate) fn rule(&self) -> &'static str {
        match self {
            Self::Prefix(_) | Self::Exact(_) | Self::Nothing => "XR2",
            Self::Regex(_) => "XR3",
            Self::SeparatedPrefix(..) => "XR4",
            Self::Template(..) | Self::Custom(_) => "XR5",
            Self::Connect => "XR6",
        }
    }
}

/// The path that conditions are compared with (XR1). Parameters end with their segment: `/a;v=1/b` is `/a/b`.
pub(crate) fn compared(path: &str, ignores_parameters: bool) -> Cow<'_, str> {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let path = path.get(..end).unwrap_or(path);
    if !ignores_parameters || !path.contains(';') {
        return Cow::Borrowed(path);
    }
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or(segment));
    Cow::Owned(segments.collect::<Vec<_>>().join("/"))
}

/// A part of a path template between slashes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    /// `*`: one segment with at least one character.
    One,
    /// `**`: the rest, which may be empty.
    Rest,
}

fn template(policy: &TypedExtensionConfig) -> PathCondition {
    let custom = || PathCondition::Custom(policy.name.clone());
    let Some(any) = &policy.typed_config else { return custom() };
    if !any.type_url.ends_with("/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig") {
        return custom();
    }
    let Ok(config) = UriTemplateMatchConfig::decode(&*any.value) else { return custom() };
    let segments = segments(&config.path_template);
    PathCondition::Template(config.path_template, segments)
}

/// The segments of a template; those of `{name=…}` are its own. `None` if it cannot be read.
fn segments(template: &str) -> Option<Vec<Segment>> {
    let mut flat = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (variable, after) = after.split_once('}')?;
        let pattern = variable.split_once('=').map_or("*", |(_, pattern)| pattern);
        flat.push_str(before);
        flat.push_str(pattern);
        rest = after;
    }
    flat.push_str(rest);
    let mut segments = Vec::new();
    for part in flat.strip_prefix('/')?.split('/') {
        match part {
            "*" => segments.push(Segment::One),
            "**" => segments.push(Segment::Rest),
            part if part.contains("**") => return None,
            part if part.contains('*') => {
                // A glob with a suffix, such as `**.mpd`, is not modelled.
                return None;
            }
            part => segments.push(Segment::Literal(part.to_owned())),
        }
    }
    let rests = segments.iter().filter(|segment| **segment == Segment::Rest).count();
    (rests <= 1).then_some(segments)
}

fn takes(segments: &[Segment], path: &str) -> bool {
    let Some(path) = path.strip_prefix('/') else { return false };
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |segment: &Segment, part: &str| match segment {
        Segment::Literal(text) => text == part,
        Segment::One => !part.is_empty(),
        Segment::Rest => true,
    };
    let Some(at) = segments.iter().position(|segment| *segment == Segment::Rest) else {
        return segments.len() == parts.len()
            && segments.iter().zip(&parts).all(|(segment, part)| fits(segment, part));
    };
    let after = segments.len() - at - 1;
    parts.len() > at + after
        && segments.iter().zip(&parts).take(at).all(|(segment, part)| fits(segment, part))
        && segments
            .iter()
            .rev()
            .zip(parts.iter().rev())
            .take(after)
            .all(|(segment, part)| fits(segment, part))
}

/// The same as an expression of the `regex` crates.
fn expression(segments: &[Segment]) -> String {
    let of = |segment: &Segment| match segment {
        Segment::Literal(text) => escaped(text),
        Segment::One => "[^/]+".to_owned(),
        Segment::Rest => "(?s:.)*".to_owned(),
    };
    segments.iter().map(|segment| format!("/{}", of(segment))).collect()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::BoolValue;

    use super::*;
    use crate::client::{Client, Language};

    fn condition(
        language: Language,
        path_specifier: PathSpecifier,
        case_sensitive: Option<bool>,
    ) -> PathCondition {
        let matches = RouteMatch {
            path_specifier: Some(path_specifier),
            case_sensitive: case_sensitive.map(|value| BoolValue { value }),
            ..RouteMatch::default()
        };
        PathCondition::of(&matches, Semantics::of(Client::newest(language)))
    }

    #[test]
    fn r1_query_fragment_and_perhaps_parameters_are_cut_off() {
        assert_eq!(compared("/a?b=/c", false), "/a");
        assert_eq!(compared("/a#b", false), "/a");
        assert_eq!(compared("/a;v=1/b?c", false), "/a;v=1/b");
        assert_eq!(compared("/a;v=1/b;w?c", true), "/a/b");
    }

    #[test]
    fn r2_prefixes_and_paths_are_bytes() {
        let prefix = condition(Language::Envoy, PathSpecifier::Prefix("/aB".to_owned()), None);
        assert_eq!(prefix.matches("/aBc", "GET"), Truth::Yes);
        assert_eq!(prefix.matches("/abc", "GET"), Truth::No);
        let folded = condition(Language::Envoy, PathSpecifier::Path("/aB".to_owned()), Some(false));
        assert_eq!(folded.matches("/Ab", "GET"), Truth::Yes);
        let java = condition(Language::Java, PathSpecifier::Path("/aB".to_owned()), None);
        assert_eq!(java.matches("/Ab", "GET"), Truth::Yes);
    }

    #[test]
    fn r4_a_separated_prefix_ends_at_a_slash() {
        let prefix = condition(Language::Envoy, PathSpecifier::PathSeparatedPrefix("/cart".to_owned()), None);
        for (path, expected) in
            [("/cart", true), ("/cart/", true), ("/cart/a", true), ("/carts", false), ("/car", false)]
        {
            assert_eq!(prefix.matches(path, "GET"), Truth::from(expected), "{path}");
        }
    }

    #[test]
    fn r5_templates_take_segments() {
        for (template, path, expected) in [
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a//c", false),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**/z", "/a/b/c/z", true),
            ("/{x}/{y=b/*}", "/a/b/c", true),
            ("/{x}/{y=b/*}", "/a/c/c", false),
            ("/A", "/a", false),
        ] {
            let segments = segments(template).unwrap();
            assert_eq!(takes(&segments, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn r6_a_connect_matcher_takes_connect_alone() {
        let connect = condition(Language::Envoy, PathSpecifier::ConnectMatcher(Default::default()), None);
        assert_eq!(connect.matches("", "CONNECT"), Truth::Yes);
        assert_eq!(connect.matches("/", "GET"), Truth::No);
    }
}
