//! From what was emitted to resources, each distinct content encoded once.

use std::collections::HashMap;
use std::sync::Arc;

use xds_cache::layer::Resources;
use xds_cache::{Resource, Version};
use xds_codec::{Codec, Diagnostic};

use crate::emit::{Emitted, FoundBy};

/// Resources by the fingerprint of what they were made of, so that the next translation finds them without writing them.
pub(crate) type Encoded = HashMap<Version, Arc<Resource>>;

/// Makes resources, with those of an earlier translation at hand.
pub(crate) struct Encoder<'a> {
    codec: &'a Codec,
    previous: Option<&'a Encoded>,
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
    pub(crate) fn new(codec: &'a Codec, previous: Option<&'a Encoded>) -> Self {
        let encoded = Encoded::with_capacity(previous.map_or(0, HashMap::len));
        Self { codec, previous, encoded, refused: Vec::new() }
    }

    /// The resources of what was emitted. A resource that is refused is left out, or stays as `last` has it; one that is as
    /// `last` has it is that very value.
    pub(crate) fn resources(&mut self, emitted: Vec<Emitted<'_>>, last: Option<&Resources>) -> Resources {
        let resources = emitted.iter().filter_map(|one| self.resource(one, last));
        resources.map(|resource| (resource.key().clone(), resource)).collect()
    }

    pub(crate) fn finish(self) -> Encoded {
        self.encoded
    }

    fn resource(&mut self, emitted: &Emitted<'_>, last: Option<&Resources>) -> Option<Arc<Resource>> {
        let fingerprint = emitted.fingerprint;
        let known = self.encoded.get(&fingerprint);
        let known = known.or_else(|| self.previous.and_then(|previous| previous.get(&fingerprint)));
        let resource = match known {
            Some(resource) => Arc::clone(resource),
            None => match self.encode(emitted, last) {
                Ok(resource) => resource,
                // Not kept under the fingerprint, or the next translation would not know that it is refused.
                Err(last) => return last,
            },
        };
        self.encoded.insert(fingerprint, Arc::clone(&resource));
        Some(resource)
    }

    /// Encodes a resource; if it is refused, what is served in its place.
    fn encode(
        &mut self,
        emitted: &Emitted<'_>,
        last: Option<&Resources>,
    ) -> Result<Arc<Resource>, Option<Arc<Resource>>> {
        let message = emitted.message();
        match self.codec.resource_from_json(&message) {
            Ok(resource) => {
                let mut draft = resource.to_draft();
                draft.origin = emitted.origin.clone();
                draft.host_pattern = emitted.found_by != FoundBy::Name;
                draft.in_wildcard = emitted.found_by != FoundBy::Pattern;
                let resource = Resource::new(draft);
                let before = last.and_then(|last| last.get(resource.key()));
                let is_same = |before: &&Arc<Resource>| {
                    before.version() == resource.version() && before.origin() == resource.origin()
                };
                Ok(before.filter(is_same).cloned().unwrap_or_else(|| Arc::new(resource)))
            }
            Err(diagnostics) => {
                let text = |key: &str| message.get(key).and_then(|value| value.as_str()).unwrap_or_default();
                let name = ["name", "cluster_name"].into_iter().map(text).find(|name| !name.is_empty());
                let (type_url, name) = (text("@type"), name.unwrap_or_default());
                self.refused.push(Refused { what: format!("{type_url} {name:?}"), diagnostics });
                let is_it = |resource: &&Arc<Resource>| {
                    resource.resource_type().type_url() == type_url && **resource.name() == *name
                };
                Err(last.and_then(|last| last.values().find(is_it).cloned()))
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
        let mut encoder = Encoder::new(codec, previous.map(|(encoded, _)| encoded));
        let emitted = vec![Emitted::new("cluster", timeout, cluster, &Origin::Api)];
        let resources = encoder.resources(emitted, previous.map(|(_, last)| last));
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
}
