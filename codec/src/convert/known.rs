//! The well-known types whose JSON is not an object with their fields.

use prost::Message;
use prost_reflect::prost_types::Timestamp;
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage, Value};

use super::{Converter, Scope, scalar};
use crate::diagnostic::{echo, echo_name};
use crate::document::{Entry, Number, Tree, TreeValue};
use crate::finding::Finding;
use crate::inner::{MAX_ANY_DEPTH, TYPE_PREFIX};
use crate::path::Path;

impl Converter<'_> {
    /// Converts a well-known type; `None` for every other type, and for those that look like any message.
    pub(super) fn known_message(
        &mut self,
        descriptor: &MessageDescriptor,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) -> Option<DynamicMessage> {
        let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
        let mut message = DynamicMessage::new(descriptor.clone());
        match name {
            "Any" => self.any(&mut message, tree, path, scope),
            "Duration" => self.duration(&mut message, tree, path, scope),
            "Timestamp" => self.timestamp(&mut message, tree, path, scope),
            "FieldMask" => self.field_mask(&mut message, tree, path, scope),
            "Struct" => self.struct_value(&mut message, tree, path, scope),
            "Value" => self.any_value(&mut message, tree, path, scope),
            "ListValue" => self.list_value(&mut message, tree, path, scope),
            _ if is_wrapper(name) => {
                let kind = descriptor.get_field_by_name("value")?.kind();
                if let Some(value) = self.scalar(&kind, tree, path, scope) {
                    set(&mut message, "value", value);
                }
            }
            _ => return None,
        }
        Some(message)
    }

    fn any(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let TreeValue::Object(entries) = &tree.value else {
            return self.wrong_type("an object with `@type`", tree, path, scope);
        };
        let Some(url) = tree.get("@type") else {
            if !entries.is_empty() {
                self.fault("missing-type", "the object needs an `@type`", tree, path, scope);
            }
            return;
        };
        let Some(type_url) = url.as_str() else {
            return self.wrong_type("the URL of a type", url, &path.field("@type"), scope);
        };
        if scope.n_anys >= MAX_ANY_DEPTH {
            return self.fault("too-deep", "messages of any type nest too deep", tree, path, scope);
        }
        let value = match self.inner.message_of_url(type_url) {
            Some(descriptor) => {
                let scope = Scope { n_messages: 0, n_anys: scope.n_anys + 1, may_have_type: true, ..scope };
                Some(self.any_content(&descriptor, tree, path, scope).encode_to_vec())
            }
            None => opaque_value(entries),
        };
        match value {
            Some(value) => {
                set(message, "type_url", Value::String(type_url.to_owned()));
                set(message, "value", Value::Bytes(value.into()));
            }
            None => self.unknown_type(type_url, url, path),
        }
    }

    /// The content beside `@type`; a type with a JSON form of its own stands under `value`.
    fn any_content(
        &mut self,
        descriptor: &MessageDescriptor,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) -> DynamicMessage {
        let known = descriptor.full_name().strip_prefix("google.protobuf.");
        if !known.is_some_and(|name| is_wrapper(name) || HAVE_OWN_JSON.contains(&name)) {
            return self.message(descriptor, tree, path, scope);
        }
        for entry in tree.entries().iter().filter(|entry| !matches!(&*entry.key, "@type" | "value")) {
            let text = format!("{} takes `@type` and `value` only", descriptor.full_name());
            self.findings
                .push(Finding::error("unknown-field", &path.field(&entry.key), text).at(entry.position));
        }
        let Some(value) = tree.entry("value") else {
            let text = format!("{} needs a `value`", descriptor.full_name());
            self.fault("missing-value", text, tree, path, scope);
            return DynamicMessage::new(descriptor.clone());
        };
        self.message(descriptor, &value.value, &path.field("value"), Scope { may_have_type: false, ..scope })
    }

    pub(crate) fn unknown_type(&mut self, type_url: &str, url: &Tree, path: &Path<'_>) {
        let suggestion =
            self.findings.wants_suggestions().then(|| self.inner.suggest_type_url(type_url)).flatten();
        let text = if type_url.contains('/') {
            format!("unknown type {}", echo_name(type_url))
        } else {
            format!("{} is no type URL; it must begin with {TYPE_PREFIX}", echo_name(type_url))
        };
        let finding = Finding::error("unknown-type", &path.field("@type"), text).at(url.position);
        self.findings.push(finding.suggest(suggestion));
    }

    fn duration(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            let text = format!("expected a duration such as `1.5s`, found {}", Self::describe(tree, scope));
            let suggestion = match &tree.value {
                TreeValue::Number(number) => Some(format!("{number}s")),
                TreeValue::Null
                | TreeValue::Bool(_)
                | TreeValue::String(_)
                | TreeValue::List(_)
                | TreeValue::Object(_) => None,
            };
            let finding = Finding::error("bad-duration", path, text).at(tree.position);
            return self.findings.push(finding.suggest(suggestion));
        };
        let Some((seconds, nanos)) = parse_duration(text) else {
            let text = format!("{} is no duration; write seconds such as `1.5s`", echo(text));
            let finding = Finding::error("bad-duration", path, text).at(tree.position);
            return self.findings.push(finding.suggest(tree.as_str().and_then(suggest_duration)));
        };
        set(message, "seconds", Value::I64(seconds));
        set(message, "nanos", Value::I32(nanos));
    }

    fn timestamp(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            return self.wrong_type("a time such as `2024-01-31T12:00:00Z`", tree, path, scope);
        };
        let is_complete = text.len() <= 40 && text.contains('T');
        let Some(time) = text.parse::<Timestamp>().ok().filter(|_| is_complete) else {
            let text = format!("{} is no time such as `2024-01-31T12:00:00Z`", echo(text));
            return self.fault("bad-timestamp", text, tree, path, scope);
        };
        set(message, "seconds", Value::I64(time.seconds));
        set(message, "nanos", Value::I32(time.nanos));
    }

    fn field_mask(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            return self.wrong_type("field paths with commas between them", tree, path, scope);
        };
        let paths =
            text.split(',').filter(|path| !path.is_empty()).map(|path| Value::String(snake_case(path)));
        set(message, "paths", Value::List(paths.collect()));
    }

    fn struct_value(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let TreeValue::Object(entries) = &tree.value else {
            return self.wrong_type("an object", tree, path, scope);
        };
        let Some(field) = message.descriptor().get_field_by_name("fields") else { return };
        let Some(value_type) = self.inner.message("google.protobuf.Value") else { return };
        // A map entry is a message too.
        let scope = Scope { n_messages: scope.n_messages + 1, ..scope };
        let mut values = std::collections::HashMap::with_capacity(entries.len());
        for entry in entries {
            let value = self.message(&value_type, &entry.value, &path.key(&entry.key), scope);
            values.insert(MapKey::String(entry.key.clone()), Value::Message(value));
        }
        message.set_field(&field, Value::Map(values));
    }

    fn any_value(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        match &tree.value {
            TreeValue::Null => set(message, "null_value", Value::EnumNumber(0)),
            TreeValue::Bool(truth) => set(message, "bool_value", Value::Bool(*truth)),
            TreeValue::Number(Number::Integer(integer)) => {
                set(message, "number_value", Value::F64(*integer as f64));
            }
            TreeValue::Number(Number::Float(float)) => set(message, "number_value", Value::F64(*float)),
            TreeValue::String(text) => set(message, "string_value", Value::String(text.clone())),
            TreeValue::List(_) => self.nested_value(message, "list_value", tree, path, scope),
            TreeValue::Object(_) => self.nested_value(message, "struct_value", tree, path, scope),
        }
    }

    fn nested_value(
        &mut self,
        message: &mut DynamicMessage,
        field: &'static str,
        tree: &Tree,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let name = if field == "list_value" { "google.protobuf.ListValue" } else { "google.protobuf.Struct" };
        let Some(descriptor) = self.inner.message(name) else { return };
        let value = self.message(&descriptor, tree, path, scope);
        set(message, field, Value::Message(value));
    }

    fn list_value(&mut self, message: &mut DynamicMessage, tree: &Tree, path: &Path<'_>, scope: Scope) {
        let TreeValue::List(items) = &tree.value else {
            return self.wrong_type("a list", tree, path, scope);
        };
        let Some(descriptor) = self.inner.message("google.protobuf.Value") else { return };
        let values = items.iter().enumerate().map(|(index, item)| {
            let value = self.message(&descriptor, item, &path.index(index), scope);
            Value::Message(value)
        });
        let values = values.collect();
        set(message, "values", Value::List(values));
    }
}

/// Sets a field of a well-known type, all of which the built-in pool has.
fn set(message: &mut DynamicMessage, field: &str, value: Value) {
    let is_set = message.try_set_field_by_name(field, value);
    debug_assert!(is_set.is_ok(), "{field} of {}", message.descriptor().full_name());
}

/// The bytes of `{"@type": …, "value": base64}`, if there is nothing else in the object.
pub(crate) fn opaque_value(entries: &[Entry]) -> Option<Vec<u8>> {
    let value = entries.iter().find(|entry| entry.key == "value")?;
    if entries.len() != 2 || !entries.iter().any(|entry| entry.key == "@type") {
        return None;
    }
    scalar::decode_base64(value.value.as_str()?)
}

/// Reads `[-]digits[.digits]s` within protobuf's bounds of about 10,000 years.
pub(crate) fn parse_duration(text: &str) -> Option<(i64, i32)> {
    let number = text.strip_suffix('s')?;
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (seconds, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(seconds) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds: i64 = seconds.parse().ok().filter(|seconds| *seconds <= MAX_DURATION_SECONDS)?;
    let nanos: i32 = format!("{fraction:0<9}").parse().ok()?;
    Some(if number.starts_with('-') { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// `100ms`, `5m` and the like in seconds.
fn suggest_duration(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok().filter(|number| *number < 1_000_000_000)?;
    match unit.trim() {
        "" => Some(format!("{number}s")),
        "ms" => Some(format!("{}s", (number as f64) / 1e3)),
        "us" => Some(format!("{}s", (number as f64) / 1e6)),
        "m" | "min" => Some(format!("{}s", number * 60)),
        "h" => Some(format!("{}s", number * 3600)),
        "d" => Some(format!("{}s", number * 86400)),
        "sec" | "seconds" | "S" => Some(format!("{number}s")),
        _ => None,
    }
}

/// A mask's path in proto names; a path that is in them already stays as it is.
fn snake_case(path: &str) -> String {
    let mut snake = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

pub(crate) fn is_wrapper(name: &str) -> bool {
    let wrapped = ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"];
    name.strip_suffix("Value").is_some_and(|kind| wrapped.contains(&kind))
}

/// Well-known types, besides wrappers, whose JSON is not an object with their fields.
pub(crate) const HAVE_OWN_JSON: [&str; 7] =
    ["Any", "Duration", "Timestamp", "FieldMask", "Struct", "Value", "ListValue"];

/// 315,576,000,000 s, from the definition of `google.protobuf.Duration`.
const MAX_DURATION_SECONDS: i64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds() {
        assert_eq!(parse_duration("1.5s"), Some((1, 500_000_000)));
        assert_eq!(parse_duration("-0.000000001s"), Some((0, -1)));
        for text in ["1", "s", "1.s", ".5s", "1m", "1.0000000001s", "315576000001s", "1 s", "+1s", "1e3s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(suggest_duration("100ms").as_deref(), Some("0.1s"));
        assert_eq!(suggest_duration("5m").as_deref(), Some("300s"));
        assert_eq!(suggest_duration("5 apples"), None);
    }
}
