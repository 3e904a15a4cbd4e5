//! The format of records: a frame around each, and its content.
//!
//! A segment is a file header followed by frames. All numbers are little-endian.
//!
//! ```text
//! file header   "XDSJRNL1"  base revision u64  checkpoint end u64  salt u64  CRC32C of these u32
//! frame header  "XDSr"  kind u32  payload length u32  batch u64  CRC32C of the payload u32  CRC32C of these u32
//! ```
//!
//! The digit that ends the magic of the file header is the version of the format. A program refuses versions that it does not know, and
//! changes nothing. The length of the file header and the place of its checksum are the same in every version.
//!
//! The checksum of a frame header also covers the salt and the frame's offset, so bytes that look like a frame count only where they were
//! written: a blob may contain a journal. `batch` is the offset of the first frame that was written and synced together with this one.

use std::sync::Arc;

use bytes::BufMut;

use crate::{BlobHash, Change, Commit, MAX_BLOB_BYTES, MAX_KEY_BYTES, Record, Revision, State};

/// First bytes of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FileHeader {
    /// The revision that this segment's first commit follows.
    pub(crate) base: Revision,
    /// Everything before this offset was in place before the file got its name. It is the length of this header
    /// unless the segment begins with a checkpoint.
    pub(crate) checkpoint_end: u64,
    /// Random; distinguishes the frames of this segment from all others.
    pub(crate) salt: u64,
}

impl FileHeader {
    /// Bytes of the header.
    pub(crate) const LENGTH: u64 = 36;

    /// Returns `true` if the segment needs nothing that is before it.
    pub(crate) const fn is_checkpoint(&self) -> bool {
        self.checkpoint_end > Self::LENGTH
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LENGTH as usize);
        out.put_slice(FILE_MAGIC);
        out.put_u64_le(self.base.0);
        out.put_u64_le(self.checkpoint_end);
        out.put_u64_le(self.salt);
        out.put_u32_le(crc32c::crc32c(&out));
        out
    }

    /// Decodes the header of a file. It distinguishes a newer version from a damaged header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        match newer_version(bytes) {
            Some(version) => Err(HeaderError::Newer(version.into())),
            None => Self::decode_known(bytes).map_err(HeaderError::Damaged),
        }
    }

    /// The header of a segment that begins with a damaged one, if the frame behind it confirms the salt.
    ///
    /// The segment then looks like one without a checkpoint.
    pub(crate) fn guess(bytes: &[u8]) -> Option<Self> {
        let (header, frame) = bytes.split_at_checked(Self::LENGTH as usize)?;
        let salt = u64::from_le_bytes(header.get(24..32)?.try_into().ok()?);
        FrameHeader::decode(frame, salt, Self::LENGTH).ok()?;
        Some(Self { base: Revision::ZERO, checkpoint_end: Self::LENGTH, salt })
    }

    fn decode_known(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut fields = Fields(bytes);
        if fields.take(FILE_MAGIC.len())? != FILE_MAGIC {
            return Err("the file does not begin with the header of a journal");
        }
        let (base, checkpoint_end, salt) = (Revision(fields.u64()?), fields.u64()?, fields.u64()?);
        let checked = bytes.get(..Self::LENGTH as usize - 4).ok_or(TOO_SHORT)?;
        if fields.u32()? != crc32c::crc32c(checked) {
            return Err("the checksum of the file's header is wrong");
        }
        Ok(Self { base, checkpoint_end, salt })
    }
}

/// Why there is no header that this program can read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HeaderError {
    Damaged(&'static str),
    /// Only a newer program can have written it: the version of a file, or the kind of an intact frame.
    Newer(u32),
}

impl From<&'static str> for HeaderError {
    fn from(reason: &'static str) -> Self {
        Self::Damaged(reason)
    }
}

/// The version of the format that a header is of, if it is newer than this program's.
///
/// Its checksum must be right: whatever is damaged in a header of this version, it does not become a newer one.
fn newer_version(bytes: &[u8]) -> Option<u8> {
    let (_, name) = FILE_MAGIC.split_last()?;
    let version = bytes.strip_prefix(name)?.first()?.checked_sub(b'0')?;
    let (checked, checksum) = bytes.get(..FileHeader::LENGTH as usize)?.split_last_chunk()?;
    let is_newer =
        (VERSION + 1..=9).contains(&version) && u32::from_le_bytes(*checksum) == crc32c::crc32c(checked);
    is_newer.then_some(version)
}

/// The kind of content in a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A blob's hash, then its content.
    Blob,
    /// A [`Record`].
    Commit,
    /// Every key and its value at the base of the segment.
    Checkpoint,
}

impl Kind {
    const fn code(self) -> u32 {
        match self {
            Self::Blob => 1,
            Self::Commit => 2,
            Self::Checkpoint => 3,
        }
    }
}

/// The header in front of a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    /// Bytes of the payload, at most [`MAX_PAYLOAD_BYTES`].
    pub(crate) length: u32,
    /// Offset of the first frame that was synced together with this one.
    pub(crate) batch: u64,
    /// Checksum of the payload.
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    /// Bytes of the header.
    pub(crate) const LENGTH: u64 = 28;

    /// Decodes the header of the frame at `offset` in the segment of `salt`.
    pub(crate) fn decode(bytes: &[u8], salt: u64, offset: u64) -> Result<Self, HeaderError> {
        let mut fields = Fields(bytes);
        if fields.take(FRAME_MAGIC.len())? != FRAME_MAGIC {
            return Err("no record begins here".into());
        }
        let (kind, length, batch, payload_crc) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u32()?);
        let checked = bytes.get(..Self::LENGTH as usize - 4).ok_or(TOO_SHORT)?;
        if fields.u32()? != header_crc(checked, salt, offset) {
            return Err("the checksum of the record's header is wrong".into());
        }
        let kind = match kind {
            1 => Kind::Blob,
            2 => Kind::Commit,
            3 => Kind::Checkpoint,
            kind => return Err(HeaderError::Newer(kind)),
        };
        if length as usize > MAX_PAYLOAD_BYTES {
            return Err("the record is longer than the limit".into());
        }
        Ok(Self { kind, length, batch, payload_crc })
    }

    /// Bytes of the whole frame.
    pub(crate) const fn frame_length(&self) -> u64 {
        Self::LENGTH + self.length as u64
    }
}

/// Appends the frame of a payload, given in `parts`, which will be at `offset` in the segment of `salt`, to `out`.
///
/// The payload is at most [`MAX_PAYLOAD_BYTES`] long.
pub(crate) fn write_frame(
    out: &mut Vec<u8>,
    kind: Kind,
    parts: &[&[u8]],
    salt: u64,
    offset: u64,
    batch: u64,
) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(length <= MAX_PAYLOAD_BYTES, "callers check the size");
    let start = out.len();
    out.put_slice(FRAME_MAGIC);
    out.put_u32_le(kind.code());
    out.put_u32_le(length as u32);
    out.put_u64_le(batch);
    out.put_u32_le(parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part)));
    let crc = header_crc(out.get(start..).unwrap_or_default(), salt, offset);
    out.put_u32_le(crc);
    for part in parts {
        out.put_slice(part);
    }
}

/// Encodes the payload of a commit.
pub(crate) fn encode_record(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64_le(record.revision.0);
    out.put_u64_le(record.commit.at_ms);
    for text in [&record.commit.actor, &record.commit.source, &record.commit.summary] {
        put_text(&mut out, text);
    }
    out.put_u32_le(record.commit.changes.len() as u32);
    for (change, (_, previous)) in record.commit.changes.iter().zip(&record.previous) {
        put_text(&mut out, &change.key);
        put_value(&mut out, change.value);
        put_value(&mut out, *previous);
    }
    out
}

/// Decodes what [`encode_record`] wrote; anything else is an error.
pub(crate) fn decode_record(payload: &[u8]) -> Result<Record, &'static str> {
    let mut fields = Fields(payload);
    let revision = Revision(fields.u64()?);
    let mut commit = Commit { at_ms: fields.u64()?, ..Commit::default() };
    commit.actor = fields.text()?;
    commit.source = fields.text()?;
    commit.summary = fields.text()?;
    let mut previous = Vec::new();
    for _ in 0..fields.u32()? {
        let key = fields.text()?;
        commit.changes.push(Change { key: key.clone(), value: fields.value()? });
        previous.push((key, fields.value()?));
    }
    fields.end()?;
    Ok(Record { revision, commit, previous })
}

/// Encodes payloads of checkpoints; together they are `state`, and none is too long.
pub(crate) fn encode_state(state: &State) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut out = Vec::new();
    for (key, hash) in state {
        put_text(&mut out, key);
        out.put_slice(hash.as_bytes());
        if out.len() > CHECKPOINT_BYTES {
            payloads.push(std::mem::take(&mut out));
        }
    }
    payloads.push(out);
    payloads
}

/// Decodes the keys and values of one checkpoint payload.
pub(crate) fn decode_state(payload: &[u8]) -> Result<Vec<(Arc<str>, BlobHash)>, &'static str> {
    let mut entries = Vec::new();
    let mut fields = Fields(payload);
    while !fields.0.is_empty() {
        entries.push((fields.text()?.into(), fields.hash()?));
    }
    Ok(entries)
}

/// The rest of a payload that is being decoded.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        self.take(N)?.try_into().map_err(|_| TOO_SHORT)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<String, &'static str> {
        let length = self.u32()? as usize;
        if length > MAX_KEY_BYTES {
            return Err("a string in the record is longer than the limit");
        }
        let text = std::str::from_utf8(self.take(length)?);
        Ok(text.map_err(|_| "a string in the record is not UTF-8")?.to_owned())
    }

    fn hash(&mut self) -> Result<BlobHash, &'static str> {
        Ok(BlobHash::from_bytes(self.array()?))
    }

    fn value(&mut self) -> Result<Option<BlobHash>, &'static str> {
        match self.take(1)? {
            [0] => Ok(None),
            [1] => Ok(Some(self.hash()?)),
            _ => Err("a value in the record is marked neither present nor absent"),
        }
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err("the record is longer than its content") }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.put_u32_le(text.len() as u32);
    out.put_slice(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: Option<BlobHash>) {
    match value {
        None => out.put_u8(0),
        Some(hash) => {
            out.put_u8(1);
            out.put_slice(hash.as_bytes());
        }
    }
}

fn header_crc(header: &[u8], salt: u64, offset: u64) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &offset.to_le_bytes());
    crc32c::crc32c_append(crc, header)
}

/// Where a frame begins.
pub(crate) const FRAME_MAGIC: &[u8; 4] = b"XDSr";

/// Longest payload: a blob with its hash. A record may be as long.
pub(crate) const MAX_PAYLOAD_BYTES: usize = MAX_BLOB_BYTES + BlobHash::LENGTH;

/// The version of the format that is written; older ones do not exist.
pub(crate) const VERSION: u8 = 1;

/// Eight bytes; the last one is [`VERSION`] as a digit.
const FILE_MAGIC: &[u8; 8] = b"XDSJRNL1";

/// A checkpoint's payload is ended when it exceeds this, so that a state of any size can be written.
const CHECKPOINT_BYTES: usize = 4 * 1024 * 1024;

const TOO_SHORT: &str = "the record ends too early";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn record()(
            revision: u64, at_ms: u64, texts: [String; 3],
            changes in prop::collection::vec((".{0,9}", any::<Option<[u8; 32]>>(), any::<Option<[u8; 32]>>()), 0..5),
        ) -> Record {
            let [actor, source, summary] = texts;
            let (changes, previous) = changes.into_iter().map(|(key, value, previous)| (
                Change { key: key.clone(), value: value.map(BlobHash::from_bytes) },
                (key, previous.map(BlobHash::from_bytes)),
            )).unzip();
            Record { revision: Revision(revision), commit: Commit { actor, at_ms, source, summary, changes }, previous }
        }
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record()) {
            let payload = encode_record(&record);
            prop_assert_eq!(decode_record(&payload), Ok(record));
            for end in 0..payload.len() {
                prop_assert!(decode_record(&payload[..end]).is_err());
            }
        }

        #[test]
        fn arbitrary_payloads_are_errors_or_records(bytes: Vec<u8>) {
            let _ = decode_state(&bytes);
            let _ = FileHeader::decode(&bytes);
            let _ = FrameHeader::decode(&bytes, 0, 0);
            if let Ok(record) = decode_record(&bytes) {
                prop_assert_eq!(encode_record(&record), bytes);
            }
        }

        #[test]
        fn a_state_is_read_as_it_was_written(state: BTreeMap<String, [u8; 32]>) {
            let state: State = state.into_iter().map(|(k, v)| (Arc::from(k), BlobHash::from_bytes(v))).collect();
            let mut read = State::new();
            for payload in encode_state(&state) {
                read.extend(decode_state(&payload).unwrap());
            }
            prop_assert_eq!(read, state);
        }
    }

    #[test]
    fn a_frame_counts_only_where_it_was_written() {
        let mut out = Vec::new();
        write_frame(&mut out, Kind::Blob, &[b"a", b"bc"], 7, 36, 36);
        assert!(FrameHeader::decode(&out, 7, 36).is_ok());
        assert!(FrameHeader::decode(&out, 7, 37).is_err());
        assert!(FrameHeader::decode(&out, 8, 36).is_err());
    }
}
