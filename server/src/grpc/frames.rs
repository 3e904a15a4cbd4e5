//! A message of one stream: its nonce, followed by the body that streams share.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use xds_session::{Nonce, Response};

use crate::grpc::encode::{Body, MIN_SEGMENT};
use crate::grpc::wire::message;

/// The rest of one response, written frame by frame.
#[derive(Debug)]
pub(crate) struct Frames {
    first: Option<Bytes>,
    body: Arc<Body>,
    /// The next segment of `body`.
    next: usize,
    /// The position in that segment.
    offset: usize,
}

impl Frames {
    /// The message of one stream.
    pub(crate) fn new(nonce: u64, body: Arc<Body>) -> Self {
        let nonce = message(NONCE, Nonce::text(nonce).as_bytes());
        Self::with_nonce_field(&nonce, body)
    }

    /// A message without nonce, for a call that is not a stream.
    pub(crate) fn without_nonce(body: Arc<Body>) -> Self {
        Self::with_nonce_field(&[], body)
    }

    fn with_nonce_field(nonce: &[u8], body: Arc<Body>) -> Self {
        let len = nonce.len() + body.len();
        let segment = body.segments().first().map(|segment| &segment[..]).unwrap_or_default();
        let n_copied = if segment.len() <= MAX_COPIED { segment.len() } else { MIN_SEGMENT };
        let mut first = BytesMut::with_capacity(GRPC_HEADER + nonce.len() + n_copied);
        first.put_u8(0);
        // Published contents are far smaller than 4 GiB.
        first.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        first.put_slice(nonce);
        first.put_slice(&segment[..n_copied]);
        let (next, offset) = if n_copied < segment.len() { (0, n_copied) } else { (1, 0) };
        Self { first: Some(first.freeze()), body, next, offset }
    }

    /// The bytes of the whole message, with the gRPC header.
    pub(crate) fn message_len(response: &Response, body: &Body) -> usize {
        GRPC_HEADER + 2 + Nonce::text(response.nonce).len() + body.len()
    }
}

impl Iterator for Frames {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let (index, offset) = (self.next, std::mem::take(&mut self.offset));
        self.next += 1;
        let body = (index < self.body.segments().len()).then(|| Arc::clone(&self.body))?;
        Some(Bytes::from_owner(Part { body, index }).slice(offset..))
    }
}

/// A segment on its way to a client. The transport holds it until it is sent, and with it the whole body, so that others
/// can share it until then.
struct Part {
    body: Arc<Body>,
    index: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.body.segments().get(self.index).map(|segment| &segment[..]).unwrap_or_default()
    }
}

/// Compressed flag and length.
const GRPC_HEADER: usize = 5;
/// A first segment up to this size is copied behind the nonce whole: one frame instead of two.
const MAX_COPIED: usize = 4096;
/// `nonce` of both messages.
const NONCE: u32 = 5;
