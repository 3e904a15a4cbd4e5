//! Weights of documents: those of each rule, and documents with overrides applied.
//!
//! A backend is identified by a text, which people and JSON merge patches can use:
//!
//! | kind | key |
//! |---|---|
//! | GRPCRoute, HTTPRoute | `name:port` of a Service; preceded by `namespace/` unless it is the route's; preceded by `Kind/` unless it is a Service |
//! | native Route | as under `to`: `backend` or `service:port`, with `namespace/` unless it is the route's |
//! | TrafficSplit | the service as written; its only rule is `0` |

mod clusters;
mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_codec::weights::{HeaderCondition, HeaderRoute, HeaderText, Overlay, RuleWeights};

pub use clusters::{ClusterNames, clusters};

use self::keys::{Weighted, ids, keys, split_keys, weighted};
use crate::model::{BackendRef, Document, HeaderMatch, HeaderValue, Kind, Match, Rule, Spec};

/// The rules of a document with their weights, in its order; `None` if its kind has no weights.
#[must_use]
pub fn rules(document: &Document) -> Option<Vec<RuleWeights>> {
    match weighted(document)? {
        Weighted::Route(route) => {
            let weights = |rule: &Rule| rule.backends.iter().map(|one| u64::from(one.weight)).collect();
            let rules = ids(route).into_iter().zip(&route.rules).map(|(id, rule)| {
                let weights: Vec<u64> = weights(rule);
                let keys = keys(&document.key, route.kind, rule);
                RuleWeights { id, backends: keys.into_iter().zip(weights).collect() }
            });
            Some(rules.collect())
        }
        Weighted::Split(split) => {
            let weights = split.backends.iter().map(|backend| backend.weight);
            let backends = split_keys(split).into_iter().zip(weights).collect();
            Some(vec![RuleWeights { id: SPLIT_RULE.to_owned(), backends }])
        }
    }
}

/// The kinds whose documents have weights.
pub const KINDS: [Kind; 4] = [Kind::GrpcRoute, Kind::HttpRoute, Kind::Route, Kind::TrafficSplit];

/// Returns `true` if documents of this kind can match headers. A split of SMI cannot.
#[must_use]
pub fn takes_header_routes(kind: Kind) -> bool {
    matches!(kind, Kind::GrpcRoute | Kind::HttpRoute | Kind::Route)
}

/// The rule of a TrafficSplit.
const SPLIT_RULE: &str = "0";

/// The document with other weights, by rule. Its `source` stays. If nothing differs, it is the same shared value.
#[must_use]
pub fn lay(document: &Arc<Document>, overlays: &BTreeMap<&str, &Overlay>) -> Arc<Document> {
    if weighted(document).is_none() {
        return Arc::clone(document);
    }
    let mut spec = document.spec.clone();
    if let Spec::Route(route) = &mut spec {
        let (ids, kind) = (ids(route), route.kind);
        let mut added = Vec::new();
        for (rule, id) in route.rules.iter_mut().zip(ids) {
            let Some(overlay) = overlays.get(id.as_str()) else { continue };
            let keys = keys(&document.key, kind, rule);
            added.extend(overlay.header_routes.iter().filter_map(|one| header_rule(rule, &keys, one)));
            for (backend, key) in rule.backends.iter_mut().zip(keys) {
                backend.weight = overlay.backends.get(&key).copied().unwrap_or(backend.weight);
            }
        }
        // The order of rules only decides between equal matches, and matches with more headers come first anyway. At the end, the new rules
        // do not change the index of other rules, which is in names.
        route.rules.extend(added);
    }
    if let Spec::TrafficSplit(split) = &mut spec
        && let Some(overlay) = overlays.get(SPLIT_RULE)
    {
        let keys = split_keys(split);
        for (backend, key) in split.backends.iter_mut().zip(keys) {
            backend.weight = overlay.backends.get(&key).map_or(backend.weight, |weight| u64::from(*weight));
        }
    }
    if spec == document.spec {
        return Arc::clone(document);
    }
    Arc::new(Document { spec, ..(**document).clone() })
}

/// A copy of a rule for requests with certain headers; `None` if the rule does not have the backend, or never matches such requests.
fn header_rule(rule: &Rule, keys: &[String], wanted: &HeaderRoute) -> Option<Rule> {
    let index = keys.iter().position(|key| *key == wanted.backend)?;
    let backend = BackendRef { weight: 1, ..rule.backends.get(index)?.clone() };
    let matches: Vec<Match> =
        rule.matches.iter().filter_map(|one| with_headers(one, &wanted.headers)).collect();
    if matches.is_empty() {
        return None;
    }
    let name = match &rule.name {
        Some(name) => format!("{name}/{}", wanted.name),
        None => wanted.name.clone(),
    };
    Some(Rule { name: Some(name.into()), matches, backends: vec![backend], ..rule.clone() })
}

/// A match with more headers; `None` if it already requires another value of a header, because then no such request matches. A condition
/// that matches every value is replaced.
fn with_headers(one: &Match, conditions: &[HeaderCondition]) -> Option<Match> {
    let mut headers = one.headers.clone();
    for HeaderCondition { name, value } in conditions {
        let value = match value {
            HeaderText::Exact(text) => HeaderValue::Exact(text.clone()),
            HeaderText::Regex(regex) => HeaderValue::Regex(regex.clone()),
        };
        match headers.iter_mut().find(|header| header.name == *name) {
            None => headers.push(HeaderMatch { spot: one.spot.clone(), name: name.clone(), value }),
            Some(present) if present.value == HeaderValue::Present => present.value = value,
            Some(present) if present.value == value => {}
            Some(_) => return None,
        }
    }
    Some(Match { headers, ..one.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use xds_codec::Tree;

    use super::*;
    use crate::ReadOutcome;

    fn document(source: &Value) -> Arc<Document> {
        let ReadOutcome::Objects(objects) =
            crate::read(&"".into(), &Tree::from_json(source), crate::UnknownFields::Accepted)
        else {
            panic!("{source} is no document")
        };
        objects.into_iter().next().unwrap().outcome.unwrap().0
    }

    fn route(rules: Value) -> Arc<Document> {
        document(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
            "metadata": {"name": "greeter", "namespace": "prod"}, "spec": {"rules": rules},
        }))
    }

    fn overlay(weights: &[(&str, u32)]) -> Overlay {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        Overlay { backends, header_routes: vec![] }
    }

    fn shown(document: &Document) -> Vec<String> {
        let shown = |rule: RuleWeights| {
            let backends: Vec<String> =
                rule.backends.iter().map(|(key, weight)| format!("{key}={weight}")).collect();
            format!("{}: {}", rule.id, backends.join(" "))
        };
        rules(document).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn backends_go_by_name_and_port_and_by_more_where_that_is_not_enough() {
        let route = route(json!([
            {"backendRefs": [{"name": "v1", "port": 80}, {"name": "v1", "port": 81, "weight": 9},
                {"name": "v1", "namespace": "dev", "port": 80, "weight": 0}, {"name": "v1", "port": 80, "weight": 5}]},
            {"name": "named", "backendRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "b"}]},
            {},
        ]));
        assert_eq!(shown(&route), ["0: v1:80=1 v1:81=9 dev/v1:80=0 v1:80#2=5", "named: Backend/b=1", "2: "]);
    }

    #[test]
    fn splits_and_native_routes_go_by_what_is_written() {
        let split = document(&json!({
            "apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", "metadata": {"name": "s"},
            "spec": {"service": "web", "backends": [{"service": "web-v1", "weight": 90}, {"service": "web-v2", "weight": 10}]},
        }));
        assert_eq!(shown(&split), ["0: web-v1=90 web-v2=10"]);
        let native = document(&json!({
            "version": "xds-server/v1",
            "routes": {"r": {"rules": [{"to": {"v1": 3, "web:80": 1, "dev/v1": 0}}, {"to": "v1", "name": "one"}]}},
        }));
        assert_eq!(shown(&native), ["0: dev/v1=0 v1=3 web:80=1", "one: v1=1"]);
        let service = document(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]},
        }));
        assert_eq!(rules(&service), None);
    }

    #[test]
    fn weights_are_laid_over_and_nothing_else_changes() {
        let route = route(json!([
            {"backendRefs": [{"name": "v1", "port": 80, "weight": 90}, {"name": "v2", "port": 80, "weight": 10}]},
            {"backendRefs": [{"name": "v1", "port": 80}]},
        ]));
        let other = overlay(&[("v2:80", 30), ("gone:80", 1)]);
        let laid = lay(&route, &BTreeMap::from([("0", &other), ("none", &other)]));
        assert_eq!(shown(&laid), ["0: v1:80=90 v2:80=30", "1: v1:80=1"]);
        assert_eq!((&laid.source, &laid.place, &laid.meta), (&route.source, &route.place, &route.meta));
        let same = overlay(&[("v1:80", 90)]);
        assert!(Arc::ptr_eq(&lay(&route, &BTreeMap::from([("0", &same)])), &route));
    }

    #[test]
    fn a_header_route_is_a_rule_of_its_own_that_has_more_headers() {
        let header = |name: &str, value: &str| json!({"name": name, "value": value});
        let route = route(json!([{
            "matches": [{"method": {"service": "a.B"}}, {"headers": [header("x-canary", "no")]}, {"headers": [header("x-canary", "yes")]}],
            "backendRefs": [{"name": "v1", "port": 80, "weight": 90}, {"name": "v2", "port": 80, "weight": 0}],
        }]));
        let testers = HeaderRoute {
            name: "testers".to_owned(),
            headers: vec![HeaderCondition {
                name: "x-canary".to_owned(),
                value: HeaderText::Exact("yes".to_owned()),
            }],
            backend: "v2:80".to_owned(),
        };
        let elsewhere = HeaderRoute { backend: "v3:80".to_owned(), ..testers.clone() };
        let overlay = Overlay { header_routes: vec![testers, elsewhere], ..Overlay::default() };
        let laid = lay(&route, &BTreeMap::from([("0", &overlay)]));
        assert_eq!(shown(&laid), ["0: v1:80=90 v2:80=0", "testers: v2:80=1"]);
        let Spec::Route(laid) = &laid.spec else { panic!("no route") };
        let headers: Vec<usize> = laid.rules[1].matches.iter().map(|one| one.headers.len()).collect();
        assert_eq!(headers, [1, 1], "the match that asks for another value is left out");
        assert!(!takes_header_routes(Kind::TrafficSplit));
    }
}
