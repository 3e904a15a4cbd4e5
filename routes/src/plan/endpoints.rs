//! Finds the endpoints of a backend.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::backends::Referent;
use super::lookup::Lookup;
use super::parts::{Address, Assignment, Discovery, Endpoint, Health, Locality};
use crate::model::{
    AddressType, BackendSource, Document, EndpointSlice, Kind, Service, ServicePort, SlicePort, Spec,
    StaticEndpoint, TargetPort,
};

/// The endpoints of a backend.
pub(super) struct Found {
    pub(super) discovery: Discovery,
    /// The endpoints, if they come by EDS.
    pub(super) assignment: Option<Assignment>,
    /// The reason why there are none, if that looks like a mistake.
    pub(super) warning: Option<String>,
}

/// Endpoints by address, without duplicates, which gRPC clients reject.
type ByAddress = BTreeMap<(IpAddr, u16), (String, Endpoint)>;

/// Finds the endpoints of a backend. `name` is the name of its cluster and its assignment.
pub(super) fn find<'d>(lookup: &Lookup<'d>, referent: &Referent<'d>, name: &str) -> Found {
    match referent {
        Referent::Port { document, service, port } => of_service(lookup, document, service, port, name),
        Referent::Backend { document, backend } => match &backend.source {
            BackendSource::Endpoints(endpoints) => of_backend(document, endpoints, name),
            BackendSource::Fallback(_) => {
                let fallback = lookup.fallbacks.get(&document.key).and_then(|verdict| verdict.as_ref().ok());
                let members = fallback.map(|fallback| fallback.members.clone()).unwrap_or_default();
                Found { discovery: Discovery::Aggregate(members), assignment: None, warning: None }
            }
        },
    }
}

fn of_service<'d>(
    lookup: &Lookup<'d>,
    document: &'d Document,
    service: &'d Service,
    port: &'d ServicePort,
    name: &str,
) -> Found {
    if let Some(host) = &service.external_name {
        let target = target_number(port);
        let discovery = Discovery::Dns(vec![(host.clone(), target)]);
        return Found { discovery, assignment: None, warning: None };
    }
    let slices = lookup.slices_of(&document.key.namespace, &document.key.name);
    let (mut addresses, mut hosts) = (ByAddress::new(), Vec::new());
    for slice in &slices {
        let numbers: Vec<u16> = slice
            .ports
            .iter()
            .filter(|one| one.name == port.name)
            .map(|one| one.port.unwrap_or_else(|| target_number(port)))
            .collect();
        match slice.address_type {
            AddressType::Ip => add_addresses(slice, &numbers, &mut addresses),
            AddressType::Fqdn => add_hosts(slice, &numbers, &mut hosts),
        }
    }
    // Slices come in no particular order.
    hosts.sort();
    let warning = lacks_endpoints(service, port, &slices);
    Found { warning, ..discovered(document, name, addresses, hosts) }
}

/// The reason why a service can have no endpoints; `None` if they are only not ready.
fn lacks_endpoints(service: &Service, port: &ServicePort, slices: &[&EndpointSlice]) -> Option<String> {
    if slices.is_empty() {
        let address = if service.has_cluster_ip { ", and nothing here serves its clusterIP" } else { "" };
        let why = format!("this Service has no EndpointSlice and no Endpoints{address}");
        return Some(format!("the port {} has no endpoints: {why}", port.port));
    }
    let ports: Vec<&SlicePort> = slices.iter().flat_map(|slice| &slice.ports).collect();
    if ports.iter().any(|one| one.name == port.name) {
        return None;
    }
    let mut names: Vec<String> = ports.iter().map(|one| format!("{:?}", one.name)).collect();
    names.sort();
    names.dedup();
    let there = if names.is_empty() { "no port".to_owned() } else { names.join(", ") };
    let why = format!("its endpoints are found by the port's name {:?}, and they have {there}", port.name);
    Some(format!("the port {} has no endpoints: {why}", port.port))
}

/// The port of endpoints that have no port themselves.
fn target_number(port: &ServicePort) -> u16 {
    match &port.target {
        TargetPort::Number(number) => *number,
        TargetPort::Name(_) => port.port,
    }
}

fn add_addresses(slice: &EndpointSlice, numbers: &[u16], found: &mut ByAddress) {
    for endpoint in &slice.endpoints {
        let health = match (endpoint.is_ready, endpoint.is_serving && endpoint.is_terminating) {
            (true, _) => Health::Healthy,
            (false, true) => Health::Draining,
            (false, false) => continue,
        };
        for address in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
            for number in numbers {
                let new = Endpoint { address, port: *number, health, weight: None };
                add_address(endpoint.zone.clone(), new, found);
            }
        }
    }
}

/// Adds an endpoint. If its address is known already, the healthier one counts, or else the first.
fn add_address(zone: String, new: Endpoint, found: &mut ByAddress) {
    match found.entry((new.address, new.port)) {
        Entry::Vacant(entry) => {
            entry.insert((zone, new));
        }
        Entry::Occupied(mut entry) => {
            if entry.get().1.health == Health::Draining && new.health == Health::Healthy {
                entry.insert((zone, new));
            }
        }
    }
}

/// Adds host names. Clients cannot be told their health, so only ready ones are used.
fn add_hosts(slice: &EndpointSlice, numbers: &[u16], hosts: &mut Vec<(String, u16)>) {
    for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready) {
        for address in &endpoint.addresses {
            hosts.extend(numbers.iter().map(|number| (address.clone(), *number)));
        }
    }
}

fn of_backend(document: &Document, endpoints: &[StaticEndpoint], name: &str) -> Found {
    let (mut addresses, mut hosts, mut sockets) = (ByAddress::new(), Vec::new(), Vec::new());
    for endpoint in endpoints {
        match endpoint {
            StaticEndpoint::Ip { address, port, zone, weight } => {
                let (health, weight) = (Health::Healthy, *weight);
                let new = Endpoint { address: *address, port: *port, health, weight };
                add_address(zone.clone(), new, &mut addresses);
            }
            StaticEndpoint::Dns { host, port } => hosts.push((host.clone(), *port)),
            StaticEndpoint::Unix { path } => sockets.push(Address::Unix(path.clone())),
        }
    }
    if sockets.is_empty() {
        return discovered(document, name, addresses, hosts);
    }
    fixed(addresses, hosts, sockets)
}

fn discovered(document: &Document, name: &str, addresses: ByAddress, hosts: Vec<(String, u16)>) -> Found {
    if hosts.is_empty() {
        let assignment = Assignment { localities: localities(addresses), origin: document.origin() };
        let discovery = Discovery::Eds { assignment: name.to_owned() };
        return Found { discovery, assignment: Some(assignment), warning: None };
    }
    if !addresses.is_empty() {
        return fixed(addresses, hosts, Vec::new());
    }
    let discovery = Discovery::Dns(without_repeats(hosts));
    Found { discovery, assignment: None, warning: None }
}

/// Addresses that EDS does not support.
fn fixed(addresses: ByAddress, hosts: Vec<(String, u16)>, sockets: Vec<Address>) -> Found {
    let addresses = addresses.into_keys().map(|(address, port)| Address::Ip(address, port));
    let hosts = hosts.into_iter().map(|(host, port)| Address::Dns(host, port));
    let all = without_repeats(addresses.chain(hosts).chain(sockets).collect());
    Found { discovery: Discovery::Static(all), assignment: None, warning: None }
}

/// Removes duplicates and keeps the order, in which some clients try them.
fn without_repeats<T: Ord + Clone>(mut all: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    all.retain(|one| seen.insert(one.clone()));
    all
}

fn localities(addresses: ByAddress) -> Vec<Locality> {
    let mut zones: BTreeMap<String, Vec<Endpoint>> = BTreeMap::new();
    for (zone, endpoint) in addresses.into_values() {
        zones.entry(zone).or_default().push(endpoint);
    }
    zones.into_iter().map(|(zone, endpoints)| Locality { zone, endpoints }).collect()
}

impl<'d> Lookup<'d> {
    /// The slices of a service; its Endpoints are used only if there are none.
    fn slices_of(&self, namespace: &str, service: &str) -> Vec<&'d EndpointSlice> {
        if let Some(slices) = self.slices.get(namespace).and_then(|services| services.get(service)) {
            return slices.clone();
        }
        let endpoints = self.document(Kind::Endpoints, namespace, service).map(|document| &document.spec);
        let Some(Spec::Endpoints(slices)) = endpoints else { return Vec::new() };
        slices.iter().collect()
    }
}
