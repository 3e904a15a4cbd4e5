//! The documents of a world in the native form: one listener, and routes with a host of their own and two backends of one endpoint.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;

use super::{World, address, host, name, services};

impl World {
    /// Writes all documents in the native form, 100 routes a file.
    ///
    /// # Errors
    ///
    /// If `dir` cannot be written to.
    pub fn write_native(self, dir: &Path) -> Result<()> {
        self.write_as(dir, &listener("edge", 8_000), documents)
    }
}

/// Where the weights of a route's rule are.
#[must_use]
pub fn weights(route: usize) -> String {
    format!("/v1/weights/Route/default/{}/0", name(route))
}

/// A listener.
#[must_use]
pub fn listener(name: &str, port: u16) -> String {
    format!("{HEADER}listeners:\n  {name}: {{ port: {port} }}\n")
}

/// Routes with their backends.
#[must_use]
pub fn documents(routes: Range<usize>) -> String {
    let mut text = format!("{HEADER}routes:\n");
    routes.clone().for_each(|route| text += &entry(route, &host(route)));
    text += "backends:\n";
    for route in routes {
        services(route).iter().for_each(|backend| text += &backend_entry(backend, &address(route)));
    }
    text
}

/// A route to its two backends at a host.
#[must_use]
pub fn route(route: usize, host: &str) -> String {
    format!("{HEADER}routes:\n{}", entry(route, host))
}

/// A backend of one address.
#[must_use]
pub fn backend(name: &str, address: &str) -> String {
    format!("{HEADER}backends:\n{}", backend_entry(name, address))
}

fn entry(route: usize, host: &str) -> String {
    let mut text = format!("  {}:\n    hosts: [{host}]\n    rules:\n    - to: {{ ", name(route));
    for (i, (backend, weight)) in services(route).iter().zip([90, 10]).enumerate() {
        let _ = write!(text, "{}{backend}: {weight}", if i == 0 { "" } else { ", " });
    }
    text + " }\n"
}

fn backend_entry(name: &str, address: &str) -> String {
    format!("  {name}: {{ protocol: grpc, endpoints: \"{address}:8080\" }}\n")
}

const HEADER: &str = "version: xds-server/v1\n";
