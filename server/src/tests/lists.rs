//! Small promises of the REST API over a real control: pages of lists, tags as bodies show them, places in what was sent, lines of the
//! history, groups without nodes.

use serde_json::Value;

use super::rest::{Rest, rest};
use super::weights::{RULE, world};
use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A list read page by page.
async fn by_pages(rest: &Rest, path: &str, list: &str, limit: usize) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let reply = rest.get(&format!("{path}?limit={limit}{after}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let page = reply.json();
        let items = page[list].as_array().unwrap();
        assert!(items.len() <= limit && found.len() < 1_000, "{page:#}");
        found.extend(items.iter().cloned());
        let Some(next) = page["next"].as_str() else { return found };
        assert_eq!(items.len(), limit, "only the last page is short");
        after = format!("&after={}", next.replace('%', "%25"));
    }
}

#[tokio::test]
async fn every_list_comes_in_pages_that_are_the_whole() {
    let rest = world().await;
    for group in ["a", "b/c", "d"] {
        let resources = json!({"resources": [
            {"@type": ResourceType::RouteConfiguration.type_url(), "name": "r/1", "virtual_hosts": [
                {"name": "v", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"weighted_clusters":
                    {"clusters": [{"name": "x", "weight": 1}, {"name": "y", "weight": 1}]}}}]}]},
            {"@type": ResourceType::Cluster.type_url(), "name": "x"},
            {"@type": ResourceType::Cluster.type_url(), "name": "y%/"},
        ]});
        let path = format!("/v1/groups/{}/resources", group.replace('/', "%2F"));
        let reply = rest.put(&path, &resources).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    for (path, list, least) in [
        ("/v1/documents", "documents", 7),
        ("/v1/conditions", "objects", 2),
        ("/v1/weights", "objects", 4),
        ("/v1/groups", "groups", 4),
        ("/v1/groups/b%2Fc/resources", "resources", 3),
        ("/v1/status/files", "files", 1),
        ("/v1/history", "revisions", 3),
    ] {
        let whole = rest.get(path).await.json();
        assert_eq!(whole["next"], Value::Null, "{path}");
        let whole = whole[list].as_array().unwrap();
        assert!(whole.len() >= least, "{path}: {whole:#?}");
        for limit in 1..=4 {
            assert_eq!(by_pages(&rest, path, list, limit).await, *whole, "{path}?limit={limit}");
        }
        for bad in ["limit=0", "limit=10001", "limit=x"] {
            assert_eq!(rest.get(&format!("{path}?{bad}")).await.status, 400, "{path}?{bad}");
        }
    }
    for path in ["/v1/documents", "/v1/conditions", "/v1/weights", "/v1/groups/a/resources"] {
        let reply = rest.get(&format!("{path}?after=nowhere")).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        assert!(reply.text.contains("use `next` of the previous page"), "{}", reply.text);
    }
    snapshots_come_in_pages(&rest).await;
    // A list that is put back must be complete.
    let page = rest.get("/v1/groups/a/resources?limit=1").await.json();
    let reply = rest.put("/v1/groups/a/resources", &page).await;
    assert_eq!(
        (reply.status, &reply.json()["errors"][0]["pointer"]),
        (422, &json!("#/next")),
        "{}",
        reply.text
    );
    let whole = rest.get("/v1/groups/a/resources").await.json();
    assert_eq!(rest.put("/v1/groups/a/resources", &whole).await.json()["changed"], false);
}

/// The pages of a snapshot have each resource once, in the order of the whole.
async fn snapshots_come_in_pages(rest: &Rest) {
    let resources = |snapshot: &Value| -> Vec<String> {
        let types = snapshot["types"].as_object().unwrap().iter();
        let of_type = |(url, of_type): (&String, &Value)| -> Vec<String> {
            assert!(of_type["version"].is_string() && of_type["resources"][0].is_object(), "{of_type:#}");
            let resources = of_type["resources"].as_array().unwrap().iter();
            resources.map(|resource| format!("{url} {}", resource["name"])).collect()
        };
        types.flat_map(of_type).collect()
    };
    for path in ["/v1/groups/b%2Fc/snapshot", "/v1/nodes/nobody/snapshot"] {
        let whole = rest.get(path).await.json();
        let all = resources(&whole);
        assert!(all.len() > 2 && whole["next"].is_null(), "{path}: {whole:#}");
        for limit in 1..=4 {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = rest.get(&format!("{path}?limit={limit}{after}")).await.json();
                let more = resources(&page);
                assert!(more.len() <= limit && page["revision"] == whole["revision"], "{page:#}");
                found.extend(more);
                assert!(found.len() <= all.len(), "{path}: {found:?}");
                let Some(next) = page["next"].as_str() else { break };
                after = format!("&after={}", next.replace('%', "%25"));
            }
            // By type and name; types have another order in an object of JSON.
            found.sort();
            let mut all = all.clone();
            all.sort();
            assert_eq!(found, all, "{path}?limit={limit}");
        }
        for bad in ["limit=0", "limit=10001", "after=nowhere"] {
            assert_eq!(rest.get(&format!("{path}?{bad}")).await.status, 400, "{path}?{bad}");
        }
    }
}

#[tokio::test]
async fn a_tag_is_taken_as_a_body_shows_it() {
    let rest = world().await;
    let change = |tag: String| {
        let rest = &rest;
        async move {
            let body = r#"{"backends": {"v1:80": 50}}"#;
            rest.call("PATCH", RULE, &[JSON, ("if-match", &tag)], body).await.status
        }
    };
    let shown = rest.get(RULE).await.json()["etag"].as_str().unwrap().to_owned();
    assert_eq!(change(format!("W/{shown}")).await, 412, "a weak tag never matches");
    assert_eq!(change("another".to_owned()).await, 412);
    assert_eq!(change(shown).await, 200);
    let shown = rest.get(RULE).await.json()["etag"].as_str().unwrap().to_owned();
    assert_eq!(change(format!("\"{shown}\"")).await, 200);
}

#[tokio::test]
async fn faults_are_at_the_place_that_was_sent() {
    let rest = world().await;
    for (method, path, body, pointer) in [
        ("PATCH", RULE, r#"{"percent": {"v1:80": 5, "tow": 95}}"#, "#/percent/tow"),
        ("PATCH", RULE, r#"{"backends": {"tow": 95}}"#, "#/backends/tow"),
        ("PUT", RULE, r#"{"percent": {"v1:80": 5, "v2:80": 5}}"#, "#/percent"),
        ("PUT", RULE, r#"{"backends": {"v1:80": 0, "v2:80": 0}}"#, "#/backends"),
        ("PUT", "/v1/groups/g", r#"{"selector": {"nodeIdz": ["a"]}}"#, "#/selector/nodeIdz"),
        (
            "PUT",
            "/v1/groups/g",
            r#"{"selector": {"all": true}, "waves": {"shares": [50, 10]}}"#,
            "#/waves/shares",
        ),
        (
            "PUT",
            "/v1/groups/g",
            r#"{"selector": {"all": true}, "drain": {"endpoints": 5}}"#,
            "#/drain/endpoints",
        ),
        ("POST", "/v1/rollback", r#"{"revison": 1}"#, "#/revison"),
        ("POST", "/v1/rollback", r#"{"revision": "1"}"#, "#/revision"),
        ("POST", "/v1/rollouts", r#"{"stepWeight": 10, "canarie": "v2:80"}"#, "#/canarie"),
    ] {
        let reply = rest.call(method, path, &[JSON, ("if-match", "*")], body).await;
        let problem = reply.json();
        assert_eq!(reply.status, 422, "{body}: {problem:#}");
        let pointers: Vec<&str> = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|fault| fault["pointer"].as_str())
            .collect();
        assert!(pointers.contains(&pointer), "{body}: {problem:#}");
        assert!(problem["errors"][0]["line"] == 1, "{problem:#}");
    }
}

#[tokio::test]
async fn the_history_shows_lines_and_no_secrets() {
    let rest = rest();
    let put = |ttl: &str, key: &str| {
        json!({"resources": [
            {"@type": ResourceType::Cluster.type_url(), "name": "x", "connect_timeout": ttl},
            {"@type": ResourceType::Secret.type_url(), "name": "s", "generic_secret": {"secret": {"inline_string": key}}},
        ]})
    };
    for (ttl, key) in [("1s", "first-key"), ("2s", "second-key")] {
        assert_eq!(rest.put("/v1/groups/default/resources", &put(ttl, key)).await.status, 200);
    }
    for path in ["/v1/history/1...2", "/v1/history/2"] {
        let reply = rest.get(path).await;
        assert!(!reply.text.contains("first-key") && !reply.text.contains("second-key"), "{}", reply.text);
        let answer = reply.json();
        let all = answer["difference"].as_array().unwrap();
        let cluster = all.iter().find(|one| one["what"] == "default/clusters/x").unwrap();
        let lines: Vec<&str> = cluster["diff"].as_str().unwrap().lines().collect();
        assert_eq!(&lines[..2], ["--- default/clusters/x", "+++ default/clusters/x"], "{lines:?}");
        assert!(
            lines.iter().any(|line| line.starts_with('-') && line.contains("connect_timeout: 1s")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.starts_with('+') && line.contains("connect_timeout: 2s")),
            "{lines:?}"
        );
        assert!(lines.iter().any(|line| line.starts_with(' ') && line.contains("name: x")), "{lines:?}");
    }
}

#[tokio::test]
async fn a_group_in_which_no_node_is_is_told() {
    let rest = rest();
    let codes = |answer: &Value| -> Vec<String> {
        let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
        warnings.iter().map(|one| one["code"].as_str().unwrap().to_owned()).collect()
    };
    let edge = json!({"selector": {"nodeIds": ["edge-*"]}});
    let answer = rest.put("/v1/groups/edge", &edge).await.json();
    assert_eq!(codes(&answer), ["group-without-nodes"], "{answer:#}");
    assert!(
        answer["warnings"][0]["detail"].as_str().unwrap().contains("no connected node is in the group edge")
    );
    // A node that it selects.
    let _client = acked::AckingClient::connect(&rest.server, 1, "edge-1");
    let answer = rest.put("/v1/groups/other", &edge).await.json();
    assert_eq!(codes(&answer), Vec::<String>::new(), "{answer:#}");
    // A group that a publication makes selects the node of its name.
    let answer = rest.put("/v1/groups/edge-2/resources", &json!({"resources": []})).await.json();
    assert_eq!(codes(&answer), ["group-without-nodes"], "{answer:#}");
    let answer = rest.put("/v1/groups/edge-1/resources", &json!({"resources": []})).await.json();
    assert_eq!(codes(&answer), Vec::<String>::new(), "{answer:#}");
    // One that stays as it is has been told of.
    let answer = rest
        .put("/v1/groups/edge", &json!({"selector": {"nodeIds": ["edge-*"]}, "priority": 3}))
        .await
        .json();
    assert_eq!(codes(&answer), Vec::<String>::new(), "{answer:#}");
}
