//! The facts about a document that the reader of its kind gets.

use super::fields::{Object, Reader};
use crate::model::{DocumentKey, Kind};

/// The facts about a document that the reader of a kind has besides its fields.
pub(crate) struct Context<'a> {
    /// The kind.
    pub(crate) kind: Kind,
    /// `apiVersion` as written, one that the kind has; empty only for an SMI document without it.
    pub(crate) api_version: &'a str,
    /// The identity; its namespace is that of references which name none.
    pub(crate) key: &'a DocumentKey,
}

impl Context<'_> {
    /// The version without its group: `v1`, `v1alpha2`; empty if the document names none.
    pub(crate) fn version(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Warns if the document does not say in which version it is.
    pub(crate) fn warn_of_version(&self, document: &Object<'_>, newest: &str, reader: &mut Reader) {
        if self.api_version.is_empty() {
            let message = format!("the document has no `apiVersion`; it is read as {newest}");
            reader.warn("missing-version", document.spot(), message);
        }
    }
}
