//! Writes messages as JSON, without secrets unless the caller asks for them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost_types::Timestamp;
use prost_reflect::{FieldDescriptor, Kind, Value};
use serde_json::{Map, Value as Json};

use crate::convert::known::{HAVE_OWN_JSON, is_wrapper};
use crate::encode::decode_any;
use crate::finding::json_name;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::message::{Item, Message, default_of, key_text, seconds_and_nanos, text, texts};
use crate::secrets::{Context, SECRET_TYPE, has_userinfo};

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// How secrets are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// They are replaced by [`REDACTED`].
    Redacted,
    /// They are shown. Only for the client that gets the resource, and for writing it back.
    Shown,
}

/// Writes a message with proto field names, in the order of field numbers and map keys; `@type` first if there is a URL.
pub(crate) fn to_json(inner: &Inner, secrets: Secrets, type_url: Option<&str>, message: &Message) -> Json {
    let mut writer = Writer { inner, secrets, n_anys: 0 };
    match type_url {
        Some(type_url) => writer.typed(type_url, message, Context::default()),
        None => writer.message(message, Context::default()),
    }
}

/// An `Any` whose content cannot be decoded: `{"@type", "value": base64}`.
pub(crate) fn opaque(type_url: &str, content: &[u8]) -> Json {
    let mut object = Map::new();
    object.insert("@type".to_owned(), Json::from(type_url));
    object.insert("value".to_owned(), Json::from(STANDARD.encode(content)));
    Json::Object(object)
}

struct Writer<'c> {
    inner: &'c Inner,
    secrets: Secrets,
    n_anys: usize,
}

impl Writer<'_> {
    fn typed(&mut self, type_url: &str, message: &Message, context: Context) -> Json {
        let mut object = Map::new();
        object.insert("@type".to_owned(), Json::from(type_url));
        let known = message.name().strip_prefix("google.protobuf.");
        let content = self.message(message, context);
        if known.is_some_and(|name| is_wrapper(name) || HAVE_OWN_JSON.contains(&name)) {
            object.insert("value".to_owned(), content);
        } else if let Json::Object(fields) = content {
            object.extend(fields);
        }
        Json::Object(object)
    }

    fn message(&mut self, message: &Message, context: Context) -> Json {
        if let Some(name) = message.name().strip_prefix("google.protobuf.")
            && let Some(json) = self.known(name, message, context)
        {
            return json;
        }
        let fields = context.fields(self.inner, message);
        let fields =
            fields.map(|(field, context)| (field.name().to_owned(), self.field(message, &field, context)));
        Json::Object(fields.collect())
    }

    /// The value of a field; the default if it is not set.
    fn field(&mut self, message: &Message, field: &FieldDescriptor, context: Context) -> Json {
        if field.is_map() {
            let value_kind = field.kind().as_message().map(|entry| entry.map_entry_value_field().kind());
            let Some(kind) = value_kind else { return Json::Null };
            let is_struct = message.name() == "google.protobuf.Struct";
            let entries = message.entries(field).map(|(key, value)| {
                let key = key_text(&key);
                let context = if is_struct { context.of_key(&key) } else { context };
                let value = self.value(&kind, &value, context);
                (key, value)
            });
            return Json::Object(entries.collect());
        }
        let kind = field.kind();
        if field.is_list() {
            return message.items(field).map(|item| self.value(&kind, &item, context)).collect();
        }
        let value = message.value(field).unwrap_or_else(|| default_of(field));
        self.value(&kind, &value, context)
    }

    fn value(&mut self, kind: &Kind, value: &Item, context: Context) -> Json {
        let value = match value {
            Item::Message(message) => return self.message(message, context),
            Item::Scalar(value) => value,
        };
        // Numbers and truths around a credential are none.
        let is_text = matches!(value, Value::String(_) | Value::Bytes(_));
        let is_hidden =
            context.is_secret || (is_text && (context.is_hidden || value.as_str().is_some_and(has_userinfo)));
        if is_hidden && self.secrets == Secrets::Redacted {
            return Json::from(REDACTED);
        }
        match value {
            Value::Bool(truth) => Json::from(*truth),
            Value::I32(number) => Json::from(*number),
            Value::U32(number) => Json::from(*number),
            Value::I64(number) => Json::from(number.to_string()),
            Value::U64(number) => Json::from(number.to_string()),
            Value::F32(number) => float(f64::from(*number), &number.to_string()),
            Value::F64(number) => float(*number, &number.to_string()),
            Value::String(text) => Json::from(text.as_str()),
            Value::Bytes(bytes) => Json::from(STANDARD.encode(bytes)),
            Value::EnumNumber(number) => enum_value(kind, *number),
            Value::Message(_) | Value::List(_) | Value::Map(_) => Json::Null,
        }
    }

    /// The JSON of a well-known type that has its own; `None` for any other.
    fn known(&mut self, name: &str, message: &Message, context: Context) -> Option<Json> {
        if name == "Any" {
            return Some(self.any(message, context));
        }
        if name == "Value" {
            let Some(field) = message.fields().next() else { return Some(Json::Null) };
            return Some(self.field(message, &field, context));
        }
        let only = match name {
            "Struct" => Some("fields"),
            "ListValue" => Some("values"),
            _ => is_wrapper(name).then_some("value"),
        };
        if let Some(field) = only {
            let field = message.descriptor().get_field_by_name(field)?;
            return Some(self.field(message, &field, context));
        }
        let text = match name {
            "Duration" => duration(message)?,
            "Timestamp" => timestamp(message)?,
            "FieldMask" => texts(message, "paths").map(|path| json_name(&path)).collect::<Vec<_>>().join(","),
            _ => return None,
        };
        Some(Json::from(if context.is_secret && self.secrets == Secrets::Redacted {
            REDACTED
        } else {
            &text
        }))
    }

    fn any(&mut self, any: &Message, context: Context) -> Json {
        let type_url = text(any, "type_url").unwrap_or_default();
        let content = any.descriptor().get_field_by_name("value").and_then(|field| any.value(&field));
        let content =
            content.and_then(|content| content.as_scalar()?.as_bytes().cloned()).unwrap_or_default();
        if type_url.is_empty() && content.is_empty() {
            return Json::Object(Map::new());
        }
        if self.n_anys < MAX_ANY_DEPTH
            && let Some(message) = decode_any(self.inner, any)
        {
            self.n_anys += 1;
            let json = self.typed(&type_url, &message, context);
            self.n_anys -= 1;
            return json;
        }
        let is_hidden = context.is_hidden || type_url.ends_with(SECRET_TYPE);
        if is_hidden && self.secrets == Secrets::Redacted {
            let mut object = Map::new();
            object.insert("@type".to_owned(), Json::from(type_url));
            object.insert("value".to_owned(), Json::from(REDACTED));
            return Json::Object(object);
        }
        opaque(&type_url, &content)
    }
}

/// The name of an enum value, or its number if it has none.
fn enum_value(kind: &Kind, number: i32) -> Json {
    let Some(descriptor) = kind.as_enum() else { return Json::from(number) };
    if descriptor.full_name() == "google.protobuf.NullValue" {
        return Json::Null;
    }
    descriptor.get_value(number).map_or_else(|| Json::from(number), |value| Json::from(value.name()))
}

/// A number in its shortest form. Like protobuf, it writes values that JSON does not have, such as infinity, as words.
fn float(number: f64, text: &str) -> Json {
    if number.is_nan() {
        return Json::from("NaN");
    }
    if number.is_infinite() {
        return Json::from(if number > 0.0 { "Infinity" } else { "-Infinity" });
    }
    // Like protobuf, it writes whole numbers without a fraction. Floats of 32 bits have their own shortest text.
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Json::from(number as i64);
    }
    Json::from(text.parse::<f64>().unwrap_or(number))
}

fn duration(message: &Message) -> Option<String> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
    if nanos == 0 {
        return Some(format!("{sign}{seconds}s"));
    }
    let fraction = format!("{nanos:09}");
    Some(format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0')))
}

fn timestamp(message: &Message) -> Option<String> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    Some(Timestamp { seconds, nanos }.to_string())
}
