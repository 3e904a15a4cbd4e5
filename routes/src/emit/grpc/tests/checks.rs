//! Tests of the checker: each rule by a change to resources that every client takes.

use serde_json::{Value as Json, json};

use super::checker;

/// Good for every client.
fn base() -> Vec<Json> {
    let any = |name: &str| format!("type.googleapis.com/envoy.{name}");
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let session = json!({"session_state": {"name": "s", "typed_config": {
        "@type": any("extensions.http.stateful_session.cookie.v3.CookieBasedSessionState"),
        "cookie": {"name": "sid", "path": "/", "ttl": "5s"},
    }}});
    let listener = json!({
        "@type": any("config.listener.v3.Listener"), "name": "l",
        "api_listener": {"api_listener": {
            "@type": any("extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "s",
            "rds": {"route_config_name": "r", "config_source": ads},
            "http_filters": [
                {"name": "envoy.filters.http.stateful_session", "is_optional": true, "typed_config": {
                    "@type": any("extensions.filters.http.stateful_session.v3.StatefulSession")}},
                {"name": "router", "typed_config": {"@type": any("extensions.filters.http.router.v3.Router")}},
            ],
        }},
    });
    let routes = json!({
        "@type": any("config.route.v3.RouteConfiguration"), "name": "r",
        "virtual_hosts": [{"name": "h", "domains": ["*"], "routes": [
            {
                "name": "one",
                "match": {"path": "/a/b", "case_sensitive": true, "headers": [
                    {"name": "x", "string_match": {"exact": ""}},
                    {"name": "y", "string_match": {"safe_regex": {"regex": "a"}}},
                    {"name": "z", "present_match": true},
                ], "runtime_fraction": {"default_value": {"numerator": 5}}},
                "route": {"cluster": "d", "max_stream_duration": {"grpc_timeout_header_max": "0s"}, "retry_policy": {
                    "retry_on": "unavailable,internal", "num_retries": 2,
                    "retry_back_off": {"base_interval": "1s", "max_interval": "1s"},
                }},
                "typed_per_filter_config": {"envoy.filters.http.stateful_session": {
                    "@type": any("config.route.v3.FilterConfig"), "is_optional": true, "config": {
                        "@type": any("extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute"),
                        "stateful_session": session,
                    },
                }},
            },
            {
                "name": "two",
                "match": {"prefix": "/a/", "case_sensitive": false},
                "route": {"weighted_clusters": {"clusters": [{"name": "e", "weight": 1}, {"name": "g", "weight": 0}]}},
            },
        ]}],
    });
    let eds = json!({"@type": any("config.cluster.v3.Cluster"), "name": "e", "type": "EDS",
        "eds_cluster_config": {"eds_config": ads, "service_name": "a"},
        "common_lb_config": {"override_host_status": {"statuses": ["UNKNOWN", "DRAINING"]}}});
    let dns = json!({"@type": any("config.cluster.v3.Cluster"), "name": "d", "type": "LOGICAL_DNS",
        "load_assignment": {"cluster_name": "d", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": {"address": "h", "port_value": 80}}}}]}]}});
    let aggregate = json!({"@type": any("config.cluster.v3.Cluster"), "name": "g", "cluster_type": {
        "name": "envoy.clusters.aggregate",
        "typed_config": {"@type": any("extensions.clusters.aggregate.v3.ClusterConfig"), "clusters": ["e", "d"]}}});
    let endpoint = |last: u8| {
        let address = format!("10.0.0.{last}");
        json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": 80}}},
            "health_status": "HEALTHY", "load_balancing_weight": 1})
    };
    let endpoints = json!({"@type": any("config.endpoint.v3.ClusterLoadAssignment"), "cluster_name": "a", "endpoints": [
        {"locality": {}, "load_balancing_weight": 1, "lb_endpoints": [endpoint(1), endpoint(2)]},
        {"locality": {"zone": "z"}, "load_balancing_weight": 1, "lb_endpoints": [endpoint(3)]}]});
    vec![listener, routes, eds, dns, aggregate, endpoints]
}

#[test]
fn the_base_has_no_fault() {
    assert_eq!(checker::faults(&base()), Vec::<String>::new());
}

/// Changes the base at a pointer: a value is put there, the text `-` takes out what is there.
fn changed(pointer: &str, value: &str) -> Vec<Json> {
    let mut resources = Json::Array(base());
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    let parent = resources.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match (parent, value) {
        (Json::Object(fields), "-") => drop(fields.remove(last).unwrap_or_else(|| panic!("{pointer}"))),
        (Json::Object(fields), value) => drop(fields.insert(last.to_owned(), parsed(value))),
        (Json::Array(items), "-") => drop(items.remove(last.parse().expect("an index"))),
        (Json::Array(items), value) => items.insert(last.parse().expect("an index"), parsed(value)),
        (other, _) => panic!("{pointer}: {other}"),
    }
    resources.as_array().cloned().unwrap_or_default()
}

fn parsed(value: &str) -> Json {
    serde_json::from_str(value).unwrap_or_else(|_| value.into())
}

/// The long pointers that the short ones in [`CASES`] stand for.
const SHORT: [(&str, &str); 5] = [
    ("@manager", "/0/api_listener/api_listener"),
    ("@one", "/1/virtual_hosts/0/routes/0"),
    ("@targets", "/1/virtual_hosts/0/routes/1/route/weighted_clusters/clusters"),
    ("@override", "typed_per_filter_config/envoy.filters.http.stateful_session"),
    ("@cookie", "config/stateful_session/session_state/typed_config/cookie"),
];

#[test]
fn each_rule_is_broken_once() {
    // Where one rule stands for several rows, the checker names one of them.
    let rows = |row| match row {
        "B89" | "B95" => "B96",
        "B133" => "B137",
        "B189" => "B182",
        "B199" | "B206" => "B205",
        row => row,
    };
    for (row, pointer, value) in CASES {
        let long = SHORT.iter().fold((*pointer).to_owned(), |text, (short, long)| text.replace(short, long));
        let faults = checker::faults(&changed(&long, value));
        let is_found = faults.iter().any(|fault| fault.split(' ').next() == Some(rows(*row)));
        assert!(is_found, "{row} {pointer} = {value}: {faults:?}");
    }
}

#[test]
fn paths_of_sixteen_clusters_are_fine_and_of_seventeen_not() {
    let is_deep = |n_clusters: usize| {
        let mut resources = base();
        let member =
            |index: usize| if index + 1 == n_clusters { "d".to_owned() } else { format!("g{index}") };
        for index in 1..n_clusters - 1 {
            let mut aggregate = resources[4].clone();
            aggregate["name"] = member(index).into();
            aggregate["cluster_type"]["typed_config"]["clusters"] = json!([member(index + 1)]);
            resources.push(aggregate);
        }
        resources[4]["cluster_type"]["typed_config"]["clusters"] = json!([member(1), "e"]);
        checker::faults(&resources).iter().any(|fault| fault.starts_with("B178"))
    };
    assert_eq!((is_deep(15), is_deep(16), is_deep(17)), (false, false, true));
}

/// Rows, where the base is changed, and to what.
const CASES: &[(&str, &str, &str)] = &[
    ("B6", "/0/@type", "x/google.protobuf.Empty"),
    ("B8", "/0/name", ""),
    ("B9", "/3/name", "e"),
    ("B17", "/0/api_listener", "-"),
    ("B38", "/0/address", "{}"),
    ("B18", "@manager/@type", "x/envoy.Tcp"),
    ("B19", "@manager/rds", "-"),
    ("B20", "@manager/rds/config_source", r#"{"path": "p"}"#),
    ("B21", "@manager/rds/route_config_name", ""),
    ("B23", "@manager/xff_num_trusted_hops", "1"),
    ("B24", "@manager/original_ip_detection_extensions", "[{}]"),
    ("B1", "@manager/scoped_routes", "{}"),
    ("B26", "@manager/http_filters", "[]"),
    ("B27", "@manager/http_filters/1/name", "envoy.filters.http.stateful_session"),
    ("B28", "@manager/http_filters/1/name", ""),
    ("B29", "@manager/http_filters/0/is_optional", "-"),
    ("B29", "@manager/http_filters/0/typed_config/@type", "x/envoy.Cors"),
    ("B30", "@manager/http_filters/0/typed_config", "-"),
    ("B33", "@manager/http_filters/1", "-"),
    (
        "B34",
        "@manager/http_filters/0",
        r#"{"name":"q","typed_config":{"@type":"x/envoy.extensions.filters.http.router.v3.Router"}}"#,
    ),
    ("B37", "@manager/http_filters/0/disabled", "true"),
    ("C89", "@manager/http_filters/0", "-"),
    ("B81", "/1/virtual_hosts/0/routes", "[]"),
    ("B84", "/1/virtual_hosts/0/domains", r#"["a*b"]"#),
    ("B84", "/1/virtual_hosts/0/domains", "[]"),
    ("B85", "/1/virtual_hosts/0/domains", r#"["*", "*"]"#),
    ("B135", "/1/typed_per_filter_config", "{}"),
    ("B137", "/1/virtual_hosts/0/cors", "{}"),
    ("B133", "/1/virtual_hosts/0/retry_policy", "{}"),
    ("B86", "@one/match", "-"),
    ("B86", "@one/match/path", "-"),
    ("B89", "@one/match/path_separated_prefix", "/a"),
    ("B95", "@one/match/grpc", "{}"),
    ("B92", "@one/match/path", "/a"),
    ("B92", "@one/match/path", "/a/b/c"),
    ("B92", "@one/match/path", "//b"),
    ("B92", "@one/match/path", "a/b/c"),
    ("B92", "/1/virtual_hosts/0/routes/1/match/prefix", "/a/b/"),
    ("B93", "@one/match/case_sensitive", "-"),
    ("B94", "@one/match/query_parameters", "[{}]"),
    ("B97", "@one/match/runtime_fraction/default_value/denominator", "SEVEN"),
    ("B98", "@one/match/runtime_fraction/default_value", "-"),
    ("B99", "@one/match/runtime_fraction/runtime_key", "k"),
    ("B100", "@one/match/headers/2/present_match", "-"),
    ("B101", "@one/match/headers/0/string_match/prefix", ""),
    ("B103", "@one/match/headers/1/string_match/safe_regex/regex", "("),
    ("B105", "@one/match/headers/0/string_match", "{}"),
    ("B107", "@one/match/headers/0/name", ":path"),
    ("B107", "@one/match/headers/0/name", "x-bin"),
    ("B107", "@one/match/headers/0/name", "content-type"),
    ("B108", "@one/match/headers/0/treat_missing_header_as_empty", "true"),
    ("B109", "@one/redirect", "{}"),
    ("B109", "@one/route", "-"),
    ("B110", "@one/route/cluster", "-"),
    ("B111", "@one/route/cluster", ""),
    ("B112", "@targets", "[]"),
    ("B113", "@targets/0/weight", "0"),
    ("B113", "@targets/1/weight", "4294967295"),
    ("B114", "@targets/1/weight", "-"),
    ("B115", "@targets/1/name", ""),
    ("B116", "@targets/1/cluster_header", "x"),
    ("C15", "@targets/1/name", "e"),
    ("B117", "/1/virtual_hosts/0/routes/1/route/weighted_clusters/total_weight", "1"),
    ("B121", "@one/route/timeout", "1s"),
    ("B122", "@one/route/max_stream_duration/grpc_timeout_header_max", "-1s"),
    ("B127", "@one/route/retry_policy/num_retries", "0"),
    ("B128", "@one/route/retry_policy/retry_on", "unavailable, internal"),
    ("B128", "@one/route/retry_policy/retry_on", "5xx"),
    ("B129", "@one/route/retry_policy/retry_back_off/base_interval", "0s"),
    ("B129", "@one/route/retry_policy/retry_back_off/base_interval", "-"),
    ("B130", "@one/route/retry_policy/retry_back_off/max_interval", "0.5s"),
    ("B132", "@one/route/retry_policy/per_try_timeout", "1s"),
    ("B134", "@one/typed_per_filter_config/other", "{}"),
    ("B134", "@one/@override/is_optional", "-"),
    ("B37", "@one/@override/disabled", "true"),
    ("B159", "@one/@override/config/stateful_session", "-"),
    ("B169", "@one/@override/config/@type", "x/envoy.StatefulSession"),
    ("B155", "@one/@override/config/stateful_session/session_state/typed_config/@type", "x/envoy.H"),
    ("B156", "@one/@override/@cookie/name", ""),
    ("B157", "@one/@override/@cookie/ttl", "-1s"),
    ("B160", "@one/@override/config/stateful_session/strict", "true"),
    ("B170", "/2/type", "STRICT_DNS"),
    ("B170", "/2/type", "-"),
    ("B171", "/2/eds_cluster_config/eds_config", "-"),
    ("B173", "/3/load_assignment/endpoints/0/lb_endpoints/0", "-"),
    ("B173", "/3/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/port_value", "-"),
    (
        "B174",
        "/3/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/resolver_name",
        "x",
    ),
    ("B175", "/4/cluster_type/typed_config/@type", "x/envoy.Other"),
    ("B176", "/4/cluster_type/name", "aggregate"),
    ("B177", "/4/cluster_type/typed_config/clusters", "[]"),
    ("B178", "/4/cluster_type/typed_config/clusters/0", "g"),
    ("B182", "/2/lb_policy", "LEAST_REQUEST"),
    ("B186", "/2/load_balancing_policy", r#"{"policies": []}"#),
    (
        "B187",
        "/2/load_balancing_policy",
        r#"{"policies": [{"typed_extension_config": {"typed_config": {"@type": "x/envoy.extensions.load_balancing_policies.maglev.v3.Maglev"}}}]}"#,
    ),
    ("B189", "/4/lb_policy", "CLUSTER_PROVIDED"),
    ("B199", "/2/transport_socket_matches", "[{}]"),
    ("B202", "/2/common_lb_config/override_host_status/statuses/0", "TIMEOUT"),
    ("B206", "/2/common_lb_config/locality_weighted_lb_config", "{}"),
    ("B209", "/5/endpoints/0/locality", "-"),
    ("B210", "/5/endpoints/0/load_balancing_weight", "-"),
    ("B211", "/5/endpoints/0/load_balancing_weight", "2147483648"),
    ("B212", "/5/endpoints/0/priority", "2"),
    ("B214", "/5/endpoints/1/locality", "{}"),
    ("B215", "/5/endpoints/1/lb_endpoints", "[]"),
    ("B216", "/5/endpoints/1/lb_endpoints/0/endpoint/address", r#"{"pipe": {"path": "/s"}}"#),
    ("B217", "/5/endpoints/1/lb_endpoints/0/endpoint/address/socket_address/address", "localhost"),
    ("B218", "/5/endpoints/1/lb_endpoints/0/endpoint/address/socket_address/port_value", "-"),
    ("B219", "/5/endpoints/1/lb_endpoints/0/endpoint/address/socket_address/address", "10.0.0.2"),
    ("B220", "/5/endpoints/1/lb_endpoints/0/health_status", "DEGRADED"),
    ("B221", "/5/endpoints/0/lb_endpoints/0/load_balancing_weight", "0"),
    ("B221", "/5/endpoints/0/lb_endpoints/0/load_balancing_weight", "4294967295"),
    ("B224", "/5/policy", "{}"),
    ("C48", "/5/cluster_name", "other"),
    ("unused", "/2/eds_cluster_config/service_name", "other"),
];
