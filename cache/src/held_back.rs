//! What a client is not sent yet, and why.

use std::fmt;
use std::time::Instant;

use crate::resource::ResourceKey;

/// A change of one resource that a client is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The resource.
    pub resource: ResourceKey,
    /// Whether the client is not told that it is gone; else that it is new or different.
    pub is_removal: bool,
    /// What must happen first.
    pub waits_for: WaitsFor,
    /// Since when.
    pub since: Instant,
}

/// What must happen before a client is sent a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// That the client is sent this.
    Sending(ResourceKey),
    /// That the client asks for this.
    Request(ResourceKey),
    /// That the client accepts this.
    Ack(ResourceKey),
    /// That the client has had time to make this ready by itself: to resolve names, to check health.
    Settling(ResourceKey),
    /// That this changes: the client rejected it as it is.
    Change(ResourceKey),
    /// That the client does without this, which refers to what shall be removed.
    Disuse(ResourceKey),
}

impl WaitsFor {
    /// The other resource.
    #[must_use]
    pub fn resource(&self) -> &ResourceKey {
        match self {
            Self::Sending(key)
            | Self::Request(key)
            | Self::Ack(key)
            | Self::Settling(key)
            | Self::Change(key)
            | Self::Disuse(key) => key,
        }
    }

    /// The name in REST.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Sending(_) => "sending",
            Self::Request(_) => "request",
            Self::Ack(_) => "ack",
            Self::Settling(_) => "settling",
            Self::Change(_) => "change",
            Self::Disuse(_) => "disuse",
        }
    }
}

impl fmt::Display for WaitsFor {
    /// `ack of Cluster "c"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.as_str(), self.resource())
    }
}
