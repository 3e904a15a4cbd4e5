//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

use futures_util::task::AtomicWaker;
use xds_access::limit::network;
use xds_cache::{Proof, Proofs, Reason};

/// The other end of a connection; every request carries it as an extension. All clones are one.
#[derive(Clone)]
pub(crate) struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    connection: u64,
    address: Arc<str>,
    source: Source,
    is_cut: AtomicBool,
    /// Wakes whoever reads from the connection.
    reader: AtomicWaker,
    /// When it was accepted, in microseconds of the process.
    accepted_at: u64,
    /// True if the client is to be told that it should connect again.
    is_leaving: AtomicBool,
    /// Streams and requests that are open.
    n_busy: AtomicU32,
    has_spoken: AtomicBool,
    /// How far the handshake is, as [`Handshake`].
    handshake: AtomicU8,
    /// What the client's certificate proves.
    proofs: OnceLock<Proofs>,
    /// By which generation of its port's trust the certificate was verified.
    trust: AtomicU64,
    /// True if the certificate is to be verified again, because it has changed whom the port trusts.
    is_doubted: AtomicBool,
    /// Why the certificate is not trusted any more.
    distrust: OnceLock<Distrust>,
    /// When it was decided that the connection ends soon, in microseconds of the process; 0 if it goes on.
    retired_at: AtomicU64,
    /// Since when there is no request, and since when the client takes nothing of what it is sent, in microseconds of the
    /// process; 0 if it does.
    idle_since: AtomicU64,
    blocked_since: AtomicU64,
    /// Answers of which the client is to take more.
    answers: Awaited,
    /// Bodies of which the client is to send more.
    bodies: Awaited,
}

/// What is waited for from the client.
#[derive(Debug, Default)]
struct Awaited {
    n: AtomicU32,
    /// Since when, in microseconds of the process.
    since: AtomicU64,
}

/// Something that a client is to take or to send, until the value is dropped.
#[derive(Debug)]
pub(super) struct Wait {
    peer: Peer,
    is_body: bool,
}

/// The handshake of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// There is none: plaintext, or a request that came by another way.
    None,
    /// It is under way.
    Pending,
    /// It ended, and the client showed no certificate.
    Anonymous,
    /// It ended, and the client showed a certificate that was verified.
    Verified,
}

/// Why the certificate of an open connection is not trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// Its issuer has revoked it.
    Revoked,
    /// A handshake with it would fail now, for this reason of those that are counted.
    Untrusted(&'static str),
}

/// How long a connection has been as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elapsed {
    /// Without a request; `None` while there is one.
    pub(super) idle: Option<Duration>,
    /// Without taking any of the bytes that it is sent.
    pub(super) blocked: Option<Duration>,
    /// Without taking anything of any answer, although there is something.
    pub(super) untaken: Option<Duration>,
    /// While a body is not complete.
    pub(super) sending: Option<Duration>,
    /// True if it has said what protocol it speaks.
    pub(super) has_spoken: bool,
    /// How far the handshake is.
    pub(super) handshake: Handshake,
}

/// Something that a connection is open for: as long as it lives, the connection is not idle.
#[derive(Debug)]
pub(crate) struct Busy(Peer);

/// The origin of requests, by which budgets are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The addresses that count as one client, by [`network`].
    Network(IpAddr),
    /// A request that came by another way than a connection of ours.
    Unknown,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::with(address.to_string().into(), Source::from(address.ip()))
    }

    /// The peer that sent a request; [unknown](Self::unknown) if no connection of ours brought it.
    pub(crate) fn of(extensions: &http::Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_else(Self::unknown)
    }

    /// The peer of a request that came by another way than a connection of ours.
    pub(crate) fn unknown() -> Self {
        Self::with("unknown".into(), Source::Unknown)
    }

    fn with(address: Arc<str>, source: Source) -> Self {
        let connection = LAST_CONNECTION.fetch_add(1, Ordering::Relaxed) + 1;
        let shared = Shared {
            connection,
            address,
            source,
            is_cut: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            accepted_at: now_us(),
            is_leaving: AtomicBool::new(false),
            n_busy: AtomicU32::new(0),
            has_spoken: AtomicBool::new(false),
            handshake: AtomicU8::new(Handshake::None as u8),
            proofs: OnceLock::new(),
            trust: AtomicU64::new(0),
            is_doubted: AtomicBool::new(false),
            distrust: OnceLock::new(),
            retired_at: AtomicU64::new(0),
            idle_since: AtomicU64::new(now_us()),
            blocked_since: AtomicU64::new(0),
            answers: Awaited::default(),
            bodies: Awaited::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The connection's number, unique while the process lives.
    pub(crate) fn connection(&self) -> u64 {
        self.shared.connection
    }

    /// The address and port that the connection came from.
    pub(crate) fn address(&self) -> &Arc<str> {
        &self.shared.address
    }

    /// Whose budgets the connection counts in.
    pub(crate) fn source(&self) -> Source {
        self.shared.source
    }

    /// Has the connection fail as soon as it is read or written.
    pub(crate) fn cut_off(&self) {
        self.shared.is_cut.store(true, Ordering::Release);
        self.shared.reader.wake();
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.shared.is_cut.load(Ordering::Acquire)
    }

    /// How long ago the connection was accepted.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(now_us().saturating_sub(self.shared.accepted_at))
    }

    /// Has the client told to open no more streams on the connection.
    pub(crate) fn ask_to_leave(&self) {
        self.shared.is_leaving.store(true, Ordering::Release);
        self.shared.reader.wake();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.shared.is_leaving.load(Ordering::Acquire)
    }

    /// The connection is in use until the value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.shared.n_busy.fetch_add(1, Ordering::AcqRel);
        self.set_spoken();
        Busy(self.clone())
    }

    /// The client has said that it speaks HTTP/2, or made a request.
    pub(super) fn set_spoken(&self) {
        self.shared.has_spoken.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_handshake(&self, handshake: Handshake) {
        self.shared.handshake.store(handshake as u8, Ordering::Release);
    }

    pub(super) fn handshake(&self) -> Handshake {
        let stored = self.shared.handshake.load(Ordering::Acquire);
        let all = [Handshake::Pending, Handshake::Anonymous, Handshake::Verified];
        all.into_iter().find(|handshake| *handshake as u8 == stored).unwrap_or(Handshake::None)
    }

    /// Returns `true` if the client has shown a certificate that its port trusts.
    pub(crate) fn is_verified(&self) -> bool {
        self.handshake() == Handshake::Verified && self.distrust().is_none()
    }

    /// Remembers by which generation of trust the client's certificate is verified.
    pub(super) fn set_trust(&self, generation: u64) {
        self.shared.trust.store(generation, Ordering::Release);
    }

    /// By which generation of trust the client's certificate was verified.
    pub(super) fn trust(&self) -> u64 {
        self.shared.trust.load(Ordering::Acquire)
    }

    /// Has the certificate verified again before anything else is read or written, or as soon as the handshake is over.
    pub(super) fn doubt(&self) {
        self.shared.is_doubted.store(true, Ordering::Release);
        self.shared.reader.wake();
    }

    pub(super) fn is_doubted(&self) -> bool {
        self.shared.is_doubted.load(Ordering::Acquire)
    }

    /// The certificate is about to be verified again.
    pub(super) fn settle(&self) {
        self.shared.is_doubted.store(false, Ordering::Release);
    }

    /// The certificate is not trusted any more: it proves nothing from now on, and the connection ends soon.
    pub(super) fn set_distrust(&self, why: Distrust) {
        // The first reason stays.
        let _ = self.shared.distrust.set(why);
        self.retire();
    }

    /// Why the client's certificate is not trusted any more; `None` while it is, and if there is none.
    pub(crate) fn distrust(&self) -> Option<Distrust> {
        self.shared.distrust.get().copied()
    }

    pub(super) fn set_proofs(&self, proofs: Proofs) {
        // A connection has one handshake.
        let _ = self.shared.proofs.set(proofs);
    }

    /// What the client's certificate proves; nothing if it showed none, or one that is not trusted any more.
    pub(crate) fn proofs(&self) -> Proofs {
        if self.distrust().is_some() {
            return Proofs::default();
        }
        self.shared.proofs.get().cloned().unwrap_or_default()
    }

    /// When the client's certificate ends.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        Proof::first_end(self.shared.proofs.get()?)
    }

    /// Returns `true` if the client's certificate has ended by `now`.
    pub(crate) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires().is_some_and(|end| end <= now)
    }

    /// The connection ends soon, when its streams have been told.
    pub(crate) fn retire(&self) {
        let _ = self.shared.retired_at.compare_exchange(0, now_us(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns `true` if the connection was [retired](Self::retire) so long ago that its streams have been told.
    pub(super) fn is_overdue(&self) -> bool {
        let at = self.shared.retired_at.load(Ordering::Acquire);
        at != 0 && Duration::from_micros(now_us().saturating_sub(at)) >= RETIREMENT
    }

    /// The client takes nothing of what it is to be sent.
    pub(super) fn set_blocked(&self) {
        if self.shared.blocked_since.load(Ordering::Relaxed) == 0 {
            self.shared.blocked_since.store(now_us(), Ordering::Relaxed);
        }
    }

    /// The client has taken some of what it is sent.
    pub(super) fn set_flowing(&self) {
        if self.shared.blocked_since.load(Ordering::Relaxed) != 0 {
            self.shared.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    /// The client is to take more of an answer. It takes nothing while its window of HTTP/2 is closed, although the socket takes all bytes.
    pub(super) fn await_taking(&self) -> Wait {
        self.shared.answers.begin();
        Wait { peer: self.clone(), is_body: false }
    }

    /// The client is to send the rest of a body.
    pub(super) fn await_body(&self) -> Wait {
        self.shared.bodies.begin();
        Wait { peer: self.clone(), is_body: true }
    }

    pub(super) fn elapsed(&self) -> Elapsed {
        let now = now_us();
        let since = |at: u64| Duration::from_micros(now.saturating_sub(at));
        let is_idle = self.shared.n_busy.load(Ordering::Acquire) == 0;
        let blocked_since = self.shared.blocked_since.load(Ordering::Relaxed);
        Elapsed {
            idle: is_idle.then(|| since(self.shared.idle_since.load(Ordering::Relaxed))),
            blocked: (blocked_since != 0).then(|| since(blocked_since)),
            untaken: self.shared.answers.since().map(since),
            sending: self.shared.bodies.since().map(since),
            has_spoken: self.shared.has_spoken.load(Ordering::Relaxed),
            handshake: self.handshake(),
        }
    }

    /// Remembers whom to wake when the connection is cut off.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shared.reader.register(waker);
    }
}

impl Distrust {
    /// The reason, as it is counted.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Revoked => Reason::Revoked,
            Self::Untrusted(_) => Reason::Untrusted,
        }
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revoked => f.write_str("revoked: the issuer of the client certificate has revoked it"),
            Self::Untrusted(why) => {
                write!(f, "untrusted: the server no longer accepts the client certificate ({why})")
            }
        }
    }
}

impl Awaited {
    fn begin(&self) {
        if self.n.fetch_add(1, Ordering::AcqRel) == 0 {
            self.since.store(now_us(), Ordering::Release);
        }
    }

    /// One of them came: the client moves.
    fn end(&self) {
        self.since.store(now_us(), Ordering::Release);
        self.n.fetch_sub(1, Ordering::AcqRel);
    }

    /// When the client last moved; `None` if nothing is waited for.
    fn since(&self) -> Option<u64> {
        (self.n.load(Ordering::Acquire) != 0).then(|| self.since.load(Ordering::Acquire))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let shared = &self.peer.shared;
        if self.is_body { shared.bodies.end() } else { shared.answers.end() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        // Before the count, so that nobody sees the time of before as idle.
        shared.idle_since.store(now_us(), Ordering::Release);
        shared.n_busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Microseconds since the process first asked, from 1 on.
fn now_us() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX).saturating_add(1)
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self::Network(network(address))
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} {})", self.shared.connection, self.shared.address)
    }
}

/// How long a connection goes on that is to end: its streams end within a second, and clients read why.
const RETIREMENT: Duration = Duration::from_secs(2);

static LAST_CONNECTION: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::2:3:4:5"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
