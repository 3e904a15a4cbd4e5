//! What of a rollout survives a restart: `wave/current` and, for each object, `held/…` with what it was.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_api::group;
use xds_cache::wave::{Rollout, duration_text};
use xds_cache::{Revision, WavePolicy};
use xds_codec::Codec;
use xds_store::{BlobHash, Store, StoreError};

use super::{Held, HeldValue, Wave, now};
use crate::control::key::StoreKey;
use crate::control::plan::Plan;
use crate::control::{documents, record, weights};

/// The format that is written.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    format: u32,
    id: u64,
    actor: String,
    source: String,
    summary: String,
    began_at_ms: u64,
    shares: String,
    hold: String,
    max_nacks: String,
    ack_timeout: Option<String>,
    reached: Vec<u64>,
    stopped: Option<String>,
    /// The keys of the objects that were not there before.
    absent: Vec<String>,
}

/// What has to be stored so that a restart finds `wave`; `stored` are all keys as they are.
pub(crate) fn plan(wave: Option<&Wave>, stored: &BTreeMap<String, BlobHash>) -> Plan {
    let mut plan = Plan::new();
    let mut kept = BTreeSet::new();
    if let Some(wave) = wave {
        kept.insert(StoreKey::Wave.to_string());
        plan.push((StoreKey::Wave, Some(write(wave))));
        for (key, value) in &*wave.held {
            let Some(value) = value else { continue };
            let key = StoreKey::Held(Box::new(key.clone()));
            let (text, value) = (key.to_string(), write_value(value));
            if stored.get(&text) != Some(&BlobHash::of(&value)) {
                plan.push((key, Some(value)));
            }
            kept.insert(text);
        }
    }
    let gone = stored.keys().filter(|text| !kept.contains(*text)).filter_map(|text| StoreKey::parse(text));
    plan.extend(gone.filter(|key| matches!(key, StoreKey::Wave | StoreKey::Held(_))).map(|key| (key, None)));
    plan
}

/// Reads the rollout that a restart finds, at the wave that it was in; it waits for its ACKs anew.
///
/// # Errors
///
/// If the store itself fails. Inside, why the record cannot be read.
pub(crate) fn read(
    codec: &Codec,
    store: &dyn Store,
    keys: &BTreeMap<String, BlobHash>,
) -> Result<Result<Option<Wave>, String>, StoreError> {
    let Some(hash) = keys.get(&StoreKey::Wave.to_string()) else { return Ok(Ok(None)) };
    let Some(value) = store.blob(*hash)? else { return Ok(Err("its content is missing".to_owned())) };
    let record: Record = match serde_json::from_slice(&value) {
        Ok(Record { format, .. }) if format != FORMAT => {
            return Ok(Err(format!("it has format {format}; this version reads format {FORMAT}")));
        }
        Ok(record) => record,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut held = Held::new();
    for text in &record.absent {
        let Some(key) = StoreKey::parse(text) else { return Ok(Err(format!("it names {text:?}"))) };
        held.insert(key, None);
    }
    for (text, hash) in keys {
        let Some(StoreKey::Held(key)) = StoreKey::parse(text) else { continue };
        let Some(value) = store.blob(*hash)? else {
            return Ok(Err(format!("what {} was is missing", key.what())));
        };
        match read_value(codec, &key, &value) {
            Ok(value) => _ = held.insert(*key, Some(value)),
            Err(reason) => return Ok(Err(format!("what {} was cannot be read: {reason}", key.what()))),
        }
    }
    Ok(restore(record, held).map(Some))
}

fn restore(record: Record, held: Held) -> Result<Wave, String> {
    let (hold, max_nacks) = (Some(record.hold.as_str()), Some(record.max_nacks.as_str()));
    let policy = WavePolicy::of_texts(&record.shares, hold, max_nacks, record.ack_timeout.as_deref());
    let policy = policy.map_err(|error| error.to_string())?;
    let last = record.reached.len().checked_sub(1).ok_or("it has no wave")?;
    Ok(Wave {
        id: record.id,
        actor: record.actor,
        source: record.source,
        summary: record.summary,
        began_at: UNIX_EPOCH + Duration::from_millis(record.began_at_ms),
        since: SystemTime::now(),
        held: Arc::new(held),
        reached: record.reached.into_iter().map(Revision).collect(),
        stopped: record.stopped.map(Arc::from),
        rollout: Rollout::restored(policy, last, now()),
        failing: Arc::new(HashSet::new()),
    })
}

fn write(wave: &Wave) -> Bytes {
    let policy = wave.rollout.policy();
    let since = wave.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let absent = wave.held.iter().filter(|(_, value)| value.is_none());
    let record = Record {
        format: FORMAT,
        id: wave.id,
        actor: wave.actor.clone(),
        source: wave.source.clone(),
        summary: wave.summary.clone(),
        began_at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        shares: policy.shares_text(),
        hold: duration_text(policy.hold),
        max_nacks: policy.max_nacks.to_string(),
        ack_timeout: policy.ack_timeout.map(duration_text),
        reached: wave.reached.iter().map(|revision| revision.0).collect(),
        stopped: wave.stopped.as_deref().map(str::to_owned),
        absent: absent.map(|(key, _)| key.to_string()).collect(),
    };
    // Strings and numbers always have a JSON form.
    serde_json::to_vec(&record).unwrap_or_default().into()
}

fn write_value(value: &HeldValue) -> Bytes {
    match value {
        HeldValue::Resource(resource) => record::write(resource),
        HeldValue::Label(label) => Bytes::copy_from_slice(label.as_bytes()),
        HeldValue::Definition(definition) => group::to_json(definition).to_string().into(),
        HeldValue::Document(document) => documents::record(document),
        HeldValue::Weights(over) => weights::record(over),
    }
}

fn read_value(codec: &Codec, key: &StoreKey, value: &Bytes) -> Result<HeldValue, String> {
    match key {
        StoreKey::Resource(..) | StoreKey::File(..) => {
            let resource = record::read(value).map_err(|error| error.to_string())?;
            Ok(HeldValue::Resource(Arc::new(resource)))
        }
        StoreKey::Label(_) => {
            let label = std::str::from_utf8(value).map_err(|error| error.to_string())?;
            Ok(HeldValue::Label(label.into()))
        }
        StoreKey::Group(_) | StoreKey::FileGroup(_) => {
            let body = serde_json::from_slice(value).map_err(|error| error.to_string())?;
            let read = codec.node_group_from_json(&body);
            read.map(HeldValue::Definition)
                .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        StoreKey::Document(key) | StoreKey::FileDocument(key) => {
            documents::read_record(key, value).map(HeldValue::Document)
        }
        StoreKey::Weights(_) => weights::read_record(value).map(HeldValue::Weights),
        StoreKey::DocumentStatus(_) | StoreKey::FilesHash | StoreKey::Wave | StoreKey::Held(_) => {
            Err("it is nothing that can be held".to_owned())
        }
    }
}
