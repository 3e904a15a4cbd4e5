//! Directories that cannot be written to, and disks that are full.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use common::{contents, described, open, runtime};
use xds_store::{
    Change, CommitError, JournalStore, LastGood, LastGoodError, OpenError, OpenNote, Options, Revision,
    Store, StoreError,
};

/// Checks that `dir`, which cannot be written to, is not opened, and that the error says so.
fn assert_not_opened(dir: &Path) {
    for (data, action) in [(dir.to_owned(), "open"), (dir.join("new"), "create the directory")] {
        let result = JournalStore::open(&data, Options::default());
        let Err(OpenError::File(error)) = result else { panic!("{result:?}") };
        assert_eq!((error.kind(), error.action), (io::ErrorKind::PermissionDenied, action));
        assert!(error.to_string().contains("give this user the data directory"), "{error}");
    }
    let good = LastGood::open(&dir.join("good"));
    assert!(
        matches!(&good, Err(LastGoodError::File(error)) if error.kind() == io::ErrorKind::PermissionDenied)
    );
}

/// Runs as another user if this one may write everywhere. That user reaches the test binary by `/proc/self/exe`, wherever it is.
#[test]
fn a_directory_that_cannot_be_written_to_is_an_error() {
    if let Ok(dir) = std::env::var(DIRECTORY_VARIABLE) {
        // Else "permission denied" would say nothing of writing.
        std::fs::read_dir(&dir).unwrap();
        return assert_not_opened(Path::new(&dir));
    }
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let read_only = std::fs::Permissions::from_mode(0o500);
    if !is_root {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), read_only).unwrap();
        return assert_not_opened(dir.path());
    }
    let dir = tempfile::tempdir_in(shared_directory()).unwrap();
    std::fs::set_permissions(dir.path(), read_only).unwrap();
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let output = Command::new("/proc/self/exe")
        .args(["--exact", "a_directory_that_cannot_be_written_to_is_an_error"])
        .env(DIRECTORY_VARIABLE, dir.path())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// A directory for temporary files that every user reaches: the configured one may be private to root.
fn shared_directory() -> PathBuf {
    let candidates = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
    let is_open = |dir: &Path| dir.metadata().is_ok_and(|dir| dir.permissions().mode() & 0o001 != 0);
    let is_shared = |dir: &PathBuf| dir.is_absolute() && dir.ancestors().all(is_open);
    candidates.into_iter().find(is_shared).unwrap()
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let result = JournalStore::open(&file, Options::default());
    let Err(OpenError::File(error)) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("choose another data directory"), "{error}");
}

/// A file system of one megabyte.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success(), "mounting needs root");
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If it fails, the directory cannot be removed either, and stays for whoever looks after it.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
#[ignore = "it mounts a file system, for which it must run as root"]
fn a_store_on_a_full_disk_refuses_commits_and_opens_nevertheless() {
    let disk = SmallDisk::mount();
    let dir = disk.0.path().join("data");
    let commit = |store: &JournalStore, length: usize| {
        runtime().block_on(async {
            let value = store.put_blob(Bytes::from(vec![7; length])).await.unwrap();
            store.commit(store.head(), described(vec![Change::set("a", value)])).await
        })
    };
    let (store, _) = open(&dir);
    commit(&store, 10).unwrap();
    let ballast = disk.0.path().join("ballast");
    // Whoever else uses the disk fills it up.
    let filled = std::fs::write(&ballast, vec![0; 2 * 1024 * 1024]);
    assert_eq!(filled.unwrap_err().kind(), io::ErrorKind::StorageFull);
    let full = |result: Result<Revision, CommitError>| match result {
        Err(CommitError::Store(StoreError::File(error))) => {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    };
    full(commit(&store, 100_000));
    assert_eq!(store.head(), Revision(1));
    drop(store);
    let (store, notes) = open(&dir);
    println!("{notes:?}");
    assert_eq!(store.head(), Revision(1));
    assert!(!dir.join("acknowledged.damaged-1").exists(), "a full disk is no damage: {notes:?}");
    drop(store);
    std::fs::remove_dir_all(dir.join("acknowledged")).unwrap();
    let _ = std::fs::OpenOptions::new()
        .append(true)
        .open(&ballast)
        .and_then(|mut file| io::copy(&mut io::repeat(0), &mut file));

    let (store, notes) = open(&dir);
    assert!(matches!(notes[..], [OpenNote::NotMarked { .. }]), "{notes:?}");
    assert_eq!(contents(&store, &store.state().1)["a"], [7; 10]);
    full(commit(&store, 200_000));
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(commit(&store, 100_000).unwrap(), Revision(2));
    drop(store);
    let (store, _) = open(&dir);
    assert_eq!(contents(&store, &store.state().1)["a"], [7; 100_000]);
}

const DIRECTORY_VARIABLE: &str = "XDS_STORE_TEST_READ_ONLY_DIRECTORY";

/// The user that owns nothing, by convention.
const NOBODY: u32 = 65_534;
