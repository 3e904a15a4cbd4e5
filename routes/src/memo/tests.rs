//! Every kind of fact counts: where changes of one are not noticed, some history of documents ends with something else than what is
//! made from nothing.

#[path = "../../tests/properties/documents.rs"]
mod documents;
mod gateways;
mod mesh;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};
use xds_cache::GroupName;
use xds_codec::{Codec, Tree};

use super::{Delta, MIN_SIDE_BY_SIDE, Memo};
use crate::input::{Bounds, Budget, Documents, Options, Placed};
use crate::model::Spec;
use crate::{ReadOutcome, UnknownFields, read};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

/// All that are read, or because of which there are units.
const KINDS: [&str; 25] = [
    "Document",
    "Outline",
    "Slice",
    "Grant",
    "Policy",
    "Fallback",
    "Verdict",
    "Rules",
    "Standing",
    "Routes",
    "Use",
    "Listener",
    "Table",
    "Cluster",
    "Assignment",
    "Uneven",
    "Certificate",
    "Trusted",
    "Hosts",
    "Need",
    "Nowhere",
    "GrpcUse",
    "GrpcReach",
    "GrpcAssigned",
    "Loss",
];

fn add(documents: &mut Documents, json: &Json) {
    let outcome = read(&"f.yaml".into(), &Tree::from_json(json), UnknownFields::Refuse);
    let ReadOutcome::Objects(objects) = outcome else { return };
    for object in objects {
        let Ok((document, _)) = object.outcome else { continue };
        let group = GroupName::default_group();
        documents.insert(object.key, Placed::new(document, group));
    }
}

/// Documents, and how they change: most come, some go, some weights change.
fn history() -> impl Strategy<Value = Vec<Documents>> {
    let edits =
        prop::collection::vec((documents::world_documents(), any::<prop::sample::Index>(), 0..4_u32), 1..9);
    (documents::worlds(), edits).prop_map(|(first, edits)| {
        let mut all = Documents::new();
        first.iter().for_each(|json| add(&mut all, json));
        let mut history = vec![all.clone()];
        for (new, index, weight) in edits {
            let keys: Vec<_> = all.keys().cloned().collect();
            match keys.get(index.index(keys.len().max(1))) {
                Some(key) if weight == 0 => drop(all.remove(key)),
                Some(key) if weight == 3 => {
                    let mut placed = all[key].clone();
                    if let Spec::Route(route) = &mut Arc::make_mut(&mut placed.document).spec {
                        let backends = route.rules.iter_mut().flat_map(|rule| &mut rule.backends);
                        backends.for_each(|backend| backend.weight = 7);
                    }
                    all.insert(key.clone(), placed);
                }
                _ => new.iter().for_each(|json| add(&mut all, json)),
            }
            history.push(all.clone());
        }
        history
    })
}

/// Changes that random histories hardly ever make: a grant comes, endpoints come to differ in weight, trusted certificates change.
fn rare() -> Vec<Vec<Documents>> {
    let object = |version: &str, kind: &str, namespace: &str, rest: Json| {
        let mut object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
        rest.as_object().into_iter().flatten().for_each(|(field, value)| object[field] = value.clone());
        object
    };
    let gateway_api = "gateway.networking.k8s.io/v1";
    let backend = json!({"name": "a", "namespace": "prod", "port": 80});
    let route = |namespace: &str| {
        let rules = json!([{"backendRefs": [backend]}]);
        object(gateway_api, "GRPCRoute", namespace, json!({"spec": {"rules": rules}}))
    };
    let service = object("v1", "Service", "prod", json!({"spec": {"ports": [{"port": 80}]}}));
    let from = json!([{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "namespace": "default"}]);
    let to = json!([{"group": "", "kind": "Service"}]);
    let grant = object(
        "gateway.networking.k8s.io/v1beta1",
        "ReferenceGrant",
        "prod",
        json!({"spec": {"from": from, "to": to}}),
    );
    let authority = json!([{"group": "", "kind": "ConfigMap", "name": "a"}]);
    let policy = object(
        gateway_api,
        "BackendTLSPolicy",
        "prod",
        json!({"spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "a"}],
            "validation": {"hostname": "a.internal", "caCertificateRefs": authority},
        }}),
    );
    let trusted = |body: &str| {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        object("v1", "ConfigMap", "prod", json!({"data": {"ca.crt": pem}}))
    };
    let native = |weight: u32| {
        let endpoints = json!(["10.0.2.1:80", {"addr": "10.0.2.2:80", "weight": weight}]);
        let rules = json!([{"match": {"grpc": "foo.Bar/Get"}, "to": {"b": 1}}]);
        json!({
            "version": "xds-server/v1", "listeners": {"n": 8080}, "routes": {"r": {"rules": rules}},
            "backends": {"b": {"protocol": "grpc", "endpoints": endpoints}},
        })
    };
    let histories = [
        vec![vec![route("default"), service.clone()], vec![grant]],
        vec![vec![native(1)], vec![native(2)]],
        vec![vec![route("prod"), service, policy, trusted("AAAA")], vec![trusted("BBBB")]],
    ];
    let history = |steps: Vec<Vec<Json>>| {
        let mut all = Documents::new();
        let mut take = |step: Vec<Json>| {
            step.iter().for_each(|json| add(&mut all, json));
            all.clone()
        };
        steps.into_iter().map(&mut take).collect()
    };
    histories.into_iter().map(history).collect()
}

fn shown(memo: &Memo) -> String {
    let outputs = memo.outputs();
    format!(
        "{:?} {:?} {:?} {:?}",
        outputs.groups, outputs.conditions, outputs.diagnostics, outputs.unsupported
    )
}

fn next(memo: &Memo, documents: &Documents) -> Memo {
    memo.next(&CODEC, documents, &Options::default(), Bounds::SERVING).unwrap().0
}

#[test]
fn every_kind_of_fact_counts() {
    let mut runner = TestRunner::deterministic();
    let mut left = KINDS.to_vec();
    std::panic::set_hook(Box::new(|_| {}));
    let random = (0..400).map(|_| history().new_tree(&mut runner).unwrap().current());
    for history in rare().into_iter().chain(random) {
        let whole: Vec<String> =
            history.iter().map(|documents| shown(&next(&Memo::default(), documents))).collect();
        left.retain(|kind| {
            let is_the_same = catch_unwind(AssertUnwindSafe(|| {
                let mut memo = Memo::default();
                history.iter().zip(&whole).enumerate().all(|(index, (documents, whole))| {
                    memo.blind_to = (index > 0).then_some(*kind);
                    memo = next(&memo, documents);
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
    assert_eq!(left, [""; 0]);
}

/// A world of many Services and routes of one Gateway.
fn many(n: usize) -> Documents {
    let mut all = Documents::new();
    let gateway_api = "gateway.networking.k8s.io/v1";
    let listeners = json!([{"name": "http", "port": 8080, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "xds-server", "listeners": listeners});
    add(
        &mut all,
        &json!({"apiVersion": gateway_api, "kind": "Gateway", "metadata": {"name": "edge"}, "spec": spec}),
    );
    for n in 0..n {
        let metadata = json!({"name": format!("n{n}")});
        let service = json!({"ports": [{"port": 80}]});
        add(&mut all, &json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}));
        let backend = json!({"name": format!("n{n}"), "port": 80});
        let route = json!({
            "parentRefs": [{"name": "edge"}], "hostnames": [format!("h{n}.example.com")],
            "rules": [{"backendRefs": [backend], "sessionPersistence": {"sessionName": "s"}}],
        });
        add(
            &mut all,
            &json!({"apiVersion": gateway_api, "kind": "GRPCRoute", "metadata": metadata, "spec": route}),
        );
    }
    all
}

/// What follows of all units on this number of threads, with any memory; `None` if it was stopped.
fn next_on(
    n_threads: usize,
    memo: &Memo,
    documents: &Documents,
    goes_on: &dyn Fn() -> bool,
) -> Option<(Memo, Delta)> {
    memo.next_of(n_threads, &CODEC, documents, &Options::default(), (goes_on, &Budget::unlimited()), &|_| {
        true
    })
}

#[test]
fn on_any_number_of_threads_the_same_is_made() {
    let documents = many(2 * MIN_SIDE_BY_SIDE);
    let on = |n_threads| next_on(n_threads, &Memo::default(), &documents, &|| true).unwrap();
    let (one, delta_of_one) = on(1);
    for n_threads in [2, 7] {
        let (several, delta) = on(n_threads);
        assert_eq!((shown(&several), several.work(), delta), (shown(&one), one.work(), delta_of_one.clone()));
        assert!(several.values.iter().map(|(fact, _)| fact).eq(one.values.iter().map(|(fact, _)| fact)));
        assert!(several.readers == one.readers);
    }
}

#[test]
fn on_several_threads_it_can_be_stopped_at_any_time() {
    let documents = many(MIN_SIDE_BY_SIDE);
    let asked = |limit: usize| {
        let n_asked = Cell::new(0);
        let goes_on = || {
            n_asked.set(n_asked.get() + 1);
            n_asked.get() <= limit
        };
        let made = next_on(4, &Memo::default(), &documents, &goes_on);
        (made.is_some(), n_asked.get())
    };
    for limit in [0, 1, 2, 20, 100, 200] {
        let (is_made, n_asked) = asked(limit);
        assert!(!is_made && n_asked > limit, "{limit}: {n_asked}");
    }
    assert!(asked(usize::MAX).0);
}

#[test]
fn a_panic_says_in_which_unit_it_was() {
    for (n_routes, n_threads) in [(1, 1), (MIN_SIDE_BY_SIDE, 1), (MIN_SIDE_BY_SIDE, 4)] {
        let documents = many(n_routes);
        let memo = Memo { panics_at: Some("Rules("), ..Memo::default() };
        let made = catch_unwind(AssertUnwindSafe(|| next_on(n_threads, &memo, &documents, &|| true)));
        let Err(panic) = made else { panic!("it did not panic") };
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("Rules(DocumentKey(") && text.ends_with(": injected"), "{text}");
        let name = if n_threads == 1 { "\"n0\"" } else { "\"n" };
        assert!(text.contains("GrpcRoute") && text.contains(name), "{text}");
    }
}

/// A group of consumers borrows the Service of another one, until a route of its own wants it: the facts of the loan are then those of the
/// Service, which is a unit that runs before.
#[test]
fn a_fact_that_changes_hands_stays() {
    let service = |name: &str| {
        let spec = json!({"ports": [{"port": 81}]});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "prod"}, "spec": spec})
    };
    let route = |kind: &str, parents: Json, rules: Json| {
        let spec = json!({"parentRefs": parents, "rules": rules});
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": "r"}, "spec": spec})
    };
    let to = |name: &str| json!([{"group": "", "kind": "Service", "name": name, "namespace": "prod"}]);
    let mut all = Documents::new();
    let before = [
        service("a"),
        service("b"),
        route("HTTPRoute", to("b"), json!([{}])),
        route("GRPCRoute", json!([]), json!([])),
    ];
    before.iter().for_each(|json| add(&mut all, json));
    let lent = next(&Memo::default(), &all);
    let former = all.clone();
    add(&mut all, &route("GRPCRoute", to("a"), json!([])));
    let owned = next(&lent, &all);
    assert_ne!(shown(&owned), shown(&lent));
    assert_eq!(shown(&owned), shown(&next(&Memo::default(), &all)));
    assert_eq!(shown(&next(&owned, &former)), shown(&lent));
}
