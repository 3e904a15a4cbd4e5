//! The one place that commits, publishes, swaps and reports.
//!
//! Changes are made one at a time, and a change that has begun continues if its caller hangs up. Callers that write faster than the
//! disk are refused: the queue of writes has a limit in number and in bytes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::{Duration, sleep};
use xds_cache::layer::differing;
use xds_cache::{Groups, Publication, Revision};
use xds_codec::Diagnostic;
use xds_store::{Change, CommitError, StoreError};

use crate::accepted::{Accepted, Base, Recorded};
use crate::causes::chain;
use crate::env::{At, Env, Reload, Sharing, Verify, revision_of, stored_revision};
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::judged::{self, Asked, Refused, Served};
use crate::key::StoreKey;
use crate::load::Blame;
use crate::missing::Missing;
use crate::model::{Event, TraceParent, WriteError};
use crate::oracle::{Judgement, OraclePolicy};
use crate::own_files::{Memory, Watched};
use crate::plan::Plan;
use crate::propose::{Cause, propose, unstored, without_effect};
use crate::route_tests::Totals;
use crate::stages::{Changed, Stage, Stages};
use crate::tested::Tested;
use crate::transition::{Done, Label, Note, Outcome, ProblemSubject, Transition};
use crate::wave::former;
use crate::{documents, load, others, secrets, verify};

/// The state that all parts of a control share.
pub(crate) struct Shared {
    /// Held while a dry run is made and played, which takes a processor and memory for its time.
    pub(crate) dry_running: tokio::sync::Mutex<()>,
    /// How the files are read again.
    pub(crate) reload: OnceLock<Reload>,
    /// The contents of the files when their copies were saved, until the first load.
    pub(crate) copies: Mutex<Option<Arc<Base>>>,
    pub(crate) env: Env,
    /// The writes that wait for it.
    pub(crate) queue: Queue,
    /// Held while a change is made.
    changing: tokio::sync::Mutex<()>,
    /// A reader clones one pointer.
    accepted: watch::Sender<Arc<Accepted>>,
    health: Mutex<Health>,
    /// What was served at the last revisions.
    fingerprints: Mutex<Fingerprints>,
    /// The last outcome of RouteTests.
    tested: Mutex<Option<Arc<Tested>>>,
    /// What the oracle refuses of what is served.
    refused: Mutex<Served>,
    /// The files that this server watches, if others share its store.
    pub(crate) watched: watch::Sender<Option<Watched>>,
    /// What it remembers of them.
    pub(crate) own: Mutex<Memory>,
    /// Wakes whoever judges what is served and was not judged before.
    pub(crate) unjudged: Notify,
    events: broadcast::Sender<Event>,
}

/// The health of the control, which is no part of the accepted state.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The problems that need attention, by subject.
    pub(crate) problems: BTreeMap<ProblemSubject, String>,
    /// True if the server is shutting down.
    pub(crate) is_closing: bool,
    /// Why the certificates of a port, or their source, keep clients out.
    pub(crate) closed: BTreeMap<&'static str, String>,
}

impl Health {
    pub(crate) fn set_closed(&mut self, subject: &'static str, why: Option<String>) {
        match why {
            Some(why) => self.closed.insert(subject, why),
            None => self.closed.remove(subject),
        };
    }
}

/// The slots of writes. Changes that the server starts come one at a time, and need no slot.
#[derive(Debug)]
pub(crate) struct Queue {
    slots: Arc<Semaphore>,
    /// The room for waiting causes, in KiB.
    room: Arc<Semaphore>,
}

/// The slot of a write, until it is done.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    _slot: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// How many events a slow reader may lag behind before it loses the oldest.
const EVENT_CAPACITY: usize = 256;

/// How often a change is proposed anew because another server committed first.
const MAX_ATTEMPTS: u32 = 16;

/// The longest wait before the second of these. It grows with each, [`MAX_FACTOR`] times at most.
///
/// A loser has to propose anew and the winner has not, so without waits of different lengths whoever won wins again.
const MAX_WAIT: Duration = Duration::from_millis(50);
const MAX_FACTOR: u32 = 8;

/// How long a change waits for the oracle. A run takes about 0.15 s, and a refused resource among 500 twenty of them.
const MAX_JUDGED: Duration = Duration::from_secs(2);

/// How long a dry run waits for it: a change that comes meanwhile still finds time.
const MAX_TRIAL_JUDGED: Duration = Duration::from_secs(1);

/// The resources that are judged at once of what is served. Changes that come meanwhile wait for these.
const MAX_PART: usize = 200;

/// A second of writes on a slow disk, with 4 ms each.
const MAX_WRITES: usize = 256;

/// Two writes with the longest bodies, which have 64 MiB.
const MAX_KIB: usize = 128 * 1024;

impl Shared {
    pub(crate) fn new(env: Env, mut accepted: Accepted) -> Self {
        accepted.missing = Arc::new(Missing::default().changed(&Groups::new(), &accepted.groups));
        let mut fingerprints = Fingerprints::default();
        fingerprints
            .push(accepted.revision, Fingerprint::default().changed(&Groups::new(), &accepted.groups));
        Self {
            dry_running: tokio::sync::Mutex::default(),
            reload: OnceLock::new(),
            copies: Mutex::default(),
            env,
            queue: Queue::default(),
            changing: tokio::sync::Mutex::default(),
            accepted: watch::Sender::new(Arc::new(accepted)),
            health: Mutex::default(),
            fingerprints: Mutex::new(fingerprints),
            tested: Mutex::default(),
            refused: Mutex::default(),
            watched: watch::Sender::new(None),
            own: Mutex::default(),
            unjudged: Notify::new(),
            events: broadcast::Sender::new(EVENT_CAPACITY),
        }
    }

    /// The last accepted state.
    pub(crate) fn accepted(&self) -> Arc<Accepted> {
        Arc::clone(&self.accepted.borrow())
    }

    /// Wakes at each new accepted state.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Accepted>> {
        self.accepted.subscribe()
    }

    /// What was served at the last revisions.
    pub(crate) fn fingerprints(&self) -> MutexGuard<'_, Fingerprints> {
        self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last outcome of RouteTests; `None` before the first.
    pub(crate) fn tested(&self) -> Option<Arc<Tested>> {
        self.tested.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the outcome of RouteTests, and reports it.
    pub(crate) fn take_tested(&self, tested: Tested) {
        let before = self.tested();
        let news = tested.news(before.as_deref());
        if let Some(observer) = &self.env.parts.observer {
            let Totals { passed, failed } = tested.report.totals();
            observer.tested(passed, failed);
        }
        let note = tested.note();
        *self.tested.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tested));
        self.note([note]);
        news.into_iter().for_each(|event| self.tell(event));
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// A dry run: the result that a cause would have. It changes nothing, and other changes do not wait for it.
    pub(crate) async fn try_out(self: &Arc<Self>, cause: Cause) -> Result<Transition, WriteError> {
        let (accepted, cause) = (self.accepted(), Arc::new(cause));
        let proposed = self.propose(&accepted, &cause).await?;
        let (_, proposed) =
            self.judged(&accepted, &cause, proposed, Instant::now() + MAX_TRIAL_JUDGED).await?;
        Ok(proposed)
    }

    /// Makes a change, one at a time.
    pub(crate) async fn change(self: &Arc<Self>, cause: Cause) -> Result<Done, WriteError> {
        if self.env.options.sharing == Sharing::Follower && cause.makes_history() {
            return Err(WriteError::Follower);
        }
        let cause = Arc::new(cause);
        let begin = || Stages::begin().within(cause.trace_parent());
        let mut stages = begin();
        let _changing = self.changing.lock().await;
        // Contents that are served already come first in the history.
        if matches!(*cause, Cause::Write(..)) {
            self.record_late().await;
        }
        stages.end(Stage::Wait);
        match (self.alone(&cause, stages).await, cause.forced_by()) {
            (Err(WriteError::WaveActive { .. }), Some(actor)) => {
                self.alone(&Arc::new(Cause::Forced { actor: actor.to_owned() }), begin()).await?;
                self.alone(&cause, begin()).await
            }
            (Err(error), _) => {
                if let Some(shown) = without_effect(&self.accepted(), &cause) {
                    let revision = shown.next.revision;
                    self.take(shown, revision, begin())?;
                }
                Err(error)
            }
            (done, _) => done,
        }
    }

    /// Makes the change while no other one is made.
    async fn alone(self: &Arc<Self>, cause: &Arc<Cause>, mut stages: Stages) -> Result<Done, WriteError> {
        let mut judged_by = None;
        for attempt in 1..=MAX_ATTEMPTS {
            // The contents of files do not depend on commits of others.
            let is_current = match self.catch_up().await {
                Err(error) if !matches!(**cause, Cause::Files(_)) => return Err(error),
                caught_up => caught_up.is_ok(),
            };
            let accepted = self.accepted();
            let proposed = self.propose(&accepted, cause).await?;
            stages.end(Stage::Propose);
            let judged_by = *judged_by.get_or_insert_with(|| Instant::now() + MAX_JUDGED);
            let (cause, proposed) = self.judged(&accepted, cause, proposed, judged_by).await?;
            stages.end(Stage::Judge);
            if proposed.is_served_first {
                let (next, label) = load::served_first(&proposed, accepted.revision);
                let notes = proposed.notes.clone();
                self.accept(next, (&label, stages.parent()), true, vec![], notes);
            }
            let committed = self.commit(accepted.revision, &proposed).await;
            stages.end(Stage::Commit);
            match committed {
                Err(WriteError::Store(error)) if matches!(*error, CommitError::Conflict { .. }) => {
                    sleep(wait_after(attempt, random())).await;
                }
                Err(error) => {
                    let proposed = self.without_store(&accepted, &cause, proposed, error).await?;
                    return self.take(proposed, accepted.revision, stages);
                }
                Ok(Some(revision)) => {
                    return self.take(Transition { is_published: true, ..proposed }, revision, stages);
                }
                // The state from which it was proposed is older than the one with which it was compared.
                Ok(None) if is_current && !others::is_current(&self.env, accepted.revision) => {}
                Ok(None) => {
                    let revision = proposed.next.revision;
                    return self.take(proposed, revision, stages);
                }
            }
        }
        let head = self.env.parts.store.head();
        Err(WriteError::Store(Arc::new(CommitError::Conflict { head })))
    }

    /// Lets the oracle judge what a cause would publish, until `until`. Gives the cause and the proposal that go on: a load goes on without
    /// what is refused. An oracle that does not judge is in nobody's way.
    ///
    /// Reads go on meanwhile, and so does the service of clients; other changes wait.
    ///
    /// # Errors
    ///
    /// [`WriteError::Invalid`] for a write that is refused.
    async fn judged(
        self: &Arc<Self>,
        accepted: &Arc<Accepted>,
        cause: &Arc<Cause>,
        mut proposed: Transition,
        until: Instant,
    ) -> Result<(Arc<Cause>, Transition), WriteError> {
        let mut cause = Arc::clone(cause);
        // The first load is served as it is: without it nothing would be.
        if self.env.parts.oracle.is_none() || !cause.is_judged() || !accepted.is_loaded {
            return Ok((cause, proposed));
        }
        let mut blames = [Blame::Named, Blame::Named, Blame::Wide].into_iter();
        loop {
            let asked = judged::changed(&accepted.groups, &proposed.next.groups);
            if asked.is_empty() {
                return Ok((cause, proposed));
            }
            let (judgement, refused) = self.ask(asked, proposed.next.groups.clone(), until).await;
            let errors = judged::errors(&refused);
            if errors.is_empty() || self.env.options.oracle_policy == OraclePolicy::Tell {
                return Ok((cause, told(proposed, &judgement, refused)));
            }
            let Cause::Files(load) = &*cause else { return Err(WriteError::Invalid(errors)) };
            let without = blames.next().and_then(|blame| load.without(accepted, &refused, blame));
            let Some(without) = without else {
                errors.iter().for_each(log_refusal);
                let proposed = load::refused_by_oracle(accepted, load, errors);
                return Ok((cause, told(proposed, &judgement, vec![])));
            };
            without.new_refusals(accepted).for_each(log_refusal);
            cause = Arc::new(Cause::Files(without));
            proposed = self.propose(accepted, &cause).await?;
        }
    }

    /// Asks the oracle, aside. What it refuses is found in `groups`.
    async fn ask(
        self: &Arc<Self>,
        asked: Vec<Asked>,
        groups: Groups,
        until: Instant,
    ) -> (Judgement, Vec<Refused>) {
        let (shared, n_asked) = (Arc::clone(self), asked.len());
        let answered = aside(move || {
            let Some(oracle) = &shared.env.parts.oracle else { return Default::default() };
            let judgement = oracle.judge(&judged::lists(&asked), until);
            let refused = judged::refused(&shared.env.parts.codec, &groups, &asked, &judgement);
            (judgement, refused)
        });
        answered.await.unwrap_or_else(|error| (Judgement::undecided(n_asked, chain(&error)), vec![]))
    }

    /// Lets the oracle judge what is served and was not judged, a part at a time. Ends early if it does not judge.
    pub(crate) async fn judge_rest(self: &Arc<Self>) {
        let Some(oracle) = self.env.parts.oracle.clone() else { return };
        let groups = self.accepted().groups.clone();
        let rest: Vec<Asked> = judged::all(&groups).filter(|(_, resource)| !oracle.knows(resource)).collect();
        for part in rest.chunks(MAX_PART) {
            let (judgement, refused) =
                self.ask(part.to_vec(), groups.clone(), Instant::now() + MAX_JUDGED).await;
            self.note([note_of_oracle(&judgement)]);
            self.take_refused(refused);
            if judgement.why.is_some() {
                return;
            }
        }
    }

    /// Keeps what the oracle refuses of what is served, and reports it.
    fn take_refused(&self, refused: Vec<Refused>) {
        if self.env.parts.oracle.is_none() {
            return;
        }
        let groups = self.accepted().groups.clone();
        let mut served = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = |one: &&Refused| !served.contains_key(&(one.group.clone(), one.resource.key().clone()));
        let news: Vec<Diagnostic> = judged::as_warnings(refused.iter().filter(is_news));
        judged::update(&mut served, &groups, refused);
        let problem = judged::problem(&served);
        drop(served);
        news.iter().for_each(log_refusal);
        self.note([Note { subject: ProblemSubject::Refused, problem }]);
    }

    /// The warnings about what the oracle refuses of what is served.
    pub(crate) fn refused(&self) -> Vec<Diagnostic> {
        let served = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        judged::as_warnings(served.values())
    }

    /// Records contents of files that are served but could not be recorded, if there are any.
    pub(crate) async fn make_up(self: &Arc<Self>) {
        let _changing = self.changing.lock().await;
        self.record_late().await;
    }

    async fn record_late(self: &Arc<Self>) {
        if self.accepted().recorded == Recorded::Due {
            // If it fails again, the problem stays.
            let _ = self.alone(&Arc::new(Cause::Unrecorded), Stages::begin()).await;
        }
    }

    /// Takes in commits of other servers, unless they are known.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, which is noted.
    pub(crate) async fn follow(self: &Arc<Self>) -> Result<(), WriteError> {
        let _changing = self.changing.lock().await;
        self.catch_up().await
    }

    async fn catch_up(self: &Arc<Self>) -> Result<(), WriteError> {
        if others::is_current(&self.env, self.accepted().revision) {
            self.note([Note::solved(ProblemSubject::Store)]);
            return Ok(());
        }
        let mut stages = Stages::begin();
        let caught_up = self.propose(&self.accepted(), &Arc::new(Cause::Others)).await;
        stages.end(Stage::Propose);
        let caught_up = caught_up.and_then(|proposed| {
            let revision = proposed.next.revision;
            self.take(proposed, revision, stages)
        });
        match caught_up {
            Ok(_) => self.note([Note::solved(ProblemSubject::Store)]),
            Err(error) => {
                let problem = format!("the store cannot be read: {}", chain(&error));
                self.note([Note::problem(ProblemSubject::Store, problem)]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Proposes on another thread, because many documents take a while.
    async fn propose(
        self: &Arc<Self>,
        accepted: &Arc<Accepted>,
        cause: &Arc<Cause>,
    ) -> Result<Transition, WriteError> {
        let (shared, accepted, cause) = (Arc::clone(self), Arc::clone(accepted), Arc::clone(cause));
        let at = At::now();
        let proposed = move || {
            let proposed = propose(&shared.env, &accepted, &cause, at)?;
            if shared.env.options.verify == Verify::Always {
                verify::refuse(&shared.env.parts.codec, &accepted, &proposed.next)?;
            }
            Ok(proposed)
        };
        aside(proposed).await?
    }

    async fn without_store(
        self: &Arc<Self>,
        accepted: &Arc<Accepted>,
        cause: &Arc<Cause>,
        proposed: Transition,
        error: WriteError,
    ) -> Result<Transition, WriteError> {
        let (shared, accepted, cause) = (Arc::clone(self), Arc::clone(accepted), Arc::clone(cause));
        let at = At::now();
        aside(move || unstored(&shared.env, &accepted, (&cause, proposed), error, at)).await?
    }

    /// Stores the changes of a transition as the revision after `expected`; `None` if there are none.
    async fn commit(
        &self,
        expected: Revision,
        proposed: &Transition,
    ) -> Result<Option<Revision>, WriteError> {
        if proposed.plan.is_empty() {
            return Ok(None);
        }
        let committed = self.store(expected, &proposed.plan, &proposed.label).await;
        match (committed, &proposed.smaller) {
            (Err(CommitError::TooLarge { .. }), Some(smaller)) => {
                tracing::warn!("the load is too large for the history, which records only that it happened");
                self.store(expected, smaller, &proposed.label).await
            }
            (done, _) => done,
        }
        .map(Some)
        .map_err(|error| WriteError::Store(Arc::new(error)))
    }

    async fn store(&self, expected: Revision, plan: &Plan, label: &Label) -> Result<Revision, CommitError> {
        let store = &self.env.parts.store;
        let values = plan.iter().filter_map(|(_, value)| value.clone()).collect();
        let mut hashes = store.put_blobs(values).await?.into_iter();
        let change = |(key, value): &(StoreKey, Option<Bytes>)| Change {
            key: key.to_string(),
            value: value.as_ref().and_then(|_| hashes.next()),
        };
        let changes = plan.iter().map(change).collect();
        let committed = store.commit(stored_revision(expected), label.commit(changes, At::now())).await;
        match &committed {
            Ok(_) => self.note(note_of_disk(Ok(()))),
            Err(CommitError::Store(error)) => self.note(note_of_disk(Err(error))),
            // The caller was at fault, or another server was faster.
            Err(_) => {}
        }
        committed.map(revision_of)
    }

    /// Accepts a transition as `revision`, the last of these stages.
    pub(crate) fn take(
        &self,
        proposed: Transition,
        revision: Revision,
        mut stages: Stages,
    ) -> Result<Done, WriteError> {
        let Transition { next, label, is_published, told, notes, refused, is_unjudged, outcome, .. } =
            proposed;
        let next = Accepted { revision, ..next };
        let publication = self.accept(next, (&label, stages.parent()), is_published, told, notes);
        stages.end(Stage::Publish);
        if let Some(observer) = self.env.parts.observer.as_ref().filter(|_| is_published) {
            let (source, summary) = (label.source, label.summary.as_str());
            observer.changed(Changed { revision, source, summary, stages: &stages });
        }
        self.take_refused(refused);
        if is_unjudged {
            self.unjudged.notify_one();
        }
        match outcome {
            Outcome::Failed(error) => Err(error),
            outcome @ (Outcome::Done | Outcome::Written(..) | Outcome::Loaded(_) | Outcome::GoesOn(_)) => {
                Ok(Done { outcome, revision, accepted: self.accepted(), publication })
            }
        }
    }

    /// Publishes the next accepted state, makes it readable, and reports it, in this order: whoever sees the report finds the state
    /// served.
    fn accept(
        &self,
        mut next: Accepted,
        (label, parent): (&Label, Option<TraceParent>),
        is_published: bool,
        told: Vec<Event>,
        notes: Vec<Note>,
    ) -> Publication {
        let publication = match is_published {
            true => self.publish(&next, label, parent),
            false => Publication { revision: next.revision, ..Publication::default() },
        };
        let before = self.accepted();
        next.missing = Arc::new(before.missing.changed(&before.groups, &next.groups));
        self.accepted.send_replace(Arc::new(next));
        let after = self.accepted();
        let mut fingerprints = self.fingerprints();
        let fingerprint = fingerprints.newest().1.changed(&before.groups, &after.groups);
        fingerprints.push(after.revision, fingerprint);
        drop(fingerprints);
        let (old, new) = (&before.documents.translated, &after.documents.translated);
        if !Arc::ptr_eq(old, new) {
            documents::log_news(old, new);
            // Dropping the former state of many documents takes long, and nobody has to wait for that.
            let before = Arc::clone(&before);
            tokio::task::spawn_blocking(move || drop(before));
        }
        secrets::log_news(&before.groups, &after);
        self.note(notes);
        let former = if before.is_loaded { &before.missing } else { &Arc::default() };
        for problem in after.missing.news(&after.groups, former).into_iter().filter(|_| after.is_loaded) {
            tracing::error!("{problem}");
            self.tell(Event::Problem { message: problem });
        }
        if is_published {
            let (revision, source, summary) = (after.revision, label.source, label.summary.clone());
            let groups = differing(&before.groups, &after.groups).into_iter().cloned().collect();
            self.tell(Event::Published { revision, source, summary, groups });
        }
        told.into_iter().for_each(|event| self.tell(event));
        publication
    }

    fn publish(&self, next: &Accepted, label: &Label, parent: Option<TraceParent>) -> Publication {
        let Label { source, summary, .. } = label;
        // Before the publication, so that the first acknowledgement finds its time.
        if let Some(observer) = &self.env.parts.observer {
            observer.published(*source, next.revision, parent);
        }
        let mut groups = next.groups.clone();
        let behind = former::behind(&self.env.parts.codec, next, &mut groups);
        let publication = self.env.parts.acks.publish_split(next.revision, groups, behind);
        let (revision, n_views) = (next.revision.0, publication.views.len());
        tracing::info!(revision, source = source.as_str(), summary, n_views, "published");
        publication
    }

    /// Notes a problem until its subject is fine again. A new one is logged and sent as an event.
    pub(crate) fn note(&self, notes: impl IntoIterator<Item = Note>) {
        for Note { subject, problem } in notes {
            let Some(message) = problem else {
                self.health().problems.remove(&subject);
                continue;
            };
            let before = self.health().problems.insert(subject, message.clone());
            if before.as_ref() != Some(&message) {
                // Somebody wants a dry run, for a while.
                if subject == ProblemSubject::DryRun {
                    tracing::warn!(subject = subject.as_str(), "{message}");
                } else {
                    tracing::error!(subject = subject.as_str(), "{message}");
                }
                self.tell(Event::Problem { message });
            }
        }
    }

    /// Sends an event to all watchers.
    pub(crate) fn tell(&self, event: Event) {
        match &event {
            Event::TestFailed { test, message } => tracing::warn!(test, "a route test fails: {message}"),
            Event::OverrideDropped { what, reason } => tracing::info!(what, reason, "override dropped"),
            Event::Unconfirmed { reason } => {
                tracing::warn!(
                    reason,
                    "a load of the files is held back until `xds-server reload --confirm`"
                );
            }
            Event::Wave { deployment, phase, share, message } => {
                if let Some(observer) = &self.env.parts.observer {
                    observer.wave(*phase, *share);
                }
                tracing::info!(deployment, phase = phase.as_str(), "{message}");
            }
            Event::Published { .. } | Event::FileError(_) | Event::Rollout { .. } | Event::Problem { .. } => {
            }
        }
        // It fails only if nobody watches.
        let _ = self.events.send(event);
    }
}

impl Default for Queue {
    fn default() -> Self {
        let semaphore = |n| Arc::new(Semaphore::new(n));
        Self { slots: semaphore(MAX_WRITES), room: semaphore(MAX_KIB) }
    }
}

impl Queue {
    /// Admits a write with this many bytes. A write that is alone always finds room.
    ///
    /// # Errors
    ///
    /// [`WriteError::Busy`] if too many writes wait, or if they hold too many bytes.
    pub(crate) fn enter(&self, n_bytes: usize) -> Result<QueueSlot, WriteError> {
        let n_kib = (n_bytes / 1024 + 1).min(MAX_KIB);
        let n_kib = u32::try_from(n_kib).map_err(|_| WriteError::Busy)?;
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| WriteError::Busy)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(n_kib).map_err(|_| WriteError::Busy)?;
        Ok(QueueSlot { _slot: slot, _room: room })
    }
}

/// A change with what an oracle says about it.
fn told(mut proposed: Transition, judgement: &Judgement, refused: Vec<Refused>) -> Transition {
    proposed.warn(judged::as_warnings(&refused));
    proposed.warn(judged::undecided(judgement));
    proposed.notes.push(note_of_oracle(judgement));
    proposed.refused.extend(refused);
    proposed.is_unjudged = judgement.why.is_some();
    proposed
}

/// The note about whether the oracle judges.
fn note_of_oracle(judgement: &Judgement) -> Note {
    let problem = judgement.why.as_ref().map(|why| format!("the oracle does not judge changes: {why}"));
    Note { subject: ProblemSubject::Oracle, problem }
}

fn log_refusal(fault: &Diagnostic) {
    let (file, line, column, code) = (&*fault.place.file, fault.place.line, fault.place.column, fault.code);
    match fault.is_error() {
        true => tracing::error!(file, line, column, code, "{fault}"),
        false => tracing::warn!(file, line, column, code, "{fault}"),
    }
}

/// How long to wait after a conflict; `random` is any number. After the first one the store gives a turn to whoever lost.
fn wait_after(attempt: u32, random: u64) -> Duration {
    let longest = MAX_WAIT * attempt.saturating_sub(1).min(MAX_FACTOR);
    let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random % micros.saturating_add(1))
}

/// A number that nobody foresees: what a hasher with random keys makes of nothing.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The note about the result of storing.
pub(crate) fn note_of_disk(stored: Result<(), &StoreError>) -> Option<Note> {
    match stored {
        Ok(()) => Some(Note::solved(ProblemSubject::Disk)),
        Err(error) if error.is_of_disk() => {
            let problem = format!(
                "changes cannot be stored and are refused: {}; the current configuration is still served",
                chain(error)
            );
            Some(Note::problem(ProblemSubject::Disk, problem))
        }
        // The change was at fault, or the server ends.
        Err(_) => None,
    }
}

/// The note about the result of saving copies of files.
pub(crate) fn note_of_copies(failure: Option<&str>) -> Note {
    let problem =
        |failure| format!("last good copies of files cannot be saved: {failure}; the server tries again");
    Note { subject: ProblemSubject::Copies, problem: failure.map(problem) }
}

/// Runs long work on another thread. If it panics, nothing has changed.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WriteError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            WriteError::Internal(text.unwrap_or("it panicked").to_owned())
        }
        Err(_) => WriteError::Closed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_waits_a_random_time_that_grows_and_has_an_end() {
        let longest = |attempt| (0..1_000).map(|_| wait_after(attempt, random())).max().unwrap_or_default();
        let shortest = |attempt| (0..1_000).map(|_| wait_after(attempt, random())).min().unwrap_or_default();
        for (attempt, limit) in [(1, 0), (2, 50), (3, 100), (9, 400), (10, 400), (16, 400)] {
            let limit = Duration::from_millis(limit);
            assert!(
                (limit * 9 / 10..=limit).contains(&longest(attempt)),
                "{attempt}: {:?}",
                longest(attempt)
            );
            assert!(shortest(attempt) <= limit / 10, "{attempt}");
        }
        assert_eq!(wait_after(2, 50_000), Duration::from_millis(50));
        assert_eq!(wait_after(2, 50_001), Duration::ZERO);
    }

    #[test]
    fn as_many_writes_wait_as_may_and_no_more_than_they_may_bring() {
        let queue = Queue::default();
        let mut all: Vec<QueueSlot> = (0..MAX_WRITES).map(|_| queue.enter(0).unwrap()).collect();
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
