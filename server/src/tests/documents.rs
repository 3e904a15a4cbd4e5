//! Route documents of files and API: the resources that they generate, overrides, history, and conditions.

use std::time::UNIX_EPOCH;

use xds_cache::Version;
use xds_codec::{Diagnostic, Limits, Severity, Syntax};
use xds_files::load::{self, FilesState};
use xds_files::read::{FileContent, Scan};
use xds_files::timing::Removals;
use xds_routes::{Document, DocumentKey, Kind, ReadOutcome};
use xds_store::JournalStore;

use super::*;

/// A gateway on a port with a route to a service, which is not there.
pub(super) const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: prod}
spec: {gatewayClassName: xds, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: prod}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
";

/// The service, with one endpoint.
pub(super) const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: prod}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: prod, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.0.0.1]}]
";

/// The resources that both give Envoys, by type and name.
const SERVED: [&str; 4] =
    ["clusters/prod/shop/80", "endpoints/prod/shop/80", "listeners/prod/edge/8080", "routes/prod/edge/8080"];

pub(super) fn both() -> String {
    format!("{ROUTE}---{SERVICE}")
}

pub(super) fn documents(text: &str) -> Vec<Arc<Document>> {
    let trees = xds_codec::parse("", text.as_bytes(), Syntax::Yaml, &Limits::default()).unwrap();
    let objects = trees.iter().flat_map(|tree| {
        match xds_routes::read(&"".into(), tree, xds_routes::UnknownFields::Refuse) {
            ReadOutcome::Objects(objects) => objects,
            other @ (ReadOutcome::NotOurs | ReadOutcome::Unreadable(_)) => panic!("{other:?}"),
        }
    });
    objects.map(|object| object.outcome.unwrap().0).collect()
}

pub(super) fn apply(text: &str) -> Write {
    Write::ApplyDocuments { group: None, documents: documents(text), warnings: vec![] }
}

fn shop(kind: Kind) -> DocumentKey {
    DocumentKey::new(kind, "prod", "shop")
}

/// The load of files with these paths and contents.
pub(super) fn files(files: &[(&str, &str)]) -> FileLoad {
    let contents = files.iter().map(|(path, text)| ((*path).into(), Ok(FileContent::new(text.as_bytes()))));
    let scan = Scan { files: contents.collect(), faults: BTreeMap::new(), is_settled: true };
    let options = load::Options {
        removals: Removals::Due,
        is_partial_start: false,
        unknown_fields: xds_routes::UnknownFields::Refuse,
    };
    let limits = Limits::default();
    let loaded = load::load(&FilesState::default(), &scan, options, UNIX_EPOCH, |path, content| {
        codec().decode_file(path, &content.bytes, &limits)
    });
    FileLoad { texts: loaded.state.texts(&scan, &limits), ..loaded.load }
}

/// The versions of what a client of that kind and of exactly this group is served, by type and name.
fn served(server: &Server, name: &str, profile: Profile) -> BTreeMap<String, Version> {
    let view = server.publisher.view_at(&view_key_of_group(&group(name), profile)).unwrap();
    let named = |resource: &Arc<Resource>| {
        (format!("{}/{}", resource.resource_type().slug(), resource.name()), resource.version())
    };
    view.resources().map(named).collect()
}

fn names(server: &Server) -> Vec<String> {
    served(server, "default", Profile::Envoy).into_keys().collect()
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<&str> {
    diagnostics.iter().map(|found| found.code).collect()
}

fn generation(server: &Server, kind: Kind) -> u64 {
    server.control.documents().translated.documents[&shop(kind)].generation
}

#[tokio::test]
async fn applied_documents_are_served_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let (store, _) = JournalStore::open(dir.path(), Default::default()).unwrap();
        Server::open(Arc::new(store), Options::default())
    };
    let server = open();
    let outcome = server.write(apply(&both())).await.unwrap();
    assert_eq!((outcome.revision, outcome.warnings.len()), (Revision(1), 0), "{:?}", outcome.warnings);
    let before = Profile::ALL.map(|profile| served(&server, "default", profile));
    assert_eq!(before[0].keys().collect::<Vec<_>>(), SERVED);
    assert!(before[1].contains_key("clusters/prod/shop/80"));
    let equal = server.write(apply(&both())).await.unwrap();
    assert_eq!((equal.revision, equal.changed), (Revision(1), false), "an equal write changes nothing");
    drop(server);
    let server = open();
    assert_eq!(Profile::ALL.map(|profile| served(&server, "default", profile)), before);
    assert_eq!(server.write(apply(&both())).await.unwrap().revision, Revision(1));
}

#[tokio::test]
async fn documents_of_files_are_a_revision_and_what_changes_in_them_is_told() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(files(&[("r/a.yaml", &both())])).await.unwrap();
    assert_eq!((names(&server), server.revision()), (SERVED.map(str::to_owned).to_vec(), 1));
    // A document that moved says the same; its place is kept up to date.
    server.control.load_files(files(&[("r/b.yaml", &format!("# moved\n{}", both()))])).await.unwrap();
    assert_eq!((server.revision(), generation(&server, Kind::Service)), (1, 1));
    let view = server.publisher.view_at(&view_key_of_group(&group("default"), Profile::Envoy)).unwrap();
    let origin = view.resolve(&ResourceType::Listener, "prod/edge/8080").unwrap().origin().to_string();
    assert!(origin.starts_with("r/b.yaml:3:"), "{origin}");
    let outcome =
        server.control.load_files(files(&[("r/b.yaml", &both().replace("10.0.0.1", "10.0.0.2"))])).await;
    let told: Vec<_> = outcome.unwrap().difference.into_iter().map(|changed| changed.what).collect();
    assert_eq!(
        told,
        [
            "document/EndpointSlice/prod/shop-1",
            "generated/envoy/default/endpoints/prod/shop/80",
            "generated/grpc/default/endpoints/prod/shop/80"
        ]
    );
    let (entry, difference) = server.control.revision(Revision(2), |_| true).unwrap();
    assert_eq!(entry.source, "file");
    assert_eq!(entry.summary, "1 added or changed, 0 removed in files: document/EndpointSlice/prod/shop-1");
    let changed = difference[0].after.as_ref().unwrap();
    assert_eq!((difference.len(), &changed["endpoints"][0]["addresses"]), (1, &json!(["10.0.0.2"])));
    let slice = DocumentKey::new(Kind::EndpointSlice, "prod", "shop-1");
    assert_eq!(server.control.documents().translated.documents[&slice].generation, 2);
    server.control.load_files(files(&[])).await.unwrap();
    assert_eq!((names(&server).len(), server.revision()), (0, 3));
}

#[tokio::test]
async fn the_directory_of_a_gateway_decides_for_whom_its_routes_are() {
    let server = Server::with_files(&MemoryStore::new());
    let node_group =
        "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {name: g}\nspec: {selector: {all: true}}\n";
    let load = files(&[("r/g/group.yaml", node_group), ("r/g/a.yaml", ROUTE), ("r/b.yaml", SERVICE)]);
    server.control.load_files(load).await.unwrap();
    assert_eq!(names(&server).len(), 0);
    assert_eq!(served(&server, "g", Profile::Envoy).into_keys().collect::<Vec<_>>(), SERVED);
}

#[tokio::test]
async fn a_document_of_the_api_hides_the_files_until_it_goes_or_is_equal() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    let load = |address: &str| files(&[("r/a.yaml", &both().replace("10.0.0.1", address))]);
    server.control.load_files(load("10.0.0.1")).await.unwrap();
    let of_file = served(&server, "default", Profile::Envoy);
    let service = SERVICE.replace("10.0.0.1", "10.0.0.9");
    server.write(apply(&service)).await.unwrap();
    let of_api = served(&server, "default", Profile::Envoy);
    assert_ne!(of_file, of_api);
    let slice = DocumentKey::new(Kind::EndpointSlice, "prod", "shop-1");
    server.write(Write::DeleteDocument { key: slice.clone() }).await.unwrap();
    assert_eq!(served(&server, "default", Profile::Envoy), of_file, "the file's shows again");
    let refused = server.write(Write::DeleteDocument { key: slice.clone() }).await.unwrap_err();
    assert!(
        matches!(&refused, WriteError::OwnedByFile { origin, .. } if origin.starts_with("r/a.yaml:")),
        "{refused}"
    );
    let missing = DocumentKey::new(Kind::Service, "prod", "none");
    let refused = server.write(Write::DeleteDocument { key: missing }).await.unwrap_err();
    assert!(matches!(refused, WriteError::NotFound { .. }));

    server.write(apply(&service)).await.unwrap();
    let mut events = server.control.events();
    server.control.load_files(load("10.0.0.9")).await.unwrap();
    let dropped = Event::OverrideDropped {
        what: "document/EndpointSlice/prod/shop-1".to_owned(),
        reason: "the file says the same now".to_owned(),
    };
    assert!(told(&mut events).contains(&dropped), "what the file says by now is no override any more");
    assert!(!server.control.documents().owned.contains_key(&slice));
    assert_eq!(served(&server, "default", Profile::Envoy), of_api);
}

#[tokio::test]
async fn a_rollback_and_a_revert_bring_documents_back() {
    let server = Server::without_files(&MemoryStore::new());
    server.write(apply(&both())).await.unwrap();
    let first = served(&server, "default", Profile::Envoy);
    server.write(apply(&SERVICE.replace("10.0.0.1", "10.0.0.2"))).await.unwrap();
    let second = served(&server, "default", Profile::Envoy);
    server.write(Write::DeleteDocument { key: shop(Kind::HttpRoute) }).await.unwrap();
    assert_ne!(first, second);
    server.write(Write::Revert { of: Revision(3) }).await.unwrap();
    assert_eq!(served(&server, "default", Profile::Envoy), second);
    server.write(rollback(1)).await.unwrap();
    assert_eq!(served(&server, "default", Profile::Envoy), first);
    server.write(rollback(0)).await.unwrap();
    assert_eq!((names(&server).len(), server.revision()), (0, 6));
    let (_, difference) = server.control.revision(Revision(5), |_| true).unwrap();
    let changed: Vec<_> = difference.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(changed, ["document/EndpointSlice/prod/shop-1"]);
    let between = server.control.difference(Revision(2), Revision(3), |_| true).unwrap();
    assert_eq!(between[0].what, "document/HTTPRoute/prod/shop");
    assert!(between[0].before.is_some() && between[0].after.is_none());
}

#[tokio::test]
async fn what_another_server_commits_is_served_here_too() {
    let store = MemoryStore::new();
    let (one, two) = (Server::without_files(&store), Server::without_files(&store));
    one.write(apply(&both())).await.unwrap();
    // A conflict makes it catch up.
    two.write(put("default", "a", "1")).await.unwrap();
    let served = served(&two, "default", Profile::Envoy);
    assert!(SERVED.iter().all(|name| served.contains_key(*name)), "{served:?}");
}

#[tokio::test]
async fn a_stored_document_that_cannot_be_read_is_named_and_can_be_applied_again() {
    let store = MemoryStore::new();
    let value =
        store.put_blob(r#"{"group": "default", "source": {"kind": "Service"}}"#.into()).await.unwrap();
    let change = xds_store::Change::set("document/Service/prod/shop", value);
    let commit = xds_store::Commit { changes: vec![change], ..Default::default() };
    store.commit(xds_store::Revision(0), commit).await.unwrap();
    let server = Server::without_files(&store);
    let problems = server.control.problems();
    assert!(problems[0].starts_with("the stored Service prod/shop cannot be read"), "{problems:?}");
    server.write(apply(&both())).await.unwrap();
    assert_eq!((server.control.problems().len(), names(&server).len()), (0, 4));
}

#[tokio::test]
async fn what_is_doubtful_between_documents_shows_at_the_file_that_it_is_about() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(files(&[("r/a.yaml", ROUTE), ("r/b.yaml", SERVICE)])).await.unwrap();
    assert!(server.control.files().values().all(|file| file.diagnostics.is_empty()));
    server.control.load_files(files(&[("r/a.yaml", ROUTE)])).await.unwrap();
    let doubts = server.control.files()["r/a.yaml"].diagnostics.clone();
    assert_eq!(
        (doubts.len(), doubts[0].severity, doubts[0].place.line),
        (1, Severity::Warning, 12),
        "{doubts:?}"
    );
    assert!(server.control.problems().is_empty(), "{:?}", server.control.problems());
    // A write changes what is doubtful about a file.
    server.write(apply(SERVICE)).await.unwrap();
    assert!(server.control.files()["r/a.yaml"].diagnostics.is_empty());
    let outcome = server.write(Write::DeleteDocument { key: shop(Kind::Service) }).await.unwrap();
    assert_eq!(outcome.warnings, doubts);
    assert_eq!(server.control.files()["r/a.yaml"].diagnostics, doubts);
}

#[tokio::test]
async fn a_resource_that_hides_a_generated_one_is_told_with_both_places() {
    let server = Server::with_files(&MemoryStore::new());
    let raw = "clusters:\n- {name: prod/shop/80, type: STATIC, connect_timeout: 7s}\n";
    server.control.load_files(files(&[("r/a.yaml", &both()), ("r/b.yaml", raw)])).await.unwrap();
    let doubts = server.control.files()["r/b.yaml"].diagnostics.clone();
    assert_eq!(codes(&doubts), ["hides-generated"]);
    assert_eq!((doubts[0].place.line, &*doubts[0].related[0].file), (2, "r/a.yaml"));
    assert!(
        doubts[0].message.contains("r/b.yaml:2") && doubts[0].message.contains("r/a.yaml:"),
        "{}",
        doubts[0]
    );
    let view = server.publisher.view_at(&view_key_of_group(&group("default"), Profile::Envoy)).unwrap();
    let served = view.resolve(&ResourceType::Cluster, "prod/shop/80").unwrap();
    assert_eq!(codec().to_json(&served)["connect_timeout"], "7s", "what is written out wins");
    let outcome = server.write(put("default", "prod/shop/80", "1")).await.unwrap();
    assert_eq!(codes(&outcome.warnings), ["hides-generated"]);
}

#[tokio::test]
async fn references_find_what_is_generated_and_what_is_generated_is_not_judged() {
    let server = Server::with_files(&MemoryStore::new());
    let raw = |cluster: &str| {
        format!(
            "routes:\n- name: r\n  virtual_hosts: [{{name: v, domains: ['*'], routes: \
             [{{match: {{prefix: /}}, route: {{cluster: {cluster}}}}}]}}]\n"
        )
    };
    let all = both();
    server
        .control
        .load_files(files(&[("r/a.yaml", &all), ("r/b.yaml", &raw("prod/shop/80"))]))
        .await
        .unwrap();
    let found = |server: &Server| -> Vec<String> {
        let files = server.control.files();
        let all = files.values().flat_map(|file| &file.diagnostics);
        all.map(|one| format!("{}:{}", one.place, one.code)).collect()
    };
    assert_eq!(found(&server), Vec::<String>::new());
    server
        .control
        .load_files(files(&[("r/a.yaml", &all), ("r/b.yaml", &raw("prod/none/80"))]))
        .await
        .unwrap();
    assert_eq!(found(&server), ["r/b.yaml:3:92:dangling-reference"], "at the field that names it");
    // A generated resource names an error cluster on purpose if there is no backend.
    server.control.load_files(files(&[("r/a.yaml", ROUTE)])).await.unwrap();
    assert!(found(&server).iter().all(|one| !one.contains("dangling")), "{:?}", found(&server));
    // A generated cluster that goes away is missed by what is written out.
    server.control.load_files(files(&[("r/b.yaml", &raw("prod/shop/80"))])).await.unwrap();
    server.write(apply(&all)).await.unwrap();
    let outcome = server.write(Write::DeleteDocument { key: shop(Kind::Service) }).await.unwrap();
    assert!(codes(&outcome.warnings).contains(&"dangling-reference"), "{:?}", outcome.warnings);
}

#[tokio::test]
async fn a_condition_keeps_its_time_until_its_status_changes() {
    let server = Server::without_files(&MemoryStore::new());
    let times = |kind: &'static str| {
        let documents = server.control.documents();
        let route = shop(Kind::HttpRoute);
        let mut of_route =
            documents.translated.conditions(&route).filter(|(_, one, _)| one.kind.as_str() == kind);
        of_route.next().map(|(_, condition, at)| (condition.status.to_string(), at)).unwrap()
    };
    server.write(apply(ROUTE)).await.unwrap();
    let (accepted, unresolved) = (times("Accepted"), times("ResolvedRefs"));
    assert_eq!((accepted.0.as_str(), unresolved.0.as_str()), ("True", "False"));
    server.write(apply(SERVICE)).await.unwrap();
    let resolved = times("ResolvedRefs");
    assert_eq!((times("Accepted"), resolved.0.as_str()), (accepted.clone(), "True"));
    assert!(resolved.1 > unresolved.1);
    server.write(apply(&SERVICE.replace("10.0.0.1", "10.0.0.2"))).await.unwrap();
    assert_eq!((times("Accepted"), times("ResolvedRefs")), (accepted, resolved));
}

#[tokio::test]
async fn documents_count_in_a_mass_removal() {
    let options = Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let server = Server::open(MemoryStore::new(), options);
    server.control.load_files(files(&[("r/a.yaml", &both())])).await.unwrap();
    server.control.load_files(files(&[("r/a.yaml", ROUTE)])).await.unwrap();
    assert_eq!((server.control.unconfirmed(), names(&server).len()), (None, 2), "half is not more than half");
    server.control.load_files(files(&[])).await.unwrap();
    assert!(server.control.unconfirmed().is_some());
    assert_eq!(names(&server).len(), 2);
}

#[tokio::test]
async fn policies_that_are_not_supported_may_all_go_at_once_and_leave_no_secrets_behind() {
    let options = Options { watches_files: true, hold_mass_removal: Some(0.5), ..Options::default() };
    let store = MemoryStore::new();
    let server = Server::open(store.clone(), options);
    let policy = |name: usize| {
        format!(
            "---\napiVersion: example.com/v1\nkind: Auth\nmetadata: {{name: p{name}}}\n\
             spec: {{targetRef: {{kind: HTTPRoute, namespace: prod, name: shop}}, key: hunter2}}\n"
        )
    };
    let policies: String = (0..9).map(policy).collect();
    server.control.load_files(files(&[("r/a.yaml", &both()), ("r/p.yaml", &policies)])).await.unwrap();
    let n_warnings = || {
        let files = server.control.files();
        let found = files.values().flat_map(|file| &file.diagnostics);
        found.filter(|one| one.code == "unsupported-policy").count()
    };
    assert_eq!(n_warnings(), 9);
    assert!(!store.dump().contains("hunter2"), "{}", store.dump());
    server.control.load_files(files(&[("r/a.yaml", &both())])).await.unwrap();
    assert_eq!((server.control.unconfirmed(), n_warnings(), names(&server).len()), (None, 0, 4));
}

#[tokio::test]
async fn secrets_in_documents_of_files_are_not_in_the_store() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    for (n, value) in ["hunter2", "hunter3"].into_iter().enumerate() {
        let text =
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{key: {value}}}\n");
        server.control.load_files(files(&[("r/s.yaml", &text)])).await.unwrap();
        assert_eq!(server.revision(), n as u64 + 1, "a changed secret is a change");
    }
    let dump = store.dump();
    assert!(dump.contains("Secret") && !dump.contains("hunter"), "{dump}");
    let shown = format!("{:?}", server.control.difference(Revision(1), Revision(2), |_| true).unwrap());
    assert!(shown.contains("[redacted]") && !shown.contains("hunter"), "{shown}");
}
