//! The identity of a client, as far as the server decides by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The kind of client for which a view is compiled (D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Envoy, and every client that is not known to be something else.
    Envoy,
    /// A proxyless gRPC client.
    Grpc,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 2] = [Self::Envoy, Self::Grpc];

    /// The profile's name in files, REST and logs: `envoy` or `grpc`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Grpc => "grpc",
        }
    }

    /// The profile that a user agent name tells: gRPC libraries begin with `gRPC` or `tonic`.
    #[must_use]
    pub fn of_user_agent(user_agent_name: &str) -> Self {
        if user_agent_name.starts_with("gRPC") || user_agent_name.starts_with("tonic") {
            Self::Grpc
        } else {
            Self::Envoy
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A string, number or bool of the node's metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A string.
    String(String),
    /// A number; metadata numbers are doubles in the protocol.
    Number(f64),
    /// A bool.
    Bool(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{truth}"),
        }
    }
}

/// Where a client runs; empty parts are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

/// The identity that the client gave in the first request of its stream (row A14). All of it is claimed, nothing is proved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The node's id; never empty on a stream that is served.
    pub id: String,
    /// The cluster that the node belongs to; may be empty.
    pub cluster: String,
    /// The scalars of the metadata by dotted path: `{"a": {"b": 1}}` is `a.b` = 1. Lists are left out.
    pub metadata: BTreeMap<String, Scalar>,
    /// Where it runs.
    pub locality: Locality,
    /// Such as `envoy`, `gRPC C-core`, `gRPC Go`.
    pub user_agent_name: String,
    /// Such as `1.40.0`; may be empty.
    pub user_agent_version: String,
    /// The features that the client claims to support.
    pub client_features: BTreeSet<String>,
}

impl Node {
    /// A node of which only the id is known.
    #[must_use]
    pub fn with_id(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    /// Returns `true` if the client can read resources wrapped in `Resource` in SotW (row A136: both spellings, with either
    /// prefix).
    #[must_use]
    pub fn takes_wrapped_resources(&self) -> bool {
        [
            "xds.config.resource-in-sotw",
            "xds.config.supports-resource-in-sotw",
            "envoy.config.resource-in-sotw",
        ]
        .iter()
        .any(|feature| self.client_features.contains(*feature))
    }

    /// Returns `true` if the client understands a time to live and its heartbeats (rows A135, A137, A187).
    #[must_use]
    pub fn takes_ttl(&self) -> bool {
        ["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"]
            .iter()
            .any(|feature| self.client_features.contains(*feature))
    }
}
