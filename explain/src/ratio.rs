//! Exact shares.

use std::fmt;

use serde::{Serialize, Serializer};

/// A share from 0 to 1, as a fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    n: u128,
    of: u128,
}

impl Ratio {
    /// Everything.
    pub const ONE: Self = Self { n: 1, of: 1 };
    /// Nothing.
    pub const ZERO: Self = Self { n: 0, of: 1 };

    /// `n` parts `of` a number; nothing of nothing is nothing. More than everything is everything.
    #[must_use]
    pub fn new(n: u128, of: u128) -> Self {
        if of == 0 {
            return Self::ZERO;
        }
        let n = n.min(of);
        let divisor = gcd(n, of);
        Self { n: n / divisor, of: of / divisor }
    }

    /// The share of a share; `None` if it takes more than 128 bits.
    #[must_use]
    pub fn times(self, other: Self) -> Option<Self> {
        let (a, b) = (gcd(self.n, other.of).max(1), gcd(other.n, self.of).max(1));
        let n = (self.n / a).checked_mul(other.n / b)?;
        let of = (self.of / b).checked_mul(other.of / a)?;
        Some(Self { n, of })
    }

    /// Both together; `None` if it takes more than 128 bits.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        let divisor = gcd(self.of, other.of);
        let of = (self.of / divisor).checked_mul(other.of)?;
        let n =
            self.n.checked_mul(other.of / divisor)?.checked_add(other.n.checked_mul(self.of / divisor)?)?;
        Some(Self::new(n, of))
    }

    /// The share that this is of another one; `None` of nothing, or if it takes more than 128 bits.
    #[must_use]
    pub fn over(self, other: Self) -> Option<Self> {
        if other.n == 0 {
            return None;
        }
        Some(Self::new(self.n.checked_mul(other.of)?, self.of.checked_mul(other.n)?))
    }

    /// What is left.
    #[must_use]
    pub fn rest(self) -> Self {
        Self { n: self.of - self.n, of: self.of }
    }

    /// Numerator and denominator.
    #[must_use]
    pub fn parts(self) -> (u128, u128) {
        (self.n, self.of)
    }

    /// Returns `true` if it never happens.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.n == 0
    }
}

impl fmt::Display for Ratio {
    /// In percent, exact where four decimals are enough, else with `~`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = self.n.checked_mul(1_000_000);
        let (whole, is_exact) = match scaled {
            Some(scaled) => (scaled / self.of, scaled % self.of == 0),
            None => (self.n / (self.of / 1_000_000).max(1), false),
        };
        let percent = format!("{}.{:04}", whole / 10_000, whole % 10_000);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{}{percent} %", if is_exact { "" } else { "~" })
    }
}

impl Serialize for Ratio {
    /// `[1,10]`; numbers beyond 64 bits as texts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (u64::try_from(self.n), u64::try_from(self.of)) {
            (Ok(n), Ok(of)) => [n, of].serialize(serializer),
            _ => [self.n.to_string(), self.of.to_string()].serialize(serializer),
        }
    }
}

/// The greatest common divisor; of zero and a number, the number.
pub(crate) fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_shown_in_percent() {
        assert_eq!(Ratio::new(10, 100).to_string(), "10 %");
        assert_eq!(Ratio::new(1, 3).to_string(), "~33.3333 %");
        assert_eq!(Ratio::new(1, 8).to_string(), "12.5 %");
        assert_eq!(Ratio::new(1, 2).times(Ratio::new(1, 5)), Some(Ratio::new(1, 10)));
        assert_eq!(Ratio::new(1, 2).plus(Ratio::new(1, 3)), Some(Ratio::new(5, 6)));
        assert_eq!(Ratio::new(9, 10).times(Ratio::new(1, 2)), Some(Ratio::new(9, 20)));
        assert_eq!(Ratio::ZERO.times(Ratio::new(1, 2)), Some(Ratio::ZERO));
        assert_eq!(Ratio::new(1, 10).over(Ratio::new(1, 5)), Some(Ratio::new(1, 2)));
        assert_eq!(Ratio::new(1, 10).rest(), Ratio::new(9, 10));
        assert_eq!(Ratio::new(1, u128::MAX).times(Ratio::new(1, 3)), None);
        assert_eq!(Ratio::new(3, 0), Ratio::ZERO);
    }
}
