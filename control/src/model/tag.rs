//! Entity tags, and the contents that each one is made of.
//!
//! A tag is a content hash and never holds a label (D4), so that equal content has equal tags on every replica and after every
//! restart. Only the history, which grows with every revision, is tagged by its revision.

use xds_cache::layer::Resources;
use xds_cache::{NodeGroup, Resource, Revision, VersionHasher};
use xds_routes::{Documents, Placed};

use super::{document, group};

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

/// The tag of a document's content. Other parts of an answer, such as conditions, add a suffix behind a dot ([`with_rest`]), which
/// counts for reads and not for writes.
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
