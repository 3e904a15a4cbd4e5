//! The keys of the store.
//!
//! | key | value |
//! |---|---|
//! | `group/{group}` | the definition of a group that the API owns, as JSON |
//! | `label/{group}` | the label of its publication |
//! | `resource/{group}/{type}/{name}` | a resource that the API owns (see [`resource_record`](super::resource_record)) |
//! | `document/{kind}/{namespace}/{name}` | a route document that the API owns: its group and source as JSON |
//! | `weights/{kind}/{namespace}/{name}/{rule}` | the API's override of a rule's weights, as JSON |
//! | `rollout/{id}` | a rollout, as JSON |
//! | `file-group/{group}` | the definition of a group that a file defines, as JSON |
//! | `file/{group}/{type}/{name}` | a resource of a file, as under `resource/`; one with secrets as JSON without them |
//! | `file-document/{kind}/{namespace}/{name}` | a route document of a file, as under `document/`; one with secrets without them |
//! | `document-status/{kind}/{namespace}/{name}` | generation of a route document, and ages of its conditions ([`stored_statuses`](super::stored_statuses)) |
//! | `file-path/{path}` | the objects of a file with their lines, as JSON; only in a store that several servers share |
//! | `files/sets` | the hashes of the last 1,000 sets of files, the oldest first, as JSON; only in a store that several servers share |
//! | `request/{revision, 20 digits}/{name}` | the hash of what a request with a name asked for, and in which revision that was done; of the last ones ([`request`](super::request)) |
//! | `files/hash` | the content hash of everything in the files |
//! | `wave/current` | the wave deployment that is under way, as JSON (see [`wave`](super::wave)) |
//! | `wave/ended/{id}` | how a wave deployment ended, as JSON; of the last ones |
//! | `held/{key}` | the whole value of this key before the wave deployment changed it, also of a file |
//!
//! Each part is percent-encoded, so that `/` only separates. Records of files are for differences, and for the next start, which finds
//! the changes meanwhile by them ([`stored_files`](super::stored_files)). They are served only from a store that several servers share,
//! which has them whole, with their secrets ([`shared_files`](super::shared_files)).

use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

use xds_cache::{GroupName, ResourceKey, ResourceType};
use xds_routes::{DocumentKey, Kind};
use xds_store::{BlobHash, State};

use crate::model::document;
use crate::model::weights::{RuleKey, WeightedObject};

/// The key of the content hash of the files.
pub(crate) const FILES_HASH: &str = "files/hash";

/// The key of the sets that files were.
pub(crate) const FILE_SETS: &str = "files/sets";

/// A key of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoreKey {
    /// The definition of a group.
    Group(GroupName),
    /// The label of a group.
    Label(GroupName),
    /// A resource that the API owns.
    Resource(GroupName, ResourceKey),
    /// A document that the API owns.
    Document(DocumentKey),
    /// The API's override of a rule's weights.
    Weights(RuleKey),
    /// A rollout, by its id.
    Rollout(String),
    /// A group, as a file defined it.
    FileGroup(GroupName),
    /// A resource, as a file had it.
    File(GroupName, ResourceKey),
    /// A document, as a file had it.
    FileDocument(DocumentKey),
    /// A file, by its path, with the places of its objects.
    FilePath(Arc<str>),
    /// The remembered status of a document; no part of the history.
    DocumentStatus(DocumentKey),
    /// The content hash of the files.
    FilesHash,
    /// The hashes of the last sets of files.
    FileSets,
    /// A request that was done in a revision, by its name.
    Request(u64, String),
    /// The wave deployment that is under way.
    Wave,
    /// How a wave deployment ended, by its id.
    EndedWave(u64),
    /// The value of a thing before that wave deployment changed it.
    Previous(Box<Self>),
}

/// The owner of the value under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The API.
    Api,
    /// A file.
    File,
    /// The server, for itself.
    Server,
}

/// The subject of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'k> {
    /// The definition of a group.
    Group(&'k GroupName),
    /// The label of a group.
    Label(&'k GroupName),
    /// A resource.
    Resource(&'k GroupName, &'k ResourceKey),
    /// A document.
    Document(&'k DocumentKey),
    /// The override of a rule's weights.
    Weights(&'k RuleKey),
    /// A rollout, or a record of the server itself.
    Other,
}

/// The prefixes of keys for the contents of files.
pub(crate) const CONTENTS: [&str; 3] = ["file-group/", "file/", "file-document/"];

/// The prefix of keys for files and the places of their objects.
pub(crate) const PATHS: &str = "file-path/";

/// The key of the wave deployment.
pub(crate) const WAVE: &str = "wave/current";

/// The prefix of keys for previous values of things that a wave deployment changed.
pub(crate) const PREVIOUS: &str = "held/";

/// The prefix of keys for wave deployments that ended.
pub(crate) const ENDED: &str = "wave/ended/";

/// The prefix of keys for requests that were done.
pub(crate) const REQUESTS: &str = "request/";

/// The prefix of keys for remembered statuses of documents.
pub(crate) const STATUS: &str = "document-status/";

impl StoreKey {
    /// Reads what [`Display`](std::fmt::Display) wrote; `None` for a key of another program or a newer version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == FILES_HASH {
            return Some(Self::FilesHash);
        }
        if text == FILE_SETS {
            return Some(Self::FileSets);
        }
        if text == WAVE {
            return Some(Self::Wave);
        }
        if let Some(previous) = text.strip_prefix(PREVIOUS) {
            // A previous value has no previous value.
            let previous = Some(previous).filter(|previous| !previous.starts_with(PREVIOUS))?;
            return Self::parse(previous).map(|key| Self::Previous(Box::new(key)));
        }
        let parts: Vec<String> = text.split('/').map(decode).collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match *parts {
            ["group", group] => Some(Self::Group(GroupName::new(group).ok()?)),
            ["file-group", group] => Some(Self::FileGroup(GroupName::new(group).ok()?)),
            ["label", group] => Some(Self::Label(GroupName::new(group).ok()?)),
            ["resource", group, slug, name] => {
                Some(Self::Resource(GroupName::new(group).ok()?, resource_key(slug, name)))
            }
            ["file", group, slug, name] => {
                Some(Self::File(GroupName::new(group).ok()?, resource_key(slug, name)))
            }
            ["document", kind, namespace, name] => document_key(kind, namespace, name).map(Self::Document),
            ["file-document", kind, namespace, name] => {
                document_key(kind, namespace, name).map(Self::FileDocument)
            }
            ["file-path", path] => Some(Self::FilePath(path.into())),
            ["wave", "ended", id] => Some(Self::EndedWave(id.parse().ok()?)),
            ["request", revision, name] => Some(Self::Request(revision.parse().ok()?, name.to_owned())),
            ["rollout", id] => Some(Self::Rollout(id.to_owned())),
            ["document-status", kind, namespace, name] => {
                document_key(kind, namespace, name).map(Self::DocumentStatus)
            }
            ["weights", kind, namespace, name, rule] => {
                let object = WeightedObject::parse(kind, namespace, name).ok()?;
                Some(Self::Weights(RuleKey { object, rule: rule.into() }))
            }
            _ => None,
        }
    }

    /// The owner and the subject of the value under it.
    pub(crate) fn parts(&self) -> (Owner, Subject<'_>) {
        match self {
            Self::Group(group) => (Owner::Api, Subject::Group(group)),
            Self::Label(group) => (Owner::Api, Subject::Label(group)),
            Self::Resource(group, key) => (Owner::Api, Subject::Resource(group, key)),
            Self::Document(key) => (Owner::Api, Subject::Document(key)),
            Self::Weights(key) => (Owner::Api, Subject::Weights(key)),
            Self::Rollout(_) => (Owner::Api, Subject::Other),
            Self::FileGroup(group) => (Owner::File, Subject::Group(group)),
            Self::File(group, key) => (Owner::File, Subject::Resource(group, key)),
            Self::FileDocument(key) => (Owner::File, Subject::Document(key)),
            Self::DocumentStatus(_)
            | Self::FilePath(_)
            | Self::FilesHash
            | Self::FileSets
            | Self::Request(..)
            | Self::Wave
            | Self::EndedWave(_)
            | Self::Previous(_) => (Owner::Server, Subject::Other),
        }
    }

    /// The owner of the value under it.
    pub(crate) fn owner(&self) -> Owner {
        self.parts().0
    }

    /// The subject, without its owner.
    pub(crate) fn subject(&self) -> Subject<'_> {
        self.parts().1
    }

    /// The group of the API's record with this key.
    pub(crate) fn owned_group(&self) -> Option<&GroupName> {
        let (Owner::Api, subject) = self.parts() else { return None };
        match subject {
            Subject::Group(group) | Subject::Label(group) | Subject::Resource(group, _) => Some(group),
            Subject::Document(_) | Subject::Weights(_) | Subject::Other => None,
        }
    }

    /// Returns `true` if it is the record of a file.
    pub(crate) fn is_of_file(&self) -> bool {
        self.owner() == Owner::File
    }

    /// Returns `true` if it is a record of the server itself, which no user changed.
    pub(crate) fn is_internal(&self) -> bool {
        self.owner() == Owner::Server
    }

    /// The name of the object in answers and in the history: `group/{group}`, `{group}/{type}/{name}`,
    /// `document/{kind}/{namespace}/{name}`, `weights/{kind}/{namespace}/{name}/{rule}` or `rollout/{id}`.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Group(group) | Self::FileGroup(group) => format!("group/{group}"),
            Self::Label(group) => format!("label/{group}"),
            Self::Resource(group, key) | Self::File(group, key) => resource_name(group, key),
            Self::Document(key) | Self::FileDocument(key) | Self::DocumentStatus(key) => document::what(key),
            Self::Weights(key) => key.what(),
            Self::Rollout(id) => format!("rollout/{id}"),
            Self::FilePath(path) => format!("{PATHS}{path}"),
            Self::FilesHash => FILES_HASH.to_owned(),
            Self::FileSets => FILE_SETS.to_owned(),
            Self::Request(_, name) => format!("{REQUESTS}{name}"),
            Self::Wave => WAVE.to_owned(),
            Self::EndedWave(id) => format!("wave/ended/{id}"),
            Self::Previous(key) => format!("{PREVIOUS}{}", key.what()),
        }
    }
}

impl std::fmt::Display for StoreKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group/{}", encode(group.as_str())),
            Self::FileGroup(group) => write!(f, "file-group/{}", encode(group.as_str())),
            Self::Label(group) => write!(f, "label/{}", encode(group.as_str())),
            Self::Resource(group, key) => write!(f, "resource/{}", path(group, key)),
            Self::File(group, key) => write!(f, "file/{}", path(group, key)),
            Self::Document(key) => write!(f, "document/{}", document_path(key)),
            Self::FileDocument(key) => write!(f, "file-document/{}", document_path(key)),
            Self::DocumentStatus(key) => write!(f, "document-status/{}", document_path(key)),
            Self::Weights(RuleKey { object, rule }) => {
                let (namespace, name) = (encode(object.namespace()), encode(object.name()));
                write!(f, "weights/{}/{namespace}/{name}/{}", object.kind(), encode(rule))
            }
            Self::Rollout(id) => write!(f, "rollout/{}", encode(id)),
            Self::FilePath(path) => write!(f, "{PATHS}{}", encode(path)),
            Self::FilesHash => f.write_str(FILES_HASH),
            Self::FileSets => f.write_str(FILE_SETS),
            Self::Request(revision, name) => write!(f, "{REQUESTS}{revision:020}/{}", encode(name)),
            Self::Wave => f.write_str(WAVE),
            Self::EndedWave(id) => write!(f, "wave/ended/{id}"),
            Self::Previous(key) => write!(f, "{PREVIOUS}{key}"),
        }
    }
}

/// `{group}/{type slug}/{name}`, for people.
pub(crate) fn resource_name(group: &GroupName, key: &ResourceKey) -> String {
    format!("{group}/{}/{}", key.resource_type.slug(), key.name)
}

/// The keys of a state with this prefix, as texts and parsed; unknown ones are left out. The cost follows their number.
pub(crate) fn keys_below<'s>(
    state: &'s State,
    prefix: &'static str,
) -> impl Iterator<Item = (&'s Arc<str>, StoreKey)> {
    below(state, prefix).filter_map(|(text, _)| Some((text, StoreKey::parse(text)?)))
}

/// The entries of a state with this prefix. The cost follows their number.
pub(crate) fn below<'s>(
    state: &'s State,
    prefix: &str,
) -> impl Iterator<Item = (&'s Arc<str>, &'s BlobHash)> {
    let from = state.range::<_, str>((Bound::Included(prefix), Bound::Unbounded));
    from.take_while(move |(text, _)| text.starts_with(prefix))
}

/// The API's entries of a group.
pub(crate) fn of_group<'s>(state: &'s State, name: &GroupName) -> Vec<(&'s Arc<str>, &'s BlobHash)> {
    let alone = [StoreKey::Group(name.clone()), StoreKey::Label(name.clone())];
    let alone = alone.iter().filter_map(|key| state.get_key_value(&*key.to_string()));
    let resources = format!("resource/{}/", encode(name.as_str()));
    alone.chain(below(state, &resources)).collect()
}

fn resource_key(slug: &str, name: &str) -> ResourceKey {
    // A type URL without the usual prefix has no slug, but is a type.
    let resource_type = ResourceType::from_slug(slug).unwrap_or_else(|| ResourceType::from_type_url(slug));
    ResourceKey { resource_type, name: name.into() }
}

fn path(group: &GroupName, key: &ResourceKey) -> String {
    format!("{}/{}/{}", encode(group.as_str()), encode(key.resource_type.slug()), encode(&key.name))
}

fn document_path(key: &DocumentKey) -> String {
    format!("{}/{}/{}", key.kind, encode(document::namespace(key)), encode(&key.name))
}

/// `None` for a kind that this version does not know.
fn document_key(kind: &str, namespace: &str, name: &str) -> Option<DocumentKey> {
    Some(DocumentKey::new(Kind::of_name(kind)?, namespace, name))
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
        decoded.push(high << 4 | low);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_reads_back_what_it_writes(group in "[^\\p{Cc}]{1,20}", slug in 0..12_usize, name in ".{0,20}", kind in 0..17) {
            let group = GroupName::new(&group).unwrap();
            let resource_type = match ResourceType::KNOWN.get(slug) {
                Some(known) => known.clone(),
                None => ResourceType::from_type_url(["type.googleapis.com/a.B", "other/a b"][slug - 10]),
            };
            let key = ResourceKey { resource_type, name: name.into() };
            let document = DocumentKey::new(Kind::ALL[slug], group.as_str(), &key.name);
            let key = match kind {
                0 => StoreKey::Group(group),
                1 => StoreKey::Label(group),
                2 => StoreKey::Resource(group, key),
                3 => StoreKey::File(group, key),
                4 => StoreKey::FileGroup(group),
                5 => StoreKey::Document(document),
                6 => StoreKey::FileDocument(document),
                7 => StoreKey::DocumentStatus(document),
                8 => {
                    let object = WeightedObject::Routes(group, Arc::clone(&key.name));
                    StoreKey::Weights(RuleKey { object, rule: key.name })
                }
                9 => {
                    let document = DocumentKey::new(Kind::GrpcRoute, group.as_str(), &key.name);
                    StoreKey::Weights(RuleKey { object: WeightedObject::Document(document), rule: key.name })
                }
                10 => StoreKey::Wave,
                11 => StoreKey::Rollout(key.name.to_string()),
                12 => StoreKey::EndedWave(key.name.len() as u64),
                13 => StoreKey::FilePath(Arc::clone(&key.name)),
                14 => StoreKey::FileSets,
                15 => StoreKey::Request(key.name.len() as u64, key.name.to_string()),
                _ => StoreKey::FilesHash,
            };
            prop_assert_eq!(StoreKey::parse(&key.to_string()), Some(key.clone()));
            let previous = StoreKey::Previous(Box::new(key));
            prop_assert_eq!(StoreKey::parse(&previous.to_string()), Some(previous));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,60}") {
            let _ = StoreKey::parse(&text);
        }
    }

    #[test]
    fn foreign_keys_are_none() {
        for text in [
            "",
            "group",
            "group/",
            "group/a/b",
            "group/%",
            "group/%zz",
            "resource/a/b",
            "x/y",
            "group/%FF",
            "held/",
            "held/x",
            "held/held/files/hash",
        ] {
            assert_eq!(StoreKey::parse(text), None, "{text}");
        }
    }
}
