//! A client that comes back is believed about what it uses.
//!
//! To a new stream nothing was sent, but a client that shows a version goes on with what an earlier stream gave it: of each name
//! whatever was served lately. Until it is answered it is looked at as if it had been sent those tables and had accepted none but the
//! first. What it claims only says what may be in use, never what need not be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::status::StreamId;
use xds_cache::{Name, Profile, Resource, ResourceKey, ResourceType, TypeTable, View};

use super::facts::{At, Facts};
use crate::ledger::Held;
use crate::quirks::Quirk;
use crate::references::{self, route_of};
use crate::stream::Stream;
use crate::type_state::TypeState;

/// Takes what the client may have for what it was sent, where it was not answered yet. Tells whether there is such a type.
pub(super) fn believe(view: &View, streams: &mut BTreeMap<StreamId, Stream>, now: Instant) -> bool {
    let mut is_any = false;
    for state in streams.values_mut().flat_map(Stream::types_mut).filter(|state| state.ledger.came_back()) {
        state.ledger.believe(view.recent_tables(&state.resource_type, now));
        is_any = true;
    }
    is_any
}

/// Notes what a client that came back may have under a name that it never asked for: a virtual host that it was sent for an alias. It
/// shows no version of that, and has to hear if it is gone.
pub(super) fn note_other_names(view: &View, streams: &mut BTreeMap<StreamId, Stream>, now: Instant) {
    let has_hosts = |state: &&mut TypeState| {
        let is_known = state.ledger.has_accepted() && !state.ledger.came_back();
        state.has(Quirk::NamesAreHosts) && state.awaits_first_response() && !is_known
    };
    for state in streams.values_mut().flat_map(Stream::types_mut).filter(has_hosts) {
        let recent = view.recent_tables(&state.resource_type, now);
        let found = state.wants.names().iter().flat_map(|asked| {
            let found = recent.iter().filter_map(|recent| recent.look_up(asked));
            found.map(|found| found.name(asked)).filter(move |name| *name != asked)
        });
        let others: BTreeSet<Name> = found.cloned().collect();
        if others.is_empty() {
            continue;
        }
        others.into_iter().for_each(|name| state.ledger.exceptions.insert_new(name, Held::Stale));
        state.ledger.come_back();
        state.ledger.believe(recent);
    }
}

/// Doubts what a client that came back shows of what it may have to wait for once more: the endpoints of a cluster that changed lately, the
/// virtual hosts of such a route configuration (R14, row A119). The change may have come on the lost connection, and they not.
pub(super) fn doubt_referents(view: &View, streams: &mut BTreeMap<StreamId, Stream>, now: Instant) {
    for row in references::ROWS {
        let of_profile = view.key().profile;
        let has_hosts = Quirk::NamesAreHosts.is_of(&row.to);
        if !has_hosts && !Quirk::WarmedAnew.is_of_profile(&row.to, of_profile) {
            continue;
        }
        let states = streams.values_mut().filter_map(|stream| stream.find_mut(&row.to));
        let mut shown = states.filter(|state| state.awaits_first_response() && state.is_exact()).peekable();
        if shown.peek().is_none() {
            continue;
        }
        let table = view.table(&row.from);
        let recent = view.recent_tables(&row.from, now);
        let changes =
            recent.iter().zip(recent.iter().skip(1)).map(|(older, newer)| newer.changes_since(older));
        let changed: BTreeSet<Name> = changes
            .flat_map(|changes| changes.changed.iter().map(|new| Arc::clone(new.name())).collect::<Vec<_>>())
            .collect();
        // It may have gone since, and come back before the client heard of that.
        let newest = |name: &Name| {
            let remembered = || recent.iter().rev().find_map(|recent| recent.find(name));
            table.find(name).or_else(remembered)
        };
        let changed: Vec<&Arc<Resource>> = changed.iter().filter_map(newest).collect();
        for state in shown {
            for from in &changed {
                let names: Vec<Name> = if has_hosts {
                    state.wants.names().of_route(from.name()).cloned().collect()
                } else {
                    from.references().of_type(&row.to).cloned().collect()
                };
                names.iter().for_each(|name| state.is_dirty |= state.mark_unknown(name));
            }
        }
    }
}

/// Returns `true` if the first that is heard of a client is what it can only have learned of on a connection before: it has a stream for each
/// type, and asks for something that others refer to, but not for these. Such a stream has no version to show if it never was answered.
///
/// A client that has these others in its bootstrap looks the same, and never asks for them. So this counts only if the client may have
/// missed a change, and only for [`MAX_GUESS`].
pub(super) fn asks_for_what_it_was_not_told_of(
    view: &View,
    streams: &BTreeMap<StreamId, Stream>,
    now: Instant,
) -> bool {
    let is_there = |of: &ResourceType| streams.values().any(|stream| stream.find(of).is_some());
    let mut asked_for = streams.values().filter(|stream| stream.is_per_type()).flat_map(Stream::types);
    asked_for.any(|state| {
        let of = &state.resource_type;
        let rows = || references::rows_to(of).filter(|row| row.from != *of);
        let is_first = !Quirk::TakenUnasked.is_of(of)
            && state.ledger.responses().is_empty()
            && !rows().any(|row| is_there(&row.from));
        // Such a client has a stream for each name.
        let Some(name) = state.wants.names().iter().next().filter(|_| is_first) else { return false };
        let key = ResourceKey { resource_type: of.clone(), name: Arc::clone(name) };
        let leads_here = |table: &Arc<TypeTable>| table.referrers(&key).next().is_some();
        let has_changed = |of: &ResourceType| view.recent_tables(of, now).len() > 1;
        let leads_to = || references::rows_from(of).map(|row| &row.to);
        rows().any(|row| {
            view.recent_tables(&row.from, now).iter().any(leads_here)
                && (has_changed(&row.from) || has_changed(of) || leads_to().any(has_changed))
        })
    })
}

/// How long the other streams of a client are waited for that only seems to have come back. An Envoy opens them again in half a second.
pub(super) const MAX_GUESS: Duration = Duration::from_secs(1);

impl<'a> Facts<'a> {
    /// Where a stream is with what changed lately, of a type that the client came back with.
    pub(super) fn places_of_returned(&self, state: &'a TypeState) -> Vec<(Name, At)> {
        let of = &state.resource_type;
        let table = self.table(of);
        let mut names = BTreeSet::new();
        for earlier in state.ledger.tables().filter(|earlier| earlier.version() != table.version()) {
            let changes = table.changes_since(earlier);
            names.extend(changes.changed.iter().map(|resource| Arc::clone(resource.name())));
            names.extend(changes.removed.iter().cloned());
        }
        let mut places: Vec<(Name, At)> = names
            .into_iter()
            .filter_map(|name| {
                let at = self.place_of_returned(state, &name)?;
                Some((name, at))
            })
            .collect();
        if references::is_referred_to(of) {
            let is_unknown = |name: &&Name| state.ledger.tables().all(|table| table.look_up(name).is_none());
            let unknown = state.ledger.claims().filter(is_unknown);
            places.extend(unknown.map(|name| (Arc::clone(name), At::Claimed)));
        }
        places
    }

    fn place_of_returned(&self, state: &'a TypeState, name: &Name) -> Option<At> {
        let of = &state.resource_type;
        let had = state.had(name);
        let is_wanted = state.wants.wants(self.table(of), name);
        match self.table(of).find(name) {
            Some(served) if is_wanted => {
                let is_owed = state.ledger.claimed(name) != Some(served.version());
                (is_owed && references::refers(of)).then(|| At::Owed(Arc::clone(served)))
            }
            Some(_) => {
                let may_be_needed = !Quirk::UsedOnlyWhenAsked.is_of(of) && references::refers(of);
                had.filter(|_| may_be_needed).map(|had| At::Changed(Arc::clone(had)))
            }
            None => had.filter(|_| references::is_referred_to(of)).map(|had| At::Gone(Arc::clone(had))),
        }
    }

    /// Returns `true` if the client, which came back a moment ago, has not said yet whether it wants the type.
    pub(super) fn is_expected(&self, of: &ResourceType) -> bool {
        self.input.is_back && self.states(of).next().is_none()
    }

    /// Returns `true` if it may still ask for a resource: on a stream of its own, if it has one for each.
    pub(super) fn may_ask_for(&self, key: &ResourceKey) -> bool {
        let of = &key.resource_type;
        let mut streams = self.streams.values().filter(|stream| stream.find(of).is_some());
        self.input.is_back
            && streams.all(|stream| stream.is_per_type() && !Quirk::TakenUnasked.is_of(of))
            && !self.is_asked_for(key)
            && self.has_to_open_stream(key)
    }

    /// Returns `true` if a client with a stream for the virtual hosts of each route configuration may not have opened that of `key` yet. Such a
    /// stream does not tell which it is if no host was asked for on it.
    fn has_to_open_stream(&self, key: &ResourceKey) -> bool {
        let Some(route) = route_of(&key.name).filter(|_| Quirk::NamesAreHosts.is_of(&key.resource_type))
        else {
            return true;
        };
        let of_hosts = |state: &TypeState| state.wants.names().has_route(route);
        if self.states(&key.resource_type).any(of_hosts) {
            return false;
        }
        let Some(of) = references::rows_to(&key.resource_type).map(|row| row.from.clone()).next() else {
            return true;
        };
        if self.may_ask_for(&ResourceKey { resource_type: of.clone(), name: route.into() }) {
            return true;
        }
        self.lacks_stream(&key.resource_type, self.states(&of).flat_map(|state| state.wants.names().iter()))
    }

    /// Returns `true` if there are fewer streams than such route configurations need for their virtual hosts, on which a host of each may yet be
    /// asked for.
    pub(super) fn lacks_stream<'n>(
        &self,
        of_hosts: &ResourceType,
        routes: impl Iterator<Item = &'n Name>,
    ) -> bool {
        let has_own = |route: &&Name| self.states(of_hosts).any(|state| state.wants.names().has_route(route));
        let n_nameless = self.states(of_hosts).filter(|state| state.wants.names().is_empty()).count();
        n_nameless < routes.filter(|route| !has_own(route)).count()
    }

    /// The tables that the client may have of a type, if it came back a moment ago.
    pub(super) fn recent_tables(&self, of: &ResourceType) -> Vec<Arc<TypeTable>> {
        if !self.input.is_back {
            return vec![];
        }
        self.input.view.recent_tables(of, self.input.now)
    }

    /// The newest recent version of something that clients ask for only when they use what leads there: a client that came back a moment
    /// ago may wait for it, and has nothing of the type to show.
    pub(super) fn recent(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        if !self.may_wait_for(&key.resource_type) {
            return None;
        }
        let recent = self.recent_tables(&key.resource_type);
        recent.iter().rev().find_map(|table| table.resolve(&key.name))
    }

    /// Returns `true` if a client that came back a moment ago may wait for a resource of the type that it was led to before.
    pub(super) fn may_wait_for(&self, of: &ResourceType) -> bool {
        references::rows_to(of).any(|row| row.is_used_at_once)
            && self.states(of).all(|state| !state.ledger.came_back() || Quirk::AskedAtFirstUse.is_of(of))
    }

    /// Returns `true` if the client will ask for all resources of a type.
    pub(super) fn is_wildcard_expected(&self, of: &ResourceType) -> bool {
        let takes_all = self.input.view.key().profile == Profile::Envoy && Quirk::TakenUnasked.is_of(of);
        takes_all && self.is_expected(of)
    }

    /// Something that refers to a type and of which the client may have a version that nobody remembers: until it has accepted what
    /// there is now. Nobody can tell what that refers to.
    pub(super) fn unknown_user(&self, of: &ResourceType) -> Option<ResourceKey> {
        let mut rows = references::rows_to(of).filter(|row| row.from != *of);
        rows.find_map(|row| {
            let mut states = self.states(&row.from);
            let is_open = states
                .any(|state| state.ledger.came_back() || (self.input.is_back && state.ledger.is_open()));
            let may_have = is_open || self.is_expected(&row.from);
            let first = self.table(&row.from).resources().next().filter(|_| may_have)?;
            Some(first.key().clone())
        })
    }
}

impl TypeState {
    /// The version of a resource that the client came back with: the one that it claims, or the newest that it may have.
    pub(super) fn had<'a>(&'a self, name: &'a Name) -> Option<&'a Arc<Resource>> {
        let newest = self.candidates(name).next();
        if !self.is_exact() {
            return newest;
        }
        // It does not claim what it still waits for, nor what it asks for by another name.
        let may_have = self.ledger.may_hold(name) || self.wants.names().contains(name);
        self.claimed(name).or(newest.filter(|_| may_have))
    }

    /// Returns `true` if the client says that it has another version of a resource, one that nobody remembers.
    pub(super) fn claims_another(&self, resource: &Resource) -> bool {
        let claimed = self.ledger.claimed(resource.name());
        claimed.is_some_and(|claimed| claimed != resource.version())
    }

    /// Returns `true` if the stream may have to be sent something, and was sent nothing yet.
    fn awaits_first_response(&self) -> bool {
        self.is_dirty && self.ledger.responses().is_empty()
    }

    /// Returns `true` if the client said what it has of each name.
    pub(super) fn is_exact(&self) -> bool {
        self.ledger.shows_versions()
    }

    /// The version of a resource that the client says it has, if anybody remembers it.
    pub(super) fn claimed<'a>(&'a self, name: &'a Name) -> Option<&'a Arc<Resource>> {
        let version = self.ledger.claimed(name)?;
        self.candidates(name).find(|candidate| candidate.version() == version)
    }

    /// The versions that the client may have of a name, newest first.
    pub(super) fn candidates<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Arc<Resource>> {
        let tables: Vec<&Arc<TypeTable>> = self.ledger.tables().collect();
        tables.into_iter().rev().filter_map(|table| table.find(name))
    }

    /// The references of `resource` that the client's version of it may lack.
    pub(super) fn new_references(&self, resource: &Resource) -> Vec<ResourceKey> {
        let name = resource.name();
        let is_new: Box<dyn Fn(&ResourceKey) -> bool> = match (self.is_exact(), self.claimed(name)) {
            (true, Some(had)) => Box::new(|to| !had.references().has(to)),
            (true, None) => Box::new(|_| true),
            (false, _) => Box::new(|to| {
                let mut had = self.ledger.tables().map(|table| table.find(name));
                had.any(|had| had.is_none_or(|had| !had.references().has(to)))
            }),
        };
        resource.references().targets().filter(|to| is_new(to)).cloned().collect()
    }
}
