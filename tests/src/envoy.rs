//! A real Envoy, and its admin interface.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::http::Http;
use crate::process::{Log, Process};
use crate::tools;
use crate::wait::{PATIENCE, wait_for};

/// A running Envoy. Dropping it kills it.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
    http: Http,
    /// The bootstrap and the admin address; removed with the Envoy.
    _dir: TempDir,
}

impl Envoy {
    /// Starts an Envoy with a bootstrap (JSON or YAML) whose admin port is 0, and waits for the admin
    /// interface. It may not be [live](Self::wait_live) yet.
    ///
    /// # Errors
    ///
    /// If Envoy cannot be installed, or refuses the bootstrap.
    pub async fn start(bootstrap: &str) -> Result<Self> {
        let dir = TempDir::new()?;
        let is_json = bootstrap.trim_start().starts_with('{');
        let bootstrap_path = dir.path().join(if is_json { "bootstrap.json" } else { "bootstrap.yaml" });
        fs::write(&bootstrap_path, bootstrap)?;
        let admin_path = dir.path().join("admin");
        let mut command = Command::new(tools::envoy().await?);
        // What a configuration opens by a relative path is removed with it.
        command
            .current_dir(dir.path())
            .arg("-c")
            .arg(bootstrap_path)
            .arg("--admin-address-path")
            .arg(&admin_path);
        // One worker thread: connections and counters belong to one load balancer, so counts are exact.
        command.args(["--concurrency", "1", "--disable-hot-restart", "--drain-time-s", "2"]);
        let mut process = Process::spawn("envoy", &mut command)?;
        let admin = wait_admin(&mut process, admin_path).await?;
        Ok(Self { process, admin, http: Http::new(), _dir: dir })
    }

    /// Waits until Envoy has its configuration and serves.
    ///
    /// # Errors
    ///
    /// If that takes too long; the error holds the end of the log.
    pub async fn wait_live(&self) -> Result<()> {
        let live = wait_for("a live Envoy", PATIENCE, async || {
            let answer = self.admin("ready").await?;
            ensure!(answer.trim() == "LIVE", "it is {answer}");
            Ok(())
        });
        live.await.with_context(|| self.log().to_string())
    }

    /// The admin interface.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Asks the admin interface for one page, such as `clusters`.
    ///
    /// # Errors
    ///
    /// If Envoy does not answer.
    pub async fn admin(&self, page: &str) -> Result<String> {
        // `ready` answers 503 before Envoy is live, and says why.
        Ok(self.http.get(&format!("http://{}/{page}", self.admin)).await?.text())
    }

    /// Returns the configuration as Envoy holds it, endpoints included.
    ///
    /// # Errors
    ///
    /// If Envoy does not answer.
    pub async fn config_dump(&self) -> Result<ConfigDump> {
        Ok(ConfigDump(serde_json::from_str(&self.admin("config_dump?include_eds").await?)?))
    }

    /// Returns the counters and gauges by name; histograms are left out.
    ///
    /// # Errors
    ///
    /// If Envoy does not answer.
    pub async fn stats(&self) -> Result<BTreeMap<String, u64>> {
        let stats = self.admin("stats").await?;
        let parse = |line: &str| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(stats.lines().filter_map(parse).collect())
    }

    /// Returns one counter or gauge; 0 if there is none of the name.
    ///
    /// # Errors
    ///
    /// If Envoy does not answer.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.stats().await?.get(name).copied().unwrap_or(0))
    }

    /// Waits until a listener accepts connections and returns its address; its port may have been 0.
    ///
    /// # Errors
    ///
    /// If it does not come.
    pub async fn wait_listener(&self, name: &str) -> Result<SocketAddr> {
        self.wait_listener_within(PATIENCE, name).await
    }

    /// The same with another limit.
    ///
    /// # Errors
    ///
    /// If it does not come.
    pub async fn wait_listener_within(&self, limit: Duration, name: &str) -> Result<SocketAddr> {
        let found = wait_for("the listener", limit, async || {
            let listeners: Value = serde_json::from_str(&self.admin("listeners?format=json").await?)?;
            let statuses = listeners["listener_statuses"].as_array().context("no listeners")?;
            let status = statuses.iter().find(|status| status["name"] == name);
            let socket =
                &status.with_context(|| format!("only {listeners}"))?["local_address"]["socket_address"];
            let ip = socket["address"].as_str().context("no address")?.parse()?;
            let port = u16::try_from(socket["port_value"].as_u64().context("no port")?)?;
            let addr = SocketAddr::new(ip, port);
            // Envoy names a listener's address before its workers listen.
            TcpStream::connect(addr).await.with_context(|| format!("{name} does not accept connections"))?;
            Ok(addr)
        });
        found.await.with_context(|| format!("{name}\n{}", self.log()))
    }

    /// The log of Envoy.
    #[must_use]
    pub fn log(&self) -> Log {
        self.process.log()
    }

    /// The process, to stop or kill it.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

async fn wait_admin(process: &mut Process, admin_path: PathBuf) -> Result<SocketAddr> {
    let log = process.log();
    let found = wait_for("Envoy's admin address", PATIENCE, async || {
        if let Some(status) = process.try_exit().await? {
            return Ok(Err(status));
        }
        let address = fs::read_to_string(&admin_path)?;
        Ok(Ok(address.trim().parse().with_context(|| format!("address {address:?}"))?))
    });
    let found = found.await.with_context(|| log.to_string())?;
    found.map_err(|status| anyhow::anyhow!("envoy ended with {status}\n{log}"))
}

/// Envoy's configuration dump.
#[derive(Clone, Debug)]
pub struct ConfigDump(pub Value);

impl ConfigDump {
    /// Returns the version of each cluster that came by CDS and is in use.
    #[must_use]
    pub fn active_clusters(&self) -> BTreeMap<String, String> {
        self.clusters("dynamic_active_clusters")
    }

    /// Returns the version of each cluster that came by CDS and waits for its endpoints.
    #[must_use]
    pub fn warming_clusters(&self) -> BTreeMap<String, String> {
        self.clusters("dynamic_warming_clusters")
    }

    /// Returns a cluster that came by CDS and is in use; `null` if there is none of the name.
    #[must_use]
    pub fn active_cluster(&self, name: &str) -> &Value {
        let clusters = self.entries("ClustersConfigDump", "dynamic_active_clusters").into_iter();
        let mut clusters = clusters.map(|entry| &entry["cluster"]).filter(|cluster| cluster["name"] == name);
        clusters.next().unwrap_or(&Value::Null)
    }

    /// Returns when each cluster that came by CDS was taken into use.
    #[must_use]
    pub fn active_cluster_times(&self) -> BTreeMap<String, Value> {
        let clusters = self.entries("ClustersConfigDump", "dynamic_active_clusters").into_iter();
        clusters.map(|entry| (text(&entry["cluster"]["name"]), entry["last_updated"].clone())).collect()
    }

    /// Returns the entries of listeners that came by LDS: `name`, `active_state`, `warming_state`,
    /// `draining_state`, `error_state`.
    #[must_use]
    pub fn listeners(&self) -> Vec<&Value> {
        self.entries("ListenersConfigDump", "dynamic_listeners")
    }

    /// Returns the route configurations that came by RDS, by name.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<String, &Value> {
        let routes = self.entries("RoutesConfigDump", "dynamic_route_configs").into_iter();
        routes.map(|entry| (text(&entry["route_config"]["name"]), &entry["route_config"])).collect()
    }

    fn clusters(&self, state: &str) -> BTreeMap<String, String> {
        let clusters = self.entries("ClustersConfigDump", state).into_iter();
        clusters.map(|entry| (text(&entry["cluster"]["name"]), text(&entry["version_info"]))).collect()
    }

    /// Returns the entries of one list of one part of the dump.
    #[must_use]
    pub fn entries(&self, part: &str, list: &str) -> Vec<&Value> {
        let parts = self.0["configs"].as_array().into_iter().flatten();
        let part = parts.filter(|config| config["@type"].as_str().is_some_and(|url| url.ends_with(part)));
        part.filter_map(|config| config[list].as_array()).flatten().collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
