//! Does the lint foresee what real clients refuse?
//!
//! Good configurations are changed at random places in random ways, served without checks to a real Envoy and to gRPC clients, and their
//! answers compared with what the lint says of the same configuration. `docs/prediction.md` has the figures of longer runs:
//!
//! `XDS_PREDICTION=1000 cargo test --workspace --test grpc prediction -- --nocapture`
//!
//! `XDS_TESTS_SEED` chooses other changes. Every disagreement is printed; the run of all tests fails for one that `known.txt` does not have.

mod cases;
mod clients;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use xds_tests::bare::Bare;
use xds_tests::random::Random;

use crate::prediction::cases::{Case, Generator, check_worlds};
use crate::prediction::clients::{Client, QUIET};
use crate::prediction::verdicts::{Agreement, Foreseen, predict};

/// The changes of the run of all tests, and how many configurations there are.
const SEED: u64 = 1;
const N_CASES: usize = 80;

#[tokio::test]
async fn an_envoy_refuses_what_the_lint_foresees() -> Result<()> {
    agree(Client::Envoy).await
}

#[tokio::test]
async fn grpcio_refuses_what_the_lint_foresees() -> Result<()> {
    agree(Client::Grpcio).await
}

#[tokio::test]
async fn grpc_go_refuses_what_the_lint_foresees() -> Result<()> {
    agree(Client::GrpcGo).await
}

#[tokio::test]
async fn grpc_js_refuses_what_the_lint_foresees() -> Result<()> {
    agree(Client::GrpcJs).await
}

#[tokio::test]
async fn grpc_java_refuses_what_the_lint_foresees() -> Result<()> {
    agree(Client::GrpcJava).await
}

/// The lint knows them from `extensions.txt`, which is that of this Envoy.
#[tokio::test]
async fn the_extensions_are_those_that_the_envoy_says_it_has() -> Result<()> {
    let bare = Bare::start().await?;
    let _envoy = clients::start_envoy(&bare, QUIET).await?;
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for extension in bare.node().context("a node")?.extensions {
        said.entry(extension.category).or_default().extend(extension.type_urls);
    }
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut category = "";
    for line in include_str!("../../../../codec/src/profile/envoy/extensions.txt").lines() {
        match line.strip_prefix("  ") {
            Some(config) => drop(known.entry(category.to_owned()).or_default().insert(config.to_owned())),
            None => category = line,
        }
    }
    said.retain(|category, _| known.contains_key(category));
    ensure!(known == said, "known {known:#?}, said {said:#?}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are the result")]
async fn agree(client: Client) -> Result<()> {
    let n = match std::env::var("XDS_PREDICTION") {
        Ok(n) => n.parse().context("XDS_PREDICTION")?,
        Err(_) => N_CASES,
    };
    let is_sample = n == N_CASES && std::env::var("XDS_TESTS_SEED").is_err();
    let random = if is_sample { Random::new(SEED) } else { Random::from_env()? };
    check_worlds(client)?;
    let mut generator = Generator::new(client, random)?;
    let cases: Vec<Case> = (0..n).map(|_| generator.next_case()).collect();
    let foreseen: Vec<Foreseen> = cases.iter().map(|case| predict(case, client)).collect();
    let all: Vec<&Case> = cases.iter().collect();
    let Some(mut answers) = clients::ask(client, &all, QUIET).await? else { return Ok(()) };
    // An answer may have come too late on a busy machine: what was not foreseen is asked once more, with more time.
    let doubtful: Vec<usize> =
        (0..n).filter(|i| answers[*i].is_refused() != foreseen[*i].is_refused).collect();
    let again: Vec<&Case> = doubtful.iter().map(|i| &cases[*i]).collect();
    let again = clients::ask(client, &again, QUIET * 10).await?.unwrap_or_default();
    for (i, answer) in doubtful.into_iter().zip(again) {
        answers[i] = answer;
    }
    let mut all = Agreement::default();
    let mut report = String::new();
    let mut surprises = BTreeSet::new();
    for ((case, answer), foreseen) in cases.iter().zip(&answers).zip(&foreseen) {
        if let Some(kind) = all.count(answer, foreseen) {
            writeln!(report, "{kind} {client}: {case}\n    client: {answer}\n    lint:   {foreseen}")?;
            surprises.insert(format!("{client}: {case}"));
        }
    }
    println!("{report}{client}: {all}");
    if is_sample {
        let known: BTreeSet<&str> = include_str!("known.txt").lines().collect();
        let mine = surprises.iter().filter(|one| !known.contains(one.as_str()));
        let new: Vec<&String> = mine.collect();
        ensure!(new.is_empty(), "not in known.txt: {new:#?}");
    }
    Ok(())
}
