//! Records: the form of a resource in the store, which loses nothing.
//!
//! A line of JSON describes the resource, and its bytes follow as they are (row A221). Its references are stored too, so reading
//! a record needs no descriptors and cannot fail because they changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_cache::{Origin, Reference, Resource, ResourceDraft, ResourceKey, ResourceType};

/// The bytes are not a resource that this version can read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The first line is missing.
    #[error("the record has no first line")]
    NoHeader,
    /// The first line is something else.
    #[error("the first line of the record cannot be read")]
    Header(#[from] serde_json::Error),
    /// A later version wrote it.
    #[error("the record has format {format}; this version reads format {FORMAT}")]
    Format {
        /// The format of the record.
        format: u32,
    },
}

/// The format that is written.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    format: u32,
    #[serde(rename = "type")]
    type_url: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl: Option<Duration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    references: Vec<(String, String, String)>,
    in_wildcard: bool,
    /// The file that it is of, if that is to be remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// Writes a resource without its origin.
pub(crate) fn write(resource: &Resource) -> Bytes {
    write_of(resource, None)
}

/// Writes a resource along with the path of the file that it is of.
pub(crate) fn write_with_path(resource: &Resource) -> Bytes {
    match resource.origin() {
        Origin::File { path, .. } => write_of(resource, Some(path)),
        Origin::Api => write_of(resource, None),
    }
}

fn write_of(resource: &Resource, path: Option<&str>) -> Bytes {
    let header = Header {
        format: FORMAT,
        type_url: resource.resource_type().type_url().to_owned(),
        name: resource.name().to_string(),
        ttl: resource.ttl(),
        aliases: resource.aliases().iter().map(ToString::to_string).collect(),
        references: resource
            .references()
            .into_iter()
            .map(|Reference { to, path }| {
                (to.resource_type.type_url().to_owned(), to.name.to_string(), path.to_string())
            })
            .collect(),
        in_wildcard: resource.in_wildcard(),
        path: path.map(str::to_owned),
    };
    // Strings and numbers always have a JSON form.
    let mut record = serde_json::to_vec(&header).unwrap_or_default();
    record.push(b'\n');
    record.extend_from_slice(&resource.value());
    record.into()
}

/// Reads what [`write()`] or [`write_with_path`] wrote.
///
/// # Errors
///
/// [`RecordError`] for anything else.
pub(crate) fn read(record: &Bytes) -> Result<Resource, RecordError> {
    let end = record.iter().position(|byte| *byte == b'\n').ok_or(RecordError::NoHeader)?;
    let header: Header = serde_json::from_slice(&record[..end])?;
    if header.format != FORMAT {
        return Err(RecordError::Format { format: header.format });
    }
    let key = |type_url: &str, name: &str| {
        Arc::new(ResourceKey { resource_type: ResourceType::from_type_url(type_url), name: name.into() })
    };
    Ok(Resource::new(ResourceDraft {
        key: key(&header.type_url, &header.name),
        value: record.slice(end + 1..).into(),
        ttl: header.ttl,
        aliases: header.aliases.iter().map(|alias| Arc::from(alias.as_str())).collect(),
        references: header
            .references
            .iter()
            .map(|(type_url, name, path)| Reference { to: key(type_url, name), path: path.as_str().into() })
            .collect(),
        origin: match header.path {
            Some(path) => Origin::File { path: path.into(), line: 0, column: 0 },
            None => Origin::Api,
        },
        in_wildcard: header.in_wildcard,
        host_pattern: false,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_resource_reads_back_whole(
            name in ".{0,20}",
            value in prop::collection::vec(any::<u8>(), 0..60),
            ttl in prop::option::of(any::<Duration>()),
            aliases in prop::collection::vec(".{0,5}", 0..3),
            references in prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
            in_wildcard in any::<bool>(),
        ) {
            let key = |name: &str| Arc::new(ResourceKey { resource_type: ResourceType::Cluster, name: name.into() });
            let written = Resource::new(ResourceDraft {
                key: key(&name),
                value: value.into(),
                ttl,
                aliases: aliases.iter().map(|alias| Arc::from(alias.as_str())).collect(),
                references: references.iter()
                    .map(|(to, path)| Reference { to: key(to), path: path.as_str().into() })
                    .collect(),
                origin: Origin::Api,
                in_wildcard,
                host_pattern: false,
            });
            let read = read(&write(&written)).unwrap();
            prop_assert_eq!(&read, &written);
            prop_assert_eq!(format!("{:?}", read.to_draft()), format!("{:?}", written.to_draft()));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes.into());
        }
    }

    #[test]
    fn a_record_of_a_later_version_is_refused() {
        let record = br#"{"format":2,"type":"a","name":"b","inWildcard":true}
"#;
        assert!(matches!(read(&Bytes::from_static(record)), Err(RecordError::Format { format: 2 })));
    }
}
