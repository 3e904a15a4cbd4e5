//! What it costs to build a snapshot: merging layers, compiling a view, publishing one change among many resources.
//!
//! Compare ratios between two runs on one machine; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use xds_cache::layer::{Generated, LayerGroup, merge};
use xds_cache::{GroupName, Layer, Node, Publisher, Resource, ResourceType, Revision};

/// A layer of clusters with their endpoints in the default group.
fn layer(n_clusters: usize, generation: usize) -> Layer {
    let mut group = LayerGroup::default();
    for i in 0..n_clusters {
        for resource_type in [ResourceType::Cluster, ResourceType::ClusterLoadAssignment] {
            // One resource differs between generations.
            let content = format!("{:0>110}", if i == 0 { generation } else { 0 });
            let resource = Resource::plain(resource_type, &format!("service-{i:06}"), content);
            group.resources.insert(resource.key().clone(), Arc::new(resource));
        }
    }
    Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() }
}

/// `changed` with everything taken from `base` that is equal, as the sources do it.
fn sharing(base: &Layer, changed: &Layer) -> Layer {
    let mut shared = base.clone();
    for (name, group) in &changed.groups {
        let under = shared.groups.entry(name.clone()).or_default();
        for (key, resource) in &group.resources {
            if under.resources.get(key).is_none_or(|before| before.version() != resource.version()) {
                under.resources.insert(key.clone(), Arc::clone(resource));
            }
        }
    }
    shared
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot");
    for n in [100, 1_000, 10_000] {
        group.throughput(Throughput::Elements(2 * n as u64));
        let overrides = Layer::default();
        let base = layer(n, 0);
        group.bench_with_input(BenchmarkId::new("merge", n), &base, |b, base| {
            b.iter(|| merge(black_box(base), &overrides, &Generated::new()));
        });
        let groups = merge(&base, &overrides, &Generated::new());
        group.bench_with_input(BenchmarkId::new("first view", n), &groups, |b, groups| {
            b.iter_batched(
                || {
                    let publisher = Publisher::new();
                    publisher.publish(Revision(1), groups.clone());
                    publisher
                },
                |publisher| publisher.follow(&Node::with_id("n")),
                BatchSize::SmallInput,
            );
        });
        let generations =
            [merge(&sharing(&base, &layer(n, 1)), &overrides, &Generated::new()), groups.clone()];
        group.bench_with_input(BenchmarkId::new("publish one change", n), &generations, |b, generations| {
            let publisher = Publisher::new();
            publisher.publish(Revision(0), groups.clone());
            let _receiver = publisher.follow(&Node::with_id("n"));
            let mut revision = 0;
            b.iter(|| {
                revision += 1;
                publisher.publish(Revision(revision), generations[revision as usize % 2].clone())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, build);
criterion_main!(benches);
