//! The plans of all groups, in parts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use xds_cache::{GroupName, Origin};

use super::Facts;
use crate::emit::{Dialled, EnvoyFrame, envoy, grpc};
use crate::memo::fact::{Fact, Host, HostKey, InGroup, Value};
use crate::memo::reader::Reader;
use crate::memo::unit::Unit;
use crate::plan::{Plan, Planned, PlannedGroup, PlannedRoute, plan_while};
use crate::translate::Options;

/// Plans everything.
pub(super) fn plan(reader: &Reader<'_>, options: &Options, goes_on: &dyn Fn() -> bool) -> Facts {
    let Planned { groups, statuses, diagnostics } = plan_while(reader.documents(), options, goes_on);
    let mut facts = vec![(Fact::Doubts(Unit::Plan), Value::Doubts(diagnostics.into()))];
    for (group, PlannedGroup { definition, plan }) in groups {
        facts.push((Fact::Group(group.clone()), Value::Group(definition.map(Arc::new))));
        hosts(&group, &plan, options, &mut facts);
        let name = |name: &str| InGroup::new(&group, name);
        for (cluster, planned) in plan.clusters {
            facts.push((Fact::Cluster(name(&cluster)), Value::Cluster(planned.into())));
        }
        for (assignment, planned) in plan.assignments {
            if grpc::has_uneven_weights(&planned) {
                facts.push((Fact::Uneven(name(&assignment)), Value::Present));
            }
            facts.push((Fact::Assignment(name(&assignment)), Value::Assignment(planned.into())));
        }
        for (secret, planned) in plan.secrets {
            facts.push((Fact::Secret(name(&secret)), Value::Secret(planned.into())));
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
        facts.push((Fact::Routes(key), Value::Routes(routes.into())));
    }
}

fn host_key(table: &InGroup, is_misdirected: bool, namespace: &str, name: &str) -> HostKey {
    let InGroup { group, name: table } = table.clone();
    HostKey { group, table, is_misdirected, namespace: namespace.into(), name: Arc::from(name) }
}
