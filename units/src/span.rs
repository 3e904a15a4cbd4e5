//! Durations: numbers with units.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in whole milliseconds; written as `1h30m`, `10s` or `500ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Why a text is not a duration; says what would be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpan {
    /// It does not begin with a number.
    #[error("not a number with a unit: write something like 10s")]
    NoNumber,
    /// A number stands alone.
    #[error("the unit is missing: write {0}s, {0}ms or {0}m")]
    NoUnit(String),
    /// A unit is not one of ours.
    #[error("unknown unit `{0}`: use ms, s, m, h or d, as in 500ms or 1h30m")]
    UnknownUnit(String),
    /// A unit stands behind a smaller one, or twice.
    #[error("the units are out of order: write the largest first, such as 1h30m")]
    Unordered,
    /// It has a fraction of a millisecond.
    #[error("a duration is a whole number of milliseconds")]
    TooFine,
    /// It is beyond all durations.
    #[error("the duration is too long")]
    TooLong,
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The duration in milliseconds.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The same as one number: `90s`, or `1500ms` if these are no whole seconds.
    #[must_use]
    pub fn in_seconds(self) -> String {
        match self.0 {
            millis if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
            millis => format!("{millis}ms"),
        }
    }

    /// The same in seconds with decimals, as in JSON of protobuf: `90s`, `0.025s`.
    #[must_use]
    pub fn in_decimal_seconds(self) -> String {
        let (seconds, rest) = (self.0 / 1_000, self.0 % 1_000);
        match rest {
            0 => format!("{seconds}s"),
            rest => format!("{seconds}.{}s", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

impl From<Duration> for Span {
    /// Whole milliseconds; as many as there can be, of a longer time.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl FromStr for Span {
    type Err = InvalidSpan;

    /// Reads `1h30m`, `1.5h`, `10s`, `500 ms` and `0`: numbers with the units `d`, `h`, `m` (or `min`), `s` and `ms`, from the
    /// largest to the smallest.
    ///
    /// # Errors
    ///
    /// [`InvalidSpan`] for anything else.
    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let (mut rest, mut total, mut last) = (text.trim(), 0_u64, u64::MAX);
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        loop {
            let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
            let end = rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            let tail = tail.trim_start();
            let end = tail.find(|c| is_of_number(c) || c.is_whitespace()).unwrap_or(tail.len());
            let (name, tail) = tail.split_at(end);
            let unit = match UNITS.into_iter().find(|(unit, _)| *unit == name) {
                Some((_, unit)) => unit,
                None if number.is_empty() => return Err(InvalidSpan::NoNumber),
                None if name.is_empty() => return Err(InvalidSpan::NoUnit(number.to_owned())),
                None => return Err(InvalidSpan::UnknownUnit(name.to_owned())),
            };
            let part = millis(number, unit)?;
            if unit >= last {
                return Err(InvalidSpan::Unordered);
            }
            total = total.checked_add(part).ok_or(InvalidSpan::TooLong)?;
            (rest, last) = (tail.trim_start(), unit);
            if rest.is_empty() {
                return Ok(Self(total));
            }
        }
    }
}

/// So many of a unit in milliseconds.
fn millis(number: &str, unit: u64) -> Result<u64, InvalidSpan> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(InvalidSpan::NoNumber);
    }
    let digits = |digits: &str| match digits {
        "" => Ok(0),
        // There are only digits.
        digits => digits.parse::<u64>().map_err(|_| InvalidSpan::TooLong),
    };
    let fraction = fraction.trim_end_matches('0');
    let width = u32::try_from(fraction.len()).ok().filter(|width| *width <= MAX_DECIMALS);
    let scale = 10_u64.pow(width.ok_or(InvalidSpan::TooFine)?);
    let part = digits(fraction)? * unit;
    if !part.is_multiple_of(scale) {
        return Err(InvalidSpan::TooFine);
    }
    let whole = digits(whole)?.checked_mul(unit);
    whole.and_then(|whole| whole.checked_add(part / scale)).ok_or(InvalidSpan::TooLong)
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

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| de::Error::custom(format!("{text:?} is not a duration: {error}")))
    }
}

/// The units in milliseconds, from the largest to the smallest; of two names, the first is written.
const UNITS: [(&str, u64); 6] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// With more, what is left of a day would not fit into an integer; of a millisecond, nothing is left before.
const MAX_DECIMALS: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_decimals_in_seconds() {
        for (millis, shown) in [(0, "0s"), (25, "0.025s"), (1_500, "1.5s"), (90_000, "90s")] {
            assert_eq!(Span::from_millis(millis).in_decimal_seconds(), shown);
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for (text, millis, shown, in_seconds) in [
            ("10m", 600_000, "10m", "600s"),
            ("90s", 90_000, "1m30s", "90s"),
            ("1h30m", 5_400_000, "1h30m", "5400s"),
            ("500ms", 500, "500ms", "500ms"),
            ("1s500ms", 1_500, "1s500ms", "1500ms"),
            ("2d", 172_800_000, "2d", "172800s"),
            ("0s", 0, "0s", "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.millis(), &*span.to_string(), &*span.in_seconds()), (millis, shown, in_seconds));
        }
        for (text, millis) in [
            ("0", 0),
            ("1.5 m", 90_000),
            (" 1h 30min ", 5_400_000),
            ("2.50s", 2_500),
            (".5s", 500),
            ("0.000000001d", 0),
        ] {
            let span = text.parse::<Span>().ok().map(Span::millis);
            assert_eq!(span, Some(millis).filter(|_| text != "0.000000001d"), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, told) in [
            ("", "not a number with a unit"),
            ("s", "not a number with a unit"),
            ("-1s", "not a number with a unit"),
            ("ß", "not a number with a unit"),
            (".s", "not a number with a unit"),
            ("1.2.3s", "not a number with a unit"),
            ("10", "the unit is missing: write 10s, 10ms or 10m"),
            ("1h30", "the unit is missing: write 30s"),
            ("1µs", "unknown unit `µs`"),
            ("1e9h", "unknown unit `e`"),
            ("1m1h", "the units are out of order"),
            ("1s1s", "the units are out of order"),
            ("1m1min", "the units are out of order"),
            ("0.5ms", "whole number of milliseconds"),
            ("99999999999999999999s", "too long"),
            ("9999999999999999999h", "too long"),
        ] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
