//! The wire format of messages, as far as the server reads and changes contents without knowing their types.

/// The next field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// Its value, as far as it matters.
    pub(crate) content: Content<'a>,
    /// The field as it stands in the message, tag and all.
    pub(crate) raw: &'a [u8],
}

/// A field's value, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// A varint.
    Number(u64),
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
    /// A number of fixed length.
    Fixed,
}

/// The fields of a message up to the first thing that is none.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || next_field(&mut message))
}

/// The last value of a field that is a string, bytes, or a message.
pub(crate) fn bytes_of(message: &[u8], number: u64) -> Option<&[u8]> {
    let values = fields(message).filter(|field| field.number == number).filter_map(|field| field.bytes());
    values.last()
}

/// The last value of a field that is a varint; 0 if there is none.
pub(crate) fn number_of(message: &[u8], number: u64) -> u64 {
    let values = fields(message).filter(|field| field.number == number);
    let numbers = values.filter_map(|field| match field.content {
        Content::Number(number) => Some(number),
        Content::Bytes(_) | Content::Fixed => None,
    });
    numbers.last().unwrap_or(0)
}

/// Appends a field that is a string, bytes, or a message.
pub(crate) fn put_bytes(message: &mut Vec<u8>, number: u64, value: &[u8]) {
    put_varint(message, number << 3 | 2);
    put_varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

/// Appends a field that is a varint.
pub(crate) fn put_number(message: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(message, number << 3);
    put_varint(message, value);
}

impl<'a> Field<'a> {
    /// The value, if it is a string, bytes, or a message.
    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        match self.content {
            Content::Bytes(bytes) => Some(bytes),
            Content::Number(_) | Content::Fixed => None,
        }
    }
}

/// Takes the next field off `message`; `None` at the end, and at the first thing that is no field.
fn next_field<'a>(message: &mut &'a [u8]) -> Option<Field<'a>> {
    let whole = *message;
    let tag = varint(message)?;
    let content = match tag & 7 {
        0 => Content::Number(varint(message)?),
        1 => take(message, 8).map(|_| Content::Fixed)?,
        2 => {
            let length = usize::try_from(varint(message)?).ok()?;
            Content::Bytes(take(message, length)?)
        }
        5 => take(message, 4).map(|_| Content::Fixed)?,
        _ => return None,
    };
    let (raw, _) = whole.split_at_checked(whole.len() - message.len())?;
    Some(Field { number: tag >> 3, content, raw })
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(taken)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Vec::new();
        put_number(&mut message, 1, 300);
        put_bytes(&mut message, 200, &[7; 200]);
        put_number(&mut message, 1, u64::MAX);
        let numbers: Vec<u64> = fields(&message).map(|field| field.number).collect();
        assert_eq!(numbers, [1, 200, 1]);
        assert_eq!((number_of(&message, 1), bytes_of(&message, 200)), (u64::MAX, Some(&[7; 200][..])));
        assert_eq!(fields(&message).flat_map(|field| field.raw.to_vec()).collect::<Vec<_>>(), message);
    }

    #[test]
    fn what_is_no_field_ends_a_message() {
        for junk in [&b"\x08"[..], b"\x0a\x05ab", b"\x0b", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(fields(junk).count(), 0, "{junk:?}");
        }
    }
}
