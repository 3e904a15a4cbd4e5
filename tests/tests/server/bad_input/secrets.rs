//! A private key is sent to the clients that ask for it, and never shown elsewhere (pitfall 68).

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use envoy_types::pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse};
use http::StatusCode;
use http::uri::PathAndQuery;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;
use xds_tests::config::{CLUSTER, ConfigDir};
use xds_tests::events::Events;
use xds_tests::raw::{self, DeltaStream, SotwStream, path};
use xds_tests::server::{Server, Setup};

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Found in every key below, and nowhere else.
const MARK: &str = "RECOGNISABLEPRIVATEKEY";

#[tokio::test]
async fn pitfall_68_a_private_key_is_in_no_log_answer_history_status_metric_or_event() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write_resources("secret.yaml", &[secret("by-file", 1), in_a_transport_socket("inner", 1)])?;
    dir.write_resources("generic.yaml", &[generic("generic", 1)])?;
    let setup = Setup::new()?.watch(dir.path()).arg("--log-level").arg("trace");
    let mut server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    let events = Events::open(server.admin()).await?;
    let mut all = Heard(Vec::new());

    // Clients get it.
    let channel = raw::connect(server.xds()).await?;
    let mut sotw = SotwStream::open(channel.clone(), path::ADS, raw::node("sotw", "c"));
    sotw.subscribe(SECRET, &["by-file", "by-rest"]).await?;
    let first = sotw.expect_type(SECRET).await?;
    assert!(
        String::from_utf8_lossy(&first.encode_to_vec()).contains(MARK),
        "the client does not get its key"
    );
    sotw.ack(&first, &["by-file", "by-rest"]).await?;
    let mut delta = DeltaStream::open(channel, path::ADS_DELTA, raw::node("delta", "c"));
    delta.subscribe(SECRET, &["by-rest", "generic"]).await?;
    delta.expect_type(SECRET).await?;

    // Written in every way, good and bad.
    let group = "/v1/groups/default/resources";
    for n in 1..=2 {
        let body =
            json!({"resources": [secret("by-rest", n), generic("other", n), in_a_transport_socket("x", n)]});
        for path in [format!("{group}?dryRun=true"), group.to_owned()] {
            all.hear(&server, "PUT", &path, &body, StatusCode::OK).await?;
        }
    }
    let rejected = sotw.expect_type(SECRET).await?;
    sotw.nack(&rejected, &["by-file", "by-rest"], "", "no good").await?;
    let one = format!("{group}/secrets/single");
    all.hear(&server, "PUT", &one, &secret("single", 1), StatusCode::OK).await?;
    all.hear(&server, "PUT", &one, &secret("single", 2), StatusCode::OK).await?;
    let bad = write_badly(&server, &mut all, &one).await?;
    // Files that are broken around the key.
    dir.write_resources("secret.yaml", &[secret("by-file", 2), in_a_transport_socket("inner", 2)])?;
    dir.write(
        "broken.yaml",
        &format!("resources:\n- private_key: {{inline_string: {MARK}\n  x: {MARK}: {MARK}\n"),
    )?;
    dir.write("wrong.yaml", &serde_json::to_string(&json!({"resources": [bad]}))?)?;
    let told = |status: &Value| {
        status.to_string().contains("wrong.yaml") && status.to_string().contains("broken.yaml")
    };
    server.wait_json("/v1/status/files", told).await?;
    events.wait("nack").await?;
    // The conversation is in the log at this level: names, and no more.
    for said in ["[by-rest, generic]", r#""kind":"Nack""#, r#""resources":"[by-file]""#] {
        assert!(!server.log().containing(said).is_empty(), "{said} is not in the log");
    }
    all.hear(&server, "DELETE", &one, &Value::Null, StatusCode::OK).await?;
    all.hear(&server, "POST", "/v1/rollback", &json!({"revision": 2}), StatusCode::OK).await?;

    for life in ["first", "second"] {
        read_everything(&server, &mut all).await.context(life)?;
        all.0.push(client_status(&server).await?);
        all.check(&server)?;
        if life == "first" {
            all.0.push(events.text());
            server.restart().await?;
            server.wait_ready().await?;
        }
    }
    // Other texts are shown, so something was looked at.
    ensure!(all.0.iter().filter(|text| text.contains("certificate 2")).count() > 10, "{:?}", all.0);
    ensure!(all.0.len() > 60, "only {} answers were looked at", all.0.len());
    Ok(())
}

/// Writes keys in places where they do not belong, and gives the last such resource.
async fn write_badly(server: &Server, all: &mut Heard, one: &str) -> Result<Value> {
    let mut bad = secret("single", 3);
    bad["tls_certificate"]["private_kye"] = bad["tls_certificate"]["private_key"].take();
    all.hear(server, "PUT", one, &bad, StatusCode::UNPROCESSABLE_ENTITY).await?;
    let mut bad = secret("single", 3);
    bad["tls_certificate"]["private_key"] = json!({"inline_string": {"x": format!("{MARK}3")}});
    all.hear(server, "PUT", one, &bad, StatusCode::UNPROCESSABLE_ENTITY).await?;
    let mut bad = secret("single", 3);
    bad["tls_certificate"]["private_key"] = json!(format!("{MARK}3"));
    all.hear(server, "PUT", one, &bad, StatusCode::UNPROCESSABLE_ENTITY).await?;
    let broken = format!("{{\"tls_certificate\": \"{MARK}\", ");
    let json = [("content-type", "application/json")];
    all.0.push(server.request("PUT", one, &json, broken.clone()).await?.text());
    all.0.push(server.request("POST", "/v1/validate", &json, broken).await?.text());
    let valid = json!({"resources": [secret("v", 1), bad]});
    all.0.push(server.request("POST", "/v1/validate", &json, valid.to_string()).await?.text());
    Ok(bad)
}

/// Asks every path of the API that can be read.
async fn read_everything(server: &Server, all: &mut Heard) -> Result<()> {
    let paths = [
        "/v1/groups",
        "/v1/groups/default",
        "/v1/groups/default/resources",
        "/v1/groups/default/snapshot",
        "/v1/groups/default/snapshot?profile=grpc",
        "/v1/groups/default/resources/secrets/by-rest",
        "/v1/groups/default/resources/clusters/x",
        "/v1/nodes",
        "/v1/nodes/sotw",
        "/v1/nodes/delta",
        "/v1/nodes/sotw/snapshot",
        "/v1/status/files",
        "/v1/history?limit=1000",
        "/v1/acks?revision=2",
        "/metrics",
        "/readyz",
        "/openapi.json",
    ];
    for path in paths {
        for accept in ["application/json", "application/yaml"] {
            all.0.push(server.request("GET", path, &[("accept", accept)], "").await?.text());
        }
    }
    let history = server.get_json("/v1/history?limit=1000").await?;
    let newest = history["revisions"][0]["revision"].as_u64().context("revision")?;
    for revision in 1..=newest {
        all.0.push(server.get(&format!("/v1/history/{revision}")).await?.success()?.text());
        let difference = server.get(&format!("/v1/history/{revision}...{newest}")).await?;
        all.0.push(difference.text());
    }
    Ok(())
}

/// The CSDS status of every client, also as bytes.
async fn client_status(server: &Server) -> Result<String> {
    let mut client = Grpc::new(raw::connect(server.admin()).await?);
    client.ready().await?;
    let path = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
    let codec = ProstCodec::<ClientStatusRequest, ClientStatusResponse>::default();
    let request = tonic::Request::new(ClientStatusRequest::default());
    let status = client.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner();
    Ok(String::from_utf8_lossy(&status.encode_to_vec()).into_owned())
}

/// Everything that the server ever answered.
struct Heard(Vec<String>);

impl Heard {
    async fn hear(
        &mut self,
        server: &Server,
        method: &str,
        path: &str,
        body: &Value,
        status: StatusCode,
    ) -> Result<()> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = server.request(method, path, &[("content-type", "application/json")], body).await?;
        ensure!(answer.status == status, "{method} {path}: {} {}", answer.status, answer.text());
        self.0.push(answer.text());
        Ok(())
    }

    /// Looks for the key, as text and as the middle of any base64 of it.
    fn check(&self, server: &Server) -> Result<()> {
        let mut marks = vec![MARK.to_owned()];
        for shift in 0..3 {
            let encoded = BASE64_STANDARD.encode(format!("{}{MARK}", "-".repeat(shift)));
            let middle = encoded.get(4..encoded.len() - 4).context("middle")?;
            marks.push(middle.to_owned());
        }
        for mark in &marks {
            for text in &self.0 {
                if let Some(at) = text.find(mark.as_str()) {
                    let from = text.floor_char_boundary(at.saturating_sub(300));
                    anyhow::bail!("an answer has it: …{}", &text[from..at + mark.len()]);
                }
            }
            let lines = server.log().containing(mark);
            ensure!(lines.is_empty(), "the log has it: {:?}", lines.first());
        }
        Ok(())
    }
}

fn secret(name: &str, n: u64) -> Value {
    json!({"@type": SECRET, "name": name, "tls_certificate": certificate(n)})
}

fn generic(name: &str, n: u64) -> Value {
    let bytes = BASE64_STANDARD.encode(format!("{MARK}{n}"));
    json!({"@type": SECRET, "name": name, "generic_secret": {"secret": {"inline_bytes": bytes}}})
}

/// A cluster with a key in the middle of another message.
fn in_a_transport_socket(name: &str, n: u64) -> Value {
    let context = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificates": [certificate(n)]},
    });
    json!({
        "@type": CLUSTER, "name": name, "connect_timeout": "1s",
        "transport_socket": {"name": "tls", "typed_config": context},
    })
}

fn certificate(n: u64) -> Value {
    json!({
        "certificate_chain": {"inline_string": format!("certificate {n}")},
        "private_key": {"inline_string": format!("-----BEGIN PRIVATE KEY-----\n{MARK}{n}\n-----END PRIVATE KEY-----\n")},
    })
}
