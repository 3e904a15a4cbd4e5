//! Large work, done aside: it holds up no thread of the runtime, so every port keeps answering.
//!
//! A client may ask for, or be sent, hundreds of thousands of names. The runtime has one thread for each processor. So large work takes
//! one of as many places, and the runtime moves the tasks of its thread to another one meanwhile. The kernel shares the processors
//! between them. Small work never comes here.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, available_parallelism};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;

/// Hands out places for large work.
#[derive(Debug)]
pub(crate) struct Aside {
    places: Arc<Semaphore>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Room {
    _permit: OwnedSemaphorePermit,
}

/// The wait for a place. Loses nothing when dropped.
pub(crate) type Queue = Pin<Box<dyn Future<Output = Room> + Send>>;

impl Aside {
    /// As many places as there are processors.
    pub(crate) fn new() -> Self {
        let n_places = available_parallelism().map_or(1, usize::from);
        Self { places: Arc::new(Semaphore::new(n_places)) }
    }

    /// A place, if one is free.
    pub(crate) fn try_enter(&self) -> Option<Room> {
        Arc::clone(&self.places).try_acquire_owned().ok().map(|permit| Room { _permit: permit })
    }

    /// Waits for a place, in the order of coming.
    pub(crate) fn enter(&self) -> Queue {
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            match places.acquire_owned().await {
                Ok(permit) => Room { _permit: permit },
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// Runs large work on this thread.
pub(crate) fn work<T>(_place: &Room, work: impl FnOnce() -> T) -> T {
    without_runtime(work)
}

/// Takes a lock that may be held during large work.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let locked = || mutex.lock().unwrap_or_else(PoisonError::into_inner);
    try_lock(mutex).unwrap_or_else(|| without_runtime(locked))
}

/// Takes a lock, unless it is held for longer than small work takes.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..N_TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

/// Does large work later, if no caller waits for it.
pub(crate) fn later(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Lets the runtime continue without this thread.
pub(crate) fn without_runtime<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // A runtime of one thread, as in tests, has no other thread to continue on.
        _ => work(),
    }
}

/// The tries before a lock counts as held for long. Each try lets other threads run, and takes a microsecond or less.
const N_TRIES: usize = 100;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn there_are_so_many_places_and_the_first_who_waits_is_next() {
        let aside = Aside { places: Arc::new(Semaphore::new(1)) };
        let room = aside.try_enter().unwrap();
        assert!(aside.try_enter().is_none());
        let (mut first, mut second) = (aside.enter(), aside.enter());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(room);
        assert!((&mut second).now_or_never().is_none());
        drop(first.await);
        second.await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_meanwhile() {
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()).unwrap() });
        let working = tokio::spawn(async move {
            let room = Aside::new().enter().await;
            // The only thread of the runtime is this one.
            work(&room, || told.recv().unwrap());
        });
        working.await.unwrap();
        other.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_waits_for_a_lock_holds_nobody_up() {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock().unwrap();
        let waiter = {
            let mutex = Arc::clone(&mutex);
            tokio::spawn(async move { drop(lock(&mutex)) })
        };
        // Runs on the same thread, behind the one that waits.
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()).unwrap() });
        told.recv().unwrap();
        drop(guard);
        waiter.await.unwrap();
        other.await.unwrap();
    }
}
