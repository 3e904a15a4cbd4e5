//! Writes that wait for their turn. Changes are made one at a time, and one that has begun goes on if its caller hangs up; so whoever
//! writes faster than the disk takes it is turned away, and neither the queue nor what waits in it grows without end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::WriteError;

/// The places of writes. What the server does by itself is one write at a time, and needs none.
#[derive(Debug)]
pub(crate) struct Queue {
    places: Arc<Semaphore>,
    /// What may wait in them, in KiB.
    room: Arc<Semaphore>,
}

/// The place of a write, until it is done.
#[derive(Debug)]
pub(crate) struct Place {
    _place: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

impl Default for Queue {
    fn default() -> Self {
        let semaphore = |n| Arc::new(Semaphore::new(n));
        Self { places: semaphore(MAX_WRITES), room: semaphore(MAX_KIB) }
    }
}

impl Queue {
    /// Lets a write in that brings so many bytes. One that is alone always finds room.
    ///
    /// # Errors
    ///
    /// [`WriteError::Busy`] if as many wait as may, or if they bring too much.
    pub(crate) fn enter(&self, n_bytes: usize) -> Result<Place, WriteError> {
        let n_kib = (n_bytes / 1024 + 1).min(MAX_KIB);
        let n_kib = u32::try_from(n_kib).map_err(|_| WriteError::Busy)?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| WriteError::Busy)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(n_kib).map_err(|_| WriteError::Busy)?;
        Ok(Place { _place: place, _room: room })
    }
}

/// A second of writes on a slow disk, with 4 ms each.
const MAX_WRITES: usize = 256;

/// Two writes with the longest bodies, which have 64 MiB.
const MAX_KIB: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_writes_wait_as_may_and_no_more_than_they_may_bring() {
        let queue = Queue::default();
        let mut all: Vec<Place> = (0..MAX_WRITES).map(|_| queue.enter(0).unwrap()).collect();
        assert!(matches!(queue.enter(0), Err(WriteError::Busy)));
        all.pop();
        assert!(queue.enter(0).is_ok());
        drop(all);
        let large = queue.enter(100 << 20).unwrap();
        assert!(matches!(queue.enter(29 << 20), Err(WriteError::Busy)));
        let small = queue.enter(20 << 20).unwrap();
        drop(large);
        assert!(matches!(queue.enter(usize::MAX), Err(WriteError::Busy)));
        drop(small);
        assert!(queue.enter(usize::MAX).is_ok(), "one that is alone always finds room");
        assert!(queue.enter(1 << 20).is_ok(), "and is gone again");
    }
}
