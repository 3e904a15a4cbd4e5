//! A weight takes as much memory among three thousand hosts as among a hundred: nothing of the RouteConfiguration is copied but that host.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use serde_json::{Value as Json, json};
use xds_cache::{GroupName, Profile, Resource, ResourceKey, ResourceType};
use xds_codec::{Codec, Tree};
use xds_routes::{Documents, Options, Placed, ReadOutcome, Translation, UnknownFields, read, translate};

use crate::{ALLOCATOR, alone};

fn add(documents: &mut Documents, json: &Json) {
    let outcome = read(&"f.yaml".into(), &Tree::from_json(json), UnknownFields::Refuse);
    let ReadOutcome::Objects(objects) = outcome else { panic!("not read: {json}") };
    for object in objects {
        let (document, _) = object.outcome.unwrap();
        let placed = Placed::new(document, GroupName::default_group());
        documents.insert(object.key, placed);
    }
}

fn route(index: usize, weight: u32) -> Json {
    let backends =
        json!([{"name": "a", "port": 80, "weight": weight}, {"name": "b", "port": 80, "weight": 1}]);
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
        "metadata": {"name": format!("r{index}"), "namespace": "prod"},
        "spec": {
            "parentRefs": [{"name": "edge"}],
            "hostnames": [format!("r{index}.example.com")],
            "rules": [{"backendRefs": backends}],
        },
    })
}

fn documents(n_routes: usize) -> Documents {
    let mut documents = Documents::new();
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "prod"},
        "spec": {"gatewayClassName": "xds", "listeners": listeners},
    });
    add(&mut documents, &gateway);
    for name in ["a", "b"] {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "prod"},
            "spec": {"ports": [{"name": "grpc", "port": 80}]},
        });
        add(&mut documents, &service);
    }
    (0..n_routes).for_each(|index| add(&mut documents, &route(index, 1)));
    documents
}

fn routes(translation: &Translation) -> &Arc<Resource> {
    let name = "default/prod/edge/80";
    let resources = &translation.groups[&GroupName::default_group()].profiles[&Profile::Envoy];
    let is_it = |key: &&Arc<ResourceKey>| key.resource_type == ResourceType::RouteConfiguration;
    let keys: Vec<_> = resources.keys().filter(is_it).collect();
    assert_eq!(keys.len(), 1, "{keys:?} {name}");
    &resources[keys[0]]
}

/// How many bytes a weight takes at most while it is translated.
fn memory(codec: &Codec, n_routes: usize) -> usize {
    let mut documents = documents(n_routes);
    let mut last = translate(codec, &documents, &Options::default(), None);
    let mut most = 0;
    for weight in 2..6 {
        add(&mut documents, &route(7, weight));
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let next = translate(codec, &documents, &Options::default(), Some(&last));
        most = most.max(ALLOCATOR.peak_usage() - before);
        let (old, new) = (routes(&last), routes(&next));
        assert_ne!(old.version(), new.version());
        assert!(new.to_draft().value.is_to_be_assembled(), "nobody has asked for it");
        assert!(old.references().is(new.references()));
        last = next;
    }
    // Whoever asks gets what is made from nothing.
    let anew = translate(codec, &documents, &Options::default(), None);
    let (made, expected) = (routes(&last), routes(&anew));
    assert_eq!((made.version(), made.value()), (expected.version(), expected.value()));
    assert_eq!(made.n_bytes(), made.value().len());
    let written = Resource::plain(ResourceType::RouteConfiguration, made.name(), made.value().into_owned());
    assert_eq!(written.version(), made.version());
    most
}

#[test]
fn a_weight_takes_as_much_memory_among_three_thousand_hosts_as_among_a_hundred() {
    let _alone = alone();
    let codec = Codec::new().unwrap();
    // Memory that is allocated once, and kept, counts for neither.
    memory(&codec, 10);
    let [few, many] = [100, 3_000].map(|n_routes| memory(&codec, n_routes));
    println!("{few} bytes, {many} bytes");
    assert!(many < 2 * few, "{few} bytes among 100 hosts, {many} among 3,000");
}
