//! The other servers with the same store: who they are, by the store, and what they say, by links between each two of them.
//!
//! Each server has a link to each other one, on which it alone asks. So a link that breaks in one direction makes silent only who is not
//! heard, and neither end has to tell questions from answers. What is asked is [`xds_control::peers`].

mod link;
mod messages;
mod serve;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use xds_control::BoxFuture;
use xds_control::peers::{Answer, ForgetError, Peers, Question, Reached, Replica, Status};
use xds_replica::{Company, Member, Members, Presence, Seat};

pub use link::PeerFiles;
use link::{Ends, Link, Links, State};
pub(crate) use serve::{Answers, serve};

/// The servers with the same store.
pub(crate) struct PeerServers {
    own: String,
    presence: Arc<Presence>,
    /// Says how this server is.
    status: Box<dyn Fn() -> Status + Send + Sync>,
    linking: Option<Linking>,
    /// How long the clients of a server that vanished count.
    grace: Duration,
    links: Mutex<Links>,
    began: SystemTime,
}

/// How servers ask each other.
#[derive(Clone, Debug)]
pub(crate) struct Linking {
    /// The proof of who they are; `None` for plaintext.
    pub(crate) files: Option<PeerFiles>,
}

impl PeerServers {
    /// Knows whom `presence` knows. Without `linking`, nobody is asked.
    pub(crate) fn new(
        own: String,
        presence: Arc<Presence>,
        linking: Option<Linking>,
        grace: Duration,
        status: Box<dyn Fn() -> Status + Send + Sync>,
    ) -> Arc<Self> {
        let (links, began) = (Mutex::default(), SystemTime::now());
        Arc::new(Self { own, presence, status, linking, grace, links, began })
    }

    /// Links with whoever is there, for ever. `note` gets why others may not know of this server.
    pub(crate) async fn follow(self: Arc<Self>, note: impl Fn(Option<String>)) {
        let mut company = self.presence.company();
        loop {
            let Company { members, problem, .. } = company.borrow_and_update().clone();
            note(problem);
            if let Some(members) = members {
                self.link(&members);
            }
            if company.changed().await.is_err() {
                return;
            }
        }
    }

    fn link(&self, members: &Members) {
        let Some(linking) = &self.linking else { return };
        let others = members.seats.iter().filter(|(id, _)| **id != self.own);
        let wanted = others.filter_map(|(id, seat)| {
            let address = seat.member.peer.clone()?;
            Some(Ends { own: self.own.clone(), other: id.clone(), address })
        });
        self.links().set(wanted.collect(), linking.files.as_ref());
    }

    fn replica(&self, id: &str, seat: &Seat) -> Replica {
        let Seat { member, gone } = seat;
        let is_own = id == self.own;
        let state = self.links().of(id).map(Link::state);
        let reached = match (state, gone) {
            _ if is_own => Reached::Yes((self.status)()),
            // Whoever answers has clients, whatever the store says.
            (Some(State::Up(status)), _) => Reached::Yes(status),
            (_, Some(gone)) => Reached::Gone { since: gone.wall, is_over: gone.at.elapsed() >= self.grace },
            (Some(State::Down { since, why }), None) => Reached::No { since, why },
            (None, None) => Reached::No { since: from_seconds(member.since), why: self.why_unlinked(member) },
        };
        Replica {
            id: id.to_owned(),
            is_own,
            leads: false,
            peer: member.peer.clone(),
            release: member.release.clone(),
            started: from_seconds(member.since),
            reached,
        }
    }

    fn why_unlinked(&self, member: &Member) -> String {
        let why = match (&self.linking, &member.peer) {
            (None, _) => "this server asks no others: it has no --peer-listen",
            (Some(_), None) => "it cannot be asked: it has no --peer-listen",
            (Some(_), Some(_)) => "it was not reached yet",
        };
        why.to_owned()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers for PeerServers {
    fn replicas(&self) -> Vec<Replica> {
        let Company { members, problem, .. } = self.presence.company().borrow().clone();
        let own = Seat { member: Member::default(), gone: None };
        let mut replicas: Vec<_> = match &members {
            Some(members) => {
                let leads = |id: &String| members.leader.as_ref() == Some(id);
                let seats = members.seats.iter();
                seats.map(|(id, seat)| Replica { leads: leads(id), ..self.replica(id, seat) }).collect()
            }
            None => Vec::new(),
        };
        if !replicas.iter().any(|replica| replica.is_own) {
            replicas.push(Replica { started: self.began, ..self.replica(&self.own, &own) });
        }
        if members.is_none() {
            let why = problem.unwrap_or_else(|| "the shared store was not read yet".to_owned());
            replicas.push(Replica {
                id: UNKNOWN.to_owned(),
                is_own: false,
                leads: false,
                peer: None,
                release: String::new(),
                started: self.began,
                reached: Reached::No { since: self.began, why },
            });
        }
        replicas
    }

    fn is_linked(&self) -> bool {
        self.linking.is_some()
    }

    fn leads(&self) -> bool {
        self.is_linked() && self.presence.leads()
    }

    fn look(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let members = self.presence.look().await.map_err(|error| error.to_string())?;
            self.link(&members);
            Ok(())
        })
    }

    fn ask(
        &self,
        id: String,
        question: Question,
        patience: Duration,
    ) -> BoxFuture<'_, Result<Answer, String>> {
        let asker = self.links().of(&id).map(Link::asker);
        Box::pin(async move {
            match asker {
                Some(asker) => asker.ask(&question, patience).await,
                None => {
                    let silent = self.replicas().into_iter().find(|replica| replica.id == id);
                    Err(match silent.map(|replica| replica.reached) {
                        Some(Reached::No { why, .. }) => why,
                        Some(Reached::Yes(_) | Reached::Gone { .. }) | None => "it is not linked".to_owned(),
                    })
                }
            }
        })
    }

    fn forget(&self, id: String) -> BoxFuture<'_, Result<(), ForgetError>> {
        Box::pin(async move {
            self.presence.forget(&id).await.map_err(|error| match error {
                xds_replica::ForgetError::Alive(id) => ForgetError::Alive(id),
                xds_replica::ForgetError::Unknown(id) => ForgetError::Unknown(id),
                xds_replica::ForgetError::Remote(error) => ForgetError::Store(error.to_string()),
            })
        })
    }
}

impl fmt::Debug for PeerServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerServers of {}", self.own)
    }
}

/// A time in seconds since 1970; one that no clock can have becomes 1970.
fn from_seconds(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The id of the servers of which the store has not said anything yet.
const UNKNOWN: &str = "?";
