//! The listeners of one Gateway: their validity, the routes that they accept, and their conditions.

use super::hostnames::{host_of, overlaps};
use super::statuses::Fault;
use super::{Host, Lookup, RefProblem, TlsSecret};
use crate::conditions::{Condition, ConditionReason, ConditionType, ListenerStatus, Truth};
use crate::model::{Document, Gateway, GatewayListener, Kind, ListenerProtocol, RouteKind};

/// A listener and its state.
#[derive(Clone, Debug)]
pub(crate) struct PlannedListener {
    /// The document's listener.
    pub(crate) spec: GatewayListener,
    /// Its host.
    pub(crate) host: Host,
    /// The kinds of routes that it accepts.
    pub(crate) kinds: Vec<RouteKind>,
    /// The reason why it is not accepted, if so. Then it accepts no routes.
    pub(crate) fault: Option<Fault>,
    /// Its conflict with another listener of the Gateway, if there is one.
    pub(crate) conflict: Option<Fault>,
    /// The references that cannot be followed.
    pub(crate) problems: Vec<RefProblem>,
    /// Its certificates, without duplicates; only for HTTPS.
    pub(crate) certificates: Vec<(String, TlsSecret)>,
    /// The other HTTPS listeners of its port with which it shares hosts.
    shares_hosts_with: Vec<String>,
}

impl PlannedListener {
    /// A listener before conflicts and certificates are checked.
    pub(crate) fn new(spec: GatewayListener) -> Self {
        let (kinds, unknown) = route_kinds(&spec);
        let mut problems = Vec::new();
        if !unknown.is_empty() {
            let message = format!("this listener cannot accept routes of the kind {}", unknown.join(", "));
            problems.push(RefProblem {
                reason: ConditionReason::InvalidRouteKinds,
                message,
                spot: spec.allowed.kinds_spot.clone(),
            });
        }
        let fault = match &spec.protocol {
            ListenerProtocol::Http | ListenerProtocol::Https => None,
            ListenerProtocol::Other(name) => {
                let message = format!("the protocol {name} is not supported; use HTTP or HTTPS");
                Some(Fault::new(ConditionReason::UnsupportedProtocol, message))
            }
        };
        Self {
            host: host_of(spec.hostname.as_ref()),
            spec,
            kinds,
            fault,
            conflict: None,
            problems,
            certificates: Vec::new(),
            shares_hosts_with: Vec::new(),
        }
    }

    /// Returns `true` if it accepts routes.
    pub(crate) fn is_accepted(&self) -> bool {
        self.fault.is_none()
    }

    /// Returns `true` if Envoys listen for it.
    pub(crate) fn is_programmed(&self) -> bool {
        let can_listen = match &self.spec.protocol {
            ListenerProtocol::Http => true,
            ListenerProtocol::Https => !self.certificates.is_empty(),
            ListenerProtocol::Other(_) => false,
        };
        self.is_accepted() && can_listen
    }

    /// Its status without any routes. `is_native` is true for a listener of the native form.
    pub(crate) fn status(&self, is_native: bool) -> ListenerStatus {
        ListenerStatus {
            name: self.spec.name.clone(),
            attached_routes: 0,
            supported_kinds: self.supported_kinds(is_native),
            conditions: self.conditions(),
        }
    }

    /// Native routes are not a kind of the Gateway API, so they are listed only for listeners of the native form, and for listeners that
    /// name the kinds of routes.
    fn supported_kinds(&self, is_native: bool) -> Vec<String> {
        let is_shown =
            |kind: &RouteKind| *kind != RouteKind::Native || is_native || !self.spec.allowed.kinds.is_empty();
        let kinds = self.kinds.iter().copied().filter(is_shown);
        kinds.map(|kind| document_kind(kind).as_str().to_owned()).collect()
    }

    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = vec![
            match &self.fault {
                Some(fault) => Condition::fails(ConditionType::Accepted, fault.reason, fault.message.clone()),
                None => Condition::accepted(),
            },
            match &self.conflict {
                Some(Fault { reason, message }) => {
                    let (reason, message) = (*reason, message.clone());
                    Condition { kind: ConditionType::Conflicted, status: Truth::True, reason, message }
                }
                None => Condition::fails(ConditionType::Conflicted, ConditionReason::NoConflicts, ""),
            },
            resolved_refs(&self.problems),
            self.programmed(),
        ];
        if !self.shares_hosts_with.is_empty() {
            let message = format!(
                "a client may send requests for hosts of {} on a connection that it opened for this listener: these are answered \
                 with 421 (Misdirected Request)",
                self.shares_hosts_with.join(", ")
            );
            conditions.push(Condition {
                kind: ConditionType::OverlappingTlsConfig,
                status: Truth::True,
                reason: ConditionReason::OverlappingHostnames,
                message,
            });
        }
        conditions
    }

    fn programmed(&self) -> Condition {
        if self.is_programmed() {
            return Condition::programmed();
        }
        let message = match self.is_accepted() {
            true => "there is no certificate, so Envoys do not listen and only gRPC clients get the routes",
            false => "the listener is not accepted",
        };
        Condition::fails(ConditionType::Programmed, ConditionReason::Invalid, message)
    }
}

/// The listeners of a Gateway document, in its order.
pub(crate) fn listeners(lookup: &Lookup<'_>, document: &Document, gateway: &Gateway) -> Vec<PlannedListener> {
    let mut listeners: Vec<PlannedListener> =
        gateway.listeners.iter().cloned().map(PlannedListener::new).collect();
    for listener in &mut listeners {
        resolve_certificates(lookup, document, listener);
    }
    find_conflicts(&mut listeners);
    find_overlaps(&mut listeners);
    listeners
}

/// The condition `ResolvedRefs`, with the reason of the first problem and a message about all of them.
pub(crate) fn resolved_refs(problems: &[RefProblem]) -> Condition {
    let Some(first) = problems.first() else { return Condition::resolved_refs() };
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    Condition::fails(ConditionType::ResolvedRefs, first.reason, messages.join("; "))
}

/// The kind of documents with this kind of route.
pub(crate) fn document_kind(kind: RouteKind) -> Kind {
    match kind {
        RouteKind::Grpc => Kind::GrpcRoute,
        RouteKind::Http => Kind::HttpRoute,
        RouteKind::Native => Kind::Route,
    }
}

/// The kinds that a listener accepts, and the names of those that it allows but cannot accept.
fn route_kinds(spec: &GatewayListener) -> (Vec<RouteKind>, Vec<String>) {
    let all = [RouteKind::Http, RouteKind::Grpc, RouteKind::Native];
    let mut kinds = Vec::new();
    let mut unknown = Vec::new();
    for (group, name) in &spec.allowed.kinds {
        let known = all.into_iter().find(|kind| document_kind(*kind).is_named(group, name));
        match known {
            Some(kind) if kinds.contains(&kind) => {}
            Some(kind) => kinds.push(kind),
            None => unknown.push(format!("{group}/{name}")),
        }
    }
    match &spec.protocol {
        ListenerProtocol::Http | ListenerProtocol::Https if spec.allowed.kinds.is_empty() => {
            (all.to_vec(), unknown)
        }
        ListenerProtocol::Http | ListenerProtocol::Https => (kinds, unknown),
        ListenerProtocol::Other(_) => (Vec::new(), Vec::new()),
    }
}

fn resolve_certificates(lookup: &Lookup<'_>, document: &Document, listener: &mut PlannedListener) {
    if listener.spec.protocol != ListenerProtocol::Https {
        return;
    }
    for reference in &listener.spec.certificates {
        match lookup.certificate(document, reference) {
            Ok((name, _)) if listener.certificates.iter().any(|(other, _)| *other == name) => {}
            Ok(certificate) => listener.certificates.push(certificate),
            Err(problem) => listener.problems.push(problem),
        }
    }
    if listener.spec.certificates.is_empty() {
        let message = "an HTTPS listener needs a certificate".to_owned();
        let spot = listener.spec.spot.clone();
        listener.problems.push(RefProblem { reason: ConditionReason::InvalidCertificateRef, message, spot });
    }
}

/// Finds conflicts. If requests cannot distinguish listeners, all of these are refused, whichever comes first.
fn find_conflicts(listeners: &mut [PlannedListener]) {
    let conflicts: Vec<Option<Fault>> = listeners
        .iter()
        .map(|one| {
            let others = listeners.iter().filter(|other| other.spec.name != one.spec.name);
            let mut found = others.filter_map(|other| Some((conflict(&one.spec, &other.spec)?, other)));
            let (reason, other) = found.next()?;
            let same = if reason == ConditionReason::HostnameConflict {
                "host name"
            } else {
                "port by another protocol"
            };
            let message = format!("listener {} has the same {same}", other.spec.name);
            Some(Fault::new(reason, message))
        })
        .collect();
    for (listener, conflict) in listeners.iter_mut().zip(conflicts) {
        if listener.fault.is_none() {
            listener.fault.clone_from(&conflict);
        }
        listener.conflict = conflict;
    }
}

/// The reason why two listeners of one Gateway exclude each other, if they do.
fn conflict(one: &GatewayListener, other: &GatewayListener) -> Option<ConditionReason> {
    let (transport, other_transport) = (Transport::of(&one.protocol)?, Transport::of(&other.protocol)?);
    if one.port != other.port {
        return None;
    }
    if transport != other_transport {
        return Some(ConditionReason::ProtocolConflict);
    }
    if transport == Transport::Tcp || one.hostname != other.hostname {
        return None;
    }
    Some(if one.protocol == other.protocol {
        ConditionReason::HostnameConflict
    } else {
        ConditionReason::ProtocolConflict
    })
}

/// The property that distinguishes connections to a TCP port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// The host of each request.
    Http,
    /// The server name of each connection.
    Tls,
    /// Nothing.
    Tcp,
}

impl Transport {
    /// `None` if the protocol is unknown, or not over TCP.
    fn of(protocol: &ListenerProtocol) -> Option<Self> {
        match protocol {
            ListenerProtocol::Http => Some(Self::Http),
            ListenerProtocol::Https => Some(Self::Tls),
            ListenerProtocol::Other(name) => match name.as_str() {
                "TLS" => Some(Self::Tls),
                "TCP" => Some(Self::Tcp),
                _ => None,
            },
        }
    }
}

/// Finds HTTPS listeners that share hosts: HTTP/2 clients reuse a connection for every host of its certificate, whatever its server name.
fn find_overlaps(listeners: &mut [PlannedListener]) {
    let is_https = |listener: &PlannedListener| {
        listener.is_accepted() && listener.spec.protocol == ListenerProtocol::Https
    };
    let shared: Vec<Vec<String>> = listeners
        .iter()
        .map(|one| {
            let others = listeners.iter().filter(|other| {
                is_https(one)
                    && is_https(other)
                    && one.spec.port == other.spec.port
                    && one.spec.name != other.spec.name
                    && overlaps(&one.host, &other.host)
            });
            others.map(|other| other.spec.name.clone()).collect()
        })
        .collect();
    for (listener, shared) in listeners.iter_mut().zip(shared) {
        listener.shares_hosts_with = shared;
    }
}
