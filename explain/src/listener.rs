//! The filter chain of a connection by nine steps (XF1, XF3–XF8). No step goes back: a wrong first branch ends at the default chain.

use std::net::{IpAddr, Ipv4Addr};

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, CidrRange};
use envoy_types::pb::envoy::config::listener::v3::filter_chain_match::ConnectionSourceType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use crate::cidr::is_in;
use crate::request::Connection;

/// A connection with everything that chains can ask.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) to: IpAddr,
    pub(crate) port: u16,
    pub(crate) from: IpAddr,
    pub(crate) from_port: u16,
    /// In lower case; empty if there is none, or if nothing inspects TLS.
    pub(crate) sni: String,
    pub(crate) alpn: Vec<String>,
    pub(crate) is_tls: bool,
}

impl Connected {
    pub(crate) fn of(
        connection: &Connection,
        is_tls: bool,
        host: &str,
        address: Option<(IpAddr, u16)>,
    ) -> Self {
        let listening = address.map(|(ip, _)| ip).filter(|ip| !ip.is_unspecified());
        let sni = connection.sni.clone().unwrap_or_else(|| match host.parse::<IpAddr>() {
            Ok(_) => String::new(),
            Err(_) => host.to_owned(),
        });
        Self {
            to: connection.to.or(listening).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            port: connection.port.or(address.map(|(_, port)| port)).unwrap_or_default(),
            // An address for documentation: a stranger.
            from: connection.from.unwrap_or(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
            from_port: connection.from_port.unwrap_or_default(),
            sni: if is_tls { sni.to_ascii_lowercase() } else { String::new() },
            alpn: if is_tls { connection.alpn.clone() } else { Vec::new() },
            is_tls,
        }
    }

    /// If the source counts as local: it is the destination, or exactly 127.0.0.1 or ::1.
    pub(crate) fn is_local(&self) -> bool {
        self.from == self.to
            || self.from == IpAddr::V4(Ipv4Addr::LOCALHOST)
            || self.from.is_loopback() && self.from.is_ipv6()
    }
}

/// The chain that takes a connection.
#[derive(Clone, Debug)]
pub(crate) struct ChainFound<'l> {
    /// The chain; its index, or `None` for the default one.
    pub(crate) chain: Option<(&'l FilterChain, Option<usize>)>,
    /// Which steps left some chains out.
    pub(crate) steps: Vec<&'static str>,
}

/// The addresses that a listener accepts connections at.
pub(crate) fn addresses(listener: &Listener) -> impl Iterator<Item = (IpAddr, u16)> {
    let additional = listener.additional_addresses.iter().filter_map(|more| more.address.as_ref());
    listener.address.iter().chain(additional).filter_map(socket)
}

/// The address and port of a socket, if it has both as numbers.
pub(crate) fn socket(address: &Address) -> Option<(IpAddr, u16)> {
    let Some(AddressKind::SocketAddress(socket)) = &address.address else { return None };
    let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else { return None };
    Some((socket.address.parse().ok()?, u16::try_from(port).ok()?))
}

/// The chain that takes a connection, by nine steps.
pub(crate) fn by_steps<'l>(listener: &'l Listener, connected: &Connected) -> ChainFound<'l> {
    let default = listener.default_filter_chain.as_ref().map(|chain| (chain, None));
    let empty = FilterChainMatch::default();
    let mut left: Vec<(usize, &FilterChain, &FilterChainMatch)> = Vec::new();
    for (index, chain) in listener.filter_chains.iter().enumerate() {
        left.push((index, chain, chain.filter_chain_match.as_ref().unwrap_or(&empty)));
    }
    let mut steps = Vec::new();
    for (name, step) in STEPS {
        let matches: Vec<&FilterChainMatch> = left.iter().map(|(_, _, matches)| *matches).collect();
        let n = left.len();
        let keeps = step(&matches, connected);
        let mut at = 0;
        left.retain(|_| {
            at += 1;
            keeps.get(at - 1).copied().unwrap_or_default()
        });
        if left.len() < n {
            steps.push(*name);
        }
    }
    let found = left.first().map(|(index, chain, _)| (*chain, Some(*index)));
    ChainFound { chain: found.or(default), steps }
}

/// The inputs of the nine steps that would make a difference and are not given.
pub(crate) fn asked_inputs(listener: &Listener, connection: &Connection) -> Vec<&'static str> {
    let is_asked = |asks: Asks| {
        listener.filter_chains.iter().filter_map(|chain| chain.filter_chain_match.as_ref()).any(asks)
    };
    let inputs: [(&str, bool, Asks); 4] = [
        ("--from", connection.from.is_none(), |one| {
            let n_ranges = one.source_prefix_ranges.len() + one.direct_source_prefix_ranges.len();
            n_ranges > 0 || one.source_type() != ConnectionSourceType::Any
        }),
        ("the port of --from", connection.from_port.is_none(), |one| !one.source_ports.is_empty()),
        ("--to", connection.to.is_none(), |one| !one.prefix_ranges.is_empty()),
        ("--alpn", connection.alpn.is_empty(), |one| !one.application_protocols.is_empty()),
    ];
    inputs
        .into_iter()
        .filter(|(_, is_missing, asks)| *is_missing && is_asked(*asks))
        .map(|(name, ..)| name)
        .collect()
}

/// If a chain asks for an input.
type Asks = fn(&FilterChainMatch) -> bool;

/// A step says of each chain that is left if it stays.
type Step = fn(&[&FilterChainMatch], &Connected) -> Vec<bool>;

const STEPS: &[(&str, Step)] = &[
    ("XF3 destination port", |all, connected| {
        let has = |one: &FilterChainMatch| one.destination_port.as_ref().map(|port| port.value);
        let wanted =
            Some(u32::from(connected.port)).filter(|port| all.iter().any(|one| has(one) == Some(*port)));
        all.iter().map(|one| has(one) == wanted).collect()
    }),
    ("XF4 destination address", |all, connected| longest(all, connected.to, |one| &one.prefix_ranges)),
    ("XF5 server name", |all, connected| {
        let names = |one: &FilterChainMatch| -> Vec<String> {
            one.server_names.iter().map(|name| name.to_ascii_lowercase()).collect()
        };
        let dots = connected.sni.match_indices('.').filter(|(at, _)| *at > 0);
        let wildcards = dots.filter_map(|(at, _)| connected.sni.get(at..)).map(|suffix| format!("*{suffix}"));
        let candidates = [connected.sni.clone()].into_iter().chain(wildcards).filter(|name| !name.is_empty());
        first_branch(all, candidates, names)
    }),
    ("XF6 transport protocol", |all, connected| {
        let protocol = if connected.is_tls { "tls" } else { "raw_buffer" };
        let own = |one: &FilterChainMatch| -> Vec<String> {
            Some(one.transport_protocol.clone()).filter(|text| !text.is_empty()).into_iter().collect()
        };
        first_branch(all, [protocol.to_owned()].into_iter(), own)
    }),
    ("XF6 application protocol", |all, connected| {
        first_branch(all, connected.alpn.iter().cloned(), |one| one.application_protocols.clone())
    }),
    ("XF7 direct source address", |all, connected| {
        longest(all, connected.from, |one| &one.direct_source_prefix_ranges)
    }),
    ("XF7 source type", |all, connected| {
        let wanted = match connected.is_local() {
            true => ConnectionSourceType::SameIpOrLoopback,
            false => ConnectionSourceType::External,
        };
        let has_wanted = all.iter().any(|one| one.source_type() == wanted);
        let wanted = if has_wanted { wanted } else { ConnectionSourceType::Any };
        all.iter().map(|one| one.source_type() == wanted).collect()
    }),
    ("XF8 source address", |all, connected| longest(all, connected.from, |one| &one.source_prefix_ranges)),
    ("XF8 source port", |all, connected| {
        let ports =
            |one: &FilterChainMatch| -> Vec<String> { one.source_ports.iter().map(u32::to_string).collect() };
        first_branch(all, [connected.from_port.to_string()].into_iter(), ports)
    }),
];

/// The chains of the first candidate that any chain has; else those that ask for nothing.
fn first_branch(
    all: &[&FilterChainMatch],
    mut candidates: impl Iterator<Item = String>,
    own: impl Fn(&FilterChainMatch) -> Vec<String>,
) -> Vec<bool> {
    let own: Vec<Vec<String>> = all.iter().map(|one| own(one)).collect();
    match candidates.find(|candidate| own.iter().any(|values| values.contains(candidate))) {
        Some(branch) => own.iter().map(|values| values.contains(&branch)).collect(),
        None => own.iter().map(Vec::is_empty).collect(),
    }
}

/// The chains with the longest prefix that holds the address; a chain without prefixes has `/0`.
fn longest<'m>(
    all: &[&'m FilterChainMatch],
    address: IpAddr,
    ranges: impl Fn(&'m FilterChainMatch) -> &'m Vec<CidrRange>,
) -> Vec<bool> {
    let best = |one: &&'m FilterChainMatch| {
        let ranges = ranges(one);
        match ranges.is_empty() {
            true => Some(0),
            false => {
                let holding = ranges.iter().filter(|range| is_in(address, range));
                holding.map(|range| range.prefix_len.as_ref().map_or(0, |length| length.value)).max()
            }
        }
    };
    let lengths: Vec<Option<u32>> = all.iter().map(best).collect();
    let longest = lengths.iter().flatten().max().copied();
    lengths.iter().map(|length| length.is_some() && *length == longest).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use envoy_types::pb::google::protobuf::UInt32Value;

    use super::*;

    /// A TLS connection from elsewhere, with everything that chains can ask.
    pub(crate) fn connected() -> Connected {
        Connected {
            to: "10.0.0.1".parse().unwrap(),
            port: 443,
            from: "192.0.2.1".parse().unwrap(),
            from_port: 5000,
            sni: "a.b.test".to_owned(),
            alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            is_tls: true,
        }
    }

    fn found(chains: &[FilterChainMatch], connected: &Connected) -> Option<usize> {
        let filter_chains = chains
            .iter()
            .map(|one| FilterChain { filter_chain_match: Some(one.clone()), ..FilterChain::default() });
        let listener = Listener { filter_chains: filter_chains.collect(), ..Listener::default() };
        by_steps(&listener, connected).chain.and_then(|(_, index)| index)
    }

    fn range(prefix: &str, length: u32) -> CidrRange {
        CidrRange { address_prefix: prefix.to_owned(), prefix_len: Some(UInt32Value { value: length }) }
    }

    fn any() -> FilterChainMatch {
        FilterChainMatch::default()
    }

    fn names(all: &[&str]) -> FilterChainMatch {
        FilterChainMatch { server_names: all.iter().map(|name| (*name).to_owned()).collect(), ..any() }
    }

    #[test]
    fn f3_a_port_excludes_chains_without_one() {
        let port =
            FilterChainMatch { destination_port: Some(UInt32Value { value: 443 }), ..names(&["other.test"]) };
        assert_eq!(found(&[any(), port.clone()], &connected()), None);
        assert_eq!(found(&[any(), port], &Connected { port: 80, ..connected() }), Some(0));
    }

    #[test]
    fn f4_the_longest_prefix_wins_and_no_step_goes_back() {
        let wide = FilterChainMatch { prefix_ranges: vec![range("10.0.0.0", 8)], ..any() };
        let narrow =
            FilterChainMatch { prefix_ranges: vec![range("10.0.0.9", 24)], ..names(&["other.test"]) };
        assert_eq!(found(&[any(), wide.clone()], &connected()), Some(1));
        assert_eq!(found(&[any(), wide, narrow], &connected()), None);
    }

    #[test]
    fn f5_server_names_are_exact_then_the_longest_suffix_then_unset() {
        let all = [any(), names(&["*.test"]), names(&["*.b.test"]), names(&["A.b.test"])];
        assert_eq!(found(&all, &connected()), Some(3));
        let of = |sni: &str| found(&all, &Connected { sni: sni.to_owned(), ..connected() });
        assert_eq!(
            (of("x.b.test"), of("x.y.test"), of("b.test"), of("test"), of("")),
            (Some(2), Some(1), Some(1), Some(0), Some(0))
        );
    }

    #[test]
    fn f6_protocols_are_asked_in_the_order_of_the_client() {
        let alpn = |name: &str| FilterChainMatch { application_protocols: vec![name.to_owned()], ..any() };
        assert_eq!(found(&[any(), alpn("http/1.1"), alpn("h2")], &connected()), Some(2));
        assert_eq!(found(&[any(), alpn("h3")], &connected()), Some(0));
        let tls = FilterChainMatch { transport_protocol: "tls".to_owned(), ..any() };
        assert_eq!(found(&[any(), tls.clone()], &connected()), Some(1));
        assert_eq!(found(&[any(), tls], &Connected { is_tls: false, ..connected() }), Some(0));
    }

    #[test]
    fn f7_local_sources_are_127_0_0_1_or_the_destination() {
        let of_type = |kind: ConnectionSourceType| FilterChainMatch { source_type: kind.into(), ..any() };
        let all =
            [any(), of_type(ConnectionSourceType::SameIpOrLoopback), of_type(ConnectionSourceType::External)];
        for (from, expected) in [("192.0.2.1", 2), ("127.0.0.1", 1), ("10.0.0.1", 1), ("127.0.0.2", 2)] {
            let from = Connected { from: from.parse().unwrap(), ..connected() };
            assert_eq!(found(&all, &from), Some(expected));
        }
        assert_eq!(found(&[any(), of_type(ConnectionSourceType::SameIpOrLoopback)], &connected()), Some(0));
    }

    #[test]
    fn f8_sources_by_prefix_then_port() {
        let by_address = FilterChainMatch { source_prefix_ranges: vec![range("192.0.2.0", 24)], ..any() };
        let by_port = FilterChainMatch { source_ports: vec![5000], ..by_address.clone() };
        assert_eq!(found(&[any(), by_address.clone(), by_port.clone()], &connected()), Some(2));
        let other = Connected { from_port: 1, ..connected() };
        assert_eq!(found(&[any(), by_address, by_port], &other), Some(1));
    }
}
