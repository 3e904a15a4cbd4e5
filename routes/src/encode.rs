//! From what was emitted to resources, each distinct content encoded once.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use xds_cache::layer::Resources;
use xds_cache::{Resource, ResourceDraft, Version};
use xds_codec::{Codec, Diagnostic, VirtualHost};

use crate::emit::{Emitted, FoundBy, Part, Sink};

/// What was encoded, by what it was made of, so that the next translation finds it without writing it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded {
    /// Resources by the fingerprint of what they were made of. Each has at least one; several are the same under several names.
    resources: HashMap<Version, Arc<[Arc<Resource>]>>,
    /// Virtual hosts by the fingerprint of what they were made of.
    hosts: HashMap<Version, Arc<VirtualHost>>,
    /// What a RouteConfiguration is put together of, by its version.
    hosts_of: HashMap<Version, Arc<[Arc<VirtualHost>]>>,
}

/// Makes resources, with those of an earlier translation at hand.
pub(crate) struct Encoder<'a> {
    codec: &'a Codec,
    previous: Option<&'a Encoded>,
    goes_on: &'a dyn Fn() -> bool,
    encoded: Encoded,
    /// What the codec refuses. Documents are checked so that this does not happen; if it does, the text says of what.
    pub(crate) refused: Vec<Refused>,
}

/// A resource that cannot be encoded.
pub(crate) struct Refused {
    /// Its type URL and name, as far as it has them.
    pub(crate) what: String,
    /// What the codec says; at least one.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(
        codec: &'a Codec,
        previous: Option<&'a Encoded>,
        goes_on: &'a dyn Fn() -> bool,
    ) -> Self {
        let encoded = Encoded {
            resources: HashMap::with_capacity(previous.map_or(0, |previous| previous.resources.len())),
            hosts: HashMap::with_capacity(previous.map_or(0, |previous| previous.hosts.len())),
            hosts_of: HashMap::new(),
        };
        Self { codec, previous, goes_on, encoded, refused: Vec::new() }
    }

    /// The resources of what `emit` emits. A resource that is refused is left out, or stays as `last` has it; one that is as
    /// `last` has it is that very value.
    pub(crate) fn resources<'p>(
        &mut self,
        last: Option<&Resources>,
        emit: impl FnOnce(&mut Sink<'_, 'p>),
    ) -> Resources {
        let mut resources = Vec::with_capacity(last.map_or(0, Resources::len));
        emit(&mut |emitted| self.take(&emitted, last, &mut resources));
        resources.into_iter().map(|resource| (resource.key().clone(), resource)).collect()
    }

    pub(crate) fn finish(self) -> Encoded {
        self.encoded
    }

    /// Adds what was emitted to `resources`.
    fn take(&mut self, emitted: &Emitted<'_>, last: Option<&Resources>, resources: &mut Vec<Arc<Resource>>) {
        if !(self.goes_on)() {
            return;
        }
        let fingerprint = emitted.fingerprint;
        let known = self.encoded.resources.get(&fingerprint);
        let known = known.or_else(|| self.previous.and_then(|previous| previous.resources.get(&fingerprint)));
        let made = match known.map(Arc::clone) {
            Some(known) => {
                self.keep_hosts(emitted, &known);
                known
            }
            None => match self.encode(emitted, last) {
                Ok(made) => made,
                // Not kept under the fingerprint, or the next translation would not know that it is refused.
                Err(kept) => return resources.extend(kept),
            },
        };
        resources.extend(made.iter().cloned());
        self.encoded.resources.insert(fingerprint, made);
    }

    /// Encodes a resource under each of its names; if it is refused, what is served in its place.
    fn encode(
        &mut self,
        emitted: &Emitted<'_>,
        last: Option<&Resources>,
    ) -> Result<Arc<[Arc<Resource>]>, Vec<Arc<Resource>>> {
        let message = emitted.message();
        let resource = self.codec.resource_from_json(&message);
        let resource = match resource.and_then(|resource| self.assembled(resource, emitted, last)) {
            Ok(resource) => resource,
            Err(diagnostics) => {
                let text = |key: &str| message.get(key).and_then(|value| value.as_str()).unwrap_or_default();
                let name = ["name", "cluster_name"].into_iter().map(text).find(|name| !name.is_empty());
                let (type_url, name) = (text("@type"), name.unwrap_or_default());
                self.refused.push(Refused { what: format!("{type_url} {name:?}"), diagnostics });
                let is_it = |resource: &&Arc<Resource>| {
                    let is_named = |name: &str| **resource.name() == *name;
                    resource.resource_type().type_url() == type_url
                        && (is_named(name) || emitted.further_names.iter().any(|name| is_named(name)))
                };
                return Err(last.iter().flat_map(|last| last.values()).filter(is_it).cloned().collect());
            }
        };
        let mut draft = resource.to_draft();
        draft.origin = emitted.origin.clone();
        draft.host_pattern = emitted.found_by != FoundBy::Name;
        draft.in_wildcard = emitted.found_by != FoundBy::Pattern;
        let further: Vec<ResourceDraft> =
            emitted.further_names.iter().map(|name| draft.clone().renamed(name)).collect();
        let kept = |resource: Resource| {
            let before = last.and_then(|last| last.get(resource.key()));
            let is_same = |before: &&Arc<Resource>| {
                before.version() == resource.version() && before.origin() == resource.origin()
            };
            before.filter(is_same).cloned().unwrap_or_else(|| Arc::new(resource))
        };
        Ok(iter::once(draft).chain(further).map(|draft| kept(Resource::new(draft))).collect())
    }
}

impl Encoder<'_> {
    /// A RouteConfiguration with its virtual hosts; any other resource as it is.
    fn assembled(
        &mut self,
        frame: Resource,
        emitted: &Emitted<'_>,
        last: Option<&Resources>,
    ) -> Result<Resource, Vec<Diagnostic>> {
        if emitted.hosts.is_empty() {
            return Ok(frame);
        }
        let hosts = emitted.hosts.iter().map(|host| self.host(host)).collect::<Result<Arc<[_]>, _>>()?;
        let last = last.and_then(|last| last.get(frame.key()));
        let like = last.and_then(|last| Some((&**last, &**self.previous?.hosts_of.get(&last.version())?)));
        let resource = self.codec.route_configuration(&frame, &hosts, like)?;
        self.encoded.hosts_of.insert(resource.version(), hosts);
        Ok(resource)
    }

    fn host(&mut self, host: &Part<'_>) -> Result<Arc<VirtualHost>, Vec<Diagnostic>> {
        let known = self.encoded.hosts.get(&host.fingerprint);
        let known =
            known.or_else(|| self.previous.and_then(|previous| previous.hosts.get(&host.fingerprint)));
        let made = match known {
            Some(known) => Arc::clone(known),
            None => Arc::new(self.codec.virtual_host(&host.message())?),
        };
        self.encoded.hosts.insert(host.fingerprint, Arc::clone(&made));
        Ok(made)
    }

    /// A RouteConfiguration is as before: so are its virtual hosts.
    fn keep_hosts(&mut self, emitted: &Emitted<'_>, made: &[Arc<Resource>]) {
        let Some(previous) = self.previous.filter(|_| !emitted.hosts.is_empty()) else { return };
        for host in &emitted.hosts {
            if let Some(known) = previous.hosts.get(&host.fingerprint) {
                self.encoded.hosts.insert(host.fingerprint, Arc::clone(known));
            }
        }
        for resource in made {
            if let Some(hosts) = previous.hosts_of.get(&resource.version()) {
                self.encoded.hosts_of.insert(resource.version(), Arc::clone(hosts));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use xds_cache::Origin;

    use super::*;

    fn cluster(timeout: &&str) -> Json {
        json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "connect_timeout": timeout})
    }

    fn encode(
        codec: &Codec,
        timeout: &str,
        previous: Option<(&Encoded, &Resources)>,
    ) -> (Resources, Encoded, usize) {
        let mut encoder = Encoder::new(codec, previous.map(|(encoded, _)| encoded), &|| true);
        let emitted = Emitted::new("cluster", timeout, cluster, &Origin::Api);
        let resources = encoder.resources(previous.map(|(_, last)| last), |emit| emit(emitted));
        let n_refused = encoder.refused.len();
        (resources, encoder.finish(), n_refused)
    }

    #[test]
    fn what_is_refused_stays_as_it_was_and_is_told_each_time() {
        let codec = Codec::new().unwrap();
        let (good, encoded, _) = encode(&codec, "1s", None);
        let (bad, encoded, n_refused) = encode(&codec, "soon", Some((&encoded, &good)));
        assert_eq!((bad == good, n_refused), (true, 1));
        let (bad, _, n_refused) = encode(&codec, "soon", Some((&encoded, &bad)));
        assert_eq!((bad == good, n_refused), (true, 1));
        assert_eq!(encode(&codec, "soon", None).0.len(), 0);
    }

    #[test]
    fn what_is_made_of_something_else_and_says_the_same_is_the_very_same() {
        let codec = Codec::new().unwrap();
        let (one, encoded, _) = encode(&codec, "1s", None);
        let (other, _, _) = encode(&codec, "1.000s", Some((&encoded, &one)));
        assert!(one.values().zip(other.values()).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    fn listener(name: &&'static str) -> Json {
        let any = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        let ads = json!({"ads": {}, "resource_api_version": "V3"});
        let rds = json!({"route_config_name": "routes", "config_source": ads});
        json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": name,
            "api_listener": {"api_listener": {"@type": any, "stat_prefix": "routes", "rds": rds}},
        })
    }

    #[test]
    fn a_listener_under_further_names_is_what_is_written_under_each() {
        let codec = Codec::new().unwrap();
        let origin = Origin::File { path: "f".into(), line: 1, column: 1 };
        let emitted = |name| Emitted::found_by(FoundBy::Authority, "listener", name, listener, &origin);
        let names = ["a.example", "a.example:80", "b", &*"long".repeat(50).leak()];
        let mut encoder = Encoder::new(&codec, None, &|| true);
        let each = encoder.resources(None, |emit| names.into_iter().for_each(|name| emit(emitted(name))));
        let further = names.iter().skip(1).map(|name| (*name).to_owned()).collect();
        let once = encoder.resources(None, |emit| emit(emitted("a.example").also_named(further)));
        assert_eq!(encoder.refused.len(), 0);
        let shown = |resources: &Resources| -> Vec<_> {
            resources
                .values()
                .map(|resource| format!("{} {:?}", resource.version(), resource.to_draft()))
                .collect()
        };
        assert_eq!((once.len(), shown(&once)), (names.len(), shown(&each)));
    }

    #[test]
    fn when_a_name_comes_the_others_are_the_very_same() {
        let codec = Codec::new().unwrap();
        let emitted = |further: &[&str]| {
            let listener = Emitted::new("listener", "a", listener, &Origin::Api);
            listener.also_named(further.iter().map(|name| (*name).to_owned()).collect())
        };
        let mut encoder = Encoder::new(&codec, None, &|| true);
        let before = encoder.resources(None, |emit| emit(emitted(&["b"])));
        let encoded = encoder.finish();
        let mut encoder = Encoder::new(&codec, Some(&encoded), &|| true);
        let after = encoder.resources(Some(&before), |emit| emit(emitted(&["aa", "b"])));
        let is_kept = |(key, resource)| before.get(key).is_some_and(|old| Arc::ptr_eq(old, resource));
        assert_eq!(after.iter().map(is_kept).collect::<Vec<_>>(), [true, false, true]);
    }

    fn frame(name: &&'static str) -> Json {
        json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": name})
    }

    fn host(&(name, cluster): &(&'static str, &'static str)) -> Json {
        let route = json!({"match": {"prefix": "/"}, "route": {"cluster": cluster}});
        json!({
            "@type": "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            "name": name, "domains": [name], "routes": [route],
        })
    }

    fn routes<'p>(hosts: &[(&'static str, &'static str)]) -> Emitted<'p> {
        let parts = hosts.iter().map(|inputs| Part::new("host", *inputs, host)).collect();
        Emitted::new("routes", "r", frame, &Origin::Api).with_hosts(parts)
    }

    #[test]
    fn of_a_route_configuration_only_the_hosts_that_changed_are_encoded_again() {
        let codec = Codec::new().unwrap();
        let mut encoder = Encoder::new(&codec, None, &|| true);
        let first = encoder.resources(None, |emit| emit(routes(&[("a", "x"), ("b", "y")])));
        let first_encoded = encoder.finish();
        let mut encoder = Encoder::new(&codec, Some(&first_encoded), &|| true);
        let same = encoder.resources(Some(&first), |emit| emit(routes(&[("a", "x"), ("b", "y")])));
        assert!(first.values().zip(same.values()).all(|(one, other)| Arc::ptr_eq(one, other)));
        let kept = encoder.finish();
        let mut encoder = Encoder::new(&codec, Some(&kept), &|| true);
        let next = encoder.resources(Some(&same), |emit| emit(routes(&[("a", "z"), ("b", "y")])));
        assert_eq!(next.values().next(), whole(&codec, &[("a", "z"), ("b", "y")]).as_ref());
        let encoded = encoder.finish();
        let is_kept = |(fingerprint, host): (&Version, &Arc<VirtualHost>)| {
            first_encoded.hosts.get(fingerprint).is_some_and(|before| Arc::ptr_eq(before, host))
        };
        assert_eq!(encoded.hosts.iter().filter(|host| is_kept(*host)).count(), 1);
        assert_eq!((encoded.hosts.len(), encoded.hosts_of.len()), (2, 1), "nothing is kept for ever");
    }

    fn whole(codec: &Codec, hosts: &[(&'static str, &'static str)]) -> Option<Arc<Resource>> {
        let message = routes(hosts).messages().pop()?;
        codec.resource_from_json(&message).ok().map(Arc::new)
    }

    #[test]
    fn what_is_refused_stays_under_all_of_its_names() {
        let codec = Codec::new().unwrap();
        let bad = |name: &&str| json!({"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": name, "no": 1});
        let mut encoder = Encoder::new(&codec, None, &|| true);
        let further = || vec!["b".to_owned()];
        let good = Emitted::new("listener", "a", listener, &Origin::Api).also_named(further());
        let good = encoder.resources(None, |emit| emit(good));
        let bad = Emitted::new("bad", "a", bad, &Origin::Api).also_named(further());
        let kept = encoder.resources(Some(&good), |emit| emit(bad));
        assert_eq!((kept.len(), kept == good, encoder.refused.len()), (2, true, 1));
    }
}
