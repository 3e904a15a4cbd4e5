//! RouteConfigurations put together of virtual hosts that are encoded already, so that a change of one host costs that host, and a
//! copy of the bytes of the others.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use xds_cache::wire::Fields;
use xds_cache::{Reference, References, Resource, ResourceDraft};

use crate::codec::Codec;
use crate::diagnostic::{Diagnostic, echo_name};
use crate::document::{Position, Tree};
use crate::finding::Finding;
use crate::lint;
use crate::message::{Message, texts};
use crate::path::Path;
use crate::wire::Writer;

/// A virtual host that is read, checked and encoded, to be part of RouteConfigurations.
#[derive(Clone, Debug)]
pub struct VirtualHost {
    name: Arc<str>,
    /// As it stands in a RouteConfiguration, with key and length.
    field: Bytes,
    /// What it names. Paths begin with `virtual_hosts["NAME"]`, because its place differs from version to version.
    references: References,
    /// The hashes of its domains, which no two hosts may share.
    domains: Box<[u64]>,
}

impl Codec {
    /// Reads a virtual host: a `google.protobuf.Any` in ProtoJSON of type `envoy.config.route.v3.VirtualHost`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at least one diagnostic.
    pub fn virtual_host(&self, json: &serde_json::Value) -> Result<VirtualHost, Vec<Diagnostic>> {
        let host = self.resource_from_json(json)?;
        let name = Arc::clone(host.name());
        let place = format!("virtual_hosts[{:?}]", &*name);
        let placed = |reference: &Reference| {
            let path = format!("{place}.{}", reference.path).into();
            Reference { to: reference.to.clone(), path }
        };
        let references = host.references().into_iter().map(placed).collect();
        let descriptor = self.inner.message_of_url(host.resource_type().type_url());
        let message = descriptor.map(|descriptor| Message::new(descriptor, host.value().into_owned()));
        let domains = message.iter().flat_map(|message| texts(message, "domains"));
        let domains = domains.map(|domain| lint::hash(&domain.to_ascii_lowercase())).collect();
        let mut field = Writer::default();
        field.bytes_field(VIRTUAL_HOSTS, &host.value());
        Ok(VirtualHost { name, field: field.finish(), references, domains })
    }

    /// The RouteConfiguration that `frame`, which has no virtual hosts, is with these: the same bytes as
    /// [`resource_from_json`](Self::resource_from_json) makes of the whole. Costs a copy of the bytes and what differs from `like`: the
    /// version that was put together of the same frame and other hosts, with these. References that are equal stay the very same.
    ///
    /// # Errors
    ///
    /// Two hosts have one name or one domain: diagnostics of that.
    pub fn route_configuration(
        &self,
        frame: &Resource,
        hosts: &[Arc<VirtualHost>],
        like: Option<(&Resource, &[Arc<VirtualHost>])>,
    ) -> Result<ResourceDraft, Vec<Diagnostic>> {
        let difference = Difference::of(like.map(|(_, former)| former).unwrap_or_default(), hosts);
        if difference.is_doubtful() {
            let twice = said_twice(hosts);
            if !twice.is_empty() {
                return Err(twice);
            }
        }
        let frame_bytes = frame.value();
        let (before, after) = split(&frame_bytes);
        let n_bytes = before.len() + after.len() + hosts.iter().map(|host| host.field.len()).sum::<usize>();
        let mut value = BytesMut::with_capacity(n_bytes);
        value.put_slice(before);
        hosts.iter().for_each(|host| value.put_slice(&host.field));
        value.put_slice(after);
        let references = match like {
            Some((former, _)) => {
                former.references().changed(difference.gone_references(), difference.new_references())
            }
            None => frame.references().changed(std::iter::empty(), difference.new_references()),
        };
        Ok(ResourceDraft { value: value.freeze(), references, ..frame.to_draft() })
    }
}

/// The hosts of two versions of a RouteConfiguration: those at the beginning and at the end that are the very same, and those
/// between them.
struct Difference<'h> {
    kept: [&'h [Arc<VirtualHost>]; 2],
    gone: &'h [Arc<VirtualHost>],
    new: &'h [Arc<VirtualHost>],
}

impl<'h> Difference<'h> {
    fn of(former: &'h [Arc<VirtualHost>], hosts: &'h [Arc<VirtualHost>]) -> Self {
        let is_same = |(one, other): &(&Arc<VirtualHost>, &Arc<VirtualHost>)| Arc::ptr_eq(one, other);
        let n_before = former.iter().zip(hosts).take_while(is_same).count();
        let ((_, gone), (before, new)) = (former.split_at(n_before), hosts.split_at(n_before));
        let n_after = gone.iter().rev().zip(new.iter().rev()).take_while(is_same).count();
        let (gone, _) = gone.split_at(gone.len() - n_after);
        let (new, after) = new.split_at(new.len() - n_after);
        Self { kept: [before, after], gone, new }
    }

    /// Whether two hosts may have a name or domain in common, if those before had not.
    fn is_doubtful(&self) -> bool {
        let is_called_as_before = self.gone.len() == self.new.len()
            && self
                .gone
                .iter()
                .zip(self.new)
                .all(|(gone, new)| gone.name == new.name && gone.domains == new.domains);
        if is_called_as_before {
            return false;
        }
        let names: HashSet<&str> = self.new.iter().map(|host| &*host.name).collect();
        let domains: HashSet<u64> = self.new.iter().flat_map(|host| host.domains.iter().copied()).collect();
        let is_taken = |host: &Arc<VirtualHost>| {
            names.contains(&*host.name) || host.domains.iter().any(|domain| domains.contains(domain))
        };
        names.len() < self.new.len()
            || domains.len() < self.new.iter().map(|host| host.domains.len()).sum()
            || self.kept.iter().copied().flatten().any(is_taken)
    }

    /// The references that are gone.
    fn gone_references(&self) -> impl Iterator<Item = &'h Reference> {
        self.gone.iter().flat_map(|host| &host.references)
    }

    /// The references that are new.
    fn new_references(&self) -> impl Iterator<Item = &'h Reference> {
        self.new.iter().flat_map(|host| &host.references)
    }
}

/// What a RouteConfiguration has before its virtual hosts, and after them.
fn split(frame: &[u8]) -> (&[u8], &[u8]) {
    let before = Fields::of(frame).map_while(Result::ok).take_while(|field| field.number < VIRTUAL_HOSTS);
    frame.split_at(before.map(|field| field.raw.len()).sum())
}

/// Names and domains that two hosts have, told by their hashes.
fn said_twice(hosts: &[Arc<VirtualHost>]) -> Vec<Diagnostic> {
    let mut names = HashSet::with_capacity(hosts.len());
    let mut domains = HashSet::with_capacity(hosts.len());
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
            tell("duplicate-domain", format!("a domain of the virtual host {} is another one's too", name()));
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
        let hosts: Vec<_> = hosts.iter().map(|host| Arc::new(codec.virtual_host(host).unwrap())).collect();
        codec.route_configuration(&frame, &hosts, None).map(Resource::new)
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
        let hosts = |weight, cluster| -> Vec<Arc<VirtualHost>> {
            let hosts = [host("a", &["a"], &[("x", weight)]), host("b", &["b"], &[(cluster, 1)])];
            hosts.iter().map(|host| Arc::new(codec.virtual_host(host).unwrap())).collect()
        };
        let like = hosts(1, "y");
        let first = Resource::new(codec.route_configuration(&frame, &like, None).unwrap());
        let next = |now: &[Arc<VirtualHost>]| {
            Resource::new(codec.route_configuration(&frame, now, Some((&first, &like))).unwrap())
        };
        assert!(next(&hosts(2, "y")).references().is(first.references()));
        let other = next(&hosts(1, "z"));
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
        let chosen = |seed: usize| -> Vec<_> {
            (0..4).map(|i| seed / 15_usize.pow(i) % 15).filter_map(|at| pool.get(at).cloned()).collect()
        };
        let mut n_made = 0;
        for seed in (0..15_usize.pow(4)).step_by(97) {
            let like = chosen(seed);
            let Ok(former) = codec.route_configuration(&frame, &like, None).map(Resource::new) else {
                continue;
            };
            for other in (seed % 31..15_usize.pow(4)).step_by(499) {
                let now = chosen(other);
                let texts = |told: Vec<Diagnostic>| told.iter().map(ToString::to_string).collect::<Vec<_>>();
                let whole = codec.route_configuration(&frame, &now, None).map_err(texts);
                let made = codec.route_configuration(&frame, &now, Some((&former, &like))).map_err(texts);
                n_made += usize::from(made.is_ok());
                let said = |made: Result<ResourceDraft, Vec<String>>| {
                    made.map(|draft| (draft.value, draft.references))
                };
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
        assert_eq!(told(a("b", &["X"])), ["a domain of the virtual host \"b\" is another one's too"]);
        assert!(a("b", &["y"]).is_ok());
    }
}
