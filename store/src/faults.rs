//! Failures of the file system, for tests.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::FileError;

/// The faults to come. Each is used up when it happens; all clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    faults: Mutex<Vec<Fault>>,
    /// The next sync says that it began and waits for this.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    n_syncs: AtomicU64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Half of the bytes are written.
    Write(io::ErrorKind),
    Sync(io::ErrorKind),
    /// The file cannot be cut back.
    Restore,
    /// A compaction ends here.
    Compaction(Step),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    BeforeRename,
    AfterRename,
    AfterIndex,
    AfterFirstRemoval,
}

impl Faults {
    pub(crate) fn inject(&self, fault: Fault) {
        self.0.faults.lock().unwrap().push(fault);
    }

    /// Makes the next sync wait. Returns a receiver that reports that it began, and a sender that lets it continue.
    pub(crate) fn hold_sync(&self) -> (Receiver<()>, Sender<()>) {
        let (began, has_begun) = channel();
        let (go_on, may_go_on) = channel();
        *self.0.gate.lock().unwrap() = Some((began, may_go_on));
        (has_begun, go_on)
    }

    pub(crate) fn n_syncs(&self) -> u64 {
        self.0.n_syncs.load(Ordering::SeqCst)
    }

    pub(crate) fn on_write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(Fault::Write(kind)) = self.take(|fault| matches!(fault, Fault::Write(_))) else {
            return Ok(());
        };
        file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
        Err(kind.into())
    }

    pub(crate) fn on_sync(&self) -> io::Result<()> {
        self.0.n_syncs.fetch_add(1, Ordering::SeqCst);
        if let Some((began, may_go_on)) = self.0.gate.lock().unwrap().take() {
            began.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        match self.take(|fault| matches!(fault, Fault::Sync(_))) {
            Some(Fault::Sync(kind)) => Err(kind.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn on_restore(&self) -> io::Result<()> {
        match self.take(|fault| fault == Fault::Restore) {
            Some(_) => Err(io::ErrorKind::Other.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn on_step(&self, step: Step) -> Result<(), FileError> {
        match self.take(|fault| fault == Fault::Compaction(step)) {
            Some(_) => Err(FileError::new("compact", Path::new("."), io::ErrorKind::Other.into())),
            None => Ok(()),
        }
    }

    fn take(&self, is_wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut faults = self.0.faults.lock().unwrap();
        let index = faults.iter().position(|fault| is_wanted(*fault))?;
        Some(faults.remove(index))
    }
}
