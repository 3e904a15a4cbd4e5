//! The servers that share a store: what the remote says of them, and since when one is gone.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::remote::Entry;

/// What a server says of itself.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The address at which other servers reach it, `HOST:PORT`; `None` if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Its release.
    #[serde(default)]
    pub release: String,
    /// When it started, in seconds since 1970 by its own clock.
    #[serde(default)]
    pub since: u64,
}

/// A server with the same store, as this one sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// What it says of itself.
    pub member: Member,
    /// Since when it is gone without having said so; `None` while it lives.
    pub gone: Option<Gone>,
}

/// When this server noticed that another one is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gone {
    /// By the clock that measures.
    pub at: Instant,
    /// By the clock that people read.
    pub wall: SystemTime,
}

/// All servers with the same store, by their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    /// At most [`MAX_MEMBERS`] of them.
    pub seats: BTreeMap<String, Seat>,
    /// The one that leads; `None` if none does.
    pub leader: Option<String>,
}

impl Members {
    /// What there is after a read of `replica/` and `alive/` that was answered at `now`. Whoever was gone before stays so since then.
    ///
    /// A server is listed if it has either key: one that cannot be read, or was forgotten while it lives, may still have clients.
    pub(crate) fn after(&self, replicas: &[Entry], alive: &[Entry], now: Gone) -> Self {
        let mut seats = BTreeMap::new();
        for entry in replicas {
            let Some(id) = entry.key.strip_prefix(REPLICA) else { continue };
            let member = serde_json::from_slice(&entry.value).unwrap_or_default();
            let before = self.seats.get(id).and_then(|seat| seat.gone);
            seats.insert(id.to_owned(), Seat { member, gone: Some(before.unwrap_or(now)) });
        }
        for entry in alive {
            let Some(id) = entry.key.strip_prefix(ALIVE) else { continue };
            let known = self.seats.get(id).map(|seat| seat.member.clone());
            let seat = seats.entry(id.to_owned());
            seat.or_insert_with(|| Seat { member: known.unwrap_or_default(), gone: None }).gone = None;
        }
        Self { seats, leader: self.leader.clone() }
    }
}

impl Member {
    /// The value of its key.
    pub(crate) fn encode(&self) -> Bytes {
        // A value of texts and numbers always has a JSON form.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Before the id, in the key of what a server says of itself.
pub(crate) const REPLICA: &str = "replica/";

/// Before the id, in the key that lasts as long as the server.
pub(crate) const ALIVE: &str = "alive/";

/// How many servers are listed. Three to ten are usual.
pub const MAX_MEMBERS: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry { key: key.to_owned(), value: Bytes::from(value.to_owned()) }
    }

    #[tokio::test(start_paused = true)]
    async fn who_vanishes_is_gone_since_it_was_noticed_and_whoever_is_forgotten_is_not_listed() {
        let wall = SystemTime::UNIX_EPOCH;
        let began = Instant::now();
        let at = |seconds| Gone { at: began + Duration::from_secs(seconds), wall };
        let a = entry("replica/a", r#"{"peer":"a:1","release":"1.2","since":7}"#);
        let broken = entry("replica/b", "?");
        let both = Members::default().after(
            &[a.clone(), broken.clone()],
            &[entry("alive/a", "x"), entry("alive/b", "y")],
            at(0),
        );
        assert_eq!(both.seats["a"].member.peer.as_deref(), Some("a:1"));
        assert!(both.seats.values().all(|seat| seat.gone.is_none()));

        let one = both.after(&[a.clone(), broken.clone()], &[entry("alive/b", "y")], at(5));
        let later = one.after(&[a.clone(), broken.clone()], &[entry("alive/b", "y")], at(10));
        assert_eq!(later.seats["a"].gone, Some(at(5)));
        assert_eq!(later.seats["b"].gone, None);
        // It is back, and vanishes again.
        let back = later.after(&[a.clone(), broken], &[entry("alive/a", "z")], at(15));
        assert_eq!(back.seats["a"].gone, None);
        assert_eq!(back.after(&[a], &[], at(20)).seats["a"].gone, Some(at(20)));
        // It lives, though somebody forgot it.
        let forgotten = both.after(&[], &[entry("alive/a", "x")], at(5));
        assert_eq!(forgotten.seats["a"].member.peer.as_deref(), Some("a:1"));
        assert_eq!(forgotten.seats.len(), 1);
    }
}
