//! Trees of matchers that differ, and parts of them that never act: what is told, and what is left undecided. The random ones are in
//! `diff.rs`.

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::virtual_host::TlsRequirementType;
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::FilterStateInput;
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::on_match::OnMatch as Leads;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{MatcherTree, MatcherType, OnMatch};
use prost::Message as _;
use xds_cache::{Resource, ResourceType};
use xds_explain::{ClassKind, Client, Depth, DoubtCode, Language, Model, Request, diff, lint};

fn any(name: &str, value: Vec<u8>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value }
}

fn extension(any: Any) -> TypedExtensionConfig {
    TypedExtensionConfig { name: "a".to_owned(), typed_config: Some(any) }
}

fn header() -> TypedExtensionConfig {
    let input = HttpRequestHeaderMatchInput { header_name: "x".to_owned() };
    extension(any("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", input.encode_to_vec()))
}

fn network(name: &str, value: Vec<u8>) -> TypedExtensionConfig {
    extension(any(&format!("envoy.extensions.matching.common_inputs.network.v3.{name}"), value))
}

fn filter_state() -> TypedExtensionConfig {
    network(
        "FilterStateInput",
        FilterStateInput { key: "k".to_owned(), ..Default::default() }.encode_to_vec(),
    )
}

/// A route to the cluster of its name.
fn route(name: &str) -> OnMatch {
    let cluster = ClusterSpecifier::Cluster(name.to_owned());
    let path_specifier = Some(PathSpecifier::Prefix("/".to_owned()));
    let route = Route {
        name: name.to_owned(),
        r#match: Some(RouteMatch { path_specifier, ..Default::default() }),
        action: Some(Action::Route(RouteAction { cluster_specifier: Some(cluster), ..Default::default() })),
        ..Default::default()
    };
    act(any("envoy.config.route.v3.Route", route.encode_to_vec()))
}

fn chain(name: &str) -> OnMatch {
    act(any("google.protobuf.StringValue", name.to_owned().encode_to_vec()))
}

fn act(any: Any) -> OnMatch {
    OnMatch { on_match: Some(Leads::Action(extension(any))), keep_matching: false }
}

fn sub(matcher: Matcher) -> OnMatch {
    OnMatch { on_match: Some(Leads::Matcher(Box::new(matcher))), keep_matching: false }
}

fn exact(input: TypedExtensionConfig, keys: Vec<(&str, OnMatch)>) -> Matcher {
    let map = keys.into_iter().map(|(key, then)| (key.to_owned(), then)).collect();
    let tree = MatcherTree { input: Some(input), tree_type: Some(TreeType::ExactMatchMap(MatchMap { map })) };
    Matcher { matcher_type: Some(MatcherType::MatcherTree(tree)), on_no_match: None }
}

fn host(matcher: Matcher) -> VirtualHost {
    VirtualHost {
        name: "h".to_owned(),
        domains: vec!["*".to_owned()],
        matcher: Some(matcher),
        ..VirtualHost::default()
    }
}

/// A chain with these routes.
fn filter_chain(name: &str, host: VirtualHost) -> FilterChain {
    let table = RouteConfiguration { virtual_hosts: vec![host], ..Default::default() };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(table)),
        ..HttpConnectionManager::default()
    };
    let any = any(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        manager.encode_to_vec(),
    );
    let filter = Filter { name: "http".to_owned(), config_type: Some(ConfigType::TypedConfig(any)) };
    FilterChain { name: name.to_owned(), filters: vec![filter], ..Default::default() }
}

fn model(listener: &Listener) -> Model {
    let resource = Resource::plain(ResourceType::Listener, "edge", listener.encode_to_vec());
    Model::compile([Arc::new(resource)], Client::newest(Language::Envoy))
}

fn of_host(host: VirtualHost) -> Model {
    model(&Listener { filter_chains: vec![filter_chain("", host)], ..Default::default() })
}

fn of_chains(matcher: Matcher) -> Model {
    let all_to =
        |name: &str| host(Matcher { on_no_match: Some(Box::new(route(name))), ..Default::default() });
    model(&Listener {
        filter_chains: ["a", "b"].map(|name| filter_chain(name, all_to(name))).to_vec(),
        filter_chain_matcher: Some(matcher),
        ..Default::default()
    })
}

#[test]
fn r18_a_tree_that_differs_moves_exactly_its_requests() {
    let before = of_host(host(exact(header(), vec![("1", route("a")), ("2", route("b"))])));
    let after = of_host(host(exact(header(), vec![("1", route("a")), ("2", route("c"))])));
    let changes = diff(&before, &after);
    assert!(changes.undecided.is_empty(), "{:?}", changes.undecided);
    let [class] = &*changes.classes else { panic!("{:?}", changes.classes) };
    assert_eq!(class.kind, ClassKind::Destination);
    assert_eq!(class.example.as_ref().unwrap().headers, [("x".to_owned(), "2".to_owned())]);
    assert!(diff(&before, &before).is_empty());
}

#[test]
fn r18_a_tree_beside_the_same_routes_in_a_list_is_no_difference() {
    let tree = of_host(host(Matcher { on_no_match: Some(Box::new(route("a"))), ..Default::default() }));
    let Some(Leads::Action(action)) = route("a").on_match else { panic!() };
    let routes = vec![Route::decode(&*action.typed_config.unwrap().value).unwrap()];
    let list = of_host(VirtualHost { routes, matcher: None, ..host(Matcher::default()) });
    let changes = diff(&tree, &list);
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn r18_what_is_not_known_is_undecided_and_never_equal() {
    let before = of_host(host(exact(filter_state(), vec![("1", route("a"))])));
    let after = of_host(host(exact(filter_state(), vec![("1", route("b"))])));
    let changes = diff(&before, &after);
    assert!(!changes.is_empty() && changes.undecided[0].why.contains("filter state k"), "{changes:?}");
}

#[test]
fn r18_settings_beside_equal_trees_are_compared() {
    let plain = || host(exact(header(), vec![("1", route("a"))]));
    let mut secure = plain();
    secure.set_require_tls(TlsRequirementType::All);
    let changes = diff(&of_host(plain()), &of_host(secure));
    assert!(changes.n_classes > 0, "{changes:?}");
}

#[test]
fn r18_a_branch_that_contradicts_the_way_to_it_is_told() {
    let inner = exact(header(), vec![("1", route("reached")), ("2", route("never"))]);
    let doubts = lint(&of_host(host(exact(header(), vec![("1", sub(inner))]))), Depth::Default).all;
    let [doubt] = &*doubts else { panic!("{doubts:?}") };
    assert_eq!((doubt.code, doubt.part.route.as_deref()), (DoubtCode::NeverMatches, Some("never")));
    assert!(
        doubt.part.path.ends_with(r#"exact_match_map.map["2"].action.typed_config"#),
        "{}",
        doubt.part.path
    );
    // Where something is not known, nothing is told.
    let inner = exact(filter_state(), vec![("1", route("a"))]);
    assert!(lint(&of_host(host(exact(header(), vec![("1", sub(inner))]))), Depth::Default).all.is_empty());
}

#[test]
fn f2_chains_that_differ_and_chains_that_nothing_leads_to() {
    let by_source = |keys| exact(network("SourceIPInput", Vec::new()), keys);
    let before = of_chains(by_source(vec![("10.0.0.1", chain("a"))]));
    let after = of_chains(by_source(vec![("10.0.0.1", chain("b"))]));
    let changes = diff(&before, &after);
    assert!(changes.undecided.is_empty(), "{:?}", changes.undecided);
    let [class] = &*changes.classes else { panic!("{:?}", changes.classes) };
    let from = class.example.as_ref().unwrap().connection.from;
    assert_eq!((class.kind, from), (ClassKind::Destination, "10.0.0.1".parse().ok()));
    let doubts = lint(&before, Depth::Default).all;
    let idle: Vec<&str> = doubts.iter().map(|doubt| &*doubt.part.path).collect();
    assert_eq!((idle, doubts[0].code), (vec!["filter_chains[1]"], DoubtCode::UnreachableChain));
    let unknown = of_chains(exact(filter_state(), vec![("1", chain("a"))]));
    let changes = diff(&before, &unknown);
    assert!(changes.undecided.iter().any(|one| one.why.contains("filter state k")), "{changes:?}");
    let explained = unknown.explain(&Request::get("a", "/"));
    let whens: Vec<&[String]> = explained[0].outcomes.iter().map(|outcome| &*outcome.when).collect();
    assert_eq!(whens, [["filter state k is \"1\"".to_owned()], ["not: filter state k is \"1\"".to_owned()]]);
}
