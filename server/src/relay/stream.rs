//! The streams of one node: one at a time, with whichever server answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource as Wrapper,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc::Status;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;
use xds_api::RefusedResource;
use xds_cache::layer::Resources;
use xds_codec::Codec;
use xds_control::Control;
use xds_relay::{Identity, Request, Response, Sent, Subscriber};

use super::board::{Board, lock};
use super::connect::{Connection, Servers};

/// One node, and what it takes to ask for it.
pub(super) struct Streams {
    pub(super) index: usize,
    pub(super) identity: Identity,
    pub(super) subscriber: Subscriber,
    pub(super) codec: Codec,
    pub(super) servers: Servers,
    pub(super) board: Arc<Board>,
    pub(super) control: Control,
    /// What each node holds, once it is whole.
    pub(super) holdings: Arc<Mutex<Vec<Option<Resources>>>>,
    pub(super) told: Arc<watch::Sender<()>>,
}

/// A variant of the protocol, as it is on the wire.
trait Wire: 'static {
    type Request: Message + Send + Sync + 'static;
    type Response: Message + Default + Send + Sync + 'static;
    const PATH: &'static str;

    fn request(request: Request, node: Option<Node>) -> Self::Request;

    fn response(response: Self::Response) -> Response;
}

struct Delta;
struct Sotw;

impl Streams {
    /// Asks the servers, one after the other, for as long as the process runs.
    pub(super) async fn run(mut self) {
        let (mut server, mut pause) = (0, FIRST_PAUSE);
        let mut last = None;
        loop {
            let began = Instant::now();
            let is_same = last == Some(server % self.servers.len().max(1));
            let (why, is_answered) = match self.servers.connect(server).await {
                Ok(connection) => self.ask(server, connection, is_same).await,
                Err(why) => (why, false),
            };
            if is_answered {
                last = Some(server % self.servers.len().max(1));
            }
            self.note(|node| {
                if node.problem.is_none() {
                    node.since = SystemTime::now();
                }
                node.problem = Some(why);
            });
            if began.elapsed() > LAST_PAUSE {
                pause = FIRST_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            // The same server is first tried once more after a stream that worked.
            if !is_answered {
                server += 1;
            }
        }
    }

    /// Has a stream with a server until it ends. Returns why, and whether the server answered.
    async fn ask(&mut self, server: usize, connection: Connection, is_same: bool) -> (String, bool) {
        match self.subscriber.variant() {
            xds_relay::Variant::Delta => self.converse::<Delta>(server, connection, is_same).await,
            xds_relay::Variant::Sotw => self.converse::<Sotw>(server, connection, is_same).await,
        }
    }

    async fn converse<W: Wire>(
        &mut self,
        server: usize,
        connection: Connection,
        is_same: bool,
    ) -> (String, bool) {
        let (sender, receiver) = mpsc::channel(MAX_UNSENT);
        let mut node = Node::decode(self.identity.node.clone()).ok();
        let first = self.subscriber.connected(is_same, Instant::now());
        for request in first {
            // The channel has room for one of each type.
            let _ = sender.try_send(W::request(request, node.take()));
        }
        let mut responses = match timeout(PATIENCE, open::<W>(connection, receiver)).await {
            Ok(Ok(responses)) => responses,
            Ok(Err(why)) => return (why, false),
            Err(_) => return (format!("no answer within {} s", PATIENCE.as_secs()), false),
        };
        let mut is_answered = false;
        loop {
            let deadline = self.subscriber.deadline();
            let due = async {
                match deadline {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let requests = tokio::select! {
                response = responses.message() => match response {
                    Ok(Some(response)) => {
                        is_answered = true;
                        self.subscriber.answered(&self.codec, W::response(response), Instant::now())
                    }
                    Ok(None) => return ("the server ended the stream".to_owned(), is_answered),
                    Err(status) => return (refusal(&status), is_answered),
                },
                () = due => self.subscriber.passed(Instant::now()),
            };
            for request in requests {
                if sender.try_send(W::request(request, None)).is_err() {
                    return ("the server does not read its requests".to_owned(), is_answered);
                }
            }
            if is_answered {
                self.publish(server);
            }
        }
    }

    /// Tells what is held, if it is whole.
    fn publish(&self, server: usize) {
        let awaited = self.subscriber.awaited();
        if awaited.is_none() {
            lock(&self.holdings)[self.index] = Some(self.subscriber.resources().clone());
            self.told.send_replace(());
        }
        let refused: Vec<RefusedResource> = self
            .subscriber
            .refused()
            .take(MAX_REFUSED)
            .map(|(resource_type, name, why)| RefusedResource {
                resource_type: resource_type.clone(),
                name: Arc::clone(name),
                why: why.to_owned(),
            })
            .collect();
        let n_refused = self.subscriber.refused().count();
        let (address, resources) =
            (self.servers.address(server).to_owned(), self.subscriber.resources().clone());
        self.note(|node| {
            if node.problem.take().is_some() || node.server.as_ref() != Some(&address) {
                node.since = SystemTime::now();
            }
            node.server = Some(address);
            node.awaited = awaited.map(|awaited| (awaited.n_awaited, awaited.first.unwrap_or_default()));
            (node.resources, node.refused, node.n_refused) = (resources, refused, n_refused);
        });
    }

    fn note(&self, change: impl FnOnce(&mut xds_api::RelayedNode)) {
        let problem = self.board.note(self.index, change);
        self.control.note_relay(problem);
    }
}

/// Opens a stream.
async fn open<W: Wire>(
    connection: Connection,
    requests: mpsc::Receiver<W::Request>,
) -> Result<Streaming<W::Response>, String> {
    let mut grpc = Grpc::new(connection.channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
    grpc.ready().await.map_err(|error| xds_control::chain(&error))?;
    let mut request = tonic::Request::new(ReceiverStream::new(requests));
    if let Some(token) = connection.token {
        request.metadata_mut().insert("authorization", token);
    }
    let codec = ProstCodec::<W::Request, W::Response>::default();
    let opened = grpc.streaming(request, PathAndQuery::from_static(W::PATH), codec).await;
    opened.map(tonic::Response::into_inner).map_err(|status| refusal(&status))
}

/// What a server says when it ends a stream, shortened.
fn refusal(status: &tonic::Status) -> String {
    let text: String = status.message().chars().take(MAX_TEXT).collect();
    let code = status.code();
    if code == Code::Unimplemented {
        return format!("it does not serve ADS of this variant: {text}");
    }
    format!("{code:?}: {text}")
}

impl Wire for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;
    const PATH: &'static str =
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

    fn request(request: Request, node: Option<Node>) -> Self::Request {
        let Request::Delta { resource_type, subscribe, unsubscribe, held, nonce, error } = request else {
            return DeltaDiscoveryRequest::default();
        };
        DeltaDiscoveryRequest {
            node,
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            initial_resource_versions: held.into_iter().collect::<HashMap<_, _>>(),
            response_nonce: nonce,
            error_detail: error.map(rejection),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn response(response: Self::Response) -> Response {
        let names = response.removed_resource_names.into_iter().map(|name| name.name);
        Response {
            type_url: response.type_url,
            version: response.system_version_info,
            nonce: response.nonce,
            resources: response.resources.into_iter().map(unwrap).collect(),
            removed: response.removed_resources.into_iter().chain(names).collect(),
        }
    }
}

impl Wire for Sotw {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;
    const PATH: &'static str =
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

    fn request(request: Request, node: Option<Node>) -> Self::Request {
        let Request::Sotw { resource_type, version, names, nonce, error } = request else {
            return DiscoveryRequest::default();
        };
        DiscoveryRequest {
            version_info: version,
            node,
            resource_names: names,
            type_url: resource_type.type_url().to_owned(),
            response_nonce: nonce,
            error_detail: error.map(rejection),
            ..DiscoveryRequest::default()
        }
    }

    fn response(response: Self::Response) -> Response {
        let sent = |any: Any| match any.type_url == WRAPPER {
            true => unwrap(Wrapper::decode(&*any.value).unwrap_or_default()),
            false => Sent { content: Some((any.type_url, any.value.into())), ..Sent::default() },
        };
        Response {
            type_url: response.type_url,
            version: response.version_info,
            nonce: response.nonce,
            resources: response.resources.into_iter().map(sent).collect(),
            removed: Vec::new(),
        }
    }
}

fn unwrap(wrapper: Wrapper) -> Sent {
    let ttl = wrapper.ttl.and_then(|ttl| {
        Some(Duration::new(u64::try_from(ttl.seconds).ok()?, u32::try_from(ttl.nanos).ok()?))
    });
    Sent {
        name: (!wrapper.name.is_empty()).then_some(wrapper.name),
        version: wrapper.version,
        ttl,
        content: wrapper.resource.map(|any| (any.type_url, any.value.into())),
    }
}

fn rejection(message: String) -> Status {
    Status { code: Code::InvalidArgument.into(), message, details: Vec::new() }
}

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
/// How long a server may take for the beginning of a stream.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before another stream.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Requests that a server has not read.
const MAX_UNSENT: usize = 1_024;
/// A SotW response has everything of a type.
const MAX_MESSAGE_BYTES: usize = 256 << 20;
/// Refused resources of a node that are shown.
const MAX_REFUSED: usize = 100;
/// Characters of a server's text that are shown.
const MAX_TEXT: usize = 300;
