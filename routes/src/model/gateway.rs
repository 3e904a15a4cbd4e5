//! Gateways and their listeners.

use std::net::IpAddr;

use super::{Hostname, ObjectRef, Spot};

/// A Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// `spec.gatewayClassName`; empty for a native listener.
    pub class: String,
    /// The spot of the class.
    pub class_spot: Spot,
    /// `spec.infrastructure.parametersRef`. Parameters are not supported, so a Gateway with this field is not accepted.
    pub parameters: Option<ObjectRef>,
    /// The first address of type `IPAddress`, if there is one.
    pub address: Option<IpAddr>,
    /// The spot and the type of the first address of another type. A Gateway with one is not accepted.
    pub unsupported_address: Option<(Spot, String)>,
    /// 1 to 64 listeners with distinct names.
    pub listeners: Vec<GatewayListener>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayListener {
    /// Where it is.
    pub spot: Spot,
    /// Its name, 1 to 253 characters.
    pub name: String,
    /// The port, from 1.
    pub port: u16,
    /// The protocol.
    pub protocol: ListenerProtocol,
    /// The host name; `None` for every host.
    pub hostname: Option<Hostname>,
    /// The `certificateRefs` of an HTTPS listener that terminates TLS.
    pub certificates: Vec<ObjectRef>,
    /// The routes that may attach.
    pub allowed: AllowedRoutes,
}

/// The protocol of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// Plain HTTP/1.1 and HTTP/2 with prior knowledge.
    Http,
    /// The same over TLS, which the listener terminates.
    Https,
    /// Any other protocol, by its name. Not supported.
    Other(String),
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct AllowedRoutes {
    /// The namespaces of the routes.
    pub namespaces: AllowedNamespaces,
    /// `(group, kind)` as written, with the default group filled in. Empty for every kind that the protocol supports.
    pub kinds: Vec<(String, String)>,
    /// The spot of the kinds.
    pub kinds_spot: Spot,
}

/// The namespaces from which routes may attach.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowedNamespaces {
    /// Only the Gateway's own.
    Same,
    /// All namespaces.
    All,
    /// None.
    None,
    /// Namespaces whose labels match.
    Selector(LabelSelector),
}

/// A label selector. All its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    /// `matchLabels`, and `matchExpressions` with `In` and `NotIn`: the key, the values, and whether the label must have one of these.
    pub values: Vec<(String, Vec<String>, bool)>,
    /// `matchExpressions` with `Exists` and `DoesNotExist`: the key, and whether it must exist.
    pub keys: Vec<(String, bool)>,
}
