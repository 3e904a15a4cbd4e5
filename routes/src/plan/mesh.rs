//! Services as parents: GRPCRoutes, HTTPRoutes and TrafficSplits of the mesh.

use std::collections::BTreeMap;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::Diagnostic;

use super::lookup::Lookup;
use super::parts::MeshService;
use super::statuses::Statuses;
use crate::translate::{Documents, Options};

/// The mesh services of each group, with definitions for groups that only consumer routes make.
pub(crate) fn mesh(
    lookup: &Lookup<'_>,
    documents: &Documents,
    options: &Options,
    statuses: &mut Statuses,
    diagnostics: &mut Vec<Diagnostic>,
) -> BTreeMap<GroupName, (Option<NodeGroup>, Vec<MeshService>)> {
    let _ = (lookup, documents, options, statuses, diagnostics);
    BTreeMap::new()
}
