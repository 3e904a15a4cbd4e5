//! `/v1/validate`: checks a body as if it were a file.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use xds_cache::{Generated, GroupName};
use xds_codec::document::Position;
use xds_codec::{DecodedFile, Diagnostic, Limits, ObjectContent, Place, Severity, Syntax, Tree};
use xds_control::model::WriteError;
use xds_control::route_tests::read_document;
use xds_routes::{
    Bounds, Documents, Options, Placed, Purpose, ReadOutcome, Stopped, UnknownFields, translate_within,
};

use crate::answer::{Answer, Form};
use crate::caller::Caller;
use crate::endpoint::conditions::{self, ObjectConditions};
use crate::input::{MAX_RESOURCES_BYTES, NoParams, Params, read_by_parts};
use crate::problem::{ApiError, Fault};
use crate::state::{ApiState, aside};
use crate::trials;

/// The result of a validation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ValidationAnswer {
    /// True if there is no error.
    pub valid: bool,
    /// The resources, groups and route documents that could be read.
    pub objects: usize,
    /// Faults and doubts, in the order of the text.
    pub diagnostics: Vec<Fault>,
    /// Conditions that the route documents would have if there were no others.
    pub conditions: Vec<ObjectConditions>,
}

pub(crate) async fn validate(
    State(state): State<ApiState>,
    caller: Caller,
    _: Params<NoParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, ApiError> {
    let mut room = state.trials.room();
    let grow = |n_bytes| room.grow(n_bytes, &state.refusals);
    let (form, bytes) = read_by_parts(&headers, body, MAX_RESOURCES_BYTES, grow).await?;
    let trial = state.trials.enter(&caller, &state.refusals)?.run().await?;
    let options = state.control.documents().options;
    let refusals = Arc::clone(&state.refusals);
    // Trial and room go along, so that both are taken for as long as the work goes on.
    let judged = aside(move || {
        let judged = judge(&state, form, &bytes, &options, &|| trial.goes_on());
        drop((bytes, room));
        judged
    })
    .await?;
    match judged {
        Err(Stopped::NobodyWaits) => Err(trials::stopped(&refusals)),
        judged => Answer::ok(&judged.map_err(WriteError::Stopped)?),
    }
}

/// Judges a body.
///
/// # Errors
///
/// The bound at which it was stopped.
fn judge(
    state: &ApiState,
    form: Form,
    bytes: &Bytes,
    options: &Options,
    goes_on: &dyn Fn() -> bool,
) -> Result<ValidationAnswer, Stopped> {
    // The name only says the form; places in the body have no file.
    let name = match form {
        Form::Json => "body.json",
        Form::Yaml => "body.yaml",
    };
    let limits = Limits {
        max_bytes: MAX_RESOURCES_BYTES,
        max_document_values: state.max_document_values,
        ..Limits::default()
    };
    let codec = &state.codec;
    let decoded = codec.decode_file(name, bytes, &limits);
    let mut read = ReadDocuments::default();
    for object in decoded.objects.iter().take_while(|_| goes_on()) {
        if let ObjectContent::Other { kind, tree, .. } = &object.content {
            read.take(kind, tree, options.unknown_fields);
        }
    }
    let bounds = Bounds { goes_on, purpose: Purpose::Trial };
    let translation = translate_within(codec, &read.documents, options, None, bounds)?;
    let of_codec = decoded.all_diagnostics().into_iter().map(|found| (found.place.line, in_body(found)));
    let of_documents = read.diagnostics.iter().chain(&translation.diagnostics);
    let of_documents = of_documents.map(|found| (found.place.line, Fault::of(found, "")));
    let mut dangling = dangling(&decoded, &translation.groups);
    if !dangling.is_empty()
        && let Ok(trees) = xds_codec::parse(name, bytes, Syntax::of_file(name), &limits)
    {
        xds_codec::move_to_fields(&trees, &mut dangling);
    }
    let dangling = dangling.iter().map(|found| (found.place.line, Fault::of(found, "")));
    let mut faults: Vec<(u32, Fault)> = of_codec.chain(of_documents).chain(dangling).collect();
    faults.sort_by_key(|(line, _)| *line);
    let diagnostics: Vec<Fault> = faults.into_iter().map(|(_, fault)| fault).collect();
    let is_readable = |content: &ObjectContent| match content {
        ObjectContent::Resource { outcome, .. } => outcome.is_ok(),
        ObjectContent::NodeGroup { outcome, .. } => outcome.is_ok(),
        ObjectContent::Unreadable(_) | ObjectContent::Other { .. } => false,
    };
    let n_readable = decoded.objects.iter().filter(|object| is_readable(&object.content)).count();
    Ok(ValidationAnswer {
        valid: diagnostics.iter().all(|fault| fault.severity.as_deref() != Some("error")),
        objects: n_readable + read.documents.len(),
        diagnostics,
        conditions: conditions::of_body(&translation.conditions),
    })
}

/// The route documents of a body.
#[derive(Default)]
struct ReadDocuments {
    documents: Documents,
    diagnostics: Vec<Diagnostic>,
}

impl ReadDocuments {
    fn take(&mut self, kind: &str, tree: &Tree, unknown_fields: UnknownFields) {
        match read_document(&"".into(), tree, unknown_fields) {
            ReadOutcome::NotOurs => {
                let message = format!("documents of the kind {kind:?} are not served");
                self.tell(Severity::Info, "unsupported-kind", tree, message);
            }
            ReadOutcome::Unreadable(found) => self.diagnostics.extend(found),
            ReadOutcome::Objects(objects) => {
                for object in objects {
                    match object.outcome {
                        Ok((document, warnings)) => {
                            self.diagnostics.extend(warnings);
                            let group = GroupName::default_group();
                            if self.documents.contains_key(&object.key) {
                                let message = format!("{} appears twice", object.key);
                                self.tell(Severity::Error, "duplicate-document", tree, message);
                                continue;
                            }
                            let placed = Placed::new(document, group);
                            self.documents.insert(object.key, placed);
                        }
                        Err(found) => self.diagnostics.extend(found),
                    }
                }
            }
        }
    }

    fn tell(&mut self, severity: Severity, code: &'static str, tree: &Tree, message: String) {
        let Position { line, column } = tree.root().position();
        let place = Place { file: "".into(), line, column };
        self.diagnostics.push(diagnostic(severity, code, place, message));
    }
}

/// The references of resources that lead to nothing in the body, each at the resource.
fn dangling(decoded: &DecodedFile, generated: &Generated) -> Vec<Diagnostic> {
    let resources = decoded.objects.iter().filter_map(|object| match &object.content {
        ObjectContent::Resource { outcome, .. } => outcome.as_ref().ok().cloned().map(Arc::new),
        ObjectContent::NodeGroup { .. } | ObjectContent::Unreadable(_) | ObjectContent::Other { .. } => None,
    });
    let mut found = xds_control::warnings_of_body(resources.collect(), generated);
    let n_more = found.len().saturating_sub(MAX_DANGLING);
    found.truncate(MAX_DANGLING);
    for one in &mut found {
        one.place.file = "".into();
    }
    if let Some(place) = found.last().map(|last| last.place.clone()).filter(|_| n_more > 0) {
        let message = format!("and {n_more} more references to nothing in this body");
        found.push(diagnostic(Severity::Info, "dangling-reference", place, message));
    }
    found
}

fn diagnostic(severity: Severity, code: &'static str, place: Place, message: String) -> Diagnostic {
    let (path, suggestion, related) = (String::new(), None, vec![]);
    Diagnostic { severity, code, place, path, message, suggestion, related, is_sensitive: false }
}

fn in_body(diagnostic: &Diagnostic) -> Fault {
    Fault { file: None, ..Fault::of(diagnostic, "") }
}

/// The same limit as for a file.
const MAX_DANGLING: usize = 100;
