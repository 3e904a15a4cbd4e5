//! The canonical encoding (D4): equal content gives equal bytes, in whatever order the keys were written.
//!
//! Fields are sorted by number and maps by key, also inside nested `Any`s and `Struct`s. Unknown fields are sorted in by their number,
//! unchanged and in their original order. An `Any` that cannot be decoded keeps its bytes.

use bytes::Bytes;
use prost_reflect::{FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use xds_cache::wire::{Field, Fields, MAX_DEPTH};

use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Message, text};
use crate::wire::{Writer, message_in, next_packed, packed, scalar};

/// Makes the bytes of a message canonical; `None` if they are not a message of the type.
pub(crate) fn canonical(inner: &Inner, descriptor: &MessageDescriptor, bytes: &Bytes) -> Option<Message> {
    let mut encoder = Encoder { inner, writer: Writer::default(), n_messages: 0, n_anys: 0 };
    encoder.message(descriptor, bytes)?;
    Some(Message::new(descriptor.clone(), encoder.writer.finish()))
}

/// The message inside an `Any` of a canonical message, if its type is known and its bytes are valid.
pub(crate) fn decode_any(inner: &Inner, any: &Message) -> Option<Message> {
    let descriptor = inner.message_of_url(&text(any, "type_url")?)?;
    let field = any.descriptor().get_field_by_name("value")?;
    let content = match any.value(&field) {
        Some(value) => value.as_scalar()?.as_bytes()?.clone(),
        None => Bytes::new(),
    };
    is_valid(&descriptor, &content, 0).then(|| Message::new(descriptor, content))
}

struct Encoder<'c> {
    inner: &'c Inner,
    writer: Writer,
    /// The number of messages around this one, up to the nearest `Any`.
    n_messages: usize,
    n_anys: usize,
}

impl Encoder<'_> {
    fn message(&mut self, descriptor: &MessageDescriptor, bytes: &Bytes) -> Option<()> {
        if self.n_messages > MAX_DEPTH {
            return None;
        }
        // Only offsets are kept, because a field may be as short as two bytes.
        let (mut found, mut start) = (Vec::new(), 0_u32);
        for field in Fields::of(bytes) {
            let field = field.ok()?;
            found.push((field.number, start));
            start = start.checked_add(u32::try_from(field.raw.len()).ok()?)?;
        }
        drop_superseded(descriptor, &mut found);
        if !found.is_sorted_by_key(|(number, _)| *number) {
            found.sort_by_key(|(number, _)| *number);
        }
        let is_any = descriptor.full_name() == "google.protobuf.Any";
        for same in found.chunk_by(|a, b| a.0 == b.0) {
            let at = |start: &u32| Fields::of(bytes.get(*start as usize..)?).next()?.ok();
            let all = || same.iter().filter_map(|(_, start)| at(start));
            match same.first().and_then(|(number, _)| descriptor.get_field(*number)) {
                None => all().for_each(|one| self.writer.raw(one.raw)),
                Some(field) if is_any && field.number() == 2 => {
                    self.any_content(bytes, all().next_back()?)?;
                }
                Some(field) if field.is_map() => self.map(&field, bytes, all())?,
                Some(field) if field.is_list() => self.list(&field, bytes, all())?,
                Some(field) => self.single(&field, bytes, &all().collect::<Vec<_>>())?,
            }
        }
        Some(())
    }

    fn any_content(&mut self, any: &Bytes, value: Field<'_>) -> Option<()> {
        let content = any.slice_ref(value.bytes().ok()?);
        let type_urls = Fields::of(any).flatten().filter(|one| one.number == 1);
        let type_url = type_urls.filter_map(|one| one.bytes().ok()).last();
        let type_url = type_url.and_then(|type_url| std::str::from_utf8(type_url).ok());
        let descriptor = type_url.and_then(|url| self.inner.message_of_url(url));
        let open = self.writer.open(2);
        let start = self.writer.len();
        let is_canonical = self.n_anys < MAX_ANY_DEPTH
            && descriptor.is_some_and(|descriptor| {
                self.n_anys += 1;
                let n_messages = std::mem::take(&mut self.n_messages);
                let outcome = self.message(&descriptor, &content);
                self.n_messages = n_messages;
                self.n_anys -= 1;
                outcome.is_some()
            });
        if !is_canonical {
            self.writer.truncate(start);
            self.writer.raw(&content);
        }
        self.writer.close_unless_empty(open);
        Some(())
    }

    /// Writes a single field. If it appears several times, the last number or text counts, and messages are merged.
    fn single(&mut self, field: &FieldDescriptor, bytes: &Bytes, all: &[Field<'_>]) -> Option<()> {
        if let Kind::Message(descriptor) = field.kind() {
            let contents: Option<Vec<&[u8]>> = all.iter().map(|one| message_in(field, one.value)).collect();
            let content = match contents?[..] {
                [only] => bytes.slice_ref(only),
                ref parts => parts.concat().into(),
            };
            return self.nested(field, &descriptor, &content);
        }
        let value = scalar(&field.kind(), bytes, all.last()?.value)?;
        if field.supports_presence() || !value.is_default_for_field(field) {
            self.writer.field(field.number(), &field.kind(), &value);
        }
        Some(())
    }

    fn nested(
        &mut self,
        field: &FieldDescriptor,
        descriptor: &MessageDescriptor,
        content: &Bytes,
    ) -> Option<()> {
        self.n_messages += 1;
        if field.is_group() {
            self.writer.begin_group(field.number());
            self.message(descriptor, content)?;
            self.writer.end_group(field.number());
        } else {
            let open = self.writer.open(field.number());
            self.message(descriptor, content)?;
            self.writer.close(open);
        }
        self.n_messages -= 1;
        Some(())
    }

    fn list<'b>(
        &mut self,
        field: &FieldDescriptor,
        bytes: &Bytes,
        all: impl Iterator<Item = Field<'b>>,
    ) -> Option<()> {
        let kind = field.kind();
        let open = field.is_packed().then(|| self.writer.open(field.number()));
        let put = |writer: &mut Writer, value| {
            let value = scalar(&kind, bytes, value)?;
            match open {
                Some(_) => writer.number(&kind, &value),
                None => writer.field(field.number(), &kind, &value),
            }
            Some(())
        };
        for one in all {
            if let Kind::Message(descriptor) = &kind {
                self.nested(field, descriptor, &bytes.slice_ref(message_in(field, one.value)?))?;
                continue;
            }
            let Some(mut list) = packed(&kind, one.value) else {
                put(&mut self.writer, one.value)?;
                continue;
            };
            while !list.is_empty() {
                put(&mut self.writer, next_packed(&kind, &mut list)?)?;
            }
        }
        if let Some(open) = open {
            self.writer.close_unless_empty(open);
        }
        Some(())
    }

    fn map<'b>(
        &mut self,
        field: &FieldDescriptor,
        bytes: &Bytes,
        all: impl Iterator<Item = Field<'b>>,
    ) -> Option<()> {
        let kind = field.kind();
        let entry_type = kind.as_message()?;
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let mut entries: Vec<(MapKey, Bytes)> = Vec::new();
        for one in all {
            let entry = bytes.slice_ref(one.bytes().ok()?);
            let key = Fields::of(&entry).flatten().filter(|one| one.number == 1).last();
            let key = match key {
                Some(key) => scalar(&key_field.kind(), &entry, key.value)?.into_map_key()?,
                None => MapKey::default_value(&key_field.kind()),
            };
            entries.push((key, entry));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let Some((key, entry)) = same.last() else { continue };
            let open = self.writer.open(field.number());
            self.writer.map_key(&key_field.kind(), key.clone());
            let value: Vec<_> = Fields::of(entry).flatten().filter(|one| one.number == 2).collect();
            self.map_value(&value_field, entry, &value)?;
            self.writer.close(open);
        }
        Some(())
    }

    /// Writes the value of a map entry, which is always written, even if it is the default.
    fn map_value(&mut self, field: &FieldDescriptor, entry: &Bytes, all: &[Field<'_>]) -> Option<()> {
        self.n_messages += 1;
        match (field.kind(), all.last()) {
            (Kind::Message(_), Some(_)) => self.single(field, entry, all)?,
            (Kind::Message(_), None) => {
                let open = self.writer.open(field.number());
                self.writer.close(open);
            }
            (kind, Some(last)) => {
                let value = scalar(&kind, entry, last.value)?;
                self.writer.field(field.number(), &kind, &value);
            }
            (kind, None) => {
                self.writer.field(field.number(), &kind, &Value::default_value_for_field(field));
            }
        }
        self.n_messages -= 1;
        Some(())
    }
}

/// Drops all members of a oneof but the last.
fn drop_superseded(descriptor: &MessageDescriptor, found: &mut Vec<(u32, u32)>) {
    for oneof in descriptor.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let is_member = |number: u32| oneof.fields().any(|field| field.number() == number);
        let Some(last) = found.iter().rev().map(|(number, _)| *number).find(|number| is_member(*number))
        else {
            continue;
        };
        found.retain(|(number, _)| *number == last || !is_member(*number));
    }
}

/// Returns `true` if the bytes are a message of the type: every field has the right form, texts are UTF-8, and nothing nests too deeply.
fn is_valid(descriptor: &MessageDescriptor, bytes: &Bytes, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    Fields::of(bytes).all(|one| {
        let Ok(one) = one else { return false };
        let Some(field) = descriptor.get_field(one.number) else { return true };
        let kind = field.kind();
        if let Kind::Message(nested) = &kind {
            let content = message_in(&field, one.value);
            return content.is_some_and(|content| is_valid(nested, &bytes.slice_ref(content), depth + 1));
        }
        match packed(&kind, one.value).filter(|_| field.is_list()) {
            Some(mut list) => {
                while !list.is_empty() {
                    if next_packed(&kind, &mut list).is_none() {
                        return false;
                    }
                }
                true
            }
            None => scalar(&kind, bytes, one.value).is_some(),
        }
    })
}
