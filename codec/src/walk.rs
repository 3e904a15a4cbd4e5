//! Visits every message of a resource, also those inside `Any`s.

use prost_reflect::{FieldDescriptor, Kind};

use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Message, key_text};
use crate::path::Path;

/// Calls `visit` for the message and for each nested message, parents first. The content of an `Any` is visited in place of the `Any`, with
/// its path, as in JSON. `Any`s that cannot be decoded are skipped.
pub(crate) fn walk(inner: &Inner, message: &Message, visit: &mut dyn FnMut(&Path<'_>, &Message)) {
    Walker { inner, visit, n_anys: 0 }.message(message, &Path::Root);
}

struct Walker<'w> {
    inner: &'w Inner,
    visit: &'w mut dyn FnMut(&Path<'_>, &Message),
    n_anys: usize,
}

impl Walker<'_> {
    fn message(&mut self, message: &Message, path: &Path<'_>) {
        if message.name() == "google.protobuf.Any" {
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
        if message.name().starts_with("google.protobuf.") {
            return;
        }
        for field in message.fields().filter(|field| matches!(field.kind(), Kind::Message(_))) {
            self.field(message, &field, &path.field(field.name()));
        }
    }

    fn field(&mut self, message: &Message, field: &FieldDescriptor, path: &Path<'_>) {
        if field.is_map() {
            for (key, value) in message.entries(field) {
                if let Some(nested) = value.as_message() {
                    self.message(nested, &path.key(&key_text(&key)));
                }
            }
            return;
        }
        for (index, item) in message.items(field).enumerate() {
            let Some(nested) = item.as_message() else { continue };
            if field.is_list() {
                self.message(nested, &path.index(index));
            } else {
                self.message(nested, path);
            }
        }
    }
}
