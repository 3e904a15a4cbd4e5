//! The examples of the specification as they stand, and what is refused.

#![expect(clippy::panic, clippy::wildcard_enum_match_arm, reason = "helpers of tests")]

use std::fmt::Write;

use super::*;
use crate::model::{GroupMatch, HeaderValue};
use crate::read::testing::{clean, documents, findings};

/// The contents of splits and groups, one line for each document.
fn shown(text: &str) -> Vec<String> {
    let show = |spec: &Spec| match spec {
        Spec::TrafficSplit(split) => show_split(split),
        Spec::HttpRouteGroup(group) => group.matches.iter().map(show_match).collect::<Vec<_>>().join("; "),
        Spec::Service(service) => {
            let ports = service.ports.iter().map(|port| format!("{}->{:?}", port.port, port.target));
            ports.collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    };
    documents(text).iter().map(|document| format!("{}: {}", document.key, show(&document.spec))).collect()
}

fn show_split(split: &TrafficSplit) -> String {
    let mut text = split.service.clone();
    for backend in &split.backends {
        let _ = write!(text, " {}={}", backend.service, backend.weight);
    }
    for (_, name) in &split.matches {
        let _ = write!(text, " if {name}");
    }
    text
}

fn show_match(one: &GroupMatch) -> String {
    let mut text = one.name.clone();
    if let Some(regex) = &one.path_regex {
        let _ = write!(text, " {regex}");
    }
    let _ = write!(text, " {:?}", one.methods);
    for header in &one.headers {
        let HeaderValue::Regex(regex) = &header.value else { panic!("no expression") };
        let _ = write!(text, " {}~{regex}", header.name);
    }
    text
}

fn split(version: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: split.smi-spec.io/{version}, kind: TrafficSplit, metadata: {{name: s}}, spec: {spec}}}"
    )
}

fn group(body: &str) -> String {
    format!("{{apiVersion: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, metadata: {{name: g}}, {body}}}")
}

/// Examples 1 to 10: those in the text of the TrafficSplit page, which have no `apiVersion`.
const PAGE: &str = "
kind: TrafficSplit
metadata:
  name: canary
spec:
  # The root service that clients use to connect to the destination application.
  service: website
  # Services inside the namespace with their own selectors, endpoints and configuration.
  backends:
  - service: website-v1
    weight: 90
  - service: website-v2
    weight: 10
---
kind: TrafficSplit
metadata:
  name: ab-test
spec:
  service: website
  matches:
  - kind: HTTPRouteGroup
    name: ab-test
  backends:
  - service: website-v1
    weight: 0
  - service: website-v2
    weight: 100
---
kind: HTTPRouteGroup
metadata:
  name: ab-test
matches:
- name: firefox-users
  headers:
    user-agent: \".*Firefox.*\"
---
kind: Service
apiVersion: v1
metadata:
  name: green-birds
spec:
  selector:
    app: birds
    color: green
  ports:
  - name: grpc
    port: 8080
    targetPort: 8081
  - name: rest
    port: 9090
---
kind: Service
apiVersion: v1
metadata:
  name: blue-birds
spec:
  selector:
    app: birds
    color: blue
  ports:
  - name: grpc
    port: 1024
---
    kind: TrafficSplit
    metadata:
      name: foobar-rollout
    spec:
      service: foobar
      backends:
      - service: foobar-v1
        weight: 100
      - service: foobar-v2
        weight: 0
---
    kind: TrafficSplit
    metadata:
      name: foobar-rollout
    spec:
      service: foobar
      backends:
      - service: foobar-v1
        weight: 1000
      - service: foobar-v2
        weight: 500
---
    kind: TrafficSplit
    metadata:
      name: foobar-rollout
    spec:
      service: foobar
      backends:
      - service: foobar-v2
        weight: 1
---
    kind: TrafficSplit
    metadata:
      name: my-split
    spec:
      service: foobar
      backends:
      - service: foobar-next
        weight: 100
      - service: foobar
        weight: 900
---
    kind: TrafficSplit
    metadata:
      name: my-canary
    spec:
      service: web
      backends:
      - service: web-next
        weight: 100
      - service: web-current
        weight: 900
";

#[test]
fn the_examples_of_the_traffic_split_page_are_read_as_they_stand() {
    let expected = [
        "TrafficSplit default/canary: website website-v1=90 website-v2=10",
        "TrafficSplit default/ab-test: website website-v1=0 website-v2=100 if ab-test",
        "HTTPRouteGroup default/ab-test: firefox-users [] user-agent~.*Firefox.*",
        "Service default/green-birds: 8080->Number(8081) 9090->Number(9090)",
        "Service default/blue-birds: 1024->Number(1024)",
        "TrafficSplit default/foobar-rollout: foobar foobar-v1=100 foobar-v2=0",
        "TrafficSplit default/foobar-rollout: foobar foobar-v1=1000 foobar-v2=500",
        "TrafficSplit default/foobar-rollout: foobar foobar-v2=1",
        "TrafficSplit default/my-split: foobar foobar-next=100 foobar=900",
        "TrafficSplit default/my-canary: web web-next=100 web-current=900",
    ];
    assert_eq!(shown(PAGE), expected);
    assert_eq!(findings(PAGE), vec!["warning[missing-version] "; 8]);
}

/// Example 11.
#[test]
fn weights_of_the_first_version_are_quantities() {
    let table = [
        (
            "[{service: a, weight: 10m}, {service: b, weight: 100m}, {service: c, weight: 1500m}]",
            "r a=10 b=100 c=1500",
        ),
        ("[{service: a, weight: 1}, {service: b, weight: 0m}]", "r a=1000 b=0"),
        ("[{service: a, weight: 1}, {service: b, weight: 500m}]", "r a=1000 b=500"),
        ("[{service: a, weight: 1.5}, {service: b, weight: '2k'}]", "r a=1500 b=2000000"),
    ];
    for (backends, expected) in table {
        let text = split("v1alpha1", &format!("{{service: r, backends: {backends}}}"));
        assert_eq!(shown(&text), [format!("TrafficSplit default/s: {expected}")]);
        assert_eq!(findings(&text), Vec::<String>::new());
    }
}

/// Examples 12 to 16, in the shapes of all versions: `matches` at the top or under `spec`, headers as map or as list.
#[test]
fn the_examples_of_the_traffic_specs_page_are_read() {
    let text = "
apiVersion: specs.smi-spec.io/v1alpha1
kind: HTTPRouteGroup
metadata:
  name: the-routes
matches:
- name: metrics
  pathRegex: \"/metrics\"
  methods:
  - GET
- name: health
  pathRegex: \"/ping\"
  methods: [\"*\"]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata:
  name: the-routes
spec:
  matches:
  - name: everything
    pathRegex: \".*\"
    methods: [\"*\"]
---
apiVersion: specs.smi-spec.io/v1alpha2
kind: HTTPRouteGroup
metadata:
  name: the-routes
matches:
- name: android-insiders
  headers:
  - user-agent: \".*Android.*\"
  - cookie: \"^(.*?;)?(type=insider)(;.*)?$\"
- name: firefox-users
  headers:
  - user-agent: \".*Firefox.*\"
---
apiVersion: specs.smi-spec.io/v1alpha3
kind: HTTPRouteGroup
metadata:
  name: the-routes
spec:
  matches:
  - name: iphone-users
    pathRegex: \"/api/.*\"
    methods:
    - GET
    - HEAD
    headers:
      User-Agent: \".*iPhone.*\"
      host: a.example.com
";
    let expected = [
        "HTTPRouteGroup default/the-routes: metrics /metrics [\"GET\"]; health /ping []",
        "HTTPRouteGroup default/the-routes: everything .* []",
        "HTTPRouteGroup default/the-routes: android-insiders [] user-agent~.*Android.* \
         cookie~^(.*?;)?(type=insider)(;.*)?$; firefox-users [] user-agent~.*Firefox.*",
        "HTTPRouteGroup default/the-routes: iphone-users /api/.* [\"GET\", \"HEAD\"] user-agent~.*iPhone.* \
         :authority~a.example.com",
    ];
    assert_eq!(shown(text), expected);
    let errors = findings(text).into_iter().filter(|finding| finding.starts_with("error")).count();
    assert_eq!(errors, 0);
}

#[test]
fn a_weight_is_a_whole_number() {
    let table = [
        ("10.0", None, Some(10_u64)),
        ("0", None, Some(0)),
        ("4294967295", None, Some(4_294_967_295)),
        ("'10'", Some("warning[quoted-number]"), Some(10)),
        ("-1", Some("error[out-of-range]"), None),
        ("0.5", Some("error[out-of-range]"), None),
        ("4294967296", Some("error[out-of-range]"), None),
        ("1e30", Some("error[out-of-range]"), None),
        ("10%", Some("error[bad-weight]"), None),
        ("'-1'", Some("error[bad-weight]"), None),
        ("'1.0'", Some("error[bad-weight]"), None),
        ("'4294967296'", Some("error[bad-weight]"), None),
        ("500m", Some("error[bad-weight]"), None),
        ("many", Some("error[bad-weight]"), None),
        ("true", Some("error[wrong-type]"), None),
        ("[1]", Some("error[wrong-type]"), None),
    ];
    for (weight, finding, expected) in table {
        let text =
            split("v1alpha2", &format!("{{service: r, backends: [{{service: a, weight: {weight}}}]}}"));
        let finding: Vec<_> = finding.iter().map(|code| format!("{code} spec.backends[0].weight")).collect();
        assert_eq!(findings(&text), finding, "{weight}");
        if let Some(expected) = expected {
            assert_eq!(shown(&text), [format!("TrafficSplit default/s: r a={expected}")]);
        }
    }
}

#[test]
fn what_is_wrong_with_a_split_is_said_where_it_is() {
    let one = "backends: [{service: a, weight: 1}]";
    let table = [
        ("{}".to_owned(), vec!["error[missing-field] spec", "error[missing-field] spec"]),
        (format!("{{{one}}}"), vec!["error[missing-field] spec"]),
        ("{service: r}".to_owned(), vec!["error[missing-field] spec"]),
        ("{service: r, backends: []}".to_owned(), vec!["error[missing-field] spec.backends"]),
        ("{service: r, backends: {a: 1}}".to_owned(), vec!["error[wrong-type] spec.backends"]),
        ("{service: r, backends: [{service: a}]}".to_owned(), vec!["error[missing-field] spec.backends[0]"]),
        ("{service: r, backends: [{weight: 1}]}".to_owned(), vec!["error[missing-field] spec.backends[0]"]),
        (format!("{{service: other/r, {one}}}"), vec!["error[bad-name] spec.service"]),
        (format!("{{service: 'r:80', {one}}}"), vec!["error[bad-name] spec.service"]),
        (format!("{{service: '', {one}}}"), vec!["error[bad-length] spec.service"]),
        (
            format!("{{service: r, {one}, matches: [{{kind: TCPRoute, name: x}}]}}"),
            vec!["error[unknown-value] spec.matches[0].kind"],
        ),
        (
            format!("{{service: r, {one}, matches: [{{name: x}}]}}"),
            vec!["error[missing-field] spec.matches[0]"],
        ),
        (
            format!("{{service: r, {one}, matches: [{{kind: HTTPRouteGroup}}]}}"),
            vec!["error[missing-field] spec.matches[0]"],
        ),
        (
            format!(
                "{{service: r, {one}, matches: [{{kind: HTTPRouteGroup, name: x, apiGroup: example.org}}]}}"
            ),
            vec!["error[unknown-value] spec.matches[0].apiGroup"],
        ),
        (
            format!(
                "{{service: r, {one}, matches: [{{kind: HTTPRouteGroup, name: x}}, {{kind: HTTPRouteGroup, name: x}}]}}"
            ),
            vec!["warning[duplicate-name] spec.matches[1]"],
        ),
        (format!("{{service: r, {one}, match: []}}"), vec!["error[unknown-field] spec.match"]),
    ];
    for (spec, expected) in table {
        assert_eq!(findings(&split("v1alpha4", &spec)), expected, "{spec}");
    }
}

/// Two names may be one service; this document alone cannot say.
#[test]
fn names_stay_as_written_and_a_backend_that_is_there_twice_stays_twice() {
    let text = split(
        "v1alpha3",
        "{service: r.default.svc.cluster.local, backends: [{service: a%20b, weight: 1}, {service: a%20b, weight: 2}, {service: gr\u{fc}n, weight: 3}]}",
    );
    let expected = "TrafficSplit default/s: r.default.svc.cluster.local a%20b=1 a%20b=2 gr\u{fc}n=3";
    assert_eq!(shown(&text), [expected]);
    let Spec::TrafficSplit(split) = clean(&text) else { panic!("no TrafficSplit") };
    assert_eq!(split.service_spot.path.to_string(), "spec.service");
    assert_eq!(split.backends[1].spot.path.to_string(), "spec.backends[1]");
}

#[test]
fn what_is_wrong_with_a_group_is_said_where_it_is() {
    let table = [
        ("spec: {}", vec!["error[missing-field] "]),
        (
            "matches: [{name: a, methods: [GET]}], spec: {matches: []}",
            vec!["error[duplicate-field] spec.matches"],
        ),
        ("spec: {matches: []}", vec!["warning[matches-nothing] spec.matches"]),
        ("matches: [{name: a}]", vec!["warning[matches-everything] matches[0]"]),
        ("matches: [{pathRegex: /a}]", vec!["error[missing-field] matches[0]"]),
        (
            "matches: [{name: a, pathRegex: /a}, {name: a, pathRegex: /b}]",
            vec!["error[duplicate-name] matches[1]"],
        ),
        ("matches: [{name: a, pathRegex: '(?=x)'}]", vec!["error[bad-regex] matches[0].pathRegex"]),
        ("matches: [{name: a, methods: [get]}]", vec!["error[unknown-value] matches[0].methods[0]"]),
        (
            "matches: [{name: a, headers: {cookie: '('}}]",
            vec!["error[bad-regex] matches[0].headers[\"cookie\"]"],
        ),
        (
            "matches: [{name: a, headers: {'a b': x}}]",
            vec!["error[bad-header-name] matches[0].headers[\"a b\"]"],
        ),
        (
            "matches: [{name: a, headers: {a: x, A: y}}]",
            vec!["error[duplicate-name] matches[0].headers[\"a\"]"],
        ),
        ("matches: [{name: a, headers: {a: 1}}]", vec!["error[wrong-type] matches[0].headers[\"a\"]"]),
        ("matches: [{name: a, headers: x}]", vec!["error[wrong-type] matches[0].headers"]),
        ("matches: [{name: a, path: /a, methods: ['*']}]", vec!["error[unknown-field] matches[0].path"]),
    ];
    for (body, expected) in table {
        assert_eq!(findings(&group(body)), expected, "{body}");
    }
}

#[test]
fn every_method_is_none() {
    for methods in ["'*'", "['*']", "[GET, '*']", "[]"] {
        let text = group(&format!("matches: [{{name: a, methods: {methods}}}]"));
        assert_eq!(shown(&text), ["HTTPRouteGroup default/g: a []"], "{methods}");
    }
    let text = group("matches: [{name: a, methods: [GET, GET, POST]}]");
    assert_eq!(shown(&text), ["HTTPRouteGroup default/g: a [\"GET\", \"POST\"]"]);
}
