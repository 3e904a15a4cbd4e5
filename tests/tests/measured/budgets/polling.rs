//! Polls: anyone can send one, and it takes few bytes.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::http::{Answer, Http};
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::shapes::Shape;

use crate::budgets::Wire;

on_both_wires!(
    a_poll_takes_at_most_20_times_its_body,
    many_and_large_polls_take_a_bounded_amount,
    clients_that_stop_in_the_middle_keep_nobody_from_polling
);

const CLUSTERS: &str = "/v3/discovery:clusters";
const MIB: usize = 1 << 20;
/// The memory that a server of this size takes now and then for anything else, such as a thread that is started.
const NOISE: u64 = 8 << 20;
/// The issue's own.
const MAX_AMPLIFICATION: u64 = 20;

/// Row 1: 4 MB of metadata took 1.8 GB.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn a_poll_takes_at_most_20_times_its_body(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?)?).await?;
    let healthy = Healthy::start(&server).await?;
    for shape in Shape::ALL {
        let value = shape.json(MIB - 1000);
        for body in [
            format!("{{\"node\":{{\"id\":\"x\",\"metadata\":{{\"a\":{value}}}}}}}"),
            format!("{{\"node\":{{\"id\":\"x\",\"extensions\":{value}}}}}"),
            format!("{{\"node\":{{\"id\":\"x\"}},\"resource_names\":{value}}}"),
            format!("{{\"node\":{{\"id\":\"x\"}},\"unknown\":{value}}}"),
            format!("{{\"node\":{{\"id\":{value}}}}}"),
        ] {
            let meter = Meter::of(&server)?.begin()?;
            let n_bytes = body.len();
            let answer = post(server.xds(), CLUSTERS, &[], body).await?;
            let cost = meter.cost()?;
            println!("{shape:?}: {n_bytes} bytes: {}: {cost}", answer.status);
            ensure!(answer.status.as_u16() < 500, "{shape:?}: {}", answer.text());
            ensure!(cost.peak <= MAX_AMPLIFICATION * n_bytes as u64 + NOISE, "{shape:?}: {cost}");
        }
    }
    let names: Vec<String> = (0..16_384).map(|n| format!("cluster-{n}")).collect();
    let body = json!({"node": {"id": "x"}, "resource_names": names}).to_string();
    let meter = Meter::of(&server)?.begin()?;
    let n_bytes = body.len();
    ensure!(post(server.xds(), CLUSTERS, &[], body).await?.status == StatusCode::OK);
    let cost = meter.cost()?;
    println!("names: {n_bytes} bytes: {cost}");
    ensure!(cost.peak <= MAX_AMPLIFICATION * n_bytes as u64 + NOISE, "{cost}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// Row 1: a body has a limit of its own, and so has the number of polls that run at once.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn many_and_large_polls_take_a_bounded_amount(wire: Wire) -> Result<()> {
    let server = Server::start_with(wire(Setup::metered()?.arg("--max-polls=4"))?).await?;
    let healthy = Healthy::start(&server).await?;
    let value = Shape::Numbers.json(4_000_000);
    let large = format!("{{\"node\":{{\"id\":\"x\",\"metadata\":{{\"a\":{value}}}}}}}");
    let meter = Meter::of(&server)?.begin()?;
    let answer = post(server.xds(), CLUSTERS, &[("host", "localhost")], large.clone()).await?;
    ensure!(answer.status == StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.text());
    ensure!(answer.text().contains("--max-poll-bytes"), "{}", answer.text());
    ensure!(meter.cost()?.peak <= NOISE, "{}", meter.cost()?);

    // 200 MiB of metadata from 200 clients at once: 16 bodies may be there.
    let fits = large[..MIB - 4].to_owned() + "]}}}";
    let fits = fits.replace(",]", "]");
    let meter = Meter::of(&server)?.begin()?;
    let polls = (0..200).map(|_| post(server.xds(), CLUSTERS, &[], fits.clone()));
    let answers = try_join_all(polls).await?;
    let cost = meter.cost()?;
    let n_served = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    println!("200 polls: {n_served} served: {cost}");
    let is_known =
        |answer: &Answer| [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&answer.status);
    ensure!(answers.iter().all(is_known) && n_served > 0, "{n_served} served");
    ensure!(cost.peak <= 100 << 20, "{cost}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// Bodies that stop in the middle take no place, and answers that are not read no memory.
#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn clients_that_stop_in_the_middle_keep_nobody_from_polling(wire: Wire) -> Result<()> {
    let dir = ConfigDir::new()?;
    let clusters: Vec<Value> = (0..2000).map(|n| large_cluster(&format!("c{n}"))).collect();
    dir.write_resources("clusters.yaml", &clusters)?;
    let server = Server::start_with(wire(Setup::metered()?.watch(dir.path()).arg("--max-polls=2"))?).await?;
    server.wait_ready().await?;
    let small = json!({"node": {"id": "x"}}).to_string();
    let whole = post(server.xds(), CLUSTERS, &[], small.clone()).await?.success()?;
    ensure!(whole.json()?["resources"].as_array().context("no resources")?.len() == 2000);

    let meter = Meter::of(&server)?.begin()?;
    let mut stuck = Vec::new();
    for n in 0..100 {
        let mut socket = TcpStream::connect(server.xds()).await?;
        let length = if n % 2 == 0 { MIB } else { small.len() };
        let head =
            format!("POST {CLUSTERS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{small}");
        socket.write_all(head.as_bytes()).await?;
        stuck.push(socket);
    }
    for _ in 0..20 {
        let some = post(server.xds(), "/v3/discovery:listeners", &[], small.clone()).await?;
        ensure!(some.status == StatusCode::OK, "{}", some.text());
    }
    let cost = meter.cost()?;
    println!("100 clients that stop, answers of {} bytes: {cost}", whole.body.len());
    ensure!(cost.peak <= 64 << 20, "{cost}");
    Ok(())
}

/// Row 1: a page in a browser got a TLS key.
#[tokio::test]
async fn a_web_page_gets_no_key() -> Result<()> {
    let dir = ConfigDir::new()?;
    let key = json!({"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "s", "generic_secret": {"secret": {"inline_string": "hush-hush"}}});
    dir.write_resources("secret.yaml", &[key])?;
    let setup = Setup::metered()?.watch(dir.path()).arg("--xds-host=xds.internal.example");
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let secrets = "/v3/discovery:secrets";
    let body = json!({"node": {"id": "x"}, "resource_names": ["s"]}).to_string();
    let own = server.xds().to_string();
    for (headers, status) in [
        ([("host", "evil.example"), ("content-type", "application/json")], 421),
        ([("host", "evil.example:18000"), ("content-type", "text/plain")], 421),
        ([("host", &own), ("origin", "https://evil.example")], 403),
        ([("host", "evil.example"), ("origin", "http://evil.example")], 403),
        ([("host", &own), ("sec-fetch-site", "cross-site")], 403),
    ] {
        for path in [secrets, "/v3/discovery:client_status", "/anything"] {
            let answer = post(server.xds(), path, &headers, body.clone()).await?;
            ensure!(answer.status == status, "{headers:?}: {} {}", answer.status, answer.text());
            ensure!(!answer.text().contains("hush-hush"), "{headers:?}");
        }
    }
    // gRPC can be spoken over HTTP/1.1 too, as far as a page needs it.
    let request = [b"\0\0\0\0\x08".as_slice(), b"\x12\x03\x0a\x01x\x1a\x01s"].concat();
    let fetch = "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets";
    let headers = [("host", "evil.example"), ("content-type", "application/grpc")];
    let answer = send(server.xds(), fetch, &headers, request.clone().into()).await?;
    ensure!(answer.header("grpc-status") == "7" && !answer.text().contains("hush-hush"), "{answer:?}");
    for host in [own.as_str(), "xds_cluster", "localhost:1", "xds.internal.example"] {
        let answer = post(server.xds(), secrets, &[("host", host)], body.clone()).await?;
        ensure!(answer.text().contains("hush-hush"), "{host}: {}", answer.text());
    }
    let metrics = server.get("/metrics").await?.text();
    for reason in ["host", "browser"] {
        let counted = format!("xds_refused_total{{reason=\"{reason}\"}} 0");
        ensure!(
            metrics.contains(&format!("{{reason=\"{reason}\"}}")) && !metrics.contains(&counted),
            "{metrics}"
        );
    }
    Ok(())
}

/// Row 1: polling can be turned off.
#[tokio::test]
async fn nobody_polls_when_polling_is_off() -> Result<()> {
    let server = Server::start_with(Setup::metered()?.arg("--rest-polling=off")).await?;
    let body = json!({"node": {"id": "x"}}).to_string();
    for addr in [server.xds(), server.admin()] {
        let answer = post(addr, CLUSTERS, &[], body.clone()).await?;
        ensure!(answer.status == StatusCode::NOT_FOUND, "{}", answer.text());
    }
    Ok(())
}

/// An Envoy polls with the name of its cluster as `Host`. If the name has a dot, `--xds-host` must allow it.
#[tokio::test]
async fn a_real_envoy_polls_by_the_name_of_its_cluster() -> Result<()> {
    for (cluster, setup) in [
        ("xds_cluster", Setup::metered()?),
        ("xds.internal.example", Setup::metered()?.arg("--xds-host=xds.internal.example")),
    ] {
        let dir = ConfigDir::new()?;
        dir.write_resources("all.yaml", &[large_cluster("by-poll")])?;
        let server = Server::start_with(setup.watch(dir.path())).await?;
        server.wait_ready().await?;
        let mut bootstrap: Value =
            serde_json::from_str(&server.bootstrap_envoy("poller", Variant::Sotw).await?)?;
        let source = config::api_source("REST", &[("refresh_delay", "0.05s"), ("request_timeout", "1s")]);
        config::without_ads(&mut bootstrap, &source);
        let xds = bootstrap["static_resources"]["clusters"][0].as_object_mut().context("no cluster")?;
        xds.remove("typed_extension_protocol_options");
        let envoy = Envoy::start(&bootstrap.to_string().replace("xds_cluster", cluster)).await?;
        envoy.wait_live().await.with_context(|| cluster.to_owned())?;
        ensure!(envoy.config_dump().await?.active_cluster("by-poll")["name"] == "by-poll", "{cluster}");
    }
    Ok(())
}

/// A cluster without endpoints whose name in statistics is long.
fn large_cluster(name: &str) -> Value {
    let mut cluster = config::cluster(name);
    cluster["type"] = json!("STATIC");
    cluster["alt_stat_name"] = json!("x".repeat(2000));
    cluster.as_object_mut().map(|fields| fields.remove("eds_cluster_config"));
    cluster
}

async fn post(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: String) -> Result<Answer> {
    send(addr, path, headers, body.into()).await
}

async fn send(addr: SocketAddr, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Answer> {
    if headers.is_empty() {
        let request = Request::post(format!("http://{addr}{path}"));
        return Http::new().send(request.body(Full::new(body))?).await;
    }
    // By hand, because a library would set the host.
    let mut text = format!("POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    let (mut reader, mut writer) = TcpStream::connect(addr).await?.into_split();
    // The server may answer and close before everything is sent.
    let request = [text.as_bytes(), b"\r\n", &body].concat();
    let write = async { writer.write_all(&request).await.ok() };
    let mut answer = Vec::new();
    let read = async { reader.read_to_end(&mut answer).await.ok() };
    tokio::join!(write, read);
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
    let mut response = http::Response::builder().status(status.parse::<u16>()?);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    let (parts, body) = response.body(body.to_owned())?.into_parts();
    Ok(Answer { status: parts.status, headers: parts.headers, body: body.into() })
}
