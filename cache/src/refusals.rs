//! Requests and inputs that the server refused because they exceed a limit: how many, why, and the last of each kind.
//!
//! A server under attack, and one with a limit that is too tight for its fleet, look the same from outside: clients fail. This
//! board tells the operator which limit it was. Metrics, `/readyz` and `status` read it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Defines [`Reason`] with its label, and the limit that an operator can change.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal, $limit:literal;)+) => {
        /// Why something was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The label in metrics and logs.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $label,)+ }
            }

            /// The flag that sets the limit, or a few words if none does.
            #[must_use]
            pub const fn limit(self) -> &'static str {
                match self { $(Self::$name => $limit,)+ }
            }
        }
    };
}

reasons! {
    /// Too many validations, dry runs and explanations wait, or one took too long.
    Trials = "trials", "2 validations, dry runs and explanations at once, 6 more waiting, 30 s for each";
    /// Too many writes are waiting, or their contents are too large.
    Writes = "writes", "256 writes at once, with 128 MiB of resources and documents";
    /// A gRPC message is larger than one may be.
    MessageSize = "message-size", "--max-message-bytes";
    /// A client subscribes to too many names of one type, or to one that is too long.
    Names = "names", "--max-names-per-type";
    /// There is no room for the names that a client subscribes to.
    SubscriptionMemory = "subscription-memory", "--max-subscription-memory";
    /// A client subscribes to too many types on one stream.
    Types = "types", "100 types on a stream";
    /// A rollout would call a host that may not be called.
    CallTarget = "call-target", "--webhook-allow";
    /// Every place for a stream is taken, or one that has not named a node had to make room for another.
    Streams = "streams", "--max-streams";
    /// The body of a poll is too large.
    PollSize = "poll-size", "--max-poll-bytes";
    /// There are too many polls at once, or the body of one does not come.
    Polls = "polls", "--max-polls";
    /// There are too many requests for client status at once, or its matchers or its answer are too large.
    ClientStatus = "client-status", "16 readers, 500 parts and 16 regular expressions in matchers, 4 MiB in one message";
    /// A browser sent a request to the xDS port.
    Browser = "browser", "no requests from web pages on the xDS port";
    /// A request to the xDS port was meant for another host.
    Host = "host", "--xds-host";
    /// A text of a node is too long, or the node is too large.
    Node = "node", "4 KiB for a text, 1 MiB for a node";
    /// Some of a node's metadata is not kept; the client is served.
    NodeMetadata = "node-metadata", "1,000 entries and 64 KiB for a node";
    /// A node that is not small finds no room.
    NodeMemory = "node-memory", "--max-node-memory";
    /// Only the details of the node that decide something are kept, so client status shows no more; the client is served.
    NodeDetails = "node-details", "--max-node-memory";
    /// A load report has too many entries of a kind, or a text that is too long.
    LoadReport = "load-report", "50,000 clusters in a report, 1,000 localities and 100 drop categories in a cluster, 1,000 \
        metrics and 10,000 endpoints in a locality, 4 KiB for a text";
    /// A stream did not send its first request in time.
    FirstRequest = "first-request", "--first-request-timeout";
    /// Every connection of the xDS port is in use, or an idle one had to make room.
    Connections = "connections", "--max-connections";
    /// Every connection of the admin or probe port is in use, or an idle one had to make room.
    AdminConnections = "admin-connections", "--max-admin-connections";
    /// The number of readers of events is at its limit.
    EventReaders = "event-readers", "64 readers of /v1/events";
    /// A connection sent no request in time, or read nothing of its answers.
    SlowConnection = "slow-connection", "10 s for a first request, 30 s without reading";
    /// A TLS handshake failed, took too long, or had to make room for another.
    Handshake = "handshake", "the certificates that both sides trust; --handshake-timeout, --max-pending-handshakes";
    /// A client showed neither certificate nor token, and the port serves nobody without.
    NoCredential = "no-credential", "--allow-anonymous-xds";
    /// A client's token is not believed, or not any more.
    BadToken = "bad-token", "`issuers` of --access-policy";
    /// The access policy denies the identity of a client.
    Denied = "denied", "`denied` of --access-policy";
    /// A node claims a group that is not granted to the client's identity.
    IdentityNotAllowed = "identity-not-allowed", "`identities` of the node group";
    /// A node claims an id that its identity is not for.
    NodeIdMismatch = "node-id-mismatch", "`nodeIds` in `identities` of the node group";
    /// A client's certificate or token has ended, and so its streams do.
    Expired = "expired", "the end of the client's certificate or token";
    /// The issuer of a client's certificate has revoked it, and so its connection ends.
    Revoked = "revoked", "the CRLs of the port's clients";
    /// A client's certificate is not trusted any more, and so its connection ends.
    Untrusted = "untrusted", "the authorities and the CRLs of the port's clients";
    /// A client sent so many control frames that its connection was ended.
    Flood = "flood", "50,000 control frames, and 2,000 more a second";
    /// There is no room for a message while it is being received.
    ReceiveBytes = "receive-bytes", "--max-receive-bytes";
    /// A message did not arrive completely in time.
    SlowMessage = "slow-message", "10 s without progress";
}

/// One reason, as far as anything was refused for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// How often since the process began.
    pub n: u64,
    /// When the last time was.
    pub last_at: SystemTime,
    /// The detail of the last refusal; at most [`MAX_DETAIL_BYTES`] bytes.
    pub last_detail: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, n, last_detail, .. } = self;
        write!(
            f,
            "refused {n} times: {} (limit: {}); the last: {last_detail}",
            reason.as_str(),
            reason.limit()
        )
    }
}

/// Counts refusals by reason. Every call is short; memory is bounded by the number of reasons.
#[derive(Debug, Default)]
pub struct Refusals {
    rows: Mutex<BTreeMap<Reason, Row>>,
}

#[derive(Debug)]
struct Row {
    n: u64,
    last_at: SystemTime,
    last_detail: String,
    /// When it was last logged, and how many have not been since.
    logged_at: Option<SystemTime>,
    n_unlogged: u64,
}

impl Refusals {
    /// Counts one refusal, and logs it unless one for the same reason was logged within [`LOG_INTERVAL`].
    ///
    /// `detail` says what was refused and from whom, without secrets; it is cut at [`MAX_DETAIL_BYTES`].
    pub fn record(&self, reason: Reason, detail: &str, now: SystemTime) {
        let detail = &detail[..detail.floor_char_boundary(MAX_DETAIL_BYTES)];
        let mut rows = self.lock();
        let row = rows.entry(reason).or_insert_with(|| Row::new(now));
        row.n += 1;
        row.last_at = now;
        row.last_detail.clear();
        row.last_detail.push_str(detail);
        let Some(n_unlogged) = row.log(now) else { return };
        drop(rows);
        let (reason, limit) = (reason.as_str(), reason.limit());
        tracing::warn!(reason, limit, detail, n_more_before = n_unlogged, "refused");
    }

    /// How often each reason occurred; 0 for those that did not.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Reason, u64> {
        let rows = self.lock();
        Reason::ALL.iter().map(|reason| (*reason, rows.get(reason).map_or(0, |row| row.n))).collect()
    }

    /// The reasons that occurred within [`RECENT`] before `now`, in the order of [`Reason::ALL`].
    #[must_use]
    pub fn recent(&self, now: SystemTime) -> Vec<Refused> {
        let rows = self.lock();
        // A clock that went back makes everything recent, which is the safer side.
        let is_recent =
            |row: &Row| now.duration_since(row.last_at).is_ok_and(|age| age < RECENT) || row.last_at > now;
        let refused = |(reason, row): (&Reason, &Row)| Refused {
            reason: *reason,
            n: row.n,
            last_at: row.last_at,
            last_detail: row.last_detail.clone(),
        };
        rows.iter().filter(|(_, row)| is_recent(row)).map(refused).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Reason, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    fn new(now: SystemTime) -> Self {
        Self { n: 0, last_at: now, last_detail: String::new(), logged_at: None, n_unlogged: 0 }
    }

    /// How many refusals have not been logged, if it is time to log.
    fn log(&mut self, now: SystemTime) -> Option<u64> {
        let is_early =
            self.logged_at.is_some_and(|at| now.duration_since(at).is_ok_and(|since| since < LOG_INTERVAL));
        if is_early {
            self.n_unlogged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.n_unlogged))
    }
}

/// Enough for a node id, an address and a number.
pub const MAX_DETAIL_BYTES: usize = 512;
/// Refusals for one reason are logged once in this time, however many there are.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long a refusal is shown by `/readyz` and `status`: a few scrapes of a monitoring system.
pub const RECENT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn refusals_are_counted_and_the_last_of_each_reason_is_kept() {
        let refusals = Refusals::default();
        refusals.record(Reason::Names, "a", at(1));
        refusals.record(Reason::Names, "b", at(2));
        refusals.record(Reason::Streams, &"é".repeat(MAX_DETAIL_BYTES), at(3));
        assert_eq!(refusals.counts()[&Reason::Names], 2);
        assert_eq!(refusals.counts()[&Reason::Types], 0);
        let recent = refusals.recent(at(4));
        let names: Vec<_> = recent.iter().map(|refused| (refused.reason, refused.n)).collect();
        assert_eq!(names, [(Reason::Names, 2), (Reason::Streams, 1)]);
        assert_eq!(
            recent[0].to_string(),
            "refused 2 times: names (limit: --max-names-per-type); the last: b"
        );
        assert_eq!(recent[1].last_detail.len(), MAX_DETAIL_BYTES);
    }

    #[test]
    fn old_refusals_are_not_shown_any_more() {
        let refusals = Refusals::default();
        refusals.record(Reason::Names, "a", at(1000));
        assert_eq!(refusals.recent(at(1000) + RECENT), []);
        assert_eq!(refusals.recent(at(10)).len(), 1, "a clock that went back hides nothing");
        assert_eq!(refusals.counts()[&Reason::Names], 1);
    }

    #[test]
    fn each_reason_is_logged_once_in_an_interval() {
        let mut row = Row::new(at(0));
        assert_eq!(row.log(at(0)), Some(0));
        assert_eq!([row.log(at(1)), row.log(at(9))], [None, None]);
        assert_eq!(row.log(at(10)), Some(2));
    }

    #[test]
    fn labels_are_distinct() {
        let labels: std::collections::BTreeSet<_> =
            Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
