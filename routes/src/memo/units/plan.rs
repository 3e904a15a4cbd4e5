//! The plans of all groups, in parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use xds_cache::{GroupName, Origin};

use super::Facts;
use crate::emit::{Dialled, EnvoyFrame, envoy, grpc};
use crate::memo::fact::{Fact, Host, HostKey, InGroup, Stubs, Value};
use crate::memo::reader::Reader;
use crate::memo::unit::Unit;
use crate::model::{BackendSource, DocumentKey, EndpointSlice, Kind, ObjectRef, Spec};
use crate::plan::{
    Outline, Plan, Planned, PlannedGroup, PlannedRoute, Texts, Verdicts, VirtualHost, plan_while,
};
use crate::translate::Options;

/// A document as the plan as a whole sees it, and by what else it is found; `None` if there is none.
pub(super) fn outline(reader: &Reader<'_>, key: &DocumentKey) -> Option<Facts> {
    let placed = reader.document(key)?;
    let mut facts = Facts::new();
    if let Some(outline) = Outline::of(placed) {
        facts.push((Fact::Outline(Some(key.clone())), Value::Outline(outline.into())));
    }
    let namespace = || Arc::clone(&key.namespace);
    if let Spec::EndpointSlice(EndpointSlice { service: Some(service), .. }) = &placed.document.spec {
        let slice = Fact::Slice(namespace(), service.as_str().into(), Some(key.clone()));
        facts.push((slice, Value::Present));
    }
    if let Spec::Backend(backend) = &placed.document.spec
        && let BackendSource::Fallback(_) = &backend.source
    {
        facts.push((Fact::Fallback(Some(key.clone())), Value::Present));
    }
    if let Spec::ReferenceGrant(_) = &placed.document.spec {
        facts.push((Fact::Grant(namespace(), Some(key.clone())), Value::Present));
    }
    if let Spec::BackendTlsPolicy(policy) = &placed.document.spec {
        let targets = policy.targets.iter().flat_map(|(target, _)| backends(target));
        let targets: BTreeSet<DocumentKey> = targets.collect();
        let found = targets.into_iter().map(|target| Fact::Policy(target, Some(key.clone())));
        facts.extend(found.map(|found| (found, Value::Present)));
    }
    Some(facts)
}

/// What a reference to a backend can mean.
pub(super) fn backends(to: &ObjectRef) -> [DocumentKey; 2] {
    [Kind::Service, Kind::Backend].map(|kind| DocumentKey::new(kind, &to.namespace, &to.name))
}

/// Plans everything as a whole.
pub(super) fn plan(reader: &Reader<'_>, options: &Options, goes_on: &dyn Fn() -> bool) -> Facts {
    let outlines = reader.all(Fact::Outline(None)).filter_map(|(_, value)| {
        let Value::Outline(outline) = value else { return None };
        Some((outline.0.document.key.clone(), outline.0.clone()))
    });
    let verdicts: Verdicts = reader
        .all(Fact::Fallback(None))
        .filter_map(|(fact, _)| {
            let Fact::Fallback(Some(key)) = fact else { return None };
            let Some(Value::Verdict(verdict)) = reader.value(Fact::Verdict(key.clone())) else { return None };
            Some((key.clone(), (**verdict).clone()))
        })
        .collect();
    let mut planned = plan_while(&outlines.collect(), &verdicts, options, Texts::AtMost, goes_on);
    if planned.has_refused_text {
        planned = plan_while(reader.documents(), &verdicts, options, Texts::Exact, goes_on);
    }
    let Planned { groups, statuses, diagnostics, has_refused_text: _ } = planned;
    let mut facts = vec![(Fact::Doubts(Unit::Plan), Value::Doubts(diagnostics.into()))];
    for (group, PlannedGroup { definition, plan }) in groups {
        facts.push((Fact::Group(group.clone()), Value::Group(definition.map(Arc::new))));
        hosts(&group, &plan, options, &mut facts);
        let name = |name: &str| InGroup::new(&group, name);
        for certificate in plan.secrets.keys() {
            facts.push((Fact::Certificate(name(certificate)), Value::Present));
        }
    }
    for (key, parts) in statuses.finish() {
        facts.push((Fact::Standing(key), Value::Standing(parts.into())));
    }
    facts
}

/// What there is of a host.
struct Found<'p> {
    frame: Option<EnvoyFrame>,
    dialled: Option<Dialled>,
    origin: &'p Origin,
}

/// The hosts of a plan, and the Listeners and RouteConfigurations in which Envoys have them.
fn hosts(group: &GroupName, plan: &Plan, options: &Options, facts: &mut Facts) {
    let mut found: BTreeMap<HostKey, Found<'_>> = BTreeMap::new();
    let table = |table: &str| InGroup::new(group, table);
    let mut tables = 0;
    for served in envoy::served(plan, options) {
        let origin = served.origin;
        let listener = Value::Listener((served.listener.clone(), origin.clone()).into());
        facts.push((Fact::Listener(table(&served.listener.name)), listener));
        for one in served.tables {
            let name = table(&one.name);
            for (frame, place) in one.hosts {
                let (is_misdirected, namespace, host) = match place {
                    envoy::Place::Host(host) => (false, "", host.host.as_str()),
                    envoy::Place::Service(service) => (false, &*service.namespace, &*service.name),
                    envoy::Place::Misdirected => (true, "", ""),
                };
                let key = host_key(&name, is_misdirected, namespace, host);
                found.insert(key, Found { frame: Some(frame), dialled: None, origin });
            }
            facts.push((Fact::Table(name), Value::Table(tables, origin.clone())));
            tables += 1;
        }
    }
    let mut names: HashMap<&str, InGroup> = HashMap::new();
    for (place, dialled) in grpc::tables(plan) {
        let (key, origin) = match place {
            grpc::Place::Host(port, chain, host) => {
                let name = names.entry(&chain.name).or_insert_with(|| table(&chain.name));
                (host_key(name, false, "", host.host.as_str()), &port.origin)
            }
            grpc::Place::Service(service) => {
                let name = table(&envoy::mesh_table(service.port));
                (host_key(&name, false, &service.namespace, &service.name), &service.origin)
            }
        };
        let new = Found { frame: None, dialled: None, origin };
        let known = found.entry(key).or_insert(new);
        (known.dialled, known.origin) = (Some(dialled), origin);
    }
    for (key, Found { frame, dialled, origin }) in found {
        let host = Host { frame, dialled, origin: origin.clone() };
        facts.push((Fact::Host(key), Value::Host(host.into())));
    }
    for chain in plan.ports.iter().flat_map(|port| &port.chains) {
        let table = table(&chain.name);
        let of_host =
            |host: &VirtualHost| stubs(&host_key(&table, false, "", host.host.as_str()), &host.routes, true);
        facts.extend(chain.hosts.iter().map(of_host));
    }
    let asked: BTreeSet<u16> = plan.services_for_envoys().map(|service| service.port).collect();
    facts.extend(plan.services.iter().map(|service| {
        let table = table(&envoy::mesh_table(service.port));
        let key = host_key(&table, false, &service.namespace, &service.name);
        stubs(&key, &service.routes, asked.contains(&service.port))
    }));
}

fn stubs(key: &HostKey, routes: &[PlannedRoute], is_for_envoys: bool) -> (Fact, Value) {
    let stubs = Stubs { routes: routes.to_vec(), is_for_envoys };
    (Fact::Stubs(key.clone()), Value::Stubs(stubs.into()))
}

fn host_key(table: &InGroup, is_misdirected: bool, namespace: &str, name: &str) -> HostKey {
    let InGroup { group, name: table } = table.clone();
    HostKey { group, table, is_misdirected, namespace: namespace.into(), name: Arc::from(name) }
}
