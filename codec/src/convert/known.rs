//! Well-known types with a JSON form of their own.

use prost_reflect::prost_types::Timestamp;
use prost_reflect::{Kind, MessageDescriptor, Value};

use super::converter::{Converter, Scope};
use super::scalar::{self, BEYOND_DOUBLES};
use crate::diagnostic::{echo, echo_name};
use crate::document::{Entries, Node, Number, TreeValue};
use crate::finding::Finding;
use crate::inner::{MAX_ANY_DEPTH, TYPE_PREFIX};
use crate::path::Path;

impl Converter<'_> {
    /// Writes the content of a well-known type. Returns `false` for other types, and for those without a JSON form of their own.
    pub(super) fn known_message(
        &mut self,
        descriptor: &MessageDescriptor,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) -> bool {
        let Some(name) = descriptor.full_name().strip_prefix("google.protobuf.") else { return false };
        match name {
            "Any" => self.any(tree, path, scope),
            "Duration" => self.duration(tree, path, scope),
            "Timestamp" => self.timestamp(tree, path, scope),
            "FieldMask" => self.field_mask(tree, path, scope),
            "Struct" => self.struct_value(descriptor, tree, path, scope),
            "Value" => self.any_value(descriptor, tree, path, scope),
            "ListValue" => self.list_value(descriptor, tree, path, scope),
            _ if is_wrapper(name) => {
                let Some(field) = descriptor.get_field_by_name("value") else { return true };
                self.field(&field, tree, path, scope);
            }
            _ => return false,
        }
        true
    }

    fn any(&mut self, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let TreeValue::Object(entries) = tree.value() else {
            return self.wrong_type("an object with `@type`", tree, path, scope);
        };
        let Some(url) = tree.get("@type") else {
            if entries.len() > 0 {
                self.fault("missing-type", "the object needs an `@type`", tree, path, scope);
            }
            return;
        };
        let Some(type_url) = url.as_str() else {
            return self.wrong_type("a type URL", url, &path.field("@type"), scope);
        };
        if scope.n_anys >= MAX_ANY_DEPTH {
            return self.fault("too-deep", "messages of type `Any` are nested too deeply", tree, path, scope);
        }
        self.text(1, type_url);
        if let Some(descriptor) = self.inner.message_of_url(type_url) {
            let scope = Scope { n_messages: 0, n_anys: scope.n_anys + 1, may_have_type: true, ..scope };
            let open = self.writer.open(2);
            self.any_content(&descriptor, tree, path, scope);
            self.writer.close_unless_empty(open);
            return;
        }
        match opaque_value(entries) {
            Some(value) if value.is_empty() => {}
            Some(value) => self.writer.bytes_field(2, &value),
            None => self.unknown_type(type_url, url, path),
        }
    }

    /// Converts the content next to `@type`. A type with its own JSON form is under `value`.
    fn any_content(&mut self, descriptor: &MessageDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let known = descriptor.full_name().strip_prefix("google.protobuf.");
        if !known.is_some_and(|name| is_wrapper(name) || HAVE_OWN_JSON.contains(&name)) {
            return self.message(descriptor, tree, path, scope);
        }
        for entry in tree.entries().filter(|entry| !matches!(entry.key, "@type" | "value")) {
            let text = format!("{} has only `@type` and `value`", descriptor.full_name());
            self.findings
                .push(Finding::error("unknown-field", &path.field(entry.key), text).at(entry.position));
        }
        let Some(value) = tree.entry("value") else {
            let text = format!("{} needs a `value`", descriptor.full_name());
            return self.fault("missing-value", text, tree, path, scope);
        };
        self.message(descriptor, value.value, &path.field("value"), Scope { may_have_type: false, ..scope });
    }

    pub(crate) fn unknown_type(&mut self, type_url: &str, url: Node<'_>, path: &Path<'_>) {
        let suggestion =
            self.findings.wants_suggestions().then(|| self.inner.suggest_type_url(type_url)).flatten();
        let text = if type_url.contains('/') {
            format!("unknown type {}", echo_name(type_url))
        } else {
            format!("{} is not a type URL; it must begin with {TYPE_PREFIX}", echo_name(type_url))
        };
        let finding = Finding::error("unknown-type", &path.field("@type"), text).at(url.position());
        self.findings.push(finding.suggest(suggestion));
    }

    fn duration(&mut self, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            let text = format!("expected a duration such as `1.5s`, found {}", Self::describe(tree, scope));
            let suggestion = match tree.value() {
                TreeValue::Number(number) => Some(format!("{number}s")),
                TreeValue::Null
                | TreeValue::Bool(_)
                | TreeValue::String(_)
                | TreeValue::List(_)
                | TreeValue::Object(_) => None,
            };
            let finding = Finding::error("bad-duration", path, text).at(tree.position());
            return self.findings.push(finding.suggest(suggestion));
        };
        let Some((seconds, nanos)) = parse_duration(text) else {
            let text = format!("{} is not a duration; write seconds such as `1.5s`", echo(text));
            let finding = Finding::error("bad-duration", path, text).at(tree.position());
            return self.findings.push(finding.suggest(tree.as_str().and_then(suggest_duration)));
        };
        self.seconds_and_nanos(seconds, nanos);
    }

    fn timestamp(&mut self, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            return self.wrong_type("a time such as `2024-01-31T12:00:00Z`", tree, path, scope);
        };
        let is_complete = text.len() <= 40 && text.contains('T');
        let Some(time) = text.parse::<Timestamp>().ok().filter(|_| is_complete) else {
            let text = format!("{} is not a time such as `2024-01-31T12:00:00Z`", echo(text));
            return self.fault("bad-timestamp", text, tree, path, scope);
        };
        self.seconds_and_nanos(time.seconds, time.nanos);
    }

    fn field_mask(&mut self, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let Some(text) = tree.as_str() else {
            return self.wrong_type("field paths with commas between them", tree, path, scope);
        };
        for path in text.split(',').filter(|path| !path.is_empty()) {
            self.writer.bytes_field(1, snake_case(path).as_bytes());
        }
    }

    /// Writes the two fields of durations and times.
    fn seconds_and_nanos(&mut self, seconds: i64, nanos: i32) {
        if seconds != 0 {
            self.writer.field(1, &Kind::Int64, &Value::I64(seconds));
        }
        if nanos != 0 {
            self.writer.field(2, &Kind::Int32, &Value::I32(nanos));
        }
    }

    /// Writes a text of a well-known type, unless it is empty.
    fn text(&mut self, number: u32, text: &str) {
        if !text.is_empty() {
            self.writer.bytes_field(number, text.as_bytes());
        }
    }

    fn struct_value(
        &mut self,
        descriptor: &MessageDescriptor,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let TreeValue::Object(entries) = tree.value() else {
            return self.wrong_type("an object", tree, path, scope);
        };
        let Some(field) = descriptor.get_field_by_name("fields") else { return };
        if let Kind::Message(entry_type) = field.kind() {
            self.map(field.number(), &entry_type, entries, path, scope);
        }
    }

    /// The value is a member of a oneof, so it is always written.
    fn any_value(&mut self, descriptor: &MessageDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        let writer = &mut self.writer;
        let mut scalar = |field: &str, value: Value| {
            if let Some(field) = descriptor.get_field_by_name(field) {
                writer.field(field.number(), &field.kind(), &value);
            }
        };
        match tree.value() {
            TreeValue::Null => scalar("null_value", Value::EnumNumber(0)),
            TreeValue::Bool(truth) => scalar("bool_value", Value::Bool(truth)),
            TreeValue::Number(Number::Integer(integer)) => scalar("number_value", Value::F64(integer as f64)),
            TreeValue::Number(Number::Float(float)) if float.is_infinite() => {
                self.fault("out-of-range", BEYOND_DOUBLES, tree, path, scope);
            }
            TreeValue::Number(Number::Float(float)) => scalar("number_value", Value::F64(float)),
            TreeValue::String(text) => scalar("string_value", Value::String(text.to_owned())),
            TreeValue::List(_) => self.member_of_value(descriptor, "list_value", tree, path, scope),
            TreeValue::Object(_) => self.member_of_value(descriptor, "struct_value", tree, path, scope),
        }
    }

    fn member_of_value(
        &mut self,
        descriptor: &MessageDescriptor,
        field: &str,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) {
        let Some(field) = descriptor.get_field_by_name(field) else { return };
        if let Kind::Message(nested) = field.kind() {
            self.nested(&field, &nested, tree, path, scope);
        }
    }

    fn list_value(&mut self, descriptor: &MessageDescriptor, tree: Node<'_>, path: &Path<'_>, scope: Scope) {
        if let Some(field) = descriptor.get_field_by_name("values") {
            self.list(&field, tree, path, scope);
        }
    }
}

/// The bytes of `{"@type": …, "value": base64}`, if the object has no other fields.
pub(crate) fn opaque_value(entries: Entries<'_>) -> Option<Vec<u8>> {
    let find = |key: &str| {
        let mut entries = entries;
        entries.find(|entry| entry.key == key)
    };
    let value = find("value")?;
    if entries.len() != 2 || find("@type").is_none() {
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

/// Converts durations such as `100ms` or `5m` to seconds.
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

/// A mask's path with proto names. A path that already has them stays the same.
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

/// Well-known types with a JSON form of their own, except for wrappers.
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
