//! Makes a tree of matchers from its message.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::extensions::matching::common_inputs::environment_variable::v3::Config as EnvironmentVariable;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::FilterStateInput;
use envoy_types::pb::envoy::extensions::matching::input_matchers::ip::v3::Ip;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{HttpRequestHeaderMatchInput, RegexMatcher, StringMatcher};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::Predicate as PredicateMessage;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::MatchType;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::single_predicate::Matcher as Single;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::TreeType;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::on_match::OnMatch as Leads;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherType, OnMatch};
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, StringMatcher as XdsStringMatcher, string_matcher};
use prost::Message;

use crate::semantics::Semantics;
use crate::text::Text;
use crate::tree::node::{Branch, Input, Kind, Map, Node, Predicate, Range, Then, Tree, Wanted, What};

/// Reads a tree at a path of its resource. `action` gets each action with its path, and says where it leads. Branches of a map come in the
/// order of their keys.
pub(crate) fn read(
    matcher: &Matcher,
    path: &str,
    semantics: Semantics,
    action: &mut dyn FnMut(&Any, &str) -> What,
) -> Tree {
    let mut reader = Reader { semantics, action, inputs: BTreeSet::new(), keeps: None };
    let root = reader.node(matcher, path, 0);
    Tree { root, inputs: reader.inputs, keeps: reader.keeps }
}

struct Reader<'r> {
    semantics: Semantics,
    action: &'r mut dyn FnMut(&Any, &str) -> What,
    inputs: BTreeSet<Input>,
    keeps: Option<String>,
}

impl Reader<'_> {
    fn node(&mut self, matcher: &Matcher, path: &str, depth: usize) -> Node {
        if depth > MAX_DEPTH {
            return Node::Unknown(format!("matchers are nested deeper than {MAX_DEPTH}"));
        }
        let mut branches = Vec::new();
        let node = match &matcher.matcher_type {
            None => None,
            Some(MatcherType::MatcherList(list)) => {
                for (index, one) in list.matchers.iter().enumerate() {
                    let path = format!("{path}.matcher_list.matchers[{index}]");
                    let predicate = one
                        .predicate
                        .as_ref()
                        .map_or(Predicate::Never, |predicate| self.predicate(predicate));
                    let then = self.then(one.on_match.as_ref(), format!("{path}.on_match"), depth);
                    branches.push(Branch { predicate, then });
                }
                None
            }
            Some(MatcherType::MatcherTree(tree)) => {
                let input = self.input(tree.input.as_ref());
                let path = format!("{path}.matcher_tree");
                let (kind, path) = self.kind(tree.tree_type.as_ref(), &path, depth);
                Some((input, kind, path))
            }
        };
        let otherwise = matcher.on_no_match.as_deref();
        let otherwise =
            otherwise.map(|then| Box::new(self.then(Some(then), format!("{path}.on_no_match"), depth)));
        match node {
            None => Node::List { branches, otherwise },
            Some((input, kind, path)) => Node::Map(Map { input, kind, otherwise, path }),
        }
    }

    fn kind(&mut self, kind: Option<&TreeType>, path: &str, depth: usize) -> (Kind, String) {
        match kind {
            Some(TreeType::ExactMatchMap(map)) => {
                let path = format!("{path}.exact_match_map.map");
                (Kind::Exact(self.keys(&map.map, &path, depth)), path)
            }
            Some(TreeType::PrefixMatchMap(map)) => {
                let path = format!("{path}.prefix_match_map.map");
                (Kind::Prefix(self.keys(&map.map, &path, depth)), path)
            }
            Some(TreeType::CustomMatch(custom)) => {
                let path = format!("{path}.custom_match.typed_config");
                (self.custom(custom, &path, depth), path)
            }
            None => (Kind::Exact(BTreeMap::new()), path.to_owned()),
        }
    }

    fn keys(&mut self, map: &HashMap<String, OnMatch>, path: &str, depth: usize) -> BTreeMap<String, Then> {
        let sorted: BTreeMap<&String, &OnMatch> = map.iter().collect();
        let then = |(key, then): (&String, &OnMatch)| {
            (key.clone(), self.then(Some(then), format!("{path}[{key:?}]"), depth))
        };
        sorted.into_iter().map(then).collect()
    }

    fn custom(&mut self, custom: &TypedExtensionConfig, path: &str, depth: usize) -> Kind {
        let Some(any) = &custom.typed_config else { return Kind::Unknown(custom.name.clone()) };
        match message_of(any) {
            "xds.type.matcher.v3.IPMatcher" => {
                let Ok(message) = IpMatcher::decode(&*any.value) else {
                    return Kind::Unknown(custom.name.clone());
                };
                let range = |(index, one): (usize, IpRangeMatcher)| {
                    let path = format!("{path}.range_matchers[{index}].on_match");
                    let then = self.then(one.on_match.as_ref(), path, depth);
                    Range { ranges: one.ranges, then, is_exclusive: one.exclusive }
                };
                Kind::Ranges(message.range_matchers.into_iter().enumerate().map(range).collect())
            }
            "xds.type.matcher.v3.ServerNameMatcher" => {
                let Ok(message) = ServerNameMatcher::decode(&*any.value) else {
                    return Kind::Unknown(custom.name.clone());
                };
                let mut leads = Vec::new();
                let mut of = BTreeMap::new();
                for (index, one) in message.domain_matchers.into_iter().enumerate() {
                    let path = format!("{path}.domain_matchers[{index}].on_match");
                    leads.push(self.then(one.on_match.as_ref(), path, depth));
                    for name in one.domains {
                        of.entry(name).or_insert(index);
                    }
                }
                Kind::Names { leads, of }
            }
            name => Kind::Unknown(name.to_owned()),
        }
    }

    fn then(&mut self, then: Option<&OnMatch>, path: String, depth: usize) -> Then {
        if then.is_some_and(|then| then.keep_matching) {
            self.keeps.get_or_insert_with(|| path.clone());
        }
        let what = match then.and_then(|then| then.on_match.as_ref()) {
            Some(Leads::Matcher(matcher)) => {
                What::Node(Box::new(self.node(matcher, &format!("{path}.matcher"), depth + 1)))
            }
            Some(Leads::Action(action)) => match &action.typed_config {
                Some(any) => (self.action)(any, &format!("{path}.action.typed_config")),
                None => What::Unknown(format!("the action {:?} says nothing", action.name)),
            },
            None => What::Nothing,
        };
        Then { path, what }
    }

    fn predicate(&mut self, predicate: &PredicateMessage) -> Predicate {
        match &predicate.match_type {
            Some(MatchType::SinglePredicate(single)) => {
                let input = self.input(single.input.as_ref());
                let wanted = match &single.matcher {
                    Some(Single::ValueMatch(text)) => {
                        Wanted::Text(Arc::new(Text::of(&of_xds(text), self.semantics)))
                    }
                    Some(Single::CustomMatch(custom)) => custom_match(custom),
                    None => return Predicate::Never,
                };
                Predicate::Single { input, wanted }
            }
            Some(MatchType::OrMatcher(all)) => {
                Predicate::Any(all.predicate.iter().map(|one| self.predicate(one)).collect())
            }
            Some(MatchType::AndMatcher(all)) => {
                Predicate::All(all.predicate.iter().map(|one| self.predicate(one)).collect())
            }
            Some(MatchType::NotMatcher(one)) => Predicate::Not(Box::new(self.predicate(one))),
            None => Predicate::Never,
        }
    }

    fn input(&mut self, input: Option<&TypedExtensionConfig>) -> Input {
        let any = input.and_then(|input| input.typed_config.as_ref());
        let read = any.map_or_else(|| Input::Other(String::new()), input_of);
        self.inputs.insert(read.clone());
        read
    }
}

/// The input of a message.
fn input_of(any: &Any) -> Input {
    let name = message_of(any);
    let other = || Input::Other(name.to_owned());
    if let Some(of_network) = name.strip_prefix(NETWORK_INPUTS) {
        return match of_network {
            "DestinationIPInput" => Input::DestinationIp,
            "DestinationPortInput" => Input::DestinationPort,
            "SourceIPInput" => Input::SourceIp,
            "SourcePortInput" => Input::SourcePort,
            "DirectSourceIPInput" => Input::DirectSourceIp,
            "SourceTypeInput" => Input::SourceType,
            "ServerNameInput" => Input::ServerName,
            "TransportProtocolInput" => Input::TransportProtocol,
            "ApplicationProtocolInput" => Input::ApplicationProtocols,
            "NetworkNamespaceInput" => Input::NetworkNamespace,
            "FilterStateInput" => match FilterStateInput::decode(&*any.value) {
                Ok(input) if input.field.is_empty() => Input::FilterState(input.key),
                Ok(_) | Err(_) => other(),
            },
            _ => other(),
        };
    }
    match name {
        "envoy.type.matcher.v3.HttpRequestHeaderMatchInput" => {
            match HttpRequestHeaderMatchInput::decode(&*any.value) {
                Ok(input) => Input::Header(input.header_name.to_ascii_lowercase()),
                Err(_) => other(),
            }
        }
        "envoy.extensions.matching.common_inputs.environment_variable.v3.Config" => {
            EnvironmentVariable::decode(&*any.value)
                .map_or_else(|_| other(), |one| Input::Environment(one.name))
        }
        _ => other(),
    }
}

fn custom_match(custom: &TypedExtensionConfig) -> Wanted {
    let any = custom.typed_config.as_ref();
    let name = any.map_or(&*custom.name, message_of);
    let ip = any.filter(|_| name == "envoy.extensions.matching.input_matchers.ip.v3.Ip");
    match ip.and_then(|any| Ip::decode(&*any.value).ok()) {
        Some(ip) => Wanted::Ranges(ip.cidr_ranges),
        None => Wanted::Unknown(name.to_owned()),
    }
}

/// The same matcher in the messages of Envoy.
fn of_xds(matcher: &XdsStringMatcher) -> StringMatcher {
    use string_matcher::MatchPattern as Xds;
    let match_pattern = matcher.match_pattern.as_ref().map(|pattern| match pattern {
        Xds::Exact(text) => MatchPattern::Exact(text.clone()),
        Xds::Prefix(text) => MatchPattern::Prefix(text.clone()),
        Xds::Suffix(text) => MatchPattern::Suffix(text.clone()),
        Xds::Contains(text) => MatchPattern::Contains(text.clone()),
        Xds::SafeRegex(regex) => {
            MatchPattern::SafeRegex(RegexMatcher { regex: regex.regex.clone(), ..RegexMatcher::default() })
        }
        Xds::Custom(custom) => MatchPattern::Custom(custom.clone()),
    });
    StringMatcher { match_pattern, ignore_case: matcher.ignore_case }
}

/// The name of the message in an `Any`.
pub(crate) fn message_of(any: &Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

const NETWORK_INPUTS: &str = "envoy.extensions.matching.common_inputs.network.v3.";

/// Matchers within each other that are followed. A message alone cannot be as deep, but one in an `Any` begins anew.
const MAX_DEPTH: usize = 64;

/// `xds.type.matcher.v3.IPMatcher`, which `envoy-types` has not got. Ranges of both APIs are the same on the wire.
#[derive(Clone, PartialEq, Message)]
pub(super) struct IpMatcher {
    #[prost(message, repeated, tag = "1")]
    pub(super) range_matchers: Vec<IpRangeMatcher>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IpRangeMatcher {
    #[prost(message, repeated, tag = "1")]
    pub(super) ranges: Vec<CidrRange>,
    #[prost(message, optional, tag = "2")]
    pub(super) on_match: Option<OnMatch>,
    #[prost(bool, tag = "3")]
    pub(super) exclusive: bool,
}

/// `xds.type.matcher.v3.ServerNameMatcher`, which `envoy-types` has not got either.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerNameMatcher {
    #[prost(message, repeated, tag = "1")]
    pub(super) domain_matchers: Vec<DomainMatcher>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DomainMatcher {
    #[prost(string, repeated, tag = "1")]
    pub(super) domains: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) on_match: Option<OnMatch>,
}
