//! Shares: percentages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A share in hundredths of a percent, from 0 to 10,000; written as a number of percent, such as `12.5`, or as `12.5%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u32);

/// A text that is no share; says what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a share: write 1%, 0.5% or 100%, with at most two decimals")]
pub struct InvalidPercent(String);

impl Percent {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(10_000);

    /// So many whole percent; more than 100 are 100.
    #[must_use]
    pub fn whole(percent: u32) -> Self {
        Self(percent.min(100) * 100)
    }

    /// So many hundredths of a percent; more than everything are everything.
    #[must_use]
    pub fn of_hundredths(hundredths: u16) -> Self {
        Self(u32::from(hundredths).min(Self::ALL.0))
    }

    /// A number of percent; `None` unless it is from 0 to 100 with at most two decimals.
    #[must_use]
    pub fn of_number(percent: f64) -> Option<Self> {
        let hundredths = percent * 100.0;
        // Two decimals are not exact in binary; what is off by more than this was written with a third one.
        let is_exact = (hundredths - hundredths.round()).abs() < 1e-6;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range by then")]
        let share = || Self(hundredths.round() as u32);
        (is_exact && (-0.5..=10_000.5).contains(&hundredths)).then(share)
    }

    /// The share in hundredths of a percent.
    #[must_use]
    pub const fn hundredths(self) -> u32 {
        self.0
    }

    /// The share as a number of percent.
    #[must_use]
    pub fn number(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The rest of the whole.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(Self::ALL.0 - self.0)
    }

    /// The sum, at most everything.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).min(Self::ALL.0))
    }
}

impl FromStr for Percent {
    type Err = InvalidPercent;

    /// Reads `1%`, `0.5 %` or `10`.
    ///
    /// # Errors
    ///
    /// If it is no number from 0 to 100, or has more than two decimals.
    fn from_str(text: &str) -> Result<Self, InvalidPercent> {
        let wrong = || InvalidPercent(text.to_owned());
        let number = text.trim().trim_end_matches('%').trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 2 {
            return Err(wrong());
        }
        let hundredths = whole.parse::<u32>().ok().and_then(|whole| whole.checked_mul(100));
        let part = format!("{part:0<2}").parse::<u32>().ok();
        let share = hundredths.zip(part).and_then(|(whole, part)| whole.checked_add(part));
        share.filter(|share| *share <= Self::ALL.0).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.number())
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(100) {
            return serializer.serialize_u32(self.0 / 100);
        }
        serializer.serialize_f64(self.number())
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        Self::of_number(number).ok_or_else(|| de::Error::custom(format!("{number} is not a percentage")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_two_decimals() {
        for (text, hundredths) in
            [("0", 0), ("12.5", 1_250), ("0.01", 1), ("33.33", 3_333), ("100", 10_000), ("5.0", 500)]
        {
            let percent: Percent = serde_json::from_str(text).unwrap();
            assert_eq!(percent.hundredths(), hundredths, "{text}");
            let written = serde_json::to_string(&percent).unwrap();
            assert_eq!(serde_json::from_str::<Percent>(&written).unwrap(), percent);
            for text in [format!("{text}%"), format!(" {text} %"), text.to_owned()] {
                assert_eq!(text.parse::<Percent>().unwrap(), percent, "{text}");
            }
        }
        for text in ["-1", "-0.01", "100.01", "0.001", "1e300", "-1e300", "\"5\"", "null"] {
            assert!(serde_json::from_str::<Percent>(text).is_err(), "{text}");
        }
        for text in ["", "%", "0.001%", "100.01%", "-1%", "+1%", "1e1", "99999999999", ".5", "5.", "ß"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }
}
