//! Versions, which identify the content of a resource or type, and revisions, which say when it was published.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::work::{self, Work};

/// Content hash of one resource, or of all resources of one type in a view: 16 lower-case hexadecimal digits.
///
/// Equal content gives equal versions, on every replica and after every restart. Versions are compared for equality
/// only; they have no order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = VersionHasher::new();
        hasher.update(content);
        hasher.finish()
    }

    /// The hash itself.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// The version of a content that never changes, computed on first use.
#[derive(Debug, Default)]
pub(crate) struct LazyVersion(AtomicU64);

impl LazyVersion {
    /// The version. Several threads may compute it at the same time, with the same result.
    pub(crate) fn get_or_compute(&self, compute: impl FnOnce() -> Version) -> Version {
        // If the hash is 0, it is computed each time.
        match self.0.load(Ordering::Relaxed) {
            0 => {
                let version = compute();
                self.0.store(version.bits(), Ordering::Relaxed);
                version
            }
            bits => Version(bits),
        }
    }
}

impl Clone for LazyVersion {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = ForeignVersion;

    /// Reads what [`Display`](fmt::Display) wrote.
    ///
    /// # Errors
    ///
    /// [`ForeignVersion`] for everything else: such a text was not written by this program.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let canonical =
            text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !canonical {
            return Err(ForeignVersion);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| ForeignVersion)
    }
}

/// A version text that is not a content version of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a content version of this server")]
pub struct ForeignVersion;

/// Makes a [`Version`] of content that comes in parts; each part is delimited, so `ab`,`c` differs from `a`,`bc`.
#[derive(Debug)]
pub struct VersionHasher(blake3::Hasher);

impl VersionHasher {
    /// A hasher of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    /// Adds one part.
    pub fn update(&mut self, part: &[u8]) {
        work::count(Work::Bytes, part.len());
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// The version of all parts so far.
    #[must_use]
    pub fn finish(&self) -> Version {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        Version(u64::from_be_bytes(first))
    }

    /// The first 128 bits of the hash of all parts so far.
    pub fn finish_wide(&self) -> u128 {
        let mut first = [0; 16];
        self.0.finalize_xof().fill(&mut first);
        u128::from_be_bytes(first)
    }
}

impl Default for VersionHasher {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts accepted changes, from 1; 0 stands for "nothing was ever accepted". Larger is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_back_what_it_prints_and_nothing_else() {
        let version = Version::of(b"content");
        assert_eq!(version.to_string().parse(), Ok(version));
        for foreign in ["", "1", "v1", "0123456789ABCDEF", "0123456789abcdef0", "+123456789abcdef"] {
            assert_eq!(foreign.parse::<Version>(), Err(ForeignVersion), "{foreign}");
        }
    }

    #[test]
    fn parts_are_delimited() {
        let hash = |parts: &[&str]| {
            let mut hasher = VersionHasher::new();
            parts.iter().for_each(|part| hasher.update(part.as_bytes()));
            hasher.finish()
        };
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&[]), hash(&[""]));
    }
}
