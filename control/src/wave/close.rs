//! The end of a wave deployment, and the effect of a load on the current one.

use xds_cache::wave::Share;
use xds_store::State;

use super::begin::{AfterLoad, says};
use super::ended::{Ended, EndedWave};
use super::record;
use super::report::report;
use super::value::Wave;
use crate::accepted::{Accepted, Base, Recorded};
use crate::env::{At, Env};
use crate::model::Event;
use crate::model::wave::{WavePhase, WaveReport};
use crate::plan::Plan;

/// Why what RouteTests held goes out.
pub(crate) const PASS: &str = "no RouteTest keeps it back any more";

/// Adds what has to be stored for what a load makes of the wave deployment that is under way, and for what loads made of wave deployments that
/// could not be recorded; gives the one that ends by this load.
pub(crate) fn plan_waves(
    env: &Env,
    accepted: &Accepted,
    after: &AfterLoad,
    base: &Base,
    stored: &State,
    plan: &mut Plan,
    at: At,
) -> Option<EndedWave> {
    let is_owed = accepted.is_loaded && accepted.recorded != Recorded::Yes;
    let (next, ended) = match after {
        AfterLoad::Unchanged if !is_owed => return None,
        AfterLoad::Unchanged => (accepted.wave.as_deref(), None),
        AfterLoad::Becomes(next) => (next.as_deref(), superseded(env, accepted, next.as_deref(), base, at)),
    };
    plan.extend(record::plan(next, stored));
    if is_owed || ended.is_some() {
        plan.extend(ended.iter().cloned().fold((*accepted.ended).clone(), Ended::with).plan(stored));
    }
    ended
}

/// How a change of files ends the current wave deployment: `next` replaces it, the files have the previous contents again, or the
/// change reaches everyone, because the policy has no waves any more.
pub(crate) fn superseded(
    env: &Env,
    accepted: &Accepted,
    next: Option<&Wave>,
    base: &Base,
    at: At,
) -> Option<EndedWave> {
    let wave = accepted.wave.as_deref().filter(|wave| next.is_none_or(|next| next.id != wave.id))?;
    let is_as_before = wave.previous.iter().all(|(key, value)| says(base, key, value.as_ref()));
    let (phase, reason) = match next {
        Some(next) => (WavePhase::Superseded, format!("changed files began the wave deployment {}", next.id)),
        None if is_as_before => {
            (WavePhase::Reverted, "the files are back to their previous contents".to_owned())
        }
        None if wave.awaits_tests() => (WavePhase::Promoted, PASS.to_owned()),
        None => (WavePhase::Superseded, "changed files reached everyone at once".to_owned()),
    };
    Some(ended(env, wave, phase, Some(reason), at))
}

/// A wave deployment that ends now.
pub(crate) fn ended(env: &Env, wave: &Wave, phase: WavePhase, reason: Option<String>, at: At) -> EndedWave {
    let report = WaveReport { phase, reason, next_at: None, since: at.wall, ..report(env, wave, at) };
    EndedWave { report, put_back: None }
}

/// The event of a wave deployment that began or went on.
pub(crate) fn event(wave: &Wave, phase: WavePhase, message: String) -> Event {
    let share = match phase {
        WavePhase::Progressing | WavePhase::Holding | WavePhase::Paused => wave.share(),
        WavePhase::Completed | WavePhase::Promoted => Some(Share::ALL),
        WavePhase::Held | WavePhase::Reverted | WavePhase::Superseded => None,
    };
    Event::Wave { deployment: wave.id, phase, share, message }
}

/// The event of one that ended because files changed.
pub(crate) fn event_of_end(ended: &EndedWave) -> Event {
    let WaveReport { deployment, phase, reason, .. } = &ended.report;
    let message = reason.clone().unwrap_or_default();
    Event::Wave { deployment: *deployment, phase: *phase, share: None, message }
}
