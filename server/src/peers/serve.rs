//! The peer port: answers other servers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status as Refusal, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;
use xds_control::BoxFuture;
use xds_control::peers::{Answer, Question, Status};

use super::messages::{self, Body, FromAsker, Hello, MAX_MESSAGE_BYTES, PATH, ToAsker};
use crate::listen::{Peer, Port, incoming};

/// What a server says of itself and its clients.
pub(crate) struct Answers {
    /// The `--instance-id` of this server.
    pub(crate) id: String,
    /// How it is now.
    pub(crate) status: Box<dyn Fn() -> Status + Send + Sync>,
    /// Answers a question.
    pub(crate) answer: Box<dyn Fn(Question) -> BoxFuture<'static, Result<Answer, String>> + Send + Sync>,
}

/// Accepts connections of `listener` until `stopped`.
///
/// # Errors
///
/// If the port cannot be served at all.
pub(crate) async fn serve(
    listener: TcpListener,
    port: Arc<Port>,
    answers: Arc<Answers>,
    stopped: impl Future<Output = ()> + Send,
) -> Result<(), tonic::transport::Error> {
    let router = Router::new().route(
        PATH,
        any(move |request: HttpRequest| {
            let answers = Arc::clone(&answers);
            async move {
                let codec: ProstCodec<ToAsker, FromAsker> = ProstCodec::default();
                let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MAX_QUESTION_BYTES);
                let link = service_fn(move |request| link(Arc::clone(&answers), request));
                grpc.streaming(link, request).await
            }
        }),
    );
    let server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(MAX_STREAMS)
        .add_routes(Routes::from(router))
        .serve_with_incoming(incoming(listener, Arc::clone(&port)));
    tokio::select! {
        served = server => served,
        () = port.tend() => Ok(()),
        // Open links go on until the process ends: its clients count until they are gone.
        () = stopped => Ok(()),
    }
}

type Answering = Response<ReceiverStream<Result<ToAsker, Refusal>>>;

/// Serves another server as long as it asks.
async fn link(answers: Arc<Answers>, request: Request<Streaming<FromAsker>>) -> Result<Answering, Refusal> {
    let peer = request.extensions().get::<Peer>().cloned();
    let mut questions = request.into_inner();
    let first = tokio::time::timeout(KEEPALIVE, questions.message()).await;
    let first = first.map_err(|_| Refusal::deadline_exceeded("nothing came"))??;
    let hello = first.and_then(|first| first.hello);
    let Hello { from, to } = hello.ok_or_else(|| Refusal::invalid_argument("who asks is not said first"))?;
    if to != answers.id {
        let id = &answers.id;
        return Err(Refusal::failed_precondition(format!("this is the server {id:?}, and not {to:?}")));
    }
    let (sender, receiver) = mpsc::channel(MAX_UNSENT);
    tokio::spawn(async move {
        let _busy = peer.as_ref().map(Peer::busy);
        let hello =
            ToAsker { hello: Some(Hello { from: answers.id.clone(), to: from }), ..ToAsker::default() };
        if sender.send(Ok(hello)).await.is_ok() {
            answer_all(&answers, questions, &sender).await;
        }
    });
    Ok(Response::new(ReceiverStream::new(receiver)))
}

/// Answers questions, some at the same time, and says how this server is.
async fn answer_all(
    answers: &Arc<Answers>,
    mut questions: Streaming<FromAsker>,
    sender: &mpsc::Sender<Result<ToAsker, Refusal>>,
) {
    let mut asked = JoinSet::new();
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    loop {
        tokio::select! {
            question = questions.message() => {
                let Ok(Some(question)) = question else { return };
                let Some(question) = question.question else { continue };
                if asked.len() < MAX_QUESTIONS {
                    asked.spawn(answer(Arc::clone(answers), question, sender.clone()));
                    continue;
                }
                let failure = format!("it is asked {MAX_QUESTIONS} questions at once, which is the limit");
                let refused = Body { number: question.number, failure, ..Body::default() };
                if sender.send(Ok(of_answer(refused))).await.is_err() {
                    return;
                }
            }
            Some(_) = asked.join_next() => {}
            _ = ticks.tick() => {
                let Status { revision, streams } = (answers.status)();
                let status = Some(messages::Status { revision, streams });
                if sender.send(Ok(ToAsker { status, ..ToAsker::default() })).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn answer(
    answers: Arc<Answers>,
    Body { number, json, .. }: Body,
    sender: mpsc::Sender<Result<ToAsker, Refusal>>,
) {
    let answered = match serde_json::from_slice(&json) {
        Ok(question) => (answers.answer)(question).await,
        Err(error) => Err(format!("it cannot read the question, as between different releases: {error}")),
    };
    let answered = answered.and_then(|answer| match serde_json::to_vec(&answer) {
        Ok(json) if json.len() < MAX_ANSWER_BYTES => Ok(json),
        Ok(_) => Err(format!("its answer has more than {MAX_ANSWER_BYTES} bytes")),
        Err(error) => Err(error.to_string()),
    });
    let body = match answered {
        Ok(json) => Body { number, json: json.into(), failure: String::new() },
        Err(failure) => Body { number, failure, ..Body::default() },
    };
    // Whoever asked may be gone.
    let _ = sender.send(Ok(of_answer(body))).await;
}

fn of_answer(answer: Body) -> ToAsker {
    ToAsker { answer: Some(answer), ..ToAsker::default() }
}

/// How often a server says how it is; whoever hears nothing for several of these takes it for silent.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection may be silent, and its first message may take.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Streams of one connection. Each server opens one.
const MAX_STREAMS: u32 = 8;

/// Questions of one server at once.
const MAX_QUESTIONS: usize = 256;

/// Bytes of a question.
const MAX_QUESTION_BYTES: usize = 1024 * 1024;

/// Bytes of an answer, with room for what is around it.
const MAX_ANSWER_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// Messages to one server that wait to be sent.
const MAX_UNSENT: usize = 16;
