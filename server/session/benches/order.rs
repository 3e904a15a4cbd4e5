//! What it costs to bring one client from one view to the next, with its answers.
//!
//! Compare ratios between sizes in one run; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use xds_cache::layer::{EffectiveGroup, Groups, Resources};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{
    GroupName, Node, NodeGroup, Publisher, Reference, Resource, ResourceDraft, ResourceKey, ResourceType,
    Revision, View,
};
use xds_session::{Client, DeltaRequest, Limits, Nonce};

const STREAM: StreamId = StreamId(1);

/// Two views of a route configuration of `n` hosts, each with two clusters, that differ in one weight.
fn routes(n: usize) -> [Arc<View>; 2] {
    let publisher = Publisher::new();
    let cluster_key = |i: usize| ResourceKey {
        resource_type: ResourceType::Cluster,
        name: format!("service-{i:06}").into(),
    };
    let reference = |i: usize| Reference {
        to: cluster_key(i).into(),
        path: format!("virtual_hosts[{}].routes[0].route.weighted_clusters.clusters[{}].name", i / 2, i % 2)
            .into(),
    };
    let mut resources: Resources = (0..2 * n)
        .map(|i| Arc::new(Resource::plain(ResourceType::Cluster, &cluster_key(i).name, "cluster")))
        .collect();
    let mut publish = |revision: u64| {
        let plain = Resource::plain(
            ResourceType::RouteConfiguration,
            "routes",
            format!("{revision}{}", "x".repeat(170 * n)),
        );
        let references = (0..2 * n).map(reference).collect();
        let changed = Arc::new(Resource::new(ResourceDraft { references, ..plain.to_draft() }));
        resources.insert(changed);
        let group = EffectiveGroup::new(NodeGroup::default_group(), resources.clone());
        let groups = Groups::from_iter([(GroupName::default_group(), Arc::new(group))]);
        publisher.publish(Revision(revision), groups);
        publisher.follow(&Node::with_id("n")).take().unwrap()
    };
    [publish(1), publish(2)]
}

/// Takes whatever is to be sent, and accepts it, until nothing is.
fn accept_all(client: &mut Client) -> usize {
    let mut n = 0;
    while let Some(response) = client.poll_response(STREAM, Instant::now()) {
        let request = DeltaRequest {
            type_url: response.contents.resource_type.type_url().to_owned(),
            response_nonce: Nonce::Ours(response.nonce),
            ..DeltaRequest::default()
        };
        client.handle_request(STREAM, request.into()).unwrap();
        while client.poll_event().is_some() {}
        n += 1;
    }
    n
}

/// A client that has everything of `view`, as an Envoy that takes all clusters.
fn brought_up(view: &Arc<View>) -> Client {
    let mut client = Client::new(Limits::default());
    client.open(STREAM, Variant::Delta, None, 1);
    let node = Some(Arc::new(Node::with_id("n")));
    for (of, names) in
        [(ResourceType::Cluster, vec![]), (ResourceType::RouteConfiguration, vec!["routes".to_owned()])]
    {
        let request = DeltaRequest {
            node: node.clone(),
            type_url: of.type_url().to_owned(),
            resource_names_subscribe: names,
            ..DeltaRequest::default()
        };
        client.handle_request(STREAM, request.into()).unwrap();
    }
    client.handle_view(Arc::clone(view));
    accept_all(&mut client);
    client
}

fn weight(c: &mut Criterion) {
    let mut group = c.benchmark_group("one weight to one client, with its ACK");
    for n in SIZES {
        let [before, after] = routes(n);
        group.bench_with_input(BenchmarkId::from_parameter(n), &n, |b, _| {
            b.iter_batched_ref(
                || brought_up(&before),
                |client| {
                    client.handle_view(Arc::clone(&after));
                    assert_eq!(accept_all(client), 1);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

const SIZES: [usize; 4] = [100, 1_000, 3_000, 10_000];

criterion_group!(benches, weight);
criterion_main!(benches);
