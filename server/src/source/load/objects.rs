//! Which resources are served: one owner for each, the last good version of what is bad.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{Resource, ResourceKey};
use xds_codec::{Diagnostic, Place};

use super::Findings;
use super::groups::Assignment;
use super::parsed::{ParsedObject, diagnostic};
use super::state::{FileState, Files, ObjectId, Served};
use crate::source::timing::Removals;

/// One file's claim to a resource of a group.
struct Claim {
    path: Arc<str>,
    place: Place,
    /// What the file says, or said when it last was good.
    resource: Option<Arc<Resource>>,
    is_last_good: bool,
}

/// Decides what is served.
pub(super) fn resolve(
    files: &Files,
    assignment: &Assignment,
    previous: &BTreeMap<ObjectId, Served>,
    removals: Removals,
    findings: &mut Findings,
) -> BTreeMap<ObjectId, Served> {
    let mut claims: BTreeMap<ObjectId, Vec<Claim>> = BTreeMap::new();
    for (path, file) in files.iter().filter(|(_, file)| !file.is_missing) {
        let claims_of_file = claims_of(path, file);
        let Some(group) = assignment.group_of(path) else {
            if let Some((_, first)) = claims_of_file.into_iter().next() {
                let message =
                    "the node group of the directory cannot be used, so nothing of this file is served";
                findings.add(path, diagnostic("unknown-group", first.place, message.to_owned()));
            }
            continue;
        };
        for (key, claim) in claims_of_file {
            claims.entry(ObjectId { group: group.clone(), key }).or_default().push(claim);
        }
    }
    let mut served = BTreeMap::new();
    for (id, claims) in claims {
        let before = previous.get(&id);
        if let Some(object) = choose(&id, claims, before, findings) {
            served.insert(id, object);
        }
    }
    if removals == Removals::Held {
        for (id, object) in previous.iter().filter(|(id, _)| !served.contains_key(*id)).collect::<Vec<_>>() {
            served.insert(id.clone(), object.clone());
        }
    }
    served
}

/// What a file claims: what it defines, and what it defined when it last was good and may still.
fn claims_of(path: &Arc<str>, file: &FileState) -> BTreeMap<ResourceKey, Claim> {
    let mut claims = BTreeMap::new();
    for (key, good) in &file.good {
        let (place, resource) = (good.place.clone(), Some(Arc::clone(&good.resource)));
        claims.insert(key.clone(), Claim { path: Arc::clone(path), place, resource, is_last_good: true });
    }
    for object in &file.parsed.objects {
        let ParsedObject::Resource(key, place, resource) = object else { continue };
        let last_good = || file.good.get(key).map(|good| Arc::clone(&good.resource));
        let is_last_good = resource.is_none();
        let (path, place, resource) = (Arc::clone(path), place.clone(), resource.clone().or_else(last_good));
        claims.insert(key.clone(), Claim { path, place, resource, is_last_good });
    }
    claims
}

/// The only claim, or that of the owner; what was served before if the claim is bad and was never good.
fn choose(
    id: &ObjectId,
    claims: Vec<Claim>,
    before: Option<&Served>,
    findings: &mut Findings,
) -> Option<Served> {
    let is_contested = claims.len() > 1;
    let is_owner = |claim: &&Claim| !is_contested || before.is_some_and(|before| before.path == claim.path);
    let owner = claims.iter().find(is_owner);
    if is_contested {
        report(id, &claims, owner, findings);
    }
    let last_good = || before.map(|before| Served { is_last_good: true, ..before.clone() });
    let Some(owner) = owner else { return last_good() };
    let (path, place) = (Arc::clone(&owner.path), owner.place.clone());
    match &owner.resource {
        Some(resource) => {
            Some(Served { resource: Arc::clone(resource), path, place, is_last_good: owner.is_last_good })
        }
        None => last_good().map(|last_good| Served { path, place, ..last_good }),
    }
}

fn report(id: &ObjectId, claims: &[Claim], owner: Option<&Claim>, findings: &mut Findings) {
    let ObjectId { group, key } = id;
    for claim in claims {
        let effect = match owner {
            Some(owner) if owner.path == claim.path => "this one was there first and is served".to_owned(),
            Some(owner) => format!("the one in {} was there first and is served", owner.path),
            None => "none of them is served".to_owned(),
        };
        let message = format!("{key} is defined in {} files of the group `{group}`; {effect}", claims.len());
        let others = claims.iter().filter(|other| other.path != claim.path);
        let related = others.take(MAX_RELATED).map(|other| other.place.clone()).collect();
        let error = diagnostic("duplicate-resource", claim.place.clone(), message);
        findings.add(&claim.path, Diagnostic { related, ..error });
    }
}

/// More places do not help.
const MAX_RELATED: usize = 10;
