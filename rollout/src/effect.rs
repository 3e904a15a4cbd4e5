//! Inputs of a rollout, and the effects that it asks for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::phase::Phase;
use crate::spec::{HeaderMatch, Prometheus};
use xds_units::{Percent, Span};

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A person or program asks for something.
    Verb(Verb),
    /// The answers of the concerned clients to a change.
    Acks(AckStatus),
    /// A measurement is done.
    Measured {
        /// The measurement, of [`Effect::Measure`].
        measurement: u64,
        /// The result.
        reading: Reading,
    },
    /// A webhook answered, or did not.
    Called {
        /// The call, of [`Effect::CallWebhook`].
        call: u64,
        /// `Err` says why it is not a "go": a status, a timeout.
        answer: Result<(), String>,
    },
    /// The rule's weights without the rollout have changed; `None` if the rule is gone.
    RuleChanged(Option<BTreeMap<String, u32>>),
    /// Someone sets the weights of the rule by hand from here on: the rollout ends as aborted, and changes nothing more.
    RuleTaken,
    /// Why no request to the canary can succeed by what clients are served: its assignment has no ready endpoint. `None` if it has one,
    /// or if that cannot be seen in what is served, as with DNS.
    NoEndpoint(Option<String>),
    /// The next step cannot be done, and why: the rollout stays where it is until someone resumes or aborts it.
    Refused(String),
    /// Time has passed.
    Tick,
    /// The process began anew with this state. Must be the first input then.
    Restarted,
}

/// The verbs that people can give a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Stay where it is.
    Pause,
    /// Go on.
    Resume,
    /// Do not wait for what this step waits for.
    Promote,
    /// Everything to the canary, now.
    PromoteFull,
    /// Everything back to stable, now.
    Abort,
    /// Begin anew, after an end that was no success.
    Retry,
}

/// The answers of the concerned clients to a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckStatus {
    /// The change, of [`Effect::SetWeights`].
    pub change: u64,
    /// How many clients are connected and concerned.
    pub of: u64,
    /// How many of them have accepted it.
    pub acked: u64,
    /// Those that have rejected it, with their messages. May be cut; `n_nacked` counts.
    pub nacked: Vec<(String, String)>,
    /// How many have rejected it.
    pub n_nacked: u64,
    /// How many were concerned by this change and have gone since, for longer than a reconnection takes.
    #[serde(default)]
    pub n_gone: u64,
    /// How many are connected and left out of `of`, because they rejected their routes before this change already.
    #[serde(default)]
    pub n_failing: u64,
    /// How many of `of` have accepted the change, and not yet what changed in the same routes since.
    #[serde(default)]
    pub n_behind: u64,
}

impl AckStatus {
    /// How many clients that reject a change are named.
    pub const MAX_NAMED: usize = 10;

    /// Adds the answers of other clients to the same change.
    pub fn add(&mut self, others: &Self) {
        for (sum, more) in [
            (&mut self.of, others.of),
            (&mut self.acked, others.acked),
            (&mut self.n_nacked, others.n_nacked),
            (&mut self.n_gone, others.n_gone),
            (&mut self.n_failing, others.n_failing),
            (&mut self.n_behind, others.n_behind),
        ] {
            *sum = sum.saturating_add(more);
        }
        let n_more = Self::MAX_NAMED.saturating_sub(self.nacked.len());
        self.nacked.extend(others.nacked.iter().take(n_more).cloned());
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The requests of windows that all end now and begin as [`windows`](crate::windows) says: the whole measurement, its last part, and
    /// shorter ones. Empty if nothing is known of the requests.
    pub windows: Vec<Window>,
    /// How often clients report, in milliseconds.
    pub report_ms: u64,
    /// The clients that no longer report.
    pub silence: Silence,
    /// How requests are divided between the backends.
    pub split: Split,
    /// The value of the query, if there is one; `Err` says why there is no value.
    pub prometheus: Option<Result<f64, String>>,
}

/// The requests that were reported since a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The beginning, in milliseconds since 1970.
    pub since_ms: u64,
    /// The requests to the canary.
    pub canary: Traffic,
    /// The requests to stable.
    pub stable: Traffic,
    /// Each client by itself.
    pub clients: PerClient,
}

/// What shows only in the requests of each client by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerClient {
    /// How many clients reported requests to stable or the canary.
    pub n: u64,
    /// The most requests that a client has sent of which none went to the canary.
    pub starved: u64,
}

/// The requests to one backend in a window, with those that came to no end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Those that came to an end.
    pub counts: Counts,
    /// How many were sent to an endpoint; 0 from clients that do not say.
    pub issued: u64,
    /// How many were dropped before an endpoint was chosen.
    pub dropped: u64,
    /// How many are under way now.
    pub in_progress: u64,
}

/// The clients that reported requests in a window, and no longer report in its last part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The requests before the last part.
    pub requests: u64,
    /// Those of them that clients reported of which no report has come since.
    pub silent: u64,
}

/// How the requests that are counted are divided between stable and the canary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Each by chance, by the weights.
    ByWeight,
    /// By something else too, such as sessions, so a share that is too small is no proof; says by which.
    Biased(String),
    /// Nobody knows: other routes send requests to the same clusters.
    #[default]
    Unknown,
}

/// Requests in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// How many came to an end.
    pub requests: u64,
    /// How many of them failed.
    pub failures: u64,
}

/// An effect that a rollout wants, after its state is durable. Doing it twice does no harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make these the weights and header routes of the rule, in one publication; equal ones change nothing.
    SetWeights {
        /// The number of the change, by which ACKs refer to it.
        change: u64,
        /// The weight of every backend of the rule.
        weights: BTreeMap<String, u32>,
        /// By name, the headers of requests that go to the canary whatever the weights.
        header_routes: BTreeMap<String, Vec<HeaderMatch>>,
    },
    /// Report the answers of clients to a change, now and whenever they differ, until another change replaces it.
    AwaitAck {
        /// The change.
        change: u64,
    },
    /// Measure the canary since a point in time.
    Measure {
        /// The measurement.
        measurement: u64,
        /// Since when, in milliseconds since 1970.
        since_ms: u64,
        /// A query to run as well.
        prometheus: Option<Prometheus>,
    },
    /// Call a webhook, and report its answer.
    CallWebhook {
        /// The call.
        call: u64,
        /// The address to call.
        url: String,
        /// How long it may take.
        timeout: Span,
        /// The body.
        payload: HookPayload,
    },
    /// Tick at this time, in milliseconds since 1970, or earlier.
    WakeAt {
        /// When.
        at_ms: u64,
    },
    /// Notify watchers.
    Emit(Event),
    /// The rollout is over, and no longer owns the rule.
    Finished,
}

/// The body of a webhook, as Flagger sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookPayload {
    /// The name of the route.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The phase of the rollout.
    pub phase: Phase,
    /// A checksum that distinguishes rollouts with different specifications.
    pub checksum: String,
    /// The hook's own metadata, and for events `eventMessage`, `eventType` and `timestamp`.
    pub metadata: BTreeMap<String, String>,
}

/// One thing that happened in a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Counts up from 1 in each rollout.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How it is meant.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// The phase after it.
    pub phase: Phase,
    /// The weight of the canary after it, in percent.
    #[serde(default)]
    #[schema(value_type = f64)]
    pub canary: Percent,
    /// The event, in a sentence.
    pub message: String,
}

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum EventKind {
    /// As planned.
    Normal,
    /// Someone should look.
    Warning,
}
