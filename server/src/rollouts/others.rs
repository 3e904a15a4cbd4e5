//! The clients of the other servers with the same store: what they answered to a change, and the requests that they report.
//!
//! A server that does not answer is unknown: its clients may not have applied a change, and nothing is known of their requests. So a gate
//! waits, and a measurement has no requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use xds_api::rollouts::RolloutEvidence;
use xds_control::connected::{NodesAsked, NodesTold};
use xds_control::peers::{Answer, AskedServers, Peers, Question, Union};
use xds_rollout::{AckStatus, Traffic};

/// What the clients of all other servers answered to a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OtherAcks {
    /// The sum over those that answered.
    pub(super) status: AckStatus,
    /// True if every server whose clients count has answered.
    pub(super) is_complete: bool,
}

impl OtherAcks {
    /// What the clients of all servers answered, of which these are those of this server. `None` as long as it is not known and nobody
    /// has rejected the change.
    pub(super) fn with(&self, own: AckStatus) -> Option<AckStatus> {
        let Self { status: others, is_complete } = self;
        let mut all = own;
        all.add(others);
        match (is_complete, all.n_nacked) {
            (true, _) => Some(all),
            (false, 0) => None,
            // Too few for any share of the clients.
            (false, _) => Some(AckStatus { acked: 0, n_behind: 0, ..all }),
        }
    }

    /// Returns `true` if every client has accepted the change.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete && self.status.acked >= self.status.of
    }
}

/// What the other servers say of a change.
#[derive(Debug)]
pub(super) struct Others {
    pub(super) acks: OtherAcks,
    /// The nodes of each of them whose clients count; `None` if it did not answer.
    pub(super) nodes: BTreeMap<String, Option<NodesTold>>,
}

/// Asks the others about a change, each its question about nodes.
pub(super) async fn ask_acks(
    peers: Arc<dyn Peers>,
    change: u64,
    nodes: BTreeMap<String, NodesAsked>,
    question: impl Fn(NodesAsked) -> Question,
) -> Others {
    let union = ask(peers, |server| question(nodes.get(server).cloned().unwrap_or_default())).await;
    let mut acks = OtherAcks { is_complete: union.is_complete(), ..OtherAcks::default() };
    acks.status.change = change;
    let mut nodes: BTreeMap<String, Option<NodesTold>> =
        union.others().map(|server| (server.to_owned(), None)).collect();
    for (server, answer) in union.into_answers() {
        let Answer::RolloutAcks(clients) = answer else {
            acks.is_complete = false;
            continue;
        };
        acks.status.add(&clients.acks);
        nodes.insert(server, Some(clients.nodes));
    }
    Others { acks, nodes }
}

/// What the clients of all servers reported, of which this is what those of this server did; nothing if not all of it is known.
pub(super) async fn ask_evidence(
    peers: Arc<dyn Peers>,
    question: Question,
    own: Option<RolloutEvidence>,
) -> RolloutEvidence {
    let union = ask(peers, |_| question.clone()).await;
    let Some(mut all) = own.filter(|_| union.is_complete()) else { return RolloutEvidence::default() };
    for (_, answer) in union.answers() {
        let Answer::RolloutLoads { windows, silence, .. } = answer else { return RolloutEvidence::default() };
        // A server of an earlier release says nothing of windows.
        if windows.len() != all.windows.len() {
            return RolloutEvidence::default();
        }
        for (sum, more) in all.windows.iter_mut().zip(windows) {
            add(&mut sum.canary, &more.canary);
            add(&mut sum.stable, &more.stable);
            sum.clients.n = sum.clients.n.saturating_add(more.clients.n);
            sum.clients.starved = sum.clients.starved.max(more.clients.starved);
        }
        all.silence.requests = all.silence.requests.saturating_add(silence.requests);
        all.silence.silent = all.silence.silent.saturating_add(silence.silent);
    }
    all
}

fn add(sum: &mut Traffic, more: &Traffic) {
    for (sum, more) in [
        (&mut sum.counts.requests, more.counts.requests),
        (&mut sum.counts.failures, more.counts.failures),
        (&mut sum.issued, more.issued),
        (&mut sum.dropped, more.dropped),
        (&mut sum.in_progress, more.in_progress),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Asks all others at the same time. This server counts as one that has answered, and adds nothing.
async fn ask(peers: Arc<dyn Peers>, question: impl Fn(&str) -> Question) -> Union<Answer> {
    let mut replicas = peers.replicas();
    replicas.retain(|replica| !replica.is_own);
    let mut union = Union::new(replicas, SystemTime::now());
    let questions = union.others().map(|id| (id.to_owned(), question(id))).collect::<Vec<_>>();
    let mut asked = AskedServers::new(&peers, questions, PATIENCE);
    while let Some((id, answer)) = asked.next().await {
        union.tell(&id, answer);
    }
    union
}

/// How long another server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn status(of: u64, acked: u64, n_nacked: u64) -> AckStatus {
        AckStatus { change: 7, of, acked, n_nacked, ..AckStatus::default() }
    }

    #[test]
    fn a_server_that_does_not_answer_lets_no_gate_pass_but_a_rejection_counts() {
        let others = |is_complete, status| OtherAcks { status, is_complete };
        assert_eq!(others(true, status(3, 2, 1)).with(status(5, 5, 0)), Some(status(8, 7, 1)));
        assert_eq!(others(false, status(3, 3, 0)).with(status(5, 5, 0)), None);
        assert_eq!(others(false, status(3, 2, 1)).with(status(5, 5, 0)), Some(status(8, 0, 1)));
        assert!(others(true, status(3, 3, 0)).is_settled());
        assert!(!others(false, status(3, 3, 0)).is_settled() && !others(true, status(3, 2, 0)).is_settled());
    }
}
