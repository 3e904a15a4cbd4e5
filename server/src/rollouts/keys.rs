//! Idempotency keys: a request with a key that began a rollout does not begin another one.

use std::collections::BTreeMap;

/// The keys of the last day, each with the rollout that it began.
#[derive(Debug, Default)]
pub(super) struct Keys {
    by_key: BTreeMap<String, Key>,
}

/// The request that came with a key.
#[derive(Debug)]
pub(super) struct Key {
    /// The checksum of its body: a key must not come with another one.
    pub(super) checksum: String,
    /// The rollout that it began.
    pub(super) rollout: String,
    pub(super) at_ms: u64,
}

impl Keys {
    pub(super) fn find(&mut self, key: &str, now_ms: u64) -> Option<&Key> {
        self.by_key.retain(|_, known| now_ms.saturating_sub(known.at_ms) < KEY_KEPT_MS);
        self.by_key.get(key)
    }

    pub(super) fn keep(&mut self, key: String, known: Key) {
        if self.by_key.len() >= MAX_KEYS {
            let oldest = self.by_key.iter().min_by_key(|(_, known)| known.at_ms).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.by_key.remove(&oldest));
        }
        self.by_key.insert(key, known);
    }
}

/// How many keys are remembered; not across a restart.
const MAX_KEYS: usize = 1_000;
/// How long a key is remembered: a day.
const KEY_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
