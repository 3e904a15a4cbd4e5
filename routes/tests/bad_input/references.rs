//! References that lead nowhere, and objects that are in each other's way.

use super::{backend, check, route};

#[test]
fn references_that_lead_nowhere() {
    check(&[
        (
            "an absent Secret",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  gatewayClassName: xds-server\n  \
             listeners:\n  - name: https\n    port: 8443\n    protocol: HTTPS\n    tls:\n      certificateRefs:\n      - name: gone\n"
                .to_owned(),
            &["bad.yaml:12:9: warning[invalid-certificate-ref] spec.listeners[0].tls.certificateRefs[0]: \
               listener https: there is no Secret default/gone"],
        ),
        (
            "an absent root of a split",
            "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {name: s}\nspec:\n  service: gone\n  \
             backends: [{service: good, weight: 1}]\n"
                .to_owned(),
            &["bad.yaml:5:12: warning[root-service-not-found] spec.service: there is no Service \
               default/gone"],
        ),
        (
            "parameters of a Gateway",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  gatewayClassName: xds-server\n  \
             infrastructure: {labels: {a: b}, parametersRef: {group: example.com, kind: Config, name: big}}\n  \
             listeners: [{name: http, protocol: HTTP, port: 8080}]\n"
                .to_owned(),
            &["bad.yaml:6:51: warning[invalid-parameters] spec.infrastructure.parametersRef: parameters of the kind \
               \"example.com/Config\" are not supported, so big cannot be used; remove the reference"],
        ),
        (
            "a filter of another kind",
            route("HTTPRoute", "[{filters: [{type: ExternalAuth, externalAuth: {protocol: GRPC}}], backendRefs: [{name: bad, port: 80}]}]"),
            &["bad.yaml:26:57: warning[unsupported] spec.rules[0].filters[0].externalAuth: ExternalAuth is not supported; \
               every request that reaches this filter fails",
              "bad.yaml:26:22: warning[invalid-kind] spec.rules[0].filters[0]: the filter ExternalAuth is not supported, so all \
               requests of the rule fail"],
        ),
        (
            "rules without backends",
            route("GRPCRoute", "[{}, {filters: [{type: ExtensionRef, extensionRef: {group: g.io, kind: K, name: x}}]}]"),
            &["bad.yaml:26:11: warning[no-backend] spec.rules[0]: the rule has no backend, so all its requests fail",
              "bad.yaml:26:26: warning[invalid-kind] spec.rules[1].filters[0]: the filter g.io/K is unknown, so requests for x fail"],
        ),
        ("an absent Service", backend("{name: gone, port: 80}"), &["bad.yaml:26:26: warning[backend-not-found] spec.rules[0].backendRefs[0]: there is no Service default/gone"]),
        ("a Service of another namespace", backend("{name: far, namespace: far, port: 80}"), &["bad.yaml:26:26: warning[ref-not-permitted] spec.rules[0].backendRefs[0]: the namespace far has no ReferenceGrant that lets a GRPCRoute of default refer to the Service far"]),
        ("an unknown kind", backend("{name: bad, kind: Function, group: example.com}"), &["bad.yaml:26:26: warning[invalid-kind] spec.rules[0].backendRefs[0]: \"example.com/Function\" is not a kind of backend"]),
        (
            "an absent Gateway",
            route("GRPCRoute", "[]").replace("parentRefs: [{name: bad}]", "parentRefs: [{name: gone}]"),
            &["bad.yaml:25:16: warning[no-matching-parent] spec.parentRefs[0]: Gateway default/gone does \
               not accept the route (NoMatchingParent): there is no Gateway default/gone"],
        ),
    ]);
}

#[test]
fn listeners_in_each_others_way() {
    let gateway = |name: &str, listeners: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\nspec:\n  \
             gatewayClassName: xds-server\n  listeners:\n{listeners}---\n"
        )
    };
    let http = |name: &str, port: u16| format!("  - {{name: {name}, port: {port}, protocol: HTTP}}\n");
    check(&[
        (
            "two Gateways with the same listener",
            gateway("one", &http("http", 8081)) + &gateway("two", &http("http", 8081)),
            &["bad.yaml:15:5: warning[port-unavailable] spec.listeners[0]: listener http is not \
                 accepted (PortUnavailable): Gateway default/one of the same node group listens on port \
                 8081"],
        ),
        (
            "the listener of the good one",
            gateway("late", &http("http", 8080)),
            &["bad.yaml:7:5: warning[port-unavailable] spec.listeners[0]: listener http is not \
                 accepted (PortUnavailable): Gateway default/good of the same node group listens on port \
                 8080"],
        ),
        (
            "two listeners alike",
            gateway("one", &(http("a", 8081) + &http("b", 8081))),
            &[
                "bad.yaml:7:5: warning[hostname-conflict] spec.listeners[0]: listener a is not accepted \
                 (HostnameConflict): listener b has the same host name",
                "bad.yaml:8:5: warning[hostname-conflict] spec.listeners[1]: listener b is not accepted \
                 (HostnameConflict): listener a has the same host name",
            ],
        ),
        (
            "two listeners of a name",
            gateway("one", &(http("a", 8081) + &http("a", 8082))),
            &["bad.yaml:8:5: error[duplicate-listener] spec.listeners[1]: Listener name must be unique \
                 within the Gateway: \"a\""],
        ),
    ]);
}
