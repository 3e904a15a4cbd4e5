//! Where virtual hosts and their routes are.

use xds_cache::ResourceKey;

use crate::explanation::Part;
use crate::route::Route;
use crate::table::VirtualHost;

/// Where a virtual host is.
pub(super) struct Place<'r> {
    pub(super) resource: &'r ResourceKey,
    pub(super) path: String,
    pub(super) host: &'r VirtualHost,
}

impl Place<'_> {
    /// The part of a route.
    pub(super) fn of_route(&self, index: usize, route: &Route) -> Part {
        Part {
            resource: self.resource.clone(),
            path: format!("{}.{}", self.path, self.host.path_of_route(index)),
            route: Some(route.message.name.clone()).filter(|name| !name.is_empty()),
        }
    }
}
