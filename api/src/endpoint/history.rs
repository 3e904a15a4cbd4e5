//! `/v1/history` and `/v1/rollback`.

use axum::body::Body;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_cache::{GroupName, Revision};
use xds_codec::document::Node;
use xds_control::Control;
use xds_control::model::{ChangeKind, ChangedObject, HistoryEntry, Write, WriteError};
use xds_control::requests::{State as Compared, between};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::{Asked, Caller, split_actor};
use crate::input::{MAX_BODY_BYTES, Params, Path, read_tree};
use crate::line_diff::Lines;
use crate::page;
use crate::phases::GroupPhasesEntry;
use crate::problem::{ApiError, Fault, pointer_part};
use crate::requests::{GroupRequestsEntry, entries};
use crate::seen::Seen;
use crate::served::past;
use crate::state::{ApiState, aside};
use crate::tag;
use crate::write::{self, Difference, WriteParams};

/// Revisions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevisionList {
    /// The revisions.
    pub revisions: Vec<RevisionEntry>,
    /// The value of `after` for older ones; null on the last page.
    pub next: Option<String>,
}

/// A revision.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RevisionEntry {
    /// Its number.
    pub revision: u64,
    /// The user or program that asked for it: a principal of the access policy; without principals, the name that the request
    /// gave itself.
    pub actor: String,
    /// The one for whom a principal asked, if it may act for others. Nobody checked the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// When.
    pub at: String,
    /// `api`, `file`, `rollback`, `revert`, `rollout`, `waves`, or `expiry` of overrides whose time is up.
    pub source: String,
    /// A summary of one line.
    pub summary: String,
    /// The objects that it changed.
    pub changes: Vec<ObjectChange>,
    /// The difference, if one revision was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Vec<Difference>>,
    /// The requests that moved, if they were asked for: of clients of each group that changed, for the first sixteen kinds of clients and 64
    /// classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<GroupRequestsEntry>>,
    /// The phases in which clients got it, if they were asked for: those with everything of the revision before, of the first sixteen kinds
    /// of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<GroupPhasesEntry>>,
    /// Objects whose contents at a revision are not kept, because they hold secrets: what was used for the requests and phases instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

/// The change of one object.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ObjectChange {
    /// `group/{group}`, `{group}/{type}/{name}` or `document/{kind}/{namespace}/{name}`.
    pub what: String,
    /// `added`, `changed` or `removed`.
    pub change: &'static str,
}

/// The differences between two revisions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Comparison {
    /// The one revision.
    pub from: u64,
    /// The other.
    pub to: u64,
    /// The differences.
    pub difference: Vec<Difference>,
    /// The requests that moved, if they were asked for: of clients of each group that changed, for the first sixteen kinds of clients and 64
    /// classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Vec<GroupRequestsEntry>>,
    /// The phases in which clients with everything of the one would get the other, if they were asked for: of the first sixteen kinds of
    /// clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<GroupPhasesEntry>>,
    /// Objects whose contents at a revision are not kept, because they hold secrets: what was used for the requests and phases instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

/// The body of a rollback.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only described; the body is read with the place of its fault")]
pub(crate) struct RollbackBody {
    /// The revision to go back to.
    pub revision: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryParams {
    limit: Option<usize>,
    after: Option<u64>,
    before: Option<u64>,
    actor: Option<String>,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevisionParams {
    #[serde(default)]
    requests: bool,
    #[serde(default)]
    phases: bool,
}

/// What two revisions mean for clients.
#[derive(Default)]
struct Effect {
    requests: Option<Vec<GroupRequestsEntry>>,
    phases: Option<Vec<GroupPhasesEntry>>,
    gaps: Vec<String>,
}

/// The revisions that are wanted.
struct Wanted {
    actor: Option<String>,
    source: Option<String>,
    seen: Seen,
}

impl Wanted {
    fn is_all(&self) -> bool {
        self.actor.is_none() && self.source.is_none() && self.seen.is_all()
    }

    fn has(&self, entry: &HistoryEntry) -> bool {
        self.actor.as_ref().is_none_or(|actor| *actor == entry.actor || actor == split_actor(&entry.actor).0)
            && self.source.as_ref().is_none_or(|source| *source == entry.source)
            && is_seen(&self.seen, entry)
    }

    /// The newest that are wanted. Reads on until there are enough, to the end of the history if it must.
    fn find(
        &self,
        control: &Control,
        mut before: Option<Revision>,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, WriteError> {
        if self.is_all() {
            return control.history(before, limit);
        }
        let mut found = Vec::new();
        loop {
            let page = control.history(before, PAGE)?;
            before = page.last().map(|last| last.revision);
            let is_last = page.len() < PAGE;
            found.extend(page.into_iter().filter(|entry| self.has(entry)).take(limit - found.len()));
            if is_last || found.len() == limit {
                return Ok(found);
            }
        }
    }
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<HistoryParams>,
) -> Result<Answer, ApiError> {
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::BadRequest(format!("limit={limit} is not between 1 and {MAX_LIMIT}")));
    }
    let (head, _) = state.control.overrides();
    // The newest come first: what is after a revision in this list is what was before it in time.
    let before = params.after.into_iter().chain(params.before).min().map(Revision);
    let wanted = Wanted { actor: params.actor, source: params.source, seen: Seen::new(&state, &caller) };
    let is_head = wanted.is_all() && before.is_none() && params.limit.is_none();
    let found = move |control: &Control| {
        let entries = wanted.find(control, before, limit + 1)?;
        Ok(entries.iter().map(|found| entry(found, &wanted.seen)).collect())
    };
    let entries: Vec<RevisionEntry> = blocking(&state, found).await?;
    let (revisions, next) = page::cut(entries.into_iter(), limit, |entry| entry.revision.to_string());
    let list = RevisionList { revisions, next };
    let answer = Answer::ok(&list)?;
    // The newest page is what a rollback changes; it must be asked for with the tag of the newest revision.
    Ok(if is_head { answer.tagged(tag::of_revision(head)) } else { answer.tagged_by_content() })
}

pub(crate) async fn read(
    State(state): State<ApiState>,
    caller: Caller,
    Path(range): Path<String>,
    Params(params): Params<RevisionParams>,
) -> Result<Answer, ApiError> {
    let number = |text: &str| {
        let number = text.parse().map(Revision);
        number.map_err(|_| ApiError::BadRequest(format!("{text:?} is not a revision: write 7, or 3...7")))
    };
    let seen = Seen::new(&state, &caller);
    if let Some((from, to)) = range.split_once("...") {
        let (from, to) = (number(from)?, number(to)?);
        let found = move |control: &Control| {
            Ok(differences(&control.difference(from, to, |what| seen.object(what))?))
        };
        let difference = blocking(&state, found).await?;
        let Effect { requests, phases, gaps } = effect(&state, caller, [from, to], &params).await?;
        let comparison = Comparison { from: from.0, to: to.0, difference, requests, phases, gaps };
        return Ok(Answer::ok(&comparison)?.tagged_by_content());
    }
    let revision = number(&range)?;
    let read = move |control: &Control| {
        let (found, difference) = control.revision(revision, |what| seen.object(what))?;
        if !is_seen(&seen, &found) {
            return Err(WriteError::NotFound { what: format!("revision {revision}") });
        }
        Ok(RevisionEntry { difference: Some(differences(&difference)), ..entry(&found, &seen) })
    };
    let mut entry = blocking(&state, read).await?;
    let before = Revision(revision.0.saturating_sub(1));
    let effect = effect(&state, caller, [before, revision], &params).await?;
    (entry.requests, entry.phases, entry.gaps) = (effect.requests, effect.phases, effect.gaps);
    Ok(Answer::ok(&entry)?.tagged_by_content())
}

/// What is wanted of the requests that moved between two revisions and the phases in which clients got there, of groups that the caller
/// sees.
async fn effect(
    state: &ApiState,
    caller: Caller,
    revisions: [Revision; 2],
    wanted: &RevisionParams,
) -> Result<Effect, ApiError> {
    let RevisionParams { requests, phases } = *wanted;
    if !requests && !phases {
        return Ok(Effect::default());
    }
    let trial = state.trials.enter(&caller, &state.refusals)?.run().await?;
    let state = state.clone();
    let compare = move || {
        let [before, after] = revisions;
        let (before, after) = (past(&state, before, &trial)?, past(&state, after, &trial)?);
        let states = [&before, &after].map(Compared::from);
        let requests =
            requests.then(|| entries(&between(states, |group| caller.sees_group(group)))).transpose()?;
        let phases = phases.then(|| {
            let sees = |group: &GroupName| caller.sees_group(group);
            let told = state.control.phases_between(&before.groups, &after.groups, sees);
            told.iter().map(GroupPhasesEntry::from).collect()
        });
        let all = caller.scope().is_none().then_some([&before, &after]).into_iter().flatten();
        let gaps =
            all.flat_map(|past| past.gaps.iter().map(|gap| format!("revision {}: {gap}", past.revision)));
        Ok::<_, ApiError>(Effect { requests, phases, gaps: gaps.collect() })
    };
    aside(compare).await?
}

pub(crate) async fn rollback(
    State(state): State<ApiState>,
    Params(params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let body = read_tree(&state, &asked.headers, body, MAX_BODY_BYTES).await?;
    write::run(&state, &asked, params, Write::Rollback { to: rollback_to(body.root())? }).await
}

/// Reads [`RollbackBody`]; a fault is at the field that it is about.
fn rollback_to(body: Node<'_>) -> Result<Revision, ApiError> {
    let refuse = |value: Node<'_>, pointer: &str, detail: &str| {
        Err(ApiError::Invalid(vec![Fault::at_tree(value, pointer, detail)]))
    };
    let wanted = "write the revision to go back to, such as {\"revision\": 7}";
    if !body.is_object() {
        return refuse(body, "", wanted);
    }
    if let Some(other) = body.entries().find(|entry| entry.key != "revision") {
        let detail = format!("unknown field {:?}; {wanted}", other.key);
        return refuse(other.value, &format!("/{}", pointer_part(other.key)), &detail);
    }
    let Some(revision) = body.get("revision") else { return refuse(body, "", wanted) };
    match revision.to_json().as_u64() {
        Some(number) => Ok(Revision(number)),
        None => refuse(revision, "/revision", "a revision is a whole number"),
    }
}

/// Reads the store where it may block.
async fn blocking<T: Send + 'static>(
    state: &ApiState,
    read: impl FnOnce(&Control) -> Result<T, WriteError> + Send + 'static,
) -> Result<T, ApiError> {
    let control = state.control.clone();
    Ok(aside(move || read(&control)).await??)
}

/// Returns `true` if a revision changed an object that is seen.
fn is_seen(seen: &Seen, entry: &HistoryEntry) -> bool {
    seen.is_all() || entry.changes.iter().any(|(what, _)| seen.object(what))
}

/// A revision with the changes that are seen. Its summary may name others, so one who does not see everything gets another one.
fn entry(entry: &HistoryEntry, seen: &Seen) -> RevisionEntry {
    let changes = entry.changes.iter().filter(|(what, _)| seen.object(what));
    let changes: Vec<ObjectChange> = changes.map(|(what, kind)| change(what, *kind)).collect();
    let summary = if seen.is_all() { entry.summary.clone() } else { summary(&changes) };
    RevisionEntry {
        revision: entry.revision.0,
        actor: split_actor(&entry.actor).0.to_owned(),
        on_behalf_of: split_actor(&entry.actor).1.map(str::to_owned),
        at: rfc3339(entry.at),
        source: entry.source.clone(),
        summary,
        changes,
        difference: None,
        requests: None,
        phases: None,
        gaps: vec![],
    }
}

fn change(what: &str, kind: ChangeKind) -> ObjectChange {
    let change = match kind {
        ChangeKind::Added => "added",
        ChangeKind::Changed => "changed",
        ChangeKind::Removed => "removed",
    };
    ObjectChange { what: what.to_owned(), change }
}

/// One line about some changes: the first three, and how many more there are.
fn summary(changes: &[ObjectChange]) -> String {
    let named = changes.iter().take(NAMED).map(|change| format!("{} {}", change.change, change.what));
    let named = named.collect::<Vec<_>>().join(", ");
    match changes.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The objects that differ, with their lines as far as an answer has room for them.
fn differences(objects: &[ChangedObject]) -> Vec<Difference> {
    let mut lines = Lines::new();
    let mut difference = |object: &ChangedObject| {
        let diff = lines.of(&object.what, object.before.as_ref(), object.after.as_ref());
        Difference { diff: Some(diff), ..Difference::from(object) }
    };
    objects.iter().map(&mut difference).collect()
}

/// How many revisions are listed if the request does not say.
const DEFAULT_LIMIT: usize = 100;

/// The most revisions that are listed: as many as are kept.
const MAX_LIMIT: usize = 1_000;
/// How many changes a summary names.
const NAMED: usize = 3;
/// How many revisions are read at a time when only some are wanted.
const PAGE: usize = 200;
