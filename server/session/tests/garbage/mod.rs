//! Calls of a client's public interface with anything in them (P6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use xds_cache::layer::{EffectiveGroup, Groups};
use xds_cache::status::{StreamId, Variant};
use xds_cache::{Node, NodeGroup, Publisher, Resource, ResourceKey, Revision};
use xds_session::{Client, DeltaRequest, Limits, Nonce, Request, SotwRequest};

use crate::check::check;
use crate::properties::SEED;
use crate::world::{self, N_KINDS};

/// One call.
#[derive(Clone, Debug)]
enum Call {
    Request { stream: u64, request: Request },
    Publish(Vec<(usize, String, u8)>),
    Poll { stream: u64, after_ms: u64 },
    Close(u64),
    Open { stream: u64, is_delta: bool, service: Option<usize>, first_nonce: u64 },
}

fn texts() -> impl Strategy<Value = String> {
    let special = [
        "",
        "*",
        "a",
        "b",
        "r/a.io",
        "a.io:80",
        "*.io",
        "xdstp://a/envoy.config.listener.v3.Listener/a.io",
        "r/",
        "/",
        "xdstp://",
        "xdstp://a/T/*",
        "xdstp://a/T/x?b=1&a=2",
        "xdstp://a/T/x#",
    ];
    prop_oneof![
        4 => (0..special.len()).prop_map(move |i| special[i].to_owned()),
        1 => vec(any::<char>(), 0..8).prop_map(String::from_iter),
        1 => vec(prop::sample::select(&['a', '%', '/', '?', '&', '=', '#', '*'][..]), 0..9)
            .prop_map(|end| format!("xdstp://{}", String::from_iter(end))),
    ]
}

fn requests() -> impl Strategy<Value = Request> {
    let nonce = || {
        prop_oneof![
            Just(Nonce::None),
            (0..40_u64).prop_map(Nonce::Ours),
            any::<u64>().prop_map(Nonce::Ours),
            Just(Nonce::Foreign),
        ]
    };
    let node = || {
        prop_oneof![
            Just(None),
            (texts(), texts(), any::<bool>()).prop_map(|(id, user_agent_name, has_ttl)| {
                let features = ["xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"];
                let client_features =
                    features.iter().filter(|_| has_ttl).map(|feature| (*feature).to_owned()).collect();
                Some(Arc::new(Node { id, user_agent_name, client_features, ..Node::default() }))
            }),
        ]
    };
    let type_url = || {
        prop_oneof![
            8 => (0..N_KINDS).prop_map(|kind| world::resource_type(kind).type_url().to_owned()),
            1 => texts(),
        ]
    };
    let names = || vec(texts(), 0..6);
    let error = || prop::option::of(texts());
    let sotw = (node(), type_url(), texts(), names(), nonce(), error()).prop_map(
        |(node, type_url, version_info, resource_names, response_nonce, error_detail)| {
            SotwRequest { node, type_url, version_info, resource_names, response_nonce, error_detail }.into()
        },
    );
    let held = prop::collection::btree_map(texts(), texts(), 0..5);
    let delta = (node(), type_url(), names(), names(), held, nonce(), error()).prop_map(
        |(node, type_url, subscribe, unsubscribe, held, response_nonce, error_detail)| {
            let request = DeltaRequest {
                node,
                type_url,
                resource_names_subscribe: subscribe,
                resource_names_unsubscribe: unsubscribe,
                initial_resource_versions: held,
                response_nonce,
                error_detail,
            };
            request.into()
        },
    );
    prop_oneof![sotw, delta]
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        8 => (0..4_u64, requests()).prop_map(|(stream, request)| Call::Request { stream, request }),
        3 => vec((0..N_KINDS, texts(), 0..5_u8), 0..5).prop_map(Call::Publish),
        6 => (0..4_u64, 0..5000_u64).prop_map(|(stream, after_ms)| Call::Poll { stream, after_ms }),
        1 => (0..4_u64).prop_map(Call::Close),
        2 => (0..4_u64, any::<bool>(), prop::option::weighted(0.3, 0..N_KINDS), any::<u64>())
            .prop_map(|(stream, is_delta, service, first_nonce)| Call::Open { stream, is_delta, service, first_nonce }),
    ];
    vec(call, 1..30)
}

/// P6: no request panics, whatever is in it and whenever it comes; and the queries about a client do not either.
#[test]
fn no_request_panics() {
    let limits =
        (0..6_usize, 0..20_usize, 0..4_usize, 0..400_usize).prop_map(|(names, name, types, response)| {
            Limits {
                max_names_per_type: names,
                max_name_bytes: name,
                max_types: types,
                max_response_bytes: response,
                addition_grace: Duration::from_millis(names as u64 * 3000),
                removal_grace: Duration::from_millis(name as u64 * 1000),
                ..Limits::default()
            }
        });
    check(SEED, &(calls(), prop_oneof![limits, Just(Limits::default())]), |(calls, limits)| {
        let mut now = Instant::now();
        let publisher = Publisher::new();
        let mut client = Client::new(limits);
        let mut revision = 0;
        for stream in 0..2 {
            let variant = if stream == 0 { Variant::Sotw } else { Variant::Delta };
            client.open(StreamId(stream), variant, None, stream * 20);
        }
        for call in calls {
            match call {
                Call::Request { stream, request } => drop(client.handle_request(StreamId(stream), request)),
                Call::Publish(resources) => {
                    revision += 1;
                    publisher.publish(Revision(revision), groups(&resources));
                    let view = publisher.follow(client.node().unwrap_or(&Arc::default())).take();
                    view.into_iter().for_each(|view| client.handle_view(view));
                }
                Call::Poll { stream, after_ms } => {
                    now += Duration::from_millis(after_ms);
                    client.handle_timeout(now);
                    let n = (0..1000)
                        .take_while(|_| client.poll_response(StreamId(stream), now).is_some())
                        .count();
                    if n == 1000 {
                        return Err("P2: the session does not fall silent".into());
                    }
                    drop(client.holdings(StreamId(stream)));
                }
                Call::Close(stream) => client.handle_close(StreamId(stream)),
                Call::Open { stream, is_delta, service, first_nonce } => {
                    let variant = if is_delta { Variant::Delta } else { Variant::Sotw };
                    client.open(StreamId(stream), variant, service.map(world::resource_type), first_nonce);
                }
            }
            while client.poll_event().is_some() || client.poll_wake().is_some() {}
        }
        Ok(())
    });
}

fn groups(resources: &[(usize, String, u8)]) -> Groups {
    let definition = NodeGroup::default_group();
    let resource = |(kind, name, content): &(usize, String, u8)| {
        let mut draft = world::resource(*kind, "r/v0", *content).to_draft();
        let resource_type = draft.key.resource_type.clone();
        draft.key = ResourceKey { resource_type, name: name.as_str().into() }.into();
        draft.ttl = (*content == 1).then_some(Duration::from_secs(u64::from(*content)));
        Arc::new(Resource::new(draft))
    };
    let resources = resources.iter().map(resource).collect();
    let name = definition.name.clone();
    Groups::from_iter([(name, Arc::new(EffectiveGroup::new(definition, resources)))])
}
