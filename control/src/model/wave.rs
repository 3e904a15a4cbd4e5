//! Wave deployments, as they are reported.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::wave::{By, InvalidWaves, PolicyTexts, Share};
use xds_cache::{Revision, WavePolicy};
use xds_units::Span;

use crate::acks::{MAX_LISTED, NodeNack};
use crate::connected::{NodesAsked, NodesTold};

/// One wave deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct WaveReport {
    /// Its number: the revision that began it.
    pub deployment: u64,
    /// The phase, or the way in which it ended.
    pub phase: WavePhase,
    /// Why it is stopped, paused or was put back.
    pub reason: Option<String>,
    /// `api`, `file`, or another source of the history.
    pub source: String,
    /// The user or program that asked for the change.
    pub actor: String,
    /// The change in one line.
    pub summary: String,
    /// The objects that it changes, named as in [`ChangedObject::what`](crate::model::ChangedObject::what).
    pub objects: Vec<String>,
    /// Its waves.
    pub policy: WavePolicy,
    /// The waves so far: the share of each and the revision that it was published as.
    pub reached: Vec<(Share, Revision)>,
    /// When it began.
    pub began_at: SystemTime,
    /// When it last changed.
    pub since: SystemTime,
    /// When the next wave starts if nothing happens; `None` if that is not known.
    pub next_at: Option<SystemTime>,
    /// How its clients are; those of an ended wave deployment as they were at the end.
    pub members: WaveMembers,
}

/// The nodes that a wave deployment concerns: the connected ones, and those that waves have reached. No list has more than [`MAX_LISTED`] entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WaveMembers {
    /// The values by which nodes are ordered, first value first; empty if the hash of node ids alone decides.
    pub values: Vec<WaveValue>,
    /// How many have, or are to have, the change.
    pub n_ahead: usize,
    /// How many are served what was before.
    pub n_behind: usize,
    /// How many of those ahead have acknowledged it, or want nothing of it.
    pub n_acked: usize,
    /// How many of those ahead have not answered yet.
    pub n_pending: usize,
    /// How many of those ahead rejected it.
    pub n_nacked: usize,
    /// How many members are away, and may come back.
    pub n_away: usize,
    /// How many members are lost: gone for too long, or back without what they had.
    pub n_lost: usize,
    /// The ids of those ahead.
    pub ahead: Vec<String>,
    /// The ids of those behind.
    pub behind: Vec<String>,
    /// The ids of those that have not answered yet.
    pub pending: Vec<String>,
    /// Those that rejected it.
    pub nacked: Vec<NodeNack>,
    /// Those that rejected it too, but had rejected something when the wave began; they do not count.
    pub already_failing: Vec<NodeNack>,
    /// The members that are lost.
    pub lost: Vec<LostNode>,
    /// The requests since the wave is held, by load reports; null if nobody looks (`maxErrorRate`).
    pub requests: Option<WaveRequests>,
    /// The servers with the same store whose clients are not known. The wave waits for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownServer>,
}

/// A server whose clients are not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownServer {
    /// Its `--instance-id`.
    pub id: String,
    /// Why they are not.
    pub why: String,
}

/// One value by which waves go, such as a zone, and the connected nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveValue {
    /// The value; null for the nodes that have none, or one that was not known when the waves were ranked.
    pub value: Option<String>,
    /// The part of its nodes that is ahead.
    pub state: ValueState,
    /// The share with which all of them are, such as `33.33%`.
    pub share: String,
    /// How many connected nodes of it are ahead.
    pub n_ahead: usize,
    /// How many connected nodes of it are behind.
    pub n_behind: usize,
}

/// The part of a value's nodes that is ahead, connected or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ValueState {
    /// All.
    Ahead,
    /// Some.
    Partly,
    /// None.
    Behind,
}

/// Requests where the change is, and elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveRequests {
    /// Those of the nodes that have the change.
    pub ahead: RequestCounts,
    /// Those of the others that it concerns.
    pub behind: RequestCounts,
}

/// Requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestCounts {
    /// All of them.
    pub requests: u64,
    /// Those that failed.
    pub failures: u64,
}

/// A question to another server about the clients of a wave deployment that are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveQuestion {
    /// The number of the wave deployment.
    pub deployment: u64,
    /// The revision of the last wave.
    pub revision: u64,
    /// How long ago the requests begin that count, in milliseconds, by the clock of whoever answers; `None` if none do.
    pub ago_ms: Option<u64>,
    /// The nodes of the waves so far.
    #[serde(flatten)]
    pub nodes: NodesAsked,
}

/// The clients of a wave deployment that another server has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveClients {
    /// How they are. Members that are away are not among them.
    pub members: WaveMembers,
    /// The nodes that have, or are to have, the change.
    #[serde(flatten)]
    pub nodes: NodesTold,
    /// How many nodes have each value by which nodes are ranked, if they are not yet.
    pub values: BTreeMap<String, usize>,
    /// How many have none.
    pub n_unknown: usize,
}

/// A node that a wave has reached and that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostNode {
    /// The node id.
    pub node: String,
    /// The reason, as far as it is known.
    pub reason: String,
}

/// How a wave deployment is to go, as it is stored: in the texts that [`WavePolicy::of_texts`] reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRecord {
    shares: String,
    hold: String,
    // Last good copies of files had names with underscores once.
    #[serde(alias = "max_nacks")]
    max_nacks: String,
    #[serde(alias = "ack_timeout")]
    ack_timeout: Option<String>,
    #[serde(default, alias = "max_lost")]
    max_lost: Option<String>,
    #[serde(default, alias = "allow_empty")]
    allow_empty: bool,
    #[serde(default)]
    max_error_rate: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    each: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    order: Vec<String>,
}

impl PolicyRecord {
    /// Reads what was stored.
    ///
    /// # Errors
    ///
    /// If it was not written by this program.
    pub fn read(&self) -> Result<WavePolicy, InvalidWaves> {
        let policy = WavePolicy::of_texts(PolicyTexts {
            shares: &self.shares,
            by: self.by.as_deref(),
            order: self.order.iter().map(String::as_str).collect(),
            hold: Some(&self.hold),
            max_nacks: Some(&self.max_nacks),
            ack_timeout: self.ack_timeout.as_deref(),
            max_lost: self.max_lost.as_deref(),
            allow_empty: self.allow_empty,
            max_error_rate: self.max_error_rate.as_deref(),
        })?;
        if self.each { policy.of_each().checked() } else { Ok(policy) }
    }
}

impl From<&WavePolicy> for PolicyRecord {
    fn from(policy: &WavePolicy) -> Self {
        Self {
            shares: policy.shares_text(),
            hold: Span::from(policy.hold).in_seconds(),
            max_nacks: policy.max_nacks.to_string(),
            ack_timeout: policy.ack_timeout.map(|timeout| Span::from(timeout).in_seconds()),
            max_lost: policy.max_lost.map(|lost| lost.to_string()),
            allow_empty: policy.allow_empty,
            max_error_rate: policy.max_error_rate.map(|rate| rate.to_string()),
            each: policy.is_each(),
            by: (policy.by != By::Hash).then(|| policy.by.to_string()),
            order: policy.order.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The phase of a wave deployment, or the way in which it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WavePhase {
    /// It waits for ACKs.
    Progressing,
    /// Every member had ACKed; it lets time pass.
    Holding,
    /// ACKs did not come in time, too many members are gone, or somebody stopped it; it waits to be resumed, promoted or aborted.
    Paused,
    /// The files say what nobody is served, because it was put back.
    Held,
    /// Wave by wave everyone has got the change.
    Completed,
    /// Somebody gave the change to everyone.
    Promoted,
    /// The change was undone.
    Reverted,
    /// Its files changed again, or a forced write took its place.
    Superseded,
}

/// The verbs for a wave deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaveVerb {
    /// Stops until it is resumed.
    Pause,
    /// Goes on after a pause; begins again after it was put back.
    Resume,
    /// Gives the change to everyone now.
    Promote,
    /// Puts it back now.
    Abort,
}

impl WaveReport {
    /// The share of the nodes that have the change; `None` if nobody has.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        match self.phase {
            WavePhase::Progressing | WavePhase::Holding | WavePhase::Paused => {
                self.reached.last().map(|(share, _)| *share)
            }
            WavePhase::Held | WavePhase::Reverted | WavePhase::Superseded => None,
            WavePhase::Completed | WavePhase::Promoted => Some(Share::ALL),
        }
    }
}

impl WaveMembers {
    /// Adds the clients of another server. A node that is connected to both counts twice.
    pub(crate) fn add(&mut self, other: &Self) {
        self.n_ahead += other.n_ahead;
        self.n_behind += other.n_behind;
        self.n_acked += other.n_acked;
        self.n_pending += other.n_pending;
        self.n_nacked += other.n_nacked;
        for (own, others) in [
            (&mut self.ahead, &other.ahead),
            (&mut self.behind, &other.behind),
            (&mut self.pending, &other.pending),
        ] {
            own.extend(others.iter().cloned());
            own.sort_unstable();
            own.dedup();
            own.truncate(MAX_LISTED);
        }
        for (own, others) in
            [(&mut self.nacked, &other.nacked), (&mut self.already_failing, &other.already_failing)]
        {
            own.extend(others.iter().cloned());
            own.truncate(MAX_LISTED);
        }
        for other in &other.values {
            match self.values.iter_mut().find(|own| own.value == other.value) {
                Some(own) => {
                    own.n_ahead += other.n_ahead;
                    own.n_behind += other.n_behind;
                }
                None => self.values.push(other.clone()),
            }
        }
        self.values.truncate(MAX_LISTED);
        if let (Some(own), Some(other)) = (&mut self.requests, &other.requests) {
            for (own, other) in [(&mut own.ahead, other.ahead), (&mut own.behind, other.behind)] {
                own.requests = own.requests.saturating_add(other.requests);
                own.failures = own.failures.saturating_add(other.failures);
            }
        }
    }

    /// The same once everyone has the change: who was behind is ahead, and has not answered yet.
    #[must_use]
    pub fn promoted(mut self) -> Self {
        let behind = std::mem::take(&mut self.behind);
        let n_behind = std::mem::take(&mut self.n_behind);
        self.n_ahead += n_behind;
        self.n_pending += n_behind;
        for value in &mut self.values {
            value.state = ValueState::Ahead;
            value.n_ahead += std::mem::take(&mut value.n_behind);
        }
        for nodes in [&mut self.ahead, &mut self.pending] {
            nodes.extend(behind.iter().cloned());
            nodes.sort_unstable();
            nodes.truncate(MAX_LISTED);
        }
        self
    }
}

impl WavePhase {
    /// Every phase.
    pub const ALL: [Self; 8] = [
        Self::Progressing,
        Self::Holding,
        Self::Paused,
        Self::Held,
        Self::Completed,
        Self::Promoted,
        Self::Reverted,
        Self::Superseded,
    ];

    /// As answers and events say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Progressing => "progressing",
            Self::Holding => "holding",
            Self::Paused => "paused",
            Self::Held => "held",
            Self::Completed => "completed",
            Self::Promoted => "promoted",
            Self::Reverted => "reverted",
            Self::Superseded => "superseded",
        }
    }
}

impl WaveVerb {
    /// Reads `pause`, `resume`, `retry` (the same), `promote` or `abort`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "pause" => Some(Self::Pause),
            "resume" | "retry" => Some(Self::Resume),
            "promote" => Some(Self::Promote),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }
}
