//! Client status: an answer about all clients, for operators.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient as Client;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::envoy::r#type::matcher::v3 as matcher;
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use xds_tests::config::{self, ConfigDir};
use xds_tests::footprint::Meter;
use xds_tests::healthy::Healthy;
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::server::{Server, Setup};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const JSON: &str = "/v3/discovery:client_status";
const MIB: u64 = 1 << 20;
const NOISE: u64 = 16 * MIB;

fn regexes(n: usize, regex: &str) -> ClientStatusRequest {
    let regex = matcher::RegexMatcher { regex: regex.to_owned(), ..Default::default() };
    let pattern = matcher::string_matcher::MatchPattern::SafeRegex(regex);
    let id = matcher::StringMatcher { ignore_case: false, match_pattern: Some(pattern) };
    let matcher = matcher::NodeMatcher { node_id: Some(id), node_metadatas: vec![] };
    ClientStatusRequest { node_matchers: vec![matcher; n], ..Default::default() }
}

async fn client(addr: SocketAddr) -> Result<Client<Channel>> {
    Ok(Client::new(raw::connect(addr).await?).max_decoding_message_size(usize::MAX))
}

/// Row 3: 20,000 regular expressions ended the process, 100 took 173 MB.
#[tokio::test]
async fn matchers_take_little_whatever_they_are() -> Result<()> {
    let server = Server::start_with(Setup::metered()?.arg("--xds-client-status=true")).await?;
    let healthy = Healthy::start(&server).await?;
    for request in [
        regexes(20_000, ".{1,10}"),
        regexes(400, r"\w{1,20}a"),
        regexes(100, r"\w{1,20}a"),
        regexes(16, r"\w{1,20}a"),
        regexes(16, "((a{1,99}){1,99}){1,99}"),
        regexes(16, &"(".repeat(500)),
        regexes(16, "[a-z]{1,200}x"),
    ] {
        for addr in [server.xds(), server.admin()] {
            let measurement = Meter::of(&server)?.begin()?;
            let outcome = client(addr).await?.fetch_client_status(request.clone()).await;
            let cost = measurement.cost()?;
            let code = outcome.map_or_else(|status| status.code(), |_| Code::Ok);
            println!("{} matchers: {code:?}: {cost}", request.node_matchers.len());
            ensure!(cost.peak <= NOISE, "{cost}");
        }
    }
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// Row 3: an answer about all clients was as large as all of them, for each who asked.
#[tokio::test]
async fn answers_about_everyone_come_in_parts() -> Result<()> {
    const N_CLIENTS: usize = 1000;
    let dir = ConfigDir::new()?;
    let clusters: Vec<_> = (0..20)
        .map(|n| {
            let mut cluster = config::cluster(&format!("c{n}"));
            cluster["alt_stat_name"] = json!("x".repeat(1000));
            cluster
        })
        .collect();
    dir.write_resources("clusters.yaml", &clusters)?;
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    let healthy = Healthy::start(&server).await?;
    let channel = raw::connect(server.xds()).await?;
    let mut streams = Vec::new();
    for n in 0..N_CLIENTS {
        let mut stream = SotwStream::open(channel.clone(), path::ADS, raw::node(&format!("n{n}"), ""));
        stream.subscribe(CLUSTER, &[]).await?;
        stream.expect_response().await?;
        streams.push(stream);
    }
    let status = client(server.admin()).await?.fetch_client_status(ClientStatusRequest::default()).await;
    let status = status.err().context("21 MB came in one message")?;
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    ensure!(status.message().contains("StreamClientStatus"), "{status}");

    let measurement = Meter::of(&server)?.begin()?;
    let readers = (0..8).map(|_| read_all(&server));
    let answers: Vec<Vec<ClientStatusResponse>> =
        join_all(readers).await.into_iter().collect::<Result<_>>()?;
    let cost = measurement.cost()?;
    for parts in &answers {
        let n_resources: usize =
            parts.iter().flat_map(|part| &part.config).map(|config| config.generic_xds_configs.len()).sum();
        ensure!(n_resources >= N_CLIENTS * 20, "{n_resources} resources");
        let largest = parts.iter().map(prost::Message::encoded_len).max().context("no parts")?;
        ensure!(largest < 512 << 10, "a part of {largest} bytes");
    }
    println!("8 answers of {} parts: {cost}", answers[0].len());
    ensure!(cost.peak <= 48 * MIB, "{cost}");

    let measurement = Meter::of(&server)?.begin()?;
    let json = [("content-type", "application/json")];
    let answer = server.request("POST", JSON, &json, "{}").await?.success()?;
    let cost = measurement.cost()?;
    println!("{} bytes of JSON: {cost}", answer.body.len());
    ensure!(answer.json()?["config"].as_array().context("no clients")?.len() >= N_CLIENTS);
    ensure!(cost.peak <= 48 * MIB, "{cost}");
    println!("healthy: {:?}", healthy.check().await?.worst);
    Ok(())
}

/// Asks about everyone on a stream of its own.
async fn read_all(server: &Server) -> Result<Vec<ClientStatusResponse>> {
    let requests = tokio_stream::once(ClientStatusRequest::default());
    let mut responses = client(server.admin()).await?.stream_client_status(requests).await?.into_inner();
    let mut parts = Vec::new();
    while let Some(part) = responses.next().await {
        parts.push(part?);
    }
    Ok(parts)
}

/// Row 3: any client could ask about every other.
#[tokio::test]
async fn client_status_is_for_operators() -> Result<()> {
    let token_dir = ConfigDir::new()?;
    let token = token_dir.write("token", "0123456789abcdef0123")?;
    let setup = Setup::metered()?.arg(format!("--admin-token-file={}", token.display()));
    let server = Server::start_with(setup).await?;
    let ask = async |addr, token: Option<&str>| -> Result<Result<ClientStatusResponse, Status>> {
        let mut request = tonic::Request::new(ClientStatusRequest::default());
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        let answered = client(addr).await?.fetch_client_status(request).await;
        Ok(answered.map(tonic::Response::into_inner))
    };
    let status = ask(server.xds(), Some("0123456789abcdef0123")).await?.err().context("on the xDS port")?;
    ensure!(status.code() == Code::Unimplemented && status.message().contains("admin port"), "{status}");
    for token in [None, Some("0123456789abcdef0124")] {
        let status = ask(server.admin(), token).await?.err().context("without the token")?;
        ensure!(status.code() == Code::Unauthenticated, "{status}");
    }
    ask(server.admin(), Some("0123456789abcdef0123")).await??;
    let post = |addr| async move {
        let request = http::Request::post(format!("http://{addr}{JSON}"));
        xds_tests::http::Http::new().send(request.body(http_body_util::Full::from("{}"))?).await
    };
    ensure!(post(server.xds()).await?.status == StatusCode::NOT_FOUND);
    ensure!(post(server.admin()).await?.status == StatusCode::UNAUTHORIZED);
    Ok(())
}
