//! Changes that RouteTests keep from being published.
//!
//! A held change is a wave deployment that RouteTests have stopped before its first wave: it is accepted and stored, and everyone is served
//! what was before. A later change of objects that it does not hold is published as always, unless it breaks tests itself; else it is held with
//! it. What is held goes out with the change after which no test fails that passes on what is served.

use std::collections::BTreeSet;

use xds_access::Scope;
use xds_cache::{AHEAD, Groups};
use xds_codec::Diagnostic;

use crate::accepted::Accepted;
use crate::documents::Terms;
use crate::env::{At, Env};
use crate::key::StoreKey;
use crate::model::wave::WavePhase;
use crate::model::{StepKind, WaveChoice, Write, WriteError};
use crate::route_gate::{Broken, BrokenTest, State, broken, told};
use crate::wave::ended::EndedWave;
use crate::wave::value::{PreviousValues, Tests, Wave};
use crate::wave::{begin, close, former};

/// What happens to a change.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is published. What is held stays held.
    Goes,
    /// It is accepted, and not published, because of these failures.
    Holds(Vec<BrokenTest>),
    /// It is published, with everything that was held.
    Frees,
}

/// A change that is judged; `next` is the accepted state with it, and what is held is held there, too.
#[derive(Clone, Copy)]
pub(crate) struct Change<'c> {
    pub(crate) env: &'c Env,
    pub(crate) accepted: &'c Accepted,
    pub(crate) next: &'c Accepted,
    /// The previous values of what it changes.
    pub(crate) touched: &'c PreviousValues,
    pub(crate) terms: Terms<'c>,
}

impl Change<'_> {
    /// Judges a write.
    ///
    /// # Errors
    ///
    /// [`WriteError::Invalid`] with the tests that refuse it, or that would hold it if it could be held. [`WriteError::WaveActive`] if it
    /// cannot be held beside a wave deployment.
    pub(crate) fn of_write(
        self,
        write: &Write,
        waves: &WaveChoice,
        scope: Option<&Scope>,
    ) -> Result<Verdict, WriteError> {
        let refused = |broken: &[BrokenTest]| WriteError::Invalid(told(broken, scope));
        match write {
            Write::EndOverrides | Write::StepRollouts { kind: StepKind::Back, .. } => Ok(Verdict::Goes),
            Write::StepRollouts { kind: StepKind::Onward, .. } => {
                let broken = self.beside()?.all();
                if broken.is_empty() { Ok(Verdict::Goes) } else { Err(refused(&broken)) }
            }
            Write::StepRollouts { kind: StepKind::ByHand, .. }
            | Write::PutGroup(_)
            | Write::DeleteGroup(_)
            | Write::ReplaceResources { .. }
            | Write::PutResource { .. }
            | Write::DeleteResource { .. }
            | Write::ApplyDocuments { .. }
            | Write::DeleteDocument { .. }
            | Write::ChangeWeights { .. }
            | Write::ReplaceFiles { .. }
            | Write::Rollback { .. }
            | Write::Revert { .. } => self.can_be_held(
                self.judge(|refuse| match refuse.is_empty() {
                    true => Ok(()),
                    false => Err(refused(refuse)),
                })?,
                waves,
                scope,
            ),
        }
    }

    /// Judges a load of files, which nothing refuses.
    ///
    /// # Errors
    ///
    /// Those of a translation.
    pub(crate) fn of_load(self) -> Result<Verdict, WriteError> {
        self.judge(|_| Ok(()))
    }

    fn judge(self, refuse: impl Fn(&[BrokenTest]) -> Result<(), WriteError>) -> Result<Verdict, WriteError> {
        let Self { env, accepted, next, touched, .. } = self;
        let Some(held) = accepted.wave.as_deref().filter(|wave| wave.awaits_tests()) else {
            let broken = self.added();
            refuse(&broken.refuse)?;
            return Ok(if broken.is_empty() { Verdict::Goes } else { Verdict::Holds(broken.all()) });
        };
        let Some(served) = served_groups(env) else { return Ok(Verdict::Goes) };
        let served = State { documents: accepted.former_documents(), groups: &served };
        let whole = broken(env, served, next.into(), BEHIND);
        if whole.is_empty() {
            return Ok(Verdict::Frees);
        }
        refuse(&self.added().refuse)?;
        let held: BTreeSet<String> = held.previous.keys().map(StoreKey::what).collect();
        if !touched.keys().any(|key| held.contains(&key.what())) {
            let beside = self.beside()?;
            refuse(&beside.refuse)?;
            if beside.is_empty() {
                return Ok(Verdict::Goes);
            }
        }
        Ok(Verdict::Holds(whole.all()))
    }

    /// What it breaks of everything that was accepted.
    fn added(self) -> Broken {
        let cohort = if self.env.parts.publisher.behind().is_some() { AHEAD } else { BEHIND };
        broken(self.env, self.accepted.into(), self.next.into(), cohort)
    }

    /// What it breaks of what is served, without what is held.
    fn beside(self) -> Result<Broken, WriteError> {
        let Self { env, accepted, next, terms, .. } = self;
        let served =
            served_groups(env).filter(|_| accepted.wave.as_ref().is_some_and(|wave| wave.awaits_tests()));
        let Some(served) = served else { return Ok(self.added()) };
        let next = Accepted { former: former::former(next, terms)?, ..next.clone() };
        let mut ahead = next.groups.clone();
        let Some(behind) = former::behind(&env.parts.codec, &next, &mut ahead) else {
            return Ok(self.added());
        };
        let before = State { documents: accepted.former_documents(), groups: &served };
        let after = State { documents: next.former_documents(), groups: &behind.groups };
        Ok(broken(env, before, after, BEHIND))
    }

    fn can_be_held(
        self,
        verdict: Verdict,
        waves: &WaveChoice,
        scope: Option<&Scope>,
    ) -> Result<Verdict, WriteError> {
        let Verdict::Holds(broken) = verdict else { return Ok(verdict) };
        if self.touched.is_empty() {
            // The nodes of a group change for all at once.
            return Err(WriteError::Invalid(told(&broken, scope)));
        }
        let active = self.accepted.wave.as_deref().filter(|wave| !wave.awaits_tests());
        let wants_waves = matches!(waves, WaveChoice::By(_)) && self.accepted.wave.is_some();
        match active.or(self.accepted.wave.as_deref().filter(|_| wants_waves)) {
            Some(wave) => Err(WriteError::WaveActive {
                deployment: wave.id,
                message: format!(
                    "the change {}, and cannot be held while the wave deployment {} ({}) has not finished: wait, end it with \
                     /v1/waves/{}:promote or :abort, or write with force=true, which aborts it first",
                    reason(&told(&broken, scope)),
                    wave.id,
                    wave.summary,
                    wave.id
                ),
            }),
            None => Ok(Verdict::Holds(broken)),
        }
    }
}

/// A look at what is held: it goes out if it breaks nothing any more; else the failures, which no restart keeps, are known again. `None`
/// if nothing changes.
pub(crate) fn look(env: &Env, accepted: &Accepted) -> Option<Result<(), Vec<Diagnostic>>> {
    let wave = accepted.wave.as_deref().filter(|wave| wave.awaits_tests() && accepted.is_loaded)?;
    let broken = of_wave(env, accepted);
    if broken.is_empty() {
        return Some(Ok(()));
    }
    (wave.broken() != broken).then_some(Err(broken))
}

/// What a wave deployment breaks of what is served without it.
pub(crate) fn of_wave(env: &Env, accepted: &Accepted) -> Vec<Diagnostic> {
    let Some(served) = served_groups(env) else { return vec![] };
    let served = State { documents: accepted.former_documents(), groups: &served };
    told(&broken(env, served, accepted.into(), BEHIND).all(), None)
}

fn served_groups(env: &Env) -> Option<Groups> {
    env.parts.publisher.behind().map(|behind| behind.groups)
}

/// What becomes of a wave deployment that RouteTests hold no more.
pub(crate) enum Freed {
    /// It goes out by its waves, and begins with the first.
    Begins(Box<Wave>),
    /// It is published for everyone.
    Ends(Box<EndedWave>),
}

pub(crate) fn freed(env: &Env, accepted: &Accepted, wave: &Wave, at: At) -> Freed {
    if !wave.is_at_once() {
        return Freed::Begins(Box::new(begin::again(env, accepted, wave, at)));
    }
    let ended = close::ended(env, wave, WavePhase::Promoted, Some(close::PASS.to_owned()), at);
    Freed::Ends(Box::new(ended))
}

/// Why a change is held.
pub(crate) fn reason(broken: &[Diagnostic]) -> String {
    let first = broken.first().and_then(|first| first.message.lines().next()).unwrap_or_default();
    match broken.len().saturating_sub(1) {
        0 => format!("it breaks {first}"),
        n => format!("it breaks {first}; and {n} more"),
    }
}

/// A wave deployment that RouteTests keep from everyone.
pub(crate) fn stopped(wave: Wave, broken: Vec<Diagnostic>) -> Wave {
    Wave { stopped: Some(reason(&broken).into()), tests: Tests::Broken(broken.into()), ..wave }
}

/// The cohort of nodes that a wave deployment has not reached.
pub(crate) const BEHIND: u32 = 0;
