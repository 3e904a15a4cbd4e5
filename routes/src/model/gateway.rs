//! Gateways and their listeners.

use std::net::IpAddr;

use super::{Hostname, ObjectRef, Spot};

/// A Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// `spec.gatewayClassName`; empty for a native listener.
    pub class: String,
    /// Where the class is named.
    pub class_spot: Spot,
    /// `spec.infrastructure.parametersRef`. No kind of parameters is known, so a Gateway that has some is not accepted.
    pub parameters: Option<ObjectRef>,
    /// The first address of type `IPAddress`, if there is one.
    pub address: Option<IpAddr>,
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
    /// The same over TLS that ends here.
    Https,
    /// Any other, by its name: not supported.
    Other(String),
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct AllowedRoutes {
    /// From where.
    pub namespaces: AllowedNamespaces,
    /// `(group, kind)` as written, group with its default filled in; empty means every kind that the protocol takes.
    pub kinds: Vec<(String, String)>,
    /// Where the kinds are named.
    pub kinds_spot: Spot,
}

/// The namespaces from which routes may attach.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowedNamespaces {
    /// The Gateway's own.
    Same,
    /// Every one.
    All,
    /// None.
    None,
    /// Those whose labels match.
    Selector(LabelSelector),
}

/// A selector of labels; all its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    /// `matchLabels` and `matchExpressions` with `In` and `NotIn`: key, values, whether the value must be among them.
    pub values: Vec<(String, Vec<String>, bool)>,
    /// `matchExpressions` with `Exists` and `DoesNotExist`: key, whether it must be there.
    pub keys: Vec<(String, bool)>,
}
