//! The files of a store that several servers share: the base of every one of them.
//!
//! A server's record of its own files ([`stored_files`]) has no secrets, because it is only compared with. Here objects are stored whole,
//! because every server serves them from here. Each file has a record with the places of its objects, so a line that is inserted at the
//! top of a file changes one value.
//!
//! The base and the places follow from the store alone. So servers at the same revision serve the same bytes, and show the same places.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::time::{from_millis, millis};
use xds_cache::{GroupName, Origin, Resource, ResourceDraft};
use xds_codec::{Codec, Place};
use xds_store::{BlobHash, State, Store, StoreError};

use crate::accepted::{Accepted, Base, Files};
use crate::differing::differing;
use crate::key::{CONTENTS, PATHS, StoreKey, Subject, below};
use crate::model::document::GroupedDocument;
use crate::model::{FileObject, FileObjectKey, FileStatus};
use crate::plan::Plan;
use crate::stored_files::{self, Kept};
use crate::{documents, resource_record, stored_overrides};

/// What a state of the store says about files.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedFiles {
    /// The objects, each with its place.
    pub(crate) base: Base,
    /// The files, without their errors and warnings.
    pub(crate) files: Arc<Files>,
    /// The records that could not be read: why, by key.
    pub(crate) unreadable: BTreeMap<String, String>,
}

/// A file, as JSON.
#[derive(Debug, Deserialize, Serialize)]
struct FileRecord {
    /// The hash of its contents; absent if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// When it was read, in milliseconds since 1970.
    at: u64,
    /// The key, line and column of each object, in the order of the text.
    objects: Vec<(String, u32, u32)>,
}

/// Reads the files of a state.
///
/// # Errors
///
/// If the store itself fails.
pub(crate) fn read(codec: &Codec, store: &dyn Store, keys: &State) -> Result<SharedFiles, StoreError> {
    let all = CONTENTS.into_iter().chain([PATHS]).flat_map(|prefix| below(keys, prefix));
    let all: BTreeSet<String> = all.map(|(text, _)| text.to_string()).collect();
    read_changed((codec, store), keys, SharedFiles::default(), &all)
}

/// Reads the values of the keys that changed. The result is that of [`read`], except that an object whose record cannot be read stays as
/// it is known.
///
/// # Errors
///
/// If the store itself fails.
pub(crate) fn read_changed(
    (codec, store): (&Codec, &dyn Store),
    keys: &State,
    known: SharedFiles,
    changed: &BTreeSet<String>,
) -> Result<SharedFiles, StoreError> {
    let mut shared = known;
    let mut records: Vec<(Arc<str>, FileRecord)> = Vec::new();
    for text in changed {
        let Some(key) = StoreKey::parse(text) else { continue };
        let path = if let StoreKey::FilePath(path) = &key { Some(path) } else { None };
        if path.is_none() && !key.is_of_file() {
            continue;
        }
        shared.unreadable.remove(text);
        let value = keys.get(&**text).map(|hash| value(store, *hash)).transpose()?;
        let read = match (value, path) {
            (None, _) => {
                shared.take_out(&key);
                Ok(())
            }
            (Some(value), Some(path)) => value.and_then(|value| {
                let record = serde_json::from_slice(&value).map_err(|error| error.to_string())?;
                records.push((Arc::clone(path), record));
                Ok(())
            }),
            (Some(value), None) => value.and_then(|value| shared.take_in(codec, &key, &value)),
        };
        if let Err(reason) = read {
            let problem = format!("the stored {} of a file cannot be read: {reason}", key.what());
            shared.unreadable.insert(text.clone(), problem);
        }
    }
    // An object that moves to another file is in the records of both.
    for (path, record) in records {
        shared.place(path, record);
    }
    Ok(shared)
}

/// The plan that makes `after` the files of the store; empty if they say the same. Places are stored along with other changes.
pub(crate) fn plan(codec: &Codec, accepted: &Accepted, (base, files): (&Base, &Files), keys: &State) -> Plan {
    let mut plan = stored_files::plan(codec, Kept::Whole, Some(&accepted.files_say()), base, keys);
    if plan.is_empty() && (files.is_empty() || !accepted.files.is_empty()) {
        return plan;
    }
    let is_known =
        |file: &FileStatus| accepted.files.get(&file.path).is_some_and(|known| is_same(known, file));
    for file in files.values().filter(|file| !is_known(file)) {
        plan.push((StoreKey::FilePath(Arc::clone(&file.path)), Some(record(file))));
    }
    for path in accepted.files.keys().filter(|path| !files.contains_key(*path)) {
        plan.push((StoreKey::FilePath(Arc::clone(path)), None));
    }
    plan
}

/// `after`, sharing with `before` what both have: a set of files that was read anew is otherwise held twice.
pub(crate) fn onto(before: &Base, after: &Base) -> Base {
    let nothing = Resources::new();
    let mut base = before.clone();
    let layer = Arc::make_mut(&mut base.layer);
    for (name, old, new) in differing(&before.layer.groups, &after.layer.groups) {
        let Some(new) = new else {
            layer.groups.remove(name);
            continue;
        };
        let old = old.map_or(&nothing, |old| &old.resources);
        let mut resources = old.clone();
        for (key, _, new) in differing(old, &new.resources) {
            match new {
                Some(new) => _ = resources.insert(Arc::clone(new)),
                None => _ = resources.remove(key),
            }
        }
        layer.groups.insert(name.clone(), LayerGroup { resources, ..new.clone() });
    }
    let documents = Arc::make_mut(&mut base.documents);
    for (key, _, new) in differing(&before.documents, &after.documents) {
        match new {
            Some(new) => _ = documents.insert(key.clone(), new.clone()),
            None => _ = documents.remove(key),
        }
    }
    base
}

/// Files as every server knows them: without their errors and warnings, and since when they are as they are.
pub(crate) fn as_stored(accepted: &Accepted, files: &Files) -> Files {
    let stored = |file: &FileStatus| match accepted.files.get(&file.path).filter(|known| is_same(known, file))
    {
        Some(known) => known.clone(),
        None => FileStatus { diagnostics: vec![], ..file.clone() },
    };
    files.iter().map(|(path, file)| (Arc::clone(path), stored(file))).collect()
}

fn is_same(known: &FileStatus, file: &FileStatus) -> bool {
    known.hash == file.hash && known.objects == file.objects
}

impl SharedFiles {
    /// What is accepted.
    pub(crate) fn of(accepted: &Accepted) -> Self {
        let (base, files) = (accepted.files_say(), Arc::clone(&accepted.files));
        Self { base, files, unreadable: BTreeMap::clone(&accepted.unreadable) }
    }

    fn take_in(&mut self, codec: &Codec, key: &StoreKey, value: &Bytes) -> Result<(), String> {
        match key.subject() {
            Subject::Document(name) => {
                let known = self.base.documents.get(name);
                let place = known.map_or_else(nowhere, |known| known.document.place.clone());
                let read = documents::read_record(name, value);
                let stand_in = || {
                    documents::stand_in_of_record(name, value).filter(|_| read.is_err() && known.is_none())
                };
                let found = read.as_ref().ok().cloned().or_else(stand_in);
                if let Some(found) = found {
                    Arc::make_mut(&mut self.base.documents).insert(name.clone(), at(found, place));
                }
                read.map(drop)
            }
            Subject::Resource(name, resource_key) => {
                let resource = resource_record::read(value).map_err(|error| error.to_string())?;
                if resource.key() != resource_key {
                    return Err(format!("it holds {}", resource.key()));
                }
                let group = Arc::make_mut(&mut self.base.layer).groups.entry(name.clone()).or_default();
                let known = group.resources.get(resource_key).map(|known| known.origin().clone());
                let origin = known.unwrap_or_else(|| origin(&nowhere()));
                group.resources.insert(with_origin(&resource, origin));
                Ok(())
            }
            Subject::Group(name) => {
                let group = Arc::make_mut(&mut self.base.layer).groups.entry(name.clone()).or_default();
                stored_overrides::take_in(codec, group, &StoreKey::Group(name.clone()), value)
            }
            Subject::Label(_) | Subject::Weights(_) | Subject::Other => Ok(()),
        }
    }

    fn take_out(&mut self, key: &StoreKey) {
        if let StoreKey::FilePath(path) = key {
            Arc::make_mut(&mut self.files).remove(path);
            return;
        }
        match key.subject() {
            Subject::Document(name) => _ = Arc::make_mut(&mut self.base.documents).remove(name),
            Subject::Group(name) | Subject::Resource(name, _) => {
                let groups = &mut Arc::make_mut(&mut self.base.layer).groups;
                let Some(group) = groups.get_mut(name) else { return };
                if let Subject::Resource(_, key) = key.subject() {
                    group.resources.remove(key);
                } else {
                    group.definition = None;
                }
                if stored_overrides::is_empty(group) {
                    groups.remove(name);
                }
            }
            Subject::Label(_) | Subject::Weights(_) | Subject::Other => {}
        }
    }

    /// Takes in a file, and gives its objects their places.
    fn place(&mut self, path: Arc<str>, record: FileRecord) {
        let mut objects = Vec::new();
        for (text, line, column) in &record.objects {
            let (line, column) = (*line, *column);
            let place = Place { file: Arc::clone(&path), line, column };
            let Some((group, key)) = StoreKey::parse(text).and_then(|key| self.place_object(&key, place))
            else {
                continue;
            };
            objects.push(FileObject { group, key, line, column, is_last_good: false });
        }
        let status = FileStatus {
            path: Arc::clone(&path),
            hash: record.hash.and_then(|hash| hash.parse().ok()),
            loaded_at: from_millis(record.at),
            objects: objects.into(),
            diagnostics: vec![],
            is_last_good: false,
        };
        Arc::make_mut(&mut self.files).insert(path, status);
    }

    /// Gives an object its place; `None` if it is not there, or has no place in a file.
    fn place_object(&mut self, key: &StoreKey, place: Place) -> Option<(GroupName, FileObjectKey)> {
        match key.subject() {
            Subject::Group(name) => Some((name.clone(), FileObjectKey::NodeGroup)),
            Subject::Document(name) => {
                let known = self.base.documents.get(name)?.clone();
                let group = known.group.clone();
                if known.document.place != place {
                    Arc::make_mut(&mut self.base.documents).insert(name.clone(), at(known, place));
                }
                Some((group, FileObjectKey::Document(name.clone())))
            }
            Subject::Resource(name, key) => {
                let known = self.base.layer.resources(name)?.get(key)?;
                let (own, origin) = (Arc::new(known.key().clone()), origin(&place));
                if *known.origin() != origin {
                    let moved = with_origin(known, origin);
                    let groups = &mut Arc::make_mut(&mut self.base.layer).groups;
                    groups.get_mut(name)?.resources.insert(moved);
                }
                Some((name.clone(), FileObjectKey::Resource(own)))
            }
            Subject::Label(_) | Subject::Weights(_) | Subject::Other => None,
        }
    }
}

fn record(file: &FileStatus) -> Bytes {
    let objects = file.objects.iter().map(|object| {
        let key = match &object.key {
            FileObjectKey::NodeGroup => StoreKey::FileGroup(object.group.clone()),
            FileObjectKey::Resource(key) => StoreKey::File(object.group.clone(), (**key).clone()),
            FileObjectKey::Document(key) => StoreKey::FileDocument(key.clone()),
        };
        (key.to_string(), object.line, object.column)
    });
    let hash = file.hash.as_ref().map(ToString::to_string);
    let record = FileRecord { hash, at: millis(file.loaded_at), objects: objects.collect() };
    // Strings and numbers always have a JSON form.
    serde_json::to_vec(&record).unwrap_or_default().into()
}

fn at(mut grouped: GroupedDocument, place: Place) -> GroupedDocument {
    Arc::make_mut(&mut grouped.document).place = place;
    grouped
}

fn with_origin(resource: &Resource, origin: Origin) -> Arc<Resource> {
    Arc::new(Resource::new(ResourceDraft { origin, ..resource.to_draft() }))
}

fn origin(place: &Place) -> Origin {
    Origin::File { path: Arc::clone(&place.file), line: place.line, column: place.column }
}

/// The place of an object that no stored file claims: its record is of a server that kept no places.
fn nowhere() -> Place {
    Place { file: "a file".into(), line: 0, column: 0 }
}

fn value(store: &dyn Store, hash: BlobHash) -> Result<Result<Bytes, String>, StoreError> {
    Ok(store.blob(hash)?.ok_or_else(|| "its content is missing".to_owned()))
}
