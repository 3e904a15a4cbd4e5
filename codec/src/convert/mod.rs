//! From a tree to a message, by the JSON mapping of proto3, with every fault and not only the first.

use std::collections::HashMap;

use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

use crate::diagnostic::{echo_name, nearest};
use crate::document::{Entry, Position, Tree, TreeValue};
use crate::facts::{FieldFacts, MessageFacts};
use crate::finding::{Finding, Findings};
use crate::inner::Inner;
use crate::path::Path;

pub(crate) mod known;
mod scalar;

/// What to do with a field that the message does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownFields {
    /// It is a fault.
    Refuse,
    /// It is left out, because a newer client may know more than we do.
    Ignore,
}

/// One conversion; the message is good only if the findings have no errors.
pub(crate) struct Converter<'c> {
    inner: &'c Inner,
    unknown_fields: UnknownFields,
    pub(crate) findings: Findings,
}

/// What is known on the way down to a value.
#[derive(Clone, Copy, Default)]
struct Scope {
    /// How many messages enclose the value, up to the nearest `Any`, which is bytes to a reader of the outer message.
    n_messages: usize,
    /// How many `Any`s do.
    n_anys: usize,
    /// Whether an enclosing field is secret.
    is_sensitive: bool,
    /// Whether the object may carry an `@type`, because it is a resource or the content of an `Any`.
    may_have_type: bool,
}

impl<'c> Converter<'c> {
    pub(crate) fn new(inner: &'c Inner, unknown_fields: UnknownFields) -> Self {
        Self { inner, unknown_fields, findings: Findings::default() }
    }

    /// Converts a whole message; an `@type` beside its fields is skipped.
    pub(crate) fn convert(&mut self, message: &MessageDescriptor, tree: &Tree) -> DynamicMessage {
        self.message(message, tree, &Path::Root, Scope { may_have_type: true, ..Scope::default() })
    }

    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) -> DynamicMessage {
        if scope.n_messages >= MAX_MESSAGE_DEPTH {
            self.fault("too-deep", "messages nest too deep for readers of protobuf", tree, path, scope);
            return DynamicMessage::new(descriptor.clone());
        }
        let may_have_type = scope.may_have_type;
        let scope = Scope { n_messages: scope.n_messages + 1, may_have_type: false, ..scope };
        if let Some(message) = self.known_message(descriptor, tree, path, scope) {
            return message;
        }
        let mut message = DynamicMessage::new(descriptor.clone());
        let TreeValue::Object(entries) = &tree.value else {
            self.wrong_type("an object", tree, path, scope);
            return message;
        };
        let facts = self.inner.facts.of(descriptor);
        let mut members = Members::default();
        for entry in entries {
            if may_have_type && entry.key == "@type" {
                continue;
            }
            match facts.field(&entry.key) {
                Some(field) => self.field(&mut message, field, entry, &mut members, path, scope),
                None => self.unknown_field(descriptor, &facts, entry, path),
            }
        }
        message
    }

    fn field(
        &mut self,
        message: &mut DynamicMessage,
        facts: &FieldFacts,
        entry: &Entry,
        members: &mut Members,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let field = &facts.descriptor;
        let path = path.field(field.name());
        if let Some(first) = members.fields.insert(field.number(), entry.position) {
            let text =
                format!("the field is there twice, as {} and in its other spelling", echo_name(&entry.key));
            let finding = Finding::error("duplicate-field", &path, text).at(entry.position);
            self.findings.push(Finding { related: vec![first], ..finding });
            return;
        }
        if entry.value.value == TreeValue::Null && !takes_null(field) {
            return;
        }
        if let Some(oneof) = field.containing_oneof().filter(|oneof| !oneof.is_synthetic())
            && let Some((other, first)) =
                members.oneofs.insert(oneof.name().to_owned(), (field.clone(), entry.position))
        {
            let text = format!("only one of `{}` and `{}` can be set", other.name(), field.name());
            let finding = Finding::error("oneof-conflict", &path, text).at(entry.position);
            self.findings.push(Finding { related: vec![first], ..finding });
            return;
        }
        if facts.is_deprecated {
            self.findings.deprecated.insert(field.full_name().to_owned());
        }
        let scope = Scope { is_sensitive: scope.is_sensitive || facts.is_sensitive, ..scope };
        if let Some(value) = self.field_value(field, &entry.value, &path, scope) {
            message.set_field(field, value);
        }
    }

    fn field_value(
        &mut self,
        field: &FieldDescriptor,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) -> Option<Value> {
        if field.is_map() {
            return self.map(field, tree, path, scope);
        }
        if field.cardinality() != Cardinality::Repeated {
            return self.value(&field.kind(), tree, path, scope);
        }
        let Some(items) = tree.as_list() else {
            self.wrong_type("a list", tree, path, scope);
            return None;
        };
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            if item.value == TreeValue::Null && !kind_takes_null(&field.kind()) {
                self.fault("wrong-type", "a list cannot hold null", item, &path, scope);
                continue;
            }
            values.extend(self.value(&field.kind(), item, &path, scope));
        }
        Some(Value::List(values))
    }

    fn map(&mut self, field: &FieldDescriptor, tree: &Tree, path: &Path<'_>, scope: Scope) -> Option<Value> {
        let Kind::Message(entry_type) = field.kind() else { return None };
        let TreeValue::Object(entries) = &tree.value else {
            self.wrong_type("an object", tree, path, scope);
            return None;
        };
        let (key_kind, value_kind) =
            (entry_type.map_entry_key_field().kind(), entry_type.map_entry_value_field().kind());
        // A map entry is a message too.
        let scope = Scope { n_messages: scope.n_messages + 1, ..scope };
        let mut map: HashMap<MapKey, Value> = HashMap::with_capacity(entries.len());
        for entry in entries {
            let path = path.key(&entry.key);
            let Some(key) = scalar::map_key(&key_kind, &entry.key) else {
                let text =
                    format!("the key {} is not {}", echo_name(&entry.key), scalar::expected(&key_kind));
                self.findings.push(Finding::error("bad-map-key", &path, text).at(entry.position));
                continue;
            };
            if entry.value.value == TreeValue::Null && !kind_takes_null(&value_kind) {
                self.fault("wrong-type", "a map cannot hold null", &entry.value, &path, scope);
                continue;
            }
            if let Some(value) = self.value(&value_kind, &entry.value, &path, scope)
                && map.insert(key, value).is_some()
            {
                self.findings.push(
                    Finding::error("duplicate-key", &path, "the key is there twice").at(entry.position),
                );
            }
        }
        Some(Value::Map(map))
    }

    fn value(&mut self, kind: &Kind, tree: &Tree, path: &Path<'_>, scope: Scope) -> Option<Value> {
        match kind {
            Kind::Message(message) => Some(Value::Message(self.message(message, tree, path, scope))),
            Kind::Enum(descriptor) => self.enum_value(descriptor, tree, path, scope),
            Kind::Double
            | Kind::Float
            | Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64
            | Kind::Bool
            | Kind::String
            | Kind::Bytes => self.scalar(kind, tree, path, scope),
        }
    }

    fn unknown_field(
        &mut self,
        descriptor: &MessageDescriptor,
        facts: &MessageFacts,
        entry: &Entry,
        path: &Path<'_>,
    ) {
        if self.unknown_fields == UnknownFields::Ignore {
            return;
        }
        let suggestion = self
            .findings
            .wants_suggestions()
            .then(|| nearest(&entry.key, facts.fields.iter().map(|field| field.descriptor.name())))
            .flatten();
        let name = cut(&entry.key);
        let text = format!("unknown field in {}", descriptor.full_name());
        let finding = Finding::error("unknown-field", &path.field(&name), text).at(entry.position);
        self.findings.push(finding.suggest(suggestion));
    }

    /// Reports a value of the wrong kind; shows a scalar unless it is secret.
    fn wrong_type(&mut self, expected: &str, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let text = format!("expected {expected}, found {}", Self::describe(tree, scope));
        self.fault("wrong-type", text, tree, path, scope);
    }

    fn fault(
        &mut self,
        code: &'static str,
        text: impl Into<String>,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let finding = Finding::error(code, path, text).at(tree.position);
        self.findings.push(Finding { is_sensitive: scope.is_sensitive, ..finding });
    }
}

/// Where the fields and oneofs of one message were set.
#[derive(Default)]
struct Members {
    fields: HashMap<u32, Position>,
    oneofs: HashMap<String, (FieldDescriptor, Position)>,
}

/// Keys of users can be of any length; paths hold their beginning.
fn cut(key: &str) -> String {
    key.chars().take(80).flat_map(char::escape_debug).collect()
}

fn takes_null(field: &FieldDescriptor) -> bool {
    !field.is_list() && !field.is_map() && kind_takes_null(&field.kind())
}

/// `null` is a value of `google.protobuf.Value` and of `NullValue`; everywhere else it means that nothing is set.
fn kind_takes_null(kind: &Kind) -> bool {
    match kind {
        Kind::Message(message) => message.full_name() == "google.protobuf.Value",
        Kind::Enum(descriptor) => descriptor.full_name() == "google.protobuf.NullValue",
        Kind::Double
        | Kind::Float
        | Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64
        | Kind::Bool
        | Kind::String
        | Kind::Bytes => false,
    }
}

/// Readers of protobuf, ours and Envoy's, refuse messages that nest deeper.
const MAX_MESSAGE_DEPTH: usize = 100;
