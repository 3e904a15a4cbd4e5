//! The plans of all groups, in parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use xds_cache::{GroupName, Origin};

use super::Facts;
use crate::emit::{Dialled, EnvoyFrame, envoy, grpc};
use crate::memo::fact::{Fact, Host, HostKey, InGroup, Value};
use crate::memo::reader::Reader;
use crate::memo::unit::Unit;
use crate::model::{DocumentKey, EndpointSlice, Kind, ObjectRef, Spec};
use crate::plan::{Outline, Plan, Planned, PlannedGroup, PlannedRoute, Texts, plan_while};
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
    let mut planned = plan_while(&outlines.collect(), options, Texts::AtMost, goes_on);
    if planned.has_refused_text {
        planned = plan_while(reader.documents(), options, Texts::Exact, goes_on);
    }
    let Planned { groups, statuses, diagnostics, verdicts, has_refused_text: _ } = planned;
    let mut facts = vec![(Fact::Doubts(Unit::Plan), Value::Doubts(diagnostics.into()))];
    for (group, PlannedGroup { definition, plan, usages }) in groups {
        facts.push((Fact::Group(group.clone()), Value::Group(definition.map(Arc::new))));
        hosts(&group, &plan, options, &mut facts);
        let name = |name: &str| InGroup::new(&group, name);
        for (cluster, usage) in usages {
            facts.push((Fact::Usage(name(&cluster)), Value::Usage(usage)));
        }
        for certificate in plan.secrets.keys() {
            facts.push((Fact::Certificate(name(certificate)), Value::Present));
        }
    }
    for (key, parts) in statuses.finish() {
        facts.push((Fact::Standing(key), Value::Standing(parts.into())));
    }
    for (key, verdict) in verdicts {
        facts.push((Fact::Verdict(key), Value::Verdict(verdict.into())));
    }
    facts
}

/// What there is of a host.
struct Found<'p> {
    frame: Option<EnvoyFrame>,
    dialled: Option<Dialled>,
    origin: &'p Origin,
    routes: &'p [PlannedRoute],
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
                let (frame, routes) = (Some(frame), place.routes());
                found.insert(key, Found { frame, dialled: None, origin, routes });
            }
            facts.push((Fact::Table(name), Value::Table(tables, origin.clone())));
            tables += 1;
        }
    }
    let mut names: HashMap<&str, InGroup> = HashMap::new();
    for (place, dialled) in grpc::tables(plan) {
        let (key, origin, routes) = match place {
            grpc::Place::Host(port, chain, host) => {
                let name = names.entry(&chain.name).or_insert_with(|| table(&chain.name));
                (host_key(name, false, "", host.host.as_str()), &port.origin, host.routes.as_slice())
            }
            grpc::Place::Service(service) => {
                let name = table(&envoy::mesh_table(service.port));
                let key = host_key(&name, false, &service.namespace, &service.name);
                (key, &service.origin, service.routes.as_slice())
            }
        };
        let new = Found { frame: None, dialled: None, origin, routes };
        let known = found.entry(key).or_insert(new);
        (known.dialled, known.origin) = (Some(dialled), origin);
    }
    for (key, Found { frame, dialled, origin, routes }) in found {
        let host = Host { frame, dialled, origin: origin.clone() };
        facts.push((Fact::Host(key.clone()), Value::Host(host.into())));
        facts.push((Fact::Stubs(key), Value::Routes(routes.into())));
    }
}

fn host_key(table: &InGroup, is_misdirected: bool, namespace: &str, name: &str) -> HostKey {
    let InGroup { group, name: table } = table.clone();
    HostKey { group, table, is_misdirected, namespace: namespace.into(), name: Arc::from(name) }
}
