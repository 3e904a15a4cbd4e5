//! The link with one other server: asks it, and hears how it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;
use tracing::{info, warn};
use xds_control::chain;

use super::ask::{Asked, Asker, MAX_UNSENT, MAX_WAITING, State, ask_all, status_in};
use super::connect::{FIRST_PAUSE, LAST_PAUSE, PATIENCE, PeerFiles, connect};
use super::messages::{FromAsker, Hello, LINK, MAX_MESSAGE_BYTES, ToAsker};
use crate::culprits::KeptCulprits;

/// How servers ask each other.
#[derive(Clone, Debug)]
pub(crate) struct Linking {
    /// The proof of who they are; `None` for plaintext.
    pub(crate) files: Option<PeerFiles>,
    /// Learns what their clients reject.
    pub(crate) culprits: Arc<KeptCulprits>,
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

impl Link {
    /// Begins to connect, and does so again whenever the link breaks.
    pub(super) fn new(ends: Ends, linking: Linking) -> Self {
        let why = "it was not reached yet".to_owned();
        let (sender, state) = watch::channel(State::Down { since: SystemTime::now(), why });
        let (questions, receiver) = mpsc::channel(MAX_WAITING);
        let address = ends.address.clone();
        let mut task = JoinSet::new();
        task.spawn(keep(Line { ends, linking, state: sender }, receiver));
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

/// One end of a link.
struct Line {
    ends: Ends,
    linking: Linking,
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
        ask_all(&mut incoming, questions, &sender, |message| self.hear(message)).await
    }

    fn hear(&self, message: &ToAsker) {
        self.linking.culprits.learn(&message.culprits);
        let Some(status) = status_in(message) else { return };
        let before = self.state.send_replace(State::Up(status));
        if matches!(before, State::Down { .. }) {
            info!(id = self.ends.other, address = self.ends.address, "linked with another server");
        }
    }

    /// Connects, and makes sure that the right server answers.
    async fn open(
        &self,
        sender: &mpsc::Sender<FromAsker>,
        outgoing: mpsc::Receiver<FromAsker>,
    ) -> Result<Streaming<ToAsker>, String> {
        let Ends { own, other, address } = &self.ends;
        let channel = connect(address, self.linking.files.as_ref()).await?;
        let hello = Hello { from: own.clone(), to: other.clone(), ..Hello::default() };
        let first = FromAsker { hello: Some(hello), ..FromAsker::default() };
        sender.try_send(first).map_err(|error| error.to_string())?;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| chain(&error))?;
        let codec: ProstCodec<FromAsker, ToAsker> = ProstCodec::default();
        let request = Request::new(ReceiverStream::new(outgoing));
        let opened = grpc.streaming(request, PathAndQuery::from_static(LINK), codec).await;
        let mut incoming =
            opened.map_err(|status| format!("{address} refuses: {}", status.message()))?.into_inner();
        let first = incoming.message().await.map_err(|status| status.message().to_owned())?;
        match first.and_then(|first| first.hello) {
            Some(hello) if hello.from == *other => Ok(incoming),
            _ => Err(format!("another server answers at {address}")),
        }
    }
}

/// Keeps links with the servers of a set, and no others.
#[derive(Debug, Default)]
pub(super) struct Links(HashMap<String, Arc<Link>>);

impl Links {
    /// Links with exactly these servers. A link with the same address stays.
    pub(super) fn set(&mut self, wanted: Vec<Ends>, linking: &Linking) {
        let mut links = HashMap::new();
        for ends in wanted {
            let known = self.0.remove(&ends.other).filter(|link| link.address == ends.address);
            let id = ends.other.clone();
            links.insert(id, known.unwrap_or_else(|| Arc::new(Link::new(ends, linking.clone()))));
        }
        self.0 = links;
    }

    /// How many streams each server has that answers.
    pub(super) fn streams(&self) -> Vec<u64> {
        let streams = self.0.values().filter_map(|link| match link.state() {
            State::Up(status) => Some(status.streams),
            State::Down { .. } => None,
        });
        streams.collect()
    }

    pub(super) fn of(&self, id: &str) -> Option<&Link> {
        self.0.get(id).map(|link| &**link)
    }
}
