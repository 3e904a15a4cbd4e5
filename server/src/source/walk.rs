//! Which files there are: one walk through the watched roots.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::names::{CONFIG_MAP_LINK, is_configuration, is_ignored};

/// What a walk found. Equal walks mean that nothing has changed that `stat` can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The files to read, by path.
    pub files: BTreeMap<Arc<str>, Stamp>,
    /// Roots, directories and links that lead to nothing readable, and why. What was below them before may still be there.
    pub faults: BTreeMap<Arc<str>, String>,
    /// The directories in which a change can matter.
    pub directories: BTreeMap<PathBuf, Directory>,
    /// The symbolic links on the way, and where they lead. Their swap changes many files at once.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// What tells one content of a file from another without reading it.
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
    /// Tells it from another one that takes its place.
    pub id: FileId,
    /// The only names that matter; `None` if it is walked and every name can matter.
    pub only: Option<Vec<OsString>>,
}

/// Walks through roots again and again.
#[derive(Clone, Debug)]
pub struct Walker {
    roots: Vec<PathBuf>,
    /// The device of each root when files were last found in it.
    devices: BTreeMap<PathBuf, u64>,
}

impl Walker {
    /// Roots are files or directories; `./a` and `a` are the same one, and one within another adds nothing.
    #[must_use]
    pub fn new(roots: &[PathBuf]) -> Self {
        let mut clean: Vec<PathBuf> = Vec::new();
        for root in roots {
            let root = without_dots(root);
            if !clean.contains(&root) {
                clean.push(root);
            }
        }
        Self { roots: clean, devices: BTreeMap::new() }
    }

    /// Walks now. Blocks.
    #[must_use]
    pub fn walk(&mut self) -> Walk {
        let mut walk = Walk::default();
        for (index, root) in self.roots.iter().enumerate() {
            let (before, after) = (self.roots.iter().take(index), self.roots.iter().skip(index + 1));
            // Of two that are the same directory, the first one is walked.
            let is_covered = before.clone().any(|outer| covers(outer, root))
                || after.clone().any(|outer| covers(outer, root) && !covers(root, outer));
            if !is_covered {
                walk_root(root, &mut walk);
            }
        }
        self.notice_unmounted(&mut walk);
        walk
    }

    /// A root that has lost all its files and lies on another device than before was unmounted, not emptied.
    fn notice_unmounted(&mut self, walk: &mut Walk) {
        for root in &self.roots {
            let Ok(metadata) = fs::metadata(root) else { continue };
            let has_files = walk.files.keys().any(|path| is_below(path, &root.to_string_lossy()));
            if has_files {
                self.devices.insert(root.clone(), metadata.dev());
            } else if self.devices.get(root).is_some_and(|device| *device != metadata.dev()) {
                let message =
                    "the directory is empty and on another file system than before; is it unmounted?";
                fault(walk, root, message);
            }
        }
    }
}

/// Whether `path` is `directory` or lies below it, both as text.
#[must_use]
pub fn is_below(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn walk_root(root: &Path, walk: &mut Walk) {
    note_parent(root, walk);
    if let Ok(target) = fs::read_link(root) {
        if let Ok(real) = fs::canonicalize(root) {
            note_parent(&real, walk);
        }
        walk.links.insert(root.to_owned(), target);
    }
    match fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => walk_directory(root, &metadata, &mut Vec::new(), walk),
        Ok(metadata) if metadata.is_file() => note_file(root, &metadata, walk),
        Ok(_) => fault(walk, root, "neither a file nor a directory"),
        Err(error) => fault(walk, root, &describe(&error)),
    }
}

fn walk_directory(path: &Path, metadata: &Metadata, above: &mut Vec<FileId>, walk: &mut Walk) {
    let id = FileId::of(metadata);
    if above.contains(&id) {
        tracing::debug!(path = %path.display(), "a symbolic link leads back to a directory above it");
        return;
    }
    if above.len() == MAX_DEPTH {
        return fault(walk, path, "directories are nested too deeply; do symbolic links lead in circles?");
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
        walk_entry(&path.join(&name), &name.to_string_lossy(), above, walk);
    }
    above.pop();
}

fn walk_entry(path: &Path, name: &str, above: &mut Vec<FileId>, walk: &mut Walk) {
    if is_ignored(name) {
        return;
    }
    // What has another extension is no configuration; what has none may be a directory.
    let is_wanted = is_configuration(name) || !name.contains('.');
    if let Ok(target) = fs::read_link(path) {
        walk.links.insert(path.to_owned(), target);
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => walk_directory(path, &metadata, above, walk),
        Ok(_) if !is_configuration(name) => {}
        Ok(metadata) if metadata.is_file() => note_file(path, &metadata, walk),
        Ok(_) => fault(walk, path, "not a regular file"),
        // A file that was removed since the directory was read is gone; a link that leads nowhere is a fault.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {}
        Err(error) if is_wanted => fault(walk, path, &describe(&error)),
        Err(_) => {}
    }
}

fn note_file(path: &Path, metadata: &Metadata, walk: &mut Walk) {
    let Some(shown) = path.to_str() else { return fault(walk, path, "the name is not UTF-8") };
    walk.files.insert(shown.into(), Stamp::of(metadata));
    if walk.links.contains_key(path)
        && let Ok(real) = fs::canonicalize(path)
    {
        note_parent(&real, walk);
    }
}

/// Watches for `path` itself to come, go or be replaced.
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

/// Whether the files of `inner`, another path, are found by walking `outer`.
fn covers(outer: &Path, inner: &Path) -> bool {
    let (Ok(outer), Ok(inner)) = (fs::canonicalize(outer), fs::canonicalize(inner)) else { return false };
    let Ok(rest) = inner.strip_prefix(&outer) else { return false };
    rest.components().all(|part| !is_ignored(&part.as_os_str().to_string_lossy()))
}

fn without_dots(path: &Path) -> PathBuf {
    let clean: PathBuf =
        path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
    if clean.as_os_str().is_empty() { PathBuf::from(".") } else { clean }
}

/// No one nests deeper by hand.
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
        let mut walker = Walker::new(&[dir.path().to_owned()]);
        fs::write(dir.path().join("a.yaml"), "a").unwrap();
        assert!(walker.walk().faults.is_empty());
        fs::remove_file(dir.path().join("a.yaml")).unwrap();
        assert!(walker.walk().faults.is_empty(), "emptied, not unmounted");
        for device in walker.devices.values_mut() {
            *device += 1;
        }
        assert_eq!(walker.walk().faults.len(), 1);
        fs::write(dir.path().join("a.yaml"), "a").unwrap();
        assert!(walker.walk().faults.is_empty());
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
