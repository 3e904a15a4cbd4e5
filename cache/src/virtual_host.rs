//! Which virtual host serves a host name (VHDS, rows A116 to A118).
//!
//! A virtual host resource is named `ROUTE/HOST`, and has the alias `ROUTE/DOMAIN` for each of its domains, in lower case and with
//! their wildcards as they are. So a host is found by looking for aliases, in the order in which Envoy prefers domains.

/// The aliases that a virtual host for this name could have, the best first: the host itself, `*.suffix` and `prefix.*` from the
/// longest to the shortest, `*`. The name is split at its last `/`, because the name of a route configuration may hold one.
pub(crate) fn domains(name: &str) -> impl Iterator<Item = String> {
    let (route, host) = name.rsplit_once('/').unwrap_or_default();
    let host = if host.len() <= MAX_HOST { host.to_lowercase() } else { String::new() };
    let route = route.to_owned();
    let is_host = !host.is_empty();
    // A wildcard stands for at least one character.
    let cuts: Vec<usize> = host.char_indices().map(|(at, _)| at).filter(|at| *at > 0).collect();
    let suffixes: Vec<String> = cuts.iter().map(|at| format!("{route}/*{}", &host[*at..])).collect();
    let prefixes: Vec<String> = cuts.iter().rev().map(|at| format!("{route}/{}*", &host[..*at])).collect();
    let exact = is_host.then(|| format!("{route}/{host}"));
    let all = is_host.then(|| format!("{route}/*"));
    exact.into_iter().chain(suffixes).chain(prefixes).chain(all)
}

/// No host name with a port is longer; what is longer is looked for by its very name only.
const MAX_HOST: usize = 261;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_come_from_the_most_to_the_least_special() {
        let found: Vec<String> = domains("my/route/A.io").collect();
        let expected = ["a.io", "*.io", "*io", "*o", "a.i*", "a.*", "a*", "*"];
        assert_eq!(found, expected.map(|domain| format!("my/route/{domain}")));
        for name in ["no-route", "route/", "", &format!("r/{}", "x".repeat(300))] {
            assert_eq!(domains(name).count(), 0, "{name}");
        }
    }
}
