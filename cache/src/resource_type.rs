//! Resource types: those that the server knows, and any other type URL.

use std::fmt;
use std::sync::Arc;

/// The type of a resource, in the order in which changes reach a client (make before break, [XP] "Eventual consistency
/// considerations"): resources come after those that they refer to.
///
/// Any type URL that is not in the list is carried opaquely as [`Other`](Self::Other) (row A7).
///
/// [XP]: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// `envoy.service.runtime.v3.Runtime` (RTDS).
    Runtime,
    /// `envoy.extensions.transport_sockets.tls.v3.Secret` (SDS).
    Secret,
    /// `envoy.config.cluster.v3.Cluster` (CDS).
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment` (EDS).
    ClusterLoadAssignment,
    /// `envoy.config.endpoint.v3.LbEndpoint` (LEDS).
    LbEndpoint,
    /// `envoy.config.core.v3.TypedExtensionConfig` (ECDS).
    ExtensionConfig,
    /// `envoy.config.listener.v3.Listener` (LDS).
    Listener,
    /// `envoy.config.route.v3.ScopedRouteConfiguration` (SRDS).
    ScopedRouteConfiguration,
    /// `envoy.config.route.v3.RouteConfiguration` (RDS).
    RouteConfiguration,
    /// `envoy.config.route.v3.VirtualHost` (VHDS).
    VirtualHost,
    /// Any other type URL, complete. It is behind two pointers, because there are few of them and many keys.
    Other(Arc<Box<str>>),
}

/// The beginning of every type URL.
const PREFIX: &str = "type.googleapis.com/";

impl ResourceType {
    /// The known types, in order.
    pub const KNOWN: [Self; 10] = [
        Self::Runtime,
        Self::Secret,
        Self::Cluster,
        Self::ClusterLoadAssignment,
        Self::LbEndpoint,
        Self::ExtensionConfig,
        Self::Listener,
        Self::ScopedRouteConfiguration,
        Self::RouteConfiguration,
        Self::VirtualHost,
    ];

    /// The type of a type URL; never fails, because unknown types are carried too.
    #[must_use]
    pub fn from_type_url(type_url: &str) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|known| known.type_url() == type_url)
            .unwrap_or_else(|| Self::Other(Arc::new(type_url.into())))
    }

    /// The type whose REST name is `slug`, such as `clusters`; other types are written as their type URL.
    #[must_use]
    pub fn from_slug(slug: &str) -> Option<Self> {
        if slug.starts_with(PREFIX) {
            return Some(Self::from_type_url(slug));
        }
        Self::KNOWN.into_iter().find(|known| known.slug() == slug)
    }

    /// `type.googleapis.com/` and the full message name.
    #[must_use]
    pub fn type_url(&self) -> &str {
        match self {
            Self::Runtime => "type.googleapis.com/envoy.service.runtime.v3.Runtime",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::ClusterLoadAssignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            Self::LbEndpoint => "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
            Self::ExtensionConfig => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::ScopedRouteConfiguration => {
                "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
            }
            Self::RouteConfiguration => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::VirtualHost => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            Self::Other(type_url) => type_url,
        }
    }

    /// The full name of the message, which is the type URL without its prefix.
    #[must_use]
    pub fn message_name(&self) -> &str {
        self.type_url().rsplit('/').next().unwrap_or_default()
    }

    /// The name in REST paths, lists by type in files, and metrics; the type URL for other types.
    #[must_use]
    pub fn slug(&self) -> &str {
        match self {
            Self::Runtime => "runtimes",
            Self::Secret => "secrets",
            Self::Cluster => "clusters",
            Self::ClusterLoadAssignment => "endpoints",
            Self::LbEndpoint => "locality-endpoints",
            Self::ExtensionConfig => "extension-configs",
            Self::Listener => "listeners",
            Self::ScopedRouteConfiguration => "scoped-routes",
            Self::RouteConfiguration => "routes",
            Self::VirtualHost => "virtual-hosts",
            Self::Other(type_url) => type_url,
        }
    }

    /// Returns `true` if every SotW response of this type is complete, so that absence means deletion.
    ///
    /// Listener and Cluster by XP "Grouping Resources into Responses"; scoped routes because Envoy computes removals from
    /// absence there too (row A67).
    #[must_use]
    pub fn is_complete_in_sotw(&self) -> bool {
        matches!(self, Self::Cluster | Self::Listener | Self::ScopedRouteConfiguration)
    }

    /// Returns `true` if a first request without names asks for everything (XP "How the client specifies what resources to
    /// return"). Envoy asks for scoped routes in this way. For other types such a request subscribes to nothing (row A55); an
    /// explicit `*` is a wildcard for every type.
    #[must_use]
    pub fn has_legacy_wildcard(&self) -> bool {
        self.is_complete_in_sotw()
    }
}

impl fmt::Display for ResourceType {
    /// The short name that people use: `Cluster`, or the last part of another type's message name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.message_name();
        f.write_str(name.rsplit('.').next().unwrap_or(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_is_found_by_its_url_and_its_slug() {
        for known in ResourceType::KNOWN {
            assert_eq!(ResourceType::from_type_url(known.type_url()), known);
            assert_eq!(ResourceType::from_slug(known.slug()), Some(known));
        }
        let other = ResourceType::from_type_url("type.googleapis.com/foo.Bar");
        assert_eq!(other.to_string(), "Bar");
        assert_eq!(ResourceType::from_slug("type.googleapis.com/foo.Bar"), Some(other));
        assert_eq!(ResourceType::from_slug("clusterz"), None);
    }

    #[test]
    fn the_order_is_make_before_break() {
        let mut sorted = ResourceType::KNOWN.to_vec();
        sorted.sort();
        assert_eq!(sorted, ResourceType::KNOWN);
        assert!(ResourceType::Cluster < ResourceType::ClusterLoadAssignment);
        assert!(ResourceType::ClusterLoadAssignment < ResourceType::Listener);
        assert!(ResourceType::Listener < ResourceType::RouteConfiguration);
    }
}
