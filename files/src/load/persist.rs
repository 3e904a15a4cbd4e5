//! Last good copies: the part of a state that survives a restart.
//!
//! One copy per file, under the file's path: its last good node group, resources and route documents, and which of them are
//! served. Copies hold secrets; [`LastGood`](xds_store::LastGood) keeps them from others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xds_cache::group::Glob;
use xds_cache::{
    DrainPolicy, GroupName, Identity, NodeGroup, Origin, Profile, Reference, Resource, ResourceDraft,
    ResourceKey, ResourceType, Scalar, Selector,
};
use xds_codec::{Place, Tree};
use xds_control::model::group;
use xds_control::model::wave::PolicyRecord;
use xds_routes::{Document, Kind, ReadOutcome, UnknownFields};

use super::content::{Content, Good, GoodGroup, Key, ObjectId, Served};
use super::files::{DirectoryGroup, FileState, parent};
use super::parsed::Parsed;
use super::state::FilesState;

/// The copy of one file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct FileCopy {
    group: Option<GroupCopy>,
    resources: Vec<ResourceCopy>,
    /// Absent in copies of versions that knew no documents.
    #[serde(default)]
    documents: Vec<DocumentCopy>,
}

#[derive(Debug, Serialize, Deserialize)]
struct GroupCopy {
    name: String,
    all: bool,
    node_ids: Vec<String>,
    clusters: Vec<String>,
    user_agents: Vec<String>,
    metadata: BTreeMap<String, Vec<ScalarCopy>>,
    priority: i64,
    client: Option<String>,
    /// The texts of its policy for waves; absent in copies of versions that knew none.
    #[serde(default)]
    waves: Option<PolicyRecord>,
    /// Absent in copies of versions that knew none.
    #[serde(default)]
    drain: DrainCopy,
    /// As JSON of a document; absent in copies of versions that knew none.
    #[serde(default)]
    identities: Vec<Value>,
    line: u32,
    column: u32,
    /// True if it is the group of its directory.
    is_used: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct DrainCopy {
    endpoints: Option<Duration>,
    clusters: Option<Duration>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ScalarCopy {
    String(String),
    Number(f64),
    Bool(bool),
}

#[derive(Debug, Serialize, Deserialize)]
struct ResourceCopy {
    type_url: String,
    name: String,
    value: String,
    ttl: Option<Duration>,
    aliases: Vec<String>,
    /// Type URL, name and field path.
    references: Vec<(String, String, String)>,
    in_wildcard: bool,
    line: u32,
    column: u32,
    /// The group in which it is served, if it is.
    served_in: Option<String>,
}

/// A document as it was written; it is read again when it is restored.
#[derive(Debug, Serialize, Deserialize)]
struct DocumentCopy {
    kind: String,
    namespace: String,
    name: String,
    source: Value,
    line: u32,
    column: u32,
    /// The group in which it is served, if it is.
    served_in: Option<String>,
}

/// The differences between the copies of two states: new content by path, `None` for copies that go.
pub fn changed_copies(saved: &FilesState, state: &FilesState) -> BTreeMap<Arc<str>, Option<Vec<u8>>> {
    let mut changed = BTreeMap::new();
    for (path, file) in &state.files {
        let is_same_file = saved.files.get(path).is_some_and(|other| Arc::ptr_eq(other, file));
        let is_same_group = used_group(saved, path) == used_group(state, path);
        let of = |state: &FilesState| state.objects.files.get(path).map(Arc::as_ptr);
        if !(is_same_file && is_same_group && of(saved) == of(state)) {
            let copy = FileCopy::new(file, used_group(state, path), &state.objects.owned_by(path, file));
            changed.insert(Arc::clone(path), serde_json::to_vec(&copy).ok());
        }
    }
    for path in saved.files.keys().filter(|path| !state.files.contains_key(*path)) {
        changed.insert(Arc::clone(path), None);
    }
    changed
}

/// The state in the copies; empty if there are none. Damaged copies are left out, and returned by name.
pub fn restore(copies: &BTreeMap<String, bytes::Bytes>, now: SystemTime) -> (FilesState, Vec<String>) {
    let mut state = FilesState::default();
    let mut damaged = Vec::new();
    for (path, copy) in copies {
        match serde_json::from_slice::<FileCopy>(copy) {
            // A group that has lost its identities would be anybody's.
            Ok(copy) if copy.group.as_ref().is_none_or(|group| identities(&group.identities).is_some()) => {
                copy.restore(&path.as_str().into(), now, &mut state);
                state.is_complete = true;
            }
            Ok(_) | Err(_) => damaged.push(path.clone()),
        }
    }
    state.objects.define(&state.definitions);
    (state, damaged)
}

fn used_group<'a>(state: &'a FilesState, path: &Arc<str>) -> Option<&'a DirectoryGroup> {
    state.directories.get(parent(path)).filter(|group| group.path == *path && !group.is_leaving)
}

impl FileCopy {
    fn new(
        file: &FileState,
        used_group: Option<&DirectoryGroup>,
        served: &BTreeMap<ObjectId, &Served>,
    ) -> Self {
        let owned: BTreeMap<_, _> =
            served.iter().map(|(id, object)| (&id.key, (&object.group, &object.content))).collect();
        let mut copy = Self::default();
        let good: BTreeMap<_, _> = file.good().collect();
        for (key, good) in &good {
            let served_in = owned.get(*key).map(|(group, _)| group.as_str().to_owned());
            copy.push(&good.content, &good.place, served_in);
        }
        // Objects that the file took over from another one, and never had a good version of.
        let nowhere = Place { file: "".into(), line: 0, column: 0 };
        for (_, (group, content)) in owned.iter().filter(|(key, _)| !good.contains_key(**key)) {
            copy.push(content, &nowhere, Some(group.to_string()));
        }
        copy.group = match (used_group, &file.group) {
            (Some(used), _) => Some(GroupCopy::new(&used.definition, &used.place, true)),
            (None, Some(group)) => Some(GroupCopy::new(&group.definition, &group.place, false)),
            (None, None) => None,
        };
        copy
    }

    fn push(&mut self, content: &Content, place: &Place, served_in: Option<String>) {
        match content {
            Content::Resource(resource) => {
                self.resources.push(ResourceCopy::new(resource, place, served_in));
            }
            Content::Document(document) => {
                self.documents.push(DocumentCopy::new(document, place, served_in));
            }
        }
    }

    fn restore(self, path: &Arc<str>, now: SystemTime, state: &mut FilesState) {
        let mut file = FileState::new(now);
        // Nothing is known of the present content, as if it were broken.
        file.parsed = Arc::new(Parsed { is_broken: true, ..Parsed::default() });
        if let Some(group) = self.group {
            let is_used = group.is_used;
            file.group = group.restore(path);
            if let Some(GoodGroup { definition, place }) = file.group.clone().filter(|_| is_used) {
                state.definitions.insert(definition.name.clone(), definition.clone());
                let group = DirectoryGroup { path: Arc::clone(path), definition, place, is_leaving: false };
                state.directories.insert(parent(path).into(), group);
            }
        }
        let resources = self.resources.into_iter().filter_map(|copy| {
            let served_in = copy.served_in.clone();
            let (resource, place) = copy.restore(path)?;
            let key = Key::Resource(Arc::new(resource.key().clone()));
            Some((key, Content::Resource(resource), place, served_in))
        });
        let documents = self.documents.into_iter().filter_map(|copy| {
            let served_in = copy.served_in.clone();
            let (document, place) = copy.restore(path)?;
            Some((Key::Document(document.key.clone()), Content::Document(document), place, served_in))
        });
        for (key, content, place, served_in) in resources.chain(documents) {
            if let Some(group) = served_in.and_then(|name| GroupName::new(&name).ok()) {
                let id = ObjectId::new(&group, key.clone());
                let (content, place) = (content.clone(), place.clone());
                let served = Served { content, group, place, is_last_good: true, is_good: true };
                state.objects.put(id, Some(served));
            }
            file.earlier.insert(key, Good { content, place });
        }
        state.files.insert(Arc::clone(path), Arc::new(file));
    }
}

/// `None` if this version cannot read them.
fn identities(copy: &[Value]) -> Option<Arc<[Identity]>> {
    if copy.is_empty() {
        return Some(Arc::default());
    }
    xds_codec::identities_from_json(&Value::from(copy)).ok().map(Arc::from)
}

impl DocumentCopy {
    fn new(document: &Document, place: &Place, served_in: Option<String>) -> Self {
        Self {
            kind: document.key.kind.as_str().to_owned(),
            namespace: document.key.namespace.to_string(),
            name: document.key.name.to_string(),
            source: document.source.json(),
            line: place.line,
            column: place.column,
            served_in,
        }
    }

    /// `None` if this version reads it otherwise than the one that wrote it.
    fn restore(self, path: &Arc<str>) -> Option<(Arc<Document>, Place)> {
        let place = Place { file: Arc::clone(path), line: self.line, column: self.column };
        let source = Tree::from_json(&self.source);
        let ReadOutcome::Objects(objects) = xds_routes::read(path, &source, UnknownFields::Accepted) else {
            return None;
        };
        let kind = Kind::of_name(&self.kind)?;
        let is_it = |document: &Document| {
            let key = &document.key;
            key.kind == kind && *key.namespace == *self.namespace && *key.name == *self.name
        };
        let documents = objects.into_iter().filter_map(|object| object.outcome.ok());
        let document = documents.map(|(document, _)| document).find(|document| is_it(document))?;
        let document = Document { place: place.clone(), ..(*document).clone() };
        Some((Arc::new(document), place))
    }
}

impl ResourceCopy {
    fn new(resource: &Resource, place: &Place, served_in: Option<String>) -> Self {
        let references = resource.references().into_iter().map(|reference| {
            let ResourceKey { resource_type, name } = &*reference.to;
            (resource_type.type_url().to_owned(), name.to_string(), reference.path.to_string())
        });
        Self {
            type_url: resource.resource_type().type_url().to_owned(),
            name: resource.name().to_string(),
            value: BASE64.encode(&**resource.value()),
            ttl: resource.ttl(),
            aliases: resource.aliases().iter().map(ToString::to_string).collect(),
            references: references.collect(),
            in_wildcard: resource.in_wildcard(),
            line: place.line,
            column: place.column,
            served_in,
        }
    }

    fn restore(self, path: &Arc<str>) -> Option<(Arc<Resource>, Place)> {
        let (line, column) = (self.line, self.column);
        let key = |type_url: &str, name: &str| {
            Arc::new(ResourceKey { resource_type: ResourceType::from_type_url(type_url), name: name.into() })
        };
        let references = self
            .references
            .iter()
            .map(|(type_url, name, path)| Reference { to: key(type_url, name), path: path.as_str().into() });
        let draft = ResourceDraft {
            key: key(&self.type_url, &self.name),
            value: BASE64.decode(&self.value).ok()?.into(),
            ttl: self.ttl,
            aliases: self.aliases.iter().map(|alias| alias.as_str().into()).collect(),
            references: references.collect(),
            origin: Origin::File { path: Arc::clone(path), line, column },
            in_wildcard: self.in_wildcard,
            host_pattern: false,
        };
        let place = Place { file: Arc::clone(path), line, column };
        Some((Arc::new(Resource::new(draft)), place))
    }
}

impl GroupCopy {
    fn new(definition: &NodeGroup, place: &Place, is_used: bool) -> Self {
        let NodeGroup { name, selector, priority, client, waves, drain, identities, tries_identities: _ } =
            definition;
        let globs = |globs: &[Glob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect();
        let scalar = |scalar: &Scalar| match scalar {
            Scalar::String(text) => ScalarCopy::String(text.clone()),
            Scalar::Number(number) => ScalarCopy::Number(*number),
            Scalar::Bool(truth) => ScalarCopy::Bool(*truth),
        };
        let values = |values: &Vec<Scalar>| values.iter().map(scalar).collect();
        Self {
            name: name.as_str().to_owned(),
            all: selector.all,
            node_ids: globs(&selector.node_ids),
            clusters: globs(&selector.clusters),
            user_agents: globs(&selector.user_agents),
            metadata: selector.metadata.iter().map(|(path, of)| (path.clone(), values(of))).collect(),
            priority: *priority,
            client: client.map(|profile| profile.as_str().to_owned()),
            waves: waves.as_ref().map(PolicyRecord::from),
            drain: DrainCopy { endpoints: drain.endpoints, clusters: drain.clusters },
            identities: group::identities_to_json(identities),
            line: place.line,
            column: place.column,
            is_used,
        }
    }

    fn restore(self, path: &Arc<str>) -> Option<GoodGroup> {
        let globs = |globs: Vec<String>| globs.iter().map(|glob| Glob::new(glob)).collect();
        let scalar = |scalar| match scalar {
            ScalarCopy::String(text) => Scalar::String(text),
            ScalarCopy::Number(number) => Scalar::Number(number),
            ScalarCopy::Bool(truth) => Scalar::Bool(truth),
        };
        let metadata = self.metadata.into_iter();
        let selector = Selector {
            all: self.all,
            node_ids: globs(self.node_ids),
            clusters: globs(self.clusters),
            user_agents: globs(self.user_agents),
            metadata: metadata.map(|(path, of)| (path, of.into_iter().map(scalar).collect())).collect(),
        };
        let client = [Profile::Envoy, Profile::Grpc]
            .into_iter()
            .find(|profile| self.client.as_deref() == Some(profile.as_str()));
        let name = GroupName::new(&self.name).ok()?;
        let identities = identities(&self.identities)?;
        let waves = self.waves.and_then(|waves| waves.read().ok());
        let drain = DrainPolicy { endpoints: self.drain.endpoints, clusters: self.drain.clusters };
        let priority = self.priority;
        let tries_identities = false;
        let definition =
            NodeGroup { name, selector, priority, client, waves, drain, identities, tries_identities };
        Some(GoodGroup {
            definition,
            place: Place { file: Arc::clone(path), line: self.line, column: self.column },
        })
    }
}
