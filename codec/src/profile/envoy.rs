//! Rules of Envoy beyond `validate.rules` (part D of `docs/design/protocol-rules.md`). Envoy reads everything, so every message is checked.

use std::collections::HashSet;
use std::net::IpAddr;

use xds_cache::{Profile, ResourceKey, ResourceType};

use super::Effect::Rejected;
use super::ProfileFinding;
use super::any::{short, type_of};
use super::draws;
use super::reach::{Asker, Resources, decode};
use super::rule::{Fault, Rule, Rules, Scope, Side, When, duration_at, enum_at, has, number_at};
use crate::diagnostic::echo;
use crate::inner::Inner;
use crate::message::{Message, child, list, text};
use crate::path::Path;
use crate::re2::{self, Encoding};
use crate::walk::walk;

/// The rules that fit into a table.
pub(super) const RULES: &[Rule] = &[Rule::new(
    "D70",
    (Rejected, "envoy-leds"),
    "envoy.config.endpoint.v3.LocalityLbEndpoints",
    (When::Set, &["leds_cluster_locality_config"]),
    "Envoy rejects a locality that has both `{}` and endpoints of its own",
)];

/// The resources that Envoys can reach: those that listeners (except those for gRPC) name, and every cluster.
pub(super) fn reach(inner: &Inner, resources: &Resources<'_>) -> HashSet<ResourceKey> {
    let listeners = resources.listeners(inner).into_iter();
    let listeners = listeners.filter(|(asker, _)| *asker == Asker::Envoy).map(|(_, listener)| listener);
    let mut left: Vec<_> = listeners.chain(resources.of_type(&ResourceType::Cluster)).collect();
    let mut reached = HashSet::new();
    while let Some(resource) = left.pop() {
        if reached.insert(resource.key().clone()) {
            left.extend(resource.references().targets().filter_map(|to| resources.find(to)));
        }
    }
    reached
}

/// Checks every resource that Envoys can reach.
pub(super) fn lint(inner: &Inner, resources: &Resources<'_>) -> Vec<ProfileFinding> {
    let rules = Rules::new(&[RULES]);
    let mut findings = Vec::new();
    for key in reach(inner, resources) {
        let Some(resource) = resources.find(&key) else { continue };
        let Some(message) = decode(inner, resource) else { continue };
        let mut scope = Scope::new(inner, Profile::Envoy, Side::Client, resource);
        walk(inner, &message, &mut |path, message| {
            check(&rules, message, path, &mut scope);
        });
        if *resource.resource_type() == ResourceType::ClusterLoadAssignment {
            addresses(&message, &Path::Root, &mut scope);
        }
        findings.append(&mut scope.findings);
    }
    findings
}

fn check(rules: &Rules, message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    match message.name() {
        "envoy.config.cluster.v3.Cluster" => cluster(message, path, scope),
        "envoy.config.endpoint.v3.LocalityLbEndpoints" if has(message, "lb_endpoints") => {
            rules.check(message, path, scope);
        }
        "envoy.config.listener.v3.FilterChain" => filter_chain(message, path, scope),
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager" => {
            http_filters(message, path, scope);
        }
        "envoy.config.route.v3.RetryPolicy" => retry_policy(message, path, scope),
        "envoy.config.route.v3.VirtualHost" => draws::virtual_host(message, path, scope),
        "envoy.type.matcher.v3.RegexMatcher" => regex(message, path, scope),
        _ => {}
    }
}

fn cluster(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let custom = child(message, "cluster_type").and_then(|custom| child(&custom, "typed_config"));
    let custom = custom.map(|any| type_of(scope.inner, &any));
    let discovery = enum_at(message, "type");
    let is_eds = custom.is_none() && discovery == EDS;
    let eds = child(message, "eds_cluster_config");
    if is_eds && eds.as_ref().is_none_or(|eds| !has(eds, "eds_config")) {
        let fault = Fault::new("D65", Rejected, "envoy-eds-config");
        let text = "Envoy rejects an EDS cluster without `eds_config`".to_owned();
        let suggestion = Some("eds_config: {ads: {}}".to_owned());
        scope.report_with(fault, path, "eds_cluster_config.eds_config", text, suggestion);
    }
    if !is_eds && custom.is_none() && eds.is_some() {
        let fault = Fault::new("D65", Rejected, "envoy-eds-config");
        let text = "Envoy rejects `eds_cluster_config` in a cluster that is not of type EDS".to_owned();
        scope.report_with(fault, path, "eds_cluster_config", text, Some("type: EDS".to_owned()));
    }
    let provides = match &custom {
        Some(name) => PROVIDERS.contains(&name.as_str()).then_some(short_name(name)),
        None => (discovery == ORIGINAL_DST).then_some("ORIGINAL_DST"),
    };
    lb_policy(message, provides, custom.is_none(), path, scope);
    let assignment = child(message, "load_assignment");
    if custom.is_none() && discovery == LOGICAL_DNS {
        let localities = assignment.as_ref().map(|it| list(it, "endpoints")).unwrap_or_default();
        let n_endpoints: usize = localities.iter().map(|one| list(one, "lb_endpoints").len()).sum();
        if (localities.len(), n_endpoints) != (1, 1) {
            let fault = Fault::new("D50", Rejected, "envoy-logical-dns");
            let text =
                "Envoy rejects a LOGICAL_DNS cluster unless it has exactly one endpoint in one locality";
            scope.report(fault, path, "load_assignment", text);
        }
    }
    if let Some(assignment) = assignment.filter(|_| custom.is_none() && discovery == STATIC) {
        addresses(&assignment, &path.field("load_assignment"), scope);
    }
    if let Some(ring) = child(message, "ring_hash_lb_config")
        && let (Some(minimum), Some(maximum)) =
            (number_at(&ring, "minimum_ring_size"), number_at(&ring, "maximum_ring_size"))
        && minimum > maximum
        && enum_at(message, "lb_policy") == RING_HASH
    {
        let fault = Fault::new("D43", Rejected, "envoy-ring-hash");
        let text = "Envoy rejects a minimum ring size above the maximum";
        scope.report(fault, path, "ring_hash_lb_config.minimum_ring_size", text);
    }
}

/// Row D44: only clusters with their own load balancing need CLUSTER_PROVIDED, and these must have it.
fn lb_policy(
    message: &Message,
    provides: Option<&str>,
    is_built_in: bool,
    path: &Path<'_>,
    scope: &mut Scope<'_>,
) {
    let policies = child(message, "load_balancing_policy").map(|policy| list(&policy, "policies"));
    let of_list = policies.as_ref().and_then(|policies| policies.first()).map(|first| {
        let any = child(first, "typed_extension_config").and_then(|config| child(&config, "typed_config"));
        any.is_some_and(|any| type_of(scope.inner, &any).ends_with(".ClusterProvided"))
    });
    let field = if of_list.is_some() { "load_balancing_policy" } else { "lb_policy" };
    let is_provided = of_list.unwrap_or(enum_at(message, "lb_policy") == CLUSTER_PROVIDED);
    let fault = Fault::new("D44", Rejected, "envoy-cluster-provided");
    match provides {
        Some(name) if !is_provided => {
            let text = format!("Envoy requires CLUSTER_PROVIDED for a cluster of type {name}");
            scope.report_with(fault, path, field, text, Some("CLUSTER_PROVIDED".to_owned()));
        }
        None if is_provided && is_built_in => {
            let text = "Envoy rejects CLUSTER_PROVIDED for a type of cluster that provides no load balancing"
                .to_owned();
            scope.report_with(fault, path, field, text, Some("ROUND_ROBIN".to_owned()));
        }
        Some(_) | None => {}
    }
}

/// Row D50: only DNS clusters accept host names.
fn addresses(assignment: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let localities_path = path.field("endpoints");
    for (index, locality) in list(assignment, "endpoints").iter().enumerate() {
        let locality_path = localities_path.index(index);
        let list_path = locality_path.field("lb_endpoints");
        for (at, endpoint) in list(locality, "lb_endpoints").iter().enumerate() {
            let address = child(endpoint, "endpoint").and_then(|endpoint| child(&endpoint, "address"));
            let Some(socket) = address.and_then(|address| child(&address, "socket_address")) else {
                continue;
            };
            let is_ip = text(&socket, "address").is_some_and(|text| text.parse::<IpAddr>().is_ok());
            if !is_ip && !has(&socket, "resolver_name") {
                let fault = Fault::new("D50", Rejected, "envoy-address");
                let text = "Envoy accepts host names only in clusters of type STRICT_DNS and LOGICAL_DNS";
                scope.report(fault, &list_path.index(at), "endpoint.address.socket_address.address", text);
            }
        }
    }
}

/// The terminal filter of a chain must be last.
fn filter_chain(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("filters");
    let types = types(&list(message, "filters"), scope.inner);
    for (index, name) in types.iter().enumerate() {
        if TERMINAL_FILTERS.contains(&name.as_str()) && index + 1 < types.len() {
            let fault = Fault::new("D42", Rejected, "envoy-terminal-filter");
            let text = format!("Envoy rejects filters after {}", short(name));
            scope.report(fault, &list_path.index(index), "", text);
        }
    }
}

fn http_filters(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let list_path = path.field("http_filters");
    let types = types(&list(message, "http_filters"), scope.inner);
    let fault = Fault::new("D42", Rejected, "envoy-terminal-filter");
    for (index, name) in types.iter().enumerate() {
        let is_last = index + 1 == types.len();
        if name == ROUTER && !is_last {
            scope.report(fault, &list_path.index(index), "", "Envoy rejects HTTP filters after the router");
        }
        if is_last && NO_ENDS.contains(&short(name)) {
            let text = format!(
                "Envoy rejects {} as the last HTTP filter; the last one must be the router",
                short(name)
            );
            scope.report_with(fault, &list_path.index(index), "", text, Some(ROUTER.to_owned()));
        }
    }
}

fn types(filters: &[Message], inner: &Inner) -> Vec<String> {
    let configs = filters.iter().map(|filter| child(filter, "typed_config"));
    configs.map(|any| any.map(|any| type_of(inner, &any)).unwrap_or_default()).collect()
}

fn retry_policy(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(backoff) = child(message, "retry_back_off") else { return };
    if let (Some(base), Some(max)) =
        (duration_at(&backoff, "base_interval"), duration_at(&backoff, "max_interval"))
        && max < base
    {
        let fault = Fault::new("D34", Rejected, "envoy-retry");
        let text = "Envoy rejects a `max_interval` that is shorter than the `base_interval`";
        scope.report(fault, path, "retry_back_off.max_interval", text);
    }
}

/// Rows D110 and D111: Envoy reads bytes, and limits the size of the program.
fn regex(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some(pattern) = text(message, "regex") else { return };
    if let Err(error) = re2::check(&pattern, Encoding::Latin1) {
        let fault = Fault::new("D110", Rejected, "envoy-regex");
        let text = format!("Envoy rejects the regular expression {}: {error}", echo(&pattern));
        return scope.report(fault, path, "regex", text);
    }
    if let Some(size) = re2::program_size(&pattern).filter(|size| *size > re2::MAX_PROGRAM_SIZE) {
        let fault = Fault::new("D111", Rejected, "envoy-regex-size");
        let text = format!(
            "Envoy rejects a regular expression whose RE2 program is larger than {}, unless its bootstrap raises `re2.max_program_size.error_level`; this one has {}{size}",
            re2::MAX_PROGRAM_SIZE,
            if size > 1000 { "at least " } else { "" },
        );
        scope.report(fault, path, "regex", text);
    }
}

/// Shortens `envoy.extensions.clusters.aggregate.v3.ClusterConfig` to `aggregate`.
fn short_name(name: &str) -> &str {
    name.split('.').nth(3).unwrap_or(name)
}

const STATIC: i32 = 0;
const LOGICAL_DNS: i32 = 2;
const EDS: i32 = 3;
const ORIGINAL_DST: i32 = 4;
const RING_HASH: i32 = 2;
const CLUSTER_PROVIDED: i32 = 6;

/// Custom types of clusters with their own load balancing.
const PROVIDERS: [&str; 3] = [
    "envoy.extensions.clusters.aggregate.v3.ClusterConfig",
    "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig",
    "envoy.extensions.clusters.redis.v3.RedisClusterConfig",
];

const TERMINAL_FILTERS: [&str; 2] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
];

const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// HTTP filters that are certainly not terminal.
const NO_ENDS: [&str; 12] = [
    "Cors",
    "HTTPFault",
    "RBAC",
    "JwtAuthentication",
    "ExtAuthz",
    "LocalRateLimit",
    "RateLimit",
    "GrpcWeb",
    "HealthCheck",
    "Lua",
    "Buffer",
    "StatefulSession",
];
