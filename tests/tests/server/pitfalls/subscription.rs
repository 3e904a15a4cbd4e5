//! Subscriptions, wildcard, unsubscribing in State of the World: pitfalls 11 and 13 to 28.

use anyhow::Result;
use serde_json::Value;
use xds_tests::config::{CLUSTER, ENDPOINTS, LISTENER, endpoints};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{names, plain_cluster, timeout_of};

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_11_a_name_asked_for_twice_is_sent_once() -> Result<()> {
    let world = World::serving(&[of("a", 1)]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(ENDPOINTS, &["a", "a"]).await?;
    assert_eq!(names(&stream.expect_type(ENDPOINTS).await?)?, ["a"]);
    Ok(())
}

/// On ADS and on the service of the type alone.
#[tokio::test]
async fn pitfall_13_and_14_a_name_that_comes_back_is_sent_at_the_same_version() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let (_, per_type, _, _) = path::PER_TYPE[4];
    for path in [path::ADS, per_type] {
        let mut stream = SotwStream::open(world.channel.clone(), path, raw::node("n", "c"));
        stream.subscribe(ENDPOINTS, &["a", "b"]).await?;
        let first = stream.expect_type(ENDPOINTS).await?;
        stream.ack(&first, &["a", "b"]).await?;
        stream.ack(&first, &["a"]).await?;
        stream.ack(&first, &["a", "b"]).await?;
        let second = stream.expect_type(ENDPOINTS).await?;
        assert!(names(&second)?.contains(&"b".to_owned()), "{path}");
        assert_ne!(second.nonce, first.nonce);
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_15_16_and_17_a_missing_name_neither_holds_back_nor_loops_and_comes_when_it_exists()
-> Result<()> {
    let world = World::serving(&[plain_cluster("c", 1), of("foo", 1), of("more", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;
    stream.subscribe(ENDPOINTS, &["foo", "bar"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    assert_eq!(names(&first)?, ["foo"]);
    stream.ack(&first, &["foo", "bar"]).await?;
    silence.of_sotw(&mut stream).await?;
    world.publish(&[plain_cluster("c", 1), of("foo", 1), of("more", 1), of("bar", 1)]).await?;
    assert!(names(&stream.expect_type(ENDPOINTS).await?)?.contains(&"bar".to_owned()));
    // Clusters did not change.
    silence.of_sotw(&mut stream).await
}

/// The names of one request after the other.
type Requests<'a> = &'a [&'a [&'a str]];

#[tokio::test]
async fn pitfall_19_the_wildcard_begins_and_ends_as_the_protocol_says() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), plain_cluster("b", 1)]).await?;
    let mut n = 1;
    // The requests in turn, and the answer to a change of both after each.
    let table: [(Requests<'_>, Option<&[&str]>); 6] = [
        (&[&[], &[]], Some(&["a", "b"])),
        (&[&["a"], &[]], None),
        (&[&["*"]], Some(&["a", "b"])),
        (&[&["*"], &[]], None),
        (&[&["*", "a"], &["a"]], Some(&["a"])),
        (&[&["a"]], Some(&["a"])),
    ];
    for (requests, expected) in table {
        let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
        let (first, later) = requests.split_first().unwrap();
        stream.subscribe(CLUSTER, first).await?;
        let response = stream.expect_type(CLUSTER).await?;
        stream.ack(&response, first).await?;
        for names in later {
            stream.ack(&response, names).await?;
        }
        silence.of_sotw(&mut stream).await?;
        n += 1;
        world.publish(&[plain_cluster("a", n), plain_cluster("b", n)]).await?;
        match expected {
            Some(expected) => {
                assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, expected, "{requests:?}");
            }
            None => silence.of_sotw(&mut stream).await?,
        }
    }
    // (v) An empty first list of another type asks for nothing.
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &[]).await?;
    silence.of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_22_only_the_star_alone_is_a_wildcard() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), plain_cluster("*.example.com", 1)]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &["*.example.com"]).await?;
    assert_eq!(names(&stream.expect_type(CLUSTER).await?)?, ["*.example.com"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_23_nothing_is_sent_and_nothing_shown_after_unsubscribing_from_all() -> Result<()> {
    let world = World::serving(&[of("a", 1)]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &["a"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    stream.ack(&first, &[]).await?;
    silence.of_sotw(&mut stream).await?;
    let answer = world.publish(&[of("a", 2)]).await?;
    assert_eq!(answer["total"], 0, "{answer}");
    silence.of_sotw(&mut stream).await
}

#[tokio::test]
async fn pitfall_25_and_26_lists_of_clusters_are_complete_also_when_they_are_empty() -> Result<()> {
    let all = |n| [plain_cluster("a", n), plain_cluster("b", 1), plain_cluster("c", 1)];
    let world = World::serving(&all(1)).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    stream.expect_type(CLUSTER).await?;
    world.publish(&all(2)).await?;
    let changed = stream.expect_type(CLUSTER).await?;
    assert_eq!((names(&changed)?.len(), timeout_of(&changed, "a")?), (3, 2));
    world.publish(&[]).await?;
    let empty = stream.expect_type(CLUSTER).await?;
    assert_eq!((empty.resources.len(), empty.version_info.is_empty()), (0, false));
    Ok(())
}

#[tokio::test]
async fn pitfall_27_and_28_a_missing_name_is_answered_at_once_where_lists_are_complete() -> Result<()> {
    let world = World::serving(&[]).await?;
    let (mut stream, mut silence) = (world.sotw("n"), Silence::default());
    stream.subscribe(LISTENER, &["zz"]).await?;
    let first = stream.expect_type(LISTENER).await?;
    assert_eq!(first.resources, []);
    stream.ack(&first, &["zz"]).await?;
    silence.of_sotw(&mut stream).await?;
    world.publish(&[xds_tests::config::listener("zz", 0, "r")]).await?;
    assert_eq!(names(&stream.expect_type(LISTENER).await?)?, ["zz"]);
    // An orphan of another type: the stream lives.
    stream.subscribe("type.googleapis.com/envoy.config.route.v3.RouteConfiguration", &["orphan"]).await?;
    stream.subscribe(CLUSTER, &[]).await?;
    let mut response = stream.expect_response().await?;
    if response.type_url != CLUSTER {
        assert_eq!(response.resources, []);
        response = stream.expect_response().await?;
    }
    assert_eq!(response.type_url, CLUSTER);
    Ok(())
}

fn of(name: &str, port: u16) -> Value {
    endpoints(name, &[([127, 0, 0, 1], port).into()])
}
