//! A document: its identity, its place, and its content.

use std::fmt;
use std::sync::{Arc, LazyLock};

use xds_cache::{DrainPolicy, Origin};
use xds_codec::{Diagnostic, Place, Severity};

use super::{
    Backend, BackendTlsPolicy, ConfigMap, DocumentKey, EndpointSlice, ForeignPolicy, Gateway, HttpRouteGroup,
    Namespace, ReferenceGrant, Route, Secret, Service, Source, Spot, TrafficSplit,
};

/// The part that every document has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `metadata.labels`, sorted by key. Only for kinds that can be selected by labels.
    pub labels: Box<[(String, String)]>,
    /// The annotations about this program, sorted by key.
    pub annotations: Box<[(String, String)]>,
    /// The annotations about draining, of Services and Backends.
    pub drain: DrainPolicy,
    /// True if an annotation of a Gateway asks for virtual hosts on demand.
    pub is_on_demand: bool,
    /// `metadata.creationTimestamp` in seconds since 1970. Documents without one have the same age.
    pub created: Option<i64>,
}

impl Meta {
    /// Empty metadata, shared by all documents without any.
    pub(crate) fn none() -> Arc<Self> {
        static NONE: LazyLock<Arc<Meta>> = LazyLock::new(Arc::default);
        Arc::clone(&NONE)
    }

    /// The same in shared form.
    pub(crate) fn kept(self) -> Arc<Self> {
        if self == Self::default() { Self::none() } else { Arc::new(self) }
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// One document that is valid on its own.
#[derive(Clone, PartialEq)]
pub struct Document {
    /// Its identity.
    pub key: DocumentKey,
    /// The place where it begins; the file is empty for a document of the API.
    pub place: Place,
    /// Its metadata.
    pub meta: Arc<Meta>,
    /// The content.
    pub spec: Spec,
    /// The document as it was written, without `status` and `metadata.managedFields`. This is stored and shown, and gives the same document
    /// when it is read again. An object of the native form has a document of its own. **Holds secrets** if it is a Secret.
    pub source: Arc<Source>,
}

/// The content of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    /// A GatewayClass.
    GatewayClass {
        /// `controllerName`.
        controller: String,
    },
    /// A Gateway.
    Gateway(Box<Gateway>),
    /// A GRPCRoute, HTTPRoute or native route.
    Route(Route),
    /// A ReferenceGrant.
    ReferenceGrant(ReferenceGrant),
    /// A BackendTLSPolicy.
    BackendTlsPolicy(Box<BackendTlsPolicy>),
    /// A Backend.
    Backend(Box<Backend>),
    /// A Service.
    Service(Service),
    /// An EndpointSlice.
    EndpointSlice(EndpointSlice),
    /// An Endpoints object: its subsets as slices of the service of the same name.
    Endpoints(Vec<EndpointSlice>),
    /// A Namespace.
    Namespace(Namespace),
    /// A Secret.
    Secret(Secret),
    /// A ConfigMap.
    ConfigMap(ConfigMap),
    /// A TrafficSplit.
    TrafficSplit(TrafficSplit),
    /// An HTTPRouteGroup.
    HttpRouteGroup(HttpRouteGroup),
    /// A policy that is not supported.
    Policy(ForeignPolicy),
    /// A RouteTest or RouterCheck. Its `spec` is read by those who run it.
    RouteTest {
        /// `spec.policy`, if it is a text.
        policy: Option<Box<str>>,
    },
}

impl Document {
    /// The origin of resources that are generated from the document.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let Place { file, line, column } = &self.place;
        if file.is_empty() {
            return Origin::Api;
        }
        Origin::File { path: Arc::clone(file), line: *line, column: *column }
    }

    /// A diagnostic at a spot of this document.
    #[must_use]
    pub fn diagnostic(
        &self,
        severity: Severity,
        code: &'static str,
        spot: &Spot,
        message: String,
    ) -> Diagnostic {
        let place = match spot.line {
            0 => self.place.clone(),
            line => Place { file: Arc::clone(&self.place.file), line, column: spot.column },
        };
        Diagnostic {
            severity,
            code,
            place,
            path: spot.path.to_string(),
            message,
            suggestion: None,
            related: Vec::new(),
            is_sensitive: false,
        }
    }
}

impl fmt::Debug for Document {
    /// Shows key and place, never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.key, self.place)
    }
}
