//! New paths of forwarded and redirected requests.

use serde_json::{Value as Json, json};

use super::parts::HostContext;
use crate::emit::shared::{quote, with};
use crate::model::{Match, PathMatch, PathRewrite, Redirect};

/// The field of a `RouteAction` that rewrites the path; empty if the path does not change.
pub(super) fn rewrite(matches: &Match, rewrite: &PathRewrite) -> Option<(&'static str, Json)> {
    match rewrite {
        PathRewrite::Full(path) => Some(("regex_rewrite", substitution("^/.*$", path))),
        PathRewrite::Prefix(prefix) => prefix_rewrite(matches, prefix),
    }
}

/// Replaces the matched prefix, with exactly one `/` between `replacement` and the rest.
fn prefix_rewrite(matches: &Match, replacement: &str) -> Option<(&'static str, Json)> {
    let trimmed = replacement.strip_suffix('/').unwrap_or(replacement);
    match &matches.path {
        PathMatch::Any if trimmed.is_empty() => None,
        // Here, Envoys replace the `/` itself.
        PathMatch::Any => Some(("prefix_rewrite", format!("{trimmed}/").into())),
        PathMatch::TextPrefix(_) if !replacement.is_empty() => Some(("prefix_rewrite", replacement.into())),
        PathMatch::Prefix(prefix) | PathMatch::TextPrefix(prefix) if trimmed.is_empty() => {
            let case = if matches.case_sensitive { "" } else { "(?i)" };
            Some(("regex_rewrite", substitution(&format!("{case}^{}/*", quote(prefix)), "/")))
        }
        PathMatch::Prefix(_)
        | PathMatch::TextPrefix(_)
        | PathMatch::Exact(_)
        | PathMatch::Regex(_)
        | PathMatch::Method(_) => {
            Some(("prefix_rewrite", if trimmed.is_empty() { "/" } else { trimmed }.into()))
        }
    }
}

fn substitution(pattern: &str, text: &str) -> Json {
    // A backslash begins the number of a group.
    json!({"pattern": {"regex": pattern}, "substitution": text.replace('\\', r"\\")})
}

/// A `RedirectAction`, with `port` in the location if there is one.
pub(super) fn redirect(matches: &Match, redirect: &Redirect, port: Option<u16>) -> Json {
    let code = match redirect.status {
        301 => "MOVED_PERMANENTLY",
        303 => "SEE_OTHER",
        307 => "TEMPORARY_REDIRECT",
        308 => "PERMANENT_REDIRECT",
        // 302, the default of the Gateway API. There are no other values.
        _ => "FOUND",
    };
    let mut action = json!({"response_code": code});
    if let Some(scheme) = &redirect.scheme {
        action = with(action, "scheme_redirect", scheme.as_str());
    }
    if let Some(host) = &redirect.host {
        action = with(action, "host_redirect", host.as_str());
    }
    if let Some(port) = port {
        action = with(action, "port_redirect", port);
    }
    match &redirect.path {
        Some(PathRewrite::Full(path)) => with(action, "path_redirect", path.as_str()),
        Some(PathRewrite::Prefix(prefix)) => match prefix_rewrite(matches, prefix) {
            Some((field, value)) => with(action, field, value),
            None => action,
        },
        None => action,
    }
}

/// The port in the location of a redirect.
pub(super) struct RedirectPort {
    /// The port that is always in the location.
    pub(super) written: Option<u16>,
    /// The port that replaces the one of the request's host, if it has one: Envoys would keep that.
    pub(super) displacing: Option<u16>,
}

/// A redirect without a port leads to the port of its scheme, or to that of the listener if it has no scheme either. The default port
/// of a scheme is not in the location.
pub(super) fn redirect_port(host: &HostContext<'_>, redirect: &Redirect) -> RedirectPort {
    let own_scheme = if host.frame.port.is_tls { "https" } else { "http" };
    let scheme = redirect.scheme.as_deref().unwrap_or(own_scheme);
    let default_port = |scheme: &str| if scheme == "https" { 443 } else { 80 };
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => port,
        (None, Some(scheme)) => default_port(scheme),
        (None, None) => host.frame.port.number,
    };
    if port != default_port(scheme) {
        return RedirectPort { written: Some(port), displacing: None };
    }
    RedirectPort { written: None, displacing: redirect.host.is_none().then_some(port) }
}
