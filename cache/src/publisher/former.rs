//! The groups that were published before: a view that nobody followed then is made as if somebody had.
//!
//! A client whose server ended comes to another one, which may have had no client of its groups for hours. What the client may still be
//! using was served by the first server a moment ago, and this one published the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::layer::{Groups, changed_bytes};
use crate::version::Revision;
use crate::view::REMEMBERED_FOR;
use crate::wave::Behind;

/// Publications that were replaced, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Formers(VecDeque<Former>);

/// A publication that was replaced.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) revision: Revision,
    pub(super) groups: Groups,
    pub(super) behind: Option<Behind>,
    /// When it was replaced.
    pub(super) ended: Instant,
    /// The bytes of the resources that the next one does not have.
    n_bytes: usize,
}

impl Former {
    /// The publication of `revision`, which is replaced by `next`.
    pub(super) fn new(
        revision: Revision,
        (groups, behind): (Groups, Option<Behind>),
        next: &Groups,
        ended: Instant,
    ) -> Self {
        let n_bytes = changed_bytes(&groups, next);
        Self { revision, groups, behind, ended, n_bytes }
    }
}

impl Formers {
    pub(super) fn note(&mut self, former: Former) {
        self.forget(former.ended);
        self.0.push_back(former);
        // The last change is always kept, whatever it costs.
        while self.0.len() > MAX_FORMERS
            || (self.0.len() > 1 && self.0.iter().map(|former| former.n_bytes).sum::<usize>() > MAX_BYTES)
        {
            self.0.pop_front();
        }
    }

    /// Drops those that are too old for a client to be believed about.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|former| age(former, now) < REMEMBERED_FOR);
    }

    /// Those that count at a time, the oldest first.
    pub(super) fn at(&self, now: Instant) -> impl DoubleEndedIterator<Item = &Former> {
        self.0.iter().filter(move |former| age(former, now) < REMEMBERED_FOR)
    }
}

fn age(former: &Former, now: Instant) -> Duration {
    now.saturating_duration_since(former.ended)
}

/// How many publications are remembered: a view of each may have to be made at once.
const MAX_FORMERS: usize = 16;

/// How many bytes, besides those of the last change.
const MAX_BYTES: usize = 1 << 20;
