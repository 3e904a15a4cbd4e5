//! The same for the kinds of facts of Gateways. Of what only bounds the work there is none: without `Throng` and `Unnamed`, the same
//! comes out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};

use super::{CODEC, Memo, add, history, shown};
use crate::input::{Documents, Options};
use crate::model::{DocumentKey, Kind};
use crate::{Bounds, GenerationLimits};

/// All that are read, or because of which there are units.
const KINDS: [&str; 23] = [
    "Outlines",
    "HasGateways",
    "Gateway",
    "Natives",
    "ImplicitTaken",
    "Front",
    "Hides",
    "Requests",
    "Load",
    "Refused",
    "Admitted",
    "Attached",
    "On",
    "Bids",
    "Rivals",
    "Lost",
    "Asks",
    "Makes",
    "Faults",
    "Named",
    "Affected",
    "Use",
    "Fallback",
];

/// Options, and steps: documents that come and the keys of some that go.
type Story = (Options, Vec<(Vec<Json>, Vec<DocumentKey>)>);

fn object(kind: &str, name: &str, spec: Json) -> Json {
    let version = match kind {
        "Service" | "Namespace" => "v1",
        "Backend" => "gateway.envoyproxy.io/v1alpha1",
        "Guard" => "example.com/v1",
        _ => "gateway.networking.k8s.io/v1",
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "prod"}, "spec": spec})
}

fn gateway(name: &str, port: u16, address: &str) -> Json {
    let addresses = json!([{"type": "IPAddress", "value": address}]);
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": port}]);
    let spec = json!({"gatewayClassName": "x", "addresses": addresses, "listeners": listeners});
    object("Gateway", name, spec)
}

fn route(kind: &str, name: &str, age: u16, parents: &[&str], hosts: &[&str]) -> Json {
    let parents: Vec<Json> = parents.iter().map(|name| json!({"name": name})).collect();
    let rules = json!([{"backendRefs": [{"name": "a", "port": 80}]}]);
    let mut route = object(kind, name, json!({"parentRefs": parents, "hostnames": hosts, "rules": rules}));
    route["metadata"]["creationTimestamp"] = json!(format!("{age}-01-01T00:00:00Z"));
    route
}

fn native(kind: &str, name: &str, what: Json) -> Json {
    json!({"version": "xds-server/v1", kind: {name: what}})
}

fn comes(documents: impl IntoIterator<Item = Json>) -> (Vec<Json>, Vec<DocumentKey>) {
    (documents.into_iter().collect(), Vec::new())
}

fn goes(kind: Kind, namespace: &str, name: &str) -> (Vec<Json>, Vec<DocumentKey>) {
    (Vec::new(), vec![DocumentKey::new(kind, namespace, name)])
}

fn limited(max_routes: usize) -> Options {
    let limits = GenerationLimits { max_routes, ..GenerationLimits::default() };
    Options { limits, ..Options::default() }
}

fn service() -> Json {
    object("Service", "a", json!({"ports": [{"port": 80}]}))
}

fn edge() -> Json {
    gateway("edge", 80, "10.0.0.1")
}

fn http(name: &str, age: u16, host: &str) -> Json {
    route("HTTPRoute", name, age, &["edge"], &[host])
}

/// Changes that random histories hardly ever make: limits that bite, and implicit gateways that are in the way of others.
fn refusals() -> Vec<Story> {
    let unnamed = |name: &str| native("routes", name, json!({"rules": [{"to": {"b": 1}}]}));
    let backend = || native("backends", "b", json!({"endpoints": ["10.0.2.1:80"]}));
    let listener = |name: &str, what: Json| native("listeners", name, what);
    let natives = (0..6).map(|index| unnamed(&format!("r{index}")));
    let throng =
        [listener("n", json!(8080)), listener("m", json!(8081)), backend()].into_iter().chain(natives);
    let default = Options::default;
    vec![
        // An older one leaves no room; then it goes.
        (
            limited(1),
            vec![
                comes([service(), edge(), http("new", 2024, "a.example.com")]),
                comes([http("old", 2020, "b.example.com")]),
                goes(Kind::HttpRoute, "prod", "old"),
            ],
        ),
        // More routes take more Gateways than can be asked; then one of these has a host.
        (
            limited(2),
            vec![comes(throng), comes([listener("n", json!({"port": 8080, "host": "a.example.com"}))])],
        ),
        // The port of the implicit gateway is taken.
        (default(), vec![comes([unnamed("r"), backend()]), comes([gateway("edge", 8080, "10.0.0.1")])]),
        // A Gateway comes, and there is no implicit one any more.
        (default(), vec![comes([service(), route("HTTPRoute", "new", 2024, &[], &[])]), comes([edge()])]),
    ]
}

/// And what has to do with several Gateways, listeners and Services.
fn neighbours() -> Vec<Story> {
    let targets =
        json!({"targetRef": {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "new"}});
    let to_backend = json!({
        "targetRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "b"}],
        "validation": {"hostname": "a.internal", "wellKnownCACertificates": "System"},
    });
    let mut reaching = http("new", 2024, "a.example.com");
    reaching["spec"]["rules"] =
        json!([{"backendRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "b"}]}]);
    let endpoints = json!({"endpoints": [{"ip": {"address": "10.0.1.1", "port": 80}}]});
    let mut only_http = http("new", 2024, "a.example.com");
    only_http["spec"]["parentRefs"][0]["sectionName"] = json!("http");
    let mut two = edge();
    let wildcard = json!({"name": "wild", "protocol": "HTTP", "port": 80, "hostname": "*.example.com"});
    two["spec"]["listeners"].as_array_mut().unwrap().push(wildcard);
    let mut on_demand = edge();
    on_demand["metadata"]["annotations"] = json!({"xds-server.io/virtual-hosts": "on-demand"});
    let default = Options::default;
    vec![
        // Virtual hosts are sent on demand until there is a wildcard.
        (
            default(),
            vec![
                comes([service(), on_demand, http("new", 2024, "a.example.com")]),
                comes([http("wild", 2024, "*.example.com")]),
                goes(Kind::HttpRoute, "prod", "wild"),
            ],
        ),
        // Two Gateways have a host; the first one's route goes.
        (
            default(),
            vec![
                comes([
                    service(),
                    edge(),
                    gateway("inner", 80, "10.0.0.2"),
                    http("new", 2024, "a.example.com"),
                    route("HTTPRoute", "old", 2020, &["inner"], &["a.example.com"]),
                ]),
                goes(Kind::HttpRoute, "prod", "new"),
            ],
        ),
        // A host is the name of a Service, and is gone again.
        (
            default(),
            vec![
                comes([service(), edge()]),
                comes([http("new", 2024, "a.prod")]),
                goes(Kind::HttpRoute, "prod", "new"),
            ],
        ),
        // Another listener owns a host that routes bring to the first one.
        (default(), vec![comes([service(), edge(), only_http]), comes([two])]),
        (
            default(),
            vec![
                comes([service(), edge(), http("new", 2024, "a.example.com")]),
                comes([object("Guard", "g", targets)]),
            ],
        ),
        // A policy of a Backend, before there is any group from which that is reached.
        (
            default(),
            vec![
                comes([object("Backend", "b", endpoints), object("BackendTLSPolicy", "p", to_backend)]),
                comes([edge(), reaching]),
            ],
        ),
    ]
}

fn next(memo: &Memo, documents: &Documents, options: &Options) -> Memo {
    memo.next(&CODEC, documents, options, Bounds::SERVING).unwrap().0
}

fn told((options, steps): Story) -> (Options, Vec<Documents>) {
    let mut all = Documents::new();
    let step = |(comes, goes): (Vec<Json>, Vec<DocumentKey>)| {
        comes.iter().for_each(|json| {
            let n_documents = all.len();
            let keys: Vec<DocumentKey> = all.keys().cloned().collect();
            add(&mut all, json);
            assert!(all.len() > n_documents || keys.len() == all.len(), "{json}");
        });
        goes.iter().for_each(|key| assert!(all.remove(key).is_some(), "{key}"));
        all.clone()
    };
    (options, steps.into_iter().map(step).collect())
}

/// The kinds of facts without which all histories end as they are made from nothing.
pub(super) fn unnoticed(
    kinds: &[&'static str],
    histories: impl Iterator<Item = (Options, Vec<Documents>)>,
) -> Vec<&'static str> {
    let mut left = kinds.to_vec();
    std::panic::set_hook(Box::new(|_| {}));
    for (options, history) in histories {
        let whole: Vec<String> =
            history.iter().map(|documents| shown(&next(&Memo::default(), documents, &options))).collect();
        left.retain(|kind| {
            let is_the_same = catch_unwind(AssertUnwindSafe(|| {
                let mut memo = Memo::default();
                history.iter().zip(&whole).enumerate().all(|(index, (documents, whole))| {
                    memo.blind_to = (index > 0).then_some(*kind);
                    memo = next(&memo, documents, &options);
                    shown(&memo) == *whole
                })
            }));
            is_the_same.unwrap_or(false)
        });
        if left.is_empty() {
            break;
        }
    }
    drop(std::panic::take_hook());
    left
}

#[test]
fn every_kind_of_fact_of_gateways_counts() {
    let mut runner = TestRunner::deterministic();
    let told: Vec<_> = refusals().into_iter().chain(neighbours()).map(told).collect();
    let random = (0..400).map(|_| (Options::default(), history().new_tree(&mut runner).unwrap().current()));
    assert_eq!(unnoticed(&KINDS, told.into_iter().chain(random)), [""; 0]);
}
