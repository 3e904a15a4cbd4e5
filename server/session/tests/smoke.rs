//! A first walk through both variants.

use std::sync::Arc;
use std::time::Instant;

use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{GroupName, Node, NodeGroup, Publisher, Resource, ResourceType, Revision};
use xds_session::{Client, DeltaRequest, Limits, Nonce, Response, SotwRequest};

fn publish(publisher: &Publisher, revision: u64, resources: Vec<Resource>) {
    let group = EffectiveGroup {
        definition: NodeGroup::default_group(),
        label: None,
        resources: resources.into_iter().map(|r| (r.key().clone(), Arc::new(r))).collect(),
    };
    publisher.publish(Revision(revision), Groups::from([(GroupName::default_group(), Arc::new(group))]));
}

fn names(response: &Response) -> Vec<&str> {
    response.contents.entries.names().map(|name| &**name).collect()
}

const STREAM: StreamId = StreamId(1);

#[test]
fn sotw_walk() {
    let publisher = Publisher::new();
    let node = Arc::new(Node::with_id("n"));
    let mut views = publisher.follow(&node);
    let mut client = Client::new(Limits::default());
    client.open(STREAM, Variant::Sotw, None, 1);
    let type_url = ResourceType::Cluster.type_url().to_owned();
    let first =
        SotwRequest { node: Some(Arc::clone(&node)), type_url: type_url.clone(), ..SotwRequest::default() };
    client.handle_request(STREAM, first.into()).unwrap();
    assert!(client.poll_response(STREAM, Instant::now()).is_none(), "nothing before the first load");
    publish(&publisher, 1, vec![Resource::plain(ResourceType::Cluster, "a", "1")]);
    let view = views.take().unwrap();
    assert!(views.is_outdated_by(&view));
    let mut views = publisher.follow(&node);
    client.handle_view(views.take().unwrap());
    let response = client.poll_response(STREAM, Instant::now()).unwrap();
    assert_eq!(names(&response), ["a"]);
    assert!(client.poll_response(STREAM, Instant::now()).is_none());
    let ack = SotwRequest { type_url, response_nonce: Nonce::Ours(response.nonce), ..SotwRequest::default() };
    client.handle_request(STREAM, ack.into()).unwrap();
    assert!(client.poll_response(STREAM, Instant::now()).is_none());
    publish(&publisher, 2, vec![]);
    client.handle_view(views.take().unwrap());
    let response = client.poll_response(STREAM, Instant::now()).unwrap();
    assert!(names(&response).is_empty());
}

#[test]
fn delta_walk() {
    let publisher = Publisher::new();
    publish(&publisher, 1, vec![Resource::plain(ResourceType::ClusterLoadAssignment, "a", "1")]);
    let node = Arc::new(Node::with_id("n"));
    let mut client = Client::new(Limits::default());
    client.open(STREAM, Variant::Delta, None, 1);
    client.handle_view(publisher.follow(&node).take().unwrap());
    let request = DeltaRequest {
        node: Some(node),
        type_url: ResourceType::ClusterLoadAssignment.type_url().to_owned(),
        resource_names_subscribe: vec!["a".to_owned(), "zz".to_owned()],
        ..DeltaRequest::default()
    };
    client.handle_request(STREAM, request.into()).unwrap();
    let response = client.poll_response(STREAM, Instant::now()).unwrap();
    assert_eq!(names(&response), ["a"]);
    assert_eq!(response.contents.removed, ["zz".into()]);
    assert!(client.poll_response(STREAM, Instant::now()).is_none());
}
