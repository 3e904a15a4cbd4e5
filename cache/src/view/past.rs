//! The tables that were served before: a client that lost its connection may still be using what they had.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::table::{Changes, TypeTable};
use crate::version::Revision;

/// The former tables of the views of the same groups and kind of client, which share one of these.
///
/// A table is remembered if names were added or removed after it, or a resource changed its references: that decides what a client must
/// not lose. So is one after which a cluster with endpoints changed, or a route configuration with virtual hosts on demand: that
/// decides what a client may still wait for. The cost is that of the parts that the next table does not share.
#[derive(Debug, Default)]
pub(super) struct Past(Mutex<VecDeque<Former>>);

/// A table that was replaced.
#[derive(Debug)]
struct Former {
    resource_type: ResourceType,
    table: Arc<TypeTable>,
    /// The revision of the view that has another one.
    ended_at: Revision,
    /// When that was; `None` without a clock, and then it never expires.
    ended: Option<Instant>,
    /// The bytes of what the next table does not have.
    n_bytes: usize,
}

impl Past {
    /// Tables were replaced in a view of this revision: by type, with what changed.
    pub(super) fn note<'a>(
        &self,
        revision: Revision,
        now: Option<Instant>,
        replaced: impl Iterator<Item = (&'a ResourceType, &'a Arc<TypeTable>, &'a Changes)>,
    ) {
        let formers = replaced.filter_map(|(resource_type, table, changes)| {
            let n_bytes = bytes_if_it_matters(table, changes)?;
            let (resource_type, table) = (resource_type.clone(), Arc::clone(table));
            Some(Former { resource_type, table, ended_at: revision, ended: now, n_bytes })
        });
        let formers: Vec<Former> = formers.collect();
        if formers.is_empty() {
            return;
        }
        let mut past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        past.extend(formers);
        // The last change is always kept, whatever it costs.
        let is_last = |former: &Former| former.ended_at == revision;
        let is_too_much = |past: &VecDeque<Former>| {
            past.len() > MAX_FORMERS || past.iter().map(|former| former.n_bytes).sum::<usize>() > MAX_BYTES
        };
        while is_too_much(&past) && past.front().is_some_and(|former| !is_last(former)) {
            past.pop_front();
        }
    }

    /// Drops tables that are too old for a client to be believed about.
    pub(super) fn forget(&self, now: Instant) {
        let mut past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        past.retain(|former| former.counts_at(now));
    }

    /// The tables of a type that were replaced up to a revision, oldest first.
    pub(super) fn of(
        &self,
        resource_type: &ResourceType,
        revision: Revision,
        now: Instant,
    ) -> Vec<Arc<TypeTable>> {
        let past = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |former: &&Former| {
            former.resource_type == *resource_type && former.ended_at <= revision && former.counts_at(now)
        };
        past.iter().filter(counts).map(|former| Arc::clone(&former.table)).collect()
    }
}

impl Former {
    fn counts_at(&self, now: Instant) -> bool {
        self.ended.is_none_or(|ended| now.saturating_duration_since(ended) < REMEMBERED_FOR)
    }
}

/// The bytes that only `table` has; `None` if since then only contents changed that make no difference to a client that comes back.
fn bytes_if_it_matters(table: &TypeTable, changes: &Changes) -> Option<usize> {
    let mut matters = !changes.removed.is_empty();
    let mut n_bytes = 0;
    for new in &changes.changed {
        let old = table.find(new.name());
        matters |= old.is_none_or(|old| old.references() != new.references()) || is_waited_for(new);
        n_bytes += old.map_or(0, |old| old.n_bytes());
    }
    let removed = changes.removed.iter().filter_map(|name| table.find(name));
    matters.then(|| n_bytes + removed.map(|resource| resource.n_bytes()).sum::<usize>())
}

/// Returns `true` if an Envoy that gets another version of a resource waits once more for what that refers to.
fn is_waited_for(resource: &Resource) -> bool {
    let waited_for = [ResourceType::ClusterLoadAssignment, ResourceType::VirtualHost];
    waited_for.iter().any(|of| resource.references().of_type(of).next().is_some())
}

/// How long a client may be away and is still believed: as long as the server would wait for a silent client.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// How many tables are remembered.
const MAX_FORMERS: usize = 64;

/// How many bytes, besides those of the last change.
const MAX_BYTES: usize = 1 << 20;
