//! Reports about wave deployments: the state of their clients, and how they ended.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use xds_cache::loads::Since;
use xds_cache::status::StreamEntry;
use xds_cache::wave::{
    AWAY_TIME, ClientId, Deployment, Fault, Loss, Losses, Members, Obstacle, Present, Seen, Split, Stage,
};
use xds_cache::{AHEAD, GroupName, Node, ViewKey};
use xds_rollout::{Comparison, Counts, compare};
use xds_units::Percent;

use super::rank::{self, Tally};
use super::value::Wave;
use crate::accepted::Accepted;
use crate::acks::{AckState, Changed, Fold, MAX_LISTED, NodeNack, Sight};
use crate::connected::{NodesAsked, NodesTold, released};
use crate::elsewhere::Known;
use crate::env::{At, Env};
use crate::model::wave::{
    LostNode, RequestCounts, UnknownServer, WaveClients, WaveMembers, WavePhase, WaveQuestion, WaveReport,
    WaveRequests,
};

/// How the clients of a wave deployment are.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) members: WaveMembers,
    /// Those ahead, by node id.
    pub(crate) present: BTreeMap<Arc<str>, Present>,
    /// True if requests of those ahead fail more often than the policy lets them.
    pub(crate) is_failing: bool,
    /// Members that are connected, and that the wave deployment does not concern any more.
    pub(crate) released: HashSet<String>,
}

/// The state of members by which a wave deployment decides.
pub(crate) fn seen(members: &WaveMembers, losses: Losses, is_failing: bool) -> Seen {
    let WaveMembers { n_ahead, n_pending, n_nacked, unknown, .. } = members;
    // A server whose clients are not known may have members that have not answered.
    let (n_members, n_pending) = (n_ahead + unknown.len(), n_pending + unknown.len());
    Seen { n_members, n_pending, n_nacked: *n_nacked, losses, is_failing }
}

/// Why a wave deployment has paused itself, in one line.
pub(crate) fn why_paused(deployment: &Deployment, members: &WaveMembers) -> String {
    let WaveMembers { n_ahead, n_pending, n_away, unknown, .. } = members;
    match deployment.obstacle() {
        Some(Obstacle::Lost) => lost_text(members),
        Some(Obstacle::Empty) => "no connected node is in this wave, and none connected in time".to_owned(),
        Some(Obstacle::Unanswered) if !unknown.is_empty() => unknown_text(unknown),
        Some(Obstacle::Away) => format!("{n_away} nodes that had it did not come back in time"),
        Some(Obstacle::Unanswered) | None => {
            format!("{n_pending} of {n_ahead} nodes have not answered in time")
        }
    }
}

/// Looks at the connected clients, those of other servers with the same store too, as far as they are known.
pub(crate) fn look_at(env: &Env, wave: &Wave, at: At) -> Look {
    let mut look = look_here(env, wave, counts_since(wave), at);
    for Known { id, said, nodes } in env.elsewhere.servers(wave.place(), at.clock) {
        nodes.add_to(&mut look.present, &id);
        match said {
            Ok(clients) => {
                look.members.add(&clients.members);
                look.released.extend(clients.nodes.released.iter().cloned());
            }
            Err(why) => look.members.unknown.push(UnknownServer { id, why }),
        }
    }
    if !look.members.unknown.is_empty() {
        // What is known of them is no whole.
        look.members.requests = look.members.requests.map(|_| WaveRequests::default());
    }
    look.is_failing = look.members.requests.is_some_and(|requests| is_failing(wave, requests));
    tell_lost(&mut look.members, &wave.members, at.clock);
    look
}

/// The question to other servers about their clients.
pub(crate) fn question(wave: &Wave, now: SystemTime) -> WaveQuestion {
    let (deployment, revision) = wave.place();
    let ago = counts_since(wave).map(|since| now.duration_since(since).unwrap_or_default());
    let ago_ms = ago.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
    WaveQuestion { deployment, revision, ago_ms, nodes: NodesAsked::about(wave.members.absent()) }
}

/// From when on requests count, if they do.
fn counts_since(wave: &Wave) -> Option<SystemTime> {
    let counts =
        wave.deployment.policy().max_error_rate.is_some() && wave.deployment.stage() == Stage::Holding;
    counts.then_some(wave.since)
}

/// The clients of a wave deployment that are this server's own, for another one that drives it.
///
/// # Errors
///
/// If this server does not serve that wave.
pub(crate) fn clients_of(
    env: &Env,
    accepted: &Accepted,
    question: &WaveQuestion,
    at: At,
) -> Result<WaveClients, String> {
    let asked = (question.deployment, question.revision);
    let wave = accepted.wave.as_deref().filter(|wave| wave.place() == asked);
    let wave = wave.ok_or_else(|| format!("it does not serve revision {} yet", question.revision))?;
    let ago = question.ago_ms.map(Duration::from_millis);
    let since = ago.map(|ago| at.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH));
    let Look { members, present, .. } = look_here(env, wave, since, at);
    let is_behind = |node: &Node| env.parts.publisher.is_ahead(node) != Some(true);
    let released = released(&env.parts.board, &question.nodes.absent, is_behind);
    let nodes = NodesTold::new(present, released, &question.nodes);
    let mut clients = WaveClients { members, nodes, ..WaveClients::default() };
    if wave.ranking.is_awaited() {
        let by = &wave.deployment.policy().by;
        let census = rank::census(env, by, |node| rank::concerns(env, node));
        let values = census.values.into_iter().map(|(value, n)| (value.to_string(), n));
        (clients.values, clients.n_unknown) = (values.collect(), census.n_unknown);
    }
    Ok(clients)
}

/// Looks at the clients of this server. A node is a member if the publisher would serve it the state ahead, even if its streams do not
/// follow that yet. It has ACKed if every stream uses all resources that differ, or subscribes to none of them; what it answered to other
/// resources does not count. Requests count from `since` on, if there is one.
fn look_here(env: &Env, wave: &Wave, since: Option<SystemTime>, at: At) -> Look {
    let publisher = &env.parts.publisher;
    let mut changes: HashMap<ViewKey, Changed> = HashMap::new();
    let mut answers: BTreeMap<String, Fold> = BTreeMap::new();
    let mut look = Look::default();
    let mut behind = BTreeSet::new();
    let mut tally = Tally::new(wave.ranking.order());
    for entry in env.parts.board.streams() {
        let node = entry.with(|status| Arc::clone(&status.info.node));
        let is_ahead = publisher.is_ahead(&node);
        if is_ahead != Some(true) {
            if wave.members.contains(&node.id) {
                look.released.insert(node.id.clone());
            }
            if is_ahead == Some(false) && behind.insert(node.id.clone()) {
                tally.add(&node, false);
            }
            continue;
        }
        let (Some(view), Some(reached)) = (publisher.view_of(&node), wave.reached_by(&node)) else {
            continue;
        };
        add_client(&mut look.present, &entry);
        let change = changes.entry(view.key().clone()).or_insert_with_key(|key| {
            let former = publisher.view_at(&ViewKey { cohort: 0, ..key.clone() });
            let present = publisher.view_at(&ViewKey { cohort: AHEAD, ..key.clone() });
            Changed::new(present.as_deref().unwrap_or(&view).change_since(former.as_deref()))
        });
        let answer = answers.entry(node.id.clone()).or_insert_with(|| {
            tally.add(&node, true);
            Fold::default()
        });
        answer.count();
        if let Some(stream) = change.concerned(&entry) {
            answer.read(&entry, &stream, reached, |of, name| wave.failing.has(&node.id, of, name));
        }
    }
    look.members.requests = since.map(|since| requests(env, (&look.present, &behind), since, at));
    let members = &mut look.members;
    members.values = tally.values(wave.share());
    members.n_behind = behind.len();
    members.behind = behind.into_iter().take(MAX_LISTED).collect();
    for (node, answer) in answers {
        count(members, node, &answer.state());
    }
    look
}

/// The requests reported since a time.
fn requests(
    env: &Env,
    (ahead, behind): (&BTreeMap<Arc<str>, Present>, &BTreeSet<String>),
    since: SystemTime,
    at: At,
) -> WaveRequests {
    let since = Since { from: Some(since), now: at.wall };
    let part = |node: &str| match (ahead.contains_key(node), behind.contains(node)) {
        (true, _) => Some(0),
        (false, true) => Some(1),
        (false, false) => None,
    };
    let [ahead, behind] = env
        .parts
        .loads
        .by_part(since, part)
        .map(|counts| RequestCounts { requests: counts.finished(), failures: counts.errors });
    WaveRequests { ahead, behind }
}

/// The clients of the nodes that a wave reaches if it changes these groups.
pub(crate) fn connected(
    env: &Env,
    split: &Split,
    groups: &BTreeSet<&GroupName>,
) -> BTreeMap<Arc<str>, Present> {
    let mut present = BTreeMap::new();
    for entry in env.parts.board.streams() {
        let node = entry.with(|status| Arc::clone(&status.info.node));
        let Some(view) = env.parts.publisher.view_of(&node).filter(|_| split.is_ahead(&node)) else {
            continue;
        };
        if view.key().groups.iter().any(|name| groups.contains(&name)) {
            add_client(&mut present, &entry);
        }
    }
    present
}

/// The report about the current wave deployment.
pub(crate) fn report(env: &Env, wave: &Wave, at: At) -> WaveReport {
    let phase = match wave.deployment.stage() {
        _ if wave.stopped.is_some() => WavePhase::Held,
        Stage::Progressing => WavePhase::Progressing,
        Stage::Holding => WavePhase::Holding,
        Stage::Paused => WavePhase::Paused,
    };
    let reason = wave.stopped.as_deref().map(str::to_owned);
    let paused = wave.paused.as_deref().filter(|_| phase == WavePhase::Paused).map(str::to_owned);
    let members = look_at(env, wave, at).members;
    WaveReport {
        deployment: wave.id,
        phase,
        reason: reason.or(paused).or_else(|| waits_for(wave, &members)),
        source: wave.source.clone(),
        actor: wave.actor.clone(),
        summary: wave.summary.clone(),
        objects: wave.previous.keys().take(MAX_LISTED).map(|key| key.what()).collect(),
        policy: wave.deployment.policy().clone(),
        reached: wave.waves().collect(),
        began_at: wave.began_at,
        since: wave.since,
        next_at: (phase == WavePhase::Holding).then(|| wave.since + wave.deployment.policy().hold),
        members,
    }
}

/// Returns `true` if requests fail more often where the change is than the policy lets them: the judge is that of rollouts.
fn is_failing(wave: &Wave, requests: WaveRequests) -> bool {
    let Some(bound) = wave.deployment.policy().max_error_rate else { return false };
    let counts = |counts: RequestCounts| Counts { requests: counts.requests, failures: counts.failures };
    let bound = Percent::from(bound);
    compare(counts(requests.ahead), counts(requests.behind), bound, MIN_REQUESTS) == Comparison::Exceeds
}

/// Why a wave deployment waits that was not stopped, if members that have not answered are not the only reason.
fn waits_for(wave: &Wave, members: &WaveMembers) -> Option<String> {
    let is_paused = wave.deployment.stage() == Stage::Paused;
    if !members.unknown.is_empty() && wave.stopped.is_none() && !is_paused {
        return Some(unknown_text(&members.unknown));
    }
    if wave.ranking.is_awaited() {
        let by = &wave.deployment.policy().by;
        return Some(format!(
            "its waves are ordered by {by}, and no connected node that it concerns has a value for that: it waits for one, or for :promote"
        ));
    }
    let text = match wave.deployment.obstacle()? {
        Obstacle::Empty => {
            "no connected node is in this wave: it waits for one, or for :promote; allowEmpty would let it pass"
        }
        Obstacle::Away => "members are away; it waits for them to come back",
        Obstacle::Unanswered | Obstacle::Lost => return None,
    };
    (!is_paused).then(|| text.to_owned())
}

/// Why it waits for other servers, in one line.
fn unknown_text(unknown: &[UnknownServer]) -> String {
    let servers = unknown.iter().map(|one| (&one.id, &one.why));
    format!("the clients of {} servers are not known: {}", unknown.len(), named(servers, unknown.len()))
}

/// Notes that the node of a stream is connected. A stream without a first request has no node.
fn add_client(present: &mut BTreeMap<Arc<str>, Present>, entry: &StreamEntry) {
    entry.with(|status| {
        if status.types.is_empty() {
            return;
        }
        let client = match status.info.service {
            Some(_) => ClientId::Address(Arc::clone(&status.info.address)),
            None => ClientId::Stream(status.info.id),
        };
        let node = status.info.node.id.as_str();
        let clients = match present.get_mut(node) {
            Some(clients) => clients,
            None => present.entry(node.into()).or_default(),
        };
        *clients.entry(client).or_default() |= status.types.values().any(|status| status.came_back);
    });
}

fn count(members: &mut WaveMembers, node: String, answer: &AckState) {
    members.n_ahead += 1;
    list(&mut members.ahead, node.clone());
    match answer {
        AckState::Acked { .. } | AckState::Gone => members.n_acked += 1,
        AckState::Pending | AckState::Unknown => {
            members.n_pending += 1;
            list(&mut members.pending, node);
        }
        AckState::Nacked(rejected) => {
            let nack = rejected.of_node(node, Sight::Words);
            if rejected.failed_before {
                list(&mut members.already_failing, nack);
            } else {
                members.n_nacked += 1;
                list(&mut members.nacked, nack);
            }
        }
    }
}

/// Tells which of the nodes that the waves have reached are not as they were.
pub(crate) fn tell_lost(members: &mut WaveMembers, known: &Members, now: Instant) {
    let losses = known.losses(now);
    (members.n_away, members.n_lost) = (losses.n_away, losses.n_gone + losses.n_restarted);
    let lost = known.lost(now).take(MAX_LISTED).map(|(node, loss)| {
        let reason = match loss {
            Loss::Gone => format!("gone for more than {} s", AWAY_TIME.as_secs()),
            Loss::Restarted(1) => "restarted: it came back with no configuration".to_owned(),
            Loss::Restarted(n) => format!("restarted {n} times: it came back with no configuration"),
        };
        LostNode { node: node.to_string(), reason }
    });
    members.lost = lost.collect();
}

fn list<T>(entries: &mut Vec<T>, entry: T) {
    if entries.len() < MAX_LISTED {
        entries.push(entry);
    }
}

/// Why a change is put back, in one line.
pub(crate) fn reason(members: &WaveMembers, fault: Fault) -> String {
    let n_ahead = members.n_ahead;
    match fault {
        Fault::Nacked => {
            let words: Vec<String> = members.nacked.iter().take(MAX_NAMED).map(NodeNack::words).collect();
            let nacked = members.nacked.iter().zip(&words).map(|(nack, words)| (&nack.node, words));
            format!(
                "rejected by {} of {n_ahead} nodes: {}",
                members.n_nacked,
                named(nacked, members.n_nacked)
            )
        }
        Fault::Restarted => lost_text(members),
        Fault::Failing => {
            let WaveRequests { ahead, behind } = members.requests.unwrap_or_default();
            format!(
                "{} of {} requests of the nodes that have it failed, and {} of {} of the others",
                ahead.failures, ahead.requests, behind.failures, behind.requests
            )
        }
    }
}

/// The lost members, in one line.
pub(crate) fn lost_text(members: &WaveMembers) -> String {
    let lost = members.lost.iter().map(|lost| (&lost.node, &lost.reason));
    format!("{} nodes that had it are lost: {}", members.n_lost, named(lost, members.n_lost))
}

/// The first of `n_all` nodes, each with its message.
fn named<'a>(nodes: impl Iterator<Item = (&'a String, &'a String)>, n_all: usize) -> String {
    let nodes = nodes.take(MAX_NAMED).map(|(node, message)| {
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        format!("{node}: {message}")
    });
    let more = if n_all > MAX_NAMED { "; …" } else { "" };
    format!("{}{more}", nodes.collect::<Vec<_>>().join("; "))
}

/// From how many requests on, ahead and behind, their failures say something.
const MIN_REQUESTS: u64 = 10;

/// How often requests are looked at while a wave is held.
pub(crate) const HEALTH_INTERVAL: Duration = Duration::from_secs(2);

/// The most nodes that a reason names, and the most bytes of each message; the lists have all.
const MAX_NAMED: usize = 3;
const MAX_MESSAGE: usize = 200;

/// The shortest time between two looks at the clients: a wave of thousands ends in thousands of answers.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The wave deployment that is under way, and those that ended.
pub(crate) fn reports(env: &Env, accepted: &Accepted, at: At) -> Vec<WaveReport> {
    let active = accepted.wave.as_deref().map(|wave| report(env, wave, at));
    let is_active =
        |report: &WaveReport| active.as_ref().is_some_and(|active| active.deployment == report.deployment);
    let ended = accepted.ended.waves.iter().map(|one| &one.report);
    let ended: Vec<WaveReport> = ended.filter(|report| !is_active(report)).cloned().collect();
    active.into_iter().chain(ended).collect()
}
