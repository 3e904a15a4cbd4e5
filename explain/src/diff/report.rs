//! What a comparison finds.

use std::collections::HashSet;

use serde::Serialize;

use crate::explanation::{ActionKind, Element, Explanation, Host, Listener, Outcome};
use crate::header::is_secret;
use crate::ratio::Ratio;
use crate::request::Request;
use crate::space::destination::Shares;
use crate::space::split::Budget;

/// The difference between two models for requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// `envoy@1.40`.
    pub client: String,
    /// The classes of requests, at most [`MAX_CLASSES`]: destinations before everything else, by host, path and headers.
    pub classes: Vec<Class>,
    /// How many classes there are.
    pub n_classes: usize,
    /// What was not decided. Requests there may have moved without being in a class.
    pub undecided: Vec<Undecided>,
    /// True if something was too large, so that only samples of it were compared.
    pub sampled: bool,
    /// Virtual hosts that are the same on both sides, of route configurations that are not.
    pub unchanged_hosts: usize,
}

/// What differs for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ClassKind {
    /// Connections are accepted, refused, or reach another filter chain.
    Connection,
    /// Requests go elsewhere, or in other shares.
    Destination,
    /// Requests go to the same place, but are treated differently on the way.
    Treatment,
    /// Requests go to the same cluster, which has changed.
    Cluster,
}

/// Requests for which the same differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Class {
    /// What differs.
    pub kind: ClassKind,
    /// The settings that differ, and other remarks.
    pub what: Vec<String>,
    /// The cluster, for [`ClassKind::Cluster`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// One of the requests; `None` if all requests to a cluster are concerned.
    #[serde(serialize_with = "write_request", skip_serializing_if = "Option::is_none")]
    pub example: Option<Request>,
    /// The share of these requests that goes elsewhere.
    pub share: Ratio,
    /// What is assumed of things that no request says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<String>,
    /// How many parts of the space of requests are in the class, in all listeners that have it.
    pub parts: u64,
    /// Where the example went.
    #[serde(rename = "from", serialize_with = "write_side", skip_serializing_if = "Option::is_none")]
    pub before: Option<Explanation>,
    /// Where the example goes now.
    #[serde(rename = "to", serialize_with = "write_side", skip_serializing_if = "Option::is_none")]
    pub after: Option<Explanation>,
}

/// Something that was not decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Undecided {
    /// The listener, virtual host or resource.
    pub about: String,
    /// Why.
    pub why: String,
}

/// Classes in one answer.
pub const MAX_CLASSES: usize = 64;

impl Changes {
    /// The changes of several clients, with those of clients for which the same changes as one. `client` names all of them.
    #[must_use]
    pub fn together(all: Vec<Self>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for changes in all {
            let text = |one: &Self| Self { client: String::new(), ..one.clone() }.to_text();
            match groups.iter_mut().find(|one| text(one) == text(&changes)) {
                Some(one) => one.client = format!("{}, {}", one.client, changes.client),
                None => groups.push(changes),
            }
        }
        groups
    }

    /// Fills in the places of the explanations before and after. Each function is called once.
    pub fn locate(
        &mut self,
        before: impl FnOnce(&mut [Explanation]),
        after: impl FnOnce(&mut [Explanation]),
    ) {
        fill(self.classes.iter_mut().map(|class| &mut class.before), before);
        fill(self.classes.iter_mut().map(|class| &mut class.after), after);
    }

    /// Returns `true` if nothing differs and everything was decided.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n_classes == 0 && self.undecided.is_empty()
    }
}

fn fill<'c>(
    sides: impl Iterator<Item = &'c mut Option<Explanation>>,
    locate: impl FnOnce(&mut [Explanation]),
) {
    let mut sides: Vec<&mut Option<Explanation>> = sides.filter(|side| side.is_some()).collect();
    let mut explanations: Vec<Explanation> = sides.iter_mut().filter_map(|side| side.take()).collect();
    locate(&mut explanations);
    for (side, explanation) in sides.into_iter().zip(explanations) {
        *side = Some(explanation);
    }
}

/// A class before its example is explained.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: ClassKind,
    pub(super) what: Vec<String>,
    pub(super) cluster: Option<String>,
    pub(super) example: Option<Request>,
    /// Where requests go before and after, as far as it is known without asking.
    pub(super) shares: Option<[Shares; 2]>,
    pub(super) share: Ratio,
    pub(super) when: Vec<String>,
    pub(super) parts: u64,
    /// The listener or virtual host.
    pub(super) about: String,
    /// True if the example need not be in the class.
    pub(super) is_linked: bool,
}

/// What is found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) found: Vec<Found>,
    pub(super) undecided: Vec<Undecided>,
    pub(super) sampled: bool,
    pub(super) unchanged_hosts: usize,
    /// What is left for all virtual hosts together.
    pub(super) budget: Budget,
}

impl Findings {
    pub(super) fn leave(&mut self, about: &str, why: impl Into<String>) {
        self.undecided.push(Undecided { about: about.to_owned(), why: why.into() });
    }
}

/// The destination of an outcome.
pub(super) fn name(outcome: &Outcome) -> String {
    match &outcome.cluster {
        Some(cluster) => match &outcome.status {
            Some(status) => format!("{} ({status})", cluster.name),
            None => cluster.name.clone(),
        },
        None => match (&outcome.location, &outcome.status) {
            (Some(location), _) => location.clone(),
            (None, Some(status)) => format!("{} ({status})", outcome.what),
            (None, None) => outcome.what.clone(),
        },
    }
}

fn write_request<S: serde::Serializer>(request: &Option<Request>, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    let Some(request) = request else { return serializer.serialize_none() };
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("method", &request.method)?;
    map.serialize_entry("scheme", &request.scheme)?;
    map.serialize_entry("host", &request.authority)?;
    map.serialize_entry("path", &request.path)?;
    let headers: Vec<(&str, &str)> = request.headers.iter().map(shown_header).collect();
    map.serialize_entry("headers", &headers)?;
    let connection = &request.connection;
    map.serialize_entry("port", &connection.port)?;
    map.serialize_entry("to", &connection.to)?;
    map.serialize_entry("from", &connection.from)?;
    map.serialize_entry("sni", &connection.sni)?;
    map.serialize_entry("alpn", &connection.alpn)?;
    map.serialize_entry("certificate", &connection.certificate)?;
    map.end()
}

/// Where a request goes: its outcomes with names and places.
fn write_side<S: serde::Serializer>(side: &Option<Explanation>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Side<'e> {
        listener: Option<&'e Listener>,
        virtual_host: Option<&'e Host>,
        to: Vec<To<'e>>,
    }
    #[derive(Serialize)]
    struct To<'e> {
        name: String,
        share: Ratio,
        action: ActionKind,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'e str>,
        route: Option<&'e Element>,
    }
    let Some(side) = side else { return serializer.serialize_none() };
    let to = side.outcomes.iter().map(|outcome| To {
        name: name(outcome),
        share: outcome.share,
        action: outcome.action,
        status: outcome.status.as_deref(),
        route: outcome
            .route
            .and_then(|index| side.routes.iter().find(|route| route.index == index))
            .map(|route| &route.element),
    });
    Side { listener: side.listener.as_ref(), virtual_host: side.virtual_host.as_ref(), to: to.collect() }
        .serialize(serializer)
}

/// A header of an example. Credentials are not shown.
pub(super) fn shown_header((name, value): &(String, String)) -> (&str, &str) {
    (name, if is_secret(name) && !value.is_empty() { "…" } else { value })
}

/// The distinct texts, in order.
pub(super) fn distinct(all: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|one| seen.insert(one.clone())).collect()
}
