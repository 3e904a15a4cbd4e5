//! Large work, done aside: it holds up no thread of the runtime, so every port keeps answering.
//!
//! A client may ask for, or be sent, hundreds of thousands of names. The runtime has one thread for each processor. So large work takes
//! one of as many places, and the runtime moves the tasks of its thread to another one meanwhile. The kernel shares the processors
//! between them. Small work never comes here.
//!
//! Huge work takes seconds, so it has places of its own: whoever waits for less than that never waits behind it.

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
    large: Arc<Semaphore>,
    huge: Arc<Semaphore>,
}

/// How much work there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// It takes a fraction of a second.
    Large,
    /// It may take seconds.
    Huge,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Room {
    size: Size,
    _permit: OwnedSemaphorePermit,
}

/// The wait for a place. Loses nothing when dropped.
pub(crate) type Queue = Pin<Box<dyn Future<Output = Room> + Send>>;

impl Aside {
    /// As many places of each size as there are processors.
    pub(crate) fn new() -> Self {
        Self::with(available_parallelism().map_or(1, usize::from))
    }

    fn with(n_places: usize) -> Self {
        let places = || Arc::new(Semaphore::new(n_places));
        Self { large: places(), huge: places() }
    }

    /// A place, if one is free.
    pub(crate) fn try_enter(&self, size: Size) -> Option<Room> {
        Arc::clone(self.places(size)).try_acquire_owned().ok().map(|permit| Room { size, _permit: permit })
    }

    /// Waits for a place, in the order of coming.
    pub(crate) fn enter(&self, size: Size) -> Queue {
        let places = Arc::clone(self.places(size));
        Box::pin(async move {
            match places.acquire_owned().await {
                Ok(permit) => Room { size, _permit: permit },
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn places(&self, size: Size) -> &Arc<Semaphore> {
        match size {
            Size::Large => &self.large,
            Size::Huge => &self.huge,
        }
    }
}

impl Room {
    /// Returns `true` if it is for huge work.
    pub(crate) fn is_huge(&self) -> bool {
        self.size == Size::Huge
    }
}

impl Size {
    /// The size of work that looks at so many names and resources.
    pub(crate) fn of(n_looked_at: usize) -> Self {
        if n_looked_at > HUGE { Self::Huge } else { Self::Large }
    }

    /// The size of work on a message of so many bytes, in which a name takes 16 or more.
    pub(crate) fn of_message(n_bytes: usize) -> Self {
        Self::of(n_bytes / 16)
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

/// More names and resources than that make huge work. So many take 40 to 160 ms on a busy machine, and are more than almost all clients
/// ask for.
const HUGE: usize = 20_000;

/// The tries before a lock counts as held for long. Each try lets other threads run, and takes a microsecond or less.
const N_TRIES: usize = 100;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn there_are_so_many_places_and_the_first_who_waits_is_next() {
        let aside = Aside::with(1);
        let room = aside.try_enter(Size::Large).unwrap();
        assert!(aside.try_enter(Size::Large).is_none());
        let (mut first, mut second) = (aside.enter(Size::Large), aside.enter(Size::Large));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(room);
        assert!((&mut second).now_or_never().is_none());
        drop(first.await);
        second.await;
    }

    #[tokio::test]
    async fn nobody_waits_behind_work_of_seconds_but_more_such_work() {
        let aside = Aside::with(1);
        let _huge = aside.try_enter(Size::of(250_000)).unwrap();
        let mut waiting = aside.enter(Size::of(250_000));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(aside.try_enter(Size::of(2_000)).is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_meanwhile() {
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()).unwrap() });
        let working = tokio::spawn(async move {
            let room = Aside::new().enter(Size::Large).await;
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
