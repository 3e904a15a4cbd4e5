//! How long the difference of large tables takes: `cargo bench -p xds-explain`.

#![expect(clippy::print_stdout, reason = "the figures are to be read")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, SocketAddress};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use xds_cache::{Resource, ResourceType};
use xds_explain::{Client, Depth, Language, Model, diff, differences, lint};

fn main() {
    let hosts = |n_hosts: usize, n_routes: usize| (0..n_hosts).map(|at| host(at, n_routes)).collect();
    let change = |table: &[VirtualHost], edit: fn(&mut Vec<Route>)| {
        let mut changed = table.to_vec();
        let middle = changed.len() / 2;
        edit(&mut changed[middle].routes);
        changed
    };
    let many: Vec<VirtualHost> = hosts(1000, 10);
    let long: Vec<VirtualHost> = hosts(1, 10_000);
    let rich: Vec<VirtualHost> = vec![with_headers(200)];
    let other = |routes: &mut Vec<Route>| routes[5].action = Some(to("other"));
    let default =
        |routes: &mut Vec<Route>| *routes.last_mut().unwrap_or(&mut route("/", "")) = route("/", "other");
    measure("1,000 hosts of 10 routes, one cluster changed", &many, &change(&many, other));
    measure("1 host of 10,000 routes, one cluster changed", &long, &change(&long, other));
    measure("1 host of 10,000 routes, default changed", &long, &change(&long, default));
    measure("1 host of 10,000 routes, all reversed", &long, &change(&long, |routes| routes.reverse()));
    measure("1 host of 200 routes with headers and regexes, one changed", &rich, &change(&rich, other));
    measure(
        "1 host of 200 routes with headers and regexes, all reversed",
        &rich,
        &change(&rich, |routes| routes.reverse()),
    );
    measure_lint("1,000 hosts of 10 routes", &many);
    measure_lint("1 host of 10,000 routes", &long);
    measure_lint("1 host of 200 routes with headers and regexes", &rich);
    let exact: Vec<VirtualHost> = vec![with_exact_paths(10_000)];
    measure_lint("1 host of 10,000 routes, every second one an exact path behind a wider one", &exact);
    measure_clients("1 host of 10,000 routes", &long);
    measure_clients("1,000 hosts of 10 routes", &many);
}

/// Calls that Envoys and gRPC clients answer differently.
fn measure_clients(name: &str, table: &[VirtualHost]) {
    let envoy = model(table);
    let targets = targets(table);
    let grpc = Model::compile(targets, Client::newest(Language::Go));
    let began = Instant::now();
    let n_doubts = differences(&envoy, &grpc).len();
    println!("differences between clients about {name}: {:?} ({n_doubts} doubts)", began.elapsed());
}

/// Wide routes with a header and an override, each before an exact path.
fn with_exact_paths(n: usize) -> VirtualHost {
    let mut host = host(0, n);
    for (at, route) in host.routes.iter_mut().enumerate() {
        let Some(matches) = &mut route.r#match else { continue };
        let prefix = format!("/service-{}/", at / 2);
        if at % 2 == 1 {
            matches.path_specifier = Some(PathSpecifier::Path(format!("{prefix}x")));
            continue;
        }
        matches.path_specifier = Some(PathSpecifier::Prefix(prefix));
        matches.headers = vec![HeaderMatcher {
            name: "x-beta".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
            ..HeaderMatcher::default()
        }];
        route.typed_per_filter_config.insert("nobody".to_owned(), Any::default());
    }
    host
}

fn measure_lint(name: &str, table: &[VirtualHost]) {
    for depth in [Depth::Default, Depth::All] {
        let model = model(table);
        let began = Instant::now();
        let n_doubts = lint(&model, depth).all.len();
        println!("doubts about {name}, {depth:?}: {:?} ({n_doubts} doubts)", began.elapsed());
    }
}

fn measure(name: &str, before: &[VirtualHost], after: &[VirtualHost]) {
    let mut times: Vec<Duration> = Vec::new();
    let mut told = String::new();
    for _ in 0..5 {
        let [old, new] = [before, after].map(model);
        let began = Instant::now();
        let changes = diff(&old, &new);
        times.push(began.elapsed());
        told = format!("{} classes, {} undecided", changes.n_classes, changes.undecided.len());
    }
    times.sort_unstable();
    println!("{name}: {:?} ({told}), tables are compiled anew each time", times[times.len() / 2]);
}

fn host(at: usize, n_routes: usize) -> VirtualHost {
    let routes = (0..n_routes)
        .map(|route_at| {
            route(&format!("/service-{route_at}/v1/items/{}", route_at % 7), &format!("c{route_at}"))
        })
        .chain([route("/", "default")]);
    VirtualHost {
        name: format!("host{at}"),
        domains: vec![format!("host{at}.example.test")],
        routes: routes.collect(),
        ..VirtualHost::default()
    }
}

fn with_headers(n: usize) -> VirtualHost {
    let mut host = host(0, n);
    for (at, route) in host.routes.iter_mut().enumerate() {
        let Some(matches) = &mut route.r#match else { continue };
        if at % 20 == 3 {
            let regex = format!("/service-{}[0-9]*/(v1|v2)/.*", at % 30);
            matches.path_specifier =
                Some(PathSpecifier::SafeRegex(RegexMatcher { regex, ..RegexMatcher::default() }));
        }
        let pattern = MatchPattern::Exact(format!("v{}", at % 5));
        let text = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
        matches.headers = vec![HeaderMatcher {
            name: format!("x-{}", at % 3),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(text)),
            ..HeaderMatcher::default()
        }];
    }
    host
}

fn route(prefix: &str, cluster: &str) -> Route {
    let path_specifier = Some(PathSpecifier::Prefix(prefix.to_owned()));
    Route {
        r#match: Some(RouteMatch { path_specifier, ..RouteMatch::default() }),
        action: Some(to(cluster)),
        ..Route::default()
    }
}

fn to(cluster: &str) -> Action {
    let cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.to_owned()));
    Action::Route(RouteAction { cluster_specifier, ..RouteAction::default() })
}

fn model(virtual_hosts: &[VirtualHost]) -> Model {
    let (routes, any) = routes_and_manager(virtual_hosts);
    let port_specifier = Some(PortSpecifier::PortValue(10_000));
    let socket = SocketAddress { address: "127.0.0.1".to_owned(), port_specifier, ..Default::default() };
    let filter = Filter { name: "http".to_owned(), config_type: Some(ConfigType::TypedConfig(any)) };
    let listener = Listener {
        address: Some(Address { address: Some(AddressKind::SocketAddress(socket)) }),
        filter_chains: vec![FilterChain { filters: vec![filter], ..Default::default() }],
        ..Default::default()
    };
    let resources = [Resource::plain(ResourceType::Listener, "edge", listener.encode_to_vec()), routes];
    Model::compile(resources.map(Arc::new), Client::newest(Language::Envoy))
}

/// The resources of gRPC clients, with a target for each virtual host.
fn targets(virtual_hosts: &[VirtualHost]) -> Vec<Arc<Resource>> {
    let (routes, any) = routes_and_manager(virtual_hosts);
    let listener =
        Listener { api_listener: Some(ApiListener { api_listener: Some(any) }), ..Default::default() };
    let domains = virtual_hosts.iter().flat_map(|host| &host.domains);
    let listeners =
        domains.map(|name| Resource::plain(ResourceType::Listener, name, listener.encode_to_vec()));
    listeners.chain([routes]).map(Arc::new).collect()
}

fn routes_and_manager(virtual_hosts: &[VirtualHost]) -> (Resource, Any) {
    let table = RouteConfiguration {
        name: "table".to_owned(),
        virtual_hosts: virtual_hosts.to_vec(),
        ..RouteConfiguration::default()
    };
    let rds = Rds { route_config_name: table.name.clone(), ..Rds::default() };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        ..HttpConnectionManager::default()
    };
    let any = Any {
        type_url: "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager".to_owned(),
        value: manager.encode_to_vec(),
    };
    (Resource::plain(ResourceType::RouteConfiguration, "table", table.encode_to_vec()), any)
}
