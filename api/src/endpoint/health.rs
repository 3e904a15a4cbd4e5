//! `/healthz`, `/readyz` and `/metrics`.

use std::time::SystemTime;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::refusals::Refused;
use xds_control::MISSING_REFERENCES;
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::problem::ApiError;
use crate::state::{ApiState, aside};

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `alive` or `ready`.
    pub status: &'static str,
    /// Problems that need attention though the server serves.
    pub problems: Vec<String>,
    /// The limits that refused something in the last five minutes.
    pub refused: Vec<RefusedEntry>,
}

/// A limit that refused something.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefusedEntry {
    /// The label of the metric `xds_refused_total`.
    pub reason: &'static str,
    /// The flag that sets the limit, or a few words if none does.
    pub limit: &'static str,
    /// How often since the server started.
    pub count: u64,
    /// When it last did.
    pub last_at: String,
}

impl From<&Refused> for RefusedEntry {
    /// The detail stays in the log: probes need no credentials.
    fn from(refused: &Refused) -> Self {
        let Refused { reason, n, last_at, .. } = refused;
        Self { reason: reason.as_str(), limit: reason.limit(), count: *n, last_at: rfc3339(*last_at) }
    }
}

pub(crate) async fn alive() -> Result<Answer, ApiError> {
    Answer::ok(&Health { status: "alive", problems: vec![], refused: vec![] })
}

/// Tells whether the server is ready. Probes need no credential, so that texts, which name files, groups and principals, are only for those
/// who may see everything. Those about missing references are also for principals with their groups in scope.
pub(crate) async fn ready(
    State(state): State<ApiState>,
    caller: Option<Extension<Caller>>,
) -> Result<Answer, ApiError> {
    let caller = caller.map(|Extension(caller)| caller);
    let sees_everything = caller.as_ref().is_some_and(Caller::sees_everything);
    let reasons = match sees_everything {
        true => state.control.not_ready(),
        false => state.control.not_ready_in_short(),
    };
    if !reasons.is_empty() {
        return Err(ApiError::NotReady(reasons));
    }
    let refused = state.refusals.recent(SystemTime::now()).iter().map(RefusedEntry::from).collect();
    let problems = match sees_everything {
        true => state.control.problems(),
        false => {
            let scoped = caller.filter(|caller| caller.scope().is_some());
            let mut subjects = state.control.problem_subjects();
            if scoped.is_some() {
                subjects.remove(MISSING_REFERENCES);
            }
            let of_groups =
                scoped.map(|caller| state.control.problems_of_groups(|group| caller.sees_group(group)));
            subjects.iter().map(|subject| in_short(subject)).chain(of_groups.into_iter().flatten()).collect()
        }
    };
    Answer::ok(&Health { status: "ready", problems, refused })
}

fn in_short(subject: &str) -> String {
    format!("{subject}: the text is shown with a credential of a principal without a scope")
}

pub(crate) async fn metrics(State(state): State<ApiState>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match aside(move || state.control.metrics()).await {
        Ok(text) => ([(CONTENT_TYPE, kind)], text).into_response(),
        Err(error) => error.into_response(),
    }
}
