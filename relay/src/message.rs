//! Requests and responses of both variants of the protocol, as far as a client needs them.

use std::time::Duration;

use bytes::Bytes;
use xds_cache::ResourceType;

/// The variant of the protocol on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Incremental xDS.
    #[default]
    Delta,
    /// State of the world.
    Sotw,
}

/// A request about one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Of a SotW stream.
    Sotw {
        /// The type.
        resource_type: ResourceType,
        /// The version of the last response that was taken; empty for none.
        version: String,
        /// All names that are subscribed to.
        names: Vec<String>,
        /// The nonce of the response that this answers; empty for none.
        nonce: String,
        /// Why that response is rejected.
        error: Option<String>,
    },
    /// Of a delta stream.
    Delta {
        /// The type.
        resource_type: ResourceType,
        /// The names that are new.
        subscribe: Vec<String>,
        /// The names that are over.
        unsubscribe: Vec<String>,
        /// On the first request of a type: what is held, by name and version.
        held: Vec<(String, String)>,
        /// The nonce of the response that this answers; empty for none.
        nonce: String,
        /// Why that response is rejected.
        error: Option<String>,
    },
}

/// A response, of either variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The type of its resources.
    pub type_url: String,
    /// Its version; of a delta response for people only.
    pub version: String,
    /// Its nonce.
    pub nonce: String,
    /// The resources.
    pub resources: Vec<Sent>,
    /// The names of a delta response that do not exist, or no longer.
    pub removed: Vec<String>,
}

/// A resource of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Its name, if the response says it beside the resource.
    pub name: Option<String>,
    /// Its version in a delta response.
    pub version: String,
    /// How long it may be held without hearing of it again.
    pub ttl: Option<Duration>,
    /// The type URL and the encoded message; `None` if only the TTL begins anew.
    pub content: Option<(String, Bytes)>,
}
