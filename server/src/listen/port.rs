//! The connections of one port: their limit, and the choice of those that have to go.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tracing::{debug, info};
use xds_cache::{Reason, Refusals};

use crate::listen::Crowds;
use crate::listen::peer::{Distrust, Elapsed, Handshake, Peer};
use crate::listen::stream::Stream;
use crate::listen::tls::{
    Agreed, CLOSED, DISPLACED, Failure, NOT_READY, Outcome, REVOKED, Secured, TIMEOUT, Tls,
};

/// The rules of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortRules {
    /// The port's name in the log.
    pub(crate) name: &'static str,
    /// Connections at once.
    pub(crate) max_connections: usize,
    /// How they are counted that find no place.
    pub(crate) reason: Reason,
    /// The time until a connection has said what protocol it speaks.
    pub(crate) opening: Duration,
    /// How long a connection may be open without a request.
    pub(crate) idle: Duration,
    /// How long a client may take nothing of what it is sent.
    pub(crate) stalled: Duration,
    /// True if a client may leave answers for later for as long as there is room: the newest state waits for an xDS client, and costs
    /// nothing meanwhile.
    pub(crate) may_take_later: bool,
    /// How many of its connections one address keeps when the port is full and another address comes.
    pub(crate) max_of_address: usize,
    /// True if clients may not speak HTTP/2.
    pub(crate) is_http1_only: bool,
}

/// A port and its open connections.
pub(crate) struct Port {
    rules: PortRules,
    tls: Option<Arc<Tls>>,
    refusals: Arc<Refusals>,
    open: Mutex<Open>,
    /// Connections that began a handshake, the oldest first; some have ended it.
    handshakes: Mutex<VecDeque<Peer>>,
    /// How many connections had a certificate that is not trusted any more.
    n_distrusted: AtomicU64,
}

/// The open connections of a port.
#[derive(Debug)]
struct Open {
    all: HashMap<u64, Peer>,
    crowds: Crowds,
}

impl Port {
    /// A port of plaintext, or of TLS alone.
    pub(crate) fn new(rules: PortRules, tls: Option<Arc<Tls>>, refusals: Arc<Refusals>) -> Arc<Self> {
        let open = Mutex::new(Open { all: HashMap::new(), crowds: Crowds::new(rules.max_of_address) });
        let (handshakes, n_distrusted) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { rules, tls, refusals, open, handshakes, n_distrusted })
    }

    /// Returns `true` if clients may not speak HTTP/2.
    pub(super) fn speaks_http1_only(&self) -> bool {
        self.rules.is_http1_only
    }

    /// Gives a connection that was accepted its place. Where the port is full, those that have been idle for longest make room, then those
    /// whose client does not move, and then one of an address that has too many;
    /// without any, `None`: the connection is closed again. So it is while there is no certificate.
    pub(super) fn admit(&self, stream: TcpStream, address: SocketAddr) -> Option<(Stream, Peer)> {
        let peer = Peer::new(address);
        let encrypted = match &self.tls {
            None => None,
            Some(tls) => match tls.acceptor() {
                Some(acceptor) => Some((tls, acceptor)),
                None => {
                    tls.count(Outcome::Failed(NOT_READY));
                    self.refuse(Reason::Handshake, &peer, "the port has no certificate yet");
                    return None;
                }
            },
        };
        let mut open = self.lock();
        let mut displaced = Vec::new();
        if open.all.len() >= self.rules.max_connections {
            displaced = self.displaced_by(&open, &peer);
            displaced.iter().for_each(|displaced| open.remove(displaced));
            if displaced.is_empty() {
                drop(open);
                self.refuse(self.rules.reason, &peer, "every connection of the port is in use");
                return None;
            }
        }
        open.insert(peer.clone());
        drop(open);
        for idle in displaced {
            self.refuse(self.rules.reason, &idle, "the connection makes room for a new one");
            idle.cut_off();
        }
        let stream = match encrypted {
            None => Stream::Plain(stream),
            Some((tls, (acceptor, trust))) => {
                peer.set_handshake(Handshake::Pending);
                self.make_room_for_handshake(tls, &peer);
                peer.set_trust(trust);
                Stream::Tls(Box::new(Secured::new(&acceptor, stream)))
            }
        };
        Some((stream, peer))
    }

    /// The connections that make room for another one where the port is full.
    fn displaced_by(&self, open: &Open, newcomer: &Peer) -> Vec<Peer> {
        let n = (self.rules.max_connections / DISPLACED_SHARE).max(1);
        let idle = longest(&open.all, n, |elapsed| elapsed.idle);
        if !idle.is_empty() {
            return idle;
        }
        let stuck = longest(&open.all, n, |elapsed| {
            elapsed.blocked.max(elapsed.untaken).max(elapsed.sending).filter(|since| *since >= MIN_STUCK)
        });
        if !stuck.is_empty() {
            return stuck;
        }
        let Some(crowd) = open.crowds.displaced_by(newcomer.source()) else { return vec![] };
        let crowd = open.all.values().filter(|peer| peer.source() == crowd);
        crowd.max_by_key(|peer| peer.age()).into_iter().cloned().collect()
    }

    /// Counts a handshake in; where there are too many, the oldest end.
    fn make_room_for_handshake(&self, tls: &Tls, peer: &Peer) {
        let max = tls.timing().max_handshakes;
        let mut handshakes = self.handshakes.lock().unwrap_or_else(PoisonError::into_inner);
        handshakes.push_back(peer.clone());
        if handshakes.len() <= max {
            return;
        }
        handshakes.retain(|peer| peer.handshake() == Handshake::Pending && !peer.is_cut_off());
        // Several at once, so that they are not looked through for each new one.
        let n_displaced = match handshakes.len() > max - max / DISPLACED_SHARE {
            true => handshakes.len() - (max - max / DISPLACED_SHARE),
            false => 0,
        };
        let displaced: Vec<_> = handshakes.drain(..n_displaced).collect();
        drop(handshakes);
        for peer in displaced {
            tls.count(Outcome::Failed(DISPLACED));
            self.refuse(Reason::Handshake, &peer, "too many handshakes at once: the oldest make room");
            peer.cut_off();
        }
    }

    /// A handshake ended well.
    pub(super) fn agreed(&self, peer: &Peer, agreed: Agreed) {
        peer.set_handshake(match agreed.proofs {
            Some(proofs) => {
                peer.set_proofs(proofs);
                Handshake::Verified
            }
            None => Handshake::Anonymous,
        });
        if let Some(tls) = &self.tls {
            tls.count(Outcome::Completed(agreed.version));
            // A change after this line finds the peer verified, and one before it is found here.
            if tls.trust_generation() != peer.trust() {
                peer.doubt();
            }
        }
    }

    /// Verifies once more the certificates that a client showed, its own first. If they are not trusted any more, the connection ends
    /// soon; its streams and requests are told why until then.
    pub(super) fn verify_again(&self, peer: &Peer, chain: &[CertificateDer<'_>]) {
        let Some(tls) = &self.tls else { return };
        let now = SystemTime::now();
        let (verified, generation) = tls.verify_again(chain, now);
        peer.set_trust(generation);
        let Err(failure) = verified else { return };
        // Certificates that end are followed everywhere, and have a reason of their own.
        if peer.is_expired(now) || peer.distrust().is_some() {
            return;
        }
        let why = match failure.reason {
            REVOKED => Distrust::Revoked,
            reason => Distrust::Untrusted(reason),
        };
        self.refuse(why.reason(), peer, &format!("the connection ends: {why}: {failure}"));
        tls.record_distrust(peer.address(), &peer.proofs(), failure.reason, now);
        peer.set_distrust(why);
        self.n_distrusted.fetch_add(1, Ordering::AcqRel);
    }

    /// How many connections had a certificate that is not trusted any more.
    pub(crate) fn n_distrusted(&self) -> u64 {
        self.n_distrusted.load(Ordering::Acquire)
    }

    /// A handshake failed.
    pub(super) fn failed(&self, peer: &Peer, failure: &Failure) {
        if let Some(tls) = &self.tls {
            tls.count(Outcome::Failed(failure.reason));
        }
        // Port scans and health checks open a connection and send nothing. They are no problem.
        if failure.reason == CLOSED {
            debug!(address = %peer.address(), port = self.rules.name, %failure, "a handshake was not ended");
        } else {
            self.refuse(Reason::Handshake, peer, &format!("handshake failed: {failure}"));
            if let Some(tls) = self.tls.as_ref().filter(|_| failure.is_refusal()) {
                tls.record_refusal(peer.address(), failure.reason, SystemTime::now());
            }
        }
    }

    pub(super) fn remove(&self, peer: &Peer) {
        self.lock().remove(peer);
    }

    /// Counts what is refused, or ended because it passes a limit.
    pub(super) fn refuse(&self, reason: Reason, peer: &Peer, detail: &str) {
        let detail = format!("{} on the {} port: {detail}", peer.address(), self.rules.name);
        self.refusals.record(reason, &detail, SystemTime::now());
    }

    /// Looks after the connections, for ever.
    pub(crate) async fn tend(&self) {
        tokio::join!(self.sweep(), self.review());
    }

    /// Has the certificates of clients verified again whenever it has changed whom the port trusts, for ever. Each connection does it
    /// for itself, a few at a time.
    async fn review(&self) {
        let Some(tls) = &self.tls else { return };
        let mut changes = tls.trust_changes();
        // The port may have been served for a moment already.
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            let generation = *changes.borrow_and_update();
            // One whose handshake is not over looks for itself when it is.
            let is_affected = |peer: &&Peer| peer.is_verified() && peer.trust() != generation;
            let peers: Vec<_> = self.lock().all.values().filter(is_affected).cloned().collect();
            if !peers.is_empty() {
                let n_connections = peers.len();
                info!(
                    port = self.rules.name,
                    n_connections, "the certificates of clients are verified again"
                );
            }
            let mut ticks = tokio::time::interval(REVIEW_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for slice in peers.chunks(REVIEW_SLICE) {
                ticks.tick().await;
                slice.iter().for_each(Peer::doubt);
            }
        }
    }

    /// Cuts off what breaks the rules of time, for ever.
    async fn sweep(&self) {
        let PortRules { opening, idle, stalled, .. } = self.rules;
        let handshake = self.tls.as_ref().map_or(opening, |tls| tls.timing().handshake);
        let shortest = opening.min(idle).min(stalled).min(handshake);
        let mut ticks = tokio::time::interval((shortest / 4).clamp(MIN_SWEEP, MAX_SWEEP));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let late: Vec<_> = self
                .lock()
                .all
                .values()
                .filter_map(|peer| Some((peer.clone(), self.lateness(peer)?)))
                .collect();
            for (peer, why) in late {
                match why {
                    // How connections that are kept for later end is nothing to worry about.
                    Late::Idle => {
                        debug!(address = %peer.address(), port = self.rules.name, "an idle connection ends");
                    }
                    Late::Handshake => {
                        self.refuse(Reason::Handshake, &peer, "the handshake took too long");
                        if let Some(tls) = &self.tls {
                            tls.count(Outcome::Failed(TIMEOUT));
                        }
                    }
                    Late::Opening => self.refuse(Reason::SlowConnection, &peer, "no request came in time"),
                    Late::Stalled => self.refuse(Reason::SlowConnection, &peer, "the client reads nothing"),
                }
                peer.cut_off();
            }
            let now = SystemTime::now();
            self.end_expired(now);
            if let Some(tls) = &self.tls {
                tls.note_due(now);
            }
        }
    }

    /// Ends the connections whose client certificate has ended or is not trusted any more, a moment after they were told so.
    fn end_expired(&self, now: SystemTime) {
        let open = self.lock();
        for peer in open.all.values().filter(|peer| peer.is_expired(now)) {
            peer.retire();
        }
        open.all.values().filter(|peer| peer.is_overdue()).for_each(Peer::cut_off);
    }

    /// Cuts off whatever is open.
    pub(crate) fn cut_off(&self) {
        let open = self.lock();
        if !open.all.is_empty() {
            let n_connections = open.all.len();
            info!(port = self.rules.name, n_connections, "cutting off the connections that are left");
        }
        open.all.values().for_each(Peer::cut_off);
    }

    /// The connections that are open.
    #[cfg(test)]
    pub(crate) fn peers(&self) -> Vec<Peer> {
        self.lock().all.values().cloned().collect()
    }

    /// Returns `true` if there are as many connections as may be, each with a request.
    #[cfg(test)]
    pub(super) fn is_full_of_busy(&self) -> bool {
        let open = self.lock();
        open.all.len() >= self.rules.max_connections
            && open.all.values().all(|peer| peer.elapsed().idle.is_none())
    }

    fn lateness(&self, peer: &Peer) -> Option<Late> {
        if peer.is_cut_off() {
            return None;
        }
        let Elapsed { idle, blocked, untaken, has_spoken, handshake, .. } = peer.elapsed();
        if let (Handshake::Pending, Some(tls)) = (handshake, &self.tls)
            && idle.is_some_and(|elapsed| elapsed >= tls.timing().handshake)
        {
            return Some(Late::Handshake);
        }
        let blocked = if self.rules.may_take_later { blocked } else { blocked.max(untaken) };
        if blocked.is_some_and(|blocked| blocked >= self.rules.stalled) {
            return Some(Late::Stalled);
        }
        match idle? {
            idle if !has_spoken && idle >= self.rules.opening.min(self.rules.idle) => Some(Late::Opening),
            idle if idle >= self.rules.idle => Some(Late::Idle),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn insert(&mut self, peer: Peer) {
        self.crowds.add(peer.source());
        self.all.insert(peer.connection(), peer);
    }

    /// Takes a connection out, unless it made room before.
    fn remove(&mut self, peer: &Peer) {
        if let Some(peer) = self.all.remove(&peer.connection()) {
            self.crowds.remove(peer.source());
        }
    }
}

/// Why a connection is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    Handshake,
    Opening,
    Idle,
    Stalled,
}

/// At most `n` connections without a request, those first that have been so for longest.
fn longest(open: &HashMap<u64, Peer>, n: usize, time: impl Fn(Elapsed) -> Option<Duration>) -> Vec<Peer> {
    let mut all: Vec<_> = open.values().filter_map(|peer| Some((time(peer.elapsed())?, peer))).collect();
    all.sort_unstable_by_key(|(time, _)| std::cmp::Reverse(*time));
    all.into_iter().take(n).map(|(_, peer)| peer.clone()).collect()
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// This fraction of all connections makes room at once when a port is full, so that they are not searched for each new one.
const DISPLACED_SHARE: usize = 64;
/// So many certificates are verified again at once, and so long after those before them: 50 take 4 to 7 ms of one core, so 10,000
/// connections take two seconds, and no task of another waits for more than one of them.
const REVIEW_SLICE: usize = 50;
const REVIEW_INTERVAL: Duration = Duration::from_millis(10);
/// How long a client must not have moved before its connection makes room: longer than a lost packet takes.
const MIN_STUCK: Duration = Duration::from_secs(2);
/// How often the connections are looked at: a quarter of the shortest time, within these bounds.
const MIN_SWEEP: Duration = Duration::from_millis(50);
const MAX_SWEEP: Duration = Duration::from_secs(1);
