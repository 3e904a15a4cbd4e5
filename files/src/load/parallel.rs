//! Work on several files at a time. The result of each depends on no other.

use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How much is done at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// On how many threads, that of the caller included.
    pub(super) n_threads: usize,
    /// How large the items are together that are worked on at one time. One that is larger has its time alone.
    pub(super) n_bytes: usize,
}

impl Bounds {
    /// A thread for each processor, and the default limit of one file's bytes: parsing a file takes twenty times its size in memory, and
    /// several files must not take more than one.
    pub(super) fn of_machine() -> Self {
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        Self { n_threads, n_bytes: 10 << 20 }
    }
}

/// The results of `work` for each item, in the order of the items. If it panics, so does this.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    bounds: Bounds,
    size_of: impl Fn(&T) -> usize + Sync,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let turns =
        Turns { items, size_of, n_bytes: bounds.n_bytes, at_work: Mutex::default(), done: Condvar::new() };
    let run = || {
        let mut made = Vec::new();
        while let Some(turn) = turns.next() {
            made.push((turn.index, work(turn.item)));
        }
        made
    };
    let mut made = thread::scope(|scope| {
        let new = |_| thread::Builder::new().name("read-files".to_owned()).spawn_scoped(scope, run).ok();
        // If no thread can be started, the others do its work.
        let threads: Vec<_> = (1..bounds.n_threads.min(items.len())).filter_map(new).collect();
        let mut made = run();
        for thread in threads {
            made.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        made
    });
    made.sort_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, result)| result).collect()
}

/// Whose turn it is.
struct Turns<'i, T, S> {
    items: &'i [T],
    size_of: S,
    n_bytes: usize,
    at_work: Mutex<AtWork>,
    /// Told when there is room again.
    done: Condvar,
}

#[derive(Default)]
struct AtWork {
    /// The index of the next item.
    next: usize,
    /// How large those are together that are worked on.
    n_bytes: usize,
}

/// The right to work on one item, until it is dropped.
struct Turn<'t, 'i, T, S> {
    turns: &'t Turns<'i, T, S>,
    index: usize,
    item: &'i T,
    n_bytes: usize,
}

impl<'i, T, S: Fn(&T) -> usize> Turns<'i, T, S> {
    /// The next item, once there is room for it; `None` after the last.
    fn next(&self) -> Option<Turn<'_, 'i, T, S>> {
        let mut at_work = self.at_work();
        loop {
            let index = at_work.next;
            let item = self.items.get(index)?;
            let n_bytes = (self.size_of)(item);
            if at_work.n_bytes == 0 || at_work.n_bytes.saturating_add(n_bytes) <= self.n_bytes {
                at_work.next += 1;
                at_work.n_bytes += n_bytes;
                return Some(Turn { turns: self, index, item, n_bytes });
            }
            at_work = self.done.wait(at_work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T, S> Turns<'_, T, S> {
    fn at_work(&self) -> MutexGuard<'_, AtWork> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, S> Drop for Turn<'_, '_, T, S> {
    fn drop(&mut self) {
        self.turns.at_work().n_bytes -= self.n_bytes;
        self.turns.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const MANY: Bounds = Bounds { n_threads: 8, n_bytes: 100 };

    #[test]
    fn results_are_in_the_order_of_the_items_on_any_number_of_threads() {
        let items: Vec<usize> = (0..1_000).collect();
        let expected: Vec<usize> = items.iter().map(|item| item * 2).collect();
        for n_threads in [0, 1, 2, 8] {
            assert_eq!(
                map(&items, Bounds { n_threads, ..MANY }, |item| item % 150, |item| item * 2),
                expected
            );
        }
        assert!(map(&[0; 0], MANY, |item| *item, |item| *item).is_empty());
    }

    #[test]
    fn items_at_work_are_together_no_larger_than_allowed_or_one_alone() {
        let (at_work, most, n_alone) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let items: Vec<usize> = (0..500).map(|n| if n % 50 == 0 { 1_000 } else { n % 40 + 1 }).collect();
        map(
            &items,
            MANY,
            |item| *item,
            |item| {
                let now = at_work.fetch_add(*item, SeqCst) + *item;
                thread::yield_now();
                if *item == 1_000 {
                    assert_eq!(at_work.load(SeqCst), 1_000);
                    n_alone.fetch_add(1, SeqCst);
                } else {
                    most.fetch_max(now, SeqCst);
                }
                at_work.fetch_sub(*item, SeqCst);
            },
        );
        assert_eq!(n_alone.into_inner(), 10);
        assert!(most.into_inner() <= MANY.n_bytes);
    }

    #[test]
    #[should_panic(expected = "the seventh")]
    fn a_panic_of_one_ends_all() {
        let items: Vec<usize> = (0..20).collect();
        map(&items, MANY, |_| 90, |item| assert_ne!(*item, 7, "the seventh"));
    }
}
