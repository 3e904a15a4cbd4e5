//! Whether a mirror may follow what a remote shows.
//!
//! A mirror follows only what continues it, or what someone decided should replace it, which raises the epoch. Everything else is told and
//! changes nothing: a backup may have been restored on purpose, and it may have been a mistake.

use std::fmt;

use xds_store::Revision;

use crate::chain::{ChainHash, Head};

/// Where in the chain of which store a mirror is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Own<'a> {
    pub(crate) store: &'a str,
    pub(crate) head: Head,
}

/// What a remote shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shown<'a> {
    pub(crate) store: &'a str,
    pub(crate) head: Head,
    /// The revision before the first commit that is kept.
    pub(crate) base: Revision,
    /// The chain of the remote at the revision of the mirror; `None` if it is not kept.
    pub(crate) chain_at_own: Option<ChainHash>,
}

/// What a mirror does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It takes the commits after its own, if there are any.
    Follow,
    /// It is replaced by the base, and then follows.
    BeginAtBase,
    /// It stays as it is.
    Stay(Divergence),
}

/// Why a mirror does not follow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Divergence {
    /// There is no store under the prefix, but there was one.
    Gone { own: Revision },
    /// Another store is there.
    Other { own: String, shown: String },
    /// The history ends before the mirror does.
    SetBack { own: Revision, shown: Revision },
    /// The history is another one from some revision on that is not after this one.
    Forked { own: Revision, shown: Revision },
    /// The history was replaced by the one that the mirror has.
    OldEpoch { own: u64, shown: u64 },
}

/// Judges what a remote shows. `own` is `None` if the mirror is empty and followed nothing yet; `shown` is `None` if there is no store.
pub(crate) fn judge(own: Option<Own<'_>>, shown: Option<Shown<'_>>) -> Verdict {
    let (own, shown) = match (own, shown) {
        (None, _) => return Verdict::BeginAtBase,
        (Some(own), None) => return Verdict::Stay(Divergence::Gone { own: own.head.revision }),
        (Some(own), Some(shown)) => (own, shown),
    };
    let (at, end) = (own.head.revision, shown.head.revision);
    if own.store != shown.store {
        let other = Divergence::Other { own: own.store.to_owned(), shown: shown.store.to_owned() };
        return Verdict::Stay(other);
    }
    if shown.head.epoch < own.head.epoch {
        let old = Divergence::OldEpoch { own: own.head.epoch, shown: shown.head.epoch };
        return Verdict::Stay(old);
    }
    if end < at {
        return Verdict::Stay(Divergence::SetBack { own: at, shown: end });
    }
    match shown.chain_at_own {
        Some(chain) if chain == own.head.chain => Verdict::Follow,
        // The same revision never gets other contents, so a history that replaces this one begins later.
        None if shown.base > at => Verdict::BeginAtBase,
        Some(_) | None => Verdict::Stay(Divergence::Forked { own: at, shown: end }),
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { own } => {
                write!(f, "it is empty, but this server has its history up to revision {own}")
            }
            Self::Other { own, shown } => {
                write!(f, "it is store {shown}, but this server has the history of store {own}")
            }
            Self::SetBack { own, shown } => {
                write!(f, "it ends at revision {shown}, but this server has its history up to revision {own}")
            }
            Self::Forked { own, shown } => write!(
                f,
                "it is at revision {shown}, but its history differs from the one that this server has up to revision {own}"
            ),
            Self::OldEpoch { own, shown } => {
                write!(
                    f,
                    "its history (epoch {shown}) was replaced by the one that this server has (epoch {own})"
                )
            }
        }?;
        f.write_str("; see docs/replicas.md, \"When a server does not follow\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn revision(number: u64) -> Revision {
        Revision(number)
    }

    fn chain(name: &str) -> ChainHash {
        ChainHash::of_beginning(name, revision(0))
    }

    fn head(epoch: u64, number: u64, name: &str) -> Head {
        Head { epoch, revision: revision(number), chain: chain(name) }
    }

    #[test]
    fn a_mirror_follows_what_continues_it_and_nothing_else() {
        let own = |epoch, number| Some(Own { store: "s", head: head(epoch, number, "own") });
        let shown = |store, epoch, end, base, at: Option<&str>| {
            let head = head(epoch, end, "shown");
            Some(Shown { store, head, base: revision(base), chain_at_own: at.map(chain) })
        };
        let stay = Verdict::Stay;
        let forked = |own, shown| Divergence::Forked { own: revision(own), shown: revision(shown) };
        let other = Divergence::Other { own: "s".to_owned(), shown: "t".to_owned() };
        let set_back = Divergence::SetBack { own: revision(5), shown: revision(4) };
        for (own, shown, verdict) in [
            (None, None, Verdict::BeginAtBase),
            (None, shown("s", 1, 5, 0, None), Verdict::BeginAtBase),
            (own(1, 5), shown("s", 1, 5, 0, Some("own")), Verdict::Follow),
            (own(1, 5), shown("s", 1, 9, 5, Some("own")), Verdict::Follow),
            (own(1, 5), shown("s", 2, 9, 0, Some("own")), Verdict::Follow),
            (own(1, 5), shown("s", 1, 9, 6, None), Verdict::BeginAtBase),
            (own(1, 5), shown("s", 2, 9, 5, Some("other")), stay(forked(5, 9))),
            (own(1, 5), shown("s", 2, 9, 8, None), Verdict::BeginAtBase),
            (own(1, 5), None, stay(Divergence::Gone { own: revision(5) })),
            (own(1, 5), shown("t", 1, 5, 0, Some("own")), stay(other)),
            (own(1, 5), shown("s", 1, 4, 0, None), stay(set_back.clone())),
            (own(1, 5), shown("s", 2, 4, 0, None), stay(set_back)),
            (own(1, 5), shown("s", 1, 9, 0, Some("other")), stay(forked(5, 9))),
            (own(1, 5), shown("s", 2, 9, 0, Some("other")), stay(forked(5, 9))),
            (own(1, 5), shown("s", 1, 9, 5, None), stay(forked(5, 9))),
            (own(2, 5), shown("s", 1, 9, 0, Some("own")), stay(Divergence::OldEpoch { own: 2, shown: 1 })),
        ] {
            assert_eq!(judge(own, shown), verdict, "{own:?} {shown:?}");
        }
    }
}
