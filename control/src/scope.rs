//! The scope of a caller: all that a write touches is in it, or nothing is written.

mod hosts;
mod nodes;

use xds_access::Scope;
use xds_cache::layer::differing;
use xds_cache::{GroupName, Groups, Node, Profile};
use xds_explain::Client;
use xds_routes::{Document, DocumentKey, Kind};

use crate::accepted::Accepted;
use crate::key::StoreKey;
use crate::model::document::{DocumentState, namespace};
use crate::model::weights::WeightedObject;
use crate::model::{Write, WriteError};
use crate::plan::Plan;
use crate::route_tests::{Whose, read};

/// Refuses a write that names an object out of scope, before anything shows whether that exists.
///
/// # Errors
///
/// [`WriteError::OutOfScope`] with the object. An object whose group alone is out of scope is [`WriteError::NotFound`], as if it did not
/// exist.
pub(crate) fn check_named(scope: &Scope, write: &Write, accepted: &Accepted) -> Result<(), WriteError> {
    let documents = &accepted.documents;
    match write {
        Write::PutGroup(definition) => check_group(scope, &definition.name),
        Write::DeleteGroup(group)
        | Write::ReplaceResources { group, .. }
        | Write::PutResource { group, .. }
        | Write::DeleteResource { group, .. } => check_group(scope, group),
        Write::ApplyDocuments { group, documents, .. } => {
            group.iter().try_for_each(|group| check_group(scope, group))?;
            let group = group.clone().unwrap_or_else(GroupName::default_group);
            documents.iter().try_for_each(|document| {
                check_document(scope, &document.key)?;
                check_tested(scope, document, &group, &accepted.groups)
            })
        }
        Write::DeleteDocument { key } => check_seen(scope, key, documents),
        Write::ChangeWeights { key, .. } => check_weighted(scope, &key.object, documents),
        Write::StepRollouts { change, .. } => {
            change.iter().try_for_each(|(key, _)| check_weighted(scope, &key.object, documents))
        }
        Write::ReplaceFiles { .. } => Err(out_of_scope("the set of all files".to_owned())),
        Write::EndOverrides | Write::Rollback { .. } | Write::Revert { .. } => Ok(()),
    }
}

/// Refuses a change that touches an object out of scope, or what a node out of scope is served.
///
/// Such nodes may get other routes of documents in the caller's namespaces, where the caller has only some, as long as the hosts and the
/// resources of other owners stay.
///
/// # Errors
///
/// [`WriteError::OutOfScope`] with the first such object. Only objects that the caller may see are named.
pub(crate) fn check_touched(
    scope: &Scope,
    plan: &Plan,
    (before, after): (&Groups, &Groups),
    documents: [&DocumentState; 2],
) -> Result<(), WriteError> {
    for (key, _) in plan {
        match key {
            StoreKey::Group(group) | StoreKey::Label(group) | StoreKey::Resource(group, _) => {
                check_reached(scope, group)?;
            }
            StoreKey::Document(key) => {
                check_document(scope, key)?;
                check_placed(scope, key, documents)?;
            }
            StoreKey::Weights(rule) => match &rule.object {
                WeightedObject::Document(key) => {
                    check_document(scope, key)?;
                    check_placed(scope, key, documents)?;
                }
                WeightedObject::Routes(group, _) => check_reached(scope, group)?,
            },
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
    for name in differing(before, after) {
        let [old, new] = [before, after].map(|groups| groups.get(name));
        if scope.has_group(name.as_str()) {
            nodes::check_definition(scope, before, old, new)?;
        } else if !scope.is_by_namespace() {
            return Err(unseen_group(name));
        } else if !hosts::are_own(scope, [old, new]) {
            let what =
                "what nodes out of scope are served beside the caller's own hosts and resources".to_owned();
            return Err(out_of_scope(what));
        }
    }
    Ok(())
}

fn check_group(scope: &Scope, group: &GroupName) -> Result<(), WriteError> {
    if scope.has_group(group.as_str()) { Ok(()) } else { Err(out_of_scope(format!("the group {group}"))) }
}

/// Refuses a group that the caller did not name itself.
fn check_reached(scope: &Scope, group: &GroupName) -> Result<(), WriteError> {
    if scope.has_group(group.as_str()) { Ok(()) } else { Err(unseen_group(group)) }
}

/// Refuses a document by the groups that it is in before and after a change.
fn check_placed(scope: &Scope, key: &DocumentKey, documents: [&DocumentState; 2]) -> Result<(), WriteError> {
    let mut placed = documents.iter().filter_map(|state| state.translated.documents.get(key));
    match placed.find(|placed| !scope.has_document(namespace(key), Some(&placed.group))) {
        Some(placed) => Err(unseen_group(&placed.group)),
        None => Ok(()),
    }
}

fn check_document(scope: &Scope, key: &DocumentKey) -> Result<(), WriteError> {
    if scope.has_namespace(namespace(key)) { Ok(()) } else { Err(out_of_scope(key.to_string())) }
}

/// Refuses a document that is there and out of scope by its group.
fn check_seen(scope: &Scope, key: &DocumentKey, documents: &DocumentState) -> Result<(), WriteError> {
    check_document(scope, key)?;
    match documents.translated.documents.get(key) {
        Some(placed) if !scope.has_document(namespace(key), Some(&placed.group)) => {
            Err(WriteError::NotFound { what: key.to_string() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a RouteTest about clients out of scope: its failures say where their requests go, and with a policy it stops changes of what
/// they are served.
fn check_tested(
    scope: &Scope,
    document: &Document,
    group: &GroupName,
    groups: &Groups,
) -> Result<(), WriteError> {
    if !matches!(document.key.kind, Kind::RouteTest | Kind::RouterCheck) {
        return Ok(());
    }
    // One that cannot be read asks about nobody.
    match read(&document.place.file, &document.source.tree()).map(|test| test.whose) {
        Err(_) => Ok(()),
        Ok(Whose::Own) => check_group(scope, group),
        Ok(Whose::Group(group)) => check_group(scope, &group),
        Ok(Whose::Node(id)) => {
            let is_in = |client: Client| {
                let agent = client.language.user_agent().to_owned();
                let node = Node { user_agent_name: agent, ..Node::with_id(&id) };
                let selects = |name: &&GroupName| {
                    let group = groups.get(*name);
                    name.is_default() || group.is_some_and(|group| group.definition.selector.selects(&node))
                };
                let of_node: Vec<GroupName> = groups.keys().filter(selects).cloned().collect();
                scope.has_all_of_node(&of_node)
            };
            match [Profile::Envoy, Profile::Grpc].into_iter().flat_map(Client::newest_of).all(is_in) {
                true => Ok(()),
                false => Err(out_of_scope(format!("the node {id:?}"))),
            }
        }
    }
}

fn check_weighted(
    scope: &Scope,
    object: &WeightedObject,
    documents: &DocumentState,
) -> Result<(), WriteError> {
    match object {
        WeightedObject::Document(key) => check_seen(scope, key, documents),
        WeightedObject::Routes(group, _) => check_group(scope, group),
    }
}

/// The refusal of a group that the caller did not name. Everybody knows the default group; another one is not named.
fn unseen_group(group: &GroupName) -> WriteError {
    out_of_scope(match group.is_default() {
        true => format!("the group {group}"),
        false => "a node group that this change reaches".to_owned(),
    })
}

fn out_of_scope(what: String) -> WriteError {
    WriteError::OutOfScope { what }
}
