//! Budgets: no client, file or body may make the server spend far more than it costs to send.
//!
//! [`ways`] has the table of all ways in and tries each with contents of every shape; [`bodies`] and [`messages`] make
//! them. Every other file is about one kind of attack. Those on the xDS port are made in plaintext and over TLS. `xds_tests::footprint` measures the server, `xds_tests::healthy` is
//! an Envoy that must be served all the while.

/// Each test twice: in plaintext, and with everything that reaches the xDS port encrypted.
macro_rules! on_both_wires {
    ($($name:ident),+ $(,)?) => {
        mod plaintext {
            $(#[tokio::test] async fn $name() -> anyhow::Result<()> { super::$name(Ok).await })+
        }
        mod encrypted {
            use xds_tests::server::Setup;
            $(#[tokio::test] async fn $name() -> anyhow::Result<()> { super::$name(Setup::encrypted).await })+
        }
    };
}

mod bodies;
mod client_status;
mod disk;
mod escapes;
mod files;
mod floods;
mod generation;
mod grpc_call;
mod hostile_callers;
mod http2;
mod messages;
mod nodes;
mod partial_messages;
mod polling;
mod silent_streams;
mod slow_http;
mod store;
mod subscription_churn;
mod subscriptions;
mod ways;
mod webhooks;

use anyhow::Result;
use xds_tests::server::{Server, Setup};

/// Chooses the wire of a test.
type Wire = fn(Setup) -> Result<Setup>;

/// The text of `/metrics`.
async fn metrics(server: &Server) -> Result<String> {
    Ok(server.get("/metrics").await?.text())
}
