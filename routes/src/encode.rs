//! Encodes emitted messages as resources. Equal contents are encoded once.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;

use xds_cache::{Resource, ResourceDraft, Version};
use xds_codec::{Codec, Diagnostic, Keys, Stencils, VirtualHost, VirtualHosts};

use crate::emit::{Emitted, EmittedPart, FoundBy};

/// Makes resources. Equal resources of several node groups are made once.
pub(crate) struct Encoder<'a> {
    codec: &'a Codec,
    stencils: Stencils,
    /// By the fingerprint of their inputs. Each entry has at least one resource. Several are the same content under different names.
    resources: HashMap<Version, Arc<[Arc<Resource>]>>,
    hosts: HashMap<Version, Arc<VirtualHost>>,
}

/// A generated resource that the codec refuses. Documents are checked, so this is a bug.
pub(crate) struct RefusedResource {
    /// Its type URL and name, as far as it has them.
    pub(crate) what: String,
    /// The codec's diagnostics; at least one.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The resources that are served instead: the previous ones.
    pub(crate) kept: Vec<Arc<Resource>>,
}

/// The previous RouteConfiguration, and the parts from which it was assembled.
pub(crate) type LastAssembled<'l, K> = (&'l Resource, &'l VirtualHosts<K>);

impl<'a> Encoder<'a> {
    pub(crate) fn new(codec: &'a Codec) -> Self {
        Self::with_keys(codec, Arc::default())
    }

    /// An encoder that shares keys with another.
    pub(crate) fn with_keys(codec: &'a Codec, keys: Arc<Keys>) -> Self {
        let stencils = Stencils::with_keys(codec, keys);
        Self { codec, stencils, resources: HashMap::new(), hosts: HashMap::new() }
    }

    /// The keys of the resources that it has made.
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        self.stencils.keys()
    }

    /// Encodes a resource under each of its names. A resource that equals the one in `last` is the same shared value.
    ///
    /// # Errors
    ///
    /// The codec refuses it.
    pub(crate) fn resource(
        &mut self,
        emitted: &Emitted<'_>,
        last: &[Arc<Resource>],
    ) -> Result<Arc<[Arc<Resource>]>, RefusedResource> {
        if let Some(known) = self.resources.get(&emitted.fingerprint) {
            return Ok(Arc::clone(known));
        }
        let made = self.stencils.resource(&emitted.message());
        let made = made.map_err(|diagnostics| refused(emitted, last, diagnostics))?;
        let made = named(made, emitted, last);
        self.resources.insert(emitted.fingerprint, Arc::clone(&made));
        Ok(made)
    }

    /// Assembles a RouteConfiguration with these virtual hosts.
    ///
    /// # Errors
    ///
    /// The codec refuses it, or has refused a host; then the diagnostics are those of `hosts`.
    pub(crate) fn assembled<K: Ord + Clone + Send + Sync + 'static>(
        &self,
        emitted: &Emitted<'_>,
        hosts: Result<&VirtualHosts<K>, Vec<Diagnostic>>,
        like: Option<LastAssembled<'_, K>>,
        last: &[Arc<Resource>],
    ) -> Result<Arc<[Arc<Resource>]>, RefusedResource> {
        let frame = self.codec.resource_from_json(&emitted.message());
        let made = frame.and_then(|frame| self.codec.route_configuration(&frame, hosts?, like));
        let made = made.map_err(|diagnostics| refused(emitted, last, diagnostics))?;
        Ok(named(made, emitted, last))
    }

    /// Encodes a virtual host.
    ///
    /// # Errors
    ///
    /// The codec refuses it.
    pub(crate) fn host(&mut self, host: &EmittedPart<'_>) -> Result<Arc<VirtualHost>, Vec<Diagnostic>> {
        if let Some(known) = self.hosts.get(&host.fingerprint) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(self.stencils.virtual_host(&host.message())?);
        self.hosts.insert(host.fingerprint, Arc::clone(&made));
        Ok(made)
    }
}

/// The resource under each of its names.
fn named(mut draft: ResourceDraft, emitted: &Emitted<'_>, last: &[Arc<Resource>]) -> Arc<[Arc<Resource>]> {
    draft.origin = emitted.origin.clone();
    draft.host_pattern = emitted.found_by != FoundBy::Name;
    draft.in_wildcard = emitted.found_by != FoundBy::Pattern;
    let kept = |resource: Resource| {
        let is_same = |before: &&Arc<Resource>| ***before == resource;
        last.iter().find(is_same).cloned().unwrap_or_else(|| Arc::new(resource))
    };
    let first = kept(Resource::new(draft));
    // The other names share a kept resource too, so that comparing them is cheap.
    let further: Vec<_> = emitted.further_names.iter().map(|name| kept(first.renamed(name))).collect();
    iter::once(first).chain(further).collect()
}

fn refused(emitted: &Emitted<'_>, last: &[Arc<Resource>], diagnostics: Vec<Diagnostic>) -> RefusedResource {
    let message = emitted.message();
    let text = |key: &str| message.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    let name = ["name", "cluster_name"].into_iter().map(text).find(|name| !name.is_empty());
    let (type_url, name) = (text("@type"), name.unwrap_or_default());
    let is_it = |resource: &&Arc<Resource>| {
        let is_named = |name: &str| **resource.name() == *name;
        resource.resource_type().type_url() == type_url
            && (is_named(name) || emitted.further_names.iter().any(|name| is_named(name)))
    };
    let kept = last.iter().filter(is_it).cloned().collect();
    RefusedResource { what: format!("{type_url} {name:?}"), diagnostics, kept }
}

/// The diagnostic code for a generated resource that the codec refuses.
pub(crate) const REFUSED: &str = "generated-resource";

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use xds_cache::Origin;

    use super::*;

    type Made = Arc<[Arc<Resource>]>;

    fn cluster(timeout: &&str) -> Json {
        json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "connect_timeout": timeout})
    }

    fn encode(codec: &Codec, timeout: &str, last: &[Arc<Resource>]) -> Result<Made, RefusedResource> {
        Encoder::new(codec).resource(&Emitted::new("cluster", timeout, cluster, &Origin::Api), last)
    }

    #[test]
    fn instead_of_what_is_refused_there_is_what_there_was() {
        let codec = Codec::new().unwrap();
        let good = encode(&codec, "1s", &[]).ok().unwrap();
        for _ in 0..2 {
            let refused = encode(&codec, "soon", &good).err().unwrap();
            assert_eq!((refused.kept.as_slice(), refused.diagnostics.len()), (&*good, 1));
        }
        assert_eq!(encode(&codec, "soon", &[]).err().unwrap().kept.len(), 0);
    }

    #[test]
    fn what_is_made_of_something_else_and_says_the_same_is_the_very_same() {
        let codec = Codec::new().unwrap();
        let one = encode(&codec, "1s", &[]).ok().unwrap();
        let other = encode(&codec, "1.000s", &one).ok().unwrap();
        assert!(one.iter().zip(&*other).all(|(one, other)| Arc::ptr_eq(one, other)));
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
        let mut encoder = Encoder::new(&codec);
        let mut make = |emitted: Emitted<'_>| encoder.resource(&emitted, &[]).ok().unwrap();
        let each: Vec<Arc<Resource>> = names.iter().map(|name| make(emitted(name))[0].clone()).collect();
        let further = names.iter().skip(1).map(|name| (*name).into()).collect();
        let once = make(emitted("a.example").also_named(further));
        let shown = |resources: &[Arc<Resource>]| -> Vec<_> {
            resources
                .iter()
                .map(|resource| format!("{} {:?}", resource.version(), resource.to_draft()))
                .collect()
        };
        assert_eq!((once.len(), shown(&once)), (names.len(), shown(&each)));
    }

    #[test]
    fn when_a_name_comes_the_others_are_the_very_same() {
        let codec = Codec::new().unwrap();
        let make = |further: &[&str], last: &[Arc<Resource>]| {
            let listener = Emitted::new("listener", "a", listener, &Origin::Api);
            let listener = listener.also_named(further.iter().map(|name| (*name).into()).collect());
            Encoder::new(&codec).resource(&listener, last).ok().unwrap()
        };
        let before = make(&["b"], &[]);
        let after = make(&["aa", "b"], &before);
        let is_kept = |resource| before.iter().any(|old| Arc::ptr_eq(old, resource));
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

    #[test]
    fn a_route_configuration_put_together_of_hosts_is_the_one_that_is_encoded_whole() {
        let codec = Codec::new().unwrap();
        let parts = || [("a", "x"), ("b", "y")].map(|inputs| EmittedPart::new("host", inputs, host));
        let emitted = || Emitted::new("routes", "r", frame, &Origin::Api);
        let mut encoder = Encoder::new(&codec);
        let hosts = parts().iter().map(|part| encoder.host(part).ok().unwrap()).enumerate().collect();
        let made = encoder.assembled(&emitted(), Ok(&hosts), None, &[]).ok().unwrap();
        let whole = emitted().with_hosts(parts().into()).messages().pop().unwrap();
        assert_eq!(made[0], Arc::new(codec.resource_from_json(&whole).unwrap()));
        let again = encoder.assembled(&emitted(), Ok(&hosts), None, &made).ok().unwrap();
        assert!(Arc::ptr_eq(&made[0], &again[0]));
        let refused = encoder.assembled::<usize>(&emitted(), Err(Vec::new()), None, &made).err().unwrap();
        assert_eq!(refused.kept.as_slice(), &*made);
    }

    #[test]
    fn what_is_refused_stays_under_all_of_its_names() {
        let codec = Codec::new().unwrap();
        let bad = |name: &&str| json!({"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": name, "no": 1});
        let further = || vec!["b".into()];
        let good = Emitted::new("listener", "a", listener, &Origin::Api).also_named(further());
        let good = Encoder::new(&codec).resource(&good, &[]).ok().unwrap();
        let bad = Emitted::new("bad", "a", bad, &Origin::Api).also_named(further());
        let refused = Encoder::new(&codec).resource(&bad, &good).err().unwrap();
        assert_eq!((good.len(), refused.kept.as_slice()), (2, &*good));
    }
}
