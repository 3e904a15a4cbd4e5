//! Answers that go on, such as streams of events, end when their caller may not have them any more.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use crate::access::Access;
use crate::caller::Caller;
use crate::problem::ApiError;

/// The response, which ends once the policy does not give the same caller with the same rights any more, and at the end of the credential.
/// `identify` finds the caller anew. A response whose length is known is whole already.
pub(super) fn end_with_rights(
    response: Response,
    access: Arc<Access>,
    identify: impl Fn(&Access) -> Result<Caller, ApiError> + Send + Sync + 'static,
    caller: Caller,
) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let end = Box::pin(async move { until_others(&access, &identify, &caller).await });
    response.map(|body| Body::new(Ending { body, end }))
}

/// A body that ends early once a future is done.
struct Ending<F> {
    body: Body,
    end: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> HttpBody for Ending<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// Waits until the credential is not that of this caller any more.
async fn until_others(
    access: &Access,
    identify: &(impl Fn(&Access) -> Result<Caller, ApiError> + Sync),
    caller: &Caller,
) {
    let (mut policy, mut token) = (access.policy.clone(), access.token.clone());
    loop {
        // What changes after this wakes the loop.
        policy.mark_unchanged();
        token.mark_unchanged();
        let Ok(now) = identify(access) else { return };
        let ends = match (&caller.identified, &now.identified) {
            (None, None) => None,
            (Some(before), Some(now)) if before.is_still(now) => now.ends,
            (Some(_), _) | (None, Some(_)) => return,
        };
        tokio::select! {
            () = changed(&mut policy) => {}
            () = changed(&mut token) => {}
            () = until(ends) => {}
        }
    }
}

/// Waits for a change; for ever, if there can be none.
async fn changed<T>(value: &mut watch::Receiver<T>) {
    if value.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Waits for a time of the clock, which may be set meanwhile. May return early.
async fn until(end: Option<SystemTime>) {
    let Some(end) = end else { return pending().await };
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    sleep(left.clamp(SHORTEST_WAIT, LONGEST_WAIT)).await;
}

const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
