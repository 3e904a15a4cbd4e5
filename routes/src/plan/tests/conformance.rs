//! The demands of the Gateway API's conformance tests on hosts, listeners and the order of routes.
//!
//! Requests are told by the names of routes: their backends are another matter.

use super::support::*;
use crate::model::{AllowedNamespaces, Document, LabelSelector};

const ALL: &[&str] = &["*"];

/// Asks for each of `chain host path headers`, and expects the route behind it; nothing means "not found".
fn ask(outcome: &Outcome, table: &[(&str, &str, &str, &str, &str)]) {
    for (chain, host, path, headers, expected) in table {
        let answer = outcome.answer(chain, host, path, headers);
        assert_eq!(answer, *expected, "{chain} {host} {path} {headers}");
    }
}

#[test]
fn grpc_exact_method_matching() {
    let all = [
        gateway("default/edge", vec![http("http", 80, "")]),
        grpc("default/r", "default/edge", "", rules(&["rpc:S/Echo", "rpc:S/EchoTwo"])),
    ];
    let port = "default/edge/80";
    ask(
        &planned(&documents(all)),
        &[
            (port, "a", "/S/Echo", "", "r/0/0"),
            (port, "a", "/S/EchoTwo", "", "r/1/0"),
            (port, "a", "/S/EchoThree", "", ""),
        ],
    );
}

#[test]
fn grpc_header_matching() {
    let rules = vec![
        rule(vec![one("version=one")]),
        rule(vec![one("version=two")]),
        rule(vec![one("version=two color=orange")]),
        rule(vec![one("color=blue"), one("color=green")]),
        rule(vec![one("color=red"), one("color=yellow")]),
    ];
    let all =
        [gateway("default/edge", vec![http("http", 80, "")]), grpc("default/r", "default/edge", "", rules)];
    let outcome = planned(&documents(all));
    let table = [
        ("version=one", "r/0/0"),
        ("version=two", "r/1/0"),
        ("version=two color=orange", "r/2/0"),
        ("version=two color=blue", "r/1/0"),
        ("color=orange", ""),
        ("some-other-header=one", ""),
        ("color=blue", "r/3/0"),
        ("color=green", "r/3/1"),
        ("color=red", "r/4/0"),
        ("color=yellow", "r/4/1"),
        ("color=purple", ""),
    ];
    for (headers, expected) in table {
        assert_eq!(outcome.answer("default/edge/80", "a", "/S/Echo", headers), expected, "{headers}");
    }
}

#[test]
fn listener_hostname_matching() {
    for kind in [grpc, web] {
        let listeners = vec![
            http("listener-1", 80, "bar.com"),
            http("listener-2", 80, "foo.bar.com"),
            http("listener-3", 80, "*.bar.com"),
            http("listener-4", 80, "*.foo.com"),
        ];
        let all = [
            gateway("default/gw", listeners),
            kind("default/v1", "default/gw#listener-1", "", rules(ALL)),
            kind("default/v2", "default/gw#listener-2", "", rules(ALL)),
            kind("default/v3", "default/gw#listener-3 default/gw#listener-4", "", rules(ALL)),
        ];
        let outcome = planned(&documents(all));
        let table = [
            ("bar.com", "v1/0/0"),
            ("foo.bar.com", "v2/0/0"),
            ("baz.bar.com", "v3/0/0"),
            ("boo.bar.com", "v3/0/0"),
            ("multiple.prefixes.bar.com", "v3/0/0"),
            ("multiple.prefixes.foo.com", "v3/0/0"),
            ("foo.com", ""),
            ("no.matching.host", ""),
        ];
        for (host, expected) in table {
            assert_eq!(outcome.answer("default/gw/80", host, "/S/Echo", ""), expected, "{host}");
        }
        assert_eq!(outcome.attached("Gateway default/gw"), [1, 1, 1, 1]);
    }
}

#[test]
fn hostname_intersection() {
    let listeners = vec![
        http("l1", 80, "very.specific.com"),
        http("l2", 80, "*.wildcard.io"),
        http("l3", 80, "*.anotherwildcard.io"),
    ];
    let route = |name: &str, hosts: &str, path: &str| {
        web(&format!("default/{name}"), "default/gw1", hosts, rules(&[path]))
    };
    let all = [
        gateway_at("default/gw1", Some("127.0.0.1"), listeners),
        gateway_at("default/gw2", Some("127.0.0.2"), vec![http("l1", 80, "")]),
        route("r1", "non.matching.com *.nonmatchingwildcard.io very.specific.com", "^/s1"),
        route(
            "r2",
            "non.matching.com wildcard.io foo.wildcard.io bar.wildcard.io foo.bar.wildcard.io",
            "^/s2",
        ),
        route("r3", "non.matching.com *.specific.com", "^/s3"),
        route("r4", "*.anotherwildcard.io", "^/s4"),
        route("r5", "specific.but.wrong.com wildcard.io", "^/s5"),
        web("default/r6", "default/gw2", "first.com sub.first.com second.com sub.second.com", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert!(
        outcome.of_parent("HTTPRoute default/r5", 0).starts_with("Accepted=False/NoMatchingListenerHostname")
    );
    assert_eq!(outcome.attached("Gateway default/gw1"), [2, 1, 1]);
    assert_eq!(outcome.attached("Gateway default/gw2"), [1]);
    let (one, two) = ("default/gw1/80", "default/gw2/80");
    let mut table = vec![
        (one, "very.specific.com", "/s1", "", "r1/0/0"),
        (one, "very.specific.com:1234", "/s1", "", "r1/0/0"),
        (one, "non.matching.com", "/s1", "", ""),
        (one, "foo.nonmatchingwildcard.io", "/s1", "", ""),
        (one, "foo.wildcard.io", "/s2", "", "r2/0/0"),
        (one, "bar.wildcard.io", "/s2", "", "r2/0/0"),
        (one, "foo.bar.wildcard.io", "/s2", "", "r2/0/0"),
        (one, "non.matching.com", "/s2", "", ""),
        (one, "wildcard.io", "/s2", "", ""),
        (one, "very.specific.com", "/s3", "", "r3/0/0"),
        (one, "non.matching.com", "/s3", "", ""),
        (one, "foo.specific.com", "/s3", "", ""),
        (one, "foo.anotherwildcard.io", "/s4", "", "r4/0/0"),
        (one, "bar.anotherwildcard.io", "/s4", "", "r4/0/0"),
        (one, "foo.bar.anotherwildcard.io", "/s4", "", "r4/0/0"),
        (one, "anotherwildcard.io", "/s4", "", ""),
        (one, "very.specific.com", "/s2", "", ""),
        (one, "foo.wildcard.io", "/s1", "", ""),
        (two, "first.com", "/", "", "r6/0/0"),
        (two, "sub.first.com", "/", "", "r6/0/0"),
        (two, "second.com", "/", "", "r6/0/0"),
        (two, "sub.second.com", "/", "", "r6/0/0"),
        (two, "third.com", "/", "", ""),
    ];
    for host in ["specific.but.wrong.com", "wildcard.io", "very.specific.com", "foo.wildcard.io"] {
        table.push((one, host, "/s5", "", ""));
    }
    ask(&outcome, &table);
}

#[test]
fn listener_port_matching() {
    let listeners = vec![
        http("listener-1", 80, "foo.com"),
        http("listener-2", 8080, "foo.com"),
        http("listener-3", 8080, "bar.com"),
        http("listener-4", 8090, "foo.com"),
        http("listener-5", 8090, "bar.com"),
    ];
    let all = [
        gateway("default/gw", listeners),
        web("default/v1", "default/gw:80", "", rules(ALL)),
        web("default/v2", "default/gw:8080", "", rules(ALL)),
        web("default/v3", "default/gw#listener-4:8090", "", rules(ALL)),
    ];
    ask(
        &planned(&documents(all)),
        &[
            ("default/gw/80", "foo.com", "/", "", "v1/0/0"),
            ("default/gw/8080", "foo.com", "/", "", "v2/0/0"),
            ("default/gw/8080", "bar.com", "/", "", "v2/0/0"),
            ("default/gw/8090", "foo.com", "/", "", "v3/0/0"),
            ("default/gw/8090", "bar.com", "/", "", ""),
        ],
    );
}

#[test]
fn matching_across_routes() {
    let part = |name: &str, hosts: &str, matches: [&str; 2]| {
        web(name, "default/edge", hosts, vec![rule(matches.map(one).to_vec())])
    };
    let all = [
        gateway("default/edge", vec![http("http", 80, "")]),
        part("default/part1", "example.com example.net", ["*", "version=one"]),
        part("default/part2", "example.com", ["^/v2", "version=two"]),
    ];
    let port = "default/edge/80";
    ask(
        &planned(&documents(all)),
        &[
            (port, "example.com", "/", "", "part1/0/0"),
            (port, "example.com", "/example", "", "part1/0/0"),
            (port, "example.net", "/example", "", "part1/0/0"),
            (port, "example.com", "/example", "version=one", "part1/0/1"),
            (port, "example.com", "/v2", "", "part2/0/0"),
            (port, "example.net", "/v2", "", "part1/0/0"),
            (port, "example.com", "/v2/example", "", "part2/0/0"),
            (port, "example.com", "/", "version=two", "part2/0/1"),
        ],
    );
}

#[test]
fn path_match_order() {
    let paths =
        ["=/match", "=/match/exact", "=/match/exact/one", "^/match", "^/match/prefix", "^/match/prefix/one"];
    let all = [
        gateway("default/edge", vec![http("http", 80, "")]),
        web("default/r", "default/edge", "", rules(&paths)),
    ];
    let port = "default/edge/80";
    ask(
        &planned(&documents(all)),
        &[
            (port, "a", "/match/exact/one", "", "r/2/0"),
            (port, "a", "/match/exact", "", "r/1/0"),
            (port, "a", "/match", "", "r/0/0"),
            (port, "a", "/match/prefix/one/any", "", "r/5/0"),
            (port, "a", "/match/prefix/any", "", "r/4/0"),
            (port, "a", "/match/any", "", "r/3/0"),
            (port, "a", "/matchless", "", ""),
        ],
    );
}

#[test]
fn multiple_gateways() {
    let all = [
        gateway_at("default/same", Some("127.0.0.1"), vec![http("http", 80, "")]),
        gateway_at("default/all", Some("127.0.0.2"), vec![http("http", 80, "")]),
        web("default/shared", "default/same default/all", "", rules(&["^/shared"])),
        web("default/one", "default/same", "", rules(ALL)),
        web("default/two", "default/all", "", rules(ALL)),
    ];
    ask(
        &planned(&documents(all)),
        &[
            ("default/same/80", "a", "/shared", "", "shared/0/0"),
            ("default/all/80", "a", "/shared", "", "shared/0/0"),
            ("default/same/80", "a", "/", "", "one/0/0"),
            ("default/all/80", "a", "/", "", "two/0/0"),
        ],
    );
}

#[test]
fn a_route_of_a_selected_namespace() {
    let selector = LabelSelector {
        values: vec![("gateway-conformance".into(), vec!["backend".into()], true)],
        keys: Vec::new(),
    };
    let listener = from(AllowedNamespaces::Selector(selector), http("http", 80, ""));
    let all = [
        namespace("web-backend", "gateway-conformance", "backend"),
        gateway("infra/backend-namespaces", vec![listener]),
        web("web-backend/r", "infra/backend-namespaces", "", rules(ALL)),
        web("elsewhere/r", "infra/backend-namespaces", "", rules(&["^/x"])),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.hosts("infra/backend-namespaces/80"), ["*: r/0/0"]);
    let refused = outcome.of_parent("HTTPRoute elsewhere/r", 0);
    assert!(refused.starts_with("Accepted=False/NotAllowedByListeners"), "{refused}");
    assert_eq!(outcome.attached("Gateway infra/backend-namespaces"), [1]);
}

#[test]
fn http_listener_isolation() {
    let listeners = || {
        vec![
            http("empty-hostname", 80, ""),
            http("wildcard-example-com", 80, "*.example.com"),
            http("wildcard-foo-example-com", 80, "*.foo.example.com"),
            http("abc-foo-example-com", 80, "abc.foo.example.com"),
        ]
    };
    let names = ["empty-hostname", "wildcard-example-com", "wildcard-foo-example-com", "abc-foo-example-com"];
    let requests = ["bar.com", "bar.example.com", "bar.foo.example.com", "abc.foo.example.com"];
    for hosts in ["", "bar.com *.example.com *.foo.example.com abc.foo.example.com"] {
        let routes: Vec<Document> = names
            .iter()
            .map(|name| {
                let parent = format!("default/gw#{name}");
                web(&format!("default/{name}"), &parent, hosts, rules(&[&format!("^/{name}")]))
            })
            .collect();
        let all = routes.into_iter().chain([gateway("default/gw", listeners())]);
        let outcome = planned(&documents(all));
        for (owner, request) in requests.iter().enumerate() {
            for (index, name) in names.iter().enumerate() {
                let answer = outcome.answer("default/gw/80", request, &format!("/{name}"), "");
                let expected = if owner == index { format!("{name}/0/0") } else { String::new() };
                assert_eq!(answer, expected, "{request} /{name} with hosts {hosts:?}");
            }
        }
    }
    let routes = names.map(|name| {
        let hosts = "bar.com *.example.com *.foo.example.com abc.foo.example.com";
        web(&format!("default/{name}"), &format!("default/gw#{name}"), hosts, rules(ALL))
    });
    let outcome = planned(&documents(routes.into_iter().chain([gateway("default/gw", listeners())])));
    assert_eq!(
        outcome.hosts("default/gw/80"),
        [
            "*.example.com: wildcard-example-com/0/0",
            "*.foo.example.com: wildcard-foo-example-com/0/0",
            "abc.foo.example.com: abc-foo-example-com/0/0",
            "bar.com: empty-hostname/0/0",
        ]
    );
}

#[test]
fn routes_of_two_kinds_on_different_listeners_of_a_port_do_not_meet() {
    let all = [
        gateway("default/gw", vec![http("any", 80, ""), http("rpc", 80, "rpc.example.com")]),
        grpc("default/rpc", "default/gw#rpc", "", rules(ALL)),
        web("default/web", "default/gw#any", "", rules(ALL)),
    ];
    ask(
        &planned(&documents(all)),
        &[
            ("default/gw/80", "rpc.example.com", "/S/M", "", "rpc/0/0"),
            ("default/gw/80", "www.example.com", "/", "", "web/0/0"),
        ],
    );
}

#[test]
fn an_address_of_an_unknown_type_is_unsupported() {
    let mut edge = gateway_at("default/edge", Some("10.0.0.1"), vec![http("http", 80, "")]);
    let crate::model::Spec::Gateway(spec) = &mut edge.spec else { panic!("a Gateway") };
    spec.unsupported_address = Some((crate::model::Spot::default(), "test/fake-invalid-type".to_owned()));
    let outcome = planned(&documents([edge]));
    assert!(
        outcome
            .of_object("Gateway default/edge")
            .starts_with("Accepted=False/UnsupportedAddress Programmed=False/")
    );
    assert!(!outcome.ports.values().any(|port| port.chains.iter().any(|chain| chain.is_programmed)));
}

/// Conformance: GatewayInvalidParametersRef.
#[test]
fn parameters_of_an_unknown_kind_are_invalid() {
    let mut edge = gateway("default/edge", vec![http("http", 80, "")]);
    let crate::model::Spec::Gateway(spec) = &mut edge.spec else { panic!("a Gateway") };
    spec.parameters = Some(reference(crate::model::Kind::ConfigMap, "default/big"));
    let all = [edge, grpc("default/r", "default/edge", "", rules(&["rpc:S/Echo"]))];
    let outcome = planned(&documents(all));
    assert!(
        outcome
            .of_object("Gateway default/edge")
            .starts_with("Accepted=False/InvalidParameters Programmed=False/")
    );
    // Nothing listens where the parameters may have asked for something else.
    let is_served = |port: &crate::plan::Port| port.chains.iter().any(|chain| chain.is_programmed);
    assert!(!outcome.ports.values().any(is_served));
}
