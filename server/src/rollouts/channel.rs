//! Between the handle and the driver: requests go one way, and rollouts are shown the other way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{oneshot, watch};
use xds_api::rollouts::{RolloutError, StartOptions, Started};
use xds_control::model::weights::RuleKey;
use xds_control::model::weights::change::WeightChange;
use xds_control::model::{EntityTags, WriteError, WriteOptions, WriteOutcome};
use xds_rollout::{Input, Rollout, RolloutSpec, Verb};

use super::others::Others;

/// The values as the driver left them.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) rollouts: Mutex<Arc<BTreeMap<String, Arc<Rollout>>>>,
    pub(super) changes: watch::Sender<u64>,
}

/// A request to the driver, or news for it.
#[derive(Debug)]
pub(super) enum Request {
    Start(Box<RolloutSpec>, StartOptions, oneshot::Sender<Result<Started, RolloutError>>),
    Ask {
        id: String,
        verb: Verb,
        if_match: Option<EntityTags>,
        actor: String,
        reply: oneshot::Sender<Result<Arc<Rollout>, RolloutError>>,
    },
    Forget {
        id: String,
        if_match: Option<EntityTags>,
        actor: String,
        reply: oneshot::Sender<Result<(), RolloutError>>,
    },
    Take {
        key: RuleKey,
        change: WeightChange,
        options: Box<WriteOptions>,
        reply: oneshot::Sender<Result<WriteOutcome, WriteError>>,
    },
    /// The result of a call.
    Input(String, Input),
    /// What the clients of other servers answered to a change of a rollout.
    Others(String, Others),
}

impl Shown {
    pub(super) fn rollouts(&self) -> Arc<BTreeMap<String, Arc<Rollout>>> {
        Arc::clone(&self.rollouts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows another value of a rollout, or none any more.
    pub(super) fn show(&self, id: &str, rollout: Option<Rollout>) {
        {
            let mut shown = self.rollouts.lock().unwrap_or_else(PoisonError::into_inner);
            let rollouts = Arc::make_mut(&mut shown);
            match rollout {
                Some(rollout) => _ = rollouts.insert(id.to_owned(), Arc::new(rollout)),
                None => _ = rollouts.remove(id),
            }
        }
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }
}
