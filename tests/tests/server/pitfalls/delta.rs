//! Incremental streams: pitfalls 13, 19, 20 and 29 to 37.

use anyhow::Result;
use serde_json::{Value, json};
use xds_tests::config::{CLUSTER, ENDPOINTS, endpoints};
use xds_tests::raw::{self, DeltaStream, path};
use xds_tests::seen::{delta_names, plain_cluster};

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_13_and_30_a_name_subscribed_again_is_sent_again() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let (_, _, per_type, _) = path::PER_TYPE[4];
    for path in [path::ADS_DELTA, per_type] {
        let mut stream = DeltaStream::open(world.channel.clone(), path, raw::node("n", "c"));
        stream.subscribe(ENDPOINTS, &["a", "b"]).await?;
        let first = stream.expect_type(ENDPOINTS).await?;
        stream.ack(&first).await?;
        stream.change(ENDPOINTS, &[], &["b"]).await?;
        stream.change(ENDPOINTS, &["b"], &[]).await?;
        let again = stream.expect_type(ENDPOINTS).await?;
        assert_eq!((delta_names(&again), again.removed_resources), (vec!["b".to_owned()], vec![]), "{path}");
        stream.change(ENDPOINTS, &["a"], &[]).await?;
        assert_eq!(delta_names(&stream.expect_type(ENDPOINTS).await?), ["a"], "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_19_in_delta_the_wildcard_begins_and_ends_as_the_protocol_says() -> Result<()> {
    let both = |n| [plain_cluster("a", n), plain_cluster("b", n)];
    let world = World::serving(&both(1)).await?;
    let mut n = 1;
    // First subscribe; then (add, remove); then what a change of both is answered with.
    type Change<'a> = (&'a [&'a str], &'a [&'a str]);
    let table: [(&[&str], &[Change<'_>], &[&str]); 5] = [
        (&[], &[], &["a", "b"]),
        (&[], &[(&["a"], &[])], &["a", "b"]),
        (&["*", "a"], &[(&[], &["*"])], &["a"]),
        (&["a"], &[(&[], &[])], &["a"]),
        (&["*"], &[(&[], &["*"])], &[]),
    ];
    for (first, changes, expected) in table {
        let (mut stream, mut silence) = (world.delta("n"), Silence::default());
        stream.subscribe(CLUSTER, first).await?;
        let response = stream.expect_type(CLUSTER).await?;
        stream.ack(&response).await?;
        for (add, remove) in changes {
            stream.change(CLUSTER, add, remove).await?;
            if !add.is_empty() {
                assert_eq!(delta_names(&stream.expect_type(CLUSTER).await?), *add);
            }
        }
        silence.of_delta(&mut stream).await?;
        n += 1;
        world.publish(&both(n)).await?;
        if expected.is_empty() {
            silence.of_delta(&mut stream).await?;
        } else {
            assert_eq!(delta_names(&stream.expect_type(CLUSTER).await?), expected, "{first:?} {changes:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_20_a_name_unsubscribed_under_the_wildcard_is_answered() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), plain_cluster("b", 1)]).await?;
    let (mut stream, mut silence) = (world.delta("n"), Silence::default());
    stream.subscribe(CLUSTER, &["*", "a", "zz"]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first).await?;
    stream.change(CLUSTER, &[], &["a"]).await?;
    assert_eq!(delta_names(&stream.expect_type(CLUSTER).await?), ["a"]);
    silence.of_delta(&mut stream).await
}

#[tokio::test]
async fn pitfall_29_a_missing_name_is_told_as_removed_and_sent_when_it_exists() -> Result<()> {
    let world = World::serving(&[of("a", 1)]).await?;
    let (mut stream, mut silence) = (world.delta("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &["zz"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    assert_eq!((delta_names(&first), &first.removed_resources), (vec![], &vec!["zz".to_owned()]));
    stream.ack(&first).await?;
    silence.of_delta(&mut stream).await?;
    world.publish(&[of("a", 1), of("zz", 1)]).await?;
    assert_eq!(delta_names(&stream.expect_type(ENDPOINTS).await?), ["zz"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_31_and_32_a_reconnect_gets_what_differs_from_what_it_says_it_holds() -> Result<()> {
    let world = World::serving(&[plain_cluster("a", 1), plain_cluster("b", 1)]).await?;
    let mut old = world.delta("n");
    old.subscribe(CLUSTER, &[]).await?;
    let held = old.expect_type(CLUSTER).await?;
    drop(old);
    let version = |name: &str| held.resources.iter().find(|r| r.name == name).map(|r| r.version.clone());
    let reconnect = async |versions: [(&str, String); 3]| {
        let mut stream = world.delta("n");
        let mut request = raw::delta_request(CLUSTER, &[], &[]);
        request.node = Some(raw::node("n", "c"));
        request.initial_resource_versions = versions.map(|(name, v)| (name.to_owned(), v)).into();
        stream.send(request).await?;
        stream.expect_type(CLUSTER).await
    };
    let current = version("a").unwrap();
    let response = reconnect([("a", current), ("b", "old".into()), ("gone", "x".into())]).await?;
    assert_eq!(
        (delta_names(&response), response.removed_resources),
        (vec!["b".into()], vec!["gone".to_owned()])
    );

    // Endpoints without a version are sent, though the stream before had them.
    world.publish(&[of("e", 1)]).await?;
    for _ in 0..2 {
        let mut stream = world.delta("n");
        stream.subscribe(ENDPOINTS, &["e"]).await?;
        assert_eq!(delta_names(&stream.expect_type(ENDPOINTS).await?), ["e"]);
    }
    Ok(())
}

#[tokio::test]
async fn pitfall_33_34_and_35_only_what_goes_is_removed_and_what_comes_back_is_sent() -> Result<()> {
    let world = World::serving(&[of("a", 1), of("b", 1)]).await?;
    let (mut stream, mut silence) = (world.delta("n"), Silence::default());
    stream.subscribe(ENDPOINTS, &["a", "b"]).await?;
    stream.expect_type(ENDPOINTS).await?;
    world.publish(&[of("a", 2), of("b", 1)]).await?;
    let changed = stream.expect_type(ENDPOINTS).await?;
    assert_eq!((delta_names(&changed), changed.removed_resources), (vec!["a".to_owned()], vec![]));
    stream.change(ENDPOINTS, &[], &["b"]).await?;
    silence.of_delta(&mut stream).await?;
    world.publish(&[of("b", 1)]).await?;
    let gone = stream.expect_type(ENDPOINTS).await?;
    assert_eq!((delta_names(&gone), gone.removed_resources), (vec![], vec!["a".to_owned()]));
    world.publish(&[of("a", 2), of("b", 1)]).await?;
    let back = stream.expect_type(ENDPOINTS).await?;
    assert_eq!(
        (delta_names(&back), &back.resources[0].version),
        (vec!["a".into()], &changed.resources[0].version)
    );
    Ok(())
}

#[tokio::test]
async fn pitfall_36_and_37_secrets_extensions_and_runtimes_are_named_and_versioned() -> Result<()> {
    const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
    const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let all = |n: u64| {
        [
            json!({"@type": SECRET, "name": "s", "generic_secret": {"secret": {"inline_string": format!("{n}")}}}),
            json!({"@type": EXTENSION, "name": "x", "typed_config": router}),
            json!({"@type": RUNTIME, "name": "layer", "layer": {"n": n}}),
        ]
    };
    let world = World::serving(&all(1)).await?;
    let mut stream = world.delta("n");
    for (type_url, name) in [(SECRET, "s"), (EXTENSION, "x"), (RUNTIME, "layer")] {
        stream.subscribe(type_url, &[name]).await?;
        let response = stream.expect_type(type_url).await?;
        let resource = &response.resources[0];
        assert_eq!((resource.name.as_str(), resource.version.is_empty()), (name, false));
        assert_eq!(resource.resource.as_ref().map(|any| any.type_url.as_str()), Some(type_url));
        stream.ack(&response).await?;
    }
    world.publish(&all(2)).await?;
    let mut changed = [stream.expect_response().await?.type_url, stream.expect_response().await?.type_url];
    changed.sort();
    assert_eq!(changed, [SECRET, RUNTIME]);
    Ok(())
}

fn of(name: &str, port: u16) -> Value {
    endpoints(name, &[([127, 0, 0, 1], port).into()])
}
