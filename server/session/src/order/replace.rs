//! The effects of a client's answers: versions go out of use, clusters settle, resources are sent once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::StreamId;
use xds_cache::{Name, Resource, ResourceKey, ResourceType, TypeTable, View};

use super::facts::{Facts, Input, Need};
use crate::ledger::Accepted;
use crate::limits::Limits;
use crate::quirks::Quirk;
use crate::references;
use crate::stream::Stream;
use crate::type_state::TypeState;

/// The times until which clusters settle: those of before, and those that the client has accepted since.
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
        if Quirk::Settles.is_of(&state.resource_type) {
            for accepted in state.ledger.accepted().filter(|accepted| accepted.at.is_none()) {
                // Nothing waits for a first response.
                if accepted.older.is_empty() {
                    continue;
                }
                let changes = accepted.newer.changes_since(accepted.older);
                let alone = changes.changed.iter().filter(|cluster| cluster.settles_alone());
                settling.extend(alone.filter_map(|cluster| Some((Arc::clone(cluster.name()), until?))));
            }
        }
        state.ledger.note_accepted(now);
    }
    settling
}

/// Takes out of use what the client has replaced, and then what only that referred to. Tells when there may be more by itself.
pub(super) fn release(input: Input<'_>, streams: &mut BTreeMap<StreamId, Stream>) -> Option<Instant> {
    loop {
        let (released, timeout) = released(&Facts::new(input, streams));
        if released.is_empty() {
            return timeout;
        }
        for Released { stream, resource_type, positions, rejected } in released {
            let state = streams.get_mut(&stream).and_then(|stream| stream.find_mut(&resource_type));
            let Some(state) = state else { continue };
            state.ledger.release(&positions);
            state.ledger.forget_rejected(&rejected);
        }
    }
}

/// What a client certainly does not use any more of a type.
struct Released {
    stream: StreamId,
    resource_type: ResourceType,
    /// The numbers of the tables that it uses alone.
    positions: Vec<usize>,
    /// Rejected resources that make no difference any more.
    rejected: BTreeSet<Name>,
}

/// The tables that were accepted and replace those before them. A client goes on with those until it has what the new one refers to.
/// And when this changes by itself.
fn released(facts: &Facts<'_>) -> (Vec<Released>, Option<Instant>) {
    let mut released = Vec::new();
    let mut timeout = None;
    for (id, state) in facts.streams.iter().flat_map(|(id, stream)| {
        stream.types().iter().filter(|state| state.ledger.is_open()).map(move |state| (*id, state))
    }) {
        let mut positions = state.ledger.replaced(|table, name| facts.matters(state, table, name));
        for accepted in state.ledger.accepted() {
            let end = accepted.at.and_then(|at| at.checked_add(facts.input.limits.removal_grace));
            let is_over = end.is_some_and(|end| facts.input.now >= end);
            let is_in_use = keeps_removed(state, accepted) || is_blocked(facts, state, accepted);
            if is_over || !is_in_use {
                positions.push(accepted.position);
            } else {
                // Later tables have not replaced more than this did.
                timeout = timeout.into_iter().chain(end).min();
                break;
            }
        }
        let rejected = state.ledger.rejected_in_vain(|table, name| facts.matters(state, table, name));
        if !positions.is_empty() || !rejected.is_empty() {
            released.push(Released {
                stream: id,
                resource_type: state.resource_type.clone(),
                positions,
                rejected,
            });
        }
    }
    (released, timeout)
}

/// Returns `true` if the client goes on using something that it was told is gone.
fn keeps_removed(state: &TypeState, accepted: Accepted<'_>) -> bool {
    // It may have asked for it once more, and have got it.
    let goes_on = |name: &Name| {
        state.wants.names().contains(name) && !state.ledger.is_taken_after(accepted.position, name)
    };
    state.has(Quirk::IgnoresRemovals)
        && accepted.newer.changes_since(accepted.older).removed.iter().any(goes_on)
}

/// Returns `true` if something that the client had before is in use because what it was sent instead needs what it lacks.
fn is_blocked(facts: &Facts<'_>, state: &TypeState, accepted: Accepted<'_>) -> bool {
    if accepted.older.is_empty() {
        return false;
    }
    state.ledger.names_sent(accepted).iter().any(|name| {
        if accepted.has_missed(name) && !state.ledger.is_taken_after(accepted.position, name) {
            let sent = accepted.newer.find(name).map(|resource| resource.version());
            let mut olds = state.ledger.in_use_before(accepted.position, name);
            return olds.any(|old| Some(old.version()) != sent) && facts.matters(state, accepted.newer, name);
        }
        let news: Vec<(&Arc<TypeTable>, &Arc<Resource>)> = state.ledger.newest(name).collect();
        let is_new = |used: &&Arc<Resource>| news.iter().any(|(_, new)| new.version() == used.version());
        let olds: Vec<&Arc<Resource>> = state.ledger.in_use(name).filter(|used| !is_new(used)).collect();
        news.iter().enumerate().any(|(i, (table, new))| {
            let need = Need { is_replaced: true, is_superseded: i + 1 < news.len(), ..Need::default() };
            does_not_replace(facts, state, (table, new), need, &olds)
        })
    })
}

/// Returns `true` if the client goes on with one of `olds` though it was sent `new` of `table`: it does not have what that needs.
fn does_not_replace(
    facts: &Facts<'_>,
    state: &TypeState,
    (table, new): (&TypeTable, &Resource),
    need: Need,
    olds: &[&Arc<Resource>],
) -> bool {
    let drops = |old: &&Arc<Resource>| old.references().missing_in(new.references()).next().is_some();
    if !olds.iter().any(drops) {
        return false;
    }
    if !state.wants.wants(table, new.name()) {
        // The client does not replace a resource that it does not ask for any more.
        return facts.is_needed_unasked(new.key());
    }
    new.references().targets().any(|to| {
        references::row_of(&state.resource_type, &to.resource_type).is_some()
            && facts.obstacle(to, need).is_some()
    })
}

/// The names that a client dropped and that nothing refers to which it may be using. No response on its way makes it ask for them again,
/// so complete lists need not go on with them.
pub(super) fn forgotten(facts: &Facts<'_>) -> Vec<(StreamId, ResourceType, BTreeSet<Name>)> {
    let mut forgotten = Vec::new();
    for (id, stream) in facts.streams {
        for state in stream.types().iter().filter(|state| state.has(Quirk::CompleteLists)) {
            let of = &state.resource_type;
            let is_used = |name: &&Name| {
                let key = ResourceKey { resource_type: of.clone(), name: Arc::clone(name) };
                !facts.users(&key).is_empty()
            };
            let names: BTreeSet<Name> =
                state.ledger.dropped().filter(|name| !is_used(name)).cloned().collect();
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
            .filter(|state| state.has(Quirk::CompleteLists))
            .map(|state| state.resource_type.clone())
            .collect();
        for resource_type in complete {
            let state = stream.find_mut(&resource_type);
            state.into_iter().for_each(|state| state.ledger.forget_all_dropped());
        }
    }
    for state in streams.values_mut().flat_map(Stream::types_mut) {
        let positions: Vec<usize> = state.ledger.accepted().map(|accepted| accepted.position).collect();
        state.ledger.release(&positions);
    }
}

/// A resource that is back is sent though the client may still have it, as if it had not been retained (rows A73, A74).
pub(super) fn renew_returned<'a>(
    returned: impl Iterator<Item = &'a ResourceKey>,
    view: &View,
    streams: &mut BTreeMap<StreamId, Stream>,
) {
    for key in returned.filter(|key| view.table(&key.resource_type).find(&key.name).is_some()) {
        for state in streams.values_mut().filter_map(|stream| stream.find_mut(&key.resource_type)) {
            state.is_dirty |= state.mark_unknown(&key.name);
        }
    }
}
