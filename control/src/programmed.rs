//! `Programmed` of Gateways and their listeners, as the Envoys that follow this server answer.
//!
//! The translation says whether Envoys are sent what listens. Whether they take it is known only from their answers, which come and
//! change without a revision. So these conditions are not stored: they are laid over those of the translation whenever somebody asks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use xds_cache::StatusBoard;
use xds_cache::rejecting::RejectedByAll;
use xds_routes::conditions::{Condition, ConditionReason, ConditionType, ObjectStatus, Truth};
use xds_routes::plan::resources_of_listeners;
use xds_routes::{DocumentKey, Kind};

use crate::model::document::{ConditionPart, Translated};

/// The status of an object with what Envoys reject.
#[derive(Debug)]
pub struct Programmed<'t> {
    /// The status.
    pub status: Cow<'t, ObjectStatus>,
    /// Since when the parts are rejected whose condition `Programmed` differs from that of the translation.
    pub rejected_since: BTreeMap<ConditionPart, SystemTime>,
}

impl<'t> Programmed<'t> {
    /// Lays the answers of Envoys over the status of an object. A listener is not programmed while all Envoys of its group that have
    /// answered reject its Listener, or one of its secrets; without a client, the translation counts. A Gateway is not programmed if
    /// none of its listeners is.
    #[must_use]
    pub fn of(
        board: &StatusBoard,
        translated: &Translated,
        key: &DocumentKey,
        status: &'t ObjectStatus,
    ) -> Self {
        let mut seen = Self { status: Cow::Borrowed(status), rejected_since: BTreeMap::new() };
        let Some(placed) = translated.documents.get(key).filter(|_| key.kind == Kind::Gateway) else {
            return seen;
        };
        let mut rejections: Vec<(&str, RejectedByAll)> = Vec::new();
        for (name, resources) in resources_of_listeners(&placed.document) {
            let rejected = |one: &xds_cache::ResourceKey| {
                board.rejected_by_all_envoys(&placed.group, &one.resource_type, &one.name)
            };
            rejections.extend(resources.iter().find_map(rejected).map(|rejected| (name, rejected)));
        }
        if !rejections.is_empty() {
            seen.reject(&rejections);
        }
        seen
    }

    fn reject(&mut self, rejections: &[(&str, RejectedByAll)]) {
        let status = self.status.to_mut();
        let mut last = None;
        for listener in &mut status.listeners {
            let Some(condition) = programmed(&mut listener.conditions) else { continue };
            let Some((_, rejected)) = rejections.iter().find(|(name, _)| *name == listener.name) else {
                continue;
            };
            let (reason, message) = (reason(&rejected.words), words(rejected));
            *condition = Condition::fails(ConditionType::Programmed, reason, message);
            self.rejected_since.insert(ConditionPart::Listener(listener.name.clone()), rejected.since);
            last = last.max(Some(rejected.since));
        }
        let Some(since) = last else { return };
        if status.listeners.iter_mut().any(|listener| programmed(&mut listener.conditions).is_some()) {
            return;
        }
        let Some(condition) = programmed(&mut status.conditions) else { return };
        let reasons = || rejections.iter().map(|(_, rejected)| reason(&rejected.words));
        let is_not_usable = reasons().any(|reason| reason == ConditionReason::AddressNotUsable);
        let reason = if is_not_usable { ConditionReason::AddressNotUsable } else { ConditionReason::Invalid };
        let messages =
            rejections.iter().map(|(name, rejected)| format!("listener {name}: {}", words(rejected)));
        let message = messages.collect::<Vec<_>>().join("; ");
        *condition = Condition::fails(ConditionType::Programmed, reason, message);
        self.rejected_since.insert(ConditionPart::Object, since);
    }
}

/// The condition `Programmed`, if it is true.
fn programmed(conditions: &mut [Condition]) -> Option<&mut Condition> {
    let is_true = |one: &&mut Condition| one.kind == ConditionType::Programmed && one.status == Truth::True;
    conditions.iter_mut().find(is_true)
}

/// The Gateway API has a reason of its own only for an address and port that cannot be bound.
fn reason(words: &str) -> ConditionReason {
    match words.contains(CANNOT_BIND) {
        true => ConditionReason::AddressNotUsable,
        false => ConditionReason::Invalid,
    }
}

/// What Envoys say if they cannot listen: `cannot bind '0.0.0.0:80': Address already in use`.
const CANNOT_BIND: &str = "cannot bind";

fn words(rejected: &RejectedByAll) -> String {
    format!("every Envoy rejects it: {}", rejected.words)
}
