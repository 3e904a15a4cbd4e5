//! The reasons of conditions.

use std::fmt;

/// The reason for a condition's status: a word of the Gateway API, or one of ours where that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionReason {
    /// The object is used.
    Accepted,
    /// Envoys cannot listen on the address and port.
    AddressNotUsable,
    /// A backend does not exist, or cannot be used.
    BackendNotFound,
    /// An older object already has the target.
    Conflicted,
    /// Another listener, or an older route, has the host name.
    HostnameConflict,
    /// A split names a group of matches that does not exist.
    HttpRouteGroupNotFound,
    /// The object cannot be used as it is written.
    Invalid,
    /// A reference leads to no CA certificate.
    InvalidCaCertificateRef,
    /// A listener has no usable certificate.
    InvalidCertificateRef,
    /// A reference is to a kind that cannot be used there.
    InvalidKind,
    /// The parameters of a Gateway or its class cannot be used.
    InvalidParameters,
    /// A listener allows a kind that it cannot accept.
    InvalidRouteKinds,
    /// The group has as many hosts, routes or other parts as a limit allows.
    LimitExceeded,
    /// References of listeners cannot be followed.
    ListenersNotResolved,
    /// Some listeners are not accepted.
    ListenersNotValid,
    /// Nothing conflicts with the listener.
    NoConflicts,
    /// No backend of a split can take requests.
    NoEligibleBackends,
    /// The route has no host name that a listener serves.
    NoMatchingListenerHostname,
    /// The parent does not exist, or has no such listener or port.
    NoMatchingParent,
    /// The listeners that would take the route are not accepted.
    NoReadyListeners,
    /// A policy has no usable CA certificate.
    NoValidCaCertificate,
    /// The listeners do not allow this route.
    NotAllowedByListeners,
    /// Listeners share hosts.
    OverlappingHostnames,
    /// Another Gateway of the node group has the port.
    PortUnavailable,
    /// Envoys listen.
    Programmed,
    /// Another listener has the port with another protocol.
    ProtocolConflict,
    /// No ReferenceGrant permits the reference.
    RefNotPermitted,
    /// Every reference can be followed.
    ResolvedRefs,
    /// The Service that a split divides does not exist.
    RootServiceNotFound,
    /// Another route or split already has every port of the Service that a route wants.
    RouteReasonConflicted,
    /// The target of a policy does not exist.
    TargetNotFound,
    /// A Gateway asks for an address of a type that is not supported.
    UnsupportedAddress,
    /// Policies of this kind are not supported.
    UnsupportedPolicy,
    /// The protocol is not supported.
    UnsupportedProtocol,
    /// A value is not supported.
    UnsupportedValue,
}

impl ConditionReason {
    /// The reason as answers and logs show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::AddressNotUsable => "AddressNotUsable",
            Self::BackendNotFound => "BackendNotFound",
            Self::Conflicted => "Conflicted",
            Self::HostnameConflict => "HostnameConflict",
            Self::HttpRouteGroupNotFound => "HTTPRouteGroupNotFound",
            Self::Invalid => "Invalid",
            Self::InvalidCaCertificateRef => "InvalidCACertificateRef",
            Self::InvalidCertificateRef => "InvalidCertificateRef",
            Self::InvalidKind => "InvalidKind",
            Self::InvalidParameters => "InvalidParameters",
            Self::InvalidRouteKinds => "InvalidRouteKinds",
            Self::LimitExceeded => "LimitExceeded",
            Self::ListenersNotResolved => "ListenersNotResolved",
            Self::ListenersNotValid => "ListenersNotValid",
            Self::NoConflicts => "NoConflicts",
            Self::NoEligibleBackends => "NoEligibleBackends",
            Self::NoMatchingListenerHostname => "NoMatchingListenerHostname",
            Self::NoMatchingParent => "NoMatchingParent",
            Self::NoReadyListeners => "NoReadyListeners",
            Self::NoValidCaCertificate => "NoValidCACertificate",
            Self::NotAllowedByListeners => "NotAllowedByListeners",
            Self::OverlappingHostnames => "OverlappingHostnames",
            Self::PortUnavailable => "PortUnavailable",
            Self::Programmed => "Programmed",
            Self::ProtocolConflict => "ProtocolConflict",
            Self::RefNotPermitted => "RefNotPermitted",
            Self::ResolvedRefs => "ResolvedRefs",
            Self::RootServiceNotFound => "RootServiceNotFound",
            Self::RouteReasonConflicted => "RouteReasonConflicted",
            Self::TargetNotFound => "TargetNotFound",
            Self::UnsupportedAddress => "UnsupportedAddress",
            Self::UnsupportedPolicy => "UnsupportedPolicy",
            Self::UnsupportedProtocol => "UnsupportedProtocol",
            Self::UnsupportedValue => "UnsupportedValue",
        }
    }

    /// The code of the diagnostic that reports the same as a condition with this reason.
    pub(crate) fn diagnostic_code(self) -> &'static str {
        match self {
            Self::BackendNotFound => "backend-not-found",
            Self::Conflicted | Self::RouteReasonConflicted => "mesh-conflict",
            Self::HttpRouteGroupNotFound => "route-group-not-found",
            Self::HostnameConflict => "hostname-conflict",
            Self::InvalidCertificateRef => "invalid-certificate-ref",
            Self::InvalidKind => "invalid-kind",
            Self::InvalidParameters => "invalid-parameters",
            Self::InvalidRouteKinds => "invalid-route-kinds",
            Self::LimitExceeded => "too-much-generated",
            Self::NoEligibleBackends => "no-eligible-backends",
            Self::NoMatchingListenerHostname => "no-matching-listener-hostname",
            Self::NoMatchingParent => "no-matching-parent",
            Self::NoReadyListeners => "no-ready-listeners",
            Self::NotAllowedByListeners => "not-allowed-by-listeners",
            Self::PortUnavailable => "port-unavailable",
            Self::ProtocolConflict => "protocol-conflict",
            Self::RefNotPermitted => "ref-not-permitted",
            Self::RootServiceNotFound => "root-service-not-found",
            Self::UnsupportedAddress => "unsupported-address",
            Self::UnsupportedPolicy => "unsupported-policy",
            Self::UnsupportedProtocol => "unsupported-protocol",
            Self::UnsupportedValue => "unsupported-value",
            // Of these, only references become diagnostics.
            Self::Accepted
            | Self::AddressNotUsable
            | Self::Invalid
            | Self::InvalidCaCertificateRef
            | Self::ListenersNotResolved
            | Self::ListenersNotValid
            | Self::NoConflicts
            | Self::NoValidCaCertificate
            | Self::OverlappingHostnames
            | Self::Programmed
            | Self::ResolvedRefs
            | Self::TargetNotFound => "unresolved-reference",
        }
    }
}

impl fmt::Display for ConditionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
