//! The versions that the client may be using of one type on one stream, and the effect of its answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use xds_cache::{Name, Resource, TypeTable, Version};

use super::Ledger;
use super::responses::Answered;
use super::sending::{Accepted, Answer, Sending};
use crate::request::Nonce;
use crate::steps::counted;
use crate::wants::Wants;

impl Ledger {
    /// The names of what was sent of a table, as far as it is still there, and of what was to be sent; without those of which there is
    /// but one version that the client may have, and those that go on referring to all that they did.
    pub(crate) fn names_sent(&self, accepted: Accepted<'_>) -> BTreeSet<Name> {
        let Some(Sending { table, again, missed, .. }) = self.later.get(accepted.position) else {
            return BTreeSet::new();
        };
        let is_only = self.later.len() == 1 && !self.is_guessed();
        let drops = |new: &&Arc<Resource>| {
            let had = accepted.older.find(new.name()).map(|old| old.references());
            had.is_some_and(|had| had.missing_in(new.references()).next().is_some())
        };
        let changes = table.changes_since(accepted.older);
        let changed = changes.changed.iter().filter(|new| !is_only || drops(new));
        let changed = changed.map(|resource| resource.name());
        let mut sent: BTreeSet<Name> = changed.chain(&again.names).chain(missed).cloned().collect();
        if again.is_everything || self.is_guessed() {
            sent.extend(self.changed().filter(|name| table.find(name).is_some()));
        }
        sent
    }

    /// Returns `true` if the client may be using something though nobody knows whether it was sent that.
    pub(super) fn is_guessed(&self) -> bool {
        self.bases().len() > 1
    }

    /// The tables that the client may have from before the first response that counts, oldest first.
    pub(super) fn bases(&self) -> &[Arc<TypeTable>] {
        self.guesses.as_ref().map_or(std::slice::from_ref(&self.base), |guesses| &guesses[..])
    }

    /// Each table but the oldest that the client may have come back with, and the one before it.
    fn guessed(&self) -> impl Iterator<Item = (&Arc<TypeTable>, &Arc<TypeTable>)> {
        self.bases().iter().zip(self.bases().iter().skip(1))
    }

    /// The resources that `table` withholds from the client, and of which it may have come back with any version.
    pub(super) fn withheld(&self, table: &TypeTable) -> impl Iterator<Item = Name> {
        let guessed = self.is_guessed().then(|| self.changed()).into_iter().flatten();
        guessed.filter(|name| table.is_withheld(name) && table.find(name).is_some())
    }

    /// The names of which the client may have more than one version.
    pub(super) fn changed(&self) -> impl Iterator<Item = Name> {
        self.tables().zip(self.tables().skip(1)).flat_map(|(older, newer)| {
            let changes = newer.changes_since(older);
            let changed = changes.changed.iter().map(|resource| Arc::clone(resource.name()));
            changed.chain(changes.removed.iter().cloned()).collect::<Vec<Name>>()
        })
    }

    /// About how many names are looked at to find what an answer means.
    pub(crate) fn answer_size(&self) -> usize {
        let n_changed = |(older, newer): (&Arc<TypeTable>, &Arc<TypeTable>)| {
            newer.remembered_changes_since(older).map_or(newer.len(), |changes| changes.len())
        };
        let n_names: usize = self.later.iter().map(Sending::n_names).sum();
        n_names + self.tables().zip(self.tables().skip(1)).map(n_changed).sum::<usize>()
    }

    /// Finds what the nonce of a request answers. It is answered from now on.
    pub(crate) fn take_answered(&mut self, nonce: Nonce) -> Answered {
        let answered = self.responses.take(nonce);
        if matches!(answered, Answered::Last(..)) {
            self.forget_all_dropped();
        }
        answered
    }

    /// Returns `true` if something was accepted of which it is not known yet whether it replaced what went before.
    pub(crate) fn has_news(&self) -> bool {
        self.later.iter().any(|sending| sending.answer == Answer::Accepted(None))
    }

    /// The client accepted the response, and with it whatever went before and was not rejected; a complete list also makes good
    /// what was rejected. `is_leaf`: nothing that the type refers to is waited for.
    pub(crate) fn handle_ack(&mut self, nonce: u64, is_complete: bool, is_leaf: bool) {
        let Some(position) = self.position(nonce) else { return };
        let Some(sending) = self.later.get(position) else { return };
        let is_accepted = sending.is_whole && sending.nonces.1 == nonce;
        if is_accepted && (sending.answer != Answer::Rejected || is_complete) {
            self.accept(position, is_complete, is_leaf);
            self.compact();
        }
    }

    /// The client is about to accept the response: of that, and of what went before, it does not take up what it does not want.
    pub(crate) fn note_missed(&mut self, nonce: u64, wants: &Wants) {
        let Some(last) = self.position(nonce) else { return };
        for position in 0..=last {
            let older = Arc::clone(self.before(position));
            let is_everything = self.later.get(position).is_some_and(|sending| sending.again.is_everything);
            let others: Vec<Name> = is_everything.then(|| self.changed()).into_iter().flatten().collect();
            let Some(sending) = self.later.get(position) else { return };
            if matches!(sending.answer, Answer::None | Answer::Rejected) {
                let changes = sending.table.changes_since(&older);
                let changed = changes.changed.iter().map(|resource| resource.name());
                let carried = counted(changed.chain(&sending.again.names).chain(&others));
                // It was told that these are gone, by whatever name it had asked for them.
                let is_told =
                    |name: &Name| sending.again.names.contains(name) && sending.table.find(name).is_none();
                let missed = carried.filter(|name| !wants.wants(&sending.table, name) && !is_told(name));
                let missed: Vec<Name> = missed.cloned().collect();
                if let Some(sending) = self.later.get_mut(position) {
                    sending.missed.extend(missed);
                }
            }
        }
    }

    /// The client was sent all that it lacked of the newest table: what it asks for and was not sent it had.
    pub(super) fn note_whole(&mut self, wants: &Wants) {
        let Some(last) = self.later.len().checked_sub(1) else { return };
        let table = Arc::clone(self.newest_table());
        for position in 0..=last {
            let Some(sending) = self.later.get(position) else { return };
            let is_sent_later = |name: &Name| (position + 1..=last).any(|later| self.carried(later, name));
            let had = |name: &Name| {
                version(&sending.table, name) == version(&table, name)
                    && !is_sent_later(name)
                    && !table.is_withheld(name)
                    && wants.wants(&table, name)
            };
            let had: BTreeSet<Name> =
                counted(sending.missed.iter()).filter(|name| had(name)).cloned().collect();
            if let Some(sending) = self.later.get_mut(position) {
                sending.missed.retain(|name| !had.contains(name));
                sending.is_whole |= position == last;
            }
        }
    }

    /// Returns `true` if the client has taken up what was sent of a name after this.
    pub(crate) fn is_taken_after(&self, position: usize, name: &Name) -> bool {
        (position + 1..self.later.len()).any(|later| self.is_taken(later, name))
    }

    /// Returns `true` if the client has taken up what this carried of a name.
    pub(super) fn is_taken(&self, position: usize, name: &Name) -> bool {
        let Some(sending) = self.later.get(position) else { return false };
        // A client that rejects the new resources of a response obeys its removals nevertheless.
        let is_done_away = || {
            sending.answer == Answer::Rejected
                && sending.table.find(name).is_none()
                && self.later.iter().skip(position + 1).any(Sending::is_accepted)
        };
        self.carried(position, name)
            && !sending.missed.contains(name)
            && !sending.rejected.contains(name)
            && (sending.is_accepted() || is_done_away())
    }

    pub(super) fn accept(&mut self, position: usize, is_complete: bool, is_leaf: bool) {
        self.has_accepted = true;
        if is_complete {
            self.note_returned(position);
        }
        for sending in self.later.iter_mut().take(position + 1) {
            match sending.answer {
                Answer::Rejected if !is_complete => {}
                Answer::None | Answer::Rejected if is_leaf => sending.answer = Answer::Released,
                Answer::None | Answer::Rejected => sending.answer = Answer::Accepted(None),
                Answer::Accepted(_) | Answer::Released => {}
            }
        }
    }

    /// The client is about to accept a complete list: what rejected lists before it did not show, and it does, was maybe never gone.
    fn note_returned(&mut self, position: usize) {
        let Some(list) = self.later.get(position).map(|sending| Arc::clone(&sending.table)) else { return };
        for earlier in 0..position {
            let older = Arc::clone(self.before(earlier));
            let Some(sending) = self.later.get_mut(earlier) else { return };
            if sending.answer == Answer::Rejected {
                let removed = sending.table.changes_since(&older).removed.clone();
                sending.missed.extend(removed.into_iter().filter(|name| list.find(name).is_some()));
            }
        }
    }

    /// The tables that the client accepted, but that may not have replaced those before, oldest first.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = Accepted<'_>> {
        self.later.iter().enumerate().filter_map(|(position, sending)| match sending.answer {
            Answer::Accepted(at) => {
                let (older, newer) = (self.before(position), &sending.table);
                Some(Accepted { position, at, older, newer, missed: &sending.missed })
            }
            Answer::None | Answer::Released | Answer::Rejected => None,
        })
    }

    /// The versions of a resource that the client was sent, from the newest that it took up on: any of them may replace those before.
    pub(crate) fn newest<'a>(
        &'a self,
        name: &'a Name,
    ) -> impl Iterator<Item = (&'a Arc<TypeTable>, &'a Arc<Resource>)> {
        let mut newest = Vec::new();
        for (older, newer) in self.guessed() {
            if version(older, name) != version(newer, name) {
                newest.clear();
                newest.extend(newer.find(name).map(|resource| (newer, resource)));
            }
        }
        for (position, sending) in self.later.iter().enumerate() {
            let is_carried = self.carried(position, name);
            if self.is_taken(position, name) {
                newest.clear();
            }
            if is_carried && !sending.missed.contains(name) {
                newest.extend(sending.table.find(name).map(|resource| (&sending.table, resource)));
            }
        }
        newest.into_iter()
    }

    /// Notes when it was seen that these were accepted.
    pub(crate) fn note_accepted(&mut self, now: Instant) {
        for sending in &mut self.later {
            if sending.answer == Answer::Accepted(None) {
                sending.answer = Answer::Accepted(Some(now));
            }
        }
    }

    /// The numbers of tables that were rejected, and of which all that `matters` was replaced later.
    pub(crate) fn replaced(&self, matters: impl Fn(&TypeTable, &Name) -> bool) -> Vec<usize> {
        let takes = |(position, sending): (usize, &Sending), name: &Name| {
            let is_taken = match sending.answer {
                Answer::Released => true,
                // A client that rejects the new resources of a response obeys its removals nevertheless.
                Answer::Rejected => sending.table.find(name).is_none(),
                Answer::None | Answer::Accepted(_) => false,
            };
            is_taken && self.carried(position, name) && !sending.missed.contains(name)
        };
        let is_replaced = |(position, sending): &(usize, &Sending)| {
            let later = || self.later.iter().enumerate().skip(position + 1);
            let changes = sending.table.changes_since(self.before(*position));
            let changed = changes.changed.iter().map(|resource| resource.name());
            let all = sending.again.is_everything.then(|| sending.table.resources());
            let all = all.into_iter().flatten().map(|resource| resource.name());
            let again = sending.again.names.iter().filter(|name| sending.table.find(name).is_some());
            let mut names = changed.chain(again).chain(all).chain(&sending.missed);
            later().any(|(_, sending)| sending.answer == Answer::Released)
                && names.all(|name| later().any(|later| takes(later, name)) || !matters(&sending.table, name))
        };
        let rejected = self.later.iter().enumerate().filter(|(_, s)| s.answer == Answer::Rejected);
        rejected.filter(is_replaced).map(|(position, _)| position).collect()
    }

    /// The tables before these are out of use.
    pub(crate) fn release(&mut self, positions: &[usize]) {
        for position in positions {
            if let Some(sending) = self.later.get_mut(*position) {
                sending.answer = Answer::Released;
            }
        }
        self.compact();
    }

    /// Returns `true` if the client ever accepted a response of the type.
    pub(crate) fn has_accepted(&self) -> bool {
        self.has_accepted
    }

    /// Returns `true` if something was sent that is not accepted, or not wholly in use.
    pub(crate) fn is_open(&self) -> bool {
        !self.later.is_empty() || self.is_guessed()
    }

    /// The tables of which the client may be using something, oldest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TypeTable>> {
        self.bases().iter().chain(self.later.iter().map(|sending| &sending.table))
    }

    /// Every version of a resource that the client may be using, newest first.
    pub(crate) fn in_use<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.in_use_before(self.later.len(), name)
    }

    /// The same, before it was sent the one of this number.
    pub(crate) fn in_use_before<'a>(
        &'a self,
        position: usize,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        let sent = (0..position).rev().filter(|position| self.carried(*position, name));
        let mut found: Vec<&Arc<Resource>> = Vec::new();
        for position in sent {
            let Some(sending) = self.later.get(position) else { continue };
            found.extend(sending.table.find(name));
            if sending.answer == Answer::Released && !sending.rejected.contains(name) {
                return found.into_iter();
            }
        }
        let guessed = self.guessed().filter(|(older, newer)| version(older, name) != version(newer, name));
        let mut guessed: Vec<&Arc<Resource>> = guessed.filter_map(|(_, newer)| newer.find(name)).collect();
        guessed.reverse();
        found.extend(guessed);
        found.extend(self.bases().first().and_then(|base| base.find(name)));
        found.into_iter()
    }

    /// The client's answer to the newest response that carried the resource. If none did, it came with the resource.
    pub(crate) fn answer(&self, name: &str) -> Answer {
        let newest = (0..self.later.len()).rev().find(|position| self.carried(*position, name));
        newest.and_then(|position| self.later.get(position)).map_or(Answer::Released, |sending| {
            if sending.rejected.contains(name) { Answer::Rejected } else { sending.answer }
        })
    }

    pub(super) fn before(&self, position: usize) -> &Arc<TypeTable> {
        let before = position.checked_sub(1).and_then(|before| self.later.get(before));
        before.map(|sending| &sending.table).or(self.bases().last()).unwrap_or(&self.base)
    }

    /// The newest that the nonce can mean.
    pub(super) fn position(&self, nonce: u64) -> Option<usize> {
        self.later.iter().position(|sending| (sending.nonces.0..=sending.nonces.1).contains(&nonce))
    }

    pub(super) fn carried(&self, position: usize, name: &str) -> bool {
        let Some(sending) = self.later.get(position) else { return false };
        version(self.before(position), name) != version(&sending.table, name)
            || sending.again.has(&sending.table, name)
    }
}

fn version(table: &TypeTable, name: &str) -> Option<Version> {
    table.find(name).map(|resource| resource.version())
}
