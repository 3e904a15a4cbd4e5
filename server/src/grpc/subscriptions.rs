//! The memory for names that clients subscribe to: of one client, of one address, and of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::listen::Source;

/// So many bytes may be kept of what all clients subscribe to (`--max-subscription-memory`): a sixteenth for one client, half for one
/// address.
///
/// What is small counts nowhere: most clients subscribe to little, and the number of streams is limited.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    limit: usize,
    used: Mutex<Used>,
}

/// The bytes in use.
#[derive(Debug, Default)]
struct Used {
    n_bytes: usize,
    by_source: HashMap<Source, usize>,
}

/// The share of one client; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    subscriptions: Arc<Subscriptions>,
    source: Source,
    n_bytes: usize,
}

/// There is no room for more names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the names that {whose} subscribed to take more than {limit} bytes, each its length and about 128 more (--max-subscription-memory)"
)]
pub(crate) struct NoRoom {
    whose: &'static str,
    limit: usize,
}

impl Subscriptions {
    /// Nothing is in use.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::default() })
    }

    /// The share of a client from `source`, who has subscribed to nothing yet.
    pub(crate) fn share(self: &Arc<Self>, source: Source) -> Share {
        Share { subscriptions: Arc::clone(self), source, n_bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The client's subscriptions take `n_kept` bytes from now on. Less than before always fits.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if that passes a limit; the share stays as it was.
    pub(crate) fn resize(&mut self, n_kept: usize) -> Result<(), NoRoom> {
        let n_bytes = if n_kept <= SMALL { 0 } else { n_kept };
        if n_bytes == self.n_bytes {
            return Ok(());
        }
        let limit = self.subscriptions.limit;
        let mut used = self.subscriptions.lock();
        let of_source =
            used.by_source.get(&self.source).copied().unwrap_or_default() - self.n_bytes + n_bytes;
        let of_all = used.n_bytes - self.n_bytes + n_bytes;
        let limits = [
            (n_bytes, limit / 16, "this client"),
            (of_source, limit / 2, "the clients of this address"),
            (of_all, limit, "all clients"),
        ];
        let is_more = n_bytes > self.n_bytes;
        if let Some((_, limit, whose)) = limits.into_iter().find(|(n, limit, _)| is_more && n > limit) {
            return Err(NoRoom { whose, limit });
        }
        used.n_bytes = of_all;
        if of_source == 0 {
            used.by_source.remove(&self.source);
        } else {
            used.by_source.insert(self.source, of_source);
        }
        self.n_bytes = n_bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Less always fits.
        let _ = self.resize(0);
    }
}

/// The subscriptions of most clients take less than this: an Envoy has six types with a few dozen names.
const SMALL: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn source(n: u8) -> Source {
        Source::from(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)))
    }

    #[test]
    fn a_client_an_address_and_all_have_their_limits_and_give_back_what_they_leave() {
        const UNIT: usize = 1 << 20;
        let subscriptions = Subscriptions::new(16 * UNIT);
        let mut clients: Vec<Share> = (0..32).map(|i| subscriptions.share(source(i / 11))).collect();
        assert_eq!(clients[0].resize(UNIT + 1), Err(NoRoom { whose: "this client", limit: UNIT }));
        assert!(clients[..8].iter_mut().all(|client| client.resize(UNIT).is_ok()));
        let of_address = NoRoom { whose: "the clients of this address", limit: 8 * UNIT };
        assert_eq!(clients[8].resize(UNIT), Err(of_address));
        assert_eq!(clients[8].resize(SMALL), Ok(()));
        assert!(clients[11..19].iter_mut().all(|client| client.resize(UNIT).is_ok()));
        assert_eq!(clients[22].resize(UNIT), Err(NoRoom { whose: "all clients", limit: 16 * UNIT }));
        assert_eq!(clients[11].resize(UNIT / 2), Ok(()));
        assert_eq!(clients[22].resize(UNIT / 2), Ok(()));
        drop(clients);
        let used = subscriptions.lock();
        assert_eq!((used.n_bytes, used.by_source.len()), (0, 0));
    }
}
