//! The state of the files from one load to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::{GroupName, Layer, NodeGroup};
use xds_codec::Limits;
use xds_control::model::Texts;
use xds_control::model::document::GroupedDocuments;

use super::content::Key;
use super::files::{DirectoryGroup, Files};
use super::objects::Objects;
use crate::read::Scan;

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

impl FilesState {
    /// The objects that are served: groups and resources, and documents.
    pub fn served(&self) -> (Layer, GroupedDocuments) {
        (self.objects.layer.clone(), (*self.objects.documents).clone())
    }

    /// The state without the files of its objects, so that the next load looks at everything.
    #[cfg(test)]
    pub(super) fn forgetful(&self) -> Self {
        let mut state = self.clone();
        state.objects.forget();
        state
    }

    /// The texts of the scan that this is the state of, without those of documents only (RouteTests apart), and of files with an object that
    /// is served as an earlier text has it: that begins somewhere else.
    pub fn texts(&self, scan: &Scan, limits: &Limits) -> Texts {
        let is_old = |path: &str| self.objects.files.get(path).is_some_and(|of_file| of_file.has_last_good);
        let is_wanted = |path: &str| {
            let mut good = self.files.get(path).into_iter().flat_map(|file| file.good());
            good.any(|(key, _)| has_fields_to_find(key)) && !is_old(path)
        };
        let files = scan.files.iter().filter(|(path, _)| is_wanted(path));
        let files =
            files.filter_map(|(path, read)| Some((Arc::clone(path), Arc::clone(&read.as_ref().ok()?.bytes))));
        Texts::new(files.collect(), limits)
    }
}

/// Returns `true` for objects of which diagnostics are made when their places are forgotten.
fn has_fields_to_find(key: &Key) -> bool {
    match key {
        Key::Resource(_) => true,
        Key::Document(key) => key.kind.is_test(),
    }
}
