//! No request fails while documents change under a Gateway whose virtual hosts come on demand: random changes, a real Envoy at a distance.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::interval;
use xds_tests::delay::Delay;
use xds_tests::documents::World;
use xds_tests::envoy::Envoy;
use xds_tests::random::Random;
use xds_tests::server::{Setup, cli};

use crate::documents::on_demand::{gateway, get, table};

/// Backends that weights name, of which a change takes up some and drops others, and with them their clusters.
const BACKENDS: [&str; 4] = ["v1", "v2", "v3", "v4"];

/// Hosts that are requested all the time.
const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "c.example.com"];

const N_CHANGES: usize = 25;

/// How often each host is requested: more would only keep the machine from its work.
const PERIOD: Duration = Duration::from_millis(10);

/// The time of bytes in each direction between two zones of a region, and a bit.
const EACH_WAY: Duration = Duration::from_millis(20);

/// The backends that may answer for a host: those of the previous configuration, and those of the next one.
type Good = BTreeMap<String, BTreeSet<String>>;

/// A route for a host to some of the backends.
fn route(name: &str, host: &str, weights: [u64; 4]) -> String {
    let backends: Vec<String> = BACKENDS
        .iter()
        .zip(weights)
        .filter(|(_, weight)| *weight > 0)
        .map(|(backend, weight)| format!("{{name: {backend}, port: 8080, weight: {weight}}}"))
        .collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  parentRefs: [{{name: web}}]\n  \
         hostnames: ['{host}']\n  rules: [{{backendRefs: [{}]}}]\n---\n",
        backends.join(", ")
    )
}

/// Weights of which at least one is not zero.
fn weights(random: &mut Random) -> [u64; 4] {
    let mut weights = [(); 4].map(|()| random.within(0..2) * random.within(1..10));
    if weights == [0; 4] {
        weights[usize::try_from(random.within(0..4)).unwrap_or_default()] = 1;
    }
    weights
}

fn served(weights: [u64; 4]) -> BTreeSet<String> {
    BACKENDS
        .iter()
        .zip(weights)
        .filter(|(_, weight)| *weight > 0)
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// Requests one host until it is stopped, and returns how often.
async fn load(world: &World, host: &str, good: &RefCell<Good>, is_done: &Cell<bool>) -> Result<usize> {
    let (mut n, mut due) = (0, interval(PERIOD));
    while !is_done.get() {
        due.tick().await;
        let told = world.ask("web", &get(host)).await.with_context(|| format!("request {n} for {host}"))?;
        told.ensure_ok().with_context(|| format!("request {n} for {host}"))?;
        let good = good.borrow()[host].clone();
        ensure!(good.contains(&told.backend), "{host} was answered by {}, not by {good:?}", told.backend);
        n += 1;
    }
    Ok(n)
}

/// Applies documents, and waits until the Envoy has what they give, if it has asked for it.
async fn apply(world: &World, documents: &str) -> Result<()> {
    let headers = [("content-type", "application/yaml")];
    let path = "/v1/apply?wait=acked&timeout=25s";
    let answer = world.server.request("POST", path, &headers, documents.to_owned()).await?.success()?;
    ensure!(answer.status == 200, "not accepted in time: {}", answer.text());
    Ok(())
}

async fn change(world: &World, random: &mut Random, good: &RefCell<Good>) -> Result<()> {
    let mut now: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for host in HOSTS {
        now.insert(host, good.borrow()[host].clone());
    }
    for step in 0..N_CHANGES {
        let mut documents = String::new();
        for (host, name) in HOSTS.into_iter().zip(["a", "b", "c"]) {
            if random.within(0..2) == 0 {
                continue;
            }
            let weights = weights(random);
            documents += &route(name, host, weights);
            let next = served(weights);
            let either = now.insert(host, next.clone()).into_iter().flatten().chain(next).collect();
            good.borrow_mut().insert(host.to_owned(), either);
        }
        // A new host takes the place of another one.
        let further = format!("d{step}.example.com");
        documents += &route("d", &further, weights(random));
        apply(world, &documents).await.with_context(|| format!("change {step}: {documents}"))?;
        let told = world.ask("web", &get(&further)).await?;
        told.ensure_ok().with_context(|| format!("the first request for {further}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn no_request_fails_while_documents_change() -> Result<()> {
    let mut world = World::start_with(Setup::new()?.arg("--drain-clusters=0s"), &BACKENDS).await?;
    world.ports(&["web"])?;
    let routes = HOSTS.iter().zip(["a", "b", "c"]).map(|(host, name)| route(name, host, [1, 0, 0, 0]));
    world.write("gateway.yaml", &(gateway("on-demand") + &routes.collect::<String>()))?;
    world.server.wait_ready().await?;
    let delay = Delay::start(world.server.xds(), EACH_WAY).await?;
    let xds = delay.addr().to_string();
    let bootstrap =
        cli(&["bootstrap", "envoy", "--node-id", "envoy", "--xds-address", &xds, "--delta"]).await?;
    let envoy = Envoy::start(&bootstrap).await?;
    envoy.wait_live().await?;
    envoy.wait_listener(&table(&world)?).await?;

    let good = HOSTS.map(|host| (host.to_owned(), served([1, 0, 0, 0])));
    let (good, is_done) = (RefCell::new(Good::from(good)), Cell::new(false));
    let mut random = Random::from_env()?;
    let changes = async {
        let changed = change(&world, &mut random, &good).await;
        is_done.set(true);
        changed.map(|()| 0)
    };
    let [a, b, c] = HOSTS.map(|host| load(&world, host, &good, &is_done));
    let (_, a, b, c) = tokio::try_join!(changes, a, b, c)?;
    assert!(a.min(b).min(c) >= N_CHANGES, "{a}, {b} and {c} requests are too few to see anything");
    Ok(())
}
