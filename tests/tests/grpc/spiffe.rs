//! Certificates of a SPIFFE agent, with real clients: the agent replaces them, goes away, comes back, refuses, and sends nonsense.

use std::fs;
use std::ops::Deref;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::config::ConfigDir;
use xds_tests::http::Connection;
use xds_tests::secured::{Kind, Secured};
use xds_tests::server::{Server, Setup, cli};
use xds_tests::spiffe_agent::{Say, SpiffeAgent, Svid};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::Library;

/// A server whose certificates come from an agent, and clients with certificates of the same authority.
struct World {
    agent: SpiffeAgent,
    secured: Secured,
}

impl Deref for World {
    type Target = Secured;

    fn deref(&self) -> &Secured {
        &self.secured
    }
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
        let mut agent = SpiffeAgent::new()?;
        agent.start()?;
        let endpoint = format!("--spiffe-endpoint={}", agent.endpoint());
        let prepare = async |certificates: &CertificateFiles, _: &ConfigDir, setup: Setup| {
            certificates.issue("client", &[CLIENT]).await?;
            let setup = setup.probe().fixed_xds_port()?.arg(endpoint);
            Ok(flags.iter().fold(setup, Setup::arg))
        };
        Ok(Self { agent, secured: Secured::begin("all.yaml", prepare).await? })
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
    async fn get_as(&self, name: &str) -> Result<String> {
        self.get(&self.certificates.flags_of(name)).await
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
    world.switch()?;
    wait_for("the change", PATIENCE, async || {
        let answer = connection.get("/").await?.success()?.text();
        ensure!(answer.contains("second"), "{answer}");
        Ok(())
    })
    .await?;
    ensure!(envoy.stat(CONNECTED).await? == connected, "the stream was on another connection");
    // Another client gets the new certificate; the authority is the same.
    world.get_as("client").await.map(drop)
}

#[tokio::test]
async fn grpcio_is_served_with_a_certificate_of_the_agent() -> Result<()> {
    let world = World::start().await?;
    let Some(client) = world.client(Kind::Grpc(Library::Grpcio), &[]).await? else { return Ok(()) };
    let requests = client.requests(&world, &world.first).await?;
    world.agent.send(world.svid().await?);
    world.wait_generation(2).await?;
    world.switch()?;
    requests.wait_backend(&world.second).await
}

#[tokio::test]
async fn clients_of_a_trust_domain_are_known_while_the_agent_says_so() -> Result<()> {
    let world = World::start().await?;
    let partner = CertificateFiles::new().await?;
    partner.issue("client", &["spiffe://partner.org/edge"]).await?;
    // Its authority is the server's own; only the client's certificate is foreign.
    let get = async || {
        let mut flags = partner.client_flags();
        flags[0] = format!("--ca={}", world.certificates.path("ca.crt"));
        world.get(&flags).await
    };
    world.get_as("client").await?;
    ensure!(get().await.is_err(), "a foreign trust domain is served");
    // A certificate without an ID has no authority here.
    world.certificates.issue("plain", &["edge-1"]).await?;
    ensure!(world.get_as("plain").await.is_err(), "a certificate without an ID is served");

    let federated =
        Svid::of(&world.certificates, "server", SERVER)?.federated_with("spiffe://partner.org", &partner)?;
    world.agent.send(federated);
    world.wait_generation(2).await?;
    get().await.with_context(|| world.server.log().to_string())?;
    world.get_as("client").await?;
    world.agent.send(Svid::of(&world.certificates, "server", SERVER)?);
    world.wait_generation(3).await?;
    ensure!(get().await.is_err(), "a trust domain that was taken out is served");
    world.get_as("client").await.map(drop)
}

#[tokio::test]
async fn a_server_whose_agent_is_away_keeps_its_certificate_until_it_ends_and_comes_back() -> Result<()> {
    let mut world = World::start_with(&[]).await?;
    world.wait_readiness(503, "there is no usable certificate").await?;
    ensure!(world.get_as("client").await.is_err(), "served without a certificate");
    world.wait_metric("xds_tls_handshake_failures_total{listener=\"xds\",reason=\"not-ready\"}", 1).await?;

    world.agent.send(world.svid_for("15s").await?);
    world.server.wait_ready().await?;
    world.get_as("client").await?;
    world.agent.stop()?;
    world.wait_readiness(200, "tls: ").await?;
    world.get_as("client").await.context("with the last certificate")?;
    world.wait_metric("xds_spiffe_failures_total{reason=\"away\"}", 1).await?;
    ensure!(world.server.metric("xds_spiffe_healthy").await? == 0);
    world.wait_readiness(503, "there is no usable certificate").await?;
    // A client counts whole seconds, and may take it until the second is over.
    wait_for("the refusal by a client", PATIENCE, async || {
        ensure!(world.get_as("client").await.is_err(), "served with a certificate that has ended");
        Ok(())
    })
    .await?;

    world.agent.send(world.svid().await?);
    world.agent.start()?;
    world.server.wait_ready().await?;
    world.get_as("client").await?;
    ensure!(world.server.metric("xds_spiffe_healthy").await? == 1);
    Ok(())
}

#[tokio::test]
async fn a_server_without_an_identity_keeps_its_certificate_and_is_not_ready() -> Result<()> {
    let world = World::start().await?;
    world.agent.say(Say::Status(PERMISSION_DENIED, "no identity issued"));
    world.wait_readiness(503, "there is no usable certificate").await?;
    world.get_as("client").await.context("with the last certificate")?;
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
        world.wait_readiness(200, "tls: ").await.context(what)?;
        wait_for("the reason", PATIENCE, async || {
            ensure!(!world.server.log().containing(wrong).is_empty(), "{what}: {}", world.server.log());
            Ok(())
        })
        .await?;
        world.get_as("client").await.context(what)?;
    }
    let log = world.server.log();
    for line in [log.containing("PRIVATE KEY"), log.containing("panicked")] {
        ensure!(line.is_empty(), "{line:?}");
    }
    // As nothing had happened.
    world.agent.send(good);
    wait_for("health", PATIENCE, async || {
        let (status, text) = world.readiness().await?;
        ensure!(status == 200 && !text.contains("tls: "), "{text}");
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
