//! What is published: always in itself complete, so that whatever a client lacks is the fault of the order of sending.

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::{Origin, Reference, Resource, ResourceDraft, ResourceKey, ResourceType};

/// Secret, cluster, endpoints, listener, route, scope, virtual host.
pub(crate) const N_KINDS: usize = 7;
pub(crate) const SECRET: usize = 0;
pub(crate) const CLUSTER: usize = 1;
pub(crate) const ENDPOINTS: usize = 2;
pub(crate) const LISTENER: usize = 3;
pub(crate) const ROUTE: usize = 4;
pub(crate) const SCOPE: usize = 5;
pub(crate) const HOST: usize = 6;

pub(crate) fn resource_type(kind: usize) -> ResourceType {
    match kind {
        SECRET => ResourceType::Secret,
        CLUSTER => ResourceType::Cluster,
        ENDPOINTS => ResourceType::ClusterLoadAssignment,
        LISTENER => ResourceType::Listener,
        SCOPE => ResourceType::ScopedRouteConfiguration,
        HOST => ResourceType::VirtualHost,
        _ => ResourceType::RouteConfiguration,
    }
}

/// There are not as many of any kind.
const N_EACH: usize = 8;

/// One edit of the configuration. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// A route goes to these clusters, one bit each: by its first virtual host, if these come on demand.
    Route { route: usize, clusters: u8 },
    /// Of a route whose virtual hosts come on demand the other one goes to these clusters; `None`: it is not there.
    Host { route: usize, clusters: Option<u8> },
    /// A route whose virtual hosts come on demand changes apart from these.
    Table { route: usize },
    /// A cluster changes: whether its endpoints are asked for, and its secret.
    Cluster { cluster: usize, is_eds: bool, secret: Option<usize> },
    /// A cluster is there though nothing refers to it, or not.
    Spare { cluster: usize, is_there: bool },
    /// Endpoints change.
    Endpoints { cluster: usize },
    /// A listener takes that route, or goes to that cluster by itself; `None`: it is not there.
    Listener { listener: usize, to: Option<(bool, usize)>, secret: Option<usize> },
    /// A scope leads to that route; `None`: it is not there.
    Scope { scope: usize, to: Option<usize> },
    /// A secret changes.
    Secret { secret: usize },
}

/// What an operator wants; what is not referred to is not there.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    edition: [u32; N_KINDS * N_EACH],
    routes: [u8; 3],
    /// Whether routes have their virtual hosts on demand, and the second of each.
    is_on_demand: bool,
    hosts: [Option<u8>; 3],
    clusters: [(bool, Option<usize>, bool); 4],
    listeners: [Option<(bool, usize, Option<usize>)>; 2],
    /// Whether the last listener has scopes besides its route.
    is_scoped: bool,
    scopes: [Option<usize>; 2],
}

impl Config {
    pub(crate) fn new(is_scoped: bool, is_on_demand: bool) -> Self {
        Self {
            edition: [0; N_KINDS * N_EACH],
            routes: [1, 2, 4],
            is_on_demand,
            hosts: [is_on_demand.then_some(1), None, None],
            clusters: [(true, None, false); 4],
            listeners: [Some((true, 0, None)), Some((true, 1, Some(0)))],
            is_scoped,
            scopes: [is_scoped.then_some(2), None],
        }
    }

    /// One listener, its route, one cluster.
    pub(crate) fn small(is_grpc: bool, is_scoped: bool, is_on_demand: bool) -> Self {
        let listeners = if is_grpc { [Some((true, 0, None)), None] } else { [None, Some((true, 0, None))] };
        let (scopes, hosts, routes) = ([is_scoped.then_some(1), None], [None; 3], [1, 1, 1]);
        Self { listeners, scopes, hosts, routes, ..Self::new(is_scoped, is_on_demand) }
    }

    /// Two of each kind but secrets.
    pub(crate) fn two_of_each(is_scoped: bool) -> Self {
        let listeners = [Some((true, 0, None)), Some((true, 1, None))];
        let scopes = [is_scoped.then_some(0), is_scoped.then_some(1)];
        Self { listeners, scopes, routes: [1, 2, 1], ..Self::new(is_scoped, false) }
    }

    pub(crate) fn edit(&mut self, edit: &Edit) {
        let (kind, index) = match edit {
            Edit::Route { route, clusters } => {
                self.routes[route % 3] = (clusters % 16).max(1);
                if self.is_on_demand { (HOST, route % 3 * 2) } else { (ROUTE, route % 3) }
            }
            Edit::Host { route, clusters } => {
                self.hosts[route % 3] = clusters.map(|clusters| (clusters % 16).max(1));
                (HOST, route % 3 * 2 + 1)
            }
            Edit::Table { route } => (ROUTE, route % 3),
            Edit::Cluster { cluster, is_eds, secret } => {
                let spare = self.clusters[cluster % 4].2;
                self.clusters[cluster % 4] = (*is_eds, secret.map(|secret| secret % 2), spare);
                (CLUSTER, cluster % 4)
            }
            Edit::Spare { cluster, is_there } => {
                self.clusters[cluster % 4].2 = *is_there;
                return;
            }
            Edit::Endpoints { cluster } => (ENDPOINTS, cluster % 4),
            Edit::Listener { listener, to, secret } => {
                let secret = secret.map(|secret| secret % 2);
                let to = to.map(|(is_route, to)| (is_route, to % if is_route { 3 } else { 4 }, secret));
                // One listener always takes a route and a secret, so that no type is new to the client: first responses wait for
                // nothing.
                let always = || Some((true, to.map_or(0, |(_, to, _)| to % 3), Some(secret.unwrap_or(0))));
                self.listeners[listener % 2] = if listener % 2 == 1 { always() } else { to };
                (LISTENER, listener % 2)
            }
            Edit::Scope { scope, to } => {
                self.scopes[scope % 2] = to.map(|to| to % 3);
                (SCOPE, scope % 2)
            }
            Edit::Secret { secret } => (SECRET, secret % 2),
        };
        self.edition[kind * N_EACH + index] += 1;
    }

    /// Everything becomes different; a list that is empty too.
    pub(crate) fn renew(&mut self) {
        if self.is_scoped {
            self.scopes[0].get_or_insert(0);
        }
        self.edition.iter_mut().for_each(|edition| *edition += 1);
    }

    /// All resources: kind and name, and content. A content is the edition and what is referred to, as `KIND/NAME`.
    pub(crate) fn resources(&self) -> BTreeMap<(usize, String), String> {
        let mut resources = BTreeMap::new();
        let mut open: Vec<(usize, usize)> = vec![];
        open.extend((0..2).filter(|i| self.listeners[*i].is_some()).map(|i| (LISTENER, i)));
        open.extend((0..4).filter(|i| self.clusters[*i].2).map(|i| (CLUSTER, i)));
        open.extend((0..2).filter(|i| self.scopes[*i].is_some()).map(|i| (SCOPE, i)));
        while let Some((kind, index)) = open.pop() {
            let to = self.references(kind, index);
            let mut content = self.edition[kind * N_EACH + index].to_string();
            for (kind, index) in to.iter().filter(|(kind, _)| *kind != HOST) {
                content += &format!(" {kind}/{}", name(*kind, *index));
            }
            if kind == ROUTE && self.is_on_demand {
                content += &format!(" {HOST}/r{index}/*");
            }
            if (kind, index) == (LISTENER, 1) && self.is_scoped {
                content += &format!(" {SCOPE}/*");
            }
            if resources.insert((kind, name(kind, index)), content).is_none() {
                open.extend(to);
            }
        }
        resources
    }

    fn references(&self, kind: usize, index: usize) -> Vec<(usize, usize)> {
        match kind {
            CLUSTER => {
                let (is_eds, secret, _) = self.clusters[index];
                let endpoints = is_eds.then_some((ENDPOINTS, index));
                endpoints.into_iter().chain(secret.map(|secret| (SECRET, secret))).collect()
            }
            LISTENER => {
                let Some((is_route, to, secret)) = self.listeners[index] else { return vec![] };
                let to = if is_route { (ROUTE, to) } else { (CLUSTER, to) };
                [to].into_iter().chain(secret.map(|secret| (SECRET, secret))).collect()
            }
            SCOPE => self.scopes[index].map(|to| (ROUTE, to)).into_iter().collect(),
            ROUTE if self.is_on_demand => {
                let other = self.hosts[index].map(|_| (HOST, index * 2 + 1));
                [(HOST, index * 2)].into_iter().chain(other).collect()
            }
            ROUTE => clusters(self.routes[index]),
            HOST if index % 2 == 1 => clusters(self.hosts[index / 2].unwrap_or_default()),
            HOST => clusters(self.routes[index / 2]),
            _ => vec![],
        }
    }
}

fn clusters(bits: u8) -> Vec<(usize, usize)> {
    (0..4).filter(|i| bits & (1 << i) != 0).map(|i| (CLUSTER, i)).collect()
}

/// `c0` is the first cluster, and so on; `r1/h0` is the first virtual host of the second route.
fn name(kind: usize, index: usize) -> String {
    if kind == HOST {
        return format!("r{}/h{}", index / 2, index % 2);
    }
    format!("{}{index}", ["k", "c", "s", "l", "r", "p"][kind])
}

/// What a content refers to.
pub(crate) fn references(content: &str) -> BTreeSet<(usize, String)> {
    let read = |word: &str| {
        let (kind, name) = word.split_once('/').expect("KIND/NAME");
        (kind.parse().expect("a kind"), name.to_owned())
    };
    content.split(' ').skip(1).map(read).collect()
}

/// The other name of a virtual host that has one.
pub(crate) fn alias(kind: usize, name: &str) -> Option<String> {
    let route = name.strip_suffix("/h1").filter(|_| kind == HOST)?;
    Some(format!("{route}/a1"))
}

pub(crate) fn resource(kind: usize, name: &str, content: &str) -> Resource {
    let reference = |(kind, name): (usize, String)| Reference {
        to: ResourceKey { resource_type: resource_type(kind), name: name.into() }.into(),
        path: "here".into(),
    };
    Resource::new(ResourceDraft {
        key: ResourceKey { resource_type: resource_type(kind), name: name.into() }.into(),
        value: content.as_bytes().to_vec().into(),
        ttl: None,
        aliases: alias(kind, name).into_iter().map(Into::into).collect(),
        references: references(content).into_iter().map(reference).collect(),
        origin: Origin::Api,
        in_wildcard: true,
        host_pattern: false,
    })
}
