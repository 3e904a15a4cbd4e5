//! Filters of rules and backends.

use super::{ObjectRef, Spot};
use crate::rare::Silent;

/// One filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Where it is.
    pub spot: Spot,
    /// The effect.
    pub kind: FilterKind,
}

/// The effect of a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterKind {
    /// Changes request headers.
    RequestHeaders(HeaderEdits),
    /// Changes response headers.
    ResponseHeaders(HeaderEdits),
    /// Sends a copy of a share of the requests elsewhere.
    Mirror {
        /// The backend that gets the copies.
        backend: ObjectRef,
        /// The share.
        fraction: Fraction,
    },
    /// Answers with a redirect (HTTPRoute).
    Redirect(Redirect),
    /// Rewrites host and path (HTTPRoute).
    Rewrite {
        /// The new host.
        host: Option<String>,
        /// The new path.
        path: Option<PathRewrite>,
    },
    /// Answers cross-origin requests (HTTPRoute).
    Cors(Cors),
    /// A filter of another implementation. None is supported, so requests of its rule must fail.
    Extension {
        /// The API group.
        group: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

/// Changes of headers. Names are as written, and appear at most once in each list (the first one counts).
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct HeaderEdits {
    /// Headers to set, replacing existing values.
    pub set: Vec<(String, String)>,
    /// Headers to add to existing values.
    pub add: Vec<(String, String)>,
    /// Headers to remove.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// No change.
    pub const NONE: Self = Self { set: Vec::new(), add: Vec::new(), remove: Vec::new() };
}

impl Silent for HeaderEdits {
    const SILENT: &Self = &Self::NONE;
}

/// A share of requests. The denominator is never 0, and never less than the numerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    /// The numerator.
    pub numerator: u32,
    /// The denominator.
    pub denominator: u32,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Redirect {
    /// `http` or `https`; `None` keeps it.
    pub scheme: Option<String>,
    /// The host; `None` keeps it.
    pub host: Option<String>,
    /// The path; `None` keeps it.
    pub path: Option<PathRewrite>,
    /// The port; `None` for that of the scheme, or of the listener if there is no scheme.
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the matched prefix. The rule then matches only prefixes.
    Prefix(String),
}

/// The settings for cross-origin requests.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Cors {
    /// Origins such as `https://a.example`, with `*` as a wildcard in the host; `*` alone is everyone.
    pub allow_origins: Vec<String>,
    /// Methods, or `*`.
    pub allow_methods: Vec<String>,
    /// Request headers, or `*`.
    pub allow_headers: Vec<String>,
    /// Response headers that scripts may read, or `*`.
    pub expose_headers: Vec<String>,
    /// True if credentials may be sent.
    pub allow_credentials: bool,
    /// How long browsers may cache the answer, in seconds.
    pub max_age_seconds: u32,
}
