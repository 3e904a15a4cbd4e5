//! `/v1/events`: server-sent events.

use std::convert::Infallible;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_util::stream::Stream;
use http::HeaderMap;
use xds_cache::Reason;

use crate::events::MAX_READERS;
use crate::input::{NoParams, Params};
use crate::problem::ApiError;
use crate::state::ApiState;

pub(crate) async fn read(
    State(state): State<ApiState>,
    _: Params<NoParams>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    state.events.read(last).ok_or_else(|| {
        let detail = format!("{MAX_READERS} readers of events are connected, which is the limit");
        state.refusals.record(Reason::EventReaders, &detail, SystemTime::now());
        ApiError::TooMany(detail)
    })
}
