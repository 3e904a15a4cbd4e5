//! Protobuf's wire format: decodes the fields that [`xds_cache::wire`] finds, and writes messages.

use bytes::Bytes;
use prost_reflect::{FieldDescriptor, Kind, MapKey, Value};
use xds_cache::wire;

/// The encoding of a field's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Varint,
    Fixed64,
    Length,
    Group,
    Fixed32,
}

/// The encoding of single values of a kind.
pub(crate) fn form_of(kind: &Kind) -> Form {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Form::Fixed64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Form::Fixed32,
        Kind::String | Kind::Bytes | Kind::Message(_) => Form::Length,
        Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Bool
        | Kind::Enum(_) => Form::Varint,
    }
}

/// The value of a field of a kind; `None` for a message, or if the value has another encoding.
///
/// `message` contains the value. Bytes share its memory.
pub(crate) fn scalar(kind: &Kind, message: &Bytes, value: wire::Value<'_>) -> Option<Value> {
    let unzigzag = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
    let value = match (kind, value) {
        (Kind::Float, wire::Value::Fixed32(bits)) => Value::F32(f32::from_bits(bits)),
        (Kind::Fixed32, wire::Value::Fixed32(bits)) => Value::U32(bits),
        (Kind::Sfixed32, wire::Value::Fixed32(bits)) => Value::I32(bits as i32),
        (Kind::Double, wire::Value::Fixed64(bits)) => Value::F64(f64::from_bits(bits)),
        (Kind::Fixed64, wire::Value::Fixed64(bits)) => Value::U64(bits),
        (Kind::Sfixed64, wire::Value::Fixed64(bits)) => Value::I64(bits as i64),
        (Kind::String, wire::Value::Bytes(text)) => Value::String(std::str::from_utf8(text).ok()?.to_owned()),
        (Kind::Bytes, wire::Value::Bytes(bytes)) => Value::Bytes(message.slice_ref(bytes)),
        (Kind::Int32, wire::Value::Varint(number)) => Value::I32(number as i32),
        (Kind::Int64, wire::Value::Varint(number)) => Value::I64(number as i64),
        (Kind::Uint32, wire::Value::Varint(number)) => Value::U32(number as u32),
        (Kind::Uint64, wire::Value::Varint(number)) => Value::U64(number),
        (Kind::Sint32, wire::Value::Varint(number)) => Value::I32(unzigzag(u64::from(number as u32)) as i32),
        (Kind::Sint64, wire::Value::Varint(number)) => Value::I64(unzigzag(number)),
        (Kind::Bool, wire::Value::Varint(number)) => Value::Bool(number != 0),
        (Kind::Enum(_), wire::Value::Varint(number)) => Value::EnumNumber(number as i32),
        _ => return None,
    };
    Some(value)
}

/// The bytes of a packed list of numbers of a kind, if the value is one.
pub(crate) fn packed<'b>(kind: &Kind, value: wire::Value<'b>) -> Option<&'b [u8]> {
    let wire::Value::Bytes(list) = value else { return None };
    (form_of(kind) != Form::Length).then_some(list)
}

/// Takes the next number from a packed list; `None` at the end.
pub(crate) fn next_packed<'b>(kind: &Kind, list: &mut &'b [u8]) -> Option<wire::Value<'b>> {
    match form_of(kind) {
        Form::Varint => wire::take_varint(list).map(wire::Value::Varint),
        Form::Fixed64 => wire::take_array(list).map(|bits| wire::Value::Fixed64(u64::from_le_bytes(bits))),
        Form::Fixed32 => wire::take_array(list).map(|bits| wire::Value::Fixed32(u32::from_le_bytes(bits))),
        Form::Length | Form::Group => None,
    }
}

/// The bytes of a message field; `None` for a value with another encoding.
pub(crate) fn message_in<'b>(field: &FieldDescriptor, value: wire::Value<'b>) -> Option<&'b [u8]> {
    match (field.is_group(), value) {
        (false, wire::Value::Bytes(content)) | (true, wire::Value::Group(content)) => Some(content),
        _ => None,
    }
}

/// Writes messages into one buffer.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

/// The position of a length that is not known yet.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    field: usize,
    content: usize,
}

impl Writer {
    /// The bytes in an allocation of their exact size. Shrinking the buffer would leave up to half of it unused, because the allocator keeps
    /// it in place.
    pub(crate) fn finish(self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Writes raw bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn varint(&mut self, mut number: u64) {
        self.reserve(10);
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn key(&mut self, number: u32, form: Form) {
        let form = match form {
            Form::Varint => 0,
            Form::Fixed64 => 1,
            Form::Length => 2,
            Form::Group => 3,
            Form::Fixed32 => 5,
        };
        self.varint(u64::from(number) << 3 | form);
    }

    /// Begins a field with a length. Everything until [`close`](Self::close) is its content.
    pub(crate) fn open(&mut self, number: u32) -> Open {
        let field = self.bytes.len();
        self.key(number, Form::Length);
        // One byte is enough for messages shorter than 128 bytes. Longer ones are moved when they are closed.
        self.bytes.push(0);
        Open { field, content: self.bytes.len() }
    }

    pub(crate) fn close(&mut self, open: Open) {
        let n_bytes = self.bytes.len() - open.content;
        if n_bytes < 0x80 {
            if let Some(length) = self.bytes.get_mut(open.content - 1) {
                *length = n_bytes as u8;
            }
            return;
        }
        let end = self.bytes.len();
        self.varint(n_bytes as u64);
        // Moves the length from the end to the beginning, and drops the reserved byte.
        let n_length = self.bytes.len() - end;
        if let Some(tail) = self.bytes.get_mut(open.content - 1..) {
            tail.rotate_right(n_length);
            tail.copy_within(n_length + 1.., n_length);
        }
        self.bytes.pop();
    }

    /// Closes a field, or removes it if it has no content. Returns `true` if it had any.
    pub(crate) fn close_unless_empty(&mut self, open: Open) -> bool {
        if self.bytes.len() == open.content {
            self.bytes.truncate(open.field);
            return false;
        }
        self.close(open);
        true
    }

    pub(crate) fn begin_group(&mut self, number: u32) {
        self.key(number, Form::Group);
    }

    pub(crate) fn end_group(&mut self, number: u32) {
        self.varint(u64::from(number) << 3 | 4);
    }

    /// Writes a field of one scalar, with its key.
    pub(crate) fn field(&mut self, number: u32, kind: &Kind, value: &Value) {
        match value {
            Value::String(text) => self.bytes_field(number, text.as_bytes()),
            Value::Bytes(bytes) => self.bytes_field(number, bytes),
            Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::U32(_)
            | Value::U64(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::EnumNumber(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Message(_) => {
                self.key(number, form_of(kind));
                self.number(kind, value);
            }
        }
    }

    pub(crate) fn bytes_field(&mut self, number: u32, content: &[u8]) {
        self.key(number, Form::Length);
        self.varint(content.len() as u64);
        self.raw(content);
    }

    pub(crate) fn map_key(&mut self, kind: &Kind, key: MapKey) {
        self.field(1, kind, &key.into());
    }

    /// Writes a number, bool or enum without its key. Writes nothing for other values.
    pub(crate) fn number(&mut self, kind: &Kind, value: &Value) {
        let zigzag = |number: i64| ((number << 1) ^ (number >> 63)) as u64;
        match (kind, value) {
            (Kind::Sfixed32, Value::I32(number)) => self.raw(&number.to_le_bytes()),
            (Kind::Fixed32, Value::U32(number)) => self.raw(&number.to_le_bytes()),
            (Kind::Sfixed64, Value::I64(number)) => self.raw(&number.to_le_bytes()),
            (Kind::Fixed64, Value::U64(number)) => self.raw(&number.to_le_bytes()),
            (Kind::Sint32, Value::I32(number)) => self.varint(zigzag(i64::from(*number))),
            (Kind::Sint64, Value::I64(number)) => self.varint(zigzag(*number)),
            (_, Value::F32(number)) => self.raw(&number.to_le_bytes()),
            (_, Value::F64(number)) => self.raw(&number.to_le_bytes()),
            (_, Value::Bool(truth)) => self.varint(u64::from(*truth)),
            (_, Value::I32(number) | Value::EnumNumber(number)) => self.varint(i64::from(*number) as u64),
            (_, Value::I64(number)) => self.varint(*number as u64),
            (_, Value::U32(number)) => self.varint(u64::from(*number)),
            (_, Value::U64(number)) => self.varint(*number),
            (_, Value::String(_) | Value::Bytes(_) | Value::Message(_) | Value::List(_) | Value::Map(_)) => {}
        }
    }

    /// Reserves capacity. Grows by half, because the written bytes are the largest result of reading.
    fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.reserve_exact(more.max(self.bytes.len() / 2).max(64));
        }
    }
}
