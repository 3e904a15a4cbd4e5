//! What units planned, put together again, for tests that look at plans.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use xds_cache::GroupName;
use xds_codec::{Codec, Diagnostic};

use super::Memo;
use super::fact::{Fact, HostKey, InGroup, Value};
use super::unit::Unit;
use crate::conditions::Conditions;
use crate::model::{DocumentKey, Kind};
use crate::plan::{
    Chain, Front, Host, PlannedGroup, PlannedRoute, Port, Verdicts, VirtualHost, certificate, plan_while,
};
use crate::translate::{Documents, Options};

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().expect("built in"));

/// What documents come to before it is written as resources.
pub(crate) struct Planned {
    /// By group.
    pub(crate) groups: BTreeMap<GroupName, PlannedGroup>,
    /// What became of the objects.
    pub(crate) conditions: Conditions,
    /// What is said of documents, some of it more than once.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Plans documents.
pub(crate) fn plan(documents: &Documents, options: &Options) -> Planned {
    let memo = Memo::default().next_of(&CODEC, documents, options, &|| true, &is_planning);
    let (memo, _) = memo.expect("nobody stops it");
    let mut verdicts = Verdicts::new();
    for (fact, value) in &memo.values {
        if let (Fact::Verdict(key), Value::Verdict(verdict)) = (&**fact, value) {
            verdicts.insert(key.clone(), (**verdict).clone());
        }
    }
    let mesh = plan_while(documents, &verdicts, options, &BTreeMap::new(), &|_, _| None, &|| true);
    let conditions = memo.outputs().conditions.clone();
    let mut planned = Planned { groups: mesh.groups, conditions, diagnostics: Vec::new() };
    for (fact, value) in &memo.values {
        planned.add(fact, value, documents);
    }
    planned
}

impl Planned {
    fn add(&mut self, fact: &Fact, value: &Value, documents: &Documents) {
        if let Value::Doubts(doubts) = value {
            self.diagnostics.extend(doubts.iter().cloned());
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
        let ports = &mut self.groups.entry(host.group.clone()).or_default().plan.ports;
        let mut chains = ports.iter_mut().flat_map(|port| &mut port.chains);
        let Some(chain) = chains.find(|chain| *chain.name == *host.table) else { return };
        chain.hosts.push(VirtualHost { host: Host::of(&host.name), routes: routes.to_vec() });
    }
}

/// Whether a unit writes no resources.
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
        | Unit::Plan
        | Unit::Group(_)
        | Unit::Rules(_)
        | Unit::Host(_)
        | Unit::Routes(_)
        | Unit::Backend(_)
        | Unit::Policies
        | Unit::Status(_) => true,
        Unit::Part(_)
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
