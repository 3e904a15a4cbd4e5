//! The messages between servers. The names of fields do not count on the wire, and unknown fields are left out.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use xds_control::Fingerprint;
use xds_control::peers;
use xds_replica::Read;

/// What the server that asks sends: first who it is, then questions.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FromAsker {
    #[prost(message, optional, tag = "1")]
    pub(super) hello: Option<Hello>,
    #[prost(message, optional, tag = "2")]
    pub(super) question: Option<Body>,
    /// The head of the history, for a server that follows.
    #[prost(uint64, optional, tag = "3")]
    pub(super) head: Option<u64>,
    /// The [news](crate::culprits::KeptCulprits::news) of what clients reject, for a server that follows; empty if there are none.
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) culprits: Bytes,
}

/// What the server that answers sends: first who it is, then how it is, and answers.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ToAsker {
    #[prost(message, optional, tag = "1")]
    pub(super) hello: Option<Hello>,
    #[prost(message, optional, tag = "2")]
    pub(super) status: Option<Status>,
    #[prost(message, optional, tag = "3")]
    pub(super) answer: Option<Body>,
    /// True for a server that ends, and so has no clients any more.
    #[prost(bool, tag = "4")]
    pub(super) leaves: bool,
    /// The [news](crate::culprits::KeptCulprits::news) of what clients reject; empty if there are none.
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) culprits: Bytes,
}

/// Who speaks, and to whom.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Hello {
    #[prost(string, tag = "1")]
    pub(super) from: String,
    /// Empty for whoever answers.
    #[prost(string, tag = "2")]
    pub(super) to: String,
    #[prost(string, tag = "3")]
    pub(super) release: String,
    /// When the server started, in seconds since 1970.
    #[prost(uint64, tag = "4")]
    pub(super) since: u64,
}

/// How a server is.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(uint64, tag = "1")]
    pub(super) revision: u64,
    #[prost(uint64, tag = "2")]
    pub(super) streams: u64,
    /// What it serves at `revision`: 16 bytes, or none.
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) fingerprint: Bytes,
}

impl From<peers::Status> for Status {
    fn from(status: peers::Status) -> Self {
        let fingerprint =
            status.fingerprint.map(|(_, Fingerprint(sum))| Bytes::copy_from_slice(&sum.to_be_bytes()));
        let revision = status.fingerprint.map_or(status.revision, |(revision, _)| revision);
        Self { revision, streams: status.streams, fingerprint: fingerprint.unwrap_or_default() }
    }
}

impl From<&Status> for peers::Status {
    fn from(status: &Status) -> Self {
        let sum = <[u8; 16]>::try_from(&*status.fingerprint).ok().map(u128::from_be_bytes);
        let fingerprint = sum.map(|sum| (status.revision, Fingerprint(sum)));
        Self { revision: status.revision, streams: status.streams, fingerprint }
    }
}

/// A question or its answer.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Body {
    /// The same in both.
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    /// JSON: a [`Question`](xds_control::peers::Question) or an [`Answer`](xds_control::peers::Answer).
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) json: Bytes,
    /// Why there is no answer; empty if there is one.
    #[prost(string, tag = "3")]
    pub(super) failure: String,
}

/// The parts of the history that a follower reads.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ranges {
    #[prost(message, repeated, tag = "1")]
    pub(super) ranges: Vec<Range>,
}

/// One of them.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Range {
    #[prost(string, tag = "1")]
    pub(super) from: String,
    #[prost(string, optional, tag = "2")]
    pub(super) to: Option<String>,
    #[prost(uint32, tag = "3")]
    pub(super) limit: u32,
}

/// A part of what a follower reads.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Piece {
    /// Number of the range, from 0.
    #[prost(uint32, tag = "1")]
    pub(super) range: u32,
    /// The key of a value that begins here; absent if the last one goes on.
    #[prost(string, optional, tag = "2")]
    pub(super) key: Option<String>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) value: Bytes,
}

impl From<Read> for Range {
    fn from(Read { from, to, limit }: Read) -> Self {
        Self { from, to, limit: u32::try_from(limit).unwrap_or(u32::MAX) }
    }
}

impl From<Range> for Read {
    fn from(Range { from, to, limit }: Range) -> Self {
        Self { from, to, limit: limit as usize }
    }
}

/// A time in seconds since 1970; one that no clock can have becomes 1970.
pub(super) fn time_of(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The method by which a server asks another one.
pub(super) const LINK: &str = "/xds_server.Peer/Link";

/// The method by which a server that follows another one is asked by that.
pub(super) const ATTACH: &str = "/xds_server.Peer/Attach";

/// The method by which it reads the history.
pub(super) const READ: &str = "/xds_server.Peer/Read";

/// Bytes of a message: a page, and what one node may add beyond its limit.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the value in a [`Piece`].
pub(super) const PIECE_BYTES: usize = 256 * 1024;

/// How often a server says how it is; whoever hears nothing for several of these takes it for silent.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
