//! Converts a tree to the canonical bytes of a message, by the JSON mapping of proto3. It reports every fault, not only the first.
//!
//! The bytes are written directly in the order of field numbers, because any form between tree and bytes would cost more than both.

use std::cmp::Ordering;

use bytes::Bytes;
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MapKey, MessageDescriptor};

use crate::diagnostic::{echo_name, nearest};
use crate::document::{Entries, Entry, Node, Position, TreeValue};
use crate::facts::{FieldFacts, MessageFacts};
use crate::finding::Finding;
use crate::message::Message;
use crate::path::Path;

mod converter;
pub(crate) mod known;
mod scalar;

pub(crate) use converter::Converter;
use converter::Scope;
pub use converter::UnknownFields;

impl Converter<'_> {
    /// Converts a whole message, and skips an `@type` next to its fields. If the findings have errors, the message cannot be used.
    pub(crate) fn convert(&mut self, message: &MessageDescriptor, tree: Node<'_>) -> Message {
        self.message(message, tree, &Path::Root, Scope { may_have_type: true, ..Scope::default() });
        let bytes = std::mem::take(&mut self.writer).finish();
        let bytes = if self.findings.has_errors() { Bytes::new() } else { bytes };
        Message::new(message.clone(), bytes)
    }

    /// Writes the content of a message.
    fn message(&mut self, descriptor: &MessageDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        if scope.n_messages >= MAX_MESSAGE_DEPTH {
            return self.fault(
                "too-deep",
                "messages are nested too deeply for protobuf parsers",
                tree,
                path,
                scope,
            );
        }
        let may_have_type = scope.may_have_type;
        let scope = Scope { n_messages: scope.n_messages + 1, may_have_type: false, ..scope };
        if self.known_message(descriptor, tree, path, scope) {
            return;
        }
        let TreeValue::Object(entries) = tree.value() else {
            // The value may be one that belongs into a field of the object.
            let holds_secret = || self.inner.facts.hold_secret(descriptor);
            let is_sensitive = scope.is_sensitive || holds_secret();
            return self.wrong_type("an object", tree, path, Scope { is_sensitive, ..scope });
        };
        let facts = self.inner.facts.of(descriptor);
        let mut members = Members::default();
        for entry in entries {
            if may_have_type && entry.key == "@type" {
                continue;
            }
            match facts.field(entry.key) {
                Some(field) => self.member(&mut members, field, entry, path),
                None => self.unknown_field(descriptor, &facts, entry, path),
            }
        }
        members.taken.sort_unstable_by_key(|(field, _)| field.descriptor.number());
        for (field, value) in members.taken {
            let scope = Scope { is_sensitive: scope.is_sensitive || field.is_sensitive, ..scope };
            let path = path.field(field.descriptor.name());
            if field.is_deprecated {
                let key = members.seen.iter().find(|(number, _)| *number == field.descriptor.number());
                let position = key.map_or_else(|| value.position(), |(_, position)| *position);
                let full_name = field.descriptor.full_name();
                self.findings.deprecated.note(full_name, position, &path, scope.is_sensitive);
            }
            self.field(&field.descriptor, value, &path, scope);
        }
    }

    /// Records that a field is set. Reports a duplicate, and ignores null.
    fn member<'f, 't>(
        &mut self,
        members: &mut Members<'f, 't>,
        facts: &'f FieldFacts,
        entry: Entry<'t>,
        path: &Path<'_>,
    ) {
        let field = &facts.descriptor;
        let path = path.field(field.name());
        if let Some((_, first)) = members.seen.iter().find(|(number, _)| *number == field.number()) {
            let text =
                format!("the field appears twice, as {} and in another spelling", echo_name(entry.key));
            let finding = Finding::error("duplicate-field", &path, text).at(entry.position);
            return self.findings.push(Finding { related: vec![*first], ..finding });
        }
        members.seen.push((field.number(), entry.position));
        if entry.value.is_null() && !takes_null(field) {
            return;
        }
        if let Some(oneof) = field.containing_oneof().filter(|oneof| !oneof.is_synthetic()) {
            let of_same =
                members.oneofs.iter().find(|(other, _)| other.containing_oneof() == Some(oneof.clone()));
            if let Some((other, first)) = of_same {
                let text = format!("only one of `{}` and `{}` can be set", other.name(), field.name());
                let finding = Finding::error("oneof-conflict", &path, text).at(entry.position);
                return self.findings.push(Finding { related: vec![*first], ..finding });
            }
            members.oneofs.push((field.clone(), entry.position));
        }
        members.taken.push((facts, entry.value));
    }

    fn field(&mut self, field: &FieldDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        if field.is_map() {
            let Kind::Message(entry_type) = field.kind() else { return };
            let TreeValue::Object(entries) = tree.value() else {
                return self.wrong_type("an object", tree, path, scope);
            };
            return self.map(field.number(), &entry_type, entries, path, scope);
        }
        if field.cardinality() == Cardinality::Repeated {
            return self.list(field, tree, path, scope);
        }
        if let Kind::Message(descriptor) = field.kind() {
            return self.nested(field, &descriptor, tree, path, scope);
        }
        if let Some(value) = self.scalar(&field.kind(), tree, path, scope)
            && (field.supports_presence() || !value.is_default_for_field(field))
        {
            self.writer.field(field.number(), &field.kind(), &value);
        }
    }

    fn nested(
        &mut self,
        field: &FieldDescriptor,
        descriptor: &MessageDescriptor,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) {
        if field.is_group() {
            self.writer.begin_group(field.number());
            self.message(descriptor, tree, path, scope);
            return self.writer.end_group(field.number());
        }
        let open = self.writer.open(field.number());
        self.message(descriptor, tree, path, scope);
        self.writer.close(open);
    }

    fn list(&mut self, field: &FieldDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let Some(items) = tree.as_list() else {
            return self.wrong_type("a list", tree, path, scope);
        };
        let kind = field.kind();
        let packed = field.is_packed().then(|| self.writer.open(field.number()));
        for (index, item) in items.enumerate() {
            let path = path.index(index);
            if item.is_null() && !kind_takes_null(&kind) {
                self.fault("wrong-type", "a list cannot contain null", item, &path, scope);
                continue;
            }
            if let Kind::Message(descriptor) = &kind {
                self.nested(field, descriptor, item, &path, scope);
                continue;
            }
            match (self.scalar(&kind, item, &path, scope), packed) {
                (Some(value), Some(_)) => self.writer.number(&kind, &value),
                (Some(value), None) => self.writer.field(field.number(), &kind, &value),
                (None, _) => {}
            }
        }
        if let Some(open) = packed {
            self.writer.close_unless_empty(open);
        }
    }

    /// Writes the entries of a map, sorted by key.
    fn map(
        &mut self,
        number: u32,
        entry_type: &MessageDescriptor,
        entries: Entries<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let (key_kind, value_kind) = (key_field.kind(), value_field.kind());
        // A map entry is a message too.
        let scope = Scope { n_messages: scope.n_messages + 1, ..scope };
        // Offsets instead of entries, because a map can have one entry for every four bytes of text.
        let mut sorted = Vec::with_capacity(entries.len());
        for entry in entries {
            if scalar::map_key(&key_kind, entry.key).is_some() {
                sorted.push(entry.offset());
                continue;
            }
            let text = format!("the key {} is not {}", echo_name(entry.key), scalar::expected(&key_kind));
            self.findings.push(Finding::error("bad-map-key", &path.key(entry.key), text).at(entry.position));
        }
        sorted.sort_by(|a, b| match (entries.at(*a), entries.at(*b)) {
            (Some(a), Some(b)) => compare_keys(&key_kind, a.key, b.key),
            (_, _) => Ordering::Equal,
        });
        let mut last: Option<MapKey> = None;
        for entry in sorted.into_iter().filter_map(|at| entries.at(at)) {
            let path = path.key(entry.key);
            if entry.value.is_null() && !kind_takes_null(&value_kind) {
                self.fault("wrong-type", "a map cannot contain null", entry.value, &path, scope);
                continue;
            }
            let Some(key) = scalar::map_key(&key_kind, entry.key) else { continue };
            if last.as_ref() == Some(&key) {
                let finding = Finding::error("duplicate-key", &path, "the key appears twice");
                self.findings.push(finding.at(entry.position));
            }
            let open = self.writer.open(number);
            self.writer.map_key(&key_kind, key.clone());
            if let Kind::Message(descriptor) = &value_kind {
                self.nested(&value_field, descriptor, entry.value, &path, scope);
            } else if let Some(value) = self.scalar(&value_kind, entry.value, &path, scope) {
                self.writer.field(value_field.number(), &value_kind, &value);
            }
            self.writer.close(open);
            last = Some(key);
        }
    }

    fn unknown_field(
        &mut self,
        descriptor: &MessageDescriptor,
        facts: &MessageFacts,
        entry: Entry<'_>,
        path: &Path<'_>,
    ) {
        if self.unknown_fields == UnknownFields::Ignore {
            return;
        }
        let suggestion = self
            .findings
            .wants_suggestions()
            .then(|| nearest(entry.key, facts.fields.iter().map(|field| field.descriptor.name())))
            .flatten();
        let name = cut(entry.key);
        let text = format!("unknown field in {}", descriptor.full_name());
        let finding = Finding::error("unknown-field", &path.field(&name), text).at(entry.position);
        self.findings.push(finding.suggest(suggestion));
    }
}

/// The fields and oneofs of one message that are set, with their positions.
#[derive(Default)]
struct Members<'f, 't> {
    seen: Vec<(u32, Position)>,
    oneofs: Vec<(FieldDescriptor, Position)>,
    taken: Vec<(&'f FieldFacts, Node<'t>)>,
}

/// Compares the texts of two map keys by the order of their kind.
fn compare_keys(kind: &Kind, a: &str, b: &str) -> Ordering {
    if matches!(kind, Kind::String) {
        return a.cmp(b);
    }
    scalar::map_key(kind, a).cmp(&scalar::map_key(kind, b))
}

/// Shortens a key for a path, because keys can have any length.
fn cut(key: &str) -> String {
    key.chars().take(80).flat_map(char::escape_debug).collect()
}

fn takes_null(field: &FieldDescriptor) -> bool {
    !field.is_list() && !field.is_map() && kind_takes_null(&field.kind())
}

/// Returns `true` if `null` is a value of the kind: of `google.protobuf.Value` and `NullValue`. Elsewhere, it means that nothing is set.
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

/// The limit of protobuf parsers, including Envoy's.
const MAX_MESSAGE_DEPTH: usize = 100;
