//! The table of references between types. A new type is a row here, and a row of [`quirks`](crate::quirks) for
//! each thing that its clients do differently.

use xds_cache::{Name, ResourceKey, ResourceType};

use crate::quirks::Quirk;

/// Resources of one type refer to resources of another by their names.
pub(crate) struct Row {
    pub(crate) from: ResourceType,
    pub(crate) to: ResourceType,
    /// The client asks for `to` as soon as it has `from`, and `from` is not ready without it, even if we do not have it: the client may
    /// get it from somewhere else. So a client that asks for `to` has taken `from`, whatever it answered.
    pub(crate) is_warmed: bool,
    /// The client uses `from` as soon as it has it, asks for `to` only then, and has to wait for it.
    pub(crate) is_used_at_once: bool,
}

const fn row(from: ResourceType, to: ResourceType) -> Row {
    Row { from, to, is_warmed: false, is_used_at_once: false }
}

const fn warmed(from: ResourceType, to: ResourceType) -> Row {
    Row { from, to, is_warmed: true, is_used_at_once: false }
}

const fn used_at_once(from: ResourceType, to: ResourceType) -> Row {
    Row { from, to, is_warmed: false, is_used_at_once: true }
}

/// In the order in which the referring types are sent, which is that of [`ResourceType`].
pub(crate) const ROWS: &[Row] = &[
    row(ResourceType::Cluster, ResourceType::Secret),
    row(ResourceType::Cluster, ResourceType::Cluster),
    warmed(ResourceType::Cluster, ResourceType::ClusterLoadAssignment),
    row(ResourceType::Cluster, ResourceType::ExtensionConfig),
    row(ResourceType::ClusterLoadAssignment, ResourceType::LbEndpoint),
    row(ResourceType::ExtensionConfig, ResourceType::Secret),
    row(ResourceType::ExtensionConfig, ResourceType::Cluster),
    row(ResourceType::Listener, ResourceType::Secret),
    row(ResourceType::Listener, ResourceType::Cluster),
    row(ResourceType::Listener, ResourceType::ExtensionConfig),
    row(ResourceType::Listener, ResourceType::ScopedRouteConfiguration),
    row(ResourceType::Listener, ResourceType::RouteConfiguration),
    used_at_once(ResourceType::ScopedRouteConfiguration, ResourceType::RouteConfiguration),
    row(ResourceType::RouteConfiguration, ResourceType::Secret),
    row(ResourceType::RouteConfiguration, ResourceType::Cluster),
    row(ResourceType::RouteConfiguration, ResourceType::ExtensionConfig),
    used_at_once(ResourceType::RouteConfiguration, ResourceType::VirtualHost),
    row(ResourceType::VirtualHost, ResourceType::Secret),
    row(ResourceType::VirtualHost, ResourceType::Cluster),
];

/// A reference to all resources of a type, by the types that are referred to so. The name says which all: every scope, or every virtual
/// host of the route configuration that `key` is of.
pub(crate) fn all_of(key: &ResourceKey) -> Option<ResourceKey> {
    let name = match key.resource_type {
        ResourceType::ScopedRouteConfiguration => "*".into(),
        ResourceType::VirtualHost => all_hosts(route_of(&key.name)?),
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

/// The name that stands for all virtual hosts of a route configuration.
pub(crate) fn all_hosts(route: &str) -> Name {
    format!("{route}/*").into()
}

/// The route configuration of a virtual host's name: what stands before the last `/` (row A116).
pub(crate) fn route_of(virtual_host: &str) -> Option<&str> {
    virtual_host.rsplit_once('/').map(|(route, _)| route)
}

/// The row of a pair of types.
pub(crate) fn row_of(from: &ResourceType, to: &ResourceType) -> Option<&'static Row> {
    rows_from(from).find(|row| row.to == *to)
}

/// The rows of a type that refers to others.
pub(crate) fn rows_from(resource_type: &ResourceType) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.from == *resource_type)
}

/// The rows of a type that others refer to.
pub(crate) fn rows_to(resource_type: &ResourceType) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.to == *resource_type)
}

/// Returns `true` if resources of the type refer to others.
pub(crate) fn refers(resource_type: &ResourceType) -> bool {
    rows_from(resource_type).next().is_some()
}

/// Returns `true` if others refer to resources of the type.
pub(crate) fn is_referred_to(resource_type: &ResourceType) -> bool {
    rows_to(resource_type).next().is_some()
}

/// Returns `true` if resources of the type refer to others that the client takes unasked, so that it may not have these yet.
pub(crate) fn refers_to_unasked(resource_type: &ResourceType) -> bool {
    rows_from(resource_type).any(|row| Quirk::TakenUnasked.is_of(&row.to))
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
