//! The same for the kinds of facts of the mesh. A `Consumer` matters alone only where its own group is not the default one, as in
//! `tests/properties/incremental.rs`.

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};

use super::gateways::unnoticed;
use super::{add, history};
use crate::GenerationLimits;
use crate::input::{Documents, Options};

/// All that are read, or because of which there are units.
const KINDS: [&str; 18] = [
    "Parents",
    "MeshRefused",
    "Split",
    "Rival",
    "Divided",
    "Wish",
    "WishedPort",
    "Namesake",
    "Ports",
    "Names",
    "Shown",
    "GatewayPort",
    "GatewayName",
    "MeshService",
    "Framed",
    "Loan",
    "LostPort",
    "Ancestors",
];

fn object(kind: &str, namespace: &str, name: &str, spec: Json) -> Json {
    let version = match kind {
        "Service" => "v1",
        "TrafficSplit" => "split.smi-spec.io/v1alpha4",
        _ => "gateway.networking.k8s.io/v1",
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn service(name: &str) -> Json {
    object("Service", "prod", name, json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}))
}

/// A route of the Service `a` at a port.
fn route(kind: &str, namespace: &str, name: &str, port: u16) -> Json {
    let parents = json!([{"group": "", "kind": "Service", "name": "a", "namespace": "prod", "port": port}]);
    let rules = json!([{"backendRefs": [{"name": "a", "namespace": "prod", "port": 80}]}]);
    object(kind, namespace, name, json!({"parentRefs": parents, "rules": rules}))
}

fn split(root: &str, weight: u32) -> Json {
    let backends = json!([{"service": "a", "weight": weight}, {"service": "b", "weight": 3}]);
    object("TrafficSplit", "prod", root, json!({"service": root, "backends": backends}))
}

/// Changes that random histories hardly ever make.
fn stories() -> Vec<(Options, Vec<Vec<Json>>)> {
    let limits = GenerationLimits { max_routes: 2, ..GenerationLimits::default() };
    let limited = Options { limits, ..Options::default() };
    let grpc = |name: &str, port: u16| route("GRPCRoute", "prod", name, port);
    let mut old = grpc("old", 80);
    old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    let allowed = json!({"namespaces": {"from": "All"}});
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": allowed}]);
    let gateway = object("Gateway", "prod", "edge", json!({"gatewayClassName": "x", "listeners": listeners}));
    let rules = json!([{"backendRefs": [{"name": "a", "port": 80}]}]);
    let spec = json!({"parentRefs": [{"name": "edge"}], "hostnames": ["a.prod"], "rules": rules});
    let named = object("GRPCRoute", "prod", "named", spec);
    let trust = json!({"hostname": "a.internal", "wellKnownCACertificates": "System"});
    let targets = json!([{"group": "", "kind": "Service", "name": "a"}]);
    let policy =
        object("BackendTLSPolicy", "prod", "policy", json!({"targetRefs": targets, "validation": trust}));
    let consumer = || route("GRPCRoute", "default", "consumer", 80);
    let (a, b) = (|| service("a"), || service("b"));
    let plain = |steps| (Options::default(), steps);
    vec![
        (limited, vec![vec![a(), grpc("one", 80), grpc("two", 80)], vec![old]]),
        plain(vec![vec![a(), grpc("one", 80), grpc("two", 81), grpc("it", 80)], vec![grpc("it", 81)]]),
        plain(vec![vec![a(), route("HTTPRoute", "prod", "one", 80)], vec![grpc("one", 80)]]),
        plain(vec![vec![a()], vec![gateway.clone(), named.clone()]]),
        plain(vec![vec![a(), b(), consumer()], vec![split("b", 1)], vec![split("b", 2)]]),
        plain(vec![vec![policy.clone()], vec![a()]]),
        plain(vec![vec![a(), policy], vec![grpc("one", 80)], vec![consumer()]]),
        plain(vec![vec![a(), b(), grpc("one", 80)], vec![gateway.clone()]]),
        plain(vec![vec![gateway, named, a(), b()], vec![split("a", 1)], vec![split("b", 1)]]),
        plain(vec![vec![a(), b()], vec![split("a", 1)], vec![split("b", 1)], vec![consumer()]]),
    ]
}

#[test]
fn every_kind_of_fact_of_the_mesh_counts() {
    let told = stories().into_iter().map(|(options, steps)| {
        let mut all = Documents::new();
        let mut take = |step: Vec<Json>| {
            step.iter().for_each(|json| {
                let n_documents = all.len();
                add(&mut all, json);
                assert!(!all.is_empty() && all.len() >= n_documents, "{json}");
            });
            all.clone()
        };
        (options, steps.into_iter().map(&mut take).collect())
    });
    let mut runner = TestRunner::deterministic();
    let random = (0..400).map(|_| (Options::default(), history().new_tree(&mut runner).unwrap().current()));
    let told: Vec<(Options, Vec<Documents>)> = told.collect();
    assert_eq!(unnoticed(&KINDS, told.into_iter().chain(random)), [""; 0]);
}
