//! The servers that a question about clients is to: this one, and the others with the same store.
//!
//! All are asked at the same time. [`merge`] makes one page of theirs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use xds_access::Scope;
use xds_cache::Revision;
use xds_control::acks::{AcksQuery, AcksReport, Applied};
use xds_control::peers::{
    Answer, AskedServers, MissingReplica, Peers, Question, Reached, Replica, ReplicasReport, ScopeTexts,
    Union,
};

use crate::caller::Caller;
use crate::problem::{ApiError, Fault};
use crate::state::ApiState;

/// The parameter of a question that may be about one server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfReplica {
    pub(crate) replica: Option<String>,
}

/// The servers that are asked.
pub(crate) struct Everyone {
    peers: Arc<dyn Peers>,
    replicas: Vec<Replica>,
    /// The id of this server.
    own: String,
}

/// The result of waiting for clients.
pub(crate) struct Waited {
    pub(crate) report: AcksReport,
    /// What is said of the servers; `None` if this one is alone.
    pub(crate) union: Option<Union<Applied>>,
    /// Why the clients of all servers cannot be known.
    pub(crate) doubt: Option<String>,
}

/// What an answer says of the servers whose clients were waited for.
pub(crate) struct Servers {
    /// True if the clients of all servers are known.
    pub(crate) is_whole: bool,
    /// Doubts about that.
    pub(crate) warnings: Vec<Fault>,
    /// The servers, if they ask each other.
    pub(crate) replicas: Option<ReplicasReport>,
}

/// A part of a page, in order.
pub(crate) struct Part<T> {
    pub(crate) items: Vec<T>,
    /// True if the server has no more.
    pub(crate) is_last: bool,
}

impl Waited {
    /// What waiting for a revision comes to that changed nothing.
    pub(crate) fn for_nobody(revision: Revision) -> Self {
        let report = AcksReport { revision: revision.0, ..AcksReport::default() };
        Self { report, union: None, doubt: None }
    }

    /// The clients, and what an answer says of their servers.
    pub(crate) fn servers(self, state: &ApiState) -> (AcksReport, Servers) {
        let Self { report, union, doubt } = self;
        let is_whole = doubt.is_none() && union.as_ref().is_none_or(Union::is_complete);
        let Some(union) = union else {
            return (report, Servers { is_whole, warnings: vec![], replicas: None });
        };
        let is_linked = state.peers.as_ref().is_some_and(|peers| peers.is_linked());
        let replicas = union.report();
        let mut warnings: Vec<Fault> =
            doubt.map(|why| Fault::new(format!("{STRANGERS}: {why}"))).into_iter().collect();
        match is_linked {
            true => warnings.extend(replicas.missing.iter().map(|one| Fault::new(of_missing(one)))),
            false if !is_whole => warnings.push(Fault::new(OF_OTHERS)),
            false => {}
        }
        (report, Servers { is_whole, warnings, replicas: is_linked.then_some(replicas) })
    }
}

impl Everyone {
    /// All servers, or the one that is asked for; `None` if this one is to answer alone.
    ///
    /// # Errors
    ///
    /// [`ApiError::NotFound`] if there is no such server.
    pub(crate) fn new(state: &ApiState, only: Option<&str>) -> Result<Option<Self>, ApiError> {
        let unknown =
            |id: &str| ApiError::NotFound(format!("no server {id:?} is known; GET /v1/replicas lists them"));
        let Some(peers) = state.peers.as_ref().filter(|peers| peers.is_linked()) else {
            return only.map_or(Ok(None), |id| Err(unknown(id)));
        };
        let mut replicas = peers.replicas();
        let own = own_id(&replicas);
        if let Some(id) = only {
            replicas.retain(|replica| replica.id == id);
            if replicas.is_empty() {
                return Err(unknown(id));
            }
        }
        Ok(Some(Self { peers: Arc::clone(peers), replicas, own }))
    }

    /// Returns `true` if this server is one of them.
    pub(crate) fn has_own(&self) -> bool {
        self.replicas.iter().any(|replica| replica.is_own)
    }

    /// The clients of all that have applied a revision by now.
    pub(crate) async fn acks(
        self,
        query: &AcksQuery,
        scope: Option<&Scope>,
        own: Applied,
    ) -> (AcksReport, Union<Applied>) {
        let revision = query.revision;
        let question = Question::of_acks(query, Duration::ZERO, scope.map(scope_texts));
        let union = self.ask(question, own, |answer| answer.applied(revision)).await;
        (sum(&union, revision), union)
    }

    /// A page of each; that of this server is there.
    pub(crate) async fn pages<T: DeserializeOwned>(self, question: Question, own: T) -> Union<T> {
        self.ask(question, own, Answer::page).await
    }

    /// Asks all others at the same time.
    async fn ask<T>(
        self,
        question: Question,
        own: T,
        read: impl Fn(Answer) -> Result<T, String>,
    ) -> Union<T> {
        let mut union = Union::new(self.replicas, SystemTime::now());
        let questions = union.others().map(|id| (id.to_owned(), question.clone())).collect::<Vec<_>>();
        let mut asked = AskedServers::new(&self.peers, questions, PATIENCE);
        while let Some((id, answer)) = asked.next().await {
            union.tell(&id, answer.and_then(&read));
        }
        union.tell(&self.own, Ok(own));
        union
    }
}

/// A page of the server that drives rollouts and wave deployments, if that is another one and it answers.
pub(crate) async fn page_of_leader<T: DeserializeOwned>(state: &ApiState, question: Question) -> Option<T> {
    let peers = state.peers.as_ref().filter(|peers| peers.is_linked())?;
    let leader = peers.replicas().into_iter().find(|replica| replica.leads && !replica.is_own)?;
    peers.ask(leader.id, question, PATIENCE).await.ok()?.page().ok()
}

/// Waits until every client that is asked about has accepted a revision, on all servers, and at least so many have, or one that worked
/// before has rejected it, or the time is up.
pub(crate) async fn wait(
    state: &ApiState,
    caller: &Caller,
    (query, min_clients): (&AcksQuery, usize),
    timeout: Duration,
) -> Waited {
    let revision = query.revision;
    let deadline = Instant::now() + timeout;
    let sight = |groups: &[xds_cache::GroupName]| caller.sight_of_node(groups);
    let Some(peers) = &state.peers else {
        let applied = state.acks.wait_for(query, min_clients, timeout, sight).await.known();
        // What was changed here is published here.
        let report = applied.unwrap_or(AcksReport { revision: revision.0, ..AcksReport::default() });
        return Waited { report, union: None, doubt: None };
    };
    // Every server that may serve something older is known after this.
    let doubt = match timeout_at(deadline, peers.look()).await {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(_) => Some("the shared store did not answer in time".to_owned()),
    };
    let replicas = peers.replicas();
    let own_id = own_id(&replicas);
    let mut union = Union::new(replicas, SystemTime::now());
    let mut others = JoinSet::new();
    let (sender, mut answers) = mpsc::channel(MAX_WAITING);
    let scope = caller.scope().map(scope_texts);
    for id in union.others().filter(|_| peers.is_linked()).map(ToOwned::to_owned).collect::<Vec<_>>() {
        let goes_on = min_clients > 0;
        let question = OtherWait { query: query.clone(), scope: scope.clone(), deadline, goes_on };
        others.spawn(wait_for_other(Arc::clone(peers), id, question, sender.clone()));
    }
    drop(sender);
    let mut own = std::pin::pin!(state.acks.wait_for(query, 0, timeout, sight));
    let mut is_own_over = false;
    loop {
        let has_failed = union.answers().any(|(_, applied)| is_failed(applied));
        let is_waiting = union.answers().any(|(_, applied)| is_waiting(applied));
        let is_heard = !peers.is_linked() || union.is_complete();
        let is_short = sum(&union, revision).acked < min_clients;
        if has_failed || (is_own_over && is_heard && !is_waiting && !is_short) {
            break;
        }
        tokio::select! {
            applied = &mut own, if !is_own_over => {
                is_own_over = true;
                union.tell(&own_id, Ok(applied));
            }
            Some((id, answer)) = answers.recv() => union.tell(&id, answer),
            // Those that are to come may come to any server.
            () = sleep(SILENCE_PAUSE), if is_own_over && is_short => {
                union.tell(&own_id, Ok(state.acks.report_of(query, sight)));
            }
            () = sleep_until(deadline) => break,
        }
    }
    if !is_own_over {
        union.tell(&own_id, Ok(state.acks.report_of(query, sight)));
    }
    Waited { report: sum(&union, revision), union: Some(union), doubt }
}

/// The question that another server is asked until its clients have answered.
struct OtherWait {
    query: AcksQuery,
    scope: Option<ScopeTexts>,
    deadline: Instant,
    /// Clients that come later count too.
    goes_on: bool,
}

async fn wait_for_other(
    peers: Arc<dyn Peers>,
    id: String,
    OtherWait { query, scope, deadline, goes_on }: OtherWait,
    answers: mpsc::Sender<(String, Result<Applied, String>)>,
) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let question = Question::of_acks(&query, left.min(LONGEST_WAIT), scope.clone());
        let answer = peers.ask(id.clone(), question, LONGEST_WAIT + PATIENCE).await;
        let answer = answer.and_then(|answer| answer.applied(query.revision));
        let is_over =
            answer.as_ref().is_ok_and(|applied| is_failed(applied) || (!goes_on && !is_waiting(applied)));
        let is_silent = answer.as_ref().map_or(true, |applied| !is_waiting(applied));
        if answers.send((id.clone(), answer)).await.is_err() || is_over {
            return;
        }
        if is_silent {
            sleep(SILENCE_PAUSE).await;
        }
    }
}

/// What the clients of all come to.
fn sum(union: &Union<Applied>, revision: Revision) -> AcksReport {
    let mut all = AcksReport { revision: revision.0, ..AcksReport::default() };
    for (_, applied) in union.answers() {
        // A server that forgot it, or came later, has no clients that it concerns.
        if let Applied::Known(report) = applied {
            all.add(report);
        }
    }
    all
}

fn is_waiting(applied: &Applied) -> bool {
    matches!(applied, Applied::Known(report) if report.is_waiting())
}

fn is_failed(applied: &Applied) -> bool {
    matches!(applied, Applied::Known(report) if report.n_nacked > 0)
}

fn own_id(replicas: &[Replica]) -> String {
    replicas.iter().find(|replica| replica.is_own).map(|own| own.id.clone()).unwrap_or_default()
}

/// What a caller that waits is told, if the servers with the same store do not ask each other.
const OF_OTHERS: &str = "the clients of this server are counted alone: those of the other servers with the same store may not have the change (--peer-listen lets the servers ask each other)";

/// The same if it is not known which servers there are.
const STRANGERS: &str = "other servers may have joined whose clients are not counted";

/// The same of a server that did not answer.
fn of_missing(replica: &MissingReplica) -> String {
    let MissingReplica { id, since, why, forgiven } = replica;
    match forgiven {
        true => format!("the clients of the server {id} do not count any more: {why} (gone since {since})"),
        false => format!(
            "the clients of the server {id} are not counted and may not have the change: {why} (since {since})"
        ),
    }
}

/// A scope as another server is told it.
pub(crate) fn scope_texts(scope: &Scope) -> ScopeTexts {
    let [groups, namespaces] = scope.texts();
    ScopeTexts { groups, namespaces }
}

/// Makes one page of at most `limit` items of the parts of several servers, each of which is in the order of `key` and has the first of what
/// its server has. Items with the same key are joined. Says whether there are more.
pub(crate) fn merge<T>(
    parts: Vec<Part<T>>,
    limit: usize,
    key: impl Fn(&T) -> String,
    join: impl Fn(&mut T, T),
) -> (Vec<T>, bool) {
    // Of a server that has more, nothing is known behind its last item.
    let ends = parts.iter().filter(|part| !part.is_last).filter_map(|part| part.items.last().map(&key));
    let horizon = ends.min();
    let mut items: Vec<T> = parts.into_iter().flat_map(|part| part.items).collect();
    items.sort_by_cached_key(&key);
    let mut merged: Vec<T> = Vec::new();
    let mut has_more = horizon.is_some();
    for item in items {
        let of_item = key(&item);
        if let Some(last) = merged.last_mut().filter(|last| key(last) == of_item) {
            join(last, item);
            continue;
        }
        if merged.len() >= limit || horizon.as_ref().is_some_and(|horizon| of_item > *horizon) {
            has_more = true;
            break;
        }
        merged.push(item);
    }
    (merged, has_more)
}

/// Whether a server is reached, in one word.
pub(crate) const fn reached(replica: &Replica) -> &'static str {
    match replica.reached {
        Reached::Yes(_) => "yes",
        Reached::No { .. } => "no",
        Reached::Gone { .. } => "gone",
    }
}

/// The largest page that is asked of another server, in items.
pub(crate) const MAX_ASKED: usize = 1_000;

/// How long another server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long another server waits for its clients before it says how they are.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Before a server that does not answer is asked again.
const SILENCE_PAUSE: Duration = Duration::from_millis(250);

/// Answers that wait to be counted.
const MAX_WAITING: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn part(items: &[&str], is_last: bool) -> Part<(String, usize)> {
        Part { items: items.iter().map(|item| ((*item).to_owned(), 1)).collect(), is_last }
    }

    fn merged(parts: Vec<Part<(String, usize)>>, limit: usize) -> String {
        let (items, has_more) = merge(parts, limit, |item| item.0.clone(), |known, other| known.1 += other.1);
        let items = items.iter().map(|(name, n)| if *n == 1 { name.clone() } else { format!("{name}{n}") });
        format!("{}{}", items.collect::<Vec<_>>().join(" "), if has_more { " …" } else { "" })
    }

    #[test]
    fn pages_of_several_servers_become_one_without_gaps() {
        let all = |limit| merged(vec![part(&["a", "c", "e"], true), part(&["b", "c"], true)], limit);
        assert_eq!(all(9), "a b c2 e");
        assert_eq!(all(4), "a b c2 e");
        assert_eq!(all(3), "a b c2 …");
        assert_eq!(all(1), "a …");
        // The first has more behind `c`, so nothing is known behind it.
        assert_eq!(merged(vec![part(&["a", "c"], false), part(&["b", "c", "d"], true)], 9), "a b c2 …");
        assert_eq!(merged(vec![part(&["a", "c"], false), part(&["b"], false)], 9), "a b …");
        assert_eq!(merged(vec![part(&["x"], true), part(&[], true)], 9), "x");
        assert_eq!(merged(vec![], 9), "");
    }
}
