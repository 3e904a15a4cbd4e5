//! One walk over two sorted maps.

use std::cmp::Ordering;

/// The keys that only one of the maps has, or under which both have something that is not the same; sorted.
///
/// Both give their keys in ascending order. Walks over both at once: looking up each key of one map in another costs several times that when there are many.
#[must_use]
pub fn differing<'m, K: Ord + 'm, V: 'm>(
    before: impl IntoIterator<Item = (&'m K, &'m V)>,
    after: impl IntoIterator<Item = (&'m K, &'m V)>,
    is_same: impl Fn(&V, &V) -> bool,
) -> Vec<&'m K> {
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    let mut found = Vec::new();
    loop {
        let order = match (before.peek(), after.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return found,
        };
        let old = before.next_if(|_| order.is_le());
        let new = after.next_if(|_| order.is_ge());
        match (old, new) {
            (Some((_, old)), Some((_, new))) if is_same(old, new) => {}
            (Some((key, _)), _) | (None, Some((key, _))) => found.push(key),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_gone_new_or_not_the_same_is_found_in_order() {
        let map = |text: &str| -> BTreeMap<char, char> {
            text.split_whitespace().filter_map(|pair| pair.chars().zip(pair.chars().skip(1)).next()).collect()
        };
        let table = [
            ("", "", ""),
            ("a1 b1", "a1 b1", ""),
            ("a1 b1 c1", "a1 b2 c1", "b"),
            ("b1 d1", "a1 b1 c1 e1", "acde"),
            ("a1 b1 c1", "", "abc"),
            ("", "a1 b1", "ab"),
            ("a1 z1", "b1 z2", "abz"),
        ];
        for (before, after, expected) in table {
            for (before, after) in [(before, after), (after, before)] {
                let (before, after) = (map(before), map(after));
                let found: String = differing(&before, &after, |old, new| old == new).into_iter().collect();
                assert_eq!(found, expected, "{before:?} {after:?}");
            }
        }
    }
}
