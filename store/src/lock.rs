//! The lock of a data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::{FileError, OpenError, files};

/// The file `lock` of a data directory, locked as long as this value lives.
///
/// The lock is one of the file, not of its name: if the name is removed, another process can create and lock another file.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) path: PathBuf,
    file: File,
}

impl Lock {
    /// Makes this process the only one that uses `dir`.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("lock");
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(|error| FileError::new("open", &path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The holder's id is a courtesy: without it the error is as true.
                let _ = file.take(32).read_to_string(&mut text);
                return Err(OpenError::Locked { path, holder: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(FileError::new("lock", &path, error).into()),
        }
        // On a full disk the file stays empty, and the next process cannot say who has the lock.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { path, file })
    }

    /// Returns whether the locked file still has its name.
    pub(crate) fn is_in_place(&self) -> Result<bool, FileError> {
        files::is_in_place(&self.path, &self.file)
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a program that another thread is just starting has the open file too, until its own code runs.
    fn drop(&mut self) {
        // Otherwise the file is unlocked when it is closed everywhere.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_started_program_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::take(dir.path()), Err(OpenError::Locked { .. })));
        drop(lock);
        Lock::take(dir.path()).unwrap();
        drop(inherited);
    }
}
