//! From what was emitted to resources, each distinct content encoded once.

use std::collections::HashMap;
use std::sync::Arc;

use xds_cache::layer::Resources;
use xds_cache::{Profile, Resource, ResourceType, Version, VersionHasher};
use xds_codec::{Codec, Diagnostic};

use crate::emit::Emitted;

/// Resources by the hash of the JSON and origin that they were made of, so that the next translation finds them again.
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
        Self { codec, previous, encoded: Encoded::new(), refused: Vec::new() }
    }

    /// The resources of what was emitted. A resource that is refused is left out, or stays as `last` has it.
    pub(crate) fn resources(
        &mut self,
        profile: Profile,
        emitted: Vec<Emitted>,
        last: Option<&Resources>,
    ) -> Resources {
        let mut resources = Resources::new();
        for one in emitted {
            let hash = hash(profile, &one);
            let known =
                self.encoded.get(&hash).or_else(|| self.previous.and_then(|previous| previous.get(&hash)));
            let resource = match known.cloned() {
                Some(resource) => Some(resource),
                None => self.encode(profile, &one, last),
            };
            let Some(resource) = resource else { continue };
            self.encoded.insert(hash, Arc::clone(&resource));
            resources.insert(resource.key().clone(), resource);
        }
        resources
    }

    pub(crate) fn finish(self) -> Encoded {
        self.encoded
    }

    fn encode(
        &mut self,
        profile: Profile,
        emitted: &Emitted,
        last: Option<&Resources>,
    ) -> Option<Arc<Resource>> {
        match self.codec.resource_from_json(&emitted.message) {
            Ok(resource) => {
                let mut draft = resource.to_draft();
                draft.origin = emitted.origin.clone();
                // gRPC clients ask for listeners by the authority that they dial.
                draft.host_pattern =
                    profile == Profile::Grpc && draft.key.resource_type == ResourceType::Listener;
                draft.in_wildcard = !emitted.is_pattern;
                Some(Arc::new(Resource::new(draft)))
            }
            Err(diagnostics) => {
                let text =
                    |key: &str| emitted.message.get(key).and_then(|value| value.as_str()).unwrap_or_default();
                let name = ["name", "cluster_name"].into_iter().map(text).find(|name| !name.is_empty());
                let (type_url, name) = (text("@type"), name.unwrap_or_default());
                self.refused.push(Refused { what: format!("{type_url} {name:?}"), diagnostics });
                let is_it = |resource: &&Arc<Resource>| {
                    resource.resource_type().type_url() == type_url && **resource.name() == *name
                };
                last.and_then(|last| last.values().find(is_it).cloned())
            }
        }
    }
}

fn hash(profile: Profile, emitted: &Emitted) -> Version {
    let mut hasher = VersionHasher::new();
    hasher.update(profile.as_str().as_bytes());
    hasher.update(emitted.message.to_string().as_bytes());
    hasher.update(emitted.origin.to_string().as_bytes());
    hasher.update(&[u8::from(emitted.is_pattern)]);
    hasher.finish()
}
