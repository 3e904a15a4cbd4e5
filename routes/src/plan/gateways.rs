//! Gateways: which of them are served here, their ports and their conditions.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use xds_cache::{GroupName, Origin, ResourceKey, ResourceType};
use xds_codec::{Diagnostic, Severity};

use super::listeners::{PlannedListener, listeners};
use super::precedence::Seniority;
use super::statuses::{Fault, ObjectConditions};
use super::{Host, Lookup};
use crate::conditions::{Condition, ConditionReason, ConditionType, Truth};
use crate::input::of_kinds;
use crate::input::{Documents, Options, Placed};
use crate::model::{
    AllowedNamespaces, AllowedRoutes, Document, DocumentKey, Gateway, GatewayListener, Kind,
    ListenerProtocol, ObjectRef, RouteKind, Spec, Spot,
};

/// A Gateway and its state.
#[derive(Debug)]
pub(crate) struct PlannedGateway<'d> {
    /// Its document; the implicit gateway has none.
    pub(crate) document: Option<&'d Document>,
    /// Its identity.
    pub(crate) key: DocumentKey,
    /// The node group that it serves.
    pub(crate) group: GroupName,
    /// The address on which it listens; `None` for every address.
    pub(crate) address: Option<IpAddr>,
    /// True if it was written in the native form.
    pub(crate) is_native: bool,
    /// True if Envoys request its hosts one by one.
    pub(crate) is_on_demand: bool,
    /// The reason why it is not accepted, if so.
    fault: Option<Fault>,
    /// Its listeners, in the order of the document.
    pub(crate) listeners: Vec<PlannedListener>,
}

/// All Gateways.
#[derive(Debug)]
pub(crate) struct Gateways<'d> {
    /// The Gateways that are served here, sorted by identity.
    pub(crate) list: Vec<PlannedGateway<'d>>,
    /// The Gateways of other controllers.
    pub(crate) foreign: BTreeSet<DocumentKey>,
}

/// The identity of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerKey {
    /// The node group of the Gateway.
    pub(crate) group: GroupName,
    /// The Gateway.
    pub(crate) gateway: DocumentKey,
    /// The name within the Gateway.
    pub(crate) name: Arc<str>,
    /// The chain that has its hosts.
    pub(crate) chain: Arc<str>,
}

/// A Gateway as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent {
    /// Its identity.
    pub(crate) key: DocumentKey,
    /// True if it has no document.
    pub(crate) is_implicit: bool,
    /// Its listeners, in the order of the document.
    pub(crate) listeners: Vec<Arc<ParentListener>>,
}

/// A listener as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParentListener {
    /// Its identity.
    pub(crate) key: Arc<ListenerKey>,
    /// Its port.
    pub(crate) port: u16,
    /// Its host.
    pub(crate) host: Host,
    /// The namespaces from which it accepts routes.
    pub(crate) namespaces: AllowedNamespaces,
    /// The kinds of routes that it accepts.
    pub(crate) kinds: Vec<RouteKind>,
    /// The reason why it accepts no routes, if so.
    pub(crate) fault: Option<Fault>,
}

impl<'d> Gateways<'d> {
    /// The Gateways of the documents, with the ports that they get.
    pub(crate) fn of(
        lookup: &Lookup<'_>,
        documents: &'d Documents,
        options: &Options,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut gateways = Self { list: Vec::new(), foreign: BTreeSet::new() };
        for (_, Placed { document, group, .. }) in of_kinds(documents, Kind::Gateway..=Kind::Gateway) {
            let Spec::Gateway(gateway) = &document.spec else { continue };
            if let Err(why) = ownership(gateway, documents, options) {
                let message = format!("this Gateway is left to other controllers: {why}");
                let note =
                    document.diagnostic(Severity::Info, "foreign-gateway", &gateway.class_spot, message);
                diagnostics.push(note);
                gateways.foreign.insert(document.key.clone());
                continue;
            }
            let fault = unknown_parameters(gateway).or_else(|| unsupported_address(gateway));
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
                is_on_demand: document.meta.is_on_demand,
                fault,
                listeners,
            });
        }
        gateways.share_ports();
        gateways
    }

    /// Warns about faults of listeners.
    pub(crate) fn diagnose(&self, diagnostics: &mut Vec<Diagnostic>) {
        for gateway in &self.list {
            let Some(document) = gateway.document else { continue };
            let mut warn = |reason: ConditionReason, spot: &Spot, message: String| {
                diagnostics.push(document.diagnostic(
                    Severity::Warning,
                    reason.diagnostic_code(),
                    spot,
                    message,
                ));
            };
            if let (Some(Fault { reason, message }), Spec::Gateway(spec)) = (&gateway.fault, &document.spec) {
                let address = spec.unsupported_address.as_ref().map(|(spot, _)| spot);
                let spot = spec.parameters.as_ref().map(|parameters| &parameters.spot).or(address);
                let spot = spot.unwrap_or(&spec.class_spot);
                warn(*reason, spot, message.clone());
                continue;
            }
            for listener in &gateway.listeners {
                let name = &listener.spec.name;
                if let Some(Fault { reason, message }) = &listener.fault {
                    warn(
                        *reason,
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

    /// The conditions of classes, Gateways and listeners, except for the number of their routes.
    pub(crate) fn report(
        &self,
        documents: &Documents,
        options: &Options,
    ) -> Vec<(DocumentKey, ObjectConditions)> {
        let mut all = Vec::new();
        for (key, placed) in of_kinds(documents, Kind::GatewayClass..=Kind::GatewayClass) {
            let Spec::GatewayClass { controller } = &placed.document.spec else { continue };
            if options.controller_name.as_ref().is_none_or(|ours| ours == controller) {
                let conditions = vec![Condition::accepted()];
                all.push((key.clone(), ObjectConditions { conditions, ..ObjectConditions::default() }));
            }
        }
        all.extend(self.list.iter().map(|gateway| {
            let listeners = gateway.listeners.iter().map(|listener| listener.status(gateway.is_native));
            let (conditions, listeners) = (conditions(gateway).into(), listeners.collect());
            (gateway.key.clone(), ObjectConditions { conditions, listeners, ..ObjectConditions::default() })
        }));
        all
    }

    /// If Gateways of one group want the same port and address, the oldest keeps it.
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

impl PlannedGateway<'_> {
    /// The implicit gateway of a group. It gets no port if `other` has it.
    pub(crate) fn implicit(group: &GroupName, port: u16, other: Option<&DocumentKey>) -> Self {
        let mut listener = PlannedListener::new(implicit_listener(port));
        listener.fault = other.map(|other| taken(other, port));
        Self {
            document: None,
            key: DocumentKey::new(Kind::Gateway, "default", "implicit"),
            group: group.clone(),
            address: None,
            is_native: false,
            is_on_demand: false,
            fault: None,
            listeners: vec![listener],
        }
    }

    /// Returns the Gateway as routes see it.
    pub(crate) fn parent(&self) -> Parent {
        let listeners = self.listeners.iter().map(|listener| {
            let listener = ParentListener {
                key: self.listener_key(listener),
                port: listener.spec.port,
                host: listener.host.clone(),
                namespaces: listener.spec.allowed.namespaces.clone(),
                kinds: listener.kinds.clone(),
                fault: listener.fault.clone(),
            };
            Arc::new(listener)
        });
        Parent { key: self.key.clone(), is_implicit: self.document.is_none(), listeners: listeners.collect() }
    }

    /// The identity of one of its listeners.
    pub(crate) fn listener_key(&self, listener: &PlannedListener) -> Arc<ListenerKey> {
        let chain = match listener.spec.protocol {
            ListenerProtocol::Https => {
                format!("{}/{}", self.port_name(listener.spec.port), listener.spec.name)
            }
            ListenerProtocol::Http | ListenerProtocol::Other(_) => self.port_name(listener.spec.port),
        };
        let (group, gateway) = (self.group.clone(), self.key.clone());
        Arc::new(ListenerKey {
            group,
            gateway,
            name: listener.spec.name.as_str().into(),
            chain: chain.into(),
        })
    }

    /// The name of a port.
    pub(crate) fn port_name(&self, port: u16) -> String {
        port_name(&self.key, port)
    }

    /// Its origin, if it has a document.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.document.map(Document::origin)
    }
}

fn port_name(gateway: &DocumentKey, port: u16) -> String {
    format!("{}/{}/{port}", gateway.namespace, gateway.name)
}

/// The listeners of a Gateway by their names, each with the resources without which no Envoy listens for it: the Listener of its port,
/// and the secrets of its certificates. Empty for other documents.
pub fn resources_of_listeners(document: &Document) -> impl Iterator<Item = (&str, Vec<ResourceKey>)> {
    let listeners =
        if let Spec::Gateway(gateway) = &document.spec { gateway.listeners.as_slice() } else { &[] };
    listeners.iter().map(|listener| {
        let port = port_name(&document.key, listener.port).into();
        let port = ResourceKey { resource_type: ResourceType::Listener, name: port };
        let secrets = listener.certificates.iter().map(|ObjectRef { namespace, name, .. }| ResourceKey {
            resource_type: ResourceType::Secret,
            name: format!("{namespace}/{name}").into(),
        });
        (listener.name.as_str(), [port].into_iter().chain(secrets).collect())
    })
}

/// Takes ports away from `gateway` that `other` has.
fn yield_ports(gateway: &mut PlannedGateway<'_>, other: &PlannedGateway<'_>) {
    if gateway.group != other.group || !is_same_address(gateway.address, other.address) {
        return;
    }
    for listener in gateway.listeners.iter_mut().filter(|listener| listener.is_accepted()) {
        let port = listener.spec.port;
        if other.listeners.iter().any(|one| one.is_accepted() && one.spec.port == port) {
            listener.fault = Some(taken(&other.key, port));
        }
    }
}

fn taken(other: &DocumentKey, port: u16) -> Fault {
    Fault::new(
        ConditionReason::PortUnavailable,
        format!("{other} of the same node group listens on port {port}"),
    )
}

/// Returns `true` if the same port cannot be bound on both addresses.
fn is_same_address(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return true };
    let has_every = one.is_unspecified() || other.is_unspecified();
    one == other || has_every && one.is_ipv4() == other.is_ipv4()
}

/// Checks that a Gateway is served here; otherwise returns the reason.
fn ownership(gateway: &Gateway, documents: &Documents, options: &Options) -> Result<(), String> {
    let Some(ours) = &options.controller_name else { return Ok(()) };
    if gateway.class.is_empty() {
        return Ok(());
    }
    let key = DocumentKey::new(Kind::GatewayClass, "", &gateway.class);
    let class = documents.get(&key).map(|placed| &placed.document.spec);
    let Some(Spec::GatewayClass { controller }) = class else {
        return Err(format!("there is no GatewayClass {} that names {ours}", gateway.class));
    };
    if controller == ours { Ok(()) } else { Err(format!("its class belongs to {controller}")) }
}

fn implicit_listener(port: u16) -> GatewayListener {
    GatewayListener {
        spot: Spot::default(),
        name: "http".to_owned(),
        port,
        protocol: ListenerProtocol::Http,
        hostname: None,
        certificates: Vec::new(),
        allowed: AllowedRoutes {
            namespaces: AllowedNamespaces::All,
            kinds: Vec::new(),
            kinds_spot: Spot::default(),
        },
    }
}

/// Refuses a Gateway with parameters, which are not supported (Core, GatewayInvalidParametersRef).
fn unknown_parameters(gateway: &Gateway) -> Option<Fault> {
    let ObjectRef { group, kind, name, .. } = gateway.parameters.as_ref()?;
    let shown =
        xds_codec::echo_name(&if group.is_empty() { kind.to_string() } else { format!("{group}/{kind}") });
    let message = format!(
        "parameters of the kind {shown} are not supported, so {name} cannot be used; remove the reference"
    );
    Some(Fault::new(ConditionReason::InvalidParameters, message))
}

/// Refuses a Gateway with an address of a type that is not supported (GatewayStaticAddresses).
fn unsupported_address(gateway: &Gateway) -> Option<Fault> {
    let (_, kind) = gateway.unsupported_address.as_ref()?;
    let message = format!("addresses of the type {kind} are not supported; use IPAddress");
    Some(Fault::new(ConditionReason::UnsupportedAddress, message))
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
        (Some(Fault { reason, message }), _) => {
            Condition::fails(ConditionType::Accepted, *reason, message.clone())
        }
        (None, true) => Condition::accepted(),
        (None, false) => {
            let status = if faulty.len() < listeners.len() { Truth::True } else { Truth::False };
            let message = format!("these listeners are not accepted: {}", faulty.join(", "));
            Condition {
                kind: ConditionType::Accepted,
                status,
                reason: ConditionReason::ListenersNotValid,
                message,
            }
        }
    };
    let programmed = match listeners.iter().any(PlannedListener::is_programmed) {
        true => Condition::programmed(),
        false => Condition::fails(
            ConditionType::Programmed,
            ConditionReason::Invalid,
            "Envoys do not listen for any of its listeners",
        ),
    };
    let unresolved: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.problems.is_empty())
        .map(|listener| listener.spec.name.as_str())
        .collect();
    let resolved = match unresolved.is_empty() {
        true => Condition::resolved_refs(),
        false => {
            let message =
                format!("references of these listeners are not resolved: {}", unresolved.join(", "));
            Condition::fails(ConditionType::ResolvedRefs, ConditionReason::ListenersNotResolved, message)
        }
    };
    [accepted, programmed, resolved]
}
