//! Responses: descriptions, which the gRPC layer turns into bytes that streams share (D8).

use std::sync::Arc;

use xds_cache::{Name, Resource, ResourceType, TypeTable};

/// One response of one stream.
#[derive(Clone, Debug)]
pub struct Response {
    /// Unique on the stream; [`Nonce::text`](crate::Nonce::text) is its wire form.
    pub nonce: u64,
    /// Everything else. Equal contents make equal bytes, whatever the stream.
    pub contents: Contents,
}

/// Everything of a response but its nonce.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The type of all resources in it; set also if there are none (row A10).
    pub resource_type: ResourceType,
    /// `version_info`, or `system_version_info` in delta.
    pub version_info: Arc<str>,
    /// The message and how resources stand in it.
    pub form: Form,
    /// The resources.
    pub entries: Entries,
    /// `removed_resources`; always empty in SotW.
    pub removed: Vec<Name>,
    /// `resource_errors`: names that are subscribed to and do not exist (code `NOT_FOUND`); always empty in delta.
    pub not_found: Vec<Name>,
}

impl Contents {
    /// The names that the response reports as not there, in either form.
    pub(crate) fn told_gone(&self) -> Vec<Name> {
        let entries = match &self.entries {
            Entries::Table(_) => &[][..],
            Entries::Listed(entries) => entries,
        };
        let unpopulated = entries.iter().filter_map(|entry| match entry {
            Entry::Unpopulated(name) => Some(name),
            Entry::Full(_) | Entry::Heartbeat(_) => None,
        });
        self.removed.iter().chain(unpopulated).cloned().collect()
    }
}

/// The message that is sent, and how a resource stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A `DiscoveryResponse` of plain `Any`s.
    Sotw,
    /// A `DiscoveryResponse` of `Any`s that hold `envoy.service.discovery.v3.Resource` (row A136), with time to live.
    SotwWrapped,
    /// A `DeltaDiscoveryResponse`.
    Delta {
        /// The client understands a time to live (row A135).
        with_ttl: bool,
    },
}

/// The resources of a response; no name is twice among them (R11).
#[derive(Clone, Debug)]
pub enum Entries {
    /// The whole table, in its order.
    Table(Arc<TypeTable>),
    /// These, sorted by name.
    Listed(Vec<Entry>),
}

/// One resource of a response.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Name, version and body. A virtual host that was found by a domain has the hosts that were asked for among its aliases (row
    /// A118).
    Full(Arc<Resource>),
    /// Name, version and time to live, no body: the client shall keep what it has (row A138).
    Heartbeat(Arc<Resource>),
    /// A name that stands for nothing: an on-demand virtual host that does not exist (row A117), or endpoints or a runtime layer that do
    /// not exist and that a starting Envoy may wait for without a limit.
    Unpopulated(Name),
}

impl Entry {
    /// The resource's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Full(resource) | Self::Heartbeat(resource) => resource.name(),
            Self::Unpopulated(name) => name,
        }
    }
}

impl Entries {
    /// How many resources there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Table(table) => table.len(),
            Self::Listed(entries) => entries.len(),
        }
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names, in the order in which they are sent.
    pub fn names(&self) -> impl Iterator<Item = &Name> + Clone {
        let (table, listed) = match self {
            Self::Table(table) => (Some(table.resources()), &[][..]),
            Self::Listed(entries) => (None, entries.as_slice()),
        };
        table.into_iter().flatten().map(|resource| resource.name()).chain(listed.iter().map(Entry::name))
    }
}
