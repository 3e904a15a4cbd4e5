//! The store: commits go to the remote, reads come from the mirror.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use xds_store::{
    BlobHash, BoxFuture, Commit, CommitError, Compaction, Health, HistoryError, JournalStore, OpenNote,
    Record, RemoteFailure, Retention, Revision, State, Store, StoreError,
};

use crate::chain::Head;
use crate::draft::{Draft, put_parts, random_id};
use crate::feed::{Feed, FeedError};
use crate::follow::{self, Trouble};
use crate::judge::Divergence;
use crate::layout::{self, CommitLine, HEAD, META, WAITING};
use crate::members::Member;
use crate::position::{self, Position};
use crate::presence::{Presence, PresenceError, PresenceOptions};
use crate::remote::{Compare, Put, Read, Remote, RemoteError, Transaction, Written};
use crate::retain;
use crate::seal::{Sealer, StoreKeys};

/// How a replica works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much of the history is kept, here and in the remote.
    pub retention: Retention,
    /// How long a commit is tried before its outcome is unknown.
    pub timeout: Duration,
    /// How often the remote is asked for news besides its hints.
    pub poll: Duration,
    /// How long a start waits for the remote before it goes on with the mirror.
    pub patience: Duration,
    /// What this server says of itself to the others, and its id; `None` if it says nothing.
    pub member: Option<(String, Member)>,
    /// How it does so.
    pub presence: PresenceOptions,
    /// Whether the replica writes.
    pub role: Role,
}

/// Whether a replica writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It commits, and keeps the remote's history short.
    #[default]
    Writer,
    /// It only reads a remote that another server is.
    Follower,
}

impl Role {
    /// What the remote is to people.
    pub(crate) const fn remote(self) -> &'static str {
        match self {
            Self::Writer => "the shared store",
            Self::Follower => "the server of --upstream",
        }
    }
}

impl Default for Options {
    /// 10 s for a commit, 5 s between questions and for a start.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            timeout: Duration::from_secs(10),
            poll: Duration::from_secs(5),
            patience: Duration::from_secs(5),
            member: None,
            presence: PresenceOptions::default(),
            role: Role::Writer,
        }
    }
}

/// A [`Store`] that shares its commits with others through a [`Remote`].
///
/// A commit is acknowledged when the remote has it and the mirror too. Everything that is read comes from the mirror. Commits of others
/// arrive by themselves.
#[derive(Debug)]
pub struct Replica {
    shared: Arc<Shared>,
    presence: Option<Arc<Presence>>,
    /// End with the replica.
    tasks: JoinSet<()>,
    /// Ends when nothing uses the mirror any more.
    in_use: mpsc::Receiver<()>,
}

/// A replica could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The mirror could not be opened.
    #[error(transparent)]
    Mirror(#[from] xds_store::OpenError),
    /// The data directory is that of a server that shares nothing.
    #[error(
        "the data directory {} has the history of a server without a shared store; `xds-server store push` takes it to one; else use an empty directory",
        dir.display()
    )]
    NotAMirror {
        /// The directory.
        dir: PathBuf,
    },
    /// The server cannot be one of those that share the store.
    #[error(transparent)]
    Presence(#[from] PresenceError),
    /// The position of the mirror cannot be told.
    #[error("the copy in {} cannot be used; empty the directory, and it is made anew: {reason}", dir.display())]
    Position {
        /// The directory.
        dir: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no copy to begin with, and the remote does not give one.
    #[error("{what} cannot be used: {reason}")]
    Remote {
        /// The remote.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

/// The parts that the tasks of a replica share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) mirror: JournalStore,
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) keys: StoreKeys,
    pub(crate) options: Options,
    /// Held while the mirror moves.
    pub(crate) tail: Mutex<Tail>,
    pub(crate) health: watch::Sender<Health>,
    /// When the mirror was last as new as the remote.
    pub(crate) confirmed: watch::Sender<Option<Instant>>,
    /// The newest position, for the task that saves it.
    pub(crate) moved: watch::Sender<Option<Position>>,
    /// Held while a position is saved.
    pub(crate) saving: Mutex<()>,
    /// Dropped after the mirror.
    _in_use: mpsc::Sender<()>,
}

/// The end of the mirror.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// `None` until something is followed.
    pub(crate) position: Option<Position>,
    /// The value of [`META`] that was read last, and the data key in it; `None` until the remote was reached. Nothing is written while
    /// another value is there: it may be of a release that this one does not understand.
    pub(crate) sealer: Option<(Bytes, Sealer)>,
    /// The base of the remote when it was last read.
    pub(crate) base: Revision,
    /// Why the remote is not followed.
    pub(crate) divergence: Option<Divergence>,
    /// The servers that have the history of another store than the remote, if there are any.
    pub(crate) strangers: Option<String>,
    /// False if the remote is known not to say where the mirror ends.
    pub(crate) may_have_said_end: bool,
    /// The turns that were asked for.
    turns: Turns,
}

impl Replica {
    /// Opens the mirror in `dir`, and begins to follow `remote`.
    ///
    /// If the mirror has a history and the remote does not answer in time, the replica begins with the mirror: [`Store::health`]
    /// tells so. Without a history it waits for the remote as long as that may answer.
    ///
    /// # Errors
    ///
    /// If the mirror cannot be used, or there is none and the remote refuses.
    pub async fn open(
        dir: &Path,
        remote: Arc<dyn Remote>,
        keys: StoreKeys,
        options: Options,
    ) -> Result<(Self, Vec<OpenNote>), OpenError> {
        let mirror_options = xds_store::Options::keeping(options.retention);
        let (mirror, notes) = JournalStore::open(dir, mirror_options)?;
        let position = position::read(dir, &mirror)
            .map_err(|error| OpenError::Position { dir: dir.to_owned(), reason: follow::chain(&error) })?;
        if position.is_none() && mirror.head() != Revision::ZERO {
            return Err(OpenError::NotAMirror { dir: dir.to_owned() });
        }
        // The others must know of it before it reads what it may serve.
        let presence = match &options.member {
            Some((id, member)) => {
                let own = (id.as_str(), member.clone());
                Some(Arc::new(Presence::begin(dir, Arc::clone(&remote), own, options.presence).await?))
            }
            None => None,
        };
        let tail = Tail { position: position.clone(), may_have_said_end: true, ..Tail::default() };
        let (sender, in_use) = mpsc::channel(1);
        let patience = options.patience;
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            mirror,
            remote,
            keys,
            options,
            tail: Mutex::new(tail),
            health: watch::Sender::new(Health::Current),
            confirmed: watch::Sender::default(),
            moved: watch::Sender::new(position),
            saving: Mutex::default(),
            _in_use: sender,
        });
        // A remote that did not answer there is not waited for once more.
        let is_away = presence.as_ref().is_some_and(|presence| presence.company().borrow().members.is_none());
        if let Err(error) = shared.start(if is_away { Duration::ZERO } else { patience }).await {
            // It has no clients, so nobody is to wait for them.
            if let Some(presence) = &presence {
                presence.end().await;
            }
            return Err(error);
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(follow::follow(Arc::clone(&shared)));
        tasks.spawn(follow::save(Arc::clone(&shared)));
        if shared.options.role == Role::Writer {
            tasks.spawn(retain::retain(Arc::clone(&shared)));
        }
        Ok((Self { shared, presence, tasks, in_use }, notes))
    }

    /// Opens the mirror in `dir` of another server's history, and begins to follow it. `remote` reads what that server's [`Feed`] shows.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn follow(
        dir: &Path,
        remote: Arc<dyn Remote>,
        options: Options,
    ) -> Result<(Self, Vec<OpenNote>), OpenError> {
        Self::open(dir, remote, StoreKeys::none(), Options { role: Role::Follower, ..options }).await
    }

    /// What servers that follow this one read.
    ///
    /// # Errors
    ///
    /// If the files of the mirror cannot be read.
    pub fn feed(self: &Arc<Self>) -> Result<Feed, FeedError> {
        let store: Arc<dyn Store> = Arc::<Self>::clone(self);
        Feed::open(&self.shared.dir, store, Some(self.shared.moved.subscribe()))
    }

    /// When this replica was last seen to have all that the remote has; `None` until then.
    #[must_use]
    pub fn confirmed(&self) -> watch::Receiver<Option<Instant>> {
        self.shared.confirmed.subscribe()
    }

    /// This server among those that share the store; `None` if it says nothing of itself.
    #[must_use]
    pub fn presence(&self) -> Option<Arc<Presence>> {
        self.presence.clone()
    }

    /// Ends what the replica does, as soon as commits that are under way are done. When this returns, the mirror can be opened again.
    pub async fn close(self) {
        let Self { shared, mut tasks, mut in_use, presence: _ } = self;
        tasks.shutdown().await;
        drop(shared);
        // Nothing is ever sent.
        let _ = in_use.recv().await;
    }
}

impl Shared {
    /// The first catching up.
    async fn start(&self, patience: Duration) -> Result<(), OpenError> {
        let mut tail = self.tail.lock().await;
        let (deadline, mut waits_for) = (Instant::now() + patience, None);
        loop {
            let caught_up = self.catch_up(&mut tail).await;
            self.tell(&mut tail, &caught_up).await;
            match caught_up {
                Ok(()) => return Ok(()),
                Err(Trouble::Remote(error)) if tail.position.is_none() => match error {
                    RemoteError::Refused(_) => return Err(self.unusable(&error)),
                    RemoteError::Unreachable(_)
                    | RemoteError::Silent(_)
                    | RemoteError::Full(_)
                    | RemoteError::TooLarge(_) => {
                        let (what, why) = (self.options.role.remote(), error.to_string());
                        if waits_for.as_ref() != Some(&why) {
                            tracing::warn!(error = why, "waiting for {what}, of which there is no copy yet");
                            waits_for = Some(why);
                        }
                    }
                },
                Err(trouble) if tail.position.is_none() => {
                    return Err(self.unusable(&trouble));
                }
                Err(Trouble::Remote(_)) if Instant::now() < deadline => {}
                Err(_) => return Ok(()),
            }
            tokio::time::sleep(START_PAUSE).await;
        }
    }

    fn unusable(&self, reason: &dyn std::error::Error) -> OpenError {
        OpenError::Remote { what: self.options.role.remote(), reason: reason.to_string() }
    }

    async fn commit(self: Arc<Self>, expected: Revision, commit: Commit) -> Result<Revision, CommitError> {
        commit.check()?;
        let mut tail = self.tail.lock().await;
        if tail.sealer.is_none() {
            let caught_up = self.catch_up(&mut tail).await;
            self.tell(&mut tail, &caught_up).await;
            caught_up.map_err(Trouble::into_failure)?;
        }
        if let Some(divergence) = &tail.divergence {
            return Err(StoreError::from(RemoteFailure::Diverged(divergence.to_string())).into());
        }
        let (Some(position), Some((meta, sealer))) = (&tail.position, &tail.sealer) else {
            return Err(StoreError::Closed.into());
        };
        let (head, meta) = (position.head, meta.clone());
        if expected != head.revision {
            self.ask_for_a_turn(&mut tail, &meta).await;
            return Err(CommitError::Conflict { head: head.revision });
        }
        let record = Record { revision: expected.next(), commit, previous: Vec::new() };
        let draft = Draft::new(&self.mirror, sealer, &position.store, (head, &record))?;
        let mut turns = tail.turns.clone();
        let appended = self.append(&draft, &meta, &mut turns).await;
        tail.turns = turns;
        match appended {
            Ok(()) => {}
            Err(AppendError::Moved) => {
                self.ask_for_a_turn(&mut tail, &meta).await;
                let caught_up = self.catch_up(&mut tail).await;
                self.tell(&mut tail, &caught_up).await;
                caught_up.map_err(Trouble::into_failure)?;
                return Err(CommitError::Conflict { head: self.mirror.head() });
            }
            Err(AppendError::Failed(failure)) => return Err(StoreError::from(failure).into()),
            Err(AppendError::TooLarge) => return Err(draft.too_large()),
        }
        match self.mirror.commit(expected, record.commit).await {
            Ok(revision) => {
                self.go_to(&mut tail, draft.next);
                Ok(revision)
            }
            // It is stored, and is taken in as soon as the mirror can be written.
            Err(error) => {
                let reason = format!(
                    "it is stored, but the copy of this server cannot be written: {}",
                    follow::chain(&error)
                );
                Err(StoreError::from(RemoteFailure::OutcomeUnknown { id: draft.id, reason }).into())
            }
        }
    }

    /// Says where the mirror is now.
    pub(crate) fn go_to(&self, tail: &mut Tail, head: Head) {
        if let Some(position) = &mut tail.position {
            position.head = head;
            self.moved.send_replace(Some(position.clone()));
        }
    }

    /// Tells the other servers that one waits, which has to build its commit anew. Without that, whoever was faster is faster again.
    async fn ask_for_a_turn(&self, tail: &mut Tail, meta: &Bytes) {
        let Some(value) = random_id().map(Bytes::from) else { return };
        let asking = Transaction {
            compares: vec![Compare::Value(META.to_owned(), meta.clone())],
            puts: vec![Put { key: WAITING.to_owned(), value: value.clone() }],
            ..Transaction::default()
        };
        let told = self.remote.write(asking).await;
        // If it was not heard, the next commit finds out what is there.
        if told == Ok(Written::Done) {
            tail.turns = Turns { known: Some(value), is_own: true };
        }
    }

    /// Waits until another server has committed after `head`, or its time is over.
    async fn give_way(&self, head: &Bytes) {
        let end = Instant::now() + TURN;
        while Instant::now() < end {
            tokio::time::sleep(TURN_POLL).await;
            let found = self.remote.read(vec![Read::key(HEAD)]).await;
            let now =
                found.ok().and_then(|entries| Some(entries.into_iter().next()?.into_iter().next()?.value));
            if now.as_ref() != Some(head) {
                return;
            }
        }
    }

    /// Puts a commit until it is known whether it is the next one, in a store with this value of [`META`]. If another server has asked for a
    /// turn that this one did not know of, that server goes first. Whoever has had its turn asks for none any more.
    async fn append(&self, draft: &Draft, meta: &Bytes, turns: &mut Turns) -> Result<(), AppendError> {
        let mut attempt = Attempt::new(&draft.id, self.options.timeout);
        while let Err(error) = put_parts(&*self.remote, &draft.parts).await {
            // Nothing names the parts yet, so whether they are there does not matter.
            attempt.wait(error, false).await?;
        }
        let commit = layout::commit_key(draft.next.revision);
        let mut transaction = Transaction {
            compares: vec![
                Compare::Value(HEAD.to_owned(), draft.head.encode()),
                Compare::Value(META.to_owned(), meta.clone()),
                match &turns.known {
                    Some(known) => Compare::Value(WAITING.to_owned(), known.clone()),
                    None => Compare::Absent(WAITING.to_owned()),
                },
            ],
            puts: vec![
                Put { key: commit.clone(), value: draft.value.clone() },
                Put { key: HEAD.to_owned(), value: draft.next.encode() },
            ],
            otherwise: vec![HEAD.to_owned(), commit, WAITING.to_owned()],
            ..Transaction::default()
        };
        if turns.is_own {
            transaction.puts.push(Put { key: WAITING.to_owned(), value: NOBODY });
        }
        loop {
            match self.remote.write(transaction.clone()).await {
                Ok(Written::Done) => {
                    if std::mem::take(&mut turns.is_own) {
                        turns.known = Some(NOBODY);
                    }
                    return Ok(());
                }
                Ok(Written::Failed(found)) => {
                    let [head, commit, waits] = found.as_slice() else { return Err(AppendError::Moved) };
                    let line = commit.as_ref().and_then(CommitLine::parse);
                    let is_ours = line.is_some_and(|(line, _)| line.id == draft.id);
                    let has_moved = head.as_deref() != Some(&*draft.head.encode());
                    if has_moved || *waits == turns.known {
                        return if is_ours && has_moved { Ok(()) } else { Err(AppendError::Moved) };
                    }
                    *turns = Turns { known: waits.clone(), is_own: false };
                    // One turn is enough; then it is whoever is faster.
                    transaction.compares.truncate(2);
                    transaction.puts.retain(|put| put.key != WAITING);
                    if waits.as_ref().is_some_and(|waits| *waits != NOBODY) {
                        self.give_way(&draft.head.encode()).await;
                    }
                }
                Err(error) => attempt.wait(error, true).await?,
            }
        }
    }
}

/// What is known of the turns that servers ask for.
#[derive(Clone, Debug, Default)]
struct Turns {
    /// The value of [`WAITING`] that was read or written last; `None` if it had none.
    known: Option<Bytes>,
    /// True if it is this server that asked.
    is_own: bool,
}

/// The value of [`WAITING`] after whoever asked has had its turn.
const NOBODY: Bytes = Bytes::from_static(b"-");

/// A commit was not put.
#[derive(Debug)]
enum AppendError {
    /// Another one was.
    Moved,
    TooLarge,
    Failed(RemoteFailure),
}

/// How long a commit was tried, and whether it may have taken effect.
#[derive(Debug)]
struct Attempt<'a> {
    id: &'a str,
    deadline: Instant,
    was_silent: bool,
    pause: Duration,
}

impl<'a> Attempt<'a> {
    fn new(id: &'a str, timeout: Duration) -> Self {
        Self { id, deadline: Instant::now() + timeout, was_silent: false, pause: FIRST_PAUSE }
    }

    /// Waits before the next try, or says what it came to. `counts` says whether a call without an answer may have put the commit.
    async fn wait(&mut self, error: RemoteError, counts: bool) -> Result<(), AppendError> {
        self.was_silent |= counts && matches!(error, RemoteError::Silent(_));
        let is_over = Instant::now() + self.pause >= self.deadline;
        let failure = match error {
            RemoteError::Unreachable(reason) | RemoteError::Silent(reason) => {
                if !is_over {
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LAST_PAUSE);
                    return Ok(());
                }
                match self.was_silent {
                    true => RemoteFailure::OutcomeUnknown { id: self.id.to_owned(), reason },
                    false => RemoteFailure::Unreachable(reason),
                }
            }
            // An earlier try may still take effect, whatever is said of this one.
            error if self.was_silent => {
                RemoteFailure::OutcomeUnknown { id: self.id.to_owned(), reason: error.to_string() }
            }
            RemoteError::Full(reason) => RemoteFailure::Full(reason),
            RemoteError::Refused(reason) => RemoteFailure::Refused(reason),
            RemoteError::TooLarge(_) => return Err(AppendError::TooLarge),
        };
        Err(AppendError::Failed(failure))
    }
}

impl Store for Replica {
    fn head(&self) -> Revision {
        self.shared.mirror.head()
    }

    fn oldest(&self) -> Revision {
        self.shared.mirror.oldest()
    }

    fn put_blobs(&self, contents: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        self.shared.mirror.put_blobs(contents)
    }

    fn commit(&self, expected: Revision, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        // What was begun is finished, even if the caller hangs up.
        let committed = tokio::spawn(Arc::clone(&self.shared).commit(expected, commit));
        Box::pin(async move { committed.await.map_err(|_| StoreError::Closed)? })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.shared.mirror.probe().await?;
            let mut tail = self.shared.tail.lock().await;
            let caught_up = self.shared.catch_up(&mut tail).await;
            self.shared.tell(&mut tail, &caught_up).await;
            caught_up.map_err(Trouble::into_failure)
        })
    }

    fn check_in_place(&self) -> Result<(), StoreError> {
        self.shared.mirror.check_in_place()
    }

    fn blob(&self, hash: BlobHash) -> Result<Option<Bytes>, StoreError> {
        self.shared.mirror.blob(hash)
    }

    fn state(&self) -> (Revision, State) {
        self.shared.mirror.state()
    }

    fn state_at(&self, revision: Revision) -> Result<State, HistoryError> {
        self.shared.mirror.state_at(revision)
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.shared.mirror.history(before, limit)
    }

    fn record(&self, revision: Revision) -> Result<Option<Record>, StoreError> {
        self.shared.mirror.record(revision)
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.shared.mirror.watch()
    }

    fn compact(&self, keep: Retention) -> BoxFuture<'_, Result<Compaction, StoreError>> {
        self.shared.mirror.compact(keep)
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }
}

/// How long a server waits for the commit of another one that has asked for a turn. It may be gone, or have to translate 10,000 routes.
const TURN: Duration = Duration::from_millis(200);
const TURN_POLL: Duration = Duration::from_millis(5);

const START_PAUSE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(500);
