//! A real xDS-enabled gRPC server (gRFC A36), set up by `xds-server bootstrap grpc`: what its Listener forbids is refused.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;
use xds_tests::config::{ConfigDir, LISTENER};
use xds_tests::server::{Server, free_addr};
use xds_tests::tools;

/// A Listener for a gRPC server at this address, whose RBAC filter denies one method.
fn listener(addr: std::net::SocketAddr, denied: &str) -> Value {
    let any = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
    let rules = json!({"action": "DENY", "policies": {"denied": {
        "permissions": [{"url_path": {"path": {"exact": denied}}}],
        "principals": [{"any": true}],
    }}});
    let manager = json!({
        "@type": any("network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "server",
        "route_config": {"name": "served", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/", "case_sensitive": true}, "non_forwarding_action": {}},
        ]}]},
        "http_filters": [
            {"name": "rbac", "typed_config": {"@type": any("http.rbac.v3.RBAC"), "rules": rules}},
            {"name": "router", "typed_config": {"@type": any("http.router.v3.Router")}},
        ],
    });
    json!({
        "@type": LISTENER,
        "name": format!("grpc/server?xds.resource.listening_address={addr}"),
        "address": {"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}},
        "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
    })
}

#[tokio::test]
async fn a_server_gets_its_listener_and_enforces_it() -> Result<()> {
    let addr = free_addr()?;
    let config = ConfigDir::new()?;
    config
        .write("listener.yaml", &json!({"resources": [listener(addr, "/echo.Echo/Denied")]}).to_string())?;
    let server = Server::start(config.path()).await?;
    let mut command = Command::new(tools::python().await?);
    command.arg(tools::clients_dir().join("grpc_server.py")).arg(addr.to_string());
    command.args(["/echo.Echo/Who", "/echo.Echo/Denied"]).kill_on_drop(true);
    command.env_remove("GRPC_XDS_BOOTSTRAP");
    command.env("GRPC_XDS_BOOTSTRAP_CONFIG", server.bootstrap_grpc("grpc-server").await?);
    let output = timeout(Duration::from_secs(60), command.output()).await.context("no end in time")??;
    let shown = String::from_utf8_lossy(&output.stderr);
    let answers: Value = serde_json::from_slice(&output.stdout).with_context(|| shown.into_owned())?;
    assert_eq!(answers, json!({"/echo.Echo/Who": "OK", "/echo.Echo/Denied": "PERMISSION_DENIED"}));
    Ok(())
}
