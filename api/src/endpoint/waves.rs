//! `/v1/waves`: wave deployments.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_control::model::group::GroupWaves;
use xds_control::model::wave::{WaveMembers, WavePhase, WaveReport, WaveVerb};
use xds_control::peers::Question;
use xds_control::requests::{State as Compared, between};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::{Asked, Caller};
use crate::everyone::page_of_leader;
use crate::input::{NoParams, Params, Path};
use crate::problem::ApiError;
use crate::requests::{GroupRequestsEntry, entries};
use crate::seen::Seen;
use crate::state::{ApiState, aside};
use crate::write::counted;

/// Wave deployments, newest first: the one that is under way, and the last ones that ended.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaveList {
    /// The wave deployments.
    pub wave_deployments: Vec<WaveEntry>,
}

/// A wave deployment.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaveEntry {
    /// Its id: the revision that began it.
    pub id: u64,
    /// `progressing`, `holding`, `paused`, `held`, `completed`, `promoted`, `reverted` or `superseded`.
    pub phase: String,
    /// Why it is stopped, paused or was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `api`, `file`, `rollback` or `revert`.
    pub source: String,
    /// The user or program that asked for the change.
    pub actor: String,
    /// The change in one line.
    pub summary: String,
    /// The objects that it changes.
    pub objects: Vec<String>,
    /// Its waves.
    pub policy: GroupWaves,
    /// The share of the nodes that have the change now; null if none has.
    pub share: Option<String>,
    /// The waves so far.
    pub waves: Vec<WaveStep>,
    /// When it began.
    pub began_at: String,
    /// When it last changed.
    pub since: String,
    /// When the next wave starts if nothing happens; null if that is not known.
    pub next_at: Option<String>,
    /// How its clients are.
    #[serde(flatten)]
    pub members: WaveMembers,
    /// The requests that it moves, if they were asked for and it is under way: of clients of each group that it changes, for the first
    /// sixteen kinds of clients and 64 classes.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub moved_requests: Option<Vec<GroupRequestsEntry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct WaveParams {
    #[serde(default)]
    moved_requests: bool,
}

/// A wave.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaveStep {
    /// The share of the nodes, including those of the waves before.
    pub share: String,
    /// The revision that it was published as.
    pub revision: u64,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    let reports = {
        let seen = Seen::new(&state, &caller);
        let mut reports = state.control.waves();
        reports.retain(|report| seen.deployment(report));
        reports
    };
    Answer::ok(&of_leader(&state, WaveList::of(reports.iter())).await)
}

impl WaveList {
    pub(crate) fn of<'r>(reports: impl Iterator<Item = &'r WaveReport>) -> Self {
        Self { wave_deployments: reports.map(WaveEntry::from).collect() }
    }
}

/// The same wave deployments, but the one that is under way as the server knows it that drives it, if that is another one.
async fn of_leader(state: &ApiState, mut list: WaveList) -> WaveList {
    const UNDER_WAY: [WavePhase; 3] = [WavePhase::Progressing, WavePhase::Holding, WavePhase::Paused];
    let is_under_way = |entry: &WaveEntry| UNDER_WAY.iter().any(|phase| phase.as_str() == entry.phase);
    let Some(own) = list.wave_deployments.iter_mut().find(|entry| is_under_way(entry)) else { return list };
    let known: Option<WaveList> = page_of_leader(state, Question::Waves).await;
    let known = known.and_then(|known| known.wave_deployments.into_iter().find(|entry| entry.id == own.id));
    if let Some(known) = known {
        *own = known;
    }
    list
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<WaveParams>,
) -> Result<Answer, ApiError> {
    let id = deployment(&id)?;
    let found = {
        let seen = Seen::new(&state, &caller);
        let is_it = |report: &WaveReport| report.deployment == id && seen.deployment(report);
        state.control.waves().into_iter().find(is_it)
    };
    let found = of_leader(&state, WaveList::of(found.iter())).await.wave_deployments.pop();
    let found = found.ok_or_else(|| ApiError::NotFound(format!("there is no wave deployment {id}")))?;
    let moved_requests = if params.moved_requests { moved(&state, caller, id).await? } else { None };
    Answer::ok(&WaveEntry { moved_requests, ..found })
}

/// The requests that a wave deployment moves, of groups that the caller sees; `None` if it is over.
async fn moved(
    state: &ApiState,
    caller: Caller,
    id: u64,
) -> Result<Option<Vec<GroupRequestsEntry>>, ApiError> {
    let trial = state.trials.enter(&caller, &state.refusals)?.run().await?;
    let control = state.control.clone();
    let compare = move || {
        let Some(sides) = control.sides(id) else { return Ok(None) };
        let moved = between(sides.each_ref().map(Compared::from), |group| caller.sees_group(group));
        drop(trial);
        entries(&moved).map(Some)
    };
    aside(compare).await?
}

/// `{id}:{verb}`; the path is one segment, because axum takes no `:` between two.
pub(crate) async fn act(
    State(state): State<ApiState>,
    Path(target): Path<String>,
    _: Params<NoParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let known = target.split_once(':').and_then(|(id, verb)| Some((id, WaveVerb::of_name(verb)?)));
    let Some((id, verb)) = known else {
        return Err(ApiError::BadRequest(format!(
            "{target:?} does not say what to do: write the id of a wave deployment and :pause, :resume, :promote or :abort"
        )));
    };
    let done = state.control.wave(deployment(id)?, verb, asked.actor()).await;
    let report = counted(&state.refusals, done)?;
    Answer::ok(&WaveEntry::from(&report))
}

fn deployment(text: &str) -> Result<u64, ApiError> {
    text.parse()
        .map_err(|_| ApiError::BadRequest(format!("{text:?} is not a wave deployment: its id is a number")))
}

impl From<&WaveReport> for WaveEntry {
    fn from(report: &WaveReport) -> Self {
        Self {
            id: report.deployment,
            phase: report.phase.as_str().to_owned(),
            reason: report.reason.clone(),
            source: report.source.clone(),
            actor: report.actor.clone(),
            summary: report.summary.clone(),
            objects: report.objects.clone(),
            policy: GroupWaves::from(&report.policy),
            share: report.share().map(|share| share.to_string()),
            waves: report
                .reached
                .iter()
                .map(|(share, revision)| WaveStep { share: share.to_string(), revision: revision.0 })
                .collect(),
            began_at: rfc3339(report.began_at),
            since: rfc3339(report.since),
            next_at: report.next_at.map(rfc3339),
            members: report.members.clone(),
            moved_requests: None,
        }
    }
}
