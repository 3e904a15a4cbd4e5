//! Properties of every plan.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::Value as Json;

use super::emit;
use super::plans::{plans, weight};
use crate::emit::grpc::grpc;
use crate::emit::{Emitted, FoundBy, all};
use crate::input::Options;
use crate::plan::{Action, Plan, PlannedRoute};

fn config() -> Config {
    Config { cases: 400, failure_persistence: None, ..Config::default() }
}

fn routes(plan: &mut Plan) -> impl Iterator<Item = &mut PlannedRoute> {
    let chains = plan.ports.iter_mut().flat_map(|port| &mut port.chains);
    let hosts = chains.flat_map(|chain| &mut chain.hosts);
    hosts.flat_map(|host| &mut host.routes).chain(plan.services.iter_mut().flat_map(|it| &mut it.routes))
}

/// Other weights for the same targets, never all 0.
fn reweigh(plan: &mut Plan, weights: &[u32]) {
    let mut weights = weights.iter().cycle();
    for route in routes(plan) {
        let Action::Forward(targets) = &mut route.action else { continue };
        for (target, weight) in targets.iter_mut().zip(&mut weights) {
            target.weight = *weight;
        }
        if targets.iter().all(|target| target.weight == 0)
            && let Some(first) = targets.first_mut()
        {
            first.weight = 1;
        }
    }
}

/// Takes the weights of weighted clusters out.
fn without_weights(mut message: Json) -> Json {
    fn visit(value: &mut Json) {
        match value {
            Json::Object(fields) => {
                if let Some(Json::Array(clusters)) =
                    fields.get_mut("weighted_clusters").and_then(|it| it.get_mut("clusters"))
                {
                    for cluster in clusters.iter_mut().filter_map(Json::as_object_mut) {
                        cluster.remove("weight").expect("every entry has one");
                    }
                }
                fields.values_mut().for_each(visit);
            }
            Json::Array(items) => items.iter_mut().for_each(visit),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    visit(&mut message);
    message
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_client_refuses_what_is_emitted(plan in plans(), is_grpc_strict: bool) {
        let outcome = emit(&plan, &Options { is_grpc_strict, ..Options::default() });
        prop_assert_eq!(outcome.faults(), Vec::<String>::new());
    }

    #[test]
    fn changed_weights_change_nothing_but_weights(plan in plans(), weights in prop::collection::vec(weight(), 1..9)) {
        let mut other = plan.clone();
        reweigh(&mut other, &weights);
        let messages = |plan: &Plan| -> Vec<Json> {
            let emitted = all(|emit| _ = grpc(plan, &Options::default(), emit));
            emitted.iter().flat_map(Emitted::messages).map(without_weights).collect()
        };
        prop_assert_eq!(messages(&plan), messages(&other));
    }

    #[test]
    fn the_same_plan_gives_the_same(plan in plans()) {
        let (one, other) = (emit(&plan, &Options::default()), emit(&plan, &Options::default()));
        prop_assert_eq!((&one.emitted, &one.losses), (&other.emitted, &other.losses));
        prop_assert!(one.losses.is_sorted());
    }

    #[test]
    fn what_has_the_same_fingerprint_says_the_same(plan in plans(), other in plans(), weights in prop::collection::vec(weight(), 1..9)) {
        let mut reweighed = plan.clone();
        reweigh(&mut reweighed, &weights);
        let mut messages = BTreeMap::new();
        for plan in [&plan, &reweighed, &other] {
            for emitted in all(|emit| _ = grpc(plan, &Options::default(), emit)) {
                let (fingerprint, said) = (emitted.fingerprint.to_string(), emitted.messages());
                prop_assert_eq!(messages.entry(fingerprint).or_insert_with(|| said.clone()), &said);
            }
        }
    }

    #[test]
    fn strict_takes_no_route_that_lax_leaves_out(plan in plans()) {
        let names = |is_grpc_strict| -> Vec<String> {
            let outcome = emit(&plan, &Options { is_grpc_strict, ..Options::default() });
            let hosts = outcome.messages().into_iter().flat_map(|it| it["virtual_hosts"].as_array().cloned().unwrap_or_default());
            let routes = hosts.flat_map(|host| host["routes"].as_array().cloned().unwrap_or_default());
            routes.map(|route| route["name"].to_string()).filter(|name| name != "\"no-route\"").collect()
        };
        let lax = names(false);
        prop_assert!(names(true).iter().all(|name| lax.contains(name)));
    }

    #[test]
    fn only_wildcard_hosts_are_patterns(plan in plans()) {
        let outcome = emit(&plan, &Options::default());
        for (found_by, message) in &outcome.emitted {
            let is_wildcard = message["name"].as_str().is_some_and(|name| name.starts_with('*'));
            let expected = match (message["api_listener"].is_object(), is_wildcard) {
                (true, true) => FoundBy::Pattern,
                (true, false) => FoundBy::Authority,
                (false, _) => FoundBy::Name,
            };
            prop_assert_eq!(*found_by, expected);
        }
    }
}
