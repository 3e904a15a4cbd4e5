//! The messages of a request body, taken out of their gRPC frames.
//!
//! Unlike `tonic::Streaming` it keeps no buffer between messages: an Envoy's first request has 60 KB, and a stream lives
//! for days after it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use tonic::{Code, Status};

/// The request side of a call.
#[derive(Debug)]
pub(crate) struct RequestFrames {
    body: axum::body::Body,
    /// The beginning of a message that has not come whole.
    partial: BytesMut,
    max_message_bytes: usize,
}

impl RequestFrames {
    /// Reads from `body`; messages may have at most `max_message_bytes`.
    pub(crate) fn new(body: axum::body::Body, max_message_bytes: usize) -> Self {
        Self { body, partial: BytesMut::new(), max_message_bytes }
    }

    /// The next message; `None` when the client is done.
    ///
    /// # Errors
    ///
    /// The call must be ended with that status.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            if let Some(message) = self.take_message().transpose() {
                return Poll::Ready(Some(message));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.partial.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(broken(error)))),
                None if self.partial.is_empty() => return Poll::Ready(None),
                None => {
                    self.partial = BytesMut::new();
                    return Poll::Ready(Some(Err(Status::invalid_argument(
                        "the request body ends within a message",
                    ))));
                }
            }
        }
    }

    /// A message, if it has come whole.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        let [flag, a, b, c, d, ..] = self.partial[..] else { return Ok(None) };
        match flag {
            0 => {}
            1 => return Err(Status::unimplemented("compressed requests are not supported")),
            flag => return Err(Status::invalid_argument(format!("{flag} is no valid compressed-flag"))),
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len > self.max_message_bytes {
            let limit = self.max_message_bytes;
            return Err(Status::resource_exhausted(format!(
                "a request message has {len} bytes; at most {limit} are allowed (max_message_bytes)"
            )));
        }
        if self.partial.len() < GRPC_HEADER + len {
            return Ok(None);
        }
        let mut message = self.partial.split_to(GRPC_HEADER + len);
        message.advance(GRPC_HEADER);
        if self.partial.is_empty() {
            // Gives the memory away with the message.
            self.partial = BytesMut::new();
        }
        Ok(Some(message.freeze()))
    }
}

/// A body that broke off: what the transport says of it, or that the client is gone.
fn broken(error: axum::Error) -> Status {
    let status = Status::from_error(error.into_inner());
    if status.code() == Code::Unknown {
        return Status::cancelled("the request body broke off");
    }
    status
}

/// Compressed flag and length.
const GRPC_HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::StreamBody;

    use super::*;

    fn frames(parts: Vec<&'static [u8]>) -> RequestFrames {
        let stream = tokio_stream::iter(
            parts.into_iter().map(|part| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(part)))),
        );
        RequestFrames::new(axum::body::Body::new(StreamBody::new(stream)), 8)
    }

    fn all(mut frames: RequestFrames) -> Vec<Result<Bytes, Code>> {
        let mut messages = Vec::new();
        while let Some(message) = std::future::poll_fn(|cx| frames.poll_message(cx)).now_or_never().unwrap() {
            let is_end = message.is_err();
            messages.push(message.map_err(|status| status.code()));
            if is_end {
                break;
            }
        }
        messages
    }

    #[test]
    fn messages_come_out_however_they_are_cut() {
        let wire = b"\0\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x01c";
        for cut in 0..wire.len() {
            let (head, tail) = wire.split_at(cut);
            let expected = [b"ab".as_slice(), b"", b"c"].map(|m| Ok(Bytes::from_static(m)));
            assert_eq!(all(frames(vec![head, tail])), expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_grpc_message_is_refused() {
        assert_eq!(all(frames(vec![b"\0\0\0\0\x09"])), [Err(Code::ResourceExhausted)]);
        assert_eq!(all(frames(vec![b"\x01\0\0\0\x01a"])), [Err(Code::Unimplemented)]);
        assert_eq!(all(frames(vec![b"\x07\0\0\0\x01a"])), [Err(Code::InvalidArgument)]);
        assert_eq!(all(frames(vec![b"\0\0\0\0\x05a"])), [Err(Code::InvalidArgument)]);
        assert_eq!(all(frames(vec![])), []);
    }

    #[test]
    fn nothing_is_kept_between_messages() {
        let mut frames = frames(vec![b"\0\0\0\0\x02ab"]);
        let message = std::future::poll_fn(|cx| frames.poll_message(cx)).now_or_never();
        assert!(matches!(message, Some(Some(Ok(_)))));
        assert_eq!(frames.partial.capacity(), 0);
    }
}
