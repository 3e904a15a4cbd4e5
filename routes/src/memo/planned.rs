//! Assembles plans from the results of units, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use xds_cache::{GroupName, NodeGroup};
use xds_codec::{Codec, Diagnostic};

use super::Memo;
use super::fact::{Fact, MeshPort, Value};
use super::key::{HostKey, InGroup};
use super::unit::Unit;
use crate::conditions::Conditions;
use crate::input::{Budget, Documents, Options};
use crate::model::{DocumentKey, Kind};
use crate::plan::{
    Chain, Front, Host, MeshService, Plan, PlannedRoute, Port, VirtualHost, certificate, mesh,
};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("built in"));

/// The plan of documents before it is written as resources.
pub(crate) struct Planned {
    /// By group.
    pub(crate) groups: BTreeMap<GroupName, PlannedGroup>,
    /// The conditions of the objects.
    pub(crate) conditions: Conditions,
    /// The diagnostics of documents, some of them more than once.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The plan of a group.
#[derive(Default)]
pub(crate) struct PlannedGroup {
    pub(crate) definition: Option<NodeGroup>,
    pub(crate) plan: Plan,
    /// The Services that Envoys get, by namespace, name and port.
    shown: BTreeSet<(String, String, u16)>,
}

impl PlannedGroup {
    /// The Services that Envoys get.
    pub(crate) fn services_for_envoys(&self) -> impl Iterator<Item = &MeshService> {
        let key = |one: &MeshService| (one.namespace.clone(), one.name.clone(), one.port);
        self.plan.services.iter().filter(move |service| self.shown.contains(&key(service)))
    }
}

/// Plans documents.
pub(crate) fn plan(documents: &Documents, options: &Options) -> Planned {
    let memo = Memo::default().next_of(
        1,
        &CODEC,
        documents,
        options,
        (&|| true, &Budget::unlimited()),
        &is_planning,
    );
    let (memo, _) = memo.expect("nobody stops it");
    let conditions = memo.outputs().conditions.clone();
    let mut planned = Planned { groups: BTreeMap::new(), conditions, diagnostics: Vec::new() };
    for (fact, value) in &memo.values {
        planned.add(fact, value, documents);
        if let (Fact::Routes(host), Value::Routes(routes)) = (&**fact, value) {
            let services = &mut planned.groups.entry(host.group().clone()).or_default().plan.services;
            services.extend(service(&memo, host, routes));
        }
    }
    let given = memo.units.values().filter_map(|done| done.given.as_ref());
    planned.diagnostics.extend(given.flat_map(|given| given.doubts.iter().cloned()));
    for PlannedGroup { plan, .. } in planned.groups.values_mut() {
        let key = |one: &MeshService| (one.namespace.clone(), one.name.clone(), one.port);
        plan.services.sort_by_key(key);
    }
    planned
}

impl Planned {
    fn add(&mut self, fact: &Fact, value: &Value, documents: &Documents) {
        if let (Fact::Group(group), Value::Group(definition)) = (fact, value) {
            self.groups.entry(group.clone()).or_default().definition = definition.as_deref().cloned();
        }
        if let Fact::Framed(table, Some(name)) = fact
            && let Some(port) = HostKey::of_service(table, name).mesh_port()
        {
            let group = self.groups.entry(table.group.clone()).or_default();
            group.shown.insert((name.0.to_string(), name.1.to_string(), port));
        }
        if let (Fact::Front(chain), Value::Front(front)) = (fact, value) {
            self.add_chain(chain, front);
        }
        if let (Fact::Routes(host), Value::Routes(routes)) = (fact, value) {
            self.add_host(host, routes);
        }
        let (Fact::Cluster(of) | Fact::Assignment(of) | Fact::Trusted(of, _) | Fact::Certificate(of)) = fact
        else {
            return;
        };
        let plan = &mut self.groups.entry(of.group.clone()).or_default().plan;
        let name = of.name.to_string();
        if let Value::Cluster(cluster) = value {
            plan.clusters.insert(name, (**cluster).clone());
        } else if let Value::Assignment(assignment) = value {
            plan.assignments.insert(name, (**assignment).clone());
        } else if let Value::Secret(secret) = value {
            plan.secrets.insert(name, (**secret).clone());
        } else if let Fact::Certificate(_) = fact {
            let (namespace, secret) = name.split_once('/').expect("a namespace");
            let document = &documents[&DocumentKey::new(Kind::Secret, namespace, secret)].document;
            plan.secrets.insert(name.clone(), certificate(document).expect("one that is checked"));
        }
    }

    fn add_chain(&mut self, chain: &InGroup, front: &Front) {
        let ports = &mut self.groups.entry(chain.group.clone()).or_default().plan.ports;
        let name: Vec<&str> = chain.name.splitn(4, '/').take(3).collect();
        let name = name.join("/");
        if !ports.iter().any(|port| port.name == name) {
            let origin = front.origin.clone();
            ports.push(Port {
                name: name.clone(),
                address: None,
                port: front.port,
                chains: Vec::new(),
                origin,
            });
        }
        let Front { tls, is_programmed, .. } = front.clone();
        let chain = Chain { name: chain.name.to_string(), tls, is_programmed, hosts: Vec::new() };
        let port = ports.iter_mut().find(|port| port.name == name).expect("just added");
        port.chains.push(chain);
        let place = |chain: &Chain| front.listeners.iter().position(|(key, _)| *key.chain == *chain.name);
        port.chains.sort_by_key(place);
    }

    fn add_host(&mut self, host: &HostKey, routes: &[PlannedRoute]) {
        let ports = &mut self.groups.entry(host.group().clone()).or_default().plan.ports;
        let mut chains = ports.iter_mut().flat_map(|port| &mut port.chains);
        let Some(chain) = chains.find(|chain| *chain.name == *host.table.name) else { return };
        chain.hosts.push(VirtualHost { host: Host::of(&host.name), routes: routes.to_vec() });
    }
}

/// A Service at a port of the mesh; `None` for a host of a chain.
fn service(memo: &Memo, host: &HostKey, routes: &[PlannedRoute]) -> Option<MeshService> {
    let (table, name) = host.service()?;
    let find = |fact: Fact| match memo.values.get(&fact) {
        Some(Value::Service(found)) => Some(found),
        _ => None,
    };
    let own = find(Fact::MeshService(table.clone(), Some(name.clone())));
    let found = own.or_else(|| find(Fact::Framed(table, Some(name))))?;
    let MeshPort { has_short_name, is_lowest_port, is_implicit, origin, .. } = (**found).clone();
    Some(MeshService {
        namespace: host.namespace.to_string(),
        name: host.name.to_string(),
        port: host.mesh_port()?,
        hosts: mesh::hosts(&host.namespace, &host.name, has_short_name),
        routes: routes.to_vec(),
        is_lowest_port,
        is_implicit,
        is_borrowed: own.is_none(),
        origin,
    })
}

/// Returns `true` if a unit writes no resources.
fn is_planning(unit: &Unit) -> bool {
    match unit {
        Unit::Outline(_)
        | Unit::Fallbacks
        | Unit::Gateways
        | Unit::Attachment(_)
        | Unit::Ledger
        | Unit::Bids(_)
        | Unit::Kinds(_)
        | Unit::Implicit(_)
        | Unit::Split(_)
        | Unit::Rules(_)
        | Unit::Host(_)
        | Unit::Wishes(_)
        | Unit::Names(..)
        | Unit::Port(..)
        | Unit::Mesh(..)
        | Unit::Borrow(..)
        | Unit::Loan(_)
        | Unit::Group(_)
        | Unit::Backend(_)
        | Unit::Policies
        | Unit::Status(_) => true,
        Unit::MeshTable(..)
        | Unit::Part(_)
        | Unit::Listener(_)
        | Unit::Table(_)
        | Unit::Dialled(_)
        | Unit::GrpcRoot(_)
        | Unit::GrpcCluster(_)
        | Unit::Cluster(_)
        | Unit::Assignment(_)
        | Unit::Secret(_)
        | Unit::Unavailable(..) => false,
    }
}
