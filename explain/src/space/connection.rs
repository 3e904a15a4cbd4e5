//! The connections that filter chains and trees of matchers tell apart (XF1–XF8).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::listener::v3::filter_chain_match::ConnectionSourceType;
use envoy_types::pb::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use crate::chains::Chains;
use crate::listener::{Connected, addresses};
use crate::request::Connection;
use crate::shape::Shape;
use crate::tree::{Input, Sight, Tree};

/// A filter chain by its index; that of the default chain is `None`.
pub(crate) type ChainIndex = Option<usize>;

/// Connections that reach different pairs of chains, one for each pair. `None` is a connection that is closed.
pub(crate) type Ways = BTreeMap<[Option<ChainIndex>; 2], Way>;

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) connection: Connection,
    pub(crate) is_tls: bool,
}

/// The values of each part of a connection that chains can tell apart. The first is the plainest.
#[derive(Debug)]
struct Values {
    ports: Vec<Option<u16>>,
    to: Vec<Option<IpAddr>>,
    names: Vec<Option<String>>,
    tls: Vec<bool>,
    protocols: Vec<Vec<String>>,
    from: Vec<Option<IpAddr>>,
    from_ports: Vec<Option<u16>>,
    /// A condition of a tree whose values are not listed.
    unlisted: Option<String>,
}

/// All pairs of chains that connections reach in two listeners, which may be the same. `None` in place of the second if there are too many
/// combinations.
pub(crate) fn ways(listeners: [&Listener; 2]) -> (Ways, Option<String>) {
    let chains: Vec<&FilterChain> = listeners
        .into_iter()
        .flat_map(|listener| listener.filter_chains.iter().chain(&listener.default_filter_chain))
        .collect();
    let sides = listeners.map(Chains::of);
    let trees: Vec<&Tree> = sides.iter().filter_map(Chains::tree).collect();
    let values = Values::of(&chains, &trees, listeners[1]);
    let mut ways = Ways::new();
    if let Some(why) = values.unlisted {
        return (ways, Some(why));
    }
    if values.n() > MAX_COMBINATIONS {
        let words =
            format!("connections that more than {MAX_COMBINATIONS} combinations of filter chains tell apart");
        return (ways, Some(words));
    }
    let addresses = listeners.map(|listener| addresses(listener).next());
    let mut is_unknown = false;
    values.each(|way| {
        let reached = [0, 1].map(|side: usize| {
            let connected = Connected::of(&way.connection, way.is_tls, "", addresses[side]);
            let found = sides[side].find(&connected, &BTreeMap::new());
            found.only().map(|way| way.chain.map(|(_, index)| index))
        });
        match reached {
            [Some(old), Some(new)] => {
                ways.entry([old, new]).or_insert_with(|| way.clone());
            }
            _ => is_unknown = true,
        }
    });
    let words = "connections for which the filter chain depends on something that is not known";
    (ways, is_unknown.then(|| words.to_owned()))
}

/// If the listener speaks TLS on a chain.
fn speaks_tls(chain: &FilterChain) -> bool {
    chain.transport_socket.is_some()
}

impl Values {
    fn of(chains: &[&FilterChain], trees: &[&Tree], listener: &Listener) -> Self {
        let matches: Vec<&FilterChainMatch> =
            chains.iter().filter_map(|chain| chain.filter_chain_match.as_ref()).collect();
        let own = addresses(listener).next();
        let mut values = Self {
            ports: vec![own.map(|(_, port)| port)],
            to: vec![own.map(|(ip, _)| ip).filter(|ip| !ip.is_unspecified())],
            names: vec![None],
            tls: Vec::new(),
            protocols: vec![Vec::new()],
            from: vec![None],
            from_ports: vec![None],
            unlisted: None,
        };
        for one in &matches {
            values.ports.extend(one.destination_port.iter().map(|port| u16::try_from(port.value).ok()));
            values.to.extend(one.prefix_ranges.iter().flat_map(ends));
            values.names.extend(one.server_names.iter().flat_map(|name| names_of(name)));
            values.protocols.extend(one.application_protocols.iter().map(|name| vec![name.clone()]));
            let sources = one.source_prefix_ranges.iter().chain(&one.direct_source_prefix_ranges);
            values.from.extend(sources.flat_map(ends));
            if one.source_type() != ConnectionSourceType::Any {
                values.from.push(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
            }
            values.from_ports.extend(one.source_ports.iter().map(|port| u16::try_from(*port).ok()));
            match &*one.transport_protocol {
                "tls" => values.tls.push(true),
                "raw_buffer" => values.tls.push(false),
                _ => {}
            }
        }
        for tree in trees {
            tree.sights(&mut |input, sight| values.see(input, sight));
        }
        // A tree may look for each of several protocols.
        let mut all: Vec<String> = values.protocols.concat();
        all.sort_unstable();
        all.dedup();
        if !trees.is_empty() && all.len() > 1 {
            values.protocols.push(all);
        }
        values.tls.extend(chains.iter().map(|chain| speaks_tls(chain)));
        if values.names.len() > 1 {
            values.names.push(Some("any.test".to_owned()));
            values.names.push(Some(String::new()));
            // A name that is not said is that of the host.
            values.names.remove(0);
        }
        values.ports = unique(values.ports);
        values.to = unique(values.to);
        values.names = unique(values.names);
        values.protocols = unique(values.protocols);
        values.from = unique(values.from);
        values.from_ports = unique(values.from_ports);
        values.tls.sort_unstable();
        values.tls.dedup();
        values
    }

    /// Adds the values that a condition of a tree tells apart.
    fn see(&mut self, input: &Input, sight: Sight<'_>) {
        if matches!(input, Input::ServerName | Input::ApplicationProtocols) {
            self.tls.push(true);
        }
        let is_listed = match input {
            Input::ServerName => self.see_name(sight),
            Input::ApplicationProtocols => self.see_protocols(sight),
            Input::DestinationIp => see_address(sight, &mut self.to),
            Input::SourceIp | Input::DirectSourceIp => see_address(sight, &mut self.from),
            Input::DestinationPort => see_port(sight, &mut self.ports),
            Input::SourcePort => see_port(sight, &mut self.from_ports),
            Input::SourceType => {
                self.from.push(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
                true
            }
            Input::TransportProtocol => {
                self.tls.extend([false, true]);
                true
            }
            Input::NetworkNamespace
            | Input::FilterState(_)
            | Input::Environment(_)
            | Input::Header(_)
            | Input::Other(_) => false,
        };
        if !is_listed {
            self.unlisted = Some(format!("a matcher chooses the filter chain by the {input}"));
        }
    }

    fn see_name(&mut self, sight: Sight<'_>) -> bool {
        let begins =
            |text: &str| ["", "any-other"].map(|rest| Some(format!("{}{rest}", text.to_ascii_lowercase())));
        match sight {
            Sight::Exact(text) => self.names.push(Some(text.to_ascii_lowercase())),
            Sight::Prefix(text) => self.names.extend(begins(text)),
            Sight::Name("*") => self.names.push(Some("any.test".to_owned())),
            Sight::Name(name) => self.names.extend(names_of(name)),
            Sight::Text(text) => {
                for shape in text.shapes().unwrap_or_default() {
                    match shape {
                        Shape::Exact { text, .. } => self.names.push(Some(text.to_ascii_lowercase())),
                        Shape::Prefix { text, .. } => self.names.extend(begins(&text)),
                        Shape::Suffix { .. }
                        | Shape::Contains { .. }
                        | Shape::Regex(_)
                        | Shape::Expression(_) => return false,
                    }
                }
                return text.shapes().is_some();
            }
            Sight::Range(_) | Sight::Unknown => return false,
        }
        true
    }

    /// Lists are `'h2','http/1.1'`: the whole of it, or one of two protocols in it.
    fn see_protocols(&mut self, sight: Sight<'_>) -> bool {
        let whole = |text: &str| -> Vec<String> {
            text.split(',')
                .map(|one| one.trim_matches('\'').to_owned())
                .filter(|one| !one.is_empty())
                .collect()
        };
        match sight {
            Sight::Exact(text) => self.protocols.push(whole(text)),
            Sight::Text(text) => {
                let Some(shapes) = text.shapes() else { return false };
                for shape in shapes {
                    match shape {
                        Shape::Exact { text, folds: false } => self.protocols.push(whole(&text)),
                        Shape::Contains { text, folds: false } => {
                            let one = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
                            let Some(one) = one.filter(|one| !one.contains('\'')) else { return false };
                            self.protocols.push(vec![one.to_owned()]);
                            // Of three, not every combination is listed.
                            let mut all = self.protocols.concat();
                            all.sort_unstable();
                            all.dedup();
                            if all.len() > 2 {
                                return false;
                            }
                        }
                        Shape::Exact { .. }
                        | Shape::Prefix { .. }
                        | Shape::Suffix { .. }
                        | Shape::Contains { .. }
                        | Shape::Regex(_)
                        | Shape::Expression(_) => return false,
                    }
                }
            }
            Sight::Prefix(_) | Sight::Range(_) | Sight::Name(_) | Sight::Unknown => return false,
        }
        true
    }

    fn n(&self) -> usize {
        let lengths = [
            self.ports.len(),
            self.to.len(),
            self.names.len(),
            self.tls.len(),
            self.protocols.len(),
            self.from.len(),
            self.from_ports.len(),
        ];
        lengths.into_iter().fold(1, usize::saturating_mul)
    }

    fn each(&self, mut visit: impl FnMut(&Way)) {
        let mut places = [0; 7];
        let lengths = [
            self.from_ports.len(),
            self.from.len(),
            self.protocols.len(),
            self.tls.len(),
            self.names.len(),
            self.to.len(),
            self.ports.len(),
        ];
        loop {
            let at = |dimension: usize| places.get(dimension).copied().unwrap_or_default();
            let is_tls = self.tls.get(at(3)).copied().unwrap_or_default();
            let name = self.names.get(at(4)).cloned().flatten();
            let protocols = self.protocols.get(at(2)).cloned().unwrap_or_default();
            let connection = Connection {
                listener: None,
                port: self.ports.get(at(6)).copied().flatten(),
                to: self.to.get(at(5)).copied().flatten(),
                from: self.from.get(at(1)).copied().flatten(),
                from_port: self.from_ports.get(at(0)).copied().flatten(),
                sni: name.filter(|_| is_tls),
                alpn: if is_tls { protocols } else { Vec::new() },
                tls: (self.tls.len() > 1).then_some(is_tls),
                certificate: None,
            };
            visit(&Way { connection, is_tls });
            let mut dimension = 0;
            loop {
                let (Some(place), Some(length)) = (places.get_mut(dimension), lengths.get(dimension)) else {
                    return;
                };
                *place += 1;
                if *place < *length {
                    break;
                }
                *place = 0;
                dimension += 1;
            }
        }
    }
}

fn see_address(sight: Sight<'_>, values: &mut Vec<Option<IpAddr>>) -> bool {
    match whole(sight) {
        Some(texts) => values.extend(texts.iter().filter_map(|text| text.parse().ok()).map(Some)),
        None => match sight {
            Sight::Range(range) => values.extend(ends(range)),
            Sight::Text(_) | Sight::Exact(_) | Sight::Prefix(_) | Sight::Name(_) | Sight::Unknown => {
                return false;
            }
        },
    }
    true
}

fn see_port(sight: Sight<'_>, values: &mut Vec<Option<u16>>) -> bool {
    let Some(texts) = whole(sight) else { return false };
    values.extend(texts.iter().filter_map(|text| text.parse().ok()).map(Some));
    true
}

/// The texts that it takes, if these are all.
fn whole(sight: Sight<'_>) -> Option<Vec<String>> {
    match sight {
        Sight::Exact(text) => Some(vec![text.to_owned()]),
        Sight::Text(text) => {
            let exact = |shape| match shape {
                Shape::Exact { text, .. } => Some(text),
                Shape::Prefix { .. }
                | Shape::Suffix { .. }
                | Shape::Contains { .. }
                | Shape::Regex(_)
                | Shape::Expression(_) => None,
            };
            text.shapes()?.into_iter().map(exact).collect()
        }
        Sight::Prefix(_) | Sight::Range(_) | Sight::Name(_) | Sight::Unknown => None,
    }
}

fn unique<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut unique: Vec<T> = Vec::new();
    for one in all {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique
}

/// Names that a pattern of server names takes. One of them has no chain of its own, unless somebody means it.
fn names_of(pattern: &str) -> Vec<Option<String>> {
    let pattern = pattern.to_ascii_lowercase();
    match pattern.strip_prefix('*') {
        Some(suffix) => ["any", "xn--any-other"].map(|label| Some(format!("{label}{suffix}"))).to_vec(),
        None => vec![Some(pattern)],
    }
}

/// The first address of a range, and the first behind it. Between the limits of all ranges, addresses are alike.
fn ends(range: &CidrRange) -> Vec<Option<IpAddr>> {
    let length = range.prefix_len.as_ref().map_or(0, |length| length.value);
    match range.address_prefix.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or_default();
            let first = u32::from(address) & mask;
            let behind = (first | !mask).checked_add(1);
            [Some(first), behind].into_iter().flatten().map(|bits| Some(IpAddr::V4(bits.into()))).collect()
        }
        Ok(IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or_default();
            let first = u128::from(address) & mask;
            let behind = (first | !mask).checked_add(1);
            [Some(first), behind].into_iter().flatten().map(|bits| Some(IpAddr::V6(bits.into()))).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Combinations of values of a connection.
const MAX_COMBINATIONS: usize = 100_000;
