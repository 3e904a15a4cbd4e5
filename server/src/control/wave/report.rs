//! What is told of rollouts: how their clients are, and how they ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use xds_api::acks::{MAX_LISTED, NodeNack, difference};
use xds_api::wave::{WaveMembers, WavePhase, WaveReport};
use xds_cache::status::StreamEntry;
use xds_cache::wave::{Seen, Stage};
use xds_cache::{AHEAD, ViewChange, ViewKey};

use super::Wave;
use crate::control::Shared;

/// A node's answer to the change; the worse is larger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Acked,
    Pending,
    Nacked(String),
}

/// How the clients of a rollout are.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) members: WaveMembers,
}

impl Look {
    pub(crate) fn seen(&self) -> Seen {
        let WaveMembers { n_ahead, n_pending, n_nacked, .. } = self.members;
        Seen { n_members: n_ahead, n_pending, n_nacked }
    }
}

impl Shared {
    /// Looks at the connected clients. A node is a member if the publisher would serve it what is ahead, whether or not its
    /// streams have taken note of that; it has ACKed if every stream has accepted what differs for it, or wants nothing of it.
    pub(crate) fn look_at(&self, wave: &Wave) -> Look {
        let publisher = &self.parts.publisher;
        let mut changes: HashMap<ViewKey, Arc<ViewChange>> = HashMap::new();
        let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
        let mut look = Look::default();
        let mut behind = std::collections::BTreeSet::new();
        for entry in self.parts.board.streams() {
            let node = entry.with(|status| Arc::clone(&status.info.node));
            match publisher.is_ahead(&node) {
                None => continue,
                Some(false) => {
                    behind.insert(node.id.clone());
                    continue;
                }
                Some(true) => {}
            }
            let (Some(view), Some(reached)) = (publisher.view_of(&node), wave.reached_by(&node.id)) else {
                continue;
            };
            let change = changes.entry(view.key().clone()).or_insert_with_key(|key| {
                let former = publisher.view_at(&ViewKey { cohort: 0, ..key.clone() });
                let present = publisher.view_at(&ViewKey { cohort: AHEAD, ..key.clone() });
                Arc::new(difference(former.as_deref(), present.as_deref().unwrap_or(&view)))
            });
            let answer = answer(&entry, change, reached);
            let known = answers.entry(node.id.clone()).or_insert(Answer::Acked);
            if answer > *known {
                *known = answer;
            }
        }
        let members = &mut look.members;
        members.n_behind = behind.len();
        members.behind = behind.into_iter().take(MAX_LISTED).collect();
        for (node, answer) in answers {
            members.n_ahead += 1;
            list(&mut members.ahead, node.clone());
            match answer {
                Answer::Acked => members.n_acked += 1,
                Answer::Pending => {
                    members.n_pending += 1;
                    list(&mut members.pending, node);
                }
                Answer::Nacked(message) if wave.failing.contains(&node) => {
                    list(&mut members.already_failing, NodeNack { node, message });
                }
                Answer::Nacked(message) => {
                    members.n_nacked += 1;
                    list(&mut members.nacked, NodeNack { node, message });
                }
            }
        }
        look
    }

    /// What is told of a rollout that is under way.
    pub(crate) fn report(&self, wave: &Wave) -> WaveReport {
        let phase = match wave.rollout.stage() {
            _ if wave.stopped.is_some() => WavePhase::Held,
            Stage::Progressing => WavePhase::Progressing,
            Stage::Holding => WavePhase::Holding,
            Stage::Paused => WavePhase::Paused,
        };
        let reason = wave.stopped.as_deref().map(str::to_owned);
        let paused = wave.paused.as_deref().filter(|_| phase == WavePhase::Paused).map(str::to_owned);
        WaveReport {
            rollout: wave.id,
            phase,
            reason: reason.or(paused),
            source: wave.source.clone(),
            actor: wave.actor.clone(),
            summary: wave.summary.clone(),
            objects: wave.held.keys().take(MAX_LISTED).map(|key| key.what()).collect(),
            policy: wave.rollout.policy().clone(),
            reached: wave.waves().collect(),
            began_at: wave.began_at,
            since: wave.since,
            next_at: (phase == WavePhase::Holding).then(|| wave.since + wave.rollout.policy().hold),
            members: self.look_at(wave).members,
        }
    }
}

/// What a stream has answered to what differs for it since `reached`.
fn answer(entry: &StreamEntry, change: &ViewChange, reached: xds_cache::Revision) -> Answer {
    let types = entry.concerned(change);
    entry.with(|status| {
        let answers = types.iter().map(|resource_type| match status.types.get(resource_type) {
            Some(status) if status.has_acked(reached) => Answer::Acked,
            Some(status) => match status.nack_since(reached) {
                Some(nack) => Answer::Nacked(nack.message.to_string()),
                None => Answer::Pending,
            },
            None => Answer::Pending,
        });
        answers.max().unwrap_or(Answer::Acked)
    })
}

fn list<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() < MAX_LISTED {
        entries.push(entry);
    }
}

/// Why a change is put back, in one line.
pub(crate) fn reason(members: &WaveMembers) -> String {
    let nacked = members.nacked.iter().take(MAX_NAMED).map(|nack| {
        let message: String = nack.message.chars().take(MAX_MESSAGE).collect();
        format!("{}: {message}", nack.node)
    });
    let more = if members.n_nacked > MAX_NAMED { "; …" } else { "" };
    format!(
        "rejected by {} of {} nodes: {}{more}",
        members.n_nacked,
        members.n_ahead,
        nacked.collect::<Vec<_>>().join("; ")
    )
}

/// How many nodes a reason names, and how much of each message it tells; the lists tell all.
const MAX_NAMED: usize = 3;
const MAX_MESSAGE: usize = 200;

/// The shortest time between two looks at the clients: a wave of thousands ends in thousands of answers.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);
