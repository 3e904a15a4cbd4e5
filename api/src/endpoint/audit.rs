//! `/v1/audit`: the newest lines of the audit log.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer::Answer;
use crate::input::Params;
use crate::problem::ApiError;
use crate::state::ApiState;

/// The newest lines of the audit log, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditList {
    /// The lines, as they are in the file.
    pub entries: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParams {
    limit: Option<usize>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    Params(params): Params<AuditParams>,
) -> Result<Answer, ApiError> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")));
    }
    Answer::ok(&AuditList { entries: state.access.trail.newest(limit) })
}

const DEFAULT_LIMIT: usize = 100;
/// As many as are kept.
const MAX_LIMIT: usize = 1_000;
