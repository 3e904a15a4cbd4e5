//! The names of things that belong to a node group, and of its hosts.

use std::sync::Arc;

use xds_cache::GroupName;

use crate::thin::Thin;

/// A name within a group.
pub(crate) type Name = Arc<str>;

/// Namespace and name of a Service.
pub(crate) type ServiceName = Thin<(Name, Name)>;

/// A host of a chain, or a Service at a port of the mesh. Sorted by RouteConfiguration for Envoys, and by the order in it.
pub(crate) type HostKey = Thin<TableHost>;

/// The content of a [`HostKey`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableHost {
    /// The RouteConfiguration, by the chain or `mesh/<port>`.
    pub(crate) table: InGroup,
    /// True if it represents the hosts of other chains, whose requests belong to another connection.
    pub(crate) is_misdirected: bool,
    /// The Service's namespace; empty for a host of a chain.
    pub(crate) namespace: Name,
    /// The Service or host.
    pub(crate) name: Name,
}

impl HostKey {
    /// A host of a chain.
    pub(crate) fn of_chain(group: &GroupName, chain: &Name, host: &str) -> Self {
        let table = InGroup::of(group.clone(), Arc::clone(chain));
        Self::new(TableHost { table, is_misdirected: false, namespace: "".into(), name: host.into() })
    }

    /// The host that represents those of the other chains.
    pub(crate) fn misdirected(table: InGroup) -> Self {
        Self::new(TableHost { table, is_misdirected: true, namespace: "".into(), name: "".into() })
    }

    /// A Service, by namespace and name, at the port of the mesh with this RouteConfiguration.
    pub(crate) fn of_service(table: &InGroup, service: &ServiceName) -> Self {
        let (namespace, name) = (Arc::clone(&service.0), Arc::clone(&service.1));
        Self::new(TableHost { table: table.clone(), is_misdirected: false, namespace, name })
    }
}

impl TableHost {
    /// The node group.
    pub(crate) fn group(&self) -> &GroupName {
        &self.table.group
    }

    /// The port of the mesh; `None` for a host of a chain.
    pub(crate) fn mesh_port(&self) -> Option<u16> {
        self.table.name.rsplit_once('/')?.1.parse().ok().filter(|_| !self.namespace.is_empty())
    }

    /// The Gateway or Service, as statuses of policies show it.
    pub(crate) fn ancestor(&self) -> String {
        if !self.namespace.is_empty() {
            return format!("Service {}/{}", self.namespace, self.name);
        }
        let gateway: Vec<&str> = self.table.name.splitn(3, '/').take(2).collect();
        format!("Gateway {}", gateway.join("/"))
    }

    /// The RouteConfiguration, and the namespace and name of the Service; `None` for a host of a chain.
    pub(crate) fn service(&self) -> Option<(InGroup, ServiceName)> {
        let name = || ServiceName::new((Arc::clone(&self.namespace), Arc::clone(&self.name)));
        (!self.namespace.is_empty()).then(|| (self.table.clone(), name()))
    }
}

/// A node group and the name of something in it.
pub(crate) type InGroup = Thin<NameInGroup>;

/// The group and the name in an [`InGroup`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameInGroup {
    /// The node group.
    pub(crate) group: GroupName,
    /// The name.
    pub(crate) name: Name,
}

impl InGroup {
    pub(crate) fn of(group: GroupName, name: Name) -> Self {
        Self::new(NameInGroup { group, name })
    }

    pub(crate) fn named(group: &GroupName, name: &str) -> Self {
        Self::of(group.clone(), name.into())
    }
}
