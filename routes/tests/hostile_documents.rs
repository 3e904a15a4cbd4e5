//! Documents in which every single value is replaced by what does not belong there.

use serde_json::{Value as Json, json};
use xds_codec::{Limits, Syntax, Tree};
use xds_routes::{ReadOutcome, read};

const DOCUMENTS: &str = r"
version: xds-server/v1
namespace: prod
listeners:
  edge: {port: 8080, host: '*.example.com', address: 10.0.0.1, tls: {certificates: [a, b/c]}}
routes:
  greeter:
    hosts: [greeter.example.com]
    listen: [edge]
    rules:
    - name: first
      match: [{grpc: a.B/C, headers: {a: ~b, c: '*'}, query: {d: e}, method: POST, fraction: 5%, case_sensitive: true}]
      to: {v1: 90, 'ns/v2:80': 10}
      timeout: 5s
      attempt_timeout: 1s
      retry: {on: [unavailable, 503], attempts: 3, backoff: 25ms}
      mirror: {shadow: 5%}
      session: {cookie: sid, ttl: 1h, path: /}
      set_headers: {a: b}
      remove_response_headers: [c]
      rewrite: {host: a.b, path: /c}
    - redirect: {scheme: https, host: a.b, prefix: /c, port: 443, status: 301}
backends:
  a: {protocol: grpc, endpoints: [10.0.0.4:50051, {addr: '[::1]:1', zone: b, weight: 2}], dns: a:80, unix: /x, lb: round_robin}
  b: {fallback: [a, 's:80']}
  c: {dns: a:80, tls: {sni: b, ca: '-----BEGIN CERTIFICATE-----'}}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: b, labels: {c: d}, annotations: {e: f}, creationTimestamp: '2024-05-01T12:00:00Z'}
spec: {type: ExternalName, externalName: a.b, clusterIP: 10.0.0.1, ports: [{name: a, port: 1, targetPort: b, protocol: TCP, appProtocol: c}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, labels: {kubernetes.io/service-name: b}}
addressType: IPv4
ports: [{name: a, port: 1, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true, serving: true, terminating: false}, zone: a}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: a}
subsets: [{addresses: [{ip: 10.0.0.1}], notReadyAddresses: [{ip: '::1'}], ports: [{name: a, port: 1, protocol: TCP}]}]
---
apiVersion: v1
kind: Secret
metadata: {name: a}
data: {a: YQ==}
stringData: {b: c}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {a: b}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: a}
spec:
  type: Endpoints
  endpoints: [{ip: {address: 10.0.0.1, port: 1}, zone: a}, {fqdn: {hostname: a.b, port: 1}}, {unix: {path: /a}}]
  appProtocols: [kubernetes.io/h2c]
  tls: {sni: a, wellKnownCACertificates: System, minVersion: a}
  fallback: true
---
apiVersion: split.smi-spec.io/v1alpha1
kind: TrafficSplit
metadata: {name: a}
spec: {service: a, backends: [{service: b, weight: 500m}], matches: [{kind: HTTPRouteGroup, name: a, apiGroup: specs.smi-spec.io}]}
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: a}
spec: {service: a, backends: [{service: b, weight: 10}]}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: a}
spec: {matches: [{name: a, pathRegex: /a, methods: [GET], headers: [{a: b}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: a}
spec: {gatewayClassName: a, listeners: [{name: a, port: 1, protocol: HTTPS, hostname: a.b, tls: {mode: Terminate, certificateRefs: [{name: a}]}, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}, kinds: [{kind: GRPCRoute}]}}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: a}
spec:
  parentRefs: [{name: a, sectionName: b, port: 1}]
  hostnames: [a.b]
  rules:
  - matches: [{method: {type: Exact, service: a.B, method: C}, headers: [{type: RegularExpression, name: a, value: b}]}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}]
    backendRefs: [{name: a, port: 1, weight: 1}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec:
  rules:
  - matches: [{path: {type: PathPrefix, value: /a}, queryParams: [{name: a, value: b}], method: GET}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: a.b, path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}]
    timeouts: {request: 2s, backendRequest: 1s}
    backendRefs: [{name: a, port: 1}]
";

/// Every document, with one of its values replaced, for each value and each replacement.
fn mutants(document: &Json, junk: &Json) -> Vec<Json> {
    match document {
        Json::Object(fields) => {
            let inner = fields.iter().flat_map(|(key, value)| {
                mutants(value, junk).into_iter().map(move |mutant| (key.clone(), mutant))
            });
            let with = |(key, mutant): (String, Json)| {
                let mut fields = fields.clone();
                fields.insert(key, mutant);
                Json::Object(fields)
            };
            inner.map(with).chain([junk.clone()]).collect()
        }
        Json::Array(items) => {
            let inner = items.iter().enumerate().flat_map(|(index, value)| {
                mutants(value, junk).into_iter().map(move |mutant| (index, mutant))
            });
            let with = |(index, mutant): (usize, Json)| {
                let mut items = items.clone();
                items[index] = mutant;
                Json::Array(items)
            };
            inner.map(with).chain([junk.clone()]).collect()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => vec![junk.clone()],
    }
}

/// Reads a document and checks what holds for every outcome.
fn check(document: &Json) {
    let objects = match read(&"".into(), &Tree::from_json(document), xds_routes::UnknownFields::Refuse) {
        ReadOutcome::NotOurs => return,
        ReadOutcome::Unreadable(diagnostics) => {
            assert!(diagnostics.iter().any(xds_codec::Diagnostic::is_error), "{document}");
            return;
        }
        ReadOutcome::Objects(objects) => objects,
    };
    assert!(!objects.is_empty(), "{document}");
    for object in objects {
        match object.outcome {
            Err(diagnostics) => {
                assert!(diagnostics.iter().any(xds_codec::Diagnostic::is_error), "{document}");
            }
            Ok((good, diagnostics)) => {
                assert!(!diagnostics.iter().any(xds_codec::Diagnostic::is_error), "{document}");
                let again = read(&"".into(), &good.source.tree(), xds_routes::UnknownFields::Refuse);
                let ReadOutcome::Objects(mut again) = again else { panic!("{}", good.source.text()) };
                let Ok((again, _)) = again.remove(0).outcome else { panic!("{}", good.source.text()) };
                assert_eq!((&again.key, &again.spec, &again.source), (&good.key, &good.spec, &good.source));
            }
        }
    }
}

#[test]
fn no_document_makes_the_reader_panic_and_a_good_one_is_read_again_from_its_source() {
    let documents =
        xds_codec::parse("", DOCUMENTS.as_bytes(), Syntax::Yaml, &Limits::default()).expect("YAML");
    let long = "x".repeat(2_000);
    let junk = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("/"),
        json!("~"),
        json!(":"),
        json!("%"),
        json!("a/b:c"),
        json!("\u{0}\u{fc}\u{1f600}"),
        json!(long),
        json!([]),
        json!({}),
        json!([[]]),
        json!({"": null}),
        json!({"a": {"b": []}}),
    ];
    let mut n_mutants = 0;
    for document in documents.iter().map(Tree::to_json) {
        check(&document);
        for mutant in junk.iter().flat_map(|junk| mutants(&document, junk)) {
            check(&mutant);
            n_mutants += 1;
        }
    }
    assert!(n_mutants > 4_000, "{n_mutants}");
}
