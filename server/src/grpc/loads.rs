//! Load reporting: clients tell what became of their requests, and the server says what it wants to know (A.16).
//!
//! A stream begins with the client's node and is answered with the clusters to report and how often; after that, only the
//! client speaks, until its clusters change. What it says goes to the [`LoadBoard`](xds_cache::LoadBoard).

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::endpoint::v3 as endpoint;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::LoadReportingService;
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as ProtoDuration;
use futures_util::Stream;
use prost::Message as _;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};
use xds_cache::loads::{ClusterReport, Counts, LocalityReport, Metric, Place, Reporter};
use xds_cache::{Locality, Node, ResourceType, TypeTable, View, ViewReceiver};
use xds_session::SessionError;

use crate::grpc::Grpc;
use crate::grpc::budget::Reserved;
use crate::grpc::convert::SentNode;
use crate::grpc::streams::OpenStream;
use crate::listen::Peer;

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct LoadReporting {
    pub(crate) grpc: Arc<Grpc>,
    /// How often clients report.
    pub(crate) interval: Duration,
}

#[tonic::async_trait]
impl LoadReportingService for LoadReporting {
    type StreamLoadStatsStream = Pin<Box<dyn Stream<Item = Result<LoadStatsResponse, Status>> + Send>>;

    async fn stream_load_stats(
        &self,
        requests: Request<Streaming<LoadStatsRequest>>,
    ) -> Result<Response<Self::StreamLoadStatsStream>, Status> {
        let peer = requests.extensions().get::<Peer>().cloned().unwrap_or_else(Peer::unknown);
        let open = self.grpc.streams.open(&peer)?;
        let stream =
            LoadStream::new(Arc::clone(&self.grpc), open, peer, self.interval, requests.into_inner());
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
        Ok(Response::new(Box::pin(responses)))
    }
}

/// One stream.
struct LoadStream {
    grpc: Arc<Grpc>,
    open: OpenStream,
    peer: Peer,
    interval: Duration,
    requests: Streaming<LoadStatsRequest>,
    /// `None` until the first request.
    client: Option<ReportingClient>,
}

/// Who reports on a stream.
struct ReportingClient {
    node: Arc<Node>,
    id: Arc<str>,
    receiver: ViewReceiver,
    /// The clusters as they were looked at last; not kept alive here.
    clusters: Weak<TypeTable>,
    /// What the client was last asked for.
    asked: Option<Asked>,
    /// What the node takes of the memory for all nodes.
    _reserved: Reserved,
}

/// Which clusters a client is asked to report.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Every one that it has.
    All,
    /// These; never none, which clients take for all or for none (row A208).
    Named(Vec<String>),
}

/// What a stream waits for.
enum Event {
    Request(Box<LoadStatsRequest>),
    /// There is another view.
    View,
    /// The client is done.
    End,
}

impl LoadStream {
    fn new(
        grpc: Arc<Grpc>,
        open: OpenStream,
        peer: Peer,
        interval: Duration,
        requests: Streaming<LoadStatsRequest>,
    ) -> Self {
        grpc.metrics.load_stream_opened();
        Self { grpc, open, peer, interval, requests, client: None }
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
                Event::Request(request) => self.handle_request(*request)?,
            }
            let Some(client) = &mut self.client else { continue };
            let Some(view) = client.newest_view(&self.grpc) else { continue };
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
        let ending = poll_fn(|cx| {
            open.register(cx.waker());
            open.ending().map_or(Poll::Pending, Poll::Ready)
        });
        let changed = async {
            match client {
                Some(client) => client.receiver.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ending = ending => Err(ending.into()),
            request = requests.message() => Ok(match request? {
                Some(request) => Event::Request(Box::new(request)),
                None => Event::End,
            }),
            changed = changed => match changed {
                Ok(()) => Ok(Event::View),
                Err(_) => Err(Status::unavailable("the server is shutting down")),
            },
        }
    }

    /// Takes in a request. The first one says whose the stream is, whatever later ones say (row A217).
    fn handle_request(&mut self, request: LoadStatsRequest) -> Result<(), Status> {
        if self.client.is_none() {
            self.client = Some(ReportingClient::new(&self.grpc, &self.peer, request.node.as_ref())?);
            self.open.set_named();
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        if request.cluster_stats.is_empty() {
            return Ok(());
        }
        // Nobody is asked to report before the first load; who does it nevertheless is not served the cluster.
        let view = client.newest_view(&self.grpc);
        let groups = match &view {
            Some(view) => Arc::clone(&view.key().groups),
            None => Arc::default(),
        };
        let reporter = Reporter { node: Arc::clone(&client.id), groups };
        let n_beyond = request.cluster_stats.len().saturating_sub(MAX_CLUSTERS_PER_REPORT);
        let stats = request.cluster_stats.into_iter().take(MAX_CLUSTERS_PER_REPORT);
        let reports: Vec<ClusterReport> = stats.map(cluster_report).collect();
        let clusters = view.as_ref().map(|view| view.table(&ResourceType::Cluster));
        let is_served = |name: &str| clusters.is_some_and(|clusters| clusters.find(name).is_some());
        let mut recorded = self.grpc.loads.record(&reporter, &reports, is_served, SystemTime::now());
        recorded.n_over_limit += n_beyond;
        self.grpc.metrics.loads_reported(&recorded);
        if recorded.n_kept < reports.len() || n_beyond > 0 {
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
    /// Who sends the first request of a stream.
    ///
    /// # Errors
    ///
    /// The status that the stream ends with, if there is no node, or if it passes a limit.
    fn new(grpc: &Grpc, peer: &Peer, node: Option<&core::Node>) -> Result<Self, Status> {
        let sent = node.map(|node| SentNode::read(node.encode_to_vec().into())).transpose();
        let sent = sent.map_err(|error| grpc.end_of(peer, &error.into()))?;
        let sent = sent.filter(|sent| !sent.node.id.is_empty());
        let sent = sent.ok_or_else(|| grpc.end_of(peer, &SessionError::MissingNode.into()))?;
        let reserved = grpc.admit(peer, &sent)?;
        let receiver = grpc.publisher.follow(&sent.node);
        let node = sent.node;
        let id = node.id.as_str().into();
        Ok(Self { node, id, receiver, clusters: Weak::new(), asked: None, _reserved: reserved })
    }

    /// The newest view; `None` before the first complete load. Follows another one where the client's groups have changed.
    fn newest_view(&mut self, grpc: &Grpc) -> Option<Arc<View>> {
        loop {
            let view = self.receiver.take()?;
            if !self.receiver.is_outdated_by(&view) {
                return Some(view);
            }
            self.receiver = grpc.publisher.follow(&self.node);
        }
    }

    /// What the client is to be told, if that is something new.
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
            return Err(Status::unavailable("there are other clusters to report: open another stream"));
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
        let names = clusters.resources().iter().map(|cluster| cluster.name().to_string());
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

/// What the board takes of a cluster's report.
fn cluster_report(stats: endpoint::ClusterStats) -> ClusterReport {
    // One that is negative is as good as none.
    let interval = stats.load_report_interval.and_then(|interval| {
        let nanos = u32::try_from(interval.nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)?;
        Some(Duration::new(u64::try_from(interval.seconds).ok()?, nanos))
    });
    let drops = stats.dropped_requests.into_iter().map(|drops| (drops.category, drops.dropped_count));
    ClusterReport {
        cluster: stats.cluster_name,
        service: stats.cluster_service_name,
        interval: interval.unwrap_or_default(),
        dropped: stats.total_dropped_requests,
        dropped_by: drops.collect(),
        localities: stats.upstream_locality_stats.into_iter().map(locality_report).collect(),
    }
}

fn locality_report(stats: endpoint::UpstreamLocalityStats) -> LocalityReport {
    let locality = stats.locality.unwrap_or_default();
    let locality = Locality { region: locality.region, zone: locality.zone, sub_zone: locality.sub_zone };
    let utilization = [
        ("cpu_utilization", stats.cpu_utilization),
        ("mem_utilization", stats.mem_utilization),
        ("application_utilization", stats.application_utilization),
    ];
    let utilization = utilization.into_iter().filter_map(|(name, metric)| {
        let metric = metric?;
        let n_requests = metric.num_requests_finished_with_metric;
        Some((name.to_owned(), Metric { n_requests, sum: metric.total_metric_value }))
    });
    let named = stats.load_metric_stats.into_iter().map(|metric| {
        let n_requests = metric.num_requests_finished_with_metric;
        (metric.metric_name, Metric { n_requests, sum: metric.total_metric_value })
    });
    LocalityReport {
        place: Place { priority: stats.priority, locality },
        counts: Counts {
            issued: stats.total_issued_requests,
            successful: stats.total_successful_requests,
            errors: stats.total_error_requests,
        },
        in_progress: stats.total_requests_in_progress,
        metrics: utilization.chain(named).collect(),
    }
}

/// A client that says so reports every cluster when it is asked to (row A184).
const SEND_ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// More clusters than any client has in a message that is taken in; what is beyond it is left out.
const MAX_CLUSTERS_PER_REPORT: usize = 10_000;
/// How much the names in a response may take: clients receive 4 MiB unless they are told otherwise.
const MAX_NAMES_BYTES: usize = 3 * 1024 * 1024;
const NANOS_PER_SECOND: u32 = 1_000_000_000;
/// What a name takes besides its bytes: a tag and a length.
const FIELD_OVERHEAD: usize = 4;
