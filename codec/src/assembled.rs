//! RouteConfigurations assembled from encoded virtual hosts. A change of one host costs only that host, however many others there are. The
//! bytes are assembled when they are first needed.

use std::collections::HashSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use xds_cache::wire::Fields;
use xds_cache::{
    DiffItem, Encoded, HostHash, HostSum, OrdMap, Reference, References, Resource, ResourceDraft,
    RouteConfigParts,
};

use crate::codec::Codec;
use crate::diagnostic::{Diagnostic, echo_name};
use crate::document::{Position, Tree};
use crate::finding::Finding;
use crate::lint;
use crate::message::{Message, texts};
use crate::path::Path;
use crate::wire::Writer;

/// A virtual host that is read, checked and encoded, for use in RouteConfigurations.
#[derive(Clone, Debug)]
pub struct VirtualHost {
    name: Arc<str>,
    /// As encoded in a RouteConfiguration, with key and length.
    field: Bytes,
    hash: HostHash,
    /// Its references. Paths begin with `virtual_hosts["NAME"]`, because the index changes from version to version.
    references: References,
    /// The hashes of its domains, which no two hosts may share.
    domains: Box<[u64]>,
}

impl PartialEq for VirtualHost {
    /// Compares the bytes.
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for VirtualHost {}

impl VirtualHost {
    /// An estimate of its memory: of its encoded form and its references.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        2 * self.field.len()
    }

    /// The hashes of the texts that must be unique: its name and its domains.
    fn own(&self) -> impl Iterator<Item = u64> {
        // A name may be the domain of another host.
        let name = lint::hash(&format!("name {}", self.name));
        self.domains.iter().copied().chain([name])
    }
}

/// The virtual hosts of a RouteConfiguration, in the order of their keys. A copy shares its contents with the original.
#[derive(Clone)]
pub struct VirtualHosts<K> {
    hosts: OrdMap<K, Arc<VirtualHost>>,
    sum: HostSum,
    /// The sum of their lengths in bytes.
    n_bytes: usize,
    /// The number of hosts with a name or domain, by its hash.
    owners: OrdMap<u64, usize>,
    /// The number of names and domains that several hosts have.
    n_shared: usize,
}

impl<K> Default for VirtualHosts<K> {
    fn default() -> Self {
        Self { hosts: OrdMap::new(), sum: HostSum::default(), n_bytes: 0, owners: OrdMap::new(), n_shared: 0 }
    }
}

impl<K> fmt::Debug for VirtualHosts<K> {
    /// Shows only their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} virtual hosts", self.hosts.len())
    }
}

impl<K: Ord> PartialEq for VirtualHosts<K> {
    fn eq(&self, other: &Self) -> bool {
        self.hosts == other.hosts
    }
}

impl<K: Ord + Clone> FromIterator<(K, Arc<VirtualHost>)> for VirtualHosts<K> {
    fn from_iter<I: IntoIterator<Item = (K, Arc<VirtualHost>)>>(hosts: I) -> Self {
        let mut all = Self::default();
        hosts.into_iter().for_each(|(key, host)| all.insert(key, host));
        all
    }
}

impl<K: Ord + Clone> VirtualHosts<K> {
    /// Adds a host, or replaces the one with this key. Costs the logarithm of their number.
    pub fn insert(&mut self, key: K, host: Arc<VirtualHost>) {
        self.remove(&key);
        self.sum.insert(host.hash, self.neighbours(&key));
        self.n_bytes += host.field.len();
        for own in host.own() {
            let n = self.owners.get(&own).copied().unwrap_or_default() + 1;
            self.owners.insert(own, n);
            self.n_shared += usize::from(n > 1);
        }
        self.hosts.insert(key, host);
    }

    /// Removes the host with this key, if there is one. Costs the same.
    pub fn remove(&mut self, key: &K) {
        let Some(host) = self.hosts.remove(key) else { return };
        self.sum.remove(host.hash, self.neighbours(key));
        self.n_bytes -= host.field.len();
        for own in host.own() {
            match self.owners.get(&own).copied().unwrap_or_default() {
                0 | 1 => drop(self.owners.remove(&own)),
                n => {
                    self.owners.insert(own, n - 1);
                    self.n_shared -= 1;
                }
            }
        }
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The hosts before and after a key.
    fn neighbours(&self, key: &K) -> [Option<HostHash>; 2] {
        let before = self.hosts.range::<_, K>((Bound::Unbounded, Bound::Excluded(key))).next_back();
        let after = self.hosts.range::<_, K>((Bound::Excluded(key), Bound::Unbounded)).next();
        [before, after].map(|found| found.map(|(_, host)| host.hash))
    }

    /// The references that only hosts of `former` have, and those that only these hosts have.
    fn difference<'h>(&'h self, former: &'h Self) -> [Vec<&'h Reference>; 2] {
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for item in former.hosts.diff(&self.hosts) {
            let (before, after) = match item {
                DiffItem::Add(_, after) => (None, Some(after)),
                DiffItem::Remove(_, before) => (Some(before), None),
                DiffItem::Update { old: (_, before), new: (_, after) } => (Some(before), Some(after)),
            };
            gone.extend(before.into_iter().flat_map(|host| &host.references));
            new.extend(after.into_iter().flat_map(|host| &host.references));
        }
        [gone, new]
    }
}

impl Codec {
    /// Reads a virtual host: a `google.protobuf.Any` in ProtoJSON of type `envoy.config.route.v3.VirtualHost`.
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn virtual_host(&self, json: &serde_json::Value) -> Result<VirtualHost, Vec<Diagnostic>> {
        Ok(self.host_of(&self.resource_from_json(json)?.to_draft()))
    }

    /// The virtual host from a resource of its own.
    pub(crate) fn host_of(&self, host: &ResourceDraft) -> VirtualHost {
        let name = Arc::clone(&host.key.name);
        let place = format!("virtual_hosts[{:?}]", &*name);
        let placed = |reference: &Reference| {
            let path = format!("{place}.{}", reference.path).into();
            Reference { to: reference.to.clone(), path }
        };
        let references = (&host.references).into_iter().map(placed).collect();
        let descriptor = self.inner.message_of_url(host.key.resource_type.type_url());
        let message = descriptor.map(|descriptor| Message::new(descriptor, host.value.bytes().clone()));
        let domains = message.iter().flat_map(|message| texts(message, "domains"));
        let domains = domains.map(|domain| lint::hash(&domain.to_ascii_lowercase())).collect();
        let mut field = Writer::default();
        field.bytes_field(VIRTUAL_HOSTS, host.value.bytes());
        let field = field.finish();
        let hash = HostHash::of(&field);
        VirtualHost { name, field, hash, references, domains }
    }

    /// Assembles a RouteConfiguration from `frame`, which has no virtual hosts, and `hosts`. The bytes are those that
    /// [`resource_from_json`](Self::resource_from_json) makes of the whole. `like` is an earlier version from the same frame and other
    /// hosts, with these hosts; the cost is that of the differences. If references differ, there is also a walk over all of them; if not,
    /// they are the same shared value.
    ///
    /// # Errors
    ///
    /// Returns diagnostics if two hosts have the same name or domain.
    pub fn route_configuration<K: Ord + Clone + Send + Sync + 'static>(
        &self,
        frame: &Resource,
        hosts: &VirtualHosts<K>,
        like: Option<(&Resource, &VirtualHosts<K>)>,
    ) -> Result<ResourceDraft, Vec<Diagnostic>> {
        if hosts.is_empty() {
            return Ok(frame.to_draft());
        }
        if hosts.n_shared > 0 {
            let twice = said_twice(hosts.hosts.values());
            if !twice.is_empty() {
                return Err(twice);
            }
        }
        let nothing = VirtualHosts::default();
        let (references, former) =
            like.map_or((frame.references(), &nothing), |(resource, former)| (resource.references(), former));
        let [gone, new] = hosts.difference(former);
        let references = references.changed(gone.into_iter(), new.into_iter());
        let message = frame.value();
        let n_before = n_before(&message);
        let VirtualHosts { hosts, sum, n_bytes, .. } = hosts.clone();
        let value = Encoded::assembled(RouteConfigParts {
            before: message.slice(..n_before),
            after: message.slice(n_before..),
            hosts: sum,
            n_bytes,
            write: Box::new(move |bytes| hosts.values().for_each(|host| bytes.put_slice(&host.field))),
        });
        Ok(ResourceDraft { value, references, ..frame.to_draft() })
    }
}

/// The number of bytes of a RouteConfiguration before its virtual hosts.
fn n_before(frame: &[u8]) -> usize {
    let before = Fields::of(frame).map_while(Result::ok).take_while(|field| field.number < VIRTUAL_HOSTS);
    before.map(|field| field.raw.len()).sum()
}

/// Reports names and domains that two hosts share, by their hashes.
fn said_twice<'h>(hosts: impl Iterator<Item = &'h Arc<VirtualHost>>) -> Vec<Diagnostic> {
    let (mut names, mut domains) = (HashSet::new(), HashSet::new());
    let mut told = Vec::new();
    let mut tell = |code, text: String| {
        let nowhere = Tree::null(Position::default());
        let finding = Finding::error(code, &Path::Root.field("virtual_hosts"), text);
        told.push(finding.locate(&"".into(), nowhere.root()));
    };
    for host in hosts {
        let name = || echo_name(&host.name);
        if !names.insert(&host.name) {
            tell("duplicate-virtual-host", format!("two virtual hosts have the name {}", name()));
        }
        if !host.domains.iter().all(|domain| domains.insert(*domain)) {
            tell(
                "duplicate-domain",
                format!("a domain of the virtual host {} also belongs to another virtual host", name()),
            );
        }
    }
    told
}

/// The number of the field of a RouteConfiguration.
const VIRTUAL_HOSTS: u32 = 2;

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn host(name: &str, domains: &[&str], weights: &[(&str, u32)]) -> Json {
        let clusters: Vec<Json> =
            weights.iter().map(|(name, weight)| json!({"name": name, "weight": weight})).collect();
        let route = json!({"name": "a", "match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": clusters}}});
        json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            "name": name, "domains": domains, "routes": [route],
        })
    }

    fn frame() -> Json {
        json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": "r", "validate_clusters": false, "ignore_port_in_host_matching": true,
        })
    }

    fn codec() -> Codec {
        Codec::new().unwrap()
    }

    fn assembled(codec: &Codec, hosts: &[Json]) -> Result<Resource, Vec<Diagnostic>> {
        let frame = codec.resource_from_json(&frame()).unwrap();
        codec.route_configuration(&frame, &encoded(codec, hosts), None).map(Resource::new)
    }

    fn encoded(codec: &Codec, hosts: &[Json]) -> VirtualHosts<usize> {
        hosts.iter().map(|host| Arc::new(codec.virtual_host(host).unwrap())).enumerate().collect()
    }

    #[test]
    fn what_is_assembled_is_what_is_written_whole() {
        let codec = codec();
        let hosts = [
            host("b", &["b", "b:80"], &[("x", 1), ("y", 3)]),
            host("a", &["*"], &[("x", 7)]),
            host("c", &["é"], &[("z", 1)]),
        ];
        for n in 0..=hosts.len() {
            let hosts = &hosts[..n];
            let mut whole = frame();
            whole["virtual_hosts"] = hosts
                .iter()
                .cloned()
                .map(|mut host| {
                    host.as_object_mut().unwrap().remove("@type");
                    host
                })
                .collect();
            let whole = codec.resource_from_json(&whole).unwrap();
            let assembled = assembled(&codec, hosts).unwrap();
            assert_eq!((assembled.version(), assembled.value()), (whole.version(), whole.value()));
            let targets = |of: &Resource| of.references().targets().cloned().collect::<Vec<_>>();
            assert_eq!(targets(&assembled), targets(&whole));
        }
    }

    #[test]
    fn references_that_did_not_change_are_the_very_same() {
        let codec = codec();
        let frame = codec.resource_from_json(&frame()).unwrap();
        let hosts = |weight, cluster| {
            let hosts = [host("a", &["a"], &[("x", weight)]), host("b", &["b"], &[(cluster, 1)])];
            encoded(&codec, &hosts)
        };
        let like = hosts(1, "y");
        let first = Resource::new(codec.route_configuration(&frame, &like, None).unwrap());
        let next = |now: VirtualHosts<usize>| {
            Resource::new(codec.route_configuration(&frame, &now, Some((&first, &like))).unwrap())
        };
        assert!(next(hosts(2, "y")).references().is(first.references()));
        let other = next(hosts(1, "z"));
        assert!(!other.references().is(first.references()));
        assert!(other.references().targets().any(|to| &*to.name == "z"));
    }

    #[test]
    fn a_version_made_of_another_is_what_is_made_of_nothing() {
        let codec = codec();
        let frame = codec.resource_from_json(&frame()).unwrap();
        let pool: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .flat_map(|name| {
                [("x", 1), ("y", 1), ("y", 2)].map(|way| host(name, &[name], &[way, ("all", 1)]))
            })
            .chain([host("a", &["b"], &[("z", 1)]), host("e", &["a"], &[("z", 1)])])
            .map(|host| Arc::new(codec.virtual_host(&host).unwrap()))
            .collect();
        let chosen = |seed: usize| {
            let chosen = (0..4).map(|i| (i, seed / 15_usize.pow(i) % 15));
            chosen.filter_map(|(i, at)| Some((i, pool.get(at).cloned()?))).collect::<VirtualHosts<u32>>()
        };
        let written = |draft: &ResourceDraft| {
            let value = draft.value.bytes().clone();
            Resource::new(ResourceDraft { value: value.into(), ..draft.clone() }).version()
        };
        let mut n_made = 0;
        for seed in (0..15_usize.pow(4)).step_by(97) {
            let like = chosen(seed);
            let Ok(former) = codec.route_configuration(&frame, &like, None).map(Resource::new) else {
                continue;
            };
            for other in (seed % 31..15_usize.pow(4)).step_by(499) {
                // The one becomes the other host by host.
                let mut now = like.clone();
                for i in 0..4 {
                    match chosen(other).hosts.get(&i) {
                        Some(host) => now.insert(i, Arc::clone(host)),
                        None => now.remove(&i),
                    }
                }
                let texts = |told: Vec<Diagnostic>| told.iter().map(ToString::to_string).collect::<Vec<_>>();
                let whole = codec.route_configuration(&frame, &chosen(other), None).map_err(texts);
                let made = codec.route_configuration(&frame, &now, Some((&former, &like))).map_err(texts);
                n_made += usize::from(made.is_ok());
                let said = |made: Result<ResourceDraft, Vec<String>>| {
                    let version = |draft: &ResourceDraft| Resource::new(draft.clone()).version();
                    made.map(|draft| (version(&draft), written(&draft), draft.value, draft.references))
                };
                if let Ok(made) = &made {
                    assert_eq!(Resource::new(made.clone()).version(), written(made), "{seed} {other}");
                }
                assert_eq!(said(made), said(whole), "{seed} {other}");
            }
        }
        assert!(n_made > 1_000, "{n_made}");
    }

    #[test]
    fn names_and_domains_of_two_hosts_are_told() {
        let codec = codec();
        let a = |name, domains| {
            assembled(&codec, &[host("a", &["x"], &[("c", 1)]), host(name, domains, &[("c", 1)])])
        };
        let told = |told: Result<Resource, Vec<Diagnostic>>| -> Vec<String> {
            told.unwrap_err().iter().map(|one| one.message.clone()).collect()
        };
        assert_eq!(told(a("a", &["y"])), ["two virtual hosts have the name \"a\""]);
        assert_eq!(
            told(a("b", &["X"])),
            ["a domain of the virtual host \"b\" also belongs to another virtual host"]
        );
        assert!(a("b", &["y"]).is_ok());
    }
}
