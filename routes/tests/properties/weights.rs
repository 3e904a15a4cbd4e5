//! A change of weights changes weights; an object that is wrong changes nothing of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use xds_cache::{Profile, Resource, ResourceType};
use xds_routes::Translation;

use crate::support::CODEC;

use super::documents::worlds;
use super::{config, translated};

/// Gives every rule other weights, whose sum is 0 only where it was before.
fn reweigh(documents: &mut [Json], weights: &mut impl Iterator<Item = u32>) {
    for document in documents {
        if document["kind"] == "TrafficSplit" {
            for backend in document["spec"]["backends"].as_array_mut().into_iter().flatten() {
                if backend["weight"] != 0 {
                    backend["weight"] = json!(weights.next().unwrap_or(1) + 1);
                }
            }
        }
        for rule in document.pointer_mut("/spec/rules").and_then(Json::as_array_mut).into_iter().flatten() {
            let Some(backends) = rule.get_mut("backendRefs").and_then(Json::as_array_mut) else { continue };
            if backends.iter().all(|backend| backend["weight"] == 0) {
                continue;
            }
            for backend in backends.iter_mut() {
                backend["weight"] = json!(weights.next().unwrap_or(1));
            }
            if backends.iter().all(|backend| backend["weight"] == 0) {
                backends[0]["weight"] = json!(7);
            }
        }
        let routes = document.get_mut("routes").and_then(Json::as_object_mut);
        for route in routes.into_iter().flat_map(|routes| routes.values_mut()) {
            for rule in route["rules"].as_array_mut().into_iter().flatten() {
                let Some(to) = rule.get_mut("to").and_then(Json::as_object_mut) else { continue };
                if to.values().all(|weight| *weight == 0) {
                    continue;
                }
                to.values_mut().for_each(|weight| *weight = json!(weights.next().unwrap_or(1) + 1));
            }
        }
    }
}

/// The message without the weights of clusters.
fn stripped(message: &Json) -> Json {
    match message {
        Json::Object(fields) => {
            let rest = fields.iter().filter(|(name, _)| *name != "weight");
            rest.map(|(name, value)| (name.clone(), stripped(value))).collect()
        }
        Json::Array(items) => items.iter().map(stripped).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => message.clone(),
    }
}

/// Every resource by group, profile and name.
fn resources(translation: &Translation) -> BTreeMap<String, Arc<Resource>> {
    let mut all = BTreeMap::new();
    for (name, group) in &translation.groups {
        for (profile, resources) in &group.profiles {
            for (key, resource) in resources {
                all.insert(format!("{name} {profile:?} {key}"), Arc::clone(resource));
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn other_weights_change_nothing_but_weights(documents in worlds(), weights in vec(0..1_000_u32, 64)) {
        let mut changed = documents.clone();
        reweigh(&mut changed, &mut weights.into_iter());
        let (before, after) = (translated(&documents), translated(&changed));
        let (before, after) = (resources(&before), resources(&after));
        prop_assert!(before.keys().eq(after.keys()), "{:?}\n{:?}", before.keys(), after.keys());
        for (name, resource) in before {
            let changed = &after[&name];
            if resource.version() != changed.version() {
                prop_assert_eq!(resource.resource_type(), &ResourceType::RouteConfiguration);
                let (resource, changed) = (CODEC.to_json(&resource), CODEC.to_json(changed));
                prop_assert_eq!(stripped(&resource), stripped(&changed), "{}", name);
            }
        }
    }

    /// A route whose backends are not there, one to a Gateway that is not there, and a split whose root is not there: the others
    /// keep what they have. Being the youngest, the new route takes no host from another.
    #[test]
    fn what_is_wrong_takes_nothing_from_the_others(documents in worlds(), kind in prop::sample::select(vec!["GRPCRoute", "HTTPRoute"])) {
        let route = |name: &str, parent: &str| json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "zzz"},
            "spec": {
                "parentRefs": [{"name": parent, "namespace": "default"}],
                "hostnames": ["new.example.org"],
                "rules": [{"backendRefs": [{"name": "nobody", "port": 1, "weight": 3}, {"kind": "Nothing", "name": "a"}]}],
            },
        });
        let split = json!({
            "apiVersion": "split.smi-spec.io/v1alpha4",
            "kind": "TrafficSplit",
            "metadata": {"name": "z", "namespace": "zzz"},
            "spec": {"service": "nobody", "backends": [{"service": "nobody-v1", "weight": 1}]},
        });
        let mut more = documents.clone();
        more.extend([route("no-backend", "edge"), route("no-gateway", "nowhere-at-all"), split]);
        let (before, after) = (translated(&documents), translated(&more));
        let after_resources = resources(&after);
        for (name, resource) in resources(&before) {
            let Some(found) = after_resources.get(&name) else {
                return Err(TestCaseError::fail(format!("{name} is gone")));
            };
            if found.version() != resource.version() {
                let (found, resource) = (CODEC.to_json(found), CODEC.to_json(&resource));
                prop_assert_eq!(without_new_host(&found), without_new_host(&resource), "{}", name);
            }
        }
        for (key, status) in &before.conditions.objects {
            if key.kind != xds_routes::Kind::Gateway {
                prop_assert_eq!(after.conditions.objects.get(key), Some(status), "{}", key);
            }
        }
    }
}

/// A RouteConfiguration without the host of the new route.
fn without_new_host(message: &Json) -> Json {
    let mut message = message.clone();
    if let Some(fields) = message.as_object_mut()
        && let Some(Json::Array(mut hosts)) = fields.remove("virtual_hosts")
    {
        hosts.retain(|host| host["domains"] != json!(["new.example.org"]));
        fields.extend((!hosts.is_empty()).then(|| ("virtual_hosts".to_owned(), hosts.into())));
    }
    message
}

/// The order of GRPCRoutes on one host is that of a model which shares no code with the plan.
mod precedence {
    use super::*;

    /// Characters of the service and the method, the number of headers, age, name, rule, match: larger first, or smaller.
    fn key(
        document: &Json,
        rule: usize,
        one: usize,
        matches: &Json,
    ) -> (i64, i64, i64, String, String, usize, usize) {
        let length = |field: &str| {
            let text = matches["method"][field].as_str().unwrap_or_default();
            -i64::try_from(text.chars().count()).unwrap_or_default()
        };
        let names: std::collections::BTreeSet<String> = matches["headers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|header| Some(header["name"].as_str()?.to_lowercase()))
            .collect();
        let metadata = &document["metadata"];
        let age = metadata["creationTimestamp"].as_str().unwrap_or("9999").to_owned();
        let name = format!("{}/{}", metadata["namespace"], metadata["name"]).replace('"', "");
        (
            length("service"),
            length("method"),
            -i64::try_from(names.len()).unwrap_or_default(),
            age,
            name,
            rule,
            one,
        )
    }

    proptest! {
        #![proptest_config(config(128))]

        #[test]
        fn grpc_routes_are_in_the_order_of_the_gateway_api(documents in worlds()) {
            let mut routes: Vec<Json> =
                documents.into_iter().filter(|document| document["kind"] == "GRPCRoute").collect();
            let mut expected = Vec::new();
            for document in &mut routes {
                document["spec"]["parentRefs"] = json!([]);
                document["spec"]["hostnames"] = json!([]);
                for (index, rule) in document.pointer_mut("/spec/rules").and_then(Json::as_array_mut).into_iter().flatten().enumerate() {
                    rule.as_object_mut().map(|rule| rule.remove("name"));
                    if rule["matches"].as_array().is_none_or(Vec::is_empty) {
                        rule["matches"] = json!([{}]);
                    }
                    let _ = index;
                }
                let metadata = &document["metadata"];
                let route = format!("GRPCRoute/{}/{}", metadata["namespace"], metadata["name"]).replace('"', "");
                for (rule, value) in document["spec"]["rules"].as_array().into_iter().flatten().enumerate() {
                    for (one, matches) in value["matches"].as_array().into_iter().flatten().enumerate() {
                        expected.push((key(document, rule, one, matches), format!("{route}/{rule}/{one}")));
                    }
                }
            }
            expected.sort();
            let names: Vec<&String> = expected.iter().map(|(_, name)| name).collect();
            let translation = translated(&routes);
            let found: Vec<String> = resources(&translation)
                .into_iter()
                .filter(|(name, _)| name.contains(&format!("{:?}", Profile::Envoy)) && name.contains("RouteConfiguration"))
                .map(|(_, resource)| CODEC.to_json(&resource))
                .flat_map(|message| message["virtual_hosts"][0]["routes"].as_array().cloned().unwrap_or_default())
                .filter_map(|route| Some(route["name"].as_str()?.to_owned()))
                .filter(|name| !name.contains("/session/"))
                .collect();
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), names);
        }
    }
}
