//! Protobuf's wire format: its pieces, read without taking them in, and written one behind the other.

use std::ops::Range;

use prost_reflect::{Kind, MapKey, Value};

/// How the content of a field stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Varint,
    Fixed64,
    Length,
    Group,
    Fixed32,
}

/// A field where it occurs in an encoded message.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    pub(crate) number: u32,
    pub(crate) form: Form,
    /// All of it, its key included.
    pub(crate) whole: Range<usize>,
    /// Its content: of lengths and groups what is inside, of numbers their bytes.
    pub(crate) content: Range<usize>,
}

/// The fields of an encoded message in the order of the bytes; ends early at what is no field.
#[derive(Clone)]
pub(crate) struct Occurrences<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Occurrences<'b> {
    pub(crate) fn of(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Whether everything was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn read(&self, n_groups: usize) -> Option<(Occurrence, Option<u32>)> {
        let start = self.at;
        let mut at = start;
        let key = varint(self.bytes, &mut at)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..=MAX_NUMBER).contains(number))?;
        let end = |n_bytes: usize| at.checked_add(n_bytes).filter(|end| *end <= self.bytes.len());
        let (form, content, end) = match key & 7 {
            0 => {
                let mut end = at;
                varint(self.bytes, &mut end)?;
                (Form::Varint, at..end, end)
            }
            1 => (Form::Fixed64, at..end(8)?, end(8)?),
            2 => {
                let mut from = at;
                let n_bytes = usize::try_from(varint(self.bytes, &mut from)?).ok()?;
                let end = from.checked_add(n_bytes).filter(|end| *end <= self.bytes.len())?;
                (Form::Length, from..end, end)
            }
            3 => {
                let (inside, end) = self.group(at, number, n_groups)?;
                (Form::Group, inside, end)
            }
            4 => {
                let occurrence = Occurrence { number, form: Form::Group, whole: start..at, content: at..at };
                return Some((occurrence, Some(number)));
            }
            5 => (Form::Fixed32, at..end(4)?, end(4)?),
            _ => return None,
        };
        Some((Occurrence { number, form, whole: start..end, content }, None))
    }

    /// What is inside of a group that begins at `at`, and where it ends.
    fn group(&self, at: usize, number: u32, n_groups: usize) -> Option<(Range<usize>, usize)> {
        if n_groups >= MAX_DEPTH {
            return None;
        }
        let mut inside = Self { bytes: self.bytes, at };
        loop {
            let (occurrence, ends) = inside.read(n_groups + 1)?;
            if let Some(ended) = ends {
                return (ended == number).then_some((at..occurrence.whole.start, occurrence.whole.end));
            }
            inside.at = occurrence.whole.end;
        }
    }
}

impl Iterator for Occurrences<'_> {
    type Item = Occurrence;

    fn next(&mut self) -> Option<Occurrence> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let (occurrence, ends) = self.read(0)?;
        if ends.is_some() {
            return None;
        }
        self.at = occurrence.whole.end;
        Some(occurrence)
    }
}

/// Reads a varint of at most ten bytes.
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for index in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if index == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (index * 7);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// The form that single values of a kind have.
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

/// Reads one value of a kind from `bytes`, from `at` on; `None` for a message, and if there is none.
///
/// A string or bytes are all of `bytes`; anything else ends where it ends, as it stands in a packed list.
pub(crate) fn scalar(kind: &Kind, bytes: &bytes::Bytes, at: &mut usize) -> Option<Value> {
    let unzigzag = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
    match kind {
        Kind::Float => Some(Value::F32(f32::from_le_bytes(taken(bytes, at)?))),
        Kind::Fixed32 => Some(Value::U32(u32::from_le_bytes(taken(bytes, at)?))),
        Kind::Sfixed32 => Some(Value::I32(i32::from_le_bytes(taken(bytes, at)?))),
        Kind::Double => Some(Value::F64(f64::from_le_bytes(taken(bytes, at)?))),
        Kind::Fixed64 => Some(Value::U64(u64::from_le_bytes(taken(bytes, at)?))),
        Kind::Sfixed64 => Some(Value::I64(i64::from_le_bytes(taken(bytes, at)?))),
        Kind::String => {
            let text = std::str::from_utf8(bytes).ok()?.to_owned();
            *at = bytes.len();
            Some(Value::String(text))
        }
        Kind::Bytes => {
            *at = bytes.len();
            Some(Value::Bytes(bytes.clone()))
        }
        Kind::Int32 => Some(Value::I32(varint(bytes, at)? as i32)),
        Kind::Int64 => Some(Value::I64(varint(bytes, at)? as i64)),
        Kind::Uint32 => Some(Value::U32(varint(bytes, at)? as u32)),
        Kind::Uint64 => Some(Value::U64(varint(bytes, at)?)),
        Kind::Sint32 => Some(Value::I32(unzigzag(u64::from(varint(bytes, at)? as u32)) as i32)),
        Kind::Sint64 => Some(Value::I64(unzigzag(varint(bytes, at)?))),
        Kind::Bool => Some(Value::Bool(varint(bytes, at)? != 0)),
        Kind::Enum(_) => Some(Value::EnumNumber(varint(bytes, at)? as i32)),
        Kind::Message(_) => None,
    }
}

/// The next bytes of a number.
fn taken<const N: usize>(bytes: &[u8], at: &mut usize) -> Option<[u8; N]> {
    let found = bytes.get(*at..at.checked_add(N)?)?.try_into().ok()?;
    *at += N;
    Some(found)
}

/// Writes messages in one run of bytes.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

/// A length that is not known yet.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    field: usize,
    content: usize,
}

impl Writer {
    pub(crate) fn finish(mut self) -> bytes::Bytes {
        self.bytes.shrink_to_fit();
        self.bytes.into()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Bytes as they are.
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

    /// Begins a field with a length; what is written until [`close`](Self::close) is its content.
    pub(crate) fn open(&mut self, number: u32) -> Open {
        let field = self.bytes.len();
        self.key(number, Form::Length);
        // Most messages are shorter than 128 bytes; others are moved when they are closed.
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
        // The length goes from behind the content to before it, and the byte that was kept for it goes.
        let n_length = self.bytes.len() - end;
        if let Some(tail) = self.bytes.get_mut(open.content - 1..) {
            tail.rotate_right(n_length);
            tail.copy_within(n_length + 1.., n_length);
        }
        self.bytes.pop();
    }

    /// Takes a field back that has no content; whether it had any.
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

    /// A field of one scalar, its key included.
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

    /// A number, bool or enum without its key; anything else writes nothing.
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

    /// Grows by a half: what is written is the largest thing that reading gives.
    fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.reserve_exact(more.max(self.bytes.len() / 2).max(64));
        }
    }
}

/// The highest number of a field.
const MAX_NUMBER: u32 = (1 << 29) - 1;

/// Groups and messages that nest deeper are no message to any reader of protobuf.
pub(crate) const MAX_DEPTH: usize = 100;
