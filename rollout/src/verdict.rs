//! The verdict on a measurement.

use serde::{Deserialize, Serialize};

/// The verdict on a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Good,
    /// A bound does not hold; says which.
    Bad(String),
    /// Too little is known; says about what.
    Inconclusive(String),
}
