//! What goes over the wire, in short.

use std::collections::{BTreeMap, BTreeSet};

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// The later the greater.
    pub(crate) number: u64,
    pub(crate) kind: usize,
    pub(crate) is_wildcard: bool,
    /// State of the World: everything that is asked for by name.
    pub(crate) names: BTreeSet<String>,
    /// Incremental: what is added and taken away.
    pub(crate) add: BTreeSet<String>,
    pub(crate) remove: BTreeSet<String>,
    /// Which of the streams of its kind it goes to, where there are several.
    pub(crate) stream: (u64, String),
    /// That stream ends.
    pub(crate) is_close: bool,
    /// Incremental: what it has from an earlier connection.
    pub(crate) has: BTreeMap<String, String>,
    /// The response that this answers, and whether it rejects it.
    pub(crate) answer: Option<(u64, bool)>,
}

impl Ask {
    /// The first request for everything: an empty list.
    pub(crate) fn wildcard(kind: usize) -> Self {
        Self { kind, is_wildcard: true, ..Self::default() }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) kind: usize,
    /// Whose stream it came on, where each cluster has one of its own; else 0.
    pub(crate) owner: u64,
    pub(crate) nonce: u64,
    pub(crate) resources: BTreeMap<String, String>,
    pub(crate) removed: Vec<String>,
    /// The other names of what is there.
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    /// Virtual hosts of which it is said that there is nothing.
    pub(crate) unpopulated: BTreeSet<String>,
}

/// What the client thinks of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) is_nack: bool,
    /// What of a rejected response is taken up nevertheless, one bit for each kind of name.
    pub(crate) parts: u8,
}

impl Verdict {
    /// The part of removals.
    pub(crate) const REMOVALS: u8 = 16;

    /// The part of names like this one.
    pub(crate) fn part(name: &str) -> u8 {
        1 << (name.bytes().last().unwrap_or_default() % 4)
    }

    pub(crate) fn takes(&self, name: &str) -> bool {
        !self.is_nack || self.parts & Self::part(name) != 0
    }

    pub(crate) fn takes_removals(&self) -> bool {
        !self.is_nack || self.parts & Self::REMOVALS != 0
    }
}
