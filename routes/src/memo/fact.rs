//! Facts that units read and write, each with a value.

use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup, Origin, Profile};

use crate::conditions::{Condition, GrpcFeature, ObjectStatus};
use crate::emit::{EnvoyFrame, EnvoyListener, GrpcLoss};
use crate::model::{DocumentKey, DocumentName, Kind, RouteKind};
use crate::plan::mesh;
use crate::plan::split::PlannedSplit;
use crate::plan::{
    Assignment, Cluster, Cost, Fault, Front, Host as HostName, ListenerKey, ObjectConditions, Outline,
    Parent, PlannedRoute, RefProblem, Requests, Seniority, TlsSecret, Usage, Verdict, is_route,
};

use super::hosts::{EncodedHost, Hosts};
use super::key::{HostKey, InGroup, Name, ServiceName};
use super::unit::Unit;
use crate::thin::Thin;

/// Something that a unit can depend on. A fact that ends with `None` represents all those that end with `Some`: it has no value itself,
/// and changes when one of them does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// A document; it is kept elsewhere.
    Document(Option<DocumentKey>),
    /// A document without the parts that change often.
    Outline(DocumentKey),
    /// Represents the outlines of a kind.
    Outlines(Kind),
    /// Present if there is a Gateway, of any controller.
    HasGateways,
    /// A Gateway.
    Gateway(DocumentKey),
    /// The Gateways of the native form.
    Natives,
    /// The number of Gateways of the native form, if routes cannot ask all of them.
    Throng,
    /// The number of routes that attach to all Gateways of the native form.
    Unnamed,
    /// The Gateway of a group that has the port of implicit gateways.
    ImplicitTaken(GroupName),
    /// A port of a group on which a Gateway listens, by name.
    GatewayPort(GroupName, u16, Option<Name>),
    /// A chain of a Gateway.
    Front(InGroup),
    /// The requests of a route to Gateways.
    Requests(Option<DocumentKey>),
    /// The resources that a route generates in the mesh.
    Calls(DocumentKey),
    /// A sum over the requests of all routes.
    Load(Option<Load>),
    /// The limit that a route exceeds, so that it gets no listener.
    Refused(DocumentKey),
    /// The limit that a route exceeds, so that it gets no port of a Service.
    MeshRefused(DocumentKey),
    /// The requests of a route to Gateways, if they were not computed yet.
    Admitted(DocumentKey),
    /// The number of routes of a listener.
    Attached(Arc<ListenerKey>),
    /// The route that brings a host to a listener: a route, or the Gateway itself; the value is the age.
    On(Arc<ListenerKey>, Thin<HostName>, Option<DocumentKey>),
    /// Represents all objects that bring hosts to a listener.
    Bids(Arc<ListenerKey>),
    /// The number of pairs of overlapping hosts of a listener from routes of kinds that exclude each other.
    Rivals(Arc<ListenerKey>),
    /// The number of hosts below this one that routes of a kind bring to a listener.
    Within(Arc<ListenerKey>, Thin<HostName>, RouteKind),
    /// A route that a listener does not accept because of a route of another kind.
    Lost(Arc<ListenerKey>, DocumentKey),
    /// A host of such a route.
    Off(Arc<ListenerKey>, Thin<HostName>, DocumentKey),
    /// A route for which a group needs an implicit gateway; the value is whether it attaches.
    Asks(GroupName, Option<DocumentKey>),
    /// An object that creates a node group.
    Makes(GroupName, Option<Maker>),
    /// An EndpointSlice of a Service.
    Slice(DocumentKey, Option<DocumentKey>),
    /// A ReferenceGrant of a namespace.
    Grant(Name, Option<DocumentKey>),
    /// A BackendTLSPolicy for a Service or Backend.
    Policy(DocumentKey, Option<DocumentKey>),
    /// A Backend that represents others.
    Fallback(Option<DocumentKey>),
    /// The verdict on a fallback.
    Verdict(DocumentKey),
    /// Every match of every rule of a route.
    Rules(DocumentKey),
    /// The faults of a route's rules.
    Faults(DocumentKey),
    /// The requests of a route to the Services that are its parents.
    Parents(DocumentKey),
    /// The plan of a split.
    Split(DocumentKey),
    /// A split of a group that names a Service as its root; the value is its age.
    Rival(GroupName, DocumentKey, Option<DocumentKey>),
    /// A split of a Service that is accepted.
    Divided(DocumentKey, Option<DocumentKey>),
    /// The other objects that want ports of a Service for the clients of a group.
    Wish(GroupName, DocumentKey, Option<DocumentKey>),
    /// The object that wants Envoys of a group to listen on a port.
    WishedPort(GroupName, u16, Option<DocumentKey>),
    /// A Service that clients of a group can call, by the first label of its names and the object that makes it so. The value is whether a
    /// document asks for it.
    Namesake(InGroup, Option<(DocumentKey, DocumentKey)>),
    /// A consumer route that creates a group; the value is its own group.
    Consumer(GroupName, Option<DocumentKey>),
    /// The number of ports of Services in a group.
    Ports(GroupName),
    /// The Services of a group whose names begin with a label.
    Names(InGroup),
    /// Present if Envoys of a group listen on a port of the mesh.
    Shown(GroupName, u16),
    /// A host of a Gateway, by its first label; not a wildcard. Clients that dial it reach the Gateway, not a Service.
    GatewayName(InGroup, Option<HostKey>),
    /// A Service at a port of the mesh.
    MeshService(InGroup, Option<ServiceName>),
    /// A Service that Envoys get at a port of the mesh.
    Framed(InGroup, Option<ServiceName>),
    /// A Service that Envoys get unchanged from another group; the value is that group.
    Loan(HostKey),
    /// A port of a Service that a document does not get; the value is the winner.
    LostPort(DocumentKey, Option<Thin<(GroupName, DocumentKey, u16)>>),
    /// A cluster of an object with policies; the value has the Gateways and Services that lead to it.
    Ancestors(DocumentKey, Option<InGroup>),
    /// A node group, with its definition if consumer routes create it.
    Group(GroupName),
    /// The conditions of an object, except for parts that gRPC clients do not support.
    Standing(DocumentKey),
    /// The host of a chain that represents those of the other chains.
    Misdirected(HostKey),
    /// The routes of a host.
    Routes(HostKey),
    /// A wildcard host with routes, in a chain with hosts on demand. An Envoy that has it never asks for the hosts that it covers.
    Hides(InGroup, Option<HostKey>),
    /// A chain of Gateways with this host, by its port.
    Named(InGroup, Option<(u16, InGroup)>),
    /// How the routes of a host use a cluster.
    Use(InGroup, Option<HostKey>),
    /// A Listener for Envoys.
    Listener(InGroup),
    /// A RouteConfiguration for Envoys without its hosts: its position and its origin.
    Table(InGroup),
    /// A cluster.
    Cluster(InGroup),
    /// The endpoints of a cluster.
    Assignment(InGroup),
    /// Present if the endpoints of a cluster have different weights within a zone.
    Uneven(InGroup),
    /// Present if a listener has the certificate with this name.
    Certificate(InGroup),
    /// Certificates that a cluster trusts, by their name and the cluster's.
    Trusted(InGroup, Option<Name>),
    /// A virtual host of a RouteConfiguration for Envoys.
    Part(InGroup, HostKey),
    /// The virtual hosts of a RouteConfiguration for Envoys, collected.
    Hosts(InGroup),
    /// The virtual hosts from which a RouteConfiguration was assembled.
    Assembled(InGroup),
    /// An object that names the cluster without endpoints; the value is its origin.
    Need(GroupName, Profile, Option<Arc<Claim>>),
    /// A cluster in which all requests fail, so that it names the assignment without endpoints; the value is its origin.
    Nowhere(GroupName, Profile, Option<Name>),
    /// A host for gRPC clients that names a cluster.
    GrpcUse(InGroup, Option<HostKey>),
    /// A cluster for gRPC clients that leads to a cluster, or is it; the value is whether it has sessions.
    GrpcReach(InGroup, Option<Name>),
    /// Present if a cluster for gRPC clients uses the assignment with this name.
    GrpcAssigned(InGroup),
    /// The parts of a document's routes at a host that gRPC clients do not support.
    Loss(DocumentKey, Option<HostKey>),
    /// The effect of unsupported policies on an object.
    Affected(DocumentKey),
    /// The complete status of an object.
    Status(DocumentKey),
    /// The number of rules of a document with features that gRPC clients do not support.
    Unsupported(DocumentKey),
}

/// The users of the cluster without endpoints, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// A RouteConfiguration for Envoys, by its position.
    Table(TablePlace, Name),
    /// A virtual host that Envoys get on demand.
    Host(HostKey),
    /// A host for gRPC clients, by its first name.
    Dialled(Name, HostKey),
}

/// The position of a RouteConfiguration for Envoys among the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TablePlace {
    /// The table of a chain, by the name of its port and its index there.
    Gateway(Name, usize),
    /// The table of a port of the mesh.
    Mesh(u16),
}

/// The sum of the requests of routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    /// How often Gateways and listeners are asked.
    Asked,
    /// The sum of a group's routes at all of their hosts.
    Group(GroupName),
    /// The number of hosts that routes bring to a listener, and the cost of routes at wildcard hosts.
    Listener(Arc<ListenerKey>),
    /// The number of ports of Services that consumers ask for.
    Consumed,
    /// The number of ports of Services.
    Ports,
}

/// The maker of a node group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Maker {
    /// A Gateway with a document.
    Gateway,
    /// An implicit gateway.
    Implicit,
}

// Every route has dozens of each.
const _: () = assert!(size_of::<Fact>() == 32 && size_of::<Value>() == 24 && size_of::<Unit>() == 16);

/// The value of a fact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// No value: the fact is present.
    Present,
    /// Yes or no.
    Flag(bool),
    /// Numbers of routes, hosts and bytes.
    Sum(Box<Sum>),
    /// A Gateway; `None` if it is of another controller.
    Gateway(Option<Arc<Parent>>),
    Gateways(Arc<[Arc<Parent>]>),
    Key(DocumentKey),
    Front(Arc<Front>),
    Requests(Arc<Requests>),
    Calls(Arc<Calls>),
    Refused(Arc<RefusedRoute>),
    Fault(Arc<Fault>),
    /// A `creationTimestamp`.
    Age(Option<i64>),
    Faults(Arc<Faults>),
    Affected(Arc<[Affected]>),
    Group(Option<Arc<NodeGroup>>),
    Standing(Arc<ObjectConditions>),
    Frame(Arc<EnvoyFrame>),
    Parents(Arc<[mesh::ServiceRequest]>),
    Split(Arc<PlannedSplit>),
    Seniority(Box<Seniority>),
    Wish(Arc<mesh::Wish>),
    Home(GroupName),
    Names(Arc<Names>),
    Service(Arc<MeshPort>),
    Ancestors(Arc<[String]>),
    Routes(Arc<[PlannedRoute]>),
    Listener(Arc<(EnvoyListener, Origin)>),
    Table(Arc<(TablePlace, Origin)>),
    Cluster(Arc<Cluster>),
    Assignment(Arc<Assignment>),
    Secret(Arc<TlsSecret>),
    Outline(Arc<Outline>),
    Verdict(Arc<Verdict>),
    Usage(Usage),
    Part(Box<EncodedHost>),
    Hosts(Arc<Hosts>),
    Assembled(Assembled),
    Origin(Box<Origin>),
    Losses(Arc<[GrpcLoss]>),
    Status(Arc<ObjectStatus>),
    Unsupported(Arc<[(GrpcFeature, usize)]>),
}

impl Value {
    /// An estimate of the memory that it takes besides its place, if that can be much: the routes of hosts.
    pub(super) fn n_bytes(&self) -> usize {
        if let Self::Routes(routes) = self {
            return routes.len() * ROUTE_BYTES;
        }
        let Self::Part(host) = self else { return 0 };
        host.encoded.as_ref().map_or(0, |host| host.n_bytes())
    }
}

/// A route of a host. Its texts are mostly shared with other hosts.
const ROUTE_BYTES: usize = 2 * size_of::<PlannedRoute>();

/// Routes, hosts and bytes that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) routes: i64,
    pub(crate) hosts: i64,
    pub(crate) bytes: i64,
}

/// An upper bound of the resources that a route generates in the mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Calls {
    /// The group of the route.
    pub(crate) group: GroupName,
    /// The cost at all ports.
    pub(crate) cost: Cost,
    /// The number of ports for clients of another namespace.
    pub(crate) n_consumed: usize,
}

/// A route that is refused by the limits of its group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RefusedRoute {
    /// The limit that it exceeds.
    pub(crate) fault: Fault,
    /// True if its Gateways were not asked.
    pub(crate) is_tired: bool,
    /// The listeners that would accept it.
    pub(crate) listeners: Vec<Arc<ListenerKey>>,
}

/// The faults of a route's rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Faults {
    /// The references that cannot be followed.
    pub(crate) problems: Vec<RefProblem>,
    /// The parts of the rules that have no effect.
    pub(crate) partly_invalid: Vec<String>,
}

/// The effect of policies on an object, or on one of its listeners.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Affected {
    /// The listener, if the policies are only for that.
    pub(crate) listener: Option<String>,
    /// The condition.
    pub(crate) condition: Condition,
}

/// The Services of a group whose names begin with a label.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Names {
    /// For each name of Services: the namespaces of all of them, and the namespaces of those that documents ask for.
    pub(crate) services: Vec<(Name, Sole, Sole)>,
    /// The names by which clients dial a Gateway.
    pub(crate) of_gateways: Vec<String>,
    /// True if two of them could have the same name.
    pub(crate) may_clash: bool,
}

impl Names {
    pub(crate) fn add(&mut self, service: &DocumentKey, is_asked_for: bool) {
        let DocumentName { namespace, name, .. } = &**service;
        let is_plain = |part: &Name| !part.contains(['.', ':']);
        self.may_clash |= !is_plain(name) || !is_plain(namespace);
        let known = self.services.iter().position(|(known, ..)| known == name);
        let at = known.unwrap_or_else(|| {
            self.services.push((Arc::clone(name), Sole::default(), Sole::default()));
            self.services.len() - 1
        });
        if let Some((_, all, asked_for)) = self.services.get_mut(at) {
            all.add(namespace);
            if is_asked_for {
                asked_for.add(namespace);
            }
        }
    }
}

/// The namespaces of Services with the same name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Sole {
    #[default]
    None,
    Only(Name),
    Several,
}

impl Sole {
    pub(crate) fn add(&mut self, namespace: &Name) {
        self.join(&Self::Only(Arc::clone(namespace)));
    }

    pub(crate) fn join(&mut self, other: &Self) {
        *self = match (&*self, other) {
            (Self::None, other) => other.clone(),
            (Self::Only(one), Self::Only(other)) if one != other => Self::Several,
            (Self::Only(_), Self::Several) => Self::Several,
            (Self::Only(_) | Self::Several, _) => return,
        };
    }
}

/// A Service at a port of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeshPort {
    /// True if its name without namespace is unique.
    pub(crate) has_short_name: bool,
    /// True if it is the lowest port of the Service, which is also dialled without a port.
    pub(crate) is_lowest_port: bool,
    /// True if no document asks for it. Its only route leads to itself.
    pub(crate) is_implicit: bool,
    /// The Service.
    pub(crate) origin: Origin,
    /// The names by which clients dial something else.
    pub(crate) lost: Vec<String>,
}

impl MeshPort {
    /// The names by which gRPC clients dial it.
    pub(crate) fn dialled(&self, namespace: &str, name: &str, port: u16) -> Vec<String> {
        let mut names =
            mesh::dialled(mesh::hosts(namespace, name, self.has_short_name), port, self.is_lowest_port);
        names.retain(|name| !self.lost.contains(name));
        names
    }
}

/// The parts of a RouteConfiguration.
#[derive(Clone, Debug)]
pub(crate) struct Assembled(pub(crate) Arc<Hosts>);

impl PartialEq for Assembled {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Fact {
    /// The fact that represents this one and others.
    #[expect(clippy::too_many_lines, reason = "a line for each kind of fact")]
    pub(crate) fn covering(&self) -> Option<Self> {
        match self {
            Self::Document(Some(_)) => Some(Self::Document(None)),
            Self::Slice(service, Some(_)) => Some(Self::Slice(service.clone(), None)),
            Self::GatewayPort(group, port, Some(_)) => Some(Self::GatewayPort(group.clone(), *port, None)),
            Self::Requests(Some(_)) => Some(Self::Requests(None)),
            Self::Load(Some(_)) => Some(Self::Load(None)),
            Self::On(listener, host, Some(_)) | Self::Off(listener, host, _) => {
                Some(Self::On(Arc::clone(listener), host.clone(), None))
            }
            Self::Asks(group, Some(_)) => Some(Self::Asks(group.clone(), None)),
            Self::Makes(group, Some(_)) => Some(Self::Makes(group.clone(), None)),
            Self::Named(host, Some(_)) => Some(Self::Named(host.clone(), None)),
            Self::Rival(group, root, Some(_)) => Some(Self::Rival(group.clone(), root.clone(), None)),
            Self::Divided(service, Some(_)) => Some(Self::Divided(service.clone(), None)),
            Self::Wish(group, service, Some(_)) => Some(Self::Wish(group.clone(), service.clone(), None)),
            Self::WishedPort(group, port, Some(_)) => Some(Self::WishedPort(group.clone(), *port, None)),
            Self::Namesake(label, Some(_)) => Some(Self::Namesake(label.clone(), None)),
            Self::Consumer(group, Some(_)) => Some(Self::Consumer(group.clone(), None)),
            Self::GatewayName(label, Some(_)) => Some(Self::GatewayName(label.clone(), None)),
            Self::MeshService(table, Some(_)) => Some(Self::MeshService(table.clone(), None)),
            Self::Framed(table, Some(_)) => Some(Self::Framed(table.clone(), None)),
            Self::LostPort(document, Some(_)) => Some(Self::LostPort(document.clone(), None)),
            Self::Ancestors(target, Some(_)) => Some(Self::Ancestors(target.clone(), None)),
            Self::Grant(namespace, Some(_)) => Some(Self::Grant(Arc::clone(namespace), None)),
            Self::Policy(target, Some(_)) => Some(Self::Policy(target.clone(), None)),
            Self::Fallback(Some(_)) => Some(Self::Fallback(None)),
            Self::Use(cluster, Some(_)) => Some(Self::Use(cluster.clone(), None)),
            Self::Trusted(name, Some(_)) => Some(Self::Trusted(name.clone(), None)),
            Self::Hides(table, Some(_)) => Some(Self::Hides(table.clone(), None)),
            Self::Need(group, profile, Some(_)) => Some(Self::Need(group.clone(), *profile, None)),
            Self::Nowhere(group, profile, Some(_)) => Some(Self::Nowhere(group.clone(), *profile, None)),
            Self::GrpcUse(cluster, Some(_)) => Some(Self::GrpcUse(cluster.clone(), None)),
            Self::GrpcReach(cluster, Some(_)) => Some(Self::GrpcReach(cluster.clone(), None)),
            Self::Loss(document, Some(_)) => Some(Self::Loss(document.clone(), None)),
            Self::Document(None)
            | Self::Outline(_)
            | Self::Outlines(_)
            | Self::HasGateways
            | Self::Gateway(_)
            | Self::Natives
            | Self::Throng
            | Self::Unnamed
            | Self::ImplicitTaken(_)
            | Self::GatewayPort(_, _, None)
            | Self::Front(_)
            | Self::Requests(None)
            | Self::Calls(_)
            | Self::Load(None)
            | Self::Refused(_)
            | Self::MeshRefused(_)
            | Self::Admitted(_)
            | Self::Attached(_)
            | Self::On(_, _, None)
            | Self::Bids(_)
            | Self::Rivals(_)
            | Self::Within(..)
            | Self::Lost(..)
            | Self::Asks(_, None)
            | Self::Makes(_, None)
            | Self::Faults(_)
            | Self::Group(_)
            | Self::Parents(_)
            | Self::Split(_)
            | Self::Rival(_, _, None)
            | Self::Divided(_, None)
            | Self::Wish(_, _, None)
            | Self::WishedPort(_, _, None)
            | Self::Namesake(_, None)
            | Self::Consumer(_, None)
            | Self::Ports(_)
            | Self::Names(..)
            | Self::Shown(..)
            | Self::GatewayName(_, None)
            | Self::MeshService(_, None)
            | Self::Framed(_, None)
            | Self::Loan(_)
            | Self::LostPort(_, None)
            | Self::Ancestors(_, None)
            | Self::Named(_, None)
            | Self::Affected(_)
            | Self::Slice(_, None)
            | Self::Grant(_, None)
            | Self::Policy(_, None)
            | Self::Trusted(_, None)
            | Self::Fallback(None)
            | Self::Use(_, None)
            | Self::Verdict(_)
            | Self::Rules(_)
            | Self::Certificate(_)
            | Self::Part(..)
            | Self::Hosts(_)
            | Self::Hides(_, None)
            | Self::Need(_, _, None)
            | Self::Nowhere(_, _, None)
            | Self::GrpcUse(_, None)
            | Self::GrpcReach(_, None)
            | Self::Loss(_, None)
            | Self::Standing(_)
            | Self::Misdirected(_)
            | Self::Routes(_)
            | Self::Listener(_)
            | Self::Table(_)
            | Self::Cluster(_)
            | Self::Assignment(_)
            | Self::Uneven(_)
            | Self::Assembled(_)
            | Self::GrpcAssigned(_)
            | Self::Status(_)
            | Self::Unsupported(_) => None,
        }
    }

    /// Returns `true` if `all` is the fact that represents this one and others.
    pub(crate) fn is_covered_by(&self, all: &Self) -> bool {
        let is_covered = match (self, all) {
            (Self::Document(Some(_)), Self::Document(None)) => true,
            (Self::Slice(service, Some(_)), Self::Slice(of_service, None)) => service == of_service,
            _ => self.covering().as_ref() == Some(all),
        };
        debug_assert_eq!(is_covered, self.covering().as_ref() == Some(all), "{self:?} {all:?}");
        is_covered
    }

    /// Another fact that represents this one and others.
    pub(crate) fn wider(&self) -> Option<Self> {
        if let Self::Outline(key) = self {
            return Some(Self::Outlines(key.kind));
        }
        if let Self::On(listener, _, Some(_)) = self {
            return Some(Self::Bids(Arc::clone(listener)));
        }
        None
    }

    /// The units that exist because of this fact. They are not recorded as its readers.
    #[expect(clippy::too_many_lines, reason = "a line for each kind of fact")]
    pub(crate) fn units(&self) -> impl Iterator<Item = Unit> + use<> {
        let one = |unit| [Some(unit), None, None];
        let two = |unit, other| [Some(unit), Some(other), None];
        let units = match self {
            Self::Document(Some(key)) => {
                let rules = is_route(key.kind).then(|| Unit::Rules(key.clone()));
                let split = (key.kind == Kind::TrafficSplit).then(|| Unit::Split(key.clone()));
                let has_status =
                    matches!(key.kind, Kind::TrafficSplit | Kind::BackendTlsPolicy | Kind::Backend);
                let status = (has_status || is_route(key.kind)).then(|| Unit::Status(key.clone()));
                [Some(Unit::Outline(key.clone())), status, rules.or(split)]
            }
            Self::Outline(key) if is_route(key.kind) => {
                two(Unit::Attachment(key.clone()), Unit::Status(key.clone()))
            }
            Self::Outlines(Kind::GatewayClass | Kind::Gateway) => one(Unit::Gateways),
            Self::Outlines(Kind::Policy) => one(Unit::Policies),
            Self::Load(_) => one(Unit::Ledger),
            Self::Requests(Some(key)) | Self::Admitted(key) | Self::Refused(key) => {
                two(Unit::Bids(key.clone()), Unit::Status(key.clone()))
            }
            Self::On(listener, host, _) => {
                let ListenerKey { group, chain, .. } = &**listener;
                one(Unit::Host(HostKey::of_chain(group, chain, host.as_str())))
            }
            Self::Rivals(listener) => one(Unit::Kinds(Arc::clone(listener))),
            Self::Lost(_, key) | Self::Faults(key) | Self::Affected(key) => one(Unit::Status(key.clone())),
            Self::Attached(listener) => one(Unit::Status(listener.gateway.clone())),
            Self::Asks(group, _) => one(Unit::Implicit(group.clone())),
            Self::Makes(group, _) => one(Unit::Group(group.clone())),
            Self::Routes(host) if host.namespace.is_empty() => {
                two(Unit::Part(host.clone()), Unit::Dialled(host.clone()))
            }
            Self::Parents(key) => one(Unit::Wishes(key.clone())),
            Self::Wish(group, service, _) => one(Unit::Mesh(Thin::new((group.clone(), service.clone())))),
            Self::WishedPort(group, port, _) => one(Unit::Port(group.clone(), *port)),
            Self::Namesake(label, Some((service, _))) => {
                let mesh = Thin::new((label.group.clone(), service.clone()));
                two(Unit::Names(label.clone()), Unit::Mesh(mesh))
            }
            Self::Namesake(label, None) | Self::GatewayName(label, _) => one(Unit::Names(label.clone())),
            Self::Consumer(group, _) | Self::Ports(group) => one(Unit::Group(group.clone())),
            Self::Shown(group, port) => {
                two(Unit::Borrow(group.clone(), *port), Unit::MeshTable(group.clone(), *port))
            }
            Self::Loan(host) => one(Unit::Loan(host.clone())),
            Self::MeshService(table, Some(name)) => one(Unit::Dialled(HostKey::of_service(table, name))),
            Self::Framed(table, Some(name)) => one(Unit::Part(HostKey::of_service(table, name))),
            Self::LostPort(key, _) => one(Unit::Status(key.clone())),
            Self::Fallback(None) => one(Unit::Fallbacks),
            Self::Use(name, _) => one(Unit::Backend(name.clone())),
            Self::Standing(key) | Self::Loss(key, _) => one(Unit::Status(key.clone())),
            Self::Misdirected(host) => one(Unit::Part(host.clone())),
            Self::Listener(listener) => one(Unit::Listener(listener.clone())),
            Self::Table(table) => one(Unit::Table(table.clone())),
            Self::Cluster(name) => two(Unit::Cluster(name.clone()), Unit::Assignment(name.clone())),
            Self::Certificate(name) | Self::Trusted(name, _) => one(Unit::Secret(name.clone())),
            Self::GrpcUse(cluster, _) => one(Unit::GrpcRoot(cluster.clone())),
            Self::GrpcReach(cluster, _) => one(Unit::GrpcCluster(cluster.clone())),
            Self::Need(group, profile, _) | Self::Nowhere(group, profile, _) => {
                one(Unit::Unavailable(group.clone(), *profile))
            }
            Self::Document(None)
            | Self::Outline(_)
            | Self::Outlines(_)
            | Self::HasGateways
            | Self::Gateway(_)
            | Self::Natives
            | Self::Throng
            | Self::Unnamed
            | Self::ImplicitTaken(_)
            | Self::GatewayPort(..)
            | Self::Front(_)
            | Self::Requests(None)
            | Self::Calls(_)
            | Self::MeshRefused(_)
            | Self::Bids(_)
            | Self::Within(..)
            | Self::Off(..)
            | Self::Named(..)
            | Self::Routes(_)
            | Self::Split(_)
            | Self::Rival(..)
            | Self::Divided(..)
            | Self::Names(..)
            | Self::MeshService(_, None)
            | Self::Framed(_, None)
            | Self::Ancestors(..)
            | Self::Slice(..)
            | Self::Grant(..)
            | Self::Policy(..)
            | Self::Fallback(Some(_))
            | Self::Verdict(_)
            | Self::Rules(_)
            | Self::Group(_)
            | Self::Assignment(_)
            | Self::Uneven(_)
            | Self::Part(..)
            | Self::Hosts(_)
            | Self::Hides(..)
            | Self::Assembled(_)
            | Self::GrpcAssigned(_)
            | Self::Status(_)
            | Self::Unsupported(_) => [const { None }; 3],
        };
        units.into_iter().flatten()
    }
}
