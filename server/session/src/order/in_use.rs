//! The users of a resource: whatever refers to it and may be in use.
//!
//! The client uses what it has and asks for; what it has and does not ask for any more it uses as long as it uses something that
//! refers to it. That is one mark from what it asks for along the references, over as much of what it has as leads to what is
//! asked about here.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use xds_cache::{Name, Resource, ResourceKey, ResourceType, TypeTable};

use super::facts::{Facts, User, wants};
use crate::ledger::Answer;
use crate::quirks::Quirk;
use crate::references;
use crate::type_state::TypeState;

impl User {
    /// Returns `true` if the client uses this before it has what this refers to of that type.
    pub(super) fn uses_at_once(&self, to: &ResourceType) -> bool {
        references::row_of(&self.key.resource_type, to).is_some_and(|row| row.is_used_at_once)
    }
}

/// Something that refers to a resource, and when that counts.
struct Referrer {
    user: User,
    counts: Counts,
}

/// When something that refers to a resource is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    Always,
    /// If something in use refers to it.
    IfUsed,
    /// If something in use refers to it that uses it before it is there.
    IfUsedAtOnce,
}

/// The users of each resource.
type InUse = BTreeMap<ResourceKey, Rc<[User]>>;

/// Finds what refers to a resource, with all that it takes to know that.
fn add(in_use: &mut InUse, facts: &Facts<'_>, to: &ResourceKey) -> Rc<[User]> {
    let mut referrers: BTreeMap<ResourceKey, Vec<Referrer>> = BTreeMap::new();
    let mut open = vec![to.clone()];
    while let Some(key) = open.pop() {
        if in_use.contains_key(&key) || referrers.contains_key(&key) {
            continue;
        }
        let found = facts.referrers(&key);
        let unsure = found.iter().filter(|referrer| referrer.counts != Counts::Always);
        open.extend(unsure.map(|referrer| referrer.user.key.clone()));
        referrers.insert(key, found);
    }
    mark(in_use, &referrers);
    in_use.get(to).cloned().unwrap_or_default()
}

/// Marks what is in use of these, which are with all that leads to them.
fn mark(in_use: &mut InUse, referrers: &BTreeMap<ResourceKey, Vec<Referrer>>) {
    let mut leads_to: BTreeMap<&ResourceKey, Vec<&ResourceKey>> = BTreeMap::new();
    for (to, found) in referrers {
        in_use.insert(to.clone(), Rc::default());
        for referrer in found {
            leads_to.entry(&referrer.user.key).or_default().push(to);
        }
    }
    let mut changed: Vec<&ResourceKey> = referrers.keys().collect();
    while let Some(to) = changed.pop() {
        let found = referrers.get(to).into_iter().flatten();
        let users: Rc<[User]> =
            found.filter(|referrer| counts(in_use, referrer)).map(|referrer| referrer.user.clone()).collect();
        if in_use.get(to).is_some_and(|before| before.len() < users.len()) {
            in_use.insert(to.clone(), users);
            changed.extend(leads_to.get(to).into_iter().flatten());
        }
    }
}

fn counts(in_use: &InUse, referrer: &Referrer) -> bool {
    let key = &referrer.user.key;
    let users = || in_use.get(key).into_iter().flat_map(|users| users.iter());
    match referrer.counts {
        Counts::Always => true,
        Counts::IfUsed => users().next().is_some(),
        Counts::IfUsedAtOnce => users().any(|user| user.uses_at_once(&key.resource_type)),
    }
}

impl Facts<'_> {
    /// The users of a resource.
    pub(super) fn users(&self, to: &ResourceKey) -> Rc<[User]> {
        if let Some(users) = self.in_use.borrow().get(to) {
            return Rc::clone(users);
        }
        add(&mut self.in_use.borrow_mut(), self, to)
    }

    /// Returns `true` if the client does not ask for a resource any more and still uses something that refers to it.
    pub(super) fn is_needed_unasked(&self, key: &ResourceKey) -> bool {
        !Quirk::UsedOnlyWhenAsked.is_of(&key.resource_type)
            && !self.is_asked_for(key)
            && !self.users(key).is_empty()
    }

    /// Returns `true` if the client uses something that leads to a resource at once.
    pub(super) fn is_used_at_once(&self, key: &ResourceKey) -> bool {
        self.users(key).iter().any(|user| user.uses_at_once(&key.resource_type))
    }

    /// Returns `true` if it makes a difference what the client has of a name.
    pub(super) fn matters(&self, state: &TypeState, table: &TypeTable, name: &Name) -> bool {
        let key = ResourceKey { resource_type: state.resource_type.clone(), name: Arc::clone(name) };
        state.wants.wants(table, name) || self.is_needed_unasked(&key)
    }

    /// Everything that refers to a resource, of all that the client may have. A user that goes on referring to all resources of a kind
    /// can do without any one of them.
    fn referrers(&self, to: &ResourceKey) -> Vec<Referrer> {
        let mut referrers = Vec::new();
        let all = references::all_of(to);
        // The client may have those of them that it has not named yet.
        let is_unsure = all.is_some() && self.may_ask_for(to);
        for row in references::rows_to(&to.resource_type) {
            let of = |table: &TypeTable| -> Vec<Arc<Resource>> {
                let of_all = all.iter().flat_map(|all| {
                    table.referrers(all).filter(|user| is_unsure || !self.goes_on(user.key(), all)).cloned()
                });
                table.referrers(to).cloned().chain(of_all).collect()
            };
            let known = self.input.known.and_then(|known| known.get(&row.from));
            for user in known.into_iter().flat_map(|table| of(table)) {
                let counts = self.if_learned_of(user.key());
                let user = User { key: user.key().clone(), is_rejected: false };
                referrers.extend(counts.map(|counts| Referrer { user, counts }));
            }
            let recent = self.recent_tables(&row.from);
            let recent = recent.iter().flat_map(|table| of(table));
            for user in recent {
                let counts = self.if_recent(user.key());
                let user = User { key: user.key().clone(), is_rejected: false };
                referrers.extend(counts.map(|counts| Referrer { user, counts }));
            }
            for state in self.states(&row.from) {
                for user in state.ledger.tables().flat_map(|table| of(table)) {
                    if let Some(counts) = self.if_had(state, &user) {
                        let substitutes = self.input.substitutes.get(&row.from);
                        let is_rejected = state.ledger.answer(user.name()) == Answer::Rejected
                            || substitutes.is_some_and(|all| all.contains_key(user.name()));
                        referrers
                            .push(Referrer { user: User { key: user.key().clone(), is_rejected }, counts });
                    }
                }
            }
        }
        referrers
    }

    /// When the client may be using this very version of a resource: it took it up or may have, and it asks for it, or still uses
    /// something that refers to it.
    fn if_had(&self, state: &TypeState, resource: &Resource) -> Option<Counts> {
        let key = resource.key();
        let is_taken = state.ledger.in_use(resource.name()).any(|used| used.version() == resource.version());
        if is_taken && wants(state, resource.name()) {
            return Some(Counts::Always);
        }
        let is_unasked = || !Quirk::UsedOnlyWhenAsked.is_of(&key.resource_type) && !self.is_asked_for(key);
        ((is_taken && is_unasked()) || self.may_be_asked_for(key)).then_some(Counts::IfUsed)
    }

    /// When a client that came back a moment ago may be using a recent resource.
    fn if_recent(&self, key: &ResourceKey) -> Option<Counts> {
        if self.may_ask_for(key) {
            let takes_all = Quirk::TakenUnasked.is_of(&key.resource_type);
            return Some(if takes_all { Counts::Always } else { Counts::IfUsed });
        }
        // It may wait for what it never had.
        if self.may_wait_for(&key.resource_type) { self.if_learned_of(key) } else { None }
    }

    /// When the client may come to use something that it was led to, and has not yet.
    fn if_learned_of(&self, key: &ResourceKey) -> Option<Counts> {
        if self.may_be_asked_for(key) {
            return Some(Counts::IfUsed);
        }
        let is_unasked = || !Quirk::UsedOnlyWhenAsked.is_of(&key.resource_type) && !self.is_asked_for(key);
        (is_unasked() || self.is_awaited(key)).then_some(Counts::IfUsedAtOnce)
    }

    /// Returns `true` if a resource is a virtual host that is gone: the first request to it may yet come to the route configuration that it was
    /// of.
    fn may_be_asked_for(&self, key: &ResourceKey) -> bool {
        Quirk::AskedAtFirstUse.is_of(&key.resource_type) && self.served(key).is_none()
    }
}
