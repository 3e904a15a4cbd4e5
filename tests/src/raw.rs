//! An xDS client without manners: every field of every request is the test's to choose.
//!
//! [`Stream`] is one stream of any xDS service, [`Stream::send`] takes any request. The shorter ways
//! ([`subscribe`](Stream::subscribe), [`ack`](Stream::ack), [`nack`](Stream::nack)) do what a correct client
//! does, and give the node in the first request only.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status as ErrorDetail;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::wait::PATIENCE;

pub mod path;

/// A State of the World stream.
pub type SotwStream = Stream<DiscoveryRequest, DiscoveryResponse>;
/// An incremental stream.
pub type DeltaStream = Stream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

/// Connects to a server's xDS port.
///
/// # Errors
///
/// If no program listens there.
pub async fn connect(xds: SocketAddr) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{xds}"))?;
    endpoint.connect().await.with_context(|| format!("connect to {xds}"))
}

/// Makes a unary `Fetch` call; [`path`] has the paths.
///
/// # Errors
///
/// The status that the server answers.
pub async fn fetch(
    channel: Channel,
    path: &'static str,
    request: DiscoveryRequest,
) -> Result<DiscoveryResponse, Status> {
    let mut client = client(channel).await?;
    let codec = ProstCodec::default();
    client
        .unary(Request::new(request), PathAndQuery::from_static(path), codec)
        .await
        .map(tonic::Response::into_inner)
}

/// A node with nothing but an id and a cluster.
#[must_use]
pub fn node(id: &str, cluster: &str) -> Node {
    Node { id: id.to_owned(), cluster: cluster.to_owned(), ..Node::default() }
}

/// A stream. Dropping it cancels it.
#[derive(Debug)]
pub struct Stream<Q, R> {
    /// Taken by the first request that is not sent by hand.
    node: Option<Node>,
    /// `None` once the client's half is closed.
    requests: Option<mpsc::Sender<Q>>,
    responses: mpsc::Receiver<Result<R, Status>>,
}

impl<Q, R> Stream<Q, R>
where
    Q: Message + Default + 'static,
    R: Answer + Message + Default + 'static,
{
    /// Opens a stream; [`path`] has the paths. Failures show at the first response.
    ///
    /// Messages that are not read are not taken from the network: a test that asks for no response is a slow client.
    #[must_use]
    pub fn open(channel: Channel, path: &'static str, node: Node) -> Self {
        let (requests, outgoing) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (incoming, responses) = mpsc::channel(1);
        // In a task of its own, because a server may send its headers with the first response only.
        tokio::spawn(async move {
            if let Err(status) = exchange(channel, path, outgoing, &incoming).await {
                let _ = incoming.send(Err(status)).await;
            }
        });
        Self { node: Some(node), requests: Some(requests), responses }
    }

    /// Sends a request as it is.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn send(&self, request: Q) -> Result<()> {
        let requests = self.requests.as_ref().context("this half of the stream is closed")?;
        requests.send(request).await.map_err(|_| anyhow!("the stream has ended"))
    }

    /// Closes the client's half of the stream.
    pub fn half_close(&mut self) {
        self.requests = None;
    }

    /// Waits for the next response.
    ///
    /// # Errors
    ///
    /// If there is none within `limit`, or the stream ends.
    pub async fn expect_response_within(&mut self, limit: Duration) -> Result<R> {
        match timeout(limit, self.responses.recv()).await {
            Ok(Some(Ok(response))) => Ok(response),
            Ok(Some(Err(status))) => bail!("the stream ended with {status:?}"),
            Ok(None) => bail!("the stream ended"),
            Err(_) => bail!("no response within {limit:?}"),
        }
    }

    /// Waits for the next response, or for the status that the stream ends with instead.
    ///
    /// # Errors
    ///
    /// If there is neither.
    pub async fn expect_outcome(&mut self) -> Result<Result<R, Status>> {
        match timeout(PATIENCE, self.responses.recv()).await {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Ok(Err(Status::ok(""))),
            Err(_) => bail!("neither a response nor an end within {PATIENCE:?}"),
        }
    }

    /// Waits patiently for the next response.
    ///
    /// # Errors
    ///
    /// If there is none, or the stream ends.
    pub async fn expect_response(&mut self) -> Result<R> {
        self.expect_response_within(PATIENCE).await
    }

    /// Waits for the next response, which must be of this type.
    ///
    /// # Errors
    ///
    /// If there is none, it is of another type, or the stream ends.
    pub async fn expect_type(&mut self, type_url: &str) -> Result<R> {
        let response = self.expect_response().await?;
        ensure!(response.type_url() == type_url, "expected {type_url}, got {response:?}");
        Ok(response)
    }

    /// Proves that the server owes nothing: sends a request that is always answered, of a type that the stream
    /// does not use otherwise, and returns its answer if that is the very next response.
    ///
    /// # Errors
    ///
    /// If there is no response, or one of another type comes first.
    pub async fn expect_silence_by_marker(&mut self, marker: Q, type_url: &str) -> Result<R> {
        self.send(marker).await?;
        self.expect_type(type_url).await.context("the marker's answer must be the next response")
    }

    /// Waits for the end of the stream and returns its status.
    ///
    /// # Errors
    ///
    /// If it goes on, or a response comes instead.
    pub async fn expect_end(&mut self) -> Result<Status> {
        match timeout(PATIENCE, self.responses.recv()).await {
            Ok(Some(Ok(response))) => bail!("expected the end, got {response:?}"),
            Ok(Some(Err(status))) => Ok(status),
            Ok(None) => Ok(Status::ok("")),
            Err(_) => bail!("the stream goes on after {PATIENCE:?}"),
        }
    }
}

impl SotwStream {
    /// Asks for names (none: all) of a type, as the first request of that type.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn subscribe(&mut self, type_url: &str, names: &[&str]) -> Result<()> {
        let request = sotw_request(type_url, names);
        let node = self.node.take();
        self.send(DiscoveryRequest { node, ..request }).await
    }

    /// Asks for all resources of a type, as a client that has a version from an earlier stream.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn come_back(&mut self, type_url: &str) -> Result<()> {
        let node = self.node.take();
        let version_info = "before".to_owned();
        self.send(DiscoveryRequest { node, version_info, ..sotw_request(type_url, &[]) }).await
    }

    /// Accepts a response and asks for names from now on.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn ack(&self, response: &DiscoveryResponse, names: &[&str]) -> Result<()> {
        let request = sotw_request(&response.type_url, names);
        let version_info = response.version_info.clone();
        self.send(DiscoveryRequest { version_info, response_nonce: response.nonce.clone(), ..request }).await
    }

    /// Rejects a response; `accepted` is the version that the client keeps.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn nack(
        &self,
        response: &DiscoveryResponse,
        names: &[&str],
        accepted: &str,
        message: &str,
    ) -> Result<()> {
        self.send(DiscoveryRequest {
            version_info: accepted.to_owned(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(error_detail(message)),
            ..sotw_request(&response.type_url, names)
        })
        .await
    }
}

impl DeltaStream {
    /// Asks for names (none: all), as the first request of a type.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn subscribe(&mut self, type_url: &str, names: &[&str]) -> Result<()> {
        let request = delta_request(type_url, names, &[]);
        let node = self.node.take();
        self.send(DeltaDiscoveryRequest { node, ..request }).await
    }

    /// Asks for all resources of a type, as a client that has a resource from an earlier stream.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn come_back(&mut self, type_url: &str) -> Result<()> {
        let node = self.node.take();
        let initial_resource_versions = [("left".to_owned(), "before".to_owned())].into();
        let request = delta_request(type_url, &[], &[]);
        self.send(DeltaDiscoveryRequest { node, initial_resource_versions, ..request }).await
    }

    /// Adds names to a subscription and removes names from it.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn change(&self, type_url: &str, add: &[&str], remove: &[&str]) -> Result<()> {
        self.send(delta_request(type_url, add, remove)).await
    }

    /// Accepts a response.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn ack(&self, response: &DeltaDiscoveryResponse) -> Result<()> {
        let request = delta_request(&response.type_url, &[], &[]);
        self.send(DeltaDiscoveryRequest { response_nonce: response.nonce.clone(), ..request }).await
    }

    /// Rejects a response.
    ///
    /// # Errors
    ///
    /// If the stream has ended.
    pub async fn nack(&self, response: &DeltaDiscoveryResponse, message: &str) -> Result<()> {
        self.send(DeltaDiscoveryRequest {
            response_nonce: response.nonce.clone(),
            error_detail: Some(error_detail(message)),
            ..delta_request(&response.type_url, &[], &[])
        })
        .await
    }
}

/// The common part of both kinds of responses.
pub trait Answer: std::fmt::Debug {
    /// The type of the resources.
    fn type_url(&self) -> &str;
}

impl Answer for DiscoveryResponse {
    fn type_url(&self) -> &str {
        &self.type_url
    }
}

impl Answer for DeltaDiscoveryResponse {
    fn type_url(&self) -> &str {
        &self.type_url
    }
}

/// A State of the World request with nothing but a type and names.
#[must_use]
pub fn sotw_request(type_url: &str, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names: owned(names),
        ..DiscoveryRequest::default()
    }
}

/// An incremental request with nothing but a type and names.
#[must_use]
pub fn delta_request(type_url: &str, add: &[&str], remove: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        resource_names_subscribe: owned(add),
        resource_names_unsubscribe: owned(remove),
        ..DeltaDiscoveryRequest::default()
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

fn error_detail(message: &str) -> ErrorDetail {
    // Envoy's code for a rejected update.
    ErrorDetail { code: tonic::Code::Internal as i32, message: message.to_owned(), details: Vec::new() }
}

async fn client(channel: Channel) -> Result<Grpc<Channel>, Status> {
    // Larger than any message of a test.
    let mut client =
        Grpc::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(client)
}

/// Passes requests and responses on until one side ends.
async fn exchange<Q, R>(
    channel: Channel,
    path: &'static str,
    outgoing: mpsc::Receiver<Q>,
    incoming: &mpsc::Sender<Result<R, Status>>,
) -> Result<(), Status>
where
    Q: Message + Default + 'static,
    R: Message + Default + 'static,
{
    let mut client = client(channel).await?;
    let codec = ProstCodec::<Q, R>::default();
    let outgoing = Request::new(ReceiverStream::new(outgoing));
    let opened = client.streaming(outgoing, PathAndQuery::from_static(path), codec);
    let mut responses = tokio::select! {
        opened = opened => opened?.into_inner(),
        () = incoming.closed() => return Ok(()),
    };
    loop {
        let response = tokio::select! {
            response = responses.next() => response,
            () = incoming.closed() => return Ok(()),
        };
        let Some(response) = response else { return Ok(()) };
        if incoming.send(Ok(response?)).await.is_err() {
            return Ok(());
        }
    }
}

/// More than a test sends at once; a test that floods waits for the network.
const MAX_QUEUED_REQUESTS: usize = 16;
