//! Scopes: a principal with a scope sees exactly its part of every list, page by page, and no name or number of anything else.
//!
//! The names of all things out of scope have the word `hidden`, and those in scope `shown`.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::Service as _;
use xds_cache::loads::{ClusterReport, Reporter};

use super::access::{ask, policy};
use super::acked::AckingClient;
use super::rest::{Reply, Rest};
use super::*;

/// The lists, with the field of their items, and `true` for those with pages. Kept by hand: the table of the API must not check itself.
const LISTS: &[(&str, &str, bool)] = &[
    ("/v1/groups", "groups", true),
    ("/v1/groups/shown/resources", "resources", true),
    ("/v1/documents", "documents", true),
    ("/v1/conditions", "objects", true),
    ("/v1/weights", "objects", true),
    ("/v1/fleet", "nodes", false),
    ("/v1/nodes", "nodes", true),
    ("/v1/status/files", "files", true),
    ("/v1/history", "revisions", true),
    ("/v1/loads", "clusters", true),
    ("/v1/rollouts", "rollouts", false),
    ("/v1/waves", "waveDeployments", false),
];

struct World {
    rest: Rest,
    clients: Vec<AckingClient>,
    /// The revisions that changed only resources, by group.
    revisions: BTreeMap<&'static str, u64>,
    rollouts: BTreeMap<&'static str, String>,
    _policy: tokio::sync::watch::Sender<Arc<xds_access::Policy>>,
}

impl World {
    async fn new() -> Self {
        let principals = [
            ("admin", "role: admin"),
            ("part", "role: viewer, groups: ['shown*']"),
            ("both", "role: viewer, groups: ['shown*'], namespaces: [shown]"),
            ("space", "role: viewer, namespaces: [shown]"),
            ("writer", "role: admin, groups: ['shown*']"),
        ];
        let (sender, policy) = tokio::sync::watch::channel(Arc::new(policy(&principals)));
        let access = xds_api::Access { policy, ..xds_api::Access::default() };
        let rest = Rest::with_access(Server::with_files(&MemoryStore::new()), access);
        let files =
            load(&[("shown-files", &[("shown-file", "1")]), ("hidden-files", &[("hidden-file", "1")])]);
        rest.server.control.load_files(files).await.unwrap();
        for name in ["shown", "hidden"] {
            let body = json!({"selector": {"nodeIds": [format!("{name}-*"), "mixed-*"]}});
            admin(&rest, "PUT", &format!("/v1/groups/{name}"), &body).await;
        }
        let clients = ["shown-1", "hidden-1", "mixed-1", "other-1"];
        let connect = |(id, node): (usize, &&str)| AckingClient::connect(&rest.server, id as u64, node);
        let clients: Vec<AckingClient> = clients.iter().enumerate().map(connect).collect();
        let (mut revisions, mut rollouts) = (BTreeMap::new(), BTreeMap::new());
        for name in ["shown", "hidden"] {
            let path = format!("/v1/groups/{name}/resources/clusters/{name}-cluster");
            let cluster = |text: &str| json!({"name": format!("{name}-cluster"), "alt_stat_name": text, "connect_timeout": "1s"});
            let put = admin(&rest, "PUT", &path, &cluster("1")).await;
            revisions.insert(name, put["revision"].as_u64().unwrap());
            let deployed = admin(&rest, "PUT", &format!("{path}?waves=50%25&hold=1h"), &cluster("2")).await;
            let wave = deployed["waveDeployment"].as_u64().unwrap_or_else(|| panic!("{deployed:#}"));
            admin(&rest, "POST", &format!("/v1/waves/{wave}:promote"), &json!({})).await;
            admin(&rest, "POST", &format!("/v1/apply?group={name}"), &documents(name)).await;
            let started = admin(&rest, "POST", "/v1/rollouts", &rollout(name)).await;
            rollouts.insert(name, started["id"].as_str().unwrap().to_owned());
            report(&rest, name);
        }
        Self { rest, clients, revisions, rollouts, _policy: sender }
    }

    async fn get(&self, who: &str, path: &str) -> Reply {
        ask(&self.rest, who, "GET", path, "").await
    }

    /// A list read page by page.
    async fn pages(&self, who: &str, path: &str, field: &str, limit: usize) -> Vec<Value> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let reply = self.get(who, &format!("{path}?limit={limit}{after}")).await;
            assert!(!reply.text.contains("hidden"), "{path}?limit={limit}{after}: {}", reply.text);
            let page = reply.json();
            let items = page[field].as_array().unwrap();
            found.extend(items.iter().cloned());
            let next = page["next"].as_str().map(ToOwned::to_owned);
            let Some(next) = next.or_else(|| page["next"].as_u64().map(|next| next.to_string())) else {
                return found;
            };
            assert!(items.len() == limit && found.len() < 1_000, "only the last page is short: {page:#}");
            after = format!("&after={}", next.replace('%', "%25"));
        }
    }
}

async fn admin(rest: &Rest, method: &str, path: &str, body: &Value) -> Value {
    let reply = ask(rest, "admin", method, path, &body.to_string()).await;
    assert!((200..300).contains(&reply.status), "{method} {path}: {reply:?}");
    reply.json()
}

fn documents(name: &str) -> Value {
    let port = 1 + usize::from(name == "hidden");
    let [route, one, two] = ["r", "a", "b"].map(|part| format!("{name}-{part}"));
    json!({"version": "xds-server/v1", "namespace": name, "listeners": {format!("{name}-l"): {"port": port}},
           "routes": {route: {"listen": format!("{name}-l"), "rules": [{"to": {&one: 90, &two: 10}}]}},
           "backends": {&one: {"endpoints": "127.0.0.1:1"}, &two: {"endpoints": "127.0.0.1:2"}}})
}

fn rollout(name: &str) -> Value {
    json!({"route": {"kind": "Route", "namespace": name, "name": format!("{name}-r"), "rule": "0"},
           "stable": format!("{name}-a"), "canary": format!("{name}-b"), "steps": [{"pause": {}}]})
}

/// A load report of a node of the group about a cluster of its name.
fn report(rest: &Rest, name: &str) {
    let groups = [name, "default"].map(group).into_iter().collect();
    let reporter = Reporter { node: format!("{name}-1").into(), groups };
    let report = ClusterReport { cluster: format!("{name}-cluster"), ..ClusterReport::default() };
    rest.loads.record(&reporter, &[report], |_| true, SystemTime::now());
}

#[tokio::test]
async fn every_list_shows_exactly_the_part_in_scope() {
    let world = World::new().await;
    for who in ["part", "both"] {
        for (path, field, has_pages) in LISTS {
            let everything = world.get("admin", path).await;
            let is_of_group = path.starts_with("/v1/groups/shown");
            assert!(everything.text.contains("hidden") || is_of_group, "{path}: {}", everything.text);
            let whole = world.get(who, path).await;
            assert_eq!(whole.status, 200, "{who} {path}: {whole:?}");
            assert!(!whole.text.contains("hidden"), "{who} {path}: {}", whole.text);
            let whole = whole.json()[field].as_array().unwrap().clone();
            // Things in scope have the word, and so has whatever is about them and others.
            let everything = everything.json();
            let items = everything[field].as_array().unwrap().iter();
            let n_seen = items.filter(|item| item.to_string().contains("shown")).count();
            assert!(n_seen > 0 && whole.len() == n_seen, "{who} {path}: {n_seen} and {whole:#?}");
            for limit in 1..if *has_pages { 4 } else { 1 } {
                assert_eq!(world.pages(who, path, field, limit).await, whole, "{who} {path}?limit={limit}");
            }
        }
    }
}

#[tokio::test]
async fn tests_are_those_of_documents_in_scope_that_ask_groups_in_scope() {
    let world = World::new().await;
    for name in ["shown", "hidden"] {
        for of in ["shown", "hidden"] {
            let metadata = json!({"name": format!("{name}-{of}"), "namespace": name});
            let test = json!({"name": format!("{name}-{of}"), "request": {"host": "a", "path": "/"}, "expect": {"status": 500}});
            let body = json!({"apiVersion": "xds-server.io/v1", "kind": "RouteTest", "metadata": metadata,
                              "spec": {"group": of, "clients": ["envoy"], "tests": [test]}});
            admin(&world.rest, "POST", &format!("/v1/apply?group={name}"), &body).await;
        }
    }
    let control = world.rest.server.control.clone();
    tokio::spawn(control.clone().follow_tests());
    let tested = async {
        while control.tested().is_none_or(|tested| tested.report.totals().failed < 4) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), tested).await.unwrap();
    for who in ["part", "both", "space"] {
        let reply = world.get(who, "/v1/tests").await;
        assert_eq!(reply.status, 200, "{who}: {reply:?}");
        let list = reply.json();
        // A scope of namespaces has no group whose clients a test could ask about.
        let n = usize::from(who != "space");
        assert!(!reply.text.contains("hidden"), "{who}: {}", reply.text);
        assert_eq!(list["tests"].as_array().unwrap().len(), n, "{who}: {list:#}");
        assert_eq!((&list["passed"], &list["failed"]), (&json!(0), &json!(n)), "{who}");
        assert_eq!(list["coverage"].as_array().unwrap().is_empty(), n == 0, "{who}: {list:#}");
    }
}

#[tokio::test]
async fn one_object_out_of_scope_is_as_if_it_did_not_exist() {
    let world = World::new().await;
    let [shown, hidden] = ["shown", "hidden"].map(|name| (world.revisions[name], &world.rollouts[name]));
    let waves = world.get("admin", "/v1/waves").await.json()["waveDeployments"].clone();
    let wave = |name: &str| {
        let is_of = |wave: &&Value| wave["objects"].to_string().contains(name);
        waves.as_array().unwrap().iter().find(is_of).unwrap()["id"].as_u64().unwrap()
    };
    let pairs = [
        ("/v1/nodes/shown-1".to_owned(), "/v1/nodes/hidden-1".to_owned()),
        ("/v1/nodes/shown-1/snapshot".to_owned(), "/v1/nodes/hidden-1/snapshot".to_owned()),
        ("/v1/nodes/mixed-1".to_owned(), "/v1/nodes/mixed-1/snapshot".to_owned()),
        (format!("/v1/rollouts/{}", shown.1), format!("/v1/rollouts/{}", hidden.1)),
        (format!("/v1/waves/{}", wave("shown-cluster")), format!("/v1/waves/{}", wave("hidden-cluster"))),
        (format!("/v1/history/{}", shown.0), format!("/v1/history/{}", hidden.0)),
        (format!("/v1/history/1...{}", world.rest.server.revision()), "/v1/groups/hidden".to_owned()),
        ("/v1/documents/Route/shown/shown-r".to_owned(), "/v1/documents/Route/hidden/hidden-r".to_owned()),
        ("/v1/weights/Route/shown/shown-r".to_owned(), "/v1/weights/Route/hidden/hidden-r".to_owned()),
    ];
    for (seen, unseen) in &pairs {
        let reply = world.get("part", seen).await;
        assert_eq!(reply.status, 200, "{seen}: {reply:?}");
        assert!(!reply.text.contains("hidden") && reply.text.contains("shown"), "{seen}: {}", reply.text);
        assert_eq!(world.get("admin", unseen).await.status, 200, "{unseen}");
        let reply = world.get("part", unseen).await;
        assert_eq!(reply.status, 404, "{unseen}: {reply:?}");
    }
    let mixed = world.get("part", "/v1/nodes/mixed-1").await.json();
    assert_eq!(mixed["groups"], json!(["shown"]));
    // A scope of namespaces has all groups, and only its documents.
    for path in ["/v1/documents", "/v1/weights", "/v1/rollouts", "/v1/history"] {
        let reply = world.get("space", path).await;
        assert!(reply.status == 200 && reply.text.contains("shown-r"), "{path}: {reply:?}");
        assert!(
            !reply.text.contains("hidden-r") && !reply.text.contains("hidden-a"),
            "{path}: {}",
            reply.text
        );
    }
}

#[tokio::test]
async fn counts_are_those_of_the_scope() {
    let world = World::new().await;
    for (name, n_all, pending) in [("shown", 2, vec!["mixed-1", "shown-1"]), ("hidden", 2, vec!["mixed-1"])] {
        let path = format!("/v1/acks?revision={}", world.revisions[name]);
        assert_eq!(world.get("admin", &path).await.json()["total"], n_all);
        let acks = world.get("part", &path).await.json();
        let mut found: Vec<&str> =
            acks["pending"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        found.sort_unstable();
        assert_eq!((acks["total"].as_u64(), &found), (Some(pending.len() as u64), &pending), "{acks:#}");
    }
}

#[tokio::test]
async fn events_are_those_of_the_scope() {
    let world = World::new().await;
    for (client, name) in world.clients.iter().zip(["shown", "hidden"]) {
        client.ack(world.revisions[name]);
    }
    for (id, name) in [(100, "hidden"), (101, "shown")] {
        drop(AckingClient::connect(&world.rest.server, id, &format!("{name}-2")));
    }
    // News of streams come over another channel than those of changes, so the last of each is waited for.
    let last = json!({"name": "shown-last", "connect_timeout": "1s"});
    let path = "/v1/groups/shown/resources/clusters/shown-last";
    let last = admin(&world.rest, "PUT", path, &last).await["revision"].clone();
    let is_last =
        |text: &str| text.contains(&format!("\"revision\":{last}")) && text.contains("event: publish");
    let is_gone = |text: &str| text.contains("event: disconnect") && text.contains("shown-2");
    let everything = events(&world.rest, "admin", &[&is_last, &is_gone]).await;
    assert!(everything.contains("hidden-2") && everything.contains("hidden-cluster"), "{everything}");
    for who in ["part", "both"] {
        let seen = events(&world.rest, who, &[&is_last, &is_gone]).await;
        assert!(!seen.contains("hidden"), "{who}: {seen}");
        for event in ["publish", "connect", "ack", "disconnect", "rollout", "wave"] {
            assert!(seen.contains(&format!("event: {event}\n")), "{who} {event}: {seen}");
        }
        assert!(seen.contains("changes for the groups shown"), "{who}: {seen}");
    }
}

/// The text of the events from the first on, until there was one for which each of `ends` is true.
async fn events(rest: &Rest, who: &str, ends: &[&dyn Fn(&str) -> bool]) -> String {
    let request = Request::get("/v1/events")
        .header("last-event-id", "0-0")
        .header("authorization", format!("Bearer {who}"));
    let response = rest.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{who}");
    let mut body = response.into_body();
    let (mut all, mut waiting) = (String::new(), ends.to_vec());
    while !waiting.is_empty() {
        let frame = tokio::time::timeout(tokio::time::Duration::from_secs(20), body.frame());
        let frame = frame.await.unwrap_or_else(|_| panic!("{who}: there is only {all}"));
        let text = String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap();
        waiting.retain(|is_end| !is_end(&text));
        all += &text;
    }
    all
}

#[tokio::test]
async fn what_is_about_the_whole_server_is_refused() {
    let world = World::new().await;
    for path in ["/metrics", "/v1/audit", "/v1/access:check?node=a"] {
        assert_eq!(world.get("part", path).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_dry_run_names_the_nodes_in_scope_alone() {
    let world = World::new().await;
    let try_out = async |who: &str, path: &str, body: &Value| {
        let reply = ask(&world.rest, who, "PUT", &format!("{path}?dryRun=true"), &body.to_string()).await;
        (reply.status, reply.json())
    };
    let cluster = json!({"name": "shown-cluster", "alt_stat_name": "3", "connect_timeout": "1s"});
    let (status, told) =
        try_out("writer", "/v1/groups/shown/resources/clusters/shown-cluster", &cluster).await;
    assert_eq!((status, &told["affectedNodes"]), (200, &json!(["mixed-1", "shown-1"])), "{told:#}");
    assert!(!told.to_string().contains("hidden-"), "{told:#}");
    // A change that others get too is refused, and the nodes are not told.
    let for_all = json!({"name": "for-all", "connect_timeout": "1s"});
    let path = "/v1/groups/default/resources/clusters/for-all";
    let (status, told) = try_out("writer", path, &for_all).await;
    assert_eq!((status, &told["affectedNodes"]), (403, &Value::Null), "{told:#}");
    let (status, told) = try_out("admin", path, &for_all).await;
    assert_eq!(status, 200);
    assert!(told["affectedNodes"].to_string().contains("hidden-1"), "{told:#}");
}
