//! Conditions: the state of every object, in the terms of the Gateway API.

mod reason;

use std::fmt;
use std::sync::Arc;

use xds_cache::OrdMap;

pub use self::reason::ConditionReason;
use crate::model::DocumentKey;

/// The conditions of all objects that have any. Deterministic: everything is sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// By object.
    pub objects: OrdMap<DocumentKey, Arc<ObjectStatus>>,
}

/// The status of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectStatus {
    /// The generation that was judged: 1 for a new object, and one more for each change of its content.
    pub observed_generation: u64,
    /// The conditions of the object itself: a Gateway, a GatewayClass, a TrafficSplit, a Backend, or a route or policy without a parent.
    pub conditions: Vec<Condition>,
    /// The conditions of a route or policy: one for each of its parents or ancestors, in the order of the document.
    pub parents: Vec<ParentStatus>,
    /// The conditions of a Gateway: one for each listener, in the order of the document.
    pub listeners: Vec<ListenerStatus>,
}

/// The conditions of a route for one of its parents.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentStatus {
    /// The parent: kind, namespace and name as text, such as `Gateway prod/edge`.
    pub parent: String,
    /// `sectionName` of the reference.
    pub section: Option<String>,
    /// `port` of the reference.
    pub port: Option<u16>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// The status of one listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// How many routes it accepted.
    pub attached_routes: usize,
    /// The kinds of routes that it accepts.
    pub supported_kinds: Vec<String>,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionType,
    /// The truth of the condition.
    pub status: Truth,
    /// The reason for the status.
    pub reason: ConditionReason,
    /// For people; empty if the reason says it all.
    pub message: String,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The object is used.
    Accepted,
    /// The listener cannot be told apart from another one.
    Conflicted,
    /// The listener shares hosts with others, so a client may send a request on the connection of another listener.
    OverlappingTlsConfig,
    /// A part of the object is not served, or not as it is written.
    PartiallyInvalid,
    /// Unsupported policies target the object, which is served without them; always `False`.
    PolicyAffected,
    /// Envoys listen.
    Programmed,
    /// Every reference leads to something that can be used.
    ResolvedRefs,
}

impl ConditionType {
    /// The type as answers and logs show it. A type that the Gateway API lacks has our prefix, as
    /// [GEP-713](https://gateway-api.sigs.k8s.io/geps/gep-713/) asks.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Conflicted => "Conflicted",
            Self::OverlappingTlsConfig => "OverlappingTLSConfig",
            Self::PartiallyInvalid => "PartiallyInvalid",
            Self::PolicyAffected => "xds-server.io/PolicyAffected",
            Self::Programmed => "Programmed",
            Self::ResolvedRefs => "ResolvedRefs",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The parent under which a route reports what gRPC clients do not support.
pub const GRPC_CLIENTS: &str = "gRPC clients";

/// The truth of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known yet.
    Unknown,
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

impl Condition {
    /// The condition of an object that is accepted.
    #[must_use]
    pub fn accepted() -> Self {
        Self::holds(ConditionType::Accepted, ConditionReason::Accepted)
    }

    /// The condition of a listener, or a Gateway, that Envoys listen for.
    #[must_use]
    pub fn programmed() -> Self {
        Self::holds(ConditionType::Programmed, ConditionReason::Programmed)
    }

    /// The condition of an object whose references can all be followed.
    #[must_use]
    pub fn resolved_refs() -> Self {
        Self::holds(ConditionType::ResolvedRefs, ConditionReason::ResolvedRefs)
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn fails(kind: ConditionType, reason: ConditionReason, message: impl Into<String>) -> Self {
        Self { kind, status: Truth::False, reason, message: message.into() }
    }

    fn holds(kind: ConditionType, reason: ConditionReason) -> Self {
        Self { kind, status: Truth::True, reason, message: String::new() }
    }
}

/// A feature of a rule that gRPC clients may not support, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrpcFeature {
    /// A match.
    Match,
    /// A redirect.
    Redirect,
    /// Another path or host.
    Rewrite,
    /// Changes of headers.
    Headers,
    /// Copies of requests.
    Mirror,
    /// Cross-origin requests.
    Cors,
    /// Retries.
    Retry,
    /// Time limits.
    Timeout,
    /// Session persistence.
    Session,
    /// How requests are distributed over endpoints.
    Balancing,
    /// Endpoints that cannot be reached.
    Endpoints,
    /// TLS to backends.
    Tls,
}

impl GrpcFeature {
    /// Every feature.
    pub const ALL: [Self; 12] = [
        Self::Match,
        Self::Redirect,
        Self::Rewrite,
        Self::Headers,
        Self::Mirror,
        Self::Cors,
        Self::Retry,
        Self::Timeout,
        Self::Session,
        Self::Balancing,
        Self::Endpoints,
        Self::Tls,
    ];

    /// The feature in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Redirect => "redirect",
            Self::Rewrite => "rewrite",
            Self::Headers => "headers",
            Self::Mirror => "mirror",
            Self::Cors => "cors",
            Self::Retry => "retry",
            Self::Timeout => "timeout",
            Self::Session => "session",
            Self::Balancing => "balancing",
            Self::Endpoints => "endpoints",
            Self::Tls => "tls",
        }
    }
}
