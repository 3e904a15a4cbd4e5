//! Protobuf's wire format, as far as messages are written by hand; they are read by [`xds_cache::wire`].

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

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

/// The bytes before the content of a length-delimited field.
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

/// The length of a field with `len` bytes of content.
pub(crate) fn field_len(field: u32, len: usize) -> usize {
    key_len(field) + encoded_len_varint(len as u64) + len
}

/// The length of the `Any` of a value.
pub(crate) fn any_len(type_url: &str, n_value: usize) -> usize {
    let value = if n_value == 0 { 0 } else { field_len(ANY_VALUE, n_value) };
    field_len(ANY_TYPE_URL, type_url.len()) + value
}

/// `google.protobuf.Any.type_url`.
pub(crate) const ANY_TYPE_URL: u32 = 1;
/// `google.protobuf.Any.value`.
pub(crate) const ANY_VALUE: u32 = 2;
