//! Unsupported policies: the served objects that they target, and their reports.
//!
//! The author of a policy for authentication or limits must learn that requests are served without it. So it is reported at the policy,
//! and as a condition at each of its targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_codec::{Diagnostic, Place, Severity};

use super::attach::selects;
use super::grants::namespace_labels;
use crate::conditions::{Condition, ConditionReason, ConditionType};
use crate::input::Placed;
use crate::model::{
    AllowedNamespaces, Document, DocumentKey, ForeignPolicy, Kind, PolicyTarget, Spec, TargetName,
};
use crate::read::left_out;

/// The objects that policies can target.
pub(crate) trait Targets<'d> {
    /// A document.
    fn document(&self, key: &DocumentKey) -> Option<&'d Document>;

    /// The documents of a kind, in order.
    fn of_kind(&self, kind: Kind) -> Box<dyn Iterator<Item = &'d Placed> + 'd>;

    /// Returns `true` if the object is served here. Objects of other controllers have no conditions.
    fn is_known(&self, key: &DocumentKey) -> bool;
}

/// A target, with a listener if the policy is only for that.
type AffectedTarget<'d> = (&'d DocumentKey, Option<&'d str>);

/// The names of policies or targets, some of which are shown.
#[derive(Default)]
struct NameList {
    first: Vec<String>,
    n: usize,
}

impl NameList {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.n += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push(name());
        }
    }

    /// The verb that follows the names.
    fn verb(&self) -> &'static str {
        if self.n == 1 { "is" } else { "are" }
    }

    /// `a, b, c and 7 more`.
    fn listed(&self) -> String {
        let first = self.first.join(", ");
        match self.n - self.first.len() {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }
}

/// The conditions from policies, by target.
pub(crate) type Affections<'d> = BTreeMap<AffectedTarget<'d>, Condition>;

/// Reports every policy in `diagnostics`, and returns the conditions of the targets.
pub(crate) fn affected<'d>(served: &impl Targets<'d>, diagnostics: &mut Vec<Diagnostic>) -> Affections<'d> {
    let mut search = Search { served, n_left: MAX_COMPARED };
    let mut affected: BTreeMap<AffectedTarget<'d>, NameList> = BTreeMap::new();
    // The first policy of each file and kind, and their number.
    let mut idle: BTreeMap<(&Arc<str>, &str), (&Place, usize)> = BTreeMap::new();
    for placed in served.of_kind(Kind::Policy) {
        let document = &*placed.document;
        let key = &document.key;
        let Spec::Policy(policy) = &document.spec else { continue };
        let mut found = BTreeSet::new();
        let (mut first, mut undecided) = (None, None);
        for target in &policy.targets {
            if !search.targets(&key.namespace, target, &mut found) {
                undecided.get_or_insert(&target.spot);
            }
            first = first.or_else(|| found.first().map(|_| &target.spot));
        }
        let mut named = NameList::default();
        for one in found {
            named.add(|| shown(&one));
            affected.entry(one).or_default().add(|| name_of(key, policy));
        }
        let kind = &policy.kind;
        let (spot, message) = match (first, undecided) {
            (Some(spot), _) => {
                let (served, is) = (named.listed(), named.verb());
                let message =
                    format!("policies of the kind {kind} are not supported: {served} {is} served without it");
                (spot, message)
            }
            (None, Some(spot)) => {
                let message = format!(
                    "policies of the kind {kind} are not supported, and too many select by labels to tell what this one targets"
                );
                (spot, message)
            }
            (None, None) => {
                let place = &document.place;
                let (first, n) = idle.entry((&place.file, kind)).or_insert((place, 0));
                *first = place.min(first);
                *n += 1;
                continue;
            }
        };
        diagnostics.push(document.diagnostic(
            Severity::Warning,
            ConditionReason::UnsupportedPolicy.diagnostic_code(),
            spot,
            message,
        ));
    }
    for ((_, kind), (place, n)) in idle {
        diagnostics.push(note(place, left_out(kind, n)));
    }
    let condition = |(target, policies): (AffectedTarget<'d>, NameList)| {
        let (policies, are) = (policies.listed(), policies.verb());
        let message = format!("{policies} {are} not supported: requests are served as if there were none");
        (target, Condition::fails(ConditionType::PolicyAffected, ConditionReason::UnsupportedPolicy, message))
    };
    affected.into_iter().map(condition).collect()
}

/// Looks for targets among served objects.
struct Search<'s, S> {
    served: &'s S,
    /// How many more comparisons of labels are allowed.
    n_left: usize,
}

impl<'d, S: Targets<'d>> Search<'_, S> {
    /// Adds the served targets. Returns `false` if the limit of comparisons was reached.
    fn targets(
        &mut self,
        own: &str,
        target: &'d PolicyTarget,
        found: &mut BTreeSet<AffectedTarget<'d>>,
    ) -> bool {
        let (namespaces, labels) = match &target.name {
            TargetName::Object { namespace, name } => {
                let namespace = namespace.as_deref().unwrap_or(own);
                let document = self.served.document(&DocumentKey::new(target.kind, namespace, name));
                let affected = document.and_then(|document| self.served_of(document, target));
                found.extend(affected);
                return true;
            }
            TargetName::Selector { namespaces, labels } => (namespaces, labels),
        };
        let mut last: Option<(&str, bool)> = None;
        let is_same = *namespaces == AllowedNamespaces::Same && !target.kind.is_cluster_scoped();
        for placed in self.served.of_kind(target.kind) {
            let key = &placed.document.key;
            if is_same && &*key.namespace != own {
                continue;
            }
            let Some(n_left) = self.n_left.checked_sub(1) else { return false };
            self.n_left = n_left;
            let is_selected = match last {
                Some((namespace, is_selected)) if namespace == &*key.namespace => is_selected,
                Some(_) | None => match namespaces {
                    AllowedNamespaces::Same | AllowedNamespaces::All => true,
                    AllowedNamespaces::None => false,
                    AllowedNamespaces::Selector(of) => {
                        let document = DocumentKey::new(Kind::Namespace, "", &key.namespace);
                        selects(of, &namespace_labels(self.served.document(&document), &key.namespace))
                    }
                },
            };
            last = Some((&key.namespace, is_selected));
            if is_selected && selects(labels, &placed.document.meta.labels) {
                let affected = self.served_of(&placed.document, target);
                found.extend(affected);
            }
        }
        true
    }

    /// The target in a document, if it exists and is served.
    fn served_of(&self, document: &'d Document, target: &'d PolicyTarget) -> Option<AffectedTarget<'d>> {
        let key = &document.key;
        let section = target.section.as_deref();
        let is_meant = |name: &str| section.is_none_or(|section| name == section);
        if let Spec::Service(service) = &document.spec {
            return service.ports.iter().any(|port| is_meant(&port.name)).then_some((key, None));
        }
        let mut listener = None;
        if let Spec::Gateway(gateway) = &document.spec {
            gateway.listeners.iter().find(|listener| is_meant(&listener.name))?;
            listener = section;
        }
        if let (Spec::Route(route), Some(section)) = (&document.spec, section) {
            route.rules.iter().find(|rule| rule.name.as_deref() == Some(section))?;
        }
        self.served.is_known(key).then_some((key, listener))
    }
}

/// Shows `Gateway default/edge` or `listener https of Gateway default/edge`.
fn shown((key, listener): &AffectedTarget<'_>) -> String {
    match listener {
        Some(listener) => format!("listener {listener} of {key}"),
        None => key.to_string(),
    }
}

/// Shows `SecurityPolicy default/guard`.
fn name_of(key: &DocumentKey, policy: &ForeignPolicy) -> String {
    format!("{} {}/{}", policy.kind, key.namespace, policy.name)
}

fn note(place: &Place, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Info,
        code: "unsupported-kind",
        place: place.clone(),
        path: String::new(),
        message,
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}

/// The number of names in a message. The others are only counted.
const MAX_NAMED: usize = 3;

/// The limit of comparisons of labels: enough for twenty selectors and ten thousand routes, and short compared with planning these.
const MAX_COMPARED: usize = 200_000;
