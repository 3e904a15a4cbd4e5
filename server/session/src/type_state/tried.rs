//! A client's answers, and what it is offered again because of them.

use std::sync::Arc;

use xds_cache::status::{EventKind, MAX_NACK_MESSAGE, Sent, Variant};
use xds_cache::{Name, Profile, Resource, Version};

use super::rejections::Nack;
use super::{ClientTraits, TypeState};
use crate::ledger::Load;
use crate::owed::Owed;
use crate::quirks::Quirk;
use crate::references::refers;
use crate::target::Target;

impl TypeState {
    /// The events that an answer is. What came in a rejected response is owed again in smaller ones.
    pub(crate) fn answered(&mut self, sent: Sent, load: &Load, error_detail: Option<&str>) -> Vec<EventKind> {
        let is_complete = self.has(Quirk::CompleteLists);
        let Some(message) = error_detail else {
            let standing = self.accept(&sent, load, is_complete);
            return standing.into_iter().chain([EventKind::Acked(sent)]).collect();
        };
        let message: Arc<str> = shortened(message).into();
        if is_complete {
            self.ledger.handle_nack_of_list(&sent);
        } else {
            self.ledger.handle_nack(&sent, &load.brought, !refers(&self.resource_type));
            self.suspect(&sent, load, &message);
        }
        let nacked = EventKind::Nacked { sent, message };
        std::iter::once(nacked).chain(self.report_rejections()).collect()
    }

    /// The client accepted a trial, and may have been sent others since.
    pub(crate) fn accept_trial(&mut self, sent: &Sent, load: &Load) -> Option<EventKind> {
        self.accept(sent, load, false)
    }

    fn accept(&mut self, sent: &Sent, load: &Load, is_complete: bool) -> Option<EventKind> {
        let is_leaf = !refers(&self.resource_type);
        if !is_leaf && !self.wants.is_wildcard() {
            self.ledger.note_missed(sent.nonce, &self.wants);
        }
        self.ledger.handle_ack(sent.nonce, is_complete, is_leaf);
        self.lift_rejections(load)
    }

    /// The client accepted what came in a response.
    pub(crate) fn lift_rejections(&mut self, load: &Load) -> Option<EventKind> {
        let proves_use = !self.has(Quirk::RejectsOnlyOnce);
        if let Some(rejections) = &mut self.rejections {
            rejections.handle_ack(&load.brought, proves_use);
        }
        self.report_rejections()
    }

    /// Owes again what came in a rejected response, as far as it is not refused for certain.
    fn suspect(&mut self, sent: &Sent, load: &Load, words: &Arc<str>) {
        if load.brought.is_empty() {
            return;
        }
        let settled = Arc::clone(self.ledger.settled());
        let is_open = |(name, version): &&(Name, Version)| {
            let current = self.wants.look_up(&settled, name);
            current.is_some_and(|current| current.version() == *version)
                && !self.ledger.responses().bring(name, *version)
        };
        let open: Vec<(Name, Version)> = load.brought.iter().filter(is_open).cloned().collect();
        let nack = Nack { sent, words, n_brought: load.brought.len(), is_trial: load.is_trial };
        let owed = self.rejections.get_or_insert_default().handle_nack(nack, &open);
        self.is_dirty |= !owed.is_empty();
        owed.into_iter().for_each(|name| self.doubt_resource(name));
    }

    /// Forgets rejections of what does not exist any more, or is sent in another version.
    pub(super) fn review_rejections(&mut self, target: Target<'_>) {
        let Some(rejections) = &mut self.rejections else { return };
        let table = target.table(&self.resource_type);
        rejections.retain(|name| table.resolve(name).map(|resource| resource.version()));
    }

    /// The client dropped a name.
    pub(super) fn forget_rejection(&mut self, name: &Name) {
        if let Some(rejections) = &mut self.rejections {
            rejections.forget(name);
        }
    }

    /// The news of the standing rejections for the status board, if there are any.
    pub(crate) fn report_rejections(&mut self) -> Option<EventKind> {
        let standing = self.rejections.as_mut()?.report();
        if self.rejections.as_ref().is_some_and(|rejections| rejections.is_over()) {
            self.rejections = None;
        }
        standing.map(|standing| EventKind::Standing(standing.into()))
    }

    /// Returns `true` if a response of these offers again a part of what was rejected.
    pub(super) fn is_trial(&self, changed: &[Arc<Resource>]) -> bool {
        self.rejections
            .as_ref()
            .is_some_and(|rejections| changed.first().is_some_and(|first| rejections.is_apart(first)))
    }

    /// Returns `true` if nothing is owed but trials.
    pub(crate) fn owes_only_trials(&self, owed: &Owed, profile: Profile) -> bool {
        let Some(rejections) = &self.rejections else { return false };
        !self.is_answer_owed
            && self.awaited.is_none()
            && !owed.changed.is_empty()
            && !self.owes_others(owed, profile)
            && owed.changed.iter().all(|resource| rejections.is_apart(resource))
    }

    /// Returns `true` if the client has to be told of names without a resource.
    fn owes_others(&self, owed: &Owed, profile: Profile) -> bool {
        let tells_missing = self.variant == Variant::Delta
            || Quirk::WaitsForMissing.is_of_profile(&self.resource_type, profile);
        (tells_missing && !owed.missing.is_empty()) || (!self.hides_removals() && !owed.removed.is_empty())
    }

    /// Takes the next response out of what is owed, and leaves the rest. Suspects go apart, one group at a time, after everything else.
    pub(crate) fn take_owed(&self, owed: &mut Owed, client: ClientTraits) -> Owed {
        let max_bytes = client.max_response_bytes;
        let max_resources = match client.is_envoy && self.has(Quirk::RejectsOnlyOnce) {
            // A State of the World client repeats all its names in each answer.
            true => self.wants.names().len().div_ceil(MAX_PARTS),
            false => usize::MAX,
        };
        let Some(rejections) = &self.rejections else { return owed.take(max_bytes, max_resources) };
        let all = std::mem::take(&mut owed.changed);
        let (mut apart, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|resource| rejections.is_apart(resource));
        let has_others = !others.is_empty() || self.owes_others(owed, client.profile);
        owed.changed = if has_others { others } else { rejections.take_group(&mut apart) };
        let sent = owed.take(max_bytes, max_resources);
        owed.changed.append(&mut apart);
        owed.changed.sort_by(|a, b| a.name().cmp(b.name()));
        sent
    }

    /// How many trials the client has not answered.
    pub(crate) fn n_trials(&self) -> usize {
        if self.rejections.is_none() { 0 } else { self.ledger.responses().n_trials() }
    }
}

/// In how many responses a change of all resources is sent that go each in one of their own; with more resources, some go together.
const MAX_PARTS: usize = 64;

/// At most [`MAX_NACK_MESSAGE`] bytes of a text, cut between characters.
fn shortened(message: &str) -> &str {
    let mut end = message.len().min(MAX_NACK_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
