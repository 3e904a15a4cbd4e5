//! Random bodies for every endpoint that takes one, for as long as `XDS_FUZZ_SECONDS` says.
//!
//! For any input, the answer is no fault of the server, and no longer than a bound. A failure prints the seed;
//! `XDS_FUZZ_SEED` runs it again.

#[path = "../../../tests/src/splitmix.rs"]
pub(super) mod splitmix;

use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::Service as _;

use self::splitmix::Random;
use super::rest::{Rest, publication, rest};
use super::*;

impl Random {
    /// Seeded from `XDS_FUZZ_SEED`, else from the clock in a run of so many seconds. A run of all tests has always the same bodies, so that a
    /// change fails by its own fault.
    fn from_env(seconds: Option<u64>) -> Self {
        let given = std::env::var("XDS_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
        let seed = given.unwrap_or_else(|| seconds.map_or(0, |_| clock()));
        println!("XDS_FUZZ_SEED={seed}");
        Self(seed)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Any JSON, with words that mean something somewhere.
    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.one_of(&[0.0, -1.0, 1e308, 0.5, 4_294_967_296.0, -9.3e18])),
            3 => json!(self.number()),
            4 => json!(self.one_of(WORDS)),
            5 => json!(
                self.one_of(&["", "\u{0}", "\u{202e}\n", "é", "*", "a.b.c", "1s", "50%"])
                    .repeat(1 + self.below(40))
            ),
            6 => (0..self.below(6)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let fields =
                    (0..self.below(6)).map(|_| (self.one_of(WORDS).to_owned(), self.value(depth - 1)));
                Value::Object(fields.collect())
            }
        }
    }

    /// Replaces, removes or doubles something inside of a value.
    fn change(&mut self, value: &mut Value) {
        let goes_in = self.below(4) != 0;
        match value {
            Value::Object(fields) if goes_in && !fields.is_empty() => {
                let index = self.below(fields.len());
                let key = fields.keys().nth(index).unwrap().clone();
                match self.below(8) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert(self.one_of(WORDS).to_owned(), self.value(3))),
                    _ => self.change(&mut fields[&key]),
                }
            }
            Value::Array(items) if goes_in && !items.is_empty() => {
                let index = self.below(items.len());
                match self.below(8) {
                    0 => drop(items.remove(index)),
                    1 => items.push(items[index].clone()),
                    _ => self.change(&mut items[index]),
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => *value = self.value(3),
        }
    }

    /// A valid body with changes in its meaning or in its bytes, or no body at all.
    fn body(&mut self, good: &Value) -> Vec<u8> {
        let mut value = if self.below(6) == 0 { self.value(5) } else { good.clone() };
        for _ in 0..self.below(4) {
            self.change(&mut value);
        }
        let mut bytes = value.to_string().into_bytes();
        for _ in 0..self.below(3) * self.below(2) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.number() as u8),
                2 => bytes.splice(at..at, b"[".repeat(self.below(300))).for_each(drop),
                3 => bytes.splice(at..at, b"&a {x: *a, <<: *a}\n- ".iter().copied()).for_each(drop),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        bytes
    }
}

/// Every endpoint that takes a body, with its parameters filled in.
async fn endpoints(rest: &Rest) -> Vec<(String, String)> {
    let document = rest.get("/openapi.json").await.json();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["requestBody"].is_null() {
                continue;
            }
            let mut filled = path.clone();
            for (name, value) in [
                ("{group}", "g"),
                ("{type}", "clusters"),
                ("{name}", "a"),
                ("{kind}", "HTTPRoute"),
                ("{namespace}", "default"),
                ("{rule}", "0"),
                ("{rollout}", "web-1:pause"),
                ("{deployment}", "1:pause"),
                ("{id}", "1"),
            ] {
                filled = filled.replace(name, value);
            }
            assert!(!filled.contains('{'), "{path}: no value for a parameter");
            found.push((method.to_uppercase(), filled));
        }
    }
    assert!(found.len() >= 10, "{found:?}");
    found
}

/// Bodies that some endpoint takes.
fn good_bodies() -> Vec<Value> {
    let publication = publication(&[("a", "1"), ("b", "2")]);
    let cluster = publication["resources"][0].clone();
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "web"},
        "spec": {"parentRefs": [{"name": "web"}], "rules": [{
            "matches": [{"path": {"type": "RegularExpression", "value": "/a.*"}, "headers": [{"name": "x", "value": "y"}]}],
            "backendRefs": [{"name": "v1", "port": 80, "weight": 1}, {"name": "v2", "port": 80, "weight": 0}],
        }]},
    });
    let native = json!({
        "version": "xds-server/v1",
        "listeners": {"edge": {"port": 10000, "address": "127.0.0.1"}},
        "routes": {"greeter": {"hosts": ["a.example.com"], "rules": [{"match": {"path": "/"}, "to": {"v1": 90, "v2": 10}, "timeout": "5s"}]}},
        "backends": {"v1": {"protocol": "grpc", "endpoints": ["127.0.0.1:1"]}, "v2": {"protocol": "http2", "endpoints": "127.0.0.1:2"}},
    });
    let rollout = json!({
        "route": {"kind": "HTTPRoute", "namespace": "default", "name": "web", "rule": "0"},
        "stable": "v1:80", "canary": "v2:80",
        "steps": [{"setWeight": 20}, {"pause": {"duration": "1h"}}, {"analysis": {"interval": "1s", "maxErrorRate": 1}}],
        "webhooks": [{"name": "gate", "type": "confirm-rollout", "url": "http://127.0.0.1:9/x", "metadata": {"a": "b"}}],
    });
    vec![
        publication,
        cluster,
        route,
        native,
        rollout,
        json!({"selector": {"nodeIds": ["a-*"], "metadata": {"zone.x": 1}}, "priority": 3}),
        json!({"revision": 1}),
        json!({"weights": {"v1:80": 1, "v2:80": 2}, "expires": "1h"}),
        json!({"step": 2, "full": true}),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_is_answered_with_a_fault_of_the_server_or_with_more_than_a_bound() {
    let seconds = std::env::var("XDS_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let mut random = Random::from_env(seconds);
    let deadline = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let good = good_bodies();
    let (mut n, mut n_taken) = (0, 0);
    while Instant::now() < deadline {
        // A new server now and then: what one has taken makes it slower.
        let rest = rest();
        for (method, path) in endpoints(&rest).await.iter().cycle().take(100) {
            let seed = random.one_of(&good);
            let body = random.body(&seed);
            let kind = random.one_of(&["application/json", "application/yaml"]);
            let query = random.one_of(&["", "", "?dryRun=true", "?group=other", "?waves=1%25,100%25"]);
            let request = Request::builder().method(method.as_str()).uri(format!("{path}{query}"));
            let request = request.header("content-type", kind).header("if-match", "*");
            let response =
                rest.router.clone().call(request.body(Body::from(body.clone())).unwrap()).await.unwrap();
            let (status, answer) = (response.status().as_u16(), response.into_body().collect().await);
            let answer = answer.unwrap().to_bytes();
            let sent = || String::from_utf8_lossy(&body).into_owned();
            let said = String::from_utf8_lossy(&answer);
            assert!(status < 500 || status == 503, "{method} {path}{query} {status} {said}\n{}", sent());
            let limit = MAX_ANSWER_BYTES + MAX_ANSWER_SHARE * body.len();
            assert!(answer.len() <= limit, "{method} {path}{query}: {} bytes for\n{}", answer.len(), sent());
            n += 1;
            n_taken += u64::from(status < 300);
        }
    }
    assert!(n_taken > 0, "of {n} bodies none was taken: the fuzzer tests only the first check");
    println!("{n} bodies, {n_taken} of them taken");
}

/// Field names, kinds and values of every form of document.
const WORDS: &[&str] = &[
    "resources",
    "@type",
    "name",
    "version",
    "selector",
    "nodeIds",
    "metadata",
    "all",
    "priority",
    "weights",
    "revision",
    "steps",
    "setWeight",
    "pause",
    "duration",
    "analysis",
    "webhooks",
    "url",
    "type",
    "route",
    "kind",
    "namespace",
    "rule",
    "stable",
    "canary",
    "spec",
    "rules",
    "matches",
    "path",
    "value",
    "backendRefs",
    "parentRefs",
    "filters",
    "timeouts",
    "listeners",
    "routes",
    "backends",
    "endpoints",
    "hosts",
    "match",
    "to",
    "retry",
    "connect_timeout",
    "typed_config",
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/google.protobuf.Struct",
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "HTTPRoute",
    "Gateway",
    "Service",
    "xds-server/v1",
    "gateway.networking.k8s.io/v1",
    "apiVersion",
    "items",
    "List",
    "RegularExpression",
    "regex",
    "(a|b)*c{1,9}",
];

/// An answer repeats errors with their places, conditions of documents, and differences.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MAX_ANSWER_SHARE: usize = 20;
