//! Older revisions: they are rebuilt as they were accepted, asked, and compared.

use serde_json::Value;
use tokio::sync::watch;
use xds_api::Access;
use xds_cache::Groups;
use xds_store::{Change, Commit};

use super::access::{ask, policy};
use super::documents::files;
use super::fuzz::splitmix::Random;
use super::rest::{JSON, Reply, Rest, rest};
use super::*;

const YAML: (&str, &str) = ("content-type", "application/yaml");

/// A route of the host, whose prefix `/` goes to this backend.
fn shop(to: &str) -> String {
    format!(
        "version: xds-server/v1\nlisteners: {{ edge: {{ port: 10000, address: 127.0.0.1 }} }}\n\
         routes: {{ shop: {{ hosts: [shop.test], rules: [{{ match: {{ prefix: / }}, to: {to} }}] }} }}\n\
         backends: {{ one: {{ endpoints: ['10.0.0.2:80'] }}, two: {{ endpoints: ['10.0.0.3:80'] }} }}\n"
    )
}

async fn apply(rest: &Rest, query: &str, text: &str) -> Reply {
    let reply = rest.call("POST", &format!("/v1/apply{query}"), &[YAML], text).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply
}

/// Revision 1 goes to `one`, revision 2 to `two`, and revision 3 half and half.
async fn three() -> Rest {
    let rest = rest();
    for to in ["one", "two", "{ one: 1, two: 1 }"] {
        apply(&rest, "", &shop(to)).await;
    }
    rest
}

/// The clusters of an answer of `/v1/explain`.
fn clusters(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    let outcomes = answer["explanations"][0]["outcomes"].as_array().unwrap();
    outcomes.iter().map(|one| one["cluster"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The versions of all that is served in these groups, by group, kind, type and name.
fn versions(groups: &Groups) -> BTreeMap<String, String> {
    let publisher = Publisher::new();
    publisher.publish(Revision(1), groups.clone());
    let mut all = BTreeMap::new();
    for name in groups.keys() {
        for profile in Profile::ALL {
            let view = publisher.view_at(&view_key_of_group(name, profile)).unwrap();
            all.extend(view.resources().map(|resource| {
                let key = format!("{name} {profile} {}/{}", resource.resource_type().slug(), resource.name());
                (key, resource.version().to_string())
            }));
        }
        let definition = xds_control::model::group::to_json(&groups[name].definition).to_string();
        all.insert(format!("{name} definition"), definition);
    }
    all
}

/// Does something at random. It may be refused.
async fn step(rest: &Rest, random: &mut Random) {
    let names = ["a", "b"];
    let group_name = ["default", "g"][random.below(2)];
    let (name, text) = (names[random.below(2)], format!("{}", random.below(3)));
    let backend = ["one", "two", "{ one: 3, two: 1 }"][random.below(3)];
    match random.below(9) {
        0 => _ = rest.server.write(put(group_name, name, &text)).await,
        1 => _ = rest.server.write(delete(group_name, name)).await,
        2 => _ = rest.call("POST", "/v1/apply", &[YAML], &shop(backend)).await,
        3 => _ = rest.call("DELETE", "/v1/documents/Route/default/shop", &[], "").await,
        4 => {
            let weights = json!({"backends": {"one": random.below(5), "two": 1}}).to_string();
            let path = "/v1/weights/Route/default/shop/0";
            _ = rest.call("PATCH", path, &[JSON, ("if-match", "*")], &weights).await;
        }
        5 => {
            let definition = json!({"selector": {"nodeIds": [text]}}).to_string();
            _ = rest.call("PUT", "/v1/groups/g", &[JSON], &definition).await;
        }
        6 => _ = rest.call("DELETE", "/v1/groups/g", &[], "").await,
        7 => {
            let all = [(name, &*text), ("c", "1")];
            _ = rest.server.control.confirm_files(load(&[("default", &all), ("f", &all[..1])])).await;
        }
        _ => {
            let one = shop(backend);
            _ = rest.server.control.confirm_files(files(&[("routes/shop.yaml", &one)])).await;
        }
    }
}

#[tokio::test]
async fn every_revision_is_rebuilt_as_it_was_accepted() {
    for seed in 0..20 {
        let rest = Rest::new(Server::with_files(&MemoryStore::new()));
        let mut random = Random(seed);
        rest.server.control.load_files(load(&[("default", &[("c", "0")])])).await.unwrap();
        let mut accepted = BTreeMap::new();
        for _ in 0..30 {
            accepted.insert(rest.server.revision(), versions(&rest.server.control.groups()));
            step(&rest, &mut random).await;
        }
        for (revision, expected) in accepted {
            let past = rest.server.control.at(Revision(revision), &|| true).unwrap();
            assert_eq!(versions(&past.groups), expected, "seed {seed}, revision {revision}");
            assert!(past.gaps.is_empty(), "seed {seed}, revision {revision}: {:?}", past.gaps);
        }
        let nothing = rest.server.control.at(Revision(0), &|| true).unwrap();
        assert!(versions(&nothing.groups).keys().all(|key| key == "default definition"), "seed {seed}");
    }
}

#[tokio::test]
async fn an_object_of_a_file_with_a_secret_is_a_gap_once_it_has_changed() {
    let server = Server::with_files(&MemoryStore::new());
    let text = |value: &str, name: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{key: {value}}}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{key: same}}\n"
        )
    };
    for (value, name) in [("hunter2", "same"), ("hunter3", "same"), ("hunter3", "other")] {
        server.control.confirm_files(files(&[("r/s.yaml", &text(value, name))])).await.unwrap();
    }
    let gaps = |revision: u64| server.control.at(Revision(revision), &|| true).unwrap().gaps;
    let secret = "it holds a secret, so its contents are not kept";
    let changed = format!("document/Secret/default/s: {secret}; the present ones are used");
    let gone = format!("document/Secret/default/same: {secret}; it is left out");
    assert_eq!(gaps(1), [changed, gone.clone()]);
    assert_eq!(gaps(2), [gone]);
    assert_eq!(gaps(3), Vec::<String>::new());
}

#[tokio::test]
async fn a_load_without_contents_in_the_history_is_an_error_and_no_other_state() {
    let store = MemoryStore::new();
    let server = Server::with_files(&store);
    server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
    // As a load is recorded that is too large.
    let hash = store.put_blob("0123456789abcdef without contents".into()).await.unwrap();
    store.commit_at_once(Commit { changes: vec![Change::set("files/hash", hash)], ..Commit::default() });
    server.write(put("default", "b", "1")).await.unwrap();
    let told = |revision: u64| {
        let past = server.control.at(Revision(revision), &|| true);
        past.map(|past| versions(&past.groups).len()).map_err(|error| error.to_string())
    };
    let gone =
        "the contents of the files at revision 2 are not kept: their load was too large for the history";
    assert_eq!(told(2), Err(gone.to_owned()));
    assert_eq!((told(1), told(3)), (Ok(3), Ok(5)), "a cluster is there for both kinds of clients");
}

#[tokio::test]
async fn a_question_can_be_about_an_older_revision() {
    let rest = three().await;
    let asked = async |at: Value| {
        let question = json!({"at": at, "request": {"host": "shop.test"}});
        rest.call("POST", "/v1/explain?text=true", &[JSON], &question.to_string()).await
    };
    for (at, expected) in [
        (json!(1), vec!["default/one"]),
        (json!(2), vec!["default/two"]),
        (json!(3), vec!["default/one", "default/two"]),
        (Value::Null, vec!["default/one", "default/two"]),
    ] {
        let reply = asked(at.clone()).await;
        assert_eq!(clusters(&reply), expected, "{at}");
        let answer = reply.json();
        assert_eq!(answer["revision"], at.as_u64().unwrap_or(3), "{at}");
        assert_eq!(answer["explanations"][0]["routes"][0]["place"]["document"], "Route default/shop");
    }
    for (at, status, detail) in [
        (json!(9), 404, "revision 9 does not exist"),
        (json!(-1), 422, "must be a revision, such as 12"),
        (json!("1"), 422, "must be a revision, such as 12"),
    ] {
        let reply = asked(at.clone()).await;
        assert_eq!(reply.status, status, "{at}: {}", reply.text);
        assert!(reply.text.contains(detail), "{at}: {}", reply.text);
    }
    let question = json!({"at": 1, "group": "g", "request": {"host": "shop.test"}}).to_string();
    apply(&rest, "?group=g", &shop("one").replace("shop", "other")).await;
    assert_eq!(rest.call("POST", "/v1/explain", &[JSON], &question).await.status, 404, "g came later");
}

/// The destinations before and after of the only class of requests that go elsewhere.
fn moved(changes: &Value) -> (String, String) {
    let classes = changes["classes"].as_array().unwrap().iter();
    let classes: Vec<&Value> = classes.filter(|class| class["kind"] == "destination").collect();
    assert_eq!(classes.len(), 1, "{changes:#}");
    let names = |side: &str| {
        let to = classes[0][side]["to"].as_array().unwrap();
        to.iter().map(|one| format!("{} {}", one["share"], one["name"])).collect::<Vec<_>>().join(", ")
    };
    (names("from"), names("to"))
}

#[tokio::test]
async fn two_revisions_are_compared() {
    let rest = three().await;
    let compare =
        async |question: Value| rest.call("POST", "/v1/diff?text=true", &[JSON], &question.to_string()).await;
    let half = r#"[1,2] "default/one", [1,2] "default/two""#;
    let (one, two) = (r#"[1,1] "default/one""#, r#"[1,1] "default/two""#);
    for (from, to, before, after) in [
        (json!(1), json!(2), one, two),
        (json!(2), json!(1), two, one),
        (json!(1), json!("current"), one, half),
        (json!("current"), json!(2), half, two),
        (json!(2), Value::Null, two, half),
    ] {
        let reply = compare(json!({"from": from, "to": to})).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let answer = reply.json();
        let expected = (before.to_owned(), after.to_owned());
        assert_eq!((moved(&answer["changes"][0]), &answer["same"]), (expected, &json!(false)));
        assert_eq!(answer["from"], from.as_u64().unwrap_or(3));
        assert!(answer["text"].as_str().unwrap().contains("1 moved"), "{answer:#}");
    }
    let same = compare(json!({"from": 3, "to": "current", "clients": ["envoy", "grpc"]})).await.json();
    let together = "envoy@1.40, grpc-core@1.85, grpc-go@1.85, grpc-java@1.80, grpc-js@1.14";
    let changes = same["changes"].as_array().unwrap();
    assert_eq!((&same["same"], changes.len()), (&json!(true), 1), "{same:#}");
    assert_eq!(changes[0]["client"], together);
    for (question, status, detail) in [
        (json!({}), 422, "write `from`"),
        (json!({"from": "now"}), 422, "must be a revision"),
        (json!({"from": 1, "too": 2}), 422, "did you mean `to`?"),
        (json!({"from": 7}), 404, "revision 7 does not exist"),
        (json!({"from": 1, "group": "none"}), 404, "none"),
    ] {
        let reply = compare(question.clone()).await;
        assert_eq!(reply.status, status, "{question}: {}", reply.text);
        assert!(reply.text.contains(detail), "{question}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_revision_is_compared_with_files_that_are_not_watched() {
    let rest = rest();
    let server = &rest.server;
    server.control.load_files(files(&[("routes/shop.yaml", &shop("one"))])).await.unwrap();
    let before = server.control.head();
    let compare =
        async |question: Value| rest.call("POST", "/v1/diff?text=true", &[JSON], &question.to_string()).await;
    let of = |text: &str| json!({"files": {"routes/shop.yaml": text}});
    let (one, two) = (r#"[1,1] "default/one""#.to_owned(), r#"[1,1] "default/two""#.to_owned());
    let answer = compare(json!({"from": "current", "to": of(&shop("two"))})).await.json();
    assert_eq!(moved(&answer["changes"][0]), (one.clone(), two.clone()), "{answer:#}");
    assert_eq!((&answer["from"], &answer["to"]), (&json!(before.0), &json!(before.0)));
    let answer = compare(json!({"from": of(&shop("two")), "to": "current"})).await.json();
    assert_eq!(moved(&answer["changes"][0]), (two, one));
    assert_eq!(compare(json!({"from": 1, "to": of(&shop("one"))})).await.json()["same"], true);

    // Weights that the API has set stay above those of the files.
    let set = r#"{"backends": {"one": 1, "two": 3}}"#;
    let path = "/v1/weights/Route/default/shop/0";
    let half = shop("{ one: 1, two: 1 }");
    server.control.load_files(files(&[("routes/shop.yaml", &half)])).await.unwrap();
    let any = ("if-match", "*");
    assert_eq!(rest.call("PATCH", path, &[JSON, any], set).await.status, 200);
    let answer = compare(json!({"from": "current", "to": of(&half)})).await.json();
    assert_eq!(answer["same"], true, "{answer:#}");

    // What has an error is left out, and that is told.
    let wrong = shop("one").replace("prefix: /", "prefix: 7");
    let answer = compare(json!({"from": "current", "to": of(&wrong)})).await.json();
    let error = &answer["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&json!("routes/shop.yaml"), &json!(3)), "{answer:#}");
    assert!(answer["text"].as_str().unwrap().starts_with("left out       routes/shop.yaml:3:"), "{answer:#}");
    for (to, detail) in [
        (json!({}), "write `files`"),
        (json!({"files": []}), "must be an object"),
        (json!({"files": {"a.yaml": 1}}), "must be a text"),
        (json!({"file": {}}), "did you mean `files`?"),
    ] {
        let reply = compare(json!({"from": "current", "to": to.clone()})).await;
        assert_eq!(reply.status, 422, "{to}: {}", reply.text);
        assert!(reply.text.contains(detail), "{to}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_wave_deployment_says_which_requests_it_moves() {
    let rest = three().await;
    apply(&rest, "?waves=10%25,100%25", &shop("two")).await;
    let wave = rest.get("/v1/waves/4?movedRequests=true").await.json();
    let half = r#"[1,2] "default/one", [1,2] "default/two""#.to_owned();
    let two = r#"[1,1] "default/two""#.to_owned();
    assert_eq!(moved(&wave["movedRequests"][0]["changes"][0]), (half, two), "{wave:#}");
    assert!(rest.get("/v1/waves/4").await.json().get("movedRequests").is_none());
    let reply = rest.call("POST", "/v1/waves/4:promote", &[JSON], "").await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(
        rest.get("/v1/waves/4?movedRequests=true").await.json().get("movedRequests").is_none(),
        "it is over"
    );
}

#[tokio::test]
async fn a_dry_run_and_the_history_say_which_requests_move() {
    let rest = three().await;
    let answer = apply(&rest, "?dryRun=true", &shop("two")).await.json();
    let half = r#"[1,2] "default/one", [1,2] "default/two""#.to_owned();
    let two = r#"[1,1] "default/two""#.to_owned();
    let envoy = &answer["requests"][0];
    assert_eq!((&envoy["group"], &envoy["client"]), (&json!("default"), &json!("envoy")));
    assert_eq!(moved(&envoy["changes"][0]), (half, two.clone()));
    let route = &envoy["changes"][0]["classes"][0]["to"]["to"][0]["route"];
    assert_eq!(route["place"]["document"], "Route default/shop");
    assert_eq!(answer["requests"][1]["client"], "grpc");
    let unmoved = apply(&rest, "?dryRun=true", &shop("{ one: 1, two: 1 }")).await.json();
    assert_eq!(unmoved["requests"], json!([]));

    let of = async |path: &str| rest.get(path).await.json();
    let one = r#"[1,1] "default/one""#.to_owned();
    let revision = of("/v1/history/2?requests=true").await;
    assert_eq!(moved(&revision["requests"][0]["changes"][0]), (one.clone(), two.clone()));
    let first = of("/v1/history/1?requests=true").await;
    assert_eq!(first["requests"][0]["changes"][0]["classes"][0]["kind"], "connection", "{first:#}");
    let back = of("/v1/history/2...1?requests=true").await;
    assert_eq!(moved(&back["requests"][0]["changes"][0]), (two, one));
    let plain = of("/v1/history/2").await;
    assert!(plain.get("requests").is_none() && plain.get("phases").is_none());

    for (range, new) in [("2", "default/two"), ("2...1", "default/one")] {
        let steps = of(&format!("/v1/history/{range}?phases=true")).await;
        assert!(steps.get("requests").is_none());
        let envoy = &steps["phases"][0];
        assert_eq!((&envoy["group"], &envoy["client"]), (&json!("default"), &json!("envoy")), "{steps:#}");
        let phases = envoy["phases"].as_array().unwrap();
        let sends = |phase: &Value, kind: &str, name: &str| {
            let mut sent = phase["send"].as_array().unwrap().iter();
            sent.any(|one| one["type"].as_str().unwrap().ends_with(kind) && one["name"] == name)
        };
        assert!(sends(&phases[0], ".Cluster", new), "the cluster comes first: {envoy:#}");
        let of_route = phases.iter().position(|phase| {
            let mut awaited = phase["waitsFor"].as_array().unwrap().iter();
            awaited.any(|one| one["what"] == "ack" && one["name"] == new)
        });
        assert!(of_route > Some(0), "the route waits for the cluster: {envoy:#}");
    }
}

#[tokio::test]
async fn older_revisions_of_groups_out_of_scope_are_not_shown() {
    let principals = [("all", "role: admin"), ("edge", "role: viewer, groups: [edge]")];
    let (_sender, current) = watch::channel(Arc::new(policy(&principals)));
    let access = Access { policy: current, ..Access::default() };
    let rest = Rest::with_access(Server::without_files(&MemoryStore::new()), access);
    for group in ["edge", "core"] {
        let definition = json!({"selector": {"nodeIds": ["x"]}}).to_string();
        assert_eq!(ask(&rest, "all", "PUT", &format!("/v1/groups/{group}"), &definition).await.status, 200);
    }
    let asked = async |who: &str, path: &str, question: Value| {
        ask(&rest, who, "POST", path, &question.to_string()).await.status
    };
    for (path, question) in
        [("/v1/explain", json!({"at": 2, "request": {"host": "a"}})), ("/v1/diff", json!({"from": 1}))]
    {
        let about = |group: &str| {
            let mut question = question.clone();
            question["group"] = json!(group);
            question
        };
        assert_eq!(asked("all", path, about("core")).await, 200, "{path}");
        assert_eq!(asked("edge", path, about("core")).await, 404, "{path}");
        assert_eq!(asked("edge", path, about("edge")).await, 200, "{path}");
        assert_eq!(asked("edge", path, question).await, 404, "{path}: the group default");
    }

    for group in ["edge", "core"] {
        let cluster =
            json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}).to_string();
        let path = format!("/v1/groups/{group}/resources/clusters/a");
        assert_eq!(ask(&rest, "all", "PUT", &path, &cluster).await.status, 200);
    }
    for (who, expected) in [("all", vec!["core", "edge"]), ("edge", vec!["edge"])] {
        let told = ask(&rest, who, "GET", "/v1/history/2...4?phases=true", "").await.json();
        let mut groups: Vec<_> =
            told["phases"].as_array().unwrap().iter().map(|one| one["group"].as_str().unwrap()).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups, expected, "{who}: {told:#}");
    }
}
