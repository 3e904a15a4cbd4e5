//! The order of types and of changes: pitfalls 18 and 40 to 47.

use anyhow::Result;
use serde_json::{Value, json};
use xds_tests::config::{
    CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE, cluster, endpoints, listener, route_config, split, to,
};
use xds_tests::seen::{delta_names, names};
use xds_tests::server::Setup;

use crate::pitfalls::world::{Silence, World};

#[tokio::test]
async fn pitfall_18_a_cluster_of_weight_zero_is_asked_for_later() -> Result<()> {
    let all = |v1, v2| {
        let routes = route_config("r", &[("/", split(&[("v1", v1), ("v2", v2)]))]);
        [routes, cluster("v1"), cluster("v2"), of("v1", 1), of("v2", 1)]
    };
    let world = World::serving(&all(100, 0)).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(ENDPOINTS, &["v1"]).await?;
    let first = stream.expect_type(ENDPOINTS).await?;
    assert_eq!(names(&first)?, ["v1"]);
    stream.ack(&first, &["v1"]).await?;
    world.publish(&all(90, 10)).await?;
    stream.ack(&first, &["v1", "v2"]).await?;
    assert!(names(&stream.expect_type(ENDPOINTS).await?)?.contains(&"v2".to_owned()));
    Ok(())
}

/// Without `--strict` it is a warning (pitfall 74), and the removal waits until clients do not use the cluster any more.
#[tokio::test]
async fn pitfall_38_with_strict_what_is_referred_to_cannot_be_removed() -> Result<()> {
    let all = [route_config("r", &[("/", to("c"))]), cluster("c"), of("c", 1)];
    let world = World::with(Setup::new()?.arg("--strict"), &all).await?;
    let mut stream = world.delta("n");
    stream.subscribe(CLUSTER, &["c"]).await?;
    stream.expect_type(CLUSTER).await?;
    let path = "/v1/groups/default/resources/clusters/c";
    let answer = world.server.request("DELETE", path, &[], "").await?;
    assert_eq!(answer.status.as_u16(), 422, "{}", answer.text());
    assert!(answer.text().contains("\\\"c\\\"") || answer.text().contains("`c`"), "{}", answer.text());
    Silence::default().of_delta(&mut stream).await
}

#[tokio::test]
async fn pitfall_50_what_is_incoherent_is_published_and_starves_nobody() -> Result<()> {
    let world = World::serving(&[]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(ROUTE, &["r"]).await?;
    world.publish(&[route_config("r", &[("/", to("missing"))])]).await?;
    let mut response = stream.expect_type(ROUTE).await?;
    // There may have been an answer of nothing before.
    if response.resources.is_empty() {
        response = stream.expect_type(ROUTE).await?;
    }
    assert_eq!(names(&response)?, ["r"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_40_one_change_of_all_leaves_in_the_order_of_references() -> Result<()> {
    let all = |n: u16| {
        let mut cluster = cluster("c");
        cluster["connect_timeout"] = json!(format!("{n}s"));
        let mut listener = listener("l", 0, "r");
        listener["stat_prefix"] = json!(format!("l{n}"));
        [route_config("r", &[(&format!("/{n}"), to("c"))]), listener, of("c", n), cluster]
    };
    let world = World::serving(&all(1)).await?;
    let subscribed = [(ROUTE, &["r"][..]), (LISTENER, &[]), (ENDPOINTS, &["c"]), (CLUSTER, &[])];
    let mut sotw = world.sotw("sotw");
    let mut delta = world.delta("delta");
    for (type_url, names) in subscribed {
        sotw.subscribe(type_url, names).await?;
        let response = sotw.expect_type(type_url).await?;
        sotw.ack(&response, names).await?;
        delta.subscribe(type_url, names).await?;
        let response = delta.expect_type(type_url).await?;
        delta.ack(&response).await?;
    }
    // The cluster was new to them, so its endpoints follow it once more (pitfall 41).
    let response = sotw.expect_type(ENDPOINTS).await?;
    sotw.ack(&response, &["c"]).await?;
    let response = delta.expect_type(ENDPOINTS).await?;
    delta.ack(&response).await?;
    world.publish(&all(2)).await?;
    for type_url in [CLUSTER, ENDPOINTS, LISTENER, ROUTE] {
        sotw.expect_type(type_url).await?;
        delta.expect_type(type_url).await?;
    }
    Silence::default().of_sotw(&mut sotw).await?;
    Silence::default().of_delta(&mut delta).await
}

#[tokio::test]
async fn pitfall_41_endpoints_follow_their_changed_cluster_once() -> Result<()> {
    let all = |n: u16| {
        let mut cluster = cluster("c");
        cluster["connect_timeout"] = json!(format!("{n}s"));
        [cluster, of("c", 1), of("other", 1)]
    };
    let world = World::serving(&all(1)).await?;
    let wanted = ["c", "other"];
    let (mut sotw, mut delta) = (world.sotw("sotw"), world.delta("delta"));
    for (type_url, names) in [(CLUSTER, &[][..]), (ENDPOINTS, &wanted)] {
        sotw.subscribe(type_url, names).await?;
        let response = sotw.expect_type(type_url).await?;
        sotw.ack(&response, names).await?;
        delta.subscribe(type_url, names).await?;
        let response = delta.expect_type(type_url).await?;
        delta.ack(&response).await?;
    }
    world.publish(&all(2)).await?;
    let response = sotw.expect_type(CLUSTER).await?;
    sotw.ack(&response, &[]).await?;
    let response = sotw.expect_type(ENDPOINTS).await?;
    assert!(names(&response)?.contains(&"c".to_owned()));
    sotw.ack(&response, &wanted).await?;
    Silence::default().of_sotw(&mut sotw).await?;

    let response = delta.expect_type(CLUSTER).await?;
    delta.ack(&response).await?;
    let response = delta.expect_type(ENDPOINTS).await?;
    assert_eq!(delta_names(&response), ["c"]);
    delta.ack(&response).await?;
    Silence::default().of_delta(&mut delta).await
}

#[tokio::test]
async fn pitfall_44_a_change_of_weights_is_told_as_routes_and_nothing_else() -> Result<()> {
    let all = |weight| {
        let routes = route_config("r", &[("/", split(&[("a", weight), ("b", 100 - weight)]))]);
        [routes, listener("l", 0, "r"), cluster("a"), cluster("b"), of("a", 1), of("b", 1)]
    };
    let world = World::serving(&all(10)).await?;
    let mut stream = world.sotw("n");
    for (type_url, names) in [(CLUSTER, &[][..]), (ENDPOINTS, &["a", "b"]), (LISTENER, &[]), (ROUTE, &["r"])]
    {
        stream.subscribe(type_url, names).await?;
        let response = stream.expect_type(type_url).await?;
        stream.ack(&response, names).await?;
    }
    let before = world.server.get_json("/v1/groups/default/snapshot").await?;
    world.publish(&all(20)).await?;
    assert_eq!(names(&stream.expect_type(ROUTE).await?)?, ["r"]);
    Silence::default().of_sotw(&mut stream).await?;
    let after = world.server.get_json("/v1/groups/default/snapshot").await?;
    for type_url in [CLUSTER, ENDPOINTS, LISTENER] {
        assert_eq!(after["types"][type_url]["version"], before["types"][type_url]["version"]);
    }
    assert_ne!(after["types"][ROUTE]["version"], before["types"][ROUTE]["version"]);
    Ok(())
}

#[tokio::test]
async fn pitfall_47_equal_content_is_silent_and_no_history() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("a.yaml", &[cluster("file")])?;
    let world = World::with(Setup::new()?.watch(dir.path()), &[cluster("api")]).await?;
    let mut stream = world.sotw("n");
    stream.subscribe(CLUSTER, &[]).await?;
    let first = stream.expect_type(CLUSTER).await?;
    stream.ack(&first, &[]).await?;
    let history = world.server.get_json("/v1/history").await?;
    let answer = world.publish(&[cluster("api")]).await?;
    assert_eq!((&answer["changed"], &answer["committed"]), (&false.into(), &true.into()));
    dir.write("a.yaml", &format!("# touched\n{}", xds_tests::config::yaml(&[cluster("file")])?))?;
    world.server.post("/v1/reload", &Value::Null).await?;
    assert_eq!(world.server.get_json("/v1/history").await?, history);
    Silence::default().of_sotw(&mut stream).await
}

fn of(name: &str, port: u16) -> Value {
    endpoints(name, &[([127, 0, 0, 1], port).into()])
}
