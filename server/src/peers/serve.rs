//! The peer port: answers other servers, and asks those that follow.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status as Refusal, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;
use xds_control::chain;
use xds_replica::{Entry, Feed, Read};

use super::answer::{Answers, MAX_UNSENT, answer_all};
use super::followers::Followers;
use super::messages::{
    ATTACH, FromAsker, Hello, LINK, MAX_MESSAGE_BYTES, PIECE_BYTES, Piece, READ, Ranges, ToAsker,
};
use crate::listen::{Peer, Port, incoming};

/// What the peer port serves.
pub(crate) struct PeerPort {
    /// What this server says of itself and its clients.
    pub(crate) answers: Arc<Answers>,
    /// The history, for servers that follow.
    pub(crate) feed: Arc<Feed>,
    /// These servers.
    pub(crate) followers: Arc<Followers>,
}

/// Accepts connections of `listener` until `stopped`.
///
/// # Errors
///
/// If the port cannot be served at all.
pub(crate) async fn serve(
    listener: TcpListener,
    port: Arc<Port>,
    serves: PeerPort,
    stopped: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(MAX_STREAMS)
        .add_routes(Routes::from(router(serves)))
        .serve_with_incoming(incoming(listener, Arc::clone(&port)));
    tokio::select! {
        served = server => served,
        () = port.tend() => Ok(()),
        // Open links go on until the process ends: its clients count until they are gone.
        () = stopped => Ok(()),
    }
}

fn router(serves: PeerPort) -> Router {
    let PeerPort { answers, feed, followers } = serves;
    let head = Arc::clone(&feed);
    let own = answers.id.clone();
    let reading = Arc::new(Semaphore::new(MAX_READING));
    let link = any(move |request: HttpRequest| {
        let answers = Arc::clone(&answers);
        async move {
            let codec: ProstCodec<ToAsker, FromAsker> = ProstCodec::default();
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MAX_QUESTION_BYTES);
            grpc.streaming(service_fn(move |request| link(Arc::clone(&answers), request)), request).await
        }
    });
    let attach = any(move |request: HttpRequest| {
        let (followers, head, own) = (Arc::clone(&followers), Arc::clone(&head), own.clone());
        async move {
            let codec: ProstCodec<FromAsker, ToAsker> = ProstCodec::default();
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MAX_MESSAGE_BYTES);
            let attach =
                move |request| attach(Arc::clone(&followers), Arc::clone(&head), own.clone(), request);
            grpc.streaming(service_fn(attach), request).await
        }
    });
    let read = any(move |request: HttpRequest| {
        let (feed, reading) = (Arc::clone(&feed), Arc::clone(&reading));
        async move {
            let codec: ProstCodec<Piece, Ranges> = ProstCodec::default();
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MAX_QUESTION_BYTES);
            let read = move |request| read(Arc::clone(&feed), Arc::clone(&reading), request);
            grpc.server_streaming(service_fn(read), request).await
        }
    });
    Router::new().route(LINK, link).route(ATTACH, attach).route(READ, read)
}

type Sending<T> = Response<Pin<Box<dyn Stream<Item = Result<T, Refusal>> + Send>>>;

/// Serves another server as long as it asks.
async fn link(
    answers: Arc<Answers>,
    request: Request<Streaming<FromAsker>>,
) -> Result<Sending<ToAsker>, Refusal> {
    let peer = request.extensions().get::<Peer>().cloned();
    let mut questions = request.into_inner();
    let first = first(&mut questions).await?;
    let Hello { from, to, .. } = first.hello.ok_or_else(nobody)?;
    if to != answers.id {
        let id = &answers.id;
        return Err(Refusal::failed_precondition(format!("this is the server {id:?}, and not {to:?}")));
    }
    let (sender, receiver) = mpsc::channel(MAX_UNSENT);
    tokio::spawn(async move {
        let _busy = peer.as_ref().map(Peer::busy);
        let hello = Hello { from: answers.id.clone(), to: from, ..Hello::default() };
        if sender.send(ToAsker { hello: Some(hello), ..ToAsker::default() }).await.is_ok() {
            answer_all(&answers, &mut questions, |_| {}, &sender).await;
        }
    });
    Ok(Response::new(Box::pin(ReceiverStream::new(receiver).map(Ok))))
}

/// Asks a server that follows, as long as it is there.
async fn attach(
    followers: Arc<Followers>,
    feed: Arc<Feed>,
    own: String,
    request: Request<Streaming<ToAsker>>,
) -> Result<Sending<FromAsker>, Refusal> {
    let peer = request.extensions().get::<Peer>().cloned();
    let mut incoming = request.into_inner();
    let hello = first(&mut incoming).await?.hello.ok_or_else(nobody)?;
    let seat = followers.attach(&hello).map_err(Refusal::already_exists)?;
    let (sender, receiver) = mpsc::channel(super::ask::MAX_UNSENT);
    tokio::spawn(async move {
        let _busy = peer.as_ref().map(Peer::busy);
        let greeting = Hello { from: own, to: hello.from, ..Hello::default() };
        if sender.send(FromAsker { hello: Some(greeting), ..FromAsker::default() }).await.is_ok() {
            seat.run(&mut incoming, &sender, feed.watch()).await;
        }
    });
    Ok(Response::new(Box::pin(ReceiverStream::new(receiver).map(Ok))))
}

/// Reads the history for a server that follows.
async fn read(
    feed: Arc<Feed>,
    reading: Arc<Semaphore>,
    request: Request<Ranges>,
) -> Result<Sending<Piece>, Refusal> {
    let ranges = request.into_inner().ranges;
    if ranges.len() > MAX_RANGES {
        return Err(Refusal::invalid_argument(format!("at most {MAX_RANGES} ranges are read at once")));
    }
    let ended = |_| Refusal::unavailable("the server ends");
    let permit = reading.acquire_owned().await.map_err(ended)?;
    let reads: Vec<Read> = ranges.into_iter().map(Read::from).collect();
    let found = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        feed.read(&reads)
    });
    let found = found.await.map_err(|error| Refusal::internal(error.to_string()))?;
    let found = found.map_err(|error| Refusal::unavailable(chain(&error)))?;
    Ok(Response::new(Box::pin(tokio_stream::iter(pieces(found).map(Ok)))))
}

fn pieces(found: Vec<Vec<Entry>>) -> impl Iterator<Item = Piece> + Send {
    let entries =
        (0..).zip(found).flat_map(|(range, entries)| entries.into_iter().map(move |entry| (range, entry)));
    entries.flat_map(|(range, Entry { key, value })| {
        let n_pieces = value.len().div_ceil(PIECE_BYTES).max(1);
        (0..n_pieces).map(move |n| Piece {
            range,
            key: (n == 0).then(|| key.clone()),
            value: value.slice(n * PIECE_BYTES..value.len().min((n + 1) * PIECE_BYTES)),
        })
    })
}

/// The first message of a stream.
async fn first<T>(messages: &mut Streaming<T>) -> Result<T, Refusal> {
    let first = tokio::time::timeout(KEEPALIVE, messages.message()).await;
    first.map_err(|_| Refusal::deadline_exceeded("nothing came"))??.ok_or_else(nobody)
}

fn nobody() -> Refusal {
    Refusal::invalid_argument("who asks is not said first")
}

/// How long a connection may be silent, and its first message may take.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Streams of one connection. A server opens one or two.
const MAX_STREAMS: u32 = 8;

/// Bytes of a question.
const MAX_QUESTION_BYTES: usize = 1024 * 1024;

/// Ranges of one reading.
const MAX_RANGES: usize = 16;

/// Readings at once. Each may hold the whole state in memory.
const MAX_READING: usize = 2;
