//! Traces of changes (`--otlp-endpoint`), received by a collector on the published messages of OpenTelemetry.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, Server as Grpc, ServerTlsConfig};
use tonic::{Request, Response, Status};
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{CLUSTER, ConfigDir, ROUTE};
use xds_tests::raw::{self, SotwStream, path};
use xds_tests::seen::{plain_cluster, resources};
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

/// A collector, which keeps what it gets.
#[derive(Clone, Default)]
struct Collector {
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    /// The header without which it takes nothing.
    authorization: Option<&'static str>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let shown = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if self.authorization.is_some() && shown != self.authorization {
            return Err(Status::unauthenticated("who are you?"));
        }
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Collects at an address while the test runs.
    async fn start(addr: SocketAddr) -> Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(addr).await?;
        let (collector, addr) = (Self::default(), listener.local_addr()?);
        let service = TraceServiceServer::new(collector.clone());
        let serving = Grpc::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok((collector, addr))
    }

    /// The same over TLS, for clients with a certificate of this authority and with this header.
    async fn start_guarded(
        files: &CertificateFiles,
        authorization: &'static str,
    ) -> Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let collector = Self { authorization: Some(authorization), ..Self::default() };
        let (service, addr) = (TraceServiceServer::new(collector.clone()), listener.local_addr()?);
        let read = |file: &str| fs::read(files.path(file));
        let tls =
            ServerTlsConfig::new().identity(Identity::from_pem(read("server.crt")?, read("server.key")?));
        let tls = tls.client_ca_root(Certificate::from_pem(read("ca.crt")?));
        let serving = Grpc::builder().tls_config(tls)?.add_service(service);
        tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok((collector, addr))
    }

    fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// The spans of a revision, as soon as there are those of so many answers.
    async fn wait(&self, revision: u64, n_answers: usize) -> Result<Vec<Span>> {
        wait_for("the trace", PATIENCE, async || {
            let spans = self.spans();
            let of_it: Vec<Span> =
                spans.into_iter().filter(|span| number(span, "xds.revision") == Some(revision)).collect();
            let n_sent = of_it.iter().filter(|span| span.name == "send").count();
            let is_there = of_it.iter().any(|span| span.name == "change") && n_sent >= n_answers;
            ensure!(is_there, "{of_it:#?}");
            Ok(of_it)
        })
        .await
    }
}

#[tokio::test]
async fn a_patch_is_traced_from_the_write_to_the_answers_of_clients() -> Result<()> {
    let (collector, addr) = Collector::start(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let dir = ConfigDir::new()?;
    dir.write("shop.yaml", ROUTES)?;
    let setup = Setup::new()?.watch(dir.path()).arg(format!("--otlp-endpoint=http://{addr}"));
    let server = Server::start_with(setup.arg("--instance-id=traced")).await?;
    server.wait_ready().await?;
    let mut good = subscribed(&server, "good", (ROUTE, &[NAME])).await?;
    let mut bad = subscribed(&server, "bad", (ROUTE, &[NAME])).await?;
    let rule = "/v1/weights/Route/default/shop/0";
    let headers = [("content-type", "application/json"), ("if-match", "*")];
    let patch = json!({"percent": {"one": 50}}).to_string();
    let patched = server.request("PATCH", rule, &headers, patch).await?.success()?.json()?;
    let revision = patched["revision"].as_u64().context("a revision")?;
    let response = good.expect_type(ROUTE).await?;
    good.ack(&response, &[NAME]).await?;
    let response = bad.expect_type(ROUTE).await?;
    bad.nack(&response, &[NAME], "", "no such weight").await?;

    let spans = collector.wait(revision, 2).await?;
    let named = |name: &str| spans.iter().find(|span| span.name == name).with_context(|| name.to_owned());
    let (root, publish) = (named("change")?, named("publish")?);
    assert_eq!((text(root, "xds.source").as_str(), root.parent_span_id.len()), ("api", 0));
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id), "{spans:#?}");
    for stage in ["wait", "propose", "commit", "publish"] {
        let stage = named(stage)?;
        assert_eq!(stage.parent_span_id, root.span_id);
        let is_within = stage.start_time_unix_nano + SLACK >= root.start_time_unix_nano
            && stage.end_time_unix_nano <= root.end_time_unix_nano + SLACK
            && stage.start_time_unix_nano <= stage.end_time_unix_nano + SLACK;
        assert!(is_within, "{stage:#?} of {root:#?}");
    }
    let mut answers: Vec<_> = spans.iter().filter(|span| span.name == "send").collect();
    answers.sort_by_key(|span| text(span, "xds.node.id"));
    let [of_bad, of_good] = &answers[..] else { anyhow::bail!("{answers:#?}") };
    for (span, node, outcome, code) in
        [(of_bad, "bad", "nack", StatusCode::Error), (of_good, "good", "ack", StatusCode::Ok)]
    {
        assert_eq!((text(span, "xds.node.id").as_str(), text(span, "xds.outcome").as_str()), (node, outcome));
        assert_eq!(text(span, "xds.type"), ROUTE);
        assert_eq!(span.parent_span_id, publish.span_id);
        assert_eq!(span.status.as_ref().map(|status| status.code), Some(i32::from(code)), "{span:#?}");
    }
    assert_eq!(of_bad.status.as_ref().map(|status| status.message.as_str()), Some("no such weight"));
    let request = collector.requests().into_iter().next().context("a request")?;
    let resource = request.resource_spans[0].resource.clone().context("a resource")?;
    assert_eq!(
        find(&resource.attributes, "service.instance.id"),
        Some(Value::StringValue("traced".to_owned()))
    );

    // A load of files is a change too.
    dir.write("shop.yaml", &ROUTES.replace("90", "80"))?;
    let of_file = |span: &Span| span.name == "change" && text(span, "xds.source") == "file";
    wait_for("the load", PATIENCE, async || {
        let n_loads = collector.spans().iter().filter(|span| of_file(span)).count();
        ensure!(n_loads >= 2, "{n_loads} loads");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_that_stops_sends_what_it_has() -> Result<()> {
    let (collector, addr) = Collector::start(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let setup = Setup::new()?.arg(format!("--otlp-endpoint=http://{addr}"));
    let mut server = Server::start_with(setup.arg("--drain-timeout=0s")).await?;
    server.wait_ready().await?;
    let put = resources(&[plain_cluster("api", 1)]);
    let put = server.put("/v1/groups/default/resources", &put).await?;
    let revision = put["revision"].as_u64().context("a revision")?;
    let mut stream = subscribed(&server, "edge-1", (CLUSTER, &[])).await?;
    let put = server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 2)])).await?;
    stream.expect_type(CLUSTER).await?;
    // The spans of a second are sent together, so those of this change are not sent yet.
    server.stop().await?;
    let is_of = |span: &Span, of: u64| number(span, "xds.revision") == Some(of);
    let spans = collector.spans();
    ensure!(spans.iter().any(|span| span.name == "change" && is_of(span, revision)), "{spans:#?}");
    let last = put["revision"].as_u64().context("a revision")?;
    let sent = spans.iter().find(|span| span.name == "send" && is_of(span, last)).context("the response")?;
    assert_eq!(text(sent, "xds.outcome"), "unanswered");
    Ok(())
}

#[tokio::test]
async fn a_collector_that_is_away_is_in_nobodys_way() -> Result<()> {
    let addr = free_addr()?;
    let server = Server::start_with(Setup::new()?.arg(format!("--otlp-endpoint=http://{addr}"))).await?;
    server.wait_ready().await?;
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", 1)])).await?;
    let mut stream = subscribed(&server, "edge-1", (CLUSTER, &[])).await?;
    for content in 2..=4 {
        server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", content)])).await?;
        let response = stream.expect_type(CLUSTER).await?;
        stream.ack(&response, &[]).await?;
    }
    wait_for("lost spans", PATIENCE, async || {
        let n_failed = server.metric("xds_trace_spans_total{result=\"failed\"}").await?;
        ensure!(n_failed > 0, "{n_failed}");
        Ok(())
    })
    .await?;
    ensure!(server.log().containing("traces cannot be sent").len() == 1, "{}", server.log());
    let (collector, _) = Collector::start(addr).await?;
    let mut content = 5;
    wait_for("traces again", PATIENCE, async || {
        // What is written before the connection is made again is lost.
        content += 1;
        server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", content)])).await?;
        ensure!(!collector.spans().is_empty(), "no spans");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_collector_over_tls_must_be_who_it_says_and_gets_a_certificate_and_headers() -> Result<()> {
    let (files, foreign) = (CertificateFiles::new().await?, CertificateFiles::new().await?);
    let (collector, addr) = Collector::start_guarded(&files, "Bearer good").await?;
    let mut setup = Setup::new()?.arg(format!("--otlp-endpoint=https://localhost:{}", addr.port()));
    for (flag, file) in [
        ("ca", "given.crt"),
        ("cert", "given-client.crt"),
        ("key", "given-client.key"),
        ("headers-file", "headers"),
    ] {
        setup = setup.arg(format!("--otlp-{flag}={}", files.path(file)));
    }
    let give = |from: &CertificateFiles, file: &str, to: &str| fs::copy(from.path(file), files.path(to));
    give(&foreign, "ca.crt", "given.crt")?;
    give(&foreign, "client.crt", "given-client.crt")?;
    give(&foreign, "client.key", "given-client.key")?;
    fs::write(files.path("headers"), "authorization: Bearer bad\n")?;
    let server = Server::start_with(setup).await?;
    server.wait_ready().await?;
    put(&server, 1).await?;
    let mut stream = subscribed(&server, "edge-1", (CLUSTER, &[])).await?;
    let mut content = 1;
    // Each fault is told, and is in nobody's way. The files are read again, so that none of them needs a restart.
    let faults = [("invalid peer certificate", "ca"), ("alert", "client"), ("who are you?", "headers")];
    for (reason, mend) in faults {
        wait_for("the reason in the log", PATIENCE, async || {
            content += 1;
            put(&server, content).await?;
            let response = stream.expect_type(CLUSTER).await?;
            stream.ack(&response, &[]).await?;
            let told = server.log().containing("traces cannot be sent");
            let is_told = told.iter().filter_map(|line| why(line)).any(|why| why.contains(reason));
            ensure!(is_told, "not for {reason}: {told:#?}");
            Ok(())
        })
        .await?;
        ensure!(server.get("/readyz").await?.status == 200 && collector.requests().is_empty());
        match mend {
            "ca" => drop(give(&files, "ca.crt", "given.crt")?),
            "client" => {
                give(&files, "client.crt", "given-client.crt")?;
                give(&files, "client.key", "given-client.key")?;
            }
            _ => fs::write(files.path("headers"), "authorization: Bearer good\n")?,
        }
    }
    wait_for("traces", PATIENCE, async || {
        content += 1;
        put(&server, content).await?;
        ensure!(!collector.spans().is_empty(), "{}", server.log());
        Ok(())
    })
    .await?;
    ensure!(!server.log().to_string().contains("Bearer"), "{}", server.log());
    Ok(())
}

#[tokio::test]
async fn a_write_joins_the_trace_of_its_caller() -> Result<()> {
    let (collector, addr) = Collector::start(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let dir = ConfigDir::new()?;
    dir.write("shop.yaml", ROUTES)?;
    let setup = Setup::new()?.watch(dir.path()).arg(format!("--otlp-endpoint=http://{addr}"));
    let server = Server::start_with(setup.arg("--trace-sample=0")).await?;
    server.wait_ready().await?;
    let mut client = subscribed(&server, "edge-1", (ROUTE, &[NAME])).await?;
    let rule = "/v1/weights/Route/default/shop/0";
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let mut revision = 0;
    // The last caller is the only one that is traced.
    for (percent, traceparent) in [
        (10, String::new()),
        (20, format!("00-{trace}-{span}-00")),
        (30, format!("00-{trace}-{span}")),
        (40, format!("00-{trace}-{span}-01")),
    ] {
        let headers = [
            ("content-type", "application/json"),
            ("if-match", "*"),
            (if traceparent.is_empty() { "x-none" } else { "traceparent" }, &traceparent),
        ];
        let patch = json!({"percent": {"one": percent}}).to_string();
        let patched = server.request("PATCH", rule, &headers, patch).await?.success()?.json()?;
        revision = patched["revision"].as_u64().context("a revision")?;
        let response = client.expect_type(ROUTE).await?;
        client.ack(&response, &[NAME]).await?;
    }
    let spans = collector.wait(revision, 1).await?;
    let root = spans.iter().find(|span| span.name == "change").context("a root")?;
    assert_eq!(hex(&root.parent_span_id), span);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == trace), "{spans:#?}");
    let n_others =
        collector.spans().iter().filter(|span| number(span, "xds.revision") != Some(revision)).count();
    assert_eq!(n_others, 0, "{:#?}", collector.spans());
    Ok(())
}

async fn put(server: &Server, content: u64) -> Result<Json> {
    server.put("/v1/groups/default/resources", &resources(&[plain_cluster("api", content)])).await
}

/// The reason in a line of the log.
fn why(line: &str) -> Option<String> {
    let event: Json = serde_json::from_str(line).ok()?;
    event["why"].as_str().map(str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A client that has accepted what there is of these names (none: all).
async fn subscribed(server: &Server, node_id: &str, (of_type, names): (&str, &[&str])) -> Result<SotwStream> {
    let channel = raw::connect(server.xds()).await?;
    let mut stream = SotwStream::open(channel, path::ADS, raw::node(node_id, "c"));
    stream.subscribe(of_type, names).await?;
    let response = stream.expect_type(of_type).await?;
    stream.ack(&response, names).await?;
    Ok(stream)
}

fn find(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    let AnyValue { value } = found.value.clone()?;
    value
}

fn text(span: &Span, key: &str) -> String {
    let found = find(&span.attributes, key);
    let Some(Value::StringValue(text)) = found else { panic!("{key}: {found:?}") };
    text
}

fn number(span: &Span, key: &str) -> Option<u64> {
    let found = find(&span.attributes, key)?;
    let Value::IntValue(number) = found else { panic!("{key}: {found:?}") };
    u64::try_from(number).ok()
}

/// The routes of the listener of [`ROUTES`].
const NAME: &str = "default/edge/10000";
/// Times are read one after the other from two clocks.
const SLACK: u64 = 50_000_000;
const ROUTES: &str = "version: xds-server/v1
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes: { shop: { hosts: [shop.example.com], to: { one: 90, two: 10 } } }
backends:
  one: { endpoints: ['127.0.0.1:1'] }
  two: { endpoints: ['127.0.0.1:2'] }
";
