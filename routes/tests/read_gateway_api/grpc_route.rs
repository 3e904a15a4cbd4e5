//! GRPCRoute in `v1`: defaults, limits, and the texts of the API for what breaks them.

use xds_routes::model::{HeaderValue, MatchType, MethodMatch, PathMatch, RouteKind};

use super::{
    document, errors_of, expect, match_of, numbered, route_of, rule_of, spec_and_warnings, spec_of, times,
};

fn grpc(spec: &str) -> String {
    document("GRPCRoute", "v1", spec)
}

fn with_match(one: &str) -> String {
    grpc(&format!("{{rules: [{{matches: [{one}]}}]}}"))
}

fn path_of(method: &str) -> PathMatch {
    match_of(&route_of(spec_of(&with_match(&format!("{{method: {method}}}"))))).path.clone()
}

#[test]
fn defaults_are_filled_in() {
    let route =
        route_of(spec_of(&grpc("{parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 1}]}]}")));
    assert_eq!(route.kind, RouteKind::Grpc);
    let parent = route.parents.first().expect("one");
    assert_eq!(
        (&*parent.group, &*parent.kind, &*parent.namespace),
        ("gateway.networking.k8s.io", "Gateway", "n")
    );
    let backend = rule_of(&route).backends.first().expect("one");
    assert_eq!(
        (&*backend.object.group, &*backend.object.kind, &*backend.object.namespace),
        ("", "Service", "n")
    );
    assert_eq!((backend.weight, backend.object.port), (1, Some(1)));
    assert_eq!(backend.object.spot.path.to_string(), "spec.rules[0].backendRefs[0]");
    assert_eq!(rule_of(&route).matches.len(), 1);
    let one = match_of(&route);
    assert_eq!(
        (&one.path, one.case_sensitive, one.fraction, &one.method),
        (&PathMatch::Any, true, None, &None)
    );
}

#[test]
fn a_route_without_rules_has_none() {
    for spec in ["{}", "{rules: []}", "{rules: null}"] {
        assert!(route_of(spec_of(&grpc(spec))).rules.is_empty(), "{spec}");
    }
}

#[test]
fn a_rule_without_matches_takes_everything() {
    for rule in ["{}", "{matches: []}", "{matches: [{}]}"] {
        let route = route_of(spec_of(&grpc(&format!("{{rules: [{rule}]}}"))));
        assert_eq!(rule_of(&route).matches.len(), 1, "{rule}");
        assert_eq!(match_of(&route).path, PathMatch::Any, "{rule}");
    }
}

#[test]
fn methods_are_read_as_written() {
    let method = |match_type, service: Option<&str>, method: Option<&str>| {
        let (service, method) = (service.map(str::to_owned), method.map(str::to_owned));
        PathMatch::Method(MethodMatch { match_type, service, method })
    };
    let (exact, regex) = (MatchType::Exact, MatchType::RegularExpression);
    let table = [
        ("{service: foo.Bar, method: Get}", method(exact, Some("foo.Bar"), Some("Get"))),
        ("{type: Exact, service: foo.Bar}", method(exact, Some("foo.Bar"), None)),
        ("{method: Get}", method(exact, None, Some("Get"))),
        (
            "{type: RegularExpression, service: 'a|b', method: 'Get.*'}",
            method(regex, Some("a|b"), Some("Get.*")),
        ),
        ("{type: RegularExpression, service: 'a|b'}", method(regex, Some("a|b"), None)),
        ("{type: RegularExpression, service: '', method: '[A-Z]+'}", method(regex, None, Some("[A-Z]+"))),
    ];
    for (text, expected) in table {
        assert_eq!(path_of(text), expected, "{text}");
    }
}

#[test]
fn methods_that_the_api_refuses_are_refused_with_its_words() {
    const NEITHER: &str = "method: One or both of 'service' or 'method' must be specified";
    const SERVICE: &str = r"service: service must only contain valid characters (matching ^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$)";
    const METHOD: &str =
        r"method.method: method must only contain valid characters (matching ^[A-Za-z_][A-Za-z_0-9]*$)";
    let table = [
        ("{}", NEITHER),
        ("{type: Exact}", NEITHER),
        ("{type: RegularExpression}", NEITHER),
        ("{type: RegularExpression, service: ''}", NEITHER),
        ("{service: foo/bar}", SERVICE),
        ("{service: ''}", SERVICE),
        ("{service: 'foo.'}", SERVICE),
        ("{service: 'foo..bar'}", SERVICE),
        ("{service: '..foo'}", SERVICE),
        ("{service: 1foo}", SERVICE),
        ("{service: foo.1bar}", SERVICE),
        ("{service: 'foo.*'}", SERVICE),
        ("{service: 'föö'}", SERVICE),
        ("{type: Exact, method: 'Get/'}", METHOD),
        ("{method: a.b}", METHOD),
        ("{method: 'Get.*'}", METHOD),
        ("{method: ''}", METHOD),
        ("{method: 9}", "expected a string, found 9"),
        ("{method: '9'}", METHOD),
        ("{type: Prefix, service: a}", "method.type: \"Prefix\" is not one of Exact, RegularExpression"),
        (
            "{type: RegularExpression, service: 'a(?=b)'}",
            "is not valid RE2: column 2: RE2 has no look-ahead: `(?=`; list what may be there, or use two routes",
        ),
        (
            "{type: RegularExpression, method: '(a)\\1'}",
            "is not valid RE2: column 4: RE2 has no references to groups: `\\1`; repeat the expression",
        ),
    ];
    for (method, error) in table {
        expect(&with_match(&format!("{{method: {method}}}")), error);
    }
    for good in [
        "{service: _a.B_1.c}",
        "{service: FOO}",
        "{method: _}",
        "{method: Get_2}",
        "{service: foo, method: bar}",
    ] {
        expect(&with_match(&format!("{{method: {good}}}")), "");
    }
}

#[test]
fn names_of_services_and_methods_have_at_most_1024_characters() {
    for field in ["service", "method"] {
        let of = |n: usize| with_match(&format!("{{method: {{{field}: {}}}}}", "a".repeat(n)));
        expect(&of(1_024), "");
        assert_eq!(errors_of(&of(1_025)).len(), 1);
    }
}

#[test]
fn a_service_with_a_leading_dot_is_taken_with_a_warning() {
    let (_, warnings) = spec_and_warnings(&with_match("{method: {service: .foo.Bar}}"));
    let expected =
        "spec.rules[0].matches[0].method.service: the name of a gRPC service never begins with a dot";
    assert_eq!(warnings, [expected]);
}

#[test]
fn of_headers_with_the_same_name_the_first_counts() {
    let headers =
        "[{name: Foo, value: a}, {name: foo, value: b}, {type: RegularExpression, name: x-V, value: 'a|b'}]";
    let (spec, warnings) = spec_and_warnings(&with_match(&format!("{{headers: {headers}}}")));
    let route = route_of(spec);
    let read: Vec<_> = match_of(&route).headers.iter().map(|one| (one.name.as_str(), &one.value)).collect();
    assert_eq!(
        read,
        [("foo", &HeaderValue::Exact("a".to_owned())), ("x-v", &HeaderValue::Regex("a|b".to_owned())),]
    );
    let expected =
        "spec.rules[0].matches[0].headers[1]: the header \"foo\" appears twice; only the first one is used";
    assert_eq!(warnings, [expected]);
}

#[test]
fn headers_keep_to_the_limits() {
    const NAME: &str = "is not the name of a header: 1 to 256 letters, digits and characters of `!#$%&'*+-.^_`|~` are allowed";
    let long = |n: usize| "a".repeat(n);
    let table = [
        (format!("{{name: {}, value: a}}", long(256)), ""),
        (format!("{{name: {}, value: a}}", long(257)), NAME),
        ("{name: '', value: a}".to_owned(), NAME),
        ("{name: ':path', value: a}".to_owned(), NAME),
        ("{name: 'a b', value: a}".to_owned(), NAME),
        ("{name: 'ä', value: a}".to_owned(), NAME),
        ("{name: \"!#$%&'*+-.^_`|~aZ09\", value: a}".to_owned(), ""),
        (format!("{{name: a, value: {}}}", long(4_096)), ""),
        (format!("{{name: a, value: {}}}", long(4_097)), "has 4097 characters, 1 to 4096 are allowed"),
        ("{name: a, value: ''}".to_owned(), "\"\" has 0 characters, 1 to 4096 are allowed"),
        ("{name: a, value: 2}".to_owned(), "headers[0].value: expected a string, found 2"),
        ("{name: a}".to_owned(), "headers[0]: the field `value` is missing"),
        ("{value: a}".to_owned(), "headers[0]: the field `name` is missing"),
        (
            "{type: Present, name: a, value: a}".to_owned(),
            "\"Present\" is not one of Exact, RegularExpression",
        ),
        (
            "{type: RegularExpression, name: a, value: '['}".to_owned(),
            "`[` is never closed; add `]`, or write `\\[` for the character",
        ),
    ];
    for (header, error) in table {
        expect(&with_match(&format!("{{headers: [{header}]}}")), error);
    }
}

#[test]
fn lists_have_the_lengths_of_the_api() {
    let rule = |rule: String| format!("{{rules: [{rule}]}}");
    type Make = fn(usize) -> String;
    let table: [(usize, &str, Make); 6] = [
        (16, "spec.hostnames", |n| format!("{{hostnames: [{}]}}", numbered(n, "h{}.com"))),
        (32, "spec.parentRefs", |n| format!("{{parentRefs: [{}]}}", numbered(n, "{name: g{}}"))),
        (16, "spec.rules", |n| format!("{{rules: [{}]}}", times(n, "{}"))),
        (64, "spec.rules[0].matches", |n| format!("{{rules: [{{matches: [{}]}}]}}", times(n, "{}"))),
        (16, "spec.rules[0].matches[0].headers", |n| {
            format!("{{rules: [{{matches: [{{headers: [{}]}}]}}]}}", numbered(n, "{name: h{}, value: a}"))
        }),
        (16, "spec.rules[0].backendRefs", |n| {
            format!("{{rules: [{{backendRefs: [{}]}}]}}", times(n, "{name: a, port: 1}"))
        }),
    ];
    for (max, path, make) in table {
        expect(&grpc(&make(max)), "");
        expect(
            &grpc(&make(max + 1)),
            &format!("{path}: there are {} items, at most {max} are allowed", max + 1),
        );
    }
    expect(
        &grpc(&rule("{matches: {}}".to_owned())),
        "spec.rules[0].matches: expected a list, found an object",
    );
}

#[test]
fn all_rules_together_have_at_most_128_matches() {
    const TOO_MANY: &str = "spec.rules: While 16 rules and 64 matches per rule are allowed, the total number of matches across \
                            all rules in a route must be less than 128";
    let rules = |counts: &[usize]| {
        let rules: Vec<_> = counts.iter().map(|n| format!("{{matches: [{}]}}", times(*n, "{}"))).collect();
        grpc(&format!("{{rules: [{}]}}", rules.join(", ")))
    };
    expect(&rules(&[64, 64]), "");
    expect(&rules(&[64, 64, 0]), "");
    expect(&rules(&[64, 64, 1]), TOO_MANY);
    expect(&rules(&[8; 16]), "");
    expect(&rules(&[9; 16]), TOO_MANY);
}

#[test]
fn names_of_rules_are_unique() {
    expect(&grpc("{rules: [{name: a}, {name: b}, {}, {}]}"), "");
    expect(
        &grpc("{rules: [{name: a}, {name: a}]}"),
        "spec.rules[1]: Rule name must be unique within the route: \"a\"",
    );
    let message =
        "spec.rules[0].name: \"A\" is not a name: lower-case letters, digits, `-` and `.` are allowed";
    expect(&grpc("{rules: [{name: A}]}"), message);
}

#[test]
fn host_names_are_those_of_rfc_1123_with_a_wildcard_in_front() {
    let long = format!("{}abc", "a.".repeat(125));
    assert_eq!(long.len(), 253);
    let table = [
        ("a.com", ""),
        ("'*.a.com'", ""),
        (&*long, ""),
        ("1.2.3.4", "an IP address is not a host name"),
        ("'::1'", "an IP address is not a host name"),
        ("'a.*.b'", "the wildcard `*` can only be the whole first label"),
        ("'*'", "the wildcard `*` can only be the whole first label"),
        ("'*a.b'", "the wildcard `*` can only be the whole first label"),
        ("''", "a host name has 1 to 253 characters"),
        ("a_b.com", "as RFC 1123 requires"),
        ("A.com", "as RFC 1123 requires"),
        ("'a.com:80'", "as RFC 1123 requires"),
    ];
    for (hostname, error) in table {
        expect(&grpc(&format!("{{hostnames: [{hostname}]}}")), error);
    }
    expect(&grpc(&format!("{{hostnames: [x{long}]}}")), "a host name has 1 to 253 characters");
}

#[test]
fn a_host_name_that_is_there_twice_counts_once() {
    let (spec, warnings) = spec_and_warnings(&grpc("{hostnames: [a.com, b.com, a.com]}"));
    assert_eq!(route_of(spec).hostnames.len(), 2);
    assert_eq!(warnings, ["spec.hostnames[2]: the host name a.com appears twice"]);
}

#[test]
fn backends_keep_to_the_rules_of_references() {
    const PORT: &str = "backendRefs[0]: Must have port for Service reference";
    let table = [
        ("{name: a}", PORT),
        ("{name: a, kind: Service}", PORT),
        ("{name: a, group: '', kind: Service}", PORT),
        ("{name: a, group: gateway.envoyproxy.io, kind: Backend}", ""),
        ("{name: a, kind: Other}", ""),
        ("{name: a, port: 1}", ""),
        ("{name: a, port: 65535}", ""),
        ("{name: a, port: 0}", "expected a whole number from 1 to 65535, found 0"),
        ("{name: a, port: 65536}", "expected a whole number from 1 to 65535, found 65536"),
        ("{name: a, port: '80'}", "expected a whole number, found \"80\""),
        ("{name: a, port: http}", "expected a whole number, found \"http\""),
        ("{name: a, port: 1, weight: 0}", ""),
        ("{name: a, port: 1, weight: 1000000}", ""),
        ("{name: a, port: 1, weight: 1000001}", "expected a whole number from 0 to 1000000, found 1000001"),
        ("{name: a, port: 1, weight: -1}", "expected a whole number from 0 to 1000000, found -1"),
        ("{name: a, port: 1, weight: 0.5}", "expected a whole number from 0 to 1000000, found 0.5"),
        ("{port: 1}", "backendRefs[0]: the field `name` is missing"),
        ("{name: '', port: 1}", "\"\" has 0 characters, 1 to 253 are allowed"),
        ("{name: a, port: 1, kind: 9a}", "\"9a\" is not a kind"),
        ("{name: a, port: 1, group: 'A_'}", "\"A_\" is not an API group"),
        ("a", "backendRefs[0]: expected an object, found \"a\""),
    ];
    for (backend, error) in table {
        expect(&grpc(&format!("{{rules: [{{backendRefs: [{backend}]}}]}}")), error);
    }
}

#[test]
fn a_large_expression_is_a_warning_because_of_envoys_limit() {
    let of = |text: &str| with_match(&format!("{{method: {{type: RegularExpression, service: '{text}'}}}}"));
    assert_eq!(spec_and_warnings(&of("[a-z]{80}")).1.len(), 0);
    let (_, warnings) = spec_and_warnings(&of("[a-z0-9]{80}"));
    assert!(warnings.iter().any(|one| one.contains("re2.max_program_size.error_level")), "{warnings:?}");
}

#[test]
fn what_only_http_routes_have_is_unknown() {
    let rule = "{matches: [{path: {value: /a}, queryParams: [], method: {service: a}}], timeouts: {request: 1s}, retry: {}}";
    let errors = errors_of(&grpc(&format!("{{rules: [{rule}]}}")));
    let fields: Vec<_> = errors.iter().filter_map(|one| one.split(':').next()).collect();
    assert_eq!(
        fields,
        [
            "spec.rules[0].matches[0].path",
            "spec.rules[0].matches[0].queryParams",
            "spec.rules[0].timeouts",
            "spec.rules[0].retry",
        ]
    );
}
