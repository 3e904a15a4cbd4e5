//! The servers that follow this one: they open the stream on which they are asked about their clients.
//!
//! They are no members of the store, so their ids are kept in the data directory: a follower that is away when this server starts still
//! has clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval};
use tonic::Streaming;
use tracing::{info, warn};
use xds_control::peers::{ForgetError, Reached, Replica};
use xds_store::Revision;

use super::ask::{Asked, Asker, MAX_WAITING, State, ask_all, status_in};
use super::messages::{FromAsker, Hello, STATUS_INTERVAL, ToAsker, time_of};
use crate::culprits::KeptCulprits;

/// The servers that follow this one.
#[derive(Debug)]
pub(crate) struct Followers {
    path: PathBuf,
    /// How long the clients of one that vanished count.
    grace: Duration,
    known: Mutex<BTreeMap<String, Follower>>,
    /// What clients reject, theirs too.
    culprits: Arc<KeptCulprits>,
}

#[derive(Debug)]
struct Follower {
    saved: Saved,
    /// The way to ask it; `None` while it is away.
    questions: Option<mpsc::Sender<Asked>>,
    state: State,
    /// When it went, on the clock that measures.
    gone: Instant,
}

/// What is kept of a follower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    id: String,
    release: String,
    /// When it started, in seconds since 1970.
    since: u64,
}

/// The place of a follower that is there.
pub(super) struct Attached {
    followers: Arc<Followers>,
    id: String,
    questions: mpsc::Receiver<Asked>,
}

impl Followers {
    /// Those that are known in `dir`. They have been away since now.
    pub(crate) fn open(dir: &Path, grace: Duration, culprits: Arc<KeptCulprits>) -> Arc<Self> {
        let path = dir.join("followers.json");
        let saved: Vec<Saved> = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                warn!(path = %path.display(), %error, "which servers follow this one is not known any more");
                Vec::new()
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    warn!(path = %path.display(), %error, "which servers follow this one cannot be read");
                }
                Vec::new()
            }
        };
        let away = |saved: Saved| {
            let state = State::Down { since: SystemTime::now(), why: "it has not come back yet".to_owned() };
            (saved.id.clone(), Follower { saved, questions: None, state, gone: Instant::now() })
        };
        let known = Mutex::new(saved.into_iter().map(away).collect());
        Arc::new(Self { path, grace, known, culprits })
    }

    /// All of them, as other servers are shown.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let known = self.known();
        let replicas = known.values().map(|follower| {
            let Follower { saved, questions, state, gone } = follower;
            let reached = match (state, questions) {
                (State::Up(status), Some(_)) => Reached::Yes(*status),
                (State::Up(_), None) => Reached::Gone { since: SystemTime::now(), is_over: false },
                (State::Down { since, why }, Some(_)) => Reached::No { since: *since, why: why.clone() },
                (State::Down { since, .. }, None) => {
                    Reached::Gone { since: *since, is_over: gone.elapsed() >= self.grace }
                }
            };
            Replica {
                id: saved.id.clone(),
                is_own: false,
                leads: false,
                follows: true,
                peer: None,
                release: saved.release.clone(),
                started: time_of(saved.since),
                reached,
            }
        });
        replicas.collect()
    }

    /// The way to ask one; `None` if there is none with this id.
    pub(super) fn asker(&self, id: &str) -> Option<Result<Asker, String>> {
        let known = self.known();
        let follower = known.get(id)?;
        Some(match (&follower.questions, &follower.state) {
            (Some(questions), state) => Ok(Asker { state: state.clone(), questions: questions.clone() }),
            (None, State::Down { why, .. }) => Err(why.clone()),
            (None, State::Up(_)) => Err("it is not attached".to_owned()),
        })
    }

    /// Forgets one that is away; `None` if there is none with this id.
    pub(super) fn forget(&self, id: &str) -> Option<Result<(), ForgetError>> {
        let mut known = self.known();
        if known.get(id)?.questions.is_some() {
            return Some(Err(ForgetError::Alive(id.to_owned())));
        }
        known.remove(id);
        self.save(&known);
        Some(Ok(()))
    }

    /// Gives a follower that has come its place.
    ///
    /// # Errors
    ///
    /// Why it has none: another one with its id is there.
    pub(super) fn attach(self: &Arc<Self>, hello: &Hello) -> Result<Attached, String> {
        let mut known = self.known();
        let id = hello.from.clone();
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return Err(format!("an instance id has 1 to {MAX_ID_BYTES} bytes"));
        }
        let before = known.get(&id);
        if before.is_some_and(|follower| follower.questions.is_some()) {
            return Err(format!(
                "a server with the instance id {id:?} follows this one already: give each an --instance-id of its own"
            ));
        }
        if before.is_none() && known.len() >= MAX_FOLLOWERS {
            return Err(format!("{MAX_FOLLOWERS} servers follow this one, which is the limit"));
        }
        let (sender, questions) = mpsc::channel(MAX_WAITING);
        let saved = Saved { id: id.clone(), release: hello.release.clone(), since: hello.since };
        let is_new = before.is_none_or(|before| before.saved != saved);
        let state = State::Down { since: SystemTime::now(), why: "it has not said how it is yet".to_owned() };
        known.insert(id.clone(), Follower { saved, questions: Some(sender), state, gone: Instant::now() });
        if is_new {
            self.save(&known);
        }
        info!(id, "a server follows this one");
        Ok(Attached { followers: Arc::clone(self), id, questions })
    }

    fn hear(&self, id: &str, message: &ToAsker) {
        self.culprits.learn(&message.culprits);
        let mut known = self.known();
        if message.leaves {
            known.remove(id);
            self.save(&known);
        } else if let Some(status) = status_in(message)
            && let Some(follower) = known.get_mut(id)
        {
            follower.state = State::Up(status);
        }
    }

    fn save(&self, known: &BTreeMap<String, Follower>) {
        let all: Vec<&Saved> = known.values().map(|follower| &follower.saved).collect();
        if let Err(error) = xds_replica::replace_file(&self.path, &all) {
            warn!(path = %self.path.display(), %error, "which servers follow this one cannot be kept");
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Follower>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attached {
    /// Asks what is to be asked, and tells of each new revision, until something goes wrong.
    pub(super) async fn run(
        mut self,
        incoming: &mut Streaming<ToAsker>,
        sender: &mpsc::Sender<FromAsker>,
        head: watch::Receiver<Revision>,
    ) {
        let (followers, id) = (Arc::clone(&self.followers), self.id.clone());
        let asking = ask_all(incoming, &mut self.questions, sender, |message| followers.hear(&id, message));
        let why = tokio::select! {
            why = asking => why,
            () = tell_news(sender, head, &followers.culprits) => "it takes no more news".to_owned(),
        };
        let mut known = followers.known();
        if let Some(follower) = known.get_mut(&id) {
            warn!(id, why, "a server that follows this one is away");
            follower.state = State::Down { since: SystemTime::now(), why };
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(follower) = self.followers.known().get_mut(&self.id) {
            (follower.questions, follower.gone) = (None, Instant::now());
        }
    }
}

/// Says which revision is the newest, at each new one and now and then, and what clients reject.
async fn tell_news(
    sender: &mpsc::Sender<FromAsker>,
    mut head: watch::Receiver<Revision>,
    culprits: &KeptCulprits,
) {
    let mut ticks = interval(STATUS_INTERVAL);
    let mut told = None;
    loop {
        let revision = head.borrow_and_update().0;
        if sender
            .send(FromAsker {
                head: Some(revision),
                culprits: culprits.news(&mut told),
                ..FromAsker::default()
            })
            .await
            .is_err()
        {
            return;
        }
        tokio::select! {
            moved = head.changed() => if moved.is_err() {
                return;
            },
            _ = ticks.tick() => {}
        }
    }
}

/// Servers that follow one. More belong behind some of these.
const MAX_FOLLOWERS: usize = 1_000;

/// As long as the name of a host may be.
const MAX_ID_BYTES: usize = 253;
