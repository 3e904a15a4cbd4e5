//! Which objects are served: one owner for each, the last good version of what is bad.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::GroupName;
use xds_codec::{Diagnostic, Place};
use xds_routes::Document;

use super::Findings;
use super::groups::Assignment;
use super::parsed::{ParsedObject, diagnostic};
use super::state::{Content, FileState, Files, Key, ObjectId, Served};
use crate::source::timing::Removals;

/// One file's claim to an object.
struct Claim {
    path: Arc<str>,
    group: GroupName,
    place: Place,
    /// What the file says, or said when it last was good.
    content: Option<Content>,
    is_last_good: bool,
    /// What holds if nothing else does.
    stand_in: Option<Arc<Document>>,
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
        let Some(group) = assignment.group_of(path) else {
            let claims_of_file = claims_of(path, file, &GroupName::default_group());
            if let Some((_, first)) = claims_of_file.into_iter().next() {
                let message =
                    "the node group of the directory cannot be used, so nothing of this file is served";
                findings.add(path, diagnostic("unknown-group", first.place, message.to_owned()));
            }
            continue;
        };
        for (key, claim) in claims_of(path, file, &group) {
            claims.entry(ObjectId::new(&group, key)).or_default().push(claim);
        }
    }
    let choose = |(id, claims): (ObjectId, Vec<Claim>)| {
        let object = choose(&id, claims, previous.get(&id), findings)?;
        Some((id, object))
    };
    // A map that is collected has full nodes, and one that grows in order half-empty ones.
    let mut served: BTreeMap<ObjectId, Served> = claims.into_iter().filter_map(choose).collect();
    if removals == Removals::Held {
        for (id, object) in previous.iter().filter(|(id, _)| !served.contains_key(*id)).collect::<Vec<_>>() {
            served.insert(id.clone(), object.clone());
        }
    }
    served
}

/// What a file claims: what it defines, and what it defined when it last was good and may still.
fn claims_of(path: &Arc<str>, file: &FileState, group: &GroupName) -> BTreeMap<Key, Claim> {
    let new = |place: &Place, content, is_last_good| {
        let (path, group, place) = (Arc::clone(path), group.clone(), place.clone());
        Claim { path, group, place, content, is_last_good, stand_in: None }
    };
    let mut claims = BTreeMap::new();
    for (key, good) in &file.good {
        claims.insert(key.clone(), new(&good.place, Some(good.content.clone()), true));
    }
    for object in &file.parsed.objects {
        let ParsedObject::Keyed(key, place, content) = object else { continue };
        let last_good = || file.good.get(key).map(|good| good.content.clone());
        let is_last_good = content.is_none();
        claims.insert(key.clone(), new(place, content.clone().or_else(last_good), is_last_good));
    }
    for (key, stand_in) in &file.parsed.stand_ins {
        let claim = claims.entry(Key::Document(key.clone()));
        claim.or_insert_with(|| new(&stand_in.place, None, false)).stand_in = Some(Arc::clone(stand_in));
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
    let last_good = || {
        let good = before.filter(|before| before.is_good);
        good.map(|before| Served { is_last_good: true, ..before.clone() })
    };
    let Some(owner) = owner else { return last_good().or_else(|| stand_in_of(&claims)) };
    let (path, group, place) = (Arc::clone(&owner.path), owner.group.clone(), owner.place.clone());
    match &owner.content {
        Some(content) => {
            let (content, is_last_good) = (content.clone(), owner.is_last_good);
            Some(Served { content, group, path, place, is_last_good, is_good: true })
        }
        None => {
            let stands_in = || stand_in_of(std::slice::from_ref(owner));
            let last_good = last_good().map(|last_good| Served { group, path, place, ..last_good });
            last_good.or_else(stands_in)
        }
    }
}

/// What holds in place of claims of which none is good, or none is more right than the others.
fn stand_in_of(claims: &[Claim]) -> Option<Served> {
    let first = claims.first()?;
    let said = claims.iter().filter_map(|claim| {
        let document = claim.content.as_ref().and_then(Content::document);
        document.or(claim.stand_in.as_ref()).map(|document| &**document)
    });
    let content = Content::Document(xds_routes::stand_in(said)?);
    let (path, group, place) = (Arc::clone(&first.path), first.group.clone(), first.place.clone());
    Some(Served { content, group, path, place, is_last_good: false, is_good: false })
}

fn report(id: &ObjectId, claims: &[Claim], owner: Option<&Claim>, findings: &mut Findings) {
    let (code, of_group) = match &id.group {
        Some(group) => ("duplicate-resource", format!(" of the group `{group}`")),
        None => ("duplicate-document", String::new()),
    };
    for claim in claims {
        let effect = match owner {
            Some(owner) if owner.path == claim.path => "this one was there first and is served".to_owned(),
            Some(owner) => format!("the one in {} was there first and is served", owner.path),
            None => "none of them is served".to_owned(),
        };
        let message = format!("{} is defined in {} files{of_group}; {effect}", id.key, claims.len());
        let others = claims.iter().filter(|other| other.path != claim.path);
        let related = others.take(MAX_RELATED).map(|other| other.place.clone()).collect();
        let error = diagnostic(code, claim.place.clone(), message);
        findings.add(&claim.path, Diagnostic { related, ..error });
    }
}

/// More places do not help.
const MAX_RELATED: usize = 10;
