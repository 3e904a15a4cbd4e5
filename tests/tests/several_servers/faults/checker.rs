//! Whether a history of one register is linearizable.
//!
//! The search is the one of Wing and Gong, with the memory of Lowe: it looks for an order of the operations in which each takes effect
//! between its call and its return, and each finds the value that it says it found. It shares no code with the server.

use std::collections::HashSet;

/// What an operation did to the register. Each write has a value of its own, so a value tells which write it is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Sets the value whatever it is.
    Write(u64),
    /// Sets the value `new` if it is `expected`.
    Exchange { expected: u64, new: u64 },
    /// Finds this value.
    Read(u64),
}

/// An operation, with the times of its call and its return on one clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Operation {
    pub(crate) called: u64,
    /// `None` if its outcome is unknown: it takes effect at any time after the call, or never.
    pub(crate) returned: Option<u64>,
    pub(crate) kind: Kind,
}

/// A point of the search: which operations have taken effect, and the value then.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Point {
    /// All certain operations before this one have taken effect.
    first: usize,
    /// So have these certain ones after it, in order.
    later: Vec<usize>,
    /// And these of unknown outcome, in order.
    unknown: Vec<usize>,
    value: Option<u64>,
}

/// Looks for an order of the operations on a register that is empty before all of them.
///
/// # Errors
///
/// If there is none: the operations that could not be placed where the search got furthest.
pub(crate) fn check(operations: &[Operation]) -> Result<(), String> {
    let (mut certain, mut unknown): (Vec<_>, Vec<_>) =
        operations.iter().copied().partition(|operation| operation.returned.is_some());
    certain.sort_by_key(|operation| operation.called);
    unknown.sort_by_key(|operation| operation.called);
    let start = Point { first: 0, later: Vec::new(), unknown: Vec::new(), value: None };
    let (mut seen, mut stack, mut furthest) = (HashSet::new(), vec![start.clone()], start);
    while let Some(point) = stack.pop() {
        if point.first == certain.len() {
            return Ok(());
        }
        if (point.first, point.later.len()) > (furthest.first, furthest.later.len()) {
            furthest = point.clone();
        }
        for next in successors(&point, &certain, &unknown) {
            if seen.insert(next.clone()) {
                stack.push(next);
            }
        }
    }
    let stuck = open(&furthest, &certain).map(|at| format!("{:?}", certain[at])).collect::<Vec<_>>();
    Err(format!("at value {:?} none can be next of {}", furthest.value, stuck.join(", ")))
}

/// The points that one more operation leads to.
fn successors(point: &Point, certain: &[Operation], unknown: &[Operation]) -> Vec<Point> {
    let mut next = Vec::new();
    for at in open(point, certain) {
        let Some(value) = apply(certain[at].kind, point.value) else { continue };
        let after = with_certain(point, at, value);
        // A read that can be next changes nothing, so nothing is lost by taking it first.
        if matches!(certain[at].kind, Kind::Read(_)) {
            return vec![after];
        }
        next.push(after);
    }
    let limit = limit(point, certain);
    for (at, operation) in unknown.iter().enumerate().take_while(|(_, one)| one.called <= limit) {
        if let Err(place) = point.unknown.binary_search(&at)
            && let Some(value) = apply(operation.kind, point.value)
        {
            let mut after = point.clone();
            after.unknown.insert(place, at);
            after.value = value;
            next.push(after);
        }
    }
    next
}

/// The certain operations that may be next: those that were called before any other one that is left returned.
fn open(point: &Point, certain: &[Operation]) -> impl Iterator<Item = usize> {
    let limit = limit(point, certain);
    let left = (point.first..certain.len()).take_while(move |&at| certain[at].called <= limit);
    left.filter(|at| point.later.binary_search(at).is_err())
}

/// The earliest return of a certain operation that is left.
fn limit(point: &Point, certain: &[Operation]) -> u64 {
    let mut limit = u64::MAX;
    for (at, operation) in certain.iter().enumerate().skip(point.first) {
        if operation.called > limit {
            break;
        }
        if point.later.binary_search(&at).is_err() {
            limit = limit.min(operation.returned.unwrap_or(u64::MAX));
        }
    }
    limit
}

fn with_certain(point: &Point, at: usize, value: Option<u64>) -> Point {
    let mut after = Point { value, ..point.clone() };
    if let Err(place) = after.later.binary_search(&at) {
        after.later.insert(place, at);
    }
    while after.later.first() == Some(&after.first) {
        after.later.remove(0);
        after.first += 1;
    }
    after
}

/// The value afterwards; `None` if the operation cannot have found this value.
fn apply(kind: Kind, value: Option<u64>) -> Option<Option<u64>> {
    match kind {
        Kind::Write(new) => Some(Some(new)),
        Kind::Exchange { expected, new } => (value == Some(expected)).then_some(Some(new)),
        Kind::Read(found) => (value == Some(found)).then_some(value),
    }
}

#[cfg(test)]
mod tests {
    use xds_tests::random::Random;

    use super::*;

    fn sure(called: u64, returned: u64, kind: Kind) -> Operation {
        Operation { called, returned: Some(returned), kind }
    }

    fn unsure(called: u64, kind: Kind) -> Operation {
        Operation { called, returned: None, kind }
    }

    fn exchange(expected: u64, new: u64) -> Kind {
        Kind::Exchange { expected, new }
    }

    #[test]
    fn good_histories_pass() {
        let both = [sure(0, 9, Kind::Write(1)), sure(1, 8, Kind::Write(2)), sure(10, 11, Kind::Read(1))];
        let during = [sure(0, 1, Kind::Write(1)), sure(2, 9, Kind::Write(2)), sure(3, 4, Kind::Read(1))];
        let chain = [sure(0, 1, Kind::Write(1)), sure(2, 5, exchange(1, 2)), sure(3, 6, exchange(2, 3))];
        let late = [
            sure(0, 1, Kind::Write(1)),
            unsure(2, Kind::Write(2)),
            sure(3, 4, Kind::Read(1)),
            sure(50, 51, Kind::Read(2)),
        ];
        let never = [sure(0, 1, Kind::Write(1)), unsure(2, exchange(1, 2)), sure(9, 10, exchange(1, 3))];
        for history in [&both[..], &during, &chain, &late, &never, &[]] {
            assert_eq!(check(history), Ok(()), "{history:?}");
        }
    }

    #[test]
    fn bad_histories_fail() {
        let lost = [sure(0, 1, Kind::Write(1)), sure(2, 3, Kind::Write(2)), sure(4, 5, Kind::Read(1))];
        let back = [
            sure(0, 1, Kind::Write(1)),
            sure(2, 9, Kind::Write(2)),
            sure(3, 4, Kind::Read(2)),
            sure(5, 6, Kind::Read(1)),
        ];
        let both_win = [sure(0, 1, Kind::Write(1)), sure(2, 5, exchange(1, 2)), sure(2, 5, exchange(1, 3))];
        let early = [sure(0, 1, Kind::Write(1)), sure(2, 3, Kind::Read(2)), unsure(4, Kind::Write(2))];
        let twice = [
            sure(0, 1, Kind::Write(1)),
            unsure(2, Kind::Write(2)),
            sure(3, 4, Kind::Read(2)),
            sure(5, 6, Kind::Write(3)),
            sure(7, 8, Kind::Read(2)),
        ];
        for history in [&lost[..], &back, &both_win, &early, &twice] {
            assert!(check(history).is_err(), "{history:?}");
        }
    }

    /// Histories of a register that works pass, and fail once a read is given a value that was overwritten before it.
    #[test]
    fn a_stale_read_is_found_in_long_histories() {
        let mut random = Random::new(7);
        for _ in 0..20 {
            let (mut history, mut value) = (Vec::new(), 0);
            for at in 1..400_u64 {
                let around = |random: &mut Random| {
                    (at * 10 - random.within(0..25).min(at), at * 10 + random.within(0..25))
                };
                let (called, returned) = around(&mut random);
                let kind = match random.within(0..3) {
                    0 if value != 0 => Kind::Read(value),
                    1 if value != 0 => exchange(value, at),
                    _ => Kind::Write(at),
                };
                value = if matches!(kind, Kind::Read(_)) { value } else { at };
                let is_lost = random.within(0..20) == 0 && !matches!(kind, Kind::Read(_));
                history.push(Operation { called, returned: (!is_lost).then_some(returned), kind });
            }
            assert_eq!(check(&history), Ok(()));
            history.push(sure(4_100, 4_101, Kind::Write(1_000)));
            history.push(sure(4_200, 4_201, Kind::Write(2_000)));
            assert_eq!(check(&history), Ok(()));
            history.push(sure(4_300, 4_301, Kind::Read(1_000)));
            assert!(check(&history).is_err());
        }
    }
}
