//! GRPCRoutes and HTTPRoutes on the same host of a listener: one of the two is rejected.
//!
//! The Gateway API allows either kind, but not both. The first route stays, by `creationTimestamp`, then by `namespace/name`; the order in
//! which documents arrive does not matter. Native routes may mix both kinds and are not affected.

use std::collections::BTreeMap;

use super::Host;
use super::hostnames::rungs;
use super::precedence::Seniority;
use crate::model::RouteKind;

/// A route that a listener would accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender<'a> {
    /// Its kind.
    pub(crate) kind: RouteKind,
    /// Its seniority.
    pub(crate) seniority: &'a Seniority,
    /// The hosts that it has in common with the listener.
    pub(crate) hosts: &'a [Host],
}

/// The contenders, by index, that must leave a listener, each with the one that it loses to.
///
/// Only routes that stay can exclude others.
pub(crate) fn losers(contenders: &[Contender<'_>]) -> BTreeMap<usize, usize> {
    let mut in_order: Vec<(usize, &Contender<'_>)> = contenders.iter().enumerate().collect();
    in_order.retain(|(_, contender)| contender.kind != RouteKind::Native);
    in_order.sort_by_key(|(_, contender)| contender.seniority);
    let mut taken = [Taken::default(), Taken::default()];
    let mut losers = BTreeMap::new();
    for (place, (index, contender)) in in_order.iter().enumerate() {
        let [grpc, http] = &mut taken;
        let (own, other) = if contender.kind == RouteKind::Grpc { (grpc, http) } else { (http, grpc) };
        let winner = contender.hosts.iter().filter_map(|host| other.first_on(host)).min();
        match winner.and_then(|winner| in_order.get(winner)) {
            Some((winner, _)) => _ = losers.insert(*index, *winner),
            None => contender.hosts.iter().for_each(|host| own.take(host, place)),
        }
    }
    losers
}

/// The hosts of the routes of one kind, each with the first route that has it, as a position by seniority.
#[derive(Default)]
struct Taken {
    /// By the host itself.
    exactly: BTreeMap<String, usize>,
    /// By the host and all hosts that cover it.
    within: BTreeMap<String, usize>,
}

impl Taken {
    fn take(&mut self, host: &Host, place: usize) {
        self.exactly.entry(host.to_string()).or_insert(place);
        for rung in rungs(host) {
            self.within.entry(rung).or_insert(place);
        }
    }

    /// The first route with a host that overlaps this one.
    fn first_on(&self, host: &Host) -> Option<usize> {
        let above = rungs(host).into_iter().filter_map(|rung| self.exactly.get(&rung));
        above.chain(self.within.get(host.as_str())).min().copied()
    }
}
