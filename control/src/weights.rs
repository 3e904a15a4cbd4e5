//! Weights: overrides laid over what documents and RouteConfigurations say, and how they change (§5.3 of the inputs paper).
//!
//! What an override means and becomes is computed in [`crate::model::weights`]; here it meets the state. Overrides are laid over
//! documents before these are translated, and over RouteConfigurations when groups are merged, so nothing that comes after
//! knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Duration, sleep};
use xds_cache::layer::Resources;
use xds_cache::time::millis;
use xds_cache::{GroupName, Groups, Layer, Resource, ResourceKey, ResourceType};
use xds_codec::weights::RuleWeights;
use xds_codec::{Codec, Diagnostic};
use xds_routes::{Document, Documents};

use super::candidate::{Candidate, warning};
use super::key::StoreKey;
use super::plan::{MAX_DIFFERENCE, Plan};
use super::state::{Patch, World};
use super::{Control, Shared, rollouts};
use crate::model::document::GroupedDocuments;
use crate::model::rollouts::{RolloutRecord, RolloutRecords};
use crate::model::weights::change::{ChangeFault, WeightChange};
use crate::model::weights::reconcile::{Dropped, Source, next_end, reconcile};
use crate::model::weights::{
    Overrides, RuleKey, RuleOverride, WEIGHT_SOURCE, WeightedObject, effective, overlays, tag,
};
use crate::model::{ChangedObject, Event, WaveChoice, Write, WriteError, WriteOptions};

/// New overrides; `None` takes one away.
pub(crate) type WeightPatch = BTreeMap<RuleKey, Option<RuleOverride>>;

/// Overrides with a patch laid over them.
pub(crate) fn patched(overrides: &Overrides, patch: &WeightPatch) -> Overrides {
    let mut overrides = overrides.clone();
    for (key, over) in patch {
        match over {
            Some(over) => _ = overrides.insert(key.clone(), over.clone()),
            None => _ = overrides.remove(key),
        }
    }
    overrides
}

/// Lays overrides over documents.
pub(crate) fn lay_documents(documents: &mut Documents, overrides: &Overrides) {
    let objects: BTreeSet<&WeightedObject> = overrides.keys().map(|key| &key.object).collect();
    for object in objects {
        let WeightedObject::Document(key) = object else { continue };
        if let Some(placed) = documents.get_mut(key) {
            placed.document = xds_routes::weights::lay(&placed.document, &overlays(overrides, object));
        }
    }
}

/// Lays overrides over the RouteConfigurations of a group.
pub(crate) fn lay_resources(
    codec: &Codec,
    name: &GroupName,
    resources: &mut Resources,
    overrides: &Overrides,
) {
    for object in routes_of(overrides).filter(|object| object.namespace() == name.as_str()) {
        let Some(resource) = resources.get_mut(&routes_key(object.name())) else { continue };
        if let Some(laid) = xds_codec::weights::lay(codec, resource, &overlays(overrides, object)) {
            *resource = Arc::new(laid);
        }
    }
}

/// The same for all groups.
pub(crate) fn lay_groups(codec: &Codec, groups: &mut Groups, overrides: &Overrides) {
    for name in groups_of(overrides) {
        if let Some(group) = groups.get_mut(name) {
            lay_resources(codec, name, &mut Arc::make_mut(group).resources, overrides);
        }
    }
}

/// The groups whose RouteConfigurations have overrides.
pub(crate) fn groups_of(overrides: &Overrides) -> BTreeSet<&GroupName> {
    let mut groups = BTreeSet::new();
    for key in overrides.keys() {
        if let WeightedObject::Routes(group, _) = &key.object {
            groups.insert(group);
        }
    }
    groups
}

/// The RouteConfigurations that have overrides, each once.
fn routes_of(overrides: &Overrides) -> impl Iterator<Item = &WeightedObject> {
    let objects: BTreeSet<&WeightedObject> = overrides.keys().map(|key| &key.object).collect();
    objects.into_iter().filter(|object| matches!(object, WeightedObject::Routes(..)))
}

fn routes_key(name: &str) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::RouteConfiguration, name: name.into() }
}

/// What objects say, as a change leaves them.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    pub(crate) codec: &'a Codec,
    pub(crate) files: &'a GroupedDocuments,
    pub(crate) owned: &'a GroupedDocuments,
    pub(crate) base: &'a Layer,
    pub(crate) overrides: &'a Layer,
    pub(crate) rollouts: &'a RolloutRecords,
    /// Laid over `overrides`.
    pub(crate) patch: &'a Patch,
}

/// The objects whose overrides only time changes, because a wave deployment holds what they were.
pub(crate) type Resting = BTreeSet<WeightedObject>;

impl<'a> Objects<'a> {
    fn document(&self, object: &WeightedObject) -> Option<&'a Arc<Document>> {
        let WeightedObject::Document(key) = object else { return None };
        self.owned.get(key).or_else(|| self.files.get(key)).map(|grouped| &grouped.document)
    }

    fn resource(&self, object: &WeightedObject) -> Option<&'a Arc<Resource>> {
        let WeightedObject::Routes(group, name) = object else { return None };
        let key = routes_key(name);
        let owned = match self.patch.get(group) {
            Some(patched) => patched.as_ref().map(|group| &group.resources),
            None => self.overrides.resources(group),
        };
        owned.and_then(|owned| owned.get(&key)).or_else(|| self.base.resources(group)?.get(&key))
    }

    /// The rules of an object; `None` if it is not there.
    pub(crate) fn rules(&self, object: &WeightedObject) -> Option<Vec<RuleWeights>> {
        match object {
            WeightedObject::Document(_) => xds_routes::weights::rules(self.document(object)?),
            WeightedObject::Routes(..) => Some(xds_codec::weights::rules(self.codec, self.resource(object)?)),
        }
    }

    /// The overrides as they are with these objects, and what was dropped of them. Those of `resting` objects are laid over
    /// what was before too, so what the objects say by now is not held against them.
    pub(crate) fn reconcile(
        &self,
        overrides: &Overrides,
        resting: &Resting,
        now: SystemTime,
    ) -> (Overrides, Vec<Dropped>) {
        let objects: BTreeSet<&WeightedObject> = overrides.keys().map(|key| &key.object).collect();
        let rules: BTreeMap<&WeightedObject, Option<Vec<RuleWeights>>> =
            objects.into_iter().map(|object| (object, self.rules(object))).collect();
        let owned: BTreeSet<RuleKey> =
            self.rollouts.values().filter_map(|record| RolloutRecord::owned_rule(record)).collect();
        let source = |key: &RuleKey| {
            if resting.contains(&key.object) {
                let backends = overrides.get(key)?.base.clone().into_iter().collect();
                let rule = RuleWeights { id: key.rule.to_string(), backends };
                return Some(Source { rule, wins: false, is_owned: owned.contains(key) });
            }
            let rule = rules.get(&key.object)?.as_ref()?.iter().find(|rule| *rule.id == *key.rule)?.clone();
            let document = self.document(&key.object);
            let wins = document.is_some_and(|one| one.meta.annotation(WEIGHT_SOURCE) == Some("file"));
            Some(Source { rule, wins, is_owned: owned.contains(key) })
        };
        reconcile(overrides, source, millis(now))
    }
}

/// What the object of a rule says of it.
pub(crate) fn rule(world: &World, key: &RuleKey) -> Result<RuleWeights, WriteError> {
    let rules = world.objects(&Patch::new()).rules(&key.object);
    let rules = rules.ok_or_else(|| WriteError::NotFound { what: key.object.to_string() })?;
    if let Some(rule) = rules.iter().find(|rule| *rule.id == *key.rule) {
        return Ok(rule.clone());
    }
    let (object, rule) = (key.object.to_string(), key.rule.to_string());
    let rules = rules.into_iter().map(|rule| rule.id).collect();
    Err(WriteError::NoRule { object, rule, rules })
}

/// Builds the candidate of a change of one rule's weights by hand.
pub(crate) fn change_by_hand(
    world: &World,
    key: &RuleKey,
    wanted: &WeightChange,
    options: &WriteOptions,
) -> Result<Candidate, WriteError> {
    rollouts::refuse_owned(world, key)?;
    change(world, key, wanted, options)
}

/// Builds the candidate of a change of one rule's weights.
pub(crate) fn change(
    world: &World,
    key: &RuleKey,
    change: &WeightChange,
    options: &WriteOptions,
) -> Result<Candidate, WriteError> {
    let rule = &rule(world, key)?;
    let present = world.documents.weights.get(key);
    let current = tag(rule, present);
    let holds = options.if_match.as_ref().is_none_or(|tags| tags.matches(Some(&current)))
        && options.if_none_match.as_ref().is_none_or(|tags| !tags.matches(Some(&current)));
    if !holds {
        let overlay = present.map(|present| present.overlay.clone()).unwrap_or_default();
        return Err(WriteError::StaleWeights { current, weights: effective(rule, &overlay) });
    }
    let has_header_routes = change.header_routes.as_ref().is_some_and(|list| !list.is_empty());
    if let WeightedObject::Document(document) = &key.object
        && has_header_routes
        && !xds_routes::weights::takes_header_routes(document.kind)
    {
        return Err(ChangeFault::NoHeaderRoutes.into());
    }
    let after = change.apply(rule, present)?;
    let weights = match &after {
        Some(after) => effective(rule, &after.overlay),
        None => rule.backends.clone(),
    };
    let weights: Vec<String> = weights.iter().map(|(key, weight)| format!("{key}={weight}")).collect();
    let verb = if after.is_some() { "set" } else { "take back" };
    let summary = format!("{verb} the weights of {key}: {}", weights.join(" "));
    let weights = WeightPatch::from([(key.clone(), after)]);
    Ok(Candidate { weights, source: "api", summary, ..Candidate::default() })
}

/// The candidate of dropping what has ended; what that is shows when it is reconciled.
pub(crate) fn end() -> Candidate {
    let summary = "drop overrides of weights whose time is up".to_owned();
    Candidate { source: "expiry", summary, ..Candidate::default() }
}

/// What has to be stored so that one set of overrides becomes another.
pub(crate) fn plan(before: &Overrides, after: &Overrides) -> Plan {
    let changed = changed(before, after);
    changed.map(|key| (StoreKey::Weights(key.clone()), after.get(key).map(record))).collect()
}

fn changed<'o>(before: &'o Overrides, after: &'o Overrides) -> impl Iterator<Item = &'o RuleKey> {
    let keys: BTreeSet<&RuleKey> = before.keys().chain(after.keys()).collect();
    keys.into_iter().filter(|key| before.get(*key) != after.get(*key))
}

/// Adds what differs: the overrides, and the RouteConfigurations under them.
pub(crate) fn difference(
    codec: &Codec,
    (before, after): (&Overrides, &Overrides),
    (old, new): (&Groups, &Groups),
    changed_objects: &mut Vec<ChangedObject>,
) {
    let mut routes = BTreeSet::new();
    for key in changed(before, after) {
        if changed_objects.len() >= MAX_DIFFERENCE {
            return;
        }
        let json = |over: &RuleOverride| serde_json::to_value(over).unwrap_or(Value::Null);
        let (what, before, after) = (key.what(), before.get(key).map(json), after.get(key).map(json));
        changed_objects.push(ChangedObject { what, before, after });
        if let WeightedObject::Routes(group, name) = &key.object {
            routes.insert((group, name));
        }
    }
    for (group, name) in routes {
        let key = routes_key(name);
        let what = super::key::resource_name(group, &key);
        let of = |groups: &Groups| groups.get(group).and_then(|group| group.resources.get(&key)).cloned();
        let (old, new) = (of(old), of(new));
        if old != new && changed_objects.iter().all(|one| one.what != what) {
            let json = |resource: Arc<Resource>| codec.to_json(&resource);
            changed_objects.push(ChangedObject { what, before: old.map(json), after: new.map(json) });
        }
    }
}

/// An override as it is stored.
pub(crate) fn record(over: &RuleOverride) -> Bytes {
    // Texts and numbers always have a JSON form.
    serde_json::to_vec(over).unwrap_or_default().into()
}

/// Reads what [`record`] wrote.
///
/// # Errors
///
/// Says why it cannot be read.
pub(crate) fn read_record(value: &[u8]) -> Result<RuleOverride, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// What was dropped, as warnings of the write that caused it.
pub(crate) fn warnings(dropped: &[Dropped]) -> Vec<Diagnostic> {
    let text = |one: &Dropped| match &one.backend {
        Some(backend) => format!("what is laid over {backend} in {} is dropped: {}", one.key, one.reason),
        None => format!("the override of {} is dropped: {}", one.key, one.reason),
    };
    dropped.iter().map(|one| warning("override-dropped", "", text(one))).collect()
}

/// The events of what was dropped.
pub(crate) fn events(dropped: &[Dropped]) -> impl Iterator<Item = Event> {
    dropped.iter().map(|one| Event::OverrideDropped {
        what: one.key.what(),
        reason: match &one.backend {
            Some(backend) => format!("{backend}: {}", one.reason),
            None => one.reason.to_owned(),
        },
    })
}

/// Whether something has ended by now.
pub(crate) fn is_due(overrides: &Overrides, now: SystemTime) -> bool {
    next_end(overrides).is_some_and(|end| end <= millis(now))
}

impl Control {
    /// Drops overrides when their time is up, for ever.
    pub async fn end_overrides(self) {
        loop {
            let changed = self.shared.weights_changed.notified();
            let end = next_end(&self.documents().weights);
            let wait = end.map(|end| Duration::from_millis(end.saturating_sub(millis(SystemTime::now()))));
            // The clock may be set while this waits.
            let wait = wait.map_or(MAX_WAIT, |wait| wait.min(MAX_WAIT));
            tokio::select! {
                () = changed => continue,
                () = sleep(wait) => {}
            }
            if !is_due(&self.documents().weights, SystemTime::now()) {
                continue;
            }
            // Time is up for everyone.
            let (actor, waves) = ("clock".to_owned(), WaveChoice::AtOnce);
            let options = WriteOptions { actor, waves, ..WriteOptions::default() };
            if let Err(error) = self.write(Write::EndOverrides, options).await {
                tracing::warn!(%error, "overrides whose time is up could not be dropped yet");
                sleep(RETRY).await;
            }
        }
    }
}

/// How long the clock is trusted.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long to wait after the store, or a load that is not complete, has refused.
const RETRY: Duration = Duration::from_secs(1);

impl Shared {
    /// Tells of what was dropped.
    pub(crate) fn tell_dropped(&self, dropped: &[Dropped]) {
        for event in events(dropped) {
            if let Event::OverrideDropped { what, reason } = &event {
                tracing::info!(what, reason, "override dropped");
            }
            self.tell(event);
        }
    }
}

impl World {
    /// These overrides, or the very ones that are there if they are the same.
    pub(crate) fn same_weights(&self, overrides: Overrides) -> Arc<Overrides> {
        let present = &self.documents.weights;
        if overrides == **present { Arc::clone(present) } else { Arc::new(overrides) }
    }

    /// What objects say, once the API's part is patched.
    pub(crate) fn objects<'a>(&'a self, patch: &'a Patch) -> Objects<'a> {
        Objects {
            codec: &self.codec,
            files: &self.documents.files,
            owned: &self.documents.owned,
            base: &self.base,
            overrides: &self.overrides,
            rollouts: &self.rollouts,
            patch,
        }
    }
}
