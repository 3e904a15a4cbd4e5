//! Attaches routes to listeners, and gives routes the conditions for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::Host;
use super::cost::{Cost, length_class};
use super::gateways::{ListenerKey, Parent, ParentListener};
use super::hostnames::{intersection, specificity};
use super::hosts::owner;
use super::listeners::{document_kind, resolved_refs};
use super::lookup::RefProblem;
use super::statuses::{Fault, ObjectConditions, partially_invalid};
use crate::conditions::{Condition, ConditionReason, ConditionType, ParentStatus, Truth};
use crate::input::Placed;
use crate::model::{
    AllowedNamespaces, Document, DocumentKey, Hostname, Kind, LabelSelector, ParentRef, Route, RouteKind,
    Spec, Spot,
};

/// A route that may attach to Gateways: it has a parent other than a Service, or none at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachableRoute<'d> {
    /// Its document.
    pub(crate) document: &'d Document,
    /// The content.
    pub(crate) route: &'d Route,
    /// The group of its document. An implicit gateway would belong to it.
    pub(crate) group: &'d GroupName,
}

impl<'d> AttachableRoute<'d> {
    /// The attachable route in a document, if it has one.
    pub(crate) fn of(placed: &'d Placed) -> Option<Self> {
        let Spec::Route(route) = &placed.document.spec else { return None };
        let is_of_mesh = !route.parents.is_empty() && route.parents.iter().all(ParentRef::is_service);
        (!is_of_mesh).then_some(Self { document: &placed.document, route, group: &placed.group })
    }

    /// Returns `true` if it attaches to all Gateways of the native form.
    pub(crate) fn takes_natives(&self) -> bool {
        self.route.kind == RouteKind::Native && self.route.parents.is_empty()
    }
}

/// The parents that a route can attach to.
pub(crate) trait Parents {
    /// The Gateway with a document of this identity.
    fn gateway(&self, key: &DocumentKey) -> Known;

    /// The Gateways of the native form.
    fn natives(&self) -> Arc<[Arc<Parent>]>;

    /// Returns `true` if there is no Gateway document at all, not even of another controller.
    fn is_without_documents(&self) -> bool;

    /// The implicit gateway of a group; `None` if it cannot have one.
    fn implicit(&self, group: &GroupName) -> Option<Arc<Parent>>;

    /// The labels of a namespace.
    fn namespace_labels(&self, namespace: &str) -> Vec<(String, String)>;
}

/// The Gateway that a reference leads to.
pub(crate) enum Known {
    /// One of ours.
    Ours(Arc<Parent>),
    /// One of another controller.
    Foreign,
    /// It does not exist.
    Missing,
}

/// The requests of a route to all its parents, and their answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requests {
    /// The group of the route.
    pub(crate) group: GroupName,
    /// The kind of the route.
    pub(crate) kind: RouteKind,
    /// The `creationTimestamp` of the route.
    pub(crate) created: Option<i64>,
    /// The cost of the route in each virtual host. The bytes are an upper bound.
    pub(crate) cost: Cost,
    /// How often Gateways and listeners are asked.
    pub(crate) n_asked: usize,
    /// Why the route is not accepted, if it has no parent at all.
    pub(crate) fault: Option<Fault>,
    /// One for each reference, except for Services and Gateways of other controllers.
    pub(crate) list: Vec<Request>,
}

/// One reference of a route to a parent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// The position in the status; the same as in the document, if it names parents.
    index: usize,
    /// The Gateway, if the document names none.
    unnamed: Option<DocumentKey>,
    /// True if it leads to the implicit gateway, which stands in for any parent, section and port.
    pub(crate) is_implicit: bool,
    /// The listeners that accept the route, at least one; or the reason why none accepts it.
    pub(crate) attachments: Result<Vec<Attachment>, Fault>,
}

/// A listener that accepts a route.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    /// The listener.
    pub(crate) listener: Arc<ParentListener>,
    /// The hosts that route and listener have in common, at least one.
    pub(crate) hosts: Arc<[Host]>,
    /// The hosts among these that another listener of the port owns, and that listener.
    elsewhere: Box<[(Host, Arc<ListenerKey>)]>,
}

impl Requests {
    /// The requests of a route.
    pub(crate) fn of(route: &AttachableRoute<'_>, parents: &impl Parents) -> Self {
        let list = requests(route, parents);
        let is_alone = list.is_empty() && route.route.parents.is_empty();
        let fault = is_alone.then(|| {
            let message = "the route names no parent, and there is no implicit gateway for it";
            Fault::new(ConditionReason::NoMatchingParent, message)
        });
        let attachments: usize = list.iter().flat_map(|request| &request.attachments).map(Vec::len).sum();
        Self { n_asked: list.len() + attachments, fault, list, ..Self::none(route) }
    }

    /// The requests of a route that attaches to all Gateways of the native form, if limits must be checked before so many are asked.
    pub(crate) fn deferred(route: &AttachableRoute<'_>, n_asked: usize) -> Self {
        Self { n_asked, ..Self::none(route) }
    }

    fn none(route: &AttachableRoute<'_>) -> Self {
        let AttachableRoute { document, route, group } = *route;
        Self {
            group: group.clone(),
            kind: route.kind,
            created: document.meta.created,
            cost: Self::cost_of(document, route),
            n_asked: 0,
            fault: None,
            list: Vec::new(),
        }
    }

    /// The cost of a route in each virtual host. The bytes are the most that its text can have without a change of its outline.
    pub(crate) fn cost_of(document: &Document, route: &Route) -> Cost {
        Cost::of(route, length_class(document.source.text().len()))
    }

    /// Returns `true` if they have yet to be computed.
    pub(crate) fn is_deferred(&self) -> bool {
        self.fault.is_none() && self.list.is_empty() && self.n_asked > 0
    }

    /// Returns `true` if there is nothing to report about the route.
    pub(crate) fn is_empty(&self) -> bool {
        self.fault.is_none() && self.list.is_empty() && self.n_asked == 0
    }

    /// All listeners that accept the route, some more than once.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.list.iter().flat_map(|request| request.attachments.iter().flatten())
    }

    /// The listeners that accept the route, without duplicates.
    pub(crate) fn listeners(&self) -> BTreeSet<&Arc<ListenerKey>> {
        self.attachments().map(|attachment| &attachment.listener.key).collect()
    }

    /// Refuses the route everywhere, because it exceeds a limit.
    pub(crate) fn refuse(&mut self, fault: &Fault, names_parents: bool) {
        if !names_parents {
            // Reported once, because there is no parent in the document to report it at.
            self.list.clear();
            self.fault = Some(fault.clone());
            return;
        }
        let accepted = self.list.iter_mut().filter(|request| request.attachments.is_ok());
        accepted.for_each(|request| request.attachments = Err(fault.clone()));
    }
}

/// The reason why a route without parents is no longer attached.
pub(crate) fn tired() -> Fault {
    let message = "older routes without parents have reached the limit of attempts to attach; name a parent in this route";
    Fault::new(ConditionReason::LimitExceeded, message)
}

/// The requests to the parents of a route, without Services and Gateways of other controllers.
fn requests(route: &AttachableRoute<'_>, parents: &impl Parents) -> Vec<Request> {
    if route.route.parents.is_empty() {
        return unnamed_parents(route, parents);
    }
    let mut requests = Vec::new();
    for (index, parent) in route.route.parents.iter().enumerate() {
        if parent.is_service() {
            continue;
        }
        let key = DocumentKey::new(Kind::Gateway, &parent.namespace, &parent.name);
        let known = parents.gateway(&key);
        let is_gateway = key.kind.is_named(&parent.group, &parent.kind);
        let (is_implicit, attachments) = match known {
            Known::Foreign => continue,
            Known::Ours(_) | Known::Missing if !is_gateway => {
                let message = format!("routes cannot attach to a {} of {:?}", parent.kind, parent.group);
                (false, Err(Fault::new(ConditionReason::UnsupportedValue, message)))
            }
            Known::Ours(gateway) => (false, attachments(parents, route, &gateway, Some(parent))),
            Known::Missing => {
                let implicit =
                    parents.is_without_documents().then(|| parents.implicit(route.group)).flatten();
                let missing =
                    || Err(Fault::new(ConditionReason::NoMatchingParent, format!("there is no {key}")));
                let found = implicit.as_ref().map(|gateway| attachments(parents, route, gateway, None));
                (implicit.is_some(), found.unwrap_or_else(missing))
            }
        };
        requests.push(Request { index, unnamed: None, is_implicit, attachments });
    }
    requests
}

/// The parents of a route that names none. Native routes attach to all Gateways of the native form. Routes of the Gateway API attach
/// to the implicit gateway if there is no other Gateway or the route asks for it.
fn unnamed_parents(route: &AttachableRoute<'_>, parents: &impl Parents) -> Vec<Request> {
    let is_native = route.route.kind == RouteKind::Native;
    let mut targets: Vec<Arc<Parent>> = if is_native { parents.natives().to_vec() } else { Vec::new() };
    let takes_implicit = is_native || route.route.uses_default_gateways;
    if targets.is_empty() && (takes_implicit || parents.is_without_documents()) {
        targets.extend(parents.implicit(route.group));
    }
    let request = |(index, gateway): (usize, Arc<Parent>)| Request {
        index,
        unnamed: Some(gateway.key.clone()),
        is_implicit: gateway.is_implicit,
        attachments: attachments(parents, route, &gateway, None),
    };
    targets.into_iter().enumerate().map(request).collect()
}

/// The listeners that accept a route by a reference, or the reason why none does.
///
/// The reason is the first check that leaves no listener: section and port, permission, host names, validity.
fn attachments(
    parents: &impl Parents,
    route: &AttachableRoute<'_>,
    gateway: &Parent,
    parent: Option<&ParentRef>,
) -> Result<Vec<Attachment>, Fault> {
    let mut meant: Vec<&Arc<ParentListener>> = gateway.listeners.iter().collect();
    meant.retain(|listener| parent.is_none_or(|parent| is_meant(parent, listener)));
    if meant.is_empty() {
        return Err(Fault::new(ConditionReason::NoMatchingParent, nothing_meant(gateway, parent)));
    }
    let mut refusals = Vec::new();
    let mut allowed = Vec::new();
    for listener in meant {
        match admission(parents, route, gateway, listener) {
            Ok(()) => allowed.push(listener),
            Err(why) => refusals.push(format!("listener {} {why}", listener.key.name)),
        }
    }
    if allowed.is_empty() {
        return Err(Fault::new(ConditionReason::NotAllowedByListeners, refusals.join("; ")));
    }
    let hostnames = &route.route.hostnames;
    let mut matching = Vec::new();
    for listener in &allowed {
        let hosts = intersection(&listener.host, hostnames);
        if !hosts.is_empty() {
            matching.push((*listener, hosts));
        }
    }
    if matching.is_empty() {
        let listeners = allowed.iter().map(|listener| (&*listener.key.name, &listener.host));
        return Err(Fault::new(
            ConditionReason::NoMatchingListenerHostname,
            no_common_host(hostnames, listeners),
        ));
    }
    let mut attachments: Vec<Attachment> = Vec::new();
    let mut faults = Vec::new();
    for (listener, hosts) in matching {
        if let Some(fault) = &listener.fault {
            faults.push(format!("listener {} is not accepted: {}", listener.key.name, fault.message));
            continue;
        }
        let same = attachments.last().map(|last| &last.hosts).filter(|last| ***last == *hosts);
        let hosts = same.map_or_else(|| hosts.into(), Arc::clone);
        let elsewhere = elsewhere(listener, &hosts, gateway);
        attachments.push(Attachment { listener: Arc::clone(listener), hosts, elsewhere });
    }
    if attachments.is_empty() {
        return Err(Fault::new(ConditionReason::NoReadyListeners, faults.join("; ")));
    }
    Ok(attachments)
}

/// The hosts of a route at a listener that another listener of the port owns.
fn elsewhere(listener: &ParentListener, hosts: &[Host], gateway: &Parent) -> Box<[(Host, Arc<ListenerKey>)]> {
    let own = specificity(&listener.host);
    let more_specific = |one: &&Arc<ParentListener>| {
        one.fault.is_none() && one.port == listener.port && specificity(&one.host) > own
    };
    let owner_of = |host: &Host| {
        let others = gateway.listeners.iter().filter(more_specific).map(|other| (&other.key, &other.host));
        owner(host, others).map(|(owner, _)| (host.clone(), Arc::clone(owner)))
    };
    hosts.iter().filter_map(owner_of).collect()
}

/// Returns `true` if section and port of a reference match a listener.
fn is_meant(parent: &ParentRef, listener: &ParentListener) -> bool {
    parent.section.as_ref().is_none_or(|section| **section == *listener.key.name)
        && parent.port.is_none_or(|port| port == listener.port)
}

fn nothing_meant(gateway: &Parent, parent: Option<&ParentRef>) -> String {
    let section = parent.and_then(|parent| parent.section.as_ref());
    let section = section.map(|section| format!(" {section}")).unwrap_or_default();
    let port = parent.and_then(|parent| parent.port);
    let port = port.map(|port| format!(" on port {port}")).unwrap_or_default();
    let names: Vec<&str> = gateway.listeners.iter().map(|listener| &*listener.key.name).collect();
    format!("{} has no listener{section}{port}; it has {}", gateway.key, names.join(", "))
}

fn no_common_host<'a>(
    hostnames: &[Hostname],
    listeners: impl Iterator<Item = (&'a str, &'a Host)>,
) -> String {
    let hostnames: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
    let listeners: Vec<String> = listeners.map(|(name, host)| format!("{host} ({name})")).collect();
    format!(
        "none of the hosts {} matches those of the listeners, {}",
        hostnames.join(", "),
        listeners.join(", ")
    )
}

/// Checks that a listener may accept a route of this kind and namespace. The error is a text that follows the listener's name.
fn admission(
    parents: &impl Parents,
    route: &AttachableRoute<'_>,
    gateway: &Parent,
    listener: &ParentListener,
) -> Result<(), String> {
    let namespace = &route.document.key.namespace;
    let is_allowed = match &listener.namespaces {
        AllowedNamespaces::Same => *namespace == gateway.key.namespace,
        AllowedNamespaces::All => true,
        AllowedNamespaces::None => false,
        AllowedNamespaces::Selector(selector) => selects(selector, &parents.namespace_labels(namespace)),
    };
    if !is_allowed {
        return Err(format!("accepts no routes from the namespace {namespace}"));
    }
    if listener.kinds.contains(&route.route.kind) {
        return Ok(());
    }
    let why = listener.fault.as_ref().map(|fault| format!(": {}", fault.message)).unwrap_or_default();
    Err(format!("accepts no {}{why}", document_kind(route.route.kind)))
}

/// Returns `true` if labels match a selector. `NotIn` matches an absent label.
pub(super) fn selects(selector: &LabelSelector, labels: &[(String, String)]) -> bool {
    let label = |key: &str| labels.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    selector
        .values
        .iter()
        .all(|(key, values, is_in)| label(key).is_some_and(|value| values.contains(value)) == *is_in)
        && selector.keys.iter().all(|(key, is_there)| label(key).is_some() == *is_there)
}

/// The result of attaching a route to listeners.
pub(crate) struct Attached<'r> {
    /// Its document. Only its spots and place are used.
    pub(crate) document: &'r Document,
    /// The requests that limits allow.
    pub(crate) requests: &'r Requests,
    /// The references that cannot be followed.
    pub(crate) problems: &'r [RefProblem],
    /// The parts of the rules that have no effect.
    pub(crate) partly_invalid: &'r [String],
}

impl Attached<'_> {
    /// Reports the conditions of a route at its parents. `winner` is the route that took a listener from it.
    pub(crate) fn report(
        &self,
        winner: impl Fn(&Arc<ListenerKey>) -> Option<DocumentKey>,
        parts: &mut ObjectConditions,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let Self { document, requests, problems, .. } = self;
        if let Some(fault) = &requests.fault {
            diagnostics.push(self.warning(fault, &Spot::default()));
            parts.conditions.push(Condition::fails(
                ConditionType::Accepted,
                fault.reason,
                fault.message.clone(),
            ));
            return;
        }
        let is_lost = |listener: &Arc<ListenerKey>| winner(listener).is_some();
        let taken: BTreeSet<_> = requests.listeners().into_iter().filter(|one| !is_lost(one)).collect();
        for request in &requests.list {
            self.report_request(request, &winner, parts, diagnostics);
            let attachments = request.attachments.iter().flatten();
            for attachment in attachments.filter(|attachment| taken.contains(&attachment.listener.key)) {
                let unserved = attachment.elsewhere.iter().filter(|(_, owner)| !taken.contains(owner));
                diagnostics.extend(unserved.map(|(host, owner)| self.unserved(host, owner, attachment)));
            }
        }
        if !requests.list.is_empty() {
            diagnostics.extend(problems.iter().map(|problem| problem.diagnostic(document)));
            diagnostics.extend(super::rules::without_backends(document));
        }
    }

    /// Reports the conditions of a route at one parent.
    fn report_request(
        &self,
        request: &Request,
        winner: &impl Fn(&Arc<ListenerKey>) -> Option<DocumentKey>,
        parts: &mut ObjectConditions,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let route = if let Spec::Route(route) = &self.document.spec { Some(route) } else { None };
        let parent = route.and_then(|route| route.parents.get(request.index));
        let named = |parent: &ParentRef| format!("{} {}/{}", parent.kind, parent.namespace, parent.name);
        let unnamed = || request.unnamed.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = parent.map_or_else(unnamed, named);
        let document_spot = Spot::default();
        let spot = parent.map_or(&document_spot, |parent| &parent.spot);
        let lost = request.attachments.iter().flatten().filter_map(|attachment| {
            let listener = &attachment.listener.key;
            Some(format!("listener {} has {} for the same host", listener.name, winner(listener)?))
        });
        let lost: Vec<String> = lost.collect();
        let fault = match &request.attachments {
            Ok(attachments) if attachments.len() == lost.len() => {
                Some(Fault::new(ConditionReason::HostnameConflict, lost.join("; ")))
            }
            Ok(_) => None,
            Err(fault) => Some(fault.clone()),
        };
        let mut accepted = match &fault {
            None => Condition::accepted(),
            Some(fault) => {
                let message =
                    format!("{name} does not accept the route ({}): {}", fault.reason, fault.message);
                diagnostics.push(self.warning(&Fault::new(fault.reason, message), spot));
                Condition::fails(ConditionType::Accepted, fault.reason, fault.message.clone())
            }
        };
        if fault.is_none() {
            let lost = lost.into_iter().map(|message| Fault::new(ConditionReason::HostnameConflict, message));
            diagnostics.extend(lost.map(|fault| self.warning(&fault, spot)));
            if request.is_implicit {
                accepted.message = "served by the implicit gateway default/implicit".to_owned();
                let message = "the route attaches to the implicit gateway default/implicit, because there is no Gateway for it";
                let note = (Severity::Info, "implicit-gateway");
                diagnostics.push(self.document.diagnostic(note.0, note.1, spot, message.to_owned()));
            }
        }
        let is_accepted = accepted.status == Truth::True;
        let mut conditions = vec![accepted, resolved_refs(self.problems)];
        if is_accepted && !self.partly_invalid.is_empty() {
            conditions.push(partially_invalid(self.partly_invalid));
        }
        let (section, port) =
            (parent.and_then(|parent| parent.section.clone()), parent.and_then(|one| one.port));
        parts.parents.insert(request.index, ParentStatus { parent: name, section, port, conditions });
    }

    /// Warns about a host that gets no requests because another listener of the port owns it.
    fn unserved(&self, host: &Host, owner: &ListenerKey, attachment: &Attachment) -> Diagnostic {
        let message = format!(
            "requests for {host} belong to listener {} of {}, so listener {} never sends them to this route",
            owner.name, owner.gateway, attachment.listener.key.name
        );
        self.document.diagnostic(Severity::Warning, "host-of-another-listener", &Spot::default(), message)
    }

    fn warning(&self, fault: &Fault, spot: &Spot) -> Diagnostic {
        self.document.diagnostic(
            Severity::Warning,
            fault.reason.diagnostic_code(),
            spot,
            fault.message.clone(),
        )
    }
}
