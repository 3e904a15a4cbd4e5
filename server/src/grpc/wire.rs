//! Protobuf's wire format, as far as messages are read and written by hand.

use std::str;

use bytes::{Buf, BufMut};
use prost::encoding::{
    WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
};

/// The fields of an encoded message, one after the other, without a copy.
///
/// A library decodes a message into a tree that can be fifty times its size. Requests are read through this instead, so
/// that only those parts take memory that the server wants. After an error there are no more fields.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// A number or bool.
    Varint(u64),
    /// The bits of a `double`.
    Fixed64(u64),
    /// A value of 4 bytes, which nothing that is read here has.
    Fixed32,
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// A field's number, kind or length cannot be read, or the message ends within a field.
    #[error("a field cannot be read")]
    Field,
    /// A field has another kind than its message type says.
    #[error("field {0} has another type")]
    Kind(u32),
    /// A string is not UTF-8.
    #[error("the string in field {0} is not UTF-8")]
    Text(u32),
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
}

impl<'a> Fields<'a> {
    /// The fields of `message`.
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Option<Field<'a>> {
        let (number, kind) = decode_key(&mut self.0).ok()?;
        let value = match kind {
            WireType::Varint => Value::Varint(decode_varint(&mut self.0).ok()?),
            WireType::SixtyFourBit => Value::Fixed64(self.0.try_get_u64_le().ok()?),
            WireType::ThirtyTwoBit => {
                self.0.try_get_u32_le().ok()?;
                Value::Fixed32
            }
            WireType::LengthDelimited => {
                let len = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
                let (value, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            // Only proto2 has groups.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some(Field { number, value })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read().ok_or(WireError::Field);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    /// The content of a string, of bytes or of a message.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32 => Err(WireError::Kind(self.number)),
        }
    }

    /// A string.
    pub(crate) fn text(&self) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_| WireError::Text(self.number))
    }

    /// A number or bool.
    pub(crate) fn number(&self) -> Result<u64, WireError> {
        match self.value {
            Value::Varint(number) => Ok(number),
            Value::Bytes(_) | Value::Fixed64(_) | Value::Fixed32 => Err(WireError::Kind(self.number)),
        }
    }

    /// A `double`.
    pub(crate) fn double(&self) -> Result<f64, WireError> {
        match self.value {
            Value::Fixed64(bits) => Ok(f64::from_bits(bits)),
            Value::Bytes(_) | Value::Varint(_) | Value::Fixed32 => Err(WireError::Kind(self.number)),
        }
    }
}

/// A message of one field.
pub(crate) fn message(field: u32, value: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(field_len(field, value.len()));
    put_field(&mut message, field, value);
    message
}

/// A length-delimited field; nothing if it is empty, as proto3 has it for fields without presence.
pub(crate) fn put_field(buffer: &mut impl BufMut, field: u32, value: &[u8]) {
    if !value.is_empty() {
        put_header(buffer, field, value.len());
        buffer.put_slice(value);
    }
}

/// What stands before the content of a length-delimited field.
pub(crate) fn put_header(buffer: &mut impl BufMut, field: u32, len: usize) {
    encode_key(field, WireType::LengthDelimited, buffer);
    encode_varint(len as u64, buffer);
}

/// A field of a number; nothing if it is 0.
pub(crate) fn put_varint(buffer: &mut impl BufMut, field: u32, value: u64) {
    if value != 0 {
        encode_key(field, WireType::Varint, buffer);
        encode_varint(value, buffer);
    }
}

/// How long a field is that holds `len` bytes.
pub(crate) fn field_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

/// How long the `Any` of a value is.
pub(crate) fn any_len(type_url: &str, n_value: usize) -> usize {
    let value = if n_value == 0 { 0 } else { field_len(ANY_VALUE, n_value) };
    field_len(ANY_TYPE_URL, type_url.len()) + value
}

/// `google.protobuf.Any.type_url`.
pub(crate) const ANY_TYPE_URL: u32 = 1;
/// `google.protobuf.Any.value`.
pub(crate) const ANY_VALUE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_by_one_and_damage_ends_them() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 1, 300);
        put_field(&mut bytes, 2, "ä".as_bytes());
        encode_key(3, WireType::SixtyFourBit, &mut bytes);
        bytes.put_f64_le(0.5);
        let fields: Vec<_> = Fields::of(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(fields.len(), 3);
        assert_eq!((fields[0].number(), fields[1].text(), fields[2].double()), (Ok(300), Ok("ä"), Ok(0.5)));
        assert_eq!(
            (fields[0].bytes(), fields[2].number()),
            (Err(WireError::Kind(1)), Err(WireError::Kind(3)))
        );
        for end in 1..bytes.len() {
            let last = Fields::of(&bytes[..end]).last().unwrap();
            let is_between = end == 3 || end == 7;
            assert_eq!(last.is_ok(), is_between, "cut at {end}");
        }
        // A length that no memory holds, a text that is none, and a group.
        let huge = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Fields::of(&huge).collect::<Vec<_>>(), [Err(WireError::Field)]);
        let text = Fields::of(&[0x12, 0x01, 0xff]).next().unwrap().unwrap();
        assert_eq!(text.text(), Err(WireError::Text(2)));
        assert_eq!(Fields::of(&[0x0b, 0x0c]).collect::<Vec<_>>(), [Err(WireError::Field)]);
    }
}
