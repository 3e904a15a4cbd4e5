//! What an oracle is asked about a change, and what its answer means.
//!
//! It is asked about the resources for Envoys that a change adds or changes. [`change`](crate::change) asks, between the proposal and the
//! commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, changed_keys, differing};
use xds_cache::{GroupName, Groups, Profile, Resource, ResourceKey, ResourceType, Version};
use xds_codec::{Codec, Diagnostic, Severity};

use crate::oracle::Judgement;
use crate::warning::{place, warning};

/// A resource of a group.
pub(crate) type Asked = (GroupName, Arc<Resource>);

/// A resource that the oracle refuses.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) group: GroupName,
    pub(crate) resource: Arc<Resource>,
    /// What is wrong: a warning if it may be meant for gRPC clients.
    pub(crate) fault: Diagnostic,
}

/// The refused resources that are served, by group and identity.
pub(crate) type Served = BTreeMap<(GroupName, ResourceKey), Refused>;

/// The resources for Envoys that `after` has and `before` does not have in this version.
pub(crate) fn changed(before: &Groups, after: &Groups) -> Vec<Asked> {
    let mut asked = Vec::new();
    for name in differing(before, after) {
        let [old, new] = [before, after].map(|groups| groups.get(name).filter(|group| has_envoys(group)));
        let Some(group) = new else { continue };
        let mut keys = BTreeSet::new();
        changed_keys(old, new, Profile::Envoy, &mut keys);
        for key in keys {
            let Some(resource) = group.find(Profile::Envoy, &key) else { continue };
            let old = old.and_then(|group| group.find(Profile::Envoy, &key));
            if old.is_none_or(|old| old.version() != resource.version()) {
                asked.push((name.clone(), Arc::clone(resource)));
            }
        }
    }
    asked
}

/// All resources for Envoys.
pub(crate) fn all(groups: &Groups) -> impl Iterator<Item = Asked> {
    let groups = groups.iter().filter(|(_, group)| has_envoys(group));
    groups.flat_map(|(name, group)| {
        group.resources_for(Profile::Envoy).map(|(_, resource)| (name.clone(), Arc::clone(resource)))
    })
}

/// The resources as lists for the oracle: each version of a resource once, and no list with two of one name. Listeners of different
/// groups are apart, because they may have the same address.
pub(crate) fn lists(asked: &[Asked]) -> Vec<Vec<Arc<Resource>>> {
    let mut lists: Vec<Vec<Arc<Resource>>> = Vec::new();
    let mut listeners: BTreeMap<&GroupName, Vec<Arc<Resource>>> = BTreeMap::new();
    let mut versions: BTreeMap<&ResourceKey, Vec<Version>> = BTreeMap::new();
    for (group, resource) in asked {
        let versions = versions.entry(resource.key()).or_default();
        if versions.contains(&resource.version()) {
            continue;
        }
        let at = versions.len();
        versions.push(resource.version());
        let list = if resource.key().resource_type == ResourceType::Listener {
            listeners.entry(group).or_default()
        } else {
            lists.resize(lists.len().max(at + 1), Vec::new());
            let Some(list) = lists.get_mut(at) else { continue };
            list
        };
        list.push(Arc::clone(resource));
    }
    lists.extend(listeners.into_values());
    lists.retain(|list| !list.is_empty());
    lists
}

/// What is refused of what was asked, in each group that has it, at most [`MAX_REFUSED`].
pub(crate) fn refused(
    codec: &Codec,
    groups: &Groups,
    asked: &[Asked],
    judgement: &Judgement,
) -> Vec<Refused> {
    let whys: HashMap<(&ResourceKey, Version), &str> = judgement
        .refused
        .iter()
        .map(|(resource, why)| ((resource.key(), resource.version()), &**why))
        .collect();
    let refused = asked.iter().filter_map(|(name, resource)| {
        let why = whys.get(&(resource.key(), resource.version()))?;
        // The words may have any part of the resource.
        let why = match codec.has_secrets(resource) {
            true => "its words are not shown, because the resource has a secret",
            false => why,
        };
        let is_for_others = is_for_grpc(codec, groups, name, resource);
        let note = if is_for_others { " (ignore this if only gRPC clients use it)" } else { "" };
        let severity = if is_for_others { Severity::Warning } else { Severity::Error };
        let message = format!("{} refuses {}: {why}{note}", judgement.judge, resource.key());
        let fault = Diagnostic { severity, place: place(resource), ..warning(CODE, "", message) };
        Some(Refused { group: name.clone(), resource: Arc::clone(resource), fault })
    });
    refused.take(MAX_REFUSED).collect()
}

/// The warning that a change was not judged, or not all of it.
pub(crate) fn undecided(judgement: &Judgement) -> Option<Diagnostic> {
    let why = judgement.why.as_ref()?;
    let n = judgement.n_undecided;
    let message = format!(
        "the oracle has not judged {n} of the changed resources, which are published all the same: {why}"
    );
    Some(warning("oracle-undecided", "", message))
}

/// The same as warnings.
pub(crate) fn as_warnings<'r>(refused: impl IntoIterator<Item = &'r Refused>) -> Vec<Diagnostic> {
    let warning = |one: &Refused| Diagnostic { severity: Severity::Warning, ..one.fault.clone() };
    refused.into_iter().map(warning).collect()
}

/// Those that are not only warnings.
pub(crate) fn errors(refused: &[Refused]) -> Vec<Diagnostic> {
    refused.iter().map(|one| &one.fault).filter(|fault| fault.is_error()).cloned().collect()
}

/// Forgets what is not served any more, and adds what is served now.
pub(crate) fn update(served: &mut Served, groups: &Groups, more: Vec<Refused>) {
    let all = more.into_iter().map(|one| ((one.group.clone(), one.resource.key().clone()), one));
    served.extend(all);
    served.retain(|(name, key), one| {
        let now = groups.get(name).and_then(|group| group.find(Profile::Envoy, key));
        now.is_some_and(|now| now.version() == one.resource.version())
    });
    while served.len() > MAX_REFUSED {
        served.pop_last();
    }
}

/// The problem that refused resources are served; `None` if there are none.
pub(crate) fn problem(served: &Served) -> Option<String> {
    let first = served.values().next()?;
    let place = match &first.fault.place {
        place if place.file.is_empty() => String::new(),
        place => format!("{place}: "),
    };
    let more = match served.len() - 1 {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    Some(format!("what is served is refused by the oracle: {place}{}{more}", first.fault.message))
}

fn has_envoys(group: &EffectiveGroup) -> bool {
    group.definition.client != Some(Profile::Grpc)
}

/// Returns `true` for a resource that gRPC clients of the group reach too. What is generated is for one kind of clients.
fn is_for_grpc(codec: &Codec, groups: &Groups, name: &GroupName, resource: &Resource) -> bool {
    let Some(group) = groups.get(name) else { return false };
    let is_raw = group.resources.get(resource.key()).is_some();
    if !is_raw || group.definition.client == Some(Profile::Envoy) {
        return false;
    }
    let default = groups.get(&GroupName::default_group()).filter(|_| !name.is_default());
    let seen: BTreeMap<&ResourceKey, &Resource> = default
        .into_iter()
        .chain([group])
        .flat_map(|group| group.resources_for(Profile::Grpc))
        .map(|(key, resource)| (&**key, &**resource))
        .collect();
    codec.reached_by(seen.into_values(), Profile::Grpc).contains(resource.key())
}

/// The code of these faults; that of `validate --oracle`, too.
pub(crate) const CODE: &str = "refused-by-oracle";

/// The most refused resources that are reported.
pub(crate) const MAX_REFUSED: usize = 100;
