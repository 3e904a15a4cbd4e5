//! Places for requests of client status.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::ClientStatusError;

/// The places of requests.
#[derive(Debug)]
pub(crate) struct Places {
    /// For parts that are being made.
    making: Arc<Semaphore>,
    /// For answers that are being read.
    reading: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self { making: Arc::new(Semaphore::new(MAX_MAKING)), reading: Arc::new(Semaphore::new(MAX_READING)) }
    }
}

impl Places {
    /// A place to make a part in.
    pub(crate) async fn make(&self) -> Result<OwnedSemaphorePermit, ClientStatusError> {
        let place = timeout(PLACE_PATIENCE, Arc::clone(&self.making).acquire_owned()).await;
        place.map_err(|_| ClientStatusError::Busy)?.map_err(|_| ClientStatusError::Busy)
    }

    /// A place to read an answer of many parts from.
    pub(crate) fn read(&self) -> Result<OwnedSemaphorePermit, ClientStatusError> {
        Arc::clone(&self.reading).try_acquire_owned().map_err(|_| ClientStatusError::Busy)
    }
}

/// So many parts are made at once.
const MAX_MAKING: usize = 2;
/// So many answers are read at once, by people and their tools.
const MAX_READING: usize = 16;
/// How long to wait for a place to make a part in.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);
