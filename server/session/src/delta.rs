//! Incremental: what a request means, and what a response holds.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use xds_cache::status::EventKind;
use xds_cache::{Name, Resource, TypeTable, xdstp};

use crate::ledger::{Answered, Held, Load};
use crate::owed::Owed;
use crate::quirks::Quirk;
use crate::request::DeltaRequest;
use crate::response::{Contents, Entries, Entry, Form};
use crate::target::Target;
use crate::type_state::{ClientTraits, TypeState, Update};
use crate::wants::{WILDCARD, Wants};

/// Takes in a request of this type. Subscription changes count whatever the nonce says (R4).
pub(crate) fn handle_request(
    state: &mut TypeState,
    request: &DeltaRequest,
    is_first: bool,
) -> Vec<EventKind> {
    let mut events = Vec::new();
    if is_first && !request.initial_resource_versions.is_empty() {
        state.ledger.come_back();
    }
    let error_detail = request.error_detail.as_deref();
    match state.take_answered(request.response_nonce) {
        Answered::Last(sent, load) | Answered::Older(sent, load) => {
            events.extend(state.answered(sent, &load, error_detail));
        }
        // A repeated answer without the error does not accept a rejected response.
        Answered::Again(sent) if error_detail.is_some() => {
            events.extend(state.answered(sent, &Load::default(), error_detail));
        }
        Answered::Again(_) | Answered::Nothing => {}
    }
    let subscribe = &request.resource_names_subscribe;
    let unsubscribe = &request.resource_names_unsubscribe;
    let changes_something = !subscribe.is_empty() || !unsubscribe.is_empty();
    if is_first && !changes_something && state.has(Quirk::TakenUnasked) {
        state.add_wildcard();
        state.is_answer_owed = true;
    }
    change_names(state, subscribe, unsubscribe);
    if is_first && !changes_something && state.has(Quirk::AskedByVersions) {
        request.initial_resource_versions.keys().for_each(|name| state.add_name(name));
    }
    if is_first {
        for (name, version) in &request.initial_resource_versions {
            state.claim(name, version);
        }
    }
    if state.ledger.responses().is_answered() {
        state.ledger.forget_all_dropped();
    }
    if is_first || changes_something {
        events.push(EventKind::Subscribed);
        state.is_dirty = true;
    }
    events
}

/// Takes away, then adds: a name in both lists is subscribed to (row A108). A name that is not subscribed to is looked up: what it
/// names may be subscribed to under another name (row A109); otherwise nothing happens (row A105).
fn change_names(state: &mut TypeState, subscribe: &[String], unsubscribe: &[String]) {
    let mut found: BTreeSet<Name> = BTreeSet::new();
    for name in distinct(unsubscribe) {
        if name == WILDCARD {
            state.remove_wildcard();
            state.is_answer_owed = false;
        } else if !state.remove_name(&name) {
            let resource = state.find_settled(&name);
            if let Some(resource) = resource.filter(|resource| found.insert(Arc::clone(resource.name()))) {
                state.remove_found(&resource);
            }
        }
    }
    for name in distinct(subscribe) {
        if name == WILDCARD {
            state.add_wildcard();
            state.is_answer_owed = true;
        } else {
            state.add_name(&name);
        }
    }
}

/// The names in canonical form, each once: a wildcard or a glob costs as much as it covers every time that it is asked for.
fn distinct(names: &[String]) -> impl Iterator<Item = Cow<'_, str>> {
    let mut seen = HashSet::with_capacity(names.len());
    names.iter().map(|name| xdstp::canonical(name)).filter(move |name| seen.insert(name.clone()))
}

/// Returns `true` if there is nothing but removals: they wait for updates of other types (R12).
pub(crate) fn is_removal(state: &TypeState, owed: &Owed) -> bool {
    let is_waited_for = state.is_answer_owed || state.awaited.is_some();
    !is_waited_for && owed.changed.is_empty() && owed.missing.is_empty() && !owed.removed.is_empty()
}

/// Makes the next response of the type, or nothing if only names do not exist of which the client must not be told. `later` are removals
/// that have to wait for updates of other types (R12).
pub(crate) fn compose(
    state: &mut TypeState,
    target: Target<'_>,
    mut owed: Owed,
    later: Vec<Name>,
    client: ClientTraits<'_>,
) -> Option<Update> {
    let table = target.table(&state.resource_type);
    if client.is_envoy && state.has(Quirk::StuckIfToldMissing) {
        owed.missing.retain(|name| !state.is_unheld(name));
        if owed.is_empty() && later.is_empty() && !state.is_answer_owed && state.awaited.is_none() {
            state.settle_without_response(target);
            return None;
        }
    }
    let without_content: BTreeSet<Name> = if state.has(Quirk::AbsenceIsAResource) {
        owed.missing.iter().filter(|name| state.is_unheld(name)).cloned().collect()
    } else {
        BTreeSet::new()
    };
    let mut sent = state.take_owed(&mut owed, client);
    owed.removed.extend(later);
    state.is_answer_owed = false;
    let mut entries = full_for_hosts(&sent.changed, &state.wants, table);
    // If the client may hold something of that name, only a removal takes it away.
    let (unknown, missing): (Vec<Name>, Vec<Name>) =
        std::mem::take(&mut sent.missing).into_iter().partition(|name| without_content.contains(name));
    entries.extend(unknown.into_iter().map(Entry::Unpopulated));
    let mut removed = sent.removed;
    if state.has(Quirk::AbsenceIsAResource) {
        // A removal does not end its wait; no name may be both in one response.
        for name in missing.iter().filter(|name| state.wants.names().contains(name)) {
            state.ledger.exceptions.insert(Arc::clone(name), Held::Nothing);
            owed.missing.push(Arc::clone(name));
        }
        owed.missing.sort();
    }
    removed.extend(missing);
    // Only the absence of a name is news; resources go to those who ask for them.
    let is_held = |name: &Name| state.wants.covers_name(name) || table.find(name).is_some();
    let is_waiting = |name: &Name| state.wants.is_left_waiting(table, name);
    let awaited = state.awaited.take().map(|awaited| *awaited).unwrap_or_default();
    removed.extend(awaited.into_iter().filter(|name| !is_held(name) && is_waiting(name)));
    removed.sort();
    let form = form(state, client);
    let contents = Contents { removed, ..state.contents(target, form, Entries::Listed(entries)) };
    Some(Update { contents, changed: sent.changed, rest: owed, is_heartbeat: false })
}

/// The entries of `resources`. A virtual host that is sent for a host which only its domains match carries that host as an alias,
/// so that the client finds what it asked for (row A118); it is a resource of its own, with its own version (D15).
fn full_for_hosts(resources: &[Arc<Resource>], wants: &Wants, table: &TypeTable) -> Vec<Entry> {
    let entry = |resource: &Arc<Resource>| {
        let hosts = wants.hosts(table, resource);
        if hosts.is_empty() {
            return Entry::Full(Arc::clone(resource));
        }
        let mut draft = resource.to_draft();
        draft.aliases = resource.aliases().iter().cloned().chain(hosts).collect();
        Entry::Full(Arc::new(Resource::new(draft)))
    };
    resources.iter().map(entry).collect()
}

/// The form of this type's responses for this client.
pub(crate) fn form(state: &TypeState, client: ClientTraits<'_>) -> Form {
    // Without heartbeats a time to live would end the resource.
    Form::Delta { with_ttl: client.takes_ttl && !state.has(Quirk::NoHeartbeats) }
}
