//! Services as parents (§1.9): GRPCRoutes, HTTPRoutes, native routes and TrafficSplits of the mesh.
//!
//! A route in the Service's own namespace is the producer's and holds for every client of the route's group. A route of another
//! namespace is a consumer's: it holds for the clients of that namespace only, who are in a group of their own, and there in
//! place of what the producer says; whatever else they can call on that port they still can ([`consumers`]).
//!
//! Of several kinds on one port the first of GRPCRoute, HTTPRoute (or native route), TrafficSplit holds alone. Where nothing else
//! is, a Service has a route to itself, so that deleting the last route leaves no hole (SMI's workflow, C119). gRPC clients can
//! dial all of them; Envoys listen only for ports that a document asks for, the annotation [`MESH_ANNOTATION`] of a Service
//! included.

mod consumers;

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{Diagnostic, Severity};

use self::consumers::{Consumers, group_of};
use super::backends::Referent;
use super::ledger::Ledger;
use super::listeners::resolved_refs;
use super::lookup::{Lookup, ROUTES, RoutePlan, of_kinds};
use super::parts::{Action, Backend, MeshService, PlannedRoute, RouteId, Target, Weighted};
use super::precedence::{Rank, Seniority};
use super::split::{self, PlannedSplit};
use super::statuses::{Fault, Statuses, code_of, partially_invalid};
use super::{GoesOn, Told, rules};
use crate::conditions::{Condition, ParentStatus};
use crate::model::{
    Document, DocumentKey, Kind, Match, ParentRef, PathMatch, RouteKind, Service, ServicePort, Spec, Spot,
};
use crate::translate::{Documents, Options, Placed};

/// Says `"true"` on Services for which Envoys of the mesh listen without any route too.
const MESH_ANNOTATION: &str = "xds-server.io/mesh";

/// The mesh services of each group, with definitions for the groups that only consumer routes make.
pub(crate) fn mesh<'d>(
    lookup: &Lookup<'d>,
    documents: &'d Documents,
    options: &Options,
    told: &mut Told<'_>,
    goes_on: GoesOn<'_>,
) -> BTreeMap<GroupName, (Option<NodeGroup>, Vec<MeshService>)> {
    let routes = mesh_routes(lookup, documents, goes_on);
    let splits = split::plan_splits(lookup, told.diagnostics);
    let mut requests: Vec<Request<'_>> =
        routes.iter().flat_map(|route| requests_of_route(lookup, route)).collect();
    for request in &mut requests {
        let fault = told.refused.get(request.claim.key()).filter(|_| request.places.is_ok());
        request.places = fault.map_or_else(|| request.places.clone(), |fault| Err(fault.clone()));
    }
    let mut claims = Claims::new();
    for request in &requests {
        for place in request.places.iter().flatten() {
            claims.entry(place.clone()).or_default().entry(request.claim.key()).or_insert(request.claim);
        }
    }
    for split in &splits {
        for place in places_of_split(split) {
            claims.entry(place).or_default().entry(&split.document.key).or_insert(Claim::Split(split));
        }
    }
    for (_, placed) in of_kinds(documents, Kind::Service..=Kind::Service) {
        for place in places_of_service(placed) {
            let key = &placed.document.key;
            claims.entry(place).or_default().entry(key).or_insert(Claim::Own(placed));
        }
    }
    let lost = settle(&mut claims, options);
    let Told { statuses, diagnostics, .. } = told;
    report_once_split(&claims, diagnostics);
    for request in &requests {
        report_route(request, &lost, statuses, diagnostics);
    }
    for route in &routes {
        diagnostics.extend(route.plan.problems.iter().map(|problem| problem.diagnostic(route.document)));
        diagnostics.extend(rules::without_backends(route.document));
    }
    for split in &splits {
        report_split(split, &lost, statuses, diagnostics);
    }
    report_uncounted(documents, &splits, diagnostics);
    let consumers = Consumers::of(&requests);
    let borrowed = consumers.borrow(&mut claims);
    services(lookup, claims, &consumers, &borrowed)
}

/// A port of a Service, for the clients of a group.
type Place<'d> = (GroupName, &'d DocumentKey, u16);

/// Who wants to route the requests to a port, each once.
type Claims<'p> = BTreeMap<Place<'p>, BTreeMap<&'p DocumentKey, Claim<'p>>>;

/// Who lost a port to whom.
type Lost<'p> = BTreeMap<(&'p DocumentKey, Place<'p>), &'p DocumentKey>;

/// A route that has a Service as a parent.
struct MeshRoute<'d> {
    document: &'d Document,
    group: &'d GroupName,
    kind: RouteKind,
    parents: &'d [ParentRef],
    plan: RoutePlan,
}

/// What wants to route requests to a Service.
#[derive(Clone, Copy)]
enum Claim<'p> {
    Route(&'p MeshRoute<'p>),
    Split(&'p PlannedSplit<'p>),
    Own(&'p Placed),
}

/// The kinds that exclude each other; the first wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Grpc,
    Http,
    Split,
    Own,
}

/// One reference of a route to a Service.
struct Request<'p> {
    route: &'p MeshRoute<'p>,
    claim: Claim<'p>,
    /// Its position in the status.
    index: usize,
    parent: &'p ParentRef,
    /// The Service, if it is there.
    service: Option<&'p Service>,
    places: Result<Vec<Place<'p>>, Fault>,
}

impl<'p> Claim<'p> {
    fn class(&self) -> Class {
        match self {
            Self::Route(route) => match route.kind {
                RouteKind::Grpc => Class::Grpc,
                RouteKind::Http | RouteKind::Native => Class::Http,
            },
            Self::Split(_) => Class::Split,
            Self::Own(_) => Class::Own,
        }
    }

    fn document(&self) -> &'p Document {
        match self {
            Self::Route(route) => route.document,
            Self::Split(split) => split.document,
            Self::Own(placed) => &placed.document,
        }
    }

    fn key(&self) -> &'p DocumentKey {
        &self.document().key
    }
}

fn mesh_routes<'d>(lookup: &Lookup<'d>, documents: &'d Documents, goes_on: GoesOn<'_>) -> Vec<MeshRoute<'d>> {
    let mut routes = Vec::new();
    for (_, placed) in of_kinds(documents, ROUTES).take_while(|_| goes_on()) {
        let Spec::Route(route) = &placed.document.spec else { continue };
        if route.parents.iter().any(ParentRef::is_service) {
            let (document, group, parents) = (&*placed.document, &placed.group, route.parents.as_slice());
            let plan = lookup.route_plan(placed, route);
            routes.push(MeshRoute { document, group, kind: route.kind, parents, plan });
        }
    }
    routes
}

/// The ports that a route wants by each of its parents.
fn requests_of_route<'p>(lookup: &Lookup<'p>, route: &'p MeshRoute<'p>) -> Vec<Request<'p>> {
    let parents = route.parents.iter().enumerate().filter(|(_, parent)| parent.is_service());
    let request = |(index, parent): (usize, &'p ParentRef)| {
        let found = lookup.service(&parent.namespace, &parent.name);
        let places = found.ok_or_else(|| missing(parent)).and_then(|(document, service)| {
            let group = group_of(route, parent)?;
            let ports = ports(&document.key, service, parent)?;
            Ok(ports.into_iter().map(|port| (group.clone(), &document.key, port)).collect())
        });
        let service = found.map(|(_, service)| service);
        Request { route, claim: Claim::Route(route), index, parent, service, places }
    };
    parents.map(request).collect()
}

/// The routes that pass a limit of their group, the youngest, and why.
pub(crate) fn refused_of_mesh<'d>(
    lookup: &Lookup<'d>,
    documents: &'d Documents,
    ledger: &mut Ledger<'d>,
    goes_on: GoesOn<'_>,
) -> BTreeMap<DocumentKey, Fault> {
    let routes = mesh_routes(lookup, documents, goes_on);
    let requests: Vec<Request<'_>> =
        routes.iter().flat_map(|route| requests_of_route(lookup, route)).collect();
    // The clients of a consumer get all Services of a port that it asks for.
    let mut of_port: BTreeMap<u16, usize> = BTreeMap::new();
    for (_, placed) in of_kinds(documents, Kind::Service..=Kind::Service) {
        places_of_service(placed).iter().for_each(|(_, _, port)| *of_port.entry(*port).or_default() += 1);
    }
    let mut by_age: Vec<&[Request<'_>]> =
        requests.chunk_by(|one, other| one.claim.key() == other.claim.key()).collect();
    by_age.sort_by_cached_key(|of_route| of_route.first().map(|first| Seniority::of(first.route.document)));
    let mut asked: BTreeSet<(GroupName, u16)> = BTreeSet::new();
    let mut refused = BTreeMap::new();
    for of_route in by_age {
        let Some(route) = of_route.first().map(|first| first.route) else { continue };
        let Some(placed) = documents.get(&route.document.key) else { continue };
        let places = || of_route.iter().flat_map(|request| request.places.iter().flatten());
        let ports: BTreeSet<(GroupName, u16)> =
            places().map(|(group, _, port)| (group.clone(), *port)).collect();
        let is_new = |port: &&(GroupName, u16)| port.0 != *route.group && !asked.contains(*port);
        let others = ports.iter().filter(is_new).filter_map(|(_, port)| of_port.get(port)).sum();
        let n_ports = places().count();
        match ledger.admit_ports(&placed.group, route.document, route.plan.routes.len(), (n_ports, others)) {
            Ok(()) => asked.extend(ports),
            Err(fault) => _ = refused.insert(route.document.key.clone(), fault),
        }
    }
    refused
}

fn missing(parent: &ParentRef) -> Fault {
    Fault::new("NoMatchingParent", format!("there is no Service {}/{}", parent.namespace, parent.name))
}

/// The ports of a Service that a parent means: all, unless it gives a number or, as `sectionName`, a name.
fn ports(key: &DocumentKey, service: &Service, parent: &ParentRef) -> Result<Vec<u16>, Fault> {
    let is_meant = |port: &&ServicePort| {
        parent.port.is_none_or(|number| number == port.port)
            && parent.section.as_ref().is_none_or(|name| *name == port.name)
    };
    let mut ports: Vec<u16> = service.ports.iter().filter(is_meant).map(|port| port.port).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        let section = parent.section.as_ref().map(|name| format!(" named {name}")).unwrap_or_default();
        let number = parent.port.map(|number| format!(" {number}")).unwrap_or_default();
        return Err(Fault::new("NoMatchingParent", format!("the {key} has no port{number}{section}")));
    }
    Ok(ports)
}

fn places_of_split<'p>(split: &'p PlannedSplit<'p>) -> Vec<Place<'p>> {
    let Some(root) = split.root else { return Vec::new() };
    split.ports.iter().map(|(port, _)| (split.group.clone(), &root.key, *port)).collect()
}

/// The ports of a Service, which is reached without a route too.
fn places_of_service(placed: &Placed) -> Vec<Place<'_>> {
    let document = &placed.document;
    let Spec::Service(service) = &document.spec else { return Vec::new() };
    service.ports.iter().map(|port| (placed.group.clone(), &document.key, port.port)).collect()
}

/// Leaves the claims of the first kind only. Gateways' option to let both kinds of routes in holds here too.
fn settle<'p>(claims: &mut Claims<'p>, options: &Options) -> Lost<'p> {
    let mut lost = Lost::new();
    for (place, rivals) in claims.iter_mut().filter(|(_, rivals)| rivals.len() > 1) {
        let first =
            rivals.values().min_by_key(|claim| (claim.class(), Seniority::of(claim.document()))).copied();
        let Some(first) = first else { continue };
        let merges = options.merges_route_kinds && first.class() == Class::Grpc;
        let last_class = if merges { Class::Http } else { first.class() };
        rivals.retain(|key, claim| {
            let stays = claim.class() <= last_class;
            if !stays {
                lost.insert((key, place.clone()), first.key());
            }
            stays
        });
    }
    lost
}

/// Says what a route is to one parent.
fn report_route(
    request: &Request<'_>,
    lost: &Lost<'_>,
    statuses: &mut Statuses,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let Request { route, parent, .. } = request;
    let document = route.document;
    let accepted = match &request.places {
        Ok(places) => accepted(document, places, lost, None),
        Err(fault) => Err(fault.clone()),
    };
    let mut warn = |code, spot: &Spot, message: String| {
        diagnostics.push(document.diagnostic(Severity::Warning, code, spot, message));
    };
    let mut conditions = Vec::new();
    match accepted {
        Ok(message) => {
            let partly = &route.plan.partly_invalid;
            if !message.is_empty() {
                warn(code_of("Conflicted"), &parent.spot, message.clone());
            }
            conditions.push(Condition { message, ..Condition::holds("Accepted", "Accepted") });
            conditions.extend((!partly.is_empty()).then(|| partially_invalid(partly)));
        }
        Err(Fault { reason, message }) => {
            warn(code_of(reason), &parent.spot, message.clone());
            conditions.push(Condition::fails("Accepted", reason, message));
        }
    }
    conditions.insert(1, resolved_refs(&route.plan.problems));
    let name = format!("{} {}/{}", parent.kind, parent.namespace, parent.name);
    if request.service.is_some_and(|service| service.external_name.is_some()) {
        let message =
            format!("the {name} is another host's name; routes for it hold only for clients of the mesh");
        warn("external-name-parent", &parent.spot, message);
    }
    let (section, port) = (parent.section.clone(), parent.port);
    statuses.parent(&document.key, request.index, ParentStatus { parent: name, section, port, conditions });
}

fn report_split(
    split: &PlannedSplit<'_>,
    lost: &Lost<'_>,
    statuses: &mut Statuses,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let document = split.document;
    let accepted = accepted(document, &places_of_split(split), lost, split.fault.as_ref());
    let told = match &accepted {
        Ok(message) => message,
        Err(fault) => &fault.message,
    };
    let is_new = split.fault.as_ref().is_none_or(|fault| fault.message != *told);
    if let Spec::TrafficSplit(spec) = &document.spec
        && is_new
        && !told.is_empty()
    {
        let (code, message) = (code_of("Conflicted"), told.clone());
        diagnostics.push(document.diagnostic(Severity::Warning, code, &spec.service_spot, message));
    }
    let accepted = match accepted {
        Ok(message) => Condition { message, ..Condition::holds("Accepted", "Accepted") },
        Err(Fault { reason, message }) => Condition::fails("Accepted", reason, message),
    };
    statuses.object(&document.key, accepted);
    statuses.object(&document.key, resolved_refs(&split.problems));
}

/// Tells Gateways' routes whose backend is the root of a split that the split is not for them.
fn report_uncounted(documents: &Documents, splits: &[PlannedSplit<'_>], diagnostics: &mut Vec<Diagnostic>) {
    let accepted = splits.iter().filter(|split| split.fault.is_none());
    let roots: BTreeMap<&DocumentKey, &DocumentKey> =
        accepted.filter_map(|split| Some((&split.root?.key, &split.document.key))).collect();
    if roots.is_empty() {
        return;
    }
    for (_, placed) in of_kinds(documents, ROUTES) {
        let Spec::Route(route) = &placed.document.spec else { continue };
        if route.parents.iter().all(ParentRef::is_service) {
            continue;
        }
        for backend in route.rules.iter().flat_map(|rule| &rule.backends) {
            let object = &backend.object;
            if !Kind::Service.is_named(&object.group, &object.kind) {
                continue;
            }
            let (namespace, name) = (object.namespace.clone(), object.name.clone());
            let Some(split) = roots.get(&DocumentKey { kind: Kind::Service, namespace, name }) else {
                continue;
            };
            let message = format!(
                "{split} does not count for requests that come through a Gateway: they go to the endpoints of the Service \
                 {}/{} itself; write the weights into this route, as its `backendRefs`",
                object.namespace, object.name
            );
            let warning =
                placed.document.diagnostic(Severity::Warning, "split-not-counted", &object.spot, message);
            diagnostics.push(warning);
        }
    }
}

/// Whether an object got any of the ports that it wants, with a message about those that it did not get; else why not.
fn accepted(
    document: &Document,
    places: &[Place<'_>],
    lost: &Lost<'_>,
    fault: Option<&Fault>,
) -> Result<String, Fault> {
    let told = |place: &Place<'_>| {
        let (group, service, port) = place;
        let winner = lost.get(&(&document.key, (group.clone(), service, *port)))?;
        Some(format!("{winner} has the port {port} of the {service} for itself"))
    };
    let messages: Vec<String> = places.iter().filter_map(told).collect();
    let message = messages.join("; ");
    match fault {
        _ if !places.is_empty() && messages.len() == places.len() => {
            // The Gateway API has a word of its own for routes (§1.7), which others write too.
            let is_split = document.key.kind == Kind::TrafficSplit;
            Err(Fault::new(if is_split { "Conflicted" } else { "RouteReasonConflicted" }, message))
        }
        Some(fault) => Err(fault.clone()),
        None => Ok(message),
    }
}

/// The services of each group, sorted by namespace, name and port.
fn services<'p>(
    lookup: &Lookup<'p>,
    claims: Claims<'p>,
    consumers: &Consumers<'p>,
    borrowed: &BTreeSet<Place<'p>>,
) -> BTreeMap<GroupName, (Option<NodeGroup>, Vec<MeshService>)> {
    let namesakes = Namesakes::of(&claims);
    let mut groups: BTreeMap<GroupName, (Option<NodeGroup>, Vec<MeshService>)> = BTreeMap::new();
    for (place, claims) in claims {
        let is_borrowed = borrowed.contains(&place);
        let (group, service, port) = place;
        let DocumentKey { namespace, name, .. } = service;
        let Some(referent) = lookup.port_of(namespace, name, port) else { continue };
        let has_short_name = namesakes.has_short_name(&consumers.naming(&group), service);
        let lowest = lookup.service(namespace, name).and_then(|(_, service)| service.lowest_port());
        let planned = MeshService {
            namespace: namespace.to_string(),
            name: name.to_string(),
            port,
            hosts: hosts(namespace, name, has_short_name),
            is_lowest_port: lowest == Some(port),
            is_implicit: !is_asked_for(&claims),
            is_borrowed,
            routes: routes(lookup, port, &referent, claims.into_values().collect()),
            origin: referent.document().origin(),
        };
        let group = groups.entry(group).or_insert_with_key(|group| (consumers.definition(group), Vec::new()));
        group.1.push(planned);
    }
    groups
}

/// Whether a document asks for the port: not the Service alone, unless its annotation does.
fn is_asked_for(claims: &BTreeMap<&DocumentKey, Claim<'_>>) -> bool {
    claims.values().any(|claim| match claim {
        Claim::Route(_) | Claim::Split(_) => true,
        Claim::Own(placed) => match placed.document.meta.annotation(MESH_ANNOTATION) {
            Some(said) => said == "true",
            None => placed.was_split,
        },
    })
}

/// Tells that Envoys listen for a Service of which no document says so any more.
fn report_once_split(claims: &Claims<'_>, diagnostics: &mut Vec<Diagnostic>) {
    let mut last = None;
    for claims in claims.values() {
        let mut alone = claims.values().filter_map(|claim| match claim {
            Claim::Own(placed) => Some(*placed),
            Claim::Route(_) | Claim::Split(_) => None,
        });
        let Some(placed) = alone.next().filter(|_| claims.len() == 1) else { continue };
        let document = &placed.document;
        let is_told = last.replace(&document.key) == Some(&document.key);
        if !placed.was_split || is_told || document.meta.annotation(MESH_ANNOTATION).is_some() {
            continue;
        }
        let message = format!(
            "Envoys go on listening for this Service because a TrafficSplit named it once; to have that written down, give it the \
             annotation {MESH_ANNOTATION}: \"true\", or \"false\" to end it"
        );
        diagnostics.push(document.diagnostic(Severity::Info, "once-split", &Spot::default(), message));
    }
}

/// The namespaces of the Services of each name in a group, and of those among them that documents ask for.
#[derive(Default)]
struct Namesakes<'p> {
    all: BTreeMap<(GroupName, &'p str), BTreeSet<&'p str>>,
    asked_for: BTreeMap<(GroupName, &'p str), BTreeSet<&'p str>>,
}

impl<'p> Namesakes<'p> {
    fn of(claims: &Claims<'p>) -> Self {
        let mut namesakes = Self::default();
        for ((group, service, _), claims) in claims {
            let (key, namespace) = ((group.clone(), &*service.name), &*service.namespace);
            if is_asked_for(claims) {
                namesakes.asked_for.entry(key.clone()).or_default().insert(namespace);
            }
            namesakes.all.entry(key).or_default().insert(namespace);
        }
        namesakes
    }

    /// Whether in these groups the name alone means this Service: it is the only one of that name, or the only one that documents
    /// ask for.
    fn has_short_name(&self, groups: &[GroupName], service: &DocumentKey) -> bool {
        let is_alone = |of: &BTreeMap<(GroupName, &'p str), BTreeSet<&'p str>>| {
            let sets = groups.iter().filter_map(|group| of.get(&(group.clone(), &*service.name)));
            let mut namespaces = sets.flatten().peekable();
            namespaces.peek().is_some() && namespaces.all(|namespace| **namespace == *service.namespace)
        };
        is_alone(&self.all) || is_alone(&self.asked_for)
    }
}

/// The names under which a Service is called, the shortest first.
fn hosts(namespace: &str, name: &str, is_unique: bool) -> Vec<String> {
    let long = ["", ".svc", ".svc.cluster.local"].map(|end| [name, ".", namespace, end].concat());
    is_unique.then(|| name.to_owned()).into_iter().chain(long).collect()
}

/// The routes of all who hold a port, in order of precedence: routes of a kind are mixed, kinds are not.
fn routes(
    lookup: &Lookup<'_>,
    port: u16,
    own: &Referent<'_>,
    mut claims: Vec<Claim<'_>>,
) -> Vec<PlannedRoute> {
    claims.sort_by_key(Claim::class);
    let mut routes = Vec::new();
    for claims in claims.chunk_by(|one, other| one.class() == other.class()) {
        let mut ranked: Vec<(Rank, &PlannedRoute)> = Vec::new();
        for claim in claims {
            match claim {
                Claim::Route(route) => {
                    let seniority = Seniority::of(route.document);
                    let ranks = route.plan.routes.iter().map(|route| (Rank::of(route, &seniority), route));
                    ranked.extend(ranks);
                }
                Claim::Split(split) => {
                    let of_port = split.ports.iter().filter(|(number, _)| *number == port);
                    routes.extend(of_port.flat_map(|(_, routes)| routes).cloned());
                }
                Claim::Own(placed) => routes.extend(route_to_itself(lookup, &placed.document, own)),
            }
        }
        ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
        routes.extend(ranked.into_iter().map(|(_, route)| route.clone()));
    }
    routes
}

/// The route that a port of a Service has if there is no other.
fn route_to_itself(lookup: &Lookup<'_>, document: &Document, own: &Referent<'_>) -> Option<PlannedRoute> {
    let Referent::Port { port, .. } = own else { return None };
    let is_grpc = split::is_grpc(port);
    let backend = Backend { name: own.cluster_name(), protocol: lookup.protocol(own, is_grpc) };
    let weighted = Weighted::plain(Target::Backend(backend), 1);
    let id = RouteId { document: document.key.clone(), rule: 0, rule_name: None, match_index: 0 };
    let everything = Match::of_path(&Spot::default(), PathMatch::Any);
    Some(PlannedRoute::plain(id, is_grpc, everything, Action::Forward(vec![weighted])))
}
