//! An ADS server without checks: it serves any bytes, and keeps what clients answer. State of the World.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use futures_util::Stream;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::config::ENDPOINTS;
use crate::wait::{PATIENCE, wait_for};

/// A running server, for one client at a time. Dropping it stops it.
#[derive(Debug)]
pub struct Bare {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: AbortHandle,
}

/// A resource as it is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// The name by which clients ask for it.
    pub name: String,
    /// Its type and bytes.
    pub any: Any,
}

#[derive(Debug)]
struct State {
    resources: BTreeMap<String, Vec<Served>>,
    /// Requested names by type; none stands for all.
    asked: BTreeMap<String, Vec<String>>,
    stream: Option<UnboundedSender<Result<DiscoveryResponse, Status>>>,
    next: u64,
    /// Nonces by type that are not answered.
    open: BTreeMap<String, VecDeque<String>>,
    rejections: Vec<String>,
    node: Option<Node>,
    last: Instant,
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Bare {
    /// Starts a server that has nothing.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            resources: BTreeMap::new(),
            asked: BTreeMap::new(),
            stream: None,
            next: 0,
            open: BTreeMap::new(),
            rejections: Vec::new(),
            node: None,
            last: Instant::now(),
        }));
        let ads =
            AggregatedDiscoveryServiceServer::new(Ads(state.clone())).max_encoding_message_size(64 << 20);
        let server = tonic::transport::Server::builder().add_service(ads);
        let task = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(Self { addr, state, serving: task.abort_handle() })
    }

    /// Its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the client says of itself.
    #[must_use]
    pub fn node(&self) -> Option<Node> {
        lock(&self.state).node.clone()
    }

    /// Replaces all resources of a type, and sends them if they are asked for.
    pub fn serve(&self, type_url: &str, resources: Vec<Served>) {
        let mut state = lock(&self.state);
        state.resources.insert(type_url.to_owned(), resources);
        state.last = Instant::now();
        if state.asked.contains_key(type_url) {
            state.send(type_url);
        }
    }

    /// Waits until every response is answered and nothing has come for `quiet`. Returns the rejections since the last call, and whether
    /// every response was answered before `limit`.
    pub async fn settle(&self, quiet: Duration, limit: Duration) -> (Vec<String>, bool) {
        let begun = Instant::now();
        loop {
            let wait = {
                let mut state = lock(&self.state);
                let since = state.last.elapsed();
                if state.open.is_empty() && since >= quiet {
                    return (std::mem::take(&mut state.rejections), true);
                }
                if begun.elapsed() > limit || state.stream.is_none() && !state.open.is_empty() {
                    state.open.clear();
                    return (std::mem::take(&mut state.rejections), false);
                }
                quiet.saturating_sub(since).max(Duration::from_millis(2))
            };
            sleep(wait).await;
        }
    }

    /// Waits until the client asks for one of these resources by its name, and returns `false` if it does not.
    pub async fn wait_names(&self, type_url: &str, names: &[String], limit: Duration) -> bool {
        let asked = async || {
            let state = lock(&self.state);
            let asked = state.asked.get(type_url);
            ensure!(asked.is_some_and(|asked| asked.iter().any(|name| names.contains(name))), "nothing");
            Ok(())
        };
        wait_for("a name", limit, asked).await.is_ok()
    }

    /// Forgets the client, before another comes.
    pub fn forget(&self) {
        let mut state = lock(&self.state);
        state.asked.clear();
        state.open.clear();
        state.rejections.clear();
        state.stream = None;
    }

    /// Waits until a client has asked for a type.
    ///
    /// # Errors
    ///
    /// If none does.
    pub async fn wait_asked(&self, type_url: &str) -> Result<()> {
        wait_for("a request", PATIENCE, async || {
            ensure!(lock(&self.state).asked.contains_key(type_url), "none for {type_url}");
            Ok(())
        })
        .await
    }
}

impl State {
    fn send(&mut self, type_url: &str) {
        let Some(stream) = &self.stream else { return };
        self.next += 1;
        let asked = self.asked.get(type_url).cloned().unwrap_or_default();
        let is_wanted = |served: &&Served| asked.is_empty() || asked.contains(&served.name);
        let resources = self.resources.get(type_url).into_iter().flatten().filter(is_wanted);
        let mut resources: Vec<Any> = resources.map(|served| served.any.clone()).collect();
        if type_url == ENDPOINTS {
            // A cluster without an assignment would keep an Envoy from answering for 15 s.
            let served = self.resources.get(type_url).into_iter().flatten();
            let names: Vec<&String> = served.map(|served| &served.name).collect();
            resources.extend(asked.iter().filter(|name| !names.contains(name)).map(|name| empty(name)));
        }
        let nonce = self.next.to_string();
        let response = DiscoveryResponse {
            version_info: nonce.clone(),
            type_url: type_url.to_owned(),
            nonce: nonce.clone(),
            resources,
            ..DiscoveryResponse::default()
        };
        if stream.send(Ok(response)).is_ok() {
            self.open.entry(type_url.to_owned()).or_default().push_back(nonce);
        }
        self.last = Instant::now();
    }

    fn receive(&mut self, request: DiscoveryRequest) {
        self.last = Instant::now();
        self.node = request.node.or(self.node.take());
        let type_url = request.type_url;
        let open = self.open.entry(type_url.clone()).or_default();
        // A client may say its last error again with each request.
        if let Some(index) = open.iter().position(|nonce| *nonce == request.response_nonce) {
            open.drain(..=index);
            self.rejections.extend(request.error_detail.map(|detail| detail.message));
        }
        if open.is_empty() {
            self.open.remove(&type_url);
        }
        let before = self.asked.insert(type_url.clone(), request.resource_names);
        let now = self.asked.get(&type_url);
        let is_new = before
            .as_ref()
            .is_none_or(|before| now.is_some_and(|now| now.iter().any(|name| !before.contains(name))));
        if is_new {
            self.send(&type_url);
        }
    }
}

struct Ads(Arc<Mutex<State>>);

type Responses<R> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

#[async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, receiver) = unbounded_channel();
        {
            let mut state = lock(&self.0);
            state.asked.clear();
            state.open.clear();
            state.stream = Some(sender.clone());
        }
        let (state, mut requests) = (self.0.clone(), requests.into_inner());
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                lock(&state).receive(request);
            }
            let mut state = lock(&state);
            if state.stream.as_ref().is_some_and(|own| own.same_channel(&sender)) {
                state.stream = None;
                state.asked.clear();
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(receiver))))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("State of the World only"))
    }
}

/// An assignment without endpoints.
fn empty(cluster_name: &str) -> Any {
    let assignment =
        ClusterLoadAssignment { cluster_name: cluster_name.to_owned(), ..ClusterLoadAssignment::default() };
    Any { type_url: ENDPOINTS.to_owned(), value: assignment.encode_to_vec() }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
