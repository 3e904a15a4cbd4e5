//! A document as it was written.

use std::fmt;

use serde_json::Value;
use xds_codec::Tree;
use xds_codec::document::{Entry, Node};

/// A document as it was written, kept as JSON text: as a value it would take up to forty times as much.
///
/// Equal if the values are, in whatever order their keys stand.
#[derive(Clone, Default)]
pub struct Source(Box<str>);

impl Source {
    /// The document without what a cluster adds to it, in the order of the text.
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
        Self(text.into())
    }

    /// Of a policy that is not supported, only which it is and its targets: anything else may be secret, and is not looked at.
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
        Self(text.into())
    }

    /// A document of the native form that has one object.
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
        Self(text.into())
    }

    /// The document as a value.
    #[must_use]
    pub fn json(&self) -> Value {
        // It was written from a tree, so it is JSON.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// The document as a tree without positions.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree::from_json(&self.json())
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
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

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.0.len() == other.0.len() && self.json() == other.json()
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    /// Only the length; the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
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
}
