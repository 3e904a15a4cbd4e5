//! Errors of the API, and their one form on the wire: RFC 9457 problem details.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ETAG, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use xds_access::{Role, Unidentified};
use xds_codec::document::{Node, Position};
use xds_codec::{Diagnostic, Place};
use xds_control::chain;
use xds_control::model::WriteError;
use xds_control::model::weights::change::ChangeFault;
use xds_routes::Stopped;
use xds_store::RemoteFailure;

use crate::tag;

/// Why a request was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The path or a parameter cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// The body is not JSON or YAML, or has another shape.
    #[error("the body cannot be read")]
    BadBody(Vec<Fault>),
    /// The token is missing or wrong.
    #[error("the admin API needs a bearer token")]
    Unauthorized,
    /// The credential is missing or not believed.
    #[error(transparent)]
    Unidentified(#[from] Unidentified),
    /// The principal's role is too small.
    #[error("role: this needs the role {needs}, and the principal {name} has {has}")]
    Role {
        /// The principal.
        name: Arc<str>,
        /// Its role.
        has: Role,
        /// The role of the endpoint.
        needs: Role,
    },
    /// The principal has a scope, and the endpoint is not limited to one.
    #[error("scope: {0}")]
    OutOfScope(String),
    /// A write would not be on record.
    #[error("nothing may be written now: {0}")]
    NotAudited(String),
    /// Too many failed logins came from the address.
    #[error("rate: too many requests with a bad credential came from this address")]
    TooManyFailures(Duration),
    /// The principal has used up its writes.
    #[error("rate: the principal {0} has used up its writes of this minute")]
    TooManyWrites(Arc<str>, Duration),
    /// A browser sends it for a page of another site.
    #[error("requests that a browser sends for another site are refused (Sec-Fetch-Site: {0:?})")]
    CrossSite(String),
    /// The request came from a page of another site.
    #[error("requests from the origin {0:?} are refused")]
    ForeignOrigin(String),
    /// The request is meant for another host.
    #[error("this server does not answer to the host name {0:?}; use an IP address or localhost")]
    ForeignHost(String),
    /// There is no such path.
    #[error("there is no such path; GET /openapi.json lists all")]
    NoPath,
    /// The path has no such method.
    #[error("this path does not support this method")]
    NoMethod,
    /// The thing that the path names does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The thing that the path names is no longer kept.
    #[error("{0}")]
    Gone(String),
    /// The body is larger than the limit.
    #[error("the body is larger than the limit of {0} bytes")]
    TooLarge(usize),
    /// The body comes too slowly, or not at all.
    #[error("the body did not arrive completely in time")]
    SlowBody,
    /// The body has another content type.
    #[error("the body must be application/json or application/yaml, not {0}")]
    MediaType(String),
    /// The body of a patch has another content type.
    #[error(
        "the body of a patch must be application/merge-patch+json, or application/json or application/yaml, not {0}"
    )]
    PatchType(String),
    /// The caller has to say what it saw.
    #[error(
        "a change of weights needs If-Match with the entity tag from GET, or * to change them in any case"
    )]
    PreconditionRequired,
    /// The verb does not fit the phase of the rollout.
    #[error("{0}")]
    IllegalTransition(String),
    /// The server that is to be forgotten runs.
    #[error("{0}")]
    ReplicaAlive(String),
    /// A weight or a share is out of range.
    #[error("the weights are not valid")]
    Weights(Vec<Fault>),
    /// The weights of a rule cannot be changed so; the faults are at their places in the body.
    #[error("{0}")]
    WeightsOfRule(ChangeFault, Vec<Fault>),
    /// The content of the body is not valid.
    #[error("the body is not valid")]
    Invalid(Vec<Fault>),
    /// A write was not done.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A client rejected what was written; the fields are those of the write's answer.
    #[error("a client rejected the change")]
    Rejected(Map<String, Value>),
    /// A limit is reached.
    #[error("{0}")]
    TooMany(String),
    /// The server has too much to do for this; later it may not.
    #[error("{0}")]
    Busy(String),
    /// The server is not ready.
    #[error("the server is not ready")]
    NotReady(Vec<String>),
    /// The server failed.
    #[error("{0}")]
    Internal(String),
}

/// One fault of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// Where in the body, as a JSON pointer in a URI fragment (`#/resources/0/name`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The file, if it is about a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The kind of fault, in kebab-case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// `error`, `warning` or `info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// The fault.
    pub detail: String,
    /// The right value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Other places that have to do with it: where else an object is defined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<RelatedPlace>,
}

/// Another place that has to do with a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RelatedPlace {
    /// The file; absent if it is in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// RFC 9457 problem details.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// The kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its last part.
    #[serde(skip)]
    pub slug: &'static str,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The fault, this time.
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// The single faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// More, by kind of problem.
    #[serde(flatten)]
    pub extensions: Map<String, Value>,
}

impl Fault {
    /// A fault that is nowhere in particular.
    #[must_use]
    pub fn new(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    /// A fault at a place of the body.
    #[must_use]
    pub fn at(pointer: &str, detail: impl Into<String>) -> Self {
        Self { pointer: Some(format!("#{pointer}")), detail: detail.into(), ..Self::default() }
    }

    /// A fault at a value of the body.
    #[must_use]
    pub fn at_tree(tree: Node<'_>, pointer: &str, detail: impl Into<String>) -> Self {
        let known = |number: u32| (number > 0).then_some(number);
        let Position { line, column } = tree.position();
        Self { line: known(line), column: known(column), ..Self::at(pointer, detail) }
    }

    /// The codec's finding in the part of the body that `pointer` leads to.
    #[must_use]
    pub fn of(diagnostic: &Diagnostic, pointer: &str) -> Self {
        let place = &diagnostic.place;
        let is_in_body = place.file.is_empty();
        let known = |number: u32| (number > 0).then_some(number);
        Self {
            pointer: is_in_body.then(|| format!("#{pointer}{}", pointer_of(&diagnostic.path))),
            file: (!is_in_body).then(|| place.file.to_string()),
            line: known(place.line),
            column: known(place.column),
            code: Some(diagnostic.code.to_owned()),
            severity: Some(diagnostic.severity.as_str().to_owned()),
            detail: match diagnostic.path.as_str() {
                "" => diagnostic.message.clone(),
                path => format!("{path}: {}", diagnostic.message),
            },
            suggestion: diagnostic.suggestion.clone(),
            related: diagnostic.related.iter().map(RelatedPlace::of).collect(),
        }
    }
}

impl RelatedPlace {
    fn of(place: &Place) -> Self {
        let file = (!place.file.is_empty()).then(|| place.file.to_string());
        Self { file, line: place.line, column: place.column }
    }
}

/// A key as a part of a JSON pointer.
pub(crate) fn pointer_part(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A field path (`a.b[0]["k"]`) as a JSON pointer (`/a/b/0/k`).
fn pointer_of(path: &str) -> String {
    let mut pointer = String::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let (step, after) = match first {
            '.' => {
                rest = &rest[1..];
                continue;
            }
            '[' if rest.starts_with("[\"") => match rest.find("\"]") {
                Some(end) => (rest.get(2..end).unwrap_or_default(), rest.get(end + 2..)),
                None => (rest, None),
            },
            '[' => match rest.find(']') {
                Some(end) => (rest.get(1..end).unwrap_or_default(), rest.get(end + 1..)),
                None => (rest, None),
            },
            _ => {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                (rest.get(..end).unwrap_or_default(), rest.get(end..))
            }
        };
        pointer.push('/');
        pointer.push_str(&pointer_part(step));
        rest = after.unwrap_or_default();
    }
    pointer
}

impl ApiError {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::BadBody(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized | Self::Unidentified(_) => StatusCode::UNAUTHORIZED,
            Self::ForeignOrigin(_)
            | Self::CrossSite(_)
            | Self::Role { .. }
            | Self::OutOfScope(_)
            | Self::Write(WriteError::OutOfScope { .. }) => StatusCode::FORBIDDEN,
            Self::ForeignHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::NoPath
            | Self::NotFound(_)
            | Self::Write(WriteError::NotFound { .. } | WriteError::NoRule { .. }) => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Gone(_) | Self::Write(WriteError::Compacted { .. } | WriteError::Incomplete { .. }) => {
                StatusCode::GONE
            }
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::IllegalTransition(_)
            | Self::ReplicaAlive(_)
            | Self::Write(
                WriteError::OwnedByFile { .. }
                | WriteError::BuiltIn { .. }
                | WriteError::RolloutActive { .. }
                | WriteError::Superseded { .. }
                | WriteError::WaveActive { .. }
                | WriteError::WaveState(_)
                | WriteError::OwnFiles
                | WriteError::Follower
                | WriteError::Unconfirmed(_)
                | WriteError::SharedStore { .. },
            ) => StatusCode::CONFLICT,
            Self::MediaType(_) | Self::PatchType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid(_)
            | Self::Weights(_)
            | Self::WeightsOfRule(..)
            | Self::Write(
                WriteError::Invalid(_)
                | WriteError::Weights(_)
                | WriteError::RequestReused
                | WriteError::Stopped(Stopped::TooMuch { .. }),
            ) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::PreconditionRequired => StatusCode::PRECONDITION_REQUIRED,
            Self::Write(WriteError::PreconditionFailed { .. } | WriteError::StaleWeights { .. }) => {
                StatusCode::PRECONDITION_FAILED
            }
            Self::Rejected(_) => StatusCode::FAILED_DEPENDENCY,
            Self::TooMany(_) | Self::TooManyFailures(_) | Self::TooManyWrites(..) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Busy(_)
            | Self::NotReady(_)
            | Self::NotAudited(_)
            | Self::Write(
                WriteError::NotReady
                | WriteError::Busy
                | WriteError::Stopped(Stopped::NobodyWaits)
                | WriteError::Closed,
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Write(WriteError::Store(error)) => store_status(error),
            Self::Internal(_) | Self::Write(WriteError::History(_) | WriteError::Internal(_)) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// The last part of the problem's type.
    fn slug(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad-request",
            Self::BadBody(_) => "unreadable-body",
            Self::Unauthorized | Self::Unidentified(_) => "unauthorized",
            Self::ForeignOrigin(_) | Self::CrossSite(_) => "foreign-origin",
            Self::Role { .. } => "role",
            Self::OutOfScope(_) | Self::Write(WriteError::OutOfScope { .. }) => "out-of-scope",
            Self::TooManyFailures(_) | Self::TooManyWrites(..) => "rate",
            Self::NotAudited(_) => "not-audited",
            Self::ForeignHost(_) => "foreign-host",
            Self::NoPath => "no-such-path",
            Self::NoMethod => "no-such-method",
            Self::NotFound(_) | Self::Write(WriteError::NotFound { .. } | WriteError::NoRule { .. }) => {
                "not-found"
            }
            Self::Gone(_) | Self::Write(WriteError::Compacted { .. } | WriteError::Incomplete { .. }) => {
                "gone"
            }
            Self::TooLarge(_) => "body-too-large",
            Self::SlowBody => "body-too-slow",
            Self::MediaType(_) | Self::PatchType(_) => "unsupported-media-type",
            Self::Invalid(_) | Self::Write(WriteError::Invalid(_)) => "invalid",
            Self::Write(WriteError::OwnedByFile { .. }) => "owned-by-file",
            Self::Write(WriteError::RolloutActive { .. }) => "rollout-active",
            Self::Write(WriteError::Superseded { .. }) => "superseded",
            Self::Write(WriteError::BuiltIn { .. }) => "built-in",
            Self::Write(WriteError::WaveActive { .. }) => "wave-active",
            Self::Write(WriteError::WaveState(_)) => "wave-state",
            Self::Write(WriteError::PreconditionFailed { .. } | WriteError::StaleWeights { .. }) => {
                "etag-mismatch"
            }
            Self::PreconditionRequired => "precondition-required",
            Self::IllegalTransition(_) => "illegal-transition",
            Self::ReplicaAlive(_) => "replica-alive",
            Self::Weights(_) => "weight-out-of-range",
            Self::WeightsOfRule(fault, _) | Self::Write(WriteError::Weights(fault)) => match fault {
                ChangeFault::UnknownBackend { .. } => "unknown-backend",
                ChangeFault::SumZero => "weights-sum-zero",
                ChangeFault::SumTooLarge { .. } | ChangeFault::Percent(_) => "weight-out-of-range",
                ChangeFault::NoHeaderRoutes => "invalid",
            },
            Self::Write(WriteError::SharedStore { .. }) => "shared-store",
            Self::Write(WriteError::RequestReused) => "key-reused",
            Self::Write(WriteError::OwnFiles) => "own-files",
            Self::Write(WriteError::Follower) => "follower",
            Self::Write(WriteError::Unconfirmed(_)) => "unconfirmed",
            Self::Write(WriteError::Store(error)) => match remote_failure(error) {
                None => "not-stored",
                Some(RemoteFailure::Unreachable(_)) => "store-unreachable",
                Some(RemoteFailure::OutcomeUnknown { .. }) => "outcome-unknown",
                Some(RemoteFailure::Full(_)) => "store-full",
                Some(RemoteFailure::Refused(_)) => "store-refused",
                Some(RemoteFailure::Diverged(_)) => "store-diverged",
            },
            Self::Rejected(_) => "nacked",
            Self::TooMany(_) => "too-many",
            Self::Write(WriteError::Stopped(Stopped::TooMuch { .. })) => "too-much-generated",
            Self::Busy(_) | Self::Write(WriteError::Busy | WriteError::Stopped(Stopped::NobodyWaits)) => {
                "busy"
            }
            Self::NotReady(_) | Self::Write(WriteError::NotReady) => "not-ready",
            Self::Write(WriteError::Closed) => "shutting-down",
            Self::Internal(_) | Self::Write(WriteError::History(_) | WriteError::Internal(_)) => "internal",
        }
    }

    /// The reason why the guard refused a request, as a label.
    pub(crate) fn refusal(&self) -> &'static str {
        if let Self::Unidentified(why) = self {
            return why.reason();
        }
        match self.slug() {
            "unauthorized" => "no-credential",
            "out-of-scope" => "scope",
            "foreign-host" => "host",
            "foreign-origin" => "origin",
            other => other,
        }
    }

    fn faults(&self) -> Vec<Fault> {
        match self {
            Self::BadBody(faults)
            | Self::Invalid(faults)
            | Self::Weights(faults)
            | Self::WeightsOfRule(_, faults) => faults.clone(),
            Self::Write(WriteError::Weights(fault)) => vec![Fault::new(fault.to_string())],
            Self::Write(WriteError::Invalid(diagnostics)) => {
                diagnostics.iter().map(|diagnostic| Fault::of(diagnostic, "")).collect()
            }
            Self::NotReady(reasons) => reasons.iter().map(Fault::new).collect(),
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::Unidentified(_)
            | Self::Role { .. }
            | Self::OutOfScope(_)
            | Self::NotAudited(_)
            | Self::TooManyFailures(_)
            | Self::TooManyWrites(..)
            | Self::CrossSite(_)
            | Self::ForeignOrigin(_)
            | Self::ForeignHost(_)
            | Self::NoPath
            | Self::NoMethod
            | Self::NotFound(_)
            | Self::Gone(_)
            | Self::TooLarge(_)
            | Self::SlowBody
            | Self::MediaType(_)
            | Self::PatchType(_)
            | Self::PreconditionRequired
            | Self::IllegalTransition(_)
            | Self::ReplicaAlive(_)
            | Self::Write(_)
            | Self::Rejected(_)
            | Self::TooMany(_)
            | Self::Busy(_)
            | Self::Internal(_) => vec![],
        }
    }

    fn extensions(&self) -> Map<String, Value> {
        let mut extensions = Map::new();
        if let Self::Rejected(fields) = self {
            extensions.clone_from(fields);
        }
        if let Self::NotReady(reasons) = self {
            extensions.insert("reasons".to_owned(), reasons.as_slice().into());
        }
        if let Self::Write(WriteError::WaveActive { deployment, .. }) = self {
            extensions.insert("waveDeployment".to_owned(), (*deployment).into());
        }
        if let Self::Write(WriteError::PreconditionFailed { current }) = self {
            extensions.insert("etag".to_owned(), current.as_deref().map(tag::quoted).into());
        }
        if let Self::Write(WriteError::StaleWeights { current, weights }) = self {
            extensions.insert("etag".to_owned(), tag::quoted(current).into());
            let weights = weights.iter().map(|(key, weight)| (key.clone(), Value::from(*weight)));
            extensions.insert("backends".to_owned(), Value::Object(weights.collect()));
        }
        if let Self::Write(WriteError::RolloutActive { rollout, .. }) = self {
            extensions.insert("rollout".to_owned(), rollout.as_str().into());
        }
        if let Self::Write(WriteError::NoRule { rules, .. }) = self {
            extensions.insert("rules".to_owned(), rules.as_slice().into());
        }
        extensions
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Self::Write(
            WriteError::PreconditionFailed { current: Some(current) }
            | WriteError::StaleWeights { current, .. },
        ) = self
            && let Ok(tag) = HeaderValue::try_from(tag::quoted(current))
        {
            headers.insert(ETAG, tag);
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"xds-server\""));
        }
        if let Self::TooManyFailures(wait) | Self::TooManyWrites(_, wait) = self {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        // A write that may have been stored is not to be repeated unseen.
        if self.status() == StatusCode::SERVICE_UNAVAILABLE && self.slug() != "outcome-unknown" {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        headers
    }
}

impl From<&ApiError> for Problem {
    fn from(error: &ApiError) -> Self {
        let status = error.status();
        Self {
            kind: format!("https://xds-server.io/problems/{}", error.slug()),
            slug: error.slug(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: chain(error),
            instance: String::new(),
            errors: error.faults(),
            extensions: error.extensions(),
        }
    }
}

/// The status code for a store's refusal: conflicts and full disks pass, the rest is the server's fault.
fn store_status(error: &xds_store::CommitError) -> StatusCode {
    match error {
        xds_store::CommitError::Conflict { .. } => StatusCode::SERVICE_UNAVAILABLE,
        xds_store::CommitError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        xds_store::CommitError::Store(xds_store::StoreError::BlobTooLarge { .. }) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        xds_store::CommitError::Store(_) => match remote_failure(error) {
            None | Some(RemoteFailure::Full(_)) => StatusCode::INSUFFICIENT_STORAGE,
            Some(
                RemoteFailure::Unreachable(_)
                | RemoteFailure::OutcomeUnknown { .. }
                | RemoteFailure::Refused(_)
                | RemoteFailure::Diverged(_),
            ) => StatusCode::SERVICE_UNAVAILABLE,
        },
        xds_store::CommitError::UnknownBlob { .. } | xds_store::CommitError::DuplicateKey { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// The failure of what several servers share, if it is one.
fn remote_failure(error: &xds_store::CommitError) -> Option<&RemoteFailure> {
    match error {
        xds_store::CommitError::Store(xds_store::StoreError::Remote(failure)) => Some(failure),
        xds_store::CommitError::Store(_)
        | xds_store::CommitError::Conflict { .. }
        | xds_store::CommitError::UnknownBlob { .. }
        | xds_store::CommitError::DuplicateKey { .. }
        | xds_store::CommitError::TooLarge { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_path_becomes_a_pointer() {
        for (path, pointer) in [
            ("", ""),
            ("name", "/name"),
            ("virtual_hosts[0].routes[1].route.cluster", "/virtual_hosts/0/routes/1/route/cluster"),
            ("a[\"x/y\"].b", "/a/x~1y/b"),
            ("a[", "/a/["),
        ] {
            assert_eq!(pointer_of(path), pointer, "{path}");
        }
    }
}
