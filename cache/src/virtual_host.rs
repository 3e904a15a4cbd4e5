//! The virtual host that serves a host name (VHDS, rows A116 to A118).
//!
//! A virtual host resource is named `ROUTE/HOST`. For each of its domains it has an alias `ROUTE/DOMAIN`, in lower case, with
//! wildcards unchanged. So a host is found among the aliases, in the order in which Envoy prefers domains.

use std::sync::Arc;

use imbl::OrdMap;

use crate::resource_key::Name;

/// The fixed parts of domains with a wildcard, by route configuration: their lengths in bytes, and how many domains have them. A
/// host is looked for once for each length, however long it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Affixes {
    /// The texts that follow the wildcard of `*suffix`.
    suffixes: Lengths,
    /// The texts before the wildcard of `prefix*`.
    prefixes: Lengths,
}

type Lengths = OrdMap<Name, OrdMap<usize, usize>>;

impl Affixes {
    /// A virtual host has an alias, or has it no more. One that is no name of a virtual host does not count.
    pub(crate) fn count(&mut self, alias: &str, is_new: bool) {
        let Some((route, domain)) = alias.rsplit_once('/') else { return };
        let affixes =
            [(&mut self.suffixes, domain.strip_prefix('*')), (&mut self.prefixes, domain.strip_suffix('*'))];
        for (lengths, affix) in affixes {
            if let Some(affix) = affix.filter(|affix| !affix.is_empty()) {
                count(lengths, route, affix.len(), is_new);
            }
        }
    }
}

fn count(lengths: &mut Lengths, route: &str, length: usize, is_new: bool) {
    let mut of_route = lengths.get(route).cloned().unwrap_or_default();
    let n = of_route.get(&length).copied().unwrap_or_default();
    match if is_new { n + 1 } else { n.saturating_sub(1) } {
        0 => drop(of_route.remove(&length)),
        n => drop(of_route.insert(length, n)),
    }
    if of_route.is_empty() {
        lengths.remove(route);
    } else {
        lengths.insert(Arc::from(route), of_route);
    }
}

/// The virtual host that serves the host of this name: by the host itself, by the longest `*suffix`, by the longest `prefix*`, or by
/// `*`. The name is split at its last `/`, because the name of a route configuration may hold one. `affixes` are those of all
/// virtual hosts, `find` gives the one with an alias.
pub(crate) fn serving<T>(name: &str, affixes: &[&Affixes], find: impl Fn(&str) -> Option<T>) -> Option<T> {
    let (route, host) = name.rsplit_once('/')?;
    if host.is_empty() || host.len() > MAX_HOST {
        return None;
    }
    let host = host.to_lowercase();
    // A wildcard stands for at least one character.
    let lengths = |of: fn(&Affixes) -> &Lengths| {
        let known = affixes.iter().filter_map(|affixes| of(affixes).get(route));
        let mut lengths: Vec<usize> =
            known.flat_map(|lengths| lengths.range(..host.len()).map(|(n, _)| *n)).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths
    };
    let by_suffix = |length: usize| find(&format!("{route}/*{}", host.get(host.len() - length..)?));
    let by_prefix = |length: usize| find(&format!("{route}/{}*", host.get(..length)?));
    find(&format!("{route}/{host}"))
        .or_else(|| lengths(|affixes| &affixes.suffixes).into_iter().find_map(by_suffix))
        .or_else(|| lengths(|affixes| &affixes.prefixes).into_iter().find_map(by_prefix))
        .or_else(|| find(&format!("{route}/*")))
}

/// The name of the host without the port, in lower case; `None` if it has no port.
pub(crate) fn without_port(name: &str) -> Option<String> {
    let (route, host) = name.rsplit_once('/')?;
    let (host, port) = host.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && !host.is_empty()).then(|| format!("{route}/{}", host.to_lowercase()))
}

/// The longest host name with a port. A longer name is looked up only as it is.
const MAX_HOST: usize = 261;

#[cfg(test)]
mod tests {
    use super::*;

    /// The position of the alias that serves a name.
    fn find(aliases: &[String], name: &str) -> Option<usize> {
        let mut affixes = Affixes::default();
        aliases.iter().for_each(|alias| affixes.count(alias, true));
        serving(name, &[&affixes], |asked| aliases.iter().position(|alias| alias == asked))
    }

    #[test]
    fn domains_are_preferred_from_the_most_to_the_least_special() {
        let preferred = ["a.io", "*.io", "*io", "*o", "a.i*", "a.*", "a*", "*"];
        for first in 0..preferred.len() {
            let aliases: Vec<String> =
                preferred.iter().skip(first).map(|domain| format!("my/route/{domain}")).collect();
            assert_eq!(find(&aliases, "my/route/A.io"), Some(0));
        }
    }

    #[test]
    fn a_wildcard_stands_for_something_and_only_hosts_are_matched() {
        let aliases = ["r/*.io", "r/a*", "*", "s/*"].map(str::to_owned);
        assert_eq!(find(&aliases, "r/x.io"), Some(0));
        assert_eq!(find(&aliases, "s/\u{e9}"), Some(3));
        for name in ["r/.io", "r/a", "no-route", "s/", "", &format!("s/{}", "x".repeat(300))] {
            assert_eq!(find(&aliases, name), None, "{name}");
        }
    }

    #[test]
    fn a_port_is_what_follows_the_last_colon() {
        let plain = |name| without_port(name);
        assert_eq!(plain("a/80/B.io:8080").as_deref(), Some("a/80/b.io"));
        assert_eq!(plain("r/[::1]:80").as_deref(), Some("r/[::1]"));
        for name in ["r/b.io", "r/b.io:", "r/:80", "r/[::1]", "b.io:80", "r:80/b.io"] {
            assert_eq!(plain(name), None, "{name}");
        }
    }

    #[test]
    fn lengths_go_with_the_last_domain_that_has_them() {
        let mut affixes = Affixes::default();
        for (alias, is_new) in [("r/*.io", true), ("r/*.de", true), ("r/*.io", false)] {
            affixes.count(alias, is_new);
        }
        let find =
            |affixes: &Affixes| serving("r/x.de", &[affixes], |alias| (alias == "r/*.de").then_some(()));
        assert_eq!(find(&affixes), Some(()));
        affixes.count("r/*.de", false);
        assert!(affixes.suffixes.is_empty());
    }
}
