//! Answers to the questions of other servers with the same store, about the clients of this one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use xds_access::{Identified, Patterns, Principal, Scope};
use xds_cache::time::millis;
use xds_cache::{Glob, GroupName, Revision};
use xds_control::acks::{AcksQuery, Whose};
use xds_control::peers::{Answer, Question, ScopeTexts};
use xds_rollout::RolloutSpec;

use crate::caller::Caller;
use crate::endpoint::loads::{self, LoadList, LoadQuery};
use crate::endpoint::nodes::{self, NodeList, NodeQuery};
use crate::endpoint::waves::WaveList;
use crate::everyone::MAX_ASKED;
use crate::fleet::{Fleet, FleetQuery};
use crate::page;
use crate::state::{ApiState, aside};

/// Answers another server, which has let its caller in.
///
/// # Errors
///
/// Why there is no answer.
pub async fn answer(state: &ApiState, question: Question) -> Result<Answer, String> {
    match question {
        Question::Acks { revision, wait_ms, scope } => {
            Ok(acks(state, &AcksQuery::concerned(Revision(revision)), wait_ms, scope).await)
        }
        Question::AcksOf { revision, everyone, nodes, wait_ms, scope } => {
            let of = if everyone { Whose::Everyone } else { Whose::Concerned };
            let nodes = nodes.as_deref().map(Glob::new);
            Ok(acks(state, &AcksQuery { revision: Revision(revision), of, nodes }, wait_ms, scope).await)
        }
        Question::Nodes { id, limit, after, status, group, scope } => {
            let status = status.as_deref().map(nodes::read_status).transpose();
            let status = status.map_err(|error| error.to_string())?;
            let query = NodeQuery { id, limit: limit.min(MAX_ASKED), after, status, group };
            let (state, caller) = (state.clone(), caller(scope));
            work(move || {
                let NodeList { mut nodes, mut next, .. } = nodes::page(&state, &caller, &query);
                if cut(&mut nodes)? {
                    next = nodes.last().map(|node| node.id.clone());
                }
                page_of(&NodeList { nodes, next, replicas: None })
            })
            .await
        }
        Question::Fleet { query, scope } => {
            let (state, caller) = (state.clone(), caller(scope));
            work(move || fleet(&state, &caller, query)).await
        }
        Question::Wave(question) => {
            let control = state.control.clone();
            work(move || control.wave_clients(&question).map(|clients| Answer::Wave(Box::new(clients)))).await
        }
        Question::Waves => {
            let control = state.control.clone();
            work(move || page_of(&WaveList::of(control.waves().iter()))).await
        }
        Question::RolloutAcks { spec, change, revision, nodes } => {
            let state = state.clone();
            work(move || {
                let acks = state.rollouts.acks_here(&spec, change, Revision(revision), &nodes);
                acks.map(|clients| Answer::RolloutAcks(Box::new(clients)))
                    .ok_or_else(|| format!("it does not serve revision {revision} yet"))
            })
            .await
        }
        Question::RolloutLoads { spec, ago_ms, more_ago_ms } => {
            let state = state.clone();
            work(move || rollout_loads(&state, &spec, ago_ms, more_ago_ms)).await
        }
        Question::Loads { cluster, node, ago_ms, limit, after, scope } => {
            let now = SystemTime::now();
            let ago = |ms| now.checked_sub(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH);
            let query =
                LoadQuery { cluster, node, from: ago_ms.map(ago), limit: limit.min(MAX_ASKED), after };
            let (state, caller) = (state.clone(), caller(scope));
            work(move || load_page(&state, &caller, &query, now)).await
        }
    }
}

async fn acks(state: &ApiState, query: &AcksQuery, wait_ms: u64, scope: Option<ScopeTexts>) -> Answer {
    let caller = caller(scope);
    let sight = |groups: &[GroupName]| caller.sight_of_node(groups);
    Answer::Acks(match Duration::from_millis(wait_ms).min(MAX_WAIT) {
        Duration::ZERO => state.acks.report_of(query, sight),
        wait => state.acks.wait_for(query, 0, wait, sight).await,
    })
}

fn load_page(
    state: &ApiState,
    caller: &Caller,
    query: &LoadQuery,
    now: SystemTime,
) -> Result<Answer, String> {
    let mut list = loads::page(state, caller, query, now).map_err(|error| error.to_string())?;
    if cut(&mut list.clusters)? {
        list.next = list.clusters.last().map(|load| page::place(&[&load.name]));
    }
    page_of::<LoadList>(&list)
}

fn fleet(state: &ApiState, caller: &Caller, query: Value) -> Result<Answer, String> {
    let query: FleetQuery = serde_json::from_value(query).map_err(|error| error.to_string())?;
    let query = query.check().map_err(|error| error.to_string())?;
    let mut fleet = Fleet::here(state, caller, &query);
    cut(&mut fleet.nodes)?;
    page_of(&fleet)
}

/// Somebody who may see what this scope has.
fn caller(scope: Option<ScopeTexts>) -> Caller {
    let Some(scope) = scope else { return Caller::default() };
    let [groups, namespaces] =
        [&scope.groups, &scope.namespaces].map(|texts| Patterns::of_texts(texts.as_deref()));
    let scope = Scope::new(groups, namespaces);
    let principal = Arc::new(Principal::of_another_server(scope));
    Caller::of(Identified { actor: Arc::clone(&principal.name), via: "peer".into(), principal, ends: None })
}

/// Leaves out the last items of a page that is too large to be sent. At least one is left. Says whether any was left out.
fn cut<T: serde::Serialize>(items: &mut Vec<T>) -> Result<bool, String> {
    let mut n_bytes = 0;
    let mut n_kept = 0;
    for item in &*items {
        n_bytes += serde_json::to_string(item).map_err(|error| error.to_string())?.len();
        if n_bytes > MAX_PAGE_BYTES && n_kept > 0 {
            break;
        }
        n_kept += 1;
    }
    let is_cut = n_kept < items.len();
    items.truncate(n_kept);
    Ok(is_cut)
}

fn page_of<T: serde::Serialize>(page: &T) -> Result<Answer, String> {
    serde_json::to_value(page).map(Answer::Page).map_err(|error| error.to_string())
}

async fn work(make: impl FnOnce() -> Result<Answer, String> + Send + 'static) -> Result<Answer, String> {
    aside(make).await.map_err(|error| error.to_string())?
}

/// The requests to the backends of a rollout in windows that begin so long ago.
fn rollout_loads(
    state: &ApiState,
    spec: &RolloutSpec,
    ago_ms: u64,
    more_ago_ms: Vec<u64>,
) -> Result<Answer, String> {
    let now_ms = millis(SystemTime::now());
    let ago_ms = std::iter::once(ago_ms).chain(more_ago_ms).take(MAX_WINDOWS);
    let starts: Vec<u64> = ago_ms.map(|ago_ms| now_ms.saturating_sub(ago_ms)).collect();
    let evidence = state.rollouts.evidence_here(spec, &starts);
    let evidence = evidence.ok_or("some load reports had no room, so the numbers are too small")?;
    let whole = evidence.windows.first().copied().unwrap_or_default();
    let (canary, stable) = (whole.canary.counts, whole.stable.counts);
    let (windows, silence) = (evidence.windows, evidence.silence);
    Ok(Answer::RolloutLoads { canary, stable, windows, silence })
}

/// How long an answer waits for clients at most.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Bytes of a page: some thousand nodes.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The most windows that are added up for one question; a rollout has fewer.
const MAX_WINDOWS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_too_large_is_cut_but_never_to_nothing() {
        let text = |n: usize| "x".repeat(n);
        let mut items = vec![text(3_000_000), text(1_000_000), text(1_000_000)];
        assert_eq!(cut(&mut items), Ok(true));
        assert_eq!(items.len(), 2);
        let mut items = vec![text(9_000_000), text(1)];
        assert_eq!(cut(&mut items), Ok(true));
        assert_eq!(items.len(), 1);
        let mut items = vec![text(1), text(1)];
        assert_eq!(cut(&mut items), Ok(false));
    }

    #[test]
    fn another_server_is_told_the_scope_of_its_caller() {
        let group = |name: &str| [GroupName::new(name).unwrap()];
        assert!(caller(None).sees_node(&group("edge")));
        let texts = ScopeTexts { groups: Some(vec!["ed*".to_owned()]), namespaces: None };
        let scoped = caller(Some(texts.clone()));
        assert!(scoped.sees_node(&group("edge")) && !scoped.sees_node(&group("mesh")));
        assert_eq!(scoped.scope().map(crate::everyone::scope_texts), Some(texts));
    }
}
