//! Properties of every plan.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::Value as Json;

use super::random::{plans, weight};
use super::{emit, faults, messages};
use crate::emit::all;
use crate::input::Options;
use crate::plan::{Action, Plan, PlannedRoute};

fn config() -> Config {
    Config { cases: 150, failure_persistence: None, ..Config::default() }
}

fn routes(plan: &mut Plan) -> impl Iterator<Item = &mut PlannedRoute> {
    let chains = plan.ports.iter_mut().flat_map(|port| &mut port.chains);
    let hosts = chains.flat_map(|chain| &mut chain.hosts);
    hosts
        .flat_map(|host| &mut host.routes)
        .chain(plan.services.iter_mut().flat_map(|service| &mut service.routes))
}

/// Other weights for the same targets, never all 0.
fn reweigh(plan: &mut Plan, weights: &[u32]) {
    let mut weights = weights.iter().cycle();
    for route in routes(plan) {
        let Action::Forward(targets) = &mut route.action else { continue };
        for (target, weight) in targets.iter_mut().zip(&mut weights) {
            target.weight = *weight;
        }
        if targets.iter().all(|target| target.weight == 0) {
            targets[0].weight = 1;
        }
    }
}

/// Calls `visit` for every object in a message.
fn visit(message: &Json, found: &mut impl FnMut(&serde_json::Map<String, Json>)) {
    match message {
        Json::Object(fields) => {
            found(fields);
            fields.values().for_each(|value| visit(value, found));
        }
        Json::Array(items) => items.iter().for_each(|item| visit(item, found)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The message with every `weight` gone.
fn without_weights(message: &Json) -> Json {
    match message {
        Json::Object(fields) => {
            let rest = fields.iter().filter(|(name, _)| *name != "weight");
            rest.map(|(name, value)| (name.clone(), without_weights(value))).collect()
        }
        Json::Array(items) => items.iter().map(without_weights).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => message.clone(),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn resources_are_valid_distinct_and_refer_to_each_other(plan in plans(), merges_route_kinds in any::<bool>()) {
        let options = Options { merges_route_kinds, ..Options::default() };
        let found = faults(&emit(&plan, &options));
        prop_assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn a_change_of_weights_changes_weights_only(plan in plans(), weights in prop::collection::vec(weight(), 1..20)) {
        let mut changed = plan.clone();
        reweigh(&mut changed, &weights);
        let [old, new] = [plan, changed].map(|plan| {
            let emitted = all(|emit| super::envoy(&plan, &Options::default(), emit));
            emitted.iter().map(|emitted| without_weights(&emitted.whole())).collect::<Vec<_>>()
        });
        prop_assert_eq!(old, new);
    }

    #[test]
    fn what_has_the_same_fingerprint_says_the_same(plan in plans(), other in plans(), weights in prop::collection::vec(weight(), 1..20)) {
        let mut reweighed = plan.clone();
        reweigh(&mut reweighed, &weights);
        let mut messages = BTreeMap::new();
        for plan in [&plan, &reweighed, &other] {
            for emitted in all(|emit| super::envoy(plan, &Options::default(), emit)) {
                let (fingerprint, message) = (emitted.fingerprint.to_string(), emitted.whole());
                prop_assert_eq!(messages.entry(fingerprint).or_insert_with(|| message.clone()), &message);
            }
        }
    }

    #[test]
    fn every_split_has_a_share_and_every_locality_a_weight(plan in plans()) {
        let resources = emit(&plan, &Options::default());
        for configuration in messages(&resources, "RouteConfiguration") {
            visit(&configuration, &mut |fields| {
                let Some(clusters) = fields.get("clusters").and_then(Json::as_array) else { return };
                let sum: u64 = clusters.iter().map(|entry| entry["weight"].as_u64().unwrap_or(0)).sum();
                assert!((1..=u64::from(u32::MAX)).contains(&sum), "{fields:?}");
            });
        }
        for assignment in messages(&resources, "ClusterLoadAssignment") {
            let localities = assignment["endpoints"].as_array().cloned().unwrap_or_default();
            let weights = localities.iter().map(|locality| locality["load_balancing_weight"].as_u64().unwrap_or(0));
            let weights: Vec<u64> = weights.collect();
            assert!(weights.iter().all(|weight| *weight > 0), "{assignment:#}");
            assert!(weights.iter().sum::<u64>() <= u64::from(u32::MAX), "{assignment:#}");
        }
    }
}
