//! Limits in time: failed logins by address, and writes by principal.
//!
//! Only failures are limited: an address may have some in a minute, and who goes on failing waits longer each time. A good credential
//! is never locked out: otherwise anyone behind the same address could lock out a pipeline by sending wrong tokens. So every credential
//! is verified first, which costs no more than the request itself. Loopback is an address like others: every user of the machine has it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Failed logins by address.
#[derive(Debug, Default)]
pub struct Failures(Buckets<Option<IpAddr>>);

/// The place of an address that goes on failing.
#[derive(Clone, Copy, Debug)]
struct Strikes {
    /// Failures since there was nothing left.
    n: u32,
    /// No credential is looked at before.
    until: Instant,
}

/// Writes by principal.
#[derive(Debug, Default)]
pub struct Writes(Buckets<Arc<str>>);

/// What everyone has left. When there are too many keys, new ones share one bucket, so that nobody gets a new one by changing keys.
#[derive(Debug)]
struct Buckets<K> {
    buckets: HashMap<K, Bucket>,
    others: Option<Bucket>,
}

/// Tokens that come back with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_minute: u32,
    left: f64,
    at: Instant,
    strikes: Option<Strikes>,
}

impl Failures {
    /// How long this address has to wait before its credentials are looked at; `None` if they are now. An address that nobody
    /// knows is one address.
    #[must_use]
    pub fn wait(&self, from: Option<IpAddr>, now: Instant) -> Option<Duration> {
        self.0.wait(&from.map(network), now)
    }

    /// Counts a failure. Each one without a pause doubles the time until the next credential is looked at, from the first one on
    /// that takes the last of the minute's.
    pub fn record(&mut self, from: Option<IpAddr>, now: Instant) {
        self.0.bucket(from.map(network), FAILURES_PER_MINUTE, now).strike(now);
    }
}

impl Writes {
    /// Counts a write, unless there were too many: then it says how long to wait.
    ///
    /// # Errors
    ///
    /// The time until the next write may be made.
    pub fn take(&mut self, principal: &Arc<str>, per_minute: u32, now: Instant) -> Result<(), Duration> {
        self.0.take(Arc::clone(principal), per_minute, now)
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let is_full = self.buckets.len() >= MAX_BUCKETS;
        let bucket = self.buckets.get(key).or_else(|| self.others.as_ref().filter(|_| is_full));
        bucket.and_then(|bucket| bucket.wait(now))
    }

    fn take(&mut self, key: K, per_minute: u32, now: Instant) -> Result<(), Duration> {
        self.bucket(key, per_minute, now).take(now)
    }

    fn bucket(&mut self, key: K, per_minute: u32, now: Instant) -> &mut Bucket {
        let full = Bucket { per_minute, left: f64::from(per_minute), at: now, strikes: None };
        if !self.buckets.contains_key(&key) && self.buckets.len() >= MAX_BUCKETS {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = if self.buckets.len() < MAX_BUCKETS || self.buckets.contains_key(&key) {
            self.buckets.entry(key).or_insert(full)
        } else {
            self.others.get_or_insert(full)
        };
        if bucket.per_minute != per_minute {
            *bucket = full;
        }
        bucket
    }
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self { buckets: HashMap::new(), others: None }
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(wait) = self.wait(now) {
            return Err(wait);
        }
        (self.left, self.at) = (self.left(now) - 1.0, now);
        Ok(())
    }

    /// Takes one, and makes who has none left wait, longer each time. A minute without a failure ends that.
    fn strike(&mut self, now: Instant) {
        let n = self.strikes.filter(|_| !self.is_full(now)).map_or(0, |strikes| strikes.n);
        (self.left, self.at) = ((self.left(now) - 1.0).max(0.0), now);
        let is_over = self.left < 1.0 || n > 0;
        self.strikes = is_over.then(|| {
            let longer = 1_u32.checked_shl(n).unwrap_or(u32::MAX);
            let until = now + FIRST_WAIT.saturating_mul(longer).min(LONGEST_WAIT);
            // Nothing comes back meanwhile.
            (self.left, self.at) = (0.0, until);
            Strikes { n: n.saturating_add(1), until }
        });
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        if let Some(strikes) = self.strikes {
            return Some(strikes.until.saturating_duration_since(now)).filter(|wait| !wait.is_zero());
        }
        let missing = 1.0 - self.left(now);
        (missing > 0.0).then(|| Duration::from_secs_f64(missing * 60.0 / f64::from(self.per_minute.max(1))))
    }

    fn is_full(&self, now: Instant) -> bool {
        self.left(now) >= f64::from(self.per_minute)
    }

    fn left(&self, now: Instant) -> f64 {
        let most = f64::from(self.per_minute);
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + passed * most / 60.0).min(most)
    }
}

/// The addresses that count as one client: one IPv4 address, or one IPv6 network of 64 bits, because a host has all addresses of
/// that.
#[must_use]
pub fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Failures of one address in a minute. A person who mistypes makes fewer; 2^256 tokens cannot be tried with any number.
pub const FAILURES_PER_MINUTE: u32 = 20;

/// The first time that an address waits: as long as it takes to have one more failure.
const FIRST_WAIT: Duration = Duration::from_secs(3);
/// No longer, because others may stand behind the address who have only a token whose signature must be verified.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Addresses and principals that are kept apart: about 1 MB.
const MAX_BUCKETS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_after_twenty_failures_and_no_other_does() {
        let mut failures = Failures::default();
        let now = Instant::now();
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().ok());
        for _ in 0..20 {
            assert_eq!(failures.wait(a, now), None);
            failures.record(a, now);
        }
        assert_eq!(failures.wait(a, now), Some(Duration::from_secs(3)));
        assert_eq!((failures.wait(b, now), failures.wait(None, now)), (None, None));
        assert_eq!(failures.wait(a, now + Duration::from_secs(3)), None);
        assert_eq!(failures.wait(a, now + Duration::from_secs(2)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn who_goes_on_failing_waits_longer_each_time_and_a_quiet_minute_ends_that() {
        let mut failures = Failures::default();
        let mut now = Instant::now();
        let loopback = "127.0.0.1".parse().ok();
        (0..20).for_each(|_| failures.record(loopback, now));
        for seconds in [3, 6, 12, 24, 48, 60, 60] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(failures.wait(loopback, now), Some(wait));
            assert_eq!(failures.wait(loopback, now + wait / 2), Some(wait / 2));
            now += wait;
            assert_eq!(failures.wait(loopback, now), None, "one more is looked at");
            failures.record(loopback, now);
        }
        now += Duration::from_secs(120);
        for n in 0..20 {
            assert_eq!(failures.wait(loopback, now), None, "{n}");
            failures.record(loopback, now);
        }
        assert_eq!(failures.wait(loopback, now), Some(Duration::from_secs(3)), "it begins anew");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut failures = Failures::default();
        let now = Instant::now();
        for n in 0..20 {
            failures.record(format!("2001:db8::{n}").parse().ok(), now);
        }
        assert!(failures.wait("2001:db8::ffff".parse().ok(), now).is_some());
        assert!(failures.wait("2001:db8:0:1::1".parse().ok(), now).is_none());
        (0..20).for_each(|_| failures.record("::ffff:10.0.0.1".parse().ok(), now));
        assert!(failures.wait("10.0.0.1".parse().ok(), now).is_some());
    }

    #[test]
    fn the_memory_is_bounded_and_full_buckets_make_room() {
        let mut failures = Failures::default();
        let now = Instant::now();
        let address = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        (0..30_000).for_each(|n| failures.record(address(n), now));
        assert_eq!(failures.0.buckets.len(), MAX_BUCKETS);
        assert!(failures.wait(address(40_000), now).is_some(), "new addresses wait for each other");
        assert!(failures.wait(address(1), now).is_none());
        let later = now + Duration::from_secs(60);
        failures.record(address(40_000), later);
        assert_eq!(failures.0.buckets.len(), 1);
    }

    #[test]
    fn writes_are_counted_by_principal() {
        let mut writes = Writes::default();
        let now = Instant::now();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert_eq!(writes.take(&a, 2, now), Ok(()));
        assert_eq!(writes.take(&a, 2, now), Ok(()));
        assert_eq!(writes.take(&a, 2, now), Err(Duration::from_secs(30)));
        assert_eq!(writes.take(&b, 2, now), Ok(()));
        assert_eq!(writes.take(&a, 2, now + Duration::from_secs(30)), Ok(()));
        assert_eq!(writes.take(&a, 6, now), Ok(()), "a policy that changes counts anew");
    }
}
