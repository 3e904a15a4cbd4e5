//! Endpoints of EDS clusters that differ from those of the plan.

use std::collections::BTreeSet;
use std::net::IpAddr;

use xds_cache::Origin;

use crate::plan::{Assignment, Endpoint, Health, Locality};

/// Endpoints with only an address, in one unnamed locality.
pub(super) fn of_addresses(addresses: &BTreeSet<(IpAddr, u16)>, origin: &Origin) -> Assignment {
    let plain = |(address, port): &_| Endpoint {
        address: *address,
        port: *port,
        health: Health::Healthy,
        weight: None,
    };
    let locality = Locality { zone: String::new(), endpoints: addresses.iter().map(plain).collect() };
    Assignment { localities: vec![locality], origin: origin.clone() }
}

/// Returns `true` if endpoints of a zone have different weights, which gRPC's round robin ignores.
pub(crate) fn has_uneven_weights(assignment: &Assignment) -> bool {
    let is_uneven = |locality: &Locality| {
        let mut weights = locality.endpoints.iter().map(|it| it.weight.unwrap_or(1));
        let first = weights.next();
        weights.any(|weight| Some(weight) != first)
    };
    assignment.localities.iter().any(is_uneven)
}
