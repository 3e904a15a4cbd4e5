//! The names of documents and objects in paths and queries.

use std::collections::BTreeMap;

use serde::Deserialize;
use xds_control::model::document::{self, NO_NAMESPACE};
use xds_routes::{DocumentKey, Kind};

use crate::page;
use crate::problem::ApiError;

/// The documents or objects that are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

impl Filter {
    /// Returns `true` if an object is asked for.
    pub(crate) fn takes(&self, key: &DocumentKey) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == key.kind.as_str())
            && self.namespace.as_deref().is_none_or(|namespace| namespace == document::namespace(key))
            && self.name.as_deref().is_none_or(|name| name == &*key.name)
    }

    /// Refuses a kind that does not exist, which nothing would ever match.
    pub(crate) fn check(self) -> Result<Self, ApiError> {
        match &self.kind {
            Some(kind) if Kind::of_name(kind).is_none() => Err(ApiError::BadRequest(no_kind(kind))),
            Some(_) | None => Ok(self),
        }
    }

    /// The size of the page that is asked for, and the object that it comes after.
    pub(crate) fn page(&self) -> Result<(usize, Option<DocumentKey>), ApiError> {
        let after = self.after.as_deref().map(|after| {
            let [kind, namespace, name] = page::parts(after)?;
            document_key(&kind, &namespace, &name).map_err(|_| page::no_place(after))
        });
        Ok((page::limit(self.limit)?, after.transpose()?))
    }

    /// Returns `true` if everything is asked for.
    pub(crate) fn is_none(&self) -> bool {
        self.kind.is_none() && self.namespace.is_none() && self.name.is_none() && self.after.is_none()
    }
}

/// The place of a document in a list.
pub(crate) fn place_of(key: &DocumentKey) -> String {
    page::place(&[key.kind.as_str(), document::namespace(key), &key.name])
}

/// Reads the name of a document from a path.
pub(crate) fn document_key(kind: &str, namespace: &str, name: &str) -> Result<DocumentKey, ApiError> {
    let kind = Kind::of_name(kind).ok_or_else(|| ApiError::NotFound(no_kind(kind)))?;
    if kind.is_cluster_scoped() && namespace != NO_NAMESPACE {
        let advice = format!("a {kind} has no namespace: write {NO_NAMESPACE:?} in place of {namespace:?}");
        return Err(ApiError::NotFound(advice));
    }
    Ok(DocumentKey::new(kind, namespace, name))
}

fn no_kind(kind: &str) -> String {
    let kinds: BTreeMap<&str, ()> = Kind::ALL.iter().map(|kind| (kind.as_str(), ())).collect();
    let kinds: Vec<&str> = kinds.into_keys().collect();
    format!("{kind:?} is not a kind of route documents: use one of {}", kinds.join(", "))
}
