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

fn options(max_file_bytes: usize) -> ReadOptions {
    ReadOptions { max_file_bytes, ..ReadOptions::default() }
}

/// Scans and gives contents and faults by path relative to the directory.
fn scan(dir: &TempDir) -> BTreeMap<String, Result<String, String>> {
    let (_, scan) = Reader::new(&[dir.path().to_owned()], options(100)).scan(|_| false);
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
    assert_eq!(
        found["dangling.yaml"],
        Err("the link leads to nowhere, and nothing is there; remove the link, or put something there"
            .to_owned())
    );
    assert_eq!(paths(&dir), ["a.yaml", "big.yaml", "dangling.yaml", "just.yaml", "pipe.yaml"]);
}

#[test]
fn a_file_of_50_mb_is_refused_unread() {
    let dir = directory(&[]);
    let file = File::create(dir.path().join("a.yaml")).unwrap();
    file.set_len(50_000_000).unwrap();
    let (_, scan) = Reader::new(&[dir.path().to_owned()], options(10 << 20)).scan(|_| false);
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
    let (walk, scan) = Reader::new(&roots, options(100)).scan(|_| false);
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
        let (_, scan) = Reader::new(&roots, options(100)).scan(|_| false);
        let n = scan.files.keys().filter(|path| path.ends_with("sub/a.yaml")).count();
        assert_eq!(n, 1, "{roots:?}: {scan:?}");
        assert!(scan.faults.is_empty());
    }
}

#[test]
fn equal_walks_mean_equal_files() {
    let dir = directory(&[("a.yaml", "a")]);
    let mut reader = Reader::new(&[dir.path().to_owned()], options(100));
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

#[test]
fn a_link_out_of_the_root_is_an_error_and_shows_nothing_of_its_target() {
    let elsewhere = directory(&[("shadow", "root:secret"), ("dir/a.yaml", "secret"), ("note", "x")]);
    let dir = directory(&[("real.yaml", "a"), ("sub/b.yaml", "b")]);
    symlink(elsewhere.path().join("shadow"), dir.path().join("shadow.yaml")).unwrap();
    symlink(elsewhere.path().join("dir"), dir.path().join("dir")).unwrap();
    symlink(elsewhere.path().join("dir/a.yaml"), dir.path().join("sub/deep.yaml")).unwrap();
    // A file that is no configuration is not looked at, wherever it is.
    symlink(elsewhere.path().join("note"), dir.path().join("note")).unwrap();
    symlink(elsewhere.path().join("note"), dir.path().join("note.txt")).unwrap();
    let found = scan(&dir);
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!((&found["real.yaml"], &found["sub/b.yaml"]), (&Ok("a".to_owned()), &Ok("b".to_owned())));
    for path in ["shadow.yaml", "dir", "sub/deep.yaml"] {
        let fault = found[path].as_ref().unwrap_err();
        assert!(fault.contains("--follow-symlinks") && !fault.contains("secret"), "{path}: {fault}");
    }
}

#[test]
fn links_may_lead_to_another_root_and_with_the_flag_anywhere() {
    let shared = directory(&[("a.yaml", "shared")]);
    let dir = directory(&[]);
    symlink(shared.path().join("a.yaml"), dir.path().join("a.yaml")).unwrap();
    let roots = [dir.path().to_owned(), shared.path().to_owned()];
    let (_, scan) = Reader::new(&roots, options(100)).scan(|_| false);
    assert!(scan.faults.is_empty() && scan.files.values().all(Result::is_ok), "{scan:?}");
    assert_eq!(scan.files.len(), 2);

    let follows = ReadOptions { follows_links: true, ..options(100) };
    let (_, scan) = Reader::new(&[dir.path().to_owned()], follows).scan(|_| false);
    assert!(scan.faults.is_empty() && scan.files.values().all(Result::is_ok), "{scan:?}");
    let (_, scan) = Reader::new(&[dir.path().to_owned()], options(100)).scan(|_| false);
    assert!(scan.faults.len() == 1 && scan.files.is_empty(), "{scan:?}");
}

#[test]
fn a_root_that_is_a_link_is_where_it_leads() {
    let real = directory(&[("v1/a.yaml", "a"), ("v1/..2026/b.yaml", "b")]);
    symlink("v1", real.path().join("current")).unwrap();
    symlink("..2026", real.path().join("v1/..data")).unwrap();
    symlink("..data/b.yaml", real.path().join("v1/b.yaml")).unwrap();
    let (_, scan) = Reader::new(&[real.path().join("current")], options(100)).scan(|_| false);
    assert!(scan.faults.is_empty() && scan.files.len() == 2, "{scan:?}");
    assert!(scan.files.values().all(Result::is_ok), "{scan:?}");
}

#[test]
fn what_is_exchanged_between_look_and_open_is_judged_when_it_is_open() {
    let elsewhere = directory(&[("shadow", "root:secret")]);
    let dir = directory(&[("link.yaml", "a"), ("pipe.yaml", "b"), ("dir.yaml", "c"), ("ok.yaml", "d")]);
    let at = |name: &str| dir.path().join(name);
    let mut is_first = true;
    let mut reader = Reader::new(&[dir.path().to_owned()], options(100));
    // Between the walk and the reading.
    let (_, scan) = reader.scan(|_| {
        if std::mem::replace(&mut is_first, false) {
            for name in ["link.yaml", "pipe.yaml", "dir.yaml"] {
                fs::remove_file(at(name)).unwrap();
            }
            symlink(elsewhere.path().join("shadow"), at("link.yaml")).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(at("pipe.yaml")).status().unwrap().success());
            fs::create_dir(at("dir.yaml")).unwrap();
        }
        false
    });
    let of = |name: &str| scan.files[&*at(name).to_string_lossy()].clone();
    let FileFault::Outside(message) = of("link.yaml").unwrap_err() else { panic!("{scan:?}") };
    assert!(message.contains("--follow-symlinks"), "{message}");
    for name in ["pipe.yaml", "dir.yaml"] {
        assert_eq!(of(name), Err(FileFault::Unreadable("not a regular file".to_owned())), "{name}");
    }
    assert_eq!(&*of("ok.yaml").unwrap().bytes, b"d");
}

#[test]
fn devices_and_sockets_are_no_files() {
    let dir = directory(&[("a.yaml", "a")]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket.yaml")).unwrap();
    symlink("/dev/zero", dir.path().join("zero.yaml")).unwrap();
    let follows = ReadOptions { follows_links: true, ..options(100) };
    let (_, scan) = Reader::new(&[dir.path().to_owned()], follows).scan(|_| false);
    assert_eq!((scan.files.len(), scan.faults.len()), (1, 2), "{scan:?}");
    // Has no end, and says that it has no bytes.
    symlink("/proc/self/mem", dir.path().join("mem.yaml")).unwrap();
    let (_, scan) = Reader::new(&[dir.path().to_owned()], follows).scan(|_| false);
    let path = dir.path().join("mem.yaml");
    assert!(scan.files[path.to_str().unwrap()].is_err(), "{scan:?}");
}
