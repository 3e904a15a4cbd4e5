//! Filter chains of listeners, and the order of their filters (rows D42 and D114).

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::super::any::{short, type_of};
use super::super::rule::{Scope, enum_at, has, number_at, values_at};
use super::matchers::Chooses;
use super::shared::{MANAGER, MANAGER_ROW, fault, is_true, refuse, types};
use crate::diagnostic::echo;
use crate::encode::decode_any;
use crate::message::{Message, child, list, text, texts};
use crate::path::Path;

const ROW: (&str, &str) = ("D114", "envoy-filter-chains");
const TERMINAL: (&str, &str) = ("D42", "envoy-terminal-filter");

/// Checks the chains of a listener together.
pub(super) fn filter_chains(listener: &Message, is_quic: bool, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("filter_chains");
    let has_matcher = has(listener, "filter_chain_matcher");
    if has(listener, "fcds_config") && !has_matcher {
        let text = "Envoy rejects filter chains on demand without `filter_chain_matcher`";
        refuse(ROW, path, "fcds_config", text, scope);
    }
    if let Some(matcher) = child(listener, "filter_chain_matcher") {
        Chooses::FilterChain.check(&matcher, &path.field("filter_chain_matcher"), scope);
    }
    let mut names: HashMap<String, usize> = HashMap::new();
    let mut conditions: HashMap<String, usize> = HashMap::new();
    for (index, chain) in list(listener, "filter_chains").iter().enumerate() {
        let path = list_path.index(index);
        if !is_quic {
            http3(chain, &path, scope);
        }
        if has_matcher {
            let name = text(chain, "name").unwrap_or_default();
            if name.is_empty() {
                let text = "Envoy rejects a filter chain without a name beside `filter_chain_matcher`";
                refuse(ROW, &path, "name", text, scope);
            } else if let Some(first) = names.insert(name, index) {
                let text = format!(
                    "Envoy rejects two filter chains of one name beside `filter_chain_matcher`; chain {first} has the same one"
                );
                refuse(ROW, &path, "name", text, scope);
            }
            continue;
        }
        chain_match(chain, &path, scope);
        let (mut other, mut is_repeated) = (None, false);
        let mut own = HashSet::new();
        for condition in combinations(chain) {
            is_repeated |= !own.insert(condition.clone());
            other = other.or(conditions.get(&condition).copied());
            conditions.entry(condition).or_insert(index);
        }
        if let Some(other) = other {
            let text = format!(
                "Envoy rejects a filter chain that matches connections which chain {other} matches by the same conditions"
            );
            refuse(ROW, &path, "filter_chain_match", text, scope);
        } else if is_repeated {
            let text = "Envoy rejects a filter chain with a condition twice";
            refuse(ROW, &path, "filter_chain_match", text, scope);
        }
    }
}

fn chain_match(chain: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(found) = child(chain, "filter_chain_match") else { return };
    let path = path.field("filter_chain_match");
    for field in ["address_suffix", "suffix_len"] {
        if has(&found, field) {
            refuse(ROW, &path, field, format!("Envoy rejects `{field}`, which it does not implement"), scope);
        }
    }
    let names_path = path.field("server_names");
    for (index, name) in texts(&found, "server_names").enumerate() {
        let rest = name.strip_prefix("*.").unwrap_or(&name);
        if rest.contains('*') {
            let text = format!(
                "Envoy rejects the server name {}: a `*` may only be the whole first label, before others",
                echo(&name)
            );
            refuse(ROW, &names_path.index(index), "", text, scope);
        }
    }
}

/// The combinations of conditions of a chain, each as a text.
fn combinations(chain: &Message) -> Vec<String> {
    let found = child(chain, "filter_chain_match");
    let found = found.as_ref();
    let ranges =
        |field: &str| found.map(|found| list(found, field)).unwrap_or_default().iter().map(range).collect();
    let all = |field: &str| found.map(|found| texts(found, field).collect::<Vec<_>>()).unwrap_or_default();
    let ports = found.map(|found| values_at(found, "source_ports")).unwrap_or_default();
    let port = found.and_then(|found| number_at(found, "destination_port"));
    let columns: [Vec<String>; 8] = [
        ranges("prefix_ranges"),
        all("server_names").iter().map(|name| name.to_ascii_lowercase()).collect(),
        found.and_then(|found| text(found, "transport_protocol")).into_iter().collect(),
        all("application_protocols"),
        ranges("direct_source_prefix_ranges"),
        found
            .map(|found| enum_at(found, "source_type").to_string())
            .into_iter()
            .filter(|it| it != "0")
            .collect(),
        ranges("source_prefix_ranges"),
        ports.iter().filter_map(|port| Some(port.as_u32()?.to_string())).collect(),
    ];
    let mut rows = vec![format!("{port:?}")];
    for column in columns {
        let column = if column.is_empty() { vec![String::new()] } else { column };
        let joined = rows.iter().flat_map(|row| column.iter().map(move |cell| format!("{row}|{cell}")));
        rows = joined.take(MAX_COMBINATIONS).collect();
    }
    rows
}

/// A range in normal form: without the bits that it ignores.
fn range(range: &Message) -> String {
    let length = number_at(range, "prefix_len").unwrap_or_default();
    let normal = |bits: u128, width: u32| {
        let length = u32::try_from(length).unwrap_or(width).min(width);
        let kept = if length == 0 { 0 } else { bits >> (width - length) << (width - length) };
        format!("{width}:{kept:x}/{length}")
    };
    match text(range, "address_prefix").unwrap_or_default().parse() {
        Ok(IpAddr::V4(address)) => normal(u128::from(u32::from(address)), 32),
        Ok(IpAddr::V6(address)) => normal(u128::from(address), 128),
        Err(_) => format!("{:?}", text(range, "address_prefix")),
    }
}

/// HTTP/3 needs a listener with QUIC.
fn http3(chain: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let filters_path = path.field("filters");
    for (index, filter) in list(chain, "filters").iter().enumerate() {
        let Some(content) = child(filter, "typed_config").and_then(|any| decode_any(scope.inner, &any))
        else {
            continue;
        };
        if content.name() == MANAGER && enum_at(&content, "codec_type") == HTTP3 {
            let text = "Envoy rejects HTTP3 in a listener without QUIC";
            refuse(MANAGER_ROW, &filters_path.index(index), "typed_config.codec_type", text, scope);
        }
    }
}

/// The terminal filter of a chain must be the last one, and the last one terminal.
pub(super) fn filter_chain(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("filters");
    let types = types(&list(message, "filters"), scope.inner);
    for (index, name) in types.iter().enumerate() {
        let is_last = index + 1 == types.len();
        let kind = name.strip_prefix(NETWORK).and_then(|name| name.split('.').next()).unwrap_or_default();
        if TERMINAL_FILTERS.contains(&kind) && !is_last {
            refuse(
                TERMINAL,
                &list_path.index(index),
                "",
                format!("Envoy rejects filters after {}", short(name)),
                scope,
            );
        }
        if is_last && OTHER_FILTERS.contains(&kind) {
            let text = format!(
                "Envoy rejects {kind} as the last filter of a chain; the last one must be terminal, such as `tcp_proxy`"
            );
            refuse(TERMINAL, &list_path.index(index), "", text, scope);
        }
    }
}

/// The router must be the last HTTP filter, and be on.
pub(super) fn http_filters(filters: &[Message], list_path: &Path<'_>, scope: &mut Scope<'_>) {
    let types = types(filters, scope.inner);
    for (index, (filter, name)) in filters.iter().zip(&types).enumerate() {
        let is_last = index + 1 == types.len();
        let path = list_path.index(index);
        let kind = name.strip_prefix(HTTP).and_then(|name| name.split('.').next()).unwrap_or_default();
        if kind == "router" && !is_last {
            refuse(TERMINAL, &path, "", "Envoy rejects HTTP filters after the router", scope);
        }
        if kind == "router" && is_last && is_true(filter, "disabled") {
            refuse(TERMINAL, &path, "disabled", "Envoy rejects a router that is disabled", scope);
        }
        if kind == "upstream_codec" {
            refuse(
                TERMINAL,
                &path,
                "",
                "Envoy accepts the upstream codec only among upstream filters",
                scope,
            );
        } else if is_last && !["", "router"].contains(&kind) {
            let text = format!(
                "Envoy rejects {} as the last HTTP filter; the last one must be the router",
                short(name)
            );
            scope.report_with(fault(TERMINAL), &path, "", text, Some(ROUTER.to_owned()));
        }
    }
}

/// Upstream filters end with the codec.
pub(super) fn upstream_filters(message: &Message, field: &str, path: &Path<'_>, scope: &mut Scope<'_>) {
    let filters = list(message, field);
    let Some(last) = filters.last() else { return };
    let name = child(last, "typed_config").map(|any| type_of(scope.inner, &any)).unwrap_or_default();
    if name.starts_with(HTTP) && !name.ends_with(".UpstreamCodec") {
        let list_path = path.field(field);
        let text = "Envoy rejects upstream filters that do not end with the upstream codec".to_owned();
        let suggestion = Some("envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec".to_owned());
        scope.report_with(fault(TERMINAL), &list_path.index(filters.len() - 1), "", text, suggestion);
    }
}

const NETWORK: &str = "envoy.extensions.filters.network.";
const HTTP: &str = "envoy.extensions.filters.http.";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const HTTP3: i32 = 3;

/// Network filters that end a chain.
const TERMINAL_FILTERS: [&str; 7] = [
    "http_connection_manager",
    "tcp_proxy",
    "redis_proxy",
    "thrift_proxy",
    "echo",
    "direct_response",
    "generic_proxy",
];

/// Network filters that end no chain.
const OTHER_FILTERS: [&str; 13] = [
    "rbac",
    "mongo_proxy",
    "ratelimit",
    "local_ratelimit",
    "ext_authz",
    "ext_proc",
    "sni_cluster",
    "connection_limit",
    "zookeeper_proxy",
    "wasm",
    "set_filter_state",
    "sni_dynamic_forward_proxy",
    "geoip",
];

/// The limit of compared combinations of one chain. Real chains have a handful.
const MAX_COMBINATIONS: usize = 1000;
