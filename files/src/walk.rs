//! The walk through the watched roots.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::deadline::{Hands, Hangs, Progress};
use crate::names::{CONFIG_MAP_LINK, is_configuration, is_ignored};

/// The result of a walk. Equal walks mean that nothing has changed that `stat` can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The files to read, by path.
    pub files: BTreeMap<Arc<str>, Stamp>,
    /// Roots, directories and links that cannot be read, with the reasons. Their contents may still be there.
    pub faults: BTreeMap<Arc<str>, String>,
    /// The directories in which a change can matter.
    pub directories: BTreeMap<PathBuf, Directory>,
    /// The symbolic links on the way, and where they lead. Their swap changes many files at once.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// A stamp that distinguishes contents of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    id: FileId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open or a named file.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            id: FileId::of(metadata),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A directory in which a change can matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Distinguishes it from another one that takes its place.
    pub id: FileId,
    /// The only names that matter; `None` if it is walked and every name can matter.
    pub only: Option<Vec<OsString>>,
}

/// The part of the file system that belongs to the watched files.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The roots without any links in them.
    real_roots: Vec<PathBuf>,
    /// True if links may lead anywhere.
    follows_links: bool,
}

impl Bounds {
    /// No bounds.
    #[must_use]
    pub fn everywhere() -> Self {
        Self { follows_links: true, real_roots: Vec::new() }
    }

    /// Returns `true` if a path without links in it is, or lies below, a watched root.
    #[must_use]
    pub fn hold(&self, real: &Path) -> bool {
        self.follows_links || self.real_roots.iter().any(|root| real.starts_with(root))
    }
}

/// Walks through roots again and again.
#[derive(Debug)]
pub struct Walker {
    roots: Vec<PathBuf>,
    follows_links: bool,
    /// The device of each root when files were last found in it.
    devices: BTreeMap<PathBuf, u64>,
}

/// The kind of a root when it is walked.
struct Root {
    path: PathBuf,
    /// The root without links; `None` if it does not exist or cannot be resolved.
    real: Option<PathBuf>,
}

impl Walker {
    /// Roots are files or directories; `./a` and `a` are the same one, and one within another adds nothing.
    #[must_use]
    pub fn new(roots: &[PathBuf], follows_links: bool) -> Self {
        let mut clean: Vec<PathBuf> = Vec::new();
        for root in roots {
            let root = without_dots(root);
            if !clean.contains(&root) {
                clean.push(root);
            }
        }
        Self { roots: clean, follows_links, devices: BTreeMap::new() }
    }

    /// Walks now, and returns the files and directories of the roots. Blocks, at each root no longer than `hands` wait.
    #[must_use]
    pub fn walk(&mut self, hands: &mut Hands) -> (Walk, Arc<Bounds>) {
        let mut walk = Walk::default();
        let mut roots = Vec::new();
        for path in &self.roots {
            let root = path.clone();
            match hands.run(&about(path), move |_| fs::canonicalize(root).ok()) {
                Ok(real) => roots.push(Root { path: path.clone(), real }),
                Err(Hangs) => fault(&mut walk, path, HANGS),
            }
        }
        let real_roots = roots.iter().filter_map(|root| root.real.clone()).collect();
        let bounds = Arc::new(Bounds { real_roots, follows_links: self.follows_links });
        for (index, root) in roots.iter().enumerate() {
            let (before, after) = (roots.iter().take(index), roots.iter().skip(index + 1));
            // If two roots are the same directory, the first one is walked.
            let is_covered = before.clone().any(|outer| covers(outer, root))
                || after.clone().any(|outer| covers(outer, root) && !covers(root, outer));
            if is_covered {
                continue;
            }
            let (path, bounds) = (root.path.clone(), Arc::clone(&bounds));
            let walked = hands.run(&about(&root.path), move |progress| {
                let mut walk = Walk::default();
                Walking { bounds: &bounds, progress, walk: &mut walk }.root(&path);
                let device = fs::metadata(&path).ok().map(|metadata| metadata.dev());
                (walk, device)
            });
            match walked {
                Ok((mut of_root, device)) => {
                    self.notice_unmounted(&root.path, device, &mut of_root);
                    walk.merge(of_root);
                }
                Err(Hangs) => fault(&mut walk, &root.path, HANGS),
            }
        }
        (walk, bounds)
    }

    /// A root that has lost all its files and lies on another device than before was unmounted, not emptied.
    fn notice_unmounted(&mut self, root: &Path, device: Option<u64>, walk: &mut Walk) {
        let Some(device) = device else { return };
        if !walk.files.is_empty() {
            self.devices.insert(root.to_owned(), device);
        } else if self.devices.get(root).is_some_and(|before| *before != device) {
            let message =
                "the directory is empty and on a different file system than before; is it unmounted?";
            fault(walk, root, message);
        }
    }
}

impl Walk {
    /// Adds the walk of another root.
    fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
        self.faults.extend(other.faults);
        self.links.extend(other.links);
        for (path, directory) in other.directories {
            match self.directories.entry(path) {
                Entry::Vacant(entry) => _ = entry.insert(directory),
                Entry::Occupied(mut entry) => entry.get_mut().merge(directory),
            }
        }
    }
}

impl Directory {
    fn merge(&mut self, other: Self) {
        match (&mut self.only, other.only) {
            (Some(only), Some(more)) => {
                let more: Vec<_> = more.into_iter().filter(|name| !only.contains(name)).collect();
                only.extend(more);
            }
            (only, None) => *only = None,
            (None, Some(_)) => {}
        }
    }
}

/// The name of work about a root, which differs from that of reading a file with the same path.
fn about(root: &Path) -> String {
    format!("root {}", root.display())
}

/// Returns `true` if `path` is `directory` or lies below it, both as text.
#[must_use]
pub fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A walk through a root.
struct Walking<'w> {
    bounds: &'w Bounds,
    progress: &'w Progress,
    walk: &'w mut Walk,
}

impl Walking<'_> {
    fn root(&mut self, root: &Path) {
        note_parent(root, self.walk);
        if let Ok(target) = fs::read_link(root) {
            if let Ok(real) = fs::canonicalize(root) {
                note_parent(&real, self.walk);
            }
            self.walk.links.insert(root.to_owned(), target);
        }
        match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => self.directory(root, &metadata, &mut Vec::new()),
            Ok(metadata) if metadata.is_file() => self.file(root, &metadata),
            Ok(_) => fault(self.walk, root, "neither a file nor a directory"),
            Err(error) => fault(self.walk, root, &describe(&error)),
        }
    }

    fn directory(&mut self, path: &Path, metadata: &Metadata, above: &mut Vec<FileId>) {
        let id = FileId::of(metadata);
        if above.contains(&id) {
            tracing::debug!(path = %path.display(), "a symbolic link leads back to a directory above it");
            return;
        }
        let walk = &mut *self.walk;
        if above.len() == MAX_DEPTH {
            return fault(
                walk,
                path,
                "directories are nested too deeply; do symbolic links lead in circles?",
            );
        }
        if walk.directories.len() >= MAX_DIRECTORIES || walk.files.len() >= MAX_FILES {
            return fault(walk, path, "too many files and directories; do symbolic links lead in circles?");
        }
        walk.directories.insert(path.to_owned(), Directory { id, only: None });
        if let Ok(target) = fs::read_link(path.join(CONFIG_MAP_LINK)) {
            walk.links.insert(path.join(CONFIG_MAP_LINK), target);
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut names: Vec<OsString> = match entries {
            Ok(entries) => entries.into_iter().map(|entry| entry.file_name()).collect(),
            Err(error) => return fault(walk, path, &describe(&error)),
        };
        names.sort();
        above.push(id);
        for name in names {
            self.progress.step();
            self.entry(&path.join(&name), &name.to_string_lossy(), above);
        }
        above.pop();
    }

    fn entry(&mut self, path: &Path, name: &str, above: &mut Vec<FileId>) {
        if is_ignored(name) {
            return;
        }
        // A file with another extension is no configuration; a name without one may be a directory.
        let is_wanted = is_configuration(name) || !name.contains('.');
        if let Ok(target) = fs::read_link(path) {
            self.walk.links.insert(path.to_owned(), target);
            // A broken link is reported below.
            let real = fs::canonicalize(path).ok();
            if let Some(real) = real.filter(|real| !self.bounds.hold(real)) {
                if is_wanted && (is_configuration(name) || real.is_dir()) {
                    fault(self.walk, path, &leads_out(&real));
                }
                return;
            }
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, &metadata, above),
            Ok(_) if !is_configuration(name) => {}
            Ok(metadata) if metadata.is_file() => self.file(path, &metadata),
            Ok(_) => fault(self.walk, path, "not a regular file"),
            // A file that was removed since the directory was read is gone; a link that leads nowhere is a fault.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {}
            Err(error) if is_wanted => {
                let message = match self.walk.links.get(path) {
                    Some(target) if error.kind() == io::ErrorKind::NotFound => {
                        format!(
                            "the link leads to {}, and nothing is there; remove the link, or put something there",
                            target.display()
                        )
                    }
                    Some(_) | None => describe(&error),
                };
                fault(self.walk, path, &message);
            }
            Err(_) => {}
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) {
        let Some(shown) = path.to_str() else { return fault(self.walk, path, "the name is not UTF-8") };
        self.walk.files.insert(shown.into(), Stamp::of(metadata));
        if self.walk.links.contains_key(path)
            && let Ok(real) = fs::canonicalize(path)
        {
            note_parent(&real, self.walk);
        }
    }
}

/// The message about a link, or a path behind one, that leads out of the watched roots.
pub(super) fn leads_out(real: &Path) -> String {
    format!(
        "the symbolic link leads to {}, which is outside all watched directories: watch that too, copy it, or \
         accept such links with --follow-symlinks",
        real.display()
    )
}

/// Watches for `path` itself to appear, disappear or be replaced.
fn note_parent(path: &Path, walk: &mut Walk) {
    let Some(name) = path.file_name() else { return };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(metadata) = fs::metadata(parent) else { return };
    let new = || Directory { id: FileId::of(&metadata), only: Some(Vec::new()) };
    let directory = walk.directories.entry(parent.to_owned()).or_insert_with(new);
    if let Some(only) = &mut directory.only
        && !only.iter().any(|other| other == name)
    {
        only.push(name.to_owned());
    }
}

fn fault(walk: &mut Walk, path: &Path, message: &str) {
    walk.faults.insert(path.to_string_lossy().into(), message.to_owned());
}

fn describe(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return "there is no such file or directory".to_owned();
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return "the server may not read it (permission denied)".to_owned();
    }
    error.to_string()
}

/// Returns `true` if the files of `inner`, another path, are found by walking `outer`.
fn covers(outer: &Root, inner: &Root) -> bool {
    let (Some(outer), Some(inner)) = (&outer.real, &inner.real) else { return false };
    let Ok(rest) = inner.strip_prefix(outer) else { return false };
    rest.components().all(|part| !is_ignored(&part.as_os_str().to_string_lossy()))
}

fn without_dots(path: &Path) -> PathBuf {
    let clean: PathBuf =
        path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
    if clean.as_os_str().is_empty() { PathBuf::from(".") } else { clean }
}

/// The message about a root that does not answer.
const HANGS: &str = "the file system does not answer; is it a network file system that is gone?";

/// People do not nest deeper by hand.
const MAX_DEPTH: usize = 64;
/// Links between sibling directories multiply; the walk must end.
const MAX_DIRECTORIES: usize = 20_000;
/// As above.
const MAX_FILES: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_lost_its_files_with_its_file_system_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let mut walker = Walker::new(&[dir.path().to_owned()], false);
        let mut hands = Hands::new(std::time::Duration::from_secs(10));
        let mut walk = move |walker: &mut Walker| walker.walk(&mut hands).0;
        fs::write(dir.path().join("a.yaml"), "a").unwrap();
        assert!(walk(&mut walker).faults.is_empty());
        fs::remove_file(dir.path().join("a.yaml")).unwrap();
        assert!(walk(&mut walker).faults.is_empty(), "emptied, not unmounted");
        for device in walker.devices.values_mut() {
            *device += 1;
        }
        assert_eq!(walk(&mut walker).faults.len(), 1);
        fs::write(dir.path().join("a.yaml"), "a").unwrap();
        assert!(walk(&mut walker).faults.is_empty());
    }

    #[test]
    fn below_is_told_by_whole_names() {
        for (path, directory, expected) in [
            ("a/b", "a", true),
            ("a", "a", true),
            ("ab", "a", false),
            ("a/b", "a/", true),
            ("/a", "/", true),
            ("./a", ".", true),
            ("a", "a/b", false),
        ] {
            assert_eq!(is_below(path, directory), expected, "{path} {directory}");
        }
    }
}
