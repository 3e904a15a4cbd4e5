//! The virtual host of a request (XV1–XV5).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::semantics::{Difference, Semantics};

/// How a domain took a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainKind {
    /// The host itself.
    Exact,
    /// `*.suffix`.
    Suffix,
    /// `prefix*`.
    Prefix,
    /// `*`.
    Any,
}

/// The domains of all virtual hosts of a RouteConfiguration.
#[derive(Debug)]
pub(crate) struct HostIndex {
    exact: HashMap<String, At>,
    /// By length, and by the text beside the star.
    suffixes: BTreeMap<usize, HashMap<String, At>>,
    prefixes: BTreeMap<usize, HashMap<String, At>>,
    any: Option<At>,
    folds: bool,
    star_may_be_empty: bool,
    /// The domain with a star inside, because of which no host is found (XV5).
    pub(crate) hidden_by: Option<String>,
}

/// A domain: the indices of the virtual host and of the domain in it.
pub(crate) type At = (usize, usize);

/// A domain that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadDomain {
    /// Another one is equal.
    Duplicate(String),
    /// It has a star inside.
    StarInside(String),
}

impl HostIndex {
    /// The first of equal domains counts.
    pub(crate) fn of<'d>(
        hosts: impl Iterator<Item = &'d [String]>,
        semantics: Semantics,
    ) -> (Self, Option<BadDomain>) {
        let folds = !semantics.has(Difference::CaseOfHostCounts);
        let mut index = Self {
            exact: HashMap::new(),
            suffixes: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            any: None,
            folds,
            star_may_be_empty: semantics.has(Difference::StarStandsForNothing),
            hidden_by: None,
        };
        let mut bad = None;
        for (host, domains) in hosts.enumerate() {
            for (at, domain) in domains.iter().enumerate() {
                let has_star_inside = index.add(domain, (host, at), semantics, &mut bad);
                if has_star_inside && semantics.has(Difference::StarInsideHidesAll) {
                    index.hidden_by.get_or_insert_with(|| domain.clone());
                }
            }
        }
        (index, bad)
    }

    /// Returns `true` for a domain with a star inside.
    fn add(&mut self, domain: &str, at: At, semantics: Semantics, bad: &mut Option<BadDomain>) -> bool {
        let key = if self.folds { domain.to_ascii_lowercase() } else { domain.to_owned() };
        let is_new = if key == "*" {
            let is_new = self.any.is_none();
            self.any.get_or_insert(at);
            is_new
        } else if let Some(suffix) = key.strip_prefix('*') {
            insert(self.suffixes.entry(suffix.len()).or_default(), suffix, at)
        } else if let Some(prefix) = key.strip_suffix('*') {
            insert(self.prefixes.entry(prefix.len()).or_default(), prefix, at)
        } else if key.contains('*') && !semantics.has(Difference::StarInsideIsExact) {
            if semantics.has(Difference::StarInsideIsRefused) {
                bad.get_or_insert_with(|| BadDomain::StarInside(domain.to_owned()));
            }
            return true;
        } else {
            insert(&mut self.exact, &key, at)
        };
        if !is_new && semantics.has(Difference::DuplicateDomainIsRefused) {
            bad.get_or_insert_with(|| BadDomain::Duplicate(domain.to_owned()));
        }
        false
    }

    /// The best domain, as far as any takes the host. Costs the number of different lengths.
    pub(crate) fn find(&self, host: &str) -> Option<(At, DomainKind)> {
        if self.hidden_by.is_some() {
            return None;
        }
        self.takers(host).next()
    }

    /// All domains that take the host, the best first.
    pub(crate) fn takers(&self, host: &str) -> impl Iterator<Item = (At, DomainKind)> {
        let host = if self.folds { host.to_ascii_lowercase() } else { host.to_owned() };
        let least = usize::from(!self.star_may_be_empty);
        let fits = |length: usize| length + least <= host.len();
        let mut takers = Vec::new();
        takers.extend(self.exact.get(&host).map(|at| (*at, DomainKind::Exact)));
        for (length, suffixes) in self.suffixes.iter().rev().filter(|(length, _)| fits(**length)) {
            let found = host.get(host.len() - length..).and_then(|suffix| suffixes.get(suffix));
            takers.extend(found.map(|at| (*at, DomainKind::Suffix)));
        }
        for (length, prefixes) in self.prefixes.iter().rev().filter(|(length, _)| fits(**length)) {
            let found = host.get(..*length).and_then(|prefix| prefixes.get(prefix));
            takers.extend(found.map(|at| (*at, DomainKind::Prefix)));
        }
        takers.extend(self.any.map(|at| (at, DomainKind::Any)));
        takers.into_iter()
    }
}

/// Returns `false` if the key was there.
fn insert(map: &mut HashMap<String, At>, key: &str, at: At) -> bool {
    let is_new = !map.contains_key(key);
    map.entry(key.to_owned()).or_insert(at);
    is_new
}

/// A host without its port: the text behind the last colon, unless that is inside brackets.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if host.rfind(']').is_none_or(|bracket| bracket < colon) => {
            host.get(..colon).unwrap_or(host)
        }
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Language};

    fn found(language: Language, domains: &[&str], host: &str) -> Option<usize> {
        let hosts: Vec<Vec<String>> = domains.iter().map(|domain| vec![(*domain).to_owned()]).collect();
        let semantics = Semantics::of(Client::newest(language));
        let (index, _) = HostIndex::of(hosts.iter().map(Vec::as_slice), semantics);
        index.find(host).map(|((host, _), _)| host)
    }

    const ALL: [Language; 4] = [Language::Envoy, Language::CCore, Language::Go, Language::Js];

    #[test]
    fn the_most_specific_domain_takes_the_host() {
        let domains = ["*", "a*", "ab*", "*.test", "*.a.test", "x.a.test"];
        for (host, expected) in
            [("x.a.test", 5), ("y.a.test", 4), ("ab.test", 3), ("abc", 2), ("ac", 1), ("c", 0), (".test", 0)]
        {
            assert_eq!(found(Language::Envoy, &domains, host), Some(expected), "{host}");
        }
        assert_eq!(found(Language::Envoy, &["a.test"], "b.test"), None);
    }

    #[test]
    fn v1_case_is_folded_or_not() {
        assert_eq!(ALL.map(|one| found(one, &["A.test"], "a.test").is_some()), [true, true, false, false]);
        assert_eq!(ALL.map(|one| found(one, &["a.test"], "A.test").is_some()), [true, true, false, false]);
    }

    #[test]
    fn v2_the_star_may_be_empty_or_not() {
        assert_eq!(ALL.map(|one| found(one, &["*.a"], ".a").is_some()), [false, false, true, true]);
        assert_eq!(ALL.map(|one| found(one, &["a*"], "a").is_some()), [false, false, true, true]);
    }

    #[test]
    fn v3_a_port_is_cut_off_outside_brackets() {
        for (host, expected) in [
            ("a:80", "a"),
            ("a", "a"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a:b:80", "a:b"),
            ("a:", "a"),
        ] {
            assert_eq!(without_port(host), expected);
        }
    }

    #[test]
    fn v4_the_first_of_equal_domains_counts() {
        assert_eq!(ALL.map(|one| found(one, &["a", "a"], "a")), [Some(0); 4]);
    }

    #[test]
    fn v5_a_star_inside_is_exact_refused_or_hides_all_hosts() {
        let of = |language, host| found(language, &["a.*.b", "c"], host);
        assert_eq!(ALL.map(|one| of(one, "a.x.b")), [None; 4]);
        assert_eq!(of(Language::Envoy, "a.*.b"), Some(0));
        assert_eq!(ALL.map(|one| of(one, "c").is_some()), [true, true, false, true]);
        let hosts = [vec!["a.*.b".to_owned()]];
        let is_refused = |language| {
            let semantics = Semantics::of(Client::newest(language));
            HostIndex::of(hosts.iter().map(Vec::as_slice), semantics).1.is_some()
        };
        assert_eq!(ALL.map(is_refused), [false, true, false, true]);
    }
}
