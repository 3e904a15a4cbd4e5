//! A real Envoy refuses one of six resources. Of most types it stops at the first that it refuses of a response, and gets the others
//! nevertheless.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, Issued, shown_certificate};
use xds_tests::config::{self, ConfigDir, ENDPOINTS, ROUTE};
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::proxy::Link;
use xds_tests::server::{Server, Setup, Variant};
use xds_tests::soak::linked;
use xds_tests::wait::wait_for;

/// How many resources change at once.
const N: usize = 6;
/// Versions of a test: the first, two for each of three resources that are refused, and two for a fresh Envoy; they begin with 1.
const N_VERSIONS: usize = 10;
/// How long a change of files and the search may take: files are read 100 ms after the last write.
const SOON: Duration = Duration::from_secs(5);
const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const TLS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
const LB_ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
/// Gives a resource a name that has none of its own.
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";

/// The type of the resources. Requests to the listener `lN` show which version of the resource N the Envoy has; of scopes, requests for
/// `/N` to the listener `l0`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Routes,
    VirtualHosts,
    Scopes,
    Extensions,
    Endpoints,
    /// One endpoint in the collection of each cluster.
    CollectedEndpoints,
    Secrets,
}

/// What the versions of resources differ in.
struct Parts {
    /// Where the clusters of even and of odd versions send requests.
    backends: [Backend; 2],
    authority: Authority,
    /// The certificate of each version.
    certificates: Vec<Issued>,
}

impl Parts {
    async fn new() -> Result<Self> {
        let authority = Authority::new()?;
        let certificates = (0..N_VERSIONS).map(|_| authority.issue(&["localhost"])).collect::<Result<_>>()?;
        let backends = [Backend::start("even").await?, Backend::start("odd").await?];
        Ok(Self { backends, authority, certificates })
    }
}

impl Kind {
    fn name(self, i: usize) -> String {
        let letter = match self {
            Self::Routes => "r",
            Self::VirtualHosts => return format!("r{i}/{HOST}"),
            Self::Scopes => "scope",
            Self::Extensions => "x",
            Self::Endpoints => "c",
            Self::CollectedEndpoints => return format!("{}one", collection(i)),
            Self::Secrets => "s",
        };
        format!("{letter}{i}")
    }

    fn listener(self, i: usize) -> String {
        format!("l{}", if self == Self::Scopes { 0 } else { i })
    }

    fn type_url(self) -> &'static str {
        match self {
            Self::Routes => ROUTE,
            Self::VirtualHosts => VIRTUAL_HOST,
            Self::Scopes => SCOPE,
            Self::Extensions => EXTENSION,
            Self::Endpoints => ENDPOINTS,
            Self::CollectedEndpoints => LB_ENDPOINT,
            Self::Secrets => SECRET,
        }
    }

    /// A resource in a version, or one that no Envoy takes.
    fn resource(self, i: usize, version: usize, is_bad: bool, parts: &Parts) -> Value {
        let script = lua(if is_bad { "function x(".to_owned() } else { add_header(version) });
        match self {
            Self::Routes | Self::VirtualHosts => {
                let mut routes = route(&format!("r{i}"), &format!("c{i}"), Some(version));
                let host = &mut routes["virtual_hosts"][0];
                if is_bad {
                    host["routes"][0]["typed_per_filter_config"] = json!({"lua": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute",
                        "source_code": {"inline_string": "function x("},
                    }});
                }
                if self == Self::Routes {
                    return routes;
                }
                (host["@type"], host["name"]) = (json!(VIRTUAL_HOST), json!(self.name(i)));
                host["domains"] = json!([HOST]);
                host.take()
            }
            Self::Scopes => {
                // Two scopes never have the same key.
                let key = if is_bad { (i + 1) % N } else { i };
                json!({
                    "@type": SCOPE, "name": self.name(i), "route_configuration_name": format!("version{version}"),
                    "key": {"fragments": [{"string_key": format!("/{key}")}]},
                })
            }
            Self::Extensions => json!({"@type": EXTENSION, "name": format!("x{i}"), "typed_config": script}),
            Self::Endpoints => {
                let mut endpoints =
                    config::endpoints(&format!("c{i}"), &[parts.backends[version % 2].addr()]);
                if is_bad {
                    let address = json!({"socket_address": {"address": "not.an.ip", "port_value": 80}});
                    endpoints["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = address;
                }
                endpoints
            }
            Self::CollectedEndpoints => {
                let mut endpoint = Self::Endpoints.resource(i, version, is_bad, parts);
                let mut endpoint = endpoint["endpoints"][0]["lb_endpoints"][0].take();
                endpoint["@type"] = json!(LB_ENDPOINT);
                json!({"@type": WRAPPER, "name": self.name(i), "resource": endpoint})
            }
            Self::Secrets => {
                let certificate = &parts.certificates[version];
                // The key of another certificate: no Envoy takes that.
                let key = if is_bad { &parts.certificates[0] } else { certificate };
                json!({"@type": SECRET, "name": format!("s{i}"), "tls_certificate": {
                    "certificate_chain": {"inline_string": certificate.chain_pem()},
                    "private_key": {"inline_string": key.key_pem()},
                }})
            }
        }
    }

    /// What does not change.
    fn base(self, parts: &Parts) -> Vec<Value> {
        let mut base = Vec::new();
        let source = json!({"ads": {}, "resource_api_version": "V3"});
        for i in 0..N {
            let mut listener = config::listener(&format!("l{i}"), 0, &format!("r{i}"));
            let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
            let filter = match self {
                Self::Extensions => json!({"name": format!("x{i}"),
                    "config_discovery": {"config_source": source, "type_urls": [LUA]}}),
                Self::Routes
                | Self::VirtualHosts
                | Self::Scopes
                | Self::Endpoints
                | Self::CollectedEndpoints
                | Self::Secrets => {
                    json!({"name": "lua", "typed_config": lua(String::new())})
                }
            };
            let router = manager["http_filters"][0].clone();
            let on_demand = json!({"name": "on_demand", "typed_config": {"@type": ON_DEMAND}});
            manager["http_filters"] = json!([on_demand, filter, router]);
            match self {
                Self::Secrets => {
                    let secret = json!({"name": format!("s{i}"), "sds_config": source});
                    let tls = json!({"@type": TLS, "common_tls_context": {"tls_certificate_sds_secret_configs": [secret]}});
                    listener["filter_chains"][0]["transport_socket"] =
                        json!({"name": "tls", "typed_config": tls});
                }
                Self::Scopes => {
                    manager.as_object_mut().and_then(|manager| manager.remove("rds"));
                    let path = json!({"header_value_extractor": {"name": ":path", "index": 0}});
                    manager["scoped_routes"] = json!({
                        "name": "all", "scope_key_builder": {"fragments": [path]}, "rds_config_source": source,
                        "scoped_rds": {"scoped_rds_config_source": source},
                    });
                }
                Self::Routes
                | Self::VirtualHosts
                | Self::Extensions
                | Self::Endpoints
                | Self::CollectedEndpoints => {}
            }
            if self != Self::Scopes || i == 0 {
                base.push(listener);
            }
            base.push(config::cluster(&format!("c{i}")));
            if self == Self::CollectedEndpoints {
                base.push(assignment_of_collection(i));
            } else if self != Self::Endpoints {
                base.push(config::endpoints(&format!("c{i}"), &[parts.backends[0].addr()]));
            }
            match self {
                Self::Routes => {}
                Self::VirtualHosts => base.push(
                    json!({"@type": ROUTE, "name": format!("r{i}"), "vhds": {"config_source": source}}),
                ),
                Self::Scopes
                | Self::Extensions
                | Self::Endpoints
                | Self::CollectedEndpoints
                | Self::Secrets => {
                    base.push(route(&format!("r{i}"), &format!("c{i}"), None));
                }
            }
        }
        if self == Self::Scopes {
            base.extend(
                (1..=N_VERSIONS).map(|version| route(&format!("version{version}"), "c0", Some(version))),
            );
        }
        base
    }

    /// Checks that the Envoy uses a version of a resource.
    async fn expect_version(self, parts: &Parts, envoy: &Envoy, i: usize, version: usize) -> Result<()> {
        let listener = envoy.wait_listener(&self.listener(i)).await?;
        if self == Self::Secrets {
            let shown = shown_certificate(&parts.authority, listener, "localhost").await?;
            let number = parts.certificates.iter().position(|issued| issued.certificate == shown);
            ensure!(number == Some(version), "the certificate of version {number:?}, not of {version}");
            return Ok(());
        }
        let mut connection = Connection::open(listener).await?.with_authority(HOST);
        let answer = connection.get(&format!("/{i}")).await?.success()?;
        let (header, expected) = match self {
            Self::Endpoints | Self::CollectedEndpoints => {
                ("x-backend", ["even", "odd"][version % 2].to_owned())
            }
            Self::Routes | Self::VirtualHosts | Self::Scopes | Self::Extensions | Self::Secrets => {
                ("x-v", version.to_string())
            }
        };
        let seen = answer.header(header);
        ensure!(seen == expected, "{header} is {seen:?}, not {expected:?}");
        Ok(())
    }
}

/// The assignment of a cluster whose endpoints are a collection.
fn assignment_of_collection(i: usize) -> Value {
    let source = json!({"ads": {}, "resource_api_version": "V3"});
    let locality = json!({
        "locality": {"region": "here"}, "load_balancing_weight": 1,
        "leds_cluster_locality_config": {
            "leds_config": source, "leds_collection_name": format!("{}*", collection(i)),
        },
    });
    json!({"@type": ENDPOINTS, "cluster_name": format!("c{i}"), "endpoints": [locality]})
}

/// The beginning of the names of a cluster's endpoints.
fn collection(i: usize) -> String {
    format!("xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c{i}/")
}

/// The host of all requests.
const HOST: &str = "a.test";
const ON_DEMAND: &str = "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand";

fn add_header(version: usize) -> String {
    format!("function envoy_on_response(h) h:headers():replace(\"x-v\", \"{version}\") end")
}

fn lua(script: String) -> Value {
    if script.is_empty() {
        return json!({"@type": LUA});
    }
    json!({"@type": LUA, "default_source_code": {"inline_string": script}})
}

/// A route configuration, which says its version if it has one.
fn route(name: &str, cluster: &str, version: Option<usize>) -> Value {
    let mut route = config::route_config(name, &[("/", config::to(cluster))]);
    if let Some(version) = version {
        let header = json!({"header": {"key": "x-v", "value": version.to_string()}});
        route["virtual_hosts"][0]["routes"][0]["response_headers_to_add"] = json!([header]);
    }
    route
}

struct World {
    kind: Kind,
    config: ConfigDir,
    parts: Parts,
    server: Server,
}

impl World {
    async fn start(kind: Kind) -> Result<Self> {
        let parts = Parts::new().await?;
        let config = ConfigDir::new()?;
        config.write_resources("base.yaml", &kind.base(&parts))?;
        let resources: Vec<Value> = (0..N).map(|i| kind.resource(i, 1, false, &parts)).collect();
        config.write_resources("changing.yaml", &resources)?;
        let server = Server::start_with(Setup::new()?.watch(config.path()).fixed_xds_port()?).await?;
        Ok(Self { kind, config, parts, server })
    }

    /// Publishes a version of all, of which the Envoy refuses one.
    fn write(&self, version: usize, bad: Option<usize>) -> Result<()> {
        let resource = |i| self.kind.resource(i, version, bad == Some(i), &self.parts);
        let resources: Vec<Value> = (0..N).map(resource).collect();
        self.config.write_resources("changing.yaml", &resources).map(drop)
    }

    /// Waits until the Envoy uses this version of all resources but one, of which it uses another, or none.
    async fn wait_version(
        &self,
        envoy: &Envoy,
        version: usize,
        other: Option<(usize, Option<usize>)>,
    ) -> Result<()> {
        for i in 0..N {
            let version = match other {
                Some((bad, None)) if bad == i => continue,
                Some((bad, Some(before))) if bad == i => before,
                _ => version,
            };
            let seen = async || self.kind.expect_version(&self.parts, envoy, i, version).await;
            wait_for("a version of a resource", SOON, seen).await.with_context(|| self.kind.name(i))?;
        }
        Ok(())
    }

    /// Kills the server once it has written down that the second resource is refused, and starts it anew.
    async fn restart_when_kept(&mut self) -> Result<()> {
        let file = self.server.data_dir().join("culprits.json");
        let name = json!(self.kind.name(1)).to_string();
        let is_kept = async || {
            let text = std::fs::read_to_string(&file)?;
            ensure!(text.contains(&name), "{text}");
            Ok(())
        };
        wait_for("the file of what clients reject", SOON, is_kept).await?;
        self.server.restart().await
    }

    async fn wait_status(&self, node: &str, status: &str) -> Result<Value> {
        let is_good = |node: &Value| node["types"][self.kind.type_url()]["status"] == status;
        self.server.wait_json(&format!("/v1/nodes/{node}"), is_good).await
    }
}

async fn the_others_arrive(kind: Kind, variant: Variant) -> Result<()> {
    let world = World::start(kind).await?;
    let envoy = Envoy::start(&world.server.bootstrap_envoy("running", variant).await?).await?;
    envoy.wait_live().await?;
    world.wait_version(&envoy, 1, None).await.context("at first")?;
    let mut version = 1;
    for bad in [0, N / 2, N - 1] {
        world.write(version + 1, Some(bad))?;
        let before = Some((bad, Some(version)));
        world.wait_version(&envoy, version + 1, before).await.with_context(|| format!("{bad} is refused"))?;
        let node = world.wait_status("running", "ERROR").await?;
        let is_known = |node: &Value| {
            let of_type = &node["types"][kind.type_url()];
            let rejected = of_type["rejected"].as_array().map_or(&[][..], Vec::as_slice);
            let names: Vec<&Value> = rejected.iter().map(|one| &one["name"]).collect();
            names == [&json!(kind.name(bad))] && of_type["unknownCount"].is_null()
        };
        world.server.wait_json("/v1/nodes/running", is_known).await.with_context(|| format!("{node:#}"))?;
        // What is refused stays so, though everything else is accepted.
        world.wait_version(&envoy, version + 1, before).await?;
        world.wait_status("running", "ERROR").await?;
        version += 2;
        world.write(version, None)?;
        world.wait_version(&envoy, version, None).await.with_context(|| format!("{bad} is corrected"))?;
        world.wait_status("running", "SYNCED").await?;
    }
    a_fresh_one(&world, variant, version).await
}

/// An Envoy starts while one of the resources is bad.
async fn a_fresh_one(world: &World, variant: Variant, version: usize) -> Result<()> {
    world.write(version + 1, Some(1))?;
    world.wait_status("running", "ERROR").await?;
    let fresh = Envoy::start(&world.server.bootstrap_envoy("fresh", variant).await?).await?;
    fresh.wait_live().await?;
    // An Envoy asks for a virtual host when the first request for it comes, which then waits.
    let listener = fresh.wait_listener(&world.kind.listener(1)).await?;
    let asks = async {
        // There is no answer.
        drop(Connection::open(listener).await?.with_authority(HOST).get("/1").await);
        std::future::pending().await
    };
    let looks = async {
        world.wait_version(&fresh, version + 1, Some((1, None))).await.context("at a fresh Envoy")?;
        world.wait_status("fresh", "ERROR").await
    };
    tokio::select! { found = looks => found, never = asks => never }?;
    world.write(version + 2, None)?;
    world.wait_version(&fresh, version + 2, None).await.context("corrected at a fresh Envoy")?;
    world.wait_status("fresh", "SYNCED").await.map(drop)
}

/// The Envoy comes back, first to the same server and then to one that was started anew, and acknowledges what it refused before.
async fn what_is_refused_stays_rejected(kind: Kind, variant: Variant) -> Result<()> {
    let mut world = World::start(kind).await?;
    let bootstrap = world.server.bootstrap_envoy("running", variant).await?;
    let port = |address: SocketAddr| address.port().to_string();
    let (link, bootstrap) = linked(&world.server, &bootstrap, port).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    envoy.wait_live().await?;
    world.wait_version(&envoy, 1, None).await.context("at first")?;
    world.write(2, Some(1))?;
    let others_arrived = Some((1, Some(1)));
    world.wait_version(&envoy, 2, others_arrived).await?;
    world.wait_status("running", "ERROR").await?;
    let is_known = |node: &Value| {
        let of_type = &node["types"][kind.type_url()];
        let rejected = of_type["rejected"].as_array().map_or(&[][..], Vec::as_slice);
        let names: Vec<&Value> = rejected.iter().map(|one| &one["name"]).collect();
        let words = rejected.first().and_then(|one| one["message"].as_str()).unwrap_or_default();
        of_type["status"] == "ERROR"
            && names == [&json!(kind.name(1))]
            && words.contains("said before this connection")
    };
    for is_same_server in [true, false] {
        if is_same_server {
            link.set(Link::Cut);
            let is_gone = |nodes: &Value| !nodes.to_string().contains("\"running\"");
            world.server.wait_json("/v1/nodes", is_gone).await?;
            link.set(Link::Open);
        } else {
            world.restart_when_kept().await?;
        }
        let node = world.server.wait_json("/v1/nodes/running", is_known).await;
        let node = node.with_context(|| format!("the same server: {is_same_server}"))?;
        let arrived = world.wait_version(&envoy, 2, others_arrived).await;
        arrived.with_context(|| format!("the same server: {is_same_server}: {node:#}"))?;
        world.wait_status("running", "ERROR").await?;
    }
    world.write(3, None)?;
    world.wait_version(&envoy, 3, None).await.context("after the correction")?;
    world.wait_status("running", "SYNCED").await.map(drop)
}

/// Makes a test of each kind for each variant: `sotw::of_routes`.
macro_rules! with_each_variant {
    ($($module:ident: $variant:ident),+) => {
        $(mod $module {
            use super::{Kind, the_others_arrive, what_is_refused_stays_rejected};
            use xds_tests::server::Variant::$variant as VARIANT;

            #[tokio::test]
            async fn of_six_routes_the_others_arrive() -> anyhow::Result<()> {
                the_others_arrive(Kind::Routes, VARIANT).await
            }

            #[tokio::test]
            async fn of_six_scopes_the_others_arrive() -> anyhow::Result<()> {
                the_others_arrive(Kind::Scopes, VARIANT).await
            }

            #[tokio::test]
            async fn of_six_extensions_the_others_arrive() -> anyhow::Result<()> {
                the_others_arrive(Kind::Extensions, VARIANT).await
            }

            #[tokio::test]
            async fn of_six_assignments_the_others_arrive() -> anyhow::Result<()> {
                the_others_arrive(Kind::Endpoints, VARIANT).await
            }

            #[tokio::test]
            async fn of_six_secrets_the_others_arrive() -> anyhow::Result<()> {
                the_others_arrive(Kind::Secrets, VARIANT).await
            }

            #[tokio::test]
            async fn a_refused_extension_stays_rejected_when_the_server_starts_anew() -> anyhow::Result<()> {
                what_is_refused_stays_rejected(Kind::Extensions, VARIANT).await
            }

            #[tokio::test]
            async fn a_refused_secret_stays_rejected_when_the_server_starts_anew() -> anyhow::Result<()> {
                what_is_refused_stays_rejected(Kind::Secrets, VARIANT).await
            }
        })+
    };
}

with_each_variant!(sotw: Sotw, delta: Delta);

/// An Envoy that is sent such an endpoint ends. Envoys ask for collections only incrementally.
#[tokio::test]
async fn an_endpoint_of_a_collection_that_ends_an_envoy_is_refused() -> Result<()> {
    let world = World::start(Kind::CollectedEndpoints).await?;
    let envoy = Envoy::start(&world.server.bootstrap_envoy("running", Variant::Delta).await?).await?;
    envoy.wait_live().await?;
    world.wait_version(&envoy, 1, None).await.context("at first")?;
    world.write(2, Some(0))?;
    let is_refused = |status: &Value| status.to_string().contains("bad-endpoint-address");
    world.server.wait_json("/v1/status/files", is_refused).await?;
    let stays = Some((0, Some(1)));
    world.wait_version(&envoy, 2, stays).await.context("the last good version of that one stays")?;
    world.write(3, None)?;
    world.wait_version(&envoy, 3, None).await.context("after the correction")?;
    world.wait_status("running", "SYNCED").await.map(drop)
}

/// Envoys ask for virtual hosts only incrementally.
#[tokio::test]
async fn of_six_virtual_hosts_the_others_arrive() -> Result<()> {
    the_others_arrive(Kind::VirtualHosts, Variant::Delta).await
}
