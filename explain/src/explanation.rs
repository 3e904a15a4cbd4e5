//! The answer: where a request goes, and why.

use serde::Serialize;
use xds_cache::ResourceKey;

use crate::changed::Checked;
use crate::host::DomainKind;
use crate::ratio::Ratio;
use crate::route::{Failure, Reason};

/// Where something is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The file; empty for an object of the API.
    pub file: String,
    /// From 1; 0 if it is not known.
    pub line: u32,
    /// The document, if the resource is generated from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

impl Place {
    /// The file and the line, else the document; `None` if neither is known.
    pub(crate) fn shown(&self) -> Option<String> {
        match (&*self.file, self.line, &self.document) {
            ("", _, document) => document.clone(),
            (file, 0, document) => Some(document.as_deref().unwrap_or(file).to_owned()),
            (file, line, _) => Some(format!("{file}:{line}")),
        }
    }
}

/// A part of a resource, to be found in the files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The resource.
    pub resource: ResourceKey,
    /// The path of the field in it; empty for the resource itself.
    pub path: String,
    /// The name of the route, by which a generated one is found.
    pub route: Option<String>,
}

/// An answer about one client and one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `envoy@1.40`.
    pub client: String,
    /// The listener; `None` if there is none.
    pub listener: Option<Listener>,
    /// What happens to the request before it is routed.
    pub before: Vec<String>,
    /// The RouteConfiguration.
    pub route_config: Option<Element>,
    /// The virtual host; `None` if there is none.
    pub virtual_host: Option<Host>,
    /// The routes that were looked at, in order, up to the last that can be chosen. If there are many, those whose path does not fit are
    /// left out.
    pub routes: Vec<RouteSeen>,
    /// How many were looked at and left out of `routes`.
    pub n_left_out: usize,
    /// How many routes the virtual host has.
    pub n_routes: usize,
    /// What can happen. For each combination of assumptions the shares sum to one.
    pub outcomes: Vec<Outcome>,
    /// True if there are more outcomes, or if their shares are too fine.
    pub has_more: bool,
    /// What the answer depends on and the request does not say.
    pub unknown: Vec<String>,
    /// What else is worth knowing.
    pub notes: Vec<Note>,
}

/// An element with its name and place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Where it is written; filled in by [`Located::locate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The same for a machine.
    #[serde(skip)]
    pub part: Part,
}

/// The listener that accepts the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name and place.
    #[serde(flatten)]
    pub element: Element,
    /// `127.0.0.1:10000`; empty for a gRPC client.
    pub address: String,
    /// The name of the filter chain, or its number; `None` if there is none.
    pub chain: Option<String>,
    /// Which step decided about the chain.
    pub why: String,
    /// The branches of `filter_chain_matcher` that were looked at, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchSeen>,
}

/// The virtual host that takes the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Name and place.
    #[serde(flatten)]
    pub element: Element,
    /// The domain that takes the host.
    pub domain: String,
    /// How it does.
    pub kind: DomainKind,
    /// Other domains that would take it.
    pub passed_over: Vec<String>,
    /// The branches of `matcher` that were looked at, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchSeen>,
}

/// A branch of a tree of matchers that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchSeen {
    /// Its path in the virtual host or listener as the name, and its place.
    #[serde(flatten)]
    pub element: Element,
    /// `yes`, `no` or `unknown`.
    pub matches: &'static str,
    /// What it was asked and what it found, in words.
    pub what: String,
}

/// A route that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSeen {
    /// Its position, from 0.
    pub index: usize,
    /// Name and place.
    #[serde(flatten)]
    pub element: Element,
    /// `yes`, `no` or `unknown`.
    pub matches: &'static str,
    /// The path that it wants.
    pub path: String,
    /// The share of requests that it takes, if it takes not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Ratio>,
    /// Why it does not match.
    pub failed: Vec<Failure>,
    /// True if its path fits.
    pub takes_path: bool,
}

/// The kinds of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// It is forwarded to a cluster.
    Cluster,
    /// A redirect is answered.
    Redirect,
    /// The route itself answers.
    DirectResponse,
    /// An access rule refuses it.
    Denied,
    /// A fault aborts it.
    Aborted,
    /// No route takes it.
    NoRoute,
    /// No virtual host takes it.
    NoVirtualHost,
    /// No filter chain takes the connection.
    NoChain,
    /// There is no listener, or no RouteConfiguration.
    NoListener,
    /// The client refuses the resources.
    RefusedResource,
    /// An extension decides.
    Plugin,
    /// The request is refused before it is routed.
    RefusedRequest,
}

/// One thing that can happen to the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The share of requests, under the same assumptions.
    pub share: Ratio,
    /// What is assumed of things that are not known.
    pub when: Vec<String>,
    /// The position of the route, from 0.
    pub route: Option<usize>,
    /// What happens.
    pub action: ActionKind,
    /// What happens, in words.
    pub what: String,
    /// The HTTP status, or the gRPC status, of an answer that no backend gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Where a redirect leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Element>,
    /// The weight as it is written, of all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<(u64, u64)>,
    /// The endpoints of the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_endpoints: usize,
    /// How the request is changed on its way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewrites: Vec<String>,
    /// The time limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The filters, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Copies of the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirror>,
    /// What makes requests stick to an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// What the endpoint is chosen by, in order, if the cluster hashes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hash: Vec<String>,
    /// The redirects of the backend that the client follows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// What `router_check_tool` compares; only if the request asks as it does.
    #[serde(skip)]
    pub checked: Option<Box<Checked>>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// An endpoint of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// `10.0.0.1:80`.
    pub address: String,
    /// From 0.
    pub priority: u32,
    /// The zone, or the region.
    pub zone: String,
    /// As in the assignment.
    pub health: String,
    /// The share of the cluster's requests, as far as the assignment decides about it.
    pub share: Ratio,
}

/// A time limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// `request`, `idle`, `stream`.
    pub of: &'static str,
    /// Milliseconds; `None` if there is no limit.
    pub ms: Option<u64>,
    /// The field that says so.
    pub by: &'static str,
    /// True if the field is not set.
    pub is_default: bool,
}

/// When a request is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The conditions.
    pub on: Vec<String>,
    /// How often at most, besides the first time.
    pub n_retries: u32,
    /// Milliseconds of the first back-off.
    pub base_interval_ms: u64,
    /// Milliseconds of the longest back-off.
    pub max_interval_ms: u64,
    /// `route` or `virtual host`.
    pub by: &'static str,
}

/// An HTTP filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// Its name.
    pub name: String,
    /// `on`, `off`, or what it does.
    pub effect: String,
    /// The level that overrides its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
}

/// What makes requests stick to an endpoint (XA10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// `cookie` or `header`.
    pub by: &'static str,
    /// The name of the cookie or header.
    pub name: String,
}

/// The redirects that an Envoy follows itself: the table is asked again with the new location (XA4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Follows {
    /// The statuses.
    pub statuses: Vec<u32>,
    /// How many in a row.
    pub max: u32,
    /// True if it also follows from HTTP to HTTPS, or back.
    pub crosses_schemes: bool,
    /// The names of the conditions that each must fulfil.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

/// A copy of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mirror {
    /// The cluster that gets it.
    pub cluster: String,
    /// The share of the requests of this outcome.
    pub share: Ratio,
}

/// Something worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// A code.
    pub code: &'static str,
    /// In words.
    pub message: String,
}

/// Something that a client gets and does not use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// What it is.
    pub what: String,
    /// Why.
    pub reason: String,
    /// The rule.
    pub row: &'static str,
    /// The name and place of the resource, or of the part of it.
    pub element: Element,
}

/// An answer with places.
pub trait Located {
    /// Fills in the places.
    fn locate(&mut self, find: &mut dyn FnMut(&Part) -> Option<Place>);
}

impl Located for Explanation {
    fn locate(&mut self, find: &mut dyn FnMut(&Part) -> Option<Place>) {
        let listener = self.listener.iter_mut().flat_map(|listener| {
            let branches = listener.branches.iter_mut().map(|branch| &mut branch.element);
            std::iter::once(&mut listener.element).chain(branches)
        });
        let host = self.virtual_host.iter_mut().flat_map(|host| {
            let branches = host.branches.iter_mut().map(|branch| &mut branch.element);
            std::iter::once(&mut host.element).chain(branches)
        });
        let routes = self.routes.iter_mut().map(|route| &mut route.element);
        let clusters = self.outcomes.iter_mut().filter_map(|outcome| outcome.cluster.as_mut());
        for element in listener.chain(&mut self.route_config).chain(host).chain(routes).chain(clusters) {
            element.place = find(&element.part);
        }
    }
}

impl Explanation {
    /// The answer about a client that refuses the resources, or that has none.
    pub(crate) fn refused(client: String, action: ActionKind, what: String) -> Self {
        let outcome = Outcome::plain(Ratio::ONE, action, what);
        Self {
            client,
            listener: None,
            before: Vec::new(),
            route_config: None,
            virtual_host: None,
            routes: Vec::new(),
            n_left_out: 0,
            n_routes: 0,
            outcomes: vec![outcome],
            has_more: false,
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns `true` if the request reaches a route.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.route.is_some())
    }
}

impl Outcome {
    pub(crate) fn plain(share: Ratio, action: ActionKind, what: String) -> Self {
        Self {
            share,
            when: Vec::new(),
            route: None,
            action,
            what,
            status: None,
            location: None,
            cluster: None,
            weight: None,
            endpoints: Vec::new(),
            n_more_endpoints: 0,
            rewrites: Vec::new(),
            limits: Vec::new(),
            retry: None,
            filters: Vec::new(),
            mirrors: Vec::new(),
            session: None,
            hash: Vec::new(),
            follows: None,
            checked: None,
        }
    }

    pub(crate) fn with_status(self, status: impl Into<String>) -> Self {
        Self { status: Some(status.into()), ..self }
    }
}

impl From<&Reason> for Note {
    fn from(reason: &Reason) -> Self {
        Self { code: reason.row, message: reason.message.clone() }
    }
}
