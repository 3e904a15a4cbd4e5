//! `/v1/status/files` and `/v1/reload`.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_control::model::{FileObject, FileObjectKey, FileStatus, ServedLoad};
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::input::Params;
use crate::page;
use crate::problem::{ApiError, Fault};
use crate::state::ApiState;
use crate::write::Difference;

/// The watched files.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileList {
    /// The load of the files that is served: `none` until the first is complete, `earlier` while the last one is held back or
    /// refused.
    pub served: ServedLoad,
    /// The hash of everything that the files say, if several servers share them: `If-Match` of `PUT /v1/files` takes it. Null if they are
    /// this server's own.
    pub set: Option<String>,
    /// The files that this server watches, beside those that all servers serve; null if there are none.
    pub own: Option<OwnFilesEntry>,
    /// By path.
    pub files: Vec<FileEntry>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
    /// Why a load waits for `POST /v1/reload?confirm=true`; null if none does.
    pub held: Option<String>,
    /// Other problems that need attention; with a scope, those that are about a group in it.
    pub problems: Vec<String>,
}

/// The files that a server watches, if several servers share their store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OwnFilesEntry {
    /// `applied`, `ahead` (newer, and not served yet), `behind` (served before), `differs` (newer, and refused) or `broken`.
    pub state: String,
    /// The hash of what they say.
    pub set: String,
    /// Since when they are in this state.
    pub since: String,
    /// Why they are not served; null if that needs nobody.
    pub reason: Option<String>,
    /// Their errors, at most 100.
    pub errors: Vec<Fault>,
}

/// A watched file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileEntry {
    /// The path as it was found.
    pub path: String,
    /// The hash of its content; null if it cannot be read.
    pub hash: Option<String>,
    /// When this content was first read.
    pub loaded_at: String,
    /// True if its last good contents are served, because the present ones cannot be used at all.
    pub last_good: bool,
    /// The objects in it.
    pub objects: Vec<ObjectEntry>,
    /// Faults and doubts.
    pub diagnostics: Vec<Fault>,
}

/// An object of a file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectEntry {
    /// The group that it is in.
    pub group: String,
    /// A resource type such as `clusters`, `NodeGroup`, or the kind of a route document.
    pub kind: String,
    /// Its name; of a route document, its namespace, `/` and its name.
    pub name: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// True if its last good contents are served.
    pub last_good: bool,
}

/// The result of a reload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReloadAnswer {
    /// True if what was found is durable and published; false if it is held back.
    pub committed: bool,
    /// The revision that is served now.
    pub revision: u64,
    /// How many clients it concerned.
    pub total: usize,
    /// How many errors the files have.
    pub errors: usize,
    /// The changes.
    pub difference: Vec<Difference>,
    /// Why it is held back; null if it is not.
    pub held: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadParams {
    #[serde(default)]
    confirm: bool,
}

pub(crate) async fn status(
    State(state): State<ApiState>,
    caller: Caller,
    Params(params): Params<page::PageParams>,
) -> Result<Answer, ApiError> {
    let limit = page::limit(params.limit)?;
    let after = params.after.map(Arc::<str>::from);
    let files = state.control.files();
    let sees = |object: &FileObject| match &object.key {
        FileObjectKey::NodeGroup | FileObjectKey::Resource(_) => caller.sees_group(&object.group),
        FileObjectKey::Document(key) => caller.sees_document_of(key, &object.group),
    };
    let is_all = caller.scope().is_none();
    let shown = files.range(page::behind(after.as_ref()));
    let shown = shown.filter(|(_, file)| is_all || file.objects.iter().any(sees));
    let (files, next) = page::cut(shown, limit, |(path, _)| path.to_string());
    let list = FileList {
        served: state.control.served_load(),
        set: state.control.shared_set(),
        own: state.control.own_files().filter(|_| is_all).map(|own| OwnFilesEntry {
            state: own.state.as_str().to_owned(),
            set: own.set,
            since: rfc3339(own.since),
            reason: own.reason,
            errors: own.errors.iter().map(|error| Fault::of(error, "")).collect(),
        }),
        files: files.into_iter().map(|(_, file)| entry(file, sees)).collect(),
        next,
        held: state.control.unconfirmed().filter(|_| is_all),
        problems: match is_all {
            true => state.control.problems(),
            false => state.control.problems_of_groups(|group| caller.sees_group(group)),
        },
    };
    Ok(Answer::ok(&list)?.tagged_by_content())
}

pub(crate) async fn reload(
    State(state): State<ApiState>,
    Params(params): Params<ReloadParams>,
) -> Result<Answer, ApiError> {
    let outcome = state.control.reload(params.confirm).await?;
    let changed = !outcome.difference.is_empty();
    let report = changed.then(|| state.acks.report(outcome.revision).known()).flatten();
    Answer::ok(&ReloadAnswer {
        committed: outcome.unconfirmed.is_none(),
        revision: outcome.revision.0,
        total: report.map_or(0, |report| report.total),
        errors: outcome.n_errors,
        difference: outcome.difference.iter().map(Difference::from).collect(),
        held: outcome.unconfirmed,
    })
}

/// A file with the objects that are seen. Its faults may be about any of its objects, so they are shown if all are.
fn entry(file: &FileStatus, sees: impl Fn(&FileObject) -> bool) -> FileEntry {
    let sees_all = file.objects.iter().all(&sees);
    let objects = file.objects.iter().filter(|object| sees(object)).map(|object| ObjectEntry {
        group: object.group.to_string(),
        kind: object.kind().to_owned(),
        name: object.name(),
        line: object.line,
        column: object.column,
        last_good: object.is_last_good,
    });
    FileEntry {
        path: file.path.to_string(),
        hash: file.hash.as_ref().map(ToString::to_string),
        loaded_at: rfc3339(file.loaded_at),
        last_good: file.is_last_good,
        objects: objects.collect(),
        diagnostics: file
            .diagnostics
            .iter()
            .filter(|_| sees_all)
            .map(|diagnostic| Fault::of(diagnostic, ""))
            .collect(),
    }
}
