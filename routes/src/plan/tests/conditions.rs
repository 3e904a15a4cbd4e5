//! Conditions of Gateways and listeners, and which ports they get.

use super::support::*;
use crate::model::{AllowedNamespaces, GatewayListener, ListenerProtocol, RouteKind};

const GOOD: &str = "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs \
                    Programmed=True/Programmed";
const GOOD_GATEWAY: &str = "Accepted=True/Accepted Programmed=True/Programmed ResolvedRefs=True/ResolvedRefs";

fn other(name: &str, port: u16, protocol: &str) -> GatewayListener {
    listener(name, port, ListenerProtocol::Other(protocol.to_owned()), "")
}

#[test]
fn listeners_that_cannot_be_told_apart_are_all_refused() {
    let conflicted = |reason: &str| {
        format!(
            "Accepted=False/{reason} Conflicted=True/{reason} ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid"
        )
    };
    let (host, protocol) = (conflicted("HostnameConflict"), conflicted("ProtocolConflict"));
    let good = GOOD.to_owned();
    let unsupported = "Accepted=False/UnsupportedProtocol Conflicted=True/ProtocolConflict \
                       ResolvedRefs=True/ResolvedRefs Programmed=False/Invalid";
    let secure = |name: &str, port: u16, host: &str| https(name, port, host, &["default/cert"]);
    let table: Vec<(Vec<GatewayListener>, Vec<&str>)> = vec![
        (vec![http("a", 80, ""), http("b", 80, "b.com"), http("c", 80, "*.b.com")], vec![&good; 3]),
        (vec![http("a", 80, "b.com"), http("b", 80, "b.com")], vec![&host; 2]),
        (vec![http("a", 80, ""), http("b", 80, "")], vec![&host; 2]),
        (vec![http("a", 80, ""), http("b", 80, "b.com"), http("c", 80, "b.com")], vec![&good, &host, &host]),
        (vec![http("a", 80, "b.com"), http("b", 81, "b.com")], vec![&good; 2]),
        (vec![http("a", 80, "a.com"), secure("b", 80, "b.com")], vec![&protocol; 2]),
        (vec![secure("a", 443, "a.com"), secure("b", 443, "b.com")], vec![&good; 2]),
        (vec![secure("a", 443, "a.com"), secure("b", 443, "a.com")], vec![&host; 2]),
        (vec![http("a", 80, ""), other("b", 80, "TCP")], vec![&protocol, unsupported]),
        (vec![secure("a", 443, ""), other("b", 443, "TLS")], vec![&protocol, unsupported]),
    ];
    for (listeners, expected) in table {
        let all = [gateway("default/edge", listeners.clone()), secret("default/cert")];
        let outcome = planned(&documents(all));
        for (listener, expected) in listeners.iter().zip(expected) {
            let conditions = outcome.of_listener("Gateway default/edge", &listener.name);
            assert_eq!(conditions, expected, "{} of {listeners:?}", listener.name);
        }
    }
}

#[test]
fn a_protocol_that_is_not_supported_refuses_only_its_listener() {
    let edge = gateway("default/edge", vec![http("web", 80, ""), other("udp", 80, "UDP")]);
    let outcome = planned(&documents([edge]));
    assert_eq!(outcome.of_listener("Gateway default/edge", "web"), GOOD);
    assert_eq!(
        outcome.of_listener("Gateway default/edge", "udp"),
        "Accepted=False/UnsupportedProtocol Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs \
         Programmed=False/Invalid"
    );
    assert_eq!(
        outcome.of_object("Gateway default/edge"),
        "Accepted=True/ListenersNotValid Programmed=True/Programmed ResolvedRefs=True/ResolvedRefs"
    );
    assert!(outcome.status("Gateway default/edge").listeners[1].supported_kinds.is_empty());
    let outcome = planned(&documents([gateway("default/edge", vec![other("tcp", 80, "TCP")])]));
    assert_eq!(
        outcome.of_object("Gateway default/edge"),
        "Accepted=False/ListenersNotValid Programmed=False/Invalid ResolvedRefs=True/ResolvedRefs"
    );
    assert!(outcome.ports.is_empty());
    assert!(outcome.diagnostic("unsupported-protocol").contains("TCP"));
}

#[test]
fn kinds_that_nobody_knows_are_named_and_the_others_are_taken() {
    let table: [(&[&str], &[&str], bool); 5] = [
        (&[], &["HTTPRoute", "GRPCRoute"], true),
        (&["InvalidRoute"], &[], false),
        (&["InvalidRoute", "HTTPRoute"], &["HTTPRoute"], false),
        (&["GRPCRoute", "HTTPRoute", "GRPCRoute"], &["GRPCRoute", "HTTPRoute"], true),
        (&["TLSRoute"], &[], false),
    ];
    for (kinds, supported, is_resolved) in table {
        let all = [gateway("default/edge", vec![of_kinds(kinds, http("web", 80, ""))])];
        let outcome = planned(&documents(all));
        assert_eq!(outcome.status("Gateway default/edge").listeners[0].supported_kinds, supported);
        let expected = match is_resolved {
            true => GOOD.to_owned(),
            false => GOOD.replace("True/ResolvedRefs", "False/InvalidRouteKinds"),
        };
        assert_eq!(outcome.of_listener("Gateway default/edge", "web"), expected, "{kinds:?}");
        let expected = match is_resolved {
            true => GOOD_GATEWAY.to_owned(),
            false => GOOD_GATEWAY.replace("True/ResolvedRefs", "False/ListenersNotResolved"),
        };
        assert_eq!(outcome.of_object("Gateway default/edge"), expected, "{kinds:?}");
    }
    let native = planned(&documents([native_gateway("default/edge", 80)]));
    assert_eq!(
        native.status("Gateway default/edge").listeners[0].supported_kinds,
        ["HTTPRoute", "GRPCRoute", "Route"]
    );
    assert_eq!(native.of_object("Gateway default/edge"), GOOD_GATEWAY);
}

#[test]
fn without_a_certificate_only_grpc_clients_are_served() {
    let failed = |reason: &str| {
        format!(
            "Accepted=True/Accepted Conflicted=False/NoConflicts ResolvedRefs=False/{reason} Programmed=False/Invalid"
        )
    };
    let half = GOOD.replace("True/ResolvedRefs", "False/InvalidCertificateRef");
    let table: [(&[&str], bool, String, &[&str]); 7] = [
        (&["default/cert"], false, GOOD.to_owned(), &["default/cert"]),
        (&["default/cert", "default/cert"], false, GOOD.to_owned(), &["default/cert"]),
        (&["default/absent"], false, failed("InvalidCertificateRef"), &[]),
        (&[], false, failed("InvalidCertificateRef"), &[]),
        (&["other/cert"], false, failed("RefNotPermitted"), &[]),
        (&["other/cert"], true, GOOD.to_owned(), &["other/cert"]),
        (&["default/absent", "default/cert"], false, half, &["default/cert"]),
    ];
    for (certificates, is_granted, expected, used) in table {
        let mut all = vec![
            gateway("default/edge", vec![https("web", 443, "a.com", certificates)]),
            grpc("default/a", "default/edge", "", rules(&["*"])),
            secret("default/cert"),
            secret("other/cert"),
        ];
        if is_granted {
            all.push(grant_secrets("other/grant", "default"));
        }
        let outcome = planned(&documents(all));
        assert_eq!(outcome.of_listener("Gateway default/edge", "web"), expected, "{certificates:?}");
        assert_eq!(outcome.attached("Gateway default/edge"), [1]);
        assert!(outcome.of_parent("GRPCRoute default/a", 0).starts_with("Accepted=True"));
        let chain = outcome.chain("default/edge/443/web");
        let tls = chain.tls.as_ref().unwrap();
        assert_eq!(tls.certificates, used, "{certificates:?}");
        assert_eq!(tls.server_name.as_ref().unwrap().as_str(), "a.com");
        assert_eq!(chain.is_programmed, !used.is_empty(), "{certificates:?}");
        assert_eq!(outcome.hosts("default/edge/443/web"), ["a.com: a/0/0"]);
        assert_eq!(outcome.secrets, used, "{certificates:?}");
        let programmed =
            if used.is_empty() { "Programmed=False/Invalid" } else { "Programmed=True/Programmed" };
        assert!(outcome.of_object("Gateway default/edge").contains(programmed), "{certificates:?}");
    }
}

#[test]
fn https_listeners_of_one_port_that_share_hosts_are_told() {
    let secure = |name: &str, host: &str| https(name, 443, host, &["default/cert"]);
    let listeners = vec![secure("a", "*.a.com"), secure("b", "b.a.com"), secure("c", "c.com")];
    let outcome = planned(&documents([gateway("default/edge", listeners), secret("default/cert")]));
    let overlapping = format!("{GOOD} OverlappingTLSConfig=True/OverlappingHostnames");
    assert_eq!(outcome.of_listener("Gateway default/edge", "a"), overlapping);
    assert_eq!(outcome.of_listener("Gateway default/edge", "b"), overlapping);
    assert_eq!(outcome.of_listener("Gateway default/edge", "c"), GOOD);
}

#[test]
fn of_gateways_on_one_port_the_first_keeps_it() {
    let web = || vec![http("web", 80, ""), http("alt", 81, "")];
    let one = || vec![http("web", 80, "")];
    let taken = "Accepted=False/PortUnavailable Conflicted=False/NoConflicts ResolvedRefs=True/ResolvedRefs \
                 Programmed=False/Invalid";
    // Group, address and age of two Gateways, a and b, and which of them listens on port 80.
    let table = [
        (("g", None, 0), ("g", None, 0), "a"),
        (("g", None, 2), ("g", None, 1), "b"),
        (("g", None, 0), ("g", None, 1), "b"),
        (("g", None, 0), ("h", None, 0), "ab"),
        (("g", Some("10.0.0.1"), 0), ("g", Some("10.0.0.2"), 0), "ab"),
        (("g", Some("10.0.0.1"), 0), ("g", Some("10.0.0.1"), 0), "a"),
        (("g", Some("10.0.0.1"), 0), ("g", None, 0), "a"),
        (("g", Some("10.0.0.1"), 2), ("g", None, 1), "b"),
        (("g", Some("0.0.0.0"), 0), ("g", Some("10.0.0.2"), 0), "a"),
        (("g", Some("::"), 0), ("g", Some("10.0.0.2"), 0), "ab"),
    ];
    for (a, b, listens) in table {
        let edge = |name, (_, address, age): (&str, Option<&str>, i64), listeners| {
            let edge = gateway_at(name, address, listeners);
            if age == 0 { edge } else { created(age, edge) }
        };
        let all = [(a.0, edge("default/a", a, web())), (b.0, edge("default/b", b, one()))];
        let outcome = planned(&in_groups(all));
        for name in ["a", "b"] {
            let expected = if listens.contains(name) { GOOD } else { taken };
            let conditions = outcome.of_listener(&format!("Gateway default/{name}"), "web");
            assert_eq!(conditions, expected, "{name} of {a:?} {b:?}");
        }
        assert_eq!(outcome.of_listener("Gateway default/a", "alt"), GOOD);
    }
}

#[test]
fn a_port_that_was_lost_takes_nothing_from_others() {
    let all = [
        gateway("default/a", vec![http("web", 80, "x.com"), http("twin", 80, "x.com")]),
        gateway("default/b", vec![http("web", 80, "")]),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(outcome.of_listener("Gateway default/b", "web"), GOOD);
}

#[test]
fn the_order_of_documents_changes_nothing() {
    let route = |kind, name: &str| route(kind, name, "default/a default/b", "", rules(&["*"]));
    let mut all = vec![
        gateway("default/a", vec![from(AllowedNamespaces::All, http("web", 80, ""))]),
        gateway("default/b", vec![from(AllowedNamespaces::All, http("web", 80, ""))]),
        route(RouteKind::Grpc, "default/x"),
        route(RouteKind::Http, "default/y"),
        route(RouteKind::Native, "other/z"),
    ];
    let first = planned(&documents(all.clone()));
    all.reverse();
    let second = planned(&documents(all));
    assert_eq!(first.ports, second.ports);
    assert_eq!(first.conditions, second.conditions);
    assert_eq!(first.diagnostics, second.diagnostics);
}

#[test]
fn a_problem_of_a_rule_is_told_for_every_parent_and_the_route_stays() {
    use crate::model::{BackendRef, Kind};
    let mut broken = rule(vec![one("rpc:a.S/")]);
    let mut object = reference(Kind::Service, "default/absent");
    object.port = Some(80);
    broken.backends.push(BackendRef { object, weight: 1, filters: Vec::new() });
    let all = [
        gateway("default/edge", vec![http("web", 80, "a.com")]),
        grpc("default/a", "default/edge default/edge:81", "", vec![broken]),
    ];
    let outcome = planned(&documents(all));
    assert_eq!(
        outcome.of_parent("GRPCRoute default/a", 0),
        "Accepted=True/Accepted ResolvedRefs=False/BackendNotFound"
    );
    assert_eq!(
        outcome.of_parent("GRPCRoute default/a", 1),
        "Accepted=False/NoMatchingParent ResolvedRefs=False/BackendNotFound"
    );
    assert_eq!(outcome.hosts("default/edge/80"), ["a.com: a/0/0"]);
    let told = outcome.diagnostics.iter().filter(|line| line.starts_with("backend-not-found: "));
    assert_eq!(told.count(), 1);
}

#[test]
fn what_is_not_done_of_an_accepted_route_is_told_in_one_condition() {
    use crate::conditions::Truth;
    use crate::input::Options;
    use crate::model::{Filter, FilterKind, Redirect, Spot};
    let mut both = rule(vec![one("=/a")]);
    let redirect = Redirect { scheme: None, host: None, path: None, port: None, status: 302 };
    let rewrite = FilterKind::Rewrite { host: Some("a.com".into()), path: None };
    both.filters =
        [FilterKind::Redirect(redirect), rewrite].map(|kind| Filter { spot: Spot::default(), kind }).to_vec();
    let all = documents([
        gateway("default/edge", vec![http("web", 80, "")]),
        web("default/a", "default/edge default/edge:81", "", vec![both]),
    ]);
    let conditions = crate::memo::plan(&all, &Options::default()).conditions;
    let key = crate::model::DocumentKey::new(crate::model::Kind::HttpRoute, "default", "a");
    let parents = &conditions.objects[&key].parents;
    let partly = |index: usize| {
        let mut found =
            parents[index].conditions.iter().filter(|one| one.kind.as_str() == "PartiallyInvalid");
        let one = found.next().unwrap();
        assert!(found.next().is_none());
        assert_eq!((one.status, one.reason.as_str()), (Truth::True, "UnsupportedValue"));
        one.message.clone()
    };
    assert!(partly(0).starts_with("Dropped Rule"));
}
