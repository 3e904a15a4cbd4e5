//! One subscriber: what it wants, what it holds, and what it asks for next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_cache::layer::Resources;
use xds_cache::{Name, Origin, Resource, ResourceKey, ResourceType};
use xds_codec::{Codec, Diagnostic};

use crate::config::Roots;
use crate::message::{Request, Response, Sent, Variant};

/// A client of a server for one node.
#[derive(Clone, Debug)]
pub struct Subscriber {
    variant: Variant,
    /// What the origin of each resource begins with; its type follows.
    path: String,
    held: Resources,
    types: BTreeMap<ResourceType, Known>,
    /// How often a resource is referred to by those that are held; a root counts once.
    uses: HashMap<Arc<ResourceKey>, usize>,
    /// Resources that one less refers to.
    released: Vec<Arc<ResourceKey>>,
    /// Until when something is waited for before what is held counts as whole without it.
    awaited: BTreeMap<ResourceKey, Instant>,
}

/// What is known of a type.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The origin of its resources, once there are any.
    path: Option<Arc<str>>,
    /// True if everything of the type is wanted.
    wants_all: bool,
    /// The names that are wanted otherwise.
    names: BTreeSet<Name>,
    /// The versions of what this server has sent.
    versions: HashMap<Name, String>,
    /// Held from before, and not heard of since a server was new.
    stale: BTreeSet<Name>,
    /// When the first answer of a server counts as whole, if it may come in parts.
    settles_at: Option<Instant>,
    /// The newest version of a resource that is not taken: why.
    refused: BTreeMap<Name, String>,
    /// Resources that end by themselves: how long they are held, and until when.
    ttls: BTreeMap<Name, (Duration, Instant)>,
    stream: Stream,
}

/// The state of a type that ends with a stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The version of the last response that was taken; of SotW, also of the stream before.
    version: String,
    /// True if a part of a response was taken since, so that what is held has no version.
    is_between: bool,
    nonce: String,
    is_asked: bool,
    /// Subscriptions that the server has not been told: true for a new name.
    untold: BTreeMap<Name, bool>,
}

/// What a subscriber still waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// How many resources, and types of which nothing was heard.
    pub n_awaited: usize,
    /// The first of them.
    pub first: Option<String>,
}

/// What is done with a resource of a response.
enum Taken {
    Yes,
    No(Option<Name>, String),
}

impl Subscriber {
    /// A subscriber for `roots` that holds what an earlier one held. Resources have `path`, and their type below it, as their origin.
    #[must_use]
    pub fn new(variant: Variant, roots: &Roots, path: &str, held: Resources) -> Self {
        let mut subscriber = Self {
            variant,
            path: path.to_owned(),
            held: Resources::new(),
            types: BTreeMap::new(),
            uses: HashMap::new(),
            released: Vec::new(),
            awaited: BTreeMap::new(),
        };
        for (resource_type, names) in roots.iter() {
            for name in names {
                let key =
                    Arc::new(ResourceKey { resource_type: resource_type.clone(), name: Arc::clone(name) });
                subscriber.want(&key, None);
            }
        }
        for (_, resource) in &held {
            subscriber.refer(resource, None);
        }
        for (key, _) in &held {
            subscriber.known(&key.resource_type).stale.insert(Arc::clone(&key.name));
        }
        subscriber.released.extend(held.keys().cloned());
        subscriber.held = held;
        subscriber.drop_unwanted();
        subscriber
    }

    /// The variant of the protocol that it speaks.
    #[must_use]
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// What is held: everything of the types that are wanted whole, and what is referred to.
    #[must_use]
    pub fn resources(&self) -> &Resources {
        &self.held
    }

    /// What is waited for before what is held counts as whole; `None` if it is.
    #[must_use]
    pub fn awaited(&self) -> Option<Awaited> {
        let settling = self.types.iter().filter(|(_, known)| known.settles_at.is_some());
        let settling = settling.map(|(resource_type, _)| format!("more {resource_type}s"));
        let mut all = self.awaited.keys().map(ToString::to_string).chain(settling);
        let first = all.next()?;
        Some(Awaited { n_awaited: 1 + all.count(), first: Some(first) })
    }

    /// The resources of which the newest version is not taken, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&ResourceType, &Name, &str)> {
        self.types.iter().flat_map(|(resource_type, known)| {
            known.refused.iter().map(move |(name, why)| (resource_type, name, why.as_str()))
        })
    }

    /// Begins a stream, and returns its first requests. `is_same_server` is true if what was told before holds: then the server is told
    /// what is held, and need not send it again.
    pub fn connected(&mut self, is_same_server: bool, now: Instant) -> Vec<Request> {
        let types: Vec<ResourceType> = self.types.keys().cloned().collect();
        let mut requests = Vec::new();
        for resource_type in types {
            if !is_same_server {
                self.forget_versions(&resource_type);
            }
            let known = self.known(&resource_type);
            let Stream { version, is_between, .. } = std::mem::take(&mut known.stream);
            known.stream.version = if is_between { String::new() } else { version };
            known.settles_at = None;
            // What was not taken is sent again.
            known.refused.clear();
            known.stream.untold = known.names.iter().map(|name| (Arc::clone(name), true)).collect();
            let is_new = known.stream.version.is_empty() && known.versions.is_empty();
            if is_new && (known.wants_all || !known.names.is_empty()) {
                self.await_again(&resource_type, now);
            }
            requests.extend(self.request(&resource_type, None));
        }
        requests
    }

    /// Takes a response, and returns what to request then: at least its ACK or NACK.
    pub fn answered(&mut self, codec: &Codec, response: Response, now: Instant) -> Vec<Request> {
        let resource_type = ResourceType::from_type_url(&response.type_url);
        if !self.types.contains_key(&resource_type) {
            // Nothing of it was asked for.
            return Vec::new();
        }
        self.awaited.remove(&everything_of(&resource_type));
        let mut sent = BTreeSet::new();
        let (mut errors, mut is_readable) = (Vec::new(), true);
        for one in response.resources {
            match self.take(codec, &resource_type, one, &mut sent, now) {
                Taken::Yes => {}
                Taken::No(name, why) => {
                    is_readable &= name.is_some();
                    errors.push(why.clone());
                    let known = self.known(&resource_type);
                    if let Some(name) = name.filter(|name| known.wants_all || known.names.contains(name)) {
                        known.refused.insert(name, why);
                    }
                }
            }
        }
        match self.variant {
            Variant::Delta => {
                for name in &response.removed {
                    self.absent(&resource_type, name);
                }
                self.settle_later(&resource_type, now);
            }
            // A resource whose name cannot be read may be any of those that seem to be absent.
            Variant::Sotw if resource_type.is_complete_in_sotw() && is_readable => {
                self.only(&resource_type, &sent);
            }
            Variant::Sotw => {}
        }
        self.drop_unwanted();
        let known = self.known(&resource_type);
        known.stream.nonce = response.nonce;
        known.stream.is_between = !errors.is_empty();
        if errors.is_empty() {
            known.stream.version = response.version;
        }
        let error = (!errors.is_empty()).then(|| told(&errors));
        let answer = self.request(&resource_type, Some(error));
        answer.into_iter().chain(self.untold()).collect()
    }

    /// Does what is due by the time, and returns what to request then.
    pub fn passed(&mut self, now: Instant) -> Vec<Request> {
        self.awaited.retain(|_, until| *until > now);
        let types: Vec<ResourceType> = self.types.keys().cloned().collect();
        for resource_type in types {
            let known = self.known(&resource_type);
            if known.settles_at.is_some_and(|at| at <= now) {
                known.settles_at = None;
                let over: Vec<Name> = match known.wants_all {
                    true => std::mem::take(&mut known.stale).into_iter().collect(),
                    false => Vec::new(),
                };
                over.iter().for_each(|name| self.absent(&resource_type, name));
            }
            let ttls = self.known(&resource_type).ttls.iter();
            let over: Vec<Name> =
                ttls.filter(|(_, (_, until))| *until <= now).map(|(name, _)| Arc::clone(name)).collect();
            over.iter().for_each(|name| self.absent(&resource_type, name));
        }
        self.drop_unwanted();
        self.untold()
    }

    /// When [`passed`](Self::passed) has something to do, if nothing is heard before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let settling = self.types.values().filter_map(|known| known.settles_at);
        let ttls = self.types.values().flat_map(|known| known.ttls.values().map(|(_, until)| *until));
        self.awaited.values().copied().chain(settling).chain(ttls).min()
    }

    fn known(&mut self, resource_type: &ResourceType) -> &mut Known {
        self.types.entry(resource_type.clone()).or_default()
    }

    /// Another server may have other contents under the same versions.
    fn forget_versions(&mut self, resource_type: &ResourceType) {
        let held: BTreeSet<Name> =
            of_type(&self.held, resource_type).map(|resource| Arc::clone(resource.name())).collect();
        let known = self.known(resource_type);
        known.stream.version = String::new();
        known.versions.clear();
        known.stale = held;
    }

    /// Waits for what a server that is new is asked for.
    fn await_again(&mut self, resource_type: &ResourceType, now: Instant) {
        let known = self.known(resource_type);
        let names: Vec<Name> = match known.wants_all {
            true => vec!["*".into()],
            false => known.names.iter().cloned().collect(),
        };
        for name in names {
            let key = ResourceKey { resource_type: resource_type.clone(), name };
            self.awaited.insert(key, now + PATIENCE);
        }
    }

    /// Takes one resource.
    fn take(
        &mut self,
        codec: &Codec,
        resource_type: &ResourceType,
        sent: Sent,
        names: &mut BTreeSet<Name>,
        now: Instant,
    ) -> Taken {
        let Some((type_url, bytes)) = sent.content else {
            let name: Name = sent.name.unwrap_or_default().into();
            if let Some((ttl, until)) = self.known(resource_type).ttls.get_mut(&name) {
                *until = now + *ttl;
            }
            names.insert(name);
            return Taken::Yes;
        };
        let own = codec.name_in(&type_url, &bytes).or_else(|| sent.name.clone()).map(Name::from);
        if let Some(name) = &own
            && !names.insert(Arc::clone(name))
        {
            return Taken::No(own.clone(), format!("{resource_type} \"{name}\" is in the response twice"));
        }
        if type_url != resource_type.type_url() {
            return Taken::No(own, format!("a {type_url} in a response of {}", resource_type.type_url()));
        }
        let resource = match codec.resource_from_any(&type_url, &bytes) {
            Ok(resource) => resource,
            Err(faults) => {
                let name = own.as_deref().unwrap_or("?");
                return Taken::No(
                    own.clone(),
                    format!("{resource_type} \"{name}\": {}", faults_of(resource_type, &faults)),
                );
            }
        };
        if sent.name.as_deref().is_some_and(|name| !name.is_empty() && *name != **resource.name()) {
            let text =
                format!("{resource_type} \"{}\" is in the response under another name", resource.name());
            return Taken::No(own, text);
        }
        let known = self.known(resource_type);
        if !known.wants_all && !known.names.contains(resource.name()) {
            return Taken::Yes;
        }
        let mut draft = resource.to_draft();
        draft.ttl = sent.ttl;
        let root = &self.path;
        let path = self.types.get_mut(resource_type).map(|known| {
            Arc::clone(known.path.get_or_insert_with(|| format!("{root}/{}", resource_type.slug()).into()))
        });
        draft.origin = Origin::File { path: path.unwrap_or_default(), line: 0, column: 0 };
        self.hold(Arc::new(Resource::new(draft)), sent.version, now);
        Taken::Yes
    }

    /// Holds a resource in place of its earlier version.
    fn hold(&mut self, resource: Arc<Resource>, version: String, now: Instant) {
        let name = Arc::clone(resource.name());
        let known = self.known(resource.resource_type());
        known.stale.remove(&name);
        known.refused.remove(&name);
        known.versions.insert(Arc::clone(&name), version);
        match resource.ttl() {
            Some(ttl) => _ = known.ttls.insert(name, (ttl, now + ttl)),
            None => _ = known.ttls.remove(&name),
        }
        self.awaited.remove(resource.key());
        if self.held.get(resource.key()).is_some_and(|held| *held == resource) {
            return;
        }
        // What both versions refer to must not be dropped in between.
        self.refer(&resource, Some(now));
        if let Some(before) = self.held.insert(resource) {
            self.unrefer(&before);
        }
    }

    /// The server does not have it, or no longer.
    fn absent(&mut self, resource_type: &ResourceType, name: &str) {
        let key = ResourceKey { resource_type: resource_type.clone(), name: name.into() };
        self.awaited.remove(&key);
        let known = self.known(resource_type);
        known.stale.remove(name);
        known.refused.remove(name);
        known.versions.remove(name);
        known.ttls.remove(name);
        if let Some(before) = self.held.remove(&key) {
            self.unrefer(&before);
        }
    }

    /// The server has no others of the type.
    fn only(&mut self, resource_type: &ResourceType, names: &BTreeSet<Name>) {
        let gone: Vec<Name> = of_type(&self.held, resource_type)
            .map(|resource| Arc::clone(resource.name()))
            .filter(|name| !names.contains(name))
            .collect();
        let missing: Vec<Name> =
            self.known(resource_type).names.iter().filter(|name| !names.contains(*name)).cloned().collect();
        self.known(resource_type).refused.retain(|name, _| names.contains(name));
        gone.iter().chain(&missing).for_each(|name| self.absent(resource_type, name));
    }

    /// The first answer of a server may come in several responses.
    fn settle_later(&mut self, resource_type: &ResourceType, now: Instant) {
        let known = self.known(resource_type);
        let is_first = known.stream.nonce.is_empty() && known.stream.version.is_empty();
        if known.wants_all && (is_first || known.settles_at.is_some()) {
            known.settles_at = Some(now + QUIET);
        }
    }

    fn refer(&mut self, resource: &Resource, now: Option<Instant>) {
        let mut last: Option<&ResourceKey> = None;
        for reference in resource.references() {
            // They are sorted, so those to one resource follow each other.
            if last.replace(&reference.to) != Some(&reference.to) {
                self.want(&reference.to, now);
            }
        }
    }

    fn unrefer(&mut self, resource: &Resource) {
        let mut last: Option<&ResourceKey> = None;
        for reference in resource.references() {
            if last.replace(&reference.to) != Some(&reference.to)
                && let Some(count) = self.uses.get_mut(&reference.to)
            {
                *count = count.saturating_sub(1);
                self.released.push(Arc::clone(&reference.to));
            }
        }
    }

    /// Counts a reference. What nothing referred to before is subscribed to, and waited for.
    fn want(&mut self, key: &Arc<ResourceKey>, now: Option<Instant>) {
        let is_everything = &*key.name == "*";
        if !is_relayed(&key.resource_type) || key.means_all() && !is_everything {
            return;
        }
        let count = self.uses.entry(Arc::clone(key)).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        let is_held = self.held.contains_key(key);
        let known = self.types.entry(key.resource_type.clone()).or_default();
        if is_everything {
            known.wants_all = true;
        } else if !known.wants_all {
            known.names.insert(Arc::clone(&key.name));
            known.stream.untold.insert(Arc::clone(&key.name), true);
        }
        if let Some(now) = now.filter(|_| !is_held) {
            self.awaited.insert((**key).clone(), now + PATIENCE);
        }
    }

    /// Drops what nothing refers to any more, and what only that referred to. Of a type that was wanted whole, everything stays.
    fn drop_unwanted(&mut self) {
        while let Some(key) = self.released.pop() {
            if self.uses.get(&key).is_some_and(|count| *count > 0) || &*key.name == "*" {
                continue;
            }
            self.uses.remove(&key);
            self.awaited.remove(&*key);
            let known = self.known(&key.resource_type);
            if known.wants_all {
                continue;
            }
            if known.names.remove(&key.name) && known.stream.untold.remove(&key.name) != Some(true) {
                known.stream.untold.insert(Arc::clone(&key.name), false);
            }
            self.absent(&key.resource_type, &key.name);
        }
    }

    /// The request that tells what a type has to be told; `answer` if it is the answer to a response.
    fn request(&mut self, resource_type: &ResourceType, answer: Option<Option<String>>) -> Option<Request> {
        let variant = self.variant;
        let known = self.known(resource_type);
        let is_first = !known.stream.is_asked;
        let is_wanted = known.wants_all || !known.names.is_empty();
        if is_first && !is_wanted || !is_first && answer.is_none() && known.stream.untold.is_empty() {
            return None;
        }
        known.stream.is_asked = true;
        let untold = std::mem::take(&mut known.stream.untold);
        let resource_type = resource_type.clone();
        let everything = known.wants_all && !resource_type.has_legacy_wildcard();
        let everything = everything.then(|| "*".to_owned());
        let is_answer = answer.is_some();
        let error = answer.flatten();
        let Known { names, versions, stream, .. } = known;
        Some(match variant {
            Variant::Sotw => Request::Sotw {
                resource_type,
                version: stream.version.clone(),
                names: everything.into_iter().chain(names.iter().map(ToString::to_string)).collect(),
                nonce: stream.nonce.clone(),
                error,
            },
            Variant::Delta => {
                let told = |is_new| {
                    let changed = untold.iter().filter(move |(_, new)| **new == is_new);
                    changed.map(|(name, _)| name.to_string())
                };
                let held = versions.iter().map(|(name, version)| (name.to_string(), version.clone()));
                Request::Delta {
                    resource_type,
                    subscribe: everything.into_iter().filter(|_| is_first).chain(told(true)).collect(),
                    unsubscribe: told(false).collect(),
                    held: if is_first { held.collect() } else { Vec::new() },
                    nonce: if is_answer { stream.nonce.clone() } else { String::new() },
                    error,
                }
            }
        })
    }

    fn untold(&mut self) -> Vec<Request> {
        let types: Vec<ResourceType> = self.types.keys().cloned().collect();
        types.iter().filter_map(|resource_type| self.request(resource_type, None)).collect()
    }
}

/// Names of virtual hosts are asked for on demand, and localities have lists of their own: neither is found by references.
fn is_relayed(resource_type: &ResourceType) -> bool {
    match resource_type {
        ResourceType::Runtime
        | ResourceType::Secret
        | ResourceType::Cluster
        | ResourceType::ClusterLoadAssignment
        | ResourceType::ExtensionConfig
        | ResourceType::Listener
        | ResourceType::ScopedRouteConfiguration
        | ResourceType::RouteConfiguration => true,
        ResourceType::LbEndpoint | ResourceType::VirtualHost | ResourceType::Other(_) => false,
    }
}

fn everything_of(resource_type: &ResourceType) -> ResourceKey {
    ResourceKey { resource_type: resource_type.clone(), name: "*".into() }
}

/// The resources of a type.
fn of_type<'r>(
    resources: &'r Resources,
    resource_type: &'r ResourceType,
) -> impl Iterator<Item = &'r Arc<Resource>> {
    let first = ResourceKey { resource_type: resource_type.clone(), name: "".into() };
    let found = resources.range(first..).map(|(_, resource)| resource);
    found.take_while(move |resource| resource.resource_type() == resource_type)
}

/// The faults of a resource without what may be secret.
fn faults_of(resource_type: &ResourceType, faults: &[Diagnostic]) -> String {
    let is_secret = *resource_type == ResourceType::Secret;
    let one = |fault: &Diagnostic| match is_secret || fault.is_sensitive {
        true => format!("{}: {}", fault.path, fault.code),
        false if fault.path.is_empty() => fault.message.clone(),
        false => format!("{}: {}", fault.path, fault.message),
    };
    let mut text = faults.iter().take(MAX_FAULTS).map(one).collect::<Vec<_>>().join("; ");
    if faults.len() > MAX_FAULTS {
        text.push_str(&format!("; and {} more", faults.len() - MAX_FAULTS));
    }
    text
}

/// What a NACK says.
fn told(errors: &[String]) -> String {
    let mut text = errors.iter().take(MAX_FAULTS).cloned().collect::<Vec<_>>().join("\n");
    if errors.len() > MAX_FAULTS {
        text.push_str(&format!("\nand {} more resources", errors.len() - MAX_FAULTS));
    }
    text
}

/// How long a resource is waited for that another one refers to. It may never come: references may lead nowhere.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after a response a server that is new has sent everything: delta has no mark of the end.
const QUIET: Duration = Duration::from_secs(1);
/// Faults of a resource, and resources of a response, that are told.
const MAX_FAULTS: usize = 10;
