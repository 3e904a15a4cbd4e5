//! The resources for Envoys.

use std::sync::Arc;

use xds_cache::{Profile, Resource, ResourceType};
use xds_codec::{Diagnostic, Severity};

use super::context::{Context, written};
use crate::emit::{EnvoyFrame, UNAVAILABLE, envoy};
use crate::memo::fact::{Assembled, Claim, Fact, Value};
use crate::memo::hosts::EncodedHost;
use crate::memo::key::{HostKey, InGroup};
use crate::memo::made::{Clients, Made};
use crate::model::Spot;
use crate::plan::{Action, Discovery, Front, Plan, PlannedRoute, Target, TlsSecret, UpstreamTls, mesh};

impl<'m> Context<'_, 'm, '_> {
    /// A virtual host: a part of its RouteConfiguration, or a resource that Envoys request separately.
    pub(super) fn part(self, key: &HostKey) -> Option<Made> {
        let Some(frame) = self.frame(key)? else { return Some(Made::new()) };
        if let Some(front) = self.on_demand(key) {
            return Some(self.host_on_demand(key, frame, front));
        }
        let routes = self.routes(key);
        let plan = self.pinned(key, routes);
        let encoded = self.encoder.host(&envoy::host(frame, routes, &plan));
        let needs_unavailable = routes.iter().any(envoy::uses_unavailable);
        let table = key.table.clone();
        let part = EncodedHost { encoded: encoded.map_err(Into::into), needs_unavailable };
        Some(Made::one(Fact::Part(table, key.clone()), Value::Part(part.into())))
    }

    /// The chain of a host that is a resource of its own.
    fn on_demand(&self, key: &HostKey) -> Option<&'m Front> {
        if key.is_misdirected || !key.namespace.is_empty() {
            return None;
        }
        self.front(key).filter(|front| front.is_on_demand && self.hiding(&key.table).is_none())
    }

    /// A wildcard host with routes, of a chain with hosts on demand.
    fn hiding(&self, table: &InGroup) -> Option<&'m HostKey> {
        let first = self.reader.all(Fact::Hides(table.clone(), None)).next();
        let Some((Fact::Hides(_, key), _)) = first else { return None };
        key.as_ref()
    }

    /// A virtual host as a resource. Without routes it is not served, because requests would get the same answer.
    fn host_on_demand(mut self, key: &HostKey, frame: EnvoyFrame, front: &'m Front) -> Made {
        let routes = self.routes(key);
        if routes.is_empty() {
            return Made::new();
        }
        let plan = self.pinned(key, routes);
        let emitted = envoy::host_on_demand(&key.table.name, frame, routes, &plan, &front.origin);
        let mut facts = self.write(key.group(), Clients::Envoys, &[emitted]);
        if routes.iter().any(envoy::uses_unavailable) {
            let need = Fact::Need(key.group().clone(), Profile::Envoy, Some(Claim::Host(key.clone()).into()));
            facts.push((need, Value::Origin(front.origin.clone().into())));
        }
        facts
    }

    /// A virtual host without its routes; `None` if it does not exist, or if Envoys do not get it.
    fn frame(&self, key: &HostKey) -> Option<Option<EnvoyFrame>> {
        if let Some((table, name)) = key.service() {
            let framed = self.reader.value(Fact::Framed(table, Some(name)));
            let Some(Value::Service(service)) = framed else { return None };
            let hosts = mesh::hosts(&key.namespace, &key.name, service.has_short_name);
            let name = format!("{}/{}", key.namespace, key.name);
            return Some(Some(envoy::mesh_frame(name, hosts, key.mesh_port()?, self.options)));
        }
        if key.is_misdirected {
            let frame = self.reader.value(Fact::Misdirected(key.clone()));
            let Some(Value::Frame(frame)) = frame else { return None };
            return Some(Some((**frame).clone()));
        }
        self.reader.value(Fact::Routes(key.clone()))?;
        let front = self.front(key)?;
        let frame = || envoy::host_frame(&key.name, front.port, front.tls.is_some(), self.options);
        Some(front.is_programmed.then(frame))
    }

    /// The backends that can have sessions of these routes.
    fn pinned(&self, key: &HostKey, routes: &[PlannedRoute]) -> Plan {
        let mut names = Vec::new();
        for route in routes.iter().filter(|route| route.effects.session.is_some()) {
            let Action::Forward(targets) = &route.action else { continue };
            names.extend(targets.iter().filter_map(|weighted| match &weighted.target {
                Target::Backend(backend) => Some(backend.name.as_str()),
                Target::Broken => None,
            }));
        }
        let mut plan = self.clusters(key.group(), names);
        for name in plan.clusters.keys() {
            if let Some(assignment) = self.assigned(&self.names.get(key.group(), name)) {
                plan.assignments.insert(name.clone(), assignment.clone());
            }
        }
        plan
    }

    /// A Listener.
    pub(super) fn listener(mut self, name: &InGroup) -> Option<Made> {
        let Some(Value::Listener(listener)) = self.reader.value(Fact::Listener(name.clone())) else {
            return None;
        };
        let (listener, origin) = &**listener;
        Some(self.write(&name.group, Clients::Envoys, &[envoy::listener(listener.clone(), origin)]))
    }

    /// A RouteConfiguration, assembled from its virtual hosts.
    pub(super) fn table(self, name: &InGroup) -> Option<Made> {
        let Some(Value::Table(table)) = self.reader.value(Fact::Table(name.clone())) else {
            return None;
        };
        let (place, origin) = &**table;
        let hosts = match self.reader.value(Fact::Hosts(name.clone())) {
            Some(Value::Hosts(hosts)) => Arc::clone(hosts),
            _ => Arc::default(),
        };
        let last = self.reader.last();
        let assembled = Fact::Assembled(name.clone());
        let before = self.reader.own(&assembled);
        let (is_on_demand, doubt) = self.is_on_demand(name);
        let like = match (last, before) {
            ([resource], Some(Value::Assembled(before))) if was_on_demand(resource) == is_on_demand => {
                before.0.encoded().ok().map(|before| (&**resource, before))
            }
            _ => None,
        };
        let emitted = envoy::configuration(name.name.to_string(), is_on_demand, origin);
        let made = self.encoder.assembled(&emitted, hosts.encoded().map_err(<[_]>::to_vec), like, last);
        let needs_unavailable = hosts.needs_unavailable();
        let hosts = match &made {
            Ok(_) => Some(Value::Assembled(Assembled(hosts))),
            Err(_) => before.cloned(),
        };
        let mut facts = written(&name.group, Clients::Envoys, vec![made]);
        facts.extend(hosts.map(|hosts| (assembled, hosts)));
        facts.say(doubt);
        if needs_unavailable {
            let need = Fact::Need(
                name.group.clone(),
                Profile::Envoy,
                Some(Claim::Table(place.clone(), Arc::clone(&name.name)).into()),
            );
            facts.push((need, Value::Origin(origin.clone().into())));
        }
        Some(facts)
    }

    /// Returns `true` if the hosts of a RouteConfiguration come on demand. Returns a warning if that was asked for but is not possible.
    fn is_on_demand(&self, name: &InGroup) -> (bool, Option<Diagnostic>) {
        let front = match self.reader.value(Fact::Front(name.clone())) {
            Some(Value::Front(front)) if front.is_on_demand => front,
            _ => return (false, None),
        };
        let Some(hiding) = self.hiding(name) else { return (true, None) };
        let gateway = front.listeners.first().and_then(|(key, _)| self.reader.outline(&key.gateway));
        let what = match hiding.is_misdirected {
            true => "another listener of the port takes every host, or has a wildcard".to_owned(),
            false => format!("the host {} has routes", hiding.name),
        };
        let message = format!(
            "the virtual hosts of {} are not sent on demand: {what}, and an Envoy that has a wildcard never asks for the hosts \
             that it covers",
            name.name
        );
        let doubt = gateway.map(|gateway| {
            gateway.document.diagnostic(Severity::Warning, "not-on-demand", &Spot::default(), message)
        });
        (false, doubt)
    }

    /// A cluster, once for each protocol.
    pub(super) fn cluster(mut self, name: &InGroup) -> Option<Made> {
        let cluster = self.planned(name)?;
        let mut plan = Plan::default();
        if let Discovery::Aggregate(_) = &cluster.discovery {
            plan = self.clusters(&name.group, [&*name.name]);
        }
        let mut emitted = envoy::cluster(&plan, &name.name, cluster);
        if *name.name == *UNAVAILABLE && self.unavailable_for(&name.group, Profile::Envoy).is_some() {
            // The cluster without endpoints wins over a backend with the same name.
            emitted.retain(|one| !one.is_named(UNAVAILABLE));
        }
        let mut facts = self.write(&name.group, Clients::Envoys, &emitted);
        if !cluster.protocols.is_empty() && cluster.tls == Some(UpstreamTls::Invalid) {
            let nowhere = Fact::Nowhere(name.group.clone(), Profile::Envoy, Some(Arc::clone(&name.name)));
            facts.push((nowhere, Value::Origin(cluster.origin.clone().into())));
        }
        Some(facts)
    }

    /// Writes a secret.
    pub(super) fn write_secret(&mut self, name: &InGroup, secret: &TlsSecret) -> Made {
        self.write(&name.group, Clients::Envoys, &[envoy::secret(&name.name, secret)])
    }

    /// The routes of a host.
    pub(super) fn routes(&self, key: &HostKey) -> &'m [PlannedRoute] {
        match self.reader.value(Fact::Routes(key.clone())) {
            Some(Value::Routes(routes)) => routes,
            _ => &[],
        }
    }
}

/// Returns `true` if Envoys ask for the virtual hosts of a RouteConfiguration one by one.
fn was_on_demand(configuration: &Resource) -> bool {
    configuration.references().of_type(&ResourceType::VirtualHost).next().is_some()
}
