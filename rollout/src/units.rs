//! Shares and durations as rollouts are written with them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Number;

/// A share in hundredths of a percent, from 0 to 10,000; written as a number of percent, such as `12.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

/// A duration in whole milliseconds; written as `1h30m`, `10s` or `500ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

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

    /// The share in hundredths of a percent.
    #[must_use]
    pub fn hundredths(self) -> u32 {
        self.0
    }

    /// What is left of everything.
    #[must_use]
    pub fn rest(self) -> Self {
        Self(Self::ALL.0 - self.0)
    }

    /// The sum, at most everything.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).min(Self::ALL.0))
    }

    /// Reads a number of percent; `None` unless it is from 0 to 100 with at most two decimals.
    pub(crate) fn parse(number: &Number) -> Option<Self> {
        let hundredths = number.as_f64()? * 100.0;
        // Two decimals are not exact in binary; what is off by more than this was written with a third one.
        let is_exact = (hundredths - hundredths.round()).abs() < 1e-6;
        let whole = (0..=Self::ALL.0).contains(&(hundredths.round() as u32));
        (is_exact && whole && hundredths > -0.5 && hundredths < 10_000.5)
            .then(|| Self(hundredths.round() as u32))
    }
}

impl Span {
    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The duration in milliseconds.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Reads `1h30m`, `10s`, `500ms`: numbers with the units `d`, `h`, `m`, `s`, `ms`, from the largest to the smallest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
        while !rest.is_empty() || last == u64::MAX {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let (number, tail) = rest.split_at(end);
            let length = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (name, tail) = tail.split_at(length);
            let (_, unit) = UNITS.into_iter().find(|(unit, _)| *unit == name)?;
            if unit >= last {
                return None;
            }
            total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
            (rest, last) = (tail, unit);
        }
        Some(Self(total))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 100.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (name, unit) in UNITS {
            if rest >= unit {
                write!(f, "{}{name}", rest / unit)?;
                rest %= unit;
            }
        }
        Ok(())
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(100) {
            return serializer.serialize_u32(self.0 / 100);
        }
        serializer.serialize_f64(f64::from(self.0) / 100.0)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Number::deserialize(deserializer)?;
        Self::parse(&number).ok_or_else(|| de::Error::custom(format!("{number} is no percentage")))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no duration")))
    }
}

/// Units of durations in milliseconds, from the largest to the smallest.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        for (text, millis, shown) in [
            ("10m", 600_000, "10m"),
            ("90s", 90_000, "1m30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("500ms", 500, "500ms"),
            ("2d", 172_800_000, "2d"),
            ("0s", 0, "0s"),
        ] {
            let span = Span::parse(text).unwrap();
            assert_eq!((span.millis(), span.to_string().as_str()), (millis, shown), "{text}");
        }
        for text in
            ["", "10", "s", "-1s", "1.5s", "1m1h", "1s1s", " 1s", "1 s", "99999999999999999999s", "1µs", "ß"]
        {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn shares_have_two_decimals() {
        for (text, hundredths) in
            [("0", 0), ("12.5", 1_250), ("0.01", 1), ("33.33", 3_333), ("100", 10_000), ("5.0", 500)]
        {
            let percent: Percent = serde_json::from_str(text).unwrap();
            assert_eq!(percent.hundredths(), hundredths, "{text}");
            let written = serde_json::to_string(&percent).unwrap();
            assert_eq!(serde_json::from_str::<Percent>(&written).unwrap(), percent);
        }
        for text in ["-1", "-0.01", "100.01", "0.001", "1e300", "-1e300", "\"5\"", "null"] {
            assert!(serde_json::from_str::<Percent>(text).is_err(), "{text}");
        }
    }
}
