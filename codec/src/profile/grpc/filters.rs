//! HTTP filters, and their overrides in routes (B.2, B.6).

use std::collections::HashMap;

use super::super::Effect::{Differs, Ignored, Rejected};
use super::super::Language;
use super::super::any::{is_typed_struct, short, type_of};
use super::super::rule::{Fault, Rule, Scope, Side, When, has, value_at};
use crate::encode::decode_any;
use crate::message::{Message, child, entries, list, text};
use crate::path::Path;

pub(super) const HTTP_FILTER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";
pub(super) const STATEFUL_SESSION: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
/// Names a cluster that gRPC does not use (row B162).
pub(super) const GCP_AUTHN: &str = "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig";
pub(super) const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const RBAC: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";
const RBAC_PER_ROUTE: &str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";
const SESSION_PER_ROUTE: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B37",
        (Differs, "grpc-filter-disabled"),
        HTTP_FILTER,
        (When::True, &["disabled"]),
        "released gRPC clients ignore `{}` and use the filter",
    ),
    Rule::new(
        "B37",
        (Differs, "grpc-filter-disabled"),
        FILTER_CONFIG,
        (When::True, &["disabled"]),
        "released gRPC clients ignore `{}` and use the filter",
    ),
    Rule::new(
        "B28",
        (Rejected, "grpc-filter"),
        HTTP_FILTER,
        (When::Unset, &["name"]),
        "gRPC (C-core, go) rejects an HTTP filter without a `{}`",
    )
    .by(&[Language::Core, Language::Go]),
    Rule::new(
        "B143",
        (Ignored, "grpc-fault"),
        FAULT,
        (When::Set, &["upstream_cluster", "downstream_nodes", "headers"]),
        "gRPC ignores `{}`: the fault applies to all requests",
    ),
    Rule::new(
        "B143",
        (Ignored, "grpc-fault"),
        FAULT,
        (When::Set, &["response_rate_limit"]),
        "gRPC ignores `{}`",
    ),
    Rule::new(
        "B144",
        (Rejected, "grpc-fault"),
        FAULT,
        (When::Above(16), &["abort.grpc_status"]),
        "gRPC (C-core) rejects a status above 16",
    )
    .by(&[Language::Core]),
    Rule::new(
        "B144",
        (Rejected, "grpc-fault"),
        "envoy.extensions.filters.http.fault.v3.FaultAbort",
        (When::Unset, &["percentage"]),
        "gRPC (js) rejects a fault without a `{}`",
    )
    .by(&[Language::Js]),
    Rule::new(
        "B144",
        (Rejected, "grpc-fault"),
        "envoy.extensions.filters.common.fault.v3.FaultDelay",
        (When::Unset, &["percentage"]),
        "gRPC (js) rejects a fault without a `{}`",
    )
    .by(&[Language::Js]),
    Rule::new(
        "B144",
        (Rejected, "grpc-fault"),
        FAULT,
        (When::LongDuration, &["delay.fixed_delay"]),
        "gRPC (java) rejects a delay of more than 292 years",
    )
    .by(&[Language::Java]),
    Rule::new(
        "B160",
        (Ignored, "grpc-stateful-session"),
        STATEFUL_SESSION,
        (When::True, &["strict"]),
        "gRPC ignores `{}`: a request goes elsewhere if its endpoint is gone",
    ),
    Rule::new(
        "B161",
        (Rejected, "grpc-gcp-authn"),
        GCP_AUTHN,
        (When::Zero, &["cache_config.cache_size"]),
        "gRPC rejects a cache size of 0",
    ),
];

/// The sides and languages in which gRPC has a filter.
struct Filter {
    name: &'static str,
    side: Option<Side>,
    /// The languages that reject it.
    refused_by: &'static [Language],
    /// The type of its override in routes, if it has one.
    overridden_by: &'static str,
}

const FILTERS: &[Filter] = &[
    Filter { name: ROUTER, side: None, refused_by: &[], overridden_by: "" },
    Filter { name: FAULT, side: Some(Side::Client), refused_by: &[], overridden_by: FAULT },
    Filter { name: RBAC, side: Some(Side::Server), refused_by: &[], overridden_by: RBAC_PER_ROUTE },
    Filter {
        name: STATEFUL_SESSION,
        side: Some(Side::Client),
        refused_by: &[Language::Go, Language::Java, Language::Js],
        overridden_by: SESSION_PER_ROUTE,
    },
    Filter { name: GCP_AUTHN, side: Some(Side::Client), refused_by: &[], overridden_by: GCP_AUTHN },
];

/// Rows B26, B27 and B29 to B31, B33 to B35.
pub(super) fn http_filters(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let filters = list(message, "http_filters");
    if filters.is_empty() {
        let fault = Fault::new("B26", Rejected, "grpc-no-filters").by(&[
            Language::Core,
            Language::Go,
            Language::Java,
        ]);
        let text =
            "gRPC (C-core, go, java) rejects a connection manager without HTTP filters; it needs the router"
                .to_owned();
        return scope.report_with(fault, path, "http_filters", text, Some(ROUTER.to_owned()));
    }
    let list_path = path.field("http_filters");
    let mut names = HashMap::new();
    let mut kept = Vec::new();
    for (index, filter) in filters.iter().enumerate() {
        let path = list_path.index(index);
        if let Some(name) = text(filter, "name")
            && let Some(first) = names.insert(name, index)
        {
            let fault = Fault::new("B27", Rejected, "grpc-duplicate-filter");
            let text =
                format!("gRPC rejects two HTTP filters with one name; filter {first} has the same name");
            scope.report(fault, &path, "name", text);
        }
        let any = child(filter, "typed_config");
        if any.as_ref().is_some_and(is_typed_struct) {
            let fault = Fault::new("B14", Rejected, "grpc-filter");
            let text = "gRPC rejects a filter as a `TypedStruct`; it knows filters only by their own types";
            scope.report(fault, &path, "typed_config", text);
            continue;
        }
        let found = any.map(|any| type_of(scope.inner, &any));
        let is_optional = value_at(filter, "is_optional").is_some();
        if is_kept(found.as_deref(), is_optional, &path, scope) {
            kept.push((index, found.as_deref() == Some(ROUTER)));
        }
    }
    let last = kept.last().map(|(index, _)| *index);
    let fault = Fault::new("B34", Rejected, "grpc-router-place");
    for (index, _) in kept.iter().filter(|(index, is_router)| *is_router && Some(*index) != last) {
        let text = "gRPC rejects a router that is not the last filter";
        scope.report(fault, &list_path.index(*index), "", text);
    }
    router_is_last(&filters, &kept, path, scope);
}

/// Rows B33 and B35. `kept` are the filters that gRPC keeps, and whether each is the router.
fn router_is_last(filters: &[Message], kept: &[(usize, bool)], path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("http_filters");
    let last = kept.last().filter(|(_, is_router)| *is_router).map(|(index, _)| *index);
    let suggestion = Some(ROUTER.to_owned());
    let fault = Fault::new("B33", Rejected, "grpc-router-place");
    match last {
        None => {
            let text = "gRPC rejects HTTP filters that do not end with the router".to_owned();
            scope.report_with(fault, path, "http_filters", text, suggestion);
        }
        Some(last) if last + 1 < filters.len() => {
            let fault = Fault::new("B35", Rejected, "grpc-router-place").by(&[Language::Js, Language::Java]);
            let text =
                "gRPC (js, java) rejects filters after the router, even optional ones that it does not know";
            scope.report(fault, &list_path.index(last), "", text);
        }
        Some(_) => {}
    }
}

/// Returns `true` if gRPC keeps a filter in the chain. Reports filters that it does not support.
fn is_kept(found: Option<&str>, is_optional: bool, path: &Path<'_>, scope: &mut Scope<'_>) -> bool {
    let Some(found) = found else {
        if !is_optional {
            let fault = Fault::new("B30", Rejected, "grpc-filter");
            let text =
                "gRPC rejects a filter without `typed_config`; it does not discover extensions".to_owned();
            scope.report_with(fault, path, "", text, Some("is_optional: true".to_owned()));
        } else {
            let fault = Fault::new("B30", Rejected, "grpc-filter").by(&[Language::Core, Language::Js]);
            let text = "gRPC (C-core, js) rejects a filter without `typed_config`, even an optional one";
            scope.report(fault, path, "", text);
        }
        return !is_optional;
    };
    let known = FILTERS.iter().find(|filter| filter.name == found);
    let optional = Some("is_optional: true".to_owned());
    match known {
        Some(filter) if filter.side.is_none_or(|side| side == scope.side) => {
            if !filter.refused_by.is_empty() && !is_optional {
                let fault = Fault::new("B29", Rejected, "grpc-filter").by(filter.refused_by);
                let names: Vec<_> = filter.refused_by.iter().map(|language| language.name()).collect();
                let text = format!(
                    "gRPC ({}) does not support the filter {} and rejects it",
                    names.join(", "),
                    short(found)
                );
                scope.report_with(fault, path, "typed_config", text, optional);
            }
            true
        }
        Some(_) if !is_optional => {
            let (has_not, has) = match scope.side {
                Side::Client => ("clients", "servers"),
                Side::Server => ("servers", "clients"),
            };
            let fault = Fault::new("B31", Rejected, "grpc-filter");
            let text = format!("gRPC {has_not} reject the filter {}, which only {has} have", short(found));
            scope.report_with(fault, path, "typed_config", text, optional);
            true
        }
        None if !is_optional => {
            let fault = Fault::new("B29", Rejected, "grpc-filter");
            let text = format!("gRPC does not support the filter {} and rejects it", short(found));
            scope.report_with(fault, path, "typed_config", text, optional);
            true
        }
        Some(_) | None => {
            let fault = Fault::new("B29", Ignored, "grpc-filter-ignored");
            let text = format!("gRPC does not support the filter {} here and ignores it", short(found));
            scope.report(fault, path, "typed_config", text);
            false
        }
    }
}

/// Rows B134 and B169, for each entry of `typed_per_filter_config`.
pub(super) fn overrides(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let map_path = path.field("typed_per_filter_config");
    for (key, any) in entries(message, "typed_per_filter_config") {
        let path = map_path.key(&key);
        if key.is_empty() {
            let fault = Fault::new("B134", Rejected, "grpc-filter-override").by(&[Language::Core]);
            scope.report(fault, &path, "", "gRPC (C-core) rejects an override for a filter without a name");
        }
        let found = type_of(scope.inner, &any);
        let is_wrapped = found == FILTER_CONFIG;
        let (found, is_optional) = if is_wrapped {
            let Some(config) = decode_any(scope.inner, &any) else { continue };
            let inner = child(&config, "config").map(|any| type_of(scope.inner, &any));
            let Some(inner) = inner else {
                let fault = Fault::new("B134", Rejected, "grpc-filter-override");
                let text = "gRPC (C-core, go, js) rejects a `FilterConfig` without `config`, even one that disables the filter";
                scope.report(fault.by(&[Language::Core, Language::Go, Language::Js]), &path, "config", text);
                continue;
            };
            (inner, has(&config, "is_optional"))
        } else {
            (found, false)
        };
        if found == RBAC_PER_ROUTE && scope.side == Side::Client && !is_optional {
            let fault =
                Fault::new("B134", Rejected, "grpc-filter-override").by(&[Language::Go, Language::Js]);
            let text = "gRPC clients (go, js) reject an override of RBAC, which only servers have";
            scope.report(fault, &path, "", text);
        }
        if is_wrapped && FILTERS.iter().any(|filter| filter.name == found && filter.refused_by.is_empty()) {
            let fault = Fault::new("B134", Rejected, "grpc-filter-override").by(&[Language::Js]);
            let text = "gRPC (js) cannot read an override in a `FilterConfig`, and rejects it";
            scope.report(fault, &path, "config", text);
        }
        if FILTERS.iter().any(|filter| filter.overridden_by == found) || is_optional {
            continue;
        }
        let top_level = FILTERS.iter().find(|filter| filter.name == found);
        let (row, text, suggestion) = match top_level {
            Some(filter) if !filter.overridden_by.is_empty() => (
                "B169",
                format!("gRPC rejects {} as an override of a filter", short(&found)),
                Some(short(filter.overridden_by).to_owned()),
            ),
            Some(_) | None => (
                "B134",
                format!(
                    "gRPC has no filter that {} could override, and rejects it unless it is wrapped in a FilterConfig with `is_optional`",
                    short(&found)
                ),
                None,
            ),
        };
        let fault = Fault::new(row, Rejected, "grpc-filter-override");
        scope.report_with(fault, &path, "", text, suggestion);
    }
}

/// Row B155.
pub(super) fn stateful_session(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(state) = child(message, "session_state").and_then(|state| child(&state, "typed_config")) else {
        return;
    };
    let found = type_of(scope.inner, &state);
    if found != COOKIE_STATE {
        let fault = Fault::new("B155", Rejected, "grpc-stateful-session");
        let text = format!("gRPC rejects a session state of type {}", short(&found));
        let suggestion = Some(short(COOKIE_STATE).to_owned());
        scope.report_with(fault, path, "session_state.typed_config", text, suggestion);
    }
}

const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";
