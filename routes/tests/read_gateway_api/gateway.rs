//! Gateway.

use xds_routes::model::{AllowedNamespaces, Gateway, LabelSelector, ListenerProtocol, Spec};

use super::{document, expect, numbered, spec_and_warnings, spec_of};

fn gateway(rest: &str) -> String {
    document("Gateway", "v1", &format!("{{gatewayClassName: c, {rest}}}"))
}

fn with_listener(listener: &str) -> String {
    gateway(&format!("listeners: [{listener}]"))
}

fn read(yaml: &str) -> (Gateway, Vec<String>) {
    let (spec, warnings) = spec_and_warnings(yaml);
    let Spec::Gateway(gateway) = spec else { panic!("{spec:?}") };
    (*gateway, warnings)
}

const HTTP: &str = "{name: a, port: 80, protocol: HTTP}";

#[test]
fn defaults_are_filled_in() {
    let Spec::Gateway(gateway) = spec_of(&with_listener(HTTP)) else { panic!() };
    assert_eq!(
        (&*gateway.class, gateway.class_spot.path.to_string(), gateway.address),
        ("c", "spec.gatewayClassName".to_owned(), None)
    );
    let listener = gateway.listeners.first().expect("one");
    assert_eq!((&*listener.name, listener.port, &listener.protocol), ("a", 80, &ListenerProtocol::Http));
    assert_eq!((&listener.hostname, listener.certificates.len()), (&None, 0));
    assert_eq!((&listener.allowed.namespaces, listener.allowed.kinds.len()), (&AllowedNamespaces::Same, 0));
}

#[test]
fn a_listener_is_read_with_everything_in_it() {
    let listener = "{name: a, port: 443, protocol: HTTPS, hostname: '*.a.com', tls: {mode: Terminate, certificateRefs: [{name: s}, \
                    {group: g, kind: K, name: t, namespace: m}]}, allowedRoutes: {namespaces: {from: All}, kinds: [{kind: \
                    GRPCRoute}, {group: x.io, kind: Y}]}}";
    let (gateway, warnings) = read(&with_listener(listener));
    assert!(warnings.is_empty(), "{warnings:?}");
    let listener = gateway.listeners.first().expect("one");
    assert_eq!(listener.hostname.as_ref().map(|name| name.as_str()), Some("*.a.com"));
    let certificates: Vec<_> = listener
        .certificates
        .iter()
        .map(|one| (&*one.group, &*one.kind, &*one.namespace, &*one.name))
        .collect();
    assert_eq!(certificates, [("", "Secret", "n", "s"), ("g", "K", "m", "t")]);
    assert_eq!(listener.allowed.namespaces, AllowedNamespaces::All);
    let kinds: Vec<_> = listener.allowed.kinds.iter().map(|(group, kind)| (&**group, &**kind)).collect();
    assert_eq!(kinds, [("gateway.networking.k8s.io", "GRPCRoute"), ("x.io", "Y")]);
    assert_eq!(listener.allowed.kinds_spot.path.to_string(), "spec.listeners[0].allowedRoutes.kinds");
}

#[test]
fn a_gateway_has_1_to_64_listeners_with_distinct_names() {
    let many = |n| gateway(&format!("listeners: [{}]", numbered(n, "{name: l{}, port: 80, protocol: HTTP}")));
    expect(&many(64), "");
    expect(&many(65), "spec.listeners: there are 65 items, at most 64 are allowed");
    expect(&gateway("listeners: []"), "spec.listeners: at least one item is required");
    expect(&gateway("infrastructure: {}"), "spec: the field `listeners` is missing");
    let twice = format!("{HTTP}, {{name: a, port: 81, protocol: HTTP}}");
    expect(
        &with_listener(&twice),
        "spec.listeners[1]: Listener name must be unique within the Gateway: \"a\"",
    );
    // Their conditions say that these are in each other's way.
    expect(&with_listener(&format!("{HTTP}, {{name: b, port: 80, protocol: HTTP}}")), "");
    expect(
        &document("Gateway", "v1", "{listeners: [{name: a, port: 80, protocol: HTTP}]}"),
        "spec: the field `gatewayClassName` is missing",
    );
}

#[test]
fn bad_listeners_are_refused_with_the_words_of_the_api() {
    const TLS: &str = "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']";
    const HOST: &str = "hostname must not be specified for protocols ['TCP', 'UDP']";
    const CERTIFICATE: &str = "certificateRefs or options must be specified when mode is Terminate";
    let table = [
        ("{port: 80, protocol: HTTP}", "spec.listeners[0]: the field `name` is missing"),
        ("{name: a, protocol: HTTP}", "spec.listeners[0]: the field `port` is missing"),
        ("{name: a, port: 80}", "spec.listeners[0]: the field `protocol` is missing"),
        ("{name: A, port: 80, protocol: HTTP}", "are allowed"),
        ("{name: a, port: 0, protocol: HTTP}", "expected a whole number from 1 to 65535, found 0"),
        ("{name: a, port: 80, protocol: HTTP, hostname: 1.2.3.4}", "an IP address is not a host name"),
        ("{name: a, port: 80, protocol: HTTP, tls: {certificateRefs: [{name: s}]}}", TLS),
        ("{name: a, port: 80, protocol: TCP, tls: {certificateRefs: [{name: s}]}}", TLS),
        ("{name: a, port: 80, protocol: UDP, hostname: a.b}", HOST),
        ("{name: a, port: 80, protocol: HTTPS, tls: {}}", CERTIFICATE),
        ("{name: a, port: 80, protocol: HTTPS, tls: {certificateRefs: []}}", CERTIFICATE),
        (
            "{name: a, port: 80, protocol: HTTPS, tls: {mode: Passthrough}}",
            "tls.mode: tls mode must be Terminate for protocol HTTPS",
        ),
        ("{name: a, port: 80, protocol: TLS}", "tls mode must be set for protocol TLS"),
        (
            "{name: a, port: 80, protocol: HTTPS, tls: {mode: Other, certificateRefs: [{name: s}]}}",
            "\"Other\" is not one of Terminate, Passthrough",
        ),
        ("{name: a, port: 80, protocol: ''}", "\"\" has 0 characters, 1 to 255 are allowed"),
        ("{name: a, port: 80, protocol: HTTPS}", ""),
        ("{name: a, port: 80, protocol: TLS, tls: {mode: Passthrough}}", ""),
        ("{name: a, port: 80, protocol: TCP}", ""),
        ("{name: a, port: 80, protocol: example.com/own}", ""),
    ];
    for (listener, error) in table {
        expect(&with_listener(listener), error);
    }
}

#[test]
fn selectors_are_read() {
    let allowed = |namespaces: &str| {
        let listener =
            format!("{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {namespaces}}}}}");
        let (gateway, warnings) = read(&with_listener(&listener));
        (gateway.listeners.first().expect("one").allowed.namespaces.clone(), warnings.len())
    };
    let text = |text: &str| text.to_owned();
    let selector = "{from: Selector, selector: {matchLabels: {b: '1', a: '2'}, matchExpressions: [{key: c, operator: In, values: [x, \
                    y]}, {key: d, operator: NotIn, values: [z]}, {key: e, operator: Exists}, {key: f, operator: DoesNotExist, values: []}]}}";
    let expected = LabelSelector {
        values: vec![
            (text("a"), vec![text("2")], true),
            (text("b"), vec![text("1")], true),
            (text("c"), vec![text("x"), text("y")], true),
            (text("d"), vec![text("z")], false),
        ],
        keys: vec![(text("e"), true), (text("f"), false)],
    };
    let table = [
        ("{}", AllowedNamespaces::Same, 0),
        ("{from: Same}", AllowedNamespaces::Same, 0),
        ("{from: None}", AllowedNamespaces::None, 0),
        ("{from: Selector, selector: {}}", AllowedNamespaces::Selector(LabelSelector::default()), 0),
        ("{from: Selector}", AllowedNamespaces::None, 1),
        (selector, AllowedNamespaces::Selector(expected), 0),
    ];
    for (namespaces, expected, n_warnings) in table {
        assert_eq!(allowed(namespaces), (expected, n_warnings), "{namespaces}");
    }
    let bad = [
        ("{from: Some}", "\"Some\" is not one of All, Selector, Same, None"),
        (
            "{from: Selector, selector: {matchExpressions: [{key: a, operator: In}]}}",
            "the operator In needs `values`",
        ),
        (
            "{from: Selector, selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}",
            "the operator Exists takes no `values`",
        ),
        (
            "{from: Selector, selector: {matchExpressions: [{key: a, operator: Like}]}}",
            "is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            "{from: Selector, selector: {matchExpressions: [{operator: Exists}]}}",
            "the field `key` is missing",
        ),
        ("{from: Selector, selector: {matchLabels: {a: 1}}}", "expected a string, found 1"),
    ];
    for (namespaces, error) in bad {
        expect(
            &with_listener(&format!(
                "{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {namespaces}}}}}"
            )),
            error,
        );
    }
    let kinds = numbered(9, "{kind: K{}}");
    let error = "allowedRoutes.kinds: there are 9 items, at most 8 are allowed";
    expect(
        &with_listener(&format!(
            "{{name: a, port: 80, protocol: HTTP, allowedRoutes: {{kinds: [{kinds}]}}}}"
        )),
        error,
    );
}

#[test]
fn the_first_address_counts() {
    let of = |addresses: &str| gateway(&format!("listeners: [{HTTP}], addresses: [{addresses}]"));
    let table = [
        ("{value: 10.0.0.1}", Some("10.0.0.1"), 0),
        ("{type: IPAddress, value: '::1'}", Some("::1"), 0),
        ("{type: Hostname, value: a.b}, {value: 10.0.0.1}", Some("10.0.0.1"), 0),
        ("{value: 10.0.0.1}, {value: 10.0.0.2}", Some("10.0.0.1"), 1),
        ("{type: IPAddress}", None, 1),
        ("", None, 0),
    ];
    for (addresses, expected, n_warnings) in table {
        let (gateway, warnings) = read(&of(addresses));
        let expected = expected.map(|address| address.parse().expect("an address"));
        assert_eq!((gateway.address, warnings.len()), (expected, n_warnings), "{addresses} {warnings:?}");
        let unsupported = gateway.unsupported_address.as_ref().map(|(_, kind)| kind.as_str());
        assert_eq!(unsupported, addresses.contains("Hostname").then_some("\"Hostname\""), "{addresses}");
    }
    expect(&of("{value: 10.0.0}"), "\"10.0.0\" is not an IP address");
    expect(&of("{value: 10.0.0.1}, {value: 10.0.0.1}"), "IPAddress values must be unique");
}

#[test]
fn what_is_not_supported_is_a_warning_each() {
    let tls = "{certificateRefs: [{name: s}], options: {a.b/c: d}}";
    let listener = format!("{{name: a, port: 443, protocol: HTTPS, tls: {tls}}}");
    let yaml = gateway(&format!(
        "listeners: [{listener}], infrastructure: {{labels: {{a: b}}}}, tls: {{frontend: {{}}, backend: {{}}}}, allowedListeners: {{}}, defaultScope: All"
    ));
    let (_, warnings) = read(&yaml);
    let paths: Vec<_> = warnings.iter().filter_map(|one| one.split(": ").next()).collect();
    assert_eq!(
        paths,
        ["spec.listeners[0].tls.options", "spec.tls.backend", "spec.allowedListeners", "spec.defaultScope",]
    );
}

#[test]
fn a_gateway_that_asks_for_certificates_of_clients_is_refused() {
    let listener =
        "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: s}], frontendValidation: {}}}";
    expect(
        &gateway(&format!("listeners: [{listener}]")),
        "listeners cannot require client certificates; remove this only if anyone who can reach the port may be served",
    );
    let listener = "{name: a, port: 80, protocol: HTTP}";
    let yaml = gateway(&format!("listeners: [{listener}], tls: {{frontend: {{default: {{}}}}}}"));
    expect(
        &yaml,
        "listeners cannot require client certificates; remove this only if anyone who can reach the port may be served",
    );
}
