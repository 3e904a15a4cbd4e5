//! Numbers, exactly as they were written.

use std::fmt;

/// A number as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without fraction and exponent.
    Integer(i128),
    /// Any other number, and integers beyond 128 bits.
    Float(f64),
}

impl Number {
    pub(super) fn from_json(number: &serde_json::Number) -> Self {
        number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Integer)
    }

    pub(super) fn to_json(self) -> serde_json::Value {
        match self {
            Self::Integer(integer) => i64::try_from(integer)
                .map(serde_json::Value::from)
                .or_else(|_| u64::try_from(integer).map(serde_json::Value::from))
                .unwrap_or_else(|_| serde_json::Value::from(integer as f64)),
            Self::Float(float) => serde_json::Value::from(float),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Float(float) => write!(f, "{float}"),
        }
    }
}
