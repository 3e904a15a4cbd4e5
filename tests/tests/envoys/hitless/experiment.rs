//! An experiment with one client, one order and one distance: changes are published one by one, or a few at once, and failed requests
//! are counted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use xds_tests::backend::Backend;
use xds_tests::certificates::{Authority, TlsFront};
use xds_tests::config;
use xds_tests::delay::Delay;
use xds_tests::envoy::Envoy;
use xds_tests::load::{HttpLoad, Tally};
use xds_tests::random::Random;
use xds_tests::server::{Server, Setup, free_addr};
use xds_tests::transitions::{LISTENERS, Outside, SERVER_NAME, State};
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::Worker;

use crate::hitless::client::{Client, Kind, NODE, PER_SECOND};
use crate::hitless::report::{Report, Step};

/// In which order the server sends what changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// References come first, removals last, and each when the client is ready for it.
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

/// The setting of an experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    pub(crate) client: Kind,
    pub(crate) order: Order,
    /// How long bytes take between client and server, in each direction.
    pub(crate) each_way: Duration,
    pub(crate) n_transitions: usize,
    /// True if the connection is cut in the middle of every step.
    pub(crate) is_cut: bool,
}

impl Experiment {
    /// Runs it with random changes; `None` if the toolchain of the client is missing.
    pub(crate) async fn run(self, random: &mut Random) -> Result<Option<Report>> {
        self.run_with(random, Changes::Random).await
    }

    /// Runs it separately for each kind of change, and again if that took too long. `None` if the toolchain of the client is missing.
    pub(crate) async fn time(self, random: &mut Random) -> Result<Option<Report>> {
        self.run_with(random, Changes::OfEachKind).await
    }

    /// A moment in the middle of the messages between client and server about a change.
    fn some_time(self, random: &mut Random) -> Duration {
        let most = 12 * u64::try_from(self.each_way.as_millis()).unwrap_or(u64::MAX / 12);
        Duration::from_millis(random.within(0..1 + most))
    }

    async fn run_with(self, random: &mut Random, changes: Changes) -> Result<Option<Report>> {
        let world = World::start(self).await?;
        let state = State::new(random, N_BACKENDS, self.client.n_cluster_names());
        world.publish(&state, "").await?;
        if let Kind::Grpc(library) = self.client {
            let bootstrap = config::grpc_bootstrap(world.delay.addr(), NODE);
            let Some(worker) = Worker::start(library, &bootstrap).await? else { return Ok(None) };
            let [front, side] = LISTENERS.map(|name| format!("xds:///{name}"));
            let channels = [worker.open(&front).await?, worker.open(&side).await?];
            let client = Client::Grpc { channels, holds: Vec::new() };
            let report = world.drive(client, state, random, changes).await;
            return report.with_context(|| worker.log().to_string()).map(Some);
        }
        let envoy = Envoy::start(&self.client.bootstrap(world.delay.addr()).await?).await?;
        envoy.wait_live().await?;
        let addrs = world.outside.ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        for name in LISTENERS {
            envoy.wait_listener(name).await?;
        }
        let load = HttpLoad::start(addrs, world.tls()?, PER_SECOND);
        let client = Client::Envoy { envoy: Box::new(envoy), load };
        world.drive(client, state, random, changes).await.map(Some)
    }
}

/// The changes that are made.
#[derive(Clone, Copy)]
enum Changes {
    Random,
    OfEachKind,
}

/// The server, the backends, and what is between server and client.
struct World {
    experiment: Experiment,
    server: Server,
    delay: Delay,
    backends: Vec<Backend>,
    authority: Authority,
    _secure_backends: Vec<TlsFront>,
    outside: Outside,
}

impl World {
    async fn start(experiment: Experiment) -> Result<Self> {
        let authority = Authority::new()?;
        let certificates = [authority.issue(&[SERVER_NAME])?, authority.issue(&[SERVER_NAME])?];
        let (mut backends, mut secure_backends) = (Vec::new(), Vec::new());
        for i in 0..N_BACKENDS {
            let backend = Backend::start(&format!("b{i}")).await?;
            secure_backends.push(TlsFront::start(&certificates[0], backend.addr()).await?);
            backends.push(backend);
        }
        let mut setup = Setup::new()?.arg("--log-level=info,xds_server::grpc=trace");
        if experiment.order == Order::Naive {
            setup = setup.arg("--naive-order");
        }
        let server = Server::start_with(setup).await?;
        server.wait_ready().await?;
        let delay = Delay::start(server.xds(), experiment.each_way).await?;
        let outside = Outside {
            ports: [free_addr()?.port(), free_addr()?.port()],
            backends: backends.iter().map(Backend::addr).collect(),
            secure_backends: secure_backends.iter().map(|front| front.addr).collect(),
            authority_pem: authority.pem(),
            certificates_pem: certificates.map(|issued| (issued.chain_pem().to_owned(), issued.key_pem())),
        };
        let _secure_backends = secure_backends;
        Ok(Self { experiment, server, delay, backends, authority, _secure_backends, outside })
    }

    fn tls(&self) -> Result<TlsConnector> {
        Ok(Arc::new(self.authority.client_config()?).into())
    }

    /// Publishes a configuration as a whole; `query` may ask to wait.
    async fn publish(&self, state: &State, query: &str) -> Result<()> {
        let resources = self.experiment.client.resources(state, &self.outside);
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

    /// Waits until the client uses the configuration and has said so: what comes before its first ACK is not held back.
    async fn wait_established(&self, client: &Client<'_>, state: &State) -> Result<()> {
        self.wait_uses(client, state).await.context("at first")?;
        self.wait_nothing_held().await
    }

    async fn drive(
        &self,
        mut client: Client<'_>,
        mut state: State,
        random: &mut Random,
        changes: Changes,
    ) -> Result<Report> {
        let mut report = Report::new(self.experiment);
        let driven = match changes {
            Changes::Random => self.make_transitions(&mut report, &mut client, &mut state, random).await,
            Changes::OfEachKind => self.time_transitions(&mut report, &client, &mut state, random).await,
        };
        let driven = driven.map(|()| report);
        driven.with_context(|| format!("{}\nserver:\n{}", client.log(), self.server.log()))
    }

    async fn make_transitions(
        &self,
        report: &mut Report,
        client: &mut Client<'_>,
        state: &mut State,
        random: &mut Random,
    ) -> Result<()> {
        self.wait_established(client, state).await?;
        client.end().await?;
        let n_wanted = self.experiment.n_transitions;
        let is_enough = |report: &Report| match self.experiment.order {
            Order::Phased => report.n_transitions() >= n_wanted,
            Order::Naive => {
                let n_more = if report.n_failed > 0 { n_wanted } else { n_wanted * MAX_NAIVE_RUNS };
                report.n_transitions() >= n_more
            }
        };
        while !is_enough(report) {
            client.begin().await?;
            let mut states = vec![state.clone()];
            let until_cut = self.experiment.is_cut.then(|| self.experiment.some_time(random));
            let (step, ()) = tokio::join!(self.make_step(&mut states, random), self.cut(until_cut));
            let step = step.with_context(|| format!("after {} steps", report.steps.len()))?;
            if let Some(last) = states.pop() {
                *state = last;
                states.push(state.clone());
            }
            self.wait_uses(client, state).await.with_context(|| format!("{step:?}"))?;
            let tally = client.end().await?;
            report.add(judge(self.experiment.client, step, &tally, &states, &self.names()));
        }
        Ok(())
    }

    /// Ends the client's connections after a while.
    async fn cut(&self, after: Option<Duration>) {
        if let Some(after) = after {
            tokio::time::sleep(after).await;
            self.delay.cut();
        }
    }

    /// Makes each kind of change alone, until it was accepted in time, but not more than [`MAX_TRIES`] times.
    async fn time_transitions(
        &self,
        report: &mut Report,
        client: &Client<'_>,
        state: &mut State,
        random: &mut Random,
    ) -> Result<()> {
        self.wait_established(client, state).await?;
        for transition in self.experiment.client.transitions() {
            for _ in 0..MAX_TRIES {
                // There may be too few clusters left.
                if !(0..MAX_CHOICES).any(|_| state.make(*transition, random, N_BACKENDS)) {
                    break;
                }
                let acked = self.publish_and_wait(state).await.with_context(|| format!("{transition:?}"))?;
                self.wait_uses(client, state).await.with_context(|| format!("{transition:?}"))?;
                report.add(Step::new(vec![*transition], acked));
                if acked <= report.bound(*transition) {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn wait_uses(&self, client: &Client<'_>, state: &State) -> Result<()> {
        client.wait_uses(self.experiment.client, state, &self.names()).await
    }

    fn names(&self) -> Vec<String> {
        self.backends.iter().map(|backend| backend.name().to_owned()).collect()
    }

    /// Makes one transition, or some in a row of which the client has not finished one when the next comes.
    async fn make_step(&self, states: &mut Vec<State>, random: &mut Random) -> Result<Step> {
        let n = if random.within(0..4) == 0 { random.within(2..4) } else { 1 };
        let mut transitions = Vec::new();
        let mut acked = Duration::ZERO;
        for i in 0..n {
            let Some(mut state) = states.last().cloned() else { break };
            transitions.push(state.change(random, self.experiment.client.transitions(), N_BACKENDS));
            states.push(state.clone());
            if i + 1 < n {
                self.publish(&state, "").await?;
                // A moment in the middle of the messages between client and server. There is no event to wait for.
                let pause_ms =
                    5 + random.within(0..1 + 6 * u64::try_from(self.experiment.each_way.as_millis())?);
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            } else {
                acked = self.publish_and_wait(&state).await.with_context(|| format!("{transitions:?}"))?;
            }
        }
        Ok(Step::new(transitions, acked))
    }

    /// Publishes a configuration and returns how long it took until the client had accepted it.
    async fn publish_and_wait(&self, state: &State) -> Result<Duration> {
        let began = Instant::now();
        // A stream of one cluster's endpoints ends with the cluster; who has accepted what is then seen by node only.
        let waits = if self.experiment.client.is_per_type() { "" } else { ACKED };
        self.publish(state, waits).await?;
        if waits.is_empty() {
            self.wait_nothing_held().await?;
        }
        let acked = began.elapsed();
        self.wait_nothing_held().await?;
        Ok(acked)
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
            // A client that has not been sent anything yet is still at the version before.
            let acked = &node["types"][config::CLUSTER]["versionAcked"];
            let snapshot = self.server.get_json(&format!("{path}/snapshot")).await?;
            let is_per_type = self.experiment.client.is_per_type();
            ensure!(!is_per_type || snapshot.to_string().contains(&acked.to_string()), "{acked} {node:#}");
            let may_be_missing = is_per_type && self.experiment.is_cut;
            ensure!(!may_be_missing || has_all_streams(streams, &snapshot), "{node:#}");
            Ok(())
        })
        .await
    }
}

/// Returns `true` if a client with a stream for each type and name has opened all of them. After a lost connection they come one by one.
fn has_all_streams(streams: &[Value], snapshot: &Value) -> bool {
    let types = snapshot["types"].as_object().into_iter().flatten();
    types.into_iter().all(|(type_url, of_type)| {
        // Every published one of these is in use.
        let is_one_each = [".ClusterLoadAssignment", ".RouteConfiguration", ".TypedExtensionConfig"]
            .iter()
            .any(|end| type_url.ends_with(end));
        let n_names = of_type["resources"].as_array().map_or(0, Vec::len);
        let n_streams = streams.iter().filter(|stream| stream["service"] == **type_url).count();
        n_streams >= if is_one_each { n_names } else { 1 }
    })
}

/// Counts what failed, and what was answered by a backend of none of the configurations.
fn judge(client: Kind, mut step: Step, tally: &Tally, states: &[State], names: &[String]) -> Step {
    for (target, counts) in tally {
        let good: BTreeSet<&str> =
            states.iter().flat_map(|state| state.answers(*target)).map(|i| names[i].as_str()).collect();
        let bad = counts.names.iter().filter(|(name, _)| !good.contains(name.as_str()));
        let n_misrouted: u64 = bad.map(|(_, n)| n).sum();
        let n_failed: u64 = counts.errors.values().sum();
        step.n_requests += counts.n_answered() + n_failed;
        let first_error = counts.first_error.as_deref();
        if first_error.is_some_and(|error| client.fails_by_itself(error)) && n_misrouted == 0 {
            step.n_failed_by_itself += n_failed;
            continue;
        }
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

/// So many random choices include one that makes a difference, if any does.
const MAX_CHOICES: usize = 1000;
/// How often a change is tried if the machine was busy with something else.
const MAX_TRIES: usize = 4;

/// How many times as long the naive order is given to lose something; by chance it may do well for a while.
const MAX_NAIVE_RUNS: usize = 5;
