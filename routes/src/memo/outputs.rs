//! The outputs of all units, updated along with the facts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{fmt, mem, ptr};

use xds_cache::layer::{Generated, GeneratedGroup};
use xds_cache::{GroupName, NodeGroup, OrdMap, Profile, Resource, ResourceKey, filling};
use xds_codec::{Diagnostic, Place, Severity};

use super::fact::{Fact, Value};
use super::made::{Given, Written};
use crate::conditions::{Conditions, GrpcFeature};
use crate::model::DocumentKey;

/// The outputs of all units together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) groups: Generated,
    pub(crate) conditions: Conditions,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) unsupported: BTreeMap<GrpcFeature, usize>,
    /// The differences so far; empty between changes, so that a copy costs nothing.
    delta: Delta,
    /// The changes of resources that are still to be applied.
    pending: BTreeMap<GroupName, BTreeMap<Profile, Pending>>,
}

/// New resources by key; `None` for a removed one.
type Pending = BTreeMap<Arc<ResourceKey>, Option<Arc<Resource>>>;

/// The differences from the previous translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// The objects whose status differs.
    pub conditions: BTreeSet<DocumentKey>,
}

/// The diagnostics of documents, in the order of files and lines, without duplicates. A copy shares its contents with the
/// original.
#[derive(Clone, Default)]
pub struct Diagnostics(OrdMap<Order, Told>);

/// The sort key of a diagnostic.
type Order = (Place, String, Severity, &'static str, String);

#[derive(Clone, Debug)]
struct Told {
    diagnostic: Arc<Diagnostic>,
    /// The number of units that report it.
    n: usize,
}

impl Diagnostics {
    /// All diagnostics.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.values().map(|told| &*told.diagnostic)
    }

    /// The number of diagnostics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if both are the same shared value, so that no warning has appeared or disappeared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// Returns `true` if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, diagnostic: &Diagnostic) {
        let order = order(diagnostic);
        let n = self.0.get(&order).map_or(0, |told| told.n) + 1;
        self.0.insert(order, Told { diagnostic: Arc::new(diagnostic.clone()), n });
    }

    fn remove(&mut self, diagnostic: &Diagnostic) {
        let order = order(diagnostic);
        let Some(told) = self.0.get(&order).cloned() else { return };
        match told.n {
            0 | 1 => self.0.remove(&order),
            n => self.0.insert(order, Told { n: n - 1, ..told }),
        };
    }
}

impl<'d> IntoIterator for &'d Diagnostics {
    type Item = &'d Diagnostic;
    type IntoIter = Box<dyn Iterator<Item = &'d Diagnostic> + 'd>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl PartialEq for Diagnostics {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn order(one: &Diagnostic) -> Order {
    (one.place.clone(), one.path.clone(), one.severity, one.code, one.message.clone())
}

impl Outputs {
    /// Records that a fact has a new value.
    #[expect(clippy::too_many_lines, reason = "a line for each kind of fact")]
    pub(super) fn change(&mut self, fact: &Fact, old: Option<&Value>, new: Option<&Value>) {
        match fact {
            Fact::Group(name) => {
                let Some(Value::Group(definition)) = new else {
                    self.groups.remove(name);
                    return;
                };
                self.define(name, definition.as_deref().cloned());
            }
            Fact::Status(key) => {
                match new {
                    Some(Value::Status(status)) => {
                        self.conditions.objects.insert(key.clone(), Arc::clone(status))
                    }
                    _ => self.conditions.objects.remove(key),
                };
                self.delta.conditions.insert(key.clone());
            }
            Fact::Unsupported(_) => {
                for (feature, n) in unsupported(new) {
                    *self.unsupported.entry(*feature).or_default() += n;
                }
                for (feature, n) in unsupported(old) {
                    let sum = self.unsupported.entry(*feature).or_default();
                    *sum = sum.saturating_sub(*n);
                }
                self.unsupported.retain(|_, n| *n > 0);
            }
            Fact::Document(_)
            | Fact::Outline(_)
            | Fact::Outlines(_)
            | Fact::HasGateways
            | Fact::Gateway(_)
            | Fact::Natives
            | Fact::Throng
            | Fact::Unnamed
            | Fact::ImplicitTaken(_)
            | Fact::GatewayPort(..)
            | Fact::Front(_)
            | Fact::Requests(_)
            | Fact::Calls(_)
            | Fact::Load(_)
            | Fact::Refused(_)
            | Fact::MeshRefused(_)
            | Fact::Admitted(_)
            | Fact::Attached(_)
            | Fact::On(..)
            | Fact::Bids(_)
            | Fact::Rivals(_)
            | Fact::Within(..)
            | Fact::Lost(..)
            | Fact::Off(..)
            | Fact::Asks(..)
            | Fact::Makes(..)
            | Fact::Faults(_)
            | Fact::Parents(_)
            | Fact::Split(_)
            | Fact::Rival(..)
            | Fact::Divided(..)
            | Fact::Wish(..)
            | Fact::WishedPort(..)
            | Fact::Namesake(..)
            | Fact::Consumer(..)
            | Fact::Ports(_)
            | Fact::Names(..)
            | Fact::Shown(..)
            | Fact::GatewayName(..)
            | Fact::MeshService(..)
            | Fact::Framed(..)
            | Fact::Loan(_)
            | Fact::LostPort(..)
            | Fact::Ancestors(..)
            | Fact::Named(..)
            | Fact::Affected(_)
            | Fact::Slice(..)
            | Fact::Grant(..)
            | Fact::Policy(..)
            | Fact::Verdict(_)
            | Fact::Rules(_)
            | Fact::Fallback(_)
            | Fact::Use(..)
            | Fact::Certificate(_)
            | Fact::Trusted(..)
            | Fact::Standing(_)
            | Fact::Misdirected(_)
            | Fact::Routes(_)
            | Fact::Listener(_)
            | Fact::Table(_)
            | Fact::Cluster(_)
            | Fact::Assignment(_)
            | Fact::Uneven(_)
            | Fact::Part(..)
            | Fact::Hosts(_)
            | Fact::Hides(..)
            | Fact::Assembled(_)
            | Fact::Need(..)
            | Fact::Nowhere(..)
            | Fact::GrpcUse(..)
            | Fact::GrpcReach(..)
            | Fact::GrpcAssigned(_)
            | Fact::Loss(..) => {}
        }
    }

    /// Records that a unit has a new result.
    pub(super) fn give(&mut self, old: &Given, new: &Given) {
        self.write(old.written.as_ref(), new.written.as_ref());
        if old.doubts != new.doubts {
            new.doubts.iter().for_each(|doubt| self.diagnostics.add(doubt));
            old.doubts.iter().for_each(|doubt| self.diagnostics.remove(doubt));
        }
    }

    fn define(&mut self, name: &GroupName, definition: Option<NodeGroup>) {
        let profiles = || [Profile::Envoy, Profile::Grpc].map(|profile| (profile, Default::default())).into();
        let new = || GeneratedGroup { definition: None, profiles: profiles() };
        let mut group = self.groups.get(name).cloned().unwrap_or_else(new);
        group.definition = definition;
        self.groups.insert(name.clone(), group);
    }

    /// Records that resources are replaced. A unit may generate a resource that another unit generated before.
    fn write(&mut self, old: Option<&Written>, new: Option<&Written>) {
        for written in old.into_iter().chain(new) {
            let pending = self.pending.entry(written.group.clone()).or_default();
            for profile in written.clients.profiles() {
                let pending = pending.entry(*profile).or_default();
                for resource in &*written.resources {
                    let key = Arc::clone(resource.shared_key());
                    match new.is_some_and(|new| ptr::eq(new, written)) {
                        true => _ = pending.insert(key, Some(Arc::clone(resource))),
                        false => _ = pending.entry(key).or_insert(None),
                    }
                }
            }
        }
    }

    /// Replaces resources. Equal ones stay the same shared value. Returns the differences since the last call.
    pub(super) fn finish(&mut self) -> Delta {
        for (name, pending) in mem::take(&mut self.pending) {
            // A removed group has no resources.
            let Some(group) = self.groups.get_mut(&name) else { continue };
            for (profile, pending) in pending {
                let resources = group.profiles.entry(profile).or_default();
                for (key, resource) in filling(pending.iter()) {
                    match resource {
                        None => _ = resources.remove(key),
                        Some(resource) if resources.get(key) == Some(resource) => {}
                        Some(resource) => _ = resources.insert(Arc::clone(resource)),
                    }
                }
            }
        }
        mem::take(&mut self.delta)
    }
}

fn unsupported(value: Option<&Value>) -> &[(GrpcFeature, usize)] {
    let Some(Value::Unsupported(counts)) = value else { return &[] };
    counts
}
