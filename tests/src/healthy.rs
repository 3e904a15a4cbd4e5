//! A real Envoy that is served while something else goes on, and how long its slowest update took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::config;
use crate::envoy::Envoy;
use crate::http::Http;
use crate::server::{Server, Variant};

/// An Envoy that is sent one change after the other over REST, each awaited until it is acknowledged. Dropping it ends both.
#[derive(Debug)]
pub struct Healthy {
    _envoy: Envoy,
    changes: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// The changes up to now.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Changes that the Envoy acknowledged.
    pub n_acked: u64,
    /// The longest time from a write to its acknowledgement.
    pub worst: Duration,
    /// Changes that failed, or were not acknowledged in time, each with the reason.
    pub failures: Vec<String>,
}

impl Healthy {
    /// Starts an Envoy called `healthy` with a group of its own, and waits until it has the first change.
    ///
    /// # Errors
    ///
    /// If it is not served to begin with.
    pub async fn start(server: &Server) -> Result<Self> {
        let url = server.url("/v1/groups/healthy/resources?wait=acked&timeout=20s");
        let envoy = Envoy::start(&server.bootstrap_envoy("healthy", Variant::Delta).await?).await?;
        change(&url, 0).await?;
        envoy.wait_live().await?;
        let seen = Arc::<Mutex<Seen>>::default();
        let changes = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                for n in 1_u64.. {
                    let began = Instant::now();
                    let outcome = change(&url, n).await;
                    record(&seen, n, began.elapsed(), outcome);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        Ok(Self { _envoy: envoy, changes, seen })
    }

    /// Returns what was seen since the last call, once at least one more change is through.
    ///
    /// # Errors
    ///
    /// If a change failed, or none comes through.
    pub async fn check(&self) -> Result<Seen> {
        let before = self.lock().n_acked;
        crate::wait::wait_for("a change of the healthy Envoy", 2 * crate::wait::PATIENCE, async || {
            ensure!(self.lock().n_acked > before, "none was acknowledged: {:?}", self.lock().failures);
            Ok(())
        })
        .await?;
        let seen = std::mem::take(&mut *self.lock());
        ensure!(seen.failures.is_empty(), "{:?}", seen.failures);
        Ok(seen)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Healthy {
    fn drop(&mut self) {
        self.changes.abort();
    }
}

fn record(seen: &Mutex<Seen>, n: u64, took: Duration, outcome: Result<()>) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.worst = seen.worst.max(took);
    match outcome {
        Ok(()) => seen.n_acked += 1,
        Err(error) => seen.failures.push(format!("change {n}: {error:#}")),
    }
}

/// Gives the group one cluster whose content differs with `n`, and waits for the acknowledgement.
async fn change(url: &str, n: u64) -> Result<()> {
    let mut cluster = config::cluster("healthy");
    cluster["connect_timeout"] = json!(format!("{}s", 1 + n % 1000));
    cluster["type"] = json!("STATIC");
    cluster.as_object_mut().map(|fields| fields.remove("eds_cluster_config"));
    let body = json!({"resources": [cluster]}).to_string();
    let request = http::Request::put(url).header(http::header::CONTENT_TYPE, "application/json");
    let answer = Http::new().send(request.body(http_body_util::Full::from(body))?).await?;
    ensure!(answer.status == http::StatusCode::OK, "{}: {}", answer.status, answer.text());
    Ok(())
}

/// Between two changes, so that the Envoy is no load of its own.
const PAUSE: Duration = Duration::from_millis(50);
