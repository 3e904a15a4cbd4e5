//! The resources that came in rejected responses: the search for those that the client refuses.
//!
//! A NACK rejects a response, and does not say what became of each resource in it. A client may have applied them up to the first that
//! it refuses, and lost the others. So all of them are offered again in smaller responses, until what is refused is alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::status::{Rejection, Sent, Standing};
use xds_cache::{Name, Resource, Revision, TypeTable, Version};

/// The rejected resources of one type on one stream. Few streams have any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections {
    /// The client rejected a response that brought nothing else, or is presumed to refuse it.
    refused: BTreeMap<Name, Rejection>,
    /// Those that were refused before the client connected, and that it has not rejected since.
    presumed: BTreeSet<Name>,
    /// What the client itself refused since this was last [taken](Self::take_found).
    found: Vec<Found>,
    /// The client may have taken these up, or not.
    suspects: BTreeMap<Name, Suspect>,
    n_groups: u64,
    /// The client accepts these since they were last [taken](Self::take_lifted).
    lifted: Vec<Name>,
    /// Something changed since it was last [reported](Self::report).
    is_news: bool,
    /// The search of a list that the client refuses whole.
    list: Option<ListSearch>,
}

/// What a client has refused, with its words.
pub(crate) type Found = (Name, Version, Arc<str>);

/// The search of a list that the client refuses whole.
#[derive(Clone, Debug)]
struct ListSearch {
    /// The list that the client accepted last.
    accepted: Arc<TypeTable>,
    /// No group is offered now.
    is_paused: bool,
    /// The keys of what was refused because another resource of the list had the same.
    conflicts: BTreeMap<Name, Vec<u8>>,
    /// The versions of the accepted and of the served list for which these were last looked at.
    reviewed: Option<(Version, Version)>,
    /// The version of the served list for which sets were last put together.
    regrouped: Option<Version>,
}

/// Resources that are offered together as long as nothing else is known: the key of one is, or was, that of another.
pub(super) type LinkedSet = Vec<(Name, Version)>;

/// A resource that came in a rejected response with others.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    version: Version,
    /// It is offered again with the others of this group, and with nothing else.
    group: u64,
    /// The publication of the first response that was rejected because of it or its neighbours.
    since: Revision,
}

/// The client's rejection of the last response.
#[derive(Clone, Debug)]
pub(crate) struct LastRejection {
    pub(super) words: Arc<str>,
    /// What it named of a list, and still asks for. Empty if its words may leave something out.
    pub(super) of_list: Vec<Rejection>,
    /// The status board was told that it does not ask for some of that any more.
    pub(super) is_told: bool,
}

/// A rejected response.
#[derive(Clone, Copy)]
pub(crate) struct Nack<'a> {
    pub(crate) sent: &'a Sent,
    /// The client's words.
    pub(crate) words: &'a Arc<str>,
    /// How many resources it brought.
    pub(crate) n_brought: usize,
    /// All of them were suspects.
    pub(crate) is_trial: bool,
}

impl Rejections {
    /// The client rejected a response. `open` are the resources in it that it was sent in no other version since. Returns the names that
    /// it is owed again.
    pub(crate) fn handle_nack(&mut self, nack: Nack<'_>, open: &[(Name, Version)]) -> Vec<Name> {
        self.is_news |= !open.is_empty();
        if let ([(name, version)], 1) = (open, nack.n_brought) {
            self.refuse(nack, name, *version);
            return vec![];
        }
        // What is only presumed explains no rejection.
        let is_refused = |(name, version): &&(Name, Version)| {
            self.refused.get(name).is_some_and(|refused| refused.version == *version)
                && !self.presumed.contains(name)
        };
        let (refused, others): (Vec<_>, Vec<_>) = open.iter().partition(is_refused);
        let groups = if refused.is_empty() { groups_of(nack, others) } else { vec![others] };
        let mut owed = Vec::new();
        for group in groups.into_iter().filter(|group| !group.is_empty()) {
            self.n_groups += 1;
            for (name, version) in group {
                let since = self.since(name).unwrap_or(nack.sent.revision);
                let suspect = Suspect { version: *version, group: self.n_groups, since };
                if self.presumed.remove(name) {
                    self.refused.remove(name);
                }
                self.suspects.insert(Arc::clone(name), suspect);
                owed.push(Arc::clone(name));
            }
        }
        owed
    }

    /// The client refused a list whole in which these were not as in the one that it `accepted` last. One group of them at a time comes
    /// in the lists from now on.
    ///
    /// `conflict` gives the key of one of them, if another resource of the refused list has it too.
    pub(super) fn handle_nack_of_list(
        &mut self,
        nack: Nack<'_>,
        accepted: Arc<TypeTable>,
        mut sets: Vec<LinkedSet>,
        conflict: impl FnOnce(&Name) -> Option<Vec<u8>>,
    ) {
        self.is_news = true;
        let (conflicts, reviewed, regrouped) = (BTreeMap::new(), None, None);
        let list = self.list.get_or_insert(ListSearch {
            accepted,
            is_paused: false,
            conflicts,
            reviewed,
            regrouped,
        });
        if let [set] = &sets[..] {
            if let [(name, version)] = &set[..] {
                list.conflicts.remove(name);
                list.conflicts.extend(conflict(name).map(|key| (Arc::clone(name), key)));
                list.reviewed = None;
                self.refuse(nack, name, *version);
                return;
            }
            // One of them may have the key of another that is good.
            sets = set.iter().map(|one| vec![one.clone()]).collect();
        }
        let half = sets.split_off(sets.len().div_ceil(2));
        for group in [sets, half] {
            self.n_groups += 1;
            for (name, version) in group.into_iter().flatten() {
                let since = self.since(&name).unwrap_or(nack.sent.revision);
                self.suspects.insert(name, Suspect { version, group: self.n_groups, since });
            }
        }
    }

    /// The client accepted this list.
    pub(super) fn handle_ack_of_list(&mut self, table: &Arc<TypeTable>) {
        let Some(list) = &mut self.list else { return };
        let accepted = std::mem::replace(&mut list.accepted, Arc::clone(table));
        let changes = table.changes_since(&accepted);
        let brought = changes.changed.iter().filter(|resource| self.knows(resource.name()));
        let brought: Vec<(Name, Version)> =
            brought.map(|resource| (Arc::clone(resource.name()), resource.version())).collect();
        self.handle_ack(&brought, true);
    }

    /// The list that the client accepted last, if it refuses something of a later one.
    pub(super) fn accepted_list(&self) -> Option<&Arc<TypeTable>> {
        self.list.as_ref().map(|list| &list.accepted)
    }

    /// The group of suspects that comes in the next list, if any does. Suspects that are served in another version now are of none.
    pub(super) fn first_group(&self, served: impl Fn(&Name) -> Option<Version>) -> Option<u64> {
        let is_paused = self.list.as_ref().is_some_and(|list| list.is_paused);
        let current = self.suspects.iter().filter(|(name, suspect)| served(name) == Some(suspect.version));
        current.map(|(_, suspect)| suspect.group).min().filter(|_| !is_paused)
    }

    /// Returns `true` if a resource is a suspect, and not of this group.
    pub(super) fn is_of_another_group(&self, resource: &Resource, group: Option<u64>) -> bool {
        self.group_of(resource).is_some_and(|of| of != REFUSED && Some(of) != group)
    }

    /// Returns `true` if this version of a resource is refused.
    pub(super) fn refuses_this(&self, resource: &Resource) -> bool {
        self.group_of(resource) == Some(REFUSED)
    }

    /// Offers no group from now on, or goes on. Tells whether that is a change.
    pub(super) fn pause(&mut self, is_paused: bool) -> bool {
        self.list.as_mut().is_some_and(|list| std::mem::replace(&mut list.is_paused, is_paused) != is_paused)
    }

    /// Returns `true` if a group is offered.
    pub(super) fn is_offering(&self) -> bool {
        self.is_searching() && self.list.as_ref().is_some_and(|list| !list.is_paused)
    }

    /// Forgets rejections of lists: of what is gone or was replaced, once the client was `sent` that, and of what is served as it was
    /// accepted.
    pub(super) fn retain_of_list(
        &mut self,
        served: impl Fn(&Name) -> Option<Version>,
        sent: impl Fn(&Name) -> Option<Version>,
    ) {
        let Some(list) = &mut self.list else { return };
        let n_before = self.refused.len() + self.suspects.len();
        let accepted = |name: &Name| list.accepted.find(name).map(|resource| resource.version());
        let is_sent = |name: &Name| sent(name) == served(name);
        self.refused.retain(|name, _| match served(name) {
            Some(version) => accepted(name) != Some(version),
            None => !is_sent(name),
        });
        self.suspects.retain(|name, suspect| served(name) == Some(suspect.version) || !is_sent(name));
        list.conflicts.retain(|name, _| self.refused.contains_key(name));
        self.is_news |= self.refused.len() + self.suspects.len() < n_before;
    }

    /// What the client refuses because another resource has its key, and that.
    pub(super) fn conflicts(&self) -> impl Iterator<Item = (&Name, &[u8])> {
        let conflicts = self.list.iter().flat_map(|list| &list.conflicts);
        conflicts.map(|(name, key)| (name, &key[..])).filter(|(name, _)| self.refused.contains_key(*name))
    }

    /// Returns `true` if conflicts may have ended since this last was asked.
    pub(super) fn is_review_due(&mut self, served: &TypeTable) -> bool {
        let Some(list) = self.list.as_mut().filter(|list| !list.conflicts.is_empty()) else { return false };
        let versions = Some((list.accepted.version(), served.version()));
        std::mem::replace(&mut list.reviewed, versions) != versions
    }

    /// Returns `true` if the client refuses the resource in some version, or may do so.
    fn knows(&self, name: &Name) -> bool {
        self.refused.contains_key(name) || self.suspects.contains_key(name)
    }

    /// Offers each of the suspects that are `known` to be refused alone, after all others. Tells whether that changes anything.
    pub(super) fn set_apart(&mut self, known: impl Fn(&Name, Version) -> bool) -> bool {
        let mut n_in_group: BTreeMap<u64, usize> = BTreeMap::new();
        for suspect in self.suspects.values() {
            *n_in_group.entry(suspect.group).or_default() += 1;
        }
        let n_before = self.n_groups;
        for (name, suspect) in &mut self.suspects {
            let is_alone = n_in_group.get(&suspect.group) == Some(&1);
            if !is_alone && known(name, suspect.version) {
                self.n_groups += 1;
                suspect.group = self.n_groups;
            }
        }
        self.n_groups > n_before
    }

    /// Returns `true` if another list is served since this was last asked.
    pub(super) fn is_regrouping_due(&mut self, served: &TypeTable) -> bool {
        let version = Some(served.version());
        self.list.as_mut().is_some_and(|list| std::mem::replace(&mut list.regrouped, version) != version)
    }

    /// Offers these together: what was refused is offered again, and what is new since `revision` waits for the others.
    pub(super) fn offer_together(&mut self, set: LinkedSet, revision: Revision) {
        self.n_groups += 1;
        for (name, version) in set {
            let since = self.since(&name).unwrap_or(revision);
            self.refused.remove(&name);
            self.list.as_mut().and_then(|list| list.conflicts.remove(&name));
            self.suspects.insert(name, Suspect { version, group: self.n_groups, since });
            self.is_news = true;
        }
    }

    fn refuse(&mut self, nack: Nack<'_>, name: &Name, version: Version) {
        let rejection =
            self.rejection((&nack.sent.version_info, nack.sent.revision), name, version, nack.words);
        self.suspects.remove(name);
        self.presumed.remove(name);
        self.found.push((Arc::clone(name), version, Arc::clone(nack.words)));
        self.refused.insert(Arc::clone(name), rejection);
    }

    /// Takes what the client itself has refused.
    pub(crate) fn take_found(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    /// The client may have refused this before it connected; what it says of that now counts only if it is a rejection. `of` are the
    /// version and revision of the type.
    pub(crate) fn presume(&mut self, of: (&Arc<str>, Revision), resource: &Resource, words: &Arc<str>) {
        let (name, version) = (resource.name(), resource.version());
        let is_it = |refused: &Rejection| refused.version == version;
        if self.refused.get(name).is_some_and(is_it) || self.suspects.contains_key(name) {
            return;
        }
        let words = format!("{words}{SAID_BEFORE}").into();
        let rejection = self.rejection(of, name, version, &words);
        self.refused.insert(Arc::clone(name), rejection);
        self.presumed.insert(Arc::clone(name));
        self.is_news = true;
    }

    /// A resource that was refused with these words.
    fn rejection(
        &self,
        (version_info, revision): (&Arc<str>, Revision),
        name: &Name,
        version: Version,
        words: &Arc<str>,
    ) -> Rejection {
        Rejection {
            name: Arc::clone(name),
            version,
            message: Arc::clone(words),
            version_info: Arc::clone(version_info),
            revision,
            since: self.since(name).unwrap_or(revision),
        }
    }

    /// The publication since which the client rejects a resource.
    fn since(&self, name: &Name) -> Option<Revision> {
        let refused = self.refused.get(name).map(|refused| refused.since);
        refused.or_else(|| self.suspects.get(name).map(|suspect| suspect.since))
    }

    /// The client accepted these. Unless that `proves_use`, it may have accepted what it rejected before without using it.
    pub(crate) fn handle_ack(&mut self, brought: &[(Name, Version)], proves_use: bool) {
        for (name, version) in brought {
            let is_refused = |refused: &Rejection| !proves_use && refused.version == *version;
            if !self.refused.get(name).is_some_and(is_refused) && self.refused.remove(name).is_some() {
                self.lifted.push(Arc::clone(name));
            }
            let is_it =
                proves_use && self.suspects.get(name).is_some_and(|suspect| suspect.version == *version);
            if is_it && self.suspects.remove(name).is_some() {
                self.lifted.push(Arc::clone(name));
            }
        }
        self.keep_presumed();
        self.is_news |= !self.lifted.is_empty();
    }

    /// Forgets of what is not refused any more that it was presumed.
    fn keep_presumed(&mut self) {
        if !self.presumed.is_empty() {
            self.presumed.retain(|name| self.refused.contains_key(name));
        }
    }

    /// Takes the resources that the client accepts after it had rejected them.
    pub(crate) fn take_lifted(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.lifted)
    }

    /// Returns `true` if the resource is known to be refused.
    pub(crate) fn refuses(&self, name: &str) -> bool {
        self.refused.contains_key(name)
    }

    /// Keeps only what is still to be had. What is sent in another version has been tried.
    pub(crate) fn retain(&mut self, served: impl Fn(&Name) -> Option<Version>) {
        let n_before = self.refused.len() + self.suspects.len();
        self.refused.retain(|name, _| served(name).is_some());
        self.keep_presumed();
        self.suspects.retain(|name, suspect| served(name) == Some(suspect.version));
        self.is_news |= self.refused.len() + self.suspects.len() < n_before;
    }

    /// The client does not ask for this any more.
    pub(crate) fn forget(&mut self, name: &Name) {
        let was_refused = self.refused.remove(name).is_some();
        self.presumed.remove(name);
        self.is_news |= self.suspects.remove(name).is_some() || was_refused;
    }

    /// Returns `true` if a resource goes only with others of its kind: it is suspected, or known to be refused.
    pub(crate) fn is_apart(&self, resource: &Resource) -> bool {
        self.group_of(resource).is_some()
    }

    /// Returns `true` if something that is refused or suspected is served in another version now.
    pub(super) fn is_any_other(&self, served: impl Fn(&Name) -> Option<Version>) -> bool {
        let refused = self.refused.iter().map(|(name, refused)| (name, refused.version));
        let suspects = self.suspects.iter().map(|(name, suspect)| (name, suspect.version));
        refused.chain(suspects).any(|(name, version)| served(name) != Some(version))
    }

    /// The group of a suspect, and of what is refused; `None` for anything else.
    pub(super) fn group_of(&self, resource: &Resource) -> Option<u64> {
        let (name, version) = (resource.name(), resource.version());
        if self.refused.get(name).is_some_and(|refused| refused.version == version) {
            return Some(REFUSED);
        }
        let suspect = self.suspects.get(name).filter(|suspect| suspect.version == version)?;
        Some(suspect.group)
    }

    /// Takes the first group out of these. What others refuse comes after all groups, and what this client has refused and asks for
    /// again comes last, each alone.
    pub(crate) fn take_group(
        &self,
        apart: &mut Vec<Arc<Resource>>,
        others_refuse: impl Fn(&Resource) -> bool,
    ) -> Vec<Arc<Resource>> {
        let group = |resource: &Resource| match self.group_of(resource) {
            Some(REFUSED) => REFUSED,
            Some(_) | None if others_refuse(resource) => KNOWN_CULPRIT,
            Some(group) => group,
            None => KNOWN_CULPRIT,
        };
        let groups: Vec<u64> = apart.iter().map(|resource| group(resource)).collect();
        let first = groups.iter().copied().min();
        let is_alone = match first {
            Some(REFUSED) => true,
            // Those of which there are too many are searched like others.
            Some(KNOWN_CULPRIT) => groups.iter().filter(|of| **of == KNOWN_CULPRIT).count() <= MAX_ALONE,
            Some(_) | None => false,
        };
        let mut taken = Vec::new();
        let mut rest = Vec::new();
        for (resource, of) in std::mem::take(apart).into_iter().zip(groups) {
            let is_full = is_alone && !taken.is_empty();
            if Some(of) == first && !is_full { taken.push(resource) } else { rest.push(resource) }
        }
        *apart = rest;
        taken
    }

    /// Returns `true` if there is nothing to remember, and nobody waits to hear of that.
    pub(crate) fn is_over(&self) -> bool {
        self.refused.is_empty() && self.suspects.is_empty() && self.lifted.is_empty() && !self.is_news
    }

    /// Returns `true` if resources are still offered again.
    pub(crate) fn is_searching(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// How many resources are remembered.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.refused.len() + self.suspects.len()
    }

    /// The standing rejections for the status board, if they changed.
    pub(crate) fn report(&mut self) -> Option<Standing> {
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let since = self.refused.values().map(|refused| refused.since);
        let since = since.chain(self.suspects.values().map(|suspect| suspect.since)).min();
        Some(Standing {
            rejected: self.refused.values().take(Standing::MAX_LISTED).cloned().collect(),
            n_rejected: self.refused.len(),
            n_unknown: self.suspects.len(),
            since,
        })
    }
}

/// A group of resources that are offered together.
type Group<'a> = Vec<&'a (Name, Version)>;

/// Halves what came in a rejected response. If the client's words name some of it, each of that goes alone instead, and the rest together;
/// but only at first, because words may mislead.
fn groups_of<'a>(nack: Nack<'_>, mut open: Group<'a>) -> Vec<Group<'a>> {
    if !nack.is_trial {
        let words = words_of(nack.words);
        let (named, others): (Group<'a>, Group<'a>) =
            open.iter().copied().partition(|(name, _)| words.contains(&**name));
        if !named.is_empty() && named.len() <= MAX_NAMED && !others.is_empty() {
            let alone = named.into_iter().map(|one| vec![one]);
            return std::iter::once(others).chain(alone).collect();
        }
    }
    let half = open.split_off(open.len().div_ceil(2));
    vec![open, half]
}

/// The words of a message, without the punctuation around them.
pub(super) fn words_of(message: &str) -> BTreeSet<&str> {
    let is_around = |c: char| ":,;'\"`()[]{}<>".contains(c);
    message.split_whitespace().map(|word| word.trim_matches(is_around)).collect()
}

/// The groups of what the client has refused, and of what other clients of its program refuse.
const REFUSED: u64 = u64::MAX;
const KNOWN_CULPRIT: u64 = u64::MAX - 1;

/// How many resources that other clients refuse go each in a response of its own.
const MAX_ALONE: usize = 16;

/// If the words name more resources than this, they are not taken for the names of what is refused.
const MAX_NAMED: usize = 8;

/// Follows the words of a rejection that may be another client's.
const SAID_BEFORE: &str = " (said before this connection, by this client or another one of its program: when such a resource comes again, \
                           an Envoy acknowledges it and does not use it)";
