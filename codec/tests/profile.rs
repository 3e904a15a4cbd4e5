//! Findings of the lint per profile: each rule by a change to configuration that every client takes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Value, json};
use xds_cache::{Profile, Resource};
use xds_codec::{Codec, Effect, PgvLevel, ProfileFinding};

/// The cases by part. Each is a paragraph: changes to the base (`path = JSON`), then, indented, what is found (row, code and
/// path) or `nothing`.
const PARTS: [(Profile, &str); 10] = [
    (Profile::Grpc, include_str!("profile_cases/listeners.txt")),
    (Profile::Grpc, include_str!("profile_cases/tls.txt")),
    (Profile::Grpc, include_str!("profile_cases/routes.txt")),
    (Profile::Grpc, include_str!("profile_cases/filters.txt")),
    (Profile::Grpc, include_str!("profile_cases/clusters.txt")),
    (Profile::Grpc, include_str!("profile_cases/endpoints.txt")),
    (Profile::Envoy, include_str!("profile_cases/envoy.txt")),
    (Profile::Envoy, include_str!("profile_cases/envoy_refusals.txt")),
    (Profile::Grpc, include_str!("profile_cases/grpc_sessions.txt")),
    (Profile::Envoy, include_str!("profile_cases/envoy_sessions.txt")),
];

/// A change to the base, and what the lint says of it.
#[derive(Debug)]
struct Case {
    profile: Profile,
    /// Where, and to what.
    changes: Vec<(&'static str, &'static str)>,
    /// `ROW CODE PATH`, sorted.
    expected: Vec<&'static str>,
}

impl Case {
    fn new(profile: Profile, changes: &[(&'static str, &'static str)]) -> Self {
        Self { profile, changes: changes.to_vec(), expected: Vec::new() }
    }

    fn parse(profile: Profile, paragraph: &'static str) -> Self {
        let mut case = Self::new(profile, &[]);
        for line in paragraph.lines() {
            match (line.strip_prefix("  "), line.split_once(" = ")) {
                (Some("nothing"), _) => {}
                (Some(found), _) => case.expected.push(found),
                (None, Some(change)) => case.changes.push(change),
                (None, None) => panic!("{line}"),
            }
        }
        case.expected.sort_unstable();
        case
    }
}

fn cases() -> impl Iterator<Item = Case> {
    PARTS.iter().flat_map(|(profile, text)| text.split("\n\n").map(|one| Case::parse(*profile, one)))
}

/// Without `validate.rules`: some of them forbid what a rule of a profile forbids too, and a server may run without.
static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap().with_pgv_level(PgvLevel::Off));

/// Good for Envoys and gRPC clients: a client's listener, a gRPC server's, an Envoy's, and what they name.
fn base() -> Value {
    let any = |name: &str| format!("type.googleapis.com/envoy.{name}");
    let router =
        json!({"name": "router", "typed_config": {"@type": any("extensions.filters.http.router.v3.Router")}});
    let manager = |routes: &str| {
        json!({
            "@type": any("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "s",
            "rds": {"route_config_name": routes, "config_source": {"ads": {}, "resource_api_version": "V3"}},
            "http_filters": [router],
        })
    };
    let listener = |name: &str, routes: &str| {
        json!({
            "@type": any("config.listener.v3.Listener"),
            "name": name,
            "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
            "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager(routes)}]}],
        })
    };
    let routes = |name: &str, route: &Value| {
        json!({
            "@type": any("config.route.v3.RouteConfiguration"),
            "name": name,
            "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route]}],
        })
    };
    let to_cluster = json!({"match": {"prefix": ""}, "route": {"cluster": "c"}});
    json!({
        "client": {
            "@type": any("config.listener.v3.Listener"),
            "name": "client",
            "api_listener": {"api_listener": manager("routes")},
        },
        "server": listener("grpc/server?xds.resource.listening_address=0.0.0.0:80", "served"),
        "envoy": listener("envoy", "proxied"),
        "routes": routes("routes", &to_cluster),
        "served": routes("served", &json!({"match": {"prefix": ""}, "non_forwarding_action": {}})),
        "proxied": routes("proxied", &json!({"match": {"prefix": "/"}, "route": {"cluster": "c"}})),
        "cluster": {
            "@type": any("config.cluster.v3.Cluster"),
            "name": "c",
            "type": "EDS",
            "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
            "connect_timeout": "1s",
        },
        "endpoints": {
            "@type": any("config.endpoint.v3.ClusterLoadAssignment"),
            "cluster_name": "c",
            "endpoints": [{
                "locality": {"region": "r"},
                "load_balancing_weight": 1,
                "lb_endpoints": [
                    {"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}}},
                ],
            }],
        },
    })
}

/// Puts a value at a path such as `a.b[0].c`, making what is missing on the way; `null` removes.
fn set(at: &mut Value, path: &str, value: Value) {
    let path = path.replace('[', ".[");
    let mut at = at;
    let steps: Vec<&str> = path.split('.').filter(|step| !step.is_empty()).collect();
    let (last, ways) = steps.split_last().unwrap();
    for step in ways {
        at = enter(at, step);
    }
    if value.is_null() {
        at.as_object_mut().unwrap().shift_remove(*last);
    } else {
        *enter(at, last) = value;
    }
}

fn enter<'v>(at: &'v mut Value, step: &str) -> &'v mut Value {
    let Some(index) = step.strip_prefix('[') else { return &mut at[step] };
    if at.is_null() {
        *at = json!([]);
    }
    let (items, index) = (at.as_array_mut().unwrap(), index.trim_end_matches(']').parse::<usize>().unwrap());
    while items.len() <= index {
        items.push(Value::Null);
    }
    &mut items[index]
}

/// `A` stands for the type URLs' beginning, so that cases stay short.
fn value(text: &str) -> Value {
    let text = text.replace("TYPE:", "type.googleapis.com/envoy.");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn resources(case: &Case) -> Vec<Resource> {
    let mut all = base();
    for (path, text) in &case.changes {
        let path = path.replace("HCM", "filter_chains[0].filters[0].typed_config");
        let path =
            path.replace("API", "api_listener.api_listener").replace("ROUTE", "virtual_hosts[0].routes[0]");
        let path = path.replace("ENDPOINT", "endpoints[0].lb_endpoints[0]");
        set(&mut all, &path, value(text));
    }
    let decode = |json: &Value| {
        CODEC.resource_from_json(json).unwrap_or_else(|wrong| panic!("{:?}: {wrong:?}", case.changes))
    };
    all.as_object().unwrap().values().map(decode).collect()
}

fn lint(case: &Case) -> Vec<ProfileFinding> {
    CODEC.lint_profile(resources(case).iter(), case.profile)
}

#[test]
fn each_rule_finds_its_fault_and_nothing_else() {
    assert!(cases().count() >= 450);
    let mut wrong = Vec::new();
    for case in cases() {
        let mut found: Vec<_> = lint(&case)
            .iter()
            .map(|one| format!("{} {} {}", one.row, one.code, one.path).trim_end().to_owned())
            .collect();
        found.sort();
        if found != case.expected {
            wrong.push(format!("{:?}\n  found {found:?}\n  expected {:?}", case.changes, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_texts_say_who_does_what() {
    let mut text = String::new();
    for case in cases() {
        for one in lint(&case) {
            let suggestion = one.suggestion.map(|it| format!("\n    = {it}")).unwrap_or_default();
            let effect = format!("{:?}", one.effect).to_lowercase();
            writeln!(text, "{} {effect} {}: {}{suggestion}", one.row, one.path, one.message).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_languages_of_a_finding_are_those_of_its_text() {
    let mut n = 0;
    for one in cases().flat_map(|case| lint(&case)) {
        let named = one.message.split_once("gRPC").and_then(|(_, rest)| rest.split_once('('));
        let named = named.filter(|(before, _)| ["", "server", "client", "clients"].contains(&before.trim()));
        let names = named.and_then(|(_, rest)| rest.split_once(')')).map(|(names, _)| names);
        let Some(names) = names else { continue };
        let mut names: Vec<_> = names.split(", ").collect();
        let mut languages: Vec<_> = one.languages.iter().map(|language| language.name()).collect();
        names.sort_unstable();
        languages.sort_unstable();
        assert_eq!(names, languages, "{}", one.message);
        n += 1;
    }
    assert!(n > 40, "{n}");
}

#[test]
fn every_row_in_the_rules_has_a_case() {
    let sources = [
        include_str!("../src/profile/draws.rs"),
        include_str!("../src/profile/envoy/chains.rs"),
        include_str!("../src/profile/envoy/cluster.rs"),
        include_str!("../src/profile/envoy/endpoints.rs"),
        include_str!("../src/profile/envoy/extensions.rs"),
        include_str!("../src/profile/envoy/filters.rs"),
        include_str!("../src/profile/envoy/headers.rs"),
        include_str!("../src/profile/envoy/listener.rs"),
        include_str!("../src/profile/envoy/manager.rs"),
        include_str!("../src/profile/envoy/mod.rs"),
        include_str!("../src/profile/envoy/route.rs"),
        include_str!("../src/profile/envoy/sources.rs"),
        include_str!("../src/profile/envoy/template.rs"),
        include_str!("../src/profile/envoy/tls.rs"),
        include_str!("../src/profile/grpc/balancing.rs"),
        include_str!("../src/profile/grpc/cluster.rs"),
        include_str!("../src/profile/grpc/endpoints.rs"),
        include_str!("../src/profile/grpc/filters.rs"),
        include_str!("../src/profile/grpc/ignored.rs"),
        include_str!("../src/profile/grpc/listener.rs"),
        include_str!("../src/profile/grpc/matches.rs"),
        include_str!("../src/profile/grpc/mod.rs"),
        include_str!("../src/profile/grpc/rbac.rs"),
        include_str!("../src/profile/grpc/route.rs"),
        include_str!("../src/profile/grpc/tls.rs"),
        include_str!("../src/profile/session.rs"),
    ];
    let words = sources.iter().flat_map(|source| source.split('"'));
    let is_row = |word: &&str| {
        word.strip_prefix(['B', 'C', 'D'])
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let rows: BTreeSet<&str> = words.filter(is_row).collect();
    let tested = cases().flat_map(|case| case.expected).map(|line| line.split(' ').next().unwrap());
    // Those of aggregates have tests of their own.
    let tested: BTreeSet<&str> = tested.chain(["B178", "B179"]).collect();
    assert_eq!(rows.difference(&tested).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert!(rows.len() > 80);
}

#[test]
fn good_configuration_has_no_findings() {
    for profile in [Profile::Envoy, Profile::Grpc] {
        assert_eq!(lint(&Case::new(profile, &[])), []);
    }
}

#[test]
fn what_no_client_of_the_profile_comes_to_is_not_judged() {
    // Bad for gRPC, but only an Envoy's listener leads there.
    let changes: &[(&'static str, &'static str)] = &[
        ("proxied.ROUTE.direct_response", r#"{"status": 200}"#),
        ("proxied.ROUTE.route", "null"),
        ("other", r#"{"@type": "TYPE:config.cluster.v3.Cluster", "name": "other", "type": "STATIC"}"#),
        ("routes.ROUTE.route.request_mirror_policies", r#"[{"cluster": "other"}]"#),
    ];
    let expected = "grpc-ignored-field";
    let found = lint(&Case::new(Profile::Grpc, changes));
    assert_eq!(found.iter().map(|one| one.code).collect::<Vec<_>>(), [expected]);
    // Bad for Envoy, but only a gRPC client's listener leads there.
    let changes: &[(&'static str, &'static str)] = &[(
        "routes.ROUTE.route.retry_policy",
        r#"{"retry_on": "internal", "retry_back_off": {"base_interval": "2s", "max_interval": "1s"}}"#,
    )];
    assert_eq!(lint(&Case::new(Profile::Envoy, changes)), []);
}

#[test]
fn it_is_told_whether_other_clients_come_to_the_resource() {
    let only_grpc: &[(&'static str, &'static str)] = &[("routes.ROUTE.route.timeout", r#""3s""#)];
    let both: &[(&'static str, &'static str)] = &[("cluster.lb_policy", r#""RANDOM""#)];
    for (changes, is_shared) in [(only_grpc, false), (both, true)] {
        let found = lint(&Case::new(Profile::Grpc, changes));
        assert_eq!(found.iter().map(|one| one.is_shared).collect::<Vec<_>>(), [is_shared], "{changes:?}");
    }
}

/// Aggregates `a0` to `an-1`, each with the next one, the last one with `c`; the route names `a0`.
fn chain(n: usize, last: &str) -> Vec<Resource> {
    let case = Case::new(Profile::Grpc, &[("routes.ROUTE.route.cluster", r#""a0""#)]);
    let mut resources = resources(&case);
    for index in 0..n {
        let next = if index + 1 == n { last.to_owned() } else { format!("a{}", index + 1) };
        let aggregate = json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": format!("a{index}"),
            "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": [next],
            }},
        });
        resources.push(CODEC.resource_from_json(&aggregate).unwrap());
    }
    resources
}

#[test]
fn aggregates_may_nest_to_sixteen_clusters_and_not_lead_back() {
    let found = |n: usize, last: &str| -> Vec<String> {
        let found = CODEC.lint_profile(chain(n, last).iter(), Profile::Grpc);
        found.iter().map(|one| format!("{} {} {}", one.row, one.resource.name, one.code)).collect()
    };
    assert_eq!(found(15, "c"), Vec::<String>::new());
    assert_eq!(found(16, "c"), ["B178 a0 grpc-aggregate-depth"]);
    assert_eq!(found(1, "a0"), ["B179 a0 grpc-aggregate-cycle"]);
    // The first one only leads to the cycle.
    let found = found(3, "a1");
    assert_eq!(found, ["B179 a1 grpc-aggregate-cycle", "B179 a2 grpc-aggregate-cycle"]);
    // Long chains exhaust no stack.
    assert!(CODEC.lint_profile(chain(20_000, "c").iter(), Profile::Grpc).len() == 1);
}

#[test]
fn findings_of_a_resource_are_bounded() {
    let bad = json!({"match": {"prefix": ""}, "route": {"weighted_clusters": {}}});
    // Only grpc-js reads it.
    let skipped = json!({
        "match": {"prefix": "", "query_parameters": [{"name": "q", "present_match": true}], "headers": [{"name": "x", "contains_match": "a"}]},
        "route": {"cluster": "one"},
    });
    for one in [bad, skipped] {
        let mut all = base();
        set(&mut all, "routes.virtual_hosts[0].routes", Value::Array(vec![one.clone(); 1000]));
        let resources: Vec<_> =
            all.as_object().unwrap().values().map(|json| CODEC.resource_from_json(json).unwrap()).collect();
        let found = CODEC.lint_profile(resources.iter(), Profile::Grpc);
        assert_eq!(found.len(), 100, "{one}");
        assert!(found.iter().any(|found| found.effect == Effect::Rejected), "{one}");
    }
}
