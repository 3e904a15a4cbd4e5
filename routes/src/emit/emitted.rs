//! Resources and parts of resources before they are encoded, and losses: features that gRPC clients do not support.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::Value as Json;
use xds_cache::{Name, Origin, Version};

#[cfg(test)]
use super::shared;
use crate::conditions::GrpcFeature;
use crate::model::DocumentKey;

/// A resource before it is written.
pub(crate) struct Emitted<'p> {
    /// The documents that it is generated from.
    pub(crate) origin: &'p Origin,
    /// The names by which clients find it.
    pub(crate) found_by: FoundBy,
    /// Equal for equal resources.
    pub(crate) fingerprint: Version,
    /// Further names of the same resource. Only Listeners have any, because nothing else in them depends on their name.
    pub(crate) further_names: Vec<Name>,
    /// The virtual hosts of a RouteConfiguration for Envoys, which are encoded one by one.
    #[cfg(test)]
    pub(crate) hosts: Vec<EmittedPart<'p>>,
    write: Box<dyn Fn() -> Json + 'p>,
}

/// A part of a resource before it is written. It stays the same value as long as its inputs do.
pub(crate) struct EmittedPart<'p> {
    /// Equal for equal parts.
    pub(crate) fingerprint: Version,
    write: Box<dyn Fn() -> Json + 'p>,
}

impl<'p> EmittedPart<'p> {
    /// A part whose message is made by `write`, as in [`Emitted::found_by`].
    pub(crate) fn new<I: Hash + 'p>(kind: &'static str, inputs: I, write: fn(&I) -> Json) -> Self {
        let fingerprint = fingerprint(&(kind, &inputs));
        Self { fingerprint, write: Box::new(move || write(&inputs)) }
    }

    /// The message.
    pub(crate) fn message(&self) -> Json {
        (self.write)()
    }
}

fn fingerprint(inputs: &impl Hash) -> Version {
    let mut bytes = Bytes(Vec::with_capacity(256));
    inputs.hash(&mut bytes);
    Version::of(&bytes.0)
}

/// Takes the emitted resources, one by one.
#[cfg(test)]
pub(crate) type Sink<'s, 'p> = dyn FnMut(Emitted<'p>) + 's;

/// All emitted resources.
#[cfg(test)]
pub(crate) fn all<'p>(emit: impl FnOnce(&mut Sink<'_, 'p>)) -> Vec<Emitted<'p>> {
    let mut all = Vec::new();
    emit(&mut |emitted| all.push(emitted));
    all
}

/// The names by which clients find a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FoundBy {
    /// By its own, and by a wildcard subscription.
    Name,
    /// By the authority that a gRPC application dials.
    Authority,
    /// By the authorities that match its name (`*.example.com`, `*`), and not by a wildcard subscription.
    Pattern,
}

impl<'p> Emitted<'p> {
    /// A resource that is found by its name.
    pub(crate) fn new<I: Hash + 'p>(
        kind: &'static str,
        inputs: I,
        write: fn(&I) -> Json,
        origin: &'p Origin,
    ) -> Self {
        Self::found_by(FoundBy::Name, kind, inputs, write, origin)
    }

    /// A resource whose message is made by `write`, with `@type` and snake_case fields.
    ///
    /// `write` sees only `inputs`, so equal inputs give equal messages. `kind` separates the messages of different functions.
    pub(crate) fn found_by<I: Hash + 'p>(
        found_by: FoundBy,
        kind: &'static str,
        inputs: I,
        write: fn(&I) -> Json,
        origin: &'p Origin,
    ) -> Self {
        let fingerprint = fingerprint(&(found_by, kind, &inputs, origin));
        let write = Box::new(move || write(&inputs));
        Self {
            origin,
            found_by,
            fingerprint,
            further_names: Vec::new(),
            #[cfg(test)]
            hosts: Vec::new(),
            write,
        }
    }

    /// The same Listener under more names, without duplicates. Most are names of the same Service, so the message is written once.
    pub(crate) fn also_named(mut self, names: Vec<Name>) -> Self {
        (self.fingerprint, self.further_names) = (fingerprint(&(self.fingerprint, &names)), names);
        self
    }

    /// The same RouteConfiguration with these virtual hosts.
    #[cfg(test)]
    pub(crate) fn with_hosts(mut self, hosts: Vec<EmittedPart<'p>>) -> Self {
        let of_hosts: Vec<Version> = hosts.iter().map(|host| host.fingerprint).collect();
        (self.fingerprint, self.hosts) = (fingerprint(&(self.fingerprint, of_hosts)), hosts);
        self
    }

    /// Returns `true` if `name` is its first name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.message().get("name").and_then(Json::as_str) == Some(name)
    }

    /// The message under the first name, without virtual hosts.
    pub(crate) fn message(&self) -> Json {
        (self.write)()
    }

    /// The message with its virtual hosts.
    #[cfg(test)]
    pub(crate) fn whole(&self) -> Json {
        let hosts = self.hosts.iter().map(|host| {
            let mut host = host.message();
            host.as_object_mut().into_iter().for_each(|host| _ = host.remove("@type"));
            host
        });
        let hosts: Vec<Json> = hosts.collect();
        let message = self.message();
        if hosts.is_empty() { message } else { shared::with(message, "virtual_hosts", hosts) }
    }

    /// The messages under all names.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<Json> {
        let first = self.whole();
        let further = self.further_names.iter().map(|name| shared::with(first.clone(), "name", &**name));
        std::iter::once(first.clone()).chain(further).collect()
    }
}

impl fmt::Debug for Emitted<'_> {
    /// Shows type and name. The rest may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message();
        let text = |field| message.get(field).and_then(Json::as_str).unwrap_or_default();
        write!(f, "{} {}{} from {}", text("@type"), text("name"), text("cluster_name"), self.origin)
    }
}

/// Collects the bytes of values, to hash them together.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The hash is made of the bytes, so this is never called.
    fn finish(&self) -> u64 {
        0
    }
}

/// A part of a rule that gRPC clients do not support.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GrpcLoss {
    /// The route's document.
    pub(crate) document: DocumentKey,
    /// The index of the rule.
    pub(crate) rule: usize,
    /// True if the route is left out for gRPC clients (`Dropped Rule`); false if only a part of it is ignored (`Fall Back`).
    pub(crate) is_dropped: bool,
    /// The part and the reason, without full stop: `gRPC clients ignore the filter RequestMirror`.
    pub(crate) reason: String,
    /// The kind of the part, for counting.
    pub(crate) feature: GrpcFeature,
}
