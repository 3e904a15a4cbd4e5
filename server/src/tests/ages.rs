//! The ages of documents and their conditions are the same after a restart, and on every server of a store.

use std::time::UNIX_EPOCH;

use xds_control::model::document::ConditionPart;
use xds_routes::conditions::Truth;
use xds_routes::{DocumentKey, Kind};

use super::documents::{ROUTE, SERVICE, both, files};
use super::*;

/// Object, part and type.
type ConditionId = (DocumentKey, ConditionPart, &'static str);

/// The generation of every document, and for every condition its status and since when, in milliseconds.
fn ages(server: &Server) -> (BTreeMap<DocumentKey, u64>, BTreeMap<ConditionId, (Truth, u128)>) {
    let documents = server.control.documents();
    let translated = &documents.translated;
    let generations = translated.documents.iter().map(|(key, placed)| (key.clone(), placed.generation));
    let since = translated.since.keys().flat_map(|key| {
        translated.conditions(key).map(move |(part, condition, at)| {
            let at = at.duration_since(UNIX_EPOCH).unwrap().as_millis();
            ((key.clone(), part, condition.kind.as_str()), (condition.status, at))
        })
    });
    (generations.collect(), since.collect())
}

fn route(server: &Server) -> u64 {
    ages(server).0[&DocumentKey::new(Kind::HttpRoute, "prod", "shop")]
}

/// Waits until the clock shows another millisecond, so that "now" is not "then".
async fn a_moment() {
    let then = SystemTime::now();
    while SystemTime::now().duration_since(then).unwrap_or_default().as_millis() < 2 {
        tokio::task::yield_now().await;
    }
}

fn edited(text: &str) -> String {
    text.replace("port: 80}]}]", "port: 81}]}]")
}

#[tokio::test]
async fn generations_and_times_of_conditions_survive_a_restart_without_revisions_of_their_own() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    server.control.load_files(files(&[("a.yaml", ROUTE)])).await.unwrap();
    let apply = |text: &str| {
        let load = files(&[("b.yaml", text)]);
        let documents = load.documents.values().map(|one| Arc::clone(&one.document)).collect();
        Write::ApplyDocuments { group: None, documents, warnings: vec![] }
    };
    server.write(apply(SERVICE)).await.unwrap();
    server.control.load_files(files(&[("a.yaml", &edited(ROUTE))])).await.unwrap();
    server.control.load_files(files(&[("a.yaml", ROUTE)])).await.unwrap();
    let (before, revision) = (ages(&server), server.revision());
    assert_eq!((route(&server), revision), (3, 4));

    for _ in 0..2 {
        a_moment().await;
        let again = Server::with_files(&store);
        again.control.load_files(files(&[("a.yaml", ROUTE)])).await.unwrap();
        assert_eq!((ages(&again), again.revision()), (before.clone(), revision));
    }

    // A change while nobody looked is one generation more, and only a condition with another status begins anew.
    a_moment().await;
    let again = Server::with_files(&store);
    again.control.load_files(files(&[("a.yaml", &edited(ROUTE))])).await.unwrap();
    assert_eq!((route(&again), again.revision()), (4, revision + 1));
    let (_, since) = ages(&again);
    let changed: Vec<_> = since.iter().filter(|(id, at)| before.1.get(*id) != Some(*at)).collect();
    let kinds: Vec<&str> = changed.iter().map(|((_, _, kind), _)| *kind).collect();
    assert_eq!(kinds, ["ResolvedRefs"], "{changed:?}");

    let history = again.control.revision(Revision(revision + 1), |_| true).unwrap();
    let whats: Vec<&str> = history.1.iter().map(|changed| &*changed.what).collect();
    assert_eq!(whats, ["document/HTTPRoute/prod/shop"], "statuses are no part of the history");
    assert_eq!(history.0.changes.len(), 1, "{:?}", history.0.changes);
}

#[tokio::test]
async fn servers_of_one_store_tell_the_same_ages() {
    let store = MemoryStore::new();
    let (writer, follower) = (Server::without_files(&store), Server::without_files(&store));
    let apply = |text: &str| {
        let load = files(&[("b.yaml", text)]);
        let documents = load.documents.values().map(|one| Arc::clone(&one.document)).collect();
        Write::ApplyDocuments { group: None, documents, warnings: vec![] }
    };
    writer.write(apply(&both())).await.unwrap();
    writer.write(apply(&edited(ROUTE))).await.unwrap();
    writer.write(apply(ROUTE)).await.unwrap();
    a_moment().await;
    // Its own write has it catch up with all three at once.
    follower.write(put("default", "c", "1")).await.unwrap();
    assert_eq!(ages(&follower), ages(&writer));
    assert_eq!(route(&follower), 3);
}
