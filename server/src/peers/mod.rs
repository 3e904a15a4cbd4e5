//! Other servers: those with the same store, and those that follow this one.
//!
//! Who has the same store, the store says. Each of these has a link to each other one, on which it alone asks. So a link that breaks in one
//! direction makes silent only who is not heard, and neither end has to tell questions from answers. A server that follows this one opens
//! the stream on which it is asked. What is asked is [`xds_control::peers`].

mod answer;
mod ask;
mod connect;
mod followers;
mod link;
mod messages;
mod serve;
#[cfg(test)]
mod tests;
mod upstream;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use xds_control::BoxFuture;
use xds_control::peers::{Answer, ForgetError, Peers, Question, Reached, Replica, Status};
use xds_replica::{Company, Member, Members, Presence, Seat};

pub(crate) use answer::Answers;
use ask::State;
pub use connect::PeerFiles;
pub(crate) use followers::Followers;
pub(crate) use link::Linking;
use link::{Ends, Link, Links};
use messages::time_of;
pub(crate) use serve::{PeerPort, serve};
pub(crate) use upstream::{Follower, Upstream};

/// The servers whose clients count along with those of this one.
pub(crate) struct PeerServers {
    own: String,
    /// This server among those with the same store; `None` if its store is its own.
    presence: Option<Arc<Presence>>,
    followers: Arc<Followers>,
    /// Says how this server is.
    status: Box<dyn Fn() -> Status + Send + Sync>,
    linking: Option<Linking>,
    /// How long the clients of a server that vanished count.
    grace: Duration,
    links: Mutex<Links>,
    began: SystemTime,
}

impl PeerServers {
    /// Knows whom `presence` knows, and the followers. Without `linking`, nobody is asked.
    pub(crate) fn new(
        own: String,
        (presence, followers): (Option<Arc<Presence>>, Arc<Followers>),
        linking: Option<Linking>,
        grace: Duration,
        status: Box<dyn Fn() -> Status + Send + Sync>,
    ) -> Arc<Self> {
        let (links, began) = (Mutex::default(), SystemTime::now());
        Arc::new(Self { own, presence, followers, status, linking, grace, links, began })
    }

    /// How many streams each other server with the same store has, of those that answer.
    pub(crate) fn streams_of_others(&self) -> Vec<u64> {
        self.links().streams()
    }

    /// Links with whoever is there, for ever. `note` gets why others may not know of this server.
    pub(crate) async fn follow(self: Arc<Self>, note: impl Fn(Option<String>)) {
        let Some(presence) = &self.presence else { return };
        let mut company = presence.company();
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
        self.links().set(wanted.collect(), linking);
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
            (None, None) => Reached::No { since: time_of(member.since), why: self.why_unlinked(member) },
        };
        Replica {
            id: id.to_owned(),
            is_own,
            leads: false,
            follows: false,
            peer: member.peer.clone(),
            release: member.release.clone(),
            started: time_of(member.since),
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
        let company = self.presence.as_ref().map(|presence| presence.company().borrow().clone());
        let is_alone = company.is_none();
        let Company { members, problem, .. } = company.unwrap_or_default();
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
            let release = env!("CARGO_PKG_VERSION").to_owned();
            replicas.push(Replica {
                leads: is_alone,
                started: self.began,
                release,
                ..self.replica(&self.own, &own)
            });
        }
        if members.is_none() && !is_alone {
            let why = problem.unwrap_or_else(|| "the shared store was not read yet".to_owned());
            replicas.push(Replica {
                id: UNKNOWN.to_owned(),
                is_own: false,
                leads: false,
                follows: false,
                peer: None,
                release: String::new(),
                started: self.began,
                reached: Reached::No { since: self.began, why },
            });
        }
        for follower in self.followers.replicas() {
            let is_there = |one: &Replica| matches!(one.reached, Reached::Yes(_));
            let shares = replicas.iter().any(|one| one.id == follower.id && is_there(one));
            if shares && !is_there(&follower) {
                // It follows no more: it shares the store, and is asked as one of those that do.
                let _ = self.followers.forget(&follower.id);
            } else {
                replicas.push(follower);
            }
        }
        replicas
    }

    fn is_linked(&self) -> bool {
        self.linking.is_some()
    }

    fn leads(&self) -> bool {
        self.is_linked() && self.presence.as_ref().is_none_or(|presence| presence.leads())
    }

    fn look(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(presence) = &self.presence else { return Ok(()) };
            let members = presence.look().await.map_err(|error| error.to_string())?;
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
        let asker = self.links().of(&id).map(|link| Ok(link.asker())).or_else(|| self.followers.asker(&id));
        Box::pin(async move {
            match asker {
                Some(asker) => asker?.ask(&question, patience).await,
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
            if let Some(forgotten) = self.followers.forget(&id) {
                return forgotten;
            }
            let Some(presence) = &self.presence else { return Err(ForgetError::Unknown(id)) };
            presence.forget(&id).await.map_err(|error| match error {
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

/// The id of the servers of which the store has not said anything yet.
const UNKNOWN: &str = "?";
