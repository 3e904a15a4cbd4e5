//! Rules of Envoy beyond `validate.rules` (part D of `docs/design/protocol-rules.md`). Envoy reads everything, so every message is checked.

mod chains;
mod cluster;
mod endpoints;
mod extensions;
mod filters;
mod headers;
mod listener;
mod manager;
mod matchers;
mod route;
mod shared;
mod sources;
mod template;
mod tls;

use std::collections::HashSet;

use xds_cache::{Profile, ResourceKey, ResourceType};
use xds_re2::Encoding;

use self::shared::{MANAGER, fault, is_true, refuse};
use super::Effect::Rejected;
use super::ProfileFinding;
use super::draws;
use super::reach::{Asker, Resources, decode};
use super::rule::{Fault, Rule, Rules, Scope, Side, When, duration_at, has, number_at};
use crate::diagnostic::echo;
use crate::inner::Inner;
use crate::message::{Message, child, seconds_and_nanos, text};
use crate::path::Path;
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
    let listeners = resources.listeners(inner).into_iter();
    let listeners = listeners.filter(|(asker, _)| *asker == Asker::Envoy).map(|(_, listener)| listener);
    let mut findings = listener::together(inner, &listeners.collect::<Vec<_>>());
    for key in reach(inner, resources) {
        let Some(resource) = resources.find(&key) else { continue };
        let Some(message) = decode(inner, resource) else { continue };
        let mut scope = Scope::new(inner, Profile::Envoy, Side::Client, resource);
        walk(inner, &message, &mut |path, message| {
            check(&rules, message, path, &mut scope);
            if message.name() == MANAGER
                && let Some(routes) = child(message, "route_config")
            {
                route::inline_clusters(&routes, &path.field("route_config"), resources, &mut scope);
            }
        });
        if *resource.resource_type() == ResourceType::ClusterLoadAssignment {
            endpoints::addresses(&message, &Path::Root, &mut scope);
        }
        findings.append(&mut scope.findings);
    }
    findings
}

fn check(rules: &Rules, message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    extensions::check(message, path, scope);
    match message.name() {
        "envoy.config.cluster.v3.Cluster" => cluster::cluster(message, path, scope),
        "envoy.config.cluster.v3.Cluster.LbSubsetConfig.LbSubsetSelector" => {
            cluster::subset(message, path, scope);
        }
        "envoy.config.cluster.v3.OutlierDetection" => cluster::ejection(message, path, scope),
        "envoy.config.core.v3.ConfigSource" => sources::source(message, path, scope),
        "envoy.config.core.v3.CidrRange" => filters::cidr_range(message, path, scope),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck" => cluster::http_check(message, path, scope),
        "envoy.config.core.v3.Http2ProtocolOptions" => manager::http2(message, path, scope),
        "envoy.config.core.v3.SubstitutionFormatString" => headers::substitution(message, path, scope),
        "envoy.config.endpoint.v3.ClusterLoadAssignment" => endpoints::load_assignment(message, path, scope),
        "envoy.config.endpoint.v3.LocalityLbEndpoints" => {
            if has(message, "lb_endpoints") {
                rules.check(message, path, scope);
            }
            sources::endpoints(message, path, scope);
        }
        "envoy.config.listener.v3.FilterChain" => chains::filter_chain(message, path, scope),
        "envoy.config.listener.v3.Listener" => listener::listener(message, path, scope),
        "envoy.config.rbac.v3.Permission" => filters::permission(message, path, scope),
        "envoy.config.route.v3.RetryPolicy" => retry_policy(message, path, scope),
        "envoy.config.route.v3.Route" => {
            headers::changes(message, path, scope);
            route::overrides(message, path, scope);
            template::route(message, path, scope);
        }
        "envoy.config.route.v3.RouteAction" => route::action(message, path, scope),
        "envoy.config.route.v3.RouteConfiguration" => {
            headers::changes(message, path, scope);
            route::overrides(message, path, scope);
            route::configuration(message, path, scope);
            sources::virtual_hosts(message, path, scope);
        }
        "envoy.config.route.v3.VirtualHost" => {
            headers::changes(message, path, scope);
            route::overrides(message, path, scope);
            route::virtual_host(message, path, scope);
            draws::virtual_host(message, path, scope);
        }
        "envoy.config.route.v3.WeightedCluster.ClusterWeight" => {
            headers::changes(message, path, scope);
            route::overrides(message, path, scope);
            route::cluster_weight(message, path, scope);
        }
        "envoy.type.matcher.v3.RegexMatcher" => regex(message, path, scope),
        "envoy.type.matcher.v3.StringMatcher" => string_matcher(message, path, scope),
        "google.protobuf.Duration" => duration(message, path, scope),
        MANAGER => manager::manager(message, path, scope),
        name => extension(name, message, path, scope),
    }
}

/// Checks messages of extensions.
fn extension(name: &str, message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    match name.strip_prefix("envoy.extensions.").unwrap_or_default() {
        "filters.http.jwt_authn.v3.JwtAuthentication" => filters::jwt(message, path, scope),
        "filters.http.local_ratelimit.v3.LocalRateLimit"
        | "filters.network.local_ratelimit.v3.LocalRateLimit" => {
            filters::local_rate_limit(message, path, scope);
        }
        "filters.http.lua.v3.Lua" => filters::lua(message, path, scope),
        "filters.http.router.v3.Router" => {
            chains::upstream_filters(message, "upstream_http_filters", path, scope);
        }
        "filters.network.http_connection_manager.v3.Rds" => sources::routes(message, path, scope),
        "filters.network.http_connection_manager.v3.ScopedRoutes" => {
            manager::scoped_routes(message, path, scope);
        }
        "http.original_ip_detection.xff.v3.XffConfig" => manager::forwarded_for(message, path, scope),
        "load_balancing_policies.maglev.v3.Maglev" => cluster::table_size(message, path, scope),
        "load_balancing_policies.ring_hash.v3.RingHash" => cluster::ring(message, path, scope),
        "transport_sockets.tls.v3.CertificateValidationContext" => tls::validation(message, path, scope),
        "transport_sockets.tls.v3.DownstreamTlsContext" => tls::downstream(message, path, scope),
        "transport_sockets.tls.v3.SubjectAltNameMatcher" => tls::name(message, path, scope),
        "transport_sockets.tls.v3.TlsCertificate" => tls::certificate(message, path, scope),
        "transport_sockets.tls.v3.TlsParameters" => tls::parameters(message, path, scope),
        "transport_sockets.tls.v3.UpstreamTlsContext" => tls::upstream(message, path, scope),
        "upstreams.http.v3.HttpProtocolOptions" => {
            chains::upstream_filters(message, "http_filters", path, scope);
        }
        _ => {}
    }
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
    if let Err(error) = xds_re2::check(&pattern, Encoding::Latin1) {
        let fault = Fault::new("D110", Rejected, "envoy-regex");
        let text = format!("Envoy rejects the regular expression {}: {error}", echo(&pattern));
        return scope.report(fault, path, "regex", text);
    }
    let own = child(message, "google_re2").and_then(|engine| number_at(&engine, "max_program_size"));
    let limit = own.map_or(xds_re2::MAX_PROGRAM_SIZE, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if let Some(size) = xds_re2::program_size(&pattern).filter(|size| *size > limit) {
        let fault = Fault::new("D111", Rejected, "envoy-regex-size");
        let text = format!(
            "Envoy rejects a regular expression whose RE2 program is larger than {limit}, unless {} raises this; this one has {}{size}",
            if own.is_some() {
                "`google_re2.max_program_size`"
            } else {
                "its bootstrap's `re2.max_program_size.error_level`"
            },
            if size > 1000 { "at least " } else { "" },
        );
        scope.report(fault, path, "regex", text);
    }
}

/// A text cannot be compared without case by a regular expression.
fn string_matcher(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if has(message, "safe_regex") && is_true(message, "ignore_case") {
        let text = "Envoy rejects `ignore_case` beside a regular expression".to_owned();
        let fault = fault(("D110", "envoy-regex"));
        scope.report_with(fault, path, "ignore_case", text, Some("(?i) in the expression".to_owned()));
    }
}

/// Envoy counts in nanoseconds, with 63 bits.
fn duration(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let Some((seconds, nanos)) = seconds_and_nanos(message) else { return };
    if seconds < 0 || nanos < 0 || seconds >= MAX_SECONDS {
        let text = "Envoy rejects durations that are negative or longer than 292 years";
        refuse(("D126", "envoy-duration"), path, "", text, scope);
    }
}

const MAX_SECONDS: i64 = i64::MAX / 1_000_000_000;
