//! The outcome of reading a document.

use std::sync::Arc;

use xds_codec::document::{Node, Position};
use xds_codec::{Diagnostic, Place};

use crate::model::{Document, DocumentKey};

/// The treatment of a document with fields that its kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// The object is refused, as the API server does in strict validation.
    #[default]
    Refuse,
    /// A warning; documents of the native form are refused all the same.
    Warn,
    /// A warning for every form, for documents that were accepted before: they may have been written under another rule.
    Accepted,
}

/// The outcome of reading one document of a file or body.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A kind that is not ours; to be skipped with an info line that says it is [`left_out`](super::left_out).
    NotOurs,
    /// Not even kind and name could be read: at least one diagnostic.
    Unreadable(Vec<Diagnostic>),
    /// The objects in it: one, or as many as a native document has; at least one.
    Objects(Vec<ReadObject>),
}

/// One object.
#[derive(Debug)]
pub struct ReadObject {
    /// Its identity.
    pub key: DocumentKey,
    /// Where it begins.
    pub place: Place,
    /// The document with warnings, or what is wrong with it: at least one diagnostic.
    pub outcome: Result<(Arc<Document>, Vec<Diagnostic>), Vec<Diagnostic>>,
    /// The stand-in for a document that cannot be used, where the absence of one would do harm: see [`stand_in`](mod@super::stand_in).
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
