//! The canonical encoding (D4): equal content gives equal bytes, whatever the order of keys was.
//!
//! Fields stand in the order of their numbers and maps in the order of their keys, also inside nested `Any`s and `Struct`s.
//! Unknown fields stand where their number belongs, unchanged and in the order in which they came. An `Any` that cannot be
//! decoded keeps its bytes.

use bytes::Bytes;
use prost_reflect::{FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};

use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Message, text};
use crate::wire::{Form, MAX_DEPTH, Occurrence, Occurrences, Writer, form_of, scalar};

/// Makes the bytes of a message canonical; `None` if they are not of the type.
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
    /// How many messages enclose the present one, up to the nearest `Any`.
    n_messages: usize,
    n_anys: usize,
}

impl Encoder<'_> {
    fn message(&mut self, descriptor: &MessageDescriptor, bytes: &Bytes) -> Option<()> {
        if self.n_messages > MAX_DEPTH {
            return None;
        }
        let mut found = Vec::new();
        let mut occurrences = Occurrences::of(bytes);
        // Where each occurrence stands is enough: a field may be as short as two bytes.
        for occurrence in occurrences.by_ref() {
            let Ok(start) = u32::try_from(occurrence.whole.start) else { return None };
            found.push((occurrence.number, start));
        }
        if !occurrences.is_at_end() {
            return None;
        }
        drop_superseded(descriptor, &mut found);
        if !found.is_sorted_by_key(|(number, _)| *number) {
            found.sort_by_key(|(number, _)| *number);
        }
        let is_any = descriptor.full_name() == "google.protobuf.Any";
        for same in found.chunk_by(|a, b| a.0 == b.0) {
            let at = |start: &u32| {
                Occurrences::of(bytes.get(*start as usize..)?).next().map(|one| moved(one, *start))
            };
            let all = || same.iter().filter_map(|(_, start)| at(start));
            match same.first().and_then(|(number, _)| descriptor.get_field(*number)) {
                None => all().for_each(|one| self.writer.raw(bytes.get(one.whole).unwrap_or_default())),
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

    fn any_content(&mut self, any: &Bytes, occurrence: Occurrence) -> Option<()> {
        if occurrence.form != Form::Length {
            return None;
        }
        let content = any.slice(occurrence.content);
        let type_url = Occurrences::of(any).filter(|one| one.number == 1 && one.form == Form::Length).last();
        let type_url = type_url.and_then(|one| std::str::from_utf8(any.get(one.content)?).ok());
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

    /// A field that is there once; of several numbers or texts the last one counts, messages are joined.
    fn single(&mut self, field: &FieldDescriptor, bytes: &Bytes, all: &[Occurrence]) -> Option<()> {
        let last = all.last()?;
        if let Kind::Message(descriptor) = field.kind() {
            let form = if field.is_group() { Form::Group } else { Form::Length };
            if all.iter().any(|one| one.form != form) {
                return None;
            }
            let content = match all {
                [only] => bytes.slice(only.content.clone()),
                _ => all.iter().filter_map(|one| bytes.get(one.content.clone())).flatten().copied().collect(),
            };
            return self.nested(field, &descriptor, &content);
        }
        let value = all.iter().map(|one| scalar_of(&field.kind(), bytes, one)).next_back()??;
        if last.form != form_of(&field.kind()) {
            return None;
        }
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

    fn list(
        &mut self,
        field: &FieldDescriptor,
        bytes: &Bytes,
        all: impl Iterator<Item = Occurrence>,
    ) -> Option<()> {
        let kind = field.kind();
        let open = field.is_packed().then(|| self.writer.open(field.number()));
        for occurrence in all {
            if let Kind::Message(descriptor) = &kind {
                self.nested(field, descriptor, &bytes.slice(occurrence.content))?;
                continue;
            }
            let content = bytes.slice(occurrence.content.clone());
            let is_packed = occurrence.form == Form::Length && form_of(&kind) != Form::Length;
            if !is_packed && occurrence.form != form_of(&kind) {
                return None;
            }
            let mut at = 0;
            // A text may be empty; a packed list may be too, and then has no item.
            while at < content.len() || (!is_packed && at == 0) {
                let value = scalar(&kind, &content, &mut at)?;
                match open {
                    Some(_) => self.writer.number(&kind, &value),
                    None => self.writer.field(field.number(), &kind, &value),
                }
                if !is_packed {
                    break;
                }
            }
        }
        if let Some(open) = open {
            self.writer.close_unless_empty(open);
        }
        Some(())
    }

    fn map(
        &mut self,
        field: &FieldDescriptor,
        bytes: &Bytes,
        all: impl Iterator<Item = Occurrence>,
    ) -> Option<()> {
        let kind = field.kind();
        let entry_type = kind.as_message()?;
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let mut entries: Vec<(MapKey, Bytes)> = Vec::new();
        for occurrence in all {
            if occurrence.form != Form::Length {
                return None;
            }
            let entry = bytes.slice(occurrence.content);
            let key = Occurrences::of(&entry).filter(|one| one.number == 1).last();
            let key = match key {
                Some(key) => scalar_of(&key_field.kind(), &entry, &key)?.into_map_key()?,
                None => MapKey::default_value(&key_field.kind()),
            };
            entries.push((key, entry));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let Some((key, entry)) = same.last() else { continue };
            let open = self.writer.open(field.number());
            self.writer.map_key(&key_field.kind(), key.clone());
            let value: Vec<_> = Occurrences::of(entry).filter(|one| one.number == 2).collect();
            self.map_value(&value_field, entry, &value)?;
            self.writer.close(open);
        }
        Some(())
    }

    /// The value of an entry is always written, also what an unset field would have.
    fn map_value(&mut self, field: &FieldDescriptor, entry: &Bytes, all: &[Occurrence]) -> Option<()> {
        self.n_messages += 1;
        match (field.kind(), all.last()) {
            (Kind::Message(_), Some(_)) => self.single(field, entry, all)?,
            (Kind::Message(_), None) => {
                let open = self.writer.open(field.number());
                self.writer.close(open);
            }
            (kind, Some(last)) => {
                let value = scalar_of(&kind, entry, last)?;
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

/// The value of one occurrence.
fn scalar_of(kind: &Kind, bytes: &Bytes, occurrence: &Occurrence) -> Option<Value> {
    let content = bytes.slice(occurrence.content.clone());
    (occurrence.form == form_of(kind)).then(|| scalar(kind, &content, &mut 0)).flatten()
}

fn moved(occurrence: Occurrence, by: u32) -> Occurrence {
    let by = by as usize;
    let range = |range: std::ops::Range<usize>| range.start + by..range.end + by;
    Occurrence { whole: range(occurrence.whole), content: range(occurrence.content), ..occurrence }
}

/// Of the members of a oneof the last one counts.
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

/// Whether the bytes are a message of the type: every field of the form that it must have, texts of UTF-8, nothing too deep.
fn is_valid(descriptor: &MessageDescriptor, bytes: &Bytes, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let mut occurrences = Occurrences::of(bytes);
    let are_valid = occurrences.by_ref().all(|occurrence| {
        let Some(field) = descriptor.get_field(occurrence.number) else { return true };
        let (kind, content) = (field.kind(), bytes.slice(occurrence.content));
        if let Kind::Message(nested) = &kind {
            let form = if field.is_group() { Form::Group } else { Form::Length };
            return occurrence.form == form && is_valid(nested, &content, depth + 1);
        }
        if occurrence.form == form_of(&kind) {
            return scalar(&kind, &content, &mut 0).is_some();
        }
        let mut at = 0;
        let is_packed = field.is_list() && occurrence.form == Form::Length;
        while is_packed && at < content.len() {
            if scalar(&kind, &content, &mut at).is_none() {
                return false;
            }
        }
        is_packed
    });
    are_valid && occurrences.is_at_end()
}
