//! Backends that are not Services: Envoy Gateway's `Backend` and the backends of the native form.

use std::net::IpAddr;

use xds_cache::DrainPolicy;

use super::{ObjectRef, Spot};

/// A backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// True if it uses HTTP/2 (`protocol: grpc` or `http2`; `appProtocols: [kubernetes.io/h2c]`). GRPCRoutes always do.
    pub is_http2: bool,
    /// The source of its endpoints.
    pub source: BackendSource,
    /// TLS towards it (native form).
    pub tls: Option<NativeTls>,
    /// How requests are distributed over its endpoints (native form).
    pub lb_policy: LbPolicy,
    /// The limits for each client (native form).
    pub limits: BackendLimits,
    /// How long it and its endpoints drain (native form).
    pub drain: DrainPolicy,
}

/// How much a client may ask of a backend at once, each from 1; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BackendLimits {
    /// Requests in progress.
    pub requests: Option<u32>,
    /// Connections; Envoy only.
    pub connections: Option<u32>,
    /// Requests that wait for a connection; Envoy only.
    pub pending: Option<u32>,
}

/// The source of a backend's endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendSource {
    /// Addresses and host names; at least one.
    Endpoints(Vec<StaticEndpoint>),
    /// Other backends, of which the first with healthy endpoints is used (gRFC A37); at least one.
    Fallback(Vec<BackendMember>),
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum StaticEndpoint {
    /// An address.
    Ip {
        /// The address.
        address: IpAddr,
        /// The port, from 1.
        port: u16,
        /// The zone; empty if none is given.
        zone: String,
        /// The weight among the endpoints of its zone, from 1; `None` if all are equal.
        weight: Option<u32>,
    },
    /// A host name that the client resolves.
    Dns {
        /// The name.
        host: String,
        /// The port, from 1.
        port: u16,
    },
    /// A Unix socket; Envoy only.
    Unix {
        /// Its path.
        path: String,
    },
}

/// A member of a fallback.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendMember {
    /// The backend or service. Its namespace is filled in.
    pub object: ObjectRef,
}

/// TLS towards a backend of the native form.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeTls {
    /// Where it is.
    pub spot: Spot,
    /// The name that is sent as SNI and that the certificate must have.
    pub sni: String,
    /// The trusted certificates, in PEM; `None` for those of the system.
    pub ca_pem: Option<String>,
}

/// How requests are distributed over endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LbPolicy {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The endpoint with fewer requests, of two random ones. Round robin for clients without this policy.
    LeastRequest,
}
