//! Wave deployments go on: the next wave, the end, putting back, and what people ask for.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use xds_cache::wave::{Decision, Deployment, Stage};
use xds_cache::{Revision, WavePolicy};

use super::ended::{Ended, EndedWave};
use super::report::{self, HEALTH_INTERVAL, LOOK_INTERVAL, Look, reason};
use super::{Held, Wave, former, is_of_file, now, rank, record};
use crate::candidate::Candidate;
use crate::model::wave::{WaveMembers, WavePhase, WaveReport, WaveVerb};
use crate::model::{Event, WaveChoice, Write, WriteError, WriteOptions};
use crate::plan::plan;
use crate::write::Label;
use crate::{Control, Shared, documents, observed, weights};

/// When to look again.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// When a wave deployment begins or somebody did something to one.
    Told,
    /// Also when a client answers, or then.
    Answered(Option<Instant>),
    /// What was decided could not be done.
    Failed,
}

/// What a look at the clients led to.
struct Verdict {
    decision: Option<Decision>,
    /// What the wave deployment was doing, and is.
    stage: (Stage, Stage),
    /// When time alone may change the decision.
    next: Option<Instant>,
    members: WaveMembers,
}

impl Control {
    /// Has wave deployments go on as their clients answer and time passes. Never ends.
    pub async fn follow_waves(self) {
        let mut ticks = self.shared.parts.board.ticks();
        loop {
            ticks.mark_unchanged();
            let next = {
                let _changing = self.shared.changing.lock().await;
                self.shared.go_on().await
            };
            match next {
                Next::Told => self.shared.wave_told.notified().await,
                Next::Failed => tokio::time::sleep(RETRY_INTERVAL).await,
                Next::Answered(at) => {
                    let passed = async {
                        match at {
                            Some(at) => tokio::time::sleep_until(at.into()).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = self.shared.wave_told.notified() => {}
                        answered = ticks.changed() => {
                            if answered.is_err() {
                                return;
                            }
                            tokio::time::sleep(LOOK_INTERVAL).await;
                        }
                        () = passed => {}
                    }
                }
            }
        }
    }
}

impl Shared {
    /// The wave deployment that is under way, and those that ended.
    pub(crate) fn wave_reports(&self) -> Vec<WaveReport> {
        let (wave, ended) = {
            let state = self.state();
            let ended: Vec<WaveReport> = state.ended.waves.iter().map(|one| one.report.clone()).collect();
            (state.wave.clone(), ended)
        };
        let active = wave.map(|wave| self.report(&wave));
        let is_active = |report: &WaveReport| {
            active.as_ref().is_some_and(|active| active.deployment == report.deployment)
        };
        let ended: Vec<WaveReport> = ended.into_iter().filter(|report| !is_active(report)).collect();
        active.into_iter().chain(ended).collect()
    }

    /// Looks at the clients once, and does what is to be done.
    async fn go_on(self: &Arc<Self>) -> Next {
        let wave = {
            let state = self.state();
            state.wave.clone().filter(|_| state.is_loaded)
        };
        let Some(wave) = wave else { return Next::Told };
        if let Some(reason) = &wave.stopped {
            // Served as if it was put back already; what the API owns is still to follow.
            if wave.has_overrides() {
                let members = self.look_at(&wave).members;
                return self.done(self.put_back(&wave, reason, members).await.map(|_| ())).await;
            }
            return Next::Told;
        }
        if wave.ranking.is_awaited() {
            return self.rank(&wave).await;
        }
        let look = self.look_at(&wave);
        drop(wave);
        let Some((wave, verdict)) = self.judge_look(look) else { return Next::Told };
        let Verdict { decision, stage, next, members } = verdict;
        if stage.0 != stage.1 {
            let phase = match stage.1 {
                Stage::Progressing => WavePhase::Progressing,
                Stage::Holding => WavePhase::Holding,
                Stage::Paused => WavePhase::Paused,
            };
            self.tell_wave(&wave, phase, format!("{} of {} nodes have it", members.n_acked, members.n_ahead));
        }
        match decision {
            None => match self.record_pause().await {
                Ok(()) => Next::Answered(next),
                failed @ Err(_) => self.done(failed).await,
            },
            Some(Decision::Advance) => self.done(self.advance(&wave).await).await,
            Some(Decision::Complete) => self.done(self.complete(&wave, members).await).await,
            Some(Decision::PutBack(fault)) => {
                let reason = reason(&members, fault);
                self.done(self.put_back(&wave, &reason, members).await.map(|_| ())).await
            }
        }
    }

    /// Takes in what was seen of the clients, and has the wave deployment decide; `None` if there is none any more.
    fn judge_look(&self, look: Look) -> Option<(Wave, Verdict)> {
        let now = now();
        let mut state = self.state();
        let wave = state.wave.as_mut()?;
        let known = Arc::make_mut(&mut wave.members);
        let Look { mut members, present, is_failing, released } = look;
        known.look(present, |node| released.contains(node), now);
        report::tell_lost(&mut members, known, now);
        let seen = report::seen(&members, known.losses(now), is_failing);
        let away = known.poll_timeout(now);
        let before = wave.deployment.stage();
        let decision = wave.deployment.decide(seen, now);
        let stage = (before, wave.deployment.stage());
        if stage.0 != stage.1 {
            wave.since = SystemTime::now();
        }
        if stage.1 == Stage::Paused && wave.paused.is_none() {
            wave.paused = Some(report::why_paused(&wave.deployment, &members).into());
            *wave = wave.clone().with_members_recorded();
        }
        let looks = wave.deployment.policy().max_error_rate.is_some() && stage.1 == Stage::Holding;
        let health = looks.then(|| now + HEALTH_INTERVAL);
        let next = [away, health, wave.deployment.poll_timeout(now)].into_iter().flatten().min();
        Some((wave.clone(), Verdict { decision, stage, next, members }))
    }

    /// Ranks the nodes if one of those that are connected says by what, and begins the first wave.
    async fn rank(self: &Arc<Self>, wave: &Wave) -> Next {
        if wave.deployment.stage() == Stage::Paused {
            return Next::Told;
        }
        if now() < wave.rank_from {
            return Next::Answered(Some(wave.rank_from));
        }
        let policy = wave.deployment.policy();
        let ranking = rank::ranking(policy, &self.census(&policy.by, |node| self.concerns(node)));
        let Some(order) = ranking.order() else { return Next::Answered(None) };
        let deployment = Deployment::new(policy.in_order(order), 0, now());
        let reached = vec![self.next_revision()];
        let next = Wave { since: SystemTime::now(), deployment, reached, ranking, ..wave.clone() };
        let summary =
            format!("the first wave ({}) of the wave deployment {}", next.deployment.share(), next.id);
        match self.commit_wave(next.clone(), "waves", &summary).await {
            Ok(()) => {
                self.tell_wave(&next, WavePhase::Progressing, summary);
                self.done(Ok(())).await
            }
            failed @ Err(_) => self.done(failed).await,
        }
    }

    async fn done(self: &Arc<Self>, outcome: Result<(), WriteError>) -> Next {
        match outcome {
            Ok(()) => {
                self.solved("waves");
                // At once: nobody may be concerned, and no time have to pass.
                Next::Answered(Some(now()))
            }
            Err(error) => {
                self.problem("waves", format!("the wave deployment cannot go on: {}", crate::chain(&error)));
                // Another server may have been faster.
                if let Err(error) = self.catch_up().await {
                    self.problem("store", format!("the store cannot be read: {error}"));
                }
                Next::Failed
            }
        }
    }

    async fn advance(self: &Arc<Self>, wave: &Wave) -> Result<(), WriteError> {
        // Who rejected this very change still counts in the waves to come.
        let split = wave.split();
        let mut failing = self.failing(|node| !split.is_ahead(node));
        failing.extend(wave.failing.iter().cloned());
        let mut next = Wave { since: SystemTime::now(), failing: Arc::new(failing), ..wave.clone() };
        next.deployment.advance(now());
        next.reached.push(self.next_revision());
        let n_waves = next.deployment.policy().shares().len();
        let (number, share, id) = (next.deployment.wave() + 1, next.deployment.share(), next.id);
        let summary = format!("wave {number} of {n_waves} ({share}) of the wave deployment {id}");
        next = next.with_members_recorded();
        self.commit_wave(next.clone(), "waves", &summary).await?;
        self.tell_wave(&next, WavePhase::Progressing, summary);
        Ok(())
    }

    async fn complete(self: &Arc<Self>, wave: &Wave, members: WaveMembers) -> Result<(), WriteError> {
        let mut ended = self.ended(wave, WavePhase::Completed, None);
        ended.report.members = members;
        let summary = format!("the wave deployment {} is complete", wave.id);
        self.end_wave(None, Candidate::default(), ended, "waves", &summary).await?;
        self.tell_wave(wave, WavePhase::Completed, summary);
        Ok(())
    }

    /// Gives the change to everyone, because somebody says so.
    async fn promote(
        self: &Arc<Self>,
        wave: &Wave,
        actor: &str,
        members: WaveMembers,
    ) -> Result<(), WriteError> {
        let share = wave.share().map_or_else(|| "0%".to_owned(), |share| share.to_string());
        let reason = format!("promoted by {actor} at {share}, when {} nodes were behind", members.n_behind);
        let mut ended = self.ended(wave, WavePhase::Promoted, Some(reason));
        ended.report.members = members.promoted();
        let summary = format!("the wave deployment {} is promoted", wave.id);
        self.end_wave(None, Candidate::default(), ended, actor, &summary).await?;
        self.tell_wave(wave, WavePhase::Promoted, summary);
        Ok(())
    }

    /// Undoes the change of a wave deployment: of what the API owns by a new revision, of what files say by going on to serve what was
    /// before. If that cannot be stored, it is served nevertheless, and the error is told.
    pub(crate) async fn put_back(
        self: &Arc<Self>,
        wave: &Wave,
        reason: &str,
        members: WaveMembers,
    ) -> Result<WaveReport, WriteError> {
        let world = self.state().world();
        let undo = former::undo(&world, &wave.held);
        let of_files: Held = wave
            .held
            .iter()
            .filter(|(key, _)| is_of_file(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let stopped = Wave { stopped: Some(reason.into()), since: SystemTime::now(), ..wave.clone() };
        let rest = Wave { held: Arc::new(of_files), ..stopped.clone() };
        let next = (!rest.held.is_empty()).then_some(rest);
        let summary = format!("put the wave deployment {} back: {reason}", wave.id);
        let phase = if next.is_some() { WavePhase::Held } else { WavePhase::Reverted };
        let mut ended = self.ended(wave, phase, Some(reason.to_owned()));
        ended.report.members = members;
        ended.put_back = wave.has_overrides().then(|| self.next_revision());
        let report = ended.report.clone();
        if let Err(error) = self.end_wave(next, undo, ended, "waves", &summary).await {
            if wave.stopped.is_none() {
                self.state().wave = Some(stopped);
                let (revision, groups) = self.state().published();
                self.publish(revision, groups, "waves", &summary);
            }
            return Err(error);
        }
        tracing::warn!(deployment = wave.id, reason, "a wave deployment was put back");
        self.tell_wave(wave, phase, summary);
        Ok(report)
    }

    /// Puts back whatever is under way, so that a forced write can be done. What files say stays held meanwhile; only a forced
    /// write that begins a wave deployment of its own takes its place, and lets everyone have it.
    pub(crate) async fn abort_for(self: &Arc<Self>, actor: &str) -> Result<(), WriteError> {
        let Some(wave) = self.state().wave.clone() else { return Ok(()) };
        if wave.stopped.is_none() || wave.has_overrides() {
            let members = self.look_at(&wave).members;
            let reason = format!("aborted by a forced write of {actor}");
            return self.put_back(&wave, &reason, members).await.map(|_| ());
        }
        let summary = format!("let go of the wave deployment {}", wave.id);
        let reason = Some(format!("a forced write of {actor} took its place"));
        let ended = self.ended(&wave, WavePhase::Superseded, reason);
        self.end_wave(None, Candidate::default(), ended, actor, &summary).await
    }

    /// Does what somebody asks for.
    pub(crate) async fn act(
        self: &Arc<Self>,
        deployment: u64,
        verb: WaveVerb,
        actor: &str,
    ) -> Result<WaveReport, WriteError> {
        let again = {
            let _changing = self.changing.lock().await;
            let wave = self.state().wave.clone().filter(|wave| wave.id == deployment);
            match wave {
                Some(wave) => {
                    let done = self.act_on(&wave, verb, actor).await;
                    self.wave_told.notify_one();
                    done?;
                    None
                }
                None => Some(self.again(deployment, verb)?),
            }
        };
        if let Some((put_back, policy)) = again {
            return self.do_again(put_back, policy, actor).await;
        }
        let report = self.wave_reports().into_iter().find(|report| report.deployment == deployment);
        report.ok_or_else(|| not_found(deployment))
    }

    async fn act_on(self: &Arc<Self>, wave: &Wave, verb: WaveVerb, actor: &str) -> Result<(), WriteError> {
        let members = self.look_at(wave).members;
        match verb {
            WaveVerb::Promote => self.promote(wave, actor, members).await,
            WaveVerb::Abort if wave.stopped.is_some() => {
                Err(WriteError::WaveState(format!("the wave deployment {} is put back already", wave.id)))
            }
            WaveVerb::Abort => self.put_back(wave, &format!("aborted by {actor}"), members).await.map(|_| ()),
            WaveVerb::Resume if wave.stopped.is_some() => {
                let policy = wave.deployment.policy().clone();
                let again = Wave {
                    since: SystemTime::now(),
                    reached: vec![self.next_revision()],
                    stopped: None,
                    paused: None,
                    deployment: Deployment::new(policy, 0, now()),
                    failing: Arc::new(self.failing(|_| true)),
                    members: Arc::default(),
                    recorded: Arc::default(),
                    ..wave.clone()
                };
                let summary = format!("the wave deployment {} begins again", wave.id);
                self.commit_wave(again.clone(), actor, &summary).await?;
                self.tell_wave(&again, WavePhase::Progressing, summary);
                Ok(())
            }
            WaveVerb::Resume => {
                let mut next = Wave { since: SystemTime::now(), paused: None, ..wave.clone() };
                next.deployment.resume(now()).map_err(|_| {
                    let text = "is neither paused nor put back; it goes on by itself";
                    WriteError::WaveState(format!("the wave deployment {} {text}", wave.id))
                })?;
                Arc::make_mut(&mut next.members).forgive(now());
                let next = next.with_members_recorded();
                let summary = format!("the wave deployment {} goes on", wave.id);
                self.commit_wave(next.clone(), actor, &summary).await?;
                self.tell_wave(&next, WavePhase::Progressing, summary);
                Ok(())
            }
            WaveVerb::Pause if wave.stopped.is_some() => Err(WriteError::WaveState(format!(
                "the wave deployment {} is put back; there is nothing to pause",
                wave.id
            ))),
            WaveVerb::Pause => {
                let paused = Some(format!("paused by {actor}").into());
                let mut next = Wave { since: SystemTime::now(), paused, ..wave.clone() };
                next.deployment
                    .pause()
                    .map_err(|error| WriteError::WaveState(format!("{error}: {}", wave.id)))?;
                let next = next.with_members_recorded();
                let summary = format!("the wave deployment {} is paused by {actor}", wave.id);
                self.commit_wave(next.clone(), actor, &summary).await?;
                self.tell_wave(&next, WavePhase::Paused, summary);
                Ok(())
            }
        }
    }

    /// Stores that the wave deployment is paused, unless that is stored already.
    async fn record_pause(self: &Arc<Self>) -> Result<(), WriteError> {
        let wave = self.state().wave.clone();
        let Some((wave, reason)) = wave.and_then(|wave| Some((wave.clone(), wave.paused?))) else {
            return Ok(());
        };
        if record::plan(Some(&wave), &self.parts.store.state().1).is_empty() {
            return Ok(());
        }
        let summary = format!("the wave deployment {} is paused: {reason}", wave.id);
        self.commit_wave(wave, "waves", &summary).await?;
        self.solved("waves");
        Ok(())
    }

    /// How a wave deployment that ended is begun again.
    fn again(&self, deployment: u64, verb: WaveVerb) -> Result<(Revision, WavePolicy), WriteError> {
        let state = self.state();
        let mut ended = state.ended.waves.iter();
        let EndedWave { report, put_back } =
            ended.find(|one| one.report.deployment == deployment).ok_or_else(|| not_found(deployment))?;
        match (verb, put_back) {
            (WaveVerb::Resume, Some(put_back)) => Ok((*put_back, report.policy.clone())),
            (WaveVerb::Pause | WaveVerb::Resume | WaveVerb::Promote | WaveVerb::Abort, _) => {
                let phase = report.phase.as_str();
                Err(WriteError::WaveState(format!("the wave deployment {deployment} ended: it is {phase}")))
            }
        }
    }

    /// Undoes the revision that put a change back, in waves.
    async fn do_again(
        self: &Arc<Self>,
        put_back: Revision,
        policy: WavePolicy,
        actor: &str,
    ) -> Result<WaveReport, WriteError> {
        let waves = WaveChoice::By(policy);
        let options = WriteOptions { actor: actor.to_owned(), waves, ..WriteOptions::default() };
        let outcome = self.write(Write::Revert { of: put_back }, options).await?;
        let deployment = outcome.wave.ok_or_else(|| {
            WriteError::WaveState("everything that the change was about was changed again since".to_owned())
        })?;
        self.wave_reports()
            .into_iter()
            .find(|report| report.deployment == deployment)
            .ok_or_else(|| not_found(deployment))
    }

    /// Stores and publishes what a wave deployment has become. The caller holds `changing`.
    async fn commit_wave(self: &Arc<Self>, next: Wave, actor: &str, summary: &str) -> Result<(), WriteError> {
        let label = Label { actor, source: "waves", summary };
        let ended = self.state().ended.clone();
        self.commit_waves(Some(next), ended, Candidate::default(), label).await
    }

    /// Stores and publishes that a wave deployment ended, with what that undoes; `next` is what is left of it.
    async fn end_wave(
        self: &Arc<Self>,
        next: Option<Wave>,
        undo: Candidate,
        ended: EndedWave,
        actor: &str,
        summary: &str,
    ) -> Result<(), WriteError> {
        let ended = self.state().ended.clone().with(ended);
        self.commit_waves(next, ended, undo, Label { actor, source: "waves", summary }).await
    }

    async fn commit_waves(
        self: &Arc<Self>,
        next: Option<Wave>,
        ended: Ended,
        undo: Candidate,
        label: Label<'_>,
    ) -> Result<(), WriteError> {
        let summary = label.summary;
        let world = self.state().world();
        let resting = next.as_ref().map(Wave::resting).unwrap_or_default();
        let (documents, dropped) = self.translate_aside(&world, &undo, resting, None).await?;
        let Candidate { patch, documents: document_patch, .. } = undo;
        let groups = world.patched(&world.base, &patch, &documents);
        let mut plan = plan(&world.overrides, &patch);
        plan.extend(documents::plan(&world.documents.owned, &document_patch));
        plan.extend(weights::plan(&world.documents.weights, &documents.weights));
        let keys = self.parts.store.state().1;
        plan.extend(record::plan(next.as_ref(), &keys));
        plan.extend(ended.plan(&keys));
        let revision = match plan.is_empty() {
            true => world.revision,
            false => {
                plan.extend(observed::plan(&world.documents.translated, &documents.translated));
                self.commit(world.revision, plan, label).await?
            }
        };
        self.apply(revision, patch, documents, groups.clone());
        {
            let mut state = self.state();
            (state.wave, state.ended) = (next, ended);
        }
        self.prepare().await;
        self.publish(revision, groups, "waves", summary);
        self.tell_dropped(&dropped);
        Ok(())
    }

    /// Keeps, and tells of, a wave deployment that ended because files changed.
    pub(crate) fn take_ended(&self, ended: EndedWave) {
        let WaveReport { deployment, phase, reason, .. } = &ended.report;
        let message = reason.clone().unwrap_or_default();
        if let Some(observer) = &self.parts.observer {
            observer.wave(*phase, None);
        }
        tracing::info!(deployment, phase = phase.as_str(), "{message}");
        self.tell(Event::Wave { deployment: *deployment, phase: *phase, share: None, message });
        let mut state = self.state();
        state.ended = std::mem::take(&mut state.ended).with(ended);
    }

    pub(crate) fn tell_wave(&self, wave: &Wave, phase: WavePhase, message: String) {
        let share = match phase {
            WavePhase::Progressing | WavePhase::Holding | WavePhase::Paused => wave.share(),
            WavePhase::Completed | WavePhase::Promoted => Some(xds_cache::wave::Share::ALL),
            WavePhase::Held | WavePhase::Reverted | WavePhase::Superseded => None,
        };
        if let Some(observer) = &self.parts.observer {
            observer.wave(phase, share);
        }
        tracing::info!(deployment = wave.id, phase = phase.as_str(), "{message}");
        self.tell(Event::Wave { deployment: wave.id, phase, share, message });
    }

    fn next_revision(&self) -> Revision {
        Revision(self.state().revision.0 + 1)
    }
}

fn not_found(deployment: u64) -> WriteError {
    WriteError::NotFound { what: format!("the wave deployment {deployment}") }
}

/// How long after a failure of the store it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
