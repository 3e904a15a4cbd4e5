//! The files that a server of a shared store watches: when they become those of all servers.
//!
//! Servers pull a repository at different times. So a set that differs from the store's is newer or older, and the directory does not say
//! which. A server proposes its set if its files were those of the store before they changed, or if no server has ever had that set. So
//! each set makes one revision, whoever has it first, and a slow server takes nothing back.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use xds_codec::Diagnostic;

use crate::accepted::ContentSum;
use crate::model::FileLoad;

/// How a server's files stand to those of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// They say the same.
    Same,
    /// They were those of the store, and have changed since.
    Newer,
    /// No server has had them before, as far as the store remembers.
    Unheard,
    /// They are over.
    Older,
}

/// Compares sets by their hashes: a server's `own`, the one that its files had when it last `settled`, and that of the `store`; `None` if
/// there is none. `is_over` returns `true` for a set that the store had before, or that was read before the store got its present one.
pub(crate) fn standing(
    own: &str,
    settled: Option<&str>,
    store: Option<&str>,
    is_over: impl FnOnce(&str) -> bool,
) -> Standing {
    if store == Some(own) {
        Standing::Same
    } else if settled == store {
        Standing::Newer
    } else if is_over(own) {
        Standing::Older
    } else {
        Standing::Unheard
    }
}

/// What is known of the files that a server watches.
#[derive(Clone, Debug)]
pub struct OwnFiles {
    /// The hash of what they say.
    pub set: String,
    /// How they stand to those that all servers serve.
    pub state: OwnState,
    /// Since when.
    pub since: SystemTime,
    /// Why they are not served, if somebody should do something about it.
    pub reason: Option<String>,
    /// Their errors, at most [`MAX_ERRORS`](Self::MAX_ERRORS).
    pub errors: Vec<Diagnostic>,
}

impl OwnFiles {
    /// How many errors are shown.
    pub const MAX_ERRORS: usize = 100;

    /// The problem that they are not served for long; `None` if there is none.
    pub(crate) fn problem(&self, is_relay: bool) -> Option<String> {
        let is_long = self.since.elapsed().is_ok_and(|elapsed| elapsed >= LONG);
        if self.state == OwnState::Applied || !is_long {
            return None;
        }
        let reason = self.reason.clone().or_else(|| self.errors.first().map(ToString::to_string));
        let what = match is_relay {
            true => "what the relayed server sends is not served",
            false => "the files that this server watches are not those that all servers serve",
        };
        Some(format!("{what} ({}): {}", self.state.as_str(), reason.unwrap_or_default()))
    }
}

/// How the files that a server watches stand to those that all servers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnState {
    /// They are served.
    Applied,
    /// They are newer, and not served yet.
    Ahead,
    /// They were served before.
    Behind,
    /// They are newer, and refused.
    Differs,
    /// They have errors.
    Broken,
}

impl OwnState {
    /// The word for it in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Ahead => "ahead",
            Self::Behind => "behind",
            Self::Differs => "differs",
            Self::Broken => "broken",
        }
    }
}

/// The files that a server watches, as they were read last.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) load: Arc<FileLoad>,
    /// The sum of hashes over what they say.
    pub(crate) sum: ContentSum,
    /// When they were read.
    pub(crate) read_at: Instant,
}

/// What a server remembers of its files.
#[derive(Default)]
pub(crate) struct Memory {
    /// The set that they were when they last settled: it was in force, or over.
    pub(crate) settled: Option<String>,
    pub(crate) save: Option<SaveSet>,
    /// The set of the store, and since when it has it, as far as this server knows.
    pub(crate) store: Option<(Option<String>, Instant)>,
    pub(crate) shown: Option<OwnFiles>,
}

/// How long files may differ before that is a problem: pulls take minutes.
const LONG: Duration = Duration::from_secs(600);

/// Keeps the hash of the set that the files had when they last settled, beyond a restart.
pub type SaveSet = Box<dyn Fn(&str) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::Standing::{Newer, Older, Same, Unheard};
    use super::*;

    #[test]
    fn a_set_is_proposed_if_it_follows_that_of_the_store_or_is_unheard_of() {
        // The server's own, the one before, that of the store; all that were applied.
        type Row = (&'static str, Option<&'static str>, Option<&'static str>, &'static str, Standing);
        let table: [Row; 12] = [
            ("a", None, None, "", Newer),
            ("a", None, Some("a"), "a", Same),
            ("b", Some("a"), Some("a"), "a", Newer),
            // Another server was faster.
            ("b", Some("a"), Some("b"), "ab", Same),
            // It comes late, with what is over.
            ("a", Some("a"), Some("b"), "ab", Older),
            ("b", Some("a"), Some("c"), "abc", Older),
            // It left one out.
            ("c", Some("a"), Some("b"), "ab", Unheard),
            // A revert of what it had itself.
            ("a", Some("b"), Some("b"), "ab", Newer),
            // A start without memory.
            ("b", None, Some("a"), "ab", Older),
            ("c", None, Some("a"), "ab", Unheard),
            // The store was emptied.
            ("a", Some("a"), None, "", Unheard),
            ("a", Some("b"), None, "ab", Older),
        ];
        for (own, settled, store, applied, expected) in table {
            let found = standing(own, settled, store, |set| applied.contains(set));
            assert_eq!(found, expected, "{own} {settled:?} {store:?} {applied}");
        }
    }

    #[derive(Clone, Copy, Default)]
    struct Server {
        own: Option<usize>,
        read_at: usize,
        settled: Option<usize>,
    }

    /// The store, and the sets that it had.
    #[derive(Default)]
    struct Store {
        sets: Vec<usize>,
        since: usize,
    }

    impl Store {
        /// One look of a server at its files; `waits` is true if it has not waited long enough for others.
        fn look(&mut self, server: &mut Server, now: usize, waits: bool) {
            let Some(own) = server.own else { return };
            let text = |set: Option<usize>| set.map(|set| set.to_string());
            let (settled, store) = (text(server.settled), text(self.sets.last().copied()));
            let is_over = |_: &str| self.sets.contains(&own) || server.read_at < self.since;
            match standing(&own.to_string(), settled.as_deref(), store.as_deref(), is_over) {
                Same | Older => server.settled = Some(own),
                Unheard if waits => {}
                Newer | Unheard => {
                    self.sets.push(own);
                    (self.since, server.settled) = (now, Some(own));
                }
            }
        }
    }

    /// Three servers pull a repository at different times, and look at what they have whenever it is their turn.
    #[test]
    fn each_set_makes_one_revision_and_nobody_takes_one_back() {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
        println!("seed {seed}");
        let mut random = seed;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % end
        };
        for _ in 0..2_000 {
            // Each state of the repository is new, so its number is its age.
            let (mut newest, mut store, mut servers) = (0, Store::default(), [Server::default(); 3]);
            for now in 0..60 {
                let server = &mut servers[below(3)];
                match below(4) {
                    0 => newest += 1,
                    1 => (server.own, server.read_at) = (Some(newest), now),
                    _ => store.look(server, now, below(3) > 0),
                }
                assert!(store.sets.is_sorted_by(|old, new| old < new), "{:?}", store.sets);
            }
            for now in 60..66 {
                let server = &mut servers[now % 3];
                if now < 63 {
                    (server.own, server.read_at) = (Some(newest), now);
                }
                store.look(server, now, false);
            }
            assert_eq!(store.sets.last(), Some(&newest), "{:?}", store.sets);
        }
    }
}
