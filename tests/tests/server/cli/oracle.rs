//! `validate --oracle` asks a real Envoy, and so does a server with `--oracle`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::slice;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use xds_tests::config::{CLUSTER, ConfigDir, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::http::Answer;
use xds_tests::server::{Server, Setup, xds_server};
use xds_tests::tools;
use xds_tests::wait::wait_for;

/// Exit code and standard output, with this oracle.
async fn validate(dir: &Path, oracle: Option<&Path>, more: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = xds_server().await?;
    command.args(["validate", ".", "--target", "envoy"]).args(more).current_dir(dir);
    if let Some(oracle) = oracle {
        command.arg("--oracle").arg(oracle);
    }
    let output = command.output().await?;
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

fn listener(name: &str, port: u16, lua: &str) -> Value {
    let source = json!({"inline_string": lua});
    json!({
        "@type": LISTENER, "name": name,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": name,
            "rds": {"route_config_name": "routes", "config_source": {"ads": {}, "resource_api_version": "V3"}},
            "http_filters": [
                {"name": "lua", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "default_source_code": source}},
                {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
            ],
        }}]}],
    })
}

fn routes(route: &Value) -> Value {
    json!({"@type": ROUTE, "name": "routes", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        {"match": {"prefix": "/"}, "route": route},
    ]}]})
}

fn cluster(name: &str) -> Value {
    json!({"@type": CLUSTER, "name": name, "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}}})
}

fn endpoints(name: &str, address: &str) -> Value {
    json!({"@type": ENDPOINTS, "cluster_name": name, "endpoints": [{"lb_endpoints": [
        {"endpoint": {"address": {"socket_address": {"address": address, "port_value": 80}}}},
    ]}]})
}

#[tokio::test]
async fn an_envoy_refuses_what_the_lint_does_not_foresee() -> Result<()> {
    let envoy = tools::envoy().await?;
    let dir = ConfigDir::new()?;
    dir.write_resources(
        "clusters.yaml",
        &[cluster("web"), endpoints("web", "10.0.0.1"), routes(&json!({"cluster": "web"}))],
    )?;
    dir.write_resources("good.yaml", &[listener("good", 10000, "x = 1")])?;
    let (code, text) = validate(dir.path(), Some(&envoy), &[]).await?;
    ensure!(code == Some(0) && text.contains("Envoy 1.40.0 takes 4 of 4 resources"), "{text}");

    dir.write_resources("bad.yaml", &[listener("bad", 10001, "function x(")])?;
    let (code, text) = validate(dir.path(), None, &[]).await?;
    ensure!(code == Some(0), "the lint foresees it; take another configuration\n{text}");
    let (code, text) = validate(dir.path(), Some(&envoy), &[]).await?;
    let refused = "bad.yaml:2:3: error[refused-by-oracle] Envoy 1.40.0 refuses Listener \"bad\": script load error: [string \"function x(\"]:1: <name> or '...' expected near '<eof>'";
    ensure!(code == Some(1) && text.contains(refused), "{text}");
    ensure!(text.contains("Envoy 1.40.0 takes 4 of 5 resources"), "{text}");

    let (_, text) = validate(dir.path(), Some(&envoy), &["--output", "json"]).await?;
    let report: Value = serde_json::from_str(&text)?;
    ensure!(report["oracle"] == json!({"version": "1.40.0", "asked": 5, "refused": 1}), "{report}");
    Ok(())
}

#[tokio::test]
async fn each_refused_resource_is_found_among_many() -> Result<()> {
    let envoy = tools::envoy().await?;
    let dir = ConfigDir::new()?;
    let mut all: Vec<Value> = (0..40).map(|at| cluster(&format!("c{at}"))).collect();
    all.extend((0..40).map(|at| endpoints(&format!("c{at}"), "10.0.0.1")));
    all[7]["lb_policy"] = "LOAD_BALANCING_POLICY_CONFIG".into();
    all[31]["type"] = "ORIGINAL_DST".into();
    all[50] = endpoints("c10", "not.an.address");
    all.push(routes(&json!({"cluster": "c0", "prefix_rewrite": "/a", "host_rewrite_literal": "a", "regex_rewrite": {"pattern": {"regex": "a"}, "substitution": "b"}})));
    all.extend(["one", "two", "three"].map(|name| listener(name, 10000, "x = 1")));
    dir.write_resources("all.yaml", &all)?;
    let (code, text) = validate(dir.path(), Some(&envoy), &["--output", "json"]).await?;
    let report: Value = serde_json::from_str(&text)?;
    let refused: Vec<&str> = report["diagnostics"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["code"] == "refused-by-oracle")
        .filter_map(|one| one["message"].as_str())
        .filter_map(|message| message.strip_prefix("Envoy 1.40.0 refuses ")?.split_once(": "))
        .map(|(resource, _)| resource)
        .collect();
    let found = |name: &str| refused.contains(&name);
    ensure!(code == Some(1), "{text}");
    ensure!(
        found("Cluster \"c7\"")
            && found("Cluster \"c31\"")
            && found("ClusterLoadAssignment \"c10\"")
            && found("RouteConfiguration \"routes\""),
        "{refused:?}\n{text}"
    );
    // Of three listeners at one address, one is taken.
    ensure!(refused.iter().filter(|one| one.starts_with("Listener ")).count() == 2, "{refused:?}");
    ensure!(refused.len() == 6, "{refused:?}\n{text}");
    Ok(())
}

/// A program that says that it is an Envoy, refuses everything, and writes down what it sees.
fn fake(dir: &TempDir, refuses: &str) -> Result<std::path::PathBuf> {
    let (program, seen) = (dir.path().join("envoy"), dir.path().join("seen"));
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'envoy  version: abc/9.8.7/Clean/RELEASE/BoringSSL'; exit; fi\n\
         /usr/bin/stat -c '%a %n' \"$PWD\" bootstrap.pb >> {seen}\n/usr/bin/env >> {seen}\n{refuses}\n",
        seen = seen.display()
    );
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    Ok(program)
}

#[tokio::test]
async fn questions_are_private_and_gone_afterwards_and_words_about_secrets_are_not_shown() -> Result<()> {
    let elsewhere = TempDir::new()?;
    let words = "echo \"error initializing configuration 'bootstrap.pb': it says PRIVATE\" >&2; exit 1";
    let oracle = fake(&elsewhere, words)?;
    let dir = ConfigDir::new()?;
    let secret = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "key",
        "tls_certificate": {"certificate_chain": {"inline_string": "c"}, "private_key": {"inline_string": "PRIVATE"}},
    });
    dir.write_resources("all.yaml", &[secret, cluster("c")])?;
    let (code, text) = validate(dir.path(), Some(&oracle), &[]).await?;
    ensure!(code == Some(1), "{text}");
    ensure!(text.contains("Envoy 9.8.7 refuses Cluster \"c\": it says PRIVATE"), "{text}");
    ensure!(
        text.contains("refuses Secret \"key\": its words are not shown, because the resource has a secret"),
        "{text}"
    );
    let seen = fs::read_to_string(elsewhere.path().join("seen"))?;
    let scratch = seen.lines().next().and_then(|line| line.strip_prefix("700 ")).unwrap_or_default();
    ensure!(scratch.contains("xds-server-oracle-") && seen.contains("600 bootstrap.pb"), "{seen}");
    ensure!(!seen.contains("HOME="), "{seen}");
    ensure!(!Path::new(scratch).exists(), "{scratch} is still there");
    Ok(())
}

#[tokio::test]
async fn an_oracle_that_cannot_answer_is_an_error() -> Result<()> {
    let elsewhere = TempDir::new()?;
    let dir = ConfigDir::new()?;
    dir.write_resources("all.yaml", &[cluster("c")])?;
    let nothing = elsewhere.path().join("nothing");
    let (code, text) = validate(dir.path(), Some(&nothing), &[]).await?;
    ensure!(
        code == Some(1) && text.contains("error[oracle-failed]") && text.contains("it cannot be started"),
        "{text}"
    );
    let (code, text) = validate(dir.path(), Some(Path::new("/bin/echo")), &[]).await?;
    ensure!(code == Some(1) && text.contains("it does not say the version of an Envoy"), "{text}");
    let crashes = fake(&elsewhere, "kill -SEGV $$")?;
    let (code, text) = validate(dir.path(), Some(&crashes), &[]).await?;
    ensure!(code == Some(1) && text.contains("refuses Cluster \"c\": it ends by signal 11"), "{text}");
    Ok(())
}

/// Puts a listener, again if a busy machine made the Envoy say nothing in time.
async fn put(server: &Server, path: &str, query: &str, body: &Value) -> Result<Answer> {
    wait_for("a decision about what is put", LONG_PATIENCE, async || {
        let json = [("content-type", "application/json")];
        let answer = server.request("PUT", &format!("{path}{query}"), &json, body.to_string()).await?;
        if answer.text().contains("oracle-undecided") {
            server.request("DELETE", path, &[], "").await?;
            bail!("{}", answer.text());
        }
        Ok(answer)
    })
    .await
}

/// Writes a listener to a file, again if a busy machine made the Envoy say nothing in time. Returns the diagnostics.
async fn write(server: &Server, dir: &ConfigDir, file: &str, listener: &Value) -> Result<String> {
    let diagnostics = |files: &Value| {
        let mut files = files["files"].as_array().into_iter().flatten();
        let file = files.find(|one| one["path"].as_str().is_some_and(|path| path.ends_with(file)))?;
        Some(file["diagnostics"].to_string())
    };
    wait_for("a decision about a file", LONG_PATIENCE, async || {
        dir.write_resources(file, slice::from_ref(listener))?;
        let is_loaded = |files: &Value| diagnostics(files).is_some_and(|found| found != "[]");
        let files = server.wait_json("/v1/status/files", is_loaded).await?;
        let found = diagnostics(&files).unwrap_or_default();
        if !found.contains("refused-by-oracle") {
            dir.remove(file)?;
            server.wait_json("/v1/status/files", |files| diagnostics(files).is_none()).await?;
            bail!("{found}");
        }
        Ok(found)
    })
    .await
}

/// An Envoy that said nothing in time is left alone for 30 s.
const LONG_PATIENCE: Duration = Duration::from_secs(150);

#[tokio::test]
async fn a_server_asks_a_real_envoy_about_changes() -> Result<()> {
    let envoy = tools::envoy().await?;
    let words = "script load error: [string";
    for policy in ["refuse", "tell"] {
        let dir = ConfigDir::new()?;
        dir.write_resources("good.yaml", &[listener("good", 10000, "x = 1"), cluster("web")])?;
        let setup = Setup::new()?.watch(dir.path()).arg(format!("--oracle={}", envoy.display()));
        let server = Server::start_with(setup.arg(format!("--oracle-policy={policy}"))).await?;
        server.wait_ready().await?;
        let is_refused = policy == "refuse";

        let body = listener("api", 10001, "function x(");
        for query in ["?dryRun=true", ""] {
            let answer = put(&server, "/v1/groups/default/resources/listeners/api", query, &body).await?;
            let text = answer.text();
            ensure!(
                text.contains("Envoy 1.40.0 refuses Listener") && text.contains(words),
                "{policy}: {text}"
            );
            ensure!((answer.status.as_u16() == 422) == is_refused, "{policy}: {text}");
        }
        let diagnostics = write(&server, &dir, "bad.yaml", &listener("bad", 10002, "function x(")).await?;
        let severity = if is_refused { "error" } else { "warning" };
        ensure!(diagnostics.contains("refused-by-oracle") && diagnostics.contains(words), "{diagnostics}");
        ensure!(diagnostics.contains(severity), "{policy}: {diagnostics}");
        let served = server.get_json("/v1/groups/default/snapshot").await?.to_string();
        ensure!(served.contains("\"good\""), "{served}");
        ensure!(
            served.contains("\"bad\"") != is_refused && served.contains("\"api\"") != is_refused,
            "{policy}: {served}"
        );

        dir.write_resources("bad.yaml", &[listener("bad", 10002, "x = 2")])?;
        let is_mended = |served: &Value| served.to_string().contains("x = 2");
        server.wait_json("/v1/groups/default/snapshot", is_mended).await?;
        ensure!(server.metric("xds_oracle_questions_total").await? > 0);
    }
    Ok(())
}
