//! Input: bodies and query parameters, read strictly.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{self, FromRequestParts, Query};
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use xds_codec::REDACTED;

use crate::answer::{Form, form_of};
use crate::problem::{ApiError, Fault};

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

/// The variable segments of a path, percent-decoded. Bad percent-encoding is told with its segment.
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
                "\"%{shown}\" is no percent-encoding, which has two hexadecimal digits; a percent sign is written %25"
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
                "decoded it is not UTF-8, from the byte %{byte:02X} on; percent-encode the bytes of its UTF-8 form, \
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
    // The only ways to fail are a body that is too long and a client that is gone.
    let bytes = axum::body::to_bytes(body, limit).await.map_err(|_| ApiError::TooLarge(limit))?;
    Ok((form, bytes))
}

/// Reads a body as JSON or YAML, in which no key may be there twice and no value be a placeholder for a secret.
pub(crate) async fn read_value(headers: &HeaderMap, body: Body, limit: usize) -> Result<Value, ApiError> {
    let (form, bytes) = read(headers, body, limit).await?;
    let value = match form {
        Form::Json => from_json(&bytes)?,
        Form::Yaml => from_yaml(&bytes)?,
    };
    let mut placeholders = Vec::new();
    find_placeholders(&value, &mut String::new(), &mut placeholders);
    if placeholders.is_empty() { Ok(value) } else { Err(ApiError::Invalid(placeholders)) }
}

fn from_json(bytes: &[u8]) -> Result<Value, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value)).map_err(
        |error| {
            let known = |number: usize| u32::try_from(number).ok().filter(|number| *number > 0);
            // Its text ends with the place, which has fields of its own.
            let text = error.to_string();
            let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
            let fault = Fault::new(detail);
            ApiError::BadBody(vec![Fault {
                line: known(error.line()),
                column: known(error.column()),
                ..fault
            }])
        },
    )
}

fn from_yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    let fault = |detail: String| ApiError::BadBody(vec![Fault::new(detail)]);
    let text = std::str::from_utf8(bytes).map_err(|error| fault(error.to_string()))?;
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| fault(error.to_string()))
}

/// Finds the text that stands for a secret in our answers: taking it in would overwrite the secret with it.
fn find_placeholders(value: &Value, pointer: &mut String, found: &mut Vec<Fault>) {
    let mut step = |key: &str, value: &Value| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        find_placeholders(value, pointer, found);
        pointer.truncate(length);
    };
    match value {
        Value::String(text) if text == REDACTED => {
            let detail = format!(
                "{REDACTED:?} stands for a secret that answers do not show; send the secret itself, \
                 or leave this resource as it is"
            );
            found.push(Fault::at(pointer, detail));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| step(&index.to_string(), item));
        }
        Value::Object(object) => object.iter().for_each(|(key, value)| step(key, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads a JSON value and refuses a key that is there twice, which `serde_json` alone would take from its last place.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Self)?;
            if object.contains_key(&key) {
                return Err(serde::de::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Reads `500ms`, `10s` or `5m`.
///
/// # Errors
///
/// [`ApiError::BadRequest`] for anything else, and beyond [`MAX_WAIT`].
pub(crate) fn duration(name: &str, text: &str) -> Result<Duration, ApiError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let millis_per_unit = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let millis = millis_per_unit.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
    let duration = millis.map(Duration::from_millis).filter(|duration| *duration <= MAX_WAIT);
    duration.ok_or_else(|| {
        let limit = MAX_WAIT.as_secs();
        ApiError::BadRequest(format!(
            "{name}={text:?} is no duration: write 500ms, 10s or 5m, at most {limit}s"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("0s", 0)] {
            assert_eq!(duration("timeout", text).unwrap(), Duration::from_millis(millis));
        }
        for text in ["", "10", "s", "10 s", "-1s", "1.5s", "301s", "6m", "1h", "99999999999999999999s", "ß"]
        {
            assert!(matches!(duration("timeout", text), Err(ApiError::BadRequest(_))), "{text}");
        }
    }

    #[test]
    fn bad_percent_encoding_is_told_with_what_is_wrong() {
        for segment in ["", "a", "a%20b", "%C3%bc", "ü", "a%2Fb%25"] {
            assert_eq!(check_encoding(segment), Ok(()), "{segment}");
        }
        for (segment, wrong) in [
            ("%ff", "not UTF-8, from the byte %FF on"),
            ("a%C3", "not UTF-8, from the byte %C3 on"),
            ("100%", "\"%\" is no percent-encoding"),
            ("%4", "\"%4\" is no percent-encoding"),
            ("%zz9", "\"%zz\" is no percent-encoding"),
            ("%+1", "\"%+1\" is no percent-encoding"),
            ("%%25", "\"%\" is no percent-encoding"),
            ("%aü", "\"%aü\" is no percent-encoding"),
        ] {
            let told = check_encoding(segment).unwrap_err();
            assert!(told.contains(wrong) && (told.contains("%25") || told.contains("%C3%BC")), "{told}");
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_with_its_place() {
        for text in ["{\n\"a\": 1, \"a\": 2}", "{\"b\": [{\n\"a\": 1, \"a\": 2}]}"] {
            let Err(ApiError::BadBody(faults)) = from_json(text.as_bytes()) else {
                panic!("{text} was taken")
            };
            assert_eq!(faults[0].line, Some(2), "{faults:?}");
            assert!(faults[0].detail.contains("twice"), "{faults:?}");
        }
        assert!(matches!(from_yaml(b"a: 1\na: 2\n"), Err(ApiError::BadBody(_))));
    }

    #[test]
    fn json_reads_as_serde_reads_it() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "x"], "b": {"c": 18446744073709551615}}"#;
        assert_eq!(from_json(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(from_yaml(b"a: yes\nb: 1\n").unwrap(), serde_json::json!({"a": "yes", "b": 1}));
        assert!(from_json(b"{} x").is_err() && from_json(b"").is_err());
        assert!(from_json("[".repeat(100_000).as_bytes()).is_err(), "depth is limited");
    }

    #[test]
    fn a_placeholder_is_found_wherever_it_stands() {
        let mut found = Vec::new();
        let value = serde_json::json!({"a": [{"b/c": "[redacted]"}], "d": "[redacted] or not"});
        find_placeholders(&value, &mut String::new(), &mut found);
        let pointers: Vec<_> = found.iter().map(|fault| fault.pointer.as_deref()).collect();
        assert_eq!(pointers, [Some("#/a/0/b~1c")]);
    }
}
