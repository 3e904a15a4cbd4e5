//! Changes that a client is not sent yet, the reason for each, and the steps in which they are sent.

use std::fmt;
use std::time::{Duration, Instant};

use crate::resource_key::ResourceKey;

/// A change of one resource that was not sent to a client yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The resource.
    pub resource: ResourceKey,
    /// True if the change is a removal; otherwise the resource is new or changed.
    pub is_removal: bool,
    /// The event that must come first.
    pub waits_for: WaitsFor,
    /// Since when.
    pub since: Instant,
}

/// An event that must happen before a client is sent a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The client is sent this.
    Sending(ResourceKey),
    /// The client asks for this.
    Request(ResourceKey),
    /// The client accepts this.
    Ack(ResourceKey),
    /// The client has had time to make this ready: to resolve names, to check health.
    Settling(ResourceKey),
    /// This changes: the client rejected it as it is.
    Change(ResourceKey),
    /// The client no longer uses this, which refers to the resource to be removed.
    Disuse(ResourceKey),
}

/// Changes that a client is sent in one step, before it must answer or time must pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// The events that come first, in addition to the client's ACK of the previous step. Empty for changes that are sent at
    /// once, or that the client requests itself.
    pub waits_for: Vec<WaitsFor>,
    /// How long it takes until then, from the phase before, if time has to pass.
    pub after: Option<Duration>,
    /// New and changed resources, in the order in which they are sent.
    pub sent: Vec<ResourceKey>,
    /// The resources that are removed from the client. Those that it merely no longer requests are not included.
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
