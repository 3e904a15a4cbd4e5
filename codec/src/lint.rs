//! Faults that neither the types nor `validate.rules` can express, but that clients refuse or that do harm.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, MapKey, ReflectMessage, Value};
use xds_cache::cluster::{DRAIN_CLUSTER, DRAIN_ENDPOINTS, METADATA};
use xds_cache::wave::duration;

use crate::diagnostic::{echo, echo_name};
use crate::finding::{Finding, Findings};
use crate::path::Path;

/// Checks one message of a resource; `walk` brings them all.
pub(crate) fn check(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    match message.descriptor().full_name() {
        "envoy.config.route.v3.WeightedCluster" => weighted_clusters(message, path, findings),
        "envoy.config.route.v3.RouteConfiguration" => route_configuration(message, path, findings),
        "envoy.config.endpoint.v3.ClusterLoadAssignment" => load_assignment(message, path, findings),
        "envoy.config.cluster.v3.Cluster" => cluster(message, path, findings),
        "envoy.type.matcher.v3.RegexMatcher" => regex(message, path, findings),
        _ => {}
    }
}

/// Weights must have a sum from 1 to 2^32-1, and `total_weight`, where it is set, must be the sum (pitfall 76).
fn weighted_clusters(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let clusters = list(message, "clusters");
    let weights = clusters.iter().map(|cluster| {
        // Without a weight a cluster counts nothing, unless its weight comes from a header... which Envoy has not.
        child(cluster, "weight").and_then(|weight| number(&weight, "value")).unwrap_or_default()
    });
    let sum: u64 = weights.map(u64::from).sum();
    let path = path.field("clusters");
    if clusters.is_empty() {
        return;
    }
    if sum == 0 {
        findings.push(Finding::error("zero-weights", &path, "all weights are zero"));
    }
    if sum > u64::from(u32::MAX) {
        let text = format!("the sum of the weights is {sum}, more than {}", u32::MAX);
        findings.push(Finding::error("weights-overflow", &path, text));
    }
    if let Some(total) = child(message, "total_weight").and_then(|total| number(&total, "value"))
        && u64::from(total) != sum
    {
        let text = format!("`total_weight` is {total}, the sum of the weights is {sum}");
        findings.push(Finding::error("total-weight", &path, text));
    }
}

/// Virtual hosts must differ in their names, and no domain may be there twice.
fn route_configuration(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let path = path.field("virtual_hosts");
    let mut names = HashMap::new();
    let mut domains = HashMap::new();
    for (index, host) in list(message, "virtual_hosts").iter().enumerate() {
        let path = path.index(index);
        if let Some(name) = text(host, "name")
            && let Some(first) = names.insert(name.clone(), index)
        {
            let text = format!("virtual host {first} has the name {} too", echo_name(&name));
            findings.push(Finding::error("duplicate-virtual-host", &path.field("name"), text));
        }
        let domains_path = path.field("domains");
        for (at, domain) in texts(host, "domains").into_iter().enumerate() {
            let lower = domain.to_ascii_lowercase();
            if let Some(first) = domains.insert(lower, index) {
                let text = format!("virtual host {first} has the domain {} too", echo_name(&domain));
                findings.push(Finding::error("duplicate-domain", &domains_path.index(at), text));
            }
        }
    }
}

/// No address may be there twice (pitfall 75); priorities must have no gap, or gRPC refuses the resource.
fn load_assignment(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let path = path.field("endpoints");
    let mut addresses: HashMap<String, String> = HashMap::new();
    let mut priorities = std::collections::BTreeSet::new();
    let localities = list(message, "endpoints");
    for (index, locality) in localities.iter().enumerate() {
        let path = path.index(index);
        priorities.insert(number(locality, "priority").unwrap_or_default());
        let endpoints_path = path.field("lb_endpoints");
        for (at, endpoint) in list(locality, "lb_endpoints").iter().enumerate() {
            let path = endpoints_path.index(at);
            let endpoint_path = path.field("endpoint");
            let Some(address) = child(endpoint, "endpoint").and_then(|endpoint| address_of(&endpoint)) else {
                continue;
            };
            let path = endpoint_path.field("address");
            if let Some(first) = addresses.insert(address.clone(), path.to_string()) {
                let text = format!("{} is there twice, first at {first}", echo(&address));
                findings.push(Finding::error("duplicate-endpoint", &path, text));
            }
        }
    }
    let expected = 0..u32::try_from(priorities.len()).unwrap_or(u32::MAX);
    if let Some(missing) = expected.into_iter().find(|priority| !priorities.contains(priority)) {
        let text =
            format!("no locality has priority {missing}, though one has a higher number; gRPC refuses that");
        findings.push(Finding::warning("priority-gap", &path, text));
    }
}

/// What makes an endpoint the same to a client: its socket address or pipe.
fn address_of(endpoint: &DynamicMessage) -> Option<String> {
    let address = child(endpoint, "address")?;
    if let Some(socket) = child(&address, "socket_address") {
        let host = text(&socket, "address")?;
        let port = number(&socket, "port_value")
            .map(|port| port.to_string())
            .or_else(|| text(&socket, "named_port"));
        let is_udp = socket.get_field_by_name("protocol").and_then(|value| value.as_enum_number()) == Some(1);
        // The endpoint's host name and network namespace tell endpoints behind one address apart.
        let host_name = text(endpoint, "hostname").unwrap_or_default();
        let namespace = text(&socket, "network_namespace_filepath").unwrap_or_default();
        let more = [if is_udp { "udp" } else { "" }, &host_name, &namespace].join(" ");
        return Some(format!("{host}:{} {}", port.unwrap_or_default(), more.trim()).trim().to_owned());
    }
    text(&child(&address, "pipe")?, "path")
}

/// With an `xdstp:` name, EDS must be asked by a name of its own (row A160).
fn cluster(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let is_eds = message.get_field_by_name("type").and_then(|value| value.as_enum_number()) == Some(3)
        && message.descriptor().get_field_by_name("type").is_some_and(|field| message.has_field(&field));
    let is_xdstp = text(message, "name").is_some_and(|name| name.starts_with("xdstp:"));
    let service_name = child(message, "eds_cluster_config").and_then(|config| text(&config, "service_name"));
    if is_eds && is_xdstp && service_name.is_none() {
        let path = path.field("eds_cluster_config");
        let text = "an EDS cluster with an `xdstp:` name needs a `service_name`";
        findings.push(Finding::error("missing-service-name", &path.field("service_name"), text));
    }
    if let Some(metadata) = child(message, "metadata") {
        own_metadata(&metadata, &path.field("metadata"), findings);
    }
}

/// What a cluster says to this server alone: how long it and its endpoints drain.
fn own_metadata(metadata: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let filters = entries(metadata, "filter_metadata");
    let Some((_, own)) = filters.iter().find(|(name, _)| name == METADATA) else { return };
    let path = path.field("filter_metadata");
    let path = path.key(METADATA);
    for (key, value) in entries(own, "fields") {
        let path = path.key(&key);
        if ![DRAIN_ENDPOINTS, DRAIN_CLUSTER].contains(&key.as_str()) {
            let text =
                format!("{} is not known: `{DRAIN_ENDPOINTS}` and `{DRAIN_CLUSTER}` are", echo_name(&key));
            findings.push(Finding::error("unknown-field", &path, text));
            continue;
        }
        match text(&value, "string_value").map(|value| duration(&value)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => findings.push(Finding::error("bad-duration", &path, error.to_string())),
            None => findings.push(Finding::error("bad-duration", &path, "expected a text such as \"30s\"")),
        }
    }
}

/// Envoy compiles with RE2, whose syntax is nearly that of the `regex` crate; hence only a warning.
fn regex(message: &DynamicMessage, path: &Path<'_>, findings: &mut Findings) {
    let Some(pattern) = text(message, "regex").filter(|pattern| pattern.len() <= MAX_REGEX_LENGTH) else {
        return;
    };
    if regex::Regex::new(&pattern).is_err() {
        let text = format!("the regular expression {} does not compile", echo(&pattern));
        findings.push(Finding::warning("bad-regex", &path.field("regex"), text));
    }
}

/// Longer ones are compiled by the client alone.
const MAX_REGEX_LENGTH: usize = 4096;

/// A message field that is set.
pub(crate) fn child(message: &DynamicMessage, field: &str) -> Option<DynamicMessage> {
    let descriptor = message.descriptor().get_field_by_name(field)?;
    if !message.has_field(&descriptor) {
        return None;
    }
    message.get_field(&descriptor).as_message().cloned()
}

/// A string field that is not empty.
pub(crate) fn text(message: &DynamicMessage, field: &str) -> Option<String> {
    let value = message.get_field_by_name(field)?;
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The strings of a repeated field.
pub(crate) fn texts(message: &DynamicMessage, field: &str) -> Vec<String> {
    let value = message.get_field_by_name(field);
    let items = value.as_deref().and_then(Value::as_list).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The entries of a map from names to messages, sorted.
pub(crate) fn entries(message: &DynamicMessage, field: &str) -> Vec<(String, DynamicMessage)> {
    let value = message.get_field_by_name(field);
    let Some(map) = value.as_deref().and_then(Value::as_map) else { return Vec::new() };
    let entry = |(key, value): (&MapKey, &Value)| {
        value.as_message().map(|message| (crate::walk::key_text(key), message.clone()))
    };
    let mut entries: Vec<_> = map.iter().filter_map(entry).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// The messages of a repeated field.
pub(crate) fn list(message: &DynamicMessage, field: &str) -> Vec<DynamicMessage> {
    let value = message.get_field_by_name(field);
    let items = value.as_deref().and_then(Value::as_list).unwrap_or_default();
    items.iter().filter_map(Value::as_message).cloned().collect()
}

fn number(message: &DynamicMessage, field: &str) -> Option<u32> {
    message.get_field_by_name(field)?.as_u32()
}
