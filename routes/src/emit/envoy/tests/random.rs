//! Plans at random, which keep what the plan's types promise and otherwise say anything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;
use proptest::{collection, option, sample};
use xds_cache::Origin;

use super::plans::{
    cluster, cookie, edits, header, header_session, host, method, port, secrets, service, tls_chain,
};
use crate::model::{
    Cors, Fraction, HeaderEdits, HeaderValue, LbPolicy, Match, MatchType, PathMatch, PathRewrite, QueryMatch,
    Redirect, Retry, SessionLifetime, Spot, Timeouts,
};
use crate::plan::{
    Action, Address, Assignment, BackendProtocol, Chain, Cluster, ClusterRef, Discovery, Effects, Endpoint,
    Health, Locality, Mirror, Plan, PlannedRoute, Session, Target, UpstreamTls, VirtualHost, Weighted,
};

/// A whole plan. Its backends are [`BACKENDS`].
pub(super) fn plans() -> impl Strategy<Value = Plan> {
    let routes = || collection::vec(planned(), 0..4);
    let hosts = || collection::btree_map(sample::select(HOSTS.as_slice()), routes(), 0..4);
    let server_names = option::of(sample::select(vec!["a.example", "*.example"]));
    let chains = collection::btree_map(server_names, (hosts(), any::<bool>()), 0..3);
    let services = collection::btree_map((sample::select(vec!["cart", "web"]), 79..82_u16), routes(), 0..4);
    let clusters = clusters();
    (hosts(), chains, services, clusters, assignments()).prop_map(
        |(plain, chains, services, clusters, assignments)| {
            let mut secure = port("prod/edge/443", 443, Vec::new());
            let chain = |(index, (name, (hosts, is_programmed))): (usize, (Option<&str>, (_, bool)))| Chain {
                is_programmed,
                ..tls_chain(&format!("prod/edge/443/{index}"), name, virtual_hosts(hosts))
            };
            secure.chains = chains.into_iter().enumerate().map(chain).collect();
            let ports = vec![port("prod/edge/80", 80, virtual_hosts(plain)), secure];
            let services = services
                .into_iter()
                .map(|((name, number), routes)| service(name, number, distinct(routes)))
                .collect();
            let mut plan = Plan { ports, services, clusters, assignments, ..Plan::default() };
            secrets(&mut plan);
            plan
        },
    )
}

pub(super) fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1..100_u32, Just(1_000_000)]
}

fn virtual_hosts(hosts: BTreeMap<&str, Vec<PlannedRoute>>) -> Vec<VirtualHost> {
    hosts.into_iter().map(|(name, routes)| host(name, distinct(routes))).collect()
}

/// Gives each route an identity of its own.
fn distinct(mut routes: Vec<PlannedRoute>) -> Vec<PlannedRoute> {
    for (index, route) in routes.iter_mut().enumerate() {
        route.id.match_index = index;
    }
    routes
}

fn planned() -> impl Strategy<Value = PlannedRoute> {
    let rewrites = (option::of(Just("new.example".to_owned())), option::of(path_rewrite()));
    let mirrors = collection::vec((backend(), fraction()), 0..2);
    let parts = (any::<bool>(), matches(), action(), header_edits(), header_edits(), rewrites, mirrors);
    let policies = (option::of(cors()), timeouts(), option::of(retry()), option::of(session()));
    (parts, policies).prop_map(|(parts, (cors, timeouts, retry, session))| {
        let (is_grpc, matches, action, request_edits, response_edits, (host_rewrite, path_rewrite), mirrors) =
            parts;
        let mirrors = mirrors.into_iter().map(|(backend, fraction)| Mirror { backend, fraction }).collect();
        let effects = Effects {
            request_edits,
            response_edits,
            mirrors,
            host_rewrite,
            path_rewrite,
            cors,
            timeouts,
            retry,
            session,
        };
        PlannedRoute { is_grpc, matches, effects: effects.into(), ..super::plans::route(0, action) }
    })
}

fn matches() -> impl Strategy<Value = Match> {
    let text = || sample::select(vec!["", "a", "a.b", "a|b", "%", "A+"]).prop_map(str::to_owned);
    let paths = prop_oneof![
        Just(PathMatch::Any),
        Just(PathMatch::Exact("/a/b".to_owned())),
        sample::select(vec!["/a", "/a/b", "/a?b", "/a#"]).prop_map(|path| PathMatch::Prefix(path.to_owned())),
        text().prop_map(PathMatch::TextPrefix),
        text().prop_map(PathMatch::Regex),
        (any::<bool>(), option::of(text()), option::of(text())).prop_map(|(is_exact, service, name)| {
            let kind = if is_exact { MatchType::Exact } else { MatchType::RegularExpression };
            method(kind, service.as_deref(), name.as_deref())
        }),
    ];
    let value = prop_oneof![
        text().prop_map(HeaderValue::Exact),
        text().prop_map(HeaderValue::Regex),
        Just(HeaderValue::Present)
    ];
    let headers = collection::btree_map(sample::select(vec![":path", "cookie", "x-a"]), value, 0..3);
    let kinds = sample::select(vec![MatchType::Exact, MatchType::RegularExpression]);
    let query = collection::btree_map(sample::select(vec!["a", "B"]), (kinds, text()), 0..2);
    let http_method = option::of(Just("GET".to_owned()));
    (paths, headers, query, http_method, option::of(fraction()), any::<bool>()).prop_map(
        |(path, headers, query, method, fraction, case_sensitive)| Match {
            spot: Spot::default(),
            path,
            headers: headers.into_iter().map(|(name, value)| header(name, value)).collect(),
            query: query
                .into_iter()
                .map(|(name, (match_type, value))| QueryMatch { name: name.to_owned(), match_type, value })
                .collect(),
            method,
            fraction,
            case_sensitive,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let targets = collection::btree_map(0..=BACKENDS.len(), (any::<bool>(), weight(), header_edits()), 1..5);
    let forward = targets.prop_map(|targets| {
        let weighted = targets.into_iter().map(|(index, (is_http1, weight, edits))| {
            let protocol = if is_http1 { BackendProtocol::Http1 } else { BackendProtocol::Http2 };
            let target = match BACKENDS.get(index) {
                Some(name) => Target::Backend(ClusterRef { name: (*name).to_owned(), protocol }),
                None => Target::Broken,
            };
            Weighted { target, weight, request_edits: edits.clone().into(), response_edits: edits.into() }
        });
        let mut targets: Vec<Weighted> = weighted.collect();
        if targets.iter().all(|weighted| weighted.weight == 0) {
            targets[0].weight = 1;
        }
        Action::Forward(targets)
    });
    let some = |text: &'static str| option::of(Just(text.to_owned()));
    let ports = option::of(sample::select(vec![80_u16, 443, 8080]));
    let status = sample::select(vec![301_u16, 302, 303, 307, 308]);
    let redirect = (some("https"), some("new.example"), option::of(path_rewrite()), ports, status)
        .prop_map(|(scheme, host, path, port, status)| Redirect { scheme, host, path, port, status });
    prop_oneof![4 => forward, 1 => redirect.prop_map(|redirect| Action::Redirect(redirect.into())), 1 => Just(Action::Fail)]
}

fn path_rewrite() -> impl Strategy<Value = PathRewrite> {
    let text = || sample::select(vec!["", "/", "/x", "/x/", r"/\1"]).prop_map(str::to_owned);
    prop_oneof![text().prop_map(PathRewrite::Full), text().prop_map(PathRewrite::Prefix)]
}

fn header_edits() -> impl Strategy<Value = HeaderEdits> {
    sample::select(vec![
        HeaderEdits::default(),
        HeaderEdits::default(),
        edits(
            &[("X-A", "100%"), ("Host", "other.example")],
            &[("x-b", ""), (":path", "/")],
            &["x-c", "host"],
        ),
    ])
}

fn fraction() -> impl Strategy<Value = Fraction> {
    (1..=u32::MAX, 1..=u32::MAX).prop_map(|(a, b)| Fraction { numerator: a.min(b), denominator: a.max(b) })
}

fn cors() -> impl Strategy<Value = Cors> {
    let lists = || collection::vec(sample::select(vec!["*", "https://*.a.example", "GET"]), 0..3);
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    (lists(), lists(), any::<bool>(), any::<u32>()).prop_map(
        move |(origins, rest, allow_credentials, age)| Cors {
            allow_origins: owned(origins),
            allow_methods: owned(rest.clone()),
            allow_headers: owned(rest.clone()),
            expose_headers: owned(rest),
            allow_credentials,
            max_age_seconds: age,
        },
    )
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    let limit = || option::of(sample::select(vec![0, 1, 2_500]).prop_map(Duration::from_millis));
    (limit(), limit()).prop_map(|(request, backend_request)| Timeouts { request, backend_request })
}

fn retry() -> impl Strategy<Value = Retry> {
    let grpc_on = sample::select(vec![vec![], vec!["unavailable".to_owned(), "internal".to_owned()]]);
    let backoff = option::of(sample::select(vec![0, 100]).prop_map(Duration::from_millis));
    (collection::vec(400..600_u16, 0..3), grpc_on, 1..9_u32, backoff)
        .prop_map(|(codes, grpc_on, attempts, backoff)| Retry { codes, grpc_on, attempts, backoff })
}

fn session() -> impl Strategy<Value = Session> {
    sample::select(vec![
        cookie("sid", SessionLifetime::Session),
        cookie("sid", SessionLifetime::Permanent),
        header_session("x-sid"),
    ])
}

fn backend() -> impl Strategy<Value = ClusterRef> {
    let protocol = sample::select(vec![BackendProtocol::Http1, BackendProtocol::Http2]);
    (sample::select(BACKENDS.as_slice()), protocol)
        .prop_map(|(name, protocol)| ClusterRef { name: name.to_owned(), protocol })
}

/// All of [`BACKENDS`]; an aggregate's members are later in the list, so that there is no cycle.
fn clusters() -> impl Strategy<Value = BTreeMap<String, Cluster>> {
    let kinds = collection::vec((0..6_u8, any::<[bool; 3]>(), 0..4_u8), BACKENDS.len());
    kinds.prop_map(|kinds| {
        let clusters =
            kinds.into_iter().enumerate().map(|(index, (kind, [sessions, member, least], tls))| {
                let later: BTreeSet<&str> = BACKENDS.iter().skip(index + 1).copied().collect();
                let dns = |host: &str| (host.to_owned(), 443);
                let discovery = match kind {
                    0 => Discovery::Dns(vec![dns("one.example")]),
                    1 => Discovery::Dns(vec![dns("one.example"), dns("two.example")]),
                    2 => Discovery::Static(vec![Address::Unix("/run/a".to_owned())]),
                    3 => Discovery::Static(vec![
                        Address::Unix("/run/a".to_owned()),
                        Address::Ip(IpAddr::from([10, 0, 0, 9]), 1),
                        Address::Dns("one.example".to_owned(), 2),
                    ]),
                    4 if !later.is_empty() => {
                        Discovery::Aggregate(later.into_iter().map(str::to_owned).collect())
                    }
                    _ => Discovery::Eds { assignment: format!("assignment-{}", index % 3) },
                };
                let tls = match tls {
                    0 => Some(UpstreamTls::Invalid),
                    1 => Some(UpstreamTls::Verified {
                        sni: "a.example".to_owned(),
                        alt_names: vec!["a.example".to_owned(), "spiffe://a/b".to_owned()],
                        trusted: member.then(|| "prod/ca".to_owned()),
                    }),
                    _ => None,
                };
                let lb_policy = if least { LbPolicy::LeastRequest } else { LbPolicy::RoundRobin };
                let cluster = Cluster {
                    tls,
                    lb_policy,
                    has_sessions: sessions,
                    is_fallback_member: member,
                    ..cluster(discovery)
                };
                (BACKENDS[index].to_owned(), cluster)
            });
        clusters.collect()
    })
}

fn assignments() -> impl Strategy<Value = BTreeMap<String, Assignment>> {
    let weights = option::of(prop_oneof![1..5_u32, Just(u32::MAX)]);
    let endpoints = collection::btree_map(0..4_u16, (any::<bool>(), weights), 0..4);
    collection::vec(collection::btree_map(0..4_u16, endpoints, 0..4), 3).prop_map(|assignments| {
        let assignments = assignments.into_iter().enumerate().map(|(index, localities)| {
            let localities = localities.into_iter().map(|(zone, endpoints)| {
                let endpoints = endpoints.into_iter().map(|(last, (is_healthy, weight))| Endpoint {
                    address: IpAddr::V6(Ipv6Addr::new(1, 2, 3, 4, 5, 6, zone, last)),
                    port: 80,
                    health: if is_healthy { Health::Healthy } else { Health::Draining },
                    weight,
                });
                let name = if zone == 0 { String::new() } else { format!("zone-{zone}") };
                Locality { zone: name, endpoints: endpoints.collect() }
            });
            let assignment = Assignment { localities: localities.collect(), origin: Origin::Api };
            (format!("assignment-{index}"), assignment)
        });
        assignments.collect()
    })
}

const HOSTS: [&str; 4] = ["*", "*.example", "a.example", "b.example"];

const BACKENDS: [&str; 4] = ["prod/a/80", "prod/b/80", "prod/c", "prod/d"];
