//! Entity tags: what each one is made of, and how they are written in headers.
//!
//! A tag is a content hash and never holds a label (D4), so that equal content has equal tags on every replica and after every
//! restart. Only the history, which grows with every revision, is tagged by its revision.

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use xds_cache::layer::Resources;
use xds_cache::{NodeGroup, Resource, Revision, VersionHasher};
use xds_routes::{Documents, Placed};

use crate::document;
use crate::group;
use crate::handle::EntityTags;

/// The tag of a group's definition.
#[must_use]
pub fn of_group(definition: &NodeGroup) -> String {
    of_text(&group::to_json(definition).to_string())
}

/// The tag of what the API owns in a group.
#[must_use]
pub fn of_resources(resources: &Resources) -> String {
    let mut hasher = VersionHasher::new();
    for (key, resource) in resources {
        hasher.update(key.resource_type.type_url().as_bytes());
        hasher.update(key.name.as_bytes());
        hasher.update(resource.version().to_string().as_bytes());
    }
    hasher.finish().to_string()
}

/// The tag of one resource.
#[must_use]
pub fn of_resource(resource: &Resource) -> String {
    resource.version().to_string()
}

/// The tag of what a document says. What is shown besides, such as its conditions, is told by what follows a dot
/// ([`with_rest`]), which counts for reads and not for writes.
#[must_use]
pub fn of_document(placed: &Placed) -> String {
    document::content_hash(&placed.document, &placed.group)
}

/// The tag of what all documents say.
#[must_use]
pub fn of_documents(documents: &Documents) -> String {
    let mut hasher = VersionHasher::new();
    for (key, placed) in documents {
        hasher.update(key.to_string().as_bytes());
        hasher.update(of_document(placed).as_bytes());
    }
    hasher.finish().to_string()
}

/// A tag that differs also with what is shown besides the content.
#[must_use]
pub fn with_rest(content: &str, shown: &str) -> String {
    format!("{content}.{}", of_text(shown))
}

/// The part of a tag that says what the content is.
#[must_use]
pub fn content_part(tag: &str) -> &str {
    tag.split_once('.').map_or(tag, |(content, _)| content)
}

/// The tag of the history, and of everything that the API owns, at a revision.
#[must_use]
pub fn of_revision(revision: Revision) -> String {
    format!("r{revision}")
}

/// The tag of a rendered answer.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut hasher = VersionHasher::new();
    hasher.update(text.as_bytes());
    hasher.finish().to_string()
}

/// A tag as a header value.
#[must_use]
pub fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

/// Reads `If-Match`; `None` if it was not sent. Weak tags never match, as RFC 9110 asks of a strong comparison.
#[must_use]
pub fn if_match(headers: &HeaderMap) -> Option<EntityTags> {
    read(headers, &IF_MATCH, false)
}

/// Reads `If-None-Match`; `None` if it was not sent. `W/` is left out, as RFC 9110 asks of a weak comparison.
#[must_use]
pub fn if_none_match(headers: &HeaderMap) -> Option<EntityTags> {
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

/// Whether a character stands between two tags.
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
