//! The messages between servers that share a store. The names of fields do not count on the wire, and unknown fields are left out.

use bytes::Bytes;

/// What the server that asks sends: first who it is, then questions.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FromAsker {
    #[prost(message, optional, tag = "1")]
    pub(super) hello: Option<Hello>,
    #[prost(message, optional, tag = "2")]
    pub(super) question: Option<Body>,
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
}

/// Who speaks, and to whom.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Hello {
    #[prost(string, tag = "1")]
    pub(super) from: String,
    #[prost(string, tag = "2")]
    pub(super) to: String,
}

/// How a server is.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(uint64, tag = "1")]
    pub(super) revision: u64,
    #[prost(uint64, tag = "2")]
    pub(super) streams: u64,
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

/// The method that serves the link.
pub(super) const PATH: &str = "/xds_server.Peer/Link";

/// Bytes of a message: a page, and what one node may add beyond its limit.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
