//! Units of work, in the order in which they run.

use std::sync::Arc;

use xds_cache::{GroupName, Profile};

use super::key::{HostKey, InGroup};
use crate::model::DocumentKey;
use crate::plan::ListenerKey;
use crate::thin::Thin;

/// A unit of work. It reads only facts of earlier kinds, so each unit runs at most once for a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// The outline of a document, and the keys by which it is found.
    Outline(DocumentKey),
    /// The verdicts on fallbacks.
    Fallbacks,
    /// All Gateways and their ports.
    Gateways,
    /// The requests of a route to Gateways.
    Attachment(DocumentKey),
    /// The routes that exceed limits.
    Ledger,
    /// The hosts that a route brings to listeners.
    Bids(DocumentKey),
    /// The routes that leave a listener to those of another kind.
    Kinds(Arc<ListenerKey>),
    /// The implicit gateway of a group.
    Implicit(GroupName),
    /// A TrafficSplit.
    Split(DocumentKey),
    /// The rules of a route, and its requests to Services.
    Rules(DocumentKey),
    /// A host of a chain of Gateways.
    Host(HostKey),
    /// The ports of Services that a route asks for.
    Wishes(DocumentKey),
    /// The names of the Services of a group that begin with a label.
    Names(InGroup),
    /// The decision whether Envoys of a group listen on a port of the mesh.
    Port(GroupName, u16),
    /// The ports of a Service, for the clients of a group.
    Mesh(Thin<(GroupName, DocumentKey)>),
    /// The Services of other groups that Envoys of a group get on a port.
    Borrow(GroupName, u16),
    /// One of these Services.
    Loan(HostKey),
    /// The Listener and the RouteConfiguration of a port of the mesh, without its hosts.
    MeshTable(GroupName, u16),
    /// A node group.
    Group(GroupName),
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
    /// A cluster that routes for gRPC clients name, and the clusters that it leads to.
    GrpcRoot(InGroup),
    /// A cluster with endpoints for gRPC clients, which can become several.
    GrpcCluster(InGroup),
    /// A cluster for Envoys, for each protocol.
    Cluster(InGroup),
    /// The endpoints of a cluster, for both kinds of clients.
    Assignment(InGroup),
    /// A secret.
    Secret(InGroup),
    /// The cluster without endpoints.
    Unavailable(GroupName, Profile),
    /// The effects of unsupported policies.
    Policies,
    /// The conditions of an object.
    Status(DocumentKey),
}
