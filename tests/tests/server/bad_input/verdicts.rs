//! `validate` and the server report the same for the same files: for each bad input, the same text at the same place.
//!
//! The tables of bad documents come from the tests of `routes`. [`check`] gives each of them to both.

#[path = "../../../../routes/tests/bad_input/api.rs"]
mod api;
#[path = "../../../../routes/tests/bad_input/policies.rs"]
mod policies;
#[path = "../../../../routes/tests/bad_input/references.rs"]
mod references;
#[path = "../../../../routes/tests/bad_input/texts.rs"]
mod texts;
#[path = "../../../../routes/tests/bad_input/values.rs"]
mod values;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use xds_tests::config::{CLUSTER, ConfigDir, ENDPOINTS};
use xds_tests::server::{Server, xds_server};
use xds_tests::wait::{PATIENCE, wait_for};

use super::{files, typos};
use texts::{AROUND, GOOD, backend, filters, method, n_times, route};

/// Compares what is said of each text. What it should be, the tests of the crate of routes compare.
fn check(cases: &[(&str, String, &[&str])]) {
    let compare = async || -> Result<()> {
        let cases = stream::iter(cases).map(Ok::<_, anyhow::Error>);
        cases
            .try_for_each_concurrent(N_AT_ONCE, async |(name, bad, _)| {
                let dir = ConfigDir::new()?;
                dir.write("good.yaml", GOOD)?;
                let write = |dir: &Path| Ok(std::fs::write(dir.join("bad.yaml"), bad)?);
                verdicts_agree(&dir, write).await.with_context(|| (*name).to_owned())
            })
            .await
    };
    let compared =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(compare()));
    assert!(compared.is_ok(), "{compared:?}");
}

/// Enough to keep two processors busy.
const N_AT_ONCE: usize = 4;

/// Starts a server on a directory, writes what is bad, and compares.
async fn verdicts_agree(dir: &ConfigDir, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let server = Server::start(dir.path()).await?;
    server.wait_ready().await?;
    write(dir.path())?;
    let output =
        xds_server().await?.arg("validate").arg(dir.path()).args(["--output", "json"]).output().await?;
    let validated: Value = serde_json::from_slice(&output.stdout)?;
    let validated = of_validate(&validated);
    ensure!(!validated.is_empty(), "`validate` finds nothing wrong");
    wait_for("the same verdict", PATIENCE, async || {
        let served = of_server(&server.get_json("/v1/status/files").await?);
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
        ensure!(
            validated == served,
            "only `validate` says {:#?}, only the server says {:#?}",
            only(&validated, &served),
            only(&served, &validated)
        );
        Ok(())
    })
    .await
}

/// The verdict of `validate`, without its predictions of what clients would reject: a server learns that from the clients.
fn of_validate(report: &Value) -> BTreeSet<String> {
    let found = report["diagnostics"].as_array().into_iter().flatten();
    let line = |one: &Value| {
        let text = match one["path"].as_str() {
            Some("") | None => one["message"].as_str().unwrap_or_default().to_owned(),
            Some(path) => format!("{path}: {}", one["message"].as_str().unwrap_or_default()),
        };
        line_of(one, one["file"].as_str().unwrap_or_default(), &text)
    };
    found.filter(|one| !PARTS.iter().any(|code| one["code"] == *code)).map(line).collect()
}

/// What `validate` alone tells: parts that no request reaches, as a model of the clients has it.
const PARTS: [&str; 7] = [
    "shadowed-route",
    "never-matches",
    "unreachable-domain",
    "unreachable-chain",
    "weight-never-applies",
    "timeout-off",
    "unused-override",
];

fn of_server(status: &Value) -> BTreeSet<String> {
    let files = status["files"].as_array().into_iter().flatten();
    files
        .flat_map(|file| {
            let path = file["path"].as_str().unwrap_or_default();
            let found = file["diagnostics"].as_array().into_iter().flatten();
            found.map(move |one| line_of(one, path, one["detail"].as_str().unwrap_or_default()))
        })
        .collect()
}

fn line_of(one: &Value, file: &str, text: &str) -> String {
    let number = |name: &str| one[name].as_u64().unwrap_or_default();
    let text_of = |name: &str| one[name].as_str().unwrap_or_default();
    let (severity, code, suggestion) = (text_of("severity"), text_of("code"), text_of("suggestion"));
    format!("{file}:{}:{}: {severity}[{code}] {text} ({suggestion})", number("line"), number("column"))
}

#[tokio::test]
async fn validate_and_the_server_agree_on_broken_files() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write("good.yaml", GOOD)?;
    verdicts_agree(&dir, |dir| files::CASES.iter().try_for_each(|case| case.write(dir))).await
}

#[tokio::test]
async fn validate_and_the_server_agree_on_typos() -> Result<()> {
    for (file, text) in typos::texts() {
        let dir = ConfigDir::new()?;
        dir.write("good.yaml", GOOD)?;
        verdicts_agree(&dir, |dir| Ok(std::fs::write(dir.join(file), &text)?)).await.context(text)?;
    }
    Ok(())
}

/// Files that are wrong only together: duplicates, groups, names that lead nowhere or to what is broken.
#[tokio::test]
async fn validate_and_the_server_agree_on_files_that_contradict_each_other() -> Result<()> {
    let dir = ConfigDir::new()?;
    dir.write("good.yaml", GOOD)?;
    let cluster = |rest: &str| format!("resources:\n- '@type': {CLUSTER}\n  {rest}\n");
    let eds = |name: &str| {
        cluster(&format!("name: {name}\n  type: EDS\n  eds_cluster_config: {{eds_config: {{ads: {{}}}}}}"))
    };
    let group = |name: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: {name}}}\nspec: {{selector: {{all: true}}}}\n"
        )
    };
    let texts = [
        ("twice/one.yaml", eds("twice")),
        ("twice/two.yaml", eds("twice")),
        ("groups/one.yaml", group("one")),
        ("groups/two.yaml", group("two")),
        ("groups/a.yaml", eds("nobodys")),
        ("dangling.yaml", eds("dangling")),
        (
            "to-broken.yaml",
            eds("broken") + &format!("- '@type': {ENDPOINTS}\n  cluster_name: broken\n  endpoint: []\n"),
        ),
        (
            "document.yaml",
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}".to_owned(),
        ),
        (
            "again.yaml",
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 81}]}}".to_owned(),
        ),
        ("foreign.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}".to_owned()),
    ];
    verdicts_agree(&dir, |_| texts.iter().try_for_each(|(file, text)| dir.write(file, text).map(drop))).await
}
