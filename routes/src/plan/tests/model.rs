//! Listeners, hosts and precedence at once, against a model that knows no virtual hosts: it looks for the listener that owns a
//! request, then for the best of all its routes.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::support::*;

const LISTENER_HOSTS: [&str; 5] = ["", "*.a.com", "b.a.com", "*.b.a.com", "c.com"];
const ROUTE_HOSTS: [&str; 7] = ["a.com", "*.com", "*.a.com", "b.a.com", "*.b.a.com", "x.b.a.com", "c.com"];
const REQUEST_HOSTS: [&str; 8] =
    ["a.com", "b.a.com", "x.b.a.com", "y.x.b.a.com", "z.a.com", "c.com", "d.com", "org"];
const MATCHES: [(&str, &str, &str); 6] = [
    ("S", "M", "rpc:S/M"),
    ("S", "", "rpc:S/"),
    ("Long", "", "rpc:Long/"),
    ("", "M", "rpc:/M"),
    ("", "N", "rpc:/N"),
    ("", "", "*"),
];
const CALLS: [(&str, &str); 5] = [("S", "M"), ("S", "N"), ("Long", "M"), ("Other", "N"), ("Other", "O")];

/// Indices into the tables above: the listeners to which a route is bound, its hosts, and one match for each rule.
#[derive(Clone, Debug)]
struct Sketch {
    /// `None` for every listener.
    section: Option<usize>,
    hosts: Vec<usize>,
    rules: Vec<usize>,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let section = prop::option::of(0..LISTENER_HOSTS.len());
    let hosts = prop::collection::vec(0..ROUTE_HOSTS.len(), 0..3);
    let rules = prop::collection::vec(0..MATCHES.len(), 1..4);
    (section, hosts, rules).prop_map(|(section, hosts, rules)| Sketch { section, hosts, rules })
}

/// Returns `true` if a host that may be a wildcard, or empty for every host, has a name.
fn has(host: &str, name: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(suffix) => name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => host.is_empty() || host == name,
    }
}

/// The criteria of the host: characters without wildcard, then all characters.
fn narrowness(host: &str) -> (usize, usize) {
    (if host.starts_with('*') { 0 } else { host.len() }, host.len())
}

/// The route that must take a call, as `name/rule/match`.
fn expected(listeners: &[usize], routes: &[Sketch], host: &str, service: &str, method: &str) -> String {
    let covering = listeners.iter().filter(|index| has(LISTENER_HOSTS[**index], host));
    let Some(owner) = covering.max_by_key(|index| narrowness(LISTENER_HOSTS[**index])) else {
        return String::new();
    };
    let mut best = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        if route.section.is_some_and(|section| section != *owner) {
            continue;
        }
        // Both cover the request's host, so the narrower of both is what they have in common.
        let own = LISTENER_HOSTS[*owner];
        let hosts: Vec<&str> = match route.hosts.is_empty() {
            true => vec![own],
            false => route.hosts.iter().map(|host| ROUTE_HOSTS[*host]).collect(),
        };
        for matching in hosts.into_iter().filter(|one| has(one, host)) {
            let common = narrowness(matching).max(narrowness(own));
            for (rule, (of_service, of_method, _)) in
                route.rules.iter().map(|rule| MATCHES[*rule]).enumerate()
            {
                let is_asked = |part: &str, value: &str| part.is_empty() || part == value;
                if is_asked(of_service, service) && is_asked(of_method, method) {
                    best.push((Reverse((common, of_service.len(), of_method.len())), index, rule));
                }
            }
        }
    }
    best.sort();
    best.first().map(|(_, index, rule)| format!("r{index}/{rule}/0")).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_request_goes_to_the_best_route_of_the_listener_that_owns_it(
        listeners in prop::sample::subsequence((0..LISTENER_HOSTS.len()).collect::<Vec<_>>(), 1..=LISTENER_HOSTS.len()),
        routes in prop::collection::vec(sketch(), 0..5),
    ) {
        let all = routes.iter().enumerate().map(|(index, sketch)| {
            let hosts: Vec<&str> = sketch.hosts.iter().map(|host| ROUTE_HOSTS[*host]).collect();
            let matches: Vec<&str> = sketch.rules.iter().map(|rule| MATCHES[*rule].2).collect();
            let section = sketch.section.map(|section| format!("#l{section}")).unwrap_or_default();
            let name = format!("default/r{index}");
            grpc(&name, &format!("default/edge{section}"), &hosts.join(" "), rules(&matches))
        });
        let edge = listeners.iter().map(|index| http(&format!("l{index}"), 80, LISTENER_HOSTS[*index]));
        let outcome = planned(&documents(all.chain([gateway("default/edge", edge.collect())])));
        for host in REQUEST_HOSTS {
            for (service, method) in CALLS {
                let answer = outcome.answer("default/edge/80", host, &format!("/{service}/{method}"), "");
                prop_assert_eq!(answer, expected(&listeners, &routes, host, service, method), "{} {}/{}", host, service, method);
            }
        }
    }
}
