//! The messages of a request body, taken out of their gRPC frames.
//!
//! Unlike `tonic::Streaming` it keeps no buffer between messages: an Envoy's first request has 60 KB, and a stream lives
//! for days after it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use tonic::{Code, Status};
use xds_cache::wire::Fields;

use crate::grpc::receive::{Meter, ReceiveError};

/// The request side of a call.
#[derive(Debug)]
pub(crate) struct RequestFrames {
    body: axum::body::Body,
    /// The beginning of an incomplete message.
    partial: BytesMut,
    rules: Rules,
    /// True if the incomplete message was admitted.
    is_admitted: bool,
    /// True if a returned message still counts in the budgets.
    is_handled_next: bool,
    meter: Meter,
}

/// The messages that a call accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The limit of one message, in bytes.
    pub(crate) max_message_bytes: usize,
    /// The field of the first message that is the client's node; a large message must begin with it. `None` if no node
    /// is needed, or none any more.
    pub(crate) node_field: Option<u32>,
}

impl RequestFrames {
    /// Reads from `body`.
    pub(crate) fn new(body: axum::body::Body, rules: Rules, meter: Meter) -> Self {
        let partial = BytesMut::new();
        Self { body, partial, rules, is_admitted: false, is_handled_next: false, meter }
    }

    /// The next message; `None` when the client is done. It counts in the budgets until the next call.
    ///
    /// # Errors
    ///
    /// The status with which the call must end.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        self.poll_framed(cx).map_ok(|mut message| {
            message.advance(GRPC_HEADER);
            message
        })
    }

    /// The next message, with its gRPC header.
    pub(crate) fn poll_framed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if std::mem::take(&mut self.is_handled_next) {
            self.meter.release();
        }
        loop {
            if let Some(message) = self.take_message().transpose() {
                return Poll::Ready(Some(message));
            }
            if let Err(error) = ready!(self.poll_room(cx)) {
                self.partial = BytesMut::new();
                self.meter.release();
                return Poll::Ready(Some(Err(error.into())));
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if !self.partial.is_empty() {
                    self.meter.hold(self.partial.len(), self.partial.capacity(), cx);
                }
                return Poll::Pending;
            };
            match frame {
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

    /// Returns `true` if a large message is under way that has room, or waits for it.
    pub(crate) fn is_receiving_large(&self) -> bool {
        self.meter.is_large()
    }

    /// Waits until there is room for more of the message that has begun.
    fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Result<(), ReceiveError>> {
        self.meter.check()?;
        let [_, a, b, c, d, ..] = self.partial[..] else { return Poll::Ready(Ok(())) };
        let n_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        let n_received = self.partial.len() - GRPC_HEADER;
        if self.is_admitted || n_bytes <= SMALL || n_received < SMALL {
            return Poll::Ready(Ok(()));
        }
        if let Some(field) = self.rules.node_field
            && !begins_with(&self.partial[GRPC_HEADER..], field)
        {
            if n_received < MAX_WITHOUT_NODE || n_bytes <= MAX_WITHOUT_NODE {
                return Poll::Ready(Ok(()));
            }
            let error = ReceiveError::NoNode { n_bytes, limit: MAX_WITHOUT_NODE };
            return Poll::Ready(Err(self.meter.refuse(error)));
        }
        ready!(self.meter.poll_admission(n_bytes, cx))?;
        self.is_admitted = true;
        self.partial.reserve(GRPC_HEADER + n_bytes - self.partial.len());
        Poll::Ready(Ok(()))
    }

    /// A message, if it is complete.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        let [flag, a, b, c, d, ..] = self.partial[..] else { return Ok(None) };
        match flag {
            0 => {}
            1 => return Err(Status::unimplemented("compressed requests are not supported")),
            flag => return Err(Status::invalid_argument(format!("{flag} is not a valid compressed-flag"))),
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let limit = self.rules.max_message_bytes;
        if len > limit {
            return Err(self.meter.refuse(ReceiveError::TooLarge { n_bytes: len, limit }).into());
        }
        if self.partial.len() < GRPC_HEADER + len {
            return Ok(None);
        }
        let message = self.partial.split_to(GRPC_HEADER + len);
        if self.partial.is_empty() || len > SMALL {
            // Gives the memory away with the message; the beginning of the next one is less than a frame.
            self.partial = BytesMut::from(&self.partial[..]);
        }
        (self.is_admitted, self.is_handled_next) = (false, true);
        // A stream that names no node in its first message ends.
        self.rules.node_field = None;
        Ok(Some(message.freeze()))
    }
}

/// Returns `true` if the whole of a field is among the first ones of `message`, of which the rest may be missing.
///
/// All encoders write fields in the order of their numbers, and a node is the first or second one.
fn begins_with(message: &[u8], field: u32) -> bool {
    Fields::of(message).take(MAX_FIELDS_BEFORE_NODE).flatten().any(|found| found.number == field)
}

/// The status of a body that broke off: the error of the transport, or the end of the client.
fn broken(error: axum::Error) -> Status {
    let status = Status::from_error(error.into_inner());
    if status.code() == Code::Unknown {
        return Status::cancelled("the request body broke off");
    }
    status
}

/// Messages up to this size never wait: an Envoy's first request has 60 KB.
pub(crate) const SMALL: usize = 64 * 1024;
/// The most bytes from a client that has not named its node. A complete node may have this many.
pub(crate) const MAX_WITHOUT_NODE: usize = 1024 * 1024;
/// Fields that are looked at for a node.
const MAX_FIELDS_BEFORE_NODE: usize = 4;
/// Compressed flag and length.
const GRPC_HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use futures_util::FutureExt;
    use http_body_util::StreamBody;

    use super::*;
    use crate::grpc::receive::{ReceiveLimits, Receiving};
    use crate::listen::Peer;

    /// Frames of a call that takes 8 bytes.
    fn frames(parts: Vec<&'static [u8]>) -> RequestFrames {
        let parts = parts.into_iter().map(|part| Poll::Ready(Bytes::from(part))).collect();
        with(parts, Rules { max_message_bytes: 8, node_field: None }, &receiving())
    }

    fn receiving() -> Arc<Receiving> {
        let limits = ReceiveLimits {
            process: 4 << 20,
            per_source: 2 << 20,
            per_connection: 2 << 20,
            patience: Duration::from_secs(10),
        };
        Receiving::new(limits, Arc::default())
    }

    /// Frames of a call whose body comes in these parts; `Pending` stands for a part that is awaited.
    fn with(parts: Vec<Poll<Bytes>>, rules: Rules, receiving: &Arc<Receiving>) -> RequestFrames {
        let mut parts = VecDeque::from(parts);
        let stream = futures_util::stream::poll_fn(move |cx| match parts.pop_front() {
            Some(Poll::Ready(part)) => {
                Poll::Ready(Some(Ok::<_, std::io::Error>(http_body::Frame::data(part))))
            }
            Some(Poll::Pending) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        });
        let meter = Meter::new(receiving, Peer::unknown());
        RequestFrames::new(axum::body::Body::new(StreamBody::new(stream)), rules, meter)
    }

    fn poll(frames: &mut RequestFrames) -> Poll<Option<Result<Bytes, Code>>> {
        let mut cx = Context::from_waker(Waker::noop());
        frames.poll_message(&mut cx).map(|message| message.map(|message| message.map_err(|s| s.code())))
    }

    /// A message of `n_bytes` that begins with a field.
    fn large(field: u8, n_bytes: usize) -> Bytes {
        let mut message = BytesMut::new();
        message.extend_from_slice(&[0]);
        message.extend_from_slice(&u32::try_from(n_bytes).unwrap().to_be_bytes());
        message.extend_from_slice(&[field << 3 | 2, 1, b'x']);
        message.resize(GRPC_HEADER + n_bytes, 0x1a);
        message.freeze()
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

    #[test]
    fn a_large_message_counts_as_soon_as_it_is_large_until_it_is_handled() {
        let receiving = receiving();
        let rules = Rules { max_message_bytes: 1 << 20, node_field: None };
        let message = large(1, 1 << 20);
        let parts = [100, SMALL, 1 << 19].map(|at| message.slice(at..));
        let [_, b, c] = &parts;
        let cut = vec![
            Poll::Ready(message.slice(..100)),
            Poll::Pending,
            Poll::Ready(message.slice(100..SMALL)),
            Poll::Pending,
            Poll::Ready(b.slice(..(1 << 19) - SMALL)),
            Poll::Pending,
            Poll::Ready(c.clone()),
            Poll::Pending,
        ];
        let mut frames = with(cut, rules, &receiving);
        assert_eq!((poll(&mut frames), receiving.n_bytes()), (Poll::Pending, 100));
        assert!(poll(&mut frames).is_pending());
        assert!((SMALL / 2..=2 * SMALL).contains(&receiving.n_bytes()), "{}", receiving.n_bytes());
        assert_eq!((poll(&mut frames), receiving.n_bytes()), (Poll::Pending, 1 << 20));
        assert!(matches!(poll(&mut frames), Poll::Ready(Some(Ok(found))) if found.len() == 1 << 20));
        assert_eq!(receiving.n_bytes(), 1 << 20, "while it is handled");
        assert_eq!((poll(&mut frames), receiving.n_bytes()), (Poll::Pending, 0));
    }

    #[test]
    fn a_large_message_must_begin_with_its_node() {
        let receiving = receiving();
        let n_bytes = MAX_WITHOUT_NODE + 10;
        for (message, rules_field, expected) in [
            (large(1, n_bytes), Some(1), None),
            (large(1, n_bytes), Some(2), Some(Code::ResourceExhausted)),
            (large(1, MAX_WITHOUT_NODE), Some(2), None),
            (large(1, n_bytes), None, None),
        ] {
            let rules = Rules { max_message_bytes: 2 << 20, node_field: rules_field };
            let (head, tail) = (message.slice(..MAX_WITHOUT_NODE), message.slice(MAX_WITHOUT_NODE..));
            let split = tail.len().min(GRPC_HEADER);
            let parts = [head, tail.slice(..split), tail.slice(split..)].map(Poll::Ready);
            let mut frames = with(parts.into(), rules, &receiving);
            let Poll::Ready(Some(taken)) = poll(&mut frames) else { panic!("not whole") };
            assert_eq!(taken.err(), expected, "{rules_field:?}");
        }
        assert_eq!(receiving.n_bytes(), 0);
    }

    #[test]
    fn a_message_waits_for_its_turn_and_ends_after_its_time() {
        let receiving = receiving();
        let rules = Rules { max_message_bytes: 2 << 20, node_field: None };
        let part =
            |message: &Bytes, n: usize| vec![Poll::Ready(message.slice(..n)), Poll::Pending, Poll::Pending];
        let message = large(1, (2 << 20) - GRPC_HEADER);
        let mut first = with(part(&message, SMALL + 10), rules, &receiving);
        let mut second = with(part(&message, SMALL + 10), rules, &receiving);
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert!(first.is_receiving_large() && second.is_receiving_large());
        assert!(second.partial.capacity() < 1 << 20, "it has no room yet");
        receiving.sweep(Instant::now());
        receiving.sweep(Instant::now() + Duration::from_secs(10));
        assert_eq!(poll(&mut first), Poll::Ready(Some(Err(Code::DeadlineExceeded))));
        assert_eq!(poll(&mut second), Poll::Ready(Some(Err(Code::ResourceExhausted))));
        assert_eq!((first.partial.capacity(), second.partial.capacity()), (0, 0));
        assert_eq!(receiving.n_bytes(), 0);
        let mut third = with(part(&message, SMALL + 10), rules, &receiving);
        let mut fourth = with(part(&message, SMALL + 10), rules, &receiving);
        assert!(poll(&mut third).is_pending() && poll(&mut fourth).is_pending());
        drop(third);
        assert!(poll(&mut fourth).is_pending());
        assert!(fourth.partial.capacity() >= message.len(), "now it is its turn");
    }
}
