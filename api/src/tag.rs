//! Entity tags as headers write them. [`xds_control::model::tag`] says what each is made of.

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use xds_control::model::EntityTags;
pub(crate) use xds_control::model::tag::{
    of_document, of_documents, of_group, of_resource, of_resources, of_revision, of_text, with_rest,
};

/// A tag as a header value.
#[must_use]
pub(crate) fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

/// Reads `If-Match`; `None` if it was not sent. Weak tags never match, as RFC 9110 asks of a strong comparison.
#[must_use]
pub(crate) fn if_match(headers: &HeaderMap) -> Option<EntityTags> {
    read(headers, &IF_MATCH, false)
}

/// Reads `If-None-Match`; `None` if it was not sent. `W/` is left out, as RFC 9110 asks of a weak comparison.
#[must_use]
pub(crate) fn if_none_match(headers: &HeaderMap) -> Option<EntityTags> {
    read(headers, &IF_NONE_MATCH, true)
}

fn read(headers: &HeaderMap, name: &HeaderName, takes_weak: bool) -> Option<EntityTags> {
    if !headers.contains_key(name) {
        return None;
    }
    let mut tags = Vec::new();
    for line in headers.get_all(name) {
        let Ok(line) = line.to_str() else { continue };
        if line.trim() == "*" {
            return Some(EntityTags::Any);
        }
        read_line(line, takes_weak, &mut tags);
    }
    Some(EntityTags::OneOf(tags))
}

/// Reads `"a", W/"b", c`; within quotes a comma is part of a tag. Without them a tag is as `etag` in a body shows it. A part that is
/// no tag is left out, so that it matches nothing.
fn read_line(line: &str, takes_weak: bool, tags: &mut Vec<String>) {
    let mut rest = line.trim_start_matches(is_between);
    while !rest.is_empty() {
        let (is_weak, tag) = rest.strip_prefix("W/").map_or((false, rest), |tag| (true, tag));
        let (tag, after) = match tag.strip_prefix('"') {
            Some(quoted) => match quoted.split_once('"') {
                Some(found) => found,
                None => return,
            },
            None => tag.split_once(',').unwrap_or((tag, "")),
        };
        let tag = tag.trim();
        if (!is_weak || takes_weak) && !tag.is_empty() && !tag.contains('"') {
            tags.push(tag.to_owned());
        }
        rest = after.trim_start_matches(is_between);
    }
}

/// Returns `true` if a character stands between two tags.
fn is_between(character: char) -> bool {
    character == ',' || character.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_rfc_9110_writes_them_and_as_bodies_show_them() {
        let one_of = |tags: &[&str]| Some(EntityTags::OneOf(tags.iter().map(|&t| t.to_owned()).collect()));
        let table: [(&[&str], _, _); 12] = [
            (&["*"], Some(EntityTags::Any), Some(EntityTags::Any)),
            (&["\"a\""], one_of(&["a"]), one_of(&["a"])),
            (&["\"a\", \"b,c\""], one_of(&["a", "b,c"]), one_of(&["a", "b,c"])),
            (&["\"a\"", "\"b\""], one_of(&["a", "b"]), one_of(&["a", "b"])),
            (&["W/\"a\", \"b\""], one_of(&["b"]), one_of(&["a", "b"])),
            (&["a"], one_of(&["a"]), one_of(&["a"])),
            (
                &["0123abcd.4567", "b , \"c\",d"],
                one_of(&["0123abcd.4567", "b", "c", "d"]),
                one_of(&["0123abcd.4567", "b", "c", "d"]),
            ),
            (&["W/a, b"], one_of(&["b"]), one_of(&["a", "b"])),
            (&[" , ,"], one_of(&[]), one_of(&[])),
            (&["a\"b"], one_of(&[]), one_of(&[])),
            (&["\"a"], one_of(&[]), one_of(&[])),
            (&[], None, None),
        ];
        for (lines, strong, weak) in table {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(IF_MATCH, line.parse().unwrap());
                headers.append(IF_NONE_MATCH, line.parse().unwrap());
            }
            assert_eq!(if_match(&headers), strong, "{lines:?}");
            assert_eq!(if_none_match(&headers), weak, "{lines:?}");
        }
    }

    #[test]
    fn nothing_matches_what_does_not_exist() {
        assert!(!EntityTags::Any.matches(None));
        assert!(EntityTags::Any.matches(Some("a")));
        assert!(!EntityTags::OneOf(vec!["a".to_owned()]).matches(Some("b")));
    }
}
