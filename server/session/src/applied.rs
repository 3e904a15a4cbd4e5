//! What the client may be using of one type on one stream, by what it was sent and what it answered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use xds_cache::{Name, Resource, TypeTable};

use crate::steps::counted;

/// What the client may be using of one type on one stream.
///
/// Tables are kept, not resources: the one that the client was brought up to, and those that it was sent since and may or may not
/// have taken up. So a client that has accepted everything costs a pointer, and clients in the same place share what they keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    /// The client has accepted what this table has of the names that it wants …
    base: Arc<TypeTable>,
    /// … and was sent these since, oldest first.
    later: VecDeque<Sending>,
    /// Whether it ever accepted a response, or came with everything.
    has_accepted: bool,
}

/// What was sent of one table: a response, or several if it did not fit into one.
#[derive(Clone, Debug)]
struct Sending {
    /// The nonces of the first and the last response.
    nonces: (u64, u64),
    table: Arc<TypeTable>,
    /// What was sent, or told to be gone, though that was so before.
    again: Again,
    /// What of it was not sent, or the client did not ask for any more when it accepted it: it may not have taken that up.
    missed: BTreeSet<Name>,
    /// Whether all of it was sent.
    is_whole: bool,
    /// Whether the last response so far was accepted.
    is_end_accepted: bool,
    answer: Answer,
}

/// What was sent though it did not change, or told to be gone though it was before.
#[derive(Clone, Debug, Default)]
struct Again {
    names: BTreeSet<Name>,
    /// Whether everything is that the table has: a client that comes back is sent all of it.
    is_everything: bool,
}

impl Again {
    fn has(&self, table: &TypeTable, name: &str) -> bool {
        self.names.contains(name) || (self.is_everything && table.find(name).is_some())
    }
}

/// What one response carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    pub(crate) changed: &'a [Arc<Resource>],
    pub(crate) removed: &'a [Name],
    /// Whether that is all that the client wants of the table.
    pub(crate) is_everything: bool,
}

/// What the client said to something that it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    None,
    /// Nothing, and nobody knows whether it was sent it: it came back, and may be using any part of it.
    Unknown,
    /// It accepted it, but may still be using what it had before, because what it was sent refers to things that it lacks. The
    /// time is when that was first noticed.
    Accepted(Option<Instant>),
    /// It accepted it, and what it had before is out of use.
    Released,
    /// It rejected it, and may be using any part of it.
    Rejected,
}

/// Something that the client accepted and may not use alone yet.
#[derive(Clone, Copy)]
pub(crate) struct Accepted<'a> {
    /// Its number, for [`Applied::release`].
    pub(crate) position: usize,
    /// When it was first noticed.
    pub(crate) at: Option<Instant>,
    /// What the client was sent before it.
    pub(crate) older: &'a Arc<TypeTable>,
    /// What it was sent.
    pub(crate) newer: &'a Arc<TypeTable>,
    /// What of that was sent though it did not change.
    again: &'a Again,
    /// What of it the client may not have taken up.
    missed: &'a BTreeSet<Name>,
    applied: &'a Applied,
}

impl Accepted<'_> {
    /// The names of what was sent, as far as it is still there, and of what was to be sent; without those of which there is but one
    /// version that the client may have.
    pub(crate) fn sent(&self) -> BTreeSet<Name> {
        let changes = self.newer.changes_since(self.older);
        let changed = changes.changed.iter().map(|resource| resource.name());
        let mut sent: BTreeSet<Name> = changed.chain(&self.again.names).chain(self.missed).cloned().collect();
        if self.again.is_everything || self.applied.is_guessed() {
            sent.extend(self.applied.changed().filter(|name| self.newer.find(name).is_some()));
        }
        sent
    }

    /// Whether the client may not have taken up what was sent of this name.
    pub(crate) fn has_missed(&self, name: &Name) -> bool {
        self.missed.contains(name)
    }
}

/// How many tables are kept that the client did not accept. Of what a client is sent without ever answering, older ones count as if
/// they had never been sent; by then the grace is mostly over.
const MAX_LATER: usize = 16;

/// How many tables a client may be using that comes back: fewer, so that they are not merged with what it is sent then.
const MAX_UNKNOWN: usize = 12;

/// How many names of what was sent again, or missed, are kept for those tables; then it is as with too many tables. Each of them is the
/// name of a resource that one of the tables has, so a client cannot make more of them than that.
const MAX_NAMES: usize = 250_000;

/// The range of nonces of what needed no response.
const NO_NONCES: (u64, u64) = (1, 0);

impl Sending {
    fn n_names(&self) -> usize {
        self.again.names.len() + self.missed.len()
    }

    /// What the client may have of a table, though nothing is known of what it was sent.
    fn unsent(table: Arc<TypeTable>, answer: Answer) -> Self {
        Self {
            nonces: NO_NONCES,
            table,
            again: Again::default(),
            missed: BTreeSet::new(),
            is_whole: true,
            is_end_accepted: answer != Answer::Unknown,
            answer,
        }
    }
}

impl Applied {
    /// A client came back that may have any of these of each name, and the last that was served is the last of them.
    pub(crate) fn of(tables: Vec<Arc<TypeTable>>) -> Self {
        let n_too_many = tables.len().saturating_sub(MAX_UNKNOWN);
        let mut tables = tables.into_iter().skip(n_too_many);
        let base = tables.next().unwrap_or_default();
        let later = tables.map(|table| Sending::unsent(table, Answer::Unknown)).collect();
        Self { base, later, has_accepted: true }
    }

    /// Whether the client may be using something of which nobody knows whether it was sent that.
    fn is_guessed(&self) -> bool {
        self.later.iter().any(|sending| sending.answer == Answer::Unknown)
    }

    /// Of what `table` does not tell the client, that of which nobody knows what it came back with.
    fn withheld(&self, table: &TypeTable) -> impl Iterator<Item = Name> {
        let guessed = self.is_guessed().then(|| self.changed()).into_iter().flatten();
        guessed.filter(|name| table.is_withheld(name) && table.find(name).is_some())
    }

    /// The names of which the client may have more than one version.
    fn changed(&self) -> impl Iterator<Item = Name> {
        self.tables().zip(self.tables().skip(1)).flat_map(|(older, newer)| {
            let changes = newer.changes_since(older);
            let changed = changes.changed.iter().map(|resource| Arc::clone(resource.name()));
            changed.chain(changes.removed.iter().cloned()).collect::<Vec<Name>>()
        })
    }

    /// The client was sent what is `carried`, and has, if it takes that up, what `table` has. What of that is not sent yet it has not
    /// taken up.
    pub(crate) fn handle_sent(
        &mut self,
        nonce: u64,
        table: &Arc<TypeTable>,
        carried: Carried<'_>,
        is_whole: bool,
    ) {
        let Carried { changed, removed, is_everything } = carried;
        // What comes after a part that was rejected may be accepted by itself.
        let is_open = |last: &Sending| !last.is_whole && last.answer != Answer::Rejected;
        let is_rest = self.later.back().is_some_and(|last| is_open(last) && Arc::ptr_eq(&last.table, table));
        let before = Arc::clone(self.before(self.later.len() - usize::from(is_rest)));
        let is_unchanged =
            |r: &&Arc<Resource>| before.find(r.name()).is_some_and(|old| old.version() == r.version());
        let named = if is_everything { &[][..] } else { changed };
        let unchanged = counted(named.iter()).filter(is_unchanged).map(|resource| resource.name());
        // What no table has that the client may be using makes no difference.
        let may_matter = |name: &Name| self.tables().any(|table| table.find(name).is_some());
        let long_gone =
            counted(removed.iter()).filter(|name| before.find(name).is_none() && may_matter(name));
        let names: BTreeSet<Name> = unchanged.chain(long_gone).cloned().collect();
        let sent =
            || -> BTreeSet<&Name> { changed.iter().map(|resource| resource.name()).chain(removed).collect() };
        if let Some(last) = self.later.back_mut().filter(|_| is_rest) {
            last.again.names.extend(names);
            let sent = sent();
            last.missed.retain(|name| !sent.contains(name));
            last.nonces.1 = nonce;
            last.is_whole = is_whole;
            last.is_end_accepted = false;
            return;
        }
        let mut missed = BTreeSet::new();
        if !is_whole {
            let changes = table.changes_since(&before);
            missed.extend(changes.changed.iter().map(|resource| Arc::clone(resource.name())));
            missed.extend(changes.removed.iter().cloned());
            let sent = sent();
            missed.retain(|name| !sent.contains(name));
        }
        missed.extend(self.withheld(table));
        self.push(Sending {
            nonces: (nonce, nonce),
            table: Arc::clone(table),
            again: Again { names, is_everything },
            missed,
            is_whole,
            is_end_accepted: false,
            answer: Answer::None,
        });
    }

    /// The client has everything of `table` that it wants, and nothing had to be sent for that. `is_leaf` as below.
    pub(crate) fn handle_nothing_owed(&mut self, table: &Arc<TypeTable>, comes_with_it: bool, is_leaf: bool) {
        self.has_accepted |= comes_with_it;
        // If there was more to send, it is not wanted any more.
        let is_over = self.later.back_mut().is_some_and(|last| {
            !std::mem::replace(&mut last.is_whole, true)
                && last.is_end_accepted
                && last.answer == Answer::None
        });
        if is_over {
            self.accept(self.later.len() - 1, false, is_leaf);
            self.compact();
        }
        let before = self.later.back().map_or(&self.base, |sending| &sending.table);
        // What it came back with it may have taken up, and not use yet.
        if table.version() == before.version() && !self.is_guessed() {
            return;
        }
        if self.later.is_empty() && (is_leaf || self.base.is_empty()) {
            self.base = Arc::clone(table);
            return;
        }
        // It may still be using what it does not ask for any more.
        let answer = if is_leaf { Answer::Released } else { Answer::Accepted(None) };
        let missed = self.withheld(table).collect();
        self.push(Sending { missed, ..Sending::unsent(Arc::clone(table), answer) });
        self.compact();
    }

    fn push(&mut self, sending: Sending) {
        let n_new = sending.n_names();
        while self.later.len() >= MAX_LATER || (self.later.len() > 1 && self.n_names() + n_new > MAX_NAMES) {
            self.merge(0);
        }
        self.later.push_back(sending);
    }

    /// About how many names are looked at to find what an answer means.
    pub(crate) fn answer_size(&self) -> usize {
        let mut before = &self.base;
        let mut n = 0;
        for sending in &self.later {
            let changes = sending.table.remembered_changes_since(before);
            n += sending.n_names() + changes.map_or(sending.table.len(), |changes| changes.len());
            before = &sending.table;
        }
        n
    }

    /// How many names are kept besides tables.
    pub(crate) fn n_names(&self) -> usize {
        self.later.iter().map(Sending::n_names).sum()
    }

    /// Whether something was accepted of which it is not known yet whether it replaced what went before.
    pub(crate) fn has_news(&self) -> bool {
        self.later.iter().any(|sending| sending.answer == Answer::Accepted(None))
    }

    /// The client accepted the response, and with it whatever went before and was not rejected; a complete list also makes good
    /// what was rejected. `is_leaf`: nothing that the type refers to is waited for.
    pub(crate) fn handle_ack(&mut self, nonce: u64, is_complete: bool, is_leaf: bool) {
        let Some(position) = self.position(nonce) else { return };
        let Some(sending) = self.later.get_mut(position) else { return };
        sending.is_end_accepted |= sending.nonces.1 == nonce;
        let is_accepted = sending.is_whole && sending.is_end_accepted;
        if is_accepted && (sending.answer != Answer::Rejected || is_complete) {
            self.accept(position, is_complete, is_leaf);
            self.compact();
        }
    }

    /// The client is about to accept the response: of that, and of what went before, it does not take up what it does not want.
    pub(crate) fn note_missed(&mut self, nonce: u64, wants: impl Fn(&TypeTable, &Name) -> bool) {
        let Some(last) = self.position(nonce) else { return };
        for position in 0..=last {
            let older = Arc::clone(self.before(position));
            let is_everything = self.later.get(position).is_some_and(|sending| sending.again.is_everything);
            let others: Vec<Name> = is_everything.then(|| self.changed()).into_iter().flatten().collect();
            let Some(sending) = self.later.get_mut(position) else { return };
            if matches!(sending.answer, Answer::None | Answer::Rejected) {
                let changes = sending.table.changes_since(&older);
                let changed = changes.changed.iter().map(|resource| resource.name());
                let carried = counted(changed.chain(&sending.again.names).chain(&others));
                let missed: Vec<Name> =
                    carried.filter(|name| !wants(&sending.table, name)).cloned().collect();
                sending.missed.extend(missed);
            }
        }
    }

    /// Whether the client has taken up what was sent of a name after this.
    pub(crate) fn is_taken_after(&self, position: usize, name: &Name) -> bool {
        (position + 1..self.later.len()).any(|later| self.is_taken(later, name))
    }

    /// Whether the client has taken up what this carried of a name.
    fn is_taken(&self, position: usize, name: &Name) -> bool {
        let is_accepted =
            |sending: &Sending| matches!(sending.answer, Answer::Accepted(_) | Answer::Released);
        let Some(sending) = self.later.get(position) else { return false };
        // Whoever rejects what is new does away with what is gone nevertheless.
        let is_done_away = || {
            sending.answer == Answer::Rejected
                && sending.table.find(name).is_none()
                && self.later.iter().skip(position + 1).any(is_accepted)
        };
        self.carried(position, name)
            && !sending.missed.contains(name)
            && (is_accepted(sending) || is_done_away())
    }

    fn accept(&mut self, position: usize, is_complete: bool, is_leaf: bool) {
        self.has_accepted = true;
        if is_complete {
            self.note_returned(position);
        }
        for sending in self.later.iter_mut().take(position + 1) {
            match sending.answer {
                Answer::Rejected if !is_complete => {}
                Answer::None | Answer::Rejected if is_leaf => sending.answer = Answer::Released,
                Answer::None | Answer::Rejected => sending.answer = Answer::Accepted(None),
                Answer::Unknown | Answer::Accepted(_) | Answer::Released => {}
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

    /// The client rejected the response.
    pub(crate) fn handle_nack(&mut self, nonce: u64) {
        let Some(position) = self.position(nonce) else { return };
        if let Some(sending) = self.later.get_mut(position) {
            sending.answer = Answer::Rejected;
        }
    }

    /// What was accepted, but may not have replaced what went before, oldest first.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = Accepted<'_>> {
        self.later.iter().enumerate().filter_map(|(position, sending)| match sending.answer {
            Answer::Accepted(at) => {
                let (older, newer) = (self.before(position), &sending.table);
                let (again, missed) = (&sending.again, &sending.missed);
                Some(Accepted { position, at, older, newer, again, missed, applied: self })
            }
            Answer::None | Answer::Unknown | Answer::Released | Answer::Rejected => None,
        })
    }

    /// What the client was sent of a name from the newest that it took up of it on: any of it may be what replaces what went before.
    pub(crate) fn newest<'a>(
        &'a self,
        name: &'a Name,
    ) -> impl Iterator<Item = (&'a Arc<TypeTable>, &'a Arc<Resource>)> {
        let mut newest = Vec::new();
        for (position, sending) in self.later.iter().enumerate() {
            let is_carried = self.carried(position, name);
            if self.is_taken(position, name) || (is_carried && sending.answer == Answer::Unknown) {
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

    /// What was rejected and of which all that `matters` was replaced later: the numbers.
    pub(crate) fn replaced(&self, matters: impl Fn(&TypeTable, &Name) -> bool) -> Vec<usize> {
        let takes = |(position, sending): (usize, &Sending), name: &Name| {
            let is_taken = match sending.answer {
                Answer::Released => true,
                // Whoever rejects what is new does away with what is gone nevertheless.
                Answer::Rejected => sending.table.find(name).is_none(),
                Answer::None | Answer::Unknown | Answer::Accepted(_) => false,
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

    /// What went before these is out of use.
    pub(crate) fn release(&mut self, positions: &[usize]) {
        for position in positions {
            if let Some(sending) = self.later.get_mut(*position) {
                sending.answer = Answer::Released;
            }
        }
        self.compact();
    }

    /// Whether the client ever accepted a response of the type.
    pub(crate) fn has_accepted(&self) -> bool {
        self.has_accepted
    }

    /// Whether something was sent that is not accepted, or not wholly in use.
    pub(crate) fn is_open(&self) -> bool {
        !self.later.is_empty()
    }

    /// The tables of which the client may be using something, oldest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TypeTable>> {
        std::iter::once(&self.base).chain(self.later.iter().map(|sending| &sending.table))
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
        let mut is_over = false;
        let mut found: Vec<&Arc<Resource>> = Vec::new();
        for position in sent {
            let Some(sending) = self.later.get(position) else { continue };
            found.extend(sending.table.find(name));
            if sending.answer == Answer::Released {
                is_over = true;
                break;
            }
        }
        found.extend(self.base.find(name).filter(|_| !is_over));
        found.into_iter()
    }

    /// What the client said to the newest response that carried the resource; what it was not sent it came with.
    pub(crate) fn answer(&self, name: &str) -> Answer {
        let newest = (0..self.later.len()).rev().find(|position| self.carried(*position, name));
        newest
            .and_then(|position| self.later.get(position))
            .map_or(Answer::Released, |sending| sending.answer)
    }

    fn before(&self, position: usize) -> &Arc<TypeTable> {
        let before = position.checked_sub(1).and_then(|before| self.later.get(before));
        before.map_or(&self.base, |sending| &sending.table)
    }

    /// The newest that the nonce can mean.
    fn position(&self, nonce: u64) -> Option<usize> {
        self.later.iter().position(|sending| (sending.nonces.0..=sending.nonces.1).contains(&nonce))
    }

    fn carried(&self, position: usize, name: &str) -> bool {
        let Some(sending) = self.later.get(position) else { return false };
        let version = |table: &TypeTable| table.find(name).map(|resource| resource.version());
        version(self.before(position)) != version(&sending.table) || sending.again.has(&sending.table, name)
    }

    fn compact(&mut self) {
        // Whatever it came back with is out of use with what it was before the first response.
        let n_unknown = self.later.iter().take_while(|sending| sending.answer == Answer::Unknown).count();
        if self.later.get(n_unknown).is_some_and(|sending| sending.answer == Answer::Released) {
            self.later.drain(..n_unknown);
        }
        while self.later.front().is_some_and(|sending| sending.answer == Answer::Released) {
            if let Some(sending) = self.later.pop_front() {
                self.base = sending.table;
            }
        }
        let mut position = 0;
        while position + 1 < self.later.len() {
            let is_released = |position: usize| {
                self.later.get(position).is_some_and(|sending| sending.answer == Answer::Released)
            };
            if is_released(position) && is_released(position + 1) {
                self.merge(position);
            } else {
                position += 1;
            }
        }
    }

    /// Makes one of a sending and the next.
    fn merge(&mut self, position: usize) {
        let Some(mut older) = self.later.remove(position) else { return };
        let Some(newer) = self.later.get_mut(position) else { return };
        if older.again.names.len() > newer.again.names.len() {
            std::mem::swap(&mut older.again.names, &mut newer.again.names);
        }
        newer.again.names.extend(counted(older.again.names.into_iter()));
        newer.again.is_everything |= older.again.is_everything;
        if newer.nonces == NO_NONCES {
            newer.nonces = older.nonces;
        } else if older.nonces != NO_NONCES {
            newer.nonces.0 = older.nonces.0;
        }
        if newer.table.version() != older.table.version() {
            // What only that table had makes no difference any more.
            let mut names = std::mem::take(&mut newer.again.names);
            names.retain(|name| self.tables().any(|table| table.find(name).is_some()));
            if let Some(newer) = self.later.get_mut(position) {
                newer.again.names = names;
            }
        }
    }
}
