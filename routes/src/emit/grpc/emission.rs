//! Collects clusters and losses while the routes of a host are written.

use std::collections::BTreeSet;

use super::cluster::Clusters;
use crate::conditions::GrpcFeature;
use crate::emit::GrpcLoss;
use crate::input::Options;
use crate::plan::RouteId;

/// The results that are collected while routes are looked at.
pub(super) struct Emission<'o, 'p> {
    pub(super) options: &'o Options,
    pub(super) clusters: Clusters<'p>,
    pub(super) losses: BTreeSet<GrpcLoss>,
}

impl Emission<'_, '_> {
    /// The route is left out, or fails as a whole.
    pub(super) fn drops(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, true, feature, reason.into());
    }

    /// A part of the route is ignored.
    pub(super) fn lacks(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, false, feature, reason.into());
    }

    fn loses(&mut self, id: &RouteId, is_dropped: bool, feature: GrpcFeature, reason: String) {
        let (document, rule) = (id.document.clone(), id.rule);
        self.losses.insert(GrpcLoss { document, rule, is_dropped, reason, feature });
    }
}
