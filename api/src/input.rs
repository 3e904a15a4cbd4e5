//! Input: bodies and query parameters, read strictly.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{self, FromRequestParts, Query};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use xds_codec::document::{Node, Position, TreeValue};
use xds_codec::{Diagnostic, Limits, REDACTED, Syntax, Tree};
use xds_units::Span;

use crate::answer::{Form, form_of};
use crate::problem::{ApiError, Fault, pointer_part};
use crate::state::{ApiState, aside};

/// The longest body of a write of resources, in bytes: as much as a client takes in one message by default.
pub const MAX_RESOURCES_BYTES: usize = 64 * 1024 * 1024;

/// The longest body of every other request, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The longest time that a write waits for its acknowledgements.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// How long a write waits if it does not say.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The query parameters of a request. An unknown one is refused: a misspelt `dryRun` would write.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(params)| Self(params)).map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// The variable segments of a path, percent-decoded. Errors of percent-encoding name the segment.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        for segment in parts.uri.path().split('/') {
            check_encoding(segment).map_err(|wrong| {
                ApiError::BadRequest(format!("the path segment {segment:?} cannot be read: {wrong}"))
            })?;
        }
        let path = extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|extract::Path(segments)| Self(segments))
            .map_err(|error| ApiError::BadRequest(error.body_text()))
    }
}

/// Says what is wrong with the percent-encoding of a segment, and what would be right.
fn check_encoding(segment: &str) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut parts = segment.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            let shown: String = part.chars().take(2).collect();
            return Err(format!(
                "\"%{shown}\" is not a percent-encoding, which has two hexadecimal digits; write a percent sign as %25"
            ));
        };
        bytes.push(byte);
        bytes.extend(part.bytes().skip(2));
    }
    match std::str::from_utf8(&bytes) {
        Ok(_) => Ok(()),
        Err(error) => {
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            Err(format!(
                "it is not UTF-8 once decoded, from the byte %{byte:02X} on; percent-encode the bytes of its UTF-8 form, \
                 such as %C3%BC for \"ü\""
            ))
        }
    }
}

/// No query parameter at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// Reads a body of at most `limit` bytes; the form is what its content type says.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<(Form, Bytes), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
    let form = form_of(kind).ok_or_else(|| ApiError::MediaType(kind.to_owned()))?;
    let bytes = axum::body::to_bytes(body, limit).await;
    let bytes = bytes
        .map_err(|error| if is_slow(&error) { ApiError::SlowBody } else { ApiError::TooLarge(limit) })?;
    Ok((form, bytes))
}

/// Reads a body of at most `limit` bytes as it comes. `grow` gets the size of each part first, and may refuse it.
pub(crate) async fn read_by_parts(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    mut grow: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<(Form, Bytes), ApiError> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
    let form = form_of(kind).ok_or_else(|| ApiError::MediaType(kind.to_owned()))?;
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| match is_slow(&error) {
            true => ApiError::SlowBody,
            false => ApiError::BadRequest(format!("the body did not arrive completely: {error}")),
        })?;
        if part.len() > limit - bytes.len() {
            return Err(ApiError::TooLarge(limit));
        }
        grow(part.len())?;
        bytes.extend_from_slice(&part);
    }
    Ok((form, bytes.into()))
}

/// Returns `true` if the port gave up waiting for a body. The other ways to fail are a body that is too long, and a client that is
/// gone.
fn is_slow(error: &(dyn Error + 'static)) -> bool {
    let is_timeout = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    error.downcast_ref().is_some_and(is_timeout) || error.source().is_some_and(is_slow)
}

/// Reads a body as JSON or YAML, in which no key may be there twice and no value be a placeholder for a secret.
pub(crate) async fn read_tree(
    state: &ApiState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Tree, ApiError> {
    let (form, bytes) = read(headers, body, limit).await?;
    read_tree_of(state, form, bytes).await
}

/// The same of a body that has arrived.
pub(crate) async fn read_tree_of(state: &ApiState, form: Form, bytes: Bytes) -> Result<Tree, ApiError> {
    let max_values = state.max_document_values;
    let parse = move || {
        let tree = parse(form, &bytes, max_values)?;
        let mut placeholders = Vec::new();
        find_placeholders(tree.root(), "", &mut placeholders);
        if placeholders.is_empty() { Ok(tree) } else { Err(ApiError::Invalid(placeholders)) }
    };
    aside(parse).await?
}

/// Adds a text to an object of a body as its first field, unless it has that field: something that the path says already.
pub(crate) fn add_first(body: &mut Tree, key: &str, text: &str) {
    if body.root().entry(key).is_none() {
        *body = body.with_first(key, text);
    }
}

fn parse(form: Form, bytes: &[u8], max_values: usize) -> Result<Tree, ApiError> {
    let mut documents = parse_all(form, bytes, max_values)?;
    let tree = documents.swap_remove(0);
    match documents.first() {
        None => Ok(tree),
        Some(second) => {
            Err(ApiError::BadBody(vec![Fault::at_tree(second.root(), "", "a body is one document")]))
        }
    }
}

/// Reads a body of one or more documents, each with a limit of values.
pub(crate) fn parse_all(form: Form, bytes: &[u8], max_values: usize) -> Result<Vec<Tree>, ApiError> {
    let syntax = match form {
        Form::Json => Syntax::Json,
        Form::Yaml => Syntax::Yaml,
    };
    // It has been read, so it is not too long.
    let limits = Limits { max_bytes: bytes.len(), max_document_values: max_values, ..Limits::default() };
    match xds_codec::parse("", bytes, syntax, &limits) {
        Ok(documents) => Ok(documents),
        // The codec takes null for nothing; it can be read, and is of another shape than any body.
        Err(found) if !bytes.trim_ascii().is_empty() && found.iter().all(|one| one.code == "empty-file") => {
            Ok(vec![Tree::null(Position { line: 1, column: 1 })])
        }
        Err(found) => Err(ApiError::BadBody(found.iter().map(of_text).collect())),
    }
}

/// The fault in the text of a body; the codec speaks of files.
fn of_text(diagnostic: &Diagnostic) -> Fault {
    let detail = match diagnostic.code {
        "empty-file" => "the body is empty".to_owned(),
        "not-utf-8" => "the body is not UTF-8 text".to_owned(),
        _ => diagnostic.message.clone(),
    };
    Fault { detail, ..Fault::of(diagnostic, "") }
}

/// Finds the text that stands for a secret in our answers: taking it in would overwrite the secret with it. `pointer` leads to the
/// tree.
pub(crate) fn find_placeholders(tree: Node<'_>, pointer: &str, found: &mut Vec<Fault>) {
    find_below(tree, &At::Root(pointer), found);
}

/// A place in a body: a JSON pointer, whose text is made only when it is shown.
enum At<'a> {
    Root(&'a str),
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(pointer) => f.write_str(pointer),
            Self::Field(parent, key) => write!(f, "{parent}/{}", pointer_part(key)),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

fn find_below(tree: Node<'_>, at: &At<'_>, found: &mut Vec<Fault>) {
    if found.len() >= MAX_PLACEHOLDERS {
        return;
    }
    match tree.value() {
        TreeValue::String(text) if text == REDACTED => {
            let detail = format!(
                "{REDACTED:?} replaces a secret that answers do not show; send the secret itself, or do not change this resource"
            );
            found.push(Fault::at_tree(tree, &at.to_string(), detail));
        }
        TreeValue::List(items) => {
            items.enumerate().for_each(|(index, item)| find_below(item, &At::Item(at, index), found));
        }
        TreeValue::Object(entries) => {
            entries.for_each(|entry| find_below(entry.value, &At::Field(at, entry.key), found));
        }
        TreeValue::Null | TreeValue::Bool(_) | TreeValue::Number(_) | TreeValue::String(_) => {}
    }
}

/// The most placeholders that are reported.
const MAX_PLACEHOLDERS: usize = 100;

/// Reads the parameters `wait`, `timeout` and `minClients`: how long to wait, and for how many clients at least; `None` for no wait.
pub(crate) fn wait_of(
    wait: Option<&str>,
    timeout: Option<&str>,
    min_clients: Option<&str>,
) -> Result<Option<(Duration, usize)>, ApiError> {
    let refuse = |text: String| Err(ApiError::BadRequest(text));
    let min = match min_clients.map(str::parse) {
        None => 0,
        Some(Ok(n)) => n,
        Some(Err(_)) => return refuse("minClients is no number of clients, such as 3".to_owned()),
    };
    match wait {
        Some("acked") => Ok(Some((timeout.map_or(Ok(DEFAULT_WAIT), |text| duration("timeout", text))?, min))),
        Some(other) => refuse(format!("wait={other:?} is unknown; write wait=acked")),
        None if timeout.is_some() || min_clients.is_some() => {
            refuse("timeout and minClients need wait=acked".to_owned())
        }
        None => Ok(None),
    }
}

/// Reads `500ms`, `10s` or `5m`.
///
/// # Errors
///
/// [`ApiError::BadRequest`] for anything else, and beyond [`MAX_WAIT`].
pub(crate) fn duration(name: &str, text: &str) -> Result<Duration, ApiError> {
    text.parse().ok().map(Span::duration).filter(|duration| *duration <= MAX_WAIT).ok_or_else(|| {
        let limit = MAX_WAIT.as_secs();
        ApiError::BadRequest(format!(
            "{name}={text:?} is not a duration: write 500ms, 10s or 5m, at most {limit}s"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(form: Form, bytes: &[u8]) -> Result<Tree, ApiError> {
        parse(form, bytes, Limits::DEFAULT_DOCUMENT_VALUES)
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("0s", 0)] {
            assert_eq!(duration("timeout", text).unwrap(), Duration::from_millis(millis));
        }
        for text in ["", "10", "s", "1.5", "-1s", "301s", "6m", "1h", "99999999999999999999s", "ß"] {
            assert!(matches!(duration("timeout", text), Err(ApiError::BadRequest(_))), "{text}");
        }
    }

    #[test]
    fn bad_percent_encoding_is_told_with_what_is_wrong() {
        for segment in ["", "a", "a%20b", "%C3%bc", "ü", "a%2Fb%25"] {
            assert_eq!(check_encoding(segment), Ok(()), "{segment}");
        }
        for (segment, wrong) in [
            ("%ff", "not UTF-8 once decoded, from the byte %FF on"),
            ("a%C3", "not UTF-8 once decoded, from the byte %C3 on"),
            ("100%", "\"%\" is not a percent-encoding"),
            ("%4", "\"%4\" is not a percent-encoding"),
            ("%zz9", "\"%zz\" is not a percent-encoding"),
            ("%+1", "\"%+1\" is not a percent-encoding"),
            ("%%25", "\"%\" is not a percent-encoding"),
            ("%aü", "\"%aü\" is not a percent-encoding"),
        ] {
            let told = check_encoding(segment).unwrap_err();
            assert!(told.contains(wrong) && (told.contains("%25") || told.contains("%C3%BC")), "{told}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_told_with_its_place() {
        for (form, text, place, wrong) in [
            (Form::Json, "{\n\"a\": 1, \"a\": 2}", (2, 9), "twice"),
            (Form::Json, "{\"b\": [{\n\"a\": 1, \"a\": 2}]}", (2, 9), "twice"),
            (Form::Yaml, "a: 1\na: 2\n", (2, 1), "twice"),
            (Form::Yaml, "a: 1\n---\na: 2\n", (3, 1), "one document"),
            (Form::Json, "", (1, 1), "the body is empty"),
            (Form::Yaml, " \n", (1, 1), "the body is empty"),
        ] {
            let Err(ApiError::BadBody(faults)) = parsed(form, text.as_bytes()) else {
                panic!("{text} was taken")
            };
            let fault = &faults[0];
            assert_eq!(fault.pointer.as_deref(), Some("#"), "{fault:?}");
            assert_eq!((fault.line, fault.column), (Some(place.0), Some(place.1)), "{text}: {fault:?}");
            assert!(fault.detail.contains(wrong), "{fault:?}");
        }
    }

    #[test]
    fn null_is_read_as_what_it_is() {
        for (form, text) in [(Form::Json, " null"), (Form::Yaml, "~"), (Form::Yaml, "# nothing")] {
            assert!(parsed(form, text.as_bytes()).unwrap().root().is_null(), "{text}");
        }
    }

    #[test]
    fn json_reads_as_serde_reads_it() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "x"], "b": {"c": 18446744073709551615}}"#;
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(parsed(Form::Json, text.as_bytes()).unwrap().to_json(), expected);
        let yaml = parsed(Form::Yaml, b"a: yes\nb: 1\n").unwrap().to_json();
        assert_eq!(yaml, serde_json::json!({"a": "yes", "b": 1}));
        assert!(parsed(Form::Json, b"{} x").is_err() && parsed(Form::Json, b"\xff").is_err());
        assert!(parsed(Form::Json, "[".repeat(100_000).as_bytes()).is_err(), "depth is limited");
    }

    #[test]
    fn a_placeholder_is_found_wherever_it_stands() {
        let mut found = Vec::new();
        let text = "{\"a\": [{\"b/c\":\n \"[redacted]\"}], \"d\": \"[redacted] or not\"}";
        let tree = parsed(Form::Json, text.as_bytes()).unwrap();
        find_placeholders(tree.root(), "", &mut found);
        let places: Vec<_> =
            found.iter().map(|fault| (fault.pointer.as_deref(), fault.line, fault.column)).collect();
        assert_eq!(places, [(Some("#/a/0/b~1c"), Some(2), Some(2))]);
    }
}
