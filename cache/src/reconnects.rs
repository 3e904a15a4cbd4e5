//! How often clients come back: a client that comes again and again crashes, or cannot keep its connection.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use crate::resource_type::ResourceType;

/// Counts streams that began, by node and service, for an hour or two. Its memory has a fixed size.
#[derive(Debug, Default)]
pub(crate) struct Reconnects {
    hasher: RandomState,
    began: Option<SystemTime>,
    /// How many streams began in this hour and the one before, by hash.
    present: HashMap<u64, u32>,
    past: HashMap<u64, u32>,
}

impl Reconnects {
    /// Counts a stream that begins `now`; returns how many of the same node and service began before, in this hour and the last.
    pub(crate) fn arrive(&mut self, node: &str, service: Option<&ResourceType>, now: SystemTime) -> u32 {
        let began = *self.began.get_or_insert(now);
        // A clock that went back by more than that begins anew, too.
        let age = now.duration_since(began).or_else(|_| began.duration_since(now)).unwrap_or_default();
        if age >= HOUR {
            self.past = if age < 2 * HOUR { std::mem::take(&mut self.present) } else { HashMap::new() };
            self.present.clear();
            self.began = Some(now);
        }
        let key = self.hasher.hash_one((node, service.map(ResourceType::type_url)));
        let before = self.past.get(&key).copied().unwrap_or_default();
        let is_full = self.present.len() >= MAX_KEPT;
        let count = match self.present.get_mut(&key) {
            Some(count) => count,
            None if is_full => return before,
            None => self.present.entry(key).or_default(),
        };
        let earlier = count.saturating_add(before);
        *count = count.saturating_add(1);
        earlier
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Nodes and services that are told apart in an hour, at 12 bytes and some each.
const MAX_KEPT: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_comes_back_is_counted_for_an_hour_or_two() {
        let mut reconnects = Reconnects::default();
        let at = |minutes: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + minutes * 60);
        let mut arrive = |node: &str, minutes| reconnects.arrive(node, None, at(minutes));
        assert_eq!([arrive("a", 0), arrive("a", 1), arrive("b", 1), arrive("a", 59)], [0, 1, 0, 2]);
        assert_eq!([arrive("a", 61), arrive("a", 62)], [3, 4], "the hour before counts");
        assert_eq!(arrive("a", 125), 2);
        assert_eq!(arrive("a", 1000), 0, "that was long ago");
        assert_eq!(arrive("a", 100), 0, "a clock that goes far back begins anew");
        let service = ResourceType::Cluster;
        assert_eq!(reconnects.arrive("a", Some(&service), at(101)), 0, "another service is another stream");
    }

    #[test]
    fn its_memory_has_an_end() {
        let mut reconnects = Reconnects::default();
        for n in 0..MAX_KEPT + 10 {
            reconnects.arrive(&n.to_string(), None, SystemTime::UNIX_EPOCH);
        }
        assert_eq!(reconnects.present.len(), MAX_KEPT);
        assert_eq!(reconnects.arrive("0", None, SystemTime::UNIX_EPOCH), 1);
    }
}
