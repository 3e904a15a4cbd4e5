//! Checks of the groups that are about to be served together.
//!
//! References need not match exactly (pitfall 74): an unused resource is fine, and a missing one is a warning, because it may come
//! later or from elsewhere. With `--strict`, both kinds of warnings are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::{self, EffectiveGroup};
use xds_cache::status::StreamEntry;
use xds_cache::{
    GroupName, Groups, MissingReference, MissingReferences, Node, Origin, Profile, Resource, ResourceKey,
    StatusBoard,
};
use xds_codec::{Diagnostic, Severity};

use crate::missing;
use crate::warning::{place, warning};

/// Doubts about `after`: of the resources that `counts` takes in the `touched` groups, and what their change made doubtful
/// elsewhere. A reference to what is `unusable` is none: that it is broken is reported where it stands. `missing` are the missing references
/// of `before`.
pub fn doubts(
    (before, missing): (&Groups, &MissingReferences),
    after: &Groups,
    touched: &BTreeSet<&GroupName>,
    unusable: &BTreeSet<ResourceKey>,
    board: &StatusBoard,
    counts: impl Fn(&Resource) -> bool,
) -> Vec<Diagnostic> {
    let mut doubts = Vec::new();
    let after_missing = missing.changed(before, after);
    let is_of_change = |one: &&MissingReference| {
        let from = after.get(&one.group).and_then(|group| group.resources.get(&one.from));
        touched.contains(&one.group) && from.is_some_and(|from| counts(from))
    };
    let is_reported = |one: &&MissingReference| !unusable.contains(&one.to);
    for name in touched {
        if let Some(group) = after.get(*name) {
            let of_group = after_missing.of_group(name).filter(is_of_change).filter(is_reported);
            doubts.extend(of_group.take(MAX_DOUBTS).flat_map(|one| missing::warnings(after, one)));
            doubts.extend(conflicts(after, group, board));
        }
    }
    // Groups change with what their documents give, too.
    let mut changed = layer::differing(before, after);
    changed.extend(touched);
    for name in &changed {
        let Some(group) = after.get(*name) else { continue };
        doubts.extend(shadows(group, &counts));
        if !touched.contains(name) {
            doubts.extend(conflicts(after, group, board));
        }
    }
    let news = after_missing.news(missing).filter(|one| !is_of_change(one)).filter(is_reported);
    doubts.extend(news.take(MAX_DOUBTS).flat_map(|one| missing::warnings(after, one)));
    doubts.truncate(MAX_DOUBTS);
    doubts
}

/// The `touched` groups that are new, or select other nodes now, and that no connected node is in. They may come later, so this is
/// never more than a warning.
pub(crate) fn nodeless(
    before: &Groups,
    after: &Groups,
    touched: &BTreeSet<&GroupName>,
    board: &StatusBoard,
) -> Vec<Diagnostic> {
    let selector =
        |groups: &Groups, name: &GroupName| groups.get(name).map(|group| group.definition.selector.clone());
    let mut made: BTreeMap<&GroupName, _> = BTreeMap::new();
    for name in touched.iter().filter(|name| !name.is_default()) {
        let (old, new) = (selector(before, name), selector(after, name));
        if let Some(new) = new.filter(|new| old.as_ref() != Some(new)) {
            made.insert(name, new);
        }
    }
    if made.is_empty() {
        return vec![];
    }
    for stream in board.streams() {
        stream.with(|status| made.retain(|_, selector| !selector.selects(&status.info.node)));
        if made.is_empty() {
            return vec![];
        }
    }
    let doubt = |name: &GroupName| {
        let message = format!(
            "no connected node is in the group {name}; if one should be, compare the selector with what `xds-server nodes` shows"
        );
        warning("group-without-nodes", "", message)
    };
    made.into_keys().map(doubt).collect()
}

/// Makes errors of doubts.
pub fn as_errors(doubts: Vec<Diagnostic>) -> Vec<Diagnostic> {
    doubts.into_iter().map(|doubt| Diagnostic { severity: Severity::Error, ..doubt }).collect()
}

/// The resources of a group that hide one which documents give, if `counts` takes one of the two.
fn shadows(group: &EffectiveGroup, counts: impl Fn(&Resource) -> bool) -> Vec<Diagnostic> {
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    let generated = group.generated.values().flat_map(|generated| {
        group.resources.iter().filter_map(|(key, raw)| Some((key, raw, generated.get(key)?)))
    });
    for (key, raw, generated) in generated {
        if found.len() >= MAX_DOUBTS || !(counts(raw) || counts(generated)) || !told.insert(key) {
            continue;
        }
        let (here, there) = match (raw.origin(), generated.origin()) {
            (Origin::Api, Origin::File { .. }) => (place(generated), None),
            (_, Origin::File { .. }) => (place(raw), Some(place(generated))),
            (_, Origin::Api) => (place(raw), None),
        };
        let message = format!(
            "{key} of {} from {} replaces the one that is generated from the document of {}",
            group.definition.name,
            raw.origin(),
            generated.origin()
        );
        let doubt = warning("hides-generated", "", message);
        found.push(Diagnostic { place: here, related: there.into_iter().collect(), ..doubt });
    }
    found
}

/// The groups of equal priority that have a resource in common with `group` and a connected node too (D3).
pub(crate) fn conflicts(groups: &Groups, group: &EffectiveGroup, board: &StatusBoard) -> Vec<Diagnostic> {
    if group.definition.name.is_default() {
        return vec![];
    }
    let streams = board.streams();
    let member = |stream: &Arc<StreamEntry>| {
        stream.with(|status| {
            let node = &status.info.node;
            group.definition.selector.selects(node).then(|| Arc::clone(node))
        })
    };
    let members: Vec<Arc<Node>> = streams.iter().filter_map(member).collect();
    if members.is_empty() {
        return vec![];
    }
    groups
        .iter()
        .filter(|(name, rival)| {
            !name.is_default()
                && **name != group.definition.name
                && rival.definition.priority == group.definition.priority
        })
        .filter_map(|(name, rival)| {
            let node = members.iter().find(|node| rival.definition.selector.selects(node))?;
            let key = Profile::ALL.iter().find_map(|profile| {
                rival.resources_for(*profile).map(|(key, _)| key).find(|key| group.has(*profile, key))
            })?;
            let own = &group.definition.name;
            let message = format!(
                "the groups {own} and {name} have equal priority and both have {key} for node {:?}; \
                 that of {} is served",
                node.id,
                own.min(name)
            );
            Some(warning("priority-conflict", "priority", message))
        })
        .collect()
}

/// The most warnings that one change reports.
const MAX_DOUBTS: usize = 100;

#[cfg(test)]
mod tests {
    use xds_cache::layer::{Generated, GeneratedGroup, LayerGroup, Resources, merge};
    use xds_cache::{Layer, Reference, ResourceDraft, ResourceType};

    use super::*;

    fn cluster(name: &str) -> ResourceKey {
        ResourceKey { resource_type: ResourceType::Cluster, name: name.into() }
    }

    fn resource(key: ResourceKey, references: &[&str]) -> Resources {
        let reference = |name: &&str| Reference { to: cluster(name).into(), path: "here".into() };
        let draft = ResourceDraft {
            references: references.iter().map(reference).collect(),
            ..Resource::plain(key.resource_type.clone(), &key.name, "1").to_draft()
        };
        [Arc::new(Resource::new(draft))].into_iter().collect()
    }

    fn route(name: &str, references: &[&str]) -> Resources {
        resource(
            ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() },
            references,
        )
    }

    #[test]
    fn a_reference_must_lead_somewhere_for_the_clients_that_get_it() {
        let mut raw = route("raw", &["of-grpc", "of-nobody"]);
        raw.extend(route("shadowed", &[]).values().cloned());
        let group = LayerGroup { resources: raw, ..LayerGroup::default() };
        let base = Layer { groups: [(GroupName::default_group(), group)].into_iter().collect() };
        let mut of_envoy = route("generated", &["of-grpc"]);
        of_envoy.extend(route("shadowed", &["of-nobody"]).values().cloned());
        let mut of_grpc = route("generated", &["of-grpc"]);
        of_grpc.extend(resource(cluster("of-grpc"), &[]).values().cloned());
        let profiles = [(Profile::Envoy, of_envoy), (Profile::Grpc, of_grpc)].into();
        let group = GeneratedGroup { definition: None, profiles };
        let generated = Generated::from_iter([(GroupName::default_group(), group)]);
        let before = merge(&base, &Layer::default(), &generated);
        let told = |before: &Groups, after: &Groups, counts: bool| {
            let touched: BTreeSet<&GroupName> = after.keys().collect();
            let missing = MissingReferences::default().changed(&Groups::new(), before);
            let before = (before, &missing);
            let doubts = doubts(before, after, &touched, &BTreeSet::new(), &StatusBoard::new(), |_| counts);
            let first = |doubt: Diagnostic| doubt.message.split(": ").next().map(str::to_owned);
            doubts.into_iter().filter_map(first).collect::<Vec<_>>()
        };
        let of_nobody =
            "RouteConfiguration \"raw\" of default names Cluster \"of-nobody\", which does not exist";
        let shadowed = "RouteConfiguration \"shadowed\" of default from api replaces the one that is generated from the document of api";
        // Generated resources may name others that do not exist: it is not judged.
        assert_eq!(told(&Groups::new(), &before, true), [of_nobody, shadowed]);
        // A resource that goes for one kind of client is missed by those that name it.
        let after = merge(&base, &Layer::default(), &Generated::new());
        let of_raw = "RouteConfiguration \"raw\" of default names Cluster \"of-grpc\", which does not exist";
        assert_eq!(told(&before, &after, false), [of_raw]);
    }
}
