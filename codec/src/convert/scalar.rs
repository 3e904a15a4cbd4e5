//! Numbers, strings, bytes and enums.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::{EnumDescriptor, EnumValueDescriptor, Kind, MapKey, Value};

use super::converter::{Converter, Scope};
use crate::diagnostic::{echo, echo_name, nearest};
use crate::document::{Node, Number, TreeValue};
use crate::finding::Finding;
use crate::path::Path;

impl Converter<'_> {
    pub(super) fn scalar(
        &mut self,
        kind: &Kind,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) -> Option<Value> {
        if let Kind::Enum(descriptor) = kind {
            return self.enum_value(descriptor, tree, path, scope);
        }
        let value = match (kind, tree.value()) {
            (Kind::Bool, TreeValue::Bool(truth)) => Some(Value::Bool(truth)),
            (Kind::String, TreeValue::String(text)) => Some(Value::String(text.to_owned())),
            (Kind::Bytes, TreeValue::String(text)) => {
                let bytes = decode_base64(text);
                if bytes.is_none() {
                    self.fault("bad-base64", "the text is not base64", tree, path, scope);
                    return None;
                }
                bytes.map(|bytes| Value::Bytes(bytes.into()))
            }
            (Kind::Bool | Kind::String | Kind::Bytes, _) => None,
            (_, TreeValue::Number(Number::Float(float))) if float.is_infinite() => {
                self.fault("out-of-range", BEYOND_DOUBLES, tree, path, scope);
                return None;
            }
            (_, TreeValue::Number(number)) => return self.number(kind, number, tree, path, scope),
            (_, TreeValue::String(text)) => match parse_text(kind, text) {
                Some(number) => return self.number(kind, number, tree, path, scope),
                None => None,
            },
            (_, _) => None,
        };
        if value.is_none() {
            let text = format!("expected {}, found {}", expected(kind), Self::describe(tree, scope));
            let suggestion = if scope.is_sensitive { None } else { suggest(kind, tree) };
            let finding = Finding::error("wrong-type", path, text).at(tree.position()).suggest(suggestion);
            self.findings.push(Finding { is_sensitive: scope.is_sensitive, ..finding });
        }
        value
    }

    fn number(
        &mut self,
        kind: &Kind,
        number: Number,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) -> Option<Value> {
        let value = to_number(kind, number);
        if value.is_none() {
            let text = match (range(kind), number) {
                (Some(_), Number::Float(float)) if float.fract() != 0.0 => {
                    format!("expected an integer, found {}", Self::describe(tree, scope))
                }
                (Some((low, high)), _) => {
                    format!("the number must be from {low} to {high}, found {}", Self::describe(tree, scope))
                }
                (None, _) => format!("the number does not fit, found {}", Self::describe(tree, scope)),
            };
            self.fault("out-of-range", text, tree, path, scope);
        }
        value
    }

    fn enum_value(
        &mut self,
        descriptor: &EnumDescriptor,
        tree: Node<'_>,
        path: &Path<'_>,
        scope: Scope,
    ) -> Option<Value> {
        match tree.value() {
            TreeValue::Null if descriptor.full_name() == "google.protobuf.NullValue" => {
                Some(Value::EnumNumber(0))
            }
            TreeValue::String(name) => {
                if let Some(value) = find_enum_value(descriptor, name) {
                    return Some(Value::EnumNumber(value.number()));
                }
                if let Some(Number::Integer(number)) = parse_text(&Kind::Int32, name) {
                    return i32::try_from(number).ok().map(Value::EnumNumber);
                }
                let names: Vec<_> = descriptor.values().map(|value| value.name().to_owned()).collect();
                let text =
                    format!("{} is not a value of {}{}", echo(name), descriptor.full_name(), list(&names));
                let suggestion = nearest(name, names.iter().map(String::as_str));
                let finding = Finding::error("bad-enum-value", path, text).at(tree.position());
                self.findings.push(finding.suggest(suggestion));
                None
            }
            TreeValue::Number(number) => {
                let value = to_number(&Kind::Int32, number);
                let Some(Value::I32(number)) = value else {
                    self.fault("out-of-range", "the number is not an enum value", tree, path, scope);
                    return None;
                };
                Some(Value::EnumNumber(number))
            }
            TreeValue::Null | TreeValue::Bool(_) | TreeValue::List(_) | TreeValue::Object(_) => {
                let expected = format!("a value of {}", descriptor.full_name());
                self.wrong_type(&expected, tree, path, scope);
                None
            }
        }
    }
}

/// The value with this name. Like Envoy, it ignores case and accepts dashes: `type: strict_dns`.
fn find_enum_value(descriptor: &EnumDescriptor, name: &str) -> Option<EnumValueDescriptor> {
    let exact = descriptor.get_value_by_name(name);
    exact.or_else(|| descriptor.get_value_by_name(&name.to_ascii_uppercase().replace('-', "_")))
}

/// ` (it has A, B)` with at most eight names.
fn list(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(8).map(String::as_str).collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    format!(" (it has {}{more})", shown.join(", "))
}

/// The value that a user most likely meant by a scalar of the wrong kind.
fn suggest(kind: &Kind, tree: Node<'_>) -> Option<String> {
    match (kind, tree.value()) {
        (Kind::String, TreeValue::Number(number)) => Some(format!("\"{number}\"")),
        (Kind::String, TreeValue::Bool(truth)) => Some(format!("\"{truth}\"")),
        (Kind::Bool, TreeValue::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some("true".to_owned()),
            "false" | "no" | "off" | "n" => Some("false".to_owned()),
            _ => None,
        },
        (Kind::Bool | Kind::String | Kind::Bytes, _) => None,
        (_, TreeValue::String(text)) => {
            let digits = text.trim_start_matches(['+', '0']).replace('_', "");
            (!digits.is_empty() && digits.len() < 20 && digits.bytes().all(|b| b.is_ascii_digit()))
                .then_some(digits)
        }
        (_, _) => None,
    }
}

/// Reads a number in quotes, which proto3's JSON allows for every number.
fn parse_text(kind: &Kind, text: &str) -> Option<Number> {
    let is_float = matches!(kind, Kind::Float | Kind::Double);
    match text {
        "NaN" if is_float => Some(Number::Float(f64::NAN)),
        "Infinity" if is_float => Some(Number::Float(f64::INFINITY)),
        "-Infinity" if is_float => Some(Number::Float(f64::NEG_INFINITY)),
        _ => crate::document::parse_number(text)
            .filter(|number| !matches!(number, Number::Float(float) if float.is_infinite())),
    }
}

/// The fault of a number without quotes that would become infinity.
pub(super) const BEYOND_DOUBLES: &str = "the number is too large for a double";

fn to_number(kind: &Kind, number: Number) -> Option<Value> {
    let float = match number {
        Number::Integer(integer) => integer as f64,
        Number::Float(float) => float,
    };
    // Whole numbers may be written as 1.0 or 1e3; beyond 2^63 a float is not an exact integer.
    let whole = match number {
        Number::Integer(integer) => Some(integer),
        Number::Float(float) if float.fract() == 0.0 && float.abs() < 9.3e18 => Some(float as i128),
        Number::Float(_) => None,
    };
    match kind {
        Kind::Double => Some(Value::F64(float)),
        Kind::Float => {
            let small = float as f32;
            (small.is_finite() || !float.is_finite()).then_some(Value::F32(small))
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => i32::try_from(whole?).ok().map(Value::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => i64::try_from(whole?).ok().map(Value::I64),
        Kind::Uint32 | Kind::Fixed32 => u32::try_from(whole?).ok().map(Value::U32),
        Kind::Uint64 | Kind::Fixed64 => u64::try_from(whole?).ok().map(Value::U64),
        Kind::Bool | Kind::String | Kind::Bytes | Kind::Message(_) | Kind::Enum(_) => None,
    }
}

fn range(kind: &Kind) -> Option<(i128, i128)> {
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Some((i32::MIN.into(), i32::MAX.into())),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Some((i64::MIN.into(), i64::MAX.into())),
        Kind::Uint32 | Kind::Fixed32 => Some((0, u32::MAX.into())),
        Kind::Uint64 | Kind::Fixed64 => Some((0, u64::MAX.into())),
        Kind::Double
        | Kind::Float
        | Kind::Bool
        | Kind::String
        | Kind::Bytes
        | Kind::Message(_)
        | Kind::Enum(_) => None,
    }
}

/// The expected kind with its article.
pub(super) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Double | Kind::Float => "a number".to_owned(),
        Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64 => "an integer".to_owned(),
        Kind::Bool => "a bool".to_owned(),
        Kind::String => "a string".to_owned(),
        Kind::Bytes => "a base64 string".to_owned(),
        Kind::Message(_) => "an object".to_owned(),
        Kind::Enum(descriptor) => format!("a value of {}", echo_name(descriptor.full_name())),
    }
}

/// Reads the key of a map, which JSON always writes as a string.
pub(super) fn map_key(kind: &Kind, text: &str) -> Option<MapKey> {
    match kind {
        Kind::String => Some(MapKey::String(text.to_owned())),
        Kind::Bool => text.parse().ok().map(MapKey::Bool),
        Kind::Double | Kind::Float | Kind::Bytes | Kind::Message(_) | Kind::Enum(_) => None,
        Kind::Int32
        | Kind::Int64
        | Kind::Uint32
        | Kind::Uint64
        | Kind::Sint32
        | Kind::Sint64
        | Kind::Fixed32
        | Kind::Fixed64
        | Kind::Sfixed32
        | Kind::Sfixed64 => to_number(kind, crate::document::parse_number(text)?)?.into_map_key(),
    }
}

/// Reads base64 in the standard or the URL-safe alphabet, with or without padding.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { alphabet::URL_SAFE } else { alphabet::STANDARD };
    GeneralPurpose::new(&alphabet, config).decode(text).ok()
}
