//! One client: its streams, the view that it follows, and what ties its streams together (D13).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::{EventKind, StreamEvent, StreamId, Variant};
use xds_cache::{
    Changes, HeldBack, Name, Node, Profile, Resource, ResourceKey, ResourceType, TypeTable, Version, View,
    ViewChange,
};

use crate::culprits::{Culprits, KnownCulprits};
use crate::error::SessionError;
use crate::limits::Limits;
use crate::order::Order;
use crate::quirks::Quirk;
use crate::references::{ROWS, Row, all_hosts, is_referred_to, refers, rows_from, rows_to};
use crate::request::Request;
use crate::response::Response;
use crate::stream::Stream;
use crate::target::Target;
use crate::trials::{Gate, Room, Trials};
use crate::type_state::{ClientTraits, ENVOY, TypeState, Update};

/// The protocol state of one client.
///
/// Calling order: [`open`](Self::open) a stream; then, whenever something happens, the `handle_` call for it; then
/// [`poll_response`](Self::poll_response) whenever the stream has room to send, until it gives nothing;
/// [`poll_event`](Self::poll_event) and [`poll_wake`](Self::poll_wake) until they give nothing; and
/// [`poll_timeout`](Self::poll_timeout) tells when to call [`handle_timeout`](Self::handle_timeout), which is never for a
/// client without time to live.
///
/// A response is made when it is polled, from the newest view; nothing is queued.
#[derive(Clone, Debug)]
pub struct Client {
    limits: Limits,
    /// What clients of its program reject.
    culprits: Arc<Culprits>,
    /// How much of that had been found when it connected.
    n_culprits: u64,
    node: Option<Arc<Node>>,
    view: Option<Arc<View>>,
    streams: BTreeMap<StreamId, Stream>,
    /// The client showed, on a stream that the server knew nothing for, that it holds configuration.
    shows_configuration: bool,
    /// The groups that the client was served from are gone.
    has_lost_groups: bool,
    /// The resources that are not sent yet, and those that are served instead.
    order: Order,
    /// The sum of [`Stream::kept_bytes`] over the streams.
    kept_bytes: usize,
    /// Something was asked for since the last response that may not exist.
    may_ask_in_vain: bool,
    /// The search for resources that it refuses; few clients have any.
    trials: Option<Box<Trials>>,
    /// Events, at most a few for each request and resource; taken after every call.
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
    /// A client without streams, of which nothing is known, alone.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::sharing(limits, Arc::default())
    }

    /// A client without streams, of which nothing is known. It shares what it finds of rejected resources with the others.
    #[must_use]
    pub fn sharing(limits: Limits, culprits: Arc<Culprits>) -> Self {
        Self {
            limits,
            n_culprits: culprits.n_found(),
            culprits,
            node: None,
            view: None,
            streams: BTreeMap::new(),
            shows_configuration: false,
            has_lost_groups: false,
            order: Order::default(),
            kept_bytes: 0,
            may_ask_in_vain: false,
            trials: None,
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
        let before = state.kept_bytes();
        let clusters = self.accepted_clusters_if_any_waits(stream);
        let Some(state) = self.streams.get_mut(&stream) else { return Err(SessionError::WrongStream) };
        let node = self.node.as_deref().or(request.node().map(|node| &**node));
        let is_envoy = node.is_some_and(|node| node.user_agent_name == ENVOY);
        let intake = state.handle_request(&request, &self.limits, is_envoy)?;
        self.kept_bytes = self.kept_bytes - before + state.kept_bytes();
        let lifted = state.take_lifted();
        if self.node.is_none() {
            self.node = request.node().cloned();
        }
        let is_unknown = self.view.as_ref().is_none_or(|view| view.is_unmatched());
        if intake.is_first_of_type {
            self.announce_known_hosts(stream, &intake.events);
        }
        if !lifted.is_empty() {
            self.retry_referrers(stream, &lifted, true);
        }
        if let Some(before) = clusters {
            self.retry_referrers_of_new_clusters(stream, &before);
        }
        let came_back = intake.is_first_of_type && request.shows_configuration();
        self.shows_configuration |= is_unknown && came_back;
        let concerns_order = |event: &StreamEvent| refers(&event.resource_type);
        self.order.is_due |= self.order.is_open() || came_back || intake.events.iter().any(concerns_order);
        self.may_ask_in_vain |= !intake.events.is_empty();
        if let Some(trials) = self.trials.as_mut().filter(|_| request.is_answer()) {
            self.woken.append(&mut trials.take_waiting());
        }
        self.share_rejections(stream, &intake.events);
        self.events.extend(intake.events.into_iter().map(|event| (stream, event)));
        Ok(())
    }

    /// Tells other clients what this one rejects, and that it searches no more.
    fn share_rejections(&mut self, stream: StreamId, events: &[StreamEvent]) {
        let Some(node) = &self.node else { return };
        let known = KnownCulprits { all: &self.culprits, node, stream, n_before: 0 };
        for StreamEvent { resource_type, kind } in events {
            let EventKind::Standing(_) = kind else { continue };
            let state = self.streams.get_mut(&stream).and_then(|stream| stream.find_mut(resource_type));
            let (found, is_searching) = state.map_or_else(Default::default, TypeState::take_found);
            for (name, version, words) in found {
                let key = ResourceKey { resource_type: resource_type.clone(), name };
                known.add(key, version, &words);
            }
            if !is_searching {
                known.end_search(resource_type);
            }
        }
    }

    /// Follows another view from now on.
    pub fn handle_view(&mut self, view: Arc<View>) {
        if self.view.as_ref().is_some_and(|current| Arc::ptr_eq(current, &view)) {
            return;
        }
        if !view.is_unmatched() {
            self.shows_configuration = false;
            self.has_lost_groups = false;
        } else if let Some(current) = &self.view {
            self.has_lost_groups |= !current.is_unmatched() && current.key() != view.key();
        }
        self.view = Some(view);
        self.order.is_due = true;
        self.streams.values_mut().for_each(Stream::mark_dirty);
    }

    /// Ends a stream.
    pub fn handle_close(&mut self, stream: StreamId) {
        if let Some(closed) = self.streams.remove(&stream) {
            self.kept_bytes -= closed.kept_bytes();
            self.order.handle_close(&closed);
        }
        self.woken.remove(&stream);
        if self.order.is_open() {
            // Resources that waited for its disuse are sent on another one.
            self.order.is_due = true;
            self.woken.extend(self.streams.keys().next());
        }
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due =
            self.streams.iter().filter(|(_, state)| state.next_heartbeat().is_some_and(|due| due <= now));
        self.woken.extend(due.map(|(stream, _)| *stream));
        if let Some(trials) =
            self.trials.as_mut().filter(|trials| trials.timeout().is_some_and(|due| due <= now))
        {
            self.woken.append(&mut trials.take_waiting());
        }
        if self.order.timeout().is_some_and(|due| due <= now) {
            self.order.is_due = true;
            self.woken.extend(self.streams.keys().next());
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called; `None` while nothing waits for time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_withheld() {
            return None;
        }
        let heartbeats = self.streams.values().filter_map(Stream::next_heartbeat);
        let trials = self.trials.as_ref().and_then(|trials| trials.timeout());
        heartbeats.chain(self.order.timeout()).chain(trials).min()
    }

    /// The next response of a stream, made from the newest view; `None` if the client has everything.
    pub fn poll_response(&mut self, stream: StreamId, now: Instant) -> Option<Response> {
        let view = Arc::clone(self.view.as_ref()?);
        let node = Arc::clone(self.node.as_ref()?);
        if self.is_withheld() {
            return None;
        }
        let culprits = Arc::clone(&self.culprits);
        let has_come_back = self.streams.values().any(Stream::has_come_back);
        let n_before = if has_come_back { self.n_culprits } else { 0 };
        let known = KnownCulprits { all: &culprits, node: &node, stream, n_before };
        let traits = ClientTraits::new(known, &view, self.limits.max_response_bytes);
        self.review_lists(stream, &view, known, now);
        let turn = loop {
            self.plan(stream, &view, now);
            let mut events = Vec::new();
            let mut gate = self.gate(now);
            let target = self.order.target(&view);
            let state = self.streams.get_mut(&stream)?;
            let turn = state.poll_response(target, traits, now, &mut gate, &mut events);
            if gate.is_waited_at {
                self.trials.get_or_insert_default().wait(stream, gate.opens_at());
            }
            // To have nothing to send can be news too.
            self.order.is_due |= turn.is_none() && state.has_news();
            self.events.extend(events.into_iter().map(|event| (stream, event)));
            if turn.is_some() || !self.order.is_due {
                break turn?;
            }
        };
        if turn.is_trial {
            self.trials.get_or_insert_default().note(now);
        }
        self.renew_referents(stream, &turn.update, traits.profile);
        Some(turn.response)
    }

    /// Looks after the search of lists that were refused whole: forgets what the view has otherwise by now, sets apart what other clients are
    /// known to refuse, and pauses while there is no room for a trial.
    fn review_lists(&mut self, stream: StreamId, view: &View, known: KnownCulprits<'_>, now: Instant) {
        let mut gate = self.gate(now);
        for (id, stream) in &mut self.streams {
            let known = KnownCulprits { stream: *id, ..known };
            for state in stream.types_mut().iter_mut().filter(|state| state.is_substituting()) {
                state.review_rejections(Target::new(view, None));
                let others_refuse = known.known().filter(|_| state.is_searching());
                let served = view.table(&state.resource_type);
                self.order.is_due |= others_refuse.is_some_and(|refused| state.set_apart(served, &refused));
                if state.may_offer() {
                    let is_paused = gate.stops(&state.resource_type, known);
                    self.order.is_due |= state.pause(is_paused);
                }
            }
        }
        if gate.is_waited_at {
            self.trials.get_or_insert_default().wait(stream, gate.opens_at());
        }
    }

    /// The gate for trials: responses that offer again a part of a rejected one.
    fn gate(&self, now: Instant) -> Gate {
        let n_in_flight = || self.streams.values().map(Stream::n_trials).sum();
        let room = self.trials.as_ref().map_or(Room::Now, |trials| trials.room(n_in_flight(), now));
        Gate::new(room, now)
    }

    /// Finds what has to wait, if something happened that may change it. What is no more has to be sent, maybe on other streams.
    fn plan(&mut self, stream: StreamId, view: &Arc<View>, now: Instant) {
        let may_ask_in_vain = std::mem::take(&mut self.may_ask_in_vain);
        let is_due = self.order.is_due || (may_ask_in_vain && self.asks_in_vain(view));
        if !is_due {
            return;
        }
        let outcome = self.order.plan(view, &mut self.streams, &self.limits, now);
        for (other, state) in &mut self.streams {
            for state in state.types_mut().iter_mut().filter(|s| outcome.changed.contains(&s.resource_type)) {
                state.is_dirty = true;
                if *other != stream {
                    self.woken.insert(*other);
                }
            }
        }
        let event = |(resource_type, kind)| (stream, StreamEvent { resource_type, kind });
        self.events.extend(outcome.events.into_iter().map(event));
    }

    /// About how many names and resources [`handle_request`](Self::handle_request) would look at: what is in the request, and what it
    /// concerns of the stream. For whoever must not be held up.
    #[must_use]
    pub fn request_size(&self, stream: StreamId, request: &Request) -> usize {
        let of_stream = self.streams.get(&stream).map(|stream| stream.request_size(request));
        of_stream.unwrap_or_else(|| request.n_names())
    }

    /// About how many names and resources [`poll_response`](Self::poll_response) would look at; 0 if there is nothing to find. For
    /// whoever must not be held up.
    #[must_use]
    pub fn response_size(&self, stream: StreamId, now: Instant) -> usize {
        let Some(view) = self.view.as_ref().filter(|_| self.node.is_some() && !self.is_withheld()) else {
            return 0;
        };
        let Some(state) = self.streams.get(&stream) else { return 0 };
        let plan_size = |state: &TypeState| state.plan_size(view.table(&state.resource_type));
        let may_plan = self.order.is_due || self.may_ask_in_vain;
        let states = self.streams.values().filter(|_| may_plan).flat_map(Stream::types);
        state.response_size(self.order.target(view), now) + states.map(plan_size).sum::<usize>()
    }

    /// How many names its streams ask for.
    #[must_use]
    pub fn n_names(&self) -> usize {
        let types = self.streams.values().flat_map(Stream::types);
        types.map(|state| state.wants.names().len()).sum()
    }

    /// About how many bytes are kept of what its streams subscribe to, as of the last request of each.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns `true` if a stream waits for an answer about something that does not exist and that others refer to.
    fn asks_in_vain(&self, view: &View) -> bool {
        let asks_in_vain = |state: &TypeState| {
            let of = &state.resource_type;
            is_referred_to(of) && state.unanswered(view.table(of)).next().is_some()
        };
        self.streams.values().flat_map(Stream::types).any(asks_in_vain)
    }

    /// An update makes the client drop or wait for other resources, so these are owed again though they did not change: the endpoints
    /// of a changed cluster (R14, row A128), the virtual hosts of a changed route configuration (row A119).
    fn renew_referents(&mut self, sender: StreamId, update: &Update, profile: Profile) {
        for row in rows_from(&update.contents.resource_type) {
            let has_hosts = Quirk::NamesAreHosts.is_of(&row.to);
            let names: Vec<Name> = if has_hosts {
                // With one that has its hosts within itself the client drops those that it asked for.
                let on_demand = |route: &&Arc<Resource>| route.references().of_type(&row.to).next().is_some();
                let routes = update.changed.iter().filter(on_demand);
                routes.flat_map(|route| self.hosts_asked_for(&row.to, route)).collect()
            } else if Quirk::WarmedAnew.is_of_profile(&row.to, profile) {
                update.changed.iter().flat_map(|from| from.references().of_type(&row.to)).cloned().collect()
            } else {
                continue;
            };
            self.renew(sender, &row.to, &names);
            for in_turn in
                rows_from(&row.to).filter(|row| Quirk::WarmedInTurn.is_of_profile(&row.to, profile))
            {
                let Some(table) = self.view.as_ref().map(|view| view.table(&row.to)) else { return };
                let renewed = names.iter().filter_map(|name| table.find(name));
                let named: Vec<Name> =
                    renewed.flat_map(|from| from.references().of_type(&in_turn.to)).cloned().collect();
                self.renew(sender, &in_turn.to, &named);
            }
            if has_hosts {
                let routes = update.changed.iter();
                let all = routes.flat_map(|route| route.references().of_type(&row.to)).cloned();
                self.announce_hosts(&row.to, &all.collect::<Vec<_>>());
            }
        }
    }

    /// Owes these again on every stream that asks for them.
    fn renew(&mut self, sender: StreamId, of: &ResourceType, names: &[Name]) {
        for (stream, state) in &mut self.streams {
            if state.renew(of, names) && *stream != sender {
                self.woken.insert(*stream);
            }
        }
    }

    /// The client accepts what it had rejected. An Envoy rejects a listener or a cluster also because of a secret or an extension that it
    /// rejected before, so what it rejects and refers to these is offered again.
    ///
    /// `may_race`: what refers to them may have been on its way to the client meanwhile.
    fn retry_referrers(&mut self, accepting: StreamId, lifted: &[ResourceKey], may_race: bool) {
        let Some(view) = &self.view else { return };
        for to in lifted {
            for row in rows_to(&to.resource_type) {
                let referrers: Vec<&Arc<Resource>> = view.table(&row.from).referrers(to).collect();
                for (stream, state) in &mut self.streams {
                    let Some(state) = state.find_mut(&row.from) else { continue };
                    let mut is_owed = false;
                    for referrer in &referrers {
                        let is_rejected = state.retry(referrer.name());
                        is_owed |= is_rejected;
                        if may_race && !is_rejected {
                            state.ledger.note_untried(referrer.name());
                        }
                    }
                    if is_owed && *stream != accepting {
                        self.woken.insert(*stream);
                    }
                }
            }
        }
    }

    /// The clusters that a stream has accepted, if the client rejects anything that may lead to clusters.
    fn accepted_clusters_if_any_waits(&self, stream: StreamId) -> Option<Arc<TypeTable>> {
        let is_waiting = |of: &ResourceType| {
            let mut states = self.streams.values().filter_map(|stream| stream.find(of));
            states.any(TypeState::is_rejecting)
        };
        rows_to(&ResourceType::Cluster).any(|row| is_waiting(&row.from)).then_some(())?;
        // Of a client that came back, nothing is known before its first answer.
        Some(self.accepted_clusters(stream).cloned().unwrap_or_default())
    }

    fn accepted_clusters(&self, stream: StreamId) -> Option<&Arc<TypeTable>> {
        self.streams.get(&stream)?.find(&ResourceType::Cluster)?.ledger.accepted_last()
    }

    /// An Envoy rejects a listener with routes of its own that lead to a cluster which it does not have, so this is offered again once the
    /// Envoy has that.
    fn retry_referrers_of_new_clusters(&mut self, stream: StreamId, before: &Arc<TypeTable>) {
        let Some(now) = self.accepted_clusters(stream).filter(|now| !Arc::ptr_eq(now, before)) else {
            return;
        };
        let changes = now.changes_since(before);
        let new = changes.changed.iter().filter(|cluster| before.find(cluster.name()).is_none());
        let new: Vec<ResourceKey> = new.map(|cluster| cluster.key().clone()).collect();
        self.retry_referrers(stream, &new, false);
    }

    /// The hosts of a route configuration that the client asks for.
    fn hosts_asked_for(&self, hosts: &ResourceType, route: &Resource) -> Vec<Name> {
        let states = self.streams.values().filter_map(|stream| stream.find(hosts));
        let asked_for = |state: &TypeState| -> Vec<Name> {
            state.wants.names().of_route(route.name()).cloned().collect()
        };
        states.flat_map(asked_for).collect()
    }

    /// Announces the hosts of the route configurations that the client was sent or says that it has, once it has begun to ask for
    /// both. `asking` has just begun to ask for one of them.
    fn announce_known_hosts(&mut self, asking: StreamId, events: &[StreamEvent]) {
        let Some(of) = events.first().map(|event| event.resource_type.clone()) else { return };
        for row in ROWS.iter().filter(|row| Quirk::NamesAreHosts.is_of(&row.to)) {
            let mut all: Vec<Name> = Vec::new();
            if row.to == of {
                let states = self.streams.values().filter_map(|stream| stream.find(&row.from));
                for state in states {
                    let sent = state.wants.of(state.ledger.settled());
                    all.extend(sent.iter().flat_map(|route| route.references().of_type(&row.to)).cloned());
                    all.extend(self.hosts_claimed(row, state));
                }
            } else if row.from == of {
                let state = self.streams.get(&asking).and_then(|stream| stream.find(&of));
                all.extend(state.into_iter().flat_map(|state| self.hosts_claimed(row, state)));
            }
            self.announce_hosts(&row.to, &all);
        }
    }

    /// The names that stand for the hosts of the route configurations that the client says that it has.
    fn hosts_claimed(&self, row: &Row, state: &TypeState) -> Vec<Name> {
        let served = self.view.as_ref().map(|view| view.table(&row.from));
        let on_demand = |route: &&Name| {
            let served = served.and_then(|table| table.find(route));
            served.is_none_or(|served| served.references().of_type(&row.to).next().is_some())
        };
        state.ledger.claims().filter(on_demand).map(|route| all_hosts(route)).collect()
    }

    /// Announces the hosts of route configurations. Envoy considers a route configuration with hosts on demand ready only when it hears
    /// anything about them, and asks for none before the first request. Without this it would wait for its `initial_fetch_timeout`.
    fn announce_hosts(&mut self, hosts: &ResourceType, all: &[Name]) {
        for (stream, state) in &mut self.streams {
            let Some(state) = state.find_mut(hosts).filter(|state| !state.wants.is_wildcard()) else {
                continue;
            };
            if !all.is_empty() {
                state.awaited.get_or_insert_default().extend(all.iter().cloned());
                state.is_dirty = true;
                self.woken.insert(*stream);
            }
        }
    }

    /// The next event for the status board; in order.
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

    /// Returns `true` if nothing is sent because the server knows nothing of the node and the client holds configuration, which an
    /// answer would wipe (D3).
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        let is_unmatched = self.view.as_ref().is_some_and(|view| view.is_unmatched());
        is_unmatched && (self.shows_configuration || self.has_lost_groups)
    }

    /// The resources that the client is not sent yet, and why.
    #[must_use]
    pub fn held_back(&self) -> &[HeldBack] {
        self.order.held_back()
    }

    /// Returns `true` if no stream is open.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.streams.is_empty()
    }

    /// The changed types of which the client subscribes to a changed resource.
    #[must_use]
    pub fn concerned(&self, change: &ViewChange) -> Vec<ResourceType> {
        let concerns = |(of, changes): &(&ResourceType, &Arc<Changes>)| {
            let Some(view) = &self.view else { return false };
            let mut states = self.streams.values().filter_map(|stream| stream.find(of));
            states.any(|state| state.wants.is_concerned(state.ledger.settled(), view.table(of), changes))
        };
        change.changes.iter().filter(concerns).map(|(of, _)| of.clone()).collect()
    }

    /// How many names and responses are remembered in all.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_entries(&self) -> usize {
        let of_types: usize = self.streams.values().flat_map(Stream::types).map(TypeState::n_entries).sum();
        of_types + self.events.len() + self.woken.len()
    }

    /// How many names were dropped that may be taken up again.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_dropped(&self) -> usize {
        let types = self.streams.values().flat_map(Stream::types);
        types.map(|state| state.ledger.dropped().count()).sum()
    }

    /// Everything that a stream's client wants or may hold, by type.
    #[must_use]
    pub fn holdings(&self, stream: StreamId) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for state in self.streams.get(&stream).into_iter().flat_map(Stream::types) {
            let mut versions = state.held();
            for name in state.wants.names().iter() {
                versions.entry(Arc::clone(name)).or_insert(None);
            }
            for (name, version) in versions {
                let settled = state.ledger.settled();
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
