//! The rules for endpoints that emitted messages could break.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{All, At};

impl All {
    pub(super) fn assignment(&mut self, at: At<'_>) {
        self.only("B224", at, &["cluster_name", "endpoints"]);
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        let mut places = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for locality in at.list("endpoints") {
            self.only("B228", locality, &["locality", "load_balancing_weight", "lb_endpoints", "priority"]);
            let priority = locality.number("priority").unwrap_or_default();
            let place = locality.get("locality");
            if place.is_none() {
                self.fault("B209", at, "no locality");
            }
            if !places.insert((priority, place.map(|place| place.value.to_string()))) {
                self.fault("B214", at, "locality twice");
            }
            match locality.number("load_balancing_weight") {
                None | Some(0) => self.fault("B210", at, "no weight of a locality"),
                // Java reads more as negative.
                Some(weight) if weight > 0x7fff_ffff => self.fault("B211", at, "weight of a locality"),
                Some(weight) => *sums.entry(priority).or_default() += weight,
            }
            let endpoints = locality.list("lb_endpoints");
            if endpoints.is_empty() {
                self.fault("B215", at, "no endpoints in a locality");
            }
            let weights =
                endpoints.iter().map(|endpoint| endpoint.number("load_balancing_weight").unwrap_or(1));
            if weights.sum::<u64>() > u64::from(u32::MAX) {
                self.fault("B221", at, "sum of weights");
            }
            endpoints.into_iter().for_each(|endpoint| self.endpoint(endpoint, &mut addresses));
        }
        if sums.values().any(|sum| *sum > u64::from(u32::MAX)) {
            self.fault("B211", at, "sum of weights of localities");
        }
        if sums.keys().zip(0..).any(|(priority, expected)| *priority != expected) {
            self.fault("B212", at, "gap in the priorities");
        }
    }

    fn endpoint(&mut self, at: At<'_>, addresses: &mut BTreeSet<(String, u64)>) {
        if at.number("load_balancing_weight") == Some(0) {
            self.fault("B221", at, "weight 0");
        }
        if !["", "HEALTHY", "DRAINING"].contains(&at.text("health_status")) {
            self.fault("B220", at, at.text("health_status"));
        }
        let socket = at.get("endpoint").and_then(|it| it.get("address")?.get("socket_address"));
        let Some(socket) = socket else { return self.fault("B216", at, "no socket address") };
        let address = socket.text("address");
        if address.parse::<IpAddr>().is_err() {
            self.fault("B217", at, address);
        }
        let Some(port) = socket.number("port_value") else { return self.fault("B218", at, "no port") };
        if !addresses.insert((address.to_owned(), port)) {
            self.fault("B219", at, address);
        }
    }
}
