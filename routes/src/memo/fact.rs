//! What units read and write: facts, each with a value.

use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup, Origin, Profile, Resource};
use xds_codec::{Diagnostic, VirtualHost};

use crate::conditions::{GrpcFeature, ObjectStatus};
use crate::emit::{Dialled, EnvoyFrame, EnvoyListener, GrpcLoss};
use crate::model::DocumentKey;
use crate::plan::{Assignment, Cluster, Outline, Parts, PlannedRoute, TlsSecret, Usage, Verdict, is_route};

use super::unit::Unit;

/// A name within a group.
pub(crate) type Name = Arc<str>;

/// A host of a chain, or a Service at a port of the mesh, by the RouteConfiguration for Envoys that it belongs to. Those of one
/// RouteConfiguration follow each other as they stand in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    /// The node group.
    pub(crate) group: GroupName,
    /// The chain, or `mesh/<port>`.
    pub(crate) table: Name,
    /// Whether it stands for the hosts of other chains, whose requests belong on another connection.
    pub(crate) is_misdirected: bool,
    /// The Service's namespace; empty for a host of a chain.
    pub(crate) namespace: Name,
    /// The Service or host.
    pub(crate) name: Name,
}

/// A node group and the name of something in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InGroup {
    /// The node group.
    pub(crate) group: GroupName,
    /// The name.
    pub(crate) name: Name,
}

impl InGroup {
    pub(crate) fn new(group: &GroupName, name: &str) -> Self {
        Self { group: group.clone(), name: name.into() }
    }
}

/// Something that a unit can depend on. One that ends with `None` stands for all that end with `Some`: it has no value of its own,
/// and changes when one of these does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// A document; it is kept elsewhere.
    Document(Option<DocumentKey>),
    /// A document as the plan as a whole sees it.
    Outline(Option<DocumentKey>),
    /// An EndpointSlice of a Service, by namespace and name of the Service.
    Slice(Name, Name, Option<DocumentKey>),
    /// A ReferenceGrant of a namespace.
    Grant(Name, Option<DocumentKey>),
    /// A BackendTLSPolicy for a Service or Backend.
    Policy(DocumentKey, Option<DocumentKey>),
    /// A Backend that stands for others.
    Fallback(Option<DocumentKey>),
    /// What became of a fallback.
    Verdict(DocumentKey),
    /// Every match of every rule of a route.
    Rules(DocumentKey),
    /// A node group, with the definition if only documents make it.
    Group(GroupName),
    /// What becomes of an object, but for what gRPC clients cannot have.
    Standing(DocumentKey),
    /// A host, without its routes.
    Host(HostKey),
    /// Which routes a host has, in which order; what becomes of their requests is not to be taken from here.
    Stubs(HostKey),
    /// The routes of a host.
    Routes(HostKey),
    /// How the routes of a host use a cluster.
    Use(InGroup, Option<HostKey>),
    /// A Listener for Envoys.
    Listener(InGroup),
    /// A RouteConfiguration for Envoys, without its hosts: its place among the others, and where it is from.
    Table(InGroup),
    /// A cluster.
    Cluster(InGroup),
    /// The endpoints of a cluster.
    Assignment(InGroup),
    /// Present if the endpoints of a cluster differ in weight within a zone.
    Uneven(InGroup),
    /// Present if a listener has the certificate of that name.
    Certificate(InGroup),
    /// Certificates that a cluster trusts, by their name and that of the cluster.
    Trusted(InGroup, Option<Name>),
    /// A virtual host of a RouteConfiguration for Envoys.
    Part(InGroup, Option<HostKey>),
    /// The virtual hosts that a RouteConfiguration was put together of.
    Assembled(InGroup),
    /// Somebody who names the cluster without endpoints; the value is where they are from.
    Need(GroupName, Profile, Option<Claim>),
    /// A cluster all of whose requests fail: it names the assignment without endpoints; the value is where it is from.
    Nowhere(GroupName, Profile, Option<Name>),
    /// A host for gRPC clients that names a cluster.
    GrpcUse(InGroup, Option<HostKey>),
    /// A cluster for gRPC clients that stands for a cluster, or is it; the value is whether it has sessions.
    GrpcReach(InGroup, Option<Name>),
    /// Present if a cluster for gRPC clients has the endpoints of that name.
    GrpcAssigned(InGroup),
    /// What gRPC clients cannot have of a document's routes at a host.
    Loss(DocumentKey, Option<HostKey>),
    /// The resources that a unit makes.
    Written(Unit),
    /// What a unit says of documents.
    Doubts(Unit),
    /// All that became of an object.
    Status(DocumentKey),
    /// How many rules of a document have something that gRPC clients cannot have.
    Unsupported(DocumentKey),
}

/// Who names the cluster without endpoints, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// A RouteConfiguration for Envoys, by its place.
    Table(usize, Name),
    /// One for gRPC clients, by the first name that is dialled.
    Dialled(String, HostKey),
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing but that it is there.
    Present,
    /// Yes or no.
    Flag(bool),
    Group(Option<Arc<NodeGroup>>),
    Standing(Arc<Parts>),
    Host(Arc<Host>),
    Stubs(Arc<Stubs>),
    Routes(Arc<[PlannedRoute]>),
    Listener(Arc<(EnvoyListener, Origin)>),
    Table(usize, Origin),
    Cluster(Arc<Cluster>),
    Assignment(Arc<Assignment>),
    Secret(Arc<TlsSecret>),
    Outline(Arc<Outline>),
    Verdict(Arc<Verdict>),
    Usage(Usage),
    Part(Part),
    Assembled(Assembled),
    Origin(Origin),
    Losses(Arc<[GrpcLoss]>),
    Written(Written),
    Doubts(Arc<[Diagnostic]>),
    Status(Arc<ObjectStatus>),
    Unsupported(Arc<[(GrpcFeature, usize)]>),
}

/// The routes of a host, as far as the plan as a whole knows them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stubs {
    /// The routes, in order.
    pub(crate) routes: Vec<PlannedRoute>,
    /// Whether Envoys are served the host.
    pub(crate) is_for_envoys: bool,
}

/// A host, without its routes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    /// What Envoys get of it; `None` if they do not.
    pub(crate) frame: Option<EnvoyFrame>,
    /// By which names gRPC clients dial it; `None` if they cannot.
    pub(crate) dialled: Option<Dialled>,
    /// Where it is from.
    pub(crate) origin: Origin,
}

/// A virtual host for Envoys.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Encoded; or why it cannot be.
    pub(crate) encoded: Result<Arc<VirtualHost>, Arc<[Diagnostic]>>,
    /// Whether a route of it must fail with UNAVAILABLE.
    pub(crate) needs_unavailable: bool,
}

impl PartialEq for Part {
    /// Encoded hosts are equal only if they are the very same: what is not looks at its bytes later.
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.encoded, &other.encoded) {
            (Ok(one), Ok(other)) => Arc::ptr_eq(one, other),
            (Err(one), Err(other)) => one == other,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        is_same && self.needs_unavailable == other.needs_unavailable
    }
}

/// What a RouteConfiguration was put together of.
#[derive(Clone, Debug)]
pub(crate) struct Assembled(pub(crate) Arc<[Arc<VirtualHost>]>);

impl PartialEq for Assembled {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Resources, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// The node group.
    pub(crate) group: GroupName,
    /// The kinds of clients.
    pub(crate) profiles: &'static [Profile],
    /// The resources.
    pub(crate) resources: Arc<[Arc<Resource>]>,
}

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Arc<Resource>, &Arc<Resource>)| is_same(one, other);
        self.profiles == other.profiles
            && self.resources.len() == other.resources.len()
            && self.resources.iter().zip(&*other.resources).all(is_same)
    }
}

/// Whether two resources are equal in every respect.
pub(crate) fn is_same(one: &Arc<Resource>, other: &Arc<Resource>) -> bool {
    Arc::ptr_eq(one, other)
        || one.key() == other.key() && one.version() == other.version() && one.origin() == other.origin()
}

impl Fact {
    /// The fact that stands for this one and others.
    pub(crate) fn covering(&self) -> Option<Self> {
        match self {
            Self::Document(Some(_)) => Some(Self::Document(None)),
            Self::Outline(Some(_)) => Some(Self::Outline(None)),
            Self::Slice(namespace, service, Some(_)) => {
                Some(Self::Slice(Arc::clone(namespace), Arc::clone(service), None))
            }
            Self::Grant(namespace, Some(_)) => Some(Self::Grant(Arc::clone(namespace), None)),
            Self::Policy(target, Some(_)) => Some(Self::Policy(target.clone(), None)),
            Self::Fallback(Some(_)) => Some(Self::Fallback(None)),
            Self::Use(cluster, Some(_)) => Some(Self::Use(cluster.clone(), None)),
            Self::Trusted(name, Some(_)) => Some(Self::Trusted(name.clone(), None)),
            Self::Part(table, Some(_)) => Some(Self::Part(table.clone(), None)),
            Self::Need(group, profile, Some(_)) => Some(Self::Need(group.clone(), *profile, None)),
            Self::Nowhere(group, profile, Some(_)) => Some(Self::Nowhere(group.clone(), *profile, None)),
            Self::GrpcUse(cluster, Some(_)) => Some(Self::GrpcUse(cluster.clone(), None)),
            Self::GrpcReach(cluster, Some(_)) => Some(Self::GrpcReach(cluster.clone(), None)),
            Self::Loss(document, Some(_)) => Some(Self::Loss(document.clone(), None)),
            Self::Document(None)
            | Self::Outline(None)
            | Self::Slice(_, _, None)
            | Self::Grant(_, None)
            | Self::Policy(_, None)
            | Self::Trusted(_, None)
            | Self::Fallback(None)
            | Self::Use(_, None)
            | Self::Verdict(_)
            | Self::Rules(_)
            | Self::Stubs(_)
            | Self::Certificate(_)
            | Self::Part(_, None)
            | Self::Need(_, _, None)
            | Self::Nowhere(_, _, None)
            | Self::GrpcUse(_, None)
            | Self::GrpcReach(_, None)
            | Self::Loss(_, None)
            | Self::Group(_)
            | Self::Standing(_)
            | Self::Host(_)
            | Self::Routes(_)
            | Self::Listener(_)
            | Self::Table(_)
            | Self::Cluster(_)
            | Self::Assignment(_)
            | Self::Uneven(_)
            | Self::Assembled(_)
            | Self::GrpcAssigned(_)
            | Self::Written(_)
            | Self::Doubts(_)
            | Self::Status(_)
            | Self::Unsupported(_) => None,
        }
    }

    /// Whether `all` is the fact that stands for this one and others.
    pub(crate) fn is_covered_by(&self, all: &Self) -> bool {
        let is_covered = match (self, all) {
            (Self::Document(Some(_)), Self::Document(None))
            | (Self::Outline(Some(_)), Self::Outline(None)) => true,
            (Self::Slice(namespace, service, Some(_)), Self::Slice(of_namespace, of_service, None)) => {
                (namespace, service) == (of_namespace, of_service)
            }
            (Self::Part(table, Some(_)), Self::Part(of_table, None)) => table == of_table,
            _ => self.covering().as_ref() == Some(all),
        };
        debug_assert_eq!(is_covered, self.covering().as_ref() == Some(all), "{self:?} {all:?}");
        is_covered
    }

    /// The units that there are because of this fact.
    pub(crate) fn units(&self) -> Vec<Unit> {
        match self {
            Self::Document(Some(key)) => {
                let rules = is_route(key.kind).then(|| Unit::Rules(key.clone()));
                let units = [Unit::Outline(key.clone()), Unit::Status(key.clone())];
                units.into_iter().chain(rules).collect()
            }
            Self::Outline(None) => vec![Unit::Plan],
            Self::Fallback(None) => vec![Unit::Fallbacks],
            Self::Stubs(host) => vec![Unit::Routes(host.clone())],
            Self::Use(name, Some(_)) => vec![Unit::Backend(name.clone())],
            Self::Standing(key) | Self::Loss(key, Some(_)) => vec![Unit::Status(key.clone())],
            Self::Host(host) => vec![Unit::Part(host.clone()), Unit::Dialled(host.clone())],
            Self::Listener(listener) => vec![Unit::Listener(listener.clone())],
            Self::Table(table) => vec![Unit::Table(table.clone())],
            Self::Cluster(name) => vec![Unit::Cluster(name.clone()), Unit::Assignment(name.clone())],
            Self::Certificate(name) | Self::Trusted(name, Some(_)) => vec![Unit::Secret(name.clone())],
            Self::GrpcUse(cluster, Some(_)) => vec![Unit::GrpcRoot(cluster.clone())],
            Self::GrpcReach(cluster, Some(_)) => vec![Unit::GrpcCluster(cluster.clone())],
            Self::Need(group, profile, Some(_)) | Self::Nowhere(group, profile, Some(_)) => {
                vec![Unit::Unavailable(group.clone(), *profile)]
            }
            Self::Document(None)
            | Self::Outline(Some(_))
            | Self::Slice(..)
            | Self::Grant(..)
            | Self::Policy(..)
            | Self::Fallback(Some(_))
            | Self::Verdict(_)
            | Self::Use(_, None)
            | Self::Rules(_)
            | Self::Trusted(_, None)
            | Self::Group(_)
            | Self::Routes(_)
            | Self::Assignment(_)
            | Self::Uneven(_)
            | Self::Part(..)
            | Self::Assembled(_)
            | Self::Need(_, _, None)
            | Self::Nowhere(_, _, None)
            | Self::GrpcUse(_, None)
            | Self::GrpcReach(_, None)
            | Self::GrpcAssigned(_)
            | Self::Loss(_, None)
            | Self::Written(_)
            | Self::Doubts(_)
            | Self::Status(_)
            | Self::Unsupported(_) => Vec::new(),
        }
    }
}
