//! Label values that several metrics share.

use xds_cache::ResourceType;

/// The name of a type, as labels have it.
pub(super) fn type_name(resource_type: &ResourceType) -> &'static str {
    match resource_type {
        ResourceType::Runtime => "runtimes",
        ResourceType::Secret => "secrets",
        ResourceType::Cluster => "clusters",
        ResourceType::ClusterLoadAssignment => "endpoints",
        ResourceType::LbEndpoint => "locality-endpoints",
        ResourceType::ExtensionConfig => "extension-configs",
        ResourceType::Listener => "listeners",
        ResourceType::ScopedRouteConfiguration => "scoped-routes",
        ResourceType::RouteConfiguration => "routes",
        ResourceType::VirtualHost => "virtual-hosts",
        ResourceType::Other(_) => OTHER,
    }
}

/// The label value of everything that is in no list.
pub(super) const OTHER: &str = "other";
