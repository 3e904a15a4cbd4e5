//! Copies of files from the last time they were good.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::{BlobHash, FileError, MAX_BLOB_BYTES, MAX_KEY_BYTES, files};

/// A directory with one copy per key, which is used when the file of the key is broken.
///
/// Copies may contain private keys: they never leave this machine, the directory has mode 0700 and the files 0600.
/// A copy is either the one saved last or the one before, whatever happens while it is saved. All methods block.
#[derive(Debug)]
pub struct LastGood {
    dir: PathBuf,
    n_saved: AtomicU64,
}

/// The copies found in the directory.
#[derive(Clone, Debug, Default)]
pub struct LastGoodCopies {
    /// The content by key.
    pub copies: BTreeMap<String, Bytes>,
    /// Copies that cannot be used. They stay where they are, until their key is saved again.
    pub notes: Vec<LastGoodNote>,
}

/// A copy that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the last good copy {} cannot be used: {reason}", path.display())]
pub struct LastGoodNote {
    /// The copy.
    pub path: PathBuf,
    /// The fault in it.
    pub reason: String,
}

/// A copy could not be saved or removed, or the directory not be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LastGoodError {
    /// The key is longer than [`MAX_KEY_BYTES`] or the content than [`MAX_BLOB_BYTES`].
    #[error("the {what} of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The value that is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A file or the directory could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl LastGood {
    /// Opens the directory `dir`, which nobody else may use; creates it with mode 0700 if it does not exist.
    ///
    /// # Errors
    ///
    /// If it can be neither created nor read.
    pub fn open(dir: &Path) -> Result<Self, LastGoodError> {
        files::create_dir(dir)?;
        let store = Self { dir: dir.to_owned(), n_saved: AtomicU64::new(0) };
        for path in store.list(TEMPORARY)? {
            files::remove_file_if_exists(&path)?;
        }
        Ok(store)
    }

    /// Replaces the previous copy; the new one is durable when this returns.
    ///
    /// # Errors
    ///
    /// If it is too large or cannot be written; then the one before is still there.
    pub fn save(&self, key: &str, content: &[u8]) -> Result<(), LastGoodError> {
        check("key", key.len(), MAX_KEY_BYTES)?;
        check("content", content.len(), MAX_BLOB_BYTES)?;
        let path = self.path(key);
        let n = self.n_saved.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{n}.{TEMPORARY}"));
        let saved = write(&temporary, key, content).and_then(|()| files::rename(&temporary, &path));
        if saved.is_err() {
            // A file that cannot be removed now is removed when the directory is opened.
            let _ = files::remove_file_if_exists(&temporary);
        }
        Ok(saved?)
    }

    /// Removes a copy for good; it is no error if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(&self, key: &str) -> Result<(), LastGoodError> {
        files::remove_file_if_exists(&self.path(key))?;
        Ok(files::sync_dir(&self.dir)?)
    }

    /// Reads all copies. One that is damaged is left out and reported.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn load_all(&self) -> Result<LastGoodCopies, LastGoodError> {
        let mut found = LastGoodCopies::default();
        for path in self.list(EXTENSION)? {
            match self.load(&path) {
                Ok((key, content)) => {
                    found.copies.insert(key, content);
                }
                Err(reason) => found.notes.push(LastGoodNote { path, reason }),
            }
        }
        Ok(found)
    }

    fn load(&self, path: &Path) -> Result<(String, Bytes), String> {
        let (key, content) = decode(&read(path).map_err(|error| error.to_string())?)?;
        if self.path(&key) != path {
            return Err("it is a copy of a different file".to_owned());
        }
        Ok((key, content))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{}.{EXTENSION}", BlobHash::of(key.as_bytes())))
    }

    fn list(&self, extension: &str) -> Result<Vec<PathBuf>, FileError> {
        let failed = |error| FileError::new("list", &self.dir, error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|found| found == extension) {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }
}

/// Writes magic, key length, hash of the rest, key and content.
fn write(path: &Path, key: &str, content: &[u8]) -> Result<(), FileError> {
    let mut file = files::create_file(path)?;
    let hash = content_hash(key.as_bytes(), content);
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(hash.as_bytes());
    bytes.extend_from_slice(key.as_bytes());
    let written =
        file.write_all(&bytes).and_then(|()| file.write_all(content)).and_then(|()| file.sync_all());
    written.map_err(|error| FileError::new("write", path, error))
}

fn read(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn decode(bytes: &Bytes) -> Result<(String, Bytes), &'static str> {
    const TOO_SHORT: &str = "it is too short";
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("it is larger than a copy can be");
    }
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a copy in the format of this version")?;
    let (length, rest) = rest.split_first_chunk().ok_or(TOO_SHORT)?;
    let (hash, rest) = rest.split_first_chunk().ok_or(TOO_SHORT)?;
    let (key, content) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(TOO_SHORT)?;
    if content_hash(key, content) != BlobHash::from_bytes(*hash) {
        return Err("its checksum is wrong");
    }
    let key = std::str::from_utf8(key).map_err(|_| "its key is not UTF-8")?;
    Ok((key.to_owned(), bytes.slice_ref(content)))
}

fn content_hash(key: &[u8], content: &[u8]) -> BlobHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u32).to_le_bytes()).update(key).update(content);
    BlobHash::from_bytes(*hasher.finalize().as_bytes())
}

fn check(what: &'static str, bytes: usize, limit: usize) -> Result<(), LastGoodError> {
    if bytes > limit { Err(LastGoodError::TooLarge { what, bytes, limit }) } else { Ok(()) }
}

const MAGIC: &[u8] = b"XDSGOOD1";
const EXTENSION: &str = "copy";
const TEMPORARY: &str = "tmp";

/// The largest file that [`LastGood::save`] makes.
const MAX_FILE_BYTES: u64 = (MAGIC.len() + 4 + BlobHash::LENGTH + MAX_KEY_BYTES + MAX_BLOB_BYTES) as u64;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    fn opened() -> (tempfile::TempDir, LastGood) {
        let dir = tempfile::tempdir().unwrap();
        let store = LastGood::open(&dir.path().join("good")).unwrap();
        (dir, store)
    }

    #[test]
    fn copies_are_there_after_a_restart_and_removed_ones_are_not() {
        let (_dir, store) = opened();
        for (key, content) in [("a", "1"), ("b", "2"), ("../c", "3"), ("a", "4")] {
            store.save(key, content.as_bytes()).unwrap();
        }
        store.remove("b").unwrap();
        store.remove("never").unwrap();
        let found = LastGood::open(&store.dir).unwrap().load_all().unwrap();
        let expected =
            [("../c", "3"), ("a", "4")].map(|(key, content)| (key.to_owned(), Bytes::from(content)));
        assert_eq!(found.copies, BTreeMap::from(expected));
        assert_eq!(found.notes, []);
        assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 2);
    }

    #[test]
    fn nobody_else_may_read_the_copies() {
        let (_dir, store) = opened();
        store.save("a", b"secret").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.dir), 0o700);
        assert_eq!(mode(&store.path("a")), 0o600);
    }

    #[test]
    fn what_an_interrupted_save_left_is_removed() {
        let (_dir, store) = opened();
        store.save("a", b"1").unwrap();
        std::fs::write(store.path("a").with_extension("7.tmp"), b"half").unwrap();
        let store = LastGood::open(&store.dir).unwrap();
        assert_eq!(store.load_all().unwrap().copies["a"], b"1"[..]);
        assert_eq!(std::fs::read_dir(&store.dir).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_save_keeps_the_copy_before() {
        let (_dir, store) = opened();
        store.save("a", b"1").unwrap();
        let too_large = store.save(&"k".repeat(MAX_KEY_BYTES + 1), b"");
        assert!(matches!(too_large, Err(LastGoodError::TooLarge { .. })));
        // A directory in the place of the temporary file makes its creation fail.
        std::fs::create_dir(store.path("a").with_extension("2.tmp")).unwrap();
        store.save("b", b"2").unwrap();
        let failed = store.save("a", b"3");
        assert!(matches!(failed, Err(LastGoodError::File(_))), "{failed:?}");
        assert_eq!(store.load_all().unwrap().copies["a"], b"1"[..]);
    }

    #[test]
    fn a_copy_under_another_name_is_reported() {
        let (_dir, store) = opened();
        store.save("a", b"1").unwrap();
        std::fs::rename(store.path("a"), store.path("b")).unwrap();
        let found = store.load_all().unwrap();
        assert_eq!((found.copies.len(), found.notes.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn a_damaged_copy_is_skipped_and_reported(
            contents: [Vec<u8>; 2], at: prop::sample::Index, flip in 1_u8.., cut: bool,
        ) {
            let (_dir, store) = opened();
            store.save("whole", &contents[0]).unwrap();
            store.save("damaged", &contents[1]).unwrap();
            let path = store.path("damaged");
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
            std::fs::write(&path, bytes).unwrap();
            let found = store.load_all().unwrap();
            prop_assert_eq!(&found.copies, &BTreeMap::from([("whole".to_owned(), contents[0].clone().into())]));
            prop_assert_eq!(found.notes.len(), 1);
            prop_assert_eq!(&found.notes[0].path, &path);
        }

        #[test]
        fn arbitrary_bytes_are_no_copy(bytes: Vec<u8>, has_magic: bool) {
            let (_dir, store) = opened();
            let start = if has_magic { MAGIC } else { b"" };
            std::fs::write(store.path("a"), [start, &bytes].concat()).unwrap();
            let found = store.load_all().unwrap();
            prop_assert_eq!((found.copies.len(), found.notes.len()), (0, 1));
        }
    }
}
