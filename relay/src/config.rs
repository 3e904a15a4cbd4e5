//! The file that says which xDS server is relayed, and for which nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::{GroupName, Name, NodeGroup, ResourceType};
use xds_codec::document::Node;
use xds_codec::fields::{At, Faults};
use xds_codec::{Codec, Diagnostic, Limits, MessageError, Syntax, UnknownFields, echo, nearest, parse};

use crate::message::Variant;

/// What a relay is told.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// The servers, `HOST:PORT`; at least one. They are used one at a time.
    pub servers: Vec<String>,
    /// TLS; `None` for plaintext.
    pub tls: Option<RelayTls>,
    /// True if servers on other hosts may be reached without TLS.
    pub is_plaintext_allowed: bool,
    /// The file with a token for the servers, as the file names it.
    pub token_file: Option<String>,
    /// The variant of the protocol.
    pub variant: Variant,
    /// The nodes; at least one.
    pub identities: Vec<Identity>,
}

/// TLS with the servers. Paths are as the file names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayTls {
    /// The authorities of the servers' certificates; `None` for those of the system.
    pub ca: Option<String>,
    /// The certificate to show, and its private key.
    pub identity: Option<(String, String)>,
    /// The name in the servers' certificates; `None` for the host.
    pub server_name: Option<String>,
}

/// One node, and who gets what it is sent.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The group of those who get it.
    pub group: NodeGroup,
    /// The id of the node.
    pub node_id: String,
    /// The encoded `envoy.config.core.v3.Node`.
    pub node: Bytes,
    /// Where its subscriptions begin.
    pub roots: Roots,
}

/// Names by type, `*` for all, from which references are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(BTreeMap<ResourceType, Vec<Name>>);

impl Default for Roots {
    /// What an Envoy asks for.
    fn default() -> Self {
        let all = || vec!["*".into()];
        Self(BTreeMap::from([(ResourceType::Cluster, all()), (ResourceType::Listener, all())]))
    }
}

impl FromIterator<(ResourceType, Vec<Name>)> for Roots {
    fn from_iter<I: IntoIterator<Item = (ResourceType, Vec<Name>)>>(roots: I) -> Self {
        Self(roots.into_iter().collect())
    }
}

impl Roots {
    /// The names of each type.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceType, &Vec<Name>)> {
        self.0.iter()
    }
}

impl RelayConfig {
    /// Reads the file. `file` is its path for messages.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, at least one diagnostic.
    pub fn read(codec: &Codec, file: &str, text: &[u8]) -> Result<Self, Vec<Diagnostic>> {
        let limits = Limits { max_bytes: MAX_BYTES, ..Limits::default() };
        let documents = parse(file, text, Syntax::of_file(file), &limits)?;
        let mut reader = Reader { codec, faults: Faults::new(file), groups: Vec::new() };
        if let Some(second) = documents.get(1) {
            reader.faults.add("too-many-documents", At::Root, second.root(), "a relay file is one document");
        }
        let config = documents.first().and_then(|tree| reader.config(tree.root()));
        match config {
            Some(config) if reader.faults.is_empty() => Ok(config),
            Some(_) | None => Err(reader.faults.sorted()),
        }
    }
}

struct Reader<'c> {
    codec: &'c Codec,
    faults: Faults,
    /// The groups so far.
    groups: Vec<GroupName>,
}

impl Reader<'_> {
    fn config(&mut self, root: Node<'_>) -> Option<RelayConfig> {
        if !self.faults.is_object(root, At::Root, &FIELDS, "the relay file") {
            return None;
        }
        let servers = self.faults.texts(root, At::Root, "servers");
        let at = At::Field(&At::Root, "servers");
        for (index, item) in root.get("servers").and_then(Node::as_list).into_iter().flatten().enumerate() {
            let port =
                item.as_str().and_then(|text| text.rsplit_once(':')).filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                let message = format!(
                    "expected HOST:PORT, found {}",
                    item.as_str().map_or_else(|| item.kind().to_owned(), echo)
                );
                self.faults.add("bad-address", At::Item(&at, index), item, message);
            }
        }
        if root.get("servers").is_none() {
            let message =
                "`servers` is missing: the addresses of the xDS server, such as [xds.example.com:18000]";
            self.faults.add("missing-field", At::Root, root, message);
        }
        let tls = root.get("tls").map(|tls| self.tls(tls));
        let is_plaintext_allowed = self.faults.truth(root, At::Root, "allowPlaintext").unwrap_or(false);
        let token_file = self.faults.text(root, At::Root, "tokenFile").map(str::to_owned);
        let variant = self.variant(root);
        let at = At::Field(&At::Root, "identities");
        let items = self.faults.list(root, at, "identities", MAX_IDENTITIES).unwrap_or_default();
        if items.is_empty() {
            let message = "`identities` is missing or empty: the nodes for which the server is asked";
            self.faults.add("missing-field", At::Root, root, message);
        }
        let read = |(index, item)| self.identity(item, At::Item(&at, index));
        let identities = items.into_iter().enumerate().filter_map(read).collect();
        Some(RelayConfig { servers: servers?, tls, is_plaintext_allowed, token_file, variant, identities })
    }

    fn variant(&mut self, root: Node<'_>) -> Variant {
        match self.faults.text(root, At::Root, "variant") {
            None | Some("delta") => Variant::Delta,
            Some("sotw") => Variant::Sotw,
            Some(_) => {
                let message = "expected delta or sotw";
                self.faults.add_below("bad-variant", At::Root, root, "variant", message);
                Variant::Delta
            }
        }
    }

    fn tls(&mut self, node: Node<'_>) -> RelayTls {
        let at = At::Field(&At::Root, "tls");
        if !self.faults.is_object(node, at, &TLS_FIELDS, "tls") {
            return RelayTls::default();
        }
        let mut text = |field| self.faults.text(node, at, field).map(str::to_owned);
        let (ca, cert, key, server_name) = (text("ca"), text("cert"), text("key"), text("serverName"));
        if cert.is_some() != key.is_some() {
            self.faults.add("missing-field", at, node, "`cert` and `key` belong together");
        }
        RelayTls { ca, identity: cert.zip(key), server_name }
    }

    fn identity(&mut self, node: Node<'_>, at: At<'_>) -> Option<Identity> {
        if !self.faults.is_object(node, at, &IDENTITY_FIELDS, "an identity") {
            return None;
        }
        let group = self.group(node, at);
        let sent = self.node(node, at);
        let roots = match node.get("resources") {
            Some(resources) => self.roots(resources, At::Field(&at, "resources")),
            None => Roots::default(),
        };
        let (node_id, encoded) = sent?;
        Some(Identity { group: group?, node_id, node: encoded, roots })
    }

    fn group(&mut self, node: Node<'_>, at: At<'_>) -> Option<NodeGroup> {
        let Some(group) = node.get("group") else {
            let message = "`group` is missing: the node group that is served this, such as {name: edge, selector: {clusters: [edge]}}";
            self.faults.add("missing-field", at, node, message);
            return None;
        };
        let is_default = group.get("name").and_then(Node::as_str) == Some(xds_cache::group::DEFAULT);
        let read = match is_default && group.entries().count() == 1 {
            true => Ok(NodeGroup::default_group()),
            false => self.codec.node_group_from_tree(&group.to_tree()),
        };
        let group_read = match read {
            Ok(group) => group,
            Err(found) => {
                for fault in found {
                    let path = format!("group.{}", fault.path);
                    self.faults
                        .add(fault.code, At::Field(&at, &path), group, fault.message)
                        .suggest(fault.suggestion);
                }
                return None;
            }
        };
        if self.groups.contains(&group_read.name) {
            self.faults.add_below("duplicate-name", at, node, "group", "another identity has this group");
            return None;
        }
        self.groups.push(group_read.name.clone());
        Some(group_read)
    }

    /// The id of the node, and the encoded node.
    fn node(&mut self, node: Node<'_>, at: At<'_>) -> Option<(String, Bytes)> {
        let Some(sent) = node.get("node") else {
            self.faults.add(
                "missing-field",
                at,
                node,
                "`node` is missing: who the server is asked for, such as {id: edge-1}",
            );
            return None;
        };
        let at = At::Field(&at, "node");
        let id = self.faults.need_text(sent, at, "id")?.to_owned();
        match self.codec.message_from_tree(NODE, &sent.to_tree(), UnknownFields::Refuse) {
            Ok(bytes) => Some((id, bytes)),
            Err(MessageError::BadJson { diagnostics, .. }) => {
                for fault in diagnostics {
                    self.faults
                        .add(fault.code, At::Field(&at, &fault.path), sent, fault.message)
                        .suggest(fault.suggestion);
                }
                None
            }
            Err(error @ (MessageError::UnknownType { .. } | MessageError::BadBytes { .. })) => {
                self.faults.add("bad-node", at, sent, error.to_string());
                None
            }
        }
    }

    fn roots(&mut self, node: Node<'_>, at: At<'_>) -> Roots {
        let mut roots = BTreeMap::new();
        if !node.is_object() {
            self.faults.wrong("an object with names by type, such as {listeners: [\"*\"]}", node, at);
            return Roots(roots);
        }
        for entry in node.entries() {
            let known = ROOT_TYPES.iter().find(|known| known.slug() == entry.key);
            let Some(resource_type) = known else {
                let slugs = ROOT_TYPES.iter().map(ResourceType::slug);
                let message = "not a type of resources that can be relayed";
                let suggestion = nearest(entry.key, slugs);
                self.faults
                    .add("unknown-type", At::Field(&at, entry.key), entry.value, message)
                    .suggest(suggestion);
                continue;
            };
            let names = self.faults.texts(node, at, entry.key).unwrap_or_default();
            let names = names.into_iter().map(|name| Arc::from(name.as_str())).collect();
            roots.insert(resource_type.clone(), names);
        }
        if roots.is_empty() {
            self.faults.add(
                "empty-list",
                at,
                node,
                "nothing is asked for; name something, or leave the field out",
            );
        }
        Roots(roots)
    }
}

/// Types with which subscriptions may begin.
const ROOT_TYPES: [ResourceType; 8] = [
    ResourceType::Runtime,
    ResourceType::Secret,
    ResourceType::Cluster,
    ResourceType::ClusterLoadAssignment,
    ResourceType::ExtensionConfig,
    ResourceType::Listener,
    ResourceType::ScopedRouteConfiguration,
    ResourceType::RouteConfiguration,
];

const FIELDS: [&str; 6] = ["servers", "tls", "allowPlaintext", "tokenFile", "variant", "identities"];
const TLS_FIELDS: [&str; 4] = ["ca", "cert", "key", "serverName"];
const IDENTITY_FIELDS: [&str; 3] = ["group", "node", "resources"];
const NODE: &str = "envoy.config.core.v3.Node";

/// A list of nodes, written by hand.
const MAX_BYTES: usize = 1 << 20;
/// Each has a stream of its own.
const MAX_IDENTITIES: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RelayConfig, String> {
        let codec = Codec::new().unwrap();
        RelayConfig::read(&codec, "relay.yaml", text.as_bytes())
            .map_err(|found| found.iter().map(shown).collect::<Vec<_>>().join("\n"))
    }

    fn shown(fault: &Diagnostic) -> String {
        let (line, column) = (fault.place.line, fault.place.column);
        let suggestion = fault.suggestion.as_ref().map(|text| format!("; did you mean {text}?"));
        format!("{line}:{column} {}: {}{}", fault.path, fault.message, suggestion.unwrap_or_default())
    }

    #[test]
    fn a_file_names_servers_and_nodes() {
        let config = read(
            "servers: [a:1, 'b:2']\ntls: {ca: ca.crt, serverName: core}\ntokenFile: token\nvariant: sotw\nidentities:\n\
             - group: {name: edge, selector: {clusters: [edge]}}\n  node: {id: relay, cluster: edge, metadata: {a: 1}}\n\
             - group: {name: default}\n  node: {id: apps}\n  resources: {listeners: [shop, cart], runtimes: [rt]}\n",
        );
        let config = config.unwrap();
        assert_eq!(config.servers, ["a:1", "b:2"]);
        assert_eq!(config.variant, Variant::Sotw);
        assert_eq!(config.identities.len(), 2);
        assert_eq!(config.identities[0].node_id, "relay");
        assert_eq!(config.identities[0].roots, Roots::default());
        assert!(config.identities[1].group.name.is_default());
        let roots: Vec<_> =
            config.identities[1].roots.iter().map(|(kind, names)| (kind.slug(), names.len())).collect();
        assert_eq!(roots, [("runtimes", 1), ("listeners", 2)]);
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        let rows = [
            ("servers: [a:1]\n", "1:1 : `identities` is missing or empty"),
            ("servers: [a]\nidentities: []\n", "1:11 servers[0]: expected HOST:PORT, found \"a\""),
            ("server: [a:1]\n", "1:1 server: unknown field in the relay file; did you mean servers?"),
            ("servers: [a:1]\nvariant: both\n", "2:10 variant: expected delta or sotw"),
            ("servers: [a:1]\ntls: {cert: a}\n", "2:6 tls: `cert` and `key` belong together"),
            ("servers: [a:1]\nidentities:\n- node: {id: a}\n", "3:3 identities[0]: `group` is missing"),
            (
                "servers: [a:1]\nidentities:\n- node: {ids: a}\n  group: {name: default}\n",
                "3:9 identities[0].node: `id` is missing",
            ),
            (
                "servers: [a:1]\nidentities:\n- node: {id: a, clutser: b}\n  group: {name: default}\n",
                "identities[0].node.clutser: unknown field",
            ),
            (
                "servers: [a:1]\nidentities:\n- node: {id: a}\n  group: {name: default}\n  resources: {listener: [a]}\n",
                "identities[0].resources.listener: not a type of resources that can be relayed; did you mean listeners?",
            ),
            (
                "servers: [a:1]\nidentities:\n- node: {id: a}\n  group: {name: e, selector: {cluster: [a]}}\n",
                "identities[0].group.selector.cluster: unknown field",
            ),
            (
                "servers: [a:1]\nidentities:\n- &a\n  node: {id: a}\n  group: {name: default}\n- *a\n",
                "identities[1].group: another identity has this group",
            ),
        ];
        for (text, expected) in rows {
            let found = read(text).unwrap_err();
            assert!(found.contains(expected), "{text}\n{found}");
        }
    }
}
