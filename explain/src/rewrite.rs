//! What routes make of paths: prefixes, regular expressions, and the status of a redirect.

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::redirect_action::RedirectResponseCode;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;

use crate::changed::Known;
use crate::client::{Client, Language};
use crate::path::compared;
use crate::regex::Pattern;
use crate::semantics::Semantics;

/// The path with another text in place of what the route's match names: a prefix, or all of it but the query.
pub(crate) fn with_prefix(route: &proto::Route, path: &str, new: &str) -> String {
    let specifier = route.r#match.as_ref().and_then(|matches| matches.path_specifier.as_ref());
    let n_matched = match specifier {
        Some(
            PathSpecifier::Prefix(prefix)
            | PathSpecifier::PathSeparatedPrefix(prefix)
            | PathSpecifier::Path(prefix),
        ) => prefix.len(),
        Some(
            PathSpecifier::SafeRegex(_)
            | PathSpecifier::ConnectMatcher(_)
            | PathSpecifier::PathMatchPolicy(_),
        )
        | None => compared(path, false).len(),
    };
    format!("{new}{}", path.get(n_matched..).unwrap_or_default())
}

/// The path with its part before the query rewritten.
///
/// # Errors
///
/// Why it is not known.
pub(crate) fn rewritten(rewrite: &RegexMatchAndSubstitute, path: &str) -> Known {
    let new = substituted(rewrite, &compared(path, false))?;
    Ok(before_query(path, &new))
}

/// The text with each match of the pattern replaced.
///
/// # Errors
///
/// Why it is not known.
pub(crate) fn substituted(rewrite: &RegexMatchAndSubstitute, text: &str) -> Known {
    let pattern = rewrite.pattern.as_ref().map(|pattern| pattern.regex.as_str()).unwrap_or_default();
    let semantics = Semantics::of(Client::newest(Language::Envoy));
    Pattern::new(pattern, semantics).replace_all(text, &rewrite.substitution)
}

/// The path with another text before its query.
pub(crate) fn before_query(path: &str, new: &str) -> String {
    let n_plain = compared(path, false).len();
    format!("{new}{}", path.get(n_plain..).unwrap_or_default())
}

/// The status of a redirect.
pub(crate) fn status_of(redirect: &proto::RedirectAction) -> u32 {
    match redirect.response_code() {
        RedirectResponseCode::MovedPermanently => 301,
        RedirectResponseCode::Found => 302,
        RedirectResponseCode::SeeOther => 303,
        RedirectResponseCode::TemporaryRedirect => 307,
        RedirectResponseCode::PermanentRedirect => 308,
    }
}
