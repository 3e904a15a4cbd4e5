//! Writes over REST and wave deployments: all writes take `waves`, and a write that conflicts with a wave deployment is refused.

use super::super::documents::SERVICE;
use super::super::rest::publication;
use super::super::weights::{ANY, HALVES, MERGE, RULE, load as load_route, route};
use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
const YAML: (&str, &str) = ("content-type", "application/yaml");

/// Waves that cannot be, and what is said to be right.
const WRONG: [(&str, &str); 6] = [
    ("waves=0%25", "write 1%, 0.5% or 100%, at least 0.01%"),
    ("waves=a,b", "write 1%, 0.5% or 100%"),
    ("waves=10%25,5%25", "waves must grow: 10% comes before 5%"),
    ("waves=10%25&hold=soon", "write 500ms, 30s, 5m or 2h"),
    ("waves=10%25&maxNacks=few", "write a number such as 2, or a share such as 5%"),
    ("waves=10%25&ackTimeout=-1s", "write 500ms, 30s, 5m or 2h"),
];

/// Weights are changed by whoever has seen them.
fn headers<'h>(path: &str, content_type: (&'h str, &'h str)) -> Vec<(&'h str, &'h str)> {
    if path == RULE { vec![content_type, ANY] } else { vec![content_type] }
}

/// The route of a file with an override of its weights, and of the API a group with a cluster, and a service.
async fn world() -> Rest {
    let options = Options { watches_files: true, ..Options::default() };
    let server = Server::open(MemoryStore::new(), options);
    tokio::spawn(server.control.clone().follow_waves());
    let rest = Rest::new(server);
    load_route(&rest, &route("", HALVES)).await;
    for (method, path, header, body) in [
        ("PUT", "/v1/groups/g/resources", JSON, publication(&[("a", "1"), ("b", "1")]).to_string()),
        ("POST", "/v1/apply", YAML, SERVICE.to_owned()),
        ("PATCH", RULE, MERGE, json!({"backends": {"v1:80": 50, "v2:80": 50}}).to_string()),
    ] {
        let reply = rest.call(method, path, &headers(path, header), &body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    }
    rest
}

/// All that the API owns, as it is told.
async fn owned(rest: &Rest) -> Vec<Value> {
    let mut all = Vec::new();
    for path in ["/v1/groups", "/v1/groups/g/resources", "/v1/documents/Service/prod/shop", RULE] {
        let mut one = rest.get(path).await.json();
        // Every write counts, also one that is undone.
        for field in ["revision", "generation", "conditions", "etag"] {
            one.as_object_mut().unwrap().remove(field);
        }
        all.push(one);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn every_write_goes_by_waves_if_it_says_so() {
    let rest = world().await;
    let first = rest.server.revision();
    rest.put(
        "/v1/groups/g/resources/clusters/a",
        &json!({"name": "a", "alt_stat_name": "2", "connect_timeout": "1s"}),
    )
    .await;
    let _fleet = Fleet::connect(&rest.server, 20);
    let cluster = json!({"name": "a", "alt_stat_name": "3", "connect_timeout": "1s"}).to_string();
    let weights = json!({"backends": {"v1:80": 1, "v2:80": 2}}).to_string();
    let before = owned(&rest).await;
    let other = "/v1/groups/h/resources/clusters/z";
    for (method, path, header, body) in [
        ("PUT", "/v1/groups/g/resources", JSON, publication(&[("c", "1")]).to_string()),
        ("PUT", "/v1/groups/g/resources/clusters/a", JSON, cluster.clone()),
        ("DELETE", "/v1/groups/g/resources/clusters/a", JSON, String::new()),
        ("DELETE", "/v1/groups/g", JSON, String::new()),
        ("POST", "/v1/apply", YAML, SERVICE.replace("port: 80}", "port: 81}")),
        ("DELETE", "/v1/documents/Service/prod/shop", JSON, String::new()),
        ("PATCH", RULE, MERGE, weights.clone()),
        ("PUT", RULE, JSON, weights.clone()),
        ("DELETE", RULE, JSON, String::new()),
        ("POST", "/v1/rollback", JSON, json!({"revision": first}).to_string()),
    ] {
        let headers = headers(path, header);
        let call = async |query: &str| rest.call(method, &format!("{path}?{query}"), &headers, &body).await;
        for (query, right) in WRONG {
            let reply = call(query).await;
            let problem = reply.json();
            let told = reply.status == 400 && problem["detail"].to_string().contains(right);
            assert!(told, "{path}?{query}: {problem}");
        }
        let reply = call("waves=30%25&hold=1h&dryRun=true").await;
        assert_eq!(
            (reply.status, owned(&rest).await),
            (200, before.clone()),
            "{method} {path}: {}",
            reply.text
        );
        let reply = call("waves=30%25&hold=1h").await;
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.text);
        let id = reply.json()["waveDeployment"]
            .as_u64()
            .unwrap_or_else(|| panic!("{method} {path}: {}", reply.text));
        assert_eq!(newest(&rest.server).unwrap().deployment, id);
        assert_ne!(owned(&rest).await, before, "{method} {path}: it is accepted");

        // There is one at a time. What it does not hold can be written to everyone at once.
        let refused = rest.put(&format!("{other}?waves=30%25"), &json!({"name": "z"})).await;
        let problem = refused.json();
        assert_eq!((refused.status, &problem["waveDeployment"]), (409, &json!(id)), "{problem}");
        for right in ["waves=none", ":promote or :abort", "force=true"] {
            assert!(problem["detail"].as_str().unwrap().contains(right), "{problem}");
        }
        let at_once = rest.put(other, &json!({"name": "z", "connect_timeout": format!("{id}s")})).await;
        assert_eq!(at_once.status, 200, "{}", at_once.text);
        assert_eq!(rest.call("DELETE", "/v1/groups/h?waves=none", &[], "").await.status, 200);
        let aborted = rest.call("POST", &format!("/v1/waves/{id}:abort"), &[], "").await;
        assert_eq!(aborted.status, 200, "{}", aborted.text);
        assert_eq!(owned(&rest).await, before, "{method} {path}: it is put back");
    }
    let reply =
        rest.put("/v1/groups/new?waves=10%25", &json!({"name": "new", "selector": {"all": true}})).await;
    assert!(reply.status == 422 && reply.text.contains("omit waves"), "{}", reply.text);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_during_a_deployment_is_refused_or_ends_it() {
    let (server, mut fleet) = fleet(&MemoryStore::new()).await;
    server.write(put("default", "a", "2")).await.unwrap();
    let id = begin(&server, "3", &policy("10%", 60)).await;
    fleet.until_held_at(&server, "10%").await;
    let refused = server.write(rollback(1)).await.unwrap_err();
    assert!(matches!(refused, WriteError::WaveActive { deployment, .. } if deployment == id), "{refused:?}");
    assert_eq!(fleet.with("a", "3"), fleet.expected(id, "10%"), "nothing happened");
    let forced = WriteOptions { force: true, ..WriteOptions::default() };
    server.control.write(rollback(1), forced).await.unwrap();
    fleet.pump(&server);
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS);
    assert_eq!(newest(&server).unwrap().phase, WavePhase::Reverted);

    // Back to the time of a wave deployment is to what was accepted, for everyone or in waves of its own.
    let outcome = server.control.write(rollback(id), in_waves(&policy("10%", 60))).await.unwrap();
    let again = outcome.wave.unwrap();
    fleet.until_held_at(&server, "10%").await;
    assert_eq!(fleet.with("a", "3"), fleet.expected(again, "10%"));
    assert_eq!(fleet.with("a", "1").len(), N_CLIENTS - fleet.with("a", "3").len());
}
