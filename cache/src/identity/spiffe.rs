//! SPIFFE IDs.

use std::borrow::Borrow;
use std::fmt;

/// A SPIFFE ID by the rules of the standard: `spiffe://` in lower case, a trust domain, and a path of plain segments, if any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId(Box<str>);

/// A text that is no SPIFFE ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SPIFFE ID: {0}")]
pub struct InvalidSpiffeId(&'static str);

/// The name of a trust domain: the authority whose members a SPIFFE ID names, such as `example.org`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrustDomain(Box<str>);

impl SpiffeId {
    /// Checks the ID.
    ///
    /// # Errors
    ///
    /// [`InvalidSpiffeId`] says which rule it breaks.
    pub fn new(text: &str) -> Result<Self, InvalidSpiffeId> {
        if text.len() > MAX_BYTES {
            return Err(InvalidSpiffeId("it has more than 2048 bytes"));
        }
        let (trust_domain, segments) = split(text)?;
        check_trust_domain(trust_domain)?;
        segments.into_iter().flat_map(|path| path.split('/')).try_for_each(check_segment)?;
        Ok(Self(text.into()))
    }

    /// The ID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trust domain, such as `example.org`.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let rest = self.0.get(SCHEME.len()..).unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }

    /// The segments of the path.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        let rest = self.0.get(SCHEME.len()..).unwrap_or_default();
        rest.split('/').skip(1)
    }
}

impl TrustDomain {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// [`InvalidSpiffeId`] if it is not the name of a trust domain.
    pub fn new(name: &str) -> Result<Self, InvalidSpiffeId> {
        check_trust_domain(name)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TrustDomain {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The trust domain, and the path without its first slash if there is one.
pub(super) fn split(text: &str) -> Result<(&str, Option<&str>), InvalidSpiffeId> {
    let rest = text.strip_prefix(SCHEME).ok_or(InvalidSpiffeId("it does not begin with `spiffe://`"))?;
    Ok(rest.split_once('/').map_or((rest, None), |(domain, path)| (domain, Some(path))))
}

pub(super) fn check_trust_domain(name: &str) -> Result<(), InvalidSpiffeId> {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > 255 || !name.bytes().all(is_plain) {
        return Err(InvalidSpiffeId(
            "a trust domain has 1 to 255 lower-case letters, digits, `.`, `-` and `_`, and no port",
        ));
    }
    Ok(())
}

pub(super) fn check_segment(segment: &str) -> Result<(), InvalidSpiffeId> {
    if segment.is_empty() || segment == "." || segment == ".." {
        return Err(InvalidSpiffeId("no segment of the path may be empty, `.` or `..`"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !segment.bytes().all(is_plain) {
        return Err(InvalidSpiffeId("the path may have letters, digits, `.`, `-` and `_`"));
    }
    Ok(())
}

const SCHEME: &str = "spiffe://";

/// The limit of the standard.
const MAX_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_the_standard_hold() {
        let id = SpiffeId::new("spiffe://example.org/ns/edge/sa/A.b-c_d").unwrap();
        assert_eq!(id.trust_domain(), "example.org");
        assert_eq!(id.segments().collect::<Vec<_>>(), ["ns", "edge", "sa", "A.b-c_d"]);
        assert_eq!(SpiffeId::new("spiffe://example.org").unwrap().segments().count(), 0);
        for wrong in [
            "",
            "spiffe://",
            "SPIFFE://example.org/a",
            "spiffe://Example.org/a",
            "spiffe://example.org:80/a",
            "spiffe://user@example.org/a",
            "spiffe://example.org/",
            "spiffe://example.org/a/",
            "spiffe://example.org//a",
            "spiffe://example.org/./a",
            "spiffe://example.org/../a",
            "spiffe://example.org/%61",
            "spiffe://example.org/a?b",
            "spiffe://example.org/a#b",
            "spiffe://example.org/a\0",
            "spiffe://example.org/\u{fc}",
            "https://example.org/a",
            " spiffe://example.org/a",
            &format!("spiffe://example.org/{}", "a".repeat(2048)),
            &format!("spiffe://{}/a", "a".repeat(256)),
        ] {
            assert!(SpiffeId::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
