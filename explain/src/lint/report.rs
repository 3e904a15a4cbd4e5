//! What is doubtful.

use crate::explanation::Part;

/// How much is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Parts that never act, or act otherwise than they are written: rarely meant.
    Default,
    /// Also what is often meant: see [`DoubtCode::is_often_meant`].
    All,
}

/// What was found about one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// In the order of listeners and routes, then by cluster.
    pub all: Vec<Doubt>,
    /// Overrides and mirrors that act: a resource that several clients get is only doubtful where it acts for none of them.
    pub acting: Vec<Part>,
}

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
    /// What is to be said as [`DoubtCode::PartlyShadowed`] if one of the namesakes is of the same rule, so that the rule does act.
    pub partly: Option<String>,
}

impl Doubt {
    pub(super) fn new(code: DoubtCode, part: Part, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, part, hidden_by: Vec::new(), namesakes: Vec::new(), partly: None }
    }
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
    /// An override of a filter, or a list of mirrors, that no request uses.
    UnusedOverride,
    /// A wider route before it takes some of the requests of an exact path, or all at one host or path of the rule.
    PartlyShadowed,
    /// Gets requests only while something else is not healthy.
    OnlyWhenUnhealthy,
    /// Envoys and gRPC clients answer the same call differently.
    DiffersBetweenClients,
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
            Self::UnusedOverride => "unused-override",
            Self::PartlyShadowed => "partly-shadowed",
            Self::OnlyWhenUnhealthy => "only-when-unhealthy",
            Self::DiffersBetweenClients => "differs-between-clients",
        }
    }

    /// Returns `true` if it is as often meant as not, so that it is looked for only with [`Depth::All`].
    #[must_use]
    pub fn is_often_meant(self) -> bool {
        match self {
            Self::PartlyShadowed | Self::OnlyWhenUnhealthy | Self::DiffersBetweenClients => true,
            Self::ShadowedRoute
            | Self::NeverMatches
            | Self::UnreachableDomain
            | Self::UnreachableChain
            | Self::WeightNeverApplies
            | Self::TimeoutOff
            | Self::UnusedOverride => false,
        }
    }
}
