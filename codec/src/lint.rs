//! Faults that neither the types nor `validate.rules` can express, but that clients refuse or that do harm.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};

use xds_cache::cluster::{DRAIN_CLUSTER, DRAIN_ENDPOINTS, METADATA};
use xds_cache::wave::duration;

use crate::diagnostic::{echo, echo_name};
use crate::finding::{Finding, Findings};
use crate::message::{Message, child, entries, enum_number, messages, number, text, texts};
use crate::path::Path;

/// Checks one message of a resource; `walk` brings them all.
pub(crate) fn check(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    if let Some(lint) = lint_of(message.name()) {
        (lint.check)(message, path, findings);
    }
}

/// Whether texts anywhere in a message of that type decide about its faults, besides the rules of their fields.
pub(crate) fn depends_on_texts(message: &str) -> bool {
    lint_of(message).is_some_and(|lint| lint.depends_on_texts)
}

/// What is checked of a message type.
struct Lint {
    message: &'static str,
    /// Whether it looks at texts, or only at numbers and at what is set.
    depends_on_texts: bool,
    check: fn(&Message, &Path<'_>, &mut Findings),
}

fn lint_of(message: &str) -> Option<&'static Lint> {
    LINTS.iter().find(|lint| lint.message == message)
}

const LINTS: &[Lint] = &[
    Lint {
        message: "envoy.config.route.v3.WeightedCluster",
        depends_on_texts: false,
        check: weighted_clusters,
    },
    Lint {
        message: "envoy.config.route.v3.RouteConfiguration",
        depends_on_texts: true,
        check: route_configuration,
    },
    Lint {
        message: "envoy.config.endpoint.v3.ClusterLoadAssignment",
        depends_on_texts: true,
        check: load_assignment,
    },
    Lint { message: "envoy.config.cluster.v3.Cluster", depends_on_texts: true, check: cluster },
    Lint { message: "envoy.type.matcher.v3.RegexMatcher", depends_on_texts: true, check: regex },
];

/// Weights must have a sum from 1 to 2^32-1, and `total_weight`, where it is set, must be the sum (pitfall 76).
fn weighted_clusters(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let mut n_clusters = 0;
    // Without a weight a cluster counts nothing, unless its weight comes from a header... which Envoy has not.
    let weight = |cluster: Message| child(&cluster, "weight").and_then(|weight| number(&weight, "value"));
    let weights = messages(message, "clusters").inspect(|_| n_clusters += 1);
    let sum: u64 = weights.map(|cluster| u64::from(weight(cluster).unwrap_or_default())).sum();
    let path = path.field("clusters");
    if n_clusters == 0 {
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
fn route_configuration(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let path = path.field("virtual_hosts");
    let hosts = || messages(message, "virtual_hosts");
    let (mut names, mut domains) = (Vec::new(), Vec::new());
    for (index, host) in (0..).zip(hosts()) {
        names.extend(text(&host, "name").map(|name| Spot { hash: hash(&name), index, at: 0 }));
        let texts = (0..).zip(texts(&host, "domains"));
        domains.extend(texts.map(|(at, domain)| Spot {
            hash: hash(&domain.to_ascii_lowercase()),
            index,
            at,
        }));
    }
    for (first, again) in repeated(names) {
        let Some(name) = hosts().nth(again.index as usize).and_then(|host| text(&host, "name")) else {
            continue;
        };
        let text = format!("virtual host {} has the name {} too", first.index, echo_name(&name));
        findings.push(Finding::error(
            "duplicate-virtual-host",
            &path.index(again.index as usize).field("name"),
            text,
        ));
    }
    for (first, again) in repeated(domains) {
        let domain =
            hosts().nth(again.index as usize).and_then(|host| texts(&host, "domains").nth(again.at as usize));
        let text = format!(
            "virtual host {} has the domain {} too",
            first.index,
            echo_name(&domain.unwrap_or_default())
        );
        let host = path.index(again.index as usize);
        findings.push(Finding::error(
            "duplicate-domain",
            &host.field("domains").index(again.at as usize),
            text,
        ));
    }
}

/// A name or domain of a virtual host, told by its hash: there can be half as many as the text has bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    hash: u64,
    index: u32,
    at: u32,
}

/// The hash of a name or domain, by which two hosts are told to share it.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Those that were there before, each with the first one: at most [`MAX_REPEATED`].
fn repeated(mut spots: Vec<Spot>) -> Vec<(Spot, Spot)> {
    spots.sort_unstable();
    let same = spots.chunk_by(|a, b| a.hash == b.hash).filter_map(<[_]>::split_first);
    same.flat_map(|(first, others)| others.iter().map(|other| (*first, *other))).take(MAX_REPEATED).collect()
}

/// Nobody reads more of one resource.
const MAX_REPEATED: usize = 100;

/// No address may be there twice (pitfall 75); priorities must have no gap, or gRPC refuses the resource.
fn load_assignment(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let path = path.field("endpoints");
    let mut addresses: HashMap<String, (usize, usize)> = HashMap::new();
    let mut priorities = std::collections::BTreeSet::new();
    for (index, locality) in messages(message, "endpoints").enumerate() {
        let path = path.index(index);
        priorities.insert(number(&locality, "priority").unwrap_or_default());
        let endpoints_path = path.field("lb_endpoints");
        for (at, endpoint) in messages(&locality, "lb_endpoints").enumerate() {
            let path = endpoints_path.index(at);
            let endpoint_path = path.field("endpoint");
            let Some(address) = child(&endpoint, "endpoint").and_then(|endpoint| address_of(&endpoint))
            else {
                continue;
            };
            let path = endpoint_path.field("address");
            let shown = echo(&address);
            if let Some((locality, endpoint)) = addresses.insert(address, (index, at)) {
                let first = format!("endpoints[{locality}].lb_endpoints[{endpoint}].endpoint.address");
                let text = format!("{shown} is there twice, first at {first}");
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
fn address_of(endpoint: &Message) -> Option<String> {
    let address = child(endpoint, "address")?;
    if let Some(socket) = child(&address, "socket_address") {
        let host = text(&socket, "address")?;
        let port = number(&socket, "port_value")
            .map(|port| port.to_string())
            .or_else(|| text(&socket, "named_port"));
        let is_udp = enum_number(&socket, "protocol") == 1;
        // The endpoint's host name and network namespace tell endpoints behind one address apart.
        let host_name = text(endpoint, "hostname").unwrap_or_default();
        let namespace = text(&socket, "network_namespace_filepath").unwrap_or_default();
        let more = [if is_udp { "udp" } else { "" }, &host_name, &namespace].join(" ");
        return Some(format!("{host}:{} {}", port.unwrap_or_default(), more.trim()).trim().to_owned());
    }
    text(&child(&address, "pipe")?, "path")
}

/// With an `xdstp:` name, EDS must be asked by a name of its own (row A160).
fn cluster(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let is_eds = enum_number(message, "type") == 3;
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
fn own_metadata(metadata: &Message, path: &Path<'_>, findings: &mut Findings) {
    let mut filters = entries(metadata, "filter_metadata");
    let Some((_, own)) = filters.find(|(name, _)| name == METADATA) else { return };
    let path = path.field("filter_metadata");
    let path = path.key(METADATA);
    for (key, value) in entries(&own, "fields") {
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
fn regex(message: &Message, path: &Path<'_>, findings: &mut Findings) {
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
