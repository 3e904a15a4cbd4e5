//! The server that this one follows: reads its history, and is asked by it.
//!
//! The history is read from one address until that fails, then from the next. The clients of a follower count at each of its upstream servers,
//! so it attaches to all of them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status as Refusal, Streaming};
use tonic_prost::ProstCodec;
use xds_control::chain;
use xds_replica::{Entry, Lease, Read, Remote, RemoteError, Transaction, Written};
use xds_store::BoxFuture;

use super::answer::{Answers, MAX_UNSENT, answer_all};
use super::connect::{FIRST_PAUSE, LAST_PAUSE, PATIENCE, PeerFiles, connect};
use super::messages::{
    ATTACH, FromAsker, Hello, MAX_MESSAGE_BYTES, PIECE_BYTES, Piece, READ, Range, Ranges, STATUS_INTERVAL,
    ToAsker,
};

/// The servers that this one follows, as a remote.
pub(crate) struct Upstream {
    addresses: Vec<String>,
    files: Option<PeerFiles>,
    news: Notify,
    /// The newest revision that any of them told of.
    told: AtomicU64,
    /// The one that is read from, and the connection with it.
    current: Mutex<(usize, Option<Channel>)>,
}

/// What a follower says of itself.
pub(crate) struct Follower {
    pub(crate) answers: Arc<Answers>,
    /// When it started, in seconds since 1970.
    pub(crate) since: u64,
    /// Becomes true when it ends.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Upstream {
    /// Follows the server at the first of `addresses` that answers.
    pub(crate) fn new(addresses: Vec<String>, files: Option<PeerFiles>) -> Arc<Self> {
        Arc::new(Self {
            addresses,
            files,
            news: Notify::new(),
            told: AtomicU64::new(0),
            current: Mutex::default(),
        })
    }

    /// Lets all servers ask this one about its clients, until it ends. `note` gets why one cannot.
    pub(crate) async fn attach(self: Arc<Self>, follower: Follower, note: impl Fn(Option<String>)) {
        let follower = Arc::new(follower);
        let (sender, mut heard) = mpsc::channel(self.addresses.len().max(1));
        let mut tasks = JoinSet::new();
        for address in self.addresses.clone() {
            tasks.spawn(Arc::clone(&self).stay(address, Arc::clone(&follower), sender.clone()));
        }
        drop(sender);
        let mut problems = std::collections::BTreeMap::new();
        while let Some((address, problem)) = heard.recv().await {
            problems.insert(address, problem);
            let texts = problems
                .iter()
                .filter_map(|(address, problem)| Some(format!("{address}: {}", problem.as_ref()?)));
            let texts: Vec<_> = texts.collect();
            note((!texts.is_empty()).then(|| {
                format!("servers of --upstream do not count the clients of this one: {}", texts.join("; "))
            }));
        }
        tasks.join_all().await;
    }

    /// Stays attached to one server.
    async fn stay(
        self: Arc<Self>,
        address: String,
        follower: Arc<Follower>,
        tell: mpsc::Sender<(String, Option<String>)>,
    ) {
        let mut stop = follower.stop.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            let why = self.attached(&address, &follower, &tell).await;
            if *stop.borrow() {
                return;
            }
            let _ = tell.send((address.clone(), Some(why))).await;
            if began.elapsed() > LAST_PAUSE {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = ended(&mut stop) => return,
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Is asked until something goes wrong. Returns what.
    async fn attached(
        &self,
        address: &str,
        follower: &Follower,
        tell: &mpsc::Sender<(String, Option<String>)>,
    ) -> String {
        let (sender, outgoing) = mpsc::channel(MAX_UNSENT);
        let mut incoming = match timeout(PATIENCE, self.open(address, follower, &sender, outgoing)).await {
            Ok(Ok(incoming)) => incoming,
            Ok(Err(why)) => return why,
            Err(_) => return format!("no connection within {} s", PATIENCE.as_secs()),
        };
        let _ = tell.send((address.to_owned(), None)).await;
        let (heard, mut last) = watch::channel(Instant::now());
        let hear = |message: &FromAsker| {
            heard.send_replace(Instant::now());
            follower.answers.culprits.learn(&message.culprits);
            // Servers with one store may tell of a revision at different times.
            if message.head.is_some_and(|head| self.told.fetch_max(head, Ordering::Relaxed) < head) {
                self.news.notify_one();
            }
        };
        let mut stop = follower.stop.clone();
        tokio::select! {
            () = answer_all(&follower.answers, &mut incoming, hear, &sender) => "it ended the stream".to_owned(),
            () = silence(&mut last) => format!("it is silent for {} s", SILENCE.as_secs()),
            () = ended(&mut stop) => {
                let _ = sender.send(ToAsker { leaves: true, ..ToAsker::default() }).await;
                // It is not lost with the connection.
                drop(sender);
                let _ = timeout(STATUS_INTERVAL, async { while let Ok(Some(_)) = incoming.message().await {} }).await;
                String::new()
            }
        }
    }

    async fn open(
        &self,
        address: &str,
        follower: &Follower,
        sender: &mpsc::Sender<ToAsker>,
        outgoing: mpsc::Receiver<ToAsker>,
    ) -> Result<Streaming<FromAsker>, String> {
        let channel = connect(address, self.files.as_ref()).await?;
        let hello = Hello {
            from: follower.answers.id.clone(),
            to: String::new(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            since: follower.since,
        };
        let first = ToAsker { hello: Some(hello), ..ToAsker::default() };
        sender.try_send(first).map_err(|error| error.to_string())?;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| chain(&error))?;
        let codec: ProstCodec<ToAsker, FromAsker> = ProstCodec::default();
        let request = Request::new(ReceiverStream::new(outgoing));
        let opened = grpc.streaming(request, PathAndQuery::from_static(ATTACH), codec).await;
        let mut incoming = opened.map_err(|status| why(&status))?.into_inner();
        let first = incoming.message().await.map_err(|status| why(&status))?;
        first.and_then(|first| first.hello).ok_or("it does not say who it is")?;
        Ok(incoming)
    }

    async fn read_all(&self, reads: &[Read]) -> Result<Vec<Vec<Entry>>, RemoteError> {
        let mut failures = Vec::new();
        for _ in 0..self.addresses.len() {
            let (index, channel) = self.current().clone();
            let Some(address) = self.addresses.get(index) else { break };
            let found = async {
                let channel = match channel {
                    Some(channel) => channel,
                    None => connect(address, self.files.as_ref()).await.map_err(Failure::Away)?,
                };
                self.current().1 = Some(channel.clone());
                read_from(channel, reads).await
            };
            match found.await {
                Ok(found) => return Ok(found),
                Err(Failure::Away(why)) => failures.push(format!("{address}: {why}")),
                Err(Failure::Refused(why)) => {
                    self.next(index);
                    return Err(RemoteError::Refused(format!("{address}: {why}")));
                }
            }
            self.next(index);
        }
        Err(RemoteError::Unreachable(failures.join("; ")))
    }

    /// Goes on with the next address.
    fn next(&self, index: usize) {
        let mut current = self.current();
        if current.0 == index {
            *current = ((index + 1) % self.addresses.len().max(1), None);
        }
    }

    fn current(&self) -> MutexGuard<'_, (usize, Option<Channel>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing was read.
enum Failure {
    /// Another server, or a later time, may help.
    Away(String),
    /// Neither will.
    Refused(String),
}

impl From<Refusal> for Failure {
    fn from(status: Refusal) -> Self {
        let is_final =
            [Code::Unimplemented, Code::PermissionDenied, Code::Unauthenticated].contains(&status.code());
        if is_final { Self::Refused(why(&status)) } else { Self::Away(why(&status)) }
    }
}

async fn read_from(channel: Channel, reads: &[Read]) -> Result<Vec<Vec<Entry>>, Failure> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(2 * PIECE_BYTES);
    let late = |_| Failure::Away(format!("no answer within {} s", READING.as_secs()));
    timeout(PATIENCE, grpc.ready()).await.map_err(late)?.map_err(|error| Failure::Away(chain(&error)))?;
    let codec: ProstCodec<Ranges, Piece> = ProstCodec::default();
    let request = Request::new(Ranges { ranges: reads.iter().cloned().map(Range::from).collect() });
    let opened = grpc.server_streaming(request, PathAndQuery::from_static(READ), codec);
    let mut pieces = timeout(READING, opened).await.map_err(late)??.into_inner();
    let mut found: Vec<Vec<Entry>> = reads.iter().map(|_| Vec::new()).collect();
    let mut open: Option<(usize, String, BytesMut)> = None;
    let mut n_bytes = 0;
    let close = |open: Option<(usize, String, BytesMut)>, found: &mut Vec<Vec<Entry>>| {
        if let Some((range, key, value)) = open
            && let Some(entries) = found.get_mut(range)
        {
            entries.push(Entry { key, value: value.freeze() });
        }
    };
    while let Some(Piece { range, key, value }) = timeout(READING, pieces.message()).await.map_err(late)?? {
        n_bytes += value.len();
        if n_bytes > MAX_READ_BYTES {
            return Err(Failure::Away(format!("its answer has more than {MAX_READ_BYTES} bytes")));
        }
        if let Some(key) = key {
            close(open.take(), &mut found);
            open = Some((range as usize, key, BytesMut::new()));
        }
        if let Some((_, _, known)) = &mut open {
            known.extend_from_slice(&value);
        }
    }
    close(open, &mut found);
    Ok(found)
}

impl Remote for Upstream {
    fn read(&self, reads: Vec<Read>) -> BoxFuture<'_, Result<Vec<Vec<Entry>>, RemoteError>> {
        Box::pin(async move { self.read_all(&reads).await })
    }

    fn write(&self, _: Transaction) -> BoxFuture<'_, Result<Written, RemoteError>> {
        reads_only()
    }

    fn hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.news.notified())
    }

    fn grant(&self, _: Duration) -> BoxFuture<'_, Result<Lease, RemoteError>> {
        reads_only()
    }

    fn keep_alive(&self, _: Lease) -> BoxFuture<'_, Result<bool, RemoteError>> {
        reads_only()
    }

    fn revoke(&self, _: Lease) -> BoxFuture<'_, Result<(), RemoteError>> {
        reads_only()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.addresses.join(", "))
    }
}

fn reads_only<T>() -> BoxFuture<'static, Result<T, RemoteError>> {
    Box::pin(async {
        Err(RemoteError::Refused("a server that follows another one writes nothing".to_owned()))
    })
}

/// Returns when nothing was heard for a while.
async fn silence(last: &mut watch::Receiver<Instant>) {
    while let Ok(Ok(())) = timeout(SILENCE, last.changed()).await {}
}

/// Returns when the server ends.
async fn ended(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stop.wait_for(|is_over| *is_over).await;
}

fn why(status: &Refusal) -> String {
    if status.code() == Code::Unimplemented {
        return "it is no peer port of this release (--peer-listen)".to_owned();
    }
    status.message().to_owned()
}

/// How long a server may be silent, which says every second which revision is the newest.
const SILENCE: Duration = STATUS_INTERVAL.saturating_mul(4);

/// How long an answer, or its next part, may take: the other server may have to compress all it has.
const READING: Duration = Duration::from_secs(30);

/// Bytes of an answer: a state that is compressed.
const MAX_READ_BYTES: usize = 512 * 1024 * 1024;
