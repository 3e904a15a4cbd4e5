//! `/v1/explain`: where a request goes, and why, by what a group or a node is served now or was served at a revision.

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::{Profile, Revision};
use xds_codec::Tree;
use xds_control::question::{Fields, Part, REQUEST_FIELDS};
use xds_explain::{Explanation, Model, Request};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::{Params, read_tree};
use crate::problem::{ApiError, Fault};
use crate::served::{About, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, Served, Whose};
use crate::state::{ApiState, aside};
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
    /// The revision whose state counts; by default the present state.
    at: Option<u64>,
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
}

pub(crate) async fn explain(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<ExplainParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let question = question(&read_tree(&state, &headers, body, MAX_QUESTION_BYTES).await?)?;
    let trial = state.trials.enter(&state.refusals)?.run().await?;
    // The trial goes along, so that its place is taken for as long as the work goes on.
    let answer = aside(move || answer(&state, &caller, &question, &params, &trial));
    Answer::ok(&answer.await??)
}

fn question(body: &Tree) -> Result<Question, ApiError> {
    let mut fields = Fields::new("".into());
    let body = Part { node: body.root(), path: String::new() };
    fields.check(&body, &[&About::FIELDS[..], &["at", "request"]].concat());
    let about = About::read(&mut fields, &body);
    let at = body.field("at").and_then(|at| {
        let number = at.node.to_json().as_u64().map(Revision);
        if number.is_none() {
            fields.fault("invalid-value", &at, "a revision is a whole number, such as 12");
        }
        number
    });
    let mut is_of_target = false;
    let request = match body.field("request") {
        Some(part) => {
            fields.check(&part, &REQUEST_FIELDS);
            is_of_target = part.field("target").is_some();
            fields.request(&[part])
        }
        None => {
            fields.fault("missing-field", &body, "a question needs a `request`");
            None
        }
    };
    match request {
        Some(request) if fields.faults.is_empty() => Ok(Question { about, at, request, is_of_target }),
        _ => Err(ApiError::Invalid(fields.faults.iter().map(|fault| Fault::of(fault, "")).collect())),
    }
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
        gaps: served.gaps.clone(),
        explanations: Vec::new(),
        text: None,
    };
    let mut all: Vec<Explanation> = Vec::new();
    let mut n_bytes = 0;
    let of_target = question.is_of_target.then_some(Profile::Grpc);
    for client in question.about.clients(&whose, &served, of_target) {
        goes_on()?;
        let view = whose.view(state, caller, &served, client)?;
        answer.revision = answer.revision.max(view.revision().0);
        answer.groups = view.key().groups.iter().map(ToString::to_string).collect();
        let mut explained = Model::of_view(&view, client).explain(&question.request);
        goes_on()?;
        served.locate(state, &view, &mut explained);
        for one in &explained {
            let value = serde_json::to_value(one).map_err(|error| ApiError::Internal(error.to_string()))?;
            n_bytes += value.to_string().len();
            if n_bytes > MAX_ANSWER_BYTES {
                let text = "the answer is too long; ask about one listener, or fewer clients";
                return Err(ApiError::BadRequest(text.to_owned()));
            }
            answer.explanations.push(value);
        }
        all.extend(explained);
    }
    answer.text = params.text.then(|| {
        let gaps: String = answer.gaps.iter().map(|gap| format!("not kept       {gap}\n")).collect();
        gaps + &xds_explain::to_text(&all, params.all)
    });
    Ok(answer)
}
