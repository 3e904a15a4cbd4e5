//! The descriptor set of Envoy's v3 API, compressed into the program, and the pool built from it.

use bytes::Bytes;
use prost_reflect::DescriptorPool;

/// Written by the example `gen-descriptors`.
static COMPRESSED: &[u8] = include_bytes!("../descriptors/envoy.binpb.zst");

/// The version of `envoy-types` whose protos the set was compiled from.
pub const ENVOY_TYPES_VERSION: &str = include_str!("../descriptors/envoy-types.version").trim_ascii_end();

/// The codec cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The built-in descriptor set is damaged; the program was built wrong.
    #[error("the built-in descriptor set cannot be read: {reason}")]
    Descriptors {
        /// The decoder's error.
        reason: String,
    },
    /// A user's descriptor set is damaged, or imports a file that no set has.
    #[error("descriptor set {index} cannot be read: {reason}")]
    UserDescriptors {
        /// The set's index in the given list, from 0.
        index: usize,
        /// The decoder's error.
        reason: String,
    },
}

/// The encoded `google.protobuf.FileDescriptorSet`, without source positions.
///
/// # Errors
///
/// [`CodecError::Descriptors`] if the program was built with a damaged file.
pub(crate) fn descriptor_set() -> Result<Bytes, CodecError> {
    let set = zstd::decode_all(COMPRESSED)
        .map_err(|error| CodecError::Descriptors { reason: error.to_string() })?;
    Ok(set.into())
}

/// The pool of the built-in set and the user's sets.
pub(crate) fn load(more: &[Bytes]) -> Result<DescriptorPool, CodecError> {
    let mut pool = DescriptorPool::decode(descriptor_set()?)
        .map_err(|error| CodecError::Descriptors { reason: error.to_string() })?;
    for (index, set) in more.iter().enumerate() {
        pool.decode_file_descriptor_set(set.clone())
            .map_err(|error| CodecError::UserDescriptors { index, reason: error.to_string() })?;
    }
    Ok(pool)
}
