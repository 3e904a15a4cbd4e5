//! Documents that permit references, configure the connections to backends, or are unsupported policies.

use super::{AllowedNamespaces, Kind, LabelSelector, ObjectRef, Spot};

/// A ReferenceGrant: permits references to objects of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceGrant {
    /// The objects that may refer; 1 to 16.
    pub from: Vec<GrantFrom>,
    /// The objects that they may refer to; 1 to 16.
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

/// The objects that may be referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTo {
    /// The API group; empty for core.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name; `None` for all.
    pub name: Option<String>,
}

/// A BackendTLSPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendTlsPolicy {
    /// The Services, each with the name of a port if the policy is only for that. Their namespace is the policy's.
    pub targets: Vec<(ObjectRef, Option<String>)>,
    /// The ConfigMaps or Secrets with `ca.crt`; empty for the system's certificates.
    pub ca_certificates: Vec<ObjectRef>,
    /// True for `wellKnownCACertificates: System`. Normally, exactly one of this and `ca_certificates` is set. If neither is, every request
    /// fails: the document names an unknown set, or is broken and only its targets could be read.
    pub uses_system_certificates: bool,
    /// The name that is sent as SNI. The certificate must have it, unless there are `alt_names`.
    pub hostname: String,
    /// Host names and URIs, one of which the certificate must have.
    pub alt_names: Vec<String>,
    /// The spot of the validation.
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
    /// The objects of this kind.
    pub name: TargetName,
    /// The listener of a Gateway, the rule of a route or the port of a Service, if the policy is only for that.
    pub section: Option<String>,
}

/// How a policy selects its targets.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetName {
    /// By name.
    Object {
        /// The namespace; `None` for that of the policy.
        namespace: Option<String>,
        /// The name.
        name: String,
    },
    /// By labels.
    Selector {
        /// The namespaces, relative to the policy's.
        namespaces: AllowedNamespaces,
        /// The labels.
        labels: LabelSelector,
    },
}
