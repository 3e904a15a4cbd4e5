//! What is known of each node as which a server is asked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use xds_api::{RefusedResource, Relay, RelayedNode};

/// What is known of each node, for people.
#[derive(Debug)]
pub(crate) struct Board(Mutex<Vec<RelayedNode>>);

impl Board {
    pub(super) fn new(nodes: Vec<RelayedNode>) -> Self {
        Self(Mutex::new(nodes))
    }

    /// Changes what is known of a node, and returns what is wrong with any.
    pub(super) fn note(&self, index: usize, change: impl FnOnce(&mut RelayedNode)) -> Option<String> {
        let mut nodes = lock(&self.0);
        if let Some(node) = nodes.get_mut(index) {
            change(node);
        }
        let mut problems = nodes.iter().filter_map(problem);
        let shown: Vec<String> = problems.by_ref().take(MAX_PROBLEMS).collect();
        let n_more = problems.count();
        let more = if n_more > 0 { format!("; and {n_more} more") } else { String::new() };
        (!shown.is_empty()).then(|| format!("--relay: {}{more}", shown.join("; ")))
    }
}

impl Relay for Board {
    fn nodes(&self) -> Vec<RelayedNode> {
        lock(&self.0).clone()
    }
}

fn problem(node: &RelayedNode) -> Option<String> {
    if let Some(why) = &node.problem {
        return Some(format!("the group {:?} is served what it was last sent: {why}", node.group.as_str()));
    }
    let RefusedResource { why, .. } = node.refused.first()?;
    let n_more = node.n_refused - 1;
    let more = if n_more > 0 { format!(" (and {n_more} more)") } else { String::new() };
    Some(format!(
        "the group {:?} has earlier versions of what cannot be used: {why}{more}",
        node.group.as_str()
    ))
}

/// Locks, whatever happened to others who held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Problems of nodes that are told together.
const MAX_PROBLEMS: usize = 3;
