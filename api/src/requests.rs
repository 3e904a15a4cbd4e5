//! The requests that a change moves, as JSON: for dry runs and the history.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use xds_control::model::GroupRequests;
use xds_explain::Changes;

use crate::problem::ApiError;

/// The requests of the clients of exactly one group that a change moves.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct GroupRequestsEntry {
    /// The group.
    pub group: String,
    /// `envoy` or `grpc`.
    pub client: String,
    /// One for each client, as `/v1/diff` answers them; clients with the same changes have one together.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Value>,
    /// The same as text, as the command `diff` prints it.
    pub text: String,
}

/// The entries of what a change moves.
///
/// # Errors
///
/// Never, unless this program is at fault.
pub(crate) fn entries(all: &[GroupRequests]) -> Result<Vec<GroupRequestsEntry>, ApiError> {
    let entry = |one: &GroupRequests| {
        Ok(GroupRequestsEntry {
            group: one.group.to_string(),
            client: one.profile.to_string(),
            changes: one.changes.iter().map(shown).collect::<Result<_, _>>()?,
            text: text(&one.changes),
        })
    };
    all.iter().map(entry).collect()
}

/// Changes as text, those of each client as a paragraph.
pub(crate) fn text(changes: &[Changes]) -> String {
    changes.iter().map(Changes::to_text).collect::<Vec<_>>().join("\n")
}

/// Changes as JSON.
///
/// # Errors
///
/// Never, unless this program is at fault.
pub(crate) fn shown(changes: &Changes) -> Result<Value, ApiError> {
    serde_json::to_value(changes).map_err(|error| ApiError::Internal(error.to_string()))
}
