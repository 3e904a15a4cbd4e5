//! Pacing of large bodies: a limited number of streams write one at a time (D8).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Hands out the slots of those who write large bodies.
#[derive(Debug)]
pub(crate) struct Pacer {
    slots: Arc<Semaphore>,
    time_per_slot: Duration,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    last_id: u64,
    /// The oldest first, because all hold equally long.
    permits: BTreeMap<u64, (Instant, OwnedSemaphorePermit)>,
}

/// A slot; dropping it gives it back, unless its time was up before.
#[derive(Debug)]
pub(crate) struct WriteSlot {
    id: u64,
    pacer: Arc<Pacer>,
}

/// The wait for a slot. Loses nothing when dropped.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = WriteSlot> + Send>>;

impl Pacer {
    /// So many slots, each for so long.
    pub(crate) fn new(n_slots: usize, time_per_slot: Duration) -> Arc<Self> {
        let n_slots = n_slots.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { slots: Arc::new(Semaphore::new(n_slots)), time_per_slot, holders: Mutex::default() })
    }

    /// A slot, if one is free.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<WriteSlot> {
        Arc::clone(&self.slots).try_acquire_owned().ok().map(|permit| self.slot(permit))
    }

    /// Waits for a slot, in the order of coming.
    pub(crate) fn enter(self: &Arc<Self>) -> Waiting {
        let pacer = Arc::clone(self);
        Box::pin(async move {
            let permit = Arc::clone(&pacer.slots).acquire_owned();
            tokio::pin!(permit);
            loop {
                // The wait stays queued while slots whose time is up are taken back.
                let expiry = pacer.take_back_expired();
                match tokio::time::timeout_at(expiry, &mut permit).await {
                    Ok(Ok(permit)) => return pacer.slot(permit),
                    // The semaphore is never closed.
                    Ok(Err(_)) => std::future::pending().await,
                    Err(_) => {}
                }
            }
        })
    }

    fn slot(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> WriteSlot {
        let mut holders = self.lock();
        holders.last_id += 1;
        let id = holders.last_id;
        holders.permits.insert(id, (Instant::now() + self.time_per_slot, permit));
        WriteSlot { id, pacer: Arc::clone(self) }
    }

    /// Frees the slots whose time is up. Tells when the next one's is.
    fn take_back_expired(&self) -> Instant {
        let now = Instant::now();
        let mut holders = self.lock();
        while let Some(first) = holders.permits.first_entry() {
            let (expiry, _) = first.get();
            if *expiry > now {
                return *expiry;
            }
            drop(first.remove());
        }
        now + self.time_per_slot
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteSlot {
    fn drop(&mut self) {
        self.pacer.lock().permits.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_place_that_is_given_back_is_taken_by_the_first_who_waits() {
        let pacer = Pacer::new(1, Duration::from_secs(3600));
        let slot = pacer.try_enter().unwrap();
        assert!(pacer.try_enter().is_none());
        let (mut first, mut second) = (pacer.enter(), pacer.enter());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(slot);
        assert!((&mut second).now_or_never().is_none());
        let slot = first.await;
        drop(slot);
        second.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_writer_loses_its_place_in_time() {
        let pacer = Pacer::new(1, Duration::from_secs(5));
        let stuck = pacer.try_enter().unwrap();
        let began = Instant::now();
        let slot = pacer.enter().await;
        assert_eq!(began.elapsed(), Duration::from_secs(5));
        drop(stuck);
        assert!(pacer.try_enter().is_none(), "what was taken back is not given back twice");
        drop(slot);
        assert!(pacer.try_enter().is_some());
    }
}
