//! What Envoy's connection manager does to a request before it is routed (XH1–XH3).

use std::net::IpAddr;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    PathWithEscapedSlashesAction, StripPortMode,
};

use crate::cidr::is_in;
use crate::header::Seen;
use crate::host::without_port;
use crate::request::Request;

/// A request as it is routed.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) request: Request,
    pub(crate) seen: Seen,
    /// What was done, in words.
    pub(crate) steps: Vec<String>,
    /// The answer, if it is not routed: a status, and why.
    pub(crate) refused: Option<(u16, String)>,
    /// True if it comes from an internal address.
    pub(crate) is_internal: bool,
}

/// The request as Envoy routes it. `seen` are its headers as they came.
pub(crate) fn arrive(
    request: &Request,
    mut seen: Seen,
    manager: &HttpConnectionManager,
    port: Option<u16>,
) -> Arrived {
    let mut steps = Vec::new();
    let mut request = request.clone();
    let mut refused = None;
    match path(&request.path, manager) {
        Ok(path) if path != request.path => {
            steps.push(format!("path {} becomes {path}", request.path));
            request.path = path;
        }
        Ok(_) => {}
        Err(answer) => refused = Some(answer),
    }
    let host = host(&request.authority, manager, port);
    if host != request.authority {
        steps.push(format!("host {} becomes {host}", request.authority));
        request.authority = host;
    }
    seen.set(":path", &request.path);
    seen.set(":authority", &request.authority);
    let uses_remote = manager.use_remote_address.as_ref().is_some_and(|flag| flag.value);
    let is_internal = is_internal(&request, &seen, manager, uses_remote);
    if !is_internal {
        let removed: Vec<&str> = INTERNAL_HEADERS.iter().copied().filter(|name| seen.remove(name)).collect();
        let edge = if uses_remote { EDGE_HEADERS } else { &[] };
        let removed: Vec<&str> =
            removed.into_iter().chain(edge.iter().copied().filter(|name| seen.remove(name))).collect();
        if !removed.is_empty() {
            steps.push(format!("{} removed: the client is not internal", removed.join(", ")));
        }
    }
    let trusts_proto = !uses_remote || manager.xff_num_trusted_hops > 0;
    if !trusts_proto || seen.get("x-forwarded-proto").is_empty() {
        seen.set("x-forwarded-proto", &request.scheme);
    }
    Arrived { request, seen, steps, refused, is_internal }
}

/// The path after XH1, or the answer.
fn path(path: &str, manager: &HttpConnectionManager) -> Result<String, (u16, String)> {
    if path.contains('#') {
        return Err((400, "the path has a fragment".to_owned()));
    }
    let (mut head, query) = match path.find('?') {
        Some(at) => (path.get(..at).unwrap_or(path).to_owned(), path.get(at..).unwrap_or_default()),
        None => (path.to_owned(), ""),
    };
    if !head.starts_with('/') {
        return Ok(path.to_owned());
    }
    let unescaped = || {
        let mut text = head.clone();
        for (escaped, plain) in [("%2F", "/"), ("%2f", "/"), ("%5C", "\\"), ("%5c", "\\")] {
            text = text.replace(escaped, plain);
        }
        text
    };
    match manager.path_with_escaped_slashes_action() {
        PathWithEscapedSlashesAction::ImplementationSpecificDefault
        | PathWithEscapedSlashesAction::KeepUnchanged => {}
        PathWithEscapedSlashesAction::RejectRequest => {
            if unescaped() != head {
                return Err((400, "the path has an escaped slash".to_owned()));
            }
        }
        PathWithEscapedSlashesAction::UnescapeAndRedirect => {
            let plain = unescaped();
            if plain != head {
                return Err((307, format!("the path has an escaped slash: redirected to {plain}")));
            }
        }
        PathWithEscapedSlashesAction::UnescapeAndForward => head = unescaped(),
    }
    if manager.normalize_path.as_ref().is_some_and(|flag| flag.value) {
        head = normalized(&head);
    }
    if manager.merge_slashes {
        while head.contains("//") {
            head = head.replace("//", "/");
        }
    }
    Ok(head + query)
}

/// Without dots, and with unreserved characters unescaped.
fn normalized(path: &str) -> String {
    let mut plain = String::new();
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        let escaped = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let byte = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(char::from(byte));
                rest = rest.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(if next == '\\' { '/' } else { next });
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
            }
        }
    }
    let mut segments: Vec<&str> = Vec::new();
    let parts: Vec<&str> = plain.split('/').skip(1).collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." {
                    segments.pop();
                }
                if is_last {
                    segments.push("");
                }
            }
            part => segments.push(part),
        }
    }
    format!("/{}", segments.join("/"))
}

/// The host after XH2.
fn host(host: &str, manager: &HttpConnectionManager, port: Option<u16>) -> String {
    let mut name = without_port(host).to_owned();
    let mut rest = host.get(name.len()..).unwrap_or_default();
    if manager.strip_trailing_host_dot && name.ends_with('.') {
        name.pop();
    }
    let is_own =
        rest.strip_prefix(':').and_then(|text| text.parse().ok()).is_some_and(|own: u16| Some(own) == port);
    let strips_any = matches!(manager.strip_port_mode, Some(StripPortMode::StripAnyHostPort(true)));
    if strips_any || (manager.strip_matching_host_port && is_own) {
        rest = "";
    }
    name + rest
}

/// A single address before the connection manager, which is among the internal ones. By default, no address is.
fn is_internal(request: &Request, seen: &Seen, manager: &HttpConnectionManager, uses_remote: bool) -> bool {
    let Some(config) = &manager.internal_address_config else { return false };
    let forwarded = seen.get("x-forwarded-for").join(",");
    let address: Option<IpAddr> = match (uses_remote, forwarded.is_empty()) {
        (true, true) => request.connection.from,
        (false, false) if !forwarded.contains(',') => forwarded.trim().parse().ok(),
        (true | false, _) => None,
    };
    address.is_some_and(|address| config.cidr_ranges.iter().any(|range| is_in(address, range)))
}

/// Removed from requests that are not internal.
const INTERNAL_HEADERS: &[&str] = &[
    "x-envoy-retriable-status-codes",
    "x-envoy-retriable-header-names",
    "x-envoy-retry-on",
    "x-envoy-retry-grpc-on",
    "x-envoy-max-retries",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-upstream-rq-timeout-alt-response",
    "x-envoy-expected-rq-timeout-ms",
    "x-envoy-force-trace",
    "x-envoy-ip-tags",
    "x-envoy-original-url",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-internal",
];

/// Removed besides, at the edge.
const EDGE_HEADERS: &[&str] =
    &["x-envoy-decorator-operation", "x-envoy-downstream-service-cluster", "x-envoy-downstream-service-node"];

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::BoolValue;

    use super::*;
    use crate::client::{Client, Language};
    use crate::semantics::Semantics;

    #[test]
    fn h1_paths_are_unescaped_normalized_and_merged_in_this_order() {
        let normal =
            HttpConnectionManager { normalize_path: Some(BoolValue { value: true }), ..Default::default() };
        for (given, expected) in [
            ("/a/../b", "/b"),
            ("/../b", "/b"),
            ("/a/./b?x=/../", "/a/b?x=/../"),
            ("/a/%2e%2E/b", "/b"),
            ("/%41", "/A"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a//b", "/a//b"),
            ("/a/..", "/"),
            ("/a\\b", "/a/b"),
            ("*", "*"),
        ] {
            assert_eq!(path(given, &normal).unwrap(), expected, "{given}");
            assert_eq!(path(given, &HttpConnectionManager::default()).unwrap(), given);
        }
        assert_eq!(path("/a#b", &normal).unwrap_err().0, 400);
        let all = HttpConnectionManager {
            merge_slashes: true,
            path_with_escaped_slashes_action: PathWithEscapedSlashesAction::UnescapeAndForward.into(),
            ..normal
        };
        assert_eq!(path("/a%2F%2fb//c%2F..", &all).unwrap(), "/a/b/");
        let rejects = HttpConnectionManager {
            path_with_escaped_slashes_action: PathWithEscapedSlashesAction::RejectRequest.into(),
            ..HttpConnectionManager::default()
        };
        assert_eq!(path("/a%5Cb", &rejects).unwrap_err().0, 400);
    }

    #[test]
    fn h2_dots_and_ports_of_hosts_are_removed_as_configured() {
        let none = HttpConnectionManager::default();
        assert_eq!(host("a.:80", &none, Some(80)), "a.:80");
        let own = HttpConnectionManager {
            strip_matching_host_port: true,
            strip_trailing_host_dot: true,
            ..none.clone()
        };
        assert_eq!(host("a.:80", &own, Some(80)), "a");
        assert_eq!(host("a.:81", &own, Some(80)), "a:81");
        let any =
            HttpConnectionManager { strip_port_mode: Some(StripPortMode::StripAnyHostPort(true)), ..none };
        assert_eq!(host("a:81", &any, None), "a");
    }

    #[test]
    fn h3_headers_for_envoy_are_removed_from_requests_of_strangers() {
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let request = Request::get("a", "/").with("x-envoy-retry-on", "5xx").with("x-a", "1");
        let arrived = |manager: &HttpConnectionManager| {
            let seen = Seen::of(&request, semantics);
            arrive(&request, seen, manager, Some(80))
        };
        let found = arrived(&HttpConnectionManager::default());
        assert!(found.seen.get("x-envoy-retry-on").is_empty());
        assert_eq!(found.seen.get("x-a"), ["1"]);
        assert_eq!(found.seen.get("x-forwarded-proto"), ["http"]);
    }
}
