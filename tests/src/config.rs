//! Configuration for the tests: resources, files and directories of them, and bootstraps.
//!
//! Resources are `serde_json` values in proto JSON with proto field names, each with its `@type`; the same value
//! goes into a file (as YAML) and into a REST body. What differs between two tests is set on the value:
//! `cluster["connect_timeout"] = json!("1s")`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Type URL of listeners.
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of route configurations.
pub const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Type URL of clusters.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of load assignments.
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A listener on a loopback port (0 lets the Envoy choose) whose routes come by RDS over ADS.
#[must_use]
pub fn listener(name: &str, port: u16, route_config: &str) -> Value {
    json!({
        "@type": LISTENER,
        "name": name,
        "address": socket_address(SocketAddr::from(([127, 0, 0, 1], port))),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": connection_manager(name, "rds", rds(route_config)),
        }]}],
    })
}

/// Has all requests go to one backend: of Envoys by the listener `web`, of gRPC clients to the target `greeter`.
#[must_use]
pub fn one_backend(addr: SocketAddr) -> [Value; 5] {
    [
        listener("web", 0, "web"),
        api_listener("greeter", "web"),
        route_config("web", &[("/", to("all"))]),
        cluster("all"),
        endpoints("all", &[addr]),
    ]
}

/// The listener that a proxyless gRPC client asks for when its target is `xds:///NAME`.
#[must_use]
pub fn api_listener(name: &str, route_config: &str) -> Value {
    let manager = connection_manager(name, "rds", rds(route_config));
    json!({"@type": LISTENER, "name": name, "api_listener": {"api_listener": manager}})
}

/// A route configuration: one virtual host for every domain, one route per path prefix.
#[must_use]
pub fn route_config(name: &str, routes: &[(&str, Value)]) -> Value {
    let route = |(prefix, action): &(&str, Value)| json!({"match": {"prefix": prefix}, "route": action});
    let routes: Vec<_> = routes.iter().map(route).collect();
    let host = json!({"name": "all", "domains": ["*"], "routes": routes});
    json!({"@type": ROUTE, "name": name, "virtual_hosts": [host]})
}

/// The action of a route to one cluster.
#[must_use]
pub fn to(cluster: &str) -> Value {
    json!({"cluster": cluster})
}

/// The action of a route that is split by weight.
#[must_use]
pub fn split(weights: &[(&str, u32)]) -> Value {
    let cluster = |(name, weight): &(&str, u32)| json!({"name": name, "weight": weight});
    let clusters: Vec<_> = weights.iter().map(cluster).collect();
    json!({"weighted_clusters": {"clusters": clusters}})
}

/// A cluster whose endpoints come by EDS over ADS, under its own name.
#[must_use]
pub fn cluster(name: &str) -> Value {
    json!({
        "@type": CLUSTER,
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": ads()},
        "lb_policy": "ROUND_ROBIN",
        "connect_timeout": "1s",
    })
}

/// The endpoints of a cluster, in one locality.
#[must_use]
pub fn endpoints(cluster: &str, addrs: &[SocketAddr]) -> Value {
    let endpoint = |addr: &SocketAddr| json!({"endpoint": {"address": socket_address(*addr)}});
    let endpoints: Vec<_> = addrs.iter().map(endpoint).collect();
    // gRPC ignores a locality that has no weight.
    let locality = json!({
        "locality": {"region": "here", "zone": "a"},
        "load_balancing_weight": 1,
        "lb_endpoints": endpoints,
    });
    json!({"@type": ENDPOINTS, "cluster_name": cluster, "endpoints": [locality]})
}

/// A bootstrap for an Envoy that needs no management server: one listener `http` on a free port, to one backend.
#[must_use]
pub fn static_envoy(backend: SocketAddr) -> String {
    let mut cluster = json!({"name": "backend", "type": "STATIC", "connect_timeout": "1s"});
    cluster["load_assignment"] = without_type(endpoints("backend", &[backend]));
    let routes = without_type(route_config("all", &[("/", to("backend"))]));
    let mut listener = without_type(listener("http", 0, "unused"));
    listener["filter_chains"][0]["filters"][0]["typed_config"] =
        connection_manager("http", "route_config", routes);
    json!({
        "node": {"id": "static", "cluster": "tests"},
        "admin": {"address": socket_address(SocketAddr::from(([127, 0, 0, 1], 0)))},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    })
    .to_string()
}

/// A config source with a connection of its own for each type, instead of ADS.
#[must_use]
pub fn api_source(api_type: &str, more: &[(&str, &str)]) -> Value {
    let mut source = json!({"api_type": api_type, "transport_api_version": "V3"});
    if api_type == "REST" {
        source["cluster_names"] = json!(["xds_cluster"]);
    } else {
        source["grpc_services"] = json!([{"envoy_grpc": {"cluster_name": "xds_cluster"}}]);
        source["set_node_on_first_message_only"] = json!(true);
    }
    for (key, value) in more {
        source[*key] = json!(value);
    }
    json!({"api_config_source": source, "resource_api_version": "V3"})
}

/// Makes a bootstrap of Envoy ask for clusters and listeners at `source` instead of ADS.
pub fn without_ads(bootstrap: &mut Value, source: &Value) {
    let dynamic = &mut bootstrap["dynamic_resources"];
    dynamic["cds_config"] = source.clone();
    dynamic["lds_config"] = source.clone();
    dynamic.as_object_mut().map(|dynamic| dynamic.remove("ads_config"));
}

/// Replaces every `ads: {}` below, wherever it stands.
pub fn replace_ads(value: &mut Value, source: &Value) {
    match value {
        Value::Object(object) if object.contains_key("ads") => *value = source.clone(),
        Value::Object(object) => object.values_mut().for_each(|value| replace_ads(value, source)),
        Value::Array(array) => array.iter_mut().for_each(|value| replace_ads(value, source)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A bootstrap for a gRPC client.
#[must_use]
pub fn grpc_bootstrap(xds: SocketAddr, node_id: &str) -> String {
    json!({
        "xds_servers": [{
            "server_uri": xds.to_string(),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        // grpc-js fails without a locality.
        "node": {"id": node_id, "cluster": "tests", "locality": {"region": "here", "zone": "a"}},
    })
    .to_string()
}

/// Writes resources as a file in Envoy's own form: YAML with the list `resources`.
///
/// # Errors
///
/// If they cannot be written as YAML, which is a fault of this function.
pub fn yaml(resources: &[Value]) -> Result<String> {
    Ok(serde_saphyr::to_string(&json!({"resources": resources}))?)
}

/// A directory to watch, removed when it is dropped.
#[derive(Debug)]
pub struct ConfigDir {
    dir: TempDir,
}

impl ConfigDir {
    /// An empty directory.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self { dir: TempDir::with_prefix("xds-config-")? })
    }

    /// A copy of a directory below `fixtures/` in which ports are replaced.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or a port to replace does not occur in it.
    pub fn from_fixture(name: &str, ports: &[(u16, u16)]) -> Result<Self> {
        let copy = Self::new()?;
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name);
        let mut missing: BTreeMap<u16, u16> = ports.iter().copied().collect();
        for file in fs::read_dir(&fixture).with_context(|| fixture.display().to_string())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.file_name().and_then(|name| name.to_str()).context("file name")?;
                copy.write(name, &replace_ports(&fs::read_to_string(&path)?, ports, &mut missing))?;
            }
        }
        ensure!(missing.is_empty(), "{name} does not have the ports {missing:?}");
        Ok(copy)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file the way careful programs do: beside it, then renamed onto it.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, file: &str, text: &str) -> Result<PathBuf> {
        let path = self.path().join(file);
        let beside = path.with_file_name(format!(".{}.new", file.replace('/', "_")));
        fs::create_dir_all(path.with_file_name(""))?;
        fs::write(&beside, text)?;
        fs::rename(&beside, &path)?;
        Ok(path)
    }

    /// Writes resources into a file, as [`yaml`] does.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write_resources(&self, file: &str, resources: &[Value]) -> Result<PathBuf> {
        self.write(file, &yaml(resources)?)
    }

    /// Replaces a text in a file, as an editor would.
    ///
    /// # Errors
    ///
    /// If the text does not occur.
    pub fn edit(&self, file: &str, old: &str, new: &str) -> Result<()> {
        let text = fs::read_to_string(self.path().join(file))?;
        ensure!(text.contains(old), "no {old:?} in {file}:\n{text}");
        self.write(file, &text.replace(old, new))?;
        Ok(())
    }

    /// Deletes a file.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn remove(&self, file: &str) -> Result<()> {
        Ok(fs::remove_file(self.path().join(file))?)
    }
}

/// Replaces numbers behind `port_value:`, and takes those that it found from `missing`.
fn replace_ports(text: &str, ports: &[(u16, u16)], missing: &mut BTreeMap<u16, u16>) -> String {
    let mut parts = text.split(PORT_VALUE);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (old, rest) = part.split_at(end);
        let new = ports.iter().find(|(port, _)| port.to_string() == old);
        if let Some((port, _)) = new {
            missing.remove(port);
        }
        replaced.push_str(PORT_VALUE);
        replaced.push_str(&new.map_or(old.to_owned(), |(_, port)| port.to_string()));
        replaced.push_str(rest);
    }
    replaced
}

/// The config source of what comes by ADS.
pub(crate) fn ads() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

fn rds(route_config: &str) -> Value {
    json!({"route_config_name": route_config, "config_source": ads()})
}

/// An HTTP connection manager whose routes are given in the field `routes_by`.
fn connection_manager(name: &str, routes_by: &str, routes: Value) -> Value {
    let router = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"});
    let mut manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    });
    manager[routes_by] = routes;
    manager
}

fn socket_address(addr: SocketAddr) -> Value {
    json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}})
}

fn without_type(mut resource: Value) -> Value {
    resource.as_object_mut().and_then(|fields: &mut Map<_, _>| fields.remove("@type"));
    resource
}

const PORT_VALUE: &str = "port_value: ";
