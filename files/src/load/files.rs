//! One file as the last scans found it, and the directories above it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::{NodeGroup, Version};
use xds_codec::Place;

use super::content::{Good, GoodGroup, Key};
use super::parsed::Parsed;

/// The files by path; those that have not changed are shared by the states.
pub(super) type Files = BTreeMap<Arc<str>, Arc<FileState>>;

/// A file, with the last good versions of its objects.
#[derive(Clone, Debug)]
pub(super) struct FileState {
    /// Hash of the content that was parsed; `None` if there was none.
    pub(super) hash: Option<Version>,
    /// When that content was first seen.
    pub(super) loaded_at: SystemTime,
    /// The contents.
    pub(super) parsed: Arc<Parsed>,
    /// The earlier contents of resources and documents that are, or may be, in the file, but are not good there now.
    pub(super) earlier: BTreeMap<Key, Good>,
    /// The last good node group of the file, if the file has one, or may have one.
    pub(super) group: Option<GoodGroup>,
    /// True if the file was missing in the last scan, and its removal is postponed.
    pub(super) is_missing: bool,
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

impl FileState {
    /// A new file.
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

    /// Takes in a new content. Bad objects, and objects that may be in an unreadable part, stay as they were.
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
