//! The task that drives rollouts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::time::{Instant, sleep};
use xds_api::rollouts::{RolloutError, RolloutEvidence};
use xds_cache::Revision;
use xds_cache::time::duration_millis;
use xds_control::model::rollouts::{
    RolloutRecord, RolloutRecords, RolloutStep, RolloutSteps, rule_key, weight_change,
};
use xds_control::model::weights::RuleKey;
use xds_control::model::weights::change::WeightChange;
use xds_control::model::{Event, StepKind, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome};
use xds_control::peers::{Peers, Question};
use xds_rollout::{
    AckStatus, Effect, HeaderMatch, HookPayload, Input, Outcome, Phase, Prometheus, Reading, Rollout, windows,
};
use xds_units::{Percent, Span};

use super::backends::Backends;
use super::calls;
use super::channel::{Request, Shown};
use super::concern::{Concern, Failing, evidence, failing, failing_before};
use super::gone::Concerned;
use super::keys::Keys;
use super::others::{OtherAcks, Others, ask_acks, ask_evidence};
use super::parts::DriverParts;
use super::served::{Doubt, Served, split};

/// Drives rollouts, while it [runs](Self::run).
#[derive(Debug)]
pub struct Driver {
    pub(super) parts: DriverParts,
    requests: mpsc::Receiver<Request>,
    /// For answers of calls.
    answers: mpsc::Sender<Request>,
    pub(super) shown: Arc<Shown>,
    pub(super) entries: BTreeMap<String, Entry>,
    /// The stored records when they were last looked at, and the revision as of which they were.
    seen: (Revision, Arc<RolloutRecords>),
    pub(super) keys: Keys,
    /// How many calls may be under way.
    slots: Arc<Semaphore>,
    /// The wall clock when it was last asked what is due.
    looked_ms: u64,
    /// Inputs that wait to be applied.
    known: VecDeque<(String, Input)>,
    /// When to look at ACKs.
    acks_due: Option<Instant>,
    /// When to look at the weights of rules in their objects.
    rules_due: Option<Instant>,
    pub(super) served: Served,
    pub(super) is_loaded: bool,
    /// True if this server goes on with rollouts by itself.
    pub(super) is_leading: bool,
}

/// A rollout, and the state of its effects.
#[derive(Debug)]
pub(super) struct Entry {
    /// The record as it is stored.
    pub(super) stored: Arc<RolloutRecord>,
    /// The present one, which may differ from it in what a restart would find out.
    pub(super) record: Arc<RolloutRecord>,
    /// When it wants to be woken, by the wall clock.
    wake_at: u64,
    /// True if it had the input of the restart.
    is_resumed: bool,
    /// The change whose ACKs it waits for.
    change: Option<u64>,
    /// The clients that were failing before that change.
    failing: Failing,
    /// The state of ACKs in its last input.
    told: Option<AckStatus>,
    /// The change of its rule that it asked for last, in this process.
    wanted: Option<Wanted>,
    concern: Concern,
    /// The nodes that were concerned by that change.
    concerned: Concerned,
    /// The backends' clusters and why requests are not divided between them by weight alone, of what is served and for which share of the canary.
    division: Option<Division>,
    /// The last that was said of the canary's endpoints.
    told_endpoint: Option<Option<String>>,
    /// The revision that published that change, or a later one.
    revision: Revision,
    /// What the clients of other servers answered to it.
    others: OtherAcks,
    /// True while they are asked.
    asks_others: bool,
    /// When they are asked again.
    ask_again: Instant,
    slots: Arc<Semaphore>,
}

/// Weights and header routes.
type Wanted = (BTreeMap<String, u32>, BTreeMap<String, Vec<HeaderMatch>>);

impl Driver {
    pub(super) fn new(
        parts: DriverParts,
        requests: mpsc::Receiver<Request>,
        answers: mpsc::Sender<Request>,
        shown: Arc<Shown>,
    ) -> Self {
        let is_leading = leads(&parts);
        Self {
            is_leading,
            parts,
            requests,
            answers,
            shown,
            entries: BTreeMap::new(),
            seen: (Revision::default(), Arc::default()),
            keys: Keys::default(),
            slots: Arc::new(Semaphore::new(MAX_CALLS)),
            looked_ms: 0,
            known: VecDeque::new(),
            acks_due: None,
            rules_due: None,
            served: Served::default(),
            is_loaded: false,
        }
    }

    /// Drives rollouts for ever. They continue from their stored states as soon as the first complete load is served.
    pub async fn run(mut self) {
        let mut events = self.parts.control.events();
        let mut ticks = self.parts.board.ticks();
        loop {
            self.change_duties();
            self.resume_once_loaded();
            self.do_due().await;
            let wait = self.wait();
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => self.handle_request(request).await,
                    None => return,
                },
                // Thousands of answers come in a burst; they are looked at together.
                _ = ticks.changed(), if self.is_leading && self.acks_due.is_none() => {
                    self.acks_due = Some(Instant::now() + DEBOUNCE);
                }
                event = events.recv() => {
                    use broadcast::error::RecvError;
                    let is_news = matches!(event, Ok(Event::Published { .. }) | Err(RecvError::Lagged(_)));
                    if is_news && self.is_leading {
                        self.rules_due = Some(Instant::now());
                        self.acks_due.get_or_insert_with(Instant::now);
                    }
                }
                () = sleep(wait) => {}
            }
        }
    }

    /// Begins or ends to go on with rollouts. Then everything that is stored is read anew, as after a restart.
    pub(super) fn change_duties(&mut self) {
        let is_leading = leads(&self.parts);
        if is_leading == self.is_leading {
            return;
        }
        self.is_leading = is_leading;
        tracing::info!(is_leading, "the duties of this server for rollouts have changed");
        self.entries.clear();
        self.known.clear();
        (self.acks_due, self.rules_due, self.is_loaded) = (None, None, false);
    }

    /// Takes in what is stored, as soon as the first complete load is served.
    pub(super) fn resume_once_loaded(&mut self) {
        if self.is_loaded || !self.parts.publisher.is_loaded() {
            return;
        }
        self.is_loaded = true;
        self.seen = self.parts.control.rollouts();
        for (id, record) in self.seen.1.iter() {
            let is_finished = record.rollout.is_finished();
            let mut entry = Entry::new(Arc::clone(record), is_finished || !self.is_leading);
            if !self.is_leading {
                // Requests are carried out from here; its effects are the leader's.
                let (rollout, _) = Rollout::taken(&record.rollout, None, (self.parts.clock)());
                entry.record = Arc::new(RolloutRecord { rollout, source: record.source.clone() });
            }
            self.shown.show(id, Some(record.rollout.clone()));
            self.entries.insert(id.clone(), entry);
        }
        self.count();
    }

    /// Takes in the rollouts that other servers have begun, changed or taken away. What this one was about to do with them is dropped.
    /// Returns `true` if there were any.
    pub(super) fn take_in(&mut self) -> bool {
        if !self.is_loaded {
            return false;
        }
        let before = std::mem::replace(&mut self.seen, self.parts.control.rollouts());
        if Arc::ptr_eq(&before.1, &self.seen.1) {
            return false;
        }
        let records = Arc::clone(&self.seen.1);
        let gone: Vec<String> =
            self.entries.keys().filter(|id| !records.contains_key(*id)).cloned().collect();
        for id in &gone {
            self.entries.remove(id);
            self.shown.show(id, None);
        }
        let is_stored = |entry: &Entry, record: &Arc<RolloutRecord>| {
            Arc::ptr_eq(&entry.stored, record) || entry.stored == *record
        };
        let is_known = |(id, record): &(&String, &Arc<RolloutRecord>)| {
            self.entries.get(*id).is_some_and(|entry| is_stored(entry, record))
        };
        let news: Vec<_> = records.iter().filter(|one| !is_known(one)).collect();
        for (id, record) in &news {
            self.take(id, record, before.0);
        }
        let has_news = !gone.is_empty() || !news.is_empty();
        if has_news {
            self.count();
        }
        has_news
    }

    /// Continues with a record that another server has stored since a revision.
    fn take(&mut self, id: &str, record: &Arc<RolloutRecord>, since: Revision) {
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| !entry.is_resumed) {
            (entry.stored, entry.record) = (Arc::clone(record), Arc::clone(record));
            self.shown.show(id, Some(record.rollout.clone()));
            return;
        }
        let known = self.entries.get(id).map(|entry| &entry.record.rollout);
        let (rollout, outcome) = Rollout::taken(&record.rollout, known, (self.parts.clock)());
        self.shown.show(id, Some(rollout.clone()));
        let entry = self.entries.entry(id.to_owned());
        let entry = entry.or_insert_with(|| Entry::new(Arc::clone(record), true));
        entry.stored = Arc::clone(record);
        entry.record = Arc::new(RolloutRecord { rollout, source: record.source.clone() });
        if let Some(wanted) = wanted(&outcome) {
            entry.wanted = Some(wanted);
            entry.failing = failing_before(&self.parts.board, Revision(since.0 + 1));
        }
        (entry.told, entry.told_endpoint) = (None, None);
        self.acks_due = Some(Instant::now());
        self.perform(id, outcome.effects);
    }

    async fn do_due(&mut self) {
        self.take_in();
        if !self.is_leading {
            return;
        }
        let now = Instant::now();
        if self.rules_due.is_some_and(|due| due <= now) {
            self.rules_due = None;
            self.look_at_rules().await;
        }
        if self.acks_due.is_some_and(|due| due <= now) {
            self.acks_due = None;
            self.look_at_acks().await;
        }
        let now_ms = (self.parts.clock)();
        // If the clock was set back, all deadlines would come too late.
        let is_set_back = now_ms < std::mem::replace(&mut self.looked_ms, now_ms);
        let is_due = |entry: &Entry| entry.wake_at <= now_ms || is_set_back && entry.wake_at < u64::MAX;
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry));
        let due: Vec<(String, bool)> = due.map(|(id, entry)| (id.clone(), entry.is_resumed)).collect();
        for (id, is_resumed) in due {
            let input = if is_resumed { Input::Tick } else { Input::Restarted };
            self.feed(&id, input).await;
        }
        while let Some((id, input)) = self.known.pop_front() {
            self.feed(&id, input).await;
        }
    }

    /// The time until something is due. The wall clock may be set meanwhile, so it is short.
    fn wait(&self) -> Duration {
        if !self.is_leading {
            return MAX_WAIT;
        }
        let now = Instant::now();
        let looks = [self.rules_due, self.acks_due].into_iter().flatten();
        let looks = looks.map(|due| due.saturating_duration_since(now)).min();
        let now_ms = (self.parts.clock)();
        let wake = self.entries.values().map(|entry| entry.wake_at.saturating_sub(now_ms)).min();
        let wake = Duration::from_millis(wake.unwrap_or(u64::MAX));
        let wait = looks.map_or(wake, |look| look.min(wake)).min(MAX_WAIT);
        if self.known.is_empty() { wait } else { Duration::ZERO }
    }

    /// Compares the weights of rules in their objects with those of the last look.
    async fn look_at_rules(&mut self) {
        let owning =
            self.entries.iter().filter(|(_, entry)| entry.record.rollout.owns_rule() && entry.is_resumed);
        let owning: Vec<(String, Arc<RolloutRecord>)> =
            owning.map(|(id, entry)| (id.clone(), Arc::clone(&entry.record))).collect();
        for (id, record) in owning {
            let Ok(key) = rule_key(&record.rollout.spec().route) else { continue };
            let source = self.parts.control.rule(&key).ok();
            let source: Option<BTreeMap<String, u64>> = source.map(|rule| rule.source.into_iter().collect());
            if source.as_ref() == Some(&record.source) {
                continue;
            }
            let whole = |weight: &u64| u32::try_from(*weight).unwrap_or(u32::MAX);
            let weights = source.as_ref().map(|source| {
                source.iter().map(|(key, weight)| (key.clone(), whole(weight))).collect::<BTreeMap<_, _>>()
            });
            let input = Input::RuleChanged(weights);
            let told = self.step(&id, input.clone(), ACTOR, source).await;
            self.retry_unless_done(&id, input, told);
        }
    }

    /// Gives each rollout the ACKs of its change and the state of the canary's endpoints, if they differ from the last ones.
    async fn look_at_acks(&mut self) {
        let (revision, groups) = self.parts.publisher.groups();
        self.served.refresh(groups);
        let (mut told, mut again_at) = (Vec::new(), None);
        for (id, entry) in &mut self.entries {
            let Some(change) = entry.change.filter(|_| entry.record.rollout.owns_rule()) else { continue };
            if entry.concern.revision != revision {
                entry.concern = Concern::new(&self.parts, entry.record.rollout.spec());
            }
            let no_endpoint = entry.no_endpoint(&self.parts, &self.served);
            if entry.told_endpoint.as_ref() != Some(&no_endpoint) {
                entry.told_endpoint = Some(no_endpoint.clone());
                told.push((id.clone(), Input::NoEndpoint(no_endpoint)));
            }
            let DriverParts { publisher, board, .. } = &self.parts;
            let (status, present) =
                entry.concern.acks(publisher, board, (change, entry.revision), &entry.failing);
            let mut status = match &self.parts.peers {
                None => status,
                Some(peers) => {
                    let again = entry.ask_others((id, change), peers, &self.answers);
                    again_at = [again_at, again].into_iter().flatten().min();
                    // As long as it is not known, gates wait.
                    let Some(status) = entry.others.with(status) else { continue };
                    status
                }
            };
            if let Some(mut again) = entry.concerned.count(&mut status, present, board) {
                if self.parts.peers.is_some() {
                    // One that is away may be at another server now.
                    entry.ask_again = entry.ask_again.min(Instant::now() + ASKING_PAUSE);
                    again = again.min(entry.ask_again);
                }
                again_at = again_at.map_or(Some(again), |at| Some(at.min(again)));
            }
            if entry.told.as_ref() != Some(&status) {
                entry.told = Some(status.clone());
                told.push((id.clone(), Input::Acks(status)));
            }
        }
        self.acks_due = [self.acks_due, again_at].into_iter().flatten().min();
        for (id, input) in told {
            self.feed(&id, input).await;
        }
    }

    /// Takes in what the clients of other servers answered.
    pub(super) fn take_others(&mut self, id: &str, Others { acks, nodes }: Others) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.asks_others = false;
        if entry.change == Some(acks.status.change) {
            let pause = if acks.is_settled() { SETTLED_PAUSE } else { ASKING_PAUSE };
            entry.ask_again = Instant::now() + pause;
            entry.others = acks;
            entry.concerned.hear(nodes);
        }
        self.acks_due = Some(Instant::now());
    }

    /// Gives a rollout an input without a waiting caller. If the result cannot be stored, it is tried again.
    pub(super) async fn feed(&mut self, id: &str, input: Input) {
        let told = self.step(id, input.clone(), ACTOR, None).await;
        self.retry_unless_done(id, input, told);
    }

    fn retry_unless_done(&mut self, id: &str, input: Input, told: Result<(), RolloutError>) {
        let Err(RolloutError::Write(error)) = told else { return };
        if let WriteError::Superseded { .. } = error {
            match input {
                // The state that was taken in may want the answer, too.
                Input::Measured { .. } | Input::Called { .. } => self.known.push_back((id.to_owned(), input)),
                Input::RuleChanged(_) => self.rules_due = Some(Instant::now()),
                // It has asked for these anew.
                Input::Tick | Input::Restarted | Input::Acks(_) | Input::NoEndpoint(_) => {}
                Input::Verb(_) | Input::RuleTaken | Input::Refused(_) => {}
            }
            return;
        }
        tracing::warn!(rollout = id, error = %xds_control::chain(&error), "a step of a rollout could not be stored; it is tried again");
        let Some(entry) = self.entries.get_mut(id) else { return };
        let later = Instant::now() + RETRY;
        match input {
            Input::Tick | Input::Restarted => {
                let retry_ms = u64::try_from(RETRY.as_millis()).unwrap_or(u64::MAX);
                entry.wake_at = (self.parts.clock)().saturating_add(retry_ms);
            }
            Input::Acks(_) | Input::NoEndpoint(_) => {
                (entry.told, entry.told_endpoint) = (None, None);
                self.acks_due = Some(later);
            }
            Input::RuleChanged(_) => self.rules_due = Some(later),
            Input::Measured { .. } | Input::Called { .. } => {
                let (id, answers) = (id.to_owned(), self.answers.clone());
                tokio::spawn(async move {
                    sleep(RETRY).await;
                    let _ = answers.send(Request::Input(id, input)).await;
                });
            }
            Input::Verb(_) | Input::RuleTaken | Input::Refused(_) => {}
        }
    }

    /// Gives a rollout an input, has the result stored, and runs its effects. `source` are the present weights in the object of its rule,
    /// if they changed. If another server has stored another state meanwhile, that one is taken in, and the input is dropped with
    /// [`WriteError::Superseded`].
    pub(super) async fn step(
        &mut self,
        id: &str,
        input: Input,
        actor: &str,
        source: Option<BTreeMap<String, u64>>,
    ) -> Result<(), RolloutError> {
        let entry = self.entries.get(id).ok_or_else(|| RolloutError::NotFound(id.to_owned()))?;
        if !entry.is_resumed && input != Input::Restarted {
            Box::pin(self.step(id, Input::Restarted, ACTOR, None)).await?;
        }
        let entry = self.entries.get(id).ok_or_else(|| RolloutError::NotFound(id.to_owned()))?;
        let before = Arc::clone(&entry.record);
        let mut rollout = before.rollout.clone();
        let is_asked = matches!(input, Input::Verb(_));
        let outcome = rollout.handle(input.clone(), (self.parts.clock)())?;
        let is_news = source.as_ref().is_some_and(|source| *source != before.source);
        let record = Arc::new(RolloutRecord {
            rollout,
            source: source.clone().unwrap_or_else(|| before.source.clone()),
        });
        let failing = wanted(&outcome).map(|_| failing(&self.parts.board)).unwrap_or_default();
        if outcome.is_changed || is_news {
            let change = self.change_of(id, &record, &outcome);
            let has_gone_on = record.rollout.has_gone_on(&before.rollout);
            let kind = if has_gone_on { StepKind::Onward } else { StepKind::Back };
            match self.commit(id, &record, (change, kind), actor).await {
                Err(WriteError::Invalid(faults)) if has_gone_on && !is_asked && !before.rollout.is_held() => {
                    let why =
                        faults.first().and_then(|first| first.message.lines().next()).unwrap_or_default();
                    let why = Input::Refused(format!("the next step breaks {why}"));
                    Box::pin(self.step(id, why, ACTOR, None)).await?;
                    // What came has still come.
                    return Box::pin(self.step(id, input, actor, source)).await;
                }
                Err(error @ WriteError::Superseded { .. }) => {
                    self.take_in();
                    return Err(error.into());
                }
                done => done?,
            }
            self.note_stored(id, &record);
        }
        self.install(id, record, outcome, failing);
        Ok(())
    }

    /// The change that goes into the same commit as a state: its weights. At the end, weights that the rule has anyway are removed from
    /// the override.
    fn change_of(
        &self,
        id: &str,
        record: &RolloutRecord,
        outcome: &Outcome,
    ) -> Option<(RuleKey, WeightChange)> {
        let spec = record.rollout.spec();
        let key = rule_key(&spec.route).ok()?;
        if let Some((weights, header_routes)) = wanted(outcome) {
            return Some((key, weight_change(spec, &weights, &header_routes)));
        }
        let entry = self.entries.get(id)?;
        let has_ended = entry.record.rollout.owns_rule() && !record.rollout.owns_rule();
        let (weights, _) = entry.wanted.as_ref().filter(|_| has_ended)?;
        let change = weight_change(spec, weights, &BTreeMap::new());
        Some((key, WeightChange { pins: false, ..change }))
    }

    /// Stores a state. A step that RouteTests refuse is an error. If the rule no longer takes the change, stores the state alone: the next input of the rollout is that the rule is
    /// another one.
    async fn commit(
        &mut self,
        id: &str,
        record: &Arc<RolloutRecord>,
        (change, kind): (Option<(RuleKey, WeightChange)>, StepKind),
        actor: &str,
    ) -> Result<(), WriteError> {
        let steps = RolloutSteps::from([(id.to_owned(), self.step_to(id, Some(record)))]);
        let stored = self.entries.get(id).and_then(|entry| entry.stored.rollout.events().last());
        let known = stored.map(|event| event.number);
        let news = record.rollout.events().last().filter(|event| Some(event.number) != known);
        // After a restart, and on another server, the state is stored again.
        let message = news.map_or("goes on", |event| event.message.as_str());
        let summary = format!("rollout {id}: {message}");
        // A step reaches all nodes at once: nobody could tell a share of nodes from a share of requests.
        let (actor, waves) = (actor.to_owned(), WaveChoice::AtOnce);
        let options = WriteOptions { actor, waves, ..WriteOptions::default() };
        let has_change = change.is_some();
        let write = Write::StepRollouts { steps, change, kind, summary };
        match self.write(write.clone(), options.clone()).await {
            Err(WriteError::NotFound { .. } | WriteError::NoRule { .. } | WriteError::Weights(_))
                if has_change =>
            {
                self.rules_due = Some(Instant::now());
                let Write::StepRollouts { steps, summary, .. } = write else { return Ok(()) };
                let write = Write::StepRollouts { steps, change: None, kind: StepKind::Back, summary };
                self.write(write, options).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    /// The step of a rollout from the state that is stored, as far as is known.
    pub(super) fn step_to(&self, id: &str, after: Option<&Arc<RolloutRecord>>) -> RolloutStep {
        let before = self.entries.get(id).map(|entry| Arc::clone(&entry.stored));
        RolloutStep { before, after: after.cloned() }
    }

    /// A state is stored.
    pub(super) fn note_stored(&mut self, id: &str, record: &Arc<RolloutRecord>) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.stored = Arc::clone(record);
        }
    }

    pub(super) async fn write(
        &self,
        write: Write,
        options: WriteOptions,
    ) -> Result<WriteOutcome, WriteError> {
        self.parts.control.write(write, options).await
    }

    /// Makes a stored state the present one, and runs its effects.
    pub(super) fn install(
        &mut self,
        id: &str,
        record: Arc<RolloutRecord>,
        outcome: Outcome,
        failing: Failing,
    ) {
        self.shown.show(id, Some(record.rollout.clone()));
        let Some(entry) = self.entries.get_mut(id) else { return };
        let is_new_phase = entry.record.rollout.phase() != record.rollout.phase();
        entry.record = record;
        entry.is_resumed = true;
        let Some(wanted) = wanted(&outcome) else {
            self.perform(id, outcome.effects);
            if is_new_phase {
                self.count();
            }
            return;
        };
        entry.wanted = Some(wanted);
        entry.failing = failing;
        self.perform(id, outcome.effects);
        self.count();
    }

    pub(super) fn insert(&mut self, id: &str, record: Arc<RolloutRecord>) {
        self.entries.insert(id.to_owned(), Entry::new(record, true));
    }

    fn perform(&mut self, id: &str, effects: Vec<Effect>) {
        for effect in effects {
            let Some(entry) = self.entries.get_mut(id) else { return };
            match effect {
                // The leader does it.
                _ if !self.is_leading && !matches!(effect, Effect::Emit(_)) => {}
                // It is stored and published already.
                Effect::SetWeights { .. } => {}
                Effect::AwaitAck { change } => {
                    entry.change = Some(change);
                    entry.others = OtherAcks::default();
                    entry.concerned = Concerned::default();
                    entry.revision = self.parts.publisher.groups().0;
                    entry.told = None;
                    self.acks_due = Some(Instant::now());
                }
                Effect::Measure { measurement, since_ms, prometheus } => {
                    self.measure(id, measurement, since_ms, prometheus);
                }
                Effect::CallWebhook { call, url, timeout, payload } => {
                    self.call(id, call, url, timeout, payload);
                }
                Effect::WakeAt { at_ms } => entry.wake_at = at_ms,
                Effect::Emit(event) => {
                    tracing::info!(rollout = id, phase = ?event.phase, "{}", event.message);
                    self.parts.control.tell_rollout(id, event);
                }
                Effect::Finished => {
                    entry.wake_at = u64::MAX;
                    entry.change = None;
                }
            }
        }
    }

    fn measure(&mut self, id: &str, measurement: u64, since_ms: u64, prometheus: Option<Prometheus>) {
        self.served.refresh(self.parts.publisher.groups().1);
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Division { backends, doubts, .. } = entry.division(&self.parts, &self.served);
        let report_ms = duration_millis(self.parts.loads.limits().bucket);
        let now_ms = (self.parts.clock)();
        let starts = windows(since_ms, now_ms, report_ms);
        let own = evidence(&self.parts, backends, &starts);
        let reading = Reading { report_ms, split: split(doubts, &self.parts), ..Reading::default() };
        let asked = self.parts.peers.as_ref().map(|peers| {
            let mut ago_ms = starts.iter().map(|start| now_ms.saturating_sub(*start));
            let spec = Box::new(entry.record.rollout.spec().clone());
            let question = Question::RolloutLoads {
                spec,
                ago_ms: ago_ms.next().unwrap_or_default(),
                more_ago_ms: ago_ms.collect(),
            };
            (Arc::clone(peers), question)
        });
        if asked.is_none() && prometheus.is_none() {
            let reading = with(reading, own.unwrap_or_default());
            self.known.push_back((id.to_owned(), Input::Measured { measurement, reading }));
            return;
        }
        let (id, answers, caller) = (id.to_owned(), self.answers.clone(), self.parts.caller.clone());
        tokio::spawn(async move {
            let evidence = match asked {
                Some((peers, question)) => ask_evidence(peers, question, own).await,
                None => own.unwrap_or_default(),
            };
            let mut reading = with(reading, evidence);
            if let Some(prometheus) = prometheus {
                reading.prometheus = Some(calls::query(&caller, &prometheus).await);
            }
            // It fails only while the server ends.
            let _ = answers.send(Request::Input(id, Input::Measured { measurement, reading })).await;
        });
    }

    fn call(&self, id: &str, call: u64, url: String, timeout: Span, payload: HookPayload) {
        let Some(entry) = self.entries.get(id) else { return };
        let (all, own) = (Arc::clone(&self.slots), Arc::clone(&entry.slots));
        let (id, answers, caller) = (id.to_owned(), self.answers.clone(), self.parts.caller.clone());
        let limit = Duration::from_millis(timeout.millis());
        tokio::spawn(async move {
            let calling = async {
                // A rollout whose hooks hang must not keep others from calling.
                let (_own, _all) = (own.acquire().await, all.acquire().await);
                calls::call(&caller, &url, &payload, limit).await
            };
            let answer = tokio::time::timeout(limit, calling).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {timeout}")));
            let _ = answers.send(Request::Input(id, Input::Called { call, answer })).await;
        });
    }

    /// Reports the number of rollouts to the metrics.
    pub(super) fn count(&self) {
        let Some(observer) = &self.parts.observer else { return };
        let mut counts: BTreeMap<Phase, usize> = BTreeMap::new();
        for entry in self.entries.values() {
            *counts.entry(entry.record.rollout.phase()).or_default() += 1;
        }
        observer.rollouts(&counts);
    }
}

/// The clusters of a rollout's backends, in one state of what is served and with one share of the canary.
#[derive(Debug)]
struct Division {
    at: (u64, Percent),
    backends: Backends,
    doubts: Vec<Doubt>,
}

impl Entry {
    fn new(record: Arc<RolloutRecord>, is_resumed: bool) -> Self {
        Self {
            stored: Arc::clone(&record),
            record,
            wake_at: if is_resumed { u64::MAX } else { 0 },
            is_resumed,
            change: None,
            failing: Failing::new(),
            told: None,
            wanted: None,
            concern: Concern::default(),
            concerned: Concerned::default(),
            division: None,
            told_endpoint: None,
            revision: Revision::default(),
            others: OtherAcks::default(),
            asks_others: false,
            ask_again: Instant::now(),
            slots: Arc::new(Semaphore::new(MAX_CALLS_PER_ROLLOUT)),
        }
    }

    /// Why no client can reach the canary, by what it is served.
    fn no_endpoint(&mut self, parts: &DriverParts, served: &Served) -> Option<String> {
        self.division(parts, served);
        let canary = self.division.as_ref().map(|division| &division.backends.canary)?;
        served.no_endpoint(self.concern.clients(), canary)
    }

    /// The clusters of the backends, and why requests are not divided between them by weight alone.
    fn division(&mut self, parts: &DriverParts, served: &Served) -> &Division {
        let at = (served.generation, self.record.rollout.canary());
        let known = self.division.take().filter(|division| division.at == at);
        self.division.insert(known.unwrap_or_else(|| {
            let backends = served.behind.backends(parts, self.record.rollout.spec());
            let doubts = served.doubts(&backends, at.1);
            Division { at, backends, doubts }
        }))
    }

    /// Asks the other servers about a change, unless they are being asked, or were asked just now. Returns when they are to be asked again,
    /// if that is known.
    fn ask_others(
        &mut self,
        (id, change): (&str, u64),
        peers: &Arc<dyn Peers>,
        answers: &mpsc::Sender<Request>,
    ) -> Option<Instant> {
        if self.asks_others {
            return None;
        }
        if Instant::now() < self.ask_again && self.others.status.change == change {
            return Some(self.ask_again);
        }
        self.asks_others = true;
        let spec = Box::new(self.record.rollout.spec().clone());
        let revision = self.revision.0;
        let question = move |nodes| Question::RolloutAcks { spec: spec.clone(), change, revision, nodes };
        let servers = peers.replicas().into_iter().filter(|replica| !replica.is_own);
        let nodes = self.concerned.questions(servers.map(|replica| replica.id));
        let (id, peers, answers) = (id.to_owned(), Arc::clone(peers), answers.clone());
        tokio::spawn(async move {
            let others = ask_acks(peers, change, nodes, question).await;
            // It fails only while the server ends.
            let _ = answers.send(Request::Others(id, others)).await;
        });
        None
    }

    pub(super) fn rollout(&self) -> &Rollout {
        &self.record.rollout
    }
}

/// A reading with the reports of clients.
fn with(reading: Reading, evidence: RolloutEvidence) -> Reading {
    let RolloutEvidence { windows, silence } = evidence;
    Reading { windows, silence, ..reading }
}

/// Returns `true` if this server goes on with rollouts by itself: it leads, or it is alone.
fn leads(parts: &DriverParts) -> bool {
    !parts.control.is_follower() && parts.peers.as_ref().is_none_or(|peers| peers.leads())
}

/// The weights and header routes that an outcome wants.
pub(super) fn wanted(outcome: &Outcome) -> Option<Wanted> {
    outcome.effects.iter().find_map(|effect| {
        let Effect::SetWeights { weights, header_routes, .. } = effect else { return None };
        Some((weights.clone(), header_routes.clone()))
    })
}

/// The actor of steps in the history that no user requested.
pub(super) const ACTOR: &str = "rollout";
/// How long answers of clients are collected before they are looked at.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Before other servers are asked again whose clients have not all answered, and once these have.
const ASKING_PAUSE: Duration = Duration::from_secs(1);
const SETTLED_PAUSE: Duration = Duration::from_secs(10);
/// How long to wait after a failed commit.
const RETRY: Duration = Duration::from_secs(1);
/// How long the clock is trusted.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The most webhooks that are called at a time.
const MAX_CALLS: usize = 256;
/// The most webhooks of one rollout that are called at a time.
const MAX_CALLS_PER_ROLLOUT: usize = 8;
