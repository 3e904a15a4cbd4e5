//! The served objects: each has one owner, and a bad one keeps its last good version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Layer, NodeGroup, OrdMap, ResourceKey, filling};
use xds_codec::{Diagnostic, Place};
use xds_control::model::document::{GroupedDocument, GroupedDocuments};
use xds_control::model::{FileObject, FileObjectKey};
use xds_routes::Document;

use super::content::{Content, Key, ObjectId, Served};
use super::files::{FileState, Files};
use super::findings::Findings;
use super::groups::Assignment;
use super::parsed::diagnostic;
use crate::timing::Removals;

/// The claim of a file to an object.
struct Claim {
    group: GroupName,
    /// Where, in which file.
    place: Place,
    /// The content in the file, or the last good one.
    content: Option<Content>,
    is_last_good: bool,
    /// The stand-in that is served if there is nothing else.
    stand_in: Option<Arc<Document>>,
}

/// The served objects, and the file of each. A load changes only what differs; a copy shares the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    /// The served objects, by group and key.
    pub(super) served: OrdMap<ObjectId, Served>,
    /// The files that claim an object, if the owner is not the only one.
    claimants: OrdMap<ObjectId, Arc<[Arc<str>]>>,
    /// The objects of each file since the last load.
    pub(super) files: BTreeMap<Arc<str>, Arc<OfFile>>,
    /// The groups and resources among what is served.
    pub(super) layer: Layer,
    /// The documents.
    pub(super) documents: Arc<GroupedDocuments>,
}

/// The objects of one file. Any change makes another value.
#[derive(Debug)]
pub(super) struct OfFile {
    /// The group of its objects; `None` if its directory has no usable group.
    group: Option<GroupName>,
    /// The node groups of directories that it defines.
    defines: Vec<(GroupName, Place)>,
    /// Its node groups and its served objects, in the order of the text.
    pub(super) objects: Arc<[FileObject]>,
    /// The resources that it defines and that are not served in its group.
    unserved: Vec<ResourceKey>,
    /// True if one of its objects is served from an earlier text.
    pub(super) has_last_good: bool,
}

/// Decides which objects are served, from the objects and files of the previous load, and the present files. The cost follows the
/// changed files, besides a look at each.
pub(super) fn resolve(
    (before, previous): (&Objects, &Files),
    files: &Files,
    assignment: &Assignment,
    removals: Removals,
    findings: &mut Findings,
) -> Objects {
    let concerned = Concerned::new((before, previous), files, assignment);
    let mut claims = claims(&concerned, files, assignment, findings);
    let mut objects = before.clone();
    let mut touched = concerned.changed;
    let (mut changed, mut claimed) = (Vec::new(), Vec::new());
    for id in concerned.ids {
        let claims = claims.remove(&id).unwrap_or_default();
        let claimants: Vec<Arc<str>> = claims.iter().map(|claim| Arc::clone(&claim.place.file)).collect();
        let was = before.served.get(&id);
        let chosen = if claims.is_empty() { None } else { choose(&id, claims, was, findings) };
        let chosen = chosen.or_else(|| was.filter(|_| removals == Removals::Postponed).cloned());
        if was != chosen.as_ref() {
            touched.extend(was.into_iter().chain(&chosen).map(|object| Arc::clone(&object.place.file)));
            touched.extend(claimants.iter().cloned());
            changed.push((id.clone(), chosen));
        }
        claimed.push((id, claimants));
    }
    for (id, chosen) in filling(changed.iter()) {
        objects.put(id.clone(), chosen.clone());
    }
    for (id, claimants) in claimed {
        objects.claim(id, claimants);
    }
    objects.look_at_files(touched, files, assignment);
    objects
}

/// The claims on the concerned objects, in the order of the files.
fn claims(
    concerned: &Concerned,
    files: &Files,
    assignment: &Assignment,
    findings: &mut Findings,
) -> BTreeMap<ObjectId, Vec<Claim>> {
    let mut claims: BTreeMap<ObjectId, Vec<Claim>> = BTreeMap::new();
    for (path, file) in files.iter().filter(|(_, file)| !file.is_missing) {
        let Some(group) = assignment.group_of(path) else {
            let claims_of_file = claims_of(file, &GroupName::default_group());
            if let Some((_, first)) = claims_of_file.into_iter().next() {
                let message =
                    "the node group of the directory cannot be used, so nothing of this file is served";
                findings.add(path, diagnostic("unknown-group", first.place, message.to_owned()));
            }
            continue;
        };
        if !concerned.claimants.contains(path) {
            continue;
        }
        for (key, claim) in claims_of(file, &group) {
            let id = ObjectId::new(&group, key);
            if concerned.ids.contains(&id) {
                claims.entry(id).or_default().push(claim);
            }
        }
    }
    claims
}

/// The objects and files that a load has to look at.
#[derive(Default)]
struct Concerned {
    /// The files that are another value, or in another group.
    changed: BTreeSet<Arc<str>>,
    /// The objects that these files claim or claimed, and the ones that were contested or waiting for their removal.
    ids: BTreeSet<ObjectId>,
    /// All files that may claim one of these objects.
    claimants: BTreeSet<Arc<str>>,
}

impl Concerned {
    fn new((before, previous): (&Objects, &Files), files: &Files, assignment: &Assignment) -> Self {
        let mut concerned = Self::default();
        if before.files.is_empty() {
            // Copies do not say which files claim an object.
            concerned.ids.extend(before.served.keys().cloned());
        }
        concerned.ids.extend(before.claimants.keys().cloned());
        for (path, file) in files {
            let group = assignment.group_of(path);
            let (was, of_file) = (previous.get(path), before.files.get(path));
            let is_same = was.is_some_and(|was| Arc::ptr_eq(was, file))
                && of_file.is_some_and(|of_file| of_file.group == group);
            if !is_same {
                concerned.ids.extend(ids_of(file, group.as_ref()));
                concerned.changed.insert(Arc::clone(path));
            }
        }
        for (path, file) in previous {
            if concerned.changed.contains(path) || !files.contains_key(path) {
                let group = before.files.get(path).and_then(|of_file| of_file.group.as_ref());
                concerned.ids.extend(ids_of(file, group));
            }
        }
        concerned.claimants.clone_from(&concerned.changed);
        for id in &concerned.ids {
            match before.claimants.get(id) {
                Some(claimants) => concerned.claimants.extend(claimants.iter().cloned()),
                None => {
                    let owner = before.served.get(id).map(|was| Arc::clone(&was.place.file));
                    concerned.claimants.extend(owner);
                }
            }
        }
        concerned
    }
}

impl Objects {
    /// Serves another version of an object, or stops to serve it.
    pub(super) fn put(&mut self, id: ObjectId, object: Option<Served>) {
        let was = match &object {
            Some(object) => self.served.insert(id, object.clone()),
            None => self.served.remove(&id),
        };
        if let Some(Served { content: Content::Document(document), .. }) = &was {
            Arc::make_mut(&mut self.documents).remove(&document.key);
        } else if let Some(Served { content: Content::Resource(resource), group, .. }) = &was {
            self.change_group(group, |of_group| _ = of_group.resources.remove(resource.key()));
        }
        let Some(Served { content, group, .. }) = object else { return };
        match content {
            Content::Document(document) => {
                let key = document.key.clone();
                Arc::make_mut(&mut self.documents).insert(key, GroupedDocument::new(document, group));
            }
            Content::Resource(resource) => self.change_group(&group, |of_group| {
                of_group.resources.insert(resource);
            }),
        }
    }

    /// Takes in how groups are defined.
    pub(super) fn define(&mut self, definitions: &BTreeMap<GroupName, NodeGroup>) {
        let defined = self.layer.groups.iter().filter(|(_, group)| group.definition.is_some());
        let mut changed: BTreeSet<GroupName> = defined.map(|(name, _)| name.clone()).collect();
        changed.extend(definitions.keys().cloned());
        let is_other = |name: &GroupName| {
            let known = self.layer.groups.get(name).and_then(|group| group.definition.as_ref());
            known != definitions.get(name)
        };
        changed.retain(is_other);
        for name in changed {
            self.change_group(&name, |group| group.definition = definitions.get(&name).cloned());
        }
    }

    /// Changes a group, and removes it if it is empty then.
    fn change_group(&mut self, name: &GroupName, change: impl FnOnce(&mut LayerGroup)) {
        let group = self.layer.groups.entry(name.clone()).or_default();
        change(group);
        if *group == LayerGroup::default() {
            self.layer.groups.remove(name);
        }
    }

    /// Forgets what is of which file.
    #[cfg(test)]
    pub(super) fn forget(&mut self) {
        self.files.clear();
    }

    fn claim(&mut self, id: ObjectId, claimants: Vec<Arc<str>>) {
        let owner = self.served.get(&id).map(|object| &object.place.file);
        if claimants.iter().eq(owner) {
            self.claimants.remove(&id);
        } else {
            self.claimants.insert(id, claimants.into());
        }
    }

    /// Returns `true` if an object is served that no file claims any more.
    pub(super) fn is_something_missing(&self) -> bool {
        self.claimants.iter().any(|(id, claimants)| {
            self.served.get(id).is_some_and(|object| !claimants.contains(&object.place.file))
        })
    }

    /// The resources of files that are not served in any group because of errors.
    pub(super) fn unusable(&self) -> BTreeSet<ResourceKey> {
        let unserved = self.files.values().flat_map(|of_file| &of_file.unserved);
        let is_served =
            |key: &ResourceKey| self.layer.groups.values().any(|group| group.resources.contains_key(key));
        unserved.filter(|key| !is_served(key)).cloned().collect()
    }

    /// The served and good objects of a file, by identity.
    pub(super) fn owned_by(&self, path: &Arc<str>, file: &FileState) -> BTreeMap<ObjectId, &Served> {
        let group = self.files.get(path).and_then(|of_file| of_file.group.as_ref());
        let claimed = ids_of(file, group);
        let ids = claimed.into_iter().chain(self.claimants.keys().cloned());
        let served = ids.filter_map(|id| Some((id.clone(), self.served.get(&id)?)));
        served.filter(|(_, object)| object.place.file == *path && object.is_good).collect()
    }

    /// Looks again at files with changed objects, and at files that are in another group or define another one.
    fn look_at_files(&mut self, mut touched: BTreeSet<Arc<str>>, files: &Files, assignment: &Assignment) {
        let mut defines: BTreeMap<&Arc<str>, Vec<(GroupName, Place)>> = BTreeMap::new();
        for group in assignment.directories.values().filter(|group| !group.is_leaving) {
            let defined = (group.definition.name.clone(), group.place.clone());
            defines.entry(&group.path).or_default().push(defined);
        }
        let nothing = Vec::new();
        let mut left: BTreeMap<Arc<str>, Vec<ObjectId>> = BTreeMap::new();
        for id in self.claimants.keys() {
            if let Some(object) = self.served.get(id) {
                left.entry(Arc::clone(&object.place.file)).or_default().push(id.clone());
            }
        }
        let is_other = |path: &Arc<str>| {
            let defines = defines.get(path).unwrap_or(&nothing);
            self.files.get(path).is_none_or(|of_file| of_file.defines != *defines)
        };
        touched.extend(files.keys().filter(|path| is_other(path)).cloned());
        self.files.retain(|path, _| files.contains_key(path));
        for path in touched {
            let Some(file) = files.get(&path) else { continue };
            let defines = defines.remove(&path).unwrap_or_default();
            let left = left.remove(&path).unwrap_or_default();
            let of_file = self.of_file(&path, file, assignment.group_of(&path), defines, left);
            self.files.insert(path, Arc::new(of_file));
        }
    }

    fn of_file(
        &self,
        path: &Arc<str>,
        file: &FileState,
        group: Option<GroupName>,
        defines: Vec<(GroupName, Place)>,
        left: Vec<ObjectId>,
    ) -> OfFile {
        let ids: BTreeSet<ObjectId> = ids_of(file, group.as_ref()).into_iter().chain(left).collect();
        let served = ids.iter().filter_map(|id| Some((&id.key, self.served.get(id)?)));
        let served: Vec<_> = served.filter(|(_, object)| object.place.file == *path).collect();
        let groups = defines.iter().map(|(name, Place { line, column, .. })| {
            let (group, key) = (name.clone(), FileObjectKey::NodeGroup);
            FileObject { group, key, line: *line, column: *column, is_last_good: false }
        });
        let mut objects: Vec<FileObject> =
            groups.chain(served.iter().map(|(key, object)| shown(key, object))).collect();
        objects.sort_by_key(|object| (object.line, object.column));
        let has_last_good = served.iter().any(|(_, object)| object.is_last_good);
        let is_unserved = |key: &Key| {
            !group.as_ref().is_some_and(|group| self.served.contains_key(&ObjectId::new(group, key.clone())))
        };
        let unserved = file.parsed.keys().into_iter().filter_map(|key| match key {
            Key::Resource(resource) if is_unserved(key) => Some((**resource).clone()),
            Key::Resource(_) | Key::Document(_) => None,
        });
        let unserved = unserved.collect();
        OfFile { group, defines, objects: objects.into(), unserved, has_last_good }
    }
}

fn shown(key: &Key, object: &Served) -> FileObject {
    let key = match key {
        Key::Resource(key) => FileObjectKey::Resource(Arc::clone(key)),
        Key::Document(key) => FileObjectKey::Document(key.clone()),
    };
    let Served { group, place: Place { line, column, .. }, is_last_good, .. } = object;
    FileObject { group: group.clone(), key, line: *line, column: *column, is_last_good: *is_last_good }
}

/// The objects that a file claims.
fn ids_of(file: &FileState, group: Option<&GroupName>) -> BTreeSet<ObjectId> {
    let Some(group) = group.filter(|_| !file.is_missing) else { return BTreeSet::new() };
    let stand_ins = file.parsed.stand_ins.keys().map(|key| Key::Document(key.clone()));
    let keys = file.earlier.keys().chain(file.parsed.keys()).cloned().chain(stand_ins);
    keys.map(|key| ObjectId::new(group, key)).collect()
}

/// The claims of a file: the objects that it defines, and the last good ones that it may still define.
fn claims_of(file: &FileState, group: &GroupName) -> BTreeMap<Key, Claim> {
    let new = |place: &Place, content, is_last_good| {
        let (group, place) = (group.clone(), place.clone());
        Claim { group, place, content, is_last_good, stand_in: None }
    };
    let mut claims = BTreeMap::<Key, Claim>::new();
    for (key, good) in &file.earlier {
        claims.insert(key.clone(), new(&good.place, Some(good.content.clone()), true));
    }
    for (key, place, content) in &file.parsed.objects {
        let last_good = || claims.get(key)?.content.clone();
        let (is_last_good, content) = (content.is_none(), content.clone().or_else(last_good));
        claims.insert(key.clone(), new(place, content, is_last_good));
    }
    for (key, stand_in) in &file.parsed.stand_ins {
        let claim = claims.entry(Key::Document(key.clone()));
        claim.or_insert_with(|| new(&stand_in.place, None, false)).stand_in = Some(Arc::clone(stand_in));
    }
    claims
}

/// The only claim, or that of the owner. If it is bad and was never good, the object that was served before.
fn choose(
    id: &ObjectId,
    claims: Vec<Claim>,
    before: Option<&Served>,
    findings: &mut Findings,
) -> Option<Served> {
    let is_contested = claims.len() > 1;
    let is_owner =
        |claim: &&Claim| !is_contested || before.is_some_and(|before| before.place.file == claim.place.file);
    let owner = claims.iter().find(is_owner);
    if is_contested {
        report(id, &claims, owner, findings);
    }
    let last_good = || {
        let good = before.filter(|before| before.is_good);
        good.map(|before| Served { is_last_good: true, ..before.clone() })
    };
    let Some(owner) = owner else { return last_good().or_else(|| stand_in_of(&claims)) };
    let (group, place) = (owner.group.clone(), owner.place.clone());
    match &owner.content {
        Some(content) => {
            let (content, is_last_good) = (content.clone(), owner.is_last_good);
            Some(Served { content, group, place, is_last_good, is_good: true })
        }
        None => {
            let stands_in = || stand_in_of(std::slice::from_ref(owner));
            let last_good = last_good().map(|last_good| Served { group, place, ..last_good });
            last_good.or_else(stands_in)
        }
    }
}

/// The stand-in for claims of which none is good, or none is better than the others.
fn stand_in_of(claims: &[Claim]) -> Option<Served> {
    let first = claims.first()?;
    let said = claims.iter().filter_map(|claim| {
        let document = claim.content.as_ref().and_then(Content::document);
        document.or(claim.stand_in.as_ref()).map(|document| &**document)
    });
    let content = Content::Document(xds_routes::stand_in(said)?);
    let (group, place) = (first.group.clone(), first.place.clone());
    Some(Served { content, group, place, is_last_good: false, is_good: false })
}

fn report(id: &ObjectId, claims: &[Claim], owner: Option<&Claim>, findings: &mut Findings) {
    let (code, of_group) = match &id.group {
        Some(group) => ("duplicate-resource", format!(" of the group `{group}`")),
        None => ("duplicate-document", String::new()),
    };
    for claim in claims {
        let effect = match owner {
            Some(owner) if owner.place.file == claim.place.file => {
                "this one came first and is served".to_owned()
            }
            Some(owner) => format!("the one in {} came first and is served", owner.place.file),
            None => "none of them is served".to_owned(),
        };
        let message = format!("{} is defined in {} files{of_group}; {effect}", id.key, claims.len());
        let others = claims.iter().filter(|other| other.place.file != claim.place.file);
        let related = others.take(MAX_RELATED).map(|other| other.place.clone()).collect();
        let error = diagnostic(code, claim.place.clone(), message);
        findings.add(&claim.place.file, Diagnostic { related, ..error });
    }
}

/// More places do not help.
const MAX_RELATED: usize = 10;
