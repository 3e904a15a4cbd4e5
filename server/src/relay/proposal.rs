//! What all nodes hold, as files that are proposed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use xds_cache::layer::{LayerGroup, Resources};
use xds_cache::{GroupName, Layer, NodeGroup, ResourceType};
use xds_control::Control;
use xds_control::model::{
    Asked, FileLoad, FileObject, FileObjectKey, FileStatus, ReloadOutcome, Texts, WriteError,
};
use xds_relay::Identity;

/// Proposes what the nodes hold.
pub(super) struct Proposal {
    control: Control,
    groups: Vec<NodeGroup>,
    /// What was last proposed of each node, and how it looks as files: one for each type.
    last: Vec<(Resources, BTreeMap<ResourceType, FileStatus>)>,
}

impl Proposal {
    pub(super) fn new(identities: &[Identity], control: Control) -> Self {
        let groups: Vec<NodeGroup> = identities.iter().map(|identity| identity.group.clone()).collect();
        let last = groups.iter().map(|_| (Resources::new(), BTreeMap::new())).collect();
        Self { control, groups, last }
    }

    /// Proposes `holdings`, those of each node. Nothing is served before each of them has been whole once, so that no client is served less
    /// than it has.
    ///
    /// # Errors
    ///
    /// Why it is not taken, if somebody asked.
    pub(super) async fn propose(
        &mut self,
        holdings: &[Option<Resources>],
        asked: Asked,
    ) -> Result<ReloadOutcome, WriteError> {
        let is_served = self.control.served_load() != xds_control::model::ServedLoad::None;
        let is_whole = holdings.iter().all(Option::is_some);
        if !is_whole && !is_served {
            let outcome = ReloadOutcome {
                revision: self.control.overrides().0,
                difference: vec![],
                n_errors: 0,
                unconfirmed: Some("the relayed server has not sent everything yet".to_owned()),
            };
            return Ok(outcome);
        }
        let load = self.load(holdings);
        self.control.take_watched(load, asked).await
    }

    fn load(&mut self, holdings: &[Option<Resources>]) -> FileLoad {
        let mut layer = Layer::default();
        let mut files = BTreeMap::new();
        for ((group, holding), (before, statuses)) in self.groups.iter().zip(holdings).zip(&mut self.last) {
            let Some(resources) = holding else { continue };
            let is_defined = !group.name.is_default();
            let definition = is_defined.then(|| group.clone());
            // The store knows no group of which there is nothing.
            if is_defined || !resources.is_empty() {
                let entry = LayerGroup { definition, label: None, resources: resources.clone() };
                layer.groups.insert(group.name.clone(), entry);
            }
            for resource_type in reshaped(before, resources) {
                match status(&group.name, &resource_type, resources) {
                    Some(status) => _ = statuses.insert(resource_type, status),
                    None => _ = statuses.remove(&resource_type),
                }
            }
            *before = resources.clone();
            if is_defined {
                let status = file(path_of(&group.name), vec![object(&group.name, FileObjectKey::NodeGroup)]);
                files.insert(Arc::clone(&status.path), status);
            }
            files.extend(statuses.values().map(|status| (Arc::clone(&status.path), status.clone())));
        }
        FileLoad {
            layer,
            documents: Arc::default(),
            files,
            unusable: BTreeSet::new(),
            texts: Texts::default(),
            is_complete: true,
        }
    }
}

/// The path under which what a group is sent is shown.
pub(super) fn path_of(group: &GroupName) -> String {
    format!("relay/{group}")
}

/// The types of which there are other resources than before.
fn reshaped(before: &Resources, now: &Resources) -> BTreeSet<ResourceType> {
    let changes = before.diff(now).filter_map(|item| match item {
        imbl::ordmap::DiffItem::Add(key, _) | imbl::ordmap::DiffItem::Remove(key, _) => {
            Some(key.resource_type.clone())
        }
        imbl::ordmap::DiffItem::Update { .. } => None,
    });
    changes.collect()
}

/// All resources of a type, as one file.
fn status(group: &GroupName, resource_type: &ResourceType, resources: &Resources) -> Option<FileStatus> {
    let all = resources.keys().filter(|key| key.resource_type == *resource_type);
    let objects: Vec<FileObject> =
        all.map(|key| object(group, FileObjectKey::Resource(Arc::clone(key)))).collect();
    (!objects.is_empty()).then(|| file(format!("{}/{}", path_of(group), resource_type.slug()), objects))
}

fn object(group: &GroupName, key: FileObjectKey) -> FileObject {
    FileObject { group: group.clone(), key, line: 0, column: 0, is_last_good: false }
}

fn file(path: String, objects: Vec<FileObject>) -> FileStatus {
    FileStatus {
        path: path.into(),
        hash: None,
        loaded_at: SystemTime::now(),
        objects: objects.into(),
        diagnostics: vec![],
        is_last_good: false,
    }
}
