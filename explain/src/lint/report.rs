//! What is doubtful.

use crate::explanation::Part;

/// A part that can never act, or acts otherwise than it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Its kind.
    pub code: DoubtCode,
    /// In words.
    pub message: String,
    /// The part.
    pub part: Part,
    /// The parts that hide it.
    pub hidden_by: Vec<Part>,
    /// Routes with the name of a route that never acts, of which there is no such doubt: maybe what else became of the same rule.
    pub namesakes: Vec<Part>,
}

/// The kinds of doubts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DoubtCode {
    /// Routes before it take every request that it would take.
    ShadowedRoute,
    /// No request fulfils its conditions.
    NeverMatches,
    /// No host reaches the domain.
    UnreachableDomain,
    /// No connection reaches the filter chain.
    UnreachableChain,
    /// A cluster with a weight gets no request.
    WeightNeverApplies,
    /// A time limit is switched off by another setting.
    TimeoutOff,
}

impl DoubtCode {
    /// The name in messages: `shadowed-route`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShadowedRoute => "shadowed-route",
            Self::NeverMatches => "never-matches",
            Self::UnreachableDomain => "unreachable-domain",
            Self::UnreachableChain => "unreachable-chain",
            Self::WeightNeverApplies => "weight-never-applies",
            Self::TimeoutOff => "timeout-off",
        }
    }
}
