//! `/v1/acks`: the clients that have applied a publication.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::Revision;
use xds_control::acks::{AcksReport, Applied};
use xds_control::peers::ReplicasReport;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::everyone::Everyone;
use crate::input::Params;
use crate::problem::ApiError;
use crate::state::ApiState;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckParams {
    revision: Option<u64>,
    version: Option<String>,
    replica: Option<String>,
}

/// The clients that have applied a publication, of this server or of all.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcksAnswer {
    /// The clients.
    #[serde(flatten)]
    pub report: AcksReport,
    /// The servers whose clients these are, if several share the store and ask each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<AckParams>,
) -> Result<Answer, ApiError> {
    let head = state.control.head();
    let revision = match (params.revision, params.version) {
        (Some(revision), None) => Revision(revision),
        (None, Some(version)) => state.acks.revision_of(&version).ok_or_else(|| {
            ApiError::NotFound(format!("no remembered publication gave a type the version {version:?}"))
        })?,
        (None, None) => state.publisher.groups().0,
        (Some(_), Some(_)) => {
            return Err(ApiError::BadRequest("give either revision or version".to_owned()));
        }
    };
    if revision > head {
        return Err(ApiError::NotFound(format!("there is no revision {revision}; the last one is {head}")));
    }
    let own = || state.acks.report_of(revision, |groups| caller.sight_of_node(groups));
    let Some(all) = Everyone::new(&state, params.replica.as_deref())? else {
        return Answer::ok(&AcksAnswer { report: known(own(), revision)?, replicas: None });
    };
    if all.has_own() {
        known(own(), revision)?;
    }
    let (report, union) = all.acks(revision, caller.scope(), own()).await;
    Answer::ok(&AcksAnswer { report, replicas: Some(union.report()) })
}

fn known(applied: Applied, revision: Revision) -> Result<AcksReport, ApiError> {
    match applied {
        Applied::Known(report) => Ok(report),
        Applied::Behind => {
            let why = format!("revision {revision} is not served by this server yet; ask again in a moment");
            Err(ApiError::NotReady(vec![why]))
        }
        Applied::Forgotten => {
            let why = format!("the server no longer knows which clients revision {revision} concerned");
            Err(ApiError::Gone(why))
        }
    }
}
