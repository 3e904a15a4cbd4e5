//! Every way into the server, and its budget for a byte. Contents of every shape, one after the other, prove it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{FileDescriptorResponse, ServerReflectionRequest};
use xds_tests::config::{self, ConfigDir};
use xds_tests::footprint::{Cost, Meter};
use xds_tests::healthy::Healthy;
use xds_tests::raw;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;

use crate::budgets::Wire;

use crate::budgets::bodies;
use crate::budgets::grpc_call;
use crate::budgets::messages::{self, Message};

on_both_wires!(a_poll_costs_no_more_than_its_budget, a_grpc_message_costs_no_more_than_its_budget);

/// The bounds of a way in. This table is the one place where bounds are.
struct Way {
    /// `METHOD path` of the REST API, a gRPC method, or a kind of file.
    name: &'static str,
    /// How large the contents are at most, if the server takes less than [`n_bytes`].
    at_most: usize,
    /// Bytes at the peak for each byte that was sent.
    bytes_per_byte: u64,
    /// Processor time for each byte that was sent, in nanoseconds, of a debug build on a busy machine.
    nanos_per_byte: u64,
}

impl Way {
    /// How large the contents are: as `XDS_BUDGET_BYTES` says, else small enough for every run.
    fn n_bytes(&self) -> usize {
        let told = std::env::var("XDS_BUDGET_BYTES").ok().and_then(|text| text.parse().ok());
        self.at_most.min(told.unwrap_or(512 << 10))
    }
}

const fn way(name: &'static str) -> Way {
    Way { name, at_most: usize::MAX, bytes_per_byte: 20, nanos_per_byte: 50_000 }
}

const REST: [Way; 13] = [
    way("POST /v1/apply"),
    way("POST /v1/validate"),
    Way { at_most: 128 << 10, ..way("POST /v1/explain") },
    Way { at_most: 128 << 10, ..way("POST /v1/diff") },
    way("PUT /v1/files"),
    way("PUT /v1/groups/{group}"),
    way("PUT /v1/groups/{group}/resources"),
    way("PUT /v1/groups/{group}/resources/{type}/{name}"),
    way("POST /v1/rollback"),
    way("POST /v1/rollouts"),
    way("POST /v1/rollouts/{rollout}:promote"),
    way("PUT /v1/weights/{kind}/{namespace}/{name}/{rule}"),
    way("PATCH /v1/weights/{kind}/{namespace}/{name}/{rule}"),
];

/// Polling is the same for every type; both ports serve it.
const POLLING: [Way; 2] = [polled("POST /v3/discovery:clusters"), polled("POST /v3/discovery:client_status")];

const fn polled(name: &'static str) -> Way {
    Way { at_most: 1_000_000, ..way(name) }
}

/// A way that takes names: one of two bytes needs an allocation of its own and a place in a set.
const fn named(name: &'static str) -> Way {
    Way { bytes_per_byte: 40, ..way(name) }
}

/// The gRPC methods by what reads their messages: all discovery streams of a variant are served by the same code.
const GRPC: [Way; 7] = [
    named("discovery, State of the World"),
    named("discovery, incremental"),
    named("discovery, unary"),
    way("client status"),
    way("load reports"),
    way("reflection"),
    way("health"),
];

const FILES: [Way; 2] = [way("file, JSON"), way("file, YAML")];

#[tokio::test]
async fn every_way_in_has_a_row() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let document = server.get_json("/openapi.json").await?;
    let mut with_body = BTreeSet::new();
    for (path, item) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in item.as_object().context("no methods")? {
            if !operation["requestBody"].is_null() {
                with_body.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let rows: BTreeSet<String> = REST.iter().map(|way| way.name.to_owned()).collect();
    assert_eq!(with_body, rows, "a REST endpoint that takes a body needs a row, and contents in `bodies`");

    let mut methods = grpc_methods(server.xds()).await?;
    methods.extend(grpc_methods(server.admin()).await?);
    for method in methods {
        let kind =
            kind_of(&method).with_context(|| format!("{method} needs a row, and messages in `messages`"))?;
        ensure!(GRPC.iter().any(|way| way.name == kind), "{kind}");
    }
    Ok(())
}

/// The row of a gRPC method.
fn kind_of(method: &str) -> Option<&'static str> {
    let (service, name) = method.rsplit_once('/')?;
    let kind = match service {
        "envoy.service.status.v3.ClientStatusDiscoveryService" => "client status",
        "envoy.service.load_stats.v3.LoadReportingService" => "load reports",
        "grpc.health.v1.Health" => "health",
        "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection" => "reflection",
        _ if name.starts_with("Stream") => "discovery, State of the World",
        _ if name.starts_with("Delta") => "discovery, incremental",
        _ if name.starts_with("Fetch") => "discovery, unary",
        _ => return None,
    };
    Some(kind)
}

/// The methods of every service that reflection lists, as `service/Method`.
async fn grpc_methods(port: SocketAddr) -> Result<Vec<String>> {
    let mut client = ServerReflectionClient::new(raw::connect(port).await?);
    let ask = |message: MessageRequest| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let mut answer = async |message| -> Result<MessageResponse> {
        let answers = client.server_reflection_info(tokio_stream::once(ask(message))).await?;
        let answer = answers.into_inner().message().await?.context("no answer")?;
        answer.message_response.context("an empty answer")
    };
    let MessageResponse::ListServicesResponse(services) =
        answer(MessageRequest::ListServices(String::new())).await?
    else {
        anyhow::bail!("no list of services");
    };
    let mut methods = Vec::new();
    for service in services.service {
        let symbol = MessageRequest::FileContainingSymbol(service.name.clone());
        let MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto }) =
            answer(symbol).await?
        else {
            anyhow::bail!("{} is listed and not described", service.name);
        };
        for file in file_descriptor_proto {
            methods.extend(messages::methods_of(&file, &service.name)?);
        }
    }
    ensure!(!methods.is_empty(), "reflection lists nothing");
    Ok(methods)
}

#[tokio::test]
async fn a_body_of_the_admin_api_costs_no_more_than_its_budget() -> Result<()> {
    let world = World::start(Ok).await?;
    for way in &REST {
        for (shape, body) in bodies::of(way.name, way.n_bytes()) {
            let (method, path) = bodies::target(way.name)?;
            let headers = [("content-type", body.content_type)];
            let request = world.server.request(method, &path, &headers, body.text.clone());
            world
                .charge(way, &shape, body.text.len(), async {
                    let answer = request.await?;
                    ensure!(
                        answer.status.as_u16() < 500 || answer.status == 503,
                        "{}: {}",
                        answer.status,
                        answer.text()
                    );
                    Ok(answer.status.to_string())
                })
                .await?;
        }
    }
    world.finish().await
}

async fn a_poll_costs_no_more_than_its_budget(wire: Wire) -> Result<()> {
    let world = World::start(wire).await?;
    for way in &POLLING {
        let (method, path) = bodies::target(way.name)?;
        for (shape, body) in bodies::of(way.name, way.n_bytes()) {
            let url = format!("http://{}{path}", world.address(way));
            let request =
                http::Request::builder().method(method).uri(url).header("content-type", body.content_type);
            let request = request.body(http_body_util::Full::new(Bytes::from(body.text.clone())))?;
            world
                .charge(way, &shape, body.text.len(), async {
                    let answer = xds_tests::http::Http::new().send(request).await?;
                    ensure!(answer.status.as_u16() < 500, "{}: {}", answer.status, answer.text());
                    Ok(answer.status.to_string())
                })
                .await?;
        }
    }
    world.finish().await
}

async fn a_grpc_message_costs_no_more_than_its_budget(wire: Wire) -> Result<()> {
    let world = World::start(wire).await?;
    for way in &GRPC {
        for Message { shape, path, bytes } in messages::of(way.name, way.n_bytes())? {
            let n_bytes = bytes.len();
            world.charge(way, &shape, n_bytes, grpc_call::call(world.address(way), path, bytes)).await?;
        }
    }
    world.finish().await
}

#[tokio::test]
async fn a_file_costs_no_more_than_its_budget() -> Result<()> {
    let world = World::start(Ok).await?;
    for way in &FILES {
        // One file that changes, because two files with the same resource would be a conflict.
        let mut before = serde_json::Value::Null;
        for (shape, body) in bodies::of(way.name, way.n_bytes()) {
            let name = if body.content_type.ends_with("yaml") { "budget.yaml" } else { "budget.json" };
            world
                .charge(way, &shape, body.text.len(), async {
                    world.dir.write(name, &body.text)?;
                    let hash = |files: &serde_json::Value| {
                        let mut files = files["files"].as_array().into_iter().flatten();
                        let file =
                            files.find(|file| file["path"].as_str().is_some_and(|path| path.ends_with(name)));
                        file.map(|file| file["hash"].clone()).unwrap_or_default()
                    };
                    let path = "/v1/status/files";
                    let files = world
                        .server
                        .wait_json(path, |files| !hash(files).is_null() && hash(files) != before)
                        .await?;
                    before = hash(&files);
                    Ok(files["files"].as_array().map_or(0, Vec::len).to_string() + " files")
                })
                .await?;
        }
    }
    world.finish().await
}

/// A server under attack, and an Envoy that it serves meanwhile.
struct World {
    server: Server,
    dir: ConfigDir,
    healthy: Healthy,
    meter: Meter,
    resident: u64,
    over: RefCell<Vec<String>>,
}

impl World {
    async fn start(wire: Wire) -> Result<Self> {
        let dir = ConfigDir::new()?;
        dir.write_resources("base.yaml", &[config::cluster("base")])?;
        let setup = Setup::metered()?.watch(dir.path()).arg("--poll-interval").arg("500ms");
        let server = Server::start_with(wire(setup)?).await?;
        server.wait_ready().await?;
        let healthy = Healthy::start(&server).await?;
        let meter = Meter::of(&server)?;
        let resident = meter.resident()?;
        Ok(Self { server, dir, healthy, meter, resident, over: RefCell::default() })
    }

    /// The port of a way in: client status is for operators.
    fn address(&self, way: &Way) -> SocketAddr {
        if way.name.contains("status") { self.server.admin() } else { self.server.xds() }
    }

    #[expect(clippy::print_stdout, reason = "the figures are part of the result")]
    /// Sends a number of bytes, and compares the cost with the budget of the way.
    async fn charge(
        &self,
        way: &Way,
        shape: &str,
        n_bytes: usize,
        attack: impl Future<Output = Result<String>>,
    ) -> Result<()> {
        let measurement = self.meter.begin()?;
        let what = || format!("{}, {shape}, {n_bytes} bytes", way.name);
        let outcome = attack.await.with_context(what)?;
        let cost = measurement.cost()?;
        let factor = cost.peak as f64 / n_bytes as f64;
        println!("{}: {factor:.1} x, {cost}; {outcome}", what());
        if !is_within(way, n_bytes, &cost) {
            self.over.borrow_mut().push(format!("{}: {cost}", what()));
        }
        Ok(())
    }

    /// Waits until most of the memory is given back, for a while.
    async fn settle(&self) {
        let limit = Duration::from_secs(15);
        let _ = wait_for("memory to be given back", limit, async || {
            let resident = self.meter.resident()?;
            ensure!(resident < self.resident + SLACK, "{resident}");
            Ok(())
        })
        .await;
    }

    #[expect(clippy::print_stdout, reason = "the figures are part of the result")]
    /// Tells what everything cost, and that the Envoy was served and the memory given back.
    async fn finish(self) -> Result<()> {
        let seen = self.healthy.check().await?;
        self.settle().await;
        let mib = |bytes: u64| bytes >> 20;
        let (before, after) = (mib(self.resident), mib(self.meter.resident()?));
        println!("resident before: {before} MiB, after: {after} MiB");
        println!("the healthy Envoy took {} changes, the slowest in {:?}", seen.n_acked, seen.worst);
        let over = self.over.into_inner();
        ensure!(over.is_empty(), "over the budget:\n{}", over.join("\n"));
        Ok(())
    }
}

fn is_within(way: &Way, n_bytes: usize, cost: &Cost) -> bool {
    let n_bytes = n_bytes as u64;
    let peak = SLACK + way.bytes_per_byte * n_bytes;
    let cpu = CPU_SLACK + Duration::from_nanos(way.nanos_per_byte * n_bytes);
    cost.peak <= peak && cost.cpu <= cpu
}

/// The memory that the process may take besides: buffers of sockets, arenas of the allocator, and what the healthy client costs.
const SLACK: u64 = 12 << 20;
/// The same of processor time.
const CPU_SLACK: Duration = Duration::from_secs(5);
