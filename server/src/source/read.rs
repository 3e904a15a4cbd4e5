//! What is in the files: one consistent reading of all of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xds_cache::Version;

use crate::source::walk::{Stamp, Walk, Walker};

/// All files as they were at one time.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// By path.
    pub files: BTreeMap<Arc<str>, FileRead>,
    /// Roots, directories and links that cannot be read, and why: whatever is below keeps its state.
    pub faults: BTreeMap<Arc<str>, String>,
    /// Whether nothing changed while it was read. If not, it must be read again soon.
    pub is_settled: bool,
}

/// One file.
pub type FileRead = Result<FileContent, FileFault>;

/// The bytes of a file, all from one version of it.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContent {
    /// Their hash.
    pub hash: Version,
    /// The bytes. May be secret.
    pub bytes: Arc<[u8]>,
}

impl FileContent {
    /// Hashes the bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self { hash: Version::of(bytes), bytes: bytes.into() }
    }
}

impl std::fmt::Debug for FileContent {
    /// Only the hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileContent({})", self.hash)
    }
}

/// Why a file has no content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The operating system refuses.
    #[error("the file cannot be read: {0}")]
    Unreadable(String),
    /// It is larger than the limit.
    #[error("the file has {bytes} bytes, the limit is {limit} bytes (--max-file-bytes)")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// Somebody writes to it all the time.
    #[error("the file changes while it is read")]
    Changing,
}

impl FileFault {
    /// The kind of fault, for filters and tests.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable-file",
            Self::TooLarge { .. } => "file-too-large",
            Self::Changing => "changing-file",
        }
    }
}

/// Reads the watched roots again and again.
#[derive(Clone, Debug)]
pub struct Reader {
    walker: Walker,
    max_file_bytes: usize,
}

impl Reader {
    /// Roots are files or directories.
    #[must_use]
    pub fn new(roots: &[PathBuf], max_file_bytes: usize) -> Self {
        Self { walker: Walker::new(roots), max_file_bytes }
    }

    /// Walks through the roots without reading files. Blocks.
    #[must_use]
    pub fn walk(&mut self) -> Walk {
        self.walker.walk()
    }

    /// Reads everything now, and says where it was found. Blocks.
    ///
    /// `watch` is given every walk, to watch its directories, and tells whether one of them was not watched before: then the
    /// walk is done again, because what came into the directory since would be missed.
    #[must_use]
    pub fn scan(&mut self, mut watch: impl FnMut(&Walk) -> bool) -> (Walk, Scan) {
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            let mut walk = self.walker.walk();
            let is_new = watch(&walk);
            if is_new && n_tries < MAX_TRIES {
                continue;
            }
            let mut scan = Scan { faults: walk.faults.clone(), is_settled: !is_new, ..Scan::default() };
            for path in walk.files.keys() {
                let read = match read_file(Path::new(&**path), self.max_file_bytes) {
                    Ok(read) => read,
                    // Removed since the walk, which therefore is not the newest one.
                    Err(Vanished) => {
                        scan.is_settled = false;
                        continue;
                    }
                };
                scan.is_settled &= read != Err(FileFault::Changing);
                scan.files.insert(Arc::clone(path), read);
            }
            // A ConfigMap swaps all its files at once: half of them from before the swap would be neither version.
            let is_same =
                |(link, target): (&PathBuf, &PathBuf)| fs::read_link(link).is_ok_and(|now| now == *target);
            scan.is_settled &= walk.links.iter().all(is_same);
            if scan.is_settled || n_tries == MAX_TRIES {
                if !scan.is_settled {
                    // Stamps that no later walk can have make the next poll read again.
                    walk.files.clear();
                }
                return (walk, scan);
            }
        }
    }
}

/// The file is no longer there.
#[derive(Debug)]
struct Vanished;

fn read_file(path: &Path, limit: usize) -> Result<FileRead, Vanished> {
    for _ in 0..MAX_TRIES {
        match try_read(path, limit) {
            Ok(Some(read)) => return Ok(read),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Vanished),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Err(FileFault::Unreadable("permission denied".to_owned())));
            }
            Err(error) => return Ok(Err(FileFault::Unreadable(error.to_string()))),
        }
    }
    Ok(Err(FileFault::Changing))
}

/// Returns `None` if somebody wrote to the file meanwhile.
fn try_read(path: &Path, limit: usize) -> io::Result<Option<FileRead>> {
    let file = File::open(path)?;
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if before.len() > limit as u64 {
        return Ok(Some(Err(FileFault::TooLarge { bytes: before.len(), limit })));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.len()).unwrap_or_default());
    (&file).take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let after = file.metadata()?;
    let is_whole = Stamp::of(&before) == Stamp::of(&after) && bytes.len() as u64 == after.len();
    Ok(is_whole.then(|| Ok(FileContent::new(&bytes))))
}

/// A swap or a save takes microseconds; what changes five times in a row is being written all the time.
const MAX_TRIES: usize = 5;

#[cfg(test)]
mod tests;
