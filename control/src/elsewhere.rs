//! What other servers with the same store say of their clients of the wave deployment that is under way.
//!
//! One server leads, and drives it. It asks the others again and again, and decides by the last answer of each. A server that has not answered
//! for a while, or about an earlier wave, is unknown, and the wave waits for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::Duration;

use crate::connected::NodesHeard;
use crate::model::wave::{WaveClients, WaveQuestion};
use crate::peers::{Answer, AskedServers, Peers, Question, Reached, Replica};

/// The answers of other servers.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// The other servers, if they ask each other.
    peers: OnceLock<Arc<dyn Peers>>,
    /// The last answer of each, by its id.
    heard: Mutex<BTreeMap<String, Heard>>,
    /// Changes whenever an answer says something new.
    news: watch::Sender<u64>,
}

struct Heard {
    /// The wave that it is about.
    wave: WaveId,
    at: Instant,
    said: Result<Arc<WaveClients>, String>,
    nodes: NodesHeard,
}

/// What is known of the clients of another server.
pub(crate) struct Known {
    /// Its id.
    pub(crate) id: String,
    /// What it says of a wave, or why that is not known.
    pub(crate) said: Result<Arc<WaveClients>, String>,
    /// Its nodes that were connected when it last said so, also as members of an earlier wave: silence ends no connection.
    pub(crate) nodes: NodesHeard,
}

/// A wave: the number of its deployment, and the revision that it was published as.
pub(crate) type WaveId = (u64, u64);

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").field("wave", &self.wave).finish_non_exhaustive()
    }
}

impl Elsewhere {
    /// Sets who the others are, once.
    pub(crate) fn set(&self, peers: Arc<dyn Peers>) {
        // Nobody does it twice.
        let _ = self.peers.set(peers);
    }

    /// The other servers, if they ask each other.
    pub(crate) fn peers(&self) -> Option<&Arc<dyn Peers>> {
        self.peers.get()
    }

    /// Returns `true` if this server drives wave deployments: it leads, or it is alone.
    pub(crate) fn leads(&self) -> bool {
        self.peers().is_none_or(|peers| peers.leads())
    }

    /// Wakes when an answer says something new.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// What is known of each other server whose clients count.
    pub(crate) fn servers(&self, wave: WaveId, now: Instant) -> Vec<Known> {
        let Some(peers) = self.peers() else { return vec![] };
        let heard = self.heard();
        let others = peers.replicas().into_iter().filter(|replica| !replica.is_own && !replica.is_forgiven());
        let known = others.map(|replica| {
            let last = heard.get(&replica.id);
            let is_fresh = |heard: &&Heard| now.saturating_duration_since(heard.at) < FRESH;
            let said = match (last.filter(|heard| heard.wave == wave).filter(is_fresh), replica.reached) {
                (Some(heard), _) => heard.said.clone(),
                (None, Reached::Yes(_)) => Err("it has not answered yet".to_owned()),
                (None, Reached::No { why, .. }) => Err(why),
                (None, Reached::Gone { .. }) => Err("it vanished".to_owned()),
            };
            let same_deployment = last.filter(|heard| heard.wave.0 == wave.0);
            let nodes = same_deployment.map(|heard| heard.nodes.clone()).unwrap_or_default();
            Known { id: replica.id, said, nodes }
        });
        known.collect()
    }

    /// Asks all others about a wave at the same time. Returns when all have answered, or had time to.
    pub(crate) async fn ask(&self, question: WaveQuestion) {
        let Some(peers) = self.peers() else { return };
        let wave = (question.deployment, question.revision);
        let counts = |replica: &Replica| !replica.is_own && !replica.is_forgiven();
        let questions = peers.replicas().into_iter().filter(counts).map(|Replica { id, .. }| {
            let mut question = question.clone();
            question.nodes.known = self.heard().get(&id).and_then(|heard| heard.nodes.hash());
            (id, Question::Wave(question))
        });
        let mut asked = AskedServers::new(peers, questions, PATIENCE);
        while let Some((id, answer)) = asked.next().await {
            let said = answer.and_then(Answer::wave);
            if self.hear(id, wave, said) {
                self.news.send_modify(|n| *n = n.wrapping_add(1));
            }
        }
    }

    /// Takes in an answer. Returns `true` if it says something new.
    fn hear(&self, id: String, wave: WaveId, said: Result<WaveClients, String>) -> bool {
        let mut heard = self.heard();
        let before = heard.remove(&id);
        let mut nodes = before.as_ref().map(|before| before.nodes.clone()).unwrap_or_default();
        let said = said.map(|mut clients| {
            nodes.hear(&mut clients.nodes);
            Arc::new(clients)
        });
        let is_news = before.is_none_or(|before| before.wave != wave || before.said != said);
        let at = tokio::time::Instant::now().into_std();
        heard.insert(id, Heard { wave, at, said, nodes });
        is_news
    }

    fn heard(&self) -> MutexGuard<'_, BTreeMap<String, Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long another server may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer counts: the next one comes sooner.
const FRESH: Duration = Duration::from_secs(5);

/// How long after the answers the next question comes: servers look at all their clients for an answer, and have other work.
pub(crate) fn pause_after(asked_for: Duration) -> Duration {
    (asked_for * 9).clamp(MIN_PAUSE, MAX_PAUSE)
}

const MIN_PAUSE: Duration = Duration::from_millis(500);

/// With [`PATIENCE`], shorter than [`FRESH`].
const MAX_PAUSE: Duration = Duration::from_secs(2);
