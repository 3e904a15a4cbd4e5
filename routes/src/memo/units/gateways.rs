//! Gateways: their conditions, the part of them that routes see, and the Listeners and chains of their ports.

use std::sync::Arc;

use xds_cache::{GroupName, Origin};
use xds_codec::Diagnostic;

use super::context::{Context, Facts};
use super::surroundings::Surroundings;
use crate::emit::envoy;
use crate::input::Options;
use crate::memo::fact::{Fact, Maker, TablePlace, Value};
use crate::memo::key::{HostKey, InGroup};
use crate::memo::made::Made;
use crate::memo::reader::Reader;
use crate::model::{Kind, ListenerProtocol, Spec};
use crate::plan::mesh;
use crate::plan::{Cost, Gateways, Host as HostName, Parent, PlannedGateway, Port, is_tired, ports};
use crate::thin::Thin;

impl Context<'_, '_, '_> {
    /// All Gateways. They share ports, so one affects others.
    pub(super) fn gateways(self) -> Option<Made> {
        let mut surroundings = Surroundings::of_outlines(self.reader);
        for placed in self.reader.of_kind(Kind::GatewayClass).chain(self.reader.of_kind(Kind::Gateway)) {
            surroundings.add_placed(placed);
            let Spec::Gateway(gateway) = &placed.document.spec else { continue };
            let secured =
                gateway.listeners.iter().filter(|listener| listener.protocol == ListenerProtocol::Https);
            secured
                .flat_map(|listener| &listener.certificates)
                .for_each(|to| surroundings.add_certificate(&placed.document.key.namespace, to));
        }
        let mut diagnostics: Vec<Diagnostic> = Vec::new();
        let (documents, options) = (surroundings.documents(), self.options);
        let gateways = Gateways::of(&surroundings.lookup(options), documents, options, &mut diagnostics);
        gateways.diagnose(&mut diagnostics);
        let mut facts = Made::new();
        for (key, parts) in gateways.report(documents, options) {
            facts.push((Fact::Standing(key), Value::Standing(parts.into())));
        }
        if !gateways.foreign.is_empty() || !gateways.list.is_empty() {
            facts.push((Fact::HasGateways, Value::Present));
        }
        facts.extend(gateways.foreign.iter().map(|key| (Fact::Gateway(key.clone()), Value::Gateway(None))));
        let mut natives = Vec::new();
        let mut grouped: Vec<&GroupName> = Vec::new();
        let mut implicit_taken: Vec<&GroupName> = Vec::new();
        for gateway in &gateways.list {
            let parent = Arc::new(gateway.parent());
            if gateway.is_native {
                natives.push(Arc::clone(&parent));
            }
            facts.push((Fact::Gateway(gateway.key.clone()), Value::Gateway(Some(parent))));
            let origin = gateway.origin().unwrap_or(Origin::Api);
            let of_ports = of_ports(gateway, &origin, options, &mut facts);
            if of_ports.is_empty() {
                continue;
            }
            if !grouped.contains(&&gateway.group) {
                grouped.push(&gateway.group);
            }
            let takes_implicit = options.implicit_port.is_some_and(|port| of_ports.contains(&port));
            if takes_implicit && !implicit_taken.contains(&&gateway.group) {
                implicit_taken.push(&gateway.group);
                let key = Value::Key(gateway.key.clone());
                facts.push((Fact::ImplicitTaken(gateway.group.clone()), key));
            }
            own_hosts(gateway, &mut facts);
        }
        for group in grouped {
            let made = Fact::Makes(group.clone(), Some(Maker::Gateway));
            facts.push((made, Value::Present));
        }
        facts.extend(self.natives(natives));
        facts.extend(certificates(&gateways));
        facts.say(diagnostics);
        Some(facts)
    }

    /// The Gateways of the native form. A route can attach to all of them.
    fn natives(&self, natives: Vec<Arc<Parent>>) -> Facts {
        if natives.is_empty() {
            return Facts::new();
        }
        let n_asked = natives.len().saturating_mul(2);
        let n_routes = self.reader.sum(Fact::Unnamed).hosts;
        let mut facts = vec![(Fact::Natives, Value::Gateways(natives.into()))];
        if is_tired(n_asked.saturating_mul(n_routes), &self.options.limits) {
            let n_asked = Cost { hosts: n_asked, ..Cost::default() };
            facts.push((Fact::Throng, Value::Sum(Box::new(n_asked.into()))));
        }
        facts
    }

    /// The implicit gateway of a group, if routes ask for it.
    pub(super) fn implicit(self, group: &GroupName) -> Option<Made> {
        let mut asking = self.reader.all(Fact::Asks(group.clone(), None)).peekable();
        asking.peek()?;
        let Some(gateway) = implicit(self.reader, group, self.options) else { return Some(Made::new()) };
        let listener = gateway.listeners.first().map(|listener| gateway.listener_key(listener))?;
        let attached = asking.filter(|(_, value)| **value == Value::Flag(true)).filter_map(|(fact, _)| {
            let Fact::Asks(_, route) = fact else { return None };
            route.as_ref()
        });
        let mut taken =
            attached.filter(|route| !self.reader.has(Fact::Lost(Arc::clone(&listener), (*route).clone())));
        let first = taken.next().and_then(|route| self.reader.value(Fact::Outline(route.clone())));
        let mut origin = Origin::Api;
        if let Some(Value::Outline(outline)) = first {
            origin = outline.0.document.origin();
        }
        let mut facts = Made::new();
        if !of_ports(&gateway, &origin, self.options, &mut facts).is_empty() {
            let made = Fact::Makes(group.clone(), Some(Maker::Implicit));
            facts.push((made, Value::Present));
        }
        Some(facts)
    }

    /// A node group. It exists as long as an object creates it.
    pub(super) fn group(self, name: &GroupName) -> Option<Made> {
        let is_made = self.reader.all(Fact::Makes(name.clone(), None)).next().is_some();
        let n_ports = self.reader.sum(Fact::Ports(name.clone())).hosts;
        if !is_made && n_ports == 0 {
            return None;
        }
        let consumer = self.reader.all(Fact::Consumer(name.clone(), None)).next();
        let namespace = consumer.and_then(|_| mesh::consumed_by(name));
        let definition = namespace.map(|namespace| Arc::new(mesh::definition(name, namespace)));
        Some(Made::one(Fact::Group(name.clone()), Value::Group(definition)))
    }
}

/// The implicit gateway that a group would have; `None` if it cannot have one.
pub(super) fn implicit<'m>(
    reader: &Reader<'m>,
    group: &GroupName,
    options: &Options,
) -> Option<PlannedGateway<'m>> {
    let port = options.implicit_port?;
    let mut other = None;
    if let Some(Value::Key(key)) = reader.value(Fact::ImplicitTaken(group.clone())) {
        other = Some(key);
    }
    Some(PlannedGateway::implicit(group, port, other))
}

/// The Listeners and chains of the ports of a Gateway; returns the ports.
fn of_ports(gateway: &PlannedGateway<'_>, origin: &Origin, options: &Options, facts: &mut Made) -> Vec<u16> {
    let group = &gateway.group;
    let mut numbers = Vec::new();
    for (port, fronts) in ports(gateway, origin) {
        numbers.push(port.port);
        let name = Some(port.name.as_str().into());
        facts.push((Fact::GatewayPort(group.clone(), port.port, name), Value::Present));
        for (chain, front) in port.chains.iter().zip(fronts) {
            facts.push((Fact::Front(InGroup::named(group, &chain.name)), Value::Front(front.into())));
        }
        served(gateway, &port, options, facts);
    }
    numbers
}

/// The resources of a port for Envoys.
fn served(gateway: &PlannedGateway<'_>, port: &Port, options: &Options, facts: &mut Made) {
    let Some(mut served) = envoy::gateway(port, options) else { return };
    let group = &gateway.group;
    served.listener.is_on_demand = gateway.is_on_demand;
    let listener = Value::Listener((served.listener.clone(), port.origin.clone()).into());
    facts.push((Fact::Listener(InGroup::named(group, &served.listener.name)), listener));
    for (index, (name, misdirected)) in served.tables.into_iter().enumerate() {
        let name = InGroup::named(group, &name);
        if let Some(frame) = misdirected {
            let key = HostKey::misdirected(name.clone());
            if gateway.is_on_demand && frame.has_wildcard() {
                facts.push((Fact::Hides(name.clone(), Some(key.clone())), Value::Present));
            }
            facts.push((Fact::Misdirected(key), Value::Frame(frame.into())));
        }
        let place = TablePlace::Gateway(port.name.as_str().into(), index);
        facts.push((Fact::Table(name), Value::Table((place, port.origin.clone()).into())));
    }
}

/// The hosts that listeners have without any routes.
fn own_hosts(gateway: &PlannedGateway<'_>, facts: &mut Made) {
    for listener in gateway.listeners.iter().filter(|listener| listener.is_accepted()) {
        if listener.host != HostName::Any {
            let (key, by) = (gateway.listener_key(listener), Some(gateway.key.clone()));
            facts.push((Fact::On(key, Thin::new(listener.host.clone()), by), Value::Age(None)));
        }
    }
}

/// The certificates of all listeners, without duplicates.
fn certificates(gateways: &Gateways<'_>) -> Facts {
    let accepted = gateways.list.iter().flat_map(|gateway| {
        let listeners = gateway.listeners.iter().filter(|listener| listener.is_accepted());
        let certificates = listeners.flat_map(|listener| &listener.certificates);
        certificates.map(|(name, _)| Fact::Certificate(InGroup::named(&gateway.group, name)))
    });
    let all: std::collections::BTreeSet<Fact> = accepted.collect();
    all.into_iter().map(|fact| (fact, Value::Present)).collect()
}
