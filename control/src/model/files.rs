//! The watched files: their contents, their state, and the outcome of a load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::{GroupName, Layer, ResourceKey, Revision, Version};
use xds_codec::Diagnostic;
use xds_routes::DocumentKey;

use super::document::GroupedDocuments;
use super::revision::ChangedObject;
use super::texts::Texts;

/// The contents of the files now, for the publisher and for the status.
#[derive(Clone, Debug)]
pub struct FileLoad {
    /// Groups and resources: the base layer (D6).
    pub layer: Layer,
    /// The route documents, each with the group of its directory. They have one name in all groups.
    pub documents: Arc<GroupedDocuments>,
    /// The watched files by path, and besides them the roots and directories that cannot be read.
    pub files: BTreeMap<Arc<str>, FileStatus>,
    /// The resources that files define and that are not in the layer, because something is wrong with them.
    pub unusable: BTreeSet<ResourceKey>,
    /// The texts of the files that hold resources and are served as they are now.
    pub texts: Texts,
    /// True if this may be served: false until the first load that is clean or has last good contents for what is not.
    pub is_complete: bool,
}

/// The one who wants a load to be published, the most insistent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Nobody: the files changed. What differs is not compared, and a load that removes too much waits for confirmation.
    ByNobody,
    /// Somebody, who gets the difference. A load that removes too much waits for confirmation.
    Plainly,
    /// Somebody who knows what the load removes.
    Confirmed,
}

/// A watched file.
#[derive(Clone, Debug)]
pub struct FileStatus {
    /// The path as it was found.
    pub path: Arc<str>,
    /// Content hash; `None` if it could not be read.
    pub hash: Option<Version>,
    /// When this content was first read.
    pub loaded_at: SystemTime,
    /// The objects that it gives, in the order of the text; shared by copies of the status.
    pub objects: Arc<[FileObject]>,
    /// Faults and doubts.
    pub diagnostics: Vec<Diagnostic>,
    /// True if the whole file could not be used and its last good contents are served.
    pub is_last_good: bool,
}

/// An object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileObject {
    /// The group that it is in.
    pub group: GroupName,
    /// Its identity in the file.
    pub key: FileObjectKey,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// True if its last good contents are served, because the present ones are broken.
    pub is_last_good: bool,
}

/// The identity of an object in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileObjectKey {
    /// The group itself.
    NodeGroup,
    /// A resource.
    Resource(Arc<ResourceKey>),
    /// A route document.
    Document(DocumentKey),
}

impl FileObject {
    /// The kind: a resource type's slug, `NodeGroup`, or the kind of a route document.
    #[must_use]
    pub fn kind(&self) -> &str {
        match &self.key {
            FileObjectKey::NodeGroup => "NodeGroup",
            FileObjectKey::Resource(key) => key.resource_type.slug(),
            FileObjectKey::Document(key) => key.kind.as_str(),
        }
    }

    /// Its name; of a route document, its namespace, `/` and its name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.key {
            FileObjectKey::NodeGroup => self.group.to_string(),
            FileObjectKey::Resource(key) => key.name.to_string(),
            FileObjectKey::Document(key) if key.namespace.is_empty() => key.name.to_string(),
            FileObjectKey::Document(key) => format!("{}/{}", key.namespace, key.name),
        }
    }
}

/// The load of the files that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServedLoad {
    /// None: the first one is not complete.
    None,
    /// An earlier one, wholly or in part: the last one waits for confirmation, was refused, or is held by RouteTests.
    Earlier,
    /// The last one.
    Current,
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    /// The revision that is served now.
    pub revision: Revision,
    /// The difference that it made.
    pub difference: Vec<ChangedObject>,
    /// How many errors there are in all files.
    pub n_errors: usize,
    /// Why the load waits for confirmation (`--hold-mass-removal`), if it is.
    pub unconfirmed: Option<String>,
}
