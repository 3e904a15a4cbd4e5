//! The order in which an [`OrdMap`](crate::OrdMap) is filled.

/// Entries that come in the order of their keys, rearranged: every other one first.
///
/// Nodes of a map split in halves. Filling in order leaves them half empty; the other half of the entries then fills them.
pub fn filling<T>(entries: impl Iterator<Item = T> + Clone) -> impl Iterator<Item = T> {
    entries.clone().step_by(2).chain(entries.skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::filling;

    #[test]
    fn every_other_one_comes_first() {
        assert_eq!(filling(0..5).collect::<Vec<_>>(), [0, 2, 4, 1, 3]);
        assert_eq!(filling(0..0).count(), 0);
    }
}
