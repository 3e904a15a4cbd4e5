//! This server among those that share a store: it says that it is there, and hears who else is.
//!
//! | key | value | lasts |
//! |---|---|---|
//! | `replica/{id}` | [`Member`] | until the server ends in order, or is forgotten |
//! | `alive/{id}` | the term: random, one for each life of a server | as long as the lease |
//! | `leader` | the id and the term of the server that drives what one alone should drive | as long as its lease |
//!
//! The lease is granted once, and prolonged by whatever member of the remote answers. A server writes its keys before it reads the store. So
//! whoever reads the keys after a commit knows of every server that may serve something older.
//!
//! The leader is a hint: whoever drives something commits each step on the state that it was computed from, so two leaders cost a conflict and
//! nothing else. A server takes itself for the leader only until its keys may have ended, counted from when it asked for them to be prolonged.
//!
//! A server that starts again in the same data directory takes over the keys of its last life: the directory remembers their term, and only
//! one process can use it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::draft::random_id;
use crate::end::END;
use crate::members::{ALIVE, Gone, MAX_MEMBERS, Member, Members, REPLICA};
use crate::remote::{Compare, Entry, Lease, Put, Read, Remote, RemoteError, Transaction, Written};
use crate::small_file;

/// How a server is present.
#[derive(Clone, Copy, Debug)]
pub struct PresenceOptions {
    /// How long the keys of a server that vanished last.
    pub ttl: Duration,
    /// How often they are prolonged, and the others are looked for.
    pub renew: Duration,
    /// How long a start waits for the remote before it goes on without.
    pub patience: Duration,
    /// True if the server may lead.
    pub may_lead: bool,
}

impl Default for PresenceOptions {
    /// 15 s, 5 s and 5 s; it does not lead.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { ttl: seconds(15), renew: seconds(5), patience: seconds(5), may_lead: false }
    }
}

/// This server among those that share a store.
#[derive(Debug)]
pub struct Presence {
    shared: Arc<Shared>,
    /// Ends with the presence.
    _task: JoinSet<()>,
}

/// What a presence has found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Company {
    /// The servers with the same store, this one too; `None` until the remote was read.
    pub members: Option<Arc<Members>>,
    /// Why the others may not know of this server.
    pub problem: Option<String>,
    /// Until when this server leads; `None` if another does, or none.
    pub leads_until: Option<Instant>,
}

/// A server cannot be present.
#[derive(Debug, thiserror::Error)]
pub enum PresenceError {
    /// Another one has its name.
    #[error(
        "another server with the instance id {0:?} shares this store and is running: give each server an --instance-id of its own, or stop that one"
    )]
    Taken(String),
    /// The name does not fit into a key.
    #[error(
        "the instance id {0:?} cannot name a server that shares a store: use 1 to 253 letters, digits, and - _ ."
    )]
    Name(String),
    /// The data directory cannot be used.
    #[error("{} cannot be written", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A server could not be forgotten.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ForgetError {
    /// It is running.
    #[error("the server {0:?} is running: stop it, and it is forgotten by itself")]
    Alive(String),
    /// There is none.
    #[error("no server {0:?} shares this store")]
    Unknown(String),
    /// The remote did not do it.
    #[error("the shared store cannot be written: {0}")]
    Remote(#[from] RemoteError),
}

#[derive(Debug)]
struct Shared {
    remote: Arc<dyn Remote>,
    id: String,
    /// This life, and the one before in the same data directory.
    term: Bytes,
    former: Option<Bytes>,
    options: PresenceOptions,
    state: Mutex<State>,
    company: watch::Sender<Company>,
}

#[derive(Debug)]
struct State {
    member: Member,
    lease: Option<Lease>,
    /// True if the remote has shown that `alive/{id}` is of this life.
    is_present: bool,
    /// True if the server has left.
    has_ended: bool,
    /// The value of `leader` when it was last read.
    leader: Option<Bytes>,
}

/// The last life of a server, in its data directory.
#[derive(Debug, Serialize, Deserialize)]
struct Life {
    id: String,
    term: String,
}

impl Presence {
    /// Makes this server known as `id`. `dir` is its data directory, which it has locked.
    ///
    /// The keys of the last life of this directory are taken over at once. Those of another server are waited for until they must have
    /// ended. If the remote does not answer in time, this goes on without, and the [company](Self::company) says so.
    ///
    /// # Errors
    ///
    /// [`PresenceError`].
    pub(crate) async fn begin(
        dir: &Path,
        remote: Arc<dyn Remote>,
        (id, member): (&str, Member),
        options: PresenceOptions,
    ) -> Result<Self, PresenceError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(is_plain) {
            return Err(PresenceError::Name(id.to_owned()));
        }
        let path = dir.join(FILE);
        let file = |source| PresenceError::File { path: path.clone(), source };
        let former = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Life>(&text).ok());
        let former = former.filter(|life| life.id == id).map(|life| Bytes::from(life.term));
        let term = random_id().ok_or_else(|| file(std::io::Error::other("there is no randomness")))?;
        small_file::replace(&path, &Life { id: id.to_owned(), term: term.clone() }).map_err(file)?;
        let shared = Arc::new(Shared {
            remote,
            id: id.to_owned(),
            term: term.into(),
            former,
            options,
            state: Mutex::new(State {
                member,
                lease: None,
                is_present: false,
                has_ended: false,
                leader: None,
            }),
            company: watch::Sender::default(),
        });
        shared.arrive().await?;
        let mut task = JoinSet::new();
        task.spawn(stay(Arc::clone(&shared)));
        Ok(Self { shared, _task: task })
    }

    /// The servers with the same store, and whether they know of this one.
    #[must_use]
    pub fn company(&self) -> watch::Receiver<Company> {
        self.shared.company.subscribe()
    }

    /// Returns `true` if this server leads at this moment, as far as it can know.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.shared.company.borrow().leads_until.is_some_and(|until| Instant::now() < until)
    }

    /// Reads who is there now.
    ///
    /// # Errors
    ///
    /// If the remote does not answer.
    pub async fn look(&self) -> Result<Arc<Members>, RemoteError> {
        self.shared.look(&mut *self.shared.state.lock().await).await
    }

    /// Forgets a server that vanished.
    ///
    /// # Errors
    ///
    /// [`ForgetError`].
    pub async fn forget(&self, id: &str) -> Result<(), ForgetError> {
        let members = self.look().await?;
        let seat = members.seats.get(id).ok_or_else(|| ForgetError::Unknown(id.to_owned()))?;
        let alive = || ForgetError::Alive(id.to_owned());
        if seat.gone.is_none() {
            return Err(alive());
        }
        let forget = Transaction {
            compares: vec![Compare::Absent(format!("{ALIVE}{id}"))],
            deletes: [REPLICA, END].map(|key| only(&format!("{key}{id}"))).into(),
            ..Transaction::default()
        };
        match self.shared.remote.write(forget).await? {
            Written::Done => {}
            Written::Failed(_) => return Err(alive()),
        }
        self.look().await?;
        Ok(())
    }

    /// Leaves: the others stop counting this server.
    pub async fn end(&self) {
        let shared = &self.shared;
        let mut state = shared.state.lock().await;
        state.has_ended = true;
        shared.company.send_modify(|company| company.leads_until = None);
        let leave = Transaction {
            compares: vec![Compare::Value(format!("{ALIVE}{}", shared.id), shared.term.clone())],
            deletes: [REPLICA, ALIVE].map(|key| only(&format!("{key}{}", shared.id))).into(),
            ..Transaction::default()
        };
        let left = shared.remote.write(leave).await;
        if let Err(error) = left {
            tracing::warn!(%error, "the shared store could not be told that this server ends");
        }
        if let Some(lease) = state.lease.take() {
            // It ends by itself otherwise. The leader's key goes with it.
            let _ = shared.remote.revoke(lease).await;
        }
    }
}

impl Shared {
    /// The first time that the server says that it is there.
    async fn arrive(&self) -> Result<(), PresenceError> {
        let (began, mut is_waiting) = (Instant::now(), false);
        loop {
            let mut state = self.state.lock().await;
            let error = match self.renew(&mut state).await {
                Ok(()) if state.is_present => return Ok(()),
                Ok(()) if began.elapsed() >= self.options.ttl + self.options.patience => {
                    return Err(PresenceError::Taken(self.id.clone()));
                }
                Ok(()) => None,
                Err(error) => Some(error),
            };
            drop(state);
            match error {
                Some(error) if began.elapsed() >= self.options.patience => {
                    self.tell(&Err(error));
                    return Ok(());
                }
                Some(_) => {}
                None if std::mem::replace(&mut is_waiting, true) => {}
                None => {
                    tracing::info!(
                        id = self.id,
                        "waiting for the end of the server that had this instance id"
                    );
                }
            }
            sleep(START_PAUSE.min(self.options.renew)).await;
        }
    }

    /// Prolongs the keys, puts them if they are missing, and looks who is there.
    async fn renew(&self, state: &mut State) -> Result<(), RemoteError> {
        let sent = Instant::now();
        let lease = match state.lease {
            Some(lease) if self.remote.keep_alive(lease).await? => lease,
            _ => {
                state.is_present = false;
                let lease = self.remote.grant(self.options.ttl).await?;
                *state.lease.insert(lease)
            }
        };
        if !state.is_present {
            state.is_present = self.take(state, lease).await?;
        }
        self.look(state).await?;
        let leads = self.options.may_lead && state.is_present && self.lead(state, lease).await?;
        // Before anyone else can lead, even if the lease was prolonged the moment that it was asked for.
        let until = leads.then(|| sent + self.options.ttl.saturating_sub(self.options.renew));
        self.company.send_modify(|company| company.leads_until = until);
        Ok(())
    }

    /// Leads, if nobody does or this server did in its last life. Returns `true` if this server leads.
    async fn lead(&self, state: &mut State, lease: Lease) -> Result<bool, RemoteError> {
        let own = leader(&self.id, &self.term);
        let former = self.former.as_ref().map(|term| leader(&self.id, term));
        let compare = match &state.leader {
            Some(value) if *value == own => return Ok(true),
            Some(value) if Some(value) == former.as_ref() => Compare::Value(LEADER.to_owned(), value.clone()),
            Some(_) => return Ok(false),
            None => Compare::Absent(LEADER.to_owned()),
        };
        let put = Transaction {
            compares: vec![compare],
            leased: vec![(lease, Put { key: LEADER.to_owned(), value: own.clone() })],
            ..Transaction::default()
        };
        let leads = self.remote.write(put).await? == Written::Done;
        if leads {
            tracing::info!(id = self.id, "this server leads");
            state.leader = Some(own);
        }
        Ok(leads)
    }

    /// Puts the keys, unless they are another server's.
    async fn take(&self, state: &State, lease: Lease) -> Result<bool, RemoteError> {
        let key = format!("{ALIVE}{}", self.id);
        let own = [Some(self.term.clone()), self.former.clone()].into_iter().flatten();
        let of_own = own.map(|term| Compare::Value(key.clone(), term));
        for compare in [Compare::Absent(key.clone())].into_iter().chain(of_own) {
            let put = Transaction {
                compares: vec![compare],
                puts: vec![self.of_member(state)],
                leased: vec![(lease, Put { key: key.clone(), value: self.term.clone() })],
                ..Transaction::default()
            };
            if self.remote.write(put).await? == Written::Done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts what the server says of itself, if it is present.
    async fn say(&self, state: &State) -> Result<(), RemoteError> {
        let put = Transaction {
            compares: vec![Compare::Value(format!("{ALIVE}{}", self.id), self.term.clone())],
            puts: vec![self.of_member(state)],
            ..Transaction::default()
        };
        self.remote.write(put).await.map(drop)
    }

    fn of_member(&self, state: &State) -> Put {
        Put { key: format!("{REPLICA}{}", self.id), value: state.member.encode() }
    }

    /// Reads who is there.
    async fn look(&self, state: &mut State) -> Result<Arc<Members>, RemoteError> {
        let read = [REPLICA, ALIVE].map(|prefix| Read {
            from: prefix.to_owned(),
            to: Some(prefix.replace('/', "0")),
            limit: MAX_MEMBERS,
        });
        let read = read.into_iter().chain([Read::key(LEADER)]).collect();
        let found = self.remote.read(read).await?;
        let now = Gone { at: Instant::now(), wall: SystemTime::now() };
        let [replicas, alive, leaders] = found.as_slice() else {
            return Err(RemoteError::Silent("the answer has other ranges than the question".to_owned()));
        };
        let key = format!("{ALIVE}{}", self.id);
        let holder = alive.iter().find(|entry| entry.key == key);
        // Somebody else may have it now, as after a lease that ended while this server was stopped.
        state.is_present = holder.is_some_and(|entry| entry.value == self.term);
        if state.is_present && !is_said(replicas, &self.of_member(state)) {
            self.say(state).await?;
        }
        state.leader = leaders.first().map(|entry| entry.value.clone());
        let before = self.company.borrow().clone();
        let known = before.members.unwrap_or_default();
        let leader_id = state.leader.as_deref().and_then(leader_id);
        let members = Arc::new(Members { leader: leader_id, ..known.after(replicas, alive, now) });
        let own = leader(&self.id, &self.term);
        let leads_until = before.leads_until.filter(|_| state.leader.as_ref() == Some(&own));
        let problem = match holder {
            _ if state.is_present => None,
            Some(_) => Some(PresenceError::Taken(self.id.clone()).to_string()),
            None => Some("the other servers with the shared store do not know of this one yet".to_owned()),
        };
        self.company.send_replace(Company { members: Some(Arc::clone(&members)), problem, leads_until });
        Ok(members)
    }

    /// Notes what is wrong.
    fn tell(&self, renewed: &Result<(), RemoteError>) {
        if let Err(error) = renewed {
            let problem = format!(
                "the shared store does not say which servers share it, and they may not know of this one: {error}"
            );
            self.company.send_modify(|company| company.problem = Some(problem));
        }
    }
}

/// Stays present until the server has left.
async fn stay(shared: Arc<Shared>) {
    loop {
        sleep(shared.options.renew).await;
        let mut state = shared.state.lock().await;
        if state.has_ended {
            return;
        }
        let renewed = shared.renew(&mut state).await;
        shared.tell(&renewed);
    }
}

fn is_said(replicas: &[Entry], own: &Put) -> bool {
    replicas.iter().any(|entry| entry.key == own.key && entry.value == own.value)
}

/// The value of the leader's key.
fn leader(id: &str, term: &[u8]) -> Bytes {
    [id.as_bytes(), b" ", term].concat().into()
}

/// The id in it.
fn leader_id(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    Some(text.split_once(' ')?.0.to_owned())
}

/// The range of one key.
fn only(key: &str) -> (String, String) {
    (key.to_owned(), format!("{key}\0"))
}

/// The key of the leader.
const LEADER: &str = "leader";

/// The file of the last life, in the data directory.
const FILE: &str = "instance.json";

/// As long as the name of a host may be.
const MAX_ID_BYTES: usize = 253;

const START_PAUSE: Duration = Duration::from_millis(500);
