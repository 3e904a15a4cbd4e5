//! The supported kinds and their versions.

use strsim::damerau_levenshtein;
use xds_codec::echo_name;

use crate::model::Kind;

/// The meaning of a pair of `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KindLookup {
    /// A kind that is not supported.
    NotOurs,
    /// A misspelt name of a supported kind.
    MisspeltKind(Kind),
    /// A supported kind, but in an API group that does not have it.
    WrongGroup(Kind),
    /// A supported kind, but in a version that does not exist. The text lists the versions.
    BadVersion(Kind, String),
    /// A supported kind, and the age of the version.
    Ours(Kind, Age),
}

/// The age of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The API has it.
    Current,
    /// The API has removed it. Documents in this version are still read.
    Removed,
}

/// Looks up the kind of a document. `api_version` is empty if the document has none.
pub(crate) fn look_up(api_version: &str, kind: &str) -> KindLookup {
    let (group, version) = match api_version.split_once('/') {
        Some(parts) => parts,
        None if api_version.contains('.') => (api_version, ""),
        None => ("", api_version),
    };
    let ours = ACCEPTED.iter().find(|(ours, _)| {
        ours.as_str() == kind && (ours.api_group() == group || (api_version.is_empty() && is_smi(*ours)))
    });
    let Some((kind, versions)) = ours else {
        return if api_version.is_empty() { KindLookup::NotOurs } else { near(group, kind) };
    };
    if api_version.is_empty() && is_smi(*kind) {
        return KindLookup::Ours(*kind, Age::Current);
    }
    if !versions.contains(&version) {
        let accepted: Vec<_> = versions.iter().map(|version| full(*kind, version)).collect();
        let message =
            format!("{kind} is not supported in {}; write {}", echo_name(api_version), accepted.join(" or "));
        return KindLookup::BadVersion(*kind, message);
    }
    let is_removed = kind.api_group() == GATEWAY_GROUP && version == "v1alpha2";
    KindLookup::Ours(*kind, if is_removed { Age::Removed } else { Age::Current })
}

/// Finds the supported kind that an unknown pair of `apiVersion` and `kind` probably meant.
///
/// Only a few letters may differ, so that a foreign kind is not mistaken for a supported one.
fn near(group: &str, kind: &str) -> KindLookup {
    if FOREIGN.contains(&kind) {
        return KindLookup::NotOurs;
    }
    let kind = kind.to_ascii_lowercase();
    let is_group_of_ours = ACCEPTED.iter().any(|(ours, _)| ours.api_group() == group);
    let judged = ACCEPTED.iter().filter_map(|(ours, _)| {
        let of_kind = damerau_levenshtein(&kind, &ours.as_str().to_ascii_lowercase());
        if ours.api_group() == group {
            return (of_kind <= 2).then_some((of_kind, KindLookup::MisspeltKind(*ours)));
        }
        let of_group = match ours.api_group() {
            "" => usize::MAX,
            own => damerau_levenshtein(group, own),
        };
        let is_near = of_group <= 3 || is_group_of_ours;
        (of_kind == 0 && is_near).then_some((of_group, KindLookup::WrongGroup(*ours)))
    });
    judged.min_by_key(|(distance, _)| *distance).map_or(KindLookup::NotOurs, |(_, named)| named)
}

/// The newest `apiVersion` of a kind.
pub(crate) fn newest(kind: Kind) -> String {
    let versions = ACCEPTED.iter().find(|(ours, _)| *ours == kind).map(|(_, versions)| *versions);
    full(kind, versions.and_then(<[_]>::first).copied().unwrap_or_default())
}

/// Returns `true` if documents of the kind may omit `apiVersion`, as the examples of SMI do.
fn is_smi(kind: Kind) -> bool {
    matches!(kind, Kind::TrafficSplit | Kind::HttpRouteGroup)
}

fn full(kind: Kind, version: &str) -> String {
    match kind.api_group() {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// Kinds of the Gateway API that are not served, but have similar names as served ones.
const FOREIGN: [&str; 3] = ["TCPRoute", "TLSRoute", "UDPRoute"];

const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The supported kinds, each with its versions, the newest first.
///
/// BackendTLSPolicy changed its shape after `v1alpha2`. No release had `v1beta1` of GRPCRoute.
const ACCEPTED: [(Kind, &[&str]); 17] = [
    (Kind::GatewayClass, &["v1", "v1beta1", "v1alpha2"]),
    (Kind::Gateway, &["v1", "v1beta1", "v1alpha2"]),
    (Kind::GrpcRoute, &["v1", "v1alpha2"]),
    (Kind::HttpRoute, &["v1", "v1beta1", "v1alpha2"]),
    (Kind::ReferenceGrant, &["v1", "v1beta1", "v1alpha2"]),
    (Kind::BackendTlsPolicy, &["v1", "v1alpha3"]),
    (Kind::Backend, &["v1alpha1"]),
    (Kind::Service, &["v1"]),
    (Kind::EndpointSlice, &["v1"]),
    (Kind::Endpoints, &["v1"]),
    (Kind::Namespace, &["v1"]),
    (Kind::Secret, &["v1"]),
    (Kind::ConfigMap, &["v1"]),
    (Kind::TrafficSplit, &["v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"]),
    (Kind::HttpRouteGroup, &["v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"]),
    (Kind::RouteTest, &["v1"]),
    (Kind::RouterCheck, &["v1"]),
];

/// The kinds that a policy can target.
pub(super) const TARGETS: [Kind; 8] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::GrpcRoute,
    Kind::HttpRoute,
    Kind::Route,
    Kind::Backend,
    Kind::Service,
    Kind::TrafficSplit,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_of_the_kind_that_group_kind_and_version_name() {
        let current = |kind| KindLookup::Ours(kind, Age::Current);
        let table = [
            ("gateway.networking.k8s.io/v1", "GRPCRoute", current(Kind::GrpcRoute)),
            (
                "gateway.networking.k8s.io/v1alpha2",
                "GRPCRoute",
                KindLookup::Ours(Kind::GrpcRoute, Age::Removed),
            ),
            ("gateway.networking.k8s.io/v1beta1", "HTTPRoute", current(Kind::HttpRoute)),
            ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant", current(Kind::ReferenceGrant)),
            ("gateway.networking.k8s.io/v1alpha3", "BackendTLSPolicy", current(Kind::BackendTlsPolicy)),
            ("gateway.networking.k8s.io/v1", "TLSRoute", KindLookup::NotOurs),
            ("gateway.networking.k8s.io/v1", "TCPRoute", KindLookup::NotOurs),
            ("gateway.networking.k8s.io/v1", "ListenerSet", KindLookup::NotOurs),
            ("gateway.networking.x-k8s.io/v1alpha1", "XListenerSet", KindLookup::NotOurs),
            ("gateway.networking.k8s.io/v1", "GrpcRoute", KindLookup::MisspeltKind(Kind::GrpcRoute)),
            ("gateway.networking.k8s.io/v1", "HTTPRoutes", KindLookup::MisspeltKind(Kind::HttpRoute)),
            ("gateway.networking.k8s.io/v1", "HTPRoute", KindLookup::MisspeltKind(Kind::HttpRoute)),
            ("gateway.network.k8s.io/v1", "HTTPRoute", KindLookup::WrongGroup(Kind::HttpRoute)),
            ("gateway.networking.k8s.io/v1", "TrafficSplit", KindLookup::WrongGroup(Kind::TrafficSplit)),
            ("v1", "HTTPRoute", KindLookup::WrongGroup(Kind::HttpRoute)),
            ("v1", "Endpoint", KindLookup::MisspeltKind(Kind::Endpoints)),
            ("discovery.k8s.io/v1", "Service", KindLookup::WrongGroup(Kind::Service)),
            ("networking.istio.io/v1", "Gateway", KindLookup::NotOurs),
            ("apps/v1", "Deployment", KindLookup::NotOurs),
            ("gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", KindLookup::NotOurs),
            ("example.org/v1", "GRPCRoute", KindLookup::NotOurs),
            ("gateway.envoyproxy.io/v1alpha1", "Backend", current(Kind::Backend)),
            ("v1", "Service", current(Kind::Service)),
            ("v1", "Pod", KindLookup::NotOurs),
            ("serving.knative.dev/v1", "Service", KindLookup::NotOurs),
            ("discovery.k8s.io/v1", "EndpointSlice", current(Kind::EndpointSlice)),
            ("split.smi-spec.io/v1alpha1", "TrafficSplit", current(Kind::TrafficSplit)),
            ("specs.smi-spec.io/v1alpha4", "HTTPRouteGroup", current(Kind::HttpRouteGroup)),
            ("", "TrafficSplit", current(Kind::TrafficSplit)),
            ("", "HTTPRouteGroup", current(Kind::HttpRouteGroup)),
            ("xds-server.io/v1", "Route", KindLookup::NotOurs),
            ("xds-server.io/v1", "RouteTest", current(Kind::RouteTest)),
            ("xds-server.io/v1", "RouteTests", KindLookup::MisspeltKind(Kind::RouteTest)),
            ("xds-server.io/v1", "RouterCheck", current(Kind::RouterCheck)),
            ("xds-server.io/v1", "RouterChecks", KindLookup::MisspeltKind(Kind::RouterCheck)),
        ];
        for (api_version, kind, expected) in table {
            assert_eq!(look_up(api_version, kind), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn a_version_that_a_kind_does_not_have_is_answered_with_those_that_it_has() {
        let table = [
            (
                "gateway.networking.k8s.io/v2",
                "GRPCRoute",
                "GRPCRoute is not supported in \"gateway.networking.k8s.io/v2\"; \
                 write gateway.networking.k8s.io/v1 or gateway.networking.k8s.io/v1alpha2",
            ),
            (
                "gateway.networking.k8s.io",
                "BackendTLSPolicy",
                "BackendTLSPolicy is not supported in \"gateway.networking.k8s.io\"; \
                 write gateway.networking.k8s.io/v1 or gateway.networking.k8s.io/v1alpha3",
            ),
            ("v1beta1", "Service", "Service is not supported in \"v1beta1\"; write v1"),
        ];
        for (api_version, kind, expected) in table {
            let KindLookup::BadVersion(_, message) = look_up(api_version, kind) else {
                panic!("{api_version} {kind}");
            };
            assert_eq!(message, expected);
        }
    }
}
