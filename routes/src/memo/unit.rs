//! Units of work, in the order in which they are done.

use xds_cache::{GroupName, Profile};

use super::fact::{HostKey, InGroup};
use crate::model::DocumentKey;

/// A unit of work. One reads only what those before it write, so that each is done at most once for a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// A document as the plan as a whole sees it, and by what it is found.
    Outline(DocumentKey),
    /// What becomes of fallbacks.
    Fallbacks,
    /// The plan as a whole: which hosts have which routes, and what becomes of objects.
    Plan,
    /// The rules of a route.
    Rules(DocumentKey),
    /// The routes of a host.
    Routes(HostKey),
    /// A cluster with its endpoints and the certificates that it trusts.
    Backend(InGroup),
    /// A virtual host for Envoys.
    Part(HostKey),
    /// A Listener for Envoys.
    Listener(InGroup),
    /// A RouteConfiguration for Envoys.
    Table(InGroup),
    /// The Listeners and the RouteConfiguration of a host for gRPC clients.
    Dialled(HostKey),
    /// A cluster that routes for gRPC clients name, and what it stands for.
    GrpcRoot(InGroup),
    /// A cluster with endpoints for gRPC clients; it can become several.
    GrpcCluster(InGroup),
    /// A cluster for Envoys, for each protocol.
    Cluster(InGroup),
    /// The endpoints of a cluster, for both kinds of clients.
    Assignment(InGroup),
    /// A secret.
    Secret(InGroup),
    /// The cluster without endpoints.
    Unavailable(GroupName, Profile),
    /// What became of an object.
    Status(DocumentKey),
}
