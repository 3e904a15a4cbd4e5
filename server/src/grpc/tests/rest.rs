//! REST-JSON polling, as its clients see it.

use http::{Method, StatusCode};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::Service as _;

use super::support::*;
use crate::grpc::GrpcConfig;

/// A call without a connection; an empty body is `null`.
async fn call(world: &World, method: Method, path: &str, body: impl Into<String>) -> (StatusCode, Json) {
    let body = axum::body::Body::from(body.into());
    let request = http::Request::builder().method(method).uri(path).body(body).unwrap();
    let response = world.grpc.rest_routes().call(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Json::Null))
}

async fn poll(world: &World, name: &str, request: Json) -> (StatusCode, Json) {
    call(world, Method::POST, &format!("/v3/discovery:{name}"), request.to_string()).await
}

fn world() -> World {
    World::new(GrpcConfig::default())
}

#[tokio::test]
async fn row_a189_an_unchanged_poll_is_not_modified() {
    let world = world();
    world.publish([cluster("a", "1")]);
    let (status, first) = poll(&world, "clusters", json!({"node": {"id": "n"}})).await;
    assert_eq!(status, 200, "{first}");
    assert_eq!(first["resources"][0]["@type"], "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    assert_eq!(first["resources"][0]["name"], "a");
    let version = first["version_info"].as_str().or(first["versionInfo"].as_str()).unwrap().to_owned();
    let again = json!({"node": {"id": "n"}, "version_info": version});
    assert_eq!(poll(&world, "clusters", again.clone()).await, (StatusCode::NOT_MODIFIED, Json::Null));
    world.publish([cluster("a", "2")]);
    assert_eq!(poll(&world, "clusters", again).await.0, 200);
}

#[tokio::test]
async fn row_a190_other_names_are_answered_though_the_version_is_current() {
    let world = world();
    world.publish([cluster("a", "1"), cluster("b", "1")]);
    let (_, first) = poll(&world, "clusters", json!({"node": {"id": "n"}, "resource_names": ["a"]})).await;
    let version = &first["version_info"];
    let same = json!({"node": {"id": "n"}, "resource_names": ["a"], "version_info": version});
    assert_eq!(poll(&world, "clusters", same).await.0, 304);
    let more = json!({"node": {"id": "n"}, "resource_names": ["a", "b"], "version_info": version});
    let (status, response) = poll(&world, "clusters", more).await;
    assert_eq!((status, response["resources"].as_array().unwrap().len()), (StatusCode::OK, 2));
    let missing = json!({"node": {"id": "n"}, "resource_names": ["a", "x"], "version_info": version});
    assert_eq!(poll(&world, "clusters", missing).await.0, 200);
}

#[tokio::test]
async fn d4_a_label_decides_nothing() {
    let world = world();
    let publish = |revision, text: &str| {
        use xds_cache::{GroupName, Layer, Revision, layer};
        let mut overrides = Layer::default();
        let group = overrides.groups.entry(GroupName::default_group()).or_default();
        let resource = std::sync::Arc::new(cluster("a", text));
        group.label = Some("1.2.3".into());
        group.resources = [resource].into_iter().collect();
        world.publisher.publish(
            Revision(revision),
            layer::merge(&Layer::default(), &overrides, &layer::Generated::new()),
        );
    };
    publish(1, "1");
    let (_, first) = poll(&world, "clusters", json!({"node": {"id": "n"}})).await;
    let version = first["version_info"].as_str().unwrap().to_owned();
    assert!(version.starts_with("1.2.3."), "{version}");
    let again = json!({"node": {"id": "n"}, "version_info": version});
    assert_eq!(poll(&world, "clusters", again.clone()).await.0, 304);
    publish(2, "2");
    let (status, second) = poll(&world, "clusters", again).await;
    assert_eq!(status, 200, "{second}");
    assert!(second["version_info"].as_str().unwrap().starts_with("1.2.3."));
}

#[tokio::test]
async fn row_a188_every_type_is_polled_by_its_name() {
    let world = world();
    world.publish([cluster("a", "1")]);
    for name in [
        "listeners",
        "routes",
        "clusters",
        "endpoints",
        "secrets",
        "runtime",
        "scoped-routes",
        "extension_configs",
    ] {
        let request = json!({"node": {"id": "n"}, "no_such_field": {"x": 1}, "responseNonce": ""});
        let (status, response) = poll(&world, name, request).await;
        assert_eq!(status, 200, "{name}: {response}");
        assert!(response["type_url"].as_str().unwrap().starts_with("type.googleapis.com/envoy."));
    }
}

#[tokio::test]
async fn row_a194_bad_polls_are_told_what_is_wrong() {
    let world = World::new(GrpcConfig { max_poll_bytes: 1000, ..GrpcConfig::default() });
    let clusters = "/v3/discovery:clusters";
    let (status, problem) =
        call(&world, Method::POST, clusters, json!({"node": {"id": "n"}}).to_string()).await;
    assert_eq!(status, 503, "{problem}");
    world.publish([cluster("a", "1")]);
    for (body, expected) in [
        ("{".to_owned(), 400),
        ("[1]".to_owned(), 400),
        (json!({"node": 5}).to_string(), 400),
        (json!({}).to_string(), 400),
        (json!({"node": {"id": "n"}, "type_url": "type.googleapis.com/x"}).to_string(), 400),
        ("x".repeat(2000), 413),
        ("[".repeat(900), 400),
        ("\u{0}".to_owned(), 400),
    ] {
        let (status, problem) = call(&world, Method::POST, clusters, body.clone()).await;
        assert_eq!(status, expected, "{body:.40}: {problem}");
        assert_eq!(problem["status"], expected);
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    assert_eq!(call(&world, Method::GET, clusters, "").await.0, 405);
    assert_eq!(call(&world, Method::POST, "/v3/discovery:nothing", "{}").await.0, 404);
}

#[tokio::test]
async fn a_large_answer_comes_in_parts_and_is_whole() {
    let world = world();
    let text = "x".repeat(10_000);
    world.publish((0..50).map(|i| cluster(&format!("c{i:02}"), &text)));
    let request = || {
        let body = axum::body::Body::from(json!({"node": {"id": "n"}}).to_string());
        http::Request::post("/v3/discovery:clusters").body(body).unwrap()
    };
    let response = world.grpc.rest_routes().call(request()).await.unwrap();
    let mut body = response.into_body();
    let mut parts = Vec::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        parts.push(frame.unwrap().into_data().unwrap());
    }
    assert!(parts.len() > 5 && parts.iter().all(|part| part.len() < 200_000), "{} parts", parts.len());
    let answer: Json = serde_json::from_slice(&parts.concat()).unwrap();
    let names: Vec<_> = answer["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!((names.len(), names[0], names[49]), (50, &json!("c00"), &json!("c49")));
    assert_eq!(answer["type_url"], "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    // Nobody is stuck on a client that reads no further.
    drop(world.grpc.rest_routes().call(request()).await.unwrap());
    assert_eq!(poll(&world, "clusters", json!({"node": {"id": "n"}})).await.0, 200);
}

#[tokio::test]
async fn names_that_do_not_exist_are_told_after_those_that_do() {
    let world = world();
    world.publish([cluster("a", "1"), cluster("b", "1")]);
    let mut names: Vec<_> = (0..2000).map(|i| format!("x{i:04}")).collect();
    names.extend(["b".to_owned(), "a".to_owned()]);
    let (status, answer) =
        poll(&world, "clusters", json!({"node": {"id": "n"}, "resource_names": names})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["resources"].as_array().unwrap().len(), 2);
    let errors = answer["resource_errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[1999]["resource_name"]["name"]), (2000, &json!("x1999")));
}

#[tokio::test]
async fn polling_can_be_turned_off() {
    let world = World::new(GrpcConfig { rest_polling: false, ..GrpcConfig::default() });
    world.publish([cluster("a", "1")]);
    assert_eq!(poll(&world, "clusters", json!({"node": {"id": "n"}})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new(GrpcConfig { max_polls: 1, ..GrpcConfig::default() });
    world.publish([cluster("a", "1")]);
    let forever =
        axum::body::Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>());
    let request = http::Request::post("/v3/discovery:clusters").body(forever).unwrap();
    let began = tokio::time::Instant::now();
    let slow = tokio::spawn(world.grpc.rest_routes().call(request));
    assert_eq!(poll(&world, "clusters", json!({"node": {"id": "n"}})).await.0, 200, "it takes no place");
    assert_eq!(slow.await.unwrap().unwrap().status(), 408);
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?} of paused time", began.elapsed());
    assert!(world.metrics.render().contains("xds_refused_total{reason=\"polls\"} 1"));
}

#[tokio::test]
async fn row_a191_a_nack_in_a_poll_is_counted() {
    let world = world();
    world.publish([cluster("a", "1")]);
    let request = json!({"node": {"id": "n"}, "error_detail": {"code": 3, "message": "bad"}});
    assert_eq!(poll(&world, "clusters", request).await.0, 200);
    assert!(world.metrics.render().contains("xds_nacks_total{type=\"clusters\"} 1"));
}

#[tokio::test]
async fn the_xds_port_takes_polls_over_http_1() {
    let server = Server::start().await;
    server.world.publish([cluster("a", "1")]);
    let exchange = |request: String| async move {
        let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        within("the response", connection.read_to_string(&mut response)).await.unwrap();
        response
    };
    let body = json!({"node": {"id": "n"}});
    let request = |path: &str, body: &str| {
        let n_bytes = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {n_bytes}\r\n\r\n{body}"
        )
    };
    let response = exchange(request("/v3/discovery:clusters", &body.to_string())).await;
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("\"resources\""), "{response}");
    let response = exchange(request("/v3/discovery:nothing", "{}")).await;
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
}
