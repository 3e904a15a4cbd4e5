//! Sessions that do not survive a drain (row C87): a session filter makes requests stick to endpoints of a cluster, but the cluster
//! sends no more requests to an endpoint that is `DRAINING`.
//!
//! The listener's filter decides whether requests stick, unless the routes to the cluster override it. Only routes that listeners name
//! are searched, not those of scopes or of virtual hosts that are separate resources.

use std::collections::BTreeSet;

use xds_cache::{Name, Profile, ResourceKey, ResourceType};

use super::Effect::Ignored;
use super::reach::{Asker, Resources, decode};
use super::rule::{Fault, Scope, Side, enum_at, has, value_at, values_at};
use super::{Language, ProfileFinding};
use crate::encode::decode_any;
use crate::inner::Inner;
use crate::message::{Message, child, entries, list, text};
use crate::path::Path;
use crate::walk::walk;

/// Checks the clusters to which requests of clients of the profile stick.
pub(super) fn lint(inner: &Inner, resources: &Resources<'_>, profile: Profile) -> Vec<ProfileFinding> {
    let (asker, who, code, statuses) = match profile {
        Profile::Envoy => {
            (Asker::Envoy, "Envoy", "envoy-session-draining", "UNKNOWN, HEALTHY, DEGRADED, DRAINING")
        }
        Profile::Grpc => {
            (Asker::GrpcClient, "gRPC (C-core)", "grpc-session-draining", "UNKNOWN, HEALTHY, DRAINING")
        }
    };
    let mut left = Vec::new();
    for (_, listener) in resources.listeners(inner).into_iter().filter(|(one, _)| *one == asker) {
        let Some(message) = decode(inner, listener) else { continue };
        walk(inner, &message, &mut |_, message| {
            if message.name() == MANAGER {
                left.extend(sticky_clusters(inner, resources, message));
            }
        });
    }
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    while let Some(name) = left.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let key = ResourceKey { resource_type: ResourceType::Cluster, name };
        let Some(resource) = resources.find(&key) else { continue };
        let Some(message) = decode(inner, resource) else { continue };
        if child(&message, "cluster_type").is_some() {
            // The endpoints are in the members.
            left.extend(resource.references().of_type(&ResourceType::Cluster).cloned());
            continue;
        }
        if enum_at(&message, "type") == EDS && !keeps_draining(&message) {
            let mut scope = Scope::new(inner, profile, Side::Client, resource);
            let fault = Fault::new("C87", Ignored, code).by(&[Language::Core]);
            let text = format!(
                "{who} ignores the session of an endpoint that is `DRAINING`, because `{FIELD}` does not include it"
            );
            let suggestion = Some(format!("{FIELD}: {{statuses: [{statuses}]}}"));
            scope.report_with(fault, &Path::Root.field("common_lb_config"), FIELD, text, suggestion);
            findings.append(&mut scope.findings);
        }
    }
    findings
}

/// The clusters to which requests stick because of an HTTP connection manager and its routes.
fn sticky_clusters(inner: &Inner, resources: &Resources<'_>, manager: &Message) -> Vec<Name> {
    let filters: Vec<(String, bool)> = list(manager, "http_filters")
        .iter()
        .filter_map(|filter| {
            let content = decode_any(inner, &child(filter, "typed_config")?)?;
            let is_on = has(&content, "session_state") && !is_true(filter, "disabled");
            (content.name() == FILTER).then(|| (text(filter, "name").unwrap_or_default(), is_on))
        })
        .collect();
    if filters.is_empty() {
        return Vec::new();
    }
    let named = || {
        let name = text(&child(manager, "rds")?, "route_config_name")?;
        let key = ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() };
        decode(inner, resources.find(&key)?)
    };
    let Some(routes) = child(manager, "route_config").or_else(named) else { return Vec::new() };
    let said = |message: &Message, filters: &[(String, bool)]| overridden(inner, message, filters);
    let filters = said(&routes, &filters);
    let mut clusters = Vec::new();
    for host in list(&routes, "virtual_hosts") {
        let filters = said(&host, &filters);
        for route in list(&host, "routes") {
            let filters = said(&route, &filters);
            let Some(action) = child(&route, "route") else { continue };
            let weighted = child(&action, "weighted_clusters").map(|split| list(&split, "clusters"));
            let weighted = weighted.unwrap_or_default();
            let weighted = weighted.iter().map(|one| (text(one, "name"), said(one, &filters)));
            let named = [(text(&action, "cluster"), filters.clone())].into_iter().chain(weighted);
            let is_sticky = |filters: &[(String, bool)]| filters.iter().any(|(_, is_on)| *is_on);
            clusters.extend(named.filter(|(_, filters)| is_sticky(filters)).filter_map(|(name, _)| name));
        }
    }
    clusters.into_iter().map(Into::into).collect()
}

/// The filters that keep sessions, by name, after the overrides of a message.
fn overridden(inner: &Inner, message: &Message, filters: &[(String, bool)]) -> Vec<(String, bool)> {
    let said: Vec<_> = entries(message, "typed_per_filter_config").collect();
    let over = |(name, is_on): &(String, bool)| {
        let any = said.iter().find(|(of, _)| of == name).map(|(_, any)| any);
        (name.clone(), any.and_then(|any| override_of(inner, any)).unwrap_or(*is_on))
    };
    filters.iter().map(over).collect()
}

/// Returns whether an override makes the filter keep sessions; `None` if it does not decide that.
fn override_of(inner: &Inner, any: &Message) -> Option<bool> {
    let mut content = decode_any(inner, any)?;
    if content.name() == FILTER_CONFIG {
        if is_true(&content, "disabled") {
            return Some(false);
        }
        content = decode_any(inner, &child(&content, "config")?)?;
    }
    if is_true(&content, "disabled") {
        return Some(false);
    }
    child(&content, "stateful_session").map(|session| has(&session, "session_state"))
}

/// Returns `true` if endpoints that are `DRAINING` still get the requests of their sessions.
fn keeps_draining(cluster: &Message) -> bool {
    let statuses = values_at(cluster, "common_lb_config.override_host_status.statuses");
    statuses.iter().any(|status| status.as_enum_number() == Some(DRAINING))
}

fn is_true(message: &Message, field: &str) -> bool {
    value_at(message, field).is_some_and(|value| value.as_bool() == Some(true))
}

const FIELD: &str = "override_host_status";
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const FILTER: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";
const EDS: i32 = 3;
const DRAINING: i32 = 3;
