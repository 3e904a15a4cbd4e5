//! `/v1/diff`: the requests that move between two states of the server.

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_control::question::{Fields, Part};
use xds_explain::{Changes, Effort, Model, diff_within};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::{MAX_RESOURCES_BYTES, Params};
use crate::problem::{ApiError, Fault};
use crate::requests::{self, shown};
use crate::served::{About, Served, Which, Whose, ask, state_of};
use crate::state::ApiState;
use crate::trials::{Running, stopped};

/// Two states to compare.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase", as = DiffBody)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
pub(crate) struct DiffBody {
    /// The state before: a revision, `current`, or an object with `files`.
    #[schema(value_type = Value)]
    from: Value,
    /// The state after: a revision, `current`, which is the default, or `{"files": {PATH: TEXT, …}}`: what would be served if these were
    /// the watched files.
    #[schema(value_type = Option<Value>)]
    to: Option<Value>,
    /// The node whose resources count; without it and without `group`, the group `default`.
    node: Option<String>,
    /// The group whose resources count, as for a client of this group alone.
    group: Option<String>,
    /// `envoy` or `grpc`; by default that of the connected node or of the group, or `envoy`.
    profile: Option<String>,
    /// Clients to compare for, such as `envoy@1.38`, `grpc-go` or `grpc`, which means all languages: at most 8. By default the connected
    /// node's own, or the newest of the profile.
    clients: Option<Vec<String>>,
}

/// The requests that move between two states.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiffAnswer {
    /// The revision before; with files, the one that they would follow.
    pub from: u64,
    /// The revision after; with files, the one that they would follow.
    pub to: u64,
    /// Objects whose contents at a revision are not kept, because they hold secrets: what is used instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The errors of the files, at most 100: what has one is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Fault>,
    /// One for each client; clients with the same changes have one together. Values of credentials are shown as `…`.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Value>,
    /// True if every request is treated as before for every client.
    pub same: bool,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    #[serde(default)]
    text: bool,
}

/// A question, read.
struct Question {
    about: About,
    states: [Which; 2],
}

pub(crate) async fn diff(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<DiffParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let asking = caller.clone();
    let answer =
        ask(state, &asking, (headers, body, MAX_RESOURCES_BYTES), question, move |state, question, trial| {
            answer(state, &caller, question, &params, trial)
        });
    Answer::ok(&answer.await?)
}

fn question(fields: &mut Fields, body: &Part<'_>) -> Option<Question> {
    fields.check(body, &[&About::FIELDS[..], &["from", "to"]].concat());
    let about = About::read(fields, body);
    if body.field("from").is_none() {
        fields.fault("missing-field", body, "write `from`: a revision, such as 12, current, or files");
    }
    let states = ["from", "to"].map(|key| state_of(fields, body, key));
    Some(Question { about, states })
}

fn answer(
    state: &ApiState,
    caller: &Caller,
    question: &Question,
    params: &DiffParams,
    trial: &Running,
) -> Result<DiffAnswer, ApiError> {
    let [before, after] = &question.states;
    if [before, after].into_iter().any(|which| matches!(which, Which::Files(_))) {
        caller.check_own_files()?;
    }
    let (before, after) = (Served::which(state, before, trial)?, Served::which(state, after, trial)?);
    let whose = Whose::of(state, caller, &question.about, &[&before, &after])?;
    let mut all: Vec<Changes> = Vec::new();
    let mut effort = Effort::default();
    for client in question.about.clients(&whose, &after, None) {
        if !trial.goes_on() {
            return Err(stopped(&state.refusals));
        }
        let old = whose.view(state, caller, &before, client)?;
        let new = whose.view(state, caller, &after, client)?;
        let mut changes =
            diff_within(&Model::of_view(&old, client), &Model::of_view(&new, client), &mut effort);
        changes.locate(|all| before.locate(state, &old, all), |all| after.locate(state, &new, all));
        all.push(changes);
    }
    let all = Changes::together(all);
    let gaps: Vec<String> = [&before, &after]
        .into_iter()
        .flat_map(|served| {
            served.gaps(caller).into_iter().map(move |gap| format!("revision {}: {gap}", served.revision))
        })
        .collect();
    let errors = || [&before, &after].into_iter().flat_map(|served| &served.errors).take(MAX_ERRORS);
    let in_words = || {
        let gaps = gaps.iter().map(|gap| format!("not kept       {gap}\n"));
        let errors = errors().map(|error| format!("left out       {error}\n"));
        gaps.chain(errors).collect::<String>() + &requests::text(&all)
    };
    Ok(DiffAnswer {
        from: before.revision.0,
        to: after.revision.0,
        same: all.iter().all(Changes::is_empty),
        text: params.text.then(in_words),
        changes: all.iter().map(shown).collect::<Result<_, _>>()?,
        gaps,
        errors: errors().map(|error| Fault::of(error, "")).collect(),
    })
}

/// Errors of files that an answer shows.
const MAX_ERRORS: usize = 100;
