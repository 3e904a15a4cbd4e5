//! Envoy resources as JSON and YAML: descriptors, positions, validation, references, redaction.
//!
//! A [`Codec`] reads files ([`Codec::decode_file`]) and bodies ([`Codec::resource_from_json`]) into
//! [`Resource`](xds_cache::Resource)s and writes them back ([`Codec::to_json`], [`Codec::to_yaml`]). The bytes of a
//! resource are canonical: equal content gives equal bytes, in whatever order the keys were written. All faults of a text
//! are reported at once as [`Diagnostic`]s, with file, line, column, field path and a suggestion.
//!
//! The crate does no I/O. No outside input makes it panic. No text that it writes shows a secret, unless the name of the function says so.

mod assembled;
mod checks;
mod codec;
mod convert;
mod descriptors;
mod diagnostic;
mod diff;
pub mod document;
mod encode;
mod facts;
pub mod fields;
mod file;
mod finding;
mod form;
mod identity;
mod inner;
mod json;
mod lint;
mod locate;
mod message;
mod node_group;
mod path;
mod pgv;
mod profile;
mod references;
mod render;
mod resource;
mod secrets;
mod stencil;
mod walk;
pub mod weights;
mod wire;

pub use assembled::{VirtualHost, VirtualHosts};
pub use codec::{Codec, MessageError};
pub use convert::UnknownFields;
pub use descriptors::{CodecError, ENVOY_TYPES_VERSION};
pub use diagnostic::{Diagnostic, Place, Severity, echo, echo_name, nearest};
pub use diff::{Change, json_diff};
pub use document::{Limits, Syntax, Tree};
pub use file::{DecodedFile, Object, ObjectContent, parse};
pub use inner::PgvLevel;
pub use json::REDACTED;
pub use locate::move_to_fields;
pub use node_group::identities_from_json;
pub use profile::{Effect, Language, ProfileFinding};
pub use render::render;
pub use secrets::{has_userinfo, is_credential_header, is_hidden_in_matches};
pub use stencil::{Keys, Stencils};
