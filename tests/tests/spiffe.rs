//! Certificates of a SPIFFE agent, with real clients: the agent replaces them, goes away, comes back, refuses, and sends nonsense.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use xds_tests::backend::Backend;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::{self, ConfigDir};
use xds_tests::http::Connection;
use xds_tests::process::Log;
use xds_tests::server::{Server, Setup, cli};
use xds_tests::spiffe_agent::{Say, SpiffeAgent, Svid};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Library, Worker};

/// A server whose certificates come from an agent, and clients with certificates of the same authority.
struct World {
    certificates: CertificateFiles,
    agent: SpiffeAgent,
    config: ConfigDir,
    server: Server,
    first: Backend,
    second: Backend,
}

impl World {
    /// A server that is ready.
    async fn start() -> Result<Self> {
        let world = Self::start_with(&[]).await?;
        world.agent.send(world.svid().await?);
        world.server.wait_ready().await?;
        Ok(world)
    }

    /// A server with more flags, whose agent says nothing yet.
    async fn start_with(flags: &[String]) -> Result<Self> {
        let certificates = CertificateFiles::new().await?;
        certificates.issue("client", &[CLIENT]).await?;
        let mut agent = SpiffeAgent::new()?;
        agent.start()?;
        let (first, second) = (Backend::start("first").await?, Backend::start("second").await?);
        let config = ConfigDir::new()?;
        serve(&config, &first)?;
        let setup = Setup::new()?.watch(config.path()).probe().fixed_xds_port()?;
        let setup = setup.arg(format!("--spiffe-endpoint={}", agent.endpoint()));
        let server = Server::start_with(flags.iter().fold(setup, Setup::arg)).await?;
        Ok(Self { certificates, agent, config, server, first, second })
    }

    /// A new certificate of the server.
    async fn svid(&self) -> Result<Svid> {
        self.svid_for("1h").await
    }

    async fn svid_for(&self, valid_for: &str) -> Result<Svid> {
        self.certificates.issue_for("server", &[SERVER, "localhost", "127.0.0.1"], valid_for).await?;
        Svid::of(&self.certificates, "server", SERVER)
    }

    /// `get`, as a client with the certificate of this name.
    async fn get(&self, name: &str) -> Result<String> {
        let xds = self.server.xds().to_string();
        let mut args = vec!["get", "--node-id", "raw", "--type", "clusters", "--xds-address", &xds];
        let flags = self.certificates.flags_of(name);
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    }

    async fn readiness(&self) -> Result<(u16, String)> {
        let answer = self.server.get("/readyz").await?;
        Ok((answer.status.into(), answer.text()))
    }

    /// Waits until `/readyz` has this status and says this.
    async fn wait_readiness(&self, status: u16, text: &str) -> Result<()> {
        let found = wait_for("the readiness", PATIENCE, async || {
            let found = self.readiness().await?;
            ensure!(found.0 == status && found.1.contains(text), "{found:?}");
            Ok(())
        });
        found.await.with_context(|| self.server.log().to_string())
    }

    async fn wait_metric(&self, name: &str, least: u64) -> Result<()> {
        wait_for(name, PATIENCE, async || {
            let found = self.server.metric(name).await?;
            ensure!(found >= least, "{found}");
            Ok(())
        })
        .await
    }

    async fn wait_generation(&self, generation: u64) -> Result<()> {
        self.wait_metric("xds_tls_generation{listener=\"xds\"}", generation).await
    }
}

/// Has all requests go to one backend.
fn serve(config: &ConfigDir, backend: &Backend) -> Result<()> {
    config.write_resources("all.yaml", &config::one_backend(backend.addr())).map(drop)
}

async fn wait_backend(
    ask: impl AsyncFn() -> Result<String>,
    backend: &Backend,
    log: impl Fn() -> Log,
) -> Result<()> {
    let found = wait_for("the backend", PATIENCE, async || {
        let answer = ask().await?;
        ensure!(answer.contains(backend.name()), "{answer}");
        Ok(())
    });
    found.await.with_context(|| log().to_string())
}

#[tokio::test]
async fn an_envoy_is_served_with_a_certificate_of_the_agent_and_does_not_notice_the_next_one() -> Result<()> {
    let world = World::start().await?;
    let (envoy, _) = world.certificates.envoy(&world.server, &["--tls-server-uri", SERVER]).await?;
    envoy.wait_live().await.with_context(|| world.server.log().to_string())?;
    let address = envoy.wait_listener("web").await?;
    let mut connection = Connection::open(address).await?;
    let first = connection.get("/").await?.success()?.text();
    ensure!(first.contains("first"), "{first}");
    let connected = envoy.stat(CONNECTED).await?;

    world.agent.send(world.svid().await?);
    world.wait_generation(2).await?;
    serve(&world.config, &world.second)?;
    wait_for("the change", PATIENCE, async || {
        let answer = connection.get("/").await?.success()?.text();
        ensure!(answer.contains("second"), "{answer}");
        Ok(())
    })
    .await?;
    ensure!(envoy.stat(CONNECTED).await? == connected, "the stream was on another connection");
    // Another client gets the new certificate; the authority is the same.
    world.get("client").await.map(drop)
}

#[tokio::test]
async fn grpcio_is_served_with_a_certificate_of_the_agent() -> Result<()> {
    let world = World::start().await?;
    let flags = world.certificates.bootstrap_flags();
    let bootstrap = world.certificates.bootstrap(&world.server, "grpc", &flags).await?;
    let Some(worker) = Worker::start(Library::Grpcio, &bootstrap).await? else { return Ok(()) };
    let channel = worker.open("xds:///greeter").await?;
    wait_backend(async || channel.who().await, &world.first, || world.server.log()).await?;
    world.agent.send(world.svid().await?);
    world.wait_generation(2).await?;
    serve(&world.config, &world.second)?;
    wait_backend(async || channel.who().await, &world.second, || world.server.log()).await
}

#[tokio::test]
async fn clients_of_a_trust_domain_are_known_while_the_agent_says_so() -> Result<()> {
    let world = World::start().await?;
    let partner = CertificateFiles::new().await?;
    partner.issue("client", &["spiffe://partner.org/edge"]).await?;
    // Its authority is the server's own; only the client's certificate is foreign.
    let get = async || {
        let xds = world.server.xds().to_string();
        let mut flags = partner.client_flags();
        flags[0] = format!("--ca={}", world.certificates.path("ca.crt"));
        let mut args = vec!["get", "--node-id", "raw", "--type", "clusters", "--xds-address", &xds];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    };
    world.get("client").await?;
    ensure!(get().await.is_err(), "a foreign trust domain is served");
    // A certificate without an ID has no authority here.
    world.certificates.issue("plain", &["edge-1"]).await?;
    ensure!(world.get("plain").await.is_err(), "a certificate without an ID is served");

    let federated =
        Svid::of(&world.certificates, "server", SERVER)?.federated_with("spiffe://partner.org", &partner)?;
    world.agent.send(federated);
    world.wait_generation(2).await?;
    get().await.with_context(|| world.server.log().to_string())?;
    world.get("client").await?;
    world.agent.send(Svid::of(&world.certificates, "server", SERVER)?);
    world.wait_generation(3).await?;
    ensure!(get().await.is_err(), "a trust domain that was taken out is served");
    world.get("client").await.map(drop)
}

#[tokio::test]
async fn a_server_whose_agent_is_away_keeps_its_certificate_until_it_ends_and_comes_back() -> Result<()> {
    let mut world = World::start_with(&[]).await?;
    world.wait_readiness(503, "the SPIFFE agent at unix:").await?;
    world.wait_readiness(503, "has sent no certificate yet").await?;
    ensure!(world.get("client").await.is_err(), "served without a certificate");
    world.wait_metric("xds_tls_handshake_failures_total{listener=\"xds\",reason=\"not-ready\"}", 1).await?;

    world.agent.send(world.svid_for("15s").await?);
    world.server.wait_ready().await?;
    world.get("client").await?;
    world.agent.stop()?;
    world.wait_readiness(200, "does not answer since").await?;
    world.get("client").await.context("with the last certificate")?;
    world.wait_metric("xds_spiffe_failures_total{reason=\"away\"}", 1).await?;
    ensure!(world.server.metric("xds_spiffe_healthy").await? == 0);
    world.wait_readiness(503, "the certificate of the xds port has expired").await?;
    // A client counts whole seconds, and may take it until the second is over.
    wait_for("the refusal by a client", PATIENCE, async || {
        ensure!(world.get("client").await.is_err(), "served with a certificate that has ended");
        Ok(())
    })
    .await?;

    world.agent.send(world.svid().await?);
    world.agent.start()?;
    world.server.wait_ready().await?;
    world.get("client").await?;
    ensure!(world.server.metric("xds_spiffe_healthy").await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_server_without_an_identity_keeps_its_certificate_and_is_not_ready() -> Result<()> {
    let world = World::start().await?;
    world.agent.say(Say::Status(PERMISSION_DENIED, "no identity issued"));
    world.wait_readiness(503, "has no identity for this server since").await?;
    world.wait_readiness(503, "no identity issued; register an entry").await?;
    world.get("client").await.context("with the last certificate")?;
    world.wait_metric("xds_spiffe_failures_total{reason=\"denied\"}", 1).await?;
    let log = world.server.log();
    ensure!(!log.containing("no identity issued").is_empty(), "{log}");
    world.agent.send(world.svid().await?);
    world.server.wait_ready().await?;
    world.wait_generation(2).await
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_changes_nothing() -> Result<()> {
    let world = World::start().await?;
    let good = Svid::of(&world.certificates, "server", SERVER)?;
    let other = world.svid().await?;
    let with = |change: &dyn Fn(&mut Svid)| {
        let mut svid = good.clone();
        change(&mut svid);
        Say::Svid(Box::new(svid))
    };
    let huge = Bytes::from(vec![0; 5 << 20]);
    let table: [(&str, Say, &str); 8] = [
        ("no certificate", Say::Bytes(Bytes::new()), "it has no certificate"),
        ("no message", Say::Bytes(Bytes::from_static(b"\xff\xff\xff")), "decode"),
        ("a huge one", Say::Bytes(huge), "too large"),
        ("garbage", with(&|svid| svid.svids[0].chain = b"garbage".to_vec()), "not a valid certificate"),
        ("another ID", with(&|svid| svid.svids[0].id = CLIENT.to_owned()), "its certificate is not one of"),
        (
            "another key",
            with(&|svid| svid.svids[0].key = other.svids[0].key.clone()),
            "does not belong to the first certificate",
        ),
        ("no key", with(&|svid| svid.svids[0].key.clear()), "it contains no key"),
        ("no bundle", with(&|svid| svid.svids[0].bundle.clear()), "the bundle for example.org"),
    ];
    for (what, say, wrong) in table {
        world.agent.say(say);
        world.wait_readiness(200, wrong).await.context(what)?;
        world.get("client").await.context(what)?;
    }
    let log = world.server.log();
    for line in [log.containing("PRIVATE KEY"), log.containing("panicked")] {
        ensure!(line.is_empty(), "{line:?}");
    }
    // As nothing had happened.
    world.agent.send(good);
    wait_for("health", PATIENCE, async || {
        let (status, text) = world.readiness().await?;
        ensure!(status == 200 && !text.contains("SPIFFE") && !text.contains("not used"), "{text}");
        Ok(())
    })
    .await?;
    ensure!(world.server.metric("xds_tls_generation{listener=\"xds\"}").await? == 1);
    Ok(())
}

#[tokio::test]
async fn the_admin_port_has_the_certificate_too_and_a_policy_judges_by_trust_domains() -> Result<()> {
    let policy = tempfile_policy()?;
    let world =
        World::start_with(&[format!("--access-policy={}", policy.path().join("access.yaml").display())])
            .await?;
    world.certificates.issue("ada", &["spiffe://example.org/ada"]).await?;
    world.agent.send(world.svid().await?);
    world.server.wait_ready().await?;
    let status = async |name: &str| {
        let admin = format!("https://localhost:{}", world.server.admin().port());
        let flags = world.certificates.flags_of(name);
        let mut args = vec!["status", "--admin", &admin];
        args.extend(flags.iter().map(String::as_str));
        cli(&args).await
    };
    status("ada").await.with_context(|| world.server.log().to_string())?;
    let refused = format!("{:#}", status("client").await.expect_err("a workload is no principal"));
    ensure!(refused.contains("401"), "{refused}");
    Ok(())
}

fn tempfile_policy() -> Result<ConfigDir> {
    let policy = ConfigDir::new()?;
    let ada = "principals:\n- { name: ada, role: admin, certificates: [{ spiffe: \"spiffe://example.org/ada\" }] }\n";
    fs::write(policy.path().join("access.yaml"), ada)?;
    Ok(policy)
}

#[tokio::test]
async fn a_certificate_without_a_dns_name_is_warned_of() -> Result<()> {
    let world = World::start_with(&[]).await?;
    world.certificates.issue("server", &[SERVER]).await?;
    world.agent.send(Svid::of(&world.certificates, "server", SERVER)?);
    world.server.wait_ready().await?;
    let log = world.server.log();
    ensure!(log.containing("has no DNS name, so gRPC clients refuse it").len() == 1, "{log}");
    Ok(())
}

#[tokio::test]
async fn the_endpoint_is_that_of_the_environment_if_the_flag_has_no_value() -> Result<()> {
    let mut agent = SpiffeAgent::new()?;
    agent.start()?;
    let setup = Setup::new()?.probe().env("SPIFFE_ENDPOINT_SOCKET", &agent.endpoint());
    let server = Server::start_with(setup.arg("--spiffe-endpoint")).await?;
    wait_for("the call", PATIENCE, async || {
        ensure!(agent.n_calls() > 0, "{}", server.log());
        Ok(())
    })
    .await
}

const SERVER: &str = "spiffe://example.org/xds";
const CLIENT: &str = "spiffe://example.org/edge-1";
const CONNECTED: &str = "cluster.xds_cluster.upstream_cx_total";
/// Of gRPC.
const PERMISSION_DENIED: u32 = 7;
