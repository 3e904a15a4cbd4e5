//! Writes of the API.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use xds_cache::group::{Glob, Selector};
use xds_cache::status::{StreamId, StreamInfo, Subscriber, Variant};
use xds_cache::{DrainPolicy, Node, ViewChange};
use xds_control::model::EntityTags;
use xds_control::model::tag;
use xds_store::{Change, Commit, JournalStore};

use super::*;

struct Nobody;

impl Subscriber for Nobody {
    fn concerned(&self, _: &ViewChange) -> Option<Vec<ResourceType>> {
        Some(vec![])
    }
}

fn selecting(name: &str, ids: &[&str]) -> NodeGroup {
    let selector = Selector { node_ids: ids.iter().map(|id| Glob::new(id)).collect(), ..Selector::nothing() };
    NodeGroup {
        name: group(name),
        selector,
        priority: 0,
        client: None,
        waves: None,
        drain: DrainPolicy::default(),
        identities: Arc::default(),
        tries_identities: false,
    }
}

#[tokio::test]
async fn a_write_is_there_after_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let label = Some("v1".into());
    let content = resources(&[("a/b %", "1"), ("ü", "2")]);
    {
        let (store, _) = JournalStore::open(dir.path(), Default::default()).unwrap();
        let server = Server::open(Arc::new(store), Options::default());
        let write =
            Write::ReplaceResources { group: group("n/1"), label: label.clone(), resources: content.clone() };
        let outcome = server.write(write).await.unwrap();
        assert_eq!((outcome.revision, outcome.changed), (Revision(1), true));
        assert_eq!(server.served("n/1"), pairs(&[("a/b %", "1"), ("ü", "2")]));
        server.write(Write::PutGroup(selecting("g", &["x-*"]))).await.unwrap();
    }
    let (store, _) = JournalStore::open(dir.path(), Default::default()).unwrap();
    let server = Server::open(Arc::new(store), Options::default());
    let (revision, layer) = server.control.overrides();
    assert_eq!(revision, Revision(2));
    assert_eq!(layer.groups[&group("n/1")].label, label);
    assert_eq!(layer.groups[&group("n/1")].resources, content);
    assert_eq!(layer.groups[&group("n/1")].definition, Some(NodeGroup::for_node_id(group("n/1"))));
    assert_eq!(layer.groups[&group("g")].definition, Some(selecting("g", &["x-*"])));
    assert_eq!(server.served("n/1"), pairs(&[("a/b %", "1"), ("ü", "2")]));
    assert_eq!(server.control.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn pitfall_47_an_equal_write_is_no_revision() {
    let server = Server::without_files(&MemoryStore::new());
    for write in
        [replace("g", &[("a", "1")]), put("g", "a", "1"), Write::PutGroup(NodeGroup::for_node_id(group("g")))]
    {
        let outcome = server.write(write).await.unwrap();
        assert_eq!(outcome.revision, Revision(1));
        assert!(outcome.publication.views.is_empty());
    }
    assert_eq!(server.control.history(None, 10).unwrap().len(), 1);
}

#[tokio::test]
async fn a_dry_run_tells_the_difference_and_changes_nothing() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(replace("g", &[("a", "1"), ("b", "1")])).await.unwrap();
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let outcome = server.control.write(replace("g", &[("b", "2"), ("c", "1")]), options).await.unwrap();
    assert!(outcome.changed);
    let told: Vec<_> = outcome
        .difference
        .iter()
        .map(|object| (object.what.as_str(), object.before.is_some(), object.after.is_some()))
        .collect();
    assert_eq!(
        told,
        [("g/clusters/a", true, false), ("g/clusters/b", true, true), ("g/clusters/c", false, true)]
    );
    assert_eq!((server.revision(), server.served("g")), (1, pairs(&[("a", "1"), ("b", "1")])));
}

#[tokio::test]
async fn a_panic_takes_back_its_change_and_nothing_else() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    server.write(replace("g", &[("a", "1")])).await.unwrap();
    server.write(replace("g", &[("b", "1")])).await.unwrap();
    store.is_broken.store(true, Ordering::Relaxed);
    let error = server.write(Write::Rollback { to: Revision(1) }).await.unwrap_err();
    assert!(matches!(&error, WriteError::Internal(what) if what == "injected"), "{error:?}");
    assert!(error.to_string().contains("the previous configuration is still served"), "{error}");
    assert_eq!((server.revision(), server.served("g")), (2, pairs(&[("b", "1")])));
    store.is_broken.store(false, Ordering::Relaxed);
    let outcome = server.write(Write::Rollback { to: Revision(1) }).await.unwrap();
    assert_eq!((outcome.revision, server.served("g")), (Revision(3), pairs(&[("a", "1")])));
}

#[tokio::test]
async fn writes_do_not_wait_for_a_dry_run() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    server.write(replace("g", &[("a", "1")])).await.unwrap();
    server.write(replace("g", &[("b", "1")])).await.unwrap();
    let (let_go, past) = std::sync::mpsc::channel::<()>();
    *store.past.lock().unwrap() = Some(past);
    let control = server.control.clone();
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let rollback = Write::Rollback { to: Revision(1) };
    let dry_run = tokio::spawn(async move { control.write(rollback, options).await.unwrap() });
    while store.past.lock().unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let written = tokio::time::timeout(Duration::from_secs(10), server.write(replace("g", &[("c", "1")])));
    let outcome = written.await.expect("the write waits for the dry run").unwrap();
    assert_eq!(outcome.revision, Revision(3));
    assert!(!dry_run.is_finished());
    drop(let_go);
    // It tells what was asked, not what came of it meanwhile.
    let outcome = dry_run.await.unwrap();
    let told: Vec<&str> = outcome.difference.iter().map(|object| object.what.as_str()).collect();
    assert_eq!((outcome.revision, told), (Revision(2), vec!["g/clusters/a", "g/clusters/b"]));
}

#[tokio::test]
async fn of_writers_that_saw_the_same_exactly_one_wins() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(replace("g", &[("a", "0")])).await.unwrap();
    let tag = tag::of_resources(&resources(&[("a", "0")]));
    let writes = (1..=8).map(|n| {
        let options =
            WriteOptions { if_match: Some(EntityTags::OneOf(vec![tag.clone()])), ..WriteOptions::default() };
        server.control.write(replace("g", &[("a", &n.to_string())]), options)
    });
    let done = futures_util::future::join_all(writes).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    for error in done.into_iter().filter_map(Result::err) {
        assert!(matches!(error, WriteError::PreconditionFailed { current: Some(_) }), "{error}");
    }
    assert_eq!(server.revision(), 2);
}

#[tokio::test]
async fn preconditions_speak_of_what_is_written() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(put("g", "a", "1")).await.unwrap();
    let a = tag::of_resource(&cluster("a", "1"));
    let one = |tag: &str| Some(EntityTags::OneOf(vec![tag.to_owned()]));
    let any = || Some(EntityTags::Any);
    let table = [
        (put("g", "a", "2"), any(), None, true),
        (put("g", "b", "2"), any(), None, false),
        (put("g", "b", "2"), None, any(), true),
        (put("g", "a", "2"), None, any(), false),
        (put("g", "a", "2"), one(&a), None, true),
        (put("g", "a", "2"), one("x"), None, false),
        (delete("g", "a"), one(&a), None, true),
        (replace("new", &[]), None, any(), true),
        (replace("g", &[]), None, any(), false),
        (replace("default", &[]), None, any(), false),
        (
            Write::DeleteGroup(group("g")),
            one(&tag::of_group(&NodeGroup::for_node_id(group("g")))),
            None,
            true,
        ),
        (Write::DeleteGroup(group("g")), one("x"), None, false),
        (rollback(0), one("r1"), None, true),
        (rollback(0), one("r0"), None, false),
    ];
    for (write, if_match, if_none_match, holds) in table {
        let text = format!("{write:?} {if_match:?} {if_none_match:?}");
        let options = WriteOptions { if_match, if_none_match, dry_run: true, ..WriteOptions::default() };
        match server.control.write(write, options).await {
            Ok(_) => assert!(holds, "{text}"),
            Err(WriteError::PreconditionFailed { .. }) => assert!(!holds, "{text}"),
            Err(error) => panic!("{text}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_new_group_is_exactly_that_node_and_stays_when_it_is_empty() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(put("node-*", "a", "1")).await.unwrap();
    let names = |id: &str| {
        let view = server.publisher.view_of(&Node::with_id(id)).unwrap();
        (view.key().groups.len(), view.is_unmatched())
    };
    assert_eq!(names("node-1"), (1, true), "the name is taken literally");
    assert_eq!(names("node-*"), (2, false));
    server.write(delete("node-*", "a")).await.unwrap();
    assert_eq!(names("node-*"), (2, false), "an empty group means nothing, which is something");
    server.write(Write::DeleteGroup(group("node-*"))).await.unwrap();
    assert_eq!(names("node-*"), (1, true));
}

#[tokio::test]
async fn a_single_write_takes_the_label_off() {
    let server = Server::without_files(&MemoryStore::new());
    let label = || server.control.overrides().1.groups[&group("g")].label.clone();
    let write = Write::ReplaceResources {
        group: group("g"),
        label: Some("v1".into()),
        resources: resources(&[("a", "1")]),
    };
    server.write(write.clone()).await.unwrap();
    server.write(put("g", "a", "1")).await.unwrap();
    assert_eq!(label().as_deref(), Some("v1"), "an equal write changes nothing");
    server.write(put("g", "a", "2")).await.unwrap();
    assert_eq!(label(), None);
    server.write(write).await.unwrap();
    let reused = Write::ReplaceResources {
        group: group("g"),
        label: Some("v1".into()),
        resources: resources(&[("a", "3")]),
    };
    let outcome = server.write(reused).await.unwrap();
    assert_eq!(outcome.warnings[0].code, "label-reused");
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let server = Server::with_files(&MemoryStore::new());
    let early = server.write(put("g", "a", "1")).await;
    assert!(matches!(early, Err(WriteError::NotReady)));
    server.control.load_files(load(&[("filed", &[("f", "1")])])).await.unwrap();
    let other_default = NodeGroup { name: group("default"), ..selecting("x", &["a"]) };
    let table = [
        (Write::PutGroup(selecting("g", &[])), "invalid"),
        (Write::PutGroup(other_default), "invalid"),
        (Write::PutGroup(selecting("filed", &["a"])), "file"),
        (Write::DeleteGroup(group("filed")), "file"),
        (Write::DeleteGroup(group("default")), "built in"),
        (Write::DeleteGroup(group("none")), "not found"),
        (delete("none", "a"), "not found"),
        (delete("filed", "f"), "file"),
        (rollback(99), "not found"),
        (Write::Revert { of: Revision(99) }, "not found"),
    ];
    for (write, expected) in table {
        let text = format!("{write:?}");
        let found = match server.write(write).await.unwrap_err() {
            WriteError::Invalid(_) => "invalid",
            WriteError::OwnedByFile { origin, .. } => {
                assert!(origin.starts_with("routes/a.yaml:"), "{origin}");
                "file"
            }
            WriteError::BuiltIn { .. } => "built in",
            WriteError::NotFound { .. } => "not found",
            error @ (WriteError::PreconditionFailed { .. }
            | WriteError::Compacted { .. }
            | WriteError::Incomplete { .. }
            | WriteError::Store(_)
            | WriteError::History(_)
            | WriteError::NotReady
            | WriteError::Closed
            | _) => panic!("{text}: {error}"),
        };
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(server.revision(), 1);
}

#[tokio::test]
async fn pitfall_74_a_dangling_reference_is_a_warning_and_with_strict_an_error() {
    let route = json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "r",
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "a"}}]}],
    });
    let route = Arc::new(codec().resource_from_json(&route).unwrap());
    let write = || Write::PutResource { group: group("g"), resource: Arc::clone(&route) };
    let server = Server::without_files(&MemoryStore::new());
    let outcome = server.write(write()).await.unwrap();
    assert_eq!(outcome.warnings[0].code, "dangling-reference");
    let outcome = server.write(put("default", "a", "1")).await.unwrap();
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let outcome = server.write(delete("default", "a")).await.unwrap();
    assert_eq!(outcome.warnings.len(), 1, "what a removal leaves dangling is told too");
    let strict = Options { strict: true, ..Options::default() };
    let server = Server::open(MemoryStore::new(), strict);
    assert!(matches!(server.write(write()).await, Err(WriteError::Invalid(_))));
    server.write(replace("g", &[("a", "1"), ("nobody-names-me", "1")])).await.unwrap();
    server.write(write()).await.unwrap();
}

#[tokio::test]
async fn what_is_asked_for_on_demand_is_no_dangling_reference() {
    let source = json!({"ads": {}, "resource_api_version": "V3"});
    let route = json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "r", "vhds": {"config_source": source},
    });
    let resource = Arc::new(codec().resource_from_json(&route).unwrap());
    let strict = Options { strict: true, ..Options::default() };
    let server = Server::open(MemoryStore::new(), strict);
    server.write(Write::PutResource { group: group("g"), resource }).await.unwrap();
}

#[tokio::test]
async fn groups_of_equal_priority_that_meet_at_a_node_are_told_of() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(Write::PutGroup(selecting("one", &["n*"]))).await.unwrap();
    server.write(Write::PutGroup(selecting("two", &["*1"]))).await.unwrap();
    server.write(put("one", "a", "1")).await.unwrap();
    assert!(server.write(put("two", "a", "2")).await.unwrap().warnings.is_empty(), "no node is in both");
    let info = StreamInfo {
        id: StreamId(1),
        node: Arc::new(Node::with_id("n1")),
        address: "127.0.0.1:1".into(),
        variant: Variant::Sotw,
        service: None,
        since: SystemTime::UNIX_EPOCH,
        proofs: Arc::default(),
    };
    let nobody: Weak<dyn Subscriber> = Weak::<Nobody>::new();
    let _entry = server.board.register(info, nobody);
    let outcome = server.write(put("two", "a", "3")).await.unwrap();
    assert_eq!(outcome.warnings[0].code, "priority-conflict");
    let raised = NodeGroup { priority: 1, ..selecting("two", &["*1"]) };
    assert!(server.write(Write::PutGroup(raised)).await.unwrap().warnings.is_empty());
}

#[tokio::test]
async fn a_rollback_brings_back_what_was_and_is_a_revision() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(replace("g", &[("a", "1")])).await.unwrap();
    server.write(replace("g", &[("b", "2")])).await.unwrap();
    server.write(replace("h", &[("c", "3")])).await.unwrap();
    let outcome = server.write(rollback(1)).await.unwrap();
    assert_eq!(outcome.revision, Revision(4));
    assert_eq!(server.served("g"), pairs(&[("a", "1")]));
    assert!(!server.control.overrides().1.groups.contains_key(&group("h")));
    assert_eq!(server.write(rollback(1)).await.unwrap().revision, Revision(4), "equal is no revision");
    server.write(rollback(0)).await.unwrap();
    assert!(server.control.overrides().1.groups.is_empty());
    let entries = server.control.history(None, 2).unwrap();
    assert_eq!((entries[0].source.as_str(), entries[1].source.as_str()), ("rollback", "rollback"));
}

#[tokio::test]
async fn pitfall_79_a_revert_undoes_one_revision_and_leaves_later_ones() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(replace("g", &[("a", "1"), ("b", "1")])).await.unwrap();
    server.write(replace("g", &[("a", "2"), ("c", "2")])).await.unwrap();
    server.write(put("g", "c", "3")).await.unwrap();
    server.write(put("h", "d", "4")).await.unwrap();
    let outcome = server.write(Write::Revert { of: Revision(2) }).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "1"), ("b", "1"), ("c", "3")]));
    assert_eq!(server.served("h"), pairs(&[("d", "4")]));
    assert_eq!(outcome.warnings[0].code, "changed-since");
}

#[tokio::test]
async fn a_change_that_another_server_made_first_is_built_upon() {
    let store = MemoryStore::new();
    let (one, two) = (Server::without_files(&store), Server::without_files(&store));
    one.write(put("g", "a", "1")).await.unwrap();
    two.write(put("g", "b", "1")).await.unwrap();
    assert_eq!(two.served("g"), pairs(&[("a", "1"), ("b", "1")]));
    let following = tokio::spawn(one.control.clone().follow_store());
    let all = pairs(&[("a", "1"), ("b", "1")]);
    let comes = async {
        while one.served("g") != all {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), comes)
        .await
        .expect("the change of the other server is served");
    following.abort();
}

#[tokio::test]
async fn a_write_that_the_store_refuses_changes_nothing() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    server.write(put("g", "a", "1")).await.unwrap();
    store.is_failing.store(true, Ordering::Relaxed);
    assert!(matches!(server.write(put("g", "a", "2")).await, Err(WriteError::Store(_))));
    assert_eq!((server.revision(), server.served("g")), (1, pairs(&[("a", "1")])));
    store.is_failing.store(false, Ordering::Relaxed);
    server.write(put("g", "a", "2")).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_half_done() {
    let server = Server::without_files(&MemoryStore::new());
    let mut write = Box::pin(server.write(put("g", "a", "1")));
    // Polled once: the change is under way, and nobody waits for it any more.
    tokio::select! {
        biased;
        _ = &mut write => panic!("it was done at once"),
        () = std::future::ready(()) => {}
    }
    drop(write);
    while server.revision() == 0 {
        tokio::task::yield_now().await;
    }
    server.write(put("g", "b", "1")).await.unwrap();
    assert_eq!(server.served("g"), pairs(&[("a", "1"), ("b", "1")]));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_stops_nothing_and_is_told_of() {
    let store = MemoryStore::new();
    Server::without_files(&store).write(replace("g", &[("a", "1"), ("b", "1")])).await.unwrap();
    let garbage = store.put_blob("not a record".into()).await.unwrap();
    let changes = vec![
        Change::set("resource/g/clusters/a", garbage),
        Change::set("group/h", garbage),
        Change::set("from-a-later-version", garbage),
    ];
    store.commit(xds_store::Revision(1), Commit { changes, ..Commit::default() }).await.unwrap();
    let server = Server::without_files(&store);
    assert_eq!(server.served("g"), pairs(&[("b", "1")]));
    assert_eq!(server.control.problems().len(), 3);
    assert!(server.control.not_ready().is_empty());
    server.write(put("g", "c", "1")).await.unwrap();
    assert_eq!(server.control.problems().len(), 3, "what cannot be read is not thrown away in passing");
    server.write(replace("g", &[("b", "1")])).await.unwrap();
    assert_eq!(server.control.problems().len(), 2, "but what takes its place does");
    assert!(!store.state().1.contains_key("resource/g/clusters/a"));
}

#[tokio::test]
async fn a_group_with_a_record_that_cannot_be_read_keeps_its_last_good() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    server.write(replace("g", &[("a", "1")])).await.unwrap();
    server.write(replace("h", &[("a", "1")])).await.unwrap();
    let garbage = store.put_blob("not a record".into()).await.unwrap();
    let changes =
        vec![Change::set("resource/g/clusters/a", garbage), Change::delete("resource/h/clusters/a")];
    store.commit(xds_store::Revision(2), Commit { changes, ..Commit::default() }).await.unwrap();
    server.write(put("i", "a", "1")).await.unwrap();
    assert_eq!((server.served("g"), server.served("h")), (pairs(&[("a", "1")]), pairs(&[])));
    assert_eq!(server.control.problems().len(), 1);
}

#[tokio::test]
async fn pitfall_68_a_private_key_is_in_no_difference() {
    let store = MemoryStore::new();
    let server = Server::without_files(&store);
    let write = Write::PutResource { group: group("g"), resource: Arc::new(secret("TOPSECRET")) };
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let dry = server.control.write(write.clone(), options).await.unwrap();
    server.write(write).await.unwrap();
    let told = format!(
        "{:?} {:?} {:?}",
        dry.difference,
        server.control.revision(Revision(1), |_| true).unwrap(),
        server.control.difference(Revision(0), Revision(1), |_| true).unwrap()
    );
    assert!(told.contains("public") && told.contains("[redacted]") && !told.contains("TOPSECRET"), "{told}");
}
