//! Tests of the native form: its meaning, and its refusals.

#![expect(clippy::panic, reason = "helpers of tests")]

mod refused;

use std::time::Duration;

use super::*;
use crate::model::{
    Backend, BackendSource, FilterKind, Fraction, Gateway, HeaderValue, LbPolicy, ListenerProtocol,
    MatchType, PathMatch, PathRewrite, Route, SessionKind, SessionLifetime, StaticEndpoint,
};
use crate::read::UnknownFields;
use crate::read::testing::{clean, diagnostics, documents, findings, objects};

const HEAD: &str = "version: xds-server/v1\n";

fn route(body: &str) -> Route {
    let Spec::Route(route) = clean(&format!("{HEAD}routes: {{r: {body}}}")) else { panic!("no Route") };
    route
}

fn matches(text: &str) -> crate::model::Match {
    let mut rule = route(&format!("{{to: b, match: {text}}}")).rules.remove(0);
    assert_eq!(rule.matches.len(), 1);
    rule.matches.remove(0)
}

fn backend(body: &str) -> Backend {
    let Spec::Backend(backend) = clean(&format!("{HEAD}backends: {{b: {body}}}")) else {
        panic!("no Backend")
    };
    *backend
}

fn listener(body: &str) -> Gateway {
    let Spec::Gateway(gateway) = clean(&format!("{HEAD}listeners: {{l: {body}}}")) else {
        panic!("no Gateway")
    };
    *gateway
}

/// The targets of a route's first rule, with their weights.
fn targets(route: &Route) -> Vec<String> {
    let show = |one: &crate::model::BackendRef| {
        let object = &one.object;
        let port = object.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{} {}/{}{port}={}", object.kind, object.namespace, object.name, one.weight)
    };
    route.rules[0].backends.iter().map(show).collect()
}

/// The example of the reference, without what belongs to a NodeGroup.
const EXAMPLE: &str = "
version: xds-server/v1
listeners:
  edge: { port: 8080 }
routes:
  greeter:
    hosts: [greeter.example.com]
    listen: [edge]
    rules:
    - match: { grpc: helloworld.Greeter/SayHello }
      to: { greeter-v1: 90, greeter-v2: 10 }
      timeout: 5s
      retry: { on: [unavailable], attempts: 3 }
      mirror: { greeter-shadow: 5% }
      session: { cookie: sid, ttl: 1h }
backends:
  greeter-v1: { protocol: grpc, endpoints: [10.0.0.4:50051, {addr: 10.0.0.5:50051, zone: b, weight: 2}] }
  greeter-v2: { dns: greeter-v2.internal:50051, tls: {sni: greeter.internal} }
  greeter-shadow: 10.0.0.6:50051
";

#[test]
fn a_document_becomes_its_objects_in_the_order_of_the_text() {
    assert_eq!(findings(EXAMPLE), Vec::<String>::new());
    let objects = objects(EXAMPLE);
    let keys: Vec<_> = objects.iter().map(|object| format!("{}:{}", object.key, object.place.line)).collect();
    let expected = [
        "Gateway default/edge:4",
        "Route default/greeter:6",
        "Backend default/greeter-v1:17",
        "Backend default/greeter-v2:18",
        "Backend default/greeter-shadow:19",
    ];
    assert_eq!(keys, expected);
    let Spec::Route(route) = &documents(EXAMPLE)[1].spec else { panic!("no Route") };
    assert_eq!(targets(route), ["Backend default/greeter-v1=90", "Backend default/greeter-v2=10"]);
    let parents: Vec<_> =
        route.parents.iter().map(|parent| (&*parent.kind, &*parent.namespace, &*parent.name)).collect();
    assert_eq!(parents, [("Gateway", "default", "edge")]);
    let rule = &route.rules[0];
    assert_eq!(rule.timeouts.request, Some(Duration::from_secs(5)));
    let retry = rule.retry.as_ref().expect("retries");
    assert_eq!((retry.grpc_on.as_slice(), retry.attempts), (&["unavailable".to_owned()][..], 3));
    let FilterKind::Mirror { backend, fraction } = &rule.filters[0].kind else { panic!("no mirror") };
    assert_eq!((&*backend.name, *fraction), ("greeter-shadow", Fraction { numerator: 5, denominator: 100 }));
    let session = rule.session.as_ref().expect("a session");
    let cookie = SessionKind::Cookie {
        name: Some("sid".to_owned()),
        path: "/".to_owned(),
        lifetime: SessionLifetime::Permanent,
    };
    assert_eq!((session.absolute_timeout, &session.kind), (Some(Duration::from_secs(3_600)), &cookie));
    assert_eq!(rule.spot.path.to_string(), "routes[\"greeter\"].rules[0]");
}

#[test]
fn the_source_of_an_object_is_a_document_that_gives_it_again() {
    let text = EXAMPLE.replace("version: xds-server/v1", "version: xds-server/v1\nnamespace: prod");
    let lines = regex::Regex::new("(line|column): [0-9]+").expect("valid");
    for document in documents(&text) {
        assert_eq!(&*document.key.namespace, "prod");
        let ReadOutcome::Objects(mut again) =
            crate::read::read(&"".into(), &document.source.tree(), UnknownFields::Refuse)
        else {
            panic!("{}", document.source.text());
        };
        assert_eq!(again.len(), 1);
        let (again, warnings) = again.remove(0).outcome.expect("a good object");
        assert_eq!(
            (again.key.clone(), &again.source, warnings.len()),
            (document.key.clone(), &document.source, 0)
        );
        let show = |spec: &Spec| lines.replace_all(&format!("{spec:?}"), "").into_owned();
        assert_eq!(show(&again.spec), show(&document.spec));
    }
}

#[test]
fn a_bad_object_takes_no_other_down() {
    let text = format!(
        "{HEAD}routes: {{good: {{to: b}}, bad: {{to: {{b: -1}}}}, 'a/b': {{to: b}}}}\nbackends: {{b: 10.0.0.1:80, c: 'x'}}"
    );
    let outcome: Vec<_> =
        objects(&text).iter().map(|object| (object.key.to_string(), object.outcome.is_ok())).collect();
    let expected = [
        ("Route default/good", true),
        ("Route default/bad", false),
        ("Route default/a/b", false),
        ("Backend default/b", true),
        ("Backend default/c", false),
    ];
    assert_eq!(outcome, expected.map(|(key, is_good)| (key.to_owned(), is_good)));
    let expected = [
        "error[out-of-range] routes[\"bad\"].to[\"b\"]",
        "error[bad-name] routes[\"a/b\"]",
        "error[bad-address] backends[\"c\"]",
    ];
    assert_eq!(findings(&text), expected);
}

#[test]
fn a_route_without_rules_is_its_only_rule() {
    let short = route("{hosts: a.example.com, match: {prefix: /a}, to: b, timeout: 1s}");
    let long = route("{hosts: [a.example.com], rules: [{match: [{prefix: /a}], to: {b: 1}, timeout: 1s}]}");
    assert_eq!(short.hostnames, long.hostnames);
    assert_eq!(targets(&short), targets(&long));
    assert_eq!(short.rules[0].matches[0].path, long.rules[0].matches[0].path);
    assert_eq!(short.rules[0].timeouts, long.rules[0].timeouts);
    assert!(short.parents.is_empty());
    assert!(route("{hosts: ['*'], to: b}").hostnames.is_empty());
}

#[test]
fn a_target_is_a_backend_or_a_service_with_its_port() {
    let table = [
        ("b", vec!["Backend default/b=1"]),
        ("{b: 0, c: 1}", vec!["Backend default/b=0", "Backend default/c=1"]),
        ("{b: 1000000, 'v1:80': 1.0}", vec!["Backend default/b=1000000", "Service default/v1:80=1"]),
        ("prod/v1:50051", vec!["Service prod/v1:50051=1"]),
        ("prod/b", vec!["Backend prod/b=1"]),
        ("a%20b", vec!["Backend default/a%20b=1"]),
        ("gr\u{fc}n", vec!["Backend default/gr\u{fc}n=1"]),
    ];
    for (to, expected) in table {
        assert_eq!(targets(&route(&format!("{{to: {to}}}"))), expected, "{to}");
    }
}

#[test]
fn a_match_says_a_method_or_a_path() {
    let method = |service: Option<&str>, method: Option<&str>| {
        PathMatch::Method(crate::model::MethodMatch {
            match_type: MatchType::Exact,
            service: service.map(str::to_owned),
            method: method.map(str::to_owned),
        })
    };
    let table = [
        ("{}", PathMatch::Any),
        ("{grpc: helloworld.Greeter/SayHello}", method(Some("helloworld.Greeter"), Some("SayHello"))),
        ("{grpc: /helloworld.Greeter/SayHello}", method(Some("helloworld.Greeter"), Some("SayHello"))),
        ("{grpc: helloworld.Greeter}", method(Some("helloworld.Greeter"), None)),
        ("{grpc: helloworld.Greeter/*}", method(Some("helloworld.Greeter"), None)),
        ("{grpc: '*/SayHello'}", method(None, Some("SayHello"))),
        ("{path: /a/b%20c}", PathMatch::Exact("/a/b%20c".to_owned())),
        ("{prefix: /}", PathMatch::Any),
        ("{prefix: /a}", PathMatch::Prefix("/a".to_owned())),
        ("{prefix: /a/}", PathMatch::Prefix("/a".to_owned())),
        ("{text_prefix: /a/}", PathMatch::TextPrefix("/a/".to_owned())),
        ("{text_prefix: /}", PathMatch::Any),
        ("{regex: '/a/.*'}", PathMatch::Regex("/a/.*".to_owned())),
    ];
    for (text, expected) in table {
        assert_eq!(matches(text).path, expected, "{text}");
    }
}

#[test]
fn a_match_says_headers_query_method_and_share() {
    let found = matches(
        "{headers: {X-Env: canary, x-v: '~v[0-9]+', x-any: '*', Host: a.b, ':method': GET},
          query: {Q: '1', r: '~a|b', any: '*'}, method: GET, fraction: 0.5%, case_sensitive: false}",
    );
    let headers: Vec<_> = found.headers.iter().map(|header| (&*header.name, &header.value)).collect();
    let exact = |text: &str| HeaderValue::Exact(text.to_owned());
    let expected = [
        (":method", &exact("GET")),
        (":authority", &exact("a.b")),
        ("x-env", &exact("canary")),
        ("x-any", &HeaderValue::Present),
        ("x-v", &HeaderValue::Regex("v[0-9]+".to_owned())),
    ];
    assert_eq!(headers, expected);
    let query: Vec<_> = found.query.iter().map(|one| (&*one.name, one.match_type, &*one.value)).collect();
    let expected = [
        ("Q", MatchType::Exact, "1"),
        ("any", MatchType::RegularExpression, ".*"),
        ("r", MatchType::RegularExpression, "a|b"),
    ];
    assert_eq!(query, expected);
    assert_eq!(found.method.as_deref(), Some("GET"));
    assert_eq!(found.fraction, Some(Fraction { numerator: 50, denominator: 10_000 }));
    assert!(!found.case_sensitive && matches("{path: /a}").case_sensitive);
}

#[test]
fn the_order_of_keys_says_nothing() {
    let backends = |rule: &str| route(rule).rules.remove(0).backends.into_iter().map(|one| one.object.name);
    let one: Vec<_> = backends("{to: {a: 1, b: 2}}").collect();
    let other: Vec<_> = backends("{to: {b: 2, a: 1}}").collect();
    assert_eq!(one, other);
}

#[test]
fn a_rule_changes_headers_redirects_and_rewrites() {
    let rule = route(
        "{to: b, set_headers: {X-A: '1'}, add_headers: {x-b: ''}, remove_headers: [x-c], add_response_headers: {x-d: e},
          rewrite: {host: c.example.com, prefix: /new}, match: [{prefix: /old}, {}], mirror: shadow}",
    )
    .rules
    .remove(0);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let kinds: Vec<_> = rule.filters.iter().map(|filter| &filter.kind).collect();
    let [
        FilterKind::RequestHeaders(request),
        FilterKind::ResponseHeaders(response),
        FilterKind::Mirror { fraction, .. },
        FilterKind::Rewrite { host, path },
    ] = kinds.as_slice()
    else {
        panic!("{kinds:?}");
    };
    assert_eq!((&request.set, &request.add), (&vec![pair("X-A", "1")], &vec![pair("x-b", "")]));
    assert_eq!((&request.remove, &response.add), (&vec!["x-c".to_owned()], &vec![pair("x-d", "e")]));
    assert_eq!(*fraction, Fraction { numerator: 100, denominator: 100 });
    assert_eq!(
        (host.as_deref(), path),
        (Some("c.example.com"), &Some(PathRewrite::Prefix("/new".to_owned())))
    );
    let rule = route("{redirect: {scheme: https, port: 8443, path: /x, status: 308}}").rules.remove(0);
    let FilterKind::Redirect(redirect) = &rule.filters[0].kind else { panic!("no redirect") };
    assert_eq!(
        (redirect.scheme.as_deref(), redirect.port, redirect.status),
        (Some("https"), Some(8_443), 308)
    );
    assert_eq!(redirect.path, Some(PathRewrite::Full("/x".to_owned())));
    assert!(rule.backends.is_empty());
}

#[test]
fn a_rule_limits_time_retries_and_keeps_sessions() {
    let rule = route(
        "{to: b, timeout: 0s, attempt_timeout: 2s, retry: {on: [503, unavailable, 503], backoff: 25ms}, session: {header: X-Sid}}",
    )
    .rules
    .remove(0);
    assert_eq!(rule.timeouts.request, Some(Duration::ZERO));
    assert_eq!(rule.timeouts.backend_request, Some(Duration::from_secs(2)));
    let retry = rule.retry.expect("retries");
    assert_eq!((retry.codes, retry.attempts, retry.backoff), (vec![503], 1, Some(Duration::from_millis(25))));
    assert_eq!(rule.session.expect("a session").kind, SessionKind::Header { name: "x-sid".to_owned() });
    let cookie = |text: &str| {
        let rule = route(&format!("{{to: b, session: {text}}}")).rules.remove(0);
        rule.session.expect("a session").kind
    };
    let (path, lifetime) = ("/a".to_owned(), SessionLifetime::Session);
    assert_eq!(cookie("{cookie: true, path: /a}"), SessionKind::Cookie { name: None, path, lifetime });
}

#[test]
fn a_backend_has_endpoints_names_sockets_or_fallbacks() {
    let ip = |last: u8, zone: &str, weight: Option<u32>| StaticEndpoint::Ip {
        address: [10, 0, 0, last].into(),
        port: 80,
        zone: zone.to_owned(),
        weight,
    };
    let dns = |host: &str| StaticEndpoint::Dns { host: host.to_owned(), port: 80 };
    let table = [
        ("10.0.0.1:80", vec![ip(1, "", None)]),
        ("[10.0.0.1:80, a.b:80]", vec![ip(1, "", None), dns("a.b")]),
        ("{endpoints: 10.0.0.1:80}", vec![ip(1, "", None)]),
        ("{endpoints: [{addr: 10.0.0.1:80, zone: z, weight: 2}]}", vec![ip(1, "z", Some(2))]),
        ("{dns: A.b:80}", vec![dns("a.b")]),
        ("{dns: [a:80, b:80]}", vec![dns("a"), dns("b")]),
        ("{unix: /run/x}", vec![StaticEndpoint::Unix { path: "/run/x".to_owned() }]),
        ("{endpoints: [10.0.0.1:80], dns: a:80}", vec![ip(1, "", None), dns("a")]),
    ];
    for (body, expected) in table {
        assert_eq!(backend(body).source, BackendSource::Endpoints(expected), "{body}");
    }
    let v6 = backend("'[2001:db8::1]:80'").source;
    assert!(
        matches!(v6, BackendSource::Endpoints(list) if matches!(list[0], StaticEndpoint::Ip { address, .. } if address.is_ipv6()))
    );
    let BackendSource::Fallback(members) = backend("{fallback: [a, 'prod/s:80']}").source else {
        panic!("no fallback")
    };
    let members: Vec<_> =
        members.iter().map(|one| (&*one.object.kind, &*one.object.name, one.object.port)).collect();
    assert_eq!(members, [("Backend", "a", None), ("Service", "s", Some(80))]);
    assert!(
        backend("{protocol: grpc, dns: a:80}").is_http2 && !backend("{protocol: http, dns: a:80}").is_http2
    );
    assert_eq!(backend("{lb: least_request, dns: a:80}").lb_policy, LbPolicy::LeastRequest);
    let limited = backend("{max_requests: 5, max_connections: 6, max_pending: 4294967295, dns: a:80}").limits;
    assert_eq!((limited.requests, limited.connections, limited.pending), (Some(5), Some(6), Some(u32::MAX)));
    assert_eq!(backend("{dns: a:80}").limits, crate::model::BackendLimits::default());
}

#[test]
fn tls_knows_a_name_and_whom_to_trust() {
    let tls = |body: &str| backend(body).tls.map(|tls| (tls.sni, tls.ca_pem));
    let named = |sni: &str| Some((sni.to_owned(), None));
    assert_eq!(tls("{dns: a.b:80, tls: true}"), named("a.b"));
    assert_eq!(tls("{dns: a.b:80, tls: false}"), None);
    assert_eq!(tls("{endpoints: [10.0.0.1:80], tls: {sni: x.y}}"), named("x.y"));
    let pem = "-----BEGIN CERTIFICATE-----\\nAA==\\n-----END CERTIFICATE-----";
    for field in ["ca", "ca_pem"] {
        let (sni, ca) = tls(&format!("{{dns: a:80, tls: {{{field}: \"{pem}\"}}}}")).expect("TLS");
        assert_eq!((&*sni, ca), ("a", Some(pem.replace("\\n", "\n"))));
    }
    let key = "-----BEGIN PRIVATE KEY-----\\nhunter2\\n-----END PRIVATE KEY-----";
    let found = diagnostics(&format!("{HEAD}backends: {{b: {{dns: a:80, tls: {{ca: \"{key}\"}}}}}}"));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].is_sensitive && found[0].code == "private-key" && !found[0].to_string().contains("hunter2")
    );
}

#[test]
fn a_listener_is_a_gateway_with_one_listener_of_its_name() {
    let gateway = listener("8080");
    let [only] = gateway.listeners.as_slice() else { panic!("one listener") };
    assert_eq!(
        (&*only.name, only.port, &only.protocol, &only.hostname),
        ("l", 8_080, &ListenerProtocol::Http, &None)
    );
    assert_eq!((gateway.class.as_str(), gateway.address), ("", None));
    let gateway =
        listener("{port: 443, host: '*.example.com', address: 10.0.0.1, tls: {certificates: [a, prod/b]}}");
    let only = &gateway.listeners[0];
    assert_eq!(gateway.address, Some([10, 0, 0, 1].into()));
    assert_eq!(only.hostname.as_ref().map(ToString::to_string).as_deref(), Some("*.example.com"));
    assert_eq!(only.protocol, ListenerProtocol::Https);
    let certificates: Vec<_> =
        only.certificates.iter().map(|one| (&*one.kind, &*one.namespace, &*one.name)).collect();
    assert_eq!(certificates, [("Secret", "default", "a"), ("Secret", "prod", "b")]);
    assert_eq!(listener("{port: 443, tls: a}").listeners[0].certificates.len(), 1);
    assert_eq!(listener("{port: 443, address: '::', host: '*'}").address, None);
}
