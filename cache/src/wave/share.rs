//! A share of all nodes.

use std::fmt;
use std::str::FromStr;

use xds_units::Percent;

use crate::time::InvalidDuration;

/// A part of all nodes, in hundredths of a percent: 1 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(pub(super) u16);

/// A text that says nothing of waves; the message says what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidWaves(pub(super) String);

impl From<InvalidDuration> for InvalidWaves {
    fn from(error: InvalidDuration) -> Self {
        Self(error.to_string())
    }
}

impl Share {
    /// All nodes.
    pub const ALL: Self = Self(10_000);

    /// Returns `true` if it is everyone.
    #[must_use]
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// The part of `whole`, rounded down.
    #[must_use]
    pub fn of(self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.0)) / usize::from(Self::ALL.0)
    }

    /// As a whole number, from 1 to 10,000.
    #[must_use]
    pub fn hundredths(self) -> u16 {
        self.0
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn as_ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", Percent::from(*self).number())
    }
}

impl FromStr for Share {
    type Err = InvalidWaves;

    /// Reads `1%`, `0.5%` or `10`.
    ///
    /// # Errors
    ///
    /// If it is no number from 0.01 to 100, or has more than two decimals.
    fn from_str(text: &str) -> Result<Self, InvalidWaves> {
        let share = text.parse::<Percent>().ok().and_then(|share| u16::try_from(share.hundredths()).ok());
        share.filter(|share| *share > 0).map(Self).ok_or_else(|| {
            InvalidWaves(format!("{text:?} is not a share: write 1%, 0.5% or 100%, at least 0.01%"))
        })
    }
}

impl From<Share> for Percent {
    fn from(share: Share) -> Self {
        Self::of_hundredths(share.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_written() {
        for (text, shown) in
            [("1%", "1%"), ("0.5%", "0.5%"), ("0.01", "0.01%"), ("100 %", "100%"), ("12.34%", "12.34%")]
        {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), shown);
        }
        for text in ["", "%", "0%", "0.001%", "100.01%", "-1%", "+1%", "1e1", "999999", ".5", "5.", "ß"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
