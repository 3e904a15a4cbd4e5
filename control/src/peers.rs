//! The other servers with the same store, and those that follow this one: who they are, what they are asked, and what all answers together come to.
//!
//! A server that does not answer is unknown: its clients may not have a change. One that vanished counts until a grace is over, or until
//! somebody forgets it: its clients have gone to another server, or keep an old configuration, which is safe for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;
use utoipa::ToSchema;
use xds_cache::Revision;
use xds_rollout::{AckStatus, Counts, RolloutSpec, Silence, Window};
use xds_units::rfc3339;

use crate::acks::{AcksQuery, Applied, Whose};
use crate::boxed::BoxFuture;
use crate::connected::{NodesAsked, NodesTold};
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::model::wave::{WaveClients, WaveQuestion};

/// The servers that share the store of this one, and those that follow it.
pub trait Peers: Send + Sync + fmt::Debug {
    /// All of them, this one too, by id. As long as the store has not said who they are, one of them is unknown and does not answer.
    fn replicas(&self) -> Vec<Replica>;

    /// Returns `true` if they ask each other (`--peer-listen`).
    fn is_linked(&self) -> bool;

    /// Returns `true` if this server drives what one server alone should drive. It is a hint: two may take themselves for it for a moment.
    fn leads(&self) -> bool;

    /// Reads from the store who is there now. After that, [`replicas`](Self::replicas) has every server that may serve something older
    /// than what was committed before the call.
    ///
    /// # Errors
    ///
    /// Why the store cannot be read.
    fn look(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Asks another server. Answered within `patience`.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    fn ask(
        &self,
        id: String,
        question: Question,
        patience: Duration,
    ) -> BoxFuture<'_, Result<Answer, String>>;

    /// Forgets a server that vanished.
    ///
    /// # Errors
    ///
    /// [`ForgetError`].
    fn forget(&self, id: String) -> BoxFuture<'_, Result<(), ForgetError>>;
}

/// A server could not be forgotten.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ForgetError {
    /// It is running.
    #[error("the server {0:?} is running; when it is stopped, it is forgotten by itself")]
    Alive(String),
    /// There is none.
    #[error("no server {0:?} shares this store; `xds-server replicas` lists those that do")]
    Unknown(String),
    /// The store did not do it.
    #[error("the shared store cannot be written: {0}")]
    Store(String),
}

/// A server with the same store.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// Its `--instance-id`.
    pub id: String,
    /// True for the server that was asked.
    pub is_own: bool,
    /// True for the one that drives rollouts.
    pub leads: bool,
    /// True for one that follows this server, and does not have the same store.
    pub follows: bool,
    /// Where other servers reach it; `None` if they do not.
    pub peer: Option<String>,
    /// Its release.
    pub release: String,
    /// When it started, by its own clock.
    pub started: SystemTime,
    /// What is known of it now.
    pub reached: Reached,
}

/// What is known of a server now.
#[derive(Clone, Debug, PartialEq)]
pub enum Reached {
    /// It answers.
    Yes(Status),
    /// It lives, and does not answer.
    No {
        /// Since when.
        since: SystemTime,
        /// Why.
        why: String,
    },
    /// It vanished without having ended in order.
    Gone {
        /// Since when, as this server noticed it.
        since: SystemTime,
        /// True if it is gone for so long that its clients do not count any more.
        is_over: bool,
    },
}

/// What a server last said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The revision that it publishes.
    pub revision: u64,
    /// The streams of its clients.
    pub streams: u64,
    /// What it serves, and at which revision; `None` if it does not say.
    pub fingerprint: Option<(u64, Fingerprint)>,
}

/// Why other servers do not serve what this one does at the same revision; `None` if all that can be compared do.
pub(crate) fn difference(replicas: &[Replica], own: &Fingerprints) -> Option<String> {
    let differs = |replica: &Replica| {
        let Reached::Yes(Status { fingerprint: Some((revision, theirs)), .. }) = &replica.reached else {
            return None;
        };
        let ours = own.of(Revision(*revision)).filter(|_| !replica.is_own)?;
        (ours != *theirs).then(|| format!("{} at revision {revision}", replica.id))
    };
    let all: Vec<String> = replicas.iter().filter_map(differs).collect();
    (!all.is_empty()).then(|| {
        format!(
            "servers with this history serve something else than this one: {}; give all the same release and the same flags",
            all.join(", ")
        )
    })
}

/// A question to another server, about its own clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    /// The clients that have applied a revision: [`Answer::Acks`].
    #[serde(rename_all = "camelCase")]
    Acks {
        /// The revision.
        revision: u64,
        /// How long to wait for clients that have not answered yet, in milliseconds; zero for an answer at once.
        wait_ms: u64,
        /// Whose clients count.
        scope: Option<ScopeTexts>,
    },
    /// The clients of some nodes, or all connected ones, that use a revision: [`Answer::Acks`]. Earlier releases do not answer it.
    #[serde(rename_all = "camelCase")]
    AcksOf {
        /// The revision.
        revision: u64,
        /// True for all connected clients, and not only those that the publication of the revision concerns.
        everyone: bool,
        /// Only clients whose node id matches.
        nodes: Option<String>,
        /// How long to wait, as for `Acks`.
        wait_ms: u64,
        /// Whose clients count.
        scope: Option<ScopeTexts>,
    },
    /// A page of connected nodes, or one node: [`Answer::Page`].
    #[serde(rename_all = "camelCase")]
    Nodes {
        /// Only this one.
        id: Option<String>,
        /// The largest number of nodes.
        limit: usize,
        /// Start after this id.
        after: Option<String>,
        /// Only nodes of this status.
        status: Option<String>,
        /// Only nodes of this group.
        group: Option<String>,
        /// Which nodes are seen.
        scope: Option<ScopeTexts>,
    },
    /// How the clients are as a whole, and the first of them: [`Answer::Page`].
    Fleet {
        /// The parameters of the admin API.
        query: Value,
        /// Which nodes are seen.
        scope: Option<ScopeTexts>,
    },
    /// The clients that have applied a change of a rollout: [`Answer::RolloutAcks`].
    RolloutAcks {
        /// The rollout's specification.
        spec: Box<RolloutSpec>,
        /// The number of the change.
        change: u64,
        /// The revision that published it.
        revision: u64,
        /// The nodes that were concerned by the change; earlier releases do not ask for them.
        #[serde(flatten)]
        nodes: NodesAsked,
    },
    /// The requests to the backends of a rollout: [`Answer::RolloutLoads`].
    #[serde(rename_all = "camelCase")]
    RolloutLoads {
        /// The rollout's specification.
        spec: Box<RolloutSpec>,
        /// How long ago the reports begin that count, in milliseconds, by the clock of whoever answers.
        ago_ms: u64,
        /// The same of further windows; earlier releases do not ask for any.
        #[serde(default)]
        more_ago_ms: Vec<u64>,
    },
    /// The clients of a wave deployment: [`Answer::Wave`].
    Wave(WaveQuestion),
    /// The wave deployments, as the server that drives them knows them: [`Answer::Page`].
    Waves,
    /// A page of load reports: [`Answer::Page`].
    #[serde(rename_all = "camelCase")]
    Loads {
        /// Only this cluster.
        cluster: Option<String>,
        /// Only reports of this node.
        node: Option<String>,
        /// How long ago the reports begin that count, in milliseconds, by the clock of whoever answers.
        ago_ms: Option<u64>,
        /// The largest number of clusters.
        limit: usize,
        /// Start after this place.
        after: Option<String>,
        /// Which nodes are seen.
        scope: Option<ScopeTexts>,
    },
}

impl Question {
    /// The question about clients and a revision that waits so long for them.
    #[must_use]
    pub fn of_acks(query: &AcksQuery, wait: Duration, scope: Option<ScopeTexts>) -> Self {
        let AcksQuery { revision: Revision(revision), of, nodes } = query;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (revision, everyone) = (*revision, *of == Whose::Everyone);
        if !everyone && nodes.is_none() {
            return Self::Acks { revision, wait_ms, scope };
        }
        let nodes = nodes.as_ref().map(|nodes| nodes.as_str().to_owned());
        Self::AcksOf { revision, everyone, nodes, wait_ms, scope }
    }
}

/// A scope of the access policy: globs of names, `None` for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeTexts {
    /// Of node groups.
    pub groups: Option<Vec<String>>,
    /// Of namespaces.
    pub namespaces: Option<Vec<String>>,
}

/// The answer of another server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The clients that have applied a revision.
    Acks(Applied),
    /// A page as the admin API shows it.
    Page(Value),
    /// The clients of a wave deployment.
    Wave(Box<WaveClients>),
    /// The clients that have applied a change of a rollout.
    RolloutAcks(Box<RolloutClients>),
    /// The requests to the backends of a rollout; none if a report had no room.
    RolloutLoads {
        /// To the canary.
        canary: Counts,
        /// To stable.
        stable: Counts,
        /// All windows; none from earlier releases.
        #[serde(default)]
        windows: Vec<Window>,
        /// The clients that no longer report.
        #[serde(default)]
        silence: Silence,
    },
}

/// The clients of one server that a change of a rollout concerns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutClients {
    /// What they answered.
    #[serde(flatten)]
    pub acks: AckStatus,
    /// Which they are.
    #[serde(flatten)]
    pub nodes: NodesTold,
}

/// Servers that were asked at the same time.
#[derive(Debug)]
pub struct AskedServers(JoinSet<(String, Result<Answer, String>)>);

impl AskedServers {
    /// Asks each of these servers its question. Each has `patience` to answer.
    #[must_use]
    pub fn new(
        peers: &Arc<dyn Peers>,
        questions: impl IntoIterator<Item = (String, Question)>,
        patience: Duration,
    ) -> Self {
        let mut asked = JoinSet::new();
        for (id, question) in questions {
            let peers = Arc::clone(peers);
            asked.spawn(async move {
                let answer = peers.ask(id.clone(), question, patience).await;
                (id, answer)
            });
        }
        Self(asked)
    }

    /// The id and the answer of the next server that has answered, or has not in time; `None` after the last one.
    pub async fn next(&mut self) -> Option<(String, Result<Answer, String>)> {
        loop {
            if let Ok(answered) = self.0.join_next().await? {
                return Some(answered);
            }
        }
    }
}

impl Answer {
    /// A page.
    ///
    /// # Errors
    ///
    /// If it is another answer, or another page.
    pub fn page<T: DeserializeOwned>(self) -> Result<T, String> {
        let Self::Page(page) = self else { return Err(OTHER.to_owned()) };
        serde_json::from_value(page)
            .map_err(|error| format!("its answer cannot be read, as between different releases: {error}"))
    }

    /// The clients that have applied a revision. A server that does not serve it yet has said nothing of its clients.
    ///
    /// # Errors
    ///
    /// If it has not, or this is another answer.
    pub fn applied(self, revision: Revision) -> Result<Applied, String> {
        match self {
            Self::Acks(Applied::Behind) => Err(format!("it does not serve revision {revision} yet")),
            Self::Acks(applied) => Ok(applied),
            Self::Page(_) | Self::Wave(_) | Self::RolloutAcks(_) | Self::RolloutLoads { .. } => {
                Err(OTHER.to_owned())
            }
        }
    }

    /// The clients of a wave deployment.
    ///
    /// # Errors
    ///
    /// If it is another answer.
    pub fn wave(self) -> Result<WaveClients, String> {
        if let Self::Wave(clients) = self { Ok(*clients) } else { Err(OTHER.to_owned()) }
    }
}

/// What is wrong with an answer of another kind.
const OTHER: &str = "its answer is about something else";

/// What all servers answered to one question. Whoever is not heard is unknown.
#[derive(Clone, Debug)]
pub struct Union<T> {
    replicas: Vec<Replica>,
    answers: BTreeMap<String, Result<T, String>>,
    at: SystemTime,
}

/// Which servers an answer counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicasReport {
    /// The servers that share the store, this one too.
    pub known: usize,
    /// The number of them that answered.
    pub answered: usize,
    /// Those that did not.
    pub missing: Vec<MissingReplica>,
}

/// A server that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingReplica {
    /// Its `--instance-id`.
    pub id: String,
    /// Since when it does not.
    pub since: String,
    /// Why.
    pub why: String,
    /// True if it is gone for longer than `--replica-grace`: nothing waits for its clients any more.
    pub forgiven: bool,
}

impl<T> Union<T> {
    /// No answer yet, of servers that were asked at `at`.
    #[must_use]
    pub fn new(replicas: Vec<Replica>, at: SystemTime) -> Self {
        Self { replicas, answers: BTreeMap::new(), at }
    }

    /// Takes in what a server answered, or why it did not. A later answer replaces an earlier one.
    pub fn tell(&mut self, id: &str, answer: Result<T, String>) {
        if self.replicas.iter().any(|replica| replica.id == id) {
            self.answers.insert(id.to_owned(), answer);
        }
    }

    /// The servers to ask: all others, but not those that are gone for good.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        let counts = |replica: &&Replica| !replica.is_own && !replica.is_forgiven();
        self.replicas.iter().filter(counts).map(|replica| replica.id.as_str())
    }

    /// The answers, by id.
    pub fn answers(&self) -> impl Iterator<Item = (&str, &T)> {
        self.answers.iter().filter_map(|(id, answer)| Some((id.as_str(), answer.as_ref().ok()?)))
    }

    /// The same, for use.
    pub fn into_answers(self) -> impl Iterator<Item = (String, T)> {
        self.answers.into_iter().filter_map(|(id, answer)| Some((id, answer.ok()?)))
    }

    /// Returns `true` if every server whose clients count has answered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing().all(Replica::is_forgiven)
    }

    /// Which servers have answered, and which have not.
    #[must_use]
    pub fn report(&self) -> ReplicasReport {
        let missing: Vec<_> = self.missing().map(|replica| self.missing_replica(replica)).collect();
        let known = self.replicas.len();
        ReplicasReport { known, answered: known - missing.len(), missing }
    }

    fn missing(&self) -> impl Iterator<Item = &Replica> {
        let has_answered = |replica: &&Replica| !matches!(self.answers.get(&replica.id), Some(Ok(_)));
        self.replicas.iter().filter(has_answered)
    }

    fn missing_replica(&self, replica: &Replica) -> MissingReplica {
        let said = self.answers.get(&replica.id).and_then(|answer| answer.as_ref().err());
        let (since, why) = match &replica.reached {
            Reached::Yes(_) => (self.at, said.map_or("it was not asked", String::as_str)),
            Reached::No { since, why } => (*since, said.map_or(why.as_str(), String::as_str)),
            Reached::Gone { since, is_over: false } => (*since, "it vanished"),
            Reached::Gone { since, is_over: true } => {
                (*since, "it vanished, and its clients are not waited for any more")
            }
        };
        MissingReplica {
            id: replica.id.clone(),
            since: rfc3339(since),
            why: why.to_owned(),
            forgiven: replica.is_forgiven(),
        }
    }
}

impl Replica {
    /// Returns `true` if its clients do not count any more.
    #[must_use]
    pub fn is_forgiven(&self) -> bool {
        matches!(self.reached, Reached::Gone { is_over: true, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(id: &str, reached: Reached) -> Replica {
        Replica {
            id: id.to_owned(),
            is_own: id == "a",
            leads: false,
            follows: false,
            peer: None,
            release: String::new(),
            started: SystemTime::UNIX_EPOCH,
            reached,
        }
    }

    fn yes() -> Reached {
        Reached::Yes(Status::default())
    }

    fn gone(is_over: bool) -> Reached {
        Reached::Gone { since: SystemTime::UNIX_EPOCH, is_over }
    }

    fn no() -> Reached {
        Reached::No { since: SystemTime::UNIX_EPOCH, why: "no connection".to_owned() }
    }

    #[test]
    fn whoever_does_not_answer_is_missing_and_only_who_is_gone_for_long_is_forgiven() {
        let answered = |_: &str| Ok(1);
        let silent = |_: &str| Err("it did not answer within 2 s".to_owned());
        type Says = fn(&str) -> Result<u8, String>;
        let table: [(Reached, Option<Says>, bool, usize, &str); 8] = [
            (yes(), Some(answered), true, 3, ""),
            (yes(), Some(silent), false, 2, "it did not answer within 2 s"),
            (yes(), None, false, 2, "it was not asked"),
            (no(), None, false, 2, "no connection"),
            (no(), Some(answered), true, 3, ""),
            (gone(false), None, false, 2, "it vanished"),
            (gone(true), None, true, 2, "it vanished, and its clients are not waited for any more"),
            (gone(false), Some(answered), true, 3, ""),
        ];
        for (reached, says, is_complete, n_answered, why) in table {
            let all = [replica("a", yes()), replica("b", yes()), replica("c", reached.clone())];
            let mut union = Union::new(all.into(), SystemTime::UNIX_EPOCH);
            union.tell("a", Ok(1));
            union.tell("b", Ok(1));
            union.tell("stranger", Ok(1));
            if let Some(says) = says {
                union.tell("c", says("c"));
            }
            let report = union.report();
            assert_eq!(union.is_complete(), is_complete, "{reached:?}: {report:?}");
            assert_eq!((report.known, report.answered), (3, n_answered), "{reached:?}");
            assert_eq!(report.missing.first().map_or("", |missing| &missing.why), why, "{reached:?}");
            assert_eq!(union.answers().count(), n_answered, "a stranger counts for nothing");
        }
    }

    #[test]
    fn a_later_answer_counts_and_only_others_are_asked() {
        let all =
            [replica("a", yes()), replica("b", no()), replica("c", gone(false)), replica("d", gone(true))];
        let mut union = Union::new(all.into(), SystemTime::UNIX_EPOCH);
        assert_eq!(union.others().collect::<Vec<_>>(), ["b", "c"]);
        union.tell("b", Ok(1));
        union.tell("b", Err("it ended".to_owned()));
        assert_eq!(union.answers().count(), 0);
        union.tell("b", Ok(2));
        assert_eq!(union.answers().collect::<Vec<_>>(), [("b", &2)]);
    }
}
