//! A RouteConfiguration, ready for requests.

use std::borrow::Cow;
use std::sync::LazyLock;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

use crate::choice::RouteTree;
use crate::draw::Chance;
use crate::host::{At, BadDomain, DomainKind, HostIndex, without_port};
use crate::path;
use crate::request::Request;
use crate::route::{self, Asked, Reason, Route};
use crate::semantics::{Difference, Semantics};
use crate::tree::{Found, Looked};
use crate::truth::Truth;

/// A RouteConfiguration, ready for requests.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// Without its virtual hosts.
    pub(crate) message: RouteConfiguration,
    pub(crate) hosts: Vec<VirtualHost>,
    index: HostIndex,
    /// Why the client refuses it.
    pub(crate) refused: Option<Reason>,
    semantics: Semantics,
}

/// Routes, which are made ready when a request first looks at them.
pub(crate) type Routes = LazyLock<Vec<Route>, Box<dyn FnOnce() -> Vec<Route> + Send>>;

/// A virtual host.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    /// Without its routes, but with its tree.
    pub(crate) message: proto::VirtualHost,
    /// In order; those of a tree as they come in it.
    pub(crate) routes: Routes,
    /// The tree of matchers that chooses the route (XR18).
    pub(crate) tree: Option<RouteTree>,
}

/// One way that a request can take.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// The chance that is left.
    pub(crate) chance: Chance,
    /// The index of the route; `None` if there is none.
    pub(crate) route: Option<usize>,
    /// What is assumed: the conditions that are not known, in words.
    pub(crate) assumed: Vec<String>,
    /// Why it is not known what a tree of matchers chooses.
    pub(crate) unknown: Option<String>,
}

/// All ways that a request can take, in the order of routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    pub(crate) leaves: Vec<Leaf>,
    /// True if there are more.
    pub(crate) has_more: bool,
    /// The routes that were looked at.
    pub(crate) seen: Vec<usize>,
    /// The branches of a tree that were looked at, and how many more.
    pub(crate) looked: Vec<Looked>,
    pub(crate) n_looked_left_out: usize,
}

impl RouteTable {
    pub(crate) fn of(mut message: RouteConfiguration, semantics: Semantics) -> Self {
        let virtual_hosts = std::mem::take(&mut message.virtual_hosts);
        let domains = virtual_hosts.iter().map(|host| host.domains.as_slice());
        let (index, bad) = HostIndex::of(domains, semantics);
        let mut refused = bad.map(|bad| match bad {
            BadDomain::Duplicate(domain) => {
                Reason::new("XV4", format!("the domain {domain:?} is there twice"))
            }
            BadDomain::StarInside(domain) => {
                Reason::new("XV5", format!("the domain {domain:?} has a star inside"))
            }
        });
        let hosts = virtual_hosts.into_iter().map(|mut host| {
            let mut routes = std::mem::take(&mut host.routes);
            let mut tree = None;
            if refused.is_none() {
                refused = routes.iter().find_map(|route| route::refused(route, semantics));
            }
            if let Some(matcher) = &host.matcher {
                routes.clear();
                if semantics.has(Difference::TreeIsUsed) {
                    let (own, in_tree) = RouteTree::of(matcher, semantics);
                    let of_routes = || in_tree.iter().find_map(|route| route::refused(route, semantics));
                    refused = refused.take().or_else(|| own.refused()).or_else(of_routes);
                    (tree, routes) = (Some(own), in_tree);
                }
            }
            let ready = move || routes.into_iter().map(|route| Route::of(route, semantics)).collect();
            let routes: Routes = LazyLock::new(Box::new(ready));
            VirtualHost { message: host, routes, tree }
        });
        Self { hosts: hosts.collect(), index, refused, semantics, message }
    }

    /// The virtual host of a request: its index and that of the domain.
    pub(crate) fn host(&self, asked: &Asked<'_>) -> Option<(At, DomainKind)> {
        self.index.find(self.compared_host(asked)?)
    }

    /// All virtual hosts with a domain that takes the host, the best first.
    pub(crate) fn takers(&self, asked: &Asked<'_>) -> impl Iterator<Item = (At, DomainKind)> {
        self.compared_host(asked).into_iter().flat_map(|host| self.index.takers(host))
    }

    /// The text that domains are compared with (XV3).
    pub(crate) fn compared_host<'a>(&self, asked: &'a Asked<'_>) -> Option<&'a str> {
        if !self.semantics.has(Difference::HostIsAuthority) {
            return Some(&asked.request.authority);
        }
        let host = match &*self.message.vhost_header {
            "" => &*asked.request.authority,
            header => asked.seen.get(&header.to_ascii_lowercase()).first()?,
        };
        Some(if self.message.ignore_port_in_host_matching { without_port(host) } else { host })
    }

    /// The domain with a star inside, because of which no host is found (XV5).
    pub(crate) fn hidden_by(&self) -> Option<&str> {
        self.index.hidden_by.as_deref()
    }

    /// The path that conditions are compared with (XR1).
    pub(crate) fn compared_path<'r>(&self, request: &'r Request) -> Cow<'r, str> {
        path::compared(&request.path, self.message.ignore_path_parameters_in_path_matching)
    }
}

impl VirtualHost {
    /// All ways of a request among the routes. Costs one look at each branch of a tree, and at each route, before the first that takes the
    /// rest.
    pub(crate) fn ways(&self, asked: &Asked<'_>, chance: Chance) -> Ways {
        let mut ways = Ways::default();
        let leaf = |assumed| Leaf { chance: chance.clone(), route: None, assumed, unknown: None };
        let Some(tree) = &self.tree else {
            ways.follow(self.routes.iter().enumerate(), leaf(Vec::new()), asked);
            return ways;
        };
        let walked = tree.ask(asked);
        (ways.looked, ways.n_looked_left_out) = (walked.looked, walked.n_left_out);
        ways.has_more = walked.has_more;
        for way in walked.ways {
            match way.found {
                Found::Action(at) => {
                    let of_action = tree.routes_of(at);
                    let routes = self.routes.iter().enumerate().skip(of_action.start).take(of_action.len());
                    ways.follow(routes, leaf(way.assumed), asked);
                }
                Found::Nothing => ways.leaves.push(leaf(way.assumed)),
                Found::Unknown(why) => {
                    ways.leaves.push(Leaf { unknown: Some(why), ..leaf(way.assumed) });
                }
            }
        }
        if ways.leaves.len() > MAX_LEAVES {
            ways.has_more = true;
            ways.leaves.truncate(MAX_LEAVES);
        }
        ways.seen.sort_unstable();
        ways.seen.dedup();
        ways
    }

    /// Where a route is in the virtual host.
    pub(crate) fn path_of_route(&self, index: usize) -> String {
        match &self.tree {
            Some(tree) => tree.path_of_route(index).to_owned(),
            None => format!("routes[{index}]"),
        }
    }
}

impl Ways {
    /// Follows a way through a list of routes.
    fn follow<'r>(
        &mut self,
        routes: impl Iterator<Item = (usize, &'r Route)>,
        leaf: Leaf,
        asked: &Asked<'_>,
    ) {
        // Each entry is a way that has come to this route.
        let mut open = vec![leaf];
        for (index, route) in routes {
            self.seen.push(index);
            let truth = route.matches(asked);
            if truth == Truth::No {
                continue;
            }
            let mut rest = Vec::new();
            for leaf in open {
                let Some((taken, passed)) = leaf.split(index, route, truth, asked) else {
                    self.has_more = true;
                    continue;
                };
                self.leaves.extend(taken);
                rest.extend(passed);
            }
            open = rest;
            if self.leaves.len() + open.len() > MAX_LEAVES {
                self.has_more = true;
                self.leaves.truncate(MAX_LEAVES);
                return;
            }
            if open.is_empty() {
                return;
            }
        }
        self.leaves.extend(open);
    }
}

impl Leaf {
    /// The way that takes the route, and those that pass it; `None` if the shares are too fine to be exact.
    fn split(
        self,
        index: usize,
        route: &Route,
        truth: Truth,
        asked: &Asked<'_>,
    ) -> Option<(Option<Self>, Vec<Self>)> {
        let mut passed = Vec::new();
        let mut taken = self.clone();
        if truth == Truth::Unknown {
            let unknown = route.failures(asked).into_iter().filter(|failure| failure.is_unknown);
            let words: Vec<String> = unknown
                .map(|failure| failure.name.unwrap_or_else(|| format!("{} {}", failure.on, failure.want)))
                .collect();
            let words = words.join(" and ");
            let mut other = self.clone();
            other.assumed.push(format!("not: {words} of route {index}"));
            taken.assumed.push(format!("{words} of route {index}"));
            passed.push(other);
        }
        taken.route = Some(index);
        let Some(fraction) = &route.fraction else { return Some((Some(taken), passed)) };
        let fraction = fraction.at_run_time(asked.request);
        let assumed = taken.assumed.clone();
        let (inside, outside) = self.chance.split(&fraction)?;
        let taken = inside.map(|chance| Self { chance, ..taken });
        passed.extend(outside.map(|chance| Self { chance, route: None, assumed, unknown: None }));
        Some((taken, passed))
    }
}

/// How many ways an explanation follows.
pub(crate) const MAX_LEAVES: usize = 8;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
    use envoy_types::pb::envoy::config::route::v3::{Route as RouteMessage, RouteMatch};

    use super::*;
    use crate::client::{Client, Language};
    use crate::header::Seen;

    const ALL: [Language; 4] = [Language::Envoy, Language::CCore, Language::Go, Language::Js];

    fn host(domains: &[&str], prefixes: &[&str]) -> proto::VirtualHost {
        let routes = prefixes.iter().map(|prefix| {
            let path_specifier = Some(PathSpecifier::Prefix((*prefix).to_owned()));
            RouteMessage {
                r#match: Some(RouteMatch { path_specifier, ..Default::default() }),
                ..Default::default()
            }
        });
        proto::VirtualHost {
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            routes: routes.collect(),
            ..Default::default()
        }
    }

    fn table(language: Language, virtual_hosts: Vec<proto::VirtualHost>) -> RouteTable {
        let message = RouteConfiguration { virtual_hosts, ..Default::default() };
        RouteTable::of(message, Semantics::of(Client::newest(language)))
    }

    /// The virtual host and the route of a request.
    fn chosen(table: &RouteTable, host: &str, path: &str) -> Option<(usize, Option<usize>)> {
        let request = Request::get(host, path);
        let seen = Seen::of(&request, table.semantics);
        let path = table.compared_path(&request);
        let asked = Asked { request: &request, path: &path, seen: &seen };
        let ((at, _), _) = table.host(&asked)?;
        let ways = table.hosts[at].ways(&asked, Chance::new(&request, table.semantics));
        Some((at, ways.leaves[0].route))
    }

    #[test]
    fn v4_envoy_refuses_a_domain_that_is_there_twice() {
        let hosts = || vec![host(&["a.test"], &["/"]), host(&["b.test", "a.test"], &["/"])];
        assert_eq!(ALL.map(|one| table(one, hosts()).refused.is_some()), [true, false, false, false]);
        assert_eq!(chosen(&table(Language::Go, hosts()), "a.test", "/"), Some((0, Some(0))));
    }

    #[test]
    fn the_first_route_that_matches_is_chosen_and_no_other_host_is_asked() {
        let hosts = vec![host(&["*"], &["/"]), host(&["a.test"], &["/a", "/a/b", "/b"])];
        let table = table(Language::Envoy, hosts);
        assert_eq!(chosen(&table, "a.test", "/a/b"), Some((1, Some(0))));
        assert_eq!(chosen(&table, "a.test", "/b?x"), Some((1, Some(2))));
        assert_eq!(chosen(&table, "a.test", "/c"), Some((1, None)));
        assert_eq!(chosen(&table, "c.test", "/c"), Some((0, Some(0))));
    }

    #[test]
    fn r18_only_envoy_uses_a_tree_of_matchers_and_the_others_have_no_routes() {
        let with_tree = || proto::VirtualHost { matcher: Some(Default::default()), ..host(&["*"], &["/"]) };
        assert_eq!(
            ALL.map(|one| table(one, vec![with_tree()]).hosts[0].tree.is_some()),
            [true, false, false, false]
        );
        assert_eq!(chosen(&table(Language::Go, vec![with_tree()]), "a", "/"), Some((0, None)));
    }

    #[test]
    fn a1_levels_of_the_route_configuration_count_for_proxies_alone() {
        assert!(Semantics::of(Client::newest(Language::Envoy)).has(Difference::ActsAsProxy));
        assert!(!Semantics::of(Client::newest(Language::CCore)).has(Difference::ActsAsProxy));
    }
}
