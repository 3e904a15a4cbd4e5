//! State of the World: what a request means, and what a response holds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::status::EventKind;
use xds_cache::{Name, ResourceKey, ResourceType, xdstp};

use crate::ledger::{Answered, Load};
use crate::owed::Owed;
use crate::quirks::Quirk;
use crate::request::SotwRequest;
use crate::response::{Contents, Entries, Entry, Form};
use crate::target::Target;
use crate::type_state::{ClientTraits, TypeState, Update, full};
use crate::wants::WILDCARD;

/// Takes in a request of this type. The names always count; the nonce only tells whether it answers the last response (R3).
pub(crate) fn handle_request(
    state: &mut TypeState,
    request: &SotwRequest,
    is_first: bool,
    is_envoy: bool,
) -> Vec<EventKind> {
    let mut events = Vec::new();
    if is_first && !request.version_info.is_empty() {
        state.ledger.come_back();
    }
    let answer = if is_first { Answered::Nothing } else { state.take_answered(request.response_nonce) };
    let is_changed = replace_names(state, &request.resource_names);
    if state.ledger.responses().is_answered() {
        state.ledger.forget_all_dropped();
    }
    if is_changed || is_first {
        events.push(EventKind::Subscribed);
        state.is_dirty = true;
    }
    let error_detail = request.error_detail.as_deref();
    match answer {
        Answered::Last(sent, load) => {
            // An Envoy that accepts a list before it has sent that it rejected the one before says both in one request: with the words
            // about the earlier list, and the version of the accepted one.
            let is_accepted =
                is_envoy && state.has(Quirk::CompleteLists) && *sent.version_info == *request.version_info;
            let words = error_detail.filter(|_| !is_accepted);
            events.extend(state.answered(sent, &load, words));
        }
        // A stale nonce never acknowledges (D7), but what the client rejected it has rejected.
        Answered::Older(sent, load) if error_detail.is_some() => {
            events.extend(state.answered(sent, &load, error_detail));
        }
        Answered::Again(_) if error_detail.is_some_and(|words| state.was_rejected_with(words)) => {
            events.extend(state.report_rejections());
        }
        Answered::Again(sent) if error_detail.is_some() => {
            events.extend(state.answered(sent, &Load::default(), error_detail));
        }
        Answered::Older(sent, load) if load.is_trial => events.extend(state.accept_trial(&sent, &load)),
        Answered::Older(sent, load) if state.has(Quirk::RefusedWhole) => {
            state.accept_list(sent.nonce);
            state.ledger.note_accepted_late(sent.nonce);
            events.extend(state.lift_rejections(&load));
        }
        // But what came in that response is not rejected any more.
        Answered::Older(_, load) => events.extend(state.lift_rejections(&load)),
        Answered::Again(_) if !is_changed => repeat(state),
        Answered::Again(_) | Answered::Nothing => {}
    }
    events
}

/// The same request once more: the client warms something anew and waits for what it refers to (R14, row A128).
fn repeat(state: &mut TypeState) {
    for name in std::mem::take(&mut state.renewed) {
        state.is_dirty |= state.mark_unknown(&name);
    }
}

/// Applies the list of a request. Tells whether it changed what the client asks for.
fn replace_names(state: &mut TypeState, names: &[String]) -> bool {
    let has_legacy_wildcard = state.has(Quirk::TakenUnasked);
    let wants_wildcard = names.iter().any(|name| name == WILDCARD)
        || (names.is_empty() && !state.named_once && has_legacy_wildcard);
    state.named_once |= !names.is_empty();
    let explicit = names.iter().filter(|name| *name != WILDCARD);
    let canonical: BTreeSet<Cow<'_, str>> = explicit.map(|name| xdstp::canonical(name)).collect();
    let before = state.wants.names();
    let same_names = before.len() == canonical.len() && canonical.iter().all(|name| before.contains(name));
    let same_wildcard = wants_wildcard == state.wants.is_wildcard();
    if same_names && same_wildcard {
        return false;
    }
    if !same_names {
        let known = |name: &Cow<'_, str>| before.get(name).cloned().unwrap_or_else(|| Name::from(&**name));
        let wanted: BTreeSet<Name> = canonical.iter().map(known).collect();
        state.replace_names(wanted);
    }
    if !same_wildcard && wants_wildcard {
        state.add_wildcard();
    } else if !same_wildcard {
        state.remove_wildcard();
    }
    let wants = &state.wants;
    state.renewed.retain(|name| wants.covers_name(name));
    // A wildcard that begins or ends makes a new list: complete types are answered in full, as for a first request.
    let asks_for_something = !state.wants.is_empty();
    let is_new_list = state.has(Quirk::CompleteLists) && !same_wildcard;
    state.is_answer_owed = asks_for_something && (is_new_list || state.is_answer_owed);
    true
}

/// Returns `true` if a response that holds nothing but removals would do: it waits for updates of other types (R12).
pub(crate) fn is_removal(state: &TypeState, owed: &Owed) -> bool {
    state.has(Quirk::CompleteLists)
        && !state.is_answer_owed
        && owed.changed.is_empty()
        && owed.missing.is_empty()
        && !owed.removed.is_empty()
}

/// Makes the next response of the type, or nothing if the client can do without: nobody is told of a deletion but by a complete
/// list (row A73), and of what does not exist only along with something else (rows A41, A170), except that gRPC clients wait for
/// it (row A178).
///
/// `is_new`: nothing on the stream, which is for all types, shows that the client had any configuration before.
pub(crate) fn compose(
    state: &mut TypeState,
    target: Target<'_>,
    mut owed: Owed,
    client: ClientTraits<'_>,
    is_new: bool,
) -> Option<Update> {
    let table = target.table(&state.resource_type);
    owed.missing.retain(|name| state.wants.names().contains(name));
    state.is_answer_owed = false;
    // No list can say that there is no host of a route configuration; nobody asks for hosts but incrementally.
    state.awaited = None;
    if state.has(Quirk::CompleteLists) {
        let entries = if state.wants.is_all_of(table) {
            state.ledger.forget_all_dropped();
            Entries::Table(Arc::clone(table))
        } else {
            full(&state.list(table))
        };
        let contents = contents(state, target, entries, client);
        let contents = Contents { not_found: owed.missing, ..contents };
        return Some(Update { contents, changed: owed.changed, rest: Owed::default(), is_heartbeat: false });
    }
    owed.removed.clear();
    if is_new && client.is_envoy {
        let empty = take_awaited(state, target, &mut owed.missing, client);
        if !empty.is_empty() {
            // Alone: of a response with something that it refuses, the client might not take it.
            let entries = Entries::Listed(empty.into_iter().map(Entry::Unpopulated).collect());
            let contents = contents(state, target, entries, client);
            return Some(Update { contents, changed: vec![], rest: owed, is_heartbeat: false });
        }
    }
    let waits_for_missing = Quirk::WaitsForMissing.is_of_profile(&state.resource_type, client.profile);
    let sent = state.take_owed(&mut owed, client);
    let tells_missing = !sent.missing.is_empty() && waits_for_missing;
    if sent.changed.is_empty() && !tells_missing {
        state.settle_without_response(target);
        return None;
    }
    let contents = contents(state, target, full(&sent.changed), client);
    let contents = Contents { not_found: sent.missing, ..contents };
    Some(Update { contents, changed: sent.changed, rest: owed, is_heartbeat: false })
}

/// Takes those of the names that do not exist which the client, an Envoy, has nothing of, and waits for without a limit.
fn take_awaited(
    state: &TypeState,
    target: Target<'_>,
    missing: &mut Vec<Name>,
    client: ClientTraits<'_>,
) -> Vec<Name> {
    if !state.has(Quirk::StuckIfNotTold)
        || !Quirk::StuckIfNotTold.is_of_profile(&state.resource_type, client.profile)
    {
        return vec![];
    }
    let clusters = target.table(&ResourceType::Cluster);
    // Who waits for a layer, and how long, is in the client's bootstrap.
    let is_runtime = state.resource_type == ResourceType::Runtime;
    let is_awaited = |name: &Name| {
        let key = ResourceKey { resource_type: state.resource_type.clone(), name: Arc::clone(name) };
        let mut users = clusters.referrers(&key);
        state.is_unheld(name) && (is_runtime || users.any(|user| user.awaits_endpoints_without_limit()))
    };
    let (awaited, others) = std::mem::take(missing).into_iter().partition(is_awaited);
    *missing = others;
    awaited
}

/// Resources are wrapped only where a time to live has to travel with them, and only for a client that reads both (A135, A136).
fn contents(state: &TypeState, target: Target<'_>, entries: Entries, client: ClientTraits<'_>) -> Contents {
    state.contents(target, form(state, target, client), entries)
}

/// The form of this type's responses for this client.
pub(crate) fn form(state: &TypeState, target: Target<'_>, client: ClientTraits<'_>) -> Form {
    let has_ttl = || state.heartbeat_interval(target.table(&state.resource_type)).is_some();
    if client.takes_ttl && client.takes_wrapped_resources && has_ttl() {
        Form::SotwWrapped
    } else {
        Form::Sotw
    }
}
