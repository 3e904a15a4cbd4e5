//! `/v1/status/files`, `/v1/reload` and `/v1/validate`.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use xds_codec::{Diagnostic, Limits, ObjectContent};

use crate::answer::{Answer, Form};
use crate::handle::FileStatus;
use crate::input::{MAX_RESOURCES_BYTES, NoParams, Params, read};
use crate::problem::{ApiError, Fault};
use crate::state::{ApiState, aside};
use crate::time::rfc3339;
use crate::write::Difference;

/// The watched files.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileList {
    /// By path.
    pub files: Vec<FileEntry>,
    /// Why a load waits for `POST /v1/reload?confirm=true`; null if none does.
    pub held: Option<String>,
    /// What else needs attention.
    pub problems: Vec<String>,
}

/// One watched file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileEntry {
    /// The path as it was found.
    pub path: String,
    /// The hash of its content; null if it cannot be read.
    pub hash: Option<String>,
    /// When this content was first read.
    pub loaded_at: String,
    /// Whether its last good contents are served, because the present ones cannot be used at all.
    pub last_good: bool,
    /// What it gives.
    pub objects: Vec<ObjectEntry>,
    /// What is wrong or doubtful.
    pub diagnostics: Vec<Fault>,
}

/// One object of a file.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectEntry {
    /// The group that it is in.
    pub group: String,
    /// A resource type such as `clusters`, or `NodeGroup`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// Whether its last good contents are served.
    pub last_good: bool,
}

/// What a reload found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReloadAnswer {
    /// Whether what was found is durable and published; false if it is held back.
    pub committed: bool,
    /// The revision that is served now.
    pub revision: u64,
    /// How many clients it concerned.
    pub total: usize,
    /// How many errors the files have.
    pub errors: usize,
    /// What it changed.
    pub difference: Vec<Difference>,
    /// Why it is held back; null if it is not.
    pub held: Option<String>,
}

/// What a validation found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValidationAnswer {
    /// Whether there is no error.
    pub valid: bool,
    /// The resources and groups that could be read.
    pub objects: usize,
    /// What is wrong or doubtful, in the order of the text.
    pub diagnostics: Vec<Fault>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadParams {
    #[serde(default)]
    confirm: bool,
}

pub(crate) async fn status(State(state): State<ApiState>, _: Params<NoParams>) -> Result<Answer, ApiError> {
    let files = state.control.files();
    let list = FileList {
        files: files.values().map(entry).collect(),
        held: state.control.held(),
        problems: state.control.problems(),
    };
    Ok(Answer::ok(&list)?.tagged_by_content())
}

pub(crate) async fn reload(
    State(state): State<ApiState>,
    Params(params): Params<ReloadParams>,
) -> Result<Answer, ApiError> {
    let outcome = state.control.reload(params.confirm).await?;
    let changed = !outcome.difference.is_empty();
    let report = changed.then(|| state.acks.report(outcome.revision)).flatten();
    Answer::ok(&ReloadAnswer {
        committed: outcome.held.is_none(),
        revision: outcome.revision.0,
        total: report.map_or(0, |report| report.total),
        errors: outcome.n_errors,
        difference: outcome.difference.iter().map(Difference::from).collect(),
        held: outcome.held,
    })
}

pub(crate) async fn validate(
    State(state): State<ApiState>,
    _: Params<NoParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let (form, bytes) = read(&headers, body, MAX_RESOURCES_BYTES).await?;
    // The name only says the form; places in the body have no file.
    let (name, limits) = (
        match form {
            Form::Json => "body.json",
            Form::Yaml => "body.yaml",
        },
        Limits { max_bytes: MAX_RESOURCES_BYTES, ..Limits::default() },
    );
    let codec = state.codec.clone();
    let decoded = aside(move || codec.decode_file(name, &bytes, &limits)).await?;
    let diagnostics = decoded.all_diagnostics();
    let is_readable = |content: &ObjectContent| match content {
        ObjectContent::Resource { outcome, .. } => outcome.is_ok(),
        ObjectContent::NodeGroup { outcome, .. } => outcome.is_ok(),
        ObjectContent::Unreadable(_) | ObjectContent::Other { .. } => false,
    };
    let dangling = xds_codec::dangling(decoded.objects.iter().filter_map(|object| match &object.content {
        ObjectContent::Resource { outcome, .. } => outcome.as_ref().ok(),
        ObjectContent::NodeGroup { .. } | ObjectContent::Unreadable(_) | ObjectContent::Other { .. } => None,
    }));
    let mut faults: Vec<Fault> = diagnostics.iter().map(|diagnostic| in_body(diagnostic)).collect();
    let mut told = BTreeSet::new();
    for dangling in dangling.iter().filter(|dangling| told.insert((&dangling.from, &dangling.reference))) {
        let detail = format!("{} names {}, which is not in this body", dangling.from, dangling.reference.to);
        let warning = Fault { severity: Some("warning".to_owned()), ..Fault::new(detail) };
        faults.push(Fault { code: Some("dangling-reference".to_owned()), ..warning });
    }
    Answer::ok(&ValidationAnswer {
        valid: !diagnostics.iter().any(|diagnostic| diagnostic.is_error()),
        objects: decoded.objects.iter().filter(|object| is_readable(&object.content)).count(),
        diagnostics: faults,
    })
}

fn in_body(diagnostic: &Diagnostic) -> Fault {
    Fault { file: None, ..Fault::of(diagnostic, "") }
}

fn entry(file: &FileStatus) -> FileEntry {
    let objects = file.objects.iter().map(|object| ObjectEntry {
        group: object.group.to_string(),
        kind: object.kind.clone(),
        name: object.name.clone(),
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
        diagnostics: file.diagnostics.iter().map(|diagnostic| Fault::of(diagnostic, "")).collect(),
    }
}
