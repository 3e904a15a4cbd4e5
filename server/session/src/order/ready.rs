//! Whether a client has something ready: accepted, and with everything that it needs for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use xds_cache::status::StreamId;
use xds_cache::{Name, Resource, ResourceKey, ResourceType, View, WaitsFor};

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
    known: RefCell<BTreeMap<ResourceKey, Option<WaitsFor>>>,
}

impl<'a> Readiness<'a> {
    pub(super) fn new(
        view: &'a View,
        streams: &'a BTreeMap<StreamId, Stream>,
        settling: &'a BTreeMap<Name, Instant>,
    ) -> Self {
        Self { view, streams, settling, known: RefCell::default() }
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

    /// What keeps the client from using a resource; `None` if nothing does. What the view has not is not waited for, unless no
    /// client can do without it.
    pub(super) fn obstacle(&self, to: &ResourceKey, is_always_needed: bool) -> Option<WaitsFor> {
        if let Some(known) = self.known.borrow().get(to) {
            return known.clone();
        }
        // Of resources that refer to each other, none waits for itself.
        self.known.borrow_mut().insert(to.clone(), None);
        let obstacle = self.find_obstacle(to, is_always_needed);
        self.known.borrow_mut().insert(to.clone(), obstacle.clone());
        obstacle
    }

    fn find_obstacle(&self, to: &ResourceKey, is_always_needed: bool) -> Option<WaitsFor> {
        let table = self.view.table(&to.resource_type);
        let served = table.find(&to.name);
        if served.is_none() && !is_always_needed {
            return None;
        }
        let mut found: Option<&Resource> = None;
        let mut is_asked_for = false;
        for state in self.states(&to.resource_type) {
            let subscription = &state.subscription;
            let covers_served = served.is_some_and(|served| subscription.covers(table, served));
            if !covers_served && !(served.is_none() && subscription.covers_name(&to.name)) {
                continue;
            }
            is_asked_for = true;
            if !subscription.has(&to.name) {
                return Some(WaitsFor::Sending(to.clone()));
            }
            let sent = subscription.sent(&to.name).or(served);
            match state.applied.answer(&to.name) {
                Answer::None => return Some(WaitsFor::Ack(to.clone())),
                Answer::Rejected if !sent.is_some_and(|sent| self.is_proven(sent)) => {
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
        found.references().iter().find_map(|reference| {
            let row = table::row_of(&to.resource_type, &reference.to.resource_type)?;
            self.obstacle(&reference.to, row.is_always_needed)
        })
    }

    /// Whether the client has a cluster though it rejected the response that brought it: it asks for its endpoints. Envoy takes up
    /// what is good of a response that it rejects.
    fn is_proven(&self, resource: &Resource) -> bool {
        let endpoints = ResourceType::ClusterLoadAssignment;
        resource
            .references_to(&endpoints)
            .any(|name| self.states(&endpoints).any(|state| state.subscription.names().contains(name)))
    }
}
