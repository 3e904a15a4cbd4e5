//! Tests of attaching routes to listeners, and of routes without a Gateway.

use super::support::*;
use crate::input::Options;
use crate::model::{AllowedNamespaces, Kind, LabelSelector, ListenerProtocol, RouteKind, Spec};

const ALL: &[&str] = &["*"];

#[test]
fn each_reason_of_a_parent_is_told() {
    let listeners = vec![
        http("web", 80, "foo.com"),
        http("any", 8080, ""),
        of_kinds(&["HTTPRoute"], http("http-only", 81, "")),
        from(AllowedNamespaces::None, http("closed", 82, "")),
        listener("udp", 83, ListenerProtocol::Other("UDP".into()), ""),
        http("twin-1", 84, "twin.com"),
        http("twin-2", 84, "twin.com"),
    ];
    let table = [
        ("default/edge", "", "Accepted=True/Accepted"),
        ("default/edge#web", "foo.com", "Accepted=True/Accepted"),
        ("default/edge:8080", "", "Accepted=True/Accepted"),
        ("default/edge#web:80", "", "Accepted=True/Accepted"),
        ("default/edge#none", "", "Accepted=False/NoMatchingParent"),
        ("default/edge:443", "", "Accepted=False/NoMatchingParent"),
        ("default/edge#web:8080", "", "Accepted=False/NoMatchingParent"),
        ("default/absent", "", "Accepted=False/NoMatchingParent"),
        ("ListenerSet=default/edge", "", "Accepted=False/UnsupportedValue"),
        ("default/edge#http-only", "", "Accepted=False/NotAllowedByListeners"),
        ("default/edge#closed", "", "Accepted=False/NotAllowedByListeners"),
        ("default/edge#udp", "", "Accepted=False/NotAllowedByListeners"),
        ("default/edge#web", "bar.com", "Accepted=False/NoMatchingListenerHostname"),
        ("default/edge#twin-1", "", "Accepted=False/NoReadyListeners"),
        ("default/edge#twin-1", "other.com", "Accepted=False/NoMatchingListenerHostname"),
    ];
    for (parent, hosts, expected) in table {
        let route = grpc("default/a", parent, hosts, rules(ALL));
        let outcome = planned(&documents([gateway("default/edge", listeners.clone()), route]));
        let conditions = outcome.of_parent("GRPCRoute default/a", 0);
        assert_eq!(conditions, format!("{expected} ResolvedRefs=True/ResolvedRefs"), "{parent} {hosts}");
        let reason = expected.rsplit('/').next().unwrap();
        let warned = outcome.diagnostics.iter().any(|line| line.contains(&format!("({reason})")));
        assert_eq!(warned, reason != "Accepted", "{parent} {hosts}: {:#?}", outcome.diagnostics);
        let [status] = outcome.status("GRPCRoute default/a").parents.as_slice() else { panic!() };
        assert!(parent.contains(status.parent.split_once(' ').unwrap().1), "{status:?}");
    }
}

#[test]
fn a_route_of_another_namespace_needs_a_listener_that_allows_it() {
    let labels = |values: &[(&str, &[&str], bool)], keys: &[(&str, bool)]| {
        let text = |text: &&str| (*text).to_owned();
        AllowedNamespaces::Selector(LabelSelector {
            values: values
                .iter()
                .map(|(key, values, is_in)| (text(key), values.iter().map(text).collect(), *is_in))
                .collect(),
            keys: keys.iter().map(|(key, is_there)| (text(key), *is_there)).collect(),
        })
    };
    let name = "kubernetes.io/metadata.name";
    let table = [
        (AllowedNamespaces::Same, false),
        (AllowedNamespaces::All, true),
        (AllowedNamespaces::None, false),
        (labels(&[("team", &["a", "b"], true)], &[]), true),
        (labels(&[("team", &["b"], true)], &[]), false),
        (labels(&[("team", &["a"], false)], &[]), false),
        (labels(&[("team", &["b"], false)], &[]), true),
        (labels(&[("absent", &["b"], false)], &[]), true),
        (labels(&[("absent", &["b"], true)], &[]), false),
        (labels(&[], &[("team", true)]), true),
        (labels(&[], &[("team", false)]), false),
        (labels(&[], &[("absent", false)]), true),
        (labels(&[("team", &["a"], true)], &[("absent", true)]), false),
        (labels(&[(name, &["other"], true)], &[]), true),
        (labels(&[], &[]), true),
    ];
    for (allowed, expected) in table {
        let listener = from(allowed.clone(), http("web", 80, ""));
        let all = [
            namespace("other", "team", "a"),
            gateway("default/edge", vec![listener]),
            grpc("other/a", "default/edge", "", rules(ALL)),
        ];
        let outcome = planned(&documents(all));
        let is_accepted = outcome.of_parent("GRPCRoute other/a", 0).starts_with("Accepted=True");
        assert_eq!(is_accepted, expected, "{allowed:?}");
        assert_eq!(outcome.attached("Gateway default/edge"), [usize::from(expected)]);
    }
}

/// Conformance: GatewayWithAttachedRoutes.
#[test]
fn only_accepted_routes_are_counted_and_each_once_for_a_listener() {
    let all = [
        gateway("default/edge", vec![http("one", 80, "one.com"), http("two", 80, "two.com")]),
        grpc("default/both", "default/edge", "", rules(ALL)),
        grpc("default/twice", "default/edge#one default/edge", "one.com", rules(ALL)),
        grpc("default/nowhere", "default/edge", "three.com", rules(ALL)),
    ];
    assert_eq!(planned(&documents(all)).attached("Gateway default/edge"), [2, 1]);
}

#[test]
fn a_route_goes_to_the_group_of_its_gateway() {
    let all = [
        ("edge", gateway("default/edge", vec![http("web", 80, "")])),
        ("routes", grpc("default/a", "default/edge", "", rules(ALL))),
    ];
    let outcome = planned(&in_groups(all));
    let names: Vec<_> = outcome.ports.keys().cloned().collect();
    assert_eq!(names, [("edge".to_owned(), "default/edge/80".to_owned())]);
}

#[test]
fn without_any_gateway_routes_attach_to_an_implicit_one_of_their_group() {
    let all = || {
        [
            ("default", grpc("default/none", "", "a.com", rules(ALL))),
            ("default", grpc("prod/absent", "prod/edge#https:443", "b.com", rules(ALL))),
            ("team", web("prod/other", "", "", rules(ALL))),
        ]
    };
    let outcome = planned(&in_groups(all()));
    let names: Vec<_> = outcome.ports.keys().map(|(group, name)| format!("{group} {name}")).collect();
    assert_eq!(names, ["default default/implicit/8080", "team default/implicit/8080"]);
    let hosts = outcome.hosts("default/implicit/8080");
    assert_eq!(hosts, ["a.com: none/0/0", "b.com: absent/0/0"]);
    assert_eq!(
        outcome.of_parent("GRPCRoute prod/absent", 0),
        "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs"
    );
    assert_eq!(outcome.status("GRPCRoute default/none").parents[0].parent, "Gateway default/implicit");
    assert_eq!(outcome.status("GRPCRoute prod/absent").parents[0].parent, "Gateway prod/edge");
    assert!(outcome.diagnostic("implicit-gateway").contains("default/implicit"));
    assert!(!outcome.conditions.objects.keys().any(|key| key.kind == Kind::Gateway));

    let none = planned_with(&in_groups(all()), &Options { implicit_port: None, ..Options::default() });
    assert!(none.ports.is_empty());
    assert_eq!(none.of_object("GRPCRoute default/none"), "Accepted=False/NoMatchingParent");
    assert_eq!(
        none.of_parent("GRPCRoute prod/absent", 0),
        "Accepted=False/NoMatchingParent ResolvedRefs=True/ResolvedRefs"
    );
}

#[test]
fn with_some_gateway_there_is_no_implicit_one() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/none", "", "", rules(ALL)),
        grpc("default/absent", "default/absent", "", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.ports.len(), 1);
    assert_eq!(outcome.of_object("GRPCRoute default/none"), "Accepted=False/NoMatchingParent");
    assert!(outcome.of_parent("GRPCRoute default/absent", 0).starts_with("Accepted=False/NoMatchingParent"));
}

#[test]
fn with_some_gateway_a_route_gets_the_implicit_one_too_if_it_asks_for_it() {
    let mut asking = grpc("default/asking", "", "", rules(ALL));
    if let Spec::Route(route) = &mut asking.spec {
        route.uses_default_gateways = true;
    }
    let all = || [asking.clone(), gateway("default/edge", vec![http("web", 80, "")])];
    let outcome = planned(&documents(all()));
    let names: Vec<&str> = outcome.ports.values().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["default/edge/80", "default/implicit/8080"]);
    assert!(outcome.of_parent("GRPCRoute default/asking", 0).starts_with("Accepted=True/Accepted"));
    let options = Options { implicit_port: None, ..Options::default() };
    let outcome = planned_with(&documents(all()), &options);
    assert_eq!(outcome.of_object("GRPCRoute default/asking"), "Accepted=False/NoMatchingParent");
}

#[test]
fn a_native_route_without_parents_takes_all_that_its_form_has() {
    let route = || route(RouteKind::Native, "default/a", "", "", rules(ALL));
    let gateways = [
        native_gateway("default/one", 80),
        native_gateway("default/two", 81),
        gateway("default/k8s", vec![]),
    ];
    let outcome = planned(&documents(gateways.into_iter().chain([route()])));
    let parents: Vec<&str> =
        outcome.status("Route default/a").parents.iter().map(|parent| parent.parent.as_str()).collect();
    assert_eq!(parents, ["Gateway default/one", "Gateway default/two"]);
    assert_eq!(outcome.hosts("default/one/80"), ["*: a/0/0"]);
    assert_eq!(outcome.hosts("default/two/81"), ["*: a/0/0"]);

    // Their default is a listener of their own, whatever other Gateways there are.
    let listener = http("web", 80, "");
    let outcome = planned(&documents([gateway("default/k8s", vec![listener]), route()]));
    assert_eq!(outcome.hosts("default/implicit/8080"), ["*: a/0/0"]);
    let taken = planned(&documents([gateway("default/k8s", vec![http("web", 8080, "")]), route()]));
    assert!(taken.of_parent("Route default/a", 0).starts_with("Accepted=False/NoReadyListeners"));
}

#[test]
fn the_gateways_of_another_controller_are_left_to_it() {
    let options = Options { controller_name: Some("xds-server.io/ours".into()), ..Options::default() };
    let all = |controller: &str| {
        documents([
            class("xds", controller),
            gateway("default/edge", vec![http("web", 80, "")]),
            grpc("default/a", "default/edge", "", rules(ALL)),
        ])
    };
    let ours = planned_with(&all("xds-server.io/ours"), &options);
    assert_eq!(ours.of_object("GatewayClass xds"), "Accepted=True/Accepted");
    assert_eq!(ours.attached("Gateway default/edge"), [1]);

    let foreign = planned_with(&all("example.com/theirs"), &options);
    assert!(foreign.conditions.objects.is_empty(), "{:?}", foreign.conditions);
    assert!(foreign.ports.is_empty());
    assert!(foreign.diagnostic("foreign-gateway").contains("example.com/theirs"));

    let unknown = planned_with(&documents([gateway("default/edge", vec![http("web", 80, "")])]), &options);
    assert!(unknown.diagnostic("foreign-gateway").contains("there is no GatewayClass xds"));
    assert!(unknown.ports.is_empty());

    // Unless a controller is named, every class is ours; a native listener has none.
    assert_eq!(planned(&all("example.com/theirs")).attached("Gateway default/edge"), [1]);
    assert_eq!(planned_with(&documents([native_gateway("default/edge", 80)]), &options).ports.len(), 1);
}

#[test]
fn the_kind_that_came_first_keeps_the_host() {
    let edge = || gateway("default/edge", vec![http("web", 80, "")]);
    let conflict = "Accepted=False/HostnameConflict ResolvedRefs=True/ResolvedRefs";
    let accepted = "Accepted=True/Accepted ResolvedRefs=True/ResolvedRefs";
    let route = |kind, name: &str, age: i64, hosts: &str| {
        let route = route(kind, name, "default/edge", hosts, rules(ALL));
        if age == 0 { route } else { created(age, route) }
    };
    // Name, age and hosts of a GRPCRoute, then of an HTTPRoute; which of them stays.
    let table = [
        ("default/a", 0, "x.com", "default/b", 0, "x.com", "grpc"),
        ("default/b", 0, "x.com", "default/a", 0, "x.com", "http"),
        ("default/b", 1, "x.com", "default/a", 2, "x.com", "grpc"),
        ("default/a", 2, "x.com", "default/b", 1, "x.com", "http"),
        ("default/a", 0, "x.com", "default/b", 9, "x.com", "http"),
        ("default/a", 0, "x.com", "default/a", 0, "x.com", "grpc"),
        ("default/a", 0, "*.x.com", "default/b", 0, "a.x.com", "grpc"),
        ("default/a", 0, "a.x.com", "default/b", 0, "*.x.com", "grpc"),
        ("default/a", 0, "", "default/b", 0, "x.com", "grpc"),
        ("default/a", 0, "x.com", "default/b", 0, "", "grpc"),
        ("default/a", 0, "x.com", "default/b", 0, "y.com", "both"),
        ("default/a", 0, "*.x.com", "default/b", 0, "x.com", "both"),
    ];
    for (grpc_name, grpc_age, grpc_hosts, http_name, http_age, http_hosts, stays) in table {
        let all = [
            edge(),
            route(RouteKind::Grpc, grpc_name, grpc_age, grpc_hosts),
            route(RouteKind::Http, http_name, http_age, http_hosts),
        ];
        let documents = documents(all);
        let outcome = planned(&documents);
        let case = format!("{grpc_name} {grpc_age} {grpc_hosts} {http_name} {http_age} {http_hosts}");
        let expected = |kind| if stays == kind || stays == "both" { accepted } else { conflict };
        assert_eq!(outcome.of_parent(&format!("GRPCRoute {grpc_name}"), 0), expected("grpc"), "{case}");
        assert_eq!(outcome.of_parent(&format!("HTTPRoute {http_name}"), 0), expected("http"), "{case}");
        if stays != "both" {
            let (winner, name) =
                if stays == "grpc" { ("GRPCRoute", grpc_name) } else { ("HTTPRoute", http_name) };
            let warning = outcome.diagnostic("hostname-conflict");
            assert!(warning.contains(&format!("{winner} {name}")), "{warning}");
        }
        let merged = Options { merges_route_kinds: true, ..Options::default() };
        let outcome = planned_with(&documents, &merged);
        assert_eq!(outcome.attached("Gateway default/edge"), [2], "{case}");
    }
}

#[test]
fn a_loser_makes_no_other_route_lose() {
    let parents = "default/edge";
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", parents, "a.com", rules(ALL)),
        web("default/b", parents, "a.com b.com", rules(ALL)),
        grpc("default/c", parents, "b.com", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.attached("Gateway default/edge"), [2]);
    assert!(outcome.of_parent("HTTPRoute default/b", 0).contains("HostnameConflict"));
}

#[test]
fn a_kind_loses_only_the_listener_on_which_it_meets_the_other() {
    let all = [
        gateway("default/edge", vec![http("one", 80, ""), http("two", 81, "")]),
        grpc("default/a", "default/edge#one", "", rules(ALL)),
        web("default/b", "default/edge", "", rules(ALL)),
        route(RouteKind::Native, "default/c", "default/edge#one", "", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.attached("Gateway default/edge"), [2, 1]);
    assert!(outcome.of_parent("HTTPRoute default/b", 0).starts_with("Accepted=True"));
    assert!(outcome.of_parent("Route default/c", 0).starts_with("Accepted=True"));
    assert!(outcome.diagnostic("hostname-conflict").contains("listener one has GRPCRoute default/a"));
}

#[test]
fn routes_of_the_mesh_are_not_looked_at() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", "Service=default/svc:80", "", rules(ALL)),
        grpc("default/b", "Service=default/svc:80 default/edge", "", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.attached("Gateway default/edge"), [1]);
    assert_eq!(outcome.hosts("default/edge/80"), ["*: b/0/0"]);
}
