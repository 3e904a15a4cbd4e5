//! The texts of which bad documents are made, and the good ones beside them.

/// A route that is served to everybody, whatever is written beside it.
pub(crate) const GOOD: &str = "
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
pub(crate) const AROUND: &str = "\
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

/// A route of the Gateway `bad`, whose `spec` is line 24.
pub(crate) fn route(kind: &str, rules: &str) -> String {
    format!(
        "{AROUND}apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: bad}}\nspec:\n  \
         parentRefs: [{{name: bad}}]\n  rules: {rules}\n"
    )
}

/// A rule of a GRPCRoute with these filters, from line 26, column 10.
pub(crate) fn filters(filters: &str) -> String {
    route("GRPCRoute", &format!("[{{filters: [{filters}]}}]"))
}

pub(crate) fn method(method: &str) -> String {
    route("GRPCRoute", &format!("[{{matches: [{{method: {method}}}]}}]"))
}

pub(crate) fn backend(backend: &str) -> String {
    route("GRPCRoute", &format!("[{{backendRefs: [{backend}]}}]"))
}

pub(crate) fn n_times(n: usize, text: &str) -> String {
    vec![text; n].join(", ")
}
