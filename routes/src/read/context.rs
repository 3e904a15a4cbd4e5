//! The identity of a document, for the readers of its fields.

use super::fields::{Object, Reader};
use crate::model::{DocumentKey, Kind};

/// Identity and version of the document whose fields are read.
pub(crate) struct Context<'a> {
    /// The kind.
    pub(crate) kind: Kind,
    /// `apiVersion` as written; the kind has this version. Empty only for an SMI document without one.
    pub(crate) api_version: &'a str,
    /// The identity. References without a namespace are to its namespace.
    pub(crate) key: &'a DocumentKey,
}

impl Context<'_> {
    /// The version without its group: `v1`, `v1alpha2`; empty if the document names none.
    pub(crate) fn version(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Warns if the document has no `apiVersion`.
    pub(crate) fn warn_of_version(&self, document: &Object<'_>, newest: &str, reader: &mut Reader) {
        if self.api_version.is_empty() {
            let message = format!("the document has no `apiVersion`; it is read as {newest}");
            reader.warn("missing-version", document.spot(), message);
        }
    }
}
