//! The text and the contents that belong together, as one compressed sequence of bytes.
//!
//! ```text
//! zstd ( { length u32  bytes }* )        first the text, which is JSON, then the contents
//! ```

use std::io::{self, Read as _};

use bytes::Bytes;
use xds_store::MAX_BLOB_BYTES;

/// A text and the contents that it names by their hashes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Body {
    pub(crate) text: Vec<u8>,
    pub(crate) blobs: Vec<Bytes>,
}

impl Body {
    /// Compresses the body, which has at most [`MAX_BODY_BYTES`].
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let n_bytes: usize = self.blobs.iter().map(|blob| blob.len() + 4).sum();
        if (n_bytes + self.text.len() + 4) as u64 > MAX_BODY_BYTES {
            return Err(io::Error::other("it has more bytes than can be read again"));
        }
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), COMPRESSION_LEVEL)?;
        for part in std::iter::once(self.text.as_slice()).chain(self.blobs.iter().map(|blob| &**blob)) {
            let length = u32::try_from(part.len()).map_err(io::Error::other)?;
            io::Write::write_all(&mut encoder, &length.to_le_bytes())?;
            io::Write::write_all(&mut encoder, part)?;
        }
        encoder.finish()
    }

    /// Reads what [`encode`](Self::encode) wrote; anything else, and more than [`MAX_BODY_BYTES`], is an error.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut input = zstd::stream::read::Decoder::new(bytes)?.take(MAX_BODY_BYTES);
        let mut parts = Vec::new();
        while let Some(part) = next_part(&mut input)? {
            parts.push(part);
        }
        let mut parts = parts.into_iter();
        let text = parts.next().ok_or_else(|| io::Error::other("it has no text"))?;
        Ok(Self { text: text.into(), blobs: parts.collect() })
    }
}

fn next_part(input: &mut impl io::Read) -> io::Result<Option<Bytes>> {
    let mut length = Vec::new();
    input.take(4).read_to_end(&mut length)?;
    if length.is_empty() {
        return Ok(None);
    }
    let length: [u8; 4] = length.try_into().map_err(|_| io::Error::other("it ends in a length"))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_PART_BYTES {
        return Err(io::Error::other("a part is longer than the limit"));
    }
    let mut part = Vec::new();
    input.take(length as u64).read_to_end(&mut part)?;
    if part.len() < length {
        return Err(io::Error::other("it ends in a part"));
    }
    Ok(Some(part.into()))
}

/// Bytes of a body before it is compressed.
pub(crate) const MAX_BODY_BYTES: u64 = 512 * 1024 * 1024;

/// Bytes of the text or of a content; the text may name as much as the largest content has.
const MAX_PART_BYTES: usize = 2 * MAX_BLOB_BYTES;

/// The default of zstd, which compresses some 200 MB/s.
const COMPRESSION_LEVEL: i32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_body_is_read_as_it_was_written(text: Vec<u8>, blobs: Vec<Vec<u8>>, cut: prop::sample::Index) {
            let body = Body { text, blobs: blobs.into_iter().map(Bytes::from).collect() };
            let bytes = body.encode().unwrap();
            prop_assert_eq!(Body::decode(&bytes).unwrap(), body);
            prop_assert!(Body::decode(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = Body::decode(&bytes);
            let _ = Body::decode(&zstd::encode_all(&*bytes, 1).unwrap());
        }
    }
}
