//! Routes: GRPCRoute, HTTPRoute and the routes of the native form, in one shape.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::{Filter, Fraction, Hostname, Kind, ObjectRef, Spot};

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The kind as which it was written.
    pub kind: RouteKind,
    /// The parents to which it attaches, at most 32. Empty means the implicit gateway, if there is no other.
    pub parents: Vec<ParentRef>,
    /// True if it asks for the implicit gateway beside others; only if it has no parents.
    pub uses_default_gateways: bool,
    /// The hosts, at most 16; empty means those of the listener.
    pub hostnames: Vec<Hostname>,
    /// The rules, at most 16. A GRPCRoute may have none: then it is accepted and serves nothing.
    pub rules: Vec<Rule>,
}

/// The kind that a route was written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// GRPCRoute.
    Grpc,
    /// HTTPRoute.
    Http,
    /// The native form, which may mix both.
    Native,
}

/// A reference to a parent.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentRef {
    /// Where it is.
    pub spot: Spot,
    /// The API group; its default filled in.
    pub group: Cow<'static, str>,
    /// The kind; its default filled in.
    pub kind: Cow<'static, str>,
    /// The namespace; that of the route filled in.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// `sectionName`.
    pub section: Option<String>,
    /// The port.
    pub port: Option<u16>,
}

impl ParentRef {
    /// Returns `true` if it is a Service, to which routes of the mesh attach.
    #[must_use]
    pub fn is_service(&self) -> bool {
        Kind::Service.is_named(&self.group, &self.kind)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Where it is.
    pub spot: Spot,
    /// Its name, unique in the route.
    pub name: Option<Box<str>>,
    /// The matches, of which one must hold; never empty: what is left out is one match of everything.
    pub matches: Vec<Match>,
    /// The filters, in order; at most 16.
    pub filters: Vec<Filter>,
    /// The backends, at most 16; no two of the native form are equal.
    pub backends: Vec<BackendRef>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Box<Retry>>,
    /// Session persistence.
    pub session: Option<Box<SessionPersistence>>,
}

/// One match: everything in it must hold.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Match {
    /// Where it is.
    pub spot: Spot,
    /// The path.
    pub path: PathMatch,
    /// Headers: lower-case names, each once (the first entry of a name counts).
    pub headers: Vec<HeaderMatch>,
    /// Query parameters, each once.
    pub query: Box<[QueryMatch]>,
    /// The HTTP method.
    pub method: Option<HttpMethod>,
    /// The share of requests that are taken (native form; `runtime_fraction` of gRFC A28).
    pub fraction: Option<Fraction>,
    /// True if the case of the path counts; always true but in the native form.
    pub case_sensitive: bool,
}

impl Match {
    /// A match of a path and nothing else.
    #[must_use]
    pub fn of_path(spot: &Spot, path: PathMatch) -> Self {
        Self {
            spot: spot.clone(),
            path,
            headers: Vec::new(),
            query: Box::default(),
            method: None,
            fraction: None,
            case_sensitive: true,
        }
    }
}

/// How a path or a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchType {
    /// Equal, case included.
    Exact,
    /// An RE2 expression for the whole.
    RegularExpression,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PathMatch {
    /// Anything.
    Any,
    /// Exactly this path.
    Exact(String),
    /// This path, or one below it: `/a` takes `/a`, `/a/` and `/a/b` but not `/ab`. Begins with `/`; ends with none, so `/`
    /// itself is [`Any`](Self::Any).
    Prefix(String),
    /// Every path that begins with this text (native form only).
    TextPrefix(String),
    /// An RE2 expression for the whole path. Valid RE2.
    Regex(String),
    /// The method of a gRPC call.
    Method(MethodMatch),
}

/// A condition on the gRPC method; at least one of both is given.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct MethodMatch {
    /// How both are compared. Regular expressions are valid RE2.
    pub match_type: MatchType,
    /// The service with its package.
    pub service: Option<String>,
    /// The method.
    pub method: Option<String>,
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct HeaderMatch {
    /// Where it is.
    pub spot: Spot,
    /// The name in lower case; may be a pseudo-header only in the native form and in SMI.
    pub name: String,
    /// The condition on its value.
    pub value: HeaderValue,
}

/// The condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum HeaderValue {
    /// Equal.
    Exact(String),
    /// An RE2 expression for the whole value. Valid RE2.
    Regex(String),
    /// Anything (native form only).
    Present,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct QueryMatch {
    /// The name, case-sensitive.
    pub name: String,
    /// How the value is compared.
    pub match_type: MatchType,
    /// The value.
    pub value: String,
}

/// An HTTP method, such as `GET`; in capitals.
pub type HttpMethod = String;

/// A backend of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendRef {
    /// The object.
    pub object: ObjectRef,
    /// The weight, 0 to 1,000,000.
    pub weight: u32,
    /// Filters for requests that go to this backend.
    pub filters: Vec<Filter>,
}

/// Time limits of a rule; `Some(ZERO)` means none, `None` leaves the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// For the whole request.
    pub request: Option<Duration>,
    /// For one attempt at a backend; never longer than `request`.
    pub backend_request: Option<Duration>,
}

/// Retries of a rule.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Retry {
    /// HTTP status codes to retry, 400 to 599.
    pub codes: Vec<u16>,
    /// gRPC conditions to retry, of [`GRPC_CONDITIONS`](Self::GRPC_CONDITIONS).
    pub grpc_on: Vec<String>,
    /// How many retries, from 1.
    pub attempts: u32,
    /// The least time between two.
    pub backoff: Option<Duration>,
}

impl Retry {
    /// The conditions of gRPC that clients can retry (gRFC A44).
    pub const GRPC_CONDITIONS: [&str; 5] =
        ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];
}

/// Session persistence (GEP-1619).
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct SessionPersistence {
    /// Where it is.
    pub spot: Spot,
    /// The longest that a session lasts.
    pub absolute_timeout: Option<Duration>,
    /// How a session is recognised.
    pub kind: SessionKind,
}

impl SessionPersistence {
    /// How long clients keep the cookie, in whole seconds as they count; `None` as long as they run, and for sessions without
    /// one. No time at all would take the cookie away again, and is none.
    #[must_use]
    pub fn max_age(&self) -> Option<Duration> {
        let age = match &self.kind {
            SessionKind::Cookie { lifetime: SessionLifetime::Permanent, .. } => self.absolute_timeout?,
            SessionKind::Cookie { lifetime: SessionLifetime::Session, .. } | SessionKind::Header { .. } => {
                return None;
            }
        };
        let seconds = age.as_secs() + u64::from(age.subsec_nanos() > 0);
        Some(Duration::from_secs(seconds)).filter(|age| !age.is_zero())
    }
}

/// How a session is recognised.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum SessionKind {
    /// A cookie.
    Cookie {
        /// Its name, if the user gives one.
        name: Option<String>,
        /// Its path; `/` unless given.
        path: String,
        /// How long it lives.
        lifetime: SessionLifetime,
    },
    /// A header of that name.
    Header {
        /// The name in lower case.
        name: String,
    },
}

/// How long a session cookie lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionLifetime {
    /// As long as the browser.
    Session,
    /// `absolute_timeout`, which is given then.
    Permanent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_kept_for_whole_seconds_and_never_taken_away() {
        use SessionLifetime::{Permanent, Session};
        let table = [
            (Permanent, Some(3_600_000), Some(3_600)),
            (Permanent, Some(1_500), Some(2)),
            (Permanent, Some(1), Some(1)),
            (Permanent, Some(0), None),
            (Permanent, None, None),
            (Session, Some(3_600_000), None),
        ];
        for (lifetime, timeout, expected) in table {
            let kind = SessionKind::Cookie { name: None, path: "/".to_owned(), lifetime };
            let absolute_timeout = timeout.map(Duration::from_millis);
            let persistence = SessionPersistence { spot: Spot::default(), absolute_timeout, kind };
            assert_eq!(persistence.max_age(), expected.map(Duration::from_secs), "{lifetime:?} {timeout:?}");
        }
    }
}
