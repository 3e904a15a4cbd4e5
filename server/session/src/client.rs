//! One client: its streams, the view that it follows, and what ties its streams together (D13).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::{StreamEvent, StreamId, Variant};
use xds_cache::{HeldBack, Name, Node, Profile, Resource, ResourceType, Version, View, ViewChange};

use crate::error::SessionError;
use crate::limits::Limits;
use crate::order::{Order, is_referred_to, refers};
use crate::request::Request;
use crate::response::Response;
use crate::stream::Stream;
use crate::type_state::{ClientTraits, TypeState, Update};

/// The protocol state of one client.
///
/// Calling order: [`open`](Self::open) a stream; then, whenever something happens, the `handle_` call for it; then
/// [`poll_response`](Self::poll_response) whenever the stream has room to send, until it gives nothing;
/// [`poll_event`](Self::poll_event) and [`poll_wake`](Self::poll_wake) until they give nothing; and
/// [`poll_timeout`](Self::poll_timeout) tells when to call [`handle_timeout`](Self::handle_timeout), which is never for a
/// client without time to live.
///
/// A response is made when it is polled, from the newest view; nothing is queued.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    node: Option<Arc<Node>>,
    view: Option<Arc<View>>,
    streams: BTreeMap<StreamId, Stream>,
    /// Whether the client showed, on a stream that the server knew nothing for, that it holds configuration.
    shows_configuration: bool,
    /// Whether the groups that the client was served from are gone.
    has_lost_groups: bool,
    /// What is not sent yet, and what is served instead.
    order: Order,
    /// Whether that is known of the view; before, nothing of it is sent.
    is_planned: bool,
    events: VecDeque<(StreamId, StreamEvent)>,
    woken: BTreeSet<StreamId>,
}

/// One name that a client wants or may hold, for CSDS.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The type.
    pub resource_type: ResourceType,
    /// The name.
    pub name: Name,
    /// The version that was sent; `None` if none was, or if it is not known what the client kept.
    pub version: Option<Version>,
    /// The resource as it was sent, if the view still has it in that version.
    pub resource: Option<Arc<Resource>>,
}

impl Client {
    /// A client without streams, of which nothing is known.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            node: None,
            view: None,
            streams: BTreeMap::new(),
            shows_configuration: false,
            has_lost_groups: false,
            order: Order::default(),
            is_planned: false,
            events: VecDeque::new(),
            woken: BTreeSet::new(),
        }
    }

    /// Begins a stream. `service` is the type of a per-type stream, `None` for ADS. Nonces count up from `first_nonce`, which
    /// should be different for every stream of the process, so that a nonce of another stream is told apart.
    pub fn open(
        &mut self,
        stream: StreamId,
        variant: Variant,
        service: Option<ResourceType>,
        first_nonce: u64,
    ) {
        self.streams.insert(stream, Stream::new(variant, service, first_nonce));
    }

    /// Takes in a request.
    ///
    /// # Errors
    ///
    /// The client broke the protocol or passed a limit: the stream must be ended. Other streams are not touched.
    pub fn handle_request(&mut self, stream: StreamId, request: Request) -> Result<(), SessionError> {
        let state = self.streams.get_mut(&stream).ok_or(SessionError::WrongStream)?;
        let intake = state.handle_request(&request, &self.limits)?;
        if self.node.is_none() {
            self.node = request.node().cloned();
        }
        let is_unknown = self.view.as_ref().is_none_or(|view| view.is_unmatched());
        let is_of_hosts = |event: &StreamEvent| event.resource_type == ResourceType::VirtualHost;
        if intake.is_first_of_type && intake.events.iter().any(is_of_hosts) {
            let routes =
                self.streams.values().filter_map(|state| state.find(&ResourceType::RouteConfiguration));
            let sent = routes.flat_map(|state| state.subscription.wanted(state.subscription.settled()));
            self.announce_hosts(&sent.collect::<Vec<_>>());
        }
        self.shows_configuration |= is_unknown && intake.is_first_of_type && request.shows_configuration();
        let concerns_order = |event: &StreamEvent| {
            refers(&event.resource_type) || self.asks_in_vain(stream, &event.resource_type)
        };
        self.order.is_due |= self.order.is_open() || intake.events.iter().any(concerns_order);
        self.events.extend(intake.events.into_iter().map(|event| (stream, event)));
        Ok(())
    }

    /// Whether a stream waits for an answer about something that does not exist and that others refer to.
    fn asks_in_vain(&self, stream: StreamId, resource_type: &ResourceType) -> bool {
        let state = self.streams.get(&stream).and_then(|stream| stream.find(resource_type));
        let (Some(state), Some(view)) = (state, &self.view) else { return false };
        is_referred_to(resource_type)
            && state.subscription.unanswered(view.table(resource_type)).next().is_some()
    }

    /// Follows another view from now on.
    pub fn handle_view(&mut self, view: Arc<View>, now: Instant) {
        if self.view.as_ref().is_some_and(|current| Arc::ptr_eq(current, &view)) {
            return;
        }
        if !view.is_unmatched() {
            self.shows_configuration = false;
            self.has_lost_groups = false;
        } else if let Some(current) = &self.view {
            self.has_lost_groups |= !current.is_unmatched() && current.key() != view.key();
        }
        self.settle(now);
        self.view = Some(view);
        self.is_planned = false;
        self.order.is_due = true;
        self.streams.values_mut().for_each(Stream::mark_dirty);
    }

    /// What a client that has no room for more was not sent of a view, because there is nothing of it to send, counts as known to it
    /// before the next view comes: it may ask for what it has just learned of.
    fn settle(&mut self, now: Instant) {
        let view = self.view.clone().filter(|_| self.is_planned && !self.is_withheld());
        let (Some(view), Some(stream)) = (view, self.first_open()) else { return };
        self.plan(stream, &view, now);
        let target = self.order.target(&view);
        for (stream, state) in &mut self.streams {
            let mut events = Vec::new();
            state.settle(target, &mut events);
            if !state.is_closed() {
                self.events.extend(events.into_iter().map(|event| (*stream, event)));
            }
        }
    }

    /// A stream that the client has open.
    fn first_open(&self) -> Option<StreamId> {
        self.streams.iter().find(|(_, state)| !state.is_closed()).map(|(stream, _)| *stream)
    }

    /// Ends a stream.
    pub fn handle_close(&mut self, stream: StreamId) {
        if let Some(mut closed) = self.streams.remove(&stream) {
            self.order.handle_close(&closed);
            closed.close();
            if closed.types().iter().any(|state| !self.is_known_elsewhere(state)) {
                self.streams.insert(stream, closed);
            }
        }
        self.woken.remove(&stream);
        let Some(open) = self.first_open() else { return self.streams.clear() };
        if self.order.is_open() {
            // What waited for its disuse is sent on another one.
            self.order.is_due = true;
            self.woken.insert(open);
        }
    }

    /// Whether another stream knows what there was of a type.
    fn is_known_elsewhere(&self, ended: &TypeState) -> bool {
        self.streams.values().any(|stream| {
            stream.find(&ended.resource_type).is_some_and(|state| {
                let version = |state: &TypeState| state.subscription.settled().version();
                stream.is_closed() || version(state) == version(ended)
            })
        })
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due =
            self.streams.iter().filter(|(_, state)| state.next_heartbeat().is_some_and(|due| due <= now));
        self.woken.extend(due.map(|(stream, _)| *stream));
        if self.order.timeout().is_some_and(|due| due <= now) {
            self.order.is_due = true;
            self.woken.extend(self.first_open());
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called; `None` while nothing waits for time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_withheld() {
            return None;
        }
        let heartbeats = self.streams.values().filter_map(Stream::next_heartbeat);
        heartbeats.chain(self.order.timeout()).min()
    }

    /// The next response of a stream, made from the newest view; `None` if the client has everything.
    pub fn poll_response(&mut self, stream: StreamId, now: Instant) -> Option<Response> {
        let view = Arc::clone(self.view.as_ref()?);
        let node = Arc::clone(self.node.as_ref()?);
        if self.is_withheld() {
            return None;
        }
        let traits = ClientTraits::new(&node, &view, self.limits.max_response_bytes);
        let turn = loop {
            self.plan(stream, &view, now);
            let mut events = Vec::new();
            let target = self.order.target(&view);
            for closed in self.streams.values_mut().filter(|stream| stream.is_closed()) {
                closed.settle(target, &mut Vec::new());
            }
            let state = self.streams.get_mut(&stream)?;
            let turn = state.poll_response(target, traits, now, &mut events);
            // To have nothing to send can be news too.
            self.order.is_due |= turn.is_none() && state.has_news();
            self.events.extend(events.into_iter().map(|event| (stream, event)));
            if turn.is_some() || !self.order.is_due {
                break turn?;
            }
        };
        self.renew_referents(stream, &turn.update, traits.profile);
        Some(turn.response)
    }

    /// Finds what has to wait, if something happened that may change it. What is no more has to be sent, maybe on other streams.
    fn plan(&mut self, stream: StreamId, view: &Arc<View>, now: Instant) {
        if !self.order.is_due {
            return;
        }
        self.is_planned = true;
        let outcome = self.order.plan(view, &mut self.streams, &self.limits, now);
        for (other, state) in &mut self.streams {
            let is_closed = state.is_closed();
            for state in state.types_mut().iter_mut().filter(|s| outcome.changed.contains(&s.resource_type)) {
                state.is_dirty = true;
                if *other != stream && !is_closed {
                    self.woken.insert(*other);
                }
            }
        }
        let event = |(resource_type, kind)| (stream, StreamEvent { resource_type, kind });
        self.events.extend(outcome.events.into_iter().map(event));
    }

    /// What was sent makes the client drop or wait for other things, which are owed again though they did not change: the
    /// endpoints of a changed cluster (R14, row A128), the virtual hosts of a changed route configuration (row A119).
    fn renew_referents(&mut self, sender: StreamId, update: &Update, profile: Profile) {
        let sent_type = &update.contents.resource_type;
        let referent;
        let names: Vec<Name>;
        if *sent_type == ResourceType::Cluster && profile == Profile::Envoy {
            referent = ResourceType::ClusterLoadAssignment;
            names =
                update.changed.iter().flat_map(|cluster| cluster.references_to(&referent).cloned()).collect();
        } else if *sent_type == ResourceType::RouteConfiguration {
            referent = ResourceType::VirtualHost;
            let routes: BTreeSet<&str> = update.changed.iter().map(|route| &**route.name()).collect();
            let subscribed = self.streams.values().flat_map(|state| state.names(&referent));
            let of_routes =
                subscribed.filter(|name| route_of(name).is_some_and(|route| routes.contains(route)));
            names = of_routes.cloned().collect();
        } else {
            return;
        }
        for (stream, state) in &mut self.streams {
            let Some(state) = state.find_mut(&referent) else { continue };
            let is_owed = names.iter().fold(false, |is_owed, name| state.renew(name) | is_owed);
            if is_owed && *stream != sender {
                self.woken.insert(*stream);
            }
        }
        if referent == ResourceType::VirtualHost {
            self.announce_hosts(&update.changed);
        }
    }

    /// Envoy has a route configuration whose hosts come on demand ready only when it hears anything of them, and asks for none before
    /// the first request: without this it would wait for the end of its `initial_fetch_timeout`.
    fn announce_hosts(&mut self, routes: &[Arc<Resource>]) {
        let hosts = ResourceType::VirtualHost;
        let awaited: Vec<&Name> = routes.iter().flat_map(|route| route.references_to(&hosts)).collect();
        for (stream, state) in self.streams.iter_mut().filter(|(_, stream)| !stream.is_closed()) {
            let Some(state) = state.find_mut(&hosts).filter(|state| !state.subscription.is_wildcard()) else {
                continue;
            };
            // What it asks for it hears of anyway.
            let asked: BTreeSet<_> =
                state.subscription.names().iter().filter_map(|name| route_of(name)).collect();
            let is_unheard = |name: &&&Name| route_of(name).is_some_and(|route| !asked.contains(route));
            let awaited: Vec<Name> = awaited.iter().filter(is_unheard).map(|name| Arc::clone(name)).collect();
            if !awaited.is_empty() {
                state.awaited.get_or_insert_default().extend(awaited);
                state.is_dirty = true;
                self.woken.insert(*stream);
            }
        }
    }

    /// What happened, for the status board; in order.
    pub fn poll_event(&mut self) -> Option<(StreamId, StreamEvent)> {
        self.events.pop_front()
    }

    /// A stream that got something to send by what happened on another one, or by time.
    pub fn poll_wake(&mut self) -> Option<StreamId> {
        self.woken.pop_first()
    }

    /// The client's identity; known from its first request on.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// The view that the client follows.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Whether nothing is sent because the server knows nothing of the node and the client holds configuration, which an
    /// answer would wipe (D3).
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        let is_unmatched = self.view.as_ref().is_some_and(|view| view.is_unmatched());
        is_unmatched && (self.shows_configuration || self.has_lost_groups)
    }

    /// What the client is not sent yet, and why.
    #[must_use]
    pub fn held_back(&self) -> &[HeldBack] {
        self.order.held_back()
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.streams.is_empty()
    }

    /// The changed types of which the client subscribes to a changed resource.
    #[must_use]
    pub fn concerned(&self, change: &ViewChange) -> Vec<ResourceType> {
        let concerns = |resource_type: &ResourceType| {
            let changes = change.changes.get(resource_type);
            changes.is_some_and(|changes| {
                self.streams.values().any(|stream| {
                    stream.find(resource_type).is_some_and(|state| {
                        let Some(view) = &self.view else { return false };
                        let (table, subscription) = (view.table(resource_type), &state.subscription);
                        let derives = table.has_host_patterns() || subscription.has_host_patterns();
                        let covers = |resource: &Arc<Resource>| {
                            subscription.covers(table, resource)
                                || subscription.covers_host_of(table, resource)
                                || ((derives || resource.is_host_pattern())
                                    && subscription.may_derive_from(table, resource.name()))
                        };
                        let covers_name = |name: &Name| {
                            subscription.covers_name(name)
                                || (derives && subscription.may_derive_from(table, name))
                        };
                        changes.changed.iter().any(covers) || changes.removed.iter().any(covers_name)
                    })
                })
            })
        };
        change.changes.keys().filter(|resource_type| concerns(resource_type)).cloned().collect()
    }

    /// Everything that a stream's client wants or may hold, by type.
    #[must_use]
    pub fn holdings(&self, stream: StreamId) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for state in self.streams.get(&stream).into_iter().flat_map(Stream::types) {
            let mut versions = state.subscription.held();
            for name in state.subscription.names() {
                versions.entry(Arc::clone(name)).or_insert(None);
            }
            for (name, version) in versions {
                let settled = state.subscription.settled();
                let resource = settled.resolve(&name).filter(|resource| Some(resource.version()) == version);
                let view = self.view.as_ref();
                let resource =
                    resource.or_else(|| view.and_then(|view| view.resolve(&state.resource_type, &name)));
                holdings.push(Holding {
                    resource_type: state.resource_type.clone(),
                    name,
                    version,
                    resource: resource
                        .filter(|resource| version.is_none_or(|version| version == resource.version())),
                });
            }
        }
        holdings
    }
}

/// The route configuration of a virtual host's name: what stands before the last `/` (row A116).
fn route_of(virtual_host: &str) -> Option<&str> {
    virtual_host.rsplit_once('/').map(|(route, _)| route)
}
