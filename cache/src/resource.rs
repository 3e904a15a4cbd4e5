//! A resource: a named, typed, encoded message with a content version.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::references::References;
use crate::resource_type::ResourceType;
use crate::version::{Version, VersionHasher};
use crate::{cluster, host, xdstp};

/// A resource name, as the client asks for it: compared byte by byte (row A61).
pub type Name = Arc<str>;

/// A type and a name; unique within a group and within a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The type.
    pub resource_type: ResourceType,
    /// The name.
    pub name: Name,
}

impl ResourceKey {
    /// Whether a reference to this names no resource but all that are asked for on demand: names that end in `*`, such as that of all
    /// scoped routes, or of the virtual hosts of a route configuration.
    #[must_use]
    pub fn means_all(&self) -> bool {
        self.name.ends_with('*')
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.resource_type, self.name)
    }
}

/// Where a resource came from. No part of its content: equal resources of different origin have equal versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A document in a watched file.
    File {
        /// The file's path as it was found.
        path: Arc<str>,
        /// The line of the document's first key, from 1.
        line: u32,
        /// The column, from 1.
        column: u32,
    },
    /// The admin API.
    Api,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Self::Api => f.write_str("api"),
        }
    }
}

/// What a [`Resource`] is made of.
#[derive(Clone, Debug)]
pub struct ResourceDraft {
    /// The type and name.
    pub key: ResourceKey,
    /// The encoded message, canonical: map fields in key order, also inside nested `Any`s (D4).
    pub value: Bytes,
    /// How long the client may keep the resource without hearing of it again; `None` for ever.
    pub ttl: Option<Duration>,
    /// Other names by which the resource can be subscribed to (row A109). A virtual host that is to be found on demand has
    /// `ROUTE/DOMAIN` here for each of its domains, in lower case (row A118).
    pub aliases: Box<[Name]>,
    /// What the resource names.
    pub references: References,
    /// Where it came from.
    pub origin: Origin,
    /// Whether a wildcard subscription covers it (row A57).
    pub in_wildcard: bool,
    /// Whether the name is a pattern of hosts, under which clients find the resource by other names too: `host`, `host:port`,
    /// `*.suffix` for one or more labels before the suffix, or `*`. A client that asks for `a.suffix:80`, or for an `xdstp:` name
    /// that ends in it, gets the resource under that very name, unless there is one of that name. Counts for Listeners only, and
    /// is part of the version.
    pub host_pattern: bool,
}

impl ResourceDraft {
    /// A Listener under another name, without other names. Nothing else in it depends on its name.
    #[must_use]
    pub fn renamed(self, name: &str) -> Self {
        let value = host::renamed(&self.value, name);
        let key = ResourceKey { name: name.into(), ..self.key };
        Self { key, value, aliases: Box::default(), ..self }
    }
}

/// One resource, immutable. Everything a client could see of it is in [`version`](Self::version).
#[derive(Clone)]
pub struct Resource {
    draft: ResourceDraft,
    version: Version,
    /// Hash of the name and the version: what the resource adds to the version of a table.
    entry: u128,
}

impl PartialEq for Resource {
    /// Equal name, type, content and origin. Equal content is equal [`version`](Self::version)s.
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.key() == other.key() && self.origin() == other.origin()
    }
}

impl Resource {
    /// Computes the version; the draft is taken as it is, but for an `xdstp:` name that is not in canonical form: it gets that
    /// as an alias, so that the resource is found under each of its spellings (row A144).
    #[must_use]
    pub fn new(mut draft: ResourceDraft) -> Self {
        let canonical = xdstp::canonical(&draft.key.name);
        if *canonical != *draft.key.name && !draft.aliases.iter().any(|alias| **alias == *canonical) {
            let canonical = Name::from(&*canonical);
            draft.aliases = draft.aliases.iter().cloned().chain([canonical]).collect();
        }
        let mut hasher = VersionHasher::new();
        hasher.update(draft.key.resource_type.type_url().as_bytes());
        hasher.update(draft.key.name.as_bytes());
        hasher.update(&draft.value);
        if let Some(ttl) = draft.ttl {
            hasher.update(&ttl.as_nanos().to_le_bytes());
        }
        for alias in &draft.aliases {
            hasher.update(alias.as_bytes());
        }
        if !draft.in_wildcard {
            hasher.update(b"not in the wildcard");
        }
        if draft.host_pattern {
            hasher.update(b"a pattern of hosts");
        }
        let version = hasher.finish();
        let mut hasher = VersionHasher::new();
        hasher.update(draft.key.name.as_bytes());
        hasher.update(&version.bits().to_le_bytes());
        Self { entry: hasher.finish_wide(), version, draft }
    }

    /// A resource that only has a name and content, from the admin API; for tests and tools.
    #[must_use]
    pub fn plain(resource_type: ResourceType, name: &str, value: impl Into<Bytes>) -> Self {
        Self::new(ResourceDraft {
            key: ResourceKey { resource_type, name: name.into() },
            value: value.into(),
            ttl: None,
            aliases: Box::default(),
            references: References::default(),
            origin: Origin::Api,
            in_wildcard: true,
            host_pattern: false,
        })
    }

    /// The draft again, to make a changed resource of it.
    #[must_use]
    pub fn to_draft(&self) -> ResourceDraft {
        self.draft.clone()
    }

    /// The type and name.
    #[must_use]
    pub fn key(&self) -> &ResourceKey {
        &self.draft.key
    }

    /// The type.
    #[must_use]
    pub fn resource_type(&self) -> &ResourceType {
        &self.draft.key.resource_type
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.draft.key.name
    }

    /// The content version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Hash of the name and the version.
    pub(crate) fn entry(&self) -> u128 {
        self.entry
    }

    /// Whether both have the same type, name and content, wherever they came from.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.version == other.version && self.key() == other.key()
    }

    /// The encoded message.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.draft.value
    }

    /// The time to live (A.9).
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.draft.ttl
    }

    /// Other names of the resource.
    #[must_use]
    pub fn aliases(&self) -> &[Name] {
        &self.draft.aliases
    }

    /// What the resource names.
    #[must_use]
    pub fn references(&self) -> &References {
        &self.draft.references
    }

    /// Where it came from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.draft.origin
    }

    /// Whether a wildcard subscription covers it.
    #[must_use]
    pub fn in_wildcard(&self) -> bool {
        self.draft.in_wildcard
    }

    /// Whether the name is a pattern of hosts, so that the resource is found by other names too.
    #[must_use]
    pub fn is_host_pattern(&self) -> bool {
        self.draft.host_pattern && self.draft.key.resource_type == ResourceType::Listener
    }

    /// Whether it is a cluster that an Envoy makes ready by itself, in a time that nobody tells: by resolving names or checking
    /// health.
    #[must_use]
    pub fn settles_alone(&self) -> bool {
        self.draft.key.resource_type == ResourceType::Cluster && cluster::settles_alone(&self.draft.value)
    }
}

impl fmt::Debug for Resource {
    /// Type, name and version; never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.version)
    }
}
