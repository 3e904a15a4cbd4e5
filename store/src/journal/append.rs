//! Appends to the journal so that a failure never leaves an uncertain end.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::journal::segment::Segment;
use crate::lock::Lock;
use crate::{FileError, files};

/// The end of the last segment. Everything before it is durable.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) lock: Arc<Lock>,
    pub(crate) segment: Arc<Segment>,
    /// Where the next frame goes.
    pub(crate) end: u64,
    #[cfg(test)]
    pub(crate) faults: crate::faults::Faults,
}

/// Nothing was appended.
#[derive(Debug)]
pub(crate) struct AppendError {
    pub(crate) error: FileError,
    /// True if the file ends where it ended before and is the store's. If not, nothing may be appended to it any more.
    pub(crate) is_restored: bool,
}

impl Tail {
    /// Appends `bytes` and returns when they are durable.
    ///
    /// After a failed write (a full disk, for one) the file is cut back, and the next attempt may succeed. After a
    /// failed sync the kernel may have dropped the pages and forgotten the error, so although the file is cut back
    /// too, it counts as uncertain.
    ///
    /// Nothing is appended, and nothing counts as appended, where another process may have the directory: without the lock's file it
    /// may write to the same place of the same file.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), AppendError> {
        self.check_in_place()?;
        if let Err(error) = self.write(bytes) {
            let is_restored = self.restore().is_ok();
            return Err(self.error("append to", error, is_restored));
        }
        if let Err(error) = self.sync() {
            // An error here changes nothing: the end is uncertain anyway.
            let _ = self.restore();
            return Err(self.error("sync", error, false));
        }
        // Who opened the directory before this moment may not have read these bytes.
        self.check_in_place()?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes as a commit does, and takes it back.
    ///
    /// A crash in between leaves a torn end.
    pub(crate) fn probe(&mut self) -> Result<(), AppendError> {
        let end = self.end;
        self.append(&[0; PROBE_BYTES])?;
        self.end = end;
        self.restore().map_err(|error| self.error("cut", error, false))
    }

    /// Refuses if the lock or the journal is not the file any more that its name leads to.
    pub(crate) fn check_in_place(&self) -> Result<(), AppendError> {
        let refuse = |path: &Path, in_place: Result<bool, FileError>| match in_place {
            Ok(true) => Ok(()),
            Ok(false) => Err(AppendError { error: FileError::not_in_place(path), is_restored: false }),
            Err(error) => Err(AppendError { error, is_restored: true }),
        };
        let Segment { path, file, .. } = &*self.segment;
        refuse(&self.lock.path, self.lock.is_in_place())?;
        refuse(path, files::is_in_place(path, file))
    }

    fn error(&self, action: &'static str, error: io::Error, is_restored: bool) -> AppendError {
        AppendError { error: FileError::new(action, &self.segment.path, error), is_restored }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        self.faults.on_write(&self.segment.file, bytes, self.end)?;
        self.segment.file.write_all_at(bytes, self.end)
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.on_sync()?;
        self.segment.file.sync_data()
    }

    fn restore(&self) -> io::Result<()> {
        #[cfg(test)]
        self.faults.on_restore()?;
        self.segment.file.set_len(self.end)?;
        self.segment.file.sync_all()
    }
}

/// A page, for which a file system needs room, and as much as a small commit.
const PROBE_BYTES: usize = 4096;
