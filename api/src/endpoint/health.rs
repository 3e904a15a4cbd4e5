//! `/healthz`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Answer;
use crate::problem::ApiError;
use crate::state::ApiState;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `alive` or `ready`.
    pub status: &'static str,
    /// What needs attention though the server serves.
    pub problems: Vec<String>,
}

pub(crate) async fn alive() -> Result<Answer, ApiError> {
    Answer::ok(&Health { status: "alive", problems: vec![] })
}

pub(crate) async fn ready(State(state): State<ApiState>) -> Result<Answer, ApiError> {
    let reasons = state.control.not_ready();
    if !reasons.is_empty() {
        return Err(ApiError::NotReady(reasons));
    }
    Answer::ok(&Health { status: "ready", problems: state.control.problems() })
}

pub(crate) async fn metrics(State(state): State<ApiState>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], state.control.metrics()).into_response()
}
