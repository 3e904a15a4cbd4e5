//! A budget of bytes that many share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes may be in use at once.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    n_used: AtomicUsize,
}

/// A part of a budget that is in use; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reserved {
    budget: Arc<Budget>,
    n_bytes: usize,
}

impl Budget {
    /// A budget of which nothing is in use.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, n_used: AtomicUsize::new(0) })
    }

    /// Takes `n_bytes`, unless that would pass the limit.
    pub(crate) fn reserve(self: &Arc<Self>, n_bytes: usize) -> Option<Reserved> {
        let mut reserved = self.reserve_always(0);
        reserved.grow(n_bytes).then_some(reserved)
    }

    /// Takes `n_bytes` even if that passes the limit; for what is small and bounded in number elsewhere.
    pub(crate) fn reserve_always(self: &Arc<Self>, n_bytes: usize) -> Reserved {
        self.n_used.fetch_add(n_bytes, Ordering::Relaxed);
        Reserved { budget: Arc::clone(self), n_bytes }
    }

    /// How many bytes may be in use.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

impl Reserved {
    /// Takes so many more; `false`, and nothing changes, if that would pass the limit.
    pub(crate) fn grow(&mut self, n_bytes: usize) -> bool {
        let limit = self.budget.limit;
        let more = |n_used: usize| n_used.checked_add(n_bytes).filter(|n_used| *n_used <= limit);
        let is_taken = self.budget.n_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if is_taken {
            self.n_bytes += n_bytes;
        }
        is_taken
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.n_used.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::new(10);
        let mut a = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        assert!(a.grow(4) && !a.grow(1));
        let small = budget.reserve_always(3);
        drop(a);
        assert!(budget.reserve(8).is_none());
        drop(small);
        assert!(budget.reserve(10).is_some());
        assert!(budget.reserve(usize::MAX).is_none());
    }
}
