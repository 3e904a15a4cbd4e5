//! The canonical encoding (D4): equal content gives equal bytes, whatever the order of keys was.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, UnknownField, Value};

use crate::inner::{Inner, MAX_ANY_DEPTH};

/// Encodes a message with its fields in order of their numbers and its maps in order of their keys, also inside nested
/// `Any`s and `Struct`s. Unknown fields stand where their number belongs, unchanged and in the order in which they came.
/// An `Any` that cannot be decoded keeps its bytes.
pub(crate) fn encode(inner: &Inner, message: &DynamicMessage) -> Bytes {
    let mut buffer = BytesMut::new();
    Encoder { inner, n_anys: 0 }.message(message, &mut buffer);
    buffer.freeze()
}

struct Encoder<'c> {
    inner: &'c Inner,
    n_anys: usize,
}

impl Encoder<'_> {
    fn message(&mut self, message: &DynamicMessage, buffer: &mut BytesMut) {
        if message.extensions().next().is_some() {
            // No message of Envoy has extensions; those of others are kept, in the order that prost gives them.
            buffer.put_slice(&message.encode_to_vec());
            return;
        }
        let mut unknown = message.unknown_fields().peekable();
        let mut put_unknown = |below: u32, buffer: &mut BytesMut| {
            while let Some(field) = unknown.next_if(|field: &&UnknownField| field.number() < below) {
                field.encode(buffer);
            }
        };
        let is_any = message.descriptor().full_name() == "google.protobuf.Any";
        for (field, value) in message.fields() {
            put_unknown(field.number(), buffer);
            if let Value::Bytes(content) = value
                && is_any
            {
                let canonical = self.any_content(message, content);
                prost::encoding::bytes::encode(field.number(), &canonical, buffer);
            } else {
                self.field(&field, value, buffer);
            }
        }
        put_unknown(u32::MAX, buffer);
    }

    fn any_content(&mut self, any: &DynamicMessage, content: &Bytes) -> Bytes {
        if self.n_anys >= MAX_ANY_DEPTH {
            return content.clone();
        }
        let Some(message) = decode_any(self.inner, any) else { return content.clone() };
        self.n_anys += 1;
        let mut buffer = BytesMut::with_capacity(content.len());
        self.message(&message, &mut buffer);
        self.n_anys -= 1;
        buffer.freeze()
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, buffer: &mut BytesMut) {
        match value {
            Value::Map(map) => self.map(field, map, buffer),
            Value::List(items) if field.is_packed() => {
                let mut packed = BytesMut::new();
                for item in items {
                    put_scalar(&field.kind(), item, &mut packed);
                }
                prost::encoding::bytes::encode(field.number(), &packed.freeze(), buffer);
            }
            Value::List(items) => {
                for item in items {
                    self.single(field, item, buffer);
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
            | Value::EnumNumber(_)
            | Value::Message(_) => self.single(field, value, buffer),
        }
    }

    fn single(&mut self, field: &FieldDescriptor, value: &Value, buffer: &mut BytesMut) {
        let number = field.number();
        match value {
            Value::Message(message) if field.is_group() => {
                encode_key(number, WireType::StartGroup, buffer);
                self.message(message, buffer);
                encode_key(number, WireType::EndGroup, buffer);
            }
            Value::Message(message) => {
                let mut nested = BytesMut::new();
                self.message(message, &mut nested);
                encode_key(number, WireType::LengthDelimited, buffer);
                encode_varint(nested.len() as u64, buffer);
                buffer.put_slice(&nested);
            }
            Value::String(text) => prost::encoding::string::encode(number, text, buffer),
            Value::Bytes(bytes) => prost::encoding::bytes::encode(number, bytes, buffer),
            Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::U32(_)
            | Value::U64(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::EnumNumber(_)
            | Value::List(_)
            | Value::Map(_) => {
                encode_key(number, wire_type(&field.kind()), buffer);
                put_scalar(&field.kind(), value, buffer);
            }
        }
    }

    fn map(
        &mut self,
        field: &FieldDescriptor,
        map: &std::collections::HashMap<MapKey, Value>,
        buffer: &mut BytesMut,
    ) {
        let Kind::Message(entry_type) = field.kind() else { return };
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries {
            let mut entry = BytesMut::new();
            self.single(&key_field, &key.clone().into(), &mut entry);
            self.single(&value_field, value, &mut entry);
            prost::encoding::bytes::encode(field.number(), &entry.freeze(), buffer);
        }
    }
}

/// The message inside an `Any`, if its type is known and its bytes are valid.
pub(crate) fn decode_any(inner: &Inner, any: &DynamicMessage) -> Option<DynamicMessage> {
    let type_url = any.get_field_by_name("type_url")?;
    let descriptor = inner.message_of_url(type_url.as_str()?)?;
    let content = any.get_field_by_name("value")?;
    DynamicMessage::decode(descriptor, content.as_bytes()?.clone()).ok()
}

fn wire_type(kind: &Kind) -> WireType {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::SixtyFourBit,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::ThirtyTwoBit,
        Kind::String | Kind::Bytes | Kind::Message(_) => WireType::LengthDelimited,
        Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Bool
        | Kind::Enum(_) => WireType::Varint,
    }
}

/// Writes a number, bool or enum without its key; any other value is not for this function and writes nothing.
fn put_scalar(kind: &Kind, value: &Value, buffer: &mut BytesMut) {
    let zigzag = |number: i64| ((number << 1) ^ (number >> 63)) as u64;
    match (kind, value) {
        (Kind::Sfixed32, Value::I32(number)) => buffer.put_i32_le(*number),
        (Kind::Fixed32, Value::U32(number)) => buffer.put_u32_le(*number),
        (Kind::Sfixed64, Value::I64(number)) => buffer.put_i64_le(*number),
        (Kind::Fixed64, Value::U64(number)) => buffer.put_u64_le(*number),
        (Kind::Sint32, Value::I32(number)) => encode_varint(zigzag(i64::from(*number)), buffer),
        (Kind::Sint64, Value::I64(number)) => encode_varint(zigzag(*number), buffer),
        (_, Value::F32(number)) => buffer.put_f32_le(*number),
        (_, Value::F64(number)) => buffer.put_f64_le(*number),
        (_, Value::Bool(truth)) => encode_varint(u64::from(*truth), buffer),
        (_, Value::I32(number) | Value::EnumNumber(number)) => {
            encode_varint(i64::from(*number) as u64, buffer);
        }
        (_, Value::I64(number)) => encode_varint(*number as u64, buffer),
        (_, Value::U32(number)) => encode_varint(u64::from(*number), buffer),
        (_, Value::U64(number)) => encode_varint(*number, buffer),
        (_, Value::String(_) | Value::Bytes(_) | Value::Message(_) | Value::List(_) | Value::Map(_)) => {}
    }
}
