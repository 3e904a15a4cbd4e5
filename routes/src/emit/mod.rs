//! Plans as resources, for each profile what its clients take (D3).

mod envoy;
mod grpc;
mod shared;

use std::fmt;

use serde_json::Value as Json;
use xds_cache::Origin;

use crate::model::DocumentKey;

pub(crate) use envoy::envoy;
pub(crate) use grpc::grpc;

/// A resource before it is encoded. Its `Debug` shows no content.
#[derive(Clone, PartialEq)]
pub(crate) struct Emitted {
    /// The message, with `@type` and snake_case fields.
    pub(crate) message: Json,
    /// Where it is from.
    pub(crate) origin: Origin,
    /// Whether its name is a pattern of hosts (`*.example.com`, `*`), to be found by the names that it matches and not by a
    /// wildcard subscription.
    pub(crate) is_pattern: bool,
}

impl fmt::Debug for Emitted {
    /// Type and name; never the rest, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |field| self.message.get(field).and_then(Json::as_str).unwrap_or_default();
        write!(f, "{} {}{} from {}", text("@type"), text("name"), text("cluster_name"), self.origin)
    }
}

/// What gRPC clients cannot have of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrpcLoss {
    /// The route's document.
    pub(crate) document: DocumentKey,
    /// The index of the rule.
    pub(crate) rule: usize,
    /// Whether the route is left out for gRPC clients (`Dropped Rule`), or only a part of it is ignored (`Fall Back`).
    pub(crate) is_dropped: bool,
    /// What they cannot have and why, without full stop: `gRPC clients ignore the filter RequestMirror`.
    pub(crate) reason: String,
}
