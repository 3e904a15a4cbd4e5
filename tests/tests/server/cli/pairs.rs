//! The command line can do everything that the REST API can do, and the other way round.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use xds_tests::server::{Server, Setup, cli};

/// An endpoint, and the command that does the same; or why there is none.
struct Pair(&'static str, Result<&'static str, &'static str>);

/// Verbs of one path stand in one row.
const PAIRS: [Pair; 61] = [
    Pair("GET /healthz", Ok("health")),
    Pair("GET /readyz", Ok("status")),
    Pair("GET /metrics", Err("for Prometheus")),
    Pair("GET /openapi.json", Err("for generators of clients")),
    Pair("GET /v1/groups", Ok("groups list")),
    Pair("GET /v1/groups/{}", Ok("groups get")),
    Pair("PUT /v1/groups/{}", Ok("groups put")),
    Pair("DELETE /v1/groups/{}", Ok("groups delete")),
    Pair("GET /v1/groups/{}/resources", Ok("resources list")),
    Pair("PUT /v1/groups/{}/resources", Ok("resources put")),
    Pair("GET /v1/groups/{}/resources/{}/{}", Ok("resources get")),
    Pair("PUT /v1/groups/{}/resources/{}/{}", Ok("resources put")),
    Pair("DELETE /v1/groups/{}/resources/{}/{}", Ok("resources delete")),
    Pair("GET /v1/groups/{}/snapshot", Ok("snapshot")),
    Pair("POST /v1/apply", Ok("apply")),
    Pair("GET /v1/documents", Ok("documents")),
    Pair("GET /v1/documents/{}/{}/{}", Ok("documents")),
    Pair("DELETE /v1/documents/{}/{}/{}", Ok("delete")),
    Pair("GET /v1/conditions", Ok("conditions")),
    Pair("GET /v1/weights", Ok("weights")),
    Pair("GET /v1/weights/{}/{}/{}", Ok("weights")),
    Pair("GET /v1/weights/{}/{}/{}/{}", Ok("weights")),
    Pair("PATCH /v1/weights/{}/{}/{}/{}", Ok("weights set")),
    Pair("PUT /v1/weights/{}/{}/{}/{}", Ok("weights set")),
    Pair("DELETE /v1/weights/{}/{}/{}/{}", Ok("weights reset")),
    Pair("GET /v1/fleet", Ok("fleet,top")),
    Pair("GET /v1/routes", Ok("routes")),
    Pair("GET /v1/certificates", Ok("certificates")),
    Pair("GET /v1/nodes", Ok("nodes")),
    Pair("GET /v1/nodes/{}", Ok("nodes")),
    Pair("GET /v1/nodes/{}/snapshot", Ok("snapshot")),
    Pair("GET /v1/acks", Ok("acks,wait")),
    Pair("GET /v1/relay", Ok("relay")),
    Pair("GET /v1/replicas", Ok("replicas")),
    Pair("DELETE /v1/replicas/{}", Ok("replicas forget")),
    Pair("GET /v1/status/files", Ok("status")),
    Pair("PUT /v1/files", Ok("push")),
    Pair("POST /v1/reload", Ok("reload")),
    Pair("POST /v1/validate", Ok("validate")),
    Pair("POST /v1/explain", Ok("explain,bisect")),
    Pair("POST /v1/diff", Ok("diff")),
    Pair("GET /v1/tests", Ok("tests")),
    Pair("POST /v1/tests", Ok("tests release")),
    Pair("GET /v1/history", Ok("history")),
    Pair("GET /v1/history/{}", Ok("history show")),
    Pair("POST /v1/rollback", Ok("rollback")),
    Pair("POST /v1/rollouts", Ok("rollout start")),
    Pair("GET /v1/rollouts", Ok("rollout list")),
    Pair("GET /v1/rollouts/{}", Ok("rollout status")),
    Pair("GET /v1/rollouts/{}/loads", Ok("rollout status")),
    Pair("POST /v1/rollouts/{}", Ok("rollout pause,resume,promote,abort,retry")),
    Pair("DELETE /v1/rollouts/{}", Ok("rollout delete")),
    Pair("GET /v1/loads", Ok("loads")),
    Pair("GET /v1/waves", Ok("waves")),
    Pair("GET /v1/waves/{}", Ok("waves")),
    Pair("POST /v1/waves/{}", Ok("waves pause,resume,promote,abort")),
    Pair("GET /v1/access", Ok("access check")),
    Pair("GET /v1/audit", Ok("audit")),
    Pair("GET /v1/events", Ok("events")),
    Pair("- the dump of an Envoy", Ok("config-dump compare")),
    Pair(
        "- the server itself, and what needs none",
        Ok("serve,bootstrap,ca,token,translate,get,store,completions,man,help"),
    ),
];

#[tokio::test]
async fn every_endpoint_has_a_command_and_every_command_an_endpoint() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let document = server.get_json("/openapi.json").await?;
    let mut endpoints = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().context("paths")? {
        let path = path.split(':').next().unwrap_or_default();
        let places = path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part });
        let place = places.collect::<Vec<_>>().join("/");
        let methods = methods.as_object().context("methods")?.keys();
        let methods = methods.filter(|key| ["get", "put", "post", "patch", "delete"].contains(&key.as_str()));
        endpoints.extend(methods.map(|method| format!("{} {place}", method.to_uppercase())));
    }
    let told: BTreeSet<String> =
        PAIRS.iter().map(|pair| pair.0.to_owned()).filter(|told| !told.starts_with('-')).collect();
    ensure!(endpoints == told, "only one side has {:?}", endpoints.symmetric_difference(&told));

    let mut commands = BTreeSet::new();
    for words in PAIRS.iter().filter_map(|pair| pair.1.ok()) {
        let (parent, last) = words.rsplit_once(' ').unwrap_or(("", words));
        for word in last.split(',') {
            commands.insert(if parent.is_empty() { word.to_owned() } else { parent.to_owned() });
            let args: Vec<&str> =
                parent.split(' ').filter(|word| !word.is_empty()).chain([word, "--help"]).collect();
            let help = if word == "help" { String::new() } else { cli(&args).await? };
            // An unknown word would be taken for an argument of the parent, whose help that would be.
            let usage = format!("Usage: xds-server {}", args[..args.len() - 1].join(" "));
            ensure!(word == "help" || help.contains(&usage), "{words}: {help}");
        }
    }
    let help = cli(&["--help"]).await?;
    let listed =
        help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next()).context("commands")?;
    let listed = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let listed: BTreeSet<String> =
        listed.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    ensure!(commands == listed, "only one side has {:?}", commands.symmetric_difference(&listed));
    Ok(())
}
