//! One table that a client was sent, and what it answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::{Name, TypeTable};

/// A table that the client was sent: in a response, in several if it did not fit into one, or in none if nothing had to be sent.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    /// The nonces of the first and the last response.
    pub(super) nonces: (u64, u64),
    pub(super) table: Arc<TypeTable>,
    /// The names that were sent though they did not change.
    pub(super) again: Again,
    /// Names that were not sent yet, or that the client no longer asked for when it accepted them: it may not have taken them up.
    pub(super) missed: BTreeSet<Name>,
    /// Names that came in a response which was rejected, and were not taken up since as far as is known. A rejected list is rejected
    /// whole instead.
    pub(super) rejected: BTreeSet<Name>,
    /// Names that refer to something which the client accepted, after a rejection, when this was on its way on another stream: it may reject
    /// them because of what was before.
    pub(super) untried: BTreeSet<Name>,
    /// All of it was sent.
    pub(super) is_whole: bool,
    pub(super) answer: Answer,
    /// The client accepted it when it had been sent another one already. Such an answer counts for nothing else (D7).
    pub(super) is_accepted_late: bool,
}

/// Names that were sent though they did not change, or reported as removed though they were removed before.
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    pub(super) names: BTreeSet<Name>,
    /// Everything that the table has: a client that comes back is sent all of it.
    pub(super) is_everything: bool,
}

/// The client's answer to a table that it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    None,
    /// It accepted it, but may still be using what it had before, because the new resources refer to others that it lacks. The time is
    /// when the order of sending first saw that.
    Accepted(Option<Instant>),
    /// It accepted it, and what it had before is out of use.
    Released,
    /// It rejected it, and may be using any part of it. Of a table only if that came as a complete list; of a resource always.
    Rejected,
}

/// A table that the client accepted and may not use alone yet.
#[derive(Clone, Copy)]
pub(crate) struct Accepted<'a> {
    /// Its number, for [`Ledger::release`](super::Ledger::release).
    pub(crate) position: usize,
    /// When the order of sending first saw it.
    pub(crate) at: Option<Instant>,
    /// The table that the client was sent before it.
    pub(crate) older: &'a Arc<TypeTable>,
    pub(crate) newer: &'a Arc<TypeTable>,
    /// Names that the client may not have taken up.
    pub(super) missed: &'a BTreeSet<Name>,
}

impl Accepted<'_> {
    /// Returns `true` if the client may not have taken up what was sent of this name.
    pub(crate) fn has_missed(&self, name: &Name) -> bool {
        self.missed.contains(name)
    }
}

/// How many tables are kept that the client did not accept. If a client never answers, older ones count as if they had never been sent;
/// by then the grace is mostly over.
pub(super) const MAX_LATER: usize = 16;

/// How many tables a client may be using that comes back: fewer, so that they are not merged with what it is sent then.
pub(super) const MAX_GUESSES: usize = 12;

/// How many names of what was sent again, or missed, are kept for those tables; then it is as with too many tables. Each of them is the
/// name of a resource that one of the tables has, so a client cannot make more of them than that.
pub(super) const MAX_NAMES: usize = 250_000;

/// The range of nonces of a table that needed no response.
pub(super) const NO_NONCES: (u64, u64) = (1, 0);

impl Again {
    pub(super) fn has(&self, table: &TypeTable, name: &str) -> bool {
        self.names.contains(name) || (self.is_everything && table.find(name).is_some())
    }
}

impl Sending {
    /// A table that needed no response.
    pub(super) fn unsent(table: Arc<TypeTable>, answer: Answer, missed: BTreeSet<Name>) -> Self {
        Self {
            nonces: NO_NONCES,
            table,
            again: Again::default(),
            missed,
            rejected: BTreeSet::new(),
            untried: BTreeSet::new(),
            is_whole: true,
            answer,
            is_accepted_late: false,
        }
    }

    /// How many names are kept besides the table.
    pub(super) fn n_names(&self) -> usize {
        self.again.names.len() + self.missed.len() + self.rejected.len() + self.untried.len()
    }

    /// Returns `true` if nothing that went before matters any more.
    pub(super) fn is_released(&self) -> bool {
        self.answer == Answer::Released && self.rejected.is_empty()
    }

    /// Returns `true` if the client accepted it.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.answer, Answer::Accepted(_) | Answer::Released)
    }
}
