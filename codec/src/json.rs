//! From a message to JSON, with secrets left out unless they are asked for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost_types::Timestamp;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};
use serde_json::{Map, Value as Json};

use crate::convert::known::{HAVE_OWN_JSON, is_wrapper};
use crate::encode::decode_any;
use crate::finding::json_name;
use crate::inner::{Inner, MAX_ANY_DEPTH};
use crate::walk::key_text;

/// Stands for a secret.
pub const REDACTED: &str = "[redacted]";

/// Whether secrets are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// `[redacted]` stands for them.
    Redacted,
    /// They are shown: only for the client that they belong to, and for writing a resource back.
    Shown,
}

/// Writes a message with proto field names, in the order of field numbers and map keys; `@type` first if there is a URL.
pub(crate) fn to_json(
    inner: &Inner,
    secrets: Secrets,
    type_url: Option<&str>,
    message: &DynamicMessage,
) -> Json {
    let mut writer = Writer { inner, secrets, n_anys: 0 };
    match type_url {
        Some(type_url) => writer.typed(type_url, message, Context::default()),
        None => writer.message(message, Context::default()),
    }
}

/// An `Any` whose content is not understood: `{"@type", "value": base64}`.
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

/// What is known on the way down.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Whether what is written is secret.
    is_secret: bool,
}

impl Writer<'_> {
    fn typed(&mut self, type_url: &str, message: &DynamicMessage, context: Context) -> Json {
        let mut object = Map::new();
        object.insert("@type".to_owned(), Json::from(type_url));
        let descriptor = message.descriptor();
        let known = descriptor.full_name().strip_prefix("google.protobuf.");
        let content = self.message(message, context);
        if known.is_some_and(|name| is_wrapper(name) || HAVE_OWN_JSON.contains(&name)) {
            object.insert("value".to_owned(), content);
        } else if let Json::Object(fields) = content {
            object.extend(fields);
        }
        Json::Object(object)
    }

    fn message(&mut self, message: &DynamicMessage, context: Context) -> Json {
        let descriptor = message.descriptor();
        if let Some(name) = descriptor.full_name().strip_prefix("google.protobuf.")
            && let Some(json) = self.known(name, message, context)
        {
            return json;
        }
        let facts = self.inner.facts.of(&descriptor);
        let is_secret_header = is_secret_header(message);
        let is_data_source = descriptor.full_name() == "envoy.config.core.v3.DataSource";
        let mut object = Map::new();
        for (field, value) in message.fields() {
            let is_marked = facts.field(field.name()).is_some_and(|facts| facts.is_sensitive);
            let names_a_place = is_data_source && !field.name().starts_with("inline_");
            let is_secret = (context.is_secret && !names_a_place)
                || is_marked
                || (is_secret_header && matches!(field.name(), "value" | "raw_value"));
            object.insert(field.name().to_owned(), self.field(&field, value, Context { is_secret }));
        }
        Json::Object(object)
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Value, context: Context) -> Json {
        match value {
            Value::List(items) => items.iter().map(|item| self.value(&field.kind(), item, context)).collect(),
            Value::Map(map) => {
                let Kind::Message(entry_type) = field.kind() else { return Json::Null };
                let kind = entry_type.map_entry_value_field().kind();
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let entries = entries
                    .into_iter()
                    .map(|(key, value)| (key_text(key), self.value(&kind, value, context)));
                Json::Object(entries.collect())
            }
            Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::U32(_)
            | Value::U64(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::EnumNumber(_)
            | Value::Message(_) => self.value(&field.kind(), value, context),
        }
    }

    fn value(&mut self, kind: &Kind, value: &Value, context: Context) -> Json {
        if let Value::Message(message) = value {
            return self.message(message, context);
        }
        if context.is_secret && self.secrets == Secrets::Redacted {
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
    fn known(&mut self, name: &str, message: &DynamicMessage, context: Context) -> Option<Json> {
        if name == "Any" {
            return Some(self.any(message, context));
        }
        if name == "Struct" {
            let field = message.descriptor().get_field_by_name("fields")?;
            return Some(self.field(&field, &message.get_field(&field), context));
        }
        if name == "Value" {
            let fields: Vec<_> = message.fields().collect();
            let Some((field, value)) = fields.first() else { return Some(Json::Null) };
            return Some(self.field(field, value, context));
        }
        if name == "ListValue" {
            let field = message.descriptor().get_field_by_name("values")?;
            return Some(self.field(&field, &message.get_field(&field), context));
        }
        if is_wrapper(name) {
            let field = message.descriptor().get_field_by_name("value")?;
            return Some(self.field(&field, &message.get_field(&field), context));
        }
        let text = match name {
            "Duration" => duration(message)?,
            "Timestamp" => timestamp(message)?,
            "FieldMask" => {
                let paths = message.get_field_by_name("paths")?;
                let paths: Vec<_> =
                    paths.as_list()?.iter().filter_map(Value::as_str).map(json_name).collect();
                paths.join(",")
            }
            _ => return None,
        };
        Some(Json::from(if context.is_secret && self.secrets == Secrets::Redacted {
            REDACTED
        } else {
            &text
        }))
    }

    fn any(&mut self, any: &DynamicMessage, context: Context) -> Json {
        let type_url = any.get_field_by_name("type_url");
        let type_url = type_url.as_deref().and_then(Value::as_str).unwrap_or_default();
        let content = any.get_field_by_name("value");
        let content = content.as_deref().and_then(Value::as_bytes).cloned().unwrap_or_default();
        if type_url.is_empty() && content.is_empty() {
            return Json::Object(Map::new());
        }
        if self.n_anys < MAX_ANY_DEPTH
            && let Some(message) = decode_any(self.inner, any)
        {
            self.n_anys += 1;
            let json = self.typed(type_url, &message, context);
            self.n_anys -= 1;
            return json;
        }
        let is_hidden = context.is_secret || type_url.ends_with(SECRET_TYPE);
        if is_hidden && self.secrets == Secrets::Redacted {
            let mut object = Map::new();
            object.insert("@type".to_owned(), Json::from(type_url));
            object.insert("value".to_owned(), Json::from(REDACTED));
            return Json::Object(object);
        }
        opaque(type_url, &content)
    }
}

/// A secret that cannot be decoded is hidden whole.
pub(crate) const SECRET_TYPE: &str = "/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Whether the message is a header that carries a credential.
fn is_secret_header(message: &DynamicMessage) -> bool {
    if message.descriptor().full_name() != "envoy.config.core.v3.HeaderValue" {
        return false;
    }
    let key = message.get_field_by_name("key");
    let key = key.as_deref().and_then(Value::as_str).unwrap_or_default();
    SECRET_HEADERS.iter().any(|header| header.eq_ignore_ascii_case(key))
}

pub(crate) const SECRET_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token"];

/// The name of an enum value, or its number if it has none.
fn enum_value(kind: &Kind, number: i32) -> Json {
    let Some(descriptor) = kind.as_enum() else { return Json::from(number) };
    if descriptor.full_name() == "google.protobuf.NullValue" {
        return Json::Null;
    }
    descriptor.get_value(number).map_or_else(|| Json::from(number), |value| Json::from(value.name()))
}

/// A number as short as it can be; what JSON has no notation for is a word, as protobuf writes it.
fn float(number: f64, text: &str) -> Json {
    if number.is_nan() {
        return Json::from("NaN");
    }
    if number.is_infinite() {
        return Json::from(if number > 0.0 { "Infinity" } else { "-Infinity" });
    }
    // A whole number is written without a fraction, as protobuf does; floats of 32 bits by their own shortest text.
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return Json::from(number as i64);
    }
    Json::from(text.parse::<f64>().unwrap_or(number))
}

fn seconds_and_nanos(message: &DynamicMessage) -> Option<(i64, i32)> {
    let seconds = message.get_field_by_name("seconds")?.as_i64()?;
    Some((seconds, message.get_field_by_name("nanos")?.as_i32()?))
}

fn duration(message: &DynamicMessage) -> Option<String> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
    if nanos == 0 {
        return Some(format!("{sign}{seconds}s"));
    }
    let fraction = format!("{nanos:09}");
    Some(format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0')))
}

fn timestamp(message: &DynamicMessage) -> Option<String> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    Some(Timestamp { seconds, nanos }.to_string())
}
