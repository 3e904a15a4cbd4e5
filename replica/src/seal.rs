//! Encryption of everything that a remote keeps.
//!
//! The keys of a file ([`StoreKeys`]) seal one random *data key*, which is in the remote's `meta`. The data key seals all commits. So the
//! keys of the file can be exchanged without writing the history again.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use xds_store::BlobHash;

/// The keys of a file: the first one seals, all of them open. Or none, for a remote that seals nothing.
#[derive(Clone)]
pub struct StoreKeys(Vec<Sealer>);

/// The key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("the key file {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is no key.
    #[error(
        "line {line} of the key file is not a key of 64 hexadecimal digits; `openssl rand -hex 32` makes one"
    )]
    NotAKey {
        /// Number of the line, from 1.
        line: usize,
    },
    /// There is none.
    #[error("the key file has no key; `openssl rand -hex 32` makes one")]
    Empty,
}

impl StoreKeys {
    /// Reads a key file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not one. No error shows a part of a key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyFileError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads keys from text: one a line, as 64 hexadecimal digits. Empty lines and lines that begin with `#` are left out.
    ///
    /// # Errors
    ///
    /// If a line is no key, or there is none.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let lines = text.lines().map(str::trim).enumerate();
        let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys = keys.map(|(index, line)| parse_key(line).ok_or(KeyFileError::NotAKey { line: index + 1 }));
        let keys: Vec<Sealer> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(KeyFileError::Empty) } else { Ok(Self(keys)) }
    }

    /// Opens what is not sealed.
    pub(crate) fn none() -> Self {
        Self(vec![Sealer(None)])
    }

    /// Makes a data key, and seals it for the store `store`.
    pub(crate) fn make(&self, store: &str) -> Option<(Sealer, SealedKey)> {
        let mut key = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut key).ok()?;
        let sealed = self.0.first()?.seal(store, key.to_vec())?;
        Some((Sealer::new(&key)?, SealedKey(sealed)))
    }

    /// Opens the data key of the store `store`. If it was not sealed by the first key, it is also returned sealed by that one.
    pub(crate) fn open(&self, store: &str, sealed: &SealedKey) -> Option<(Sealer, Option<SealedKey>)> {
        if let [Sealer(None)] = self.0.as_slice() {
            return Some((Sealer(None), None));
        }
        let (index, key) =
            self.0.iter().enumerate().find_map(|(index, key)| Some((index, key.open(store, &sealed.0)?)))?;
        let renewed = match index {
            0 => None,
            _ => Some(SealedKey(self.0.first()?.seal(store, key.clone())?)),
        };
        Some((Sealer::new(&key)?, renewed))
    }
}

impl fmt::Debug for StoreKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreKeys({} keys)", self.0.len())
    }
}

/// A data key that a key of the file sealed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct SealedKey(Vec<u8>);

impl SealedKey {
    /// That of a store whose bodies are not sealed.
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }
}

impl From<SealedKey> for String {
    fn from(key: SealedKey) -> Self {
        BASE64.encode(key.0)
    }
}

impl TryFrom<String> for SealedKey {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64.decode(text).map(Self)
    }
}

/// A key that seals and opens; `None` leaves all as it is.
#[derive(Clone)]
pub(crate) struct Sealer(Option<LessSafeKey>);

impl Sealer {
    fn new(key: &[u8]) -> Option<Self> {
        Some(Self(Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?))))
    }

    /// Encrypts `plain` for one `place`: elsewhere it does not open. `None` if the system has no random numbers.
    pub(crate) fn seal(&self, place: &str, mut plain: Vec<u8>) -> Option<Vec<u8>> {
        let Some(key) = &self.0 else { return Some(plain) };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let tag =
            key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut plain);
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&plain);
        sealed.extend_from_slice(tag.ok()?.as_ref());
        Some(sealed)
    }

    /// Decrypts what was sealed for `place`. `None` if it was not, by this key and unchanged.
    pub(crate) fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let Some(key) = &self.0 else { return Some(sealed.to_vec()) };
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let length = key.open_in_place(nonce, Aad::from(place), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

/// A key of 64 hexadecimal digits; a hash is written the same way.
fn parse_key(text: &str) -> Option<Sealer> {
    let digits: BlobHash = text.to_ascii_lowercase().parse().ok()?;
    Sealer::new(digits.as_bytes())
}

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_can_be_exchanged_and_no_other_opens() {
        let (old, new) = ("1".repeat(64), "ab".repeat(32));
        let keys = |text: &str| StoreKeys::parse(text).unwrap();
        let (sealer, sealed) = keys(&old).make("store").unwrap();
        let commit = sealer.seal("commit/1", b"secret".to_vec()).unwrap();
        assert!(!commit.windows(6).any(|window| window == b"secret"));
        assert_eq!(sealer.open("commit/2", &commit), None, "it counts in its place alone");

        assert!(keys(&old).open("other", &sealed).is_none());
        assert!(keys(&new).open("store", &sealed).is_none());
        let (opened, renewed) = keys(&format!("# new\n{new}\n\n{old}\n")).open("store", &sealed).unwrap();
        assert_eq!(opened.open("commit/1", &commit).unwrap(), b"secret");
        let (opened, renewed) = keys(&new).open("store", &renewed.unwrap()).unwrap();
        assert!(renewed.is_none());
        assert_eq!(opened.open("commit/1", &commit).unwrap(), b"secret");
        let mut changed = commit.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(opened.open("commit/1", &changed), None);
        assert_eq!(opened.open("commit/1", &commit[..5]), None);
    }

    #[test]
    fn a_file_without_keys_is_an_error_that_shows_no_part_of_it() {
        assert!(matches!(StoreKeys::parse("# none\n"), Err(KeyFileError::Empty)));
        let error = StoreKeys::parse(&format!("\n{}\nabcdef", "0".repeat(64))).unwrap_err();
        assert!(matches!(error, KeyFileError::NotAKey { line: 3 }));
        assert!(!error.to_string().contains("abcdef"));
        assert_eq!(format!("{:?}", StoreKeys::parse(&"1".repeat(64)).unwrap()), "StoreKeys(1 keys)");
    }
}
