//! The facts about one client, for the decisions about it. Looked up when they are asked for, once.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::StreamId;
use xds_cache::{Deviations, Name, Resource, ResourceKey, ResourceType, TypeTable, View, WaitsFor};

use super::waiting::{Known, Waiting};
use crate::limits::Limits;
use crate::quirks::Quirk;
use crate::references;
use crate::stream::Stream;
use crate::type_state::TypeState;

/// The input of the decisions about one client.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) view: &'a View,
    /// Types of which the client accepted something on streams that it has closed.
    pub(super) accepted: &'a BTreeSet<ResourceType>,
    /// The times until which clusters settle.
    pub(super) settling: &'a BTreeMap<Name, Instant>,
    /// Resources that the client may have learned of, and asks for only when it uses them.
    pub(super) known: Option<&'a Known>,
    /// It came back a moment ago, and may still have to ask for what it has.
    pub(super) is_back: bool,
    /// The state after the last plan, which says since when things wait.
    pub(super) before: &'a Waiting,
    /// What the client refuses of lists, or may refuse. Nothing is decided about that.
    pub(super) substitutes: &'a BTreeMap<ResourceType, Deviations>,
    pub(super) limits: &'a Limits,
    pub(super) now: Instant,
}

/// The facts about one client.
pub(super) struct Facts<'a> {
    pub(super) input: Input<'a>,
    pub(super) streams: &'a BTreeMap<StreamId, Stream>,
    /// The users of each resource, as far as it was asked for.
    pub(super) in_use: RefCell<BTreeMap<ResourceKey, Rc<[User]>>>,
    /// The obstacle of each resource, as far as it was asked for; `None` if it has none.
    pub(super) obstacles: RefCell<BTreeMap<Needed, Option<Obstacle>>>,
    /// The obstacle of the first scope that waits.
    pub(super) scopes_wait: OnceCell<Option<WaitsFor>>,
    /// The first thing that the client is still taking up of the last change of the scopes.
    pub(super) unfinished_scope: OnceCell<Option<WaitsFor>>,
    /// The updates that wait, as far as it was asked for: many removed resources may have the same user.
    pub(super) held: RefCell<BTreeMap<ResourceKey, bool>>,
    /// The resources that are gone and stay for users that wait, as far as it was asked for.
    pub(super) stays: RefCell<BTreeMap<ResourceKey, bool>>,
    open: OnceCell<Open<'a>>,
}

/// The resources of which some stream is not where the view is.
pub(super) type Open<'a> = BTreeMap<ResourceKey, Vec<Place<'a>>>;

/// Where one stream is with a resource.
pub(super) struct Place<'a> {
    pub(super) state: &'a TypeState,
    pub(super) at: At,
}

/// Where a stream may be with a resource that the view has otherwise.
pub(super) enum At {
    /// It wants this and does not have it yet.
    Owed(Arc<Resource>),
    /// It was brought up to this, which is another version.
    Changed(Arc<Resource>),
    /// It was brought up to this, which is gone.
    Gone(Arc<Resource>),
    /// It asks for something that does not exist, and was not told so.
    Unanswered,
    /// The client says that it has something, and nobody remembers that there was any.
    Claimed,
}

/// Something that refers to a resource and may be in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) key: ResourceKey,
    /// The client rejected it.
    pub(super) is_rejected: bool,
}

/// How a resource is needed of which the view has nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Need {
    /// The client cannot do without it.
    pub(super) is_certain: bool,
    /// Something that the client has refers to it, so the client does without that until it is replaced; unless it has this from
    /// somewhere else.
    pub(super) is_replaced: bool,
    /// What needs it was replaced by something that is on its way to the client: what comes after that comes too late.
    pub(super) is_superseded: bool,
}

/// A resource, and how it is needed.
pub(super) type Needed = (ResourceKey, Need);

/// The nearest thing that keeps a client from using a resource.
#[derive(Clone, Debug)]
pub(super) struct Obstacle {
    /// Over how many references it is reached.
    pub(super) distance: usize,
    pub(super) waits_for: WaitsFor,
}

impl<'a> Facts<'a> {
    pub(super) fn new(input: Input<'a>, streams: &'a BTreeMap<StreamId, Stream>) -> Self {
        Self {
            input,
            streams,
            in_use: RefCell::default(),
            obstacles: RefCell::default(),
            scopes_wait: OnceCell::new(),
            unfinished_scope: OnceCell::new(),
            held: RefCell::default(),
            stays: RefCell::default(),
            open: OnceCell::new(),
        }
    }

    /// The table that the view has of a type.
    pub(super) fn table(&self, resource_type: &ResourceType) -> &'a TypeTable {
        self.input.view.table(resource_type)
    }

    /// The view's version of a resource.
    pub(super) fn served(&self, key: &ResourceKey) -> Option<&'a Arc<Resource>> {
        self.table(&key.resource_type).find(&key.name)
    }

    /// The states of a type on the client's streams.
    pub(super) fn states(&self, resource_type: &ResourceType) -> impl Iterator<Item = &'a TypeState> {
        self.streams_of(resource_type).map(|(_, state)| state)
    }

    /// The streams that ask for a type, each with its state of that.
    pub(super) fn streams_of(
        &self,
        resource_type: &ResourceType,
    ) -> impl Iterator<Item = (&'a Stream, &'a TypeState)> {
        self.streams.values().filter_map(|stream| Some((stream, stream.find(resource_type)?)))
    }

    /// The resources of which some stream is not where the view is, as far as anything refers to them or they refer to anything.
    pub(super) fn open(&self) -> &Open<'a> {
        self.open.get_or_init(|| self.find_open())
    }

    /// Where the streams are with a resource.
    pub(super) fn places(&self, key: &ResourceKey) -> &[Place<'a>] {
        self.open().get(key).map(|places| &places[..]).unwrap_or_default()
    }

    fn find_open(&self) -> Open<'a> {
        let mut open = Open::new();
        for stream in self.streams.values() {
            for state in stream.types() {
                let of = &state.resource_type;
                let table = self.table(of);
                let substitutes = self.input.substitutes.get(of);
                let mut note = |name: &Name, at: At| {
                    if substitutes.is_some_and(|substitutes| substitutes.contains_key(name)) {
                        return;
                    }
                    let key = ResourceKey { resource_type: of.clone(), name: Arc::clone(name) };
                    open.entry(key).or_default().push(Place { state, at });
                };
                let came_back = state.ledger.came_back();
                let returned = if came_back { self.places_of_returned(state) } else { vec![] };
                let is_noted: BTreeSet<Name> = returned.iter().map(|(name, _)| Arc::clone(name)).collect();
                returned.into_iter().for_each(|(name, at)| note(&name, at));
                let may_hold = self.may_hold(of) && !came_back;
                let awaits = self.keeps_back(state);
                let is_partial = self.has_quirk(Quirk::WaitsForAllClusters, of);
                if (may_hold || awaits || is_partial) && !state.ledger.is_at(table) {
                    for resource in state.lacks(table).changed {
                        // A resource that is made of a pattern has no name of its own.
                        let is_own =
                            table.find(resource.name()).is_some_and(|own| Arc::ptr_eq(own, &resource));
                        let is_open = (may_hold && self.may_wait(state, &resource))
                            || (awaits && self.missing_without_limit(state, &resource).is_some())
                            || (is_partial && self.input.view.partial(resource.key()).is_some());
                        if is_own && is_open && !is_noted.contains(resource.name()) {
                            note(&Arc::clone(resource.name()), At::Owed(resource));
                        }
                    }
                }
                if references::is_referred_to(of) {
                    for resource in state.ledger.gone_from(table).into_iter().filter(|_| !came_back) {
                        note(&Arc::clone(resource.name()), At::Gone(resource));
                    }
                    // A client may ask for any number of names; few are those of something that it may be using.
                    for name in state.unanswered(table) {
                        let key = ResourceKey { resource_type: of.clone(), name };
                        if Quirk::AskedAtFirstUse.is_of(of) {
                            // It may ask by another name than the resource's own.
                            let recent = self.recent(&key);
                            recent.into_iter().for_each(|recent| note(recent.name(), At::Unanswered));
                        } else if self.is_referred_to(&key) {
                            note(&key.name, At::Unanswered);
                        }
                    }
                }
                if !came_back && !Quirk::UsedOnlyWhenAsked.is_of(of) && references::refers(of) {
                    for resource in state.ledger.changed_from(table) {
                        note(&Arc::clone(resource.name()), At::Changed(resource));
                    }
                }
            }
        }
        for (of, known) in self.input.known.into_iter().flatten() {
            let changes = self.table(of).changes_since(known);
            let changed = changes.changed.iter().map(|resource| resource.name());
            for name in changed.chain(&changes.removed).filter(|name| known.find(name).is_some()) {
                let key = ResourceKey { resource_type: of.clone(), name: Arc::clone(name) };
                open.entry(key).or_default();
            }
        }
        open
    }

    /// Returns `true` if a stream may have to wait for an update: it newly refers to something, or changes together with others. Most
    /// updates do not, and cost nothing here.
    fn may_wait(&self, state: &TypeState, resource: &Resource) -> bool {
        let has_new = || {
            let had = state.sent(resource.name()).map(|sent| sent.references());
            had.is_none_or(|had| resource.references().missing_in(had).next().is_some())
        };
        let refers = resource.references().targets().next().is_some();
        self.input.is_back || Quirk::ChangeTogether.is_of(&state.resource_type) || (refers && has_new())
    }

    fn has_quirk(&self, quirk: Quirk, of: &ResourceType) -> bool {
        quirk.is_of_profile(of, self.input.view.key().profile)
    }

    /// Returns `true` if a stream is not sent what the client would wait for without a limit. A State of the World client that came back has
    /// started, so that what it is sent waits alone. An incremental one would be told that a secret does not exist, and would go on without
    /// it in place of what works.
    fn keeps_back(&self, state: &TypeState) -> bool {
        let has = |quirk: Quirk| state.has(quirk) && self.has_quirk(quirk, &state.resource_type);
        (has(Quirk::AwaitsWithoutLimit) || has(Quirk::StuckWithoutSecrets))
            && (state.is_incremental() || !state.ledger.came_back())
    }

    /// The resource that the client would wait for without a limit if a stream were sent this one, because the view does not have it.
    pub(super) fn missing_without_limit(
        &self,
        state: &TypeState,
        resource: &Resource,
    ) -> Option<ResourceKey> {
        let view = self.input.view;
        let is_missing = |to: &ResourceKey| view.resolve(&to.resource_type, &to.name).is_none();
        if !self.keeps_back(state) || !resource.references().targets().any(&is_missing) {
            return None;
        }
        let named = resource.awaited_without_limit().into_iter().find(is_missing);
        named.or_else(|| {
            resource.awaits_routes_of_scopes_without_limit().then_some(())?;
            let scopes = self.table(&ResourceType::ScopedRouteConfiguration).resources();
            let mut routes = scopes.flat_map(|scope| scope.references().targets());
            routes.find(|route| is_missing(route)).cloned()
        })
    }

    /// Returns `true` if an obstacle is something that the client is not sent because it would wait for that without a limit.
    pub(super) fn is_kept_back(&self, obstacle: &WaitsFor) -> bool {
        let WaitsFor::Sending(key) = obstacle else { return false };
        let is_kept = |place: &Place<'_>| {
            let At::Owed(resource) = &place.at else { return false };
            self.missing_without_limit(place.state, resource).is_some()
        };
        self.places(key).iter().any(is_kept)
    }

    /// Returns `true` if anything refers to a resource of all that the client may have.
    fn is_referred_to(&self, key: &ResourceKey) -> bool {
        let all = references::all_of(key);
        let has_referrers = |table: &Arc<TypeTable>| {
            std::iter::once(key).chain(&all).any(|key| table.referrers(key).next().is_some())
        };
        references::rows_to(&key.resource_type).any(|row| {
            let known = self.input.known.and_then(|known| known.get(&row.from));
            let mut states = self.states(&row.from);
            known.is_some_and(has_referrers)
                || states.any(|state| state.ledger.tables().any(has_referrers))
                || self.recent_tables(&row.from).iter().any(has_referrers)
        })
    }

    /// Returns `true` if an update of the type may have to wait: only what replaces a response that the client has accepted does. One that came
    /// back may use what it asks for though it has accepted nothing of the type.
    fn may_hold(&self, of: &ResourceType) -> bool {
        let is_known = self.input.is_back || self.input.accepted.contains(of);
        references::refers(of) && (is_known || self.states(of).any(|state| state.ledger.has_accepted()))
    }

    /// The version that the client was led to of a resource that it asks for only when it uses it, if the view has it otherwise.
    pub(super) fn led_to(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        let known =
            self.input.known.and_then(|known| known.get(&key.resource_type)?.find(&key.name).cloned());
        let known = known.or_else(|| self.recent(key))?;
        let now = self.served(key);
        now.is_none_or(|now| now.version() != known.version()).then_some(known)
    }

    /// Returns `true` if the view's version of a resource refers to something too.
    pub(super) fn goes_on(&self, user: &ResourceKey, to: &ResourceKey) -> bool {
        let now = self.served(user);
        now.is_some_and(|now| now.references().has(to))
    }

    /// Returns `true` if a stream asks for a resource.
    pub(super) fn is_asked_for(&self, key: &ResourceKey) -> bool {
        self.states(&key.resource_type).any(|state| wants(state, &key.name))
    }

    /// Returns `true` if a stream asks for a resource and was not sent it yet.
    pub(super) fn is_awaited(&self, key: &ResourceKey) -> bool {
        let awaits = |state: &TypeState| wants(state, &key.name) && !state.holds(&key.name);
        self.states(&key.resource_type).any(awaits)
    }

    /// Returns `true` if a stream that asks for a resource may have it in some version.
    pub(super) fn may_have(&self, key: &ResourceKey) -> bool {
        let has = |state: &TypeState| state.ledger.in_use(&key.name).next().is_some();
        self.states(&key.resource_type).any(|state| wants(state, &key.name) && has(state))
    }

    /// Returns `true` if no other stream asks for a name, and has it, that this one does not ask for: what a stream does not ask for it may have
    /// in a version of any age. Who asks only now has nothing yet.
    pub(super) fn knows_best(&self, state: &TypeState, name: &Name) -> bool {
        let has = |other: &TypeState| {
            other.ledger.settled().find(name).is_some()
                || (other.ledger.came_back() && other.had(name).is_some())
        };
        let knows = |other: &TypeState| wants(other, name) && has(other);
        wants(state, name) || !self.states(&state.resource_type).any(knows)
    }
}

/// Returns `true` if a stream asks for something that has that name in what it was sent.
pub(super) fn wants(state: &TypeState, name: &str) -> bool {
    state.ledger.tables().any(|table| state.wants.wants(table, name))
}
