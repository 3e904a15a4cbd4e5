//! ACK, NACK and nonce: pitfalls 1 to 12.

use anyhow::Result;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use serde_json::json;
use xds_tests::config::{CLUSTER, ENDPOINTS, endpoints};
use xds_tests::raw;
use xds_tests::seen::{delta_names, names, plain_cluster, timeout_of};

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_01_a_rejected_response_is_not_sent_again_and_shows_in_the_status() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first, &[]).await?;
    world.publish(&[plain_cluster("a", 2)]).await?;
    let second = stream.expect_type(CLUSTER).await?;
    stream.nack(&second, &[], &first.version_info, "no such filter").await?;
    silence.of_sotw(&mut stream).await?;
    let status = world.wait_type("n", CLUSTER, |status| status["status"] == "ERROR").await?;
    assert_eq!(status["versionSent"], second.version_info);
    assert_eq!(status["versionAcked"], first.version_info);
    assert_eq!(status["lastNack"]["message"], "no such filter");
    assert_eq!(status["lastNack"]["version"], second.version_info);
    world.publish(&[plain_cluster("a", 3)]).await?;
    let third = stream.expect_type(CLUSTER).await?;
    assert_eq!(timeout_of(&third, "a")?, 3);
    stream.ack(&third, &[]).await?;
    world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;

    // Also the very first response.
    let (mut stream, mut silence) = (world.sotw("m"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.nack(&first, &[], "", "no").await?;
    silence.of_sotw(&mut stream).await?;
    let status = world.wait_type("m", CLUSTER, |status| status["status"] == "ERROR").await?;
    assert!(status["versionAcked"].is_null(), "{status}");
    Ok(())
}

#[tokio::test]
async fn pitfall_02_in_delta_only_what_changes_after_a_nack_is_sent() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), plain_cluster("b", 1)]).await?;
    let (mut stream, mut silence) = (world.delta("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first).await?;
    world.publish(&[plain_cluster("a", 2), plain_cluster("b", 1)]).await?;
    let second = stream.expect_type(CLUSTER).await?;
    stream.nack(&second, "no").await?;
    silence.of_delta(&mut stream).await?;
    world.wait_type("n", CLUSTER, |status| status["status"] == "ERROR").await?;
    world.publish(&[plain_cluster("a", 2), plain_cluster("b", 2)]).await?;
    assert_eq!(delta_names(&stream.expect_type(CLUSTER).await?), ["b"]);
    world.publish(&[plain_cluster("a", 3), plain_cluster("b", 2)]).await?;
    assert_eq!(delta_names(&stream.expect_type(CLUSTER).await?), ["a"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_03_a_nack_that_asks_for_one_more_name_is_answered_with_it() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &["a"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    stream.nack(&first, &["a", "b"], "", "no").await?;
    assert!(names(&stream.expect_type(ENDPOINTS).await?)?.contains(&"b".to_owned()));
    silence.of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_04_an_old_version_without_error_is_an_ack() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first, &[]).await?;
    world.publish(&[plain_cluster("a", 2)]).await?;
    let mut second = stream.expect_type(CLUSTER).await?;
    let sent = std::mem::replace(&mut second.version_info, first.version_info);
    stream.ack(&second, &[]).await?;
    silence.of_sotw(&mut stream).await?;
    let status = world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;
    assert_eq!(status["versionAcked"], sent);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_05_a_client_that_acks_within_microseconds_loses_no_change() -> Result<()> {
    const N_CHANGES: u64 = 400;
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    let last = tokio::spawn(async move {
        loop {
            let response = stream.expect_type(CLUSTER).await?;
            stream.ack(&response, &[]).await?;
            if timeout_of(&response, "a")? == N_CHANGES {
                return anyhow::Ok(stream);
            }
        }
    });
    for n in 2..=N_CHANGES {
        world.publish(&[plain_cluster("a", n)]).await?;
    }
    let mut stream = last.await??;
    world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;
    Silence::default().of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_06_names_with_a_stale_nonce_count_and_the_ack_does_not() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &["a"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    world.publish(&[of("a", 2), of("b", 1)]).await?;
    let second = stream.expect_type(ENDPOINTS).await?;
    stream.ack(&first, &["a"]).await?;
    silence.of_sotw(&mut stream).await?;
    world.wait_type("n", ENDPOINTS, |status| status["versionAcked"].is_null()).await?;
    stream.ack(&first, &["a", "b"]).await?;
    assert!(names(&stream.expect_type(ENDPOINTS).await?)?.contains(&"b".to_owned()));
    stream.ack(&second, &["a", "b"]).await?;
    silence.of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_07_in_delta_a_stale_nonce_does_not_stop_a_subscription() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let mut stream = world.delta("n");
    stream.subscribe(ENDPOINTS, &["a"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    world.publish(&[of("a", 2), of("b", 1)]).await?;
    stream.expect_type(ENDPOINTS).await?;
    let mut request = raw::delta_request(ENDPOINTS, &["b"], &[]);
    request.response_nonce = first.nonce;
    stream.send(request).await?;
    assert_eq!(delta_names(&stream.expect_type(ENDPOINTS).await?), ["b"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_08_and_09_a_new_stream_is_answered_whatever_it_brings_from_an_old_one() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), of("e", 1)]).await?;
    let mut old = world.sotw("n");
    old.subscribe(CLUSTER, &[]).await?;
    let clusters = old.expect_type(CLUSTER).await?;
    old.subscribe(ENDPOINTS, &["e"]).await?;
    let assignment = old.expect_type(ENDPOINTS).await?;
    drop(old);
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    for (held, names_wanted) in [(&clusters, &[][..]), (&assignment, &["e"])] {
        let request = DiscoveryRequest {
            node: Some(raw::node("n", "c")),
            version_info: held.version_info.clone(),
            response_nonce: held.nonce.clone(),
            ..raw::sotw_request(&held.type_url, names_wanted)
        };
        stream.send(request).await?;
        let response = stream.expect_type(&held.type_url).await?;
        assert_eq!((names(&response)?, &response.version_info), (names(held)?, &held.version_info));
        stream.ack(&response, names_wanted).await?;
    }
    silence.of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_10_and_12_an_answer_counts_for_its_own_type_only() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), of("e", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    let clusters = stream.expect_type(CLUSTER).await?;
    stream.subscribe(ENDPOINTS, &["e"]).await?;
    let assignment = stream.expect_type(ENDPOINTS).await?;
    // An ACK of the endpoints under the type of clusters.
    let mut crossed = assignment.clone();
    CLUSTER.clone_into(&mut crossed.type_url);
    stream.ack(&crossed, &["e"]).await?;
    silence.of_sotw(&mut stream).await?;
    // Nothing was unsubscribed by it.
    world.publish(&[plain_cluster("a", 2), of("e", 1)]).await?;
    stream.ack(&clusters, &[]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["a"]);

    stream.nack(&assignment, &["e"], "", "no").await?;
    world.wait_type("n", ENDPOINTS, |status| status["status"] == "ERROR").await?;
    world.wait_type("n", CLUSTER, |status| status["status"] != "ERROR").await?;
    Ok(())
}

#[tokio::test]
async fn a_node_rejects_what_it_rejects_on_any_of_its_streams() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1), of("c", 1)]).await?;
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        let mut stream = world.sotw("n");
        stream.subscribe(ENDPOINTS, &[name]).await?;
        let first = stream.expect_type(ENDPOINTS).await?;
        match name {
            "c" => stream.ack(&first, &["c"]).await?,
            _ => stream.nack(&first, &[name], "", &format!("no {name}")).await?,
        }
        streams.push(stream);
    }
    let rejected = json!([{"name": "a", "message": "no a"}, {"name": "b", "message": "no b"}]);
    let status = world.wait_type("n", ENDPOINTS, |status| status["rejected"] == rejected).await?;
    assert_eq!(status["status"], "ERROR");
    Ok(())
}

#[tokio::test]
async fn a_client_rejects_no_more_what_it_does_not_ask_for_any_more() -> Result<()> {
    let world =
        World::serving(&[plain_cluster("a", 1), plain_cluster("b", 1), plain_cluster("c", 1)]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &["a", "b", "c"]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    // What grpc-js says.
    let words =
        "xDS response validation errors: [resource index 0: no such type; resource index 2: nor this]";
    stream.nack(&first, &["a", "b", "c"], "", words).await?;
    let rejects = |names: &'static [&str]| {
        move |status: &serde_json::Value| {
            let rejected = status["rejected"].as_array().map_or(&[][..], Vec::as_slice);
            rejected.iter().map(|one| &one["name"]).eq(names.iter().copied())
        }
    };
    world.wait_type("n", CLUSTER, rejects(&["a", "c"])).await?;
    // It says so again whenever it asks for other names.
    stream.nack(&first, &["b", "c"], "", words).await?;
    let status = world.wait_type("n", CLUSTER, rejects(&["c"])).await?;
    assert_eq!(status["status"], "ERROR");
    // The correction counts, though one of those that were rejected with it was dropped.
    world.publish(&[plain_cluster("a", 1), plain_cluster("b", 1), plain_cluster("c", 2)]).await?;
    let second = stream.expect_type(CLUSTER).await?;
    stream.ack(&second, &["b", "c"]).await?;
    world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;
    // And so does it that the client drops all that it rejects.
    world.publish(&[plain_cluster("a", 1), plain_cluster("b", 1), plain_cluster("c", 3)]).await?;
    let third = stream.expect_type(CLUSTER).await?;
    let words = "xDS response validation errors: [resource index 1: no such type]";
    stream.nack(&third, &["b", "c"], &second.version_info, words).await?;
    world.wait_type("n", CLUSTER, rejects(&["c"])).await?;
    stream.ack(&third, &["b"]).await?;
    world.wait_type("n", CLUSTER, |status| status["status"] == "SYNCED").await?;
    Ok(())
}

#[tokio::test]
async fn the_same_words_about_another_response_are_another_rejection() -> Result<()> {
    let clusters = |version: u64| -> Vec<serde_json::Value> {
        let kept = (0..120).map(|i| plain_cluster(&format!("c{i}"), 1));
        kept.chain([plain_cluster("changing", version)]).collect()
    };
    let world = World::serving(&clusters(1)).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    let words = "Error adding/updating cluster(s) c7: no such type";
    let first = stream.expect_type(CLUSTER).await?;
    stream.nack(&first, &[], "", words).await?;
    world.wait_type("n", CLUSTER, |status| status["lastNack"]["version"] == first.version_info).await?;
    world.publish(&clusters(2)).await?;
    let second = stream.expect_type(CLUSTER).await?;
    stream.nack(&second, &[], "", words).await?;
    world.wait_type("n", CLUSTER, |status| status["lastNack"]["version"] == second.version_info).await?;
    Ok(())
}

fn of(name: &str, port: u16) -> serde_json::Value {
    endpoints(name, &[([127, 0, 0, 1], port).into()])
}
