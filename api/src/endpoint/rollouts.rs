//! `/v1/rollouts`: traffic that moves from one backend to another in steps.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;
use xds_codec::document::{Node, TreeValue};
use xds_rollout::{Counts, Rollout, RolloutSpec, RolloutStatus, Verb, file_patch};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::{Asked, Caller};
use crate::input::{NoParams, Params, Path, read_tree};
use crate::problem::{ApiError, Fault, pointer_part};
use crate::rollouts::{LOADS_SHOWN_MS, RolloutError, RolloutLoads, StartOptions, Started, tag_of};
use crate::seen::Seen;
use crate::state::{ApiState, aside};
use crate::tag;
use crate::write::idempotency_key;

/// All rollouts that are kept.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RolloutList {
    /// Active ones first, then the newest first.
    pub rollouts: Vec<RolloutView>,
}

/// A rollout: what it is doing, and what it was asked for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutView {
    /// The present state.
    #[serde(flatten)]
    pub status: RolloutStatus,
    /// Requests that clients report for the two backends; only while it is on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<LoadsView>,
    /// The text to write into the file so that it matches the state that the rollout has left behind; only of one that has
    /// succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_patch: Option<String>,
    /// The specification in its long form, with every default.
    #[schema(value_type = Object)]
    pub spec: RolloutSpec,
}

/// Requests that clients report for the backends of a rollout.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadsView {
    /// The period in seconds, up to now, but not from before the rollout began; reports come at intervals and count when all of their period is within.
    pub window_seconds: u64,
    /// The requests to the canary.
    pub canary: BackendLoad,
    /// The requests to stable.
    pub stable: BackendLoad,
}

/// The requests that clients report for a backend.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendLoad {
    /// Requests that came to an end.
    pub requests: u64,
    /// The requests that failed.
    pub failures: u64,
    /// The share that failed, from 0 to 1; null without requests.
    pub error_rate: Option<f64>,
}

/// The requests to the backends of a rollout over time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutSeries {
    /// How long a point is, in seconds.
    pub bucket_seconds: u64,
    /// When the last point ends.
    pub until: String,
    /// The points in order of time: as many as reports are kept for. The last one is not over yet.
    pub points: Vec<SeriesPoint>,
}

/// The requests that were reported within a bucket.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SeriesPoint {
    /// The requests to the canary.
    pub canary: BackendLoad,
    /// The requests to stable.
    pub stable: BackendLoad,
    /// The weight of the canary at the end of the point, in percent; null before the oldest of the rollout's events.
    pub weight: Option<f64>,
}

/// The body of `:promote`.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only described; the body is read with the place of its fault")]
pub(crate) struct PromoteBody {
    /// True if the canary gets everything at once, instead of the next step.
    full: Option<bool>,
}

/// A rollout that is watched is forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WatchedDeletion {
    /// Its id.
    pub id: String,
}

/// Every kind of event of those who watch, with the name of the schema of its data.
pub(crate) const WATCH_KINDS: &[(&str, &str)] = &[("rollout", "RolloutView"), ("deleted", "WatchedDeletion")];

/// A rollout that would be begun.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutPlan {
    /// False: nothing was done.
    pub committed: bool,
    /// The specification in its long form, with every default.
    #[schema(value_type = Object)]
    pub spec: RolloutSpec,
    /// Every share that the canary may have, in percent, in the order of the steps.
    #[schema(value_type = Vec<f64>)]
    pub plan: Vec<Value>,
}

/// Parameters for beginning a rollout.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartParams {
    #[serde(default)]
    dry_run: bool,
}

/// Parameters of those who watch.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    watch: Option<String>,
}

/// Parameters for deleting a rollout.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParams {
    #[serde(default)]
    abort: bool,
}

/// The longest body of a rollout, in bytes. All kept rollouts are in memory.
const MAX_ROLLOUT_BYTES: usize = 64 * 1024;
/// How many may watch rollouts at a time.
const MAX_WATCHERS: usize = 64;
/// How often watchers get times and loads if nothing else happens.
const REFRESH: Duration = Duration::from_secs(1);
/// How long a deletion waits for the abort to be done.
const MAX_ABORT_WAIT: Duration = Duration::from_secs(10);
/// How often a comment shows that a stream lives, in seconds.
const KEEP_ALIVE_SECONDS: u64 = 15;

pub(crate) async fn start(
    State(state): State<ApiState>,
    Params(params): Params<StartParams>,
    asked: Asked,
    body: Body,
) -> Result<Response, ApiError> {
    state.check_loaded()?;
    let body = read_tree(&state, &asked.headers, body, MAX_ROLLOUT_BYTES).await?;
    let spec = RolloutSpec::try_from(body.to_json()).map_err(|error| {
        let fault = |fault: &xds_rollout::SpecFault| at_pointer(body.root(), &fault.pointer, &fault.detail);
        ApiError::Invalid(error.faults.iter().map(fault).collect())
    })?;
    let options = StartOptions {
        actor: asked.actor(),
        dry_run: params.dry_run,
        idempotency_key: idempotency_key(&asked.headers)?,
    };
    let started = state.rollouts.start(spec, options).await;
    let Started { rollout, is_repeated } = started.map_err(|error| {
        let RolloutError::Unfit { pointer, detail } = &error else { return of_rollout(error) };
        ApiError::Invalid(vec![at_pointer(body.root(), pointer, detail)])
    })?;
    if params.dry_run {
        let plan = plan(rollout.spec());
        return Ok(Answer::ok(&RolloutPlan { committed: false, spec: rollout.spec().clone(), plan })?
            .into_response());
    }
    let status = if is_repeated { StatusCode::OK } else { StatusCode::ACCEPTED };
    let answer = answer(&state, &rollout)?.with_status(status);
    let mut response = answer.into_response();
    if let Ok(location) = HeaderValue::try_from(format!("/v1/rollouts/{}", rollout.id())) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    Params(params): Params<WatchParams>,
    asked: Asked,
) -> Result<Response, ApiError> {
    if params.is_watch()? {
        return watch_stream(state, None, asked);
    }
    state.check_loaded()?;
    let mut rollouts: Vec<Arc<Rollout>> = seen(&state, &asked.caller).into_values().collect();
    rollouts.sort_by_cached_key(|rollout| {
        (rollout.phase().is_terminal(), std::cmp::Reverse(RolloutStatus::from(&**rollout).since_ms))
    });
    let rollouts = rollouts.iter().map(|rollout| view(&state, rollout)).collect();
    Ok(Answer::ok(&RolloutList { rollouts })?.tagged_by_content().into_response())
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Params(params): Params<WatchParams>,
    asked: Asked,
) -> Result<Response, ApiError> {
    if !params.is_watch()? {
        state.check_loaded()?;
        return Ok(answer(&state, &*find(&state, &asked.caller, &id)?)?.into_response());
    }
    find(&state, &asked.caller, &id)?;
    watch_stream(state, Some(id), asked)
}

/// `GET /v1/rollouts/{id}/loads`.
pub(crate) async fn series(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    _: Params<NoParams>,
    caller: Caller,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let rollout = find(&state, &caller, &id)?;
    let of_it = Arc::clone(&rollout);
    let series = aside(move || state.rollouts.series(&of_it)).await?;
    let mut age = series.bucket * u32::try_from(series.points.len()).unwrap_or(u32::MAX);
    let point = |[canary, stable]: &[Counts; 2]| {
        age = age.saturating_sub(series.bucket);
        let end = series.until.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        SeriesPoint { canary: load(*canary), stable: load(*stable), weight: weight_at(&rollout, end) }
    };
    Answer::ok(&RolloutSeries {
        bucket_seconds: series.bucket.as_secs().max(1),
        until: rfc3339(series.until),
        points: series.points.iter().map(point).collect(),
    })
}

/// `POST /v1/rollouts/{id}:{verb}`.
pub(crate) async fn ask(
    State(state): State<ApiState>,
    Path(path): Path<String>,
    _: Params<NoParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let Some((id, verb)) = path.rsplit_once(':') else { return Err(ApiError::NoMethod) };
    let verb = match verb {
        "pause" => Verb::Pause,
        "resume" => Verb::Resume,
        "promote" if is_full(&state, &asked.headers, body).await? => Verb::PromoteFull,
        "promote" => Verb::Promote,
        "abort" => Verb::Abort,
        "retry" => Verb::Retry,
        other => {
            let known = "pause, resume, promote, abort, retry";
            return Err(ApiError::BadRequest(format!(
                "{other:?} is not an action on a rollout; use {known}"
            )));
        }
    };
    let done = state.rollouts.ask(id.to_owned(), verb, tag::if_match(&asked.headers), asked.actor());
    let rollout = done.await.map_err(of_rollout)?;
    answer(&state, &rollout)
}

pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Params(params): Params<DeleteParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let mut if_match = tag::if_match(&asked.headers);
    let actor = asked.actor();
    let rollout = find(&state, &asked.caller, &id)?;
    if params.abort && !rollout.phase().is_terminal() {
        let aborted = state.rollouts.ask(id.clone(), Verb::Abort, if_match.take(), actor.clone());
        let mut rollout = aborted.await.map_err(of_rollout)?;
        let mut changes = state.rollouts.changes();
        let deadline = Instant::now() + MAX_ABORT_WAIT;
        while !rollout.phase().is_terminal() {
            if !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                return Ok(answer(&state, &rollout)?.with_status(StatusCode::ACCEPTED));
            }
            rollout = find(&state, &asked.caller, &id)?;
        }
    }
    state.rollouts.forget(id.clone(), if_match, actor).await.map_err(of_rollout)?;
    Answer::ok(&json!({"id": id, "deleted": true}))
}

impl WatchParams {
    fn is_watch(&self) -> Result<bool, ApiError> {
        match self.watch.as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(other) => Err(ApiError::BadRequest(format!("watch={other:?} is neither 1 nor 0"))),
        }
    }
}

/// The state of a stream of changes.
struct Watch {
    state: ApiState,
    caller: Caller,
    /// The rollout; `None` for all.
    id: Option<String>,
    changes: watch::Receiver<u64>,
    /// The last state that was sent of each, by id.
    told: BTreeMap<String, Told>,
    /// The state that the reader knows from an earlier stream.
    known: Option<String>,
    waiting: Vec<SseEvent>,
    is_over: bool,
}

/// The state that was sent of a rollout.
struct Told {
    rollout: Arc<Rollout>,
    loads: Option<RolloutLoads>,
    /// The whole view but the time.
    text: String,
}

fn watch_stream(state: ApiState, id: Option<String>, asked: Asked) -> Result<Response, ApiError> {
    let Asked { headers, caller } = asked;
    let Ok(place) = WATCHERS.try_acquire() else {
        return Err(ApiError::TooMany(format!("{MAX_WATCHERS} clients watch rollouts, which is the limit")));
    };
    let changes = state.rollouts.changes();
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
    let watch =
        Watch { state, caller, id, changes, told: BTreeMap::new(), known, waiting: vec![], is_over: false };
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(KEEP_ALIVE_SECONDS)).text("keep-alive");
    Ok(Sse::new(events(watch, place)).keep_alive(keep_alive).into_response())
}

/// A rollout's state whenever it is another; ends with the rollout if only one is watched.
fn events(watch: Watch, place: SemaphorePermit<'static>) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    stream::unfold((watch, place), |(mut watch, place)| async move {
        loop {
            if let Some(event) = watch.waiting.pop() {
                return Some((Ok(event), (watch, place)));
            }
            if watch.is_over {
                return None;
            }
            watch.look();
            if watch.waiting.is_empty() && !watch.is_over {
                // Either way they are looked at once more, for time and load.
                tokio::select! {
                    changed = watch.changes.changed() => if changed.is_err() { return None },
                    () = sleep(REFRESH) => {}
                }
            }
        }
    })
}

/// The places of those who watch.
static WATCHERS: Semaphore = Semaphore::const_new(MAX_WATCHERS);

impl Watch {
    fn look(&mut self) {
        let mut rollouts = seen(&self.state, &self.caller);
        if let Some(id) = &self.id {
            rollouts.retain(|other, _| other == id);
            self.is_over = rollouts.values().all(|rollout| rollout.is_finished());
        }
        let known = self.known.take();
        for (id, rollout) in &rollouts {
            let loads = loads_of(&self.state, rollout);
            let told = self.told.get(id);
            if told.is_some_and(|told| Arc::ptr_eq(&told.rollout, rollout) && told.loads == loads) {
                continue;
            }
            let data = serde_json::to_value(view_of(rollout, loads)).unwrap_or_default();
            let tag = format!("{id}/{}", tag_of(rollout));
            // Time alone is no news.
            let mut compared = data.clone();
            if let Value::Object(fields) = &mut compared {
                fields.remove("elapsedMs");
            }
            let text = compared.to_string();
            let is_known = known.as_ref() == Some(&tag) || told.is_some_and(|told| told.text == text);
            if !is_known {
                self.waiting.push(SseEvent::default().id(tag).event("rollout").data(data.to_string()));
            }
            self.told.insert(id.clone(), Told { rollout: Arc::clone(rollout), loads, text });
        }
        let gone: Vec<String> = self.told.keys().filter(|id| !rollouts.contains_key(*id)).cloned().collect();
        for id in gone {
            self.told.remove(&id);
            let data = serde_json::to_value(WatchedDeletion { id }).unwrap_or_default();
            self.waiting.push(SseEvent::default().event("deleted").data(data.to_string()));
        }
        // They are taken from the end.
        self.waiting.reverse();
    }
}

/// The rollouts in the caller's scope, by id.
fn seen(state: &ApiState, caller: &Caller) -> BTreeMap<String, Arc<Rollout>> {
    let seen = Seen::new(state, caller);
    let mut rollouts = state.rollouts.list();
    rollouts.retain(|_, rollout| seen.rollout(rollout));
    rollouts
}

fn find(state: &ApiState, caller: &Caller, id: &str) -> Result<Arc<Rollout>, ApiError> {
    seen(state, caller).remove(id).ok_or_else(|| of_rollout(RolloutError::NotFound(id.to_owned())))
}

/// The weight of the canary at a time, in percent.
fn weight_at(rollout: &Rollout, time: SystemTime) -> Option<f64> {
    let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let before = rollout.events().take_while(|event| u128::from(event.at_ms) <= time.as_millis());
    before.last().map(|event| event.canary.number())
}

fn answer(state: &ApiState, rollout: &Rollout) -> Result<Answer, ApiError> {
    Ok(Answer::ok(&view(state, rollout))?.tagged_by_content_and(&tag_of(rollout)))
}

fn view(state: &ApiState, rollout: &Rollout) -> RolloutView {
    view_of(rollout, loads_of(state, rollout))
}

fn loads_of(state: &ApiState, rollout: &Rollout) -> Option<RolloutLoads> {
    rollout.owns_rule().then(|| state.rollouts.loads(rollout))
}

fn load(counts: Counts) -> BackendLoad {
    BackendLoad {
        requests: counts.requests,
        failures: counts.failures,
        error_rate: (counts.requests > 0).then(|| counts.failures as f64 / counts.requests as f64),
    }
}

fn view_of(rollout: &Rollout, loads: Option<RolloutLoads>) -> RolloutView {
    let loads = loads.map(|loads| LoadsView {
        window_seconds: LOADS_SHOWN_MS / 1_000,
        canary: load(loads.canary),
        stable: load(loads.stable),
    });
    RolloutView {
        status: RolloutStatus::from(rollout),
        loads,
        file_patch: file_patch(rollout),
        spec: rollout.spec().clone(),
    }
}

/// The shares of the canary, step by step.
fn plan(spec: &RolloutSpec) -> Vec<Value> {
    // The first two are nothing and everything, which are the beginning and the end of every rollout.
    let mut shares = spec.plan();
    if shares.len() > 1 {
        let everything = shares.remove(1);
        shares.push(everything);
    }
    shares.iter().map(|share| serde_json::to_value(share).unwrap_or_default()).collect()
}

async fn is_full(state: &ApiState, headers: &HeaderMap, body: Body) -> Result<bool, ApiError> {
    let bytes = axum::body::to_bytes(body, MAX_ROLLOUT_BYTES).await;
    let bytes = bytes.map_err(|_| ApiError::TooLarge(MAX_ROLLOUT_BYTES))?;
    if bytes.trim_ascii().is_empty() {
        return Ok(false);
    }
    let tree = read_tree(state, headers, Body::from(bytes), MAX_ROLLOUT_BYTES).await?;
    let tree = tree.root();
    if !tree.is_object() {
        let detail = "expected an object such as {\"full\": true}";
        return Err(ApiError::Invalid(vec![Fault::at_tree(tree, "", detail)]));
    }
    let mut is_full = false;
    for entry in tree.entries() {
        match (entry.key, entry.value.value()) {
            ("full", TreeValue::Bool(full)) => is_full = full,
            (key, _) => {
                let detail = "only `full` is known, which is true or false";
                return Err(ApiError::Invalid(vec![at_pointer(
                    tree,
                    &format!("/{}", pointer_part(key)),
                    detail,
                )]));
            }
        }
    }
    Ok(is_full)
}

/// A fault at the place of the body that a pointer leads to, or the nearest one above it. The pointer may be that of the long form.
fn at_pointer(body: Node<'_>, pointer: &str, detail: &str) -> Fault {
    let (mut tree, mut sent) = (body, String::new());
    for written in as_sent(body, pointer).split('/').skip(1) {
        let part = written.replace("~1", "/").replace("~0", "~");
        let found = match tree.value() {
            TreeValue::Object(mut entries) => {
                entries.find(|entry| entry.key == part).map(|entry| entry.value)
            }
            TreeValue::List(mut items) => part.parse::<usize>().ok().and_then(|index| items.nth(index)),
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => None,
        };
        let Some(found) = found else { break };
        tree = found;
        sent.push('/');
        sent.push_str(written);
    }
    Fault::at_tree(tree, &sent, detail)
}

/// The pointer into the body as it was sent: in the short form, the fields that stand for steps are elsewhere.
fn as_sent(body: Node<'_>, pointer: &str) -> String {
    let in_list = |list: &str| body.get(list).is_none() && pointer.starts_with(&format!("/{list}"));
    let analysis = pointer.split_once("/analysis").map(|(_, rest)| format!("/analysis{rest}"));
    let first =
        |marks: &[&str]| marks.iter().find(|mark| body.get(mark).is_some()).map(|mark| format!("/{mark}"));
    let sent = match (in_list("steps"), in_list("promotionSteps")) {
        (true, _) => analysis.or_else(|| first(&["stepWeight", "stepWeights"])),
        (_, true) => analysis.or_else(|| first(&["stepWeightPromotion"])),
        (false, false) => None,
    };
    sent.unwrap_or_else(|| pointer.to_owned())
}

fn of_rollout(error: RolloutError) -> ApiError {
    match error {
        RolloutError::Write(error) => ApiError::Write(error),
        RolloutError::TooMany(_) => ApiError::TooMany(error.to_string()),
        RolloutError::NotFound(_) | RolloutError::NoRule(_) => ApiError::NotFound(error.to_string()),
        RolloutError::Unfit { pointer, detail } => ApiError::Invalid(vec![Fault::at(&pointer, detail)]),
        RolloutError::KeyReused(_) => ApiError::Invalid(vec![Fault::new(error.to_string())]),
        RolloutError::Illegal(_) | RolloutError::Active(_) => ApiError::IllegalTransition(error.to_string()),
        RolloutError::Stale(current) => {
            ApiError::Write(xds_control::model::WriteError::PreconditionFailed { current: Some(current) })
        }
    }
}

#[cfg(test)]
mod tests {
    use xds_codec::Tree;

    use super::*;

    #[test]
    fn a_fault_is_at_a_place_of_the_body_that_was_sent() {
        let long = json!({"steps": [{"setWeight": 5}], "canary": "a"});
        let short =
            json!({"stepWeight": 5, "stepWeightPromotion": 10, "analysis": {"prometheus": {"address": "x"}}});
        for (body, pointer, sent) in [
            (&long, "/steps/0/setWeight", "#/steps/0/setWeight"),
            (&long, "/steps/7/setWeight", "#/steps"),
            (&long, "/canary", "#/canary"),
            (&long, "/stable", "#"),
            (&short, "/steps/3/setWeight", "#/stepWeight"),
            (&short, "/steps/1/analysis/prometheus/address", "#/analysis/prometheus/address"),
            (&short, "/promotionSteps/1", "#/stepWeightPromotion"),
        ] {
            let fault = at_pointer(Tree::from_json(body).root(), pointer, "wrong");
            assert_eq!(fault.pointer.as_deref(), Some(sent), "{pointer}");
        }
    }
}
