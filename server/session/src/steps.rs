//! Counts how much is looked at, so that tests can tell how the cost of a call grows; costs nothing in the program itself.

#[cfg(any(test, fuzzing))]
use std::cell::Cell;

#[cfg(any(test, fuzzing))]
thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// One name or resource is looked at.
#[inline]
pub(crate) fn step() {
    #[cfg(any(test, fuzzing))]
    COUNTED.with(|counted| counted.set(counted.get() + 1));
}

/// An iterator that counts what it gives.
pub(crate) fn counted<I: Iterator>(iterator: I) -> impl Iterator<Item = I::Item> {
    iterator.inspect(|_| step())
}

/// How much the calls of this thread looked at since this was asked last.
#[cfg(any(test, fuzzing))]
pub(crate) fn take() -> u64 {
    COUNTED.with(Cell::take)
}
