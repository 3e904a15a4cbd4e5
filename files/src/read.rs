//! The contents of all files, read consistently.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use xds_cache::Version;

use crate::deadline::Hands;
use crate::hidden;
use crate::walk::{Bounds, Stamp, Walk, Walker, leads_out};

/// All files as they were at one time.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// By path.
    pub files: BTreeMap<Arc<str>, FileRead>,
    /// Roots, directories and links that cannot be read, with the reasons. Everything below them keeps its state.
    pub faults: BTreeMap<Arc<str>, String>,
    /// True if nothing changed while it was read. If not, it must be read again soon.
    pub is_settled: bool,
}

/// A file.
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
    /// It was exchanged for a link since it was found.
    #[error("{0}")]
    Outside(String),
    /// Reading does not end.
    #[error("reading the file takes longer than {} s; is it on a network file system that is gone?", .0.as_secs())]
    Hanging(Duration),
}

impl FileFault {
    /// The kind of fault, for filters and tests.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable-file",
            Self::TooLarge { .. } => "file-too-large",
            Self::Changing => "changing-file",
            Self::Outside(_) => "outside-link",
            Self::Hanging(_) => "hanging-file",
        }
    }
}

/// How files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The largest file.
    pub max_file_bytes: usize,
    /// True if symbolic links may lead out of the roots.
    pub follows_links: bool,
    /// How long the file system may block.
    pub deadline: Duration,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { max_file_bytes: 10 << 20, follows_links: false, deadline: DEADLINE }
    }
}

/// Reads the watched roots again and again.
#[derive(Debug)]
pub struct Reader {
    walker: Walker,
    options: ReadOptions,
    hands: Hands,
}

impl Reader {
    /// Roots are files or directories.
    #[must_use]
    pub fn new(roots: &[PathBuf], options: ReadOptions) -> Self {
        let walker = Walker::new(roots, options.follows_links);
        Self { walker, options, hands: Hands::new(options.deadline) }
    }

    /// Walks through the roots without reading files. Blocks, as long as the file system answers.
    #[must_use]
    pub fn walk(&mut self) -> Walk {
        self.walker.walk(&mut self.hands).0
    }

    /// The hidden files and directories of a walk that look like configuration and are not read; none if the file system is
    /// silent.
    #[must_use]
    pub fn hidden(&mut self, walk: &Walk) -> Vec<String> {
        let walked = walk.directories.iter().filter(|(_, directory)| directory.only.is_none());
        let directories: Vec<PathBuf> = walked.map(|(path, _)| path.clone()).collect();
        let found = self.hands.run("hidden files", move |progress| hidden::find(&directories, progress));
        found.unwrap_or_default()
    }

    /// Reads everything now, and returns it by path. Blocks.
    ///
    /// `watch` gets every walk, watches its directories, and returns `true` if one of them was not watched before. Then the walk is
    /// repeated, because it may have missed changes in that directory.
    #[must_use]
    pub fn scan(&mut self, mut watch: impl FnMut(&Walk) -> bool) -> (Walk, Scan) {
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            let (mut walk, bounds) = self.walker.walk(&mut self.hands);
            let is_new = watch(&walk);
            if is_new && n_tries < MAX_TRIES {
                continue;
            }
            let mut scan = Scan { faults: walk.faults.clone(), is_settled: !is_new, ..Scan::default() };
            for path in walk.files.keys() {
                let read = match self.read_file(path, &bounds) {
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
            // A ConfigMap swaps all its files at once, so a mixture from before and after the swap is no version of it.
            scan.is_settled &= self.lead_the_same(&walk.links);
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

impl Reader {
    fn read_file(&mut self, path: &Arc<str>, bounds: &Arc<Bounds>) -> Result<FileRead, Vanished> {
        let (limit, file, bounds) = (self.options.max_file_bytes, Arc::clone(path), Arc::clone(bounds));
        let read = self.hands.run(path, move |_| read_file(Path::new(&*file), limit, &bounds));
        read.unwrap_or(Ok(Err(FileFault::Hanging(self.options.deadline))))
    }

    /// Returns `true` if links still lead to the same places.
    fn lead_the_same(&mut self, links: &BTreeMap<PathBuf, PathBuf>) -> bool {
        let links = links.clone();
        let is_same = self.hands.run("links", move |progress| {
            links.iter().all(|(link, target)| {
                progress.step();
                fs::read_link(link).is_ok_and(|now| now == *target)
            })
        });
        is_same.unwrap_or_default()
    }
}

/// The bytes of a file that was read before, if it still has the same content: then it does not matter where it lies by now. Blocks,
/// as long as the file system answers.
#[must_use]
pub fn read_again(path: &Path, limit: usize, hash: &Version) -> Option<Arc<[u8]>> {
    let read = read_file(path, limit, &Bounds::everywhere()).ok()?.ok()?;
    (read.hash == *hash).then_some(read.bytes)
}

fn read_file(path: &Path, limit: usize, bounds: &Bounds) -> Result<FileRead, Vanished> {
    for _ in 0..MAX_TRIES {
        match try_read(path, limit, bounds) {
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

/// Returns `None` if the file was written to meanwhile.
///
/// A file that the walk found may be something else by now: a pipe, whose opening would wait for a writer, or a link to a file
/// that is not one of ours. So it is opened without waiting, and judged by what was opened.
fn try_read(path: &Path, limit: usize, bounds: &Bounds) -> io::Result<Option<FileRead>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    match real_path(path, &file, &before)? {
        None => return Ok(None),
        Some(real) if !bounds.hold(&real) => return Ok(Some(Err(FileFault::Outside(leads_out(&real))))),
        Some(_) => {}
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

/// Where an open file is, without links; `None` if it is no longer there.
fn real_path(path: &Path, file: &File, opened: &fs::Metadata) -> io::Result<Option<PathBuf>> {
    // The kernel knows the present path of an open file. Other systems have no such directory.
    if let Ok(real) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        return Ok(Some(real).filter(|_| opened.nlink() > 0));
    }
    let real = fs::canonicalize(path)?;
    let is_same = fs::symlink_metadata(&real).is_ok_and(|found| Stamp::of(&found) == Stamp::of(opened));
    Ok(is_same.then_some(real))
}

/// How long a file system may block. Ten megabytes take a slow network file system a second.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A swap or a save takes microseconds. A file that changes five times in a row is being written all the time.
const MAX_TRIES: usize = 5;

#[cfg(test)]
mod tests;
