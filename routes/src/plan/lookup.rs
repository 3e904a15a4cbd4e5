//! Everything that references lead to, indexed.

use std::collections::BTreeMap;

use xds_codec::Diagnostic;

use super::parts::{Plan, PlannedRoute, TlsSecret};
use crate::model::{Document, Kind, ObjectRef, ReferenceGrant, Route, Spot};
use crate::translate::{Documents, Options, Placed};

/// All documents, indexed by what refers to them.
pub(crate) struct Lookup<'d> {
    pub(super) documents: &'d Documents,
    /// By the namespace that they stand in.
    pub(super) grants: BTreeMap<&'d str, Vec<&'d ReferenceGrant>>,
}

/// What the rules of a route come to, wherever it is attached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RoutePlan {
    /// Every match of every rule, in the order of the document.
    pub(crate) routes: Vec<PlannedRoute>,
    /// The references that cannot be followed, in the order of the document.
    pub(crate) problems: Vec<RefProblem>,
    /// What is not done of what the rules say; each begins with `Dropped Rule` or `Fall Back`.
    pub(crate) partly_invalid: Vec<String>,
}

/// A reference that cannot be followed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefProblem {
    /// Why, in the words of the condition `ResolvedRefs`.
    pub(crate) reason: &'static str,
    /// Why, for people.
    pub(crate) message: String,
    /// The reference.
    pub(crate) spot: Spot,
}

impl<'d> Lookup<'d> {
    /// Indexes the documents.
    pub(crate) fn new(documents: &'d Documents, options: &Options) -> Self {
        let _ = options;
        Self { documents, grants: BTreeMap::new() }
    }

    /// Every rule × match of a route, in the order of the document, with actions resolved; and what is wrong with its
    /// references.
    pub(crate) fn route_plan(&self, placed: &'d Placed, route: &'d Route) -> RoutePlan {
        let _ = (placed, route);
        RoutePlan::default()
    }

    /// The secret of a certificateRef of a Gateway listener: its name in [`Plan::secrets`] and its content.
    pub(crate) fn certificate(
        &self,
        gateway: &Document,
        reference: &ObjectRef,
    ) -> Result<(String, TlsSecret), RefProblem> {
        let _ = gateway;
        let message = "not read".to_owned();
        Err(RefProblem { reason: "InvalidCertificateRef", message, spot: reference.spot.clone() })
    }

    /// Fills clusters, assignments and secrets of everything that the plan's routes reach; warnings go to `diagnostics`.
    pub(crate) fn fill(&self, plan: &mut Plan, diagnostics: &mut Vec<Diagnostic>) {
        let _ = (plan, diagnostics);
    }

    /// A document by its identity.
    pub(super) fn document(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'d Document> {
        let key = crate::model::DocumentKey::new(kind, namespace, name);
        self.documents.get(&key).map(|placed| &*placed.document)
    }
}
