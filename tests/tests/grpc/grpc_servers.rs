//! A real xDS-enabled gRPC server (gRFC A36), set up by `xds-server bootstrap grpc`: what its Listener forbids is refused.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use xds_tests::config::{ConfigDir, LISTENER};
use xds_tests::server::{Server, free_addr};
use xds_tests::tools;

/// A Listener for a gRPC server at this address, whose RBAC filter denies one method.
fn listener(addr: SocketAddr, denied: &str) -> Value {
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

/// The methods that are called.
const METHODS: [&str; 2] = ["/echo.Echo/Who", "/echo.Echo/Denied"];

/// Starts a gRPC server at this address, and calls its methods as soon as it takes connections.
async fn start(server: &Server, addr: SocketAddr) -> Result<Child> {
    let mut command = Command::new(tools::python().await?);
    command.arg(tools::clients_dir().join("grpc_server.py")).arg(addr.to_string());
    command.args(METHODS).kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("GRPC_XDS_BOOTSTRAP");
    command.env("GRPC_XDS_BOOTSTRAP_CONFIG", server.bootstrap_grpc("grpc-server").await?);
    Ok(command.spawn()?)
}

/// Checks how the calls ended.
async fn check(started: Child) -> Result<()> {
    let output =
        timeout(Duration::from_secs(60), started.wait_with_output()).await.context("no end in time")??;
    let shown = String::from_utf8_lossy(&output.stderr);
    let answers: Value = serde_json::from_slice(&output.stdout).with_context(|| shown.into_owned())?;
    let [allowed, denied] = METHODS;
    assert_eq!(answers, json!({allowed: "OK", denied: "PERMISSION_DENIED"}));
    Ok(())
}

#[tokio::test]
async fn a_server_gets_its_listener_and_enforces_it() -> Result<()> {
    let addr = free_addr()?;
    let config = ConfigDir::new()?;
    config.write_resources("listener.yaml", &[listener(addr, METHODS[1])])?;
    let server = Server::start(config.path()).await?;
    check(start(&server, addr).await?).await
}

#[tokio::test]
async fn a_server_without_its_listener_takes_no_connection_until_the_listener_comes() -> Result<()> {
    let (addr, other) = (free_addr()?, free_addr()?);
    let config = ConfigDir::new()?;
    config.write_resources("other.yaml", &[listener(other, METHODS[1])])?;
    let server = Server::start(config.path()).await?;
    let started = start(&server, addr).await?;
    let has_asked = |node: &Value| node["types"][LISTENER]["status"].is_string();
    server.wait_json("/v1/nodes/grpc-server", has_asked).await?;
    ensure!(TcpStream::connect(addr).await.is_err(), "it takes connections");
    config.write_resources("listener.yaml", &[listener(addr, METHODS[1])])?;
    check(started).await
}
