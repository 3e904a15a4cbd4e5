//! Budgets: no client, file or body may make the server spend far more than it costs to send.
//!
//! Each file is about one kind of attack. `xds_tests::footprint` measures the server, `xds_tests::healthy` is an Envoy that
//! must be served all the while.

mod client_status;
mod disk;
mod escapes;
mod files;
mod floods;
mod http2;
mod nodes;
mod partial_messages;
mod polling;
mod silent_streams;
mod slow_http;
mod store;
mod subscription_churn;
mod ways;
mod webhooks;

use anyhow::Result;
use xds_tests::server::Server;

/// What `/metrics` says.
async fn metrics(server: &Server) -> Result<String> {
    Ok(server.get("/metrics").await?.text())
}
