//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

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
}

/// Addresses that count as one client where bytes are shared out: one IPv4 address, or one IPv6 network of 64 bits,
/// because a host has all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// An address or a network.
    Network(IpAddr),
    /// A request that came by another way than a connection of ours.
    Unknown,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self::with(address.to_string().into(), Source::from(address.ip()))
    }

    /// The peer of a request that came by another way than a connection of ours.
    pub(crate) fn unknown() -> Self {
        Self::with("unknown".into(), Source::Unknown)
    }

    fn with(address: Arc<str>, source: Source) -> Self {
        let connection = LAST_CONNECTION.fetch_add(1, Ordering::Relaxed) + 1;
        let (is_cut, reader) = (AtomicBool::new(false), AtomicWaker::new());
        Self { shared: Arc::new(Shared { connection, address, source, is_cut, reader }) }
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

    /// Remembers whom to wake when the connection is cut off.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shared.reader.register(waker);
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => v4.into(),
                None => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
            },
        })
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} {})", self.shared.connection, self.shared.address)
    }
}

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
