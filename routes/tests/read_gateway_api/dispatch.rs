//! Tests of the choice of documents that are read, and of the parts that are kept.

use serde_json::json;
use xds_codec::{Limits, Syntax};
use xds_routes::model::{Kind, Spec};
use xds_routes::{DocumentKey, ReadOutcome};

use super::{document, errors_of, outcome, read_yaml, spec_and_warnings, spec_of};

#[test]
fn what_is_not_ours_is_left_alone() {
    let table = [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {name: a}\n",
        "apiVersion: example.org/v1\nkind: GRPCRoute\nmetadata: {name: a}\n",
        "a: b\n",
        "[]\n",
    ];
    for yaml in table {
        assert!(matches!(read_yaml(yaml), ReadOutcome::NotOurs), "{yaml}");
    }
}

#[test]
fn a_document_without_identity_is_unreadable() {
    let table = [
        ("kind: GRPCRoute\nmetadata: {name: a}\n", ": the document has no `apiVersion`"),
        ("apiVersion: v1\nmetadata: {name: a}\n", ": the field `kind` is missing"),
        ("apiVersion: [v1]\nkind: Service\n", "apiVersion: expected a string, found a list"),
        ("apiVersion: v1\nkind: Namespace\n", ": the field `metadata` is missing"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {}\n", "metadata: the field `name` is missing"),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a/b}\n",
            "metadata.name: \"a/b\" is not a name: `/`, blanks and control characters are not allowed",
        ),
        (
            "version: xds-server/v2\nroutes: {}\n",
            "version: version \"xds-server/v2\" of the native form does not exist",
        ),
    ];
    for (yaml, expected) in table {
        let ReadOutcome::Unreadable(diagnostics) = read_yaml(yaml) else { panic!("{yaml}") };
        let shown: Vec<_> = diagnostics.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
        assert_eq!(shown, [expected], "{yaml}");
    }
}

/// So it keeps its last good version, and is not taken for a document of somebody else.
#[test]
fn a_misspelt_kind_or_group_is_an_error_of_the_object_that_was_meant() {
    let table = [
        ("gateway.networking.k8s.io/v1", "HttpRoute", "kind: the kind \"HttpRoute\" is unknown", "HTTPRoute"),
        ("gateway.networking.k8s.io/v1", "HTTPRouet", "kind: the kind \"HTTPRouet\" is unknown", "HTTPRoute"),
        (
            "gateway.network.k8s.io/v1",
            "HTTPRoute",
            "apiVersion: HTTPRoute is not a kind of \"gateway.network.k8s.io/v1\"",
            "gateway.networking.k8s.io/v1",
        ),
    ];
    for (api_version, kind, expected, meant) in table {
        let yaml = format!(
            "apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: r, namespace: n}}\nspec: {{}}\n"
        );
        let ReadOutcome::Objects(objects) = read_yaml(&yaml) else { panic!("{yaml}") };
        assert_eq!(objects[0].key, DocumentKey::new(Kind::HttpRoute, "n", "r"));
        let errors = objects[0].outcome.as_ref().expect_err("it is misspelt");
        let shown: Vec<_> = errors.iter().map(|one| format!("{}: {}", one.path, one.message)).collect();
        assert_eq!((shown, errors[0].suggestion.as_deref()), (vec![expected.to_owned()], Some(meant)));
    }
}

#[test]
fn a_version_that_is_not_read_is_an_error_of_the_object() {
    let ReadOutcome::Objects(objects) = read_yaml(&document("HTTPRoute", "v2", "{}")) else { panic!() };
    let object = objects.first().expect("there is one");
    assert_eq!(object.key, DocumentKey::new(Kind::HttpRoute, "n", "r"));
    let errors = object.outcome.as_ref().expect_err("the version is unknown");
    assert_eq!(errors.len(), 1);
    let message = "HTTPRoute is not supported in \"gateway.networking.k8s.io/v2\"; write gateway.networking.k8s.io/v1 or \
                   gateway.networking.k8s.io/v1beta1 or gateway.networking.k8s.io/v1alpha2";
    assert!(errors.iter().all(|error| error.message == message && error.place.line == 1), "{errors:?}");
}

#[test]
fn versions_of_the_gateway_api_are_read_alike() {
    let spec = "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80}]}]}";
    let newest = spec_of(&document("HTTPRoute", "v1", spec));
    assert_eq!(spec_of(&document("HTTPRoute", "v1beta1", spec)), newest);
    let (oldest, warnings) = spec_and_warnings(&document("HTTPRoute", "v1alpha2", spec));
    let shown = format!("{oldest:?}");
    assert_eq!(shown, format!("{newest:?}"));
    let deprecated = "apiVersion: \"gateway.networking.k8s.io/v1alpha2\" is deprecated; the API replaced it with gateway.networking.k8s.io/v1";
    assert_eq!(warnings, [deprecated]);
}

#[test]
fn the_source_is_the_document_without_what_a_cluster_adds() {
    let yaml = "kind: Namespace\napiVersion: v1\nstatus: {phase: Active}\nmetadata:\n  managedFields: [{a: b}]\n  name: a\n  \
                labels: {z: '1', b: '2'}\n  creationTimestamp: '2024-05-01T12:00:00Z'\n  uid: x\nspec: {finalizers: [k]}\n";
    let (document, warnings) = outcome(yaml).expect("is valid");
    assert!(warnings.is_empty(), "{warnings:?}");
    let expected = json!({
        "kind": "Namespace", "apiVersion": "v1",
        "metadata": {"name": "a", "labels": {"z": "1", "b": "2"}, "creationTimestamp": "2024-05-01T12:00:00Z", "uid": "x"},
        "spec": {"finalizers": ["k"]},
    });
    assert_eq!(document.source.text(), expected.to_string());
    assert_eq!(document.key, DocumentKey::new(Kind::Namespace, "", "a"));
    assert_eq!(document.key.to_string(), "Namespace a");
    assert_eq!(document.meta.created, Some(1_714_564_800));
    assert_eq!(document.meta.label("b"), Some("2"));
    assert!(matches!(document.spec, Spec::Namespace(_)));
    assert_eq!((document.place.line, document.place.column), (1, 1));
}

#[test]
fn what_is_read_of_the_source_is_the_same() {
    let yaml = document("GRPCRoute", "v1", "{rules: [{matches: [{method: {service: a}}]}]}");
    let (first, _) = outcome(&yaml).expect("is valid");
    let tree = first.source.tree();
    let ReadOutcome::Objects(objects) =
        xds_routes::read(&"".into(), &tree, xds_routes::UnknownFields::Refuse)
    else {
        panic!()
    };
    let (second, _) = objects.first().expect("one").outcome.as_ref().expect("is valid");
    assert_eq!(second.source, first.source);
    assert_eq!(second.key, first.key);
}

#[test]
fn a_namespace_that_is_not_given_is_the_default_one() {
    let yaml = "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: a}\nspec: {}\n";
    let (document, _) = outcome(yaml).expect("is valid");
    assert_eq!(document.key, DocumentKey::new(Kind::GrpcRoute, "default", "a"));
}

#[test]
fn unknown_fields_are_errors_at_their_place_with_what_was_meant_or_warnings_if_told() {
    let yaml = "apiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {name: a, lables: {}}\nspec:\n  hostname: [a.b]\n\
                sepc: {}\nstatus: {anything: [1]}\n";
    let errors = outcome(yaml).expect_err("is not valid");
    let shown: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "f.yaml:3:21: error[unknown-field] metadata.lables: unknown field \"lables\"; did you mean `labels`?",
            "f.yaml:5:3: error[unknown-field] spec.hostname: unknown field \"hostname\"; did you mean `hostnames`?",
            "f.yaml:6:1: error[unknown-field] sepc: unknown field \"sepc\"; did you mean `spec`?",
        ]
    );
    let trees =
        xds_codec::parse("f.yaml", yaml.as_bytes(), Syntax::Yaml, &Limits::default()).expect("is YAML");
    let read = xds_routes::read(&"f.yaml".into(), &trees[0], xds_routes::UnknownFields::Warn);
    let ReadOutcome::Objects(objects) = read else { panic!() };
    let (_, warnings) = objects[0].outcome.as_ref().expect("is valid");
    let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "f.yaml:3:21: warning[unknown-field] metadata.lables: unknown field \"lables\", which is left out; did you mean `labels`?",
            "f.yaml:5:3: warning[unknown-field] spec.hostname: unknown field \"hostname\", which is left out; did you mean `hostnames`?",
            "f.yaml:6:1: warning[unknown-field] sepc: unknown field \"sepc\", which is left out; did you mean `spec`?",
        ]
    );
}

#[test]
fn every_fault_of_a_document_is_told_in_the_order_of_the_text() {
    let yaml = document(
        "GRPCRoute",
        "v1",
        "{hostnames: ['*'], rules: [{matches: [{method: {}}], backendRefs: [{name: a, port: 0}]}]}",
    );
    assert_eq!(
        errors_of(&yaml),
        [
            "spec.hostnames[0]: \"*\": the wildcard `*` can only be the whole first label",
            "spec.rules[0].matches[0].method: One or both of 'service' or 'method' must be specified",
            "spec.rules[0].backendRefs[0].port: expected a whole number from 1 to 65535, found 0",
        ]
    );
}
