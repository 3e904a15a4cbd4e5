//! Clients that have seen something newer come to a server that cannot reach its store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio::time::{Instant, advance};
use tonic::Code;
use xds_cache::ResourceType;

use super::body::Handmade;
use super::support::*;
use crate::grpc::GrpcConfig;

/// A server that serves one cluster, and when it says that it has reached its store.
fn world_with_a_store() -> (World, Arc<Mutex<Option<Instant>>>) {
    let world = World::new(GrpcConfig::default());
    world.publish([cluster("a", "1")]);
    let confirmed = Arc::new(Mutex::new(None));
    let said = Arc::clone(&confirmed);
    world.grpc.confirm_by(move || *said.lock().unwrap());
    (world, confirmed)
}

fn sotw(world: &World, version: &str) -> Handmade {
    let stream = Handmade::open(world);
    stream.send(&DiscoveryRequest { version_info: version.to_owned(), ..all_clusters("sotw") });
    stream
}

fn delta(world: &World, version: &str) -> Handmade {
    let stream = Handmade::open_delta(world);
    stream.send(&DeltaDiscoveryRequest {
        node: node("delta"),
        type_url: ResourceType::Cluster.type_url().to_owned(),
        initial_resource_versions: HashMap::from([("a".to_owned(), version.to_owned())]),
        ..DeltaDiscoveryRequest::default()
    });
    stream
}

async fn pass(seconds: u64) {
    advance(Duration::from_secs(seconds)).await;
}

/// No state of this program has it.
const NEWER: &str = "0123456789abcdef";

#[tokio::test(start_paused = true)]
async fn who_shows_something_newer_waits_until_the_server_is_current_and_others_do_not() {
    let (world, confirmed) = world_with_a_store();
    let mut newer = [sotw(&world, NEWER), delta(&world, NEWER)];
    assert!(newer.iter_mut().all(|stream| stream.message().is_none()));
    let first = sotw(&world, "").response().expect("one that shows nothing is served");
    assert!(sotw(&world, &first.version_info).response().is_some());
    assert!(sotw(&world, "v7").response().is_some(), "it is of another program");
    let held = cluster("a", "1").version().to_string();
    let mut known = delta(&world, &held);
    assert!(known.message().is_some(), "it is answered");

    world.publish([cluster("a", "2"), cluster("b", "1")]);
    assert!(known.message().is_some());
    assert!(delta(&world, &held).message().is_some(), "it was there a moment ago");
    assert!(newer.iter_mut().all(|stream| stream.message().is_none()));
    *confirmed.lock().unwrap() = Some(Instant::now());
    pass(1).await;
    assert!(newer.iter_mut().all(|stream| stream.message().is_some()));
    // From now on they are served, whatever the server can reach.
    pass(20).await;
    world.publish([cluster("a", "3")]);
    assert!(newer.iter_mut().all(|stream| stream.message().is_some()));
    assert!(sotw(&world, NEWER).response().is_none());
}

#[tokio::test(start_paused = true)]
async fn it_leaves_after_a_while_and_is_served_if_there_is_no_better_server() {
    let (world, _confirmed) = world_with_a_store();
    for n in 1..=9 {
        let mut newer = sotw(&world, NEWER);
        assert!(newer.response().is_none());
        pass(29).await;
        assert!(newer.response().is_none());
        pass(1).await;
        let status = newer.end();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("something newer"), "{status}");
        let count = format!("xds_newer_clients_left_total {n}");
        assert!(world.metrics.render().contains(&count));
    }
    let mut newer = sotw(&world, NEWER);
    assert!(newer.response().is_none());
    pass(29).await;
    assert!(newer.response().is_none());
    pass(1).await;
    assert!(newer.response().is_some(), "nobody knows more");
    assert!(delta(&world, NEWER).message().is_some());
}
