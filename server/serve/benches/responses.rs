//! Costs of finding out what a client is owed, and of encoding it.
//!
//! Compare ratios between two runs on one machine; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{GroupName, Node, NodeGroup, Publisher, Resource, ResourceType, Revision, View};
use xds_server::grpc::encode::Body;
use xds_session::{Client, DeltaRequest, Limits, Request, SotwRequest};

const STREAM: StreamId = StreamId(1);

/// Two views of `n` clusters of 110 bytes that differ in one.
fn views(n: usize) -> [Arc<View>; 2] {
    let publisher = Publisher::new();
    let mut group = EffectiveGroup {
        definition: NodeGroup::default_group(),
        label: None,
        resources: (0..n).map(|i| cluster(i, 0)).collect(),
        generated: std::collections::BTreeMap::new(),
        withheld: Arc::default(),
    };
    let mut publish = |revision| {
        let changed = cluster(0, revision);
        group.resources.insert(changed);
        let groups = Groups::from_iter([(GroupName::default_group(), Arc::new(group.clone()))]);
        publisher.publish(Revision(revision), groups);
        publisher.follow(&Node::with_id("n")).take().unwrap()
    };
    [publish(1), publish(2)]
}

fn cluster(i: usize, content: u64) -> Arc<Resource> {
    Arc::new(Resource::plain(ResourceType::Cluster, &format!("service-{i:06}"), format!("{content:0>110}")))
}

/// A client that takes all clusters and has those of `view`.
fn settled(variant: Variant, view: &Arc<View>) -> Client {
    let mut client = Client::new(Limits::default());
    client.open(STREAM, variant, None, 1);
    let node = Some(Arc::new(Node::with_id("n")));
    let type_url = ResourceType::Cluster.type_url().to_owned();
    let request: Request = match variant {
        Variant::Sotw => SotwRequest { node, type_url, ..SotwRequest::default() }.into(),
        Variant::Delta => DeltaRequest { node, type_url, ..DeltaRequest::default() }.into(),
    };
    client.handle_request(STREAM, request).unwrap();
    client.handle_view(Arc::clone(view));
    while client.poll_response(STREAM, Instant::now()).is_some() {}
    client
}

fn owed(c: &mut Criterion) {
    let mut group = c.benchmark_group("owed for one change");
    for n in SIZES {
        let [before, after] = views(n);
        for variant in VARIANTS {
            group.bench_with_input(BenchmarkId::new(variant.as_str(), n), &n, |b, _| {
                b.iter_batched_ref(
                    || settled(variant, &before),
                    |client| {
                        client.handle_view(Arc::clone(&after));
                        client.poll_response(STREAM, Instant::now()).unwrap()
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    for n in SIZES {
        let [before, after] = views(n);
        for variant in VARIANTS {
            let mut client = settled(variant, &before);
            client.handle_view(Arc::clone(&after));
            let contents = client.poll_response(STREAM, Instant::now()).unwrap().contents;
            group.throughput(Throughput::Bytes(Body::new(&contents, "bench").len() as u64));
            group.bench_with_input(BenchmarkId::new(variant.as_str(), n), &contents, |b, contents| {
                b.iter(|| Body::new(black_box(contents), "bench"));
            });
        }
    }
    group.finish();
}

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

criterion_group!(benches, owed, encode);
criterion_main!(benches);
