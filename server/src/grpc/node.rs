//! The node of a request, read directly into the form that is kept, within limits.
//!
//! An unknown client may send anything as its node. Each text has a limit, and so have the whole node and the kept part of the
//! metadata. Both encodings are read here: protobuf (`NodeParts::read`) and the JSON of polls (`poll`).

use std::collections::{BTreeMap, BTreeSet};

use xds_cache::wire::{Field, Fields, Value, WireError};
use xds_cache::{Locality, Node, Scalar};

/// A node that cannot be taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodeError {
    /// The bytes are not a node.
    #[error("malformed node: {0}")]
    Malformed(#[from] WireError),
    /// A text is too long.
    #[error("`{field}` has {length} bytes; at most {limit} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A list has too many entries.
    #[error("`{field}` has more than {limit} entries")]
    TooMany {
        /// The field.
        field: &'static str,
        /// The limit of entries.
        limit: usize,
    },
}

/// A node as the client sent it, not checked yet.
#[derive(Debug, Default)]
pub(crate) struct NodeParts {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    pub(crate) sub_zone: String,
    pub(crate) user_agent_name: String,
    pub(crate) user_agent_version: String,
    pub(crate) features: Features,
    pub(crate) metadata: Metadata,
}

impl NodeParts {
    /// Reads an `envoy.config.core.v3.Node`. Its extensions are not looked at.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if the bytes are not a valid node, or more than [`MAX_NODE_BYTES`].
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, NodeError> {
        if bytes.len() > MAX_NODE_BYTES {
            let (field, length) = ("node", bytes.len());
            return Err(NodeError::TooLong { field, length, limit: MAX_NODE_BYTES });
        }
        let mut parts = Self::default();
        for field in Fields::of(bytes) {
            parts.take(&field?)?;
        }
        Ok(parts)
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), NodeError> {
        match field.number {
            1 => self.id = bounded("node.id", field)?,
            2 => self.cluster = bounded("node.cluster", field)?,
            3 => self.metadata.read(field.bytes()?)?,
            4 => {
                for field in Fields::of(field.bytes()?) {
                    let field = field?;
                    match field.number {
                        1 => self.region = bounded("node.locality.region", &field)?,
                        2 => self.zone = bounded("node.locality.zone", &field)?,
                        3 => self.sub_zone = bounded("node.locality.sub_zone", &field)?,
                        _ => {}
                    }
                }
            }
            6 => self.user_agent_name = bounded("node.user_agent_name", field)?,
            7 => self.user_agent_version = bounded("node.user_agent_version", field)?,
            8 => self.user_agent_version = build_version(field.bytes()?)?,
            10 => self.features.insert(field.text()?),
            _ => {}
        }
        Ok(())
    }

    /// The node by which the server decides, and the number of metadata entries that were left out.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if a text is too long, or there are too many client features.
    pub(crate) fn check(self) -> Result<(Node, usize), NodeError> {
        for (field, text) in [
            ("node.id", &self.id),
            ("node.cluster", &self.cluster),
            ("node.locality.region", &self.region),
            ("node.locality.zone", &self.zone),
            ("node.locality.sub_zone", &self.sub_zone),
            ("node.user_agent_name", &self.user_agent_name),
            ("node.user_agent_version", &self.user_agent_version),
        ] {
            check_text(field, text.len())?;
        }
        let node = Node {
            id: self.id,
            cluster: self.cluster,
            metadata: self.metadata.kept,
            locality: Locality { region: self.region, zone: self.zone, sub_zone: self.sub_zone },
            user_agent_name: self.user_agent_name,
            user_agent_version: self.user_agent_version,
            client_features: self.features.check()?,
        };
        Ok((node, self.metadata.n_left_out))
    }
}

/// A text of a request that is kept, or shown to people.
///
/// # Errors
///
/// [`NodeError::TooLong`].
pub(crate) fn check_text(field: &'static str, length: usize) -> Result<(), NodeError> {
    if length > MAX_TEXT_BYTES {
        return Err(NodeError::TooLong { field, length, limit: MAX_TEXT_BYTES });
    }
    Ok(())
}

fn bounded(name: &'static str, field: &Field<'_>) -> Result<String, NodeError> {
    let text = field.text()?;
    check_text(name, text.len())?;
    Ok(text.to_owned())
}

/// `envoy.config.core.v3.BuildVersion`, of which `version` is a `SemanticVersion`.
fn build_version(bytes: &[u8]) -> Result<String, WireError> {
    let mut numbers = [0_u64; 3];
    for field in Fields::of(bytes) {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        for part in Fields::of(field.bytes()?) {
            let part = part?;
            let index = usize::try_from(part.number).unwrap_or_default().wrapping_sub(1);
            if let Some(number) = numbers.get_mut(index) {
                *number = part.number()?;
            }
        }
    }
    Ok(semantic_version(numbers))
}

/// A version of three numbers.
pub(crate) fn semantic_version([major, minor, patch]: [u64; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

/// `client_features`; of too many, only the first are kept, and [`check`](Self::check) refuses them.
#[derive(Debug, Default)]
pub(crate) struct Features {
    kept: BTreeSet<String>,
    /// The longest one.
    max_bytes: usize,
    has_more: bool,
}

impl Features {
    pub(crate) fn insert(&mut self, feature: &str) {
        self.max_bytes = self.max_bytes.max(feature.len());
        if feature.len() > MAX_FEATURE_BYTES || self.kept.contains(feature) {
            return;
        }
        if self.kept.len() >= MAX_FEATURES {
            self.has_more = true;
            return;
        }
        self.kept.insert(feature.to_owned());
    }

    fn check(self) -> Result<BTreeSet<String>, NodeError> {
        let field = "node.client_features";
        if self.max_bytes > MAX_FEATURE_BYTES {
            return Err(NodeError::TooLong { field, length: self.max_bytes, limit: MAX_FEATURE_BYTES });
        }
        if self.has_more {
            return Err(NodeError::TooMany { field, limit: MAX_FEATURES });
        }
        Ok(self.kept)
    }
}

/// The scalars of a node's metadata by dotted path: `{"a": {"b": 1}}` is `a.b` = 1.
///
/// If there is no room for all, the first in the order of their paths are kept, so the order in which a client sends them does not
/// matter. Selectors cannot use entries that are left out.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    kept: BTreeMap<String, Scalar>,
    n_bytes: usize,
    n_left_out: usize,
}

/// The path to a place in the metadata.
#[derive(Debug, Default)]
pub(crate) struct Path {
    text: String,
    depth: usize,
}

impl Path {
    /// Goes down to `key`, runs `then` there, and comes back.
    pub(crate) fn at<T>(&mut self, key: &str, then: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.text.len();
        if self.depth > 0 {
            self.text.push('.');
        }
        // Longer than any kept path. The rest of the key could be as long as the request.
        let mut end = key.len().min(MAX_PATH_BYTES + 1);
        while !key.is_char_boundary(end) {
            end += 1;
        }
        self.text.push_str(&key[..end]);
        self.depth += 1;
        let result = then(self);
        self.depth -= 1;
        self.text.truncate(length);
        result
    }

    /// Returns `true` if nothing below this place is kept.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.depth >= MAX_METADATA_DEPTH || self.text.len() > MAX_PATH_BYTES
    }
}

impl Metadata {
    /// Reads a `google.protobuf.Struct`.
    fn read(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.read_struct(&mut Path::default(), bytes)
    }

    fn read_struct(&mut self, path: &mut Path, bytes: &[u8]) -> Result<(), WireError> {
        for field in Fields::of(bytes) {
            let field = field?;
            if field.number != 1 {
                continue;
            }
            let (mut key, mut value) = ("", &[][..]);
            for field in Fields::of(field.bytes()?) {
                let field = field?;
                match field.number {
                    1 => key = field.text()?,
                    2 => value = field.bytes()?,
                    _ => {}
                }
            }
            path.at(key, |path| self.read_value(path, value))?;
        }
        Ok(())
    }

    /// Reads a `google.protobuf.Value`. Selectors cannot use lists and nulls.
    fn read_value(&mut self, path: &mut Path, bytes: &[u8]) -> Result<(), WireError> {
        // The last member of a oneof counts.
        let Some(field) = Fields::of(bytes).last().transpose()? else { return Ok(()) };
        match (field.number, field.value) {
            (2, Value::Fixed64(_)) => self.insert(path, Scalar::Number(field.double()?)),
            (3, Value::Bytes(_)) => self.insert_text(path, field.text()?),
            (4, Value::Varint(truth)) => self.insert(path, Scalar::Bool(truth != 0)),
            (5, Value::Bytes(_)) if path.is_too_deep() => self.leave_out(),
            (5, Value::Bytes(fields)) => self.read_struct(path, fields)?,
            _ => {}
        }
        Ok(())
    }

    /// Keeps a text, unless it is too long.
    pub(crate) fn insert_text(&mut self, path: &Path, text: &str) {
        if text.len() > MAX_TEXT_BYTES {
            return self.leave_out();
        }
        self.insert(path, Scalar::String(text.to_owned()));
    }

    /// Keeps a value.
    pub(crate) fn insert(&mut self, path: &Path, value: Scalar) {
        if path.text.len() > MAX_PATH_BYTES {
            return self.leave_out();
        }
        self.n_bytes += cost(&path.text, &value);
        if let Some(before) = self.kept.insert(path.text.clone(), value) {
            self.n_bytes -= cost(&path.text, &before);
        }
        while self.kept.len() > MAX_METADATA_ENTRIES || self.n_bytes > MAX_METADATA_BYTES {
            let Some((path, value)) = self.kept.pop_last() else { return };
            self.n_bytes -= cost(&path, &value);
            self.leave_out();
        }
    }

    /// Counts an entry that is left out, with everything below it.
    pub(crate) fn leave_out(&mut self) {
        self.n_left_out += 1;
    }
}

/// The bytes of an entry, without the map's own share.
fn cost(path: &str, value: &Scalar) -> usize {
    let text = match value {
        Scalar::String(text) => text.len(),
        Scalar::Number(_) | Scalar::Bool(_) => 0,
    };
    path.len() + text
}

/// The bytes that are kept of a node in memory.
pub(crate) fn kept_bytes(node: &Node) -> usize {
    let Locality { region, zone, sub_zone } = &node.locality;
    let texts = [&node.id, &node.cluster, region, zone, sub_zone];
    let texts = texts.into_iter().chain([&node.user_agent_name, &node.user_agent_version]);
    let texts: usize = texts.chain(&node.client_features).map(String::len).sum();
    let metadata: usize = node.metadata.iter().map(|(path, value)| cost(path, value) + ENTRY_BYTES).sum();
    texts + metadata + node.client_features.len() * ENTRY_BYTES
}

/// The same limit as for names of resources. IDs of pods and cloud machines have some two hundred bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;
/// An Envoy's node has 61 KB, most of it the list of its extensions.
pub(crate) const MAX_NODE_BYTES: usize = 1024 * 1024;
/// Envoys and gRPC clients have about five.
const MAX_FEATURES: usize = 100;
/// The longest that is known has 48.
const MAX_FEATURE_BYTES: usize = 256;
/// The most metadata entries of a node that selectors can use.
pub(crate) const MAX_METADATA_ENTRIES: usize = 1000;
/// The deepest nesting of such an entry.
pub(crate) const MAX_METADATA_DEPTH: usize = 32;
/// The longest dotted path of such an entry.
const MAX_PATH_BYTES: usize = 1024;
/// The most bytes of all paths and texts of a node's entries. Istio's proxies, which put labels and settings there, have some 10 KB.
const MAX_METADATA_BYTES: usize = 64 * 1024;
/// The bytes of a map entry besides its texts.
const ENTRY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3 as core;
    use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
    use envoy_types::pb::google::protobuf::value::Kind;
    use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as ProtoValue};
    use prost::Message as _;

    use super::*;

    fn value(kind: Kind) -> ProtoValue {
        ProtoValue { kind: Some(kind) }
    }

    fn fields(fields: impl IntoIterator<Item = (String, ProtoValue)>) -> Struct {
        Struct { fields: fields.into_iter().collect() }
    }

    fn read(node: &core::Node) -> Result<(Node, usize), NodeError> {
        NodeParts::read(&node.encode_to_vec())?.check()
    }

    fn with_metadata(metadata: Struct) -> (Node, usize) {
        read(&core::Node { metadata: Some(metadata), ..Default::default() }).unwrap()
    }

    #[test]
    fn metadata_is_flattened_to_scalars() {
        let inner = fields([
            ("n".to_owned(), value(Kind::NumberValue(1.0))),
            ("l".to_owned(), value(Kind::ListValue(ListValue::default()))),
            ("b".to_owned(), value(Kind::BoolValue(true))),
            ("f".to_owned(), value(Kind::BoolValue(false))),
        ]);
        let (node, n_left_out) = with_metadata(fields([
            ("a".to_owned(), value(Kind::StructValue(inner))),
            ("s".to_owned(), value(Kind::StringValue("x".into()))),
            ("none".to_owned(), ProtoValue { kind: None }),
            ("null".to_owned(), value(Kind::NullValue(0))),
        ]));
        let expected = [
            ("a.b", Scalar::Bool(true)),
            ("a.f", Scalar::Bool(false)),
            ("a.n", Scalar::Number(1.0)),
            ("s", Scalar::String("x".into())),
        ];
        assert_eq!(node.metadata, expected.map(|(k, v)| (k.to_owned(), v)).into());
        assert_eq!(n_left_out, 0);
    }

    #[test]
    fn metadata_is_bounded_in_number_depth_and_size() {
        let truth = || value(Kind::BoolValue(true));
        let (node, n_left_out) = with_metadata(fields((0..5000).map(|i| (format!("{i:04}"), truth()))));
        assert_eq!((node.metadata.len(), n_left_out), (MAX_METADATA_ENTRIES, 5000 - MAX_METADATA_ENTRIES));
        assert_eq!(node.metadata.last_key_value().unwrap().0, "0999", "the first ones, in any order");
        let mut deep = fields([("x".to_owned(), truth())]);
        for _ in 1..MAX_METADATA_DEPTH {
            deep = fields([("d".to_owned(), value(Kind::StructValue(deep)))]);
        }
        let deeper = fields([("d".to_owned(), value(Kind::StructValue(deep.clone())))]);
        for (metadata, n_kept) in [(deep, 1), (deeper, 0)] {
            let (node, n_left_out) = with_metadata(metadata);
            assert_eq!((node.metadata.len(), n_left_out), (n_kept, 1 - n_kept));
        }
        // A long key above many values would be copied for each.
        let many = fields((0..900).map(|i| (i.to_string(), truth())));
        let long = "ä".repeat(100_000);
        let (node, n_left_out) = with_metadata(fields([(long.clone(), value(Kind::StructValue(many)))]));
        assert_eq!((node.metadata.len(), n_left_out), (0, 1));
        let (node, n_left_out) = with_metadata(fields([(long.clone(), truth())]));
        assert_eq!((node.metadata.len(), n_left_out), (0, 1));
        let (node, n_left_out) = with_metadata(fields([("a".to_owned(), value(Kind::StringValue(long)))]));
        assert_eq!((node.metadata.len(), n_left_out), (0, 1));
        let text = "x".repeat(MAX_TEXT_BYTES);
        let many = (10..99).map(|i| (i.to_string(), value(Kind::StringValue(text.clone()))));
        let (node, n_left_out) = with_metadata(fields(many));
        assert_eq!(
            (node.metadata.len(), n_left_out),
            (15, 74),
            "15 of 4 KiB and their keys are below 64 KiB"
        );
    }

    #[test]
    fn every_text_has_a_limit_and_is_named() {
        let long = || "x".repeat(MAX_TEXT_BYTES + 1);
        let locality = |locality| core::Node { locality: Some(locality), ..Default::default() };
        let version = UserAgentVersionType::UserAgentVersion;
        for (field, node) in [
            ("node.id", core::Node { id: long(), ..Default::default() }),
            ("node.cluster", core::Node { cluster: long(), ..Default::default() }),
            ("node.locality.region", locality(core::Locality { region: long(), ..Default::default() })),
            ("node.locality.zone", locality(core::Locality { zone: long(), ..Default::default() })),
            ("node.locality.sub_zone", locality(core::Locality { sub_zone: long(), ..Default::default() })),
            ("node.user_agent_name", core::Node { user_agent_name: long(), ..Default::default() }),
            (
                "node.user_agent_version",
                core::Node { user_agent_version_type: Some(version(long())), ..Default::default() },
            ),
        ] {
            let expected = NodeError::TooLong { field, length: MAX_TEXT_BYTES + 1, limit: MAX_TEXT_BYTES };
            assert_eq!(read(&node).unwrap_err(), expected);
        }
        let features = |n: usize, n_bytes: usize| core::Node {
            client_features: (0..n).map(|i| format!("{i:0>n_bytes$}")).collect(),
            ..Default::default()
        };
        assert_eq!(read(&features(100, 256)).unwrap().0.client_features.len(), 100);
        assert!(matches!(read(&features(101, 3)), Err(NodeError::TooMany { limit: MAX_FEATURES, .. })));
        assert!(matches!(read(&features(1, 257)), Err(NodeError::TooLong { length: 257, .. })));
        let extension = core::Extension { name: "x".repeat(1000), ..Default::default() };
        let whole = core::Node { extensions: vec![extension; 1100], ..Default::default() };
        assert!(matches!(read(&whole), Err(NodeError::TooLong { field: "node", .. })));
    }

    #[test]
    fn both_ways_to_tell_the_version_are_read() {
        let text = UserAgentVersionType::UserAgentVersion("1.2".into());
        let build = UserAgentVersionType::UserAgentBuildVersion(core::BuildVersion {
            version: Some(envoy_types::pb::envoy::r#type::v3::SemanticVersion {
                major_number: 1,
                minor_number: 40,
                patch: 0,
            }),
            metadata: None,
        });
        for (version, expected) in [(Some(text), "1.2"), (Some(build), "1.40.0"), (None, "")] {
            let node = core::Node { user_agent_version_type: version, ..Default::default() };
            assert_eq!(read(&node).unwrap().0.user_agent_version, expected);
        }
    }
}
