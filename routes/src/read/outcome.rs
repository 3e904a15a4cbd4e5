//! The outcome of reading a document.

use std::sync::Arc;

use xds_codec::document::{Node, Position};
use xds_codec::{Diagnostic, Place};

use crate::model::{Document, DocumentKey};

/// How fields are treated that the kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// The object is refused, as the API server does in strict validation.
    #[default]
    Refuse,
    /// They are a warning; a document of the native form is refused all the same.
    Warn,
    /// They are a warning in every form. For documents that were accepted before, perhaps under another rule.
    Accepted,
}

/// The outcome of reading one document of a file or body.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A kind that is not supported. The caller skips it and reports it as [`left_out`](super::left_out).
    NotOurs,
    /// Kind and name cannot be read; at least one diagnostic.
    Unreadable(Vec<Diagnostic>),
    /// The objects in it, at least one; only a native document can have several.
    Objects(Vec<ReadObject>),
}

/// One object.
#[derive(Debug)]
pub struct ReadObject {
    /// Its identity.
    pub key: DocumentKey,
    /// Where it begins.
    pub place: Place,
    /// The document with warnings, or its errors: at least one diagnostic.
    pub outcome: Result<(Arc<Document>, Vec<Diagnostic>), Vec<Diagnostic>>,
    /// The stand-in for an unusable document, if its absence would do harm: see [`stand_in`](mod@super::stand_in).
    pub stand_in: Option<Arc<Document>>,
}

pub(super) fn one(
    file: &Arc<str>,
    tree: Node<'_>,
    key: DocumentKey,
    outcome: Result<(Arc<Document>, Vec<Diagnostic>), Vec<Diagnostic>>,
    stand_in: Option<Arc<Document>>,
) -> ReadOutcome {
    ReadOutcome::Objects(vec![ReadObject { key, place: place_of(file, tree), outcome, stand_in }])
}

pub(super) fn place_of(file: &Arc<str>, tree: Node<'_>) -> Place {
    let Position { line, column } = tree.position();
    Place { file: Arc::clone(file), line, column }
}
