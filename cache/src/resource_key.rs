//! The name of a resource, and its key: the name with the type.

use std::fmt;
use std::sync::Arc;

use crate::resource_type::ResourceType;

/// A resource name, as the client asks for it: compared byte by byte (row A61).
pub type Name = Arc<str>;

/// A type and a name; unique within a group and within a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The type.
    pub resource_type: ResourceType,
    /// The name.
    pub name: Name,
}

impl ResourceKey {
    /// Returns `true` if this does not name one resource, but all that can be requested on demand: names that end in `*`, such
    /// as those for all scoped routes or for the virtual hosts of a route configuration.
    #[must_use]
    pub fn means_all(&self) -> bool {
        self.name.ends_with('*')
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.resource_type, self.name)
    }
}
