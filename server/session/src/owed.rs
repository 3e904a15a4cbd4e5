//! The resources that a client lacks of a table.

use std::sync::Arc;

use xds_cache::{Name, Resource};

/// The resources that a client lacks of a table. Names are sorted, and none is in two of the lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed {
    /// Resources that it wants and does not hold in their present version.
    pub(crate) changed: Vec<Arc<Resource>>,
    /// Names that it may hold and that do not exist any more, or are no longer wanted by the name that brought them.
    pub(crate) removed: Vec<Name>,
    /// Names that it asked for and that do not exist; it does not know that yet.
    pub(crate) missing: Vec<Name>,
}

impl Owed {
    /// Returns `true` if nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty() && self.missing.is_empty()
    }

    /// Sorts the lists and removes doubles.
    pub(crate) fn tidy(&mut self) {
        self.changed.sort_by(|a, b| a.name().cmp(b.name()));
        self.changed.dedup_by(|a, b| a.name() == b.name());
        let Self { changed, removed, missing } = self;
        let is_sent = |name: &Name| changed.binary_search_by(|resource| resource.name().cmp(name)).is_ok();
        for names in [&mut *removed, &mut *missing] {
            names.sort();
            names.dedup();
            names.retain(|name| !is_sent(name));
        }
        removed.retain(|name| missing.binary_search(name).is_err());
    }

    /// Takes out as much as fits into `max_bytes`, at least one thing, but at most so many resources. The rest stays.
    pub(crate) fn take(&mut self, max_bytes: usize, max_resources: usize) -> Self {
        let mut budget = Budget { left: max_bytes, is_untouched: true };
        let n = self
            .changed
            .iter()
            .take(max_resources.max(1))
            .take_while(|r| budget.takes(r.n_bytes() + r.name().len()))
            .count();
        let changed = self.changed.drain(..n).collect();
        let mut names = |names: &mut Vec<Name>| {
            let n = names.iter().take_while(|name| budget.takes(name.len())).count();
            names.drain(..n).collect()
        };
        let missing = names(&mut self.missing);
        Self { changed, missing, removed: names(&mut self.removed) }
    }
}

/// How much more fits into a response; the first thing always does.
struct Budget {
    left: usize,
    is_untouched: bool,
}

impl Budget {
    fn takes(&mut self, n_bytes: usize) -> bool {
        let left = self.left.checked_sub(n_bytes + ENTRY_OVERHEAD);
        let fits = left.is_some() || self.is_untouched;
        self.left = left.unwrap_or_default();
        self.is_untouched = false;
        fits
    }
}

/// A resource costs about this many bytes in a response besides its name and value: tags, lengths, version and type URL.
const ENTRY_OVERHEAD: usize = 128;
