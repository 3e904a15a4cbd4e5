//! The hosts that domains tell apart (XV1–XV5).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::semantics::{Difference, Semantics};

/// A host for each class of hosts that these domains tell apart, and what was not looked at.
///
/// All hosts that no domain takes exactly, with the same longest suffix and the same longest prefix, are one class.
pub(crate) fn witnesses<'d>(
    domains: impl Iterator<Item = &'d str>,
    semantics: Semantics,
) -> (Vec<String>, Option<String>) {
    let folds = !semantics.has(Difference::CaseOfHostCounts);
    let mut known = Known::default();
    for domain in domains {
        let key = if folds { domain.to_ascii_lowercase() } else { domain.to_owned() };
        if let Some(suffix) = key.strip_prefix('*') {
            known.suffixes.entry(suffix.len()).or_default().insert(suffix.to_owned());
        } else if let Some(prefix) = key.strip_suffix('*') {
            known.prefixes.entry(prefix.len()).or_default().insert(prefix.to_owned());
        } else {
            known.exact.insert(key);
        }
    }
    known.star_may_be_empty = semantics.has(Difference::StarStandsForNothing);
    let all = |sets: &BTreeMap<usize, HashSet<String>>| -> BTreeSet<String> {
        sets.values().flatten().cloned().chain([String::new()]).collect()
    };
    let (suffixes, prefixes) = (all(&known.suffixes), all(&known.prefixes));
    let mut hosts: Vec<String> = known.exact.iter().cloned().collect();
    hosts.sort_unstable();
    if suffixes.len() * prefixes.len() > MAX_CLASSES {
        return (hosts, Some(format!("hosts that more than {MAX_CLASSES} combinations of wildcards take")));
    }
    let mut missing = None;
    for suffix in &suffixes {
        for prefix in &prefixes {
            match known.witness(prefix, suffix) {
                Some(host) => hosts.push(host),
                None => missing = Some(format!("hosts that {prefix}* and *{suffix} take")),
            }
        }
    }
    (hosts, missing)
}

/// Domains in the form in which hosts are looked up.
#[derive(Debug, Default)]
struct Known {
    exact: BTreeSet<String>,
    /// By length.
    suffixes: BTreeMap<usize, HashSet<String>>,
    prefixes: BTreeMap<usize, HashSet<String>>,
    star_may_be_empty: bool,
}

impl Known {
    /// A host that no domain takes exactly, and of which these are the longest prefix and suffix.
    fn witness(&self, prefix: &str, suffix: &str) -> Option<String> {
        let letters = ('a'..='z').chain('0'..='9').map(String::from);
        let fillers = ["any", "other"].into_iter().map(str::to_owned).chain(letters);
        let doubled = ('a'..='z').map(|letter| format!("{letter}-{letter}"));
        let mut hosts = fillers.chain(doubled).map(|filler| format!("{prefix}{filler}{suffix}"));
        hosts.find(|host| {
            !self.exact.contains(host)
                && self.longest_suffix(host) == suffix
                && self.longest_prefix(host) == prefix
        })
    }

    fn longest_suffix<'h>(&self, host: &'h str) -> &'h str {
        let mut found = self.fitting(&self.suffixes, host).filter_map(|(length, known)| {
            host.get(host.len() - length..).filter(|suffix| known.contains(*suffix))
        });
        found.next().unwrap_or_default()
    }

    fn longest_prefix<'h>(&self, host: &'h str) -> &'h str {
        let mut found = self
            .fitting(&self.prefixes, host)
            .filter_map(|(length, known)| host.get(..*length).filter(|prefix| known.contains(*prefix)));
        found.next().unwrap_or_default()
    }

    fn fitting<'k>(
        &self,
        sets: &'k BTreeMap<usize, HashSet<String>>,
        host: &str,
    ) -> impl Iterator<Item = (&'k usize, &'k HashSet<String>)> {
        let least = usize::from(!self.star_may_be_empty);
        let n = host.len();
        sets.iter().rev().filter(move |(length, _)| **length + least <= n)
    }
}

/// Combinations of a suffix and a prefix.
const MAX_CLASSES: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Language};

    #[test]
    fn every_class_of_hosts_has_a_host_in_it() {
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let domains = ["a.test", "*.test", "*.any.test", "a*", "*"];
        let (hosts, missing) = witnesses(domains.into_iter(), semantics);
        assert_eq!(missing, None);
        assert_eq!(hosts.len(), 1 + 3 * 2);
        for host in ["a.test", "other", "aany", "other.any.test", "aany.any.test", "other.test", "aany.test"]
        {
            assert!(hosts.iter().any(|own| own == host), "{host} in {hosts:?}");
        }
    }
}
