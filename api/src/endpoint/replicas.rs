//! `/v1/replicas`: the servers that share the store.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use xds_control::peers::{ForgetError, Peers, Reached, Replica};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::everyone;
use crate::input::{NoParams, Params, Path};
use crate::problem::ApiError;
use crate::state::ApiState;

/// The servers that share the store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplicaList {
    /// By instance id; none if this server has a store of its own.
    pub replicas: Vec<ReplicaEntry>,
    /// True if the servers ask each other about their clients (`--peer-listen`).
    pub linked: bool,
}

/// A server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplicaEntry {
    /// Its `--instance-id`.
    pub id: String,
    /// True for the server that was asked.
    pub own: bool,
    /// True for the one that drives rollouts.
    pub leads: bool,
    /// True for one that follows this server (`--upstream`), and does not have the same store.
    pub follows: bool,
    /// Where other servers reach it; null if they do not.
    pub peer: Option<String>,
    /// Its release.
    pub release: String,
    /// When it started.
    pub started: String,
    /// `yes`, `no` if it does not answer, or `gone` if it vanished without having ended in order.
    pub reached: &'static str,
    /// Since when it does not answer, or is gone; null if it answers.
    pub since: Option<String>,
    /// Why.
    pub why: Option<String>,
    /// True if it is gone for longer than `--replica-grace`: nothing waits for its clients any more.
    pub forgiven: bool,
    /// The revision that it publishes; null if it does not answer.
    pub revision: Option<u64>,
    /// A sum over what it serves at this revision: the same on all servers; null if it does not answer.
    pub fingerprint: Option<String>,
    /// The streams of its clients; null if it does not answer.
    pub streams: Option<u64>,
}

impl From<Replica> for ReplicaEntry {
    fn from(replica: Replica) -> Self {
        let (status, silence) = match &replica.reached {
            Reached::Yes(status) => (Some(*status), None),
            Reached::No { since, why } => (None, Some((*since, why.clone()))),
            Reached::Gone { since, is_over } => {
                let counts = if *is_over { "are not" } else { "are still" };
                (None, Some((*since, format!("it vanished; its clients {counts} waited for"))))
            }
        };
        let (since, why): (Option<SystemTime>, _) = silence.unzip();
        Self {
            own: replica.is_own,
            leads: replica.leads,
            follows: replica.follows,
            release: replica.release.clone(),
            started: rfc3339(replica.started),
            reached: everyone::reached(&replica),
            since: since.map(rfc3339),
            why,
            forgiven: replica.is_forgiven(),
            revision: status.map(|status| status.revision),
            fingerprint: status.and_then(|status| status.fingerprint).map(|(_, sum)| sum.to_string()),
            streams: status.map(|status| status.streams),
            peer: replica.peer,
            id: replica.id,
        }
    }
}

pub(crate) async fn list(State(state): State<ApiState>, _: Params<NoParams>) -> Result<Answer, ApiError> {
    Answer::ok(&state.peers.as_ref().map_or_else(ReplicaList::of_none, ReplicaList::of))
}

pub(crate) async fn forget(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    let Some(peers) = &state.peers else {
        return Err(ApiError::NotFound("this server has a store of its own (--store)".to_owned()));
    };
    peers.forget(id).await.map_err(|error| match error {
        ForgetError::Alive(_) => ApiError::ReplicaAlive(error.to_string()),
        ForgetError::Unknown(_) => ApiError::NotFound(error.to_string()),
        ForgetError::Store(_) => ApiError::NotReady(vec![error.to_string()]),
    })?;
    Answer::ok(&ReplicaList::of(peers))
}

impl ReplicaList {
    fn of(peers: &Arc<dyn Peers>) -> Self {
        Self {
            replicas: peers.replicas().into_iter().map(ReplicaEntry::from).collect(),
            linked: peers.is_linked(),
        }
    }

    const fn of_none() -> Self {
        Self { replicas: Vec::new(), linked: false }
    }
}
