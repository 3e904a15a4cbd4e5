//! Every cause of a change, and the one function that computes its result.

use std::sync::Arc;

use crate::accepted::Accepted;
use crate::env::{At, Env};
use crate::load::{self, Load};
use crate::model::wave::WaveVerb;
use crate::model::{TraceParent, Write, WriteError, WriteOptions};
use crate::transition::{Outcome, Transition};
use crate::wave::step;
use crate::{others, verify, write};

/// Why something changes.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The files were read.
    Files(Load),
    /// The contents of the files are served, but not recorded yet.
    Unrecorded,
    /// A write.
    Write(Box<Write>, WriteOptions),
    /// A wave deployment is looked at.
    Wave,
    /// This server begins to drive wave deployments.
    TakeOver,
    /// A request of an operator about a wave deployment.
    Ask { deployment: u64, verb: WaveVerb, actor: String },
    /// The current wave deployment conflicts with a forced write.
    Forced { actor: String },
    /// Another server committed to the store.
    Others,
    /// The translation of documents was found to be wrong.
    Anew,
    /// What RouteTests hold is looked at.
    Held,
}

impl Cause {
    /// Returns `true` if an oracle judges its change. Nothing may be in the way of what takes a change back; waves publish what was
    /// judged when it was written, and other servers ask an oracle of their own.
    pub(crate) fn is_judged(&self) -> bool {
        match self {
            Self::Files(_) => true,
            Self::Write(write, _) => !write.takes_back(),
            Self::Unrecorded
            | Self::Wave
            | Self::TakeOver
            | Self::Ask { .. }
            | Self::Forced { .. }
            | Self::Others
            | Self::Anew
            | Self::Held => false,
        }
    }

    /// Returns `true` for what only a server may do that has a store to write to.
    pub(crate) const fn makes_history(&self) -> bool {
        match self {
            Self::Write(..)
            | Self::Files(_)
            | Self::Unrecorded
            | Self::TakeOver
            | Self::Ask { .. }
            | Self::Forced { .. }
            | Self::Held => true,
            // A look at a wave that another server drives changes nothing.
            Self::Wave | Self::Others | Self::Anew => false,
        }
    }

    /// The span of the caller that the change is a part of.
    pub(crate) fn trace_parent(&self) -> Option<TraceParent> {
        self.options()?.trace_parent
    }

    /// The name of the caller, if a conflicting wave deployment is to be put back.
    pub(crate) fn forced_by(&self) -> Option<&str> {
        self.options().filter(|options| options.force).map(|options| options.actor.as_str())
    }

    /// What the caller of a write asked for besides.
    const fn options(&self) -> Option<&WriteOptions> {
        match self {
            Self::Write(_, options) => Some(options),
            Self::Files(_)
            | Self::Unrecorded
            | Self::Wave
            | Self::TakeOver
            | Self::Ask { .. }
            | Self::Forced { .. }
            | Self::Others
            | Self::Anew
            | Self::Held => None,
        }
    }
}

/// The proposal of a cause. It depends on its arguments alone, and commits, publishes and reports nothing. A dry run is no more
/// than this.
///
/// # Errors
///
/// Why nothing is changed.
pub(crate) fn propose(
    env: &Env,
    accepted: &Accepted,
    cause: &Cause,
    at: At,
) -> Result<Transition, WriteError> {
    match cause {
        Cause::Files(load) => load::propose(env, accepted, load, at),
        Cause::Unrecorded => load::record_late(env, accepted, at),
        Cause::Write(write, options) => write::propose(env, accepted, write, options, at),
        Cause::Wave => step::go_on(env, accepted, at),
        Cause::TakeOver => others::take_over(env, accepted, at),
        Cause::Ask { deployment, verb, actor } => step::act(env, accepted, (*deployment, *verb, actor), at),
        Cause::Forced { actor } => step::abort_for(env, accepted, actor, at),
        Cause::Others => others::propose(env, accepted, at),
        Cause::Anew => Ok(verify::propose(&env.parts.codec, accepted, at)),
        Cause::Held => step::look_at_held(env, accepted, at),
    }
}

/// The effect of a cause that failed: the state of the files is still shown. `None` if there is nothing to show.
pub(crate) fn without_effect(accepted: &Accepted, cause: &Cause) -> Option<Transition> {
    let Cause::Files(load) = cause else { return None };
    Some(load::failed(accepted, load))
}

/// The effect of a cause whose plan could not be stored, because of `error`.
///
/// # Errors
///
/// The error, if nothing changes then.
pub(crate) fn unstored(
    env: &Env,
    accepted: &Accepted,
    (cause, proposed): (&Cause, Transition),
    error: WriteError,
    at: At,
) -> Result<Transition, WriteError> {
    match cause {
        Cause::Files(_) | Cause::Unrecorded => load::unrecorded(env, accepted, proposed, &error, at),
        Cause::Write(..)
        | Cause::Wave
        | Cause::TakeOver
        | Cause::Ask { .. }
        | Cause::Forced { .. }
        | Cause::Others
        | Cause::Anew
        | Cause::Held => {
            let Transition { unstored: Some(wave), label, .. } = proposed else { return Err(error) };
            if env.shares_store() {
                // All servers serve what the store says.
                return Err(error);
            }
            let next = Accepted { wave: Some(Arc::new(wave)), ..accepted.clone() };
            Ok(Transition { is_published: true, label, ..Transition::quiet(next, Outcome::Failed(error)) })
        }
    }
}
