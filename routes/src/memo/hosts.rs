//! The virtual hosts of each RouteConfiguration for Envoys, updated along with the facts, so that a change of one host costs only that host.

use std::sync::Arc;

use xds_cache::OrdMap;
use xds_codec::{Diagnostic, VirtualHost, VirtualHosts};

use super::key::HostKey;

/// The virtual hosts of a RouteConfiguration. A copy shares its contents with the original.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hosts {
    /// The encoded hosts.
    encoded: VirtualHosts<HostKey>,
    /// The errors of the other hosts.
    faulty: OrdMap<HostKey, Arc<[Diagnostic]>>,
    /// The number of hosts with a route that must fail with UNAVAILABLE.
    n_unavailable: usize,
}

impl Hosts {
    /// All hosts.
    ///
    /// # Errors
    ///
    /// Returns the errors of the first host that cannot be encoded.
    pub(crate) fn encoded(&self) -> Result<&VirtualHosts<HostKey>, &[Diagnostic]> {
        self.faulty.get_min().map_or(Ok(&self.encoded), |(_, faults)| Err(faults))
    }

    /// Returns `true` if a route of a host must fail with UNAVAILABLE.
    pub(crate) fn needs_unavailable(&self) -> bool {
        self.n_unavailable > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.encoded.is_empty() && self.faulty.is_empty()
    }

    pub(super) fn add(&mut self, key: &HostKey, part: &EncodedHost) {
        match &part.encoded {
            Ok(host) => self.encoded.insert(key.clone(), Arc::clone(host)),
            Err(faults) => _ = self.faulty.insert(key.clone(), Arc::clone(faults)),
        }
        self.n_unavailable += usize::from(part.needs_unavailable);
    }

    pub(super) fn remove(&mut self, key: &HostKey, part: &EncodedHost) {
        match &part.encoded {
            Ok(_) => self.encoded.remove(key),
            Err(_) => _ = self.faulty.remove(key),
        }
        self.n_unavailable -= usize::from(part.needs_unavailable);
    }
}

/// A virtual host for Envoys.
#[derive(Clone, Debug)]
pub(crate) struct EncodedHost {
    /// The encoded host, or the errors.
    pub(crate) encoded: Result<Arc<VirtualHost>, Arc<[Diagnostic]>>,
    /// True if a route of it must fail with UNAVAILABLE.
    pub(crate) needs_unavailable: bool,
}

impl PartialEq for EncodedHost {
    /// Encoded hosts are equal only if they are the same shared value. Otherwise their bytes are compared later.
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.encoded, &other.encoded) {
            (Ok(one), Ok(other)) => Arc::ptr_eq(one, other),
            (Err(one), Err(other)) => one == other,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        is_same && self.needs_unavailable == other.needs_unavailable
    }
}
