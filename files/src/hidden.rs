//! Hidden files that look like configuration, and are not read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::deadline::Progress;
use crate::names::{is_configuration, is_hidden};

/// The hidden files and directories with configuration in these directories, without what is below them, in order; at most
/// [`MAX_HIDDEN`].
///
/// Files that programs leave behind are none: the copies of editors, the links of ConfigMaps, and directories that hold no
/// configuration themselves, such as `.git`.
pub(super) fn find(directories: &[PathBuf], progress: &Progress) -> Vec<String> {
    let mut found = Vec::new();
    for directory in directories {
        let mut here: Vec<String> = names(directory, progress)
            .filter(|name| is_hidden(name))
            .filter(|name| is_configuration(&name[1..]) || has_configuration(&directory.join(name), progress))
            .map(|name| directory.join(name).to_string_lossy().into_owned())
            .collect();
        here.sort();
        found.append(&mut here);
        if found.len() >= MAX_HIDDEN {
            break;
        }
    }
    found.truncate(MAX_HIDDEN);
    found
}

/// Returns `true` if a directory has files that would be read.
fn has_configuration(path: &Path, progress: &Progress) -> bool {
    path.is_dir() && names(path, progress).any(|name| is_configuration(&name))
}

/// The names in a directory; none if it cannot be read, which is reported elsewhere.
fn names(directory: &Path, progress: &Progress) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| {
        progress.step();
        entry.file_name().to_string_lossy().into_owned()
    })
}

/// A longer list would not help.
const MAX_HIDDEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_configuration_is_found_and_what_programs_leave_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ".a.yaml",
            ".b.YML",
            ".x/c.json",
            "sub/.d.yaml", // found
            ".a.yaml.swp",
            ".#a.yaml",
            "._a.yaml",
            ".gitignore",
            ".git/config",
            ".y/z/e.yaml",
            "..2026/f.yaml",
            "..data/f.yaml",
            "..g.yaml",
            "h.yaml",
        ];
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let directories = [dir.path().to_owned(), dir.path().join("sub"), dir.path().join("none")];
        let found = find(&directories, &Progress::default());
        let expected = [".a.yaml", ".b.YML", ".x", "sub/.d.yaml"];
        assert_eq!(found, expected.map(|name| dir.path().join(name).to_string_lossy().into_owned()));
    }
}
