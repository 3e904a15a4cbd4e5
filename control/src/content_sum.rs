//! What the files give, as one number: to tell whether it is what was recorded last.

use std::sync::Arc;

use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::{Layer, Resource, Version, VersionHasher};

use crate::differing::differing;
use crate::model::document::{GroupedDocument, GroupedDocuments, content_hash};
use crate::model::group;

/// What the files give, added up: the sum of hashes does not depend on order, and can be changed by what differs. Where in the
/// files something is does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentSum(u128);

/// Groups and resources, and documents.
type Said<'s> = (&'s Layer, &'s GroupedDocuments);

impl ContentSum {
    /// The sum of `after`, if this is that of `before`.
    pub(crate) fn changed(self, before: Said<'_>, after: Said<'_>) -> Self {
        let mut sum = self.0;
        let mut change = |old: Option<u128>, new: Option<u128>| {
            sum = sum.wrapping_sub(old.unwrap_or_default()).wrapping_add(new.unwrap_or_default());
        };
        let nothing = Resources::new();
        for (name, old, new) in differing(&before.0.groups, &after.0.groups) {
            let group = |group: &LayerGroup| {
                let definition = group.definition.as_ref();
                let definition = definition.map(|definition| group::to_json(definition).to_string());
                entry(["group", name.as_str(), &definition.unwrap_or_default()])
            };
            change(old.map(group), new.map(group));
            let [old, new] = [old, new].map(|group| group.map_or(&nothing, |group| &group.resources));
            for (key, old, new) in differing(old, new) {
                let resource = |resource: &Arc<Resource>| {
                    let version = resource.version().to_string();
                    entry(["resource", name.as_str(), key.resource_type.type_url(), &key.name, &version])
                };
                change(old.map(resource), new.map(resource));
            }
        }
        for (key, old, new) in differing(before.1, after.1) {
            let key = key.to_string();
            let document =
                |one: &GroupedDocument| entry(["document", &key, &content_hash(&one.document, &one.group)]);
            change(old.map(document), new.map(document));
        }
        Self(sum)
    }

    /// The hash over everything.
    pub(crate) fn hash(self) -> String {
        Version::of(&self.0.to_be_bytes()).to_string()
    }
}

fn entry<const N: usize>(parts: [&str; N]) -> u128 {
    let mut hasher = VersionHasher::new();
    parts.iter().for_each(|part| hasher.update(part.as_bytes()));
    hasher.finish_wide()
}
