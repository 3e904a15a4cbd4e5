//! Several rollouts of one server at the same time, under the requests of one real client. Each has a Gateway, a route, two Services and a
//! fault of its own.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, interval_at};
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, TlsFront};
use xds_tests::documents::{World, service, service_with};
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::wait::{PATIENCE, wait_for};

use crate::rollouts::clients::{Client, Place, Running};
use crate::rollouts::support::start;

/// What a canary does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Canary {
    Healthy,
    /// Connections have been refused from the start.
    Dead,
    /// Every twentieth request fails.
    FailsSome,
    /// It speaks TLS, and clients speak plaintext.
    SpeaksTls,
    /// It speaks TLS with a certificate that clients do not trust.
    IsNotTrusted,
    /// It speaks plaintext, and clients speak TLS.
    SpeaksPlaintext,
    /// It dies while it is measured, and is back after [`DEAD`].
    ComesBack,
    /// It is dead and alive in turns, [`TURN`] each, from the start.
    Flaps,
    /// It has an endpoint in each of two zones, of which one is dead.
    DeadInOneZone,
    /// Nobody makes a request.
    Unused,
}

/// What became of a rollout.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) rollout: Value,
    /// The time from the fault until the end. A fault from the start counts from the time when the canary has its weight.
    pub(crate) after: Duration,
    pub(crate) n: u64,
    pub(crate) n_lost: u64,
}

/// Plays a rollout for each canary; `None` if there is no such client here.
pub(crate) async fn play(client: Client, canaries: &[Canary]) -> Result<Option<Vec<Outcome>>> {
    let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
    let mut world = World::start_with(setup, &[]).await?;
    let trusted = Authority::new()?;
    let scenes = try_join_all(canaries.iter().map(|canary| Scene::start(*canary, &trusted))).await?;
    let mut documents = trusted.config_map("ca");
    for scene in &scenes {
        world.ports(&[&scene.name()])?;
        documents += &scene.documents(client)?;
    }
    world.write("documents.yaml", &documents)?;
    let Some(running) = client.start(&world).await? else { return Ok(None) };
    let playing = scenes.into_iter().map(|scene| scene.play(&world, client, &running));
    try_join_all(playing).await.map(Some)
}

/// One rollout.
struct Scene {
    canary: Canary,
    stable: Backend,
    endpoint: Backend,
    /// In front of the endpoint, if that speaks TLS.
    front: Option<TlsFront>,
    /// Since when there is something wrong, and before that, since when the canary has its weight.
    since: Instant,
}

impl Scene {
    async fn start(canary: Canary, trusted: &Authority) -> Result<Self> {
        let stable = Backend::start("stable").await?;
        // While it is dead, nobody else takes its port.
        let endpoint = Backend::start_at("canary", free_addr()?).await?;
        let front = match canary {
            Canary::SpeaksTls => {
                Some(TlsFront::start(&trusted.issue(&[SERVER_NAME])?, endpoint.addr()).await?)
            }
            Canary::IsNotTrusted => {
                Some(TlsFront::start(&Authority::new()?.issue(&[SERVER_NAME])?, endpoint.addr()).await?)
            }
            Canary::Dead => {
                endpoint.stop();
                None
            }
            Canary::FailsSome => {
                endpoint.fail(0.05);
                None
            }
            Canary::Healthy
            | Canary::SpeaksPlaintext
            | Canary::ComesBack
            | Canary::Flaps
            | Canary::DeadInOneZone
            | Canary::Unused => None,
        };
        Ok(Self { canary, stable, endpoint, front, since: Instant::now() })
    }

    fn name(&self) -> String {
        format!("{:?}", self.canary).to_lowercase()
    }

    fn host(&self) -> String {
        format!("{}.example.com", self.name())
    }

    fn documents(&self, client: Client) -> Result<String> {
        let name = self.name();
        let addr = self.front.as_ref().map_or(self.endpoint.addr(), |front| front.addr);
        let mut endpoints = vec![(addr, "north")];
        if self.canary == Canary::DeadInOneZone {
            endpoints.push((free_addr()?, "south"));
        }
        let canary = format!("{name}-canary");
        let mut text = service("default", &format!("{name}-stable"), 8080, self.stable.addr());
        text += &service_with("default", &canary, 8080, &[], "");
        text.extend(endpoints.into_iter().map(|(addr, zone)| slice(&canary, addr, zone)));
        if matches!(self.canary, Canary::IsNotTrusted | Canary::SpeaksPlaintext) {
            text += &format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
                 targetRefs: [{{group: '', kind: Service, name: {canary}}}]\n  validation: {{hostname: {SERVER_NAME}, \
                 caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}\n---\n"
            );
        }
        let (kind, host) = (client.route_kind(), self.host());
        Ok(text
            + &format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec:\n  gatewayClassName: \
                 xds-server\n  listeners: [{{name: http, protocol: HTTP, port: {{{name}}}}}]\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  parentRefs: \
                 [{{name: {name}}}]\n  hostnames: [{host}]\n  rules:\n  - backendRefs: [{{name: {name}-stable, port: 8080, \
                 weight: 100}}, {{name: {canary}, port: 8080, weight: 0}}]\n---\n"
            ))
    }

    fn rollout(&self, client: Client) -> Value {
        let name = self.name();
        let analysis = match self.canary {
            Canary::Unused => json!({"interval": "2s", "minRequests": 0, "inconclusiveLimit": 1}),
            Canary::Healthy
            | Canary::Dead
            | Canary::FailsSome
            | Canary::SpeaksTls
            | Canary::IsNotTrusted
            | Canary::SpeaksPlaintext
            | Canary::ComesBack
            | Canary::Flaps
            | Canary::DeadInOneZone => json!({"interval": "20s", "minRequests": 10}),
        };
        json!({
            "route": {"kind": client.route_kind(), "namespace": "default", "name": name, "rule": "0"},
            "stable": format!("{name}-stable:8080"), "canary": format!("{name}-canary:8080"),
            "steps": [{"setWeight": 20}, {"analysis": analysis}],
        })
    }

    async fn play(mut self, world: &World, client: Client, running: &Running) -> Result<Outcome> {
        let (server, place) = (&world.server, Place::new(world, &self.name(), &self.host())?);
        let load = if self.canary == Canary::Unused {
            running.follow(&place).await?;
            None
        } else {
            Some(running.load(&place).await?)
        };
        let id = start(server, &self.rollout(client)).await?;
        let path = format!("/v1/rollouts/{id}");
        server.wait_json(&path, |one| one["step"] == 2).await?;
        self.since = Instant::now();
        let rollout = tokio::select! {
            rollout = wait_end(server, &path) => rollout?,
            failed = self.misbehave() => match failed? {},
        };
        let after = self.since.elapsed();
        let (n, n_lost) = match load {
            Some(load) => load.stop().await?,
            None => (0, 0),
        };
        self.check(&rollout, running, &place).await.with_context(|| format!("{rollout:#}"))?;
        Ok(Outcome { rollout, after, n, n_lost })
    }

    /// Does what this canary does in the course of time.
    async fn misbehave(&mut self) -> Result<Infallible> {
        match self.canary {
            Canary::ComesBack => {
                wait_for("requests of the canary", PATIENCE, async || {
                    ensure!(self.endpoint.n_requests() >= 10, "{:?}", self.endpoint);
                    Ok(())
                })
                .await?;
                let mut end = interval_at(Instant::now() + DEAD, DEAD);
                self.endpoint.stop();
                self.since = Instant::now();
                end.tick().await;
                self.revive().await?;
            }
            Canary::Flaps => {
                let mut turns = interval_at(Instant::now() + TURN, TURN);
                loop {
                    self.endpoint.stop();
                    turns.tick().await;
                    self.revive().await?;
                    turns.tick().await;
                }
            }
            Canary::Healthy
            | Canary::Dead
            | Canary::FailsSome
            | Canary::SpeaksTls
            | Canary::IsNotTrusted
            | Canary::SpeaksPlaintext
            | Canary::DeadInOneZone
            | Canary::Unused => {}
        }
        pending().await
    }

    async fn revive(&mut self) -> Result<()> {
        let addr = self.endpoint.addr();
        self.endpoint =
            wait_for("the port", PATIENCE, async || Backend::start_at("canary", addr).await).await?;
        Ok(())
    }

    /// Waits until all requests go where the rollout says, unless it has stopped on the way.
    async fn check(&self, rollout: &Value, running: &Running, place: &Place) -> Result<()> {
        if rollout["phase"] == "Paused" {
            return Ok(());
        }
        let (weights, backend) = if rollout["phase"] == "Succeeded" {
            (json!({"stable": 0, "canary": 100}), "canary")
        } else {
            (json!({"stable": 100, "canary": 0}), "stable")
        };
        ensure!(rollout["weights"] == weights, "weights");
        if matches!(self.canary, Canary::SpeaksTls | Canary::IsNotTrusted | Canary::SpeaksPlaintext) {
            ensure!(self.endpoint.n_requests() == 0, "{:?}", self.endpoint);
        }
        running.expect_all_from(place, backend).await
    }
}

/// Waits until a rollout waits for nobody any more, or for people.
async fn wait_end(server: &Server, path: &str) -> Result<Value> {
    wait_for("the end of the rollout", 2 * PATIENCE, async || {
        let rollout = server.get_json(path).await?;
        let phase = rollout["phase"].as_str().unwrap_or_default();
        ensure!(["Succeeded", "Failed", "Aborted", "Paused"].contains(&phase), "{rollout:#}");
        Ok(rollout)
    })
    .await
}

/// An endpoint of a Service, as a document.
fn slice(service: &str, addr: SocketAddr, zone: &str) -> String {
    let (ip, port) = (addr.ip(), addr.port());
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-{zone}, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{{name: main, port: {port}}}]\n\
         endpoints: [{{addresses: [{ip}], zone: {zone}}}]\n---\n"
    )
}

/// The name in the certificates of canaries.
const SERVER_NAME: &str = "canary.example.com";
/// How long a canary is dead that comes back: too short for the early checks to be sure.
const DEAD: Duration = Duration::from_secs(1);
/// So long a canary that flaps is dead, and then alive.
const TURN: Duration = Duration::from_secs(1);
