//! The history over REST.

use serde_json::Value;

use super::rest::{publication, rest};
use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");

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
