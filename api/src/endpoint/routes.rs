//! `/v1/routes`: the routes that clients are served, each with its way from a listener to endpoints.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use xds_cache::Profile;
use xds_explain::{Client, Way, WaysWanted, ways};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::Params;
use crate::problem::ApiError;
use crate::served::{About, MAX_ANSWER_BYTES, Served, Whose};
use crate::state::{ApiState, aside, group_name};

/// Routes in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RouteList {
    /// The revision that they are of.
    pub revision: u64,
    /// The client that they are for, such as `envoy@1.40`.
    pub client: String,
    /// The routes: of each its listener and port, virtual host and domains, position, name and place, path and conditions, action, and the
    /// backends with their shares, places and endpoints.
    #[schema(value_type = Vec<Object>)]
    pub routes: Vec<Value>,
    /// The value of `after` for further ones; null on the last page.
    pub next: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteParams {
    node: Option<String>,
    group: Option<String>,
    profile: Option<String>,
    host: Option<String>,
    path: Option<String>,
    limit: Option<usize>,
    after: Option<usize>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<RouteParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")));
    }
    let wanted =
        WaysWanted { host: params.host, path: params.path, skip: params.after.unwrap_or_default(), limit };
    let group = params.group.as_deref().map(group_name).transpose()?;
    let profile = params.profile.as_deref().map(profile).transpose()?;
    let about = About::one(params.node, group, profile)?;
    Answer::ok(&aside(move || found(&state, &caller, &about, &wanted)).await??)
}

fn found(
    state: &ApiState,
    caller: &Caller,
    about: &About,
    wanted: &WaysWanted,
) -> Result<RouteList, ApiError> {
    let served = Served::present(state);
    let whose = Whose::of(state, caller, about, &[&served])?;
    let client = about.clients(&whose, &served, None).into_iter().next();
    let client = client.unwrap_or_else(|| Client::newest_of(Profile::Envoy)[0]);
    let view = whose.view(state, caller, &served, client)?;
    let model = state.models.of(&view, client);
    let (mut routes, mut n_bytes, mut has_more) = (Vec::new(), 0, true);
    while has_more && routes.len() < wanted.limit && n_bytes < MAX_ANSWER_BYTES {
        let limit = AT_ONCE.min(wanted.limit - routes.len());
        let part = WaysWanted { skip: wanted.skip + routes.len(), limit, ..wanted.clone() };
        let mut found: Vec<Way>;
        (found, has_more) = ways(&model, &part);
        served.locate(state, &view, &mut found);
        for way in &found {
            let route = serde_json::to_value(way).map_err(|error| ApiError::Internal(error.to_string()))?;
            n_bytes += route.to_string().len();
            routes.push(route);
        }
    }
    let next = has_more.then(|| (wanted.skip + routes.len()).to_string());
    Ok(RouteList { revision: view.revision().0, client: client.to_string(), routes, next })
}

fn profile(text: &str) -> Result<Profile, ApiError> {
    let found = Profile::ALL.into_iter().find(|profile| profile.as_str() == text);
    found.ok_or_else(|| ApiError::BadRequest(format!("profile={text:?} is neither envoy nor grpc")))
}

/// How many routes are made before it is looked how large the page is.
const AT_ONCE: usize = 50;

/// How many routes a page has if the request does not say.
const DEFAULT_LIMIT: usize = 100;

/// How many routes a page has at most.
const MAX_LIMIT: usize = 1_000;
