//! Where an etcd is, and how it is reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an etcd is: `etcd://HOST:PORT,HOST:PORT/PREFIX`, or `etcds://` with TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EtcdUrl {
    /// Its members, as `HOST:PORT`.
    pub members: Vec<String>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// What is before every key, with a slash at its end.
    pub prefix: String,
}

/// The URL of an etcd is wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EtcdUrlError {
    /// It is the URL of something else.
    #[error("a store begins with etcd:// or etcds://")]
    Scheme,
    /// A member has no port, or nothing before it.
    #[error("{0:?} is not HOST:PORT")]
    Member(String),
    /// It could show a secret to everyone who sees the command line.
    #[error(
        "a user or password in the URL would be seen by others; use --store-user and --store-password-file"
    )]
    Secret,
    /// Nothing would tell the keys of this store from others.
    #[error("the URL ends with a prefix for all keys, such as /xds")]
    NoPrefix,
}

/// How an etcd is reached. Files are read for each connection, so they may change.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// The file with the certificates of authorities that members are verified by (TLS alone).
    pub ca: Option<PathBuf>,
    /// The files with the certificate and the key that are shown to members (TLS alone).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

impl EtcdUrl {
    /// Returns `true` if a connection leaves this machine without being encrypted.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        let is_local = |member: &String| {
            let host = member.rsplit_once(':').map_or(member.as_str(), |(host, _)| host);
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        !self.is_tls && !self.members.iter().all(is_local)
    }
}

impl FromStr for EtcdUrl {
    type Err = EtcdUrlError;

    fn from_str(text: &str) -> Result<Self, EtcdUrlError> {
        let (is_tls, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(EtcdUrlError::Scheme),
        };
        if rest.contains('@') {
            return Err(EtcdUrlError::Secret);
        }
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() {
            return Err(EtcdUrlError::NoPrefix);
        }
        let members = members.split(',').map(|member| {
            let parts = member.rsplit_once(':');
            let is_right = parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            if is_right { Ok(member.to_owned()) } else { Err(EtcdUrlError::Member(member.to_owned())) }
        });
        Ok(Self { members: members.collect::<Result<_, _>>()?, is_tls, prefix: format!("/{prefix}/") })
    }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.members.join(","), self.prefix.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_or_says_what_is_wrong() {
        let url: EtcdUrl = "etcds://a:2379,[::1]:2380/fleet/xds/".parse().unwrap();
        assert_eq!((url.members.len(), url.is_tls, url.prefix.as_str()), (2, true, "/fleet/xds/"));
        assert_eq!(url.to_string(), "etcds://a:2379,[::1]:2380/fleet/xds");
        for (text, error) in [
            ("http://a:1/x", EtcdUrlError::Scheme),
            ("etcd://a/x", EtcdUrlError::Member("a".to_owned())),
            ("etcd://a:1,:2/x", EtcdUrlError::Member(":2".to_owned())),
            ("etcd://a:1/", EtcdUrlError::NoPrefix),
            ("etcd://a:1", EtcdUrlError::NoPrefix),
            ("etcd://root:secret@a:1/x", EtcdUrlError::Secret),
        ] {
            assert_eq!(text.parse::<EtcdUrl>().unwrap_err(), error, "{text}");
            assert!(!error.to_string().contains("secret@"));
        }
    }

    #[test]
    fn connections_that_leave_the_machine_in_plaintext_are_exposed() {
        let is_exposed = |text: &str| text.parse::<EtcdUrl>().unwrap().is_exposed();
        assert!(!is_exposed("etcd://127.0.0.1:1,[::1]:2,localhost:3/x"));
        assert!(is_exposed("etcd://127.0.0.1:1,10.0.0.1:2/x"));
        assert!(!is_exposed("etcds://10.0.0.1:2/x"));
    }
}
