//! The state of one conversion, and its reports of faults.

use crate::diagnostic::echo;
use crate::document::{Node, TreeValue};
use crate::finding::{Finding, Findings};
use crate::inner::Inner;
use crate::path::Path;
use crate::wire::Writer;

/// How a field is treated that the message does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFields {
    /// It is a fault.
    Refuse,
    /// It is left out, because a newer client may know fields that the server does not.
    Ignore,
}

/// One conversion. The message can be used only if the findings have no errors.
pub(crate) struct Converter<'c> {
    pub(super) inner: &'c Inner,
    pub(super) unknown_fields: UnknownFields,
    pub(super) writer: Writer,
    pub(crate) findings: Findings,
}

/// Facts that are collected on the way down to a value.
#[derive(Clone, Copy, Default)]
pub(super) struct Scope {
    /// The number of messages around the value, up to the nearest `Any`, whose content is only bytes in the outer message.
    pub(super) n_messages: usize,
    /// The number of `Any`s around the value.
    pub(super) n_anys: usize,
    /// True if an enclosing field is secret.
    pub(super) is_sensitive: bool,
    /// True if the object may carry an `@type`, because it is a resource or the content of an `Any`.
    pub(super) may_have_type: bool,
}

impl<'c> Converter<'c> {
    pub(crate) fn new(inner: &'c Inner, unknown_fields: UnknownFields) -> Self {
        Self { inner, unknown_fields, writer: Writer::default(), findings: Findings::default() }
    }

    /// Reports a value of the wrong kind. A scalar is shown unless it is secret.
    pub(super) fn wrong_type(&mut self, expected: &str, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let text = format!("expected {expected}, found {}", Self::describe(tree, scope));
        self.fault("wrong-type", text, tree, path, scope);
    }

    pub(super) fn fault(
        &mut self,
        code: &'static str,
        text: impl Into<String>,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let finding = Finding::error(code, path, text).at(tree.position());
        self.findings.push(Finding { is_sensitive: scope.is_sensitive, ..finding });
    }

    /// The kind of a value and, if it is a scalar and not secret, the value.
    pub(super) fn describe(tree: Node<'_>, scope: Scope) -> String {
        let kind = tree.kind();
        if scope.is_sensitive {
            return kind.to_owned();
        }
        match tree.value() {
            TreeValue::Null | TreeValue::List(_) | TreeValue::Object(_) => kind.to_owned(),
            TreeValue::Bool(truth) => format!("{kind}, {truth}"),
            TreeValue::Number(number) => format!("{kind}, {number}"),
            TreeValue::String(text) => format!("{kind}, {}", echo(text)),
        }
    }
}
