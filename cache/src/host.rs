//! The Listener for the authority that a gRPC client dialled (D15).
//!
//! A gRPC client asks for a Listener by its target, `foo.example.com` or `foo.example.com:8080`, or by an `xdstp:` name that ends in
//! the target. A resource that is a *pattern of hosts* is found under all names that it matches, and each client gets it under the
//! name that it asked for (row A61). A pattern matches hosts only. So the name of a server's own Listener, such as
//! `grpc/server?xds.resource.listening_address=[::]:80`, never finds a Listener that is meant for clients.

use bytes::{BufMut, Bytes, BytesMut};

use crate::resource_type::ResourceType;
use crate::xdstp;

/// The host that a name asks for, with or without a port.
#[derive(Debug, PartialEq)]
pub(crate) struct Authority {
    /// In lower case.
    lower: String,
    /// The host as written in an `xdstp:` name, without escapes. It means the resource of this name, whether or not that is a
    /// pattern.
    plain: Option<String>,
}

impl Authority {
    /// Reads a name; `None` if it asks for no host. Between authority and host an `xdstp:` name must have the type alone (row
    /// A146); authority and context parameters may be any.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let plain = match xdstp::id(name) {
            Some((resource_type, id)) if resource_type == ResourceType::Listener.message_name() => {
                Some(xdstp::decoded(id)?)
            }
            Some(_) => return None,
            None => None,
        };
        let authority = plain.as_deref().unwrap_or(name);
        host(authority)?;
        Some(Self { lower: authority.to_ascii_lowercase(), plain })
    }

    /// The name of the resource that an `xdstp:` name means.
    pub(crate) fn plain(&self) -> Option<&str> {
        self.plain.as_deref()
    }

    /// The keys of the patterns that match, the best first: the authority as it is, the host without its port, `*.suffix` from the
    /// longest to the shortest, `*`. A wildcard stands for at least one label, so it does not match the suffix itself.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let host = host(&self.lower).unwrap_or_default();
        let is_literal = host.starts_with('[');
        let suffixes = host.match_indices('.').filter(move |(at, _)| *at > 0 && !is_literal);
        [&*self.lower, host].into_iter().chain(suffixes.map(|(at, _)| &host[at..])).chain([ANY])
    }
}

/// The key under which a pattern is found: the host in lower case, of `*.suffix` that with its dot, and [`ANY`] for `*`.
pub(crate) fn key(pattern: &str) -> String {
    match pattern.strip_prefix('*') {
        Some("") => ANY.to_owned(),
        Some(suffix) if suffix.starts_with('.') => suffix.to_ascii_lowercase(),
        Some(_) | None => pattern.to_ascii_lowercase(),
    }
}

/// A Listener with another name. The name is its field 1, which canonical encoding puts first.
pub(crate) fn renamed(listener: &Bytes, name: &str) -> Bytes {
    let rest = after_name(listener).unwrap_or(listener);
    let mut renamed = BytesMut::with_capacity(renamed_len(listener, name));
    renamed.put_u8(NAME_TAG);
    let mut length = name.len();
    while length >= 0x80 {
        renamed.put_u8(low_byte(length) | 0x80);
        length >>= 7;
    }
    renamed.put_u8(low_byte(length));
    renamed.put_slice(name.as_bytes());
    renamed.put_slice(rest);
    renamed.freeze()
}

/// How many bytes a Listener has with another name.
pub(crate) fn renamed_len(listener: &[u8], name: &str) -> usize {
    let rest = after_name(listener).unwrap_or(listener);
    let n_bits = (usize::BITS - name.len().leading_zeros()).max(1) as usize;
    1 + n_bits.div_ceil(7) + name.len() + rest.len()
}

fn low_byte(number: usize) -> u8 {
    let [low, ..] = number.to_le_bytes();
    low
}

/// The bytes behind the name of an encoded Listener; `None` if it has none.
fn after_name(listener: &[u8]) -> Option<&[u8]> {
    let mut rest = listener.strip_prefix(&[NAME_TAG])?;
    let mut length = 0_usize;
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return rest.get(length..);
        }
    }
    None
}

/// The host of an authority, an IPv6 literal with its brackets; `None` if it is none.
fn host(authority: &str) -> Option<&str> {
    if authority.len() > MAX_AUTHORITY {
        return None;
    }
    if let Some(literal) = authority.strip_prefix('[') {
        let (address, port) = literal.split_once(']')?;
        let is_address = |c: char| c.is_ascii_alphanumeric() || ":.%-_".contains(c);
        let is_host = !address.is_empty() && address.chars().all(is_address);
        let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return (is_host && has_port).then(|| &authority[..address.len() + 2]);
    }
    let host = match authority.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        Some(_) => return None,
        None => authority,
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (!host.is_empty() && !host.starts_with('.') && host.chars().all(is_host)).then_some(host)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The key of `*`. No host begins with a dot.
const ANY: &str = ".";

/// The tag of field 1 of a Listener.
const NAME_TAG: u8 = 0x0a;

/// The longest host name with a port. A longer name is looked up only as it is.
const MAX_AUTHORITY: usize = 261;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_come_from_the_most_to_the_least_special() {
        let keys = |authority| {
            let authority = Authority::of(authority).expect("a host");
            authority.keys().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(keys("a.b.io:80"), ["a.b.io:80", "a.b.io", ".b.io", ".io", "."]);
        assert_eq!(keys("io"), ["io", "io", "."]);
        assert_eq!(keys("[::ffff:1.2.3.4]:80"), ["[::ffff:1.2.3.4]:80", "[::ffff:1.2.3.4]", "."]);
        assert_eq!([key("*.B.io"), key("*"), key("A.io:80"), key("*x")], [".b.io", ".", "a.io:80", "*x"]);
    }

    #[test]
    fn only_hosts_are_matched() {
        let listener = "xdstp://any/envoy.config.listener.v3.Listener";
        let table = [
            ("Foo.Example.com", Some("foo.example.com")),
            ("foo:8080", Some("foo:8080")),
            ("[::1]:80", Some("[::1]:80")),
            ("[::1]", Some("[::1]")),
            (&format!("{listener}/foo.io:80"), Some("foo.io:80")),
            (&format!("{listener}/%5B::1%5D:80"), Some("[::1]:80")),
            (&format!("{listener}/foo.io?a=1&b=2"), Some("foo.io")),
            ("xdstp:///envoy.config.listener.v3.Listener/foo.io", Some("foo.io")),
            ("xdstp://any/envoy.config.cluster.v3.Cluster/foo.io", None),
            (&format!("{listener}/dir/foo.io"), None),
            (&format!("{listener}/dir%2Ffoo.io"), None),
            (&format!("{listener}/*"), None),
            (&format!("{listener}/%2A.io"), None),
            (&format!("{listener}/%FF"), None),
            (&format!("{listener}/foo.io#alt"), None),
            ("grpc/server?xds.resource.listening_address=[::]:80", None),
            ("*.example.com", None),
            ("foo:", None),
            ("foo:http", None),
            ("::1", None),
            ("[::1", None),
            ("[]", None),
            ("[::1]x", None),
            (".io", None),
            ("", None),
            (&"x".repeat(262), None),
        ];
        for (name, expected) in table {
            let authority = Authority::of(name);
            assert_eq!(authority.as_ref().map(|found| &*found.lower), expected, "{name}");
            let is_plain = authority.is_some_and(|found| found.plain.is_some());
            assert_eq!(is_plain, expected.is_some() && name.starts_with("xdstp:"), "{name}");
        }
    }

    #[test]
    fn a_name_is_replaced_and_nothing_else() {
        let (short, long) = ("a", "b".repeat(300));
        let listener = |name: &str| renamed(&Bytes::from_static(b"\x1a\x01x"), name);
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let name = "n".repeat(length);
            assert_eq!(listener(&name).len(), renamed_len(b"\x1a\x01x", &name), "{length}");
        }
        assert_eq!(&*listener(short), b"\x0a\x01a\x1a\x01x");
        assert_eq!(renamed(&listener(&long), short), listener(short));
        assert_eq!(renamed(&listener(short), &long), listener(&long));
        for broken in [&b"\x0a"[..], b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\x01"] {
            assert!(renamed(&Bytes::from_static(broken), short).ends_with(broken), "{broken:?}");
        }
    }
}
