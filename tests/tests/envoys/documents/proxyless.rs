//! Requests that only proxyless gRPC clients make: names that are made on demand, and nothing that they would refuse.

use anyhow::{Context as _, Result, ensure};
use xds_tests::documents::World;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

const DOCUMENTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: wild}
spec:
  parentRefs: [{name: web}]
  hostnames: ['*.example.com', exact.example.com]
  rules: [{backendRefs: [{name: v1, port: 8080}]}]
";

#[tokio::test]
async fn a_wildcard_host_is_found_by_every_name_below_it() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", DOCUMENTS)?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        for target in ["a.example.com", "a.b.example.com:443", "exact.example.com"] {
            let channel = worker.open(&format!("xds:///{target}")).await?;
            assert_eq!(channel.who().await?, "v1", "{library} {target}");
        }
        let channel = worker.open("xds:///late.example.com").await?;
        assert_eq!(channel.who().await?, "v1", "{library}");
        world.config.edit("routes.yaml", "name: v1, port", "name: v2, port")?;
        wait_for("the change", PATIENCE, async || {
            let who = channel.who().await?;
            ensure!(who == "v2", "{library}: {who} answers");
            Ok(())
        })
        .await?;
        world.config.edit("routes.yaml", "name: v2, port", "name: v1, port")?;
        wait_for("the change back", PATIENCE, async || {
            let who = channel.who().await?;
            ensure!(who == "v1", "{library}: {who} answers");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Everything that only Envoys understand, beside a rule for gRPC: no client may refuse anything, and the rest works.
const RICH: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: xds-server, listeners: [{name: http, protocol: HTTP, port: {web}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: rich}
spec:
  parentRefs: [{name: web}]
  hostnames: [rich.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: example.org}}]
  - matches: [{queryParams: [{name: a, value: b}]}, {method: GET}]
    backendRefs: [{name: v2, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /api/v1/users}}]
    backendRefs: [{name: v2, port: 8080}]
  - matches: [{path: {type: PathPrefix, value: /pkg.Svc}}]
    filters:
    - {type: RequestMirror, requestMirror: {backendRef: {name: v2, port: 8080}}}
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}
    timeouts: {request: 10s, backendRequest: 5s}
    retry: {codes: [503], attempts: 2, backoff: 10ms}
    sessionPersistence: {type: Header, header: {name: x-session}}
    backendRefs: [{name: v1, port: 8080, weight: 1}, {name: gone, port: 8080, weight: 0}]
  - matches: [{headers: [{name: user-agent, value: x}]}, {headers: [{name: trace-bin, value: x}]}]
    backendRefs: [{name: v2, port: 8080}]
  - backendRefs: [{name: nobody, port: 8080}]
";

#[tokio::test]
async fn no_client_refuses_what_is_made_for_it() -> Result<()> {
    let mut world = World::start(&["v1", "v2"]).await?;
    world.ports(&["web"])?;
    world.write("routes.yaml", RICH)?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///rich.example.com").await?;
        let mut calls = Calls::new(20);
        calls.method = "/pkg.Svc/Method".to_owned();
        let counts = channel.call(&calls).await?;
        counts.ensure_no_errors()?;
        assert_eq!(counts.n_of("v1"), 20, "{library}: {counts:?}");
        calls.method = "/other.Svc/Method".to_owned();
        let counts = channel.call(&calls).await?;
        assert_eq!(counts.errors.get("UNAVAILABLE"), Some(&20), "{library}: {counts:?}");
        let node = world.server.get_json("/v1/nodes/grpc").await?;
        let types = node["types"].as_object().context("types")?;
        ensure!(types.values().all(|one| one["lastNack"].is_null()), "{library}: {node:#}");
    }
    Ok(())
}
