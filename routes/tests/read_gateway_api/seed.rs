//! The first form of GEP-1016 is still read, in `v1alpha2` only.

use xds_routes::model::{FilterKind, Fraction, HeaderEdits, HeaderValue, MatchType, MethodMatch, PathMatch};

use super::{document, expect, match_of, route_of, rule_of, spec_and_warnings};

/// The example of the proposal: its fields and names, with indentation.
const EXAMPLE: &str = "\
kind: GRPCRoute
apiVersion: gateway.networking.k8s.io/v1alpha2
metadata:
  name: foo-grpcroute
spec:
  parentRefs:
  - name: my-gateway
  hostnames:
  - foo.com
  - bar.com
  rules:
  - matches:
      method:
        service: helloworld.Greeter
        method: SayHello
      headers:
      - type: Exact
        name: magic
        value: foo
    filters:
    - type: RequestHeaderModifierFilter
      add:
      - name: my-header
        value: foo
    - type: RequestMirrorPolicyFilter
      destination:
        backendRef:
          name: mirror-svc
    backendRefs:
    - name: foo-v1
      weight: 90
    - name: foo-v2
      weight: 10
";

#[test]
fn the_example_is_read_with_warnings_and_no_errors() {
    let (spec, warnings) = spec_and_warnings(EXAMPLE);
    let route = route_of(spec);
    let rule = rule_of(&route);
    let method = MethodMatch {
        match_type: MatchType::Exact,
        service: Some("helloworld.Greeter".to_owned()),
        method: Some("SayHello".to_owned()),
    };
    assert_eq!(rule.matches.len(), 1);
    assert_eq!(match_of(&route).path, PathMatch::Method(method));
    let headers: Vec<_> = match_of(&route).headers.iter().map(|one| (&*one.name, &one.value)).collect();
    assert_eq!(headers, [("magic", &HeaderValue::Exact("foo".to_owned()))]);
    let filters: Vec<_> = rule.filters.iter().map(|filter| &filter.kind).collect();
    let [FilterKind::RequestHeaders(edits), FilterKind::Mirror { backend, fraction }] = &*filters else {
        panic!("{filters:?}");
    };
    let add = vec![("my-header".to_owned(), "foo".to_owned())];
    assert_eq!(edits, &HeaderEdits { add, ..HeaderEdits::default() });
    assert_eq!(
        (&*backend.name, &*backend.kind, &*backend.namespace, backend.port),
        ("mirror-svc", "Service", "default", None)
    );
    assert_eq!(fraction, &Fraction { numerator: 100, denominator: 100 });
    let backends: Vec<_> =
        rule.backends.iter().map(|one| (&*one.object.name, one.weight, one.object.port)).collect();
    assert_eq!(backends, [("foo-v1", 90, None), ("foo-v2", 10, None)]);
    let paths: Vec<_> = warnings.iter().filter_map(|one| one.split(": ").next()).collect();
    assert_eq!(
        paths,
        [
            "apiVersion",
            "spec.rules[0].matches",
            "spec.rules[0].filters[0].type",
            "spec.rules[0].filters[1].type",
            "spec.rules[0].filters[1].destination.backendRef",
            "spec.rules[0].backendRefs[0]",
            "spec.rules[0].backendRefs[1]",
        ]
    );
}

#[test]
fn the_example_is_not_v1() {
    let errors = super::errors_of(&EXAMPLE.replace("v1alpha2", "v1"));
    assert_eq!(
        errors,
        [
            "spec.rules[0].matches: expected a list, found an object",
            "spec.rules[0].filters[0].type: \"RequestHeaderModifierFilter\" is not one of RequestHeaderModifier, \
         ResponseHeaderModifier, RequestMirror, ExtensionRef",
            "spec.rules[0].filters[1].type: \"RequestMirrorPolicyFilter\" is not one of RequestHeaderModifier, \
         ResponseHeaderModifier, RequestMirror, ExtensionRef",
            "spec.rules[0].backendRefs[0]: Must have port for Service reference",
            "spec.rules[0].backendRefs[1]: Must have port for Service reference",
        ]
    );
}

fn old_match(one: &str) -> String {
    document("GRPCRoute", "v1alpha2", &format!("{{rules: [{{matches: [{one}]}}]}}"))
}

#[test]
fn an_empty_method_matches_everything_with_a_warning() {
    for method in ["{}", "{type: Exact}", "{type: RegularExpression}", "{service: '', method: ''}"] {
        let (spec, warnings) = spec_and_warnings(&old_match(&format!("{{method: {method}}}")));
        assert_eq!(match_of(&route_of(spec)).path, PathMatch::Any, "{method}");
        let expected =
            "spec.rules[0].matches[0].method: neither `service` nor `method` is given, so every call matches";
        assert!(warnings.iter().any(|one| one == expected), "{method} {warnings:?}");
    }
}

#[test]
fn an_empty_part_of_a_method_is_any() {
    let (spec, _) = spec_and_warnings(&old_match("{method: {service: '', method: Get}}"));
    let method = MethodMatch { match_type: MatchType::Exact, service: None, method: Some("Get".to_owned()) };
    assert_eq!(match_of(&route_of(spec)).path, PathMatch::Method(method));
}

#[test]
fn headers_may_be_a_map_of_values() {
    let (spec, warnings) =
        spec_and_warnings(&old_match("{headers: {values: {Version: 2, debug: true, env: a}}}"));
    let route = route_of(spec);
    let read: Vec<_> = match_of(&route).headers.iter().map(|one| (&*one.name, one.value.clone())).collect();
    let exact = |text: &str| HeaderValue::Exact(text.to_owned());
    assert_eq!(read, [("version", exact("2")), ("debug", exact("true")), ("env", exact("a"))]);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let values = document("GRPCRoute", "v1", "{rules: [{matches: [{headers: {values: {a: b}}}]}]}");
    expect(&values, "headers: expected a list, found an object");
    expect(
        &old_match("{headers: {values: {a: [b]}}}"),
        "headers.values[\"a\"]: expected a string, found a list",
    );
    expect(&old_match("{headers: {values: {'a b': c}}}"), "`!#$%&'*+-.^_`|~` are allowed");
}

#[test]
fn the_method_may_be_named_path() {
    let (spec, warnings) = spec_and_warnings(&old_match("{path: {service: a.B}}"));
    let method = MethodMatch { match_type: MatchType::Exact, service: Some("a.B".to_owned()), method: None };
    assert_eq!(match_of(&route_of(spec)).path, PathMatch::Method(method));
    assert!(warnings.iter().any(|one| one.contains("the field is named `method` since v1")), "{warnings:?}");
}

#[test]
fn filters_of_the_new_form_are_read_too() {
    let filters = "[{type: RequestHeaderModifierFilter, requestHeaderModifier: {remove: [a]}}, {type: ResponseHeaderModifier, \
                   responseHeaderModifier: {remove: [b]}}, {type: RequestMirror, requestMirror: {backendRef: {name: m}}}]";
    let (spec, _) = spec_and_warnings(&document(
        "GRPCRoute",
        "v1alpha2",
        &format!("{{rules: [{{filters: {filters}}}]}}"),
    ));
    assert_eq!(rule_of(&route_of(spec)).filters.len(), 3);
}

#[test]
fn the_limits_are_those_of_v1() {
    let matches = super::times(64, "{}");
    expect(&document("GRPCRoute", "v1alpha2", &format!("{{rules: [{{matches: [{matches}]}}]}}")), "");
    expect(&old_match("{method: {service: a/b}}"), "(\\.[a-z_][a-z_0-9]*)*$)");
    let (spec, _) = spec_and_warnings(&document("GRPCRoute", "v1alpha2", "{}"));
    assert!(route_of(spec).rules.is_empty());
}
