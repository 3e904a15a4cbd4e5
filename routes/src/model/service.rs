//! Core kinds: Service, EndpointSlice, Namespace, Secret, ConfigMap.

use std::fmt;

use super::Spot;

/// A Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// `spec.externalName` of a service of type `ExternalName`.
    pub external_name: Option<String>,
    /// True if `spec.clusterIP` is an address. It cannot replace missing endpoints.
    pub has_cluster_ip: bool,
}

impl Service {
    /// The lowest number of its ports; `None` if it has none.
    pub(crate) fn lowest_port(&self) -> Option<u16> {
        self.ports.iter().map(|port| port.port).min()
    }
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePort {
    /// Where it is.
    pub spot: Spot,
    /// The name; empty if there is none.
    pub name: String,
    /// The number, from 1.
    pub port: u16,
    /// The port of the endpoints.
    pub target: TargetPort,
    /// `appProtocol`.
    pub app_protocol: Option<String>,
}

/// The port of the endpoints behind a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// A number; by default that of the service's port.
    Number(u16),
    /// The name of a container's port, whose number is in EndpointSlices.
    Name(String),
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSlice {
    /// The service, from the label `kubernetes.io/service-name`; `None` if the label is missing.
    pub service: Option<String>,
    /// The type of its addresses.
    pub address_type: AddressType,
    /// The ports, which match the service's by name.
    pub ports: Vec<SlicePort>,
    /// The endpoints.
    pub endpoints: Vec<SliceEndpoint>,
}

/// The type of a slice's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// IPv4 or IPv6 addresses.
    Ip,
    /// Host names.
    Fqdn,
}

/// A port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name; empty if there is none.
    pub name: String,
    /// The number; `None` for every port.
    pub port: Option<u16>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The addresses, valid for the slice's type. Each becomes an endpoint of its own.
    pub addresses: Vec<String>,
    /// True if it takes new requests.
    pub is_ready: bool,
    /// True if it still answers.
    pub is_serving: bool,
    /// True if it is terminating.
    pub is_terminating: bool,
    /// The zone; empty if unknown.
    pub zone: String,
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace;

/// A Secret. Its `Debug` shows no content.
#[derive(Clone, PartialEq)]
pub struct Secret {
    /// `data` (decoded) and `stringData`, by key.
    pub data: Vec<(String, Vec<u8>)>,
}

impl Secret {
    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.data.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_slice())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.data.iter().map(|(key, _)| key.as_str()).collect();
        write!(f, "Secret({})", keys.join(", "))
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigMap {
    /// `data` by key.
    pub data: Vec<(String, String)>,
}

impl ConfigMap {
    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.data.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}
