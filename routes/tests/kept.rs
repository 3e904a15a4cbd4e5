//! Documents keep at most [`MOST`] times the memory that their text has.
//!
//! `memory.rs` bounds the peak while hostile documents are read; this is about ordinary ones, as long as they are served.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Write as _;
use std::sync::Arc;

use xds_codec::{Limits, Syntax};
use xds_routes::{Document, ReadOutcome, UnknownFields, read};

use crate::{ALLOCATOR, alone};

/// Kept bytes for each byte of text.
const MOST: usize = 12;

/// Kept bytes for each document of a GRPCRoute with one host, its two Services and their two EndpointSlices of three endpoints: about
/// 300 are its JSON, 300 are the same for every document, and the rest is what it says.
const MOST_IN_ROUTE_WORLD: usize = 1_100;

type Generate = fn(&mut String, usize) -> std::fmt::Result;

const WORLDS: &[(&str, Generate)] = &[
    ("GRPCRoutes with Services and slices", |text, n| {
        grpc_route(text, n)?;
        ["v1", "v2"].iter().try_for_each(|version| {
            service(text, n, version)?;
            slice(text, n, version)
        })
    }),
    ("GRPCRoutes", grpc_route),
    ("Services", |text, n| service(text, n, "v1")),
    ("EndpointSlices", |text, n| slice(text, n, "v1")),
    ("Gateways", |text, n| {
        write!(
            text,
            "{GATEWAY_API}kind: Gateway\nmetadata: {{name: edge-{n}, namespace: prod}}\nspec:\n  gatewayClassName: xds\n  \
             listeners:\n  - {{name: http, protocol: HTTP, port: 80}}\n  - name: https\n    protocol: HTTPS\n    port: 443\n    \
             hostname: '*.example.com'\n    tls: {{certificateRefs: [{{name: edge-{n}}}]}}\n"
        )
    }),
    ("HTTPRoutes with filters", |text, n| {
        write!(
            text,
            "{GATEWAY_API}kind: HTTPRoute\nmetadata: {{name: web-{n}, namespace: prod, labels: {{app: web}}}}\nspec:\n  \
             parentRefs: [{{name: edge}}]\n  hostnames: [web-{n}.example.com]\n  rules:\n  - matches:\n    - path: {{type: PathPrefix, \
             value: /api}}\n      headers: [{{name: x-canary, value: always}}]\n    - path: {{value: /v2}}\n    filters:\n    - type: \
             RequestHeaderModifier\n      requestHeaderModifier: {{set: [{{name: x-env, value: prod}}]}}\n    timeouts: {{request: 10s}}\n    \
             backendRefs:\n    - {{name: web-{n}, port: 80}}\n"
        )
    }),
    ("objects as a cluster gives them", |text, n| {
        write!(
            text,
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web-{n}\n  namespace: prod\n  uid: 3c9a9d4e-0000-4000-8000-{n:012}\n  \
             resourceVersion: '{n}'\n  creationTimestamp: '2024-05-01T12:00:00Z'\n  labels: {{app: web, \
             app.kubernetes.io/instance: web-{n}, team: payments}}\n  annotations:\n    owner: payments@example.com\n    \
             kubectl.kubernetes.io/last-applied-configuration: '{{\"apiVersion\": \"v1\", \"kind\": \"Service\"}}'\nspec:\n  \
             type: ClusterIP\n  clusterIP: 10.96.0.7\n  selector: {{app: web}}\n  ports: [{{name: http, port: 80, targetPort: \
             8080}}]\n"
        )
    }),
    ("the native form", |text, n| {
        write!(
            text,
            "version: xds-server/v1\nroutes:\n  greeter-{n}:\n    hosts: [greeter-{n}.example.com]\n    rules:\n    - match: {{grpc: \
             helloworld.Greeter/SayHello}}\n      to: {{greeter-{n}-v1: 90, greeter-{n}-v2: 10}}\nbackends:\n  greeter-{n}-v1: \
             ['10.0.0.4:50051']\n  greeter-{n}-v2: {{dns: 'greeter-{n}.internal:50051', tls: true}}\n"
        )
    }),
    ("TrafficSplits", |text, n| {
        write!(
            text,
            "apiVersion: split.smi-spec.io/v1alpha4\nkind: TrafficSplit\nmetadata: {{name: web-{n}}}\nspec:\n  service: web-{n}\n  \
             backends:\n  - {{service: web-{n}-v1, weight: 90}}\n  - {{service: web-{n}-v2, weight: 10}}\n"
        )
    }),
];

const GATEWAY_API: &str = "apiVersion: gateway.networking.k8s.io/v1\n";

fn grpc_route(text: &mut String, n: usize) -> std::fmt::Result {
    write!(
        text,
        "{GATEWAY_API}kind: GRPCRoute\nmetadata:\n  name: route-{n:05}\n  namespace: prod\nspec:\n  parentRefs:\n  - name: public\n  \
         hostnames: [route-{n}.example.com]\n  rules:\n  - matches:\n    - method: {{service: example.Service{n}}}\n    backendRefs:\n    \
         - {{name: service-{n:05}-v1, port: 50051, weight: 90}}\n    - {{name: service-{n:05}-v2, port: 50051, weight: 10}}\n"
    )
}

fn service(text: &mut String, n: usize, version: &str) -> std::fmt::Result {
    write!(
        text,
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: service-{n:05}-{version}\n  namespace: prod\nspec:\n  ports:\n  \
         - name: grpc\n    port: 50051\n"
    )
}

fn slice(text: &mut String, n: usize, version: &str) -> std::fmt::Result {
    write!(
        text,
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: service-{n:05}-{version}\n  namespace: prod\n  \
         labels:\n    kubernetes.io/service-name: service-{n:05}-{version}\naddressType: IPv4\nports:\n- name: grpc\n  port: 50051\n\
         endpoints:\n- addresses: [10.1.0.1]\n  zone: zone-0\n- addresses: [10.3.0.1]\n  zone: zone-1\n- addresses: [10.5.0.1]\n  \
         zone: zone-2\n"
    )
}

fn documents(text: &str) -> Vec<Arc<Document>> {
    let file = "f.yaml".into();
    let limits = Limits { max_bytes: 64 << 20, ..Limits::default() };
    let trees = xds_codec::parse("f.yaml", text.as_bytes(), Syntax::Yaml, &limits).unwrap();
    let objects = trees.iter().flat_map(|tree| match read(&file, tree, UnknownFields::Refuse) {
        ReadOutcome::Objects(objects) => objects,
        outcome @ (ReadOutcome::NotOurs | ReadOutcome::Unreadable(_)) => panic!("{outcome:?}"),
    });
    objects.map(|object| object.outcome.unwrap().0).collect()
}

#[test]
fn ordinary_documents_keep_little_more_than_they_say() {
    let _alone = alone();
    const N: usize = 200;
    let mut beyond = Vec::new();
    for (name, generate) in WORLDS {
        let text = (0..N).fold(String::new(), |mut text, n| {
            text.push_str("---\n");
            generate(&mut text, n).unwrap();
            text
        });
        drop(documents(&text));
        let before = ALLOCATOR.current_usage();
        let documents = documents(&text);
        let kept = ALLOCATOR.current_usage() - before;
        let of_each = kept / documents.len();
        let row = format!(
            "{:4.1} × {:>4} bytes of text, {of_each} kept: {name}",
            kept as f64 / text.len() as f64,
            text.len() / documents.len()
        );
        println!("{row}");
        let is_route_world = *name == WORLDS[0].0;
        if kept > MOST * text.len() || (is_route_world && of_each > MOST_IN_ROUTE_WORLD) {
            beyond.push(row);
        }
    }
    assert!(beyond.is_empty(), "more than {MOST} × the text:\n{}", beyond.join("\n"));
}
