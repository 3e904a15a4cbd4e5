//! Virtual hosts: what belongs to a listener, and what follows behind a host's own routes.

use super::support::*;
use crate::input::Options;
use crate::model::RouteKind;

const ALL: &[&str] = &["*"];

#[test]
fn less_specific_hosts_follow_behind() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", "default/edge", "foo.example.com", rules(&["rpc:X/"])),
        grpc("default/b", "default/edge", "*.example.com", rules(&["rpc:Y/"])),
        grpc("default/c", "default/edge", "", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    let expected = ["*: c/0/0", "*.example.com: b/0/0 c/0/0", "foo.example.com: a/0/0 b/0/0 c/0/0"];
    assert_eq!(outcome.hosts("default/edge/80"), expected);
    // A request for the exact host whose route does not match goes on to the wildcard's.
    assert_eq!(outcome.answer("default/edge/80", "foo.example.com", "/Y/M", ""), "b/0/0");
    assert_eq!(outcome.answer("default/edge/80", "foo.example.com", "/Z/M", ""), "c/0/0");
}

#[test]
fn a_host_is_a_rank_above_everything_else() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/exact", "default/edge", "a.b.example.com", rules(ALL)),
        grpc("default/long", "default/edge", "*.b.example.com", rules(&["rpc:S/M a=1"])),
        grpc(
            "default/short",
            "default/edge",
            "*.example.com",
            rules(&["rpc:LongService/LongMethod a=1 b=2"]),
        ),
    ];
    let outcome = planned(&documents(all));
    let hosts = outcome.hosts("default/edge/80");
    assert_eq!(
        hosts,
        [
            "*.b.example.com: long/0/0 short/0/0",
            "*.example.com: short/0/0",
            "a.b.example.com: exact/0/0 long/0/0 short/0/0",
        ]
    );
}

#[test]
fn a_route_with_a_host_and_its_wildcard_is_there_once() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", "default/edge", "a.com *.com", rules(&["rpc:S/", "*"])),
        grpc("default/b", "default/edge", "a.com", rules(&["rpc:Service/"])),
    ];
    let hosts = planned(&documents(all)).hosts("default/edge/80");
    assert_eq!(hosts, ["*.com: a/0/0 a/1/0", "a.com: b/0/0 a/0/0 a/1/0"]);
}

#[test]
fn a_listener_keeps_its_hosts_to_itself() {
    // Listener "" and listener *.example.com on one port.
    let all = [
        gateway("default/edge", vec![http("any", 80, ""), http("wild", 80, "*.example.com")]),
        grpc("default/any", "default/edge#any", "bar.example.com bar.com", rules(ALL)),
        grpc("default/wild", "default/edge#wild", "foo.example.com", rules(&["rpc:S/"])),
        grpc("default/rest", "default/edge#any", "", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(
        outcome.hosts("default/edge/80"),
        ["*: rest/0/0", "*.example.com: ", "bar.com: any/0/0 rest/0/0", "foo.example.com: wild/0/0",]
    );
    assert!(outcome.of_parent("GRPCRoute default/any", 0).starts_with("Accepted=True"));
    let warning = outcome.diagnostic("host-of-another-listener");
    assert!(warning.contains("bar.example.com") && warning.contains("listener wild"), "{warning}");
    assert_eq!(outcome.answer("default/edge/80", "bar.example.com", "/S/M", ""), "");
    assert_eq!(outcome.answer("default/edge/80", "foo.example.com", "/T/M", ""), "");
    assert_eq!(outcome.answer("default/edge/80", "foo.org", "/T/M", ""), "rest/0/0");
}

#[test]
fn a_listener_without_routes_answers_for_its_host() {
    let listeners = vec![http("any", 80, ""), http("own", 80, "own.com"), http("alone", 81, "")];
    let all = [gateway("default/edge", listeners), grpc("default/a", "default/edge#any", "", rules(ALL))];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.hosts("default/edge/80"), ["*: a/0/0", "own.com: "]);
    assert!(outcome.hosts("default/edge/81").is_empty());
}

#[test]
fn a_route_without_rules_has_hosts_and_serves_nothing() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", "default/edge", "a.com", Vec::new()),
        grpc("default/b", "default/edge", "*.com", rules(ALL)),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.hosts("default/edge/80"), ["*.com: b/0/0", "a.com: b/0/0"]);
    assert_eq!(outcome.attached("Gateway default/edge"), [2]);
}

#[test]
fn every_https_listener_has_a_chain_of_its_own() {
    let secure = |name: &str, host: &str| https(name, 443, host, &["default/cert"]);
    let all = [
        gateway(
            "default/edge",
            vec![secure("wild", "*.a.com"), secure("exact", "b.a.com"), secure("any", "")],
        ),
        secret("default/cert"),
        grpc("default/a", "default/edge", "", rules(ALL)),
        grpc("default/b", "default/edge", "b.a.com c.a.com", rules(&["rpc:S/"])),
    ];
    let outcome = planned(&documents(all));
    let port = outcome.port("default/edge/443");
    let names: Vec<&str> = port.chains.iter().map(|chain| chain.name.as_str()).collect();
    assert_eq!(names, ["default/edge/443/wild", "default/edge/443/exact", "default/edge/443/any"]);
    // b.a.com is the exact listener's: the wildcard's chain does not have it, nor has the one of everything.
    assert_eq!(outcome.hosts("default/edge/443/wild"), ["*.a.com: a/0/0", "c.a.com: b/0/0 a/0/0"]);
    assert_eq!(outcome.hosts("default/edge/443/exact"), ["b.a.com: b/0/0 a/0/0"]);
    assert_eq!(outcome.hosts("default/edge/443/any"), ["*: a/0/0"]);
}

#[test]
fn ports_are_sorted_by_name_and_say_where_they_are_from() {
    let all = [
        gateway("default/edge", vec![http("b", 8080, ""), http("a", 80, "")]),
        gateway("alpha/edge", vec![http("c", 443, "")]),
    ];
    let outcome = planned(&documents(all));
    let names: Vec<&str> = outcome.ports.keys().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["alpha/edge/443", "default/edge/80", "default/edge/8080"]);
    assert_eq!(outcome.port("default/edge/80").origin.to_string(), "edge.yaml:1:1");
}

#[test]
fn merged_kinds_serve_grpc_first() {
    let options = Options { merges_route_kinds: true, ..Options::default() };
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        web("default/a", "default/edge", "foo.com", rules(&["=/S/M", "*"])),
        grpc("default/b", "default/edge", "*.com", rules(&["*"])),
        grpc("default/c", "default/edge", "foo.com", rules(&["rpc:S/"])),
    ];
    let outcome = planned_with(&documents(all), &options);
    assert_eq!(outcome.hosts("default/edge/80"), ["*.com: b/0/0", "foo.com: c/0/0 b/0/0 a/0/0 a/1/0"]);
}

#[test]
fn native_routes_stand_beside_others_in_one_order() {
    let all = [
        gateway("default/edge", vec![http("web", 80, "")]),
        grpc("default/a", "default/edge", "", rules(&["*", "rpc:a.Long/"])),
        route(RouteKind::Native, "default/b", "default/edge", "", rules(&["=/a.Long/M", "rpc:a.S/M", "*"])),
    ];
    let hosts = planned(&documents(all)).hosts("default/edge/80");
    assert_eq!(hosts, ["*: a/1/0 b/1/0 b/0/0 a/0/0 b/2/0"]);
}
