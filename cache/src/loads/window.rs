//! Sums over time: a row of cells, each the sum of the reports within one bucket.

use std::collections::VecDeque;

/// A point in time, in milliseconds since 1970.
pub(super) type Millis = u64;

/// When something happened: it began after `from` and had ended at `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: Millis,
    pub(super) until: Millis,
}

/// The cells of one series, the oldest first; there is none for a bucket without a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Window<T> {
    cells: VecDeque<Cell<T>>,
}

#[derive(Clone, Debug)]
struct Cell<T> {
    period: Period,
    value: T,
}

impl<T: Default> Window<T> {
    /// Adds to the cell of `period.until`. Two reports whose ends lie in one bucket share a cell, whose period covers both.
    ///
    /// A cell that is more than a bucket ahead of `period` comes from a clock that was wrong, and is dropped.
    pub(super) fn add(&mut self, period: Period, bucket: Millis, add: impl FnOnce(&mut T)) {
        let index = period.until / bucket;
        while self.cells.back().is_some_and(|last| last.period.until / bucket > index + 1) {
            self.cells.pop_back();
        }
        let is_shared = self.cells.back().is_some_and(|last| last.period.until / bucket >= index);
        let last = if is_shared { self.cells.pop_back() } else { None };
        let mut cell = last.unwrap_or(Cell { period, value: T::default() });
        cell.period.from = cell.period.from.min(period.from);
        cell.period.until = cell.period.until.max(period.until);
        add(&mut cell.value);
        if self.cells.capacity() == 0 {
            // Most made-up series never have a second one.
            self.cells.reserve_exact(1);
        }
        self.cells.push_back(cell);
    }

    /// Removes everything that ended before `horizon`.
    pub(super) fn forget_before(&mut self, horizon: Millis) {
        while self.cells.front().is_some_and(|first| first.period.until < horizon) {
            self.cells.pop_front();
        }
        if self.cells.is_empty() {
            self.cells = VecDeque::new();
        }
    }

    /// The sums that lie within `period` as a whole.
    pub(super) fn within(&self, period: Period) -> impl Iterator<Item = &T> {
        let lies_within =
            move |cell: &&Cell<T>| cell.period.from >= period.from && cell.period.until <= period.until;
        self.cells.iter().filter(lies_within).map(|cell| &cell.value)
    }

    /// All sums, each with the end of its period.
    pub(super) fn all(&self) -> impl Iterator<Item = (Millis, &T)> {
        self.cells.iter().map(|cell| (cell.period.until, &cell.value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(window: &Window<u64>, from: Millis, until: Millis) -> u64 {
        window.within(Period { from, until }).sum()
    }

    fn window(reports: &[(Millis, Millis, u64)]) -> Window<u64> {
        let mut window = Window::default();
        for &(from, until, n) in reports {
            window.add(Period { from, until }, 10, |sum: &mut u64| *sum += n);
        }
        window
    }

    #[test]
    fn only_what_lies_within_as_a_whole_counts() {
        let window = window(&[(0, 10, 1), (10, 20, 2), (20, 30, 4)]);
        assert_eq!(sum(&window, 0, 30), 7);
        assert_eq!(sum(&window, 10, 30), 6);
        assert_eq!(sum(&window, 11, 30), 4, "a report that began before may tell of what was before");
        assert_eq!(sum(&window, 0, 29), 3);
    }

    #[test]
    fn many_reports_in_a_bucket_are_one_cell() {
        let mut window = Window::default();
        for until in 100..200 {
            window.add(Period { from: until - 1, until }, 10, |sum: &mut u64| *sum += 1);
        }
        assert_eq!((window.len(), sum(&window, 99, 199)), (10, 100));
        window.forget_before(150);
        assert_eq!((window.len(), sum(&window, 99, 199)), (5, 50));
        window.forget_before(1000);
        assert!(window.is_empty());
    }

    #[test]
    fn a_clock_that_goes_back_a_little_loses_nothing_and_one_that_was_far_ahead_its_future() {
        let back_a_little = window(&[(0, 10, 1), (0, 9, 2)]);
        assert_eq!((back_a_little.len(), sum(&back_a_little, 0, 10)), (1, 3));
        let far_ahead = window(&[(0, 10, 1), (9_000, 9_010, 2), (10, 20, 4)]);
        assert_eq!(sum(&far_ahead, 0, 10_000), 5);
    }
}
