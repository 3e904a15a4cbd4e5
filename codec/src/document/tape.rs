//! The documents of a text as one sequence of bytes, in which a value takes about as much as in the text.
//!
//! A tree of boxes costs a hundred bytes for a value that the text writes in two, so a file of 10 MB could take a gigabyte
//! before anything in it was checked. On a tape, a value is a tag, its place as two varints, and its content. A list or object
//! says how many bytes it has, so it can be skipped. Whole values can be copied, which is how aliases work.
//!
//! ```text
//! value  = tag line column content
//! list   = tag line column n_items:u32 n_bytes:u32 value*
//! object = tag line column n_entries:u32 n_bytes:u32 entry*
//! entry  = (1 + length of key) key line column value | 0 n_bytes:u32 hidden value
//! ```
//!
//! A hidden value belongs to YAML's `<<`: it is written where it was read, and its entries are copied after the others.

use super::{Number, Position};

/// Writes values one after the other.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// The number of values so far.
    pub(super) n_values: usize,
}

/// The offset of the two numbers of a list or object that is not closed yet.
#[derive(Clone, Copy)]
pub(super) struct Open(usize);

/// A value without children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Number),
    String(&'a str),
}

impl Writer {
    pub(super) fn scalar(&mut self, position: Position, scalar: Scalar<'_>) {
        match scalar {
            Scalar::Null => self.begin(NULL, position),
            Scalar::Bool(false) => self.begin(FALSE, position),
            Scalar::Bool(true) => self.begin(TRUE, position),
            Scalar::Number(Number::Integer(small @ 0..MAX_SMALL)) => {
                self.begin(SMALL + u8::try_from(small).unwrap_or_default(), position);
            }
            Scalar::Number(Number::Integer(integer)) => match i64::try_from(integer) {
                Ok(integer) => {
                    self.begin(INTEGER, position);
                    self.varint(((integer << 1) ^ (integer >> 63)) as u64);
                }
                Err(_) => {
                    self.begin(WIDE, position);
                    self.bytes.extend_from_slice(&integer.to_le_bytes());
                }
            },
            Scalar::Number(Number::Float(float)) => {
                self.begin(FLOAT, position);
                self.bytes.extend_from_slice(&float.to_le_bytes());
            }
            Scalar::String(text) => {
                self.begin(STRING, position);
                self.text(text);
            }
        }
    }

    /// Begins a string whose content comes in pieces, see [`push`](Self::push).
    pub(super) fn open_string(&mut self, position: Position) -> Open {
        self.begin(STRING, position);
        Open(self.bytes.len())
    }

    /// Begins a key whose content comes in pieces.
    pub(super) fn open_key(&self) -> Open {
        Open(self.bytes.len())
    }

    /// Adds a piece to the open string or key.
    pub(super) fn push(&mut self, piece: &str) {
        self.reserve(piece.len());
        self.bytes.extend_from_slice(piece.as_bytes());
    }

    pub(super) fn close_string(&mut self, open: Open) {
        self.insert_varint(open.0, (self.bytes.len() - open.0) as u64);
    }

    pub(super) fn close_key(&mut self, open: Open, position: Position) {
        self.insert_varint(open.0, (self.bytes.len() - open.0) as u64 + 1);
        self.position(position);
    }

    pub(super) fn key(&mut self, key: &str, position: Position) {
        self.reserve(key.len() + 16);
        self.varint(key.len() as u64 + 1);
        self.bytes.extend_from_slice(key.as_bytes());
        self.position(position);
    }

    pub(super) fn open_list(&mut self, position: Position) -> Open {
        self.open(LIST, position)
    }

    pub(super) fn open_object(&mut self, position: Position) -> Open {
        self.open(OBJECT, position)
    }

    fn open(&mut self, tag: u8, position: Position) -> Open {
        self.begin(tag, position);
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 8]);
        open
    }

    /// Closes a list or object with the number of its items or entries.
    pub(super) fn close(&mut self, open: Open, n_children: usize) {
        let n_bytes = self.bytes.len() - open.0 - 8;
        self.put_u32(open.0, n_children);
        self.put_u32(open.0 + 4, n_bytes);
    }

    /// Begins a value that is not an entry of the open object.
    pub(super) fn open_hidden(&mut self) -> Open {
        self.reserve(8);
        self.bytes.push(0);
        let open = Open(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
        open
    }

    pub(super) fn close_hidden(&mut self, open: Open) {
        let n_bytes = self.bytes.len() - open.0 - 4;
        self.put_u32(open.0, n_bytes);
    }

    /// The offset of the value after an [`open_hidden`](Self::open_hidden).
    pub(super) fn hidden_start(open: Open) -> usize {
        open.0 + 4
    }

    /// Copies whole values or entries from this range of the tape.
    pub(super) fn copy(&mut self, range: std::ops::Range<usize>) {
        self.reserve(range.len());
        if range.end <= self.bytes.len() {
            self.bytes.extend_from_within(range);
        }
    }

    /// Appends whole values or entries of another tape.
    pub(super) fn append(&mut self, written: &[u8]) {
        self.reserve(written.len());
        self.bytes.extend_from_slice(written);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes so far.
    pub(super) fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// The tape, without spare capacity.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.shrink_to_fit();
        self.bytes
    }

    fn begin(&mut self, tag: u8, position: Position) {
        self.n_values += 1;
        self.reserve(32);
        self.bytes.push(tag);
        self.position(position);
    }

    fn position(&mut self, position: Position) {
        self.varint(position.line.into());
        self.varint(position.column.into());
    }

    fn text(&mut self, text: &str) {
        self.reserve(text.len() + 8);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn insert_varint(&mut self, at: usize, number: u64) {
        self.reserve(32);
        let end = self.bytes.len();
        self.varint(number);
        if let Some(tail) = self.bytes.get_mut(at..) {
            tail.rotate_right(tail.len() - (end - at));
        }
    }

    /// Overwrites a number at an offset. Numbers fit, because a text has less than 4 GiB, see [`super::check_text`].
    fn put_u32(&mut self, at: usize, number: usize) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Reserves capacity. Grows by half instead of doubling, because the tape is the largest result of parsing.
    fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.reserve_exact(more.max(self.bytes.len() / 2).max(256));
        }
    }
}

/// Reads the bytes of a [`Writer`]. Anything that is not a tape reads as empty.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t> {
    pub(super) tape: &'t [u8],
    pub(super) at: usize,
}

/// A value without its children.
pub(super) enum Token<'t> {
    Null,
    Bool(bool),
    Number(Number),
    String(&'t str),
    /// A list: the number of items, and the offset of their end.
    List(usize, usize),
    /// An object: the number of entries, and the offset of their end.
    Object(usize, usize),
}

impl<'t> Cursor<'t> {
    /// Reads the tag and the position of the value, and moves the cursor to its content.
    pub(super) fn begin(&mut self) -> (u8, Position) {
        let tag = self.byte();
        (tag, self.position())
    }

    /// Reads the value. Moves the cursor past a scalar, or to the first child of a list or object.
    pub(super) fn token(&mut self) -> (Position, Token<'t>) {
        let (tag, position) = self.begin();
        let token = match tag {
            FALSE => Token::Bool(false),
            TRUE => Token::Bool(true),
            INTEGER => {
                let number = self.varint();
                Token::Number(Number::Integer(i128::from((number >> 1) as i64 ^ -((number & 1) as i64))))
            }
            WIDE => Token::Number(Number::Integer(i128::from_le_bytes(self.array()))),
            FLOAT => Token::Number(Number::Float(f64::from_le_bytes(self.array()))),
            STRING => Token::String(self.text(0)),
            LIST | OBJECT => {
                let n_children = u32::from_le_bytes(self.array()) as usize;
                let n_bytes = u32::from_le_bytes(self.array()) as usize;
                let end = self.at.saturating_add(n_bytes).min(self.tape.len());
                if tag == LIST { Token::List(n_children, end) } else { Token::Object(n_children, end) }
            }
            SMALL.. => Token::Number(Number::Integer(i128::from(tag - SMALL))),
            _ => Token::Null,
        };
        (position, token)
    }

    /// Skips a value.
    pub(super) fn skip(&mut self) {
        if let (_, Token::List(_, end) | Token::Object(_, end)) = self.token() {
            self.at = end;
        }
    }

    /// Reads the key of an entry and its position, and moves the cursor to its value. Skips hidden values. `None` at `end`.
    pub(super) fn key(&mut self, end: usize) -> Option<(&'t str, Position)> {
        while self.at < end {
            if self.tape.get(self.at) != Some(&0) {
                let key = self.text(1);
                return Some((key, self.position()));
            }
            self.at += 1;
            self.at += u32::from_le_bytes(self.array()) as usize;
        }
        None
    }

    pub(super) fn position(&mut self) -> Position {
        let line = self.varint() as u32;
        Position { line, column: self.varint() as u32 }
    }

    /// Reads a text after its length, which is stored with `more` added.
    fn text(&mut self, more: u64) -> &'t str {
        let length = self.varint().saturating_sub(more);
        let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(self.at);
        let text = self.tape.get(self.at..end).unwrap_or_default();
        self.at = end;
        std::str::from_utf8(text).unwrap_or_default()
    }

    fn varint(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let found = self.tape.get(self.at..self.at + N).and_then(|bytes| bytes.try_into().ok());
        self.at += N;
        found.unwrap_or([0; N])
    }

    fn byte(&mut self) -> u8 {
        let byte = self.tape.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        byte
    }
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INTEGER: u8 = 3;
/// An integer beyond 64 bits.
const WIDE: u8 = 4;
const FLOAT: u8 = 5;
const STRING: u8 = 6;
const LIST: u8 = 7;
const OBJECT: u8 = 8;
/// The number 0. The next tags are the next numbers.
const SMALL: u8 = 16;
/// The first number without a tag of its own.
const MAX_SMALL: i128 = 240;
