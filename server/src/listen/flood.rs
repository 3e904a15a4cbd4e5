//! The limit of control frames on a connection: a bucket of tokens that fills with time, and with the bytes that the client is sent.

use std::time::Instant;

/// The rest of a connection's allowance.
#[derive(Debug)]
pub(super) struct Allowance {
    tokens: u32,
    /// Until when time has been turned into tokens.
    filled_at: Instant,
    /// Bytes that were sent and have not become a token.
    n_sent: u32,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self { tokens: CAPACITY, filled_at: now, n_sent: 0 }
    }

    /// Takes `n` tokens; `false` if there are fewer.
    pub(super) fn take(&mut self, n: u32, now: Instant) -> bool {
        let millis = now.saturating_duration_since(self.filled_at).as_millis();
        let earned = u32::try_from(millis).unwrap_or(u32::MAX).saturating_mul(PER_MILLISECOND);
        if earned > 0 {
            self.filled_at = now;
            self.tokens = self.tokens.saturating_add(earned).min(CAPACITY);
        }
        match self.tokens.checked_sub(n) {
            Some(tokens) => {
                self.tokens = tokens;
                true
            }
            None => false,
        }
    }

    /// The client was sent bytes, which it may answer with window updates and pings.
    pub(super) fn sent(&mut self, n_bytes: usize) {
        let n_sent = u64::from(self.n_sent) + n_bytes.min(u32::MAX as usize) as u64;
        let earned = u32::try_from(n_sent / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
        self.n_sent = (n_sent % BYTES_PER_TOKEN) as u32;
        self.tokens = self.tokens.saturating_add(earned).min(CAPACITY);
    }
}

/// A client may reset or update the windows of all its streams at once, of which there are 10,000 by default.
const CAPACITY: u32 = 50_000;
/// Pings that a client may keep sending: a thousand times the rate of real clients, at a cost of a hundredth of a core.
const PER_MILLISECOND: u32 = 2;
/// Clients answer a frame of data, of 16 KiB, with two window updates and a ping at most.
const BYTES_PER_TOKEN: u64 = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_a_flood_does_not() {
        let began = Instant::now();
        let mut allowance = Allowance::new(began);
        assert!(allowance.take(CAPACITY, began) && !allowance.take(1, began));
        let later = began + Duration::from_secs(1);
        assert!(allowance.take(2000, later) && !allowance.take(1, later));
        let much_later = began + Duration::from_secs(1_000_000);
        assert!(allowance.take(CAPACITY, much_later) && !allowance.take(1, much_later));
    }

    #[test]
    fn whoever_is_sent_much_may_answer_much() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        assert!(allowance.take(CAPACITY, now));
        (0..100).for_each(|_| allowance.sent(1000));
        assert!(allowance.take(97, now) && !allowance.take(1, now));
        allowance.sent(usize::MAX);
        assert!(allowance.take(CAPACITY, now) && !allowance.take(1, now));
    }
}
