//! Faults that types and `validate.rules` cannot express, but that clients reject or that do harm.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash as _, Hasher as _};
use std::net::IpAddr;

use xds_cache::cluster::{DRAIN_CLUSTER, DRAIN_ENDPOINTS, METADATA};
use xds_cache::time::duration;
use xds_cache::wire::{Field, Fields};

use crate::diagnostic::{echo, echo_name};
use crate::finding::{Finding, Findings};
use crate::message::{Message, child, entries, enum_number, messages, number, text, texts};
use crate::path::Path;

/// Checks one message of a resource. The caller visits all messages.
pub(crate) fn check(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    if let Some(lint) = lint_of(message.name()) {
        (lint.check)(message, path, findings);
    }
}

/// Returns `true` if the faults of a message of this type depend on texts in it, besides the rules of their fields.
pub(crate) fn depends_on_texts(message: &str) -> bool {
    lint_of(message).is_some_and(|lint| lint.depends_on_texts)
}

/// The checks of a message type.
struct Lint {
    message: &'static str,
    /// True if it depends on texts. Otherwise it depends only on numbers and on which fields are set.
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
    Lint { message: "envoy.service.runtime.v3.Runtime", depends_on_texts: true, check: runtime },
];

/// Weights must have a sum from 1 to 2^32-1. `total_weight`, if it is set, should be the sum (pitfall 76); clients ignore it.
fn weighted_clusters(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let mut n_clusters = 0;
    // A cluster without a weight has weight 0.
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
        let text =
            format!("clients ignore `total_weight`, which is {total}; the sum of the weights is {sum}");
        findings.push(Finding::warning("total-weight", &path, text));
    }
}

/// Virtual hosts must have distinct domains, and should have distinct names.
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
        let text = format!("virtual host {} also has the name {}", first.index, echo_name(&name));
        findings.push(Finding::warning(
            "duplicate-virtual-host",
            &path.index(again.index as usize).field("name"),
            text,
        ));
    }
    for (first, again) in repeated(domains) {
        let domain =
            hosts().nth(again.index as usize).and_then(|host| texts(&host, "domains").nth(again.at as usize));
        let text = format!(
            "virtual host {} also has the domain {}",
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

/// A name or domain of a virtual host, represented by its hash, because there can be one for every two bytes of text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    hash: u64,
    index: u32,
    at: u32,
}

/// The hash of a name or domain, which shows that two hosts share it.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The duplicates, each with the first one; at most [`MAX_REPEATED`].
fn repeated(mut spots: Vec<Spot>) -> Vec<(Spot, Spot)> {
    spots.sort_unstable();
    let same = spots.chunk_by(|a, b| a.hash == b.hash).filter_map(<[_]>::split_first);
    same.flat_map(|(first, others)| others.iter().map(|other| (*first, *other))).take(MAX_REPEATED).collect()
}

/// The limit for one resource. Nobody reads more.
const MAX_REPEATED: usize = 100;

/// Addresses should be distinct (pitfall 75): Envoy accepts others. Priorities must have no gap, or gRPC rejects the resource.
fn load_assignment(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let path = path.field("endpoints");
    let mut addresses: HashMap<String, (usize, usize)> = HashMap::new();
    let mut priorities = std::collections::BTreeSet::new();
    for (index, locality) in messages(message, "endpoints").enumerate() {
        let path = path.index(index);
        priorities.insert(number(&locality, "priority").unwrap_or_default());
        let endpoints_path = path.field("lb_endpoints");
        for (at, endpoint) in messages(&locality, "lb_endpoints").enumerate() {
            let Some(address) = address_of(endpoint.bytes()) else { continue };
            match addresses.entry(address) {
                Entry::Vacant(first) => _ = first.insert((index, at)),
                Entry::Occupied(mut last) => {
                    let shown = echo(last.key());
                    let (locality, endpoint) = last.insert((index, at));
                    let first = format!("endpoints[{locality}].lb_endpoints[{endpoint}].endpoint.address");
                    let text =
                        format!("{shown} appears twice, first at {first}; gRPC (go, C-core) rejects that");
                    let path = endpoints_path.index(at);
                    let path = path.field("endpoint");
                    findings.push(Finding::error("duplicate-endpoint", &path.field("address"), text));
                }
            }
        }
    }
    let expected = 0..u32::try_from(priorities.len()).unwrap_or(u32::MAX);
    if let Some(missing) = expected.into_iter().find(|priority| !priorities.contains(priority)) {
        let text =
            format!("no locality has priority {missing}, though one has a higher number; gRPC rejects that");
        findings.push(Finding::warning("priority-gap", &path, text));
    }
}

/// The fault of an endpoint of a collection (LEDS) that ends the process of an Envoy which is sent it: an address that is none of IP. Of an
/// assignment, an Envoy refuses such an endpoint.
pub(crate) fn endpoint_of_collection(message: &Message) -> Option<Finding> {
    let endpoint = child(message, "endpoint")?;
    let path = Path::Root.field("endpoint");
    let additional = path.field("additional_addresses");
    let more = messages(&endpoint, "additional_addresses");
    let more = more.enumerate().map(|(index, one)| (additional.index(index), child(&one, "address")));
    let main = std::iter::once((path, child(&endpoint, "address")));
    for (path, address) in main.chain(more) {
        let Some(socket) = address.as_ref().and_then(|address| child(address, "socket_address")) else {
            continue;
        };
        let shown = text(&socket, "address").unwrap_or_default();
        let is_resolved = text(&socket, "resolver_name").is_some_and(|name| !name.is_empty());
        if shown.parse::<IpAddr>().is_ok() || is_resolved {
            continue;
        }
        let path = path.field("address");
        let path = path.field("socket_address");
        let message = format!(
            "{} is no IP address; an Envoy that is sent this endpoint of a collection crashes. A cluster of the type STRICT_DNS resolves host names",
            echo(&shown)
        );
        return Some(Finding::error("bad-endpoint-address", &path.field("address"), message));
    }
    None
}

/// The identity of an `LbEndpoint` for clients: its socket address or pipe. Fields are found by number, which is fast, because an
/// assignment can have thousands of endpoints.
fn address_of(endpoint: &[u8]) -> Option<String> {
    let endpoint = bytes_of(endpoint, LB_ENDPOINT_ENDPOINT)?;
    let address = bytes_of(endpoint, ENDPOINT_ADDRESS)?;
    let Some(socket) = bytes_of(address, ADDRESS_SOCKET) else {
        return Some(text_of(bytes_of(address, ADDRESS_PIPE)?, PIPE_PATH)?.to_owned());
    };
    let mut shown = text_of(socket, SOCKET_ADDRESS)?.to_owned();
    shown.push(':');
    match number_of(socket, SOCKET_PORT) {
        Some(port) => shown.push_str(&port.to_string()),
        None => shown.push_str(text_of(socket, SOCKET_NAMED_PORT).unwrap_or_default()),
    }
    let is_udp = number_of(socket, SOCKET_PROTOCOL) == Some(1);
    // Endpoints with the same address can have different host names and network namespaces.
    let host_name = text_of(endpoint, ENDPOINT_HOSTNAME).unwrap_or_default();
    let namespace = text_of(socket, SOCKET_NAMESPACE).unwrap_or_default();
    if is_udp || !host_name.is_empty() || !namespace.is_empty() {
        let more = [if is_udp { "udp" } else { "" }, host_name, namespace].join(" ");
        shown.push(' ');
        shown.push_str(more.trim());
    }
    Some(shown.trim().to_owned())
}

fn field_of(message: &[u8], number: u32) -> Option<Field<'_>> {
    Fields::of(message).map_while(Result::ok).filter(|field| field.number == number).last()
}

fn bytes_of(message: &[u8], number: u32) -> Option<&[u8]> {
    field_of(message, number)?.bytes().ok()
}

/// A text field, unless it is empty.
fn text_of(message: &[u8], number: u32) -> Option<&str> {
    field_of(message, number)?.text().ok().filter(|text| !text.is_empty())
}

fn number_of(message: &[u8], number: u32) -> Option<u64> {
    field_of(message, number)?.number().ok()
}

const LB_ENDPOINT_ENDPOINT: u32 = 1;
const ENDPOINT_ADDRESS: u32 = 1;
const ENDPOINT_HOSTNAME: u32 = 3;
const ADDRESS_SOCKET: u32 = 1;
const ADDRESS_PIPE: u32 = 2;
const PIPE_PATH: u32 = 1;
const SOCKET_PROTOCOL: u32 = 1;
const SOCKET_ADDRESS: u32 = 2;
const SOCKET_PORT: u32 = 3;
const SOCKET_NAMED_PORT: u32 = 4;
const SOCKET_NAMESPACE: u32 = 7;

/// A cluster with an `xdstp:` name needs a separate name for EDS (row A160).
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

/// Metadata of a cluster for this server: how long it and its endpoints drain.
fn own_metadata(metadata: &Message, path: &Path<'_>, findings: &mut Findings) {
    let mut filters = entries(metadata, "filter_metadata");
    let Some((_, own)) = filters.find(|(name, _)| name == METADATA) else { return };
    let path = path.field("filter_metadata");
    let path = path.key(METADATA);
    for (key, value) in entries(&own, "fields") {
        let path = path.key(&key);
        if ![DRAIN_ENDPOINTS, DRAIN_CLUSTER].contains(&key.as_str()) {
            let text = format!(
                "unknown key {}; the keys are `{DRAIN_ENDPOINTS}` and `{DRAIN_CLUSTER}`",
                echo_name(&key)
            );
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

/// Checks a regular expression. Envoy and gRPC read it with RE2; one that only some of them take is left to the profiles.
fn regex(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    let Some(pattern) = text(message, "regex") else { return };
    if let Err(error) = xds_re2::check(&pattern, xds_re2::Encoding::Utf8)
        && xds_re2::check(&pattern, xds_re2::Encoding::Latin1).is_err()
    {
        let text = format!("clients refuse the regular expression {}: {error}", echo(&pattern));
        findings.push(Finding::error("bad-regex", &path.field("regex"), text));
    }
}

/// Values of a runtime are numbers, texts, truths and fractions. An Envoy keeps a layer with another value though it rejects that, and
/// then rejects every change of all its layers until that one is corrected.
fn runtime(message: &Message, path: &Path<'_>, findings: &mut Findings) {
    if let Some(layer) = child(message, "layer") {
        runtime_values(&layer, &path.field("layer"), findings);
    }
}

fn runtime_values(values: &Message, path: &Path<'_>, findings: &mut Findings) {
    for (key, value) in entries(values, "fields") {
        let path = path.key(&key);
        let has =
            |field: &str| value.descriptor().get_field_by_name(field).is_some_and(|field| value.has(&field));
        if let Some(inner) = child(&value, "struct_value") {
            let is_fraction = entries(&inner, "fields").any(|(key, _)| FRACTION.contains(&key.as_str()));
            if !is_fraction {
                runtime_values(&inner, &path, findings);
            }
        } else if !["number_value", "string_value", "bool_value"].into_iter().any(has) {
            let found = if has("list_value") { "a list" } else { "null" };
            let text = format!(
                "expected a number, a text, true, false or an object, found {found}, which no Envoy takes"
            );
            findings.push(Finding::error("bad-runtime-value", &path, text));
        }
    }
}

/// An Envoy reads what has one of these as a fraction, and looks no further.
const FRACTION: [&str; 2] = ["numerator", "denominator"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_endpoints_have_their_numbers() {
        let pool = crate::descriptors::load(&[]).unwrap();
        let fields = [
            ("endpoint.v3.LbEndpoint.endpoint", LB_ENDPOINT_ENDPOINT),
            ("endpoint.v3.Endpoint.address", ENDPOINT_ADDRESS),
            ("endpoint.v3.Endpoint.hostname", ENDPOINT_HOSTNAME),
            ("core.v3.Address.socket_address", ADDRESS_SOCKET),
            ("core.v3.Address.pipe", ADDRESS_PIPE),
            ("core.v3.Pipe.path", PIPE_PATH),
            ("core.v3.SocketAddress.protocol", SOCKET_PROTOCOL),
            ("core.v3.SocketAddress.address", SOCKET_ADDRESS),
            ("core.v3.SocketAddress.port_value", SOCKET_PORT),
            ("core.v3.SocketAddress.named_port", SOCKET_NAMED_PORT),
            ("core.v3.SocketAddress.network_namespace_filepath", SOCKET_NAMESPACE),
        ];
        for (name, number) in fields {
            let (message, field) = name.rsplit_once('.').unwrap();
            let message = pool.get_message_by_name(&format!("envoy.config.{message}")).unwrap();
            assert_eq!(message.get_field_by_name(field).unwrap().number(), number, "{name}");
        }
    }
}
