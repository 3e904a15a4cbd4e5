//! Filters of both kinds of routes, on rules and on backends.

use xds_routes::model::{Cors, FilterKind, Fraction, HeaderEdits, PathRewrite, Redirect};

use super::{document, expect, numbered, route_of, rule_of, spec_and_warnings, spec_of, times};

fn with_filters(kind: &str, filters: &str) -> String {
    document(kind, "v1", &format!("{{rules: [{{filters: [{filters}]}}]}}"))
}

fn kind_of(kind: &str, filter: &str) -> FilterKind {
    let route = route_of(spec_of(&with_filters(kind, filter)));
    rule_of(&route).filters.first().expect("there is a filter").kind.clone()
}

#[test]
fn type_and_field_of_a_filter_belong_together() {
    const BODIES: [(&str, &str, &str); 4] = [
        ("RequestHeaderModifier", "requestHeaderModifier", "{remove: [a]}"),
        ("ResponseHeaderModifier", "responseHeaderModifier", "{remove: [a]}"),
        ("RequestMirror", "requestMirror", "{backendRef: {name: m, port: 1}}"),
        ("ExtensionRef", "extensionRef", "{group: g.io, kind: K, name: x}"),
    ];
    const HTTP_BODIES: [(&str, &str, &str); 3] = [
        ("RequestRedirect", "requestRedirect", "{scheme: https}"),
        ("URLRewrite", "urlRewrite", "{hostname: a.b}"),
        ("CORS", "cors", "{allowOrigins: ['*']}"),
    ];
    for (name, field, body) in BODIES.into_iter().chain(HTTP_BODIES) {
        let is_http = HTTP_BODIES.iter().any(|(other, ..)| *other == name);
        let kinds = if is_http { vec!["HTTPRoute"] } else { vec!["HTTPRoute", "GRPCRoute"] };
        for kind in kinds {
            expect(&with_filters(kind, &format!("{{type: {name}, {field}: {body}}}")), "");
            let missing =
                format!("spec.rules[0].filters[0]: filter.{field} must be specified for {name} filter.type");
            expect(&with_filters(kind, &format!("{{type: {name}}}")), &missing);
            let (other, other_field, other_body) = if name == "ExtensionRef" { BODIES[0] } else { BODIES[3] };
            let misplaced = format!("{{type: {other}, {other_field}: {other_body}, {field}: {body}}}");
            let error =
                format!("filters[0].{field}: filter.{field} must be nil if the filter.type is not {name}");
            expect(&with_filters(kind, &misplaced), &error);
        }
        if is_http {
            let error =
                "is not one of RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, ExtensionRef";
            expect(&with_filters("GRPCRoute", &format!("{{type: {name}, {field}: {body}}}")), error);
        }
    }
    expect(&with_filters("GRPCRoute", "{}"), "spec.rules[0].filters[0]: the field `type` is missing");
}

#[test]
fn filters_that_change_in_place_cannot_be_repeated() {
    let table = [
        (
            "GRPCRoute",
            "{type: RequestHeaderModifier, requestHeaderModifier: {}}",
            "RequestHeaderModifier filter cannot be repeated",
        ),
        (
            "GRPCRoute",
            "{type: ResponseHeaderModifier, responseHeaderModifier: {}}",
            "ResponseHeaderModifier filter cannot be repeated",
        ),
        (
            "HTTPRoute",
            "{type: RequestHeaderModifier, requestHeaderModifier: {}}",
            "RequestHeaderModifier filter cannot be repeated",
        ),
        (
            "HTTPRoute",
            "{type: RequestRedirect, requestRedirect: {}}",
            "RequestRedirect filter cannot be repeated",
        ),
        ("HTTPRoute", "{type: URLRewrite, urlRewrite: {}}", "URLRewrite filter cannot be repeated"),
        ("HTTPRoute", "{type: CORS, cors: {}}", "CORS filter cannot be repeated"),
        ("GRPCRoute", "{type: RequestMirror, requestMirror: {backendRef: {name: m, port: 1}}}", ""),
        ("GRPCRoute", "{type: ExtensionRef, extensionRef: {group: g, kind: K, name: x}}", ""),
    ];
    for (kind, filter, error) in table {
        let place =
            if error.is_empty() { String::new() } else { format!("spec.rules[0].filters[1]: {error}") };
        expect(&with_filters(kind, &times(2, filter)), &place);
        let of_backend =
            format!("{{rules: [{{backendRefs: [{{name: s, port: 1, filters: [{}]}}]}}]}}", times(2, filter));
        let place =
            if error.is_empty() { String::new() } else { format!("backendRefs[0].filters[1]: {error}") };
        expect(&document(kind, "v1", &of_backend), &place);
    }
    let both = "{type: RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: {}}";
    let error =
        "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but not both";
    expect(&with_filters("HTTPRoute", both), error);
}

#[test]
fn a_rule_has_at_most_16_filters() {
    let filter = "{type: ExtensionRef, extensionRef: {group: g, kind: K, name: x}}";
    expect(&with_filters("GRPCRoute", &times(16, filter)), "");
    expect(
        &with_filters("GRPCRoute", &times(17, filter)),
        "spec.rules[0].filters: there are 17 items, at most 16 are allowed",
    );
}

#[test]
fn header_edits_are_read_in_order_and_once() {
    let body = "{set: [{name: A, value: '1'}, {name: a, value: '2'}], add: [{name: b, value: '%x'}], remove: [C, c, d]}";
    let yaml =
        with_filters("GRPCRoute", &format!("{{type: RequestHeaderModifier, requestHeaderModifier: {body}}}"));
    let (spec, warnings) = spec_and_warnings(&yaml);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = HeaderEdits {
        set: vec![pair("A", "1")],
        add: vec![pair("b", "%x")],
        remove: vec!["C".to_owned(), "d".to_owned()],
    };
    let route = route_of(spec);
    assert_eq!(
        rule_of(&route).filters.first().map(|filter| &filter.kind),
        Some(&FilterKind::RequestHeaders(expected))
    );
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

#[test]
fn header_edits_keep_to_the_limits() {
    const HOST: &str =
        "this filter cannot change the header `host`; use the filter URLRewrite of an HTTPRoute";
    let long = "x".repeat(4_097);
    let table = [
        (format!("{{set: [{}]}}", numbered(16, "{name: h{}, value: a}")), ""),
        (
            format!("{{set: [{}]}}", numbered(17, "{name: h{}, value: a}")),
            "set: there are 17 items, at most 16 are allowed",
        ),
        (
            format!("{{add: [{}]}}", numbered(17, "{name: h{}, value: a}")),
            "add: there are 17 items, at most 16 are allowed",
        ),
        (
            format!("{{remove: [{}]}}", numbered(17, "h{}")),
            "remove: there are 17 items, at most 16 are allowed",
        ),
        ("{set: [{name: a, value: ''}]}".to_owned(), "1 to 4096 are allowed"),
        (format!("{{set: [{{name: a, value: {long}}}]}}"), "1 to 4096 are allowed"),
        (
            "{set: [{name: a, value: \"b\\nc\"}]}".to_owned(),
            "the value of a header cannot have control characters, such as line breaks",
        ),
        ("{add: [{name: ':path', value: a}]}".to_owned(), "are allowed"),
        ("{add: [{name: Host, value: a}]}".to_owned(), HOST),
        ("{remove: [host]}".to_owned(), HOST),
        ("{remove: ['a b']}".to_owned(), "are allowed"),
        ("{set: [{name: a}]}".to_owned(), "set[0]: the field `value` is missing"),
    ];
    for (body, error) in table {
        expect(
            &with_filters(
                "GRPCRoute",
                &format!("{{type: ResponseHeaderModifier, responseHeaderModifier: {body}}}"),
            ),
            error,
        );
    }
}

#[test]
fn mirrors_take_a_share_of_requests() {
    let mirror = |share: &str| {
        with_filters(
            "GRPCRoute",
            &format!("{{type: RequestMirror, requestMirror: {{backendRef: {{name: m, port: 1}}{share}}}}}"),
        )
    };
    let table = [
        ("", 100, 100),
        (", percent: 0", 0, 100),
        (", percent: 100", 100, 100),
        (", fraction: {numerator: 0}", 0, 100),
        (", fraction: {numerator: 5, denominator: 1000}", 5, 1_000),
        (", fraction: {numerator: 7, denominator: 7}", 7, 7),
    ];
    for (share, numerator, denominator) in table {
        let route = route_of(spec_of(&mirror(share)));
        let Some(FilterKind::Mirror { fraction, .. }) = rule_of(&route).filters.first().map(|one| &one.kind)
        else {
            panic!("{share}");
        };
        assert_eq!(*fraction, Fraction { numerator, denominator }, "{share}");
    }
    let bad = [
        (", percent: 101", "expected a whole number from 0 to 100, found 101"),
        (", percent: -1", "expected a whole number from 0 to 100, found -1"),
        (
            ", percent: 5, fraction: {numerator: 1}",
            "Only one of percent or fraction may be specified in HTTPRequestMirrorFilter",
        ),
        (", fraction: {numerator: 101}", "numerator must be less than or equal to denominator"),
        (", fraction: {numerator: 3, denominator: 2}", "numerator must be less than or equal to denominator"),
        (
            ", fraction: {numerator: 0, denominator: 0}",
            "expected a whole number from 1 to 2147483647, found 0",
        ),
        (", fraction: {numerator: -1}", "expected a whole number from 0 to 2147483647, found -1"),
        (", fraction: {}", "the field `numerator` is missing"),
    ];
    for (share, error) in bad {
        expect(&mirror(share), error);
    }
    let no_port = with_filters("GRPCRoute", "{type: RequestMirror, requestMirror: {backendRef: {name: m}}}");
    expect(&no_port, "requestMirror.backendRef: Must have port for Service reference");
    expect(
        &with_filters("GRPCRoute", "{type: RequestMirror, requestMirror: {}}"),
        "the field `backendRef` is missing",
    );
}

#[test]
fn filters_of_others_are_kept_so_that_their_rules_can_fail() {
    let kind = kind_of("GRPCRoute", "{type: ExtensionRef, extensionRef: {group: g.io, kind: K, name: x}}");
    let extension = |group: &str, kind: &str, name: &str| FilterKind::Extension {
        group: group.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(kind, extension("g.io", "K", "x"));
    let (spec, warnings) = spec_and_warnings(&with_filters(
        "HTTPRoute",
        "{type: ExternalAuth, externalAuth: {protocol: GRPC, backendRef: {}}}",
    ));
    let route = route_of(spec);
    let kind = rule_of(&route).filters.first().map(|one| &one.kind);
    assert_eq!(kind, Some(&extension("gateway.networking.k8s.io", "ExternalAuth", "")));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn redirects_are_read() {
    let redirect = |body: &str| format!("{{type: RequestRedirect, requestRedirect: {body}}}");
    let nothing = Redirect { scheme: None, host: None, path: None, port: None, status: 302 };
    assert_eq!(kind_of("HTTPRoute", &redirect("{}")), FilterKind::Redirect(nothing));
    let body = "{scheme: https, hostname: a.com, port: 8443, statusCode: 308, path: {type: ReplaceFullPath, replaceFullPath: /x}}";
    let everything = Redirect {
        scheme: Some("https".to_owned()),
        host: Some("a.com".to_owned()),
        path: Some(PathRewrite::Full("/x".to_owned())),
        port: Some(8443),
        status: 308,
    };
    assert_eq!(kind_of("HTTPRoute", &redirect(body)), FilterKind::Redirect(everything));
    for status in [301, 302, 303, 307, 308] {
        expect(&with_filters("HTTPRoute", &redirect(&format!("{{statusCode: {status}}}"))), "");
    }
    let bad = [
        ("{scheme: ftp}", "\"ftp\" is not one of http, https"),
        ("{hostname: '*.a.com'}", "*.a.com: a wildcard is not allowed here"),
        ("{port: 0}", "expected a whole number from 1 to 65535, found 0"),
        ("{statusCode: 304}", "304 is not one of 301, 302, 303, 307 and 308"),
        ("{statusCode: 200}", "expected a whole number from 300 to 399, found 200"),
    ];
    for (body, error) in bad {
        expect(&with_filters("HTTPRoute", &redirect(body)), error);
    }
}

#[test]
fn new_paths_are_read() {
    let rewrite = |path: &str| format!("{{type: URLRewrite, urlRewrite: {{path: {path}}}}}");
    let good = [
        ("{type: ReplaceFullPath, replaceFullPath: /a}", PathRewrite::Full("/a".to_owned())),
        ("{type: ReplacePrefixMatch, replacePrefixMatch: /a/}", PathRewrite::Prefix("/a/".to_owned())),
        ("{type: ReplacePrefixMatch, replacePrefixMatch: ''}", PathRewrite::Prefix(String::new())),
    ];
    for (path, expected) in good {
        let kind = kind_of("HTTPRoute", &rewrite(path));
        assert_eq!(kind, FilterKind::Rewrite { host: None, path: Some(expected) }, "{path}");
    }
    let long = format!("{{type: ReplaceFullPath, replaceFullPath: /{}}}", "a".repeat(1_024));
    let bad = [
        ("{}", "path: the field `type` is missing"),
        (
            "{type: ReplaceFullPath}",
            "replaceFullPath must be specified when type is set to 'ReplaceFullPath'",
        ),
        (
            "{type: ReplacePrefixMatch}",
            "replacePrefixMatch must be specified when type is set to 'ReplacePrefixMatch'",
        ),
        (
            "{type: ReplaceFullPath, replaceFullPath: /a, replacePrefixMatch: /b}",
            "type must be 'ReplacePrefixMatch' when replacePrefixMatch is set",
        ),
        (
            "{type: ReplacePrefixMatch, replacePrefixMatch: /b, replaceFullPath: /a}",
            "type must be 'ReplaceFullPath' when replaceFullPath is set",
        ),
        (
            "{type: ReplaceFullPath, replaceFullPath: .evil.com}",
            "\".evil.com\" is not a path that begins with `/`",
        ),
        ("{type: ReplaceFullPath, replaceFullPath: ''}", "\"\" is not a path that begins with `/`"),
        ("{type: ReplacePrefixMatch, replacePrefixMatch: a}", "\"a\" is not a path that begins with `/`"),
        ("{type: ReplaceFullPath, replaceFullPath: \"/a\\r\\nb\"}", "is not a path that begins with `/`"),
        ("{type: Other}", "\"Other\" is not one of ReplaceFullPath, ReplacePrefixMatch"),
        (&*long, "has 1025 characters, 0 to 1024 are allowed"),
    ];
    for (path, error) in bad {
        expect(&with_filters("HTTPRoute", &rewrite(path)), error);
    }
}

#[test]
fn a_prefix_is_replaced_only_where_one_prefix_is_matched() {
    let body = "{path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}";
    let rule = |field: &str, name: &str, matches: &str, of_backend: bool| {
        let filters = format!("filters: [{{type: {name}, {field}: {body}}}]");
        let filters =
            if of_backend { format!("backendRefs: [{{name: s, port: 1, {filters}}}]") } else { filters };
        document("HTTPRoute", "v1", &format!("{{rules: [{{{matches}{filters}}}]}}"))
    };
    let good = [
        "",
        "matches: [], ",
        "matches: [{}], ",
        "matches: [{path: {value: /a}}], ",
        "matches: [{method: GET}], ",
    ];
    let bad = [
        "matches: [{path: {value: /a}}, {path: {value: /b}}], ",
        "matches: [{path: {type: Exact, value: /a}}], ",
        "matches: [{path: {type: RegularExpression, value: /a}}], ",
    ];
    let table = [
        ("requestRedirect", "RequestRedirect", false, "When using RequestRedirect"),
        ("urlRewrite", "URLRewrite", false, "When using URLRewrite"),
        ("requestRedirect", "RequestRedirect", true, "Within backendRefs, when using RequestRedirect"),
        ("urlRewrite", "URLRewrite", true, "Within backendRefs, When using URLRewrite"),
    ];
    for (field, name, of_backend, start) in table {
        for matches in good {
            expect(&rule(field, name, matches, of_backend), "");
        }
        let error = format!(
            ": {start} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"
        );
        for matches in bad {
            expect(&rule(field, name, matches, of_backend), &error);
        }
    }
}

#[test]
fn a_redirect_has_no_backends() {
    let yaml = |backends: &str| {
        let filters = "filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]";
        document("HTTPRoute", "v1", &format!("{{rules: [{{{filters}, backendRefs: [{backends}]}}]}}"))
    };
    expect(&yaml(""), "");
    expect(
        &yaml("{name: s, port: 1}"),
        "spec.rules[0]: RequestRedirect filter must not be used together with backendRefs",
    );
}

#[test]
fn cors_is_read() {
    let cors = |body: &str| format!("{{type: CORS, cors: {body}}}");
    let nothing = Cors { max_age_seconds: 5, ..Cors::default() };
    assert_eq!(kind_of("HTTPRoute", &cors("{}")), FilterKind::Cors(nothing));
    let body = "{allowOrigins: ['https://*.a.com:8443', 'http://b', 'https://*'], allowMethods: [GET, POST, GET], \
                allowHeaders: [X-A], exposeHeaders: ['*'], allowCredentials: true, maxAge: 1}";
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let everything = Cors {
        allow_origins: texts(&["https://*.a.com:8443", "http://b", "https://*"]),
        allow_methods: texts(&["GET", "POST"]),
        allow_headers: texts(&["X-A"]),
        expose_headers: texts(&["*"]),
        allow_credentials: true,
        max_age_seconds: 1,
    };
    assert_eq!(kind_of("HTTPRoute", &cors(body)), FilterKind::Cors(everything));
    let many = format!("{{allowOrigins: [{}]}}", numbered(65, "'http://a{}'"));
    let bad = [
        ("{allowOrigins: ['*', 'http://a']}", "AllowOrigins cannot contain '*' alongside other origins"),
        ("{allowMethods: ['*', GET]}", "AllowMethods cannot contain '*' alongside other methods"),
        ("{allowHeaders: ['*', a]}", "AllowHeaders cannot contain '*' alongside other methods"),
        ("{allowOrigins: [a.com]}", "\"a.com\" is not an origin such as `https://a.example` or `*`"),
        ("{allowOrigins: ['ftp://a.com']}", "is not an origin such as `https://a.example` or `*`"),
        ("{allowOrigins: ['https://a.com/']}", "is not an origin such as `https://a.example` or `*`"),
        ("{allowOrigins: ['https://a.com:99999']}", "is not an origin such as `https://a.example` or `*`"),
        ("{allowOrigins: ['https://a.*.com']}", "is not an origin such as `https://a.example` or `*`"),
        (
            "{allowMethods: [get]}",
            "\"get\" is not one of GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH, *",
        ),
        ("{maxAge: 0}", "expected a whole number from 1 to 2147483647, found 0"),
        ("{allowCredentials: 'true'}", "expected true or false, found \"true\""),
        (&*many, "allowOrigins: there are 65 items, at most 64 are allowed"),
    ];
    for (body, error) in bad {
        expect(&with_filters("HTTPRoute", &cors(body)), error);
    }
}
