//! Rollouts as the control keeps them: stored by id, each the one owner of its rule.
//!
//! How they move is computed in [`xds_rollout`], and driven by [`rollouts`](crate::rollouts); here a state and the weights that
//! it wants go into one commit, and nobody else changes the weights of a rule that is owned.

use std::sync::Arc;

use bytes::Bytes;
use xds_codec::Diagnostic;
use xds_rollout::Event as RolloutEvent;

use super::candidate::{Candidate, warning};
use super::key::StoreKey;
use super::plan::Plan;
use super::state::World;
use super::weights::WeightPatch;
use super::{Control, weights};
use crate::model::rollouts::{RolloutPatch, RolloutRecord, RolloutRecords, owner_of};
use crate::model::weights::change::WeightChange;
use crate::model::weights::{RuleKey, effective};
use crate::model::{Event, WriteError, WriteOptions};

/// What a rule says, and what counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleState {
    /// The weights of its object.
    pub source: Vec<(String, u64)>,
    /// Those with what the API lays over them.
    pub effective: Vec<(String, u64)>,
}

impl Control {
    /// The rollouts that are stored.
    #[must_use]
    pub fn rollouts(&self) -> Arc<RolloutRecords> {
        Arc::clone(&self.shared.state().rollouts)
    }

    /// What a rule says now.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotFound`] or [`WriteError::NoRule`].
    pub fn rule(&self, key: &RuleKey) -> Result<RuleState, WriteError> {
        let world = self.shared.state().world();
        let rule = weights::rule(&world, key)?;
        let over = world.documents.weights.get(key).map(|over| over.overlay.clone()).unwrap_or_default();
        Ok(RuleState { effective: effective(&rule, &over), source: rule.backends })
    }

    /// Tells whoever watches what happened in a rollout.
    pub fn tell_rollout(&self, rollout: &str, event: RolloutEvent) {
        self.shared.tell(Event::Rollout { rollout: rollout.to_owned(), event });
    }
}

/// Builds the candidate of new states of rollouts, with what one of them wants of its rule.
pub(crate) fn step(
    world: &World,
    rollouts: RolloutPatch,
    change: Option<&(RuleKey, WeightChange)>,
    (source, summary): (&'static str, String),
    options: &WriteOptions,
) -> Result<Candidate, WriteError> {
    let candidate = match change {
        Some((key, change)) => weights::change(world, key, change, options)?,
        None => Candidate::default(),
    };
    Ok(Candidate { rollouts, source, summary, ..candidate })
}

/// Refuses to change the weights of a rule that a rollout owns.
pub(crate) fn refuse_owned(world: &World, key: &RuleKey) -> Result<(), WriteError> {
    match owner_of(&world.rollouts, key) {
        None => Ok(()),
        Some(rollout) => {
            Err(WriteError::RolloutActive { rule: key.to_string(), rollout: rollout.to_owned() })
        }
    }
}

/// Leaves the weights of rules alone that rollouts own.
pub(crate) fn spare_owned(world: &World, weights: &mut WeightPatch, warnings: &mut Vec<Diagnostic>) {
    weights.retain(|key, _| match owner_of(&world.rollouts, key) {
        None => true,
        Some(rollout) => {
            let message = format!("the weights of {key} are those of the rollout {rollout} and stay");
            warnings.push(warning("rollout-active", "", message));
            false
        }
    });
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

/// What has to be stored so that a patch is laid over rollouts.
pub(crate) fn plan(records: &RolloutRecords, patch: &RolloutPatch) -> Plan {
    let changes = patch.iter().filter(|(id, after)| records.get(*id) != after.as_ref());
    changes.map(|(id, after)| (StoreKey::Rollout(id.clone()), after.as_deref().map(write_record))).collect()
}

/// A rollout as it is stored.
fn write_record(record: &RolloutRecord) -> Bytes {
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
        return Err(format!("it holds the rollout {}", record.rollout.id()));
    }
    Ok(Arc::new(record))
}
