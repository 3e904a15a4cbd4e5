//! Plans for tests: built by hand, and at random.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use proptest::prelude::*;
use proptest::{collection, option, sample};
use xds_cache::{DrainPolicy, Origin};

use crate::model::{
    BackendLimits, Cors, DocumentKey, Fraction, HeaderEdits, HeaderMatch, HeaderValue, Hostname, Kind,
    LbPolicy, Match, MatchType, MethodMatch, PathMatch, PathRewrite, QueryMatch, Redirect, Retry,
    SessionKind, SessionLifetime, SessionPersistence, Spot, Timeouts,
};
use crate::plan::{
    Action, Address, Assignment, BackendProtocol, Chain, Cluster, ClusterRef, Discovery, Effects, Endpoint,
    Health, Host, Locality, MeshService, Mirror, Plan, PlannedRoute, Port, RouteId, Session, Target,
    TlsTermination, UpstreamTls, VirtualHost, Weighted,
};

pub(super) fn host(name: &str) -> Host {
    match name {
        "*" => Host::Any,
        name => Host::Name(Hostname::new(name).expect("a host name")),
    }
}

/// Takes everything.
pub(super) fn everything() -> Match {
    Match::of_path(&Spot::default(), PathMatch::Any)
}

pub(super) fn path(path: PathMatch) -> Match {
    Match { path, ..everything() }
}

pub(super) fn header(name: &str, value: HeaderValue) -> Match {
    let header = HeaderMatch { spot: Spot::default(), name: name.to_owned(), value };
    Match { headers: vec![header], ..everything() }
}

pub(super) fn method(match_type: MatchType, service: Option<&str>, method: Option<&str>) -> Match {
    let (service, method) = (service.map(str::to_owned), method.map(str::to_owned));
    path(PathMatch::Method(MethodMatch { match_type, service, method }))
}

pub(super) fn to(name: &str, weight: u32) -> Weighted {
    let backend = ClusterRef { name: name.to_owned(), protocol: BackendProtocol::Http2 };
    weighted(Target::Backend(backend), weight)
}

pub(super) fn broken(weight: u32) -> Weighted {
    weighted(Target::Broken, weight)
}

fn weighted(target: Target, weight: u32) -> Weighted {
    Weighted::plain(target, weight)
}

/// A route of the rule of that index.
pub(super) fn route(rule: usize, matches: Match, action: Action) -> PlannedRoute {
    let document = DocumentKey::new(Kind::GrpcRoute, "prod", "greeter");
    let id = RouteId { document, rule, rule_name: None, match_index: 0 };
    PlannedRoute::plain(id, true, matches, action)
}

pub(super) fn forward(rule: usize, targets: Vec<Weighted>) -> PlannedRoute {
    route(rule, everything(), Action::Forward(targets))
}

pub(super) fn cluster(discovery: Discovery) -> Cluster {
    Cluster {
        protocols: vec![BackendProtocol::Http2],
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

pub(super) fn port(name: &str, number: u16, hosts: Vec<(&str, Vec<PlannedRoute>)>) -> Port {
    let hosts = hosts.into_iter().map(|(name, routes)| VirtualHost { host: host(name), routes }).collect();
    let chain = Chain { name: name.to_owned(), tls: None, is_programmed: true, hosts };
    Port { name: name.to_owned(), address: None, port: number, chains: vec![chain], origin: Origin::Api }
}

pub(super) fn service(name: &str, number: u16, hosts: &[&str], routes: Vec<PlannedRoute>) -> MeshService {
    MeshService {
        is_lowest_port: number == 80,
        is_implicit: false,
        is_borrowed: false,
        namespace: "prod".to_owned(),
        name: name.to_owned(),
        port: number,
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        routes,
        origin: Origin::Api,
    }
}

/// One host with these routes, and the clusters `prod/a/80` and `prod/b/80`.
pub(super) fn with_routes(routes: Vec<PlannedRoute>) -> Plan {
    let mut plan =
        Plan { ports: vec![port("prod/edge/80", 80, vec![("a.example", routes)])], ..Plan::default() };
    for (last, name) in [(1, "prod/a/80"), (2, "prod/b/80")] {
        plan.clusters.insert(name.to_owned(), eds(name));
        let locality = Locality { zone: String::new(), endpoints: vec![endpoint(last)] };
        let assignment = Assignment { localities: vec![locality], origin: Origin::Api };
        plan.assignments.insert(name.to_owned(), assignment);
    }
    plan
}

/// Plans that keep what the plan's types promise, and otherwise anything.
pub(super) fn plans() -> impl Strategy<Value = Plan> {
    let routes = || collection::vec(planned(), 0..4);
    let virtual_hosts = collection::btree_map(sample::select(HOSTS.as_slice()), routes(), 0..3);
    let chains = collection::vec((option::of(sample::select(HOSTS.as_slice())), virtual_hosts), 0..3);
    let ports = collection::btree_map(sample::select(vec![80_u16, 443, 8080]), chains, 0..3);
    let services = collection::btree_map((sample::select(vec!["cart", "web"]), 80_u16..83), routes(), 0..4);
    (ports, services, clusters(), assignments()).prop_map(|(ports, services, clusters, assignments)| {
        let ports = ports.into_iter().enumerate().map(|(index, (number, chains))| {
            let name = format!("prod/gateway-{}/{number}", index % 2);
            let chains = chains
                .into_iter()
                .enumerate()
                .map(|(index, (server_name, hosts))| chain(&name, index, server_name, hosts));
            Port { chains: chains.collect(), address: None, port: number, origin: Origin::Api, name }
        });
        let services = services.into_iter().map(|((name, number), routes)| {
            let hosts = [name.to_owned(), format!("{name}.prod"), format!("{name}.prod.svc")];
            service(name, number, &hosts.each_ref().map(String::as_str), unique(routes))
        });
        Plan {
            ports: ports.collect(),
            services: services.collect(),
            clusters,
            assignments,
            ..Plan::default()
        }
    })
}

fn chain(
    port: &str,
    index: usize,
    server_name: Option<&str>,
    hosts: BTreeMap<&str, Vec<PlannedRoute>>,
) -> Chain {
    let server_name =
        server_name.filter(|name| *name != "*").map(|name| Hostname::new(name).expect("a host name"));
    let tls = (index > 0).then(|| TlsTermination { server_name, certificates: vec!["c".to_owned()] });
    let hosts =
        hosts.into_iter().map(|(name, routes)| VirtualHost { host: host(name), routes: unique(routes) });
    Chain { name: format!("{port}/{index}"), tls, is_programmed: index == 0, hosts: hosts.collect() }
}

/// Gives each route an identity of its own.
fn unique(mut routes: Vec<PlannedRoute>) -> Vec<PlannedRoute> {
    routes.iter_mut().enumerate().for_each(|(index, route)| route.id.rule = index);
    routes
}

fn planned() -> impl Strategy<Value = PlannedRoute> {
    let filters = (
        any_edits(),
        any_edits(),
        mirrors(),
        option::weighted(0.05, Just(PathRewrite::Full("/x".to_owned()))),
        0_u8..12,
    );
    (matches(), action(), filters, timeouts(), option::of(retry()), option::of(session())).prop_map(
        |(
            matches,
            action,
            (request_edits, response_edits, mirrors, path_rewrite, other),
            timeouts,
            retry,
            session,
        )| {
            let effects = Effects {
                request_edits,
                response_edits,
                mirrors,
                path_rewrite,
                host_rewrite: (other == 0).then(|| "other.example".to_owned()),
                cors: (other == 1).then(Cors::default),
                timeouts,
                retry,
                session,
            };
            PlannedRoute { effects: effects.into(), ..route(0, matches, action) }
        },
    )
}

fn any_edits() -> impl Strategy<Value = HeaderEdits> {
    let some = HeaderEdits { set: vec![("x".to_owned(), "1".to_owned())], ..HeaderEdits::default() };
    prop_oneof![9 => Just(HeaderEdits::default()), 1 => Just(some)]
}

fn mirrors() -> impl Strategy<Value = Vec<Mirror>> {
    let mirror = backend().prop_map(|backend| {
        let fraction = Fraction { numerator: 1, denominator: 2 };
        Mirror {
            backend: ClusterRef { name: backend.to_owned(), protocol: BackendProtocol::Http2 },
            fraction,
        }
    });
    prop_oneof![9 => Just(Vec::new()), 1 => collection::vec(mirror, 1)]
}

fn matches() -> impl Strategy<Value = Match> {
    let query = prop_oneof![19 => Just(false), 1 => Just(true)];
    let verb = prop_oneof![8 => Just(None), 1 => Just(Some("GET")), 1 => Just(Some("POST"))];
    (
        paths(),
        collection::vec(headers(), 0..3),
        query,
        verb,
        option::of(fractions()),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(path, headers, has_query, verb, fraction, case_sensitive)| {
            let query =
                QueryMatch { name: "q".to_owned(), match_type: MatchType::Exact, value: "1".to_owned() };
            let query = if has_query { vec![query] } else { Vec::new() };
            Match {
                path,
                headers,
                query: query.into(),
                method: verb.map(str::to_owned),
                fraction,
                case_sensitive,
                ..everything()
            }
        })
}

fn paths() -> impl Strategy<Value = PathMatch> {
    let text = || sample::select(TEXTS.as_slice()).prop_map(str::to_owned);
    let regex = || sample::select(REGEXES.as_slice()).prop_map(str::to_owned);
    let name = || option::of(sample::select(vec!["foo.Bar", "A", "a|b", "Get+"]).prop_map(str::to_owned));
    let match_type = sample::select(vec![MatchType::Exact, MatchType::RegularExpression]);
    prop_oneof![
        Just(PathMatch::Any),
        text().prop_map(PathMatch::Exact),
        text().prop_map(|text| PathMatch::Prefix(text.trim_end_matches('/').to_owned())),
        text().prop_map(PathMatch::TextPrefix),
        regex().prop_map(PathMatch::Regex),
        (match_type, name(), name()).prop_map(|(match_type, service, method)| PathMatch::Method(
            MethodMatch { match_type, service, method }
        )),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMatch> {
    let names = vec![
        "x-a",
        "version",
        "cookie",
        ":method",
        ":path",
        "x-bin",
        "content-type",
        "user-agent",
        "host",
        "grpc-timeout",
    ];
    let value = prop_oneof![
        Just(HeaderValue::Present),
        sample::select(vec!["", "1", "POST", "application/grpc"])
            .prop_map(|it| HeaderValue::Exact(it.to_owned())),
        sample::select(REGEXES.as_slice()).prop_map(|it| HeaderValue::Regex(it.to_owned())),
    ];
    (sample::select(names), value).prop_map(|(name, value)| HeaderMatch {
        spot: Spot::default(),
        name: name.to_owned(),
        value,
    })
}

fn fractions() -> impl Strategy<Value = Fraction> {
    let denominator = prop_oneof![Just(100_u32), Just(1_000_000), 1..=u32::MAX];
    (denominator, any::<u32>()).prop_map(|(denominator, share)| {
        let numerator = u64::from(share) * u64::from(denominator) / u64::from(u32::MAX);
        Fraction { numerator: u32::try_from(numerator).expect("no more than the denominator"), denominator }
    })
}

fn action() -> impl Strategy<Value = Action> {
    let redirect = Redirect { scheme: None, host: None, path: None, port: None, status: 302 };
    prop_oneof![
        8 => targets().prop_map(Action::Forward),
        1 => Just(Action::Redirect(redirect.into())),
        1 => Just(Action::Fail),
    ]
}

fn targets() -> impl Strategy<Value = Vec<Weighted>> {
    let backends = collection::btree_map(backend(), (weight(), any_edits()), 0..4);
    (backends, collection::vec(weight(), 0..3)).prop_map(|(backends, broken_weights)| {
        let backends = backends
            .into_iter()
            .map(|(name, (weight, edits))| Weighted { request_edits: edits.into(), ..to(name, weight) });
        let mut targets: Vec<Weighted> = backends.chain(broken_weights.into_iter().map(broken)).collect();
        if targets.iter().all(|target| target.weight == 0) {
            targets.push(broken(1));
        }
        targets
    })
}

/// No seven of them have a sum above 2^32-1.
pub(super) fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(0_u32), 5 => 1_u32..1000, 1 => Just(u32::MAX / 7)]
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    let limit = || option::of((0_u64..3).prop_map(|n| Duration::from_millis(n * 1500)));
    (limit(), limit()).prop_map(|(request, backend_request)| Timeouts { request, backend_request })
}

fn retry() -> impl Strategy<Value = Retry> {
    let codes = collection::vec(sample::select(vec![400_u16, 429, 500, 503]), 0..3);
    let conditions = vec!["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];
    let grpc_on = collection::vec(sample::select(conditions).prop_map(str::to_owned), 0..3);
    let backoff = option::of((0_u64..5000).prop_map(Duration::from_millis));
    (codes, grpc_on, 1_u32..9, backoff).prop_map(|(codes, grpc_on, attempts, backoff)| Retry {
        codes,
        grpc_on,
        attempts,
        backoff,
    })
}

pub(super) fn session_of(kind: SessionKind) -> Session {
    let absolute_timeout = Some(Duration::from_secs(3600));
    let persistence = SessionPersistence { spot: Spot::default(), absolute_timeout, kind };
    Session { name: "sid".to_owned(), persistence }
}

pub(super) fn cookie(lifetime: SessionLifetime) -> Session {
    session_of(SessionKind::Cookie { name: None, path: "/".to_owned(), lifetime })
}

fn session() -> impl Strategy<Value = Session> {
    prop_oneof![
        Just(cookie(SessionLifetime::Permanent)),
        Just(cookie(SessionLifetime::Session)),
        Just(session_of(SessionKind::Header { name: "sid".to_owned() })),
    ]
}

fn backend() -> impl Strategy<Value = &'static str> {
    sample::select(BACKENDS.as_slice())
}

/// All backends; an aggregate has only those behind it as members, so that there is no cycle.
fn clusters() -> impl Strategy<Value = BTreeMap<String, Cluster>> {
    let all: Vec<_> = (0..BACKENDS.len()).map(any_cluster).collect();
    all.prop_map(|clusters| BACKENDS.iter().map(|name| (*name).to_owned()).zip(clusters).collect())
}

fn any_cluster(index: usize) -> impl Strategy<Value = Cluster> {
    let tls = prop_oneof![
        8 => Just(None),
        1 => Just(Some(UpstreamTls::Invalid)),
        1 => Just(Some(UpstreamTls::Verified { sni: "s".to_owned(), alt_names: vec!["s".to_owned()], trusted: None })),
    ];
    (discovery(index), tls, any::<bool>(), any::<bool>()).prop_map(
        |(discovery, tls, has_sessions, is_even)| Cluster {
            tls,
            has_sessions,
            lb_policy: if is_even { LbPolicy::RoundRobin } else { LbPolicy::LeastRequest },
            ..cluster(discovery)
        },
    )
}

fn discovery(index: usize) -> BoxedStrategy<Discovery> {
    let name = BACKENDS.get(index).copied().expect("one of them");
    let names = || sample::select(vec!["one.example", "two.example"]).prop_map(str::to_owned);
    let addresses = prop_oneof![
        (0_u8..3).prop_map(|last| Address::Ip(IpAddr::V4(Ipv4Addr::new(10, 1, 0, last)), 80)),
        names().prop_map(|name| Address::Dns(name, 80)),
        Just(Address::Unix("/run/s".to_owned())),
    ];
    let plain = prop_oneof![
        3 => Just(Discovery::Eds { assignment: name.to_owned() }),
        1 => collection::vec((names(), 80_u16..82), 1..4).prop_map(Discovery::Dns),
        1 => collection::vec(addresses, 1..5).prop_map(Discovery::Static),
    ];
    let behind: Vec<String> = BACKENDS.iter().skip(index + 1).map(|name| (*name).to_owned()).collect();
    if behind.is_empty() {
        return plain.boxed();
    }
    let n_most = behind.len();
    let members = sample::subsequence(behind, 1..=n_most).prop_shuffle().prop_map(Discovery::Aggregate);
    prop_oneof![2 => plain, 1 => members].boxed()
}

fn assignments() -> impl Strategy<Value = BTreeMap<String, Assignment>> {
    let weight = option::of(prop_oneof![1_u32..5, Just(u32::MAX)]);
    let endpoint = (0_u8..20, any::<bool>(), weight);
    let zones =
        collection::btree_map(sample::select(vec!["", "a", "b"]), collection::vec(endpoint, 0..4), 0..3);
    let assignment = zones.prop_map(|zones| {
        let mut seen = std::collections::BTreeSet::new();
        let localities = zones.into_iter().map(|(zone, endpoints)| {
            let fresh = endpoints.into_iter().filter(|(last, _, _)| seen.insert(*last));
            let endpoints = fresh.map(|(last, is_healthy, weight)| {
                let health = if is_healthy { Health::Healthy } else { Health::Draining };
                Endpoint { health, weight, ..super::plans::endpoint(last) }
            });
            Locality { zone: zone.to_owned(), endpoints: endpoints.collect() }
        });
        Assignment { localities: localities.collect(), origin: Origin::Api }
    });
    collection::vec(assignment, BACKENDS.len())
        .prop_map(|all| BACKENDS.iter().map(|name| (*name).to_owned()).zip(all).collect())
}

const HOSTS: [&str; 5] = ["*", "*.example", "a.example", "b.example", "cart"];

const BACKENDS: [&str; 6] =
    ["prod/a/80", "prod/b/80", "prod/c", "prod/d", "prod/e", "xds-server/unavailable"];

const TEXTS: [&str; 11] =
    ["/", "", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "//a", "a/b", "/foo.Bar/Get", "/a//b"];

const REGEXES: [&str; 6] = ["", "/.*", "/foo/(a|b)", "POST|GET", "application/.*", "[0-9]+"];
