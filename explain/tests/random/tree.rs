//! Random trees of matchers.

use envoy_types::pb::envoy::config::route::v3::RouteList;
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::Any;
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
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, RegexMatcher, StringMatcher};
use prost::Message as _;
use xds_explain::Client;

use super::{Random, route};

pub(crate) const NAMES: &[&str] = &["x-t", "x-u"];
pub(crate) const VALUES: &[&str] = &["", "a", "ab", "abc", "aB", "b", "on", "a,b"];

/// Nested at most twice.
pub(crate) fn tree(random: &mut Random, client: Client, depth: usize) -> Matcher {
    let matcher_type = match random.below(4) {
        0 => TreeType::ExactMatchMap(map(random, client, depth)),
        1 => TreeType::PrefixMatchMap(map(random, client, depth)),
        _ => {
            let matchers = (0..1 + random.below(3)).map(|_| branch(random, client, depth)).collect();
            let list = MatcherType::MatcherList(MatcherList { matchers });
            return Matcher { matcher_type: Some(list), on_no_match: otherwise(random, client, depth) };
        }
    };
    let tree = MatcherTree { input: Some(input(random)), tree_type: Some(matcher_type) };
    Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        on_no_match: otherwise(random, client, depth),
    }
}

/// The tree with another branch.
pub(crate) fn changed(random: &mut Random, client: Client, mut matcher: Matcher) -> Matcher {
    match &mut matcher.matcher_type {
        Some(MatcherType::MatcherList(list)) => {
            let n = list.matchers.len();
            match random.below(4) {
                0 => list.matchers.insert(random.below(n + 1), branch(random, client, 1)),
                1 if n > 1 => {
                    list.matchers.remove(random.below(n));
                }
                2 if n > 1 => list.matchers.swap(0, n - 1),
                _ => list.matchers[random.below(n)].on_match = Some(then(random, client, 1)),
            }
        }
        Some(MatcherType::MatcherTree(MatcherTree {
            tree_type: Some(TreeType::ExactMatchMap(map) | TreeType::PrefixMatchMap(map)),
            ..
        })) => {
            map.map.insert(random.one_of(VALUES).to_owned(), then(random, client, 1));
        }
        Some(MatcherType::MatcherTree(_)) | None => {}
    }
    if random.rarely(4) {
        matcher.on_no_match = otherwise(random, client, 1);
    }
    matcher
}

/// In words, since an action is bytes.
pub(crate) fn say(matcher: &Matcher) -> String {
    let on = |then: &OnMatch| match &then.on_match {
        Some(Leads::Matcher(matcher)) => format!("[{}]", say(matcher)),
        Some(Leads::Action(action)) => {
            let any = action.typed_config.as_ref().unwrap();
            let list = RouteList::decode(&*any.value).ok().filter(|_| any.type_url.ends_with("List"));
            let routes = list.map_or_else(
                || vec![envoy_types::pb::envoy::config::route::v3::Route::decode(&*any.value).unwrap()],
                |list| list.routes,
            );
            let say = |one: &envoy_types::pb::envoy::config::route::v3::Route| {
                format!("{} -> {}", super::set(&one.r#match), super::set(&one.action))
            };
            routes.iter().map(say).collect::<Vec<_>>().join("; ")
        }
        None => String::new(),
    };
    let mut text = match &matcher.matcher_type {
        Some(MatcherType::MatcherList(list)) => {
            let one = |one: &FieldMatcher| {
                format!("if {}: {}", super::set(&one.predicate), on(one.on_match.as_ref().unwrap()))
            };
            list.matchers.iter().map(one).collect::<Vec<_>>().join("\n      ")
        }
        Some(MatcherType::MatcherTree(tree)) => match tree.tree_type.as_ref().unwrap() {
            TreeType::ExactMatchMap(map) | TreeType::PrefixMatchMap(map) => {
                let keys = map.map.iter().map(|(key, then)| format!("{key:?}: {}", on(then)));
                format!("{:?} {}", tree.input, keys.collect::<Vec<_>>().join("\n      "))
            }
            TreeType::CustomMatch(_) => String::new(),
        },
        None => String::new(),
    };
    if let Some(then) = &matcher.on_no_match {
        text += &format!("\n      else {}", on(then));
    }
    text
}

fn map(random: &mut Random, client: Client, depth: usize) -> MatchMap {
    let keys =
        (0..1 + random.below(3)).map(|_| (random.one_of(VALUES).to_owned(), then(random, client, depth)));
    MatchMap { map: keys.collect() }
}

fn branch(random: &mut Random, client: Client, depth: usize) -> FieldMatcher {
    FieldMatcher { predicate: Some(predicate(random, 0)), on_match: Some(then(random, client, depth)) }
}

fn otherwise(random: &mut Random, client: Client, depth: usize) -> Option<Box<OnMatch>> {
    random.rarely(2).then(|| Box::new(then(random, client, depth)))
}

fn then(random: &mut Random, client: Client, depth: usize) -> OnMatch {
    let on_match = match random.below(4) {
        0 if depth < 2 => Leads::Matcher(Box::new(tree(random, client, depth + 1))),
        1 => {
            let routes = (0..1 + random.below(3)).map(|_| route(random, client)).collect();
            Leads::Action(any("envoy.config.route.v3.RouteList", RouteList { routes }.encode_to_vec()))
        }
        _ => Leads::Action(any("envoy.config.route.v3.Route", route(random, client).encode_to_vec())),
    };
    OnMatch { on_match: Some(on_match), keep_matching: false }
}

fn predicate(random: &mut Random, depth: usize) -> Predicate {
    let several = |random: &mut Random| PredicateList {
        predicate: (0..2).map(|_| predicate(random, depth + 1)).collect(),
    };
    let match_type = match random.below(6) {
        0 if depth < 2 => MatchType::OrMatcher(several(random)),
        1 if depth < 2 => MatchType::AndMatcher(several(random)),
        2 if depth < 2 => MatchType::NotMatcher(Box::new(predicate(random, depth + 1))),
        _ => {
            let text = random.one_of(&["a", "ab", "b", "on"]).to_owned();
            let pattern = match random.below(6) {
                0 | 1 => MatchPattern::Exact(text),
                2 => MatchPattern::Prefix(text),
                3 => MatchPattern::Suffix(text),
                4 => MatchPattern::Contains(text),
                _ => {
                    MatchPattern::SafeRegex(RegexMatcher { regex: "a.*|on".to_owned(), ..Default::default() })
                }
            };
            let ignore_case = !matches!(pattern, MatchPattern::SafeRegex(_)) && random.rarely(4);
            let matcher = Single::ValueMatch(StringMatcher { match_pattern: Some(pattern), ignore_case });
            MatchType::SinglePredicate(SinglePredicate { input: Some(input(random)), matcher: Some(matcher) })
        }
    };
    Predicate { match_type: Some(match_type) }
}

fn input(random: &mut Random) -> TypedExtensionConfig {
    let input = HttpRequestHeaderMatchInput { header_name: random.one_of(NAMES).to_owned() };
    any("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", input.encode_to_vec())
}

fn any(name: &str, value: Vec<u8>) -> TypedExtensionConfig {
    let typed_config = Some(Any { type_url: format!("type.googleapis.com/{name}"), value });
    TypedExtensionConfig { name: "a".to_owned(), typed_config }
}
