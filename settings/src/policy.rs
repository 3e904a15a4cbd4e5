//! The file of the access policy.

use std::io;
use std::path::Path;

use xds_access::Policy;
use xds_codec::{Diagnostic, Place, Severity};

/// Reads a policy with all that it names, and hashes them together.
///
/// # Errors
///
/// Everything that is wrong with it, at least one diagnostic.
pub fn read_policy(path: &Path) -> Result<(Policy, blake3::Hash), Vec<Diagnostic>> {
    let shown = path.display().to_string();
    let text = std::fs::read(path).map_err(|error| vec![unreadable(&shown, &error)])?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&text);
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut read_file = |name: &str| {
        let text = std::fs::read(directory.join(name)).map_err(|error| error.to_string())?;
        hasher.update(&text.len().to_le_bytes()).update(&text);
        Ok(text)
    };
    let policy = Policy::read(&shown, &text, &mut read_file)?;
    Ok((policy, hasher.finalize()))
}

fn unreadable(file: &str, error: &io::Error) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: "unreadable-file",
        place: Place { file: file.into(), line: 0, column: 0 },
        path: String::new(),
        message: format!("the access policy cannot be read: {error}"),
        suggestion: None,
        related: Vec::new(),
        is_sensitive: false,
    }
}
