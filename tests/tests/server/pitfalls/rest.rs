//! The REST API with live clients: pitfalls 78 and 79, and what its writes promise.

use anyhow::{Context as _, Result};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use xds_tests::config::CLUSTER;
use xds_tests::events::Events;
use xds_tests::http::Answer;
use xds_tests::raw::SotwStream;
use xds_tests::seen::{names, plain_cluster, served, timeout_of};

use crate::pitfalls::world::{Silence, World};

const PATH: &str = "/v1/groups/default/resources/clusters/a";
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn pitfall_78_a_write_that_waits_is_answered_when_all_have_acked() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let answer = put(&world, 2, "wait=acked").await?;
    assert_eq!((answer.status, &answer.json()?["total"]), (StatusCode::OK, &json!(0)), "nobody to wait for");
    let (mut one, mut two) = (client(&world, "one").await?, client(&world, "two").await?);
    let write = put(&world, 3, "wait=acked&timeout=20s");
    let clients = async {
        let response = changed(&mut one, 3).await?;
        one.ack(&response, &[]).await?;
        // Still waited for: the report shows one.
        let revision = newest(&world).await?;
        let path = format!("/v1/acks?revision={revision}");
        let report = world.server.wait_json(&path, |report| report["acked"] == 1).await?;
        assert_eq!(report["pending"], json!(["two"]));
        let response = changed(&mut two, 3).await?;
        two.ack(&response, &[]).await
    };
    let (answer, acked) = tokio::join!(write, clients);
    acked?;
    let answer = answer?;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let answer = answer.json()?;
    assert_eq!(
        (&answer["committed"], &answer["total"], &answer["acked"]),
        (&json!(true), &json!(2), &json!(2))
    );

    // A write that changes nothing sends nothing: both have it.
    let answer = put(&world, 3, "wait=acked").await?.json()?;
    assert_eq!((&answer["changed"], &answer["acked"]), (&json!(false), &json!(2)), "{answer}");
    Silence::default().of_sotw(&mut one).await
}

/// One of the tests that wait for real time: the answer comes at the timeout.
#[tokio::test]
async fn pitfall_78_at_the_timeout_the_stragglers_are_named() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut prompt, mut late) = (client(&world, "prompt").await?, client(&world, "late").await?);
    let write = put(&world, 2, "wait=acked&timeout=1s");
    let clients = async {
        let response = changed(&mut prompt, 2).await?;
        prompt.ack(&response, &[]).await?;
        changed(&mut late, 2).await
    };
    let (answer, clients) = tokio::join!(write, clients);
    let (answer, response) = (answer?, clients?);
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    let body = answer.json()?;
    assert_eq!((&body["pending"], &body["acked"]), (&json!(["late"]), &json!(1)), "{body}");
    late.ack(&response, &[]).await?;
    let path = format!("/v1/acks?revision={}", body["revision"]);
    world.server.wait_json(&path, |report| report["acked"] == 2 && report["pending"] == json!([])).await?;
    Ok(())
}

#[tokio::test]
async fn pitfall_78_and_79_a_nack_is_424_and_the_write_stays() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut good, mut bad) = (client(&world, "good").await?, client(&world, "bad").await?);
    let write = put(&world, 2, "wait=acked&timeout=20s");
    let clients = async {
        let response = changed(&mut good, 2).await?;
        good.ack(&response, &[]).await?;
        let response = changed(&mut bad, 2).await?;
        bad.nack(&response, &[], "", "no such filter").await
    };
    let (answer, clients) = tokio::join!(write, clients);
    clients?;
    let answer = answer?;
    assert_eq!(answer.status, StatusCode::FAILED_DEPENDENCY, "{}", answer.text());
    let body = answer.json()?;
    let nack =
        |message: &str| json!([{"node": "bad", "message": message, "typeUrl": CLUSTER, "resource": "a"}]);
    assert_eq!(body["nacked"], nack("no such filter"), "{body}");
    assert_eq!((&body["committed"], &body["reverted"]), (&json!(true), &Value::Null));
    // One bad client does not roll back the others.
    Silence::default().of_sotw(&mut good).await?;

    // It does not have a later write either, and it failed before that.
    let write = put(&world, 3, "wait=acked&timeout=20s");
    let clients = async {
        let response = changed(&mut good, 3).await?;
        good.ack(&response, &[]).await?;
        let response = changed(&mut bad, 3).await?;
        bad.nack(&response, &[], "", "still no").await
    };
    let (answer, clients) = tokio::join!(write, clients);
    clients?;
    let answer = answer?;
    assert_eq!(answer.status, StatusCode::FAILED_DEPENDENCY, "{}", answer.text());
    let body = answer.json()?;
    assert_eq!((&body["nacked"], &body["alreadyFailing"]), (&json!([]), &nack("still no")), "{body}");
    Ok(())
}

#[tokio::test]
async fn pitfall_79_only_if_asked_a_nack_takes_the_change_back() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let before = served(&world.server).await?;
    let mut stream = client(&world, "n").await?;
    let write = put(&world, 2, "wait=acked&timeout=20s&onNack=revert");
    let clients = async {
        let response = changed(&mut stream, 2).await?;
        stream.nack(&response, &[], "", "no").await?;
        // The former state is a change to the rejected one, so it is sent.
        changed(&mut stream, 1).await
    };
    let (answer, clients) = tokio::join!(write, clients);
    let (answer, response) = (answer?, clients?);
    assert_eq!(answer.status, StatusCode::FAILED_DEPENDENCY, "{}", answer.text());
    let body = answer.json()?;
    assert_eq!(body["reverted"].as_u64(), body["revision"].as_u64().map(|n| n + 1), "{body}");
    assert_eq!(served(&world.server).await?, before);
    stream.ack(&response, &[]).await?;
    world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_is_not_waited_for() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut stream = client(&world, "n").await?;
    let write = put(&world, 2, "wait=acked&timeout=20s");
    let leaves = async {
        let response = changed(&mut stream, 2).await;
        drop(stream);
        response
    };
    let (answer, response) = tokio::join!(write, leaves);
    response?;
    let answer = answer?;
    assert_eq!((answer.status, &answer.json()?["total"]), (StatusCode::OK, &json!(0)), "{}", answer.text());
    Ok(())
}

#[tokio::test]
async fn a_newer_ack_counts_for_an_older_write() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut stream = client(&world, "n").await?;
    let write = put(&world, 2, "wait=acked&timeout=20s");
    let clients = async {
        changed(&mut stream, 2).await?;
        put(&world, 3, "").await?.success()?;
        let response = changed(&mut stream, 3).await?;
        stream.ack(&response, &[]).await
    };
    let (answer, clients) = tokio::join!(write, clients);
    clients?;
    let answer = answer?;
    let body = answer.json()?;
    assert_eq!(
        (answer.status, &body["acked"], &body["superseded"]),
        (StatusCode::OK, &json!(1), &json!(1)),
        "{body}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_concurrent_writers_with_one_tag_exactly_one_wins() -> Result<()> {
    const N_WRITERS: u64 = 16;
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    for round in 0..5_u64 {
        let tag = world.server.get(PATH).await?.success()?.header("etag").to_owned();
        assert!(tag.starts_with('"'), "{tag}");
        let revision = newest(&world).await?;
        let mut writers = JoinSet::new();
        for writer in 0..N_WRITERS {
            let (url, tag) = (world.server.url(PATH), tag.clone());
            let n = 100 + round * N_WRITERS + writer;
            writers.spawn(async move {
                let request = http::Request::put(url).header(JSON.0, JSON.1).header("if-match", tag);
                let body = plain_cluster("a", n).to_string();
                let answer = xds_tests::http::Http::new().send(request.body(body.into())?).await?;
                anyhow::Ok((n, answer.status))
            });
        }
        let answers = writers.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        let (won, lost): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(_, status)| *status == StatusCode::OK);
        assert_eq!(won.len(), 1, "{won:?} {lost:?}");
        assert!(lost.iter().all(|(_, status)| *status == StatusCode::PRECONDITION_FAILED), "{lost:?}");
        let is = world.server.get_json(PATH).await?;
        assert_eq!(is["connect_timeout"], format!("{}s", won[0].0));
        assert_eq!(newest(&world).await?, revision + 1);
    }
    let missing = [JSON, ("if-match", "*")];
    let path = "/v1/groups/default/resources/clusters/none";
    let answer = world.server.request("PUT", path, &missing, plain_cluster("none", 1).to_string()).await?;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
    let new = [JSON, ("if-none-match", "*")];
    for status in [StatusCode::OK, StatusCode::PRECONDITION_FAILED] {
        let answer = world.server.request("PUT", path, &new, plain_cluster("none", 1).to_string()).await?;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_says_what_would_change_and_changes_nothing() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut stream = client(&world, "n").await?;
    let (before, history) = (served(&world.server).await?, world.server.get_json("/v1/history").await?);
    let all = "/v1/groups/default/resources?dryRun=true";
    let group = json!({"name": "g", "selector": {"all": true}, "priority": 1}).to_string();
    for (method, path, body, what) in [
        ("PUT", format!("{PATH}?dryRun=true"), plain_cluster("a", 2).to_string(), "default/clusters/a"),
        ("DELETE", format!("{PATH}?dryRun=true"), String::new(), "default/clusters/a"),
        ("PUT", all.to_owned(), json!({"resources": []}).to_string(), "default/clusters/a"),
        ("PUT", "/v1/groups/g?dryRun=true".to_owned(), group, "group/g"),
        ("POST", "/v1/rollback?dryRun=true".to_owned(), json!({"revision": 1}).to_string(), ""),
    ] {
        let answer = world.server.request(method, &path, &[JSON], body).await?.success().context(path)?;
        let body = answer.json()?;
        assert_eq!(body["committed"], false, "{body}");
        assert!(body["difference"].to_string().contains(what), "{body}");
    }
    assert_eq!(served(&world.server).await?, before);
    assert_eq!(world.server.get_json("/v1/history").await?, history);
    assert_eq!(world.server.get("/v1/groups/g").await?.status, StatusCode::NOT_FOUND);
    Silence::default().of_sotw(&mut stream).await
}

#[tokio::test]
async fn an_entity_tag_that_still_holds_is_304() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let paths = [PATH, "/v1/groups", "/v1/groups/default", "/v1/groups/default/resources", "/v1/history"];
    for path in paths {
        let first = world.server.get(path).await?.success()?;
        let tag = first.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{path}: {tag:?} is no strong tag");
        let again = world.server.request("GET", path, &[("if-none-match", &tag)], "").await?;
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
    }
    let tag = world.server.get(PATH).await?.header("etag").to_owned();
    put(&world, 2, "").await?.success()?;
    let changed = world.server.request("GET", PATH, &[("if-none-match", &tag)], "").await?;
    assert_eq!(changed.status, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn history_tells_who_and_what_and_a_rollback_reaches_the_clients() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let first = newest(&world).await?;
    let mut stream = client(&world, "n").await?;
    let headers = [JSON, ("x-actor", "alice")];
    world.server.request("PUT", PATH, &headers, plain_cluster("a", 2).to_string()).await?.success()?;
    let response = changed(&mut stream, 2).await?;
    stream.ack(&response, &[]).await?;
    let entry = world.server.get_json(&format!("/v1/history/{}", first + 1)).await?;
    assert_eq!(entry["actor"], "alice");
    assert!(entry["difference"].to_string().contains("\"2s\""), "{entry}");
    let between = world.server.get_json(&format!("/v1/history/{first}...{}", first + 1)).await?;
    assert!(between.to_string().contains("connect_timeout"), "{between}");

    world.server.post("/v1/rollback", &json!({"revision": first})).await?;
    assert_eq!(newest(&world).await?, first + 2, "a rollback is a new revision");
    let back = changed(&mut stream, 1).await?;
    assert_eq!(names(&back)?, ["a"]);
    Ok(())
}

#[tokio::test]
async fn events_tell_what_happens() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let events = Events::open(world.server.admin()).await?;
    let mut stream = world.sotw("evented");
    stream.subscribe(CLUSTER, &[]).await?;
    let response = stream.expect_type(CLUSTER).await?;
    events.wait("event: connect").await?;
    stream.ack(&response, &[]).await?;
    events.wait("event: ack").await?;
    put(&world, 2, "").await?.success()?;
    events.wait("event: publish").await?;
    let response = changed(&mut stream, 2).await?;
    stream.nack(&response, &[], "", "no such filter").await?;
    events.wait("event: nack").await?;
    events.wait("no such filter").await?;
    drop(stream);
    events.wait("event: disconnect").await?;
    assert!(events.text().contains("evented") && events.text().contains("\nid: "), "{}", events.text());
    Ok(())
}

/// Writes the cluster `a`.
async fn put(world: &World, n: u64, query: &str) -> Result<Answer> {
    let path = format!("{PATH}?{query}");
    world.server.request("PUT", &path, &[JSON], plain_cluster("a", n).to_string()).await
}

/// A client of all clusters that has accepted what there is, and is known to have.
async fn client(world: &World, node: &str) -> Result<SotwStream> {
    let mut stream = world.sotw(node);
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first, &[]).await?;
    world.wait_type(node, CLUSTER, |status| status["status"] == "SYNCED").await?;
    Ok(stream)
}

/// The next response, which must have the cluster `a` with this number.
async fn changed(
    stream: &mut SotwStream,
    n: u64,
) -> Result<envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse> {
    let response = stream.expect_type(CLUSTER).await?;
    anyhow::ensure!(timeout_of(&response, "a")? == n, "not {n}: {response:?}");
    Ok(response)
}

async fn newest(world: &World) -> Result<u64> {
    let history = world.server.get_json("/v1/history?limit=1").await?;
    history["revisions"][0]["revision"].as_u64().context("revision")
}
