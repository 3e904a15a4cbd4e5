//! The request that is asked about.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A request, and the connection that it comes over. Anything that is not set is not known; conditions on it are unknown, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The connection.
    pub connection: Connection,
    /// The method.
    pub method: String,
    /// `http` or `https`.
    pub scheme: String,
    /// The host, with a port if the client sends one. For gRPC clients the target without `xds:///`.
    pub authority: String,
    /// The path, with its query.
    pub path: String,
    /// Headers in order; a name may come several times.
    pub headers: Vec<(String, String)>,
    /// The random number of the request, which decides about fractions and weights.
    pub random: Option<u64>,
    /// Runtime keys of fractions: `n` of `d`.
    pub runtime: BTreeMap<String, (u32, u32)>,
    /// Dynamic metadata by `FILTER.KEY`, as texts.
    pub metadata: BTreeMap<String, String>,
    /// Filter state by its key.
    pub filter_state: BTreeMap<String, String>,
    /// By cluster, how many of its endpoints are healthy: `n` of `m`, the first ones. Others failed a check or were ejected.
    pub healthy: BTreeMap<String, (usize, usize)>,
    /// The RouteConfiguration to begin at, in place of a listener.
    pub route_config: Option<String>,
    /// Asks as Envoy's `router_check_tool` does, which knows everything about its requests; only with a RouteConfiguration to begin at.
    pub router_check: Option<RouterCheck>,
    /// Asks where it goes if no filter answers in place of the route.
    pub passes_filters: bool,
}

/// What `router_check_tool` knows besides the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterCheck {
    /// The runtime key of the fractions that are drawn; no other fraction takes a request. One of 0 counts as 1.
    pub runtime: String,
    /// Headers of the answer before the route changes them.
    pub response_headers: Vec<(String, String)>,
}

/// The connection of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The name of the listener.
    pub listener: Option<String>,
    /// The port that the client connects to.
    pub port: Option<u16>,
    /// The address that the client connects to.
    pub to: Option<IpAddr>,
    /// The client's address.
    pub from: Option<IpAddr>,
    /// The client's port.
    pub from_port: Option<u16>,
    /// The server name of the TLS handshake.
    pub sni: Option<String>,
    /// The protocols of the TLS handshake, in the client's order.
    pub alpn: Vec<String>,
    /// True if the client speaks TLS; by default, if it sends a server name or protocols, or the scheme is `https`.
    pub tls: Option<bool>,
    /// True if the client presents a certificate, and whether that is valid.
    pub certificate: Option<(bool, bool)>,
}

impl Connection {
    /// Returns `true` if the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self, scheme: &str) -> bool {
        self.tls.unwrap_or(self.sni.is_some() || !self.alpn.is_empty() || scheme == "https")
    }
}

impl Request {
    /// A GET request over HTTP.
    #[must_use]
    pub fn get(authority: &str, path: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            scheme: "http".to_owned(),
            authority: authority.to_owned(),
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// A gRPC call of `package.Service/Method`.
    #[must_use]
    pub fn call(authority: &str, method: &str) -> Self {
        let path = format!("/{}", method.trim_start_matches('/'));
        let headers = [("content-type", "application/grpc"), ("te", "trailers")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { method: "POST".to_owned(), headers, ..Self::get(authority, &path) }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}
