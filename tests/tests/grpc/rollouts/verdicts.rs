//! Verdicts on canaries of each kind by the reports of real clients, several rollouts at a time: the time until the weights are back, and
//! what is lost. `--nocapture` shows the table of the page.

use anyhow::{Result, ensure};
use xds_tests::worker::Library;

use crate::rollouts::clients::Client;
use crate::rollouts::scene::{Canary, Outcome, play};

/// A canary, the phase in which its rollout ends, and a part of the reason or message. Without a phase, it may end in any.
type Case = (Canary, &'static str, &'static str);

#[expect(clippy::print_stdout, reason = "the figures are part of the result")]
async fn check(client: Client, cases: &[Case]) -> Result<()> {
    let canaries: Vec<Canary> = cases.iter().map(|(canary, ..)| *canary).collect();
    let Some(outcomes) = play(client, &canaries).await? else { return Ok(()) };
    let mut wrong = Vec::new();
    for ((canary, phase, said), outcome) in cases.iter().zip(outcomes) {
        let Outcome { rollout, after, n, n_lost } = outcome;
        let (after, ended) = (after.as_secs_f64(), rollout["phase"].as_str().unwrap_or_default());
        let reason = rollout["reason"].as_str().or(rollout["message"].as_str()).unwrap_or_default();
        let line =
            format!("| {canary:?} | {client:?} | {ended} | {after:.1} s | {n_lost} of {n} | {reason} |");
        println!("{line}");
        let is_as_expected = phase.is_empty() || ended == *phase;
        if !is_as_expected || !reason.contains(said) {
            wrong.push(format!("{line}\n{rollout:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_that_an_envoy_reports() -> Result<()> {
    const FAILED: &str = "of the canary failed";
    let cases = [
        (Canary::Dead, "Failed", FAILED),
        (Canary::FailsSome, "Failed", FAILED),
        (Canary::SpeaksTls, "Failed", FAILED),
        (Canary::IsNotTrusted, "Failed", FAILED),
        (Canary::SpeaksPlaintext, "Failed", FAILED),
        (Canary::ComesBack, "Failed", FAILED),
        (Canary::Flaps, "Failed", FAILED),
        (Canary::DeadInOneZone, "Failed", FAILED),
    ];
    check(Client::Envoy, &cases).await
}

/// What each gRPC library makes of these.
const OF_GRPC: [Case; 3] = [
    (Canary::Healthy, "Succeeded", ""),
    (Canary::Dead, "Failed", "requests reached the canary"),
    (Canary::Unused, "Paused", "requests"),
];

/// What they make of more. They send no request to an endpoint that they cannot connect to, if there is another one.
const MORE_OF_GRPC: [Case; 6] = [
    (Canary::FailsSome, "Failed", "of the canary failed"),
    (Canary::SpeaksTls, "Failed", "requests reached the canary"),
    (Canary::DeadInOneZone, "Succeeded", ""),
    // They cannot be given certificates, so they do not try.
    (Canary::IsNotTrusted, "Failed", "requests reached the canary"),
    (Canary::Flaps, "Failed", "requests reached the canary"),
    // What they miss is seldom enough to be sure.
    (Canary::ComesBack, "", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_that_grpcio_reports() -> Result<()> {
    check(Client::Grpc(Library::Grpcio), &[&OF_GRPC[..], &MORE_OF_GRPC].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_that_grpc_js_reports() -> Result<()> {
    // It has a single thread, which has no time for more.
    check(Client::Grpc(Library::GrpcJs), &OF_GRPC).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canaries_that_grpc_go_reports() -> Result<()> {
    check(Client::Grpc(Library::GrpcGo), &[&OF_GRPC[..], &MORE_OF_GRPC].concat()).await
}
