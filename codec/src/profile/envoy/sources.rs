//! Where Envoys get more resources from (row D129).

use super::super::rule::{Scope, enum_at, has};
use super::shared::{fault, refuse};
use crate::message::{Message, child, list, text};
use crate::path::Path;

const ROW: (&str, &str) = ("D129", "envoy-config-source");

/// Envoy does not know `self`, and an `api_config_source` names its protocol.
pub(super) fn source(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "self") {
        let text = "Envoy rejects a config source of `self`, which only gRPC has".to_owned();
        scope.report_with(fault(ROW), path, "self", text, Some("ads: {}".to_owned()));
    }
    if child(message, "api_config_source").is_some_and(|api| enum_at(&api, "api_type") == UNSET) {
        let text = "Envoy rejects a config source without an `api_type`".to_owned();
        scope.report_with(fault(ROW), path, "api_config_source.api_type", text, Some("GRPC".to_owned()));
    }
}

/// Routes by discovery say from where, unless their name does.
pub(super) fn routes(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let name = text(message, "route_config_name").unwrap_or_default();
    if !has(message, "config_source") && !name.starts_with(GLOBAL) {
        let text = "Envoy rejects `rds` without `config_source`".to_owned();
        scope.report_with(
            fault(ROW),
            path,
            "config_source",
            text,
            Some("config_source: {ads: {}}".to_owned()),
        );
    }
}

/// Virtual hosts on demand come by incremental xDS alone.
pub(super) fn virtual_hosts(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(source) = child(message, "vhds").and_then(|vhds| child(&vhds, "config_source")) else { return };
    let api = child(&source, "api_config_source");
    let is_delta = api.is_some_and(|api| enum_at(&api, "api_type") == DELTA_GRPC);
    if !is_delta && !has(&source, "ads") && !has(&source, "self") {
        let text = "Envoy takes virtual hosts only by `ads` or DELTA_GRPC, and rejects the resource";
        refuse(ROW, path, "vhds.config_source", text, scope);
    }
}

/// The endpoints of a locality by discovery have a name of the new form.
pub(super) fn endpoints(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(config) = child(message, "leds_cluster_locality_config") else { return };
    let name = text(&config, "leds_collection_name").unwrap_or_default();
    if ![GLOBAL, "http://", "file://"].iter().any(|scheme| name.starts_with(scheme))
        && list(message, "lb_endpoints").is_empty()
    {
        let text = "Envoy rejects a collection whose name does not begin with `xdstp://`";
        refuse(ROW, path, "leds_cluster_locality_config.leds_collection_name", text, scope);
    }
}

const GLOBAL: &str = "xdstp://";
/// Its name says that it must not be used.
const UNSET: i32 = 0;
const DELTA_GRPC: i32 = 3;
