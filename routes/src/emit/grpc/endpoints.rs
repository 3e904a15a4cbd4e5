//! Endpoints of EDS clusters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value as Json, json};

use super::type_of;
use crate::plan::{Assignment, Endpoint, Health, Locality};

/// The endpoints of an assignment, by zone, all of one priority.
///
/// gRPC always weighs zones and skips those without a weight (row B210), so each weighs as many endpoints as it has that take
/// new requests: then every endpoint gets the same, as in the service.
pub(super) fn assignment(name: &str, assignment: &Assignment) -> Json {
    let localities = assignment.localities.iter().filter(|locality| !locality.endpoints.is_empty());
    load_assignment(name, localities.map(locality).collect())
}

/// Endpoints by address alone.
pub(super) fn of_addresses(name: &str, addresses: &BTreeSet<(IpAddr, u16)>) -> Json {
    let plain =
        |(address, port): &_| Endpoint { address: *address, port: *port, health: Health::Healthy, weight: None };
    let locality = Locality { zone: String::new(), endpoints: addresses.iter().map(plain).collect() };
    assignment(name, &Assignment { localities: vec![locality], origin: xds_cache::Origin::Api })
}

/// An assignment without endpoints: requests fail at once.
pub(super) fn none(name: &str) -> Json {
    load_assignment(name, Vec::new())
}

/// Whether endpoints of a zone differ in weight, which gRPC's round robin does not heed.
pub(super) fn has_uneven_weights(assignment: &Assignment) -> bool {
    let is_uneven = |locality: &Locality| {
        let weights: BTreeSet<_> = locality.endpoints.iter().map(|it| it.weight.unwrap_or(1)).collect();
        weights.len() > 1
    };
    assignment.localities.iter().any(is_uneven)
}

fn load_assignment(name: &str, localities: Vec<Json>) -> Json {
    json!({
        "@type": type_of("config.endpoint.v3.ClusterLoadAssignment"),
        "cluster_name": name,
        "endpoints": localities,
    })
}

/// The locality is always there, if only as an empty message (row B209).
fn locality(locality: &Locality) -> Json {
    let place = match locality.zone.as_str() {
        "" => json!({}),
        zone => json!({"zone": zone}),
    };
    let healthy = locality.endpoints.iter().filter(|endpoint| endpoint.health == Health::Healthy);
    let weight = healthy.fold(0_u32, |n, _| n.saturating_add(1)).max(1);
    let sum: u64 = locality.endpoints.iter().map(|endpoint| u64::from(endpoint.weight.unwrap_or(1))).sum();
    let endpoints: Vec<Json> = locality.endpoints.iter().map(|it| endpoint(it, sum)).collect();
    json!({"locality": place, "load_balancing_weight": weight, "lb_endpoints": endpoints})
}

fn endpoint(endpoint: &Endpoint, sum_of_weights: u64) -> Json {
    let Endpoint { address, port, health, weight } = endpoint;
    let health = match health {
        Health::Healthy => "HEALTHY",
        Health::Draining => "DRAINING",
    };
    let address = json!({"socket_address": {"address": address.to_string(), "port_value": port}});
    let mut message = json!({"endpoint": {"address": address}, "health_status": health});
    if let (Some(weight), Some(fields)) = (weight, message.as_object_mut()) {
        fields.insert("load_balancing_weight".to_owned(), scaled(*weight, sum_of_weights).into());
    }
    message
}

/// Go refuses weights whose sum is above 2^32-1 (row B221). If it is, they become smaller, but never 0.
fn scaled(weight: u32, sum: u64) -> u64 {
    let weight = u64::from(weight);
    if sum <= u64::from(u32::MAX) {
        return weight.max(1);
    }
    (weight * MAX_SUM / sum).max(1)
}

/// Leaves room for those that become 1 although they would be less.
const MAX_SUM: u64 = 1 << 31;
