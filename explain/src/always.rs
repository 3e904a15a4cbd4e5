//! Claims about all requests of a region, such as "nothing from outside reaches `internal`".
//!
//! The region is a route of its own, behind routes for what it leaves out, so that the space of requests is followed through it and
//! through the routes of a client together (`space`).

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, RouteConfiguration, RouteMatch};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};

use crate::client::{Client, Language};
use crate::explanation::{ActionKind, Explanation, Outcome};
use crate::model::Model;
use crate::request::Request;
use crate::route::Route;
use crate::semantics::Semantics;
use crate::space::destination::{Shares, shares};
use crate::space::flat::Flat;
use crate::space::host::witnesses;
use crate::space::split::{Both, Budget, Lists, Part};
use crate::space::values::Arrival;
use crate::table::{RouteTable, VirtualHost};
use crate::tables::{Reachable, Reached};

/// The requests that a claim is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Their hosts, in the form of domains; all if empty. For gRPC clients their targets.
    pub hosts: Vec<String>,
    /// What all of them have.
    pub when: Conditions,
    /// What none of them has.
    pub unless: Vec<Conditions>,
}

/// Conditions that hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The path, without its query; never `Present` or `Absent`, and `None` for any.
    pub path: Option<TextIs>,
    /// The method.
    pub method: Option<String>,
    /// Headers by name.
    pub headers: Vec<(String, TextIs)>,
}

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextIs {
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// It is this.
    Exact(String),
    /// It begins with this.
    Prefix(String),
    /// It ends with this.
    Suffix(String),
    /// It contains this.
    Contains(String),
    /// An RE2 expression takes the whole of it.
    Regex(String),
}

/// Where a share of requests goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// To a cluster.
    Cluster(&'a str),
    /// To a cluster that the request names itself.
    Named,
    /// Nowhere: no route takes it.
    Nothing,
    /// To an answer that no backend gives.
    Answer,
}

/// What was found about a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Requests for which it does not hold, at most [`MAX_EXAMPLES`].
    pub found: Vec<Counterexample>,
    /// What was not decided. Without any and without counterexamples, the claim holds.
    pub undecided: Vec<String>,
}

/// A request for which a claim does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The request.
    pub request: Request,
    /// Where it goes.
    pub explanation: Explanation,
}

/// Looks for requests of the region with a share that goes to a forbidden destination.
#[must_use]
pub fn always(model: &Model, region: &Region, is_forbidden: &dyn Fn(Destination<'_>) -> bool) -> Searched {
    let mut search = Search {
        model,
        is_forbidden,
        routes: region.routes(),
        budget: Budget::default(),
        searched: Searched::default(),
    };
    let Reachable { tables, undecided, .. } = Reachable::of(model);
    search.searched.undecided = undecided;
    for reached in &tables {
        search.table(reached, &reached.table, region);
        if reached.table.message.vhds.is_some() && reached.target.is_none() {
            let name = &reached.table.message.name;
            for resource in model.on_demand_hosts(name) {
                let host = resource.name().get(name.len() + 1..).unwrap_or_default();
                if let Some((table, _)) = model.on_demand(&reached.table, host) {
                    search.table(reached, &table, region);
                }
            }
        }
    }
    search.searched.undecided.sort_unstable();
    search.searched.undecided.dedup();
    search.searched
}

struct Search<'s> {
    model: &'s Model,
    is_forbidden: &'s dyn Fn(Destination<'_>) -> bool,
    /// Routes for what the region leaves out, and last that of the region.
    routes: Vec<Route>,
    budget: Budget,
    searched: Searched,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.searched.found.len() >= MAX_EXAMPLES
    }

    fn table(&mut self, reached: &Reached, table: &Arc<RouteTable>, region: &Region) {
        let semantics = self.model.semantics;
        let managers = match reached.target {
            Some(_) => [None, None],
            None => [Some(&reached.manager), Some(&reached.manager)],
        };
        let arrival = Arrival { base: reached.base.clone(), managers, semantics };
        let limits = region.table(semantics);
        let hosts = match &reached.target {
            Some(target) => vec![target.to_string()],
            None => {
                let domains = [&**table, &limits].into_iter();
                let domains =
                    domains.flat_map(|table| table.hosts.iter().flat_map(|host| &host.message.domains));
                let (hosts, missing) = witnesses(domains.map(String::as_str), semantics);
                self.searched
                    .undecided
                    .extend(missing.map(|missing| format!("{}: {missing}", table.message.name)));
                hosts
            }
        };
        if !table.message.vhost_header.is_empty() {
            let name = &table.message.name;
            self.searched.undecided.push(format!("{name}: a header names the virtual host"));
            return;
        }
        let mut seen: Vec<Option<usize>> = Vec::new();
        for host in hosts {
            if self.is_over() {
                return;
            }
            let is_inside = arrival.taker(&limits, &host).is_some();
            let at = arrival.taker(table, &host);
            if is_inside && !seen.contains(&at) {
                seen.push(at);
                self.host(&host, at.and_then(|at| table.hosts.get(at)), &arrival, table);
            }
        }
    }

    fn host(&mut self, host: &str, found: Option<&VirtualHost>, arrival: &Arrival<'_>, table: &RouteTable) {
        let about = format!("host {host}");
        let flat = match Flat::of_host(found, arrival.semantics) {
            Ok(flat) => flat,
            Err(why) => {
                let words = format!("{about}: a tree of matchers chooses the route: {why}");
                self.searched.undecided.push(words);
                return;
            }
        };
        let base = Request { authority: host.to_owned(), ..arrival.base.clone() };
        let arrival = Arrival { base, ..arrival.clone() };
        let routes = match &flat {
            Some(flat) => flat.routes.as_slice(),
            None => found.map(|found| found.routes.as_slice()).unwrap_or_default(),
        };
        let of_route = |route: &Route| shares([route].into_iter(), NOTHING, arrival.semantics);
        let is_bad = |shares: Option<Shares>| shares.is_none_or(|shares| self.is_broken(&shares, false));
        let bad: Vec<bool> = routes.iter().map(|route| is_bad(of_route(route))).collect();
        let minds_nothing = (self.is_forbidden)(Destination::Nothing);
        let own = u32::try_from(self.routes.len() - 1).unwrap_or(u32::MAX);
        let relevant: Both = match minds_nothing {
            true => [Vec::new(), vec![own]],
            false => {
                let bad = (0..).zip(&bad).filter(|(_, bad)| **bad);
                [bad.map(|(at, _)| at).collect(), Vec::new()]
            }
        };
        if !minds_nothing && relevant[0].is_empty() {
            return;
        }
        let settled = |both: &Both| {
            let is_harmless =
                !minds_nothing && !both[0].iter().any(|at| bad.get(*at as usize) == Some(&true));
            is_harmless || !both[1].contains(&own)
        };
        let mut lists = Lists::of([routes, &self.routes], &arrival, arrival.path_rules(table));
        let mut budget = Budget { n_steps: self.budget.n_steps, ..Budget::default() };
        let walked = lists.walk(&arrival, &relevant, &mut budget, settled);
        self.budget.n_steps = budget.n_steps;
        let left = walked.undecided.into_iter().map(|why| format!("{about}: {why}"));
        self.searched.undecided.extend(left);
        for part in walked.parts {
            if self.is_over() {
                return;
            }
            if part.lists[1].first() == Some(&own) {
                let taken = part.lists[0].iter().filter_map(|at| routes.get(*at as usize));
                let shares = shares(taken, NOTHING, arrival.semantics);
                self.judge(&about, part, shares);
            }
        }
    }

    fn judge(&mut self, about: &str, part: Part, shares: Option<Shares>) {
        let Some(shares) = shares else {
            self.searched.undecided.push(format!("{about}: shares that are too fine to be exact"));
            return;
        };
        if !self.is_broken(&shares, true) {
            return;
        }
        let explained = self.model.explain(&part.example);
        let is_it = |one: &Explanation| {
            let mut outcomes = one.outcomes.iter().filter(|outcome| !outcome.share.is_zero());
            outcomes.any(|outcome| (self.is_forbidden)(destination(outcome)))
        };
        let found = explained.into_iter().find(is_it).filter(|_| part.when.is_empty());
        match found {
            Some(explanation) => {
                self.searched.found.push(Counterexample { request: part.example, explanation });
            }
            None => {
                let Request { method, path, .. } = &part.example;
                let mut when = part.when.join(" and ");
                if when.is_empty() {
                    "conditions that depend on each other".clone_into(&mut when);
                }
                self.searched.undecided.push(format!("{about}: {method} {path} depends on {when}"));
            }
        }
    }

    /// Returns `true` if a share goes to a forbidden destination. `is_final` counts what no route takes.
    fn is_broken(&self, shares: &Shares, is_final: bool) -> bool {
        shares.keys().any(|to| {
            let destination = if to == NOTHING {
                Destination::Nothing
            } else if to.starts_with("cluster of header ") || to.starts_with("plugin ") {
                Destination::Named
            } else if let Some(cluster) = to.strip_prefix("cluster ") {
                Destination::Cluster(cluster)
            } else {
                Destination::Answer
            };
            (is_final || destination != Destination::Nothing) && (self.is_forbidden)(destination)
        })
    }
}

/// Where an outcome goes.
fn destination(outcome: &Outcome) -> Destination<'_> {
    match (outcome.action, &outcome.cluster) {
        (ActionKind::Cluster, Some(cluster)) => Destination::Cluster(&cluster.name),
        (ActionKind::Cluster | ActionKind::Plugin, _) => Destination::Named,
        (ActionKind::NoRoute | ActionKind::NoVirtualHost | ActionKind::NoListener, _) => Destination::Nothing,
        (
            ActionKind::Redirect
            | ActionKind::DirectResponse
            | ActionKind::Denied
            | ActionKind::Aborted
            | ActionKind::NoChain
            | ActionKind::RefusedResource
            | ActionKind::RefusedRequest,
            _,
        ) => Destination::Answer,
    }
}

impl Region {
    /// Routes for what the region leaves out, and last that of the region.
    fn routes(&self) -> Vec<Route> {
        // The conditions are those of this program, so they mean the same for every client.
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        self.unless.iter().chain([&self.when]).map(|one| Route::of(one.route(), semantics)).collect()
    }

    /// A table with the hosts of the region.
    fn table(&self, semantics: Semantics) -> RouteTable {
        let domains = if self.hosts.is_empty() { vec!["*".to_owned()] } else { self.hosts.clone() };
        let host = proto::VirtualHost { domains, ..Default::default() };
        RouteTable::of(RouteConfiguration { virtual_hosts: vec![host], ..Default::default() }, semantics)
    }
}

impl Conditions {
    fn route(&self) -> proto::Route {
        let path = match &self.path {
            None | Some(TextIs::Present | TextIs::Absent) => PathSpecifier::Prefix("/".to_owned()),
            Some(TextIs::Exact(text)) => PathSpecifier::Path(text.clone()),
            Some(TextIs::Prefix(text)) => PathSpecifier::Prefix(text.clone()),
            Some(TextIs::Suffix(text)) => regex(format!("(?s:.*){}", quoted(text))),
            Some(TextIs::Contains(text)) => regex(format!("(?s:.*){}(?s:.*)", quoted(text))),
            Some(TextIs::Regex(text)) => regex(text.clone()),
        };
        let method = self.method.as_ref().map(|method| header(":method", &TextIs::Exact(method.clone())));
        let headers = self.headers.iter().map(|(name, is)| header(name, is));
        let r#match = RouteMatch {
            path_specifier: Some(path),
            headers: method.into_iter().chain(headers).collect(),
            ..Default::default()
        };
        proto::Route { r#match: Some(r#match), ..Default::default() }
    }
}

fn regex(regex: String) -> PathSpecifier {
    PathSpecifier::SafeRegex(RegexMatcher { regex, ..Default::default() })
}

/// A regular expression that takes only this text.
fn quoted(text: &str) -> String {
    let special = |character: char| r"\.+*?()|[]{}^$".contains(character);
    let escaped = text.chars().flat_map(|one| special(one).then_some('\\').into_iter().chain([one]));
    escaped.collect()
}

fn header(name: &str, is: &TextIs) -> HeaderMatcher {
    let text = |pattern| {
        HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..Default::default()
        })
    };
    let specifier = match is {
        TextIs::Present => HeaderMatchSpecifier::PresentMatch(true),
        TextIs::Absent => HeaderMatchSpecifier::PresentMatch(false),
        TextIs::Exact(exact) => text(MatchPattern::Exact(exact.clone())),
        TextIs::Prefix(prefix) => text(MatchPattern::Prefix(prefix.clone())),
        TextIs::Suffix(suffix) => text(MatchPattern::Suffix(suffix.clone())),
        TextIs::Contains(part) => text(MatchPattern::Contains(part.clone())),
        TextIs::Regex(regex) => {
            text(MatchPattern::SafeRegex(RegexMatcher { regex: regex.clone(), ..Default::default() }))
        }
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// Counterexamples of one claim.
pub const MAX_EXAMPLES: usize = 3;

/// Where requests go that no route takes.
const NOTHING: &str = "nothing";
