//! The content hash of a RouteConfiguration, updated when its virtual hosts are added, removed or changed.
//!
//! A RouteConfiguration consists of the fields before its virtual hosts, the virtual hosts, and the fields after them. The part of
//! the virtual hosts is a sum: it adds up one hash for each pair of hosts that follow each other. So one of ten thousand can change
//! without a look at the others. Another order of the same hosts has other pairs, and so another sum.
//!
//! Any other message is hashed as it is: one without virtual hosts, with a virtual host twice, or with other fields between them.

use std::collections::HashSet;

use crate::version::VersionHasher;
use crate::wire::{Fields, Value};

/// The hash of a virtual host as it stands in a RouteConfiguration, with key and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostHash(u128);

impl HostHash {
    /// The sum of an encoded field.
    #[must_use]
    pub fn of(field: &[u8]) -> Self {
        let mut hasher = VersionHasher::new();
        hasher.update(field);
        Self(hasher.finish_wide())
    }
}

/// The sum over virtual hosts in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSum(u128);

impl Default for HostSum {
    /// The sum of no hosts.
    fn default() -> Self {
        Self(pair(None, None))
    }
}

impl HostSum {
    /// A host comes between two others; `None` is the beginning or the end.
    pub fn insert(&mut self, host: HostHash, between: [Option<HostHash>; 2]) {
        self.0 = self.0.wrapping_add(difference(host, between));
    }

    /// A host goes that stood between two others.
    pub fn remove(&mut self, host: HostHash, between: [Option<HostHash>; 2]) {
        self.0 = self.0.wrapping_sub(difference(host, between));
    }
}

/// By how much a sum grows when a host comes between two others.
fn difference(host: HostHash, [before, after]: [Option<HostHash>; 2]) -> u128 {
    let pairs = pair(before, Some(host)).wrapping_add(pair(Some(host), after));
    pairs.wrapping_sub(pair(before, after))
}

/// The hash of two hosts that follow each other.
fn pair(before: Option<HostHash>, after: Option<HostHash>) -> u128 {
    let mut hasher = VersionHasher::new();
    for host in [before, after] {
        let bytes = host.map(|host| host.0.to_le_bytes());
        hasher.update(bytes.as_ref().map_or(&[], |bytes| bytes.as_slice()));
    }
    hasher.finish_wide()
}

/// The bytes before the virtual hosts of a RouteConfiguration, the sum over these, and the bytes after them.
pub(crate) type Content<'a> = (&'a [u8], HostSum, &'a [u8]);

/// Adds a RouteConfiguration to a hash.
pub(crate) fn hash((before, hosts, after): Content<'_>, hasher: &mut VersionHasher) {
    // No message begins like that, so it is not mistaken for one that is hashed as it is.
    hasher.update(b"virtual hosts");
    hasher.update(before);
    hasher.update(&hosts.0.to_le_bytes());
    hasher.update(after);
}

/// Takes an encoded RouteConfiguration apart; `None` if it is to be hashed as it is.
pub(crate) fn content(message: &[u8]) -> Option<Content<'_>> {
    let (mut n_before, mut n_hosts) = (0, 0);
    let (mut hosts, mut known, mut last) = (HostSum::default(), HashSet::new(), None);
    let mut is_after = false;
    for field in Fields::of(message) {
        let field = field.ok()?;
        match (field.number == VIRTUAL_HOSTS, field.value) {
            (true, Value::Bytes(_)) if !is_after => {
                let host = HostHash::of(field.raw);
                hosts.insert(host, [last, None]);
                (last, n_hosts) = (Some(host), n_hosts + field.raw.len());
                if !known.insert(host) {
                    return None;
                }
            }
            (true, _) => return None,
            (false, _) if last.is_none() => n_before += field.raw.len(),
            (false, _) => is_after = true,
        }
    }
    last?;
    let (before, rest) = message.split_at_checked(n_before)?;
    Some((before, hosts, rest.get(n_hosts..)?))
}

/// The number of the field of a RouteConfiguration.
const VIRTUAL_HOSTS: u32 = 2;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{put_bytes, put_number};

    #[derive(Clone, Debug)]
    enum Field {
        Host(u8),
        Other(u8),
        /// A field of the number of virtual hosts that is none.
        Odd,
        Junk,
    }

    fn message(fields: &[Field]) -> Vec<u8> {
        let mut message = Vec::new();
        for field in fields {
            match field {
                Field::Host(content) => put_bytes(&mut message, VIRTUAL_HOSTS, &[*content; 3]),
                Field::Other(content) => put_bytes(&mut message, 1, &[*content]),
                Field::Odd => put_number(&mut message, VIRTUAL_HOSTS, 1),
                Field::Junk => message.push(0xff),
            }
        }
        message
    }

    fn hashed(message: &[u8]) -> u128 {
        let mut hasher = VersionHasher::new();
        match content(message) {
            Some(content) => hash(content, &mut hasher),
            None => hasher.update(message),
        }
        hasher.finish_wide()
    }

    #[test]
    fn different_messages_have_different_hashes() {
        let alphabet = [
            Field::Host(0),
            Field::Host(1),
            Field::Host(2),
            Field::Other(0),
            Field::Other(1),
            Field::Odd,
            Field::Junk,
        ];
        let mut known: HashMap<u128, Vec<u8>> = HashMap::new();
        let (mut n_sums, mut n_whole) = (0, 0);
        for length in 0..=5_u32 {
            for number in 0..7_usize.pow(length) {
                let digits = (0..length).map(|digit| number / 7_usize.pow(digit) % 7);
                let fields: Vec<Field> = digits.map(|at| alphabet[at].clone()).collect();
                let message = message(&fields);
                match content(&message) {
                    Some(_) => n_sums += 1,
                    None => n_whole += 1,
                }
                let known = known.entry(hashed(&message)).or_insert_with(|| message.clone());
                assert_eq!(*known, message, "{fields:?}");
            }
        }
        assert!(n_sums > 100 && n_whole > 1_000, "{n_sums} {n_whole}");
    }

    #[test]
    fn hosts_that_repeat_are_not_summed_up() {
        // These have the same pairs.
        let orders = [[0, 1, 0, 2, 0], [0, 2, 0, 1, 0]];
        let [one, other] = orders.map(|hosts| message(&hosts.map(Field::Host)));
        assert_eq!((content(&one), content(&other)), (None, None));
        assert_ne!(hashed(&one), hashed(&other));
    }

    proptest! {
        #[test]
        fn a_sum_that_is_kept_is_that_of_the_message(
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40_u8), 0..60),
        ) {
            let mut hosts: Vec<u8> = Vec::new();
            let mut sum = HostSum::default();
            let hash = |content: u8| HostHash::of(&message(&[Field::Host(content)]));
            for (at, new) in edits {
                let near = |hosts: &[u8], at: usize| {
                    let before = at.checked_sub(1).and_then(|at| hosts.get(at));
                    [before, hosts.get(at)].map(|host| host.map(|host| hash(*host)))
                };
                if let Some(at) = hosts.iter().position(|host| *host == new) {
                    hosts.remove(at);
                    sum.remove(hash(new), near(&hosts, at));
                } else {
                    let at = at.index(hosts.len() + 1);
                    sum.insert(hash(new), near(&hosts, at));
                    hosts.insert(at, new);
                }
                let fields: Vec<Field> = hosts.iter().copied().map(Field::Host).collect();
                let message = message(&fields);
                let expected = (!hosts.is_empty()).then_some((&[][..], sum, &[][..]));
                prop_assert_eq!(content(&message), expected);
            }
        }
    }
}
