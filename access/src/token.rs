//! Secret tokens of principals, of which the policy has only hashes.
//!
//! A token has 256 random bits. So nobody finds one by trying, and a fast hash is enough; a slow one would be a way to burn the
//! server's time.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

/// SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

/// A text that is no hash of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected the SHA-256 of a token: 64 hexadecimal digits, as `xds-server token new` prints them; never the token itself"
)]
pub struct InvalidTokenHash;

impl TokenHash {
    /// The hash of a token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`InvalidTokenHash`] for anything else. It does not repeat the text, which may be a token.
    pub fn read(text: &str) -> Result<Self, InvalidTokenHash> {
        read_sha256(text).map(Self).ok_or(InvalidTokenHash)
    }

    /// The first eight hexadecimal digits, which name the token in logs.
    #[must_use]
    pub fn short(self) -> String {
        self.to_string().chars().take(8).collect()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The token of 32 random bytes. Its beginning tells scanners of secrets what it is.
#[must_use]
pub fn token_of(random: &[u8; 32]) -> String {
    format!("xds_{}", BASE64_URL_SAFE_NO_PAD.encode(random))
}

/// Reads 64 hexadecimal digits.
pub(crate) fn read_sha256(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_standard() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert_eq!(TokenHash::of("test").to_string(), hash);
        assert_eq!(TokenHash::read(hash), Ok(TokenHash::of("test")));
        assert_eq!(TokenHash::read(&hash.to_uppercase()), Ok(TokenHash::of("test")));
        assert_eq!(TokenHash::of("test").short(), "9f86d081");
    }

    #[test]
    fn a_token_where_a_hash_belongs_is_not_repeated() {
        let token = token_of(&[0xa5; 32]);
        assert_eq!(token.len(), 47);
        for wrong in ["", "9f86d081", &token, &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            let told = TokenHash::read(wrong).unwrap_err().to_string();
            assert!(told.contains("64 hexadecimal digits") && !told.contains("xds_pa"), "{told}");
        }
    }
}
