//! Proposals that move a wave deployment: the next wave, the end, putting back, and requests of operators.

use std::sync::Arc;

use xds_cache::WavePolicy;
use xds_cache::wave::{Decision, Deployment, Stage};

use super::close::{self, ended, event};
use super::ended::{Ended, EndedWave};
use super::failing::Failing;
use super::report::{self, HEALTH_INTERVAL, Look, look_at, reason};
use super::value::{PreviousValues, Tests, Wave};
use super::{begin, former, rank, record};
use crate::accepted::Accepted;
use crate::candidate::Candidate;
use crate::documents::Terms;
use crate::env::{At, Env};
use crate::hold::{self, Freed};
use crate::model::wave::{WaveMembers, WavePhase, WaveVerb};
use crate::model::{ChangeSource, Event, WriteError};
use crate::stored_statuses;
use crate::transition::{Label, Next, Note, Outcome, ProblemSubject, Transition};
use crate::weights;
use crate::write::{apply, plan_of};

/// The state from which a step of a wave deployment is proposed.
#[derive(Clone, Copy)]
struct Scene<'a> {
    env: &'a Env,
    accepted: &'a Accepted,
    at: At,
}

/// The result of a look at the clients.
struct Verdict {
    decision: Option<Decision>,
    /// The stages before and after.
    stage: (Stage, Stage),
    /// When time alone may change the decision.
    next: Option<std::time::Instant>,
    members: WaveMembers,
}

/// Looks at the clients once, and takes the next step.
///
/// # Errors
///
/// Those of the step.
pub(crate) fn go_on(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    let scene = Scene { env, accepted, at };
    let drives = accepted.is_loaded && env.leads();
    let Some(wave) = accepted.wave.as_deref().filter(|_| drives) else {
        return Ok(scene.rests(Next::Told));
    };
    if let Some(reason) = &wave.stopped {
        // It is served as if it was put back already. The API's objects still have to follow.
        if !wave.has_overrides() || wave.awaits_tests() {
            return Ok(scene.rests(Next::Told));
        }
        let members = look_at(env, wave, at).members;
        return Ok(scene.at_once(scene.put_back(wave, reason, members)?));
    }
    if wave.ranking.is_awaited() {
        return scene.rank(wave);
    }
    let (wave, verdict) = judge(wave, look_at(env, wave, at), at);
    let Verdict { decision, stage, next, members } = verdict;
    let told = (stage.0 != stage.1).then(|| {
        let phase = match stage.1 {
            Stage::Progressing => WavePhase::Progressing,
            Stage::Holding => WavePhase::Holding,
            Stage::Paused => WavePhase::Paused,
        };
        event(&wave, phase, format!("{} of {} nodes have it", members.n_acked, members.n_ahead))
    });
    let mut transition = match decision {
        None => scene.waits(&wave, next)?,
        Some(Decision::Advance) => scene.at_once(scene.advance(&wave)?),
        Some(Decision::Complete) => scene.at_once(scene.complete(&wave, members)?),
        Some(Decision::PutBack(fault)) => {
            let reason = reason(&members, fault);
            scene.at_once(scene.put_back(&wave, &reason, members)?)
        }
    };
    transition.told.splice(0..0, told);
    Ok(transition)
}

/// Looks at what RouteTests hold: it goes out if it breaks nothing any more.
///
/// # Errors
///
/// Those of a translation.
pub(crate) fn look_at_held(env: &Env, accepted: &Accepted, at: At) -> Result<Transition, WriteError> {
    let scene = Scene { env, accepted, at };
    let wave = accepted.wave.as_deref();
    match (wave, hold::look(env, accepted)) {
        (Some(_), Some(Ok(()))) if !env.leads() => Ok(scene.rests(Next::Told)),
        (Some(wave), Some(Ok(()))) => {
            let summary = format!("the wave deployment {} goes out: {}", wave.id, close::PASS);
            let label = Label::new("tests", ChangeSource::Waves, summary.clone());
            match hold::freed(env, accepted, wave, at) {
                Freed::Begins(again) => scene.goes_on(*again, "tests", WavePhase::Progressing, summary),
                Freed::Ends(ended) => {
                    let told = close::event_of_end(&ended);
                    Ok(scene.ends((None, *ended), &Candidate::default(), label)?.telling(told))
                }
            }
        }
        (Some(wave), Some(Err(broken))) => {
            let wave = Some(Arc::new(hold::stopped(wave.clone(), broken)));
            Ok(Transition::quiet(Accepted { wave, ..accepted.clone() }, Outcome::Done))
        }
        (_, _) => Ok(scene.rests(Next::Told)),
    }
}

/// Carries out a request of an operator about the current wave deployment.
///
/// # Errors
///
/// [`WriteError::WaveState`] if it is not in a state for that.
pub(crate) fn act(
    env: &Env,
    accepted: &Accepted,
    (deployment, verb, actor): (u64, WaveVerb, &str),
    at: At,
) -> Result<Transition, WriteError> {
    let wave = accepted.wave.as_deref().filter(|wave| wave.id == deployment);
    let wave = wave.ok_or_else(|| not_found(deployment))?;
    let scene = Scene { env, accepted, at };
    let (id, is_stopped) = (wave.id, wave.stopped.is_some());
    let refused = |what: &str| Err(WriteError::WaveState(format!("the wave deployment {id} {what}")));
    match verb {
        WaveVerb::Promote => scene.promote(wave, actor),
        WaveVerb::Abort if is_stopped && !wave.awaits_tests() => refused("is already put back"),
        WaveVerb::Abort => {
            let members = look_at(env, wave, at).members;
            scene.put_back(wave, &format!("aborted by {actor}"), members)
        }
        WaveVerb::Resume if is_stopped => scene.begin_again(wave, actor),
        WaveVerb::Resume => scene.resume(wave, actor),
        WaveVerb::Pause if is_stopped => refused("is put back; there is nothing to pause"),
        WaveVerb::Pause => scene.pause(wave, actor),
    }
}

/// Puts back the current wave deployment to make way for a forced write. Changes of files stay held meanwhile, unless the forced
/// write begins a wave deployment of its own: then they reach everyone.
///
/// # Errors
///
/// Those of putting back.
pub(crate) fn abort_for(
    env: &Env,
    accepted: &Accepted,
    actor: &str,
    at: At,
) -> Result<Transition, WriteError> {
    let scene = Scene { env, accepted, at };
    let Some(wave) = accepted.wave.as_deref() else { return Ok(scene.rests(Next::Told)) };
    if wave.stopped.is_none() || wave.has_overrides() {
        let members = look_at(env, wave, at).members;
        return scene.put_back(wave, &format!("aborted by a forced write by {actor}"), members);
    }
    let summary = format!("let go of the wave deployment {}", wave.id);
    let reason = Some(format!("a forced write by {actor} replaced it"));
    let ended = ended(env, wave, WavePhase::Superseded, reason, at);
    scene.ends((None, ended), &Candidate::default(), Label::new(actor, ChangeSource::Waves, summary))
}

/// The write that begins an ended wave deployment again: it undoes the revision that put it back, in the same waves.
///
/// # Errors
///
/// [`WriteError::NotFound`] if no known one ended, [`WriteError::WaveState`] if it cannot be begun again.
pub(crate) fn again(
    accepted: &Accepted,
    deployment: u64,
    verb: WaveVerb,
) -> Result<(xds_cache::Revision, WavePolicy), WriteError> {
    let mut ended = accepted.ended.waves.iter();
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

pub(crate) fn not_found(deployment: u64) -> WriteError {
    WriteError::NotFound { what: format!("the wave deployment {deployment}") }
}

/// Gives the look at the clients to the wave deployment, which decides.
fn judge(wave: &Wave, look: Look, at: At) -> (Wave, Verdict) {
    let (mut wave, now) = (wave.clone(), at.clock);
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
        wave.since = at.wall;
    }
    if stage.1 == Stage::Paused && wave.paused.is_none() {
        wave.paused = Some(report::why_paused(&wave.deployment, &members).into());
        wave = wave.with_members_recorded();
    }
    let looks = wave.deployment.policy().max_error_rate.is_some() && stage.1 == Stage::Holding;
    let health = looks.then(|| now + HEALTH_INTERVAL);
    let next = [away, health, wave.deployment.poll_timeout(now)].into_iter().flatten().min();
    (wave, Verdict { decision, stage, next, members })
}

impl Scene<'_> {
    /// Nothing changes.
    fn rests(&self, next: Next) -> Transition {
        Transition::quiet(self.accepted.clone(), Outcome::GoesOn(next))
    }

    /// Looks at the clients again at once, because there may be no concerned client, and no time to wait.
    fn at_once(&self, transition: Transition) -> Transition {
        let outcome = Outcome::GoesOn(Next::Answered(Some(self.at.clock)));
        let mut notes = transition.notes;
        notes.push(Note::solved(ProblemSubject::Waves));
        Transition { outcome, notes, ..transition }
    }

    /// Decides nothing, but stores that it is paused, unless that is stored already.
    fn waits(&self, wave: &Wave, next: Option<std::time::Instant>) -> Result<Transition, WriteError> {
        let outcome = Outcome::GoesOn(Next::Answered(next));
        if let Some(reason) = &wave.paused
            && !record::plan(Some(wave), &self.env.parts.store.state().1).is_empty()
        {
            let summary = format!("the wave deployment {} is paused: {reason}", wave.id);
            let mut transition =
                self.becomes(wave.clone(), Label::new("waves", ChangeSource::Waves, summary))?;
            transition.notes.push(Note::solved(ProblemSubject::Waves));
            return Ok(Transition { outcome, ..transition });
        }
        let wave = Some(Arc::new(wave.clone()));
        Ok(Transition::quiet(Accepted { wave, ..self.accepted.clone() }, outcome))
    }

    /// Ranks the nodes if a connected one has a value to rank by, and begins the first wave.
    fn rank(&self, wave: &Wave) -> Result<Transition, WriteError> {
        if wave.deployment.stage() == Stage::Paused {
            return Ok(self.rests(Next::Told));
        }
        if self.at.clock < wave.rank_from {
            return Ok(self.rests(Next::Answered(Some(wave.rank_from))));
        }
        let policy = wave.deployment.policy();
        let mut census = rank::census(self.env, &policy.by, |node| rank::concerns(self.env, node));
        for known in self.env.elsewhere.servers(wave.place(), self.at.clock) {
            // Its nodes would be of no value.
            let Ok(clients) = known.said else { return Ok(self.rests(Next::Answered(None))) };
            rank::add(&mut census, &clients);
        }
        let ranking = rank::ranking(policy, &census);
        let Some(order) = ranking.order() else { return Ok(self.rests(Next::Answered(None))) };
        let deployment = Deployment::new(policy.in_order(order), 0, self.at.clock);
        let reached = vec![self.accepted.next_revision()];
        let next = Wave { since: self.at.wall, deployment, reached, ranking, ..wave.clone() };
        let summary =
            format!("the first wave ({}) of the wave deployment {}", next.deployment.share(), next.id);
        Ok(self.at_once(self.goes_on(next, "waves", WavePhase::Progressing, summary)?))
    }

    fn advance(&self, wave: &Wave) -> Result<Transition, WriteError> {
        let broken =
            if matches!(wave.tests, Tests::Waived) { vec![] } else { hold::of_wave(self.env, self.accepted) };
        if !broken.is_empty() {
            return self.pause_for(wave, hold::reason(&broken), "waves");
        }
        // A node that rejected this change still counts in later waves.
        let split = wave.split();
        let mut failing = Failing::of(&self.env.parts.board, |node| !split.is_ahead(node));
        failing.extend(&wave.failing);
        let mut next = Wave { since: self.at.wall, failing: Arc::new(failing), ..wave.clone() };
        next.deployment.advance(self.at.clock);
        next.reached.push(self.accepted.next_revision());
        let n_waves = next.deployment.policy().shares().len();
        let (number, share, id) = (next.deployment.wave() + 1, next.deployment.share(), next.id);
        let summary = format!("wave {number} of {n_waves} ({share}) of the wave deployment {id}");
        self.goes_on(next.with_members_recorded(), "waves", WavePhase::Progressing, summary)
    }

    fn complete(&self, wave: &Wave, members: WaveMembers) -> Result<Transition, WriteError> {
        let mut ended = ended(self.env, wave, WavePhase::Completed, None, self.at);
        ended.report.members = members;
        let summary = format!("the wave deployment {} is complete", wave.id);
        let told = event(wave, WavePhase::Completed, summary.clone());
        let label = Label::new("waves", ChangeSource::Waves, summary);
        Ok(self.ends((None, ended), &Candidate::default(), label)?.telling(told))
    }

    /// Gives the change to everyone, at the request of an operator.
    fn promote(&self, wave: &Wave, actor: &str) -> Result<Transition, WriteError> {
        let members = look_at(self.env, wave, self.at).members;
        let share = wave.share().map_or_else(|| "0%".to_owned(), |share| share.to_string());
        let reason = format!("promoted by {actor} at {share}, when {} nodes were behind", members.n_behind);
        let mut ended = ended(self.env, wave, WavePhase::Promoted, Some(reason), self.at);
        ended.report.members = members.promoted();
        let summary = format!("the wave deployment {} is promoted", wave.id);
        let told = event(wave, WavePhase::Promoted, summary.clone());
        let label = Label::new(actor, ChangeSource::Waves, summary);
        Ok(self.ends((None, ended), &Candidate::default(), label)?.telling(told))
    }

    /// Undoes the change of a wave deployment. Objects of the API change back in a new revision. For objects of files, the previous
    /// contents are still served. If this cannot be stored, it is served all the same.
    fn put_back(&self, wave: &Wave, reason: &str, members: WaveMembers) -> Result<Transition, WriteError> {
        let undo = former::undo(self.accepted, &wave.previous);
        let of_files = wave.previous.iter().filter(|(key, _)| key.is_of_file());
        let of_files: PreviousValues = of_files.map(|(key, value)| (key.clone(), value.clone())).collect();
        let tests = Tests::Asked;
        let stopped = Wave { stopped: Some(reason.into()), tests, since: self.at.wall, ..wave.clone() };
        let rest = Wave { previous: Arc::new(of_files), ..stopped.clone() };
        let next = (!rest.previous.is_empty()).then_some(rest);
        let summary = format!("put the wave deployment {} back: {reason}", wave.id);
        let phase = if next.is_some() { WavePhase::Held } else { WavePhase::Reverted };
        let mut ended = ended(self.env, wave, phase, Some(reason.to_owned()), self.at);
        ended.report.members = members;
        ended.put_back = wave.has_overrides().then(|| self.accepted.next_revision());
        let told = event(wave, phase, summary.clone());
        let transition =
            self.ends((next, ended), &undo, Label::new("waves", ChangeSource::Waves, summary))?;
        let unstored = wave.stopped.is_none().then_some(stopped);
        Ok(Transition { unstored, ..transition }.telling(told))
    }

    fn begin_again(&self, wave: &Wave, actor: &str) -> Result<Transition, WriteError> {
        let tests = if wave.awaits_tests() { Tests::Waived } else { Tests::Asked };
        let again = Wave { tests, ..begin::again(self.env, self.accepted, wave, self.at) };
        let summary = format!("the wave deployment {} begins again", wave.id);
        self.goes_on(again, actor, WavePhase::Progressing, summary)
    }

    fn resume(&self, wave: &Wave, actor: &str) -> Result<Transition, WriteError> {
        let mut next = Wave { since: self.at.wall, paused: None, ..wave.clone() };
        next.deployment.resume(self.at.clock).map_err(|_| {
            let text = "is neither paused nor put back; it continues on its own";
            WriteError::WaveState(format!("the wave deployment {} {text}", wave.id))
        })?;
        Arc::make_mut(&mut next.members).forgive(self.at.clock);
        let summary = format!("the wave deployment {} goes on", wave.id);
        self.goes_on(next.with_members_recorded(), actor, WavePhase::Progressing, summary)
    }

    fn pause(&self, wave: &Wave, actor: &str) -> Result<Transition, WriteError> {
        self.pause_for(wave, format!("paused by {actor}"), actor)
    }

    fn pause_for(&self, wave: &Wave, reason: String, actor: &str) -> Result<Transition, WriteError> {
        let summary = format!("the wave deployment {} is paused: {reason}", wave.id);
        let mut next = Wave { since: self.at.wall, paused: Some(reason.into()), ..wave.clone() };
        let refused = |error: &dyn std::fmt::Display| WriteError::WaveState(format!("{error}: {}", wave.id));
        next.deployment.pause().map_err(|error| refused(&error))?;
        self.goes_on(next.with_members_recorded(), actor, WavePhase::Paused, summary)
    }

    /// The current wave deployment becomes `next`, with an event.
    fn goes_on(
        &self,
        next: Wave,
        actor: &str,
        phase: WavePhase,
        summary: String,
    ) -> Result<Transition, WriteError> {
        let told = event(&next, phase, summary.clone());
        Ok(self.becomes(next, Label::new(actor, ChangeSource::Waves, summary))?.telling(told))
    }

    /// The current wave deployment becomes `next`.
    fn becomes(&self, next: Wave, label: Label) -> Result<Transition, WriteError> {
        self.commits((Some(next), Arc::clone(&self.accepted.ended)), &Candidate::default(), label)
    }

    /// The end, with the changes that it undoes; `next` is the rest of the wave deployment.
    fn ends(
        &self,
        (next, ended): (Option<Wave>, EndedWave),
        undo: &Candidate,
        label: Label,
    ) -> Result<Transition, WriteError> {
        let ended = Ended::clone(&self.accepted.ended).with(ended);
        self.commits((next, Arc::new(ended)), undo, label)
    }

    fn commits(
        &self,
        (wave, ended): (Option<Wave>, Arc<Ended>),
        undo: &Candidate,
        label: Label,
    ) -> Result<Transition, WriteError> {
        let Self { env, accepted, at } = *self;
        let withholds = accepted.withholds(&accepted.base, &undo.patch);
        let terms = Terms::awaited((&env.parts.codec, &accepted.stored_statuses), at.wall, &withholds);
        let resting = wave.as_ref().map(Wave::resting).unwrap_or_default();
        let (mut next, dropped) = apply(accepted, undo, &resting, terms)?;
        let mut plan = plan_of(accepted, undo, &next);
        let keys = env.parts.store.state().1;
        plan.extend(record::plan(wave.as_ref(), &keys));
        plan.extend(ended.plan(&keys));
        if !plan.is_empty() {
            plan.extend(stored_statuses::plan(&accepted.documents.translated, &next.documents.translated));
        }
        (next.wave, next.ended) = (wave.map(Arc::new), ended);
        next.former = former::former(&next, terms)?;
        let told = weights::events(&dropped).collect();
        let quiet = Transition::quiet(next, Outcome::Done);
        Ok(Transition { plan, is_published: true, label, told, ..quiet })
    }
}

impl Transition {
    /// The same transition with one more event.
    fn telling(mut self, event: Event) -> Self {
        self.told.push(event);
        self
    }
}
