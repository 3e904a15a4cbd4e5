//! Candidates: the overrides as a write would leave them.

use std::sync::Arc;

use xds_access::Scope;
use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::{GroupName, NodeGroup, Resource, ResourceKey, Selector};
use xds_codec::{Diagnostic, Severity};
use xds_routes::{Document, DocumentKey};

use crate::accepted::{Accepted, Base, ContentSum, Files};
use crate::documents::DocumentPatch;
use crate::key::resource_name;
use crate::model::document::GroupedDocument;
use crate::model::rollouts::RolloutPatch;
use crate::model::tag;
use crate::model::{ChangeSource, EntityTags, Write, WriteError, WriteOptions};
use crate::plan::{Patch, Plan};
use crate::warning::warning;
use crate::weights::WeightPatch;

/// The overrides that a write would make; not checked against the rest yet.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    /// The groups that it may change.
    pub(crate) patch: Patch,
    /// The documents that it may change.
    pub(crate) documents: DocumentPatch,
    /// The overrides of weights that it may change.
    pub(crate) weights: WeightPatch,
    /// The rollouts that it may change.
    pub(crate) rollouts: RolloutPatch,
    /// The files that it puts in place of those of the store.
    pub(crate) files: Option<NewFiles>,
    /// Doubts about it.
    pub(crate) warnings: Vec<Diagnostic>,
    /// The kind of change, for the history and for metrics.
    pub(crate) source: ChangeSource,
    /// A summary of one line.
    pub(crate) summary: String,
    /// True if it replaces everything that the API has in these groups, including what could not be read.
    pub(crate) is_whole: bool,
}

/// Files that differ from those of the store.
#[derive(Debug)]
pub(crate) struct NewFiles {
    /// Their objects.
    pub(crate) base: Base,
    /// The sum of hashes over these.
    pub(crate) contents: ContentSum,
    /// The files, as they will be stored.
    pub(crate) files: Arc<Files>,
    /// What is stored of them.
    pub(crate) plan: Plan,
    /// The objects of the API that say the same, and are dropped.
    pub(crate) equal: Vec<String>,
}

impl Candidate {
    /// A change of one group by the API.
    fn of_group(name: GroupName, group: Option<LayerGroup>, summary: String) -> Self {
        Self { patch: Patch::from([(name, group)]), source: ChangeSource::Api, summary, ..Self::default() }
    }

    /// A change of documents by the API.
    fn of_documents(documents: DocumentPatch, warnings: Vec<Diagnostic>, summary: String) -> Self {
        Self { documents, warnings, source: ChangeSource::Api, summary, ..Self::default() }
    }
}

/// Builds the candidate of a write that stands for itself; rollbacks are built in [`undo`](crate::undo).
pub(crate) fn put_group(accepted: &Accepted, definition: NodeGroup) -> Result<Candidate, WriteError> {
    let name = definition.name.clone();
    refuse_if_a_file_defines(accepted, &name)?;
    refuse_selector(&definition)?;
    let summary = format!("put group {name}");
    let group = LayerGroup { definition: Some(definition), ..accepted.owned(&name) };
    Ok(Candidate::of_group(name, Some(group), summary))
}

pub(crate) fn delete_group(accepted: &Accepted, name: &GroupName) -> Result<Candidate, WriteError> {
    if name.is_default() {
        return Err(WriteError::BuiltIn { what: "the group default".to_owned(), action: "deleted" });
    }
    refuse_if_a_file_defines(accepted, name)?;
    if !accepted.overrides.groups.contains_key(name) {
        return Err(WriteError::NotFound { what: format!("the group {name}") });
    }
    let candidate = Candidate::of_group(name.clone(), None, format!("delete group {name}"));
    Ok(Candidate { is_whole: true, ..candidate })
}

pub(crate) fn replace_resources(
    accepted: &Accepted,
    name: &GroupName,
    label: Option<Arc<str>>,
    resources: Resources,
) -> Candidate {
    let before = accepted.owned(name);
    let reuses_label = label.is_some() && before.label == label && before.resources != resources;
    let summary = format!("replace the resources of {name} by {}", resources.len());
    let group = LayerGroup { definition: definition(accepted, name, before.definition), label, resources };
    let mut candidate =
        Candidate { is_whole: true, ..Candidate::of_group(name.clone(), Some(group), summary) };
    if reuses_label {
        let message = "the label is that of the last publication, but the content differs".to_owned();
        candidate.warnings.push(warning("label-reused", "version", message));
    }
    candidate
}

pub(crate) fn put_resource(accepted: &Accepted, name: &GroupName, resource: Arc<Resource>) -> Candidate {
    let mut group = accepted.owned(name);
    let what = resource_name(name, resource.key());
    // The label belongs to the whole publication, which this changes.
    if group.resources.get(resource.key()) != Some(&resource) {
        group.label = None;
    }
    group.definition = definition(accepted, name, group.definition);
    group.resources.insert(resource);
    Candidate::of_group(name.clone(), Some(group), format!("put {what}"))
}

pub(crate) fn delete_resource(
    accepted: &Accepted,
    name: &GroupName,
    key: &ResourceKey,
) -> Result<Candidate, WriteError> {
    let mut group = accepted.owned(name);
    let what = resource_name(name, key);
    if group.resources.remove(key).is_none() {
        if let Some(file) = accepted.base.resources(name).and_then(|resources| resources.get(key)) {
            return Err(WriteError::OwnedByFile { what, origin: file.origin().to_string() });
        }
        return Err(WriteError::NotFound { what });
    }
    group.label = None;
    Ok(Candidate::of_group(name.clone(), Some(group), format!("delete {what}")))
}

/// Documents without a group stay in the one that they have, or come into the default group.
pub(crate) fn apply_documents(
    accepted: &Accepted,
    applied: Vec<Arc<Document>>,
    group: Option<&GroupName>,
    warnings: Vec<Diagnostic>,
    scope: Option<&Arc<Scope>>,
) -> Candidate {
    let names: Vec<String> =
        applied.iter().take(MAX_NAMED).map(|document| document.key.to_string()).collect();
    let more = if applied.len() > MAX_NAMED { ", …" } else { "" };
    let summary = format!("apply {}{more}", names.join(", "));
    let mut documents = DocumentPatch::new();
    for document in applied {
        let present = accepted.documents.translated.documents.get(&document.key);
        let group = group.or(present.map(|placed| &placed.group)).cloned();
        let group = group.unwrap_or_else(GroupName::default_group);
        let scope = scope.filter(|_| document.key.kind.is_test()).cloned();
        documents.insert(document.key.clone(), Some(GroupedDocument { document, group, scope }));
    }
    Candidate::of_documents(documents, warnings, summary)
}

pub(crate) fn delete_document(accepted: &Accepted, key: &DocumentKey) -> Result<Candidate, WriteError> {
    if !accepted.documents.owned.contains_key(key) {
        return Err(match accepted.documents.files.get(key) {
            Some(file) => {
                WriteError::OwnedByFile { what: key.to_string(), origin: file.document.origin().to_string() }
            }
            None => WriteError::NotFound { what: key.to_string() },
        });
    }
    let documents = DocumentPatch::from([(key.clone(), None)]);
    Ok(Candidate::of_documents(documents, vec![], format!("delete {key}")))
}

/// How many documents a summary names.
const MAX_NAMED: usize = 3;

/// Compares what the caller saw with what there is.
pub(crate) fn check_tags(
    accepted: &Accepted,
    write: &Write,
    options: &WriteOptions,
) -> Result<(), WriteError> {
    let says_none = options.if_match.is_none() && options.if_none_match.is_none();
    // Tags of weights are compared when the rule is found.
    if says_none || matches!(write, Write::ChangeWeights { .. } | Write::StepRollouts { .. }) {
        return Ok(());
    }
    let current = current_tag(accepted, write);
    let holds = |tags: &EntityTags| match write {
        Write::ApplyDocuments { .. } | Write::DeleteDocument { .. } => tags.match_content(current.as_deref()),
        Write::PutGroup(_)
        | Write::DeleteGroup(_)
        | Write::ReplaceResources { .. }
        | Write::PutResource { .. }
        | Write::DeleteResource { .. }
        | Write::ChangeWeights { .. }
        | Write::StepRollouts { .. }
        | Write::EndOverrides
        | Write::ReplaceFiles { .. }
        | Write::Rollback { .. }
        | Write::Revert { .. } => tags.matches(current.as_deref()),
    };
    let is_met = options.if_match.as_ref().is_none_or(holds)
        && options.if_none_match.as_ref().is_none_or(|tags| !holds(tags));
    if is_met { Ok(()) } else { Err(WriteError::PreconditionFailed { current }) }
}

/// The entity tag of what a write changes, as `GET` gives it; `None` if that is not there.
fn current_tag(accepted: &Accepted, write: &Write) -> Option<String> {
    match write {
        Write::PutGroup(NodeGroup { name, .. }) | Write::DeleteGroup(name) => {
            accepted.group(name).map(|group| tag::of_group(&group.definition))
        }
        Write::ReplaceResources { group, .. } => {
            accepted.group(group)?;
            Some(tag::of_resources(accepted.overrides.resources(group).unwrap_or(&Resources::new())))
        }
        Write::PutResource { group, resource } => owned_tag(accepted, group, resource.key()),
        Write::DeleteResource { group, key } => owned_tag(accepted, group, key),
        Write::ApplyDocuments { documents, .. } => match documents.as_slice() {
            [document] => document_tag(accepted, &document.key),
            _ => Some(tag::of_documents(&accepted.documents.translated.documents)),
        },
        Write::DeleteDocument { key } => document_tag(accepted, key),
        Write::ChangeWeights { .. } | Write::StepRollouts { .. } | Write::EndOverrides => None,
        Write::ReplaceFiles { .. } => Some(accepted.contents.hash()),
        Write::Rollback { .. } | Write::Revert { .. } => Some(tag::of_revision(accepted.revision)),
    }
}

fn document_tag(accepted: &Accepted, key: &DocumentKey) -> Option<String> {
    accepted.documents.translated.documents.get(key).map(tag::of_document)
}

fn owned_tag(accepted: &Accepted, group: &GroupName, key: &ResourceKey) -> Option<String> {
    accepted.overrides.resources(group)?.get(key).map(|resource| tag::of_resource(resource))
}

/// A group that is new gets a definition, so that it stays when its last resource goes (D3).
fn definition(accepted: &Accepted, name: &GroupName, owned: Option<NodeGroup>) -> Option<NodeGroup> {
    let is_new = owned.is_none() && accepted.group(name).is_none();
    if is_new { Some(NodeGroup::for_node_id(name.clone())) } else { owned }
}

fn refuse_if_a_file_defines(accepted: &Accepted, name: &GroupName) -> Result<(), WriteError> {
    match accepted.definer(name) {
        None => Ok(()),
        Some(origin) => Err(WriteError::OwnedByFile { what: format!("the group {name}"), origin }),
    }
}

fn refuse_selector(definition: &NodeGroup) -> Result<(), WriteError> {
    let fault = if definition.selector.is_empty() {
        "an empty selector selects no node; write {\"all\": true} to select every node"
    } else if definition.name.is_default() && definition.selector != Selector::everyone() {
        "the group default selects every node; its selector can only be {\"all\": true}"
    } else {
        return Ok(());
    };
    let fault = Diagnostic { severity: Severity::Error, ..warning("selector", "selector", fault.to_owned()) };
    Err(WriteError::Invalid(vec![fault]))
}
