//! The hosts that a listener and a route have in common.
//!
//! Two host names are nested or have nothing in common, because a wildcard stands for one or more labels, never for none. So the common host of
//! a listener and a route is always the more specific of both.

use super::Host;
use crate::model::Hostname;

/// The host of a listener: every host if it names none.
pub(crate) fn host_of(hostname: Option<&Hostname>) -> Host {
    hostname.map_or(Host::Any, |name| Host::Name(name.clone()))
}

/// The common hosts of a listener and a route, sorted and each host once.
///
/// A route without host names has those of the listener. Its names outside the listener's are ignored. The result is empty if they have
/// no host in common.
pub(crate) fn intersection(listener: &Host, route: &[Hostname]) -> Vec<Host> {
    if route.is_empty() {
        return vec![listener.clone()];
    }
    let common = |name: &Hostname| {
        let host = Host::Name(name.clone());
        if covers(listener, &host) {
            return Some(host);
        }
        covers(&host, listener).then(|| listener.clone())
    };
    let mut hosts: Vec<Host> = route.iter().filter_map(common).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Returns `true` if `outer` includes every name of `inner`.
pub(crate) fn covers(outer: &Host, inner: &Host) -> bool {
    let (outer, inner) = match (outer, inner) {
        (Host::Any, _) => return true,
        (Host::Name(_), Host::Any) => return false,
        (Host::Name(outer), Host::Name(inner)) => (outer, inner),
    };
    let Some(suffix) = outer.wildcard_suffix() else { return outer == inner };
    match inner.wildcard_suffix() {
        Some(inner) => inner == suffix || is_below(inner, suffix),
        None => is_below(inner.as_str(), suffix),
    }
}

/// The host and all hosts that cover it, as texts, from the most specific to `*`.
pub(crate) fn rungs(host: &Host) -> Vec<String> {
    let mut rungs = vec![host.to_string()];
    if let Host::Name(name) = host {
        let mut rest = name.wildcard_suffix().unwrap_or(name.as_str());
        while let Some((_, suffix)) = rest.split_once('.') {
            rungs.push(format!("*.{suffix}"));
            rest = suffix;
        }
        rungs.push(Host::Any.to_string());
    }
    rungs
}

/// Returns `true` if some name belongs to both.
pub(crate) fn overlaps(one: &Host, other: &Host) -> bool {
    covers(one, other) || covers(other, one)
}

/// How specific a host is. Only compares hosts of which one covers the other.
pub(crate) fn specificity(host: &Host) -> (bool, usize) {
    match host {
        Host::Any => (false, 0),
        Host::Name(name) => (name.wildcard_suffix().is_none(), name.as_str().len()),
    }
}

/// Returns `true` if `name` ends with `suffix`, and has at least one more label.
fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        if text == "*" { Host::Any } else { Host::Name(Hostname::new(text).unwrap()) }
    }

    #[test]
    fn the_intersection_is_the_more_specific_of_both() {
        // The examples of the API, then those of its conformance tests.
        let table = [
            ("*", "", "*"),
            ("*", "a.com *.b.com", "*.b.com a.com"),
            ("test.example.com", "", "test.example.com"),
            ("test.example.com", "test.example.com", "test.example.com"),
            ("test.example.com", "*.example.com", "test.example.com"),
            ("*.example.com", "", "*.example.com"),
            ("*.example.com", "test.example.com test.example.net", "test.example.com"),
            ("*.example.com", "*.example.com foo.test.example.com", "*.example.com foo.test.example.com"),
            ("*.example.com", "example.com", ""),
            ("*.example.com", "test.example.net", ""),
            ("*.wildcard.io", "foo.bar.wildcard.io", "foo.bar.wildcard.io"),
            ("*.foo.example.com", "*.example.com", "*.foo.example.com"),
            ("*.foo.example.com", "*.example.com *.foo.example.com", "*.foo.example.com"),
            (
                "very.specific.com",
                "non.matching.com *.nonmatchingwildcard.io very.specific.com",
                "very.specific.com",
            ),
            ("very.specific.com", "*.specific.com", "very.specific.com"),
            ("very.specific.com", "specific.but.wrong.com wildcard.io", ""),
            ("*.wildcard.io", "specific.but.wrong.com wildcard.io", ""),
            ("*.example.com", "*.com", "*.example.com"),
            ("*.example.com", "notexample.com a.notexample.com", ""),
            ("a.com", "b.com *.b.com", ""),
        ];
        for (listener, route, expected) in table {
            let route: Vec<Hostname> =
                route.split_whitespace().map(|name| Hostname::new(name).unwrap()).collect();
            let hosts = intersection(&host(listener), &route);
            let hosts: Vec<&str> = hosts.iter().map(Host::as_str).collect();
            assert_eq!(hosts.join(" "), expected, "{listener} and {route:?}");
        }
    }

    #[test]
    fn a_wildcard_covers_one_or_more_labels_and_never_none() {
        let table = [
            ("*", "a.com", true),
            ("*", "*", true),
            ("a.com", "*", false),
            ("*.example.com", "test.example.com", true),
            ("*.example.com", "foo.test.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "*.test.example.com", true),
            ("*.test.example.com", "*.example.com", false),
            ("*.example.com", "badexample.com", false),
            ("*.example.com", "*.badexample.com", false),
            ("a.com", "a.com", true),
            ("a.com", "b.a.com", false),
            ("test.example.com", "*.example.com", false),
        ];
        for (outer, inner, expected) in table {
            assert_eq!(covers(&host(outer), &host(inner)), expected, "{outer} over {inner}");
            assert_eq!(rungs(&host(inner)).contains(&outer.to_owned()), expected, "{outer} over {inner}");
        }
    }
}
