//! The owners of the generated resources that a change alters in a group out of scope.
//!
//! A caller with namespaces may change routes there that documents of these namespaces bring: their own hosts, the clusters of their own
//! Services, and the listeners of their own Gateways. A resource whose owner cannot be read from it is somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_access::Scope;
use xds_cache::layer::{EffectiveGroup, Resources};
use xds_cache::wire::{Field, Fields, bytes_of};
use xds_cache::{DiffItem, Profile, Resource, ResourceType};
use xds_routes::Kind;

/// A group before and after a change.
type Change<'g> = [Option<&'g Arc<EffectiveGroup>>; 2];

/// Returns `true` if only resources and hosts of the caller differ in a group out of scope. The cost is that of the resources that
/// differ.
pub(super) fn are_own(scope: &Scope, [old, new]: Change<'_>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let is_same = old.definition == new.definition
        && old.label == new.label
        && old.resources == new.resources
        && old.withheld == new.withheld;
    let nothing = Resources::new();
    let profiles: BTreeSet<Profile> = old.generated.keys().chain(new.generated.keys()).copied().collect();
    is_same
        && profiles.into_iter().all(|profile| {
            let [old, new] = [old, new].map(|group| group.generated.get(&profile).unwrap_or(&nothing));
            let changed = Changed { scope, profile, old, new };
            old.diff(new).all(|item| match item {
                DiffItem::Add(_, new) => changed.is_own(None, Some(new)),
                DiffItem::Remove(_, old) => changed.is_own(Some(old), None),
                DiffItem::Update { old: (_, old), new: (_, new) } => changed.is_own(Some(old), Some(new)),
            })
        })
}

/// The generated resources of a group for a kind of client, before and after.
struct Changed<'g> {
    scope: &'g Scope,
    profile: Profile,
    old: &'g Resources,
    new: &'g Resources,
}

impl Changed<'_> {
    fn is_own(&self, old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> bool {
        let Some(resource) = new.or(old) else { return true };
        let name = resource.name();
        let is_replaced = old.is_some() && new.is_some();
        match &resource.key().resource_type {
            // They are there because a route refers to them, and belong to the Service. One that comes or goes changes no host.
            ResourceType::Cluster | ResourceType::ClusterLoadAssignment | ResourceType::Secret => {
                !is_replaced || self.has_owner(name)
            }
            ResourceType::Listener if self.profile == Profile::Grpc => {
                let of = [(old, self.old), (new, self.new)];
                of.into_iter().all(|(listener, all)| listener.is_none_or(|one| self.is_own_name(one, all)))
            }
            ResourceType::Listener if name.starts_with(MESH) => !is_replaced,
            ResourceType::Listener => self.has_owner(name),
            ResourceType::RouteConfiguration => self.is_own_table(old, new),
            ResourceType::VirtualHost => {
                let [old, new] = [old, new].map(|host| host.map(|host| host.value()));
                self.is_own_host(name, old.as_deref().map(|host| &**host), new.as_deref().map(|host| &**host))
            }
            ResourceType::Runtime
            | ResourceType::LbEndpoint
            | ResourceType::ExtensionConfig
            | ResourceType::ScopedRouteConfiguration
            | ResourceType::Other(_) => false,
        }
    }

    /// Returns `true` if a name of the form `NAMESPACE/…` or `grpc/NAMESPACE/…` begins with a namespace of the caller.
    fn has_owner(&self, name: &str) -> bool {
        let name = name.strip_prefix(GRPC).unwrap_or(name);
        name.split_once('/').is_some_and(|(namespace, _)| self.scope.has_namespace(namespace))
    }

    /// Returns `true` if a name that gRPC clients dial leads to hosts of the caller.
    fn is_own_name(&self, listener: &Resource, all: &Resources) -> bool {
        let mut tables = listener.references().targets().peekable();
        tables.peek().is_some()
            && tables.all(|target| {
                let table = all.get(target);
                table.is_some_and(|table| self.is_own_table(None, Some(table)))
            })
    }

    /// Returns `true` if the virtual hosts that differ between two versions of a RouteConfiguration are the caller's, and nothing else
    /// differs.
    fn is_own_table(&self, old: Option<&Arc<Resource>>, new: Option<&Arc<Resource>>) -> bool {
        let name = old.or(new).map(|table| table.name().to_string()).unwrap_or_default();
        let [old, new] = [old, new].map(|table| table.map(|table| table.value()));
        let [before, after] = [&old, &new].map(|table| table.as_ref().map(|table| Table::read(table)));
        match (before, after) {
            (Some(Some(before)), Some(Some(after))) => {
                let (removed, added) = (before.without(&after), after.without(&before));
                let names: BTreeSet<&str> = removed.keys().chain(added.keys()).copied().collect();
                let is_own = |host: &str| {
                    let [old, new] = [&removed, &added].map(|hosts| hosts.get(host).copied());
                    self.is_own_host(&name, old, new)
                };
                before.frame == after.frame && names.into_iter().all(is_own)
            }
            (Some(Some(one)), None) | (None, Some(Some(one))) => {
                one.hosts.iter().all(|host| self.is_own_host(&name, None, Some(host)))
            }
            _ => false,
        }
    }

    /// Returns `true` if the routes that differ between two versions of a virtual host of this RouteConfiguration are of documents in the
    /// caller's namespaces, and nothing else differs. Of a host with routes of others, the caller may not change which requests go where
    /// by what they match. A host of the mesh belongs to its Service, whoever brings routes for it.
    fn is_own_host(&self, table: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> bool {
        let [old, new] = [old, new].map(|host| host.map(Host::read));
        let Some(name) = [&old, &new].into_iter().flatten().flatten().map(|host| host.name).next() else {
            return false;
        };
        let is_own_service = match (table.strip_prefix(GRPC), table.starts_with(MESH)) {
            (Some(table), _) => table.strip_prefix(MESH).is_none_or(|service| self.has_owner(service)),
            (None, true) => self.has_owner(name),
            (None, false) => true,
        };
        let is_own = |(route, _): &(&str, &[u8])| self.is_own_route(route);
        is_own_service
            && match (&old, &new) {
                (Some(Some(old)), Some(Some(new))) => {
                    let is_shared = !old.routes.iter().chain(&new.routes).all(is_own);
                    old.frame == new.frame
                        && old.routes.symmetric_difference(&new.routes).all(is_own)
                        && (!is_shared || old.matches_besides(new) == new.matches_besides(old))
                }
                (Some(Some(one)), None) | (None, Some(Some(one))) => one.routes.iter().all(is_own),
                _ => false,
            }
    }

    /// Returns `true` if a route is of a document in the caller's namespaces, by its name: `KIND/NAMESPACE/…`. Some routes are nobody's:
    /// the answers where there is no route.
    fn is_own_route(&self, name: &str) -> bool {
        let mut parts = name.split('/');
        match (parts.next().and_then(Kind::of_name), parts.next()) {
            (Some(_), Some(namespace)) => self.scope.has_namespace(namespace),
            _ => NOBODYS.contains(&name),
        }
    }
}

/// A RouteConfiguration: its virtual hosts, and the fields around them.
struct Table<'t> {
    frame: Vec<&'t [u8]>,
    hosts: BTreeSet<&'t [u8]>,
}

impl<'t> Table<'t> {
    fn read(message: &'t [u8]) -> Option<Self> {
        let (mut frame, mut hosts) = (Vec::new(), BTreeSet::new());
        for field in Fields::of(message) {
            match field.ok()? {
                host @ Field { number: VIRTUAL_HOSTS, .. } => _ = hosts.insert(host.bytes().ok()?),
                Field { raw, .. } => frame.push(raw),
            }
        }
        Some(Self { frame, hosts })
    }

    /// The virtual hosts, by name, that the other one does not have just so.
    fn without(&self, other: &Self) -> BTreeMap<&'t str, &'t [u8]> {
        self.hosts.difference(&other.hosts).map(|host| (name_of_host(host), *host)).collect()
    }
}

/// A virtual host: its routes, each with its name, and the fields around them.
struct Host<'h> {
    name: &'h str,
    frame: Vec<&'h [u8]>,
    routes: BTreeSet<(&'h str, &'h [u8])>,
}

impl<'h> Host<'h> {
    fn read(message: &'h [u8]) -> Option<Self> {
        let (mut name, mut frame, mut routes) = ("", Vec::new(), BTreeSet::new());
        for field in Fields::of(message) {
            let field = field.ok()?;
            if field.number == HOST_ROUTES {
                let route = field.bytes().ok()?;
                routes.insert((text_of(route, ROUTE_NAME)?, route));
                continue;
            }
            if field.number == HOST_NAME {
                name = field.text().ok()?;
            }
            frame.push(field.raw);
        }
        Some(Self { name, frame, routes })
    }

    /// The names of the routes that the other one does not have just so, with what they match.
    fn matches_besides(&self, other: &Self) -> BTreeSet<(&'h str, &'h [u8])> {
        let differing = self.routes.difference(&other.routes);
        differing.map(|(name, route)| (*name, bytes_of(route, ROUTE_MATCH).unwrap_or_default())).collect()
    }
}

/// The name of a virtual host; empty if it has none that can be read.
fn name_of_host(message: &[u8]) -> &str {
    text_of(message, HOST_NAME).unwrap_or_default()
}

/// The last text of a field, empty if there is none; `None` if the message cannot be read.
fn text_of(message: &[u8], number: u32) -> Option<&str> {
    let mut text = "";
    for field in Fields::of(message) {
        let field = field.ok()?;
        if field.number == number {
            text = field.text().ok()?;
        }
    }
    Some(text)
}

/// The beginning of names for gRPC clients, and that of names of the mesh.
const GRPC: &str = "grpc/";
const MESH: &str = "mesh/";

/// Routes that no document brings.
const NOBODYS: [&str; 2] = ["misdirected", "no-route"];

/// Numbers of fields: of a RouteConfiguration, of a VirtualHost and of a Route.
const VIRTUAL_HOSTS: u32 = 2;
const HOST_NAME: u32 = 1;
const HOST_ROUTES: u32 = 3;
const ROUTE_MATCH: u32 = 1;
const ROUTE_NAME: u32 = 14;
