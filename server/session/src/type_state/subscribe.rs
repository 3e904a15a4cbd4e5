//! Changes of what a client asks for, and what they mean for what it holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::{Found, Name, Resource, xdstp};

use super::TypeState;
use crate::ledger::Held;
use crate::references::route_of;
use crate::steps::{counted, step};
use crate::wants::WILDCARD;

impl TypeState {
    /// The client says that it holds a version from an earlier stream (row A92); counts if it wants the resource (row A95). A
    /// version of another server is out of date.
    pub(crate) fn claim(&mut self, name: &str, version: &str) {
        let held = version.parse().map_or(Held::Stale, Held::Version);
        let canonical = xdstp::canonical(name);
        // One virtual host may serve several hosts of one route configuration (rows A116, A120).
        let is_near = || route_of(name).is_some_and(|route| self.wants.names().has_route(route));
        if self.wants.names().contains(&canonical) {
            self.ledger.exceptions.insert(Name::from(&*canonical), held);
        } else if self.wants.covers_name(name) || is_near() {
            self.ledger.exceptions.insert(Name::from(name), held);
        }
    }

    /// The client needs the resource again, whatever it holds. Tells whether it wants it at all.
    pub(crate) fn mark_unknown(&mut self, name: &str) -> bool {
        let name = xdstp::canonical(name);
        if let Some(name) = self.wants.names().get(&name).cloned() {
            self.doubt(name);
            return true;
        }
        let settled = self.ledger.settled();
        let is_held = settled.find(&name).is_some_and(|resource| self.wants.covers(settled, resource))
            || (self.ledger.exceptions.contains(&name) && self.wants.covers_name(&name));
        if is_held {
            self.ledger.exceptions.insert(Name::from(&*name), Held::Unknown);
        }
        is_held
    }

    /// It is not known whether the client has a resource that it wants and was sent.
    pub(super) fn doubt_resource(&mut self, name: Name) {
        if self.wants.names().contains(&name) {
            self.doubt(name);
        } else {
            self.ledger.exceptions.insert(name, Held::Unknown);
        }
    }

    /// Forgets what the client holds by a name that it asks for, also if the resource has another name; it waits for an answer.
    fn doubt(&mut self, name: Name) {
        let found = self.ledger.settled().look_up(&name).map(|found| Arc::clone(found.name(&name)));
        let has_its_name = found.as_ref() == Some(&name);
        if let Some(other) = found.filter(|_| !has_its_name) {
            self.ledger.exceptions.insert_new(other, Held::Stale);
        }
        let may_hold = match self.ledger.exceptions.get(&name) {
            Some(Held::Version(_) | Held::Stale | Held::Unknown) => true,
            Some(Held::Nothing | Held::Gone) => false,
            // Nothing has told a State of the World client that something of most types is gone.
            None => has_its_name || self.hides_removals(),
        };
        self.ledger.exceptions.insert(name, if may_hold { Held::Unknown } else { Held::Nothing });
    }

    /// Subscribes to one name; what the client holds of it is unknown from now on, also if it was subscribed to before (R7).
    pub(crate) fn add_name(&mut self, name: &str) {
        let name = Name::from(name);
        let settled = Arc::clone(self.ledger.settled());
        let is_given = match settled.look_up(&name) {
            Some(Found::AsItIs(resource)) => self.is_given(resource),
            // A resource that is made of a pattern is given to whoever asks for that very name.
            Some(Found::Template(_)) => self.wants.covers_name(&name),
            None => true,
        };
        let may_hold = is_given || self.ledger.exceptions.contains(&name);
        self.wants.insert(&name);
        if xdstp::is_glob(&name) {
            // Every member is owed, whatever the client said that it holds. It must still hear of members that are gone.
            let members: Vec<Name> = self.ledger.exceptions.members(&name).cloned().collect();
            for member in members {
                if matches!(self.ledger.exceptions.get(&member), Some(Held::Version(_))) {
                    let is_named = self.wants.names().contains(&member);
                    self.ledger.exceptions.insert(member, if is_named { Held::Unknown } else { Held::Stale });
                }
            }
        }
        self.ledger.recall(&name);
        if may_hold {
            self.doubt(name);
        } else {
            // It was there before, and nobody sent it to the client.
            self.ledger.exceptions.insert(name, Held::Nothing);
        }
    }

    /// Unsubscribes from one name. If something else covers the resource, the client is owed an answer, because it has dropped
    /// the resource (R8, row A106). For a name that is not subscribed to, see [`remove_found`](Self::remove_found).
    pub(crate) fn remove_name(&mut self, name: &str) -> bool {
        let taken = self.wants.take(name);
        let is_asked_for = taken.is_some();
        taken.into_iter().for_each(|name| self.drop_name(name));
        is_asked_for
    }

    /// The resource that a name stands for which is not subscribed to: it may be subscribed to under another name.
    pub(crate) fn find_settled(&self, name: &str) -> Option<Arc<Resource>> {
        step();
        let settled = self.ledger.settled();
        settled.find(name).or_else(|| settled.find_alias(name)).cloned()
    }

    /// Unsubscribes from a resource by all of its names (row A109).
    pub(crate) fn remove_found(&mut self, resource: &Resource) {
        for other in counted(resource.aliases().iter().chain([resource.name()])) {
            if let Some(name) = self.wants.take(other) {
                self.drop_name(name);
            }
        }
    }

    /// Settles what becomes of the resources of a name that was taken out.
    fn drop_name(&mut self, name: Name) {
        self.forget_rejection(&name);
        self.ledger.exceptions.remove(&name);
        let settled = Arc::clone(self.ledger.settled());
        let resources: Vec<Name> = if xdstp::is_glob(&name) {
            let members = counted(settled.members(&name)).map(|member| Arc::clone(member.name()));
            members.chain(self.ledger.exceptions.members(&name).cloned()).collect()
        } else {
            let found = settled.look_up(&name);
            vec![found.map_or(Arc::clone(&name), |found| Arc::clone(found.name(&name)))]
        };
        for resource in resources {
            let is_wanted =
                self.wants.covers_name(&resource) || self.wants.look_up(&settled, &resource).is_some();
            if is_wanted {
                self.ledger.exceptions.insert(resource, Held::Unknown);
            } else {
                self.forget_rejection(&resource);
                self.ledger.exceptions.remove(&resource);
                self.ledger.drop_resource(&self.wants, resource, &name);
            }
        }
    }

    /// Subscribes to everything; what the client holds is unknown from now on.
    pub(crate) fn add_wildcard(&mut self) {
        let settled = Arc::clone(self.ledger.settled());
        if self.wants.is_wildcard() {
            let covered = counted(settled.resources()).filter(|resource| resource.in_wildcard());
            covered.for_each(|resource| {
                self.ledger.exceptions.insert(Arc::clone(resource.name()), Held::Unknown);
            });
        } else {
            let names: Vec<Name> = self.wants.names().iter().cloned().collect();
            for name in names {
                let is_known = self.ledger.exceptions.contains(&name);
                let is_glob = self.wants.names().has_glob(&name);
                if !is_known && !is_glob && settled.look_up(&name).is_none() {
                    self.ledger.exceptions.insert(name, Held::Gone);
                    continue;
                }
                let members = self.wants.resources_of(&settled, &name);
                for member in members.filter(|resource| *resource.name() != name) {
                    self.ledger.exceptions.insert_new(Arc::clone(member.name()), Held::Stale);
                }
                self.doubt(name);
            }
            self.ledger.reset();
            self.wants.set_wildcard(true);
        }
        self.ledger.recall(WILDCARD);
    }

    /// Ends the wildcard; names stay. The client drops the rest without a word (row A107), except for virtual hosts.
    pub(crate) fn remove_wildcard(&mut self) {
        if !self.wants.set_wildcard(false) {
            return;
        }
        let settled = Arc::clone(self.ledger.settled());
        let held = counted(settled.resources()).filter(|resource| resource.in_wildcard());
        if self.wants.names().has_hosts() {
            // The client keeps some of them for a host, depending on the aliases that it was sent, so they are sent anew.
            held.for_each(|resource| {
                self.ledger.exceptions.insert_new(Arc::clone(resource.name()), Held::Stale);
            });
            let distrusted = |held| matches!(held, Held::Version(_)).then_some(Held::Stale);
            self.ledger.exceptions.update(distrusted);
            return;
        }
        let dropped =
            held.filter(|resource| !self.wants.covers(&settled, resource)).map(|resource| resource.name());
        let excepted = self.ledger.exceptions.iter().map(|(name, _)| name);
        let excepted = excepted.filter(|name| !self.wants.covers_name(name));
        let dropped: Vec<Name> = dropped.chain(excepted).cloned().collect();
        let wildcard = Name::from(WILDCARD);
        for name in dropped {
            self.forget_rejection(&name);
            self.ledger.exceptions.remove(&name);
            self.ledger.drop_resource(&self.wants, name, &wildcard);
        }
    }

    /// Makes `wanted` the whole of what is asked for one by one (SotW). Names that are new are owed (rows A46, A47). The client may take
    /// up what it drops again from a response that it has not seen yet.
    pub(crate) fn replace_names(&mut self, wanted: BTreeSet<Name>) {
        let dropped: Vec<Name> = self.wants.names().difference(&wanted).cloned().collect();
        let settled = Arc::clone(self.ledger.settled());
        for name in &dropped {
            self.forget_rejection(name);
            // A complete list shows also what is withheld.
            let was_listed = settled.is_withheld(name) && settled.find(name).is_some();
            if was_listed || self.sent(name).is_some() {
                self.ledger.drop_resource(&self.wants, Arc::clone(name), name);
            }
        }
        for name in counted(wanted.iter()) {
            if !self.wants.names().contains(name) {
                let may_hold = self.wants.is_wildcard()
                    || self.ledger.came_back()
                    || self.ledger.exceptions.contains(name)
                    || self.ledger.is_dropped(name)
                    || self.ledger.responses().bring_any(name);
                let held = if may_hold { Held::Unknown } else { Held::Nothing };
                self.ledger.exceptions.insert(Arc::clone(name), held);
            }
        }
        if self.wants.is_wildcard() {
            dropped.into_iter().for_each(|name| self.ledger.exceptions.insert(name, Held::Unknown));
        }
        self.wants.replace(wanted);
        if !self.wants.is_wildcard() {
            let names = self.wants.names();
            self.ledger.exceptions.retain(|name| names.contains(name));
        }
    }
}
