//! A real Prometheus, and `promtool`: Debian's package `prometheus`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command as Blocking;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use url::Url;

use crate::http::Http;
use crate::process::Process;
use crate::server::free_addr;
use crate::tools;
use crate::wait::{PATIENCE, wait_for};

/// A running Prometheus. Dropping it kills it.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    addr: SocketAddr,
    http: Http,
    /// Its configuration and its data; removed with it.
    _dir: TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that reads the metrics of a job each second, and as often evaluates the rules of a file; `None` without
    /// Debian's package.
    ///
    /// # Errors
    ///
    /// If it does not start, or is not there and [every client is required](tools::require_all).
    pub async fn start(job: &str, targets: &[SocketAddr], rules: &Path) -> Result<Option<Self>> {
        if !tools::is_present("prometheus", "prometheus", "--version")? {
            return Ok(None);
        }
        let dir = TempDir::with_prefix("xds-prometheus-")?;
        let targets: Vec<String> = targets.iter().map(SocketAddr::to_string).collect();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules.canonicalize()?],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": targets}]}],
        });
        let path = dir.path().join("prometheus.yml");
        fs::write(&path, config.to_string())?;
        let (addr, data) = (free_addr()?, dir.path().join("data"));
        let mut command = Command::new("prometheus");
        command.arg("--config.file").arg(path).arg("--storage.tsdb.path").arg(data);
        command.arg(format!("--web.listen-address={addr}"));
        let process = Process::spawn("prometheus", &mut command)?;
        let mut this = Self { process, addr, http: Http::new(), _dir: dir };
        wait_for("Prometheus", PATIENCE, async || {
            let ended = this.process.try_exit().await?;
            ensure!(ended.is_none(), "it ended: {ended:?}\n{}", this.process.log());
            this.http.get(&format!("http://{addr}/-/ready")).await?.success()
        })
        .await?;
        Ok(Some(this))
    }

    /// Evaluates an expression now, and returns the samples: each has `metric` (the labels) and `value` (time and text).
    ///
    /// # Errors
    ///
    /// In the words of Prometheus, if it does not evaluate it; or if the result is no vector.
    pub async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let data = self.ask("/api/v1/query", &[("query", expression)]).await?;
        ensure!(data["resultType"] == "vector", "{data}");
        array(&data["result"])
    }

    /// The values of a label among the series of a selector, sorted.
    ///
    /// # Errors
    ///
    /// As for [`query`](Self::query).
    pub async fn label_values(&self, label: &str, selector: &str) -> Result<Vec<String>> {
        let data = self.ask(&format!("/api/v1/label/{label}/values"), &[("match[]", selector)]).await?;
        Ok(serde_json::from_value(data)?)
    }

    /// The alerting rules and recording rules, each with `name`, `health`, `lastError`, `lastEvaluation` and, of alerts, `state` and
    /// `alerts`.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let data = self.ask("/api/v1/rules", &[]).await?;
        let mut rules = Vec::new();
        for group in array(&data["groups"])? {
            rules.extend(array(&group["rules"])?);
        }
        Ok(rules)
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let url = Url::parse_with_params(&format!("http://{}{path}", self.addr), parameters)?;
        let mut answer = self.http.get(url.as_str()).await?.json()?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(answer["data"].take())
    }
}

/// Runs `promtool` and returns what it prints; `None` without Debian's package.
///
/// # Errors
///
/// If it finds something wrong, or is not there and [every client is required](tools::require_all).
pub fn promtool(arguments: &[&str], dir: &Path) -> Result<Option<String>> {
    if !tools::is_present("promtool", "promtool", "--version")? {
        return Ok(None);
    }
    tools::run(Blocking::new("promtool").args(arguments).current_dir(dir)).map(Some)
}

fn array(value: &Value) -> Result<Vec<Value>> {
    Ok(value.as_array().with_context(|| format!("not an array: {value}"))?.clone())
}
