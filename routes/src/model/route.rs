//! Routes: GRPCRoute, HTTPRoute and the routes of the native form, in one shape.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::{Filter, Fraction, Hostname, Kind, ObjectRef, Spot};

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The kind of its document.
    pub kind: RouteKind,
    /// The parents to which it attaches, at most 32. Without any, it attaches to the implicit gateway if there is no other.
    pub parents: Vec<ParentRef>,
    /// True if it asks for the implicit gateway even if there are others. Only without parents.
    pub uses_default_gateways: bool,
    /// The hosts, at most 16; empty for those of the listener.
    pub hostnames: Vec<Hostname>,
    /// The rules, at most 16. A GRPCRoute without rules is accepted and serves nothing.
    pub rules: Vec<Rule>,
}

/// The kind of a route.
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
    /// The API group, with its default filled in.
    pub group: Cow<'static, str>,
    /// The kind, with its default filled in.
    pub kind: Cow<'static, str>,
    /// The namespace, with that of the route filled in.
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
    /// The matches, of which one must hold. Never empty: without matches in the document, there is one that matches everything.
    pub matches: Vec<Match>,
    /// The filters, in order; at most 16.
    pub filters: Vec<Filter>,
    /// The backends, at most 16. The native form has no duplicates.
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
    /// Headers: lower-case names without duplicates (the first one counts).
    pub headers: Vec<HeaderMatch>,
    /// Query parameters, without duplicates.
    pub query: Box<[QueryMatch]>,
    /// The HTTP method.
    pub method: Option<HttpMethod>,
    /// The share of requests that are taken (native form; `runtime_fraction` of gRFC A28).
    pub fraction: Option<Fraction>,
    /// True if the case of the path matters. Only false in the native form.
    pub case_sensitive: bool,
}

impl Match {
    /// A match of only a path.
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
    /// Equal, in the same case.
    Exact,
    /// An RE2 expression that matches the whole text.
    RegularExpression,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PathMatch {
    /// Anything.
    Any,
    /// Exactly this path.
    Exact(String),
    /// This path and everything below it: `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`. Begins but never ends with `/`, so `/` itself is
    /// [`Any`](Self::Any).
    Prefix(String),
    /// Every path that begins with this text (native form only).
    TextPrefix(String),
    /// A valid RE2 expression for the whole path.
    Regex(String),
    /// The method of a gRPC call.
    Method(MethodMatch),
}

/// A condition on the gRPC method. At least one of service and method is set.
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
    /// The name in lower case. Only the native form and SMI allow pseudo-headers.
    pub name: String,
    /// The condition on its value.
    pub value: HeaderValue,
}

/// The condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum HeaderValue {
    /// Equal.
    Exact(String),
    /// A valid RE2 expression for the whole value.
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

/// Time limits of a rule. `Some(ZERO)` is no limit, `None` is the default.
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
    /// gRPC conditions to retry, from [`GRPC_CONDITIONS`](Self::GRPC_CONDITIONS).
    pub grpc_on: Vec<String>,
    /// The number of retries, from 1.
    pub attempts: u32,
    /// The minimum time between two retries.
    pub backoff: Option<Duration>,
}

impl Retry {
    /// The gRPC conditions that clients can retry (gRFC A44).
    pub const GRPC_CONDITIONS: [&str; 5] =
        ["cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"];
}

/// Session persistence (GEP-1619).
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct SessionPersistence {
    /// Where it is.
    pub spot: Spot,
    /// The maximum duration of a session.
    pub absolute_timeout: Option<Duration>,
    /// How a session is recognised.
    pub kind: SessionKind,
}

impl SessionPersistence {
    /// How long clients keep the cookie, in whole seconds. `None` if they keep it as long as they run, or for sessions without a cookie. A
    /// time of 0 counts as `None`, because it would remove the cookie.
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
        /// Its name, if it is given.
        name: Option<String>,
        /// Its path; `/` by default.
        path: String,
        /// Its lifetime.
        lifetime: SessionLifetime,
    },
    /// A header.
    Header {
        /// The name in lower case.
        name: String,
    },
}

/// The lifetime of a session cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionLifetime {
    /// As long as the browser.
    Session,
    /// As long as `absolute_timeout`, which is set then.
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
