//! Random changes of a configuration, each from one complete configuration to another.
//!
//! Every published configuration can serve every request: routes lead to clusters that exist, clusters have endpoints, backends never
//! go away, and a path without a route of its own takes the general one. So if a request fails, the way in which the change reached the
//! client is to blame.

mod extras;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::config;
use crate::random::Random;

use extras::Extras;
pub use extras::{LISTENERS, Outside, SECURE_LISTENER, SERVER_NAME};

/// The virtual hosts of each route configuration: the one for all domains, and one with a domain of its own.
pub const HOSTS: [&str; 2] = ["one", "two"];
/// A host that may have a scope; it is answered as paths without a route are.
pub const MORE_HOST: &str = "more";
/// How many paths have a route: `/p0/`, `/p1/` …
pub const N_PATHS: usize = 6;
/// How many clusters there are at most; at least one.
const MAX_CLUSTERS: usize = 8;
/// The number of cluster names, which are used in turn. A name comes back after three changes at the earliest: it must not change its
/// meaning from one publication to the next, because no order of sending could separate the two meanings.
pub const N_CLUSTER_NAMES_OF_ENVOY: u64 = 40;
/// No name comes again: C-core goes on with the endpoints of a cluster that comes back within 15 minutes until it has the new ones.
pub const N_CLUSTER_NAMES_OF_GRPC: u64 = u64::MAX;

/// Where a request goes: which listener, which of [`HOSTS`], which path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Target {
    /// Index into [`LISTENERS`].
    pub listener: usize,
    /// Index into [`HOSTS`].
    pub host: usize,
    /// Below [`N_PATHS`].
    pub path: usize,
}

impl Target {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_listener = |listener| (0..HOSTS.len()).map(move |host| (listener, host));
        let hosts = (0..LISTENERS.len()).flat_map(of_listener);
        hosts.flat_map(|(listener, host)| (0..N_PATHS).map(move |path| Self { listener, host, path }))
    }

    /// The path of a request, or the method of a call.
    #[must_use]
    pub fn path(self) -> String {
        format!("/p{}/Who", self.path)
    }

    /// The hosts that gRPC clients can reach, because they dial them by name.
    pub fn all_of_grpc() -> impl Iterator<Item = Self> {
        Self::all().filter(|target| target.host == 0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/p{}", LISTENERS[self.listener], HOSTS[self.host], self.path)
    }
}

/// A change from one configuration to the next.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Transition {
    /// A cluster is added and a route moves to it.
    AddCluster,
    /// A route is split anew between two clusters.
    ShiftWeights,
    /// A cluster is removed, and every route to it moves.
    RemoveCluster,
    /// A cluster has another name.
    RenameCluster,
    /// All clusters have other names.
    RenameAllClusters,
    /// A cluster has other endpoints.
    SwapEndpoints,
    /// A cluster has other settings and the same endpoints.
    ChangeSettings,
    /// A route moves to the other virtual host.
    MoveHost,
    /// A route moves to the other listener.
    MoveListener,
    /// A route configuration has another name.
    RenameRoutes,
    /// A listener's certificate is another one, in a secret of the same name.
    ChangeCertificate,
    /// A listener's certificate is in a secret of another name.
    RenameCertificate,
    /// The authorities that clusters trust are in a secret of another name.
    RenameTrust,
    /// A listener's extension says something else.
    ChangeFilter,
    /// A listener's extension has another name.
    RenameFilter,
    /// Every scope has another name and the key that it had, and a route moves to the other virtual host.
    RenameScopes,
    /// Each listener has a scope more, with routes of its own, or has it no more.
    ToggleScope,
    /// Everything is different.
    ReplaceEverything,
}

impl Transition {
    /// All kinds. The ones for Envoys only come last, and of these the ones for scoped routes.
    const ALL: [Self; 18] = [
        Self::AddCluster,
        Self::ShiftWeights,
        Self::RemoveCluster,
        Self::RenameCluster,
        Self::RenameAllClusters,
        Self::SwapEndpoints,
        Self::ChangeSettings,
        Self::MoveHost,
        Self::MoveListener,
        Self::RenameRoutes,
        Self::ReplaceEverything,
        Self::ChangeCertificate,
        Self::RenameCertificate,
        Self::RenameTrust,
        Self::ChangeFilter,
        Self::RenameFilter,
        Self::RenameScopes,
        Self::ToggleScope,
    ];

    /// The kinds that make a difference to Envoys.
    #[must_use]
    pub fn of_envoy() -> &'static [Self] {
        Self::ALL.split_at(Self::ALL.len() - 2).0
    }

    /// The kinds that make a difference to Envoys with scoped routes.
    #[must_use]
    pub fn of_scoped() -> &'static [Self] {
        &Self::ALL
    }

    /// The kinds that make a difference to gRPC clients.
    #[must_use]
    pub fn of_grpc() -> &'static [Self] {
        Self::ALL.split_at(Self::ALL.len() - 7).0
    }
}

/// A configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct State {
    clusters: BTreeMap<u64, Cluster>,
    routes: Vec<Route>,
    /// The number of the cluster that was named last.
    last_name: u64,
    /// How many names there are for clusters.
    n_names: u64,
    /// Where paths without a route go, in each listener and host.
    others: u64,
    /// The number in the name of each listener's route configuration.
    route_configs: [u64; 2],
    scopes: Scopes,
    extras: Extras,
}

/// How scopes lead to routes, for Envoys with scoped routes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Scopes {
    /// The number in the names of scopes.
    pub name: u64,
    /// True if there is one for [`MORE_HOST`] too.
    pub has_more: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Cluster {
    /// Indexes of backends; not empty.
    backends: BTreeSet<usize>,
    connect_timeout_ms: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Route {
    listener: usize,
    host: usize,
    /// Clusters with weights; not empty.
    split: Vec<(u64, u64)>,
}

impl State {
    /// A configuration with two clusters, over `n_backends` backends; more than three times eight names for clusters.
    pub fn new(random: &mut Random, n_backends: usize, n_names: u64) -> Self {
        let mut state = Self {
            clusters: BTreeMap::new(),
            routes: Vec::new(),
            last_name: 0,
            n_names,
            others: 0,
            route_configs: [0, 0],
            scopes: Scopes::default(),
            extras: Extras::default(),
        };
        state.others = state.add_cluster(random, n_backends);
        let other = state.add_cluster(random, n_backends);
        for path in 0..N_PATHS {
            let split = vec![(if path % 2 == 0 { state.others } else { other }, 1)];
            state.routes.push(Route { listener: path % 2, host: path / 2 % 2, split });
        }
        state
    }

    /// Makes a random change of one of these kinds and returns which it was.
    pub fn change(&mut self, random: &mut Random, of: &[Transition], n_backends: usize) -> Transition {
        loop {
            let transition = of[below(random, of.len())];
            if self.make(transition, random, n_backends) {
                return transition;
            }
        }
    }

    /// Makes a change of one kind, if its random choices make a difference; returns whether they do. There must not be too few or
    /// too many clusters for it.
    pub fn make(&mut self, transition: Transition, random: &mut Random, n_backends: usize) -> bool {
        let before = self.clone();
        self.try_to_make(transition, random, n_backends);
        *self != before
    }

    fn try_to_make(&mut self, transition: Transition, random: &mut Random, n_backends: usize) {
        let path = below(random, N_PATHS);
        let cluster = self.any_cluster(random);
        match transition {
            Transition::AddCluster if self.clusters.len() >= MAX_CLUSTERS => {}
            Transition::AddCluster => {
                let added = self.add_cluster(random, n_backends);
                self.routes[path].split = vec![(added, 1)];
            }
            Transition::ShiftWeights => {
                let other = self.any_cluster(random);
                if cluster != other {
                    let weight = random.within(1..100);
                    self.routes[path].split = vec![(cluster, weight), (other, 100 - weight)];
                }
            }
            Transition::RemoveCluster if self.clusters.len() == 1 => {}
            Transition::RemoveCluster => {
                self.clusters.remove(&cluster);
                let heir = self.any_cluster(random);
                self.replace(cluster, heir);
            }
            Transition::RenameCluster => self.rename(cluster),
            Transition::RenameAllClusters => self.rename_all(),
            Transition::SwapEndpoints => {
                let backends = any_backends(random, n_backends);
                self.clusters.entry(cluster).and_modify(|cluster| cluster.backends = backends);
            }
            Transition::ChangeSettings => {
                self.clusters.entry(cluster).and_modify(|cluster| cluster.connect_timeout_ms += 1);
            }
            Transition::MoveHost => self.routes[path].host ^= 1,
            Transition::MoveListener => self.routes[path].listener ^= 1,
            Transition::RenameRoutes => self.route_configs[path % 2] += 1,
            Transition::ChangeCertificate => self.extras.certificate.content += 1,
            Transition::RenameCertificate => self.extras.certificate.name += 1,
            Transition::RenameTrust => self.extras.trust.name += 1,
            Transition::ChangeFilter => self.extras.filters[path % 2].content += 1,
            Transition::RenameFilter => self.extras.filters[path % 2].name += 1,
            Transition::RenameScopes => {
                self.scopes.name += 1;
                self.routes[path].host ^= 1;
            }
            Transition::ToggleScope => self.scopes.has_more = !self.scopes.has_more,
            Transition::ReplaceEverything => {
                self.scopes.name += 1;
                self.rename_all();
                for cluster in self.clusters.values_mut() {
                    cluster.backends = any_backends(random, n_backends);
                    cluster.connect_timeout_ms += 1;
                }
                self.route_configs = self.route_configs.map(|number| number + 1);
                self.routes.rotate_left(1);
                let Extras { certificate, trust, filters: [front, side] } = &mut self.extras;
                for named in [certificate, trust, front, side] {
                    named.name += 1;
                    named.content += 1;
                }
            }
        }
    }

    /// The whole configuration, for Envoys.
    #[must_use]
    pub fn for_envoy(&self, outside: &Outside) -> Vec<Value> {
        let listener = |i: usize| {
            let mut listener = config::listener(LISTENERS[i], outside.ports[i], &self.route_config_name(i));
            self.extras.add_to_listener(i, &mut listener);
            listener
        };
        let clusters = self.clusters.keys().flat_map(|number| {
            let is_secure = number % 2 == 0;
            let backends = if is_secure { &outside.secure_backends } else { &outside.backends };
            let [mut cluster, endpoints] = self.cluster(*number, backends);
            if is_secure {
                self.extras.secure_cluster(&mut cluster);
            }
            [cluster, endpoints]
        });
        let rest = clusters.chain(self.extras.resources(outside));
        (0..LISTENERS.len()).flat_map(|i| [listener(i), self.route_config(i)]).chain(rest).collect()
    }

    /// How scopes lead to routes.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// The whole configuration, for gRPC clients.
    #[must_use]
    pub fn for_grpc(&self, outside: &Outside) -> Vec<Value> {
        let listener = |i: usize| config::api_listener(LISTENERS[i], &self.route_config_name(i));
        let clusters = self.clusters.keys().flat_map(|number| self.cluster(*number, &outside.backends));
        (0..LISTENERS.len()).flat_map(|i| [listener(i), self.route_config(i)]).chain(clusters).collect()
    }

    /// The indexes of the backends that may answer.
    #[must_use]
    pub fn answers(&self, target: Target) -> BTreeSet<usize> {
        let route = &self.routes[target.path];
        let is_routed = (route.listener, route.host) == (target.listener, target.host);
        let others = [(self.others, 1)];
        let split = if is_routed { &route.split[..] } else { &others[..] };
        split.iter().flat_map(|(cluster, _)| &self.clusters[cluster].backends).copied().collect()
    }

    /// A cluster and its endpoints.
    fn cluster(&self, number: u64, backends: &[SocketAddr]) -> [Value; 2] {
        let cluster = &self.clusters[&number];
        let name = cluster_name(number);
        let mut resource = config::cluster(&name);
        let timeout_ms = cluster.connect_timeout_ms;
        resource["connect_timeout"] = json!(format!("{}.{:03}s", timeout_ms / 1000, timeout_ms % 1000));
        let addrs: Vec<_> = cluster.backends.iter().map(|i| backends[*i]).collect();
        [resource, config::endpoints(&name, &addrs)]
    }

    fn route_config(&self, listener: usize) -> Value {
        let host = |host: usize| {
            let here = self.routes.iter().enumerate();
            let here = here.filter(|(_, route)| (route.listener, route.host) == (listener, host));
            let others = json!({"match": {"prefix": "/"}, "route": config::to(&cluster_name(self.others))});
            let routes = here.map(|(path, route)| {
                let split: Vec<_> = route.split.iter().map(|(number, weight)| (cluster_name(*number), weight)).collect();
                let action = match &split[..] {
                    [(only, _)] => config::to(only),
                    split => {
                        let cluster = |(name, weight): &(String, &u64)| json!({"name": name, "weight": weight});
                        json!({"weighted_clusters": {"clusters": split.iter().map(cluster).collect::<Vec<_>>()}})
                    }
                };
                json!({"match": {"prefix": format!("/p{path}/")}, "route": action})
            });
            let domain = if host == 0 { "*" } else { HOSTS[host] };
            json!({"name": HOSTS[host], "domains": [domain], "routes": routes.chain([others]).collect::<Vec<_>>()})
        };
        let hosts: Vec<_> = (0..HOSTS.len()).map(host).collect();
        json!({"@type": config::ROUTE, "name": self.route_config_name(listener), "virtual_hosts": hosts})
    }

    fn route_config_name(&self, listener: usize) -> String {
        format!("{}-{}", LISTENERS[listener], self.route_configs[listener])
    }

    fn add_cluster(&mut self, random: &mut Random, n_backends: usize) -> u64 {
        let number = self.free_name();
        let cluster = Cluster { backends: any_backends(random, n_backends), connect_timeout_ms: 1000 };
        self.clusters.insert(number, cluster);
        number
    }

    /// Gives a cluster another name.
    fn rename(&mut self, old: u64) {
        let new = self.free_name();
        if let Some(cluster) = self.clusters.remove(&old) {
            self.clusters.insert(new, cluster);
            self.replace(old, new);
        }
    }

    fn rename_all(&mut self) {
        let old: Vec<_> = self.clusters.keys().copied().collect();
        for old in old {
            self.rename(old);
        }
    }

    /// Lets everything that leads to `old` lead to `new`.
    fn replace(&mut self, old: u64, new: u64) {
        for route in &mut self.routes {
            for (cluster, _) in route.split.iter_mut().filter(|(cluster, _)| *cluster == old) {
                *cluster = new;
            }
            // No cluster has two shares.
            route.split.dedup_by_key(|(cluster, _)| *cluster);
        }
        if self.others == old {
            self.others = new;
        }
    }

    /// The next name that no cluster has.
    fn free_name(&mut self) -> u64 {
        loop {
            self.last_name = (self.last_name + 1) % self.n_names;
            if !self.clusters.contains_key(&self.last_name) {
                return self.last_name;
            }
        }
    }

    fn any_cluster(&self, random: &mut Random) -> u64 {
        self.clusters.keys().nth(below(random, self.clusters.len())).copied().unwrap_or_default()
    }
}

fn cluster_name(number: u64) -> String {
    format!("c{number}")
}

/// One to three backends.
fn any_backends(random: &mut Random, n_backends: usize) -> BTreeSet<usize> {
    (0..=below(random, 3)).map(|_| below(random, n_backends)).collect()
}

fn below(random: &mut Random, n: usize) -> usize {
    usize::try_from(random.within(0..n as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_complete_in_itself() {
        let mut random = Random::new(1);
        let mut state = State::new(&mut random, 6, N_CLUSTER_NAMES_OF_ENVOY);
        let backends = vec![SocketAddr::from(([127, 0, 0, 1], 1)); 6];
        let outside = Outside {
            ports: [1, 2],
            secure_backends: backends.clone(),
            backends,
            authority_pem: String::new(),
            certificates_pem: Default::default(),
        };
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            seen.insert(state.change(&mut random, Transition::of_scoped(), 6));
            let resources = state.for_envoy(&outside);
            let clusters: BTreeSet<_> = resources
                .iter()
                .filter(|r| r["@type"] == config::CLUSTER)
                .map(|r| r["name"].to_string())
                .collect();
            let routes: Vec<_> = resources.iter().filter(|r| r["@type"] == config::ROUTE).collect();
            for number in (0..N_CLUSTER_NAMES_OF_ENVOY).map(|number| format!("\"{}\"", cluster_name(number)))
            {
                let is_used = routes.iter().any(|routes| routes.to_string().contains(&number));
                assert!(!is_used || clusters.contains(&number), "{number}: {resources:#?}");
            }
            assert!(Target::all().all(|target| !state.answers(target).is_empty()), "{state:?}");
            assert!((1..=MAX_CLUSTERS).contains(&state.clusters.len()), "{state:?}");
        }
        assert_eq!(seen.len(), Transition::ALL.len(), "{seen:?}");
    }
}
