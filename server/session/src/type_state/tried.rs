//! A client's answers, and what it is offered again because of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::status::{EventKind, MAX_NACK_MESSAGE, Named, Rejection, Sent, Standing, Variant};
use xds_cache::{Name, Profile, Resource, TypeTable, Version};

use super::rejections::{Found, LastRejection, Nack, Rejections};
use super::words::{named_in, named_of_list};
use super::{ClientTraits, TypeState};
use crate::ledger::{Answer, Load};
use crate::owed::Owed;
use crate::quirks::Quirk;
use crate::references::refers;
use crate::target::Target;

impl TypeState {
    /// The events that an answer is. What came in a rejected response is owed again in smaller ones.
    pub(crate) fn answered(&mut self, sent: Sent, load: &Load, error_detail: Option<&str>) -> Vec<EventKind> {
        let last = self.last_rejection.take();
        // What was told of the last list is over.
        let is_over = last.as_ref().is_some_and(|last| last.is_told);
        let is_over = is_over.then(|| EventKind::Standing(Arc::default()));
        let Some(message) = error_detail else {
            let standing = self.accept(&sent, load);
            return is_over.into_iter().chain(standing).chain([EventKind::Acked(sent)]).collect();
        };
        let is_short = message.len() <= MAX_NACK_MESSAGE;
        let message: Arc<str> = shortened(message).into();
        let brought = (!self.has(Quirk::CompleteLists)).then_some(&load.brought[..]);
        let untried = self.ledger.take_untried(sent.nonce, brought);
        let mut of_list = vec![];
        let mut named = if self.has(Quirk::CompleteLists) {
            let suspects = self.suspect_list(&sent, &message);
            if suspects.is_empty() {
                let table = self.ledger.handle_nack_of_list(&sent).cloned();
                let named = self.named_of(table.as_ref(), load, &message);
                if is_short && let Some(table) = table {
                    of_list = rejections_of(&sent, &table, &named, last.as_deref());
                }
                named
            } else {
                named_in(&message, |name| suspects.contains(name))
            }
        } else {
            self.ledger.handle_nack(&sent, &load.brought, !refers(&self.resource_type));
            self.suspect(&sent, load, &message);
            let brought: BTreeSet<&str> = load.brought.iter().map(|(name, _)| &**name).collect();
            named_in(&message, |name| brought.contains(name))
        };
        for name in &untried {
            self.retry(name);
        }
        named.is_all &= is_short;
        self.last_rejection =
            Some(Box::new(LastRejection { words: Arc::clone(&message), of_list, is_told: false }));
        let nacked = EventKind::Nacked { sent, message, named };
        is_over.into_iter().chain([nacked]).chain(self.report_rejections()).collect()
    }

    /// Returns `true` if the client rejected the last response with these words. grpc-js repeats them whenever it asks for other names.
    pub(crate) fn was_rejected_with(&self, words: &str) -> bool {
        self.last_rejection.as_ref().is_some_and(|last| *last.words == *shortened(words))
    }

    /// The resources of a list that the client names.
    fn named_of(&self, table: Option<&Arc<TypeTable>>, load: &Load, message: &Arc<str>) -> Named {
        if !load.listed.is_empty() {
            return named_of_list(message, &load.listed, true);
        }
        let listed = table.map(|table| self.wants.of(table)).unwrap_or_default();
        let listed: Vec<Name> = listed.iter().map(|resource| Arc::clone(resource.name())).collect();
        named_of_list(message, &listed, self.wants.is_wildcard())
    }

    /// The news that the client does not ask any more for something that it rejected of a list.
    fn report_dropped_of_list(&mut self) -> Option<Standing> {
        let last = self.last_rejection.as_mut()?;
        let n_before = last.of_list.len();
        last.of_list.retain(|one| self.wants.covers_name(&one.name));
        let n_rejected = last.of_list.len();
        if n_rejected == n_before {
            return None;
        }
        last.is_told = true;
        let since = last.of_list.iter().map(|one| one.since).min();
        let rejected = last.of_list.iter().take(Standing::MAX_LISTED).cloned().collect();
        Some(Standing { rejected, n_rejected, n_unknown: 0, since })
    }

    /// The client accepted a trial, and may have been sent others since.
    pub(crate) fn accept_trial(&mut self, sent: &Sent, load: &Load) -> Option<EventKind> {
        self.accept(sent, load)
    }

    fn accept(&mut self, sent: &Sent, load: &Load) -> Option<EventKind> {
        let is_complete = self.has(Quirk::CompleteLists);
        let is_leaf = !refers(&self.resource_type);
        if !is_leaf && !self.wants.is_wildcard() {
            self.ledger.note_missed(sent.nonce, &self.wants);
        }
        if is_complete {
            self.accept_list(sent.nonce);
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

    /// The client is sent these now. It may accept what it rejected before it connected, without using it; then it shows, when it comes
    /// back once more, that it has that.
    pub(crate) fn presume_refused(
        &mut self,
        target: Target<'_>,
        changed: &[Arc<Resource>],
        client: ClientTraits<'_>,
    ) {
        let n_before = client.culprits.n_before;
        if !client.is_envoy || n_before == 0 || !self.has(Quirk::RejectsOnlyOnce) {
            return;
        }
        let Some(known) = client.culprits.known() else { return };
        let table = target.table(&self.resource_type);
        let served =
            |name: &Name| table.find(name).filter(|one| self.ledger.claimed(name) == Some(one.version()));
        let shown = self.ledger.claims().filter_map(served);
        // Once it was sent something else in between, it judges anew.
        let is_first =
            |one: &&Arc<Resource>| self.judged_anew.as_ref().is_none_or(|names| !names.contains(one.name()));
        let refused = |one: &Arc<Resource>| Some((Arc::clone(one), Arc::clone(known.words(one, n_before)?)));
        let all: Vec<_> = changed.iter().chain(shown).filter(is_first).filter_map(refused).collect();
        let version_info = target.version_info(&self.resource_type);
        for (resource, words) in all {
            let rejections = self.rejections.get_or_insert_default();
            rejections.presume((version_info, target.view.revision()), &resource, &words);
        }
        if !changed.is_empty() {
            let mut names = known.names(&self.resource_type, n_before);
            names.retain(|name| {
                changed.iter().any(|one| one.name() == name && known.words(one, n_before).is_none())
            });
            if !names.is_empty() {
                self.judged_anew.get_or_insert_default().extend(names);
            }
        }
    }

    /// Takes what the client itself has refused, but for conflicts, which are of this client's list; and whether it searches on.
    pub(crate) fn take_found(&mut self) -> (Vec<Found>, bool) {
        let found = self.rejections.as_mut().map(|rejections| rejections.take_found()).unwrap_or_default();
        let found = found.into_iter().filter(|(name, ..)| !self.is_in_conflict(name)).collect();
        (found, self.is_searching())
    }

    /// Takes the resources that the client accepts after it had rejected them.
    pub(crate) fn take_lifted(&mut self) -> Vec<Name> {
        let Some(rejections) = &mut self.rejections else { return vec![] };
        let lifted = rejections.take_lifted();
        if rejections.is_over() {
            self.rejections = None;
        }
        lifted
    }

    /// Returns `true` if the client rejects anything.
    pub(crate) fn is_rejecting(&self) -> bool {
        self.rejections.is_some() || self.last_rejection.is_some()
    }

    /// Owes a resource again if the client rejects it: what it refers to has changed. Tells whether it does.
    pub(crate) fn retry(&mut self, name: &Name) -> bool {
        let is_rejected = match self.has(Quirk::CompleteLists) {
            true => self.ledger.answer(name) == Answer::Rejected,
            false => self.rejections.as_ref().is_some_and(|rejections| rejections.refuses(name)),
        };
        is_rejected && self.renew(name)
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
    pub(crate) fn review_rejections(&mut self, target: Target<'_>) {
        if self.is_substituting() {
            // The target has older versions of what is searched.
            self.review_list(target.view.table(&self.resource_type), target.view.revision());
            return;
        }
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
        if let Some(standing) = self.report_dropped_of_list() {
            return Some(EventKind::Standing(standing.into()));
        }
        let standing = self.rejections.as_mut()?.report();
        if self.rejections.as_ref().is_some_and(|rejections| rejections.is_over()) {
            self.rejections = None;
        }
        standing.map(|standing| EventKind::Standing(standing.into()))
    }

    /// Returns `true` if the resource came in a rejected response, and is offered again.
    pub(crate) fn is_offered_again(&self, resource: &Resource) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| rejections.is_apart(resource))
    }

    /// Returns `true` if a response of these offers again a part of what was rejected.
    pub(super) fn is_trial(&self, changed: &[Arc<Resource>]) -> bool {
        changed.first().is_some_and(|first| self.is_offered_again(first))
    }

    /// Returns `true` if nothing is owed but trials.
    pub(crate) fn owes_only_trials(&self, owed: &Owed, profile: Profile) -> bool {
        let Some(rejections) = &self.rejections else { return false };
        // A list has everything; a search of lists pauses instead.
        if self.is_substituting() {
            return false;
        }
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
    pub(crate) fn take_owed(&self, owed: &mut Owed, client: ClientTraits<'_>) -> Owed {
        let max_bytes = client.max_response_bytes;
        let max_resources = match client.is_envoy && self.has(Quirk::RejectsOnlyOnce) {
            // A State of the World client repeats all its names in each answer.
            true => self.wants.names().len().div_ceil(MAX_PARTS),
            false => usize::MAX,
        };
        // To be absent from a complete list would be to be deleted.
        let known = if self.has(Quirk::CompleteLists) { None } else { client.culprits.known() };
        let knows = |resource: &Resource| known.as_ref().is_some_and(|known| known.has(resource));
        let is_suspected = |resource: &Resource| {
            self.rejections.as_ref().is_some_and(|rejections| rejections.is_apart(resource))
        };
        let is_apart = |resource: &Arc<Resource>| is_suspected(resource) || knows(resource);
        let all = std::mem::take(&mut owed.changed);
        let (mut apart, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_apart);
        if apart.is_empty() {
            owed.changed = others;
            return owed.take(max_bytes, max_resources);
        }
        let has_others = !others.is_empty() || self.owes_others(owed, client.profile);
        owed.changed = if has_others {
            others
        } else {
            let none = Rejections::default();
            self.rejections.as_deref().unwrap_or(&none).take_group(&mut apart, knows)
        };
        let sent = owed.take(max_bytes, max_resources);
        owed.changed.append(&mut apart);
        owed.changed.sort_by(|a, b| a.name().cmp(b.name()));
        sent
    }

    /// Returns `true` if resources of rejected responses are still offered again.
    pub(crate) fn is_searching(&self) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| rejections.is_searching())
    }

    /// How many trials the client has not answered.
    pub(crate) fn n_trials(&self) -> usize {
        if self.rejections.is_none() { 0 } else { self.ledger.responses().n_trials() }
    }
}

/// The rejections of what the client names of a list, as far as the list has it.
fn rejections_of(
    sent: &Sent,
    list: &TypeTable,
    named: &Named,
    last: Option<&LastRejection>,
) -> Vec<Rejection> {
    let since = |name: &Name| {
        let before = last.into_iter().flat_map(|last| &last.of_list).find(|one| one.name == *name);
        before.map_or(sent.revision, |before| before.since)
    };
    let rejection = |(name, words): &(Name, Arc<str>)| {
        Some(Rejection {
            name: Arc::clone(name),
            version: list.find(name)?.version(),
            message: Arc::clone(words),
            version_info: Arc::clone(&sent.version_info),
            revision: sent.revision,
            since: since(name),
        })
    };
    named.resources.iter().filter_map(rejection).collect()
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
