//! Costs of encoding generated resources: by the codec, and by stencils, for each profile and type.
//!
//! Compare ratios between the two in one run; absolute times mean little elsewhere.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark whose documents are wrong must not go on"
)]

mod support;

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::Value as Json;
use xds_codec::{Codec, Stencils};
use xds_routes::{Options, translate};

const N_ROUTES: usize = 300;

/// The messages that documents give, by profile and type; virtual hosts one by one.
fn messages(codec: &Codec) -> BTreeMap<String, Vec<Json>> {
    let translation = translate(codec, &support::documents(N_ROUTES), &Options::default(), None);
    let mut messages: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for (profile, resources) in translation.groups.values().flat_map(|group| &group.profiles) {
        for resource in resources.values() {
            let mut message = codec.to_json_with_secrets(resource);
            let name = resource.resource_type().message_name();
            let name = name.rsplit('.').next().unwrap_or(name);
            let hosts = message.get_mut("virtual_hosts").map(Json::take);
            let of_hosts = messages.entry(format!("{profile:?} VirtualHost")).or_default();
            for mut host in hosts.as_ref().and_then(Json::as_array).cloned().unwrap_or_default() {
                host["@type"] = "type.googleapis.com/envoy.config.route.v3.VirtualHost".into();
                of_hosts.push(host);
            }
            if let Some(hosts) = hosts {
                message["virtual_hosts"] = hosts;
            }
            messages.entry(format!("{profile:?} {name}")).or_default().push(message);
        }
    }
    messages.retain(|_, messages| messages.len() >= N_ROUTES);
    messages
}

fn encoding(c: &mut Criterion) {
    let codec = Codec::new().expect("a codec");
    let mut group = c.benchmark_group("encode");
    group.sample_size(10);
    for (name, messages) in messages(&codec) {
        group.throughput(Throughput::Elements(u64::try_from(messages.len()).expect("a number")));
        group.bench_function(BenchmarkId::new(&name, "codec"), |b| {
            b.iter(|| {
                messages.iter().for_each(|message| drop(black_box(codec.resource_from_json(message))));
            });
        });
        group.bench_function(BenchmarkId::new(&name, "stencils"), |b| {
            b.iter(|| {
                let mut stencils = Stencils::new(&codec);
                messages.iter().for_each(|message| drop(black_box(stencils.resource(message))));
            });
        });
        group.bench_function(BenchmarkId::new(&name, "a copy of the JSON"), |b| {
            b.iter(|| messages.iter().for_each(|message| drop(black_box(message.clone()))));
        });
    }
    group.finish();
}

criterion_group!(benches, encoding);
criterion_main!(benches);
