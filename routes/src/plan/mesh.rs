//! Services as parents: GRPCRoutes, HTTPRoutes, native routes and TrafficSplits of the mesh.
//!
//! A route in the Service's own namespace is a producer route and applies to every client of the route's group. A route in another namespace is
//! a consumer route: it applies only to the clients of that namespace. They are in a group of their own, where it replaces the producer routes.
//! Those clients can still call everything else on that port ([`consumers`]).
//!
//! If routes of several kinds want one port, only one kind applies: GRPCRoute first, then HTTPRoute (or native route), then TrafficSplit.
//! A Service without any has a route to itself, so that deleting the last route leaves no gap (SMI's workflow). gRPC clients can dial all
//! Services. Envoys listen only for ports that a document asks for, including the annotation [`MESH_ANNOTATION`] of a Service.

mod consumers;

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::backends::Referent;
use super::ledger::Ledger;
use super::listeners::resolved_refs;
use super::lookup::{Lookup, ROUTES, RefProblem};
use super::parts::{Action, ClusterRef, PlannedRoute, RouteId, Target, Weighted};
use super::precedence::{Rank, Seniority};
use super::rules;
use super::split::{self, PlannedSplit, Wanted};
use super::statuses::{Fault, partially_invalid};
use crate::conditions::{Condition, ConditionReason, ConditionType, ParentStatus};
use crate::input::GoesOn;
use crate::input::of_kinds;
use crate::input::{Documents, Options, Placed};
use crate::model::{
    Document, DocumentKey, Kind, Match, ParentRef, PathMatch, Route, RouteKind, Service, ServicePort, Spec,
    Spot,
};

use consumers::group_of;
pub(crate) use consumers::{consumed_by, definition, others};

/// The annotation with which a Service asks Envoys of the mesh to listen even without a route: `"true"` or `"false"`.
const MESH_ANNOTATION: &str = "xds-server.io/mesh";

/// The request of a route to a parent that is a Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceRequest {
    /// The position of the parent in the document.
    pub(crate) index: usize,
    /// The ports that it wants, or the reason why it gets none.
    pub(crate) wanted: Result<Wanted, Fault>,
    /// True if the Service is of type `ExternalName`.
    is_external: bool,
}

/// A request for ports of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    /// Its kind.
    pub(crate) class: Class,
    /// Its seniority among objects of its class.
    pub(crate) seniority: Seniority,
    /// The ports, in any order.
    pub(crate) ports: Vec<u16>,
}

/// The lost ports of Services, each with the object that has it.
pub(crate) type Lost = BTreeMap<(GroupName, DocumentKey, u16), DocumentKey>;

/// The kinds that exclude each other; the first wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// A GRPCRoute.
    Grpc,
    /// An HTTPRoute, or a native route.
    Http,
    /// A TrafficSplit.
    Split,
    /// The Service itself.
    Own,
}

impl Class {
    /// The class of a kind of route.
    pub(crate) fn of(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Grpc => Self::Grpc,
            RouteKind::Http | RouteKind::Native => Self::Http,
        }
    }
}

/// The requests of a route to those of its parents that are Services.
pub(crate) fn requests(lookup: &Lookup<'_>, placed: &Placed, route: &Route) -> Vec<ServiceRequest> {
    let parents = route.parents.iter().enumerate().filter(|(_, parent)| parent.is_service());
    let request = |(index, parent): (usize, &ParentRef)| {
        let found = lookup.service(&parent.namespace, &parent.name);
        let wanted = found.ok_or_else(|| missing(parent)).and_then(|(document, service)| {
            let group = group_of(placed, parent)?;
            let ports = ports(&document.key, service, parent)?;
            Ok(Wanted { group, service: document.key.clone(), ports })
        });
        let is_external = found.is_some_and(|(_, service)| service.external_name.is_some());
        ServiceRequest { index, wanted, is_external }
    };
    parents.map(request).collect()
}

/// The routes of the mesh that exceed a limit of their group, the youngest first.
pub(crate) fn refused<'d>(
    lookup: &Lookup<'d>,
    documents: &'d Documents,
    ledger: &mut Ledger<'d>,
    goes_on: GoesOn<'_>,
) -> BTreeMap<DocumentKey, Fault> {
    // If a consumer asks for a port, its clients get all Services of that port.
    let mut of_port: BTreeMap<u16, usize> = BTreeMap::new();
    for (_, placed) in of_kinds(documents, Kind::Service..=Kind::Service) {
        let Spec::Service(service) = &placed.document.spec else { continue };
        service.ports.iter().for_each(|port| *of_port.entry(port.port).or_default() += 1);
    }
    let mut by_age: Vec<(&Placed, &Route)> = Vec::new();
    for (_, placed) in of_kinds(documents, ROUTES).take_while(|_| goes_on()) {
        let Spec::Route(route) = &placed.document.spec else { continue };
        if route.parents.iter().any(ParentRef::is_service) {
            by_age.push((placed, route));
        }
    }
    by_age.sort_by_cached_key(|(placed, _)| Seniority::of(&placed.document));
    let mut asked: BTreeSet<(GroupName, u16)> = BTreeSet::new();
    let mut refused = BTreeMap::new();
    for (placed, route) in by_age {
        let requests = requests(lookup, placed, route);
        let wanted = || requests.iter().filter_map(|request| request.wanted.as_ref().ok());
        let places =
            wanted().flat_map(|wanted| wanted.ports.iter().map(|port| (wanted.group.clone(), *port)));
        let ports: BTreeSet<(GroupName, u16)> = places.collect();
        let is_new = |port: &&(GroupName, u16)| port.0 != placed.group && !asked.contains(*port);
        let others = ports.iter().filter(is_new).filter_map(|(_, port)| of_port.get(port)).sum();
        let n_ports = wanted().map(|wanted| wanted.ports.len()).sum();
        let n_routes = route.rules.iter().map(|rule| rule.matches.len()).sum();
        match ledger.admit_ports(&placed.group, &placed.document, n_routes, (n_ports, others)) {
            Ok(()) => asked.extend(ports),
            Err(fault) => _ = refused.insert(placed.document.key.clone(), fault),
        }
    }
    refused
}

fn missing(parent: &ParentRef) -> Fault {
    Fault::new(
        ConditionReason::NoMatchingParent,
        format!("there is no Service {}/{}", parent.namespace, parent.name),
    )
}

/// The ports of a Service that a parent refers to: all of them, unless it has a `port` or a `sectionName`.
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
        return Err(Fault::new(
            ConditionReason::NoMatchingParent,
            format!("the {key} has no port{number}{section}"),
        ));
    }
    Ok(ports)
}

/// Decides who gets a port, of the objects that want it. Returns the winners by key, and the object that the others lose to. The option
/// that allows both kinds of routes on a host of a Gateway applies here too.
pub(crate) fn settle<'c>(
    rivals: &[(&'c DocumentKey, &'c Wish)],
    options: &Options,
) -> (Vec<(&'c DocumentKey, &'c Wish)>, Option<&'c DocumentKey>) {
    let first = rivals.iter().min_by_key(|(_, claim)| (claim.class, &claim.seniority));
    let Some((key, first)) = first else { return (Vec::new(), None) };
    let merges = options.merges_route_kinds && first.class == Class::Grpc;
    let last_class = if merges { Class::Http } else { first.class };
    let stay = rivals.iter().filter(|(_, claim)| claim.class <= last_class);
    (stay.copied().collect(), Some(key))
}

/// The conditions of a route at one of its parents, and warnings about them.
pub(crate) fn report_route(
    document: &Document,
    parent: &ParentRef,
    request: &ServiceRequest,
    refused: Option<&Fault>,
    lost: &Lost,
    (problems, partly): (&[RefProblem], &[String]),
) -> (ParentStatus, Vec<Diagnostic>) {
    let accepted = match (&request.wanted, refused) {
        (Ok(wanted), None) => accepted(document, Some(wanted), lost, None),
        (Ok(_), Some(fault)) | (Err(fault), _) => Err(fault.clone()),
    };
    let mut diagnostics = Vec::new();
    let mut warn = |code, spot: &Spot, message: String| {
        diagnostics.push(document.diagnostic(Severity::Warning, code, spot, message));
    };
    let mut conditions = Vec::new();
    match accepted {
        Ok(message) => {
            if !message.is_empty() {
                warn(ConditionReason::Conflicted.diagnostic_code(), &parent.spot, message.clone());
            }
            conditions.push(Condition { message, ..Condition::accepted() });
            conditions.extend((!partly.is_empty()).then(|| partially_invalid(partly)));
        }
        Err(Fault { reason, message }) => {
            warn(reason.diagnostic_code(), &parent.spot, message.clone());
            conditions.push(Condition::fails(ConditionType::Accepted, reason, message));
        }
    }
    conditions.insert(1, resolved_refs(problems));
    let name = format!("{} {}/{}", parent.kind, parent.namespace, parent.name);
    if request.is_external {
        let message =
            format!("the {name} is of type ExternalName; routes for it apply only to clients of the mesh");
        warn("external-name-parent", &parent.spot, message);
    }
    let (section, port) = (parent.section.clone(), parent.port);
    (ParentStatus { parent: name, section, port, conditions }, diagnostics)
}

/// Warnings about the rules of a route.
pub(crate) fn doubts(document: &Document, problems: &[RefProblem]) -> Vec<Diagnostic> {
    let problems = problems.iter().map(|problem| problem.diagnostic(document));
    problems.chain(rules::without_backends(document)).collect()
}

/// The conditions of a split, and warnings about the ports that it wants.
pub(crate) fn report_split(
    document: &Document,
    split: &PlannedSplit,
    lost: &Lost,
) -> ([Condition; 2], Option<Diagnostic>) {
    let accepted = accepted(document, split.wanted.as_ref(), lost, split.fault.as_ref());
    let told = match &accepted {
        Ok(message) => message,
        Err(fault) => &fault.message,
    };
    let is_new = split.fault.as_ref().is_none_or(|fault| fault.message != *told);
    let mut doubt = None;
    if let Spec::TrafficSplit(spec) = &document.spec
        && is_new
        && !told.is_empty()
    {
        let (code, message) = (ConditionReason::Conflicted.diagnostic_code(), told.clone());
        doubt = Some(document.diagnostic(Severity::Warning, code, &spec.service_spot, message));
    }
    let accepted = match accepted {
        Ok(message) => Condition { message, ..Condition::accepted() },
        Err(Fault { reason, message }) => Condition::fails(ConditionType::Accepted, reason, message),
    };
    ([accepted, resolved_refs(&split.problems)], doubt)
}

/// Reports at a route of Gateways that a split of its backend does not apply to it; `split_of` returns the split.
pub(crate) fn uncounted(
    document: &Document,
    split_of: impl Fn(&DocumentKey) -> Option<DocumentKey>,
) -> Vec<Diagnostic> {
    let Spec::Route(route) = &document.spec else { return Vec::new() };
    if route.parents.iter().all(ParentRef::is_service) {
        return Vec::new();
    }
    let mut diagnostics = Vec::new();
    for backend in route.rules.iter().flat_map(|rule| &rule.backends) {
        let object = &backend.object;
        if !Kind::Service.is_named(&object.group, &object.kind) {
            continue;
        }
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        let Some(split) = split_of(&DocumentKey::of(Kind::Service, namespace, name)) else { continue };
        let message = format!(
            "{split} does not apply to requests through a Gateway, which go to the endpoints of the Service {}/{} itself; write the weights into the `backendRefs` of this route",
            object.namespace, object.name
        );
        diagnostics.push(document.diagnostic(Severity::Warning, "split-not-counted", &object.spot, message));
    }
    diagnostics
}

/// Checks that an object got at least one of the ports that it wants. Returns a message about the lost ones, or a fault if all are lost.
fn accepted(
    document: &Document,
    wanted: Option<&Wanted>,
    lost: &Lost,
    fault: Option<&Fault>,
) -> Result<String, Fault> {
    let ports = wanted.into_iter().flat_map(|wanted| wanted.ports.iter().map(move |port| (wanted, *port)));
    let told = |(wanted, port): (&Wanted, u16)| {
        let Wanted { group, service, .. } = wanted;
        let winner = lost.get(&(group.clone(), service.clone(), port))?;
        Some(format!("{winner} already has the port {port} of the {service}"))
    };
    let messages: Vec<String> = ports.filter_map(told).collect();
    let message = messages.join("; ");
    match fault {
        _ if wanted.is_some_and(|wanted| messages.len() == wanted.ports.len()) => {
            // For routes, the Gateway API has its own reason, which other controllers use too.
            let is_split = document.key.kind == Kind::TrafficSplit;
            Err(Fault::new(
                if is_split { ConditionReason::Conflicted } else { ConditionReason::RouteReasonConflicted },
                message,
            ))
        }
        Some(fault) => Err(fault.clone()),
        None => Ok(message),
    }
}

/// Returns `true` if Envoys listen for a Service even without a route: by its annotation, or because a TrafficSplit once named it.
pub(crate) fn is_asked_for(placed: &Placed) -> bool {
    match placed.document.meta.annotation(MESH_ANNOTATION) {
        Some(said) => said == "true",
        None => placed.was_split,
    }
}

/// Reports that Envoys still listen for a Service, although no document asks for it any more.
pub(crate) fn once_split(placed: &Placed) -> Option<Diagnostic> {
    let document = &placed.document;
    if !placed.was_split || document.meta.annotation(MESH_ANNOTATION).is_some() {
        return None;
    }
    let message = format!(
        "Envoys still listen for this Service because a TrafficSplit once named it; set the annotation {MESH_ANNOTATION} to \"true\" to keep this, or to \"false\" to end it"
    );
    Some(document.diagnostic(Severity::Info, "once-split", &Spot::default(), message))
}

/// Reports that Envoys do not listen for a Service, because a Gateway has its port.
pub(crate) fn taken_port(document: &Document, port: u16, gateway_port: &str) -> Diagnostic {
    let gateway = gateway_port.rsplit_once('/').map_or(gateway_port, |(gateway, _)| gateway);
    let message = format!(
        "Envoys do not listen on port {port} for the {}, because Gateway {gateway} of the same node group has the port; \
         gRPC clients are served",
        document.key,
    );
    document.diagnostic(Severity::Info, "mesh-port-taken", &Spot::default(), message)
}

/// The names of a Service, the shortest first.
pub(crate) fn hosts(namespace: &str, name: &str, is_unique: bool) -> Vec<String> {
    let long = ["", ".svc", ".svc.cluster.local"].map(|end| [name, ".", namespace, end].concat());
    is_unique.then(|| name.to_owned()).into_iter().chain(long).collect()
}

/// The names by which gRPC clients dial a port of a Service with these hosts: with the port, and also without it for the lowest port.
pub(crate) fn dialled(hosts: Vec<String>, port: u16, is_lowest_port: bool) -> Vec<String> {
    let mut names = Vec::new();
    for host in hosts {
        names.push(format!("{host}:{port}"));
        names.extend(is_lowest_port.then_some(host));
    }
    names
}

/// The routes of all documents that share a port, in order of precedence.
pub(crate) fn ranked<'p>(
    of_routes: impl Iterator<Item = (&'p Seniority, &'p [PlannedRoute])>,
) -> Vec<PlannedRoute> {
    let ranks = of_routes
        .flat_map(|(seniority, routes)| routes.iter().map(|route| (Rank::of(route, seniority), route)));
    let mut ranked: Vec<(Rank, &PlannedRoute)> = ranks.collect();
    ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, route)| route.clone()).collect()
}

/// The route of a port of a Service that has no other route.
pub(crate) fn route_to_itself(lookup: &Lookup<'_>, key: &DocumentKey, port: u16) -> Option<PlannedRoute> {
    let own = lookup.port_of(&key.namespace, &key.name, port)?;
    let Referent::Port { port, .. } = own else { return None };
    let is_grpc = split::is_grpc(port);
    let backend = ClusterRef { name: own.cluster_name(), protocol: lookup.protocol(&own, is_grpc) };
    let weighted = Weighted::plain(Target::Backend(backend), 1);
    let id = RouteId { document: key.clone(), rule: 0, rule_name: None, match_index: 0 };
    let everything = Match::of_path(&Spot::default(), PathMatch::Any);
    Some(PlannedRoute::plain(id, is_grpc, everything, Action::Forward(vec![weighted])))
}
