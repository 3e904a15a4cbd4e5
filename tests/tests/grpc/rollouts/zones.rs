//! A canary that is alive for one client and dead for another one, as if they were in different zones. `--nocapture` shows the figures of
//! the page.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;
use xds_tests::backend::Backend;
use xds_tests::documents::{World, service, service_with};
use xds_tests::envoy::Envoy;
use xds_tests::names::Names;
use xds_tests::server::{Setup, Variant, free_addr};
use xds_tests::wait::PATIENCE;
use xds_tests::worker::{Library, Worker};

use crate::rollouts::clients::{Client, Place, Running};
use crate::rollouts::support::{start, wait_phase};

/// The canary's endpoint and the rule, as documents. Envoys look the endpoint's name up; gRPC clients are given its address.
fn documents(client: Client, stable: SocketAddr, canary: SocketAddr) -> String {
    let (kind, port) = (client.route_kind(), canary.port());
    let (address_type, address) = match client {
        Client::Envoy => ("FQDN", "servers.test".to_owned()),
        Client::Grpc(_) => ("IPv4", canary.ip().to_string()),
    };
    let services = service("default", "v1", 8080, stable) + &service_with("default", "v2", 8080, &[], "");
    format!(
        "{services}apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: v2, labels: \
         {{kubernetes.io/service-name: v2}}}}\naddressType: {address_type}\nports: [{{name: main, port: {port}}}]\n\
         endpoints: [{{addresses: [{address}]}}]\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{name: web}}\nspec:\n  gatewayClassName: xds-server\n  listeners: [{{name: http, protocol: HTTP, port: \
         {{web}}}}]\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec:\n  parentRefs: \
         [{{name: web}}]\n  hostnames: [{HOST}]\n  rules:\n  - backendRefs: [{{name: v1, port: 8080, weight: 100}}, {{name: v2, \
         port: 8080, weight: 0}}]\n"
    )
}

/// An Envoy for which the canary's name means this address. All Envoys share the port of the listener, and the requests.
async fn envoy(world: &World, id: &str, names: &Names) -> Result<Running> {
    let mut bootstrap: Value =
        serde_json::from_str(&world.server.bootstrap_envoy(id, Variant::Delta).await?)?;
    let addr = names.addr();
    let resolver = json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}});
    bootstrap["typed_dns_resolver_config"] = json!({
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [resolver],
        },
    });
    let envoy = Envoy::start(&bootstrap.to_string()).await?;
    envoy.wait_live().await?;
    envoy.wait_listener(&format!("default/web/{}", world.port("web")?)).await?;
    Ok(Running::Envoy(Box::new(envoy)))
}

/// A gRPC client whose way to the canary's address leads to a port where nothing listens, or not.
async fn grpc(world: &World, id: &str, is_cut_off: bool) -> Result<Option<Running>> {
    let bootstrap = world.server.bootstrap_grpc(id).await?;
    let (nowhere, canary) = (free_addr()?.to_string(), format!("{HERE}/32"));
    let proxy = [
        ("GRPC_ADDRESS_HTTP_PROXY", nowhere.as_str()),
        ("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", &canary),
    ];
    let env = if is_cut_off { &proxy[..] } else { &[] };
    Ok(Worker::start_with_env(Library::Grpcio, &bootstrap, env).await?.map(Box::new).map(Running::Grpc))
}

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn check(client: Client, said: &str) -> Result<()> {
    let setup = Setup::new()?.arg("--load-report-interval=1s").fixed_xds_port()?;
    let mut world = World::start_with(setup, &[]).await?;
    world.ports(&["web"])?;
    let stable = Backend::start("v1").await?;
    let canary = Backend::start_at("v2", SocketAddr::from((HERE, 0))).await?;
    world.write("documents.yaml", &documents(client, stable.addr(), canary.addr()))?;
    let (here, nowhere) = (Names::start(&[HERE]).await?, Names::start(&[NOWHERE]).await?);
    let (near, far) = match client {
        Client::Envoy => {
            (Some(envoy(&world, "near", &here).await?), Some(envoy(&world, "far", &nowhere).await?))
        }
        Client::Grpc(_) => (grpc(&world, "near", false).await?, grpc(&world, "far", true).await?),
    };
    let (Some(near), Some(far)) = (near, far) else { return Ok(()) };
    let place = Place::new(&world, "web", HOST)?;
    let loads = [near.load(&place).await?, far.load(&place).await?];
    let fields = json!({
        "route": {"kind": client.route_kind(), "namespace": "default", "name": "web", "rule": "0"},
        "steps": [{"setWeight": 20}, {"analysis": {"interval": "20s", "minRequests": 10}}],
    });
    let id = start(&world.server, &fields).await?;
    let measured = world.server.wait_json(&format!("/v1/rollouts/{id}"), |one| one["step"] == 2).await?;
    let began = Instant::now();
    assert_eq!(measured["acked"]["of"], 2, "{measured:#}");
    let failed = wait_phase(&world.server, &id, "Failed", 2 * PATIENCE).await?;
    let after = began.elapsed().as_secs_f64();
    let (mut n, mut n_lost) = (0, 0);
    for load in loads {
        let of_one = load.stop().await?;
        (n, n_lost) = (n + of_one.0, n_lost + of_one.1);
    }
    println!("| dead for one of two | {client:?} | {after:.1} s | {n_lost} of {n} | {} |", failed["reason"]);
    let reason = failed["reason"].as_str().context("no reason")?;
    ensure!(reason.contains(said), "{failed:#}");
    // The other one had its share.
    ensure!(canary.n_requests() > 0, "{failed:#}");
    near.expect_all_from(&place, "v1").await?;
    far.expect_all_from(&place, "v1").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_is_dead_for_one_of_two_clients_is_taken_back() -> Result<()> {
    tokio::try_join!(
        check(Client::Envoy, "of the canary failed"),
        check(Client::Grpc(Library::Grpcio), "reached the canary"),
    )?;
    Ok(())
}

const HOST: &str = "greeter.example.com";
/// The address of the canary's endpoint; nothing else has it.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// An address at whose port nothing listens.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
