//! TrafficSplits: the cases of the specification, and what it leaves open.

use std::sync::Arc;

use super::backends_support::{service, shown, slice};
use super::support::{created, document, documents, gateway, grpc, http, in_groups, reference, rule, web};
use crate::conditions::Conditions;
use crate::input::{Documents, Options};
use crate::model::{
    BackendRef, Document, GroupMatch, HeaderMatch, HeaderValue, HttpRouteGroup, Kind, Match, ObjectRef,
    PathMatch, Spec, SplitBackend, Spot, TrafficSplit,
};
use crate::plan::{Action, PlannedRoute};
use crate::plan::{BackendProtocol, Discovery, MeshService, Plan, Target};

/// A split; backends are written `service*weight`.
fn split(name: &str, root: &str, backends: &str, groups: &[&str]) -> Document {
    let backends = backends.split_whitespace().map(|text| {
        let (service, weight) = text.split_once('*').unwrap();
        let spot = Spot { path: format!("backend[{service}]").as_str().into(), ..Spot::default() };
        SplitBackend { spot, service: service.to_owned(), weight: weight.parse().unwrap() }
    });
    let spec = TrafficSplit {
        service: root.to_owned(),
        service_spot: Spot::default(),
        backends: backends.collect(),
        matches: groups.iter().map(|name| (Spot::default(), (*name).to_owned())).collect(),
    };
    document(Kind::TrafficSplit, name, Spec::TrafficSplit(spec))
}

/// A match of a group; headers are written `name=regex` and separated by blanks, so are methods.
fn group_match(path: &str, methods: &str, headers: &[(&str, &str)]) -> GroupMatch {
    let headers = headers.iter().map(|(name, value)| HeaderMatch {
        spot: Spot::default(),
        name: (*name).to_owned(),
        value: HeaderValue::Regex((*value).to_owned()),
    });
    GroupMatch {
        spot: Spot::default(),
        name: "match".to_owned(),
        path_regex: (!path.is_empty()).then(|| path.to_owned()),
        methods: methods.split_whitespace().map(str::to_owned).collect(),
        headers: headers.collect(),
    }
}

fn group(name: &str, matches: Vec<GroupMatch>) -> Document {
    document(Kind::HttpRouteGroup, name, Spec::HttpRouteGroup(HttpRouteGroup { matches }))
}

struct Outcome {
    plan: Plan,
    conditions: Conditions,
    diagnostics: Vec<String>,
    /// How many ports of Services Envoys are served.
    n_for_envoys: usize,
}

fn outcome(list: Vec<Document>) -> Outcome {
    outcome_with(&documents(list), &Options::default())
}

fn outcome_with(documents: &Documents, options: &Options) -> Outcome {
    let mut planned = crate::memo::plan(documents, options);
    let group = planned.groups.remove(&xds_cache::GroupName::default_group()).unwrap_or_default();
    let diagnostics = planned.diagnostics.iter().filter(|one| one.code != "no-endpoints");
    Outcome {
        n_for_envoys: group.services_for_envoys().count(),
        plan: group.plan,
        diagnostics: diagnostics.map(|one| format!("{}: {}", one.code, one.message)).collect(),
        conditions: planned.conditions,
    }
}

impl Outcome {
    fn service(&self, name: &str, port: u16) -> &MeshService {
        let mut services = self.plan.services.iter();
        services.find(|one| one.name == name && one.port == port).unwrap()
    }

    /// The routes of a port: `match -> action`.
    fn routes(&self, name: &str, port: u16) -> Vec<String> {
        let show =
            |route: &PlannedRoute| format!("{} -> {}", shown_match(&route.matches), shown(&route.action));
        self.service(name, port).routes.iter().map(show).collect()
    }

    /// The conditions of a split, as `Type=Status/Reason`.
    fn status(&self, name: &str) -> String {
        let (_, status) = self
            .conditions
            .objects
            .iter()
            .find(|(key, _)| key.to_string() == format!("TrafficSplit {name}"))
            .unwrap();
        let show = |one: &crate::conditions::Condition| format!("{}={}/{}", one.kind, one.status, one.reason);
        status.conditions.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    fn has(&self, code: &str, part: &str) -> bool {
        self.diagnostics.iter().any(|line| line.starts_with(&format!("{code}: ")) && line.contains(part))
    }
}

fn shown_match(one: &Match) -> String {
    let path = if let PathMatch::Regex(regex) = &one.path {
        format!("~{regex}")
    } else {
        assert_eq!(one.path, PathMatch::Any);
        "/".to_owned()
    };
    let headers = one.headers.iter().map(|header| match &header.value {
        HeaderValue::Exact(value) => format!(" {}={value}", header.name),
        HeaderValue::Regex(value) => format!(" {}~{value}", header.name),
        HeaderValue::Present => format!(" {}", header.name),
    });
    format!("{path}{}", headers.collect::<String>())
}

const ACCEPTED: &str = "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs";

fn website() -> Vec<Document> {
    vec![
        service("d/website", "http:80"),
        service("d/website-v1", "http:80"),
        service("d/website-v2", "http:80"),
    ]
}

fn with(mut list: Vec<Document>, more: impl IntoIterator<Item = Document>) -> Vec<Document> {
    list.extend(more);
    list
}

/// Case 1.
#[test]
fn a_canary_splits_by_weight() {
    let found = outcome(with(website(), [split("d/canary", "website", "website-v1*90 website-v2*10", &[])]));
    assert_eq!(found.routes("website", 80), ["/ -> d/website-v1/80*90 d/website-v2/80*10"]);
    assert_eq!(found.status("d/canary"), ACCEPTED);
    assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    let service = found.service("website", 80);
    let hosts = ["website", "website.d", "website.d.svc", "website.d.svc.cluster.local"];
    assert_eq!(service.hosts, hosts);
    assert_eq!(service.routes[0].id.to_string(), "TrafficSplit/d/canary/0/0");
    let clusters: Vec<&str> = found.plan.clusters.keys().map(String::as_str).collect();
    assert_eq!(clusters, ["d/website-v1/80", "d/website-v2/80"]);
}

/// Example 2.
#[test]
fn what_does_not_match_goes_to_the_root() {
    let firefox = group("d/ab-test", vec![group_match("", "", &[("user-agent", ".*Firefox.*")])]);
    let found = outcome(with(
        website(),
        [split("d/ab-test", "website", "website-v1*0 website-v2*100", &["ab-test"]), firefox],
    ));
    let expected =
        ["/ user-agent~.*Firefox.* -> d/website-v1/80*0 d/website-v2/80*100", "/ -> d/website/80*1"];
    assert_eq!(found.routes("website", 80), expected);
    assert_eq!(found.service("website", 80).routes[1].id.to_string(), "TrafficSplit/d/ab-test/root/0");
}

fn birds() -> Vec<Document> {
    vec![
        service("d/birds", "grpc:8080 rest:9090"),
        service("d/blue-birds", "grpc:8080 rest:9090"),
        service("d/green-birds", "grpc:8080>8081 rest:9090"),
        slice("d/green-1", "green-birds", "grpc:8081 rest:9090", "10.0.0.1"),
        split("d/birds", "birds", "blue-birds*1 green-birds*1", &[]),
    ]
}

/// Example 3.
#[test]
fn every_port_is_split_and_target_ports_are_the_backends() {
    let found = outcome(birds());
    assert_eq!(found.routes("birds", 8080), ["/ -> d/blue-birds/8080*1 d/green-birds/8080*1"]);
    assert_eq!(found.routes("birds", 9090), ["/ -> d/blue-birds/9090*1 d/green-birds/9090*1"]);
    let endpoint = &found.plan.assignments["d/green-birds/8080"].localities[0].endpoints[0];
    assert_eq!(endpoint.port, 8081);
    let (grpc, rest) = (&found.service("birds", 8080).routes[0], &found.service("birds", 9090).routes[0]);
    assert!(grpc.is_grpc && !rest.is_grpc, "the port's name says it");
    assert_eq!(found.plan.clusters["d/blue-birds/8080"].protocols, [BackendProtocol::Http2]);
    assert_eq!(found.plan.clusters["d/blue-birds/9090"].protocols, [BackendProtocol::Http1]);
}

/// Example 4.
#[test]
fn ports_are_compared_by_number_and_what_does_not_fit_is_left_out() {
    let found = outcome(vec![
        service("d/birds", "grpc:8080"),
        service("d/blue-birds", "grpc:1024"),
        service("d/green-birds", "other:8080"),
        split("d/birds", "birds", "blue-birds*9 green-birds*1", &[]),
    ]);
    assert_eq!(found.routes("birds", 8080), ["/ -> d/green-birds/8080*1"]);
    assert!(found.has("split-port-mismatch", "the Service blue-birds has no port 8080, so it gets no share"));
    assert_eq!(found.status("d/birds"), ACCEPTED);
}

fn foobar(services: &[&str], backends: &str) -> Outcome {
    let services = services.iter().map(|name| service(&format!("d/{name}"), "x:80"));
    outcome(services.chain([split("d/rollout", "foobar", backends, &[])]).collect())
}

/// Examples 5, 6 and 7.
#[test]
fn the_workflow_of_the_specification() {
    let found = foobar(&["foobar", "foobar-v1"], "foobar-v1*100 foobar-v2*0");
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar-v1/80*100"]);
    assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    assert_eq!(found.status("d/rollout"), ACCEPTED);
    let both = ["foobar", "foobar-v1", "foobar-v2"];
    let found = foobar(&both, "foobar-v1*1000 foobar-v2*500");
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar-v1/80*1000 d/foobar-v2/80*500"]);
    let found = foobar(&["foobar", "foobar-v2"], "foobar-v2*1");
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar-v2/80*1"]);
}

/// Example 8.
#[test]
fn without_the_split_a_service_of_the_mesh_is_itself_again() {
    let mut root = service("d/foobar", "x:80");
    let found = outcome(vec![root.clone()]);
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar/80*1"]);
    assert_eq!(found.n_for_envoys, 0);
    Arc::make_mut(&mut root.meta).annotations = [("xds-server.io/mesh".to_owned(), "true".to_owned())].into();
    let found = outcome(vec![root.clone()]);
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar/80*1"]);
    assert_eq!(found.n_for_envoys, 1);
    assert_eq!(found.service("foobar", 80).routes[0].id.to_string(), "Service/d/foobar/0/0");
    let found = outcome(vec![root, service("d/v1", "x:80"), split("d/s", "foobar", "v1*1", &[])]);
    assert_eq!(found.routes("foobar", 80), ["/ -> d/v1/80*1"]);
}

/// Example 9: a split may name its own root, because a known controller writes such splits.
#[test]
fn a_split_that_names_its_root_takes_the_roots_own_endpoints() {
    let found = foobar(&["foobar", "foobar-next"], "foobar-next*100 foobar.d.svc.cluster.local*900");
    assert_eq!(found.routes("foobar", 80), ["/ -> d/foobar-next/80*100 d/foobar/80*900"]);
    assert!(found.has("self-referential-split", "the root itself"));
    assert_eq!(found.status("d/rollout"), ACCEPTED);
}

/// Cases 10 and 11: what was written in thousandths stays a relation.
#[test]
fn only_the_relation_of_weights_counts() {
    let table = [
        ("web-next*100 web-current*900", "/ -> d/web-next/80*100 d/web-current/80*900"),
        ("web-next*10 web-current*100 web*1500", "/ -> d/web-next/80*10 d/web-current/80*100 d/web/80*1500"),
        ("web-next*1000 web-current*0", "/ -> d/web-next/80*1000 d/web-current/80*0"),
        ("web-next*1000 web-current*500", "/ -> d/web-next/80*1000 d/web-current/80*500"),
        ("web-next*9000000000000 web-current*3000000000000", "/ -> d/web-next/80*3 d/web-current/80*1"),
    ];
    let services = || ["web", "web-next", "web-current"].map(|name| service(&format!("d/{name}"), "x:80"));
    for (backends, expected) in table {
        let found = outcome(services().into_iter().chain([split("d/s", "web", backends, &[])]).collect());
        assert_eq!(found.routes("web", 80), [expected], "{backends}");
    }
}

/// Examples 12 to 16.
#[test]
fn groups_of_matches_are_routes() {
    let insider = r"^(.*?;)?(type=insider)(;.*)?$";
    let groups = || {
        [
            group("d/the-routes", vec![group_match("/metrics", "GET", &[]), group_match("/ping", "", &[])]),
            group("d/everything", vec![group_match(".*", "", &[])]),
            group(
                "d/android",
                vec![group_match("", "", &[("user-agent", ".*Android.*"), ("cookie", insider)])],
            ),
            group("d/firefox", vec![group_match("", "", &[("user-agent", ".*Firefox.*")])]),
            group("d/iphone", vec![group_match("/api/.*", "GET HEAD", &[("user-agent", ".*iPhone.*")])]),
            group("d/empty", vec![]),
        ]
    };
    let android = format!("/ user-agent~.*Android.* cookie~{insider}");
    let table: [(&[&str], &[&str]); 7] = [
        (&["the-routes"], &["~(?:/metrics).* :method=GET", "~(?:/ping).*"]),
        (&["everything"], &["/"]),
        (&["android"], &[&android]),
        (&["android", "firefox"], &[&android, "/ user-agent~.*Firefox.*"]),
        (&["iphone"], &["~(?:/api/.*).* user-agent~.*iPhone.* :method~GET|HEAD"]),
        (&["empty"], &[]),
        (&["missing", "firefox"], &["/ user-agent~.*Firefox.*"]),
    ];
    for (names, expected) in table {
        let split = split("d/s", "website", "website-v2*1", names);
        let found = outcome(with(website(), groups().into_iter().chain([split])));
        let expected = expected.iter().map(|one| format!("{one} -> d/website-v2/80*1"));
        let expected: Vec<String> = expected.chain(["/ -> d/website/80*1".to_owned()]).collect();
        assert_eq!(found.routes("website", 80), expected, "{names:?}");
        let is_missing = names.contains(&"missing");
        assert_eq!(found.has("route-group-not-found", "it matches nothing"), is_missing, "{names:?}");
        let reason = if is_missing { "False/HTTPRouteGroupNotFound" } else { "True/ResolvedRefs" };
        assert_eq!(found.status("d/s"), format!("Accepted=True/Accepted ResolvedRefs={reason}"));
    }
    let split = split("d/s", "website", "website-v2*1", &["the-routes"]);
    let documents = documents(with(website(), groups().into_iter().chain([split])));
    let options = Options { matches_whole_paths: true, ..Options::default() };
    let found = outcome_with(&documents, &options);
    assert!(found.routes("website", 80)[0].starts_with("~/metrics :method=GET ->"));
}

#[test]
fn what_is_missing_or_not_of_the_namespace_is_excluded_and_told() {
    let list = with(website(), [service("e/far", "http:80")]);
    let found = outcome(with(
        list,
        [split(
            "d/s",
            "website.d",
            "website-v1.d.svc*1 none*5 far.e*7 website-v2*2 website-v2.d*3 e/far*1",
            &[],
        )],
    ));
    assert_eq!(found.routes("website", 80), ["/ -> d/website-v1/80*1 d/website-v2/80*5"]);
    assert!(found.has("backend-not-found", "there is no Service d/none, so it gets no share of the traffic"));
    assert!(found.has("ref-not-permitted", "\"far.e\" is not a Service of the namespace d"));
    assert!(found.has("ref-not-permitted", "\"e/far\" is not a Service of the namespace d"));
    assert!(found.has("duplicate-backend", "website-v2 is named twice"));
    assert!(found.status("d/s").starts_with("Accepted=True/Accepted ResolvedRefs=False/"));
}

/// Never a hole.
#[test]
fn without_an_eligible_backend_requests_go_to_the_root() {
    for backends in ["website-v1*0 website-v2*0", "none*5", "website-v1*0 none*5"] {
        let found = outcome(with(website(), [split("d/s", "website", backends, &[])]));
        assert_eq!(found.routes("website", 80), ["/ -> d/website/80*1"], "{backends}");
        assert!(found.status("d/s").starts_with("Accepted=False/NoEligibleBackends"), "{backends}");
        assert!(found.has("no-eligible-backends", "requests go to the root itself"));
    }
    let list = vec![
        service("d/website", "http:80 more:81"),
        service("d/website-v1", "http:80"),
        split("d/s", "website", "website-v1*1", &[]),
    ];
    let found = outcome(list);
    assert_eq!(found.routes("website", 80), ["/ -> d/website-v1/80*1"]);
    assert_eq!(found.routes("website", 81), ["/ -> d/website/81*1"]);
    assert_eq!(found.status("d/s"), ACCEPTED);
}

#[test]
fn a_root_that_is_not_there_or_elsewhere_splits_nothing() {
    for (root, reason, code) in [
        ("none", "RootServiceNotFound", "root-service-not-found"),
        ("website.e", "RefNotPermitted", "ref-not-permitted"),
        ("website.d.example.com", "RefNotPermitted", "ref-not-permitted"),
        ("website.example.com", "RefNotPermitted", "ref-not-permitted"),
    ] {
        let found = outcome(with(website(), [split("d/s", root, "website-v1*1", &[])]));
        assert!(found.plan.services.iter().all(|service| service.is_implicit), "{root}");
        assert!(found.status("d/s").starts_with(&format!("Accepted=False/{reason} ")), "{root}");
        assert!(found.has(code, ""), "{root}: {:?}", found.diagnostics);
    }
    for root in [
        "website",
        "website.d",
        "website.d.svc",
        "website.d.svc.cluster.local",
        "website.d.svc.cluster.local.",
    ] {
        let found = outcome(with(website(), [split("d/s", root, "website-v1*1", &[])]));
        assert_eq!(found.status("d/s"), ACCEPTED, "{root}");
    }
}

#[test]
fn splits_do_not_nest() {
    let found = outcome(with(
        website(),
        [
            split("d/outer", "website", "website-v1*1", &[]),
            split("d/inner", "website-v1", "website-v2*1", &[]),
        ],
    ));
    assert_eq!(found.routes("website", 80), ["/ -> d/website-v1/80*1"]);
    assert_eq!(found.routes("website-v1", 80), ["/ -> d/website-v2/80*1"]);
    assert!(found.has("nested-split", "split by TrafficSplit d/inner"));
}

#[test]
fn of_two_splits_of_a_root_the_older_holds() {
    let a = || split("d/a", "website", "website-v1*1", &[]);
    let b = || split("d/b", "website.d", "website-v2*1", &["x"]);
    for (list, winner, loser) in [
        (vec![a(), b()], "d/a", "d/b"),
        (vec![created(200, a()), created(100, b())], "d/b", "d/a"),
        (vec![a(), created(100, b())], "d/b", "d/a"),
    ] {
        let found = outcome(with(website(), list));
        assert!(found.status(winner).starts_with("Accepted=True/Accepted"));
        assert!(found.status(loser).starts_with("Accepted=False/Conflicted"));
        assert!(found.has("mesh-conflict", &format!("TrafficSplit {winner} splits the same Service")));
    }
    let list = website().into_iter().map(|one| ("default", one));
    let documents = in_groups(list.chain([("default", a()), ("edge", b())]));
    let found = outcome_with(&documents, &Options::default());
    assert!(
        found.status("d/b").starts_with("Accepted=True/Accepted"),
        "clients of another group are none of its business"
    );
}

#[test]
fn a_route_of_the_same_service_has_precedence() {
    let root = || service("d/website", "http:80 more:81");
    let v1 = || service("d/v1", "http:80 more:81");
    let split = || split("d/s", "website", "v1*1", &[]);
    let on = |parent: &str| grpc("d/r", parent, "", vec![rule(vec![])]);
    let found = outcome(vec![root(), v1(), split(), on("Service=d/website")]);
    assert!(found.routes("website", 80).is_empty() && found.routes("website", 81).is_empty());
    assert!(found.status("d/s").starts_with("Accepted=False/Conflicted"));
    assert!(found.has("mesh-conflict", "GRPCRoute d/r already has the port 80 of the Service d/website"));
    let found = outcome(vec![root(), v1(), split(), on("Service=d/website:81")]);
    assert_eq!(found.routes("website", 80), ["/ -> d/v1/80*1"]);
    assert!(found.status("d/s").starts_with("Accepted=True/Accepted"), "one of both ports is its own");
    assert!(found.has("mesh-conflict", "the port 81"));
}

#[test]
fn every_target_has_a_cluster() {
    let found = outcome(birds());
    for service in &found.plan.services {
        for route in &service.routes {
            let Action::Forward(targets) = &route.action else { panic!() };
            for target in targets {
                let Target::Backend(backend) = &target.target else { panic!() };
                let Discovery::Eds { assignment } = &found.plan.clusters[&backend.name].discovery else {
                    panic!()
                };
                assert!(found.plan.assignments.contains_key(assignment));
            }
        }
    }
}

#[test]
fn envoys_go_on_listening_for_what_was_split_once() {
    let once = |annotation: Option<&str>| {
        let mut documents = documents(website());
        let website = documents.clone();
        for (key, placed) in website.iter().filter(|(key, _)| &*key.name == "website") {
            let mut placed = crate::Placed { was_split: true, ..placed.clone() };
            let annotations = annotation.map(|said| ("xds-server.io/mesh".to_owned(), said.to_owned()));
            Arc::make_mut(&mut Arc::make_mut(&mut placed.document).meta).annotations =
                annotations.into_iter().collect();
            documents.insert(key.clone(), placed);
        }
        outcome_with(&documents, &Options::default())
    };
    for (annotation, is_implicit, is_told) in
        [(None, false, true), (Some("true"), false, false), (Some("false"), true, false)]
    {
        let found = once(annotation);
        assert_eq!(found.routes("website", 80), ["/ -> d/website/80*1"], "{annotation:?}");
        assert_eq!(found.service("website", 80).is_implicit, is_implicit, "{annotation:?}");
        assert_eq!(found.has("once-split", "TrafficSplit"), is_told, "{annotation:?}");
        assert!(found.service("website-v1", 80).is_implicit);
    }
}

#[test]
fn a_split_says_that_it_does_not_count_for_gateways() {
    let behind = |parents: &str, backend: &str| {
        let mut rule = rule(vec![Match::of_path(&Spot::default(), PathMatch::Any)]);
        rule.backends = vec![BackendRef {
            object: ObjectRef { port: Some(80), ..reference(Kind::Service, backend) },
            weight: 1,
            filters: Vec::new(),
        }];
        let split = split("d/canary", "website", "website-v1*90 website-v2*10", &[]);
        let gateway = gateway("d/edge", vec![http("web", 8080, "")]);
        outcome(with(website(), [split, gateway, web("d/route", parents, "", vec![rule])]))
    };
    let is_told = |found: &Outcome| found.has("split-not-counted", "TrafficSplit d/canary does not apply");
    assert!(is_told(&behind("d/edge", "d/website")));
    assert!(!is_told(&behind("d/edge", "d/website-v1")), "it is no root");
    assert!(!is_told(&behind("Service=d/website-v2", "d/website")), "a route of the mesh says what it wants");
}
