//! References of resources, field by field.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use xds_cache::layer::EffectiveGroup;
use xds_cache::{MissingReferences, Node, NodeGroup, Profile, Publisher, Resource, ResourceType, Revision};
use xds_codec::Codec;

static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());

fn resource(resource_type: &ResourceType, fields: &Value) -> Resource {
    let mut body = json!({"@type": resource_type.type_url()});
    for (key, value) in fields.as_object().unwrap() {
        body[key] = value.clone();
    }
    CODEC.resource_from_json(&body).unwrap()
}

fn references(resource_type: &ResourceType, fields: &Value) -> Vec<String> {
    let resource = resource(resource_type, fields);
    resource
        .references()
        .into_iter()
        .map(|reference| {
            format!("{} {} by {}", reference.to.resource_type, reference.to.name, reference.path)
        })
        .collect()
}

fn ads() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

fn grpc(cluster: &str) -> Value {
    json!({"envoy_grpc": {"cluster_name": cluster}})
}

fn any(name: &str, fields: &Value) -> Value {
    let mut any = json!({"@type": format!("type.googleapis.com/envoy.extensions.{name}")});
    for (key, value) in fields.as_object().unwrap() {
        any[key] = value.clone();
    }
    any
}

fn hcm(fields: &Value) -> Value {
    let mut manager = any("filters.network.http_connection_manager.v3.HttpConnectionManager", fields);
    manager["stat_prefix"] = json!("s");
    manager
}

fn listener(filter: &Value) -> Value {
    json!({"name": "l", "filter_chains": [{"filters": [{"name": "f", "typed_config": filter}]}]})
}

#[test]
fn a_listener_names_routes_clusters_secrets_and_extensions() {
    let rds = hcm(&json!({
        "rds": {"route_config_name": "r", "config_source": ads()},
        "access_log": [{"name": "als", "typed_config": any("access_loggers.grpc.v3.HttpGrpcAccessLogConfig", &json!({"common_config": {"log_name": "x", "grpc_service": grpc("als")}}))}],
        "http_filters": [
            {"name": "ext", "config_discovery": {"config_source": ads(), "type_urls": ["x"]}},
            {"name": "from-file", "config_discovery": {"config_source": {"path_config_source": {"path": "/x"}}, "type_urls": ["x"]}},
            {"name": "authz", "typed_config": any("filters.http.ext_authz.v3.ExtAuthz", &json!({"grpc_service": grpc("authz")}))},
            {"name": "jwt", "typed_config": any("filters.http.jwt_authn.v3.JwtAuthentication", &json!({"providers": {"p": {"remote_jwks": {"http_uri": {"uri": "http://x", "cluster": "jwks", "timeout": "1s"}}}}}))},
        ],
    }));
    let chain = "filter_chains[0].filters[0].typed_config";
    let expected = [
        format!("RouteConfiguration r by {chain}.rds.route_config_name"),
        format!("TypedExtensionConfig ext by {chain}.http_filters[0].name"),
        format!("Cluster authz by {chain}.http_filters[2].typed_config.grpc_service.envoy_grpc.cluster_name"),
        format!(
            "Cluster jwks by {chain}.http_filters[3].typed_config.providers[\"p\"].remote_jwks.http_uri.cluster"
        ),
        format!(
            "Cluster als by {chain}.access_log[0].typed_config.common_config.grpc_service.envoy_grpc.cluster_name"
        ),
    ];
    let mut found = references(&ResourceType::Listener, &listener(&rds));
    found.sort();
    let mut sorted = expected.to_vec();
    sorted.sort();
    assert_eq!(found, sorted);
}

#[test]
fn a_listener_names_what_its_other_parts_ask_for() {
    let chain = "filter_chains[0].filters[0].typed_config";
    let api = json!({"name": "l", "api_listener": {"api_listener": hcm(&json!({"rds": {"route_config_name": "r", "config_source": ads()}}))}});
    assert_eq!(
        references(&ResourceType::Listener, &api),
        ["RouteConfiguration r by api_listener.api_listener.rds.route_config_name"]
    );

    let tcp = any(
        "filters.network.tcp_proxy.v3.TcpProxy",
        &json!({"stat_prefix": "s", "weighted_clusters": {"clusters": [{"name": "a", "weight": 1}]}}),
    );
    assert_eq!(
        references(&ResourceType::Listener, &listener(&tcp)),
        [format!("Cluster a by {chain}.weighted_clusters.clusters[0].name")]
    );

    let scoped = hcm(
        &json!({"scoped_routes": {"name": "s", "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "h", "index": 0}}]}, "rds_config_source": ads(),
        "scoped_route_configurations_list": {"scoped_route_configurations": [{"name": "x", "route_configuration_name": "r", "key": {"fragments": [{"string_key": "k"}]}}]}}}),
    );
    assert_eq!(
        references(&ResourceType::Listener, &listener(&scoped)),
        [format!(
            "RouteConfiguration r by {chain}.scoped_routes.scoped_route_configurations_list.scoped_route_configurations[0].route_configuration_name"
        )]
    );
    let srds = hcm(
        &json!({"scoped_routes": {"name": "s", "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "h", "index": 0}}]}, "rds_config_source": ads(),
        "scoped_rds": {"scoped_rds_config_source": ads()}}}),
    );
    assert_eq!(
        references(&ResourceType::Listener, &listener(&srds)),
        [format!(
            "ScopedRouteConfiguration * by {chain}.scoped_routes.scoped_rds.scoped_rds_config_source.*"
        )]
    );
    let tls = any(
        "transport_sockets.tls.v3.DownstreamTlsContext",
        &json!({"common_tls_context": {"tls_certificate_sds_secret_configs": [
            {"name": "served", "sds_config": ads()}, {"name": "from-file", "sds_config": {"path_config_source": {"path": "/x"}}}, {"name": "static"},
        ]}}),
    );
    let with_tls =
        json!({"name": "l", "filter_chains": [{"transport_socket": {"name": "tls", "typed_config": tls}}]});
    assert_eq!(
        references(&ResourceType::Listener, &with_tls),
        [
            "Secret served by filter_chains[0].transport_socket.typed_config.common_tls_context.tls_certificate_sds_secret_configs[0].name"
        ]
    );
}

#[test]
fn routes_name_clusters_and_virtual_hosts() {
    let routes = json!({"name": "r", "vhds": {"config_source": ads()}, "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
        {"match": {"prefix": "/a"}, "route": {"cluster": "a", "request_mirror_policies": [{"cluster": "m"}]}},
        {"match": {"prefix": "/b"}, "route": {"cluster_header": "x-cluster"}},
        {"match": {"prefix": "/c"}, "route": {"weighted_clusters": {"clusters": [{"name": "b", "weight": 1}, {"cluster_header": "h", "weight": 1}]}}},
        {"match": {"prefix": "/d"}, "redirect": {"path_redirect": "/"}},
    ]}]});
    let expected = [
        "Cluster a by virtual_hosts[0].routes[0].route.cluster",
        "Cluster b by virtual_hosts[0].routes[2].route.weighted_clusters.clusters[0].name",
        "Cluster m by virtual_hosts[0].routes[0].route.request_mirror_policies[0].cluster",
        "VirtualHost r/* by vhds",
    ];
    assert_eq!(references(&ResourceType::RouteConfiguration, &routes), expected);
    let scope =
        json!({"name": "s", "route_configuration_name": "r", "key": {"fragments": [{"string_key": "k"}]}});
    assert_eq!(
        references(&ResourceType::ScopedRouteConfiguration, &scope),
        ["RouteConfiguration r by route_configuration_name"]
    );
}

#[test]
fn clusters_name_load_assignments_clusters_and_secrets() {
    let eds = |config: &Value| json!({"name": "c", "type": "EDS", "eds_cluster_config": config});
    let table = [
        (eds(&json!({"eds_config": ads()})), vec!["ClusterLoadAssignment c by name"]),
        (
            eds(&json!({"eds_config": ads(), "service_name": "s"})),
            vec!["ClusterLoadAssignment s by eds_cluster_config.service_name"],
        ),
        (eds(&json!({"eds_config": {"path_config_source": {"path": "/x"}}})), vec![]),
        (
            eds(
                &json!({"eds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [grpc("xds")]}}}),
            ),
            vec![
                "Cluster xds by eds_cluster_config.eds_config.api_config_source.grpc_services[0].envoy_grpc.cluster_name",
                "ClusterLoadAssignment c by name",
            ],
        ),
        (json!({"name": "c", "type": "STATIC", "eds_cluster_config": {"eds_config": ads()}}), vec![]),
        (
            json!({"name": "c", "lb_policy": "CLUSTER_PROVIDED", "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": any("clusters.aggregate.v3.ClusterConfig", &json!({"clusters": ["a", "b"]}))}}),
            vec![
                "Cluster a by cluster_type.typed_config.clusters[0]",
                "Cluster b by cluster_type.typed_config.clusters[1]",
            ],
        ),
    ];
    for (cluster, expected) in table {
        assert_eq!(references(&ResourceType::Cluster, &cluster), expected, "{cluster}");
    }
}

#[test]
fn pitfall_74_only_a_missing_target_is_dangling() {
    let cluster = resource(
        &ResourceType::Cluster,
        &json!({"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": ads()}}),
    );
    let other = resource(&ResourceType::ClusterLoadAssignment, &json!({"cluster_name": "nobody-asks"}));
    let own = resource(&ResourceType::ClusterLoadAssignment, &json!({"cluster_name": "c"}));
    let missing = |resources: &[&Resource]| {
        MissingReferences::among(resources.iter().map(|one| Arc::new((*one).clone())).collect())
    };
    let found = missing(&[&cluster, &other]);
    let found: Vec<_> = found.iter().map(|one| (&*one.from, &*one.to)).collect();
    assert_eq!(found, [(cluster.key(), own.key())]);
    assert!(missing(&[&cluster, &other, &own]).is_empty());
}

#[test]
fn what_an_envoy_waits_for_without_a_limit_is_found_wherever_a_listener_names_it() {
    let source = |limit: &str| json!({"ads": {}, "initial_fetch_timeout": limit});
    let manager = |limit: &str| {
        let manager = json!({
            "stat_prefix": "x",
            "rds": {"route_config_name": "r", "config_source": source(limit)},
            "http_filters": [
                {"name": "http", "config_discovery": {"config_source": source(limit), "type_urls": ["type.googleapis.com/x.Y"]}},
                {"name": "own", "config_discovery": {"config_source": source(limit), "type_urls": ["type.googleapis.com/x.Y"],
                    "default_config": any("filters.http.lua.v3.Lua", &json!({})), "apply_default_config_without_warming": true}},
            ],
        });
        any("filters.network.http_connection_manager.v3.HttpConnectionManager", &manager)
    };
    let secret = |name: &str, limit: &str| json!({"name": name, "sds_config": source(limit)});
    let agent = json!({"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}]});
    let of_agent =
        json!({"name": "agent", "sds_config": {"api_config_source": agent, "initial_fetch_timeout": "0s"}});
    let listener = |limit: &str| {
        let tls = json!({
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [secret("certificate", limit), of_agent],
                "combined_validation_context": {
                    "default_validation_context": {},
                    "validation_context_sds_secret_config": secret("authorities", limit),
                },
            },
        });
        let tls = any("transport_sockets.tls.v3.DownstreamTlsContext", &tls);
        let chain = json!({
            "filters": [{"name": "manager", "typed_config": manager(limit)}],
            "transport_socket": {"name": "tls", "typed_config": tls},
        });
        let network = json!({"config_source": source(limit), "type_urls": ["type.googleapis.com/x.Y"]});
        let network = json!({"filters": [{"name": "network", "config_discovery": network}]});
        let fields = json!({"name": "l", "filter_chains": [chain], "default_filter_chain": network});
        let listener = resource(&ResourceType::Listener, &fields);
        let mut names: Vec<String> = listener
            .awaited_without_limit()
            .iter()
            .map(|key| format!("{} {}", key.resource_type, key.name))
            .collect();
        names.sort();
        names
    };
    let all = [
        "RouteConfiguration r",
        "Secret authorities",
        "Secret certificate",
        "TypedExtensionConfig http",
        "TypedExtensionConfig network",
    ];
    assert_eq!(listener("0s"), all);
    assert_eq!(listener("1s"), [""; 0]);
    assert_eq!(listener("0.5s"), [""; 0]);
}

#[test]
fn a_cluster_says_what_an_envoy_waits_for_without_a_limit() {
    let waits = |source: Value| {
        let fields = json!({"name": "c", "type": "EDS", "eds_cluster_config": {"eds_config": source}});
        resource(&ResourceType::Cluster, &fields).awaits_endpoints_without_limit()
    };
    assert!(waits(json!({"ads": {}, "initial_fetch_timeout": "0s"})));
    assert!(!waits(json!({"ads": {}, "initial_fetch_timeout": "1s"})));
    assert!(!waits(json!({"ads": {}})));
    let file = json!({"path_config_source": {"path": "/x"}, "initial_fetch_timeout": "0s"});
    assert!(!waits(file));
    let secret = |name: &str, limit: &str| json!({"name": name, "sds_config": {"ads": {}, "initial_fetch_timeout": limit}});
    let socket = |tls: Value| json!({"name": "tls", "typed_config": any("transport_sockets.tls.v3.UpstreamTlsContext", &tls)});
    let own = json!({"common_tls_context": {"validation_context_sds_secret_config": secret("authorities", "0s"),
        "tls_certificate_sds_secret_configs": [secret("certificate", "1s")]}});
    let of_match =
        json!({"common_tls_context": {"tls_certificate_sds_secret_configs": [secret("matched", "0s")]}});
    let fields = json!({"name": "c", "type": "STATIC", "transport_socket": socket(own),
        "transport_socket_matches": [{"name": "m", "transport_socket": socket(of_match)}]});
    let awaited = resource(&ResourceType::Cluster, &fields).awaited_without_limit();
    let names: Vec<_> = awaited.iter().map(|key| format!("{} {}", key.resource_type, key.name)).collect();
    assert_eq!(names, ["Secret authorities", "Secret matched"]);
    let named = json!({"name": "c", "type": "STATIC"});
    assert!(!resource(&ResourceType::Cluster, &named).awaits_endpoints_without_limit());
}

/// What a gRPC client without older routes is sent of a resource, and the clusters to which it then has no routes.
fn partial(resource: &Resource, clusters: &[&str]) -> Option<(Value, Vec<String>)> {
    let cluster = |name: &&str| Arc::new(Resource::plain(ResourceType::Cluster, name, vec![]));
    let resources = clusters.iter().map(cluster).chain([Arc::new(resource.clone())]).collect();
    let publisher = Publisher::new();
    let group = NodeGroup { client: Some(Profile::Grpc), ..NodeGroup::default_group() };
    let groups = [(group.name.clone(), Arc::new(EffectiveGroup::new(group, resources)))];
    publisher.publish(Revision(1), groups.into_iter().collect());
    let view = publisher.follow(&Node::with_id("n")).take().unwrap();
    let partial = view.partial(resource.key())?;
    let left_out: Vec<String> = partial.left_out().iter().map(ToString::to_string).collect();
    let mut named = partial.references().of_type(&ResourceType::Cluster);
    assert!(named.all(|name| clusters.contains(&&**name)), "{:?}", partial.references());
    Some((CODEC.to_json(&partial), left_out))
}

#[test]
fn a_grpc_client_is_sent_routes_without_those_that_lead_nowhere() {
    let to =
        |prefix: &str, cluster: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": cluster}});
    let split = |prefix: &str, weights: &[(&str, u32)]| {
        let members: Vec<Value> =
            weights.iter().map(|(name, weight)| json!({"name": name, "weight": weight})).collect();
        json!({"match": {"prefix": prefix}, "route": {"weighted_clusters": {"clusters": members}}})
    };
    let routes = json!({
        "name": "r",
        "virtual_hosts": [
            {"name": "one", "domains": ["one"], "routes": [
                to("/a", "here"),
                to("/b", "gone"),
                split("/c", &[("here", 1), ("away", 99), ("gone", 5)]),
                split("/d", &[("here", 0), ("gone", 1)]),
                {"match": {"prefix": "/e"}, "route": {"cluster_header": "x"}},
                {"match": {"prefix": "/f"}, "redirect": {"host_redirect": "x"}},
                to("/g", "xdstp://other/envoy.config.cluster.v3.Cluster/x"),
            ]},
            {"name": "two", "domains": ["two"], "routes": [to("/", "gone")]},
        ],
    });
    let rest = json!({
        "name": "r",
        "virtual_hosts": [
            {"name": "one", "domains": ["one"], "routes": [
                to("/a", "here"),
                split("/c", &[("here", 1)]),
                {"match": {"prefix": "/e"}, "route": {"cluster_header": "x"}},
                {"match": {"prefix": "/f"}, "redirect": {"host_redirect": "x"}},
                to("/g", "xdstp://other/envoy.config.cluster.v3.Cluster/x"),
            ]},
            {"name": "two", "domains": ["two"]},
        ],
    });
    let route_configuration = resource(&ResourceType::RouteConfiguration, &routes);
    let elsewhere = "xdstp://other/envoy.config.cluster.v3.Cluster/x";
    let (sent, left_out) = partial(&route_configuration, &["here", elsewhere]).unwrap();
    let fields = |expected: &Value| CODEC.to_json(&resource(&ResourceType::RouteConfiguration, expected));
    assert_eq!(sent, fields(&rest));
    assert_eq!(left_out, ["away", "gone"]);
    assert!(partial(&route_configuration, &["here", "away", "gone", elsewhere]).is_none());

    let with_routes = |routes: &Value| {
        let manager = hcm(&json!({"route_config": routes, "codec_type": "HTTP2"}));
        resource(&ResourceType::Listener, &json!({"name": "l", "api_listener": {"api_listener": manager}}))
    };
    let (sent, left_out) = partial(&with_routes(&routes), &["here", elsewhere]).unwrap();
    assert_eq!(sent, CODEC.to_json(&with_routes(&rest)));
    assert_eq!(left_out, ["away", "gone"]);
}

#[test]
fn a_grpc_client_is_sent_an_aggregate_cluster_without_the_members_that_are_not_there() {
    let aggregate = |members: &[&str]| {
        let members = any("clusters.aggregate.v3.ClusterConfig", &json!({"clusters": members}));
        let of_type = json!({"name": "envoy.clusters.aggregate", "typed_config": members});
        resource(&ResourceType::Cluster, &json!({"name": "all", "cluster_type": of_type}))
    };
    let (sent, left_out) = partial(&aggregate(&["gone", "here", "away"]), &["here"]).unwrap();
    assert_eq!(sent, CODEC.to_json(&aggregate(&["here"])));
    assert_eq!(left_out, ["away", "gone"]);
    assert!(partial(&aggregate(&["here"]), &["here"]).is_none());
    assert!(partial(&aggregate(&["gone"]), &["here"]).is_none());
}
