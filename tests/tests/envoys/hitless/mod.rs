//! No request fails because configuration changed: real clients under load, at a distance, while random changes are published.
//!
//! The same runs with the naive order, which sends every change at once, show that they can fail. docs/hitless.md has the figures;
//! `XDS_HITLESS=200 cargo test --workspace --test envoys -- --nocapture whole_matrix` makes them all.

mod client;
mod experiment;
mod report;
mod scoped;
mod vhds;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use client::{Kind, Routes};
use experiment::{Experiment, Order};
use xds_tests::random::Random;
use xds_tests::server::Variant;
use xds_tests::worker::Library;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_sotw_loses_nothing() -> Result<()> {
    loses_nothing(Kind::ads(Routes::Whole, Variant::Sotw)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_delta_loses_nothing() -> Result<()> {
    loses_nothing(Kind::ads(Routes::Whole, Variant::Delta)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_a_stream_for_each_type_loses_nothing() -> Result<()> {
    let [whole, scoped, on_demand] = [
        Kind::per_type(Routes::Whole, Variant::Sotw),
        Kind::per_type(Routes::Scoped, Variant::Sotw),
        Kind::per_type(Routes::OnDemand, Variant::Delta),
    ]
    .map(loses_nothing);
    tokio::try_join!(whole, scoped, on_demand).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_scoped_routes_loses_nothing() -> Result<()> {
    let [sotw, delta] = [Kind::ads(Routes::Scoped, Variant::Sotw), Kind::ads(Routes::Scoped, Variant::Delta)]
        .map(loses_nothing);
    tokio::try_join!(sotw, delta).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_with_virtual_hosts_on_demand_loses_nothing() -> Result<()> {
    loses_nothing(Kind::ads(Routes::OnDemand, Variant::Delta)).await
}

/// Whoever comes back is believed about what it uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_that_loses_its_connection_loses_nothing_else() -> Result<()> {
    let cut =
        async |client: Kind| judge(Experiment { is_cut: true, n_transitions: N_CUT, ..phased(client) }).await;
    let [sotw, delta, scoped] = [
        Kind::ads(Routes::Whole, Variant::Sotw),
        Kind::ads(Routes::Whole, Variant::Delta),
        Kind::ads(Routes::Scoped, Variant::Delta),
    ]
    .map(cut);
    tokio::try_join!(sotw, delta, scoped).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_loses_nothing() -> Result<()> {
    loses_nothing(Kind::Grpc(Library::Grpcio)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_order_loses_requests() -> Result<()> {
    let lose = async |client: Kind| {
        let experiment =
            Experiment { client, order: Order::Naive, each_way: NEAR, n_transitions: N_NAIVE, is_cut: false };
        let Some(report) = experiment.run(&mut Random::from_env()?).await? else { return Ok(()) };
        report.print();
        ensure!(report.n_failed > 0, "the experiment cannot fail: {report:?}");
        Ok(())
    };
    let [sotw, delta, grpc] = [
        Kind::ads(Routes::Whole, Variant::Sotw),
        Kind::ads(Routes::Whole, Variant::Delta),
        Kind::Grpc(Library::Grpcio),
    ]
    .map(lose);
    let [scoped, on_demand] =
        [Kind::ads(Routes::Scoped, Variant::Delta), Kind::ads(Routes::OnDemand, Variant::Delta)].map(lose);
    tokio::try_join!(sotw, delta, grpc, scoped, on_demand).map(drop)
}

/// Every client at every distance, in both orders, if `XDS_HITLESS` says how many transitions. `XDS_HITLESS_ONLY="grpcio phased 20ms"`
/// makes it a part: what has all these words; `XDS_HITLESS_CUT=1` cuts the connection in the middle of every step. Prints the tables of
/// docs/hitless.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_matrix() -> Result<()> {
    let Ok(n_transitions) = std::env::var("XDS_HITLESS") else { return Ok(()) };
    let n_phased = n_transitions.parse().context("XDS_HITLESS is the number of transitions")?;
    let mut lost = Vec::new();
    let only = std::env::var("XDS_HITLESS_ONLY").unwrap_or_default();
    let is_cut = std::env::var_os("XDS_HITLESS_CUT").is_some();
    for client in Kind::ALL {
        for each_way in [Duration::ZERO, NEAR, FAR] {
            for (order, n_transitions) in [(Order::Naive, N_NAIVE), (Order::Phased, n_phased)] {
                let experiment = Experiment { client, order, each_way, n_transitions, is_cut };
                let words = format!("{client} {order} {each_way:?}").replace(',', "");
                if !only.split(' ').all(|word| words.split(' ').any(|it| word.is_empty() || it == word)) {
                    continue;
                }
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

/// A round trip more than needed, or a grace that is waited for, would show. The models of the session count round trips in every build.
#[ignore = "times are measured: alone, on a machine that does nothing else"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_takes_one_round_trip_for_each_phase() -> Result<()> {
    let time = async |client: Kind| {
        let experiment =
            Experiment { client, order: Order::Phased, each_way: VERY_FAR, n_transitions: 0, is_cut: false };
        let Some(report) = experiment.time(&mut Random::from_env()?).await? else { return Ok(()) };
        report.print();
        report.judge_times(Duration::ZERO).with_context(|| client.to_string())
    };
    let [sotw, delta, grpc] = [
        Kind::ads(Routes::Whole, Variant::Sotw),
        Kind::ads(Routes::Whole, Variant::Delta),
        Kind::Grpc(Library::Grpcio),
    ]
    .map(time);
    tokio::try_join!(sotw, delta, grpc).map(drop)
}

async fn loses_nothing(client: Kind) -> Result<()> {
    judge(phased(client)).await
}

fn phased(client: Kind) -> Experiment {
    Experiment { client, order: Order::Phased, each_way: NEAR, n_transitions: N_PHASED, is_cut: false }
}

async fn judge(experiment: Experiment) -> Result<()> {
    let Some(report) = experiment.run(&mut Random::from_env()?).await? else { return Ok(()) };
    report.print();
    report.judge()
}

/// The time of bytes in each direction between two zones of a region, and a bit.
const NEAR: Duration = Duration::from_millis(20);
/// Between continents.
const FAR: Duration = Duration::from_millis(100);
/// As on no wire, so that a round trip is longer than what a client does for itself.
const VERY_FAR: Duration = Duration::from_millis(500);
/// Enough changes for all kinds to occur.
const N_PHASED: usize = 40;
/// Each with a cut at a random moment.
const N_CUT: usize = 20;
/// Some of these changes lose requests. If none does, more changes follow.
const N_NAIVE: usize = 20;
