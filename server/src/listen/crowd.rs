//! Places by address: which address has more than its share of them.

use std::collections::HashMap;

use crate::listen::Source;

/// How many places each address has. To count costs the same however many there are.
#[derive(Debug)]
pub(crate) struct Crowds {
    /// How many places an address keeps when all are taken and another address comes.
    share: usize,
    by_source: HashMap<Source, usize>,
    /// An address with more than its share.
    crowd: Option<Source>,
}

impl Crowds {
    /// No places are taken.
    pub(crate) fn new(share: usize) -> Self {
        Self { share, by_source: HashMap::new(), crowd: None }
    }

    /// An address has one more place.
    pub(crate) fn add(&mut self, source: Source) {
        let n = self.by_source.entry(source).or_default();
        *n += 1;
        if *n > self.share {
            self.crowd.get_or_insert(source);
        }
    }

    /// An address has one place less.
    pub(crate) fn remove(&mut self, source: Source) {
        let Some(n) = self.by_source.get_mut(&source) else { return };
        *n -= 1;
        let n = *n;
        if n == 0 {
            self.by_source.remove(&source);
        }
        if n <= self.share && self.crowd == Some(source) {
            self.crowd = self.by_source.iter().find(|(_, n)| **n > self.share).map(|(source, _)| *source);
        }
    }

    /// The address that has to make room for another one; `None` if every address keeps its share.
    pub(crate) fn displaced_by(&self, newcomer: Source) -> Option<Source> {
        self.crowd.filter(|crowd| *crowd != newcomer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn an_address_with_more_than_its_share_makes_room_for_others_and_not_for_itself() {
        let [a, b, c] = [1, 2, 3].map(|n| Source::from(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))));
        let mut crowds = Crowds::new(2);
        [a, a, b, b].into_iter().for_each(|source| crowds.add(source));
        assert_eq!(crowds.displaced_by(c), None);
        crowds.add(a);
        assert_eq!([c, a].map(|newcomer| crowds.displaced_by(newcomer)), [Some(a), None]);
        crowds.add(b);
        crowds.remove(a);
        assert_eq!([c, b].map(|newcomer| crowds.displaced_by(newcomer)), [Some(b), None]);
        [a, a, b, b, b].into_iter().for_each(|source| crowds.remove(source));
        assert_eq!((crowds.displaced_by(c), crowds.by_source.len()), (None, 0));
    }
}
