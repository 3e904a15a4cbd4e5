//! The scope of a caller: all that a write touches is in it, or nothing is written.

use xds_access::Scope;
use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups};
use xds_routes::DocumentKey;

use crate::key::StoreKey;
use crate::model::document::{DocumentState, namespace};
use crate::model::weights::WeightedObject;
use crate::model::{Write, WriteError};
use crate::plan::Plan;

/// Refuses a write that names an object out of scope, before anything shows whether that exists.
///
/// # Errors
///
/// [`WriteError::OutOfScope`] with the object.
pub(crate) fn check_named(scope: &Scope, write: &Write) -> Result<(), WriteError> {
    match write {
        Write::PutGroup(definition) => check_group(scope, &definition.name),
        Write::DeleteGroup(group)
        | Write::ReplaceResources { group, .. }
        | Write::PutResource { group, .. }
        | Write::DeleteResource { group, .. } => check_group(scope, group),
        Write::ApplyDocuments { group, documents, .. } => {
            group.iter().try_for_each(|group| check_group(scope, group))?;
            documents.iter().try_for_each(|document| check_document(scope, &document.key))
        }
        Write::DeleteDocument { key } => check_document(scope, key),
        Write::ChangeWeights { key, .. } => check_weighted(scope, &key.object),
        Write::StepRollouts { change, .. } => {
            change.iter().try_for_each(|(key, _)| check_weighted(scope, &key.object))
        }
        Write::ReplaceFiles { .. } => Err(out_of_scope("the set of all files".to_owned())),
        Write::EndOverrides | Write::Rollback { .. } | Write::Revert { .. } => Ok(()),
    }
}

/// Refuses a change that touches an object or a group out of scope. A group is touched if its clients are served something else.
///
/// # Errors
///
/// [`WriteError::OutOfScope`] with the first such object.
pub(crate) fn check_touched(
    scope: &Scope,
    plan: &Plan,
    (before, after): (&Groups, &Groups),
    documents: [&DocumentState; 2],
) -> Result<(), WriteError> {
    for (key, _) in plan {
        match key {
            StoreKey::Group(group) | StoreKey::Label(group) | StoreKey::Resource(group, _) => {
                check_group(scope, group)?;
            }
            StoreKey::Document(key) => {
                check_document(scope, key)?;
                for placed in documents.iter().filter_map(|state| state.translated.documents.get(key)) {
                    check_group(scope, &placed.group)?;
                }
            }
            StoreKey::Weights(rule) => check_weighted(scope, &rule.object)?,
            // They follow from the others.
            StoreKey::Rollout(_)
            | StoreKey::FileGroup(_)
            | StoreKey::File(..)
            | StoreKey::FileDocument(_)
            | StoreKey::FilePath(_)
            | StoreKey::DocumentStatus(_)
            | StoreKey::FilesHash
            | StoreKey::FileSets
            | StoreKey::Request(..)
            | StoreKey::Wave
            | StoreKey::EndedWave(_)
            | StoreKey::Previous(_) => {}
        }
    }
    differing(before, after).into_iter().try_for_each(|group| check_group(scope, group))
}

fn check_group(scope: &Scope, group: &GroupName) -> Result<(), WriteError> {
    if scope.groups.has(group.as_str()) { Ok(()) } else { Err(out_of_scope(format!("the group {group}"))) }
}

fn check_document(scope: &Scope, key: &DocumentKey) -> Result<(), WriteError> {
    if scope.namespaces.has(namespace(key)) { Ok(()) } else { Err(out_of_scope(key.to_string())) }
}

fn check_weighted(scope: &Scope, object: &WeightedObject) -> Result<(), WriteError> {
    match object {
        WeightedObject::Document(key) => check_document(scope, key),
        WeightedObject::Routes(group, _) => check_group(scope, group),
    }
}

fn out_of_scope(what: String) -> WriteError {
    WriteError::OutOfScope { what }
}
