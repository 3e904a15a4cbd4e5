//! Directories and files that only this user can read, and that survive a power cut.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::FileError;

/// Creates a directory with mode 0700, and those above it that are missing.
///
/// One that exists is left as it is.
pub(crate) fn create_dir(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    let missing: Vec<_> = path.ancestors().take_while(|ancestor| !ancestor.is_dir()).collect();
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| FileError::new("create the directory", path, error))?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// Creates a file with mode 0600 for reading and writing; an existing one is replaced.
pub(crate) fn create_file(path: &Path) -> Result<File, FileError> {
    remove_file_if_exists(path)?;
    let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| FileError::new("create", path, error))
}

/// Gives `from` the name `to`, in the same directory and for good.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(|error| FileError::new("rename", from, error))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Removes a file; it is no error if there is none.
pub(crate) fn remove_file_if_exists(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", path, error)),
        _ => Ok(()),
    }
}

/// Returns whether the name `path` still leads to the open `file`. It does not once the file was removed, renamed or replaced: then
/// nothing keeps another process away from the directory.
pub(crate) fn is_in_place(path: &Path, file: &File) -> Result<bool, FileError> {
    let failed = |error| FileError::new("look for", path, error);
    let opened = file.metadata().map_err(failed)?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), FileError> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|error| FileError::new("sync the directory", path, error))
}

/// Returns the first of `path.damaged-1`, `path.damaged-2`, … that does not exist.
pub(crate) fn unused_aside(path: &Path) -> PathBuf {
    let mut n = 1_u64;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{n}"));
        let aside = PathBuf::from(name);
        if std::fs::symlink_metadata(&aside).is_err() {
            return aside;
        }
        n += 1;
    }
}

/// Moves a file or directory out of the way, and returns its new name.
pub(crate) fn move_aside(path: &Path) -> Result<PathBuf, FileError> {
    let aside = unused_aside(path);
    rename(path, &aside)?;
    Ok(aside)
}
