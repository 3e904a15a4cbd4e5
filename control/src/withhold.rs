//! Takes resources with secrets out of groups without `identities`, where [`Secrets::Identified`] is in force, and decides which groups
//! only try their `identities` ([`Guarding::tries_identities`]): those that hold no secret.
//!
//! [`withhold`] is applied to every group that is made, from whatever source, so no order of changes leads around it. A withheld
//! resource keeps the version that was served before it had a secret. A group with secrets that would lose its `identities` keeps
//! its definition. [`secrets`](crate::secrets) reports what was taken out.

use std::sync::Arc;

use xds_cache::layer::{EffectiveGroup, Resources, Withheld};
use xds_cache::{DiffItem, Resource};
use xds_codec::Codec;

/// Which groups may have resources with secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// All.
    #[default]
    Any,
    /// Those with `identities`, so that only clients that have proved who they are get secrets.
    Identified,
}

/// What groups are kept from, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarding {
    /// Which groups may have resources with secrets.
    pub secrets: Secrets,
    /// True if groups are given without their `identities` too, and that is told, as long as they hold no secret.
    pub tries_identities: bool,
}

/// The group without what must not be served of it. `before` is the group as it was served last: the cost follows the difference.
pub(crate) fn withhold(
    codec: &Codec,
    guarding: Guarding,
    before: Option<&EffectiveGroup>,
    group: EffectiveGroup,
) -> EffectiveGroup {
    let mut group = without_secrets(codec, guarding.secrets, before, group);
    let is_tried = guarding.tries_identities && group.definition.is_guarded();
    group.definition.tries_identities = is_tried && !holds_secret(codec, before, &group);
    group
}

/// Returns `true` if a resource of the group holds a secret. If it was known to hold none, only what differs is looked at.
fn holds_secret(codec: &Codec, before: Option<&EffectiveGroup>, group: &EffectiveGroup) -> bool {
    let is_secret = |resource: &Resource| codec.secret_path(resource).is_some();
    let Some(before) = before.filter(|before| before.definition.tries_identities) else {
        let all = [&group.resources].into_iter().chain(group.generated.values());
        return all.flat_map(|all| all.values()).any(|resource| is_secret(resource));
    };
    let has_new = |before: Option<&Resources>, after: &Resources| match before {
        Some(before) => before.diff(after).any(|item| match item {
            DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => is_secret(new),
            DiffItem::Remove(..) => false,
        }),
        None => after.values().any(|resource| is_secret(resource)),
    };
    let mut generated = group.generated.iter();
    has_new(Some(&before.resources), &group.resources)
        || generated.any(|(profile, after)| has_new(before.generated.get(profile), after))
}

fn without_secrets(
    codec: &Codec,
    secrets: Secrets,
    before: Option<&EffectiveGroup>,
    mut group: EffectiveGroup,
) -> EffectiveGroup {
    // What is served of a group without identities has no secrets.
    if secrets == Secrets::Any || group.definition.is_guarded() {
        return group;
    }
    if let Some(guarded) = before.filter(|before| before.definition.is_guarded()) {
        let secret = {
            let all = [&group.resources].into_iter().chain(group.generated.values());
            all.flat_map(|all| all.values()).find(|one| codec.secret_path(one).is_some()).cloned()
        };
        if let Some(secret) = secret {
            group.definition = guarded.definition.clone();
            group.withheld = [Withheld::Definition { secret }].into();
        }
        return group;
    }
    let mut withheld = Vec::new();
    let resources = before.map(|before| &before.resources);
    keep_free(codec, resources, &mut group.resources, &mut withheld);
    for (profile, generated) in &mut group.generated {
        let known = before.and_then(|before| before.generated.get(profile));
        keep_free(codec, known, generated, &mut withheld);
    }
    group.withheld = withheld.into();
    group
}

/// Puts back the known versions of resources that hold a secret now, and removes those without one.
fn keep_free(
    codec: &Codec,
    known: Option<&Resources>,
    resources: &mut Resources,
    withheld: &mut Vec<Withheld>,
) {
    let withhold = |resource: &Arc<Resource>, path: Option<String>| {
        Some(Withheld::Resource { resource: Arc::clone(resource), path: path?.into() })
    };
    let first = withheld.len();
    match known {
        Some(known) => withheld.extend(known.diff(resources).filter_map(|item| match item {
            DiffItem::Add(_, new) => withhold(new, codec.secret_path(new)),
            DiffItem::Update { old: (_, old), new: (_, new) } => {
                withhold(new, codec.secret_path_beside(new, old))
            }
            DiffItem::Remove(..) => None,
        })),
        None => withheld.extend(resources.values().filter_map(|one| withhold(one, codec.secret_path(one)))),
    }
    for one in withheld.iter().skip(first) {
        let Withheld::Resource { resource, .. } = one else { continue };
        match known.and_then(|known| known.get(resource.key())) {
            Some(known) => _ = resources.insert(Arc::clone(known)),
            None => _ = resources.remove(resource.key()),
        }
    }
}
