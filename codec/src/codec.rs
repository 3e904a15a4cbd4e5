//! The codec: one value with all message types, shared by all code that reads or writes resources.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost_reflect::DescriptorPool;
use serde_json::Value as Json;
use xds_cache::wire::Fields;
use xds_cache::{Resource, ResourceType};

use crate::convert::{Converter, UnknownFields};
use crate::descriptors::{self, CodecError};
use crate::diagnostic::Diagnostic;
use crate::document::Tree;
use crate::encode;
use crate::facts::FactsTable;
use crate::inner::{Inner, PgvLevel};
use crate::json::{REDACTED, Secrets, opaque, to_json};
use crate::message::Message;
use crate::secrets::{self, SECRET_TYPE};

/// Reads and writes resources. Cheap to clone.
#[derive(Clone)]
pub struct Codec {
    pub(crate) inner: Arc<Inner>,
}

/// A message cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// No descriptor set has the type.
    #[error("unknown message type {type_name}")]
    UnknownType {
        /// The full name or type URL as it was given.
        type_name: String,
    },
    /// The bytes are not a message of the type.
    #[error("the bytes are not a valid {type_name}: {reason}")]
    BadBytes {
        /// The full name or type URL as it was given.
        type_name: String,
        /// The decoder's error.
        reason: String,
    },
    /// The JSON is not a message of the type.
    #[error("the JSON is not a valid {type_name}: {}", diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    BadJson {
        /// The full name or type URL as it was given.
        type_name: String,
        /// The faults, at least one.
        diagnostics: Vec<Diagnostic>,
    },
}

impl Codec {
    /// A codec that knows Envoy's v3 API.
    ///
    /// Takes some 20 ms, so make one and share it.
    ///
    /// # Errors
    ///
    /// [`CodecError::Descriptors`] if the program was built wrong.
    pub fn new() -> Result<Self, CodecError> {
        Self::with_descriptor_sets(&[])
    }

    /// A codec that also knows the messages of the given `google.protobuf.FileDescriptorSet`s. A set may leave out the
    /// files that Envoy's API has; a file that is already there must be equal.
    ///
    /// # Errors
    ///
    /// [`CodecError::UserDescriptors`] for a set that cannot be used.
    pub fn with_descriptor_sets(sets: &[Bytes]) -> Result<Self, CodecError> {
        let pool = descriptors::load(sets)?;
        let mut descriptor_set = BytesMut::from(&*descriptors::descriptor_set()?);
        for set in sets {
            descriptor_set.extend_from_slice(set);
        }
        let facts = FactsTable::new(&pool);
        let inner = Inner { pool, facts, pgv: PgvLevel::default(), descriptor_set: descriptor_set.freeze() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The same codec with another way to treat violations of `validate.rules`.
    #[must_use]
    pub fn with_pgv_level(&self, pgv: PgvLevel) -> Self {
        let pool = self.inner.pool.clone();
        let facts = FactsTable::new(&pool);
        let descriptor_set = self.inner.descriptor_set.clone();
        Self { inner: Arc::new(Inner { pool, facts, pgv, descriptor_set }) }
    }

    /// The encoded `FileDescriptorSet` of everything that the codec knows, for gRPC server reflection.
    #[must_use]
    pub fn descriptor_set(&self) -> &[u8] {
        &self.inner.descriptor_set
    }

    /// The pool of all message types.
    #[must_use]
    pub fn pool(&self) -> &DescriptorPool {
        &self.inner.pool
    }

    /// The resource as JSON: `@type` first, then proto field names in a fixed order. Secrets are replaced by [`REDACTED`].
    ///
    /// A message that cannot be decoded is not an error; it is shown as `{"@type", "value": base64}`.
    #[must_use]
    pub fn to_json(&self, resource: &Resource) -> Json {
        self.write(resource, Secrets::Redacted)
    }

    /// Like [`to_json`](Self::to_json), but with private keys and passwords in plain text. Only for writing a resource back, and for the
    /// client that gets it; never for logs, differences or history.
    #[must_use]
    pub fn to_json_with_secrets(&self, resource: &Resource) -> Json {
        self.write(resource, Secrets::Shown)
    }

    /// The same as [`to_json`](Self::to_json), as a YAML document.
    #[must_use]
    pub fn to_yaml(&self, resource: &Resource) -> String {
        yaml_of(&self.to_json(resource))
    }

    /// An encoded message as JSON, **with secrets**, for REST-JSON polling.
    ///
    /// `type_name` is a full name or a type URL.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if the type is unknown, or the bytes are not a message of the type.
    pub fn message_to_json(&self, type_name: &str, bytes: &[u8]) -> Result<Json, MessageError> {
        let descriptor = self.message_named(type_name)?;
        let message = encode::canonical(&self.inner, &descriptor, &Bytes::copy_from_slice(bytes));
        let message = message.ok_or_else(|| MessageError::BadBytes {
            type_name: type_name.to_owned(),
            reason: "a field is not encoded as its type requires, or the bytes end inside a field".to_owned(),
        })?;
        Ok(to_json(&self.inner, Secrets::Shown, None, &message))
    }

    /// The canonical bytes of a message in JSON. Only its form is checked.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if the type is unknown, or the JSON is not a message of the type.
    pub fn message_from_json(
        &self,
        type_name: &str,
        json: &Json,
        unknown_fields: UnknownFields,
    ) -> Result<Bytes, MessageError> {
        self.message_from_tree(type_name, &Tree::from_json(json), unknown_fields)
    }

    /// Like [`message_from_json`](Self::message_from_json), from a tree. For texts of clients, because the trees of [`parse`](crate::parse)
    /// are not much larger than the texts.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if the type is unknown, or the tree is not a message of the type.
    pub fn message_from_tree(
        &self,
        type_name: &str,
        tree: &Tree,
        unknown_fields: UnknownFields,
    ) -> Result<Bytes, MessageError> {
        let descriptor = self.message_named(type_name)?;
        let mut converter = Converter::new(&self.inner, unknown_fields);
        let message = converter.convert(&descriptor, tree.root());
        if converter.findings.has_errors() {
            let mut diagnostics = converter.findings.locate(&"".into(), tree.root());
            diagnostics.retain(Diagnostic::is_error);
            return Err(MessageError::BadJson { type_name: type_name.to_owned(), diagnostics });
        }
        Ok(message.bytes().clone())
    }

    fn message_named(&self, type_name: &str) -> Result<prost_reflect::MessageDescriptor, MessageError> {
        let name = type_name.rsplit('/').next().unwrap_or(type_name);
        self.inner.message(name).ok_or_else(|| MessageError::UnknownType { type_name: type_name.to_owned() })
    }

    /// Returns `true` if [`to_json`](Self::to_json) hides a part of the resource.
    #[must_use]
    pub fn has_secrets(&self, resource: &Resource) -> bool {
        self.secret_path(resource).is_some()
    }

    /// The path of the first secret field, which [`to_json`](Self::to_json) hides, empty for the whole resource; `None` if there is none. Takes
    /// hardly any memory.
    #[must_use]
    pub fn secret_path(&self, resource: &Resource) -> Option<String> {
        match self.decode(resource) {
            Some(message) => secrets::find(&self.inner, &message),
            None => resource.resource_type().type_url().ends_with(SECRET_TYPE).then(String::new),
        }
    }

    /// Like [`secret_path`](Self::secret_path), if an earlier version `free` of the resource hides nothing. Looks only at the fields that
    /// differ, so a small change of a large resource costs little more than comparing bytes.
    #[must_use]
    pub fn secret_path_beside(&self, resource: &Resource, free: &Resource) -> Option<String> {
        // In a type of a user, one field may decide whether another one is secret.
        if let ResourceType::Other(_) = resource.resource_type() {
            return self.secret_path(resource);
        }
        let (new, old) = (resource.value(), free.value());
        let known: HashSet<&[u8]> = Fields::of(&old).flatten().map(|field| field.raw).collect();
        let mut changed = Vec::new();
        for field in Fields::of(&new) {
            let Ok(field) = field else { return self.secret_path(resource) };
            if !known.contains(field.raw) {
                changed.extend_from_slice(field.raw);
            }
        }
        let part = Resource::plain(resource.resource_type().clone(), resource.name(), changed);
        // In the part, list items have other positions.
        self.secret_path(&part).and_then(|_| self.secret_path(resource))
    }

    fn decode(&self, resource: &Resource) -> Option<Message> {
        let descriptor = self.inner.message_of_url(resource.resource_type().type_url())?;
        encode::canonical(&self.inner, &descriptor, &resource.value())
    }

    fn write(&self, resource: &Resource, secrets: Secrets) -> Json {
        let type_url = resource.resource_type().type_url();
        match self.decode(resource) {
            Some(message) => to_json(&self.inner, secrets, Some(type_url), &message),
            None if secrets == Secrets::Redacted && type_url.ends_with(SECRET_TYPE) => {
                serde_json::json!({"@type": type_url, "value": REDACTED})
            }
            None => opaque(type_url, &resource.value()),
        }
    }
}

impl fmt::Debug for Codec {
    /// Shows the number of message types and the PGV level.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_messages = self.inner.pool.all_messages().len();
        f.debug_struct("Codec").field("n_messages", &n_messages).field("pgv", &self.inner.pgv).finish()
    }
}

/// JSON as YAML. If the writer fails, it stays JSON, which is YAML too.
fn yaml_of(json: &Json) -> String {
    serde_saphyr::to_string(json).unwrap_or_else(|_| format!("{json:#}\n"))
}
