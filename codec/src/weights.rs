//! The weights with which a rule divides requests between its backends, and their overrides.
//!
//! The types here serve every kind of object with weights. The functions read and change a RouteConfiguration in the form of files and
//! bodies. There, a rule is a route that forwards to a `cluster` or to `weighted_clusters`, and a backend is the name of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;
use xds_cache::Resource;

use crate::encode::canonical;
use crate::message::{self, Message, child, messages, number};
use crate::{Codec, UnknownFields};

/// The weights of one rule in its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleWeights {
    /// The rule's ID: see [`rule_ids`]. For a RouteConfiguration, `{virtual host}/{route}`.
    pub id: String,
    /// The weights by key of the backend, in the order of the object, without duplicates. Empty if the rule forwards no requests.
    pub backends: Vec<(String, u64)>,
}

/// Weights that override those of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlay {
    /// Weights by key of the backend, 0 to 1,000,000. Other backends keep theirs. A key that the rule does not have has no effect.
    #[serde(default)]
    pub backends: BTreeMap<String, u32>,
    /// Requests that are not split, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header_routes: Vec<HeaderRoute>,
}

/// Requests with certain headers, such as those of testers, which all go to one backend of the rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderRoute {
    /// The backend's name; unique in the rule.
    pub name: String,
    /// The headers, at least one. All must match, in addition to the matches of the rule.
    pub headers: Vec<HeaderCondition>,
    /// The key of the backend.
    pub backend: String,
}

/// A condition on one header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderCondition {
    /// The name in lower case.
    pub name: String,
    /// The condition on its value.
    #[serde(flatten)]
    pub value: HeaderText,
}

/// The condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderText {
    /// Equal.
    Exact(String),
    /// An RE2 expression that matches the whole value.
    Regex(String),
}

/// The highest weight of an override, as in the Gateway API.
pub const MAX_WEIGHT: u32 = 1_000_000;

/// The highest sum of weights of a route that clients accept (gRFC A28, `WeightedCluster.total_weight`).
pub const MAX_SUM: u64 = u32::MAX as u64;

/// The IDs of rules with these names, in order. The ID is the name if it is unique, and the index otherwise. An index that is also the
/// name of another rule is preceded by `#`.
#[must_use]
pub fn rule_ids<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Vec<String> {
    let names: Vec<Option<&str>> =
        names.into_iter().map(|name| name.filter(|name| !name.is_empty())).collect();
    let count = |name: &str| names.iter().filter(|other| **other == Some(name)).count();
    let taken: BTreeSet<&str> = names.iter().flatten().copied().collect();
    let id = |(index, name): (usize, &Option<&str>)| match name {
        Some(name) if count(name) == 1 => (*name).to_owned(),
        Some(_) | None => {
            let mut id = index.to_string();
            while taken.contains(id.as_str()) {
                id.insert(0, '#');
            }
            id
        }
    };
    names.iter().enumerate().map(id).collect()
}

/// Makes keys of backends unique: a duplicate is followed by `#2`, the next one by `#3`.
#[must_use]
pub fn distinct(keys: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut distinct = Vec::new();
    for key in keys {
        let mut candidate = key.clone();
        let mut n = 2;
        while !seen.insert(candidate.clone()) {
            candidate = format!("{key}#{n}");
            n += 1;
        }
        distinct.push(candidate);
    }
    distinct
}

/// The rules of a RouteConfiguration that forward requests, in its order. Empty for any other resource.
#[must_use]
pub fn rules(codec: &Codec, resource: &Resource) -> Vec<RuleWeights> {
    let mut rules = Vec::new();
    let descriptor = codec.inner.message_of_url(resource.resource_type().type_url());
    let message = descriptor.and_then(|descriptor| canonical(&codec.inner, &descriptor, &resource.value()));
    let Some(message) = message else { return rules };
    for host in messages(&message, "virtual_hosts") {
        let names: Vec<_> = messages(&host, "routes").map(|route| message::text(&route, "name")).collect();
        let ids = rule_ids(names.iter().map(Option::as_deref));
        let host_name = message::text(&host, "name").unwrap_or_default();
        for (route, id) in messages(&host, "routes").zip(ids) {
            let backends = child(&route, "route").map(|action| backends(&action)).unwrap_or_default();
            if !backends.is_empty() {
                rules.push(RuleWeights { id: format!("{host_name}/{id}"), backends });
            }
        }
    }
    rules
}

/// The clusters of a route action with their weights. A single cluster has weight 1.
fn backends(action: &Message) -> Vec<(String, u64)> {
    if let Some(cluster) = message::text(action, "cluster") {
        return vec![(cluster, 1)];
    }
    let Some(split) = child(action, "weighted_clusters") else { return Vec::new() };
    let key = |cluster: Message| {
        let text = |field: &str| message::text(&cluster, field).unwrap_or_default();
        key_of(&text("name"), &text("cluster_header"))
    };
    let keys = distinct(messages(&split, "clusters").map(key));
    let weight = |cluster: Message| child(&cluster, "weight").and_then(|weight| number(&weight, "value"));
    let weights = messages(&split, "clusters").map(|cluster| weight(cluster).unwrap_or_default().into());
    keys.into_iter().zip(weights).collect()
}

/// The key of a cluster: its name, or the header that has its name.
fn key_of(name: &str, header: &str) -> String {
    if name.is_empty() { format!("cluster_header:{header}") } else { name.to_owned() }
}

/// A RouteConfiguration with other weights, by rule. Its origin and its wrapper stay. Any other resource, and one without these rules,
/// stays as it is.
#[must_use]
pub fn lay(codec: &Codec, resource: &Resource, overlays: &BTreeMap<&str, &Overlay>) -> Option<Resource> {
    let descriptor = codec.inner.message_of_url(resource.resource_type().type_url())?;
    let mut message = DynamicMessage::decode(descriptor, resource.value().into_owned()).ok()?;
    let Some(Value::List(hosts)) = field_mut(&mut message, "virtual_hosts") else { return None };
    let mut is_changed = false;
    for host in hosts.iter_mut().filter_map(Value::as_message_mut) {
        let host_name = text(host, "name");
        let Some(Value::List(routes)) = field_mut(host, "routes") else { continue };
        let names: Vec<String> = routes
            .iter()
            .map(|route| route.as_message().map(|route| text(route, "name")).unwrap_or_default())
            .collect();
        let ids = rule_ids(names.iter().map(|name| Some(name.as_str())));
        let mut laid = Vec::with_capacity(routes.len());
        for (mut route, id) in std::mem::take(routes).into_iter().zip(ids) {
            if let (Some(overlay), Some(message)) =
                (overlays.get(format!("{host_name}/{id}").as_str()), route.as_message_mut())
            {
                let header_routes = overlay.header_routes.iter();
                laid.extend(header_routes.filter_map(|one| header_route(codec, message, one)));
                set_weights(message, &overlay.backends);
                is_changed = true;
            }
            laid.push(route);
        }
        *routes = laid;
    }
    if !is_changed {
        return None;
    }
    let descriptor = message.descriptor();
    let message = canonical(&codec.inner, &descriptor, &message.encode_to_vec().into())?;
    let made = codec.remade(resource, &message)?;
    (made != *resource).then_some(made)
}

/// Sets the weights of the clusters of a route. `total_weight`, if it is set, must stay their sum.
fn set_weights(route: &mut DynamicMessage, weights: &BTreeMap<String, u32>) {
    let Some(clusters) = weighted_clusters(route) else { return };
    let mut total = 0_u64;
    let Some(Value::List(list)) = field_mut(clusters, "clusters") else { return };
    let keys = distinct(list.iter().filter_map(Value::as_message).map(cluster_key));
    for (cluster, key) in list.iter_mut().filter_map(Value::as_message_mut).zip(keys) {
        if let Some(weight) = weights.get(&key) {
            set_wrapped(cluster, "weight", *weight);
        }
        total += wrapped(cluster, "weight");
    }
    if clusters.has_field_by_name("total_weight") {
        set_wrapped(clusters, "total_weight", u32::try_from(total).unwrap_or(u32::MAX));
    }
}

/// A copy of a route for requests with certain headers; `None` if the route does not have the backend.
fn header_route(codec: &Codec, route: &DynamicMessage, wanted: &HeaderRoute) -> Option<Value> {
    let mut copy = route.clone();
    if let Some(clusters) = weighted_clusters(&mut copy) {
        let Some(Value::List(list)) = field_mut(clusters, "clusters") else { return None };
        let keys = distinct(list.iter().filter_map(Value::as_message).map(cluster_key));
        let index = keys.iter().position(|key| *key == wanted.backend)?;
        let mut only = list.get(index)?.clone();
        set_wrapped(only.as_message_mut()?, "weight", 1);
        *list = vec![only];
        if clusters.has_field_by_name("total_weight") {
            set_wrapped(clusters, "total_weight", 1);
        }
    } else if text(message_in(&mut copy, "route")?, "cluster") != wanted.backend {
        return None;
    }
    let name = text(&copy, "name");
    if !name.is_empty() {
        copy.set_field_by_name("name", Value::String(format!("{name}/{}", wanted.name)));
    }
    let matches = message_in(&mut copy, "match")?;
    let Some(Value::List(headers)) = field_mut(matches, "headers") else { return None };
    for condition in &wanted.headers {
        headers.push(Value::Message(header_matcher(codec, condition)?));
    }
    Some(Value::Message(copy))
}

fn header_matcher(codec: &Codec, condition: &HeaderCondition) -> Option<DynamicMessage> {
    let text = match &condition.value {
        HeaderText::Exact(text) => json!({"exact": text}),
        HeaderText::Regex(regex) => json!({"safe_regex": {"regex": regex}}),
    };
    let matcher = json!({"name": condition.name, "string_match": text});
    let bytes = codec.message_from_json(HEADER_MATCHER, &matcher, UnknownFields::Refuse).ok()?;
    DynamicMessage::decode(codec.inner.message(HEADER_MATCHER)?, bytes).ok()
}

const HEADER_MATCHER: &str = "envoy.config.route.v3.HeaderMatcher";

fn weighted_clusters(route: &mut DynamicMessage) -> Option<&mut DynamicMessage> {
    message_in(message_in(route, "route")?, "weighted_clusters")
}

fn cluster_key(cluster: &DynamicMessage) -> String {
    key_of(&text(cluster, "name"), &text(cluster, "cluster_header"))
}

/// A field, if it is set. (Accessing an unset field would set it.)
fn field_mut<'m>(message: &'m mut DynamicMessage, name: &str) -> Option<&'m mut Value> {
    let field = message.descriptor().get_field_by_name(name)?;
    (field.is_list() || message.has_field(&field)).then(|| message.get_field_mut(&field))
}

fn message_in<'m>(message: &'m mut DynamicMessage, name: &str) -> Option<&'m mut DynamicMessage> {
    field_mut(message, name)?.as_message_mut()
}

fn text(message: &DynamicMessage, name: &str) -> String {
    let value = message.get_field_by_name(name);
    value.as_deref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn wrapped(message: &DynamicMessage, name: &str) -> u64 {
    let wrapper = message.get_field_by_name(name);
    let value = wrapper
        .as_deref()
        .and_then(Value::as_message)
        .and_then(|wrapper| wrapper.get_field_by_name("value").and_then(|value| value.as_u32()));
    value.map(u64::from).unwrap_or_default()
}

fn set_wrapped(message: &mut DynamicMessage, name: &str, value: u32) {
    let Some(field) = message.descriptor().get_field_by_name(name) else { return };
    if let Some(wrapper) = message.get_field_mut(&field).as_message_mut() {
        wrapper.set_field_by_name("value", Value::U32(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> Codec {
        static CODEC: std::sync::LazyLock<Codec> = std::sync::LazyLock::new(|| Codec::new().unwrap());
        CODEC.clone()
    }

    fn routes() -> Resource {
        let body = json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "r",
            "virtual_hosts": [
                {"name": "a", "domains": ["a.com"], "routes": [
                    {"name": "main", "match": {"prefix": "/m"}, "route": {"weighted_clusters": {"clusters": [
                        {"name": "v1", "weight": 90}, {"name": "v2", "weight": 10}, {"name": "v1", "weight": 0},
                    ]}}},
                    {"match": {"prefix": "/r"}, "redirect": {"path_redirect": "/"}},
                    {"match": {"prefix": "/"}, "route": {"cluster": "v1"}},
                ]},
                {"name": "b", "domains": ["*"], "routes": [
                    {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [{"name": "v1", "weight": 1}]}}},
                ]},
            ],
        });
        codec().resource_from_json(&body).unwrap()
    }

    fn overlay(weights: &[(&str, u32)]) -> Overlay {
        let backends = weights.iter().map(|(key, weight)| ((*key).to_owned(), *weight)).collect();
        Overlay { backends, header_routes: vec![] }
    }

    #[test]
    fn a_rule_goes_by_its_name_or_its_index_and_never_by_anothers() {
        let ids = rule_ids([Some("a"), None, Some("b"), Some("b"), Some(""), Some("1")]);
        assert_eq!(ids, ["a", "#1", "2", "3", "4", "1"]);
    }

    #[test]
    fn the_rules_of_a_route_configuration_are_read() {
        let rules = rules(&codec(), &routes());
        let key = |key: &str, weight| (key.to_owned(), weight);
        let expected = [
            ("a/main", vec![key("v1", 90), key("v2", 10), key("v1#2", 0)]),
            ("a/2", vec![key("v1", 1)]),
            ("b/0", vec![key("v1", 1)]),
        ];
        assert_eq!(rules.len(), 3);
        for (rule, (id, backends)) in rules.iter().zip(expected) {
            assert_eq!((rule.id.as_str(), &rule.backends), (id, &backends));
        }
    }

    #[test]
    fn weights_are_laid_over_and_nothing_else_changes() {
        let (codec, routes) = (codec(), routes());
        let main = overlay(&[("v2", 30), ("v1", 0), ("gone", 7)]);
        let laid = lay(&codec, &routes, &BTreeMap::from([("a/main", &main)])).unwrap();
        let mut expected = codec.to_json(&routes);
        let clusters = "/virtual_hosts/0/routes/0/route/weighted_clusters/clusters";
        *expected.pointer_mut(&format!("{clusters}/0/weight")).unwrap() = json!(0);
        *expected.pointer_mut(&format!("{clusters}/1/weight")).unwrap() = json!(30);
        assert_eq!(codec.to_json(&laid), expected);
        assert_eq!((laid.origin(), laid.references()), (routes.origin(), routes.references()));
        // A rule that is not there, equal weights, and a route of one cluster leave everything as it is.
        let same = overlay(&[("v1", 90)]);
        for (id, overlay) in [("a/none", &main), ("a/main", &same), ("a/2", &main)] {
            assert_eq!(lay(&codec, &routes, &BTreeMap::from([(id, overlay)])), None, "{id}");
        }
    }

    #[test]
    fn a_total_weight_stays_the_sum() {
        let codec = codec();
        let mut body = codec.to_json(&routes());
        *body.pointer_mut("/virtual_hosts/0/routes/0/route/weighted_clusters").unwrap() = json!(
            {"clusters": [{"name": "v1", "weight": 90}, {"name": "v2", "weight": 10}], "total_weight": 100}
        );
        let routes = codec.resource_from_json(&body).unwrap();
        let main = overlay(&[("v2", 30)]);
        let laid = codec.to_json(&lay(&codec, &routes, &BTreeMap::from([("a/main", &main)])).unwrap());
        assert_eq!(
            laid.pointer("/virtual_hosts/0/routes/0/route/weighted_clusters/total_weight"),
            Some(&json!(120))
        );
    }

    #[test]
    fn header_routes_come_before_their_rule_and_go_to_one_backend() {
        let (codec, routes) = (codec(), routes());
        let header = |name: &str, value: HeaderText| HeaderCondition { name: name.to_owned(), value };
        let testers = HeaderRoute {
            name: "testers".to_owned(),
            headers: vec![
                header("x-canary", HeaderText::Exact("yes".to_owned())),
                header("x-user", HeaderText::Regex("a.*".to_owned())),
            ],
            backend: "v2".to_owned(),
        };
        let elsewhere = HeaderRoute { backend: "v9".to_owned(), ..testers.clone() };
        let main = Overlay { header_routes: vec![testers, elsewhere], ..Overlay::default() };
        let laid = lay(&codec, &routes, &BTreeMap::from([("a/main", &main)])).unwrap();
        let laid = codec.to_json(&laid);
        let laid = laid["virtual_hosts"][0]["routes"].as_array().unwrap();
        assert_eq!(laid.len(), 4);
        assert_eq!(
            laid[0],
            json!({
                "name": "main/testers",
                "match": {"prefix": "/m", "headers": [
                    {"name": "x-canary", "string_match": {"exact": "yes"}},
                    {"name": "x-user", "string_match": {"safe_regex": {"regex": "a.*"}}},
                ]},
                "route": {"weighted_clusters": {"clusters": [{"name": "v2", "weight": 1}]}},
            })
        );
        assert_eq!(laid[1], codec.to_json(&routes)["virtual_hosts"][0]["routes"][0]);
    }

    #[test]
    fn other_resources_have_no_rules() {
        let cluster = Resource::plain(xds_cache::ResourceType::Cluster, "c", "garbage");
        assert!(rules(&codec(), &cluster).is_empty());
        assert_eq!(lay(&codec(), &cluster, &BTreeMap::new()), None);
    }
}
