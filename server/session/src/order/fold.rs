//! The decisions folded: tables, resources that are held back and since when, times to look again, and events.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::status::EventKind;
use xds_cache::{Deviation, Deviations, HeldBack, ResourceKey, ResourceType, WaitsFor};

use super::decide::{Decision, Step, decide};
use super::facts::{Facts, Input};
use super::waiting::Waiting;

/// The decisions folded.
#[derive(Default)]
pub(super) struct Fold {
    /// How the tables differ from the view's.
    pub(super) deviations: BTreeMap<ResourceType, Deviations>,
    /// Types of which the client has not everything.
    pub(super) transient: BTreeSet<ResourceType>,
    pub(super) events: Vec<(ResourceType, EventKind)>,
    pub(super) after: Waiting,
}

impl Fold {
    /// Decides about every resource that a stream has otherwise than the view.
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let mut fold = Self::default();
        for key in facts.open().keys() {
            fold.add(facts, key, decide(facts, key));
        }
        fold
    }

    fn add(&mut self, facts: &Facts<'_>, key: &ResourceKey, decision: Decision) {
        let Decision { step, because, obstacles, is_told, is_ending, is_overdue } = decision;
        let Input { before, limits, now, settling, .. } = facts.input;
        for obstacle in obstacles {
            match obstacle {
                WaitsFor::Settling(key) => self.after.look_again_at(settling.get(&key.name).copied()),
                WaitsFor::Sending(key)
                | WaitsFor::Request(key)
                | WaitsFor::Ack(key)
                | WaitsFor::Disuse(key)
                | WaitsFor::Change(key) => {
                    let since = before.awaited.get(&key).copied().unwrap_or(now);
                    let end = since.checked_add(limits.addition_grace);
                    self.after.look_again_at(end.filter(|end| now < *end));
                    self.after.awaited.insert(key, since);
                }
            }
        }
        if is_ending {
            let since = before.retained.get(key).copied().unwrap_or(now);
            let end = since.checked_add(limits.removal_grace);
            self.after.look_again_at(end.filter(|end| now < *end));
            self.after.retained.insert(key.clone(), since);
        }
        if !is_told {
            self.after.silent.insert(key.clone());
        }
        let waits_since = before.since(key);
        if let Some(waits_for) = because {
            if waits_since.is_none() {
                self.events.push((key.resource_type.clone(), EventKind::HeldBack));
            }
            self.transient.insert(key.resource_type.clone());
            // A client that was led to what is gone by now has to get it nevertheless.
            let is_to_come = matches!(step, Step::Hide(_)) && !matches!(waits_for, WaitsFor::Disuse(_));
            let is_removal = facts.served(key).is_none() && !is_to_come;
            let since = waits_since.unwrap_or(now);
            self.after.held_back.push(HeldBack { resource: key.clone(), is_removal, waits_for, since });
        } else if is_overdue && waits_since.is_some() {
            self.events.push((key.resource_type.clone(), EventKind::GraceExpired));
        }
        let deviation = match step {
            Step::Send => return,
            Step::PutOff => {
                self.after.detour.put_off.insert(key.clone());
                return;
            }
            Step::Keep(kept) => Deviation::Kept(kept),
            Step::Hide(hidden) => Deviation::Withheld(hidden),
        };
        let deviations = self.deviations.entry(key.resource_type.clone()).or_default();
        deviations.insert(key.name.clone(), deviation);
    }
}
