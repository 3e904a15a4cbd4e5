//! Random good and bad changes to real clients that lose their connections and start anew. At each quiet point every client has what the
//! server says that it has, lacks nothing but what it rejects, and sends its requests where the server explains.
//!
//! `XDS_SOAK_MINUTES=30` goes on for so long, `XDS_TESTS_SEED` repeats a series.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::proxy::{Link, Proxy};
use crate::random::Random;
use crate::server::Server;
use crate::wait::wait_for;

/// How long the search for several bad resources of several types, and a reconnect, may take on a busy machine.
const QUIET: Duration = Duration::from_secs(60);

/// The state of a resource.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Its version, which the client shows.
    pub version: u64,
    /// Clients reject it.
    pub is_bad: bool,
}

/// The states of some resources of each kind, by kind and number.
#[derive(Debug)]
pub struct States<K> {
    states: BTreeMap<(K, usize), State>,
    kinds: Vec<K>,
    n: usize,
    newest: u64,
}

impl<K: Copy + Debug + Ord> States<K> {
    /// The first version of `n` resources of each kind.
    #[must_use]
    pub fn new(kinds: &[K], n: usize) -> Self {
        let all = kinds.iter().flat_map(|kind| (0..n).map(move |i| (*kind, i)));
        let states = all.map(|key| (key, State { version: 1, is_bad: false })).collect();
        Self { states, kinds: kinds.to_vec(), n, newest: 1 }
    }

    /// The state of a resource.
    #[must_use]
    pub fn of(&self, kind: K, i: usize) -> State {
        self.states[&(kind, i)]
    }

    /// Returns `true` if all these are good.
    #[must_use]
    pub fn are_good(&self, resources: &[(K, usize)]) -> bool {
        resources.iter().all(|key| !self.states[key].is_bad)
    }

    /// All of them, by kind and number.
    pub fn all(&self) -> impl Iterator<Item = (K, usize, State)> {
        self.states.iter().map(|((kind, i), state)| (*kind, *i, *state))
    }

    /// Gives some resources of a kind a new version, of which at most one is bad. Says what was done.
    fn change(&mut self, random: &mut Random) -> String {
        let kind = self.kinds[random.within(0..self.kinds.len() as u64) as usize];
        let changed = random.within(1..1 << self.n);
        let chosen: Vec<usize> = (0..self.n).filter(|i| changed & (1 << i) != 0).collect();
        let bad = (random.within(0..5) < 2).then(|| chosen[random.within(0..chosen.len() as u64) as usize]);
        self.newest += 1;
        for i in &chosen {
            self.states.insert((kind, *i), State { version: self.newest, is_bad: bad == Some(*i) });
        }
        format!("{kind:?} {chosen:?} change to {}, {bad:?} is bad", self.newest)
    }

    /// Gives every bad resource a new version that is good.
    fn correct(&mut self) -> String {
        self.newest += 1;
        for state in self.states.values_mut().filter(|state| state.is_bad) {
            *state = State { version: self.newest, is_bad: false };
        }
        format!("all are good in {}", self.newest)
    }
}

/// A server, and the resources that it serves.
pub trait World {
    /// The kinds of its resources.
    type Kind: Copy + Debug + Ord;

    /// The states of its resources.
    fn states(&mut self) -> &mut States<Self::Kind>;

    /// Has the server serve the states.
    ///
    /// # Errors
    ///
    /// If the files cannot be written.
    fn publish(&mut self) -> Result<()>;

    /// The server, which keeps its ports when it starts anew.
    fn server(&mut self) -> &mut Server;
}

/// A real client. Its name is that of its node.
pub trait Client: Display {
    /// The world that it lives in.
    type World: World;

    /// Its link to the server.
    fn link(&self) -> &Proxy;

    /// Ends the client and starts it anew.
    ///
    /// # Errors
    ///
    /// If it does not start.
    fn start_anew(&mut self) -> impl Future<Output = Result<()>>;

    /// Compares what it has with what the server serves and with what the server says of it.
    ///
    /// # Errors
    ///
    /// If they differ.
    fn check(&self, world: &Self::World) -> impl Future<Output = Result<()>>;

    /// What it wrote.
    fn log(&self) -> String;
}

/// A link to the server, and the bootstrap changed so that the client uses it. `write` writes an address as the bootstrap does.
///
/// # Errors
///
/// If the address of the server is not in the bootstrap.
pub async fn linked(
    server: &Server,
    bootstrap: &str,
    write: impl Fn(std::net::SocketAddr) -> String,
) -> Result<(Proxy, String)> {
    let link = Proxy::start(server.xds()).await?;
    let theirs = write(server.xds());
    ensure!(bootstrap.contains(&theirs), "{theirs} is not in {bootstrap}");
    let bootstrap = bootstrap.replace(&theirs, &write(link.addr()));
    Ok((link, bootstrap))
}

/// What the server says of a node.
#[derive(Debug)]
pub struct Said(Value);

impl Said {
    /// Asks the server.
    ///
    /// # Errors
    ///
    /// If it does not know the node.
    pub async fn of(server: &Server, node: &str) -> Result<Self> {
        server.get_json(&format!("/v1/nodes/{node}")).await.map(Self)
    }

    /// The names that the node rejects of a type.
    ///
    /// # Errors
    ///
    /// If the server does not know yet what the node has of it, or has not sent everything that does not wait for a correction.
    pub fn rejected(&self, type_url: &str) -> Result<BTreeSet<&str>> {
        let of_type = self.of_type(type_url);
        let is_stale = of_type["status"] == "STALE" && self.held_back(type_url).next().is_none();
        let waits = self.held_back(type_url).find(|held| !is_correction(held));
        ensure!(of_type["unknownCount"].is_null() && !is_stale, "{type_url}: {of_type:#}");
        ensure!(waits.is_none(), "{type_url}: {of_type:#}, held back: {waits:?}");
        Ok(items(&of_type["rejected"]).filter_map(|one| one["name"].as_str()).collect())
    }

    /// Returns `true` if the node goes on with an older version of a resource until what the new one leads to is corrected.
    #[must_use]
    pub fn awaits_correction(&self, type_url: &str, name: &str) -> bool {
        self.held_back(type_url).any(|held| held["name"] == name && is_correction(held))
    }

    fn held_back(&self, type_url: &str) -> impl Iterator<Item = &Value> {
        let all = items(&self.0["streams"]).flat_map(|stream| items(&stream["heldBack"]));
        all.filter(move |held| held["type"] == type_url)
    }

    /// All that it says about a type.
    #[must_use]
    pub fn of_type(&self, type_url: &str) -> &Value {
        &self.0["types"][type_url]
    }
}

/// Returns `true` if something is held back until something that the node rejects changes.
fn is_correction(held_back: &Value) -> bool {
    held_back["waitsFor"]["what"] == "change"
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The address that the server explains a request of a node to go to.
///
/// # Errors
///
/// If it explains that the request goes nowhere, or to several addresses.
pub async fn explained(server: &Server, node: &str, request: Value) -> Result<String> {
    let answer = server.post("/v1/explain", &json!({"node": node, "request": request})).await?;
    let outcomes = &answer["explanations"][0]["outcomes"];
    let mut addresses = items(outcomes).flat_map(|outcome| items(&outcome["endpoints"]));
    let address = addresses.next().and_then(|endpoint| endpoint["address"].as_str());
    let address = address.with_context(|| format!("{request} goes nowhere: {answer:#}"))?.to_owned();
    ensure!(addresses.next().is_none(), "{request} goes to several addresses: {outcomes:#}");
    Ok(address)
}

/// A step of the series.
#[derive(Clone, Copy, Debug)]
enum Step {
    Change,
    TwoChanges,
    Correct,
    Reconnect,
    StartAnew,
    RestartServer,
}

fn step(random: &mut Random) -> Step {
    match random.within(0..40) {
        0..19 => Step::Change,
        19..25 => Step::TwoChanges,
        25..31 => Step::Correct,
        31..36 => Step::Reconnect,
        36..39 => Step::StartAnew,
        _ => Step::RestartServer,
    }
}

/// The series of changes of a run that does not choose one: a change of the code fails by its own fault.
const SEED: u64 = 20_261_130;

/// Changes the world for two minutes, or as long as `XDS_SOAK_MINUTES` says, and checks every client after each step.
///
/// # Errors
///
/// If a client does not have what it should, or what the server says, [some time](QUIET) after a step.
#[expect(clippy::print_stdout, reason = "whoever reads the failure needs the steps")]
pub async fn soak<W: World, C: Client<World = W>>(mut world: W, mut clients: Vec<C>) -> Result<()> {
    let mut random = Random::from_env_or(SEED)?;
    let minutes: u64 = std::env::var("XDS_SOAK_MINUTES").map_or(Ok(2), |minutes| minutes.parse())?;
    ensure!(!clients.is_empty(), "no client is there");
    quiet(&world, &clients).await.context("at first")?;
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut n_steps = 0;
    while Instant::now() < end {
        let step = step(&mut random);
        let chosen = random.within(0..clients.len() as u64) as usize;
        let said = happen(step, &mut world, &mut clients[chosen], &mut random).await?;
        n_steps += 1;
        println!("{n_steps}: {said}");
        quiet(&world, &clients).await.with_context(|| format!("after step {n_steps}: {said}"))?;
    }
    world.states().correct();
    world.publish()?;
    quiet(&world, &clients).await.context("in the end")?;
    let fleet: Value = world.server().get_json("/v1/fleet").await?;
    println!("{n_steps} steps; {}", fleet["states"]);
    Ok(())
}

/// Makes a step, and says what it was.
async fn happen<W: World, C: Client<World = W>>(
    step: Step,
    world: &mut W,
    client: &mut C,
    random: &mut Random,
) -> Result<String> {
    let mut change = |world: &mut W| {
        let said = world.states().change(random);
        world.publish().map(|()| said)
    };
    Ok(match step {
        Step::Change => change(world)?,
        Step::TwoChanges => format!("{}, then {}", change(world)?, change(world)?),
        Step::RestartServer => {
            world.server().restart().await?;
            "the server starts anew".to_owned()
        }
        Step::Correct => {
            let said = world.states().correct();
            world.publish()?;
            said
        }
        Step::Reconnect => {
            client.link().set(Link::Cut);
            let said = change(world)?;
            client.link().set(Link::Open);
            format!("{client} loses its connection, and {said}")
        }
        Step::StartAnew => {
            client.start_anew().await?;
            format!("{client} starts anew")
        }
    })
}

/// Waits until every client has everything that it does not reject, and the server says so.
async fn quiet<W: World, C: Client<World = W>>(world: &W, clients: &[C]) -> Result<()> {
    for client in clients {
        wait_for("a client that has what is said of it", QUIET, async || client.check(world).await)
            .await
            .with_context(|| format!("{client}\n{}", client.log()))?;
    }
    Ok(())
}
