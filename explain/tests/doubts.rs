//! The kinds of doubts, each on resources as they are written.

use std::sync::{Arc, LazyLock};

use xds_codec::{Codec, Limits, ObjectContent};
use xds_explain::{Client, Depth, Doubt, DoubtCode, Doubts, Language, Model, Part, differences, lint};

/// The resources of a YAML text.
fn model(yaml: &str, language: Language) -> Model {
    // It takes a second to make.
    static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());
    let decoded = CODEC.decode_file("a.yaml", yaml.as_bytes(), &Limits::default());
    let resources = decoded.objects.into_iter().map(|object| match object.content {
        ObjectContent::Resource { outcome, .. } => Arc::new(outcome.unwrap()),
        ObjectContent::Unreadable(_) | ObjectContent::NodeGroup { .. } | ObjectContent::Other { .. } => {
            panic!("every document is a resource")
        }
    });
    let resources: Vec<_> = resources.collect();
    assert!(!resources.is_empty(), "{:?}", decoded.diagnostics);
    Model::compile(resources, Client::newest(language))
}

fn doubts(yaml: &str, depth: Depth) -> Doubts {
    lint(&model(yaml, Language::Envoy), depth)
}

/// Where the doubts of a kind are.
fn paths(doubts: &Doubts, code: DoubtCode) -> Vec<&str> {
    let of_code = doubts.all.iter().filter(|doubt| doubt.code == code);
    of_code.map(|doubt| doubt.part.path.as_str()).collect()
}

fn only(doubts: Doubts) -> Doubt {
    assert_eq!(doubts.all.len(), 1, "{doubts:#?}");
    doubts.all.into_iter().next().unwrap()
}

const MANAGER: &str = "\"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "{ name: router, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }";
const FAULT: &str = "{ name: fault, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault } }";
const CORS: &str = "{ name: cors, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }";

/// A listener of an Envoy that uses the RouteConfiguration `table`.
fn listener(name: &str, port: u16, filters: &[&str]) -> String {
    let filters = [filters, &[ROUTER]].concat().join(", ");
    format!(
        "---
\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: {name}
address: {{ socket_address: {{ address: 0.0.0.0, port_value: {port} }} }}
filter_chains:
- filters:
  - name: hcm
    typed_config:
      {MANAGER}
      stat_prefix: x
      http_filters: [{filters}]
      rds: {{ route_config_name: table, config_source: {{ ads: {{}} }} }}
"
    )
}

/// A listener of gRPC clients with this target.
fn target(name: &str, filters: &[&str]) -> String {
    let filters = [filters, &[ROUTER]].concat().join(", ");
    format!(
        "---
\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: {name}
api_listener:
  api_listener:
    {MANAGER}
    stat_prefix: x
    http_filters: [{filters}]
    rds: {{ route_config_name: table, config_source: {{ ads: {{}} }} }}
"
    )
}

/// The RouteConfiguration `table`, with fields of its own and those of its virtual hosts.
fn table(own: &str, hosts: &[&str]) -> String {
    let hosts: String = hosts.iter().map(|host| format!("- {{ {host} }}\n")).collect();
    format!(
        "---\n\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: table\n{own}\nvirtual_hosts:\n{hosts}"
    )
}

fn routes(own: &str, hosts: &[&str]) -> String {
    format!("{}{}", listener("edge", 80, &[FAULT, CORS]), table(own, hosts))
}

#[test]
fn l2_a_wider_route_with_more_conditions_takes_a_part_of_an_exact_path() {
    let host = |first: &str| {
        format!(
            "name: v, domains: ['*.shop.test'], routes: [
            {{ match: {{ {first} }}, route: {{ cluster: beta }} }},
            {{ match: {{ path: /cart/pay }}, route: {{ cluster: pay }} }}, {{ match: {{ prefix: / }}, route: {{ cluster: rest }} }}]"
        )
    };
    let beta = "prefix: /cart, headers: [{ name: x-beta, string_match: { exact: \"on\" } }]";
    let found = only(doubts(&routes("", &[&host(beta)]), Depth::All));
    assert_eq!(
        (found.code.name(), found.part.path.as_str()),
        ("partly-shadowed", "virtual_hosts[0].routes[1]")
    );
    assert_eq!(
        found.message,
        "the route 1 (prefix \"/cart\") before it takes requests of this exact path that fulfil its conditions, \
         such as GET http://any.shop.test/cart/pay, header x-beta: \"on\", port 80"
    );
    assert_eq!(found.hidden_by[0].path, "virtual_hosts[0].routes[0]");
    assert_eq!(doubts(&routes("", &[&host(beta)]), Depth::Default).all, [], "only if it is asked for");
    let narrow = "prefix: /other }, route: { cluster: rest } }, { match: { path: /cart/pay, headers: [{ name: x-beta, string_match: { exact: \"on\" } }]";
    assert_eq!(doubts(&routes("", &[&host(narrow)]), Depth::All).all, [], "the second is not wider");
    let other = "prefix: /card, headers: [{ name: x-beta, string_match: { exact: \"on\" } }]";
    assert_eq!(doubts(&routes("", &[&host(other)]), Depth::All).all, [], "the first takes other paths");
    let unknown = "prefix: /cart, dynamic_metadata: [{ filter: f, path: [{ key: k }], value: { present_match: true } }]";
    assert_eq!(doubts(&routes("", &[&host(unknown)]), Depth::All).all, [], "no request says if it takes any");
    let whole = doubts(&routes("", &[&host("prefix: /cart")]), Depth::All);
    assert_eq!(only(whole).code, DoubtCode::ShadowedRoute, "nothing is left of it");
}

#[test]
fn l2_a_rule_that_never_acts_at_one_exact_place_says_so_in_case_it_acts_elsewhere() {
    let host = |domain: &str, cluster: &str| {
        format!(
            "name: v, domains: ['{domain}'], routes: [{{ match: {{ prefix: /x }}, route: {{ cluster: one }} }},
            {{ name: rule, match: {{ prefix: /x/y }}, route: {{ cluster: {cluster} }} }}]"
        )
    };
    let elsewhere = "name: w, domains: ['b.test'], routes: [{ name: rule, match: { prefix: /x/y }, route: { cluster: two } }]";
    let partly = |domain: &str, cluster: &str| {
        let found = only(doubts(&routes("", &[&host(domain, cluster), elsewhere]), Depth::Default));
        assert_eq!((found.code, found.namesakes.len()), (DoubtCode::ShadowedRoute, 1));
        found.partly
    };
    let expected = "the rule acts elsewhere, but no request reaches it at a.test with the path prefix \"/x/y\", because of the route 1 (prefix \"/x\") before it";
    assert_eq!(partly("a.test", "two").as_deref(), Some(expected));
    assert_eq!(partly("a.test", "one"), None, "the cluster is the same");
    assert_eq!(partly("*.test", "two"), None, "neither the host nor the path is exact");
}

fn cluster(name: &str, localities: &str) -> String {
    format!(
        "---\n\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: {name}\nload_assignment: {{ cluster_name: {name}, endpoints: [{localities}] }}\n"
    )
}

fn aggregate(name: &str, members: &str) -> String {
    format!(
        "---\n\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: {name}\nlb_policy: CLUSTER_PROVIDED\n\
         cluster_type: {{ name: envoy.clusters.aggregate, typed_config: {{ '@type': type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [{members}] }} }}\n"
    )
}

/// A locality with endpoints of these ports.
fn locality(priority: u32, ports: &[u16]) -> String {
    let endpoints: Vec<String> = ports
        .iter()
        .map(|port| format!("{{ endpoint: {{ address: {{ socket_address: {{ address: 10.0.0.1, port_value: {port} }} }} }} }}"))
        .collect();
    format!(
        "{{ priority: {priority}, load_balancing_weight: 1, locality: {{ zone: z{priority} }}, lb_endpoints: [{}] }}",
        endpoints.join(", ")
    )
}

fn to_all(language: Language) -> impl Fn(&str, Depth) -> Doubts {
    let host = "name: v, domains: ['*'], routes: [{ match: { prefix: '' }, route: { cluster: all } }]";
    let own = if language == Language::Envoy { listener("edge", 80, &[]) } else { target("a.test", &[]) };
    let routes = format!("{own}{}", table("", &[host]));
    move |clusters, depth| lint(&model(&format!("{routes}{clusters}"), language), depth)
}

#[test]
fn l6_a_grpc_client_uses_a_cluster_of_an_aggregate_once() {
    let clusters = ["one", "two"].map(|name| cluster(name, &locality(0, &[80]))).concat();
    let inner = format!("{clusters}{}", aggregate("inner", "one, two"));
    let found = |members: &str, language| {
        let doubts = to_all(language)(&format!("{inner}{}", aggregate("all", members)), Depth::Default);
        paths(&doubts, DoubtCode::WeightNeverApplies).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let third = ["cluster_type.typed_config.clusters[2]"];
    for language in [Language::CCore, Language::Go, Language::Java, Language::Js] {
        assert_eq!(found("one, two, one", language), third);
        assert_eq!(found("one, two, inner", language), third, "nothing in it is new");
        assert_eq!(found("one, inner", language), [""; 0], "of that, `two` is new");
        assert_eq!(found("one, two, missing", language), [""; 0], "that is told as a reference");
    }
    assert_eq!(
        found("one, two, one", Language::Envoy),
        [""; 0],
        "an Envoy gives the second place a share, too"
    );
}

#[test]
fn l6_a_priority_without_endpoints_gets_nothing() {
    for language in [Language::Envoy, Language::CCore] {
        let own = cluster("all", &[locality(0, &[]), locality(1, &[80])].join(", "));
        let found = only(to_all(language)(&own, Depth::Default));
        assert_eq!(found.code.name(), "weight-never-applies");
        assert_eq!(
            found.message,
            "the priority 0 of the cluster \"all\" has no endpoint, and gets no request"
        );
        assert_eq!(found.part.path, "load_assignment.endpoints[0]");
        // Endpoints may come and go.
        assert_eq!(to_all(language)(&cluster("all", &locality(0, &[])), Depth::All).all, []);
    }
}

#[test]
fn l6_fallbacks_are_told_only_if_that_is_asked_for() {
    for language in [Language::Envoy, Language::CCore] {
        let of = to_all(language);
        let priorities = cluster("all", &[locality(0, &[80]), locality(1, &[81])].join(", "));
        assert_eq!(of(&priorities, Depth::Default).all, [], "a fallback is meant");
        let found = only(of(&priorities, Depth::All));
        assert_eq!(found.code.name(), "only-when-unhealthy");
        assert_eq!(found.part.path, "load_assignment.endpoints[1]");
        let clusters = ["one", "two"].map(|name| cluster(name, &locality(0, &[80]))).concat();
        let members = format!("{clusters}{}", aggregate("all", "missing, one, two"));
        assert_eq!(of(&members, Depth::Default).all, []);
        let found = only(of(&members, Depth::All));
        assert_eq!(
            found.message,
            "the member \"two\" gets requests only while \"one\" before it is not healthy, which is what a fallback is for"
        );
        assert_eq!(found.part.path, "cluster_type.typed_config.clusters[2]");
    }
    let half = cluster("all", &[locality(0, &[80]), locality(1, &[81])].join(", "))
        .replace("cluster_name: all,", "cluster_name: all, policy: { overprovisioning_factor: 50 },");
    assert_eq!(to_all(Language::Envoy)(&half, Depth::All).all, [], "the first priority is never whole");
    let one = cluster("one", &locality(0, &[80]))
        .replace("cluster_name: one,", "cluster_name: one, policy: { overprovisioning_factor: 50 },");
    let members = format!("{one}{}{}", cluster("two", &locality(0, &[80])), aggregate("all", "one, two"));
    assert_eq!(to_all(Language::Envoy)(&members, Depth::All).all, [], "nor is the first member");
    assert_eq!(
        to_all(Language::Go)(&members, Depth::All).all.len(),
        1,
        "gRPC clients do not read the factor"
    );
}

const ABORT: &str = "{ '@type': type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault }";
const ORIGIN: &str = "{ '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy }";

/// A route with overrides.
fn route(overrides: &str) -> String {
    format!(
        "{{ match: {{ prefix: / }}, typed_per_filter_config: {{ {overrides} }}, route: {{ cluster: one }} }}"
    )
}

fn host(overrides: &str, routes: &[String]) -> String {
    format!(
        "name: v, domains: ['*'], typed_per_filter_config: {{ {overrides} }}, routes: [{}]",
        routes.join(", ")
    )
}

/// Where overrides are that nobody uses.
fn unused(yaml: &str, language: Language) -> Vec<String> {
    let found = lint(&model(yaml, language), Depth::Default);
    paths(&found, DoubtCode::UnusedOverride).into_iter().map(str::to_owned).collect()
}

#[test]
fn l9_an_override_of_a_filter_that_no_listener_has() {
    let own = host(&format!("fault: {ABORT}"), &[route(&format!("buffer: {ABORT}")), route("")]);
    let with = |filters: &[&str]| {
        let two = format!("{}{}", listener("edge", 80, &[]), listener("other", 81, filters));
        unused(&format!("{two}{}", table("", &[&own])), Language::Envoy)
    };
    let route = "virtual_hosts[0].routes[0].typed_per_filter_config[\"buffer\"]";
    assert_eq!(with(&[]), ["virtual_hosts[0].typed_per_filter_config[\"fault\"]", route]);
    assert_eq!(with(&[FAULT]), [route], "one of two listeners has it");
    let composite = "{ name: x, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.composite.v3.Composite } }";
    assert_eq!(with(&[composite]), [""; 0], "the filter may have others within it");
    let upstream = ROUTER.replace("v3.Router", &format!("v3.Router, upstream_http_filters: [{FAULT}]"));
    assert_eq!(with(&[&upstream.replace("name: router", "name: second")]), [route], "the router has it");
    let of_grpc = |filters: &[&str]| {
        unused(&format!("{}{}", target("a.test", filters), table("", &[&own])), Language::Go)
    };
    assert_eq!(of_grpc(&[FAULT]), [route]);
    let options = "---\n\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: one\ntyped_extension_protocol_options:\n  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n    '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n    explicit_http_config: { http_protocol_options: {} }\n    http_filters: [FAULT]\n".replace("FAULT", FAULT);
    let of_cluster = format!("{}{}{options}", listener("edge", 80, &[]), table("", &[&own]));
    assert_eq!(unused(&of_cluster, Language::Envoy), [route], "a cluster has it");
}

#[test]
fn l9_an_override_that_lower_levels_hide_on_every_path() {
    let fault = format!("fault: {ABORT}");
    let off = "fault: { '@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true }";
    let of = |own: &str, hosts: &[String]| {
        let own = format!("typed_per_filter_config: {{ {own} }}");
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        unused(&routes(&own, &hosts), Language::Envoy)
    };
    let of_host = "virtual_hosts[0].typed_per_filter_config[\"fault\"]";
    let of_table = "typed_per_filter_config[\"fault\"]";
    assert_eq!(of("", &[host(&fault, &[route(&fault), route(off)])]), [of_host]);
    assert_eq!(of("", &[host(&fault, &[route(&fault), route("")])]), [""; 0], "one route has none");
    assert_eq!(of(&fault, &[host(&fault, &[route("")])]), [of_table]);
    assert_eq!(of(&fault, &[host("", &[route(&fault)])]), [of_table]);
    assert_eq!(of(&fault, &[host("", &[route(&fault), route("")])]), [""; 0]);
    let cors = format!("cors: {ORIGIN}");
    assert_eq!(of("", &[host(&cors, &[route(&cors)])]), [""; 0], "CORS merges all levels");
    let split = |second: &str| {
        let weighted = format!(
            "weighted_clusters: {{ clusters: [{{ name: one, weight: 1, typed_per_filter_config: {{ {fault} }} }}, {{ name: two, weight: 1, typed_per_filter_config: {{ {second} }} }}] }}"
        );
        route(&fault).replace("cluster: one", &weighted)
    };
    let of_route = "virtual_hosts[0].routes[0].typed_per_filter_config[\"fault\"]";
    assert_eq!(of("", &[host("", &[split(&fault)])]), [of_route]);
    assert_eq!(of("", &[host("", &[split("")])]), [""; 0], "one of the clusters has none");
}

#[test]
fn l9_mirrors_that_lower_levels_hide_on_every_path() {
    let mirrors = "request_mirror_policies: [{ cluster: one }]";
    let forwards = |own: &str| format!("{{ match: {{ prefix: / }}, route: {{ cluster: one, {own} }} }}");
    let answers = "{ match: { prefix: /x }, direct_response: { status: 200 } }".to_owned();
    let of = |own: &str, of_host: &str, all: &[String]| {
        let host = format!("name: v, domains: ['*'], {of_host}, routes: [{}]", all.join(", "));
        unused(&routes(own, &[&host]), Language::Envoy)
    };
    let hidden = ["virtual_hosts[0].request_mirror_policies"];
    let none = "retry_policy: { retry_on: 5xx }";
    assert_eq!(of("", mirrors, &[forwards(mirrors), answers]), hidden, "an answer is not mirrored");
    assert_eq!(of("", mirrors, &[forwards(mirrors), forwards("")]), [""; 0]);
    assert_eq!(of(mirrors, mirrors, &[forwards("")]), ["request_mirror_policies"]);
    assert_eq!(of(mirrors, none, &[forwards(mirrors)]), ["request_mirror_policies"]);
    assert_eq!(of(mirrors, none, &[forwards("")]), [""; 0]);
}

#[test]
fn overrides_and_mirrors_that_act_are_named_for_the_doubts_of_other_clients() {
    let own = host(
        &format!("fault: {ABORT}"),
        &[
            route(""),
            route(
                "cors: { '@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true }",
            ),
        ],
    );
    let found = doubts(&routes("", &[&own]), Depth::Default);
    let acting: Vec<&str> = found.acting.iter().map(|Part { path, .. }| path.as_str()).collect();
    assert_eq!(
        acting,
        [
            "virtual_hosts[0].typed_per_filter_config[\"fault\"]",
            "virtual_hosts[0].routes[1].typed_per_filter_config[\"cors\"]"
        ]
    );
}

/// What an Envoy and a gRPC client answer differently, of which both get these routes, by the index of the route.
fn differing(language: Language, routes: &str) -> Vec<(String, String)> {
    let host = format!(
        "name: v, domains: ['a.test'], routes: [{routes}, {{ match: {{ prefix: '' }}, route: {{ cluster: rest }} }}]"
    );
    let yaml = format!("{}{}{}", listener("edge", 80, &[]), target("a.test", &[]), table("", &[&host]));
    let found = differences(&model(&yaml, Language::Envoy), &model(&yaml, language));
    assert!(found.iter().all(|doubt| doubt.code.name() == "differs-between-clients"));
    found.into_iter().map(|doubt| (doubt.part.path, doubt.message)).collect()
}

#[test]
fn l9_the_same_call_is_answered_by_different_clusters() {
    let first = "virtual_hosts[0].routes[0]".to_owned();
    let query = "{ match: { prefix: '/a.B/', query_parameters: [{ name: q, present_match: true }] }, route: { cluster: one } }";
    let message =
        "call of a.B/a at xds:///a.test: to rest with envoy@1.40, to one with grpc-js@1.14".to_owned();
    assert_eq!(differing(Language::Js, query), [(first, message)], "grpc-js ignores conditions on queries");
    assert_eq!(differing(Language::CCore, query), [], "C-core leaves the route out, and a call has no query");
    let capitals = "{ match: { prefix: '', headers: [{ name: X-Beta, string_match: { exact: a } }] }, route: { cluster: one } }";
    let found = differing(Language::CCore, capitals);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.ends_with("header x-beta: \"a\": to one with envoy@1.40, to rest with grpc-core@1.85"),
        "{found:?}"
    );
    assert_eq!(differing(Language::Go, capitals), []);
    let content = "{ match: { prefix: '', headers: [{ name: content-type, string_match: { exact: application/grpc } }] }, route: { cluster: one } }";
    assert_eq!(differing(Language::Go, content).len(), 1, "grpc-go does not see the header");
    assert_eq!(differing(Language::Js, content), []);
    let answers = "{ match: { prefix: '/a.B/' }, direct_response: { status: 200 } }";
    assert_eq!(differing(Language::Go, answers).len(), 1, "the calls of gRPC clients fail there");
    let half = "{ match: { prefix: '/a.B/', runtime_fraction: { default_value: { numerator: 50 } } }, route: { weighted_clusters: { clusters: [{ name: one, weight: 50 }, { name: two, weight: 50 }] } } }";
    assert_eq!(differing(Language::CCore, half).len(), 1, "an Envoy draws once");
    let plain =
        "{ match: { path: '/a.B/C', headers: [{ name: x, present_match: true }] }, route: { cluster: one } }";
    for language in [Language::CCore, Language::Go, Language::Java, Language::Js] {
        assert_eq!(differing(language, plain), []);
    }
}

#[test]
fn l9_only_routes_that_both_get_are_compared() {
    let query = "{ match: { prefix: '/a.B/', query_parameters: [{ name: q, present_match: true }] }, route: { cluster: one } }";
    let of = |cluster: &str| {
        let host = format!(
            "name: v, domains: ['a.test'], routes: [{query}, {{ match: {{ prefix: '' }}, route: {{ cluster: {cluster} }} }}]"
        );
        table("", &[&host])
    };
    let envoy = |rest: &str| model(&format!("{}{rest}", listener("edge", 80, &[])), Language::Envoy);
    let grpc = model(&format!("{}{}", target("a.test", &[]), of("rest")), Language::Js);
    assert_eq!(differences(&envoy(&of("rest")), &grpc).len(), 1);
    assert_eq!(differences(&envoy(&of("other")), &grpc), [], "the resources differ");
    let apart = format!("{}{}", listener("edge", 80, &[]).replace("table", "own"), of("rest"));
    assert_eq!(differences(&model(&apart, Language::Envoy), &grpc), [], "Envoys do not use these routes");
}
