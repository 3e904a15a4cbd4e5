//! The harness itself, without the server under test.

use anyhow::{Result, ensure};
use http::StatusCode;
use xds_tests::backend::Backend;
use xds_tests::config;
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library, Worker};

#[tokio::test]
async fn an_envoy_routes_to_a_backend() -> Result<()> {
    let backend = Backend::start("b1").await?;
    let envoy = Envoy::start(&config::static_envoy(backend.addr())).await?;
    envoy.wait_live().await?;
    let mut connection = Connection::open(envoy.wait_listener("http").await?).await?;
    let answer = connection.get("/").await?;
    assert_eq!((answer.status, answer.header("x-backend")), (StatusCode::OK, "b1"));

    assert_eq!(envoy.stat("cluster.backend.upstream_rq_200").await?, 1);
    assert_eq!(envoy.config_dump().await?.active_clusters().len(), 0, "static clusters did not come by CDS");
    Ok(())
}

#[tokio::test]
async fn an_envoy_that_refuses_its_bootstrap_is_an_error_with_its_words() {
    let error = Envoy::start("{\"no_such_field\": 1}").await.unwrap_err();
    assert!(format!("{error:#}").contains("no_such_field"), "{error:#}");
}

#[tokio::test]
async fn grpcio_calls_a_backend() -> Result<()> {
    calls_a_backend(Library::Grpcio).await
}

#[tokio::test]
async fn grpc_js_calls_a_backend() -> Result<()> {
    calls_a_backend(Library::GrpcJs).await
}

#[tokio::test]
async fn grpc_go_calls_a_backend() -> Result<()> {
    calls_a_backend(Library::GrpcGo).await
}

/// Tries everything that a worker can do without xDS.
async fn calls_a_backend(library: Library) -> Result<()> {
    let backend = Backend::start("b1").await?;
    let nowhere = config::grpc_bootstrap(([127, 0, 0, 1], 1).into(), "n");
    let Some(worker) = Worker::start(library, &nowhere).await? else { return Ok(()) };
    assert_eq!(worker.hello().await?.library, library.to_string());

    let channel = worker.open(&backend.addr().to_string()).await?;
    assert_eq!(channel.state(false).await?, "IDLE");
    assert_eq!(channel.who().await?, "b1");
    assert_eq!(channel.state(false).await?, "READY");
    assert_eq!((backend.n_requests(), backend.n_accepted()), (1, 1));

    let counts = channel.call(&Calls { n_in_flight: 10, ..Calls::new(100) }).await?;
    counts.ensure_no_errors()?;
    assert_eq!((counts.n_of("b1"), backend.n_requests()), (100, 101));

    backend.fail(0.25);
    let counts = channel.call(&Calls { n_in_flight: 1, ..Calls::new(40) }).await?;
    assert_eq!((counts.n_of("b1"), counts.errors.get("UNAVAILABLE").copied()), (30, Some(10)));
    assert_eq!(counts.first_error.as_deref(), Some("told to fail"));
    backend.fail(0.0);

    let hold = channel.hold(&Calls::new(0), 200).await?;
    let before = backend.n_requests();
    wait_for("calls in the background", PATIENCE, async || {
        let n = backend.n_requests() - before;
        ensure!(n >= 50, "{n} came");
        Ok(())
    })
    .await?;
    let counts = hold.stop().await?;
    counts.ensure_no_errors()?;
    assert!(counts.n_answered() >= 50, "{counts:?}");

    channel.close().await?;
    wait_for("a closed connection", PATIENCE, async || {
        ensure!(backend.n_open() == 0, "{} open", backend.n_open());
        Ok(())
    })
    .await?;
    worker.client_status().await?;
    Ok(())
}
