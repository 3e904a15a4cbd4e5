//! Limits on the resources that the documents of one group may generate together.
//!
//! Most of the output of a document grows with its text. A route is different: it appears in a virtual host for each of its host names, on each
//! listener or Service port that accepts it. So a thousand short listeners and three hundred short routes generate 300,000. The cost of a route is
//! counted before any of it is generated. Routes are admitted in the order of their age, like everywhere in the Gateway API.
//! So the limit refuses the same routes in whatever order documents arrive, and a new route never displaces older ones.
//!
//! To admit routes one by one ([`Ledger`]), all of them must be read. So sums of their requests are kept as an upper bound ([`Sums`]), and
//! routes are admitted one by one only where a sum exceeds a limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use xds_cache::GroupName;

use super::Host;
use super::attach::Requests;
use super::cost::Cost;
use super::gateways::ListenerKey;
use super::hostnames::rungs;
use super::statuses::Fault;
use crate::conditions::ConditionReason;
use crate::input::GenerationLimits;
use crate::model::Document;

/// Counts the cost of the admitted routes.
#[derive(Debug)]
pub(crate) struct Ledger<'d> {
    limits: GenerationLimits,
    groups: BTreeMap<&'d GroupName, Cost>,
    /// The levels of a listener's hosts.
    listeners: BTreeMap<Arc<ListenerKey>, Levels>,
    /// How often routes asked listeners.
    n_asked: usize,
}

/// Upper bounds of the cost of all routes.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// How often Gateways and listeners are asked.
    pub(crate) n_asked: usize,
    /// By the group of the route: the cost at all of its hosts, and at all ports of Services.
    pub(crate) groups: Vec<Cost>,
    /// By listener: how many hosts its routes have, and the cost of routes at wildcard hosts.
    pub(crate) listeners: Vec<Cost>,
    /// How many ports consumers ask for.
    pub(crate) n_consumed: usize,
    /// How many ports all Services have.
    pub(crate) n_ports: usize,
}

impl Sums {
    /// Returns `true` if a route may exceed a limit.
    pub(crate) fn may_exceed(&self, limits: &GenerationLimits) -> bool {
        let mut shared = Cost::default();
        for Cost { routes, hosts, bytes } in &self.listeners {
            // The routes of a wildcard are repeated at most at every other host.
            let below = hosts.saturating_sub(1);
            shared.add(Cost { routes: *routes, hosts: 0, bytes: *bytes }.times(below));
        }
        // If a consumer asks for a port, its clients get all Services of that port.
        let borrowed = self.n_consumed.saturating_mul(self.n_ports);
        shared.add(Cost { routes: borrowed, hosts: borrowed, bytes: 0 });
        is_tired(self.n_asked, limits)
            || self.groups.iter().any(|group| {
                let mut most = *group;
                most.add(shared);
                most.routes > limits.max_routes
                    || most.hosts > limits.max_hosts
                    || most.bytes > limits.max_bytes
            })
    }
}

/// Returns `true` if routes have asked listeners much more often than routes could be admitted. Then no more are asked.
pub(crate) fn is_tired(n_asked: usize, limits: &GenerationLimits) -> bool {
    n_asked > limits.max_routes.saturating_mul(MAX_ASKED_FOR_EACH)
}

/// The routes of a listener by host. The routes of a host are repeated at each more specific host (the cascade).
#[derive(Debug, Default)]
struct Levels {
    own: HashMap<String, Cost>,
    /// How many hosts each wildcard covers.
    below: HashMap<String, usize>,
}

impl Levels {
    /// The cost that routes add if they take a host.
    fn cost(&self, host: &Host, routes: Cost) -> Cost {
        let rungs = rungs(host);
        let mut cost = routes;
        if let Some(below) = self.below.get(host.as_str()) {
            cost.add(routes.times(*below));
        }
        if !self.own.contains_key(host.as_str()) {
            cost.hosts += 1;
            rungs.iter().skip(1).filter_map(|rung| self.own.get(rung)).for_each(|above| cost.add(*above));
        }
        cost
    }

    fn add(&mut self, host: &Host, routes: Cost) {
        if !self.own.contains_key(host.as_str()) {
            for rung in rungs(host).into_iter().skip(1) {
                *self.below.entry(rung).or_default() += 1;
            }
        }
        self.own.entry(host.to_string()).or_default().add(routes);
    }
}

impl<'d> Ledger<'d> {
    pub(crate) fn new(limits: GenerationLimits) -> Self {
        Self { limits, groups: BTreeMap::new(), listeners: BTreeMap::new(), n_asked: 0 }
    }

    /// Returns `true` if routes without parents are no longer admitted.
    pub(crate) fn is_tired(&self) -> bool {
        is_tired(self.n_asked, &self.limits)
    }

    /// Admits a route with all hosts of all listeners, or refuses all of it.
    ///
    /// # Errors
    ///
    /// Returns the limit that it would exceed.
    pub(crate) fn admit(
        &mut self,
        group: &'d GroupName,
        document: &Document,
        requests: &Requests,
    ) -> Result<(), Fault> {
        self.n_asked = self.n_asked.saturating_add(requests.n_asked);
        let routes = Cost { bytes: document.source.text().len(), ..requests.cost };
        let nothing = Levels::default();
        let mut cost = Cost::default();
        for attachment in requests.attachments() {
            let levels = self.listeners.get(&attachment.listener.key).unwrap_or(&nothing);
            attachment.hosts.iter().for_each(|host| cost.add(levels.cost(host, routes)));
        }
        self.charge(group, cost)?;
        for attachment in requests.attachments() {
            let levels = self.listeners.entry(Arc::clone(&attachment.listener.key)).or_default();
            attachment.hosts.iter().for_each(|host| levels.add(host, routes));
        }
        Ok(())
    }

    /// Admits a route to ports of Services. Its clients may get other ports too.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_ports(
        &mut self,
        group: &'d GroupName,
        document: &Document,
        n_routes: usize,
        (n_ports, n_others): (usize, usize),
    ) -> Result<(), Fault> {
        let routes = Cost { routes: n_routes, hosts: 1, bytes: document.source.text().len() };
        let mut cost = routes.times(n_ports);
        cost.add(Cost { routes: n_others, hosts: n_others, bytes: 0 });
        self.charge(group, cost)
    }

    fn charge(&mut self, group: &'d GroupName, cost: Cost) -> Result<(), Fault> {
        let mut sum = self.groups.get(group).copied().unwrap_or_default();
        sum.add(cost);
        let GenerationLimits { max_routes, max_hosts, max_bytes, .. } = self.limits;
        let bounds = [
            (sum.routes, max_routes, cost.routes, "routes in virtual hosts", "--max-generated-routes"),
            (sum.hosts, max_hosts, cost.hosts, "virtual hosts", "--max-generated-hosts"),
            (sum.bytes, max_bytes, cost.bytes, "bytes of routes in virtual hosts", "--max-generated-bytes"),
        ];
        for (sum, most, own, what, flag) in bounds {
            if sum > most {
                let message = format!(
                    "the route generates {own} {what}; together with the older routes of the node group {group} that is more than {most} ({flag}): attach it to fewer listeners, give it fewer host names, or move routes to another group"
                );
                return Err(Fault::new(ConditionReason::LimitExceeded, message));
            }
        }
        self.groups.insert(group, sum);
        Ok(())
    }
}

/// How often listeners can be asked for each route that could be admitted. Most listeners that a route names accept it.
const MAX_ASKED_FOR_EACH: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Hostname;

    fn host(name: &str) -> Host {
        if name == "*" { Host::Any } else { Host::Name(Hostname::new(name).unwrap()) }
    }

    #[test]
    fn what_is_counted_is_what_the_cascade_gives() {
        let routes = |routes| Cost { routes, hosts: 0, bytes: 10 };
        let mut levels = Levels::default();
        let mut total = Cost::default();
        // Each host with its routes, and what it adds: its own, those that come from above, and its own below.
        let table = [
            ("*", 3, 3),
            ("a.example.com", 2, 5),
            ("*.example.com", 1, 5),
            ("b.example.com", 2, 6),
            ("*", 1, 4),
        ];
        for (name, n_routes, expected) in table {
            let cost = levels.cost(&host(name), routes(n_routes));
            assert_eq!(cost.routes, expected, "{name}");
            levels.add(&host(name), routes(n_routes));
            total.add(cost);
        }
        // *: 4, *.example.com: 1 + 4, a: 2 + 1 + 4, b: 2 + 1 + 4.
        assert_eq!((total.routes, total.hosts), (23, 4));
    }
}
