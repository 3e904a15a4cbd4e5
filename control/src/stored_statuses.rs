//! Statuses of documents that outlast a restart: how often each has changed, and since when its conditions have their status.
//!
//! It is stored with the revisions that change documents, makes none of its own, and is no part of the history: losing it makes
//! documents look younger, and ends listeners that only a TrafficSplit of the past keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_cache::time::{from_millis, millis};
use xds_cache::{DiffItem, GroupName};
use xds_routes::{Condition, Document, DocumentKey, Placed};
use xds_store::{BlobHash, State, Store, StoreError};

use crate::differing::differing;
use crate::key::{STATUS, StoreKey, keys_below};
use crate::model::document::{ConditionPart, Translated, content_hash};
use crate::plan::Plan;

/// The statuses of documents in the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredStatuses {
    documents: BTreeMap<DocumentKey, Record>,
}

/// The record of a document, as JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Record {
    /// The hash of the content that was judged.
    hash: String,
    generation: u64,
    since: Vec<Since>,
    /// See [`Placed::was_split`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    was_split: bool,
}

/// Since when a condition has its status.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Since {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listener: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    section: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    r#type: String,
    status: String,
    /// In milliseconds since 1970.
    at: u64,
}

impl StoredStatuses {
    /// Reads what a state of the store remembers. A record that cannot be read is none.
    ///
    /// # Errors
    ///
    /// If the store itself fails.
    pub(crate) fn read(store: &dyn Store, keys: &State) -> Result<Self, StoreError> {
        let mut statuses = Self::default();
        for (text, key) in keys_below(keys, STATUS) {
            let StoreKey::DocumentStatus(key) = key else { continue };
            statuses.take_in(store, key, keys.get(text))?;
        }
        Ok(statuses)
    }

    /// The same of some documents.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn of<'k>(
        store: &dyn Store,
        keys: &State,
        wanted: impl IntoIterator<Item = &'k DocumentKey>,
    ) -> Result<Self, StoreError> {
        let mut statuses = Self::default();
        for key in wanted {
            let text = StoreKey::DocumentStatus(key.clone()).to_string();
            statuses.take_in(store, key.clone(), keys.get(&*text))?;
        }
        Ok(statuses)
    }

    fn take_in(
        &mut self,
        store: &dyn Store,
        key: DocumentKey,
        hash: Option<&BlobHash>,
    ) -> Result<(), StoreError> {
        let Some(hash) = hash else { return Ok(()) };
        let record = store.blob(*hash)?.and_then(|value| serde_json::from_slice(&value).ok());
        self.documents.extend(record.map(|record| (key, record)));
        Ok(())
    }

    /// The generation of a document that was of generation `before` in this process with another content, if it was there.
    pub(crate) fn generation(&self, document: &Document, before: Option<u64>) -> u64 {
        match (self.documents.get(&document.key), before) {
            (Some(record), _) if record.hash == hash_of(document) => record.generation,
            (Some(record), before) => record.generation.max(before.unwrap_or_default()).saturating_add(1),
            (None, before) => before.unwrap_or_default().saturating_add(1),
        }
    }

    /// The documents that something is remembered of.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &DocumentKey> {
        self.documents.keys()
    }

    /// Returns `true` if a TrafficSplit named this Service once.
    pub(crate) fn was_split(&self, key: &DocumentKey) -> bool {
        self.documents.get(key).is_some_and(|record| record.was_split)
    }

    /// Since when a condition has its present status; `None` if it had another one, or nothing is known.
    pub(crate) fn since(
        &self,
        object: &DocumentKey,
        part: &ConditionPart,
        condition: &Condition,
    ) -> Option<SystemTime> {
        let record = self.documents.get(object)?;
        let is_it = |since: &&Since| {
            since.part().as_ref() == Some(part)
                && since.r#type == condition.kind.as_str()
                && since.status == condition.status.to_string()
        };
        let since = record.since.iter().find(is_it)?;
        Some(from_millis(since.at))
    }
}

impl Since {
    fn new(part: ConditionPart, condition: &Condition, at: SystemTime) -> Self {
        let (listener, parent, section, port) = match part {
            ConditionPart::Object => (None, None, None, None),
            ConditionPart::Parent(parent, section, port) => (None, Some(parent), section, port),
            ConditionPart::Listener(name) => (Some(name), None, None, None),
        };
        let (r#type, status) = (condition.kind.to_string(), condition.status.to_string());
        Self { listener, parent, section, port, r#type, status, at: millis(at) }
    }

    fn part(&self) -> Option<ConditionPart> {
        match (&self.listener, &self.parent) {
            (None, None) => Some(ConditionPart::Object),
            (None, Some(parent)) => {
                Some(ConditionPart::Parent(parent.clone(), self.section.clone(), self.port))
            }
            (Some(listener), None) => Some(ConditionPart::Listener(listener.clone())),
            (Some(_), Some(_)) => None,
        }
    }
}

/// The plan that stores statuses along with a change from `before` to `after`.
pub(crate) fn plan<'t>(before: &'t Translated, after: &'t Translated) -> Plan {
    let documents = before.documents.diff(&after.documents).filter_map(|item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) => Some(key),
        DiffItem::Update { old: (_, before), new: (key, after) } => {
            let is_same = (before.generation, before.was_split) == (after.generation, after.was_split);
            (!is_same).then_some(key)
        }
    });
    let ages = differing(&before.since, &after.since).map(|(key, _, _)| key);
    let statuses = |translated: &'t Translated| &translated.translation.conditions.objects;
    let statuses = differing(statuses(before), statuses(after)).map(|(key, _, _)| key);
    let objects: BTreeSet<&DocumentKey> = ages.chain(statuses).collect();
    let conditions = objects.into_iter().filter(|key| since(before, key) != since(after, key));
    let changed: BTreeSet<&DocumentKey> = documents.chain(conditions).collect();
    changed.into_iter().map(|key| (StoreKey::DocumentStatus(key.clone()), record(after, key))).collect()
}

/// The changes if the stored form of `before` is unknown: every record that differs from `after`.
pub(crate) fn whole_plan(stored: &State, after: &Translated) -> Plan {
    let present = after.documents.keys().map(|key| StoreKey::DocumentStatus(key.clone()));
    let stored_keys = keys_below(stored, STATUS).map(|(_, key)| key);
    let gone = stored_keys
        .filter(|key| matches!(key, StoreKey::DocumentStatus(key) if !after.documents.contains_key(key)));
    let keys: BTreeSet<StoreKey> = present.chain(gone).collect();
    let mut plan = Plan::new();
    for key in keys {
        let StoreKey::DocumentStatus(document) = &key else { continue };
        let value = record(after, document);
        if stored.get(&*key.to_string()) != value.as_ref().map(|value| BlobHash::of(value)).as_ref() {
            plan.push((key, value));
        }
    }
    plan
}

/// The record of a document; `None` if there is none.
fn record(translated: &Translated, key: &DocumentKey) -> Option<Bytes> {
    let placed = translated.documents.get(key)?;
    let Placed { document, generation, was_split, .. } = placed;
    let record = Record {
        hash: hash_of(document),
        generation: *generation,
        since: since(translated, key),
        was_split: *was_split,
    };
    serde_json::to_vec(&record).ok().map(Bytes::from)
}

/// Since when the conditions of an object have their status.
fn since(translated: &Translated, key: &DocumentKey) -> Vec<Since> {
    translated.conditions(key).map(|(part, condition, at)| Since::new(part, condition, at)).collect()
}

/// The group counts for nothing: a generation is of what the document says.
fn hash_of(document: &Document) -> String {
    content_hash(document, &GroupName::default_group())
}
