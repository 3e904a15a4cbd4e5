//! Counts work, so that tests can see how the cost of a publication grows. It costs nothing in the program itself.

#[cfg(test)]
use std::cell::Cell;

/// The kinds of work that are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A view that is compiled.
    View,
    /// A resource that is put into a table, or looked up to be compared.
    Resource,
    /// A byte that is hashed.
    Bytes,
    /// A stream that is looked at.
    Stream,
    /// A byte that is copied to put a message together.
    Copied,
    /// A reference that is judged.
    Reference,
}

#[cfg(test)]
thread_local! {
    static COUNTED: [Cell<usize>; 6] = const { [const { Cell::new(0) }; 6] };
}

/// `n` of these were done.
#[inline]
#[cfg_attr(not(test), expect(unused_variables, reason = "only tests count"))]
pub(crate) fn count(work: Work, n: usize) {
    #[cfg(test)]
    COUNTED.with(|counted| counted[work as usize].set(counted[work as usize].get() + n));
}

/// How many views, resources, bytes, streams, copied bytes and references this thread counted since this was asked last.
#[cfg(test)]
pub(crate) fn take() -> [usize; 6] {
    COUNTED.with(|counted| [0, 1, 2, 3, 4, 5].map(|work: usize| counted[work].take()))
}
