//! Tests of the control against a store in memory, which fails on demand, and against the real one.

mod access;
mod acked;
mod acks_waited;
mod ages;
mod catch_up;
mod clock;
mod documents;
mod endpoints;
mod events;
mod explain;
mod files;
mod fleet;
mod fuzz;
mod history;
mod lists;
mod model;
mod oracle;
mod past;
mod peers;
mod places;
mod queue;
mod repeats;
mod rest;
mod rest_documents;
mod rollouts;
mod route_tests;
mod scopes;
mod secrets;
mod served_first;
mod shared;
mod shared_files;
mod store;
mod waves;
mod weights;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use tokio::sync::broadcast;
use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::loads::{LoadBoard, LoadLimits};
use xds_cache::{
    GroupName, Layer, NodeGroup, Origin, Profile, Publisher, Resource, ResourceDraft, ResourceKey,
    ResourceType, Revision, StatusBoard,
};
use xds_codec::Codec;
use xds_control::acks::{Acks, view_key_of_group};
use xds_control::model::Texts;
use xds_control::model::{Asked, FileLoad};
use xds_control::model::{
    Event, FileObject, FileObjectKey, FileStatus, ReloadOutcome, Write, WriteError, WriteOptions,
    WriteOutcome,
};
use xds_control::{Control, ControlParts, Options, Sharing, Verify};
use xds_store::Store;

use self::store::MemoryStore;

/// A control with all that it stands on.
struct Server {
    loads: Arc<LoadBoard>,
    control: Control,
    publisher: Arc<Publisher>,
    board: Arc<StatusBoard>,
    acks: Arc<Acks>,
    /// Work that ends with the server.
    tasks: Vec<Task>,
}

/// A task that ends when this is dropped.
struct Task(tokio::task::AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    /// Each translation is compared with a whole one.
    fn open(store: Arc<dyn Store>, options: Options) -> Self {
        Self::open_as_is(store, Options { verify: Verify::Always, ..options })
    }

    fn open_as_is(store: Arc<dyn Store>, options: Options) -> Self {
        Self::open_with(store, options, None)
    }

    fn open_with(
        store: Arc<dyn Store>,
        options: Options,
        oracle: Option<Arc<dyn xds_control::Oracle>>,
    ) -> Self {
        let publisher = Arc::new(Publisher::new());
        let board = StatusBoard::new();
        let acks = Arc::new(Acks::new(Arc::clone(&publisher), Arc::clone(&board)));
        let loads = Arc::new(LoadBoard::new(LoadLimits::default()));
        let parts = ControlParts {
            loads: Arc::clone(&loads),
            codec: codec(),
            store,
            publisher: Arc::clone(&publisher),
            board: Arc::clone(&board),
            acks: Arc::clone(&acks),
            observer: None,
            oracle,
        };
        let control = Control::open(parts, options).unwrap();
        Self { loads, control, publisher, board, acks, tasks: vec![] }
    }

    /// The server, which follows its wave deployments until it is dropped.
    fn following_waves(mut self) -> Self {
        self.tasks.push(Task(tokio::spawn(self.control.clone().follow_waves()).abort_handle()));
        self
    }

    fn without_files(store: &Arc<MemoryStore>) -> Self {
        Self::open(Arc::clone(store) as Arc<dyn Store>, Options::default())
    }

    fn with_files(store: &Arc<MemoryStore>) -> Self {
        Self::open(Arc::clone(store) as Arc<dyn Store>, Options { watches_files: true, ..Options::default() })
    }

    async fn write(&self, write: Write) -> Result<WriteOutcome, WriteError> {
        self.control.write(write, WriteOptions { actor: "test".to_owned(), ..WriteOptions::default() }).await
    }

    /// The resources that a client of exactly this group is served, by name.
    fn served(&self, name: &str) -> BTreeMap<String, String> {
        let view = self.publisher.view_at(&view_key_of_group(&group(name), Profile::Envoy)).unwrap();
        view.resources().map(|resource| (resource.name().to_string(), text(resource))).collect()
    }

    fn revision(&self) -> u64 {
        self.control.overrides().0.0
    }
}

/// Making a codec takes long; all tests share one.
pub(super) fn codec() -> Codec {
    static CODEC: std::sync::LazyLock<Codec> = std::sync::LazyLock::new(|| Codec::new().unwrap());
    CODEC.clone()
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn key(name: &str) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::Cluster, name: name.into() }
}

/// A cluster that differs by a text, its `alt_stat_name`.
fn cluster(name: &str, text: &str) -> Arc<Resource> {
    let body = json!({
        "@type": ResourceType::Cluster.type_url(), "name": name, "alt_stat_name": text, "connect_timeout": "1s",
    });
    Arc::new(codec().resource_from_json(&body).unwrap())
}

/// A certificate that is public and its private key.
fn secret(private: &str) -> Resource {
    let body = json!({
        "@type": ResourceType::Secret.type_url(), "name": "s",
        "tls_certificate": {"certificate_chain": {"inline_string": "public"}, "private_key": {"inline_string": private}},
    });
    codec().resource_from_json(&body).unwrap()
}

fn secret_of_file(private: &str) -> Arc<Resource> {
    let origin = Origin::File { path: "routes/a.yaml".into(), line: 1, column: 1 };
    Arc::new(Resource::new(ResourceDraft { origin, ..secret(private).to_draft() }))
}

fn text(resource: &Resource) -> String {
    codec()
        .to_json(resource)
        .get("alt_stat_name")
        .and_then(|text| text.as_str())
        .unwrap_or_default()
        .to_owned()
}

fn resources(content: &[(&str, &str)]) -> Resources {
    content.iter().map(|(name, text)| cluster(name, text)).collect()
}

fn replace(name: &str, content: &[(&str, &str)]) -> Write {
    Write::ReplaceResources { group: group(name), label: None, resources: resources(content) }
}

fn put(name: &str, resource: &str, text: &str) -> Write {
    Write::PutResource { group: group(name), resource: cluster(resource, text) }
}

fn delete(name: &str, resource: &str) -> Write {
    Write::DeleteResource { group: group(name), key: key(resource) }
}

/// Ways in for files.
trait TakeFiles {
    /// Takes in files for somebody who asks for what differs.
    async fn load_files(&self, load: FileLoad) -> Result<ReloadOutcome, WriteError>;
    /// Takes in files without holding anything back.
    async fn confirm_files(&self, load: FileLoad) -> Result<ReloadOutcome, WriteError>;
}

impl TakeFiles for Control {
    async fn load_files(&self, load: FileLoad) -> Result<ReloadOutcome, WriteError> {
        self.take_files(load, Asked::Plainly).await
    }

    async fn confirm_files(&self, load: FileLoad) -> Result<ReloadOutcome, WriteError> {
        self.take_files(load, Asked::Confirmed).await
    }
}

/// A load with these clusters by group, each in a line of its own.
fn load(groups: &[(&str, &[(&str, &str)])]) -> FileLoad {
    load_at(groups, 1)
}

fn load_at(groups: &[(&str, &[(&str, &str)])], first_line: u32) -> FileLoad {
    let mut layer = Layer::default();
    let mut line = first_line;
    for (name, content) in groups {
        let mut resources = Resources::new();
        for (resource, text) in *content {
            let draft = cluster(resource, text).to_draft();
            let origin = Origin::File { path: "routes/a.yaml".into(), line, column: 1 };
            resources.insert(Arc::new(Resource::new(ResourceDraft { origin, ..draft })));
            line += 1;
        }
        let definition = (*name != "default").then(|| NodeGroup::for_node_id(group(name)));
        layer.groups.insert(group(name), LayerGroup { definition, label: None, resources });
    }
    let objects = layer
        .groups
        .keys()
        .map(|name| FileObject {
            group: name.clone(),
            key: FileObjectKey::NodeGroup,
            line: 3,
            column: 1,
            is_last_good: false,
        })
        .collect();
    let status = FileStatus {
        path: "routes/a.yaml".into(),
        hash: None,
        loaded_at: SystemTime::UNIX_EPOCH,
        objects,
        diagnostics: vec![],
        is_last_good: false,
    };
    FileLoad {
        layer,
        documents: Arc::default(),
        files: BTreeMap::from([("routes/a.yaml".into(), status)]),
        unusable: BTreeSet::new(),
        texts: Texts::default(),
        is_complete: true,
    }
}

fn pairs(content: &[(&str, &str)]) -> BTreeMap<String, String> {
    content.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn told(events: &mut broadcast::Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

fn rollback(to: u64) -> Write {
    Write::Rollback { to: Revision(to) }
}
