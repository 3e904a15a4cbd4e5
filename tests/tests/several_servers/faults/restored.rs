//! An etcd that is set back to an older snapshot, and what its operator does then.

use anyhow::{Result, ensure};
use http::StatusCode;
use xds_tests::random::Random;
use xds_tests::seen::{plain_cluster, served};
use xds_tests::server::cli;
use xds_tests::wait::wait_for;

use crate::faults::clients;
use crate::faults::world::{N_SERVERS, World};
use crate::faults::writers::{self, Board};
use crate::faults::{CONVERGE, converge};

/// All serve what was acknowledged, and say why they take no writes, until one server's state is put in place of the snapshot's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_served_when_an_older_snapshot_is_restored() -> Result<()> {
    let mut random = Random::from_env()?;
    let Some(mut world) = World::start().await? else { return Ok(()) };
    let board = Board::new(world.addresses());
    writers::write_all(&board, &mut random).await?;
    let snapshot = world.dir.path().join("snapshot");
    world.etcd.save_snapshot(&snapshot).await?;
    writers::write_all(&board, &mut random).await?;
    converge(&world, &board).await?;
    let before = served(&world.servers[0]).await?;

    world.etcd.restore_snapshot(&snapshot).await?;
    for n in 0..N_SERVERS {
        wait_for("a server that refuses writes", CONVERGE, async || {
            let (status, text) = write(&world, n).await?;
            ensure!(
                status == StatusCode::SERVICE_UNAVAILABLE && text.contains("/store-diverged"),
                "{status}: {text}"
            );
            Ok(())
        })
        .await?;
    }
    for server in &world.servers {
        ensure!(served(server).await? == before, "{} serves something else", server.admin());
    }

    world.servers[0].stop().await?;
    let data = world.servers[0].data_dir().display().to_string();
    let (url, key) = (world.etcd.url(), world.dir.path().join("key").display().to_string());
    cli(&["store", "push", "--replace", "--data-dir", &data, "--store", &url, "--store-key-file", &key])
        .await?;
    world.servers[0].restart().await?;
    for n in 0..N_SERVERS {
        wait_for("a server that takes writes", CONVERGE, async || {
            let (status, text) = write(&world, n).await?;
            ensure!(status.is_success(), "{status}: {text}");
            Ok(())
        })
        .await?;
    }
    wait_for("the same on all servers", CONVERGE, async || {
        let first = served(&world.servers[0]).await?;
        for server in &world.servers {
            let now = served(server).await?;
            ensure!(now == first, "{} serves something else", server.admin());
            ensure!(before.iter().all(|(name, version)| now.get(name) == Some(version)), "something is lost");
        }
        Ok(())
    })
    .await?;
    clients::moves_for_nothing(&board).await
}

/// Writes an object that nothing else is about.
async fn write(world: &World, server: usize) -> Result<(StatusCode, String)> {
    let path = format!("/v1/groups/default/resources/clusters/other-{server}");
    let body = plain_cluster(&format!("other-{server}"), 1).to_string();
    let json = [("content-type", "application/json")];
    let answer = world.servers[server].request("PUT", &path, &json, body).await?;
    Ok((answer.status, answer.text()))
}
