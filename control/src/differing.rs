//! Differences between two maps, one of which was made from the other.

use xds_cache::{DiffItem, OrdMap};

/// The keys under which two maps differ, in order, with what each has there. Costs what the two do not share.
pub(crate) fn differing<'m, K: Ord, V: PartialEq>(
    before: &'m OrdMap<K, V>,
    after: &'m OrdMap<K, V>,
) -> impl Iterator<Item = (&'m K, Option<&'m V>, Option<&'m V>)> {
    before.diff(after).map(|item| match item {
        DiffItem::Add(key, new) => (key, None, Some(new)),
        DiffItem::Update { old: (_, old), new: (key, new) } => (key, Some(old), Some(new)),
        DiffItem::Remove(key, old) => (key, Some(old), None),
    })
}
