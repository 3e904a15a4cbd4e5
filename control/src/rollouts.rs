//! Rollouts as they are kept: stored by id, each the one owner of its rule.
//!
//! [`xds_rollout`] computes how they move, and the server drives them. Here, a state and its weights go into one commit, and other
//! changes of the weights of an owned rule are refused.

use std::sync::Arc;

use bytes::Bytes;
use xds_codec::Diagnostic;

use crate::key::StoreKey;
use crate::model::WriteError;
use crate::model::rollouts::{
    RolloutPatch, RolloutRecord, RolloutRecords, RolloutStep, RolloutSteps, owner_of,
};
use crate::model::weights::RuleKey;
use crate::plan::Plan;
use crate::warning::warning;
use crate::weights::WeightPatch;

/// Refuses to change the weights of a rule that a rollout owns.
pub(crate) fn refuse_owned(rollouts: &RolloutRecords, key: &RuleKey) -> Result<(), WriteError> {
    match owner_of(rollouts, key) {
        None => Ok(()),
        Some(rollout) => {
            Err(WriteError::RolloutActive { rule: key.to_string(), rollout: rollout.to_owned() })
        }
    }
}

/// Leaves the weights of rules alone that rollouts own.
pub(crate) fn spare_owned(
    rollouts: &RolloutRecords,
    weights: &mut WeightPatch,
    warnings: &mut Vec<Diagnostic>,
) {
    weights.retain(|key, _| match owner_of(rollouts, key) {
        None => true,
        Some(rollout) => {
            let message = format!("the rollout {rollout} controls the weights of {key}, so they stay");
            warnings.push(warning("rollout-active", "", message));
            false
        }
    });
}

/// The new states of rollouts, if their steps were computed from the present ones.
///
/// # Errors
///
/// [`WriteError::Superseded`] if one was not, and [`WriteError::RolloutActive`] if a rule would have two owners: another server may have
/// begun a rollout of it since.
pub(crate) fn patch_of(present: &RolloutRecords, steps: RolloutSteps) -> Result<RolloutPatch, WriteError> {
    for (id, RolloutStep { before, .. }) in &steps {
        if present.get(id) != before.as_ref() {
            return Err(WriteError::Superseded { what: StoreKey::Rollout(id.clone()).what() });
        }
    }
    for RolloutStep { before, after } in steps.values() {
        let owned = |record: &Option<Arc<RolloutRecord>>| record.as_ref().and_then(|one| one.owned_rule());
        if let Some(key) = owned(after).filter(|_| owned(before).is_none()) {
            refuse_owned(present, &key)?;
        }
    }
    Ok(steps.into_iter().map(|(id, step)| (id, step.after)).collect())
}

/// The rollouts with a patch laid over them.
pub(crate) fn patched(records: &Arc<RolloutRecords>, patch: &RolloutPatch) -> Arc<RolloutRecords> {
    if patch.is_empty() {
        return Arc::clone(records);
    }
    let mut records = (**records).clone();
    for (id, record) in patch {
        match record {
            Some(record) => _ = records.insert(id.clone(), Arc::clone(record)),
            None => _ = records.remove(id),
        }
    }
    Arc::new(records)
}

/// The plan for the store that lays a patch over rollouts.
pub(crate) fn plan(records: &RolloutRecords, patch: &RolloutPatch) -> Plan {
    let changes = patch.iter().filter(|(id, after)| records.get(*id) != after.as_ref());
    changes.map(|(id, after)| (StoreKey::Rollout(id.clone()), after.as_deref().map(write_record))).collect()
}

/// A rollout as it is stored.
pub(crate) fn write_record(record: &RolloutRecord) -> Bytes {
    // Texts and numbers always have a JSON form.
    serde_json::to_vec(record).unwrap_or_default().into()
}

/// Reads what [`write_record`] wrote.
///
/// # Errors
///
/// Says why it cannot be read.
pub(crate) fn read_record(id: &str, value: &[u8]) -> Result<Arc<RolloutRecord>, String> {
    let record: RolloutRecord = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if record.rollout.id() != id {
        return Err(format!("it contains the rollout {}", record.rollout.id()));
    }
    Ok(Arc::new(record))
}
