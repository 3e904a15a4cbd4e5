//! Indexes everything that references can name.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use xds_codec::{Diagnostic, Severity};

use super::fallback::Verdict;
#[cfg(test)]
use super::fallback::verdicts::verdicts;
use super::parts::PlannedRoute;
use super::policies::Policies;
use crate::conditions::ConditionReason;
use crate::input::{Documents, Options, Placed, of_kinds};
use crate::model::{Document, DocumentKey, EndpointSlice, Kind, ReferenceGrant, Spec, Spot};

/// All documents, indexed by the ways to refer to them.
pub(crate) struct Lookup<'d> {
    pub(super) documents: &'d Documents,
    /// By kind, namespace and name.
    by_identity: HashMap<(Kind, &'d str, &'d str), &'d Document>,
    /// By their namespace.
    pub(super) grants: BTreeMap<&'d str, Vec<&'d ReferenceGrant>>,
    /// By namespace and service, in order of their names.
    pub(super) slices: BTreeMap<&'d str, BTreeMap<&'d str, Vec<&'d EndpointSlice>>>,
    /// The policy that applies to each backend.
    pub(super) policies: Policies<'d>,
    /// The verdict on every fallback.
    pub(super) fallbacks: BTreeMap<&'d DocumentKey, Verdict>,
    /// True if path expressions of SMI must match the whole path.
    pub(super) matches_whole_paths: bool,
}

/// The plan of a route's rules, the same wherever it is attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RoutePlan {
    /// Every match of every rule, in the order of the document.
    pub(crate) routes: Vec<PlannedRoute>,
    /// The references that cannot be followed, in the order of the document.
    pub(crate) problems: Vec<RefProblem>,
    /// The parts of the rules that have no effect; each text begins with `Dropped Rule` or `Fall Back`.
    pub(crate) partly_invalid: Vec<String>,
}

/// A reference that cannot be followed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefProblem {
    /// The reason for the condition `ResolvedRefs`.
    pub(crate) reason: ConditionReason,
    /// The reason in words.
    pub(crate) message: String,
    /// The reference.
    pub(crate) spot: Spot,
}

impl RefProblem {
    /// The warning about it in the document with the reference.
    pub(crate) fn diagnostic(&self, document: &Document) -> Diagnostic {
        let Self { reason, message, spot } = self;
        document.diagnostic(Severity::Warning, reason.diagnostic_code(), spot, message.clone())
    }
}

impl<'d> Lookup<'d> {
    /// Indexes the documents, and judges the fallbacks among them.
    #[cfg(test)]
    pub(crate) fn new(documents: &'d Documents, options: &Options) -> Self {
        let mut lookup = Self::of(documents, BTreeMap::new(), options);
        lookup.fallbacks = verdicts(&lookup);
        lookup
    }

    /// Indexes documents whose fallbacks are already judged.
    pub(crate) fn of(
        documents: &'d Documents,
        fallbacks: BTreeMap<&'d DocumentKey, Verdict>,
        options: &Options,
    ) -> Self {
        let identity = |(key, placed): (&'d DocumentKey, &'d Placed)| {
            ((key.kind, &*key.namespace, &*key.name), &*placed.document)
        };
        let mut lookup = Self {
            documents,
            by_identity: documents.iter().map(identity).collect(),
            grants: BTreeMap::new(),
            slices: BTreeMap::new(),
            policies: Policies::of(documents),
            fallbacks,
            matches_whole_paths: options.matches_whole_paths,
        };
        for (key, placed) in of_kinds(documents, Kind::ReferenceGrant..=Kind::ReferenceGrant) {
            let Spec::ReferenceGrant(grant) = &placed.document.spec else { continue };
            lookup.grants.entry(&key.namespace).or_default().push(grant);
        }
        for (key, placed) in of_kinds(documents, Kind::EndpointSlice..=Kind::EndpointSlice) {
            let Spec::EndpointSlice(slice) = &placed.document.spec else { continue };
            if let Some(service) = &slice.service {
                let services = lookup.slices.entry(&key.namespace).or_default();
                services.entry(service.as_str()).or_default().push(slice);
            }
        }
        lookup
    }

    /// A document by its identity.
    pub(super) fn document(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'d Document> {
        self.by_identity.get(&(kind, kind.namespace_of(namespace), name)).copied()
    }
}

/// The kinds whose documents are routes.
pub(super) const ROUTES: RangeInclusive<Kind> = Kind::GrpcRoute..=Kind::Route;
