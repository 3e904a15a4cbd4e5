//! A document as it was written.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use serde_json::Value;
use xds_cache::{GroupName, Version, VersionHasher};
use xds_codec::Tree;
use xds_codec::document::{Entry, Node};

/// A document as it was written, stored as JSON text. A parsed value would take up to forty times the memory.
///
/// Equal if the values are equal, whatever the order of keys.
#[derive(Clone, Default)]
pub struct Source {
    text: Box<str>,
    /// The version for the first group that it was computed for.
    version: OnceLock<(GroupName, Version)>,
}

impl Source {
    /// The document without the fields that a cluster adds, in the order of the text.
    pub(crate) fn of_document(tree: Node<'_>) -> Self {
        let mut text = String::new();
        let entries = tree.entries().filter(|entry| entry.key != "status");
        write_object(entries, &mut text, |entry, text| {
            if entry.key == "metadata" && entry.value.is_object() {
                let entries = entry.value.entries().filter(|entry| entry.key != "managedFields");
                write_object(entries, text, |entry, text| entry.value.write_json(text));
            } else {
                entry.value.write_json(text);
            }
        });
        Self { text: text.into(), version: OnceLock::new() }
    }

    /// The length of its text in bytes.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.text.len()
    }

    /// The source of an unsupported policy, with only its identity and targets. Anything else may be secret.
    pub(crate) fn of_policy(tree: Node<'_>) -> Self {
        let of = |names: &'static [&'static str]| move |entry: &Entry<'_>| names.contains(&entry.key);
        let mut text = String::new();
        let entries = tree.entries().filter(of(&["apiVersion", "kind", "metadata", "spec"]));
        write_object(entries, &mut text, |entry, text| {
            let shown: &[&str] = match entry.key {
                "metadata" => &["name", "namespace"],
                "spec" => &["targetRef", "targetRefs", "targetSelectors"],
                _ => return entry.value.write_json(text),
            };
            let entries = entry.value.entries().filter(of(shown));
            write_object(entries, text, |entry, text| entry.value.write_json(text));
        });
        Self { text: text.into(), version: OnceLock::new() }
    }

    /// A document of the native form with one object.
    pub(crate) fn of_native(
        version: &str,
        namespace: Option<&str>,
        section: &str,
        name: &str,
        value: Node<'_>,
    ) -> Self {
        let mut text = format!("{{\"version\":{}", Value::from(version));
        if let Some(namespace) = namespace {
            text.push_str(&format!(",\"namespace\":{}", Value::from(namespace)));
        }
        text.push_str(&format!(",{}:{{{}:", Value::from(section), Value::from(name)));
        value.write_json(&mut text);
        text.push_str("}}");
        Self { text: text.into(), version: OnceLock::new() }
    }

    /// The document as a value.
    #[must_use]
    pub fn json(&self) -> Value {
        // It was written from a tree, so it is JSON.
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The document as a tree without positions.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::from_json(&self.json())
    }

    /// The hash of the content and the group, independent of the order of keys.
    ///
    /// It is stored for the first group, because documents seldom change their group, and computed each time for others.
    #[must_use]
    pub fn version(&self, group: &GroupName) -> Version {
        let (first, version) = self.version.get_or_init(|| (group.clone(), self.hash(group)));
        if first == group { *version } else { self.hash(group) }
    }

    fn hash(&self, group: &GroupName) -> Version {
        let mut text = String::with_capacity(self.text.len());
        write_sorted(&self.json(), &mut text);
        let mut hasher = VersionHasher::new();
        hasher.update(group.as_str().as_bytes());
        hasher.update(text.as_bytes());
        hasher.finish()
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn write_object<'t>(
    entries: impl Iterator<Item = Entry<'t>>,
    text: &mut String,
    mut write_value: impl FnMut(Entry<'t>, &mut String),
) {
    text.push('{');
    for (index, entry) in entries.enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(&Value::from(entry.key).to_string());
        text.push(':');
        write_value(entry, text);
    }
    text.push('}');
}

/// Writes JSON with sorted keys.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in sorted {
                // Writing to a string does not fail.
                let _ = write!(text, "{}:", Value::from(key.as_str()));
                write_sorted(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_sorted(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(text, "{value}");
        }
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text || self.text.len() == other.text.len() && self.json() == other.json()
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    /// Shows only the length, because the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(json: &Value) -> Source {
        Source::of_document(Tree::from_json(json).root())
    }

    #[test]
    fn what_a_cluster_adds_is_left_out() {
        let json = serde_json::json!({
            "kind": "Service", "metadata": {"name": "a\n\"", "managedFields": [1]}, "spec": {"a": [1.5, null, {}]}, "status": {"x": 1},
        });
        let expected =
            "{\"kind\":\"Service\",\"metadata\":{\"name\":\"a\\n\\\"\"},\"spec\":{\"a\":[1.5,null,{}]}}";
        assert_eq!(source(&json).text(), expected);
        assert_eq!(source(&json).json().to_string(), expected);
    }

    #[test]
    fn the_order_of_keys_makes_no_difference() {
        let one = source(&serde_json::json!({"a": 1, "b": {"c": 2, "d": 3}}));
        assert_eq!(one, source(&serde_json::json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(one, source(&serde_json::json!({"b": {"d": 3, "c": 1}, "a": 1})));
    }

    #[test]
    fn a_version_is_of_the_values_and_of_the_group() {
        let of = |text: &str| source(&serde_json::from_str(text).unwrap());
        let (a, b) = (GroupName::default_group(), GroupName::new("b").unwrap());
        let one = of(r#"{"a": [1, {"c": null, "b": "x"}], "d": true}"#);
        let other = of(r#"{"d": true, "a": [1, {"b": "x", "c": null}]}"#);
        assert_eq!(other.version(&b), one.hash(&b));
        assert_eq!([one.version(&a), one.version(&b)], [other.version(&a), other.version(&b)]);
        assert_ne!(one.version(&a), one.version(&b));
        assert_ne!(of(r#"{"a": ["a", "b"]}"#).version(&a), of(r#"{"a": ["a,b"]}"#).version(&a));
        assert_eq!(one.version(&a).to_string(), "f42b88f27fd48439", "stores keep it");
    }
}
