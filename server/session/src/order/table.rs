//! Which type refers to which: the one place that knows. A new type is a row.

use xds_cache::{ResourceKey, ResourceType};

/// That resources of one type refer to resources of another by their names.
pub(crate) struct Row {
    /// What refers.
    pub(crate) from: ResourceType,
    /// What is referred to.
    pub(crate) to: ResourceType,
    /// Whether a client is not ready without it, even if we do not have it: else it may get it from somewhere else.
    pub(crate) is_always_needed: bool,
    /// Whether a client uses what refers as soon as it has that, though it asks for this only then and has to wait for it.
    pub(crate) is_used_at_once: bool,
}

const fn row(from: ResourceType, to: ResourceType) -> Row {
    Row { from, to, is_always_needed: false, is_used_at_once: false }
}

/// In the order in which the referring types are sent, which is that of [`ResourceType`].
pub(crate) const ROWS: &[Row] = &[
    row(ResourceType::Cluster, ResourceType::Secret),
    row(ResourceType::Cluster, ResourceType::Cluster),
    Row {
        from: ResourceType::Cluster,
        to: ResourceType::ClusterLoadAssignment,
        is_always_needed: true,
        is_used_at_once: false,
    },
    row(ResourceType::Cluster, ResourceType::ExtensionConfig),
    row(ResourceType::ClusterLoadAssignment, ResourceType::LbEndpoint),
    row(ResourceType::ExtensionConfig, ResourceType::Secret),
    row(ResourceType::ExtensionConfig, ResourceType::Cluster),
    row(ResourceType::Listener, ResourceType::Secret),
    row(ResourceType::Listener, ResourceType::Cluster),
    row(ResourceType::Listener, ResourceType::ExtensionConfig),
    row(ResourceType::Listener, ResourceType::ScopedRouteConfiguration),
    row(ResourceType::Listener, ResourceType::RouteConfiguration),
    Row {
        from: ResourceType::ScopedRouteConfiguration,
        to: ResourceType::RouteConfiguration,
        is_always_needed: false,
        is_used_at_once: true,
    },
    row(ResourceType::RouteConfiguration, ResourceType::Secret),
    row(ResourceType::RouteConfiguration, ResourceType::Cluster),
    row(ResourceType::RouteConfiguration, ResourceType::ExtensionConfig),
    Row {
        from: ResourceType::RouteConfiguration,
        to: ResourceType::VirtualHost,
        is_always_needed: false,
        is_used_at_once: true,
    },
    row(ResourceType::VirtualHost, ResourceType::Secret),
    row(ResourceType::VirtualHost, ResourceType::Cluster),
];

/// The row of a pair of types.
pub(crate) fn row_of(from: &ResourceType, to: &ResourceType) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.from == *from && row.to == *to)
}

/// Whether a client may use what it does not ask for any more. Clusters refer to each other too, but all of them are asked for; of
/// virtual hosts a client has only what it asks for.
pub(crate) fn may_be_needed_unasked(resource_type: &ResourceType) -> bool {
    !matches!(resource_type, ResourceType::Cluster | ResourceType::VirtualHost)
}

/// What a reference to all resources names of which `key` is one: all scoped routes, or all virtual hosts of a route configuration.
pub(crate) fn all_of(key: &ResourceKey) -> Option<ResourceKey> {
    let name = match key.resource_type {
        ResourceType::ScopedRouteConfiguration => "*".into(),
        ResourceType::VirtualHost => format!("{}/*", key.name.rsplit_once('/')?.0).into(),
        ResourceType::Runtime
        | ResourceType::Secret
        | ResourceType::Cluster
        | ResourceType::ClusterLoadAssignment
        | ResourceType::LbEndpoint
        | ResourceType::ExtensionConfig
        | ResourceType::Listener
        | ResourceType::RouteConfiguration
        | ResourceType::Other(_) => return None,
    };
    Some(ResourceKey { resource_type: key.resource_type.clone(), name })
}

/// Whether resources of the type refer to others.
pub(crate) fn refers(resource_type: &ResourceType) -> bool {
    ROWS.iter().any(|row| row.from == *resource_type)
}

/// Whether others refer to resources of the type.
pub(crate) fn is_referred_to(resource_type: &ResourceType) -> bool {
    ROWS.iter().any(|row| row.to == *resource_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_sending_and_what_is_referred_to_is_sent_first() {
        assert!(ROWS.is_sorted_by(|a, b| a.from <= b.from));
        // Names of these are learned from what refers to them, so they can only be sent after it.
        let asked_for = [
            ResourceType::ExtensionConfig,
            ResourceType::LbEndpoint,
            ResourceType::ScopedRouteConfiguration,
            ResourceType::VirtualHost,
        ];
        for row in ROWS.iter().filter(|row| !asked_for.contains(&row.to)) {
            let is_learned =
                row.to == ResourceType::ClusterLoadAssignment || row.to == ResourceType::RouteConfiguration;
            assert!(row.to <= row.from || is_learned, "{} refers to {}", row.from, row.to);
        }
    }
}
