//! Warnings, and the places of the resources that they are about.

use std::sync::Arc;

use xds_cache::{Origin, Resource};
use xds_codec::{Diagnostic, Place, Severity};

/// A warning at a field of the written document; an empty `path` means the whole document.
pub(crate) fn warning(code: &'static str, path: &str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        code,
        place: Place { file: "".into(), line: 0, column: 0 },
        path: path.to_owned(),
        message,
        suggestion: None,
        related: vec![],
        is_sensitive: false,
    }
}

/// Where a resource was written.
pub(crate) fn place(resource: &Resource) -> Place {
    match resource.origin() {
        Origin::File { path, line, column } => Place { file: Arc::clone(path), line: *line, column: *column },
        Origin::Api => Place { file: "".into(), line: 0, column: 0 },
    }
}
