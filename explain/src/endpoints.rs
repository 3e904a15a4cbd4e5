//! The endpoints of a cluster and their shares (XA11, XA12).

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::common_lb_config::LocalityConfigSpecifier;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, address::Address as AddressKind};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};

use crate::explanation::Endpoint;
use crate::ratio::Ratio;
use crate::semantics::{Difference, Semantics};

/// Endpoints with their shares: by priority, then as in the assignment.
pub(crate) fn endpoints(
    cluster: &Cluster,
    assignment: &ClusterLoadAssignment,
    semantics: Semantics,
) -> Vec<Endpoint> {
    let localities: Vec<&LocalityLbEndpoints> = assignment.endpoints.iter().collect();
    let last =
        localities.iter().map(|locality| locality.priority).max().unwrap_or_default().min(MAX_PRIORITY);
    let is_proxy = semantics.has(Difference::ActsAsProxy);
    let loads = match is_proxy {
        true => envoy_loads(cluster, assignment, last),
        false => grpc_loads(cluster, &localities, last),
    };
    let mut endpoints = Vec::new();
    for (priority, (load, is_panic)) in (0..).zip(loads) {
        let own: Vec<&&LocalityLbEndpoints> =
            localities.iter().filter(|one| one.priority == priority).collect();
        let by_locality = !is_proxy || weighs_localities(cluster);
        let weight_of = |locality: &LocalityLbEndpoints| match by_locality {
            true => locality_weight(cluster, locality),
            false => in_use(locality, is_panic, is_proxy).map(weight).sum(),
        };
        let usable = |locality: &LocalityLbEndpoints| in_use(locality, is_panic, is_proxy).next().is_some();
        let sum: u64 =
            own.iter().filter(|locality| usable(locality)).map(|locality| weight_of(locality)).sum();
        for locality in own {
            let part = Ratio::new(weight_of(locality).into(), sum.into()).times(load);
            let inner: u64 = in_use(locality, is_panic, is_proxy).map(weight).sum();
            for endpoint in &locality.lb_endpoints {
                let is_used = is_usable(endpoint, is_panic, is_proxy);
                let own =
                    if is_used { Ratio::new(weight(endpoint).into(), inner.into()) } else { Ratio::ZERO };
                endpoints.push(Endpoint {
                    address: address(endpoint),
                    priority,
                    zone: zone(locality),
                    health: endpoint.health_status().as_str_name().to_owned(),
                    share: part.and_then(|part| part.times(own)).unwrap_or(Ratio::ZERO),
                });
            }
        }
    }
    endpoints
}

fn in_use(
    locality: &LocalityLbEndpoints,
    is_panic: bool,
    is_proxy: bool,
) -> impl Iterator<Item = &LbEndpoint> {
    locality.lb_endpoints.iter().filter(move |endpoint| is_usable(endpoint, is_panic, is_proxy))
}

/// Returns `true` if new requests may go there.
fn is_usable(endpoint: &LbEndpoint, is_panic: bool, is_proxy: bool) -> bool {
    is_panic && is_proxy || is_healthy(endpoint)
}

fn is_healthy(endpoint: &LbEndpoint) -> bool {
    match endpoint.health_status() {
        HealthStatus::Unknown | HealthStatus::Healthy => true,
        HealthStatus::Unhealthy | HealthStatus::Draining | HealthStatus::Timeout | HealthStatus::Degraded => {
            false
        }
    }
}

fn weight(endpoint: &LbEndpoint) -> u64 {
    endpoint.load_balancing_weight.as_ref().map_or(1, |weight| weight.value.into())
}

/// The load of each priority, and if it is in panic.
fn envoy_loads(cluster: &Cluster, assignment: &ClusterLoadAssignment, last: u32) -> Vec<(Ratio, bool)> {
    let factor = assignment.policy.as_ref().and_then(|policy| policy.overprovisioning_factor.as_ref());
    let factor = factor.map_or(140, |factor| u64::from(factor.value));
    let common = cluster.common_lb_config.as_ref();
    let threshold = common.and_then(|common| common.healthy_panic_threshold.as_ref());
    let threshold = threshold.map_or(50.0, |percent| percent.value);
    let counts = |priority: u32| {
        let own = assignment.endpoints.iter().filter(move |locality| locality.priority == priority);
        own.flat_map(|locality| &locality.lb_endpoints).fold((0_u64, 0_u64), |(healthy, all), endpoint| {
            (healthy + u64::from(is_healthy(endpoint)), all + 1)
        })
    };
    let counts: Vec<(u64, u64)> = (0..=last).map(counts).collect();
    let health = |(healthy, all): &(u64, u64)| if *all == 0 { 0 } else { (factor * healthy / all).min(100) };
    let healths: Vec<u64> = counts.iter().map(health).collect();
    let sum = healths.iter().sum::<u64>().min(100);
    let is_panic =
        |(healthy, all): &(u64, u64)| *all > 0 && (100 * healthy) as f64 / (*all as f64) < threshold;
    if sum == 0 {
        let first = counts.iter().position(|(_, all)| *all > 0).unwrap_or_default();
        return (0..counts.len())
            .map(|at| (if at == first { Ratio::ONE } else { Ratio::ZERO }, true))
            .collect();
    }
    let mut rest = 100_u64;
    let mut loads: Vec<u64> = healths
        .iter()
        .map(|health| {
            let load = (health * 100 / sum).min(rest);
            rest -= load;
            load
        })
        .collect();
    if let Some(first) = loads.iter_mut().zip(&healths).find(|(_, health)| **health > 0) {
        *first.0 += rest;
    }
    // A priority whose healthy endpoints are enough for its load, together with others, is not in panic.
    let is_whole = healths.iter().sum::<u64>() >= 100;
    let loads = loads.into_iter().map(|load| Ratio::new(load.into(), 100));
    loads.zip(&counts).map(|(load, counts)| (load, !is_whole && is_panic(counts))).collect()
}

/// All to the first priority that has a usable endpoint.
fn grpc_loads(cluster: &Cluster, localities: &[&LocalityLbEndpoints], last: u32) -> Vec<(Ratio, bool)> {
    let is_usable = |priority: u32| {
        localities.iter().any(|locality| {
            locality.priority == priority
                && locality_weight(cluster, locality) > 0
                && locality.lb_endpoints.iter().any(is_healthy)
        })
    };
    let first = (0..=last).find(|priority| is_usable(*priority));
    (0..=last)
        .map(|priority| (if Some(priority) == first { Ratio::ONE } else { Ratio::ZERO }, false))
        .collect()
}

/// The weight of a locality. The only one of a cluster by DNS needs none.
fn locality_weight(cluster: &Cluster, locality: &LocalityLbEndpoints) -> u64 {
    let is_dns = matches!(
        cluster.cluster_discovery_type,
        Some(ClusterDiscoveryType::Type(kind)) if kind == i32::from(DiscoveryType::LogicalDns)
    );
    let unset = u64::from(is_dns);
    locality.load_balancing_weight.as_ref().map_or(unset, |weight| weight.value.into())
}

/// Returns `true` if the weights of localities count.
fn weighs_localities(cluster: &Cluster) -> bool {
    let common = cluster.common_lb_config.as_ref();
    let by_field =
        common.and_then(|common| common.locality_config_specifier.as_ref()).is_some_and(|specifier| {
            match specifier {
                LocalityConfigSpecifier::LocalityWeightedLbConfig(_) => true,
                LocalityConfigSpecifier::ZoneAwareLbConfig(_) => false,
            }
        });
    let policies = cluster.load_balancing_policy.iter().flat_map(|policy| &policy.policies);
    let mut policies =
        policies.filter_map(|policy| policy.typed_extension_config.as_ref()?.typed_config.as_ref());
    by_field || policies.next().is_some_and(|policy| policy.type_url.ends_with("WrrLocality"))
}

fn zone(locality: &LocalityLbEndpoints) -> String {
    let locality = locality.locality.as_ref();
    let names = locality.map(|one| [&one.zone, &one.region, &one.sub_zone]).into_iter().flatten();
    names.into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_default()
}

fn address(endpoint: &LbEndpoint) -> String {
    match &endpoint.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => endpoint.address.as_ref().map_or_else(String::new, shown),
        Some(HostIdentifier::EndpointName(name)) => name.clone(),
        None => String::new(),
    }
}

/// `10.0.0.1:80`, `[::1]:80`, `/run/x.sock`.
pub(crate) fn shown(address: &Address) -> String {
    match &address.address {
        Some(AddressKind::SocketAddress(socket)) => {
            let port = match &socket.port_specifier {
                Some(PortSpecifier::PortValue(port)) => port.to_string(),
                Some(PortSpecifier::NamedPort(name)) => name.clone(),
                None => "0".to_owned(),
            };
            match socket.address.contains(':') {
                true => format!("[{}]:{port}", socket.address),
                false => format!("{}:{port}", socket.address),
            }
        }
        Some(AddressKind::Pipe(pipe)) => pipe.path.clone(),
        Some(AddressKind::EnvoyInternalAddress(_)) => "an internal listener".to_owned(),
        None => String::new(),
    }
}

/// Clients refuse more.
const MAX_PRIORITY: u32 = 128;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::SocketAddress;
    use envoy_types::pb::envoy::config::endpoint::v3::Endpoint as EndpointMessage;
    use envoy_types::pb::google::protobuf::UInt32Value;

    use super::*;
    use crate::client::{Client, Language};

    fn endpoint(port: u32, health: HealthStatus) -> LbEndpoint {
        let port_specifier = Some(PortSpecifier::PortValue(port));
        let socket = SocketAddress { address: "10.0.0.1".to_owned(), port_specifier, ..Default::default() };
        let address = Some(Address { address: Some(AddressKind::SocketAddress(socket)) });
        LbEndpoint {
            health_status: health.into(),
            host_identifier: Some(HostIdentifier::Endpoint(EndpointMessage {
                address,
                ..Default::default()
            })),
            ..LbEndpoint::default()
        }
    }

    fn locality(priority: u32, weight: u32, lb_endpoints: Vec<LbEndpoint>) -> LocalityLbEndpoints {
        LocalityLbEndpoints {
            priority,
            lb_endpoints,
            load_balancing_weight: Some(UInt32Value { value: weight }),
            ..Default::default()
        }
    }

    fn shares(language: Language, localities: Vec<LocalityLbEndpoints>) -> Vec<String> {
        let assignment = ClusterLoadAssignment { endpoints: localities, ..Default::default() };
        let found = endpoints(&Cluster::default(), &assignment, Semantics::of(Client::newest(language)));
        found.iter().map(|endpoint| endpoint.share.to_string()).collect()
    }

    #[test]
    fn a11_envoy_counts_endpoints_and_grpc_localities() {
        use HealthStatus::{Draining, Healthy, Unhealthy};
        let two = || {
            vec![
                locality(0, 3, vec![endpoint(1, Healthy)]),
                locality(0, 1, vec![endpoint(2, Healthy), endpoint(3, Healthy), endpoint(4, Healthy)]),
            ]
        };
        assert_eq!(shares(Language::Envoy, two()), ["25 %", "25 %", "25 %", "25 %"]);
        assert_eq!(shares(Language::CCore, two()), ["75 %", "~8.3333 %", "~8.3333 %", "~8.3333 %"]);
        let spill = || {
            vec![
                locality(0, 1, vec![endpoint(1, Healthy), endpoint(2, Unhealthy)]),
                locality(1, 1, vec![endpoint(3, Healthy)]),
            ]
        };
        assert_eq!(shares(Language::Envoy, spill()), ["70 %", "0 %", "30 %"]);
        assert_eq!(shares(Language::CCore, spill()), ["100 %", "0 %", "0 %"]);
        let draining =
            || vec![locality(0, 1, vec![endpoint(1, Draining), endpoint(2, Healthy), endpoint(3, Healthy)])];
        assert_eq!(shares(Language::Envoy, draining()), ["0 %", "50 %", "50 %"]);
    }

    #[test]
    fn a11_the_locality_of_a_cluster_by_dns_needs_no_weight() {
        let of = |kind: DiscoveryType| {
            let mut own = locality(0, 0, vec![endpoint(1, HealthStatus::Unknown)]);
            own.load_balancing_weight = None;
            let assignment = ClusterLoadAssignment { endpoints: vec![own], ..Default::default() };
            let cluster_discovery_type = Some(ClusterDiscoveryType::Type(kind.into()));
            let cluster = Cluster { cluster_discovery_type, ..Default::default() };
            let found = endpoints(&cluster, &assignment, Semantics::of(Client::newest(Language::CCore)));
            found[0].share.to_string()
        };
        assert_eq!(of(DiscoveryType::LogicalDns), "100 %");
        assert_eq!(of(DiscoveryType::Eds), "0 %");
    }
}
