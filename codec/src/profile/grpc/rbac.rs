//! The RBAC filter of gRPC servers (B.6).

use super::super::Effect::{Differs, Ignored, Rejected};
use super::super::any::{short, type_of};
use super::super::rule::{Fault, Rule, Scope, Side, When, enum_at, value_at};
use crate::message::{Message, child, list, text};
use crate::path::Path;

pub(super) const PERMISSION: &str = "envoy.config.rbac.v3.Permission";
pub(super) const PRINCIPAL: &str = "envoy.config.rbac.v3.Principal";
const POLICY: &str = "envoy.config.rbac.v3.Policy";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "B146",
        (Rejected, "grpc-rbac"),
        POLICY,
        (When::Set, &["condition", "checked_condition"]),
        "a gRPC server rejects a policy with `{}`",
    )
    .on(Side::Server),
    Rule::new(
        "B151",
        (Differs, "grpc-rbac"),
        PERMISSION,
        (When::Set, &["metadata", "requested_server_name"]),
        "in a gRPC server `{}` never matches",
    )
    .on(Side::Server),
    Rule::new(
        "B151",
        (Differs, "grpc-rbac"),
        PRINCIPAL,
        (When::Set, &["metadata"]),
        "in a gRPC server `{}` never matches",
    )
    .on(Side::Server),
    Rule::new(
        "B150",
        (Ignored, "grpc-rbac"),
        "envoy.extensions.filters.http.rbac.v3.RBAC",
        (When::Set, &["shadow_rules", "shadow_matcher", "matcher"]),
        "gRPC ignores `{}`",
    )
    .on(Side::Server),
    Rule::new(
        "B152",
        (Rejected, "grpc-rbac"),
        PERMISSION,
        (When::Set, &["matcher", "uri_template"]),
        "a gRPC server rejects `{}`, which it does not know",
    )
    .on(Side::Server),
    Rule::new(
        "B152",
        (Rejected, "grpc-rbac"),
        PRINCIPAL,
        (When::Set, &["filter_state"]),
        "a gRPC server rejects `{}`, which it does not know",
    )
    .on(Side::Server),
];

/// Row B147.
pub(super) fn rule(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let name = child(message, "header").and_then(|header| text(&header, "name")).unwrap_or_default();
    if scope.side == Side::Server && (name.starts_with("grpc-") || name == ":scheme") {
        let fault = Fault::new("B147", Rejected, "grpc-rbac");
        scope.report(fault, path, "header.name", "a gRPC server rejects a rule about this header");
    }
}

/// Rows B148 and B153.
pub(super) fn rules(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if scope.side == Side::Client {
        return;
    }
    if enum_at(message, "action") == LOG {
        let fault = Fault::new("B148", Ignored, "grpc-rbac");
        scope.report(fault, path, "action", "gRPC ignores a filter whose action is LOG");
    }
    let Some(options) = child(message, "audit_logging_options") else { return };
    let options_path = path.field("audit_logging_options");
    let loggers_path = options_path.field("logger_configs");
    for (index, logger) in list(&options, "logger_configs").iter().enumerate() {
        let config = child(logger, "audit_logger").and_then(|logger| child(&logger, "typed_config"));
        let found = config.map(|any| type_of(scope.inner, &any)).unwrap_or_default();
        if found != STDOUT_LOG && value_at(logger, "is_optional").is_none() {
            let fault = Fault::new("B153", Rejected, "grpc-rbac");
            let text = format!("gRPC does not support the audit logger {} and rejects it", short(&found));
            let suggestion = Some("is_optional: true".to_owned());
            scope.report_with(fault, &loggers_path.index(index), "audit_logger", text, suggestion);
        }
    }
}

const LOG: i32 = 2;

const STDOUT_LOG: &str = "envoy.extensions.rbac.audit_loggers.stream.v3.StdoutAuditLog";
