//! Reads texts in tests.

#![expect(clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;

use xds_codec::{Diagnostic, Limits, Syntax};

use super::{ReadObject, ReadOutcome, UnknownFields, read};
use crate::model::{Document, Spec};

/// The outcome of each document of a text.
pub(crate) fn outcomes(text: &str) -> Vec<ReadOutcome> {
    let trees =
        xds_codec::parse("f.yaml", text.as_bytes(), Syntax::Yaml, &Limits::default()).expect("valid YAML");
    trees.iter().map(|tree| read(&"f.yaml".into(), tree, UnknownFields::Refuse)).collect()
}

/// All objects of a text, good and bad.
pub(crate) fn objects(text: &str) -> Vec<ReadObject> {
    let objects = outcomes(text).into_iter().map(|outcome| match outcome {
        ReadOutcome::Objects(objects) => objects,
        ReadOutcome::NotOurs => panic!("a document is of no kind of ours"),
        ReadOutcome::Unreadable(diagnostics) => panic!("a document is unreadable: {diagnostics:#?}"),
    });
    objects.flatten().collect()
}

/// The documents of a text, of which all are good; warnings are allowed.
pub(crate) fn documents(text: &str) -> Vec<Arc<Document>> {
    objects(text).into_iter().map(|object| object.outcome.expect("a good object").0).collect()
}

/// The content of the only document of a text; there must not even be a warning.
pub(crate) fn clean(text: &str) -> Spec {
    assert_eq!(findings(text), Vec::<String>::new(), "{text}");
    documents(text).pop().expect("one document").spec.clone()
}

/// Everything that is found in a text.
pub(crate) fn diagnostics(text: &str) -> Vec<Diagnostic> {
    let of_object = |object: ReadObject| match object.outcome {
        Ok((_, diagnostics)) | Err(diagnostics) => diagnostics,
    };
    let of_outcome = |outcome| match outcome {
        ReadOutcome::Objects(objects) => objects.into_iter().flat_map(of_object).collect(),
        ReadOutcome::Unreadable(diagnostics) => diagnostics,
        ReadOutcome::NotOurs => Vec::new(),
    };
    outcomes(text).into_iter().flat_map(of_outcome).collect()
}

/// Everything that is found in a text, each as `error[code] path`.
pub(crate) fn findings(text: &str) -> Vec<String> {
    let found = diagnostics(text).into_iter();
    found.map(|found| format!("{}[{}] {}", found.severity, found.code, found.path)).collect()
}
