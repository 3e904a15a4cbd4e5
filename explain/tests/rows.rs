//! Rules that concern more than one part of a request's way, each on resources as they are written. Those of one part have their tests
//! beside it.

use std::sync::Arc;

use xds_codec::{Codec, Limits, ObjectContent};
use xds_explain::{ActionKind, Client, Explanation, Language, Model, Outcome, Ratio, Request};

/// The resources of a YAML text.
fn model(yaml: &str, language: Language) -> Model {
    let decoded = Codec::new().unwrap().decode_file("a.yaml", yaml.as_bytes(), &Limits::default());
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

fn envoy(yaml: &str) -> Model {
    model(yaml, Language::Envoy)
}

fn asked(model: &Model, request: &Request) -> Explanation {
    model.explain(request).into_iter().next().unwrap()
}

fn outcome(model: &Model, request: &Request) -> Outcome {
    asked(model, request).outcomes.into_iter().next().unwrap()
}

const CLUSTERS: &str = "---
\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: one
load_assignment:
  cluster_name: one
  endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 10.0.0.1, port_value: 80 } } } }] }]
---
\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: ring
lb_policy: RING_HASH
load_assignment:
  cluster_name: ring
  policy: { drop_overloads: [{ category: load, drop_percentage: { numerator: 25 } }] }
  endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 10.0.0.2, port_value: 80 } } } }] }]
";

/// A listener at a port, with the fields of its virtual host and its filters.
fn listener(name: &str, address: &str, port: u16, host: &str, filters: &str) -> String {
    let fields: String = host.lines().map(|line| format!("            {line}\n")).collect();
    format!(
        "---
\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: {name}
address: {{ socket_address: {{ address: {address}, port_value: {port} }} }}
filter_chains:
- filters:
  - name: hcm
    typed_config:
      \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: x
      http_filters: [{filters}]
      route_config:
        name: {name}
        virtual_hosts:
          - name: v
            domains: ['*']
{fields}"
    )
}

const ROUTER: &str = "{ name: router, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }";

fn one_listener(host: &str, filters: &str) -> Model {
    envoy(&format!("{}{CLUSTERS}", listener("edge", "0.0.0.0", 80, host, filters)))
}

fn get(path: &str) -> Request {
    Request::get("a.test", path)
}

#[test]
fn f1_an_exact_address_comes_before_any() {
    let to =
        |name: &str| format!("routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: {name} }} }}]");
    let any = listener("any", "0.0.0.0", 80, &to("201"), ROUTER);
    let own = listener("own", "10.0.0.9", 80, &to("202"), ROUTER);
    let model = envoy(&format!("{any}{own}"));
    let status = |to: Option<&str>, port: u16| {
        let mut request = get("/");
        request.connection.port = Some(port);
        request.connection.to = to.map(|to| to.parse().unwrap());
        let all = model.explain(&request);
        let statuses = all.iter().map(|one| one.outcomes[0].status.clone().unwrap_or_default());
        statuses.collect::<Vec<String>>()
    };
    assert_eq!(status(Some("10.0.0.9"), 80), ["202"]);
    assert_eq!(status(Some("10.0.0.8"), 80), ["201"]);
    assert_ne!(status(Some("10.0.0.9"), 81), ["202"], "nobody listens there");
}

#[test]
fn f9_the_listener_of_a_grpc_client_has_the_name_of_the_target() {
    let yaml = "---
\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener
name: shop.test:50051
api_listener:
  api_listener:
    \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
    stat_prefix: x
    route_config:
      virtual_hosts: [{ name: v, domains: ['*'], routes: [{ match: { prefix: '' }, route: { cluster: one } }] }]
    http_filters: [{ name: router, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }]
";
    for language in Language::GRPC {
        let model = model(&format!("{yaml}{CLUSTERS}"), language);
        let to = |target: &str| outcome(&model, &Request::call(target, "s/m"));
        assert_eq!(to("xds:///shop.test:50051").cluster.unwrap().name, "one", "{language:?}");
        assert_eq!(to("shop.test").action, ActionKind::NoListener, "{language:?}");
    }
}

#[test]
fn h5_a_filter_that_may_choose_another_route_is_told() {
    let host = "routes: [{ match: { prefix: / }, route: { cluster: one } }]";
    let lua = "{ name: lua, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, \
               default_source_code: { inline_string: '' } } }";
    let explained = asked(&one_listener(host, &format!("{lua}, {ROUTER}")), &get("/"));
    assert_eq!(explained.unknown, ["the filter lua"]);
    assert_eq!(explained.outcomes[0].cluster.as_ref().unwrap().name, "one");
    assert!(asked(&one_listener(host, ROUTER), &get("/")).unknown.is_empty());
}

#[test]
fn a2_mirrors_of_the_nearest_level_count_alone() {
    let host = "request_mirror_policies: [{ cluster: ring }]
routes:
- match: { prefix: /own }
  route: { cluster: one, request_mirror_policies: [{ cluster: one, runtime_fraction: { default_value: { numerator: 50 } } }] }
- match: { prefix: / }
  route: { cluster: one }";
    let model = one_listener(host, ROUTER);
    let mirrors = |path: &str| {
        let mirrors = outcome(&model, &get(path)).mirrors.into_iter();
        mirrors.map(|mirror| (mirror.cluster, mirror.share)).collect::<Vec<_>>()
    };
    assert_eq!(mirrors("/own"), [("one".to_owned(), Ratio::new(1, 2))]);
    assert_eq!(mirrors("/"), [("ring".to_owned(), Ratio::ONE)]);
}

#[test]
fn a4_an_envoy_follows_redirects_itself_if_the_route_says_so() {
    let host = "routes:
- match: { prefix: /once }
  route: { cluster: one, internal_redirect_policy: {} }
- match: { prefix: /more }
  route: { cluster: one, internal_redirect_policy: { max_internal_redirects: 3, redirect_response_codes: [307, 302], allow_cross_scheme_redirect: true } }
- match: { prefix: / }
  route: { cluster: one }";
    let model = one_listener(host, ROUTER);
    let follows = |path: &str| outcome(&model, &get(path)).follows;
    let once = follows("/once").unwrap();
    assert_eq!((once.statuses, once.max, once.crosses_schemes), (vec![302], 1, false));
    let more = follows("/more").unwrap();
    assert_eq!((more.statuses, more.max, more.crosses_schemes), (vec![307, 302], 3, true));
    assert_eq!(follows("/"), None);
    let text = xds_explain::to_text(&[asked(&model, &get("/more"))], false);
    assert!(text.contains("  follows      307, 302: up to 3 in a row, also to the other scheme\n"), "{text}");
}

#[test]
fn a6_retries_of_the_route_replace_those_of_the_host() {
    let host = "retry_policy: { retry_on: '5xx', num_retries: 5 }
routes:
- match: { prefix: /own }
  route: { cluster: one, retry_policy: { retry_on: 'connect-failure,unavailable', retry_back_off: { base_interval: 0.1s } } }
- match: { prefix: / }
  route: { cluster: one }";
    let model = one_listener(host, ROUTER);
    let retry = |path: &str| outcome(&model, &get(path)).retry.unwrap();
    let own = retry("/own");
    assert_eq!(
        (own.on, own.n_retries, own.by),
        (vec!["connect-failure".to_owned(), "unavailable".to_owned()], 1, "route")
    );
    assert_eq!((own.base_interval_ms, own.max_interval_ms), (100, 1000));
    let of_host = retry("/");
    assert_eq!((of_host.on, of_host.n_retries, of_host.by), (vec!["5xx".to_owned()], 5, "virtual host"));
    assert_eq!((of_host.base_interval_ms, of_host.max_interval_ms), (25, 250));
}

#[test]
fn a7_the_nearest_override_of_a_filter_counts() {
    let cors = |disabled: bool| {
        format!(
            "{{ cors: {{ '@type': type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: {disabled}, config: {{ '@type': \
                 type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy }} }} }}"
        )
    };
    let host = format!(
        "typed_per_filter_config: {}
routes:
- match: {{ prefix: /split }}
  route: {{ weighted_clusters: {{ clusters: [{{ name: one, weight: 1, typed_per_filter_config: {} }}, {{ name: ring, weight: 1 }}] }} }}
  typed_per_filter_config: {}
- match: {{ prefix: / }}
  route: {{ cluster: one }}",
        cors(true),
        cors(true),
        cors(false)
    );
    let filter = "{ name: cors, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }";
    let model = one_listener(&host, &format!("{filter}, {ROUTER}"));
    let of = |outcome: &Outcome| (outcome.filters[0].effect.clone(), outcome.filters[0].by);
    let split = asked(&model, &get("/split")).outcomes;
    assert_eq!(of(&split[0]), ("off".to_owned(), Some("weighted cluster")));
    assert_eq!(of(&split[1]), ("on".to_owned(), Some("route")));
    assert_eq!(of(&outcome(&model, &get("/"))), ("off".to_owned(), Some("virtual host")));
}

#[test]
fn a10_sessions_and_hashes_say_what_the_endpoint_is_chosen_by() {
    let hash = "hash_policy: [{ header: { header_name: x-user }, terminal: true }, { cookie: { name: c, ttl: 60s } }, { \
                connection_properties: { source_ip: true } }, { query_parameter: { name: q } }]";
    let host = format!(
        "routes:
- match: {{ prefix: /ring }}
  route: {{ cluster: ring, {hash} }}
- match: {{ prefix: / }}
  route: {{ cluster: one, {hash} }}"
    );
    let session = "{ name: session, typed_config: { '@type': \
                   type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSession, session_state: { name: s, \
                   typed_config: { '@type': type.googleapis.com/envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState, \
                   name: x-session } } } }";
    let model = one_listener(&host, &format!("{session}, {ROUTER}"));
    let ring = outcome(&model, &get("/ring"));
    let session = ring.session.unwrap();
    assert_eq!((session.by, &*session.name), ("header", "x-session"));
    assert_eq!(
        ring.hash,
        [
            "the header \"x-user\", and by nothing else if there is one",
            "the cookie \"c\", which is set if it is absent",
            "the address of the client",
            "the query parameter \"q\"",
        ]
    );
    assert!(outcome(&model, &get("/")).hash.is_empty(), "round robin asks for no hash");
}

#[test]
fn a12_a_share_of_the_requests_is_dropped_first() {
    let host = "routes: [{ match: { prefix: / }, route: { cluster: ring } }]";
    let notes = asked(&one_listener(host, ROUTER), &get("/")).notes;
    assert!(
        notes
            .iter()
            .any(|note| note.code == "XA12" && note.message.starts_with("25 % of the requests to ring")),
        "{notes:?}"
    );
}
