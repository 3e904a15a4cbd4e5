//! The context of units, and functions that many of them use: to request clusters and to write resources.

use std::borrow::Cow;
use std::sync::Arc;

use xds_cache::{GroupName, Origin, Profile, Resource};
use xds_codec::{Diagnostic, Place, Severity};

use crate::emit::{self, Emitted, UNAVAILABLE};
use crate::encode::{Encoder, REFUSED, RefusedResource};
use crate::input::Options;
use crate::memo::fact::{Fact, Value};
use crate::memo::key::InGroup;
use crate::memo::made::{Clients, Given, Made, Written};
use crate::memo::names::NamePool;
use crate::memo::reader::Reader;
use crate::plan::{Assignment, Cluster, Discovery, Plan, UpstreamTls};

/// Some of the facts that a unit writes.
pub(super) type Facts = Vec<(Fact, Value)>;

/// The context of a unit.
pub(crate) struct Context<'r, 'm, 'c> {
    pub(super) reader: &'r Reader<'m>,
    pub(super) names: &'r NamePool,
    pub(super) encoder: &'r mut Encoder<'c>,
    pub(super) options: &'r Options,
}

impl<'m> Context<'_, 'm, '_> {
    /// Writes resources. If the codec refuses one, the previous one stays.
    pub(super) fn write(&mut self, group: &GroupName, clients: Clients, emitted: &[Emitted<'_>]) -> Made {
        let last = self.reader.last();
        let made = emitted.iter().map(|emitted| self.encoder.resource(emitted, last)).collect();
        written(group, clients, made)
    }

    pub(super) fn planned(&self, name: &InGroup) -> Option<&'m Cluster> {
        let Some(Value::Cluster(cluster)) = self.reader.value(Fact::Cluster(name.clone())) else {
            return None;
        };
        Some(cluster)
    }

    pub(super) fn assigned(&self, name: &InGroup) -> Option<&'m Assignment> {
        let Some(Value::Assignment(assignment)) = self.reader.value(Fact::Assignment(name.clone())) else {
            return None;
        };
        Some(assignment)
    }

    /// A plan with only these clusters of a group, and the clusters that they lead to.
    pub(super) fn clusters<'n>(&self, group: &GroupName, names: impl IntoIterator<Item = &'n str>) -> Plan {
        let mut plan = Plan::default();
        let mut open: Vec<&str> = names.into_iter().collect();
        while let Some(name) = open.pop() {
            if plan.clusters.contains_key(name) {
                continue;
            }
            let Some(cluster) = self.planned(&self.names.get(group, name)) else { continue };
            if let Discovery::Aggregate(members) = &cluster.discovery {
                open.extend(members.iter().map(String::as_str));
            }
            plan.clusters.insert(name.to_owned(), cluster.clone());
        }
        plan
    }

    /// The origin of the cluster without endpoints: the first object that names it. `None` if there is none.
    pub(super) fn unavailable_for(&self, group: &GroupName, profile: Profile) -> Option<&'m Origin> {
        let first = self.reader.all(Fact::Need(group.clone(), profile, None)).next();
        first.and_then(|(_, value)| origin(value))
    }

    /// The origin of the assignment without endpoints, if no object names the cluster.
    pub(super) fn nowhere_for(&self, group: &GroupName, profile: Profile) -> Option<&'m Origin> {
        let mut clusters = self.reader.all(Fact::Nowhere(group.clone(), profile, None));
        let (_, value) = match profile {
            Profile::Envoy => clusters.next()?,
            Profile::Grpc => clusters.last()?,
        };
        origin(value)
    }

    /// The endpoints of a cluster, for one or both kinds of clients.
    pub(super) fn assignment(mut self, name: &InGroup) -> Option<Made> {
        let cluster = self.planned(name)?;
        let is_eds = matches!(&cluster.discovery, Discovery::Eds { .. });
        let is_used = !cluster.protocols.is_empty() && cluster.tls != Some(UpstreamTls::Invalid);
        let is_ours = |profile| {
            *name.name == *UNAVAILABLE
                && (self.unavailable_for(&name.group, profile).is_some()
                    || self.nowhere_for(&name.group, profile).is_some())
        };
        let for_envoys = is_eds && is_used && !is_ours(Profile::Envoy);
        let for_grpc = self.reader.has(Fact::GrpcAssigned(name.clone())) && !is_ours(Profile::Grpc);
        let clients = match (for_envoys, for_grpc) {
            (true, true) => Clients::All,
            (true, false) => Clients::Envoys,
            (false, true) => Clients::Grpc,
            (false, false) => return Some(Made::new()),
        };
        // Without an assignment, the first call would fail only after 15 seconds.
        let none = || Assignment { localities: Vec::new(), origin: cluster.origin.clone() };
        let assignment = self.assigned(name).map_or_else(|| Cow::Owned(none()), Cow::Borrowed);
        let origin = assignment.origin.clone();
        Some(self.write(&name.group, clients, &[emit::assignment(&name.name, assignment, &origin)]))
    }

    /// The cluster without endpoints, or only its assignment.
    pub(super) fn unavailable(mut self, group: &GroupName, profile: Profile) -> Option<Made> {
        let clients = match profile {
            Profile::Envoy => Clients::Envoys,
            Profile::Grpc => Clients::Grpc,
        };
        let Some(origin) = self.unavailable_for(group, profile) else {
            let origin = self.nowhere_for(group, profile)?;
            return Some(self.write(group, clients, &[emit::no_endpoints(origin)]));
        };
        let cluster = match profile {
            Profile::Envoy => emit::envoy::unavailable(origin),
            Profile::Grpc => emit::grpc::unavailable(origin),
        };
        Some(self.write(group, clients, &[cluster, emit::no_endpoints(origin)]))
    }
}

/// The new resources. A refused one is replaced by the previous one, and reported.
pub(super) fn written(
    group: &GroupName,
    clients: Clients,
    made: Vec<Result<Arc<[Arc<Resource>]>, RefusedResource>>,
) -> Made {
    let (mut resources, mut doubts) = (Vec::new(), Vec::new());
    for made in made {
        match made {
            Ok(made) => resources.extend(made.iter().cloned()),
            Err(RefusedResource { what, diagnostics, kept }) => {
                doubts.push(refused(&what, kept.is_empty(), &diagnostics));
                resources.extend(kept);
            }
        }
    }
    let written = Written { group: group.clone(), clients, resources: resources.into() };
    Made { facts: Vec::new(), given: Given { written: Some(written), doubts: doubts.into() } }
}

fn origin(value: &Value) -> Option<&Origin> {
    let Value::Origin(origin) = value else { return None };
    Some(origin)
}

/// Reports a resource that the codec refuses. That is a bug, so the text must help to find it.
fn refused(what: &str, is_missing: bool, faults: &[Diagnostic]) -> Diagnostic {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Diagnostic {
        severity: Severity::Warning,
        code: REFUSED,
        place: Place { file: "".into(), line: 0, column: 0 },
        path: String::new(),
        message: format!(
            "{what} cannot be generated, which is a fault of xds-server, and {}: {}",
            if is_missing { "is missing" } else { "stays as it was" },
            faults.join("; ")
        ),
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}
