//! `config-dump compare`: a real Envoy against what it is served.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::backend::Backend;
use xds_tests::config::{self, ConfigDir};
use xds_tests::envoy::Envoy;
use xds_tests::server::{Server, Variant, xds_server};
use xds_tests::wait::{PATIENCE, wait_for};

/// Exit code, standard output and standard error of a comparison.
async fn compare(server: &Server, envoy: &str, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = xds_server().await?;
    let (admin, envoy) = (format!("--admin=http://{}", server.admin()), format!("--envoy={envoy}"));
    let output = command.args(["config_dump", "compare", &admin, &envoy]).args(args).output().await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status.code(), text(output.stdout), text(output.stderr)))
}

async fn an_envoy_has_what_it_is_served_but_for_what_it_rejects(variant: Variant) -> Result<()> {
    let (config, backend) = (ConfigDir::new()?, Backend::start("v1").await?);
    config.write_resources("one.yaml", &config::one_backend(backend.addr()))?;
    // Nothing of the Envoy refers to it.
    config.write_resources("unused.yaml", &[config::endpoints("unused", &[backend.addr()])])?;
    let server = Server::start(config.path()).await?;
    let envoy = Envoy::start(&server.bootstrap_envoy("edge-1", variant).await?).await?;
    let there = envoy.admin_url();
    let settled = wait_for("no difference", PATIENCE, async || {
        let (code, text, error) = compare(&server, &there, &["--output", "json"]).await?;
        ensure!(code == Some(0), "{code:?} {text} {error}");
        Ok(serde_json::from_str::<Value>(&text)?)
    });
    let same = settled.await?;
    let kinds = |is: &str| -> Vec<&str> {
        let all = same["resources"].as_array().into_iter().flatten().filter(|one| one["is"] == is);
        all.filter_map(|one| one["type"].as_str()?.rsplit('.').next()).collect()
    };
    assert_eq!(
        kinds("same"),
        ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"],
        "{same:#}"
    );
    ensure!(kinds("unused there").contains(&"ClusterLoadAssignment"), "{same:#}");
    // The cluster of the bootstrap is the Envoy's own.
    ensure!(!same.to_string().contains("static") && same["node"] == "edge-1", "{same:#}");

    // An address that is a name is good for DNS; only Envoy knows that a cluster of type STATIC cannot have it.
    let mut bad = config::cluster("bad");
    bad["type"] = json!("STATIC");
    bad.as_object_mut().and_then(|fields| fields.remove("eds_cluster_config"));
    bad["load_assignment"] = json!({"cluster_name": "bad", "endpoints": [{"lb_endpoints": [{"endpoint":
        {"address": {"socket_address": {"address": "not.an.ip", "port_value": 80}}}}]}]});
    config.write_resources("bad.yaml", &[bad])?;
    let different = wait_for("a difference", PATIENCE, async || {
        let (code, text, error) = compare(&server, &there, &["--output", "table"]).await?;
        ensure!(code == Some(1), "{code:?} {text} {error}");
        Ok((text, error))
    });
    let (text, error) = different.await?;
    let first = text.lines().nth(2).context("no row")?;
    ensure!(
        first.starts_with("clusters") && first.contains("bad  ") && first.contains("missing there"),
        "{text}"
    );
    ensure!(error.contains("error: 1 of "), "{error}");

    let (code, _, error) = compare(&server, "http://127.0.0.1:1", &[]).await?;
    ensure!(code == Some(3) && error.contains("cannot reach the Envoy"), "{code:?} {error}");
    let (code, _, error) = compare(&server, "https://127.0.0.1:1", &[]).await?;
    ensure!(code == Some(2) && error.contains("http only"), "{code:?} {error}");
    Ok(())
}

#[tokio::test]
async fn an_incremental_envoy_is_compared() -> Result<()> {
    an_envoy_has_what_it_is_served_but_for_what_it_rejects(Variant::Delta).await
}

#[tokio::test]
async fn an_envoy_with_state_of_the_world_is_compared() -> Result<()> {
    an_envoy_has_what_it_is_served_but_for_what_it_rejects(Variant::Sotw).await
}
