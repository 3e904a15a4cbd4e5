//! Whether a client has something ready: accepted, and with everything that it needs for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::status::StreamId;
use xds_cache::{Name, Resource, ResourceKey, ResourceType, TypeTable, View, WaitsFor};

use super::known::Known;
use super::table;
use crate::applied::Answer;
use crate::stream::Stream;
use crate::type_state::TypeState;

/// What a client has ready, looked up for one plan.
pub(super) struct Readiness<'a> {
    pub(super) view: &'a View,
    pub(super) streams: &'a BTreeMap<StreamId, Stream>,
    /// Until when clusters settle.
    pub(super) settling: &'a BTreeMap<Name, Instant>,
    /// What the client may have learned of, and asks for only when it uses it.
    pub(super) known: Option<&'a Known>,
    /// Whether what the view has not must be there nevertheless.
    is_strict: bool,
    obstacles: RefCell<BTreeMap<(ResourceKey, bool), Option<WaitsFor>>>,
}

impl<'a> Readiness<'a> {
    pub(super) fn new(
        view: &'a View,
        streams: &'a BTreeMap<StreamId, Stream>,
        settling: &'a BTreeMap<Name, Instant>,
        known: Option<&'a Known>,
    ) -> Self {
        Self { view, streams, settling, known, is_strict: false, obstacles: RefCell::default() }
    }

    /// The same, but what the view has not counts too: something that the client has refers to it, so the client does without that
    /// until it is replaced.
    pub(super) fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// What the client's streams know of a type.
    pub(super) fn states(&self, resource_type: &ResourceType) -> impl Iterator<Item = &'a TypeState> {
        self.streams.values().filter_map(|stream| stream.find(resource_type))
    }

    /// Whether something of type `from` refers to what the client is sent without asking for it by name, and the view has that.
    pub(super) fn is_taken_unasked(&self, from: &ResourceType, to: &ResourceKey) -> bool {
        let served = self.view.table(&to.resource_type).find(&to.name);
        table::row_of(from, &to.resource_type).is_some()
            && served.is_some_and(|served| served.in_wildcard())
            && self.states(&to.resource_type).any(|state| state.subscription.is_wildcard())
    }

    /// What the client is sent without asking for it by name, and has to have before something of type `from` may newly refer to
    /// `to`: that itself, or what it refers to if a client that asks for it only then would have to do without meanwhile.
    pub(super) fn needs(&self, from: &ResourceType, to: &ResourceKey) -> Vec<ResourceKey> {
        if self.is_taken_unasked(from, to) {
            return vec![to.clone()];
        }
        let is_used_at_once = table::row_of(from, &to.resource_type).is_some_and(|row| row.is_used_at_once);
        let Some(served) = self.view.table(&to.resource_type).find(&to.name) else { return vec![] };
        if !is_used_at_once {
            return vec![];
        }
        let references = served.references().targets();
        references.filter(|to| self.is_taken_unasked(served.resource_type(), to)).cloned().collect()
    }

    /// What keeps the client from using a resource; `None` if nothing does. What the view has not is not waited for, unless no
    /// client can do without it.
    pub(super) fn obstacle(&self, to: &ResourceKey, is_always_needed: bool) -> Option<WaitsFor> {
        let key = (to.clone(), is_always_needed);
        if let Some(known) = self.obstacles.borrow().get(&key) {
            return known.clone();
        }
        // Of resources that refer to each other, none waits for itself.
        self.obstacles.borrow_mut().insert(key.clone(), None);
        let obstacle = self.find_obstacle(to, is_always_needed);
        self.obstacles.borrow_mut().insert(key, obstacle.clone());
        obstacle
    }

    fn find_obstacle(&self, to: &ResourceKey, is_always_needed: bool) -> Option<WaitsFor> {
        if table::all_of(to).is_some() {
            // None of them in particular.
            return None;
        }
        let table = self.view.table(&to.resource_type);
        let served = table.find(&to.name);
        if served.is_none() && !is_always_needed && (!self.is_strict || self.is_foreign(to)) {
            return None;
        }
        let mut found: Option<&Resource> = None;
        let mut is_asked_for = false;
        for state in self.states(&to.resource_type) {
            let subscription = &state.subscription;
            let covers_served = served.is_some_and(|served| subscription.covers(table, served));
            let covers_nothing = || served.is_none() && subscription.covers_name(&to.name);
            if !covers_served && !covers_nothing() {
                continue;
            }
            is_asked_for = true;
            if !subscription.has(&to.name) {
                return Some(WaitsFor::Sending(to.clone()));
            }
            let sent = subscription.sent(&to.name).or(served);
            match state.applied.answer(&to.name) {
                Answer::None => return Some(WaitsFor::Ack(to.clone())),
                Answer::Rejected if !sent.is_some_and(|sent| self.is_proven(state, sent)) => {
                    return Some(WaitsFor::Change(to.clone()));
                }
                Answer::Rejected | Answer::Accepted(_) | Answer::Released => {}
            }
            found = sent.map(|sent| &**sent);
        }
        if !is_asked_for {
            return Some(WaitsFor::Request(to.clone()));
        }
        if to.resource_type == ResourceType::Cluster && self.settling.contains_key(&to.name) {
            return Some(WaitsFor::Settling(to.clone()));
        }
        let found = found?;
        let is_older = served.is_some_and(|served| served.version() != found.version());
        found.references().targets().find_map(|needed| {
            let row = table::row_of(&to.resource_type, &needed.resource_type)?;
            // What an older version refers to may have gone with it before the client got it; then only the newer one helps.
            let is_gone = self.view.table(&needed.resource_type).find(&needed.name).is_none();
            if is_older && is_gone && !self.is_foreign(needed) && self.obstacle(needed, true).is_some() {
                return Some(WaitsFor::Sending(to.clone()));
            }
            self.obstacle(needed, row.is_always_needed)
        })
    }

    /// Whether the client has what the view has not from somewhere else, if it has it: a secret if it asks for none here, and a
    /// cluster, such as one of its bootstrap, that it never was sent though it takes all.
    fn is_foreign(&self, to: &ResourceKey) -> bool {
        let mut states = self.states(&to.resource_type);
        let is_unsent = |state: &TypeState| {
            state.subscription.is_wildcard() && state.applied.in_use(&to.name).next().is_none()
        };
        (to.resource_type == ResourceType::Secret && states.next().is_none())
            || (to.resource_type == ResourceType::Cluster && states.all(is_unsent))
    }

    /// What refers to a resource and may be in use; each with whether the client rejected it. Who goes on referring to all resources
    /// of a kind can do without any one of them.
    pub(super) fn users(&self, to: &ResourceKey) -> Vec<(ResourceKey, bool)> {
        let mut users = Vec::new();
        let all = table::all_of(to);
        for row in table::ROWS.iter().filter(|row| row.to == to.resource_type) {
            let referrers = |table: &'a TypeTable| {
                let of_all = all
                    .iter()
                    .flat_map(|all| table.referrers(all).filter(|user| !self.goes_on(user.key(), all)));
                table.referrers(to).chain(of_all)
            };
            let known = self
                .known
                .and_then(|known| known.get(&row.from))
                .into_iter()
                .flat_map(|table| referrers(table));
            let known = known.filter(|user| self.may_be_learned_of(user.key()));
            users.extend(known.map(|user| (user.key().clone(), false)));
            for state in self.states(&row.from) {
                for user in state.applied.tables().flat_map(|table| referrers(table)) {
                    if self.is_in_use(state, user) {
                        let is_rejected = state.applied.answer(user.name()) == Answer::Rejected;
                        users.push((user.key().clone(), is_rejected));
                    }
                }
            }
        }
        users
    }

    /// Whether the view's version of a resource refers to something too.
    pub(super) fn goes_on(&self, user: &ResourceKey, to: &ResourceKey) -> bool {
        let now = self.view.table(&user.resource_type).find(&user.name);
        now.is_some_and(|now| now.references().has(to))
    }

    /// Whether the client may be using this very version of a resource: it took it up or may have, and it asks for it, or still
    /// uses something that refers to it.
    fn is_in_use(&self, state: &TypeState, resource: &Resource) -> bool {
        let is_taken = state.applied.in_use(resource.name()).any(|used| used.version() == resource.version());
        (is_taken && (wants(state, resource.name()) || self.is_needed_unasked(resource.key())))
            || self.may_be_asked_for(resource.key())
    }

    /// Whether the client uses something that leads to what it has not yet, and does or may ask for that.
    fn may_be_learned_of(&self, key: &ResourceKey) -> bool {
        self.is_led_to(key) || self.is_about_to_come(key) || self.may_be_asked_for(key)
    }

    /// Whether the client uses something that leads to a resource at once, and does not ask for it.
    pub(super) fn is_led_to(&self, key: &ResourceKey) -> bool {
        self.is_needed_unasked(key) && table::is_used_at_once(&key.resource_type, &self.users(key))
    }

    /// The same, and a stream asks for it that was not sent it yet.
    pub(super) fn is_about_to_come(&self, key: &ResourceKey) -> bool {
        let awaits = |state: &TypeState| wants(state, &key.name) && !state.subscription.has(&key.name);
        self.states(&key.resource_type).any(awaits)
            && table::is_used_at_once(&key.resource_type, &self.users(key))
    }

    /// Whether a stream that asks for a resource may have it in some version.
    pub(super) fn may_have(&self, key: &ResourceKey) -> bool {
        let has = |state: &TypeState| state.applied.in_use(&key.name).next().is_some();
        self.states(&key.resource_type).any(|state| wants(state, &key.name) && has(state))
    }

    /// What keeps the client from using what a resource refers to, whether or not the view still has that.
    pub(super) fn obstacle_for(&self, resource: &Resource) -> Option<WaitsFor> {
        let is_of_order =
            |to: &&ResourceKey| table::row_of(resource.resource_type(), &to.resource_type).is_some();
        let mut references = resource.references().targets().filter(is_of_order);
        references.find_map(|to| self.obstacle(to, true))
    }

    /// Whether a virtual host is gone for which the client did not ask by now, and the first request to it may yet come to the route
    /// configuration that it was of.
    fn may_be_asked_for(&self, key: &ResourceKey) -> bool {
        key.resource_type == ResourceType::VirtualHost
            && self.view.table(&key.resource_type).find(&key.name).is_none()
            && !self.users(key).is_empty()
    }

    /// Whether the client does not ask for a resource any more and still uses something that refers to it.
    pub(super) fn is_needed_unasked(&self, key: &ResourceKey) -> bool {
        // Clusters refer to each other too, but all of them are asked for; of virtual hosts a client has only what it asks for.
        !matches!(key.resource_type, ResourceType::Cluster | ResourceType::VirtualHost)
            && !self.states(&key.resource_type).any(|state| wants(state, &key.name))
            && !self.users(key).is_empty()
    }

    /// Whether no other stream asks for a name, and has it, that this one does not ask for: what a stream does not ask for it may have
    /// in a version of any age. Who asks only now has nothing yet.
    pub(super) fn knows_best(&self, state: &TypeState, name: &Name) -> bool {
        let knows =
            |other: &TypeState| wants(other, name) && other.subscription.settled().find(name).is_some();
        wants(state, name) || !self.states(&state.resource_type).any(knows)
    }

    /// Whether it makes a difference what the client has of a name.
    pub(super) fn matters(&self, state: &TypeState, table: &TypeTable, name: &Name) -> bool {
        let key = ResourceKey { resource_type: state.resource_type.clone(), name: Arc::clone(name) };
        state.subscription.wants(table, name) || self.is_needed_unasked(&key)
    }

    /// Whether the client has a cluster though it rejected the response that brought it: it asks for its endpoints. Envoy takes up
    /// what is good of a response that it rejects. If it was an older version that did, the client must not need more for that.
    fn is_proven(&self, state: &TypeState, resource: &Resource) -> bool {
        let endpoints = ResourceType::ClusterLoadAssignment;
        let is_asked_for =
            |name: &Name| self.states(&endpoints).any(|state| state.subscription.names().contains(name));
        let needs_all =
            |used: &Arc<Resource>| used.references().missing_in(resource.references()).next().is_none();
        resource.references().of_type(&endpoints).any(is_asked_for)
            && state.applied.in_use(resource.name()).all(needs_all)
    }
}

/// Whether a stream asks for something that has that name in what it was sent.
fn wants(state: &TypeState, name: &str) -> bool {
    state.applied.tables().any(|table| state.subscription.wants(table, name))
}
