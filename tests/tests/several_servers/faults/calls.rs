//! A gRPC client of C-core, which finds all servers under one name and calls the backend all the time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use xds_tests::server::cli;
use xds_tests::worker::{Calls, Hold, Library, Worker};

use crate::faults::world::World;

/// Starts the client.
///
/// # Errors
///
/// If it cannot be installed or started.
pub(crate) async fn client(world: &World) -> Result<Worker> {
    let name = "xds.example.com:18000";
    let bootstrap = cli(&["bootstrap", "grpc", "--node-id", "app-1", "--xds-address", name]).await?;
    let asked_here = bootstrap.replace(name, &world.target());
    ensure!(asked_here != bootstrap, "{bootstrap}");
    Worker::start(Library::Grpcio, &asked_here).await?.context("grpcio")
}

/// Makes calls until they are stopped.
///
/// # Errors
///
/// If the first one fails.
pub(crate) async fn begin(client: &Worker) -> Result<Hold<'_>> {
    let channel = client.open(&format!("xds:///{NAME}")).await?;
    channel.who().await?;
    channel.hold(&Calls { limit: LIMIT, ..Calls::new(0) }, PER_SECOND).await
}

/// What the client calls: a listener and its routes.
pub(crate) const NAME: &str = "greeter";
/// A call waits for a cluster that the client does not know yet, so as long as a fault lasts that keeps its server from answering.
const LIMIT: Duration = Duration::from_secs(30);
const PER_SECOND: u32 = 50;
