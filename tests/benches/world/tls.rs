//! What TLS costs beside plaintext: connecting, memory, a change of trust, and everybody coming back at once while changes are published.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tonic::transport::Channel;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::dial::Dial;
use xds_tests::footprint::Meter;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;

use crate::clients::{CLUSTERS, Follower, envoy};

/// What the xDS port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Plaintext,
    Tls,
    /// With certificates of clients.
    MutualTls,
}

/// A server, and how clients reach it.
struct Rig {
    server: Server,
    certificates: CertificateFiles,
    dial: Dial,
}

/// Prints a table of what the port speaks by number of connections, row by row, because each takes minutes.
pub(crate) async fn print(sizes: &[usize]) -> Result<()> {
    println!(
        "| connections | the port speaks | to connect one | resident for one | trust changed: for one, worst delay | all back after \
         they were lost, worst delay |\n| --- | --- | --- | --- | --- | --- |"
    );
    for n in sizes {
        for speaks in [Speaks::Plaintext, Speaks::Tls, Speaks::MutualTls] {
            let row = measure(*n, speaks).await.with_context(|| format!("{n} with {speaks:?}"))?;
            println!("{row}");
        }
    }
    println!(
        "\nTimes for one are processor time of the server. The worst delay is that of a change, until a client has it that stays \
         connected."
    );
    Ok(())
}

async fn measure(n: usize, speaks: Speaks) -> Result<String> {
    let rig = Rig::start(speaks).await?;
    for i in 0..N_CLUSTERS {
        rig.publish(ALL, i, 0).await?;
    }
    rig.server.put(&format!("/v1/groups/{OWN}"), &json!({"selector": {"nodeIds": ["healthy"]}})).await?;
    let mut healthy = Follower::start(rig.connect().await?, envoy("healthy"), &[(CLUSTERS, &[])]).await?;
    let meter = Meter::of(&rig.server)?;
    let measurement = meter.begin()?;
    let clients = rig.connect_all(n).await?;
    let cost = measurement.cost()?;
    let one = |cpu: Duration| cpu.as_secs_f64() * 1e6 / n as f64;
    let trust = match speaks {
        Speaks::Plaintext | Speaks::Tls => "–".to_owned(),
        Speaks::MutualTls => {
            let measurement = meter.begin()?;
            let worst = rig.worst_delay(&mut healthy, OWN, rig.change_trust(n)).await?.1;
            format!("{:.0} µs, {worst:.0?}", one(measurement.cost()?.cpu))
        }
    };
    drop(clients);
    rig.wait_streams(1).await?;
    let (begun, storm) =
        (Instant::now(), async { rig.connect_all(n).await.map(|clients| (clients, Instant::now())) });
    let ((_clients, ended), worst) = rig.worst_delay(&mut healthy, ALL, storm).await?;
    Ok(format!(
        "| {n} | {} | {:.0} µs | {:.1} KiB | {trust} | {:.1?}, {worst:.1?} |",
        match speaks {
            Speaks::Plaintext => "plaintext",
            Speaks::Tls => "TLS",
            Speaks::MutualTls => "TLS with client certificates",
        },
        one(cost.cpu),
        cost.kept as f64 / 1024.0 / n as f64,
        ended - begun,
    ))
}

impl Rig {
    async fn start(speaks: Speaks) -> Result<Self> {
        let certificates = CertificateFiles::new().await?;
        let setup = match speaks {
            Speaks::Plaintext => Setup::metered()?,
            Speaks::Tls => certificates.protect(Setup::metered()?, "xds").arg("--allow-anonymous-xds"),
            Speaks::MutualTls => certificates.protect(Setup::metered()?, "xds"),
        };
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        let directory = certificates.directory();
        let dial = match speaks {
            Speaks::Plaintext => Dial::plaintext(server.xds()),
            Speaks::Tls => Dial::tls(server.xds(), directory, None)?,
            Speaks::MutualTls => Dial::tls(server.xds(), directory, Some("client"))?,
        };
        Ok(Self { server, certificates, dial })
    }

    async fn connect(&self) -> Result<Channel> {
        self.dial.connect().await
    }

    /// So many clients with a connection each, some of them at a time; each has what it asked for. As real clients do, one that loses its
    /// connection comes again.
    async fn connect_all(&self, n: usize) -> Result<Vec<Follower>> {
        let attempt = async |i: usize| {
            let channel = self.connect().await?;
            Follower::start(channel, envoy(&format!("node-{i}")), &[(CLUSTERS, &[])]).await
        };
        let attempt = &attempt;
        let one = |i: usize| async move {
            for _ in 1..MAX_ATTEMPTS {
                if let Ok(client) = attempt(i).await {
                    return Ok(client);
                }
            }
            attempt(i).await
        };
        let all = stream::iter(0..n).map(one).buffer_unordered(AT_ONCE).try_collect();
        tokio::time::timeout(LONG, all).await.context("not all are connected")?
    }

    /// Publishes one of the clusters of a group with another content.
    async fn publish(&self, group: &str, cluster: usize, round: usize) -> Result<()> {
        let name = format!("{group}-{cluster:03}");
        let body = json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": name, "type": "STATIC", "connect_timeout": format!("{}s", round + 1),
        });
        self.server.put(&format!("/v1/groups/{group}/resources/clusters/{name}"), &body).await.map(drop)
    }

    /// Publishes a change of a group after the other while `work` is done. Returns what that gives, and how long a client that stays connected waited
    /// for a change at most.
    async fn worst_delay<T>(
        &self,
        healthy: &mut Follower,
        group: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Duration)> {
        let is_done = Cell::new(false);
        let probing = async {
            let mut worst = Duration::ZERO;
            let mut ticks = interval(BETWEEN_CHANGES);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut round = 0;
            while !is_done.get() {
                ticks.tick().await;
                round += 1;
                healthy.mark();
                let begun = Instant::now();
                self.publish(group, round % N_CLUSTERS, round).await?;
                healthy.next().await?;
                worst = worst.max(begun.elapsed());
            }
            anyhow::Ok(worst)
        };
        let working = async {
            let done = work.await;
            is_done.set(true);
            done
        };
        let (done, worst) = tokio::join!(working, probing);
        Ok((done?, worst?))
    }

    /// One more authority, and the time in which every connection is verified again.
    async fn change_trust(&self, n: usize) -> Result<()> {
        let others = CertificateFiles::new().await?;
        let read = |path: String| fs::read_to_string(path);
        let both = read(self.certificates.path("ca.crt"))? + &read(others.path("ca.crt"))?;
        replace(Path::new(&self.certificates.path("ca.crt")), &both)?;
        wait_for("the change", LONG, async || {
            ensure!(self.server.metric("xds_tls_generation{listener=\"xds\"}").await? == 2);
            Ok(())
        })
        .await?;
        // 50 every 10 ms, as the server says.
        tokio::time::sleep(Duration::from_millis(10) * u32::try_from(n / 50 + 10)?).await;
        Ok(())
    }

    async fn wait_streams(&self, expected: u64) -> Result<()> {
        wait_for("the end of the streams", LONG, async || {
            let found = self.server.metric("xds_streams{variant=\"delta\"}").await?;
            ensure!(found == expected, "{found}");
            Ok(())
        })
        .await
    }
}

fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

const N_CLUSTERS: usize = 100;
/// The group of every client, and that of the client which stays connected.
const ALL: &str = "default";
const OWN: &str = "own";
/// Connections that are being made at a time. More wait in the queue of the socket.
const AT_ONCE: usize = 256;
const MAX_ATTEMPTS: usize = 20;
const BETWEEN_CHANGES: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(600);
