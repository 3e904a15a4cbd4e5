//! Real clients whose certificates the server comes to distrust: they go on serving, and come back when they have others.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::http::Connection;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;

/// A server whose clients have authorities of their own, an Envoy that it serves, and the Envoy's address.
struct World {
    certificates: CertificateFiles,
    config: ConfigDir,
    server: Server,
    first: Backend,
    second: Backend,
    envoy: Envoy,
    address: SocketAddr,
}

impl World {
    /// With more flags of the server, for which files may have to be made.
    async fn start(more: impl AsyncFnOnce(&CertificateFiles) -> Result<Vec<String>>) -> Result<Self> {
        let certificates = CertificateFiles::new().await?;
        fs::copy(certificates.path("ca.crt"), certificates.path(CLIENTS))?;
        let flags = more(&certificates).await?;
        let (first, second) = (Backend::start("first").await?, Backend::start("second").await?);
        let config = ConfigDir::new()?;
        serve(&config, &first)?;
        let setup = Setup::new()?.watch(config.path());
        let setup = certificates.protect_from(setup, "xds", CLIENTS);
        let server = Server::start_with(flags.into_iter().fold(setup, Setup::arg)).await?;
        server.wait_ready().await?;
        let (envoy, _) = certificates.envoy(&server, &[]).await?;
        envoy.wait_live().await.with_context(|| server.log().to_string())?;
        let address = envoy.wait_listener("web").await?;
        let world = Self { certificates, config, server, first, second, envoy, address };
        world.wait_backend(&world.first).await?;
        Ok(world)
    }

    /// Waits until all requests go to a backend: the Envoy has what was published last.
    async fn wait_backend(&self, backend: &Backend) -> Result<()> {
        wait_for("the backend", LONG, async || {
            let answer = Connection::open(self.address).await?.get("/").await?.success()?.text();
            ensure!(answer.contains(backend.name()), "{answer}");
            Ok(())
        })
        .await
    }

    async fn wait_metric(&self, name: &str, least: u64) -> Result<()> {
        wait_for(name, LONG, async || {
            let found = self.server.metric(name).await?;
            ensure!(found >= least, "{found}");
            Ok(())
        })
        .await
    }

    /// Waits until the Envoy has lost its stream for this reason and has tried again in vain.
    async fn wait_refused(&self, reason: &str, handshake: &str) -> Result<()> {
        self.wait_metric(&format!("xds_refused_total{{reason=\"{reason}\"}}"), 1).await?;
        wait_for("the reason in the log of Envoy", LONG, async || {
            // The rest of the text has its spaces encoded.
            ensure!(self.envoy.log().to_string().contains(&format!("{reason}:")));
            Ok(())
        })
        .await
        .with_context(|| self.envoy.log().to_string())?;
        let failures = "xds_tls_handshake_failures_total";
        self.wait_metric(&format!("{failures}{{listener=\"xds\",reason=\"{handshake}\"}}"), 1).await
    }

    /// Sends a request every 50 ms while `work` is done; none may fail.
    async fn serving(&self, work: impl Future<Output = Result<()>>) -> Result<()> {
        let serving = async {
            let mut ticks = interval(Duration::from_millis(50));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for n in 1_u32.. {
                ticks.tick().await;
                let answer = async { Connection::open(self.address).await?.get("/").await?.success() };
                answer.await.with_context(|| format!("request {n}"))?;
            }
            Ok(())
        };
        tokio::select! {
            failed = serving => failed,
            done = work => done,
        }
    }

    /// Publishes a change, and waits until the Envoy has it, so that it is connected again.
    async fn comes_back(&self) -> Result<()> {
        serve(&self.config, &self.second)?;
        self.wait_backend(&self.second).await.with_context(|| self.server.log().to_string())
    }
}

/// Has all requests go to one backend.
fn serve(config: &ConfigDir, backend: &Backend) -> Result<()> {
    config.write_resources("all.yaml", &config::one_backend(backend.addr())).map(drop)
}

fn replace(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let new = path.as_ref().with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

#[tokio::test]
async fn an_envoy_whose_authority_is_taken_out_goes_on_and_comes_back_with_it() -> Result<()> {
    let world = World::start(async |_| Ok(vec![])).await?;
    let others = CertificateFiles::new().await?;
    let bundle = world.certificates.path(CLIENTS);
    let good = fs::read_to_string(&bundle)?;
    world
        .serving(async {
            replace(&bundle, &fs::read_to_string(others.path("ca.crt"))?)?;
            world.wait_refused("untrusted", "unknown-issuer").await?;
            replace(&bundle, &good)?;
            world.comes_back().await
        })
        .await
}

#[tokio::test]
async fn an_envoy_whose_authority_is_taken_out_comes_back_with_a_certificate_of_another() -> Result<()> {
    let world = World::start(async |_| Ok(vec![])).await?;
    let others = CertificateFiles::new().await?;
    world
        .serving(async {
            replace(world.certificates.path(CLIENTS), &fs::read_to_string(others.path("ca.crt"))?)?;
            world.wait_refused("untrusted", "unknown-issuer").await?;
            for file in ["client.key", "client.crt"] {
                replace(world.certificates.path(file), &fs::read_to_string(others.path(file))?)?;
            }
            world.comes_back().await
        })
        .await
}

#[tokio::test]
async fn an_envoy_whose_certificate_is_revoked_goes_on_and_comes_back_with_another() -> Result<()> {
    let world = World::start(async |certificates| {
        certificates.issue_numbered("client", "edge-1", 7)?;
        certificates.revoke(&[])?;
        Ok(vec![format!("--xds-client-crl={}", certificates.path("crl.pem"))])
    })
    .await?;
    world
        .serving(async {
            world.certificates.revoke(&[7])?;
            world.wait_refused("revoked", "revoked").await?;
            world.certificates.issue_numbered("client", "edge-1", 8)?;
            world.comes_back().await
        })
        .await?;
    let lines = world.server.get_json("/v1/audit").await?;
    let lines = lines.to_string();
    for expected in [
        r#""event":"tls.loaded""#,
        r#""event":"tls.untrusted""#,
        r#""reason":"revoked""#,
        r#""identity":"dns:edge-1""#,
    ] {
        ensure!(lines.contains(expected), "{expected} is not in {lines}");
    }
    Ok(())
}

#[tokio::test]
async fn an_envoy_whose_certificate_ends_goes_on_and_comes_back_with_a_newer_one() -> Result<()> {
    let world = World::start(async |certificates| {
        certificates.issue_for("client", &["edge-1"], "20s").await?;
        Ok(vec![])
    })
    .await?;
    world
        .serving(async {
            world.wait_refused("expired", "expired").await?;
            world.certificates.issue("client", &["edge-1"]).await?;
            world.comes_back().await
        })
        .await?;
    let shown: Value = world.server.get_json("/v1/nodes/edge-1").await?;
    ensure!(shown.to_string().contains("dns:edge-1"), "{shown}");
    Ok(())
}

/// The authorities of clients.
const CLIENTS: &str = "clients.crt";
/// An Envoy that was refused waits for up to 30 s before it tries again.
const LONG: Duration = Duration::from_secs(150);
