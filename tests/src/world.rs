//! Worlds of a chosen size: one Gateway and many routes, each with a host of its own and two Services of one endpoint; or the same in
//! the native form.

pub mod native;

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;

/// How many routes the documents of one file describe.
const ROUTES_A_FILE: usize = 100;

/// A world with this many routes.
#[derive(Clone, Copy, Debug)]
pub struct World {
    n_routes: usize,
}

impl World {
    /// The world of `n_routes` routes.
    #[must_use]
    pub fn new(n_routes: usize) -> Self {
        Self { n_routes }
    }

    /// Writes all documents of the Gateway API, 500 a file.
    ///
    /// # Errors
    ///
    /// If `dir` cannot be written to.
    pub fn write(self, dir: &Path) -> Result<()> {
        self.write_as(dir, &gateway("edge", 8_000), |routes| routes.map(documents).collect())
    }

    fn write_as(self, dir: &Path, gateway: &str, documents: impl Fn(Range<usize>) -> String) -> Result<()> {
        fs::write(dir.join("gateway.yaml"), gateway)?;
        for first in (0..self.n_routes).step_by(ROUTES_A_FILE) {
            let routes = first..self.n_routes.min(first + ROUTES_A_FILE);
            fs::write(dir.join(format!("routes-{first:06}.yaml")), documents(routes))?;
        }
        Ok(())
    }
}

/// Where the weights of a route's rule are.
#[must_use]
pub fn weights(route: usize) -> String {
    format!("/v1/weights/GRPCRoute/prod/{}/0", name(route))
}

/// The host of a route.
#[must_use]
pub fn host(route: usize) -> String {
    format!("r{route}.example.com")
}

/// The names of the two Services of a route.
#[must_use]
pub fn services(route: usize) -> [String; 2] {
    ["v1", "v2"].map(|version| format!("{}-{version}", name(route)))
}

/// A Gateway with one listener.
#[must_use]
pub fn gateway(name: &str, port: u16) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: {name}, namespace: prod }}\nspec:\n  \
         gatewayClassName: xds\n  listeners:\n  - {{ name: http, port: {port}, protocol: HTTP }}\n"
    )
}

/// A route with its Services and their endpoints.
#[must_use]
pub fn documents(route: usize) -> String {
    let mut text = self::route(route);
    for service in services(route) {
        text += &self::service(&service);
        text += &slice(&service, &address(route));
    }
    text
}

/// A route to its two Services.
#[must_use]
pub fn route(route: usize) -> String {
    let mut text = format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GRPCRoute\nmetadata: {{ name: {}, namespace: prod }}\nspec:\n  \
         parentRefs: [{{ name: edge }}]\n  hostnames: [{}]\n  rules:\n  - backendRefs:\n",
        name(route),
        host(route)
    );
    for (service, weight) in services(route).iter().zip([90, 10]) {
        let _ = writeln!(text, "    - {{ name: {service}, port: 80, weight: {weight} }}");
    }
    text
}

/// A Service with one port.
#[must_use]
pub fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: prod }}\nspec:\n  ports: [{{ name: grpc, port: 80, \
         targetPort: 8080 }}]\n"
    )
}

/// The endpoints of a Service: one address.
#[must_use]
pub fn slice(service: &str, address: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {service}\n  namespace: prod\n  labels: {{ \
         kubernetes.io/service-name: {service} }}\naddressType: IPv4\nports: [{{ name: grpc, port: 8080 }}]\nendpoints: [{{ \
         addresses: [{address}] }}]\n"
    )
}

/// An address that no other route has.
#[must_use]
pub fn address(route: usize) -> String {
    format!("10.{}.{}.{}", route / 62_500 % 250, route / 250 % 250, route % 250 + 1)
}

fn name(route: usize) -> String {
    format!("r{route:06}")
}
