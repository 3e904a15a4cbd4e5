//! Incremental: what a request means, and what a response holds.

use xds_cache::View;
use xds_cache::status::EventKind;

use crate::request::DeltaRequest;
use crate::response::{Contents, Form};
use crate::sotw::WILDCARD;
use crate::subscription::Owed;
use crate::type_state::{Answer, ClientTraits, Part, TypeState, Update, answered, full};

/// Takes in a request of this type. Subscription changes count whatever the nonce says (R4).
pub(crate) fn handle_request(state: &mut TypeState, request: &DeltaRequest) -> Vec<EventKind> {
    let mut events = Vec::new();
    let is_first = !state.is_known;
    state.is_known = true;
    if let Answer::To(sent) | Answer::Repeated(sent) = state.take_answered(request.response_nonce) {
        events.push(answered(sent, request.error_detail.as_deref()));
    }
    let subscribe = &request.resource_names_subscribe;
    let unsubscribe = &request.resource_names_unsubscribe;
    let changes_something = !subscribe.is_empty() || !unsubscribe.is_empty();
    if is_first && !changes_something && state.resource_type.has_legacy_wildcard() {
        state.subscription.add_wildcard();
        state.is_answer_owed = true;
    }
    change_names(state, subscribe, unsubscribe);
    if is_first {
        for (name, version) in &request.initial_resource_versions {
            if state.subscription.covers_name(name) {
                state.subscription.mark_held(name, version);
            }
        }
    }
    if is_first || changes_something {
        events.push(EventKind::Subscribed);
        state.is_dirty = true;
    }
    events
}

/// Takes away, then adds: a name in both lists is subscribed to (row A108).
fn change_names(state: &mut TypeState, subscribe: &[String], unsubscribe: &[String]) {
    for name in unsubscribe {
        if name == WILDCARD {
            state.subscription.remove_wildcard();
            state.is_answer_owed = false;
        } else {
            state.subscription.remove_name(name);
        }
    }
    for name in subscribe {
        state.named_once = true;
        if name == WILDCARD {
            state.subscription.add_wildcard();
            state.is_answer_owed = true;
        } else {
            state.subscription.add_name(name);
        }
    }
}

/// Whether there is nothing but removals: they wait for updates of other types (R12).
pub(crate) fn is_removal(state: &TypeState, owed: &Owed) -> bool {
    !state.is_answer_owed && owed.changed.is_empty() && owed.missing.is_empty() && !owed.removed.is_empty()
}

/// Makes the next response of the type.
pub(crate) fn compose(state: &mut TypeState, view: &View, owed: Owed, client: ClientTraits) -> Update {
    let table = view.table(&state.resource_type);
    let Part { changed, is_whole } = state.take_changed(&owed, table, client.max_response_bytes);
    state.is_answer_owed = false;
    let mut removed = Vec::new();
    if is_whole {
        removed = owed.removed;
        removed.extend(owed.missing);
        removed.sort();
        removed.dedup();
    }
    let contents = Contents { removed, ..state.contents(view, form(client), full(&changed)) };
    Update { contents, changed, is_final: is_whole }
}

/// The form of responses for this client.
pub(crate) fn form(client: ClientTraits) -> Form {
    Form::Delta { with_ttl: client.takes_ttl }
}
