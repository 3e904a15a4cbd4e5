//! What a client is not sent yet, and why; and the steps in which it is sent.

use std::fmt;
use std::time::{Duration, Instant};

use crate::resource_key::ResourceKey;

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

/// What a client is sent before it has to say something, or some time has to pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// What has to happen first, besides that the client takes what it was sent before; nothing for what it is sent at once, or asks
    /// for by itself.
    pub waits_for: Vec<WaitsFor>,
    /// How long it takes until then, from the phase before, if time has to pass.
    pub after: Option<Duration>,
    /// New and changed resources, in the order in which they are sent.
    pub sent: Vec<ResourceKey>,
    /// What the client is told to be gone. What it merely does not ask for any more is not among it.
    pub removed: Vec<ResourceKey>,
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
