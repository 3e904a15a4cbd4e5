//! The objects of files: their identities, and their contents.

use std::fmt;
use std::sync::Arc;

use xds_cache::{GroupName, NodeGroup, Resource, ResourceKey};
use xds_codec::Place;
use xds_routes::{Document, DocumentKey};

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
    /// True if it is an earlier version, because the present one is broken.
    pub(super) is_last_good: bool,
    /// True if a file has this content, or had it; false for a [stand-in](xds_routes::stand_in) of a document that was never good.
    pub(super) is_good: bool,
}

impl ObjectId {
    /// The identity of an object in a file of this group.
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
