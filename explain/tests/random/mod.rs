//! Random tables of routes, changes of them, and requests that they tell apart.

pub(crate) mod tree;

use std::fmt;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, RuntimeFractionalPercent, SocketAddress};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Filter, FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::{
    ConnectMatcher, GrpcRouteMatchOptions, PathSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{
    CookieMatcher, DirectResponseAction, HeaderMatcher, QueryParameterMatcher, Route, RouteAction,
    RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, Int64Range};
use envoy_types::pb::google::protobuf::{Any, BoolValue, UInt32Value};
use prost::Message as _;
use xds_cache::{Resource, ResourceType};
use xds_explain::{Client, Connection, Language, Model, Request};

/// Random numbers that can be had again: the seed is printed, and taken from `XDS_TESTS_SEED` if that is set.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_env() -> Self {
        let seed = match std::env::var("XDS_TESTS_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()),
        };
        println!("XDS_TESTS_SEED={seed}");
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }

    /// One in `n` times.
    pub(crate) fn rarely(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A table before and after a change.
pub(crate) struct Tables {
    pub(crate) before: RouteConfiguration,
    pub(crate) after: RouteConfiguration,
    normalizes: bool,
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, table) in [("before", &self.before), ("after", &self.after)] {
            for host in &table.virtual_hosts {
                writeln!(f, "{name} {} {:?}", host.name, host.domains)?;
                for route in &host.routes {
                    writeln!(f, "    {} -> {}", set(&route.r#match), set(&route.action))?;
                }
                if let Some(matcher) = &host.matcher {
                    writeln!(f, "    {}", tree::say(matcher))?;
                }
            }
        }
        Ok(())
    }
}

/// The fields that are set.
fn set(message: &impl fmt::Debug) -> String {
    let text = format!("{message:?}");
    let is_set =
        |field: &&str| ![": None", ": []", ": \"\"", ": false"].iter().any(|end| field.ends_with(end));
    text.split(", ").filter(is_set).collect::<Vec<_>>().join(", ")
}

const DOMAINS: &[&str] = &["a.test", "b.test", "*.test", "*.b.test", "a*", "ab*", "*", "x.b.test", "A.test"];
const HOSTS: &[&str] =
    &["a.test", "b.test", "c.test", "x.b.test", "y.b.test", "abc", "ac", "z", "A.test", "ab.test", ".test"];
const PATHS: &[&str] =
    &["/", "/a", "/a/b", "/ab", "/b", "/a/", "/A", "/a/b/c", "/c/d", "/v1/users", "/v22/users/x", "/a;v=1"];
const REGEXES: &[&str] =
    &["/a/.*", "/v[0-9]+/users(/.*)?", "/[ab]+", ".*", "/a|/b", "/(a|b)/[^/]+", "/A.?", r"/\w+"];
const METHODS: &[&str] = &["s/m", "s/n", "t/m", "S/m", "s/mm", "pkg.Svc/Get", "v1/users"];
const GRPC_PATHS: &[&str] =
    &["/s/m", "/s/", "/s", "/", "", "/t/m", "/S/m", "/pkg.Svc/Get", "/s/mm", "/a/b/c"];
const GRPC_REGEXES: &[&str] = &["/s/.*", "/[st]/m", ".*", "/s/m|/t/m", "/.*/m+", "/S/.*"];
const NAMES: &[&str] = &["x-a", "x-b", "X-C"];
const VALUES: &[&str] = &["", "on", "off", "a", "ab", "aB", "5", "12", "-1", "+5", "a,b", "on,off"];
const VALUE_REGEXES: &[&str] = &["a.*", "[0-9]+", "on|off", ".*b", "a?b?"];
const CLUSTERS: &[&str] = &["one", "two", "three"];

impl Tables {
    pub(crate) fn random(random: &mut Random, client: Client) -> Self {
        let before = table(random, client);
        let mut after = before.clone();
        if random.rarely(12) {
            after = table(random, client);
            after.ignore_path_parameters_in_path_matching = before.ignore_path_parameters_in_path_matching;
        }
        for _ in 0..=random.below(3) {
            change(random, client, &mut after);
        }
        Self { before, after, normalizes: random.rarely(2) }
    }

    /// The same with trees of matchers in place of some lists of routes. Trees look at headers of their own.
    pub(crate) fn with_trees(random: &mut Random, client: Client) -> Self {
        let mut tables = Self::random(random, client);
        for host in &mut tables.before.virtual_hosts {
            if random.rarely(2) {
                host.matcher = Some(tree::tree(random, client, 0));
                host.routes.clear();
            }
        }
        for host in &mut tables.after.virtual_hosts {
            let old = tables.before.virtual_hosts.iter().find(|old| old.name == host.name);
            let Some(old) = old.and_then(|old| old.matcher.clone()) else { continue };
            host.matcher = Some(match random.below(8) {
                0 => tree::tree(random, client, 0),
                1 => continue,
                _ => tree::changed(random, client, old),
            });
            host.routes.clear();
        }
        tables
    }

    pub(crate) fn model(&self, table: &RouteConfiguration, client: Client) -> Model {
        Model::compile(self.resources(table, client), client)
    }

    /// The listeners and the routes.
    pub(crate) fn resources(&self, table: &RouteConfiguration, client: Client) -> Vec<Arc<Resource>> {
        let manager = HttpConnectionManager {
            normalize_path: Some(BoolValue { value: self.normalizes }),
            merge_slashes: self.normalizes,
            route_specifier: Some(RouteSpecifier::Rds(Rds {
                route_config_name: table.name.clone(),
                ..Rds::default()
            })),
            ..HttpConnectionManager::default()
        };
        let any = Any {
            type_url: "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager".to_owned(),
            value: manager.encode_to_vec(),
        };
        let routes =
            Arc::new(Resource::plain(ResourceType::RouteConfiguration, &table.name, table.encode_to_vec()));
        if client.language != Language::Envoy {
            let listener = Listener {
                api_listener: Some(ApiListener { api_listener: Some(any) }),
                ..Default::default()
            };
            let of = |name: &&str| {
                Arc::new(Resource::plain(ResourceType::Listener, name, listener.encode_to_vec()))
            };
            return HOSTS.iter().map(of).chain([routes]).collect();
        }
        let port_specifier = Some(PortSpecifier::PortValue(10_000));
        let socket = SocketAddress { address: "127.0.0.1".to_owned(), port_specifier, ..Default::default() };
        let filter = Filter { name: "http".to_owned(), config_type: Some(ConfigType::TypedConfig(any)) };
        let listener = Listener {
            address: Some(Address { address: Some(AddressKind::SocketAddress(socket)) }),
            filter_chains: vec![FilterChain { filters: vec![filter], ..Default::default() }],
            ..Default::default()
        };
        let resource = Resource::plain(ResourceType::Listener, "edge", listener.encode_to_vec());
        vec![Arc::new(resource), routes]
    }
}

/// A request that the tables may tell apart.
pub(crate) fn request(random: &mut Random, client: Client) -> Request {
    let host = random.one_of(HOSTS);
    let mut request = if client.language == Language::Envoy {
        let mut request = Request::get(host, random.one_of(PATHS));
        request.method = (random.one_of(&["GET", "POST", "GE", "CONNECT"])).to_owned();
        if random.rarely(2) {
            let query = ["a=1", "a", "b=x&a=2", "a=on", "a="];
            request.path = format!("{}?{}", request.path, random.one_of(&query));
        }
        if random.rarely(4) {
            let value = random.one_of(&["application/grpc", "application/grpc+proto", "text/plain"]);
            request = request.with("content-type", value);
        }
        if random.rarely(3) {
            request = request.with("cookie", random.one_of(&["sid=a; t=b", "t=on", "sid="]));
        }
        request.scheme = "http".to_owned();
        request.connection = Connection { port: Some(10_000), ..Connection::default() };
        request
    } else {
        Request::call(host, random.one_of(METHODS))
    };
    for _ in 0..random.below(4) {
        let name = random.one_of(NAMES).to_ascii_lowercase();
        request = request.with(&name, random.one_of(VALUES));
    }
    for _ in 0..random.below(4) {
        request = request.with(random.one_of(tree::NAMES), random.one_of(tree::VALUES));
    }
    request
}

fn table(random: &mut Random, client: Client) -> RouteConfiguration {
    let mut domains: Vec<&str> = DOMAINS.to_vec();
    if client.language == Language::Envoy {
        // Equal in lower case.
        domains.retain(|domain| *domain != "A.test");
    }
    let virtual_hosts = (0..1 + random.below(4)).map(|at| {
        let own = (0..1 + random.below(2)).map(|_| domains.remove(random.below(domains.len())).to_owned());
        let domains = own.collect();
        let routes = (0..random.below(6)).map(|_| route(random, client)).collect();
        VirtualHost { name: format!("host{at}"), domains, routes, ..VirtualHost::default() }
    });
    let virtual_hosts = virtual_hosts.collect();
    RouteConfiguration {
        name: "table".to_owned(),
        virtual_hosts,
        ignore_path_parameters_in_path_matching: random.rarely(4),
        ..RouteConfiguration::default()
    }
}

/// Changes the table in one place.
fn change(random: &mut Random, client: Client, table: &mut RouteConfiguration) {
    let n = table.virtual_hosts.len();
    let kind = random.below(8);
    if kind == 7 && n > 1 {
        table.virtual_hosts.remove(random.below(n));
        return;
    }
    let host = &mut table.virtual_hosts[random.below(n)];
    let n = host.routes.len();
    match kind {
        0 | 1 => host.routes.insert(random.below(n + 1), route(random, client)),
        2 if n > 0 => {
            host.routes.remove(random.below(n));
        }
        3 if n > 1 => host.routes.swap(random.below(n), random.below(n)),
        4 if n > 0 => host.routes[random.below(n)].action = Some(action(random, client)),
        5 if n > 0 => host.routes[random.below(n)].r#match = Some(matches(random, client)),
        6 if host.domains.len() > 1 => {
            host.domains.remove(random.below(host.domains.len()));
        }
        _ => host.routes.push(route(random, client)),
    }
}

fn route(random: &mut Random, client: Client) -> Route {
    Route { r#match: Some(matches(random, client)), action: Some(action(random, client)), ..Route::default() }
}

fn action(random: &mut Random, client: Client) -> Action {
    if client.language == Language::Envoy && random.rarely(6) {
        return Action::DirectResponse(DirectResponseAction {
            status: 200 + random.below(3) as u32,
            ..Default::default()
        });
    }
    let specifier = match random.rarely(3) {
        true => {
            let member = |random: &mut Random| ClusterWeight {
                name: random.one_of(CLUSTERS).to_owned(),
                weight: Some(UInt32Value { value: random.one_of(&[1, 25, 50, 75]) }),
                ..ClusterWeight::default()
            };
            let clusters = (0..2 + random.below(2)).map(|_| member(random)).collect();
            ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() })
        }
        false => ClusterSpecifier::Cluster(random.one_of(CLUSTERS).to_owned()),
    };
    Action::Route(RouteAction { cluster_specifier: Some(specifier), ..RouteAction::default() })
}

fn regex(text: &str) -> RegexMatcher {
    RegexMatcher { regex: text.to_owned(), ..RegexMatcher::default() }
}

fn matches(random: &mut Random, client: Client) -> RouteMatch {
    let is_envoy = client.language == Language::Envoy;
    let (paths, regexes) = if is_envoy { (PATHS, REGEXES) } else { (GRPC_PATHS, GRPC_REGEXES) };
    let path = |random: &mut Random| (random.one_of(paths)).to_owned();
    let path_specifier = match random.below(if is_envoy { 10 } else { 7 }) {
        0..=2 => PathSpecifier::Prefix(path(random)),
        3 | 4 => PathSpecifier::Path(path(random)),
        5 | 6 => PathSpecifier::SafeRegex(regex(random.one_of(regexes))),
        7 | 8 => PathSpecifier::PathSeparatedPrefix(random.one_of(&["/a", "/a/b", "/A", "/c"]).to_owned()),
        _ if random.rarely(3) => PathSpecifier::ConnectMatcher(ConnectMatcher::default()),
        _ => PathSpecifier::Prefix("/".to_owned()),
    };
    let headers = (0..random.below(3)).map(|_| header(random, is_envoy)).collect();
    let mut matches = RouteMatch {
        path_specifier: Some(path_specifier),
        case_sensitive: random.rarely(4).then_some(BoolValue { value: random.rarely(3) }),
        headers,
        ..RouteMatch::default()
    };
    if random.rarely(5) {
        let denominator =
            if random.rarely(4) { DenominatorType::TenThousand } else { DenominatorType::Hundred };
        let numerator = random.one_of(&[0, 1, 10, 50, 100]);
        let default_value = Some(FractionalPercent { numerator, denominator: denominator.into() });
        matches.runtime_fraction = Some(RuntimeFractionalPercent { default_value, ..Default::default() });
    }
    if is_envoy && random.rarely(4) {
        let specifier = match random.below(3) {
            0 => QueryParameterMatchSpecifier::PresentMatch(random.rarely(2)),
            _ => QueryParameterMatchSpecifier::StringMatch(string(random)),
        };
        let name = (random.one_of(&["a", "b"])).to_owned();
        matches.query_parameters =
            vec![QueryParameterMatcher { name, query_parameter_match_specifier: Some(specifier) }];
    }
    if is_envoy && random.rarely(8) {
        matches.grpc = Some(GrpcRouteMatchOptions::default());
    }
    if is_envoy && random.rarely(8) {
        let string_match = random.rarely(2).then(|| string(random));
        let name = (random.one_of(&["sid", "t"])).to_owned();
        matches.cookies = vec![CookieMatcher { name, string_match, invert_match: random.rarely(4) }];
    }
    matches
}

fn string(random: &mut Random) -> StringMatcher {
    let text = (random.one_of(&["on", "off", "a", "ab", "aB", "1", "5"])).to_owned();
    let pattern = match random.below(6) {
        0 | 1 => MatchPattern::Exact(text),
        2 => MatchPattern::Prefix(text),
        3 => MatchPattern::Suffix(text),
        4 => MatchPattern::Contains(text),
        _ => {
            let match_pattern = Some(MatchPattern::SafeRegex(regex(random.one_of(VALUE_REGEXES))));
            return StringMatcher { match_pattern, ignore_case: false };
        }
    };
    StringMatcher { match_pattern: Some(pattern), ignore_case: random.rarely(4) }
}

fn header(random: &mut Random, is_envoy: bool) -> HeaderMatcher {
    let mut name = random.one_of(NAMES).to_owned();
    if is_envoy && random.rarely(5) {
        name = ":method".to_owned();
        let text = (random.one_of(&["GET", "POST", "GE"])).to_owned();
        let pattern = if random.rarely(3) { MatchPattern::Prefix(text) } else { MatchPattern::Exact(text) };
        let string = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
        return HeaderMatcher {
            name,
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string)),
            invert_match: random.rarely(5),
            ..HeaderMatcher::default()
        };
    }
    // A range beside other texts is not decided exactly, so it has a header of its own.
    let specifier = match random.below(6) {
        0 => HeaderMatchSpecifier::PresentMatch(random.rarely(2)),
        1 => {
            name = "x-n".to_owned();
            let start = random.below(8) as i64;
            HeaderMatchSpecifier::RangeMatch(Int64Range { start, end: start + random.below(10) as i64 })
        }
        _ => HeaderMatchSpecifier::StringMatch(string(random)),
    };
    HeaderMatcher {
        name,
        header_match_specifier: Some(specifier),
        invert_match: random.rarely(4),
        treat_missing_header_as_empty: random.rarely(4),
    }
}
