//! Warnings that stand nowhere in a file.

use xds_codec::{Diagnostic, Place, Severity};

/// A warning at a field of what was written; `path` is empty for all of it.
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
