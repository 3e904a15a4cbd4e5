//! Tests of the native form's refusals and warnings.

use super::HEAD;
use crate::read::ReadOutcome;
use crate::read::testing::{diagnostics, findings, outcomes};

/// A route, the code of its fault, and where that is.
const ROUTES: &[(&str, &str, &str)] = &[
    ("{}", "missing-field", ""),
    ("{rules: []}", "missing-field", ".rules"),
    ("{rules: [{to: b}], to: b}", "misplaced-field", ".to"),
    ("{rules: [{}]}", "missing-field", ".rules[0]"),
    ("{rules: [{to: b, name: a}, {to: b, name: a}]}", "duplicate-rule", ".rules[1]"),
    ("{to: b, hosts: [A.example.com]}", "bad-hostname", ".hosts[0]"),
    ("{to: b, hosts: [a.example.com:80]}", "bad-hostname", ".hosts[0]"),
    ("{to: b, hosts: [10.0.0.1]}", "bad-hostname", ".hosts[0]"),
    ("{to: b, hosts: [a.b, '*']}", "bad-hostname", ".hosts[1]"),
    ("{to: b, hosts: [gr\u{fc}n.example]}", "bad-hostname", ".hosts[0]"),
    ("{to: b, hosts: []}", "missing-field", ".hosts"),
    ("{to: b, listen: grpc}", "unsupported", ".listen"),
    ("{to: b, listen: [a/b/c]}", "bad-name", ".listen[0]"),
    ("{to: ''}", "bad-length", ".to"),
    ("{to: [b]}", "wrong-type", ".to"),
    ("{to: {}}", "bad-length", ".to"),
    ("{to: {b: -1}}", "out-of-range", ".to[\"b\"]"),
    ("{to: {b: 0.5}}", "out-of-range", ".to[\"b\"]"),
    ("{to: {b: 1000001}}", "out-of-range", ".to[\"b\"]"),
    ("{to: {b: '10'}}", "bad-weight", ".to[\"b\"]"),
    ("{to: {b: 10%}}", "bad-weight", ".to[\"b\"]"),
    ("{to: {b: }}", "wrong-type", ".to[\"b\"]"),
    ("{to: {b: 1, default/b: 1}}", "duplicate-name", ".to[\"default/b\"]"),
    ("{to: 'b:0'}", "bad-port", ".to"),
    ("{to: 'b:http'}", "bad-port", ".to"),
    ("{to: 'a:b:80'}", "bad-name", ".to"),
    ("{to: ':80'}", "bad-length", ".to"),
    ("{to: /b}", "bad-length", ".to"),
    ("{to: a/b/c}", "bad-name", ".to"),
    ("{to: 'a b'}", "bad-name", ".to"),
    ("{to: b, match: []}", "missing-field", ".match"),
    ("{to: b, match: {path: a}}", "bad-path", ".match.path"),
    ("{to: b, match: {path: '/a?b'}}", "bad-path", ".match.path"),
    ("{to: b, match: {path: /gr\u{fc}n}}", "bad-path", ".match.path"),
    ("{to: b, match: {path: /a, prefix: /b}}", "misplaced-field", ".match.prefix"),
    ("{to: b, match: {grpc: a.B/C/D}}", "bad-method", ".match.grpc"),
    ("{to: b, match: {grpc: a-b.C}}", "bad-method", ".match.grpc"),
    ("{to: b, match: {grpc: a.B/}}", "bad-method", ".match.grpc"),
    ("{to: b, match: {grpc: '*'}}", "bad-method", ".match.grpc"),
    ("{to: b, match: {regex: '(?=a)'}}", "bad-regex", ".match.regex"),
    ("{to: b, match: {regex: a, case_sensitive: false}}", "misplaced-field", ".match.case_sensitive"),
    ("{to: b, match: {headers: {a: '~('}}}", "bad-regex", ".match.headers[\"a\"]"),
    ("{to: b, match: {headers: {a: '~'}}}", "bad-regex", ".match.headers[\"a\"]"),
    ("{to: b, match: {headers: {a: 1}}}", "wrong-type", ".match.headers[\"a\"]"),
    ("{to: b, match: {headers: {a: b, A: c}}}", "duplicate-name", ".match.headers[\"a\"]"),
    ("{to: b, match: {headers: {'a b': c}}}", "bad-header-name", ".match.headers[\"a b\"]"),
    ("{to: b, match: {query: {'a b': c}}}", "bad-name", ".match.query[\"a b\"]"),
    ("{to: b, match: {method: get}}", "unknown-value", ".match.method"),
    ("{to: b, match: {fraction: 5}}", "bad-share", ".match.fraction"),
    ("{to: b, match: {fraction: 101%}}", "bad-share", ".match.fraction"),
    ("{to: b, mirror: {c: 5}}", "bad-share", ".mirror[\"c\"]"),
    ("{to: b, mirror: {c: 5%, default/c: 5%}}", "duplicate-name", ".mirror[\"default/c\"]"),
    ("{to: b, timeout: 5}", "bad-duration", ".timeout"),
    ("{to: b, timeout: 1.5s}", "bad-duration", ".timeout"),
    ("{to: b, timeout: 1s, attempt_timeout: 2s}", "out-of-range", ".attempt_timeout"),
    ("{to: b, retry: {attempts: 2}}", "missing-field", ".retry"),
    ("{to: b, retry: {on: []}}", "missing-field", ".retry.on"),
    ("{to: b, retry: {on: 5xx}}", "unknown-value", ".retry.on"),
    ("{to: b, retry: {on: 200}}", "out-of-range", ".retry.on"),
    ("{to: b, retry: {on: 503, attempts: 0}}", "out-of-range", ".retry.attempts"),
    ("{to: b, session: {}}", "missing-field", ".session"),
    ("{to: b, session: {cookie: a, header: b}}", "missing-field", ".session"),
    ("{to: b, session: {cookie: 'a;b'}}", "bad-cookie-name", ".session.cookie"),
    ("{to: b, session: {cookie: a, path: '/;b'}}", "bad-cookie-path", ".session.path"),
    ("{to: b, session: {cookie: a, ttl: 0s}}", "out-of-range", ".session.ttl"),
    ("{to: b, session: {header: a, path: /}}", "misplaced-field", ".session.path"),
    ("{to: b, set_headers: {host: a}}", "bad-header-name", ".set_headers[\"host\"]"),
    ("{to: b, set_headers: {':path': a}}", "bad-header-name", ".set_headers[\":path\"]"),
    ("{to: b, set_headers: {a: \"b\\nc: d\"}}", "bad-header-value", ".set_headers[\"a\"]"),
    ("{to: b, set_headers: {a: b}, remove_headers: A}", "duplicate-name", ".remove_headers"),
    ("{redirect: {scheme: https}, to: b}", "misplaced-field", ".to"),
    ("{redirect: {}}", "missing-field", ".redirect"),
    ("{redirect: {scheme: ftp}}", "unknown-value", ".redirect.scheme"),
    ("{redirect: {host: '*.a'}}", "bad-hostname", ".redirect.host"),
    ("{redirect: {host: a, status: 305}}", "unknown-value", ".redirect.status"),
    ("{to: b, rewrite: {}}", "missing-field", ".rewrite"),
    ("{to: b, rewrite: {prefix: /a}, match: {path: /b}}", "misplaced-field", ".rewrite.prefix"),
    ("{to: b, rewrite: {prefix: /a, path: /b}}", "misplaced-field", ".rewrite.prefix"),
    ("[]", "wrong-type", ""),
];

#[test]
fn what_is_wrong_with_a_route_is_said_where_it_is() {
    let long = "a".repeat(254);
    for (body, code, path) in ROUTES {
        let found = findings(&format!("{HEAD}routes: {{r: {body}}}"));
        assert_eq!(found, [format!("error[{code}] routes[\"r\"]{path}")], "{body}");
    }
    let found = findings(&format!("{HEAD}routes: {{{long}: {{to: b}}}}"));
    assert_eq!(found, [format!("error[bad-length] routes[\"{long}\"]")]);
}

#[test]
fn an_unknown_field_is_an_error_with_what_was_meant_in_whatever_mode() {
    let text = format!(
        "{HEAD}listeners: {{l: {{port: 80, adress: 127.0.0.1, tsl: cert}}}}\nroutes: {{r: {{to: b, tmeout: 1s}}}}"
    );
    let expected = [
        "error[unknown-field] listeners[\"l\"].adress",
        "error[unknown-field] listeners[\"l\"].tsl",
        "error[unknown-field] routes[\"r\"].tmeout",
    ];
    assert_eq!(findings(&text), expected);
    let meant: Vec<_> = diagnostics(&text).into_iter().map(|found| found.suggestion).collect();
    assert_eq!(meant, ["address", "tls", "timeout"].map(|name| Some(name.to_owned())));
    // A section that is misspelt would take all its objects with it.
    let text = format!("{HEAD}routes: {{r: {{to: b}}}}\nbackend: {{b: 10.0.0.1:80}}");
    assert_eq!(findings(&text), ["error[unknown-field] backend"]);
    assert!(matches!(outcomes(&text).as_slice(), [ReadOutcome::Unreadable(_)]));
    let tree =
        xds_codec::parse("f.yaml", text.as_bytes(), xds_codec::Syntax::Yaml, &xds_codec::Limits::default());
    let read = |unknown| crate::read::read(&"".into(), &tree.as_ref().expect("valid YAML")[0], unknown);
    assert!(matches!(read(crate::read::UnknownFields::Warn), ReadOutcome::Unreadable(_)));
    assert!(matches!(read(crate::read::UnknownFields::Accepted), ReadOutcome::Objects(_)));
}

#[test]
fn what_does_nothing_is_a_warning() {
    let table = [
        ("{to: b, hosts: [a.b, a.b]}", "warning[duplicate-hostname] routes[\"r\"].hosts[1]"),
        ("{to: b, listen: [a, default/a]}", "warning[duplicate-parent] routes[\"r\"].listen[1]"),
        ("{to: b, match: {grpc: a.B, method: GET}}", "warning[matches-nothing] routes[\"r\"].match.method"),
    ];
    for (body, expected) in table {
        assert_eq!(findings(&format!("{HEAD}routes: {{r: {body}}}")), [expected], "{body}");
    }
}

#[test]
fn what_is_wrong_with_a_backend_is_said_where_it_is() {
    let table = [
        ("{}", "error[missing-field] "),
        ("[]", "error[missing-field] "),
        ("''", "error[bad-address] "),
        ("80", "error[wrong-type] "),
        ("10.0.0.1", "error[bad-address] "),
        ("[10.0.0.1:80, 10.0.0.400:80]", "error[bad-address] [1]"),
        ("'2001:db8::1:80'", "error[bad-address] "),
        ("{endpoints: []}", "error[missing-field] .endpoints"),
        ("{endpoints: [{zone: a}]}", "error[missing-field] .endpoints[0]"),
        ("{endpoints: [{addr: a:80, weight: 0}]}", "error[out-of-range] .endpoints[0].weight"),
        ("{endpoints: [{addr: a:80, weight: 1}]}", "warning[unsupported] .endpoints[0]"),
        ("{endpoints: [10.0.0.1:80, 10.0.0.1:80]}", "warning[duplicate-endpoint] .endpoints[1]"),
        ("{dns: 10.0.0.1:80}", "error[bad-address] .dns"),
        ("{dns: a}", "error[bad-address] .dns"),
        ("{unix: x}", "error[bad-length] .unix"),
        ("{unix: run/x}", "error[bad-path] .unix"),
        ("{dns: a:80, unix: [/run/x, /run/y]}", "error[mixed-endpoints] .unix[0]"),
        ("{endpoints: [10.0.0.1:80, a:80], unix: /run/x}", "error[mixed-endpoints] .unix"),
        ("{dns: a:80, protocol: h2}", "error[unknown-value] .protocol"),
        ("{dns: a:80, lb: random}", "error[unknown-value] .lb"),
        ("{dns: a:80, tls: {ca: ./ca.pem}}", "error[bad-certificate] .tls.ca"),
        ("{endpoints: 10.0.0.1:80, tls: true}", "error[missing-field] .tls"),
        ("{dns: [a:80, b:80], tls: true}", "error[missing-field] .tls"),
        ("{dns: a:80, tls: yes}", "error[wrong-type] .tls"),
        ("{fallback: []}", "error[missing-field] .fallback"),
        ("{dns: a:80, drain: 30s}", "error[wrong-type] .drain"),
        ("{dns: a:80, drain: {cluster: 30}}", "error[wrong-type] .drain.cluster"),
        ("{dns: a:80, drain: {endpoints: soon}}", "error[bad-duration] .drain.endpoints"),
        ("{dns: a:80, drain: {clusters: 30s}}", "error[unknown-field] .drain.clusters"),
        ("{fallback: [a], dns: a:80}", "error[misplaced-field] "),
        ("{fallback: [a, b]}", "error[fallback-cycle] .fallback[1]"),
        ("{fallback: [a, a]}", "warning[duplicate-name] .fallback[1]"),
        ("{fallback: [a], lb: round_robin}", "warning[misplaced-field] "),
        ("{dns: a:80, weight: 1}", "error[unknown-field] .weight"),
    ];
    for (body, expected) in table {
        let (finding, path) = expected.split_once(' ').expect("a path");
        let found = findings(&format!("{HEAD}backends: {{b: {body}}}"));
        assert_eq!(found, [format!("{finding} backends[\"b\"]{path}")], "{body}");
    }
    assert_eq!(
        findings(&format!("{HEAD}backends: {{'b:80': a:80}}")),
        ["error[bad-name] backends[\"b:80\"]"]
    );
}

#[test]
fn what_is_wrong_with_a_listener_is_said_where_it_is() {
    let table = [
        ("{}", "error[missing-field] "),
        ("0", "error[out-of-range] "),
        ("'8080'", "error[wrong-type] "),
        ("{port: 65536}", "error[out-of-range] .port"),
        ("{port: 80, host: a:80}", "error[bad-hostname] .host"),
        ("{port: 80, address: localhost}", "error[bad-address] .address"),
        ("{port: 80, tls: {}}", "error[missing-field] .tls"),
        ("{port: 80, tls: {certificates: []}}", "error[missing-field] .tls.certificates"),
        ("{port: 80, tls: {certificate: a, certificates: [b]}}", "error[duplicate-field] .tls"),
        ("{port: 80, tls: a/b/c}", "error[bad-name] .tls"),
        ("{port: 80, hosts: [a]}", "error[unknown-field] .hosts"),
    ];
    for (body, expected) in table {
        let (finding, path) = expected.split_once(' ').expect("a path");
        let found = findings(&format!("{HEAD}listeners: {{l: {body}}}"));
        assert_eq!(found, [format!("{finding} listeners[\"l\"]{path}")], "{body}");
    }
    assert_eq!(findings(&format!("{HEAD}listeners: {{grpc: 80}}")), ["error[bad-name] listeners[\"grpc\"]"]);
}

#[test]
fn what_is_wrong_with_the_document_takes_all_of_it_down() {
    let table = [
        ("", "error[empty-document] "),
        ("routes: {}", "error[empty-document] "),
        ("routes: null\nbackends:", "error[empty-document] "),
        ("routes: [{to: b}]", "error[wrong-type] routes"),
        ("routes: {r: {to: b}}\nnodes: {a: {match: []}}", "error[unsupported] nodes"),
        ("routes: {'': {to: b}}", "error[bad-name] routes[\"\"]"),
        ("namespace: a/b\nroutes: {r: {to: b}}", "error[bad-name] namespace"),
    ];
    for (body, expected) in table {
        let text = format!("{HEAD}{body}");
        assert_eq!(findings(&text), [expected], "{body}");
        assert!(matches!(outcomes(&text)[0], ReadOutcome::Unreadable(_)), "{body}");
    }
    assert_eq!(findings("version: xds-server/v2\nroutes: 1"), ["error[unknown-version] version"]);
}
