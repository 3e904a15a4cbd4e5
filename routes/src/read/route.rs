//! The parts that GRPCRoute and HTTPRoute share: parents, host names, and most of a rule.

use std::sync::Arc;

use xds_codec::echo;

use super::backend_ref::{read_backend_object, warn_of_no_weight};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::filters::read_filters;
use super::meta::{read_group, read_hostname, read_kind, read_name, read_section_name};
use super::session::read_session;
use crate::model::{
    BackendRef, Hostname, Kind, Match, MatchType, MethodMatch, ParentRef, PathMatch, Rule, SessionKind, Spot,
    Timeouts,
};

/// The limit of matches in one rule.
pub(crate) const MAX_MATCHES_OF_RULE: usize = 64;

/// The limit of matches in all rules together. The API's message says "less than 128", but its rule allows 128.
const MAX_MATCHES: usize = 128;

/// Reads `parentRefs`, at most 32 distinct ones, and `useDefaultGateways`.
pub(crate) fn read_parents(
    spec: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> (Vec<ParentRef>, bool) {
    let list = spec.take("parentRefs").map(|list| list.list(32, reader)).unwrap_or_default();
    let mut parents: Vec<ParentRef> = Vec::with_capacity(list.len());
    let mut uses_default_gateways = false;
    for value in list {
        let Some(parent) = read_parent(&value, context, reader) else { continue };
        if let Some(reason) = parents.iter().find_map(|other| conflict_of(other, &parent)) {
            reader.error("duplicate-parent", &parent.spot, reason);
        }
        parents.push(parent);
    }
    if let Some(scope) = spec.take("useDefaultGateways") {
        let asks = scope.choice(&["All", "None"], reader) == Some("All");
        uses_default_gateways = asks && parents.is_empty();
        if asks && !uses_default_gateways {
            let message = "`useDefaultGateways` has an effect only without `parentRefs`";
            reader.warn("unsupported", &scope.spot, message);
        }
    }
    (parents, uses_default_gateways)
}

fn read_parent(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<ParentRef> {
    let mut object = value.object(reader)?;
    let group = match object.take("group") {
        Some(group) => read_group(&group, reader),
        None => Some(Kind::Gateway.api_group().into()),
    };
    let kind = match object.take("kind") {
        Some(kind) => read_kind(&kind, reader),
        None => Some(Kind::Gateway.as_str().into()),
    };
    let namespace = match object.take("namespace") {
        Some(namespace) => read_name(&namespace, reader),
        None => Some(Arc::clone(&context.key.namespace)),
    };
    let name = object.need("name", reader).and_then(|name| read_name(&name, reader));
    let section = object.take("sectionName").map(|section| read_section_name(&section, reader));
    let port = object.take("port").map(|port| port.port(reader));
    object.finish(reader);
    Some(ParentRef {
        spot: value.spot.clone(),
        group: group?,
        kind: kind?,
        namespace: namespace?,
        name: name?,
        section: section.flatten(),
        port: port.flatten(),
    })
}

/// Says why two references to the same parent are not distinct. Both need different sections. In the experimental channel, both may
/// instead differ in the same fields of `sectionName` and `port`.
fn conflict_of(one: &ParentRef, other: &ParentRef) -> Option<String> {
    let parent = |parent: &ParentRef| {
        let ParentRef { group, kind, namespace, name, .. } = parent;
        (group.clone(), kind.clone(), namespace.clone(), name.clone())
    };
    if parent(one) != parent(other) {
        return None;
    }
    if one.section.is_some() && other.section.is_some() && one.section != other.section {
        return None;
    }
    let is_alike =
        one.section.is_some() == other.section.is_some() && one.port.is_some() == other.port.is_some();
    if is_alike && one.port != other.port {
        return None;
    }
    let fields = match (one.port, other.port) {
        (None, None) => "sectionName",
        (Some(_), _) | (_, Some(_)) => "sectionName or port",
    };
    let problem = if is_alike { "unique" } else { "specified" };
    Some(format!(
        "{fields} must be {problem} when parentRefs includes 2 or more references to the same parent"
    ))
}

/// Reads `hostnames`; at most 16.
pub(crate) fn read_hostnames(spec: &mut Object<'_>, reader: &mut Reader) -> Vec<Hostname> {
    let Some(list) = spec.take("hostnames") else { return Vec::new() };
    let items = list.list(16, reader);
    let mut hostnames = Vec::with_capacity(items.len());
    for value in items {
        let Some(hostname) = read_hostname(&value, reader) else { continue };
        if hostnames.contains(&hostname) {
            reader.warn("duplicate-hostname", &value.spot, format!("the host name {hostname} appears twice"));
            continue;
        }
        hostnames.push(hostname);
    }
    hostnames
}

/// Reads the fields that rules of both kinds have. The caller adds matches, timeouts and retries.
pub(crate) fn read_common(object: &mut Object<'_>, context: &Context<'_>, reader: &mut Reader) -> Rule {
    let name = object.take("name").and_then(|name| read_section_name(&name, reader));
    let filters = match object.take("filters") {
        Some(filters) => read_filters(&filters, context, reader),
        None => Vec::new(),
    };
    let backends = match object.take("backendRefs") {
        Some(backends) => read_backend_refs(&backends, context, reader),
        None => Vec::new(),
    };
    let session = object.take("sessionPersistence").and_then(|session| read_session(&session, reader));
    Rule {
        spot: object.spot().clone(),
        name: name.map(Into::into),
        matches: Vec::new(),
        filters,
        backends,
        timeouts: Timeouts::default(),
        retry: None,
        session: session.map(Box::new),
    }
}

/// Checks all rules of a route together. `n_matches` is the number of matches that count for the limit.
pub(crate) fn check_rules(spot: &Spot, rules: &[Rule], n_matches: usize, reader: &mut Reader) {
    if n_matches > MAX_MATCHES {
        let message = "While 16 rules and 64 matches per rule are allowed, the total number of matches across all \
                       rules in a route must be less than 128";
        reader.error("too-many-matches", spot, message);
    }
    rules.iter().for_each(|rule| check_cookie_path(rule, reader));
    for (index, rule) in rules.iter().enumerate() {
        let Some(name) = &rule.name else { continue };
        if rules.iter().take(index).any(|other| other.name.as_ref() == Some(name)) {
            let message = format!("Rule name must be unique within the route: {}", echo(name));
            reader.error("duplicate-rule", &rule.spot, message);
        }
    }
}

/// Warns if clients would never send a cookie back with a request of the rule, because no such request is below its path.
fn check_cookie_path(rule: &Rule, reader: &mut Reader) {
    let Some(session) = &rule.session else { return };
    let SessionKind::Cookie { path: cookie, .. } = &session.kind else { return };
    let is_above = |path: &str| {
        let rest = path.strip_prefix(cookie.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || cookie.ends_with('/'))
    };
    let is_sent = |one: &Match| match &one.path {
        PathMatch::Exact(path) => is_above(path),
        PathMatch::Prefix(path) => is_above(path) || cookie.starts_with(&format!("{path}/")),
        PathMatch::TextPrefix(path) => is_above(path) || cookie.starts_with(path.as_str()),
        PathMatch::Method(MethodMatch { match_type: MatchType::Exact, service: Some(service), method }) => {
            match method {
                Some(method) => is_above(&format!("/{service}/{method}")),
                None => is_above(&format!("/{service}/")) || cookie.starts_with(&format!("/{service}/")),
            }
        }
        PathMatch::Any | PathMatch::Regex(_) | PathMatch::Method(_) => true,
    };
    if !rule.matches.iter().any(is_sent) {
        let message = format!(
            "no request of the rule is below the cookie's path {}, so no session is kept",
            echo(cookie)
        );
        reader.warn("cookie-path", &session.spot, message);
    }
}

/// Reads `backendRefs`; at most 16.
fn read_backend_refs(list: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<BackendRef> {
    let items = list.list(16, reader);
    let mut backends = Vec::with_capacity(items.len());
    for value in items {
        let Some(mut backend) = value.object(reader) else { continue };
        let object = read_backend_object(&mut backend, context, reader);
        let weight = match backend.take("weight") {
            Some(weight) => weight.integer(0, 1_000_000, reader),
            None => Some(1),
        };
        let filters = match backend.take("filters") {
            Some(filters) => read_filters(&filters, context, reader),
            None => Vec::new(),
        };
        backend.finish(reader);
        if let (Some(object), Some(weight)) = (object, weight.and_then(|weight| u32::try_from(weight).ok())) {
            backends.push(BackendRef { object, weight, filters });
        }
    }
    warn_of_no_weight(&backends, &list.spot, reader);
    backends
}
