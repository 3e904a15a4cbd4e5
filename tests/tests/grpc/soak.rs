//! Random good and bad changes of all types to real gRPC clients that lose their connections and start anew. At each quiet point every
//! client has what the server says that it has, lacks nothing but what it rejects, and sends its calls to the right backend.
//!
//! `XDS_SOAK_MINUTES=30` goes on for so long, `XDS_TESTS_SEED` repeats a series.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::google::protobuf::Duration;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use xds_tests::backend::Backend;
use xds_tests::config::{self, CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::proxy::{Link, Proxy};
use xds_tests::random::Random;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;
use xds_tests::worker::{Calls, Library, Worker};

/// How many resources there are of each type.
const N: usize = 4;
const KINDS: [&str; 4] = [LISTENER, ROUTE, CLUSTER, ENDPOINTS];
/// How long the search for several bad resources, and a reconnect, may take on a busy machine.
const QUIET: std::time::Duration = std::time::Duration::from_secs(60);
/// A version is told by a time limit or a number of requests: clients take no notice of a change of what they do not use.
const VERSION_1: u64 = 100_000;

/// The target `gI` has the listener, the routes and, depending on the version of these, the cluster and endpoints of a number.
struct World {
    server: Server,
    config: ConfigDir,
    backends: Vec<Backend>,
    states: BTreeMap<(&'static str, usize), State>,
    newest: u64,
}

/// The state of a resource.
#[derive(Clone, Copy, Debug)]
struct State {
    version: u64,
    is_bad: bool,
}

impl World {
    async fn start() -> Result<Self> {
        let config = ConfigDir::new()?;
        let mut backends = Vec::new();
        for i in 0..N {
            backends.push(Backend::start(&format!("b{i}")).await?);
        }
        let all = KINDS.into_iter().flat_map(|kind| (0..N).map(move |i| (kind, i)));
        let states = all.map(|key| (key, State { version: 1, is_bad: false })).collect();
        let server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
        let world = Self { server, config, backends, states, newest: 1 };
        world.write()?;
        Ok(world)
    }

    fn state(&self, kind: &'static str, i: usize) -> State {
        self.states[&(kind, i)]
    }

    /// Gives some resources of a type a new version, of which at most one is bad. Says what was done.
    fn change(&mut self, random: &mut Random) -> Result<String> {
        let kind = KINDS[random.within(0..KINDS.len() as u64) as usize];
        let changed = random.within(1..1 << N);
        let chosen: Vec<usize> = (0..N).filter(|i| changed & (1 << i) != 0).collect();
        let bad = (random.within(0..5) < 2).then(|| chosen[random.within(0..chosen.len() as u64) as usize]);
        self.set(kind, &chosen, bad)?;
        Ok(format!("{kind} {chosen:?} change to {}, {bad:?} is bad", self.newest))
    }

    /// Gives every bad resource a new version that is good.
    fn correct(&mut self) -> Result<String> {
        for kind in KINDS {
            let bad: Vec<usize> = (0..N).filter(|i| self.state(kind, *i).is_bad).collect();
            self.set(kind, &bad, None)?;
        }
        Ok(format!("all are good in {}", self.newest))
    }

    fn set(&mut self, kind: &'static str, chosen: &[usize], bad: Option<usize>) -> Result<()> {
        self.newest += 1;
        for i in chosen {
            self.states.insert((kind, *i), State { version: self.newest, is_bad: bad == Some(*i) });
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        let resource = |((kind, i), state): (&(&'static str, usize), &State)| self.resource(kind, *i, *state);
        let all: Vec<Value> = self.states.iter().map(resource).collect();
        self.config.write_resources("all.yaml", &all).map(drop)
    }

    /// A resource; a bad one is rejected by every library.
    fn resource(&self, kind: &'static str, i: usize, State { version, is_bad }: State) -> Value {
        let (name, number) = (format!("g{i}"), VERSION_1 + version);
        let limit = json!({"max_stream_duration": format!("{number}s")});
        match kind {
            LISTENER => {
                let mut listener = config::api_listener(&name, &name);
                let manager = &mut listener["api_listener"]["api_listener"];
                manager["common_http_protocol_options"] = limit;
                if is_bad {
                    manager.as_object_mut().and_then(|manager| manager.remove("rds"));
                    let key = json!({"fragments": [{"header_value_extractor": {"name": "x", "index": 0}}]});
                    let ads = json!({"ads": {}, "resource_api_version": "V3"});
                    manager["scoped_routes"] = json!({
                        "name": "x", "scope_key_builder": key, "rds_config_source": ads,
                        "scoped_rds": {"scoped_rds_config_source": ads},
                    });
                }
                listener
            }
            ROUTE => {
                let to = config::to(&format!("g{}", cluster_of(i, version)));
                let mut routes = config::route_config(&name, &[("/", to)]);
                let route = &mut routes["virtual_hosts"][0]["routes"][0];
                route["route"]["max_stream_duration"] = limit;
                if is_bad {
                    route["match"] = json!({"connect_matcher": {}});
                }
                routes
            }
            CLUSTER => {
                let mut cluster = config::cluster(&name);
                cluster["circuit_breakers"] = json!({"thresholds": [{"max_requests": number}]});
                if is_bad {
                    cluster["type"] = json!("STATIC");
                    cluster.as_object_mut().and_then(|cluster| cluster.remove("eds_cluster_config"));
                    cluster["load_assignment"] = json!({"cluster_name": name});
                }
                cluster
            }
            _ => {
                let mut endpoints = config::endpoints(&name, &[self.backends[i].addr()]);
                let locality = &mut endpoints["endpoints"][0];
                locality["locality"]["sub_zone"] = json!(number.to_string());
                if is_bad {
                    locality["priority"] = json!(1);
                }
                endpoints
            }
        }
    }

    /// The backend of a target's calls; `None` if something that leads there is bad.
    fn backend(&self, i: usize) -> Option<&Backend> {
        let routes = self.state(ROUTE, i);
        let cluster = cluster_of(i, routes.version);
        let needed = [(LISTENER, i), (ROUTE, i), (CLUSTER, cluster), (ENDPOINTS, cluster)];
        needed.iter().all(|key| !self.states[key].is_bad).then(|| &self.backends[cluster])
    }
}

/// The cluster to which routes lead.
fn cluster_of(routes: usize, version: u64) -> usize {
    (routes + version as usize) % N
}

/// A gRPC client, and the link that it has to the server.
struct Client {
    library: Library,
    bootstrap: String,
    link: Proxy,
    worker: Worker,
}

impl Client {
    /// Starts a client; `None` if its toolchain is missing.
    async fn start(world: &World, library: Library) -> Result<Option<Self>> {
        let link = Proxy::start(world.server.xds()).await?;
        let bootstrap = world.server.bootstrap_grpc(&library.to_string()).await?;
        let [theirs, own] = [world.server.xds(), link.addr()].map(|address| address.to_string());
        ensure!(bootstrap.contains(&theirs), "{theirs} is not in {bootstrap}");
        let bootstrap = bootstrap.replace(&theirs, &own);
        let Some(worker) = start_worker(library, &bootstrap).await? else { return Ok(None) };
        Ok(Some(Self { library, bootstrap, link, worker }))
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.worker = start_worker(self.library, &self.bootstrap).await?.context("it was there before")?;
        Ok(())
    }

    /// Compares what the client has with what the server serves and with what it says of the client.
    async fn check(&self, world: &World) -> Result<()> {
        let library = self.library;
        let node = world.server.get_json(&format!("/v1/nodes/{library}")).await?;
        let status = self.worker.client_status().await?;
        let known: Vec<_> = status.config.iter().flat_map(|config| &config.generic_xds_configs).collect();
        for kind in KINDS {
            let of_type = &node["types"][kind];
            let rejected: BTreeSet<&str> = of_type["rejected"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one["name"].as_str())
                .collect();
            let is_sought = !of_type["unknownCount"].is_null() || of_type["status"] == "STALE";
            ensure!(!is_sought, "{library}: {kind}: {of_type:#}");
            // grpc-js leaves out the beginning of type URLs.
            for resource in known.iter().filter(|resource| kind.ends_with(&resource.type_url)) {
                let number = resource.name.strip_prefix('g').and_then(|number| number.parse().ok());
                let i: usize = number.with_context(|| resource.name.clone())?;
                let State { version, is_bad } = world.state(kind, i);
                let found = resource.xds_config.as_ref().and_then(|any| version_in(kind, &any.value));
                let is_rejected = rejected.contains(&*resource.name);
                let state = || {
                    let name = &resource.name;
                    format!(
                        "{library}: {kind} {name}: served {version}, bad {is_bad}, has {found:?}: {of_type:#}"
                    )
                };
                ensure!(is_rejected || !is_bad, "not said to be rejected: {}", state());
                ensure!(is_bad || !is_rejected, "said to be rejected: {}", state());
                ensure!((found == Some(version)) != is_bad, "{}", state());
            }
        }
        for i in 0..N {
            let Some(backend) = world.backend(i) else { continue };
            let channel = self.worker.open(&format!("xds:///g{i}")).await?;
            let counts =
                channel.call(&Calls { limit: std::time::Duration::from_secs(5), ..Calls::new(4) }).await;
            channel.close().await?;
            let counts = counts?;
            ensure!(
                counts.n_of(backend.name()) == 4,
                "{library}: g{i} is not at {}: {counts:?}",
                backend.name()
            );
        }
        Ok(())
    }
}

/// The version of an encoded resource.
fn version_in(kind: &str, value: &[u8]) -> Option<u64> {
    let seconds = |limit: Duration| limit.seconds.try_into().ok();
    let number: Option<u64> = match kind {
        LISTENER => {
            let manager = Listener::decode(value).ok()?.api_listener?.api_listener?;
            let manager = HttpConnectionManager::decode(&*manager.value).ok()?;
            seconds(manager.common_http_protocol_options?.max_stream_duration?)
        }
        ROUTE => {
            let routes = RouteConfiguration::decode(value).ok()?;
            let Action::Route(action) = routes.virtual_hosts.first()?.routes.first()?.action.clone()? else {
                return None;
            };
            seconds(action.max_stream_duration?.max_stream_duration?)
        }
        CLUSTER => {
            let breakers = Cluster::decode(value).ok()?.circuit_breakers?;
            Some(breakers.thresholds.first()?.max_requests?.value.into())
        }
        _ => {
            let endpoints = ClusterLoadAssignment::decode(value).ok()?.endpoints;
            endpoints.first()?.locality.as_ref()?.sub_zone.parse().ok()
        }
    };
    number?.checked_sub(VERSION_1)
}

/// Starts a client with a channel to each target, which stays open.
async fn start_worker(library: Library, bootstrap: &str) -> Result<Option<Worker>> {
    let Some(worker) = Worker::start(library, bootstrap).await? else { return Ok(None) };
    for i in 0..N {
        worker.open(&format!("xds:///g{i}")).await?.state(true).await?;
    }
    Ok(Some(worker))
}

/// A step of the series.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change,
    TwoChanges,
    Correct,
    Reconnect,
    StartAnew,
    RestartServer,
}

fn step(random: &mut Random) -> Step {
    match random.within(0..40) {
        0..19 => Step::Change,
        19..25 => Step::TwoChanges,
        25..31 => Step::Correct,
        31..36 => Step::Reconnect,
        36..38 => Step::StartAnew,
        _ => Step::RestartServer,
    }
}

#[tokio::test]
#[ignore = "to be tried with more seeds first"]
async fn clients_have_what_the_server_says_that_they_have() -> Result<()> {
    let mut random = Random::from_env()?;
    let minutes: u64 = std::env::var("XDS_SOAK_MINUTES").map_or(Ok(1), |minutes| minutes.parse())?;
    let mut world = World::start().await?;
    let mut clients = Vec::new();
    for library in Library::ALL {
        clients.extend(Client::start(&world, library).await?);
    }
    ensure!(!clients.is_empty(), "no gRPC client is there");
    quiet(&world, &clients).await.context("at first")?;
    let end = Instant::now() + std::time::Duration::from_secs(60 * minutes);
    let mut n_steps = 0;
    while Instant::now() < end {
        let step = step(&mut random);
        let chosen = random.within(0..clients.len() as u64) as usize;
        let said = match step {
            Step::Change => world.change(&mut random)?,
            Step::TwoChanges => {
                format!("{}, then {}", world.change(&mut random)?, world.change(&mut random)?)
            }
            Step::Correct => world.correct()?,
            Step::Reconnect => {
                let client = &clients[chosen];
                client.link.set(Link::Cut);
                let changed = world.change(&mut random)?;
                client.link.set(Link::Open);
                format!("{} loses its connection, and {changed}", client.library)
            }
            Step::StartAnew => {
                clients[chosen].start_anew().await?;
                format!("{} starts anew", clients[chosen].library)
            }
            Step::RestartServer => {
                world.server.restart().await?;
                "the server starts anew".to_owned()
            }
        };
        n_steps += 1;
        println!("{n_steps}: {said}");
        quiet(&world, &clients).await.with_context(|| format!("after step {n_steps}: {said}"))?;
    }
    world.correct()?;
    quiet(&world, &clients).await.context("in the end")?;
    let fleet: Value = world.server.get_json("/v1/fleet").await?;
    println!("{n_steps} steps; {}", fleet["states"]);
    Ok(())
}

/// Waits until every client has everything that it does not reject, and the server says so.
async fn quiet(world: &World, clients: &[Client]) -> Result<()> {
    for client in clients {
        wait_for("a client that has what is said of it", QUIET, async || client.check(world).await)
            .await
            .with_context(|| client.worker.log().to_string())?;
    }
    Ok(())
}
