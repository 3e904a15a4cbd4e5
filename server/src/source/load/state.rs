//! The state of the files from one load to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::{GroupName, Layer, NodeGroup, Resource, ResourceKey, Version};
use xds_codec::{Limits, Place};
use xds_control::model::Texts;
use xds_control::model::document::GroupedDocuments;
use xds_routes::{Document, DocumentKey};

use super::objects::Objects;
use super::parsed::Parsed;
use crate::source::read::Scan;

/// The state of the files. The state of a server that has never loaded anything is empty.
#[derive(Clone, Debug, Default)]
pub struct FilesState {
    pub(super) files: Files,
    /// The group of each directory that has a node group of its own.
    pub(super) directories: BTreeMap<Arc<str>, DirectoryGroup>,
    /// The definition of each group that files define, those included whose removal is postponed.
    pub(super) definitions: BTreeMap<GroupName, NodeGroup>,
    /// The objects that are served.
    pub(super) objects: Objects,
    /// True if a load was complete, in this process or in one before.
    pub(super) is_complete: bool,
}

/// The files by path; those that have not changed are shared by the states.
pub(super) type Files = BTreeMap<Arc<str>, Arc<FileState>>;

/// One file.
#[derive(Clone, Debug)]
pub(super) struct FileState {
    /// Hash of the content that was parsed; `None` if there was none.
    pub(super) hash: Option<Version>,
    /// When that content was first seen.
    pub(super) loaded_at: SystemTime,
    /// The contents.
    pub(super) parsed: Arc<Parsed>,
    /// The earlier content of resources and documents that are, or may be, in the file, and are not good in the present one.
    pub(super) earlier: BTreeMap<Key, Good>,
    /// The last good node group of the file, if one is, or may be, in it.
    pub(super) group: Option<GoodGroup>,
    /// True if the file was missing in the last scan, and its removal is postponed.
    pub(super) is_missing: bool,
}

/// The identity of an object in its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A resource, of the group that the file belongs to.
    Resource(Arc<ResourceKey>),
    /// A route document. Documents have one name in all groups, because they refer to each other across them.
    Document(DocumentKey),
}

/// The content of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// A resource.
    Resource(Arc<Resource>),
    /// A route document. Holds secrets if it is a Secret.
    Document(Arc<Document>),
}

impl Content {
    pub(super) fn document(&self) -> Option<&Arc<Document>> {
        match self {
            Self::Resource(_) => None,
            Self::Document(document) => Some(document),
        }
    }
}

/// An object as it was when it last was good.
#[derive(Clone, Debug)]
pub(super) struct Good {
    pub(super) content: Content,
    pub(super) place: Place,
}

/// A node group as it was when it last was good.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GoodGroup {
    pub(super) definition: NodeGroup,
    pub(super) place: Place,
}

/// The node group of one directory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DirectoryGroup {
    /// The file that defines it.
    pub(super) path: Arc<str>,
    pub(super) definition: NodeGroup,
    pub(super) place: Place,
    /// True if nothing defines it any more, and its removal is postponed.
    pub(super) is_leaving: bool,
}

/// The identity of an object in all files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    /// The group of a resource; `None` for a document.
    pub(super) group: Option<GroupName>,
    pub(super) key: Key,
}

/// An object that is served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served {
    pub(super) content: Content,
    /// The group of the directory.
    pub(super) group: GroupName,
    /// In the file that owns it.
    pub(super) place: Place,
    /// True if it is not what the file says now, because that is broken.
    pub(super) is_last_good: bool,
    /// True if a file says it, or did; what [stands in](xds_routes::stand_in) for a document that never was good is none.
    pub(super) is_good: bool,
}

impl FilesState {
    /// The objects that are served: groups and resources, and documents.
    pub(crate) fn served(&self) -> (Layer, GroupedDocuments) {
        (self.objects.layer.clone(), (*self.objects.documents).clone())
    }

    /// The same, of which nobody knows what is of which file: the next load looks at everything.
    #[cfg(test)]
    pub(super) fn forgetful(&self) -> Self {
        let mut state = self.clone();
        state.objects.forget();
        state
    }

    /// The texts of the scan that this is the state of, without those of documents only, and of files with an object that
    /// is served as an earlier text has it: that begins somewhere else.
    pub(crate) fn texts(&self, scan: &Scan, limits: &Limits) -> Texts {
        let is_old = |path: &str| self.objects.files.get(path).is_some_and(|of_file| of_file.has_last_good);
        let is_wanted = |path: &str| {
            let mut good = self.files.get(path).into_iter().flat_map(|file| file.good());
            good.any(|(key, _)| matches!(key, Key::Resource(_))) && !is_old(path)
        };
        let files = scan.files.iter().filter(|(path, _)| is_wanted(path));
        let files =
            files.filter_map(|(path, read)| Some((Arc::clone(path), Arc::clone(&read.as_ref().ok()?.bytes))));
        Texts::new(files.collect(), limits)
    }
}

impl ObjectId {
    /// The identity of an object in a file of that group.
    pub(super) fn new(group: &GroupName, key: Key) -> Self {
        let group = match &key {
            Key::Resource(_) => Some(group.clone()),
            Key::Document(_) => None,
        };
        Self { group, key }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(key) => key.fmt(f),
            Self::Document(key) => key.fmt(f),
        }
    }
}

impl FileState {
    /// A file of which nothing is known yet.
    pub(super) fn new(now: SystemTime) -> Self {
        Self {
            hash: None,
            loaded_at: now,
            parsed: Arc::default(),
            earlier: BTreeMap::new(),
            group: None,
            is_missing: false,
        }
    }

    /// Takes over what is good in a new content; what is bad, or may be hidden in what cannot be read, stays as it was.
    pub(super) fn take(&mut self, hash: Option<Version>, mut parsed: Parsed, now: SystemTime) {
        self.is_missing = false;
        self.hash = hash;
        self.loaded_at = now;
        let (keys, good) = (parsed.keys(), parsed.good().map(|(key, _)| key).collect::<BTreeSet<_>>());
        let may_be_hidden = |key| parsed.has_unreadable || keys.contains(key);
        let is_earlier = |key| parsed.is_broken || (may_be_hidden(key) && !good.contains(key));
        let earlier = self.good().filter(|(key, _)| is_earlier(*key));
        self.earlier = earlier.map(|(key, good)| (key.clone(), good)).collect();
        if !parsed.is_broken {
            let n_groups = parsed.groups.len();
            if n_groups == 0 && !parsed.has_unreadable {
                self.group = None;
            }
            if let [(place, Some(definition))] = &*parsed.groups {
                self.group = Some(GoodGroup { definition: definition.clone(), place: place.clone() });
            }
        }
        if parsed.is_broken || parsed.has_unreadable {
            parsed.keep_stand_ins(&self.parsed);
        }
        self.parsed = Arc::new(parsed);
    }

    /// The last good version of each resource and document that is, or may be, in the file. Of equal keys the last counts.
    pub(super) fn good(&self) -> impl Iterator<Item = (&Key, Good)> {
        let earlier = self.earlier.iter().map(|(key, good)| (key, good.clone()));
        earlier.chain(self.parsed.good())
    }

    /// Returns `true` if the last good contents are used because the whole text is broken.
    pub(super) fn is_last_good(&self) -> bool {
        self.parsed.is_broken && (self.group.is_some() || !self.earlier.is_empty())
    }
}

/// The directory of a path, as text.
pub(super) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    }
}

/// The directory of a file, and those above it, from the inside out.
pub(super) fn directories_above(path: &str) -> impl Iterator<Item = &str> {
    let first = Some(parent(path));
    std::iter::successors(first, |directory| (!["/", "."].contains(directory)).then(|| parent(directory)))
}
