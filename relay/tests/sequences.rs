//! Single sequences: when what is held is whole, what ends by itself, and what a rejection says.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use xds_cache::ResourceType;
use xds_cache::layer::Resources;
use xds_codec::{Codec, UnknownFields};
use xds_relay::{Request, Response, Roots, Sent, Subscriber, Variant};

fn sent(codec: &Codec, kind: &ResourceType, message: &Value) -> Sent {
    let bytes = codec.message_from_json(kind.type_url(), message, UnknownFields::Refuse).unwrap();
    Sent { content: Some((kind.type_url().to_owned(), bytes)), version: "v".to_owned(), ..Sent::default() }
}

fn cluster(codec: &Codec, name: &str) -> Sent {
    let source = json!({"ads": {}, "resource_api_version": "V3"});
    let message = json!({"name": name, "type": "EDS", "eds_cluster_config": {"eds_config": source}});
    sent(codec, &ResourceType::Cluster, &message)
}

fn response(kind: &ResourceType, resources: Vec<Sent>) -> Response {
    let type_url = kind.type_url().to_owned();
    Response { type_url, version: "1".to_owned(), nonce: "n".to_owned(), resources, removed: Vec::new() }
}

fn names(resources: &Resources) -> Vec<String> {
    resources.keys().map(|key| key.name.to_string()).collect()
}

fn after(start: Instant, seconds: f64) -> Instant {
    start + Duration::from_secs_f64(seconds)
}

fn only_clusters() -> Roots {
    Roots::from_iter([(ResourceType::Cluster, vec!["*".into()])])
}

#[test]
fn it_is_whole_once_everything_is_there_or_after_a_while() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let mut node = Subscriber::new(Variant::Sotw, &only_clusters(), "relay", Resources::new());
    let first = node.connected(false, start);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(node.awaited().unwrap().first.unwrap(), "Cluster \"*\"");
    let both = vec![cluster(&codec, "a"), cluster(&codec, "b")];
    let requests = node.answered(&codec, response(&ResourceType::Cluster, both), start);
    let Some(Request::Sotw { resource_type, names: asked, .. }) = requests.last() else {
        panic!("{requests:?}")
    };
    assert_eq!((resource_type, asked.len()), (&ResourceType::ClusterLoadAssignment, 2));
    assert_eq!(node.awaited().unwrap().n_awaited, 2);
    let a = sent(&codec, &ResourceType::ClusterLoadAssignment, &json!({"cluster_name": "a"}));
    node.answered(&codec, response(&ResourceType::ClusterLoadAssignment, vec![a]), after(start, 1.0));
    assert_eq!(node.awaited().unwrap().first.unwrap(), "ClusterLoadAssignment \"b\"");
    assert_eq!(node.deadline(), Some(after(start, 5.0)));
    node.passed(after(start, 4.9));
    assert!(node.awaited().is_some());
    node.passed(after(start, 5.0));
    assert_eq!(node.awaited(), None, "the endpoints of b may never come");
    assert_eq!(names(node.resources()), ["a", "b", "a"]);
}

#[test]
fn the_first_parts_of_an_incremental_answer_are_no_whole() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let held = {
        let mut earlier = Subscriber::new(Variant::Delta, &only_clusters(), "relay", Resources::new());
        earlier.connected(false, start);
        let gone = vec![cluster(&codec, "gone"), cluster(&codec, "kept")];
        earlier.answered(&codec, response(&ResourceType::Cluster, gone), start);
        earlier.resources().clone()
    };
    let mut node = Subscriber::new(Variant::Delta, &only_clusters(), "relay", held);
    node.connected(false, start);
    node.answered(&codec, response(&ResourceType::Cluster, vec![cluster(&codec, "kept")]), start);
    assert_eq!(names(node.resources()), ["gone", "kept"], "the rest may follow");
    node.passed(after(start, 0.5));
    node.answered(&codec, response(&ResourceType::Cluster, vec![cluster(&codec, "new")]), after(start, 0.9));
    node.passed(after(start, 1.1));
    assert_eq!(names(node.resources()), ["gone", "kept", "new"]);
    node.passed(after(start, 1.9));
    assert_eq!(names(node.resources()), ["kept", "new"], "a second without more is the end");
}

#[test]
fn a_resource_with_a_ttl_ends_without_heartbeats() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let mut node = Subscriber::new(Variant::Sotw, &only_clusters(), "relay", Resources::new());
    node.connected(false, start);
    let ttl = Some(Duration::from_secs(10));
    let name = Some("a".to_owned());
    let short = Sent { ttl, name: name.clone(), ..cluster(&codec, "a") };
    node.answered(&codec, response(&ResourceType::Cluster, vec![short]), start);
    node.answered(
        &codec,
        response(&ResourceType::Cluster, vec![Sent { name, ttl, ..Sent::default() }]),
        after(start, 8.0),
    );
    node.passed(after(start, 17.9));
    assert_eq!(names(node.resources()), ["a"]);
    node.passed(after(start, 18.0));
    assert!(node.resources().is_empty());
}

#[test]
fn a_rejection_says_what_is_wrong_and_takes_the_rest() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let bad =
        |name: &str| sent(&codec, &ResourceType::Cluster, &json!({"name": name, "connect_timeout": "-1s"}));
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut node = Subscriber::new(variant, &only_clusters(), "relay", Resources::new());
        node.connected(false, start);
        let before = vec![cluster(&codec, "a"), cluster(&codec, "b")];
        node.answered(&codec, response(&ResourceType::Cluster, before), start);
        let second = vec![bad("a"), cluster(&codec, "b"), cluster(&codec, "c"), cluster(&codec, "c")];
        let requests = node.answered(&codec, response(&ResourceType::Cluster, second), start);
        let (Request::Sotw { error, .. } | Request::Delta { error, .. }) = &requests[0];
        let error = error.as_deref().unwrap();
        assert!(error.contains("Cluster \"a\": connect_timeout"), "{error}");
        assert!(error.contains("Cluster \"c\" is in the response twice"), "{error}");
        if let Request::Sotw { version, nonce, .. } = &requests[0] {
            assert_eq!((version.as_str(), nonce.as_str()), ("1", "n"), "the version of the response before");
        }
        assert_eq!(names(node.resources()), ["a", "b", "c"], "the earlier a stays");
        assert_eq!(node.refused().map(|(_, name, _)| &**name).collect::<Vec<_>>(), ["a", "c"]);
    }
}

#[test]
fn an_answer_with_a_name_that_cannot_be_read_removes_nothing() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let mut node = Subscriber::new(Variant::Sotw, &only_clusters(), "relay", Resources::new());
    node.connected(false, start);
    node.answered(&codec, response(&ResourceType::Cluster, vec![cluster(&codec, "a")]), start);
    let garbage = (ResourceType::Cluster.type_url().to_owned(), Bytes::from_static(b"\xff\xff\xff"));
    let garbage = Sent { content: Some(garbage), ..Sent::default() };
    node.answered(&codec, response(&ResourceType::Cluster, vec![garbage]), start);
    assert_eq!(names(node.resources()), ["a"]);
}

#[test]
fn the_fault_of_a_secret_does_not_show_it() {
    let (codec, start) = (Codec::new().unwrap(), Instant::now());
    let roots = Roots::from_iter([(ResourceType::Secret, vec!["s".into()])]);
    let mut node = Subscriber::new(Variant::Delta, &roots, "relay", Resources::new());
    node.connected(false, start);
    let message = json!({"name": "s", "tls_certificate": {"private_key": {"filename": ""}, "password": {"inline_string": "hidden"}}});
    let bad = sent(&codec, &ResourceType::Secret, &message);
    let requests = node.answered(&codec, response(&ResourceType::Secret, vec![bad]), start);
    let Request::Delta { error: Some(error), .. } = &requests[0] else { panic!("{requests:?}") };
    assert!(
        error.contains("Secret \"s\": tls_certificate.private_key.filename") && !error.contains("hidden"),
        "{error}"
    );
}
