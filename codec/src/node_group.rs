//! `NodeGroup` documents and the same form in REST bodies.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::group::Glob;
use xds_cache::identity::{Identity, NodeIdPattern};
use xds_cache::time::duration;
use xds_cache::wave::{InvalidWaves, MAX_VALUES};
use xds_cache::{DrainPolicy, GroupName, NodeGroup, Profile, Scalar, Selector, WavePolicy, wave};

use crate::Codec;
use crate::diagnostic::{Diagnostic, nearest};
use crate::document::{Entry, Items, Node, Number, Tree, TreeValue};
use crate::finding::{Finding, Findings};
use crate::form::OWN_API_VERSION;
use crate::identity;
use crate::path::Path;

impl Codec {
    /// Reads a node group from a REST body: `{"name", "selector": {"nodeIds", "clusters", "metadata", "userAgents", "all"},
    /// "identities", "priority", "client", "waves", "drain"}`. A document with `apiVersion` and `kind`, as in files, is accepted too.
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn node_group_from_json(&self, json: &serde_json::Value) -> Result<NodeGroup, Vec<Diagnostic>> {
        self.node_group_from_tree(&Tree::from_json(json))
    }

    /// Like [`node_group_from_json`](Self::node_group_from_json), from a tree.
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn node_group_from_tree(&self, tree: &Tree) -> Result<NodeGroup, Vec<Diagnostic>> {
        read_node_group(&"".into(), tree.root()).1
    }
}

/// Reads the `identities` of a group from JSON.
///
/// # Errors
///
/// Returns all faults, at least one diagnostic.
pub fn identities_from_json(json: &serde_json::Value) -> Result<Vec<Identity>, Vec<Diagnostic>> {
    let tree = Tree::from_json(json);
    let mut reader = Reader { findings: Findings::default() };
    let identities = reader.identities(tree.root(), &Path::Root);
    if reader.findings.has_errors() {
        return Err(reader.findings.locate(&"".into(), tree.root()));
    }
    Ok(identities)
}

/// Reads a group, with or without the envelope of a document. Returns also its name, which is empty if it has none.
pub(crate) fn read_node_group(
    file: &Arc<str>,
    tree: Node<'_>,
) -> (String, Result<NodeGroup, Vec<Diagnostic>>) {
    let mut reader = Reader { findings: Findings::default() };
    let has_envelope = tree.entry("apiVersion").is_some() || tree.entry("kind").is_some();
    let (name, group) = if has_envelope { reader.document(tree) } else { reader.group(tree) };
    let outcome = match group {
        Some(group) if !reader.findings.has_errors() => Ok(group),
        Some(_) | None => Err(reader.findings.locate(file, tree)),
    };
    (name, outcome)
}

struct Reader {
    findings: Findings,
}

/// The fields of a group.
struct GroupParts {
    selector: Option<Selector>,
    priority: i64,
    client: Option<Profile>,
    waves: Option<WavePolicy>,
    drain: DrainPolicy,
    identities: Vec<Identity>,
}

/// The fields of a group besides its name.
const WAVE_FIELDS: [&str; 9] =
    ["shares", "by", "order", "hold", "maxNacks", "ackTimeout", "maxLost", "allowEmpty", "maxErrorRate"];

const FIELDS: [&str; 6] = ["selector", "identities", "priority", "client", "waves", "drain"];

impl Reader {
    fn document(&mut self, tree: Node<'_>) -> (String, Option<NodeGroup>) {
        let root = Path::Root;
        for entry in tree.entries() {
            match entry.key {
                "apiVersion" if entry.value.as_str() == Some(OWN_API_VERSION) => {}
                "kind" if entry.value.as_str() == Some("NodeGroup") => {}
                "apiVersion" | "kind" => {
                    let text = format!("expected {OWN_API_VERSION} and NodeGroup");
                    self.findings.push(Finding::error("wrong-type", &root.field(entry.key), text));
                }
                "metadata" | "spec" | "status" => {}
                _ => self.unknown(entry, &root, &["apiVersion", "kind", "metadata", "spec"]),
            }
        }
        let metadata_path = root.field("metadata");
        let name_path = metadata_path.field("name");
        let name = tree.get("metadata").and_then(|metadata| metadata.get("name"));
        let (text, name) = self.name(name, &name_path);
        let spec_path = root.field("spec");
        let spec = tree.get("spec");
        let parts = spec.and_then(|spec| self.parts(spec, &spec_path, &FIELDS));
        self.refuse_guarded_default(name.as_ref(), spec, &spec_path);
        if spec.is_none() {
            self.findings.push(Finding::error("missing-field", &root, "the node group has no `spec`"));
        }
        (text, join(name, parts))
    }

    fn group(&mut self, tree: Node<'_>) -> (String, Option<NodeGroup>) {
        let (text, name) = self.name(tree.get("name"), &Path::Root.field("name"));
        let known: Vec<&'static str> = ["name"].into_iter().chain(FIELDS).collect();
        let parts = self.parts(tree, &Path::Root, &known);
        self.refuse_guarded_default(name.as_ref(), Some(tree), &Path::Root);
        (text, join(name, parts))
    }

    fn name(&mut self, tree: Option<Node<'_>>, path: &Path<'_>) -> (String, Option<GroupName>) {
        let Some(tree) = tree else {
            self.findings.push(Finding::error("missing-name", path, "the node group has no name"));
            return (String::new(), None);
        };
        let Some(text) = tree.as_str() else {
            self.wrong("a string", tree, path);
            return (String::new(), None);
        };
        match GroupName::new(text) {
            Ok(name) => (text.to_owned(), Some(name)),
            Err(error) => {
                self.findings.push(Finding::error("bad-name", path, error.to_string()));
                (text.to_owned(), None)
            }
        }
    }

    fn parts(&mut self, tree: Node<'_>, path: &Path<'_>, known: &[&'static str]) -> Option<GroupParts> {
        if !tree.is_object() {
            self.wrong("an object", tree, path);
            return None;
        }
        let mut parts = GroupParts {
            selector: None,
            priority: 0,
            client: None,
            waves: None,
            drain: DrainPolicy::default(),
            identities: vec![],
        };
        for entry in tree.entries().filter(|entry| !entry.value.is_null()) {
            let value = entry.value;
            let path_here = path.field(entry.key);
            match entry.key {
                key if !known.contains(&key) => self.unknown(entry, path, known),
                "selector" => parts.selector = self.selector(value, &path_here),
                "priority" => match integer(value) {
                    Some(priority) => parts.priority = priority,
                    None => self.wrong("a 64-bit integer", value, &path_here),
                },
                "client" => match value.as_str() {
                    Some("envoy") => parts.client = Some(Profile::Envoy),
                    Some("grpc") => parts.client = Some(Profile::Grpc),
                    _ => self.wrong("`envoy` or `grpc`", value, &path_here),
                },
                "waves" => parts.waves = self.waves(value, &path_here),
                "drain" => parts.drain = self.drain(value, &path_here),
                "identities" => parts.identities = self.identities(value, &path_here),
                _ => {}
            }
        }
        if tree.get("selector").is_none() {
            self.findings.push(Finding::error("missing-field", path, "the node group has no `selector`"));
        }
        Some(parts)
    }

    /// Reads `{shares: [1%, 10%], by: zone, order: [b, a], hold: 30s, maxNacks: 1, ackTimeout: 5m, maxLost: 2%, allowEmpty: true,
    /// maxErrorRate: 5%}`.
    fn waves(&mut self, tree: Node<'_>, path: &Path<'_>) -> Option<WavePolicy> {
        let Some(shares) = tree.get("shares").filter(|_| tree.is_object()) else {
            self.wrong("an object with `shares`, such as [1%, 10%, 100%] or each", tree, path);
            return None;
        };
        let mut policy = self.shares(shares, &path.field("shares"))?;
        for entry in tree.entries().filter(|entry| !entry.value.is_null()) {
            let (value, path_here) = (entry.value, path.field(entry.key));
            let read = match entry.key {
                "shares" => Ok(()),
                "by" => text(value).parse().map(|by| policy.by = by),
                "order" => self.order(value, &path_here).map(|order| policy.order = order),
                "hold" => duration(&text(value)).map(|hold| policy.hold = hold).map_err(InvalidWaves::from),
                "ackTimeout" => {
                    let read = duration(&text(value)).map(|timeout| policy.ack_timeout = Some(timeout));
                    read.map_err(InvalidWaves::from)
                }
                "maxNacks" => text(value).parse().map(|nacks| policy.max_nacks = nacks),
                "maxLost" => text(value).parse().map(|lost| policy.max_lost = Some(lost)),
                "maxErrorRate" => text(value).parse().map(|rate| policy.max_error_rate = Some(rate)),
                "allowEmpty" => {
                    match truth(value) {
                        Some(allow_empty) => policy.allow_empty = allow_empty,
                        None => self.wrong("true or false", value, &path_here),
                    }
                    Ok(())
                }
                _ => {
                    self.unknown(entry, path, &WAVE_FIELDS);
                    Ok(())
                }
            };
            if let Err(error) = read {
                self.bad("bad-waves", error.to_string(), value, &path_here);
            }
        }
        if self.findings.has_errors() {
            return Some(policy);
        }
        match policy.checked() {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.bad("bad-waves", error.to_string(), tree, path);
                None
            }
        }
    }

    /// Reads `[1%, 10%]` or `each`.
    fn shares(&mut self, tree: Node<'_>, path: &Path<'_>) -> Option<WavePolicy> {
        if tree.as_str() == Some("each") {
            return Some(WavePolicy::each());
        }
        let Some(items) = tree.as_list() else {
            self.wrong("a list of shares, such as [1%, 10%, 100%], or each", tree, path);
            return None;
        };
        let read = items.map(|item| text(item).parse()).collect::<Result<_, _>>();
        match read.and_then(WavePolicy::new) {
            Ok(policy) => Some(policy),
            Err(error) => {
                self.bad("bad-waves", error.to_string(), tree, path);
                None
            }
        }
    }

    /// Reads `[eu-west-1b, eu-west-1a]`.
    fn order(&mut self, tree: Node<'_>, path: &Path<'_>) -> Result<Arc<[Arc<str>]>, InvalidWaves> {
        let Some(items) = tree.as_list() else {
            self.wrong("a list of values, such as [eu-west-1b, eu-west-1a]", tree, path);
            return Ok(Arc::default());
        };
        let values: Vec<String> = items.take(MAX_VALUES + 1).map(scalar_text).collect();
        wave::order(values.iter().map(String::as_str))
    }

    /// Reads `{endpoints: 30s, clusters: 1m}`.
    fn drain(&mut self, tree: Node<'_>, path: &Path<'_>) -> DrainPolicy {
        let mut policy = DrainPolicy::default();
        if !tree.is_object() {
            self.wrong(
                "an object with `endpoints`, `clusters` or both, such as {endpoints: 30s}",
                tree,
                path,
            );
            return policy;
        }
        for entry in tree.entries().filter(|entry| !entry.value.is_null()) {
            let (value, path_here) = (entry.value, path.field(entry.key));
            let time = match entry.key {
                "endpoints" => &mut policy.endpoints,
                "clusters" => &mut policy.clusters,
                _ => {
                    self.unknown(entry, path, &["endpoints", "clusters"]);
                    continue;
                }
            };
            match duration(&text(value)) {
                Ok(duration) => *time = Some(duration),
                Err(error) => self.bad("bad-drain", error.to_string(), value, &path_here),
            }
        }
        policy
    }

    /// Refuses `identities` of the group `default`, which is for every client.
    fn refuse_guarded_default(&mut self, name: Option<&GroupName>, spec: Option<Node<'_>>, path: &Path<'_>) {
        let entries = spec.and_then(|spec| spec.get("identities")).filter(|entries| !entries.is_null());
        if let Some(entries) = entries.filter(|_| name.is_some_and(GroupName::is_default)) {
            let text =
                "the group default is for every client and has no identities; use a group with `all: true`";
            self.bad("guarded-default", text.to_owned(), entries, &path.field("identities"));
        }
    }

    /// Reads `[{spiffe: "spiffe://example.org/node/*", nodeIds: ["{1}"]}, …]`.
    fn identities(&mut self, tree: Node<'_>, path: &Path<'_>) -> Vec<Identity> {
        let Some(items) = tree.as_list() else {
            self.wrong(
                "a list of entries, such as {spiffe: \"spiffe://example.org/ns/edge/sa/*\"}",
                tree,
                path,
            );
            return Vec::new();
        };
        if items.len() == 0 {
            let text =
                "an empty list grants the group to nobody; leave it out for a group without identities";
            self.bad("empty-list", text.to_owned(), tree, path);
        }
        if self.has_too_many(items, tree, path) {
            return Vec::new();
        }
        items.enumerate().filter_map(|(index, item)| self.identity(item, &path.index(index))).collect()
    }

    /// Reads one entry of `identities`.
    fn identity(&mut self, tree: Node<'_>, path: &Path<'_>) -> Option<Identity> {
        let subjects = identity::subjects(&mut self.findings, tree, path, &["nodeIds"]);
        let node_ids_path = path.field("nodeIds");
        let node_ids = tree.get("nodeIds").filter(|node_ids| !node_ids.is_null());
        let node_ids = node_ids.map_or_else(Vec::new, |list| self.node_ids(list, &node_ids_path));
        if self.findings.has_errors() {
            return None;
        }
        match Identity::new(subjects, node_ids) {
            Ok(identity) => Some(identity),
            Err(error) => {
                self.bad("bad-identity", error.to_string(), tree, path);
                None
            }
        }
    }

    fn node_ids(&mut self, tree: Node<'_>, path: &Path<'_>) -> Vec<NodeIdPattern> {
        let Some(items) = tree.as_list() else {
            self.wrong("a list of node ids, such as [\"{1}\"]", tree, path);
            return Vec::new();
        };
        if items.len() == 0 {
            let text = "an empty list allows no node id; leave it out to allow all";
            self.bad("empty-list", text.to_owned(), tree, path);
        }
        let mut node_ids = Vec::new();
        if self.has_too_many(items, tree, path) {
            return node_ids;
        }
        for (index, item) in items.enumerate() {
            let path = path.index(index);
            match item.as_str().map(NodeIdPattern::new) {
                Some(Ok(pattern)) => node_ids.push(pattern),
                Some(Err(error)) => self.bad("bad-identity", error.to_string(), item, &path),
                None => self.wrong("a string", item, &path),
            }
        }
        node_ids
    }

    fn bad(&mut self, code: &'static str, message: String, tree: Node<'_>, path: &Path<'_>) {
        self.findings.push(Finding::error(code, path, message).at(tree.position()));
    }

    fn selector(&mut self, tree: Node<'_>, path: &Path<'_>) -> Option<Selector> {
        if !tree.is_object() {
            self.wrong("an object", tree, path);
            return None;
        }
        let mut selector = Selector::nothing();
        for entry in tree.entries().filter(|entry| !entry.value.is_null()) {
            let path_here = path.field(entry.key);
            match entry.key {
                "nodeIds" => selector.node_ids = self.globs(entry.value, &path_here),
                "clusters" => selector.clusters = self.globs(entry.value, &path_here),
                "userAgents" => selector.user_agents = self.globs(entry.value, &path_here),
                "metadata" => selector.metadata = self.metadata(entry.value, &path_here),
                "all" => match truth(entry.value) {
                    Some(all) => selector.all = all,
                    None => self.wrong("a bool", entry.value, &path_here),
                },
                _ => self.unknown(entry, path, &["nodeIds", "clusters", "metadata", "userAgents", "all"]),
            }
        }
        if self.findings.has_errors() {
            return Some(selector);
        }
        if selector.is_empty() {
            let text = "the selector has no condition; to select every node, write `all: true`";
            self.findings.push(Finding::error("empty-selector", path, text));
        }
        if selector.all && selector.has_conditions() {
            let text = "`all: true` cannot be combined with other conditions";
            self.findings.push(Finding::error("selector-conflict", path, text));
        }
        Some(selector)
    }

    fn globs(&mut self, tree: Node<'_>, path: &Path<'_>) -> Vec<Glob> {
        let Some(items) = tree.as_list() else {
            self.wrong("a list of strings", tree, path);
            return Vec::new();
        };
        if items.len() == 0 {
            self.findings.push(Finding::error(
                "empty-list",
                path,
                "an empty list selects nothing; leave it out",
            ));
        }
        let mut globs = Vec::new();
        if self.has_too_many(items, tree, path) {
            return globs;
        }
        for (index, item) in items.enumerate() {
            match item.as_str() {
                Some(text) => globs.push(Glob::new(text)),
                None => self.wrong("a string", item, &path.index(index)),
            }
        }
        globs
    }

    /// Reads `{path: value}` or `{path: [value, …]}`.
    fn metadata(&mut self, tree: Node<'_>, path: &Path<'_>) -> BTreeMap<String, Vec<Scalar>> {
        let TreeValue::Object(entries) = tree.value() else {
            self.wrong("an object", tree, path);
            return BTreeMap::new();
        };
        let mut metadata = BTreeMap::new();
        if entries.len() > MAX_CONDITIONS {
            let text = format!("{} conditions, at most {MAX_CONDITIONS} are allowed", entries.len());
            self.bad("too-many-items", text, tree, path);
            return metadata;
        }
        for entry in entries {
            let path = path.key(entry.key);
            let items = entry.value.as_list();
            if items.is_some_and(|items| self.has_too_many(items, entry.value, &path)) {
                continue;
            }
            if items.is_some_and(|items| items.len() == 0) {
                self.findings.push(Finding::error(
                    "empty-list",
                    &path,
                    "an empty list selects nothing; leave it out",
                ));
            }
            let mut values = Vec::new();
            let single = items.is_none().then_some(entry.value);
            for item in items.into_iter().flatten().chain(single) {
                match identity::scalar(item) {
                    Some(value) => values.push(value),
                    None => self.wrong("a string, a number or a bool", item, &path),
                }
            }
            metadata.insert(entry.key.to_owned(), values);
        }
        metadata
    }

    fn has_too_many(&mut self, items: Items<'_>, tree: Node<'_>, path: &Path<'_>) -> bool {
        let most = MAX_CONDITIONS + items.n_bytes() / 16;
        if items.len() > most {
            let text = format!("{} items, at most {most} are allowed in a list of that length", items.len());
            self.bad("too-many-items", text, tree, path);
        }
        items.len() > most
    }

    fn wrong(&mut self, expected: &str, tree: Node<'_>, path: &Path<'_>) {
        let text = format!("expected {expected}, found {}", tree.kind());
        self.findings.push(Finding::error("wrong-type", path, text).at(tree.position()));
    }

    fn unknown(&mut self, entry: Entry<'_>, path: &Path<'_>, known: &[&'static str]) {
        let key: String = entry.key.chars().take(80).collect();
        let finding = Finding::error("unknown-field", &path.field(&key), "unknown field in NodeGroup")
            .at(entry.position);
        self.findings.push(finding.suggest(nearest(&key, known.iter().copied())));
    }
}

fn join(name: Option<GroupName>, parts: Option<GroupParts>) -> Option<NodeGroup> {
    let parts = parts?;
    let GroupParts { selector, priority, client, waves, drain, identities } = parts;
    let identities = identities.into();
    let (name, selector) = (name?, selector?);
    Some(NodeGroup { name, selector, priority, client, waves, drain, identities, tries_identities: false })
}

/// The limit of conditions in one list, plus one for every 16 bytes of text. A condition takes some 60 bytes of memory.
const MAX_CONDITIONS: usize = 10_000;

/// A string, or a number as a string; empty for anything else.
fn text(tree: Node<'_>) -> String {
    match tree.value() {
        TreeValue::String(text) => text.to_owned(),
        TreeValue::Number(Number::Integer(integer)) => integer.to_string(),
        TreeValue::Number(Number::Float(float)) => float.to_string(),
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::List(_) | TreeValue::Object(_) => String::new(),
    }
}

/// A string, a number or a bool as a metadata value; empty for anything else.
fn scalar_text(tree: Node<'_>) -> String {
    identity::scalar(tree).map(|value| value.to_string()).unwrap_or_default()
}

fn integer(tree: Node<'_>) -> Option<i64> {
    if let TreeValue::Number(Number::Integer(integer)) = tree.value() {
        i64::try_from(integer).ok()
    } else {
        None
    }
}

fn truth(tree: Node<'_>) -> Option<bool> {
    if let TreeValue::Bool(truth) = tree.value() { Some(truth) } else { None }
}
