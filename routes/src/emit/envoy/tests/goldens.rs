//! The resources for each feature, in full.

use std::net::IpAddr;
use std::time::Duration;

use super::plans::{
    assignment, backend, broken, cluster, cookie, edits, eds, endpoint, forward, grpc, header_session, host,
    path, port, route, secrets, service, tls_chain, to, with_routes,
};
use super::{emit, faults, routes, text};
use crate::input::Options;
use crate::model::{
    Cors, Fraction, LbPolicy, PathMatch, PathRewrite, Redirect, Retry, SessionLifetime, Timeouts,
};
use crate::plan::{
    Action, Address, Assignment, BackendProtocol, Chain, Cluster, Discovery, Endpoint, Health, Locality,
    Mirror, Plan, PlannedRoute, Session, Target, UpstreamTls, Weighted,
};

/// The text of a plan's resources, in which nothing is wrong.
fn golden(plan: &Plan) -> String {
    let resources = emit(plan, &Options::default());
    assert_eq!(faults(&resources), Vec::<String>::new());
    text(&resources)
}

/// The text of the routes only.
fn golden_routes(planned: Vec<PlannedRoute>) -> String {
    let resources = emit(&with_routes(planned), &Options::default());
    assert_eq!(faults(&resources), Vec::<String>::new());
    format!("{:#}", serde_json::Value::from(routes(&resources)))
}

#[test]
fn a_port_has_a_listener_routes_clusters_and_endpoints() {
    let mut plan = with_routes(vec![grpc(forward(vec![to("prod/a/80", 90), to("prod/b/80", 10)]))]);
    for cluster in plan.clusters.values_mut() {
        cluster.protocols = vec![BackendProtocol::Http2];
    }
    // A host without routes answers "not found", whatever `*` would do with it.
    plan.ports[0].chains[0].hosts.push(host("*.example", Vec::new()));
    insta::assert_snapshot!("port", golden(&plan));
}

#[test]
fn tls_ends_at_a_chain_for_each_server_name() {
    let mut plan = with_routes(Vec::new());
    let hosts = || vec![host("*", vec![forward(vec![to("prod/a/80", 1)])])];
    let unusable = Chain { is_programmed: false, ..tls_chain("prod/edge/443/c", Some("c.example"), hosts()) };
    plan.ports[0] = port("prod/edge/443", 443, Vec::new());
    plan.ports[0].address = Some(IpAddr::from([192, 0, 2, 1]));
    plan.ports[0].chains = vec![
        tls_chain("prod/edge/443/a", Some("*.a.example"), hosts()),
        tls_chain("prod/edge/443/b", None, hosts()),
        unusable,
    ];
    // A port without a usable chain is none.
    let mut empty = plan.ports[0].clone();
    empty.chains.drain(..2);
    plan.ports.push(empty);
    secrets(&mut plan);
    plan.clusters.clear();
    plan.clusters.insert(
        "prod/a/80".to_owned(),
        Cluster { protocols: vec![BackendProtocol::Http1], ..eds("prod/a/80") },
    );
    insta::assert_snapshot!("tls", golden(&plan));
}

#[test]
fn the_mesh_has_a_listener_for_each_port_that_no_gateway_has() {
    let routes = || vec![forward(vec![to("prod/a/80", 1)])];
    let mut plan = with_routes(routes());
    plan.services =
        vec![service("cart", 8080, routes()), service("web", 80, routes()), service("web", 8080, routes())];
    let resources = emit(&plan, &Options::default());
    assert_eq!(faults(&resources), Vec::<String>::new());
    let mesh: Vec<_> =
        resources.into_iter().filter(|resource| resource.key().name.starts_with("mesh/")).collect();
    insta::assert_snapshot!("mesh", text(&mesh));
    let without = emit(&plan, &Options { mesh_address: None, ..Options::default() });
    assert!(!without.iter().any(|resource| resource.key().name.starts_with("mesh/")));
}

#[test]
fn what_is_broken_fails_as_its_kind_of_route_does() {
    let split = || forward(vec![to("prod/a/80", 20), broken(50), to("prod/b/80", 0), broken(30)]);
    let all = || forward(vec![broken(1)]);
    let routes = [split(), all(), route(0, Action::Fail)];
    let both = routes.iter().cloned().chain(routes.iter().cloned().map(grpc));
    insta::assert_snapshot!("broken", golden_routes(both.collect()));
}

#[test]
fn the_cluster_without_endpoints_is_there_if_it_is_used() {
    let names = |plan: &Plan| {
        let resources = emit(plan, &Options::default());
        let named = resources.iter().map(|resource| resource.key().name.to_string());
        named.filter(|name| name == "xds-server/unavailable").count()
    };
    let split = forward(vec![to("prod/a/80", 1), broken(1)]);
    assert_eq!(names(&with_routes(vec![split.clone()])), 0, "HTTP needs none");
    assert_eq!(names(&with_routes(vec![grpc(split)])), 2, "a cluster and its assignment");
    let mut plan = with_routes(Vec::new());
    plan.clusters
        .insert("prod/a/80".to_owned(), Cluster { tls: Some(UpstreamTls::Invalid), ..eds("prod/a/80") });
    assert_eq!(names(&plan), 1, "the assignment only");
}

#[test]
fn filters_change_headers_hosts_and_paths() {
    let own = Weighted {
        request_edits: edits(&[("Host", "a.example")], &[("X-Backend", "a")], &[]).into(),
        response_edits: edits(&[], &[], &["x-secret"]).into(),
        ..to("prod/a/80", 1)
    };
    let alone = forward(vec![own.clone()]);
    let mut all = forward(vec![own, to("prod/b/80", 1)]);
    all.effects.request_edits =
        edits(&[("X-A", "100%"), ("Host", "ignored.example")], &[("x-b", "")], &["x-c", "host"]);
    all.effects.response_edits = edits(&[("x-d", "1")], &[], &["server"]);
    all.effects.host_rewrite = Some("new.example".to_owned());
    all.matches.path = PathMatch::Prefix("/a".to_owned());
    all.effects.path_rewrite = Some(PathRewrite::Prefix("/b".to_owned()));
    all.effects.mirrors = vec![
        Mirror { backend: backend("prod/b/80"), fraction: Fraction { numerator: 5, denominator: 1000 } },
        Mirror { backend: backend("prod/b/80"), fraction: Fraction { numerator: 1, denominator: 1 } },
    ];
    insta::assert_snapshot!("filters", golden_routes(vec![alone, all]));
}

#[test]
fn redirects_and_retries_are_written_out() {
    let redirect = Redirect {
        scheme: Some("https".to_owned()),
        host: Some("new.example".to_owned()),
        path: Some(PathRewrite::Full("/new".to_owned())),
        port: Some(8443),
        status: 308,
    };
    let replaced = Redirect {
        path: Some(PathRewrite::Prefix("/".to_owned())),
        ..Redirect { scheme: None, host: None, port: None, status: 302, path: None }
    };
    let mut prefix = path(PathMatch::Prefix("/old".to_owned()));
    prefix.action = Action::Redirect(replaced.into());
    let mut retried = forward(vec![to("prod/a/80", 1)]);
    retried.effects.retry = Some(Retry {
        codes: vec![500, 503],
        grpc_on: Vec::new(),
        attempts: 3,
        backoff: Some(Duration::ZERO),
    });
    retried.effects.timeouts = Timeouts {
        request: Some(Duration::from_millis(2500)),
        backend_request: Some(Duration::from_millis(500)),
    };
    let mut called = grpc(forward(vec![to("prod/a/80", 1)]));
    let grpc_on = vec!["unavailable".to_owned(), "internal".to_owned()];
    let backoff = Some(Duration::from_millis(100));
    called.effects.retry = Some(Retry { codes: Vec::new(), grpc_on, attempts: 2, backoff });
    let routes = vec![route(0, Action::Redirect(redirect.into())), prefix, retried, called];
    insta::assert_snapshot!("redirects_and_retries", golden_routes(routes));
}

#[test]
fn cors_is_a_filter_and_what_routes_say_to_it() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let mut shared = forward(vec![to("prod/a/80", 1)]);
    shared.effects.cors = Some(Cors {
        allow_origins: texts(&["https://a.example", "https://*.b.example", "*"]),
        allow_methods: texts(&["GET", "PUT"]),
        allow_headers: texts(&["x-a"]),
        expose_headers: Vec::new(),
        allow_credentials: true,
        max_age_seconds: 5,
    });
    let mut plan = with_routes(vec![shared]);
    plan.clusters.retain(|name, _| name == "prod/a/80");
    insta::assert_snapshot!("cors", golden(&plan));
}

/// A split with a session; `prod/a/80` has an endpoint that is going away, and takes no new requests.
fn with_session(session: Session, targets: Vec<Weighted>) -> Plan {
    let mut split = forward(targets);
    split.effects.session = Some(session);
    let mut plan = with_routes(vec![split]);
    for cluster in plan.clusters.values_mut() {
        *cluster = Cluster { protocols: vec![BackendProtocol::Http1], has_sessions: true, ..cluster.clone() };
    }
    let draining = Endpoint { health: Health::Draining, ..endpoint(9) };
    plan.assignments.insert("prod/a/80".to_owned(), assignment(vec![endpoint(1), draining]));
    plan
}

#[test]
fn a_session_with_one_backend_keeps_its_endpoint() {
    let mut plan = with_session(cookie("sid", SessionLifetime::Permanent), vec![to("prod/a/80", 1)]);
    plan.clusters.retain(|name, _| name == "prod/a/80");
    insta::assert_snapshot!("session", golden(&plan));
}

#[test]
fn a_session_with_several_backends_keeps_its_backend_too() {
    let plan =
        with_session(cookie("sid", SessionLifetime::Permanent), vec![to("prod/a/80", 0), to("prod/b/80", 1)]);
    let found = routes(&emit(&plan, &Options::default()));
    insta::assert_snapshot!("session_split", format!("{:#}", serde_json::Value::from(found)));
}

#[test]
fn a_header_session_with_several_backends_knows_them_by_their_endpoints() {
    let plan = with_session(header_session("x-sid"), vec![to("prod/a/80", 0), to("prod/b/80", 1)]);
    let found = routes(&emit(&plan, &Options::default()));
    insta::assert_snapshot!("session_split_by_header", format!("{:#}", serde_json::Value::from(found)));
}

#[test]
fn sessions_leave_a_backend_that_has_no_endpoint_left() {
    let mut plan =
        with_session(cookie("sid", SessionLifetime::Session), vec![to("prod/a/80", 1), to("prod/b/80", 1)]);
    plan.assignments
        .insert("prod/a/80".to_owned(), Assignment { localities: Vec::new(), ..assignment(Vec::new()) });
    let found = routes(&emit(&plan, &Options::default()));
    let names: Vec<_> = found.iter().map(|route| route["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["HTTPRoute/prod/web/0/0/session/prod/b/80", "HTTPRoute/prod/web/0/0"]);
}

#[test]
fn cookies_are_secure_where_there_is_tls() {
    let mut plan =
        with_session(cookie("sid", SessionLifetime::Session), vec![to("prod/a/80", 1), to("prod/b/80", 1)]);
    let is_secure = |plan: &Plan| {
        let found = serde_json::Value::from(routes(&emit(plan, &Options::default()))).to_string();
        (
            found.matches("; Secure").count(),
            found.matches(r#"{"name":"Secure"}"#).count(),
            found.contains("Max-Age"),
        )
    };
    assert_eq!(is_secure(&plan), (0, 0, false));
    let hosts = std::mem::take(&mut plan.ports[0].chains[0].hosts);
    plan.ports[0].chains[0] = tls_chain("prod/edge/443/a", None, hosts);
    secrets(&mut plan);
    assert_eq!(is_secure(&plan), (2, 3, false));
}

fn clusters(clusters: Vec<(&str, Cluster)>) -> String {
    let mut plan = Plan::default();
    plan.clusters.extend(clusters.into_iter().map(|(name, cluster)| (name.to_owned(), cluster)));
    for cluster in plan.clusters.values() {
        if let Discovery::Eds { assignment: name } = &cluster.discovery {
            plan.assignments.insert(name.clone(), assignment(vec![endpoint(1)]));
        }
    }
    secrets(&mut plan);
    plan.secrets.retain(|name, _| name == "prod/ca");
    golden(&plan)
}

fn http1(discovery: Discovery) -> Cluster {
    Cluster { protocols: vec![BackendProtocol::Http1], ..cluster(discovery) }
}

#[test]
fn clusters_find_their_endpoints_in_each_way() {
    let dns = |host: &str| (host.to_owned(), 80);
    let ip = || Address::Ip(IpAddr::from([10, 0, 0, 1]), 80);
    let unix = || Address::Unix("/run/app.sock".to_owned());
    insta::assert_snapshot!(
        "discovery",
        clusters(vec![
            ("prod/both", eds("prod/both")),
            ("prod/one", http1(Discovery::Dns(vec![dns("one.example")]))),
            ("prod/two", http1(Discovery::Dns(vec![dns("one.example"), dns("two.example")]))),
            (
                "prod/unix",
                Cluster { lb_policy: LbPolicy::LeastRequest, ..http1(Discovery::Static(vec![unix(), ip()])) }
            ),
            ("prod/mixed", http1(Discovery::Static(vec![ip(), Address::Dns("one.example".to_owned(), 80)]))),
        ])
    );
}

#[test]
fn an_aggregate_names_the_clusters_below_it_and_these_find_out_dead_endpoints() {
    let aggregate = |members: &[&str]| {
        let members = members.iter().map(|name| (*name).to_owned()).collect();
        Cluster { protocols: vec![BackendProtocol::Http2], ..cluster(Discovery::Aggregate(members)) }
    };
    let member = |protocols| Cluster { protocols, is_fallback_member: true, ..eds("prod/members") };
    let inner = Cluster { is_fallback_member: true, ..aggregate(&["prod/c", "prod/a"]) };
    insta::assert_snapshot!(
        "aggregate",
        clusters(vec![
            ("prod/outer", aggregate(&["prod/a", "prod/inner", "prod/b"])),
            ("prod/inner", inner),
            ("prod/a", member(vec![BackendProtocol::Http1, BackendProtocol::Http2])),
            ("prod/b", member(vec![BackendProtocol::Http2])),
            ("prod/c", member(vec![BackendProtocol::Http2])),
        ])
    );
}

#[test]
fn tls_towards_backends_checks_names_and_fails_closed() {
    let verified = |trusted: Option<&str>, alt_names: &[&str]| UpstreamTls::Verified {
        sni: "a.example".to_owned(),
        alt_names: alt_names.iter().map(|name| (*name).to_owned()).collect(),
        trusted: trusted.map(str::to_owned),
    };
    let system = Cluster { tls: Some(verified(None, &["a.example", "spiffe://a/b"])), ..eds("prod/e") };
    let own = verified(Some("prod/ca"), &["a.example"]);
    let own = Cluster { tls: Some(own), protocols: vec![BackendProtocol::Http2], ..eds("prod/e") };
    let invalid =
        Cluster { tls: Some(UpstreamTls::Invalid), ..http1(Discovery::Dns(vec![("a".to_owned(), 1)])) };
    insta::assert_snapshot!(
        "upstream_tls",
        clusters(vec![("prod/system", system), ("prod/own", own), ("prod/invalid", invalid),])
    );
}

#[test]
fn endpoints_have_health_zones_and_weights() {
    let locality = |zone: &str, endpoints| Locality { zone: zone.to_owned(), endpoints };
    let weighted = |last, weight| Endpoint { weight: Some(weight), ..endpoint(last) };
    let draining = |last| Endpoint { health: Health::Draining, ..endpoint(last) };
    let localities = vec![
        locality("", vec![endpoint(1), draining(2), endpoint(3)]),
        locality("a", vec![weighted(4, 7), endpoint(5)]),
        locality("b", vec![draining(6)]),
        locality("c", Vec::new()),
        locality("d", vec![Endpoint { address: "2001:db8::1".parse().expect("an address"), ..endpoint(7) }]),
    ];
    let mut plan = Plan::default();
    plan.clusters.insert(
        "prod/a/80".to_owned(),
        Cluster { protocols: vec![BackendProtocol::Http1], ..eds("prod/a/80") },
    );
    plan.assignments.insert("prod/a/80".to_owned(), Assignment { localities, ..assignment(Vec::new()) });
    insta::assert_snapshot!("endpoints", golden(&plan));
}

#[test]
fn a_single_target_needs_no_split() {
    let mut single = forward(vec![to("prod/a/80", 7)]);
    let Action::Forward(targets) = &mut single.action else { panic!("it forwards") };
    assert_eq!(targets[0].target, Target::Backend(backend("prod/a/80")));
    let found = routes(&emit(&with_routes(vec![single]), &Options::default()));
    assert_eq!(found[0]["route"], serde_json::json!({"cluster": "prod/a/80"}));
}
