//! Depth and cycles of aggregate clusters (rows B178, B179).

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::Name;

/// The members of each aggregate cluster, by its name.
pub(super) type Members = BTreeMap<Name, Vec<Name>>;

/// A fault of an aggregate cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is part of a cycle, or on a path between two cycles.
    Cycle,
    /// The number of clusters on its longest path, including itself and the leaf.
    Depth(usize),
}

/// The aggregates that are part of a cycle or have more than [`MAX_DEPTH`] clusters on a path.
///
/// Does not use recursion, because a chain may be as long as the number of clusters.
pub(super) fn faults(members: &Members) -> BTreeMap<Name, Fault> {
    let mut parents: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
    let mut n_open: BTreeMap<&Name, usize> = BTreeMap::new();
    for (name, below) in members {
        let aggregates: Vec<_> = below.iter().filter(|member| members.contains_key(*member)).collect();
        n_open.insert(name, aggregates.len());
        aggregates.into_iter().for_each(|member| parents.entry(member).or_default().push(name));
    }
    let mut depths: BTreeMap<&Name, usize> = BTreeMap::new();
    let mut ready: Vec<&Name> = n_open.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    while let Some(name) = ready.pop() {
        let below = members.get(name).into_iter().flatten();
        let deepest = below.map(|member| depths.get(member).copied().unwrap_or(1)).max().unwrap_or_default();
        depths.insert(name, deepest + 1);
        for parent in parents.get(name).into_iter().flatten() {
            if let Some(n) = n_open.get_mut(*parent) {
                *n -= 1;
                if *n == 0 {
                    ready.push(parent);
                }
            }
        }
    }
    let is_deep = |(name, depth): (&&Name, &usize)| {
        (*depth > MAX_DEPTH).then(|| (Name::clone(name), Fault::Depth(*depth)))
    };
    let mut faults: BTreeMap<_, _> = depths.iter().filter_map(is_deep).collect();
    // An aggregate that only leads to a cycle is not part of it.
    let mut cyclic: BTreeSet<&Name> = members.keys().filter(|name| !depths.contains_key(*name)).collect();
    let mut left: Vec<&Name> = cyclic.iter().copied().collect();
    while let Some(name) = left.pop() {
        let is_below = parents.get(name).into_iter().flatten().any(|parent| cyclic.contains(parent));
        if !is_below && cyclic.remove(name) {
            left.extend(members.get(name).into_iter().flatten().filter(|member| cyclic.contains(*member)));
        }
    }
    faults.extend(cyclic.into_iter().map(|name| (name.clone(), Fault::Cycle)));
    faults
}

/// The limit of gRFC A37. go, C-core and js count the root and the leaf.
pub(super) const MAX_DEPTH: usize = 16;
