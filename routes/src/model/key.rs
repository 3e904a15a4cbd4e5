//! The kinds of documents, and their identity.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::thin::Thin;

/// The kinds of documents. Listeners of the native form become [`Gateway`](Kind::Gateway)s, backends become
/// [`Backend`](Kind::Backend)s, and routes become [`Route`](Kind::Route)s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `gateway.networking.k8s.io` GatewayClass.
    GatewayClass,
    /// `gateway.networking.k8s.io` Gateway, or a listener of the native form.
    Gateway,
    /// `gateway.networking.k8s.io` GRPCRoute.
    GrpcRoute,
    /// `gateway.networking.k8s.io` HTTPRoute.
    HttpRoute,
    /// A route of the native form.
    Route,
    /// `gateway.networking.k8s.io` ReferenceGrant.
    ReferenceGrant,
    /// `gateway.networking.k8s.io` BackendTLSPolicy.
    BackendTlsPolicy,
    /// `gateway.envoyproxy.io` Backend, or a backend of the native form.
    Backend,
    /// Core Service.
    Service,
    /// `discovery.k8s.io` EndpointSlice.
    EndpointSlice,
    /// Core Endpoints.
    Endpoints,
    /// Core Namespace.
    Namespace,
    /// Core Secret.
    Secret,
    /// Core ConfigMap.
    ConfigMap,
    /// `split.smi-spec.io` TrafficSplit.
    TrafficSplit,
    /// `specs.smi-spec.io` HTTPRouteGroup.
    HttpRouteGroup,
    /// A policy of any unsupported kind that targets a served kind. Its name in a [`DocumentKey`] includes its own kind and group, because
    /// policies of different kinds may have the same name.
    Policy,
    /// `xds-server.io` RouteTest: what is expected of the routes. It generates nothing.
    RouteTest,
    /// `xds-server.io` RouterCheck: tests of Envoy's `router_check_tool`. It generates nothing.
    RouterCheck,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 19] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::GrpcRoute,
        Self::HttpRoute,
        Self::Route,
        Self::ReferenceGrant,
        Self::BackendTlsPolicy,
        Self::Backend,
        Self::Service,
        Self::EndpointSlice,
        Self::Endpoints,
        Self::Namespace,
        Self::Secret,
        Self::ConfigMap,
        Self::TrafficSplit,
        Self::HttpRouteGroup,
        Self::Policy,
        Self::RouteTest,
        Self::RouterCheck,
    ];

    /// The kind as in documents and URLs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::GrpcRoute => "GRPCRoute",
            Self::HttpRoute => "HTTPRoute",
            Self::Route => "Route",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::Backend => "Backend",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::Namespace => "Namespace",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::TrafficSplit => "TrafficSplit",
            Self::HttpRouteGroup => "HTTPRouteGroup",
            Self::Policy => "Policy",
            Self::RouteTest => "RouteTest",
            Self::RouterCheck => "RouterCheck",
        }
    }

    /// The kind with this name, in the same case as in documents.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The API group that references to the kind name; empty for core kinds.
    #[must_use]
    pub fn api_group(self) -> &'static str {
        match self {
            Self::GatewayClass
            | Self::Gateway
            | Self::GrpcRoute
            | Self::HttpRoute
            | Self::ReferenceGrant
            | Self::BackendTlsPolicy => "gateway.networking.k8s.io",
            Self::Backend => "gateway.envoyproxy.io",
            Self::Route | Self::Policy | Self::RouteTest | Self::RouterCheck => "xds-server.io",
            Self::EndpointSlice => "discovery.k8s.io",
            Self::Service | Self::Endpoints | Self::Namespace | Self::Secret | Self::ConfigMap => "",
            Self::TrafficSplit => "split.smi-spec.io",
            Self::HttpRouteGroup => "specs.smi-spec.io",
        }
    }

    /// Returns `true` if documents of the kind say what is expected of routes.
    #[must_use]
    pub fn is_test(self) -> bool {
        matches!(self, Self::RouteTest | Self::RouterCheck)
    }

    /// Returns `true` if a reference names the kind.
    #[must_use]
    pub fn is_named(self, group: &str, kind: &str) -> bool {
        self.as_str() == kind && self.api_group() == group
    }

    /// The namespace of an object of this kind, if its document or a reference says `namespace`; empty for a cluster-scoped kind.
    pub(crate) fn namespace_of(self, namespace: &str) -> &str {
        match self.is_cluster_scoped() {
            true => "",
            false if namespace.is_empty() => DEFAULT_NAMESPACE,
            false => namespace,
        }
    }

    /// Returns `true` if objects of the kind have no namespace. It is empty in their [`DocumentKey`].
    #[must_use]
    pub fn is_cluster_scoped(self) -> bool {
        matches!(self, Self::GatewayClass | Self::Namespace)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The identity of a document, unique in all files and the API. A copy is a pointer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey(Thin<DocumentName>);

/// Kind, namespace and name of a document.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentName {
    /// The kind.
    pub kind: Kind,
    /// The namespace: `default` if the document names none, empty for a cluster-scoped kind.
    pub namespace: Arc<str>,
    /// The name; never empty.
    pub name: Arc<str>,
}

impl DocumentKey {
    /// The key of a document. `namespace` is ignored for cluster-scoped kinds.
    #[must_use]
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self::of(kind, kind.namespace_of(namespace).into(), name.into())
    }

    /// The same from shared texts. `namespace` must be empty for cluster-scoped kinds.
    #[must_use]
    pub fn of(kind: Kind, namespace: Arc<str>, name: Arc<str>) -> Self {
        Self(Thin::new(DocumentName { kind, namespace, name }))
    }

    /// The key of a document of another namespaced kind with the same name.
    pub(crate) fn namesake(&self, kind: Kind) -> Self {
        Self::of(kind, Arc::clone(&self.namespace), Arc::clone(&self.name))
    }

    /// The key before all documents of a kind.
    #[must_use]
    pub fn before(kind: Kind) -> Self {
        Self::of(kind, "".into(), "".into())
    }
}

impl Deref for DocumentKey {
    type Target = DocumentName;

    fn deref(&self) -> &DocumentName {
        &self.0
    }
}

impl fmt::Display for DocumentKey {
    /// Shows `GRPCRoute prod/greeter`, or `GatewayClass xds` without a namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind, self.name);
        }
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The namespace of documents that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";
