//! Where the files are.

use std::path::{Path, PathBuf};

/// The directory of the whole project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
