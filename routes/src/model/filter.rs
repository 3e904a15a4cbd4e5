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
        /// Where to.
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
    /// A filter of another implementation. None is known, so its rule must fail instead of running without it.
    Extension {
        /// The API group.
        group: String,
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

/// Changes of headers; names as written, each at most once in a list (the first counts).
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct HeaderEdits {
    /// Set, replacing existing values.
    pub set: Vec<(String, String)>,
    /// Added to existing values.
    pub add: Vec<(String, String)>,
    /// Removed.
    pub remove: Vec<String>,
}

impl HeaderEdits {
    /// No change.
    pub const NONE: Self = Self { set: Vec::new(), add: Vec::new(), remove: Vec::new() };
}

impl Silent for HeaderEdits {
    const SILENT: &Self = &Self::NONE;
}

/// A share of requests: `numerator` of `denominator`, which is never 0 and never less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    /// How many are taken.
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
    /// The port; `None` takes that of the scheme, or of the listener if there is no scheme.
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum PathRewrite {
    /// In place of the whole path.
    Full(String),
    /// In place of the matched prefix; the rule then matches prefixes only.
    Prefix(String),
}

/// The origins that may read answers of others.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Cors {
    /// Origins such as `https://a.example`, with `*` as a wildcard in the host; `*` alone is everyone.
    pub allow_origins: Vec<String>,
    /// Methods, or `*`.
    pub allow_methods: Vec<String>,
    /// Request headers, or `*`.
    pub allow_headers: Vec<String>,
    /// Response headers that are shown, or `*`.
    pub expose_headers: Vec<String>,
    /// True if credentials may be sent.
    pub allow_credentials: bool,
    /// How long an answer may be remembered, in seconds.
    pub max_age_seconds: u32,
}
