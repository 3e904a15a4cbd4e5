//! The link with one other server: asks it, and hears how it is.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;
use tracing::{info, warn};
use xds_control::chain;
use xds_control::peers::{Answer, Question, Status};

use super::messages::{Body, FromAsker, Hello, MAX_MESSAGE_BYTES, PATH, ToAsker};
use super::serve::STATUS_INTERVAL;

/// The files with which servers prove to each other who they are. They are read for each connection, so they may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// The certificate of this server.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of all servers.
    pub ca: PathBuf,
}

/// Who asks whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) own: String,
    pub(super) other: String,
    /// Where the other one is, `HOST:PORT`.
    pub(super) address: String,
}

/// The link with one other server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: String,
    state: watch::Receiver<State>,
    questions: mpsc::Sender<Asked>,
    /// Ends with the link.
    _task: JoinSet<()>,
}

/// How the other server is.
#[derive(Clone, Debug)]
pub(super) enum State {
    Up(Status),
    Down { since: SystemTime, why: String },
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Asked {
    json: Bytes,
    answer: oneshot::Sender<Result<Answer, String>>,
}

impl Link {
    /// Begins to connect, and does so again whenever the link breaks.
    pub(super) fn new(ends: Ends, files: Option<PeerFiles>) -> Self {
        let why = "it was not reached yet".to_owned();
        let (sender, state) = watch::channel(State::Down { since: SystemTime::now(), why });
        let (questions, receiver) = mpsc::channel(MAX_WAITING);
        let address = ends.address.clone();
        let mut task = JoinSet::new();
        task.spawn(keep(Line { ends, files, state: sender }, receiver));
        Self { address, state, questions, _task: task }
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// What a question needs to be asked, so that the link is not held meanwhile.
    pub(super) fn asker(&self) -> Asker {
        Asker { state: self.state(), questions: self.questions.clone() }
    }
}

/// Asks by a link.
#[derive(Debug)]
pub(super) struct Asker {
    state: State,
    questions: mpsc::Sender<Asked>,
}

impl Asker {
    pub(super) async fn ask(self, question: &Question, patience: Duration) -> Result<Answer, String> {
        if let State::Down { why, .. } = self.state {
            return Err(why);
        }
        let json = serde_json::to_vec(question).map_err(|error| error.to_string())?.into();
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.try_send(Asked { json, answer });
        asked.map_err(|_| "too many questions wait for it".to_owned())?;
        match timeout(patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the link with it broke".to_owned()),
            Err(_) => Err(format!("it did not answer within {} s", patience.as_secs_f32())),
        }
    }
}

/// One end of a link.
struct Line {
    ends: Ends,
    files: Option<PeerFiles>,
    state: watch::Sender<State>,
}

/// Keeps a link, for ever.
async fn keep(line: Line, mut questions: mpsc::Receiver<Asked>) {
    let id = &line.ends.other;
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let why = line.run(&mut questions).await;
        line.state.send_modify(|state| {
            let since = match state {
                State::Up(_) => {
                    warn!(id, why, "the link with another server broke");
                    SystemTime::now()
                }
                State::Down { since, .. } => *since,
            };
            *state = State::Down { since, why };
        });
        // Whoever waits for an answer is told by this.
        while questions.try_recv().is_ok() {}
        if began.elapsed() > LAST_PAUSE {
            pause = FIRST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

impl Line {
    /// Connects and asks until something goes wrong. Returns what.
    async fn run(&self, questions: &mut mpsc::Receiver<Asked>) -> String {
        let (sender, outgoing) = mpsc::channel(MAX_UNSENT);
        let opened = timeout(PATIENCE, self.open(&sender, outgoing)).await;
        let mut incoming = match opened {
            Ok(Ok(incoming)) => incoming,
            Ok(Err(why)) => return why,
            Err(_) => {
                return format!("no connection with {} within {} s", self.ends.address, PATIENCE.as_secs());
            }
        };
        let mut pending: HashMap<u64, oneshot::Sender<Result<Answer, String>>> = HashMap::new();
        let mut number = 0;
        loop {
            tokio::select! {
                message = timeout(SILENCE, incoming.message()) => match message {
                    Err(_) => return format!("it is silent for {} s", SILENCE.as_secs()),
                    Ok(Err(status)) => return format!("the link broke: {}", status.message()),
                    Ok(Ok(None)) => return "it ended the link".to_owned(),
                    Ok(Ok(Some(message))) => self.take(message, &mut pending),
                },
                Some(asked) = questions.recv() => {
                    pending.retain(|_, answer| !answer.is_closed());
                    if pending.len() >= MAX_WAITING {
                        let _ = asked.answer.send(Err("too many questions wait for it".to_owned()));
                        continue;
                    }
                    number += 1;
                    let question = Body { number, json: asked.json, failure: String::new() };
                    let message = FromAsker { question: Some(question), ..FromAsker::default() };
                    // A server that takes nothing must not keep its answers from being read.
                    match sender.try_send(message) {
                        Ok(()) => drop(pending.insert(number, asked.answer)),
                        Err(_) => drop(asked.answer.send(Err("it takes no more questions".to_owned()))),
                    }
                }
            }
        }
    }

    fn take(&self, message: ToAsker, pending: &mut HashMap<u64, oneshot::Sender<Result<Answer, String>>>) {
        if let Some(status) = message.status {
            let status = Status { revision: status.revision, streams: status.streams };
            let before = self.state.send_replace(State::Up(status));
            if matches!(before, State::Down { .. }) {
                info!(id = self.ends.other, address = self.ends.address, "linked with another server");
            }
        }
        let Some(Body { number, json, failure }) = message.answer else { return };
        let Some(answer) = pending.remove(&number) else { return };
        let read = || {
            let read = serde_json::from_slice(&json);
            read.map_err(|error| format!("its answer cannot be read, as between different releases: {error}"))
        };
        // Whoever asked may be gone.
        let _ = answer.send(if failure.is_empty() { read() } else { Err(failure) });
    }

    /// Connects, and makes sure that the right server answers.
    async fn open(
        &self,
        sender: &mpsc::Sender<FromAsker>,
        outgoing: mpsc::Receiver<FromAsker>,
    ) -> Result<Streaming<ToAsker>, String> {
        let Ends { own, other, address } = &self.ends;
        let channel = self.connect().await?;
        let hello = Hello { from: own.clone(), to: other.clone() };
        let first = FromAsker { hello: Some(hello), ..FromAsker::default() };
        sender.try_send(first).map_err(|error| error.to_string())?;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| chain(&error))?;
        let codec: ProstCodec<FromAsker, ToAsker> = ProstCodec::default();
        let request = Request::new(ReceiverStream::new(outgoing));
        let opened = grpc.streaming(request, PathAndQuery::from_static(PATH), codec).await;
        let mut incoming =
            opened.map_err(|status| format!("{address} refuses: {}", status.message()))?.into_inner();
        let first = incoming.message().await.map_err(|status| status.message().to_owned())?;
        match first.and_then(|first| first.hello) {
            Some(hello) if hello.from == *other => Ok(incoming),
            _ => Err(format!("another server answers at {address}")),
        }
    }

    async fn connect(&self) -> Result<Channel, String> {
        let address = &self.ends.address;
        let scheme = if self.files.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let mut endpoint = endpoint.map_err(|error| format!("{address}: {}", chain(&error)))?;
        if let Some(files) = &self.files {
            let tls = files.tls().await?;
            endpoint = endpoint.tls_config(tls).map_err(|error| chain(&error))?;
        }
        let endpoint = endpoint.connect_timeout(PATIENCE).tcp_nodelay(true);
        endpoint.connect().await.map_err(|error| format!("no connection with {address}: {}", chain(&error)))
    }
}

impl PeerFiles {
    async fn tls(&self) -> Result<ClientTlsConfig, String> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let identity = Identity::from_pem(read(&self.certificate).await?, read(&self.key).await?);
        let ca = Certificate::from_pem(read(&self.ca).await?);
        Ok(ClientTlsConfig::new().ca_certificate(ca).identity(identity))
    }
}

/// Keeps links with the servers of a set, and no others.
#[derive(Debug, Default)]
pub(super) struct Links(HashMap<String, Arc<Link>>);

impl Links {
    /// Links with exactly these servers. A link with the same address stays.
    pub(super) fn set(&mut self, wanted: Vec<Ends>, files: Option<&PeerFiles>) {
        let mut links = HashMap::new();
        for ends in wanted {
            let known = self.0.remove(&ends.other).filter(|link| link.address == ends.address);
            let id = ends.other.clone();
            links.insert(id, known.unwrap_or_else(|| Arc::new(Link::new(ends, files.cloned()))));
        }
        self.0 = links;
    }

    pub(super) fn of(&self, id: &str) -> Option<&Link> {
        self.0.get(id).map(|link| &**link)
    }
}

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a server may be silent, which says every second how it is.
const SILENCE: Duration = STATUS_INTERVAL.saturating_mul(4);

/// Questions to one server at once.
const MAX_WAITING: usize = 256;

/// Questions that wait to be sent.
const MAX_UNSENT: usize = 64;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
