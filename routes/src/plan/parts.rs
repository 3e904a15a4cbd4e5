//! The parts of a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use xds_cache::{DrainPolicy, Origin};

use crate::model::{
    BackendLimits, Cors, DocumentKey, DocumentName, Fraction, HeaderEdits, Hostname, LbPolicy, Match,
    PathRewrite, Redirect, Retry, SessionPersistence, Timeouts,
};
use crate::rare::{Rare, Silent};

/// The configuration of one node group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The ports of gateways, sorted by name.
    pub ports: Vec<Port>,
    /// The services of the mesh, sorted by namespace, name and port: units plan them one by one.
    #[cfg(test)]
    pub services: Vec<MeshService>,
    /// Every cluster that a route or another cluster names, by backend name.
    pub clusters: BTreeMap<String, Cluster>,
    /// The endpoints of clusters, by name.
    pub assignments: BTreeMap<String, Assignment>,
    /// The secrets that listeners and clusters name, by name.
    pub secrets: BTreeMap<String, TlsSecret>,
}

/// A port on which a gateway listens.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// `namespace/gateway/port`: the name of the Envoy listener.
    pub name: String,
    /// The address on which it listens; `None` for every IPv4 address, because a host without IPv6 cannot listen on both kinds.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// For HTTP, exactly one chain without TLS. For HTTPS, one for each listener, with distinct server names.
    pub chains: Vec<Chain>,
    /// The Gateway.
    pub origin: Origin,
}

/// The filter chain for a server name on a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The name of its RouteConfiguration: `namespace/gateway/port`, followed by `/listener` if there is TLS.
    pub name: String,
    /// The TLS settings; `None` for plaintext.
    pub tls: Option<TlsTermination>,
    /// True if Envoys get it. They do not get a chain with TLS but without a valid certificate, which is only for gRPC clients. If a port has
    /// no other chain, Envoys do not listen on it.
    pub is_programmed: bool,
    /// Sorted by host, without duplicates. May be empty. Hosts without routes answer with "not found".
    pub hosts: Vec<VirtualHost>,
}

/// The TLS settings of a chain.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct TlsTermination {
    /// The server name; `None` for all.
    pub server_name: Option<Hostname>,
    /// The names of [`TlsSecret`]s with a certificate, without duplicates. At least one if the chain is programmed, otherwise none.
    pub certificates: Vec<String>,
}

/// A host and its routes.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    /// The host.
    pub host: Host,
    /// In order of precedence: the first one that matches is used. Routes of less specific hosts of the same listener are at the end (the
    /// cascade).
    pub routes: Vec<PlannedRoute>,
}

/// The host of a virtual host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// Every host.
    Any,
    /// A name, or `*.` and a suffix.
    Name(Hostname),
}

impl Host {
    /// Returns `true` if it stands for more than one name.
    pub(crate) fn is_wildcard(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Name(name) => name.wildcard_suffix().is_some(),
        }
    }

    /// The host with this text. A text that is not a host name is read as `*`.
    pub(crate) fn of(text: &str) -> Self {
        Hostname::new(text).map_or(Self::Any, Self::Name)
    }

    /// The form of xDS: `*`, `*.example.com` or `example.com`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Any => "*",
            Self::Name(name) => name.as_str(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A port of a service of the mesh, and the routes to it.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq)]
pub struct MeshService {
    /// The service's namespace.
    pub namespace: String,
    /// The service's name.
    pub name: String,
    /// The port's number.
    pub port: u16,
    /// Its names without port, the shortest first: `svc` (only if no other service of the plan has this name), `svc.ns`, `svc.ns.svc`,
    /// `svc.ns.svc.cluster.local`.
    pub hosts: Vec<String>,
    /// In order of precedence.
    pub routes: Vec<PlannedRoute>,
    /// True if it is the lowest port of the Service, which is also dialled without a port.
    pub is_lowest_port: bool,
    /// True if no document asks for it. Its only route leads to itself.
    pub is_implicit: bool,
    /// True if it belongs to another group, and is here only because Envoys need all Services of a port in one group.
    pub is_borrowed: bool,
    /// The Service.
    pub origin: Origin,
}

/// The match of a document that a route comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId {
    /// The document.
    pub document: DocumentKey,
    /// The rule's index.
    pub rule: usize,
    /// The rule's name.
    pub rule_name: Option<Box<str>>,
    /// The match's index.
    pub match_index: usize,
}

impl fmt::Display for RouteId {
    /// Writes `GRPCRoute/prod/greeter/0/1`: kind, namespace, name, rule (its name, or its index) and match.
    ///
    /// A name of only digits is written `name:0`, to distinguish it from an index. No name has a `:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DocumentName { kind, namespace, name } = &*self.document;
        write!(f, "{kind}/{namespace}/{name}/")?;
        match &self.rule_name {
            Some(rule) if rule.bytes().all(|byte| byte.is_ascii_digit()) => write!(f, "name:{rule}")?,
            Some(rule) => write!(f, "{rule}")?,
            None => write!(f, "{}", self.rule)?,
        }
        write!(f, "/{}", self.match_index)
    }
}

/// One match of one rule, with the action for its requests.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct PlannedRoute {
    /// The match that it comes from. Unique within a virtual host. Its text is the name of the xDS route.
    pub id: RouteId,
    /// True if its requests are gRPC. Then failures are UNAVAILABLE instead of 500, and there is no time limit by default.
    pub is_grpc: bool,
    /// The requests that it takes.
    pub matches: Match,
    /// The action for them.
    pub action: Action,
    /// The other effects on them.
    pub(crate) effects: Rare<Effects>,
}

/// The effects on every request of a route, besides its action.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Effects {
    /// Changes of request headers, for every backend.
    pub request_edits: HeaderEdits,
    /// Changes of response headers, for every backend.
    pub response_edits: HeaderEdits,
    /// The mirrors.
    pub mirrors: Vec<Mirror>,
    /// The new host.
    pub host_rewrite: Option<String>,
    /// The new path.
    pub path_rewrite: Option<PathRewrite>,
    /// Cross-origin requests.
    pub cors: Option<Cors>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Retry>,
    /// Session persistence.
    pub session: Option<Session>,
}

impl Silent for Effects {
    const SILENT: &Self = &Self {
        request_edits: HeaderEdits::NONE,
        response_edits: HeaderEdits::NONE,
        mirrors: Vec::new(),
        host_rewrite: None,
        path_rewrite: None,
        cors: None,
        timeouts: Timeouts { request: None, backend_request: None },
        retry: None,
        session: None,
    };
}

impl PlannedRoute {
    /// A route without further effects.
    pub(crate) fn plain(id: RouteId, is_grpc: bool, matches: Match, action: Action) -> Self {
        Self { id, is_grpc, matches, action, effects: Rare::default() }
    }
}

/// The action for the requests of a route.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Action {
    /// Requests go to the targets by weight. There is at least one target, in the order of the document; targets with weight 0 stay in the
    /// list, and no two have the same backend. The sum of weights is from 1 to 2^32-1.
    Forward(Vec<Weighted>),
    /// Requests are redirected.
    Redirect(Box<Redirect>),
    /// All requests fail: with UNAVAILABLE if the route is gRPC, otherwise with 500.
    Fail,
}

/// A target with its weight.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Weighted {
    /// The target.
    pub target: Target,
    /// The weight, relative to the other targets.
    pub weight: u32,
    /// Changes of request headers for this target only.
    pub(crate) request_edits: Rare<HeaderEdits>,
    /// Changes of response headers for this target only.
    pub(crate) response_edits: Rare<HeaderEdits>,
}

impl Weighted {
    /// A target without changes of headers.
    pub(crate) fn plain(target: Target, weight: u32) -> Self {
        Self { target, weight, request_edits: Rare::default(), response_edits: Rare::default() }
    }
}

/// A target of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A backend.
    Backend(ClusterRef),
    /// An invalid reference, whose share of the requests fails.
    Broken,
}

/// A backend with the protocol of its connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterRef {
    /// The key in [`Plan::clusters`]: `namespace/service/port` or `namespace/backend`.
    pub name: String,
    /// The protocol.
    pub protocol: BackendProtocol,
}

/// The protocol towards a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A copy of requests for another backend.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Mirror {
    /// The backend that gets the copies.
    pub backend: ClusterRef,
    /// The share; never 0.
    pub fraction: Fraction,
}

/// Session persistence of a rule.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Session {
    /// The name of the cookie or header: the given one, or one derived from the rule's identity, so that no two rules share it.
    pub name: String,
    /// The settings of the document.
    pub persistence: SessionPersistence,
}

/// A backend as a cluster.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Cluster {
    /// The protocols that routes for Envoys use, sorted; empty if only gRPC clients reach it.
    pub protocols: Vec<BackendProtocol>,
    /// The source of its endpoints.
    pub discovery: Discovery,
    /// TLS towards it.
    pub tls: Option<UpstreamTls>,
    /// How requests are distributed.
    pub lb_policy: LbPolicy,
    /// The limits for each client.
    pub limits: BackendLimits,
    /// True if a route with session persistence reaches it.
    pub has_sessions: bool,
    /// True if it is a member of an aggregate, so dead endpoints must be detected.
    pub is_fallback_member: bool,
    /// How long it and its endpoints drain. Missing times are those of the group.
    pub drain: DrainPolicy,
    /// The Service or Backend.
    pub origin: Origin,
}

/// The source of a cluster's endpoints.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Discovery {
    /// An assignment in [`Plan::assignments`].
    Eds {
        /// Its name.
        assignment: String,
    },
    /// Host names and ports that the client resolves; at least one.
    Dns(Vec<(String, u16)>),
    /// Addresses that only Envoy supports in one cluster: Unix sockets, or a mix of host names and addresses.
    Static(Vec<Address>),
    /// Other clusters, of which the first with healthy endpoints is used. They are keys of [`Plan::clusters`]: at least one, without
    /// duplicates or cycles, and at most 16 on a path.
    Aggregate(Vec<String>),
}

/// The address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// An address and port.
    Ip(IpAddr, u16),
    /// A host name and port.
    Dns(String, u16),
    /// A Unix socket.
    Unix(String),
}

/// TLS towards a cluster.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum UpstreamTls {
    /// The backend's certificate is verified.
    Verified {
        /// The name sent as SNI.
        sni: String,
        /// Host names and URIs, at least one. The certificate must have one of them.
        alt_names: Vec<String>,
        /// The name of a [`TlsSecret`] with trusted certificates; `None` means those of the system.
        trusted: Option<String>,
    },
    /// TLS is required but cannot be set up, so every request fails.
    Invalid,
}

/// A secret for clients.
#[derive(Clone, PartialEq, Hash)]
pub enum TlsSecret {
    /// A certificate chain and its key, in PEM. **Secret.**
    Certificate {
        /// The chain.
        chain_pem: String,
        /// The key.
        key_pem: String,
        /// The Secret.
        origin: Origin,
    },
    /// Trusted certificates, in PEM.
    Trusted {
        /// The certificates.
        ca_pem: String,
        /// The ConfigMap or Secret.
        origin: Origin,
    },
}

impl fmt::Debug for TlsSecret {
    /// Shows the identity, never the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate { .. } => "Certificate",
            Self::Trusted { .. } => "Trusted",
        })
    }
}

/// The endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Assignment {
    /// Sorted by zone, without duplicates. May be empty.
    pub localities: Vec<Locality>,
    /// The Service or Backend.
    pub origin: Origin,
}

/// The endpoints of one zone.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Locality {
    /// The zone; empty if unknown.
    pub zone: String,
    /// Sorted by address. No address appears twice in an assignment.
    pub endpoints: Vec<Endpoint>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Its health.
    pub health: Health,
    /// Its weight, from 1; `None` for the same weight as others.
    pub weight: Option<u32>,
}

/// The health of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It takes requests.
    Healthy,
    /// It serves existing sessions, and gets no new ones.
    Draining,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    #[test]
    fn a_route_is_named_by_its_rule_and_no_name_of_a_rule_is_another_ones_index() {
        let document = DocumentKey::new(Kind::GrpcRoute, "prod", "greeter");
        let table = [
            (None, "GRPCRoute/prod/greeter/7/1"),
            (Some("checkout"), "GRPCRoute/prod/greeter/checkout/1"),
            (Some("v7"), "GRPCRoute/prod/greeter/v7/1"),
            (Some("7.0"), "GRPCRoute/prod/greeter/7.0/1"),
            (Some("7"), "GRPCRoute/prod/greeter/name:7/1"),
            (Some("07"), "GRPCRoute/prod/greeter/name:07/1"),
        ];
        for (name, expected) in table {
            let rule_name = name.map(Into::into);
            let id = RouteId { document: document.clone(), rule: 7, rule_name, match_index: 1 };
            assert_eq!(id.to_string(), expected);
        }
    }
}
