//! The clients that files are for, and what they reach.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use xds_cache::{GroupName, Groups, Origin, Profile, Resource, ResourceKey, ResourceType};
use xds_codec::{Codec, Diagnostic, Effect, Place, ProfileFinding, Severity};

use crate::offline::nowhere;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// Envoy
    Envoy,
    /// Proxyless gRPC clients
    Grpc,
    /// Both
    All,
}

impl Target {
    pub(super) fn profiles(self) -> &'static [Profile] {
        match self {
            Self::Envoy => &[Profile::Envoy],
            Self::Grpc => &[Profile::Grpc],
            Self::All => &[Profile::Envoy, Profile::Grpc],
        }
    }

    /// Anything worse than a part that a client ignores is an error. With `all`, only what it does not use at all is one, and that
    /// is no error if clients of the other kind reach the resource too, because it may be meant for
    /// them: every cluster may be for Envoys, but they have no use for a listener with an `api_listener`.
    pub(super) fn severity_of(self, finding: &ProfileFinding) -> Severity {
        let is_for_others = self == Self::All && finding.is_shared;
        match finding.effect {
            Effect::Crashes | Effect::Rejected | Effect::FailsAll if !is_for_others => Severity::Error,
            Effect::Fails if self != Self::All => Severity::Error,
            Effect::Crashes
            | Effect::Rejected
            | Effect::FailsAll
            | Effect::Fails
            | Effect::Ignored
            | Effect::Differs => Severity::Warning,
        }
    }
}

/// The groups that may have nodes of this profile.
pub(super) fn names_for(groups: &Groups, profile: Profile) -> impl Iterator<Item = &GroupName> {
    let groups = groups.iter();
    let groups =
        groups.filter(move |(_, group)| group.definition.client.is_none_or(|client| client == profile));
    groups.map(|(name, _)| name)
}

/// The resources that clients of this profile reach in any group, and the group of each.
///
/// A resource that the clients of one group reject may be meant for another group, so all groups are looked at.
pub(super) fn reached_by(codec: &Codec, groups: &Groups, profile: Profile) -> HashSet<(ResourceKey, Place)> {
    let mut reached = HashSet::new();
    for name in names_for(groups, profile) {
        let resources = seen_by(groups, name, profile);
        let keys = codec.reached_by(resources.iter().copied(), profile);
        let resources = resources.into_iter().filter(|resource| keys.contains(resource.key()));
        reached.extend(resources.map(|resource| (resource.key().clone(), origin_of(resource.origin()))));
    }
    reached
}

/// The resources that nodes of a group may be served. Listeners count only in the group itself.
pub(super) fn seen_by<'g>(groups: &'g Groups, name: &GroupName, profile: Profile) -> Vec<&'g Resource> {
    let default = GroupName::default_group();
    let mut resources: BTreeMap<&ResourceKey, &Resource> = BTreeMap::new();
    for own in [name, &default] {
        for (key, resource) in groups.get(own).iter().flat_map(|group| group.resources_for(profile)) {
            resources.entry(key).or_insert(resource);
        }
    }
    for other in
        groups.values().filter(|group| group.definition.client.is_none_or(|client| client == profile))
    {
        for (key, resource) in other.resources_for(profile) {
            if key.resource_type != ResourceType::Listener {
                resources.entry(key).or_insert(resource);
            }
        }
    }
    resources.into_values().collect()
}

pub(super) fn origin_of(origin: &Origin) -> Place {
    match origin {
        Origin::File { path, line, column } => Place { file: Arc::clone(path), line: *line, column: *column },
        Origin::Api => nowhere(),
    }
}

/// A finding without a path and without advice.
pub(super) fn diagnostic(
    severity: Severity,
    code: &'static str,
    place: Place,
    message: String,
) -> Diagnostic {
    let (path, suggestion, related) = (String::new(), None, vec![]);
    Diagnostic { severity, code, place, path, message, suggestion, related, is_sensitive: false }
}
