//! The resources for each feature.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value as Json;

use super::plans::{
    broken, cluster, cookie, eds, endpoint, everything, forward, header, host, method, path, port, route,
    service, session_of, to, with_routes,
};
use super::{CODEC, Outcome, emit};
use crate::emit::FoundBy;
use crate::emit::grpc::{limits, matcher, session};
use crate::input::Options;
use crate::model::{
    Cors, Fraction, HeaderEdits, HeaderValue, Hostname, LbPolicy, Match, MatchType, PathMatch, PathRewrite,
    QueryMatch, Redirect, Retry, SessionKind, SessionLifetime, Timeouts,
};
use crate::plan::{
    Action, Address, Assignment, BackendProtocol, Chain, Cluster, ClusterRef, Discovery, Endpoint, Health,
    Locality, Mirror, Plan, PlannedRoute, TlsTermination, UpstreamTls, VirtualHost,
};

fn golden(name: &str, text: &str) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}

fn losses(outcome: &Outcome) -> String {
    let line = |loss: &crate::emit::GrpcLoss| {
        let kind = if loss.is_dropped { "dropped" } else { "falls back" };
        format!("{}, rule {}, {kind}: {}\n", loss.document, loss.rule, loss.reason)
    };
    outcome.losses.iter().map(line).collect()
}

/// Losses and resources; no client has anything against them.
fn shown(plan: &Plan, options: &Options) -> String {
    let outcome = emit(plan, options);
    assert_eq!(outcome.faults(), Vec::<String>::new());
    let mut text = losses(&outcome);
    for (resource, (found_by, _)) in outcome.resources.iter().zip(&outcome.emitted) {
        let pattern = if *found_by == FoundBy::Pattern { "# pattern\n" } else { "" };
        write!(text, "---\n{pattern}{}", CODEC.to_yaml(resource)).expect("text");
    }
    text
}

#[test]
fn weighted_targets_keep_their_shares_also_of_nowhere() {
    let edits = HeaderEdits { remove: vec!["x".to_owned()], ..HeaderEdits::default() };
    let mut mirrored = forward(2, vec![to("prod/a/80", 1)]);
    mirrored.effects.request_edits = edits;
    let routes = vec![
        route(
            0,
            method(MatchType::Exact, Some("foo.Bar"), Some("Get")),
            Action::Forward(vec![to("prod/a/80", 90), broken(5), to("prod/b/80", 0), broken(5)]),
        ),
        route(1, header("version", HeaderValue::Exact("2".to_owned())), Action::Fail),
        mirrored,
    ];
    golden("weighted", &shown(&with_routes(routes), &Options::default()));
}

#[test]
fn sessions_are_kept_at_weight_0() {
    let mut canary = forward(0, vec![to("prod/a/80", 100), to("prod/b/80", 0)]);
    canary.effects.session = Some(cookie(SessionLifetime::Permanent));
    let mut by_header = forward(1, vec![to("prod/a/80", 100), to("prod/b/80", 0)]);
    by_header.effects.session = Some(session_of(SessionKind::Header { name: "sid".to_owned() }));
    let mut plan = with_routes(vec![canary, by_header]);
    plan.clusters.get_mut("prod/b/80").expect("is there").has_sessions = true;
    golden("sessions", &shown(&plan, &Options::default()));
}

#[test]
fn a_host_without_a_route_for_grpc_is_no_empty_virtual_host() {
    let query = QueryMatch { name: "q".to_owned(), match_type: MatchType::Exact, value: "1".to_owned() };
    let dropped = route(0, Match { query: [query].into(), ..everything() }, Action::Fail);
    golden("no_route", &shown(&with_routes(vec![dropped]), &Options::default()));
}

#[test]
fn names_are_those_that_are_dialled() {
    let answers = || vec![forward(0, vec![to("prod/a/80", 1)])];
    let mut plan = with_routes(Vec::new());
    let second = ("a.example", answers());
    plan.ports.push(port("prod/edge/8080", 8080, vec![second, ("*.example", answers()), ("*", answers())]));
    plan.ports.push(port("prod/other/80", 80, vec![("a.example", answers()), ("b.example", answers())]));
    let chain = |name: &str, server_name: Option<&str>, is_programmed| Chain {
        name: format!("prod/tls/443/{name}"),
        tls: Some(TlsTermination {
            server_name: server_name.map(|name| Hostname::new(name).expect("a host name")),
            certificates: Vec::new(),
        }),
        is_programmed,
        hosts: vec![VirtualHost { host: host("c.example"), routes: answers() }],
    };
    let mut tls = port("prod/tls/443", 443, Vec::new());
    tls.chains = vec![
        chain("any", None, true),
        chain("wild", Some("*.example"), true),
        chain("exact", Some("c.example"), false),
    ];
    plan.ports.push(tls);
    plan.services = vec![
        service(
            "cart",
            81,
            &["cart", "cart.prod", "cart.prod.svc", "cart.prod.svc.cluster.local"],
            answers(),
        ),
        service("cart", 80, &["cart", "cart.prod"], answers()),
        service("web", 80, &["b.example"], answers()),
    ];
    let outcome = emit(&plan, &Options::default());
    assert_eq!(outcome.faults(), Vec::<String>::new());
    let mut text = String::new();
    for (found_by, message) in outcome.emitted.iter().filter(|(found_by, _)| *found_by != FoundBy::Name) {
        let name = message["name"].as_str().expect("a name");
        let routes = &message["api_listener"]["api_listener"]["rds"]["route_config_name"];
        let pattern = if *found_by == FoundBy::Pattern { " (pattern)" } else { "" };
        writeln!(text, "{name}{pattern}: {}", routes.as_str().expect("a name")).expect("text");
    }
    golden("names", &text);
}

#[test]
fn matches_are_written_in_full_or_not_at_all() {
    let mut cases: Vec<(String, Match)> = Vec::new();
    let mut add = |matches: Match| {
        let Match { path, headers, query, method, fraction, case_sensitive, .. } = &matches;
        let headers: Vec<_> = headers.iter().map(|header| (&header.name, &header.value)).collect();
        let rest =
            (headers, query.len(), method, fraction.map(|it| (it.numerator, it.denominator)), case_sensitive);
        cases.push((format!("{path:?} {rest:?}"), matches));
    };
    for text in ["/a", "/a/b", "/a/b/c", "/a/", "//a"] {
        add(path(PathMatch::Exact(text.to_owned())));
        add(path(PathMatch::Prefix(text.trim_end_matches('/').to_owned())));
        add(path(PathMatch::TextPrefix(text.to_owned())));
    }
    add(path(PathMatch::Any));
    add(path(PathMatch::TextPrefix(String::new())));
    for text in ["", "/a/(b|c)"] {
        add(path(PathMatch::Regex(text.to_owned())));
    }
    for match_type in [MatchType::Exact, MatchType::RegularExpression] {
        for (service, name) in
            [(Some("a.B"), Some("C")), (Some("a.B"), None), (None, Some("C+")), (None, None)]
        {
            add(method(match_type, service, name));
        }
    }
    for (name, value) in [
        ("x", HeaderValue::Present),
        ("x", HeaderValue::Exact(String::new())),
        ("x", HeaderValue::Regex("a|b".to_owned())),
        ("x", HeaderValue::Regex(String::new())),
        (":method", HeaderValue::Exact("POST".to_owned())),
        (":method", HeaderValue::Regex("GET|POST".to_owned())),
        (":method", HeaderValue::Regex("PO".to_owned())),
        (":method", HeaderValue::Exact("GET".to_owned())),
        (":path", HeaderValue::Present),
        ("content-type", HeaderValue::Present),
        ("content-type", HeaderValue::Regex("application/.*".to_owned())),
        ("content-type", HeaderValue::Exact("text/html".to_owned())),
        ("user-agent", HeaderValue::Present),
        ("host", HeaderValue::Present),
        ("x-bin", HeaderValue::Present),
        ("grpc-timeout", HeaderValue::Present),
    ] {
        add(header(name, value));
    }
    let share = |numerator, denominator| Match {
        fraction: Some(Fraction { numerator, denominator }),
        ..everything()
    };
    [share(1, 4), share(1, 3), share(0, 3), share(3, 3)].into_iter().for_each(&mut add);
    for verb in ["POST", "GET"] {
        add(Match { method: Some(verb.to_owned()), ..everything() });
    }
    add(Match { case_sensitive: false, ..path(PathMatch::Exact("/a/b".to_owned())) });
    add(Match { case_sensitive: false, ..path(PathMatch::Regex("/a/(b|c)".to_owned())) });
    let mut text = String::new();
    for (case, matches) in cases {
        let found = match matcher::route_match(&matches) {
            Ok(found) => found.message().to_string(),
            Err(reason) => format!("dropped: {reason}"),
        };
        writeln!(text, "{case}\n    {found}").expect("text");
    }
    golden("matches", &text);
}

#[test]
fn limits_are_those_that_grpc_heeds() {
    let seconds = |n: Option<u64>| n.map(Duration::from_secs);
    let mut text = String::new();
    for (request, attempt) in
        [(None, None), (Some(0), None), (Some(5), None), (Some(5), Some(2)), (None, Some(2))]
    {
        let timeouts = Timeouts { request: seconds(request), backend_request: seconds(attempt) };
        for is_retried in [false, true] {
            let limit = limits::max_stream_duration(&timeouts, is_retried);
            let lost = limits::lost_timeout(&timeouts, is_retried);
            writeln!(text, "{request:?} {attempt:?} retried {is_retried}: {limit} {lost:?}").expect("text");
        }
    }
    let retry = |codes: &[u16], grpc_on: &[&str], attempts, backoff: Option<u64>| Retry {
        codes: codes.to_vec(),
        grpc_on: grpc_on.iter().map(|it| (*it).to_owned()).collect(),
        attempts,
        backoff: backoff.map(Duration::from_millis),
    };
    for retry in [
        retry(&[], &[], 1, None),
        retry(&[500, 503], &[], 2, None),
        retry(&[400, 500], &[], 2, None),
        retry(&[504], &["unavailable", "internal"], 9, Some(250)),
        retry(&[], &["cancelled"], 1, Some(0)),
    ] {
        let (policy, lost) = limits::retry_policy(&retry);
        let policy = policy.map(|policy: Json| policy.to_string());
        writeln!(text, "{retry:?}\n    {policy:?} {lost:?}").expect("text");
    }
    golden("limits", &text);
}

/// A route for each cluster, alone.
fn of_clusters(clusters: Vec<Cluster>) -> Plan {
    let mut plan = with_routes(vec![forward(0, vec![to("root", 1)])]);
    for (index, cluster) in clusters.into_iter().enumerate() {
        let name = if index == 0 { "root".to_owned() } else { format!("prod/m{index}") };
        plan.clusters.insert(name, cluster);
    }
    plan
}

#[test]
fn clusters_are_of_types_that_grpc_has() {
    let ip = |last| Address::Ip(endpoint(last).address, 8080);
    let dns = |name: &str| Address::Dns(name.to_owned(), 443);
    let unix = || Address::Unix("/run/s".to_owned());
    let names = |names: &[&str]| Discovery::Dns(names.iter().map(|name| ((*name).to_owned(), 443)).collect());
    let members =
        |names: &[&str]| Discovery::Aggregate(names.iter().map(|name| (*name).to_owned()).collect());
    let verified =
        UpstreamTls::Verified { sni: "s".to_owned(), alt_names: vec!["s".to_owned()], trusted: None };
    let mut secret = eds("prod/a/80");
    secret.tls = Some(verified);
    let mut invalid = eds("prod/a/80");
    invalid.tls = Some(UpstreamTls::Invalid);
    let least = |discovery| Cluster { lb_policy: LbPolicy::LeastRequest, ..cluster(discovery) };
    let cases = vec![
        ("one name", vec![cluster(names(&["one.example"]))]),
        ("one name twice", vec![cluster(names(&["one.example", "one.example"]))]),
        ("two names", vec![cluster(names(&["one.example", "two.example"]))]),
        ("only a socket", vec![cluster(Discovery::Static(vec![unix()]))]),
        ("addresses and a socket", vec![cluster(Discovery::Static(vec![ip(2), unix(), ip(1), ip(2)]))]),
        ("addresses and names", vec![cluster(Discovery::Static(vec![ip(1), dns("one.example")]))]),
        ("TLS", vec![secret.clone()]),
        ("invalid TLS", vec![invalid]),
        ("no assignment", vec![eds("prod/none")]),
        ("least requests, which C-core refuses", vec![least(eds("prod/a/80").discovery)]),
        ("least requests of one name, which is one endpoint", vec![least(names(&["one.example"]))]),
        (
            "a fallback of fallbacks",
            vec![
                cluster(members(&["prod/m1", "prod/m2"])),
                cluster(names(&["one.example", "two.example"])),
                cluster(members(&["prod/a/80", "prod/m1", "prod/m3"])),
                secret,
            ],
        ),
    ];
    let mut text = String::new();
    for (title, clusters) in cases {
        let outcome = emit(&of_clusters(clusters), &Options::default());
        assert_eq!(outcome.faults(), Vec::<String>::new());
        writeln!(text, "# {title}\n{}", losses(&outcome)).expect("text");
        for message in outcome
            .messages()
            .iter()
            .filter(|it| it["api_listener"].is_null() && it["virtual_hosts"].is_null())
        {
            writeln!(text, "{message}").expect("text");
        }
        text.push('\n');
    }
    golden("clusters", &text);
}

#[test]
fn aggregates_are_flat_however_deep_the_plan_is() {
    let aggregate = |index: usize| cluster(Discovery::Aggregate(vec![format!("prod/m{}", index + 1)]));
    let mut clusters: Vec<_> = (0..15).map(aggregate).collect();
    let names = ["one.example", "two.example"].map(|name| (name.to_owned(), 443));
    clusters.push(cluster(Discovery::Dns(names.to_vec())));
    let outcome = emit(&of_clusters(clusters), &Options::default());
    assert_eq!(outcome.faults(), Vec::<String>::new());
    let messages = outcome.messages();
    let root = messages.iter().find(|message| message["name"] == "root").expect("is there");
    let members = &root["cluster_type"]["typed_config"]["clusters"];
    assert_eq!(*members, serde_json::json!(["prod/m15/dns/one.example:443", "prod/m15/dns/two.example:443"]));
}

#[test]
fn a_cycle_without_endpoints_fails_and_does_not_hang() {
    let members = |name: &str| cluster(Discovery::Aggregate(vec![name.to_owned()]));
    let outcome = emit(&of_clusters(vec![members("prod/m1"), members("root")]), &Options::default());
    assert_eq!(outcome.faults(), Vec::<String>::new());
}

#[test]
fn the_smallest_share_is_of_a_drained_backend_and_fits_into_32_bits() {
    type Weights = &'static [(&'static str, u64)];
    let cases: [(Weights, &[u64]); 4] = [
        (&[("a", 3), ("b", 0), ("xds-server/unavailable", 0)], &[30_000, 1, 0]),
        (&[("a", 3), ("b", 1)], &[3, 1]),
        (&[("a", 4_294_967_295), ("b", 0)], &[4_294_967_294, 1]),
        (&[("a", 1), ("b", 4_294_967_294), ("c", 0), ("d", 0)], &[1, 4_294_967_292, 1, 1]),
    ];
    for (weights, expected) in cases {
        let mut targets = weights.to_vec();
        session::keep_drained(&mut targets);
        let found: Vec<u64> = targets.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(found, expected, "{weights:?}");
    }
}

#[test]
fn endpoints_have_localities_with_weights() {
    let mut plan = with_routes(vec![forward(0, vec![to("prod/a/80", 1)])]);
    let at = |last, health, weight| Endpoint { health, weight, ..endpoint(last) };
    let locality = |zone: &str, endpoints| Locality { zone: zone.to_owned(), endpoints };
    let localities = vec![
        locality("", vec![at(1, Health::Healthy, Some(3)), at(2, Health::Draining, None)]),
        locality("a", vec![at(3, Health::Draining, None)]),
        locality("b", Vec::new()),
    ];
    let assignment = Assignment { localities, origin: xds_cache::Origin::Api };
    plan.assignments.insert("prod/a/80".to_owned(), assignment);
    let outcome = emit(&plan, &Options::default());
    let yaml = outcome.resources.last().map(|resource| CODEC.to_yaml(resource)).unwrap_or_default();
    golden("endpoints", &format!("{}{yaml}", losses(&outcome)));
}

#[test]
fn filters_that_grpc_ignores_are_told_and_left_out_if_strict() {
    let with = |rule, change: &dyn Fn(&mut PlannedRoute)| {
        let mut route = forward(rule, vec![to("prod/a/80", 1)]);
        change(&mut route);
        route
    };
    let edits = || HeaderEdits { remove: vec!["x".to_owned()], ..HeaderEdits::default() };
    let mirror = || Mirror {
        backend: ClusterRef { name: "prod/b/80".to_owned(), protocol: BackendProtocol::Http2 },
        fraction: Fraction { numerator: 1, denominator: 2 },
    };
    let redirect = Redirect { scheme: None, host: None, path: None, port: None, status: 302 };
    let routes = vec![
        with(0, &|_| {}),
        with(1, &|route| route.effects.request_edits = edits()),
        with(2, &|route| route.effects.response_edits = edits()),
        with(3, &|route| route.effects.mirrors = vec![mirror()]),
        with(4, &|route| route.effects.cors = Some(Cors::default())),
        with(5, &|route| route.effects.host_rewrite = Some("b.example".to_owned())),
        with(6, &|route| route.effects.path_rewrite = Some(PathRewrite::Full("/x/y".to_owned()))),
        with(7, &|route| {
            let mut target = to("prod/a/80", 1);
            target.response_edits = edits().into();
            route.action = Action::Forward(vec![target]);
        }),
        route(8, everything(), Action::Redirect(redirect.into())),
    ];
    let plan = with_routes(routes);
    let mut text = String::new();
    for is_grpc_strict in [false, true] {
        let outcome = emit(&plan, &Options { is_grpc_strict, ..Options::default() });
        assert_eq!(outcome.faults(), Vec::<String>::new());
        let messages = outcome.messages();
        let hosts = messages.iter().filter_map(|it| it["virtual_hosts"][0]["routes"].as_array());
        let routes: Vec<String> =
            hosts.flatten().map(|it| format!("{} to {}", it["name"], it["route"]["cluster"])).collect();
        writeln!(text, "strict {is_grpc_strict}\n{}{}\n", losses(&outcome), routes.join("\n")).expect("text");
    }
    golden("filters", &text);
}
