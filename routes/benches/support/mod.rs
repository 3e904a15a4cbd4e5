//! Many documents.

#![allow(dead_code, reason = "each benchmark uses a part")]

use serde_json::{Value as Json, json};
use xds_cache::GroupName;
use xds_codec::Tree;
use xds_routes::{Documents, Placed, ReadOutcome, read};

const N_GATEWAYS: usize = 10;

/// GRPCRoutes with a host of their own on one of ten Gateways, each with two Services of three endpoints.
pub(crate) fn documents(n_routes: usize) -> Documents {
    let mut documents = Documents::new();
    for i in 0..N_GATEWAYS {
        add(&mut documents, &gateway(i));
    }
    for i in 0..n_routes {
        add(&mut documents, &route(i, 10));
        for version in ["v1", "v2"] {
            add(&mut documents, &service(i, version));
            add(&mut documents, &slice(i, version));
        }
    }
    documents
}

fn gateway(i: usize) -> Json {
    let listener = json!({
        "name": "http", "protocol": "HTTP", "port": 8_000 + i, "allowedRoutes": {"namespaces": {"from": "All"}},
    });
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": format!("gateway-{i}"), "namespace": "prod"},
        "spec": {"gatewayClassName": "xds", "listeners": [listener]},
    })
}

pub(crate) fn route(i: usize, weight: usize) -> Json {
    let backend = |version: &str, weight: usize| json!({"name": format!("service-{i:05}-{version}"), "port": 50_051, "weight": weight});
    let rule = json!({
        "matches": [{"method": {"service": format!("example.Service{i}")}}],
        "backendRefs": [backend("v1", 100 - weight), backend("v2", weight)],
    });
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
        "metadata": {"name": format!("route-{i:05}"), "namespace": "prod"},
        "spec": {
            "parentRefs": [{"name": format!("gateway-{}", i % N_GATEWAYS)}],
            "hostnames": [format!("route-{i}.example.com")],
            "rules": [rule],
        },
    })
}

fn service(i: usize, version: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("service-{i:05}-{version}"), "namespace": "prod"},
        "spec": {"ports": [{"name": "grpc", "port": 50_051}]},
    })
}

fn slice(i: usize, version: &str) -> Json {
    let name = format!("service-{i:05}-{version}");
    let [high, low] = u16::try_from(i).expect("not more than addresses").to_be_bytes();
    let net = if version == "v1" { 1 } else { 2 };
    let endpoint = |last: usize| json!({"addresses": [format!("10.{}.{high}.{low}", net + 2 * last)], "zone": format!("zone-{last}")});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "prod", "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "grpc", "port": 50_051}],
        "endpoints": [endpoint(0), endpoint(1), endpoint(2)],
    })
}

pub(crate) fn add(documents: &mut Documents, json: &Json) {
    let outcome = read(&"routes.yaml".into(), &Tree::from_json(json), xds_routes::UnknownFields::Refuse);
    let ReadOutcome::Objects(objects) = outcome else { panic!("not read: {json}") };
    for object in objects {
        let (document, warnings) = object.outcome.expect("a document without faults");
        assert_eq!(warnings, [], "{json}");
        let group = GroupName::default_group();
        documents.insert(object.key, Placed::new(document, group));
    }
}
