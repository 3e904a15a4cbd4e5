//! gRFC A37: a backend that falls back on another one, from EDS to DNS.

use anyhow::Result;
use xds_tests::documents::World;
use xds_tests::rpc::Ask;
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Channel, Library};

const DOCUMENTS: &str = "
version: xds-server/v1
listeners:
  edge: {port: {web}}
routes:
  shop:
    hosts: [shop.example.com]
    to: shop
backends:
  shop: {fallback: [shop-primary, shop-secondary]}
  shop-primary: {protocol: grpc, endpoints: ['127.0.0.1:{primary}']}
  shop-secondary: {protocol: grpc, dns: 'localhost:{secondary}'}
";

async fn world() -> Result<World> {
    let mut world = World::start(&["primary", "secondary"]).await?;
    world.ports(&["web"])?;
    world.write("shop.yaml", DOCUMENTS)?;
    Ok(world)
}

fn call() -> Ask {
    Ask::call("shop.example.com", "/shop.Shop/Buy")
}

async fn wait_who(channel: &Channel<'_>, name: &str) -> Result<()> {
    wait_for("the backend", PATIENCE, async || {
        let who = channel.who().await?;
        anyhow::ensure!(who == name, "{who} answers");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn envoy_falls_back_when_the_primary_dies() -> Result<()> {
    let world = world().await?;
    let _envoy = world.envoy(Variant::Delta).await?;
    world.expect_from("web", &call(), "primary").await?;
    world.backends["primary"].stop();
    world.expect_from("web", &call(), "secondary").await.map(drop)
}

#[tokio::test]
async fn envoy_falls_back_when_the_primary_has_no_endpoints_and_comes_back() -> Result<()> {
    let world = with_services().await?;
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &call(), "primary").await?;
    let slice = std::fs::read_to_string(world.config.path().join("primary.yaml"))?;
    world.config.remove("primary.yaml")?;
    world.expect_from("web", &call(), "secondary").await?;
    world.config.write("primary.yaml", &slice)?;
    world.expect_from("web", &call(), "primary").await.map(drop)
}

/// The primary is a Service whose EndpointSlice is in a file of its own.
async fn with_services() -> Result<World> {
    let mut world = World::start(&["secondary"]).await?;
    let primary = xds_tests::backend::Backend::start("primary").await?;
    world.ports(&["web"])?;
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: primary-1, labels: \
         {{kubernetes.io/service-name: primary}}}}\naddressType: IPv4\nports: [{{name: '', port: {}}}]\n\
         endpoints: [{{addresses: [127.0.0.1]}}]\n",
        primary.port()
    );
    world.backends.insert("primary".to_owned(), primary);
    world.config.write("primary.yaml", &slice)?;
    let documents = DOCUMENTS
        .replace("[shop-primary, shop-secondary]", "['primary:8080', shop-secondary]")
        .replace("  shop-primary: {protocol: grpc, endpoints: ['127.0.0.1:{primary}']}\n", "");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: primary}\nspec: {ports: [{port: 8080, appProtocol: \
                   kubernetes.io/h2c}]}\n---";
    world.write("shop.yaml", &format!("{service}{documents}"))?;
    Ok(world)
}

async fn falls_back(library: Library) -> Result<()> {
    let world = world().await?;
    let Some(worker) = world.worker(library).await? else { return Ok(()) };
    let channel = worker.open("xds:///shop.example.com").await?;
    wait_who(&channel, "primary").await?;
    world.backends["primary"].stop();
    wait_who(&channel, "secondary").await
}

#[tokio::test]
async fn grpcio_falls_back_when_the_primary_dies() -> Result<()> {
    falls_back(Library::Grpcio).await
}

#[tokio::test]
async fn grpc_js_falls_back_when_the_primary_dies() -> Result<()> {
    falls_back(Library::GrpcJs).await
}

#[tokio::test]
async fn grpc_go_falls_back_when_the_primary_dies() -> Result<()> {
    falls_back(Library::GrpcGo).await
}

#[tokio::test]
async fn grpcio_falls_back_when_the_primary_has_no_endpoints_and_comes_back() -> Result<()> {
    let world = with_services().await?;
    let Some(worker) = world.worker(Library::Grpcio).await? else { return Ok(()) };
    let channel = worker.open("xds:///shop.example.com").await?;
    wait_who(&channel, "primary").await?;
    let slice = std::fs::read_to_string(world.config.path().join("primary.yaml"))?;
    world.config.remove("primary.yaml")?;
    wait_who(&channel, "secondary").await?;
    world.config.write("primary.yaml", &slice)?;
    wait_who(&channel, "primary").await
}

#[tokio::test]
async fn a_name_alone_is_a_logical_dns_cluster_for_every_client() -> Result<()> {
    let mut world = World::start(&["only"]).await?;
    world.ports(&["web"])?;
    let documents = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: named}
spec:
  parentRefs: [{name: web}]
  hostnames: [backend.example.com, service.example.com]
  rules:
  - matches: [{method: {service: a.Backend}}]
    backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: named}]
  - backendRefs: [{name: external, port: {only}}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: named}
spec: {endpoints: [{fqdn: {hostname: localhost, port: {only}}}]}
---
apiVersion: v1
kind: Service
metadata: {name: external}
spec: {type: ExternalName, externalName: localhost, ports: [{port: {only}}]}
";
    world.write("named.yaml", documents)?;
    let _envoy = world.envoy(Variant::Delta).await?;
    for path in ["/a.Backend/Call", "/a.Service/Call"] {
        world.expect_from("web", &Ask::call("backend.example.com", path), "only").await?;
    }
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///backend.example.com").await?;
        for method in ["/a.Backend/Call", "/a.Service/Call"] {
            let mut calls = xds_tests::worker::Calls::new(3);
            calls.method = method.to_owned();
            let counts = channel.call(&calls).await?;
            assert_eq!(counts.n_of("only"), 3, "{library}: {counts:?}");
        }
    }
    Ok(())
}
