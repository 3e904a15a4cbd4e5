//! A resource: a named, typed, encoded message with a content version.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::references::References;
use crate::resource_key::{Name, ResourceKey};
use crate::resource_type::ResourceType;
use crate::version::{LazyVersion, Version, VersionHasher};
use crate::wire::bytes_of;
use crate::{awaited, cluster, host, xdstp};

/// Where a resource came from. This is not part of its content: equal resources of different origin have equal versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A document in a watched file.
    File {
        /// The file's path.
        path: Arc<str>,
        /// The line of the document's first key, from 1; 0 if the file has no lines.
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
            // What is relayed has no lines.
            Self::File { path, line: 0, .. } => f.write_str(path),
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Self::Api => f.write_str("api"),
        }
    }
}

/// The parts of a [`Resource`].
#[derive(Clone, Debug)]
pub struct ResourceDraft {
    /// The type and name.
    pub key: Arc<ResourceKey>,
    /// The encoded message, canonical: map fields in key order, also inside nested `Any`s (D4).
    pub value: Encoded,
    /// How long the client may keep the resource without hearing of it again; `None` for ever.
    pub ttl: Option<Duration>,
    /// Other names by which the resource can be subscribed to (row A109). A virtual host that is to be found on demand has
    /// `ROUTE/DOMAIN` here for each of its domains, in lower case (row A118).
    pub aliases: Box<[Name]>,
    /// The resource's references.
    pub references: References,
    /// Where it came from.
    pub origin: Origin,
    /// True if a wildcard subscription covers it (row A57).
    pub in_wildcard: bool,
    /// True if the name is a pattern of hosts, under which clients find the resource by other names too: `host`, `host:port`,
    /// `*.suffix` for one or more labels before the suffix, or `*`. A client that asks for `a.suffix:80`, or for an `xdstp:` name
    /// that ends in it, gets the resource under that very name, unless there is one of that name. Counts for Listeners only, and
    /// is part of the version.
    pub host_pattern: bool,
}

/// One resource, immutable. Its [`version`](Self::version) covers everything that a client can see of it.
///
/// A Listener under several names is several resources that share everything except the name. Each costs about as much memory
/// as its name, and its bytes are made when they are needed.
#[derive(Clone)]
pub struct Resource {
    /// Maps and references share it: there are several for each resource.
    key: Arc<ResourceKey>,
    content: Arc<Content>,
    /// True if the encoded message has another name.
    is_renamed: bool,
    in_wildcard: bool,
    host_pattern: bool,
    version: LazyVersion,
}

/// The parts of a resource that it has under every name.
struct Content {
    /// The encoded message, under one of the names.
    value: Encoded,
    references: References,
    origin: Origin,
    /// Most resources have none of this.
    rare: Option<Box<Rare>>,
    /// Found when it is first asked for: the answer of every client asks.
    settles_alone: OnceLock<bool>,
}

/// Properties that few resources have.
#[derive(Default, PartialEq)]
struct Rare {
    ttl: Option<Duration>,
    aliases: Box<[Name]>,
    left_out: Box<[Name]>,
}

impl Rare {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl PartialEq for Resource {
    /// Equal name, type, content and origin. Equal content is equal [`version`](Self::version)s.
    fn eq(&self, other: &Self) -> bool {
        self.says_the_same(other) && self.origin() == other.origin()
    }
}

impl Resource {
    /// The draft is used unchanged, except for an `xdstp:` name that is not in canonical form: it gets the canonical form as an
    /// alias, so that the resource is found under each of its spellings (row A144).
    #[must_use]
    pub fn new(draft: ResourceDraft) -> Self {
        Self::partial(draft, Box::default())
    }

    /// A resource without the routes to these clusters.
    pub(crate) fn partial(draft: ResourceDraft, left_out: Box<[Name]>) -> Self {
        let ResourceDraft { key, value, ttl, aliases, references, origin, in_wildcard, host_pattern } = draft;
        let aliases = with_canonical(&key.name, aliases);
        let content = Arc::new(Content {
            value,
            references,
            origin,
            rare: Rare { ttl, aliases, left_out }.boxed(),
            settles_alone: OnceLock::new(),
        });
        let version = LazyVersion::default();
        Self { key, content, is_renamed: false, in_wildcard, host_pattern, version }
    }

    /// The same Listener under another name, without aliases. Nothing else in it depends on its name.
    #[must_use]
    pub fn renamed(&self, name: &Name) -> Self {
        let resource_type = self.key.resource_type.clone();
        let key = ResourceKey { resource_type, name: Arc::clone(name) }.into();
        let aliases = with_canonical(name, Box::default());
        let content = if *aliases == *self.aliases() {
            Arc::clone(&self.content)
        } else {
            let Content { value, references, origin, .. } = &*self.content;
            let (value, references, origin) = (value.clone(), references.clone(), origin.clone());
            Arc::new(Content {
                value,
                references,
                origin,
                rare: Rare { ttl: self.ttl(), aliases, left_out: self.left_out().into() }.boxed(),
                settles_alone: OnceLock::new(),
            })
        };
        let Self { in_wildcard, host_pattern, .. } = *self;
        Self { key, content, is_renamed: true, in_wildcard, host_pattern, version: LazyVersion::default() }
    }

    /// The resource for a client that asks for `name` and is served by this pattern of hosts: the same under that name, not
    /// covered by any wildcard. Its version is a function of the pattern and the name.
    pub(crate) fn derived(&self, name: &str) -> Self {
        Self { in_wildcard: false, host_pattern: false, ..self.renamed(&name.into()) }
    }

    /// A resource that has a name and content and nothing else: it refers to nothing, and is said to come from the admin API.
    #[must_use]
    pub fn plain(resource_type: ResourceType, name: &str, value: impl Into<Bytes>) -> Self {
        Self::new(ResourceDraft {
            key: ResourceKey { resource_type, name: name.into() }.into(),
            value: value.into().into(),
            ttl: None,
            aliases: Box::default(),
            references: References::default(),
            origin: Origin::Api,
            in_wildcard: true,
            host_pattern: false,
        })
    }

    /// The draft, to make a changed resource from.
    #[must_use]
    pub fn to_draft(&self) -> ResourceDraft {
        ResourceDraft {
            key: Arc::clone(&self.key),
            value: match self.is_renamed {
                true => self.value().into_owned().into(),
                false => self.content.value.clone(),
            },
            ttl: self.ttl(),
            aliases: self.aliases().into(),
            references: self.references().clone(),
            origin: self.origin().clone(),
            in_wildcard: self.in_wildcard,
            host_pattern: self.host_pattern,
        }
    }

    /// The type and name.
    #[must_use]
    pub fn key(&self) -> &ResourceKey {
        &self.key
    }

    /// The key itself, to be shared.
    #[must_use]
    pub fn shared_key(&self) -> &Arc<ResourceKey> {
        &self.key
    }

    /// The type.
    #[must_use]
    pub fn resource_type(&self) -> &ResourceType {
        &self.key.resource_type
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.key.name
    }

    /// The content version, computed on first use.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version.get_or_compute(|| self.hashed())
    }

    fn hashed(&self) -> Version {
        let mut hasher = VersionHasher::new();
        hasher.update(self.key.resource_type.type_url().as_bytes());
        hasher.update(self.key.name.as_bytes());
        match self.is_renamed {
            true => hasher.update(&self.value()),
            false => self.content.value.hash(&self.key.resource_type, &mut hasher),
        }
        if let Some(ttl) = self.ttl() {
            hasher.update(&ttl.as_nanos().to_le_bytes());
        }
        for alias in self.aliases() {
            hasher.update(alias.as_bytes());
        }
        if !self.in_wildcard {
            hasher.update(b"not in the wildcard");
        }
        if self.host_pattern {
            hasher.update(b"a pattern of hosts");
        }
        hasher.finish()
    }

    /// Hash of the name and the version: what the resource adds to the version of a table.
    pub(crate) fn entry(&self) -> u128 {
        let mut hasher = VersionHasher::new();
        hasher.update(self.key.name.as_bytes());
        hasher.update(&self.version().bits().to_le_bytes());
        hasher.finish_wide()
    }

    /// Returns `true` if both have the same type, name and content, wherever they came from.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.key == other.key && (self.is_made_like(other) || self.version() == other.version())
    }

    /// Returns `true` if equal names are enough for equal versions.
    fn is_made_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content, &other.content)
            && (self.is_renamed, self.in_wildcard, self.host_pattern)
                == (other.is_renamed, other.in_wildcard, other.host_pattern)
    }

    /// The encoded message. For a Listener under one of several names it is made each time; for a RouteConfiguration of
    /// separate virtual hosts it is assembled on first use.
    #[must_use]
    pub fn value(&self) -> Cow<'_, Bytes> {
        match self.is_renamed {
            true => Cow::Owned(host::renamed(self.content.value.bytes(), &self.key.name)),
            false => Cow::Borrowed(self.content.value.bytes()),
        }
    }

    /// How many bytes the encoded message has.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        match self.is_renamed {
            true => host::renamed_len(self.content.value.bytes(), &self.key.name),
            false => self.content.value.n_bytes(),
        }
    }

    /// The time to live.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.content.rare.as_ref().and_then(|rare| rare.ttl)
    }

    /// Other names of the resource.
    #[must_use]
    pub fn aliases(&self) -> &[Name] {
        self.content.rare.as_ref().map(|rare| &*rare.aliases).unwrap_or_default()
    }

    /// The clusters to which it has no routes only because they are not served; see [`View::partial`](crate::View::partial).
    #[must_use]
    pub fn left_out(&self) -> &[Name] {
        self.content.rare.as_ref().map(|rare| &*rare.left_out).unwrap_or_default()
    }

    /// The resource's references.
    #[must_use]
    pub fn references(&self) -> &References {
        &self.content.references
    }

    /// Where it came from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.content.origin
    }

    /// Returns `true` if a wildcard subscription covers it.
    #[must_use]
    pub fn in_wildcard(&self) -> bool {
        self.in_wildcard
    }

    /// Returns `true` if the name is a pattern of hosts, so that the resource is found by other names too.
    #[must_use]
    pub fn is_host_pattern(&self) -> bool {
        self.host_pattern && self.key.resource_type == ResourceType::Listener
    }

    /// Returns `true` if it is a cluster that an Envoy needs an unknown time to make ready: by resolving names or checking
    /// health.
    #[must_use]
    pub fn settles_alone(&self) -> bool {
        let find = || cluster::settles_alone(self.content.value.bytes());
        self.key.resource_type == ResourceType::Cluster && *self.content.settles_alone.get_or_init(find)
    }

    /// The key of a ScopedRouteConfiguration, encoded; `None` for anything else, and without a key. No two of an Envoy's scopes may have
    /// the same.
    #[must_use]
    pub fn scope_key(&self) -> Option<&[u8]> {
        let is_scope = self.key.resource_type == ResourceType::ScopedRouteConfiguration;
        is_scope.then(|| bytes_of(self.content.value.bytes(), SCOPE_KEY)).flatten()
    }

    /// The resources that an Envoy waits for without a limit once it has this one, except the endpoints of a cluster. Only listeners and
    /// clusters have any; their bytes are read each time.
    #[must_use]
    pub fn awaited_without_limit(&self) -> Vec<ResourceKey> {
        let value = || self.content.value.bytes();
        match self.key.resource_type {
            ResourceType::Listener => awaited::of_listener(value()),
            ResourceType::Cluster => awaited::of_cluster(value()),
            ResourceType::Runtime
            | ResourceType::Secret
            | ResourceType::ClusterLoadAssignment
            | ResourceType::LbEndpoint
            | ResourceType::ExtensionConfig
            | ResourceType::ScopedRouteConfiguration
            | ResourceType::RouteConfiguration
            | ResourceType::VirtualHost
            | ResourceType::Other(_) => vec![],
        }
    }

    /// Returns `true` for a listener whose scopes are resources, if an Envoy waits for the routes of these without a limit. Its bytes are read
    /// each time.
    #[must_use]
    pub fn awaits_routes_of_scopes_without_limit(&self) -> bool {
        self.key.resource_type == ResourceType::Listener
            && awaited::are_routes_of_scopes(self.content.value.bytes())
    }

    /// Returns `true` for a cluster whose endpoints an Envoy waits for without a limit. Its bytes are read each time.
    #[must_use]
    pub fn awaits_endpoints_without_limit(&self) -> bool {
        self.key.resource_type == ResourceType::Cluster && awaited::are_endpoints(self.content.value.bytes())
    }
}

/// The aliases of a resource, with the canonical form of its name if that is another one.
fn with_canonical(name: &Name, aliases: Box<[Name]>) -> Box<[Name]> {
    let canonical = xdstp::canonical(name);
    if *canonical == **name || aliases.iter().any(|alias| **alias == *canonical) {
        return aliases;
    }
    aliases.into_iter().chain([Name::from(&*canonical)]).collect()
}

impl fmt::Debug for Resource {
    /// Type, name and version; never the content, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.version())
    }
}

/// `ScopedRouteConfiguration.key`.
const SCOPE_KEY: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_under_another_name_is_the_one_that_was_written_under_it() {
        let written = |name: &str, in_wildcard, host_pattern| {
            let value = host::renamed(&Bytes::from_static(b"\x1a\x01x"), name);
            let draft = Resource::plain(ResourceType::Listener, name, value).to_draft();
            Resource::new(ResourceDraft {
                in_wildcard,
                host_pattern,
                ttl: Some(Duration::from_secs(3)),
                ..draft
            })
        };
        // The last one is not in canonical form, so that it has an alias.
        let names = ["a.io", "b.io:80", "xdstp://x/envoy.config.listener.v3.Listener/a?z=1&b=2"];
        for (in_wildcard, host_pattern) in [(true, true), (true, false), (false, true), (false, false)] {
            let template = written("some.name", in_wildcard, host_pattern);
            for name in names {
                let (renamed, plain) =
                    (template.renamed(&name.into()), written(name, in_wildcard, host_pattern));
                assert_eq!(
                    (&renamed, renamed.version(), renamed.n_bytes()),
                    (&plain, plain.version(), plain.n_bytes())
                );
                assert_eq!(format!("{:?}", renamed.to_draft()), format!("{:?}", plain.to_draft()));
                let derived = template.derived(name);
                assert_eq!(derived.version(), written(name, false, false).version(), "{name}");
                assert_eq!(renamed.renamed(&names[0].into()), written(names[0], in_wildcard, host_pattern));
            }
        }
    }

    #[test]
    fn resources_that_share_everything_are_told_apart_by_their_names_and_flags() {
        let value = host::renamed(&Bytes::from_static(b"x"), "a");
        let draft = Resource::plain(ResourceType::Listener, "a", value).to_draft();
        let template = Resource::new(ResourceDraft { host_pattern: true, ..draft });
        let [one, other] = ["b", "c"].map(|name| template.renamed(&name.into()));
        assert!(one != other && one != template && one == template.renamed(&"b".into()));
        assert_ne!(one, template.derived("b"));
    }
}
