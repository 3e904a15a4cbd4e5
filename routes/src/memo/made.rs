//! The result of a unit.

use std::mem;
use std::sync::Arc;

use xds_cache::{GroupName, Profile, Resource};
use xds_codec::Diagnostic;

use super::fact::{Fact, Value};

/// The result of a unit: facts for other units, and outputs of the translation, which no unit reads.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(super) facts: Vec<(Fact, Value)>,
    pub(super) given: Given,
}

/// Resources, and diagnostics of documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Given {
    pub(crate) written: Option<Written>,
    pub(crate) doubts: Box<[Diagnostic]>,
}

/// Resources and their clients.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    /// The node group.
    pub(crate) group: GroupName,
    /// The kinds of clients.
    pub(crate) clients: Clients,
    /// The resources.
    pub(crate) resources: Box<[Arc<Resource>]>,
}

/// Kinds of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    Envoys,
    Grpc,
    All,
}

impl Clients {
    pub(crate) fn profiles(self) -> &'static [Profile] {
        match self {
            Self::Envoys => &[Profile::Envoy],
            Self::Grpc => &[Profile::Grpc],
            Self::All => &[Profile::Envoy, Profile::Grpc],
        }
    }
}

impl Made {
    /// An empty result of a unit that exists.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A result of one fact.
    pub(crate) fn one(fact: Fact, value: Value) -> Self {
        [(fact, value)].into_iter().collect()
    }

    /// An estimate of the memory that it takes.
    pub(super) fn n_bytes(&self) -> usize {
        let facts = self.facts.iter().map(|(_, value)| FACT_BYTES + value.n_bytes()).sum::<usize>();
        let resources = self.given.resources().iter().map(|resource| RESOURCE_BYTES + resource.n_bytes());
        facts + resources.sum::<usize>()
    }

    pub(crate) fn push(&mut self, fact: (Fact, Value)) {
        self.facts.push(fact);
    }

    /// Reports diagnostics of documents.
    pub(crate) fn say(&mut self, doubts: impl IntoIterator<Item = Diagnostic>) {
        self.given.doubts = mem::take(&mut self.given.doubts).into_iter().chain(doubts).collect();
    }
}

impl FromIterator<(Fact, Value)> for Made {
    fn from_iter<I: IntoIterator<Item = (Fact, Value)>>(facts: I) -> Self {
        Self { facts: facts.into_iter().collect(), given: Given::default() }
    }
}

impl Extend<(Fact, Value)> for Made {
    fn extend<I: IntoIterator<Item = (Fact, Value)>>(&mut self, facts: I) {
        self.facts.extend(facts);
    }
}

impl Given {
    /// The resources.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        self.written.as_ref().map_or(&[], |written| &written.resources)
    }
}

/// A fact with its value, and its places in maps.
const FACT_BYTES: usize = 300;

/// A resource besides its encoded message: its name, its references and its places in maps.
const RESOURCE_BYTES: usize = 2_000;
