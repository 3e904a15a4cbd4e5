//! `/v1/apply` and `/v1/documents`: route documents, owned by files or by the API.

use axum::body::Body;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use xds_control::model::Write;
use xds_control::model::document::{self, DocumentState, GroupedDocument};
use xds_routes::conditions::ObjectStatus;
use xds_routes::{DocumentKey, Placed};

use crate::answer::Answer;
use crate::caller::{Asked, Caller};
use crate::endpoint::apply;
use crate::endpoint::conditions::{self, ObjectConditions, source};
use crate::endpoint::filter::{Filter, document_key, place_of};
use crate::endpoint::snapshot::{FilePlace, place};
use crate::input::{MAX_RESOURCES_BYTES, NoParams, Params, Path, read};
use crate::page;
use crate::problem::ApiError;
use crate::state::{ApiState, aside, group_name};
use crate::tag;
use crate::write::{self, WriteParams};

/// Route documents, by kind, namespace and name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentList {
    /// The documents that count.
    pub documents: Vec<DocumentEntry>,
    /// The value of `after` for the next page; null on the last one.
    pub next: Option<String>,
}

/// Whose a document is, and where it comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentEntry {
    /// Its kind.
    pub kind: String,
    /// Its namespace; `-` if the kind has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node group that its place gives it.
    pub group: String,
    /// How often its content has changed since the server started, from 1.
    pub generation: u64,
    /// `file` or `api`.
    pub source: &'static str,
    /// True if it is the API's and hides a file's.
    pub overridden: bool,
    /// Where in the files it is, or what it hides is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FilePlace>,
}

/// A route document.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentDetail {
    /// Whose it is, and where it comes from.
    #[serde(flatten)]
    pub entry: DocumentEntry,
    /// The document, without secrets.
    pub document: Value,
    /// The file's document, if the API's hides it; without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_document: Option<Value>,
    /// Its conditions; null if there are none.
    pub status: Option<ObjectConditions>,
}

pub(crate) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let filter = filter.check()?;
    let documents = state.control.documents();
    let (limit, after) = filter.page()?;
    let (list, content) = aside(move || {
        let all = &documents.translated.documents;
        let taken = all.range(page::behind(after.as_ref())).filter(|(key, _)| filter.takes(key));
        let taken = taken.filter(|(key, placed)| caller.sees_document(key, Some(placed)));
        let (taken, next) = page::cut(taken, limit, |(key, _)| place_of(key));
        let taken = taken.into_iter().map(|(key, placed)| entry(&documents, key, placed));
        let is_whole = filter.is_none() && next.is_none();
        let list = DocumentList { documents: taken.collect(), next };
        // Applying several documents may change any of them, so its precondition is the tag of all.
        (list, is_whole.then(|| tag::of_documents(all)))
    })
    .await?;
    let answer = Answer::ok(&list)?;
    Ok(match content {
        Some(content) => answer.tagged_by_content_and(&content),
        None => answer.tagged_by_content(),
    })
}

pub(crate) async fn read_one(
    State(state): State<ApiState>,
    caller: Caller,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    _: Params<NoParams>,
) -> Result<Answer, ApiError> {
    state.check_loaded()?;
    let key = document_key(&kind, &namespace, &name)?;
    let documents = state.control.documents();
    let translated = &documents.translated;
    let found = translated.documents.get(&key).filter(|placed| caller.sees_document(&key, Some(placed)));
    let Some(placed) = found else {
        return Err(ApiError::NotFound(format!("there is no {key}")));
    };
    let hidden = hidden(&documents, &key);
    let status = translated.translation.conditions.objects.get(&key);
    let status = status.filter(|status| ***status != ObjectStatus::default());
    let detail = DocumentDetail {
        entry: entry(&documents, &key, placed),
        document: document::redacted(&placed.document),
        file_document: hidden.map(|hidden| document::redacted(&hidden.document)),
        status: status.map(|status| {
            let tested = state.control.tested();
            conditions::of_object(&state.board, &documents, &key, status, tested.as_deref())
        }),
    };
    Ok(Answer::ok(&detail)?.tagged_by_content_and(&tag::of_document(placed)))
}

pub(crate) async fn apply(
    State(state): State<ApiState>,
    Params(mut params): Params<WriteParams>,
    asked: Asked,
    body: Body,
) -> Result<Answer, ApiError> {
    let group = params.take_group();
    let group = group.as_deref().map(group_name).transpose()?;
    let (form, bytes) = read(&asked.headers, body, MAX_RESOURCES_BYTES).await?;
    let max_values = state.max_document_values;
    let unknown_fields = state.control.documents().options.unknown_fields;
    let read = move || apply::read_documents(form, &bytes, max_values, unknown_fields);
    let (documents, warnings) = aside(read).await??;
    write::run(&state, &asked, params, Write::ApplyDocuments { group, documents, warnings }).await
}

pub(crate) async fn delete(
    State(state): State<ApiState>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    Params(params): Params<WriteParams>,
    asked: Asked,
) -> Result<Answer, ApiError> {
    let key = document_key(&kind, &namespace, &name)?;
    write::run(&state, &asked, params, Write::DeleteDocument { key }).await
}

fn entry(documents: &DocumentState, key: &DocumentKey, placed: &Placed) -> DocumentEntry {
    let hidden = hidden(documents, key);
    let file = hidden.map_or(&placed.document, |hidden| &hidden.document);
    DocumentEntry {
        kind: key.kind.to_string(),
        namespace: document::namespace(key).to_owned(),
        name: key.name.to_string(),
        group: placed.group.to_string(),
        generation: placed.generation,
        source: source(documents, key),
        overridden: hidden.is_some(),
        file: place(&file.origin()),
    }
}

/// The file's document that one of the API hides.
fn hidden<'d>(documents: &'d DocumentState, key: &DocumentKey) -> Option<&'d GroupedDocument> {
    documents.files.get(key).filter(|_| documents.owned.contains_key(key))
}
