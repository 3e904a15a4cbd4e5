//! The matches of an HTTPRouteGroup as matches of routes.

use crate::model::{GroupMatch, HeaderMatch, HeaderValue, HttpRouteGroup, Match, PathMatch};

/// The matches of a group. An empty group matches nothing.
pub(super) fn of_group(group: &HttpRouteGroup, matches_whole_paths: bool) -> Vec<Match> {
    group.matches.iter().map(|one| of_match(one, matches_whole_paths)).collect()
}

fn of_match(one: &GroupMatch, matches_whole_paths: bool) -> Match {
    let path = match &one.path_regex {
        None => PathMatch::Any,
        Some(regex) if matches_whole_paths => whole_path(regex),
        Some(regex) => beginning_of_path(regex),
    };
    let headers = one.headers.iter().cloned().chain(method_header(one)).collect();
    Match { headers, ..Match::of_path(&one.spot, path) }
}

/// Methods as a header match, because a match of a route can have only one method.
fn method_header(one: &GroupMatch) -> Option<HeaderMatch> {
    let value = match one.methods.as_slice() {
        [] => return None,
        [method] => HeaderValue::Exact(method.clone()),
        methods => {
            let methods: Vec<String> = methods.iter().map(|method| regex::escape(method)).collect();
            HeaderValue::Regex(methods.join("|"))
        }
    };
    Some(HeaderMatch { spot: one.spot.clone(), name: ":method".to_owned(), value })
}

fn whole_path(regex: &str) -> PathMatch {
    match regex {
        ".*" | "/.*" => PathMatch::Any,
        regex => PathMatch::Regex(regex.to_owned()),
    }
}

/// SMI anchors expressions only at the beginning of the path, but xDS clients match the whole path. So the rest of the path is allowed
/// after the expression. An expression that ends in `$` is kept as it is, unless it has alternatives: then `$` may belong only to the last
/// one, and still works within the group.
fn beginning_of_path(regex: &str) -> PathMatch {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let (body, is_anchored) = match regex.strip_suffix('$') {
        Some(body) if !ends_with_escape(body) => (body, true),
        Some(_) | None => (regex, false),
    };
    match (body, is_anchored) {
        ("" | "/", false) | (".*" | "/.*", _) => PathMatch::Any,
        (_, true) if !regex.contains('|') => PathMatch::Regex(regex.to_owned()),
        (_, _) => PathMatch::Regex(format!("(?:{regex}).*")),
    }
}

/// Returns `true` if the last character of the text escapes the next one.
fn ends_with_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_anchored_at_the_beginning_only() {
        let table = [
            ("/metrics", "(?:/metrics).*"),
            ("^/metrics", "(?:/metrics).*"),
            ("/metrics$", "/metrics$"),
            (r"/metrics\$", r"(?:/metrics\$).*"),
            (r"/metrics\\$", r"/metrics\\$"),
            ("/a|/b$", "(?:/a|/b$).*"),
            ("/api/.*", "(?:/api/.*).*"),
            ("$", "$"),
        ];
        for (written, expected) in table {
            assert_eq!(beginning_of_path(written), PathMatch::Regex(expected.to_owned()), "{written}");
            let PathMatch::Regex(regex) = beginning_of_path(written) else { continue };
            assert!(regex::Regex::new(&regex).is_ok(), "{regex}");
        }
        for everything in ["", "^", "/", "^/", ".*", "^.*", ".*$", "/.*", "^/.*$"] {
            assert_eq!(beginning_of_path(everything), PathMatch::Any, "{everything}");
        }
    }

    #[test]
    fn a_whole_path_is_left_as_it_is() {
        assert_eq!(whole_path("/metrics"), PathMatch::Regex("/metrics".to_owned()));
        assert_eq!(whole_path(".*"), PathMatch::Any);
    }

    /// The translated expression takes as a whole the texts that the written one takes from the beginning on.
    #[test]
    fn translation_keeps_the_meaning() {
        let paths = ["/", "/a", "/ab", "/a/b", "/b", "/bc", "/metrics", "/x/metrics"];
        for written in ["/a", "^/a$", "/a|/b$", "/a$|/b", ".*b$", "/(a|m)", ""] {
            let expected = regex::Regex::new(&format!("^(?:{written})")).unwrap();
            for path in paths {
                let translated = beginning_of_path(written);
                let is_taken = if let PathMatch::Regex(regex) = &translated {
                    regex::Regex::new(&format!("^(?:{regex})$")).unwrap().is_match(path)
                } else {
                    translated == PathMatch::Any
                };
                assert_eq!(is_taken, expected.is_match(path), "{written} on {path}");
            }
        }
    }
}
