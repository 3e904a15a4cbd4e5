//! Budgets: no client, file or body may make the server spend far more than it costs to send.
//!
//! [`ways`] has the table of all ways in and tries each with contents of every shape; [`bodies`] and [`messages`] make
//! them. Every other file is about one kind of attack. `xds_tests::footprint` measures the server, `xds_tests::healthy` is
//! an Envoy that must be served all the while.

mod bodies;
mod client_status;
mod disk;
mod escapes;
mod files;
mod floods;
mod generation;
mod grpc_call;
mod http2;
mod messages;
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

/// The text of `/metrics`.
async fn metrics(server: &Server) -> Result<String> {
    Ok(server.get("/metrics").await?.text())
}
