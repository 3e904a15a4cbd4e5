//! `xds-server wait`: its exit codes and words, with clients whose answers the test chooses.

use std::process::{Output, Stdio};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xds_tests::config::CLUSTER;
use xds_tests::raw::{self, DeltaStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup, xds_server};

async fn wait(admin: &str, args: &[&str]) -> Result<Output> {
    let mut command = xds_server().await?;
    command.args(["wait", "--output", "json", "--admin", admin]).args(args);
    Ok(command.output().await?)
}

fn expect(output: &Output, code: i32, words: &[&str]) -> Result<()> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "{:?} instead of {code}: {error}", output.status);
    for word in words {
        ensure!(error.contains(word), "no {word:?} in {error}");
    }
    Ok(())
}

async fn client(server: &Server, node: &str) -> Result<DeltaStream> {
    let mut stream =
        DeltaStream::open(raw::connect(server.xds()).await?, path::ADS_DELTA, raw::node(node, "c"));
    stream.subscribe(CLUSTER, &["*"]).await?;
    Ok(stream)
}

#[tokio::test]
async fn the_exit_code_says_whether_clients_use_what_is_served() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let admin = server.url("");
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    let mut stream = client(&server, "edge-1").await?;
    let response = stream.expect_response().await?;
    let short = ["--timeout", "300ms"];
    expect(
        &wait(&admin, &short).await?,
        4,
        &["not all of these clients use it yet", "pending: edge-1", "short: 1 "],
    )?;
    let absent = ["--object", "HTTPRoute/shop", "--timeout", "300ms"];
    expect(&wait(&admin, &absent).await?, 4, &["absent: ", "HTTPRoute/default/shop"])?;
    let later = ["--revision", "99", "--timeout", "300ms"];
    expect(&wait(&admin, &later).await?, 4, &["revision 99 is not served"])?;

    stream.ack(&response).await?;
    let done = wait(&admin, &["--nodes", "edge-*"]).await?;
    expect(&done, 0, &[])?;
    let answer: Value = serde_json::from_slice(&done.stdout)?;
    assert_eq!((&answer["acked"], &answer["total"]), (&json!(1), &json!(1)));
    expect(&wait(&admin, &["--object", "default/clusters/api", "--revision", "current"]).await?, 0, &[])?;
    let two = ["--nodes", "edge-*", "--count", "2", "--timeout", "300ms"];
    expect(&wait(&admin, &two).await?, 4, &["short: 1 more"])?;
    let mut second = client(&server, "edge-2").await?;
    let response = second.expect_response().await?;
    second.ack(&response).await?;
    expect(&wait(&admin, &["--nodes", "edge-*", "--count", "2"]).await?, 0, &[])?;

    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 2)])).await?;
    let response = stream.expect_response().await?;
    stream.nack(&response, "no such filter").await?;
    let rejected = ["rejected by edge-1: Cluster api: no such filter"];
    expect(&wait(&admin, &["--nodes", "edge-1"]).await?, 1, &rejected)?;
    expect(&wait(&admin, &["--nodes", "edge-1", "--object", "default/clusters/api"]).await?, 1, &rejected)
}

#[tokio::test]
async fn a_wave_deployment_that_does_not_end_in_time_is_not_yet_done() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    server.wait_ready().await?;
    let admin = server.url("");
    let file = server.data_dir().join("cluster.json");
    std::fs::write(&file, json!({"name": "api", "connect_timeout": "1s"}).to_string())?;
    let put = |waves: &'static str| {
        let (file, admin) = (file.clone(), admin.clone());
        async move {
            let mut command = xds_server().await?;
            command
                .args(["resources", "put", "default", "clusters", "api", "--waves", waves])
                .arg("-f")
                .arg(file);
            Ok::<Output, anyhow::Error>(command.args(["--admin", &admin]).output().await?)
        }
    };
    expect(&put("soon").await?, 2, &["soon"])?;
    let begun = put("50%,100%").await?;
    expect(&begun, 0, &[])?;
    let answer: Value = serde_json::from_slice(&begun.stdout)?;
    let mut command = xds_server().await?;
    command.args(["waves", &answer["waveDeployment"].to_string(), "--watch", "--timeout", "300ms"]);
    let watched = command.args(["--admin", &admin]).output().await?;
    expect(&watched, 4, &["it has not ended in time: it is progressing"])
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() -> Result<()> {
    let setup = Setup::new()?.fixed_admin_port()?.fixed_xds_port()?;
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    let admin = server.url("");
    server.kill().await?;
    expect(&wait(&admin, &["--timeout", "300ms"]).await?, 3, &["cannot reach the server"])?;
    expect(&wait(&admin, &["--object", "api"]).await?, 2, &["KIND/NAMESPACE/NAME"])?;
    expect(&wait("ftp:// x", &[]).await?, 2, &["is not a URL"])?;

    let mut command = xds_server().await?;
    command
        .args(["wait", "--timeout", "60s", "--admin", &admin])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let waiting = command.spawn()?;
    server.restart().await?;
    let mut stream = client(&server, "edge-1").await?;
    let response = stream.expect_response().await?;
    stream.ack(&response).await?;
    expect(&waiting.wait_with_output().await?, 0, &[])
}
