//! Request bodies that keep pace: a client that sends its body slowly, or not at all, is not waited for.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::listen::Peer;
use crate::listen::peer::Wait;

/// Serves a request whose body must keep pace, on a connection that is busy until the answer is ready.
pub(crate) async fn keep_pace(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let _busy = peer.as_ref().map(Peer::busy);
    next.run(request.map(|body| paced(body, peer.as_ref()))).await
}

/// `body`, as long as it keeps pace; it fails with [`io::ErrorKind::TimedOut`] otherwise. `peer` is known to be waited for meanwhile.
pub(super) fn paced(body: Body, peer: Option<&Peer>) -> Body {
    if http_body::Body::is_end_stream(&body) {
        return body;
    }
    let missing = peer.map(Peer::await_body);
    Body::new(Paced { inner: body, began: Instant::now(), n_received: 0, patience: None, missing })
}

struct Paced {
    inner: Body,
    began: Instant,
    n_received: usize,
    /// Set while nothing comes.
    patience: Option<Pin<Box<Sleep>>>,
    /// Until everything has come.
    missing: Option<Wait>,
}

impl Paced {
    /// When the next bytes must have come: soon, and the sooner the less has come so far.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_secs((self.n_received / MIN_RATE) as u64);
        (Instant::now() + PATIENCE).min(self.began + PATIENCE + earned)
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.patience = None;
            if let Some(Ok(frame)) = &frame {
                this.n_received += frame.data_ref().map_or(0, Bytes::len);
            }
            if frame.is_none() || this.inner.is_end_stream() {
                this.missing = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = this.deadline();
        let patience = this.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if patience.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let error = io::Error::new(io::ErrorKind::TimedOut, "the body did not arrive completely in time");
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paced({} bytes)", self.n_received)
    }
}

/// How long no byte may come: a lost packet is sent again within seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes a second that a body must come with in the end.
const MIN_RATE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio_stream::StreamExt as _;

    use super::*;

    /// A body of parts that come `every` so often.
    fn body(n_parts: usize, n_bytes: usize, every: Duration) -> Body {
        let parts = tokio_stream::iter(0..n_parts).then(move |_| async move {
            tokio::time::sleep(every).await;
            Ok::<_, io::Error>(Frame::data(Bytes::from(vec![0; n_bytes])))
        });
        paced(Body::new(StreamBody::new(Box::pin(parts))), None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_pause_but_not_for_long() {
        let seconds = Duration::from_secs;
        assert!(body(3, 1_000_000, seconds(9)).collect().await.is_ok());
        assert!(body(1, 100_000, seconds(11)).collect().await.is_err());
        let began = Instant::now();
        assert!(body(1000, 1, seconds(1)).collect().await.is_err(), "drops are no progress");
        assert!(began.elapsed() <= seconds(12), "{:?}", began.elapsed());
    }
}
