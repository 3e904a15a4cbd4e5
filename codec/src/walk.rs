//! Visits every message of a resource, those inside `Any`s too.

use prost_reflect::{DynamicMessage, Kind, ReflectMessage, Value};

use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::path::Path;

/// Calls `visit` for the message and for each message below it, a parent before its children. The content of an `Any`
/// has the path of the `Any`, as in JSON. `Any`s that cannot be decoded are left out; so is the `Any` itself if it can.
pub(crate) fn walk(
    inner: &Inner,
    message: &DynamicMessage,
    visit: &mut dyn FnMut(&Path<'_>, &DynamicMessage),
) {
    Walker { inner, visit, n_anys: 0 }.message(message, &Path::Root);
}

struct Walker<'w> {
    inner: &'w Inner,
    visit: &'w mut dyn FnMut(&Path<'_>, &DynamicMessage),
    n_anys: usize,
}

impl Walker<'_> {
    fn message(&mut self, message: &DynamicMessage, path: &Path<'_>) {
        let descriptor = message.descriptor();
        if descriptor.full_name() == "google.protobuf.Any" {
            if self.n_anys < MAX_ANY_DEPTH
                && let Some(content) = decode_any(self.inner, message)
            {
                self.n_anys += 1;
                self.message(&content, path);
                self.n_anys -= 1;
            }
            return;
        }
        (self.visit)(path, message);
        if descriptor.full_name().starts_with("google.protobuf.") {
            return;
        }
        for (field, value) in message.fields() {
            if !matches!(field.kind(), Kind::Message(_)) {
                continue;
            }
            let path = path.field(field.name());
            match value {
                Value::Message(nested) => self.message(nested, &path),
                Value::List(items) => self.list(items, &path),
                Value::Map(entries) => {
                    let mut entries: Vec<_> = entries.iter().collect();
                    entries.sort_by_key(|(key, _)| *key);
                    for (key, value) in entries {
                        if let Value::Message(nested) = value {
                            self.message(nested, &path.key(&key_text(key)));
                        }
                    }
                }
                Value::Bool(_)
                | Value::I32(_)
                | Value::I64(_)
                | Value::U32(_)
                | Value::U64(_)
                | Value::F32(_)
                | Value::F64(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::EnumNumber(_) => {}
            }
        }
    }

    fn list(&mut self, items: &[Value], path: &Path<'_>) {
        for (index, item) in items.iter().enumerate() {
            if let Value::Message(nested) = item {
                self.message(nested, &path.index(index));
            }
        }
    }
}

/// The key of a map as JSON writes it.
pub(crate) fn key_text(key: &prost_reflect::MapKey) -> String {
    use prost_reflect::MapKey;
    match key {
        MapKey::Bool(truth) => truth.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}
