//! The record of a wave deployment, which survives a restart: `wave/current`, and `held/…` with the previous value of each object.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_cache::Revision;
use xds_cache::time::{from_millis, millis};
use xds_cache::wave::{AWAY_TIME, By, Deployment, Members, Order, Ranking, Stage};
use xds_codec::Codec;
use xds_store::{BlobHash, State, Store, StoreError};

use super::failing::{Failing, FailingResource};
use super::value::{PreviousValue, PreviousValues, Tests, Wave};
use crate::env::At;
use crate::key::{PREVIOUS, StoreKey, Subject, WAVE, below, keys_below};
use crate::model::group;
use crate::model::wave::PolicyRecord;
use crate::plan::Plan;
use crate::{documents, resource_record, weights};

/// The format that is written.
const FORMAT: u32 = 1;

/// How the record says how it stands with RouteTests.
const BROKEN: &str = "broken";
const WAIVED: &str = "waived";

/// How many members are stored; those beyond are members again when they come back.
const MAX_MEMBERS: usize = 10_000;

/// How many failing nodes and resources are stored; those beyond count as if they had been fine.
const MAX_FAILING: usize = 1_000;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    format: u32,
    id: u64,
    actor: String,
    source: String,
    summary: String,
    began_at_ms: u64,
    #[serde(flatten)]
    policy: PolicyRecord,
    reached: Vec<u64>,
    /// The values by which nodes are ranked, each with its end in hundredths of a percent; none before they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks: Option<Vec<(String, u16)>>,
    stopped: Option<String>,
    #[serde(default)]
    paused: Option<String>,
    /// `broken` or `waived`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tests: Option<String>,
    /// The first nodes of which it was not known which resources they rejected when the wave began.
    #[serde(default)]
    failing: Vec<String>,
    /// The first resources that the others rejected then.
    #[serde(default)]
    failing_resources: Vec<FailingResource>,
    /// The first members of the waves so far.
    #[serde(default)]
    members: Vec<String>,
    /// The keys of the objects that were not there before.
    absent: Vec<String>,
}

/// The plan that lets a restart find `wave`; `stored` are all keys as they are.
pub(crate) fn plan(wave: Option<&Wave>, stored: &State) -> Plan {
    let mut plan = Plan::new();
    let mut kept = BTreeSet::new();
    if let Some(wave) = wave {
        let (key, value) = (StoreKey::Wave.to_string(), write(wave));
        if stored.get(&*key) != Some(&BlobHash::of(&value)) {
            plan.push((StoreKey::Wave, Some(value)));
        }
        kept.insert(key);
        for (key, value) in &*wave.previous {
            let Some(value) = value else { continue };
            let key = StoreKey::Previous(Box::new(key.clone()));
            let (text, value) = (key.to_string(), write_value(value));
            if stored.get(&*text) != Some(&BlobHash::of(&value)) {
                plan.push((key, Some(value)));
            }
            kept.insert(text);
        }
    }
    let of_waves = [WAVE, PREVIOUS].into_iter().flat_map(|prefix| keys_below(stored, prefix));
    let gone = of_waves.filter(|(text, _)| !kept.contains(&***text)).map(|(_, key)| key);
    plan.extend(
        gone.filter(|key| matches!(key, StoreKey::Wave | StoreKey::Previous(_))).map(|key| (key, None)),
    );
    plan
}

/// Returns `true` if a stored key is part of a wave deployment that is under way.
pub(crate) fn is_part(text: &str) -> bool {
    text == WAVE || text.starts_with(PREVIOUS)
}

/// Everything that a state says of the wave deployment that is under way.
pub(crate) fn parts(state: &State) -> impl Iterator<Item = (&Arc<str>, &BlobHash)> {
    state.get_key_value(WAVE).into_iter().chain(below(state, PREVIOUS))
}

/// Reads the wave deployment that a restart finds, or that another server with the same store began or moved (`is_shared`): at the wave that
/// it was in. It waits for its ACKs anew, or is still paused.
///
/// # Errors
///
/// If the store itself fails. Inside, why the record cannot be read.
pub(crate) fn read(
    codec: &Codec,
    store: &dyn Store,
    keys: &State,
    is_shared: bool,
    at: At,
) -> Result<Result<Option<Wave>, String>, StoreError> {
    let Some(hash) = keys.get(WAVE) else { return Ok(Ok(None)) };
    let Some(value) = store.blob(*hash)? else { return Ok(Err("its content is missing".to_owned())) };
    let record: Record = match serde_json::from_slice(&value) {
        Ok(Record { format, .. }) if format != FORMAT => {
            return Ok(Err(format!("it has format {format}; this version reads format {FORMAT}")));
        }
        Ok(record) => record,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let mut previous = PreviousValues::new();
    for text in &record.absent {
        let Some(key) = StoreKey::parse(text) else { return Ok(Err(format!("it names {text:?}"))) };
        previous.insert(key, None);
    }
    for (text, key) in keys_below(keys, PREVIOUS) {
        let (StoreKey::Previous(key), Some(hash)) = (key, keys.get(text)) else { continue };
        let Some(value) = store.blob(*hash)? else {
            return Ok(Err(format!("the previous value of {} is missing", key.what())));
        };
        match read_value(codec, &key, &value) {
            Ok(value) => _ = previous.insert(*key, Some(value)),
            Err(reason) => {
                return Ok(Err(format!("the previous value of {} cannot be read: {reason}", key.what())));
            }
        }
    }
    Ok(restore(record, previous, is_shared, at).map(Some))
}

fn restore(record: Record, previous: PreviousValues, is_shared: bool, at: At) -> Result<Wave, String> {
    let policy = record.policy.read().map_err(|error| error.to_string())?;
    let stage = if record.paused.is_some() { Stage::Paused } else { Stage::Progressing };
    let recorded: Arc<[Arc<str>]> = record.members.into_iter().map(Arc::from).collect();
    let ranking = match (record.ranks, &policy.by) {
        (None, By::Hash) => Ranking::Hash,
        (None, _) => Ranking::Awaited,
        (Some(ranks), by) => {
            let order = Order::stored(by.clone(), ranks).map_err(|error| error.to_string())?;
            Ranking::Ordered(Arc::new(order))
        }
    };
    let last = record.reached.len().checked_sub(1).ok_or("it has no wave")?;
    Ok(Wave {
        id: record.id,
        actor: record.actor,
        source: record.source,
        summary: record.summary,
        began_at: from_millis(record.began_at_ms),
        since: at.wall,
        previous: Arc::new(previous),
        reached: record.reached.into_iter().map(Revision).collect(),
        ranking,
        rank_from: at.clock + AWAY_TIME,
        stopped: record.stopped.map(Arc::from),
        paused: record.paused.map(Arc::from),
        tests: match record.tests.as_deref() {
            Some(BROKEN) => Tests::Broken(Arc::default()),
            Some(WAIVED) => Tests::Waived,
            Some(_) | None => Tests::Asked,
        },
        deployment: Deployment::restored(policy, last, stage, at.clock),
        failing: Arc::new(Failing {
            nodes: record.failing.into_iter().collect(),
            resources: record.failing_resources.into_iter().collect(),
        }),
        members: Arc::new(match is_shared {
            true => Members::of_another(recorded.iter().cloned(), at.clock),
            false => Members::remembered(recorded.iter().cloned(), at.clock),
        }),
        recorded,
    })
}

fn write(wave: &Wave) -> Bytes {
    let absent = wave.previous.iter().filter(|(_, value)| value.is_none());
    let ranks = wave.ranking.order().map(|order| {
        let values = order.values().iter();
        values.map(|one| (one.value.to_string(), one.end.hundredths())).collect()
    });
    let record = Record {
        format: FORMAT,
        id: wave.id,
        actor: wave.actor.clone(),
        source: wave.source.clone(),
        summary: wave.summary.clone(),
        began_at_ms: millis(wave.began_at),
        policy: PolicyRecord::from(wave.deployment.policy()),
        reached: wave.reached.iter().map(|revision| revision.0).collect(),
        ranks,
        stopped: wave.stopped.as_deref().map(str::to_owned),
        paused: wave.paused.as_deref().map(str::to_owned),
        tests: match wave.tests {
            Tests::Broken(_) => Some(BROKEN.to_owned()),
            Tests::Waived => Some(WAIVED.to_owned()),
            Tests::Asked => None,
        },
        failing: wave.failing.nodes.iter().take(MAX_FAILING).cloned().collect(),
        failing_resources: wave.failing.resources.iter().take(MAX_FAILING).cloned().collect(),
        members: wave.recorded.iter().take(MAX_MEMBERS).map(|node| node.to_string()).collect(),
        absent: absent.map(|(key, _)| key.to_string()).collect(),
    };
    // Strings and numbers always have a JSON form.
    serde_json::to_vec(&record).unwrap_or_default().into()
}

fn write_value(value: &PreviousValue) -> Bytes {
    match value {
        PreviousValue::Resource(resource) => resource_record::write_with_path(resource),
        PreviousValue::Label(label) => Bytes::copy_from_slice(label.as_bytes()),
        PreviousValue::Definition(definition) => group::to_json(definition).to_string().into(),
        PreviousValue::Document(document) => documents::record_with_path(document),
        PreviousValue::Weights(over) => weights::record(over),
    }
}

fn read_value(codec: &Codec, key: &StoreKey, value: &Bytes) -> Result<PreviousValue, String> {
    match key.subject() {
        Subject::Resource(..) => {
            let resource = resource_record::read(value).map_err(|error| error.to_string())?;
            Ok(PreviousValue::Resource(Arc::new(resource)))
        }
        Subject::Label(_) => {
            let label = std::str::from_utf8(value).map_err(|error| error.to_string())?;
            Ok(PreviousValue::Label(label.into()))
        }
        Subject::Group(_) => {
            let body = serde_json::from_slice(value).map_err(|error| error.to_string())?;
            let read = codec.node_group_from_json(&body);
            read.map(PreviousValue::Definition)
                .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        Subject::Document(key) => documents::read_record(key, value).map(PreviousValue::Document),
        Subject::Weights(_) => weights::read_record(value).map(PreviousValue::Weights),
        Subject::Other => Err("it is nothing that can be held".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_version_that_knew_no_members_can_be_read() {
        let text = r#"{"format": 1, "id": 7, "actor": "me", "source": "api", "summary": "put a", "beganAtMs": 1, "shares": "10%,100%",
            "hold": "30s", "maxNacks": "0", "ackTimeout": null, "reached": [7], "stopped": null, "absent": []}"#;
        let wave =
            restore(serde_json::from_str(text).unwrap(), PreviousValues::new(), false, At::now()).unwrap();
        assert_eq!((wave.id, wave.members.nodes().count()), (7, 0));
        let policy = wave.deployment.policy();
        assert_eq!((policy.max_lost, policy.allow_empty), (None, false));
    }

    #[test]
    fn a_record_keeps_the_order_of_values() {
        let text = r#"{"format": 1, "id": 7, "actor": "me", "source": "api", "summary": "put a", "beganAtMs": 1, "shares": "33.33%,100%",
            "hold": "30s", "maxNacks": "0", "ackTimeout": null, "each": true, "by": "metadata.tier", "order": ["gold"],
            "reached": [7], "ranks": [["gold", 3333], ["silver", 10000]], "stopped": null, "absent": []}"#;
        let restored = |text: &str| {
            restore(serde_json::from_str(text).unwrap(), PreviousValues::new(), false, At::now())
        };
        let wave = restored(text).unwrap();
        let policy = wave.deployment.policy();
        assert!(policy.is_each() && policy.by.to_string() == "metadata.tier" && policy.order.len() == 1);
        assert_eq!(policy.shares_text(), "33.33%,100%");
        let order = wave.ranking.order().unwrap();
        assert_eq!(order.values()[1].value.as_ref(), "silver");
        let again = restored(std::str::from_utf8(&write(&wave)).unwrap()).unwrap();
        assert_eq!((again.ranking, again.deployment.policy()), (wave.ranking.clone(), policy));
        let awaited =
            restored(&text.replace(r#""ranks": [["gold", 3333], ["silver", 10000]], "#, "")).unwrap();
        assert!(awaited.ranking.is_awaited());
        let wrong = restored(&text.replace("3333", "10000")).unwrap_err();
        assert!(wrong.contains("must ascend"), "{wrong}");
    }

    #[test]
    fn a_record_keeps_policy_and_members() {
        let text = r#"{"format": 1, "id": 7, "actor": "me", "source": "api", "summary": "put a", "beganAtMs": 1, "shares": "10%,100%",
            "hold": "30s", "maxNacks": "0", "ackTimeout": null, "maxLost": "2%", "allowEmpty": true, "reached": [7],
            "stopped": null, "absent": [], "members": ["edge-1", "edge-2"]}"#;
        let read = |bytes: &[u8]| {
            restore(serde_json::from_slice(bytes).unwrap(), PreviousValues::new(), false, At::now()).unwrap()
        };
        let wave = read(text.as_bytes());
        let stored: serde_json::Value = serde_json::from_slice(&write(&wave)).unwrap();
        for new in ["each", "by", "order", "ranks"] {
            assert!(stored.get(new).is_none(), "{new}: it is stored as by versions that knew no values");
        }
        let again = read(&write(&wave));
        assert_eq!(again.deployment.policy(), wave.deployment.policy());
        assert_eq!(wave.deployment.policy().max_lost.map(|lost| lost.to_string()).as_deref(), Some("2%"));
        assert!(again.deployment.policy().allow_empty);
        assert_eq!(again.members.nodes().map(|node| &**node).collect::<Vec<_>>(), ["edge-1", "edge-2"]);
    }
}
