//! Faults that only several files together show.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_codec::Diagnostic;

/// The faults, by file.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) BTreeMap<Arc<str>, Vec<Diagnostic>>);

impl Findings {
    pub(super) fn add(&mut self, path: &Arc<str>, diagnostic: Diagnostic) {
        self.0.entry(Arc::clone(path)).or_default().push(diagnostic);
    }
}
