//! Lists that a client refuses whole because of one resource: the search by substitution.
//!
//! To be absent from a complete list would be to be deleted, so nothing can be left out to find what is refused. Instead, each of the
//! resources that may be refused stays as the client accepted it last, and only one group of them at a time comes in its new version.
//! Such a list is that of a table that deviates from the view's, like those of changes that wait: the ledger knows no difference.
//!
//! A key passes from one resource to another only if both change in one list. So resources with a key in common come together, until
//! a list with them alone is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::status::Sent;
use xds_cache::{Deviation, Deviations, Name, Resource, Revision, TypeTable, Version};

use super::TypeState;
use super::rejections::{LinkedSet, Nack, Rejections};
use crate::culprits::Known;
use crate::quirks::Quirk;

/// A [`LinkedSet`] as it is served.
type ServedSet<'a> = Vec<&'a Arc<Resource>>;

impl TypeState {
    /// Begins or continues to search a list that the client refused whole. Returns the names of all that it may refuse; none if the list
    /// was not the last one, or it is not known which list the client has instead.
    pub(super) fn suspect_list(&mut self, sent: &Sent, words: &Arc<str>) -> BTreeSet<Name> {
        let is_last = self.ledger.responses().is_answered();
        if !self.has(Quirk::RefusedWhole) || !is_last || !self.asks_only_for_all() {
            return BTreeSet::new();
        }
        let Some(refused) = self.ledger.open_table(sent.nonce).cloned() else { return BTreeSet::new() };
        let known = self.rejections.as_ref().and_then(|rejections| rejections.accepted_list());
        let Some(accepted) = known.or_else(|| self.ledger.accepted_before(sent.nonce)).cloned() else {
            return BTreeSet::new();
        };
        let changes = refused.changes_since(&accepted);
        let changed = changes.changed.iter().filter(|resource| resource.in_wildcard());
        let sets = linked_sets(&accepted, changed).into_iter();
        let sets: Vec<LinkedSet> = sets.map(|set| set.into_iter().map(version).collect()).collect();
        let names: BTreeSet<Name> = sets.iter().flatten().map(|(name, _)| Arc::clone(name)).collect();
        if !names.is_empty() {
            let nack = Nack { sent, words, n_brought: names.len(), is_trial: false };
            let rejections = self.rejections.get_or_insert_default();
            rejections
                .handle_nack_of_list(nack, Arc::clone(&accepted), sets, |name| conflict(&refused, name));
            self.ledger.handle_nack_of_list(sent);
            self.ledger.go_on_with(accepted);
            self.is_dirty = true;
        }
        names
    }

    /// The client accepts the list of this response.
    pub(crate) fn accept_list(&mut self, nonce: u64) {
        if let Some(rejections) = &mut self.rejections
            && let Some(table) = self.ledger.open_table(nonce)
        {
            rejections.handle_ack_of_list(table);
        }
    }

    /// The resources with which the client goes on, as it accepted them last, though `served` has other versions: those that it refuses,
    /// and, if it `searches`, the suspects of other groups than the first.
    pub(crate) fn substitutes(&self, served: &TypeTable, searches: bool) -> Deviations {
        let mut substitutes = Deviations::new();
        let Some((rejections, accepted)) = self.search() else { return substitutes };
        let first = rejections.first_group(|name| served.find(name).map(|new| new.version()));
        let changes = served.changes_since(accepted);
        let mut keys: BTreeSet<&[u8]> = BTreeSet::new();
        let is_kept = |new: &&Arc<Resource>| {
            rejections.refuses_this(new) || (searches && rejections.is_of_another_group(new, first))
        };
        for new in changes.changed.iter().filter(is_kept) {
            let had = accepted.find(new.name());
            keys.extend(had.into_iter().chain([new]).filter_map(|resource| resource.scope_key()));
            let kept = had.map_or(Deviation::Absent, |had| Deviation::Kept(Arc::clone(had)));
            substitutes.insert(Arc::clone(new.name()), kept);
        }
        if !keys.is_empty() {
            // Removed resources stay while those wait that take their keys, and no other does.
            let offered = changes.changed.iter().filter(|new| !substitutes.contains_key(new.name()));
            let offered: BTreeSet<&[u8]> = offered.filter_map(|new| new.scope_key()).collect();
            keys.retain(|key| !offered.contains(key));
            let removed = changes.removed.iter().filter_map(|name| accepted.find(name));
            for had in removed.filter(|had| had.scope_key().is_some_and(|key| keys.contains(key))) {
                substitutes.insert(Arc::clone(had.name()), Deviation::Kept(Arc::clone(had)));
            }
        }
        substitutes
    }

    /// Forgets rejections of what is not served any more, and offers again what may be accepted by now.
    pub(crate) fn review_list(&mut self, served: &TypeTable, revision: Revision) {
        if !self.asks_only_for_all() {
            self.rejections.iter_mut().for_each(|rejections| rejections.retain_of_list(|_| None, |_| None));
            return;
        }
        self.regroup(served, revision);
        self.offer_freed(served, revision);
        if let Some(rejections) = &mut self.rejections {
            let version =
                |table: &TypeTable, name: &Name| table.find(name).map(|resource| resource.version());
            let sent = self.ledger.settled();
            rejections.retain_of_list(|name| version(served, name), |name| version(sent, name));
        }
    }

    /// Puts suspects, and resources that were refused because of their keys, together with those that have or had such a key: with new
    /// versions, and again when something is corrected that may have been in their way.
    fn regroup(&mut self, served: &TypeTable, revision: Revision) {
        if !self.rejections.as_mut().is_some_and(|rejections| rejections.is_regrouping_due(served)) {
            return;
        }
        let Some((rejections, accepted)) = self.search() else { return };
        let conflicts: BTreeSet<&Name> = rejections.conflicts().map(|(name, _)| name).collect();
        let is_stuck = |one: &Resource| rejections.refuses_this(one) && !conflicts.contains(one.name());
        let is_any_corrected = rejections.is_any_other(|name| served.find(name).map(|one| one.version()));
        let changes = served.changes_since(accepted);
        let mut together: Vec<LinkedSet> = Vec::new();
        for set in linked_sets(accepted, changes.changed.iter()) {
            let set: ServedSet<'_> = set.into_iter().filter(|one| !is_stuck(one)).collect();
            let groups: BTreeSet<Option<u64>> = set.iter().map(|one| rejections.group_of(one)).collect();
            let has_new = groups.contains(&None) && groups.len() > 1;
            let was_split = groups.len() > 1 || set.iter().any(|one| rejections.refuses_this(one));
            if has_new || (is_any_corrected && was_split) {
                together.push(set.into_iter().map(version).collect());
            }
        }
        if let Some(rejections) = &mut self.rejections {
            together.into_iter().for_each(|set| rejections.offer_together(set, revision));
        }
    }

    /// Offers again resources that were refused because another had their key, once none has.
    fn offer_freed(&mut self, served: &TypeTable, revision: Revision) {
        if self.rejections.as_mut().is_some_and(|rejections| rejections.is_review_due(served)) {
            let freed = self.freed(served);
            if let Some(rejections) = &mut self.rejections {
                for name in freed {
                    let version = served.find(&name).map(version);
                    rejections.offer_together(version.into_iter().collect(), revision);
                }
            }
        }
    }

    /// The resources that were refused because another had their key, if none has any more that is still served.
    fn freed(&self, served: &TypeTable) -> Vec<Name> {
        let Some((rejections, accepted)) = self.search() else { return vec![] };
        let mut owners: BTreeMap<&[u8], Vec<&Name>> =
            rejections.conflicts().map(|(_, key)| (key, vec![])).collect();
        for owner in accepted.resources().filter(|owner| served.find(owner.name()).is_some()) {
            let owners = owner.scope_key().and_then(|key| owners.get_mut(key));
            owners.into_iter().for_each(|owners| owners.push(owner.name()));
        }
        let is_free = |(name, key): &(&Name, &[u8])| {
            let is_current = served.find(name).is_some_and(|served| rejections.refuses_this(served));
            is_current && owners.get(key).is_some_and(|owners| owners.iter().all(|owner| owner == name))
        };
        rejections.conflicts().filter(is_free).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Sets apart what other clients of the program are known to refuse. Tells whether the next list is another because of that.
    pub(crate) fn set_apart(&mut self, served: &TypeTable, known: &Known) -> bool {
        let is_known = |name: &Name, version| {
            served.find(name).is_some_and(|new| new.version() == version && known.has(new))
        };
        self.rejections.as_mut().is_some_and(|rejections| rejections.set_apart(is_known))
    }

    /// Returns `true` if the next list may be another trial: the last one was answered.
    pub(crate) fn may_offer(&self) -> bool {
        self.is_searching() && self.ledger.responses().is_answered()
    }

    /// Offers no group from now on, or goes on. Tells whether that is a change.
    pub(crate) fn pause(&mut self, is_paused: bool) -> bool {
        self.rejections.as_mut().is_some_and(|rejections| rejections.pause(is_paused))
    }

    /// Returns `true` if a resource was refused because another one of the list had its key.
    pub(crate) fn is_in_conflict(&self, name: &Name) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| rejections.conflicts().any(|(of, _)| of == name))
    }

    /// Returns `true` if the client refuses something of a list.
    pub(crate) fn is_substituting(&self) -> bool {
        self.search().is_some()
    }

    /// Returns `true` if a list is sent to find the culprits of another one that was refused.
    pub(super) fn is_trial_list(&self) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| rejections.is_offering())
    }

    /// The rejections of lists, and the list that the client accepted last.
    fn search(&self) -> Option<(&Rejections, &Arc<TypeTable>)> {
        let rejections = self.rejections.as_deref()?;
        Some((rejections, rejections.accepted_list()?))
    }

    /// Returns `true` if the client asks for everything, and for nothing by name. Of others it is not known which list they accepted.
    fn asks_only_for_all(&self) -> bool {
        self.wants.is_wildcard() && self.wants.names().is_empty()
    }
}

fn version(resource: &Arc<Resource>) -> (Name, Version) {
    (Arc::clone(resource.name()), resource.version())
}

/// The key of a resource, if another one of the list has the same.
fn conflict(list: &TypeTable, name: &Name) -> Option<Vec<u8>> {
    let key = list.find(name)?.scope_key()?;
    let mut others = list.resources().filter(|other| other.name() != name);
    others.any(|other| other.scope_key() == Some(key)).then(|| key.to_vec())
}

/// Puts resources together that have a key in common, or had.
fn linked_sets<'a>(
    accepted: &'a TypeTable,
    changed: impl Iterator<Item = &'a Arc<Resource>>,
) -> Vec<ServedSet<'a>> {
    let mut sets: Vec<ServedSet<'a>> = Vec::new();
    // Where the resources of a set went that became a part of another.
    let mut moved: Vec<usize> = Vec::new();
    let mut set_of: BTreeMap<&'a [u8], usize> = BTreeMap::new();
    for new in changed {
        let own = sets.len();
        sets.push(vec![new]);
        moved.push(own);
        let had = accepted.find(new.name());
        for key in had.into_iter().chain([new]).filter_map(|resource| resource.scope_key()) {
            let other = *set_of.entry(key).or_insert(own);
            join(&mut sets, &mut moved, other, own);
        }
    }
    sets.retain(|set| !set.is_empty());
    sets
}

/// Makes one of two sets: of the smaller and the larger.
fn join(sets: &mut [ServedSet<'_>], moved: &mut [usize], a: usize, b: usize) {
    let [a, b] = [a, b].map(|set| root(moved, set));
    let n = |set: usize| sets.get(set).map_or(0, Vec::len);
    let (small, large) = if n(a) < n(b) { (a, b) } else { (b, a) };
    if small == large {
        return;
    }
    let resources = sets.get_mut(small).map(std::mem::take).unwrap_or_default();
    if let Some(set) = sets.get_mut(large) {
        set.extend(resources);
    }
    if let Some(moved) = moved.get_mut(small) {
        *moved = large;
    }
}

/// The set that a set has become a part of.
fn root(moved: &[usize], mut set: usize) -> usize {
    while let Some(next) = moved.get(set).copied().filter(|next| *next != set) {
        set = next;
    }
    set
}
