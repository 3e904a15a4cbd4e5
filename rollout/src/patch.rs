//! The text to write into a file so that it matches the state that a rollout left behind.

use std::fmt::Write;

use crate::phase::Phase;
use crate::spec::RuleKey;
use crate::state::Rollout;
use xds_units::Percent;

/// The part of the route's document to change, as YAML with a comment that says where it belongs; `None` unless the rollout has
/// succeeded.
///
/// It has only weights; other fields of the backends stay. Until the file says the same, an override of the weights applies.
#[must_use]
pub fn file_patch(rollout: &Rollout) -> Option<String> {
    if rollout.phase() != Phase::Succeeded {
        return None;
    }
    let RuleKey { kind, namespace, name, rule } = &rollout.spec.route;
    let weights = rollout.base.weights(&rollout.spec, Percent::ALL);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# {kind} {namespace}/{name}: the weights of rule {rule}");
    let (list, one): (_, fn(&str) -> Fields) = match kind.as_str() {
        "Route" => {
            let _ = writeln!(text, "to:");
            for (backend, weight) in weights {
                let _ = writeln!(text, "  {}: {weight}", scalar(&backend));
            }
            return Some(text);
        }
        "TrafficSplit" => ("backends", |key| vec![("service", scalar(key))]),
        "RouteConfiguration" => ("clusters", |key| vec![("name", scalar(key))]),
        _ => ("backendRefs", reference),
    };
    let _ = writeln!(text, "{list}:");
    for (backend, weight) in weights {
        for (index, (field, value)) in one(&backend).into_iter().enumerate() {
            let lead = if index == 0 { "-" } else { " " };
            let _ = writeln!(text, "{lead} {field}: {value}");
        }
        let _ = writeln!(text, "  weight: {weight}");
    }
    Some(text)
}

/// Fields of YAML with their values.
type Fields = Vec<(&'static str, String)>;

/// The fields of a reference of the Gateway API, from the backend's key: `[Kind/][namespace/]name[:port]`.
fn reference(key: &str) -> Fields {
    let (path, port) = match key.rsplit_once(':') {
        Some((path, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (path, Some(port)),
        _ => (key, None),
    };
    let (before, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut fields = vec![("name", scalar(name))];
    for part in before.split('/').filter(|part| !part.is_empty()) {
        // Kinds begin with a capital, which no namespace does.
        let is_kind = part.starts_with(|c: char| c.is_ascii_uppercase());
        fields.push((if is_kind { "kind" } else { "namespace" }, scalar(part)));
    }
    fields.extend(port.map(|port| ("port", port.to_owned())));
    fields
}

/// A text as YAML: plain where it cannot be mistaken, else as JSON, which is YAML.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text);
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
