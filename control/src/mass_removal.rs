//! Loads that remove so much that an operator should confirm it: an empty directory is rarely meant.

use std::collections::BTreeMap;

use xds_cache::layer::Resources;
use xds_cache::{GroupName, Layer};
use xds_routes::Kind;
use xds_store::State;

use crate::accepted::Base;
use crate::differing::differing;
use crate::key::keys_below;
use crate::model::document::GroupedDocuments;

/// Why a load has to be confirmed: it removes everything of a group or of a kind, or more than `limit` of a large group.
pub(crate) fn mass_removal(
    layer: &Layer,
    documents: &GroupedDocuments,
    after: &Base,
    limit: f64,
) -> Option<String> {
    if n_gone(layer, documents, after) < MIN_GONE {
        return None;
    }
    let mut groups: BTreeMap<&GroupName, BTreeMap<&str, Count<'_>>> = BTreeMap::new();
    for (name, group) in &layer.groups {
        let left = after.layer.resources(name);
        for key in group.resources.keys() {
            let is_left = left.is_some_and(|left| left.contains_key(key));
            let kinds = groups.entry(name).or_default();
            kinds.entry(key.resource_type.slug()).or_default().add(&key.name, is_left);
        }
    }
    // Nothing that is served goes with policies that are not supported.
    for (key, document) in
        documents.iter().filter(|(key, _)| !(key.kind == Kind::Policy || key.kind.is_test()))
    {
        let kinds = groups.entry(&document.group).or_default();
        kinds.entry(key.kind.as_str()).or_default().add(&key.name, after.documents.contains_key(key));
    }
    groups.iter().find_map(|(group, kinds)| of_group(group, kinds, limit))
}

/// How many objects go. Costs what differs.
fn n_gone(layer: &Layer, documents: &GroupedDocuments, after: &Base) -> usize {
    let nothing = Resources::new();
    let of_groups = differing(&layer.groups, &after.layer.groups).map(|(_, old, new)| {
        let [old, new] = [old, new].map(|group| group.map_or(&nothing, |group| &group.resources));
        differing(old, new).filter(|(_, _, new)| new.is_none()).count()
    });
    let documents = differing(documents, &after.documents).filter(|(_, _, new)| new.is_none());
    of_groups.sum::<usize>() + documents.count()
}

fn of_group(group: &GroupName, kinds: &BTreeMap<&str, Count<'_>>, limit: f64) -> Option<String> {
    let n_before: usize = kinds.values().map(|count| count.n_before).sum();
    let n_gone: usize = kinds.values().map(|count| count.gone.len()).sum();
    if n_gone < MIN_GONE {
        return None;
    }
    let names: Vec<&str> = kinds.values().flat_map(|count| count.gone.iter().copied()).collect();
    let would = |what: String, names: &[&str]| Some(format!("the files would remove {what}{}", some(names)));
    if n_gone == n_before {
        return would(format!("all {n_before} objects of the group {group}"), &names);
    }
    let whole =
        kinds.iter().find(|(_, count)| count.gone.len() == count.n_before && count.n_before >= MIN_GONE);
    if let Some((kind, count)) = whole {
        return would(format!("everything of the kind {kind} in the group {group}"), &count.gone);
    }
    let is_large = n_before >= MIN_GROUP && n_gone as f64 / n_before as f64 > limit;
    let what =
        || format!("{n_gone} of {n_before} objects of the group {group}, more than {:.0} %", limit * 100.0);
    is_large.then(|| would(what(), &names)).flatten()
}

/// Why the first load of a run has to be confirmed: it gives nothing, and the files gave something when the server ran last.
/// A volume that is not mounted yet looks like that.
///
/// Anything else is taken as it is: who starts a server looks at it.
pub(crate) fn nothing_left(stored: &State, first: &Base) -> Option<String> {
    let is_empty =
        first.documents.is_empty() && first.layer.groups.values().all(|group| group.resources.is_empty());
    if !is_empty {
        return None;
    }
    let n_before: usize =
        ["file/", "file-document/"].into_iter().map(|prefix| keys_below(stored, prefix).count()).sum();
    (n_before >= MIN_GONE).then(|| {
        format!("the files contain no objects, but they contained {n_before} when the server last ran")
    })
}

/// The objects of a kind in a group.
#[derive(Default)]
struct Count<'a> {
    n_before: usize,
    gone: Vec<&'a str>,
}

impl<'a> Count<'a> {
    fn add(&mut self, name: &'a str, is_left: bool) {
        self.n_before += 1;
        if !is_left {
            self.gone.push(name);
        }
    }
}

/// The first names, in brackets.
fn some(names: &[&str]) -> String {
    let named = names.iter().take(MAX_NAMED).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED { format!(" ({named}, …)") } else { format!(" ({named})") }
}

/// The removal of one object is an edit.
const MIN_GONE: usize = 2;

/// The least number of objects of which a share counts. Smaller groups would pass the share with an ordinary edit.
const MIN_GROUP: usize = 5;

/// How many of the objects that would go are named.
const MAX_NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xds_cache::layer::LayerGroup;
    use xds_cache::{Resource, ResourceType};

    use super::*;

    fn layer(counts: &[(ResourceType, usize)]) -> Layer {
        let mut group = LayerGroup::default();
        for (resource_type, n) in counts {
            for n in 0..*n {
                let resource = Resource::plain(resource_type.clone(), &format!("r{n}"), "x");
                group.resources.insert(Arc::new(resource));
            }
        }
        Layer { groups: [(GroupName::new("g").unwrap(), group)].into_iter().collect() }
    }

    fn reason(before: &[(ResourceType, usize)], after: &[(ResourceType, usize)]) -> Option<String> {
        let after = Base { layer: Arc::new(layer(after)), documents: Arc::default() };
        mass_removal(&layer(before), &GroupedDocuments::new(), &after, 0.5)
    }

    #[test]
    fn everything_of_a_kind_or_most_of_a_large_group_is_a_mass() {
        use ResourceType::{Cluster, Listener, Secret};
        let group = [(Cluster, 2), (Secret, 20), (Listener, 1)];
        assert_eq!(
            reason(&group, &[(Secret, 20), (Listener, 1)]).as_deref(),
            Some("the files would remove everything of the kind clusters in the group g (\"r0\", \"r1\")")
        );
        assert_eq!(reason(&group, &[(Cluster, 1), (Secret, 20)]), None, "the only one of a kind is no mass");
        assert_eq!(reason(&group, &[(Cluster, 2), (Secret, 11), (Listener, 1)]), None);
        assert!(reason(&group, &[(Cluster, 1), (Secret, 9), (Listener, 1)]).is_some());
        let small = [(Cluster, 4)];
        assert_eq!(reason(&small, &[(Cluster, 1)]), None, "of four objects, three are soon gone");
        assert_eq!(
            reason(&small, &[]).as_deref(),
            Some("the files would remove all 4 objects of the group g (\"r0\", \"r1\", \"r2\", …)")
        );
        assert_eq!(reason(&[(Cluster, 1)], &[]), None);
    }
}
