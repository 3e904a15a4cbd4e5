//! Permissions to refer: namespaces and ReferenceGrants.

use super::lookup::Lookup;
use crate::model::{Document, Kind, ObjectRef};

/// The label that every namespace has, with its name as value.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Lookup<'_> {
    /// Returns `true` if an object of `from_kind` in `from_namespace` may refer to `to`: both are in the same namespace, or a ReferenceGrant
    /// in the namespace of `to` permits it. `to` may be missing.
    pub(crate) fn is_granted(&self, from_kind: Kind, from_namespace: &str, to: &ObjectRef) -> bool {
        if *to.namespace == *from_namespace {
            return true;
        }
        let Some(grants) = self.grants.get(&*to.namespace) else { return false };
        grants.iter().any(|grant| {
            let from = grant
                .from
                .iter()
                .any(|from| from_kind.is_named(&from.group, &from.kind) && from.namespace == from_namespace);
            let is_meant = |name: &Option<String>| name.as_ref().is_none_or(|name| **name == *to.name);
            from && grant
                .to
                .iter()
                .any(|one| one.group == to.group && one.kind == to.kind && is_meant(&one.name))
        })
    }
}

/// The labels of a namespace, sorted by key: those of its document if there is one, and `kubernetes.io/metadata.name`. A namespace
/// exists even without a document.
pub(crate) fn namespace_labels(document: Option<&Document>, namespace: &str) -> Vec<(String, String)> {
    let mut labels = document.map(|document| document.meta.labels.to_vec()).unwrap_or_default();
    labels.retain(|(key, _)| key != NAMESPACE_NAME_LABEL);
    labels.push((NAMESPACE_NAME_LABEL.to_owned(), namespace.to_owned()));
    labels.sort();
    labels
}
