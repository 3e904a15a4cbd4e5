//! One client, one order, one distance: changes are published one after the other, or a few at once, and requests are counted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::json;
use xds_tests::backend::Backend;
use xds_tests::config;
use xds_tests::delay::Delay;
use xds_tests::envoy::Envoy;
use xds_tests::load::{HttpLoad, Tally};
use xds_tests::random::Random;
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::transitions::{LISTENERS, State};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::Worker;

use crate::client::{Client, Kind, NODE, PER_SECOND};
use crate::report::{Report, Step};

/// In which order the server sends what changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// What is referred to first, removals last, and each when the client is ready for it.
    Phased,
    /// Everything at once.
    Naive,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Phased => "phased",
            Self::Naive => "naive",
        })
    }
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    pub(crate) client: Kind,
    pub(crate) order: Order,
    /// How long bytes take between client and server, in each direction.
    pub(crate) each_way: Duration,
    pub(crate) n_transitions: usize,
}

impl Experiment {
    /// Runs it; `None` if the toolchain of the client is missing.
    pub(crate) async fn run(self, random: &mut Random) -> Result<Option<Report>> {
        let world = World::start(self).await?;
        let state = State::new(random, N_BACKENDS);
        world.publish(&state, "").await?;
        if let Kind::Grpc(library) = self.client {
            let bootstrap = config::grpc_bootstrap(world.delay.addr(), NODE);
            let Some(worker) = Worker::start(library, &bootstrap).await? else { return Ok(None) };
            let [front, side] = LISTENERS.map(|name| format!("xds:///{name}"));
            let channels = [worker.open(&front).await?, worker.open(&side).await?];
            let client = Client::Grpc { channels, holds: Vec::new() };
            let report = world.drive(client, state, random).await;
            return report.with_context(|| worker.log().to_string()).map(Some);
        }
        let envoy = Envoy::start(&self.client.bootstrap(world.delay.addr()).await?).await?;
        envoy.wait_live().await?;
        let addrs = world.ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        for name in LISTENERS {
            envoy.wait_listener(name).await?;
        }
        let load = HttpLoad::start(addrs, PER_SECOND);
        world.drive(Client::Envoy { envoy: Box::new(envoy), load }, state, random).await.map(Some)
    }
}

/// The server, the backends, and what is between server and client.
struct World {
    experiment: Experiment,
    server: Server,
    delay: Delay,
    backends: Vec<Backend>,
    ports: [u16; 2],
}

impl World {
    async fn start(experiment: Experiment) -> Result<Self> {
        let mut backends = Vec::new();
        for i in 0..N_BACKENDS {
            backends.push(Backend::start(&format!("b{i}")).await?);
        }
        let mut setup = Setup::new()?.arg("--log-level=xds_server=debug,xds_session=debug,info");
        if experiment.order == Order::Naive {
            setup = setup.arg("--naive-order");
        }
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        let delay = Delay::start(server.xds(), experiment.each_way).await?;
        let ports = [free_addr()?.port(), free_addr()?.port()];
        Ok(Self { experiment, server, delay, backends, ports })
    }

    /// Publishes a configuration as a whole; `query` may ask to wait.
    async fn publish(&self, state: &State, query: &str) -> Result<()> {
        let addrs: Vec<_> = self.backends.iter().map(Backend::addr).collect();
        let resources = self.experiment.client.resources(state, &addrs, self.ports);
        let body = json!({"resources": resources}).to_string();
        let path = format!("/v1/groups/default/resources{query}");
        let headers = [("content-type", "application/json")];
        let answer = self.server.request("PUT", &path, &headers, body).await?.success()?;
        if answer.status != StatusCode::OK {
            let node = self.server.get_json(&format!("/v1/nodes/{NODE}")).await?;
            anyhow::bail!("the client has not accepted it in time: {node:#}");
        }
        Ok(())
    }

    async fn drive(&self, mut client: Client<'_>, mut state: State, random: &mut Random) -> Result<Report> {
        let driven = self.make_transitions(&mut client, &mut state, random).await;
        driven.with_context(|| format!("{}\nserver:\n{}", client.log(), self.server.log()))
    }

    async fn make_transitions(
        &self,
        client: &mut Client<'_>,
        state: &mut State,
        random: &mut Random,
    ) -> Result<Report> {
        let names: Vec<_> = self.backends.iter().map(|backend| backend.name().to_owned()).collect();
        let mut report = Report::new(self.experiment);
        client.wait_uses(self.experiment.client, state, &names).await.context("at first")?;
        client.end().await?;
        let n_wanted = self.experiment.n_transitions;
        let is_enough = |report: &Report| match self.experiment.order {
            Order::Phased => report.n_transitions() >= n_wanted,
            Order::Naive => {
                let n_more = if report.n_failed > 0 { n_wanted } else { n_wanted * MAX_NAIVE_RUNS };
                report.n_transitions() >= n_more
            }
        };
        while !is_enough(&report) {
            client.begin().await?;
            let mut states = vec![state.clone()];
            let step = self.make_step(&mut states, random).await;
            let step = step.with_context(|| format!("after {} steps", report.steps.len()))?;
            if let Some(last) = states.pop() {
                *state = last;
                states.push(state.clone());
            }
            client
                .wait_uses(self.experiment.client, state, &names)
                .await
                .with_context(|| format!("{step:?}"))?;
            let tally = client.end().await?;
            report.add(judge(step, &tally, &states, &names));
        }
        Ok(report)
    }

    /// Makes one transition, or some in a row of which the client has not finished one when the next comes.
    async fn make_step(&self, states: &mut Vec<State>, random: &mut Random) -> Result<Step> {
        let n = if random.within(0..4) == 0 { random.within(2..4) } else { 1 };
        let mut transitions = Vec::new();
        let mut began = Instant::now();
        for i in 0..n {
            let Some(mut state) = states.last().cloned() else { break };
            transitions.push(state.change(random, N_BACKENDS));
            states.push(state.clone());
            if i + 1 < n {
                self.publish(&state, "").await?;
                // Somewhere in the middle of what the client and the server have to tell each other: nothing to wait for.
                let pause_ms =
                    5 + random.within(0..1 + 6 * u64::try_from(self.experiment.each_way.as_millis())?);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            } else {
                began = Instant::now();
                // A stream of one cluster's endpoints ends with the cluster; who has accepted what is then seen by node only.
                let waits = if let Kind::PerType(_) = self.experiment.client { "" } else { ACKED };
                self.publish(&state, waits).await?;
                if waits.is_empty() {
                    self.wait_nothing_held().await.with_context(|| format!("{transitions:?}"))?;
                }
            }
        }
        let acked = began.elapsed();
        self.wait_nothing_held().await.with_context(|| format!("{transitions:?}"))?;
        Ok(Step::new(transitions, acked))
    }

    /// Waits until nothing is held back from the client and it has accepted everything.
    async fn wait_nothing_held(&self) -> Result<()> {
        let path = format!("/v1/nodes/{NODE}");
        wait_for("a client that has everything", PATIENCE, async || {
            let node = self.server.get_json(&path).await?;
            let streams = node["streams"].as_array().context("no streams")?;
            let n_held: u64 = streams.iter().filter_map(|stream| stream["heldBackCount"].as_u64()).sum();
            ensure!(n_held == 0, "{node:#}");
            ensure!(node["status"] == "SYNCED", "{node:#}");
            // Who has not been sent anything yet is still at the version before.
            let acked = &node["types"][config::CLUSTER]["versionAcked"];
            let snapshot = self.server.get_json(&format!("{path}/snapshot")).await?;
            let is_per_type = matches!(self.experiment.client, Kind::PerType(_));
            ensure!(!is_per_type || snapshot.to_string().contains(&acked.to_string()), "{acked} {node:#}");
            Ok(())
        })
        .await
    }
}

/// Counts what failed, and what was answered by a backend of none of the configurations.
fn judge(mut step: Step, tally: &Tally, states: &[State], names: &[String]) -> Step {
    for (target, counts) in tally {
        let good: BTreeSet<&str> =
            states.iter().flat_map(|state| state.answers(*target)).map(|i| names[i].as_str()).collect();
        let bad = counts.names.iter().filter(|(name, _)| !good.contains(name.as_str()));
        let n_misrouted: u64 = bad.map(|(_, n)| n).sum();
        let n_failed: u64 = counts.errors.values().sum();
        step.n_requests += counts.n_answered() + n_failed;
        step.n_failed += n_failed;
        step.n_misrouted += n_misrouted;
        if n_failed + n_misrouted > 0 {
            step.faults.push(format!("{target}: {counts:?}, good are {good:?}"));
        }
    }
    step
}

/// Longer than any change takes, shorter than a request to the API may.
const ACKED: &str = "?wait=acked&timeout=25s";
/// They never go away.
const N_BACKENDS: usize = 6;

/// How many times as long the naive order is given to lose something; by chance it may do well for a while.
const MAX_NAIVE_RUNS: usize = 5;
