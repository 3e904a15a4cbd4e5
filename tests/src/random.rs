//! Random choices that can be made again: the seed is printed, and taken from `XDS_TESTS_SEED` if that is set.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use crate::splitmix;

/// A source of numbers that only has to be different each time.
#[derive(Clone, Debug)]
pub struct Random(splitmix::Random);

impl Random {
    /// Takes the seed from `XDS_TESTS_SEED`, else from the clock, and prints it.
    ///
    /// # Errors
    ///
    /// If `XDS_TESTS_SEED` is no number.
    pub fn from_env() -> Result<Self> {
        Self::from_env_or(u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos()))
    }

    /// Takes the seed from `XDS_TESTS_SEED`, else this one, and prints it.
    ///
    /// # Errors
    ///
    /// If `XDS_TESTS_SEED` is no number.
    #[expect(clippy::print_stdout, reason = "whoever reads the failure needs the seed")]
    pub fn from_env_or(seed: u64) -> Result<Self> {
        let seed = match std::env::var("XDS_TESTS_SEED") {
            Ok(seed) => seed.parse().context("XDS_TESTS_SEED")?,
            Err(_) => seed,
        };
        println!("XDS_TESTS_SEED={seed}");
        Ok(Self::new(seed))
    }

    /// Starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(splitmix::Random(seed))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number within a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start).max(1)
    }

    /// Bytes, any of 256.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.0.below(256).to_le_bytes()[0]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_again_and_ranges_are_kept() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        assert_eq!(a.bytes(100), b.bytes(100));
        assert!((0..1000).all(|_| (3..9).contains(&a.within(3..9))));
    }
}
