//! The report of a dry run about clients: the clients that a change would concern, and the phases in which they would get it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::layer::{changed_keys, differing};
use xds_cache::status::StreamEntry;
use xds_cache::{
    AHEAD, Changes, GroupName, Groups, Phase, Preview, Profile, Publisher, ResourceKey, ResourceType,
    StatusBoard, TypeTable, View, ViewChange, ViewKey,
};
use xds_routes::Documents;
use xds_session::Limits;

use crate::acks::{MAX_LISTED, view_key_of_group};
use crate::model::{GroupPhases, GroupRequests};
use crate::requests::Comparison;

/// The resources that clients of one group and kind have, and those that they would get.
#[derive(Debug)]
pub(crate) struct ClientPreview {
    group: GroupName,
    profile: Profile,
    preview: Preview,
}

/// The ids of the connected nodes that subscribe to a resource which differs between two states of the groups: in order, each
/// once, at most [`MAX_LISTED`]. Nodes are taken to stay in their groups. Looks at the nodes of groups that are not equal.
#[must_use]
pub(crate) fn affected_nodes(board: &StatusBoard, before: &Groups, after: &Groups) -> Vec<String> {
    let groups = differing(before, after);
    let views: BTreeSet<ViewKey> = groups.into_iter().flat_map(|name| board.views_of(name)).collect();
    let mut nodes = BTreeSet::new();
    for key in views {
        let change = difference(&key, before, after);
        if change.changes.is_empty() {
            continue;
        }
        // One of which that is not known may be affected.
        let is_affected =
            |entry: &Arc<StreamEntry>| entry.concerned(&change).is_none_or(|types| !types.is_empty());
        let affected = board.streams_of(Some(&key)).into_iter().filter(is_affected);
        nodes.extend(affected.map(|entry| entry.with(|status| status.info.node.id.clone())));
    }
    nodes.into_iter().take(MAX_LISTED).collect()
}

/// The difference for the clients of a view.
fn difference(key: &ViewKey, before: &Groups, after: &Groups) -> ViewChange {
    let mut changes: BTreeMap<ResourceType, Changes> = BTreeMap::new();
    let mut changed = BTreeSet::new();
    for name in key.groups.iter() {
        changed_keys(before.get(name), after.get(name), key.profile, &mut changed);
    }
    let find = |groups: &Groups, resource: &ResourceKey| {
        key.groups.iter().find_map(|name| groups.get(name)?.find(key.profile, resource).cloned())
    };
    for resource in changed {
        let ResourceKey { resource_type, name } = (*resource).clone();
        match (find(before, &resource), find(after, &resource)) {
            (Some(old), Some(new)) if old.version() == new.version() => {}
            (None, None) => {}
            (_, Some(new)) => changes.entry(resource_type).or_default().changed.push(new),
            (Some(_), None) => changes.entry(resource_type).or_default().removed.push(name),
        }
    }
    ViewChange {
        key: key.clone(),
        changes: changes.into_iter().map(|(of_type, changes)| (of_type, Arc::new(changes))).collect(),
    }
}

/// The resources that clients would get if `after` were published: of the groups that differ, every kind of client that a group
/// can have and for which something does, up to [`MAX_TOLD`], of the groups that `sees` is `true` for. To be asked while nothing else can be
/// published.
pub(crate) fn previews(
    publisher: &Publisher,
    after: &Groups,
    now: Instant,
    sees: impl Fn(&GroupName) -> bool,
) -> Vec<ClientPreview> {
    let (_, before) = publisher.groups();
    let cohort = if publisher.behind().is_some() { AHEAD } else { 0 };
    let mut names = differing(&before, after);
    names.retain(|name| sees(name));
    let profiles =
        |name: &GroupName| after.get(name).or_else(|| before.get(name)).map(|group| group.profiles());
    let kinds =
        names.iter().flat_map(|name| profiles(name).unwrap_or_default().iter().map(|of| (*name, *of)));
    let clients = kinds.filter_map(|(group, profile): (&GroupName, Profile)| {
        let key = ViewKey { cohort, ..view_key_of_group(group, profile) };
        let preview = publisher.preview(&key, after, now)?;
        is_change(&preview).then(|| ClientPreview { group: group.clone(), profile, preview })
    });
    clients.take(MAX_TOLD).collect()
}

/// The phases in which each of them would get it; those that need none, because they ask for nothing that differs, are left out.
/// Takes as long as that many clients take to get everything.
pub(crate) fn play(clients: Vec<ClientPreview>, limits: &Limits, now: Instant) -> Vec<GroupPhases> {
    let played = clients.into_iter().map(|ClientPreview { group, profile, preview }| GroupPhases {
        group,
        profile,
        phases: phases_of(preview, limits, now),
    });
    played.filter(|told| !told.phases.is_empty()).collect()
}

/// The requests of each of them that would move, in the documents before and after. Takes at most about a second.
pub(crate) fn requests(clients: &[ClientPreview], documents: [&Documents; 2]) -> Vec<GroupRequests> {
    let mut comparison = Comparison::new(documents);
    for ClientPreview { group, profile, preview } in clients {
        let after = preview.drained.as_ref().map_or(&preview.after, |(_, drained)| drained);
        comparison.add(group, *profile, [&preview.before, after]);
    }
    comparison.into_found()
}

fn phases_of(preview: Preview, limits: &Limits, now: Instant) -> Vec<Phase> {
    let mut phases = xds_session::phases(&preview.before, &preview.after, limits, now);
    if let Some((drain, drained)) = preview.drained {
        let mut last = xds_session::phases(&preview.after, &drained, limits, now);
        if let Some(first) = last.first_mut() {
            first.after = Some(drain);
        }
        phases.extend(last);
    }
    phases
}

/// Returns `true` if a view has another table afterwards.
fn is_change(Preview { before, after, .. }: &Preview) -> bool {
    let table =
        |view: &View, of_type: &ResourceType| -> *const TypeTable { Arc::as_ptr(view.table(of_type)) };
    before.types().chain(after.types()).any(|of_type| table(before, of_type) != table(after, of_type))
}

/// The most kinds of clients and groups that are reported. Each means to play a client from its beginning.
const MAX_TOLD: usize = 16;
