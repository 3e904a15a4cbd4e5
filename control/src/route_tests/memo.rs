//! RouteTests that were read already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use xds_codec::Diagnostic;
use xds_routes::model::Source;
use xds_routes::{Document, DocumentKey, Placed};

use super::expect::RouteTest;
use super::read::read;

/// What a RouteTest says, or its faults.
type Read = Arc<Result<RouteTest, Vec<Diagnostic>>>;

/// Remembers what RouteTests say, so that a change reads only those that changed.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    known: Mutex<BTreeMap<DocumentKey, (Arc<Source>, Read)>>,
}

impl Memo {
    /// What a RouteTest says.
    pub(crate) fn read(&self, document: &Document) -> Read {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((source, read)) = known.get(&document.key)
            && Arc::ptr_eq(source, &document.source)
        {
            return Arc::clone(read);
        }
        let read = Arc::new(read(&document.place.file, &document.source.tree()));
        known.insert(document.key.clone(), (Arc::clone(&document.source), Arc::clone(&read)));
        read
    }

    /// Forgets all but these.
    pub(crate) fn forget_others(&self, kept: &[&Placed]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > kept.len() {
            let kept: BTreeSet<&DocumentKey> = kept.iter().map(|placed| &placed.document.key).collect();
            known.retain(|key, _| kept.contains(key));
        }
    }
}
