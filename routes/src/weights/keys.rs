//! The parts of a document that have weights, and the keys of its rules and backends.

use xds_codec::weights::{distinct, rule_ids};

use crate::model::{Document, DocumentKey, Kind, ObjectRef, Route, RouteKind, Rule, Spec, TrafficSplit};

/// The part of a document that has weights.
pub(super) enum Weighted<'d> {
    Route(&'d Route),
    Split(&'d TrafficSplit),
}

pub(super) fn weighted(document: &Document) -> Option<Weighted<'_>> {
    match &document.spec {
        Spec::Route(route) => Some(Weighted::Route(route)),
        Spec::TrafficSplit(split) => Some(Weighted::Split(split)),
        Spec::GatewayClass { .. }
        | Spec::Gateway(_)
        | Spec::ReferenceGrant(_)
        | Spec::BackendTlsPolicy(_)
        | Spec::Backend(_)
        | Spec::Service(_)
        | Spec::EndpointSlice(_)
        | Spec::Endpoints(_)
        | Spec::Namespace(_)
        | Spec::Secret(_)
        | Spec::ConfigMap(_)
        | Spec::HttpRouteGroup(_)
        | Spec::Policy(_)
        | Spec::RouteTest { .. } => None,
    }
}

pub(super) fn ids(route: &Route) -> Vec<String> {
    rule_ids(route.rules.iter().map(|rule| rule.name.as_deref()))
}

pub(super) fn keys(document: &DocumentKey, kind: RouteKind, rule: &Rule) -> Vec<String> {
    distinct(rule.backends.iter().map(|backend| key(document, kind, &backend.object)))
}

fn key(document: &DocumentKey, route: RouteKind, object: &ObjectRef) -> String {
    let mut key = String::new();
    let is_service = Kind::Service.is_named(&object.group, &object.kind);
    if route != RouteKind::Native && !is_service {
        // Kinds begin with a capital letter, namespaces do not.
        key = format!("{}/", object.kind);
    }
    if *object.namespace != *document.namespace {
        key = format!("{key}{}/", object.namespace);
    }
    key.push_str(&object.name);
    match object.port {
        Some(port) => format!("{key}:{port}"),
        None => key,
    }
}

pub(super) fn split_keys(split: &TrafficSplit) -> Vec<String> {
    distinct(split.backends.iter().map(|backend| backend.service.clone()))
}
