//! Documents that permit references, configure the connections to backends, or are unsupported policies.

use super::{AllowedNamespaces, Kind, LabelSelector, ObjectRef, Spot};

/// A ReferenceGrant: what may refer to objects of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceGrant {
    /// The objects that may refer; 1 to 16.
    pub from: Vec<GrantFrom>,
    /// To what; 1 to 16.
    pub to: Vec<GrantTo>,
}

/// The objects that may refer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantFrom {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
}

/// To what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTo {
    /// The API group; empty for core.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name; `None` means all.
    pub name: Option<String>,
}

/// A BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendTlsPolicy {
    /// The Services, with the port's name if it holds for one port only. Their namespace is the policy's.
    pub targets: Vec<(ObjectRef, Option<String>)>,
    /// The ConfigMaps or Secrets with `ca.crt`; empty if the system's certificates are meant.
    pub ca_certificates: Vec<ObjectRef>,
    /// True if `wellKnownCACertificates: System` is given. Exactly one of both is, unless the document names a set that nobody
    /// here knows, or cannot be used and nothing but its targets was read: then neither is, and every request must fail.
    pub uses_system_certificates: bool,
    /// The name sent as SNI, and looked for in the certificate unless there are others.
    pub hostname: String,
    /// Other names to look for in the certificate, host names and URIs.
    pub alt_names: Vec<String>,
    /// Where the validation is.
    pub spot: Spot,
}

/// A policy of an unsupported kind: only its identity and its targets.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignPolicy {
    /// Its kind, such as `SecurityPolicy`.
    pub kind: String,
    /// Its name, without kind and group.
    pub name: String,
    /// Its targets of kinds that are served; at least one.
    pub targets: Vec<PolicyTarget>,
}

/// The target of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyTarget {
    /// Where it is.
    pub spot: Spot,
    /// The kind of the target.
    pub kind: Kind,
    /// The name of that kind.
    pub name: TargetName,
    /// The listener of a Gateway, the rule of a route or the port of a Service, if only that is meant.
    pub section: Option<String>,
}

/// How a policy says which objects it targets.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetName {
    /// By name.
    Object {
        /// The namespace, if it is named; else that of the policy.
        namespace: Option<String>,
        /// The name.
        name: String,
    },
    /// By labels.
    Selector {
        /// The namespaces, seen from the policy's.
        namespaces: AllowedNamespaces,
        /// The labels.
        labels: LabelSelector,
    },
}
