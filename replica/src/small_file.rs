//! Small files of the data directory, which are replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Puts a value as JSON in place of a file, so that a power cut leaves the old text or the new one. Only its owner can read it.
///
/// # Errors
///
/// If the directory cannot be written.
pub fn replace(path: &Path, value: &impl Serialize) -> Result<()> {
    let dir = path.parent().ok_or_else(|| Error::other("it is in no directory"))?;
    // Two writers at once must not write into each other's.
    let temporary = path.with_extension(format!("{}.tmp", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(dir)?.sync_all()
}

static NUMBER: AtomicU64 = AtomicU64::new(0);
