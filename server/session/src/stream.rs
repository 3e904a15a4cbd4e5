//! One stream: its types, its nonces, and what is sent next.

use std::time::Instant;

use xds_cache::status::{EventKind, StreamEvent, Variant};
use xds_cache::{Name, ResourceType, View};

use crate::error::SessionError;
use crate::limits::Limits;
use crate::request::Request;
use crate::response::Response;
use crate::type_state::{ClientTraits, TypeState, Update, sent};
use crate::{delta, sotw};

/// One stream of a client.
#[derive(Debug)]
pub(crate) struct Stream {
    variant: Variant,
    /// The type of a per-type stream; `None` for ADS.
    service: Option<ResourceType>,
    /// Whether the first request came and carried a node.
    has_node: bool,
    next_nonce: u64,
    /// Sorted by type, which is the order of sending (R12).
    types: Vec<TypeState>,
}

/// What a request was.
pub(crate) struct Intake {
    /// What to tell the status board.
    pub(crate) events: Vec<StreamEvent>,
    /// Whether it was the stream's first one for its type.
    pub(crate) is_first_of_type: bool,
}

/// A response, and what it means for the rest of the client.
pub(crate) struct Turn {
    pub(crate) response: Response,
    /// The resources that are news to the client.
    pub(crate) update: Update,
}

impl Stream {
    pub(crate) fn new(variant: Variant, service: Option<ResourceType>, first_nonce: u64) -> Self {
        Self { variant, service, has_node: false, next_nonce: first_nonce, types: vec![] }
    }

    /// Takes in a request.
    pub(crate) fn handle_request(
        &mut self,
        request: &Request,
        limits: &Limits,
    ) -> Result<Intake, SessionError> {
        if !self.has_node {
            let has_id = request.node().is_some_and(|node| !node.id.is_empty());
            self.has_node = has_id.then_some(true).ok_or(SessionError::MissingNode)?;
        }
        let resource_type = self.type_of(request.type_url())?;
        check_names(request, limits)?;
        let variant = self.variant;
        let state = self.type_state(resource_type, limits)?;
        let is_first_of_type = !state.is_known;
        let kinds = match (variant, request) {
            (Variant::Sotw, Request::Sotw(request)) => sotw::handle_request(state, request),
            (Variant::Delta, Request::Delta(request)) => delta::handle_request(state, request),
            (Variant::Sotw, Request::Delta(_)) | (Variant::Delta, Request::Sotw(_)) => {
                return Err(SessionError::WrongStream);
            }
        };
        let n_names = state.subscription.names().len();
        if n_names > limits.max_names_per_type {
            return Err(SessionError::TooManyNames { limit: limits.max_names_per_type });
        }
        let resource_type = state.resource_type.clone();
        let event = |kind| StreamEvent { resource_type: resource_type.clone(), kind };
        Ok(Intake { events: kinds.into_iter().map(event).collect(), is_first_of_type })
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
                self.types.insert(position, TypeState::new(resource_type));
                position
            }
        };
        self.types.get_mut(position).ok_or(SessionError::WrongStream)
    }

    /// Another view is current: everything may be owed.
    pub(crate) fn mark_dirty(&mut self) {
        self.types.iter_mut().for_each(|state| state.is_dirty = true);
    }

    /// The next response, if any is owed. Types that turn out to owe nothing are reported as current.
    ///
    /// Order (R12): updates by type, what is referred to before what refers to it; then removals, the other way round; then
    /// heartbeats.
    pub(crate) fn poll_response(
        &mut self,
        view: &View,
        client: ClientTraits,
        now: Instant,
        events: &mut Vec<StreamEvent>,
    ) -> Option<Turn> {
        while let Some(position) = self.next_type(view, events) {
            let Some(update) = self.compose(position, view, client) else { continue };
            return Some(self.finish(position, view, client, update, now, events));
        }
        let position =
            self.types.iter().position(|state| state.next_heartbeat.is_some_and(|due| due <= now))?;
        let state = self.types.get_mut(position)?;
        if state.heartbeat_interval(view.table(&state.resource_type)).is_none() {
            state.next_heartbeat = None;
            return None;
        }
        let contents = state.heartbeats(view, form(self.variant, state, view, client));
        let update = Update { contents, changed: vec![], is_final: true };
        Some(self.finish(position, view, client, update, now, events))
    }

    /// Which type goes next.
    fn next_type(&mut self, view: &View, events: &mut Vec<StreamEvent>) -> Option<usize> {
        let mut removal = None;
        for (position, state) in self.types.iter_mut().enumerate() {
            if !state.is_dirty {
                continue;
            }
            let Some(owed) = state.owed(view) else {
                state.is_dirty = false;
                let kind = EventKind::Current(view.revision());
                events.push(StreamEvent { resource_type: state.resource_type.clone(), kind });
                continue;
            };
            let is_removal = match self.variant {
                Variant::Sotw => sotw::is_removal(state, &owed),
                Variant::Delta => delta::is_removal(state, &owed),
            };
            if !is_removal {
                return Some(position);
            }
            removal = Some(position);
        }
        removal
    }

    fn compose(&mut self, position: usize, view: &View, client: ClientTraits) -> Option<Update> {
        let state = self.types.get_mut(position)?;
        let owed = state.owed(view)?;
        match self.variant {
            Variant::Sotw => sotw::compose(state, view, owed, client),
            Variant::Delta => Some(delta::compose(state, view, owed, client)),
        }
    }

    fn finish(
        &mut self,
        position: usize,
        view: &View,
        client: ClientTraits,
        update: Update,
        now: Instant,
        events: &mut Vec<StreamEvent>,
    ) -> Turn {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        let sent = sent(nonce, &update.contents, view.revision(), update.is_final);
        if let Some(state) = self.types.get_mut(position) {
            let interval = state.heartbeat_interval(view.table(&state.resource_type));
            let takes_heartbeats =
                client.takes_ttl && (self.variant == Variant::Delta || client.takes_wrapped_resources);
            state.next_heartbeat = interval.filter(|_| takes_heartbeats).map(|interval| now + interval);
            state.remember(sent.clone(), self.variant == Variant::Sotw);
        }
        let resource_type = update.contents.resource_type.clone();
        events.push(StreamEvent { resource_type, kind: EventKind::Sent(sent) });
        Turn { response: Response { nonce, contents: update.contents.clone() }, update }
    }

    /// When the next heartbeat is due.
    pub(crate) fn next_heartbeat(&self) -> Option<Instant> {
        self.types.iter().filter_map(|state| state.next_heartbeat).min()
    }

    /// What the stream knows of a type, if it ever asked for it.
    pub(crate) fn find_mut(&mut self, resource_type: &ResourceType) -> Option<&mut TypeState> {
        self.types.iter_mut().find(|state| state.resource_type == *resource_type)
    }

    /// The same, to look at.
    pub(crate) fn find(&self, resource_type: &ResourceType) -> Option<&TypeState> {
        self.types.iter().find(|state| state.resource_type == *resource_type)
    }

    /// The names that the stream asks for one by one.
    pub(crate) fn names(&self, resource_type: &ResourceType) -> impl Iterator<Item = &Name> {
        self.find(resource_type).into_iter().flat_map(|state| state.subscription.names())
    }

    /// All types that the stream ever asked for, in order.
    pub(crate) fn types(&self) -> &[TypeState] {
        &self.types
    }
}

fn form(variant: Variant, state: &TypeState, view: &View, client: ClientTraits) -> crate::Form {
    match variant {
        Variant::Sotw => sotw::form(state, view, client),
        Variant::Delta => delta::form(client),
    }
}

/// Refuses what a client could make grow without bound, before anything is kept of it.
fn check_names(request: &Request, limits: &Limits) -> Result<(), SessionError> {
    let (names, more): (&[String], &[String]) = match request {
        Request::Sotw(request) => (&request.resource_names, &[]),
        Request::Delta(request) => (&request.resource_names_subscribe, &request.resource_names_unsubscribe),
    };
    let n_held = match request {
        Request::Sotw(_) => 0,
        Request::Delta(request) => request.initial_resource_versions.len(),
    };
    if names.len() > limits.max_names_per_type || n_held > limits.max_names_per_type {
        return Err(SessionError::TooManyNames { limit: limits.max_names_per_type });
    }
    let limit = limits.max_name_bytes;
    match names.iter().chain(more).map(String::len).find(|length| *length > limit) {
        Some(length) => Err(SessionError::NameTooLong { length, limit }),
        None => Ok(()),
    }
}
