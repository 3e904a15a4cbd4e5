//! What is said of the clients of a publication.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The clients that have applied a publication, and those that have not. `total` is the sum of `acked`, `n_pending`, `n_nacked` and
/// `n_already_failing`. No list has more than [`MAX_LISTED`] entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcksReport {
    /// The revision asked for.
    pub revision: u64,
    /// The clients that are concerned and connected; those that came later count too.
    pub total: usize,
    /// The number of them that have accepted everything that it changed for them.
    pub acked: usize,
    /// The number of those that have not answered yet.
    pub n_pending: usize,
    /// Their node ids.
    pub pending: Vec<String>,
    /// The number of those pending that rejected a response, and of which it is not known yet which of its resources they reject.
    #[serde(default)]
    pub n_unknown: usize,
    /// Their node ids.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// The number of clients that rejected a response with something that it changed.
    pub n_nacked: usize,
    /// Who they are.
    pub nacked: Vec<NodeNack>,
    /// The number of clients that rejected it too, but were in ERROR on that type before.
    pub n_already_failing: usize,
    /// Who they are.
    pub already_failing: Vec<NodeNack>,
    /// How many of `acked` accepted it as part of a newer response.
    pub superseded: usize,
}

/// The clients that a publication concerns and that are still connected, or accepted it before they left, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All of them.
    pub total: usize,
    /// Those that have accepted everything that it changed for them.
    pub acked: usize,
    /// Those that have not answered yet.
    pub pending: usize,
}

/// A client's rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNack {
    /// The node id.
    pub node: String,
    /// The client's words.
    pub message: String,
    /// The type of the resource that it rejects; missing if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_url: Option<String>,
    /// The name of that resource; missing if it is not known which one of the type it rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

impl NodeNack {
    /// What the client rejects, as far as it is known, and its words.
    #[must_use]
    pub fn words(&self) -> String {
        let of_type = self.type_url.as_deref().and_then(|url| url.rsplit('.').next());
        match (of_type, &self.resource) {
            (Some(of_type), Some(name)) => format!("{of_type} {name}: {}", self.message),
            (Some(of_type), None) => format!("a {of_type}: {}", self.message),
            (None, _) => self.message.clone(),
        }
    }
}

/// How much of what a client answered is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing, as if there were no such client.
    Nothing,
    /// Whether it accepts, and not its words: they may name resources of groups out of scope.
    Outcome,
    /// Its words too.
    Words,
}

impl Sight {
    /// The client's words, if they are shown.
    #[must_use]
    pub fn words(self, words: &str) -> String {
        if self == Self::Words { words.to_owned() } else { WITHHELD.to_owned() }
    }
}

impl AcksReport {
    /// Returns `true` if an answer is still to come and none has failed the publication yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.n_nacked == 0 && self.n_pending > 0
    }

    /// The same if at least so many clients must accept it.
    #[must_use]
    pub fn is_waiting_for(&self, min_clients: usize) -> bool {
        self.is_waiting() || (self.n_nacked + self.n_already_failing == 0 && self.acked < min_clients)
    }

    /// Counts the clients of another server too. A client of both counts twice, because each of its streams has to answer.
    pub fn add(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.acked = self.acked.saturating_add(other.acked);
        self.superseded = self.superseded.saturating_add(other.superseded);
        self.n_pending = self.n_pending.saturating_add(other.n_pending);
        self.n_unknown = self.n_unknown.saturating_add(other.n_unknown);
        self.n_nacked = self.n_nacked.saturating_add(other.n_nacked);
        self.n_already_failing = self.n_already_failing.saturating_add(other.n_already_failing);
        other.pending.iter().for_each(|node| list(&mut self.pending, node.clone()));
        other.unknown.iter().for_each(|node| list(&mut self.unknown, node.clone()));
        for (own, others) in
            [(&mut self.nacked, &other.nacked), (&mut self.already_failing, &other.already_failing)]
        {
            others.iter().for_each(|nack| list(own, nack.clone()));
        }
    }
}

/// In place of what a client said, if that may be about resources that are not shown.
const WITHHELD: &str = "withheld: it may be about resources out of scope";

/// The most clients that each list of an [`AcksReport`] names; the counts include all of them.
pub const MAX_LISTED: usize = 1_000;

/// Adds to a list that has room.
pub(super) fn list<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() < MAX_LISTED {
        entries.push(entry);
    }
}
