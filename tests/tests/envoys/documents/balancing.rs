//! How calls are spread over the endpoints of a backend.

use anyhow::{Result, ensure};
use xds_tests::documents::World;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

const DOCUMENTS: &str = "
version: xds-server/v1
routes:
  both: {hosts: [both.example.com], to: both}
  fallback: {hosts: [fallback.example.com], to: first}
backends:
  both: {protocol: grpc, lb: least_request, endpoints: ['127.0.0.1:{v1}', '127.0.0.1:{v2}']}
  first: {protocol: grpc, lb: least_request, dns: ['localhost:{v1}', 'localhost:{v2}']}
";

/// Go takes least_request, the others take the next policy of the list; none refuses the cluster.
#[tokio::test]
async fn grpc_clients_take_least_request_or_what_they_know() -> Result<()> {
    let world = World::start(&["v1", "v2"]).await?;
    world.write("native.yaml", DOCUMENTS)?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let channel = worker.open("xds:///both.example.com").await?;
        wait_for("calls to both", PATIENCE, async || {
            let counts = channel.call(&Calls::new(200)).await?;
            counts.ensure_no_errors()?;
            ensure!((50..=150).contains(&counts.n_of("v1")), "{library}: {counts:?}");
            Ok(())
        })
        .await?;
        let channel = worker.open("xds:///fallback.example.com").await?;
        wait_for("calls to an aggregate", PATIENCE, async || {
            channel.call(&Calls::new(20)).await?.ensure_no_errors()
        })
        .await?;
    }
    let nodes = world.server.get_json("/v1/nodes").await?.to_string();
    ensure!(!nodes.contains("ERROR"), "{nodes}");
    Ok(())
}
