//! A row of the table of endpoints.

use axum::routing::{MethodFilter, MethodRouter};
use http::StatusCode;
use xds_access::Role;

use crate::state::ApiState;

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The path as axum and OpenAPI write it.
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// Who may use it.
    pub(crate) needs: Needs,
    /// The query parameters besides those of every write.
    pub(crate) query: &'static [Query],
    /// The verbs of the thing that the path leads to, if the path must end with a colon and one of these.
    pub(crate) verbs: &'static [Verb],
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// The errors that it can answer with, besides those of every request.
    pub(crate) errors: &'static [StatusCode],
    /// The handler, for a given method.
    pub(crate) handler: fn(MethodFilter) -> MethodRouter<ApiState>,
}

/// A verb: its name, its input and its summary. The document has a path for each verb, while the router has one for all.
pub(crate) struct Verb(pub(crate) &'static str, pub(crate) Input, pub(crate) &'static str);

/// Who may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Everyone, with and without a credential.
    Nothing,
    /// Principals of this role or a greater one, as far as it reaches into their scope.
    Role(Role, Reach),
}

/// The objects that an endpoint shows or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None.
    Nothing,
    /// The group of its path.
    Group,
    /// The object of its path, by kind, namespace and name.
    Object,
    /// Objects that its handler chooses from the caller's scope, or a write that is checked by all it touches.
    Objects,
    /// Everything at once, so a caller with a scope may not use it.
    Everything,
}

/// The methods that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

/// A query parameter: its name, its JSON type and its meaning.
pub(crate) struct Query(pub(crate) &'static str, pub(crate) QueryType, pub(crate) &'static str);

/// The type of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryType {
    Text,
    Integer,
    Bool,
}

/// The body that an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    None,
    Group,
    Publication,
    Resource,
    Documents,
    Question,
    /// Two states to compare.
    Comparison,
    /// The texts of all files.
    Files,
    Rollback,
    Rollout,
    /// The body of `:promote`, which may be left out.
    Promote,
    Weights,
    /// A merge patch.
    WeightsPatch,
    Text,
}

/// The form of an endpoint's answer: the name of a schema, or another kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// An object of a schema.
    Object(&'static str),
    /// The answer of a write: it takes the parameters of every write and can answer 202 and 424.
    Write,
    /// Any JSON object.
    Any,
    /// Text of another media type.
    Text(&'static str),
    /// Server-sent events; the media type is `text/event-stream`.
    Events,
}

impl Method {
    /// The method of a request; `None` for one that is never used. A `HEAD` is a `GET`.
    pub(crate) fn of(method: &http::Method) -> Option<Self> {
        match method.as_str() {
            "GET" | "HEAD" => Some(Self::Get),
            "PUT" => Some(Self::Put),
            "POST" => Some(Self::Post),
            "PATCH" => Some(Self::Patch),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }

    /// Its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The method as the router takes it.
    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Put => MethodFilter::PUT,
            Self::Post => MethodFilter::POST,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

impl Endpoint {
    /// Its part of the router.
    pub(crate) fn route(&self) -> MethodRouter<ApiState> {
        (self.handler)(self.method.filter())
    }

    /// Returns `true` if it changes something.
    pub(crate) fn changes(&self) -> bool {
        self.method != Method::Get && !matches!(self.path, "/v1/validate" | "/v1/explain" | "/v1/diff")
    }

    /// Returns `true` if it changes what the API owns.
    pub(crate) fn is_write(&self) -> bool {
        self.output == Output::Write
    }

    /// Returns `true` if it can wait for clients.
    pub(crate) fn waits(&self) -> bool {
        self.is_write() || self.query.iter().any(|Query(name, ..)| *name == "wait")
    }

    /// Returns `true` if a reader may go on reading with `watch`.
    pub(crate) fn is_watched(&self) -> bool {
        self.query.iter().any(|Query(name, ..)| *name == "watch")
    }
}
