//! The words in which clients reject clusters and listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds_cache::Name;
use xds_cache::status::Named;

use super::rejections::words_of;

/// The resources of a list that a client names in its words. A list of one resource needs no words, and of the words of a gRPC client
/// the names and places count: it rejects these, and maybe others. A list that is not `is_exact` may be another than the client was sent.
pub(super) fn named_of_list(message: &Arc<str>, list: &[Name], is_exact: bool) -> Named {
    if let [only] = list
        && is_exact
    {
        return Named { resources: vec![(Arc::clone(only), Arc::clone(message))], is_all: true };
    }
    let named = named_in(message, |name| list.iter().any(|listed| **listed == *name));
    if !named.resources.is_empty() {
        return named;
    }
    let words = words_of(message);
    let mut named: Vec<&Name> = list.iter().filter(|name| words.contains(&***name)).take(MAX_NAMED).collect();
    if named.is_empty() && is_exact {
        named.extend(indexed(message, list));
    }
    let named = named.into_iter().map(|name| (Arc::clone(name), Arc::clone(message)));
    Named { resources: named.collect(), is_all: false }
}

/// The resources whose places in the list a gRPC client says: `resource index 2: …`. grpc-js says nothing else.
fn indexed<'a>(message: &str, list: &'a [Name]) -> impl Iterator<Item = &'a Name> {
    let places = message.split("resource index ").skip(1);
    let places = places.filter_map(|rest| rest.split_once(':')?.0.parse::<usize>().ok());
    let places: BTreeSet<usize> = places.take(MAX_NAMED).collect();
    places.into_iter().filter_map(|place| list.get(place))
}

/// The most resources that a gRPC client's words are about.
const MAX_NAMED: usize = 100;

/// The resources that an Envoy names in its words, of those that the response `has`.
///
/// It tries each of the clusters and of the listeners in a response, and says of each that it does not take why. The words about one may
/// contain what separates them from those about the next one, so only the name of a resource begins the next one.
pub(super) fn named_in(message: &str, has: impl Fn(&str) -> bool) -> Named {
    let found = FORMS.iter().find_map(|(beginning, end)| Some((message.strip_prefix(beginning)?, *end)));
    let Some((all, end)) = found else { return Named::default() };
    let mut resources: Vec<(&str, String)> = Vec::new();
    for part in all.split(end) {
        let named = part.split_once(": ").filter(|(name, _)| has(name));
        match (named, resources.last_mut()) {
            (Some((name, words)), _) => resources.push((name, words.to_owned())),
            (None, Some((_, words))) => words.extend([end, part]),
            // It begins with something else.
            (None, None) => return Named::default(),
        }
    }
    let resources = resources.into_iter().map(|(name, words)| (name.into(), Arc::from(words.trim_end())));
    Named { resources: resources.collect(), is_all: true }
}

/// How the words begin, and what is between those about a resource and the next one.
const FORMS: [(&str, &str); 2] =
    [("Error adding/updating cluster(s) ", ", "), ("Error adding/updating listener(s) ", "\n")];

#[cfg(test)]
mod tests {
    use super::*;

    fn named(message: &str) -> (Vec<(String, String)>, bool) {
        let named = named_in(message, |name| ["a", "b", "outbound|80||c.d"].contains(&name));
        let texts = named.resources.iter().map(|(name, words)| (name.to_string(), words.to_string()));
        (texts.collect(), named.is_all)
    }

    #[test]
    fn a_grpc_client_names_what_it_rejects_of_a_list() {
        let list = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect::<Vec<_>>();
        let found = |message: &str, names: &[&str]| {
            let named = named_of_list(&message.into(), &list(names), true);
            (named.resources.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>(), named.is_all)
        };
        let core = "xDS response validation errors: [resource index 0: g2: INVALID_ARGUMENT: no such type]";
        assert_eq!(found(core, &["g1", "g2", "g22"]), (vec!["g2".to_owned()], false));
        let js =
            "xDS response validation errors: [resource index 2: no such type; resource index 0: nor this]";
        assert_eq!(found(js, &["g1", "g2", "g22"]), (vec!["g1".to_owned(), "g22".to_owned()], false));
        assert_eq!(found("resource index 3: x, resource index y", &["g1", "g2"]), (vec![], false));
        assert_eq!(found("no such type", &["g2"]), (vec!["g2".to_owned()], true));
        let other = named_of_list(&"resource index 0: no such type".into(), &list(&["g2"]), false);
        assert_eq!(other, Named::default(), "the list may have been another");
        assert_eq!(found("no such type", &["g1", "g2"]), (vec![], false));
    }

    #[test]
    fn each_resource_is_found_with_the_words_about_it() {
        let all = |all: &[(&str, &str)]| {
            (all.iter().map(|(name, words)| ((*name).to_owned(), (*words).to_owned())).collect(), true)
        };
        let clusters = "Error adding/updating cluster(s) a: key, Cause: error:0b, outbound|80||c.d: malformed IP address: x";
        assert_eq!(
            named(clusters),
            all(&[("a", "key, Cause: error:0b"), ("outbound|80||c.d", "malformed IP address: x")])
        );
        let listeners = "Error adding/updating listener(s) a: cannot bind\nb: script: 1\nnear: 2\n";
        assert_eq!(named(listeners), all(&[("a", "cannot bind"), ("b", "script: 1\nnear: 2")]));
        for other in ["Error adding/updating cluster(s) e: of another response", "no such filter", ""] {
            assert_eq!(named(other), (vec![], false), "{other}");
        }
    }
}
