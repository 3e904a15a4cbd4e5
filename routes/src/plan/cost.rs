//! The cost of the routes of a document.

use crate::model::Route;

/// The cost of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Routes in virtual hosts.
    pub(crate) routes: usize,
    /// Virtual hosts.
    pub(crate) hosts: usize,
    /// Bytes of text.
    pub(crate) bytes: usize,
}

impl Cost {
    /// The cost of a route with a text of `bytes` bytes in each virtual host.
    pub(crate) fn of(route: &Route, bytes: usize) -> Self {
        let routes = route.rules.iter().map(|rule| rule.matches.len()).sum();
        Self { routes, hosts: 0, bytes }
    }

    /// Adds another.
    pub(crate) fn add(&mut self, other: Self) {
        self.routes = self.routes.saturating_add(other.routes);
        self.hosts = self.hosts.saturating_add(other.hosts);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Returns `n` times the cost.
    pub(crate) fn times(self, n: usize) -> Self {
        let times = |one: usize| one.saturating_mul(n);
        Self { routes: times(self.routes), hosts: times(self.hosts), bytes: times(self.bytes) }
    }
}

/// The length that counts for a text of this length: the next power of two.
pub(crate) fn length_class(n_bytes: usize) -> usize {
    n_bytes.checked_next_power_of_two().unwrap_or(usize::MAX)
}
