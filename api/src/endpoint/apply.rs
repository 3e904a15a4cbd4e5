//! The body of `/v1/apply`: one or many route documents, each of which must be good.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use xds_codec::Diagnostic;
use xds_codec::document::{Items, Node};
use xds_control::route_tests::read_document;
use xds_routes::{Document, DocumentKey, ReadOutcome, UnknownFields};

use crate::answer::Form;
use crate::input::{find_placeholders, parse_all};
use crate::problem::{ApiError, Fault};

/// Reads all documents of a body, with the warnings about each.
///
/// # Errors
///
/// [`ApiError::BadBody`] if the text cannot be read, [`ApiError::Invalid`] with every fault of every document.
pub(crate) fn read_documents(
    form: Form,
    bytes: &Bytes,
    max_values: usize,
    unknown_fields: UnknownFields,
) -> Result<(Vec<Arc<Document>>, Vec<Diagnostic>), ApiError> {
    let trees = parse_all(form, bytes, max_values)?;
    let mut read = Read { unknown_fields, ..Read::default() };
    for tree in &trees {
        read.take(tree.root(), "");
    }
    if !read.faults.is_empty() {
        return Err(ApiError::Invalid(read.faults));
    }
    if read.documents.is_empty() {
        let detail = "there is no document in the body";
        let fault = trees
            .first()
            .map_or_else(|| Fault::at("", detail), |tree| Fault::at_tree(tree.root(), "", detail));
        return Err(ApiError::Invalid(vec![fault]));
    }
    Ok((read.documents.into_values().collect(), read.warnings))
}

/// The contents that were read so far.
#[derive(Default)]
struct Read {
    documents: BTreeMap<DocumentKey, Arc<Document>>,
    warnings: Vec<Diagnostic>,
    faults: Vec<Fault>,
    unknown_fields: UnknownFields,
}

impl Read {
    /// Reads a document, or those in a list, which `pointer` leads to.
    fn take(&mut self, tree: Node<'_>, pointer: &str) {
        if let Some(items) = tree.as_list() {
            return self.take_items(items, pointer);
        }
        let is_list = tree.get("kind").and_then(Node::as_str).is_some_and(|kind| kind.ends_with("List"));
        if is_list && let Some(items) = tree.get("items").and_then(Node::as_list) {
            return self.take_items(items, &format!("{pointer}/items"));
        }
        if self.faults.len() >= MAX_FAULTS {
            return;
        }
        let n_faults = self.faults.len();
        find_placeholders(tree, pointer, &mut self.faults);
        if self.faults.len() > n_faults {
            return;
        }
        match read_document(&"".into(), &tree.to_tree(), self.unknown_fields) {
            ReadOutcome::NotOurs => self.faults.push(Fault::at_tree(tree, pointer, not_ours(tree))),
            ReadOutcome::Unreadable(found) => self.refuse(&found, pointer),
            ReadOutcome::Objects(objects) => {
                for object in objects {
                    match object.outcome {
                        Ok((document, warnings)) => {
                            self.warnings.extend(warnings);
                            self.add(document, tree, pointer);
                        }
                        Err(found) => self.refuse(&found, pointer),
                    }
                }
            }
        }
    }

    fn take_items(&mut self, items: Items<'_>, pointer: &str) {
        for (index, item) in items.enumerate() {
            self.take(item, &format!("{pointer}/{index}"));
        }
    }

    fn add(&mut self, document: Arc<Document>, tree: Node<'_>, pointer: &str) {
        match self.documents.entry(document.key.clone()) {
            Entry::Vacant(entry) => _ = entry.insert(document),
            Entry::Occupied(entry) => {
                let detail = format!("{} appears twice", entry.key());
                self.faults.push(Fault::at_tree(tree, pointer, detail));
            }
        }
    }

    fn refuse(&mut self, found: &[Diagnostic], pointer: &str) {
        self.faults.extend(found.iter().map(|diagnostic| Fault::of(diagnostic, pointer)));
    }
}

fn not_ours(tree: Node<'_>) -> String {
    match tree.get("kind").and_then(Node::as_str) {
        Some("NodeGroup") => "write node groups to /v1/groups/{group}".to_owned(),
        Some(kind) => format!("documents of the kind {kind:?} are not served"),
        None => {
            "this is not a route document: it has neither `apiVersion` and `kind` nor `version: xds-server/v1`; \
                 write resources to /v1/groups/{group}/resources"
                .to_owned()
        }
    }
}

/// After how many faults a body is not read further.
const MAX_FAULTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: Form, text: &str) -> Result<Vec<String>, Vec<(String, u32, u32)>> {
        match read_documents(form, &Bytes::copy_from_slice(text.as_bytes()), 1_000_000, UnknownFields::Refuse)
        {
            Ok((documents, _)) => Ok(documents.iter().map(|document| document.key.to_string()).collect()),
            Err(ApiError::Invalid(faults) | ApiError::BadBody(faults)) => {
                let place = |fault: &Fault| {
                    let pointer = fault.pointer.clone().unwrap_or_default();
                    (pointer, fault.line.unwrap_or_default(), fault.column.unwrap_or_default())
                };
                Err(faults.iter().map(place).collect())
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn one_or_many_documents_are_read_in_any_form() {
        let service = |name: &str| {
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}"
            )
        };
        let (a, b) = (service("a"), service("b"));
        let both = Ok(vec!["Service default/a".to_owned(), "Service default/b".to_owned()]);
        for text in [
            format!("{a}\n---\n{b}\n"),
            format!("[{a}, {b}]\n"),
            format!("{{apiVersion: v1, kind: List, items: [{a}, {b}]}}\n"),
            format!("{{apiVersion: v1, kind: ServiceList, items: [{b}, {a}]}}\n---\n"),
        ] {
            assert_eq!(read(Form::Yaml, &text), both, "{text}");
        }
        let json = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}"#;
        assert_eq!(read(Form::Json, json), Ok(vec!["Namespace n".to_owned()]));
    }

    #[test]
    fn every_fault_of_every_document_has_its_place() {
        let bad = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 0}]}\n";
        assert_eq!(read(Form::Yaml, bad), Err(vec![("#/spec/ports/0/port".to_owned(), 4, 23)]));
        let list = format!("kind: List\napiVersion: v1\nitems:\n- {}", bad.trim_end().replace('\n', "\n  "));
        assert_eq!(read(Form::Yaml, &list), Err(vec![("#/items/0/spec/ports/0/port".to_owned(), 7, 25)]));
        for (text, pointer, line, column) in [
            ("kind: Deployment\napiVersion: apps/v1\n", "#", 1, 1),
            ("- a: 1\n", "#/0", 1, 3),
            ("[]\n", "#", 1, 1),
            ("a: [\n", "#", 1, 4),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: '[redacted]'\n",
                "#/stringData/k",
                5,
                6,
            ),
        ] {
            assert_eq!(read(Form::Yaml, text), Err(vec![(pointer.to_owned(), line, column)]), "{text}");
        }
        let twice = "{apiVersion: v1, kind: Namespace, metadata: {name: n}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: n}}\n";
        assert_eq!(read(Form::Yaml, twice), Err(vec![("#".to_owned(), 3, 1)]));
    }
}
