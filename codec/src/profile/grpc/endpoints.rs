//! Cluster load assignments (B.8).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::super::Effect::{Differs, Ignored, Rejected};
use super::super::Language;
use super::super::rule::{Fault, Scope, enum_at, has, number_at, value_at};
use crate::message::{Message, child, list, text};
use crate::path::Path;

pub(super) fn load_assignment(message: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    let ignored = Fault::new("B224", Ignored, "grpc-ignored-field");
    for field in
        ["policy.overprovisioning_factor", "policy.weighted_priority_health", "policy.endpoint_stale_after"]
    {
        if value_at(message, field).is_some() {
            let name = field.rsplit('.').next().unwrap_or(field);
            scope.report(ignored, path, field, format!("gRPC ignores `{name}`"));
        }
    }
    let policy = child(message, "policy").map(|policy| list(&policy, "drop_overloads")).unwrap_or_default();
    let policy_path = path.field("policy");
    let drops_path = policy_path.field("drop_overloads");
    for (index, _) in policy.iter().enumerate().filter(|(_, drop)| !has(drop, "drop_percentage")) {
        let fault = Fault::new("B230", Rejected, "grpc-drop").by(&[Language::Core]);
        let text = "gRPC (C-core) rejects a drop without a share";
        scope.report(fault, &drops_path.index(index), "drop_percentage", text);
    }
    if has(message, "named_endpoints") {
        let fault = Fault::new("B229", Ignored, "grpc-ignored-field");
        scope.report(fault, path, "named_endpoints", "gRPC ignores `named_endpoints`");
    }
    let path = path.field("endpoints");
    let localities: Vec<(usize, Message)> = list(message, "endpoints").into_iter().enumerate().collect();
    let (weighted, weightless): (Vec<_>, Vec<_>) =
        localities.iter().cloned().partition(|(_, locality)| weight(locality) != 0);
    for (index, locality) in &weightless {
        without_weight(locality, &path.index(*index), scope);
    }
    let before = scope.findings.len();
    Localities::default().check(&weighted, &path, scope);
    if !weightless.is_empty() {
        for finding in scope.findings.iter_mut().skip(before) {
            finding.languages.retain(|language| *language != Language::Js);
        }
        scope.only(Language::Js, "gRPC (js) checks localities without a weight as well", |scope| {
            Localities::default().check(&localities, &path, scope);
        });
    }
}

fn names(languages: &[Language]) -> String {
    let names: Vec<_> = languages.iter().map(|language| language.name()).collect();
    names.join(", ")
}

fn weight(locality: &Message) -> u64 {
    number_at(locality, "load_balancing_weight").unwrap_or_default()
}

/// Rows B209 and B210.
fn without_weight(locality: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
    if !has(locality, "locality") {
        let fault = Fault::new("B209", Rejected, "grpc-locality").by(&[Language::Go, Language::Js]);
        let text = "gRPC (go, js) rejects endpoints without a `locality`";
        scope.report(fault, path, "locality", text);
    }
    let fault = Fault::new("B210", Ignored, "grpc-locality-weight");
    let text = "gRPC ignores a locality without a weight".to_owned();
    let suggestion = Some("load_balancing_weight: 1".to_owned());
    scope.report_with(fault, path, "load_balancing_weight", text, suggestion);
}

/// Properties of the localities of an assignment together.
#[derive(Default)]
struct Localities {
    /// Sums of weights by priority.
    sums: BTreeMap<u64, u64>,
    places: HashMap<(u64, String), usize>,
    addresses: HashMap<String, String>,
}

impl Localities {
    fn check(&mut self, localities: &[(usize, Message)], path: &Path<'_>, scope: &mut Scope<'_>) {
        for (index, locality) in localities {
            self.locality(locality, *index, &path.index(*index), scope);
        }
        self.together(path, scope);
    }

    fn locality(&mut self, locality: &Message, index: usize, path: &Path<'_>, scope: &mut Scope<'_>) {
        if has(locality, "leds_cluster_locality_config") {
            let fault = Fault::new("B228", Ignored, "grpc-ignored-field");
            let text = "released gRPC clients do not support LEDS and treat the locality as empty (gRFC A95)";
            scope.report(fault, path, "leds_cluster_locality_config", text);
        }
        let priority = number_at(locality, "priority").unwrap_or_default();
        *self.sums.entry(priority).or_default() += weight(locality);
        match child(locality, "locality") {
            None => {
                let fault = Fault::new("B209", Rejected, "grpc-locality").by(&[
                    Language::Core,
                    Language::Go,
                    Language::Js,
                ]);
                let text = "gRPC (C-core, go, js) rejects endpoints without a `locality`".to_owned();
                scope.report_with(fault, path, "locality", text, Some("locality: {region: home}".to_owned()));
            }
            Some(place) => {
                let name = |field| text(&place, field).unwrap_or_default();
                let name = format!("{:?} {:?} {:?}", name("region"), name("zone"), name("sub_zone"));
                if let Some(first) = self.places.insert((priority, name), index) {
                    let fault = Fault::new("B214", Rejected, "grpc-locality");
                    let text = format!(
                        "gRPC rejects a locality that appears twice in one priority; endpoints[{first}] is the same one"
                    );
                    scope.report(fault, path, "locality", text);
                }
            }
        }
        let list_path = path.field("lb_endpoints");
        let mut sum = 0;
        for (at, endpoint) in list(locality, "lb_endpoints").iter().enumerate() {
            sum += number_at(endpoint, "load_balancing_weight").unwrap_or(1);
            self.endpoint(endpoint, &list_path.index(at), scope);
        }
        if sum > u64::from(u32::MAX) {
            let fault = Fault::new("B221", Rejected, "grpc-endpoint-weight").by(&[Language::Go]);
            let text =
                format!("gRPC (go) rejects endpoint weights with a sum of {sum}, more than {}", u32::MAX);
            scope.report(fault, path, "lb_endpoints", text);
        }
    }

    /// Rows B216 to B222.
    fn endpoint(&mut self, endpoint: &Message, path: &Path<'_>, scope: &mut Scope<'_>) {
        let status = enum_at(endpoint, "health_status");
        if let Some((_, name)) = DROPPED.iter().find(|(number, _)| *number == status) {
            let fault = Fault::new("B220", Differs, "grpc-health-status");
            scope.report(
                fault,
                path,
                "health_status",
                format!("gRPC does not use an endpoint that is {name}"),
            );
        }
        if number_at(endpoint, "load_balancing_weight") == Some(0) {
            let fault =
                Fault::new("B221", Rejected, "grpc-endpoint-weight").by(&[Language::Go, Language::Core]);
            scope.report(fault, path, "load_balancing_weight", "gRPC (go, C-core) rejects a weight of 0");
        }
        let Some(host) = child(endpoint, "endpoint") else {
            let text =
                "gRPC (C-core, js, java) rejects an endpoint without an address; go cannot connect to it";
            scope.report(ADDRESS, path, "endpoint", text);
            return self.place("", 0, path, scope);
        };
        let path = path.field("endpoint");
        self.address(&host, &path, scope, ADDRESS.languages);
        let more_path = path.field("additional_addresses");
        for (index, more) in list(&host, "additional_addresses").iter().enumerate() {
            self.address(more, &more_path.index(index), scope, &[Language::Core, Language::Js]);
        }
    }

    /// The languages are those that check the address: java does not read additional ones.
    fn address(&mut self, host: &Message, path: &Path<'_>, scope: &mut Scope<'_>, by: &'static [Language]) {
        let socket = child(host, "address").and_then(|address| child(&address, "socket_address"));
        let Some(socket) = socket else {
            let text = format!(
                "gRPC ({}) rejects an address that is not a socket address; go cannot connect to it",
                names(by)
            );
            scope.report(ADDRESS.by(by), path, "address", text);
            return self.place("", 0, path, scope);
        };
        let ip = text(&socket, "address").unwrap_or_default();
        if ip.parse::<IpAddr>().is_err() {
            let fault = Fault::new("B217", Rejected, "grpc-address").by(by);
            let text = format!("gRPC ({}) rejects an address that is not an IP; go accepts it", names(by));
            scope.report(fault, path, "address.socket_address.address", text);
        }
        let port = number_at(&socket, "port_value");
        if port.is_none() {
            let fault = Fault::new("B218", Rejected, "grpc-address").by(&[Language::Js]);
            let text = "gRPC (js) rejects an address without a port number; the others connect to port 0";
            scope.report(fault, path, "address.socket_address", text);
        }
        if port.is_some_and(|port| port > u64::from(u16::MAX)) {
            let fault = Fault::new("B218", Rejected, "grpc-address");
            let (fault, text) = match by.contains(&Language::Java) {
                true => (
                    fault.by(&[Language::Core, Language::Java]),
                    "gRPC (C-core, java) rejects a port above 65535",
                ),
                false => (fault.by(&[Language::Core]), "gRPC (C-core) rejects a port above 65535"),
            };
            scope.report(fault, path, "address.socket_address.port_value", text);
        }
        self.place(&ip, port.unwrap_or_default(), path, scope);
    }

    /// Row B219. Go reads a missing address as an empty one.
    fn place(&mut self, ip: &str, port: u64, path: &Path<'_>, scope: &mut Scope<'_>) {
        let at = path.field("address").to_string();
        if let Some(first) = self.addresses.insert(format!("{ip} {port}"), at) {
            let fault = Fault::new("B219", Rejected, "grpc-duplicate-endpoint").by(&[
                Language::Go,
                Language::Core,
                Language::Js,
            ]);
            let text =
                format!("gRPC (go, C-core, js) rejects an address that appears twice, first at {first}");
            scope.report(fault, path, "address", text);
        }
    }

    /// Rows B211 and B212.
    fn together(&self, path: &Path<'_>, scope: &mut Scope<'_>) {
        if let Some((priority, sum)) = self.sums.iter().find(|(_, sum)| **sum > u64::from(u32::MAX)) {
            let fault = Fault::new("B211", Rejected, "grpc-locality-weight").by(&[
                Language::Go,
                Language::Core,
                Language::Js,
            ]);
            let text = format!(
                "gRPC (go, C-core, js) rejects locality weights with a sum of {sum} in priority {priority}, more than {}",
                u32::MAX
            );
            scope.report(fault, path, "", text);
        }
        let priorities: BTreeSet<u64> = self.sums.keys().copied().collect();
        if let Some((missing, _)) = (0..).zip(&priorities).find(|(expected, found)| expected != *found) {
            let fault = Fault::new("B212", Rejected, "grpc-priority-gap");
            let text = format!(
                "gRPC rejects priorities with a gap: none of the localities that have a weight has priority {missing}"
            );
            scope.report(fault, path, "", text);
        }
    }
}

/// The health states of endpoints that Envoy uses as a last resort and gRPC does not.
const DROPPED: [(i32, &str); 1] = [(5, "DEGRADED")];

const ADDRESS: Fault =
    Fault::new("B216", Rejected, "grpc-address").by(&[Language::Core, Language::Js, Language::Java]);
