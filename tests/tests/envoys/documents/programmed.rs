//! `Programmed` says whether Envoys listen: it follows their answers.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use xds_tests::documents::World;
use xds_tests::server::Variant;

const PROGRAMMED: (&str, &str, &str) = ("Programmed", "True", "Programmed");
const NOT_USABLE: (&str, &str, &str) = ("Programmed", "False", "AddressNotUsable");

/// A Gateway with HTTP listeners, each named by its port.
fn gateway(name: &str, ports: &[&str]) -> String {
    let listeners: Vec<String> =
        ports.iter().map(|port| format!("{{name: {port}, protocol: HTTP, port: {{{port}}}}}")).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec:\n  \
         gatewayClassName: xds-server\n  listeners: [{}]\n",
        listeners.join(", ")
    )
}

/// A world with two Gateways, of which `web` has a free port beside one that this process holds, and `alone` has only one that is held.
async fn world_with_held_ports() -> Result<(World, Vec<TcpListener>)> {
    let mut world = World::start(&[]).await?;
    world.ports(&["free", "held", "other", "moved"])?;
    let hold = |name| anyhow::Ok(TcpListener::bind(("0.0.0.0", world.port(name)?))?);
    let held = vec![hold("held")?, hold("other")?];
    let documents = [gateway("web", &["free", "held"]), gateway("alone", &["other"])];
    world.write("gateways.yaml", &documents.join("---\n"))?;
    Ok((world, held))
}

/// The message of `Programmed` in a list of conditions.
fn message(conditions: &serde_json::Value) -> Result<String> {
    let all = conditions["conditions"].as_array().context("conditions")?;
    let found = all.iter().find(|one| one["type"] == "Programmed").context("Programmed")?;
    Ok(found["message"].as_str().context("a message")?.to_owned())
}

async fn a_port_that_is_held(variant: Variant) -> Result<()> {
    let (world, held) = world_with_held_ports().await?;
    let alone = ("Gateway", "default", "alone");
    world.expect_condition(alone, None, PROGRAMMED).await?;
    let envoy = world.envoy(variant).await?;
    world.expect_listener(("web", "held"), NOT_USABLE).await?;
    world.expect_listener(("web", "free"), PROGRAMMED).await?;
    world.expect_condition(("Gateway", "default", "web"), None, PROGRAMMED).await?;
    world.expect_listener(("alone", "other"), NOT_USABLE).await?;
    world.expect_condition(alone, None, NOT_USABLE).await?;
    let object = world.conditions("Gateway", "default", "alone").await?;
    let document = world.server.get_json("/v1/documents/Gateway/default/alone").await?;
    for shown in [&object.0, &object.listener("other"), &document["status"]] {
        let message = message(shown)?;
        let words = format!("cannot bind '0.0.0.0:{}': Address already in use", world.port("other")?);
        ensure!(message.contains(&words), "{message}");
    }

    // A listener that moves is another resource for the Envoy, which takes it.
    let documents = [gateway("web", &["free", "moved"]), gateway("alone", &["other"])];
    world.write("gateways.yaml", &documents.join("---\n"))?;
    world.expect_listener(("web", "moved"), PROGRAMMED).await?;
    world.expect_condition(alone, None, NOT_USABLE).await?;

    // The port is free: the next Envoy listens. While none is there, nobody rejects anything.
    drop(held);
    drop(envoy);
    let _envoy = world.envoy(variant).await?;
    world.expect_condition(alone, None, PROGRAMMED).await?;
    world.expect_listener(("alone", "other"), PROGRAMMED).await
}

#[tokio::test]
async fn a_listener_that_an_incremental_envoy_cannot_bind_is_not_programmed() -> Result<()> {
    a_port_that_is_held(Variant::Delta).await
}

#[tokio::test]
async fn a_listener_that_an_envoy_cannot_bind_is_not_programmed() -> Result<()> {
    a_port_that_is_held(Variant::Sotw).await
}
