//! Answers of which it is known whether their clients take them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use crate::listen::Peer;
use crate::listen::peer::Wait;

/// The body of an answer. Its connection is known to be waited for while its client takes nothing of what there is.
pub(crate) struct Untaken<B> {
    inner: B,
    /// `None` while the client has taken everything that there is. It is asked for more only when the client can take that.
    untaken: Option<Wait>,
    peer: Peer,
}

impl<B> Untaken<B> {
    /// The body of an answer to this peer, of which nothing is sent yet.
    pub(crate) fn new(inner: B, peer: Peer) -> Self {
        Self { inner, untaken: Some(peer.await_taking()), peer }
    }
}

impl<B: Body + Unpin> Body for Untaken<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.untaken = None;
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if matches!(frame, Poll::Ready(Some(Ok(_)))) {
            self.untaken = Some(self.peer.await_taking());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> fmt::Debug for Untaken<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Untaken")
    }
}
