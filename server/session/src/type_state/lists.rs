//! Lists that a client refuses whole because of one resource: the search by substitution (D26).
//!
//! To be absent from a complete list would be to be deleted, so nothing can be left out to find what is refused. Instead, each of the
//! resources that may be refused stays as the client accepted it last, and only one group of them at a time comes in its new version.
//! Such a list is that of a table that deviates from the view's, like those of changes that wait: the ledger knows no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::status::Sent;
use xds_cache::{Deviation, Deviations, Name, Resource, TypeTable, Version};

use super::TypeState;
use super::rejections::Nack;
use crate::culprits::Known;
use crate::quirks::Quirk;

/// Resources that are offered together as long as nothing else is known: the key of one is, or was, that of another.
pub(super) type Unit = Vec<(Name, Version)>;

impl TypeState {
    /// Begins or continues to search a list that the client refused whole. Returns the names of what it may refuse; none if the list was
    /// not the last one, or it is not known what the client has instead.
    pub(super) fn suspect_list(&mut self, sent: &Sent, words: &Arc<str>) -> BTreeSet<Name> {
        if !self.has(Quirk::RefusedWhole) || !self.ledger.responses().is_answered() {
            return BTreeSet::new();
        }
        let Some(refused) = self.ledger.open_table(sent.nonce).cloned() else { return BTreeSet::new() };
        let known = self.rejections.as_ref().and_then(|rejections| rejections.accepted_list());
        let Some(accepted) = known.or_else(|| self.ledger.accepted_before(sent.nonce)).cloned() else {
            return BTreeSet::new();
        };
        let changes = refused.changes_since(&accepted);
        let changed = changes.changed.iter().filter(|changed| self.wants.covers(&refused, changed));
        let units = units(&accepted, changed);
        let names: BTreeSet<Name> = units.iter().flatten().map(|(name, _)| Arc::clone(name)).collect();
        if !names.is_empty() {
            let nack = Nack { sent, words, n_brought: names.len(), is_trial: false };
            self.rejections.get_or_insert_default().handle_nack_of_list(nack, accepted, units);
            self.is_dirty = true;
        }
        names
    }

    /// The client accepts the list of this response.
    pub(super) fn accept_list(&mut self, nonce: u64) {
        if let Some(rejections) = &mut self.rejections
            && let Some(table) = self.ledger.open_table(nonce)
        {
            rejections.handle_ack_of_list(table);
        }
    }

    /// What the client goes on with of what it refuses, or may refuse, as it accepted that last: `served` has another version.
    pub(crate) fn substitutes(&self, served: &TypeTable) -> Deviations {
        let Some(rejections) = &self.rejections else { return Deviations::new() };
        let Some(accepted) = rejections.accepted_list() else { return Deviations::new() };
        let mut substitutes = Deviations::new();
        let mut keys: BTreeSet<&[u8]> = BTreeSet::new();
        for (name, version) in rejections.not_offered() {
            let Some(new) = served.find(name).filter(|new| new.version() == version) else { continue };
            let had = accepted.find(name);
            keys.extend(had.into_iter().chain([new]).filter_map(|resource| resource.scope_key()));
            let kept = had.map_or(Deviation::Absent, |had| Deviation::Kept(Arc::clone(had)));
            substitutes.insert(Arc::clone(name), kept);
        }
        if !keys.is_empty() {
            // Whose key passes to one of these stays too.
            let removed = served.changes_since(accepted);
            let removed = removed.removed.iter().filter_map(|name| accepted.find(name));
            for had in removed.filter(|had| had.scope_key().is_some_and(|key| keys.contains(key))) {
                substitutes.insert(Arc::clone(had.name()), Deviation::Kept(Arc::clone(had)));
            }
        }
        substitutes
    }

    /// Sets apart what other clients of the program are known to refuse. Tells whether the next list is another because of that.
    pub(crate) fn set_apart(&mut self, served: &TypeTable, known: &Known) -> bool {
        let is_known = |name: &Name, version| {
            served.find(name).is_some_and(|new| new.version() == version && known.has(new))
        };
        self.rejections.as_mut().is_some_and(|rejections| rejections.set_apart(is_known))
    }

    /// Returns `true` if the client refuses something of a list.
    pub(crate) fn is_substituting(&self) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| rejections.accepted_list().is_some())
    }

    /// Returns `true` if the client goes on with an older version of a resource of a list, because it refuses the new one, or may do so.
    pub(crate) fn is_substituted(&self, name: &Name) -> bool {
        self.is_substituting() && self.rejections.as_ref().is_some_and(|rejections| rejections.knows(name))
    }

    /// Offers again what was refused beside a resource that is corrected now and had its key.
    pub(super) fn review_list(&mut self, served: &TypeTable) {
        let Some(rejections) = &mut self.rejections else { return };
        let Some(accepted) = rejections.accepted_list() else { return };
        let key = |resource: &Arc<Resource>| resource.scope_key().map(<[u8]>::to_vec);
        let keys: BTreeSet<Vec<u8>> = rejections
            .refused()
            .filter(|(name, version)| served.find(name).map(|new| new.version()) != Some(*version))
            .filter_map(|(name, _)| accepted.find(name).and_then(key))
            .collect();
        let has_key = |name: &Name| served.find(name).and_then(key).is_some_and(|key| keys.contains(&key));
        let again: Vec<Name> =
            rejections.refused().map(|(name, _)| name).filter(|name| has_key(name)).cloned().collect();
        rejections.offer_again(&again);
    }
}

/// Puts resources together that have a key in common, or had.
fn units<'a>(accepted: &TypeTable, changed: impl Iterator<Item = &'a Arc<Resource>>) -> Vec<Unit> {
    let mut units: Vec<(Unit, BTreeSet<Vec<u8>>)> = Vec::new();
    let mut unit_of: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for new in changed {
        let had = accepted.find(new.name());
        let keys: BTreeSet<Vec<u8>> = had
            .into_iter()
            .chain([new])
            .filter_map(|resource| resource.scope_key().map(<[u8]>::to_vec))
            .collect();
        let others: BTreeSet<usize> = keys.iter().filter_map(|key| unit_of.get(key)).copied().collect();
        let mut unit = (vec![(Arc::clone(new.name()), new.version())], keys);
        for other in others {
            if let Some((resources, keys)) = units.get_mut(other).map(std::mem::take) {
                unit.0.extend(resources);
                unit.1.extend(keys);
            }
        }
        unit_of.extend(unit.1.iter().map(|key| (key.clone(), units.len())));
        units.push(unit);
    }
    units.into_iter().map(|(resources, _)| resources).filter(|unit| !unit.is_empty()).collect()
}
