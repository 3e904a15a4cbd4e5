//! Which listeners take which routes, and what routes are told about it.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::gateways::{Gateways, PlannedGateway};
use super::hostnames::intersection;
use super::kinds::{Contender, losers};
use super::ledger::{LIMIT_EXCEEDED, Wanted};
use super::listeners::{PlannedListener, document_kind, resolved_refs};
use super::lookup::{ROUTES, of_kinds};
use super::precedence::Seniority;
use super::statuses::{Fault, Statuses, code_of, partially_invalid};
use super::{GoesOn, Host, Lookup, RoutePlan, Told};
use crate::conditions::{Condition, ParentStatus, Truth};
use crate::model::{
    AllowedNamespaces, Document, DocumentKey, Hostname, Kind, LabelSelector, ParentRef, Route, RouteKind,
    Spec, Spot,
};
use crate::translate::{Documents, Options};

/// A route that may attach to Gateways.
#[derive(Debug)]
pub(crate) struct AttachableRoute<'d> {
    /// Its document.
    pub(crate) document: &'d Document,
    /// What it says.
    pub(crate) route: &'d Route,
    /// The group of its document, for which an implicit gateway would be.
    pub(crate) group: &'d GroupName,
    /// Its place among routes.
    pub(crate) seniority: Seniority,
    /// What its rules come to.
    pub(crate) plan: RoutePlan,
}

/// The routes that have a parent other than a Service, or none at all; sorted by identity.
pub(crate) fn attachable_routes<'d>(
    lookup: &Lookup<'d>,
    documents: &'d Documents,
    goes_on: GoesOn<'_>,
) -> Vec<AttachableRoute<'d>> {
    let mut routes = Vec::new();
    for (_, placed) in of_kinds(documents, ROUTES).take_while(|_| goes_on()) {
        let Spec::Route(route) = &placed.document.spec else { continue };
        if !route.parents.is_empty() && route.parents.iter().all(ParentRef::is_service) {
            continue;
        }
        routes.push(AttachableRoute {
            document: &placed.document,
            route,
            group: &placed.group,
            seniority: Seniority::of(&placed.document),
            plan: lookup.route_plan(placed, route),
        });
    }
    routes
}

/// Attaches routes to listeners, and says what came of it.
///
/// Adds implicit gateways where they are needed. Says nothing of parents that are Services, or Gateways of others.
pub(crate) fn attach<'d>(
    lookup: &Lookup<'_>,
    routes: &[AttachableRoute<'d>],
    gateways: &mut Gateways<'_>,
    options: &Options,
    told: &mut Told<'_, 'd>,
    goes_on: GoesOn<'_>,
) {
    let mut by_age: Vec<(usize, &AttachableRoute<'d>)> = routes.iter().enumerate().collect();
    by_age.sort_by(|(_, one), (_, other)| one.seniority.cmp(&other.seniority));
    let mut by_route = BTreeMap::new();
    for (index, route) in by_age.into_iter().take_while(|_| goes_on()) {
        by_route.insert(index, requests_of(index, route, lookup, gateways, options, told));
    }
    let Told { statuses, diagnostics, .. } = told;
    let mut requests: Vec<Request<'_>> = by_route.into_values().flatten().collect();
    settle_kinds(routes, gateways, options, &mut requests);
    for Request { route, places, .. } in &requests {
        for Place { gateway, listener, hosts } in places.iter().flatten() {
            let gateway = gateways.list.get_mut(*gateway);
            if let Some(listener) = gateway.and_then(|gateway| gateway.listeners.get_mut(*listener)) {
                listener.attached.entry(*route).or_default().extend(hosts.iter().cloned());
            }
        }
    }
    let mut reported = BTreeSet::new();
    for request in &requests {
        let Some(route) = routes.get(request.route) else { continue };
        report(route, request, statuses, diagnostics);
        if reported.insert(request.route) {
            diagnostics.extend(route.plan.problems.iter().map(|problem| problem.diagnostic(route.document)));
            diagnostics.extend(super::rules::without_backends(route.document));
        }
    }
}

impl Told<'_, '_> {
    /// Says of a route as a whole that it is not accepted.
    fn refuse(&mut self, route: &AttachableRoute<'_>, fault: Fault) {
        self.diagnostics.push(warning(route, &fault, &Spot::default()));
        self.statuses.object(&route.document.key, Condition::fails("Accepted", fault.reason, fault.message));
    }
}

/// What a route asks of its parents, as far as the limits of its group let it.
fn requests_of<'d>(
    index: usize,
    route: &AttachableRoute<'d>,
    lookup: &Lookup<'_>,
    gateways: &mut Gateways<'_>,
    options: &Options,
    told: &mut Told<'_, 'd>,
) -> Vec<Request<'d>> {
    let names_none = route.route.parents.is_empty();
    if names_none && told.ledger.is_tired() {
        let message = "older routes have asked all listeners that may be asked; name a parent";
        told.refuse(route, Fault::new(LIMIT_EXCEEDED, message));
        return Vec::new();
    }
    let references = references(route, gateways, options);
    if references.is_empty() && names_none {
        let message = "the route names no parent, and there is no implicit gateway for it";
        told.refuse(route, Fault::new("NoMatchingParent", message));
    }
    told.ledger.asked(references.len());
    let mut requests: Vec<Request<'_>> = references
        .into_iter()
        .map(|reference| {
            let places = places(lookup, route, &reference, gateways);
            Request { route: index, reference, places, lost: Vec::new() }
        })
        .collect();
    let of_places = requests.iter().flat_map(|request| request.places.iter().flatten());
    let wanted: Vec<Wanted<'_>> =
        of_places.map(|place| ((place.gateway, place.listener), place.hosts.as_slice())).collect();
    told.ledger.asked(wanted.len());
    match told.ledger.admit(route.group, route.document, route.plan.routes.len(), &wanted) {
        Ok(()) => {}
        // Said once: its text names no parent at which it could be said.
        Err(fault) if names_none => {
            told.refuse(route, fault);
            return Vec::new();
        }
        Err(fault) => {
            let accepted = requests.iter_mut().filter(|request| request.places.is_ok());
            accepted.for_each(|request| request.places = Err(fault.clone()));
        }
    }
    requests
}

/// One reference of a route to a parent.
#[derive(Debug)]
struct Request<'d> {
    route: usize,
    reference: Reference<'d>,
    /// The listeners that take the route, at least one; or why none does.
    places: Result<Vec<Place>, Fault>,
    /// Why some listener does not take it that would otherwise.
    lost: Vec<String>,
}

/// A listener that takes a route.
#[derive(Clone, Debug)]
struct Place {
    gateway: usize,
    listener: usize,
    /// At least one.
    hosts: Vec<Host>,
}

/// A parent as a route names it.
#[derive(Debug)]
struct Reference<'d> {
    /// Its position in the status.
    index: usize,
    /// What the document says, unless it is silent.
    parent: Option<&'d ParentRef>,
    /// The name that the status shows.
    name: String,
    /// What it leads to.
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A Gateway, by index.
    Gateway(usize),
    /// The implicit gateway, by index: it stands in for whatever is named, section and port included.
    Implicit(usize),
    /// Nothing.
    Nothing(Fault),
}

/// What the parents of a route lead to, without Services and without the Gateways of others.
fn references<'d>(
    route: &AttachableRoute<'d>,
    gateways: &mut Gateways<'_>,
    options: &Options,
) -> Vec<Reference<'d>> {
    let port = options.implicit_port.filter(|_| gateways.is_without_documents());
    if route.route.parents.is_empty() {
        return unnamed_parents(route, gateways, options);
    }
    let mut references = Vec::new();
    for (index, parent) in route.route.parents.iter().enumerate() {
        let key = DocumentKey::new(Kind::Gateway, &parent.namespace, &parent.name);
        if parent.is_service() || gateways.is_foreign(&key) {
            continue;
        }
        let is_gateway = key.kind.is_named(&parent.group, &parent.kind);
        let target = match (is_gateway, gateways.find(&key), port) {
            (false, _, _) => {
                let message = format!("routes cannot attach to a {} of {:?}", parent.kind, parent.group);
                Target::Nothing(Fault::new("UnsupportedValue", message))
            }
            (true, Some(gateway), _) => Target::Gateway(gateway),
            (true, None, Some(port)) => Target::Implicit(gateways.implicit(route.group, port)),
            (true, None, None) => {
                Target::Nothing(Fault::new("NoMatchingParent", format!("there is no {key}")))
            }
        };
        let name = format!("{} {}/{}", parent.kind, parent.namespace, parent.name);
        references.push(Reference { index, parent: Some(parent), name, target });
    }
    references
}

/// To what a route attaches that names nothing. Native routes take all that their form has; routes of the Gateway API the
/// implicit gateway, if there is no other or the route asks for it.
fn unnamed_parents<'d>(
    route: &AttachableRoute<'d>,
    gateways: &mut Gateways<'_>,
    options: &Options,
) -> Vec<Reference<'d>> {
    let is_native = route.route.kind == RouteKind::Native;
    let natives = if is_native { gateways.natives() } else { Vec::new() };
    let mut targets: Vec<Target> = natives.into_iter().map(Target::Gateway).collect();
    let takes_implicit = is_native || route.route.uses_default_gateways || gateways.is_without_documents();
    if targets.is_empty() && takes_implicit {
        let port = options.implicit_port;
        targets.extend(port.map(|port| Target::Implicit(gateways.implicit(route.group, port))));
    }
    let name = |target: &Target| match target {
        Target::Gateway(index) | Target::Implicit(index) => {
            gateways.list.get(*index).map(|gateway| gateway.key.to_string()).unwrap_or_default()
        }
        Target::Nothing(_) => String::new(),
    };
    let targets = targets.into_iter().enumerate();
    targets.map(|(index, target)| Reference { index, parent: None, name: name(&target), target }).collect()
}

/// The listeners that take a route by a reference, or why none does.
///
/// The first of these that leaves no listener is the reason: section and port, permission, host names, validity.
fn places(
    lookup: &Lookup<'_>,
    route: &AttachableRoute<'_>,
    reference: &Reference<'_>,
    gateways: &Gateways<'_>,
) -> Result<Vec<Place>, Fault> {
    let (at, parent) = match &reference.target {
        Target::Gateway(index) => (*index, reference.parent),
        Target::Implicit(index) => (*index, None),
        Target::Nothing(fault) => return Err(fault.clone()),
    };
    let Some(gateway) = gateways.list.get(at) else { return Ok(Vec::new()) };
    let mut meant: Vec<(usize, &PlannedListener)> = gateway.listeners.iter().enumerate().collect();
    meant.retain(|(_, listener)| parent.is_none_or(|parent| is_meant(parent, listener)));
    if meant.is_empty() {
        return Err(Fault::new("NoMatchingParent", nothing_meant(gateway, parent)));
    }
    let mut refusals = Vec::new();
    let mut allowed = Vec::new();
    for (index, listener) in meant {
        match admission(lookup, route, gateway, listener) {
            Ok(()) => allowed.push((index, listener)),
            Err(why) => refusals.push(format!("listener {} {why}", listener.spec.name)),
        }
    }
    if allowed.is_empty() {
        return Err(Fault::new("NotAllowedByListeners", refusals.join("; ")));
    }
    let hostnames = &route.route.hostnames;
    let mut matching = Vec::new();
    for (index, listener) in &allowed {
        let hosts = intersection(&listener.host, hostnames);
        if !hosts.is_empty() {
            matching.push((Place { gateway: at, listener: *index, hosts }, *listener));
        }
    }
    if matching.is_empty() {
        let listeners = allowed.iter().map(|(_, listener)| (listener.spec.name.as_str(), &listener.host));
        return Err(Fault::new("NoMatchingListenerHostname", no_common_host(hostnames, listeners)));
    }
    let mut places = Vec::new();
    let mut faults = Vec::new();
    for (place, listener) in matching {
        match &listener.fault {
            None => places.push(place),
            Some(fault) => {
                faults.push(format!("listener {} is not accepted: {}", listener.spec.name, fault.message));
            }
        }
    }
    if places.is_empty() {
        return Err(Fault::new("NoReadyListeners", faults.join("; ")));
    }
    Ok(places)
}

/// Whether section and port of a reference are those of a listener.
fn is_meant(parent: &ParentRef, listener: &PlannedListener) -> bool {
    parent.section.as_ref().is_none_or(|section| *section == listener.spec.name)
        && parent.port.is_none_or(|port| port == listener.spec.port)
}

fn nothing_meant(gateway: &PlannedGateway<'_>, parent: Option<&ParentRef>) -> String {
    let section = parent.and_then(|parent| parent.section.as_ref());
    let section = section.map(|section| format!(" {section}")).unwrap_or_default();
    let port = parent.and_then(|parent| parent.port);
    let port = port.map(|port| format!(" on port {port}")).unwrap_or_default();
    let names: Vec<&str> = gateway.listeners.iter().map(|listener| listener.spec.name.as_str()).collect();
    format!("{} has no listener{section}{port}; it has {}", gateway.key, names.join(", "))
}

fn no_common_host<'a>(
    hostnames: &[Hostname],
    listeners: impl Iterator<Item = (&'a str, &'a Host)>,
) -> String {
    let hostnames: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
    let listeners: Vec<String> = listeners.map(|(name, host)| format!("{host} ({name})")).collect();
    format!("no host of {} is one of the listeners' {}", hostnames.join(", "), listeners.join(", "))
}

/// Whether a listener may take a route of this kind and namespace; else why not, to be put behind its name.
fn admission(
    lookup: &Lookup<'_>,
    route: &AttachableRoute<'_>,
    gateway: &PlannedGateway<'_>,
    listener: &PlannedListener,
) -> Result<(), String> {
    let namespace = &route.document.key.namespace;
    let is_allowed = match &listener.spec.allowed.namespaces {
        AllowedNamespaces::Same => *namespace == gateway.key.namespace,
        AllowedNamespaces::All => true,
        AllowedNamespaces::None => false,
        AllowedNamespaces::Selector(selector) => selects(selector, &lookup.namespace_labels(namespace)),
    };
    if !is_allowed {
        return Err(format!("takes no routes of the namespace {namespace}"));
    }
    if listener.kinds.contains(&route.route.kind) {
        return Ok(());
    }
    let why = listener.fault.as_ref().map(|fault| format!(": {}", fault.message)).unwrap_or_default();
    Err(format!("takes no {}{why}", document_kind(route.route.kind)))
}

/// Whether labels are what a selector asks for. `NotIn` holds for a label that is not there.
pub(super) fn selects(selector: &LabelSelector, labels: &[(String, String)]) -> bool {
    let label = |key: &str| labels.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    selector
        .values
        .iter()
        .all(|(key, values, is_in)| label(key).is_some_and(|value| values.contains(value)) == *is_in)
        && selector.keys.iter().all(|(key, is_there)| label(key).is_some() == *is_there)
}

/// Takes listeners from routes that lose them to a route of the other kind.
fn settle_kinds(
    routes: &[AttachableRoute<'_>],
    gateways: &Gateways<'_>,
    options: &Options,
    requests: &mut [Request<'_>],
) {
    if options.merges_route_kinds {
        return;
    }
    let mut contests: BTreeMap<(usize, usize), BTreeMap<usize, BTreeSet<Host>>> = BTreeMap::new();
    for Request { route, places, .. } in requests.iter() {
        for Place { gateway, listener, hosts } in places.iter().flatten() {
            let contest = contests.entry((*gateway, *listener)).or_default();
            contest.entry(*route).or_default().extend(hosts.iter().cloned());
        }
    }
    let mut lost: BTreeMap<(usize, usize, usize), String> = BTreeMap::new();
    for ((gateway, listener), contest) in contests {
        let sides: Vec<(usize, &AttachableRoute<'_>, Vec<Host>)> = contest
            .into_iter()
            .filter_map(|(index, hosts)| Some((index, routes.get(index)?, hosts.into_iter().collect())))
            .collect();
        let contenders: Vec<Contender<'_>> = sides
            .iter()
            .map(|(_, route, hosts)| Contender { kind: route.route.kind, seniority: &route.seniority, hosts })
            .collect();
        let planned = gateways.list.get(gateway);
        let name = planned.and_then(|planned| planned.listeners.get(listener)).map(|one| &one.spec.name);
        for (loser, winner) in losers(&contenders) {
            let (Some(loser), Some(winner), Some(name)) = (sides.get(loser), sides.get(winner), name) else {
                continue;
            };
            let message = format!("listener {name} has {} for the same host", winner.1.document.key);
            lost.insert((loser.0, gateway, listener), message);
        }
    }
    for Request { route, places, lost: own, .. } in requests {
        let Ok(taken) = places else { continue };
        taken.retain(|place| {
            let message = lost.get(&(*route, place.gateway, place.listener));
            own.extend(message.cloned());
            message.is_none()
        });
        if taken.is_empty() && !own.is_empty() {
            *places = Err(Fault::new("HostnameConflict", std::mem::take(own).join("; ")));
        }
    }
}

/// Says what a route is to one parent.
fn report(
    route: &AttachableRoute<'_>,
    request: &Request<'_>,
    statuses: &mut Statuses,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let Reference { index, parent, name, target } = &request.reference;
    let document_spot = Spot::default();
    let spot = parent.map_or(&document_spot, |parent| &parent.spot);
    let mut accepted = match &request.places {
        Ok(_) => Condition::holds("Accepted", "Accepted"),
        Err(fault) => {
            let message = format!("{name} does not accept the route ({}): {}", fault.reason, fault.message);
            diagnostics.push(warning(route, &Fault::new(fault.reason, message), spot));
            Condition::fails("Accepted", fault.reason, fault.message.clone())
        }
    };
    for message in &request.lost {
        diagnostics.push(warning(route, &Fault::new("HostnameConflict", message.clone()), spot));
    }
    if let (Ok(places), Target::Implicit(_)) = (&request.places, target) {
        accepted.message = "served by the implicit gateway default/implicit".to_owned();
        if !places.is_empty() {
            let message = "the route attaches to the implicit gateway default/implicit, because no Gateway is there for it";
            diagnostics.push(route.document.diagnostic(
                Severity::Info,
                "implicit-gateway",
                spot,
                message.to_owned(),
            ));
        }
    }
    let is_accepted = accepted.status == Truth::True;
    let mut conditions = vec![accepted, resolved_refs(&route.plan.problems)];
    if is_accepted && !route.plan.partly_invalid.is_empty() {
        conditions.push(partially_invalid(&route.plan.partly_invalid));
    }
    let status = ParentStatus {
        parent: name.clone(),
        section: parent.and_then(|parent| parent.section.clone()),
        port: parent.and_then(|parent| parent.port),
        conditions,
    };
    statuses.parent(&route.document.key, *index, status);
}

fn warning(route: &AttachableRoute<'_>, fault: &Fault, spot: &Spot) -> Diagnostic {
    route.document.diagnostic(Severity::Warning, code_of(fault.reason), spot, fault.message.clone())
}
