//! Phases: the state of a rollout in one word.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The phase of a rollout, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Phase {
    /// Waits for webhooks before its first step.
    Pending,
    /// Goes through its steps.
    Progressing,
    /// Waits: for a time, or for a person.
    Paused,
    /// Moves all traffic to the canary.
    Promoting,
    /// The canary has everything.
    Succeeded,
    /// Moves all traffic back.
    Aborting,
    /// Stable has everything, because someone asked for it.
    Aborted,
    /// Stable has everything, because something went wrong.
    Failed,
}

impl Phase {
    /// Returns `true` if nothing more comes unless someone retries.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Aborted | Self::Failed)
    }
}
