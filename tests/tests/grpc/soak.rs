//! Real gRPC clients in a [soak](xds_tests::soak).

use std::fmt;
use std::net::SocketAddr;

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
use xds_tests::backend::Backend;
use xds_tests::config::{self, CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::proxy::Proxy;
use xds_tests::server::{Server, Setup};
use xds_tests::soak::{Said, State, States, World as _, explained, linked, soak};
use xds_tests::worker::{Calls, Library, Worker};

/// How many resources there are of each type.
const N: usize = 4;
const KINDS: [&str; 4] = [LISTENER, ROUTE, CLUSTER, ENDPOINTS];
/// A version is told by a time limit or a number of requests: clients take no notice of a change of what they do not use.
const VERSION_1: u64 = 100_000;

/// The target `gI` has the listener, the routes and, depending on the version of these, the cluster and endpoints of a number.
struct World {
    server: Server,
    config: ConfigDir,
    backends: Vec<Backend>,
    states: States<&'static str>,
}

impl World {
    async fn start() -> Result<Self> {
        let config = ConfigDir::new()?;
        let mut backends = Vec::new();
        for i in 0..N {
            backends.push(Backend::start(&format!("b{i}")).await?);
        }
        let server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
        let mut world = Self { server, config, backends, states: States::new(&KINDS, N) };
        world.publish()?;
        Ok(world)
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

    /// Returns `true` if everything is good that the calls of a target need.
    fn is_way_good(&self, i: usize) -> bool {
        let cluster = cluster_of(i, self.states.of(ROUTE, i).version);
        self.states.are_good(&[(LISTENER, i), (ROUTE, i), (CLUSTER, cluster), (ENDPOINTS, cluster)])
    }
}

impl xds_tests::soak::World for World {
    type Kind = &'static str;

    fn states(&mut self) -> &mut States<&'static str> {
        &mut self.states
    }

    fn publish(&mut self) -> Result<()> {
        let all: Vec<Value> =
            self.states.all().map(|(kind, i, state)| self.resource(kind, i, state)).collect();
        self.config.write_resources("all.yaml", &all).map(drop)
    }

    fn server(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// The cluster to which routes lead.
fn cluster_of(routes: usize, version: u64) -> usize {
    (routes + version as usize) % N
}

struct Client {
    library: Library,
    bootstrap: String,
    link: Proxy,
    worker: Worker,
}

impl Client {
    /// Starts a client; `None` if its toolchain is missing.
    async fn start(world: &World, library: Library) -> Result<Option<Self>> {
        let bootstrap = world.server.bootstrap_grpc(&library.to_string()).await?;
        let (link, bootstrap) =
            linked(&world.server, &bootstrap, |address: SocketAddr| address.to_string()).await?;
        let Some(worker) = start_worker(library, &bootstrap).await? else { return Ok(None) };
        Ok(Some(Self { library, bootstrap, link, worker }))
    }

    /// Compares the resources that the client has with what is served and with what the server says.
    async fn check_resources(&self, world: &World) -> Result<()> {
        let said = Said::of(&world.server, &self.library.to_string()).await?;
        let status = self.worker.client_status().await?;
        let known: Vec<_> = status.config.iter().flat_map(|config| &config.generic_xds_configs).collect();
        for kind in KINDS {
            let rejected = said.rejected(kind)?;
            // grpc-js leaves out the beginning of type URLs.
            for resource in known.iter().filter(|resource| kind.ends_with(&resource.type_url)) {
                let number = resource.name.strip_prefix('g').and_then(|number| number.parse().ok());
                let i: usize = number.with_context(|| resource.name.clone())?;
                let State { version, is_bad } = world.states.of(kind, i);
                let found = resource.xds_config.as_ref().and_then(|any| version_in(kind, &any.value));
                let is_rejected = rejected.contains(&*resource.name);
                let state = || {
                    let (name, of_type) = (&resource.name, said.of_type(kind));
                    format!("{kind} {name}: served {version}, bad {is_bad}, has {found:?}: {of_type:#}")
                };
                ensure!(is_rejected == is_bad, "said to be rejected: {is_rejected}: {}", state());
                ensure!((found == Some(version)) != is_bad, "{}", state());
            }
        }
        Ok(())
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.library.fmt(f)
    }
}

impl xds_tests::soak::Client for Client {
    type World = World;

    fn link(&self) -> &Proxy {
        &self.link
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.worker = start_worker(self.library, &self.bootstrap).await?.context("it was there before")?;
        Ok(())
    }

    async fn check(&self, world: &World) -> Result<()> {
        self.check_resources(world).await?;
        for i in (0..N).filter(|i| world.is_way_good(*i)) {
            let target = format!("xds:///g{i}");
            let request = json!({"target": target, "call": "helloworld.Greeter/SayHello"});
            let explained = explained(&world.server, &self.library.to_string(), request).await?;
            let channel = self.worker.open(&target).await?;
            let calls = Calls { limit: std::time::Duration::from_secs(5), ..Calls::new(4) };
            let counts = channel.call(&calls).await;
            channel.close().await?;
            let counts = counts?;
            let backend = world.backends.iter().find(|backend| backend.addr().to_string() == explained);
            let n = backend.map(|backend| counts.n_of(backend.name()));
            ensure!(n == Some(4), "{target}: {counts:?}, and {explained} is explained");
        }
        Ok(())
    }

    fn log(&self) -> String {
        self.worker.log().to_string()
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

#[tokio::test]
async fn clients_have_what_the_server_says_that_they_have() -> Result<()> {
    let world = World::start().await?;
    let mut clients = Vec::new();
    for library in Library::ALL {
        clients.extend(Client::start(&world, library).await?);
    }
    soak(world, clients).await
}
