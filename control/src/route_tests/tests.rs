//! RouteTests of native routes, from the text to the outcome.

use std::sync::{Arc, LazyLock};

use serde_json::json;
use xds_cache::layer::LayerGroup;
use xds_cache::{GroupName, Layer, Publisher, ResourceType, Revision, layer};
use xds_codec::{Codec, Limits, Syntax, Tree};
use xds_routes::{Document, ReadOutcome, UnknownFields};

use super::*;
use crate::documents;
use crate::model::document::{DocumentState, GroupedDocument, GroupedDocuments};

fn trees(text: &str) -> Vec<Tree> {
    xds_codec::parse("a.yaml", text.as_bytes(), Syntax::Yaml, &Limits::default()).unwrap()
}

/// A RouteTest with this `spec`.
fn route_test(spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: xds-server.io/v1\nkind: RouteTest\nmetadata: {{name: t, namespace: shop}}\nspec:\n{spec}"
    )
}

/// The faults of a RouteTest with this `spec`, which begins in line 5 and column 3.
fn faults(spec: &str) -> Vec<String> {
    let trees = trees(&route_test(spec));
    let ReadOutcome::Objects(mut objects) = read_document(&"a.yaml".into(), &trees[0], UnknownFields::Refuse)
    else {
        panic!("{spec}")
    };
    let faults = objects.remove(0).outcome.err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

const ROUTES: &str = "version: xds-server/v1
namespace: shop
listeners: { edge: { port: 10000, address: 127.0.0.1 } }
routes:
  web:
    hosts: [shop.test]
    rules:
    - match: { path: /cart }
      to: cart
      timeout: 5s
      retry: { on: [503], attempts: 3 }
      session: { cookie: sid }
      mirror: { copy: 20% }
    - match: { prefix: /beta }
      to: { cart-next: 90, cart: 10 }
    - match: { prefix: /old }
      redirect: { host: new.test, status: 301 }
    - match: { prefix: /gone }
      to: missing
    - name: calls
      match: { prefix: /shop.Cart }
      to: cart
    - match: { prefix: /internal, headers: { x-internal: \"yes\" } }
      to: internal
    - match: { prefix: /web }
      to: web
backends:
  cart: { endpoints: ['10.0.0.1:80'] }
  cart-next: { endpoints: ['10.0.0.2:80'] }
  internal: { endpoints: ['10.0.0.3:80'] }
  web: { endpoints: ['10.0.0.4:80'] }
  copy: { endpoints: ['10.0.0.5:80'] }
";

fn documents_of(text: &str) -> Vec<Arc<Document>> {
    let objects = trees(text).into_iter().flat_map(|tree| {
        match read_document(&"a.yaml".into(), &tree, UnknownFields::Refuse) {
            ReadOutcome::Objects(objects) => objects,
            other @ (ReadOutcome::NotOurs | ReadOutcome::Unreadable(_)) => panic!("{other:?}"),
        }
    });
    objects.map(|object| object.outcome.unwrap().0).collect()
}

/// The outcome of a RouteTest on what these routes serve.
fn outcome_on(routes: &str, spec: &str) -> Report {
    let group = GroupName::default_group();
    let all: GroupedDocuments = documents_of(&format!("{routes}---\n{}", route_test(spec)))
        .into_iter()
        .map(|document| (document.key.clone(), GroupedDocument::new(document, group.clone())))
        .collect();
    static CODEC: LazyLock<Codec> = LazyLock::new(|| Codec::new().unwrap());
    let codec = &*CODEC;
    let state = documents::offline(codec, &DocumentState::default(), Arc::new(all), &|_| false).unwrap();
    let answers = json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "raw",
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"name": "no", "match": {"path": "/no"}, "direct_response": {"status": 403}},
            {"name": "ok", "match": {"path": "/ok"}, "direct_response": {"status": 200}},
            {"match": {"prefix": "/", "dynamic_metadata": [{"filter": "f", "path": [{"key": "k"}], "value": {"present_match": true}}]},
             "route": {"cluster": "shop/cart"}},
            {"match": {"prefix": "/"}, "route": {"cluster": "shop/web"}},
        ]}],
    });
    let resources = [Arc::new(codec.resource_from_json(&answers).unwrap())].into_iter().collect();
    let raw = LayerGroup { resources, ..LayerGroup::default() };
    let base = Layer { groups: [(group, raw)].into_iter().collect() };
    let publisher = Publisher::new();
    let generated = &state.translated.translation.groups;
    publisher.publish(Revision(1), layer::merge(&base, &Layer::default(), generated));
    run_on(&publisher, route_tests(&state.translated.documents))
}

fn outcome(spec: &str) -> Report {
    outcome_on(ROUTES, spec)
}

/// Why the tests of a `spec` fail, by client.
fn wrong(spec: &str) -> Vec<(String, Vec<String>)> {
    let report = outcome(spec);
    let client = |case: &Case| case.client.map(|client| client.to_string()).unwrap_or_default();
    report.cases.iter().map(|case| (client(case), case.outcome.wrong.clone())).collect()
}

/// The spec and its one fault, which begins with the file.
const FAULTS: &[(&str, &str)] = &[
    ("tests: []", "5:3: error[missing-field] spec: write `tests` or `always` with at least one item"),
    ("tests: 1", "5:10: error[wrong-type] spec.tests: must be a list, not a number"),
    (
        "test: []\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:9: error[unknown-field] spec.test: there is no field \"test\"; did you mean `tests`?",
    ),
    (
        "tests:\n- { request: { host: a } }",
        "6:5: error[missing-field] spec.tests[0]: a test needs an `expect`",
    ),
    (
        "tests:\n- { expect: { rule: r } }",
        "6:5: error[missing-field] spec.tests[0]: a test needs a `request`, or a `call`",
    ),
    (
        "tests:\n- { request: { host: a }, expect: {} }",
        "6:37: error[missing-field] spec.tests[0].expect: says nothing; write one of rule, backends, timeout, retries, redirect, status, unmatched, denied, session, mirrors",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { backend: {} } }",
        "6:48: error[unknown-field] spec.tests[0].expect.backend: there is no field \"backend\"; did you mean `backends`?",
    ),
    (
        "tests:\n- { request: { path: /a }, expect: { rule: r } }",
        "6:16: error[missing-field] spec.tests[0].request: a request needs a `host`, or a `target` if the client is gRPC without a proxy",
    ),
    (
        "tests:\n- { request: { host: a, pth: /a }, expect: { rule: r } }",
        "6:32: error[unknown-field] spec.tests[0].request.pth: there is no field \"pth\"; did you mean `path`?",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { backends: { a: 90 } } }",
        "6:54: error[wrong-type] spec.tests[0].expect.backends.a: must be a text, in quotes if it looks like something else, not a number",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { backends: { a: '101%' } } }",
        "6:54: error[invalid-value] spec.tests[0].expect.backends.a: \"101%\" is no share; write 90%, >=85%, <=15%, or ~10% for at most one percent point more or less",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { backends: {} } }",
        "6:49: error[missing-field] spec.tests[0].expect.backends: says nothing; write the name of a backend with its share",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { timeout: 5 } }",
        "6:48: error[wrong-type] spec.tests[0].expect.timeout: must be a text, in quotes if it looks like something else, not a number",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { retries: -1 } }",
        "6:48: error[wrong-type] spec.tests[0].expect.retries: must be a whole number from 0 to 1000, not a number",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { redirect: { state: 301 } } }",
        "6:58: error[unknown-field] spec.tests[0].expect.redirect.state: there is no field \"state\"; did you mean `status`?",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { session: { cookie: a, header: b } } }",
        "6:48: error[invalid-value] spec.tests[0].expect.session: write `cookie: NAME`, `header: NAME`, or `none` in its place",
    ),
    (
        "tests:\n- { request: { host: a }, expect: { unmatched: yes please } }",
        "6:50: error[wrong-type] spec.tests[0].expect.unmatched: must be true or false, not a string",
    ),
    (
        "tests:\n- { call: s, target: 'xds:///a', expect: { rule: r } }",
        "6:13: error[invalid-value] spec.tests[0].call: \"s\" is no call; write package.Service/Method",
    ),
    (
        "tests:\n- { call: s/m, request: { path: /a }, target: a, expect: { rule: r } }",
        "6:35: error[invalid-value] spec.tests[0].request.path: `call` says this already; leave one of both out",
    ),
    (
        "clients: [envoy]\ntests:\n- { call: s/m, target: a, expect: { rule: r } }",
        "7:5: error[invalid-value] spec.tests[0]: only gRPC clients have a `target`, and none is among the `clients`",
    ),
    (
        "clients: [grpc]\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "7:5: error[invalid-value] spec.tests[0]: gRPC clients send only calls, and no other client is among the `clients`; write `call`",
    ),
    (
        "clients: []\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:12: error[invalid-value] spec.clients: there must be at least one client, or no `clients`",
    ),
    (
        "clients: [nginx]\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:13: error[invalid-value] spec.clients[0]: \"nginx\" is no client; write envoy, grpc-core, grpc-go, grpc-java or grpc-js, with a version if you like: envoy@1.38",
    ),
    (
        "group: g\nnode: n\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:10: error[invalid-value] spec.group: a test is about a `group` or a `node`; leave one of both out",
    ),
    (
        "group: ''\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:10: error[invalid-value] spec.group: \"\" is not a group name: use 1 to 512 bytes without control characters",
    ),
    (
        "policy: fail\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:11: error[invalid-value] spec.policy: \"fail\" is no policy; write tell, hold or refuse",
    ),
    (
        "defaults: { call: s/m }\ntests:\n- { request: { host: a }, expect: { rule: r } }",
        "5:21: error[unknown-field] spec.defaults.call: there is no field \"call\"; the fields are host, path, method, headers, scheme, target, random, runtime, metadata, filterState, healthy, routeConfig, listener, port, to, from, sni, alpn, tls, clientCert, passes",
    ),
    (
        "tests:\n- { name: '', request: { host: a }, expect: { rule: r } }",
        "6:13: error[invalid-value] spec.tests[0].name: must have 1 to 200 characters",
    ),
    (
        "always:\n- { when: { path: /a } }",
        "6:5: error[missing-field] spec.always[0]: needs `never` or `only`, such as `never: {backends: [internal]}`",
    ),
    (
        "always:\n- { never: {} }",
        "6:14: error[missing-field] spec.always[0].never: says nothing; write `backends` with at least one, or `unmatched: true`",
    ),
    (
        "always:\n- { never: { backends: [a] }, only: { backends: [a] } }",
        "6:39: error[invalid-value] spec.always[0].only: write `never` or `only`, not both",
    ),
    (
        "always:\n- { when: { path: { prefix: /a, exact: /b } }, never: { backends: [a] } }",
        "6:21: error[invalid-value] spec.always[0].when.path: must have one of exact, prefix, suffix, contains, regex",
    ),
    (
        "always:\n- { when: { path: { regex: '(?=a)' } }, never: { backends: [a] } }",
        "6:30: error[invalid-value] spec.always[0].when.path.regex: column 1: RE2 has no look-ahead: `(?=`; list what may be there, or use two routes",
    ),
    (
        "always:\n- { when: { not: {} }, never: { backends: [a] } }",
        "6:20: error[missing-field] spec.always[0].when.not: says nothing, and so leaves out every request",
    ),
];

#[test]
fn faults_have_file_line_column_path_and_what_would_be_right() {
    for (spec, expected) in FAULTS {
        assert_eq!(faults(spec), [format!("a.yaml:{expected}")], "{spec}");
    }
}

#[test]
fn tests_and_their_sizes_are_bounded() {
    let one = "- { request: { host: a }, expect: { rule: r } }\n";
    assert_eq!(faults(&format!("tests:\n{}", one.repeat(MAX_TESTS))), [""; 0]);
    let many = faults(&format!("tests:\n{}", one.repeat(MAX_TESTS + 1)));
    assert_eq!(many, ["a.yaml:6:5: error[too-many] spec.tests: there may be at most 1000"]);
    let long = format!(
        "tests:\n- {{ request: {{ host: a, headers: {{ x: '{}' }} }}, expect: {{ rule: r }} }}",
        "a".repeat(MAX_ITEM_BYTES)
    );
    let long = faults(&long);
    assert!(long.len() == 1 && long[0].contains("error[too-long] spec.tests[0]: has "), "{long:?}");
    let claim = "- { never: { backends: [a] } }\n".repeat(MAX_ALWAYS + 1);
    let many = faults(&format!("always:\n{claim}"));
    assert_eq!(many, ["a.yaml:6:5: error[too-many] spec.always: there may be at most 32"]);
}

/// The request, what holds, what does not, and what is said then.
const EXPECTATIONS: &[(&str, &str, &str, &str)] = &[
    (
        "path: /cart",
        "rule: Route/shop/web/0",
        "rule: Route/shop/web/1",
        "rule: expected Route/shop/web/1, got Route/shop/web/0/0",
    ),
    (
        "path: /cart",
        "rule: Route/shop/web/0/0",
        "rule: Route/shop/web/0/1",
        "rule: expected Route/shop/web/0/1, got Route/shop/web/0/0",
    ),
    (
        "path: /shop.Cart/Add",
        "rule: Route/shop/web/calls",
        "rule: Route/shop/web/call",
        "rule: expected Route/shop/web/call, got Route/shop/web/calls/0",
    ),
    (
        "path: /nothing",
        "unmatched: true",
        "rule: Route/shop/web/0",
        "rule: expected Route/shop/web/0, got no route: no route takes the request",
    ),
    (
        "path: /cart",
        "unmatched: false",
        "unmatched: true",
        "unmatched: expected true, got false: to shop/cart",
    ),
    (
        "path: /cart",
        "backends: { cart: 100% }",
        "backends: { cart-next: 100% }",
        "backends.cart-next: expected 100 %, got 0 %; backends: the request goes 100 % to shop/cart",
    ),
    (
        "path: /cart",
        "backends: { shop/cart: 100% }",
        "backends: { other/cart: 100% }",
        "backends.other/cart: expected 100 %, got 0 %; backends: the request goes 100 % to shop/cart",
    ),
    (
        "path: /beta",
        "backends: { cart: 10%, cart-next: 90% }",
        "backends: { cart: 11% }",
        "backends.cart: expected 11 %, got 10 %; backends: the request goes 10 % to shop/cart, 90 % to shop/cart-next",
    ),
    (
        "path: /beta",
        "backends: { cart: '>=10%' }",
        "backends: { cart: '>=10.1%' }",
        "backends.cart: expected at least 10.1 %, got 10 %; backends: the request goes 10 % to shop/cart, 90 % to shop/cart-next",
    ),
    (
        "path: /beta",
        "backends: { cart: '<=10%' }",
        "backends: { cart: '<=9.9%' }",
        "backends.cart: expected at most 9.9 %, got 10 %; backends: the request goes 10 % to shop/cart, 90 % to shop/cart-next",
    ),
    (
        "path: /beta",
        "backends: { cart: '~11%' }",
        "backends: { cart: '~12%' }",
        "backends.cart: expected about 12 %, got 10 %; backends: the request goes 10 % to shop/cart, 90 % to shop/cart-next",
    ),
    ("path: /cart", "timeout: 5s", "timeout: 6s", "timeout: expected 6s, got 5s"),
    ("path: /beta", "timeout: 15s", "timeout: none", "timeout: expected none, got 15s"),
    ("path: /cart", "retries: 3", "retries: 2", "retries: expected 2, got 3"),
    ("path: /beta", "retries: 0", "retries: 1", "retries: expected 1, got 0"),
    (
        "path: /old",
        "redirect: { status: 301, location: 'http://new.test:10000/old' }",
        "redirect: { status: 302 }",
        "redirect.status: expected 302, got 301",
    ),
    (
        "path: /old",
        "redirect: {}",
        "redirect: { location: 'http://new.test/' }",
        "redirect.location: expected http://new.test/, got http://new.test:10000/old",
    ),
    (
        "path: /old",
        "status: 301",
        "backends: { cart: 100% }",
        "backends.cart: expected 100 %, got 0 %; backends: the request goes 100 % redirected to http://new.test:10000/old",
    ),
    (
        "path: /cart",
        "denied: false",
        "redirect: {}",
        "redirect: expected a redirect, got no redirect: to shop/cart",
    ),
    ("path: /gone", "status: 500", "status: 200", "status: expected 200, got 500"),
    (
        "path: /cart",
        "session: { cookie: sid }",
        "session: { header: sid }",
        "session: expected header `sid`, got cookie `sid`",
    ),
    ("path: /beta", "session: none", "session: { cookie: sid }", "session: expected cookie `sid`, got none"),
    (
        "path: /cart",
        "mirrors: { copy: 20% }",
        "mirrors: { copy: 21% }",
        "mirrors.copy: expected 21 %, got 20 %",
    ),
    (
        "path: /beta",
        "mirrors: { copy: 0% }",
        "mirrors: { copy: 20% }",
        "mirrors.copy: expected 20 %, got 0 %",
    ),
    (
        "path: /no, routeConfig: raw",
        "denied: true",
        "denied: false",
        "denied: expected false, got true: the route itself answers",
    ),
    (
        "path: /ok, routeConfig: raw",
        "denied: false",
        "denied: true",
        "denied: expected true, got false: the route itself answers",
    ),
];

#[test]
fn every_field_of_expect_is_compared() {
    for (request, holds, fails, said) in EXPECTATIONS {
        let spec = |expect: &str| {
            format!("tests:\n- {{ request: {{ host: shop.test, {request} }}, expect: {{ {expect} }} }}")
        };
        assert_eq!(wrong(&spec(holds)), [("envoy@1.40".to_owned(), vec![])], "{request} {holds}");
        let found: Vec<String> = wrong(&spec(fails)).into_iter().map(|(_, wrong)| wrong.join("; ")).collect();
        assert_eq!(found, [(*said).to_owned()], "{request} {fails}");
    }
}

#[test]
fn what_is_not_known_fails_the_test_if_it_matters() {
    let spec = |expect: &str, more: &str| {
        format!(
            "tests:\n- {{ request: {{ host: a, path: /x, routeConfig: raw{more} }}, expect: {{ {expect} }} }}"
        )
    };
    let open = wrong(&spec("backends: { cart: 100% }", ""));
    assert_eq!(
        open[0].1,
        [
            "depends on not: dynamic metadata f.k of route 2: backends.cart: expected 100 %, got 0 %; backends: the request goes 100 % to shop/web"
        ]
    );
    assert_eq!(wrong(&spec("backends: { cart: 100% }", ", metadata: { f.k: v }"))[0].1, [""; 0]);
    // Both ways end in a cluster.
    assert_eq!(wrong(&spec("unmatched: false", ""))[0].1, [""; 0]);
}

#[test]
fn a_test_asks_the_clients_that_can_send_its_request() {
    let clients =
        |spec: &str| wrong(spec).into_iter().map(|(client, _)| client).collect::<Vec<_>>().join(" ");
    let all = "envoy@1.40 grpc-core@1.85 grpc-go@1.85 grpc-java@1.80 grpc-js@1.14";
    let grpc = all.split_once(' ').unwrap().1;
    let call = "expect: { backends: { cart: 100% } }";
    assert_eq!(
        clients(&format!("tests:\n- {{ call: shop.Cart/Add, request: {{ host: shop.test }}, {call} }}")),
        all
    );
    assert_eq!(
        clients(&format!("tests:\n- {{ call: shop.Cart/Add, target: 'xds:///shop.test', {call} }}")),
        grpc
    );
    assert_eq!(
        clients(&format!("tests:\n- {{ request: {{ host: shop.test, path: /shop.Cart/Add }}, {call} }}")),
        "envoy@1.40"
    );
    let narrow = format!(
        "clients: [envoy@1.38, go]\ntests:\n- {{ call: shop.Cart/Add, request: {{ host: shop.test }}, {call} }}"
    );
    assert_eq!(clients(&narrow), "envoy@1.38 grpc-go@1.85");
    assert_eq!(outcome(&narrow).totals(), Totals { passed: 2, failed: 0 });
    let nobody = outcome(&format!("group: other\n{narrow}"));
    assert_eq!(nobody.cases[0].outcome.wrong, ["nothing is served to the group other"]);
}

#[test]
fn defaults_count_where_a_test_says_nothing() {
    let spec = "defaults: { host: shop.test, port: 10000, headers: { x-internal: 'yes' } }
tests:
- { request: { path: /internal }, expect: { backends: { internal: 100% } } }
- { request: { path: /internal, headers: { X-Internal: 'no' } }, expect: { unmatched: true } }
- { request: { path: /internal, port: 9 }, expect: { unmatched: true } }
- { request: { curl: 'curl http://shop.test:10000/web' }, expect: { backends: { web: 100% } } }
- { call: shop.Cart/Add, target: 'xds:///shop.test', expect: { backends: { cart: 100% } } }";
    let failed: Vec<_> = wrong(spec).into_iter().filter(|(_, wrong)| !wrong.is_empty()).collect();
    assert_eq!(failed, []);
}

#[test]
fn claims_about_all_requests_hold_or_have_a_counterexample() {
    // What holds, and what does not, with what is said.
    let holds = [
        "{ when: { path: { prefix: /internal }, not: { headers: { x-internal: present } } }, never: { backends: [internal] } }",
        "{ when: { headers: { x-internal: absent } }, never: { backends: [internal] } }",
        "{ when: { host: other.test }, only: { backends: [none] } }",
        "{ when: { path: /beta }, only: { backends: [cart, cart-next] } }",
        "{ when: { host: shop.test, path: { prefix: /web/ } }, never: { unmatched: true } }",
        "{ when: { path: { suffix: .exe } }, never: { backends: [copy] } }",
    ];
    for claim in holds {
        let report = outcome(&format!("clients: [envoy]\nalways:\n- {claim}"));
        assert_eq!(report.cases[0].outcome.wrong, [""; 0], "{claim}");
    }
    let broken = [
        // One of several values is enough.
        (
            "{ when: { headers: { x-internal: { regex: 'n.*' } } }, never: { backends: [internal] } }",
            "never: GET http://shop.test/internal, header x-internal: \"n\", header x-internal: \"yes\", port 10000 goes 100 % to shop/internal",
        ),
        (
            "{ when: { path: { prefix: /internal } }, never: { backends: [internal] } }",
            "never: GET http://shop.test/internal, header x-internal: \"yes\", port 10000 goes 100 % to shop/internal",
        ),
        (
            "{ when: { path: /beta }, never: { backends: [cart] } }",
            "never: GET http://shop.test/beta, port 10000 goes 10 % to shop/cart, 90 % to shop/cart-next",
        ),
        (
            "{ when: { path: { prefix: /web } }, never: { unmatched: true } }",
            "never: GET http://shop.test/weba, port 10000 goes 100 % no route takes the request; never: GET http://any/web, port 10000 goes 100 % no virtual host takes \"any\"",
        ),
        (
            "{ when: { method: POST, path: { contains: n } }, only: { backends: [web] } }",
            "only: POST http://shop.test/beta/n, port 10000 goes 10 % to shop/cart, 90 % to shop/cart-next; only: POST http://shop.test/internal, header x-internal: \"yes\", port 10000 goes 100 % to shop/internal; only: POST http://shop.test/shop.Cart/n, port 10000 goes 100 % to shop/cart",
        ),
    ];
    for (claim, said) in broken {
        let report = outcome(&format!("clients: [envoy]\nalways:\n- {claim}"));
        assert_eq!(report.cases[0].outcome.wrong.join("; "), said, "{claim}");
        assert!(!report.cases[0].outcome.explanations.is_empty());
    }
    let grpc = "clients: [go]\nalways:\n- { never: { backends: [internal] } }";
    assert_eq!(
        outcome(grpc).cases[0].outcome.wrong,
        ["", ":10000"].map(|port| format!(
            "never: call of internal/a at xds:///shop.test{port}, header x-internal: \"yes\" goes 100 % to shop/internal"
        ))
    );
}

#[test]
fn coverage_counts_what_requests_touch() {
    let report = outcome(
        "tests:
- { request: { host: shop.test, path: /cart }, expect: { unmatched: false } }
- { request: { host: shop.test, path: /internal/x }, expect: { unmatched: true } }",
    );
    let (_, coverage) = report.coverage.first_key_value().unwrap();
    assert_eq!(coverage.to_string(), "routes 1/8, conditions 3/10, hosts 1/1, backends 1/4");
    let untouched: Vec<String> = coverage.untouched().into_iter().map(|one| one.what).collect();
    assert!(!untouched.iter().any(|what| what.contains("`x-internal`")), "{untouched:?}");
    assert!(untouched.iter().any(|what| what.starts_with("route Route/shop/web/6/0")), "{untouched:?}");
}

/// A RouteConfiguration with everything that `router_check_tool` compares.
fn checked_routes() -> serde_json::Value {
    let header = |key: &str, value: &str| json!({"header": {"key": key, "value": value}});
    json!({
        "@type": ResourceType::RouteConfiguration.type_url(), "name": "raw",
        "request_headers_to_add": [header("x-order", "table")],
        "virtual_hosts": [
            {"name": "shop", "domains": ["shop.test"],
             "virtual_clusters": [{"name": "reads", "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]}],
             "request_headers_to_add": [header("x-order", "host")],
             "response_headers_to_add": [header("x-served", "yes")],
             "routes": [
                {"match": {"prefix": "/cart"}, "request_headers_to_remove": ["x-gone"],
                 "request_headers_to_add": [header("x-order", "route"), header("x-path", "%REQ(:path)%"), header("x-from", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"), header("x-now", "%START_TIME%")],
                 "route": {"cluster": "cart", "prefix_rewrite": "/basket", "host_rewrite_literal": "cart.test", "append_x_forwarded_host": true}},
                {"match": {"prefix": "/v"}, "route": {"cluster": "regex", "regex_rewrite": {"pattern": {"regex": "^/v([0-9]+)/(.*)$"}, "substitution": "/\\2/\\1"}}},
                {"match": {"prefix": "/old"}, "redirect": {"prefix_rewrite": "/new", "response_code": "FOUND"}},
                {"match": {"prefix": "/rx"}, "redirect": {"regex_rewrite": {"pattern": {"regex": "[0-9]"}, "substitution": "n"}, "host_redirect": "b.test"}},
                {"match": {"path": "/ping"}, "direct_response": {"status": 200, "body": {"inline_string": "pong"}}},
                {"match": {"prefix": "/part", "runtime_fraction": {"runtime_key": "part", "default_value": {"numerator": 0}}}, "route": {"cluster": "part"}},
                {"match": {"prefix": "/most", "runtime_fraction": {"runtime_key": "most", "default_value": {"numerator": 100}}}, "route": {"cluster": "most"}},
                {"match": {"prefix": "/split"}, "route": {"weighted_clusters": {"clusters": [
                    {"name": "one", "weight": 30, "request_headers_to_add": [header("x-order", "member")]}, {"name": "two", "weight": 70, "host_rewrite_literal": "two.test"}]}}},
                {"match": {"prefix": "/named"}, "route": {"cluster_header": "x-to"}},
                {"match": {"prefix": "/plugin"}, "route": {"cluster_specifier_plugin": "p"}},
                {"match": {"prefix": "/meta", "dynamic_metadata": [{"filter": "f", "path": [{"key": "k"}], "value": {"string_match": {"exact": "v"}}}]}, "route": {"cluster": "meta"}},
            ]},
            {"name": "secure", "domains": ["secure.test"], "require_tls": "EXTERNAL_ONLY", "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "web"}}]},
        ],
        "cluster_specifier_plugins": [{"extension": {"name": "p", "typed_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "x"}}}],
    })
}

/// Why a test of a RouterCheck fails; `test` has `input` and `validate`.
fn check_fails(test: &str) -> Vec<String> {
    let text = format!("{{tests: [{{test_name: t, {test}}}]}}");
    let test = read_router_checks(&"a.yaml".into(), &trees(&text)[0], "raw").unwrap();
    let codec = Codec::new().unwrap();
    let resource = codec.resource_from_json(&checked_routes()).unwrap();
    let resources = [Arc::new(resource)].into_iter().collect();
    let raw = LayerGroup { resources, ..LayerGroup::default() };
    let group = GroupName::default_group();
    let base = Layer { groups: [(group.clone(), raw)].into_iter().collect() };
    let publisher = Publisher::new();
    publisher.publish(Revision(1), layer::merge(&base, &Layer::default(), &xds_cache::Generated::default()));
    let place = xds_codec::Place { file: "a.yaml".into(), line: 1, column: 1 };
    let key = xds_routes::DocumentKey::new(xds_routes::Kind::RouterCheck, "default", "a");
    let report = run_loose(&publisher, std::iter::empty(), &[Loose { key, place, group, test }]);
    assert_eq!(report.cases.len(), 1);
    report.cases[0].outcome.wrong.clone()
}

/// The input without `method`, what holds, and what does not with its message.
const CHECKS: &[(&str, &str, &str, &str)] = &[
    (
        "authority: shop.test, path: '/cart/1?x=1'",
        "cluster_name: cart",
        "cluster_name: 'x'",
        "cluster_name: expected \"x\", got \"cart\"",
    ),
    (
        "authority: shop.test, path: '/cart/1?x=1'",
        "path_rewrite: '/basket/1?x=1'",
        "path_rewrite: /cart",
        "path_rewrite: expected \"/cart\", got \"/basket/1?x=1\"",
    ),
    (
        "authority: shop.test, path: /cart",
        "host_rewrite: cart.test",
        "host_rewrite: shop.test",
        "host_rewrite: expected \"shop.test\", got \"cart.test\"",
    ),
    (
        "authority: shop.test, path: /cart",
        "virtual_host_name: shop",
        "virtual_host_name: ''",
        "virtual_host_name: expected \"\", got \"shop\"",
    ),
    (
        "authority: shop.test, path: /cart",
        "virtual_cluster_name: reads",
        "virtual_cluster_name: other",
        "virtual_cluster_name: expected \"other\", got \"reads\"",
    ),
    (
        "authority: shop.test, path: /cart, additional_request_headers: [{key: x-gone, value: '1'}]",
        "request_header_matches: [{name: x-gone, present_match: false}]",
        "request_header_matches: [{name: x-gone}]",
        "request_header_matches: expected \"x-gone\" to be present, got nothing",
    ),
    (
        "authority: shop.test, path: /cart",
        "request_header_matches: [{name: x-path, string_match: {exact: /cart}}, {name: x-from, exact_match: 127.0.0.1}]",
        "request_header_matches: [{name: x-path, string_match: {exact: /basket}}]",
        "request_header_matches: expected \"x-path\" to be \"/basket\", got \"/cart\"",
    ),
    (
        "authority: shop.test, path: /cart",
        "request_header_fields: [{key: x-order, value: route}, {key: x-forwarded-host, value: shop.test}]",
        "request_header_fields: [{key: x-order, value: table}]",
        "request_header_fields: expected \"x-order\" to be \"table\", got \"route\", \"host\", \"table\"",
    ),
    (
        "authority: shop.test, path: /cart",
        "request_header_fields: [{key: x-envoy-original-path, value: /cart}]",
        "request_header_matches: [{name: x-now}]",
        "request_header_matches: cannot be decided: the header \"x-now\" is not known: the command %START_TIME% is not modelled",
    ),
    (
        "authority: shop.test, path: /cart",
        "response_header_fields: [{key: x-served, value: 'yes'}]",
        "response_header_fields: [{key: x-served, value: ''}]",
        "response_header_fields: expected \"x-served\" to be \"\", got \"yes\"",
    ),
    (
        "authority: shop.test, path: '/v2/a/b?q'",
        "path_rewrite: '/a/b/2?q'",
        "path_rewrite: ''",
        "path_rewrite: expected \"\", got \"/a/b/2?q\"",
    ),
    (
        "authority: shop.test, path: '/old/x?q=1', ssl: true",
        "{path_redirect: 'https://shop.test/new/x?q=1', code_redirect: 302}",
        "{code_redirect: 301}",
        "code_redirect: expected 301, got 302",
    ),
    (
        "authority: shop.test, path: /old/x",
        "request_header_fields: [{key: ':path', value: /new/x}]",
        "request_header_fields: [{key: ':path', value: /old/x}]",
        "request_header_fields: expected \":path\" to be \"/old/x\", got \"/new/x\"",
    ),
    (
        "authority: shop.test, path: '/rx/12?3'",
        "path_redirect: 'http://b.test/rx/nn?3'",
        "path_redirect: ''",
        "path_redirect: expected \"\", got \"http://b.test/rx/nn?3\"",
    ),
    (
        "authority: shop.test, path: /ping",
        "{cluster_name: '', virtual_host_name: '', path_redirect: 'http://shop.test/ping', code_redirect: 200}",
        "code_redirect: 0",
        "code_redirect: expected 0, got 200",
    ),
    (
        "authority: shop.test, path: /ping, additional_response_headers: [{key: x-own, value: '1'}]",
        "response_header_matches: [{name: content-length, range_match: {start: 4, end: '5'}}, {name: x-own}, {name: content-type, string_match: {prefix: TEXT, ignore_case: true}}]",
        "response_header_matches: [{name: content-type, string_match: {safe_regex: {regex: '[a-z]+'}}}]",
        "response_header_matches: expected \"content-type\" to be regex \"[a-z]+\", got \"text/plain\"",
    ),
    // A fraction of 0 counts as 1, and only with its own key.
    (
        "authority: shop.test, path: /part, runtime: part",
        "cluster_name: part",
        "cluster_name: ''",
        "cluster_name: expected \"\", got \"part\"",
    ),
    (
        "authority: shop.test, path: /part, runtime: part, random_value: 1",
        "cluster_name: ''",
        "cluster_name: part",
        "cluster_name: expected \"part\", got \"\"",
    ),
    (
        "authority: shop.test, path: /part",
        "cluster_name: ''",
        "cluster_name: part",
        "cluster_name: expected \"part\", got \"\"",
    ),
    (
        "authority: shop.test, path: /most",
        "cluster_name: ''",
        "cluster_name: most",
        "cluster_name: expected \"most\", got \"\"",
    ),
    (
        "authority: shop.test, path: /split, random_value: '129'",
        "{cluster_name: one, host_rewrite: shop.test}",
        "cluster_name: two",
        "cluster_name: expected \"two\", got \"one\"",
    ),
    (
        "authority: shop.test, path: /split, randomValue: 30",
        "{clusterName: two, hostRewrite: two.test}",
        "cluster_name: one",
        "cluster_name: expected \"one\", got \"two\"",
    ),
    (
        "authority: shop.test, path: /split",
        "request_header_fields: [{key: x-order, value: member}]",
        "request_header_fields: [{key: x-order, value: route}]",
        "request_header_fields: expected \"x-order\" to be \"route\", got \"member\", \"host\", \"table\"",
    ),
    (
        "authority: shop.test, path: /named, additional_request_headers: [{key: x-to, value: web}]",
        "cluster_name: web",
        "cluster_name: ''",
        "cluster_name: expected \"\", got \"web\"",
    ),
    (
        "authority: shop.test, path: /named",
        "cluster_name: ''",
        "cluster_name: web",
        "cluster_name: expected \"web\", got \"\"",
    ),
    (
        "authority: shop.test, path: /plugin",
        "path_rewrite: /plugin",
        "cluster_name: ''",
        "cluster_name: cannot be decided: the plugin \"p\" chooses the cluster",
    ),
    (
        "authority: shop.test, path: /meta, dynamic_metadata: [{metadata_namespace: f, value: {k: v}}]",
        "cluster_name: meta",
        "cluster_name: ''",
        "cluster_name: expected \"\", got \"meta\"",
    ),
    (
        "authority: shop.test, path: /meta",
        "cluster_name: ''",
        "cluster_name: meta",
        "cluster_name: expected \"meta\", got \"\"",
    ),
    (
        "authority: none.test, path: /",
        "{cluster_name: '', path_redirect: '', code_redirect: 0}",
        "virtual_host_name: shop",
        "virtual_host_name: expected \"shop\", got \"\"",
    ),
    (
        "authority: secure.test, path: /a",
        "{path_redirect: 'https://secure.test/a', code_redirect: 301}",
        "cluster_name: web",
        "cluster_name: expected \"web\", got \"\"",
    ),
    (
        "authority: secure.test, path: /a, internal: true",
        "cluster_name: web",
        "code_redirect: 301",
        "code_redirect: expected 301, got 0",
    ),
    (
        "authority: secure.test, path: /a, ssl: true",
        "cluster_name: web",
        "code_redirect: 301",
        "code_redirect: expected 301, got 0",
    ),
];

#[test]
fn router_checks_compare_what_the_tool_compares() {
    for (input, holds, fails, message) in CHECKS {
        let test = |validate: &str| {
            let validate =
                if validate.starts_with('{') { validate.to_owned() } else { format!("{{{validate}}}") };
            check_fails(&format!("input: {{method: GET, {input}}}, validate: {validate}"))
        };
        assert_eq!(test(holds), [""; 0], "{input} {holds}");
        assert_eq!(test(fails), [*message], "{input} {fails}");
    }
}

/// A test, and its only fault.
const CHECK_FAULTS: &[(&str, &str)] = &[
    (
        "{test_name: t, input: {authority: a, path: /, method: GET, hots: b}, validate: {cluster_name: c}}",
        "2:68: error[unknown-field] tests[0].input.hots: there is no field \"hots\"; the fields are authority, path, method, random_value, ssl, internal, runtime, additional_request_headers, additional_response_headers, dynamic_metadata",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET}, validate: {clustername: c}}",
        "error[unknown-field] tests[0].validate.clustername: there is no field \"clustername\"; did you mean `clusterName`?",
    ),
    (
        "{test_name: t, input: {authority: a, path: /}, validate: {cluster_name: c}}",
        "error[missing-field] tests[0].input: needs `method`",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET}, validate: {}}",
        "error[missing-field] tests[0].validate: says nothing;",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET}, validate: {request_header_matches: [{name: a, string_match: {safe_regex: {regex: '('}}}]}}",
        "error[invalid-value] tests[0].validate.request_header_matches[0].string_match.safe_regex: ",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET}, validate: {request_header_matches: [{name: a, exact_match: b, presence_match: true}]}}",
        "error[unknown-field] tests[0].validate.request_header_matches[0].presence_match: there is no field \"presence_match\"; did you mean `present_match`?",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET, dynamic_metadata: [{metadata_namespace: f, value: {k: [1]}}]}, validate: {cluster_name: c}}",
        "conditions on a list are not modelled",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET, additional_request_headers: [{key: ':path', value: b}]}, validate: {cluster_name: c}}",
        "other fields of `input` say this",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET, random_value: -1}, validate: {cluster_name: c}}",
        "must be a whole number from 0 to 2147483647",
    ),
    (
        "{test_name: t, input: {authority: a, path: /, method: GET, random_value: 1, randomValue: 2}, validate: {cluster_name: c}}",
        "is the same field as `random_value`",
    ),
];

#[test]
fn faults_of_router_checks_have_places() {
    let faults = |test: &str| {
        let text = format!("tests:\n- {test}\n");
        let faults = read_router_checks(&"a.yaml".into(), &trees(&text)[0], "raw").unwrap_err();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (test, expected) in CHECK_FAULTS {
        let found = faults(test);
        assert!(found.len() == 1 && found[0].contains(expected), "{test}\n{found:#?}");
    }
}
