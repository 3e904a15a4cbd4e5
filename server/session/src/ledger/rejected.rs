//! Rejected responses: what they brought is in use or not, resource by resource.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::status::Sent;
use xds_cache::{Name, TypeTable, Version};

use super::Ledger;
use super::sending::{Answer, MAX_LATER, NO_NONCES, Sending};
use crate::steps::counted;

impl Ledger {
    /// The table of a response that the client has not answered.
    pub(crate) fn open_table(&self, nonce: u64) -> Option<&Arc<TypeTable>> {
        let sending = self.later.get(self.position(nonce)?)?;
        let is_open = sending.is_whole && sending.nonces.1 == nonce && sending.answer == Answer::None;
        is_open.then_some(&sending.table)
    }

    /// The client refused the last list, and goes on with this one, which it accepted before.
    pub(crate) fn go_on_with(&mut self, accepted: Arc<TypeTable>) {
        self.push(Sending::unsent(accepted, Answer::Released, BTreeSet::new()));
        self.compact();
    }

    /// The client accepted a complete list when it had been sent another one already.
    pub(crate) fn note_accepted_late(&mut self, nonce: u64) {
        let sending = self.position(nonce).and_then(|position| self.later.get_mut(position));
        let is_open = |sending: &&mut Sending| {
            sending.is_whole && sending.nonces.1 == nonce && sending.answer == Answer::None
        };
        if let Some(sending) = sending.filter(is_open) {
            sending.is_accepted_late = true;
        }
    }

    /// The newest table before a response that the client has accepted; `None` if it came back and has accepted none since.
    pub(crate) fn accepted_before(&self, nonce: u64) -> Option<&Arc<TypeTable>> {
        self.accepted_among(self.position(nonce)?)
    }

    /// The newest table that the client has accepted; `None` if it came back and has accepted none since.
    pub(crate) fn accepted_last(&self) -> Option<&Arc<TypeTable>> {
        self.accepted_among(self.later.len())
    }

    /// The newest of the first tables that the client has accepted.
    fn accepted_among(&self, n_first: usize) -> Option<&Arc<TypeTable>> {
        let is_accepted = |sending: &&Sending| {
            sending.nonces != NO_NONCES && (sending.is_accepted() || sending.is_accepted_late)
        };
        let accepted = self.later.iter().take(n_first).rev().find(is_accepted);
        let base = (!self.is_base_guessed).then_some(&self.base);
        accepted.map(|sending| &sending.table).or(base)
    }

    /// Something that a resource refers to has changed for the client. If the resource is on its way, the client may not have known of it.
    pub(crate) fn note_untried(&mut self, name: &Name) {
        let newest = (0..self.later.len()).rev().find(|position| self.carried(*position, name));
        let sending = newest.and_then(|position| self.later.get_mut(position));
        if let Some(sending) = sending.filter(|sending| sending.answer == Answer::None) {
            sending.untried.insert(Arc::clone(name));
        }
    }

    /// Takes the names that the client has rejected in a response without knowing what it has now of what they refer to. `brought` are those
    /// that came in the response, unless it was a complete list.
    pub(crate) fn take_untried(&mut self, nonce: u64, brought: Option<&[(Name, Version)]>) -> BTreeSet<Name> {
        let sending = self.position(nonce).and_then(|position| self.later.get_mut(position));
        let Some(untried) = sending.map(|sending| &mut sending.untried) else { return BTreeSet::new() };
        let Some(brought) = brought else { return std::mem::take(untried) };
        brought.iter().filter_map(|(name, _)| untried.take(name)).collect()
    }

    /// The client rejected a complete list. Returns the table that it is of, if that is still known.
    pub(crate) fn handle_nack_of_list(&mut self, sent: &Sent) -> Option<&Arc<TypeTable>> {
        let position = self.position(sent.nonce)?;
        let sending = self.later.get_mut(position)?;
        sending.answer = Answer::Rejected;
        Some(&sending.table)
    }

    /// The client rejected a response that brought these. It obeys the removals in it nevertheless. `is_leaf` as for an ACK.
    pub(crate) fn handle_nack(&mut self, sent: &Sent, brought: &[(Name, Version)], is_leaf: bool) {
        let Some(position) = self.position(sent.nonce) else { return };
        for (name, version) in counted(brought.iter()) {
            let Some(sending) = self.later.get_mut(position) else { return };
            let is_carried = sending.table.find(name).is_some_and(|carried| carried.version() == *version);
            let was_rejected = is_carried && self.is_rejected_before(position, name, *version);
            let Some(sending) = self.later.get_mut(position) else { return };
            if was_rejected {
                // It is as if the resource had not been sent once more.
                sending.again.names.remove(name);
            } else if is_carried {
                sending.rejected.insert(Arc::clone(name));
            }
        }
        let is_last = |sending: &Sending| sending.is_whole && sending.nonces.1 == sent.nonce;
        if self.later.get(position).is_some_and(is_last) {
            self.accept_alone(position, is_leaf);
            self.compact();
        }
    }

    /// Returns `true` if this version of a resource was rejected before and only sent once more by the sending of this number.
    fn is_rejected_before(&self, position: usize, name: &Name, version: Version) -> bool {
        let has_again = self.later.get(position).is_some_and(|sending| sending.again.names.contains(name));
        let is_same = |table: &TypeTable| table.find(name).is_some_and(|found| found.version() == version);
        let earlier = self.later.iter().take(position).rev().take_while(|sending| is_same(&sending.table));
        has_again && is_same(self.before(position)) && earlier.into_iter().any(|s| s.rejected.contains(name))
    }

    /// The client answered the last response of a sending, which says nothing about those before.
    fn accept_alone(&mut self, position: usize, is_leaf: bool) {
        if let Some(sending) = self.later.get_mut(position).filter(|sending| sending.answer == Answer::None) {
            sending.answer = if is_leaf { Answer::Released } else { Answer::Accepted(None) };
        }
    }

    /// Returns `true` if the client's answer to the sending of this number decides what it has of a name, whatever it rejected before.
    pub(super) fn is_answered_by(&self, position: usize, name: &Name) -> bool {
        let is_open = self.later.get(position).is_some_and(|sending| {
            sending.answer == Answer::None && !sending.missed.contains(name) && self.carried(position, name)
        });
        is_open || self.is_taken(position, name)
    }

    /// Returns `true` if another trial becomes a part of the last sending, which is one too: there are many on their way.
    pub(super) fn is_trial_to_join(&self) -> bool {
        let n = self.later.len();
        let brings_nothing_new = |last: &Sending| last.table.version() == self.before(n - 1).version();
        n > MAX_LATER / 2
            && self.later.back().is_some_and(|last| last.answer == Answer::None && brings_nothing_new(last))
    }

    /// Forgets rejections of what the client has taken up since.
    pub(super) fn forget_taken(&mut self) {
        if self.later.iter().all(|sending| sending.rejected.is_empty()) {
            return;
        }
        let is_in_use = |ledger: &Self, position: usize, name: &Name| {
            ledger.later.get(position).is_some_and(|sending| sending.answer == Answer::Released)
                && ledger.is_taken(position, name)
        };
        for position in 0..self.later.len() {
            let Some(sending) = self.later.get(position) else { return };
            let is_taken =
                |name: &&Name| (position + 1..self.later.len()).any(|later| is_in_use(self, later, name));
            let taken: Vec<Name> = counted(sending.rejected.iter()).filter(is_taken).cloned().collect();
            if let Some(sending) = self.later.get_mut(position) {
                sending.rejected.retain(|name| taken.binary_search(name).is_err());
            }
        }
    }

    /// The rejected resources that make no difference any more.
    pub(crate) fn rejected_in_vain(&self, matters: impl Fn(&TypeTable, &Name) -> bool) -> BTreeSet<Name> {
        let rejected =
            self.later.iter().flat_map(|sending| sending.rejected.iter().map(move |name| (sending, name)));
        rejected
            .filter(|(sending, name)| !matters(&sending.table, name))
            .map(|(_, name)| Arc::clone(name))
            .collect()
    }

    /// Forgets that these were rejected.
    pub(crate) fn forget_rejected(&mut self, names: &BTreeSet<Name>) {
        for sending in &mut self.later {
            sending.rejected.retain(|name| !names.contains(name));
        }
        self.compact();
    }
}
