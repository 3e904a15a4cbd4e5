//! No request fails because configuration changed: real clients under load, at a distance, while random changes are published.
//!
//! The same runs with the naive order, which sends every change at once, show that they can fail. docs/hitless.md has the figures;
//! `XDS_HITLESS=200 cargo test -p xds-tests --test hitless --release -- --nocapture whole_matrix`
//! makes them all.

mod client;
mod experiment;
mod report;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use client::Kind;
use experiment::{Experiment, Order};
use xds_tests::random::Random;
use xds_tests::server::Variant;
use xds_tests::worker::Library;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_sotw_loses_nothing() -> Result<()> {
    loses_nothing(Kind::Ads(Variant::Sotw)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_delta_loses_nothing() -> Result<()> {
    loses_nothing(Kind::Ads(Variant::Delta)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_loses_nothing() -> Result<()> {
    loses_nothing(Kind::Grpc(Library::Grpcio)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_order_loses_requests() -> Result<()> {
    let clients = [Kind::Ads(Variant::Sotw), Kind::Ads(Variant::Delta), Kind::Grpc(Library::Grpcio)];
    for client in clients {
        let experiment = Experiment { client, order: Order::Naive, each_way: NEAR, n_transitions: N_NAIVE };
        let Some(report) = experiment.run(&mut Random::from_env()?).await? else { continue };
        report.print();
        ensure!(report.n_failed > 0, "the experiment cannot fail: {report:?}");
    }
    Ok(())
}

/// Every client at every distance, in both orders, if `XDS_HITLESS` says how many transitions; `XDS_HITLESS_CLIENT=grpcio` makes it
/// one client, by a part of its name. Prints the table of docs/hitless.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_matrix() -> Result<()> {
    let Ok(n_transitions) = std::env::var("XDS_HITLESS") else { return Ok(()) };
    let n_phased = n_transitions.parse().context("XDS_HITLESS is the number of transitions")?;
    let mut lost = Vec::new();
    let wanted = std::env::var("XDS_HITLESS_CLIENT").unwrap_or_default();
    for client in Kind::ALL.into_iter().filter(|client| client.to_string().contains(&wanted)) {
        for each_way in [Duration::ZERO, NEAR, FAR] {
            for (order, n_transitions) in [(Order::Naive, N_NAIVE), (Order::Phased, n_phased)] {
                let experiment = Experiment { client, order, each_way, n_transitions };
                let report = match experiment.run(&mut Random::from_env()?).await {
                    Ok(Some(report)) => report,
                    Ok(None) => continue,
                    Err(error) => {
                        println!("{experiment:?}: {error:#}");
                        lost.push(error.context(format!("{experiment:?}")));
                        continue;
                    }
                };
                report.print();
                if order == Order::Phased
                    && let Err(error) = report.judge()
                {
                    lost.push(error.context(format!("{experiment:?}")));
                }
            }
        }
    }
    ensure!(lost.is_empty(), "{lost:#?}");
    Ok(())
}

async fn loses_nothing(client: Kind) -> Result<()> {
    let experiment = Experiment { client, order: Order::Phased, each_way: NEAR, n_transitions: N_PHASED };
    let Some(report) = experiment.run(&mut Random::from_env()?).await? else { return Ok(()) };
    report.print();
    report.judge()
}

/// What bytes take in each direction between two zones of a region, and a bit.
const NEAR: Duration = Duration::from_millis(20);
/// Between continents.
const FAR: Duration = Duration::from_millis(100);
/// As many changes as all kinds of them need to occur.
const N_PHASED: usize = 40;
/// Some of them lose something; if none did, there are more.
const N_NAIVE: usize = 20;
