//! The endpoints of an assignment, read and written without knowing its types.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::node::Profile;
use crate::wire::{Field, all_of, bytes_of, fields, number_of, put_bytes, put_number};

/// The key of an endpoint: its address, encoded.
pub(super) type Address = Bytes;

/// One endpoint of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// All its addresses, the first one first.
    pub(super) addresses: Vec<Address>,
    /// Its locality, encoded; `None` if the assignment does not say.
    locality: Option<Bytes>,
    /// The `LbEndpoint`, with the health that says that it drains.
    draining: Bytes,
    /// True if clients send it new requests.
    pub(super) is_used: bool,
}

/// The endpoints of an encoded `ClusterLoadAssignment`, in its order. Endpoints without an address of their own are left out:
/// named ones, and those of collections.
pub(super) fn endpoints(assignment: &[u8]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for locality in all_of(assignment, LOCALITIES) {
        let name = bytes_of(locality, LOCALITY).map(Bytes::copy_from_slice);
        endpoints.extend(all_of(locality, LB_ENDPOINTS).filter_map(|one| endpoint(name.clone(), one)));
    }
    endpoints
}

/// Returns `true` if an encoded `ClusterLoadAssignment` has an endpoint that clients of a profile send requests to, or may have one that it
/// only refers to. An Envoy uses endpoints that are not healthy if there is no other.
#[must_use]
pub fn has_endpoint(assignment: &[u8], profile: Profile) -> bool {
    let is_used = |endpoint: &[u8]| {
        let health = number_of(endpoint, HEALTH_STATUS);
        profile == Profile::Envoy || [UNKNOWN, HEALTHY, DEGRADED].contains(&health)
    };
    all_of(assignment, LOCALITIES).any(|locality| {
        let is_elsewhere = |field: Field<'_>| [ENDPOINT_LIST, COLLECTION].contains(&field.number);
        all_of(locality, LB_ENDPOINTS).any(is_used) || fields(locality).any(is_elsewhere)
    })
}

fn endpoint(locality: Option<Bytes>, lb_endpoint: &[u8]) -> Option<Endpoint> {
    let endpoint = bytes_of(lb_endpoint, ENDPOINT)?;
    let more = all_of(endpoint, ADDITIONAL_ADDRESSES).filter_map(|more| bytes_of(more, ADDRESS));
    let addresses = std::iter::once(bytes_of(endpoint, ADDRESS)?).chain(more).map(Bytes::copy_from_slice);
    let health = number_of(lb_endpoint, HEALTH_STATUS);
    let mut draining = Vec::with_capacity(lb_endpoint.len() + 2);
    let (before, after): (Vec<Field<'_>>, Vec<Field<'_>>) = fields(lb_endpoint)
        .filter(|field| field.number != HEALTH_STATUS)
        .partition(|field| field.number < HEALTH_STATUS);
    before.iter().for_each(|field| draining.extend_from_slice(field.raw));
    put_number(&mut draining, HEALTH_STATUS, DRAINING);
    after.iter().for_each(|field| draining.extend_from_slice(field.raw));
    Some(Endpoint {
        addresses: addresses.collect(),
        locality,
        draining: draining.into(),
        is_used: [UNKNOWN, HEALTHY, DEGRADED].contains(&health),
    })
}

/// The assignment with draining endpoints, in their own priority after all others. There they do not affect how requests are
/// spread over the other endpoints, however a client rates the health of a locality or priority as a whole. They are grouped by
/// locality, each locality once and with a weight, because gRPC clients reject duplicates and skip localities without a weight.
///
/// `None` if the assignment has no priority left.
pub(super) fn with_draining<'a>(
    assignment: &[u8],
    draining: impl Iterator<Item = &'a Endpoint>,
    profile: Profile,
) -> Option<Bytes> {
    let priority = next_priority(assignment, profile)?;
    let mut localities: BTreeMap<&Option<Bytes>, Vec<&Endpoint>> = BTreeMap::new();
    // gRPC clients reject localities without a name unless they skip them, and then they never used the endpoints in them.
    let is_for = |endpoint: &&Endpoint| profile == Profile::Envoy || endpoint.locality.is_some();
    for endpoint in draining.filter(is_for) {
        localities.entry(&endpoint.locality).or_default().push(endpoint);
    }
    let mut with_draining = assignment.to_vec();
    for (locality, endpoints) in localities {
        let mut message = Vec::new();
        if let Some(locality) = locality {
            put_bytes(&mut message, LOCALITY, locality);
        }
        for endpoint in endpoints {
            put_bytes(&mut message, LB_ENDPOINTS, &endpoint.draining);
        }
        put_bytes(&mut message, LOCALITY_WEIGHT, WEIGHT_OF_ONE);
        if priority > 0 {
            put_number(&mut message, PRIORITY, priority);
        }
        put_bytes(&mut with_draining, LOCALITIES, &message);
    }
    Some(with_draining.into())
}

/// The priority after the last one with a locality that clients do not skip, because priorities must have no gaps.
fn next_priority(assignment: &[u8], profile: Profile) -> Option<u64> {
    let counts = |locality: &&[u8]| match profile {
        Profile::Envoy => true,
        Profile::Grpc => {
            bytes_of(locality, LOCALITY_WEIGHT).is_some_and(|weight| number_of(weight, VALUE) > 0)
        }
    };
    let last =
        all_of(assignment, LOCALITIES).filter(counts).map(|locality| number_of(locality, PRIORITY)).max();
    let next = last.map_or(0, |last| last.saturating_add(1));
    (next <= MAX_PRIORITY).then_some(next)
}

/// All addresses of some endpoints.
pub(super) fn addresses(endpoints: &[Endpoint]) -> BTreeSet<&Address> {
    endpoints.iter().flat_map(|endpoint| &endpoint.addresses).collect()
}

/// An address as people write it: `10.0.0.1:80`, `[::1]:80`, or a path.
pub(super) fn address_text(address: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(socket) = bytes_of(address, SOCKET_ADDRESS) {
        let host = text(bytes_of(socket, SOCKET_HOST).unwrap_or_default());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        return match bytes_of(socket, NAMED_PORT) {
            Some(port) => format!("{host}:{}", text(port)),
            None => format!("{host}:{}", number_of(socket, PORT)),
        };
    }
    match bytes_of(address, PIPE) {
        Some(pipe) => text(bytes_of(pipe, PIPE_PATH).unwrap_or_default()),
        None => "an internal address".to_owned(),
    }
}

/// `ClusterLoadAssignment.endpoints`.
const LOCALITIES: u32 = 2;
/// `LocalityLbEndpoints.locality`.
const LOCALITY: u32 = 1;
/// `LocalityLbEndpoints.lb_endpoints`.
const LB_ENDPOINTS: u32 = 2;
/// `LocalityLbEndpoints.load_balancing_weight`.
const LOCALITY_WEIGHT: u32 = 3;
/// `LocalityLbEndpoints.load_balancer_endpoints`.
const ENDPOINT_LIST: u32 = 7;
/// `LocalityLbEndpoints.leds_cluster_locality_config`.
const COLLECTION: u32 = 8;
/// `LocalityLbEndpoints.priority`.
const PRIORITY: u32 = 5;
/// `LbEndpoint.endpoint`.
const ENDPOINT: u32 = 1;
/// `LbEndpoint.health_status`.
const HEALTH_STATUS: u32 = 2;
/// `Endpoint.address`, `Endpoint.AdditionalAddress.address`.
const ADDRESS: u32 = 1;
/// `Endpoint.additional_addresses`.
const ADDITIONAL_ADDRESSES: u32 = 4;
/// `Address.socket_address`.
const SOCKET_ADDRESS: u32 = 1;
/// `SocketAddress.address`.
const SOCKET_HOST: u32 = 2;
/// `SocketAddress.port_value`.
const PORT: u32 = 3;
/// `SocketAddress.named_port`.
const NAMED_PORT: u32 = 4;
/// `Address.pipe`.
const PIPE: u32 = 2;
/// `Pipe.path`.
const PIPE_PATH: u32 = 1;
/// `UInt32Value.value`.
const VALUE: u32 = 1;
/// A `UInt32Value` of 1.
const WEIGHT_OF_ONE: &[u8] = &[8, 1];
/// `HealthStatus`.
const UNKNOWN: u64 = 0;
const HEALTHY: u64 = 1;
const DRAINING: u64 = 3;
const DEGRADED: u64 = 5;
/// The last priority that Envoy accepts.
const MAX_PRIORITY: u64 = 128;
