//! Nodes, several streams, and the transport: pitfalls 49, 52 to 55, 58 and 60.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xds_tests::config::{CLUSTER, ENDPOINTS, LISTENER, endpoints};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{names, plain_cluster, resources, timeout_of};
use xds_tests::server::{Server, Setup};
use xds_tests::wait::{PATIENCE, wait_for};

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_39_a_stream_of_many_types_that_is_not_read_delays_no_publication() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut stuck = world.delta("stuck");
    for (type_url, ..) in path::PER_TYPE {
        stuck.subscribe(type_url, &["*"]).await?;
    }
    for i in 0..4 {
        stuck.subscribe(&format!("type.googleapis.com/some.Type{i}"), &["x"]).await?;
    }
    let mut good = world.sotw("good");
    good.subscribe(CLUSTER, &[]).await?;
    good.expect_type(CLUSTER).await?;
    let mut took = Vec::new();
    for n in 2..52 {
        let started = Instant::now();
        world.publish(&[plain_cluster("a", n)]).await?;
        took.push(started.elapsed());
        assert_eq!(timeout_of(&good.expect_type(CLUSTER).await?, "a")?, n);
    }
    took.sort();
    let median = took[took.len() / 2];
    ensure!(median < Duration::from_millis(100), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn pitfall_49_a_node_that_nothing_is_known_of_is_told_and_served_once_something_is() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let channel = raw::connect(server.xds()).await?;
    // It holds something from before: to answer with nothing would wipe it.
    let mut holding = SotwStream::open(channel.clone(), path::ADS, raw::node("holding", "c"));
    let mut request = raw::sotw_request(CLUSTER, &[]);
    request.node = Some(raw::node("holding", "c"));
    request.version_info = "of-before".to_owned();
    holding.send(request).await?;
    let mut fresh = SotwStream::open(channel, path::ADS, raw::node("fresh", "c"));
    fresh.subscribe(CLUSTER, &[]).await?;
    assert_eq!(fresh.expect_type(CLUSTER).await?.resources, []);
    for node in ["holding", "fresh"] {
        server.wait_json(&format!("/v1/nodes/{node}"), |found| found["unmatched"] == true).await?;
    }
    server.put("/v1/groups/holding/resources", &resources(&[plain_cluster("a", 1)])).await?;
    // The first response of all is the new configuration.
    assert_eq!(names(&holding.expect_type(CLUSTER).await?)?, ["a"]);
    server.wait_json("/v1/nodes/holding", |found| found["unmatched"] == false).await?;
    Ok(())
}

#[tokio::test]
async fn pitfall_52_two_streams_of_one_node_are_served_and_end_each_by_itself() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut one, mut two) = (world.sotw("n"), world.sotw("n"));
    for stream in [&mut one, &mut two] {
        stream.subscribe(CLUSTER, &[]).await?;
        stream.expect_type(CLUSTER).await?;
    }
    world.publish(&[plain_cluster("a", 2)]).await?;
    for stream in [&mut one, &mut two] {
        assert_eq!(timeout_of(&stream.expect_type(CLUSTER).await?, "a")?, 2);
    }
    drop(one);
    let n_streams = |node: &Value| node["streams"].as_array().map(Vec::len);
    world.server.wait_json("/v1/nodes/n", |node| n_streams(node) == Some(1)).await?;
    world.publish(&[plain_cluster("a", 3)]).await?;
    assert_eq!(timeout_of(&two.expect_type(CLUSTER).await?, "a")?, 3);
    Ok(())
}

#[tokio::test]
async fn pitfall_53_a_group_that_is_deleted_and_put_again_reaches_the_same_stream() -> Result<()> {
    let world = World::serving(&[plain_cluster("common", 1)]).await?;
    let put =
        async |n| world.server.put("/v1/groups/n/resources", &resources(&[plain_cluster("own", n)])).await;
    put(1).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["common", "own"]);
    world.server.delete("/v1/groups/n").await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["common"]);
    put(2).await?;
    let response = stream.expect_type(CLUSTER).await?;
    assert_eq!(
        (names(&response)?, timeout_of(&response, "own")?),
        (vec!["common".into(), "own".to_owned()], 2)
    );
    Ok(())
}

#[tokio::test]
async fn pitfall_54_and_65_a_stream_that_ends_in_any_way_leaves_the_status() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let mut closed = world.sotw("half-closed");
    closed.subscribe(CLUSTER, &[]).await?;
    closed.expect_type(CLUSTER).await?;
    let own = raw::connect(world.server.xds()).await?;
    let mut cut = SotwStream::open(own.clone(), path::ADS, raw::node("cut", "c"));
    cut.subscribe(CLUSTER, &[]).await?;
    cut.expect_type(CLUSTER).await?;
    let n_nodes = |nodes: &Value| nodes["nodes"].as_array().map(Vec::len);
    world.server.wait_json("/v1/nodes", |nodes| n_nodes(nodes) == Some(2)).await?;
    closed.half_close();
    assert_eq!(closed.expect_end().await?.code(), tonic::Code::Ok);
    drop((cut, own));
    world.server.wait_json("/v1/nodes", |nodes| n_nodes(nodes) == Some(0)).await?;
    // The stream is counted until it is gone, a moment after its status.
    wait_for("no stream", PATIENCE, async || {
        let metrics = world.server.get("/metrics").await?.text();
        ensure!(metrics.contains("xds_streams{variant=\"sotw\"} 0"), "{metrics}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pitfall_55_publications_for_two_nodes_back_to_back_reach_both() -> Result<()> {
    const N_PAIRS: u64 = 300;
    let world = World::serving(&[]).await?;
    let put = async |node: &str, n: u64| {
        world.server.put(&format!("/v1/groups/{node}/resources"), &resources(&[plain_cluster("x", n)])).await
    };
    let mut streams = Vec::new();
    for node in ["a", "b"] {
        put(node, 1).await?;
        let mut stream = world.sotw(node);
        stream.subscribe(CLUSTER, &[]).await?;
        let response = stream.expect_type(CLUSTER).await?;
        stream.ack(&response, &[]).await?;
        streams.push(stream);
    }
    for n in 2..=N_PAIRS {
        put("a", n).await?;
        put("b", 1000 + n).await?;
    }
    for (stream, last) in streams.iter_mut().zip([N_PAIRS, 1000 + N_PAIRS]) {
        while timeout_of(&stream.expect_type(CLUSTER).await?, "x")? != last {}
        Silence::default().of_sotw(stream).await?;
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_58_large_state_is_whole_in_sotw_and_split_in_delta() -> Result<()> {
    let large = |i: usize| {
        let mut cluster = plain_cluster(&format!("large-{i}"), 1);
        cluster["alt_stat_name"] = json!("x".repeat(1_200_000));
        cluster
    };
    let world = World::serving(&(0..5).map(large).collect::<Vec<_>>()).await?;
    let mut sotw = world.sotw("sotw");
    sotw.subscribe(CLUSTER, &[]).await?;
    assert_eq!(names(&sotw.expect_type(CLUSTER).await?)?.len(), 5);
    let mut delta = world.delta("delta");
    delta.subscribe(CLUSTER, &[]).await?;
    let (mut n_resources, mut nonces) = (0, Vec::new());
    while n_resources < 5 {
        let response = delta.expect_type(CLUSTER).await?;
        ensure!(prost::Message::encoded_len(&response) <= 3 * 1024 * 1024 + 1024, "too large");
        delta.ack(&response).await?;
        n_resources += response.resources.len();
        nonces.push(response.nonce);
    }
    let n_responses = nonces.len();
    nonces.sort();
    nonces.dedup();
    assert!(n_responses > 1 && nonces.len() == n_responses, "{nonces:?}");
    world.wait_type("delta", CLUSTER, |status| status["status"] == "SYNCED").await?;
    Silence::default().of_delta(&mut delta).await
}

/// The other half, two thousand at once, is in the server's own tests.
#[tokio::test]
async fn pitfall_60_an_envoy_without_ads_opens_one_stream_per_cluster() -> Result<()> {
    const N_STREAMS: usize = 300;
    let name = |i: usize| format!("e{i}");
    let all: Vec<_> = (0..N_STREAMS).map(|i| endpoints(&name(i), &[([127, 0, 0, 1], 1).into()])).collect();
    let world = World::serving(&all).await?;
    let (_, per_type, _, _) = path::PER_TYPE[4];
    let mut streams = Vec::new();
    for i in 0..N_STREAMS {
        let mut stream = SotwStream::open(world.channel.clone(), per_type, raw::node("n", "c"));
        stream.subscribe(ENDPOINTS, &[&name(i)]).await?;
        streams.push(stream);
    }
    for (i, stream) in streams.iter_mut().enumerate() {
        assert_eq!(names(&stream.expect_type(ENDPOINTS).await?)?, [name(i)]);
    }
    // A change wakes the one that it concerns.
    let mut changed = all;
    changed[7] = endpoints("e7", &[([127, 0, 0, 1], 2).into()]);
    let answer = world.publish(&changed).await?;
    assert_eq!(answer["total"], 1, "{answer}");
    assert_eq!(names(&streams[7].expect_type(ENDPOINTS).await?)?, ["e7"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_64_an_unknown_type_is_remembered_and_hurts_no_other() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;
    stream.subscribe("type.googleapis.com/no.such.Type", &["a"]).await?;
    silence.of_sotw(&mut stream).await?;
    stream.subscribe(LISTENER, &[]).await?;
    stream.expect_type(LISTENER).await?;
    Ok(())
}
