//! Used by the rules of several parts.

use super::super::Effect::Rejected;
use super::super::any::type_of;
use super::super::rule::{Fault, Scope, value_at};
use crate::inner::Inner;
use crate::message::{Message, child};
use crate::path::Path;

/// The message of the HTTP connection manager.
pub(super) const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/// The row and the code of its rules.
pub(super) const MANAGER_ROW: (&str, &str) = ("D117", "envoy-connection-manager");

/// Reports that Envoy rejects the resource.
pub(super) fn refuse(
    row: (&'static str, &'static str),
    path: &Path<'_>,
    field: &str,
    text: impl Into<String>,
    scope: &mut Scope<'_>,
) {
    scope.report(fault(row), path, field, text);
}

pub(super) const fn fault((row, code): (&'static str, &'static str)) -> Fault {
    Fault::new(row, Rejected, code)
}

pub(super) fn types(filters: &[Message], inner: &Inner) -> Vec<String> {
    let configs = filters.iter().map(|filter| child(filter, "typed_config"));
    configs.map(|any| any.map(|any| type_of(inner, &any)).unwrap_or_default()).collect()
}

pub(super) fn is_true(message: &Message, field: &str) -> bool {
    value_at(message, field).is_some_and(|value| value.as_bool() == Some(true))
}
