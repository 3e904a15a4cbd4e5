//! Collects clusters and losses.

use std::collections::BTreeSet;

use super::cluster::Clusters;
use crate::conditions::GrpcFeature;
use crate::emit::GrpcLoss;
use crate::input::Options;
use crate::plan::RouteId;

/// Clusters and losses that are collected while the routes of a host are written.
pub(super) struct Emission<'o, 'p> {
    pub(super) options: &'o Options,
    pub(super) clusters: Clusters<'p>,
    pub(super) losses: BTreeSet<GrpcLoss>,
}

impl Emission<'_, '_> {
    /// Reports that the route is left out, or fails as a whole.
    pub(super) fn drops(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, true, feature, reason.into());
    }

    /// Reports that a part of the route is ignored.
    pub(super) fn lacks(&mut self, id: &RouteId, feature: GrpcFeature, reason: impl Into<String>) {
        self.loses(id, false, feature, reason.into());
    }

    fn loses(&mut self, id: &RouteId, is_dropped: bool, feature: GrpcFeature, reason: String) {
        let (document, rule) = (id.document.clone(), id.rule);
        self.losses.insert(GrpcLoss { document, rule, is_dropped, reason, feature });
    }
}
