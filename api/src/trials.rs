//! Trials: validations, dry runs and explanations, which change nothing and may take as long as a write of everything.
//!
//! A few run at once, a few wait, and none runs longer than [`DEADLINE`]. So they take from the streams of clients,
//! and from writes, a bounded part of the machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use xds_cache::Refusals;
use xds_cache::refusals::Reason;

use crate::caller::Caller;
use crate::problem::ApiError;

/// The places of trials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trials {
    /// Trials that wait or run.
    all: Arc<Semaphore>,
    /// Trials that run.
    running: Arc<Semaphore>,
    /// How many of the trials that wait or run each principal has.
    by_principal: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    /// The room for bodies of validations, in KiB.
    room: Arc<Semaphore>,
    deadline: Duration,
}

impl Default for Trials {
    fn default() -> Self {
        Self::new(DEADLINE)
    }
}

/// The room that the body of a validation takes while it arrives, waits and is judged; free when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    n_bytes: usize,
}

/// A trial that was let in. Its place is free when it is dropped, so it goes where the work is done.
#[derive(Debug)]
pub(crate) struct Waiting {
    trials: Trials,
    /// Its principal, if callers have to say who they are.
    principal: Option<Arc<str>>,
    _place: OwnedSemaphorePermit,
}

/// A trial that runs.
#[derive(Debug)]
pub(crate) struct Running {
    _waiting: Waiting,
    _place: OwnedSemaphorePermit,
    /// When it must have ended.
    pub(crate) until: Instant,
}

impl Trials {
    /// Trials that may take so long.
    fn new(deadline: Duration) -> Self {
        let places = |n| Arc::new(Semaphore::new(n));
        Self {
            all: places(MAX_TRIALS),
            running: places(MAX_RUNNING),
            by_principal: Arc::default(),
            room: places(MAX_BODIES_KIB),
            deadline,
        }
    }

    /// Room for a body that is about to arrive; none yet.
    pub(crate) fn room(&self) -> Room {
        Room { free: Arc::clone(&self.room), taken: None, n_bytes: 0 }
    }

    /// Admits a trial of `caller` once its body is there, so slow senders do not keep others out.
    ///
    /// # Errors
    ///
    /// [`ApiError::Busy`] if too many are there, or too many of this principal.
    pub(crate) fn enter(&self, caller: &Caller, refusals: &Refusals) -> Result<Waiting, ApiError> {
        let principal = caller.identified.as_ref().map(|identified| &identified.principal.name);
        self.enter_as(principal.cloned(), refusals)
    }

    fn enter_as(&self, principal: Option<Arc<str>>, refusals: &Refusals) -> Result<Waiting, ApiError> {
        let busy = |of: &str, n: usize| {
            refusals.record(Reason::Trials, "a validation, dry run or explanation", SystemTime::now());
            Err(ApiError::Busy(format!(
                "{n} validations, dry runs and explanations{of} are running or waiting; try again in a moment"
            )))
        };
        let Ok(place) = Arc::clone(&self.all).try_acquire_owned() else { return busy("", MAX_TRIALS) };
        if let Some(name) = &principal {
            let mut by_principal = self.by_principal.lock().unwrap_or_else(PoisonError::into_inner);
            let n = by_principal.entry(Arc::clone(name)).or_default();
            if *n >= MAX_OF_PRINCIPAL {
                return busy(&format!(" of {name}"), MAX_OF_PRINCIPAL);
            }
            *n += 1;
        }
        Ok(Waiting { trials: self.clone(), principal, _place: place })
    }
}

impl Room {
    /// Takes room for more of the body.
    ///
    /// # Errors
    ///
    /// [`ApiError::Busy`] if the bodies of all validations take too much.
    pub(crate) fn grow(&mut self, n_bytes: usize, refusals: &Refusals) -> Result<(), ApiError> {
        self.n_bytes = self.n_bytes.saturating_add(n_bytes);
        let n_taken = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let n_more = self.n_bytes.div_ceil(1024).saturating_sub(n_taken);
        let more = u32::try_from(n_more).ok();
        let more = more.and_then(|more| Arc::clone(&self.free).try_acquire_many_owned(more).ok());
        let Some(more) = more else {
            refusals.record(Reason::Trials, "the body of a validation", SystemTime::now());
            let most = MAX_BODIES_KIB / 1024;
            return Err(ApiError::Busy(format!(
                "the bodies of other validations take {most} MiB; try again in a moment"
            )));
        };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }
}

impl Waiting {
    /// Waits for its turn.
    pub(crate) async fn run(self) -> Result<Running, ApiError> {
        let place = Arc::clone(&self.trials.running).acquire_owned().await;
        let place = place.map_err(|_| ApiError::Internal("the places of trials are gone".to_owned()))?;
        let until = Instant::now() + self.trials.deadline;
        Ok(Running { _waiting: self, _place: place, until })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(name) = &self.principal else { return };
        let mut by_principal = self.trials.by_principal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = by_principal.get_mut(name) {
            *n -= 1;
            if *n == 0 {
                by_principal.remove(name);
            }
        }
    }
}

impl Running {
    /// Returns `true` if there is time left.
    pub(crate) fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }
}

/// The error for a trial that was stopped.
pub(crate) fn stopped(refusals: &Refusals) -> ApiError {
    refusals.record(Reason::Trials, "stopped after its time", SystemTime::now());
    ApiError::Busy(format!(
        "it was stopped after {} s, the limit for a validation, dry run or explanation; send less at once",
        DEADLINE.as_secs()
    ))
}

/// How long a trial may run. 10,000 routes with two Services each take 6 s.
const DEADLINE: Duration = Duration::from_secs(30);

/// Two, so that a large one does not hold up the small ones, and half of a small machine is left.
const MAX_RUNNING: usize = 2;

/// Includes waiting trials, because each holds its body of up to 64 MiB.
const MAX_TRIALS: usize = 8;

/// Half of them, so that nobody keeps all others out.
const MAX_OF_PRINCIPAL: usize = MAX_TRIALS / 2;

/// As much as that many validations with the longest bodies take, in KiB; those that arrive included.
const MAX_BODIES_KIB: usize = MAX_TRIALS * 64 * 1024;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_few_run_a_few_wait_and_the_others_are_refused_and_counted() {
        let (trials, refusals) = (Trials::default(), Refusals::default());
        let mut waiting: Vec<Waiting> =
            (0..MAX_TRIALS).map(|_| trials.enter(&Caller::default(), &refusals).unwrap()).collect();
        assert!(matches!(trials.enter(&Caller::default(), &refusals), Err(ApiError::Busy(_))));
        assert_eq!(refusals.counts()[&Reason::Trials], 1);
        let first = waiting.pop().unwrap().run().await.unwrap();
        let _second = waiting.pop().unwrap().run().await.unwrap();
        let third = waiting.pop().unwrap().run();
        tokio::pin!(third);
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        assert!(third.await.unwrap().goes_on());
        assert!(trials.enter(&Caller::default(), &refusals).is_ok());
    }

    #[test]
    fn a_principal_has_half_of_the_places_and_leaves_the_others() {
        let (trials, refusals) = (Trials::default(), Refusals::default());
        let enter = |name: &str| trials.enter_as(Some(name.into()), &refusals);
        let mut busy: Vec<Waiting> = (0..MAX_OF_PRINCIPAL).map(|_| enter("busy").unwrap()).collect();
        let Err(ApiError::Busy(why)) = enter("busy") else { panic!("a fifth one") };
        assert!(why.starts_with("4 validations, dry runs and explanations of busy are running"), "{why}");
        let _other = enter("other").unwrap();
        busy.pop();
        busy.push(enter("busy").unwrap());
        drop(busy);
        assert_eq!(trials.by_principal.lock().unwrap().len(), 1);
        assert_eq!(trials.all.available_permits(), MAX_TRIALS - 1);
    }

    #[test]
    fn bodies_have_room_together_and_give_it_back() {
        let (trials, refusals) = (Trials::default(), Refusals::default());
        let free = || trials.room.available_permits();
        let mut small = trials.room();
        for n_bytes in [1, 1023, 1, 0] {
            small.grow(n_bytes, &refusals).unwrap();
        }
        assert_eq!(free(), MAX_BODIES_KIB - 2, "what was begun counts as a whole");
        let mut large = trials.room();
        large.grow((MAX_BODIES_KIB - 2) * 1024, &refusals).unwrap();
        assert!(matches!(large.grow(1, &refusals), Err(ApiError::Busy(_))));
        assert_eq!(refusals.counts()[&Reason::Trials], 1);
        drop(large);
        assert!(small.grow(5_000, &refusals).is_ok());
        drop(small);
        assert_eq!(free(), MAX_BODIES_KIB);
    }

    #[tokio::test]
    async fn time_ends() {
        let running = Trials::new(Duration::ZERO)
            .enter(&Caller::default(), &Refusals::default())
            .unwrap()
            .run()
            .await
            .unwrap();
        assert!(!running.goes_on());
    }
}
