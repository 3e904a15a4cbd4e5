//! Bodies of events, by kind.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Every kind of event, with the name of the schema of its data.
pub(crate) const KINDS: &[(&str, &str)] = &[
    ("publish", "Published"),
    ("fileError", "Fault"),
    ("held", "Held"),
    ("wave", "Deployment"),
    ("testFailed", "TestFailed"),
    ("overrideDropped", "Dropped"),
    ("rollout", "RolloutNews"),
    ("problem", "EventProblem"),
    ("connect", "Stream"),
    ("disconnect", "Stream"),
    ("ack", "Answered"),
    ("nack", "Rejected"),
    ("lagged", "Lagged"),
];

/// A revision was published.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Published {
    /// The revision.
    pub revision: u64,
    /// The source of the change: `api`, `file`, `rollback`, `revert`, `expiry`, `waves`, `rollout` or `store`.
    pub source: &'static str,
    /// One line for people.
    pub summary: String,
}

/// A load of the files is held back until it is confirmed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Held {
    /// Why.
    pub reason: String,
}

/// A wave deployment began, went on or ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deployment {
    /// Its id.
    pub id: u64,
    /// Its phase, as `/v1/waves/{deployment}` shows it.
    pub phase: &'static str,
    /// The share of the nodes that have the change now; null if none has.
    pub share: Option<String>,
    /// One line for people.
    pub message: String,
}

/// A test of a RouteTest fails on what is served, and did not fail so before.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestFailed {
    /// The RouteTest, the test, and the clients.
    pub test: String,
    /// Why.
    pub message: String,
}

/// An override of weights was dropped.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Dropped {
    /// `weights/{kind}/{namespace}/{name}/{rule}`.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Something happened in a rollout.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RolloutNews)]
pub(crate) struct RolloutEvent {
    /// Its id.
    pub rollout: String,
    /// The event, as in the `events` of the rollout.
    #[schema(value_type = Object)]
    pub event: Value,
}

/// Something needs attention.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventProblem)]
pub(crate) struct Problem {
    /// What.
    pub message: String,
}

/// A stream began or ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stream {
    /// The id of the node.
    pub node: String,
    /// The number of the stream.
    pub stream: u64,
    /// The address that it came from.
    pub address: String,
    /// `sotw` or `delta`.
    pub variant: &'static str,
}

/// A client accepted a response.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answered {
    /// The id of the node; null if its stream has ended since.
    pub node: Option<String>,
    /// The number of the stream.
    pub stream: u64,
    /// The type URL.
    pub r#type: String,
    /// The version of the response.
    pub version: String,
    /// Its revision.
    pub revision: u64,
}

/// A client rejected a response.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rejected {
    /// The response.
    #[serde(flatten)]
    pub answered: Answered,
    /// The client's words.
    pub message: String,
}

/// Events are lost to this reader.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Lagged {
    /// How many; null if that is not known.
    pub missed: Option<u64>,
}
