//! The plans of all groups, in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{GroupName, Origin};

use super::Facts;
use crate::emit::{Dialled, EnvoyFrame, envoy, grpc};
use crate::memo::fact::{Fact, Host, HostKey, InGroup, Maker, Stubs, TablePlace, Value};
use crate::memo::reader::Reader;
use crate::memo::unit::Unit;
use crate::model::{BackendSource, DocumentKey, EndpointSlice, Kind, ObjectRef, Spec};
use crate::plan::{Fault, Outline, Plan, Planned, PlannedGroup, Verdicts, plan_while};
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

/// Plans the mesh as a whole.
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
    let refused = reader.all(Fact::MeshRefused(None)).filter_map(|(fact, value)| {
        let (Fact::MeshRefused(Some(key)), Value::Fault(fault)) = (fact, value) else { return None };
        Some((key.clone(), (**fault).clone()))
    });
    let refused: BTreeMap<DocumentKey, Fault> = refused.collect();
    let taken = |group: &GroupName, port: u16| {
        let (first, _) = reader.all(Fact::GatewayPort(group.clone(), port, None)).next()?;
        let Fact::GatewayPort(_, _, name) = first else { return None };
        name.clone()
    };
    let planned = plan_while(&outlines.collect(), &verdicts, options, &refused, &taken, goes_on);
    let Planned { groups, statuses, diagnostics } = planned;
    let mut facts = vec![(Fact::Doubts(Unit::Plan), Value::Doubts(diagnostics.into()))];
    for (group, PlannedGroup { definition, plan }) in groups {
        let made = Fact::Makes(group.clone(), Some(Maker::Mesh));
        facts.push((made, Value::Group(definition.map(Arc::new))));
        hosts(&group, &plan, options, &|port| taken(&group, port).is_some(), &mut facts);
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
fn hosts(
    group: &GroupName,
    plan: &Plan,
    options: &Options,
    is_taken: &dyn Fn(u16) -> bool,
    facts: &mut Facts,
) {
    let mut found: BTreeMap<HostKey, Found<'_>> = BTreeMap::new();
    let table = |port: u16| InGroup::new(group, &envoy::mesh_table(port));
    for served in envoy::mesh(plan, options, is_taken) {
        let origin = served.origin;
        let listener = Value::Listener((served.listener.clone(), origin.clone()).into());
        facts.push((Fact::Listener(InGroup::new(group, &served.listener.name)), listener));
        let place = TablePlace::Mesh(served.port);
        facts.push((Fact::Table(table(served.port)), Value::Table(place, origin.clone())));
        for (frame, service) in served.hosts {
            let key = host_key(&table(served.port), &service.namespace, &service.name);
            found.insert(key, Found { frame: Some(frame), dialled: None, origin });
        }
    }
    for (service, dialled) in grpc::mesh_tables(plan) {
        let key = host_key(&table(service.port), &service.namespace, &service.name);
        let origin = &service.origin;
        let known = found.entry(key).or_insert(Found { frame: None, dialled: None, origin });
        (known.dialled, known.origin) = (Some(dialled), origin);
    }
    for (key, Found { frame, dialled, origin }) in found {
        let host = Host { frame, dialled, origin: origin.clone() };
        facts.push((Fact::Host(key), Value::Host(host.into())));
    }
    let asked: BTreeSet<u16> = plan.services_for_envoys().map(|service| service.port).collect();
    facts.extend(plan.services.iter().map(|service| {
        let key = host_key(&table(service.port), &service.namespace, &service.name);
        let stubs = Stubs {
            routes: service.routes.as_slice().into(),
            is_for_envoys: asked.contains(&service.port),
            is_implicit: service.is_implicit,
        };
        (Fact::Stubs(key), Value::Stubs(stubs.into()))
    }));
}

fn host_key(table: &InGroup, namespace: &str, name: &str) -> HostKey {
    let InGroup { group, name: table } = table.clone();
    HostKey { group, table, is_misdirected: false, namespace: namespace.into(), name: Arc::from(name) }
}
