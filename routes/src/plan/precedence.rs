//! The precedence of routes that match the same request.
//!
//! The Gateway API defines an order for each kind of route. GRPCRoute: characters of the service, then of the method, then the number of
//! headers. HTTPRoute: an exact path, then the longest prefix, then a method, then headers, then query parameters. [`Rank`] combines both into
//! one order. That is possible because no route of one kind has the criteria of the other. So hosts with native routes, or with both kinds,
//! also have a total order:
//!
//! 1. by path: gRPC methods (service, then method), exact paths, prefixes (the longest first), regular expressions (the
//!    longest first), anything;
//! 2. with an HTTP method; more headers; more query parameters; with a fraction;
//! 3. the older document, then `namespace/name`, kind, rule, match, so that no two matches are equal.
//!
//! Lengths are counted in characters of the text, also for regular expressions. The Gateway API leaves open whether prefixes come before
//! expressions; this is Istio's choice. A prefix that matches everything does not count as a prefix here, because no expression could match
//! after it.
//!
//! The criteria of host names are not part of the rank. They are the order in which the hosts of a virtual host follow each other.

use std::cmp::Reverse;
use std::sync::Arc;

use super::PlannedRoute;
use crate::model::{Document, DocumentKey, Kind, PathMatch};

/// The seniority of an object. A lower value wins.
///
/// The age is `creationTimestamp`. An object without one is younger than all objects that have one, and as old as all others without. In
/// files, which usually have none, only names decide, and a new file never wins over an object with an age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seniority {
    created: i64,
    /// `namespace/name`, compared as one text.
    name: Arc<str>,
    kind: Kind,
}

impl Seniority {
    /// The seniority of a document.
    pub(crate) fn of(document: &Document) -> Self {
        Self::new(&document.key, document.meta.created)
    }

    /// The seniority of an object with this `creationTimestamp`.
    pub(crate) fn new(key: &DocumentKey, created: Option<i64>) -> Self {
        let name = format!("{}/{}", key.namespace, key.name).into();
        Self { created: created.unwrap_or(i64::MAX), name, kind: key.kind }
    }
}

/// The precedence of a route on its host. A lower value comes first. Ranks are unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    path: PathRank,
    has_method: Reverse<bool>,
    n_headers: Reverse<usize>,
    n_query: Reverse<usize>,
    has_fraction: Reverse<bool>,
    ignores_case: bool,
    seniority: Seniority,
    rule: usize,
    match_index: usize,
}

impl Rank {
    /// The precedence of a route of a document with this seniority.
    pub(crate) fn of(route: &PlannedRoute, seniority: &Seniority) -> Self {
        let matches = &route.matches;
        Self {
            path: PathRank::of(&matches.path),
            has_method: Reverse(matches.method.is_some()),
            n_headers: Reverse(matches.headers.len()),
            n_query: Reverse(matches.query.len()),
            has_fraction: Reverse(matches.fraction.is_some()),
            ignores_case: !matches.case_sensitive,
            seniority: seniority.clone(),
            rule: route.id.rule,
            match_index: route.id.match_index,
        }
    }
}

/// The precedence of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathRank {
    /// Characters of the service and of the method.
    Method(Reverse<usize>, Reverse<usize>),
    /// The length of an exact path does not matter, because no request matches two.
    Exact,
    /// Characters of the prefix, and whether it may end within a segment. Of equal texts, that one matches more and comes later.
    Prefix(Reverse<usize>, bool),
    /// Characters of the expression.
    Regex(Reverse<usize>),
    Any,
}

impl PathRank {
    fn of(path: &PathMatch) -> Self {
        let characters = |text: &str| Reverse(text.chars().count());
        match path {
            PathMatch::Method(method) => {
                let service = characters(method.service.as_deref().unwrap_or_default());
                let method = characters(method.method.as_deref().unwrap_or_default());
                if service.0 + method.0 == 0 { Self::Any } else { Self::Method(service, method) }
            }
            PathMatch::Exact(_) => Self::Exact,
            PathMatch::Prefix(prefix) | PathMatch::TextPrefix(prefix) if prefix.len() < 2 => Self::Any,
            PathMatch::Prefix(prefix) => Self::Prefix(characters(prefix), false),
            PathMatch::TextPrefix(prefix) => Self::Prefix(characters(prefix), true),
            PathMatch::Regex(regex) => Self::Regex(characters(regex)),
            PathMatch::Any => Self::Any,
        }
    }
}
