//! Host names of listeners and routes.

use std::fmt;
use std::sync::Arc;

/// A host name of the Gateway API: by RFC 1123, in lower case, at most 253 characters, and no IP address. It may begin with `*.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

/// A text that is not a [`Hostname`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidHostname {
    /// The rule that it breaks.
    pub reason: &'static str,
}

impl Hostname {
    /// Checks the text.
    ///
    /// # Errors
    ///
    /// [`InvalidHostname`] says which rule it breaks.
    pub fn new(text: &str) -> Result<Self, InvalidHostname> {
        let fail = |reason| Err(InvalidHostname { reason });
        if text.is_empty() || text.len() > 253 {
            return fail("a host name has 1 to 253 characters");
        }
        if text.parse::<std::net::IpAddr>().is_ok() {
            return fail("an IP address is not a host name");
        }
        let name = text.strip_prefix("*.").unwrap_or(text);
        if name.contains('*') {
            return fail("the wildcard `*` can only be the whole first label");
        }
        if !name.split('.').all(|label| is_dns_label(label) && label.len() <= 63) {
            return fail(
                "a host name consists of lower-case letters, digits, `-` and `.`, as RFC 1123 requires",
            );
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after `*.`, if it is a wildcard.
    #[must_use]
    pub fn wildcard_suffix(&self) -> Option<&str> {
        self.0.strip_prefix("*.")
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns `true` for one or more lower-case letters, digits and inner `-`.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_those_of_the_gateway_api() {
        for name in ["a", "a.b", "*.a", "a-b.c1", "0.example.com", "*.example.com"] {
            assert!(Hostname::new(name).is_ok(), "{name}");
        }
        let long = format!("{}.com", "a".repeat(64));
        for name in ["", "A.b", "*", "*a.b", "a.*.b", "1.2.3.4", "::1", "a..b", "-a.b", "a_b", "a.b.", &long]
        {
            assert!(Hostname::new(name).is_err(), "{name}");
        }
    }
}
