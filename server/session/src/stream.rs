//! One stream: its types, its nonces, and what is sent next.

use std::collections::BTreeMap;
use std::time::Instant;

use xds_cache::status::{EventKind, StreamEvent, Variant};
use xds_cache::{Name, ResourceKey, ResourceType};

use crate::error::SessionError;
use crate::limits::Limits;
use crate::owed::Owed;
use crate::quirks::Quirk;
use crate::request::Request;
use crate::response::{Form, Response};
use crate::target::Target;
use crate::trials::Gate;
use crate::type_state::{ClientTraits, TypeState, Update, sent};
use crate::{delta, sotw};

/// One stream of a client.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    variant: Variant,
    /// The type of a per-type stream; `None` for ADS.
    service: Option<ResourceType>,
    /// The first request came and carried a node.
    has_node: bool,
    /// A first request of a type showed that the client has configuration.
    has_come_back: bool,
    next_nonce: u64,
    /// Sorted by type, which is the order of sending (R12).
    types: Vec<TypeState>,
    /// What is kept of the subscriptions, in bytes.
    kept_bytes: usize,
}

/// The result of a request.
pub(crate) struct Intake {
    /// Events for the status board.
    pub(crate) events: Vec<StreamEvent>,
    /// It was the stream's first one for its type.
    pub(crate) is_first_of_type: bool,
}

/// A response, and what it means for the rest of the client.
pub(crate) struct Turn {
    pub(crate) response: Response,
    /// The resources that are news to the client.
    pub(crate) update: Update,
    /// All of them came in a rejected response before.
    pub(crate) is_trial: bool,
}

/// The next response.
struct Next {
    position: usize,
    owed: Owed,
    /// No other type owes anything.
    is_alone: bool,
}

impl Stream {
    pub(crate) fn new(variant: Variant, service: Option<ResourceType>, first_nonce: u64) -> Self {
        Self {
            variant,
            service,
            has_node: false,
            has_come_back: false,
            next_nonce: first_nonce,
            types: vec![],
            kept_bytes: 0,
        }
    }

    /// Takes in a request.
    pub(crate) fn handle_request(
        &mut self,
        request: &Request,
        limits: &Limits,
        is_envoy: bool,
    ) -> Result<Intake, SessionError> {
        if !self.has_node {
            let has_id = request.node().is_some_and(|node| !node.id.is_empty());
            self.has_node = has_id.then_some(true).ok_or(SessionError::MissingNode)?;
        }
        let resource_type = self.type_of(request.type_url())?;
        let longest = check_names(request, &resource_type, limits)?;
        if !request.is_of(self.variant) {
            return Err(SessionError::WrongStream);
        }
        let is_first_of_type = self.find(&resource_type).is_none();
        self.has_come_back |= is_first_of_type && request.shows_configuration();
        if !is_first_of_type && self.is_misdirected(&resource_type, request) {
            return Ok(Intake { events: vec![], is_first_of_type });
        }
        let state = self.type_state(resource_type, limits)?;
        state.longest_name = state.longest_name.max(u16::try_from(longest).unwrap_or(u16::MAX));
        let kinds = match request {
            Request::Sotw(request) => sotw::handle_request(state, request, is_first_of_type, is_envoy),
            Request::Delta(request) => delta::handle_request(state, request, is_first_of_type),
        };
        check_kept(state, limits)?;
        let resource_type = state.resource_type.clone();
        self.check_unknown(&resource_type, limits)?;
        self.kept_bytes = self.types.iter().map(TypeState::kept_bytes).sum();
        let event = |kind| StreamEvent { resource_type: resource_type.clone(), kind };
        // First, so that nobody sees a client that came back and takes it for a new one.
        let came_back = (is_first_of_type && request.shows_configuration()).then_some(EventKind::CameBack);
        let events = came_back.into_iter().chain(kinds).map(event).collect();
        Ok(Intake { events, is_first_of_type })
    }

    /// Refuses too many names of types that the server does not know, once one of these has changed.
    fn check_unknown(&self, changed: &ResourceType, limits: &Limits) -> Result<(), SessionError> {
        if !is_unknown(changed) {
            return Ok(());
        }
        let unknown = self.types.iter().filter(|state| is_unknown(&state.resource_type));
        let n_kept: usize =
            unknown.map(|state| state.n_kept()).map(|(n_names, n_dropped)| n_names + n_dropped).sum();
        let limit = max_unknown(limits);
        if n_kept > limit { Err(SessionError::TooManyUnknown { limit }) } else { Ok(()) }
    }

    /// About how many names and resources it takes to handle a request.
    pub(crate) fn request_size(&self, request: &Request) -> usize {
        let n_names = request.n_names();
        let Ok(resource_type) = self.type_of(request.type_url()) else { return n_names };
        let Some(state) = self.find(&resource_type) else { return n_names };
        let n_answered = if request.is_answer() { state.ledger.answer_size() } else { 0 };
        n_names + n_answered + state.change_size(request.is_wide())
    }

    /// About how many names and resources it takes to make the next response.
    pub(crate) fn response_size(&self, target: Target<'_>, now: Instant) -> usize {
        self.types.iter().map(|state| state.response_size(target, now)).sum()
    }

    /// Returns `true` if a request of a known type answers another type's response: its names are not this type's (pitfall 10). In
    /// incremental they count nevertheless (R4).
    fn is_misdirected(&self, resource_type: &ResourceType, request: &Request) -> bool {
        let Request::Sotw(request) = request else { return false };
        let mut others = self.types.iter().filter(|state| state.resource_type != *resource_type);
        others.any(|state| state.ledger.responses().has(request.response_nonce))
    }

    /// The type that a request is for (rows A8, A9).
    fn type_of(&self, type_url: &str) -> Result<ResourceType, SessionError> {
        match &self.service {
            None if type_url.is_empty() => Err(SessionError::MissingTypeUrl),
            None => Ok(ResourceType::from_type_url(type_url)),
            Some(service) if type_url.is_empty() || type_url == service.type_url() => Ok(service.clone()),
            Some(service) => Err(SessionError::WrongType {
                expected: service.type_url().to_owned(),
                found: type_url.chars().take(128).collect(),
            }),
        }
    }

    fn type_state(
        &mut self,
        resource_type: ResourceType,
        limits: &Limits,
    ) -> Result<&mut TypeState, SessionError> {
        let position = match self.types.binary_search_by(|state| state.resource_type.cmp(&resource_type)) {
            Ok(position) => position,
            Err(_) if self.types.len() >= limits.max_types => {
                return Err(SessionError::TooManyTypes { limit: limits.max_types });
            }
            Err(position) => {
                self.types.insert(position, TypeState::new(resource_type, self.variant));
                position
            }
        };
        self.types.get_mut(position).ok_or(SessionError::WrongStream)
    }

    /// The client needs these again although they did not change. Tells whether it wants any of them.
    pub(crate) fn renew(&mut self, resource_type: &ResourceType, names: &[Name]) -> bool {
        let variant = self.variant;
        let Some(state) = self.find_mut(resource_type) else { return false };
        let mut is_any_wanted = false;
        for name in names {
            is_any_wanted |= match variant {
                Variant::Sotw => state.renew_once_more(name),
                Variant::Delta => state.renew(name),
            };
        }
        is_any_wanted
    }

    /// Another view is current: everything may be owed.
    pub(crate) fn mark_dirty(&mut self) {
        self.types.iter_mut().for_each(|state| state.is_dirty = true);
    }

    /// The next response, if any is owed. Types that turn out to owe nothing are reported as current.
    ///
    /// Order (R12): heartbeats that are due; then updates by type, what is referred to before what refers to it; then removals,
    /// the other way round. In SotW a complete list that holds something new shows removals too, so there only those that come
    /// alone can wait.
    pub(crate) fn poll_response(
        &mut self,
        target: Target<'_>,
        client: ClientTraits<'_>,
        now: Instant,
        gate: &mut Gate,
        events: &mut Vec<StreamEvent>,
    ) -> Option<Turn> {
        let (position, update) = match self.next_heartbeats(target, client, now) {
            Some(heartbeats) => heartbeats,
            None => loop {
                let next = self.next_update(target, client, gate, events)?;
                let position = next.position;
                if let Some(update) = self.compose(next, target, client) {
                    break (position, update);
                }
            },
        };
        Some(self.finish(position, target, client, update, now, events))
    }

    /// The heartbeats of the first type for which they are due.
    fn next_heartbeats(
        &mut self,
        target: Target<'_>,
        client: ClientTraits<'_>,
        now: Instant,
    ) -> Option<(usize, Update)> {
        for (position, state) in self.types.iter_mut().enumerate() {
            if state.next_heartbeat.is_none_or(|due| due > now) {
                continue;
            }
            let Some(interval) = state.heartbeat_interval(target.table(&state.resource_type)) else {
                state.next_heartbeat = None;
                continue;
            };
            let form = form(self.variant, state, target, client);
            let owed = if state.is_dirty { state.owed(target) } else { None };
            if owed.is_some() && form == Form::SotwWrapped && state.has(Quirk::CompleteLists) {
                // The list that is owed renews every time to live.
                continue;
            }
            state.next_heartbeat = now.checked_add(interval);
            let rest = owed.unwrap_or_default();
            let contents = state.heartbeats(target, form, &rest);
            if !contents.entries.is_empty() {
                return Some((position, Update { contents, changed: vec![], rest, is_heartbeat: true }));
            }
        }
        None
    }

    /// The type that goes next, and the resources that it owes.
    fn next_update(
        &mut self,
        target: Target<'_>,
        client: ClientTraits<'_>,
        gate: &mut Gate,
        events: &mut Vec<StreamEvent>,
    ) -> Option<Next> {
        let mut update: Option<Next> = None;
        let mut removal: Option<Next> = None;
        let is_to_be_sent = |state: &TypeState| state.is_dirty && !state.is_put_off(target);
        for (position, state) in self.types.iter_mut().enumerate().filter(|(_, state)| is_to_be_sent(state)) {
            state.presume_refused(target, &[], client);
            let Some(owed) = state.owed(target) else {
                state.is_dirty = false;
                let comes_with_it = state.settle_without_response(target);
                let is_up_to_date =
                    (comes_with_it || state.asks_for_nothing()).then_some(EventKind::CameUpToDate);
                let is_final = target.is_final(&state.resource_type);
                let current = is_final.then_some(EventKind::Current(target.view.revision()));
                let standing = state.report_rejections();
                for kind in is_up_to_date.into_iter().chain(standing).chain(current) {
                    events.push(StreamEvent { resource_type: state.resource_type.clone(), kind });
                }
                continue;
            };
            if state.owes_only_trials(&owed, client.profile)
                && gate.stops(&state.resource_type, client.culprits)
            {
                continue;
            }
            if let Some(update) = &mut update {
                update.is_alone = false;
                break;
            }
            let is_removal = match self.variant {
                Variant::Sotw => sotw::is_removal(state, &owed),
                Variant::Delta => delta::is_removal(state, &owed),
            };
            let is_alone = removal.is_none();
            let has_removals = !owed.removed.is_empty();
            let next = Next { position, owed, is_alone };
            if is_removal {
                removal = Some(next);
            } else {
                update = Some(next);
                if !has_removals {
                    break;
                }
            }
        }
        update.or(removal.map(|removal| Next { is_alone: true, ..removal }))
    }

    fn compose(&mut self, next: Next, target: Target<'_>, client: ClientTraits<'_>) -> Option<Update> {
        let is_new = self.service.is_none() && !self.has_come_back;
        let state = self.types.get_mut(next.position)?;
        let mut owed = next.owed;
        match self.variant {
            Variant::Sotw => sotw::compose(state, target, owed, client, is_new),
            Variant::Delta => {
                let may_go = next.is_alone || state.has(Quirk::ChangeTogether);
                let later = if may_go { vec![] } else { std::mem::take(&mut owed.removed) };
                delta::compose(state, target, owed, later, client)
            }
        }
    }

    fn finish(
        &mut self,
        position: usize,
        target: Target<'_>,
        client: ClientTraits<'_>,
        update: Update,
        now: Instant,
        events: &mut Vec<StreamEvent>,
    ) -> Turn {
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        let is_final = update.rest.is_empty() && target.is_final(&update.contents.resource_type);
        let sent = sent(nonce, &update.contents, target.view.revision(), is_final);
        let (mut is_trial, mut standing) = (false, None);
        if let Some(state) = self.types.get_mut(position) {
            let takes_heartbeats =
                client.takes_ttl && (self.variant == Variant::Delta || client.takes_wrapped_resources);
            let interval = state.heartbeat_interval(target.table(&state.resource_type));
            let due = interval.filter(|_| takes_heartbeats).and_then(|interval| now.checked_add(interval));
            let renews_all = update.contents.form == Form::SotwWrapped && state.has(Quirk::CompleteLists);
            // A response that does not hold everything must not put off the heartbeats of the rest.
            let before = state.next_heartbeat.filter(|_| !renews_all);
            state.next_heartbeat = due.map(|due| before.map_or(due, |before| before.min(due)));
            state.presume_refused(target, &update.changed, client);
            is_trial = state.record(sent.clone(), target, &update);
            standing = state.report_rejections();
        }
        let resource_type = update.contents.resource_type.clone();
        for kind in std::iter::once(EventKind::Sent(sent)).chain(standing) {
            events.push(StreamEvent { resource_type: resource_type.clone(), kind });
        }
        Turn { response: Response { nonce, contents: update.contents.clone() }, update, is_trial }
    }

    /// About how many bytes are kept of what the client subscribes to, as of its last request.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Takes the resources that the client accepts after it had rejected them.
    pub(crate) fn take_lifted(&mut self) -> Vec<ResourceKey> {
        let of_type = |state: &mut TypeState| {
            let resource_type = state.resource_type.clone();
            let lifted = state.take_lifted().into_iter();
            lifted.map(move |name| ResourceKey { resource_type: resource_type.clone(), name })
        };
        self.types.iter_mut().flat_map(of_type).collect()
    }

    /// How many trials the client has not answered.
    pub(crate) fn n_trials(&self) -> usize {
        self.types.iter().map(TypeState::n_trials).sum()
    }

    /// Returns `true` if a first request of a type showed that the client has configuration.
    pub(crate) fn has_come_back(&self) -> bool {
        self.has_come_back
    }

    /// When the next heartbeat is due.
    pub(crate) fn next_heartbeat(&self) -> Option<Instant> {
        self.types.iter().filter_map(|state| state.next_heartbeat).min()
    }

    /// Returns `true` if it is for one type only, without ADS.
    pub(crate) fn is_per_type(&self) -> bool {
        self.service.is_some()
    }

    /// The state of a type, if the stream ever asked for it.
    pub(crate) fn find_mut(&mut self, resource_type: &ResourceType) -> Option<&mut TypeState> {
        self.types.iter_mut().find(|state| state.resource_type == *resource_type)
    }

    /// The same, to look at.
    pub(crate) fn find(&self, resource_type: &ResourceType) -> Option<&TypeState> {
        self.types.iter().find(|state| state.resource_type == *resource_type)
    }

    /// All types that the stream ever asked for, in order.
    pub(crate) fn types(&self) -> &[TypeState] {
        &self.types
    }

    /// The same, to change.
    pub(crate) fn types_mut(&mut self) -> &mut [TypeState] {
        &mut self.types
    }

    /// Returns `true` if the client has accepted something that the order of sending does not know yet.
    pub(crate) fn has_news(&self) -> bool {
        self.types.iter().any(|state| state.ledger.has_news())
    }
}

fn form(variant: Variant, state: &TypeState, target: Target<'_>, client: ClientTraits<'_>) -> Form {
    match variant {
        Variant::Sotw => sotw::form(state, target, client),
        Variant::Delta => delta::form(state, client),
    }
}

/// Refuses what a client could make grow without bound, before anything is kept of it. Returns the length of the longest name.
fn check_names(
    request: &Request,
    resource_type: &ResourceType,
    limits: &Limits,
) -> Result<usize, SessionError> {
    let (names, dropped, held) = match request {
        Request::Sotw(request) => (&request.resource_names, None, None),
        Request::Delta(request) => (
            &request.resource_names_subscribe,
            Some(&request.resource_names_unsubscribe),
            Some(&request.initial_resource_versions),
        ),
    };
    let n_dropped = dropped.map_or(0, Vec::len);
    let n_held = held.map_or(0, BTreeMap::len);
    let n_most = names.len().max(n_dropped).max(n_held);
    if n_most > limits.max_names_per_type {
        return Err(SessionError::TooManyNames { limit: limits.max_names_per_type });
    }
    if is_unknown(resource_type) && n_most > max_unknown(limits) {
        return Err(SessionError::TooManyUnknown { limit: max_unknown(limits) });
    }
    let limit = limits.max_name_bytes;
    let names = names.iter().chain(dropped.into_iter().flatten());
    let names = names.chain(held.into_iter().flat_map(BTreeMap::keys));
    let length = names.map(String::len).max().unwrap_or_default();
    if length > limit { Err(SessionError::NameTooLong { length, limit }) } else { Ok(length) }
}

/// Returns `true` if the server serves resources of the type only if somebody gave them to it as such.
fn is_unknown(resource_type: &ResourceType) -> bool {
    matches!(resource_type, ResourceType::Other(_))
}

fn max_unknown(limits: &Limits) -> usize {
    usize::try_from(limits.max_unknown_names).unwrap_or(usize::MAX).min(limits.max_names_per_type)
}

/// Refuses what a client made grow by many requests: names that it asks for, and names that it dropped and does not answer for.
fn check_kept(state: &TypeState, limits: &Limits) -> Result<(), SessionError> {
    let limit = limits.max_names_per_type;
    let (n_names, n_dropped) = state.n_kept();
    if n_names > limit {
        return Err(SessionError::TooManyNames { limit });
    }
    if n_names + n_dropped > limit {
        return Err(SessionError::TooManyDropped { n_names, n_dropped, limit });
    }
    Ok(())
}
