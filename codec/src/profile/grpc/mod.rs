//! The rules of gRPC clients and servers (part B of `docs/design/protocol-rules.md`).
//!
//! gRPC reads a small part of Envoy's API and ignores the rest, so rules must not apply everywhere. [`READS`] lists the fields that gRPC
//! follows. Only messages in these fields are checked, and only the resources that they name count as reached.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use xds_cache::{Name, Profile, ResourceKey, ResourceType};

use super::aggregate::{self, Members};
use super::reach::{Asker, Resources, decode};
use super::rule::{Fault, Rules, Scope, Side};
use super::{Effect, Language, ProfileFinding};
use crate::encode::decode_any;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Message, entries};
use crate::path::Path;
use crate::references;

mod balancing;
mod cluster;
mod endpoints;
mod filters;
mod ignored;
mod listener;
mod matches;
mod rbac;
mod route;
mod tls;

/// The result of checking everything that gRPC can reach.
pub(super) struct Linted {
    pub(super) findings: Vec<ProfileFinding>,
    /// The resources that gRPC can reach.
    pub(super) reached: HashSet<ResourceKey>,
}

/// Checks every resource that gRPC clients and servers can reach from their listeners.
pub(super) fn lint(inner: &Inner, resources: &Resources<'_>) -> Linted {
    let rules = Rules::new(&[
        listener::RULES,
        tls::RULES,
        route::RULES,
        matches::RULES,
        filters::RULES,
        rbac::RULES,
        cluster::RULES,
        ignored::RULES,
    ]);
    let mut linted = Linted { findings: Vec::new(), reached: HashSet::new() };
    let mut seen = HashSet::new();
    let mut members = Members::new();
    let mut targets: BTreeSet<Name> = BTreeSet::new();
    let mut left: Vec<(Arc<ResourceKey>, Side)> = Vec::new();
    for (asker, listener) in resources.listeners(inner) {
        match asker {
            Asker::GrpcClient => left.push((Arc::clone(listener.shared_key()), Side::Client)),
            Asker::GrpcServer => left.push((Arc::clone(listener.shared_key()), Side::Server)),
            Asker::Envoy => {}
        }
    }
    while let Some((key, side)) = left.pop() {
        let Some(resource) = resources.find(&key) else { continue };
        if !seen.insert((resource.key().clone(), side)) {
            continue;
        }
        linted.reached.insert(resource.key().clone());
        let Some(message) = decode(inner, resource) else { continue };
        let scope = Scope::new(inner, Profile::Grpc, side, resource);
        let mut visit = Visit {
            rules: &rules,
            scope,
            references: references::Found { most: usize::MAX - 1, ..Default::default() },
            n_anys: 0,
        };
        visit.message(&message, &Path::Root);
        linted.findings.append(&mut visit.scope.findings);
        let followed = visit.references.list.into_iter().map(|reference| reference.to);
        let followed: Vec<_> = followed.filter(|to| FOLLOWED.contains(&to.resource_type)).collect();
        let is_cluster = *resource.resource_type() == ResourceType::Cluster;
        let clusters = followed.iter().filter(|to| to.resource_type == ResourceType::Cluster);
        let clusters: Vec<Name> = clusters.map(|to| to.name.clone()).collect();
        match clusters.is_empty() {
            false if is_cluster => drop(members.insert(resource.name().clone(), clusters)),
            _ => targets.extend(clusters),
        }
        left.extend(followed.into_iter().map(|to| (to, side)));
    }
    linted.findings.extend(aggregates(inner, resources, &members, &targets));
    linted
}

/// Rows B178 and B179. The depth is checked only for aggregates that a route names, because clients count from there.
fn aggregates(
    inner: &Inner,
    resources: &Resources<'_>,
    members: &Members,
    targets: &BTreeSet<Name>,
) -> Vec<ProfileFinding> {
    let mut findings = Vec::new();
    for (name, fault) in aggregate::faults(members) {
        let key = ResourceKey { resource_type: ResourceType::Cluster, name };
        let Some(resource) = resources.find(&key) else { continue };
        let mut scope = Scope::new(inner, Profile::Grpc, Side::Client, resource);
        let path = "cluster_type.typed_config.clusters";
        match fault {
            aggregate::Fault::Cycle => {
                let fault = Fault::new("B179", Effect::Fails, "grpc-aggregate-cycle").by(&[Language::Java]);
                let text = "the aggregate refers back to itself; gRPC (java) fails its requests, and go, C-core and js ignore the repeated cluster";
                scope.report(fault, &Path::Root, path, text);
            }
            aggregate::Fault::Depth(depth) if targets.contains(&key.name) => {
                let fault = Fault::new("B178", Effect::Fails, "grpc-aggregate-depth").by(&[
                    Language::Core,
                    Language::Go,
                    Language::Js,
                ]);
                let text = format!(
                    "the longest path from this aggregate has {depth} clusters; with more than {} every request of a \
                     gRPC client (go, C-core, js) fails",
                    aggregate::MAX_DEPTH
                );
                scope.report(fault, &Path::Root, path, text);
            }
            aggregate::Fault::Depth(_) => {}
        }
        findings.append(&mut scope.findings);
    }
    findings
}

/// Checks one resource, and collects the references that gRPC follows.
struct Visit<'v> {
    rules: &'v Rules,
    scope: Scope<'v>,
    references: references::Found,
    n_anys: usize,
}

impl Visit<'_> {
    fn message(&mut self, message: &Message, path: &Path<'_>) {
        let name = message.name();
        if name == "google.protobuf.Any" {
            if self.n_anys < MAX_ANY_DEPTH
                && let Some(content) = decode_any(self.scope.inner, message)
            {
                self.n_anys += 1;
                self.message(&content, path);
                self.n_anys -= 1;
            }
            return;
        }
        if route::is_left_out(message, path, &mut self.scope) {
            let references = std::mem::take(&mut self.references);
            let already = std::mem::take(&mut self.scope.findings);
            self.read(message, path);
            let found = std::mem::replace(&mut self.scope.findings, already);
            self.scope.add_of(Language::Js, "gRPC (js) checks what it skips", found);
            self.references = references;
            return;
        }
        self.read(message, path);
    }

    /// Checks a message and what gRPC reads in it.
    fn read(&mut self, message: &Message, path: &Path<'_>) {
        let name = message.name();
        self.rules.check(message, path, &mut self.scope);
        check(message, path, &mut self.scope);
        if name != filters::GCP_AUTHN {
            references::of_message(message, path, &mut self.references);
        }
        for field in reads_of(name) {
            if self.enters(message, field) {
                self.field(message, field, &path.field(field));
            }
        }
    }

    fn field(&mut self, message: &Message, field: &str, path: &Path<'_>) {
        let Some(descriptor) = message.descriptor().get_field_by_name(field) else { return };
        if descriptor.is_map() {
            for (key, nested) in entries(message, field) {
                self.message(&nested, &path.key(&key));
            }
            return;
        }
        for (index, item) in message.items(&descriptor).enumerate() {
            let Some(nested) = item.as_message() else { continue };
            if descriptor.is_list() {
                self.message(nested, &path.index(index));
            } else {
                self.message(nested, path);
            }
        }
    }

    /// Returns `true` if gRPC reads a field. Of a listener with an `api_listener`, it reads only that (row B38); a server forwards nothing
    /// (row B55).
    fn enters(&self, message: &Message, field: &str) -> bool {
        match message.name() {
            "envoy.config.listener.v3.Listener" => field == "api_listener" || self.scope.side == Side::Server,
            "envoy.config.route.v3.Route" => field != "route" || self.scope.side == Side::Client,
            _ => true,
        }
    }
}

/// Checks that a table cannot express.
fn check(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    match message.name() {
        "envoy.config.listener.v3.Listener" => listener::listener(message, path, scope),
        "envoy.config.listener.v3.ApiListener" => listener::api_listener(message, path, scope),
        "envoy.config.listener.v3.FilterChain" => listener::filter_chain(message, path, scope),
        listener::HCM => {
            listener::manager(message, path, scope);
            filters::http_filters(message, path, scope);
        }
        "envoy.config.core.v3.ConfigSource" => listener::config_source(message, path, scope),
        "envoy.config.core.v3.TransportSocket" => tls::transport_socket(message, path, scope),
        tls::COMMON => tls::common_tls_context(message, path, scope),
        tls::VALIDATION => tls::validation_context(message, path, scope),
        tls::UPSTREAM => tls::upstream_tls_context(message, path, scope),
        tls::DOWNSTREAM => tls::downstream_tls_context(message, path, scope),
        route::CONFIGURATION => route::route_configuration(message, path, scope),
        route::VIRTUAL_HOST => route::virtual_host(message, path, scope),
        route::ROUTE => route::route(message, path, scope),
        route::ACTION => route::action(message, path, scope),
        "envoy.config.route.v3.WeightedCluster.ClusterWeight" => filters::overrides(message, path, scope),
        "envoy.config.route.v3.RetryPolicy" => route::retry_policy(message, path, scope),
        route::HASH_POLICY => route::hash_policy(message, path, scope),
        matches::MATCH => matches::route_match(message, path, scope),
        "envoy.config.route.v3.HeaderMatcher" => matches::header_matcher(message, path, scope),
        "envoy.type.matcher.v3.RegexMatcher" => matches::regex(message, path, scope),
        rbac::PERMISSION | rbac::PRINCIPAL => rbac::rule(message, path, scope),
        "envoy.config.core.v3.CidrRange" => listener::cidr_range(message, path, scope),
        "envoy.config.rbac.v3.RBAC" => rbac::rules(message, path, scope),
        filters::STATEFUL_SESSION => filters::stateful_session(message, path, scope),
        cluster::CLUSTER => cluster::cluster(message, path, scope),
        "envoy.config.endpoint.v3.ClusterLoadAssignment" => endpoints::load_assignment(message, path, scope),
        _ => {}
    }
}

fn reads_of(message: &str) -> &'static [&'static str] {
    READS.iter().find(|(name, _)| *name == message).map_or(&[], |(_, fields)| fields)
}

/// The types that gRPC requests.
const FOLLOWED: [ResourceType; 3] =
    [ResourceType::Cluster, ResourceType::ClusterLoadAssignment, ResourceType::RouteConfiguration];

/// The fields that gRPC follows in a message. Other fields are not read, or are read by the check of the parent.
const READS: &[(&str, &[&str])] = &[
    ("envoy.config.listener.v3.Listener", &["api_listener", "filter_chains", "default_filter_chain"]),
    ("envoy.config.listener.v3.ApiListener", &["api_listener"]),
    ("envoy.config.listener.v3.FilterChain", &["filter_chain_match", "filters", "transport_socket"]),
    ("envoy.config.listener.v3.FilterChainMatch", &["prefix_ranges", "source_prefix_ranges"]),
    ("envoy.config.listener.v3.Filter", &["typed_config"]),
    (listener::HCM, &["rds", "route_config", "http_filters"]),
    ("envoy.extensions.filters.network.http_connection_manager.v3.Rds", &["config_source"]),
    (filters::HTTP_FILTER, &["typed_config"]),
    (filters::FAULT, &["abort", "delay"]),
    ("envoy.config.core.v3.TransportSocket", &["typed_config"]),
    (tls::DOWNSTREAM, &["common_tls_context"]),
    (tls::UPSTREAM, &["common_tls_context"]),
    (tls::PROXY, &["transport_socket"]),
    (tls::COMMON, &["validation_context", "combined_validation_context"]),
    (tls::COMBINED, &["default_validation_context"]),
    (tls::VALIDATION, &["match_subject_alt_names"]),
    (route::CONFIGURATION, &["virtual_hosts"]),
    (route::VIRTUAL_HOST, &["routes", "retry_policy", "typed_per_filter_config"]),
    (route::ROUTE, &["match", "route", "typed_per_filter_config"]),
    (matches::MATCH, &["safe_regex", "headers"]),
    ("envoy.config.route.v3.HeaderMatcher", &["string_match", "safe_regex_match"]),
    ("envoy.type.matcher.v3.StringMatcher", &["safe_regex"]),
    ("envoy.type.matcher.v3.PathMatcher", &["path"]),
    (route::ACTION, &["weighted_clusters", "retry_policy", "hash_policy"]),
    ("envoy.config.route.v3.WeightedCluster", &["clusters"]),
    ("envoy.config.route.v3.WeightedCluster.ClusterWeight", &["typed_per_filter_config"]),
    (route::HASH_POLICY, &["header"]),
    ("envoy.config.route.v3.RouteAction.HashPolicy.Header", &["regex_rewrite"]),
    ("envoy.type.matcher.v3.RegexMatchAndSubstitute", &["pattern"]),
    ("envoy.config.route.v3.FilterConfig", &["config"]),
    ("envoy.extensions.filters.http.rbac.v3.RBAC", &["rules"]),
    ("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", &["rbac"]),
    ("envoy.config.rbac.v3.RBAC", &["policies"]),
    ("envoy.config.rbac.v3.Policy", &["permissions", "principals"]),
    (rbac::PERMISSION, &["and_rules", "or_rules", "not_rule", "header", "url_path", "destination_ip"]),
    ("envoy.config.rbac.v3.Permission.Set", &["rules"]),
    (
        rbac::PRINCIPAL,
        &[
            "and_ids",
            "or_ids",
            "not_id",
            "authenticated",
            "header",
            "url_path",
            "source_ip",
            "direct_remote_ip",
            "remote_ip",
        ],
    ),
    ("envoy.config.rbac.v3.Principal.Set", &["ids"]),
    ("envoy.config.rbac.v3.Principal.Authenticated", &["principal_name"]),
    ("envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute", &["stateful_session"]),
    (cluster::CLUSTER, &["cluster_type", "transport_socket"]),
    ("envoy.config.cluster.v3.Cluster.CustomClusterType", &["typed_config"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_tables_exists() {
        let pool = crate::descriptors::load(&[]).unwrap();
        let field = |message: &str, field: &str| {
            let mut at = pool.get_message_by_name(message).unwrap_or_else(|| panic!("{message}"));
            let mut found = None;
            for name in field.split('.') {
                let descriptor =
                    at.get_field_by_name(name).unwrap_or_else(|| panic!("{message}: {name} of {field}"));
                if let prost_reflect::Kind::Message(next) = descriptor.kind() {
                    at = next;
                }
                found = Some(descriptor);
            }
            found
        };
        for (message, fields) in READS {
            fields.iter().for_each(|name| drop(field(message, name)));
        }
        let tables = [
            listener::RULES,
            tls::RULES,
            route::RULES,
            matches::RULES,
            filters::RULES,
            rbac::RULES,
            cluster::RULES,
            ignored::RULES,
        ];
        for rule in tables.into_iter().flatten().chain(super::super::envoy::RULES) {
            rule.fields.iter().for_each(|name| drop(field(rule.message, name)));
        }
    }
}
