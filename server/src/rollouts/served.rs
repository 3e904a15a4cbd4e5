//! What clients are served of the backends of a rollout: whether the canary has an endpoint, and how requests are divided between both.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::drain::has_endpoint;
use xds_cache::layer::{EffectiveGroup, differing};
use xds_cache::wire::{all_of, bytes_of, fields, number_of};
use xds_cache::{
    Changes, GroupName, Groups, Profile, Resource, ResourceKey, ResourceType, StatusBoard, ViewChange,
};
use xds_rollout::Split;
use xds_units::Percent;

use super::backends::Backends;
use super::concern::ClustersBehind;
use super::parts::DriverParts;

/// The groups as they are served, and their clusters. The revision does not identify them: files that cannot be recorded are served too.
#[derive(Debug, Default)]
pub(super) struct Served {
    groups: Groups,
    pub(super) behind: ClustersBehind,
    /// Counts the changes.
    pub(super) generation: u64,
}

impl Served {
    /// Takes in what is served now, if it is something else.
    pub(super) fn refresh(&mut self, groups: Groups) {
        if self.generation > 0 && differing(&self.groups, &groups).is_empty() {
            return;
        }
        self.behind = ClustersBehind::new(&groups);
        self.groups = groups;
        self.generation += 1;
    }

    /// Why no request of these clients to the canary can succeed: all assignments of its clusters are empty. `None` if one is not, or if
    /// endpoints come from elsewhere.
    pub(super) fn no_endpoint<'a>(
        &self,
        clients: impl Iterator<Item = &'a (GroupName, Profile)>,
        clusters: &BTreeSet<Arc<str>>,
    ) -> Option<String> {
        let mut empty = None;
        for (group, profile) in clients {
            let group = self.groups.get(group)?;
            for cluster in clusters {
                let key = key(ResourceType::Cluster, cluster);
                let Some(cluster) = group.find(*profile, &key) else { continue };
                empty = Some(empty_assignment(group, *profile, cluster)?);
            }
        }
        empty.map(|name| format!("the canary has no ready endpoint: the assignment {name:?} is empty"))
    }

    /// The resources because of which requests that clients report of these clusters are not divided by the weights alone, if the canary
    /// has this share.
    pub(super) fn doubts(&self, backends: &Backends, share: Percent) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (name, group) in &self.groups {
            for profile in Profile::ALL {
                for (key, resource) in group.resources_for(profile) {
                    let mut add = |split: Split| {
                        if split != Split::ByWeight {
                            let resource = Arc::clone(resource);
                            doubts.push(Doubt { client: (name.clone(), profile), resource, split });
                        }
                    };
                    if backends.has(key) && prefers_zone(&resource.value()) {
                        add(Split::Biased("the zones of clients".to_owned()));
                    }
                    let mut clusters = resource.references().of_type(&ResourceType::Cluster);
                    if clusters.any(|name| backends.stable.contains(&**name)) {
                        add(of_resource(key, resource, backends, share));
                    }
                }
            }
        }
        doubts
    }
}

/// A resource because of which requests are not divided by the weights alone.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    client: (GroupName, Profile),
    resource: Arc<Resource>,
    split: Split,
}

impl Doubt {
    /// Returns `true` if a client has the resource. Each Service has a route of its own for gRPC clients, and most of these routes have none.
    fn is_served(&self, board: &StatusBoard) -> bool {
        let (group, profile) = &self.client;
        let of_type = self.resource.resource_type();
        if *of_type == ResourceType::Cluster {
            return true;
        }
        let changed = Arc::new(Changes { changed: vec![Arc::clone(&self.resource)], removed: vec![] });
        board.views_of(group).into_iter().filter(|key| key.profile == *profile).any(|key| {
            let changes = [(of_type.clone(), Arc::clone(&changed))].into();
            let streams = board.streams_of(Some(&key));
            let change = ViewChange { key, changes };
            streams.iter().any(|entry| entry.concerned(&change).is_none_or(|types| !types.is_empty()))
        })
    }
}

/// How requests are divided, by the doubts that apply to the clients of this server. Nobody knows which routes clients of other servers use.
pub(super) fn split(doubts: &[Doubt], parts: &DriverParts) -> Split {
    let mut split = Split::ByWeight;
    for doubt in doubts.iter().filter(|doubt| parts.peers.is_some() || doubt.is_served(&parts.board)) {
        match &doubt.split {
            Split::ByWeight => {}
            Split::Biased(by) => split = Split::Biased(by.clone()),
            Split::Unknown => return Split::Unknown,
        }
    }
    split
}

/// The name of the cluster's assignment if it has no endpoint; `None` if it has one, or if endpoints come from elsewhere.
fn empty_assignment(group: &EffectiveGroup, profile: Profile, cluster: &Resource) -> Option<String> {
    let mut assignments = cluster.references().of_type(&ResourceType::ClusterLoadAssignment).peekable();
    assignments.peek()?;
    let mut name = None;
    for assignment in assignments {
        let found = group.find(profile, &key(ResourceType::ClusterLoadAssignment, assignment))?;
        if has_endpoint(&found.value(), profile) {
            return None;
        }
        name = Some(assignment.to_string());
    }
    name
}

/// How a resource that refers to stable divides its requests.
fn of_resource(key: &ResourceKey, resource: &Resource, backends: &Backends, share: Percent) -> Split {
    let value = resource.value();
    let hosts: Vec<&[u8]> = if key.resource_type == ResourceType::RouteConfiguration {
        all_of(&value, VIRTUAL_HOSTS).collect()
    } else if key.resource_type == ResourceType::VirtualHost {
        vec![&value[..]]
    } else if key.resource_type == ResourceType::Cluster && backends.stable.contains(&*key.name) {
        return Split::ByWeight;
    } else {
        return Split::Unknown;
    };
    let of_both = |host: &&[u8]| bytes_of(host, MATCHER).is_none() && !mirrors(host, HOST_MIRRORS, backends);
    if mirrors(&value, CONFIG_MIRRORS, backends) || !hosts.iter().all(of_both) {
        return Split::Unknown;
    }
    let mut split = Split::ByWeight;
    for host in hosts {
        let is_host_sticky = keeps_sessions(host, HOST_FILTERS);
        for route in all_of(host, ROUTES) {
            let Some(action) = bytes_of(route, ACTION) else { continue };
            match of_action(action, backends, share) {
                None => {}
                Some(Split::ByWeight) if is_host_sticky || keeps_sessions(route, ROUTE_FILTERS) => {
                    split = Split::Biased("sessions".to_owned());
                }
                Some(Split::ByWeight) => {}
                Some(biased @ Split::Biased(_)) => split = biased,
                Some(Split::Unknown) => return Split::Unknown,
            }
        }
    }
    split
}

/// How a `RouteAction` divides its requests; `None` if it sends none to stable.
fn of_action(action: &[u8], backends: &Backends, share: Percent) -> Option<Split> {
    let is_of = |clusters: &BTreeSet<Arc<str>>, name: &[u8]| {
        std::str::from_utf8(name).is_ok_and(|name| clusters.contains(name))
    };
    if mirrors(action, ACTION_MIRRORS, backends) {
        return Some(Split::Unknown);
    }
    if let Some(cluster) = bytes_of(action, CLUSTER) {
        return is_of(&backends.stable, cluster).then_some(Split::Unknown);
    }
    let weighted = bytes_of(action, WEIGHTED_CLUSTERS)?;
    let (mut canary, mut stable, mut is_sticky) = (0_u64, 0_u64, false);
    for cluster in all_of(weighted, CLUSTERS) {
        let name = bytes_of(cluster, NAME).unwrap_or_default();
        let weight = bytes_of(cluster, WEIGHT).map_or(0, |weight| number_of(weight, NUMBER));
        if is_of(&backends.canary, name) {
            canary += weight;
        } else if is_of(&backends.stable, name) {
            stable += weight;
        }
        is_sticky |= keeps_sessions(cluster, CLUSTER_FILTERS);
    }
    if stable == 0 {
        return None;
    }
    if canary * 10_000 != u64::from(share.hundredths()) * (canary + stable) {
        return Some(Split::Unknown);
    }
    let is_hashed = fields(action).any(|field| field.number == HASH_POLICY);
    Some(match (is_sticky, is_hashed) {
        (true, _) => Split::Biased("sessions".to_owned()),
        (false, true) => Split::Biased("a hash".to_owned()),
        (false, false) => Split::ByWeight,
    })
}

/// Returns `true` if requests are copied to stable.
fn mirrors(message: &[u8], policies: u32, backends: &Backends) -> bool {
    let mut clusters = all_of(message, policies).filter_map(|policy| bytes_of(policy, CLUSTER));
    clusters.any(|name| std::str::from_utf8(name).map_or(true, |name| backends.stable.contains(name)))
}

/// Returns `true` if a map of filters' settings has some for sessions.
fn keeps_sessions(message: &[u8], filters: u32) -> bool {
    all_of(message, filters).filter_map(|entry| bytes_of(entry, MAP_KEY)).any(|key| key.ends_with(SESSIONS))
}

/// Returns `true` if an encoded `Cluster` says that clients prefer endpoints of their own zone.
fn prefers_zone(cluster: &[u8]) -> bool {
    let of_common = bytes_of(cluster, COMMON_LB_CONFIG).and_then(|common| bytes_of(common, ZONE_AWARE));
    let policies = bytes_of(cluster, LOAD_BALANCING_POLICY);
    let mut policies = policies.into_iter().flat_map(|all| all_of(all, POLICIES));
    of_common.is_some() || policies.any(|policy| policy_prefers_zone(policy).is_some())
}

/// The settings of a load balancing policy for zones, if it prefers them.
fn policy_prefers_zone(policy: &[u8]) -> Option<&[u8]> {
    let settings = bytes_of(bytes_of(policy, EXTENSION)?, TYPED_CONFIG)?;
    let type_url = bytes_of(settings, TYPE_URL)?;
    let (_, number) = LOCALITY_LB_CONFIG.iter().find(|(name, _)| type_url.ends_with(name))?;
    bytes_of(bytes_of(bytes_of(settings, VALUE)?, *number)?, POLICY_ZONE_AWARE)
}

fn key(resource_type: ResourceType, name: &str) -> ResourceKey {
    ResourceKey { resource_type, name: name.into() }
}

/// `RouteConfiguration.virtual_hosts` and `.request_mirror_policies`.
const VIRTUAL_HOSTS: u32 = 2;
const CONFIG_MIRRORS: u32 = 13;
/// `VirtualHost.routes`, `.typed_per_filter_config`, `.matcher` and `.request_mirror_policies`.
const ROUTES: u32 = 3;
const HOST_FILTERS: u32 = 15;
const MATCHER: u32 = 21;
const HOST_MIRRORS: u32 = 22;
/// `Route.route` and `.typed_per_filter_config`.
const ACTION: u32 = 2;
const ROUTE_FILTERS: u32 = 13;
/// `RouteAction.cluster`, as that of a `RequestMirrorPolicy`, `.weighted_clusters`, `.hash_policy` and `.request_mirror_policies`.
const CLUSTER: u32 = 1;
const WEIGHTED_CLUSTERS: u32 = 3;
const HASH_POLICY: u32 = 15;
const ACTION_MIRRORS: u32 = 30;
/// `WeightedCluster.clusters`; of each `.name`, `.weight` and `.typed_per_filter_config`.
const CLUSTERS: u32 = 1;
const NAME: u32 = 1;
const WEIGHT: u32 = 2;
const CLUSTER_FILTERS: u32 = 10;
/// `UInt32Value.value`.
const NUMBER: u32 = 1;
/// The key of an entry of a map.
const MAP_KEY: u32 = 1;
/// `Cluster.common_lb_config` with `.zone_aware_lb_config`, and `Cluster.load_balancing_policy` with `.policies`.
const COMMON_LB_CONFIG: u32 = 27;
const ZONE_AWARE: u32 = 2;
const LOAD_BALANCING_POLICY: u32 = 41;
const POLICIES: u32 = 1;
/// `Policy.typed_extension_config` with `.typed_config`, an `Any` with `.type_url` and `.value`.
const EXTENSION: u32 = 4;
const TYPED_CONFIG: u32 = 2;
const TYPE_URL: u32 = 1;
const VALUE: u32 = 2;
/// `.locality_lb_config` of each policy that has one, and in it `.zone_aware_lb_config`.
const LOCALITY_LB_CONFIG: [(&[u8], u32); 3] =
    [(b"round_robin.v3.RoundRobin", 2), (b"least_request.v3.LeastRequest", 4), (b"random.v3.Random", 1)];
const POLICY_ZONE_AWARE: u32 = 1;
/// The end of the name of the filter that keeps sessions.
const SESSIONS: &[u8] = b"stateful_session";

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::cluster::CommonLbConfig;
    use envoy_types::pb::envoy::config::cluster::v3::cluster::common_lb_config as of_common;
    use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy;
    use envoy_types::pb::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy};
    use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
    use envoy_types::pb::envoy::extensions::load_balancing_policies::common::v3::{
        LocalityLbConfig, locality_lb_config as of_policy,
    };
    use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
    use envoy_types::pb::envoy::extensions::load_balancing_policies::random::v3::Random;
    use envoy_types::pb::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
    use envoy_types::pb::google::protobuf::Any;
    use prost::Message as _;

    use super::*;

    fn with_common(specifier: of_common::LocalityConfigSpecifier) -> Vec<u8> {
        let common =
            CommonLbConfig { locality_config_specifier: Some(specifier), ..CommonLbConfig::default() };
        Cluster { common_lb_config: Some(common), ..Cluster::default() }.encode_to_vec()
    }

    fn with_policy(name: &str, value: Vec<u8>) -> Vec<u8> {
        let type_url = format!("type.googleapis.com/envoy.extensions.load_balancing_policies.{name}");
        let typed_config = Some(Any { type_url, value });
        let extension = TypedExtensionConfig { name: "policy".to_owned(), typed_config };
        let policies = vec![Policy { typed_extension_config: Some(extension) }];
        let load_balancing_policy = Some(LoadBalancingPolicy { policies });
        Cluster { load_balancing_policy, ..Cluster::default() }.encode_to_vec()
    }

    #[test]
    fn a_cluster_prefers_the_zone_of_the_client_if_it_or_one_of_its_policies_says_so() {
        let zones =
            of_policy::LocalityConfigSpecifier::ZoneAwareLbConfig(of_policy::ZoneAwareLbConfig::default());
        let zones = Some(LocalityLbConfig { locality_config_specifier: Some(zones) });
        let round_robin = RoundRobin { locality_lb_config: zones, ..RoundRobin::default() };
        let least_request = LeastRequest { locality_lb_config: zones, ..LeastRequest::default() };
        for cluster in [
            with_common(of_common::LocalityConfigSpecifier::ZoneAwareLbConfig(
                of_common::ZoneAwareLbConfig::default(),
            )),
            with_policy("round_robin.v3.RoundRobin", round_robin.encode_to_vec()),
            with_policy("least_request.v3.LeastRequest", least_request.encode_to_vec()),
            with_policy("random.v3.Random", Random { locality_lb_config: zones }.encode_to_vec()),
        ] {
            assert!(prefers_zone(&cluster));
        }
        for cluster in [
            vec![],
            with_common(of_common::LocalityConfigSpecifier::LocalityWeightedLbConfig(
                of_common::LocalityWeightedLbConfig::default(),
            )),
            with_policy("round_robin.v3.RoundRobin", RoundRobin::default().encode_to_vec()),
        ] {
            assert!(!prefers_zone(&cluster));
        }
    }
}
