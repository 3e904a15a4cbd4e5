//! Protobuf's wire format: the fields of an encoded message, one after the other, without a copy.
//!
//! A library decodes a message into a tree that can be fifty times its size. Requests, resources and the facts about them are read
//! through this module instead, so only the parts that are needed take memory.

use std::str;

/// The fields of an encoded message. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

/// One field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    /// Its number, from 1 to 2²⁹ - 1.
    pub number: u32,
    /// Its value.
    pub value: Value<'a>,
    /// All of it as it stands in the message, key and length included.
    pub raw: &'a [u8],
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of any length, a bool or an enum.
    Varint(u64),
    /// The bits of a number of 8 bytes.
    Fixed64(u64),
    /// A string, bytes, a message, or a packed list of numbers.
    Bytes(&'a [u8]),
    /// The fields of a group, which only proto2 has.
    Group(&'a [u8]),
    /// The bits of a number of 4 bytes.
    Fixed32(u32),
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
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

impl<'a> Fields<'a> {
    /// The fields of `message`.
    #[must_use]
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self, n_groups: usize) -> Option<Read<'a>> {
        let whole = self.0;
        let key = take_varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..=MAX_NUMBER).contains(number))?;
        let value = match key & 7 {
            0 => Value::Varint(take_varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(take_array(&mut self.0)?)),
            2 => {
                let n_bytes = usize::try_from(take_varint(&mut self.0)?).ok()?;
                Value::Bytes(take(&mut self.0, n_bytes)?)
            }
            3 => Value::Group(self.group(number, n_groups)?),
            4 => return Some(Read::EndOfGroup(number)),
            5 => Value::Fixed32(u32::from_le_bytes(take_array(&mut self.0)?)),
            _ => return None,
        };
        let (raw, _) = whole.split_at_checked(whole.len() - self.0.len())?;
        Some(Read::Field(Field { number, value, raw }))
    }

    /// Takes a group up to its end.
    fn group(&mut self, number: u32, n_groups: usize) -> Option<&'a [u8]> {
        if n_groups >= MAX_DEPTH {
            return None;
        }
        let whole = self.0;
        loop {
            let n_before = whole.len() - self.0.len();
            match self.read(n_groups + 1)? {
                Read::Field(_) => {}
                Read::EndOfGroup(ended) if ended == number => return whole.get(..n_before),
                Read::EndOfGroup(_) => return None,
            }
        }
    }
}

/// The field that a key begins.
enum Read<'a> {
    Field(Field<'a>),
    EndOfGroup(u32),
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        match self.read(0) {
            Some(Read::Field(field)) => Some(Ok(field)),
            Some(Read::EndOfGroup(_)) | None => {
                self.0 = &[];
                Some(Err(WireError::Field))
            }
        }
    }
}

impl<'a> Field<'a> {
    /// The content of a string, of bytes or of a message.
    ///
    /// # Errors
    ///
    /// [`WireError::Kind`] for anything else.
    pub fn bytes(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed64(_) | Value::Group(_) | Value::Fixed32(_) => {
                Err(WireError::Kind(self.number))
            }
        }
    }

    /// A string.
    ///
    /// # Errors
    ///
    /// [`WireError::Kind`] for anything else, [`WireError::Text`] if it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_| WireError::Text(self.number))
    }

    /// A number of any length, a bool or an enum.
    ///
    /// # Errors
    ///
    /// [`WireError::Kind`] for anything else.
    pub fn number(&self) -> Result<u64, WireError> {
        match self.value {
            Value::Varint(number) => Ok(number),
            Value::Bytes(_) | Value::Fixed64(_) | Value::Group(_) | Value::Fixed32(_) => {
                Err(WireError::Kind(self.number))
            }
        }
    }

    /// A `double`.
    ///
    /// # Errors
    ///
    /// [`WireError::Kind`] for anything else.
    pub fn double(&self) -> Result<f64, WireError> {
        match self.value {
            Value::Fixed64(bits) => Ok(f64::from_bits(bits)),
            Value::Bytes(_) | Value::Varint(_) | Value::Group(_) | Value::Fixed32(_) => {
                Err(WireError::Kind(self.number))
            }
        }
    }
}

/// Takes a varint of at most ten bytes off `bytes`; `None` if there is none.
#[must_use]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for index in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if index == 9 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (index * 7);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes the bytes of a number of fixed length off `bytes`; `None` if there are fewer.
#[must_use]
pub fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    take(bytes, N)?.try_into().ok()
}

fn take<'a>(bytes: &mut &'a [u8], n_bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n_bytes)?;
    *bytes = rest;
    Some(taken)
}

/// The fields of a message up to the first thing that is none.
pub fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::of(message).flatten()
}

/// The last value of a field that is a string, bytes, or a message.
#[must_use]
pub fn bytes_of(message: &[u8], number: u32) -> Option<&[u8]> {
    all_of(message, number).last()
}

/// The values of a field that is a string, bytes, or a message.
pub fn all_of(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message).filter(move |field| field.number == number).filter_map(|field| field.bytes().ok())
}

/// The last value of a field that is a varint; 0 if there is none.
#[must_use]
pub fn number_of(message: &[u8], number: u32) -> u64 {
    let values = fields(message).filter(|field| field.number == number);
    values.filter_map(|field| field.number().ok()).last().unwrap_or(0)
}

/// Appends a field that is a string, bytes, or a message.
pub(crate) fn put_bytes(message: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(message, u64::from(number) << 3 | 2);
    put_varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

/// Appends a field that is a varint.
pub(crate) fn put_number(message: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(message, u64::from(number) << 3);
    put_varint(message, value);
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// The highest number of a field.
const MAX_NUMBER: u32 = (1 << 29) - 1;

/// Groups and messages that nest deeper are no message to any reader of protobuf.
pub const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Vec::new();
        put_number(&mut message, 1, 300);
        put_bytes(&mut message, 200, &[7; 200]);
        put_number(&mut message, 1, u64::MAX);
        let numbers: Vec<u32> = fields(&message).map(|field| field.number).collect();
        assert_eq!(numbers, [1, 200, 1]);
        assert_eq!((number_of(&message, 1), bytes_of(&message, 200)), (u64::MAX, Some(&[7; 200][..])));
        assert_eq!(fields(&message).flat_map(|field| field.raw.to_vec()).collect::<Vec<_>>(), message);
    }

    #[test]
    fn fields_are_read_one_by_one_and_damage_ends_them() {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 1, 300);
        put_bytes(&mut bytes, 2, "ä".as_bytes());
        bytes.push(3 << 3 | 1);
        bytes.extend(0.5_f64.to_le_bytes());
        bytes.push(4 << 3 | 5);
        bytes.extend(7_u32.to_le_bytes());
        let fields: Vec<_> = Fields::of(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!(fields.len(), 4);
        assert_eq!((fields[0].number(), fields[1].text(), fields[2].double()), (Ok(300), Ok("ä"), Ok(0.5)));
        assert_eq!(fields[3].value, Value::Fixed32(7));
        assert_eq!(
            (fields[0].bytes(), fields[2].number(), fields[3].double()),
            (Err(WireError::Kind(1)), Err(WireError::Kind(3)), Err(WireError::Kind(4)))
        );
        for end in 1..bytes.len() {
            let last = Fields::of(&bytes[..end]).last().unwrap();
            let is_between = [3, 7, 16].contains(&end);
            assert_eq!(last.is_ok(), is_between, "cut at {end}");
        }
    }

    #[test]
    fn a_group_is_a_field_up_to_its_end() {
        // Field 1 is a group with a number and an empty group in it; field 2 is a number.
        let bytes = [0x0b, 0x10, 0x05, 0x1b, 0x1c, 0x0c, 0x10, 0x07];
        let fields: Vec<_> = Fields::of(&bytes).collect::<Result<_, _>>().unwrap();
        assert_eq!((fields[0].value, fields[0].raw), (Value::Group(&bytes[1..5]), &bytes[..6]));
        assert_eq!(fields[1].number(), Ok(7));
        let nested = |depth: usize| [[0x0b].repeat(depth), [0x0c].repeat(depth)].concat();
        assert_eq!(Fields::of(&nested(MAX_DEPTH)).flatten().count(), 1);
        for bad in [nested(MAX_DEPTH + 1), vec![0x0b], vec![0x0b, 0x14], vec![0x0c], vec![0x0b, 0x08, 0x0c]] {
            assert_eq!(Fields::of(&bad).collect::<Vec<_>>(), [Err(WireError::Field)], "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_field_ends_a_message() {
        // A length that no memory holds, a number 0, one that is too high, and a varint of more than 64 bits.
        for junk in [
            &b"\x08"[..],
            b"\x0a\x05ab",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\x01",
            b"\x80\x80\x80\x80\x10\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(Fields::of(junk).collect::<Vec<_>>(), [Err(WireError::Field)], "{junk:?}");
            assert_eq!(fields(junk).count(), 0, "{junk:?}");
        }
        let text = Fields::of(&[0x12, 0x01, 0xff]).next().unwrap().unwrap();
        assert_eq!(text.text(), Err(WireError::Text(2)));
    }
}
