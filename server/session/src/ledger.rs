//! The one ledger of what a stream's client was sent of one type, and what it answered.

mod dropped;
mod exceptions;
mod in_use;
mod rejected;
mod responses;
mod sending;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use xds_cache::status::Sent;
use xds_cache::{Name, Resource, TypeTable, Version};

pub(crate) use exceptions::Held;
pub(crate) use responses::{Answered, Load};
pub(crate) use sending::{Accepted, Answer};

use crate::owed::Owed;
use crate::response::Entries;
use crate::steps::counted;
use crate::wants::Wants;
use dropped::Dropped;
use exceptions::Exceptions;
use responses::Responses;
use sending::{Again, MAX_GUESSES, MAX_LATER, MAX_NAMES, NO_NONCES, Sending};

/// The record of what a stream's client was sent of one type and what it answered. Everything else is derived from it: what the client
/// holds and is owed, what it may be using, and whether it is settled or current.
///
/// Tables are kept, not resources: the one that the client accepted, and those that it was sent since and may or may not have taken up.
/// So a client that has accepted everything costs a pointer, and clients in the same place share their tables. Names for which the newest
/// table does not tell the truth are exceptions.
///
/// A name whose subscription changes becomes [`Held::Unknown`], because responses may still be on their way. An unknown name that is
/// wanted is owed, whether or not it changed (R13).
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The client has accepted what this table has of the resources that it wants.
    base: Arc<TypeTable>,
    /// The client came back, and may have any of these of each name, oldest first. They stand in for `base` until it has accepted a
    /// response.
    #[expect(clippy::box_collection, reason = "a stream has one of these for each type, mostly none")]
    guesses: Option<Box<Vec<Arc<TypeTable>>>>,
    /// The client was sent these since, oldest first.
    later: VecDeque<Sending>,
    /// The client began to ask for everything: of the newest table it holds nothing but the exceptions.
    is_reset: bool,
    /// Names of which the client does not hold what the newest table has: names that are asked for, and names of resources.
    pub(crate) exceptions: Exceptions,
    /// Names that the client dropped, and takes up again if it asks for them before it has seen the responses that are on their way. Few
    /// streams have any for long.
    dropped: Option<Box<Dropped>>,
    /// The responses by nonce.
    responses: Responses,
    /// The client has accepted a response, or came with everything.
    has_accepted: bool,
    /// The client showed that it holds something from an earlier stream, and was sent nothing since.
    came_back: bool,
    /// The client came back, and has not accepted `base` on this stream.
    is_base_guessed: bool,
}

/// The part of a table that one response carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    pub(crate) changed: &'a [Arc<Resource>],
    pub(crate) removed: &'a [Name],
    /// It holds all that the client wants of the table, changed or not.
    pub(crate) is_list: bool,
    /// What is absent from it is gone.
    pub(crate) is_complete: bool,
    /// It has only resources that came in a rejected response before.
    pub(crate) is_trial: bool,
    /// The complete list that it is.
    pub(crate) list: Option<&'a Entries>,
}

impl Carried<'_> {
    /// The resources that an answer is about. Those of a complete list are in its table.
    fn load(&self) -> Load {
        let brought = |resource: &Arc<Resource>| (Arc::clone(resource.name()), resource.version());
        let named = if self.is_complete { &[][..] } else { self.changed };
        let list = self.list.filter(|entries| entries.len() <= MAX_LISTED);
        let listed = list.into_iter().flat_map(Entries::names).cloned().collect();
        Load { brought: named.iter().map(brought).collect(), is_trial: self.is_trial, listed }
    }
}

/// The longest list whose order is remembered until it is answered.
const MAX_LISTED: usize = 100;

static NOTHING: LazyLock<Arc<TypeTable>> = LazyLock::new(Arc::default);

impl Ledger {
    /// Nothing was sent.
    pub(crate) fn new() -> Self {
        Self {
            base: Arc::clone(&NOTHING),
            guesses: None,
            later: VecDeque::new(),
            is_reset: false,
            exceptions: Exceptions::default(),
            dropped: None,
            responses: Responses::default(),
            has_accepted: false,
            came_back: false,
            is_base_guessed: false,
        }
    }

    /// The client was sent a response, which brings it to `table` but for `rest`.
    pub(crate) fn record(
        &mut self,
        wants: &Wants,
        sent: Sent,
        table: &Arc<TypeTable>,
        carried: Carried<'_>,
        rest: &Owed,
    ) {
        self.note_withheld(wants, table);
        if rest.is_empty() {
            self.settle(wants, table);
        } else {
            self.settle_part(wants, table, rest);
        }
        let is_everything = self.came_back && (carried.is_list || carried.changed.len() == table.len());
        let brings_nothing_new = carried.is_trial && table.version() == self.newest_table().version();
        self.add(sent.nonce, table, carried, is_everything, rest.is_empty() || brings_nothing_new);
        if rest.is_empty() {
            self.note_whole(wants);
        }
        self.is_reset = false;
        self.remember(sent, carried.load(), table.len());
    }

    /// The client was sent heartbeats, which change nothing. `is_whole`: it is owed nothing.
    pub(crate) fn record_heartbeats(&mut self, wants: &Wants, sent: Sent, is_whole: bool) {
        let table = Arc::clone(self.newest_table());
        let carried = Carried {
            changed: &[],
            removed: &[],
            is_list: false,
            is_complete: false,
            is_trial: false,
            list: None,
        };
        let is_everything = self.came_back && is_whole;
        self.add(sent.nonce, &table, carried, is_everything, is_whole);
        if is_whole {
            self.note_whole(wants);
        }
        self.remember(sent, Load::default(), table.len());
    }

    /// The client lacks nothing of `table`, so it is sent nothing. `is_leaf`: the type refers to nothing that is waited for.
    pub(crate) fn record_nothing(&mut self, wants: &Wants, table: &Arc<TypeTable>, is_leaf: bool) {
        let comes_with_it = self.came_with_everything();
        self.note_withheld(wants, table);
        self.settle(wants, table);
        self.is_reset = false;
        if self.came_back && !comes_with_it {
            // An empty answer says nothing about what it may have.
            self.base = Arc::clone(table);
            return;
        }
        self.came_back = false;
        self.has_accepted |= comes_with_it;
        // If there was more to send, it is not wanted any more.
        let last_answered = self.responses.last_answered();
        let is_over = self.later.back_mut().is_some_and(|last| {
            !std::mem::replace(&mut last.is_whole, true)
                && last_answered == Some(last.nonces.1)
                && last.answer == Answer::None
        });
        if is_over {
            self.accept(self.later.len() - 1, false, is_leaf);
            self.compact();
        }
        let before = self.before(self.later.len());
        let (is_same, was_empty) = (table.version() == before.version(), before.is_empty());
        // It may have taken up any of the guesses, and not use it yet.
        let is_settled = self.later.is_empty() && !self.is_guessed();
        if is_settled && (is_same || is_leaf || was_empty) {
            self.guesses = None;
            self.base = Arc::clone(table);
        } else if !is_same || self.is_guessed() {
            // It may still be using what it does not ask for any more.
            let answer = if is_leaf { Answer::Released } else { Answer::Accepted(None) };
            let missed = self.withheld(table).collect();
            self.push(Sending::unsent(Arc::clone(table), answer, missed));
            self.note_whole(wants);
            self.compact();
        }
    }

    /// The client came back, and may have any of these of each name. The newest is the last.
    pub(crate) fn believe(&mut self, tables: Vec<Arc<TypeTable>>) {
        let n_too_many = tables.len().saturating_sub(MAX_GUESSES);
        let mut guesses: Vec<Arc<TypeTable>> = tables.into_iter().skip(n_too_many).collect();
        if guesses.is_empty() {
            guesses.push(Arc::clone(&NOTHING));
        }
        self.guesses = Some(Box::new(guesses));
        self.has_accepted = true;
    }

    /// The client shows, in its first request, that it holds something.
    pub(crate) fn come_back(&mut self) {
        self.came_back = true;
        self.is_base_guessed = true;
    }

    /// Returns `true` if the client came back, and was sent nothing since.
    pub(crate) fn came_back(&self) -> bool {
        self.came_back
    }

    /// Returns `true` if nothing was sent because the client said that it holds it already. Counts when nothing is owed.
    pub(crate) fn came_with_everything(&self) -> bool {
        self.responses.is_empty() && self.shows_versions()
    }

    /// The responses by nonce.
    pub(crate) fn responses(&self) -> &Responses {
        &self.responses
    }

    /// The table that the client was brought up to, but for exceptions.
    pub(crate) fn settled(&self) -> &Arc<TypeTable> {
        if self.is_reset { &NOTHING } else { self.newest_table() }
    }

    fn newest_table(&self) -> &Arc<TypeTable> {
        self.later.back().map_or(&self.base, |sending| &sending.table)
    }

    /// Returns `true` if the client has exactly what `table` has of what it wants.
    pub(crate) fn is_at(&self, table: &TypeTable) -> bool {
        self.exceptions.is_empty() && table.version() == self.settled().version()
    }

    /// The resources that were there when the client was sent something, and of which `table` has none.
    pub(crate) fn gone_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        let settled = self.settled();
        if table.version() == settled.version() {
            return vec![];
        }
        let changes = table.changes_since(settled);
        changes.removed.iter().filter_map(|name| settled.find(name)).cloned().collect()
    }

    /// The resources that were there when the client was sent something, and of which `table` has another version.
    pub(crate) fn changed_from(&self, table: &TypeTable) -> Vec<Arc<Resource>> {
        let settled = self.settled();
        if table.version() == settled.version() {
            return vec![];
        }
        let changes = table.changes_since(settled);
        changes.changed.iter().filter_map(|new| settled.find(new.name())).cloned().collect()
    }

    /// From now on the client holds nothing but the exceptions.
    pub(crate) fn reset(&mut self) {
        self.is_reset = true;
    }

    /// The version that the client said it holds of a name.
    pub(crate) fn claimed(&self, name: &str) -> Option<Version> {
        match self.exceptions.get(name) {
            Some(Held::Version(version)) => Some(version),
            Some(Held::Stale | Held::Unknown | Held::Nothing | Held::Gone) | None => None,
        }
    }

    /// Returns `true` if a name is an exception under which the client may hold something.
    pub(crate) fn may_hold(&self, name: &str) -> bool {
        matches!(self.exceptions.get(name), Some(Held::Version(_) | Held::Stale | Held::Unknown))
    }

    /// The names of which the client said that it holds something.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Name> {
        let is_claim = |(_, held): &(&Name, Held)| matches!(held, Held::Version(_));
        self.exceptions.iter().filter(is_claim).map(|(name, _)| name)
    }

    /// Returns `true` if the client said that it holds something.
    pub(crate) fn shows_versions(&self) -> bool {
        self.claims().next().is_some()
    }

    /// The client does not want a resource any more that `by` brought.
    pub(crate) fn drop_resource(&mut self, wants: &Wants, resource: Name, by: &Name) {
        let has_hosts = wants.names().has_hosts();
        self.dropped.get_or_insert_default().insert(resource, by, has_hosts);
    }

    /// The client asks for `name`, maybe while responses are on their way: it may take from them what it has dropped.
    pub(crate) fn recall(&mut self, name: &str) {
        let Some(dropped) = &mut self.dropped else { return };
        let recalled = dropped.recall(name);
        if dropped.is_empty() {
            self.dropped = None;
        }
        recalled.into_iter().for_each(|resource| self.exceptions.insert_new(resource, Held::Stale));
    }

    /// The names that the client dropped and may take up again from what is on its way.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = &Name> {
        self.dropped_by().map(|(resource, _)| resource)
    }

    /// The same, each with the name that brought it.
    pub(crate) fn dropped_by(&self) -> impl Iterator<Item = &(Name, Name)> {
        self.dropped.iter().flat_map(|dropped| dropped.iter())
    }

    /// Returns `true` if the client dropped a name and may take it up again from what is on its way.
    pub(crate) fn is_dropped(&self, name: &str) -> bool {
        self.dropped.as_ref().is_some_and(|dropped| dropped.has(name))
    }

    /// The client does not take these up again, as far as that name brought them.
    pub(crate) fn forget_dropped_by(&mut self, pairs: &[(Name, Name)]) {
        let Some(dropped) = &mut self.dropped else { return };
        pairs.iter().for_each(|(name, by)| dropped.remove_pair(name, by));
    }

    /// The client does not take these up again.
    pub(crate) fn forget_dropped(&mut self, names: &BTreeSet<Name>) {
        let Some(dropped) = &mut self.dropped else { return };
        names.iter().for_each(|name| dropped.remove(name));
        if dropped.is_empty() {
            self.dropped = None;
        }
    }

    /// The client has seen every response that was sent: it holds nothing that it does not want.
    pub(crate) fn forget_all_dropped(&mut self) {
        self.dropped = None;
    }

    /// How many exceptions there are, and how many dropped names.
    pub(crate) fn n_names(&self) -> (usize, usize) {
        (self.exceptions.len(), self.dropped.as_ref().map_or(0, |dropped| dropped.len()))
    }

    /// How many names and responses are remembered in all.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn n_entries(&self) -> usize {
        let (n_exceptions, n_dropped) = self.n_names();
        let n_sent: usize = self.later.iter().map(Sending::n_names).sum();
        n_exceptions + n_dropped + n_sent + self.responses.n_older()
    }

    /// The client stays without what `table` has under another name of a resource and withholds: what it was told of that name counts.
    fn note_withheld(&mut self, wants: &Wants, table: &TypeTable) {
        if !table.has_other_names() {
            return;
        }
        let is_new = |name: &&Name| {
            table.is_withheld(name)
                && !self.exceptions.contains(name)
                && table.look_up(name).is_some()
                && self.settled().look_up(name).is_none()
        };
        let new: Vec<Name> = wants.names().iter().filter(is_new).cloned().collect();
        new.into_iter().for_each(|name| self.exceptions.insert(name, Held::Gone));
    }

    /// The client was sent everything that it lacked of `table`. A name whose resource is withheld stays owed.
    fn settle(&mut self, wants: &Wants, table: &TypeTable) {
        // A glob itself is never withheld, even if something has its name; only its members are.
        self.exceptions.retain(|name| table.is_withheld(name) && !wants.names().has_glob(name));
    }

    /// The client was sent everything that it lacked of `table` but for these.
    fn settle_part(&mut self, wants: &Wants, table: &TypeTable, rest: &Owed) {
        let before = std::mem::take(&mut self.exceptions);
        let after = &mut self.exceptions;
        // The client has an older version of what is not sent, if any.
        let unsent: BTreeSet<&Name> = rest.changed.iter().map(|resource| resource.name()).collect();
        unsent.iter().for_each(|name| after.insert(Arc::clone(name), Held::Stale));
        for (name, held) in before.iter() {
            // A name that was not answered yet stays so, whatever the resource is called.
            let waits = matches!(held, Held::Unknown | Held::Nothing);
            if table.is_withheld(name) && !wants.names().has_glob(name) {
                after.insert(Arc::clone(name), held);
            }
            if waits && wants.look_up(table, name).is_some_and(|resource| unsent.contains(resource.name())) {
                after.insert(Arc::clone(name), held);
            }
        }
        rest.removed.iter().for_each(|name| after.insert(Arc::clone(name), Held::Stale));
        for resource in rest.changed.iter().filter(|_| wants.names().has_globs()) {
            // Its members are owed one by one from now on. If they go before they are sent, it is still owed that there are none.
            if let Some(glob) = wants.names().glob_of(resource.name()).filter(|glob| before.contains(glob)) {
                after.insert(Arc::clone(glob), Held::Stale);
            }
        }
        for name in &rest.missing {
            let held = before.get(name).unwrap_or(Held::Unknown);
            after.insert(Arc::clone(name), held);
        }
    }

    fn remember(&mut self, sent: Sent, load: Load, n_served: usize) {
        if let Some(guesses) = self.guesses.as_ref().filter(|_| self.came_back) {
            // From now on the newest table is one that was sent.
            self.base = guesses.first().map_or_else(Arc::default, Arc::clone);
            if guesses.len() == 1 {
                self.guesses = None;
            }
        }
        self.came_back = false;
        self.responses.add(sent, load, n_served);
    }

    /// Adds what a response carried. What is not sent yet the client has not taken up.
    fn add(
        &mut self,
        nonce: u64,
        table: &Arc<TypeTable>,
        carried: Carried<'_>,
        is_everything: bool,
        is_whole: bool,
    ) {
        let Carried { changed, removed, .. } = carried;
        let is_open = |last: &Sending| !last.is_whole || (carried.is_trial && self.is_trial_to_join());
        let is_rest = self.later.back().is_some_and(|last| is_open(last) && Arc::ptr_eq(&last.table, table));
        let before = Arc::clone(self.before(self.later.len() - usize::from(is_rest)));
        let is_unchanged =
            |r: &&Arc<Resource>| before.find(r.name()).is_some_and(|old| old.version() == r.version());
        let named = if is_everything { &[][..] } else { changed };
        let unchanged = counted(named.iter()).filter(is_unchanged).map(|resource| resource.name());
        // A name that no table has which the client may be using makes no difference.
        let may_matter = |name: &Name| self.tables().any(|table| table.find(name).is_some());
        let long_gone =
            counted(removed.iter()).filter(|name| before.find(name).is_none() && may_matter(name));
        // What a name stood for that the client was told to be gone is gone by whatever name.
        let mut gone = BTreeSet::new();
        for former in self.tables().filter(|table| table.has_other_names()) {
            let found = counted(removed.iter()).filter_map(|asked| Some(former.look_up(asked)?.name(asked)));
            gone.extend(found.filter(|name| table.find(name).is_none()).cloned());
        }
        let names: BTreeSet<Name> = unchanged.chain(long_gone).chain(&gone).cloned().collect();
        let sent = || -> BTreeSet<&Name> {
            changed.iter().map(|resource| resource.name()).chain(removed).chain(&gone).collect()
        };
        if let Some(last) = self.later.back_mut().filter(|_| is_rest) {
            last.again.names.extend(names);
            let sent = sent();
            last.missed.retain(|name| !sent.contains(name));
            last.rejected.retain(|name| !sent.contains(name));
            last.nonces.1 = nonce;
            last.is_whole |= is_whole;
            return;
        }
        let mut missed = BTreeSet::new();
        if !is_whole {
            let changes = table.changes_since(&before);
            missed.extend(changes.changed.iter().map(|resource| Arc::clone(resource.name())));
            missed.extend(changes.removed.iter().cloned());
            if self.is_guessed() {
                // The newest table that the client may have came with may have no more of these than this one.
                missed.extend(self.changed());
            }
            let sent = sent();
            missed.retain(|name| !sent.contains(name));
        }
        missed.extend(self.withheld(table));
        self.push(Sending {
            nonces: (nonce, nonce),
            table: Arc::clone(table),
            again: Again { names, is_everything },
            missed,
            rejected: BTreeSet::new(),
            is_whole,
            answer: Answer::None,
            untried: BTreeSet::new(),
            is_accepted_late: false,
        });
    }

    fn push(&mut self, sending: Sending) {
        let n_new = sending.n_names();
        let n_tables = |ledger: &Self| ledger.later.len() + ledger.bases().len() - 1;
        let n_names = |ledger: &Self| ledger.later.iter().map(Sending::n_names).sum::<usize>();
        while n_tables(self) >= MAX_LATER || (n_tables(self) > 1 && n_names(self) + n_new > MAX_NAMES) {
            match &mut self.guesses {
                Some(guesses) if guesses.len() > 1 => drop(guesses.remove(1)),
                Some(_) | None => self.merge(0),
            }
        }
        self.later.push_back(sending);
    }

    /// Forgets tables that make no difference any more.
    fn compact(&mut self) {
        self.forget_taken();
        while self.later.front().is_some_and(Sending::is_released) {
            if let Some(released) = self.later.pop_front() {
                self.base = released.table;
                self.guesses = None;
                self.is_base_guessed = false;
            }
        }
        let mut position = 0;
        while position + 1 < self.later.len() {
            let is_released = |position: usize| self.later.get(position).is_some_and(Sending::is_released);
            if is_released(position) && is_released(position + 1) {
                self.merge(position);
            } else {
                position += 1;
            }
        }
    }

    /// Makes one of a sending and the next.
    fn merge(&mut self, position: usize) {
        let is_answered = |name: &Name| self.is_answered_by(position + 1, name);
        let rejected = self.later.get(position).into_iter().flat_map(|older| &older.rejected);
        let rejected: Vec<Name> = rejected.filter(|name| !is_answered(name)).cloned().collect();
        let Some(mut older) = self.later.remove(position) else { return };
        let Some(newer) = self.later.get_mut(position) else { return };
        newer.rejected.extend(rejected);
        newer.untried.append(&mut older.untried);
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
            // Names that only that table had make no difference any more.
            let mut names = std::mem::take(&mut newer.again.names);
            names.retain(|name| self.tables().any(|table| table.find(name).is_some()));
            if let Some(newer) = self.later.get_mut(position) {
                newer.again.names = names;
            }
        }
    }
}
