//! Sessions stay with their backend and endpoint, whichever backends join and leave a rule, against a model of a user agent that keeps
//! cookies, of Envoy's session filter, and of gRPC's.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use regex::Regex;
use serde_json::{Value as Json, json};
use xds_cache::{Profile, ResourceType};

use super::{config, translated};
use crate::support::CODEC;

/// The backends of the rule, with their weights.
type Backends = BTreeMap<&'static str, u32>;

/// Each backend and its endpoints.
const BACKENDS: [(&str, [&str; 2]); 3] =
    [("v1", ["10.0.1.1", "10.0.1.2"]), ("v2", ["10.0.2.1", "10.0.2.2"]), ("v3", ["10.0.3.1", "10.0.3.2"])];

/// A form of a route with a session.
#[derive(Clone, Copy, Debug)]
enum Form {
    HttpCookie,
    HttpHeader,
    Grpc,
    NativeCookie,
    NativeHeader,
}

impl Form {
    fn is_header(self) -> bool {
        matches!(self, Self::HttpHeader | Self::NativeHeader)
    }

    fn route(self, backends: &Backends) -> Json {
        let refs: Vec<Json> = backends
            .iter()
            .map(|(name, weight)| json!({"name": name, "port": 80, "weight": weight}))
            .collect();
        let gateway_api = |kind: &str, session: Json| {
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": "shop"},
                "spec": {
                    "parentRefs": [{"name": "edge"}], "hostnames": ["shop.example.com"],
                    "rules": [{"sessionPersistence": session, "backendRefs": refs}],
                },
            })
        };
        let native = |session: Json| {
            let to: Json =
                backends.iter().map(|(name, weight)| (format!("{name}:80"), json!(weight))).collect();
            let route =
                json!({"hosts": ["shop.example.com"], "listen": ["edge"], "to": to, "session": session});
            json!({"version": "xds-server/v1", "routes": {"shop": route}})
        };
        match self {
            Self::HttpCookie => gateway_api("HTTPRoute", json!({"cookie": {"name": "sid"}})),
            Self::HttpHeader => {
                gateway_api("HTTPRoute", json!({"type": "Header", "header": {"name": "x-sid"}}))
            }
            Self::Grpc => gateway_api("GRPCRoute", json!({"type": "Cookie"})),
            Self::NativeCookie => native(json!({"cookie": "sid", "ttl": "1h"})),
            Self::NativeHeader => native(json!({"header": "x-sid"})),
        }
    }

    /// The only virtual host for these backends, as clients of the profile are served.
    fn routes(self, profile: Profile, backends: &Backends) -> Vec<Json> {
        let mut documents = vec![json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"},
            "spec": {
                "gatewayClassName": "x",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 8080, "hostname": "shop.example.com"}],
            },
        })];
        for (name, endpoints) in BACKENDS {
            documents.push(json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]},
            }));
            documents.push(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "ports": [{"port": 80}],
                "endpoints": endpoints.map(|address| json!({"addresses": [address]})),
            }));
        }
        documents.push(self.route(backends));
        let translation = translated(&documents);
        let served = translation.groups.values().filter_map(|group| group.profiles.get(&profile)).flatten();
        let tables = served.filter(|(key, _)| key.resource_type == ResourceType::RouteConfiguration);
        let hosts = tables.flat_map(|(_, table)| {
            CODEC.to_json_with_secrets(table)["virtual_hosts"].as_array().cloned().unwrap_or_default()
        });
        let routes_of = |host: Json| host["routes"].as_array().cloned().unwrap_or_default();
        let is_shop = |routes: &Vec<Json>| {
            routes
                .iter()
                .any(|route| route["name"].as_str().is_some_and(|name| name.contains("/default/shop/")))
        };
        let found = hosts.map(routes_of).find(is_shop);
        found.unwrap_or_else(|| panic!("{:?}", super::outcome(&super::reading(&documents))))
    }
}

/// A user agent with a session: the cookies or headers that it sends back, and the backend and endpoint of its last answer.
#[derive(Clone, Debug, Default)]
struct Agent {
    sent: BTreeMap<String, String>,
    at: Option<(String, String)>,
}

impl Agent {
    /// The value of a header of its requests.
    fn header(&self, form: Form, name: &str) -> String {
        match name {
            "cookie" if !form.is_header() => {
                let pairs: Vec<String> =
                    self.sent.iter().map(|(name, value)| format!("{name}={value}")).collect();
                pairs.join("; ")
            }
            name => self.sent.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Asks an Envoy with these routes. `draw` decides what the session leaves open.
    fn ask_envoy(&mut self, form: Form, routes: &[Json], draw: u32) {
        let route = routes.iter().find(|route| {
            let mut headers = route["match"]["headers"].as_array().into_iter().flatten();
            headers.all(|header| {
                let pattern = header["string_match"]["safe_regex"]["regex"].as_str().expect("an expression");
                let value = self.header(form, header["name"].as_str().expect("a name"));
                Regex::new(&format!("^(?:{pattern})$")).expect("a valid expression").is_match(&value)
            })
        });
        let action = &route.expect("a route")["route"];
        let (cluster, added) = match action["weighted_clusters"]["clusters"].as_array() {
            None => (action["cluster"].as_str().expect("a cluster"), &Json::Null),
            Some(entries) => {
                let entry = &entries[drawn(entries, draw)];
                (entry["name"].as_str().expect("a cluster"), &entry["response_headers_to_add"])
            }
        };
        let config =
            &route.expect("a route")["typed_per_filter_config"]["envoy.filters.http.stateful_session"];
        let state = &config["stateful_session"]["session_state"]["typed_config"];
        let name = state["cookie"]["name"].as_str().or_else(|| state["name"].as_str()).expect("a session");
        let endpoint = Self::endpoint(cluster, self.sent.get(name).cloned(), draw);
        self.sent.insert(name.to_owned(), base64_of(&endpoint));
        for header in added.as_array().into_iter().flatten().map(|option| &option["header"]) {
            assert_eq!(header["key"], "set-cookie");
            let pair = header["value"].as_str().and_then(|value| value.split(';').next()).expect("a cookie");
            let (name, value) = pair.split_once('=').expect("a pair");
            self.sent.insert(name.to_owned(), value.to_owned());
        }
        self.at = Some((backend_of(cluster).to_owned(), endpoint));
    }

    /// Calls with a gRPC client that has these routes.
    fn ask_grpc(&mut self, routes: &[Json], draw: u32) {
        let action = &routes[0]["route"];
        let entries = match action["weighted_clusters"]["clusters"].as_array() {
            Some(entries) => entries.clone(),
            None => vec![json!({"name": action["cluster"], "weight": 1})],
        };
        let cluster_of = |entry: &Json| entry["name"].as_str().expect("a cluster").to_owned();
        // C-core forgets a cluster of weight 0.
        let kept: Vec<String> = entries.iter().filter(|entry| entry["weight"] != 0).map(cluster_of).collect();
        let own = self.sent.get("cluster").filter(|own| kept.contains(own)).cloned();
        let cluster = own.unwrap_or_else(|| cluster_of(&entries[drawn(&entries, draw)]));
        let endpoint = Self::endpoint(&cluster, self.sent.get("address").cloned(), draw);
        self.sent.insert("address".to_owned(), base64_of(&endpoint));
        self.at = Some((backend_of(&cluster).to_owned(), endpoint));
        self.sent.insert("cluster".to_owned(), cluster);
    }

    /// The endpoint of the session if the cluster has it, otherwise any.
    fn endpoint(cluster: &str, session: Option<String>, draw: u32) -> String {
        let (_, endpoints) =
            BACKENDS.iter().find(|(name, _)| *name == backend_of(cluster)).expect("a backend");
        let all = endpoints.map(|address| format!("{address}:80"));
        let own = all.iter().find(|endpoint| session.as_ref() == Some(&base64_of(endpoint)));
        own.unwrap_or(&all[draw as usize % all.len()]).clone()
    }
}

/// The index of the entry on which a draw falls, by weight.
fn drawn(entries: &[Json], draw: u32) -> usize {
    let weights = || entries.iter().map(|entry| entry["weight"].as_u64().unwrap_or(0));
    let mut left = u64::from(draw) % weights().sum::<u64>();
    let falls_here = |weight: u64| match left.checked_sub(weight) {
        None => true,
        Some(more) => {
            left = more;
            false
        }
    };
    weights().position(falls_here).expect("a weight above 0")
}

/// `v1` of `default/v1/80` and `default/v1/80/h2`.
fn backend_of(cluster: &str) -> &str {
    cluster.split('/').nth(1).expect("a namespace and a name")
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

/// One to three backends, of which at least one has a weight.
fn backends() -> impl Strategy<Value = Backends> {
    let names = select(BACKENDS.map(|(name, _)| name).to_vec());
    let weight = prop_oneof![Just(0), Just(1), 1..100_u32, Just(100)];
    btree_map(names, weight, 1..=3).prop_map(|mut backends| {
        if backends.values().all(|weight| *weight == 0) {
            backends.values_mut().for_each(|weight| *weight = 1);
        }
        backends
    })
}

const N_AGENTS: usize = 8;

proptest! {
    #![proptest_config(config(64))]

    /// After every change, some of the agents ask, twice each.
    #[test]
    fn a_session_stays_with_its_backend_and_endpoint_while_the_rule_names_the_backend(
        form in select(&[Form::HttpCookie, Form::HttpHeader, Form::Grpc, Form::NativeCookie, Form::NativeHeader][..]),
        is_envoy in any::<bool>(),
        changes in vec((backends(), vec(any::<Option<u32>>(), N_AGENTS)), 1..8),
    ) {
        // gRPC clients have no sessions by header.
        let profile = if is_envoy || form.is_header() { Profile::Envoy } else { Profile::Grpc };
        let mut agents = vec![Agent::default(); N_AGENTS];
        for (backends, draws) in changes {
            let routes = form.routes(profile, &backends);
            for (agent, draw) in agents.iter_mut().zip(draws) {
                let Some(draw) = draw else { continue };
                for draw in [draw, draw ^ 0x5_5555] {
                    let before = agent.clone();
                    match profile {
                        Profile::Envoy => agent.ask_envoy(form, &routes, draw),
                        Profile::Grpc => agent.ask_grpc(&routes, draw),
                    }
                    if let Some((backend, _)) = &before.at && backends.contains_key(backend.as_str()) {
                        prop_assert_eq!(&agent.at, &before.at, "{:?} {:?}", before.sent, backends);
                    }
                }
            }
        }
    }
}
