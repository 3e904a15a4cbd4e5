//! Wave deployments that ended. Their ends are still reported after a restart (`wave/ended/{id}`).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xds_cache::Revision;
use xds_cache::time::{from_millis, millis};
use xds_store::{BlobHash, State, Store, StoreError};

use crate::key::{ENDED, StoreKey, keys_below};
use crate::model::wave::PolicyRecord;
use crate::model::wave::{WaveMembers, WavePhase, WaveReport};
use crate::plan::Plan;

/// The last wave deployments that ended, newest first: at most [`MAX_ENDED`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) waves: VecDeque<EndedWave>,
}

/// A wave deployment that ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedWave {
    pub(crate) report: WaveReport,
    /// The revision that put back what the API owns; to undo that is to begin the wave deployment again.
    pub(crate) put_back: Option<Revision>,
}

/// The record of one, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    id: u64,
    phase: String,
    reason: Option<String>,
    source: String,
    actor: String,
    summary: String,
    objects: Vec<String>,
    #[serde(flatten)]
    policy: PolicyRecord,
    reached: Vec<u64>,
    began_at_ms: u64,
    since_ms: u64,
    members: WaveMembers,
    put_back: Option<u64>,
}

impl Ended {
    /// Adds one, and drops the oldest.
    #[must_use]
    pub(crate) fn with(mut self, one: EndedWave) -> Self {
        self.waves.retain(|other| other.report.deployment != one.report.deployment);
        self.waves.truncate(MAX_ENDED - 1);
        self.waves.push_front(one);
        self
    }

    /// The plan that lets a restart find them; `stored` are all keys as they are.
    pub(crate) fn plan(&self, stored: &State) -> Plan {
        let mut plan = Plan::new();
        let ended = |(_, key)| {
            let StoreKey::EndedWave(id) = key else { return None };
            Some((id, key))
        };
        let mut gone: BTreeMap<u64, StoreKey> = keys_below(stored, ENDED).filter_map(ended).collect();
        for one in &self.waves {
            let id = one.report.deployment;
            gone.remove(&id);
            let (key, value) = (StoreKey::EndedWave(id), one.write());
            if stored.get(&*key.to_string()) != Some(&BlobHash::of(&value)) {
                plan.push((key, Some(value)));
            }
        }
        plan.extend(gone.into_values().map(|key| (key, None)));
        plan
    }

    /// Reads what [`plan`](Self::plan) stored; those that are `known` stay as they are. Records that cannot be read are left out,
    /// because they are only shown.
    ///
    /// # Errors
    ///
    /// If the store itself fails.
    pub(crate) fn read(store: &dyn Store, keys: &State, known: &Self) -> Result<Self, StoreError> {
        let mut waves = Vec::new();
        for (text, key) in keys_below(keys, ENDED) {
            let (StoreKey::EndedWave(id), Some(hash)) = (key, keys.get(text)) else { continue };
            let known = known.waves.iter().find(|known| known.report.deployment == id);
            if let Some(known) = known.filter(|known| BlobHash::of(&known.write()) == *hash) {
                waves.push(known.clone());
                continue;
            }
            match store.blob(*hash)?.and_then(|value| EndedWave::read(&value)) {
                Some(one) => waves.push(one),
                None => tracing::warn!(deployment = id, "how a wave deployment ended cannot be read"),
            }
        }
        waves.sort_by_key(|one| std::cmp::Reverse((one.report.since, one.report.deployment)));
        waves.truncate(MAX_ENDED);
        Ok(Self { waves: waves.into() })
    }
}

impl EndedWave {
    fn write(&self) -> Bytes {
        let Self { report, put_back } = self;
        let mut members = report.members.clone();
        let WaveMembers { values, ahead, behind, pending, nacked, already_failing, lost, .. } = &mut members;
        [ahead, behind, pending].into_iter().for_each(|nodes| nodes.truncate(MAX_NODES));
        lost.truncate(MAX_NODES);
        values.truncate(MAX_NODES);
        for nacks in [nacked, already_failing] {
            nacks.truncate(MAX_NODES);
            for nack in nacks {
                nack.message = nack.message.chars().take(MAX_MESSAGE).collect();
            }
        }
        let record = Record {
            id: report.deployment,
            phase: report.phase.as_str().to_owned(),
            reason: report.reason.clone(),
            source: report.source.clone(),
            actor: report.actor.clone(),
            summary: report.summary.clone(),
            objects: report.objects.iter().take(MAX_NODES).cloned().collect(),
            policy: PolicyRecord::from(&report.policy),
            reached: report.reached.iter().map(|(_, revision)| revision.0).collect(),
            began_at_ms: millis(report.began_at),
            since_ms: millis(report.since),
            members,
            put_back: put_back.map(|revision| revision.0),
        };
        // Strings and numbers always have a JSON form.
        serde_json::to_vec(&record).unwrap_or_default().into()
    }

    fn read(value: &[u8]) -> Option<Self> {
        let record: Record = serde_json::from_slice(value).ok()?;
        let policy = record.policy.read().ok()?;
        let reached = policy.shares().iter().copied().zip(record.reached.into_iter().map(Revision)).collect();
        let report = WaveReport {
            deployment: record.id,
            phase: WavePhase::ALL.into_iter().find(|phase| phase.as_str() == record.phase)?,
            reason: record.reason,
            source: record.source,
            actor: record.actor,
            summary: record.summary,
            objects: record.objects,
            reached,
            policy,
            began_at: from_millis(record.began_at_ms),
            since: from_millis(record.since_ms),
            next_at: None,
            members: record.members,
        };
        Some(Self { report, put_back: record.put_back.map(Revision) })
    }
}

/// The most ended wave deployments that are kept.
pub(crate) const MAX_ENDED: usize = 20;

/// The most nodes of each list, values and objects that are stored for each; the counts include all.
const MAX_NODES: usize = 100;

/// How many characters of a client's words are stored.
const MAX_MESSAGE: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::time::{Duration, UNIX_EPOCH};

    use crate::acks::NodeNack;

    use super::*;

    fn ended(deployment: u64) -> EndedWave {
        let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + deployment);
        let policy: xds_cache::WavePolicy = "1%,50%".parse().unwrap();
        let nack =
            |n| NodeNack { node: format!("node-{n}"), message: "no\n".repeat(1_000), ..NodeNack::default() };
        let report = WaveReport {
            deployment,
            phase: WavePhase::Reverted,
            reason: Some("rejected".to_owned()),
            source: "api".to_owned(),
            actor: "me".to_owned(),
            summary: "put a".to_owned(),
            objects: vec!["default/clusters/a".to_owned()],
            reached: policy
                .shares()
                .iter()
                .copied()
                .zip([Revision(deployment), Revision(deployment + 1)])
                .collect(),
            policy,
            began_at: at,
            since: at,
            next_at: None,
            members: WaveMembers {
                n_nacked: 500,
                nacked: (0..500).map(nack).collect(),
                ..WaveMembers::default()
            },
        };
        EndedWave { report, put_back: Some(Revision(deployment + 2)) }
    }

    #[test]
    fn what_is_stored_is_bounded_and_reads_back() {
        let one = ended(7);
        let value = one.write();
        assert!(value.len() < 200_000, "{}", value.len());
        let read = EndedWave::read(&value).unwrap();
        assert_eq!((read.report.members.nacked.len(), read.report.members.n_nacked), (MAX_NODES, 500));
        assert_eq!(read.put_back, one.put_back);
        let members = WaveMembers::default();
        let without = |one: EndedWave| WaveReport { members: members.clone(), ..one.report };
        assert_eq!(without(read), without(one));
        assert!(EndedWave::read(b"{}").is_none());
    }

    #[test]
    fn only_the_last_ones_are_kept_and_stored() {
        let all =
            (1..=MAX_ENDED as u64 + 5).fold(Ended::default(), |ended_waves, id| ended_waves.with(ended(id)));
        let ids: Vec<u64> = all.waves.iter().map(|one| one.report.deployment).collect();
        assert_eq!((ids.len(), ids.first(), ids.last()), (MAX_ENDED, Some(&25), Some(&6)));
        let stored = [
            (StoreKey::EndedWave(1), BlobHash::of(b"1")),
            (StoreKey::EndedWave(25), BlobHash::of(&ended(25).write())),
            (StoreKey::Wave, BlobHash::of(b"2")),
        ];
        let stored = stored.into_iter().map(|(key, hash)| (Arc::from(key.to_string()), hash)).collect();
        let plan = all.plan(&stored);
        let gone: Vec<&StoreKey> =
            plan.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).collect();
        assert_eq!(gone, [&StoreKey::EndedWave(1)]);
        assert_eq!(plan.len(), MAX_ENDED, "one goes, one is stored already");
    }
}
