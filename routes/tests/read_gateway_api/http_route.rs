//! HTTPRoute: defaults, limits, and the texts of the API for what breaks them.

use std::time::Duration;

use xds_routes::model::{MatchType, PathMatch, Retry, RouteKind, Timeouts};

use super::{
    document, errors_of, expect, match_of, numbered, route_of, rule_of, spec_and_warnings, spec_of, times,
};

fn http(spec: &str) -> String {
    document("HTTPRoute", "v1", spec)
}

fn with_rule(rule: &str) -> String {
    http(&format!("{{rules: [{{{rule}}}]}}"))
}

fn with_match(one: &str) -> String {
    with_rule(&format!("matches: [{one}]"))
}

#[test]
fn a_route_without_rules_takes_everything() {
    let route = route_of(spec_of(&http("{}")));
    assert_eq!((route.kind, route.rules.len()), (RouteKind::Http, 1));
    assert_eq!(match_of(&route).path, PathMatch::Any);
    assert!(rule_of(&route).backends.is_empty());
    expect(&http("{rules: []}"), "spec.rules: at least one item is required");
    expect(&http(&format!("{{rules: [{}]}}", times(16, "{}"))), "");
    expect(
        &http(&format!("{{rules: [{}]}}", times(17, "{}"))),
        "spec.rules: there are 17 items, at most 16 are allowed",
    );
}

#[test]
fn paths_are_read() {
    let path = |text: &str| text.to_owned();
    let table = [
        ("{}", PathMatch::Any),
        ("{type: PathPrefix}", PathMatch::Any),
        ("{value: /}", PathMatch::Any),
        ("{value: /a}", PathMatch::Prefix(path("/a"))),
        ("{type: PathPrefix, value: /a/}", PathMatch::Prefix(path("/a"))),
        ("{value: /a/b%20c}", PathMatch::Prefix(path("/a/b%20c"))),
        ("{type: Exact}", PathMatch::Exact(path("/"))),
        ("{type: Exact, value: /a/}", PathMatch::Exact(path("/a/"))),
        ("{type: RegularExpression, value: '/a.*'}", PathMatch::Regex(path("/a.*"))),
        ("{type: RegularExpression, value: 'a//b'}", PathMatch::Regex(path("a//b"))),
    ];
    for (text, expected) in table {
        let route = route_of(spec_of(&with_match(&format!("{{path: {text}}}"))));
        assert_eq!(match_of(&route).path, expected, "{text}");
    }
}

#[test]
fn paths_that_the_api_refuses_are_refused_with_its_words() {
    const CHARACTERS: &str = "must only contain valid characters (matching ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) \
                              for types ['Exact', 'PathPrefix']";
    let table = [
        ("a", "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']"),
        ("", "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']"),
        ("/a//b", "must not contain '//' when type one of ['Exact', 'PathPrefix']"),
        ("/a/./b", "must not contain '/./' when type one of ['Exact', 'PathPrefix']"),
        ("/a/../b", "must not contain '/../' when type one of ['Exact', 'PathPrefix']"),
        ("/a%2fb", "must not contain '%2f' when type one of ['Exact', 'PathPrefix']"),
        ("/a%2Fb", "must not contain '%2F' when type one of ['Exact', 'PathPrefix']"),
        ("/a#b", "must not contain '#' when type one of ['Exact', 'PathPrefix']"),
        ("/a/..", "must not end with '/..' when type one of ['Exact', 'PathPrefix']"),
        ("/a/.", "must not end with '/.' when type one of ['Exact', 'PathPrefix']"),
        ("/a b", CHARACTERS),
        ("/a?b", CHARACTERS),
        ("/a%zz", CHARACTERS),
        ("/a%2", CHARACTERS),
        ("/ä", CHARACTERS),
        ("/...", ""),
        ("/a/..b", ""),
        ("/-A0._~!$&()*+,;=:@%41", ""),
    ];
    for (path, error) in table {
        for kind in ["Exact", "PathPrefix"] {
            expect(&with_match(&format!("{{path: {{type: {kind}, value: '{path}'}}}}")), error);
        }
    }
    expect(&with_match(&format!("{{path: {{value: /{}}}}}", "a".repeat(1_023))), "");
    expect(
        &with_match(&format!("{{path: {{value: /{}}}}}", "a".repeat(1_024))),
        "has 1025 characters, 0 to 1024 are allowed",
    );
    expect(
        &with_match("{path: {type: Prefix}}"),
        "\"Prefix\" is not one of Exact, PathPrefix, RegularExpression",
    );
    expect(
        &with_match("{path: {type: RegularExpression, value: '/(?!a)'}}"),
        "column 2: RE2 has no look-ahead: `(?!`; list what may be there, or use two routes",
    );
    assert_eq!(errors_of(&with_match("{path: {value: 'a//b'}}")).len(), 2);
}

#[test]
fn query_parameters_are_read_and_the_first_of_a_name_counts() {
    let query =
        "[{name: q, value: a}, {name: q, value: b}, {name: Q, type: RegularExpression, value: 'a|b'}]";
    let (spec, warnings) = spec_and_warnings(&with_match(&format!("{{queryParams: {query}}}")));
    let route = route_of(spec);
    let read: Vec<_> =
        match_of(&route).query.iter().map(|one| (&*one.name, one.match_type, &*one.value)).collect();
    assert_eq!(read, [("q", MatchType::Exact, "a"), ("Q", MatchType::RegularExpression, "a|b")]);
    let expected = "spec.rules[0].matches[0].queryParams[1]: the parameter \"q\" appears twice; only the first one is used";
    assert_eq!(warnings, [expected]);
    let long = format!("{{name: a, value: {}}}", "a".repeat(1_025));
    let bad = [
        ("{name: a}", "the field `value` is missing"),
        ("{name: a, value: ''}", "\"\" has 0 characters, 1 to 1024 are allowed"),
        (&*long, "has 1025 characters, 1 to 1024 are allowed"),
        ("{name: 'a b', value: c}", "are allowed"),
        (
            "{name: a, type: RegularExpression, value: '('}",
            "`(` is never closed; add `)`, or write `\\(` for the character",
        ),
    ];
    for (one, error) in bad {
        expect(&with_match(&format!("{{queryParams: [{one}]}}")), error);
    }
    expect(&with_match(&format!("{{queryParams: [{}]}}", numbered(16, "{name: a{}, value: b}"))), "");
    let many = numbered(17, "{name: a{}, value: b}");
    expect(&with_match(&format!("{{queryParams: [{many}]}}")), "there are 17 items, at most 16 are allowed");
}

#[test]
fn methods_are_those_of_http() {
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"] {
        let route = route_of(spec_of(&with_match(&format!("{{method: {method}}}"))));
        assert_eq!(match_of(&route).method.as_deref(), Some(method));
    }
    let error = "is not one of GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH";
    for method in ["get", "QUERY", "'*'", "''"] {
        expect(&with_match(&format!("{{method: {method}}}")), error);
    }
}

#[test]
fn all_rules_together_have_at_most_128_matches_with_those_that_are_filled_in() {
    let rules = |rest: &str| {
        let full = format!("{{matches: [{}]}}", times(64, "{}"));
        http(&format!("{{rules: [{full}, {{matches: [{}]}}{rest}]}}", times(63, "{}")))
    };
    expect(&rules(""), "");
    expect(&rules(", {}"), "");
    expect(&rules(", {}, {}"), "all rules in a route must be less than 128");
}

#[test]
fn timeouts_are_read() {
    let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
    let table = [
        ("{}", None, None),
        ("{request: 1s}", Some(second), None),
        ("{request: 1s, backendRequest: 1000ms}", Some(second), Some(second)),
        ("{request: 0s, backendRequest: 1s}", Some(zero), Some(second)),
        ("{backendRequest: 1s}", None, Some(second)),
        ("{request: 0h}", Some(zero), None),
        ("{request: 10s30m1h}", Some(Duration::from_secs(5_410)), None),
    ];
    for (timeouts, request, backend_request) in table {
        let route = route_of(spec_of(&with_rule(&format!("timeouts: {timeouts}"))));
        assert_eq!(rule_of(&route).timeouts, Timeouts { request, backend_request }, "{timeouts}");
    }
    let longer = "spec.rules[0].timeouts: backendRequest timeout cannot be longer than request timeout";
    expect(&with_rule("timeouts: {request: 1s, backendRequest: 1001ms}"), longer);
    for bad in ["'1'", "1m1", "1d", "1h30m10s20ms50h", "999999h", "1.5h", "-15m"] {
        expect(
            &with_rule(&format!("timeouts: {{request: {bad}}}")),
            "write it as in `1h30m`, `10s` or `500ms`",
        );
    }
}

#[test]
fn retries_are_read() {
    let table = [
        ("{}", Retry { codes: vec![], grpc_on: vec![], attempts: 1, backoff: None }),
        (
            "{codes: [503, 500, 503], attempts: 3, backoff: 100ms}",
            Retry {
                codes: vec![503, 500],
                grpc_on: vec![],
                attempts: 3,
                backoff: Some(Duration::from_millis(100)),
            },
        ),
        (
            "{codes: [400, 599], backoff: 0s}",
            Retry { codes: vec![400, 599], grpc_on: vec![], attempts: 1, backoff: None },
        ),
    ];
    for (retry, expected) in table {
        let route = route_of(spec_of(&with_rule(&format!("retry: {retry}"))));
        assert_eq!(rule_of(&route).retry.as_deref(), Some(&expected), "{retry}");
    }
    let bad = [
        ("{codes: [399]}", "expected a whole number from 400 to 599, found 399"),
        ("{codes: [600]}", "expected a whole number from 400 to 599, found 600"),
        ("{attempts: 0}", "expected a whole number from 1 to 2147483647, found 0"),
        ("{backoff: soon}", "is not a duration; write it as in `1h30m`, `10s` or `500ms`"),
    ];
    for (retry, error) in bad {
        expect(&with_rule(&format!("retry: {retry}")), error);
    }
}

#[test]
fn headers_and_references_are_as_in_grpc_routes() {
    let route = route_of(spec_of(&with_rule(
        "matches: [{headers: [{name: A, value: b}]}], backendRefs: [{name: s, port: 80}]",
    )));
    assert_eq!(match_of(&route).headers.first().map(|one| &*one.name), Some("a"));
    expect(&with_rule("backendRefs: [{name: s}]"), "Must have port for Service reference");
    expect(&with_rule("matches: {}"), "spec.rules[0].matches: expected a list, found an object");
}
