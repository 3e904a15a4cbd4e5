//! `parentRefs` of both kinds of routes.

use super::{document, expect, route_of, spec_and_warnings, spec_of};

fn with_parents(parents: &str) -> String {
    document("HTTPRoute", "v1", &format!("{{parentRefs: [{parents}]}}"))
}

#[test]
fn references_to_the_same_parent_are_distinct() {
    const SPECIFIED: &str =
        "sectionName must be specified when parentRefs includes 2 or more references to the same parent";
    const UNIQUE: &str =
        "sectionName must be unique when parentRefs includes 2 or more references to the same parent";
    const PORT_SPECIFIED: &str = "sectionName or port must be specified when parentRefs includes 2 or more references to the same parent";
    const PORT_UNIQUE: &str =
        "sectionName or port must be unique when parentRefs includes 2 or more references to the same parent";
    let table = [
        ("{name: a}, {name: b}", ""),
        ("{name: a}, {name: a, namespace: m}", ""),
        ("{name: a}, {name: a, kind: Service, group: ''}", ""),
        ("{name: a, sectionName: x}, {name: a, sectionName: y}", ""),
        ("{name: a, port: 1}, {name: a, port: 2}", ""),
        ("{name: a, sectionName: x, port: 1}, {name: a, sectionName: x, port: 2}", ""),
        ("{name: a, sectionName: x, port: 1}, {name: a, sectionName: y}", ""),
        ("{name: a}, {name: a}", UNIQUE),
        ("{name: a}, {name: a, namespace: n}", UNIQUE),
        ("{name: a, sectionName: x}, {name: a, sectionName: x}", UNIQUE),
        ("{name: a}, {name: a, sectionName: x}", SPECIFIED),
        ("{name: a, port: 1}, {name: a, port: 1}", PORT_UNIQUE),
        ("{name: a, port: 1}, {name: a}", PORT_SPECIFIED),
        ("{name: a, port: 1}, {name: a, sectionName: x}", PORT_SPECIFIED),
    ];
    for (parents, error) in table {
        let error = if error.is_empty() { String::new() } else { format!("spec.parentRefs[1]: {error}") };
        expect(&with_parents(parents), &error);
    }
}

#[test]
fn a_reference_is_read_with_everything_in_it() {
    let route = route_of(spec_of(&with_parents(
        "{group: '', kind: Service, namespace: m, name: s, sectionName: x, port: 80}",
    )));
    let parent = route.parents.first().expect("one");
    assert_eq!((&*parent.group, &*parent.kind, &*parent.namespace, &*parent.name), ("", "Service", "m", "s"));
    assert_eq!((parent.section.as_deref(), parent.port), (Some("x"), Some(80)));
    assert_eq!((parent.spot.path.to_string(), parent.spot.line), ("spec.parentRefs[0]".to_owned(), 4));
}

#[test]
fn bad_references_are_refused() {
    let table = [
        ("{}", "spec.parentRefs[0]: the field `name` is missing"),
        ("{name: a, port: 0}", "expected a whole number from 1 to 65535, found 0"),
        ("{name: a, sectionName: ''}", "\"\" has 0 characters, 1 to 253 are allowed"),
        (
            "{name: a, sectionName: A}",
            "\"A\" is not a name: lower-case letters, digits, `-` and `.` are allowed",
        ),
    ];
    for (parent, error) in table {
        expect(&with_parents(parent), error);
    }
}

#[test]
fn default_gateways_count_only_without_references() {
    let warnings = |spec: &str| spec_and_warnings(&document("GRPCRoute", "v1", spec)).1.len();
    assert_eq!(warnings("{useDefaultGateways: All}"), 0);
    assert_eq!(warnings("{useDefaultGateways: None, parentRefs: [{name: a}]}"), 0);
    assert_eq!(warnings("{useDefaultGateways: All, parentRefs: [{name: a}]}"), 1);
    expect(&document("GRPCRoute", "v1", "{useDefaultGateways: Some}"), "\"Some\" is not one of All, None");
}
