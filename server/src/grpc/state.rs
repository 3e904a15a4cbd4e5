//! The state that all services of the xDS port share.

use std::fmt::Display;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;
use xds_access::Policy;
use xds_cache::{LoadBoard, Publisher, Reason, Refusals, StatusBoard};
use xds_codec::Codec;

use crate::aside::Aside;
use crate::grpc::balance::Others;
use crate::grpc::boards::Boards;
use crate::grpc::client::{ClientStreams, Clients};
use crate::grpc::config::GrpcConfig;
use crate::grpc::convert::RequestError;
use crate::grpc::csds::places::Places;
use crate::grpc::currency::Currency;
use crate::grpc::gate::{Gate, GateRules};
use crate::grpc::metered::Calls;
use crate::grpc::nacks::Repeats;
use crate::grpc::pace::Pacer;
use crate::grpc::polls::Polls;
use crate::grpc::receive::Receiving;
use crate::grpc::shared::Bodies;
use crate::grpc::status::{end_of, refuse};
use crate::grpc::streams::Streams;
use crate::listen::Peer;
use crate::metrics::Metrics;

/// The services of the xDS port, with everything that they share.
///
/// Make one with [`Grpc::new`] and [`serve`](Grpc::serve) it; its [`admin_routes`](Grpc::admin_routes) are for a port of
/// operators.
#[derive(Debug)]
pub struct Grpc {
    pub(super) publisher: Arc<Publisher>,
    pub(super) board: Arc<StatusBoard>,
    pub(super) loads: Arc<LoadBoard>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) codec: Codec,
    pub(super) metrics: Arc<Metrics>,
    pub(super) config: GrpcConfig,
    pub(super) gate: Gate,
    pub(super) streams: Arc<ClientStreams>,
    /// Calls of other services than discovery and load reports.
    pub(super) calls: Arc<Calls>,
    pub(super) admin_calls: Arc<Calls>,
    pub(super) receiving: Arc<Receiving>,
    pub(super) clients: Arc<Clients>,
    pub(super) bodies: Bodies,
    pub(super) pacer: Arc<Pacer>,
    pub(super) aside: Aside,
    pub(super) polls: Polls,
    pub(super) client_status: Places,
    pub(super) polled_nacks: Mutex<Repeats>,
    pub(super) others: Others,
    pub(super) currency: Currency,
}

impl Grpc {
    /// Services that serve the views of the publisher in `boards` to those whom `policy` does not deny, and report to the other
    /// boards.
    #[must_use]
    pub fn new(
        boards: Boards,
        policy: watch::Receiver<Arc<Policy>>,
        codec: Codec,
        metrics: Arc<Metrics>,
        config: GrpcConfig,
    ) -> Arc<Self> {
        let clients = Clients::new(&boards, Arc::clone(&metrics), &config);
        let Boards { publisher, board, loads, refusals, trail: _, traces: _, culprits: _ } = boards;
        let rules = GateRules {
            needs_credential: config.needs_credential,
            needs_token: config.needs_token,
            is_dry_run: config.access_dry_run,
        };
        Arc::new(Self {
            publisher,
            board,
            loads,
            codec,
            metrics,
            gate: Gate::new(policy, rules),
            streams: Streams::new(config.max_streams, Arc::clone(&refusals)),
            calls: Streams::new(MAX_CALLS, Arc::clone(&refusals)),
            admin_calls: Streams::new(MAX_CALLS, Arc::clone(&refusals)),
            receiving: Receiving::new(config.receive, Arc::clone(&refusals)),
            refusals,
            clients,
            bodies: Bodies::new(&config.identifier),
            pacer: Pacer::new(config.max_paced, config.paced_for),
            aside: Aside::new(),
            polls: Polls::new(config.max_polls, config.max_poll_bytes),
            client_status: Places::default(),
            polled_nacks: Mutex::default(),
            others: Others::default(),
            currency: Currency::default(),
            config,
        })
    }

    /// Shares clients with other servers from now on, if connections have a greatest age: `others` says how many streams each of those has
    /// that answer. It is called often, and must not wait.
    pub fn share_with(&self, others: impl Fn() -> Vec<u64> + Send + Sync + 'static) {
        self.others.set(Box::new(others));
    }

    /// Takes what is served for the newest state only for a moment after what `confirmed` says, from now on. It is called often, and must
    /// not wait. Without this, it always is.
    pub fn confirm_by(&self, confirmed: impl Fn() -> Option<Instant> + Send + Sync + 'static) {
        self.currency.set(Box::new(confirmed));
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &GrpcConfig {
        &self.config
    }

    /// Counts a request of `peer` that passed a limit.
    pub(super) fn refuse(&self, reason: Reason, peer: &Peer, detail: impl Display) {
        refuse(&self.refusals, reason, peer, detail);
    }

    /// The status of a stream whose client broke the protocol; counted if it passed a limit.
    pub(super) fn end_of(&self, peer: &Peer, error: &RequestError) -> Status {
        end_of(&self.refusals, peer, error)
    }
}

/// Calls of client status, health and reflection that are open at once on a port. Beyond it the oldest one ends: health checkers are
/// few, and ask again.
const MAX_CALLS: usize = 1000;
