//! Which virtual host serves a host name (VHDS, rows A116 to A118).
//!
//! A virtual host resource is named `ROUTE/HOST`, and has the alias `ROUTE/DOMAIN` for each of its domains, in lower case and with
//! their wildcards as they are. So a host is found among aliases, in the order in which Envoy prefers domains.

use std::collections::{BTreeSet, HashMap};

/// The domains of virtual hosts, by route configuration; each leads to the position of its virtual host.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    routes: HashMap<Box<str>, Route>,
}

/// The domains of one route configuration.
#[derive(Debug, Default)]
struct Route {
    exact: HashMap<Box<str>, usize>,
    /// What follows the wildcard of `*suffix`.
    suffixes: Affixes,
    /// What stands before the wildcard of `prefix*`.
    prefixes: Affixes,
    /// `*`.
    any: Option<usize>,
}

/// The fixed parts of domains with a wildcard.
#[derive(Debug, Default)]
struct Affixes {
    by_text: HashMap<Box<str>, usize>,
    /// Their lengths in bytes: a host is looked for once for each, however long it is.
    lengths: BTreeSet<usize>,
}

impl Domains {
    /// Adds an alias; one that is no name of a virtual host is left out.
    pub(crate) fn insert(&mut self, alias: &str, position: usize) {
        let Some((route, domain)) = alias.rsplit_once('/') else { return };
        let route = self.routes.entry(route.into()).or_default();
        if domain == "*" {
            route.any = Some(position);
        }
        if let Some(suffix) = domain.strip_prefix('*') {
            route.suffixes.insert(suffix, position);
        }
        if let Some(prefix) = domain.strip_suffix('*') {
            route.prefixes.insert(prefix, position);
        }
        route.exact.insert(domain.into(), position);
    }

    /// The position of the virtual host that serves the host of this name: by the host itself, by the longest `*suffix`, by the
    /// longest `prefix*`, or by `*`. The name is split at its last `/`, because the name of a route configuration may hold one.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        let (route, host) = name.rsplit_once('/')?;
        let route = self.routes.get(route)?;
        if host.is_empty() || host.len() > MAX_HOST {
            return None;
        }
        let host = host.to_lowercase();
        let exact = route.exact.get(&*host).copied();
        // A wildcard stands for at least one character.
        exact
            .or_else(|| route.suffixes.find(host.len(), |length| host.get(host.len() - length..)))
            .or_else(|| route.prefixes.find(host.len(), |length| host.get(..length)))
            .or(route.any)
    }
}

impl Affixes {
    fn insert(&mut self, text: &str, position: usize) {
        if !text.is_empty() {
            self.by_text.insert(text.into(), position);
            self.lengths.insert(text.len());
        }
    }

    /// The longest that is `part` of a host of `host_len` bytes, given its length.
    fn find<'a>(&self, host_len: usize, part: impl Fn(usize) -> Option<&'a str>) -> Option<usize> {
        let lengths = self.lengths.range(..host_len).rev();
        lengths.filter_map(|length| part(*length)).find_map(|part| self.by_text.get(part).copied())
    }
}

/// No host name with a port is longer; what is longer is looked for by its very name only.
const MAX_HOST: usize = 261;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_preferred_from_the_most_to_the_least_special() {
        let preferred = ["a.io", "*.io", "*io", "*o", "a.i*", "a.*", "a*", "*"];
        for first in 0..preferred.len() {
            let mut domains = Domains::default();
            for (position, domain) in preferred.iter().enumerate().skip(first) {
                domains.insert(&format!("my/route/{domain}"), position);
            }
            assert_eq!(domains.find("my/route/A.io"), Some(first));
        }
    }

    #[test]
    fn a_wildcard_stands_for_something_and_only_hosts_are_matched() {
        let mut domains = Domains::default();
        for (position, alias) in ["r/*.io", "r/a*", "*", "s/*"].iter().enumerate() {
            domains.insert(alias, position);
        }
        assert_eq!(domains.find("r/x.io"), Some(0));
        assert_eq!(domains.find("s/\u{e9}"), Some(3));
        for name in ["r/.io", "r/a", "no-route", "s/", "", &format!("s/{}", "x".repeat(300))] {
            assert_eq!(domains.find(name), None, "{name}");
        }
    }
}
