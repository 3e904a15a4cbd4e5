//! `/v1/explain`: where a request goes, and why, or what gRPC clients hold for a target, by what a group or a node is served now or was
//! served at a revision.

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::{Profile, Revision};
use xds_control::question::{Fields, Part, REQUEST_FIELDS};
use xds_explain::{Explanation, Model, Request, Target};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::Params;
use crate::problem::ApiError;
use crate::served::{About, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, Served, Whose, ask, revision};
use crate::state::ApiState;
use crate::trials::{Running, stopped};

/// A question about a request.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase", as = ExplainBody)]
#[expect(dead_code, reason = "only described; the body is read with all its faults, not the first")]
pub(crate) struct ExplainBody {
    /// The node whose resources count; without it and without `group`, the group `default`.
    node: Option<String>,
    /// The group whose resources count, as for a client of this group alone.
    group: Option<String>,
    /// `envoy` or `grpc`; by default that of `target`, of the connected node or of the group, or `envoy`.
    profile: Option<String>,
    /// Clients to ask for, such as `envoy@1.38`, `grpc-go` or `grpc`, which means all languages: at most 8. By default the connected
    /// node's own, or the newest of the profile.
    clients: Option<Vec<String>>,
    /// The revision whose state counts, or `current`, which is the default.
    #[schema(value_type = Option<Value>)]
    at: Option<Value>,
    /// The request: `host` or `target`, `path`, `method`, `headers`, `scheme`, or `call`, or `curl`; `random`, `runtime`, `metadata`, `filterState`, `healthy`,
    /// `routeConfig`;
    /// and of the connection `listener`, `port`, `to`, `from`, `sni`, `alpn`, `tls`, `clientCert`.
    #[schema(value_type = Object)]
    request: Value,
}

/// Where a request goes, and why.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExplainAnswer {
    /// The revision that this is of.
    pub revision: u64,
    /// The groups whose resources count, the one that wins first.
    pub groups: Vec<String>,
    /// Objects whose contents at that revision are not kept, because they hold secrets: what is used instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// One for each client and each listener that may accept the request. Values of credentials are shown as `…`.
    #[schema(value_type = Vec<Object>)]
    pub explanations: Vec<Value>,
    /// What each client holds for the target, if the request has a `target` and says nothing of a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub targets: Vec<Value>,
    /// The same as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainParams {
    #[serde(default)]
    text: bool,
    #[serde(default)]
    all: bool,
}

/// A question, read.
struct Question {
    about: About,
    at: Option<Revision>,
    request: Request,
    is_of_target: bool,
    /// True if it is about the target and no call.
    is_about_target: bool,
}

pub(crate) async fn explain(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<ExplainParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let asking = caller.clone();
    let answer =
        ask(state, &asking, (headers, body, MAX_QUESTION_BYTES), question, move |state, question, trial| {
            answer(state, &caller, question, &params, trial)
        });
    Answer::ok(&answer.await?)
}

fn question(fields: &mut Fields, body: &Part<'_>) -> Option<Question> {
    fields.check(body, &[&About::FIELDS[..], &["at", "request"]].concat());
    let about = About::read(fields, body);
    let at = revision(fields, body, "at");
    let (mut is_of_target, mut has_call) = (false, false);
    let request = match body.field("request") {
        Some(part) => {
            fields.check(&part, &REQUEST_FIELDS);
            is_of_target = part.field("target").is_some();
            has_call = OF_CALLS.iter().any(|key| part.field(key).is_some());
            fields.request(&[part])
        }
        None => {
            fields.fault("missing-field", body, "a question needs a `request`");
            None
        }
    };
    Some(Question { about, at, request: request?, is_of_target, is_about_target: is_of_target && !has_call })
}

fn answer(
    state: &ApiState,
    caller: &Caller,
    question: &Question,
    params: &ExplainParams,
    trial: &Running,
) -> Result<ExplainAnswer, ApiError> {
    let goes_on = || if trial.goes_on() { Ok(()) } else { Err(stopped(&state.refusals)) };
    let served = Served::at(state, question.at, trial)?;
    let whose = Whose::of(state, caller, &question.about, &[&served])?;
    let mut answer = ExplainAnswer {
        revision: 0,
        groups: Vec::new(),
        gaps: served.gaps(caller),
        explanations: Vec::new(),
        targets: Vec::new(),
        text: None,
    };
    let mut all: Vec<Explanation> = Vec::new();
    let mut held: Vec<Target> = Vec::new();
    let mut n_bytes = 0;
    let of_target = question.is_of_target.then_some(Profile::Grpc);
    for client in question.about.clients(&whose, &served, of_target) {
        goes_on()?;
        let view = whose.view(state, caller, &served, client)?;
        answer.revision = answer.revision.max(view.revision().0);
        answer.groups = view.key().groups.iter().map(ToString::to_string).collect();
        let model = Model::of_view(&view, client);
        if question.is_about_target {
            let mut target = vec![model.target(&question.request.authority).ok_or_else(no_target)?];
            served.locate(state, &view, &mut target);
            answer.targets.extend(written(&target, &mut n_bytes)?);
            held.extend(target);
            continue;
        }
        let mut explained = model.explain(&question.request);
        goes_on()?;
        served.locate(state, &view, &mut explained);
        answer.explanations.extend(written(&explained, &mut n_bytes)?);
        all.extend(explained);
    }
    answer.text = params.text.then(|| {
        let gaps: String = answer.gaps.iter().map(|gap| format!("not kept       {gap}\n")).collect();
        gaps + &xds_explain::to_text(&all, params.all) + &xds_explain::targets_to_text(&held)
    });
    Ok(answer)
}

/// Parts of an answer, as far as it may be long.
fn written<T: Serialize>(all: &[T], n_bytes: &mut usize) -> Result<Vec<Value>, ApiError> {
    let mut values = Vec::new();
    for one in all {
        let value = serde_json::to_value(one).map_err(|error| ApiError::Internal(error.to_string()))?;
        *n_bytes += value.to_string().len();
        if *n_bytes > MAX_ANSWER_BYTES {
            let text = "the answer is too long; ask about one listener, or fewer clients";
            return Err(ApiError::BadRequest(text.to_owned()));
        }
        values.push(value);
    }
    Ok(values)
}

fn no_target() -> ApiError {
    ApiError::BadRequest("an Envoy has no target; add a `call`, or leave out the client".to_owned())
}

/// With one of these, a request is about a call.
const OF_CALLS: [&str; 4] = ["call", "curl", "path", "method"];
