//! The resources of a soak: some of each type, each in a version that Envoy's configuration dump shows, and each good or bad.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, Issued, ask_tls, shown_certificate};
use xds_tests::config::{self, CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::envoy::{ConfigDump, Envoy};
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::soak::{State, States, World as _};

/// How many resources there are of each type.
pub(crate) const N: usize = 4;
pub(crate) const ALL: [Kind; 6] =
    [Kind::Clusters, Kind::Endpoints, Kind::Listeners, Kind::Routes, Kind::Extensions, Kind::Secrets];
/// How the names of nodes without ADS begin.
pub(crate) const APART: &str = "apart";
const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const TLS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
const LUA_PER_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute";
/// A script that no Envoy takes, and that only an Envoy can judge.
const BAD_SCRIPT: &str = "function x(";

/// A type of resources. The listener `lN` has the routes `rN`, the filter `xN` and the certificate `sN`; each version of the
/// routes leads to another cluster.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    Clusters,
    Endpoints,
    Listeners,
    Routes,
    Extensions,
    Secrets,
}

pub(crate) struct World {
    pub(crate) server: Server,
    config: ConfigDir,
    /// The backend of each cluster.
    pub(crate) backends: Vec<Backend>,
    authority: Authority,
    /// The certificate of each version.
    certificates: BTreeMap<u64, Issued>,
    pub(crate) states: States<Kind>,
}

impl Kind {
    pub(crate) fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => CLUSTER,
            Self::Endpoints => ENDPOINTS,
            Self::Listeners => LISTENER,
            Self::Routes => ROUTE,
            Self::Extensions => EXTENSION,
            Self::Secrets => SECRET,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Clusters | Self::Endpoints => 'c',
            Self::Listeners => 'l',
            Self::Routes => 'r',
            Self::Extensions => 'x',
            Self::Secrets => 's',
        }
    }

    pub(crate) fn name(self, i: usize) -> String {
        format!("{}{i}", self.letter())
    }

    /// The type of what makes an Envoy ask for it; `None` if an Envoy asks for everything.
    pub(crate) fn referrer(self) -> Option<Self> {
        match self {
            Self::Clusters | Self::Listeners => None,
            Self::Endpoints => Some(Self::Clusters),
            Self::Routes | Self::Extensions | Self::Secrets => Some(Self::Listeners),
        }
    }

    /// The version of each of its resources that an Envoy has. Of secrets the dump does not tell.
    pub(crate) fn versions(self, dump: &ConfigDump) -> BTreeMap<usize, u64> {
        let found: Vec<(&Value, Option<u64>)> = match self {
            Self::Clusters => {
                let lists = ["dynamic_active_clusters", "dynamic_warming_clusters"];
                let clusters = lists.iter().flat_map(|list| dump.entries("ClustersConfigDump", list));
                clusters
                    .map(|one| &one["cluster"])
                    .map(|one| (&one["name"], seconds(&one["connect_timeout"])))
                    .collect()
            }
            Self::Endpoints => {
                let all = dump.entries("EndpointsConfigDump", "dynamic_endpoint_configs").into_iter();
                let weight =
                    |one: &Value| one["endpoints"][0]["lb_endpoints"][0]["load_balancing_weight"].as_u64();
                all.map(|one| &one["endpoint_config"])
                    .map(|one| (&one["cluster_name"], weight(one)))
                    .collect()
            }
            Self::Listeners => {
                let states = ["active_state", "warming_state"];
                let all =
                    dump.listeners().into_iter().flat_map(|one| states.map(|state| &one[state]["listener"]));
                all.map(|one| (&one["name"], one["per_connection_buffer_limit_bytes"].as_u64())).collect()
            }
            Self::Routes => {
                let header = |one: &Value| {
                    let header =
                        &one["virtual_hosts"][0]["routes"][0]["response_headers_to_add"][0]["header"];
                    header["value"].as_str().and_then(|value| value.parse().ok())
                };
                dump.routes().into_values().map(|one| (&one["name"], header(one))).collect()
            }
            Self::Extensions => {
                let all = dump.entries("EcdsConfigDump", "ecds_filters").into_iter();
                let version = |one: &Value| {
                    let script = one["typed_config"]["default_source_code"]["inline_string"].as_str()?;
                    script.split('"').nth(3)?.parse().ok()
                };
                all.map(|one| &one["ecds_filter"]).map(|one| (&one["name"], version(one))).collect()
            }
            Self::Secrets => vec![],
        };
        let number = |name: &Value| name.as_str()?.strip_prefix(self.letter())?.parse().ok();
        found.into_iter().filter_map(|(name, version)| Some((number(name)?, version?))).collect()
    }
}

impl World {
    pub(crate) async fn start() -> Result<Self> {
        let config = ConfigDir::new()?;
        let authority = Authority::new()?;
        let mut backends = Vec::new();
        for i in 0..N {
            backends.push(Backend::start(&format!("b{i}")).await?);
        }
        let server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
        let states = States::new(&ALL, N);
        let mut world = Self { server, config, backends, authority, certificates: BTreeMap::new(), states };
        for variant in [Variant::Sotw, Variant::Delta] {
            let group = apart(variant);
            let text = format!(
                "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{ name: {group} }}\n\
                 spec: {{ priority: 10, selector: {{ nodeIds: [{group}] }} }}\n"
            );
            world.config.write(&format!("{group}/group.yaml"), &text)?;
        }
        world.publish()?;
        Ok(world)
    }

    fn resource(&self, kind: Kind, i: usize, State { version, is_bad }: State) -> Result<Value> {
        let script = if is_bad { BAD_SCRIPT.to_owned() } else { add_header(version) };
        let nowhere = json!({"socket_address": {"address": "not.an.ip", "port_value": 80}});
        Ok(match kind {
            Kind::Clusters => {
                let mut cluster = config::cluster(&format!("c{i}"));
                cluster["connect_timeout"] = json!(format!("{version}s"));
                if is_bad {
                    cluster["upstream_bind_config"] =
                        json!({"source_address": {"address": "not.an.ip", "port_value": 0}});
                }
                cluster
            }
            Kind::Endpoints => {
                let mut endpoints = config::endpoints(&format!("c{i}"), &[self.backends[i].addr()]);
                let endpoint = &mut endpoints["endpoints"][0]["lb_endpoints"][0];
                endpoint["load_balancing_weight"] = json!(version);
                if is_bad {
                    endpoint["endpoint"]["address"] = nowhere;
                }
                endpoints
            }
            Kind::Listeners => listener(i, version, is_bad),
            Kind::Routes => {
                let to = config::to(&format!("c{}", cluster_of(i, version)));
                let mut route = config::route_config(&format!("r{i}"), &[("/", to)]);
                let header = json!({"header": {"key": "x-v", "value": version.to_string()}});
                let first = &mut route["virtual_hosts"][0]["routes"][0];
                first["response_headers_to_add"] = json!([header]);
                if is_bad {
                    let script =
                        json!({"@type": LUA_PER_ROUTE, "source_code": {"inline_string": BAD_SCRIPT}});
                    first["typed_per_filter_config"] = json!({"lua": script});
                }
                route
            }
            Kind::Extensions => {
                json!({"@type": EXTENSION, "name": format!("x{i}"), "typed_config": lua(&script)})
            }
            Kind::Secrets => {
                let certificate = self.certificates.get(&version).context("a certificate")?;
                // The key of another certificate: no Envoy takes that.
                let key = if is_bad { self.certificates.get(&1).context("a key")? } else { certificate };
                json!({"@type": SECRET, "name": format!("s{i}"), "tls_certificate": {
                    "certificate_chain": {"inline_string": certificate.chain_pem()},
                    "private_key": {"inline_string": key.key_pem()},
                }})
            }
        })
    }

    /// Returns `true` if a listener and everything that it waits for are good.
    pub(crate) fn is_listener_good(&self, i: usize) -> bool {
        self.states.are_good(&[
            (Kind::Listeners, i),
            (Kind::Routes, i),
            (Kind::Extensions, i),
            (Kind::Secrets, i),
        ])
    }

    /// Returns `true` if the cluster is good that routes lead to.
    pub(crate) fn is_cluster_good(&self, routes: usize) -> bool {
        let cluster = cluster_of(routes, self.states.of(Kind::Routes, routes).version);
        self.states.are_good(&[(Kind::Clusters, cluster), (Kind::Endpoints, cluster)])
    }

    /// Returns `true` if everything is good that requests to a listener need.
    pub(crate) fn is_way_good(&self, i: usize) -> bool {
        self.is_listener_good(i) && self.is_cluster_good(i)
    }

    /// Asks at a listener, over TLS.
    pub(crate) async fn ask(&self, listener: SocketAddr, ask: &Ask) -> Result<Told> {
        Ok(ask_tls(&self.authority, listener, "localhost", ask).await?.0)
    }

    /// The versions of the certificates that the listeners of an Envoy show; without those that do not answer.
    pub(crate) async fn certificates_at(&self, envoy: &Envoy) -> Result<BTreeMap<usize, u64>> {
        let listeners: Value = serde_json::from_str(&envoy.admin("listeners?format=json").await?)?;
        let mut versions = BTreeMap::new();
        for listener in listeners["listener_statuses"].as_array().into_iter().flatten() {
            let number = listener["name"].as_str().and_then(|name| name.strip_prefix('l')?.parse().ok());
            let local = &listener["local_address"]["socket_address"];
            let (address, port) = (local["address"].as_str(), local["port_value"].as_u64());
            let (Some(number), Some(address), Some(port)) = (number, address, port) else { continue };
            let address = SocketAddr::from((address.parse::<Ipv4Addr>()?, u16::try_from(port)?));
            let Ok(shown) = shown_certificate(&self.authority, address, "localhost").await else { continue };
            let found = self.certificates.iter().find(|(_, issued)| issued.certificate == shown);
            versions.extend(found.map(|(version, _)| (number, *version)));
        }
        Ok(versions)
    }
}

impl xds_tests::soak::World for World {
    type Kind = Kind;

    fn states(&mut self) -> &mut States<Kind> {
        &mut self.states
    }

    fn publish(&mut self) -> Result<()> {
        for (_, _, state) in self.states.all().filter(|(kind, ..)| *kind == Kind::Secrets) {
            if let Entry::Vacant(vacant) = self.certificates.entry(state.version) {
                vacant.insert(self.authority.issue(&["localhost"])?);
            }
        }
        let all: Result<Vec<Value>> =
            self.states.all().map(|(kind, i, state)| self.resource(kind, i, state)).collect();
        let all = all?;
        self.config.write_resources("all.yaml", &all)?;
        for variant in [Variant::Sotw, Variant::Delta] {
            let mut resources = all.clone();
            resources.iter_mut().for_each(|resource| config::replace_ads(resource, &source(variant)));
            self.config.write_resources(&format!("{}/all.yaml", apart(variant)), &resources)?;
        }
        Ok(())
    }

    fn server(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// The node without ADS of a variant, and its group.
fn apart(variant: Variant) -> String {
    format!("{APART}-{variant}")
}

/// The source of what Envoys without ADS ask for.
pub(crate) fn source(variant: Variant) -> Value {
    let api_type = match variant {
        Variant::Sotw => "GRPC",
        Variant::Delta => "DELTA_GRPC",
    };
    config::api_source(api_type, &[])
}

/// The cluster to which routes lead.
fn cluster_of(routes: usize, version: u64) -> usize {
    (routes + version as usize) % N
}

fn listener(i: usize, version: u64, is_bad: bool) -> Value {
    let mut listener = config::listener(&format!("l{i}"), 0, &format!("r{i}"));
    listener["per_connection_buffer_limit_bytes"] = json!(version);
    // Of sockets that share ports, two with port 0 may get the same one. And an Envoy gives a new listener the socket of a draining one
    // that has the same configured address.
    listener["enable_reuse_port"] = json!(false);
    listener["address"]["socket_address"]["address"] = json!(format!("127.0.0.{}", 2 + i));
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
    let extension =
        json!({"name": format!("x{i}"), "config_discovery": {"config_source": ads, "type_urls": [LUA]}});
    let own = json!({"name": "lua", "typed_config": lua(if is_bad { BAD_SCRIPT } else { "" })});
    let router = manager["http_filters"][0].clone();
    manager["http_filters"] = json!([extension, own, router]);
    let secret = json!({"name": format!("s{i}"), "sds_config": ads});
    let tls = json!({"@type": TLS, "common_tls_context": {"tls_certificate_sds_secret_configs": [secret]}});
    listener["filter_chains"][0]["transport_socket"] = json!({"name": "tls", "typed_config": tls});
    listener
}

fn add_header(version: u64) -> String {
    format!("function envoy_on_response(h) h:headers():replace(\"x-e\", \"{version}\") end")
}

fn lua(script: &str) -> Value {
    if script.is_empty() {
        return json!({"@type": LUA});
    }
    json!({"@type": LUA, "default_source_code": {"inline_string": script}})
}

fn seconds(duration: &Value) -> Option<u64> {
    duration.as_str()?.strip_suffix('s')?.parse().ok()
}
