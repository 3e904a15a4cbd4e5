//! Trees of matchers for tests.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::CidrRange;
use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::FilterStateInput;
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::single_predicate::Matcher as Single;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, PredicateList, SinglePredicate,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::on_match::OnMatch as Leads;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherList, MatcherTree, MatcherType, OnMatch};
use envoy_types::pb::xds::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, StringMatcher};
use prost::Message as _;

use crate::tree::read::{DomainMatcher, IpMatcher, IpRangeMatcher, ServerNameMatcher};

pub(crate) fn any(name: &str, value: Vec<u8>) -> TypedExtensionConfig {
    let typed_config = Some(Any { type_url: format!("type.googleapis.com/{name}"), value });
    TypedExtensionConfig { name: "a".to_owned(), typed_config }
}

pub(crate) fn header(name: &str) -> TypedExtensionConfig {
    let input = HttpRequestHeaderMatchInput { header_name: name.to_owned() };
    any("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", input.encode_to_vec())
}

pub(crate) fn network(name: &str) -> TypedExtensionConfig {
    any(&format!("envoy.extensions.matching.common_inputs.network.v3.{name}"), Vec::new())
}

pub(crate) fn filter_state(key: &str) -> TypedExtensionConfig {
    let input = FilterStateInput { key: key.to_owned(), ..Default::default() };
    any("envoy.extensions.matching.common_inputs.network.v3.FilterStateInput", input.encode_to_vec())
}

pub(crate) fn exact(text: &str) -> MatchPattern {
    MatchPattern::Exact(text.to_owned())
}

pub(crate) fn prefix(text: &str) -> MatchPattern {
    MatchPattern::Prefix(text.to_owned())
}

pub(crate) fn is(input: TypedExtensionConfig, pattern: MatchPattern) -> Predicate {
    let text = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
    let single = SinglePredicate { input: Some(input), matcher: Some(Single::ValueMatch(text)) };
    Predicate { match_type: Some(MatchType::SinglePredicate(single)) }
}

pub(crate) fn not(one: Predicate) -> Predicate {
    Predicate { match_type: Some(MatchType::NotMatcher(Box::new(one))) }
}

pub(crate) fn any_of(predicate: Vec<Predicate>) -> Predicate {
    Predicate { match_type: Some(MatchType::OrMatcher(PredicateList { predicate })) }
}

pub(crate) fn all_of(predicate: Vec<Predicate>) -> Predicate {
    Predicate { match_type: Some(MatchType::AndMatcher(PredicateList { predicate })) }
}

pub(crate) fn list(branches: Vec<(Predicate, OnMatch)>) -> Matcher {
    let matchers = branches
        .into_iter()
        .map(|(predicate, then)| FieldMatcher { predicate: Some(predicate), on_match: Some(then) });
    let list = MatcherList { matchers: matchers.collect() };
    Matcher { matcher_type: Some(MatcherType::MatcherList(list)), on_no_match: None }
}

fn tree(input: TypedExtensionConfig, kind: TreeType) -> Matcher {
    let tree = MatcherTree { input: Some(input), tree_type: Some(kind) };
    Matcher { matcher_type: Some(MatcherType::MatcherTree(tree)), on_no_match: None }
}

fn map(keys: Vec<(&str, OnMatch)>) -> MatchMap {
    let map: HashMap<String, OnMatch> = keys.into_iter().map(|(key, then)| (key.to_owned(), then)).collect();
    MatchMap { map }
}

pub(crate) fn exact_map(input: TypedExtensionConfig, keys: Vec<(&str, OnMatch)>) -> Matcher {
    tree(input, TreeType::ExactMatchMap(map(keys)))
}

pub(crate) fn prefix_map(input: TypedExtensionConfig, keys: Vec<(&str, OnMatch)>) -> Matcher {
    tree(input, TreeType::PrefixMatchMap(map(keys)))
}

/// Ranges of addresses; `true` for exclusive ones.
pub(crate) fn ranges(input: TypedExtensionConfig, all: Vec<(&str, u32, bool, OnMatch)>) -> Matcher {
    let range = |(prefix, length, exclusive, then): (&str, u32, bool, OnMatch)| IpRangeMatcher {
        ranges: vec![CidrRange {
            address_prefix: prefix.to_owned(),
            prefix_len: Some(UInt32Value { value: length }),
        }],
        on_match: Some(then),
        exclusive,
    };
    let message = IpMatcher { range_matchers: all.into_iter().map(range).collect() };
    tree(input, TreeType::CustomMatch(any("xds.type.matcher.v3.IPMatcher", message.encode_to_vec())))
}

pub(crate) fn names(input: TypedExtensionConfig, all: Vec<(&str, OnMatch)>) -> Matcher {
    let name = |(name, then): (&str, OnMatch)| DomainMatcher {
        domains: vec![name.to_owned()],
        on_match: Some(then),
    };
    let message = ServerNameMatcher { domain_matchers: all.into_iter().map(name).collect() };
    tree(input, TreeType::CustomMatch(any("xds.type.matcher.v3.ServerNameMatcher", message.encode_to_vec())))
}

pub(crate) fn or_else(matcher: Matcher, then: OnMatch) -> Matcher {
    Matcher { on_no_match: Some(Box::new(then)), ..matcher }
}

pub(crate) fn sub(matcher: Matcher) -> OnMatch {
    OnMatch { on_match: Some(Leads::Matcher(Box::new(matcher))), keep_matching: false }
}

pub(crate) fn action(config: TypedExtensionConfig) -> OnMatch {
    OnMatch { on_match: Some(Leads::Action(config)), keep_matching: false }
}

/// A route to the cluster of its name.
pub(crate) fn route_of(name: &str, prefix: &str) -> proto::Route {
    let path_specifier = Some(PathSpecifier::Prefix(prefix.to_owned()));
    let cluster = proto::route_action::ClusterSpecifier::Cluster(name.to_owned());
    let forward = proto::RouteAction { cluster_specifier: Some(cluster), ..Default::default() };
    proto::Route {
        name: name.to_owned(),
        r#match: Some(proto::RouteMatch { path_specifier, ..Default::default() }),
        action: Some(proto::route::Action::Route(forward)),
        ..Default::default()
    }
}

pub(crate) fn route(name: &str) -> OnMatch {
    route_at(name, "/")
}

pub(crate) fn route_at(name: &str, prefix: &str) -> OnMatch {
    action(any("envoy.config.route.v3.Route", route_of(name, prefix).encode_to_vec()))
}

pub(crate) fn routes(all: &[(&str, &str)]) -> OnMatch {
    let routes = all.iter().map(|(name, prefix)| route_of(name, prefix)).collect();
    action(any("envoy.config.route.v3.RouteList", proto::RouteList { routes }.encode_to_vec()))
}

/// A filter chain, by its name.
pub(crate) fn chain(name: &str) -> OnMatch {
    let text = String::from(name);
    action(any("google.protobuf.StringValue", text.encode_to_vec()))
}
