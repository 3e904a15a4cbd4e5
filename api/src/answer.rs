//! Answers of handlers, and how they are written out.
//!
//! Handlers and errors leave a value in the response. For all paths, [`render`] writes it as JSON or YAML, sets the entity tag, and
//! turns an unchanged answer into 304.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use xds_control::model::EntityTags;

use crate::problem::{ApiError, Problem};
use crate::tag;

/// The answer of a handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    status: StatusCode,
    tag: Option<String>,
    body: Value,
}

/// A body that has to be written out.
#[derive(Clone, Debug)]
pub(crate) enum Rendered {
    /// A handler's answer.
    Answer { tag: Option<String>, body: Value },
    /// An error.
    Problem(Box<Problem>),
}

/// An extension of answers that are problems: the last part of the problem's `type`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemType(pub(crate) &'static str);

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
}

impl Answer {
    /// 200 with a body.
    pub(crate) fn ok(body: &impl Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_value(body).map_err(|error| ApiError::Internal(error.to_string()))?;
        Ok(Self { status: StatusCode::OK, tag: None, body })
    }

    /// Sets another status.
    #[must_use]
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Sets a strong entity tag, given without quotes.
    #[must_use]
    pub(crate) fn tagged(self, tag: String) -> Self {
        Self { tag: Some(tag), ..self }
    }

    /// Sets an entity tag of which writes compare only `content`, and reads also the body.
    #[must_use]
    pub(crate) fn tagged_by_content_and(self, content: &str) -> Self {
        let tag = tag::with_rest(content, &self.body.to_string());
        self.tagged(tag)
    }

    /// Sets the hash of the body as entity tag.
    #[must_use]
    pub(crate) fn tagged_by_content(self) -> Self {
        let tag = tag::of_text(&self.body.to_string());
        self.tagged(tag)
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Rendered::Answer { tag: self.tag, body: self.body });
        response
    }
}

impl IntoResponse for ApiError {
    /// The one conversion; [`render`] writes it out.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.headers_mut().extend(self.headers());
        response.extensions_mut().insert(Rendered::Problem(Box::new(Problem::from(&self))));
        response
    }
}

/// Writes out what handlers and errors left, as the request wants it.
pub(crate) async fn render(request: Request, next: Next) -> Response {
    let form = accepted(request.headers());
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let if_none_match = if is_read { tag::if_none_match(request.headers()) } else { None };
    let instance = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let rendered = match response.extensions_mut().remove::<Rendered>() {
        Some(rendered) => rendered,
        None if is_plain_error(&response) => {
            Rendered::Problem(Box::new(Problem::from(&plain_error(&response))))
        }
        None => return response,
    };
    match rendered {
        Rendered::Answer { tag, body } => write_answer(response, form, tag, &body, if_none_match.as_ref()),
        Rendered::Problem(mut problem) => {
            problem.instance = instance;
            write_problem(&response, form, &problem)
        }
    }
}

fn write_answer(
    mut response: Response,
    form: Option<Form>,
    tag: Option<String>,
    body: &Value,
    if_none_match: Option<&EntityTags>,
) -> Response {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(tag) = &tag
        && let Ok(value) = HeaderValue::try_from(tag::quoted(tag))
    {
        headers.insert(ETAG, value);
    }
    if response.status() == StatusCode::OK && if_none_match.is_some_and(|tags| tags.matches(tag.as_deref())) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let (kind, text) = match form.unwrap_or(Form::Json) {
        Form::Json => ("application/json", body.to_string()),
        Form::Yaml => ("application/yaml", to_yaml(body)),
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    *response.body_mut() = Body::from(text);
    response
}

fn write_problem(from: &Response, form: Option<Form>, problem: &Problem) -> Response {
    let value = serde_json::to_value(problem).unwrap_or_default();
    let (kind, text) = match form.unwrap_or(Form::Json) {
        Form::Json => ("application/problem+json", value.to_string()),
        Form::Yaml => ("application/problem+yaml", to_yaml(&value)),
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(CONTENT_TYPE, kind)], text).into_response();
    response.extensions_mut().insert(ProblemType(problem.slug));
    let kept = from.headers().iter().filter(|(name, _)| **name != CONTENT_TYPE && **name != CONTENT_LENGTH);
    for (name, value) in kept {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// JSON always has a YAML form. If the writer fails all the same, the JSON is sent, which is YAML too.
pub(crate) fn to_yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// An error that the router made itself, as text or without a body.
fn is_plain_error(response: &Response) -> bool {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    is_error && kind.is_none_or(|kind| kind.starts_with("text/plain"))
}

fn plain_error(response: &Response) -> ApiError {
    match response.status() {
        StatusCode::NOT_FOUND => ApiError::NoPath,
        StatusCode::METHOD_NOT_ALLOWED => ApiError::NoMethod,
        status if status.is_client_error() => ApiError::BadRequest("the request cannot be read".to_owned()),
        _ => ApiError::Internal("the request could not be done".to_owned()),
    }
}

/// The form that the request prefers; JSON unless YAML is named, and named before JSON.
fn accepted(headers: &HeaderMap) -> Option<Form> {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    accept.flat_map(|line| line.split(',')).find_map(form_of)
}

/// The form that a media type names.
pub(crate) fn form_of(media_type: &str) -> Option<Form> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "text/json" => Some(Form::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Some(Form::Yaml),
        other if other.ends_with("+json") => Some(Form::Json),
        other if other.ends_with("+yaml") => Some(Form::Yaml),
        _ => None,
    }
}
/// The fields of an answer, so that others can be added; none if it is no object.
pub(crate) fn fields(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}
