//! Short forms of the resources that a server serves and a client was sent, for tests to compare.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use serde_json::{Value, json};

use crate::config::CLUSTER;
use crate::server::Server;

/// A cluster that needs no other resource; two numbers make two versions.
#[must_use]
pub fn plain_cluster(name: &str, n: u64) -> Value {
    json!({"@type": CLUSTER, "name": name, "connect_timeout": format!("{n}s")})
}

/// A body for `PUT /v1/groups/{group}/resources`.
#[must_use]
pub fn resources(resources: &[Value]) -> Value {
    json!({ "resources": resources })
}

/// The version of every resource that a node without a group of its own is served, by `type/name`.
///
/// # Errors
///
/// If there is no snapshot.
pub async fn served(server: &Server) -> Result<BTreeMap<String, String>> {
    versions(&server.get_json("/v1/groups/default/snapshot").await?)
}

/// The version of every resource of a snapshot, by `type/name` with the type's last word.
///
/// # Errors
///
/// If it is no snapshot.
pub fn versions(snapshot: &Value) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    for (type_url, of_type) in snapshot["types"].as_object().context("types")? {
        let kind = type_url.rsplit('.').next().unwrap_or_default();
        for entry in of_type["resources"].as_array().context("resources")? {
            let name = entry["name"].as_str().context("name")?;
            let version = entry["version"].as_str().context("version")?;
            versions.insert(format!("{kind}/{name}"), version.to_owned());
        }
    }
    Ok(versions)
}

/// The names of the resources of a response, in its order.
///
/// # Errors
///
/// If one cannot be decoded.
pub fn names(response: &DiscoveryResponse) -> Result<Vec<String>> {
    response.resources.iter().map(name).collect()
}

/// The names of the resources of a response, in its order.
#[must_use]
pub fn delta_names(response: &DeltaDiscoveryResponse) -> Vec<String> {
    response.resources.iter().map(|resource| resource.name.clone()).collect()
}

/// How often a cluster of a response connects anew; [`plain_cluster`]'s number.
///
/// # Errors
///
/// If there is no such cluster.
pub fn timeout_of(response: &DiscoveryResponse, cluster: &str) -> Result<u64> {
    for resource in &response.resources {
        if name(resource)? == cluster {
            return seconds(resource);
        }
    }
    anyhow::bail!("no {cluster} in {response:?}")
}

/// The number of a [`plain_cluster`].
///
/// # Errors
///
/// If it is no cluster of this kind.
pub fn seconds(cluster: &Any) -> Result<u64> {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    let timeout = Cluster::decode(cluster.value.as_slice())?.connect_timeout.context("connect_timeout")?;
    Ok(u64::try_from(timeout.seconds)?)
}

/// How many bytes of memory a process occupies.
///
/// # Errors
///
/// If there is no such process.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let mut words = line.split_whitespace();
    let kib: u64 = words.next().context("VmRSS")?.parse()?;
    ensure!(words.next() == Some("kB"), "VmRSS: {line}");
    Ok(kib * 1024)
}

/// Every resource type of the protocol has its name in the first field.
fn name(resource: &Any) -> Result<String> {
    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    Ok(Named::decode(resource.value.as_slice())?.name)
}
