//! The files as a source: what is watched, when it is read again, and what of it is served (D5).
//!
//! [`walk`] finds the files, [`read`] reads them, [`load`] makes the next state of that and of the previous one, without I/O
//! and without a clock, [`timing`] decides when to look, and [`watch`] drives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_api::document::GroupedDocuments;
use xds_api::handle::FileStatus;
use xds_cache::{Layer, ResourceKey};

use texts::Texts;

pub mod deadline;
mod events;
mod hidden;
pub mod load;
pub mod names;
pub mod read;
pub mod texts;
pub mod timing;
pub mod walk;
pub mod watch;

/// What the files give now, for the publisher and for the status.
#[derive(Clone, Debug)]
pub struct FileLoad {
    /// Groups and resources: the base layer (D6).
    pub layer: Layer,
    /// The route documents, each with the group of its directory. They have one name in all groups.
    pub documents: GroupedDocuments,
    /// The watched files by path, and besides them the roots and directories that cannot be read.
    pub files: BTreeMap<Arc<str>, FileStatus>,
    /// The resources that files define and that are not in the layer, because something is wrong with them.
    pub unusable: BTreeSet<ResourceKey>,
    /// The texts of the files that hold resources and are served as they are now.
    pub texts: Texts,
    /// Whether this may be served: false until the first load that is clean or has last good contents for what is not.
    pub is_complete: bool,
}

/// Who wants a load to be published, the most insistent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Nobody: the files changed. What differs is not compared, and a load that removes too much is held back.
    ByNobody,
    /// Somebody, who gets the difference. A load that removes too much is held back.
    Plainly,
    /// Somebody who knows what the load removes.
    Confirmed,
}
