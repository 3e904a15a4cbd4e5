//! The common parameters and answers of all writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use xds_cache::refusals::Reason;
use xds_cache::wave::PolicyTexts;
use xds_cache::{AHEAD, GroupName, Profile, Refusals, Revision, ViewKey, WavePolicy};
use xds_codec::json_diff;
use xds_control::acks::{AcksQuery, AcksReport, Applied, view_key_of_group};
use xds_control::model::{
    ChangedObject, RequestName, TraceParent, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome,
};
use xds_control::peers::ReplicasReport;
use xds_routes::Stopped;
use xds_store::BlobHash;

use crate::answer::{Answer, fields};
use crate::caller::{Asked, Caller};
use crate::everyone::{self, Servers, Waited};
use crate::input::wait_of;
use crate::phases::GroupPhasesEntry;
use crate::problem::{ApiError, Fault};
use crate::requests::{self, GroupRequestsEntry};
use crate::state::{ApiState, aside};
use crate::{tag, trials};

/// The query parameters of every write.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// Where documents go that do not say it; only a write of documents [takes](Self::take_group) it.
    group: Option<String>,
    /// For files that remove much; only a write of files [takes](Self::take_confirm) it.
    #[serde(default)]
    confirm: bool,
    #[serde(default)]
    dry_run: bool,
    wait: Option<String>,
    timeout: Option<String>,
    on_nack: Option<String>,
    min_clients: Option<String>,
    waves: Option<String>,
    by: Option<String>,
    order: Option<String>,
    hold: Option<String>,
    max_nacks: Option<String>,
    ack_timeout: Option<String>,
    max_lost: Option<String>,
    #[serde(default)]
    allow_empty: bool,
    max_error_rate: Option<String>,
    #[serde(default)]
    force: bool,
}

/// The parameters, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mode {
    dry_run: bool,
    wait: Option<Duration>,
    reverts: bool,
    /// How many clients must accept it at least.
    min_clients: usize,
    waves: WaveChoice,
    force: bool,
}

/// The answer to every write.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriteAnswer {
    /// True if the state is durable and published as the answer says; false only for a dry run.
    pub committed: bool,
    /// The revision that holds it: a new one, or the last one if nothing changed.
    pub revision: u64,
    /// How many connected clients it concerns, those that came after the publication included.
    pub total: usize,
    /// True if it changed anything.
    pub changed: bool,
    /// True if an earlier request with the same `Idempotency-Key` did it, in this revision.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// The versions that a client of exactly this group sees, by type URL; for writes of one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<BTreeMap<String, String>>,
    /// Doubts about it.
    pub warnings: Vec<Fault>,
    /// The changes that it would make, for a dry run; or made, for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Vec<Difference>>,
    /// The connected nodes that it would concern; for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affected_nodes: Option<Vec<String>>,
    /// The phases in which clients of each group that it changes would get it, for the first sixteen; for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<GroupPhasesEntry>>,
    /// The requests that it would move, of clients of each group that it changes, for the first sixteen kinds of clients and 64 classes; for a
    /// dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<GroupRequestsEntry>>,
    /// How many more clients than have acknowledged it `minClients` demands; missing if that is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<usize>,
    /// The revision that took it back (`onNack=revert`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted: Option<u64>,
    /// The wave deployment that it began (`/v1/waves/{id}`); `total` counts the clients of the first wave then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave_deployment: Option<u64>,
    /// The servers whose clients are counted (`wait=acked`), if several share the store and ask each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasReport>,
    /// Why RouteTests keep it from being published: it is accepted, and `waveDeployment` holds it. Nobody is served it, so there is
    /// nobody to wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// An object that differs, without its secrets.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Difference {
    /// `group/{group}`, `{group}/{type}/{name}`, `document/{kind}/{namespace}/{name}`,
    /// `weights/{kind}/{namespace}/{name}/{rule}`, or of what is generated from documents `generated/{profile}/{group}/{type}/{name}`.
    pub what: String,
    /// The former value; null if it is new.
    pub before: Option<Value>,
    /// The new value; null if it goes.
    pub after: Option<Value>,
    /// The single places that differ, if it is neither new nor gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PlaceChange>,
    /// The lines of its YAML that differ, as `diff -u` writes them: in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A place that differs.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct PlaceChange {
    /// JSON pointer.
    pub pointer: String,
    /// The old value; null if there was none.
    pub old: Option<Value>,
    /// The new value; null if there is none.
    pub new: Option<Value>,
}

impl WriteParams {
    /// The group that the parameters name.
    pub(crate) fn take_group(&mut self) -> Option<String> {
        self.group.take()
    }

    /// True if the caller knows what the files remove.
    pub(crate) fn take_confirm(&mut self) -> bool {
        std::mem::take(&mut self.confirm)
    }

    fn waves(&self) -> Result<WaveChoice, ApiError> {
        let details = [
            &self.by,
            &self.order,
            &self.hold,
            &self.max_nacks,
            &self.ack_timeout,
            &self.max_lost,
            &self.max_error_rate,
        ];
        let has_details = self.allow_empty || details.iter().any(|text| text.is_some());
        let shares = match self.waves.as_deref() {
            None if has_details => {
                let text = "by, order, hold, maxNacks, ackTimeout, maxLost, allowEmpty and maxErrorRate need waves, such as \
                            waves=1%25,10%25,100%25";
                return Err(ApiError::BadRequest(text.to_owned()));
            }
            Some("none") if has_details => {
                let text = "waves=none allows neither by nor order, hold, maxNacks, ackTimeout, maxLost, allowEmpty or \
                            maxErrorRate";
                return Err(ApiError::BadRequest(text.to_owned()));
            }
            None => return Ok(WaveChoice::ByPolicy),
            Some("none") => return Ok(WaveChoice::AtOnce),
            Some(shares) => shares,
        };
        let policy = WavePolicy::of_texts(PolicyTexts {
            shares,
            by: self.by.as_deref(),
            order: self.order.iter().flat_map(|order| order.split(',')).collect(),
            hold: self.hold.as_deref(),
            max_nacks: self.max_nacks.as_deref(),
            ack_timeout: self.ack_timeout.as_deref(),
            max_lost: self.max_lost.as_deref(),
            allow_empty: self.allow_empty,
            max_error_rate: self.max_error_rate.as_deref(),
        });
        policy.map(WaveChoice::By).map_err(|error| ApiError::BadRequest(error.to_string()))
    }
}

impl From<&ChangedObject> for Difference {
    fn from(object: &ChangedObject) -> Self {
        let changes = match (&object.before, &object.after) {
            (Some(before), Some(after)) => json_diff(before, after),
            (_, _) => vec![],
        };
        let changes = changes.into_iter();
        Self {
            what: object.what.clone(),
            before: object.before.clone(),
            after: object.after.clone(),
            changes: changes
                .map(|change| PlaceChange { pointer: change.pointer, old: change.old, new: change.new })
                .collect(),
            diff: None,
        }
    }
}

impl TryFrom<WriteParams> for Mode {
    type Error = ApiError;

    fn try_from(params: WriteParams) -> Result<Self, ApiError> {
        let refuse = |text: String| Err(ApiError::BadRequest(text));
        if params.group.is_some() {
            return refuse("only a write to /v1/apply can have the parameter group".to_owned());
        }
        if params.confirm {
            return refuse("only a write to /v1/files can have the parameter confirm".to_owned());
        }
        let reverts = match params.on_nack.as_deref() {
            None | Some("keep") => false,
            Some("revert") => true,
            Some(other) => return refuse(format!("onNack={other:?} is neither revert nor keep")),
        };
        let waves = params.waves()?;
        if reverts && matches!(waves, WaveChoice::By(_)) {
            return refuse(
                "onNack=revert is for writes without waves: a wave deployment puts itself back".to_owned(),
            );
        }
        let wait = wait_of(params.wait.as_deref(), params.timeout.as_deref(), params.min_clients.as_deref())?;
        if wait.is_none() && reverts {
            return refuse("onNack=revert needs wait=acked".to_owned());
        }
        let (wait, min_clients) = wait.map_or((None, 0), |(timeout, n)| (Some(timeout), n));
        Ok(Self { dry_run: params.dry_run, wait, reverts, min_clients, waves, force: params.force })
    }
}

/// Does a write and answers it.
pub(crate) async fn run(
    state: &ApiState,
    asked: &Asked,
    params: WriteParams,
    write: Write,
) -> Result<Answer, ApiError> {
    let mode = Mode::try_from(params)?;
    let scope = asked.caller.scope().cloned().map(Arc::new);
    if mode.force && scope.is_some() {
        let what = "force, which may end what others do,".to_owned();
        return Err(WriteError::OutOfScope { what }.into());
    }
    let options = WriteOptions {
        actor: asked.actor(),
        if_match: tag::if_match(&asked.headers),
        if_none_match: tag::if_none_match(&asked.headers),
        dry_run: mode.dry_run,
        waves: mode.waves.clone(),
        force: mode.force,
        until: None,
        scope,
        request: request_name(asked, &write)?,
        trace_parent: trace_parent(&asked.headers),
    };
    asked.caller.note(|deed| deed.is_dry_run = mode.dry_run);
    let reverts = mode.reverts;
    let done = perform(state.clone(), asked.caller.clone(), mode, write, options);
    if !reverts {
        return done.await;
    }
    // A caller that hangs up must not keep a rejected change from being taken back.
    tokio::spawn(done).await.map_err(|_| ApiError::Internal("the write was stopped".to_owned()))?
}

/// The name of a request that has an `Idempotency-Key`.
fn request_name(asked: &Asked, write: &Write) -> Result<Option<RequestName>, ApiError> {
    let Some(key) = idempotency_key(&asked.headers)? else { return Ok(None) };
    // Two callers may choose one key.
    let name = hash(&format!("{:?}", (asked.actor(), key)));
    let digest = if let Write::ReplaceFiles { load, is_confirmed } = write {
        // It also has when they were read.
        let files: Vec<_> = load.files.values().map(|file| (&file.path, file.hash)).collect();
        hash(&format!("{:?}", (files, is_confirmed)))
    } else {
        hash(&format!("{write:?}"))
    };
    Ok(Some(RequestName { name, digest }))
}

fn hash(text: &str) -> String {
    BlobHash::of(text.as_bytes()).to_string()
}

/// Reads the header `traceparent`. One that cannot be read, or two of them, count as none.
fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    let mut found = headers.get_all("traceparent").iter();
    let (Some(only), None) = (found.next(), found.next()) else { return None };
    only.to_str().ok()?.parse().ok()
}

/// Reads the header `Idempotency-Key`.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= MAX_KEY_BYTES => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => {
            let limit = MAX_KEY_BYTES;
            Err(ApiError::BadRequest(format!(
                "an Idempotency-Key is a text of 1 to {limit} visible characters"
            )))
        }
    }
}

/// The longest `Idempotency-Key`.
const MAX_KEY_BYTES: usize = 256;

/// Does a dry run, one of a few. It goes on if the caller hangs up, because it cannot be left in the middle, but no longer than any.
async fn try_out(
    state: &ApiState,
    caller: &Caller,
    write: Write,
    options: WriteOptions,
) -> Result<WriteOutcome, ApiError> {
    let trial = state.trials.enter(caller, &state.refusals)?.run().await?;
    let options = WriteOptions { until: Some(trial.until), ..options };
    let control = state.control.clone();
    let done = tokio::spawn(async move {
        let outcome = control.write(write, options).await;
        drop(trial);
        outcome
    });
    match done.await.map_err(|_| ApiError::Internal("the dry run was stopped".to_owned()))? {
        Err(WriteError::Stopped(Stopped::NobodyWaits)) => Err(trials::stopped(&state.refusals)),
        outcome => Ok(outcome?),
    }
}

async fn perform(
    state: ApiState,
    caller: Caller,
    mode: Mode,
    write: Write,
    options: WriteOptions,
) -> Result<Answer, ApiError> {
    let group = group_of(&write);
    let named = if mode.wait.is_some() { write.named() } else { vec![] };
    let (actor, trace_parent) = (options.actor.clone(), options.trace_parent);
    let outcome = if options.force
        && let Write::ChangeWeights { key, change } = write
    {
        counted(&state.refusals, state.rollouts.take_rule(key, change, options).await)?
    } else if options.dry_run {
        try_out(&state, &caller, write, options).await?
    } else {
        counted(&state.refusals, state.control.write(write, options).await)?
    };
    caller.note(|deed| {
        deed.objects.clone_from(&outcome.objects);
        deed.revision = (!mode.dry_run).then_some(outcome.revision.0);
    });
    let mut answer = first_answer(&state, &outcome, group.as_ref());
    answer.difference =
        (!outcome.difference.is_empty()).then(|| outcome.difference.iter().map(Difference::from).collect());
    if mode.dry_run {
        answer.committed = false;
        answer.affected_nodes = Some(outcome.affected_nodes.clone());
        answer.phases = Some(outcome.phases.iter().map(GroupPhasesEntry::from).collect());
        answer.requests = Some(requests::entries(&outcome.requests)?);
        answer.difference = Some(outcome.difference.iter().map(Difference::from).collect());
        return Answer::ok(&answer);
    }
    let sight = |groups: &[GroupName]| caller.sight_of_node(groups);
    let report = outcome
        .changed
        .then(|| state.acks.report_of(&AcksQuery::concerned(outcome.revision), sight).known())
        .flatten();
    answer.total = report.map_or(0, |report| report.total);
    let Some(timeout) = mode.wait else { return Answer::ok(&answer) };
    let awaited = match outcome.changed {
        true => Some(outcome.revision),
        // The clients may not have it yet, though it is what it was.
        false => last_change(&state, named).await?,
    };
    let waited = match awaited {
        Some(revision) => {
            let query = AcksQuery::concerned(revision);
            everyone::wait(&state, &caller, (&query, mode.min_clients), timeout).await
        }
        None => Waited::for_nobody(outcome.revision),
    };
    let (report, Servers { is_whole, warnings, replicas }) = waited.servers(&state);
    answer.warnings.extend(warnings);
    answer.replicas = replicas;
    if report.total == 0 && is_whole && outcome.held.is_none() {
        let is_forgotten = awaited.is_none_or(|revision| state.acks.report(revision) == Applied::Forgotten);
        answer.warnings.push(Fault::new(if is_forgotten { FORGOTTEN } else { NOBODY }));
    }
    let short = mode.min_clients.saturating_sub(report.acked);
    answer.short = (short > 0).then_some(short);
    if report.n_nacked + report.n_already_failing > 0 {
        // A rejection that is older than the change is no reason to take it back.
        if mode.reverts && outcome.changed && report.n_nacked > 0 {
            answer.reverted = Some(revert(&state, outcome.revision, (actor, trace_parent)).await?);
        }
        return Err(ApiError::Rejected(with_report(&answer, &report)));
    }
    let is_complete = report.n_pending == 0 && short == 0 && is_whole;
    let status = if is_complete { StatusCode::OK } else { StatusCode::ACCEPTED };
    Answer::ok(&with_report(&answer, &report)).map(|answer| answer.with_status(status))
}

/// The last revision that changed one of these objects, if that is known.
async fn last_change(state: &ApiState, named: Vec<String>) -> Result<Option<Revision>, ApiError> {
    let control = state.control.clone();
    Ok(aside(move || control.last_change(&named)).await??)
}

/// What a caller that waits is told if no client has to have the change.
const NOBODY: &str = "no connected client asks for what this is about, so nobody has acknowledged it; minClients=N waits for some";

/// The same if it is not known who has to.
const FORGOTTEN: &str = "nothing changed, and it is not known which clients have this: its last change is too old, or was made before the server started";

fn first_answer(state: &ApiState, outcome: &WriteOutcome, group: Option<&GroupName>) -> WriteAnswer {
    let versions = group.map(|group| versions(state, group));
    if let Some(versions) = versions.as_ref().filter(|_| !outcome.is_repeated) {
        state.acks.remember_versions(outcome.revision, versions.values().map(String::as_str));
    }
    WriteAnswer {
        committed: true,
        revision: outcome.revision.0,
        total: 0,
        changed: outcome.changed,
        repeated: outcome.is_repeated,
        versions,
        warnings: outcome.warnings.iter().map(|warning| Fault::of(warning, "")).collect(),
        difference: None,
        affected_nodes: None,
        phases: None,
        requests: None,
        short: None,
        reverted: None,
        wave_deployment: outcome.wave,
        replicas: None,
        held: outcome.held.clone(),
    }
}

async fn revert(
    state: &ApiState,
    of: Revision,
    (actor, trace_parent): (String, Option<TraceParent>),
) -> Result<u64, ApiError> {
    // Everyone at once, also if a policy lets the change go by waves: then that ends first, and puts it back.
    let waves = WaveChoice::AtOnce;
    let options = WriteOptions { actor, trace_parent, waves, force: true, ..WriteOptions::default() };
    Ok(state.control.write(Write::Revert { of }, options).await?.revision.0)
}

/// Counts a write that is turned away because too many wait.
pub(crate) fn counted<T>(refusals: &Refusals, done: Result<T, WriteError>) -> Result<T, WriteError> {
    if matches!(done, Err(WriteError::Busy)) {
        refusals.record(Reason::Writes, "a write", SystemTime::now());
    }
    done
}

/// The answer with what is known of the acknowledgements.
fn with_report(answer: &WriteAnswer, report: &AcksReport) -> Map<String, Value> {
    let mut all = fields(answer);
    all.extend(fields(report));
    all
}

/// The versions that a client of exactly this group sees, by type URL.
fn versions(state: &ApiState, group: &GroupName) -> BTreeMap<String, String> {
    let (_, groups) = state.publisher.groups();
    let profile = groups.get(group).and_then(|group| group.definition.client).unwrap_or(Profile::Envoy);
    let Some(view) = state.publisher.view_at(&ViewKey { cohort: AHEAD, ..view_key_of_group(group, profile) })
    else {
        return BTreeMap::new();
    };
    let version = |changed| view.version_info(changed).to_string();
    view.types().map(|served| (served.type_url().to_owned(), version(served))).collect()
}

fn group_of(write: &Write) -> Option<GroupName> {
    match write {
        Write::PutGroup(definition) => Some(definition.name.clone()),
        Write::ReplaceResources { group, .. }
        | Write::PutResource { group, .. }
        | Write::DeleteResource { group, .. } => Some(group.clone()),
        Write::DeleteGroup(_)
        | Write::ApplyDocuments { .. }
        | Write::DeleteDocument { .. }
        | Write::ChangeWeights { .. }
        | Write::StepRollouts { .. }
        | Write::EndOverrides
        | Write::ReplaceFiles { .. }
        | Write::Rollback { .. }
        | Write::Revert { .. } => None,
    }
}
