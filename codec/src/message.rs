//! Encoded messages whose fields are found when they are needed.
//!
//! Decoded into maps and boxes, a message can take hundreds of times its bytes. Here it takes only the bytes. They are canonical
//! ([`crate::encode`]): each field that is set appears once, or once for each of its items.

use bytes::Bytes;
use prost_reflect::{FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use xds_cache::wire::{self, Field, Fields};

use crate::wire::{next_packed, packed, scalar};

/// An encoded message and its type. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    descriptor: MessageDescriptor,
    bytes: Bytes,
}

/// One value of a field.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A number, text, bool, enum or bytes. Never a message, list or map.
    Scalar(Value),
    /// A message.
    Message(Message),
}

impl Message {
    /// A message with these bytes, which must be canonical.
    pub(crate) fn new(descriptor: MessageDescriptor, bytes: Bytes) -> Self {
        Self { descriptor, bytes }
    }

    pub(crate) fn descriptor(&self) -> &MessageDescriptor {
        &self.descriptor
    }

    pub(crate) fn name(&self) -> &str {
        self.descriptor.full_name()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns `true` if a field is set. A list or map is set if it has an item.
    pub(crate) fn has(&self, field: &FieldDescriptor) -> bool {
        self.occurrences(field).next().is_some()
    }

    /// The known fields that are set, without duplicates, sorted by number.
    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldDescriptor> {
        let mut last = 0;
        Fields::of(&self.bytes).flatten().filter_map(move |field| {
            let is_first = std::mem::replace(&mut last, field.number) != field.number;
            is_first.then(|| self.descriptor.get_field(field.number)).flatten()
        })
    }

    /// The value of a single field, if it is set.
    pub(crate) fn value(&self, field: &FieldDescriptor) -> Option<Item> {
        self.items(field).last()
    }

    /// The values of a list; of a single field, its value.
    pub(crate) fn items<'m>(&'m self, field: &FieldDescriptor) -> Items<'m> {
        let fields = Fields::of(&self.bytes);
        Items { message: self, number: field.number(), fields, kind: field.kind(), packed: &[] }
    }

    /// The entries of a map, sorted by key. A missing key or value is the default.
    pub(crate) fn entries<'m>(
        &'m self,
        field: &FieldDescriptor,
    ) -> impl Iterator<Item = (MapKey, Item)> + use<'m> {
        let kind = field.kind();
        let entry_type = kind.as_message().cloned();
        self.occurrences(field).filter_map(move |occurrence| {
            let entry_type = entry_type.clone()?;
            let entry = Self::new(entry_type.clone(), self.bytes.slice_ref(occurrence.bytes().ok()?));
            entry.key_and_value(&entry_type)
        })
    }

    fn key_and_value(&self, entry_type: &MessageDescriptor) -> Option<(MapKey, Item)> {
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let key = match self.value(&key_field) {
            Some(Item::Scalar(key)) => key.into_map_key()?,
            Some(Item::Message(_)) => return None,
            None => MapKey::default_value(&key_field.kind()),
        };
        let value = self.value(&value_field).unwrap_or_else(|| default_of(&value_field));
        Some((key, value))
    }

    fn occurrences(&self, field: &FieldDescriptor) -> impl Iterator<Item = Field<'_>> + use<'_> {
        let number = field.number();
        Fields::of(&self.bytes).flatten().filter(move |occurrence| occurrence.number == number)
    }
}

/// The value of a field that is not set.
pub(crate) fn default_of(field: &FieldDescriptor) -> Item {
    if let Kind::Message(descriptor) = field.kind() {
        return Item::Message(Message::new(descriptor, Bytes::new()));
    }
    Item::Scalar(Value::default_value_for_field(field))
}

/// The values of one field.
pub(crate) struct Items<'m> {
    message: &'m Message,
    number: u32,
    fields: Fields<'m>,
    kind: Kind,
    /// The rest of a packed list.
    packed: &'m [u8],
}

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let Self { message, number, fields, kind, packed: list } = self;
        loop {
            if !list.is_empty() {
                let value = next_packed(kind, list)?;
                return scalar(kind, &message.bytes, value).map(Item::Scalar);
            }
            let field = fields.by_ref().flatten().find(|field| field.number == *number)?;
            match (&*kind, field.value) {
                (Kind::Message(descriptor), wire::Value::Bytes(content) | wire::Value::Group(content)) => {
                    let content = message.bytes.slice_ref(content);
                    return Some(Item::Message(Message::new(descriptor.clone(), content)));
                }
                (_, value) => match packed(kind, value) {
                    Some(numbers) => *list = numbers,
                    None => return scalar(kind, &message.bytes, value).map(Item::Scalar),
                },
            }
        }
    }
}

impl Item {
    pub(crate) fn as_message(&self) -> Option<&Message> {
        if let Self::Message(message) = self { Some(message) } else { None }
    }

    pub(crate) fn into_message(self) -> Option<Message> {
        if let Self::Message(message) = self { Some(message) } else { None }
    }

    pub(crate) fn as_scalar(&self) -> Option<&Value> {
        if let Self::Scalar(value) = self { Some(value) } else { None }
    }

    pub(crate) fn into_text(self) -> Option<String> {
        if let Self::Scalar(Value::String(text)) = self { Some(text) } else { None }
    }
}

/// A message field that is set.
pub(crate) fn child(message: &Message, field: &str) -> Option<Message> {
    message.value(&message.descriptor.get_field_by_name(field)?)?.into_message()
}

/// A string field that is not empty.
pub(crate) fn text(message: &Message, field: &str) -> Option<String> {
    let field = message.descriptor.get_field_by_name(field).filter(|field| !field.is_list())?;
    message.value(&field)?.into_text().filter(|text| !text.is_empty())
}

/// The strings of a repeated field.
pub(crate) fn texts(message: &Message, field: &str) -> impl Iterator<Item = String> {
    let field = message.descriptor.get_field_by_name(field).filter(FieldDescriptor::is_list);
    field.into_iter().flat_map(|field| message.items(&field)).filter_map(Item::into_text)
}

/// The messages of a repeated field.
pub(crate) fn messages(message: &Message, field: &str) -> impl Iterator<Item = Message> {
    let field = message.descriptor.get_field_by_name(field).filter(FieldDescriptor::is_list);
    field.into_iter().flat_map(|field| message.items(&field)).filter_map(Item::into_message)
}

/// All messages of a repeated field.
pub(crate) fn list(message: &Message, field: &str) -> Vec<Message> {
    messages(message, field).collect()
}

/// The entries of a map of messages, sorted by key.
pub(crate) fn entries(message: &Message, field: &str) -> impl Iterator<Item = (String, Message)> {
    let field = message.descriptor.get_field_by_name(field).filter(FieldDescriptor::is_map);
    field
        .into_iter()
        .flat_map(|field| message.entries(&field))
        .filter_map(|(key, value)| Some((key_text(&key), value.into_message()?)))
}

/// An unsigned number of 32 bits; 0 if it is not set.
pub(crate) fn number(message: &Message, field: &str) -> Option<u32> {
    let field = message.descriptor.get_field_by_name(field)?;
    match message.value(&field) {
        Some(item) => item.as_scalar()?.as_u32(),
        None if field.supports_presence() => None,
        None => Some(0),
    }
}

/// The number of an enum; 0 if it is not set.
pub(crate) fn enum_number(message: &Message, field: &str) -> i32 {
    let field = message.descriptor.get_field_by_name(field);
    let value = field.and_then(|field| message.value(&field));
    value.and_then(|value| value.as_scalar()?.as_enum_number()).unwrap_or_default()
}

/// Seconds and nanoseconds of a duration or time.
pub(crate) fn seconds_and_nanos(message: &Message) -> Option<(i64, i32)> {
    let value = |name| {
        let field = message.descriptor.get_field_by_name(name)?;
        message.value(&field).unwrap_or_else(|| default_of(&field)).as_scalar().cloned()
    };
    Some((value("seconds")?.as_i64()?, value("nanos")?.as_i32()?))
}

/// The key of a map in JSON.
pub(crate) fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(truth) => truth.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}
