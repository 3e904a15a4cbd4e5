//! The order of nodes in a wave deployment, by values of the connected ones, such as their zones.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use xds_cache::wave::{By, Census, Order, Ranking, Share};
use xds_cache::{GroupName, Node, WavePolicy};

use crate::acks::MAX_LISTED;
use crate::env::Env;
use crate::model::wave::{ValueState, WaveClients, WaveValue};

/// How the nodes of a census are ranked. They are not ranked while none has a value: a misspelt key of the metadata would put all of
/// them into the first wave. Without any node, `allowEmpty` decides.
pub(crate) fn ranking(policy: &WavePolicy, census: &Census) -> Ranking {
    if policy.by == By::Hash {
        return Ranking::Hash;
    }
    let may_be_empty = policy.allow_empty && census.n_unknown == 0;
    if census.values.is_empty() && !may_be_empty {
        return Ranking::Awaited;
    }
    Ranking::Ordered(Arc::new(Order::new(policy.by.clone(), &policy.order, census)))
}

/// How the nodes are ranked that a change of these groups concerns. If other servers have clients too, they are asked first.
pub(crate) fn ranking_of(env: &Env, policy: &WavePolicy, changed: &BTreeSet<&GroupName>) -> Ranking {
    if policy.by == By::Hash {
        return Ranking::Hash;
    }
    if env.shares_store() {
        return Ranking::Awaited;
    }
    let concerns = |node: &Node| {
        let view = env.parts.publisher.view_of(node);
        view.is_some_and(|view| view.key().groups.iter().any(|name| changed.contains(&name)))
    };
    ranking(policy, &census(env, &policy.by, concerns))
}

/// Returns `true` if the wave deployment that is under way concerns a node.
pub(crate) fn concerns(env: &Env, node: &Node) -> bool {
    env.parts.publisher.is_ahead(node).is_some()
}

/// Counts the values of the connected nodes; one that has several clients counts once.
pub(crate) fn census(env: &Env, by: &By, concerns: impl Fn(&Node) -> bool) -> Census {
    let mut census = Census::default();
    let mut counted = HashSet::new();
    for entry in env.parts.board.streams() {
        let node = entry.with(|status| Arc::clone(&status.info.node));
        if concerns(&node) && counted.insert(node.id.clone()) {
            census.add(by.value_of(&node).as_deref());
        }
    }
    census
}

/// Adds the nodes of another server; one that is connected to both counts twice.
pub(crate) fn add(census: &mut Census, clients: &WaveClients) {
    for (value, n) in &clients.values {
        *census.values.entry(value.as_str().into()).or_default() += n;
    }
    census.n_unknown += clients.n_unknown;
}

/// How many connected nodes of each value are ahead and behind.
#[derive(Debug)]
pub(crate) struct Tally {
    order: Option<Arc<Order>>,
    /// As many as there are values, and one for the nodes of no value.
    counts: Vec<(usize, usize)>,
}

impl Tally {
    pub(crate) fn new(order: Option<&Arc<Order>>) -> Self {
        let n_values = order.map_or(0, |order| order.values().len() + 1);
        Self { order: order.cloned(), counts: vec![(0, 0); n_values] }
    }

    /// Counts a node.
    pub(crate) fn add(&mut self, node: &Node, is_ahead: bool) {
        let Some(order) = &self.order else { return };
        let at = order.index_of(node).unwrap_or(order.values().len());
        if let Some((n_ahead, n_behind)) = self.counts.get_mut(at) {
            *(if is_ahead { n_ahead } else { n_behind }) += 1;
        }
    }

    /// The report about values if the nodes of this share are ahead. Nodes without a value have an entry if there are any.
    pub(crate) fn values(&self, share: Option<Share>) -> Vec<WaveValue> {
        let Some(order) = &self.order else { return vec![] };
        let values = order.values().iter();
        let named = values.map(|one| (Some(one.value.to_string()), one.end)).enumerate();
        let named = named.map(|(at, (value, end))| (value, end, order.part(Some(at))));
        let ahead = share.map_or(0, Share::hundredths);
        let all = named.chain([(None, Share::ALL, order.part(None))]).zip(&self.counts);
        let told = all.filter(|((value, ..), counts)| value.is_some() || **counts != (0, 0));
        let told = told.map(|((value, end, (start, _)), (n_ahead, n_behind))| WaveValue {
            value,
            state: match ahead {
                ahead if ahead >= end.hundredths() => ValueState::Ahead,
                ahead if ahead > start => ValueState::Partly,
                _ => ValueState::Behind,
            },
            share: end.to_string(),
            n_ahead: *n_ahead,
            n_behind: *n_behind,
        });
        told.take(MAX_LISTED).collect()
    }
}
