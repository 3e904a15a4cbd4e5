//! The texts of a JSON value that may differ in another message of the same shape.

use std::sync::Arc;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::Value as Json;

use super::skeleton::type_of;
use crate::facts::MessageFacts;
use crate::inner::Inner;
use crate::path::Path;
use crate::{lint, pgv};

/// One text of a value.
pub(super) struct Text<'j> {
    pub(super) text: &'j str,
    /// Its field path.
    pub(super) path: String,
    /// The rules for other texts in its place; `None` if the text must not change.
    pub(super) hole: Option<Hole>,
}

/// A field whose text may change.
#[derive(Clone)]
pub(super) struct Hole {
    message: Arc<MessageFacts>,
    /// The index of the field.
    field: usize,
}

impl Hole {
    /// Returns `true` if the rules of the field allow the text. The text is not empty.
    pub(super) fn allows(&self, text: &str) -> bool {
        self.message.is_unchecked
            || self.message.fields.get(self.field).is_none_or(|field| pgv::allows(field, text))
    }
}

/// The texts of a resource of this type, in the order of [`Skeleton::texts`](super::skeleton::Skeleton::texts).
pub(super) fn texts<'j>(inner: &Inner, message: &MessageDescriptor, json: &'j Json) -> Vec<Text<'j>> {
    let mut finder = Finder { inner, texts: Vec::new() };
    finder.object(Some(message), json, &Path::Root, true);
    finder.texts
}

struct Finder<'i, 'j> {
    inner: &'i Inner,
    texts: Vec<Text<'j>>,
}

/// The kind of value that contains a text.
#[derive(Clone, Copy)]
enum Of<'f> {
    Message(&'f MessageDescriptor),
    Field(&'f Arc<MessageFacts>, usize),
    /// A value whose texts have a special meaning: enums, times, base64, maps and everything in them.
    Other,
}

impl<'j> Finder<'_, 'j> {
    fn value(&mut self, of: Of<'_>, json: &'j Json, path: &Path<'_>, may_differ: bool) {
        match json {
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
            Json::String(text) if text.is_empty() => {}
            Json::String(text) => {
                let hole = match of {
                    Of::Field(message, field) if may_differ => {
                        Some(Hole { message: Arc::clone(message), field })
                    }
                    Of::Field(..) | Of::Message(_) | Of::Other => None,
                };
                self.texts.push(Text { text, path: path.to_string(), hole });
            }
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(of, item, &path.index(index), may_differ);
                }
            }
            Json::Object(_) => {
                let message = if let Of::Message(message) = of { Some(message) } else { None };
                // Only the lints of the whole resource run again.
                let may_differ =
                    may_differ && message.is_some_and(|message| !lint::depends_on_texts(message.full_name()));
                self.object(message, json, path, may_differ);
            }
        }
    }

    fn object(
        &mut self,
        message: Option<&MessageDescriptor>,
        json: &'j Json,
        path: &Path<'_>,
        may_differ: bool,
    ) {
        let entries = || json.as_object().into_iter().flatten();
        let content = match message.map(MessageDescriptor::full_name) {
            Some("google.protobuf.Any") => {
                let type_url = entries().find_map(|(key, value)| type_of(key, value));
                return match type_url.and_then(|type_url| self.inner.message_of_url(type_url)) {
                    Some(content) if content.full_name() != "google.protobuf.Any" => {
                        self.value(Of::Message(&content), json, path, may_differ);
                    }
                    Some(_) | None => self.object(None, json, path, false),
                };
            }
            Some(name) if name.starts_with("google.protobuf.") => None,
            Some(_) | None => message,
        };
        let facts = content.map(|content| self.inner.facts.of(content));
        for (key, value) in entries().filter(|(key, value)| type_of(key, value).is_none()) {
            let field = facts.as_ref().and_then(|facts| Some((facts, facts.position(key)?)));
            let known = field.and_then(|(facts, at)| Some((facts, at, facts.fields.get(at)?)));
            let Some((facts, at, field)) = known else {
                self.value(Of::Other, value, &path.field(key), false);
                continue;
            };
            let path = path.field(field.descriptor.name());
            let may_differ = may_differ && !field.is_sensitive && !pgv::compares_items(field);
            match (field.descriptor.is_map(), field.descriptor.kind()) {
                (true, _) => self.map(&field.descriptor, value, &path),
                (false, Kind::String) => self.value(Of::Field(facts, at), value, &path, may_differ),
                (false, Kind::Message(nested)) => {
                    self.value(Of::Message(&nested), value, &path, may_differ);
                }
                (false, _) => self.value(Of::Other, value, &path, false),
            }
        }
    }

    fn map(&mut self, field: &FieldDescriptor, json: &'j Json, path: &Path<'_>) {
        let value = field.kind().as_message().map(MessageDescriptor::map_entry_value_field);
        let kind = value.map(|value| value.kind());
        let of = kind.as_ref().and_then(Kind::as_message).map_or(Of::Other, Of::Message);
        for (key, value) in json.as_object().into_iter().flatten() {
            // An entry of a map may have the key `@type`. Then its text is part of the skeleton.
            if type_of(key, value).is_none() {
                self.value(of, value, &path.key(key), false);
            }
        }
    }
}
