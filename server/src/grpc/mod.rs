//! xDS over the wire: the gRPC services, REST-JSON polling, client status, and load reports.
//!
//! The way of a response: the publisher makes a view; every stream that follows it is woken and asks its session
//! (`xds_session::Client`, driven by `client`) what it owes; `encode` makes bytes of it, which streams share
//! (`shared`); `body` writes them behind a nonce. The way of a request: `requests` takes it out of the connection,
//! `convert` makes it the session's, and `load_report` what the board of loads takes.
//!
//! There is no task and no queue per stream. What a client can make grow has a limit in [`GrpcConfig`].

mod arrivals;
mod aside;
mod body;
mod budget;
mod client;
mod config;
mod convert;
mod csds;
mod discovery;
pub mod encode;
mod fetch;
mod frames;
mod guard;
mod identity;
mod json_answer;
mod late;
mod lines;
mod load_report;
mod loads;
mod matcher;
mod metered;
mod nacks;
mod node;
mod pace;
mod poll;
mod polls;
mod receive;
mod requests;
mod rest;
mod serve;
mod shared;
mod status;
mod streams;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod wire;

use std::sync::{Arc, Mutex};

use xds_cache::{LoadBoard, Publisher, Refusals, StatusBoard};
use xds_codec::Codec;

pub use config::{GrpcConfig, MIN_LOAD_REPORT_INTERVAL};
pub use receive::ReceiveLimits;
pub use serve::ServeError;

use crate::metrics::Metrics;

/// Where the services get from what they serve, and where they tell what clients say.
#[derive(Clone, Debug)]
pub struct Boards {
    /// Gives the views.
    pub publisher: Arc<Publisher>,
    /// Is told what clients were sent and what they answered.
    pub board: Arc<StatusBoard>,
    /// Is told the load that clients report.
    pub loads: Arc<LoadBoard>,
    /// Counts what passes a limit.
    pub refusals: Arc<Refusals>,
}

/// The services of the xDS port, with all that they share.
///
/// Make one with [`Grpc::new`] and [`serve`](Grpc::serve) it; its [`admin_routes`](Grpc::admin_routes) are for a port of
/// operators.
#[derive(Debug)]
pub struct Grpc {
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    loads: Arc<LoadBoard>,
    refusals: Arc<Refusals>,
    codec: Codec,
    metrics: Arc<Metrics>,
    config: GrpcConfig,
    streams: Arc<streams::Streams>,
    /// Calls of other services than discovery and load reports.
    calls: Arc<streams::Streams>,
    admin_calls: Arc<streams::Streams>,
    receiving: Arc<receive::Receiving>,
    clients: Arc<client::Clients>,
    /// Room for what is kept of the nodes to decide by.
    nodes: Arc<budget::Budget>,
    identities: identity::Identities,
    bodies: shared::Bodies,
    pacer: Arc<pace::Pacer>,
    aside: aside::Aside,
    unmatched: client::UnmatchedLog,
    arrivals: arrivals::Arrivals,
    polls: polls::Polls,
    client_status: csds::Places,
    nacks: nacks::Nacks,
    polled_nacks: Mutex<nacks::Repeats>,
}

impl Grpc {
    /// Services that serve what the publisher of `boards` publishes, and tell the others of it.
    #[must_use]
    pub fn new(boards: Boards, codec: Codec, metrics: Arc<Metrics>, config: GrpcConfig) -> Arc<Self> {
        let Boards { publisher, board, loads, refusals } = boards;
        Arc::new(Self {
            publisher,
            board,
            loads,
            codec,
            metrics,
            streams: streams::Streams::new(config.max_streams, Arc::clone(&refusals)),
            calls: streams::Streams::new(MAX_CALLS, Arc::clone(&refusals)),
            admin_calls: streams::Streams::new(MAX_CALLS, Arc::clone(&refusals)),
            receiving: receive::Receiving::new(config.receive, Arc::clone(&refusals)),
            refusals,
            clients: Arc::default(),
            nodes: budget::Budget::new(config.max_node_memory / 2),
            identities: identity::Identities::new(config.max_node_memory / 2),
            bodies: shared::Bodies::new(&config.identifier),
            pacer: pace::Pacer::new(config.max_paced, config.paced_for),
            aside: aside::Aside::new(),
            unmatched: client::UnmatchedLog::default(),
            arrivals: arrivals::Arrivals::default(),
            polls: polls::Polls::new(config.max_polls, config.max_poll_bytes),
            client_status: csds::Places::default(),
            nacks: nacks::Nacks::default(),
            polled_nacks: Mutex::default(),
            config,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &GrpcConfig {
        &self.config
    }
}

/// Calls of client status, health and reflection that are open at once on a port: beyond it the oldest one ends. Who checks a
/// server's health is not many, and asks again.
const MAX_CALLS: usize = 1000;
