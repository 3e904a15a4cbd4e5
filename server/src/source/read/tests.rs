//! Reading, against real files and directories.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

/// A directory with some files, given by relative path and content.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// Scans and gives contents and faults by path relative to the directory.
fn scan(dir: &TempDir) -> BTreeMap<String, Result<String, String>> {
    let (_, scan) = Reader::new(&[dir.path().to_owned()], 100).scan(|_| false);
    assert!(scan.is_settled);
    let prefix = dir.path().to_str().unwrap();
    let relative = |path: &str| path.strip_prefix(prefix).unwrap().trim_start_matches('/').to_owned();
    let files = scan.files.iter().map(|(path, read)| {
        let text = |content: &FileContent| String::from_utf8(content.bytes.to_vec()).unwrap();
        (relative(path), read.as_ref().map(text).map_err(ToString::to_string))
    });
    files.chain(scan.faults.iter().map(|(path, fault)| (relative(path), Err(fault.clone())))).collect()
}

fn paths(dir: &TempDir) -> Vec<String> {
    scan(dir).into_keys().collect()
}

#[test]
fn pitfall_72_subdirectories_are_read_and_other_files_are_not() {
    let dir = directory(&[
        ("a.yaml", "a"),
        ("deep/er/b.yml", "b"),
        ("c.json", "c"),
        ("README.md", "x"),
        ("a.yaml~", "x"),
        (".git/config.yaml", "x"),
        ("..data/a.yaml", "x"),
    ]);
    assert_eq!(paths(&dir), ["a.yaml", "c.json", "deep/er/b.yml"]);
    assert_eq!(scan(&dir)["deep/er/b.yml"], Ok("b".to_owned()));
}

#[test]
fn links_are_followed_and_circles_end() {
    let dir = directory(&[("real/a.yaml", "a"), ("..2026/b.yaml", "b")]);
    symlink("real", dir.path().join("linked")).unwrap();
    symlink("..", dir.path().join("real/up")).unwrap();
    symlink("..2026", dir.path().join("..data")).unwrap();
    symlink("..data/b.yaml", dir.path().join("b.yaml")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    let found = scan(&dir);
    assert_eq!(found["b.yaml"], Ok("b".to_owned()));
    assert_eq!(found["linked/a.yaml"], Ok("a".to_owned()));
    assert_eq!(found["real/a.yaml"], Ok("a".to_owned()));
    assert!(found["loop"].is_err());
    assert_eq!(found.len(), 4);
}

#[test]
fn many_links_between_siblings_end() {
    let dir = directory(&[("a.yaml", "a")]);
    for from in 0..8 {
        fs::create_dir(dir.path().join(format!("d{from}"))).unwrap();
        for to in 0..8 {
            symlink(format!("../d{to}"), dir.path().join(format!("d{from}/l{to}"))).unwrap();
        }
    }
    let _ = scan(&dir);
}

#[test]
fn what_cannot_be_read_is_a_fault_and_the_rest_goes_on() {
    let dir = directory(&[("a.yaml", "a"), ("big.yaml", &"x".repeat(101)), ("just.yaml", &"x".repeat(100))]);
    symlink("nowhere", dir.path().join("dangling.yaml")).unwrap();
    symlink("nowhere", dir.path().join("NOTES.txt")).unwrap();
    fs::create_dir(dir.path().join("dir.yaml")).unwrap();
    // Opening a pipe would wait for a writer.
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("pipe.yaml")).status();
    assert!(made.unwrap().success());
    let found = scan(&dir);
    assert_eq!(found["pipe.yaml"], Err("not a regular file".to_owned()));
    let limit = "the file has 101 bytes, the limit is 100 bytes (--max-file-bytes)";
    assert_eq!(found["big.yaml"], Err(limit.to_owned()));
    assert_eq!(found["dangling.yaml"], Err("there is no such file or directory".to_owned()));
    assert_eq!(paths(&dir), ["a.yaml", "big.yaml", "dangling.yaml", "just.yaml", "pipe.yaml"]);
}

#[test]
fn a_file_of_50_mb_is_refused_unread() {
    let dir = directory(&[]);
    let file = File::create(dir.path().join("a.yaml")).unwrap();
    file.set_len(50_000_000).unwrap();
    let (_, scan) = Reader::new(&[dir.path().to_owned()], 10 << 20).scan(|_| false);
    let fault = scan.files.values().next().unwrap().as_ref().unwrap_err();
    assert_eq!(*fault, FileFault::TooLarge { bytes: 50_000_000, limit: 10 << 20 });
}

#[test]
fn a_file_without_permission_is_a_fault() {
    let dir = directory(&[("a.yaml", "a"), ("closed/b.yaml", "b")]);
    let close = |path: &str, mode| {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    close("a.yaml", 0o000);
    close("closed", 0o000);
    // Root may read everything.
    let may_read = File::open(dir.path().join("a.yaml")).is_ok();
    let found = scan(&dir);
    close("closed", 0o700);
    assert_eq!(found["a.yaml"].is_ok(), may_read);
    assert_eq!(found.contains_key("closed"), !may_read);
}

#[test]
fn a_root_that_is_missing_is_a_fault_and_a_root_may_be_a_file() {
    let dir = directory(&[("sub/a.yaml", "a"), ("other.yaml", "x")]);
    let roots = [dir.path().join("sub/a.yaml"), dir.path().join("missing")];
    let (walk, scan) = Reader::new(&roots, 100).scan(|_| false);
    assert_eq!(scan.files.len(), 1);
    assert_eq!(scan.faults.len(), 1);
    assert_eq!(walk.directories[&dir.path().join("sub")].only, Some(vec!["a.yaml".into()]));
    assert_eq!(walk.directories[dir.path()].only, Some(vec!["missing".into()]));
}

#[test]
fn overlapping_roots_are_read_once() {
    let dir = directory(&[("sub/a.yaml", "a")]);
    symlink("sub", dir.path().join("same")).unwrap();
    let at = |path: &str| dir.path().join(path);
    for roots in [vec![at("."), at("sub")], vec![at("sub"), at("./sub")], vec![at("sub"), at("same")]] {
        let (_, scan) = Reader::new(&roots, 100).scan(|_| false);
        let n = scan.files.keys().filter(|path| path.ends_with("sub/a.yaml")).count();
        assert_eq!(n, 1, "{roots:?}: {scan:?}");
        assert!(scan.faults.is_empty());
    }
}

#[test]
fn equal_walks_mean_equal_files() {
    let dir = directory(&[("a.yaml", "a")]);
    let mut reader = Reader::new(&[dir.path().to_owned()], 100);
    let before = reader.walk();
    assert_eq!(before, reader.walk());
    fs::write(dir.path().join("b.yaml"), "b").unwrap();
    assert_ne!(before, reader.walk());
    let before = reader.walk();
    // The same size, another inode.
    fs::write(dir.path().join("c.tmp"), "c").unwrap();
    fs::rename(dir.path().join("c.tmp"), dir.path().join("b.yaml")).unwrap();
    assert_ne!(before.files, reader.walk().files);
}
