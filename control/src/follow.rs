//! Work without a request: wave deployments, deadlines, commits of other servers, disks that recover.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::{Duration, Instant, sleep, sleep_until};
use xds_cache::time::millis;
use xds_store::Health;

use crate::accepted::{Accepted, Recorded};
use crate::causes::chain;
use crate::change::{aside, note_of_disk};
use crate::control::Control;
use crate::elsewhere::pause_after;
use crate::model::weights::reconcile::next_end;
use crate::model::{WaveChoice, Write, WriteOptions};
use crate::peers::difference;
use crate::propose::Cause;
use crate::spread::Spread;
use crate::transition::{Next, Note, Outcome, ProblemSubject};
use crate::wave::report::{self, LOOK_INTERVAL};
use crate::weights::is_due;
use crate::{tested, verify};

impl Control {
    /// Takes in commits of other servers to the same store, until the store is closed.
    pub async fn follow_store(self) {
        let store = &self.shared().env.parts.store;
        let (mut head, mut health) = (store.watch(), store.health());
        let mut can_change = true;
        loop {
            let apart = match &*health.borrow_and_update() {
                Health::Current => None,
                Health::Apart(reason) => Some(reason.clone()),
            };
            self.shared().note([Note { subject: ProblemSubject::SharedStore, problem: apart }]);
            if let Err(error) = self.shared().follow().await {
                tracing::debug!(%error, "what another server committed is not taken in yet");
            }
            tokio::select! {
                moved = head.changed() => if moved.is_err() {
                    return;
                },
                told = health.changed(), if can_change => can_change = told.is_ok(),
            }
        }
    }

    /// Asks other servers about the wave deployment that is under way, while this one drives it. Ends if no other server has clients that
    /// this one can ask about; else never.
    pub async fn follow_elsewhere(self) {
        let env = &self.shared().env;
        if env.elsewhere.peers().is_none() {
            return;
        }
        let mut accepted = self.shared().watch();
        loop {
            let now = Arc::clone(&accepted.borrow_and_update());
            let (place, began) = (now.wave.as_ref().map(|wave| wave.place()), Instant::now());
            if let Some(wave) = now.wave.as_deref().filter(|wave| wave.stopped.is_none())
                && env.leads()
            {
                env.elsewhere.ask(report::question(wave, SystemTime::now())).await;
            }
            let is_other = |now: &Arc<Accepted>| now.wave.as_ref().map(|wave| wave.place()) != place;
            tokio::select! {
                told = async { accepted.wait_for(is_other).await.map(drop) } => if told.is_err() {
                    return;
                },
                () = sleep(pause_after(began.elapsed())) => {}
            }
        }
    }

    /// Compares what other servers serve with what this one does at the same revision, for ever. Ends if there are none to compare with.
    pub async fn follow_differences(self) {
        let Some(peers) = self.shared().env.elsewhere.peers() else { return };
        loop {
            sleep(COMPARE_INTERVAL).await;
            let replicas = peers.replicas();
            let problem = difference(&replicas, &self.shared().fingerprints());
            self.shared().note([Note { subject: ProblemSubject::Difference, problem }]);
        }
    }

    /// Tells the observer how fast changes reach the clients, for ever. Ends if there is no observer.
    pub async fn follow_spread(self) {
        let parts = &self.shared().env.parts;
        let Some(observer) = parts.observer.clone() else { return };
        Spread::default().follow(Arc::clone(&parts.acks), Arc::clone(&parts.board), observer).await;
    }

    /// Moves wave deployments as their clients answer and time passes, while no other server does. Never ends.
    pub async fn follow_waves(self) {
        let elsewhere = &self.shared().env.elsewhere;
        let mut ticks = self.shared().env.parts.board.ticks();
        let mut accepted = self.shared().watch();
        let mut heard = elsewhere.news();
        let mut was_leading = self.shared().env.leads();
        loop {
            let is_leading = self.shared().env.leads();
            if is_leading && !was_leading && !self.take_over_waves().await {
                sleep(RETRY).await;
                continue;
            }
            was_leading = is_leading;
            ticks.mark_unchanged();
            heard.mark_unchanged();
            let next = match self.shared().change(Cause::Wave).await {
                Ok(done) => match done.outcome {
                    Outcome::GoesOn(next) => next,
                    Outcome::Done | Outcome::Written(..) | Outcome::Loaded(_) | Outcome::Failed(_) => {
                        Next::Told
                    }
                },
                Err(error) => {
                    let problem = format!("the wave deployment cannot go on: {}", chain(&error));
                    self.shared().note([Note::problem(ProblemSubject::Waves, problem)]);
                    sleep(RETRY).await;
                    continue;
                }
            };
            let seen = Arc::clone(&accepted.borrow_and_update());
            let is_other = |now: &Arc<Accepted>| {
                let is_same = match (&now.wave, &seen.wave) {
                    (Some(wave), Some(seen)) => Arc::ptr_eq(wave, seen),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                !is_same || now.is_loaded != seen.is_loaded
            };
            let passed = async {
                match next {
                    Next::Answered(Some(at)) => sleep_until(at.into()).await,
                    Next::Answered(None) | Next::Told => std::future::pending().await,
                }
            };
            let answered = async {
                match next {
                    Next::Answered(_) => ticks.changed().await,
                    Next::Told => std::future::pending().await,
                }
            };
            tokio::select! {
                told = async { accepted.wait_for(is_other).await.map(drop) } => {
                    if told.is_err() {
                        return;
                    }
                }
                answered = answered => {
                    if answered.is_err() {
                        return;
                    }
                    sleep(LOOK_INTERVAL).await;
                }
                _ = heard.changed() => sleep(LOOK_INTERVAL).await,
                () = passed => {}
                // Whether it leads comes without a call.
                () = sleep(RETRY), if elsewhere.peers().is_some() => {}
            }
        }
    }

    /// Begins to drive the wave deployment that is under way. Returns `false` if that fails.
    async fn take_over_waves(&self) -> bool {
        tracing::info!("this server drives wave deployments now");
        if let Err(error) = self.shared().change(Cause::TakeOver).await {
            tracing::warn!(error = chain(&error), "the wave deployment cannot be taken over yet");
            return false;
        }
        self.look_at_held().await;
        true
    }

    /// Drops overrides when their time is up, for ever. A server that follows another one leaves that to it.
    pub async fn end_overrides(self) {
        if self.is_follower() {
            return;
        }
        let mut accepted = self.shared().watch();
        loop {
            let weights = Arc::clone(&accepted.borrow_and_update().documents.weights);
            let is_other = |now: &Arc<Accepted>| !Arc::ptr_eq(&now.documents.weights, &weights);
            let end = next_end(&weights);
            let wait = end.map(|end| Duration::from_millis(end.saturating_sub(millis(SystemTime::now()))));
            // The clock may be set while this waits.
            let wait = wait.map_or(MAX_WAIT, |wait| wait.min(MAX_WAIT));
            tokio::select! {
                () = async { drop(accepted.wait_for(is_other).await) } => continue,
                () = sleep(wait) => {}
            }
            if !is_due(&self.documents().weights, SystemTime::now()) {
                continue;
            }
            // All overrides that are due end together.
            let (actor, waves) = ("clock".to_owned(), WaveChoice::AtOnce);
            let options = WriteOptions { actor, waves, ..WriteOptions::default() };
            if let Err(error) = self.write(Write::EndOverrides, options).await {
                tracing::warn!(%error, "overrides whose time is up could not be dropped yet");
                sleep(RETRY).await;
            }
        }
    }

    /// Runs the RouteTests on every state that is published, for ever. Changes do not wait for it. Takes about a twentieth of a
    /// processor: states that follow each other faster are tested together, at the latest after [`MAX_PAUSE`].
    pub async fn follow_tests(self) {
        let mut accepted = self.shared().watch();
        let mut last: Option<Arc<Accepted>> = None;
        loop {
            let now = Arc::clone(&accepted.borrow_and_update());
            let began = Instant::now();
            if now.is_loaded && last.as_ref().is_none_or(|last| tested::is_other(last, &now)) {
                self.look_at_held().await;
                let (shared, state) = (Arc::clone(self.shared()), Arc::clone(&now));
                let test = move || tested::test(&shared.env.parts.codec, &state, SystemTime::now());
                match aside(test).await {
                    Ok(tested) => self.shared().take_tested(tested),
                    Err(error) => tracing::error!(error = chain(&error), "RouteTests could not be run"),
                }
                last = Some(now);
            }
            let pause = (began.elapsed() * 19).clamp(MIN_PAUSE, MAX_PAUSE);
            if accepted.changed().await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    }

    /// Publishes what RouteTests hold, if they do not any more.
    async fn look_at_held(&self) {
        if !self.is_follower()
            && self.shared().accepted().wave.as_ref().is_some_and(|wave| wave.awaits_tests())
            && let Err(error) = self.shared().change(Cause::Held).await
        {
            tracing::error!(error = chain(&error), "what RouteTests hold could not be looked at");
        }
    }

    /// Lets the oracle judge what is served and was not judged: all after the first load, and what changes went on without it. Changes do
    /// not wait for it, but for at most one of its questions. Ends if there is no oracle.
    pub async fn follow_oracle(self) {
        let shared = self.shared();
        if shared.env.parts.oracle.is_none() || shared.watch().wait_for(|now| now.is_loaded).await.is_err() {
            return;
        }
        loop {
            shared.judge_rest().await;
            shared.unjudged.notified().await;
        }
    }

    /// Compares the translation with a whole new one, every [`EACH`] revisions, for ever. This takes as long as a start, on one core, and
    /// the memory of a second translation. Changes do not wait for it.
    pub async fn verify(self) {
        let mut accepted = self.shared().watch();
        loop {
            let next = self.shared().accepted().revision.0 + EACH;
            if accepted.wait_for(|now| now.revision.0 >= next).await.is_err() {
                return;
            }
            let shared = Arc::clone(self.shared());
            let found = aside(move || {
                verify::anew(&shared.env.parts.codec, &shared.accepted().documents).map(|(_, found)| found)
            });
            if let Ok(Some(difference)) = found.await {
                tracing::error!(difference, "a translation is wrong and is made again");
                if let Err(error) = self.shared().change(Cause::Anew).await {
                    tracing::error!(%error, "the translation could not be made again");
                }
            }
        }
    }

    /// Looks whether the store's files are still its own. While storing fails, tries again until it works, and then records the served
    /// contents of files. Never ends.
    pub async fn watch_disk(self) {
        loop {
            sleep(PROBE_INTERVAL).await;
            let store = &self.shared().env.parts.store;
            if let Err(error) = store.check_in_place() {
                self.shared().note(note_of_disk(Err(&error)));
            }
            let is_due = self.shared().accepted().recorded == Recorded::Due;
            if is_due || self.shared().health().problems.contains_key(&ProblemSubject::Disk) {
                let probed = store.probe().await;
                self.shared().note(note_of_disk(probed.as_ref().map(|&()| ())));
                if is_due && probed.is_ok() {
                    self.shared().make_up().await;
                }
            }
        }
    }
}

/// The number of revisions between two comparisons.
const EACH: u64 = 1_000;

/// How often servers are compared: each says every second what it serves.
const COMPARE_INTERVAL: Duration = Duration::from_secs(2);

/// How long the clock is trusted.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long states are gathered before they are tested.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How long to wait after a refusal of the store, or of a load that is not complete.
const RETRY: Duration = Duration::from_secs(1);

/// Short enough to notice new room soon, and long enough to cost nothing while the disk is full.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
