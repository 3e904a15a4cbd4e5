//! Whether servers with one history serve the same: a sum over what each serves.
//!
//! Equal revisions have equal contents, unless two releases translate a document differently, two servers have different flags, or
//! something is wrong. Then acknowledgements of one server say nothing about the other, and a client that moves gets other versions. So
//! servers tell each other this sum, and a difference is a problem on both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, Resources};
use xds_cache::{Groups, Resource, ResourceKey, Revision, VersionHasher};

use crate::differing::differing;

/// A sum of hashes over the names and versions of all resources of all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(pub u128);

/// The fingerprints of the last revisions that a server published.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(VecDeque<(Revision, Fingerprint)>);

impl Fingerprint {
    /// The fingerprint of `after`, if this is that of `before`. Costs what the two do not share.
    pub(crate) fn changed(self, before: &Groups, after: &Groups) -> Self {
        let mut sum = self.0;
        for (name, old, new) in differing(before, after) {
            let [old, new] = [old, new].map(|group| group.map(parts).unwrap_or_default());
            let all: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
            let nothing = Resources::new();
            for part in all {
                let [old, new] = [&old, &new].map(|parts| parts.get(part).copied().unwrap_or(&nothing));
                for (key, old, new) in differing(old, new) {
                    let hash = |resource: &Arc<Resource>| hash([name.as_str(), part], key, resource);
                    sum = sum.wrapping_sub(old.map(hash).unwrap_or_default());
                    sum = sum.wrapping_add(new.map(hash).unwrap_or_default());
                }
            }
        }
        Self(sum)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Fingerprints {
    /// Takes in that of the next revision, or another one of the last: what a load changes before it is recorded.
    pub(crate) fn push(&mut self, revision: Revision, fingerprint: Fingerprint) {
        self.0.retain(|(known, _)| *known < revision);
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back((revision, fingerprint));
    }

    /// The newest one, and its revision.
    pub(crate) fn newest(&self) -> (Revision, Fingerprint) {
        self.0.back().copied().unwrap_or_default()
    }

    /// That of a revision, if it is one of the last.
    pub(crate) fn of(&self, revision: Revision) -> Option<Fingerprint> {
        let found = self.0.iter().find(|(known, _)| *known == revision);
        found.map(|(_, fingerprint)| *fingerprint)
    }
}

/// The resources of a group for all clients, and for each kind of client.
fn parts(group: &Arc<EffectiveGroup>) -> BTreeMap<&'static str, &Resources> {
    let generated = group.generated.iter().map(|(profile, resources)| (profile.as_str(), resources));
    generated.chain([("", &group.resources)]).collect()
}

fn hash([group, part]: [&str; 2], key: &ResourceKey, resource: &Resource) -> u128 {
    let version = resource.version().to_string();
    entry([group, part, key.resource_type.type_url(), &key.name, &version])
}

/// The hash of some texts.
pub(crate) fn entry<const N: usize>(parts: [&str; N]) -> u128 {
    let mut hasher = VersionHasher::new();
    parts.iter().for_each(|part| hasher.update(part.as_bytes()));
    hasher.finish_wide()
}

/// Revisions that are remembered: others are at most seconds behind.
const KEPT: usize = 64;
