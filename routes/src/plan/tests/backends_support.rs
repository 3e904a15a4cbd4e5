//! Services, endpoints and backends made by hand, and plans in words.

use xds_cache::DrainPolicy;

use super::support::{document, one, reference, rule};
use crate::input::{Documents, Options};
use crate::memo::Planned;
use crate::model::{
    AddressType, Backend, BackendLimits, BackendMember, BackendRef, BackendSource, ConfigMap, EndpointSlice,
    Filter, FilterKind, Kind, LbPolicy, Match, Rule, Service, ServicePort, SliceEndpoint, SlicePort, Spec,
    Spot, StaticEndpoint, TargetPort,
};
use crate::model::{Document, ObjectRef};
use crate::plan::{Action, Lookup, Plan, RoutePlan, Target};

/// A Service with a clusterIP; its ports are written `name:port`, then `>target` and `+appProtocol`.
pub(crate) fn service(name: &str, ports: &str) -> Document {
    let ports = ports.split_whitespace().map(service_port).collect();
    let spec = Service { ports, external_name: None, has_cluster_ip: true };
    document(Kind::Service, name, Spec::Service(spec))
}

fn service_port(text: &str) -> ServicePort {
    let (text, app_protocol) = match text.split_once('+') {
        Some((text, protocol)) => (text, Some(protocol.to_owned())),
        None => (text, None),
    };
    let (text, target) = match text.split_once('>') {
        Some((text, target)) => (text, Some(target)),
        None => (text, None),
    };
    let (name, port) = text.split_once(':').unwrap();
    let port = port.parse().unwrap();
    let target = match target {
        None => TargetPort::Number(port),
        Some(target) => {
            target.parse().map_or_else(|_| TargetPort::Name(target.to_owned()), TargetPort::Number)
        }
    };
    ServicePort { spot: Spot::default(), name: name.to_owned(), port, target, app_protocol }
}

/// A Service of type `ExternalName`.
pub(crate) fn external(name: &str, ports: &str, host: &str) -> Document {
    let mut document = service(name, ports);
    if let Spec::Service(service) = &mut document.spec {
        service.external_name = Some(host.to_owned());
        service.has_cluster_ip = false;
    }
    document
}

/// An EndpointSlice of a service; ports are written `name:port` (or `name:*`), endpoints as addresses joined by `,`, then
/// `@zone`, then `!draining` or `!dead`.
pub(crate) fn slice(name: &str, service: &str, ports: &str, endpoints: &str) -> Document {
    let spec = slice_spec(Some(service), ports, endpoints);
    document(Kind::EndpointSlice, name, Spec::EndpointSlice(spec))
}

/// The content of a slice.
pub(crate) fn slice_spec(service: Option<&str>, ports: &str, endpoints: &str) -> EndpointSlice {
    let ports = ports.split_whitespace().map(|port| {
        let (name, port) = port.split_once(':').unwrap();
        SlicePort { name: name.to_owned(), port: port.parse().ok() }
    });
    let endpoints: Vec<SliceEndpoint> = endpoints
        .split_whitespace()
        .map(|text| {
            let (text, state) = text.split_once('!').unwrap_or((text, "ready"));
            let (addresses, zone) = text.split_once('@').unwrap_or((text, ""));
            SliceEndpoint {
                addresses: addresses.split(',').map(str::to_owned).collect(),
                is_ready: state == "ready",
                is_serving: state != "dead",
                is_terminating: state != "ready",
                zone: zone.to_owned(),
            }
        })
        .collect();
    let is_ip = |endpoint: &SliceEndpoint| {
        endpoint.addresses.iter().all(|one| one.parse::<std::net::IpAddr>().is_ok())
    };
    let address_type = if endpoints.iter().all(is_ip) { AddressType::Ip } else { AddressType::Fqdn };
    EndpointSlice { service: service.map(str::to_owned), address_type, ports: ports.collect(), endpoints }
}

/// A Backend; endpoints are written `10.0.0.1:80` (then `@zone`, `*weight`), `host:80` or `/a/socket`, and `h2` is for HTTP/2.
pub(crate) fn backend(name: &str, endpoints: &str) -> Document {
    let is_http2 = endpoints.split_whitespace().any(|word| word == "h2");
    let endpoints = endpoints.split_whitespace().filter(|word| *word != "h2").map(|text| {
        if text.starts_with('/') {
            return StaticEndpoint::Unix { path: text.to_owned() };
        }
        let (text, weight) =
            text.split_once('*').map_or((text, None), |(text, weight)| (text, weight.parse().ok()));
        let (text, zone) = text.split_once('@').unwrap_or((text, ""));
        let (host, port) = text.rsplit_once(':').unwrap();
        let port = port.parse().unwrap();
        match host.parse() {
            Ok(address) => StaticEndpoint::Ip { address, port, zone: zone.to_owned(), weight },
            Err(_) => StaticEndpoint::Dns { host: host.to_owned(), port },
        }
    });
    backend_of(name, is_http2, BackendSource::Endpoints(endpoints.collect()))
}

/// A Backend that falls back; members are written as in [`object`].
pub(crate) fn fallback(name: &str, members: &str) -> Document {
    let members = members.split_whitespace().map(|text| BackendMember { object: object(text) });
    backend_of(name, false, BackendSource::Fallback(members.collect()))
}

fn backend_of(name: &str, is_http2: bool, source: BackendSource) -> Document {
    let spec = Backend {
        is_http2,
        source,
        tls: None,
        lb_policy: LbPolicy::default(),
        limits: BackendLimits::default(),
        drain: DrainPolicy::default(),
    };
    document(Kind::Backend, name, Spec::Backend(Box::new(spec)))
}

/// A ConfigMap with `ca.crt`.
pub(crate) fn config_map(name: &str, ca: &str) -> Document {
    let data = vec![("ca.crt".to_owned(), ca.to_owned())];
    document(Kind::ConfigMap, name, Spec::ConfigMap(ConfigMap { data }))
}

/// `namespace/name:port` for a Service, `namespace/name` for a Backend; `Kind=` before it for another kind.
pub(crate) fn object(text: &str) -> ObjectRef {
    let (kind, text) = match text.split_once('=') {
        Some((kind, text)) => (Some(kind), text),
        None => (None, text),
    };
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port.parse().unwrap())),
        None => (text, None),
    };
    let default = if port.is_some() { Kind::Service } else { Kind::Backend };
    let mut object = reference(default, name);
    if let Some(kind) = kind {
        object.group = Kind::of_name(kind).map_or("example.com", Kind::api_group).into();
        object.kind = kind.to_owned().into();
    }
    object.port = port;
    object
}

/// Backends of a rule as in [`object`], each with `*weight` behind it unless that is 1.
pub(crate) fn backends(text: &str) -> Vec<BackendRef> {
    let backend = |text: &str| {
        let (text, weight) = text.split_once('*').unwrap_or((text, "1"));
        BackendRef { object: object(text), weight: weight.parse().unwrap(), filters: Vec::new() }
    };
    text.split_whitespace().map(backend).collect()
}

/// A rule of one match of everything.
pub(crate) fn to(text: &str) -> Rule {
    Rule { backends: backends(text), ..rule(vec![everything()]) }
}

/// The match of everything.
pub(crate) fn everything() -> Match {
    one("*")
}

/// A filter.
pub(crate) fn filter(kind: FilterKind) -> Filter {
    Filter { spot: Spot { path: "filters[0]".into(), ..Spot::default() }, kind }
}

/// The plan of a route's rules; `name` is `Kind namespace/name`.
pub(crate) fn route_plan(documents: &Documents, name: &str) -> RoutePlan {
    let (_, placed) = documents.iter().find(|(key, _)| key.to_string() == name).unwrap();
    let Spec::Route(route) = &placed.document.spec else { panic!("{name} is no route") };
    Lookup::new(documents, &Options::default()).route_plan(placed, route)
}

/// The plan of the group `default`.
pub(crate) fn default_plan(documents: &Documents) -> (Plan, Planned) {
    let mut planned = crate::memo::plan(documents, &Options::default());
    let group = planned.groups.remove(&xds_cache::GroupName::default_group()).unwrap_or_default();
    (group.plan, planned)
}

/// An action in words: `a/b/80*3 broken*1`, `redirect` or `fail`.
pub(crate) fn shown(action: &Action) -> String {
    let targets = match action {
        Action::Forward(targets) => targets,
        Action::Redirect(_) => return "redirect".to_owned(),
        Action::Fail => return "fail".to_owned(),
    };
    let show = |target: &Target| match target {
        Target::Backend(backend) => backend.name.clone(),
        Target::Broken => "broken".to_owned(),
    };
    let targets = targets.iter().map(|one| format!("{}*{}", show(&one.target), one.weight));
    targets.collect::<Vec<_>>().join(" ")
}
