//! What the client's answers change: what replaces what, what settles, what is sent once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::StreamId;
use xds_cache::{Name, Resource, ResourceKey, ResourceType, TypeTable, View};

use super::ready::Readiness;
use super::table;
use crate::applied::{Accepted, Answer};
use crate::limits::Limits;
use crate::stream::Stream;
use crate::type_state::TypeState;

/// Until when clusters settle: those of before, and those that the client has accepted since.
pub(super) fn settling(
    before: &BTreeMap<Name, Instant>,
    streams: &mut BTreeMap<StreamId, Stream>,
    limits: &Limits,
    now: Instant,
) -> BTreeMap<Name, Instant> {
    let mut settling = before.clone();
    settling.retain(|_, until| *until > now);
    let until = now.checked_add(limits.settle_time);
    for state in streams.values_mut().flat_map(Stream::types_mut) {
        if state.resource_type == ResourceType::Cluster {
            for accepted in state.applied.accepted().filter(|accepted| accepted.at.is_none()) {
                // What comes first is not waited for.
                if accepted.older.is_empty() {
                    continue;
                }
                let changes = accepted.newer.changes_since(accepted.older);
                let alone = changes.changed.iter().filter(|cluster| cluster.settles_alone());
                settling.extend(alone.filter_map(|cluster| Some((Arc::clone(cluster.name()), until?))));
            }
        }
        state.applied.note_accepted(now);
    }
    settling
}

/// What a stream may count as the only thing in use of a type: the numbers of what was accepted.
pub(super) type Released = (StreamId, ResourceType, Vec<usize>);

/// What was accepted and makes what went before it out of use: a client goes on with that until it has what the new one refers to.
/// And when this changes by itself.
pub(super) fn released(
    readiness: &Readiness<'_>,
    limits: &Limits,
    now: Instant,
) -> (Vec<Released>, Option<Instant>) {
    let mut released = Vec::new();
    let mut timeout = None;
    for (id, stream, state) in readiness.streams.iter().flat_map(|(id, stream)| {
        stream.types().iter().filter(|state| state.applied.is_open()).map(move |state| (*id, stream, state))
    }) {
        let mut positions = state.applied.replaced(|table, name| readiness.matters(state, table, name));
        for accepted in state.applied.accepted() {
            let end = accepted.at.and_then(|at| at.checked_add(limits.removal_grace));
            let is_over = end.is_some_and(|end| now >= end);
            let is_in_use = keeps_removed(stream, state, accepted) || is_blocked(readiness, state, accepted);
            if is_over || !is_in_use {
                positions.push(accepted.position);
            } else {
                // What came later has not replaced more than this did.
                timeout = timeout.into_iter().chain(end).min();
                break;
            }
        }
        if !positions.is_empty() {
            released.push((id, state.resource_type.clone(), positions));
        }
    }
    (released, timeout)
}

/// Whether the client goes on using something that it was told is gone.
fn keeps_removed(stream: &Stream, state: &TypeState, accepted: Accepted<'_>) -> bool {
    // It may have asked for it once more, and have got it.
    let goes_on = |name: &Name| {
        state.subscription.names().contains(name) && !state.applied.is_taken_after(accepted.position, name)
    };
    stream.ignores_removals(state) && accepted.newer.changes_since(accepted.older).removed.iter().any(goes_on)
}

/// Whether something that the client had before is in use because what it was sent instead needs what it lacks.
fn is_blocked(readiness: &Readiness<'_>, state: &TypeState, accepted: Accepted<'_>) -> bool {
    if accepted.older.is_empty() {
        return false;
    }
    accepted.sent().iter().any(|name| {
        if accepted.has_missed(name) && !state.applied.is_taken_after(accepted.position, name) {
            let sent = accepted.newer.find(name).map(|resource| resource.version());
            let mut olds = state.applied.in_use_before(accepted.position, name);
            return olds.any(|old| Some(old.version()) != sent)
                && readiness.matters(state, accepted.newer, name);
        }
        let news: Vec<(&Arc<TypeTable>, &Arc<Resource>)> = state.applied.newest(name).collect();
        let is_new = |used: &&Arc<Resource>| news.iter().any(|(_, new)| new.version() == used.version());
        let olds: Vec<&Arc<Resource>> = state.applied.in_use(name).filter(|used| !is_new(used)).collect();
        news.iter().any(|(table, new)| does_not_replace(readiness, state, table, new, &olds))
    })
}

/// Whether the client goes on with one of `olds` though it was sent `new` of `table`.
fn does_not_replace(
    readiness: &Readiness<'_>,
    state: &TypeState,
    table: &TypeTable,
    new: &Resource,
    olds: &[&Arc<Resource>],
) -> bool {
    let drops = |old: &&Arc<Resource>| old.references().missing_in(new.references()).next().is_some();
    if !olds.iter().any(drops) {
        return false;
    }
    if !state.subscription.wants(table, new.name()) {
        // What the client does not ask for any more it does not replace either.
        return readiness.is_needed_unasked(new.key());
    }
    new.references().targets().any(|to| {
        table::row_of(&state.resource_type, &to.resource_type).is_some()
            && readiness.obstacle(to, false).is_some()
    })
}

/// What a client dropped, and nothing refers to that it may be using: it does not ask for it again because of what is on its way, so
/// complete lists need not go on with it.
pub(super) fn forgotten(readiness: &Readiness<'_>) -> Vec<(StreamId, ResourceType, BTreeSet<Name>)> {
    let mut forgotten = Vec::new();
    for (id, stream) in readiness.streams {
        for state in stream.types().iter().filter(|state| stream.lists_completely(state)) {
            let of = &state.resource_type;
            let is_used = |name: &&Name| {
                let key = ResourceKey { resource_type: of.clone(), name: Arc::clone(name) };
                !readiness.users(&key).is_empty()
            };
            let names: BTreeSet<Name> =
                state.subscription.lingering().filter(|name| !is_used(name)).cloned().collect();
            if !names.is_empty() {
                forgotten.push((*id, of.clone(), names));
            }
        }
    }
    forgotten
}

/// Nothing waits, and nothing that was dropped is listed.
pub(super) fn release_all(streams: &mut BTreeMap<StreamId, Stream>) {
    for stream in streams.values_mut() {
        let complete: Vec<ResourceType> = stream
            .types()
            .iter()
            .filter(|state| stream.lists_completely(state))
            .map(|state| state.resource_type.clone())
            .collect();
        for resource_type in complete {
            let state = stream.find_mut(&resource_type);
            state.into_iter().for_each(|state| state.subscription.forget_lingering());
        }
    }
    for state in streams.values_mut().flat_map(Stream::types_mut) {
        let positions: Vec<usize> = state.applied.accepted().map(|accepted| accepted.position).collect();
        state.applied.release(&positions);
    }
}

/// What stood beside something bad in a rejected response may be good: it is sent once more with whatever changes of its type,
/// because only an ACK can tell. A complete list says it again by itself.
pub(super) fn renew_rejected(
    rejected: &BTreeSet<ResourceKey>,
    view: &View,
    streams: &mut BTreeMap<StreamId, Stream>,
) {
    for key in rejected {
        for stream in streams.values_mut() {
            if stream.find(&key.resource_type).is_none_or(|state| stream.lists_completely(state)) {
                continue;
            }
            let Some(state) = stream.find_mut(&key.resource_type) else { continue };
            let owed = state.subscription.owed(view.table(&key.resource_type));
            if !owed.changed.is_empty() && state.applied.answer(&key.name) == Answer::Rejected {
                state.is_dirty |= state.subscription.mark_unknown(&key.name);
            }
        }
    }
}

/// What is back is sent though the client may still have it, as if it had not been retained (rows A73, A74).
pub(super) fn renew_returned<'a>(
    returned: impl Iterator<Item = &'a ResourceKey>,
    view: &View,
    streams: &mut BTreeMap<StreamId, Stream>,
) {
    for key in returned.filter(|key| view.table(&key.resource_type).find(&key.name).is_some()) {
        for state in streams.values_mut().filter_map(|stream| stream.find_mut(&key.resource_type)) {
            state.is_dirty |= state.subscription.mark_unknown(&key.name);
        }
    }
}
