//! Memory that a translation keeps for each route, counted in allocated bytes; `kept.rs` has the memory of documents.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::{Value as Json, json};
use xds_cache::{GroupName, Profile, ResourceType};
use xds_codec::{Codec, Tree};
use xds_routes::{Documents, Options, Placed, ReadOutcome, UnknownFields, read, translate};

use crate::{ALLOCATOR, alone};

/// For a GRPCRoute with one host, its two Services and their two EndpointSlices: 29 resources, and how they were made.
const MOST_OF_ROUTE: usize = 25_500;

/// For a Listener of a gRPC client: the name, its place in the map, and its part of what it shares with others.
const MOST_OF_LISTENER: usize = 280;

const N_ROUTES: usize = 200;

fn add(documents: &mut Documents, json: &Json) {
    let outcome = read(&"f.yaml".into(), &Tree::from_json(json), UnknownFields::Refuse);
    let ReadOutcome::Objects(objects) = outcome else { panic!("not read: {json}") };
    for object in objects {
        let (document, _) = object.outcome.unwrap();
        let placed = Placed::new(document, GroupName::default_group());
        documents.insert(object.key, placed);
    }
}

fn world() -> Documents {
    let mut documents = Documents::new();
    add(
        &mut documents,
        &json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "public", "namespace": "prod"},
            "spec": {"gatewayClassName": "xds", "listeners": [{"name": "http", "protocol": "HTTP", "port": 8000}]},
        }),
    );
    for n in 0..N_ROUTES {
        let names = ["v1", "v2"].map(|version| format!("service-{n:05}-{version}"));
        let backends = names.iter().map(|name| json!({"name": name, "port": 50_051})).collect::<Vec<_>>();
        let rule = json!({"matches": [{"method": {"service": format!("example.Service{n}")}}], "backendRefs": backends});
        add(
            &mut documents,
            &json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
                "metadata": {"name": format!("route-{n:05}"), "namespace": "prod"},
                "spec": {"parentRefs": [{"name": "public"}], "hostnames": [format!("route-{n}.example.com")], "rules": [rule]},
            }),
        );
        for name in names {
            let endpoint = |zone: usize| json!({"addresses": [format!("10.{zone}.0.1")], "zone": format!("zone-{zone}")});
            add(
                &mut documents,
                &json!({
                    "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "prod"},
                    "spec": {"ports": [{"name": "grpc", "port": 50_051}]},
                }),
            );
            add(
                &mut documents,
                &json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": name, "namespace": "prod", "labels": {"kubernetes.io/service-name": name}},
                    "ports": [{"name": "grpc", "port": 50_051}], "endpoints": [endpoint(0), endpoint(1), endpoint(2)],
                }),
            );
        }
    }
    documents
}

#[test]
fn a_translation_keeps_little_for_each_route_and_less_for_each_name() {
    let _alone = alone();
    let (codec, documents, options) = (Codec::new().unwrap(), world(), Options::default());
    // By now everything exists that a process makes only once.
    drop(translate(&codec, &documents, &options, None));
    let before = ALLOCATOR.current_usage();
    let translation = translate(&codec, &documents, &options, None);
    let of_route = (ALLOCATOR.current_usage() - before) / N_ROUTES;

    let group = translation.groups.get(&GroupName::default_group()).unwrap().clone();
    drop(translation);
    let mut resources = group.profiles.get(&Profile::Grpc).unwrap().clone();
    drop(group);
    let is_listener = |resource_type: &ResourceType| *resource_type == ResourceType::Listener;
    let keys: Vec<_> = resources.keys().filter(|key| is_listener(&key.resource_type)).cloned().collect();
    assert_eq!(keys.len(), N_ROUTES * 18);
    let before = ALLOCATOR.current_usage();
    keys.iter().for_each(|key| drop(resources.remove(key)));
    let n_names: usize = keys.iter().map(|key| key.name.len() + 16).sum();
    drop(keys);
    let of_listener = (before - ALLOCATOR.current_usage()) / (N_ROUTES * 18);
    println!(
        "{of_route} bytes for a route, {of_listener} for a Listener, of them {} for its name",
        n_names / N_ROUTES / 18
    );
    assert!(of_route <= MOST_OF_ROUTE, "{of_route} bytes for a route");
    assert!(of_listener <= MOST_OF_LISTENER, "{of_listener} bytes for a Listener");
}
