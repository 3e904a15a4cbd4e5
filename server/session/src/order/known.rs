//! What a client may have learned of by what it uses already, and asks for only then: the routes of its scopes, its virtual hosts.
//!
//! The state of the type does not tell what that was: it may have had something else to send, or belong to a stream that has ended or
//! is to be opened. So the tables of the last plan are remembered: whatever a client was sent since then leads to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::status::StreamId;
use xds_cache::{Deviation, ResourceType, TypeTable, WaitsFor};

use super::{Plan, Target, table};
use crate::stream::Stream;

/// What there is, by type, of what a client asks for only when it uses it already.
pub(super) type Known = BTreeMap<ResourceType, Arc<TypeTable>>;

/// What the client may have learned of once it is brought up to this.
pub(super) fn known(target: Target<'_>, streams: &BTreeMap<StreamId, Stream>) -> Option<Box<Known>> {
    let is_sent = |of: &ResourceType| streams.values().any(|stream| stream.find(of).is_some());
    let rows = table::ROWS.iter().filter(|row| row.is_used_at_once && is_sent(&row.from));
    let tables = rows.map(|row| (row.to.clone(), Arc::clone(target.table(&row.to))));
    let known: Known = tables.filter(|(_, table)| !table.is_empty()).collect();
    (!known.is_empty()).then(|| Box::new(known))
}

impl Plan<'_> {
    /// Finds what is gone of that and may be in use, and that the client was not sent yet: of it no older version counts.
    pub(super) fn retain_known(&mut self) {
        for (of, known) in self.readiness.known.into_iter().flatten() {
            for name in &self.readiness.view.table(of).changes_since(known).removed {
                let is_held = self.deviations.get(of).is_some_and(|held| held.contains_key(name));
                let is_sent = self.readiness.states(of).any(|state| state.subscription.has(name));
                let Some(resource) = known.find(name).filter(|_| !is_held && !is_sent) else { continue };
                let key = resource.key();
                let users = self.readiness.users(key);
                if table::is_used_at_once(of, &users) && self.may_retain(key, &users) {
                    let kept = Arc::clone(resource);
                    let obstacle = self.readiness.obstacle_for(resource);
                    let must_wait = obstacle.is_some();
                    if let Some(waits_for) = obstacle {
                        self.note(key, false, waits_for);
                        if self.readiness.may_have(key) {
                            // Until then it goes on with that.
                            continue;
                        }
                        self.transient.insert(of.clone());
                    }
                    let deviation =
                        if must_wait { Deviation::Withheld(Some(kept)) } else { Deviation::Kept(kept) };
                    self.deviations.entry(of.clone()).or_default().insert(Arc::clone(name), deviation);
                    match users.into_iter().next().filter(|_| self.readiness.is_about_to_come(key)) {
                        Some((user, _)) => {
                            self.transient.insert(of.clone());
                            self.note(key, true, WaitsFor::Disuse(user));
                        }
                        None => drop(self.after.silent.insert(key.clone())),
                    }
                }
            }
        }
    }

    /// Finds what of that changed and the client does not have yet: until it has asked for it, and as long as the new version has to
    /// wait, there is the one that the client was led to.
    pub(super) fn keep_known(&mut self) {
        for (of, known) in self.readiness.known.into_iter().flatten() {
            for new in &self.readiness.view.table(of).changes_since(known).changed {
                let Some(old) = known.find(new.name()) else { continue };
                let deviation = self.deviations.get(of).and_then(|deviations| deviations.get(new.name()));
                let must_wait = matches!(deviation, Some(Deviation::Withheld(_)));
                let is_unasked = deviation.is_none() && self.readiness.is_led_to(new.key());
                let may_come = || {
                    self.readiness.is_about_to_come(new.key()) && self.readiness.obstacle_for(old).is_none()
                };
                if is_unasked || (must_wait && may_come()) {
                    let deviations = self.deviations.entry(of.clone()).or_default();
                    deviations.insert(Arc::clone(old.name()), Deviation::Kept(Arc::clone(old)));
                }
            }
        }
    }
}
