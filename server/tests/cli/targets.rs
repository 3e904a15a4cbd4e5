//! `validate --target`: what is an error for which kind of client.

use std::path::Path;

use super::{CLUSTER, directory, outcome};

/// A gRPC client's listener that comes to a cluster of the given fields.
fn for_grpc(cluster: &str) -> String {
    let hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    format!(
        "resources:\n- '@type': type.googleapis.com/envoy.config.listener.v3.Listener\n  name: l\n  api_listener:\n    \
         api_listener:\n      '@type': {hcm}\n      stat_prefix: l\n      http_filters:\n      - name: router\n        \
         typed_config: {{'@type': {router}}}\n      route_config:\n        virtual_hosts:\n        - name: v\n          \
         domains: ['*']\n          routes:\n          - match: {{prefix: ''}}\n            route: {{cluster: c, timeout: 3s}}\n\
         - {CLUSTER}\n  name: c\n  {cluster}\n"
    )
}

#[test]
fn validate_judges_for_the_target_and_points_at_the_field() {
    let dir = directory(&[("a.yaml", &for_grpc("type: STATIC\n  lb_policy: RANDOM"))]);
    let timeout = "a.yaml:17:42: warning[grpc-ignored-field] \
                   api_listener.api_listener.route_config.virtual_hosts[0].routes[0].route.timeout: gRPC ignores `timeout`; it uses `max_stream_duration`; did you mean `max_stream_duration`?\n";
    let cluster_type = "[grpc-cluster-type] type: gRPC rejects clusters of type STATIC; it accepts EDS, LOGICAL_DNS and aggregates";
    let policy = "[grpc-lb-policy] lb_policy: gRPC rejects RANDOM; it accepts ROUND_ROBIN and RING_HASH";
    let only_envoys = " (ignore this if only Envoys use it)";
    let (eds, round_robin) = ("; did you mean `EDS`?", "; did you mean `ROUND_ROBIN`?");
    let grpc = format!(
        "{timeout}a.yaml:20:9: error{cluster_type}{eds}\na.yaml:21:14: error{policy}{round_robin}\n1 file, 2 resources, 2 \
         errors, 1 warning\n"
    );
    let all = format!(
        "{timeout}a.yaml:20:9: warning{cluster_type}{only_envoys}{eds}\na.yaml:21:14: \
         warning{policy}{only_envoys}{round_robin}\n1 file, 2 resources, 0 errors, 3 warnings\n"
    );
    let envoy = "1 file, 2 resources, 0 errors, 0 warnings\n".to_owned();
    for (flag, code, expected) in [
        (" --target grpc", 1, grpc),
        (" --target all", 0, all.clone()),
        ("", 0, all),
        (" --target envoy", 0, envoy),
    ] {
        let (found, stdout, _) = outcome(dir.path(), &format!("validate a.yaml{flag}"));
        assert_eq!((found, stdout), (code, expected), "{flag}");
    }
}

/// A listener with the given fields, in which `MANAGER` stands for a connection manager that asks for the routes `r`.
fn with_routes(name: &str, listener: &str, filters: &str) -> String {
    let hcm = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let manager = format!(
        "{{'@type': {hcm}, stat_prefix: l, rds: {{route_config_name: r, config_source: {{ads: {{}}}}}}, http_filters: \
         [{filters}]}}"
    );
    let listener = listener.replace("MANAGER", &manager);
    format!(
        "- {{'@type': type.googleapis.com/envoy.config.listener.v3.Listener, name: {name}, {listener}}}\n"
    )
}

#[test]
fn what_grpc_refuses_is_an_error_unless_envoys_come_to_it() {
    let router = "{name: r, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}";
    let (for_grpc, for_envoy) = (
        "api_listener: {api_listener: MANAGER}",
        "address: {socket_address: {address: 0.0.0.0, port_value: 80}}, filter_chains: [{filters: [{name: m, \
         typed_config: MANAGER}]}]",
    );
    // gRPC rejects a retry policy of no retries, which an Envoy takes.
    let routes = "- {'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration, name: r, virtual_hosts: [{name: v, \
                  domains: ['*'], routes: [{match: {prefix: ''}, route: {cluster: c, retry_policy: {retry_on: unavailable, \
                  num_retries: 0}}}]}]}\n";
    let cluster =
        format!("- {{{CLUSTER}, name: c, type: EDS, eds_cluster_config: {{eds_config: {{ads: {{}}}}}}}}\n");
    let group = |name: &str, client: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: {name}}}\nspec: {{client: {client}, selector: \
             {{nodeIds: [n]}}}}\n"
        )
    };
    let file = |parts: &[&str]| format!("resources:\n{}", parts.concat());
    let (good, bare) = (with_routes("g", for_grpc, router), with_routes("g", for_grpc, ""));
    let proxy = with_routes("e", for_envoy, router);
    let dir = directory(&[
        ("listener/a.yaml", &file(&[&bare, &proxy, &cluster])),
        ("routes/a.yaml", &file(&[&good, routes, &cluster])),
        ("shared/a.yaml", &file(&[&good, &proxy, routes, &cluster])),
        // An Envoy's listener in a group of its own comes to the routes of the default group.
        ("layered/a.yaml", &file(&[&good, routes, &cluster])),
        ("layered/edge/g.yaml", &group("edge", "envoy")),
        ("layered/edge/a.yaml", &file(&[&proxy])),
        // A group of gRPC clients that comes to them too, and is judged first, changes nothing.
        ("first/a.yaml", &file(&[&proxy, routes, &cluster])),
        ("first/apps/g.yaml", &group("apps", "grpc")),
        ("first/apps/a.yaml", &file(&[&good])),
        // In a group of gRPC clients nothing is for Envoys.
        ("own/apps/g.yaml", &group("apps", "grpc")),
        ("own/apps/a.yaml", &file(&[&good, &proxy, routes, &cluster])),
    ]);
    let table = [
        ("listener", 1, "error[grpc-no-filters] api_listener.api_listener.http_filters: "),
        ("routes", 1, "error[grpc-retry] virtual_hosts[0].routes[0].route.retry_policy.num_retries: "),
        ("shared", 0, "warning[grpc-retry] virtual_hosts[0].routes[0].route.retry_policy.num_retries: "),
        ("layered", 0, "warning[grpc-retry]"),
        ("first", 0, "warning[grpc-retry]"),
        ("own", 1, "error[grpc-retry]"),
        ("shared --target grpc", 1, "error[grpc-retry]"),
        ("routes --target envoy", 0, " 0 errors, "),
    ];
    for (line, code, expected) in table {
        let (found, stdout, _) = outcome(dir.path(), &format!("validate {line}"));
        assert_eq!(found, code, "{line}: {stdout}");
        assert!(stdout.contains(expected), "{line}: {stdout}");
        let note = "(ignore this if only Envoys use it)";
        assert_eq!(stdout.contains(note), expected.starts_with("warning"), "{line}: {stdout}");
    }
}

#[test]
fn what_an_envoy_refuses_is_an_error_unless_grpc_clients_come_to_it() {
    let aggregate = "cluster_type: {name: envoy.clusters.aggregate, typed_config: {'@type': \
                     type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [d]}}\n- '@type': \
                     type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: d\n  type: STATIC";
    let dir = directory(&[
        ("shared/a.yaml", &for_grpc(aggregate)),
        ("alone/a.yaml", &format!("resources:\n- {CLUSTER}\n  name: c\n  {aggregate}\n")),
    ]);
    let table = [
        ("shared --target envoy", 1, "error[envoy-cluster-provided]"),
        ("shared", 0, "warning[envoy-cluster-provided]"),
        ("shared --target grpc", 1, "error[grpc-cluster-type] type: gRPC rejects clusters of type STATIC"),
        ("alone", 1, "error[envoy-cluster-provided]"),
        ("alone --target grpc", 0, "0 errors, 0 warnings"),
    ];
    for (line, code, expected) in table {
        let (found, stdout, _) = outcome(dir.path(), &format!("validate {line}"));
        assert_eq!(found, code, "{line}: {stdout}");
        assert!(stdout.contains(expected), "{line}: {stdout}");
    }
}

#[test]
fn a_group_of_one_kind_of_client_is_judged_for_that_kind_only() {
    let group = |client: &str| {
        format!(
            "apiVersion: xds-server.io/v1\nkind: NodeGroup\nmetadata: {{name: g}}\nspec: {{client: {client}, selector: \
             {{nodeIds: [n]}}}}\n"
        )
    };
    for (client, code) in [("grpc", 1), ("envoy", 0)] {
        let dir = directory(&[("g/g.yaml", &group(client)), ("g/a.yaml", &for_grpc("type: STATIC"))]);
        let (found, stdout, _) = outcome(dir.path(), "validate g --target grpc");
        assert_eq!(found, code, "{client}: {stdout}");
    }
}

#[test]
fn a_fault_is_told_once_where_the_lint_of_every_resource_has_it_too() {
    let endpoints = "type: EDS\n  eds_cluster_config: {eds_config: {ads: {}}}\n- '@type': \
                     type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n  cluster_name: c\n  endpoints:\n  - \
                     {priority: 1, load_balancing_weight: 1, locality: {zone: z}}";
    let dir = directory(&[("a.yaml", &for_grpc(endpoints))]);
    for (target, code, expected) in [
        ("grpc", 1, Some("error[grpc-priority-gap] endpoints: ")),
        ("all", 0, Some("warning[grpc-priority-gap] endpoints: ")),
        ("envoy", 0, None),
    ] {
        let (found, stdout, _) = outcome(dir.path(), &format!("validate a.yaml --target {target}"));
        let gaps: Vec<_> = stdout.lines().filter(|line| line.contains("priority-gap")).collect();
        assert_eq!((found, gaps.len()), (code, expected.iter().len()), "{stdout}");
        assert!(gaps.iter().zip(expected).all(|(line, text)| line.contains(text)), "{stdout}");
    }
}

#[test]
fn the_fixtures_have_no_findings_for_any_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (paths, counts) in
        [("fixtures/basic", "4 files, 10 resources"), ("fixtures/compose/routes", "3 files, 12 resources")]
    {
        for target in ["envoy", "grpc", "all"] {
            let (code, stdout, _) = outcome(&root, &format!("validate {paths} --target {target}"));
            assert_eq!((code, stdout), (0, format!("{counts}, 0 errors, 0 warnings\n")));
        }
    }
}
