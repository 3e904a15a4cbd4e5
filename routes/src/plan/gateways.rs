//! Gateways: which are ours, which ports they get, and their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Severity};

use super::Lookup;
use super::listeners::{PlannedListener, listeners};
use super::lookup::of_kinds;
use super::precedence::Seniority;
use super::statuses::{Fault, Statuses, code_of};
use crate::conditions::{Condition, Truth};
use crate::model::{
    AllowedNamespaces, AllowedRoutes, Document, DocumentKey, Gateway, GatewayListener, Kind, ObjectRef,
    Protocol, Spec, Spot,
};
use crate::translate::{Documents, Options, Placed};

/// A Gateway and what became of it.
#[derive(Debug)]
pub(crate) struct PlannedGateway<'d> {
    /// Its document; the implicit gateway has none.
    pub(crate) document: Option<&'d Document>,
    /// Its identity.
    pub(crate) key: DocumentKey,
    /// The node group that it is for.
    pub(crate) group: GroupName,
    /// Where it listens; `None` means every address.
    pub(crate) address: Option<IpAddr>,
    /// Whether it was written in the native form.
    pub(crate) is_native: bool,
    /// Why none of it is accepted, if it is not.
    fault: Option<Fault>,
    /// Its listeners, in the order of the document.
    pub(crate) listeners: Vec<PlannedListener>,
}

/// All Gateways.
#[derive(Debug)]
pub(crate) struct Gateways<'d> {
    /// Those that are ours, sorted by identity; behind them the implicit ones, one for each group that needs one.
    pub(crate) list: Vec<PlannedGateway<'d>>,
    /// The indices of those with a document.
    by_key: BTreeMap<DocumentKey, usize>,
    /// Those of another controller.
    foreign: BTreeSet<DocumentKey>,
}

impl<'d> Gateways<'d> {
    /// Those of the documents, with the ports that they get.
    pub(crate) fn of(
        lookup: &Lookup<'_>,
        documents: &'d Documents,
        options: &Options,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut gateways = Self { list: Vec::new(), by_key: BTreeMap::new(), foreign: BTreeSet::new() };
        for (_, Placed { document, group, .. }) in of_kinds(documents, Kind::Gateway..=Kind::Gateway) {
            let Spec::Gateway(gateway) = &document.spec else { continue };
            if let Err(why) = ownership(gateway, documents, options) {
                let message = format!("this Gateway is left to others: {why}");
                let note =
                    document.diagnostic(Severity::Info, "foreign-gateway", &gateway.class_spot, message);
                diagnostics.push(note);
                gateways.foreign.insert(document.key.clone());
                continue;
            }
            let fault = unknown_parameters(gateway);
            let mut listeners = listeners(lookup, document, gateway);
            if let Some(fault) = &fault {
                listeners.iter_mut().for_each(|listener| listener.fault = Some(fault.clone()));
            }
            gateways.list.push(PlannedGateway {
                document: Some(document),
                key: document.key.clone(),
                group: group.clone(),
                address: gateway.address,
                is_native: gateway.class.is_empty(),
                fault,
                listeners,
            });
        }
        gateways.share_ports();
        let keys = gateways.list.iter().enumerate().map(|(index, gateway)| (gateway.key.clone(), index));
        gateways.by_key = keys.collect();
        gateways
    }

    /// Whether there is no Gateway document at all, of whichever controller.
    pub(crate) fn is_without_documents(&self) -> bool {
        self.foreign.is_empty() && self.by_key.is_empty()
    }

    /// Whether the Gateway belongs to another controller.
    pub(crate) fn is_foreign(&self, key: &DocumentKey) -> bool {
        self.foreign.contains(key)
    }

    /// The index of the Gateway with a document of this identity.
    pub(crate) fn find(&self, key: &DocumentKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// The indices of those of the native form.
    pub(crate) fn natives(&self) -> Vec<usize> {
        let list = self.list.iter().enumerate();
        list.filter(|(_, gateway)| gateway.is_native).map(|(index, _)| index).collect()
    }

    /// The index of the implicit gateway of a group, which is made if the group has none.
    pub(crate) fn implicit(&mut self, group: &GroupName, port: u16) -> usize {
        let known = self.list.iter().position(|one| one.document.is_none() && one.group == *group);
        if let Some(index) = known {
            return index;
        }
        let mut gateway = PlannedGateway {
            document: None,
            key: DocumentKey::new(Kind::Gateway, "default", "implicit"),
            group: group.clone(),
            address: None,
            is_native: false,
            fault: None,
            listeners: vec![PlannedListener::new(implicit_listener(port))],
        };
        for other in &self.list {
            yield_ports(&mut gateway, other);
        }
        self.list.push(gateway);
        self.list.len() - 1
    }

    /// Warns of what is wrong with listeners.
    pub(crate) fn diagnose(&self, diagnostics: &mut Vec<Diagnostic>) {
        for gateway in &self.list {
            let Some(document) = gateway.document else { continue };
            let mut warn = |reason: &str, spot: &Spot, message: String| {
                diagnostics.push(document.diagnostic(Severity::Warning, code_of(reason), spot, message));
            };
            if let (Some(Fault { reason, message }), Spec::Gateway(spec)) = (&gateway.fault, &document.spec) {
                let spot = spec.parameters.as_ref().map_or(&spec.class_spot, |parameters| &parameters.spot);
                warn(reason, spot, message.clone());
                continue;
            }
            for listener in &gateway.listeners {
                let name = &listener.spec.name;
                if let Some(Fault { reason, message }) = &listener.fault {
                    warn(
                        reason,
                        &listener.spec.spot,
                        format!("listener {name} is not accepted ({reason}): {message}"),
                    );
                }
                for problem in &listener.problems {
                    warn(problem.reason, &problem.spot, format!("listener {name}: {}", problem.message));
                }
            }
        }
    }

    /// Says what became of classes, Gateways and listeners, once routes are attached.
    pub(crate) fn report(&self, documents: &Documents, options: &Options, statuses: &mut Statuses) {
        for (key, placed) in of_kinds(documents, Kind::GatewayClass..=Kind::GatewayClass) {
            let Spec::GatewayClass { controller } = &placed.document.spec else { continue };
            if options.controller_name.as_ref().is_none_or(|ours| ours == controller) {
                statuses.object(key, Condition::holds("Accepted", "Accepted"));
            }
        }
        for gateway in self.list.iter().filter(|gateway| gateway.document.is_some()) {
            for condition in conditions(gateway) {
                statuses.object(&gateway.key, condition);
            }
            for listener in &gateway.listeners {
                statuses.listener(&gateway.key, listener.status(gateway.is_native));
            }
        }
    }

    /// Of Gateways of one group on the same port and address, the oldest keeps it.
    fn share_ports(&mut self) {
        let seniority = |gateway: &PlannedGateway<'_>| gateway.document.map(Seniority::of);
        self.list.sort_by_key(seniority);
        for index in 1..self.list.len() {
            let (older, rest) = self.list.split_at_mut(index);
            if let Some(gateway) = rest.first_mut() {
                older.iter().for_each(|other| yield_ports(gateway, other));
            }
        }
        self.list.sort_by(|one, other| one.key.cmp(&other.key));
    }
}

/// Takes the ports from `gateway` that `other` has.
fn yield_ports(gateway: &mut PlannedGateway<'_>, other: &PlannedGateway<'_>) {
    if gateway.group != other.group || !is_same_address(gateway.address, other.address) {
        return;
    }
    for listener in gateway.listeners.iter_mut().filter(|listener| listener.is_accepted()) {
        let port = listener.spec.port;
        if other.listeners.iter().any(|one| one.is_accepted() && one.spec.port == port) {
            let message = format!("{} of the same node group listens on port {port}", other.key);
            listener.fault = Some(Fault::new("PortUnavailable", message));
        }
    }
}

/// Whether a port of both addresses cannot be bound twice.
fn is_same_address(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let has_every = one.is_unspecified() || other.is_unspecified();
    one == other || has_every && one.is_ipv4() == other.is_ipv4()
}

/// Whether a Gateway is ours, else why not.
fn ownership(gateway: &Gateway, documents: &Documents, options: &Options) -> Result<(), String> {
    let Some(ours) = &options.controller_name else { return Ok(()) };
    if gateway.class.is_empty() {
        return Ok(());
    }
    let key = DocumentKey::new(Kind::GatewayClass, "", &gateway.class);
    let class = documents.get(&key).map(|placed| &placed.document.spec);
    let Some(Spec::GatewayClass { controller }) = class else {
        return Err(format!("there is no GatewayClass {} to say that it belongs to {ours}", gateway.class));
    };
    if controller == ours { Ok(()) } else { Err(format!("its class belongs to {controller}")) }
}

fn implicit_listener(port: u16) -> GatewayListener {
    GatewayListener {
        spot: Spot::default(),
        name: "http".to_owned(),
        port,
        protocol: Protocol::Http,
        hostname: None,
        certificates: Vec::new(),
        allowed: AllowedRoutes {
            namespaces: AllowedNamespaces::All,
            kinds: Vec::new(),
            kinds_spot: Spot::default(),
        },
    }
}

/// Why a Gateway with parameters is not accepted: nothing here knows what they ask for (Core, GatewayInvalidParametersRef).
fn unknown_parameters(gateway: &Gateway) -> Option<Fault> {
    let ObjectRef { group, kind, name, .. } = gateway.parameters.as_ref()?;
    let shown =
        xds_codec::echo_name(&if group.is_empty() { kind.to_string() } else { format!("{group}/{kind}") });
    let message =
        format!("{shown} is no kind of parameters of a Gateway here, so {name} cannot be used; remove it");
    Some(Fault::new("InvalidParameters", message))
}

/// The conditions of a Gateway.
fn conditions(gateway: &PlannedGateway<'_>) -> [Condition; 3] {
    let listeners = &gateway.listeners;
    let faulty: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.is_accepted())
        .map(|listener| listener.spec.name.as_str())
        .collect();
    let accepted = match (&gateway.fault, faulty.is_empty()) {
        (Some(Fault { reason, message }), _) => Condition::fails("Accepted", reason, message.clone()),
        (None, true) => Condition::holds("Accepted", "Accepted"),
        (None, false) => {
            let status = if faulty.len() < listeners.len() { Truth::True } else { Truth::False };
            let message = format!("these listeners are not accepted: {}", faulty.join(", "));
            Condition { kind: "Accepted", status, reason: "ListenersNotValid", message }
        }
    };
    let programmed = match listeners.iter().any(PlannedListener::is_programmed) {
        true => Condition::holds("Programmed", "Programmed"),
        false => Condition::fails("Programmed", "Invalid", "Envoys listen for none of its listeners"),
    };
    let unresolved: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.problems.is_empty())
        .map(|listener| listener.spec.name.as_str())
        .collect();
    let resolved = match unresolved.is_empty() {
        true => Condition::holds("ResolvedRefs", "ResolvedRefs"),
        false => {
            let message =
                format!("references of these listeners are not resolved: {}", unresolved.join(", "));
            Condition::fails("ResolvedRefs", "ListenersNotResolved", message)
        }
    };
    [accepted, programmed, resolved]
}
