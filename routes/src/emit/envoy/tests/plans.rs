//! Plans for tests, built by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use xds_cache::{DrainPolicy, Origin};

use crate::model::{
    BackendLimits, DocumentKey, HeaderEdits, HeaderMatch, HeaderValue, Hostname, Kind, LbPolicy, Match,
    MatchType, MethodMatch, PathMatch, SessionKind, SessionLifetime, SessionPersistence, Spot,
};
use crate::plan::{
    Action, Assignment, BackendProtocol, Chain, Cluster, ClusterRef, Discovery, Endpoint, Health, Host,
    Locality, MeshService, Plan, PlannedRoute, Port, RouteId, Session, Target, TlsSecret, TlsTermination,
    VirtualHost, Weighted,
};

/// Takes everything.
pub(super) fn everything() -> Match {
    Match::of_path(&Spot::default(), PathMatch::Any)
}

pub(super) fn method(match_type: MatchType, service: Option<&str>, method: Option<&str>) -> PathMatch {
    let (service, method) = (service.map(str::to_owned), method.map(str::to_owned));
    PathMatch::Method(MethodMatch { match_type, service, method })
}

pub(super) fn header(name: &str, value: HeaderValue) -> HeaderMatch {
    HeaderMatch { spot: Spot::default(), name: name.to_owned(), value }
}

pub(super) fn backend(name: &str) -> ClusterRef {
    ClusterRef { name: name.to_owned(), protocol: BackendProtocol::Http1 }
}

pub(super) fn to(name: &str, weight: u32) -> Weighted {
    weighted(Target::Backend(backend(name)), weight)
}

pub(super) fn broken(weight: u32) -> Weighted {
    weighted(Target::Broken, weight)
}

fn weighted(target: Target, weight: u32) -> Weighted {
    Weighted::plain(target, weight)
}

/// An HTTP route of the rule of that index, which takes everything.
pub(super) fn route(rule: usize, action: Action) -> PlannedRoute {
    let document = DocumentKey::new(Kind::HttpRoute, "prod", "web");
    let id = RouteId { document, rule, rule_name: None, match_index: 0 };
    PlannedRoute::plain(id, false, everything(), action)
}

pub(super) fn forward(targets: Vec<Weighted>) -> PlannedRoute {
    route(0, Action::Forward(targets))
}

/// The same route for gRPC, with backends that speak HTTP/2.
pub(super) fn grpc(mut route: PlannedRoute) -> PlannedRoute {
    route.is_grpc = true;
    if let Action::Forward(targets) = &mut route.action {
        for weighted in targets {
            if let Target::Backend(backend) = &mut weighted.target {
                backend.protocol = BackendProtocol::Http2;
            }
        }
    }
    route
}

pub(super) fn path(path: PathMatch) -> PlannedRoute {
    let mut route = forward(vec![to("prod/a/80", 1)]);
    route.matches.path = path;
    route
}

pub(super) fn edits(set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]) -> HeaderEdits {
    let owned = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let remove = remove.iter().map(|name| (*name).to_owned()).collect();
    HeaderEdits { set: owned(set), add: owned(add), remove }
}

pub(super) fn cookie(name: &str, lifetime: SessionLifetime) -> Session {
    let kind = SessionKind::Cookie { name: None, path: "/".to_owned(), lifetime };
    let absolute_timeout = Some(Duration::from_secs(3600));
    let persistence = SessionPersistence { spot: Spot::default(), absolute_timeout, kind };
    Session { name: name.to_owned(), persistence }
}

pub(super) fn header_session(name: &str) -> Session {
    let kind = SessionKind::Header { name: name.to_owned() };
    let persistence = SessionPersistence { spot: Spot::default(), absolute_timeout: None, kind };
    Session { name: name.to_owned(), persistence }
}

pub(super) fn cluster(discovery: Discovery) -> Cluster {
    Cluster {
        protocols: vec![BackendProtocol::Http1, BackendProtocol::Http2],
        discovery,
        tls: None,
        lb_policy: LbPolicy::RoundRobin,
        limits: BackendLimits::default(),
        has_sessions: false,
        is_fallback_member: false,
        drain: DrainPolicy::default(),
        origin: Origin::Api,
    }
}

pub(super) fn eds(assignment: &str) -> Cluster {
    cluster(Discovery::Eds { assignment: assignment.to_owned() })
}

pub(super) fn endpoint(last: u8) -> Endpoint {
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    Endpoint { address, port: 8080, health: Health::Healthy, weight: None }
}

pub(super) fn assignment(endpoints: Vec<Endpoint>) -> Assignment {
    let localities = vec![Locality { zone: String::new(), endpoints }];
    Assignment { localities, origin: Origin::Api }
}

pub(super) fn host(name: &str, routes: Vec<PlannedRoute>) -> VirtualHost {
    let host = match name {
        "*" => Host::Any,
        name => Host::Name(Hostname::new(name).expect("a host name")),
    };
    VirtualHost { host, routes }
}

pub(super) fn port(name: &str, number: u16, hosts: Vec<VirtualHost>) -> Port {
    let chain = Chain { name: name.to_owned(), tls: None, is_programmed: true, hosts };
    Port { name: name.to_owned(), address: None, port: number, chains: vec![chain], origin: Origin::Api }
}

pub(super) fn tls_chain(name: &str, server_name: Option<&str>, hosts: Vec<VirtualHost>) -> Chain {
    let server_name = server_name.map(|name| Hostname::new(name).expect("a host name"));
    let tls = TlsTermination { server_name, certificates: vec!["prod/cert".to_owned()] };
    Chain { name: name.to_owned(), tls: Some(tls), is_programmed: true, hosts }
}

pub(super) fn service(name: &str, number: u16, routes: Vec<PlannedRoute>) -> MeshService {
    MeshService {
        is_lowest_port: true,
        is_implicit: false,
        is_borrowed: false,
        namespace: "prod".to_owned(),
        name: name.to_owned(),
        port: number,
        hosts: vec![name.to_owned(), format!("{name}.prod"), format!("{name}.prod.svc")],
        routes,
        origin: Origin::Api,
    }
}

pub(super) fn secrets(plan: &mut Plan) {
    let (chain_pem, key_pem) = ("CHAIN".to_owned(), "KEY".to_owned());
    let certificate = TlsSecret::Certificate { chain_pem, key_pem, origin: Origin::Api };
    plan.secrets.insert("prod/cert".to_owned(), certificate);
    let trusted = TlsSecret::Trusted { ca_pem: "CA".to_owned(), origin: Origin::Api };
    plan.secrets.insert("prod/ca".to_owned(), trusted);
}

/// `a.example` on port 80 with these routes, and the clusters `prod/a/80` and `prod/b/80`.
pub(super) fn with_routes(routes: Vec<PlannedRoute>) -> Plan {
    let ports = vec![port("prod/edge/80", 80, vec![host("a.example", routes)])];
    let mut plan = Plan { ports, ..Plan::default() };
    for (last, name) in [(1, "prod/a/80"), (2, "prod/b/80")] {
        plan.clusters.insert(name.to_owned(), eds(name));
        plan.assignments.insert(name.to_owned(), assignment(vec![endpoint(last)]));
    }
    plan
}
