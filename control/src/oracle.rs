//! A judge of resources outside of this program, such as a local Envoy.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::Resource;

/// Judges resources before they are published.
pub trait Oracle: fmt::Debug + Send + Sync {
    /// Judges lists of resources. Those of one list stand together, and no list has two of one name. Blocks, until `until` at the
    /// latest, and does not judge again what it remembers.
    fn judge(&self, lists: &[Vec<Arc<Resource>>], until: Instant) -> Judgement;

    /// Returns `true` if it remembers its judgement of the resource in this version.
    fn knows(&self, resource: &Resource) -> bool;
}

/// What an oracle says about resources. A resource that is in neither list is accepted, or cannot be asked about.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Who says it, such as `Envoy 1.40.0`.
    pub judge: String,
    /// The resources that it refuses, and why.
    pub refused: Vec<(Arc<Resource>, String)>,
    /// How many resources it has not judged.
    pub n_undecided: usize,
    /// Why not, if there are any.
    pub why: Option<String>,
}

/// What happens to a change that the oracle refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OraclePolicy {
    /// It is published, with a warning.
    #[default]
    Tell,
    /// A write is refused. An object of a file keeps its last good version.
    Refuse,
}

impl Judgement {
    /// None of so many resources was judged.
    #[must_use]
    pub fn undecided(n_undecided: usize, why: String) -> Self {
        Self { n_undecided, why: Some(why), ..Self::default() }
    }
}
