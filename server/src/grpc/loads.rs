//! Load reporting: clients report the outcomes of their requests, for the clusters and at the interval that the server sets.
//!
//! A stream begins with the client's node, and the server answers with the clusters to report and the interval. After that only the
//! client sends, until its clusters change. Reports go to the [`LoadBoard`](xds_cache::LoadBoard).

use std::fmt;
use std::future::poll_fn;
use std::slice;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsResponse;
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use tonic::Status;
use tonic::codec::{BufferSettings, EncodeBody, SingleMessageCompressionOverride};
use tonic_prost::ProstEncoder;
use tracing::{debug, warn};
use xds_cache::loads::{Recorded, Reporter};
use xds_cache::{Node, ResourceType, TypeTable, View, ViewReceiver};
use xds_session::SessionError;

use crate::aside::{self, Size};
use crate::grpc::budget::Reserved;
use crate::grpc::client::ClientStream;
use crate::grpc::convert::SentNode;
use crate::grpc::gate::Caller;
use crate::grpc::load_report::{self, LoadReport};
use crate::grpc::receive::Meter;
use crate::grpc::requests::{RequestFrames, Rules};
use crate::grpc::{Grpc, call};

/// Adds the service to `router`: its one method. Clients report every `interval`.
pub(crate) fn add_to(router: Router, grpc: &Arc<Grpc>, interval: Duration) -> Router {
    let grpc = Arc::clone(grpc);
    let serve = move |request| {
        let response = serve(&grpc, interval, request);
        async move { response.unwrap_or_else(|status| call::refusal(&status)) }
    };
    router.route(&format!("/{SERVICE}/StreamLoadStats"), any(serve))
}

fn serve(grpc: &Arc<Grpc>, interval: Duration, request: Request) -> Result<Response, Status> {
    let (parts, body) = request.into_parts();
    if let Some(answer) = call::no_call(&parts) {
        return Ok(answer);
    }
    let caller = Caller::of(&parts.extensions);
    let open = grpc.gate.open(&grpc.streams, &caller)?;
    let max_message_bytes = grpc.config.max_message_bytes;
    let rules = Rules { max_message_bytes, node_field: Some(load_report::NODE) };
    let requests = RequestFrames::new(body, rules, Meter::new(&grpc.receiving, caller.peer().clone()));
    let stream = LoadStream::new(Arc::clone(grpc), open, caller, interval, requests);
    let responses = futures_util::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        match stream.next_response().await {
            Ok(Some(response)) => Some((Ok(response), Some(stream))),
            Ok(None) => None,
            Err(status) => {
                debug!(stream = ?stream, %status, "a stream of load reports ends");
                Some((Err(status), None))
            }
        }
    });
    let encoder = ProstEncoder::new(BufferSettings::default());
    let body =
        EncodeBody::new_server(encoder, responses, None, SingleMessageCompressionOverride::default(), None);
    Ok(call::answer(Body::new(body)))
}

/// One stream.
struct LoadStream {
    grpc: Arc<Grpc>,
    open: ClientStream,
    caller: Caller,
    interval: Duration,
    requests: RequestFrames,
    /// `None` until the first request.
    client: Option<ReportingClient>,
}

/// The client that reports on a stream.
struct ReportingClient {
    node: Arc<Node>,
    id: Arc<str>,
    receiver: ViewReceiver,
    /// The clusters as they were looked at last; not kept alive here.
    clusters: Weak<TypeTable>,
    /// The clusters that the client was last asked for.
    asked: Option<Asked>,
    /// The node's share of the memory for all nodes.
    _reserved: Reserved,
}

/// The clusters that a client is asked to report.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Every one that it has.
    All,
    /// These; never none, which clients take for all or for none (row A208).
    Named(Vec<String>),
}

/// The event that a stream waits for.
enum Event {
    Message(Bytes),
    /// There is another view.
    View,
    /// The client is done.
    End,
}

impl LoadStream {
    fn new(
        grpc: Arc<Grpc>,
        open: ClientStream,
        caller: Caller,
        interval: Duration,
        requests: RequestFrames,
    ) -> Self {
        grpc.metrics.load_stream_opened();
        Self { grpc, open, caller, interval, requests, client: None }
    }

    /// Takes in reports until there is something to tell the client; `None` when it is done.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with.
    async fn next_response(&mut self) -> Result<Option<LoadStatsResponse>, Status> {
        loop {
            match self.next_event().await? {
                Event::End => return Ok(None),
                Event::View => {}
                Event::Message(message) => self.handle_message(&message).await?,
            }
            let Some(client) = &mut self.client else { continue };
            let Some(view) = client.newest_view(&self.grpc, &self.caller)? else { continue };
            if let Some(asked) = client.ask(&view)? {
                return Ok(Some(asked.response(self.interval)));
            }
            // A client that reports without pause must not keep other streams waiting.
            tokio::task::consume_budget().await;
        }
    }

    /// Waits for the next event. Loses nothing when dropped.
    async fn next_event(&mut self) -> Result<Event, Status> {
        let Self { open, requests, client, .. } = self;
        let is_named = client.is_some();
        let message = poll_fn(|cx| {
            let message = requests.poll_message(cx);
            if message.is_pending() && !is_named {
                open.set_receiving(requests.is_receiving_large());
            }
            message
        });
        let changed = async {
            match client {
                Some(client) => client.receiver.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ending = poll_fn(|cx| open.poll_ending(cx)) => Err(ending.into()),
            message = message => message.transpose().map(|message| message.map_or(Event::End, Event::Message)),
            changed = changed => match changed {
                Ok(()) => Ok(Event::View),
                Err(_) => Err(Status::unavailable("the server is shutting down")),
            },
        }
    }

    /// Takes in a request; a large one aside, when it is its turn.
    async fn handle_message(&mut self, message: &Bytes) -> Result<(), Status> {
        if message.len() <= MAX_READ_AT_ONCE {
            return self.handle_request(message);
        }
        let room = tokio::select! {
            biased;
            ending = poll_fn(|cx| self.open.poll_ending(cx)) => return Err(ending.into()),
            room = self.grpc.aside.enter(Size::of_message(message.len())) => room,
        };
        aside::work(&room, || self.handle_request(message))
    }

    /// The first request says whose the stream is, whatever later ones say (row A217).
    fn handle_request(&mut self, message: &Bytes) -> Result<(), Status> {
        let report = LoadReport::read(message);
        let report = report.map_err(|error| self.grpc.end_of(self.caller.peer(), &error.into()))?;
        if self.client.is_none() {
            let node = report.node.map(|node| message.slice_ref(node));
            self.client = Some(ReportingClient::new(&self.grpc, &self.caller, node)?);
            self.open.set_named();
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        if report.n_clusters == 0 {
            return Ok(());
        }
        // Nobody is asked to report before the first load; who does it nevertheless is not served the cluster.
        let view = client.newest_view(&self.grpc, &self.caller)?;
        let groups = match &view {
            Some(view) => Arc::clone(&view.key().groups),
            None => Arc::default(),
        };
        let reporter = Reporter { node: Arc::clone(&client.id), groups };
        let clusters = view.as_ref().map(|view| view.table(&ResourceType::Cluster));
        let is_served = |name: &str| clusters.is_some_and(|clusters| clusters.find(name).is_some());
        let (mut recorded, now) = (Recorded::default(), SystemTime::now());
        // One at a time: the board is free for others in between, and a report never takes memory as a whole.
        for cluster in report.clusters() {
            recorded += self.grpc.loads.record(&reporter, slice::from_ref(&cluster), is_served, now);
        }
        self.grpc.metrics.loads_reported(&recorded);
        if recorded.n_kept < report.n_clusters {
            debug!(node = %client.id, ?recorded, "some of a load report was left out");
        }
        Ok(())
    }
}

impl fmt::Debug for LoadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.client.as_ref().map(|client| &client.id);
        f.debug_struct("LoadStream").field("node", &node).finish_non_exhaustive()
    }
}

impl Drop for LoadStream {
    fn drop(&mut self) {
        self.grpc.metrics.load_stream_closed();
    }
}

impl ReportingClient {
    /// The sender of the first request of a stream.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with, if there is no node, if it passes a limit, or if it is not the caller's to report for.
    fn new(grpc: &Grpc, caller: &Caller, node: Option<Bytes>) -> Result<Self, Status> {
        let peer = caller.peer();
        let sent = node.map(SentNode::read).transpose();
        let sent = sent.map_err(|error| grpc.end_of(peer, &error.into()))?;
        let sent = sent.filter(|sent| !sent.node.id.is_empty());
        let sent = sent.ok_or_else(|| grpc.end_of(peer, &SessionError::MissingNode.into()))?;
        let reserved = grpc.clients.admit(peer, &sent)?;
        let receiver = grpc.clients.follow(caller, &sent.node);
        let receiver = receiver.map_err(|denial| grpc.clients.deny(peer, &denial))?;
        let node = sent.node;
        let id = node.id.as_str().into();
        Ok(Self { node, id, receiver, clusters: Weak::new(), asked: None, _reserved: reserved })
    }

    /// The newest view; `None` before the first complete load. Follows another one where the client's groups have changed.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with, if the client may not have its groups any more.
    fn newest_view(&mut self, grpc: &Grpc, caller: &Caller) -> Result<Option<Arc<View>>, Status> {
        loop {
            let Some(view) = self.receiver.take() else { return Ok(None) };
            if !self.receiver.is_outdated_by(&view) {
                return Ok(Some(view));
            }
            let receiver = grpc.clients.follow(caller, &self.node);
            self.receiver = receiver.map_err(|denial| grpc.clients.end(caller.peer(), &denial))?;
        }
    }

    /// The clusters that the client is to be asked for, if they are new.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with, so that the client opens another one: grpc-go reads only the first response
    /// (row A210).
    fn ask(&mut self, view: &View) -> Result<Option<&Asked>, Status> {
        let clusters = view.table(&ResourceType::Cluster);
        if Weak::ptr_eq(&self.clusters, &Arc::downgrade(clusters)) {
            return Ok(None);
        }
        self.clusters = Arc::downgrade(clusters);
        let asked = if self.node.client_features.contains(SEND_ALL_CLUSTERS) {
            Asked::All
        } else {
            let names = self.names(clusters);
            if names.is_empty() {
                return Ok(None);
            }
            Asked::Named(names)
        };
        if self.asked.as_ref() == Some(&asked) {
            return Ok(None);
        }
        if self.asked.is_some() && self.node.user_agent_name.starts_with("gRPC Go") {
            return Err(Status::unavailable("the clusters to report have changed: open another stream"));
        }
        Ok(Some(self.asked.insert(asked)))
    }

    /// The names of the clusters, as many as a message holds that every client takes.
    fn names(&self, clusters: &TypeTable) -> Vec<String> {
        let mut n_bytes = 0;
        let fits = |name: &String| {
            n_bytes += name.len() + FIELD_OVERHEAD;
            n_bytes <= MAX_NAMES_BYTES
        };
        let names = clusters.resources().map(|cluster| cluster.name().to_string());
        let names: Vec<String> = names.take_while(fits).collect();
        if names.len() < clusters.len() {
            let n_left_out = clusters.len() - names.len();
            warn!(node = %self.id, n_left_out, "a client has too many clusters to be asked for the load of all");
        }
        names
    }
}

impl Asked {
    fn response(&self, interval: Duration) -> LoadStatsResponse {
        let seconds = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX);
        let nanos = i32::try_from(interval.subsec_nanos()).unwrap_or_default();
        let (clusters, send_all_clusters) = match self {
            Self::All => (vec![], true),
            Self::Named(names) => (names.clone(), false),
        };
        LoadStatsResponse {
            clusters,
            send_all_clusters,
            load_reporting_interval: Some(ProtoDuration { seconds, nanos }),
            report_endpoint_granularity: false,
        }
    }
}

pub(crate) const SERVICE: &str = "envoy.service.load_stats.v3.LoadReportingService";
/// A client that says so reports every cluster when it is asked to (row A184).
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// How many bytes of a report are read without going aside: a few milliseconds, however small its entries are. Envoys take a
/// hundred bytes for a cluster.
const MAX_READ_AT_ONCE: usize = 32 * 1024;
/// How much the names in a response may take: clients receive 4 MiB unless they are told otherwise.
const MAX_NAMES_BYTES: usize = 3 * 1024 * 1024;
/// The bytes of a name's field besides the name: a tag and a length.
const FIELD_OVERHEAD: usize = 4;
