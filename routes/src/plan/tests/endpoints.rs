//! Endpoints of Services and Backends.

use super::backends_support::{backend, default_plan, external, object, service, slice, slice_spec, to};
use super::support::{document, documents, grpc};
use crate::model::{AddressType, Document, Kind, Rule, Spec};
use crate::plan::{Discovery, Health, Plan};

/// A cluster in words: `zone: address:port …` of each zone, or what else it is.
fn shown(plan: &Plan, name: &str) -> String {
    let cluster = &plan.clusters[name];
    match &cluster.discovery {
        Discovery::Eds { assignment } => {
            let zones = plan.assignments[assignment].localities.iter().map(|locality| {
                let endpoints = locality.endpoints.iter().map(|one| {
                    let health = if one.health == Health::Draining { "!" } else { "" };
                    let weight = one.weight.map(|weight| format!("*{weight}")).unwrap_or_default();
                    format!(" {}:{}{health}{weight}", one.address, one.port)
                });
                format!("{}:{}", locality.zone, endpoints.collect::<String>())
            });
            format!("eds {}", zones.collect::<Vec<_>>().join(" | "))
        }
        other @ (Discovery::Dns(_) | Discovery::Static(_) | Discovery::Aggregate(_)) => format!("{other:?}"),
    }
}

fn planned(list: Vec<Document>, to_text: &str) -> (String, Vec<String>) {
    let name = object(to_text);
    let cluster = match name.port {
        Some(port) => format!("{}/{}/{port}", name.namespace, name.name),
        None => format!("{}/{}", name.namespace, name.name),
    };
    let rules: Vec<Rule> = vec![to(to_text)];
    let documents = documents(list.into_iter().chain([grpc("a/r", "", "", rules)]));
    let (plan, planned) = default_plan(&documents);
    let warnings = planned.diagnostics.iter().filter(|one| one.code == "no-endpoints");
    (shown(&plan, &cluster), warnings.map(|one| one.message.clone()).collect())
}

#[test]
fn slices_are_joined_by_the_name_of_the_port() {
    let services = "http:80>8080 grpc:90>8081 all:100>8082";
    let slices = || {
        vec![
            service("a/s", services),
            slice("a/s1", "s", "grpc:8081 http:8080 all:*", "10.0.0.2@z2 10.0.0.1@z1 10.0.0.3@z1!draining"),
            slice("a/s2", "s", "http:8080 grpc:9999", "10.0.0.1@z1 fd00::1@z1 10.0.0.4!dead"),
            slice("a/other", "t", "http:8080", "10.0.0.77"),
            slice("b/s1", "s", "http:8080", "10.0.0.78"),
        ]
    };
    let table = [
        ("a/s:80", "eds z1: 10.0.0.1:8080 10.0.0.3:8080! fd00::1:8080 | z2: 10.0.0.2:8080"),
        ("a/s:90", "eds z1: 10.0.0.1:8081 10.0.0.1:9999 10.0.0.3:8081! fd00::1:9999 | z2: 10.0.0.2:8081"),
        ("a/s:100", "eds z1: 10.0.0.1:8082 10.0.0.3:8082! | z2: 10.0.0.2:8082"),
    ];
    for (text, expected) in table {
        assert_eq!(planned(slices(), text), (expected.to_owned(), vec![]), "{text}");
    }
}

#[test]
fn every_address_of_an_endpoint_is_one_and_none_is_there_twice() {
    let list = vec![
        service("a/s", ":80"),
        slice("a/s1", "s", ":80", "10.0.0.1,10.0.0.2@z 10.0.0.3!draining"),
        slice("a/s2", "s", ":80", "10.0.0.2@other 10.0.0.3"),
    ];
    assert_eq!(planned(list, "a/s:80").0, "eds : 10.0.0.3:80 | z: 10.0.0.1:80 10.0.0.2:80");
}

#[test]
fn endpoints_count_only_where_no_slice_is() {
    let endpoints = || {
        let spec = Spec::Endpoints(vec![
            slice_spec(None, ":8080", "10.1.0.1"),
            slice_spec(None, ":9090", "10.1.0.2"),
        ]);
        document(Kind::Endpoints, "a/s", spec)
    };
    let list = vec![service("a/s", ":80"), endpoints()];
    assert_eq!(planned(list, "a/s:80").0, "eds : 10.1.0.1:8080 10.1.0.2:9090");
    let list = vec![service("a/s", ":80"), endpoints(), slice("a/s1", "s", ":8080", "10.0.0.1!dead")];
    assert_eq!(planned(list, "a/s:80"), ("eds ".to_owned(), vec![]), "not ready is no mistake");
}

#[test]
fn a_service_that_nobody_stands_behind_is_warned_of() {
    let (found, warnings) = planned(vec![service("a/s", ":80")], "a/s:80");
    assert_eq!(found, "eds ");
    assert!(
        warnings[0].contains("no EndpointSlice and no Endpoints") && warnings[0].contains("clusterIP"),
        "{warnings:?}"
    );
    let list = vec![service("a/s", "http:80"), slice("a/s1", "s", "web:80 x:81", "10.0.0.1")];
    let (found, warnings) = planned(list, "a/s:80");
    assert_eq!(found, "eds ");
    assert!(warnings[0].contains(r#"the port's name "http", and they have "web", "x""#), "{warnings:?}");
}

#[test]
fn host_names_are_left_to_the_client() {
    let table = [
        (
            vec![
                service("a/s", ":80"),
                slice("a/s1", "s", ":8080", "b.example a.example c.example!draining"),
            ],
            "a/s:80",
            r#"Dns([("a.example", 8080), ("b.example", 8080)])"#,
        ),
        (
            vec![
                service("a/s", ":80"),
                slice("a/s1", "s", ":80", "b.example"),
                slice("a/s2", "s", ":80", "10.0.0.1"),
            ],
            "a/s:80",
            r#"Static([Ip(10.0.0.1, 80), Dns("b.example", 80)])"#,
        ),
        (vec![external("a/s", ":80>8443", "out.example")], "a/s:80", r#"Dns([("out.example", 8443)])"#),
        (vec![external("a/s", ":80>web", "out.example")], "a/s:80", r#"Dns([("out.example", 80)])"#),
        (vec![backend("a/b", "b.example:1 b.example:1")], "a/b", r#"Dns([("b.example", 1)])"#),
        (
            vec![backend("a/b", "b.example:1 a.example:2")],
            "a/b",
            // In the order that was written.
            r#"Dns([("b.example", 1), ("a.example", 2)])"#,
        ),
        (
            vec![backend("a/b", "b.example:1 10.0.0.1:2 /s")],
            "a/b",
            r#"Static([Ip(10.0.0.1, 2), Dns("b.example", 1), Unix("/s")])"#,
        ),
        (vec![backend("a/b", "/s")], "a/b", r#"Static([Unix("/s")])"#),
        (
            vec![backend("a/b", "10.0.0.2:2@z*3 10.0.0.1:2 10.0.0.2:2@y")],
            "a/b",
            "eds : 10.0.0.1:2 | z: 10.0.0.2:2*3",
        ),
    ];
    for (list, text, expected) in table {
        assert_eq!(planned(list, text), (expected.to_owned(), vec![]), "{expected}");
    }
}

#[test]
fn an_empty_slice_of_host_names_is_still_assigned() {
    let mut empty = slice("a/s1", "s", ":80", "");
    if let Spec::EndpointSlice(slice) = &mut empty.spec {
        slice.address_type = AddressType::Fqdn;
    }
    assert_eq!(planned(vec![service("a/s", ":80"), empty], "a/s:80"), ("eds ".to_owned(), vec![]));
}
