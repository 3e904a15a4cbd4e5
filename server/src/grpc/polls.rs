//! Places for polls, and room for their bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::grpc::budget::{Budget, Reserved};

/// The memory that polls may take together.
#[derive(Debug)]
pub(crate) struct Polls {
    places: Arc<Semaphore>,
    bodies: Arc<Budget>,
    max_bytes: usize,
}

/// A complete body.
#[derive(Debug)]
pub(crate) struct PollBody {
    pub(crate) bytes: Vec<u8>,
    _reserved: Reserved,
}

/// Why a poll is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PollRefusal {
    /// The body is too large.
    #[error("the body has more than {limit} bytes (--max-poll-bytes)")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// There are too many polls.
    #[error("too many polls at once (--max-polls); try again later")]
    Busy,
    /// The body does not come.
    #[error("the body did not arrive within {} s", BODY_PATIENCE.as_secs())]
    Slow,
    /// The client is gone, or broke the rules of HTTP.
    #[error("the body broke off")]
    BrokenOff,
}

impl Polls {
    /// At most `max_polls` at once, of at most `max_bytes` each.
    pub(crate) fn new(max_polls: usize, max_bytes: usize) -> Self {
        let room = max_polls.saturating_mul(max_bytes).saturating_mul(BODIES_PER_PLACE);
        Self { places: Arc::new(Semaphore::new(max_polls)), bodies: Budget::new(room), max_bytes }
    }

    /// Reads a body. The bytes that have come count, but it takes no place.
    ///
    /// # Errors
    ///
    /// [`PollRefusal`].
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Body) -> Result<PollBody, PollRefusal> {
        timeout(BODY_PATIENCE, self.take_in(headers, body)).await.unwrap_or(Err(PollRefusal::Slow))
    }

    async fn take_in(&self, headers: &HeaderMap, mut body: Body) -> Result<PollBody, PollRefusal> {
        let too_large = PollRefusal::TooLarge { limit: self.max_bytes };
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let announced: usize = announced.unwrap_or_default();
        if announced > self.max_bytes {
            return Err(too_large);
        }
        let mut reserved = self.bodies.reserve(POLL_BYTES).ok_or(PollRefusal::Busy)?;
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| PollRefusal::BrokenOff)?.into_data() else { continue };
            if bytes.len() + data.len() > self.max_bytes {
                return Err(too_large);
            }
            if !reserved.grow(data.len()) {
                return Err(PollRefusal::Busy);
            }
            // Memory counts only once it is written to.
            bytes.reserve_exact(announced.saturating_sub(bytes.len()).max(data.len()));
            bytes.extend_from_slice(&data);
        }
        Ok(PollBody { bytes, _reserved: reserved })
    }

    /// Waits for a place to work in.
    ///
    /// # Errors
    ///
    /// [`PollRefusal::Busy`] if none becomes free in time.
    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, PollRefusal> {
        let place = timeout(PLACE_PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        place.map_err(|_| PollRefusal::Busy)?.map_err(|_| PollRefusal::Busy)
    }
}

/// An Envoy's poll has some 200 KB, and Envoys give up after a second.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// A client that has to wait is likely to be there for this long.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);
/// The cost of a poll besides its body, so that waiting polls are bounded in number too.
const POLL_BYTES: usize = 4096;
/// The bodies of full size for each place: one that is being processed, and others that come or wait.
const BODIES_PER_PLACE: usize = 4;
