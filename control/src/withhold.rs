//! Takes resources with secrets out of groups without `identities`, where [`Secrets::Identified`] is in force.
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

/// The group without what must not be served of it. `before` is the group as it was served last: the cost follows the difference.
pub(crate) fn withhold(
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
