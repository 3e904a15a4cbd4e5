//! The virtual hosts of each RouteConfiguration for Envoys, collected along with the facts: of ten thousand, one that changes costs itself.

use std::sync::Arc;

use xds_cache::OrdMap;
use xds_codec::{Diagnostic, VirtualHosts};

use super::fact::{Fact, HostKey, InGroup, Part, Value};
use super::{Dirty, Memo};

/// The virtual hosts of a RouteConfiguration. A copy shares what it has with the original.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hosts {
    /// Those that are encoded.
    encoded: VirtualHosts<HostKey>,
    /// Why others cannot be.
    faulty: OrdMap<HostKey, Arc<[Diagnostic]>>,
    /// How many have a route that must fail with UNAVAILABLE.
    n_unavailable: usize,
}

impl Hosts {
    /// All of them.
    ///
    /// # Errors
    ///
    /// Why the first one cannot be encoded that cannot.
    pub(crate) fn encoded(&self) -> Result<&VirtualHosts<HostKey>, &[Diagnostic]> {
        self.faulty.get_min().map_or(Ok(&self.encoded), |(_, faults)| Err(faults))
    }

    /// Returns `true` if a route of them must fail with UNAVAILABLE.
    pub(crate) fn needs_unavailable(&self) -> bool {
        self.n_unavailable > 0
    }

    fn is_empty(&self) -> bool {
        self.encoded.is_empty() && self.faulty.is_empty()
    }

    fn add(&mut self, key: &HostKey, part: &Part) {
        match &part.encoded {
            Ok(host) => self.encoded.insert(key.clone(), Arc::clone(host)),
            Err(faults) => _ = self.faulty.insert(key.clone(), Arc::clone(faults)),
        }
        self.n_unavailable += usize::from(part.needs_unavailable);
    }

    fn remove(&mut self, key: &HostKey, part: &Part) {
        match &part.encoded {
            Ok(_) => self.encoded.remove(key),
            Err(_) => _ = self.faulty.remove(key),
        }
        self.n_unavailable -= usize::from(part.needs_unavailable);
    }
}

impl Memo {
    /// Takes in that a virtual host is another one, comes, or goes.
    pub(super) fn collect(
        &mut self,
        table: &InGroup,
        key: &HostKey,
        (old, new): (Option<&Value>, Option<&Value>),
        dirty: &mut Dirty,
    ) {
        let fact = Fact::Hosts(table.clone());
        let mut hosts = match self.values.remove(&fact) {
            Some(Value::Hosts(hosts)) => hosts,
            _ => Arc::default(),
        };
        let collected = Arc::make_mut(&mut hosts);
        if let Some(Value::Part(old)) = old {
            collected.remove(key, old);
        }
        if let Some(Value::Part(new)) = new {
            collected.add(key, new);
        }
        self.touch(&fact, dirty);
        if !hosts.is_empty() {
            self.values.insert(self.shared(&[], fact), Value::Hosts(hosts));
        }
    }
}
