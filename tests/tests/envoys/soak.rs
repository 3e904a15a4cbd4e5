//! Real Envoys in a [soak](xds_tests::soak) with resources of all types, with ADS and with a stream for each type.

mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use world::{ALL, APART, Kind, N, World};
use xds_tests::config;
use xds_tests::envoy::Envoy;
use xds_tests::proxy::Proxy;
use xds_tests::rpc::Ask;
use xds_tests::server::Variant;
use xds_tests::soak::{Said, State, explained, linked, soak};

/// The nodes. Those of the group `apart` have no ADS.
const CLIENTS: [(&str, Variant); 5] = [
    ("sotw", Variant::Sotw),
    ("delta-1", Variant::Delta),
    ("delta-2", Variant::Delta),
    ("apart-sotw", Variant::Sotw),
    ("apart-delta", Variant::Delta),
];

struct Client {
    id: &'static str,
    bootstrap: String,
    link: Proxy,
    envoy: Envoy,
}

impl Client {
    async fn start(world: &World, (id, variant): (&'static str, Variant)) -> Result<Self> {
        let mut bootstrap: Value = serde_json::from_str(&world.server.bootstrap_envoy(id, variant).await?)?;
        if id.starts_with(APART) {
            config::without_ads(&mut bootstrap, &world::source(variant));
        }
        let port = |address: SocketAddr| format!("\"port_value\":{}}}", address.port());
        let (link, bootstrap) = linked(&world.server, &bootstrap.to_string(), port).await?;
        let envoy = Envoy::start(&bootstrap).await?;
        Ok(Self { id, bootstrap, link, envoy })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl xds_tests::soak::Client for Client {
    type World = World;

    fn link(&self) -> &Proxy {
        &self.link
    }

    async fn start_anew(&mut self) -> Result<()> {
        self.envoy = Envoy::start(&self.bootstrap).await?;
        Ok(())
    }

    async fn check(&self, world: &World) -> Result<()> {
        let dump = self.envoy.config_dump().await?;
        let said = Said::of(&world.server, self.id).await?;
        let mut has: BTreeMap<Kind, BTreeMap<usize, u64>> =
            ALL.iter().map(|kind| (*kind, kind.versions(&dump))).collect();
        // The dump shows also certificates that are rejected.
        has.insert(Kind::Secrets, world.certificates_at(&self.envoy).await?);
        for kind in ALL {
            check_kind(world, kind, &said, &has)?;
        }
        for i in (0..N).filter(|i| world.is_way_good(*i)) {
            let request = json!({"listener": format!("l{i}"), "host": "localhost", "path": "/", "tls": true});
            let explained = explained(&world.server, self.id, request).await?;
            let listener = self.envoy.wait_listener(&format!("l{i}")).await?;
            let told = world.ask(listener, &Ask::get("localhost", "/")).await?;
            let backend = world.backends.iter().find(|backend| backend.name() == told.backend);
            let went_to = backend.map(|backend| backend.addr().to_string());
            ensure!(went_to.as_ref() == Some(&explained), "l{i}: {told:?}, and {explained} is explained");
        }
        Ok(())
    }

    fn log(&self) -> String {
        self.envoy.log().to_string()
    }
}

/// Compares what an Envoy has of one type with what is served and with what the server says.
fn check_kind(
    world: &World,
    kind: Kind,
    said: &Said,
    has: &BTreeMap<Kind, BTreeMap<usize, u64>>,
) -> Result<()> {
    let rejected = said.rejected(kind.type_url())?;
    for i in 0..N {
        // Nothing is asked for by a listener or cluster that the Envoy never accepted.
        if kind.referrer().is_some_and(|from| !has[&from].contains_key(&i)) {
            continue;
        }
        let State { version, is_bad } = world.states.of(kind, i);
        let found = has[&kind].get(&i).copied();
        if said.awaits_correction(kind.type_url(), &kind.name(i)) {
            ensure!(kind == Kind::Routes && !world.is_cluster_good(i), "{} waits", kind.name(i));
            continue;
        }
        let is_rejected = rejected.contains(&*kind.name(i));
        let state = || {
            let of_type = said.of_type(kind.type_url());
            format!("{}: served {version}, bad {is_bad}, has {found:?}, {of_type:#}", kind.name(i))
        };
        // An Envoy also rejects a listener that comes after its certificate or its filter was rejected.
        let is_any_bad = !world.states.are_good(&[(Kind::Secrets, i), (Kind::Extensions, i)]);
        let may_be_rejected = kind == Kind::Listeners && is_any_bad;
        ensure!(is_rejected == is_bad || may_be_rejected, "said to be rejected: {is_rejected}: {}", state());
        if kind == Kind::Secrets && found.is_none() {
            ensure!(!world.is_listener_good(i), "l{i} does not answer: {}", state());
            continue;
        }
        ensure!((found == Some(version)) != is_rejected, "{}", state());
    }
    Ok(())
}

#[tokio::test]
async fn clients_have_what_the_server_says_that_they_have() -> Result<()> {
    let world = World::start().await?;
    let mut clients = Vec::new();
    for client in CLIENTS {
        clients.push(Client::start(&world, client).await?);
    }
    soak(world, clients).await
}
