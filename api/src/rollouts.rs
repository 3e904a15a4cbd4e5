//! The interface of the driver of rollouts, as the admin API needs it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use xds_cache::Revision;
use xds_control::BoxFuture;
use xds_control::connected::NodesAsked;
use xds_control::model::weights::RuleKey;
use xds_control::model::weights::change::WeightChange;
use xds_control::model::{EntityTags, WriteError, WriteOptions, WriteOutcome, tag};
use xds_control::peers::RolloutClients;
use xds_rollout::{Counts, IllegalTransition, Rollout, RolloutSpec, Silence, Verb, Window};

/// The requests that clients reported for the two backends of a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutLoads {
    /// The counts of the canary.
    pub canary: Counts,
    /// The counts of stable.
    pub stable: Counts,
}

/// The evidence for or against a canary in the reports of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutEvidence {
    /// The requests in windows that end now.
    pub windows: Vec<Window>,
    /// The clients that no longer report.
    pub silence: Silence,
}

/// The requests that clients reported for the two backends of a rollout, over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSeries {
    /// How long a point is.
    pub bucket: Duration,
    /// When the last point ends.
    pub until: SystemTime,
    /// Those to the canary and those to stable, in order of time.
    pub points: Vec<[Counts; 2]>,
}

/// How a rollout is to be begun.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// The user or program that asks, for the history.
    pub actor: String,
    /// Does everything but begin.
    pub dry_run: bool,
    /// `Idempotency-Key`: another call with the same key gives the same rollout.
    pub idempotency_key: Option<String>,
}

/// A rollout that was begun, or would have been.
#[derive(Clone, Debug)]
pub struct Started {
    /// The rollout.
    pub rollout: Arc<Rollout>,
    /// True if it had been begun by an earlier call with the same key.
    pub is_repeated: bool,
}

/// Why a rollout was not begun or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RolloutError {
    /// There is no rollout with this id.
    #[error("there is no rollout {0:?}")]
    NotFound(String),
    /// The object does not exist, or does not have this rule.
    #[error("{0}")]
    NoRule(String),
    /// The rule cannot be moved so.
    #[error("the rollout does not fit the rule")]
    Unfit {
        /// Where in the body: a JSON pointer, empty for the whole.
        pointer: String,
        /// The fault, and the right value.
        detail: String,
    },
    /// The verb does not fit the rollout's phase.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// It is still on its way.
    #[error("the rollout {0} is still in progress; abort it first, or delete it with ?abort=true")]
    Active(String),
    /// `If-Match` does not hold.
    #[error("the rollout has changed; its entity tag is \"{0}\" now")]
    Stale(String),
    /// The key was used for another rollout.
    #[error("the Idempotency-Key {0:?} was used for a different rollout")]
    KeyReused(String),
    /// A limit is reached.
    #[error("{0} rollouts are in progress, which is the limit")]
    TooMany(usize),
    /// The change could not be made.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Drives rollouts.
pub trait Rollouts: Send + Sync + fmt::Debug {
    /// Begins a rollout. Answered when its first state is durable.
    fn start(&self, spec: RolloutSpec, options: StartOptions)
    -> BoxFuture<'_, Result<Started, RolloutError>>;
    /// Asks something of a rollout. Answered when the new state is durable and its weights are published.
    fn ask(
        &self,
        id: String,
        verb: Verb,
        if_match: Option<EntityTags>,
        actor: String,
    ) -> BoxFuture<'_, Result<Arc<Rollout>, RolloutError>>;
    /// Forgets a rollout that has ended.
    fn forget(
        &self,
        id: String,
        if_match: Option<EntityTags>,
        actor: String,
    ) -> BoxFuture<'_, Result<(), RolloutError>>;
    /// Changes the weights of a rule by hand, and ends the rollout that owns it, if one does, in the same commit.
    fn take_rule(
        &self,
        key: RuleKey,
        change: WeightChange,
        options: WriteOptions,
    ) -> BoxFuture<'_, Result<WriteOutcome, WriteError>>;
    /// All rollouts that are kept, by id.
    fn list(&self) -> BTreeMap<String, Arc<Rollout>>;
    /// The requests that clients reported for the backends of a rollout in the last [`LOADS_SHOWN_MS`]; computed at most once a
    /// second.
    fn loads(&self, rollout: &Rollout) -> RolloutLoads;
    /// The requests that clients of this server reported for the backends of a rollout, for as long as reports are kept.
    fn series(&self, rollout: &Rollout) -> LoadSeries;
    /// The clients of this server that have applied a change of a rollout, which a revision published; `None` while this server does not
    /// serve it.
    fn acks_here(
        &self,
        spec: &RolloutSpec,
        change: u64,
        revision: Revision,
        nodes: &NodesAsked,
    ) -> Option<RolloutClients>;
    /// What the clients of this server have reported for the backends of a rollout in windows that begin at these points in time, in
    /// milliseconds since 1970; `None` if a report had no room.
    fn evidence_here(&self, spec: &RolloutSpec, starts_ms: &[u64]) -> Option<RolloutEvidence>;
    /// Changes whenever a rollout does.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// How long reports of load count for what is shown, in milliseconds.
pub const LOADS_SHOWN_MS: u64 = 60_000;

/// The entity tag of what a rollout is doing: it differs with every event.
#[must_use]
pub fn tag_of(rollout: &Rollout) -> String {
    let last = rollout.events().last().map_or(0, |event| event.number);
    tag::of_text(&format!("{}/{last}/{:?}", rollout.id(), rollout.phase()))
}
