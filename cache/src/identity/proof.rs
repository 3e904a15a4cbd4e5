//! Proofs: who a client is, and how that was shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::SpiffeId;
use crate::node::Scalar;

/// One thing that a client has proved: a name in its certificate, or a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Who the client is.
    pub subject: Subject,
    /// When the proof ends: `notAfter` of the certificate, or `exp` of the token and the leeway of its issuer. `None` if never.
    pub expires: Option<SystemTime>,
    /// The certificate that has the name; `None` for a token.
    pub certificate: Option<Fingerprint>,
}

/// Everything that a client has proved. A certificate gives a proof for each of its names.
pub type Proofs = Arc<[Proof]>;

/// Who somebody is, and how that was proved.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The SPIFFE ID in a certificate.
    Spiffe(SpiffeId),
    /// A DNS name in a certificate; never a wildcard.
    Dns(DnsName),
    /// The common name of a certificate without any other name.
    CommonName(Box<str>),
    /// A verified token.
    Token(Arc<Token>),
}

/// The parts of a verified token that decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Token {
    /// The name that the access policy gives the issuer; not the `iss` claim.
    pub issuer: Box<str>,
    /// The `sub` claim.
    pub subject: Box<str>,
    /// The `jti` claim, if there is one.
    pub id: Option<Box<str>>,
    /// SHA-256 of the key that signed it, so that it can be told when that key is trusted no more.
    pub key: [u8; 32],
    /// All claims.
    pub claims: Claims,
}

/// Claims of a token by JSON pointer, such as `/kubernetes.io/pod/name`.
///
/// A claim that is a scalar has one value, a list has those of its scalars, and both may be compared. Nulls, and objects and lists
/// in lists, are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(BTreeMap<Box<str>, Vec<Scalar>>);

/// SHA-256 of a certificate in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// A DNS name that a certificate proves: ASCII labels of letters, digits, `-` and `_`, without a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(Box<str>);

/// A text that proves no DNS name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a DNS name: expected at most 253 bytes of labels of letters, digits, `-` and `_`, without a wildcard"
)]
pub struct InvalidDnsName;

impl Proof {
    /// When the first of several ends; `None` if none does.
    #[must_use]
    pub fn first_end(proofs: &[Self]) -> Option<SystemTime> {
        proofs.iter().filter_map(|proof| proof.expires).min()
    }
}

impl Subject {
    /// The way in which it was proved: `certificate` or `jwt`.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Spiffe(_) | Self::Dns(_) | Self::CommonName(_) => "certificate",
            Self::Token(_) => "jwt",
        }
    }
}

/// Safe for logs and statuses: printable ASCII, at most about 256 bytes, and no claims.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spiffe(id) => f.write_str(&shown(id.as_str())),
            Self::Dns(name) => write!(f, "dns:{}", shown(name.as_str())),
            Self::CommonName(name) => write!(f, "cn:{}", shown(name)),
            Self::Token(token) => write!(f, "jwt:{}:{}", shown(&token.issuer), shown(&token.subject)),
        }
    }
}

impl Claims {
    /// Adds a value at a JSON pointer.
    pub fn insert(&mut self, pointer: &str, value: Scalar) {
        self.0.entry(pointer.into()).or_default().push(value);
    }

    /// The values at a JSON pointer; empty if there are none.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &[Scalar] {
        self.0.get(pointer).map_or(&[], Vec::as_slice)
    }
}

impl DnsName {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// [`InvalidDnsName`] also for a wildcard, an empty label, as after a trailing dot, and a NUL.
    pub fn new(name: &str) -> Result<Self, InvalidDnsName> {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(InvalidDnsName);
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text as printable ASCII, cut after 256 bytes.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        if shown.len() >= MAX_SHOWN {
            shown.push_str("...");
            break;
        }
        match character {
            ' '..='~' => shown.push(character),
            _ => shown.extend(character.escape_unicode()),
        }
    }
    shown
}

/// Bytes of a name that are shown: names are seldom longer, and a line of a log has to be read.
const MAX_SHOWN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_shown_in_printable_ascii_and_cut() {
        let cn = Subject::CommonName("a\n\u{1b}[31m\u{e9}\u{202e}".into());
        assert_eq!(cn.to_string(), "cn:a\\u{a}\\u{1b}[31m\\u{e9}\\u{202e}");
        let long = Subject::CommonName("\u{e9}".repeat(5000).into());
        assert!(long.to_string().len() < 280);
        let token = Token { issuer: "cluster".into(), subject: "x".into(), ..Token::default() };
        assert_eq!(Subject::Token(token.into()).to_string(), "jwt:cluster:x");
    }

    #[test]
    fn dns_names_are_plain() {
        for name in ["a", "edge-7.example.com", "_x.A.b"] {
            assert_eq!(DnsName::new(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "*.a",
            "a\0.b",
            "\u{fc}.a",
            "a b",
            "a/b",
            &"a".repeat(64),
            &"a.".repeat(130),
        ] {
            assert_eq!(DnsName::new(name), Err(InvalidDnsName), "{name:?}");
        }
    }
}
