//! The control as its callers see it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, PoisonError, Weak};
use std::time::SystemTime;

use tokio::sync::broadcast;
use xds_cache::{GroupName, Groups, Layer, Publisher, Revision, Version};
use xds_codec::{Diagnostic, Place};
use xds_rollout::Event as RolloutEvent;
use xds_store::StoreError;

use crate::accepted::Base;
use crate::change::{QueueSlot, Shared, note_of_copies};
use crate::elsewhere::Elsewhere;
use crate::env::{At, Condition, ControlParts, Env, Options, Reload, Sharing, revision_of};
use crate::fingerprint::Fingerprint;
use crate::key::StoreKey;
use crate::load::Load;
use crate::missing::MISSING_REFERENCES;
use crate::model::document::{DocumentState, GroupedDocuments};
use crate::model::rollouts::RolloutRecords;
use crate::model::wave::{WaveClients, WaveQuestion, WaveReport, WaveVerb};
use crate::model::weights::{RuleKey, effective};
use crate::model::{
    Asked, ChangedObject, Event, FileLoad, FileObjectKey, FileStatus, GroupPhases, HistoryEntry,
    ReloadOutcome, ServedLoad, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome,
};
use crate::own_files::OwnFiles;
use crate::peers::Peers;
use crate::propose::Cause;
use crate::route_tests::{Memo, TestPolicy};
use crate::stages::Stages;
use crate::tested::Tested;
use crate::transition::{Done, Note, Outcome, ProblemSubject, Transition};
use crate::wave::report::{self, report, reports};
use crate::wave::{diagnostics, step};
use crate::whole_state::{self, WholeState};
use crate::{documents, dry_run, history, others, rules, secrets};

/// Changes the served configuration. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

/// A [`Control`] that does not keep the store open.
#[derive(Clone)]
pub struct WeakControl(Weak<Shared>);

impl WeakControl {
    /// The control, unless it is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Control> {
        self.0.upgrade().map(|shared| Control { shared })
    }
}

impl fmt::Debug for WeakControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakControl")
    }
}

/// The weights of a rule: its own, and the effective ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleState {
    /// The weights of its object.
    pub source: Vec<(String, u64)>,
    /// The same documents with the API's overrides applied.
    pub effective: Vec<(String, u64)>,
}

impl Control {
    /// Reads the store, and publishes its contents if there are no files to wait for.
    ///
    /// # Errors
    ///
    /// If the store cannot be read at all. A record that cannot be read is a [problem](Self::problems), not an error.
    pub fn open(parts: ControlParts, options: Options) -> Result<Self, StoreError> {
        let env = Env { parts, options, route_tests: Memo::default(), elsewhere: Elsewhere::default() };
        let (accepted, note) = others::open(&env, At::now())?;
        let waits = match env.options.sharing {
            Sharing::Alone => env.options.watches_files,
            // Its server gives whole files as soon as it has them.
            Sharing::Follower => others::has_partial_files(&*env.parts.store),
            Sharing::Apart | Sharing::Linked if env.options.is_relay => !others::has_files(&*env.parts.store),
            Sharing::Apart | Sharing::Linked => {
                env.options.watches_files && others::has_partial_files(&*env.parts.store)
            }
        };
        let first = (!waits).then(|| others::first(&accepted));
        let revision = accepted.revision;
        let shared = Shared::new(env, accepted);
        shared.note([note]);
        if let Some(first) = first {
            // It asks for nothing that could fail.
            let _ = shared.take(first, revision, Stages::begin());
        }
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Sets how the files are read again. Without it, a reload changes nothing. Only the first call counts.
    pub fn set_reload(&self, reload: Reload) {
        if self.shared.reload.set(reload).is_err() {
            tracing::warn!("how the files are read again was said twice");
        }
    }

    /// Sets the contents of the files in their last good copies. The store has no secrets of files, so before the first load, objects with
    /// secrets come from the copies, if they are the ones that the store recorded.
    pub fn recall(&self, layer: Layer, documents: GroupedDocuments) {
        let copies = Base { layer: Arc::new(layer), documents: Arc::new(documents) };
        *self.shared.copies.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(copies));
    }

    /// Takes in a load of the files. The first complete one also makes the server ready.
    ///
    /// A load without changes does nothing. A load that removes too much waits for confirmation (`--hold-mass-removal`). For a server
    /// whose store is its own; others [propose](Self::take_watched) their files.
    ///
    /// # Errors
    ///
    /// Never because of the files' contents. If the store fails, that is a problem, but the files are still served.
    pub async fn take_files(&self, load: FileLoad, asked: Asked) -> Result<ReloadOutcome, WriteError> {
        let copies = || self.shared.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let load = Load::new(load, asked, copies().clone());
        let done = self.change(Cause::Files(load), None).await?;
        if self.shared.accepted().is_loaded {
            copies().take();
        }
        match done.outcome {
            Outcome::Loaded(outcome) => Ok(ReloadOutcome { revision: done.revision, ..outcome }),
            Outcome::Done | Outcome::Written(..) | Outcome::GoesOn(_) | Outcome::Failed(_) => {
                Err(WriteError::Closed)
            }
        }
    }

    /// Reads the files again now. `confirm` also publishes a load that waits for confirmation.
    ///
    /// # Errors
    ///
    /// As [`take_files`](Self::take_files).
    pub async fn reload(&self, confirm: bool) -> Result<ReloadOutcome, WriteError> {
        let read = match self.shared.reload.get() {
            Some(reload) => reload(confirm).await?,
            None => None,
        };
        Ok(read.unwrap_or_else(|| {
            let revision = self.shared.accepted().revision;
            ReloadOutcome { revision, difference: vec![], n_errors: 0, unconfirmed: None }
        }))
    }

    /// Validates, commits and publishes a change, and then answers.
    ///
    /// Dropping the future does not stop a write that has begun, or that waits for others.
    ///
    /// # Errors
    ///
    /// Why it was not done; then nothing changed. [`WriteError::Busy`] if too many writes wait at the moment. Steps of rollouts, ends of
    /// overrides and reverts wait instead, because they were promised.
    pub async fn write(&self, write: Write, options: WriteOptions) -> Result<WriteOutcome, WriteError> {
        if options.dry_run {
            return self.try_out(write, options).await;
        }
        let needs_none =
            matches!(&write, Write::StepRollouts { .. } | Write::EndOverrides | Write::Revert { .. });
        let slot = if needs_none { None } else { Some(self.shared.queue.enter(write.n_bytes())?) };
        let Done { outcome, revision, publication, .. } =
            self.change(Cause::Write(Box::new(write), options), slot).await?;
        written(outcome).map(|(outcome, _)| match outcome.is_repeated {
            true => outcome,
            false => WriteOutcome { revision, publication, ..outcome },
        })
    }

    /// Finds out what a write would change. Playing the clients may take seconds, so other changes are let in meanwhile; but there is
    /// only one dry run at a time.
    async fn try_out(&self, write: Write, options: WriteOptions) -> Result<WriteOutcome, WriteError> {
        let shared = Arc::clone(&self.shared);
        let limits = shared.env.options.session;
        let trial = async move {
            let _dry_running = shared.dry_running.lock().await;
            let before = shared.accepted().documents.translated.clone();
            let Transition { outcome, next, .. } =
                shared.try_out(Cause::Write(Box::new(write), options)).await?;
            let after = next.documents.translated;
            let (mut outcome, clients) = written(outcome)?;
            if !clients.is_empty() {
                let playing = tokio::task::spawn_blocking(move || {
                    let requests = dry_run::requests(&clients, [&before.documents, &after.documents]);
                    (requests, dry_run::play(clients, &limits, At::now().clock))
                });
                (outcome.requests, outcome.phases) = playing.await.map_err(|_| WriteError::Closed)?;
            }
            Ok(outcome)
        };
        detached(trial).await
    }

    /// Carries out an action on a wave deployment, and answers with its new state.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`], [`WriteError::WaveState`], or why it could not be stored.
    pub async fn wave(
        &self,
        deployment: u64,
        verb: WaveVerb,
        actor: String,
    ) -> Result<WaveReport, WriteError> {
        let slot = Some(self.shared.queue.enter(0)?);
        let accepted = self.shared.accepted();
        let elsewhere = &self.shared.env.elsewhere;
        if let Some(wave) = accepted.wave.as_deref().filter(|_| !self.shared.env.leads()) {
            // Whoever does not drive it does not know the clients of others.
            elsewhere.ask(report::question(wave, SystemTime::now())).await;
        }
        let is_active = accepted.wave.as_ref().is_some_and(|wave| wave.id == deployment);
        let (deployment, accepted) = if is_active {
            let done = self.change(Cause::Ask { deployment, verb, actor }, slot).await?;
            (deployment, done.accepted)
        } else {
            let (put_back, policy) = step::again(&accepted, deployment, verb)?;
            let options = WriteOptions { actor, waves: WaveChoice::By(policy), ..WriteOptions::default() };
            let write = Box::new(Write::Revert { of: put_back });
            let done = self.change(Cause::Write(write, options), slot).await?;
            let wave = written(done.outcome)?.0.wave.ok_or_else(|| {
                WriteError::WaveState("everything in the change has changed again since".to_owned())
            })?;
            (wave, done.accepted)
        };
        let reports = reports(&self.shared.env, &accepted, At::now());
        let report = reports.into_iter().find(|report| report.deployment == deployment);
        report.ok_or_else(|| step::not_found(deployment))
    }

    /// Publishes what RouteTests hold, in the waves of its groups if they have any.
    ///
    /// # Errors
    ///
    /// [`WriteError::WaveState`] if they hold nothing, or why it could not be stored.
    pub async fn release_tests(&self, actor: String) -> Result<WaveReport, WriteError> {
        let accepted = self.shared.accepted();
        let Some(held) = accepted.wave.as_ref().filter(|wave| wave.awaits_tests()) else {
            return Err(WriteError::WaveState("RouteTests hold no change".to_owned()));
        };
        let verb = if held.is_at_once() { WaveVerb::Promote } else { WaveVerb::Resume };
        self.wave(held.id, verb, actor).await
    }

    /// Sets who the other servers with the same store are, if they ask each other.
    pub fn set_peers(&self, peers: Arc<dyn Peers>) {
        self.shared.env.elsewhere.set(peers);
    }

    /// The clients of a wave deployment that are this server's own, for the server that drives it.
    ///
    /// # Errors
    ///
    /// If this server does not serve that wave.
    pub fn wave_clients(&self, question: &WaveQuestion) -> Result<WaveClients, String> {
        report::clients_of(&self.shared.env, &self.shared.accepted(), question, At::now())
    }

    /// The same for those whom it knows itself.
    #[must_use]
    pub fn downgrade(&self) -> WeakControl {
        WeakControl(Arc::downgrade(&self.shared))
    }

    /// Makes the server not ready, for good.
    pub fn shut_down(&self) {
        self.shared.health().is_closing = true;
    }

    /// Reports that last good copies of files cannot be saved, with the reason; or that all are saved.
    pub fn note_copies(&self, failure: Option<&str>) {
        self.shared.note([note_of_copies(failure)]);
    }

    /// Reports what is wrong with the certificates of a port, or with a source of certificates; `unready` says why clients cannot connect.
    pub fn note_tls(&self, subject: &'static str, problem: Option<String>, unready: Option<String>) {
        self.shared.health().set_closed(subject, unready);
        self.shared.note([Note { subject: ProblemSubject::Tls(subject), problem }]);
    }

    /// Reports why other servers with the same store may not know of this one; or that they do.
    pub fn note_replicas(&self, problem: Option<String>) {
        self.shared.note([Note { subject: ProblemSubject::Replicas, problem }]);
    }

    /// Reports why a relayed server is not followed; or that it is.
    pub fn note_relay(&self, problem: Option<String>) {
        self.shared.note([Note { subject: ProblemSubject::Relay, problem }]);
    }

    /// Notes what is wrong with the access policy and with the audit log.
    pub fn note_access(&self, policy: Option<String>, audit: Option<String>) {
        let policy = Note { subject: ProblemSubject::Access, problem: policy };
        self.shared.note([policy, Note { subject: ProblemSubject::Audit, problem: audit }]);
    }

    /// Notes that clients are served whom access rules would refuse.
    pub fn note_dry_run(&self, what: &str) {
        self.shared.note([Note::problem(ProblemSubject::DryRun, what.to_owned())]);
    }

    /// Sends an event of a rollout to all watchers.
    pub fn tell_rollout(&self, rollout: &str, event: RolloutEvent) {
        self.shared.tell(Event::Rollout { rollout: rollout.to_owned(), event });
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes a change, and then frees its slot in the queue.
    async fn change(&self, cause: Cause, slot: Option<QueueSlot>) -> Result<Done, WriteError> {
        let shared = Arc::clone(&self.shared);
        detached(async move {
            let done = shared.change(cause).await;
            drop(slot);
            done
        })
        .await
    }
}

/// Queries. Each answer shows one consistent state; two answers may show different ones.
impl Control {
    /// The API's part now, and its revision.
    #[must_use]
    pub fn overrides(&self) -> (Revision, Arc<Layer>) {
        let accepted = self.shared.accepted();
        (accepted.revision, Arc::clone(&accepted.overrides))
    }

    /// The base layer now.
    #[must_use]
    pub fn base(&self) -> Arc<Layer> {
        Arc::clone(&self.shared.accepted().base)
    }

    /// The current route documents and their translation.
    #[must_use]
    pub fn documents(&self) -> DocumentState {
        self.shared.accepted().documents.clone()
    }

    /// Waits until this server serves a revision.
    pub async fn serves(&self, revision: Revision) {
        // It fails only without a control, and this is one.
        drop(self.shared.watch().wait_for(|now| now.revision >= revision).await);
    }

    /// The revision that is served, and the fingerprint of what is served.
    #[must_use]
    pub fn fingerprint(&self) -> (Revision, Fingerprint) {
        self.shared.fingerprints().newest()
    }

    /// The newest revision of the store, which is not served yet if another server has just committed it.
    #[must_use]
    pub fn head(&self) -> Revision {
        revision_of(self.shared.env.parts.store.head())
    }

    /// The rollouts that are stored, and the revision as of which they are.
    #[must_use]
    pub fn rollouts(&self) -> (Revision, Arc<RolloutRecords>) {
        let accepted = self.shared.accepted();
        (accepted.revision, Arc::clone(&accepted.rollouts))
    }

    /// The weights of a rule now.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::NoRule`].
    pub fn rule(&self, key: &RuleKey) -> Result<RuleState, WriteError> {
        let accepted = self.shared.accepted();
        let rule = rules::rule(&self.shared.env.parts.codec, &accepted, key)?;
        let over = accepted.documents.weights.get(key).map(|over| over.overlay.clone()).unwrap_or_default();
        Ok(RuleState { effective: effective(&rule, &over), source: rule.backends })
    }

    /// The watched files, by path.
    #[must_use]
    pub fn files(&self) -> BTreeMap<Arc<str>, FileStatus> {
        let accepted = self.shared.accepted();
        let mut files = (*accepted.files).clone();
        let refused = self.shared.refused();
        let mut touched = BTreeSet::new();
        for doubt in &accepted.documents.translated.translation.diagnostics {
            if let Some(file) = files.get_mut(&doubt.place.file) {
                file.diagnostics.push(doubt.clone());
                touched.insert(&doubt.place.file);
            }
        }
        for broken in accepted.wave.iter().flat_map(|wave| wave.broken()).chain(&refused) {
            if let Some(file) = files.get_mut(&broken.place.file) {
                file.diagnostics.push(broken.clone());
                touched.insert(&broken.place.file);
            }
        }
        diagnostics::tell_waves(&self.shared.env, &accepted, &mut files, At::now());
        for path in touched {
            if let Some(file) = files.get_mut(path) {
                file.diagnostics.sort_by_key(|one| (one.place.line, one.place.column));
            }
        }
        files
    }

    /// The node groups that are accepted.
    #[must_use]
    pub fn groups(&self) -> Groups {
        self.shared.accepted().groups.clone()
    }

    /// The hash of a file of which everything that is served is as it is there; `None` if it is not known, or if earlier contents of
    /// it are served.
    #[must_use]
    pub fn served_hash(&self, path: &str) -> Option<Version> {
        if self.shares_store() {
            // They are not on this machine.
            return None;
        }
        let files = Arc::clone(&self.shared.accepted().files);
        let file = files.get(path)?;
        let is_present = !file.is_last_good && file.objects.iter().all(|object| !object.is_last_good);
        file.hash.filter(|_| is_present)
    }

    /// Where a file defines each of these node groups; those of the API are left out.
    #[must_use]
    pub fn group_places<'g>(
        &self,
        groups: impl IntoIterator<Item = &'g GroupName>,
    ) -> BTreeMap<&'g GroupName, Place> {
        let files = Arc::clone(&self.shared.accepted().files);
        let mut places = BTreeMap::new();
        let wanted: BTreeSet<&GroupName> = groups.into_iter().collect();
        for file in files.values() {
            for object in file.objects.iter().filter(|object| object.key == FileObjectKey::NodeGroup) {
                let Some(name) = wanted.get(&object.group) else { continue };
                let (line, column) = (object.line, object.column);
                places.entry(*name).or_insert(Place { file: Arc::clone(&file.path), line, column });
            }
        }
        places
    }

    /// Why a load of files waits for confirmation, if one does.
    #[must_use]
    pub fn unconfirmed(&self) -> Option<String> {
        self.shared.accepted().unconfirmed.clone()
    }

    /// The served load of the files.
    #[must_use]
    pub fn served_load(&self) -> ServedLoad {
        let accepted = self.shared.accepted();
        let is_refused = || self.shared.health().problems.contains_key(&ProblemSubject::Files);
        let is_held = || {
            let held = accepted.wave.as_ref().filter(|wave| wave.awaits_tests());
            held.is_some_and(|wave| wave.previous.keys().any(StoreKey::is_of_file))
        };
        match accepted.is_loaded {
            false => ServedLoad::None,
            true if accepted.unconfirmed.is_some() || is_refused() || is_held() => ServedLoad::Earlier,
            true => ServedLoad::Current,
        }
    }

    /// Why the server is not ready; empty if it is.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let (accepted, mut reasons) = (self.shared.accepted(), Vec::new());
        if self.shared.health().is_closing {
            reasons.push("the server is shutting down".to_owned());
        }
        reasons.extend(self.shared.health().closed.values().cloned());
        if !accepted.is_loaded {
            reasons.push(match self.shared.env.options.is_relay {
                true => "nothing is served yet: the relayed server has not sent everything".to_owned(),
                false => accepted.nothing_served(),
            });
            reasons.extend(self.shared.health().problems.get(&ProblemSubject::Relay).cloned());
        }
        reasons
    }

    /// The same without names of files and objects.
    #[must_use]
    pub fn not_ready_in_short(&self) -> Vec<String> {
        let (health, mut reasons) = (self.shared.health(), Vec::new());
        if health.is_closing {
            reasons.push("the server is shutting down".to_owned());
        }
        reasons
            .extend(health.closed.keys().map(|subject| format!("{subject}: there is no usable certificate")));
        if !self.shared.accepted().is_loaded {
            reasons.push("nothing is served yet".to_owned());
        }
        reasons
    }

    /// The subjects of the problems, each once.
    #[must_use]
    pub fn problem_subjects(&self) -> BTreeSet<&'static str> {
        self.problems_by_subject().into_iter().map(|(subject, _)| subject).collect()
    }

    /// Problems that need attention while the server serves, such as a stored record that could not be read.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.problems_by_subject().into_iter().map(|(_, problem)| problem).collect()
    }

    /// Those of the problems that are about groups which `sees` takes, and nothing else.
    #[must_use]
    pub fn problems_of_groups(&self, sees: impl Fn(&GroupName) -> bool) -> Vec<String> {
        let accepted = self.shared.accepted();
        if accepted.is_loaded { accepted.missing.problems_of(&accepted.groups, sees) } else { vec![] }
    }

    /// The same, each with what it is about.
    fn problems_by_subject(&self) -> Vec<(&'static str, String)> {
        let accepted = self.shared.accepted();
        let noted: Vec<(&'static str, String)> = {
            let health = self.shared.health();
            health.problems.iter().map(|(subject, problem)| (subject.as_str(), problem.clone())).collect()
        };
        let unreadable = accepted.unreadable.values().map(|problem| (UNREADABLE, problem.clone()));
        let broken = accepted.broken_files().filter(|_| accepted.is_loaded).map(|files| {
            (BROKEN_FILES, format!("there are errors in {files}; last good contents are served"))
        });
        let doubts = accepted.documents.translated.translation.diagnostics.iter();
        let generated = doubts.filter(|doubt| documents::is_own_fault(doubt));
        let generated = generated.map(|doubt| (ProblemSubject::Translation.as_str(), doubt.to_string()));
        let wave = accepted.wave.as_ref().and_then(|wave| wave.problem());
        let unconfirmed = accepted.unconfirmed.as_ref().filter(|_| accepted.is_loaded).map(|unconfirmed| {
            format!(
                "a load of the files is held back: {unconfirmed}; run `xds-server reload --confirm` to let it pass"
            )
        });
        let withheld = secrets::problem(&accepted).filter(|_| accepted.is_loaded);
        let own = self.own_files().and_then(|own| own.problem(self.shared.env.options.is_relay));
        let of_state = [(HELD, wave), (UNCONFIRMED, unconfirmed), (WITHHELD, withheld), (OWN_FILES, own)];
        let of_state = of_state.into_iter().filter_map(|(subject, problem)| Some((subject, problem?)));
        let missing = match accepted.is_loaded {
            true => accepted.missing.problems(&accepted.groups),
            false => &[],
        };
        let missing = missing.iter().map(|problem| (MISSING_REFERENCES, problem.clone()));
        unreadable.chain(noted).chain(broken).chain(generated).chain(of_state).chain(missing).collect()
    }

    /// The current wave deployment and the last ones, newest first.
    #[must_use]
    pub fn waves(&self) -> Vec<WaveReport> {
        reports(&self.shared.env, &self.shared.accepted(), At::now())
    }

    /// The outcome of RouteTests on what is served; `None` before it is known.
    #[must_use]
    pub fn tested(&self) -> Option<Arc<Tested>> {
        self.shared.tested()
    }

    /// The change that RouteTests keep from being published, and their failures as far as they are known.
    #[must_use]
    pub fn held_by_tests(&self) -> Option<(WaveReport, Vec<Diagnostic>)> {
        let accepted = self.shared.accepted();
        let wave = accepted.wave.as_deref().filter(|wave| wave.awaits_tests())?;
        Some((report(&self.shared.env, wave, At::now()), wave.broken().to_vec()))
    }

    /// The hash of what the files say, if several servers share it: the entity tag of a push.
    #[must_use]
    pub fn shared_set(&self) -> Option<String> {
        self.shares_store().then(|| self.shared.accepted().contents.hash())
    }

    /// The files that this server watches; `None` if there are none, or its store is its own.
    #[must_use]
    pub fn own_files(&self) -> Option<OwnFiles> {
        self.shared.own.lock().unwrap_or_else(PoisonError::into_inner).shown.clone()
    }

    /// Returns `true` if other servers have the same store, whose clients this one does not know.
    #[must_use]
    pub fn shares_store(&self) -> bool {
        self.shared.env.shares_store()
    }

    /// Returns `true` if the files of this server are its own, so that nobody else gives them.
    #[must_use]
    pub fn has_own_files(&self) -> bool {
        !self.shares_store() || self.shared.env.options.is_relay
    }

    /// Returns `true` if this server follows another one, and makes no changes.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.shared.env.options.sharing == Sharing::Follower
    }

    /// What happens to a change that breaks a RouteTest which does not say it itself.
    #[must_use]
    pub fn test_policy(&self) -> TestPolicy {
        self.shared.env.options.test_policy
    }

    /// Events from now on. A reader that lags loses the oldest ones, and learns how many.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events()
    }

    /// The metrics in OpenMetrics text.
    #[must_use]
    pub fn metrics(&self) -> String {
        let accepted = self.shared.accepted();
        let unsupported = &accepted.documents.translated.translation.grpc_unsupported;
        let Some(observer) = &self.shared.env.parts.observer else { return String::new() };
        let noted = ProblemSubject::ALL.map(ProblemSubject::as_str).into_iter();
        let subjects = noted.chain([
            UNREADABLE,
            BROKEN_FILES,
            HELD,
            UNCONFIRMED,
            WITHHELD,
            OWN_FILES,
            MISSING_REFERENCES,
        ]);
        let mut problems: BTreeMap<&'static str, usize> = subjects.map(|subject| (subject, 0)).collect();
        for (subject, _) in self.problems_by_subject() {
            *problems.entry(subject).or_default() += 1;
        }
        observer.render(Condition { unsupported, is_ready: self.not_ready().is_empty(), problems })
    }

    /// At most `limit` revisions below `before` (or from the newest on), newest first. Reads files.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<HistoryEntry>, WriteError> {
        history::entries(&*self.shared.env.parts.store, before, limit)
    }

    /// The last revision that changed one of these objects, as [`Write::named`] names them; `None` if none of the last
    /// [`MAX_LOOKED_AT`](Self::MAX_LOOKED_AT) did. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::History`] if the history cannot be read.
    pub fn last_change(&self, named: &[String]) -> Result<Option<Revision>, WriteError> {
        let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
        if named.is_empty() {
            return Ok(None);
        }
        let entries = self.history(None, Self::MAX_LOOKED_AT)?;
        let is_of =
            |entry: &&HistoryEntry| entry.changes.iter().any(|(what, _)| named.contains(what.as_str()));
        Ok(entries.iter().find(is_of).map(|entry| entry.revision))
    }

    /// How many revisions [`last_change`](Self::last_change) looks at.
    pub const MAX_LOOKED_AT: usize = 1_000;

    /// A revision with its changes of objects for whose texts ([`ChangedObject::what`]) `wants` is `true`. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    pub fn revision(
        &self,
        revision: Revision,
        wants: impl Fn(&str) -> bool,
    ) -> Result<(HistoryEntry, Vec<ChangedObject>), WriteError> {
        let ControlParts { codec, store, .. } = &self.shared.env.parts;
        history::entry(codec, &**store, revision, wants)
    }

    /// The differences between the states after two revisions, of objects for whose texts `wants` is `true`. Reads files.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::Compacted`] if there is no such revision.
    pub fn difference(
        &self,
        from: Revision,
        to: Revision,
        wants: impl Fn(&str) -> bool,
    ) -> Result<Vec<ChangedObject>, WriteError> {
        let ControlParts { codec, store, .. } = &self.shared.env.parts;
        history::difference(codec, &**store, (from, to), wants)
    }

    /// What was accepted at a revision. Reads files, and translates what differs from now; `goes_on` returns `true` while a caller
    /// waits for it.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`], [`WriteError::Compacted`] or [`WriteError::Incomplete`] if it is not kept, and
    /// [`WriteError::Stopped`].
    pub fn at(&self, revision: Revision, goes_on: &dyn Fn() -> bool) -> Result<WholeState, WriteError> {
        whole_state::at(&self.shared.env, &self.shared.accepted(), revision, goes_on)
    }

    /// The phases in which clients get what is served at one state if they have everything of another, of the groups that `sees` is `true`
    /// for. Takes as long as so many clients, up to sixteen, take to get everything.
    #[must_use]
    pub fn phases_between(
        &self,
        before: &Groups,
        after: &Groups,
        sees: impl Fn(&GroupName) -> bool,
    ) -> Vec<GroupPhases> {
        let env = &self.shared.env;
        let publisher = Publisher::draining(env.parts.publisher.drain_policy());
        publisher.publish(Revision(1), before.clone());
        let now = At::now().clock;
        dry_run::play(dry_run::previews(&publisher, after, now, sees), &env.options.session, now)
    }

    /// What would be accepted if the watched files had other contents. Translates what differs from now; `goes_on` returns `true` while
    /// a caller waits for it.
    ///
    /// # Errors
    ///
    /// [`WriteError::Stopped`].
    pub fn with_files(&self, load: FileLoad, goes_on: &dyn Fn() -> bool) -> Result<WholeState, WriteError> {
        let FileLoad { layer, documents, .. } = load;
        let base = Base { layer: Arc::new(layer), documents };
        whole_state::with_files(&self.shared.env, &self.shared.accepted(), &base, goes_on)
    }

    /// What nodes are served that a wave deployment has not reached, and those that it has; `None` if none with this id is under way.
    #[must_use]
    pub fn sides(&self, deployment: u64) -> Option<[WholeState; 2]> {
        whole_state::sides(&self.shared.env.parts.codec, &self.shared.accepted(), deployment)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({})", self.shared.accepted().revision)
    }
}

fn written(outcome: Outcome) -> Result<(WriteOutcome, Vec<dry_run::ClientPreview>), WriteError> {
    match outcome {
        Outcome::Written(outcome, clients) => Ok((*outcome, clients)),
        Outcome::Failed(error) => Err(error),
        Outcome::Done | Outcome::Loaded(_) | Outcome::GoesOn(_) => Err(WriteError::Closed),
    }
}

/// Runs a change to its end even if the caller goes away, because a committed change must be published.
async fn detached<T: Send + 'static>(
    change: impl Future<Output = Result<T, WriteError>> + Send + 'static,
) -> Result<T, WriteError> {
    tokio::spawn(change).await.map_err(|_| WriteError::Closed)?
}

/// Subjects of problems that follow from the accepted state, for the metrics.
const UNREADABLE: &str = "unreadable-record";
const BROKEN_FILES: &str = "broken-files";
const HELD: &str = "held-change";
const UNCONFIRMED: &str = "held-load";
const WITHHELD: &str = "withheld-secrets";
const OWN_FILES: &str = "own-files";
