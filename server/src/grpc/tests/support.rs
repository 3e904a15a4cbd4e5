//! A server to test, and clients for it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use xds_access::{Policy, Trail};
use xds_cache::loads::LoadLimits;
use xds_cache::{
    GroupName, Layer, LoadBoard, Publisher, Reason, Refusals, Resource, ResourceType, Revision, StatusBoard,
    layer,
};
use xds_codec::Codec;
use xds_control::Roster;

use crate::grpc::{Boards, Grpc, GrpcConfig, ServeError};
use crate::listen::{Port, PortRules, Tls};
use crate::metrics::{Metrics, PublicationSource};

pub(super) const ADS: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub(super) const DELTA_ADS: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
pub(super) const STREAM_CLUSTERS: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters";
pub(super) const FETCH_CLUSTERS: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
pub(super) const STREAM_ENDPOINTS: &str =
    "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints";

/// The services and what they serve.
pub(super) struct World {
    pub(super) publisher: Arc<Publisher>,
    pub(super) board: Arc<StatusBoard>,
    pub(super) loads: Arc<LoadBoard>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) trail: Arc<Trail>,
    pub(super) grpc: Arc<Grpc>,
    pub(super) policy: watch::Sender<Arc<Policy>>,
    revision: AtomicU64,
}

impl World {
    pub(super) fn new(config: GrpcConfig) -> Self {
        let publisher = Arc::new(Publisher::new());
        let board = StatusBoard::new();
        let refusals = Arc::<Refusals>::default();
        let roster = Arc::new(Roster::new(Arc::clone(&publisher), Arc::clone(&board)));
        let metrics = Arc::new(Metrics::new(Arc::clone(&publisher), roster, Arc::clone(&refusals), vec![]));
        let codec = Codec::new().unwrap();
        let loads = Arc::new(LoadBoard::new(LoadLimits::default()));
        let trail = Arc::<Trail>::default();
        let boards = Boards {
            publisher: Arc::clone(&publisher),
            board: Arc::clone(&board),
            loads: Arc::clone(&loads),
            culprits: Arc::default(),
            refusals: Arc::clone(&refusals),
            trail: Arc::clone(&trail),
            traces: None,
        };
        let (policy, current) = watch::channel(Arc::default());
        let grpc = Grpc::new(boards, current, codec, Arc::clone(&metrics), config);
        Self { publisher, board, loads, metrics, refusals, trail, grpc, policy, revision: AtomicU64::new(0) }
    }

    /// Makes these what every node is served.
    pub(super) fn publish(&self, resources: impl IntoIterator<Item = Resource>) -> Revision {
        let mut base = Layer::default();
        let group = base.groups.entry(GroupName::default_group()).or_default();
        group.resources = resources.into_iter().map(Arc::new).collect();
        self.publish_layer(&base)
    }

    /// Makes these groups what nodes are served.
    pub(super) fn publish_layer(&self, base: &Layer) -> Revision {
        let revision = Revision(self.revision.fetch_add(1, Ordering::Relaxed) + 1);
        self.publisher.publish(revision, layer::merge(base, &Layer::default(), &layer::Generated::new()));
        self.metrics.published(PublicationSource::Files, revision);
        revision
    }

    /// Waits until `holds`, looking again whenever something happened on a stream.
    pub(super) async fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut news = self.board.news();
        let waiting = async {
            while !holds(self) {
                // One that was missed is as good as one that came.
                let _ = news.recv().await;
            }
        };
        within(what, waiting).await;
    }
}

/// Services on a port of their own.
pub(super) struct Server {
    pub(super) world: Arc<World>,
    pub(super) address: SocketAddr,
    pub(super) port: Arc<Port>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::with(GrpcConfig::default()).await
    }

    pub(super) async fn with(config: GrpcConfig) -> Self {
        Self::on(config, None).await
    }

    /// With TLS, if it is given.
    pub(super) async fn on(config: GrpcConfig, tls: Option<Arc<Tls>>) -> Self {
        Self::of_connections(config, tls, 100_000).await
    }

    /// With room for so many connections.
    pub(super) async fn of_connections(
        config: GrpcConfig,
        tls: Option<Arc<Tls>>,
        max_connections: usize,
    ) -> Self {
        let world = Arc::new(World::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let grpc = Arc::clone(&world.grpc);
        let silence = grpc.config().keepalive_interval + grpc.config().keepalive_timeout;
        let rules = PortRules {
            name: "xds",
            max_connections,
            reason: Reason::Connections,
            opening: silence,
            idle: Duration::from_secs(600),
            stalled: silence,
            may_take_later: true,
            max_of_address: max_connections / 2,
            is_http1_only: false,
        };
        let port = Port::new(rules, tls, Arc::clone(&world.refusals));
        let served = Arc::clone(&port);
        let serving = tokio::spawn(async move {
            grpc.serve(listener, served, async {
                let _ = stopped.await;
            })
            .await
        });
        Self { world, address, port, stop: Some(stop), serving }
    }

    pub(super) async fn channel(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().tcp_nodelay(true)
    }

    /// Tells the server to stop, as a signal would.
    pub(super) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits until nothing of the server is left.
    pub(super) async fn stopped(self) {
        within("the end of the server", self.serving).await.unwrap().unwrap();
    }
}

/// A stream as a client sees it.
pub(super) struct ClientStream<Request, Response> {
    pub(super) requests: Option<mpsc::UnboundedSender<Request>>,
    pub(super) responses: Streaming<Response>,
}

pub(super) type Sotw = ClientStream<DiscoveryRequest, DiscoveryResponse>;
pub(super) type Delta = ClientStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

impl<Request, Response> ClientStream<Request, Response>
where
    Request: Message + Default + 'static,
    Response: Message + Default + 'static,
{
    pub(super) async fn open(channel: &Channel, path: &'static str) -> Result<Self, Status> {
        Self::open_with(channel, path, &[]).await
    }

    /// With values of the header `authorization`.
    pub(super) async fn open_with(
        channel: &Channel,
        path: &'static str,
        authorization: &[&str],
    ) -> Result<Self, Status> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
        client.ready().await.unwrap();
        let request = with_authorization(UnboundedReceiverStream::new(receiver), authorization);
        let path = PathAndQuery::from_static(path);
        let opened = client.streaming(request, path, ProstCodec::<Request, Response>::default()).await?;
        Ok(Self { requests: Some(requests), responses: opened.into_inner() })
    }

    pub(super) fn send(&self, request: Request) {
        self.requests.as_ref().unwrap().send(request).unwrap();
    }

    /// The next response.
    pub(super) async fn next(&mut self) -> Response {
        within("a response", self.responses.message()).await.unwrap().expect("the stream goes on")
    }

    /// How the stream ends; there must be no more responses.
    pub(super) async fn end(&mut self) -> Status {
        match within("the end of the stream", self.responses.message()).await {
            Ok(None) => Status::ok(""),
            Ok(Some(_)) => panic!("unexpected response"),
            Err(status) => status,
        }
    }
}

impl Sotw {
    /// Accepts a response, with the same names as before.
    pub(super) fn ack(&self, response: &DiscoveryResponse, names: &[&str]) {
        self.send(DiscoveryRequest {
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            ..sotw_request(&response.type_url, names)
        });
    }
}

fn with_authorization<T>(message: T, values: &[&str]) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    for value in values {
        request.metadata_mut().append("authorization", value.parse().unwrap());
    }
    request
}

/// A unary call.
pub(super) async fn unary<Request, Response>(
    channel: &Channel,
    path: &'static str,
    request: Request,
) -> Result<Response, Status>
where
    Request: Message + Default + 'static,
    Response: Message + Default + 'static,
{
    unary_with(channel, path, request, &[]).await
}

/// A unary call with values of the header `authorization`.
pub(super) async fn unary_with<Request, Response>(
    channel: &Channel,
    path: &'static str,
    request: Request,
    authorization: &[&str],
) -> Result<Response, Status>
where
    Request: Message + Default + 'static,
    Response: Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(path);
    let codec = ProstCodec::<Request, Response>::default();
    client
        .unary(with_authorization(request, authorization), path, codec)
        .await
        .map(tonic::Response::into_inner)
}

pub(super) fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.into(), user_agent_name: "envoy".into(), ..Default::default() })
}

/// A request without node.
pub(super) fn sotw_request(type_url: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: type_url.into(),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    }
}

/// The first request of a node for all clusters.
pub(super) fn all_clusters(id: &str) -> DiscoveryRequest {
    DiscoveryRequest { node: node(id), ..sotw_request(ResourceType::Cluster.type_url(), &[]) }
}

/// A cluster whose content tells `text`.
pub(super) fn cluster(name: &str, text: &str) -> Resource {
    let cluster = Cluster { name: name.into(), alt_stat_name: text.into(), ..Default::default() };
    Resource::plain(ResourceType::Cluster, name, cluster.encode_to_vec())
}

/// The texts of the clusters of a response.
pub(super) fn texts(response: &DiscoveryResponse) -> Vec<String> {
    let text = |value: &[u8]| Cluster::decode(value).unwrap().alt_stat_name;
    response.resources.iter().map(|any| text(&any.value)).collect()
}

/// Waits, but not for ever.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(output) => output,
        Err(_) => panic!("waited too long for {what}"),
    }
}
