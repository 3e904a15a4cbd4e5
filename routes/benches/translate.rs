//! Costs of translating many documents: from nothing, and again after the weights of one route have changed.
//!
//! Compare ratios between two runs on one machine; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark whose documents are wrong must not go on"
)]

mod support;

use std::cell::LazyCell;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use support::{add, documents, route};
use xds_codec::Codec;
use xds_routes::{Options, translate};

fn translation(c: &mut Criterion) {
    let codec = Codec::new().expect("a codec");
    let options = Options::default();
    let mut group = c.benchmark_group("translate");
    group.sample_size(10);
    for n in [1_000, 10_000] {
        group.throughput(Throughput::Elements(n));
        // Made when a benchmark asks, because one may be left out.
        let documents = LazyCell::new(|| documents(usize::try_from(n).expect("a number of routes")));
        let first = LazyCell::new(|| {
            let first = translate(&codec, &documents, &options, None);
            assert!(first.diagnostics.is_empty(), "{n} routes: {:?}", first.diagnostics);
            first
        });
        group.bench_function(BenchmarkId::new("from nothing", n), |b| {
            LazyCell::force(&documents);
            b.iter(|| translate(&codec, black_box(&documents), &options, None));
        });
        group.bench_function(BenchmarkId::new("one weight changed", n), |b| {
            let mut changed = documents.clone();
            add(&mut changed, &route(7, 20));
            LazyCell::force(&first);
            b.iter(|| translate(&codec, black_box(&changed), &options, Some(&first)));
        });
    }
    group.finish();
}

criterion_group!(benches, translation);
criterion_main!(benches);
