//! A tree of matchers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::CidrRange;

use crate::cidr::is_in;
use crate::text::Text;

/// A tree of matchers.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: Node,
    /// Everything that it looks at.
    pub(crate) inputs: BTreeSet<Input>,
    /// The path of the first `keep_matching`.
    pub(crate) keeps: Option<String>,
}

/// A matcher.
#[derive(Debug)]
pub(crate) enum Node {
    /// The first branch whose predicate holds and that leads to an action.
    List { branches: Vec<Branch>, otherwise: Option<Box<Then>> },
    /// The branches that a value chooses.
    Map(Map),
    /// It is not modelled, for this reason.
    Unknown(String),
}

/// A predicate, and where it leads.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) predicate: Predicate,
    pub(crate) then: Then,
}

/// Branches by the value of one input.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) input: Input,
    pub(crate) kind: Kind,
    pub(crate) otherwise: Option<Box<Then>>,
    /// The path of its keys.
    pub(crate) path: String,
}

/// How a value chooses.
#[derive(Debug)]
pub(crate) enum Kind {
    Exact(BTreeMap<String, Then>),
    /// The longest prefix first.
    Prefix(BTreeMap<String, Then>),
    /// The longest prefix of an address first.
    Ranges(Vec<Range>),
    /// An exact name, then the longest `*.suffix`, then `*`.
    Names {
        leads: Vec<Then>,
        of: BTreeMap<String, usize>,
    },
    /// An extension that is not modelled.
    Unknown(String),
}

/// A range of addresses.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) ranges: Vec<CidrRange>,
    pub(crate) then: Then,
    /// It counts only if no longer one holds the address.
    pub(crate) is_exclusive: bool,
}

/// Where a branch leads.
#[derive(Debug)]
pub(crate) struct Then {
    /// Where it is in the resource.
    pub(crate) path: String,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Node(Box<Node>),
    /// An action, by its position among those of the tree.
    Action(usize),
    /// The message says nothing.
    Nothing,
    /// It is not modelled, for this reason.
    Unknown(String),
}

/// A condition of a list.
#[derive(Debug)]
pub(crate) enum Predicate {
    Single {
        input: Input,
        wanted: Wanted,
    },
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    /// The message says nothing.
    Never,
}

/// What a predicate wants of a value.
#[derive(Debug)]
pub(crate) enum Wanted {
    Text(Arc<Text>),
    Ranges(Vec<CidrRange>),
    /// An extension that is not modelled.
    Unknown(String),
}

/// What a tree looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Input {
    /// A header of the request, by its name in lower case. Several values are joined with commas.
    Header(String),
    FilterState(String),
    Environment(String),
    DestinationIp,
    DestinationPort,
    SourceIp,
    SourcePort,
    DirectSourceIp,
    SourceType,
    ServerName,
    TransportProtocol,
    ApplicationProtocols,
    NetworkNamespace,
    /// Another one, by the name of its message.
    Other(String),
}

/// What is known of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Text(String),
    Absent,
    Unknown,
}

/// Who asks a tree.
pub(crate) trait Facts {
    /// The value of an input.
    fn value(&self, input: &Input) -> Known;
}

/// One condition of a tree on an input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sight<'t> {
    Text(&'t Text),
    Exact(&'t str),
    Prefix(&'t str),
    Range(&'t CidrRange),
    /// `a.test`, `*.test` or `*`.
    Name(&'t str),
    Unknown,
}

impl Tree {
    /// All conditions on inputs, in order.
    pub(crate) fn sights(&self, see: &mut dyn FnMut(&Input, Sight<'_>)) {
        self.root.sights(see);
    }
}

impl Node {
    fn sights(&self, see: &mut dyn FnMut(&Input, Sight<'_>)) {
        match self {
            Self::List { branches, otherwise } => {
                for branch in branches {
                    branch.predicate.sights(see);
                    branch.then.sights(see);
                }
                otherwise.iter().for_each(|then| then.sights(see));
            }
            Self::Map(map) => {
                map.kind.sights(&map.input, see);
                map.otherwise.iter().for_each(|then| then.sights(see));
            }
            Self::Unknown(_) => {}
        }
    }
}

impl Then {
    fn sights(&self, see: &mut dyn FnMut(&Input, Sight<'_>)) {
        if let What::Node(node) = &self.what {
            node.sights(see);
        }
    }
}

impl Predicate {
    fn sights(&self, see: &mut dyn FnMut(&Input, Sight<'_>)) {
        match self {
            Self::Single { input, wanted } => match wanted {
                Wanted::Text(text) => see(input, Sight::Text(text)),
                Wanted::Ranges(ranges) => ranges.iter().for_each(|range| see(input, Sight::Range(range))),
                Wanted::Unknown(_) => see(input, Sight::Unknown),
            },
            Self::Any(all) | Self::All(all) => all.iter().for_each(|one| one.sights(see)),
            Self::Not(one) => one.sights(see),
            Self::Never => {}
        }
    }
}

impl Kind {
    fn sights(&self, input: &Input, see: &mut dyn FnMut(&Input, Sight<'_>)) {
        match self {
            Self::Exact(keys) => {
                for (key, then) in keys {
                    see(input, Sight::Exact(key));
                    then.sights(see);
                }
            }
            Self::Prefix(keys) => {
                for (key, then) in keys {
                    see(input, Sight::Prefix(key));
                    then.sights(see);
                }
            }
            Self::Ranges(all) => {
                for one in all {
                    one.ranges.iter().for_each(|range| see(input, Sight::Range(range)));
                    one.then.sights(see);
                }
            }
            Self::Names { leads, of } => {
                of.keys().for_each(|name| see(input, Sight::Name(name)));
                leads.iter().for_each(|then| then.sights(see));
            }
            Self::Unknown(_) => see(input, Sight::Unknown),
        }
    }

    /// The branches that a value chooses, in the order in which they are asked, each with its key; `None` if that is not modelled.
    pub(crate) fn candidates(&self, value: &str) -> Option<Vec<(String, &Then)>> {
        match self {
            Self::Exact(map) => {
                Some(map.get(value).map(|then| (format!("{value:?}"), then)).into_iter().collect())
            }
            Self::Prefix(map) => {
                let prefixes = (0..=value.len()).rev().filter_map(|end| value.get(..end));
                let found =
                    prefixes.filter_map(|prefix| Some((format!("prefix {prefix:?}"), map.get(prefix)?)));
                Some(found.collect())
            }
            Self::Ranges(all) => Some(ranges(all, value)),
            Self::Names { leads, of } => {
                let suffixes = value.match_indices('.').filter_map(|(at, _)| value.get(at..));
                let patterns = suffixes.map(|suffix| format!("*{suffix}"));
                let names = [value.to_owned()].into_iter().chain(patterns).chain(["*".to_owned()]);
                let names = names.filter(|_| !value.is_empty());
                Some(names.filter_map(|name| Some((name.clone(), leads.get(*of.get(&name)?)?))).collect())
            }
            Self::Unknown(_) => None,
        }
    }
}

/// The ranges that hold an address, the longest first. An exclusive one counts only as the first.
fn ranges<'r>(all: &'r [Range], value: &str) -> Vec<(String, &'r Then)> {
    let Ok(address) = value.parse::<IpAddr>() else { return Vec::new() };
    let length = |range: &CidrRange| range.prefix_len.as_ref().map_or(0, |length| length.value);
    let mut holding: Vec<(&Range, &CidrRange)> =
        all.iter().flat_map(|one| one.ranges.iter().map(move |range| (one, range))).collect();
    holding.retain(|(_, range)| is_in(address, range));
    holding.sort_by_key(|(_, range)| std::cmp::Reverse(length(range)));
    let counts = holding.into_iter().enumerate().filter(|(at, (one, _))| *at == 0 || !one.is_exclusive);
    counts
        .map(|(_, (one, range))| (format!("{}/{}", range.address_prefix, length(range)), &one.then))
        .collect()
}

impl Wanted {
    /// In words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Text(text) => text.describe(),
            Self::Ranges(ranges) => {
                let shown = ranges.iter().take(MAX_RANGES_SHOWN).map(|range| {
                    let length = range.prefix_len.as_ref().map_or(0, |length| length.value);
                    format!("{}/{length}", range.address_prefix)
                });
                let more = if ranges.len() > MAX_RANGES_SHOWN { " or others" } else { "" };
                format!("in {}{more}", shown.collect::<Vec<_>>().join(" or "))
            }
            Self::Unknown(name) => format!("what {name} takes"),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header `{name}`"),
            Self::FilterState(key) => write!(f, "filter state {key}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::DestinationIp => f.write_str("destination address"),
            Self::DestinationPort => f.write_str("destination port"),
            Self::SourceIp => f.write_str("source address"),
            Self::SourcePort => f.write_str("source port"),
            Self::DirectSourceIp => f.write_str("direct source address"),
            Self::SourceType => f.write_str("source type"),
            Self::ServerName => f.write_str("server name"),
            Self::TransportProtocol => f.write_str("transport protocol"),
            Self::ApplicationProtocols => f.write_str("application protocols"),
            Self::NetworkNamespace => f.write_str("network namespace"),
            Self::Other(name) => write!(f, "input {name}"),
        }
    }
}

const MAX_RANGES_SHOWN: usize = 3;
