//! Bad input, by name: what is said of it, with file, line, column and field, and that it takes nothing down. Beside each bad
//! document there is a good route with its Gateway, which both kinds of clients are served as if it were alone.
//!
//! What a directory does with bad files, and what deleting and adding changes while clients are served, is in the tests of the
//! whole server (`tests/tests/documents/files.rs`).

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod api;
mod references;
#[path = "../support/mod.rs"]
mod support;
mod values;

use support::{Reading, conditions_text};
use xds_cache::{GroupName, Profile};
use xds_routes::{Options, Translation};

/// A route that is served to everybody, whatever is written beside it.
const GOOD: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: good}
spec: {gatewayClassName: xds-server, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: good}
spec:
  parentRefs: [{name: good}]
  hostnames: [good.example.com]
  rules: [{backendRefs: [{name: good, port: 50051}]}]
---
apiVersion: v1
kind: Service
metadata: {name: good}
spec: {ports: [{port: 50051}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: good}
subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 50051}]}]
";

/// A Gateway and a Service for what is bad in a route alone; the document begins in line 21.
const AROUND: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: bad}
spec:
  gatewayClassName: xds-server
  listeners:
  - name: http
    port: 8081
    protocol: HTTP
---
apiVersion: v1
kind: Service
metadata: {name: bad}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: bad}
subsets: [{addresses: [{ip: 10.0.0.2}], ports: [{port: 80}]}]
---
";

/// The documents of a case read and translated beside the good ones: what is said of them, line by line.
fn said(name: &str, bad: &str) -> (Vec<String>, Translation) {
    let alone = Reading::of("good.yaml", GOOD);
    assert!(alone.diagnostics.is_empty(), "{:?}", alone.diagnostics);
    let expected = alone.translate(&Options::default());
    let files = [("bad.yaml".to_owned(), bad.to_owned()), ("good.yaml".to_owned(), GOOD.to_owned())];
    let reading = Reading::of_files(&files);
    let translation = reading.translate(&Options::default());
    for profile in [Profile::Envoy, Profile::Grpc] {
        let of = |translation: &Translation| {
            translation.groups[&GroupName::default_group()].profiles[&profile].clone()
        };
        let (served, expected) = (of(&translation), of(&expected));
        assert!(expected.len() >= 4, "{profile:?}: {}", expected.len());
        for (key, resource) in &expected {
            let found =
                served.get(key).unwrap_or_else(|| panic!("{name}: {key:?} is not served to {profile:?}"));
            assert_eq!(found.version(), resource.version(), "{name}: {key:?} for {profile:?}");
        }
    }
    let conditions = conditions_text(&translation);
    let good = "GRPCRoute default/good [Gateway default/good]: Accepted=True Accepted\n";
    assert!(conditions.contains(good), "{name}: {conditions}");
    let diagnostics = reading.diagnostics.iter().chain(&translation.diagnostics);
    (diagnostics.map(ToString::to_string).collect(), translation)
}

fn check(cases: &[(&str, String, &[&str])]) {
    let mut faults = String::new();
    for (name, bad, expected) in cases {
        let (found, _) = said(name, bad);
        if found != *expected {
            faults += &format!(
                "{name}\n{}\n",
                found.iter().map(|line| format!("  {line:?},\n")).collect::<String>()
            );
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

/// A route of the Gateway `bad`, whose `spec` is line 24.
fn route(kind: &str, rules: &str) -> String {
    format!(
        "{AROUND}apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: bad}}\nspec:\n  \
         parentRefs: [{{name: bad}}]\n  rules: {rules}\n"
    )
}

/// A rule of a GRPCRoute with these filters, from line 26, column 10.
fn filters(filters: &str) -> String {
    route("GRPCRoute", &format!("[{{filters: [{filters}]}}]"))
}

fn method(method: &str) -> String {
    route("GRPCRoute", &format!("[{{matches: [{{method: {method}}}]}}]"))
}

fn backend(backend: &str) -> String {
    route("GRPCRoute", &format!("[{{backendRefs: [{backend}]}}]"))
}

fn n_times(n: usize, text: &str) -> String {
    vec![text; n].join(", ")
}
