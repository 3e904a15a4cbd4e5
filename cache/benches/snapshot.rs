//! Costs of building a snapshot: merging layers, compiling a view, publishing one change among many resources, groups or views.
//!
//! Compare ratios between two runs on one machine; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use xds_cache::layer::{EffectiveGroup, Generated, Groups, LayerGroup, Resources, merge};
use xds_cache::{
    GroupName, Layer, Node, NodeGroup, Publisher, Resource, ResourceType, Revision, ViewReceiver,
};

/// A layer of clusters with their endpoints in the default group.
fn layer(n_clusters: usize) -> Layer {
    let mut group = LayerGroup::default();
    for i in 0..n_clusters {
        for resource_type in [ResourceType::Cluster, ResourceType::ClusterLoadAssignment] {
            let resource = Resource::plain(resource_type, &format!("service-{i:06}"), format!("{:0>110}", 0));
            group.resources.insert(Arc::new(resource));
        }
    }
    Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() }
}

fn cluster(name: &str, content: usize) -> Arc<Resource> {
    Arc::new(Resource::plain(ResourceType::Cluster, name, format!("{content:0>110}")))
}

/// `groups` with a resource put into one of them, which is made if there is none.
fn put(groups: &mut Groups, name: &str, resource: Arc<Resource>) {
    let name = GroupName::new(name).unwrap();
    let mut resources: Resources = groups.get(&name).map(|group| group.resources.clone()).unwrap_or_default();
    resources.insert(resource);
    let definition =
        if name.is_default() { NodeGroup::default_group() } else { NodeGroup::for_node_id(name.clone()) };
    let group = EffectiveGroup::new(definition, resources);
    groups.insert(name, Arc::new(group));
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot");
    for n in [100, 1_000, 10_000] {
        group.throughput(Throughput::Elements(2 * n as u64));
        let overrides = Layer::default();
        let base = layer(n);
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
    }
    group.finish();
}

/// A world that is followed, and one resource of it that goes to and fro.
struct World {
    publisher: Publisher,
    generations: [Groups; 2],
    revision: u64,
    _followers: Vec<ViewReceiver>,
}

impl World {
    /// `n_groups` groups with a cluster each, over `n_shared` clusters in the default group; of the nodes of `n_followed` groups
    /// somebody follows. `changed` is what changes: the group and the name.
    fn new(n_groups: usize, n_shared: usize, n_followed: usize, changed: (&str, &str)) -> Self {
        let mut groups = merge(&layer(n_shared / 2), &Layer::default(), &Generated::new());
        (0..n_groups).for_each(|i| put(&mut groups, &format!("n{i}"), cluster("own", 0)));
        let publisher = Publisher::new();
        publisher.publish(Revision(0), groups.clone());
        let nodes = (0..n_followed.max(1)).map(|i| Node::with_id(&format!("n{i}")));
        let followers = if n_followed == 0 && n_groups > 0 {
            vec![]
        } else {
            nodes.map(|n| publisher.follow(&n)).collect()
        };
        let generations = [1, 2].map(|content| {
            let mut groups = groups.clone();
            put(&mut groups, changed.0, cluster(changed.1, content));
            groups
        });
        Self { publisher, generations, revision: 0, _followers: followers }
    }

    fn publish(&mut self) -> usize {
        self.revision += 1;
        let groups = self.generations[self.revision as usize % 2].clone();
        self.publisher.publish(Revision(self.revision), groups).views.len()
    }
}

fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("publish");
    for n in [10_000, 300_000] {
        let mut world = World::new(0, n, 1, ("default", "service-000000"));
        group.bench_function(BenchmarkId::new("one resource of", n), |b| b.iter(|| world.publish()));
    }
    for n_followed in [0, 5_000] {
        let mut world = World::new(5_000, 100, n_followed, ("n7", "own"));
        group.bench_function(BenchmarkId::new("one group of 5000, streams", n_followed), |b| {
            b.iter(|| world.publish());
        });
    }
    let mut world = World::new(1_000, 2_000, 1_000, ("default", "service-000000"));
    group.bench_function("one of 2000 in default, below 1000 groups", |b| b.iter(|| world.publish()));
    group.finish();
}

fn create(c: &mut Criterion) {
    let mut group = c.benchmark_group("groups created one by one");
    group.sample_size(10);
    for n in [500, 5_000] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter(|| {
                let mut groups = merge(&layer(50), &Layer::default(), &Generated::new());
                let publisher = Publisher::new();
                publisher.publish(Revision(0), groups.clone());
                let create = |i: usize| {
                    let name = format!("n{i}");
                    put(&mut groups, &name, cluster("own", 0));
                    publisher.publish(Revision(1 + i as u64), groups.clone());
                    publisher.follow(&Node::with_id(&name))
                };
                (0..n).map(create).collect::<Vec<_>>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, build, publish, create);
criterion_main!(benches);
