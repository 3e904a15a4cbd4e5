//! Message types that the user adds, for the configuration of private filters or of newer Envoys.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use bytes::Bytes;
use xds_codec::{Codec, CodecError};

/// The flag of all commands that read resources.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DescriptorArgs {
    /// File with message types in addition to Envoy's, as written by `protoc --include_imports --descriptor_set_out=FILE`; may be
    /// repeated. Separate several with commas in the environment variable
    #[arg(long, env = "XDS_SERVER_DESCRIPTORS", value_name = "FILE", value_delimiter = ',')]
    pub descriptors: Vec<PathBuf>,
}

/// Message types cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorError {
    /// A file cannot be read.
    #[error("--descriptors {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: std::io::Error,
    },
    /// A file is too large.
    #[error("--descriptors {}: the file has more than {} MiB", path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file is no set of descriptors, or is in the way of another.
    #[error("--descriptors {}: {reason}; write the file with `protoc --include_imports --descriptor_set_out=FILE`", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The program was built wrong.
    #[error(transparent)]
    Codec(CodecError),
}

impl DescriptorArgs {
    /// A codec that knows Envoy's messages and those of the files.
    ///
    /// # Errors
    ///
    /// Names the file that cannot be used.
    pub fn codec(&self) -> Result<Codec, DescriptorError> {
        let sets = self.descriptors.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Codec::with_descriptor_sets(&sets).map_err(|error| match error {
            CodecError::UserDescriptors { index, reason } => {
                let path = self.descriptors.get(index).cloned().unwrap_or_default();
                DescriptorError::Unusable { path, reason }
            }
            other @ CodecError::Descriptors { .. } => DescriptorError::Codec(other),
        })
    }
}

fn read(path: &PathBuf) -> Result<Bytes, DescriptorError> {
    let unreadable = |reason| DescriptorError::Unreadable { path: path.clone(), reason };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(DescriptorError::TooLarge { path: path.clone() });
    }
    Ok(bytes.into())
}

/// Envoy's own, with everything that they import, are 3 MiB.
const MAX_BYTES: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

    use super::*;

    fn set(file: &str, import: Option<&str>) -> Vec<u8> {
        let message = DescriptorProto { name: Some("Thing".to_owned()), ..DescriptorProto::default() };
        let file = FileDescriptorProto {
            name: Some(file.to_owned()),
            package: file.split_once('/').map(|(package, _)| package.to_owned()),
            message_type: vec![message],
            dependency: import.map(str::to_owned).into_iter().collect(),
            syntax: Some("proto3".to_owned()),
            ..FileDescriptorProto::default()
        };
        FileDescriptorSet { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn types_of_files_are_known_and_files_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let good = write("good.binpb", &set("my/thing.proto", None));
        let codec = DescriptorArgs { descriptors: vec![good.clone()] }.codec().unwrap();
        assert!(codec.pool().get_message_by_name("my.Thing").is_some());
        for (name, bytes, told) in [
            ("text.proto", b"syntax = \"proto3\";".to_vec(), "--descriptor_set_out=FILE"),
            ("alone.binpb", set("other/thing.proto", Some("my/missing.proto")), "my/missing.proto"),
        ] {
            let bad = write(name, &bytes);
            let error =
                DescriptorArgs { descriptors: vec![good.clone(), bad] }.codec().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(told), "{error}");
        }
        let missing = DescriptorArgs { descriptors: vec![dir.path().join("missing")] };
        let error = missing.codec().unwrap_err().to_string();
        assert!(error.starts_with("--descriptors ") && error.contains("No such file"), "{error}");
    }
}
