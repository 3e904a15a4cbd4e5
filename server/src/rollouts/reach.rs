//! The hosts that rollouts may call.
//!
//! The user who begins a rollout chooses its URLs, so the server must not open a way to services that only it can reach. It never
//! calls link-local addresses, where clouds hand out credentials. A name is resolved once for each call: the addresses that were
//! checked are the ones that are connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The hosts that rollouts may call: all but those that are never called, or of these the ones that are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Empty for all.
    rules: Vec<Rule>,
}

/// A value of `--webhook-allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// A name in lower case.
    Name(String),
    /// Every name below this one: `.example.com`.
    Below(String),
    /// The addresses that begin with this many bits of this one.
    Network(IpAddr, u8),
}

/// A value that names no hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` {problem}")]
pub struct ReachError {
    value: String,
    problem: String,
}

impl Reach {
    /// Reads names (`hooks.example.com`, `*.example.com`), addresses and networks (`10.0.0.0/8`).
    ///
    /// # Errors
    ///
    /// [`ReachError`] with the value that is not one of these, or that is never called.
    pub fn new(values: &[String]) -> Result<Self, ReachError> {
        let read =
            |value: &String| value.parse().map_err(|problem| ReachError { value: value.clone(), problem });
        Ok(Self { rules: values.iter().map(read).collect::<Result<_, _>>()? })
    }

    /// Why a host is never called; `None` if that depends on its addresses.
    pub(super) fn refusal(&self, host: &str) -> Option<Refusal> {
        if let Ok(address) = host.parse() {
            return self.refusal_of(host, address);
        }
        let has_networks = self.rules.iter().any(|rule| matches!(rule, Rule::Network(..)));
        let is_open = self.rules.is_empty() || has_networks || self.names(host);
        (!is_open).then(|| Refusal::NotAllowed { host: host.to_owned(), address: None })
    }

    /// The addresses of a host that may be called.
    ///
    /// # Errors
    ///
    /// Why the first one may not, if none may.
    pub(super) fn permitted(&self, host: &str, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Refusal> {
        let mut first = None;
        let mut permitted = Vec::new();
        for address in addresses {
            match self.refusal_of(host, *address) {
                None => permitted.push(*address),
                Some(refusal) => drop(first.get_or_insert(refusal)),
            }
        }
        match first {
            Some(refusal) if permitted.is_empty() => Err(refusal),
            Some(_) | None => Ok(permitted),
        }
    }

    fn refusal_of(&self, host: &str, address: IpAddr) -> Option<Refusal> {
        let address = embedded(address);
        let host = host.to_owned();
        if let Some(kind) = never_called(address) {
            return Some(Refusal::Never { host, address, kind });
        }
        let is_in =
            |rule: &Rule| matches!(rule, Rule::Network(network, bits) if contains(*network, *bits, address));
        let is_allowed = self.rules.is_empty() || self.names(&host) || self.rules.iter().any(is_in);
        (!is_allowed).then_some(Refusal::NotAllowed { host, address: Some(address) })
    }

    fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.rules.iter().any(|rule| match rule {
            Rule::Name(name) => *name == host,
            Rule::Below(end) => host.strip_suffix(end.as_str()).is_some_and(|rest| !rest.is_empty()),
            Rule::Network(..) => false,
        })
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = address.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = address.parse::<IpAddr>() {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(longest), str::parse).ok().filter(|bits| *bits <= longest);
            let bits =
                bits.ok_or_else(|| format!("is not a network: the length is a number from 0 to {longest}"))?;
            return match never_called(embedded(address)).filter(|_| bits == longest) {
                Some(kind) => Err(format!("is never called: it is {kind}")),
                None => Ok(Self::Network(address, bits)),
            };
        }
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let (is_below, labels) = name.strip_prefix("*.").map_or((false, name.as_str()), |rest| (true, rest));
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if bits.is_some() || !labels.split('.').all(is_label) {
            return Err(
                "names no hosts: write hooks.example.com, *.example.com, 10.1.2.3 or 10.0.0.0/8".to_owned()
            );
        }
        Ok(if is_below { Self::Below(format!(".{labels}")) } else { Self::Name(name) })
    }
}

/// Why a host is not called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No setting allows such an address.
    Never { host: String, address: IpAddr, kind: &'static str },
    /// There are settings, and none is about it.
    NotAllowed { host: String, address: Option<IpAddr> },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never { host, address, kind } if *host == address.to_string() => {
                write!(f, "{host} is {kind}, which is never called")
            }
            Self::Never { host, address, kind } => {
                write!(f, "{host} resolves to {address}, {kind}, which is never called")
            }
            Self::NotAllowed { host, address: Some(address) } if *host != address.to_string() => {
                write!(f, "{host} resolves to {address}, and neither is in --webhook-allow")
            }
            Self::NotAllowed { host, .. } => write!(f, "{host} is not in --webhook-allow"),
        }
    }
}

/// The kind of an address that is never called.
fn never_called(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("a cloud's metadata service");
    }
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    // The whole of 0.0.0.0/8 is "this network", and Linux takes 0.0.0.0 for itself.
    let is_nowhere =
        address.is_unspecified() || matches!(address, IpAddr::V4(address) if address.octets()[0] == 0);
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if is_link_local {
        Some("a link-local address")
    } else if is_nowhere {
        Some("not the address of a host")
    } else if address.is_multicast() || is_broadcast {
        Some("a multicast address")
    } else {
        None
    }
}

/// The IPv4 address that packets for this one end at, if there is one inside; else the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let inside = match v6.segments() {
        // Mapped, and the deprecated compatible form, of which :: and ::1 are none.
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some((high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some((high, low)),
        // Translated (RFC 6052, RFC 8215), and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some((high, low)),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    inside.map_or(address, |(high, low)| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into())
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            (u32::from(network) ^ u32::from(address)) & mask == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            (u128::from(network) ^ u128::from(address)) & mask == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Where clouds hand out credentials, besides 169.254.0.0/16: AWS and Google over IPv6, Alibaba, Oracle, Azure.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(values: &[&str]) -> Result<Reach, ReachError> {
        Reach::new(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn some_addresses_are_never_called_however_they_are_written() {
        let everything = reach(&["0.0.0.0/0", "::/0", "host"]).unwrap();
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "64:ff9b:1::a9fe:a9fe",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "::ffff:100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "0.0.0.0",
            "0.1.2.3",
            "::",
        ] {
            let ip: IpAddr = address.parse().unwrap();
            for reach in [&Reach::default(), &everything] {
                assert!(reach.refusal(address).is_some(), "{address}");
                assert!(reach.permitted("host", &[ip]).is_err(), "{address}");
                // The good addresses of a name are called nevertheless, and no others.
                let good: IpAddr = "10.0.0.1".parse().unwrap();
                assert_eq!(reach.permitted("host", &[ip, good]), Ok(vec![good]), "{address}");
            }
        }
        for address in
            ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "::1", "fd00::1", "8.8.8.8", "100.64.0.1"]
        {
            let ip: IpAddr = address.parse().unwrap();
            assert_eq!(Reach::default().refusal(address), None, "{address}");
            assert_eq!(Reach::default().permitted("host", &[ip]), Ok(vec![ip]), "{address}");
        }
    }

    #[test]
    fn what_is_named_narrows_what_is_called() {
        let reach = reach(&["Hooks.example.com", "*.ci.example.com", "10.1.0.0/16", "::1"]).unwrap();
        let outside: IpAddr = "8.8.8.8".parse().unwrap();
        for (host, is_allowed) in [
            ("hooks.example.com", true),
            ("HOOKS.example.com.", true),
            ("a.ci.example.com", true),
            ("a.b.ci.example.com", true),
            ("ci.example.com", false),
            ("evilci.example.com", false),
            ("example.com", false),
        ] {
            assert_eq!(reach.permitted(host, &[outside]).is_ok(), is_allowed, "{host}");
            // Its addresses may be in the network.
            assert_eq!(reach.refusal(host), None, "{host}");
        }
        for (address, is_allowed) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("::1", true),
            ("::2", false),
        ] {
            let ip: IpAddr = address.parse().unwrap();
            assert_eq!(reach.refusal(address).is_none(), is_allowed, "{address}");
            assert_eq!(reach.permitted("elsewhere", &[ip]).is_ok(), is_allowed, "{address}");
        }
        let names = Reach::new(&["a".to_owned()]).unwrap();
        assert_eq!(names.refusal("b").unwrap().to_string(), "b is not in --webhook-allow");
    }

    #[test]
    fn a_value_that_names_no_hosts_is_refused_with_advice() {
        for (value, said) in [
            ("", "names no hosts"),
            ("http://a/", "names no hosts"),
            ("a:80", "names no hosts"),
            ("*", "names no hosts"),
            ("a/8", "names no hosts"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("::/129", "a number from 0 to 128"),
            ("169.254.169.254", "is never called: it is a link-local address"),
        ] {
            let told = reach(&[value]).unwrap_err().to_string();
            assert!(told.contains(said), "{value}: {told}");
        }
    }
}
