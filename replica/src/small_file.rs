//! Small files of the data directory, which are replaced as a whole.

use std::fs::File;
use std::io::{Error, Result, Write as _};
use std::path::Path;

use serde::Serialize;

/// Puts a value as JSON in place of a file, so that a power cut leaves the old text or the new one.
///
/// # Errors
///
/// If the directory cannot be written.
pub(crate) fn replace(path: &Path, value: &impl Serialize) -> Result<()> {
    let dir = path.parent().ok_or_else(|| Error::other("it is in no directory"))?;
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(dir)?.sync_all()
}
