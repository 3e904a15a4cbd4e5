//! The history of files, rollouts and secrets: differences of any two revisions, and the objects that a rollback leaves alone.

use serde_json::Value;

use super::rest::{Rest, publication, rest};
use super::rollouts::{at, start, wait};
use super::weights::{ANY, MERGE, RULE, served_weights, world};
use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
const ROUTES: &str = "prod/edge/8080";

#[tokio::test]
async fn any_two_revisions_are_compared_also_those_of_files() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[("default", &[("a", "1"), ("b", "1")])])).await.unwrap();
    server.write(put("default", "c", "1")).await.unwrap();
    server.control.load_files(load(&[("default", &[("a", "2"), ("d", "1")])])).await.unwrap();
    server.write(delete("default", "c")).await.unwrap();
    let rest = Rest::new(server);
    let difference = async |range: &str| {
        let body = rest.get(&format!("/v1/history/{range}")).await.json();
        let text = |value: &Value| value["alt_stat_name"].as_str().unwrap_or("-").to_owned();
        let all = body["difference"].as_array().cloned().unwrap_or_default();
        let told = all
            .iter()
            .map(|one| (one["what"].as_str().unwrap().to_owned(), text(&one["before"]), text(&one["after"])));
        told.collect::<Vec<_>>()
    };
    let told = |all: &[(&str, &str, &str)]| -> Vec<(String, String, String)> {
        all.iter()
            .map(|(name, a, b)| (format!("default/clusters/{name}"), (*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    assert_eq!(difference("1...4").await, told(&[("a", "1", "2"), ("b", "1", "-"), ("d", "-", "1")]));
    assert_eq!(difference("4...1").await, told(&[("a", "2", "1"), ("b", "-", "1"), ("d", "1", "-")]));
    assert_eq!(difference("2...3").await, difference("3").await, "of one revision, to the one before");
    assert_eq!(difference("2...4").await.len(), 4, "of both");
    assert_eq!(difference("0...2").await.len(), 3, "from nothing");
    for (range, status) in [("1...9", 404), ("9", 404), ("x", 400), ("1...x", 400)] {
        assert_eq!(rest.get(&format!("/v1/history/{range}")).await.status, status, "{range}");
    }
}

#[tokio::test]
async fn a_rollback_to_a_revision_of_files_says_what_they_own_and_keeps_it() {
    let server = Server::with_files(&MemoryStore::new());
    server.control.load_files(load(&[("default", &[("a", "1")])])).await.unwrap();
    server.control.load_files(load(&[("default", &[("a", "2")])])).await.unwrap();
    let outcome = server.write(rollback(1)).await.unwrap();
    assert!(!outcome.changed, "the API owns nothing");
    let warning = outcome.warnings.first().unwrap();
    assert_eq!(warning.code, "owned-by-file");
    assert!(warning.message.contains("default/clusters/a"), "{warning}");
    assert_eq!(server.served("default"), pairs(&[("a", "2")]));
    // An override that was there then comes back, and lies over the file as it is now.
    server.write(put("default", "a", "over")).await.unwrap();
    server.write(delete("default", "a")).await.unwrap();
    let outcome = server.write(rollback(3)).await.unwrap();
    assert!(outcome.changed && outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    assert_eq!(server.served("default"), pairs(&[("a", "over")]));
}

#[tokio::test]
async fn a_rollback_leaves_the_weights_of_a_rollout_alone_and_says_so() {
    let rest = world().await;
    let before = rest.server.revision();
    let path = start(&rest, &json!({})).await;
    wait(&rest, &path, at("Paused", 2)).await;
    let other = RULE.replace("/0", "/fixed");
    let body = json!({"backends": {"v1:80": 7}}).to_string();
    let reply = rest.call("PATCH", &other, &[MERGE, ANY], &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let reply = rest.call("POST", "/v1/rollback", &[JSON], &json!({"revision": before}).to_string()).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["changed"]), (200, &json!(true)), "{answer:#}");
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("rollout-active") && warnings.contains("prod/greeter"), "{answer:#}");
    assert_eq!(served_weights(&rest, ROUTES), json!([80, 20]), "the rollout is where it was");
    assert_eq!(rest.get(&other).await.json()["overridden"], json!(false), "the other rule was rolled back");
    let rollout = rest.get(&path).await.json();
    assert_eq!((&rollout["phase"], &rollout["step"]), (&json!("Paused"), &json!(2)));
}

#[tokio::test]
async fn history_tells_who_changed_what() {
    let rest = rest();
    let headers = [JSON, ("x-actor", "ci/42")];
    rest.call("PUT", "/v1/groups/g/resources", &headers, &publication(&[("a", "1")]).to_string()).await;
    rest.put("/v1/groups/g/resources", &publication(&[("a", "2"), ("b", "1")])).await;
    let list = rest.get("/v1/history").await.json();
    let revisions: Vec<_> = list["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["revision"].as_u64(), r["actor"].as_str()))
        .collect();
    assert_eq!(revisions, [(Some(2), Some("api")), (Some(1), Some("ci/42"))]);
    assert_eq!(
        rest.get("/v1/history?before=2&limit=5").await.json()["revisions"].as_array().map(Vec::len),
        Some(1)
    );
    for (query, numbers) in [
        ("actor=api", vec![2]),
        ("actor=ci%2F42", vec![1]),
        ("actor=api&before=2", vec![]),
        ("source=api&limit=1", vec![2]),
        ("source=api", vec![2, 1]),
        ("source=api&actor=nobody", vec![]),
    ] {
        let found = rest.get(&format!("/v1/history?{query}")).await.json();
        let found: Vec<_> =
            found["revisions"].as_array().unwrap().iter().map(|r| r["revision"].clone()).collect();
        assert_eq!(json!(found), json!(numbers), "{query}");
    }
    let one = rest.get("/v1/history/2").await.json();
    assert_eq!(one["difference"][0]["changes"][0]["pointer"], json!("/alt_stat_name"));
    assert_eq!(one["difference"][1]["before"], Value::Null);
    let both = rest.get("/v1/history/0...2").await.json();
    assert_eq!(both["difference"].as_array().map(Vec::len), Some(3), "the group and two clusters: {both}");
    let back = rest.call("POST", "/v1/rollback", &[JSON], "{\"revision\": 1}").await.json();
    assert_eq!((&back["committed"], &back["revision"]), (&json!(true), &json!(3)));
    assert_eq!(rest.server.served("g"), pairs(&[("a", "1")]));
}
