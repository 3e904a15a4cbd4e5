//! State of the World: what a request means, and what a response holds.

use std::collections::BTreeSet;

use xds_cache::status::EventKind;
use xds_cache::{Profile, View};

use crate::request::SotwRequest;
use crate::response::{Contents, Entries, Form};
use crate::subscription::Owed;
use crate::type_state::{Answer, ClientTraits, Part, TypeState, Update, answered, full};

/// The name that stands for everything.
pub(crate) const WILDCARD: &str = "*";

/// Takes in a request of this type. The names always count; the nonce only tells whether it answers the last response (R3).
pub(crate) fn handle_request(state: &mut TypeState, request: &SotwRequest) -> Vec<EventKind> {
    let mut events = Vec::new();
    let is_first = !state.is_known;
    state.is_known = true;
    let answer = if is_first { Answer::Nothing } else { state.take_answered(request.response_nonce) };
    let is_changed = replace_names(state, &request.resource_names);
    if is_changed || is_first {
        events.push(EventKind::Subscribed);
        state.is_dirty = true;
    }
    match answer {
        Answer::To(sent) => events.push(answered(sent, request.error_detail.as_deref())),
        Answer::Repeated(sent) if request.error_detail.is_some() => {
            events.push(answered(sent, request.error_detail.as_deref()));
        }
        Answer::Repeated(_) if !is_changed => repeat(state),
        Answer::Repeated(_) | Answer::Nothing => {}
    }
    events
}

/// The same request once more: the client warms something anew and waits for what it refers to (R14, row A128).
fn repeat(state: &mut TypeState) {
    for name in std::mem::take(&mut state.renewed) {
        state.is_dirty |= state.subscription.mark_unknown(&name);
    }
}

/// Applies the list of a request. Tells whether it changed what the client asks for.
fn replace_names(state: &mut TypeState, names: &[String]) -> bool {
    let has_legacy_wildcard = state.resource_type.has_legacy_wildcard();
    let wants_wildcard = names.iter().any(|name| name == WILDCARD)
        || (names.is_empty() && !state.named_once && has_legacy_wildcard);
    state.named_once |= !names.is_empty();
    let explicit = || names.iter().map(String::as_str).filter(|name| *name != WILDCARD);
    let subscription = &mut state.subscription;
    let before = subscription.names();
    let is_subset = explicit().all(|name| before.contains(name));
    let same_names = is_subset && before.len() == explicit().collect::<BTreeSet<_>>().len();
    let same_wildcard = wants_wildcard == subscription.is_wildcard();
    if same_names && same_wildcard {
        return false;
    }
    if !same_wildcard {
        // A wildcard that begins or ends makes a new list: complete types are answered in full, as for a first request.
        if wants_wildcard {
            subscription.add_wildcard();
        } else {
            subscription.remove_wildcard();
        }
    }
    if !same_names {
        subscription.replace_names(explicit());
    }
    let asks_for_something = wants_wildcard || !subscription.names().is_empty();
    let is_new_list = state.resource_type.is_complete_in_sotw() && !same_wildcard;
    state.is_answer_owed = asks_for_something && (is_new_list || state.is_answer_owed);
    true
}

/// Whether a response that holds nothing but removals would do: it waits for updates of other types (R12).
pub(crate) fn is_removal(state: &TypeState, owed: &Owed) -> bool {
    state.resource_type.is_complete_in_sotw()
        && !state.is_answer_owed
        && owed.changed.is_empty()
        && owed.missing.is_empty()
        && !owed.removed.is_empty()
}

/// Makes the next response of the type, or nothing if the client can do without.
pub(crate) fn compose(
    state: &mut TypeState,
    view: &View,
    owed: Owed,
    client: ClientTraits,
) -> Option<Update> {
    let table = view.table(&state.resource_type);
    let not_found: Vec<_> =
        owed.missing.iter().filter(|name| state.subscription.names().contains(&***name)).cloned().collect();
    let update = if state.resource_type.is_complete_in_sotw() {
        let entries = if state.subscription.wants_all(table) {
            Entries::Table(table.clone())
        } else {
            full(&state.subscription.wanted(table))
        };
        state.subscription.settle(table);
        Update { contents: contents(state, view, entries, client), changed: owed.changed, is_final: true }
    } else {
        let Part { changed, is_whole } = state.take_changed(&owed, table, client.max_response_bytes);
        let tells_missing = is_whole && !not_found.is_empty() && client.profile == Profile::Grpc;
        if changed.is_empty() && !tells_missing {
            state.is_answer_owed = false;
            return None;
        }
        Update { contents: contents(state, view, full(&changed), client), changed, is_final: is_whole }
    };
    state.is_answer_owed = false;
    let not_found = if update.is_final { not_found } else { vec![] };
    Some(Update { contents: Contents { not_found, ..update.contents }, ..update })
}

/// Resources are wrapped only where a time to live has to travel with them, and only for a client that reads both (A.9).
fn contents(state: &TypeState, view: &View, entries: Entries, client: ClientTraits) -> Contents {
    state.contents(view, form(state, view, client), entries)
}

/// The form of this type's responses for this client.
pub(crate) fn form(state: &TypeState, view: &View, client: ClientTraits) -> Form {
    let has_ttl = || state.heartbeat_interval(view.table(&state.resource_type)).is_some();
    if client.takes_ttl && client.takes_wrapped_resources && has_ttl() {
        Form::SotwWrapped
    } else {
        Form::Sotw
    }
}
